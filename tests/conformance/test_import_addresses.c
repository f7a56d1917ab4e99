/* test_import_addresses.c - imports at addresses without any alignment, such as a message behind
 * its header.
 *
 * Promise: An import at any address works like memory of Heddle, or is refused at once.
 *
 * Random fills, copies, boxes, writes, reads and copies of tensors run between imports at random
 * addresses and an ordinary buffer. The test compares them with plain arrays. HEDDLE_SEED=N: the
 * seed.
 *
 * Threads: the main one.
 * Locks: none. With worker processes imports are refused, and the cases end there.
 */
#include "foreign.h"

enum { buffers = 3, size = 3000, room = size + 64 };

typedef struct place {
    hd_buffer *buffer;
    unsigned char model[size];
} place;

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_random random;
    foreign f;
    uint64_t device_memory;
    unsigned char *host_memory;
    place at[buffers]; /* import of host memory, import of device memory, allocation */
} scene;

static bool begin(scene *s)
{
    *s = (scene){.runtime = conf_open(NULL), .random = {conf_number_from("HEDDLE_SEED", 1)}};
    if (conf_is_process(s->runtime)) {
        hd_buffer *out = NULL;
        CONF_FAILS(hd_import_host(s->runtime, s, sizeof *s, NULL, &out), HD_ERROR_UNSUPPORTED);
        conf_close(s->runtime);
        return false;
    }
    s->lane = conf_default_lane(s->runtime, 0);
    foreign_begin(&s->f, s->runtime);
    s->device_memory = foreign_alloc(&s->f, 0, room);
    s->host_memory = aligned_alloc(4096, 4096);
    CONF_TRUE(s->host_memory != NULL);
    CONF_OK(hd_alloc(s->lane, size, &s->at[2].buffer));
    CONF_OK(hd_fill(s->at[2].buffer, 0, 0, size, NULL));
    return true;
}

static void end(scene *s)
{
    conf_close(s->runtime);
    foreign_free(&s->f, 0, s->device_memory);
    foreign_end(&s->f);
    free(s->host_memory);
}

static void read_all(scene *s, int which, const char *behind)
{
    unsigned char got[size];
    CONF_OK(hd_read(s->at[which].buffer, 0, got, size));
    for (size_t i = 0; i < size; i++) {
        if (got[i] != s->at[which].model[i]) {
            conf_fail_at(__FILE__, __LINE__, "byte %zu of buffer %d is %u, not %u, behind %s", i, which, got[i],
                         s->at[which].model[i], behind);
        }
    }
}

/* Imports both anew, `off_host` and `off_device` bytes behind the begin of their pages. */
static void import_both(scene *s, size_t off_host, size_t off_device)
{
    for (int i = 0; i < 2; i++) {
        if (s->at[i].buffer) {
            CONF_OK(hd_free(s->at[i].buffer));
        }
    }
    CONF_OK(hd_import_host(s->runtime, s->host_memory + off_host, size, NULL, &s->at[0].buffer));
    CONF_OK(hd_import(s->runtime, 0, s->device_memory + off_device, size, NULL, &s->at[1].buffer));
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < size; k++) {
            s->at[i].model[k] = (unsigned char)(k * 7 + (size_t)i);
        }
        CONF_OK(hd_write(s->at[i].buffer, 0, s->at[i].model, size));
    }
}

static void fill(scene *s, int y)
{
    size_t offset = 4 * conf_below(&s->random, size / 4), most = (size - offset) / 4;
    size_t bytes = 4 * (1 + conf_below(&s->random, conf_below(&s->random, 2) ? most : most < 4 ? most : 4));
    uint32_t pattern = (uint32_t)conf_next(&s->random);
    CONF_OK(hd_fill(s->at[y].buffer, offset, pattern, bytes, NULL));
    for (size_t i = 0; i < bytes; i += 4) {
        memcpy(s->at[y].model + offset + i, &pattern, 4);
    }
}

static void copy(scene *s, int y, int x)
{
    size_t to = conf_below(&s->random, size), from = conf_below(&s->random, size);
    size_t bytes = 1 + conf_below(&s->random, size - (to > from ? to : from));
    CONF_OK(hd_copy(s->at[y].buffer, to, s->at[x].buffer, from, bytes, NULL));
    memcpy(s->at[y].model + to, s->at[x].model + from, bytes);
}

static void copy_rows(scene *s, int y, int x)
{
    hd_box box = {.size = sizeof box, .dims = 1};
    box.row = 1 + conf_below(&s->random, 30);
    box.count[0] = 1 + conf_below(&s->random, 20);
    box.dst_stride[0] = box.row + conf_below(&s->random, 20);
    box.src_stride[0] = box.row + conf_below(&s->random, 20);
    size_t to = conf_below(&s->random, 1000), from = conf_below(&s->random, 1000);
    CONF_OK(hd_copy_box(s->at[y].buffer, to, s->at[x].buffer, from, &box, NULL));
    for (size_t i = 0; i < box.count[0]; i++) {
        memcpy(s->at[y].model + to + i * box.dst_stride[0], s->at[x].model + from + i * box.src_stride[0], box.row);
    }
}

