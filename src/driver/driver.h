/* driver.h - the table of driver entry points that engines call, and the providers that fill it.
 *
 * Providers: `nvidia` (libcuda.so.1, opened at run time) and `host` (the same entry points on the
 * CPU). Either can be wrapped so that chosen calls fail or are late (the options `fault` and
 * `delay`).
 * Threads: a table does not change once it is open; any thread may call its entry points. Locks and
 * blocking: as in the provider.
 * Always: return codes are the driver's own codes. This layer uses nothing of runtimes, lanes or
 * buffers.
 */
#ifndef HDI_DRIVER_DRIVER_H
#define HDI_DRIVER_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include "base/options.h"
#include "driver/abi.h"
#include "driver/entries.h"
#include "driver/provider.h"

typedef struct hdi_driver {
    const hdi_provider *provider;
    int version; /* cuDriverGetVersion */
#define HDI_DRIVER_MEMBER(name, version, need, parameters, arguments) hdcu_result(*name) parameters;
    HDI_DRIVER_ENTRIES(HDI_DRIVER_MEMBER)
#undef HDI_DRIVER_MEMBER
} hdi_driver;

/* True in a process forked while a driver was started, or being started; not after an exec.
 * No driver survives a fork. In such a process:
 * - hdi_driver_open (engine/providers.h) fails with UNSUPPORTED, and hdi_driver_close does nothing.
 * - Entry points of the host provider return NOT_INITIALIZED without taking a lock. Those for the
 *   driver's version and the names of codes still work.
 * - Entry points of nvidia must not be called. */
bool hdi_driver_was_forked(void);
/* Call it when a driver is about to be started: children forked from now on may not use the driver.
 * hdi_driver_start_undo takes that back if the start fails. False: no host memory to watch for
 * forks, and nothing to undo. */
bool hdi_driver_start_begin(void);
void hdi_driver_start_undo(void);

/* The unwrapped table of the provider `nvidia`. It is process-wide, made once and never closed.
 * Errors: NO_DRIVER. */
hd_status hdi_driver_nvidia(const hdi_driver **out);

#define HDI_QUEUES_USUAL 8 /* the driver's own number */
#define HDI_QUEUES_MOST 32

/* Requests `n` hardware queues of a driver that was not yet started in this process.
 * Streams that share a queue delay each other: if one stream waits, work of the other one is late,
 * too. More queues make a context slower to make and to release. The request is a variable of the
 * environment. It stays unchanged if it is already set, or if `n` is HDI_QUEUES_USUAL. */
void hdi_driver_ask_for_queues(int n);

/* Codes below 0 replace a driver's code if the driver reported none. They stay inside the library:
 * hd_error.driver_code is 0 for them. */
enum {
    HDI_GONE_STUCK = -1,      /* the worker process is stopped, or stays in one driver call */
    HDI_GONE_UNANSWERED = -2, /* the worker process did not answer a request in time */
    HDI_GONE_WATCHDOG = -3,   /* an operation did not finish within the option watchdog */
    HDI_GONE_CLOSED = -4,     /* no worker process exists (any more) */
    /* The memory shared with the worker process is corrupted: its contents are impossible. */
    HDI_GONE_CORRUPTED = -5,
    HDI_GONE_EXIT = -1000,  /* this minus the exit status: the worker process ended */
    HDI_GONE_SIGNAL = -2000 /* this minus the signal: the worker process was killed */
};

/* The name of a code, such as "CUDA_ERROR_ILLEGAL_ADDRESS". An unknown code gives
 * "CUDA_ERROR_<number>", and a code below 0 describes the event, in words.
 * A text that contains a number belongs to the calling thread, until its next call
 * (hdi_error_name). */
const char *hdi_driver_code_name(hdcu_result code);

/* True for codes after which a context does no more work (700, 702, 709, 710, 714..719, 214, 220
 * and the like), and for all below 0. */
bool hdi_driver_code_is_fatal(hdcu_result code);

/* True if a kernel that ran is the cause, not the device or the caller. */
bool hdi_driver_code_is_of_kernel(hdcu_result code);

/* True if the code is about the capture of a stream. That stream may be another one than the call
 * was for. */
static inline bool hdi_driver_code_is_capture(hdcu_result code)
{
    return code >= HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED && code <= HDCU_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* ---- faults.c: the fault wrapper, which fails or delays driver calls on purpose ---- */

/* Wraps `provider` as the options `fault` and `delay` ask.
 * Errors: OPTION (a wrong value, or a wrapped table with other settings is open), HOST_MEMORY. */
hd_status hdi_faults_wrap(const hdi_driver *provider, const hdi_options *options, const hdi_driver **out);

/* Closes the wrapped table once. False: `driver` is another table. */
bool hdi_faults_unwrap(const hdi_driver *driver);

/* Counts a call of a library, which no table can wrap. The caller makes the call only if this
 * returns SUCCESS; any other code is the failure.
 * `driver` is the table in use. The options fault and delay apply as to an entry point. */
enum { HDI_FAULT_BLAS_OPEN, HDI_FAULT_BLAS_PRODUCT, HDI_FAULT_LIBRARY_CALLS };
#define HDI_FAULT_LIBRARY_NAMES "blasOpen", "blasProduct"
hdcu_result hdi_faults_library(const hdi_driver *driver, int which);

/* Calls through the wrapped table since it was opened, and calls failed on purpose. 0 for an
 * unwrapped table. */
uint64_t hdi_fault_calls(const hdi_driver *driver);
uint64_t hdi_fault_hits(const hdi_driver *driver);

#endif
