/* test_route.c - the routes of copies, and the pieces they are cut into, as tables of facts.
 *
 * Promise: Each pair of places has the route documented, and its parts cover every byte once.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include "transfer/route.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define NONE HDI_LINK_NONE
#define GOOD HDI_LINK_GOOD

#define LARGE HDI_STAGED_LARGE

/* Every combination of two places and two links. */
static void every_combination_has_its_way(void **state)
{
    (void)state;
    for (int src = -1; src < 3; src++) {
        for (int dst = -1; dst < 3; dst++) {
            for (int there = NONE; there <= GOOD; there++) {
                for (int back = NONE; back <= GOOD; back++) {
                    hdi_route_facts facts = {src, dst, (hdi_link)there, (hdi_link)back, 4096};
                    hdi_route route = hdi_route_plan(&facts);
                    hdi_route_kind kind = src < 0 && dst < 0              ? HDI_ROUTE_HOST
                                          : src < 0                       ? HDI_ROUTE_TO_DEVICE
                                          : dst < 0                       ? HDI_ROUTE_TO_HOST
                                          : src == dst                    ? HDI_ROUTE_ON_DEVICE
                                          : there == GOOD || back == GOOD ? HDI_ROUTE_PEER
                                                                          : HDI_ROUTE_STAGED;
                    /* the source copies if it can */
                    int device = kind == HDI_ROUTE_HOST                    ? 0
                                 : kind == HDI_ROUTE_TO_DEVICE             ? dst
                                 : kind == HDI_ROUTE_PEER && there != GOOD ? dst
                                                                           : src;
                    assert_int_equal(route.kind, kind);
                    assert_int_equal(route.device, device);
                    assert_int_equal(route.lanes, HDI_LANES_QUICK);
                    assert_true(route.piece >= 4096);
                    assert_int_equal(route.chunk != 0, kind == HDI_ROUTE_STAGED);
                }
            }
        }
    }
}

static void the_source_writes_rather_than_the_destination_reads(void **state)
{
    (void)state;
    static const struct {
        hdi_route_facts facts;
        hdi_route_kind kind;
        int device;
    } table[] = {
        {{0, 1, GOOD, GOOD, 1}, HDI_ROUTE_PEER, 0},   {{0, 1, GOOD, NONE, 1}, HDI_ROUTE_PEER, 0},
        {{0, 1, NONE, GOOD, 1}, HDI_ROUTE_PEER, 1},   {{0, 1, NONE, NONE, 1}, HDI_ROUTE_STAGED, 0},
        {{5, 4, NONE, NONE, 1}, HDI_ROUTE_STAGED, 5},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_route route = hdi_route_plan(&table[i].facts);
        assert_int_equal(route.kind, table[i].kind);
        assert_int_equal(route.device, table[i].device);
    }
}

static void large_copies_have_lanes_of_their_own_and_pieces(void **state)
{
    (void)state;
    static const struct {
        int src, dst;
        hdi_link link;
        uint64_t bytes;
        hdi_route_lanes lanes;
        uint64_t piece;
    } table[] = {
        {-1, 0, HDI_LINK_NONE, 1, HDI_LANES_QUICK, 64 * MIB},
        {-1, 0, HDI_LINK_NONE, 4 * MIB, HDI_LANES_QUICK, 64 * MIB},
        {-1, 0, HDI_LINK_NONE, 4 * MIB + 1, HDI_LANES_BULK, 64 * MIB},
        {-1, 0, HDI_LINK_NONE, 100 * GIB, HDI_LANES_BULK, 64 * MIB},
        {0, -1, HDI_LINK_NONE, 4 * MIB, HDI_LANES_QUICK, 64 * MIB},
        {0, -1, HDI_LINK_NONE, 4 * MIB + 1, HDI_LANES_BULK, 64 * MIB},
        {-1, -1, HDI_LINK_NONE, 4 * MIB, HDI_LANES_QUICK, 64 * MIB},
        {-1, -1, HDI_LINK_NONE, 4 * MIB + 1, HDI_LANES_BULK, 64 * MIB},
        {1, 1, HDI_LINK_NONE, 32 * MIB, HDI_LANES_QUICK, 256 * MIB},
        {1, 1, HDI_LINK_NONE, 32 * MIB + 1, HDI_LANES_BULK, 256 * MIB},
        {0, 1, HDI_LINK_GOOD, 32 * MIB, HDI_LANES_QUICK, 256 * MIB},
        {0, 1, HDI_LINK_GOOD, 32 * MIB + 1, HDI_LANES_BULK, 256 * MIB},
        {0, 1, HDI_LINK_GOOD, 100 * GIB, HDI_LANES_BULK, 256 * MIB},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_route_facts facts = {table[i].src, table[i].dst, table[i].link, table[i].link, table[i].bytes};
        hdi_route route = hdi_route_plan(&facts);
        assert_int_equal(route.lanes, table[i].lanes);
        assert_int_equal(route.piece, table[i].piece);
    }
}

