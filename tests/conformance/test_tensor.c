/* test_tensor.c - tensors without moving an element: types, making them, and views, in tables and
 * against a model.
 *
 * Promise: A view addresses exactly the elements that its shape and strides define, or is refused.
 * Placements: thread.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "tensors.h"

#define HUGE_SIZE ((uint64_t)1 << 63)

static hd_runtime *open_with_buffer(size_t size, hd_buffer **buffer)
{
    hd_runtime *runtime = conf_open(NULL);
    *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), size, buffer));
    return runtime;
}

static void types_have_sizes_and_names(void **state)
{
    (void)state;
    static const struct {
        hd_type type;
        size_t bytes;
        const char *name;
    } table[] = {{HD_TYPE_I8, 1, "i8"},   {HD_TYPE_U8, 1, "u8"},     {HD_TYPE_I16, 2, "i16"}, {HD_TYPE_U16, 2, "u16"},
                 {HD_TYPE_I32, 4, "i32"}, {HD_TYPE_U32, 4, "u32"},   {HD_TYPE_I64, 8, "i64"}, {HD_TYPE_U64, 8, "u64"},
                 {HD_TYPE_F16, 2, "f16"}, {HD_TYPE_BF16, 2, "bf16"}, {HD_TYPE_F32, 4, "f32"}, {HD_TYPE_F64, 8, "f64"},
                 {HD_TYPE_C64, 8, "c64"}, {HD_TYPE_C128, 16, "c128"}};
    CONF_EQUAL(sizeof table / sizeof table[0], TENSOR_TYPES);
    for (size_t i = 0; i < TENSOR_TYPES; i++) {
        CONF_EQUAL(hd_type_size(table[i].type), table[i].bytes);
        CONF_TRUE(strcmp(hd_type_name(table[i].type), table[i].name) == 0);
    }
    static const int none[] = {0, -1, HD_TYPE_C128 + 1, 1000000};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        CONF_EQUAL(hd_type_size((hd_type)none[i]), 0);
        CONF_TRUE(strcmp(hd_type_name((hd_type)none[i]), "?") == 0);
    }
}

static void makes_row_major_tensors(void **state)
{
    (void)state;
    hd_buffer *b;
    hd_runtime *runtime = open_with_buffer(1000, &b);
    const uint64_t shape[] = {2, 3, 5};
    hd_tensor t;
    CONF_OK(hd_tensor_make(b, 8, HD_TYPE_F64, 3, shape, &t));
    CONF_TRUE(t.buffer == b && t.offset == 8 && t.type == HD_TYPE_F64 && t.dims == 3);
    CONF_TRUE(t.shape[0] == 2 && t.shape[1] == 3 && t.shape[2] == 5);
    CONF_TRUE(t.stride[0] == 120 && t.stride[1] == 40 && t.stride[2] == 8);
    CONF_EQUAL(hd_tensor_elements(&t), 30);
    CONF_TRUE(hd_tensor_is_contiguous(&t));
    /* Exactly the size of the buffer, and a byte more. */
    const uint64_t most[] = {125}, more[] = {124};
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_F64, 1, most, &t));
    CONF_OK(hd_tensor_make(b, 8, HD_TYPE_F64, 1, more, &t));
    memset(&t, 0x77, sizeof t);
    hd_tensor before = t;
    CONF_FAILS_WITH(hd_tensor_make(b, 1, HD_TYPE_F64, 1, most, &t), HD_ERROR_RANGE, "1000");
    CONF_FAILS(hd_tensor_make(b, 9, HD_TYPE_F64, 1, more, &t), HD_ERROR_RANGE);
    CONF_FAILS(hd_tensor_make(b, SIZE_MAX, HD_TYPE_U8, 0, NULL, &t), HD_ERROR_RANGE);
    CONF_FAILS(hd_tensor_make(b, 1000, HD_TYPE_U8, 0, NULL, &t), HD_ERROR_RANGE);
    CONF_TRUE(memcmp(&t, &before, sizeof t) == 0);
    /* One element; no element. */
    CONF_OK(hd_tensor_make(b, 999, HD_TYPE_U8, 0, NULL, &t));
    CONF_EQUAL(hd_tensor_elements(&t), 1);
    CONF_TRUE(hd_tensor_is_contiguous(&t));
    const uint64_t empty[] = {7, 0, UINT64_MAX};
    CONF_OK(hd_tensor_make(b, 1000, HD_TYPE_U8, 2, empty, &t));
    /* empty, whatever the other extents are */
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_C128, 3, empty, &t));
    CONF_EQUAL(hd_tensor_elements(&t), 0);
    CONF_OK(hd_tensor_transpose(&t, 0, 2, &t));
    CONF_EQUAL(hd_tensor_elements(&t), 0);
    CONF_EQUAL(hd_tensor_elements(&t), 0);
    CONF_TRUE(hd_tensor_is_contiguous(&t));
    CONF_FAILS(hd_tensor_make(b, 1001, HD_TYPE_U8, 2, empty, &t), HD_ERROR_RANGE);
    /* A tensor with its own buffer. */
    CONF_OK(hd_tensor_alloc(conf_default_lane(runtime, 0), HD_TYPE_C128, 3, shape, &t));
    CONF_EQUAL(hd_buffer_size(t.buffer), 480);
    CONF_EQUAL(t.offset, 0);
    CONF_TRUE(hd_tensor_is_contiguous(&t));
    hd_free(t.buffer);
    CONF_OK(hd_tensor_alloc(conf_default_lane(runtime, 0), HD_TYPE_F32, 2, empty, &t));
    CONF_EQUAL(hd_tensor_elements(&t), 0);
    hd_free(t.buffer);
    conf_close(runtime);
}

