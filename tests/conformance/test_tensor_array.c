/* test_tensor_array.c - hd_tensor_write and hd_tensor_read for any layout and place, and copies so
 * large that they go in parts.
 *
 * Promise: hd_tensor_write and hd_tensor_read move every element of any layout, also in parts.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "tensors.h"

#define MIB ((uint64_t)1 << 20)

/* ---- random layouts ---- */

static void write_and_read_once(hd_runtime *runtime, uint64_t seed, tensor_place place)
{
    conf_random r = {seed};
    tensor_layout l;
    tensor_shape(&r, conf_chance(&r, 10) ? 100000 : 3000, &l);
    tensor_strides(&r, conf_chance(&r, 40), &l);
    uint8_t *now = conf_memory(l.bytes);
    conf_pattern(now, l.bytes, seed + 1);
    hd_buffer *b = tensor_buffer(runtime, place, now, l.bytes);
    hd_tensor t = tensor_over(b, &l), rows = t;
    size_t bytes = hd_tensor_elements(&t) * hd_type_size(t.type);
    uint8_t *array = conf_memory(bytes), *got = conf_memory(bytes);
    rows.offset = 0;
    int64_t next = (int64_t)hd_type_size(t.type);
    for (int i = t.dims - 1; i >= 0; i--) {
        rows.stride[i] = next;
        next *= (int64_t)t.shape[i];
    }
    tensor_move(&rows, array, &t, now);
    CONF_OK(hd_tensor_read(&t, got));
    CONF_SAME(got, array, bytes);
    conf_pattern(array, bytes, seed + 2);
    CONF_OK(hd_tensor_write(&t, array));
    tensor_move(&t, now, &rows, array);
    memset(array, 0, bytes); /* the program may reuse it at once */
    CONF_HOLDS(b, 0, now, l.bytes);
    hd_free(b);
    free(now);
    free(array);
    free(got);
}

static void random_layouts_are_written_and_read(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    for (int round = 0; round < 100 / CONF_SLOWNESS; round++) {
        for (int place = 0; place < PLACES; place++) {
            write_and_read_once(runtime, (uint64_t)(round * PLACES + place), (tensor_place)place);
        }
    }
    conf_close(runtime);
}

/* A read of a repeated tensor works. */
static void repeated_elements_are_read(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    const uint32_t content[] = {7, 8, 9};
    hd_buffer *b = tensor_buffer(runtime, PLACE_FIRST, content, sizeof content);
    const uint64_t shape[] = {3, 1}, to[] = {5, 3, 4};
    hd_tensor t;
    uint32_t got[60];
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_U32, 2, shape, &t));
    CONF_OK(hd_tensor_broadcast(&t, 3, to, &t));
    CONF_OK(hd_tensor_read(&t, got));
    for (int i = 0; i < 60; i++) {
        CONF_EQUAL(got[i], content[i / 4 % 3]);
    }
    conf_close(runtime);
}

/* ---- in parts ---- */

/* Element (i, j) of every large matrix here. */
static inline uint32_t word_at(uint64_t i, uint64_t j)
{
    return (uint32_t)(i * UINT64_C(0x9e3779b1) + j * 40503);
}

/* Returns the next of n indices to check: in steps, and at the end the last one. */
static uint64_t after(uint64_t i, uint64_t step, uint64_t n)
{
    return i + step < n ? i + step : i + 1 < n ? n - 1 : n;
}

