/* nvtx.c - see nvtx.h for threads, locks and invariants. This file declares the parts of NVTX's
 * protocol that it uses. */
#include "trace/nvtx.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include "base/thread.h"

enum { TABLE_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_START_EX = 4, CORE_START_A, CORE_START_W, CORE_END, CORE_PUSH_EX, CORE_PUSH_A, CORE_PUSH_W, CORE_POP };
enum {
    CORE2_START_EX = 2,
    CORE2_END,
    CORE2_PUSH_EX,
    CORE2_POP,
    CORE2_REGISTER_A = 10,
    CORE2_REGISTER_W,
    CORE2_DOMAIN_A,
    CORE2_DOMAIN_W
};
enum { MESSAGE_ASCII = 1, MESSAGE_UNICODE, MESSAGE_REGISTERED };

typedef void (*function)(void);
typedef struct callbacks {
    size_t size;
    int (*table_of_module)(int module, function ***out, unsigned *entries);
} callbacks;

typedef struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *unicode;
        const char *registered; /* the result that nvtx.c returned for the registration */
    } message;
} attributes;

#define NAME_BYTES HDI_RECORD_TEXT_ROOM
#define RECORDERS 256 /* the most runtimes, each with one recorder */
#define DEPTH 64      /* the most nested ranges of a thread; deeper ones are left out */
#define INTERVALS 512 /* the most intervals that are open at a time */

/* ---- active recorders ---- */

static hdi_mutex lock = HDI_MUTEX_INIT(NVTX);
/* under the mutex, like `since` and all stores to `n_recorders` */
static hdi_recorder *recorders[RECORDERS];
static int64_t since[RECORDERS];     /* clock time at which this recorder began */
static _Atomic uint32_t n_recorders; /* also loaded without the mutex, as a hint */

static void nvtx_before_fork(void)
{
    hdi_mutex_lock_at_fork(&lock);
}

static void nvtx_in_parent(void)
{
    hdi_mutex_unlock(&lock);
}

static void nvtx_in_child(void)
{
    atomic_store_explicit(&n_recorders, 0, memory_order_relaxed);
    hdi_mutex_unlock(&lock);
}

static void nvtx_guard_forks(void)
{
    pthread_atfork(nvtx_before_fork, nvtx_in_parent, nvtx_in_child);
}

bool hdi_nvtx_listen(hdi_recorder *recorder)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nvtx_guard_forks);
    hdi_mutex_lock(&lock);
    uint32_t n = atomic_load_explicit(&n_recorders, memory_order_relaxed);
    if (n < RECORDERS) {
        recorders[n] = recorder;
        since[n] = hdi_clock_ns();
        atomic_store_explicit(&n_recorders, n + 1, memory_order_relaxed);
    }
    hdi_mutex_unlock(&lock);
    return n < RECORDERS;
}

void hdi_nvtx_leave(hdi_recorder *recorder)
{
    hdi_mutex_lock(&lock);
    uint32_t n = atomic_load_explicit(&n_recorders, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        if (recorders[i] == recorder) {
            recorders[i] = recorders[n - 1];
            since[i] = since[n - 1];
            atomic_store_explicit(&n_recorders, n - 1, memory_order_relaxed);
            break;
        }
    }
    hdi_mutex_unlock(&lock);
}

static bool nvtx_is_wanted(void)
{
    return __builtin_expect(atomic_load_explicit(&n_recorders, memory_order_relaxed) != 0, 0);
}

/* ---- the ranges of a thread ---- */

typedef struct range {
    const void *domain;
    uint64_t name;
    int64_t began;
} range;

/* The ranges of a thread. They are not in thread-local storage, which is scarce (base/thread.h). */
typedef struct nest {
    range ranges[DEPTH];
    int depth; /* the depth, which may be more than the number of recorded ranges */
} nest;

static pthread_key_t nest_key;
static bool has_key;

static void nvtx_make_key(void)
{
    has_key = hdi_thread_key(&nest_key, free) == 0;
}

/* The thread's ranges. The first range of a thread makes this structure. NULL: there is no memory,
 * and the ranges are left out. */
static nest *nvtx_nest_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nvtx_make_key);
    nest *own = has_key ? pthread_getspecific(nest_key) : NULL;
    if (!own && has_key && (own = calloc(1, sizeof *own)) != NULL && pthread_setspecific(nest_key, own) != 0) {
        free(own);
        own = NULL;
    }
    return own;
}

