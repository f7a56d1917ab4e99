/* alloc_sides.c - the compared allocators behind one interface, and the timed loops.
 *
 * Threads: the conductor opens and closes a side; any thread that has entered it uses it. Locks:
 * none.
 * Always: each allocator gets its own compiled loops, so that none pays for the others. A timed
 * loop contains the allocator's call and, for malloc, the accounting of its blocks.
 */
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

#define INLINE static inline __attribute__((always_inline))

enum { NO_MEMORY = 1 << 20, /* differs from every allocator's own codes */ DEADLINE_EVERY = 32 };

const char *const alloc_kind_names[ALLOC_KINDS] = {"Heddle", "cuMemAllocAsync", "cuMemAlloc", "malloc"};
const char *const alloc_kind_ids[ALLOC_KINDS] = {"heddle", "async", "plain", "libc"};

/* ---- one call ---- */

/* The accounting of a malloc block, in front of it. */
typedef struct libc_head {
    _Alignas(16) size_t bytes;
    uint32_t lane;
} libc_head;

INLINE int bench_libc_take(alloc_side *s, uint32_t lane, size_t bytes, alloc_slot *out)
{
    libc_head *head = malloc(sizeof(*head) + bytes);
    __asm__ volatile("" : : "r"(head) : "memory"); /* keeps the compiler from removing the pair */
    if (!head) {
        return NO_MEMORY;
    }
    head->bytes = bytes;
    head->lane = lane;
    /* counters; they publish nothing else */
    atomic_fetch_add_explicit(&s->live_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->live_count, 1, memory_order_relaxed);
    out->memory = head + 1;
    return 0;
}

INLINE void bench_libc_give(alloc_side *s, const alloc_slot *slot)
{
    libc_head *head = (libc_head *)slot->memory - 1;
    atomic_fetch_sub_explicit(&s->live_bytes, head->bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&s->live_count, 1, memory_order_relaxed);
    free(head);
}

INLINE int bench_driver_code(hdcu_result code)
{
    return code == HDCU_ERROR_OUT_OF_MEMORY ? NO_MEMORY : code;
}

/* Returns 0, NO_MEMORY, or the allocator's own code. `kind` is a constant in the inlined copy. */
INLINE int bench_take(alloc_kind kind, alloc_side *s, uint32_t lane, size_t bytes, alloc_slot *out)
{
    switch (kind) {
    case ALLOC_HEDDLE: {
        int status = hd_alloc(s->lane[lane], bytes, &out->buffer);
        return __builtin_expect(status == HD_ERROR_MEMORY, 0) ? NO_MEMORY : status;
    }
    case ALLOC_ASYNC:
        return bench_driver_code(s->d->cuMemAllocAsync(&out->pointer, bytes, s->stream[lane]));
    case ALLOC_PLAIN:
        return bench_driver_code(s->d->cuMemAlloc(&out->pointer, bytes));
    default:
        return bench_libc_take(s, lane, bytes, out);
    }
}

INLINE int bench_give(alloc_kind kind, alloc_side *s, uint32_t lane, const alloc_slot *slot)
{
    switch (kind) {
    case ALLOC_HEDDLE:
        hd_free(slot->buffer);
        return 0;
    case ALLOC_ASYNC:
        return s->d->cuMemFreeAsync(slot->pointer, s->stream[lane]);
    case ALLOC_PLAIN:
        return s->d->cuMemFree(slot->pointer);
    default:
        bench_libc_give(s, slot);
        return 0;
    }
}

static alloc_end bench_end_of(const alloc_side *s, int code, const char *what, char *error)
{
    if (code == 0) {
        return ALLOC_DONE;
    }
    if (s->kind == ALLOC_HEDDLE) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", what, hd_message());
    } else if (code == NO_MEMORY) {
        snprintf(error, PLAIN_ERROR, "%s %s: out of memory", alloc_kind_names[s->kind], what);
    } else {
        snprintf(error, PLAIN_ERROR, "%s %s: %.100s (%d)", alloc_kind_names[s->kind], what, hdi_driver_code_name(code),
                 code);
    }
    return code == NO_MEMORY ? ALLOC_NO_ROOM : ALLOC_FAILED;
}

