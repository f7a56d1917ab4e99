/* error.c - the one error path: the calling thread's last failure, as a line and as fields, and the
 * names of statuses.
 *
 * Threads: any; each keeps its own state, so there are no locks. A thread's first failure makes the
 * state, and the thread's end frees it. Without memory, the thread takes one of a few spare states
 * that always exist. If all spares are taken, the thread uses a state with a constant text. Always:
 * the state is one finished hd_error, whose message is one zero-terminated line. Only a failure
 * outside of attempts changes it.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/presence.h"
#include "base/sized.h"
#include "base/thread.h"

#undef hdi_fail /* here these names are functions; elsewhere the static analyzer sees macros */
#undef hdi_fail_driver
#undef hdi_fail_about
#undef hdi_fail_error
#undef hdi_attempt_result

typedef struct state {
    hd_error last;
    char name[96]; /* the text of hdi_error_name */
    bool is_spare;
    atomic_bool is_taken; /* for a spare state: some thread took it */
} state;

#define SPARES 16

static const hd_error blank = {.size = sizeof(hd_error), .status = HD_OK, .device = -1, .lane = -1};
/* the constant state, for all threads that got no state of their own */
static state untold = {.last = {.size = sizeof(hd_error),
                                .status = HD_ERROR_HOST_MEMORY,
                                .device = -1,
                                .lane = -1,
                                .message = "out of host memory, also for the text of this failure; free some"}};
static state spares[SPARES];

/* NULL: no failure yet; &untold: no memory for the failure */
static _Thread_local state *own;
static _Thread_local hdi_attempt *attempts; /* the innermost attempt */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
/* not 0: the program uses all keys of threads, so no state is given back when a thread ends */
static int own_error;

static void error_state_give_back(state *s)
{
    if (s->is_spare) {
        /* pairs with the acquire of the next thread that takes the spare */
        atomic_store_explicit(&s->is_taken, false, memory_order_release);
    } else {
        /* Every state of `spares` has is_spare set. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        free(s);
    }
}

static void error_thread_ends(void *value)
{
    own = NULL; /* a later failure in this thread makes a new state */
    error_state_give_back(value);
}

static void error_make_key(void)
{
    own_error = hdi_thread_key(&own_key, error_thread_ends);
}

static state *error_take_spare(void)
{
    for (int i = 0; i < SPARES; i++) {
        if (!atomic_exchange_explicit(&spares[i].is_taken, true, memory_order_acquire)) {
            spares[i].is_spare = true;
            return &spares[i];
        }
    }
    return NULL;
}

/* This thread's state, made on demand. NULL: no memory. */
static state *error_own_state(void)
{
    if (own != NULL && own != &untold) {
        return own;
    }
    pthread_once(&own_once, error_make_key);
    state *s = calloc(1, sizeof *s);
    s = s != NULL ? s : error_take_spare();
    /* without a key, the spare state would never be given back */
    if (s != NULL && own_error == 0 && pthread_setspecific(own_key, s) != 0) {
        error_state_give_back(s);
        s = NULL;
    }
    if (s != NULL) {
        s->last = blank;
    }
    own = s != NULL ? s : own;
    return s;
}

static const hd_error *error_last_failure(void)
{
    if (attempts != NULL && attempts->error.status != HD_OK) {
        return &attempts->error;
    }
    return own != NULL ? &own->last : &blank;
}

/* Makes a message one line, whatever a driver's text or a file name contains. */
static void error_keep_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ') {
            *text = ' ';
        }
    }
}

void hdi_call_continue(const char *name)
{
    hdi_presence_here.call = name;
}

const char *hdi_call_name(void)
{
    return hdi_presence_here.call != NULL ? hdi_presence_here.call : "";
}

/* Puts text, a colon and a space in front of the message from `at` on. Cuts off the end of the
 * message if there is no room. */
static void error_put_in_front(hd_error *error, size_t at, const char *text)
{
    size_t room = sizeof error->message - 1 - at, length = strlen(text) + 2;
    if (length <= room) {
        char *place = error->message + at;
        memmove(place + length, place, room - length);
        memcpy(place, text, length - 2);
        memcpy(place + length - 2, ": ", 2);
        error->message[sizeof error->message - 1] = '\0';
    }
}

/* The length of the call's name and its colon in front of a message. 0: the message has no such
 * name. */
static size_t error_name_length(const char *message)
{
    const char *name = hdi_call_name();
    size_t length = strlen(name);
    return length != 0 && strncmp(message, name, length) == 0 && message[length] == ':' ? length + 2 : 0;
}

static void error_put_name(hd_error *error)
{
    const char *name = hdi_call_name();
    if (name[0] != '\0' && error_name_length(error->message) == 0) {
        error_put_in_front(error, 0, name);
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
    /* the message is built in a copy, because an argument may be the present message
     * (hd_message) */
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
    error_put_name(&copy);
    error_keep_one_line(copy.message);
    if (attempts != NULL) {
        attempts->error = copy;
        return copy.status;
    }
    state *s = error_own_state();
    if (s != NULL) {
        s->last = copy;
    } else {
        own = &untold;
    }
    return copy.status;
}

hd_status hdi_fail_about(hd_status status, const char *format, ...)
{
    char about[sizeof((hd_error *)0)->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(about, sizeof about, format, arguments);
    va_end(arguments);
    hd_error error = *error_last_failure();
    error_put_in_front(&error, error_name_length(error.message), about);
    hdi_fail_error(&error);
    return status;
}

void hdi_error_get(hd_error *out)
{
    *out = *error_last_failure();
}

void hdi_attempt_begin(hdi_attempt *attempt)
{
    attempt->error.status = HD_OK;
    attempt->outer = attempts;
    attempts = attempt;
}

void hdi_attempt_end(hdi_attempt *attempt)
{
    attempts = attempt->outer;
}

hd_status hdi_attempt_result(hdi_attempt *attempt, hd_status status)
{
    attempts = attempt->outer;
    if (status != HD_OK && attempt->error.status != HD_OK) {
        hdi_fail_error(&attempt->error);
    }
    return status;
}

const char *hdi_error_name(const char *format, ...)
{
    state *s = error_own_state();
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
    return error_last_failure()->message;
}

hd_status hd_error_set(hd_status status, const char *message)
{
    const char *call = hdi_presence_here.call;
    hd_status result = status;
    if (!hdi_status_is_known(status)) {
        hdi_call_continue("hd_error_set");
        result = hdi_fail(HD_ERROR_ARGUMENT, "%d is no status; pass one of hd_status", (int)status);
    } else if (status != HD_OK) {
        hdi_call_continue(NULL); /* the message names the call of the layer, not one of Heddle */
        hdi_fail(status, "%s", message != NULL ? message : hd_status_text(status));
    }
    hdi_presence_here.call = call;
    return result;
}

void hd_last_error(hd_error *out)
{
    if (out == NULL) {
        return;
    }
    HDI_SIZED_OUT(hd_error, out, error_last_failure());
}

static const char unknown[] = "HD_ERROR_UNKNOWN";

const char *hd_status_name(hd_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                                                 \
    case HD_##name:                                                                                                    \
        return "HD_" #name;
        HD_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return unknown;
}

bool hdi_status_is_known(hd_status status)
{
    return hd_status_name(status) != unknown;
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
