/* test_lane_reuse.c - lanes that are given back and given out again.
 *
 * Promise: A new lane accepts work, whatever its former owner left in it.
 *
 * If there are more threads than lanes, threads share default lanes.
 *
 * Threads: up to 300 that use default lanes at once.
 * Locks: none. The threads meet at a barrier.
 * Always: a new lane accepts work.
 */
#include "conformance.h"

#include <pthread.h>

enum { bytes = 4096, lanes_most = 256, delay_us = 1000000 };

/* Makes lanes until it fails; returns their number. */
static int take_all(hd_runtime *runtime, hd_lane **lanes)
{
    int made = 0;
    while (made < lanes_most && hd_lane_create(runtime, 0, &lanes[made]) == HD_OK) {
        made++;
    }
    return made;
}

/* The lane was given out again. Then work of its former owner fails. */
static void a_late_failure_is_the_former_owners(void **state)
{
    (void)state;
    char settings[128];
    snprintf(settings, sizeof settings, "fault=cuLaunchKernel:2=1 delay=cuLaunchKernel:2=%d", delay_us);
    hd_runtime *runtime = conf_open(settings);
    conf_kernels k = conf_builtins(runtime);
    static hd_lane *lanes[lanes_most];
    hd_buffer *x = NULL, *y = NULL;
    hd_ticket failing, good;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &y));
    int made = take_all(runtime, lanes);
    hd_lane *lane = lanes[made - 1];
    CONF_OK(conf_fill(lane, k, x, 0, 4, 1, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(conf_fill(lane, k, x, 0, 4, 2, &failing));
    hd_lane_destroy(lane);
    CONF_OK(hd_lane_create(runtime, 0, &lane)); /* the only lane, with its work */
    for (int i = 0; i < 3; i++) {
        CONF_OK(conf_fill(lane, k, y, 0, 4, 3, &good));
        CONF_OK(hd_wait(good, 60 * CONF_SECOND));
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    }
    CONF_FAILS(hd_wait(failing, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_FILLED(y, 0, 3, 16);
    conf_close(runtime);
}

/* In its lane, the former owner reads a result that fails later. The lane's next owner reads it as
 * well, and must also fail. */
static void what_the_former_owner_read_still_fails(void **state)
{
    (void)state;
    char settings[128];
    snprintf(settings, sizeof settings, "fault=cuLaunchKernel:2=1 delay=cuLaunchKernel:2=%d", delay_us);
    hd_runtime *runtime = conf_open(settings);
    conf_kernels k = conf_builtins(runtime);
    static hd_lane *lanes[lanes_most];
    hd_buffer *x = NULL, *y = NULL, *z = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &y));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &z));
    int made = take_all(runtime, lanes);
    hd_lane *writer = lanes[made - 2], *reader = lanes[made - 1];
    CONF_OK(conf_fill(writer, k, y, 0, 4, 1, NULL));
    CONF_OK(hd_lane_wait(writer, 60 * CONF_SECOND));
    CONF_OK(conf_fill(writer, k, x, 0, 4, 2, NULL)); /* fails, after a while */
    hd_status status = conf_copy(reader, k, y, 0, x, 0, 4, NULL);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_FAILED);
    hd_lane_destroy(reader);
    CONF_OK(hd_lane_create(runtime, 0, &reader)); /* the only lane, with its work */
    hd_ticket ticket = {NULL, 0};
    status = conf_copy(reader, k, z, 0, x, 0, 4, &ticket);
    CONF_FAILS(status ? status : hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
    conf_close(runtime);
}