/* Writes a record into all traces that were on at `began`. `text` may be NULL if these traces
 * already contain the name. The mutex is held. */
static void nvtx_put(uint8_t type, uint64_t name, const char *text, int64_t began)
{
    hdi_record record = {.range = {.name = name}};
    record.type = type;
    record.kind = 1;
    uint32_t n = atomic_load_explicit(&n_recorders, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        if (since[i] > began) {
            continue;
        }
        record.time = hdi_record_now(recorders[i]);
        if (type == HDI_RECORD_PUSH) {
            hdi_record_push(recorders[i], &record, text);
        } else {
            hdi_record_pop(recorders[i], &record);
        }
    }
}

static int nvtx_push(const void *domain, const char *text)
{
    nest *own = nvtx_nest_here();
    if (!own) {
        return 0;
    }
    int at = own->depth++;
    if (at < DEPTH) {
        range *r = &own->ranges[at];
        *r = (range){.domain = domain};
        if (nvtx_is_wanted()) {
            *r = (range){.domain = domain, .name = hdi_record_number(text), .began = hdi_clock_ns()};
            hdi_mutex_lock(&lock);
            nvtx_put(HDI_RECORD_PUSH, r->name, text, r->began);
            hdi_mutex_unlock(&lock);
        }
    }
    return at;
}

/* Ends the range at depth `at`, counted from 0. The ranges within it end first, and begin again
 * afterwards. The mutex is held. */
static void nvtx_nest_end(const nest *own, int at)
{
    for (int i = own->depth - 1; i >= at; i--) {
        nvtx_put(HDI_RECORD_POP, own->ranges[i].name, NULL, own->ranges[i].began);
    }
    for (int i = at + 1; i < own->depth; i++) {
        nvtx_put(HDI_RECORD_PUSH, own->ranges[i].name, NULL, own->ranges[i].began);
    }
}

static int nvtx_pop(const void *domain)
{
    nest *own = nvtx_nest_here();
    if (!own || own->depth > DEPTH || own->depth == 0) {
        if (own) {
            own->depth -= own->depth > DEPTH;
        }
        return own ? own->depth : 0;
    }
    int at = own->depth - 1;
    while (at >= 0 && own->ranges[at].domain != domain) {
        at--;
    }
    if (at < 0) {
        return 0; /* this pop belongs to no push */
    }
    if (nvtx_is_wanted()) {
        hdi_mutex_lock(&lock);
        nvtx_nest_end(own, at);
        hdi_mutex_unlock(&lock);
    }
    own->depth--;
    memmove(&own->ranges[at], &own->ranges[at + 1], (size_t)(own->depth - at) * sizeof(range));
    return at;
}

/* ---- ranges that are started and ended ---- */

typedef struct interval {
    /* 0: none. An id contains the interval's index in the table, and is never used again */
    uint64_t id;
    uint64_t name;
    int64_t began;
    uint32_t thread;
    char text[NAME_BYTES];
} interval;

/* A table of INTERVALS intervals, made when the first interval begins. NULL: no interval began yet,
 * or there is no memory. Under the mutex. */
static interval *intervals;

/* True if a trace that was on at `began` is still on. The mutex is held. */
static bool nvtx_is_recorded(int64_t began)
{
    uint32_t n = atomic_load_explicit(&n_recorders, memory_order_relaxed);
    uint32_t i = 0;
    while (i < n && since[i] > began) {
        i++;
    }
    return i < n;
}

/* An interval that is free, or whose traces ended. NULL: none. The mutex is held. */
static interval *nvtx_interval_unused(void)
{
    static uint32_t next;
    intervals = intervals ? intervals : calloc(INTERVALS, sizeof *intervals);
    for (uint32_t i = 0; i < INTERVALS && intervals; i++) {
        interval *at = &intervals[next++ % INTERVALS];
        if (!at->id || !nvtx_is_recorded(at->began)) {
            return at;
        }
    }
    return NULL;
}

/* The mutex is held. */
static void nvtx_interval_drop(void)
{
    uint32_t n = atomic_load_explicit(&n_recorders, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        hdi_record_drop(recorders[i]);
    }
}

