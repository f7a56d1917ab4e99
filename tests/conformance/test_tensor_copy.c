/* test_tensor_copy.c - hd_tensor_copy between any layouts and places: every element arrives, no
 * other byte changes, order holds, and bad copies are refused before anything moves.
 *
 * Promise: hd_tensor_copy moves every element between any two layouts and changes no other byte.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "tensors.h"

/* ---- random layouts ---- */

/* Makes a layout to repeat: some dimensions of `l` become one element, and some in front go. */
static void make_repeated(conf_random *r, tensor_layout *l)
{
    for (int i = 0; i < l->dims; i++) {
        if (conf_chance(r, 30)) {
            l->shape[i] = 1;
        }
    }
    int front = l->dims > 0 ? (int)conf_below(r, (uint64_t)l->dims) : 0;
    l->dims -= front;
    memmove(l->shape, l->shape + front, (size_t)l->dims * sizeof l->shape[0]);
}

static void copy_once(hd_runtime *runtime, uint64_t seed, uint64_t elements, tensor_place to, tensor_place from)
{
    conf_random r = {seed};
    tensor_layout dst, src;
    tensor_shape(&r, elements, &dst);
    src = dst;
    tensor_strides(&r, conf_chance(&r, 50), &dst);
    if (conf_chance(&r, 25)) {
        make_repeated(&r, &src);
    }
    tensor_strides(&r, conf_chance(&r, 50), &src);
    uint8_t *dst_bytes = conf_memory(dst.bytes), *src_bytes = conf_memory(src.bytes);
    conf_pattern(dst_bytes, dst.bytes, seed + 1);
    conf_pattern(src_bytes, src.bytes, seed + 2);
    hd_buffer *x = tensor_buffer(runtime, from, src_bytes, src.bytes);
    hd_buffer *y = tensor_buffer(runtime, to, dst_bytes, dst.bytes);
    hd_tensor a = tensor_over(x, &src), b = tensor_over(y, &dst), repeated;
    hd_ticket ticket = {NULL, 77};
    CONF_OK(hd_tensor_copy(&b, &a, &ticket));
    CONF_TRUE(ticket.lane != NULL);
    CONF_OK(hd_tensor_broadcast(&a, b.dims, b.shape, &repeated));
    tensor_move(&b, dst_bytes, &repeated, src_bytes);
    hd_free(x); /* at once: submitted work keeps it */
    uint8_t *got = conf_memory(dst.bytes);
    CONF_OK(hd_read(y, 0, got, dst.bytes));
    size_t wrong = conf_difference(got, dst_bytes, dst.bytes);
    if (wrong < dst.bytes) {
        conf_fail_at(__FILE__, __LINE__, "seed %llu, from place %d to %d: byte %zu of %zu is wrong",
                     (unsigned long long)seed, (int)from, (int)to, wrong, dst.bytes);
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    hd_free(y);
    free(got);
    free(dst_bytes);
    free(src_bytes);
}

static void random_layouts(const char *settings, uint64_t seed)
{
    hd_runtime *runtime = conf_open(settings);
    int rounds = 30 / CONF_SLOWNESS + 2;
    for (int round = 0; round < rounds; round++) {
        for (int from = 0; from < PLACES; from++) {
            for (int to = 0; to < PLACES; to++) {
                copy_once(runtime, seed++, round % 6 == 5 ? 60000 : 3000, (tensor_place)to, (tensor_place)from);
            }
        }
    }
    conf_close(runtime);
}

static void random_layouts_between_all_places(void **state)
{
    (void)state;
    random_layouts(NULL, 1);
}

static void random_layouts_without_peer_access(void **state)
{
    (void)state;
    random_layouts("host_peers=none peers=off", 100000);
}

static void random_layouts_around_a_ring(void **state)
{
    (void)state;
    random_layouts("host_peers=ring host_devices=3", 200000);
}

/* Device i reaches only device i + 1: both directions between all pairs. */
static void every_pair_of_a_ring(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=ring");
    int n = hd_device_count(runtime);
    const uint64_t shape[] = {70, 90}, turned[] = {90, 70};
    static float x[70 * 90], got[90 * 70];
    for (int from = 0; from < n; from++) {
        for (int to = 0; to < n; to++) {
            hd_tensor a, b, view;
            for (int i = 0; i < 70 * 90; i++) {
                x[i] = (float)(i + 100000 * from + 1000 * to);
            }
            CONF_OK(hd_tensor_alloc(conf_default_lane(runtime, from), HD_TYPE_F32, 2, shape, &a));
            CONF_OK(hd_tensor_alloc(conf_default_lane(runtime, to), HD_TYPE_F32, 2, turned, &b));
            CONF_OK(hd_write(a.buffer, 0, x, sizeof x));
            CONF_OK(hd_tensor_transpose(&a, 0, 1, &view));
            CONF_OK(hd_tensor_copy(&b, &view, NULL));
            CONF_OK(hd_read(b.buffer, 0, got, sizeof got));
            for (int i = 0; i < 70 * 90; i++) {
                CONF_TRUE(got[i % 90 * 70 + i / 90] == x[i]);
            }
            hd_free(a.buffer);
            hd_free(b.buffer);
        }
    }
    conf_close(runtime);
}

/* Tiles that are whole, ragged, odd and misaligned, for each element size. */
static void transposes(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    static const uint64_t shapes[][2] = {{128, 256}, {256, 128}, {1, 999},  {999, 1}, {129, 65}, {317, 211},
                                         {64, 1000}, {3, 4000},  {4000, 3}, {16, 16}, {17, 15},  {511, 513}};
    static const hd_type types[] = {HD_TYPE_U8, HD_TYPE_F16, HD_TYPE_F32, HD_TYPE_F64, HD_TYPE_C128};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            /* the first bytes: even, and odd on one side or both */
            for (int start = 0; start < 4; start++) {
                size_t element = hd_type_size(types[k]), bytes = shapes[s][0] * shapes[s][1] * element + 64;
                size_t src_start = start & 1 ? element : 0, dst_start = start & 2 ? 3 * element : 0;
                uint8_t *from = conf_memory(bytes), *to = conf_memory(bytes);
                conf_pattern(from, bytes, s * 100 + k);
                conf_pattern(to, bytes, s * 100 + k + 50);
                hd_buffer *x = tensor_buffer(runtime, PLACE_FIRST, from, bytes);
                hd_buffer *y = tensor_buffer(runtime, PLACE_FIRST, to, bytes);
                const uint64_t turned[] = {shapes[s][1], shapes[s][0]};
                hd_tensor a, b;
                CONF_OK(hd_tensor_make(x, src_start, types[k], 2, shapes[s], &a));
                CONF_OK(hd_tensor_make(y, dst_start, types[k], 2, turned, &b));
                CONF_OK(hd_tensor_transpose(&a, 0, 1, &a));
                CONF_OK(hd_tensor_copy(&b, &a, NULL));
                tensor_move(&b, to, &a, from);
                CONF_HOLDS(y, 0, to, bytes);
                hd_free(x);
                hd_free(y);
                free(from);
                free(to);
            }
        }
    }
    conf_close(runtime);
}

