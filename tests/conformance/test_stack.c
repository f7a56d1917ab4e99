/* test_stack.c - threads with small stacks, as services with many threads use.
 *
 * Promise: A stack of 32 KiB is enough to call the library, except for boxes: 64 KiB.
 *
 * That holds on host devices and with worker processes. Each call runs on its own thread, whose
 * stack ends at memory that nobody can access: a call that needs more crashes. Sanitizers make
 * frames several times larger, and the driver of GPUs needs its own space: there the stacks are
 * larger, and the calls the same.
 *
 * Threads: the main one, and one at a time that calls.
 * Locks: none.
 */
#include "conformance.h"
#include <pthread.h>
#include <sys/mman.h>

enum { KIB = 1024, BYTES = 256 * KIB, SMALL = 32 * KIB, MORE = 64 * KIB, WIDE = 1024 * KIB };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane, *other;
    hd_buffer *near, *far, *pinned;
    hd_ticket ticket;
    char settings[160];
    uint8_t memory[BYTES];
} scene;

typedef void (*step)(scene *s);

static void opens(scene *s)
{
    s->runtime = conf_open(s->settings);
}

static void allocates(scene *s)
{
    int last = hd_device_count(s->runtime) - 1;
    CONF_OK(hd_lane_create(s->runtime, 0, &s->lane));
    CONF_OK(hd_lane_create(s->runtime, last, &s->other));
    CONF_OK(hd_alloc(s->lane, BYTES, &s->near));
    CONF_OK(hd_alloc(s->other, BYTES, &s->far));
    CONF_OK(hd_alloc_host(s->runtime, BYTES, &s->pinned));
}

static void transfers(scene *s)
{
    CONF_OK(hd_write(s->near, 0, s->memory, BYTES));
    CONF_OK(hd_fill(s->pinned, 0, 3, BYTES, NULL));
    CONF_OK(hd_copy(s->far, 0, s->near, 0, BYTES, NULL));
    CONF_OK(hd_copy(s->pinned, 0, s->far, 0, BYTES, &s->ticket));
    CONF_OK(hd_wait(s->ticket, 60 * CONF_SECOND));
    CONF_OK(hd_read(s->far, 0, s->memory, BYTES));
}

static void launches(scene *s)
{
    conf_kernels k = conf_builtins(s->runtime);
    for (uint32_t i = 0; i < 40; i++) {
        CONF_OK(conf_fill(s->lane, k, s->near, 0, BYTES / 4, i, NULL));
    }
    CONF_OK(hd_lane_wait(s->lane, 60 * CONF_SECOND));
}

static void moves_boxes(scene *s)
{
    hd_box box = {.size = sizeof box,
                  .row = 64,
                  .dims = 2,
                  .count = {100, 4},
                  .dst_stride = {128, 32 * KIB},
                  .src_stride = {64, 6400}};
    hd_box back = {.size = sizeof back,
                   .row = 64,
                   .dims = 2,
                   .count = {100, 4},
                   .dst_stride = {64, 6400},
                   .src_stride = {128, 32 * KIB}};
    CONF_OK(hd_write_box(s->near, 0, s->memory, &box));
    CONF_OK(hd_copy_box(s->far, 0, s->near, 0, &box, NULL));
    CONF_OK(hd_read_box(s->far, 0, s->memory, &back));
}

static void fails(scene *s)
{
    hd_buffer *none = NULL;
    CONF_TRUE(hd_alloc(s->lane, (size_t)1 << 46, &none) != HD_OK);
    CONF_FAILS(hd_write(NULL, 0, s->memory, 1), HD_ERROR_HANDLE);
}

static void closes(scene *s)
{
    CONF_OK(hd_free(s->near));
    CONF_OK(hd_free(s->far));
    CONF_OK(hd_free(s->pinned));
    conf_close(s->runtime);
}

/* ---- stacks ---- */

typedef struct run {
    step step;
    scene *scene;
} run;

static void *runs(void *argument)
{
    run *r = argument;
    r->step(r->scene);
    return NULL;
}

static size_t larger(size_t bytes, bool driver_is_here)
{
    return CONF_TSAN || CONF_ASAN || (conf_on_gpus && driver_is_here) ? (size_t)WIDE : bytes;
}

/* Runs the call on a thread with that many bytes of stack, above memory that nobody can access. */
static void on_stack(size_t bytes, step call, scene *s)
{
    run r = {call, s};
    pthread_t thread;
    pthread_attr_t attributes;
    char *base = mmap(NULL, MORE + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CONF_TRUE(base != MAP_FAILED && mprotect(base + MORE, bytes, PROT_READ | PROT_WRITE) == 0);
    pthread_attr_init(&attributes);
    CONF_EQUAL(pthread_attr_setstack(&attributes, base + MORE, bytes), 0);
    CONF_EQUAL(pthread_create(&thread, &attributes, runs, &r), 0);
    pthread_attr_destroy(&attributes);
    pthread_join(thread, NULL);
    munmap(base, MORE + bytes);
}

static void small_stacks_are_enough(void **state)
{
    (void)state;
    static const struct {
        step step;
        size_t bytes;
    } steps[] = {{opens, SMALL}, {allocates, SMALL},  {transfers, SMALL}, {launches, SMALL},
                 {fails, SMALL}, {moves_boxes, MORE}, {closes, SMALL}};
    static const char *const settings[] = {"cache=none", "cache=none memory_debug=on trace=/dev/null"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        static scene s;
        memset(&s, 0, sizeof s);
        snprintf(s.settings, sizeof s.settings, "%s", settings[i]);
        hd_runtime *looked = conf_open(NULL);
        bool driver_is_here = !conf_is_process(looked);
        conf_close(looked);
        conf_failure_ends_program = true;
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            on_stack(larger(steps[k].bytes, driver_is_here), steps[k].step, &s);
        }
        conf_failure_ends_program = false;
    }
}

int main(void)
{
    conf_begin("test_stack");
    const struct CMUnitTest tests[] = {
        CONF_CASE(small_stacks_are_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
