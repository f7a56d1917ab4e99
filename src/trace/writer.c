/* writer.c - see writer.h for threads, locks and invariants. */
#include "trace/writer.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "memory/arena.h"
#include "memory/host_pool.h"
#include "memory/part.h"
#include "trace/output.h"
#include "trace/part.h"

_Static_assert(HDI_RECORD_LANES == HDI_LANES_MAX, "a lane's number in a file is its number in the runtime");

#define OUT_RECORDS 4096
/* the time between two looks at the rings, and between two samples of memory */
#define LOOK_NS 10000000
#define KERNELS (HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS)
#define NAMED_LEAST 256
#define EXIT_NS 1000000000 /* the time for all writers together when the program ends */

/* A number in the file that stands for a text. */
typedef struct named {
    uint64_t number;
    uint64_t text; /* hdi_record_number of the text */
    uint8_t kind;  /* HDI_RECORD_NAME_*; 0: a free place of the table */
} named;

struct hdi_writer {
    hd_runtime *rt;
    hdi_output output;
    uint64_t limit; /* bytes of the file */
    int error;      /* an errno, after which nothing is written any more */
    /* `left_out`: how many of the `dropped` records did not fit into the file. */
    uint64_t records, dropped, left_out;
    /* The number of records in the file at the last look before the first record was left out. */
    uint64_t whole;
    pthread_t thread;
    _Atomic uint32_t stop; /* futex word */
    /* Counts looks that the end of the program requested. */
    _Atomic uint32_t asked;
    /* How many of these looks happened; futex word. */
    _Atomic uint32_t looked;
    struct hdi_writer *next;              /* in the list of writers */
    uint64_t figures[HDI_DEVICES_MAX][4]; /* as last written */
    /* one bit for each lane whose record was written */
    uint64_t lanes[HDI_DEVICES_MAX][HDI_LANES_MAX / 64];
    uint32_t look; /* the number of looks so far */
    /* the last look that compared the kernel's name */
    uint32_t kernel_look[KERNELS];
    uint64_t kernel_name[KERNELS]; /* number of the written name; 0: none */
    /* Numbers whose names were written; a hash table. */
    named *named;
    size_t n_named, named_room;
    size_t n_out;
    hdi_record out[OUT_RECORDS];
};

/* ---- the file ---- */

static void writer_drop(hdi_writer *w, uint64_t n)
{
    w->dropped += n;
    w->left_out += n;
}

static void writer_flush(hdi_writer *w)
{
    size_t bytes = w->n_out * sizeof(hdi_record), put = 0;
    if (w->n_out && !w->error) {
        put = hdi_output_write(&w->output, w->out, bytes, &w->stop);
        w->error = put == bytes ? 0 : errno ? errno : EIO;
    }
    size_t whole = put / sizeof(hdi_record);
    w->records += whole;
    writer_drop(w, w->n_out - whole);
    w->n_out = 0;
}

/* Room for `n` records that belong together. NULL: they do not fit into the file, and count as
 * dropped. */
static hdi_record *writer_room(hdi_writer *w, uint32_t n)
{
    if ((w->records + w->n_out + n) * sizeof(hdi_record) > w->limit || w->error) {
        writer_drop(w, n);
        return NULL;
    }
    if (w->n_out + n > OUT_RECORDS) {
        writer_flush(w);
    }
    hdi_record *at = &w->out[w->n_out];
    w->n_out += n;
    return at;
}

static void writer_put_text(hdi_writer *w, hdi_record record, const char *text)
{
    size_t left = strlen(text);
    uint32_t n = (uint32_t)((left + HDI_RECORD_TEXT_BYTES - 1) / HDI_RECORD_TEXT_BYTES);
    record.texts = (uint8_t)(n < UINT8_MAX ? n : UINT8_MAX);
    hdi_record *at = writer_room(w, 1 + record.texts);
    if (!at) {
        return;
    }
    *at++ = record;
    for (uint8_t i = 0; i < record.texts; i++, at++) {
        size_t bytes = left < HDI_RECORD_TEXT_BYTES ? left : HDI_RECORD_TEXT_BYTES;
        *at = (hdi_record){.text = {.type = HDI_RECORD_TEXT, .bytes = (uint8_t)bytes}};
        memcpy(at->text.text, text, bytes);
        text += bytes;
        left -= bytes;
    }
}

