/* test_copy_box.c - hd_copy_box, hd_write_box and hd_read_box against a model in the program's
 * memory.
 *
 * Promise: Box transfers move exactly the rows asked for and leave the bytes between them alone.
 *
 * - random boxes and large ones between all places
 * - bytes between the rows
 * - threads that share the columns of a buffer
 *
 * test_copy_box_trouble.c tests failures and refusals.
 *
 * Threads: up to 6.
 * Locks: none.
 */
#include "boxes.h"

#include <pthread.h>

/* ---- random boxes ---- */

/* At most `most` bytes on both sides; *same: both sides get the same strides. */
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
    uint8_t *memory, *expected; /* of the program */
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
    if (d == f && conf_chance(r, 70)) { /* near each other, or interleaved */
        from = to + conf_below(r, dst_span + 10);
        from = from + src_span > arena_bytes ? arena_bytes - src_span : from;
    }
    hd_status status = hd_copy_box(a->buffer[d], to, a->buffer[f], from, &box, NULL);
    if (d == f) {
        bool meet = sides_meet(&box, to, from, arena_bytes);
        bool apart = to + dst_span <= from || from + src_span <= to;
        /* hd_copy_box may refuse more than needed if strides differ */
        if (meet || (status != HD_OK && !apart && !same)) {
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
    memset(a->memory, 0, src_span); /* the program may reuse it */
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
    CONF_SAME(a->memory, a->expected, dst_span); /* with the bytes between the rows */
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
        matrix(6000, 1600 / scale, 8192, 7000), /* through many chunks */
        matrix(4, 600000 / scale, 8, 4),        /* tiny rows: scattered, */
        matrix(4, 600000 / scale, 4, 8),        /* gathered, */
        matrix(12, 200000 / scale, 20, 17),     /* both */
        /* rows longer than a chunk */
        matrix(9 * MIB / scale + 5, 2, 10 * MIB / scale, 9 * MIB + 13),
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
        /* The thread sanitizer is too slow for all of them; each runs with one setting. */
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
                /* the ticket covers the whole copy */
                CONF_OK(hd_buffer_wait(dst, HD_READ_WRITE, 0));
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

/* Changes that the program made to unified memory are not on the device yet. A box written there
 * must leave the rest of them alone. */
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
            CONF_OK(hd_map(u, HD_WRITE, &p)); /* from now on the newer bytes are here */
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

/* Writes its columns of a shared matrix in turn with other threads, and reads them back
 * unchanged. */
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
        hd_box rest = matrix(pitch - first, rows, pitch - first, pitch); /* columns of no thread */
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

/* A box runs after the work that makes its source, and before the work that overwrites it. */
static void boxes_keep_the_order(void **state)
{
    (void)state;
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open_with("%s host_schedule=9", place_settings[s]);
        conf_kernels k = conf_builtins(runtime);
        hd_lane *lane = conf_default_lane(runtime, 0);
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

int main(void)
{
    conf_begin("test_copy_box");
    const struct CMUnitTest tests[] = {
        CONF_CASE(random_boxes_do_what_a_model_does),
        CONF_CASE(large_boxes_arrive),
        CONF_CASE(bytes_between_the_rows_stay_the_newest),
        CONF_CASE(threads_share_a_matrix),
        CONF_CASE(boxes_keep_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
