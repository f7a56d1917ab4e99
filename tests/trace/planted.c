/* planted.c - traces of programs with one fault each, and of one without. See planted.h.
 *
 * Each program takes 50 steps of about a millisecond.
 */
#include "trace/planted.h"

#include <stdarg.h>
#include <stdio.h>

enum { STEPS = 50 };

#define PLANTED_HEAD                                                                                                   \
    "trace devices=2 detail=full\n"                                                                                    \
    "device 0 name=first\n"                                                                                            \
    "device 1 name=second\n"                                                                                           \
    "lane 0.1 kind=program\n"                                                                                          \
    "lane 1.1 kind=program\n"                                                                                          \
    "lane 0.2 kind=in\n"                                                                                               \
    "lane 1.2 kind=in\n"                                                                                               \
    "lane 0.3 kind=peer\n"                                                                                             \
    "lane 0.4 kind=claim\n"                                                                                            \
    "name kernel 1 axpy\n"                                                                                             \
    "name label 7 weights\n"                                                                                           \
    "name range 3 load\n"                                                                                              \
    "clock 0 at=0 own=0\n"                                                                                             \
    "clock 1 at=0 own=0\n"

static void put(script *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(script *s, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    script_run(s, text);
}

/* A launch on lane 1 of a device. */
static void launch(script *s, int device, int position, int at, int began, int ended, const char *more)
{
    put(s, "op %d.1:%d launch at=%d issue=%d span=%d-%d done=%d thread=%d %s\n", device, position, at, at + 1, began,
        ended, ended + 2, 5 + device, more);
}

static void copy(script *s, int device, int position, int at, int began, int ended, long bytes, const char *more)
{
    put(s, "op %d.2:%d copy at=%d issue=%d span=%d-%d done=%d bytes=%ld way=1 dst=%d thread=%d %s\n", device, position,
        at, at + 1, began, ended, ended + 2, bytes, device, 5 + device, more);
}

/* Both devices always compute, copies run meanwhile, and each launch is submitted a step ahead. */
static void make_clean(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        for (int d = 0; d < 2; d++) {
            int at = 1000 * i;
            char wait[64] = "";
            if (i > 1) {
                snprintf(wait, sizeof wait, "wait=%d.2:%d label=7", d, i);
            }
            launch(s, d, i + 1, at > 900 ? at - 900 : 0, at + 3, at + 1000, wait);
            copy(s, d, i + 1, at + 10, at + 20, at + 520, 10000000, "");
        }
    }
}

static void make_nothing(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        launch(s, 0, i + 1, 2000 * i, 2000 * i + 4, 2000 * i + 1000, "");
        put(s, "push 3 at=%d\npop at=%d\n", 2000 * i + 1010, 2000 * i + 1990);
    }
}

/* Device 1 needs a result from the middle of device 0's work. Device 0 could compute it first. */
static void make_for_device(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char wait[64] = "";
        if (i == 0) {
            snprintf(wait, sizeof wait, "wait=0.1:%d label=7", STEPS / 2);
        }
        launch(s, 0, i + 1, i, 1000 * i + 4, 1000 * i + 1000, "");
        launch(s, 1, i + 1, i, 1000 * (i + STEPS / 2) + 6, 1000 * (i + STEPS / 2 + 1), wait);
    }
}

/* Each step of device 1 needs a step of device 0, which takes longer. It gets shorter only if work
 * moves to device 1. */
static void make_slow_device(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char wait[64];
        snprintf(wait, sizeof wait, "wait=0.1:%d label=7", i + 1);
        launch(s, 0, i + 1, i, 1000 * i + 4, 1000 * i + 1000, "");
        launch(s, 1, i + 1, i, 1000 * i + 1006, 1000 * i + 1400, wait);
    }
}

static void make_turns(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char first[64] = "", second[64];
        if (i > 0) {
            snprintf(first, sizeof first, "wait=1.1:%d label=7", i);
        }
        snprintf(second, sizeof second, "wait=0.1:%d label=7", i + 1);
        launch(s, 0, i + 1, i, 2000 * i + 4, 2000 * i + 1000, first);
        launch(s, 1, i + 1, i, 2000 * i + 1004, 2000 * i + 2000, second);
    }
}

/* The thread causes it: it waits for one device before it submits to the other. */
static void make_host_turns(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        int at = 2000 * i;
        put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at, at + 4, at + 990, at + 992);
        put(s, "pause wait at=%d-%d lane=0.1 position=%d\n", at + 2, at + 995, i + 1);
        put(s, "op 1.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 1000, at + 1004, at + 1990, at + 1992);
        put(s, "pause wait at=%d-%d lane=1.1 position=%d\n", at + 1002, at + 1995, i + 1);
    }
}