static void writer_put_name(hdi_writer *w, uint8_t kind, uint64_t number, const char *text)
{
    hdi_record record = {.name = {.time = hdi_clock_ns(), .number = number}};
    record.type = HDI_RECORD_NAME;
    record.kind = kind;
    writer_put_text(w, record, text);
}

/* ---- names ---- */

/* Returns the place of a number, or a free place for it. */
static named *writer_name_place(named *table, size_t places, uint8_t kind, uint64_t number)
{
    size_t at = (size_t)((number + kind) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (places - 1);
    while (table[at].kind && (table[at].kind != kind || table[at].number != number)) {
        at = (at + 1) & (places - 1);
    }
    return &table[at];
}

/* Makes room for one more name. False: no memory. */
static bool writer_room_for_name(hdi_writer *w)
{
    if (2 * (w->n_named + 1) <= w->named_room) {
        return true;
    }
    size_t places = w->named_room ? 2 * w->named_room : NAMED_LEAST;
    named *table = calloc(places, sizeof *table);
    if (!table) {
        return false;
    }
    for (size_t i = 0; i < w->named_room; i++) {
        if (w->named[i].kind) {
            *writer_name_place(table, places, w->named[i].kind, w->named[i].number) = w->named[i];
        }
    }
    free(w->named);
    w->named = table;
    w->named_room = places;
    return true;
}

/* Writes the number's name, unless it was written before. If another text uses the number, `text`
 * gets the next free number. Returns the number. `as`: the text's hdi_record_number. If there is no
 * memory for the table, the name is written each time. */
static uint64_t writer_name_number(hdi_writer *w, uint8_t kind, uint64_t number, uint64_t as, const char *text)
{
    if (!writer_room_for_name(w)) {
        writer_put_name(w, kind, number, text);
        return number;
    }
    named *place = writer_name_place(w->named, w->named_room, kind, number);
    while (place->kind && place->text != as) {
        /* Only labels come here: their numbers have 32 bits, so two texts may share a number. */
        number = (uint32_t)(number + 1) ? number + 1 : 1;
        place = writer_name_place(w->named, w->named_room, kind, number);
    }
    if (!place->kind) {
        *place = (named){.number = number, .text = as, .kind = kind};
        w->n_named++;
        writer_put_name(w, kind, number, text);
    }
    return number;
}

static void writer_name_kernel(hdi_writer *w, uint32_t number)
{
    if (number >= KERNELS || w->kernel_look[number] == w->look) {
        return;
    }
    w->kernel_look[number] = w->look;
    char name[HDI_KERNEL_NAME_BYTES];
    hdi_kernel_name(w->rt, number, name);
    uint64_t hash = hdi_record_number(name);
    if (w->kernel_name[number] != hash) {
        w->kernel_name[number] = hash;
        writer_put_name(w, HDI_RECORD_NAME_KERNEL, number, name);
    }
}

/* The purpose of a copy lane shows in its first copy. */
static uint8_t writer_lane_kind(const hd_lane *lane, const hdi_record *submit)
{
    if (atomic_load_explicit(&lane->claim, memory_order_relaxed)) {
        return HDI_RECORD_LANE_CLAIM;
    }
    if (!lane->is_copy) {
        return lane->sticky_failure ? HDI_RECORD_LANE_PROGRAM : HDI_RECORD_LANE_OTHER;
    }
    if (submit->kind != HDI_RECORD_OP_COPY) {
        return HDI_RECORD_LANE_ON;
    }
    switch (submit->submit.kernel) {
    case HDI_RECORD_WAY_TO_DEVICE:
        return HDI_RECORD_LANE_IN;
    case HDI_RECORD_WAY_TO_HOST:
        return HDI_RECORD_LANE_OUT;
    case HDI_RECORD_WAY_PEER:
        return HDI_RECORD_LANE_PEER;
    default:
        return HDI_RECORD_LANE_ON;
    }
}

static void writer_name_lane(hdi_writer *w, const hdi_record *submit)
{
    uint32_t global = submit->submit.lane, device = global / HDI_LANES_MAX, number = global % HDI_LANES_MAX;
    if (device >= (uint32_t)w->rt->n_devices) {
        return;
    }
    uint64_t *word = &w->lanes[device][number / 64], bit = (uint64_t)1 << number % 64;
    const hd_lane *lane = hdi_lane_at(w->rt->devices[device], number);
    if (*word & bit || !lane) {
        return;
    }
    *word |= bit;
    hdi_record *at = writer_room(w, 1);
    if (at) {
        *at = (hdi_record){.a_lane = {.time = submit->time, .lane = global, .slots = (uint32_t)lane->mask + 1}};
        at->type = HDI_RECORD_LANE;
        at->kind = writer_lane_kind(lane, submit);
        at->device = (uint8_t)device;
    }
}

/* ---- the contents of rings ---- */

/* The text of a record as a string: its pieces from index `first` of the ring on. */
static void writer_text_at(const hdi_record_ring *ring, uint64_t first, uint32_t pieces, char *out, size_t bytes)
{
    size_t length = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        /* a copy: a worker may write there meanwhile */
        hdi_record piece = *hdi_ring_at(ring, first + i);
        size_t n = piece.text.bytes < HDI_RECORD_TEXT_BYTES ? piece.text.bytes : HDI_RECORD_TEXT_BYTES;
        n = n < bytes - 1 - length ? n : bytes - 1 - length;
        memcpy(out + length, piece.text.text, n);
        length += n;
    }
    out[length] = 0;
}