/* The most dimensions, with no two that could merge, for all element sizes. */
static void eight_dimensions(void **state)
{
    (void)state;
    static const char *const settings[] = {"host_peers=all", "host_peers=none peers=off"};
    static const hd_type types[] = {HD_TYPE_U8, HD_TYPE_F16, HD_TYPE_F32, HD_TYPE_F64, HD_TYPE_C128};
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open(settings[s]);
        for (uint64_t round = 0; round < 40 / CONF_SLOWNESS; round++) {
            conf_random r = {round};
            const uint64_t shape[] = {2, 3, 2, 3, 2, 5, 3, 2};
            int order[8] = {7, 6, 5, 4, 3, 2, 1, 0}; /* at first; then any order */
            for (int i = 7; round > 0 && i > 0; i--) {
                int at = (int)conf_below(&r, (uint64_t)i + 1), kept = order[i];
                order[i] = order[at];
                order[at] = kept;
            }
            hd_type type = types[round % 5];
            size_t size = 2160 * hd_type_size(type);
            uint8_t *from = conf_memory(size), *to = conf_memory(size);
            conf_pattern(from, size, round);
            conf_pattern(to, size, round + 1000);
            hd_buffer *x = tensor_buffer(runtime, round % 3 == 0 ? PLACE_LAST : PLACE_FIRST, from, size);
            hd_buffer *y = tensor_buffer(runtime, round % 3 == 1 ? PLACE_LAST : PLACE_FIRST, to, size);
            hd_tensor a, b;
            CONF_OK(hd_tensor_make(x, 0, type, 8, shape, &a));
            CONF_OK(hd_tensor_permute(&a, order, &a));
            for (int i = 0; i < 8; i++) { /* and backwards */
                if (conf_chance(&r, 30)) {
                    CONF_OK(hd_tensor_slice(&a, i, a.shape[i] - 1, a.shape[i], -1, &a));
                }
            }
            CONF_OK(hd_tensor_make(y, 0, type, 8, a.shape, &b));
            CONF_OK(hd_tensor_copy(&b, &a, NULL));
            tensor_move(&b, to, &a, from);
            CONF_HOLDS(y, 0, to, size);
            CONF_OK(hd_tensor_copy(&a, &b, NULL)); /* and back */
            CONF_HOLDS(x, 0, from, size);
            memset(to, 0, size);
            CONF_OK(hd_tensor_read(&b, to));
            CONF_OK(hd_tensor_write(&a, to));
            CONF_HOLDS(x, 0, from, size);
            hd_free(x);
            hd_free(y);
            free(from);
            free(to);
        }
        conf_close(runtime);
    }
}

