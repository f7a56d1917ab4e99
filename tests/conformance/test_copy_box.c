/* test_copy_box.c - hd_copy_box, hd_write_box and hd_read_box against a model in the program's memory: random boxes and large ones between
 * all places, bytes between the rows, what is refused, failures, threads that share a buffer's columns.
 *
 * Threads: up to 6. Locks: none.
 */
#include "places.h"

#include <pthread.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- models ---- */

/* Calls `row(context, destination's offset, source's offset)` for every row of a box. */
static void each_row(const hd_box *box, void (*row)(void *context, size_t dst, size_t src), void *context)
{
    size_t index[HD_BOX_DIMS] = {0};
    bool any = box->row != 0;
    for (int k = 0; k < box->dims; k++) {
        any = any && box->count[k] != 0;
    }
    while (any) {
        size_t dst = 0, src = 0;
        for (int k = 0; k < box->dims; k++) {
            dst += index[k] * box->dst_stride[k];
            src += index[k] * box->src_stride[k];
        }
        row(context, dst, src);
        int k = 0;
        while (k < box->dims && ++index[k] == box->count[k]) {
            index[k++] = 0;
        }
        any = k < box->dims;
    }
}

typedef struct model {
    uint8_t *dst;
    const uint8_t *src;
    size_t row;
    size_t dst_end, src_end;
} model;

static void copy_row(void *context, size_t dst, size_t src)
{
    const model *m = context;
    memcpy(m->dst + dst, m->src + src, m->row);
}

/* The box as the definition says. `src` must not change by it. */
static void model_copy(const hd_box *box, uint8_t *dst, const uint8_t *src)
{
    model m = {.dst = dst, .src = src, .row = box->row};
    each_row(box, copy_row, &m);
}

static void widen(void *context, size_t dst, size_t src)
{
    model *m = context;
    m->dst_end = dst + m->row > m->dst_end ? dst + m->row : m->dst_end;
    m->src_end = src + m->row > m->src_end ? src + m->row : m->src_end;
}

/* Bytes from the first to behind the last one of both sides. */
static void spans(const hd_box *box, size_t *dst, size_t *src)
{
    model m = {.row = box->row};
    each_row(box, widen, &m);
    *dst = m.dst_end;
    *src = m.src_end;
}

static void mark_dst(void *context, size_t dst, size_t src)
{
    const model *m = context;
    (void)src;
    memset(m->dst + dst, 1, m->row);
}

static void meet_src(void *context, size_t dst, size_t src)
{
    model *m = context;
    (void)dst;
    for (size_t i = 0; i < m->row; i++) {
        m->dst_end |= m->src[src + i];
    }
}

/* Whether source and destination in one buffer have a byte in common. */
static bool sides_meet(const hd_box *box, size_t dst_offset, size_t src_offset, size_t all)
{
    uint8_t *map = conf_memory(all);
    memset(map, 0, all);
    model m = {.dst = map + dst_offset, .src = map + src_offset, .row = box->row};
    each_row(box, mark_dst, &m);
    each_row(box, meet_src, &m);
    free(map);
    return m.dst_end != 0;
}

static hd_box box_of(size_t row, int dims, const size_t *count, const size_t *dst, const size_t *src)
{
    hd_box box = {.size = sizeof box, .row = row, .dims = dims};
    for (int k = 0; k < dims; k++) {
        box.count[k] = count[k];
        box.dst_stride[k] = dst[k];
        box.src_stride[k] = src[k];
    }
    return box;
}

/* Rows of a matrix with these pitches. */
static hd_box matrix(size_t row, size_t rows, size_t dst_pitch, size_t src_pitch)
{
    return box_of(row, 1, &rows, &dst_pitch, &src_pitch);
}

/* ---- random boxes ---- */