/* A failed lane that was not reset. */
static void an_early_failure_is_the_former_owners(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:2=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL, *next = NULL;
    hd_buffer *x = NULL, *y = NULL;
    hd_ticket ticket;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_alloc(lane, bytes, &y));
    CONF_OK(conf_fill(lane, k, x, 0, 4, 1, NULL));
    CONF_OK(conf_fill(lane, k, x, 0, 4, 2, &ticket));
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
    int number = hd_lane_number(lane);
    hd_lane_destroy(lane);
    CONF_OK(hd_lane_create(runtime, 0, &next));
    CONF_EQUAL(hd_lane_number(next), number);
    CONF_OK(hd_lane_wait(next, 60 * CONF_SECOND));
    CONF_OK(conf_fill(next, k, y, 0, 4, 3, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    conf_close(runtime);
}

/* Copies take lanes of the library, whose failures concern no other work. They never take a former
 * lane of the program, which would refuse work. */
static void copies_do_not_take_lanes_of_the_program(void **state)
{
    (void)state;
    enum { large = 40 << 20 }; /* larger than copies in the lanes that hd_open makes */
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoDAsync:1=1");
    hd_lane *lanes[8];
    for (int i = 0; i < 8; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
    }
    for (int i = 0; i < 8; i++) {
        hd_lane_destroy(lanes[i]);
    }
    hd_buffer *from = NULL, *to = NULL, *other = NULL;
    hd_ticket ticket;
    hd_buffer **all[] = {&from, &to, &other};
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), large, all[i]));
        CONF_OK(hd_fill(*all[i], 0, 7, large, NULL));
        CONF_OK(hd_buffer_wait(*all[i], HD_READ_WRITE, 60 * CONF_SECOND));
    }
    CONF_OK(hd_copy(to, 0, from, 0, large, &ticket));
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_OK(hd_copy(other, 0, from, 0, large, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(other, 0, 7, 4096);
    conf_close(runtime);
}

typedef struct crowd {
    hd_runtime *runtime;
    hd_buffer *buffer;
    conf_kernels kernels;
    pthread_barrier_t start, middle; /* middle: for the threads that stay, and the main one */
    hd_lane *lanes[300];
} crowd;

typedef struct member {
    crowd *all;
    int number;
} member;

static void *is_one_of_many(void *argument)
{
    const member *me = argument;
    crowd *all = me->all;
    hd_lane *lane = conf_default_lane(all->runtime, 0);
    CONF_TRUE(lane != NULL && conf_default_lane(all->runtime, 0) == lane);
    all->lanes[me->number] = lane;
    pthread_barrier_wait(&all->start); /* all alive at once */
    hd_lane_destroy(lane);             /* a default lane: ignored */
    hd_ticket ticket;
    CONF_OK(conf_fill(lane, all->kernels, all->buffer, (size_t)me->number * 4, 1, (uint32_t)me->number, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    if (me->number % 2 == 0) {
        /* others ended; a thread that shared their lane still uses it */
        pthread_barrier_wait(&all->middle);
        CONF_OK(conf_fill(lane, all->kernels, all->buffer, (size_t)me->number * 4, 1, (uint32_t)me->number, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    }
    return NULL;
}

static void threads_beyond_the_number_share(void **state)
{
    (void)state;
    enum { n = 300 };
    static crowd all;
    static member members[n];
    static pthread_t threads[n];
    memset(&all, 0, sizeof all);
    all.runtime = conf_open(NULL);
    all.kernels = conf_builtins(all.runtime);
    hd_lane *mine = NULL;
    CONF_OK(hd_lane_create(all.runtime, 0, &mine)); /* no thread shares it */
    CONF_OK(hd_alloc(mine, (size_t)n * 4, &all.buffer));
    CONF_EQUAL(pthread_barrier_init(&all.start, NULL, n), 0);
    CONF_EQUAL(pthread_barrier_init(&all.middle, NULL, n / 2 + 1), 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)1 << (CONF_SLOWNESS > 1 ? 21 : 18));
    for (int i = 0; i < n; i++) {
        members[i] = (member){&all, i};
        CONF_EQUAL(pthread_create(&threads[i], &attributes, is_one_of_many, &members[i]), 0);
    }
    for (int i = 1; i < n; i += 2) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_wait(&all.middle);
    for (int i = 0; i < n; i += 2) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < n; i++) {
        CONF_TRUE(all.lanes[i] != mine);
        CONF_FILLED(all.buffer, (size_t)i * 4, (uint32_t)i, 4);
        /* the last thread that used it gave it back */
        CONF_EQUAL(hd_lane_device(all.lanes[i]), -1);
    }
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&all.start);
    pthread_barrier_destroy(&all.middle);
    conf_close(all.runtime);
}

int main(void)
{
    conf_begin("test_lane_reuse");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_late_failure_is_the_former_owners),   CONF_CASE(what_the_former_owner_read_still_fails),
        CONF_CASE(an_early_failure_is_the_former_owners), CONF_CASE(copies_do_not_take_lanes_of_the_program),
        CONF_CASE(threads_beyond_the_number_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
