/* record.c - see record.h for threads, locks and invariants. */
#include "record/record.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/error.h"
#include "base/text.h"

uint32_t hdi_record_own_number(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

static hdi_record_ring *record_ring_make(void)
{
    void *ring =
        mmap(NULL, sizeof(hdi_record_ring), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return ring == MAP_FAILED ? NULL : ring;
}

static void record_ring_release(hdi_record_ring *ring)
{
    if (ring) {
        munmap(ring, sizeof *ring);
    }
}

/* ---- a recorder ---- */

void hdi_recorder_init(hdi_recorder *recorder, hdi_stable *stable)
{
    static _Atomic uint64_t ids;
    recorder->stable = stable;
    recorder->id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed) + 1;
    hdi_lock_init(&recorder->lock, HDI_RANKED(HDI_RANK_RECORD, 0));
}

hd_status hdi_recorder_prepare(hdi_recorder *recorder)
{
    hdi_record_ring *ring = recorder->common ? NULL : record_ring_make();
    if (!recorder->common && !ring) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a ring of records");
    }
    hdi_lock_take(&recorder->lock);
    recorder->common = ring ? ring : recorder->common;
    /* relaxed: a thread that sees the new number late records for the previous trace, which does no
     * harm */
    atomic_fetch_add_explicit(&recorder->trace, 1, memory_order_relaxed);
    hdi_lock_release(&recorder->lock);
    return HD_OK;
}

void hdi_recorder_release(hdi_recorder *recorder)
{
    hdi_record_thread *t = atomic_load_explicit(&recorder->threads, memory_order_acquire);
    while (t) {
        hdi_record_thread *next = t->next;
        record_ring_release(t->ring);
        t->ring = NULL;
        atomic_store_explicit(&t->owner, NULL, memory_order_relaxed);
        t = next;
    }
    record_ring_release(recorder->common);
    recorder->common = NULL;
}

int64_t hdi_record_now(const hdi_recorder *recorder)
{
    return hdi_quick_ns(&recorder->clock);
}

/* ---- a thread's first record ---- */

/* Adds a ring to the recorder; NULL: no room for one. The lock is held. */
static hdi_record_thread *recorder_add_ring(hdi_recorder *r)
{
    if (r->n_threads >= HDI_RECORD_OWN_RINGS) {
        return NULL;
    }
    hdi_record_ring *ring = record_ring_make();
    hdi_record_thread *t = ring ? hdi_stable_take(r->stable, sizeof *t) : NULL;
    if (!t) {
        record_ring_release(ring);
        return NULL;
    }
    t->ring = ring;
    t->next = atomic_load_explicit(&r->threads, memory_order_relaxed);
    r->n_threads++;
    return t;
}

/* Returns the ring of the thread's presence. The presence and its ring may have belonged to another
 * thread before. NULL: no ring. */
static hdi_record_thread *recorder_settle_ring(hdi_recorder *r)
{
    hdi_presence *own = hdi_presence_here.own;
    if (!own) {
        return NULL;
    }
    hdi_record_thread *t = atomic_load_explicit(&r->threads, memory_order_relaxed);
    while (t && atomic_load_explicit(&t->owner, memory_order_relaxed) != own) {
        t = t->next;
    }
    bool is_new = !t;
    t = t ? t : recorder_add_ring(r);
    if (!t) {
        return NULL;
    }
    t->thread = hdi_record_own_number();
    t->gap.trace = 0;
    own->records = t;
    atomic_store_explicit(&t->owner, own, memory_order_relaxed);
    atomic_store_explicit(&t->recorder, r->id, memory_order_relaxed);
    if (is_new) {
        /* Pairs with the writer's load. */
        atomic_store_explicit(&r->threads, t, memory_order_release);
    }
    return t;
}

static unsigned record_rung_of(const hdi_pause *pause)
{
    switch (pause->kind) {
    case HDI_RECORD_PAUSE_CALLBACK:
        return HDI_RECORD_RUNG_CALLBACK;
    case HDI_RECORD_PAUSE_MAP:
        return HDI_RECORD_RUNG_GREW;
    default:
        return 0;
    }
}

/* The HDI_RECORD_RUNG_* of the thread's current allocation. They are not stored with the thread's
 * ring, since a thread may lack a ring. */
static _Thread_local uint8_t rungs_here;

