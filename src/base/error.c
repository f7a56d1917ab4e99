/* error.c - the one error path: the calling thread's last failure, as a line and as fields, and the names of statuses.
 *
 * Threads: any; each has its own state, so there are no locks. A thread's first failure makes it, and the thread's end frees it. When
 * memory is out it is one of a few that are always there. When those are taken, too, it is one with a constant text. Always: the state is one
 * finished hd_error whose message is one zero-terminated line, and only a failure (or hdi_error_restore) changes it.
 */
#include "base/error.h"
#include "base/handle.h"
#include "base/sized.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef hdi_fail /* macros for the static analyzer */
#undef hdi_fail_driver

typedef struct state {
    hd_error last;
    char name[96]; /* of hdi_error_name */
    bool is_spare;
    atomic_bool is_taken; /* a spare one, by a thread */
} state;

#define SPARES 16

static const hd_error blank = {.size = sizeof(hd_error), .status = HD_OK, .device = -1, .lane = -1};
static const hd_error untold = {.size = sizeof(hd_error),
                                .status = HD_ERROR_HOST_MEMORY,
                                .device = -1,
                                .lane = -1,
                                .message = "out of host memory, also for the text of this failure; free some"};
static state spares[SPARES];

static _Thread_local state *own;     /* NULL: there was no failure, or no memory for it */
static _Thread_local bool is_untold; /* own is NULL, and a failure was not recorded */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static int own_error; /* the program has all keys there are: then nothing is given back when a thread ends */

static void give_back(state *s)
{
    if (s->is_spare) {
        /* pairs with the acquire of the thread that takes it next */
        atomic_store_explicit(&s->is_taken, false, memory_order_release);
    } else {
        free(s);
    }
}

static void thread_ends(void *value)
{
    own = NULL; /* what fails later in this thread makes another one */
    give_back(value);
}

static void make_key(void)
{
    own_error = hdi_thread_key(&own_key, thread_ends);
}

static state *take_spare(void)
{
    for (int i = 0; i < SPARES; i++) {
        if (!atomic_exchange_explicit(&spares[i].is_taken, true, memory_order_acquire)) {
            spares[i].is_spare = true;
            return &spares[i];
        }
    }
    return NULL;
}

/* This thread's state, made when it is missing. NULL: no memory. */
static state *own_state(void)
{
    if (own != NULL) {
        return own;
    }
    pthread_once(&own_once, make_key);
    state *s = calloc(1, sizeof *s);
    s = s != NULL ? s : take_spare();
    if (s != NULL && own_error == 0 && pthread_setspecific(own_key, s) != 0) { /* it would never be given back */
        give_back(s);
        s = NULL;
    }
    if (s != NULL) {
        s->last = blank;
    }
    own = s;
    return s;
}

static const hd_error *last_failure(void)
{
    return own != NULL ? &own->last : is_untold ? &untold : &blank;
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
    hd_error e = blank;
    e.status = status;
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
    state *s = own_state();
    if (s != NULL) {
        s->last = copy;
    }
    is_untold = s == NULL;
    return copy.status;
}

void hdi_error_save(hd_error *out)
{
    *out = *last_failure();
}

void hdi_error_restore(const hd_error *saved)
{
    state *s = saved->status == HD_OK ? own : own_state(); /* without a state there is no failure */
    if (s != NULL) {
        s->last = *saved;
    }
    is_untold = s == NULL && saved->status != HD_OK;
}

const char *hdi_error_name(const char *format, ...)
{
    state *s = own_state();
    if (s == NULL) {
        return "(no memory for its name)";
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->name, sizeof s->name, format, arguments);
    va_end(arguments);
    return s->name;
}

const char *hd_message(void)
{
    return last_failure()->message;
}

void hd_last_error(hd_error *out)
{
    if (out == NULL) {
        return;
    }
    HDI_SIZED_OUT(hd_error, out, last_failure());
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