static void make_copies(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char wait[64], before[64] = "";
        if (i > 0) {
            snprintf(before, sizeof before, "wait=0.1:%d label=7", i);
        }
        snprintf(wait, sizeof wait, "wait=0.2:%d label=7", i + 1);
        copy(s, 0, i + 1, i, 1000 * i + 4, 1000 * i + 500, 10000000, before);
        launch(s, 0, i + 1, i, 1000 * i + 503, 1000 * i + 1000, wait);
    }
}

static void make_program_memory(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        int at = 2000 * i;
        put(s, "transfer 0.2:0 at=%d returned=%d way=7 dst=0 bytes=1000000\n", at, at + 980);
        put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 985, at + 990, at + 2000, at + 2001);
    }
}

/* The same with large calls: they spend most of their time on the library's chunks. One chunk's
 * time is far too short. */
static void make_large_writes(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        int at = 2000 * i;
        put(s, "transfer 0.2:0 at=%d returned=%d way=7 dst=0 bytes=11200000\n", at, at + 980);
        for (int k = 0; k < 8; k++) {
            int begin = at + 20 + 120 * k, end = begin + (i == 7 && k == 3 ? 4 : 100);
            copy(s, 0, 8 * i + k + 1, begin - 10, begin, end, 1400000, "chunk=1");
        }
        launch(s, 0, i + 1, at + 985, at + 990, at + 2000, "");
    }
}

static void make_claims(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char wait[64];
        put(s, "op 0.4:%d claim at=%d claimed=%d done=%d\n", 2 * i + 2, 1000 * i, 1000 * i + 1, 1000 * i + 600);
        snprintf(wait, sizeof wait, "wait=0.4:%d label=7", 2 * i + 2);
        launch(s, 0, i + 1, 1000 * i + 2, 1000 * i + 604, 1000 * i + 1000, wait);
    }
}

/* Device 1's lane is full, and the same thread submits to device 0. Device 0 also has work once
 * device 1 is done, which could have begun earlier. */
static void make_ring(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        int at = 1000 * i;
        put(s, "op 1.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, i, at + 4, at + 1000, at + 1001);
        put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 900, at + 903, at + 1003, at + 1004);
        put(s, "pause room at=%d-%d lane=1.1\n", at + 1005, at + 1895);
    }
    put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", STEPS + 1, 1000 * STEPS + 10, 1000 * STEPS + 12, 1800 * STEPS,
        1800 * STEPS + 1);
}

static void make_memory(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        int at = 1000 * i;
        put(s, "alloc %d at=%d took=300 bytes=1000000 label=7 rungs=3\n", i + 1, at + 300);
        put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 302, at + 305, at + 1000, at + 1001);
        put(s, "free %d at=%d\n", i + 1, at + 303);
    }
}

/* Each step waits until another thread frees memory, and the limit is near. */
static void make_near_limit(script *s)
{
    put(s, "memory 0 at=1 use=990 held=1000 limit=1000\n");
    for (int i = 0; i < STEPS; i++) {
        int at = 1000 * i;
        put(s, "pause memory at=%d-%d\n", at + 5, at + 295);
        put(s, "alloc %d at=%d took=300 bytes=1000000 label=7 rungs=15\n", i + 1, at + 300);
        put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 302, at + 305, at + 1000, at + 1001);
    }
}

/* The thread that feeds device 0 also moves memory of device 1. */
static void make_fragmented(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        int at = 1000 * i;
        put(s, "pause map at=%d-%d device=1 detail=2\n", at + 5, at + 295);
        put(s, "op 0.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 302, at + 305, at + 1000, at + 1001);
        put(s, "op 1.1:%d launch at=%d span=%d-%d done=%d\n", i + 1, at + 302, at + 305, at + 1000, at + 1001);
    }
}

static void make_tiny(script *s)
{
    for (int i = 0; i < 20 * STEPS; i++) {
        launch(s, 0, i + 1, 10 * i, 10 * i + 5, 10 * i + 8, "");
    }
}

static void make_host_wait(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        launch(s, 0, i + 1, 300 * i, 300 * i + 4, 300 * i + 200, "");
        put(s, "pause wait at=%d-%d lane=0.1 position=%d\n", 300 * i + 2, 300 * i + 260, i + 1);
    }
}

static void make_code(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        launch(s, 0, i + 1, 2000 * i + 900, 2000 * i + 904, 2000 * i + 2000, "");
        put(s, "pause code at=%d-%d detail=1\n", 2000 * i + 2, 2000 * i + 890);
    }
}