void hdi_record_add_rung(const hdi_recorder *recorder, unsigned rung)
{
    if (hdi_records(recorder)) {
        rungs_here |= (uint8_t)rung;
    }
}

unsigned hdi_record_take_rungs(void)
{
    unsigned rungs = rungs_here;
    rungs_here = 0;
    return rungs;
}

static bool record_put_all(hdi_record_ring *ring, hdi_record *records, uint32_t n, uint32_t thread)
{
    for (uint32_t i = 0; i < n; i++) {
        if (records[i].type != HDI_RECORD_TEXT) {
            records[i].thread = thread;
        }
    }
    return hdi_ring_put_all(ring, records, n);
}

void hdi_record_put_slow(hdi_recorder *recorder, hdi_record *records, uint32_t n)
{
    const hdi_record_thread *here = hdi_record_ring_here(recorder);
    if (here) {
        record_put_all(here->ring, records, n, here->thread);
        return;
    }
    hdi_lock_take(&recorder->lock);
    here = recorder_settle_ring(recorder);
    if (here) {
        record_put_all(here->ring, records, n, here->thread);
    } else if (recorder->common) {
        record_put_all(recorder->common, records, n, hdi_record_own_number());
    }
    hdi_lock_release(&recorder->lock);
}

/* ---- texts ---- */

uint32_t hdi_record_with_text(hdi_record *all, const hdi_record *record, const char *text)
{
    size_t left = text ? hdi_utf8_fit(text, (size_t)HDI_RECORD_TEXTS_MOST * HDI_RECORD_TEXT_BYTES) : 0;
    uint32_t n = 0;
    while (left) {
        size_t bytes = left < HDI_RECORD_TEXT_BYTES ? left : HDI_RECORD_TEXT_BYTES;
        hdi_record *piece = &all[1 + n++];
        memset(piece, 0, sizeof *piece);
        piece->text.type = HDI_RECORD_TEXT;
        piece->text.bytes = (uint8_t)bytes;
        memcpy(piece->text.text, text, bytes);
        text += bytes;
        left -= bytes;
    }
    all[0] = *record;
    all[0].texts = (uint8_t)n;
    return 1 + n;
}

void hdi_record_put_text(hdi_recorder *recorder, hdi_record *record, const char *text)
{
    hdi_record all[1 + HDI_RECORD_TEXTS_MOST];
    uint32_t n = hdi_record_with_text(all, record, text);
    hdi_record_put_slow(recorder, all, n);
}

/* ---- ranges ---- */

/* The place for the calling thread's ranges. */
typedef struct place {
    hdi_record_ring *ring; /* NULL: nowhere */
    hdi_record_gap *gap;
    uint32_t thread;
    bool shared;            /* the lock is held until record_place_leave() */
    hdi_record_gap nothing; /* used if there is no memory for a gap: the ring may then miss ends */
} place;

static bool record_gap_is_whole(const hdi_record_gap *gap, uint32_t trace)
{
    return gap->trace != trace || (gap->left_out == 0 && gap->owed == 0);
}

/* The gap of a thread that shares a ring. NULL: no memory. The lock is held. If a thread ends with
 * a gap, the next thread with the same system number gets the gap. A reader of the trace also takes
 * these two threads for one. */
static hdi_record_gap *record_gap_of_sharer(hdi_recorder *r, uint32_t thread, uint32_t trace)
{
    hdi_record_sharer **list = &r->sharers[thread % HDI_RECORD_SHARERS], *unused = NULL;
    for (hdi_record_sharer *s = *list; s; s = s->next) {
        if (s->thread == thread) {
            return &s->gap;
        }
        unused = record_gap_is_whole(&s->gap, trace) ? s : unused;
    }
    if (!unused && (unused = hdi_stable_take(r->stable, sizeof *unused)) != NULL) {
        unused->next = *list;
        *list = unused;
    }
    if (unused) {
        unused->thread = thread;
    }
    return unused ? &unused->gap : NULL;
}

/* The place for a thread without a ring of its own. */
static __attribute__((noinline)) void record_place_enter_slow(hdi_recorder *r, place *p, uint32_t trace)
{
    hdi_lock_take(&r->lock);
    hdi_record_thread *t = recorder_settle_ring(r);
    p->shared = !t;
    p->ring = t ? t->ring : r->common;
    p->thread = t ? t->thread : hdi_record_own_number();
    p->nothing = (hdi_record_gap){.trace = 0};
    p->gap = t ? &t->gap : record_gap_of_sharer(r, p->thread, trace);
    p->gap = p->gap ? p->gap : &p->nothing;
    if (t) {
        hdi_lock_release(&r->lock);
    }
}

