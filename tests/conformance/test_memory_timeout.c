/* test_memory_timeout.c - waits of an allocation at the limit: for whom, for how long, and the
 * report when it gives up.
 *
 * Promise: An allocation at the limit waits at least memory_timeout, then names what it awaited.
 *
 * It waits for memory that will be free.
 *
 * Threads: the main one, and one that may free memory.
 * Locks: none.
 * Always: the test checks no upper bound. The least time of a wait is a fact however busy the
 * machine is.
 */
#include "pool.h"

enum { TIMEOUT_MS = 300 };
#define LONG "memory_timeout=600000 " /* the watchdog ends a case that waits for this */

static void says(const char *what)
{
    if (strstr(hd_message(), what) == NULL) {
        conf_fail_at(__FILE__, __LINE__, "the message does not contain \"%s\": %s", what, hd_message());
    }
}

typedef struct other {
    hd_buffer *read; /* NULL: the thread makes no call */
    pthread_barrier_t barrier;
    atomic_bool over;
} other;

/* Makes no call, or only hd_read. Then the thread stays, and might call again at any time. */
static void *is_there(void *argument)
{
    other *o = argument;
    uint32_t word;
    if (o->read) {
        CONF_OK(hd_read(o->read, 0, &word, 4));
    }
    pthread_barrier_wait(&o->barrier);
    while (!atomic_load(&o->over)) {
        conf_sleep_ms(1);
    }
    return NULL;
}

static pthread_t starts(other *o, void *(*run)(void *))
{
    pthread_t thread;
    pthread_barrier_init(&o->barrier, NULL, 2);
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&thread, NULL, run, o), 0);
    pthread_barrier_wait(&o->barrier);
    return thread;
}

static void ends(other *o, pthread_t thread)
{
    atomic_store(&o->over, true);
    pthread_join(thread, NULL);
    conf_failure_ends_program = false;
    pthread_barrier_destroy(&o->barrier);
}

/* An allocation waits, as long as the option sets, for a thread that made a call and frees nothing
 * for now. */
static void who_uses_the_library_is_waited_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with(
        "host_devices=1 host_memory=128M memory_limit=16M pinned_limit=64M memory_timeout=%d", TIMEOUT_MS);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *none = NULL;
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &x));
    CONF_OK(hd_fill(x, 0, 1, 12 * POOL_MIB, NULL));
    other o = {.read = x};
    pthread_t thread = starts(&o, is_there);
    int64_t begin = conf_now();
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_TRUE(conf_now() - begin >= TIMEOUT_MS * (CONF_SECOND / 1000));
    CONF_TRUE(pool_stats(runtime, 0).wait_ns >= (uint64_t)TIMEOUT_MS * 1000000);
    says("freed or finished for 300 ms (option memory_timeout)");

    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 40 * POOL_MIB, &pinned));
    begin = conf_now();
    CONF_FAILS(hd_alloc_host(runtime, 40 * POOL_MIB, &none), HD_ERROR_HOST_MEMORY);
    CONF_TRUE(conf_now() - begin >= TIMEOUT_MS * (CONF_SECOND / 1000));
    says("freed or finished for 300 ms (option memory_timeout)");
    ends(&o, thread);
    hd_free(pinned);
    hd_free(x);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* The thread that allocates made no call before. The thread that opened the runtime counts
 * nevertheless. */
static void *allocates(void *argument)
{
    hd_lane *lane = argument;
    hd_buffer *none = NULL;
    CONF_FAILS(hd_alloc(lane, 4 * POOL_MIB, &none), HD_ERROR_MEMORY);
    says("freed or finished for 300 ms (option memory_timeout)");
    return NULL;
}

static void who_opened_the_runtime_is_waited_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=8M memory_limit=4M memory_timeout=%d", TIMEOUT_MS);
    hd_lane *lane = NULL;
    hd_buffer *x = NULL;
    pthread_t thread;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, 4 * POOL_MIB, &x));
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&thread, NULL, allocates, lane), 0);
    pthread_join(thread, NULL);
    conf_failure_ends_program = false;
    hd_free(x);
    conf_close(runtime);
}

enum { PIECES = 8 };

typedef struct slow {
    hd_buffer *pieces[PIECES];
    pthread_barrier_t barrier;
    int64_t longest; /* between two frees */
} slow;

static void *frees_slowly(void *argument)
{
    slow *s = argument;
    /* any call: from now on the allocation waits for it */
    CONF_OK(hd_buffer_set_label(s->pieces[0], "first"));
    pthread_barrier_wait(&s->barrier);
    int64_t before = conf_now();
    for (int i = 0; i < PIECES; i++) {
        conf_sleep_ms(TIMEOUT_MS / 4);
        hd_free(s->pieces[i]);
        int64_t now = conf_now();
        s->longest = now - before > s->longest ? now - before : s->longest;
        before = now;
    }
    return NULL;
}

/* All of the memory is freed in the end, some time after the timeout. Each free starts the timeout
 * anew. */
