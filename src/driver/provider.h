/* provider.h - the properties that a provider of driver entry points declares, beside its table
 * (driver.h).
 *
 * The other layers use only the properties in this record, and never compare the name. So a new
 * provider works once it declares its properties (docs/porting.md). Only engine/providers.c
 * compares names, for options and for messages of worker processes.
 * Threads: any. Locks: none. Blocking: none. Always: records are constant and exist as long as the
 * process.
 */
#ifndef HDI_DRIVER_PROVIDER_H
#define HDI_DRIVER_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/status.h>

struct hdi_driver;

/* The code that cuModuleLoadDataEx takes. A port to devices with another kind of code adds this
 * kind here, to kernel files and to hdi_image_open. */
typedef enum hdi_code_kind {
    HDI_CODE_PTX, /* text of PTX, a cubin or a fatbin */
    HDI_CODE_CPU  /* the shared object of a kernel file */
} hdi_code_kind;

/* The libraries for matrix products that devices can use. A port to devices with another kind of
 * library adds this kind here, and to blas/blas.c. */
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

    /* Devices are stand-ins on the CPU. The options host_* apply to such devices, and
     * hd_device_info.is_host is true for them. Nothing else depends on this field: the fields below
     * declare all other properties. */
    bool is_host;
    hdi_code_kind code;

    /* The threads of a block run at the same time. False: the threads run one after another. Then
     * the library's own kernels run with one thread per block, which does all the work of the
     * block. */
    bool threads_parallel;

    /* cuMemHostRegister pins pages, and holds a lock of the driver for long while it does so. So
     * Heddle makes the system allocate the pages beforehand. */
    bool pins_memory;

    /* cuModuleUnload waits for all work that runs on the device, as cuModuleLoadDataEx does. If it
     * does, Heddle unloads a module only once the work in flight is done. */
    bool unload_waits;

    /* The driver copies a kernel's code to the device at its first lookup. The kernel then starts
     * only after all kernels that run at that time. If this is so, Heddle has the kernels of a
     * small module copied when it loads the module. */
    bool lookup_waits;

    /* The number of streams that hd_open makes on each device, for lanes that are made later. Now
     * and then cuStreamCreate waits for the kernels that run on the device, and would delay such a
     * lane. 0: cuStreamCreate never waits. */
    uint32_t streams_ahead;

    /* Chains are as long as the option chains allows, since graphs neither take nor save time.
     * False: the kernels of a chain take HDI_KERNEL_TIME_SPAN_NS at most. */
    bool chains_eager;

    /* A fault on one device also ends the work of the process on its other devices. The message of
     * a loss then states this. */
    bool faults_spread;

    /* A file whose first line changes with the driver's kernel module; a result of a peer test is
     * valid only for the same line. NULL: there is no such file. */
    const char *version_file;

    uint64_t peer_test_bytes; /* the largest buffers that the test of a pair uses */
    /* A pair is slow if copies through pinned memory are more than this many times as fast as peer
     * copies. */
    double peer_slow_margin;

    /* CUPTI reports the devices' activities. False: Heddle asks CUPTI only if the option cupti
     * names a library. */
    bool reports_activities;

    hdi_blas_kind blas; /* libraries for matrix products */

    /* The DLDeviceType of device memory and of pinned memory, for DLPack. If the CPU can use device
     * memory by its address, the type is 1, the CPU. */
    int32_t dlpack_device, dlpack_pinned;

    /* Returns the size of the memory behind an exported descriptor; 0: the descriptor is no export.
     * NULL: the provider cannot find the size out. Any thread may call it. */
    uint64_t (*export_bytes)(int descriptor);

    /* Writes the report of the failed kernel, after a loss of a device: one line in
     * out[HDI_DRIVER_REASON_BYTES]. Empty: no report. `code`: the code with which the driver
     * refuses calls on the device since the loss. `ordinal`: the driver's number of the device. Any
     * thread may call it. */
    void (*reason)(int ordinal, int code, char *out);

    /* Returns the table without the fault wrapper. The process makes one table, and never closes
     * it. Errors: NO_DRIVER, HOST_MEMORY. */
    hd_status (*open)(const struct hdi_driver **out);
} hdi_provider;

/* nvidia.c; the list of all is in engine/providers.c */
extern const hdi_provider hdi_provider_nvidia;

#endif