/* Returns the range's id. 0: the range is not recorded. NVTX without a tool also returns 0. */
static uint64_t nvtx_start(const char *text)
{
    static uint64_t serial;
    hdi_mutex_lock(&lock);
    interval *at = nvtx_interval_unused();
    uint64_t id = at ? ++serial * INTERVALS + (uint64_t)(at - intervals) : 0;
    if (at) {
        at->id = id;
        at->name = hdi_record_number(text);
        at->began = hdi_clock_ns();
        at->thread = hdi_record_own_number();
        snprintf(at->text, sizeof at->text, "%s", text);
    } else {
        nvtx_interval_drop();
    }
    hdi_mutex_unlock(&lock);
    return id;
}

/* Records the interval in all traces that were on when it began. The mutex is held. */
static void nvtx_interval_put(const interval *at)
{
    hdi_record record = {.interval = {.time = at->began, .name = at->name, .began_by = at->thread}};
    record.type = HDI_RECORD_INTERVAL;
    record.kind = 1;
    uint32_t n = atomic_load_explicit(&n_recorders, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        if (since[i] <= at->began) {
            int64_t now = hdi_record_now(recorders[i]);
            record.interval.ended = now > at->began ? now : at->began;
            hdi_record_put_text(recorders[i], &record, at->text);
        }
    }
}

static void nvtx_end_id(uint64_t id)
{
    if (!id || !nvtx_is_wanted()) {
        return; /* `nvtx_interval_unused` finds intervals that are left over */
    }
    hdi_mutex_lock(&lock);
    interval *at = intervals ? &intervals[id % INTERVALS] : NULL;
    if (at && at->id == id) {
        nvtx_interval_put(at);
        at->id = 0;
    }
    hdi_mutex_unlock(&lock);
}

/* ---- texts ---- */

/* "domain: text", cut if there is no room. */
static void nvtx_name_join(char out[NAME_BYTES], const void *domain, const char *text)
{
    const char *name = domain;
    snprintf(out, NAME_BYTES, "%s%s%s", name ? name : "", name && name[0] ? ": " : "", text ? text : "");
}

/* The text in UTF-8, in any locale. */
static void nvtx_name_narrow(char out[NAME_BYTES], const wchar_t *text)
{
    size_t n = 0;
    for (; text && *text && n + 4 < NAME_BYTES; text++) {
        uint32_t c = (uint32_t)*text;
        int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
        out[n++] = (char)(first[more] | (c >> 6 * more & (more ? 0x3fu >> more : 0x7fu)));
        while (more-- > 0) {
            out[n++] = (char)(0x80 | (c >> 6 * more & 0x3f));
        }
    }
    out[n] = 0;
}

/* The registered names and domains, each once. They are kept until the process ends. */
typedef struct kept {
    struct kept *next;
    char text[];
} kept;

static const char *nvtx_name_keep(const char *text)
{
    static kept *all[256]; /* under the mutex */
    hdi_mutex_lock(&lock);
    kept **chain = &all[hdi_record_number(text) % 256];
    kept *k = *chain;
    while (k && strcmp(k->text, text) != 0) {
        k = k->next;
    }
    if (!k && (k = malloc(sizeof *k + strlen(text) + 1)) != NULL) {
        strcpy(k->text, text);
        k->next = *chain;
        *chain = k;
    }
    hdi_mutex_unlock(&lock);
    return k ? k->text : NULL;
}

/* ---- functions that NVTX calls ---- */

static int nvtx_push_a(const char *text)
{
    char name[NAME_BYTES] = "";
    nvtx_name_join(name, NULL, nvtx_is_wanted() ? text : NULL);
    return nvtx_push(NULL, name);
}

static int nvtx_push_w(const wchar_t *text)
{
    char name[NAME_BYTES] = "";
    nvtx_name_narrow(name, nvtx_is_wanted() ? text : NULL);
    return nvtx_push(NULL, name);
}

/* Gets the name in the attributes. Without a name, `name` stays unchanged. */
static void nvtx_name_of(char name[NAME_BYTES], const void *domain, const attributes *a)
{
    char plain[NAME_BYTES] = "";
    size_t least = offsetof(attributes, message) + sizeof a->message;
    if (a && a->size >= least) {
        if (a->message_type == MESSAGE_ASCII) {
            nvtx_name_join(name, domain, a->message.ascii);
        } else if (a->message_type == MESSAGE_UNICODE) {
            nvtx_name_narrow(plain, a->message.unicode);
            nvtx_name_join(name, domain, plain);
        } else if (a->message_type == MESSAGE_REGISTERED) {
            nvtx_name_join(name, domain, a->message.registered);
        }
    }
}