/* A label's number in a record. `i`: 0 or 1 for the two labels of a TRANSFER. NULL: the record
 * contains no label. */
static uint32_t *writer_label_of(hdi_record *r, uint32_t i)
{
    switch (r->type) {
    case HDI_RECORD_WAIT:
        return &r->wait.label;
    case HDI_RECORD_TRANSFER:
        return i ? &r->transfer.dst_label : &r->transfer.src_label;
    case HDI_RECORD_ALLOC:
    case HDI_RECORD_FREE:
    case HDI_RECORD_LABEL:
        return &r->alloc.label;
    default:
        return NULL;
    }
}

/* Called if a record's texts are names of its numbers. Writes each name once, as a NAME record. */
static void writer_name_texts(hdi_writer *w, const hdi_record_ring *ring, hdi_record *r, uint64_t first)
{
    char text[HDI_RECORD_TEXTS_MOST * HDI_RECORD_TEXT_BYTES + 1];
    uint32_t each = r->type == HDI_RECORD_TRANSFER ? 1 : r->texts;
    for (uint32_t i = 0; i < r->texts; i += each) {
        writer_text_at(ring, first + i, each, text, sizeof text);
        uint32_t *label = writer_label_of(r, i);
        if (text[0] && r->type == HDI_RECORD_PUSH) {
            writer_name_number(w, HDI_RECORD_NAME_RANGE, r->range.name, r->range.name, text);
        } else if (text[0] && r->type == HDI_RECORD_INTERVAL) {
            writer_name_number(w, HDI_RECORD_NAME_RANGE, r->interval.name, r->interval.name, text);
        } else if (text[0] && label) {
            *label = (uint32_t)writer_name_number(w, HDI_RECORD_NAME_LABEL, *label, hdi_record_number(text), text);
        }
    }
}

static void writer_take_of_thread(hdi_writer *w, const hdi_record_ring *ring, hdi_record *r, uint64_t first)
{
    if (r->type == HDI_RECORD_SUBMIT) {
        writer_name_lane(w, r);
        if (r->kind == HDI_RECORD_OP_LAUNCH) {
            writer_name_kernel(w, r->submit.kernel);
        }
    }
    bool keeps = r->type == HDI_RECORD_LOSS; /* the text belongs to the record itself */
    if (r->texts && !keeps) {
        writer_name_texts(w, ring, r, first);
    }
    uint32_t n = 1 + (keeps ? r->texts : 0);
    hdi_record *at = writer_room(w, n);
    if (at) {
        for (uint32_t i = 0; i < n; i++) {
            at[i] = i ? *hdi_ring_at(ring, first + i - 1) : *r;
        }
        at->texts = (uint8_t)(n - 1);
    }
}

/* Takes a record from an engine's ring. `texts` pieces of its text are in the ring, from index
 * `first` on. */