/* Each step calls a function by hd_lane_run_native, which takes as long as the kernel. */
static void make_functions(script *s)
{
    put(s, "lane 0.5 kind=program\n");
    for (int i = 0; i < STEPS; i++) {
        int at = 2000 * i;
        char wait[64] = "";
        if (i > 0) {
            snprintf(wait, sizeof wait, "wait=0.5:%d label=7", i);
        }
        put(s, "op 0.1:%d launch at=%d issue=%d span=%d-%d done=%d %s\n", i + 1, i, at, at + 4, at + 1000, at + 1002,
            wait);
        put(s, "op 0.5:%d call at=%d issue=%d-%d span=%d-%d done=%d wait=0.1:%d label=7\n", i + 1, i, at + 1002,
            at + 1992, at + 1992, at + 1995, at + 1996, i + 1);
    }
}

/* Launches of two kernels alternately, or launches and products. One of them is on its way longer
 * than the others. */
static void make_some_ways(script *s, const char *second, int late, int us, int n)
{
    put(s, "name kernel 2 reduce\n");
    for (int i = 0, at = 0; i < n; i++) {
        int begin = at + (i == late ? us : 4);
        put(s, "op 0.1:%d %s at=%d issue=%d-%d span=%d-%d done=%d kernel=%d\n", i + 1, i % 2 ? second : "launch", at,
            at + 1, begin - 1, begin, begin + 1000, begin + 1001, 1 + i % 2);
        at = begin + 1000;
    }
}

static void make_ways(script *s, const char *second, int late, int us)
{
    make_some_ways(s, second, late, us, STEPS + 10);
}

static void make_first_launch(script *s)
{
    make_ways(s, "launch", 1, 20000);
}

static void make_first_launch_short(script *s)
{
    make_ways(s, "launch", 1, 4500);
}

static void make_second_launch(script *s)
{
    make_ways(s, "launch", 3, 20000);
}

static void make_first_product(script *s)
{
    make_ways(s, "matmul", 1, 82000);
}

static void make_first_product_short(script *s)
{
    make_ways(s, "matmul", 1, 4500);
}

static void make_second_product(script *s)
{
    make_ways(s, "matmul", 3, 82000);
}

static void make_few(script *s)
{
    make_some_ways(s, "launch", 3, 20000, 10);
}

static void make_few_short(script *s)
{
    make_some_ways(s, "launch", 3, 4500, 10);
}

/* The trace lacks the copy that each launch waits for. */
static void make_missing(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        launch(s, 0, i + 1, 1000 * i, 1000 * i + 500, 1000 * i + 1000, "wait=0.2:1 label=7");
    }
}

/* One copy shows how fast the path is. */
static void make_small(script *s, long bytes)
{
    copy(s, 0, 1, 0, 2, 1000, 50000000, "");
    for (int i = 0; i < STEPS * 4; i++) {
        copy(s, 0, i + 2, i, 1002 + 200 * i, 1200 + 200 * i, bytes, "");
    }
    launch(s, 0, 1, 1, 1003 + 800 * STEPS, 1004 + 1600 * STEPS, "wait=0.2:201");
}

static void make_small_copies(script *s)
{
    make_small(s, 100000);
}

static void make_slow_path(script *s)
{
    make_small(s, 2000000);
}

/* Each copy takes a microsecond, after a slow call brought it to the device. */
static void make_small_ways(script *s)
{
    copy(s, 0, 1, 0, 2, 1000, 50000000, "");
    for (int i = 0; i < STEPS * 4; i++) {
        copy(s, 0, i + 2, i, 1199 + 200 * i, 1200 + 200 * i, 100000, "");
    }
    launch(s, 0, 1, 1, 1003 + 800 * STEPS, 1004 + 1600 * STEPS, "wait=0.2:201");
}

/* The same with large copies, which computing could hide. */
static void make_copy_ways(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char wait[64], before[64] = "";
        if (i > 0) {
            snprintf(before, sizeof before, "wait=0.1:%d label=7", i);
        }
        snprintf(wait, sizeof wait, "wait=0.2:%d label=7", i + 1);
        copy(s, 0, i + 1, i, 1000 * i + 499, 1000 * i + 500, 10000000, before);
        launch(s, 0, i + 1, i, 1000 * i + 503, 1000 * i + 1000, wait);
    }
}

