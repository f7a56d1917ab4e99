/* test_overlap.c - detects elements that share bytes: compared with a check of every byte, for many
 * small tensors.
 *
 * Promise: Elements of a tensor are reported to share bytes exactly when they do.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include "tensor/layouts.h"
#include "tensor/tensor.h"

enum { BYTES = 8192 };

/* Adds the tensor's bytes to a map. Returns true if the map contained one of them already. */
static bool point(const hd_tensor *t, unsigned char *map, unsigned char bit, bool *twice)
{
    uint64_t index[HD_TENSOR_DIMS] = {0};
    bool met = false;
    for (;;) {
        uint64_t at = t->offset;
        for (int i = 0; i < t->dims; i++) {
            at += index[i] * (uint64_t)t->stride[i];
        }
        for (size_t b = 0; b < hd_type_size(t->type); b++) {
            *twice |= (map[at + b] & bit) != 0;
            met |= (map[at + b] & ~bit) != 0;
            map[at + b] |= bit;
        }
        int i = t->dims - 1;
        while (i >= 0 && ++index[i] == t->shape[i]) {
            index[i--] = 0;
        }
        if (i < 0) {
            return met;
        }
    }
}

static hdi_extent extent_of(const hd_tensor *t)
{
    hdi_extent e = {.low = t->offset, .high = t->offset + hd_type_size(t->type), .elements = 1};
    for (int i = 0; i < t->dims; i++) {
        int64_t way = (int64_t)(t->shape[i] - 1) * t->stride[i];
        *(way < 0 ? &e.low : &e.high) += (uint64_t)way;
        e.elements *= t->shape[i];
    }
    return e;
}

static bool fits(const hd_tensor *t)
{
    int64_t low = (int64_t)t->offset, high = low + (int64_t)hd_type_size(t->type);
    for (int i = 0; i < t->dims; i++) {
        int64_t way = (int64_t)(t->shape[i] - 1) * t->stride[i];
        *(way < 0 ? &low : &high) += way;
    }
    return low >= 0 && high <= BYTES;
}

/* Draws contiguous strides, or any. */
static void random_tensor(layouts_random *r, hd_tensor *t, const hd_tensor *like)
{
    static const hd_type types[] = {HD_TYPE_U8, HD_TYPE_F16, HD_TYPE_F32, HD_TYPE_F64};
    do {
        *t = (hd_tensor){.type = like ? like->type : types[layouts_below(r, 4)], .dims = (int)layouts_below(r, 4)};
        if (like) {
            t->dims = like->dims;
        }
        int64_t span = (int64_t)hd_type_size(t->type);
        for (int i = t->dims - 1; i >= 0; i--) {
            t->shape[i] = like ? like->shape[i] : 1 + layouts_below(r, 6);
            uint64_t how = layouts_below(r, 8);
            t->stride[i] = how < 4    ? span
                           : how == 4 ? span * 2
                           : how == 5 ? span + (int64_t)layouts_below(r, 9)
                                      : (int64_t)layouts_below(r, 40);
            if (layouts_below(r, 5) == 0) {
                t->stride[i] = -t->stride[i];
            }
            int64_t size = t->stride[i] < 0 ? -t->stride[i] : t->stride[i];
            span = size * (int64_t)t->shape[i] > span ? size * (int64_t)t->shape[i] : span;
        }
        t->offset = layouts_below(r, BYTES / 2);
    } while (!fits(t));
}

static void repeats_are_seen(void **state)
{
    (void)state;
    static unsigned char map[BYTES];
    int once = 0, exact = 0, careful = 0;
    for (int round = 0; round < 60000; round++) {
        layouts_random r = {(uint64_t)round};
        hd_tensor t;
        random_tensor(&r, &t, NULL);
        memset(map, 0, sizeof map);
        bool twice = false;
        point(&t, map, 1, &twice);
        bool said = hdi_tensor_repeats(&t);
        if (twice && !said) {
            fail_msg("round %d: an element is there twice, and not seen", round);
        }
        once += !twice;
        exact += twice == said;
        careful += said && !twice;
    }
    assert_true(once > 1000 && exact > 50000);
    assert_true(careful < 6000); /* strides that interleave are rare */
}

