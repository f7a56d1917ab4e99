/* error.h - the one error path: every failure of the library goes through hdi_fail, hdi_fail_driver
 * or hdi_fail_error.
 *
 * A text reports what is wrong, and a remedy if it is not obvious. The name of the public call is
 * put in front here, once: each call notes its name as it begins (base/presence.h). A failure in
 * one of the library's threads gets no name until a call reports it.
 *
 * A step that may fail without the call failing is an attempt. A failure within an attempt does not
 * change the thread's last failure, unless the attempt ends as failed.
 *
 * Threads: any; each keeps its own state. Locks: none. Always: a success never touches the state.
 */
#ifndef HDI_BASE_ERROR_H
#define HDI_BASE_ERROR_H

#include <heddle/status.h>
#include <stdbool.h>

/* True if it is a status of heddle/status.h. */
bool hdi_status_is_known(hd_status status);

/* Records `status` with a formatted message for the calling thread and returns it:
 *     return hdi_fail(HD_ERROR_ARGUMENT, "bytes is 0"); */
hd_status hdi_fail(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the driver's code and the entry point that returned it, e.g.
 *     return hdi_fail_driver(HD_ERROR_MEMORY, 2, "cuMemCreate", device, "no physical memory left");
 * A code below 0 is not a driver code: the fields and the text leave it out. */
hd_status hdi_fail_driver(hd_status status, int driver_code, const char *entry_point, int device, const char *format,
                          ...) __attribute__((format(printf, 5, 6)));

/* Records a failure with all its fields. Puts the name of the call in front of `error->message`
 * unless it is there already. */
hd_status hdi_fail_error(const hd_error *error);

/* Puts the subject in front of the message of the failure just recorded, behind the name of the
 * call. Returns `status`. */
hd_status hdi_fail_about(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* The same for the result of a call that may succeed. */
#define HDI_FAIL_ABOUT(result, ...)                                                                                    \
    __extension__({                                                                                                    \
        hd_status hdi_result_ = (result);                                                                              \
        hdi_result_ ? hdi_fail_about(hdi_result_, __VA_ARGS__) : HD_OK;                                                \
    })

/* The public call that the calling thread is in; "" outside of calls. */
const char *hdi_call_name(void);

/* Notes that the calling thread of the library works for the call of this name from here on. */
void hdi_call_continue(const char *name);

/* An hd_error with every field that does not apply set as status.h defines. */
hd_error hdi_error_blank(hd_status status);

/* Returns a short text for use in a message, such as a name for an object without one. The text
 * belongs to the calling thread until its next call of this function. 95 characters at most; cannot
 * fail. */
const char *hdi_error_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Gets the calling thread's last failure, or that of its current attempt. */
void hdi_error_get(hd_error *out);

/* A step that may fail without the call failing, or cleanup after a failure. Attempts nest, and end
 * in reverse order. */
typedef struct hdi_attempt {
    struct hdi_attempt *outer;
    hd_error error; /* HD_OK: nothing failed, and the other members are not set */
} hdi_attempt;

void hdi_attempt_begin(hdi_attempt *attempt);

/* Drops the failure within it, if any. */
void hdi_attempt_end(hdi_attempt *attempt);

/* Ends it with a status, and returns that. A failure status records the failure within it outside
 * of it; HD_OK drops it. */
hd_status hdi_attempt_result(hdi_attempt *attempt, hd_status status);

#ifdef __clang_analyzer__
/* Facts that the static analyzer cannot see outside error.c: these return the given status, which
 * is a failure. */
#define hdi_fail(status, ...) (status)
#define hdi_fail_driver(status, ...) (status)
#define hdi_fail_about(status, ...) (status)
#define hdi_attempt_result(attempt, status) ((void)(attempt), (status))
#endif

#endif
