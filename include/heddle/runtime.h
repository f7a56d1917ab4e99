/* heddle/runtime.h - the runtime: the devices of this machine and everything on them.
 *
 * A runtime owns its lanes, buffers and modules. hd_close releases all of them, and later calls
 * with their handles fail with HANDLE. Several runtimes may be open at the same time. They share
 * the devices. With the placements inline and thread, all open runtimes on host devices need the
 * same values of host_devices, host_memory, host_peers, host_corrupt and host_schedule.
 *
 * A device's engine is the part of the library that gives work to the driver. The option
 * `placement` selects where the engine runs. With placement=inline, the engine runs on the threads
 * that call Heddle. With placement=thread, the engine runs on a thread of this process. With
 * placement=process, the engine runs in a worker process of its own, and the program's process
 * never starts the driver. With placement=process, a fault on a GPU therefore ends only the worker
 * process of this GPU, and hd_device_restart brings the device back. When the process that opened
 * the runtime ends, even by a signal, its worker processes end within a second.
 *
 * If an operation takes longer than the option `watchdog` allows, its device counts as lost. In the
 * placements inline and thread, Heddle cannot stop the work on such a device. Kernels on the device
 * may still write to their buffers, also to buffers of other devices. Do not free these buffers of
 * other devices before hd_close.
 *
 * Fork: a runtime belongs to the process that opened it. In a child made by fork(), every call on
 * the runtime or its objects fails with HANDLE, even hd_close. The calls of the child
 * do not affect the parent. The child may open a runtime of its own with placement=process. With
 * the placements inline and thread, the child can open a runtime only if the parent did not start
 * the driver in its own process. A process starts the driver when it opens a runtime with one of
 * these two placements.
 *
 * Threads: any.
 * Blocking: hd_open, hd_close and hd_device_restart wait as their comments say. hd_device_get_info
 * waits for the driver or the worker process. All other calls return at once.
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

/* The options that hd_open takes. Each option can be set in `settings`, or by an environment
 * variable: `driver=host` in `settings` means the same as HEDDLE_DRIVER=host in the environment.
 * `settings` overrides the environment. hd_option_get_info describes all options. */
typedef struct hd_options {
    size_t size; /* sizeof(hd_options) */
    /* "name=value name=value ...", separated by spaces or commas; may be NULL */
    const char *settings;
} hd_options;

/* Opens the devices of this machine: the NVIDIA GPUs, or host devices (stand-ins on the CPU). The
 * call opens host devices if there is no GPU, or if the option driver=host asks for them. The
 * option `devices` selects the devices, at most 32. `options` may be NULL. The caller owns *out,
 * and ends it with hd_close. The call blocks while the driver starts, which can take a second for
 * the first use of a GPU.
 * Errors: ARGUMENT (out is null, size is wrong), OPTION, NO_DRIVER, NO_DEVICE, LIMIT (256 runtimes
 * are open), MEMORY, HOST_MEMORY, UNSUPPORTED (a device has no virtual memory management; this
 * process was forked from one that uses the driver), DEVICE_LOST, DRIVER, SYSTEM (also: a worker
 * process cannot be started or did not answer in time; with placement=process, about 60 open
 * runtimes take all addresses for pinned memory). */
HD_API hd_status hd_open(const hd_options *options, hd_runtime **out);