/* ---- one buffer ---- */

static void parts_of_one_buffer(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { n = 64, bytes = n * n * 4 };
    uint8_t *now = conf_memory(bytes);
    conf_pattern(now, bytes, 5);
    hd_buffer *x = tensor_buffer(runtime, PLACE_FIRST, now, bytes);
    const uint64_t shape[] = {n, n};
    hd_tensor whole, a, b;
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 2, shape, &whole));
    /* Even columns to odd ones. */
    CONF_OK(hd_tensor_slice(&whole, 1, 0, n / 2, 2, &a));
    CONF_OK(hd_tensor_slice(&whole, 1, 1, n / 2, 2, &b));
    CONF_OK(hd_tensor_copy(&b, &a, NULL));
    tensor_move(&b, now, &a, now);
    CONF_HOLDS(x, 0, now, bytes);
    /* The upper rows, backwards, to the lower ones. */
    CONF_OK(hd_tensor_slice(&whole, 0, n / 2 - 1, n / 2, -1, &a));
    CONF_OK(hd_tensor_slice(&whole, 0, n / 2, n / 2, 1, &b));
    CONF_OK(hd_tensor_copy(&b, &a, NULL));
    tensor_move(&b, now, &a, now);
    CONF_HOLDS(x, 0, now, bytes);
    /* A quarter to the one beside it, whose rows lie in between; and transposed. */
    CONF_OK(hd_tensor_slice(&whole, 0, 0, n / 2, 1, &a));
    CONF_OK(hd_tensor_slice(&a, 1, 0, n / 2, 1, &a));
    CONF_OK(hd_tensor_slice(&whole, 0, 0, n / 2, 1, &b));
    CONF_OK(hd_tensor_slice(&b, 1, n / 2, n / 2, 1, &b));
    CONF_OK(hd_tensor_copy(&b, &a, NULL));
    tensor_move(&b, now, &a, now);
    CONF_HOLDS(x, 0, now, bytes);
    hd_tensor turned;
    CONF_OK(hd_tensor_transpose(&a, 0, 1, &turned));
    CONF_OK(hd_tensor_copy(&b, &turned, NULL));
    tensor_move(&b, now, &turned, now);
    CONF_HOLDS(x, 0, now, bytes);
    /* A row of one half to all rows of the other. */
    hd_tensor row;
    CONF_OK(hd_tensor_slice(&a, 0, 5, 1, 1, &row));
    CONF_OK(hd_tensor_copy(&b, &row, NULL));
    CONF_OK(hd_tensor_broadcast(&row, b.dims, b.shape, &row));
    tensor_move(&b, now, &row, now);
    CONF_HOLDS(x, 0, now, bytes);
    /* Real parts of a complex matrix to the imaginary ones of its transpose. */
    const uint64_t pairs[] = {n, n / 2, 2};
    hd_tensor complex, real, imaginary;
    CONF_OK(hd_tensor_reshape(&whole, 3, pairs, &complex));
    CONF_OK(hd_tensor_slice(&complex, 0, 0, n / 2, 1, &complex));
    CONF_OK(hd_tensor_slice(&complex, 2, 0, 1, 1, &real));
    CONF_OK(hd_tensor_slice(&complex, 2, 1, 1, 1, &imaginary));
    CONF_OK(hd_tensor_transpose(&real, 0, 1, &real));
    CONF_OK(hd_tensor_copy(&imaginary, &real, NULL));
    tensor_move(&imaginary, now, &real, now);
    CONF_HOLDS(x, 0, now, bytes);
    free(now);
    conf_close(runtime);
}

