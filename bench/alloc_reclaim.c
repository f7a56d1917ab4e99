/* alloc_reclaim.c - a training loop in which only a garbage collector frees dropped memory: early,
 * or at the limit.
 *
 * The loop runs batches through a dense layer, its gradient, and averages of the gradient that the
 * weights follow. Every step makes new buffers for everything, as programs in garbage-collected
 * languages do. It drops the buffers of the step before, and reads its own result at the end. The
 * second average has no squares, because no built-in kernel multiplies elements; only the
 * allocations matter here. The collector marks all objects that can be reached from the loop's
 * variables and from a heap of other objects. As in such programs, the heap causes most of the
 * collector's work. Then the collector frees the buffers of unmarked objects. Both ways run the
 * same loop with the same collector; only the option memory_reclaim differs.
 *
 * Threads: the conductor, which also runs the reclaim callback. Locks: none.
 * Always: only the collector frees a buffer, except at the end. The final weights are the same in
 * every run, bit for bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum {
    FRAME = 16, /* variables of a step */
    STATE = 3,  /* weights, first and second average */
    STEPS_LEAST = 40,
    STEPS_MOST = 400,
    STEPS_TRIED = 6,
    AXPY_BLOCK = 256
};

static const float beta1 = 0.9f, beta2 = 0.999f;

/* An object of the program's heap; some own a buffer. */
typedef struct object {
    struct object *links[2];
    uint32_t mark;
    hd_buffer *buffer;
    uint64_t bytes;
} object;

typedef struct loop {
    alloc_side side;
    alloc_kernels kernels;
    uint32_t batch, width; /* the layer is width x width */
    float rate;
    hd_buffer *data, *data_across, *targets;
    object *heap, **stack;
    uint32_t heap_count, mark;
    object *state[STATE], *frame[FRAME];
    int n_frame;
    object **all; /* objects with buffers, including dropped ones */
    size_t n_all, room;
    uint64_t live, live_peak;
    uint64_t longest_alloc, longest_step, marking, collecting; /* ns */
    uint64_t collections, early, at_limit;
    hd_ticket last;
} loop;

/* ---- collector ---- */

static void bench_push(loop *l, size_t *depth, object *o)
{
    if (o && o->mark != l->mark) {
        o->mark = l->mark;
        l->stack[(*depth)++] = o;
    }
}

static void bench_mark_all(loop *l)
{
    size_t depth = 0;
    l->mark++;
    bench_push(l, &depth, &l->heap[0]);
    for (int i = 0; i < STATE; i++) {
        bench_push(l, &depth, l->state[i]);
    }
    for (int i = 0; i < l->n_frame; i++) {
        bench_push(l, &depth, l->frame[i]);
    }
    while (depth) {
        object *o = l->stack[--depth];
        bench_push(l, &depth, o->links[0]);
        bench_push(l, &depth, o->links[1]);
    }
}

static bool bench_collect(loop *l)
{
    uint64_t begin = cli_stats_monotonic();
    bench_mark_all(l);
    uint64_t marked = cli_stats_monotonic();
    size_t kept = 0, n = l->n_all;
    for (size_t i = 0; i < n; i++) {
        object *o = l->all[i];
        if (o->mark == l->mark) {
            l->all[kept++] = o;
            continue;
        }
        l->live -= o->bytes;
        hd_free(o->buffer);
        free(o);
    }
    l->n_all = kept;
    l->collections++;
    l->marking += marked - begin;
    l->collecting += cli_stats_monotonic() - begin;
    return kept < n;
}

static bool bench_on_reclaim(void *context, const hd_reclaim *reclaim)
{
    loop *l = context;
    l->early += reclaim->reason == HD_RECLAIM_EARLY;
    l->at_limit += reclaim->reason == HD_RECLAIM_LIMIT;
    return bench_collect(l);
}

/* Every object can be reached from the first one, in an order unrelated to their addresses. */
static bool bench_make_heap(loop *l, uint32_t count)
{
    l->heap_count = count;
    l->heap = calloc(count, sizeof(*l->heap));
    l->stack = malloc((count + 4096) * sizeof(*l->stack));
    uint32_t *order = malloc(count * sizeof(*order));
    bool ok = l->heap && l->stack && order;
    uint64_t random = 1;
    for (uint32_t i = 0; i < count && ok; i++) {
        order[i] = i;
    }
    for (uint32_t i = count - 1; i > 1 && ok; i--) { /* the first stays first */
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t other = 1 + (uint32_t)((random >> 33) % i), swapped = order[i];
        order[i] = order[other];
        order[other] = swapped;
    }
    for (uint32_t i = 0; i < count && ok; i++) {
        object *o = &l->heap[order[i]];
        for (uint32_t k = 0; k < 2; k++) {
            o->links[k] = 2 * i + 1 + k < count ? &l->heap[order[2 * i + 1 + k]] : NULL;
        }
    }
    free(order);
    return ok;
}

