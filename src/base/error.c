/* error.c - the one error path: the calling thread's last failure, as a line and as fields, and the names of statuses.
 *
 * Threads: any; each has its own state, so there are no locks. Always: the state is one finished hd_error whose message is one
 * zero-terminated line, and only a failure (or hdi_error_restore) changes it.
 */
#include "base/error.h"
#include "base/handle.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef hdi_fail /* macros for the static analyzer */
#undef hdi_fail_driver

static _Thread_local hd_error last;
static _Thread_local int last_is_set; /* the blank state has -1 in it, which zeroed thread-local memory has not */

static hd_error *state(void)
{
    if (!last_is_set) {
        last = hdi_error_blank(HD_OK);
        last_is_set = 1;
    }
    return &last;
}

/* A message is one line, whatever a driver's text or a file name brought in. */
static void one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ') {
            *text = ' ';
        }
    }
}

hd_error hdi_error_blank(hd_status status)
{
    hd_error e;
    memset(&e, 0, sizeof e);
    e.size = sizeof e;
    e.status = status;
    e.device = -1;
    e.lane = -1;
    return e;
}

hd_status hdi_fail(hd_status status, const char *format, ...)
{
    /* made apart, because an argument may be hd_message() */
    hd_error e = hdi_error_blank(status);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(e.message, sizeof e.message, format, arguments);
    va_end(arguments);
    return hdi_fail_error(&e);
}

hd_status hdi_fail_driver(hd_status status, int driver_code, const char *entry_point, int device, const char *format,
                          ...)
{
    hd_error e = hdi_error_blank(status);
    e.driver_code = driver_code > 0 ? driver_code : 0;
    e.device = device;
    snprintf(e.operation, sizeof e.operation, "%s", entry_point != NULL ? entry_point : "");

    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(e.message, sizeof e.message, format, arguments);
    va_end(arguments);
    if (driver_code >= 0 && length >= 0 && (size_t)length < sizeof e.message) {
        char where[32] = "";
        if (device >= 0) {
            snprintf(where, sizeof where, " on device %d", device);
        }
        snprintf(e.message + length, sizeof e.message - (size_t)length, " (%s%s returned %d)",
                 e.operation[0] != '\0' ? e.operation : "the driver", where, driver_code);
    }
    return hdi_fail_error(&e);
}

hd_status hdi_fail_error(const hd_error *error)
{
    hd_error copy = *error; /* `error` may point into the state */
    copy.size = sizeof copy;
    copy.operation[sizeof copy.operation - 1] = '\0';
    copy.kernel[sizeof copy.kernel - 1] = '\0';
    copy.message[sizeof copy.message - 1] = '\0';
    if (copy.status == HD_ERROR_HANDLE && hdi_handle_salt != 0) {
        size_t length = strlen(copy.message);
        snprintf(copy.message + length, sizeof copy.message - length,
                 " (what was made before fork() belongs to the parent process)");
    }
    one_line(copy.message);
    *state() = copy;
    return copy.status;
}

void hdi_error_save(hd_error *out)
{
    *out = *state();
}

void hdi_error_restore(const hd_error *saved)
{
    *state() = *saved;
}

const char *hd_message(void)
{
    return state()->message;
}

void hd_last_error(hd_error *out)
{
    if (out == NULL) {
        return;
    }
    /* a program built against another version has a shorter or longer structure: fill what both know, leave its size */
    size_t size = out->size;
    if (size <= sizeof size) {
        return;
    }
    size_t known = size < sizeof(hd_error) ? size : sizeof(hd_error);
    memcpy(out, state(), known);
    out->size = size;
}

const char *hd_status_name(hd_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                                                 \
    case HD_##name:                                                                                                    \
        return "HD_" #name;
        HD_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "HD_ERROR_UNKNOWN";
}

const char *hd_status_text(hd_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                                                 \
    case HD_##name:                                                                                                    \
        return text;
        HD_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
