/* nvidia.c - the provider for NVIDIA's driver: libcuda.so.1, opened at run time.
 *
 * Threads: any. Locks: `once`, while the library is opened. Blocking: the first call reads the
 * library from disk.
 * Always: every table in use is complete. Each REQUIRED entry point was found with the ABI version
 * that entries.h states for it. Each OPTIONAL entry point may be a null pointer. From the first
 * table on, libcuda stays open, since its threads and handlers cannot be removed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/lock.h"
#include "driver/driver.h"

/* Implements hdi_provider.reason. The driver itself writes the text of an assertion. */
static void nvidia_reason(int ordinal, int code, char *out)
{
    (void)ordinal;
    snprintf(out, HDI_DRIVER_REASON_BYTES, "%s",
             code == HDCU_ERROR_ASSERT ? "the driver wrote the assertion, its block and thread to standard error" : "");
}

const hdi_provider hdi_provider_nvidia = {
    .name = "nvidia",
    .code = HDI_CODE_PTX,
    .threads_parallel = true,
    .pins_memory = true,
    .unload_waits = true,
    .lookup_waits = true,
    /* With driver 580, about every 41st cuStreamCreate waits for the device, and each other one
     * takes 20 us. */
    .streams_ahead = 128,
    .reports_activities = true,
    .faults_spread = true,
    .version_file = "/proc/driver/nvidia/version",
    .peer_test_bytes = (uint64_t)32 << 20,
    .peer_slow_margin = 1.25,
    .blas = HDI_BLAS_CUBLAS,
    .dlpack_device = 2, /* kDLCUDA */
    .dlpack_pinned = 3, /* kDLCUDAHost */
    .reason = nvidia_reason,
    .open = hdi_driver_nvidia,
};

typedef hdcu_result (*resolve_v2)(const char *symbol, void **function, int version, uint64_t flags, int *found);
typedef hdcu_result (*resolve_v1)(const char *symbol, void **function, int version, uint64_t flags);

typedef struct library {
    void *handle;
    resolve_v2 v2;
    resolve_v1 v1;
} library;

/* Copies an object pointer, which comes from dlsym or the driver, to a function pointer. Standard C
 * has no cast for this. */
#define TAKE(target, object) memcpy(&(target), &(object), sizeof(target))

static void *nvidia_resolve(const library *lib, const char *symbol, int version)
{
    void *function = NULL;
    int found = 0; /* CUdriverProcAddressQueryResult: 0 is found */
    hdcu_result r = lib->v2 ? lib->v2(symbol, &function, version, 0, &found) : lib->v1(symbol, &function, version, 0);
    return r == HDCU_SUCCESS && found == 0 ? function : NULL;
}

static hd_status nvidia_open_library(library *lib)
{
    *lib = (library){.handle = hdi_descriptor_library("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!lib->handle) {
        const char *why = dlerror();
        return hdi_fail(
            HD_ERROR_NO_DRIVER,
            "driver=nvidia: libcuda.so.1 cannot be loaded (%s); install the NVIDIA driver, or use driver=host",
            why ? why : "no reason given");
    }
    void *symbol = dlsym(lib->handle, "cuGetProcAddress_v2");
    TAKE(lib->v2, symbol);
    if (!symbol) {
        symbol = dlsym(lib->handle, "cuGetProcAddress");
        TAKE(lib->v1, symbol);
    }
    if (!lib->v2 && !lib->v1) {
        dlclose(lib->handle);
        return hdi_fail(HD_ERROR_NO_DRIVER,
                        "driver=nvidia: libcuda.so.1 has no cuGetProcAddress: the driver is older than CUDA 11.3; "
                        "install a newer one");
    }
    return HD_OK;
}

static hd_status nvidia_fill_table(const library *lib, hdi_driver *table)
{
    table->provider = &hdi_provider_nvidia;
    void *version_entry = nvidia_resolve(lib, "cuDriverGetVersion", 2020);
    TAKE(table->cuDriverGetVersion, version_entry);
    if (version_entry && table->cuDriverGetVersion(&table->version) != HDCU_SUCCESS) {
        table->version = 0;
    }
    static const struct {
        const char *name;
        int version;
        enum { OPTIONAL, REQUIRED } need;
        size_t member;
    } entries[] = {
#define ENTRY_ROW(name, version, need, parameters, arguments) {#name, version, need, offsetof(hdi_driver, name)},
        HDI_DRIVER_ENTRIES(ENTRY_ROW)
#undef ENTRY_ROW
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *function = nvidia_resolve(lib, entries[i].name, entries[i].version);
        if (!function && entries[i].need == REQUIRED) {
            return hdi_fail(HD_ERROR_NO_DRIVER,
                            "driver=nvidia: the driver (version %d.%d) has no %s of CUDA %d.%d; install a newer "
                            "driver, or use driver=host",
                            table->version / 1000, table->version % 1000 / 10, entries[i].name,
                            entries[i].version / 1000, entries[i].version % 1000 / 10);
        }
        memcpy((char *)table + entries[i].member, &function, sizeof function);
    }
    return HD_OK;
}

hd_status hdi_driver_nvidia(const hdi_driver **out)
{
    static hdi_mutex once = HDI_MUTEX_INIT(NVIDIA);
    static hdi_driver table;
    static bool ready;
    hdi_mutex_lock(&once);
    hd_status status = HD_OK;
    if (!ready) {
        library lib;
        status = nvidia_open_library(&lib);
        if (status == HD_OK) {
            status = nvidia_fill_table(&lib, &table);
            if (status != HD_OK) {
                dlclose(lib.handle);
            }
        }
        ready = status == HD_OK;
    }
    hdi_mutex_unlock(&once);
    if (status == HD_OK) {
        *out = &table;
    }
    return status;
}

void hdi_driver_ask_for_queues(int n)
{
    char number[16];
    snprintf(number, sizeof number, "%d", n);
    if (n != HDI_QUEUES_USUAL) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", number, 0);
    }
}
