/* heddle/runtime.h - the runtime: the devices of this machine and everything on them.
 *
 * A runtime owns its lanes, buffers and modules. hd_close releases all of them; from then on calls refuse their handles (HANDLE).
 * Several runtimes may be open at once; they share nothing but the GPUs.
 *
 * The option `placement` decides where a device's engine runs. It is the caller (inline), a thread of this process
 * (thread), or a worker process of its own (process). With workers this process never starts the driver. A GPU that
 * faults takes nothing but its worker with it, and hd_device_restart brings it back. Workers are gone within a second of the
 * process that opened the runtime, however that ends.
 *
 * A device that the watchdog gives up in the placements inline and thread cannot be stopped. Its kernels may still be writing,
 * also to memory of other devices that they were given. That memory must not be freed before hd_close.
 *
 * Fork: a runtime belongs to the process that opened it. In a child made by fork() every call on it, or on anything of
 * it, fails with HANDLE. There, hd_close does nothing. The parent is not affected. The child may open a runtime of its own with
 * placement=process. It may use any placement if the parent had no driver in its own process (placements inline and thread have one).
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
 * the environment. hd_option_get_info lists them all. A setting given here wins over the environment. */
typedef struct hd_options {
    size_t size;          /* sizeof(hd_options) */
    const char *settings; /* "name=value name=value ...", separated by spaces or commas; may be NULL */
} hd_options;

/* Opens the devices of this machine: the NVIDIA GPUs, or host devices (CPU stand-ins). Host devices are opened where there is no GPU
 * or the option `driver=host` asks for them. `options` may be NULL. On success *out is owned by the caller: hd_close.
 * Blocks while the driver starts (the first use of a GPU can take a second).
 * At most 32 devices are opened (option devices).
 * Errors: ARGUMENT (out is null, size is wrong), OPTION, NO_DRIVER, NO_DEVICE, LIMIT (256 runtimes are open), MEMORY,
 * HOST_MEMORY, UNSUPPORTED (the device has no virtual memory management; this process was forked from one that uses the
 * driver), DEVICE_LOST, DRIVER, SYSTEM (also: a worker process cannot be started or did not answer in time; with
 * placement=process about 60 runtimes have room for their pinned memory). */
HD_API hd_status hd_open(const hd_options *options, hd_runtime **out);

/* Waits for submitted work to finish, at most for the option `close_timeout`, then releases everything. NULL: nothing happens.
 *   - First it waits until functions of hd_host_call and hd_claim_on_ready have run, and the program has ended its claims. These functions may
 *     call Heddle as before, and any thread may end claims. Calls of other threads with the runtime itself are refused: HANDLE. Their calls
 *     with lanes, buffers and claims work until this wait is over. What they submit is waited for.
 *   - Where work does not end in time, or the driver does not return, the devices are abandoned as they are. What they hold, pinned
 *     memory included, goes back to the system when the process ends. hd_message names the operation and what was left.
 *   - So is memory of an export without order (heddle/dlpack.h) that is still out, for which it does not wait.
 *   - Giving things back has 5 seconds beyond close_timeout. What takes longer goes on behind the program, and hd_message names it.
 *   - Calls of other threads that are under way return, with HANDLE where they wait for work, memory or a pinned chunk. They have
 *     close_timeout for that, and else everything is left as it is.
 *   - Calls afterwards are refused: HANDLE.
 * Errors: HANDLE (no open runtime, as for all but one of several threads that close at once; or from a callback of this runtime, from
 * a function that it called, or from a function of hd_lane_call: nothing happens); TIMEOUT (something was left, as above; the runtime is closed nevertheless); DEVICE_LOST, DRIVER (the driver
 * refused to take something back); SYSTEM (a trace, or the report of the option `stats`, was not written whole; the runtime is closed). */
HD_API hd_status hd_close(hd_runtime *runtime);

/* Number of devices, 0 for NULL. Devices are numbered from 0 in the driver's order. */
HD_API int hd_device_count(const hd_runtime *runtime);

typedef struct hd_device_info {
    size_t size; /* set by the caller to sizeof(hd_device_info) */
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
    size_t memory_free_bytes;      /* free now, as the driver reports; other programs count */
    size_t memory_mapped_bytes;    /* physical bytes that this runtime holds mapped */
    int numa_node;                 /* -1 when unknown */
    uint64_t peers;                /* bit j: the driver reports that this device can access device j's memory */
    bool lost;
    int worker_pid;    /* its worker process; 0: there is none (other placements, or it is lost) */
    uint64_t losses;   /* how often it was lost since hd_open */
    uint64_t restarts; /* how often hd_device_restart brought it back */
} hd_device_info;

/* Facts about one device; of a lost one all but memory_free_bytes, which is 0. Errors: ARGUMENT, HANDLE, NO_DEVICE, MEMORY,
 * DRIVER. */
HD_API hd_status hd_device_get_info(hd_runtime *runtime, int device, hd_device_info *out);

