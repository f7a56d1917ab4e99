/* test_matmul_use.c - uses of matrix products.
 *
 * Promise: Bad products are refused; good ones use the library named and keep the order of work.
 *
 * - refusals, and the library that makes the products, with the reason for the choice
 * - order, failures, threads
 * - memory for a library, for which Heddle calls the program's reclaim callback
 *
 * Threads: the main one, and several that make products at once.
 * Locks: none.
 */
#include "matmul.h"

#include <pthread.h>

/* ---- refusals ---- */

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL), *another = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL, *z = NULL, *foreign = NULL;
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_alloc(lane, 4096, &y));
    CONF_OK(hd_alloc(lane, 4096, &z));
    CONF_OK(hd_alloc(conf_default_lane(another, 0), 4096, &foreign));
    CONF_OK(hd_fill(z, 0, 77, 4096, NULL));
    hd_tensor a = tensor(x, HD_TYPE_F32, 3, 5), b = tensor(y, HD_TYPE_F32, 5, 4), c = tensor(z, HD_TYPE_F32, 3, 4);
    hd_ticket ticket = {NULL, 9};
#define REFUSED(status, word) CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, &ticket), status, word)
#define WITH(change, status, word)                                                                                     \
    do {                                                                                                               \
        hd_tensor a_ = a, b_ = b, c_ = c;                                                                              \
        change;                                                                                                        \
        REFUSED(status, word);                                                                                         \
        a = a_, b = b_, c = c_;                                                                                        \
    } while (0)
    CONF_FAILS_WITH(hd_tensor_matmul(NULL, &c, &a, &b, 1, 0, &ticket), HD_ERROR_HANDLE, "lane");
    CONF_FAILS_WITH(hd_tensor_matmul(lane, NULL, &a, &b, 1, 0, &ticket), HD_ERROR_ARGUMENT, "c is null");
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, NULL, &b, 1, 0, &ticket), HD_ERROR_ARGUMENT, "a is null");
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, &a, NULL, 1, 0, &ticket), HD_ERROR_ARGUMENT, "b is null");
    WITH(b.shape[0] = 6, HD_ERROR_ARGUMENT, "f32 [6, 4]");
    WITH(c.shape[1] = 3, HD_ERROR_ARGUMENT, "f32 [3, 3]");
    WITH(a.shape[0] = 2, HD_ERROR_ARGUMENT, "f32 [2, 5]");
    WITH(a.dims = 1, HD_ERROR_ARGUMENT, "dimensions");
    WITH(c.dims = 9, HD_ERROR_ARGUMENT, "dimensions");
    WITH(b.type = HD_TYPE_F64, HD_ERROR_ARGUMENT, "one type");
    WITH(b.type = HD_TYPE_I32, HD_ERROR_ARGUMENT, "i32");
    WITH(b.type = (hd_type)99, HD_ERROR_ARGUMENT, "type");
    WITH(a.offset = 2, HD_ERROR_ARGUMENT, "multiple");
    WITH(a.stride[0] = 22, HD_ERROR_ARGUMENT, "multiple");
    WITH(c.stride[1] = 0, HD_ERROR_ARGUMENT, "twice");
    WITH(c.stride[0] = 8, HD_ERROR_ARGUMENT, "twice");
    WITH(a.buffer = z, HD_ERROR_ARGUMENT, "overlap");
    WITH((b.buffer = z, b.offset = 40), HD_ERROR_ARGUMENT, "overlap");
    WITH(a.buffer = NULL, HD_ERROR_HANDLE, "a");
    WITH(c.buffer = foreign, HD_ERROR_HANDLE, "runtime");
    WITH(a.offset = 4096 - 56, HD_ERROR_RANGE, "4096");
    WITH((a.stride[0] = -20, a.offset = 36), HD_ERROR_RANGE, "a");
    WITH(c.stride[0] = INT64_MAX / 4 * 4, HD_ERROR_RANGE, "c");
    WITH((a.dims = 3, a.shape[0] = 2, a.shape[1] = 3, a.shape[2] = 5, a.stride[2] = 4, a.stride[1] = 20,
          a.stride[0] = 60),
         HD_ERROR_ARGUMENT, "broadcast");
    hd_buffer *freed = NULL;
    CONF_OK(hd_alloc(lane, 4096, &freed));
    hd_free(freed);
    WITH(b.buffer = freed, HD_ERROR_HANDLE, "b");
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    hd_matmul_info info = {.size = sizeof info};
    CONF_FAILS(hd_matmul_get_info(NULL, &info), HD_ERROR_HANDLE);
    CONF_FAILS(hd_matmul_get_info(lane, NULL), HD_ERROR_ARGUMENT);
    info.size = 0;
    CONF_FAILS(hd_matmul_get_info(lane, &info), HD_ERROR_ARGUMENT);
    CONF_FILLED(z, 0, 77, 4096);
    CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
    CONF_OK(hd_fill(y, 0, 0, 4096, NULL));
    CONF_OK(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, NULL));
    CONF_FILLED(z, 0, 0, 48);
    CONF_FILLED(z, 48, 77, 4096 - 48);
    conf_close(another);
    conf_close(runtime);
}

