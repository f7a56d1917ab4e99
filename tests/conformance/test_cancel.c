/* test_cancel.c - threads of the program that are cancelled (pthread_cancel, deferred by default)
 * while they make calls.
 *
 * Promise: No call ends a cancelled thread; it ends behind the call, and nothing stays taken.
 *
 * A cancellation is pending when a thread makes a call, so the first cancellation point inside the
 * call would end the thread. The list of calls is that of all public functions (pairs_calls.h). In
 * the last case random calls are cancelled at random moments.
 *
 * Environment: HEDDLE_SEED=N.
 *
 * Threads: the main one, and the cancelled ones, one at a time.
 * Locks: none.
 */
#include "pairs_calls.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum type { T_hd_runtime, T_hd_lane, T_hd_buffer, T_hd_module, T_hd_kernel, T_hd_hold, T_hd_claim } type;

static const struct cancelled_call {
    const char *name;
    type of;
    recipe *call;
} calls[] = {
#define PAIR_CALL(name, of) {#name, T_##of, recipe_##name},
#define PAIR_APART(name)
#define PAIR_END(name, of)
#include "cancel.h"
};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* ---- one call ---- */

typedef struct caller {
    recipe *call;
    things things;
    bool pending; /* a cancellation is pending when the call begins */
    atomic_bool inside;
} caller;

static void *makes_the_call(void *argument)
{
    caller *c = argument;
    if (c->pending) {
        pthread_cancel(pthread_self());
    }
    atomic_store(&c->inside, true);
    c->call(&c->things); /* with any result */
    atomic_store(&c->inside, false);
    pthread_testcancel();
    return NULL;
}

static void is_not_ended(const char *name, recipe *call, const things *t)
{
    caller c = {.call = call, .things = *t, .pending = true};
    pthread_t thread;
    void *result = NULL;
    CONF_EQUAL(pthread_create(&thread, NULL, makes_the_call, &c), 0);
    CONF_EQUAL(pthread_join(thread, &result), 0);
    if (atomic_load(&c.inside)) {
        conf_fail_at(__FILE__, __LINE__, "a thread was ended inside of %s", name);
    }
    CONF_TRUE(result == PTHREAD_CANCELED);
}

/* ---- arguments of the calls ---- */

enum { KINDS = 4 };

static void make_buffer(things *t, int kind)
{
    switch (kind) {
    case 0:
        CONF_OK(hd_alloc(t->lane, PAIR_BYTES, &t->buffer));
        break;
    case 1:
        CONF_OK(hd_alloc_host(t->runtime, PAIR_BYTES, &t->buffer));
        break;
    case 2:
        CONF_OK(hd_alloc_unified(t->lane, PAIR_BYTES, &t->buffer));
        break;
    default: {
        const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
        CONF_OK(hd_alloc_with(t->lane, PAIR_BYTES, &keep, &t->buffer));
    }
    }
    CONF_OK(hd_fill(t->buffer, 0, 0, PAIR_BYTES, NULL));
}

static void equip(things *t, hd_runtime *runtime, int kind)
{
    *t = (things){.runtime = runtime};
    t->image = wk_image(runtime, &t->image_bytes);
    /* no image, so the call fails */
    snprintf(t->image_file, sizeof t->image_file, "/proc/self/exe");
    CONF_OK(hd_lane_create(runtime, 0, &t->lane));
    make_buffer(t, kind);
    CONF_OK(hd_alloc(t->lane, PAIR_BYTES, &t->other));
    CONF_OK(hd_alloc(t->lane, PAIR_BYTES, &t->third));
    CONF_OK(hd_fill(t->other, 0, 0, PAIR_BYTES, NULL));
    CONF_OK(hd_fill(t->third, 0, 0, PAIR_BYTES, NULL));
    CONF_OK(hd_hold_create(runtime, &t->hold));
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &t->claim));
    if (t->image) {
        CONF_OK(hd_module_load(runtime, t->image, t->image_bytes, &t->module));
        CONF_OK(hd_kernel_get(t->module, "add_one", &t->kernel));
    } else {
        CONF_OK(hd_module_get_builtin(runtime, &t->module));
        CONF_OK(hd_kernel_get(t->module, "hd_fill_u32", &t->kernel));
    }
}