/* At most `most` bytes on both sides; *same: with the same strides there. */
static hd_box random_box(conf_random *r, size_t most, bool same)
{
    for (;;) {
        hd_box box = {.size = sizeof box, .dims = (int)conf_below(r, HD_BOX_DIMS + 1)};
        box.row = 1 + conf_below(r, conf_chance(r, 50) ? 8 : conf_chance(r, 70) ? 300 : 70000);
        size_t dst_span = box.row, src_span = box.row;
        for (int k = 0; k < box.dims; k++) {
            box.count[k] = 1 + conf_below(r, conf_chance(r, 80) ? 6 : 60);
            box.dst_stride[k] = dst_span + (conf_chance(r, 50) ? 0 : conf_below(r, 2 * dst_span));
            box.src_stride[k] = same                 ? box.dst_stride[k]
                                : conf_chance(r, 40) ? src_span
                                : conf_chance(r, 85) ? conf_below(r, 3 * src_span)
                                                     : 0;
            dst_span += (box.count[k] - 1) * box.dst_stride[k];
            src_span += (box.count[k] - 1) * box.src_stride[k];
        }
        if (dst_span <= most && src_span <= most) {
            return box;
        }
    }
}

enum { n_buffers = PLACES + 2, arena_bytes = 3 << 20 };

typedef struct arena {
    hd_runtime *runtime;
    hd_buffer *buffer[n_buffers];
    uint8_t *model[n_buffers];
    uint8_t *memory, *expected; /* the program's */
} arena;

static arena arena_open(const char *settings, conf_random *r)
{
    arena a = {
        .runtime = conf_open(settings), .memory = conf_memory(arena_bytes), .expected = conf_memory(arena_bytes)};
    for (int i = 0; i < n_buffers; i++) {
        a.buffer[i] = place_alloc(a.runtime, (place)(i % PLACES), arena_bytes);
        a.model[i] = conf_memory(arena_bytes);
        conf_pattern(a.model[i], arena_bytes, conf_next(r));
        CONF_OK(hd_write(a.buffer[i], 0, a.model[i], arena_bytes));
    }
    return a;
}

static void arena_close(arena *a)
{
    for (int i = 0; i < n_buffers; i++) {
        CONF_HOLDS(a->buffer[i], 0, a->model[i], arena_bytes);
        hd_free(a->buffer[i]);
        free(a->model[i]);
    }
    free(a->memory);
    free(a->expected);
    conf_close(a->runtime);
}

static void random_copy(arena *a, conf_random *r)
{
    size_t most = conf_chance(r, 80) ? 100000 : arena_bytes;
    bool same = conf_chance(r, 40);
    hd_box box = random_box(r, most, same);
    size_t dst_span, src_span;
    spans(&box, &dst_span, &src_span);
    size_t d = conf_below(r, n_buffers), f = conf_chance(r, 30) ? d : conf_below(r, n_buffers);
    size_t to = conf_below(r, arena_bytes - dst_span + 1), from = conf_below(r, arena_bytes - src_span + 1);
    if (d == f && conf_chance(r, 70)) { /* near each other, or in between */
        from = to + conf_below(r, dst_span + 10);
        from = from + src_span > arena_bytes ? arena_bytes - src_span : from;
    }
    hd_status status = hd_copy_box(a->buffer[d], to, a->buffer[f], from, &box, NULL);
    if (d == f) {
        bool meet = sides_meet(&box, to, from, arena_bytes);
        bool apart = to + dst_span <= from || from + src_span <= to;
        if (meet || (status != HD_OK && !apart && !same)) { /* careful where strides differ */
            CONF_FAILS_WITH(status, HD_ERROR_ARGUMENT, "overlap");
            return;
        }
    }
    CONF_OK(status);
    memcpy(a->expected, a->model[f], arena_bytes);
    model_copy(&box, a->model[d] + to, a->expected + from);
}

static void random_write(arena *a, conf_random *r)
{
    hd_box box = random_box(r, conf_chance(r, 80) ? 100000 : arena_bytes, conf_chance(r, 20));
    size_t dst_span, src_span, d = conf_below(r, n_buffers);
    spans(&box, &dst_span, &src_span);
    size_t to = conf_below(r, arena_bytes - dst_span + 1);
    conf_pattern(a->memory, src_span, conf_next(r));
    CONF_OK(hd_write_box(a->buffer[d], to, a->memory, &box));
    model_copy(&box, a->model[d] + to, a->memory);
    memset(a->memory, 0, src_span); /* may be reused */
}

