/* test_matmul.c - matrix products of all types, layouts, batches and sizes against a product in
 * double precision.
 *
 * Promise: Matrix products of every type, layout and size are right within rounding.
 * Placements: thread.
 *
 * The library that Heddle finds, a library named by option and the built-in kernel make them. A
 * product in double precision is the reference.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "matmul.h"

static void every_type_and_size(void **state)
{
    (void)state;
    static const uint64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},    {16, 16, 16}, {64, 64, 64}, {65, 33, 129},
                                        {97, 131, 70}, {130, 1, 57}, {1, 130, 57}, {40, 30, 1},  {129, 65, 300}};
    static const mm_layout rows[3] = {MM_ROWS, MM_ROWS, MM_ROWS};
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        for (size_t i = 0; runtime != NULL && i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int t = 0; t < MM_TYPES; t++) {
                if (CONF_TSAN && (i + (size_t)t) % 3 != 0) {
                    continue; /* each size with some types, each type with some sizes */
                }
                shapes s = plain(sizes[i][0], sizes[i][1], sizes[i][2]);
                hd_lane *lane = conf_default_lane(runtime, 0);
                try_one(lane, mm_types[t], &s, rows, 1, 0, i, ways[way]);
                try_one(lane, mm_types[t], &s, rows, -0.75, 1.25, i + 100, ways[way]);
            }
        }
        conf_close(runtime);
    }
}

static void every_layout(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        int step = CONF_SLOWNESS > 1 ? 7 : 1; /* slow builds try only some layouts, of all kinds */
        for (int i = 0; runtime != NULL && i < MM_LAYOUTS * MM_LAYOUTS * MM_LAYOUTS; i += step) {
            const mm_layout layout[3] = {(mm_layout)(i % MM_LAYOUTS), (mm_layout)(i / MM_LAYOUTS % MM_LAYOUTS),
                                         (mm_layout)(i / MM_LAYOUTS / MM_LAYOUTS)};
            shapes s = i % 5 == 0 ? plain(70, 66, 90) : plain(19, 23, 29);
            try_one(conf_default_lane(runtime, 0), mm_types[i % MM_TYPES], &s, layout, 1, i % 3 * 0.5, (uint64_t)i,
                    ways[way]);
        }
        conf_close(runtime);
    }
}

static void every_kind_of_batch(void **state)
{
    (void)state;
    static const shapes cases[] = {
        {3, 3, 3, {5, 9, 7}, {5, 7, 11}, {5, 9, 11}},                 /* one dimension */
        {3, 2, 3, {5, 9, 7}, {7, 11}, {5, 9, 11}},                    /* the same b: more rows */
        {2, 3, 3, {9, 7}, {5, 7, 11}, {5, 9, 11}},                    /* the same a */
        {2, 2, 4, {9, 7}, {7, 11}, {3, 2, 9, 11}},                    /* the same of both */
        {4, 4, 4, {3, 1, 9, 7}, {1, 4, 7, 11}, {3, 4, 9, 11}},        /* all pairs */
        {4, 3, 4, {3, 4, 9, 7}, {4, 7, 11}, {3, 4, 9, 11}},           /* b repeats */
        {5, 5, 5, {2, 1, 3, 6, 5}, {2, 2, 1, 5, 4}, {2, 2, 3, 6, 4}}, /* in turn */
        {8,
         8,
         8,
         {2, 1, 2, 1, 2, 1, 3, 5},
         {1, 2, 2, 2, 1, 2, 5, 4},
         {2, 2, 2, 2, 2, 2, 3, 4}},                              /* the most dimensions */
        {4, 4, 4, {9, 1, 3, 5}, {1, 9, 5, 4}, {9, 9, 3, 4}},     /* the most calls for a batch */
        {4, 4, 4, {70, 1, 3, 5}, {1, 70, 5, 4}, {70, 70, 3, 4}}, /* too many calls */
        {3, 3, 3, {40, 1, 7}, {40, 7, 1}, {40, 1, 1}},           /* of vectors */
        {3, 2, 3, {40, 1, 7}, {7, 5}, {40, 1, 5}},
        {2, 3, 3, {5, 7}, {40, 7, 1}, {40, 5, 1}},
        {3, 3, 3, {1, 9, 7}, {1, 7, 11}, {1, 9, 11}},
        /* more than a dimension of a grid allows */
        {3, 3, 3, {70000, 1, 2}, {70000, 2, 3}, {70000, 1, 3}},
    };
    static const mm_layout layouts[][3] = {{MM_ROWS, MM_ROWS, MM_ROWS},
                                           {MM_COLUMNS, MM_ROWS, MM_PADDED_COLUMNS},
                                           {MM_PADDED_ROWS, MM_COLUMNS, MM_ROWS},
                                           {MM_BACKWARDS, MM_SPARSE, MM_PADDED_ROWS}};
    const size_t n_layouts = sizeof layouts / sizeof layouts[0];
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        for (size_t i = 0; runtime != NULL && i < sizeof cases / sizeof cases[0]; i++) {
            for (size_t l = 0; l < n_layouts; l++) {
                if (CONF_TSAN && l != i % n_layouts) {
                    continue; /* one layout for each case, in turn: threads do the same with all */
                }
                try_one(conf_default_lane(runtime, 0), mm_types[(i + l) % MM_TYPES], &cases[i], layouts[l], 1,
                        l % 2 == 1 ? -1.5 : 0, i * 10 + l, ways[way]);
            }
        }
        conf_close(runtime);
    }
}