static void make_staged(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        char wait[64];
        snprintf(wait, sizeof wait, "wait=1.2:%d label=7", i + 1);
        copy(s, 1, i + 1, i, 1000 * i + 4, 1000 * i + 800, 3000000, "");
        put(s, "transfer 1.2:%d at=%d returned=%d way=6 src=0 dst=1 bytes=3000000 thread=9\n", i + 1, i, i + 1);
        launch(s, 1, i + 1, i, 1000 * i + 803, 1000 * i + 1000, wait);
    }
}

/* Pieces pass through small chunks. In both directions they are slower than one copy that shows how
 * fast the paths are. */
static void make_staged_pieces(script *s)
{
    put(s, "op 0.3:1 copy at=0 issue=1 span=2-1000 done=1001 bytes=50000000 way=2 src=0 thread=9\n");
    copy(s, 1, 1, 0, 2, 1000, 50000000, "");
    for (int i = 0; i < STEPS; i++) {
        int at = 1002 + 1000 * i;
        for (int k = 0; k < 4; k++) {
            int n = 4 * i + k + 2, from = at + 4 + 200 * k;
            put(s, "op 0.3:%d copy at=%d span=%d-%d done=%d bytes=600000 way=2 src=0 thread=9\n", n, at, from,
                from + 99, from + 100);
            put(s, "op 1.2:%d copy at=%d wait=0.3:%d span=%d-%d done=%d bytes=600000 way=1 dst=1 thread=9\n", n, at, n,
                from + 100, from + 199, from + 200);
        }
        put(s, "transfer 1.2:%d at=%d returned=%d way=6 src=0 dst=1 bytes=2400000 thread=9\n", 4 * i + 5, at, at + 1);
        char wait[64];
        snprintf(wait, sizeof wait, "wait=1.2:%d label=7", 4 * i + 5);
        launch(s, 1, i + 1, at, at + 806, at + 1000, wait);
    }
}

static void make_imbalance(script *s)
{
    for (int i = 0; i < STEPS; i++) {
        launch(s, 0, i + 1, i, 1000 * i + 4, 1000 * i + 1004, "");
    }
    for (int i = 0; i < STEPS / 4; i++) {
        launch(s, 1, i + 1, i, 1000 * i + 4, 1000 * i + 1004, "");
    }
}

static void make_loss(script *s)
{
    launch(s, 0, 1, 0, 4, 5000, "");
    put(s, "loss 0 at=5000 kernel axpy used an illegal address\nrestart 0 at=5010-30000\n");
    launch(s, 0, 2, 30001, 30004, 40000, "");
}

const planted planted_traces[] = {
    {"clean", NULL, make_clean},
    {"nothing", "idle-nothing-submitted", make_nothing},
    {"for-device", "idle-for-device", make_for_device},
    {"slow-device", "imbalance", make_slow_device},
    {"turns", "serialized-devices", make_turns},
    {"host-turns", "serialized-devices", make_host_turns},
    {"copies", "idle-for-copy", make_copies},
    {"program-memory", "program-memory", make_program_memory},
    {"large-writes", "program-memory", make_large_writes},
    {"claims", "idle-for-claim", make_claims},
    {"ring", "ring-full", make_ring},
    {"memory", "memory-pauses", make_memory},
    {"near-limit", "memory-near-limit", make_near_limit},
    {"fragmented", "memory-fragmented", make_fragmented},
    {"tiny", "launch-overhead", make_tiny},
    {"host-wait", "host-wait", make_host_wait},
    {"code", "code-loading", make_code},
    {"functions", "slow-function", make_functions},
    {"first-launch", "code-loading", make_first_launch},
    {"first-launch-short", NULL, make_first_launch_short},
    {"second-launch", "launch-overhead", make_second_launch},
    {"first-product", "code-loading", make_first_product},
    {"first-product-short", NULL, make_first_product_short},
    {"second-product", "launch-overhead", make_second_product},
    {"few", "launch-overhead", make_few},
    {"few-short", NULL, make_few_short},
    {"missing", "missing-waits", make_missing},
    {"small", "small-transfers", make_small_copies},
    {"slow", "slow-path", make_slow_path},
    {"small-ways", "small-transfers", make_small_ways},
    {"copy-ways", "idle-for-copy", make_copy_ways},
    {"staged", "staged-peer", make_staged},
    {"staged-pieces", "staged-peer", make_staged_pieces},
    {"imbalance", "imbalance", make_imbalance},
    {"loss", "losses", make_loss},
};
const int planted_count = sizeof planted_traces / sizeof planted_traces[0];

void planted_make(script *s, const planted *p)
{
    script_begin(s);
    script_run(s, PLANTED_HEAD);
    p->make(s);
    script_run(s, "end at=200000\n");
}