static void overlap_is_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { n = 64, bytes = n * n * 4 };
    uint8_t *now = conf_memory(bytes);
    conf_pattern(now, bytes, 6);
    hd_buffer *x = tensor_buffer(runtime, PLACE_FIRST, now, bytes);
    const uint64_t shape[] = {n, n};
    hd_tensor whole, a, b;
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 2, shape, &whole));
    CONF_FAILS_WITH(hd_tensor_copy(&whole, &whole, NULL), HD_ERROR_ARGUMENT, "overlap");
    CONF_OK(hd_tensor_transpose(&whole, 0, 1, &a));
    CONF_FAILS(hd_tensor_copy(&whole, &a, NULL), HD_ERROR_ARGUMENT);
    /* Columns 0.. and columns 1.., 2 rows up, a byte off. */
    CONF_OK(hd_tensor_slice(&whole, 1, 0, n / 2, 1, &a));
    CONF_OK(hd_tensor_slice(&whole, 1, 1, n / 2, 1, &b));
    CONF_FAILS(hd_tensor_copy(&b, &a, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_slice(&whole, 1, n / 2 - 1, n / 2, 1, &b));
    CONF_FAILS(hd_tensor_copy(&b, &a, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_slice(&a, 0, 0, n - 2, 1, &a));
    CONF_OK(hd_tensor_slice(&whole, 0, 2, n - 2, 1, &b));
    CONF_OK(hd_tensor_slice(&b, 1, 0, n / 2, 1, &b));
    CONF_FAILS(hd_tensor_copy(&b, &a, NULL), HD_ERROR_ARGUMENT);
    b.offset += n / 2 * 4 - 3;
    CONF_FAILS(hd_tensor_copy(&b, &a, NULL), HD_ERROR_ARGUMENT);
    b.offset += 3; /* the other half of the columns, two rows further down */
    CONF_OK(hd_tensor_slice(&b, 0, 0, n - 3, 1, &b));
    CONF_OK(hd_tensor_slice(&a, 0, 0, n - 3, 1, &a));
    CONF_OK(hd_tensor_copy(&b, &a, NULL));
    tensor_move(&b, now, &a, now);
    CONF_HOLDS(x, 0, now, bytes);

    /* A destination that contains an element twice. */
    hd_buffer *y = tensor_buffer(runtime, PLACE_FIRST, now, bytes);
    hd_tensor source;
    CONF_OK(hd_tensor_make(y, 0, HD_TYPE_F32, 2, shape, &source));
    static const int64_t strides[][2] = {{0, 4}, {4, 4}, {4, 0}, {252, 4}, {-252, 4}, {256, 3}, {128, 4}, {4, 252}};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        hd_tensor twice;
        size_t offset = strides[i][0] < 0 ? 252 * (n - 1) : 0;
        CONF_OK(hd_tensor_make_strided(x, offset, HD_TYPE_F32, 2, shape, strides[i], &twice));
        CONF_FAILS_WITH(hd_tensor_copy(&twice, &source, NULL), HD_ERROR_ARGUMENT, "twice");
        CONF_FAILS(hd_tensor_write(&twice, now), HD_ERROR_ARGUMENT);
        CONF_OK(hd_tensor_copy(&source, &twice, NULL)); /* a source may */
    }
    CONF_HOLDS(x, 0, now, bytes);

    /* The program's side lies inside the pinned buffer itself. */
    hd_buffer *pinned = tensor_buffer(runtime, PLACE_PINNED, now, bytes);
    uint8_t *memory = NULL;
    CONF_OK(hd_map(pinned, HD_READ_WRITE, (void **)&memory));
    CONF_OK(hd_tensor_make(pinned, 0, HD_TYPE_F32, 2, shape, &whole));
    CONF_OK(hd_tensor_transpose(&whole, 0, 1, &a));
    for (int turned = 0; turned < 2; turned++) {
        const hd_tensor *t = turned ? &a : &whole;
        CONF_FAILS_WITH(hd_tensor_write(t, memory), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_tensor_write(t, memory + bytes - 1), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_tensor_read(t, memory), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_tensor_read(t, memory + bytes - 1), HD_ERROR_ARGUMENT, "overlap");
    }
    hd_unmap(pinned);
    CONF_HOLDS(pinned, 0, now, bytes);
    free(now);
    conf_close(runtime);
}