/* A little over 40 MiB; the columns in between do not belong to it. */
static void arrays_go_in_parts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { rows = 3001, columns = 3600, pitch = 3604 };
    const uint64_t whole[] = {rows, pitch};
    hd_tensor all, t;
    uint32_t *array = conf_memory((size_t)rows * columns * 4), *got = conf_memory((size_t)rows * pitch * 4);
    CONF_OK(hd_tensor_alloc(conf_default_lane(runtime, 0), HD_TYPE_U32, 2, whole, &all));
    CONF_OK(hd_fill(all.buffer, 0, 0x77777777, hd_buffer_size(all.buffer), NULL));
    CONF_OK(hd_tensor_slice(&all, 1, 3, columns, 1, &t));
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t j = 0; j < columns; j++) {
            array[i * columns + j] = word_at(i, j);
        }
    }
    CONF_OK(hd_tensor_write(&t, array));
    CONF_OK(hd_read(all.buffer, 0, got, (size_t)rows * pitch * 4));
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t j = 0; j < pitch; j++) {
            CONF_EQUAL(got[i * pitch + j], j < 3 || j >= columns + 3 ? 0x77777777 : word_at(i, j - 3));
        }
    }
    /* The same transposed, so that the parts divide the other dimension. */
    CONF_OK(hd_tensor_transpose(&t, 0, 1, &t));
    memset(got, 0, (size_t)rows * columns * 4);
    CONF_OK(hd_tensor_read(&t, got));
    for (uint64_t j = 0; j < columns; j++) {
        for (uint64_t i = 0; i < rows; i++) {
            CONF_EQUAL(got[j * rows + i], word_at(i, j));
        }
    }
    free(array);
    free(got);
    conf_close(runtime);
}

/* Between devices that do not reach each other a large tensor goes in several parts: packed,
 * copied, unpacked, or only some of these. */
static void staged_copies_go_in_parts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=none peers=off");
    CONF_NEED_DEVICES(runtime, 2);
    enum { rows = 7001, columns = 5003 }; /* 134 MiB */
    const size_t bytes = (size_t)rows * columns * 4;
    const uint64_t shape[] = {rows, columns}, turned[] = {columns, rows};
    hd_lane *first = conf_default_lane(runtime, 0), *last = conf_default_lane(runtime, 1);
    uint32_t *array = conf_memory(bytes), *got = conf_memory(bytes);
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t j = 0; j < columns; j++) {
            array[i * columns + j] = word_at(i, j);
        }
    }
    hd_tensor x, y, view;
    hd_ticket ticket;
    CONF_OK(hd_tensor_alloc(first, HD_TYPE_U32, 2, shape, &x));
    CONF_OK(hd_tensor_alloc(last, HD_TYPE_U32, 2, turned, &y));
    CONF_OK(hd_tensor_write(&x, array));
    /* Packed there, a run of bytes here. */
    CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
    CONF_OK(hd_tensor_copy(&y, &view, &ticket));
    CONF_OK(hd_wait(ticket, 100 * CONF_SECOND * CONF_SLOWNESS));
    CONF_OK(hd_read(y.buffer, 0, got, bytes));
    for (uint64_t j = 0; j < columns; j++) {
        for (uint64_t i = 0; i < rows; i = after(i, 97, rows)) {
            CONF_EQUAL(got[j * rows + i], word_at(i, j));
        }
    }
    /* Packed there, unpacked here: irregular layouts, in every other row, backwards. */
    hd_tensor from, to;
    CONF_OK(hd_fill(y.buffer, 0, 5, bytes, NULL));
    CONF_OK(hd_tensor_slice(&x, 1, columns - 1, 2000, -2, &from));
    CONF_OK(hd_tensor_slice(&y, 0, 0, 2000, 2, &to));
    CONF_OK(hd_tensor_transpose(&to, 0, 1, &to));
    CONF_OK(hd_tensor_copy(&to, &from, NULL));
    CONF_OK(hd_read(y.buffer, 0, got, bytes));
    for (uint64_t j = 0; j < columns; j++) {
        for (uint64_t i = 0; i < rows; i = after(i, 97, rows)) {
            bool inside = j % 2 == 0 && j / 2 < 2000;
            CONF_EQUAL(got[j * rows + i], inside ? word_at(i, columns - 1 - j) : 5);
        }
    }
    free(array);
    free(got);
    conf_close(runtime);
}