/* Dimensions of the batch in another order than in memory, and backwards. */
static void permuted_batches(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        if (runtime == NULL) {
            continue;
        }
        hd_lane *lane = conf_default_lane(runtime, 0);
        for (int i = 0; i < 6; i++) {
            conf_random r = {(uint64_t)i};
            const uint64_t sa[] = {3, 4, 9, 7}, sb[] = {3, 4, 7, 11}, sc[] = {3, 4, 9, 11};
            mm_operand a = mm_make(HD_TYPE_F32, 4, sa, MM_ROWS, 0, &r), b = mm_make(HD_TYPE_F32, 4, sb, MM_ROWS, 0, &r);
            mm_operand c = mm_make(HD_TYPE_F32, 4, sc, MM_ROWS, 0, &r);
            mm_operand *of = i % 2 == 0 ? &c : &a;
            int64_t matrix = (int64_t)(sizeof(float) * of->tensor.shape[2] * of->tensor.shape[3]);
            of->tensor.stride[0] = matrix; /* the first dimension is the fast one */
            of->tensor.stride[1] = 3 * matrix;
            mm_operand *back = i >= 4 ? &c : &b; /* from its last matrix on */
            if (i >= 2) {
                back->tensor.offset += (size_t)(2 * back->tensor.stride[0] + 3 * back->tensor.stride[1]);
                back->tensor.stride[0] *= -1;
                back->tensor.stride[1] *= -1;
            }
            mm_put(&a, lane);
            mm_put(&b, lane);
            mm_put(&c, lane);
            mm_check(lane, &c, &a, &b, 1, 0.5, ways[way]);
            mm_free(&a);
            mm_free(&b);
            mm_free(&c);
        }
        conf_close(runtime);
    }
}

/* ---- without factors, without elements, with NaN ---- */

static void fill_with(mm_operand *o, mm_number x)
{
    for (size_t i = 0; i < o->bytes; i += mm_size(o->tensor.type)) {
        mm_set(o->tensor.type, o->data + i, x);
    }
}

static void what_is_not_looked_at_does_not_matter(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        for (int i = 0; runtime != NULL && i < MM_TYPES * 3; i++) {
            conf_random r = {(uint64_t)i};
            hd_type type = mm_types[i / 3];
            hd_lane *lane = conf_default_lane(runtime, 0);
            const uint64_t sa[] = {20, 30}, sb[] = {30, 40}, sc[] = {20, 40};
            mm_operand a = mm_make(type, 2, sa, MM_ROWS, 0, &r), b = mm_make(type, 2, sb, MM_COLUMNS, 0, &r);
            mm_operand c = mm_make(type, 2, sc, MM_ROWS, 0, &r);
            double alpha = 1, beta = 0;
            if (i % 3 == 0) { /* c before, times 0 */
                for (size_t at = 0; at < 20 * 40; at++) {
                    mm_set(type, c.data + at * mm_size(type), at % 2 == 0 ? (double)NAN : (double)INFINITY);
                }
            } else { /* a and b, times 0 */
                fill_with(&a, (double)NAN);
                fill_with(&b, (double)INFINITY);
                alpha = 0;
                beta = i % 3 == 1 ? 0 : 1.5;
            }
            mm_put(&a, lane);
            mm_put(&b, lane);
            mm_put(&c, lane);
            mm_check(lane, &c, &a, &b, alpha, beta, ways[way]);
            mm_free(&a);
            mm_free(&b);
            mm_free(&c);
        }
        conf_close(runtime);
    }
}