static void writer_take_of_engine(hdi_writer *w, const hdi_record_ring *ring, const hdi_record *r, uint64_t first,
                                  uint32_t texts)
{
    bool engines = r->type == HDI_RECORD_ISSUE || r->type == HDI_RECORD_SPAN || r->type == HDI_RECORD_DONE ||
                   r->type == HDI_RECORD_CLOCK || r->type == HDI_RECORD_ACTIVITY || r->type == HDI_RECORD_BEHIND;
    if (r->type == HDI_RECORD_ACTIVITY && texts) {
        char text[HDI_RECORD_TEXTS_MOST * HDI_RECORD_TEXT_BYTES + 1];
        writer_text_at(ring, first, texts, text, sizeof text);
        if (text[0]) {
            writer_name_number(w, HDI_RECORD_NAME_ACTIVITY, r->activity.name, r->activity.name, text);
        }
    }
    hdi_record *at = engines ? writer_room(w, 1) : NULL;
    if (at) {
        *at = *r;
        at->texts = 0;
    }
}

/* `partial`: as in the record. */
static void writer_report_dropped(hdi_writer *w, uint8_t kind, uint8_t device, uint64_t n, uint64_t partial)
{
    hdi_record *at = n ? writer_room(w, 1) : NULL;
    if (at) {
        *at = (hdi_record){.dropped = {.time = hdi_clock_ns(), .count = n, .partial = partial}};
        at->type = HDI_RECORD_DROPPED;
        at->kind = kind;
        at->device = device;
    }
}

/* True if the ring was not empty. */
static bool writer_empty_ring(hdi_writer *w, hdi_record_ring *ring, int device)
{
    uint64_t ready = hdi_ring_ready(ring);
    for (uint64_t i = 0; i < ready;) {
        hdi_record r = *hdi_ring_at(ring, i++); /* a copy: a worker may write there meanwhile */
        if (device >= 0) {
            r.device = (uint8_t)device;
            /* The number of pieces that the record states, but not more than the ring contains. */
            uint32_t texts = r.texts < ready - i ? r.texts : (uint32_t)(ready - i);
            writer_take_of_engine(w, ring, &r, i, texts);
            i += r.type == HDI_RECORD_ACTIVITY ? texts : 0;
            continue;
        }
        writer_take_of_thread(w, ring, &r, i);
        i += r.texts;
    }
    hdi_ring_taken(ring, ready);
    uint64_t dropped = hdi_ring_take_dropped(ring);
    w->dropped += dropped;
    writer_report_dropped(w, device >= 0, device >= 0 ? (uint8_t)device : HDI_RECORD_NO_DEVICE, dropped, 0);
    return ready != 0;
}

/* ---- samples ---- */

/* Samples each device whose figures changed; `all`: each device. */
static void writer_sample(hdi_writer *w, bool all)
{
    int64_t now = hdi_clock_ns();
    hdi_host_pool_info pinned;
    hdi_host_pool_get_info(hdi_memory_of(w->rt)->host_pool, &pinned);
    for (int i = 0; i < w->rt->n_devices; i++) {
        const hdi_arena *arena = w->rt->devices[i]->arena;
        uint64_t figures[] = {hdi_arena_taken_bytes(arena), hdi_arena_mapped_bytes(arena), hdi_arena_limit(arena),
                              pinned.pinned_bytes};
        bool changed = memcmp(figures, w->figures[i], sizeof figures) != 0;
        hdi_record *at = all || changed ? writer_room(w, 1) : NULL;
        if (at) {
            memcpy(w->figures[i], figures, sizeof figures);
            *at = (hdi_record){
                .memory = {
                    .time = now, .in_use = figures[0], .held = figures[1], .limit = figures[2], .pinned = figures[3]}};
            at->type = HDI_RECORD_MEMORY;
            at->device = (uint8_t)i;
        }
    }
}

/* ---- the thread ---- */

/* Takes the contents of all rings. `last`: this may be the last look, so it also writes the last
 * figures of memory. */
static bool writer_look(hdi_writer *w, bool last)
{
    bool any = false;
    w->look++;
    hdi_recorder *recorder = &w->rt->recorder;
    hdi_quick_relate(&recorder->clock);
    /* pairs with the release store in record.c */
    hdi_record_thread *t = atomic_load_explicit(&recorder->threads, memory_order_acquire);
    for (; t; t = t->next) {
        if (!t->populated) {
            t->populated = true;
            hdi_ring_populate(t->ring);
        }
        any |= writer_empty_ring(w, t->ring, -1);
    }
    any |= writer_empty_ring(w, recorder->common, -1);
    for (int i = 0; i < w->rt->n_devices; i++) {
        any |= writer_empty_ring(w, w->rt->devices[i]->channel.records, i);
    }
    writer_sample(w, last);
    writer_flush(w);
    w->whole = w->left_out ? w->whole : w->records;
    return any;
}

