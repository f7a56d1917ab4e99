/* driver.h - the table of driver entry points that the engine calls, and the providers that fill it.
 *
 * Providers: `nvidia` (libcuda.so.1, opened at run time) and `host` (the same entry points on the CPU). Either can be wrapped
 * so that chosen calls fail or are late (the options `fault` and `delay`).
 * Threads: a table is read-only once opened; the entry points may be called from any thread, as the driver's.
 * Return codes are the driver's own. This layer does not know runtimes, lanes or buffers.
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

/* Opens the provider that the options name, calls cuInit, and wraps it when the options `fault` or `delay` say so. `auto`
 * takes nvidia where libcuda opens and shows a device, else host. The table lives until hdi_driver_close.
 * Errors: NO_DRIVER (the message says what was tried and what came back), OPTION, HOST_MEMORY, UNSUPPORTED (in a process
 * that was forked from one that uses the driver). */
hd_status hdi_driver_open(const hdi_options *options, const hdi_driver **out);
void hdi_driver_close(const hdi_driver *driver); /* NULL is ignored */

/* True in a process that was forked from one in which hdi_driver_open had succeeded or was under way; not after an exec.
 * No driver survives a fork: hdi_driver_open fails there with UNSUPPORTED, hdi_driver_close does nothing, entry points of
 * the host provider return NOT_INITIALIZED without taking a lock (those that only tell the driver's version and the
 * names of codes work), and those of nvidia must not be called. */
bool hdi_driver_was_forked(void);

/* The unwrapped table of one provider; fails as hdi_driver_open. Process-wide, made once, never closed. */
hd_status hdi_driver_nvidia(const hdi_driver **out);
hd_status hdi_driver_host(const hdi_driver **out);

#define HDI_QUEUES_USUAL 8 /* as many as the driver has where nobody asks */
#define HDI_QUEUES_MOST 32

/* Asks the driver, which has not been started in this process, for so many hardware queues. Streams that share one hold each other up: what stands
 * behind a wait in one is in the way of the other. Each makes a context slower to make, and to give back. It writes the environment, unless
 * that has a value already, or the usual number is asked for. */
void hdi_driver_ask_for_queues(int n);

/* The host provider's settings are per process: they come from the options of the first open and are the same as long as any
 * runtime is open. Called by hdi_driver_open before cuInit. */
hd_status hdi_host_configure(const hdi_options *options);

/* Codes below 0 stand where a driver's code would, when the driver could not say what happened. They stay inside the library:
 * hd_error.driver_code is 0 for them. */
enum {
    HDI_GONE_STUCK = -1,      /* the worker process is stopped, or stays in one driver call */
    HDI_GONE_UNANSWERED = -2, /* the worker process did not answer a request in time */
    HDI_GONE_WATCHDOG = -3,   /* an operation did not finish within the option watchdog */
    HDI_GONE_CLOSED = -4,     /* there is no worker process (any more) */
    HDI_GONE_CORRUPTED = -5,  /* what stands in the memory shared with the worker process cannot be */
    HDI_GONE_EXIT = -1000,    /* minus the exit status: the worker process ended */
    HDI_GONE_SIGNAL = -2000   /* minus the signal: the worker process was killed */
};

/* "CUDA_ERROR_ILLEGAL_ADDRESS"; for unknown codes "CUDA_ERROR_<number>"; for codes below 0 what happened, in words.
 * Where a number is part of it, the calling thread's until its next call. */
const char *hdi_driver_code_name(hdcu_result code);

/* True for the codes after which a context does no more work (700, 702, 709, 710, 714..719, 214, 220 and the like), and for
 * all below 0. */
bool hdi_driver_code_is_fatal(hdcu_result code);

/* Whether a kernel that ran is the cause, not the device or who asked. */
bool hdi_driver_code_is_of_kernel(hdcu_result code);

/* Whether the code is about a capture of a stream, perhaps another one than the call was for. */
static inline bool hdi_driver_code_is_capture(hdcu_result code)
{
    return code >= HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED && code <= HDCU_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* Fault wrapper: calls made through the wrapped table since it was opened, and calls failed on purpose. 0 for an unwrapped table. */
uint64_t hdi_fault_calls(const hdi_driver *driver);
uint64_t hdi_fault_hits(const hdi_driver *driver);

#endif
