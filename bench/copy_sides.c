/* copy_sides.c - one transfer through Heddle or with the matching driver call, and the loop that
 * compares the two.
 *
 * Threads: the conductor, and the threads of copy_submit.c with their own work. Locks: none.
 * Always: when a measurement returns, everything that it began is done.
 */
#include <string.h>
#include "bench/copy_parts.h"

enum { FLIGHT_MOST = 128, TRIPS_MOST = 20000, TRIPS_LEAST = 20 };

/* ---- one side ---- */

static bool bench_begin_box(copy_work *w, char *error)
{
    const hd_box box = {.size = sizeof(box),
                        .row = w->row,
                        .dims = 1,
                        .count = {w->bytes / w->row},
                        .dst_stride = {w->row},
                        .src_stride = {w->pitch}};
    return cli_report_check(hd_copy_box(w->to, 0, w->from, 0, &box, &w->ticket), "hd_copy_box", error);
}

bool bench_copy_begin_heddle(copy_work *w, char *error)
{
    if (w->row) {
        return bench_begin_box(w, error);
    }
    switch (w->op) {
    case COPY_WRITE:
        return cli_report_check(hd_write(w->to, 0, w->memory, w->bytes), "hd_write", error);
    case COPY_READ:
        return cli_report_check(hd_read(w->from, 0, w->memory, w->bytes), "hd_read", error);
    default:
        return cli_report_check(hd_copy(w->to, 0, w->from, 0, w->bytes, &w->ticket), "hd_copy", error);
    }
}

bool bench_copy_end_heddle(copy_work *w, char *error)
{
    switch (w->op) {
    case COPY_WRITE:
        return cli_report_check(hd_buffer_wait(w->to, HD_READ, COPY_TIMEOUT_NS), "hd_buffer_wait", error);
    case COPY_READ:
        return true;
    default:
        return cli_report_check(hd_wait(w->ticket, COPY_TIMEOUT_NS), "hd_wait", error);
    }
}

static bool bench_begin_2d(copy_work *w, char *error)
{
    bool in = w->op == COPY_IN;
    const hdcu_memcpy2d rows = {.src_type = in ? HDCU_MEMORYTYPE_HOST : HDCU_MEMORYTYPE_DEVICE,
                                .src_host = in ? (const void *)(uintptr_t)w->src : NULL,
                                .src_device = in ? 0 : w->src,
                                .src_pitch = w->pitch,
                                .dst_type = HDCU_MEMORYTYPE_DEVICE,
                                .dst_device = w->dst,
                                .dst_pitch = w->row,
                                .row_bytes = w->row,
                                .rows = w->bytes / w->row};
    return DRIVER_TRY(w->x->driver, error, cuMemcpy2DAsync, (&rows, w->at->stream));
}

bool bench_copy_begin_driver(copy_work *w, char *error)
{
    const hdi_driver *d = w->x->driver;
    if (w->row) {
        return bench_begin_2d(w, error);
    }
    void *pinned_dst = (void *)(uintptr_t)w->dst, *pinned_src = (void *)(uintptr_t)w->src;
    switch (w->op) {
    case COPY_WRITE:
        return DRIVER_TRY(d, error, cuMemcpyHtoD, (w->dst, w->memory, w->bytes));
    case COPY_READ:
        return DRIVER_TRY(d, error, cuMemcpyDtoH, (w->memory, w->src, w->bytes));
    case COPY_IN:
        return DRIVER_TRY(d, error, cuMemcpyHtoDAsync, (w->dst, pinned_src, w->bytes, w->at->stream));
    case COPY_OUT:
        return DRIVER_TRY(d, error, cuMemcpyDtoHAsync, (pinned_dst, w->src, w->bytes, w->at->stream));
    case COPY_ON:
        return DRIVER_TRY(d, error, cuMemcpyDtoDAsync, (w->dst, w->src, w->bytes, w->at->stream));
    case COPY_PEER:
        return DRIVER_TRY(d, error, cuMemcpyPeerAsync,
                          (w->dst, w->dst_at->context, w->src, w->src_at->context, w->bytes, w->at->stream));
    }
    return false;
}

