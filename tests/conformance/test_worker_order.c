/* test_worker_order.c - pending work of healthy devices for a lost one keeps its place.
 *
 * Promise: Waits for a lost device end, and waits for healthy devices hold.
 *
 * Kernels that run until their flag ends them hold the healthy device's work back.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: no work overtakes a healthy device that still writes memory, and that memory is neither
 * given away nor unmapped.
 */
#include "workers.h"

enum { words = 5000, bytes = words * 4 };

/* A healthy device still has to write bytes for a reader on a lost one. The next use of them waits
 * for the healthy device, and never for the lost one. */
static void the_order_of_the_living_stays(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        hd_runtime *runtime = conf_open("transfer_timeout=400");
        CONF_NEED_DEVICES(runtime, 2);
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        conf_kernels builtin = conf_builtins(runtime);
        int lost = hd_device_count(runtime) - 1;
        hd_lane *lane = NULL, *other = NULL, *dead = conf_default_lane(runtime, lost);
        hd_buffer *x = NULL, *y = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        CONF_OK(hd_lane_create(runtime, 0, &other));
        CONF_OK(pinned ? hd_alloc_host(runtime, bytes, &x) : hd_alloc(lane, bytes, &x));
        CONF_OK(hd_alloc(dead, bytes, &y));
        CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
        CONF_OK(hd_fill(y, 0, 0, bytes, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
        CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
        wk_warm(runtime, 0, k);
        wk_warm(runtime, lost, k);
        wk_gate gate;
        wk_gate_shut(&gate, runtime, lane, k);
        CONF_OK(conf_fill(lane, builtin, x, 0, words, 1, NULL)); /* behind the gate */
        hd_ticket ticket;
        CONF_OK(hd_copy(y, 0, x, 0, bytes, &ticket)); /* behind that, for the lost one */
        if (conf_reaches(runtime, lost, 0)) {
            CONF_OK(conf_copy(dead, builtin, y, 0, x, 0, words, NULL));
        }
        wk_lose_now(runtime, lost);
        hd_status status = hd_wait(ticket, 200 * CONF_MILLISECOND);
        CONF_TRUE(status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED || status == HD_ERROR_TIMEOUT);
        uint32_t word = 7;
        CONF_FAILS(hd_buffer_wait(x, HD_READ, 50 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
        CONF_FAILS(hd_buffer_wait(x, HD_READ_WRITE, 50 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
        CONF_FAILS(hd_read(x, 0, &word, 4), HD_ERROR_TIMEOUT);
        if (pinned) {
            CONF_FAILS(hd_write(x, 0, &word, 4), HD_ERROR_TIMEOUT);
            void *p = NULL;
            CONF_FAILS(hd_map(x, HD_WRITE, &p), HD_ERROR_TIMEOUT);
        }
        /* in another lane: after it nevertheless */
        CONF_OK(conf_fill(other, builtin, x, 0, words / 2, 2, NULL));
        CONF_OK(hd_fill(x, bytes / 2, 3, bytes / 2, NULL));
        conf_sleep_ms(50);
        wk_gate_open(&gate);
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        CONF_OK(hd_lane_wait(other, 60 * CONF_SECOND));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
        CONF_FILLED(x, 0, 2, bytes / 2);
        CONF_FILLED(x, bytes / 2, 3, bytes / 2);
        hd_unmap(gate.pinned);
        conf_close(runtime);
    }
}

/* Freed memory that a healthy device still has to write, and a lost one after it: it gets no next
 * owner before that. */
static void freed_memory_waits_for_the_living(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        hd_runtime *runtime = conf_open(NULL);
        CONF_NEED_DEVICES(runtime, 2);
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        conf_kernels builtin = conf_builtins(runtime);
        int lost = hd_device_count(runtime) - 1;
        hd_lane *lane = NULL, *other = NULL, *writer = NULL, *dead = conf_default_lane(runtime, lost);
        enum { n = 8 };
        hd_buffer *x[n], *y = NULL, *z[n];
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        CONF_OK(hd_lane_create(runtime, 0, &other));
        /* on another device if there is one: the gate may keep all of device 0 busy */
        CONF_OK(hd_lane_create(runtime, lost > 1 ? 1 : 0, &writer));
        CONF_OK(hd_alloc(dead, bytes, &y));
        CONF_OK(hd_fill(y, 0, 2, bytes, NULL));
        for (int i = 0; i < n; i++) {
            CONF_OK(pinned ? hd_alloc_host(runtime, bytes, &x[i]) : hd_alloc(lane, bytes, &x[i]));
            CONF_OK(hd_fill(x[i], 0, 0, bytes, NULL));
            CONF_OK(hd_buffer_wait(x[i], HD_READ_WRITE, 60 * CONF_SECOND));
        }
        wk_warm(runtime, 0, k);
        wk_gate gate;
        wk_gate_shut(&gate, runtime, lane, k);
        for (int i = 0; i < n; i++) {
            CONF_OK(conf_fill(lane, builtin, x[i], 0, words, 1, NULL)); /* behind the gate */
            /* behind that, by the lost one */
            CONF_OK(hd_copy(x[i], 0, y, 0, bytes, NULL));
        }
        wk_lose_now(runtime, lost);
        for (int i = 0; i < n; i++) {
            hd_free(x[i]);
        }
        for (int i = 0; i < n; i++) { /* probably the same places */
            CONF_OK(hd_alloc(other, bytes, &z[i]));
            CONF_OK(conf_fill(writer, builtin, z[i], 0, words, 0x20u + (uint32_t)i, NULL));
        }
        conf_sleep_ms(50);
        wk_gate_open(&gate);
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        CONF_OK(hd_lane_wait(writer, 60 * CONF_SECOND));
        for (int i = 0; i < n; i++) {
            CONF_FILLED(z[i], 0, 0x20u + (uint32_t)i, bytes);
        }
        wk_others_work(runtime, lost);
        hd_unmap(gate.pinned);
        conf_close(runtime);
    }
}

/* The same for pinned memory through which copies pass. A healthy device still has to write there
 * for a copy to a lost one. */
static void pinned_chunks_are_not_given_away(void **state)
{
    (void)state;
    enum { n = 24 }; /* of 32 small chunks */
    hd_runtime *runtime = conf_open("host_peers=none");
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    conf_kernels builtin = conf_builtins(runtime);
    int lost = hd_device_count(runtime) - 1;
    hd_lane *lane = NULL, *later = NULL;
    hd_buffer *x[n], *y[n], *z[n];
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_lane_create(runtime, 0, &later));
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc(lane, bytes, &x[i]));
        CONF_OK(hd_alloc(conf_default_lane(runtime, lost), bytes, &y[i]));
        CONF_OK(hd_alloc(later, bytes, &z[i]));
        hd_buffer *all[] = {x[i], y[i], z[i]};
        for (int j = 0; j < 3; j++) {
            CONF_OK(hd_fill(all[j], 0, 0, bytes, NULL));
            CONF_OK(hd_buffer_wait(all[j], HD_READ_WRITE, 60 * CONF_SECOND));
        }
    }
    wk_warm(runtime, 0, k);
    wk_gate first, second;
    wk_gate_shut(&first, runtime, lane, k);
    wk_gate_shut(&second, runtime, later, k);
    /* behind the first gate: to pinned memory, and on to the lost one */
    for (int i = 0; i < n; i++) {
        CONF_OK(conf_fill(lane, builtin, x[i], 0, words, 0x0bad0000u + (uint32_t)i, NULL));
        CONF_OK(hd_copy(y[i], 0, x[i], 0, bytes, NULL));
    }
    wk_lose_now(runtime, lost);
    static uint32_t data[words];
    for (int i = 0; i < n / 3; i++) { /* behind the second gate: from pinned memory */
        for (int j = 0; j < words; j++) {
            data[j] = 0x600d0000u + (uint32_t)i;
        }
        CONF_OK(conf_fill(later, builtin, z[i], 0, words, 0, NULL));
        CONF_OK(hd_write(z[i], 0, data, bytes));
    }
    wk_gate_open(&first);
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    for (int i = 0; i < n; i++) {
        /* every reader has read all of it */
        CONF_OK(hd_buffer_wait(x[i], HD_READ_WRITE, 60 * CONF_SECOND));
    }
    wk_gate_open(&second);
    for (int i = 0; i < n / 3; i++) {
        CONF_FILLED(z[i], 0, 0x600d0000u + (uint32_t)i, bytes);
    }
    for (int i = 0; i < n; i++) {
        CONF_FILLED(x[i], 0, 0x0bad0000u + (uint32_t)i, bytes);
    }
    hd_unmap(first.pinned);
    hd_unmap(second.pinned);
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_order");
    const struct CMUnitTest tests[] = {
        CONF_CASE(the_order_of_the_living_stays),
        CONF_CASE(freed_memory_waits_for_the_living),
        CONF_CASE(pinned_chunks_are_not_given_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
