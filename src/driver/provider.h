/* provider.h - the properties that a provider of driver entry points declares, beside its table
 * (driver.h).
 *
 * The other layers use this record, and never compare the name, so a new provider works by its
 * declared properties (docs/porting.md). Only engine/providers.c compares names, for options and
 * for messages of worker processes.
 * Threads: any. Locks: none. Blocking: nothing. Always: records are constant and live as long as
 * the process.
 */
#ifndef HDI_DRIVER_PROVIDER_H
#define HDI_DRIVER_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/status.h>

struct hdi_driver;

/* The code that cuModuleLoadDataEx takes. A port with another kind of code adds it here, to kernel
 * files and to hdi_image_open. */
typedef enum hdi_code_kind {
    HDI_CODE_PTX, /* text of PTX, a cubin or a fatbin */
    HDI_CODE_CPU  /* the shared object of a kernel file */
} hdi_code_kind;

/* The libraries for matrix products that devices can use. A port with another kind adds it here,
 * and to blas/blas.c. */
typedef enum hdi_blas_kind {
    HDI_BLAS_NONE, /* none: the built-in kernel makes products */
    HDI_BLAS_CUBLAS,
    HDI_BLAS_HOST, /* a BLAS for the CPU */
    HDI_BLAS_KINDS
} hdi_blas_kind;

#define HDI_DRIVER_REASON_BYTES 256

typedef struct hdi_provider {
    /* The name in the option driver, in messages, reports and results, and between processes. */
    const char *name;

    /* Devices are stand-ins on the CPU. The options host_* apply to them, and
     * hd_device_info.is_host shows it. Nothing else depends on this field: the fields below declare
     * all other properties. */
    bool is_host;
    hdi_code_kind code;

    /* The threads of a block run at the same time. False: they run one after another, and a kernel
     * of the library runs one thread per block, which does all work of the block. */
    bool threads_parallel;

    /* cuMemHostRegister pins pages, which takes a lock of the driver for long. Pages are then
     * populated beforehand. */
    bool pins_memory;

    /* cuModuleUnload waits for all work that runs on the device, as cuModuleLoadDataEx does. If so,
     * an unload is put off until the work in flight is done. */
    bool unload_waits;

    /* The driver copies a kernel's code to the device at its first lookup. The kernel then starts
     * only after all kernels that run at that time. If so, the kernels of a small module are copied
     * when it is loaded. */
    bool lookup_waits;

    /* Streams that hd_open makes on each device. Now and then cuStreamCreate waits for the kernels
     * that run on the device, so lanes that are made later take these streams. 0: cuStreamCreate
     * never waits. */
    uint32_t streams_ahead;

    /* Chains are as long as the option chains allows, since graphs cost and save nothing.
     * False: the kernels of a chain take HDI_KERNEL_TIME_SPAN_NS at most. */
    bool chains_eager;

    /* A fault on one device ends the work of the process on its other devices, which the message of
     * a loss then states. */
    bool faults_spread;

    /* A file whose first line changes with the driver's kernel module; results of peer tests belong
     * to that line. NULL: none. */
    const char *version_file;

    uint64_t peer_test_bytes; /* the largest buffers that the test of a pair uses */
    /* A pair is slow if pinned memory is more than this many times as fast. */
    double peer_slow_margin;

    /* CUPTI reports the devices' activities. False: CUPTI is only asked if the option cupti names a
     * library. */
    bool reports_activities;

    hdi_blas_kind blas; /* libraries for matrix products */

    /* The DLDeviceType of device memory and of pinned memory, for DLPack. 1, the CPU, if the CPU
     * uses device memory by its address. */
    int32_t dlpack_device, dlpack_pinned;

    /* The size of the memory behind an exported descriptor; 0: the descriptor exports none. NULL:
     * the size cannot be found out. Any thread. */
    uint64_t (*export_bytes)(int descriptor);

    /* Writes the report of the failed kernel, after a loss of a device: one line in
     * out[HDI_DRIVER_REASON_BYTES]. Empty: no report. `code`: the code with which the driver
     * refuses the device since then. `ordinal`: the driver's number of the device. Any thread. */
    void (*reason)(int ordinal, int code, char *out);

    /* The unwrapped table. Process-wide, made once, never closed. Errors: NO_DRIVER,
     * HOST_MEMORY. */
    hd_status (*open)(const struct hdi_driver **out);
} hdi_provider;

/* nvidia.c; the list of all is in engine/providers.c */
extern const hdi_provider hdi_provider_nvidia;

#endif
