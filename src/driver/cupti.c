/* cupti.c - see cupti.h for threads, locks and guarantees. */
#include "base/descriptor.h"
#include "driver/cupti.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "base/wait.h"
#include "driver/cupti_abi.h"
#include "record/record.h"

#define BUFFER_BYTES ((size_t)1 << 20)
/* the most activities of a device that wait to be taken: some megabytes */
#define WAITING_MOST 65536
#define WAITING_LEAST 256
#define FLUSH_MS 200 /* the time between two deliveries of CUPTI's records */
/* CUPTI computes the device's times, so a time may lie somewhat before the start of the session */
#define SLACK_NS 1000000000
#define AT_ONCE 32 /* the most activities that a thread adds under one hold of the lock */
#define NAMES 1024 /* the number of chains in the table of names */

typedef struct entries {
    char file[256]; /* the file that was opened */
    void *library;
#define MEMBER(name, need, parameters) hdcupti_result(*name) parameters;
    HDI_CUPTI_ENTRIES(MEMBER)
#undef MEMBER
} entries;

static hdi_mutex session_lock = HDI_MUTEX_INIT(CUPTI);
/* Under the mutex. `cupti` does not change while a session runs, so callbacks may read it without
 * the mutex. */
static entries cupti;
static char opened_as[256]; /* the value of the option by which `cupti` was opened */
static hdcupti_subscriber subscriber;
static uint32_t users;
static bool has_clock; /* CUPTI uses this library's clock */

static hdi_lock leaf = HDI_LOCK_INIT(ACTIVITIES);
/* Under the leaf lock. */
static hdi_activities *attached;
static hdi_activity_name *names[NAMES];
static uint32_t n_names;
static int64_t began;  /* clock, at the start of the session */
static int64_t offset; /* the clock of this library minus CUPTI's own clock */

/* ---- failures ---- */

static void __attribute__((format(printf, 2, 3))) cupti_say_why(char *why, const char *format, ...)
{
    size_t length = strlen(why);
    if (length && length + 2 < HDI_ACTIVITIES_WHY_BYTES) {
        memcpy(why + length, "; ", 3);
        length += 2;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why + length, HDI_ACTIVITIES_WHY_BYTES - length, format, arguments);
    va_end(arguments);
}

static bool cupti_call_worked(hdcupti_result r, const char *call, char *why)
{
    if (r == HDCUPTI_SUCCESS) {
        return true;
    }
    const char *text = NULL;
    if (r == HDCUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
        cupti_say_why(
            why,
            "%.120s: another subscriber uses CUPTI in this process already, such as a profiler or a debugger; end it",
            cupti.file);
    } else if (cupti.cuptiGetResultString(r, &text) == HDCUPTI_SUCCESS && text) {
        cupti_say_why(why, "%.120s: %s: %.100s", cupti.file, call, text);
    } else {
        cupti_say_why(why, "%.120s: %s: CUPTI's error %d", cupti.file, call, r);
    }
    return false;
}

/* ---- reported activities ---- */

static void cupti_see_ends(uint8_t kind, bool *from_host, bool *to_host)
{
    *from_host = kind == HDCUPTI_COPY_HTOD || kind == HDCUPTI_COPY_HTOA || kind == HDCUPTI_COPY_HTOH;
    *to_host = kind == HDCUPTI_COPY_DTOH || kind == HDCUPTI_COPY_ATOH || kind == HDCUPTI_COPY_HTOH;
}

/* One activity that CUPTI reported: a record, with times by CUPTI's own clock. */
typedef struct reported {
    hdi_activity activity;
    uint32_t device;
    uint64_t start, end;
    char text[HDI_RECORD_TEXT_ROOM]; /* the text of the name; "": none */
} reported;

#define TAKE(kind_number, r)                                                                                           \
    (out->activity.record.type = HDI_RECORD_ACTIVITY, out->activity.record.kind = (kind_number),                       \
     out->activity.record.activity.stream = (r)->stream, out->activity.record.activity.correlation = (r)->correlation, \
     out->device = (r)->device, out->start = (r)->start, out->end = (r)->end)

static void cupti_read_kernel(const hdcupti_kernel *r, reported *out)
{
    TAKE(HDI_RECORD_ACTIVITY_KERNEL, r);
    if (r->name) {
        snprintf(out->text, sizeof out->text, "%s", r->name);
    }
}

