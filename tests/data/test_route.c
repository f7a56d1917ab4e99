/* test_route.c - the routes of copies, as a table of facts. One thread, no locks. */
#include "support/check.h"

#include "data/route.h"

static void every_combination_has_its_route(void **state)
{
    (void)state;
    static const struct {
        hdi_route_facts facts;
        hdi_route_kind kind;
        int device;
    } table[] = {
        {{-1, -1, false, false}, HDI_ROUTE_HOST, 0},   {{-1, 2, false, false}, HDI_ROUTE_TO_DEVICE, 2},
        {{3, -1, false, false}, HDI_ROUTE_TO_HOST, 3}, {{1, 1, false, false}, HDI_ROUTE_ON_DEVICE, 1},
        {{1, 1, true, true}, HDI_ROUTE_ON_DEVICE, 1},  {{0, 1, true, true}, HDI_ROUTE_PEER, 0},
        {{0, 1, true, false}, HDI_ROUTE_PEER, 0},      {{0, 1, false, true}, HDI_ROUTE_PEER, 1},
        {{0, 1, false, false}, HDI_ROUTE_STAGED, 0},   {{5, 4, false, false}, HDI_ROUTE_STAGED, 5},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        hdi_route route = hdi_route_plan(&table[i].facts);
        assert_int_equal(route.kind, table[i].kind);
        assert_int_equal(route.device, table[i].device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_combination_has_its_route)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