/* Ends the objects; a call may have ended some already. */
static void drop(things *t)
{
    hd_claim_end(t->claim, HD_OK);
    hd_hold_destroy(t->hold);
    hd_free(t->buffer);
    hd_free(t->other);
    hd_free(t->third);
    if (t->image) {
        hd_module_unload(t->module);
    }
    hd_lane_destroy(t->lane);
}

static void nothing_is_taken(hd_runtime *runtime)
{
    hd_buffer *b = NULL;
    uint32_t word = 0;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), PAIR_BYTES, &b));
    CONF_OK(hd_fill(b, 0, 7, PAIR_BYTES, NULL));
    /* with a short transfer_timeout a busy machine lets reads time out */
    while (hd_read(b, 0, &word, 4) == HD_ERROR_TIMEOUT) {
    }
    CONF_EQUAL(word, 7);
    CONF_OK(hd_free(b));
    conf_track(runtime, NULL);
    hd_status status = hd_close(runtime);
    /* memory_debug: a call left a buffer */
    CONF_TRUE(status == HD_OK || status == HD_ERROR_ACCESS);
}

static void with_settings(const char *settings)
{
    for (int kind = 0; kind < KINDS; kind++) {
        hd_runtime *runtime = conf_open(settings);
        for (int c = 0; c < CALLS; c++) {
            bool whole = calls[c].call == recipe_hd_close || calls[c].call == recipe_hd_device_restart;
            if (whole || (kind > 0 && calls[c].of != T_hd_buffer)) {
                continue;
            }
            conf_watch(calls[c].name, 60);
            things t;
            equip(&t, runtime, kind);
            is_not_ended(calls[c].name, calls[c].call, &t);
            drop(&t);
        }
        nothing_is_taken(runtime);
    }
    conf_watch("test_cancel", 120);
}

static void no_call_ends_a_thread(void **state)
{
    (void)state;
    with_settings("host_devices=1 host_memory=256M pinned_limit=128M");
}

static void nor_does_one_with_guards(void **state)
{
    (void)state;
    with_settings("host_devices=1 host_memory=256M pinned_limit=128M memory_debug=on");
}

static hd_status frees_twice(things *t)
{
    hd_free(t->other);
    return hd_free(t->other);
}

/* A finding writes a line. */
static void nor_does_a_finding(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=64M memory_debug=report memory_debug_file=/dev/null");
    things t;
    equip(&t, runtime, 0);
    is_not_ended("hd_free", frees_twice, &t);
    drop(&t);
    nothing_is_taken(runtime);
}

/* ---- opening and closing ---- */

static hd_status open_and_close(things *t)
{
    (void)t;
    hd_runtime *runtime = NULL;
    const hd_options options = {sizeof options, "host_devices=1 host_memory=64M"};
    hd_status status = hd_open(&options, &runtime);
    return status ? status : hd_close(runtime);
}

static hd_status go_wrong(things *t)
{
    (void)t;
    hd_runtime *runtime = NULL;
    const hd_options options = {sizeof options, "no_such_option=1"};
    return hd_open(&options, &runtime);
}

static void opening_and_closing_neither(void **state)
{
    (void)state;
    things none = {.runtime = NULL};
    is_not_ended("hd_open and hd_close", open_and_close, &none);
    is_not_ended("hd_open", go_wrong, &none);
}

/* ---- waits, and functions of the program ---- */

static hd_status waits_for_claim(things *t)
{
    return hd_buffer_wait(t->buffer, HD_READ_WRITE, 50 * CONF_MILLISECOND);
}

static hd_status reads_behind_claim(things *t)
{
    uint32_t word;
    return hd_read(t->buffer, 0, &word, 4);
}

static hd_status fills_beside_claim(things *t)
{
    hd_status status = HD_OK;
    for (int i = 0; i < 1000 && !status; i++) {
        status = hd_fill(t->other, 0, (uint32_t)i, PAIR_BYTES, NULL);
    }
    return status;
}