static void cupti_read_copy(const hdcupti_memcpy *r, reported *out)
{
    TAKE(HDI_RECORD_ACTIVITY_COPY, r);
    bool from_host, to_host;
    cupti_see_ends(r->copy_kind, &from_host, &to_host);
    out->activity.record.activity.bytes = r->bytes;
    out->activity.record.activity.src = from_host ? HDI_ACTIVITY_HOST : r->device;
    out->activity.record.activity.dst = to_host ? HDI_ACTIVITY_HOST : r->device;
}

static void cupti_read_peer(const hdcupti_memcpy_peer *r, reported *out)
{
    TAKE(HDI_RECORD_ACTIVITY_COPY, r);
    out->activity.record.activity.bytes = r->bytes;
    out->activity.record.activity.src = r->src_device;
    out->activity.record.activity.dst = r->dst_device;
}

static void cupti_read_fill(const hdcupti_memset *r, reported *out)
{
    TAKE(HDI_RECORD_ACTIVITY_FILL, r);
    out->activity.record.activity.bytes = r->bytes;
    out->activity.record.activity.src = out->activity.record.activity.dst = r->device;
}

/* Reads the record at `at`, of which `left` bytes are in the buffer. False: the record is not
 * complete, or of another kind. */
static bool cupti_read_record(const uint8_t *at, size_t left, reported *out)
{
    const void *r = at;
    uint32_t kind = left >= sizeof kind ? ((const hdcupti_activity *)r)->kind : 0;
    memset(out, 0, offsetof(reported, text) + 1);
    if (kind == HDCUPTI_KIND_CONCURRENT_KERNEL && left >= sizeof(hdcupti_kernel)) {
        cupti_read_kernel(r, out);
    } else if (kind == HDCUPTI_KIND_MEMCPY && left >= sizeof(hdcupti_memcpy)) {
        cupti_read_copy(r, out);
    } else if (kind == HDCUPTI_KIND_MEMCPY2 && left >= sizeof(hdcupti_memcpy_peer)) {
        cupti_read_peer(r, out);
    } else if (kind == HDCUPTI_KIND_MEMSET && left >= sizeof(hdcupti_memset)) {
        cupti_read_fill(r, out);
    } else {
        return false;
    }
    return true;
}

/* ---- under the leaf lock ---- */

static const hdi_activity_name *cupti_intern_name(const char *text, uint64_t number)
{
    hdi_activity_name **chain = &names[number % NAMES];
    for (const hdi_activity_name *n = *chain; n; n = n->next) {
        if (n->number == number && strcmp(n->text, text) == 0) {
            return n;
        }
    }
    size_t bytes = strlen(text) + 1;
    hdi_activity_name *made = malloc(sizeof *made + bytes);
    if (made) {
        made->next = *chain;
        made->number = number;
        made->index = n_names++;
        memcpy(made->text, text, bytes);
        *chain = made;
    }
    return made;
}

/* Converts the times of a report. If they lie outside of the session, they may be times of CUPTI's
 * own clock, so the function then adds `offset`. */
static bool cupti_place_times(const reported *r, int64_t now, hdi_record *record)
{
    for (int own = 0; own < 2; own++) {
        int64_t move = own ? offset : 0;
        int64_t start = (int64_t)(r->start + (uint64_t)move), end = (int64_t)(r->end + (uint64_t)move);
        if (r->start && r->start <= r->end && start <= end && start >= began - SLACK_NS && end <= now + SLACK_NS) {
            record->time = start;
            record->activity.ended = end;
            return true;
        }
    }
    return false;
}

static bool cupti_make_room(hdi_activities *a)
{
    uint32_t n = atomic_load_explicit(&a->n, memory_order_relaxed);
    if (n < a->room) {
        return true;
    }
    uint32_t room = a->room ? 2 * a->room : WAITING_LEAST;
    hdi_activity *at = room <= WAITING_MOST ? realloc(a->at, room * sizeof *at) : NULL;
    if (at) {
        a->at = at;
        a->room = room;
    }
    return at != NULL;
}

static void cupti_count_dropped(hdi_activities *a, uint64_t n)
{
    if (a && n) {
        atomic_fetch_add_explicit(&a->dropped, n, memory_order_relaxed);
    }
}