static void random_read(arena *a, conf_random *r)
{
    hd_box box = random_box(r, conf_chance(r, 80) ? 100000 : arena_bytes, conf_chance(r, 20));
    size_t dst_span, src_span, f = conf_below(r, n_buffers);
    spans(&box, &dst_span, &src_span);
    size_t from = conf_below(r, arena_bytes - src_span + 1);
    memset(a->memory, 0xa5, dst_span);
    memset(a->expected, 0xa5, dst_span);
    CONF_OK(hd_read_box(a->buffer[f], from, a->memory, &box));
    model_copy(&box, a->expected, a->model[f] + from);
    CONF_SAME(a->memory, a->expected, dst_span); /* bytes between the rows included */
}

static void random_boxes_do_what_a_model_does(void **state)
{
    (void)state;
    conf_random r = {conf_number_from("HEDDLE_SEED", 11)};
    for (int s = 0; s < PLACE_SETTINGS + 1; s++) {
        char settings[200];
        snprintf(settings, sizeof settings, "%s host_schedule=%d lane_slots=%d%s", place_settings[s % PLACE_SETTINGS],
                 s + 1, s == 1 ? 64 : 1024, s == PLACE_SETTINGS ? " memory_debug=on" : "");
        arena a = arena_open(settings, &r);
        int steps = CONF_SLOWNESS > 1 ? 60 : 250;
        for (int i = 0; i < steps; i++) {
            if (conf_chance(&r, 60)) {
                random_copy(&a, &r);
            } else if (conf_chance(&r, 50)) {
                random_write(&a, &r);
            } else {
                random_read(&a, &r);
            }
        }
        arena_close(&a);
    }
}

/* ---- large boxes ---- */

static void large_boxes_arrive(void **state)
{
    (void)state;
    size_t scale = CONF_SLOWNESS > 1 ? 4 : 1;
    const hd_box boxes[] = {
        matrix(6000, 1600 / scale, 8192, 7000),                         /* through many chunks */
        matrix(4, 600000 / scale, 8, 4),                                /* tiny rows: scattered, */
        matrix(4, 600000 / scale, 4, 8),                                /* gathered, */
        matrix(12, 200000 / scale, 20, 17),                             /* both */
        matrix(9 * MIB / scale + 5, 2, 10 * MIB / scale, 9 * MIB + 13), /* rows longer than a chunk */
        box_of(100, 3, (const size_t[]){20, 30, 40}, (const size_t[]){128, 3000, 100000},
               (const size_t[]){100 * 1200, 100, 100 * 30}), /* a transposed block */
        box_of(64 * KIB, 2, (const size_t[]){10, 8}, (const size_t[]){64 * KIB, 1 * MIB},
               (const size_t[]){0, 64 * KIB}), /* repeated */
    };
    enum { n = sizeof boxes / sizeof *boxes };
    size_t all = CONF_SLOWNESS > 1 ? 12 * MIB : 20 * MIB;
    uint8_t *from = conf_memory(all), *expected = conf_memory(all), *got = conf_memory(all);
    conf_pattern(from, all, 1);
    static const struct {
        place src, dst;
    } pairs[] = {{PLACE_DEVICE, PLACE_OTHER},  {PLACE_DEVICE, PLACE_DEVICE}, {PLACE_PINNED, PLACE_DEVICE},
                 {PLACE_DEVICE, PLACE_PINNED}, {PLACE_PINNED, PLACE_PINNED}, {PLACE_UNIFIED, PLACE_OTHER}};
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open(place_settings[s]);
        /* All of them are too much for the thread sanitizer, each is with one setting. */
        for (size_t p = CONF_TSAN ? (size_t)s : 0; p < sizeof pairs / sizeof *pairs; p += CONF_TSAN ? 2 : 1) {
            hd_buffer *src = place_alloc(runtime, pairs[p].src, all), *dst = place_alloc(runtime, pairs[p].dst, all);
            CONF_OK(hd_write(src, 0, from, all));
            for (int i = CONF_TSAN ? (int)(p / 2 % 2) : 0; i < n; i += CONF_TSAN ? 2 : 1) {
                hd_ticket ticket;
                memset(expected, 0x5a, all);
                model_copy(&boxes[i], expected + 3, from + 1);
                CONF_OK(hd_fill(dst, 0, 0x5a5a5a5au, all, NULL));
                CONF_OK(hd_buffer_wait(dst, HD_READ_WRITE, 60 * CONF_SECOND));
                CONF_OK(hd_copy_box(dst, 3, src, 1, &boxes[i], &ticket));
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
                CONF_OK(hd_buffer_wait(dst, HD_READ_WRITE, 0)); /* the ticket stands for all of it */
                CONF_HOLDS(dst, 0, expected, all);
                CONF_OK(hd_fill(dst, 0, 0x5a5a5a5au, all, NULL));
                CONF_OK(hd_write_box(dst, 3, from + 1, &boxes[i]));
                CONF_HOLDS(dst, 0, expected, all);
                memset(got, 0x5a, all);
                CONF_OK(hd_read_box(src, 1, got + 3, &boxes[i]));
                CONF_SAME(got, expected, all);
            }
            hd_free(src);
            hd_free(dst);
        }
        conf_close(runtime);
    }
    free(from);
    free(expected);
    free(got);
}