static void staged_copies_go_through_chunks_of_their_size(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        hdi_route_lanes lanes;
        uint64_t chunk, piece;
    } table[] = {
        {1, HDI_LANES_QUICK, 64 * KIB, 64 * KIB},
        {64 * KIB, HDI_LANES_QUICK, 64 * KIB, 64 * KIB},
        {64 * KIB + 1, HDI_LANES_QUICK, 1 * MIB, 1 * MIB},
        {1 * MIB, HDI_LANES_QUICK, 1 * MIB, 1 * MIB},
        {1 * MIB + 1, HDI_LANES_PAIR, LARGE, 1 * MIB},
        {8 * MIB, HDI_LANES_PAIR, LARGE, 1 * MIB},
        {8 * MIB + 1, HDI_LANES_PAIR, LARGE, 1 * MIB + 256 * KIB},
        {10 * MIB, HDI_LANES_PAIR, LARGE, 1 * MIB + 256 * KIB},
        {10 * MIB + 1, HDI_LANES_PAIR, LARGE, 1 * MIB + 512 * KIB},
        {8 * LARGE - 2 * MIB, HDI_LANES_PAIR, LARGE, LARGE - 256 * KIB},
        {8 * LARGE, HDI_LANES_PAIR, LARGE, LARGE},
        {8 * LARGE + 1, HDI_LANES_PAIR, LARGE, LARGE},
        {100 * GIB, HDI_LANES_PAIR, LARGE, LARGE},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_route_facts facts = {2, 1, NONE, NONE, table[i].bytes};
        hdi_route route = hdi_route_plan(&facts);
        assert_int_equal(route.kind, HDI_ROUTE_STAGED);
        assert_int_equal(route.device, 2);
        assert_int_equal(route.second, 1);
        assert_int_equal(route.lanes, table[i].lanes);
        assert_int_equal(route.chunk, table[i].chunk);
        assert_int_equal(route.piece, table[i].piece);
    }
    /* For any number of bytes, a piece fits into its chunk, and a small copy is one piece. */
    for (uint64_t bytes = 1; bytes < 200 * MIB; bytes += 1 + bytes / 7) {
        hdi_route_facts facts = {0, 1, HDI_LINK_NONE, HDI_LINK_NONE, bytes};
        hdi_route route = hdi_route_plan(&facts);
        assert_true(route.piece <= route.chunk);
        assert_true(route.lanes == HDI_LANES_PAIR || bytes <= route.piece);
        assert_true(route.lanes != HDI_LANES_PAIR || bytes > route.piece);
        assert_true(bytes > 8 * LARGE || bytes <= HDI_STAGED_PARTS * route.piece);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_has_its_way),
        cmocka_unit_test(the_source_writes_rather_than_the_destination_reads),
        cmocka_unit_test(large_copies_have_lanes_of_their_own_and_pieces),
        cmocka_unit_test(staged_copies_go_through_chunks_of_their_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
