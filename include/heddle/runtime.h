/* heddle/runtime.h - the runtime: the devices of this machine and everything on them.
 *
 * A runtime owns its lanes, buffers and modules. hd_close releases all of them; handles are invalid from then on.
 * Several runtimes may be open at once; they share nothing but the GPUs.
 */
#ifndef HEDDLE_RUNTIME_H
#define HEDDLE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

HD_BEGIN_DECLS

typedef struct hd_runtime hd_runtime;

/* Options are settings by name, the same names everywhere: `driver=host` in hd_options.settings is HEDDLE_DRIVER=host in
 * the environment. hd_option_get lists them all. A setting given here wins over the environment. */
typedef struct hd_options {
    size_t size;          /* sizeof(hd_options) */
    const char *settings; /* "name=value name=value ...", separated by spaces or commas; may be NULL */
} hd_options;

/* Opens the devices of this machine: the NVIDIA GPUs, or host devices (CPU stand-ins) where there is no GPU or the option
 * `driver=host` says so. `options` may be NULL. On success *out is owned by the caller: hd_close.
 * Blocks while the driver starts (the first use of a GPU can take a second).
 * At most 32 devices are opened (option devices).
 * Errors: ARGUMENT (out is null, size is wrong), OPTION, NO_DRIVER, NO_DEVICE, LIMIT (256 runtimes are open), MEMORY,
 * HOST_MEMORY, UNSUPPORTED (the device has no virtual memory management), DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_open(const hd_options *options, hd_runtime **out);

/* Waits for submitted work to finish, at most as long as the option `close_timeout` says, then releases everything. Where
 * work does not end in time, or the driver does not return, the devices are abandoned as they are: what they hold goes back
 * to the system when the process ends. NULL is ignored.
 * No other thread may be inside a call on this runtime, or call it afterwards. */
HD_API void hd_close(hd_runtime *runtime);

/* Number of devices, 0 for NULL. Devices are numbered from 0 in the driver's order. */
HD_API int hd_device_count(const hd_runtime *runtime);

typedef struct hd_device_info_t {
    size_t size; /* set by the caller to sizeof(hd_device_info_t) */
    char name[128];
    char bus_id[32]; /* PCI address "0000:1b:00.0"; "host:N" for a host device */
    uint8_t uuid[16];
    bool is_host; /* a CPU stand-in */
    int compute_major, compute_minor;
    int multiprocessors; /* CPU cores, for a host device */
    int max_threads_per_block;
    uint32_t max_block[3], max_grid[3];
    size_t shared_bytes_per_block; /* without opting in */
    size_t shared_bytes_max;       /* at most, static and dynamic together */
    size_t memory_bytes;           /* physical memory of the device */
    size_t memory_free_bytes;      /* free now, as the driver says; other programs count */
    size_t memory_mapped_bytes;    /* physical bytes that this runtime holds mapped */
    int numa_node;                 /* -1 when unknown */
    uint64_t peers;                /* bit j: the driver says this device can access device j's memory */
    bool lost;
} hd_device_info_t;

/* Facts about one device. Errors: ARGUMENT, HANDLE, NO_DEVICE, MEMORY, DEVICE_LOST, DRIVER. */
HD_API hd_status hd_device_info(hd_runtime *runtime, int device, hd_device_info_t *out);

typedef struct hd_runtime_info {
    size_t size;           /* set by the caller to sizeof(hd_runtime_info) */
    const char *driver;    /* "nvidia" or "host"; static */
    const char *placement; /* "inline" or "thread"; static */
    int driver_version;    /* as the driver reports it: 13000 is 13.0 */
    int device_count;
} hd_runtime_info;

/* Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_runtime_get_info(const hd_runtime *runtime, hd_runtime_info *out);

typedef struct hd_option_info {
    size_t size;             /* set by the caller to sizeof(hd_option_info) */
    const char *name;        /* static */
    const char *environment; /* static, "HEDDLE_..." */
    const char *value;       /* in force; belongs to the runtime (or static, for a NULL runtime: the default) */
    const char *help;        /* static */
    bool is_default;
} hd_option_info;

/* The option number `index`, counted from 0. `runtime` may be NULL: then the defaults. Errors: ARGUMENT, HANDLE, NOT_FOUND (index is past the last one). */
HD_API hd_status hd_option_get(const hd_runtime *runtime, int index, hd_option_info *out);

/* Counters of one device since hd_open; the numbers are read one by one, not as a whole. */
typedef struct hd_device_stats {
    size_t size;             /* set by the caller to sizeof(hd_device_stats) */
    uint64_t operations;     /* operations issued to the driver */
    uint64_t waits_inserted; /* waits between lanes that the ordering rules needed */
    uint64_t events_recorded;
    uint64_t publishes;        /* completion words that the device was asked to write */
    uint64_t ring_full_stalls; /* submissions that found their ring full and waited */
    uint64_t engine_sleeps;    /* times the engine went to sleep for want of work */
    uint64_t buffers_live;     /* buffers owned by this device that are not freed */
    uint64_t bytes_live;       /* their sizes, as asked for */
} hd_device_stats;

/* Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_device_get_stats(hd_runtime *runtime, int device, hd_device_stats *out);

HD_END_DECLS
#endif