static void refuses_what_is_no_tensor(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *b = NULL, *freed = NULL;
    CONF_OK(hd_alloc(lane, 4096, &b));
    CONF_OK(hd_alloc(lane, 4096, &freed));
    hd_free(freed);
    const uint64_t shape[9] = {2, 3, 4, 1, 1, 1, 1, 1, 1};
    const int64_t stride[9] = {48, 16, 4};
    hd_tensor t, untouched;
    memset(&untouched, 0x55, sizeof untouched);
    t = untouched;
    CONF_FAILS_WITH(hd_tensor_make(NULL, 0, HD_TYPE_F32, 3, shape, &t), HD_ERROR_HANDLE, "hd_tensor_make");
    CONF_FAILS(hd_tensor_make(freed, 0, HD_TYPE_F32, 3, shape, &t), HD_ERROR_HANDLE);
    CONF_FAILS_WITH(hd_tensor_alloc(lane, HD_TYPE_F32, 3, NULL, &t), HD_ERROR_ARGUMENT, "hd_tensor_alloc: ");
    CONF_FAILS_WITH(hd_tensor_alloc(lane, HD_TYPE_F32, 3, shape, NULL), HD_ERROR_ARGUMENT, "hd_tensor_alloc: ");
    CONF_FAILS(hd_tensor_make(b, 0, HD_TYPE_F32, 3, NULL, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_make(b, 0, HD_TYPE_F32, 3, shape, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_make(b, 0, (hd_type)0, 3, shape, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_make(b, 0, (hd_type)99, 3, shape, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS_WITH(hd_tensor_make(b, 0, HD_TYPE_F32, 9, shape, &t), HD_ERROR_ARGUMENT, "9 dimensions");
    CONF_FAILS(hd_tensor_make(b, 0, HD_TYPE_F32, -1, shape, &t), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_F32, 8, shape, &t));
    t = untouched;
    CONF_FAILS(hd_tensor_make_strided(b, 0, HD_TYPE_F32, 3, shape, NULL, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_alloc(NULL, HD_TYPE_F32, 3, shape, &t), HD_ERROR_HANDLE);
    CONF_FAILS(hd_tensor_alloc(lane, HD_TYPE_F32, 3, shape, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_alloc(lane, HD_TYPE_F32, 9, shape, &t), HD_ERROR_ARGUMENT);
    const uint64_t large[] = {(uint64_t)1 << 40, (uint64_t)1 << 21};
    CONF_FAILS(hd_tensor_alloc(lane, HD_TYPE_F32, 2, large, &t), HD_ERROR_ARGUMENT);
    const uint64_t much[] = {(uint64_t)1 << 20, (uint64_t)1 << 35};
    CONF_FAILS(hd_tensor_alloc(lane, HD_TYPE_F32, 2, much, &t), HD_ERROR_MEMORY);
    CONF_TRUE(memcmp(&t, &untouched, sizeof t) == 0);
    CONF_OK(hd_tensor_make_strided(b, 0, HD_TYPE_F32, 3, shape, stride, &t));

    /* Values that the program made up. */
    CONF_EQUAL(hd_tensor_elements(NULL), 0);
    CONF_TRUE(!hd_tensor_is_contiguous(NULL));
    hd_tensor bad = t;
    bad.type = (hd_type)77;
    CONF_EQUAL(hd_tensor_elements(&bad), 0);
    CONF_TRUE(!hd_tensor_is_contiguous(&bad));
    bad = t;
    bad.dims = 9;
    CONF_EQUAL(hd_tensor_elements(&bad), 0);
    const int order[3] = {0, 1, 2};
    CONF_FAILS(hd_tensor_permute(&bad, order, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_slice(&bad, 0, 0, 1, 1, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_transpose(&bad, 0, 1, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_broadcast(&bad, 3, shape, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_reshape(&bad, 3, shape, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_permute(NULL, order, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_slice(&t, 0, 0, 1, 1, NULL), HD_ERROR_ARGUMENT);
    conf_close(runtime);
}

/* Shapes, strides and steps up to the limits of their types. */
static void nothing_wraps(void **state)
{
    (void)state;
    hd_buffer *b;
    hd_runtime *runtime = open_with_buffer(4096, &b);
    static const struct {
        int dims;
        uint64_t shape[3];
        int64_t stride[3];
        size_t offset;
        hd_status status;
    } table[] = {
        {1, {HUGE_SIZE - 1}, {0}, 0, HD_OK},
        {1, {HUGE_SIZE}, {0}, 0, HD_ERROR_ARGUMENT},
        {1, {UINT64_MAX}, {0}, 0, HD_ERROR_ARGUMENT},
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 31}, {0, 0}, 0, HD_ERROR_ARGUMENT},
        {2, {(uint64_t)1 << 32, ((uint64_t)1 << 31) - 1}, {0, 0}, 0, HD_OK},
        {2, {(uint64_t)1 << 32, (uint64_t)1 << 32}, {0, 0}, 0, HD_ERROR_ARGUMENT},
        {3, {(uint64_t)1 << 32, (uint64_t)1 << 32, 0}, {0, 0, 0}, 0, HD_OK}, /* no elements */
        {1, {HUGE_SIZE - 1}, {4}, 0, HD_ERROR_RANGE},
        {1, {HUGE_SIZE - 1}, {INT64_MAX}, 0, HD_ERROR_RANGE},
        {1, {HUGE_SIZE - 1}, {INT64_MIN}, 0, HD_ERROR_RANGE},
        {1, {2}, {INT64_MAX}, 0, HD_ERROR_RANGE},
        {1, {2}, {INT64_MIN}, 0, HD_ERROR_RANGE},
        {1, {1}, {INT64_MIN}, 4092, HD_OK}, /* never walked */
        {1, {0}, {INT64_MIN}, 4096, HD_OK},
        {2, {3, 3}, {INT64_MAX, INT64_MAX}, 0, HD_ERROR_RANGE},
        {2, {2, 2}, {INT64_MAX, INT64_MIN}, 0, HD_ERROR_RANGE},
        {2, {2, 2}, {INT64_MIN, INT64_MIN}, SIZE_MAX, HD_ERROR_RANGE},
        {1, {1024}, {4}, 0, HD_OK},
        {1, {1024}, {4}, 1, HD_ERROR_RANGE},
        {1, {1025}, {4}, 0, HD_ERROR_RANGE},
        {1, {1024}, {-4}, 4092, HD_OK},
        {1, {1024}, {-4}, 4091, HD_ERROR_RANGE},
        {1, {1024}, {-4}, 4093, HD_ERROR_RANGE},
        {1, {1365}, {3}, 0, HD_OK}, /* overlapping elements */
        {2, {16, 64}, {-256, 4}, 3840, HD_OK},
        {2, {16, 64}, {-256, 4}, 3839, HD_ERROR_RANGE},
        {2, {16, 64}, {-256, 4}, 3841, HD_ERROR_RANGE},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hd_tensor t;
        hd_status status =
            hd_tensor_make_strided(b, table[i].offset, HD_TYPE_F32, table[i].dims, table[i].shape, table[i].stride, &t);
        if (status != table[i].status) {
            conf_fail_at(__FILE__, __LINE__, "row %zu: %s, not %s: %s", i, hd_status_name(status),
                         hd_status_name(table[i].status), hd_message());
        }
    }
    const uint64_t half[] = {HUGE_SIZE / 2, 1, 2};
    hd_tensor t;
    CONF_FAILS(hd_tensor_make(b, 0, HD_TYPE_F32, 1, half, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_make(b, 0, HD_TYPE_U8, 3, half, &t), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_make(b, 0, HD_TYPE_U8, 1, half, &t), HD_ERROR_RANGE);

    /* A repeated element: views of 2^62 of them. */
    hd_tensor one, many, view;
    CONF_OK(hd_tensor_make(b, 4092, HD_TYPE_F32, 0, NULL, &one));
    CONF_OK(hd_tensor_broadcast(&one, 1, half, &many));
    CONF_EQUAL(hd_tensor_elements(&many), HUGE_SIZE / 2);
    CONF_TRUE(!hd_tensor_is_contiguous(&many));
    CONF_OK(hd_tensor_slice(&many, 0, HUGE_SIZE / 2 - 1, HUGE_SIZE / 2, -1, &view));
    CONF_EQUAL(view.offset, 4092);
    CONF_OK(hd_tensor_slice(&many, 0, 0, 2, INT64_MAX / 2, &view));
    CONF_FAILS(hd_tensor_slice(&many, 0, 1, 2, INT64_MAX / 2 + 1, &view), HD_ERROR_RANGE);
    CONF_FAILS(hd_tensor_slice(&many, 0, 0, 3, INT64_MAX / 2, &view), HD_ERROR_RANGE);
    CONF_FAILS(hd_tensor_slice(&many, 0, 0, UINT64_MAX, 1, &view), HD_ERROR_RANGE);
    CONF_FAILS(hd_tensor_slice(&many, 0, UINT64_MAX, 1, 1, &view), HD_ERROR_RANGE);
    CONF_FAILS(hd_tensor_slice(&many, 0, 0, 2, INT64_MIN, &view), HD_ERROR_RANGE);
    CONF_OK(hd_tensor_slice(&many, 0, 0, 1, INT64_MIN, &view));
    const uint64_t twice[] = {2, HUGE_SIZE / 2};
    CONF_FAILS(hd_tensor_broadcast(&many, 2, twice, &view), HD_ERROR_ARGUMENT);
    const uint64_t split[] = {(uint64_t)1 << 31, (uint64_t)1 << 31};
    CONF_OK(hd_tensor_reshape(&many, 2, split, &view));
    CONF_TRUE(view.stride[0] == 0 && view.stride[1] == 0);
    conf_close(runtime);
}

/* ---- tables of views ---- */

static void slices(void **state)
{
    (void)state;
    hd_buffer *b;
    hd_runtime *runtime = open_with_buffer(4096, &b);
    const uint64_t shape[] = {10, 20};
    hd_tensor t, v;
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_F32, 2, shape, &t));
    static const struct {
        int dim;
        uint64_t first, count;
        int64_t step;
        hd_status status;
        size_t offset;
        int64_t stride;
    } table[] = {
        {0, 0, 10, 1, HD_OK, 0, 80},
        {0, 3, 7, 1, HD_OK, 240, 80},
        {0, 3, 8, 1, HD_ERROR_RANGE, 0, 0},
        {0, 9, 10, -1, HD_OK, 720, -80},
        {0, 9, 11, -1, HD_ERROR_RANGE, 0, 0},
        {0, 8, 10, -1, HD_ERROR_RANGE, 0, 0},
        {1, 0, 10, 2, HD_OK, 0, 8},
        {1, 1, 10, 2, HD_OK, 4, 8},
        {1, 2, 10, 2, HD_ERROR_RANGE, 0, 0},
        {1, 0, 7, 3, HD_OK, 0, 12},
        {1, 0, 8, 3, HD_ERROR_RANGE, 0, 0},
        {1, 19, 7, -3, HD_OK, 76, -12},
        {1, 18, 7, -3, HD_OK, 72, -12},
        {1, 17, 7, -3, HD_ERROR_RANGE, 0, 0},
        {1, 19, 1, INT64_MAX, HD_OK, 76, 4},
        {1, 20, 1, 1, HD_ERROR_RANGE, 0, 0},
        {1, 20, 0, 1, HD_OK, 0, 4},
        {1, 21, 0, 1, HD_ERROR_RANGE, 0, 0},
        {1, 0, 0, -5, HD_OK, 0, 4},
        {1, 0, 5, 0, HD_ERROR_ARGUMENT, 0, 0},
        {2, 0, 1, 1, HD_ERROR_ARGUMENT, 0, 0},
        {-1, 0, 1, 1, HD_ERROR_ARGUMENT, 0, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hd_tensor before;
        memset(&v, 0x33, sizeof v);
        before = v;
        hd_status status = hd_tensor_slice(&t, table[i].dim, table[i].first, table[i].count, table[i].step, &v);
        bool good = status == table[i].status;
        if (good && status == HD_OK) {
            good = v.offset == table[i].offset && v.stride[table[i].dim] == table[i].stride &&
                   v.shape[table[i].dim] == table[i].count;
        } else if (good) {
            good = memcmp(&v, &before, sizeof v) == 0;
        }
        if (!good) {
            conf_fail_at(__FILE__, __LINE__, "row %zu: %s; offset %zu, message %s", i, hd_status_name(status), v.offset,
                         hd_message());
        }
    }
    /* The result may be the tensor itself. */
    CONF_OK(hd_tensor_slice(&t, 0, 9, 10, -1, &t));
    CONF_OK(hd_tensor_slice(&t, 0, 9, 10, -1, &t));
    CONF_TRUE(t.offset == 0 && t.stride[0] == 80 && hd_tensor_is_contiguous(&t));
    conf_close(runtime);
}

static void permutes_and_broadcasts(void **state)
{
    (void)state;
    hd_buffer *b;
    hd_runtime *runtime = open_with_buffer(4096, &b);
    const uint64_t shape[] = {2, 3, 5};
    hd_tensor t, v;
    CONF_OK(hd_tensor_make(b, 4, HD_TYPE_F32, 3, shape, &t));
    const int turn[] = {2, 0, 1}, twice[] = {0, 1, 1}, outside[] = {0, 1, 3}, below[] = {0, -1, 2};
    CONF_OK(hd_tensor_permute(&t, turn, &v));
    CONF_TRUE(v.shape[0] == 5 && v.shape[1] == 2 && v.shape[2] == 3);
    CONF_TRUE(v.stride[0] == 4 && v.stride[1] == 60 && v.stride[2] == 20 && v.offset == 4);
    CONF_TRUE(!hd_tensor_is_contiguous(&v));
    CONF_FAILS_WITH(hd_tensor_permute(&t, twice, &v), HD_ERROR_ARGUMENT, "order[2]");
    CONF_FAILS(hd_tensor_permute(&t, outside, &v), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_permute(&t, below, &v), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_permute(&t, NULL, &v), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_transpose(&t, 0, 2, &v));
    CONF_TRUE(v.shape[0] == 5 && v.shape[1] == 3 && v.shape[2] == 2 && v.stride[0] == 4 && v.stride[2] == 60);
    CONF_OK(hd_tensor_transpose(&t, 1, 1, &v));
    CONF_TRUE(memcmp(&v, &t, sizeof v) == 0);
    CONF_FAILS(hd_tensor_transpose(&t, 0, 3, &v), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_transpose(&t, -1, 0, &v), HD_ERROR_ARGUMENT);

    static const struct {
        int dims, to_dims;
        uint64_t shape[4], to[4];
        bool fits;
        int64_t stride[4];
    } table[] = {
        {1, 2, {5}, {3, 5}, true, {0, 4}},
        {2, 2, {3, 1}, {3, 7}, true, {4, 0}},
        {2, 3, {1, 5}, {2, 4, 5}, true, {0, 0, 4}},
        {0, 3, {0}, {2, 3, 4}, true, {0, 0, 0}},
        {2, 2, {3, 5}, {3, 5}, true, {20, 4}},
        {2, 2, {1, 1}, {1, 1}, true, {4, 4}},
        {2, 2, {3, 1}, {3, 0}, true, {4, 0}},
        {2, 2, {3, 5}, {5, 3}, false, {0}},
        {2, 2, {3, 5}, {3, 10}, false, {0}},
        {2, 1, {3, 5}, {5}, false, {0}},
        {2, 1, {1, 5}, {5}, false, {0}},
        {2, 3, {3, 5}, {3, 5, 1}, false, {0}},
        {1, 1, {3}, {1}, false, {0}},
        {1, 1, {3}, {0}, false, {0}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        CONF_OK(hd_tensor_make(b, 0, HD_TYPE_F32, table[i].dims, table[i].shape, &t));
        hd_status status = hd_tensor_broadcast(&t, table[i].to_dims, table[i].to, &v);
        bool good = table[i].fits ? status == HD_OK : status == HD_ERROR_ARGUMENT;
        for (int k = 0; k < table[i].to_dims && good && table[i].fits; k++) {
            good = v.shape[k] == table[i].to[k] && v.stride[k] == table[i].stride[k];
        }
        if (!good) {
            conf_fail_at(__FILE__, __LINE__, "row %zu: %s: %s", i, hd_status_name(status), hd_message());
        }
    }
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_F32, 2, shape, &t));
    CONF_FAILS_WITH(hd_tensor_broadcast(&t, 3, shape, &v), HD_ERROR_ARGUMENT, "[2, 3]");
    conf_close(runtime);
}

static void reshapes(void **state)
{
    (void)state;
    hd_buffer *b;
    hd_runtime *runtime = open_with_buffer(4096, &b);
    static const struct {
        int dims;
        uint64_t shape[4];
        int64_t stride[4];
        int to_dims;
        uint64_t to[4];
        hd_status status;
        int64_t expected[4];
    } table[] = {
        {2, {4, 6}, {24, 4}, 1, {24}, HD_OK, {4}},
        {2, {4, 6}, {24, 4}, 3, {2, 3, 4}, HD_OK, {48, 16, 4}},
        {2, {4, 6}, {24, 4}, 3, {4, 2, 3}, HD_OK, {24, 12, 4}},
        {2, {4, 6}, {24, 4}, 2, {5, 5}, HD_ERROR_ARGUMENT, {0}},
        {2, {4, 6}, {4, 16}, 1, {24}, HD_ERROR_ARGUMENT, {0}}, /* column-major */
        {2, {4, 6}, {4, 16}, 4, {2, 2, 3, 2}, HD_OK, {8, 4, 32, 16}},
        {2, {4, 6}, {32, 4}, 3, {2, 2, 6}, HD_OK, {64, 32, 4}}, /* with gaps */
        {2, {4, 6}, {32, 4}, 1, {24}, HD_ERROR_ARGUMENT, {0}},
        {3, {2, 1, 3}, {12, 999, 4}, 2, {3, 2}, HD_OK, {8, 4}},
        {1, {6}, {-4}, 2, {2, 3}, HD_OK, {-12, -4}}, /* backwards */
        {1, {6}, {8}, 2, {3, 2}, HD_OK, {16, 8}},
        {1, {6}, {0}, 2, {3, 2}, HD_OK, {0, 0}},
        {2, {3, 2}, {0, 4}, 1, {6}, HD_ERROR_ARGUMENT, {0}},
        {2, {3, 2}, {0, 4}, 3, {3, 1, 2}, HD_OK, {0, 8, 4}},
        {1, {1}, {4}, 3, {1, 1, 1}, HD_OK, {4, 4, 4}},
        {0, {0}, {0}, 2, {1, 1}, HD_OK, {4, 4}},
        {2, {1, 1}, {4, 4}, 0, {0}, HD_OK, {0}},
        {2, {3, 0}, {4, 4}, 1, {0}, HD_OK, {4}},
        {2, {3, 0}, {4, 4}, 1, {3}, HD_ERROR_ARGUMENT, {0}},
        {4, {2, 3, 2, 2}, {1000, 16, 8, 4}, 2, {2, 12}, HD_OK, {1000, 4}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hd_tensor t, v;
        CONF_OK(hd_tensor_make_strided(b, 64, HD_TYPE_F32, table[i].dims, table[i].shape, table[i].stride, &t));
        hd_status status = hd_tensor_reshape(&t, table[i].to_dims, table[i].to, &v);
        bool good = status == table[i].status;
        for (int k = 0; k < table[i].to_dims && good && status == HD_OK; k++) {
            good = v.shape[k] == table[i].to[k] && v.stride[k] == table[i].expected[k] && v.offset == 64;
        }
        if (!good) {
            conf_fail_at(__FILE__, __LINE__, "row %zu: %s: %s; strides %lld %lld", i, hd_status_name(status),
                         hd_message(), (long long)v.stride[0], (long long)v.stride[1]);
        }
    }
    conf_close(runtime);
}

/* ---- against a model ---- */

enum { MODEL_MOST = 4096 };

/* The offsets of a tensor's elements in row-major order. */
typedef struct model {
    int dims;
    uint64_t shape[HD_TENSOR_DIMS];
    uint64_t n;
    uint64_t at[MODEL_MOST];
} model;

static void offsets_of(const hd_tensor *t, model *m)
{
    m->dims = t->dims;
    memcpy(m->shape, t->shape, sizeof m->shape);
    m->n = hd_tensor_elements(t);
    uint64_t index[HD_TENSOR_DIMS] = {0};
    for (uint64_t i = 0; i < m->n; i++) {
        m->at[i] = tensor_at(t->offset, t->stride, t->dims, index);
        tensor_step(t->shape, t->dims, index);
    }
}

/* Position of an index in row-major order. */
static uint64_t position(const model *m, const uint64_t *index)
{
    uint64_t p = 0;
    for (int i = 0; i < m->dims; i++) {
        p = p * m->shape[i] + index[i];
    }
    return p;
}

/* Makes `to`, whose shape is set: element `index` is the one of `from` that `map` returns. */
static void rearrange(const model *from, model *to, void (*map)(const void *, const uint64_t *, uint64_t *),
                      const void *how)
{
    to->n = 1;
    for (int i = 0; i < to->dims; i++) {
        to->n *= to->shape[i];
    }
    uint64_t index[HD_TENSOR_DIMS] = {0};
    for (uint64_t i = 0; i < to->n; i++) {
        uint64_t old[HD_TENSOR_DIMS] = {0};
        map(how, index, old);
        to->at[i] = from->at[position(from, old)];
        tensor_step(to->shape, to->dims, index);
    }
}

typedef struct view {
    int kind; /* 0: slice, 1: permute, 2: broadcast */
    int dims, dim, order[HD_TENSOR_DIMS], front;
    uint64_t first, old[HD_TENSOR_DIMS];
    int64_t step;
} view;

static void map_view(const void *how, const uint64_t *index, uint64_t *old)
{
    const view *v = how;
    for (int i = 0; i < v->dims; i++) {
        if (v->kind == 0) {
            old[i] = i == v->dim ? v->first + index[i] * (uint64_t)v->step : index[i];
        } else if (v->kind == 1) {
            old[v->order[i]] = index[i];
        } else if (i >= v->front) {
            old[i - v->front] = v->old[i - v->front] == 1 ? 0 : index[i];
        }
    }
}

static void same_offsets(const hd_tensor *t, const model *wanted, int round, const char *what)
{
    static model got;
    offsets_of(t, &got);
    bool same = got.dims == wanted->dims && got.n == wanted->n &&
                memcmp(got.shape, wanted->shape, (size_t)got.dims * sizeof got.shape[0]) == 0;
    if (!same || memcmp(got.at, wanted->at, got.n * sizeof got.at[0]) != 0) {
        conf_fail_at(__FILE__, __LINE__, "round %d: %s gives other elements", round, what);
    }
    bool contiguous = true;
    for (uint64_t i = 1; i < got.n; i++) {
        contiguous = contiguous && got.at[i] == got.at[i - 1] + hd_type_size(t->type);
    }
    CONF_EQUAL(hd_tensor_is_contiguous(t), contiguous);
}

static void random_views_are_what_a_model_says(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 1 << 20, &b));
    static model now, then;
    int reshaped = 0;
    for (int round = 0; round < 2000 / CONF_SLOWNESS; round++) {
        conf_random r = {(uint64_t)round + 500};
        tensor_layout l;
        tensor_shape(&r, 600, &l);
        tensor_strides(&r, conf_chance(&r, 50), &l);
        hd_tensor t = tensor_over(b, &l);
        offsets_of(&t, &now);
        for (int step = 0; step < 6; step++) {
            view v = {.kind = (int)conf_below(&r, 4), .dims = t.dims};
            then = now;
            if (v.kind == 0 && t.dims > 0) {
                v.dim = (int)conf_below(&r, (uint64_t)t.dims);
                uint64_t n = t.shape[v.dim], room;
                v.step = 1 + (int64_t)conf_below(&r, 4);
                v.first = conf_below(&r, n);
                room = n - v.first - 1;
                if (conf_chance(&r, 40)) {
                    v.step = -v.step;
                    room = v.first;
                }
                uint64_t size = (uint64_t)(v.step < 0 ? -v.step : v.step);
                uint64_t count = 1 + conf_below(&r, room / size + 1);
                CONF_OK(hd_tensor_slice(&t, v.dim, v.first, count, v.step, &t));
                then.shape[v.dim] = count;
                rearrange(&now, &then, map_view, &v);
            } else if (v.kind == 1) {
                for (int i = 0; i < t.dims; i++) {
                    int at = (int)conf_below(&r, (uint64_t)i + 1);
                    v.order[i] = v.order[at];
                    v.order[at] = i;
                }
                for (int i = 0; i < t.dims; i++) {
                    then.shape[i] = now.shape[v.order[i]];
                }
                CONF_OK(hd_tensor_permute(&t, v.order, &t));
                rearrange(&now, &then, map_view, &v);
            } else if (v.kind == 2 && t.dims < HD_TENSOR_DIMS) {
                v.front = (int)conf_below(&r, (uint64_t)(HD_TENSOR_DIMS - t.dims) + 1);
                v.dims = t.dims + v.front;
                memcpy(v.old, now.shape, sizeof v.old);
                uint64_t n = now.n;
                for (int i = 0; i < v.dims; i++) {
                    bool grows = i < v.front || now.shape[i - v.front] == 1;
                    uint64_t most = n ? MODEL_MOST / n : 1;
                    uint64_t by = grows ? 1 + conf_below(&r, most < 4 ? most : 4) : 1;
                    then.shape[i] = grows ? by : now.shape[i - v.front];
                    n *= by;
                }
                then.dims = v.dims;
                CONF_OK(hd_tensor_broadcast(&t, then.dims, then.shape, &t));
                rearrange(&now, &then, map_view, &v);
            } else if (v.kind == 3) {
                /* reshape: the same elements in the same order, if possible */
                then.dims = 1 + (int)conf_below(&r, 4);
                uint64_t left = now.n;
                for (int i = 0; i < then.dims; i++) {
                    uint64_t by = i == then.dims - 1 ? left : 1 + conf_below(&r, 6);
                    then.shape[i] = left % by == 0 ? by : 1;
                    left /= then.shape[i];
                }
                then.n = now.n;
                hd_tensor made;
                if (hd_tensor_reshape(&t, then.dims, then.shape, &made) == HD_OK) {
                    reshaped++;
                    t = made;
                } else {
                    CONF_TRUE(!hd_tensor_is_contiguous(&t));
                    then = now;
                }
            }
            same_offsets(&t, &then, round,
                         v.kind == 0   ? "slice"
                         : v.kind == 1 ? "permute"
                         : v.kind == 2 ? "broadcast"
                                       : "reshape");
            now = then;
        }
    }
    CONF_TRUE(reshaped > 0);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_tensor");
    const struct CMUnitTest tests[] = {
        CONF_CASE(types_have_sizes_and_names),
        CONF_CASE(makes_row_major_tensors),
        CONF_CASE(refuses_what_is_no_tensor),
        CONF_CASE(nothing_wraps),
        CONF_CASE(slices),
        CONF_CASE(permutes_and_broadcasts),
        CONF_CASE(reshapes),
        CONF_CASE(random_views_are_what_a_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
