/* driver.h - the table of driver entry points that engines call, and the providers that fill it.
 *
 * Providers: `nvidia` (libcuda.so.1, opened at run time) and `host` (the same entry points on the
 * CPU). A wrapper around either provider makes chosen calls fail, or delays them (the options
 * `fault` and `delay`).
 * Threads: a table does not change once it is open; any thread may call its entry points. Locks and
 * blocking: as in the provider.
 * Always: return codes are the driver's own codes. This layer knows nothing of runtimes, lanes or
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

/* True in a child that a process forked after, or during, the start of a driver; false again after
 * an exec. No driver survives a fork. In such a process:
 * - hdi_providers_open_driver (engine/providers.h) fails with UNSUPPORTED, and
 *   hdi_providers_close_driver does nothing.
 * - Entry points of the host provider return NOT_INITIALIZED without taking a lock. The entry
 *   points for the driver's version and the names of codes still work.
 * - Entry points of nvidia must not be called. */
bool hdi_driver_was_forked(void);
/* Call hdi_driver_start_begin before the start of a driver. Children that are forked from now on
 * may not use the driver. If the start fails, hdi_driver_start_undo takes this back. False: no host
 * memory to watch for forks; then do not call hdi_driver_start_undo. */
bool hdi_driver_start_begin(void);
void hdi_driver_start_undo(void);

/* Returns the table of the provider `nvidia`, without the fault wrapper. The process makes one
 * table, and never closes it.
 * Errors: NO_DRIVER. */
hd_status hdi_driver_nvidia(const hdi_driver **out);

#define HDI_QUEUES_USUAL 8 /* the driver's default */
#define HDI_QUEUES_MOST 32

/* Requests `n` hardware queues of a driver that was not yet started in this process.
 * Streams that share a queue delay each other: while one stream waits, work of the other streams
 * also waits. With more queues, a context takes longer to make and to release. The request is a
 * variable of the environment. If it is already set, or if `n` is HDI_QUEUES_USUAL, this function
 * does not change it. */
void hdi_driver_ask_for_queues(int n);

/* Codes below 0 stand for events that the driver did not report. They stay inside the library: for
 * these events, hd_error.driver_code is 0. */
enum {
    HDI_GONE_STUCK = -1,      /* the worker process is stopped, or stays in one driver call */
    HDI_GONE_UNANSWERED = -2, /* the worker process did not answer a request in time */
    HDI_GONE_WATCHDOG = -3,   /* an operation did not finish within the option watchdog */
    HDI_GONE_CLOSED = -4,     /* no worker process exists (any more) */
    /* The memory that the application shares with the worker process is corrupted: its contents are
     * impossible. */
    HDI_GONE_CORRUPTED = -5,
    HDI_GONE_EXIT = -1000,  /* HDI_GONE_EXIT minus the exit status: the worker process ended */
    HDI_GONE_SIGNAL = -2000 /* HDI_GONE_SIGNAL minus the signal: the worker process was killed */
};

/* The name of a code, such as "CUDA_ERROR_ILLEGAL_ADDRESS". For an unknown code, this is
 * "CUDA_ERROR_<number>", and for a code below 0, a description of the event.
 * A text that contains a number belongs to the calling thread, until its next call
 * (hdi_error_name). */
const char *hdi_driver_code_name(hdcu_result code);

/* The remedy for a failure with this code, for the end of a message; "" if there is none. */
const char *hdi_driver_code_advice(hdcu_result code);
/* True for codes after which a context does no more work (700, 702, 709, 710, 714..719, 214, 220
 * and the like), and for all codes below 0. */
bool hdi_driver_code_is_fatal(hdcu_result code);

/* True if a kernel caused the code, and not the device or the caller. */
bool hdi_driver_code_is_of_kernel(hdcu_result code);

/* True if the capture of a stream caused the code. The captured stream may differ from that of the
 * call. */
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

/* Counts a call of a library, which is in no table that could be wrapped. If the function returns
 * SUCCESS, the caller makes the call; otherwise the call fails with the code. `driver` is the table
 * in use. The options fault and delay apply as to an entry point. */
enum { HDI_FAULT_BLAS_OPEN, HDI_FAULT_BLAS_PRODUCT, HDI_FAULT_LIBRARY_CALLS };
#define HDI_FAULT_LIBRARY_NAMES "blasOpen", "blasProduct"
hdcu_result hdi_faults_library(const hdi_driver *driver, int which);

#endif