/* ---- refusals ---- */

static void bad_copies_move_nothing(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL), *other = conf_open(NULL);
    enum { bytes = 4096 };
    uint8_t content[bytes];
    conf_pattern(content, bytes, 7);
    hd_buffer *x = tensor_buffer(runtime, PLACE_FIRST, content, bytes);
    hd_buffer *y = tensor_buffer(runtime, PLACE_FIRST, content, bytes);
    hd_buffer *elsewhere = tensor_buffer(other, PLACE_FIRST, content, bytes);
    hd_buffer *freed = tensor_buffer(runtime, PLACE_FIRST, content, bytes);
    const uint64_t shape[] = {4, 5, 6}, turned[] = {6, 5, 4}, small[] = {5, 6};
    hd_tensor a, b, bad;
    hd_ticket ticket = {NULL, 99};
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 3, shape, &a));
    CONF_OK(hd_tensor_make(y, 0, HD_TYPE_F32, 3, shape, &b));
    CONF_FAILS(hd_tensor_copy(NULL, &a, &ticket), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_copy(&b, NULL, &ticket), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_I32, 3, shape, &bad));
    CONF_FAILS_WITH(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_ARGUMENT, "i32");
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 3, turned, &bad));
    CONF_FAILS_WITH(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_ARGUMENT, "[6, 5, 4]");
    CONF_FAILS_WITH(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_ARGUMENT, "[4, 5, 6]");
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 2, small, &bad));
    /* only a source may be repeated */
    CONF_FAILS(hd_tensor_copy(&bad, &b, &ticket), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_make(elsewhere, 0, HD_TYPE_F32, 3, shape, &bad));
    CONF_FAILS_WITH(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_HANDLE, "runtimes");
    CONF_OK(hd_tensor_make(freed, 0, HD_TYPE_F32, 3, shape, &bad));
    hd_free(freed);
    CONF_FAILS_WITH(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_HANDLE, "src");
    CONF_FAILS_WITH(hd_tensor_copy(&bad, &b, &ticket), HD_ERROR_HANDLE, "dst");
    CONF_FAILS(hd_tensor_write(&bad, content), HD_ERROR_HANDLE);
    CONF_FAILS(hd_tensor_read(&bad, content), HD_ERROR_HANDLE);
    bad = a;
    bad.offset = bytes - 479;
    CONF_FAILS_WITH(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_RANGE, "src");
    CONF_FAILS_WITH(hd_tensor_copy(&bad, &b, &ticket), HD_ERROR_RANGE, "dst");
    bad = a;
    bad.stride[0] = INT64_MIN;
    CONF_FAILS(hd_tensor_copy(&bad, &b, &ticket), HD_ERROR_RANGE);
    bad = a;
    bad.dims = -5;
    CONF_FAILS(hd_tensor_copy(&bad, &b, &ticket), HD_ERROR_ARGUMENT);
    bad = a;
    bad.type = (hd_type)-1;
    CONF_FAILS(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_ARGUMENT);
    bad = a;
    bad.buffer = NULL;
    CONF_FAILS(hd_tensor_copy(&b, &bad, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_tensor_write(&b, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_read(&b, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_write(NULL, content), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_tensor_read(NULL, content), HD_ERROR_ARGUMENT);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 99);
    CONF_HOLDS(x, 0, content, bytes);
    CONF_HOLDS(y, 0, content, bytes);

    /* A copy of no elements is no error. */
    const uint64_t none[] = {4, 0, 6}, one[] = {4, 1, 6};
    hd_tensor empty, single;
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 3, none, &empty));
    CONF_OK(hd_tensor_make(y, 0, HD_TYPE_F32, 3, one, &single));
    CONF_OK(hd_tensor_copy(&empty, &empty, &ticket));
    CONF_TRUE(hd_done(ticket));
    CONF_OK(hd_tensor_copy(&empty, &single, NULL));
    CONF_FAILS(hd_tensor_copy(&single, &empty, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_tensor_write(&empty, NULL));
    CONF_OK(hd_tensor_read(&empty, NULL));
    conf_close(other);
    conf_close(runtime);
}

/* ---- order ---- */

/* Writers and readers before and behind copies of elements, in other lanes and on other devices,
 * without any wait in between. */