/* The halves of a matrix lie in each other's range without sharing an element. */
static void parts_of_one_buffer(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    enum { N = 24 };
    float x[N * 3 * N], got[N * 3 * N];
    conf_random r = {1};
    for (size_t i = 0; i < N * 3 * N; i++) {
        x[i] = (float)conf_below(&r, 10) - 4;
    }
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(lane, sizeof x, &buffer));
    CONF_OK(hd_write(buffer, 0, x, sizeof x));
    hd_tensor t[3];
    for (int i = 0; i < 3; i++) { /* columns 0..23, 24..47, 48..71 */
        t[i] = tensor(buffer, HD_TYPE_F32, N, N);
        t[i].stride[0] = 3 * N * 4;
        t[i].offset = (size_t)i * N * 4;
    }
    CONF_OK(hd_tensor_matmul(lane, &t[1], &t[0], &t[2], 1, 0, NULL));
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < N; k++) {
                sum += x[i * 3 * N + k] * x[k * 3 * N + 2 * N + j];
            }
            x[i * 3 * N + N + j] = sum; /* whole numbers: exact */
        }
    }
    CONF_OK(hd_read(buffer, 0, got, sizeof got));
    CONF_SAME(got, x, sizeof x);
    t[1].offset += 4; /* now they share one column */
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &t[1], &t[0], &t[2], 1, 0, NULL), HD_ERROR_ARGUMENT, "overlap");
    conf_close(runtime);
}

static void a_buffer_out_of_reach_is_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=none");
    CONF_NEED_DEVICES(runtime, 2);
    if (conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *here = NULL, *there = NULL, *out = NULL;
    CONF_OK(hd_alloc(lane, 4096, &here));
    CONF_OK(hd_alloc(lane, 4096, &out));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 1), 4096, &there));
    CONF_OK(hd_fill(out, 0, 5, 4096, NULL));
    hd_tensor a = tensor(here, HD_TYPE_F64, 8, 8), b = tensor(there, HD_TYPE_F64, 8, 8),
              c = tensor(out, HD_TYPE_F64, 8, 8);
    hd_ticket ticket = {NULL, 9};
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, &ticket), HD_ERROR_UNREACHABLE, "device 1");
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &b, &a, &c, 1, 0, &ticket), HD_ERROR_UNREACHABLE, "hd_copy");
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    CONF_FILLED(out, 0, 5, 4096);
    conf_close(runtime);
}

/* ---- libraries ---- */