alloc_end bench_alloc_take(alloc_side *s, uint32_t lane, size_t bytes, alloc_slot *out, char *error)
{
    alloc_slot slot = {.pointer = 0};
    int code = s->kind == ALLOC_HEDDLE  ? bench_take(ALLOC_HEDDLE, s, lane, bytes, &slot)
               : s->kind == ALLOC_ASYNC ? bench_take(ALLOC_ASYNC, s, lane, bytes, &slot)
               : s->kind == ALLOC_PLAIN ? bench_take(ALLOC_PLAIN, s, lane, bytes, &slot)
                                        : bench_take(ALLOC_LIBC, s, lane, bytes, &slot);
    *out = code == 0 ? slot : (alloc_slot){.pointer = 0};
    return bench_end_of(s, code, "allocation", error);
}

bool bench_alloc_give(alloc_side *s, uint32_t lane, alloc_slot *slot, char *error)
{
    int code = 0;
    if (bench_alloc_is_live(slot)) {
        code = s->kind == ALLOC_HEDDLE  ? bench_give(ALLOC_HEDDLE, s, lane, slot)
               : s->kind == ALLOC_ASYNC ? bench_give(ALLOC_ASYNC, s, lane, slot)
               : s->kind == ALLOC_PLAIN ? bench_give(ALLOC_PLAIN, s, lane, slot)
                                        : bench_give(ALLOC_LIBC, s, lane, slot);
        slot->pointer = 0;
    }
    return bench_end_of(s, code, "free", error) == ALLOC_DONE;
}

bool bench_alloc_give_all(alloc_side *s, alloc_slot *slots, size_t count, char *error)
{
    bool ok = true;
    /* other lanes may still use the blocks that lane 0 frees below */
    for (int lane = 1; lane < s->lanes && s->kind == ALLOC_ASYNC; lane++) {
        ok = bench_alloc_wait(s, (uint32_t)lane, error) && ok;
    }
    for (size_t i = 0; i < count; i++) {
        ok = bench_alloc_give(s, 0, &slots[i], error) && ok;
    }
    return ok;
}

uint64_t bench_alloc_address(const alloc_side *s, const alloc_slot *slot)
{
    return s->kind == ALLOC_HEDDLE ? hd_buffer_address(slot->buffer) : slot->pointer;
}

/* ---- timed loops ---- */

INLINE int bench_pairs(alloc_kind kind, alloc_side *s, uint32_t lane, size_t bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        alloc_slot slot;
        int code = bench_take(kind, s, lane, bytes, &slot);
        code = code ? code : bench_give(kind, s, lane, &slot);
        if (__builtin_expect(code != 0, 0)) {
            return code;
        }
    }
    return 0;
}

alloc_end bench_alloc_pairs(alloc_side *s, uint32_t lane, size_t bytes, uint64_t count, uint64_t *ns, char *error)
{
    uint64_t begin = cli_stats_monotonic();
    int code = s->kind == ALLOC_HEDDLE  ? bench_pairs(ALLOC_HEDDLE, s, lane, bytes, count)
               : s->kind == ALLOC_ASYNC ? bench_pairs(ALLOC_ASYNC, s, lane, bytes, count)
               : s->kind == ALLOC_PLAIN ? bench_pairs(ALLOC_PLAIN, s, lane, bytes, count)
                                        : bench_pairs(ALLOC_LIBC, s, lane, bytes, count);
    *ns = cli_stats_monotonic() - begin;
    return bench_end_of(s, code, "pair", error);
}