bool bench_copy_end_driver(copy_work *w, char *error)
{
    /* cuMemcpyHtoD may return before the last bytes arrive */
    hdcu_stream stream = w->op == COPY_WRITE ? NULL : w->at->stream;
    return w->op == COPY_READ || DRIVER_TRY(w->x->driver, error, cuStreamSynchronize, (stream));
}

/* ---- the loops ---- */

typedef bool (*work_step)(copy_work *w, char *error);

typedef struct side {
    work_step begin, end;
    uint64_t repetitions; /* per sample */
} side;

enum { HEDDLE, DRIVER, SIDES };
static const side both_sides[SIDES] = {{bench_copy_begin_heddle, bench_copy_end_heddle, 1},
                                       {bench_copy_begin_driver, bench_copy_end_driver, 1}};

/* Prepares the driver's side on this thread. */
static bool bench_enter(const copy_work *w, int which, char *error)
{
    return which == HEDDLE || DRIVER_TRY(w->x->driver, error, cuCtxSetCurrent, (w->at->context));
}

/* Times `count` works at once, with several repetitions in flight: nanoseconds for one repetition
 * of all. */
static bool bench_time_flight(const side *s, copy_work *works, int count, double *ns, char *error)
{
    uint64_t begin = cli_stats_monotonic(), done = 0;
    while (done < s->repetitions) {
        uint64_t n = s->repetitions - done < FLIGHT_MOST ? s->repetitions - done : FLIGHT_MOST;
        for (uint64_t i = 0; i < n; i++) {
            for (int w = 0; w < count; w++) {
                if (!s->begin(&works[w], error)) {
                    return false;
                }
            }
        }
        for (int w = 0; w < count; w++) {
            if (!s->end(&works[w], error)) {
                return false;
            }
        }
        done += n;
    }
    *ns = (double)(cli_stats_monotonic() - begin) / (double)s->repetitions;
    return true;
}

/* Times one operation after another, each with its wait, and takes the median. */
static bool bench_time_trips(const side *s, copy_work *w, double *ns, char *error)
{
    static stats_histogram h; /* not reentrant */
    memset(&h, 0, sizeof(h));
    for (uint64_t i = 0; i < s->repetitions; i++) {
        uint64_t tick = cli_stats_tick_begin();
        bool ok = s->begin(w, error) && s->end(w, error);
        cli_stats_record(&h, cli_stats_tick_end() - tick);
        if (!ok) {
            return false;
        }
    }
    *ns = cli_stats_summarise(&h).median_ns;
    return true;
}

static bool bench_time_side(int which, const side *s, copy_kind kind, copy_work *works, int count, double *ns,
                            char *error)
{
    return bench_enter(works, which, error) &&
           (kind == COPY_TIME ? bench_time_trips(s, works, ns, error) : bench_time_flight(s, works, count, ns, error));
}

/* Warms up, and finds the number of repetitions in a sample. */
static bool bench_size_sample(const copy_experiment *x, int which, side *s, copy_kind kind, copy_work *works, int count,
                              char *error)
{
    double ns = 0;
    s->repetitions = kind == COPY_TIME ? TRIPS_LEAST : 1;
    /* the first repetition maps and pins memory, and starts threads */
    for (int i = 0; i < 3; i++) {
        if (!bench_time_side(which, s, kind, works, count, &ns, error)) {
            return false;
        }
    }
    double fit = x->slice_ns / (ns > 1 ? ns : 1);
    uint64_t least = kind == COPY_TIME ? TRIPS_LEAST : 1;
    s->repetitions = fit < (double)least ? least : fit > TRIPS_MOST ? TRIPS_MOST : (uint64_t)fit;
    return true;
}