static void libraries_are_named_or_their_lack_explained(void **state)
{
    (void)state;
    char name[64], why[512];
    hd_runtime *runtime = conf_open("blas=builtin");
    CONF_OK(conf_matmul_library(conf_default_lane(runtime, 0), name, sizeof name, why, sizeof why));
    CONF_TRUE(strcmp(name, "built-in") == 0 && strstr(why, "blas=builtin") != NULL);
    conf_close(runtime);

    runtime = conf_open("blas=auto");
    CONF_OK(conf_matmul_library(conf_default_lane(runtime, 0), name, sizeof name, why, sizeof why));
    print_message("blas=auto: %s (%s)\n", name, why);
    CONF_TRUE(strcmp(name, "built-in") != 0 || strstr(why, ".so") != NULL);
    conf_close(runtime);

    const char *const bad[] = {"/nonexistent/libblas.so", "/dev/null", "libc.so.6", "\"\""};
    /* a missing file, a file that is no library, another library, an empty name */
    for (size_t i = 0; i < 4; i++) {
        runtime = conf_open_with("blas=%s", bad[i]);
        hd_lane *lane = conf_default_lane(runtime, 0);
        memset(name, 'x', sizeof name);
        CONF_FAILS_WITH(conf_matmul_library(lane, name, sizeof name, why, sizeof why), HD_ERROR_OPTION,
                        i < 3 ? bad[i] : "no library is named");
        CONF_TRUE(name[0] == 'x');
        hd_buffer *x = NULL, *y = NULL;
        CONF_OK(hd_alloc(lane, 4096, &x));
        CONF_OK(hd_alloc(lane, 4096, &y));
        CONF_OK(hd_fill(y, 0, 3, 4096, NULL));
        hd_tensor a = tensor(x, HD_TYPE_F32, 4, 4), c = tensor(y, HD_TYPE_F32, 4, 4);
        CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, NULL), HD_ERROR_OPTION, "blas=");
        CONF_FILLED(y, 0, 3, 4096);
        conf_close(runtime);
    }
}

/* ---- order ---- */

static void products_are_ordered_by_their_buffers(void **state)
{
    (void)state;
    enum { N = 48, ROUNDS = 12 };
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        if (runtime == NULL) {
            continue;
        }
        hd_lane *lane[3];
        for (int i = 0; i < 3; i++) {
            CONF_OK(hd_lane_create(runtime, 0, &lane[i]));
        }
        static float identity[N * N], x[N * N], got[N * N];
        conf_random r = {5};
        for (size_t i = 0; i < N * N; i++) {
            identity[i] = i % (N + 1) == 0 ? 1.0f : 0.0f;
            x[i] = (float)conf_below(&r, 1000);
        }
        hd_buffer *one = NULL, *from = NULL, *to = NULL;
        CONF_OK(hd_alloc(lane[0], sizeof identity, &one));
        CONF_OK(hd_write(one, 0, identity, sizeof identity));
        CONF_OK(hd_alloc(lane[0], sizeof x, &from));
        CONF_OK(hd_write(from, 0, x, sizeof x));
        /* Each round: to = 2 from in one lane. `from` is freed at once, and `to` is the next
         * round's `from`, in the next lane. */
        for (int i = 0; i < ROUNDS; i++) {
            CONF_OK(hd_alloc(lane[i % 3], sizeof x, &to));
            hd_tensor a = tensor(from, HD_TYPE_F32, N, N), b = tensor(one, HD_TYPE_F32, N, N);
            hd_tensor c = tensor(to, HD_TYPE_F32, N, N);
            CONF_OK(hd_tensor_matmul(lane[i % 3], &c, &a, &b, 2, 0, NULL));
            hd_free(from);
            from = to;
        }
        for (size_t i = 0; i < N * N; i++) {
            x[i] *= (float)(1 << ROUNDS);
        }
        CONF_OK(hd_read(from, 0, got, sizeof got));
        CONF_SAME(got, x, sizeof x);
        conf_close(runtime);
    }
}

