/* error.h - the one error path: every failure of the library goes through hdi_fail, hdi_fail_driver or hdi_fail_error.
 *
 * A text reports what is wrong, and what to do where that is not obvious. The name of the public call is put in front here, once:
 * the call notes it as it begins (base/presence.h). A failure in a thread of the library's own has none, until a call reports it.
 *
 * What may fail without the call failing is an attempt. A failure within an attempt is the attempt's own: the thread's last failure is
 * what it was, unless the attempt is ended as failed.
 *
 * Threads: any; each has its own state. Locks: none. Always: a success never touches the state.
 */
#ifndef HDI_BASE_ERROR_H
#define HDI_BASE_ERROR_H

#include <heddle/status.h>
#include <stdbool.h>

/* Whether it is a status of heddle/status.h. */
bool hdi_status_is_known(hd_status status);

/* Records `status` with a formatted message for the calling thread and returns it:
 *     return hdi_fail(HD_ERROR_ARGUMENT, "bytes is 0"); */
hd_status hdi_fail(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the driver's code and the entry point that returned it, e.g.
 *     return hdi_fail_driver(HD_ERROR_MEMORY, 2, "cuMemCreate", device, "no physical memory left");
 * A code below 0 is not the driver's: it is left out of the fields and of the text. */
hd_status hdi_fail_driver(hd_status status, int driver_code, const char *entry_point, int device, const char *format,
                          ...) __attribute__((format(printf, 5, 6)));

/* Records a failure whose fields are all known. The name of the call is put in front of `error->message` where it is not there yet. */
hd_status hdi_fail_error(const hd_error *error);

/* Puts what it is about in front of the message of the failure that was just recorded, behind the name of the call. Returns `status`. */
hd_status hdi_fail_about(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* The same for the result of a call that may have succeeded. */
#define HDI_FAIL_ABOUT(result, ...)                                                                                    \
    __extension__({                                                                                                    \
        hd_status hdi_result_ = (result);                                                                              \
        hdi_result_ ? hdi_fail_about(hdi_result_, __VA_ARGS__) : HD_OK;                                                \
    })

/* The public call that the calling thread is in; "" outside of calls. */
const char *hdi_call_name(void);

/* The calling thread is one of the library's own, and works for the call of this name from here on. */
void hdi_call_continue(const char *name);

/* An hd_error with every field that does not apply set as status.h defines. */
hd_error hdi_error_blank(hd_status status);

/* A short text that goes into a message, such as the name of something that has none. It belongs to the calling thread, until its next
 * call of this function. 95 characters at most; no failure. */
const char *hdi_error_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The calling thread's last failure, or the one of the attempt that it is in. */
void hdi_error_get(hd_error *out);

/* What may fail without the call failing, or goes on after a failure to clean up. Attempts nest, and end in reverse order. */
typedef struct hdi_attempt {
    struct hdi_attempt *outer;
    hd_error error; /* HD_OK: nothing failed, and the other members are not set */
} hdi_attempt;

void hdi_attempt_begin(hdi_attempt *attempt);

/* The failure within it, if there was one, is dropped. */
void hdi_attempt_end(hdi_attempt *attempt);

/* Ends it with a status, and returns that. With a failure, the one within it is recorded outside of it; with HD_OK it is dropped. */
hd_status hdi_attempt_result(hdi_attempt *attempt, hd_status status);

#ifdef __clang_analyzer__
/* What the static analyzer cannot see from outside error.c: these return the status that they are given, which is a failure. */
#define hdi_fail(status, ...) (status)
#define hdi_fail_driver(status, ...) (status)
#define hdi_fail_about(status, ...) (status)
#define hdi_attempt_result(attempt, status) ((void)(attempt), (status))
#endif

#endif