/* Closes a runtime: waits until submitted work is finished, at most for the time of the option
 * close_timeout, then releases everything. If `runtime` is NULL, nothing happens.
 *   - First, hd_close waits until the functions of hd_launch_host and hd_claim_on_ready have run
 *     and the program ended its claims. During this wait, these functions may call Heddle as
 *     before, and any thread may end claims. If other threads make calls with the runtime as an
 *     argument, these calls fail with HANDLE. Their calls with a lane, a buffer or a claim still
 *     work, and hd_close waits for the work that these calls submit.
 *   - If work does not end in time, or the driver does not return, hd_close leaves the devices as
 *     they are. hd_message names the unfinished operation and the resources that hd_close did not
 *     release. When the process ends, the system takes back device memory and pinned memory.
 *   - hd_close does not wait for the deleter of an export with HD_DLPACK_UNORDERED
 *     (heddle/dlpack.h). If the consumer has not called the deleter, hd_close leaves the memory of
 *     the export as it is.
 *   - The release may take up to 5 seconds more than close_timeout. A slower release continues in
 *     the background, and hd_message names it.
 *   - The driver waits for all kernels of the process when it unpins memory or unloads code. So if
 *     other runtimes of the process have work, hd_close waits for at most 2 seconds until the
 *     driver need not wait long. If this time is too short, hd_close gives back only the memory of
 *     the devices. A thread of Heddle later gives back pinned memory and code, and calls `released`
 *     of imports (heddle/import.h). If an import without a function `released` stays pinned,
 *     hd_close returns TIMEOUT.
 *   - hd_close waits for calls under way on other threads. Calls that wait for work, memory or a
 *     pinned chunk fail with HANDLE. If a call does not return within close_timeout, hd_close
 *     leaves everything as it is.
 *   - Later calls with the runtime or its objects fail with HANDLE.
 * Errors: HANDLE (nothing happens: the runtime is not open; another thread is closing it; or a
 * function that this runtime called, or a function of hd_lane_run_native, calls hd_close); TIMEOUT
 * (hd_close left something as it is; the runtime is closed nevertheless); DEVICE_LOST, DRIVER (the
 * driver refused to take something back); SYSTEM (a trace, or the report of the option `stats`, was
 * not written whole; the runtime is closed); ACCESS (option memory_debug: buffers were not freed;
 * the runtime is closed); HOST_MEMORY (there was no memory for the report; the runtime is
 * closed). */
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
    size_t shared_bytes_per_block; /* for kernels that do not ask for more */
    size_t shared_bytes_max;       /* the most that a kernel can get, static and dynamic together */
    size_t memory_bytes;           /* physical memory of the device */
    /* memory that no program uses now, as the driver reports */
    size_t memory_free_bytes;
    size_t memory_mapped_bytes; /* physical memory that this runtime has mapped */
    int numa_node;              /* -1 when unknown */
    /* bit j: the driver reports that this device can access device j's memory */
    uint64_t peers;
    bool lost;
    int worker_pid;    /* id of its worker process; 0: none (other placement, or device is lost) */
    uint64_t losses;   /* how often the device was lost since hd_open */
    uint64_t restarts; /* how often hd_device_restart brought the device back */
} hd_device_info;

/* Returns the properties of a device. If the device is lost, memory_free_bytes is 0, and the other
 * fields stay valid.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, MEMORY, DRIVER. */
HD_API hd_status hd_device_get_info(hd_runtime *runtime, int device, hd_device_info *out);

/* Why a device was lost. */
typedef enum hd_loss_cause {
    /* The driver reported an error that ends all work on the device, such as an illegal address. */
    HD_LOSS_DRIVER = 1,
    HD_LOSS_WATCHDOG,     /* an operation did not finish within the time of the option watchdog */
    HD_LOSS_WORKER_ENDED, /* the worker process ended or was killed */
    /* The worker process was stopped, or stayed in one driver call, for the time of the option
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
    char message[512]; /* one line: the device, the cause, the operations under way on the device */
} hd_device_loss;

/* Returns a file descriptor for poll(). The descriptor is readable while hd_loss_next has a loss to
 * return. The runtime owns the descriptor (close-on-exec): do not read, write or close it. The
 * descriptor is valid until hd_close. Errors: ARGUMENT, HANDLE, SYSTEM. */
HD_API hd_status hd_loss_descriptor(hd_runtime *runtime, int *out);

/* Returns the oldest loss that no earlier call of hd_loss_next returned. The call does not block.
 * If a device is lost twice before hd_loss_next returns the first loss, hd_loss_next returns only
 * the second loss.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (there is no further loss). */
HD_API hd_status hd_loss_next(hd_runtime *runtime, hd_device_loss *out);