/* ---- loop ---- */

/* A new buffer, a variable of this step. NULL on failure. */
static object *bench_make(loop *l, uint64_t floats, char *error)
{
    if (l->n_all == l->room) {
        size_t room = l->room ? 2 * l->room : 256;
        object **all = realloc(l->all, room * sizeof(object *));
        l->all = all ? all : l->all;
        l->room = all ? room : l->room;
    }
    object *o = l->n_all < l->room && l->n_frame < FRAME ? calloc(1, sizeof(*o)) : NULL;
    if (!o) {
        snprintf(error, PLAIN_ERROR, "out of memory for the loop's objects");
        return NULL;
    }
    o->bytes = sizeof(float) * floats;
    uint64_t begin = cli_stats_monotonic();
    hd_status status = hd_alloc(l->side.lane[0], o->bytes, &o->buffer);
    uint64_t took = cli_stats_monotonic() - begin;
    if (status != HD_OK) {
        cli_report_check(status, "hd_alloc", error);
        free(o);
        return NULL;
    }
    l->longest_alloc = took > l->longest_alloc ? took : l->longest_alloc;
    l->live += o->bytes;
    l->live_peak = l->live > l->live_peak ? l->live : l->live_peak;
    l->all[l->n_all++] = o;
    l->frame[l->n_frame++] = o;
    return o;
}

static bool bench_copy(loop *l, const object *to, hd_buffer *from, char *error)
{
    return alloc_launch_copy(&l->kernels, 0, (alloc_slot){.buffer = to->buffer}, (alloc_slot){.buffer = from},
                             to->bytes / sizeof(float), error);
}

/* y += a x */
static bool bench_add(loop *l, const object *y, hd_buffer *x, float a, char *error)
{
    uint64_t n = y->bytes / sizeof(float);
    const hd_arg arguments[4] = {hd_inout(y->buffer), hd_in(x), hd_f32(a), hd_u64(n)};
    hd_dims grid = {(uint32_t)((n + AXPY_BLOCK - 1) / AXPY_BLOCK), 1, 1}, block = {AXPY_BLOCK, 1, 1};
    hd_status status = hd_launch(l->side.lane[0], l->kernels.axpy, grid, block, 0, arguments, 4, &l->last);
    return cli_report_check(status, "hd_launch", error);
}

static bool bench_multiply(loop *l, const object *c, const object *a, const object *b, uint32_t m, uint32_t depth,
                           char *error)
{
    return alloc_launch_matmul(&l->kernels, 0, (alloc_slot){.buffer = c->buffer}, (alloc_slot){.buffer = a->buffer},
                               (alloc_slot){.buffer = b->buffer}, m, l->width, depth, error);
}

/* The next value of an average: share * old + (1 - share) * gradient, in a new buffer. */
static object *bench_follow(loop *l, const object *old, const object *gradient, float share, char *error)
{
    object *next = bench_make(l, old->bytes / sizeof(float), error);
    bool ok = next && bench_copy(l, next, old->buffer, error) && bench_add(l, next, old->buffer, share - 1, error) &&
              bench_add(l, next, gradient->buffer, 1 - share, error);
    return ok ? next : NULL;
}

static object *bench_gradient_of(loop *l, char *error)
{
    uint64_t of_batch = (uint64_t)l->batch * l->width, of_layer = (uint64_t)l->width * l->width;
    object *x = bench_make(l, of_batch, error), *y, *e, *across, *g;
    if (!x || !bench_copy(l, x, l->data, error) || !(y = bench_make(l, of_batch, error)) ||
        !bench_multiply(l, y, x, l->state[0], l->batch, l->width, error)) {
        return NULL;
    }
    if (!(e = bench_make(l, of_batch, error)) || !bench_copy(l, e, y->buffer, error) ||
        !bench_add(l, e, l->targets, -1, error)) {
        return NULL;
    }
    if (!(across = bench_make(l, of_batch, error)) || !bench_copy(l, across, l->data_across, error) ||
        !(g = bench_make(l, of_layer, error)) || !bench_multiply(l, g, across, e, l->width, l->batch, error)) {
        return NULL;
    }
    return g;
}