/* ---- bytes between the rows ---- */

/* Unified memory that the program has changed, and not yet sent to the device: a box written there leaves the rest of it alone. */
static void bytes_between_the_rows_stay_the_newest(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { bytes = 1 << 20, pitch = 1000, rows = 900, row = 100 };
    uint8_t *expected = conf_memory(bytes), *data = conf_memory(rows * row);
    for (int how = 0; how < 2; how++) {
        hd_buffer *u = place_alloc(runtime, PLACE_UNIFIED, bytes), *x = place_alloc(runtime, PLACE_DEVICE, rows * row);
        hd_box box = matrix(row, rows, pitch, row);
        conf_pattern(data, rows * row, 8);
        CONF_OK(hd_write(x, 0, data, rows * row));
        for (uint64_t i = 0; i < 4; i++) {
            void *p = NULL;
            CONF_OK(hd_map(u, HD_WRITE, &p)); /* newer here from now on */
            conf_pattern(p, bytes, i);
            hd_unmap(u);
            conf_pattern(expected, bytes, i);
            CONF_OK(how ? hd_write_box(u, 77, data, &box) : hd_copy_box(u, 77, x, 0, &box, NULL));
            model_copy(&box, expected + 77, data);
            if (i % 2) {
                CONF_HOLDS(u, 0, expected, bytes);
            } else {
                CONF_OK(hd_map(u, HD_READ, &p));
                CONF_SAME(p, expected, bytes);
                hd_unmap(u);
            }
        }
        hd_free(u);
        hd_free(x);
    }
    free(expected);
    free(data);
    conf_close(runtime);
}

typedef struct column {
    hd_buffer *matrix, *own;
    size_t first, width, pitch, rows;
    uint64_t seed;
} column;

/* Writes its columns of a shared matrix in turn with others, and finds them as they were written. */
static void *uses_columns(void *argument)
{
    const column *c = argument;
    size_t bytes = c->rows * c->width;
    uint8_t *data = conf_memory(bytes), *got = conf_memory(bytes);
    hd_box in = matrix(c->width, c->rows, c->pitch, c->width), out = matrix(c->width, c->rows, c->width, c->pitch);
    for (uint64_t i = 0; i < (CONF_SLOWNESS > 1 ? 4u : 20u); i++) {
        conf_pattern(data, bytes, c->seed + i);
        if (i % 2) {
            CONF_OK(hd_write_box(c->matrix, c->first, data, &in));
        } else {
            CONF_OK(hd_write(c->own, 0, data, bytes));
            CONF_OK(hd_copy_box(c->matrix, c->first, c->own, 0, &in, NULL));
        }
        if (i % 3) {
            CONF_OK(hd_read_box(c->matrix, c->first, got, &out));
        } else {
            CONF_OK(hd_fill(c->own, 0, 0, bytes / 4 * 4, NULL));
            CONF_OK(hd_copy_box(c->own, 0, c->matrix, c->first, &out, NULL));
            CONF_OK(hd_read(c->own, 0, got, bytes));
        }
        CONF_SAME(got, data, bytes);
    }
    free(data);
    free(got);
    return NULL;
}