static void *writer_run(void *context)
{
    hdi_writer *w = context;
    while (!atomic_load_explicit(&w->stop, memory_order_acquire)) {
        /* pairs with the release in writers_put_rest: the records of the thread that ends the
         * program are in the rings */
        uint32_t asked = atomic_load_explicit(&w->asked, memory_order_acquire);
        writer_look(w, asked != atomic_load_explicit(&w->looked, memory_order_relaxed));
        if (atomic_exchange_explicit(&w->looked, asked, memory_order_release) != asked) {
            hdi_futex_wake(&w->looked, INT32_MAX);
        }
        hdi_futex_wait(&w->stop, 0, hdi_clock_ns() + LOOK_NS);
    }
    return NULL;
}

/* ---- the end of the program ---- */

static hdi_mutex writers_lock = HDI_MUTEX_INIT(WRITERS);
static hdi_writer *writers; /* under the mutex */

static void writers_before_fork(void)
{
    hdi_mutex_lock_at_fork(&writers_lock);
}

static void writers_in_parent(void)
{
    hdi_mutex_unlock(&writers_lock);
}

static void writers_in_child(void)
{
    writers = NULL; /* the writers' threads do not exist here */
    hdi_mutex_unlock(&writers_lock);
}

static void writers_guard_forks(void)
{
    pthread_atfork(writers_before_fork, writers_in_parent, writers_in_child);
}

static void writers_enlist(hdi_writer *w)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, writers_guard_forks);
    hdi_mutex_lock(&writers_lock);
    w->next = writers;
    writers = w;
    hdi_mutex_unlock(&writers_lock);
}

static void writers_delist(const hdi_writer *w)
{
    hdi_mutex_lock(&writers_lock);
    hdi_writer **at = &writers;
    while (*at && *at != w) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = w->next;
    }
    hdi_mutex_unlock(&writers_lock);
}

/* Runs in exit(), which may be called anywhere, even in a signal handler. So it waits for no lock.
 * The function asks the writers to empty the rings, since only writers read rings. A destructor
 * runs after the program's own functions for exit(), which may close runtimes. */
static __attribute__((destructor)) void writers_put_rest(void)
{
    if (!hdi_mutex_try(&writers_lock)) {
        return;
    }
    int64_t deadline = hdi_deadline(EXIT_NS);
    for (hdi_writer *w = writers; w; w = w->next) {
        atomic_fetch_add_explicit(&w->asked, 1, memory_order_release);
        hdi_futex_wake(&w->stop, 1);
    }
    for (hdi_writer *w = writers; w; w = w->next) {
        uint32_t asked = atomic_load_explicit(&w->asked, memory_order_relaxed), looked;
        while ((looked = atomic_load_explicit(&w->looked, memory_order_acquire)) != asked &&
               hdi_futex_wait(&w->looked, looked, deadline)) {
        }
    }
    hdi_mutex_unlock(&writers_lock);
}

/* ---- beginning and end ---- */