static bool bench_run_step(loop *l, char *error)
{
    uint64_t begin = cli_stats_monotonic(), of_layer = (uint64_t)l->width * l->width;
    object *g = bench_gradient_of(l, error);
    object *m = g ? bench_follow(l, l->state[1], g, beta1, error) : NULL;
    object *v = m ? bench_follow(l, l->state[2], g, beta2, error) : NULL;
    object *u = v ? bench_make(l, of_layer, error) : NULL;
    if (!u || !bench_copy(l, u, m->buffer, error) || !bench_add(l, u, v->buffer, -0.1f, error)) {
        return false;
    }
    object *w = bench_make(l, of_layer, error);
    if (!w || !bench_copy(l, w, l->state[0]->buffer, error) || !bench_add(l, w, u->buffer, -l->rate, error)) {
        return false;
    }
    l->state[0] = w;
    l->state[1] = m;
    l->state[2] = v;
    l->n_frame = 0; /* ends all other variables, so their buffers become garbage */
    /* the program reads each step's result */
    bool ok = cli_report_check(hd_wait(l->last, ALLOC_TIMEOUT_NS), "hd_wait", error);
    uint64_t took = cli_stats_monotonic() - begin;
    l->longest_step = took > l->longest_step ? took : l->longest_step;
    return ok;
}

/* ---- runs ---- */

static void bench_make_numbers(float *out, uint64_t n, uint64_t random)
{
    for (uint64_t i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        out[i] = (float)(int32_t)(random >> 32) * 0x1p-31f;
    }
}

static bool bench_upload(loop *l, const float *numbers, uint64_t n, hd_buffer **out, char *error)
{
    return cli_report_check(hd_alloc(l->side.lane[0], sizeof(float) * n, out), "hd_alloc", error) &&
           cli_report_check(hd_write(*out, 0, numbers, sizeof(float) * n), "hd_write", error);
}

static bool bench_make_state(loop *l, const float *numbers, char *error)
{
    uint64_t of_layer = (uint64_t)l->width * l->width;
    for (int i = 0; i < STATE; i++) {
        object *o = bench_make(l, of_layer, error);
        if (!o || !cli_report_check(i == 0 ? hd_write(o->buffer, 0, numbers, o->bytes)
                                           : hd_fill(o->buffer, 0, 0, o->bytes, NULL),
                                    "hd_write", error)) {
            return false;
        }
        l->state[i] = o;
    }
    l->n_frame = 0;
    return true;
}

static bool bench_open_loop(alloc_experiment *x, const alloc_reclaim *plan, bool early, loop *l, char *error)
{
    char settings[96];
    memset(l, 0, sizeof(*l));
    l->batch = plan->batch;
    l->width = plan->width;
    l->rate = 0.01f / (float)l->batch;
    snprintf(settings, sizeof(settings), "memory_limit=%llu memory_reclaim=%d", (unsigned long long)plan->limit,
             early ? 5 : 0);
    uint64_t of_batch = (uint64_t)l->batch * l->width;
    float *numbers = malloc(sizeof(float) * of_batch), *across = malloc(sizeof(float) * of_batch);
    bool ok = numbers && across && bench_make_heap(l, (uint32_t)plan->objects);
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "out of memory for the loop");
    } else {
        bench_make_numbers(numbers, of_batch, 1);
        for (uint32_t i = 0; i < l->batch; i++) {
            for (uint32_t k = 0; k < l->width; k++) {
                across[(uint64_t)k * l->batch + i] = numbers[(uint64_t)i * l->width + k];
            }
        }
        ok = bench_alloc_side_open(x, ALLOC_HEDDLE, 1, settings, &l->side, error) &&
             alloc_kernels_open(&l->side, &l->kernels, error) && bench_upload(l, numbers, of_batch, &l->data, error) &&
             bench_upload(l, across, of_batch, &l->data_across, error);
        bench_make_numbers(numbers, of_batch, 2);
        ok =
            ok && bench_upload(l, numbers, of_batch, &l->targets, error) && bench_make_state(l, numbers, error) &&
            cli_report_check(hd_memory_on_reclaim(l->side.runtime, bench_on_reclaim, l), "hd_memory_on_reclaim", error);
    }
    free(numbers);
    free(across);
    return ok;
}

static void bench_close_loop(loop *l)
{
    if (l->side.x) {
        hd_memory_on_reclaim(l->side.runtime, NULL, NULL);
    }
    for (size_t i = 0; i < l->n_all; i++) {
        hd_free(l->all[i]->buffer);
        free(l->all[i]);
    }
    hd_free(l->data);
    hd_free(l->data_across);
    hd_free(l->targets);
    alloc_kernels_close(&l->kernels);
    bench_alloc_side_close(&l->side);
    free(l->all);
    free(l->heap);
    free(l->stack);
}