static void every_kind_of_buffer(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        if (runtime == NULL) {
            continue;
        }
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *pinned = NULL, *unified = NULL, *device = NULL;
        CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
        CONF_OK(hd_alloc_unified(lane, 4096, &unified));
        CONF_OK(hd_alloc(lane, 4096, &device));
        float x[16 * 16], got[16 * 16], wanted[16 * 16];
        for (int i = 0; i < 16 * 16; i++) {
            x[i] = (float)(i % 7);
        }
        CONF_OK(hd_write(pinned, 0, x, sizeof x));
        CONF_OK(hd_write(device, 0, x, sizeof x));
        for (int i = 0; i < 16 * 16; i++) {
            wanted[i] = 0;
            for (int k = 0; k < 16; k++) {
                wanted[i] += x[i / 16 * 16 + k] * x[k * 16 + i % 16];
            }
        }
        hd_tensor p = tensor(pinned, HD_TYPE_F32, 16, 16), u = tensor(unified, HD_TYPE_F32, 16, 16);
        hd_tensor d = tensor(device, HD_TYPE_F32, 16, 16);
        CONF_OK(hd_tensor_matmul(lane, &u, &p, &d, 1, 0, NULL)); /* unified = pinned x device */
        float element = -1;
        CONF_TRUE(hd_get_f32(unified, 17, &element));
        CONF_TRUE(element == wanted[17]);
        CONF_OK(hd_read(unified, 0, got, sizeof got));
        CONF_SAME(got, wanted, sizeof wanted);
        CONF_OK(hd_write(unified, 0, x, sizeof x));
        CONF_OK(hd_tensor_matmul(lane, &p, &u, &d, 1, 0, NULL)); /* pinned = unified x device */
        CONF_OK(hd_read(pinned, 0, got, sizeof got));
        CONF_SAME(got, wanted, sizeof wanted);
        conf_close(runtime);
    }
}

/* ---- failures ---- */

static void a_failed_product_has_an_address(void **state)
{
    (void)state;
    for (int by_library = 0; by_library < 2; by_library++) {
        int way = by_library ? library_way() : BUILT_IN;
        if (way < 0) {
            continue;
        }
        hd_runtime *runtime =
            conf_open_with("%s fault=%s:2=1", ways[way], by_library ? "blasProduct" : "cuLaunchKernel");
        hd_lane *lane = NULL, *other = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        CONF_OK(hd_lane_create(runtime, 0, &other));
        hd_buffer *x = NULL, *y = NULL, *z = NULL;
        CONF_OK(hd_alloc(lane, 4096, &x));
        CONF_OK(hd_alloc(lane, 4096, &y));
        CONF_OK(hd_alloc(lane, 4096, &z));
        CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
        CONF_OK(hd_fill(z, 0, 7, 4096, NULL));
        hd_tensor a = tensor(x, HD_TYPE_F32, 16, 16), c = tensor(y, HD_TYPE_F32, 16, 16),
                  d = tensor(z, HD_TYPE_F32, 16, 16);
        hd_ticket first, second;
        CONF_OK(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &first));
        CONF_OK(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &second));
        CONF_OK(hd_wait(first, 60 * CONF_SECOND));
        CONF_FAILS_WITH(hd_wait(second, 60 * CONF_SECOND), HD_ERROR_FAILED,
                        by_library ? "a matrix product" : "hd_product_f32");
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        CONF_EQUAL(error.device, 0);
        CONF_EQUAL(error.lane, hd_lane_number(lane));
        CONF_EQUAL(error.ticket, second.sequence);
        CONF_EQUAL(error.driver_code, 1);
        CONF_TRUE(strcmp(error.operation, by_library ? "matrix product" : "launch") == 0);
        CONF_FAILS(hd_tensor_matmul(lane, &d, &a, &a, 1, 0, NULL), HD_ERROR_LANE_FAILED);
        /* reads unwritten bytes */
        CONF_FAILS(hd_tensor_matmul(other, &d, &c, &a, 1, 0, NULL), HD_ERROR_FAILED);
        CONF_FILLED(z, 0, 7, 4096);
        /* Bytes that are written without being read are valid again. */
        CONF_OK(hd_tensor_matmul(other, &c, &a, &a, 1, 0, NULL));
        CONF_FILLED(y, 0, 0, 1024);
        CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
        CONF_OK(hd_tensor_matmul(lane, &d, &c, &a, 1, 0, NULL));
        CONF_FILLED(z, 0, 0, 1024);
        conf_close(runtime);
    }
}

