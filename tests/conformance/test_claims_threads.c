/* test_claims_threads.c - many threads begin, end and share claims, among copies and host calls,
 * with more threads than processors.
 *
 * Promise: Preempted between any two steps, claims of many threads never lose or mix up writes.
 * Tier: stress.
 *
 * Each thread counts in its own buffer, mostly by claims without work in front, which end without
 * the engine. All threads count in shared buffers by claims and by host calls. Rings are short. So
 * lanes that the engine meets have often advanced by more than a ring without it.
 *
 * Threads: eight. Locks: none.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "conformance.h"

enum { threads = 8, shared = 6, rounds = 2500, quick = 40, bytes = 4096 };

static struct {
    hd_runtime *runtime;
    hd_buffer *buffers[shared];
    _Atomic uint32_t counts[shared];
} w;

typedef struct counter {
    hd_buffer *own, *device;
    uint32_t count; /* the content of `own` */
    conf_random random;
} counter;

static hd_status add_one(void *const *pointers, void *context)
{
    (void)context;
    ++*(uint32_t *)pointers[0];
    return HD_OK;
}

static void count_by_claim(hd_buffer *buffer, hd_ticket *ticket, const uint32_t *expected)
{
    const hd_arg use = hd_inout(buffer);
    hd_claim *c;
    void *pointer;
    CONF_OK(hd_claim_begin(w.runtime, &use, 1, &c));
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_OK(hd_claim_get_pointer(c, 0, &pointer));
    if (expected) {
        CONF_EQUAL(*(uint32_t *)pointer, *expected);
    }
    ++*(uint32_t *)pointer;
    CONF_OK(hd_claim_get_ticket(c, ticket));
    CONF_OK(hd_claim_end(c, HD_OK));
}

static void count_alone(counter *of)
{
    hd_ticket ticket = {0};
    for (int i = 0; i < quick; i++) {
        count_by_claim(of->own, &ticket, &of->count);
        of->count++;
    }
    CONF_OK(hd_wait(ticket, HD_FOREVER));
}

static void claim_behind_a_copy(const counter *of)
{
    const hd_arg use = hd_in(of->device);
    hd_claim *c;
    CONF_OK(hd_copy(of->device, 0, of->own, 0, bytes, NULL));
    CONF_OK(hd_claim_begin(w.runtime, &use, 1, &c));
    CONF_OK(hd_claim_end(c, HD_OK)); /* possibly before it is ready */
}

static void read_back(const counter *of)
{
    uint32_t word = 0;
    CONF_OK(hd_copy(of->device, 0, of->own, 0, bytes, NULL));
    CONF_OK(hd_read(of->device, 0, &word, sizeof word));
    CONF_EQUAL(word, of->count);
}

static void count_together(counter *of)
{
    const uint64_t i = conf_below(&of->random, shared);
    const hd_arg use = hd_inout(w.buffers[i]);
    hd_ticket ticket = {0};
    if (conf_chance(&of->random, 30)) {
        CONF_OK(hd_launch_host(w.runtime, add_one, NULL, &use, 1, NULL));
    } else {
        count_by_claim(w.buffers[i], &ticket, NULL);
        if (conf_chance(&of->random, 50)) {
            CONF_OK(hd_wait(ticket, HD_FOREVER));
        }
    }
    atomic_fetch_add(&w.counts[i], 1);
}

static void *counts(void *number)
{
    counter of = {.random = {(uintptr_t)number + 1}};
    hd_lane *lane = conf_default_lane(w.runtime, (int)((uintptr_t)number % 2) % hd_device_count(w.runtime));
    CONF_OK(hd_alloc_host(w.runtime, bytes, &of.own));
    CONF_OK(hd_alloc(lane, bytes, &of.device));
    CONF_OK(hd_fill(of.own, 0, 0, bytes, NULL));
    for (int i = 0; i < rounds; i++) {
        switch (conf_below(&of.random, 10)) {
        case 0:
            claim_behind_a_copy(&of);
            break;
        case 1:
            read_back(&of);
            break;
        case 2:
        case 3:
        case 4:
        case 5:
            count_together(&of);
            break;
        default:
            count_alone(&of);
        }
    }
    CONF_OK(hd_free(of.own));
    CONF_OK(hd_free(of.device));
    return NULL;
}

static void nothing_is_lost(void **state)
{
    (void)state;
    pthread_t all[threads];
    w.runtime = conf_open("lane_slots=64");
    for (int i = 0; i < shared; i++) {
        CONF_OK(hd_alloc_host(w.runtime, bytes, &w.buffers[i]));
        CONF_OK(hd_fill(w.buffers[i], 0, 0, bytes, NULL));
    }
    for (uintptr_t i = 0; i < threads; i++) {
        CONF_EQUAL(pthread_create(&all[i], NULL, counts, (void *)i), 0);
    }
    for (int i = 0; i < threads; i++) {
        CONF_EQUAL(pthread_join(all[i], NULL), 0);
    }
    for (int i = 0; i < shared; i++) {
        uint32_t word = 0;
        CONF_OK(hd_read(w.buffers[i], 0, &word, sizeof word));
        CONF_EQUAL(word, atomic_load(&w.counts[i]));
        CONF_OK(hd_free(w.buffers[i]));
    }
    conf_close(w.runtime);
}

int main(void)
{
    /* other threads may wait for bytes that the failed thread claimed */
    conf_failure_ends_program = true;
    conf_begin("test_claims_threads");
    const struct CMUnitTest tests[] = {CONF_CASE(nothing_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