/* More than 2^32 bytes and elements on one side, a repeated source, and a transposed destination.
 * Runs only if the machine provides enough memory. */
static void more_than_4_gib(void **state)
{
    (void)state;
    const char *placement = getenv("HEDDLE_PLACEMENT");
    if (CONF_SLOWNESS > 1 || (placement != NULL && strcmp(placement, "thread") != 0) ||
        (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) < (uint64_t)10 << 30) {
        skip();
    }
    hd_runtime *runtime = conf_open(conf_on_gpus ? NULL : "host_devices=1 host_memory=6G");
    const uint64_t rows = 66000, columns = 66001; /* 4.36e9 */
    const uint64_t column[] = {rows, 1}, shape[] = {columns, rows};
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint8_t *content = conf_memory(rows), *got = conf_memory(rows);
    hd_tensor x, y, view;
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, 0, &stats));
    if (stats.limit_bytes < rows * columns + 64 * MIB) {
        conf_close(runtime);
        free(content);
        free(got);
        skip();
    }
    conf_pattern(content, rows, 3);
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U8, 2, column, &x));
    CONF_OK(hd_write(x.buffer, 0, content, rows));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U8, 2, shape, &y));
    CONF_OK(hd_tensor_transpose(&y, 0, 1, &view));
    CONF_OK(hd_tensor_copy(&view, &x, NULL));
    for (uint64_t j = 0; j < columns; j = after(j, 777, columns)) {
        CONF_OK(hd_read(y.buffer, j * rows, got, rows));
        CONF_SAME(got, content, rows);
    }
    /* The last rows, backwards, to the first ones: all differences exceed 32 bits. */
    const uint64_t part = 3000;
    hd_tensor to, from;
    uint8_t *pattern = conf_memory(part * rows), *back = conf_memory(rows);
    conf_pattern(pattern, part * rows, 4);
    CONF_OK(hd_write(y.buffer, (columns - part) * rows, pattern, part * rows));
    CONF_OK(hd_tensor_slice(&y, 0, columns - 1, part, -1, &from));
    CONF_OK(hd_tensor_slice(&from, 1, rows - 1, rows, -1, &from));
    CONF_OK(hd_tensor_slice(&y, 0, 0, part, 1, &to));
    CONF_OK(hd_tensor_copy(&to, &from, NULL));
    for (uint64_t j = 0; j < part; j = after(j, 101, part)) {
        CONF_OK(hd_read(y.buffer, j * rows, got, rows));
        for (uint64_t i = 0; i < rows; i++) {
            back[i] = pattern[(part - 1 - j) * rows + rows - 1 - i];
        }
        CONF_SAME(got, back, rows);
    }
    /* All of it transposed, if there is room: rows of the result consist of three parts. */
    if (stats.limit_bytes >= 2 * rows * columns + 64 * MIB) {
        const uint64_t turned[] = {rows, columns};
        uint8_t *row = conf_memory(columns);
        hd_tensor z;
        CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U8, 2, turned, &z));
        CONF_OK(hd_tensor_copy(&z, &view, NULL));
        for (uint64_t i = 0; i < rows; i = after(i, 777, rows)) {
            CONF_OK(hd_read(z.buffer, i * columns, row, columns));
            for (uint64_t j = 0; j < columns; j++) {
                uint8_t wanted = j < part              ? pattern[(part - 1 - j) * rows + rows - 1 - i]
                                 : j >= columns - part ? pattern[(j - (columns - part)) * rows + i]
                                                       : content[i];
                CONF_EQUAL(row[j], wanted);
            }
        }
        free(row);
    }
    free(content);
    free(got);
    free(pattern);
    free(back);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_tensor_array");
    const struct CMUnitTest tests[] = {
        CONF_CASE(random_layouts_are_written_and_read),
        CONF_CASE(repeated_elements_are_read),
        CONF_CASE(arrays_go_in_parts),
        CONF_CASE(staged_copies_go_in_parts),
        CONF_CASE(more_than_4_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