static void overlap_is_seen(void **state)
{
    (void)state;
    static unsigned char map[BYTES];
    int apart = 0, together = 0, careful = 0, inexact = 0;
    for (int round = 0; round < 100000; round++) {
        layouts_random r = {(uint64_t)round + 777};
        hd_tensor a, b;
        random_tensor(&r, &a, NULL);
        if (hdi_tensor_repeats(&a)) {
            continue;
        }
        bool shifted = layouts_below(&r, 2) == 0;
        if (shifted) { /* the same strides, slightly shifted */
            do {
                b = a;
                b.offset = a.offset + layouts_below(&r, 200) - (a.offset > 100 ? 100 : 0);
            } while (!fits(&b));
        } else {
            random_tensor(&r, &b, &a);
            b.offset = layouts_below(&r, 3) == 0 ? b.offset : a.offset + layouts_below(&r, 16);
            if (!fits(&b)) {
                continue;
            }
        }
        hdi_extent ea = extent_of(&a), eb = extent_of(&b);
        memset(map, 0, sizeof map);
        bool twice = false;
        point(&a, map, 1, &twice);
        bool overlap = point(&b, map, 2, &twice), said = hdi_tensors_overlap(&a, &ea, &b, &eb);
        if (overlap && !said) {
            fail_msg("round %d: an overlap is not seen", round);
        }
        if (shifted && overlap != said) {
            inexact++;
        }
        apart += !overlap;
        together += overlap;
        careful += said && !overlap;
    }
    assert_int_equal(inexact, 0); /* equal strides are decided exactly */
    assert_true(apart > 10000 && together > 10000 && careful < apart / 4);
}

/* Blocks of one matrix, transposed or not, reversed or not: blocks without common columns count as
 * apart. */
static void blocks_of_a_matrix_are_told_apart(void **state)
{
    (void)state;
    enum { ROWS = 16, COLUMNS = 24, SIZE = 4 };
    static unsigned char map[BYTES];
    int apart = 0, beside = 0;
    for (int round = 0; round < 20000; round++) {
        layouts_random r = {(uint64_t)round + 99};
        hd_tensor t[2];
        hdi_extent e[2];
        uint64_t n = 2 + layouts_below(&r, 6);
        for (int i = 0; i < 2; i++) {
            t[i] = (hd_tensor){.type = HD_TYPE_F32, .dims = 2, .shape = {n, n}};
            uint64_t row = layouts_below(&r, ROWS - n + 1), column = layouts_below(&r, COLUMNS - n + 1);
            t[i].offset = (row * COLUMNS + column) * SIZE;
            bool turned = layouts_below(&r, 2) == 0;
            t[i].stride[turned] = COLUMNS * SIZE;
            t[i].stride[!turned] = SIZE;
            for (int d = 0; d < 2; d++) {
                if (layouts_below(&r, 3) == 0) {
                    t[i].offset += (n - 1) * (uint64_t)t[i].stride[d];
                    t[i].stride[d] *= -1;
                }
            }
            e[i] = extent_of(&t[i]);
        }
        memset(map, 0, sizeof map);
        bool twice = false;
        point(&t[0], map, 1, &twice);
        bool overlap = point(&t[1], map, 2, &twice), said = hdi_tensors_overlap(&t[0], &e[0], &t[1], &e[1]);
        if (overlap && !said) {
            fail_msg("round %d: an overlap is not seen", round);
        }
        uint64_t columns[2] = {e[0].low / SIZE % COLUMNS, e[1].low / SIZE % COLUMNS};
        bool side = columns[0] + n <= columns[1] || columns[1] + n <= columns[0];
        if (side && said) { /* no common columns */
            fail_msg("round %d: blocks side by side are reported to overlap", round);
        }
        apart += !overlap;
        beside += side;
    }
    assert_true(apart > 5000 && beside > 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(repeats_are_seen), cmocka_unit_test(overlap_is_seen),
                                       cmocka_unit_test(blocks_of_a_matrix_are_told_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