static void writer_put_first(hdi_writer *w, uint32_t detail)
{
    hd_runtime *rt = w->rt;
    uint64_t limit = w->limit;
    /* these records are written whatever the limit is, since all others are meaningless without
     * them */
    w->limit = UINT64_MAX;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    hdi_record *at = writer_room(w, 1);
    *at = (hdi_record){.trace = {.time = hdi_clock_ns(),
                                 .magic = HDI_RECORD_MAGIC,
                                 .version = HDI_RECORD_VERSION,
                                 .process = (uint32_t)getpid(),
                                 .since_1970 = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec,
                                 .placement = rt->is_inline    ? 0
                                              : rt->is_process ? 2
                                                               : 1,
                                 .run = (uint32_t)rt->id}};
    at->type = HDI_RECORD_TRACE;
    at->kind = (uint8_t)detail;
    at->device = (uint8_t)rt->n_devices;
    for (int i = 0; i < rt->n_devices; i++) {
        const hdi_facts *facts = &rt->devices[i]->facts;
        hdi_record device = {.a_device = {.time = hdi_clock_ns(), .memory = facts->memory_bytes}};
        device.type = HDI_RECORD_DEVICE;
        device.kind = rt->provider->is_host;
        device.device = (uint8_t)i;
        memcpy(device.a_device.uuid, facts->uuid, sizeof device.a_device.uuid);
        memcpy(device.a_device.bus, facts->bus_id, strnlen(facts->bus_id, sizeof device.a_device.bus - 1));
        writer_put_text(w, device, facts->name);
    }
    const hdi_record *rank = &hdi_trace_of(rt)->tracer.rank;
    hdi_record *place = rank->type ? writer_room(w, 1) : NULL;
    if (place) {
        *place = *rank;
    }
    int n = 0;
    for (const hdi_option_row *row; (row = hdi_option_row_at(n)) != NULL; n++) {
        char text[256];
        int length = snprintf(text, sizeof text, "%s=%s", row->name, rt->options.text[n]);
        if (length > 0 && strcmp(rt->options.text[n], row->default_text) != 0) {
            writer_put_name(w, HDI_RECORD_NAME_OPTION, (uint64_t)n + 1, text);
        }
    }
    w->limit = limit;
}

/* Drops records of threads that were late when the previous trace ended. */
static void writer_clear_rings(hd_runtime *rt)
{
    hdi_record_thread *t = atomic_load_explicit(&rt->recorder.threads, memory_order_acquire);
    for (; t; t = t->next) {
        hdi_ring_clear(t->ring);
    }
    hdi_ring_clear(rt->recorder.common);
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_ring_populate(rt->devices[i]->channel.records);
        hdi_ring_clear(rt->devices[i]->channel.records);
    }
}

static void writer_release(hdi_writer *w)
{
    hdi_output_close(&w->output);
    free(w->named);
    free(w);
}

hd_status hdi_writer_start(hd_runtime *rt, const char *file, _Atomic unsigned *number, uint32_t detail, uint64_t limit,
                           hdi_writer **out)
{
    hdi_writer *w = calloc(1, sizeof *w);
    if (!w) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the trace");
    }
    w->rt = rt;
    w->limit = limit;
    hd_status opened = hdi_output_open(&w->output, file, number);
    if (opened) {
        free(w);
        return opened;
    }
    writer_clear_rings(rt);
    hdi_quick_begin(&rt->recorder.clock);
    writer_put_first(w, detail);
    writer_sample(w, true);
    writer_flush(w);
    w->whole = w->records;
    int error = w->error ? w->error : hdi_thread_start(&w->thread, writer_run, w);
    if (error) {
        hd_status status =
            hdi_fail(HD_ERROR_SYSTEM, "the trace '%s' cannot be written: %s", w->output.name, strerror(error));
        writer_release(w);
        return status;
    }
    writers_enlist(w);
    *out = w;
    return HD_OK;
}

hd_status hdi_writer_stop(hdi_writer *w, hd_trace_info *info)
{
    writers_delist(w);
    atomic_store_explicit(&w->stop, 1, memory_order_release);
    hdi_futex_wake(&w->stop, 1);
    pthread_join(w->thread, NULL);
    while (writer_look(w, false)) {
    }
    writer_sample(w, true);
    uint64_t limit = w->limit;
    w->limit = UINT64_MAX; /* these two records are always written */
    uint64_t dropped = w->dropped;
    writer_report_dropped(w, 2, HDI_RECORD_NO_DEVICE, w->left_out, w->records - w->whole);
    hdi_record *at = writer_room(w, 1);
    if (at) {
        *at = (hdi_record){.clock = {.time = hdi_clock_ns()}};
        at->type = HDI_RECORD_END;
    }
    writer_flush(w);
    w->limit = limit;
    if (info) {
        info->records = w->records;
        info->dropped = dropped;
        info->bytes = w->records * sizeof(hdi_record);
    }
    hd_status status = w->error ? hdi_fail(HD_ERROR_SYSTEM,
                                           "the trace '%s' could not be written whole: %s; %llu records "
                                           "are missing",
                                           w->output.name, hdi_output_reason(w->error), (unsigned long long)dropped)
                                : HD_OK;
    writer_release(w);
    return status;
}

const char *hdi_writer_file(const hdi_writer *writer)
{
    return writer->output.name;
}
