/* error.h - the one error path: every failure of the library goes through hdi_fail or hdi_fail_error.
 *
 * Threads: any; each has its own state. Locks: none. Always: a success never touches the state.
 */
#ifndef HDI_BASE_ERROR_H
#define HDI_BASE_ERROR_H

#include <heddle/status.h>

/* Records `status` with a formatted message for the calling thread and returns it:
 *     return hdi_fail(HD_ERROR_ARGUMENT, "hd_alloc: bytes is 0");
 * Messages start with the public function or the operation, and end with what to do where that is not obvious. */
hd_status hdi_fail(hd_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the driver's code and the entry point that returned it, e.g.
 *     return hdi_fail_driver(HD_ERROR_MEMORY, 2, "cuMemCreate", device, "hd_alloc: no physical memory left");
 * A code below 0 is not the driver's: it is left out of the fields and of the text. */
hd_status hdi_fail_driver(hd_status status, int driver_code, const char *entry_point, int device, const char *format,
                          ...) __attribute__((format(printf, 5, 6)));

/* Records a failure whose fields are all known. `error->message` is the finished line. */
hd_status hdi_fail_error(const hd_error *error);

/* An hd_error with every field that does not apply set as status.h defines. */
hd_error hdi_error_blank(hd_status status);

/* A short text that goes into a message, such as the name of something that has none. It belongs to the calling thread, until its next
 * call of this function. 95 characters at most; no failure. */
const char *hdi_error_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The status of the calling thread's last failure and its message put aside and back, around clean-up that may fail itself. */
void hdi_error_save(hd_error *out);
void hdi_error_restore(const hd_error *saved);

#ifdef __clang_analyzer__
/* What the static analyzer cannot see from outside error.c: these return the status that they are given, which is a failure. */
#define hdi_fail(status, ...) (status)
#define hdi_fail_driver(status, ...) (status)
#endif

#endif