/* Why a device was lost. */
typedef enum hd_loss_cause {
    HD_LOSS_DRIVER = 1,   /* the driver reported an error that ends all work on the device, e.g. an illegal address */
    HD_LOSS_WATCHDOG,     /* an operation did not finish within the option `watchdog` */
    HD_LOSS_WORKER_ENDED, /* the worker process ended or was killed */
    HD_LOSS_WORKER_STUCK /* the worker process was stopped, or stayed in one driver call, for the option worker_timeout */
} hd_loss_cause;

typedef struct hd_device_loss {
    size_t size; /* set by the caller to sizeof(hd_device_loss) */
    int device;
    hd_loss_cause cause;
    int driver_code;   /* the driver's code (a CUresult), 0 where the driver gave none */
    int signal;        /* that ended the worker, 0: none */
    uint64_t losses;   /* of this device since hd_open, this one included */
    char message[512]; /* one line: the device, the cause, the operations under way there */
} hd_device_loss;

/* A descriptor that poll() finds readable while there is a loss that hd_loss_next has not returned yet. It belongs to the runtime
 * (close-on-exec; not to be read, written or closed) and is valid until hd_close. Errors: ARGUMENT, HANDLE, SYSTEM. */
HD_API hd_status hd_loss_descriptor(hd_runtime *runtime, int *out);

/* The oldest loss that it has not returned yet; it returns each once. Does not block. When a device is lost again before its last
 * loss was returned, only one is returned, with the newer facts. Errors: ARGUMENT, HANDLE, NOT_FOUND (there is none). */
HD_API hd_status hd_loss_next(hd_runtime *runtime, hd_device_loss *out);

/* Brings a lost device back, with a fresh worker process (placement process). Blocks until the device works:
 *   - lanes accept work again
 *   - the modules and kernels that it had are loaded
 *   - pinned memory is mapped for the device
 *   - buffers with a checkpoint (hd_alloc_with) have their content again
 * Peer mappings are made again when they are first needed.
 * What stays failed: tickets from before, and all other buffers of the device. Using one fails with DEVICE_LOST; hd_free it.
 * Other devices go on working meanwhile. Calls from several threads take turns; a device that is not lost is left alone: HD_OK.
 * Errors: HANDLE, NO_DEVICE, UNSUPPORTED (placements inline and thread: a driver that has lost a device is of no
 * more use to its process), HOST_MEMORY, SYSTEM (the worker cannot be started or did not answer in time), NO_DRIVER, IMAGE,
 * NOT_FOUND, MEMORY, DRIVER, DEVICE_LOST (lost again meanwhile), FAILED or TIMEOUT (a checkpointed buffer could not be restored, or not
 * within the option transfer_timeout; TIMEOUT also: work of other devices, which work of this one waited for, is not finished
 * after ten times the option worker_timeout). On failure the device stays lost, and the call can be repeated. */
HD_API hd_status hd_device_restart(hd_runtime *runtime, int device);

typedef struct hd_runtime_info {
    size_t size;           /* set by the caller to sizeof(hd_runtime_info) */
    const char *driver;    /* "nvidia" or "host"; static */
    const char *placement; /* "inline", "thread" or "process"; static */
    int driver_version;    /* as the driver reports it: 13000 is 13.0 */
    int device_count;
} hd_runtime_info;

/* Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_runtime_get_info(const hd_runtime *runtime, hd_runtime_info *out);

typedef enum hd_option_source {
    HD_OPTION_FROM_DEFAULT = 1, /* 0: the library does not report it */
    HD_OPTION_FROM_ENVIRONMENT,
    HD_OPTION_FROM_SETTINGS
} hd_option_source;

typedef struct hd_option_info {
    size_t size;             /* set by the caller to sizeof(hd_option_info) */
    const char *name;        /* static */
    const char *environment; /* static, "HEDDLE_..." */
    const char *
        value; /* in force, of `worker` and `probe` also the path that was found; belongs to the runtime (or static, for a
                        * NULL runtime: the default) */
    const char *help;        /* static */
    bool is_default;         /* the value is the default's, whatever its source */
    hd_option_source source; /* where it came from */
} hd_option_info;

/* The option number `index`, counted from 0. `runtime` may be NULL: then the defaults. Errors: ARGUMENT, HANDLE, NOT_FOUND (index is past the last one). */
HD_API hd_status hd_option_get_info(const hd_runtime *runtime, int index, hd_option_info *out);

/* Counters of one device since hd_open; the numbers are read one by one, not as a whole. */
typedef struct hd_device_stats {
    size_t size;             /* set by the caller to sizeof(hd_device_stats) */
    uint64_t operations;     /* operations issued to the driver */
    uint64_t waits_inserted; /* waits between lanes that the ordering rules needed */
    uint64_t events_recorded;
    uint64_t publishes;        /* completion flags that the device was asked to write */
    uint64_t ring_full_stalls; /* submissions that found their ring full and waited */
    uint64_t engine_sleeps;    /* times the engine went to sleep for want of work */
    uint64_t buffers_live;     /* buffers owned by this device that are not freed */
    uint64_t bytes_live;       /* their sizes, as asked for */
} hd_device_stats;

/* Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_device_get_stats(hd_runtime *runtime, int device, hd_device_stats *out);

HD_END_DECLS
#endif
