/* heddle/runtime.h - the runtime: the devices of this machine and everything on them.
 *
 * A runtime owns its lanes, buffers and modules. hd_close releases all of them; later calls refuse
 * their handles (HANDLE). Several runtimes may be open at once; they share nothing but the GPUs.
 *
 * The option `placement` selects where a device's engine runs. It runs on the caller (inline), on a
 * thread of this process (thread), or in a worker process of its own (process). With workers this
 * process never starts the driver. A GPU that faults takes down only its worker, and
 * hd_device_restart brings the device back. Workers end within a second of the process that opened
 * the runtime, however that process ends.
 *
 * In the placements inline and thread, a device that the watchdog gives up cannot be stopped. Its
 * kernels may still write, also to memory of other devices that they were given. Do not free that
 * memory before hd_close.
 *
 * Fork: a runtime belongs to the process that opened it. In a child made by fork(), every call on
 * the runtime or its objects fails with HANDLE, and hd_close does nothing. The parent is not
 * affected. The child may open a runtime of its own with placement=process. It may use any
 * placement if the parent ran no driver in its own process (placements inline and thread run one).
 *
 * Threads: any.
 * Blocking: hd_open, hd_close and hd_device_restart, as their comments say. hd_device_get_info
 * calls the driver, or asks the worker process. All other calls return at once.
 */
#ifndef HEDDLE_RUNTIME_H
#define HEDDLE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

HD_BEGIN_DECLS

/* An open runtime: hd_open makes it, hd_close ends it. */
typedef struct hd_runtime hd_runtime;

/* Settings by name. The names are the same everywhere: `driver=host` in hd_options.settings is
 * HEDDLE_DRIVER=host in the environment. hd_option_get_info lists all options. A setting given here
 * overrides the environment. */
typedef struct hd_options {
    size_t size; /* sizeof(hd_options) */
    /* "name=value name=value ...", separated by spaces or commas; may be NULL */
    const char *settings;
} hd_options;

/* Opens the devices of this machine: the NVIDIA GPUs, or host devices (CPU stand-ins). It opens
 * host devices if there is no GPU or the option `driver=host` asks for them. `options` may be NULL.
 * The caller owns *out: hd_close. Blocks while the driver starts (the first use of a GPU can take a
 * second). Opens at most 32 devices (option devices).
 * Errors: ARGUMENT (out is null, size is wrong), OPTION, NO_DRIVER, NO_DEVICE, LIMIT (256 runtimes
 * are open), MEMORY, HOST_MEMORY, UNSUPPORTED (the device has no virtual memory management; this
 * process was forked from one that uses the driver), DEVICE_LOST, DRIVER, SYSTEM (also: a worker
 * process cannot be started or did not answer in time; with placement=process about 60 runtimes
 * have room for their pinned memory). */
HD_API hd_status hd_open(const hd_options *options, hd_runtime **out);

/* Waits for submitted work to finish, at most for the option `close_timeout`, then releases
 * everything. NULL: nothing happens.
 *   - First it waits until functions of hd_launch_host and hd_claim_on_ready have run and the
 *     program has ended its claims. These functions may call Heddle as before, and any thread may
 *     end claims. Calls of other threads with the runtime itself are refused: HANDLE. Their calls
 *     with lanes, buffers and claims work until this wait is over. hd_close waits for the work that
 *     they submit.
 *   - If work does not end in time, or the driver does not return, the devices are abandoned as
 *     they are. Everything they hold, pinned memory included, returns to the system when the
 *     process ends. hd_message names the operation and what was left.
 *   - It does not wait for an export without order (heddle/dlpack.h) that is still out. Its memory
 *     is left in the same way.
 *   - Releasing may take up to 5 seconds beyond close_timeout. Anything slower continues in the
 *     background, and hd_message names it.
 *   - Calls of other threads that are under way return, with HANDLE if they wait for work, memory
 *     or a pinned chunk. They get close_timeout to return; otherwise everything is left as it is.
 *   - Later calls are refused: HANDLE.
 * Errors: HANDLE (no open runtime, as for all but one of several threads that close at once; or
 * from a callback of this runtime, from a function that it called, or from a function of
 * hd_lane_run_native: nothing happens); TIMEOUT (something was left, as above; the runtime is
 * closed nevertheless); DEVICE_LOST, DRIVER (the driver refused to take something back); SYSTEM (a
 * trace, or the report of the option `stats`, was not written whole; the runtime is closed); ACCESS
 * (option memory_debug: buffers were not freed; the runtime is closed); HOST_MEMORY (for that
 * report; the runtime is closed). */
HD_API hd_status hd_close(hd_runtime *runtime);

/* Returns the number of devices; 0 for a bad handle. Devices are numbered from 0 in the driver's
 * order. */
HD_API int hd_device_count(const hd_runtime *runtime);

/* Properties of a device: hd_device_get_info. */
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
    size_t shared_bytes_max;       /* limit for static and dynamic together */
    size_t memory_bytes;           /* physical memory of the device */
    /* free now, as the driver reports; excludes memory that other programs use */
    size_t memory_free_bytes;
    size_t memory_mapped_bytes; /* physical bytes that this runtime holds mapped */
    int numa_node;              /* -1 when unknown */
    /* bit j: the driver reports that this device can access device j's memory */
    uint64_t peers;
    bool lost;
    int worker_pid;    /* its worker process; 0: none (another placement, or it is lost) */
    uint64_t losses;   /* how often it was lost since hd_open */
    uint64_t restarts; /* how often hd_device_restart brought it back */
} hd_device_info;