/* Checks the final weights. Those of the first run become the reference. */
static bool bench_check_weights(loop *l, float **reference, char *error)
{
    uint64_t bytes = l->state[0]->bytes, n = bytes / sizeof(float);
    float *weights = malloc(bytes);
    bool ok = weights && cli_report_check(hd_read(l->state[0]->buffer, 0, weights, bytes), "hd_read", error);
    if (!weights) {
        snprintf(error, PLAIN_ERROR, "out of memory for the weights");
    }
    for (uint64_t i = 0; i < n && ok; i++) {
        ok = isfinite(weights[i]) && (!*reference || weights[i] == (*reference)[i]);
        if (!ok) {
            snprintf(error, PLAIN_ERROR, "the weights of two runs of the same loop differ: element %llu is %g and %g",
                     (unsigned long long)i, (double)weights[i], *reference ? (double)(*reference)[i] : NAN);
        }
    }
    l->side.x->results += ok;
    if (ok && !*reference) {
        *reference = weights;
    } else {
        free(weights);
    }
    return ok;
}

static bool bench_take_results(const loop *l, double total_s, alloc_reclaim_run *out, char *error)
{
    hd_memory_stats stats = {.size = sizeof(stats)};
    if (!cli_report_check(hd_memory_get_stats(l->side.runtime, 0, &stats), "hd_memory_get_stats", error)) {
        return false;
    }
    double each = l->collections ? (double)l->marking / (double)l->collections : 0;
    *out = (alloc_reclaim_run){.total_s = total_s,
                               .longest_alloc_ms = (double)l->longest_alloc * 1e-6,
                               .longest_step_ms = (double)l->longest_step * 1e-6,
                               .mark_ms = each * 1e-6,
                               .collect_s = (double)l->collecting * 1e-9,
                               .reserved_peak = stats.reserved_peak_bytes,
                               .live_peak = l->live_peak,
                               .early = l->early,
                               .at_limit = l->at_limit};
    return true;
}

static bool bench_run_loop(alloc_experiment *x, const alloc_reclaim *plan, int steps, bool early, float **reference,
                           alloc_reclaim_run *out, char *error)
{
    loop l;
    bool ok = bench_open_loop(x, plan, early, &l, error);
    uint64_t begin = cli_stats_monotonic();
    for (int i = 0; i < steps && ok; i++) {
        ok = bench_run_step(&l, error);
    }
    double total_s = (double)(cli_stats_monotonic() - begin) * 1e-9;
    ok = ok && bench_take_results(&l, total_s, out, error) && (!reference || bench_check_weights(&l, reference, error));
    if (ok && out->reserved_peak > plan->limit) {
        snprintf(error, PLAIN_ERROR, "the limit of %llu bytes was exceeded: %llu were held",
                 (unsigned long long)plan->limit, (unsigned long long)out->reserved_peak);
        ok = false;
    }
    bench_close_loop(&l);
    return ok;
}

static bool bench_run_both(alloc_experiment *x, alloc_reclaim *r, int round, float **reference, char *error)
{
    for (int i = 0; i < 2; i++) {
        bool early = (i + round) % 2 != 0;
        if (!bench_run_loop(x, r, r->steps, early, reference, early ? &r->early[round] : &r->at_limit[round], error)) {
            return false;
        }
    }
    r->rounds = round + 1;
    return true;
}

/* a: the limit in bytes, b: the time of a run in milliseconds */
bool bench_alloc_run_reclaim(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_reclaim *r = &x->reclaim;
    alloc_reclaim_run tried = {.total_s = 0};
    float *reference = NULL;
    uint64_t batch = !x->on_host ? 4096 : x->options->quick ? 256 : 1024, width = x->on_host ? 64 : 2048;
    *r = (alloc_reclaim){.limit = step->a,
                         .batch = (uint32_t)batch,
                         .width = (uint32_t)width,
                         .objects = x->on_host ? 60000 : 300000,
                         .garbage_per_step = sizeof(float) * (4 * batch * width + 5 * width * width)};
    /* the time of a step determines the number of steps, which must reach the limit several
     * times */
    if (!bench_run_loop(x, r, STEPS_TRIED, false, NULL, &tried, error)) {
        return false;
    }
    double steps = (double)step->b * 1e-3 * STEPS_TRIED / tried.total_s;
    int least = (int)(3 * r->limit / r->garbage_per_step);
    r->steps = steps < STEPS_LEAST ? STEPS_LEAST : steps > STEPS_MOST ? STEPS_MOST : (int)steps;
    r->steps = r->steps < least ? least : r->steps;
    bool ok = true;
    for (int round = 0; round < x->rounds && ok; round++) {
        ok = bench_run_both(x, r, round, &reference, error);
    }
    free(reference);
    return ok;
}