static bool bench_compare(copy_experiment *x, copy_row *row, copy_work *works, int count, char *error)
{
    side sides[SIDES], one[SIDES];
    for (int which = 0; which < SIDES; which++) {
        sides[which] = one[which] = both_sides[which];
        if (!bench_size_sample(x, which, &sides[which], row->kind, works, count, error) ||
            (count > 1 && !bench_size_sample(x, which, &one[which], row->kind, works, 1, error))) {
            return false;
        }
    }
    for (int round = 0; round < x->rounds; round++) {
        for (int i = 0; i < SIDES; i++) {
            int which = (i + round) % SIDES;
            double ns = 0, alone = 0;
            if ((count > 1 && !bench_time_side(which, &one[which], row->kind, works, 1, &alone, error)) ||
                !bench_time_side(which, &sides[which], row->kind, works, count, &ns, error)) {
                return false;
            }
            (which == HEDDLE ? row->heddle_ns : row->driver_ns)[round] = ns;
            (which == HEDDLE ? row->heddle_gain : row->driver_gain)[round] = count * alone / ns;
        }
        row->rounds = round + 1;
    }
    return true;
}

bool bench_copy_compare(copy_experiment *x, copy_row *row, copy_work *work, char *error)
{
    return bench_compare(x, row, work, 1, error);
}

bool bench_copy_compare_both(copy_experiment *x, copy_row *row, copy_work work[2], char *error)
{
    return bench_compare(x, row, work, 2, error);
}

stats_spread bench_copy_ratio(const copy_row *row)
{
    double values[COPY_ROUNDS_MAX];
    for (int i = 0; i < row->rounds; i++) {
        double driver = row->driver_ns[i], heddle = row->heddle_ns[i];
        values[i] = row->kind == COPY_SPEED ? driver / heddle : heddle / driver;
    }
    return cli_stats_spread_of(values, row->rounds);
}

/* ---- verification ---- */

static uint32_t bench_word_at(size_t i, uint32_t seed)
{
    uint32_t v = ((uint32_t)i ^ (uint32_t)(i >> 32)) * 2654435761u + seed * 40503u;
    return v ^ v >> 15;
}

void bench_copy_pattern(void *memory, size_t bytes, uint32_t seed)
{
    uint32_t *words = memory;
    for (size_t i = 0; i < bytes / 4; i++) {
        words[i] = bench_word_at(i, seed);
    }
}

bool bench_copy_verify_rows(copy_experiment *x, const void *memory, const copy_work *w, uint32_t seed, const char *what,
                            char *error)
{
    const uint32_t *words = memory;
    for (size_t i = 0; i < w->bytes / 4; i++) {
        size_t at = i * 4 / w->row * w->pitch / 4 + i % (w->row / 4);
        if (words[i] != bench_word_at(at, seed)) {
            snprintf(error, PLAIN_ERROR, "%s: word %zu is %08x and not %08x", what, i, words[i],
                     bench_word_at(at, seed));
            return false;
        }
    }
    x->verified += w->bytes;
    return true;
}

bool bench_copy_verify(copy_experiment *x, const void *memory, size_t bytes, uint32_t seed, const char *what,
                       char *error)
{
    const copy_work one_row = {.bytes = bytes, .row = bytes, .pitch = bytes};
    return bench_copy_verify_rows(x, memory, &one_row, seed, what, error);
}

bool bench_copy_verify_buffer(copy_experiment *x, hd_buffer *buffer, size_t bytes, uint32_t seed, const char *what,
                              char *error)
{
    memset(x->to, 0, bytes);
    return cli_report_check(hd_read(buffer, 0, x->to, bytes), "hd_read", error) &&
           bench_copy_verify(x, x->to, bytes, seed, what, error);
}

bool bench_copy_verify_plain(copy_experiment *x, hdcu_deviceptr at, size_t bytes, uint32_t seed, const char *what,
                             char *error)
{
    memset(x->to, 0, bytes);
    return DRIVER_TRY(x->driver, error, cuMemcpyDtoH, (x->to, at, bytes)) &&
           bench_copy_verify(x, x->to, bytes, seed, what, error);
}