static void whatever_moves_begins_it_anew(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        bool done = false;
        while (!done) {
            hd_runtime *runtime = conf_open_with(
                "host_devices=1 host_memory=128M memory_limit=16M pinned_limit=16M memory_timeout=%d", TIMEOUT_MS);
            hd_lane *lane = conf_default_lane(runtime, 0);
            slow s = {0};
            pthread_t thread;
            hd_buffer *x = NULL;
            for (int i = 0; i < PIECES; i++) {
                CONF_OK(pinned ? hd_alloc_host(runtime, 2 * POOL_MIB - 65536, &s.pieces[i])
                               : hd_alloc(lane, 2 * POOL_MIB, &s.pieces[i]));
            }
            pthread_barrier_init(&s.barrier, NULL, 2);
            conf_failure_ends_program = true;
            CONF_EQUAL(pthread_create(&thread, NULL, frees_slowly, &s), 0);
            pthread_barrier_wait(&s.barrier);
            hd_status status = pinned ? hd_alloc_host(runtime, 14 * POOL_MIB, &x) : hd_alloc(lane, 16 * POOL_MIB, &x);
            pthread_join(thread, NULL);
            conf_failure_ends_program = false;
            /* If the machine keeps the thread from running for this long, the case shows
             * nothing. */
            done = status == HD_OK || s.longest < TIMEOUT_MS * (CONF_SECOND / 1000);
            if (done) {
                CONF_EQUAL(status, HD_OK);
            }
            hd_free(x);
            pthread_barrier_destroy(&s.barrier);
            pool_gives_all_back(runtime, 0);
            conf_close(runtime);
        }
    }
}

/* No work is in flight, and the only other thread made no call: the allocation waits for no
 * thread. */
static void who_never_called_is_not_waited_for(void **state)
{
    (void)state;
    other o = {.read = NULL};
    pthread_t thread = starts(&o, is_there);
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=16M pinned_limit=64M " LONG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *none = NULL;
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &x));
    CONF_OK(hd_fill(x, 0, 1, 12 * POOL_MIB, NULL));
    CONF_OK(hd_buffer_set_label(x, "weights"));
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    says("8 MiB on device 0");
    says("12 MiB of at most 16 MiB");
    says("no other thread uses the library");
    says("free buffers or raise memory_limit");
    says("'weights' 12 MiB in 1");
    CONF_FAILS(hd_alloc(lane, 17 * POOL_MIB, &none), HD_ERROR_MEMORY);
    says("raise memory_limit (16 MiB)");
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 40 * POOL_MIB, &pinned));
    CONF_FAILS(hd_alloc_host(runtime, 40 * POOL_MIB, &none), HD_ERROR_HOST_MEMORY);
    says("40 MiB");
    says("no other thread uses the library");
    says("free buffers or raise pinned_limit");
    CONF_FAILS(hd_alloc_host(runtime, 65 * POOL_MIB, &none), HD_ERROR_HOST_MEMORY);
    says("raise pinned_limit (64 MiB)");
    hd_free(pinned);
    hd_free(x);
    ends(&o, thread);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

static void *frees_and_ends(void *argument)
{
    hd_free(argument);
    return NULL;
}

/* Nor does it wait for a thread that ended. It finds the memory that the thread freed. */
static void who_has_ended_is_not_waited_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=16M " LONG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL, *none = NULL;
    pthread_t thread;
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &x));
    CONF_EQUAL(pthread_create(&thread, NULL, frees_and_ends, x), 0);
    pthread_join(thread, NULL);
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &y));
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    says("no other thread uses the library");
    hd_free(y);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* If no buffer of the program is on the device, none can be freed. */
static void nothing_to_free_is_not_asked_for(void **state)
{
    (void)state;
    if (conf_on_gpus) {
        return;
    }
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=16M memory_timeout=0");
    hd_buffer *none = NULL;
    CONF_FAILS(hd_alloc(conf_default_lane(runtime, 0), 17 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_TRUE(strstr(hd_message(), "free buffers") == NULL);
    /* it is the whole device already */
    CONF_TRUE(strstr(hd_message(), "raise memory_limit") == NULL);
    says("the device has no more");
    conf_close(runtime);
}

/* If the driver is out of memory and a device holds too little, nothing that threads or work could
 * free makes room. */
static void nobody_waits_where_nothing_can_be_freed(void **state)
{
    (void)state;
    if (conf_on_gpus) {
        return;
    }
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=64M " LONG "fault=cuMemCreate:3+");
    hd_buffer *held = NULL, *none = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 4 * POOL_MIB, &held)); /* two granules */
    CONF_OK(hd_fill(held, 0, 1, 4 * POOL_MIB, NULL));
    other o = {.read = held};
    pthread_t thread = starts(&o, is_there);
    CONF_FAILS(hd_alloc(conf_default_lane(runtime, 0), 6 * POOL_MIB, &none), HD_ERROR_MEMORY);
    says("others hold the rest of the device");
    /* Each device counts its own calls in its process, or all share one. */
    CONF_FAILS(hd_alloc(conf_default_lane(runtime, 1), 6 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(pool_stats(runtime, 0).waits + pool_stats(runtime, 1).waits, 0);
    ends(&o, thread);
    hd_free(held);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_timeout");
    const struct CMUnitTest tests[] = {
        CONF_CASE(who_uses_the_library_is_waited_for),      CONF_CASE(who_opened_the_runtime_is_waited_for),
        CONF_CASE(whatever_moves_begins_it_anew),           CONF_CASE(who_never_called_is_not_waited_for),
        CONF_CASE(who_has_ended_is_not_waited_for),         CONF_CASE(nothing_to_free_is_not_asked_for),
        CONF_CASE(nobody_waits_where_nothing_can_be_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