static void threads_share_a_matrix(void **state)
{
    (void)state;
    enum { threads = 6, rows = 700, pitch = 1500 };
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open(place_settings[s]);
        hd_buffer *all = place_alloc(runtime, PLACE_DEVICE, rows * pitch);
        CONF_OK(hd_fill(all, 0, 0, rows * pitch, NULL));
        column of[threads];
        pthread_t thread[threads];
        size_t first = 0;
        for (int i = 0; i < threads; i++) {
            size_t width = i % 2 ? 7 : 450;
            of[i] = (column){all,
                             place_alloc(runtime, (place)(i % PLACES), rows * width),
                             first,
                             width,
                             pitch,
                             rows,
                             (uint64_t)i * 1000};
            first += width;
            CONF_EQUAL(pthread_create(&thread[i], NULL, uses_columns, &of[i]), 0);
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(thread[i], NULL);
            hd_free(of[i].own);
        }
        uint8_t gap[pitch];
        hd_box rest = matrix(pitch - first, rows, pitch - first, pitch); /* nobody's columns */
        uint8_t *got = conf_memory(rows * pitch);
        CONF_OK(hd_read_box(all, first, got, &rest));
        memset(gap, 0, sizeof gap);
        for (size_t i = 0; i < rows; i++) {
            CONF_SAME(got + i * (pitch - first), gap, pitch - first);
        }
        free(got);
        conf_close(runtime);
    }
}

/* A box comes after the work that makes its source, and before the work that overwrites it. */
static void boxes_keep_the_order(void **state)
{
    (void)state;
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open_with("%s host_schedule=9", place_settings[s]);
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lane = hd_default_lane(runtime, 0);
        enum { words = 1 << 18 };
        hd_buffer *x = place_alloc(runtime, PLACE_DEVICE, 4 * words), *y = place_alloc(runtime, PLACE_OTHER, 4 * words);
        hd_box box = matrix(400, 1000, 500, 1000); /* 500 * 1000 and 1000 * 1000 bytes */
        for (uint32_t i = 1; i < 20; i++) {
            CONF_OK(conf_fill(lane, k, x, 0, words, i, NULL));
            CONF_OK(hd_copy_box(y, 0, x, 0, &box, NULL));
            CONF_OK(conf_fill(lane, k, x, 0, words, 1000 + i, NULL));
            hd_box back = matrix(400, 1000, 400, 500);
            uint32_t *got = conf_memory(400000);
            CONF_OK(hd_read_box(y, 0, got, &back));
            for (size_t j = 0; j < 100000; j++) {
                CONF_EQUAL(got[j], i);
            }
            free(got);
        }
        conf_close(runtime);
    }
}

/* ---- failures ---- */

static void a_failed_row_fails_the_box(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        place src, dst;
        int settings;
        bool dense; /* nothing lies between the rows that are written */
    } table[] = {
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_DEVICE, 0, false},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_DEVICE, 0, true},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_OTHER, 1, false},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_OTHER, 1, true},
        {"cuMemcpy2DAsync", PLACE_PINNED, PLACE_DEVICE, 0, false},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_PINNED, 0, true},
        {"cuMemcpyDtoHAsync", PLACE_DEVICE, PLACE_OTHER, 1, false},
    };
    const size_t count[] = {3000, 3}, dst[] = {500, 2000000}, near[] = {240, 720000}, src[] = {260, 1000000};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const hd_box box = box_of(240, 2, count, table[i].dense ? near : dst, src);
        for (int nth = 1; nth <= 8; nth += CONF_SLOWNESS > 1 ? 3 : 1) {
            hd_runtime *runtime =
                conf_open_with("%s fault=%s:%d=1", place_settings[table[i].settings], table[i].entry, nth);
            hd_buffer *x = place_alloc(runtime, table[i].src, 6 * MIB),
                      *y = place_alloc(runtime, table[i].dst, 6 * MIB);
            CONF_OK(hd_fill(x, 0, 7, 6 * MIB, NULL));
            CONF_OK(hd_fill(y, 0, 9, 6 * MIB, NULL));
            hd_ticket ticket = {NULL, 0};
            CONF_OK(hd_copy_box(y, 0, x, 0, &box, &ticket)); /* whatever fails, it is said by the ticket */
            hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
            bool two = table[i].dst != PLACE_OTHER || place_device(runtime, PLACE_OTHER) != 0;
            if (status == HD_OK && nth <= 3 && two && !conf_on_gpus) { /* it takes three operations at least */
                conf_fail_at(__FILE__, __LINE__, "%s:%d fails nothing from %s to %s", table[i].entry, nth,
                             place_names[table[i].src], place_names[table[i].dst]);
            }
            if (status != HD_OK) {
                CONF_FAILS_WITH(status, HD_ERROR_FAILED, "copy");
                CONF_FAILS(hd_buffer_wait(y, HD_READ, 60 * CONF_SECOND), HD_ERROR_FAILED);
                /* what lies between the rows has failed with them: until all is written anew */
                if (!table[i].dense) {
                    CONF_FAILS(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_FAILED);
                    CONF_OK(hd_fill(y, 0, 9, 6 * MIB, NULL));
                }
                CONF_OK(hd_copy_box(y, 0, x, 0, &box, &ticket));
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
                CONF_OK(hd_buffer_wait(y, HD_READ, 60 * CONF_SECOND));
            }
            conf_close(runtime);
        }
    }
}

