/* test_worker_matmul.c - matrix products of devices that are lost and restart.
 *
 * Promise: Matrix products work again after a restart; a library that hangs costs only its device.
 *
 * The fresh worker opens libraries again.
 *
 * Threads: the main one, and one that loses a device while others make products.
 * Locks: none.
 */
#include "matmul.h"
#include "workers.h"

static void check_product(hd_lane *lane, hd_type type, uint64_t seed, const char *what)
{
    conf_random r = {seed};
    const uint64_t a[] = {37, 41}, b[] = {41, 29}, c[] = {37, 29};
    mm_operand oa = mm_make(type, 2, a, MM_ROWS, 0, &r), ob = mm_make(type, 2, b, MM_COLUMNS, 0, &r);
    mm_operand oc = mm_make(type, 2, c, MM_ROWS, 0, &r);
    mm_put(&oa, lane);
    mm_put(&ob, lane);
    mm_put(&oc, lane);
    mm_check(lane, &oc, &oa, &ob, 1, 0.5, what);
    mm_free(&oa);
    mm_free(&ob);
    mm_free(&oc);
}

static void libraries_are_opened_again(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        if (runtime == NULL) {
            continue;
        }
        int lost = hd_device_count(runtime) - 1;
        hd_lane *mine = conf_default_lane(runtime, lost), *other = NULL, *fresh = NULL;
        CONF_OK(hd_lane_create(runtime, lost, &other));
        char before[64] = "", after[64] = "";
        check_product(mine, HD_TYPE_F32, 1, ways[way]);
        check_product(other, HD_TYPE_C128, 2, ways[way]);
        CONF_OK(conf_matmul_library(mine, before, sizeof before, NULL, 0));
        for (int round = 0; round < 3; round++) {
            hd_buffer *x = NULL, *pinned = NULL;
            CONF_OK(hd_alloc(mine, 4096, &x));
            CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
            CONF_OK(hd_fill(pinned, 0, 0, 4096, NULL));
            wk_lose_now(runtime, lost);
            const hd_tensor t = {.buffer = pinned, .type = HD_TYPE_F64, .dims = 2, .shape = {8, 8}, .stride = {64, 8}};
            hd_tensor gone = t, c = t;
            gone.buffer = x;
            c.offset = 1024;
            CONF_FAILS(hd_tensor_matmul(mine, &c, &gone, &t, 1, 0, NULL), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_tensor_matmul(mine, &c, &t, &t, 1, 0, NULL), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(conf_matmul_library(mine, after, sizeof after, NULL, 0), HD_ERROR_DEVICE_LOST);
            if (lost > 0) {
                check_product(conf_default_lane(runtime, 0), HD_TYPE_F32, 3, "another device");
            }
            CONF_OK(hd_device_restart(runtime, lost));
            CONF_FAILS(hd_tensor_matmul(mine, &c, &gone, &t, 1, 0, NULL), HD_ERROR_DEVICE_LOST);
            hd_free(x);
            hd_free(pinned);
            check_product(mine, HD_TYPE_F32, 4, "after a restart");
            check_product(other, HD_TYPE_C128, 5, "after a restart, in another lane");
            CONF_OK(hd_lane_create(runtime, lost, &fresh));
            check_product(fresh, HD_TYPE_F64, 6, "after a restart, in a fresh lane");
            hd_lane_destroy(fresh);
            CONF_OK(conf_matmul_library(mine, after, sizeof after, NULL, 0));
            CONF_TRUE(strcmp(before, after) == 0);
        }
        conf_close(runtime);
    }
}