static void copies_are_ordered(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    int last = hd_device_count(runtime) - 1;
    enum { n = 96, words = n * n };
    hd_lane *a = NULL, *b = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &a));
    CONF_OK(hd_lane_create(runtime, last, &b));
    const uint64_t shape[] = {n, n};
    hd_tensor x, y, z, view;
    CONF_OK(hd_tensor_alloc(a, HD_TYPE_U32, 2, shape, &x));
    CONF_OK(hd_tensor_alloc(b, HD_TYPE_U32, 2, shape, &y));
    CONF_OK(hd_tensor_alloc(a, HD_TYPE_U32, 2, shape, &z));
    static uint32_t got[words], wanted[words];
    for (uint32_t round = 0; round < 30; round++) {
        /* x: `round` above, 1000 + round below. y = x transposed. x is overwritten at once. Then z
         * = y transposed back. */
        CONF_OK(conf_fill(a, k, x.buffer, 0, words / 2, round, NULL));
        CONF_OK(conf_fill(a, k, x.buffer, words / 2 * 4, words / 2, 1000 + round, NULL));
        CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
        CONF_OK(hd_tensor_copy(&y, &view, NULL));
        CONF_OK(conf_fill(a, k, x.buffer, 0, words, 5, NULL));
        CONF_OK(hd_tensor_transpose(&y, 0, 1, &view));
        CONF_OK(hd_tensor_copy(&z, &view, NULL));
        CONF_OK(conf_fill(b, k, y.buffer, 0, words, 6, NULL));
    }
    for (int i = 0; i < words; i++) {
        wanted[i] = i < words / 2 ? 29 : 1029;
    }
    CONF_OK(hd_read(z.buffer, 0, got, sizeof got));
    CONF_SAME(got, wanted, sizeof got);
    CONF_FILLED(x.buffer, 0, 5, sizeof got);
    CONF_FILLED(y.buffer, 0, 6, sizeof got);
    conf_close(runtime);
}

/* Work on the device writes columns of a unified buffer while the columns in between are newer on
 * the host. */
static void unified_bytes_in_between_are_kept(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { rows = 300, columns = 200, bytes = rows * columns * 4 };
    uint8_t *now = conf_memory(bytes), *source = conf_memory(bytes);
    conf_pattern(source, bytes, 9);
    hd_buffer *u = NULL;
    CONF_OK(hd_alloc_unified(conf_default_lane(runtime, 0), bytes, &u));
    hd_buffer *x = tensor_buffer(runtime, PLACE_FIRST, source, bytes);
    const uint64_t shape[] = {rows, columns};
    hd_tensor t, s, a, b;
    CONF_OK(hd_tensor_make(u, 0, HD_TYPE_F32, 2, shape, &t));
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 2, shape, &s));
    for (int round = 0; round < 4; round++) {
        void *p = NULL;
        CONF_OK(hd_map(u, HD_WRITE, &p));
        conf_pattern(p, bytes, (uint64_t)round + 20);
        memcpy(now, p, bytes);
        hd_unmap(u);
        CONF_OK(hd_tensor_slice(&t, 1, (uint64_t)round, columns / 4, 4, &a));
        CONF_OK(hd_tensor_slice(&s, 1, 0, columns / 4, 1, &b));
        CONF_OK(hd_tensor_copy(&a, &b, NULL));
        tensor_move(&a, now, &b, source);
        CONF_OK(hd_map(u, HD_READ, &p));
        CONF_SAME((uint8_t *)p, now, bytes);
        hd_unmap(u);
        /* All of it, backwards: the copy moves nothing to the device. */
        CONF_OK(hd_tensor_slice(&t, 0, rows - 1, rows, -1, &a));
        CONF_OK(hd_tensor_copy(&a, &s, NULL));
        tensor_move(&a, now, &s, source);
        CONF_HOLDS(u, 0, now, bytes);
    }
    free(now);
    free(source);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_tensor_copy");
    const struct CMUnitTest tests[] = {
        CONF_CASE(random_layouts_between_all_places),
        CONF_CASE(random_layouts_without_peer_access),
        CONF_CASE(random_layouts_around_a_ring),
        CONF_CASE(every_pair_of_a_ring),
        CONF_CASE(transposes),
        CONF_CASE(eight_dimensions),
        CONF_CASE(parts_of_one_buffer),
        CONF_CASE(overlap_is_refused),
        CONF_CASE(bad_copies_move_nothing),
        CONF_CASE(copies_are_ordered),
        CONF_CASE(unified_bytes_in_between_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