static void failures_of_reads_and_writes_are_said(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpy2DAsync:1+=1");
    hd_buffer *x = place_alloc(runtime, PLACE_DEVICE, MIB);
    CONF_OK(hd_fill(x, 0, 7, MIB, NULL));
    uint8_t *data = conf_memory(MIB);
    memset(data, 3, MIB);
    hd_box sparse = matrix(1000, 200, 1000, 5000), in = matrix(1000, 200, 5000, 1000),
           dense = matrix(1000, 200, 1000, 1000);
    for (int i = 0; i < 40; i++) { /* more than there are chunks */
        CONF_FAILS(hd_read_box(x, 0, data, &sparse), HD_ERROR_FAILED);
    }
    CONF_OK(hd_read_box(x, 0, data, &dense)); /* without that call */
    CONF_OK(hd_write_box(x, 0, data, &in));   /* says so later */
    CONF_FAILS(hd_read_box(x, 0, data, &dense), HD_ERROR_FAILED);
    free(data);
    conf_close(runtime);
}

/* ---- what is refused ---- */

static void bad_boxes_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL), *foreign = conf_open(NULL);
    enum { bytes = 10000 };
    uint8_t *content = conf_memory(bytes), *memory = conf_memory(bytes), *before = conf_memory(bytes);
    conf_pattern(memory, bytes, 4);
    memcpy(before, memory, bytes);
    for (place a = 0; a < PLACES; a++) {
        hd_buffer *x = place_alloc(runtime, a, bytes), *y = place_alloc(runtime, PLACE_OTHER, bytes),
                  *freed = place_alloc(runtime, a, bytes), *alien = place_alloc(foreign, a, bytes);
        conf_pattern(content, bytes, a);
        CONF_OK(hd_write(x, 0, content, bytes));
        CONF_OK(hd_write(y, 0, content, bytes));
        hd_free(freed);
        hd_ticket ticket = {NULL, 77};
        hd_box good = matrix(10, 100, 100, 100), box;
        /* handles */
        CONF_FAILS_WITH(hd_copy_box(NULL, 0, x, 0, &good, &ticket), HD_ERROR_HANDLE, "dst");
        CONF_FAILS_WITH(hd_copy_box(x, 0, NULL, 0, &good, &ticket), HD_ERROR_HANDLE, "src");
        CONF_FAILS_WITH(hd_copy_box(freed, 0, x, 0, &good, &ticket), HD_ERROR_HANDLE, "freed");
        CONF_FAILS_WITH(hd_copy_box(x, 0, freed, 0, &good, &ticket), HD_ERROR_HANDLE, "freed");
        CONF_FAILS_WITH(hd_copy_box(alien, 0, x, 0, &good, &ticket), HD_ERROR_HANDLE, "runtimes");
        CONF_FAILS(hd_write_box(NULL, 0, memory, &good), HD_ERROR_HANDLE);
        CONF_FAILS(hd_read_box(freed, 0, memory, &good), HD_ERROR_HANDLE);
        /* boxes */
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, NULL, &ticket), HD_ERROR_ARGUMENT, "box is null");
        CONF_FAILS(hd_write_box(x, 0, memory, NULL), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_read_box(x, 0, memory, NULL), HD_ERROR_ARGUMENT);
        box = good;
        box.size = 3;
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_ARGUMENT, "size is 3");
        box = good;
        box.dims = 8;
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_ARGUMENT, "dims is 8");
        box = matrix(10, 100, 9, 100);
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_ARGUMENT, "dst_stride[0] is 9");
        CONF_FAILS_WITH(hd_write_box(x, 0, memory, &box), HD_ERROR_ARGUMENT, "twice");
        CONF_FAILS_WITH(hd_read_box(x, 0, memory, &box), HD_ERROR_ARGUMENT, "twice");
        /* ranges: 99 * 100 + 10 bytes */
        CONF_FAILS_WITH(hd_copy_box(y, 91, x, 0, &good, &ticket), HD_ERROR_RANGE, "9910 bytes at offset 91");
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 91, &good, &ticket), HD_ERROR_RANGE, "src");
        CONF_FAILS(hd_write_box(x, 91, memory, &good), HD_ERROR_RANGE);
        CONF_FAILS(hd_read_box(x, 91, memory, &good), HD_ERROR_RANGE);
        CONF_FAILS(hd_copy_box(y, SIZE_MAX, x, 0, &good, &ticket), HD_ERROR_RANGE);
        box = matrix(10, SIZE_MAX / 50, 100, 100);
        CONF_FAILS(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_RANGE);
        CONF_FAILS(hd_write_box(x, 0, memory, &box), HD_ERROR_RANGE);
        box = matrix(10, 2, 10, SIZE_MAX - 4);
        CONF_FAILS(hd_read_box(x, 0, memory, &box), HD_ERROR_RANGE);
        CONF_FAILS(hd_write_box(x, 0, memory, &box), HD_ERROR_RANGE);
        /* the program's memory */
        CONF_FAILS_WITH(hd_write_box(x, 0, NULL, &good), HD_ERROR_ARGUMENT, "null");
        CONF_FAILS_WITH(hd_read_box(x, 0, NULL, &good), HD_ERROR_ARGUMENT, "null");
        /* one buffer */
        CONF_FAILS_WITH(hd_copy_box(x, 0, x, 9, &good, &ticket), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_copy_box(x, 90, x, 0, &(hd_box){.size = sizeof good, .row = 91}, &ticket), HD_ERROR_ARGUMENT,
                        "overlap");
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 77);
        CONF_HOLDS(x, 0, content, bytes);
        CONF_HOLDS(y, 0, content, bytes);
        CONF_SAME(memory, before, bytes);
        /* what is allowed: columns beside each other, nothing at all, and unused strides */
        CONF_OK(hd_copy_box(x, 0, x, 10, &good, &ticket));
        model_copy(&good, content, memcpy(before, content, bytes) == before ? before + 10 : NULL);
        CONF_HOLDS(x, 0, content, bytes);
        memcpy(before, memory, bytes);
        box = matrix(0, 100, 0, 0);
        CONF_OK(hd_copy_box(y, bytes, x, bytes, &box, NULL));
        CONF_OK(hd_write_box(x, 0, NULL, &box));
        box = matrix(10, 0, 0, 0);
        CONF_OK(hd_read_box(x, 0, NULL, &box));
        CONF_OK(hd_copy_box(x, 0, x, 0, &box, NULL));
        box = matrix(10, 1, 0, SIZE_MAX);
        CONF_OK(hd_read_box(x, bytes - 10, memory, &box));
        CONF_SAME(memory, content + bytes - 10, 10);
        memcpy(memory, before, bytes);
        hd_free(x);
        hd_free(y);
    }
    free(content);
    free(memory);
    free(before);
    conf_close(foreign);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_copy_box");
    const struct CMUnitTest tests[] = {
        CONF_CASE(random_boxes_do_what_a_model_does),
        CONF_CASE(large_boxes_arrive),
        CONF_CASE(bytes_between_the_rows_stay_the_newest),
        CONF_CASE(threads_share_a_matrix),
        CONF_CASE(boxes_keep_the_order),
        CONF_CASE(a_failed_row_fails_the_box),
        CONF_CASE(failures_of_reads_and_writes_are_said),
        CONF_CASE(bad_boxes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