/* The device ends while products are made: each of them is right, or fails as lost. */
static void losses_while_products_are_made(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        hd_runtime *runtime = open_way(way, "");
        if (runtime == NULL) {
            continue;
        }
        int lost = hd_device_count(runtime) - 1;
        hd_lane *lane = conf_default_lane(runtime, lost);
        enum { N = 96, PRODUCTS = 40 };
        static float ones[N * N], got[N * N];
        for (int i = 0; i < N * N; i++) {
            ones[i] = 1;
        }
        for (int round = 0; round < 3; round++) {
            hd_buffer *x = NULL, *y = NULL;
            CONF_OK(hd_alloc(lane, sizeof ones, &x));
            CONF_OK(hd_alloc(lane, sizeof ones, &y));
            CONF_OK(hd_write(x, 0, ones, sizeof ones));
            const hd_tensor a = {.buffer = x, .type = HD_TYPE_F32, .dims = 2, .shape = {N, N}, .stride = {N * 4, 4}};
            hd_tensor c = a;
            c.buffer = y;
            hd_ticket ticket = {NULL, 0};
            hd_status status = HD_OK;
            for (int i = 0; i < PRODUCTS && status == HD_OK; i++) {
                if (i == PRODUCTS / 2) {
                    CONF_EQUAL(kill(wk_pid(runtime, lost), SIGKILL), 0);
                }
                status = hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &ticket);
            }
            if (status == HD_OK) {
                CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
            } else {
                CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
            }
            wk_only_loss(runtime, lost);
            hd_free(x);
            hd_free(y);
            CONF_OK(hd_device_restart(runtime, lost));
            CONF_OK(hd_alloc(lane, sizeof ones, &x));
            CONF_OK(hd_alloc(lane, sizeof ones, &y));
            CONF_OK(hd_write(x, 0, ones, sizeof ones));
            hd_tensor again = a;
            again.buffer = x;
            c.buffer = y;
            CONF_OK(hd_tensor_matmul(lane, &c, &again, &again, 1, 0, NULL));
            CONF_OK(hd_read(y, 0, got, sizeof got));
            for (int i = 0; i < N * N; i++) {
                CONF_TRUE(got[i] == N);
            }
            hd_free(x);
            hd_free(y);
        }
        conf_close(runtime);
    }
}

/* If a library hangs in its own start, the worker does not answer. */
static void a_library_that_hangs_costs_its_device(void **state)
{
    (void)state;
    /* for a request about code ten times as long */
    hd_runtime *runtime = conf_open_with("delay=blasOpen:1=600000000 worker_timeout=%d",
                                         conf_on_gpus ? wk_stuck_ms() : wk_stuck_ms() / (CONF_SLOWNESS > 1 ? 4 : 2));
    int lost = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, lost);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_alloc(lane, 4096, &y));
    const hd_tensor a = {.buffer = x, .type = HD_TYPE_F32, .dims = 2, .shape = {8, 8}, .stride = {32, 4}};
    hd_tensor c = a;
    c.buffer = y;
    hd_ticket ticket = {NULL, 9};
    CONF_FAILS_WITH(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &ticket), HD_ERROR_DEVICE_LOST, "worker_timeout");
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 9);
    hd_device_loss loss = wk_only_loss(runtime, lost);
    CONF_EQUAL(loss.cause, HD_LOSS_WORKER_STUCK);
    if (lost > 0) {
        wk_works(runtime, 0);
    }
    conf_close(runtime);
}

/* The driver ends all work while a product is put into its stream. */
static void a_product_that_ends_its_device(void **state)
{
    (void)state;
    int way = library_way();
    if (way < 0) {
        skip();
    }
    hd_runtime *runtime = conf_open_with("%s fault=blasProduct:1=700", ways[way]);
    int lost = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, lost);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_alloc(lane, 4096, &y));
    CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
    const hd_tensor a = {.buffer = x, .type = HD_TYPE_F32, .dims = 2, .shape = {8, 8}, .stride = {32, 4}};
    hd_tensor c = a;
    c.buffer = y;
    hd_ticket ticket;
    CONF_OK(hd_tensor_matmul(lane, &c, &a, &a, 1, 0, &ticket));
    CONF_FAILS_WITH(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, "a matrix product");
    CONF_TRUE(strstr(hd_message(), "ILLEGAL_ADDRESS") != NULL);
    hd_device_loss loss = wk_only_loss(runtime, lost);
    CONF_EQUAL(loss.cause, HD_LOSS_DRIVER);
    conf_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(libraries_are_opened_again),
        CONF_CASE(losses_while_products_are_made),
        CONF_CASE(a_library_that_hangs_costs_its_device),
        CONF_CASE(a_product_that_ends_its_device),
    };
    wk_begin("test_worker_matmul");
    return cmocka_run_group_tests_name("worker_matmul", tests, NULL, NULL);
}