static bool each_block(void *context, const hd_memory_block *block)
{
    (void)block;
    conf_sleep_ms(1); /* a cancellation point */
    atomic_fetch_add((atomic_int *)context, 1);
    return true;
}

static atomic_int blocks;

static hd_status calls_back(things *t)
{
    return hd_memory_each(t->runtime, each_block, &blocks);
}

static void waits_and_callbacks_neither(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=64M transfer_timeout=50 submit_timeout=50");
    things t;
    equip(&t, runtime, 0);
    hd_claim *claim = NULL;
    hd_arg uses[] = {hd_inout(t.buffer), hd_inout(t.other)};
    CONF_OK(hd_claim_begin(runtime, uses, 2, &claim));
    is_not_ended("hd_buffer_wait", waits_for_claim, &t);
    is_not_ended("hd_read", reads_behind_claim, &t);
    is_not_ended("hd_fill", fills_beside_claim, &t);
    is_not_ended("hd_memory_each", calls_back, &t);
    CONF_TRUE(atomic_load(&blocks) > 0);
    CONF_OK(hd_claim_end(claim, HD_OK));
    drop(&t);
    nothing_is_taken(runtime);
}

/* ---- at random moments ---- */

static hd_status some_call(things *t)
{
    static conf_random random = {1}; /* only one thread at a time uses it */
    unsigned char bytes[PAIR_BYTES] = {0};
    hd_ticket ticket;
    for (int i = 0; i < 200; i++) {
        hd_lane *lane = NULL;
        hd_buffer *b = NULL;
        switch (conf_below(&random, 6)) {
        case 0:
            hd_write(t->buffer, 0, bytes, sizeof bytes);
            break;
        case 1:
            hd_read(t->other, 0, bytes, sizeof bytes);
            break;
        case 2:
            if (!hd_lane_create(t->runtime, 0, &lane)) {
                hd_lane_destroy(lane);
            }
            break;
        case 3:
            if (!hd_alloc_host(t->runtime, 1 << 20, &b)) {
                hd_free(b);
            }
            break;
        case 4:
            if (!hd_fill(t->third, 0, 1, PAIR_BYTES, &ticket)) {
                hd_wait(ticket, 60 * CONF_SECOND);
            }
            break;
        default:
            hd_memory_trim(t->runtime, 0, 0, NULL);
        }
    }
    return HD_OK;
}

static void at_random_moments(void **state)
{
    (void)state;
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=64M");
    things t;
    equip(&t, runtime, 0);
    for (int i = 0; i < 100 / CONF_SLOWNESS; i++) {
        caller c = {.call = some_call, .things = t};
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, makes_the_call, &c), 0);
        for (volatile uint64_t turns = conf_below(&random, 200000); turns > 0; turns--) {
        }
        pthread_cancel(thread);
        CONF_EQUAL(pthread_join(thread, NULL), 0);
        CONF_TRUE(!atomic_load(&c.inside));
    }
    drop(&t);
    nothing_is_taken(runtime);
}

static hd_status cancels_its_thread(void *const *pointers, void *context)
{
    (void)pointers;
    pthread_cancel(pthread_self());
    pthread_testcancel();
    atomic_store((atomic_bool *)context, true);
    return HD_OK;
}

/* The thread belongs to Heddle. */
static void functions_of_the_program_run_to_their_end(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_ticket ticket;
    for (int i = 0; i < 3; i++) { /* the thread stays, and calls again */
        atomic_bool ended = false;
        CONF_OK(hd_launch_host(runtime, cancels_its_thread, &ended, NULL, 0, &ticket));
        CONF_OK(hd_wait(ticket, HD_FOREVER));
        CONF_TRUE(atomic_load(&ended));
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_cancel");
    const struct CMUnitTest tests[] = {
        CONF_CASE(no_call_ends_a_thread),       CONF_CASE(nor_does_one_with_guards),
        CONF_CASE(nor_does_a_finding),          CONF_CASE(opening_and_closing_neither),
        CONF_CASE(waits_and_callbacks_neither), CONF_CASE(functions_of_the_program_run_to_their_end),
        CONF_CASE(at_random_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