/* A product into every other column does not make the bytes in between valid. */
static void what_lies_in_between_stays_failed(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "fault=cuMemcpyHtoDAsync:1=1");
        if (runtime == NULL) {
            continue;
        }
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *x = NULL, *z = NULL;
        static uint8_t content[4096], got[4096];
        CONF_OK(hd_alloc(lane, 4096, &x));
        CONF_OK(hd_alloc(lane, 4096, &z));
        CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
        hd_tensor a = tensor(x, HD_TYPE_F32, 16, 16), c = tensor(z, HD_TYPE_F32, 16, 16), dense = c;
        c.stride[0] = 128;
        c.stride[1] = 8;
        /* loads the library, or the kernel */
        CONF_OK(hd_tensor_matmul(lane, &dense, &a, &a, 1, 0, NULL));
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        CONF_OK(hd_write(z, 0, content, 4096)); /* fails */
        CONF_FAILS(hd_buffer_wait(z, HD_READ, 60 * CONF_SECOND), HD_ERROR_FAILED);
        CONF_FAILS(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, NULL), HD_ERROR_FAILED);
        CONF_FAILS(hd_read(z, 0, got, 4096), HD_ERROR_FAILED);
        /* all bytes that it covers are new */
        CONF_OK(hd_tensor_matmul(lane, &dense, &a, &a, 1, 0, NULL));
        CONF_OK(hd_fill(z, 1024, 9, 3072, NULL));
        CONF_FILLED(z, 0, 0, 1024);
        CONF_FILLED(z, 1024, 9, 3072);
        conf_close(runtime);
    }
}

static void a_library_that_does_not_open_may_open_later(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=blasOpen:1=2");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_alloc(lane, 4096, &y));
    CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
    CONF_OK(hd_fill(y, 0, 7, 4096, NULL));
    hd_tensor a = tensor(x, HD_TYPE_F32, 16, 16), c = tensor(y, HD_TYPE_F32, 16, 16);
    hd_ticket ticket = {NULL, 9};
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &ticket), HD_ERROR_MEMORY, "blasOpen");
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    CONF_FILLED(y, 0, 7, 4096);
    CONF_OK(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &ticket));
    CONF_FILLED(y, 0, 0, 1024);
    conf_close(runtime);
}

/* ---- lack of memory ---- */

typedef struct saver {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *spare;
    int calls, products;
} saver;

/* Gives memory back, and makes a product in the same lane meanwhile: a thread that gets memory for
 * a library must not block it. */
static bool multiplies(void *context, const hd_reclaim *what)
{
    (void)what;
    saver *s = context;
    static bool inside; /* allocations in here do not call back, but those of other threads may */
    s->calls++;
    hd_free(s->spare);
    s->spare = NULL;
    hd_buffer *x = NULL;
    if (!inside && hd_alloc_host(s->runtime, 4096, &x) == HD_OK) {
        inside = true;
        hd_tensor a = tensor(x, HD_TYPE_F32, 16, 16), c = a;
        c.offset = 1024;
        s->products += hd_tensor_matmul(s->lane, &c, &a, &a, 1, 0, NULL) == HD_OK;
        inside = false;
    }
    hd_free(x);
    return true;
}

/* A library needs memory while none is left. */
static void memory_for_a_library_is_made_room_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("memory_limit=96M memory_timeout=20 memory_reclaim=0");
    hd_lane *lane = conf_default_lane(runtime, 0), *other = NULL;
    saver s = {.runtime = runtime, .lane = lane};
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &x));
    CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
    CONF_OK(hd_alloc(lane, (size_t)72 << 20, &s.spare));
    CONF_OK(hd_memory_on_reclaim(runtime, multiplies, &s));
    hd_tensor a = tensor(x, HD_TYPE_F32, 16, 16), c = a;
    c.offset = 1024;
    CONF_OK(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, NULL));
    CONF_FILLED(x, 0, 0, 4096);
    CONF_OK(hd_lane_create(runtime, 0, &other));
    CONF_OK(hd_tensor_matmul(other, &c, &a, &a, 1, 0, NULL));
    CONF_FILLED(x, 0, 0, 4096);
    CONF_EQUAL(s.calls > 0, conf_on_gpus); /* there the library uses memory of the device */
    CONF_EQUAL(s.products > 0, s.calls > 0);
    CONF_OK(hd_memory_on_reclaim(runtime, NULL, NULL));
    conf_close(runtime);
}

