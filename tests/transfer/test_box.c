/* test_box.c - boxes: reducing, refusing, cutting into copies of rows, and overlap of source and
 * destination. Tables, and random boxes against models of bytes.
 *
 * Promise: A box is cut into copies of exactly its rows; overlap is found, bad boxes are refused.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include "transfer/transfer.h"
#include "transfer/route.h"

typedef struct shape {
    size_t row;
    int dims;
    size_t count[HD_BOX_DIMS], dst[HD_BOX_DIMS], src[HD_BOX_DIMS];
} shape;

static hd_box box_of(const shape *s)
{
    hd_box box = {.size = sizeof box, .row = s->row, .dims = s->dims};
    memcpy(box.count, s->count, sizeof box.count);
    memcpy(box.dst_stride, s->dst, sizeof box.dst_stride);
    memcpy(box.src_stride, s->src, sizeof box.src_stride);
    return box;
}

static hdi_box make(const shape *s)
{
    hd_box box = box_of(s);
    hdi_box out;
    assert_ok(hdi_box_make(&box, &out));
    return out;
}

/* ---- reduced ---- */

static void boxes_are_reduced_to_what_they_are(void **state)
{
    (void)state;
    static const struct {
        shape in, out;
    } table[] = {
        {{5, 0, {0}, {0}, {0}}, {5, 0, {0}, {0}, {0}}},
        /* counts of 1 are dropped, whatever their strides */
        {{5, 2, {1, 1}, {0, 3}, {9, 0}}, {5, 0, {0}, {0}, {0}}},
        {{5, 3, {1, 4, 1}, {1, 8, 2}, {1, 7, 2}}, {5, 1, {4}, {8}, {7}}},
        /* rows that touch on both sides become one row */
        {{5, 1, {4}, {5}, {5}}, {20, 0, {0}, {0}, {0}}},
        {{5, 2, {4, 3}, {5, 20}, {5, 20}}, {60, 0, {0}, {0}, {0}}},
        {{5, 2, {4, 3}, {5, 32}, {5, 20}}, {20, 1, {3}, {32}, {20}}},
        /* touching on one side is not enough */
        {{5, 1, {4}, {5}, {6}}, {5, 1, {4}, {5}, {6}}},
        {{5, 1, {4}, {6}, {5}}, {5, 1, {4}, {6}, {5}}},
        /* dimensions that continue the previous one are joined */
        {{5, 2, {4, 3}, {8, 32}, {7, 28}}, {5, 1, {12}, {8}, {7}}},
        {{5, 3, {4, 3, 2}, {8, 32, 96}, {7, 28, 84}}, {5, 1, {24}, {8}, {7}}},
        {{5, 3, {4, 3, 2}, {8, 32, 100}, {7, 28, 84}}, {5, 2, {12, 2}, {8, 100}, {7, 84}}},
        {{5, 3, {4, 3, 2}, {8, 40, 120}, {7, 28, 84}}, {5, 2, {4, 6}, {8, 40}, {7, 28}}},
        {{5, 2, {4, 3}, {8, 32}, {7, 29}}, {5, 2, {4, 3}, {8, 32}, {7, 29}}},
        /* a repeated source */
        {{5, 2, {4, 3}, {5, 20}, {0, 0}}, {5, 1, {12}, {5}, {0}}},
        {{5, 2, {4, 3}, {5, 20}, {5, 0}}, {20, 1, {3}, {20}, {0}}},
        /* with a count of 1 in between */
        {{2, 3, {3, 1, 2}, {2, 999, 6}, {2, 1, 6}}, {12, 0, {0}, {0}, {0}}},
        /* seven dimensions */
        {{1, 7, {2, 2, 2, 2, 2, 2, 2}, {1, 2, 4, 8, 16, 32, 64}, {1, 2, 4, 8, 16, 32, 64}}, {128, 0, {0}, {0}, {0}}},
        {{1, 7, {2, 2, 2, 2, 2, 2, 2}, {2, 4, 8, 16, 32, 64, 128}, {64, 32, 16, 8, 4, 2, 1}},
         {1, 7, {2, 2, 2, 2, 2, 2, 2}, {2, 4, 8, 16, 32, 64, 128}, {64, 32, 16, 8, 4, 2, 1}}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_box box = make(&table[i].in);
        const shape *out = &table[i].out;
        assert_int_equal(box.row, out->row);
        assert_int_equal(box.dims, out->dims);
        uint64_t bytes = out->row, dst_span = out->row, src_span = out->row;
        for (int k = 0; k < box.dims; k++) {
            assert_int_equal(box.count[k], out->count[k]);
            assert_int_equal(box.dst[k], out->dst[k]);
            assert_int_equal(box.src[k], out->src[k]);
            bytes *= out->count[k];
            dst_span += (out->count[k] - 1) * out->dst[k];
            src_span += (out->count[k] - 1) * out->src[k];
        }
        assert_int_equal(box.bytes, bytes);
        assert_int_equal(box.dst_span, dst_span);
        assert_int_equal(box.src_span, src_span);
    }
}

static void boxes_without_bytes_are_empty(void **state)
{
    (void)state;
    static const shape table[] = {
        {0, 0, {0}, {0}, {0}},
        {0, 1, {4}, {8}, {8}},
        {5, 1, {0}, {8}, {8}},
        {5, 3, {4, 0, 2}, {0, 0, 0}, {0, 0, 0}}, /* no byte may be written twice */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_box box = make(&table[i]);
        assert_int_equal(box.bytes, 0);
        assert_int_equal(box.dst_span, 0);
        assert_int_equal(box.src_span, 0);
    }
}

static void bad_boxes_are_refused(void **state)
{
    (void)state;
    hdi_box out;
    assert_status(hdi_box_make(NULL, &out), HD_ERROR_ARGUMENT);
    assert_message_has("null");
    hd_box box = {.size = sizeof box - 1, .row = 4};
    assert_status(hdi_box_make(&box, &out), HD_ERROR_ARGUMENT);
    assert_message_has("size");
    box = (hd_box){.size = sizeof box, .row = 4, .dims = HD_BOX_DIMS + 1};
    assert_status(hdi_box_make(&box, &out), HD_ERROR_ARGUMENT);
    assert_message_has("dims is 8");
    box.dims = -1;
    assert_status(hdi_box_make(&box, &out), HD_ERROR_ARGUMENT);
    static const struct {
        shape s;
        hd_status status;
        const char *word;
    } table[] = {
        {{5, 1, {2}, {4}, {9}}, HD_ERROR_ARGUMENT, "dst_stride[0] is 4"},
        {{5, 1, {2}, {0}, {9}}, HD_ERROR_ARGUMENT, "less than the 5 bytes"},
        {{5, 2, {3, 2}, {8, 20}, {9, 99}}, HD_ERROR_ARGUMENT, "dst_stride[1] is 20"},
        {{5, 2, {3, 2}, {8, 20}, {9, 99}}, HD_ERROR_ARGUMENT, "less than the 21 bytes"},
        {{5, 2, {3, 2}, {64, 8}, {9, 99}}, HD_ERROR_ARGUMENT, "dst_stride[1] is 8"},
        {{5, 3, {3, 1, 2}, {8, 0, 20}, {9, 9, 99}}, HD_ERROR_ARGUMENT, "dst_stride[2] is 20"},
        {{5, 1, {SIZE_MAX}, {8}, {8}}, HD_ERROR_RANGE, "spans more"},
        {{5, 1, {2}, {SIZE_MAX}, {8}}, HD_ERROR_RANGE, "spans more"},
        {{5, 1, {3}, {SIZE_MAX / 2 + 1}, {8}}, HD_ERROR_RANGE, "spans more"},
        {{5, 1, {2}, {8}, {SIZE_MAX}}, HD_ERROR_RANGE, "spans more"},
        {{5, 1, {3}, {8}, {SIZE_MAX / 2 + 1}}, HD_ERROR_RANGE, "spans more"},
        {{SIZE_MAX, 0, {0}, {0}, {0}}, HD_ERROR_RANGE, "spans more"},
        {{5, 2, {1u << 31, 1u << 31}, {8, (size_t)8 << 31}, {8, 8}}, HD_ERROR_RANGE, "spans more"},
        {{SIZE_MAX, 1, {2}, {8}, {8}}, HD_ERROR_RANGE, "spans more"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        box = box_of(&table[i].s);
        assert_status(hdi_box_make(&box, &out), table[i].status);
        assert_message_has(table[i].word);
    }
}

/* ---- cut ---- */

static uint64_t state_of_random = 1;

static uint64_t next_random(uint64_t below)
{
    uint64_t z = state_of_random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* Draws a box of a few hundred bytes at most in each dimension. Often dimensions can be joined, or
 * the source is repeated or overlaps. */
static shape random_shape(void)
{
    shape s = {.row = 1 + next_random(next_random(2) ? 4 : 40), .dims = (int)next_random(5)};
    uint64_t dst_span = s.row, src_span = s.row;
    for (int i = 0; i < s.dims; i++) {
        s.count[i] = 1 + next_random(5);
        s.dst[i] = dst_span + (next_random(3) ? 0 : next_random(6));
        s.src[i] = next_random(3) ? src_span : next_random(5) ? next_random(60) : 0;
        dst_span += (s.count[i] - 1) * s.dst[i];
        src_span += (s.count[i] - 1) * s.src[i];
    }
    return s;
}

#define MODEL_BYTES ((size_t)1 << 16)

/* dst[] = src[], by definition. */
static void copy_as_defined(const shape *s, unsigned char *dst, const unsigned char *src)
{
    size_t index[HD_BOX_DIMS] = {0};
    for (int i = 0; i >= 0;) {
        size_t d = 0, f = 0;
        for (int k = 0; k < s->dims; k++) {
            d += index[k] * s->dst[k];
            f += index[k] * s->src[k];
        }
        memcpy(dst + d, src + f, s->row);
        for (i = 0; i < s->dims && ++index[i] == s->count[i]; i++) {
            index[i] = 0;
        }
        i = i == s->dims ? -1 : 0;
    }
}

/* Copies a part through a chunk, as devices would. */
static void copy_part(const hdi_part *part, unsigned char *dst, const unsigned char *src, unsigned char *chunk)
{
    memset(chunk, 0xcc, MODEL_BYTES);
    if (part->rows > 1 && part->pitch == part->src_pitch) {
        memcpy(chunk, src + part->src, hdi_part_room(part));
    } else {
        for (uint64_t i = 0; i < part->rows; i++) {
            memcpy(chunk + i * part->pitch, src + part->src + i * part->src_pitch, part->row);
        }
    }
    for (uint64_t i = 0; i < part->rows; i++) {
        unsigned char *at = dst + part->dst + i * part->dst_pitch;
        for (uint64_t j = 0; j < part->row; j++) {
            assert_int_equal(at[j], 0); /* each byte is written only once */
            at[j] = chunk[i * part->pitch + j];
        }
    }
}

static void check_part(const hdi_part *part, uint64_t row, uint64_t piece, uint64_t room, unsigned sides)
{
    assert_true(part->rows >= 1 && part->row >= 1);
    assert_true(hdi_part_room(part) <= room && hdi_part_room(part) <= piece);
    assert_true(part->row == row || (row > piece && part->rows == 1));
    if (part->rows > 1) {
        assert_true(!(sides & HDI_WALK_DST) || (part->dst_pitch >= row && part->dst_pitch <= HDI_PITCH_MAX));
        assert_true(!(sides & HDI_WALK_SRC) || (part->src_pitch >= row && part->src_pitch <= HDI_PITCH_MAX));
        assert_true(part->pitch == row || ((sides & HDI_WALK_GAPS) && part->pitch == part->src_pitch));
    }
}

static void walks_copy_what_a_model_copies(void **state)
{
    (void)state;
    unsigned char *src = malloc(MODEL_BYTES), *model = malloc(MODEL_BYTES), *dst = malloc(MODEL_BYTES),
                  *chunk = malloc(MODEL_BYTES);
    assert_true(src && model && dst && chunk);
    for (size_t i = 0; i < MODEL_BYTES; i++) {
        src[i] = (unsigned char)(1 + next_random(255));
    }
    static const unsigned all_sides[] = {HDI_WALK_BOTH, HDI_WALK_DST, HDI_WALK_SRC, HDI_WALK_BOTH | HDI_WALK_GAPS,
                                         HDI_WALK_SRC | HDI_WALK_GAPS};
    for (int round = 0; round < 20000; round++) {
        shape s = random_shape();
        hdi_box box = make(&s);
        assert_true(box.dst_span <= MODEL_BYTES && box.src_span <= MODEL_BYTES);
        unsigned sides = all_sides[next_random(5)];
        uint64_t piece = 1 + next_random(next_random(2) ? 64 : 2000);
        memset(model, 0, box.dst_span);
        memset(dst, 0, box.dst_span);
        copy_as_defined(&s, model, src);
        hdi_walk walk = hdi_walk_begin(&box, piece, sides);
        hdi_part part;
        uint64_t bytes = 0;
        while (!walk.ended) {
            uint64_t room = next_random(3) ? piece : 1 + next_random(piece);
            if (!hdi_walk_next(&walk, room, &part)) {
                assert_true(room < piece); /* a whole piece is always enough */
                continue;
            }
            check_part(&part, box.row, piece, room, sides);
            copy_part(&part, dst, src, chunk);
            bytes += part.row * part.rows;
        }
        assert_false(hdi_walk_next(&walk, piece, &part));
        assert_int_equal(bytes, box.bytes);
        assert_memory_equal(dst, model, box.dst_span);
    }
    free(src);
    free(model);
    free(dst);
    free(chunk);
}

/* The dimension with the most rows becomes one operation, if both sides allow it. */
static void operations_go_along_the_longest_dimension(void **state)
{
    (void)state;
    static const struct {
        shape s;
        unsigned sides;
        uint64_t piece;
        uint64_t parts, rows; /* the number of operations, and the rows of the first one */
    } table[] = {
        {{8, 0, {0}, {0}, {0}}, HDI_WALK_BOTH, 100, 1, 1},
        {{8, 0, {0}, {0}, {0}}, HDI_WALK_BOTH, 8, 1, 1},
        {{8, 0, {0}, {0}, {0}}, HDI_WALK_BOTH, 7, 2, 1},
        {{8, 0, {0}, {0}, {0}}, HDI_WALK_BOTH, 1, 8, 1},
        {{8, 1, {10}, {16}, {9}}, HDI_WALK_BOTH, 1000, 1, 10},
        {{8, 1, {10}, {16}, {9}}, HDI_WALK_BOTH, 80, 1, 10},
        {{8, 1, {10}, {16}, {9}}, HDI_WALK_BOTH, 79, 2, 9},
        {{8, 1, {10}, {16}, {9}}, HDI_WALK_BOTH, 8, 10, 1},
        {{8, 1, {10}, {16}, {9}}, HDI_WALK_BOTH, 4, 20, 1},
        {{8, 2, {3, 10}, {16, 50}, {9, 40}}, HDI_WALK_BOTH, 1000, 3, 10},
        {{8, 2, {10, 3}, {16, 200}, {9, 100}}, HDI_WALK_BOTH, 1000, 3, 10},
        {{8, 3, {4, 5, 4}, {16, 80, 500}, {9, 40, 300}}, HDI_WALK_BOTH, 1000, 16, 5},
        /* devices accept no pitch for a source that overlaps itself or is repeated */
        {{8, 1, {10}, {16}, {7}}, HDI_WALK_BOTH, 1000, 10, 1},
        {{8, 1, {10}, {16}, {7}}, HDI_WALK_DST, 1000, 1, 10},
        {{8, 1, {10}, {16}, {0}}, HDI_WALK_BOTH, 1000, 10, 1},
        {{8, 2, {10, 3}, {16, 200}, {0, 20}}, HDI_WALK_BOTH, 1000, 10, 3},
        {{8, 2, {10, 3}, {16, 200}, {0, 20}}, HDI_WALK_DST, 1000, 3, 10},
        /* pitches are limited */
        {{8, 1, {10}, {INT32_MAX}, {INT32_MAX}}, HDI_WALK_BOTH, 1000, 1, 10},
        {{8, 1, {10}, {(size_t)INT32_MAX + 1}, {16}}, HDI_WALK_BOTH, 1000, 10, 1},
        {{8, 1, {10}, {16}, {(size_t)INT32_MAX + 1}}, HDI_WALK_BOTH, 1000, 10, 1},
        {{8, 1, {10}, {16}, {(size_t)INT32_MAX + 1}}, HDI_WALK_DST, 1000, 1, 10},
        {{8, 1, {10}, {(size_t)INT32_MAX + 1}, {16}}, HDI_WALK_SRC, 1000, 1, 10},
        /* tiny rows with small gaps copy the gaps, too, and so need more room */
        {{8, 1, {10}, {32}, {16}}, HDI_WALK_BOTH | HDI_WALK_GAPS, 152, 1, 10},
        {{8, 1, {10}, {32}, {16}}, HDI_WALK_BOTH | HDI_WALK_GAPS, 151, 2, 9},
        {{8, 1, {10}, {32}, {17}}, HDI_WALK_BOTH | HDI_WALK_GAPS, 80, 1, 10},
        {{HDI_TINY_ROW, 1, {10}, {512}, {300}}, HDI_WALK_BOTH | HDI_WALK_GAPS, 2560, 1, 10},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_box box = make(&table[i].s);
        hdi_walk walk = hdi_walk_begin(&box, table[i].piece, table[i].sides);
        hdi_part part;
        uint64_t parts = 0, first = 0;
        while (hdi_walk_next(&walk, table[i].piece, &part)) {
            first = parts++ ? first : part.rows;
        }
        assert_int_equal(parts, table[i].parts);
        assert_int_equal(first, table[i].rows);
    }
}

/* ---- source and destination in one buffer ---- */

/* Marks the bytes of one side in `map`. Returns false if one is already marked with another
 * number. */
static bool mark(const shape *s, const size_t *stride, size_t offset, unsigned char *map, unsigned char number)
{
    size_t index[HD_BOX_DIMS] = {0};
    bool apart = true;
    for (int i = 0; i >= 0;) {
        size_t at = offset;
        for (int k = 0; k < s->dims; k++) {
            at += index[k] * stride[k];
        }
        for (size_t j = 0; j < s->row; j++) {
            apart &= map[at + j] == 0 || map[at + j] == number;
            map[at + j] = number;
        }
        for (i = 0; i < s->dims && ++index[i] == s->count[i]; i++) {
            index[i] = 0;
        }
        i = i == s->dims ? -1 : 0;
    }
    return apart;
}

static void sides_meet_when_they_have_a_byte_in_common(void **state)
{
    (void)state;
    unsigned char *map = malloc(MODEL_BYTES);
    assert_non_null(map);
    int met = 0, apart = 0, between = 0;
    for (int round = 0; round < 60000; round++) {
        shape s = random_shape();
        bool same = next_random(4) != 0;
        for (int k = 0; same && k < s.dims; k++) {
            s.dst[k] += next_random(2) ? next_random(20) * (k == 0) : 0;
        }
        uint64_t span = s.row;
        for (int k = 0; k < s.dims; k++) { /* rows still follow each other */
            s.dst[k] = s.dst[k] < span ? span : s.dst[k];
            span += (s.count[k] - 1) * s.dst[k];
            s.src[k] = same ? s.dst[k] : s.src[k];
        }
        hdi_box box = make(&s);
        size_t dst = next_random(200), src = next_random(200);
        if (box.dst_span + dst > MODEL_BYTES || box.src_span + src > MODEL_BYTES) {
            continue;
        }
        memset(map, 0, (box.dst_span + dst > box.src_span + src ? box.dst_span + dst : box.src_span + src));
        mark(&s, s.dst, dst, map, 1);
        bool meet = !mark(&s, s.src, src, map, 2);
        bool said = hdi_box_overlaps(&box, dst, src);
        if (same) {
            assert_int_equal(said, meet);
            between += !meet && dst < src + box.src_span && src < dst + box.dst_span;
        } else {
            assert_true(said || !meet); /* may report too much, but misses nothing */
        }
        met += meet;
        apart += !meet;
    }
    /* the random boxes cover all cases */
    assert_true(met > 1000 && apart > 1000 && between > 1000);
    hdi_box none = {0};
    assert_false(hdi_box_overlaps(&none, 5, 5));
    free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_are_reduced_to_what_they_are),
        cmocka_unit_test(boxes_without_bytes_are_empty),
        cmocka_unit_test(bad_boxes_are_refused),
        cmocka_unit_test(walks_copy_what_a_model_copies),
        cmocka_unit_test(operations_go_along_the_longest_dimension),
        cmocka_unit_test(sides_meet_when_they_have_a_byte_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
