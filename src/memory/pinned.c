/* pinned.c - pinned host memory. Threads, locks and what always holds: see pinned.h. */
#include "memory/pinned.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/error.h"
#include "driver/current.h"

static hd_status fail_pin(hdcu_result code, const char *entry_point, size_t bytes)
{
    hd_status status = code == HDCU_ERROR_OUT_OF_MEMORY ? HD_ERROR_HOST_MEMORY
                       : hdi_driver_code_is_fatal(code) ? HD_ERROR_DEVICE_LOST
                                                        : HD_ERROR_DRIVER;
    return hdi_fail_driver(status, code, entry_point, -1, "pinned memory: %zu bytes cannot be pinned", bytes);
}

/* Gives the pages back and keeps the addresses from being used again. */
static void bury(hdi_shm *shm)
{
    mmap(shm->base, shm->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    close(shm->descriptor);
    memset(shm, 0, sizeof *shm);
}

/* Registers the mapping and asks for its device address; the context is current. */
static hd_status pin(hdi_pinned *p)
{
    const hdi_driver *driver = p->driver;
    hdcu_result code = driver->cuMemHostRegister(p->shm.base, p->shm.bytes,
                                                 HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP);
    if (code != HDCU_SUCCESS) {
        return fail_pin(code, "cuMemHostRegister", p->shm.bytes);
    }
    code = driver->cuMemHostGetDevicePointer(&p->device, p->shm.base, 0);
    if (code != HDCU_SUCCESS) {
        hd_status status = fail_pin(code, "cuMemHostGetDevicePointer", p->shm.bytes);
        if (driver->cuMemHostUnregister(p->shm.base) != HDCU_SUCCESS) {
            bury(&p->shm);
        }
        return status;
    }
    return HD_OK;
}

hd_status hdi_pinned_alloc(const hdi_driver *driver, hdcu_context context, size_t bytes, hdi_pinned *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "pinned memory: 0 bytes");
    }
    if (bytes > (size_t)PTRDIFF_MAX - page) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: %zu bytes are more than a process can address", bytes);
    }
    hdi_pinned p = {.driver = driver, .context = context};
    hd_status status = hdi_shm_create("heddle-pinned", (bytes + page - 1) / page * page, &p.shm);
    if (status != HD_OK) {
        return status;
    }
    const char *entry_point = "";
    hdi_current current;
    hdcu_result code = hdi_current_enter(driver, context, &current, &entry_point);
    if (code == HDCU_SUCCESS) {
        status = pin(&p);
        hdi_current_leave(&current);
    } else {
        status = fail_pin(code, entry_point, p.shm.bytes);
    }
    if (status != HD_OK) {
        hdi_shm_release(&p.shm);
        return status;
    }
    *out = p;
    return HD_OK;
}

hd_status hdi_pinned_release(hdi_pinned *pinned, bool abandoned)
{
    if (pinned->shm.base == NULL) {
        return HD_OK;
    }
    hd_status status = HD_OK;
    if (!abandoned) {
        const char *entry_point = "";
        hdi_current current;
        hdcu_result code = hdi_current_enter(pinned->driver, pinned->context, &current, &entry_point);
        bool entered = code == HDCU_SUCCESS;
        /* Tried without its context as well: it is what makes sure that no device uses the memory any more. */
        code = pinned->driver->cuMemHostUnregister(pinned->shm.base);
        entry_point = "cuMemHostUnregister";
        if (entered) {
            hdi_current_leave(&current);
        }
        if (code != HDCU_SUCCESS) {
            status = hdi_fail_driver(HD_ERROR_DRIVER, code, entry_point, -1,
                                     "pinned memory: %zu bytes could not be unpinned", pinned->shm.bytes);
        }
    }
    if (abandoned || status != HD_OK) {
        bury(&pinned->shm);
    } else {
        hdi_shm_release(&pinned->shm);
    }
    memset(pinned, 0, sizeof *pinned);
    return status;
}