/* A NaN in a, in alpha or in beta makes every element NaN that depends on it, and no other. */
static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        for (int i = 0; runtime != NULL && i < MM_TYPES * 3; i++) {
            conf_random r = {(uint64_t)i};
            hd_type type = mm_types[i / 3];
            hd_lane *lane = conf_default_lane(runtime, 0);
            const uint64_t sa[] = {33, 17}, sb[] = {17, 21}, sc[] = {33, 21};
            mm_operand a = mm_make(type, 2, sa, MM_ROWS, 0, &r), b = mm_make(type, 2, sb, MM_ROWS, 0, &r);
            mm_operand c = mm_make(type, 2, sc, MM_ROWS, 0, &r);
            if (i % 3 == 0) {
                mm_set(type, a.data + 5 * 17 * mm_size(type), (double)NAN);
            }
            mm_put(&a, lane);
            mm_put(&b, lane);
            mm_put(&c, lane);
            mm_check(lane, &c, &a, &b, i % 3 == 1 ? (double)NAN : 1, i % 3 == 2 ? (double)NAN : 0.5, ways[way]);
            mm_free(&a);
            mm_free(&b);
            mm_free(&c);
        }
        conf_close(runtime);
    }
}

/* Factors without elements allow any strides: they cause no product. */
static void factors_of_nothing_have_any_strides(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_random r = {3};
    const uint64_t shape[] = {3, 5, 16, 24};
    mm_operand c = mm_make(HD_TYPE_F32, 4, shape, MM_ROWS, 0, &r);
    mm_put(&c, lane);
    const int64_t huge = INT64_MAX / 4 * 4;
    hd_tensor a = {.buffer = c.tensor.buffer, .type = HD_TYPE_F32, .dims = 4, .shape = {3, 5, 16, 0}, .offset = 64};
    hd_tensor b = a;
    b.shape[2] = 0;
    b.shape[3] = 24;
    for (int i = 0; i < 4; i++) {
        a.stride[i] = i % 2 == 0 ? huge : -huge;
        b.stride[i] = i % 2 == 0 ? INT64_MIN : huge;
    }
    CONF_OK(hd_tensor_matmul(lane, &c.tensor, &a, &b, 1, 2, NULL));
    for (size_t i = 0; i < 3 * 5 * 16 * 24; i++) {
        mm_set(HD_TYPE_F32, c.data + i * 4, 2 * mm_get(HD_TYPE_F32, c.data + i * 4));
    }
    CONF_HOLDS(c.tensor.buffer, 0, c.data, c.bytes - 5 * 4);
    mm_free(&c);
    conf_close(runtime);
}

static void products_of_nothing(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    static const mm_layout rows[3] = {MM_ROWS, MM_COLUMNS, MM_ROWS};
    static const shapes none[] = {{2, 2, 2, {0, 3}, {3, 4}, {0, 4}},
                                  {2, 2, 2, {2, 3}, {3, 0}, {2, 0}},
                                  {2, 2, 2, {0, 0}, {0, 0}, {0, 0}},
                                  {3, 3, 3, {0, 2, 3}, {1, 3, 4}, {0, 2, 4}},
                                  {3, 2, 3, {0, 2, 3}, {3, 4}, {0, 2, 4}}};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) { /* nothing happens */
        try_one(lane, HD_TYPE_F32, &none[i], rows, 1, 0, i, "nothing");
    }
    static const shapes no_factor[] = {{2, 2, 2, {5, 0}, {0, 4}, {5, 4}}, {3, 2, 3, {2, 5, 0}, {0, 4}, {2, 5, 4}}};
    for (size_t i = 0; i < 2; i++) { /* c times beta */
        for (int t = 0; t < MM_TYPES; t++) {
            try_one(lane, mm_types[t], &no_factor[i], rows, 1, 0, i, "no factor");
            try_one(lane, mm_types[t], &no_factor[i], rows, 1, -2, i, "no factor");
        }
    }
    conf_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(every_type_and_size),
        CONF_CASE(every_layout),
        CONF_CASE(every_kind_of_batch),
        CONF_CASE(permuted_batches),
        CONF_CASE(what_is_not_looked_at_does_not_matter),
        CONF_CASE(what_is_no_number_stays_none),
        CONF_CASE(products_of_nothing),
        CONF_CASE(factors_of_nothing_have_any_strides),
    };
    conf_begin("test_matmul");
    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