/* Transposes a matrix of elements. */
static void copy_tensor(scene *s, int y, int x)
{
    static const hd_type types[] = {HD_TYPE_U8, HD_TYPE_F16, HD_TYPE_F32, HD_TYPE_F64, HD_TYPE_C128};
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    size_t which = conf_below(&s->random, 5), element = sizes[which];
    uint64_t rows = 1 + conf_below(&s->random, 12), columns = 1 + conf_below(&s->random, 12);
    size_t to = conf_below(&s->random, 600), from = conf_below(&s->random, 600);
    const uint64_t shape[] = {rows, columns};
    const int64_t turned[] = {(int64_t)element, (int64_t)(rows * element)};
    hd_tensor src, dst;
    CONF_OK(hd_tensor_make(s->at[x].buffer, from, types[which], 2, shape, &src));
    CONF_OK(hd_tensor_make_strided(s->at[y].buffer, to, types[which], 2, shape, turned, &dst));
    CONF_OK(hd_tensor_copy(&dst, &src, NULL));
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < columns; k++) {
            memcpy(s->at[y].model + to + (k * rows + i) * element, s->at[x].model + from + (i * columns + k) * element,
                   element);
        }
    }
}

static void every_operation_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"a fill", "a copy", "a box", "a tensor's copy"};
    scene s;
    if (!begin(&s)) {
        return;
    }
    for (int round = 0; round < 60 / CONF_SLOWNESS; round++) {
        import_both(&s, conf_below(&s.random, 33), conf_below(&s.random, 33));
        for (int step = 0; step < 25; step++) {
            int y = (int)conf_below(&s.random, buffers),
                x = (y + 1 + (int)conf_below(&s.random, buffers - 1)) % buffers;
            uint64_t what = conf_below(&s.random, 4);
            what == 0   ? fill(&s, y)
            : what == 1 ? copy(&s, y, x)
            : what == 2 ? copy_rows(&s, y, x)
                        : copy_tensor(&s, y, x);
            read_all(&s, y, names[what]);
        }
    }
    end(&s);
}

/* Each length around a word, at each distance from one. */
static void short_fills(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s)) {
        return;
    }
    for (size_t off = 0; off < 4; off++) {
        import_both(&s, off, off);
        for (int y = 0; y < 2; y++) {
            for (size_t words = 1; words < 5; words++) {
                hd_ticket ticket;
                CONF_OK(hd_fill(s.at[y].buffer, 40 * words, 0x04030201, 4 * words, &ticket));
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
                for (size_t i = 0; i < 4 * words; i++) {
                    s.at[y].model[40 * words + i] = (unsigned char)(1 + i % 4);
                }
            }
            read_all(&s, y, "short fills");
        }
    }
    end(&s);
}

/* Libraries and kernels need numbers at addresses that are multiples of their size. */
static void a_product_is_refused_at_once(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s)) {
        return;
    }
    import_both(&s, 1, 2);
    const uint64_t shape[] = {4, 4};
    hd_tensor good, bad;
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_tensor_make(s.at[2].buffer, 0, HD_TYPE_F32, 2, shape, &good));
        CONF_OK(hd_tensor_make(s.at[i].buffer, 0, HD_TYPE_F32, 2, shape, &bad));
        CONF_FAILS_WITH(hd_tensor_matmul(s.lane, &good, &bad, &bad, 1, 0, NULL), HD_ERROR_ARGUMENT, "address");
        CONF_FAILS_WITH(hd_tensor_matmul(s.lane, &bad, &good, &good, 1, 0, NULL), HD_ERROR_ARGUMENT, "address");
        /* it works if the offset aligns the address */
        CONF_OK(hd_tensor_make(s.at[i].buffer, i == 0 ? 3 : 2, HD_TYPE_F32, 2, shape, &bad));
        CONF_OK(hd_fill(s.at[i].buffer, 0, 0, size, NULL));
        CONF_OK(hd_tensor_matmul(s.lane, &good, &bad, &bad, 1, 0, NULL));
        memset(s.at[2].model, 0, size);
        read_all(&s, 2, "a product");
    }
    end(&s);
}

int main(void)
{
    conf_begin("test_import_addresses");
    const struct CMUnitTest tests[] = {
        CONF_CASE(every_operation_gives_the_same_bytes),
        CONF_CASE(short_fills),
        CONF_CASE(a_product_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