/* Returns the properties of a device. If it is lost, memory_free_bytes is 0; the rest stays valid.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, MEMORY, DRIVER. */
HD_API hd_status hd_device_get_info(hd_runtime *runtime, int device, hd_device_info *out);

/* Why a device was lost. */
typedef enum hd_loss_cause {
    /* The driver reported an error that ends all work on the device, e.g. an illegal address. */
    HD_LOSS_DRIVER = 1,
    HD_LOSS_WATCHDOG,     /* an operation did not finish within the option `watchdog` */
    HD_LOSS_WORKER_ENDED, /* the worker process ended or was killed */
    /* The worker process was stopped, or stayed in one driver call, for the option
     * worker_timeout. */
    HD_LOSS_WORKER_STUCK
} hd_loss_cause;

/* A loss of a device: hd_loss_next. */
typedef struct hd_device_loss {
    size_t size; /* set by the caller to sizeof(hd_device_loss) */
    int device;
    hd_loss_cause cause;
    int driver_code;   /* the driver's code (a CUresult); 0: none */
    int signal;        /* the signal that ended the worker; 0: none */
    uint64_t losses;   /* losses of this device since hd_open, including this one */
    char message[512]; /* one line: the device, the cause, the operations under way there */
} hd_device_loss;

/* Returns a descriptor that poll() reports as readable while there is a loss that hd_loss_next has
 * not returned yet. The runtime owns it (close-on-exec): do not read, write or close it. It is
 * valid until hd_close. Errors: ARGUMENT, HANDLE, SYSTEM. */
HD_API hd_status hd_loss_descriptor(hd_runtime *runtime, int *out);

/* Returns the oldest loss that it has not returned yet; it returns each once. Does not block. If a
 * device is lost again before its last loss was returned, only one is returned, with the newer
 * facts.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (there is none). */
HD_API hd_status hd_loss_next(hd_runtime *runtime, hd_device_loss *out);

/* Brings a lost device back, with a fresh worker process (placement process). Blocks until the
 * device works:
 *   - lanes accept work again
 *   - its modules and kernels are loaded
 *   - pinned memory is mapped for the device
 *   - the content of buffers with a checkpoint (hd_alloc_with) is restored
 *
 * Peer mappings are made again when they are first needed. Earlier tickets stay failed, and so do
 * all other buffers of the device. Using such a buffer fails with DEVICE_LOST; hd_free it. Other
 * devices continue to work meanwhile. Calls from several threads take turns; a device that is not
 * lost is left alone: HD_OK. Does not wait for work. The program keeps the bytes of open claims,
 * and lost work that waits for other work still ends after it.
 * Errors: HANDLE, NO_DEVICE, UNSUPPORTED (placements inline and thread: a driver that has lost a
 * device is of no more use to its process), HOST_MEMORY, SYSTEM (the worker cannot be started or
 * did not answer in time), NO_DRIVER, IMAGE, NOT_FOUND, MEMORY, DRIVER, DEVICE_LOST (lost again
 * meanwhile), FAILED or TIMEOUT (a checkpointed buffer could not be restored, or not within the
 * option transfer_timeout). On failure the device stays lost, and the call can be repeated. */
HD_API hd_status hd_device_restart(hd_runtime *runtime, int device);

/* Facts about a runtime: hd_runtime_get_info. */
typedef struct hd_runtime_info {
    size_t size;           /* set by the caller to sizeof(hd_runtime_info) */
    const char *driver;    /* "nvidia" or "host"; static */
    const char *placement; /* "inline", "thread" or "process"; static */
    int driver_version;    /* as the driver reports it: 13000 is 13.0 */
    int device_count;
} hd_runtime_info;

/* Returns the driver, the placement and the number of devices. Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_runtime_get_info(const hd_runtime *runtime, hd_runtime_info *out);

/* The source of an option's value. */
typedef enum hd_option_source {
    HD_OPTION_FROM_DEFAULT = 1, /* 0: the library does not report it */
    HD_OPTION_FROM_ENVIRONMENT,
    HD_OPTION_FROM_SETTINGS
} hd_option_source;

/* An option and its value: hd_option_get_info. */
typedef struct hd_option_info {
    size_t size;             /* set by the caller to sizeof(hd_option_info) */
    const char *name;        /* static */
    const char *environment; /* static, "HEDDLE_..." */
    /* The value in force, for `worker` and `probe` also the path that was found. Belongs to the
     * runtime; for a NULL runtime it is the default, a static string. */
    const char *value;
    const char *help;        /* static */
    bool is_default;         /* the value equals the default, whatever its source */
    hd_option_source source; /* the source of the value */
} hd_option_info;

/* Describes option number `index`, counted from 0. For a NULL runtime it describes the default.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (index is past the last one). */
HD_API hd_status hd_option_get_info(const hd_runtime *runtime, int index, hd_option_info *out);

/* Counters of one device since hd_open. They are read one by one, not as a snapshot. */
typedef struct hd_device_stats {
    size_t size;             /* set by the caller to sizeof(hd_device_stats) */
    uint64_t operations;     /* operations issued to the driver */
    uint64_t waits_inserted; /* waits between lanes that the ordering rules required */
    uint64_t events_recorded;
    uint64_t publishes;        /* completion flags that the device was asked to write */
    uint64_t ring_full_stalls; /* submissions that found their ring full and waited */
    uint64_t engine_sleeps;    /* times the engine went to sleep for want of work */
    uint64_t buffers_live;     /* buffers owned by this device that are not freed */
    uint64_t bytes_live;       /* their requested sizes */
} hd_device_stats;

/* Returns the counters of a device. Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_device_get_stats(hd_runtime *runtime, int device, hd_device_stats *out);

HD_END_DECLS
#endif