/* Brings a lost device back, with a new worker process (placement process). The call blocks until
 * the device works:
 *   - lanes accept work again
 *   - the device has loaded its modules and kernels
 *   - pinned memory is mapped for the device
 *   - saved buffers contain their saved content again (hd_buffer_save)
 *
 * Tickets of lost work stay failed. Buffers of the device without a saved copy stay lost. Calls
 * that use their content fail with DEVICE_LOST, and the program should free these buffers
 * (hd_free). Other devices work on during the call. If several threads call hd_device_restart, one
 * call runs after the other. If the device is not lost, the call does nothing and returns HD_OK.
 * The call does not wait for work. If a claim is open, its bytes stay with the program. If lost
 * work was waiting for other work, the lost work fails only when the other work ends. Heddle maps
 * memory of other devices for the restarted device when the device first needs this memory.
 * Errors: HANDLE, NO_DEVICE, UNSUPPORTED (placements inline and thread: a process cannot use the
 * driver any more after a loss), HOST_MEMORY, SYSTEM (the worker cannot be started or did not
 * answer in time), NO_DRIVER, IMAGE, NOT_FOUND, MEMORY, DRIVER, DEVICE_LOST (the device was lost
 * again during the call), FAILED or TIMEOUT (a saved buffer could not be restored, or not within
 * the time of the option transfer_timeout). After a failure the device stays lost, and the program
 * can repeat the call. */
HD_API hd_status hd_device_restart(hd_runtime *runtime, int device);

/* Facts about a runtime: hd_runtime_get_info. */
typedef struct hd_runtime_info {
    size_t size;           /* set by the caller to sizeof(hd_runtime_info) */
    const char *driver;    /* "nvidia" or "host"; static */
    const char *placement; /* "inline", "thread" or "process"; static */
    int driver_version;    /* as the driver reports it: 13000 means 13.0 */
    int device_count;
} hd_runtime_info;

/* Returns the driver, the placement and the number of devices. Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_runtime_get_info(const hd_runtime *runtime, hd_runtime_info *out);

/* The source of an option's value. 0 means that the library does not report the source. */
typedef enum hd_option_source {
    HD_OPTION_FROM_DEFAULT = 1,
    HD_OPTION_FROM_ENVIRONMENT,
    HD_OPTION_FROM_SETTINGS
} hd_option_source;

/* An option and its value: hd_option_get_info. */
typedef struct hd_option_info {
    size_t size;             /* set by the caller to sizeof(hd_option_info) */
    const char *name;        /* static */
    const char *environment; /* static, "HEDDLE_..." */
    /* The value that the runtime uses. If the option `worker` or `probe` is not set, the value is
     * the path that the runtime found. The runtime owns the string. For a NULL runtime, the value
     * is the default, a static string. */
    const char *value;
    const char *help;        /* static */
    bool is_default;         /* the value equals the default, whatever its source */
    hd_option_source source; /* the source of the value */
} hd_option_info;

/* Describes option number `index`, counted from 0. If `runtime` is NULL, the value is the default.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (index is past the last one). */
HD_API hd_status hd_option_get_info(const hd_runtime *runtime, int index, hd_option_info *out);

/* Counters of one device since hd_open. The library reads the counters one after the other, so they
 * may not match exactly. */
typedef struct hd_device_stats {
    size_t size;             /* set by the caller to sizeof(hd_device_stats) */
    uint64_t operations;     /* operations issued to the driver */
    uint64_t waits_inserted; /* waits between lanes that the ordering rules required */
    uint64_t events_recorded;
    uint64_t publishes;        /* completion flags that the engine asked the device to write */
    uint64_t ring_full_stalls; /* how often a submission waited for room in a lane */
    uint64_t engine_sleeps;    /* how often the engine went to sleep because it had no work */
    uint64_t buffers_live;     /* buffers owned by this device that are not freed */
    uint64_t bytes_live;       /* sum of the requested sizes of these buffers */
} hd_device_stats;

/* Returns the counters of a device. Errors: ARGUMENT, HANDLE, NO_DEVICE. */
HD_API hd_status hd_device_get_stats(hd_runtime *runtime, int device, hd_device_stats *out);

HD_END_DECLS
#endif