static inline void record_place_enter(hdi_recorder *r, place *p)
{
    hdi_record_thread *t = hdi_record_ring_here(r);
    uint32_t trace = atomic_load_explicit(&r->trace, memory_order_relaxed);
    if (t) {
        p->shared = false;
        p->ring = t->ring;
        p->thread = t->thread;
        p->gap = &t->gap;
    } else {
        record_place_enter_slow(r, p, trace);
    }
    if (p->gap->trace != trace) {
        *p->gap = (hdi_record_gap){.trace = trace};
    }
}

static void record_place_leave(hdi_recorder *r, const place *p)
{
    if (p->shared) {
        hdi_lock_release(&r->lock);
    }
}

/* Writes the owed POP records. False: some still do not fit. */
static inline bool record_place_pay(const place *p)
{
    hdi_record_gap *gap = p->gap;
    for (; gap->owed && hdi_ring_fits(p->ring, 1); gap->owed--) {
        hdi_record pop = {.range = {.thread = p->thread, .time = gap->owed_at}};
        pop.type = HDI_RECORD_POP;
        hdi_ring_put(p->ring, &pop);
    }
    return gap->owed == 0;
}

static void record_place_write_push(const place *p, hdi_record *all, uint32_t n)
{
    if (p->gap->left_out || !record_place_pay(p)) {
        hdi_ring_drop(p->ring, n);
        p->gap->left_out++;
    } else {
        p->gap->left_out = record_put_all(p->ring, all, n, p->thread) ? 0 : 1;
    }
}

static void record_place_pop(const place *p, hdi_record *record)
{
    hdi_record_gap *gap = p->gap;
    if (gap->left_out) {
        hdi_ring_drop(p->ring, 1);
        gap->left_out--;
    } else if (!record_place_pay(p) || !hdi_ring_fits(p->ring, 1)) {
        hdi_ring_drop(p->ring, 1);
        gap->owed++;
        gap->owed_at = record->time;
    } else {
        record_put_all(p->ring, record, 1, p->thread);
    }
}

void hdi_record_push(hdi_recorder *recorder, hdi_record *record, const char *name)
{
    hdi_record all[1 + HDI_RECORD_TEXTS_MOST];
    uint32_t n = hdi_record_with_text(all, record, name);
    place p;
    record_place_enter(recorder, &p);
    if (p.ring) {
        record_place_write_push(&p, all, n);
    }
    record_place_leave(recorder, &p);
}

void hdi_record_pop(hdi_recorder *recorder, hdi_record *record)
{
    place p;
    record_place_enter(recorder, &p);
    if (p.ring) {
        record_place_pop(&p, record);
    }
    record_place_leave(recorder, &p);
}

void hdi_record_drop(hdi_recorder *recorder)
{
    place p;
    record_place_enter(recorder, &p);
    if (p.ring) {
        hdi_ring_drop(p.ring, 1);
    }
    record_place_leave(recorder, &p);
}

/* ---- numbers and pauses ---- */

uint64_t hdi_record_number(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; text[i] && i < HDI_RECORD_TEXTS_MOST * HDI_RECORD_TEXT_BYTES; i++) {
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    }
    return hash ? hash : 1;
}

uint32_t hdi_record_label_number(const char *label)
{
    uint32_t hash = 2166136261u; /* FNV-1a with 32 bits */
    for (size_t i = 0; label[i]; i++) {
        hash = (hash ^ (unsigned char)label[i]) * 16777619u;
    }
    return hash ? hash : 1;
}

void hdi_pause_end(hdi_recorder *recorder, int64_t began, hdi_pause pause)
{
    if (!began || !hdi_records(recorder)) {
        return;
    }
    hdi_record record = {.pause = {.time = began,
                                   .ended = hdi_record_now(recorder),
                                   .lane = pause.lane,
                                   .detail = pause.detail,
                                   .position = pause.position,
                                   .bytes = pause.bytes}};
    record.type = HDI_RECORD_PAUSE;
    record.kind = pause.kind;
    record.device = pause.device;
    hdi_record_put(recorder, &record);
    rungs_here |= (uint8_t)record_rung_of(&pause);
}
