/* device.c - the properties of the host devices, and the names of codes.
 *
 * Threads: any. Locks: the host lock, for the settings. Blocking: none.
 */
#include <stdio.h>
#include <string.h>
#include "base/wait.h"
#include "simulator/cpu_run.h"
#include "simulator/host.h"

hdcu_result hdi_host_cuGetErrorName(hdcu_result error, const char **name)
{
    if (!name) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    switch (error) {
#define NAME_CASE(code, value)                                                                                         \
    case value:                                                                                                        \
        *name = value == 0 ? "CUDA_SUCCESS" : "CUDA_" #code;                                                           \
        return HDCU_SUCCESS;
        HDCU_RESULT_MAP(NAME_CASE)
#undef NAME_CASE
    default:
        *name = NULL;
        return HDCU_ERROR_INVALID_VALUE;
    }
}

hdcu_result hdi_host_cuGetErrorString(hdcu_result error, const char **text)
{
    return hdi_host_cuGetErrorName(error, text);
}

hdcu_result hdi_host_cuDeviceGetCount(int *count)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = count ? HDCU_SUCCESS : HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *count = hdi_host.device_count;
    }
    return hdi_host_leave(r);
}

/* hdi_host_enter, and checks the arguments. The lock is held on return, also after a failure. */
static hdcu_result enter_device(const void *output, hdcu_device device)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !output) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && !hdi_host_device_valid(device)) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    return r;
}

hdcu_result hdi_host_cuDeviceGet(hdcu_device *device, int ordinal)
{
    hdcu_result r = enter_device(device, ordinal);
    if (r == HDCU_SUCCESS) {
        *device = ordinal;
    }
    return hdi_host_leave(r);
}

static hdcu_result give_text(char *out, int length, const char *text, bool truncate)
{
    size_t need = strlen(text) + 1;
    if (length <= 0 || (!truncate && need > (size_t)length)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    snprintf(out, (size_t)length, "%s", text);
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_cuDeviceGetName(char *name, int length, hdcu_device device)
{
    hdcu_result r = enter_device(name, device);
    if (r == HDCU_SUCCESS) {
        char text[64];
        snprintf(text, sizeof text, "Heddle host device %d", device);
        r = give_text(name, length, text, true);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuDeviceGetPCIBusId(char *bus_id, int length, hdcu_device device)
{
    hdcu_result r = enter_device(bus_id, device);
    if (r == HDCU_SUCCESS) {
        char text[32];
        snprintf(text, sizeof text, "host:%d", device);
        r = give_text(bus_id, length, text, false);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuDeviceGetUuid(hdcu_uuid *uuid, hdcu_device device)
{
    hdcu_result r = enter_device(uuid, device);
    if (r == HDCU_SUCCESS) {
        memset(uuid->bytes, 0, sizeof uuid->bytes);
        memcpy(uuid->bytes, "heddle-host-dev", 15);
        uuid->bytes[15] = (char)device;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuDeviceTotalMem(size_t *bytes, hdcu_device device)
{
    hdcu_result r = enter_device(bytes, device);
    if (r == HDCU_SUCCESS) {
        *bytes = hdi_host.memory;
    }
    return hdi_host_leave(r);
}

static bool attribute_value(int attribute, hdcu_device device, int *value)
{
    switch (attribute) {
    case HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        *value = 1024;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        *value = 64;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        *value = 2147483647;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        *value = 65535;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        *value = HDI_CPU_SHARED_BYTES_DEFAULT;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = HDI_CPU_SHARED_BYTES_MAX;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MAX_PITCH:
        *value = HDI_HOST_PITCH_MAX;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = hdi_cpu_count();
        return true;
    case HDCU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
    case HDCU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    case HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = device;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case HDCU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = 1;
        return true;
    case HDCU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = -1;
        return true;
    default:
        return false;
    }
}

hdcu_result hdi_host_cuDeviceGetAttribute(int *value, int attribute, hdcu_device device)
{
    hdcu_result r = enter_device(value, device);
    if (r == HDCU_SUCCESS && !attribute_value(attribute, device, value)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_leave(r);
}