static void cupti_keep_activity(const reported *r, int64_t now)
{
    hdi_activities *a = attached;
    while (a && (uint32_t)a->ordinal != r->device) {
        a = a->next;
    }
    hdi_activity made = r->activity;
    bool good = a && cupti_place_times(r, now, &made.record);
    /* several runtimes may use the device, and each runtime gets the activity */
    for (; a; a = a->next) {
        if ((uint32_t)a->ordinal != r->device) {
            continue;
        }
        if (!good || !cupti_make_room(a)) {
            cupti_count_dropped(a, 1);
            continue;
        }
        if (r->text[0]) {
            made.name = cupti_intern_name(r->text, made.record.activity.name);
        }
        uint32_t n = atomic_load_explicit(&a->n, memory_order_relaxed);
        a->at[n] = made;
        atomic_store_explicit(&a->n, n + 1, memory_order_relaxed);
    }
}

/* ---- CUPTI calls these, on a thread of its own or inside a driver call ---- */

static uint64_t cupti_clock_of_ours(void)
{
    return (uint64_t)hdi_clock_ns();
}

static void cupti_buffer_requested(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = malloc(BUFFER_BYTES); /* if there is no buffer, CUPTI drops records and counts them */
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void cupti_put_activities(reported *some, uint32_t n, uint64_t dropped)
{
    int64_t now = hdi_clock_ns();
    for (uint32_t i = 0; i < n; i++) {
        if (some[i].text[0]) {
            some[i].activity.record.activity.name = hdi_record_number(some[i].text);
        }
    }
    hdi_lock_take(&leaf);
    for (uint32_t i = 0; i < n; i++) {
        cupti_keep_activity(&some[i], now);
    }
    cupti_count_dropped(attached, dropped);
    hdi_lock_release(&leaf);
}

static void cupti_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)context;
    (void)stream;
    reported some[AT_ONCE];
    uint32_t n = 0;
    uint64_t bad = 0;
    size_t left = valid < bytes ? valid : bytes;
    const uint8_t *end = buffer ? buffer + left : NULL, *last = NULL;
    hdcupti_activity *record = NULL;
    hdcupti_result r = HDCUPTI_ERROR_MAX_LIMIT_REACHED;
    while (buffer && (r = cupti.cuptiActivityGetNextRecord(buffer, left, &record)) == HDCUPTI_SUCCESS) {
        const uint8_t *at = (const uint8_t *)record;
        if (at < buffer || at >= end || (last && at <= last) || (at - buffer) % 8 != 0) {
            bad++; /* the records behind this one cannot be found */
            break;
        }
        last = at;
        if (!cupti_read_record(at, (size_t)(end - at), &some[n])) {
            bad++;
        } else if (++n == AT_ONCE) {
            cupti_put_activities(some, n, 0);
            n = 0;
        }
    }
    bad += r != HDCUPTI_SUCCESS && r != HDCUPTI_ERROR_MAX_LIMIT_REACHED;
    size_t dropped = 0;
    if (cupti.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) != HDCUPTI_SUCCESS) {
        dropped = 0;
    }
    cupti_put_activities(some, n, bad + dropped);
    free(buffer);
}

/* Set on a thread while it detaches CUPTI. */
static _Thread_local bool leaves;

static void cupti_driver_called(void *user, int domain, uint32_t call, const void *data)
{
    (void)user;
    (void)call;
    const hdcupti_callback_data *d = data;
    if (leaves && d && domain == HDCUPTI_DOMAIN_DRIVER_API && d->site == HDCUPTI_SITE_EXIT) {
        leaves = false;
        if (cupti.cuptiFinalize() == HDCUPTI_SUCCESS) {
            subscriber = NULL;
        }
    }
}

/* ---- opening: with the mutex ---- */

static bool cupti_take_entries(const char *file, char *why)
{
    entries found = {.library = hdi_descriptor_library(file, RTLD_LAZY | RTLD_LOCAL)};
    if (!found.library) {
        const char *reason = dlerror();
        cupti_say_why(why, "%.150s", reason ? reason : file);
        return false;
    }
    snprintf(found.file, sizeof found.file, "%s", file);
    const char *missing = NULL;
    enum { OPTIONAL, REQUIRED };
#define FIND(name, need, parameters)                                                                                   \
    {                                                                                                                  \
        void *symbol = dlsym(found.library, #name);                                                                    \
        memcpy(&found.name, &symbol, sizeof symbol);                                                                   \
        missing = symbol || (need) == OPTIONAL ? missing : #name;                                                      \
    }
    HDI_CUPTI_ENTRIES(FIND)
#undef FIND
    uint32_t version = 0;
    if (missing) {
        cupti_say_why(why, "%.150s has no %s", file, missing);
    } else if (found.cuptiGetVersion(&version) != HDCUPTI_SUCCESS || version < HDCUPTI_VERSION_LEAST) {
        cupti_say_why(why, "%.150s is of version %u; take CUPTI of CUDA 11.2 or later", file, version);
    } else {
        has_clock = has_clock && found.library == cupti.library;
        cupti = found; /* the library stays open */
        return true;
    }
    dlclose(found.library);
    return false;
}

static bool cupti_find_in_toolkit(const char *root, char *why)
{
    static const char *const places[] = {"lib64", "extras/CUPTI/lib64", "lib"};
    bool found = false;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !found; i++) {
        char file[256], tried[HDI_ACTIVITIES_WHY_BYTES] = "";
        int length = snprintf(file, sizeof file, "%s/%s/libcupti.so", root, places[i]);
        found = length > 0 && (size_t)length < sizeof file && cupti_take_entries(file, tried);
    }
    if (!found) {
        cupti_say_why(why, "%.100s has none that works", root);
    }
    return found;
}

