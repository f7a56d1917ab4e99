/* error.h - the one error path: every failure of the library goes through hdi_fail, hdi_fail_driver
 * or hdi_fail_error.
 *
 * A text reports what is wrong, and a remedy if it is not obvious. The functions here put the name
 * of the public call in front, once: each call notes its name as it begins (base/presence.h). A
 * failure in one of the library's own threads gets a name only when a call reports it.
 *
 * An *attempt* is a step that may fail without making the call fail. A failure within an attempt
 * does not change the thread's last failure, unless the attempt ends as failed.
 *
 * Threads: any; each keeps its own state. Locks: none. Always: a success never touches the state.
 */
#ifndef HDI_BASE_ERROR_H
#define HDI_BASE_ERROR_H

#include <assert.h>
#include <heddle/status.h>
#include <stdbool.h>

/* True if the value is a status of heddle/status.h. */
bool hdi_status_is_known(hd_status status);

/* Records `status` with a formatted message for the calling thread and returns it:
 *     return hdi_fail(HD_ERROR_ARGUMENT, "bytes is 0"); */
hd_status hdi_fail(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Like hdi_fail, with the driver's code and the entry point that returned it:
 *     return hdi_fail_driver(HD_ERROR_MEMORY, 2, "cuMemCreate", device, "no physical memory left");
 * A code below 0 is not a driver code: the fields and the text leave it out. */
hd_status hdi_fail_driver(hd_status status, int driver_code, const char *entry_point, int device, const char *format,
                          ...) __attribute__((format(printf, 5, 6)));

/* Records a failure with all its fields. Puts the name of the call in front of `error->message`
 * unless it is there already. */
hd_status hdi_fail_error(const hd_error *error);

/* Puts the formatted text in front of the message of the failure that was just recorded, behind the
 * name of the call. Returns `status`. */
hd_status hdi_fail_about(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* hdi_fail_about for the result of a call that may have succeeded. */
#define HDI_FAIL_ABOUT(result, ...)                                                                                    \
    __extension__({                                                                                                    \
        hd_status hdi_result_ = (result);                                                                              \
        hdi_result_ ? hdi_fail_about(hdi_result_, __VA_ARGS__) : HD_OK;                                                \
    })

/* The name of the public call that the calling thread makes; "" outside of calls. */
const char *hdi_call_name(void);

/* Notes that the calling thread, a thread of the library, works for the call of this name from here
 * on. */
void hdi_call_continue(const char *name);

/* Returns an hd_error with this status. Every other field has the value that status.h defines for
 * "does not apply". */
hd_error hdi_error_blank(hd_status status);

/* Returns a short text for use in a message, such as a name for an object without one. The text
 * belongs to the calling thread until its next call of this function. 95 characters at most; cannot
 * fail. */
const char *hdi_error_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Gets the last failure of the calling thread, or of its current attempt. */
void hdi_error_get(hd_error *out);

/* A step that may fail without making the call fail, or cleanup after a failure. Attempts may nest,
 * and end in reverse order. */
typedef struct hdi_attempt {
    struct hdi_attempt *outer;
    hd_error error; /* status HD_OK: nothing failed, and the other members are not set */
} hdi_attempt;

void hdi_attempt_begin(hdi_attempt *attempt);

/* Ends an attempt. A failure within it is dropped. */
void hdi_attempt_end(hdi_attempt *attempt);

/* Ends an attempt with a status, and returns that status. If the status is a failure, the failure
 * within the attempt becomes the thread's last failure. If the status is HD_OK, a failure within
 * the attempt is dropped. */
hd_status hdi_attempt_result(hdi_attempt *attempt, hd_status status);

/* Returns `status`, which is a failure. Use it to return the result of a function that always
 * fails. It tells the static analyzer that this result is a failure. */
static inline hd_status hdi_fail_pass(hd_status status)
{
    assert(status != HD_OK);
    return status;
}

#ifdef __clang_analyzer__
/* For the static analyzer, which cannot see into error.c, and does not follow deep calls. The
 * macros below use their arguments, and return the given status, which is a failure. */
int hdi_error_uses(int first, ...) __attribute__((pure));
#define hdi_fail(status, ...) ((void)hdi_error_uses(0, __VA_ARGS__), (status))
#define hdi_fail_driver(status, ...) ((void)hdi_error_uses(0, __VA_ARGS__), (status))
#define hdi_fail_about(status, ...) ((void)hdi_error_uses(0, __VA_ARGS__), (status))
#define hdi_fail_error(error) hdi_fail_pass((error)->status)
#define hdi_fail_pass(status)                                                                                          \
    __extension__({                                                                                                    \
        hd_status hdi_failure_ = (status);                                                                             \
        __builtin_assume(hdi_failure_ != HD_OK);                                                                       \
        hdi_failure_;                                                                                                  \
    })
#define hdi_attempt_result(attempt, status) ((void)(attempt), (status))
#endif

#endif