/* Operands that a library does not accept are copied if there is room. The kernel uses them as they
 * are. */
static void without_room_for_copies_products_are_right(void **state)
{
    (void)state;
    enum { N = 1536 }; /* 9 MiB */
    int way = library_way();
    if (way < 0) {
        skip();
    }
    hd_runtime *runtime = conf_open_with("%s memory_limit=%s memory_timeout=20 memory_reclaim=0", ways[way],
                                         conf_on_gpus ? "66M" : "32M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    const uint64_t shape[] = {N, N};
    const float values[] = {2, 3, 7}, wanted = 6 * N + 7;
    hd_tensor t[3], back;
    hd_buffer *none = NULL;
    char name[64];
    /* on a GPU it uses its 32 MiB by now */
    CONF_OK(conf_matmul_library(lane, name, sizeof name, NULL, 0));
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &t[i]));
        CONF_OK(hd_fill(t[i].buffer, 0, conf_bits(values[i]), N * N * 4, NULL));
    }
    CONF_FAILS(hd_alloc(lane, N * N * 4, &none), HD_ERROR_MEMORY);
    CONF_OK(hd_tensor_slice(&t[0], 0, N - 1, N, -1, &back));
    CONF_OK(hd_tensor_matmul(lane, &t[2], &back, &t[1], 1, 1, NULL));
    CONF_FILLED(t[2].buffer, 0, conf_bits(wanted), N * N * 4);
    conf_close(runtime);
}

/* ---- threads ---- */

typedef struct worker {
    hd_runtime *runtime;
    pthread_t thread;
    int number;
    const char *way;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    conf_random r = {(uint64_t)w->number + 1000};
    hd_lane *own = NULL;
    int device = w->number % hd_device_count(w->runtime);
    CONF_OK(hd_lane_create(w->runtime, device, &own));
    for (int i = 0; i < 12; i++) {
        shapes s = plain(1 + conf_below(&r, 90), 1 + conf_below(&r, 90), 1 + conf_below(&r, 90));
        const mm_layout layout[3] = {(mm_layout)conf_below(&r, MM_LAYOUTS), (mm_layout)conf_below(&r, MM_LAYOUTS),
                                     (mm_layout)conf_below(&r, MM_LAYOUTS)};
        hd_lane *lane = i % 2 == 0 ? own : conf_default_lane(w->runtime, device);
        try_one(lane, mm_types[conf_below(&r, MM_TYPES)], &s, layout, 1, i % 3, conf_next(&r), w->way);
    }
    hd_lane_destroy(own);
    return NULL;
}

static void many_threads_at_once(void **state)
{
    (void)state;
    conf_failure_ends_program = true;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "host_schedule=7");
        enum { N = 6 };
        worker workers[N];
        for (int i = 0; runtime != NULL && i < N; i++) {
            workers[i] = (worker){.runtime = runtime, .number = i, .way = ways[way]};
            CONF_EQUAL(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (int i = 0; runtime != NULL && i < N; i++) {
            pthread_join(workers[i].thread, NULL);
        }
        conf_close(runtime);
    }
    conf_failure_ends_program = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(bad_arguments_are_refused),
        CONF_CASE(parts_of_one_buffer),
        CONF_CASE(a_buffer_out_of_reach_is_refused),
        CONF_CASE(libraries_are_named_or_their_lack_explained),
        CONF_CASE(products_are_ordered_by_their_buffers),
        CONF_CASE(every_kind_of_buffer),
        CONF_CASE(a_failed_product_has_an_address),
        CONF_CASE(what_lies_in_between_stays_failed),
        CONF_CASE(a_library_that_does_not_open_may_open_later),
        CONF_CASE(memory_for_a_library_is_made_room_for),
        CONF_CASE(without_room_for_copies_products_are_right),
        CONF_CASE(many_threads_at_once),
    };
    conf_begin("test_matmul_use");
    return cmocka_run_group_tests_name("matmul_use", tests, NULL, NULL);
}