/* Gets the parent folder of the folder with the first nvcc in PATH. False: none was found. */
static bool cupti_toolkit_of_path(char *out, size_t room)
{
    const char *path = secure_getenv("PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        char file[256];
        int n = snprintf(file, sizeof file, "%.*s/nvcc", (int)length, path);
        char *real = n > 0 && (size_t)n < sizeof file ? realpath(file, NULL) : NULL;
        char *slash = real ? strrchr(real, '/') : NULL;
        if (slash) {
            *slash = 0;
            slash = strrchr(real, '/');
        }
        if (slash) {
            n = snprintf(out, room, "%.*s", (int)(slash - real), real);
            free(real);
            return n > 0 && (size_t)n < room;
        }
        free(real);
        path += length + (path[length] == ':');
    }
    return false;
}

static bool cupti_open_auto(char *why)
{
    static const char *const by_loader[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    for (size_t i = 0; i < sizeof by_loader / sizeof by_loader[0]; i++) {
        if (cupti_take_entries(by_loader[i], why)) {
            return true;
        }
    }
    const char *home = secure_getenv("CUDA_HOME");
    char root[256];
    return (home && home[0] && cupti_find_in_toolkit(home, why)) ||
           (cupti_toolkit_of_path(root, sizeof root) && cupti_find_in_toolkit(root, why)) ||
           cupti_find_in_toolkit("/usr/local/cuda", why);
}

static bool cupti_open_library(const hdi_driver *driver, const char *option, char *why)
{
    if (cupti.library && strcmp(opened_as, option) == 0) {
        return true;
    }
    bool is_auto = strcmp(option, "auto") == 0;
    if (is_auto && !driver->provider->reports_activities) {
        cupti_say_why(why, "CUPTI reports nothing of devices of driver=%s", driver->provider->name);
        return false;
    }
    sigset_t all, before; /* threads of the library must take no signals of the program */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool opened = is_auto ? cupti_open_auto(why) : option[0] && cupti_take_entries(option, why);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (opened) {
        snprintf(opened_as, sizeof opened_as, "%s", option);
    }
    return opened;
}

/* ---- a session: with the mutex ---- */

static const uint32_t kinds[] = {HDCUPTI_KIND_CONCURRENT_KERNEL, HDCUPTI_KIND_MEMCPY, HDCUPTI_KIND_MEMCPY2,
                                 HDCUPTI_KIND_MEMSET};
#define KINDS (sizeof kinds / sizeof kinds[0])

static bool cupti_set_clocks(char *why)
{
    if (!has_clock && cupti.cuptiActivityRegisterTimestampCallback) {
        has_clock = cupti.cuptiActivityRegisterTimestampCallback(cupti_clock_of_ours) == HDCUPTI_SUCCESS;
    }
    int64_t before = hdi_clock_ns();
    uint64_t own = 0;
    if (!cupti_call_worked(cupti.cuptiGetTimestamp(&own), "cuptiGetTimestamp", why)) {
        return false;
    }
    int64_t behind = hdi_clock_ns();
    hdi_lock_take(&leaf);
    began = before;
    offset = (int64_t)((uint64_t)(before + (behind - before) / 2) - own);
    hdi_lock_release(&leaf);
    return true;
}

/* Detaches CUPTI completely. The last call of CUPTI must be made in a callback at the end of a
 * driver call. So this function makes such a driver call. */
static void cupti_detach(const hdi_driver *driver)
{
    int unused;
    if (cupti.cuptiFinalize && cupti.cuptiEnableCallback &&
        cupti.cuptiEnableCallback(1, subscriber, HDCUPTI_DOMAIN_DRIVER_API, HDCUPTI_CALL_DRIVER_GET_VERSION) ==
            HDCUPTI_SUCCESS) {
        leaves = true;
        driver->cuDriverGetVersion(&unused);
        leaves = false;
    }
    if (subscriber && cupti.cuptiFinalize && cupti.cuptiFinalize() == HDCUPTI_SUCCESS) {
        subscriber = NULL;
    }
    if (subscriber) {
        cupti.cuptiUnsubscribe(subscriber);
        subscriber = NULL;
    }
}

static void cupti_disable_kinds(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cupti.cuptiActivityDisable(kinds[i]);
    }
}