static int nvtx_domain_push(const void *domain, const attributes *a)
{
    char name[NAME_BYTES] = "";
    if (nvtx_is_wanted()) {
        nvtx_name_of(name, domain, a);
    }
    return nvtx_push(domain, name);
}

static int nvtx_push_ex(const attributes *a)
{
    return nvtx_domain_push(NULL, a);
}

static int nvtx_pop_here(void)
{
    return nvtx_pop(NULL);
}

static uint64_t nvtx_start_a(const char *text)
{
    char name[NAME_BYTES];
    if (!nvtx_is_wanted()) {
        return 0;
    }
    nvtx_name_join(name, NULL, text);
    return nvtx_start(name);
}

static uint64_t nvtx_start_w(const wchar_t *text)
{
    char name[NAME_BYTES];
    if (!nvtx_is_wanted()) {
        return 0;
    }
    nvtx_name_narrow(name, text);
    return nvtx_start(name);
}

static uint64_t nvtx_domain_start(const void *domain, const attributes *a)
{
    char name[NAME_BYTES] = "";
    if (!nvtx_is_wanted()) {
        return 0;
    }
    nvtx_name_of(name, domain, a);
    return nvtx_start(name);
}

static uint64_t nvtx_start_ex(const attributes *a)
{
    return nvtx_domain_start(NULL, a);
}

static void nvtx_domain_end(const void *domain, uint64_t id)
{
    (void)domain; /* the interval's number identifies it in all domains */
    nvtx_end_id(id);
}

static const void *nvtx_register_a(const void *domain, const char *text)
{
    (void)domain;
    return nvtx_name_keep(text ? text : "");
}

static const void *nvtx_register_w(const void *domain, const wchar_t *text)
{
    char name[NAME_BYTES];
    nvtx_name_narrow(name, text);
    return nvtx_register_a(domain, name);
}

static const void *nvtx_domain_a(const char *name)
{
    return nvtx_name_keep(name ? name : "");
}

static const void *nvtx_domain_w(const wchar_t *name)
{
    char text[NAME_BYTES];
    nvtx_name_narrow(text, name);
    return nvtx_name_keep(text);
}

int InitializeInjectionNvtx2(const void *(*table_of)(uint32_t table))
{
    hdi_keep_loaded(); /* NVTX calls functions of this library as long as the process lives */
    const callbacks *c = table_of ? table_of(TABLE_CALLBACKS) : NULL;
    static const struct {
        int module;
        unsigned entry;
        function call;
    } calls[] = {
        {MODULE_CORE, CORE_START_EX, (function)nvtx_start_ex},
        {MODULE_CORE, CORE_START_A, (function)nvtx_start_a},
        {MODULE_CORE, CORE_START_W, (function)nvtx_start_w},
        {MODULE_CORE, CORE_END, (function)nvtx_end_id},
        {MODULE_CORE2, CORE2_START_EX, (function)nvtx_domain_start},
        {MODULE_CORE2, CORE2_END, (function)nvtx_domain_end},
        {MODULE_CORE, CORE_PUSH_EX, (function)nvtx_push_ex},
        {MODULE_CORE, CORE_PUSH_A, (function)nvtx_push_a},
        {MODULE_CORE, CORE_PUSH_W, (function)nvtx_push_w},
        {MODULE_CORE, CORE_POP, (function)nvtx_pop_here},
        {MODULE_CORE2, CORE2_PUSH_EX, (function)nvtx_domain_push},
        {MODULE_CORE2, CORE2_POP, (function)nvtx_pop},
        {MODULE_CORE2, CORE2_REGISTER_A, (function)nvtx_register_a},
        {MODULE_CORE2, CORE2_REGISTER_W, (function)nvtx_register_w},
        {MODULE_CORE2, CORE2_DOMAIN_A, (function)nvtx_domain_a},
        {MODULE_CORE2, CORE2_DOMAIN_W, (function)nvtx_domain_w},
    };
    if (!c || c->size < sizeof *c || !c->table_of_module) {
        return 0;
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        function **table = NULL;
        unsigned entries = 0;
        if (c->table_of_module(calls[i].module, &table, &entries) && table && calls[i].entry < entries &&
            table[calls[i].entry]) {
            *table[calls[i].entry] = calls[i].call;
        }
    }
    return 1;
}

void hdi_nvtx_offer(void)
{
    const char *file = hdi_own_file_name();
    if (file) {
        setenv("NVTX_INJECTION64_PATH", file, 0);
    }
}