INLINE int bench_pairs_each(alloc_kind kind, alloc_side *s, uint32_t lane, size_t bytes, uint64_t count,
                            uint64_t deadline, stats_histogram *h)
{
    for (uint64_t i = 0; i < count && (i % DEADLINE_EVERY || i == 0 || cli_stats_monotonic() < deadline); i++) {
        alloc_slot slot;
        uint64_t begin = cli_stats_tick_begin();
        int code = bench_take(kind, s, lane, bytes, &slot);
        code = code ? code : bench_give(kind, s, lane, &slot);
        cli_stats_record(h, cli_stats_tick_end() - begin);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

alloc_end bench_alloc_pairs_each(alloc_side *s, uint32_t lane, size_t bytes, uint64_t count, uint64_t deadline,
                                 stats_histogram *h, char *error)
{
    int code = s->kind == ALLOC_HEDDLE  ? bench_pairs_each(ALLOC_HEDDLE, s, lane, bytes, count, deadline, h)
               : s->kind == ALLOC_ASYNC ? bench_pairs_each(ALLOC_ASYNC, s, lane, bytes, count, deadline, h)
               : s->kind == ALLOC_PLAIN ? bench_pairs_each(ALLOC_PLAIN, s, lane, bytes, count, deadline, h)
                                        : bench_pairs_each(ALLOC_LIBC, s, lane, bytes, count, deadline, h);
    return bench_end_of(s, code, "pair", error);
}

INLINE int bench_replay(alloc_kind kind, alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots,
                        stats_histogram *h, alloc_replayed *out)
{
    size_t i = 0; /* runs at least once, however late, because a round needs a figure */
    for (; i < log->count && (i % DEADLINE_EVERY || i == 0 || cli_stats_monotonic() < deadline); i++) {
        const alloc_op op = log->ops[i];
        alloc_slot *slot = &slots[op.slot];
        int code;
        uint64_t begin, ticks;
        if (op.bytes) {
            begin = cli_stats_tick_begin();
            code = bench_take(kind, s, op.lane, op.bytes, slot);
            ticks = cli_stats_tick_end() - begin;
            if (code == NO_MEMORY && kind != ALLOC_HEDDLE) {
                slot->pointer = 0;
                out->refused++;
                code = 0;
            }
        } else if (slot->pointer) {
            begin = cli_stats_tick_begin();
            code = bench_give(kind, s, op.lane, slot);
            ticks = cli_stats_tick_end() - begin;
            slot->pointer = 0;
        } else {
            continue; /* the block's allocation was refused */
        }
        if (code != 0) {
            return code;
        }
        cli_stats_record(h, ticks);
        out->ticks += ticks;
    }
    out->operations = i;
    return 0;
}

alloc_end bench_alloc_replay(alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots,
                             stats_histogram *h, alloc_replayed *out, char *error)
{
    memset(out, 0, sizeof(*out));
    int code = s->kind == ALLOC_HEDDLE  ? bench_replay(ALLOC_HEDDLE, s, log, deadline, slots, h, out)
               : s->kind == ALLOC_ASYNC ? bench_replay(ALLOC_ASYNC, s, log, deadline, slots, h, out)
               : s->kind == ALLOC_PLAIN ? bench_replay(ALLOC_PLAIN, s, log, deadline, slots, h, out)
                                        : bench_replay(ALLOC_LIBC, s, log, deadline, slots, h, out);
    return bench_end_of(s, code, "replay", error);
}

/* ---- open and close ---- */

static bool bench_open_heddle(alloc_side *s, const char *settings, char *error)
{
    char all[512];
    snprintf(all, sizeof(all), "%s %s", s->x->settings, settings);
    hd_options options = {.size = sizeof(options), .settings = all};
    if (!cli_report_check(hd_open(&options, &s->runtime), "hd_open", error)) {
        return false;
    }
    for (int i = 0; i < s->lanes; i++) {
        if (!cli_report_check(hd_lane_create(s->runtime, 0, &s->lane[i]), "hd_lane_create", error)) {
            return false;
        }
    }
    hd_memory_stats stats = {.size = sizeof(stats)};
    if (!cli_report_check(hd_memory_get_stats(s->runtime, 0, &stats), "hd_memory_get_stats", error)) {
        return false;
    }
    s->driver_calls_before = stats.driver_calls;
    return true;
}

/* Empties the pool, makes it keep everything, and resets its peaks. */
static bool bench_prepare_pool(alloc_side *s, char *error)
{
    uint64_t everything = UINT64_MAX, zero = 0;
    hdcu_mempool pool = s->x->pool;
    if (!pool) {
        snprintf(error, PLAIN_ERROR, "the driver has no memory pools");
        return false;
    }
    return DRIVER_TRY(s->d, error, cuCtxSynchronize, ()) && DRIVER_TRY(s->d, error, cuMemPoolTrimTo, (pool, 0)) &&
           DRIVER_TRY(s->d, error, cuMemPoolSetAttribute, (pool, HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything)) &&
           DRIVER_TRY(s->d, error, cuMemPoolSetAttribute, (pool, HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero)) &&
           DRIVER_TRY(s->d, error, cuMemPoolSetAttribute, (pool, HDCU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
}

static bool bench_open_rival(alloc_side *s, char *error)
{
    size_t total;
    if (!DRIVER_TRY(s->d, error, cuCtxSetCurrent, (s->x->context)) ||
        (s->kind == ALLOC_ASYNC && !bench_prepare_pool(s, error))) {
        return false;
    }
    for (int i = 0; i < s->lanes; i++) {
        if (!DRIVER_TRY(s->d, error, cuStreamCreate, (&s->stream[i], HDCU_STREAM_NON_BLOCKING))) {
            return false;
        }
    }
    size_t now = 0;
    if (!DRIVER_TRY(s->d, error, cuMemGetInfo, (&now, &total))) {
        return false;
    }
    s->free_before = s->free_least = now;
    return true;
}

bool bench_alloc_side_open(alloc_experiment *x, alloc_kind kind, int lanes, const char *settings, alloc_side *out,
                           char *error)
{
    memset(out, 0, sizeof(*out));
    out->x = x;
    out->d = x->driver;
    out->kind = kind;
    out->lanes = lanes;
    bool ok = kind == ALLOC_LIBC ||
              (kind == ALLOC_HEDDLE ? bench_open_heddle(out, settings, error) : bench_open_rival(out, error));
    if (!ok) {
        bench_alloc_side_close(out);
    }
    return ok;
}

void bench_alloc_side_close(alloc_side *s)
{
    if (!s->x) {
        return;
    }
    hd_close(s->runtime);
    for (int i = 0; i < s->lanes; i++) {
        if (s->stream[i]) {
            s->d->cuStreamSynchronize(s->stream[i]);
            s->d->cuStreamDestroy(s->stream[i]);
        }
    }
    if (s->kind == ALLOC_ASYNC && s->x->pool) {
        s->d->cuCtxSynchronize();
        s->d->cuMemPoolTrimTo(s->x->pool, 0);
    }
    memset(s, 0, sizeof(*s));
}

bool bench_alloc_side_enter(alloc_side *s, char *error)
{
    bool rival = s->kind == ALLOC_ASYNC || s->kind == ALLOC_PLAIN;
    return !rival || DRIVER_TRY(s->d, error, cuCtxSetCurrent, (s->x->context));
}

bool bench_alloc_side_trim(alloc_side *s, char *error)
{
    if (s->kind == ALLOC_HEDDLE) {
        return cli_report_check(hd_memory_trim(s->runtime, 0, 0, NULL), "hd_memory_trim", error);
    }
    return s->kind != ALLOC_ASYNC || DRIVER_TRY(s->d, error, cuMemPoolTrimTo, (s->x->pool, 0));
}

void bench_alloc_side_sample(alloc_side *s)
{
    size_t now = 0, total = 0;
    if (s->kind == ALLOC_PLAIN && s->d->cuMemGetInfo(&now, &total) == HDCU_SUCCESS && now < s->free_least) {
        s->free_least = now;
    }
}

uint64_t bench_alloc_side_peak(alloc_side *s)
{
    hd_memory_stats stats = {.size = sizeof(stats)};
    uint64_t high = 0;
    switch (s->kind) {
    case ALLOC_HEDDLE:
        return hd_memory_get_stats(s->runtime, 0, &stats) == HD_OK ? stats.reserved_peak_bytes : 0;
    case ALLOC_ASYNC:
        s->d->cuMemPoolGetAttribute(s->x->pool, HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high);
        return high;
    case ALLOC_PLAIN:
        return s->free_before - s->free_least;
    default:
        return 0;
    }
}

uint64_t bench_alloc_side_driver_calls(alloc_side *s, uint64_t operations)
{
    hd_memory_stats stats = {.size = sizeof(stats)};
    if (s->kind == ALLOC_HEDDLE) {
        return hd_memory_get_stats(s->runtime, 0, &stats) == HD_OK ? stats.driver_calls - s->driver_calls_before : 0;
    }
    return s->kind == ALLOC_LIBC ? 0 : operations;
}

bool bench_alloc_wait(alloc_side *s, uint32_t lane, char *error)
{
    if (s->kind == ALLOC_HEDDLE) {
        return cli_report_check(hd_lane_wait(s->lane[lane], ALLOC_TIMEOUT_NS), "hd_lane_wait", error);
    }
    return s->kind == ALLOC_LIBC || DRIVER_TRY(s->d, error, cuStreamSynchronize, (s->stream[lane]));
}

bool bench_alloc_is_busy(alloc_side *s, uint32_t lane)
{
    if (s->kind == ALLOC_HEDDLE) {
        return hd_lane_wait(s->lane[lane], 0) == HD_ERROR_TIMEOUT;
    }
    return s->kind != ALLOC_LIBC && s->d->cuStreamQuery(s->stream[lane]) == HDCU_ERROR_NOT_READY;
}