static bool cupti_start_session(const hdi_driver *driver, const char *option, char *why)
{
    if (!cupti_open_library(driver, option, why) ||
        !cupti_call_worked(cupti.cuptiSubscribe(&subscriber, cupti_driver_called, NULL), "cuptiSubscribe", why)) {
        return false;
    }
    size_t n = 0;
    bool good = cupti_call_worked(cupti.cuptiActivityRegisterCallbacks(cupti_buffer_requested, cupti_buffer_completed),
                                  "cuptiActivityRegisterCallbacks", why) &&
                cupti_set_clocks(why);
    while (good && n < KINDS) {
        good = cupti_call_worked(cupti.cuptiActivityEnable(kinds[n]), "cuptiActivityEnable", why);
        n += good;
    }
    if (!good) {
        cupti_disable_kinds(n);
        cupti_detach(driver);
    } else if (cupti.cuptiActivityFlushPeriod) {
        cupti.cuptiActivityFlushPeriod(FLUSH_MS);
    }
    return good;
}

static void cupti_stop_session(const hdi_driver *driver)
{
    if (cupti.cuptiActivityFlushPeriod) {
        cupti.cuptiActivityFlushPeriod(0);
    }
    cupti_disable_kinds(KINDS);
    cupti_detach(driver);
}

/* ---- one device ---- */

static void cupti_join_session(hdi_activities *a)
{
    hdi_lock_take(&leaf);
    a->next = attached;
    a->attached = true;
    a->session++;
    atomic_store_explicit(&a->n, 0, memory_order_relaxed);
    atomic_store_explicit(&a->dropped, 0, memory_order_relaxed);
    attached = a;
    hdi_lock_release(&leaf);
}

static void cupti_leave_session(hdi_activities *a)
{
    hdi_lock_take(&leaf);
    for (hdi_activities **p = &attached; *p; p = &(*p)->next) {
        if (*p == a) {
            *p = a->next;
            break;
        }
    }
    a->attached = false;
    hdi_lock_release(&leaf);
}

bool hdi_activities_begin(hdi_activities *a, const hdi_driver *driver, const char *option,
                          char why[HDI_ACTIVITIES_WHY_BYTES])
{
    why[0] = 0;
    hdi_mutex_lock(&session_lock);
    /* read without the leaf lock, since `attached` changes only under the mutex */
    bool good = a->attached;
    if (!good) {
        cupti_join_session(a);
        good = users != 0 || cupti_start_session(driver, option, why);
        users += good;
        if (!good) {
            cupti_leave_session(a);
        }
    }
    hdi_mutex_unlock(&session_lock);
    return good;
}

void hdi_activities_end(hdi_activities *a, const hdi_driver *driver)
{
    hdi_mutex_lock(&session_lock);
    if (a->attached) {
        cupti.cuptiActivityFlushAll(0);
        if (--users == 0) {
            cupti_stop_session(driver);
        }
        cupti_leave_session(a);
    }
    hdi_mutex_unlock(&session_lock);
}

void hdi_activities_forget(hdi_activities *a)
{
    hdi_mutex_lock(&session_lock);
    if (a->attached) {
        users--;
        cupti_leave_session(a);
    }
    hdi_mutex_unlock(&session_lock);
    free(hdi_activities_take(a).at);
}

hdi_activities_batch hdi_activities_take(hdi_activities *a)
{
    hdi_lock_take(&leaf);
    hdi_activities_batch batch = {.at = a->at,
                                  .n = atomic_load_explicit(&a->n, memory_order_relaxed),
                                  .dropped = atomic_load_explicit(&a->dropped, memory_order_relaxed),
                                  .session = a->session};
    a->at = NULL;
    a->room = 0;
    atomic_store_explicit(&a->n, 0, memory_order_relaxed);
    atomic_store_explicit(&a->dropped, 0, memory_order_relaxed);
    hdi_lock_release(&leaf);
    return batch;
}
