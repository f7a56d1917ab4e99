/* blocks_tools.c - see blocks_tools.h. */
#include "blocks_tools.h"

uint64_t finished_to[256];
long allocations_left = -1;

static bool finished(void *context, hdi_point point)
{
    const uint64_t *to = context;
    return point.position <= to[point.lane];
}

static void *allocate(size_t bytes)
{
    if (allocations_left == 0) {
        return NULL;
    }
    allocations_left -= allocations_left > 0;
    return malloc(bytes);
}

void blocks_check(const hdi_blocks *b)
{
    char why[160] = "";
    if (!hdi_blocks_check(b, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

hd_status blocks_create(size_t limit, size_t wall, hdi_blocks **out)
{
    hdi_blocks_config config = {
        .limit = limit, .wall = wall, .finished = finished, .finished_context = finished_to, .allocate = allocate};
    return hdi_blocks_create(&config, out);
}

static hdi_blocks *make(size_t limit, size_t wall)
{
    hdi_blocks *b = NULL;
    memset(finished_to, 0, sizeof finished_to);
    allocations_left = -1;
    assert_ok(blocks_create(limit, wall, &b));
    return b;
}

hdi_blocks *blocks_make(size_t limit, size_t bytes)
{
    hdi_blocks *b = make(limit, 0);
    if (bytes != 0) {
        assert_ok(hdi_blocks_grow(b, bytes));
    }
    return b;
}

hdi_blocks *blocks_make_gap(size_t limit, size_t wall)
{
    hdi_blocks *b = make(limit, wall);
    assert_ok(hdi_blocks_grow_gap(b, limit));
    blocks_check(b);
    return b;
}

size_t blocks_take(hdi_blocks *b, size_t bytes, uint32_t lane)
{
    size_t offset = 0, before = blocks_info(b).live_bytes;
    hdi_points points;
    assert_ok(hdi_blocks_alloc(b, bytes, lane, &offset, &points));
    assert_int_equal(points.count, 0);
    assert_int_equal(offset % G, 0);
    assert_int_equal(blocks_info(b).live_bytes - before, (bytes + G - 1) / G * G);
    blocks_check(b);
    return offset;
}

void blocks_give(hdi_blocks *b, size_t offset, uint32_t lane, uint64_t position)
{
    hdi_point point = {lane, position};
    hdi_blocks_free(b, offset, &point, 1);
    blocks_check(b);
}

hdi_blocks_info blocks_info(const hdi_blocks *b)
{
    hdi_blocks_info info;
    hdi_blocks_get_info(b, &info);
    return info;
}
