/* test_copy_trouble.c - copies during failures.
 *
 * Promise: A failed copy is reported, and everything that does not depend on it works as before.
 *
 * - driver calls that fail, and the order of work after a failure
 * - little pinned memory, and chunks that many threads need
 * - buffers that are freed and devices that are lost meanwhile
 *
 * Threads: those of a case.
 * Locks: none.
 * Always: after any failure, everything that it does not concern works as before.
 */
#include "places.h"
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- failures ---- */

/* One operation of a copy in several parts fails. Its ticket and the content fail with it, and the
 * next copy is good. */
static void a_failed_part_fails_the_copy(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        place src, dst;
        size_t bytes;
        int settings;
    } table[] = {
        {"cuMemcpyDtoHAsync", PLACE_DEVICE, PLACE_OTHER, 40 * KIB, 1},
        {"cuMemcpyHtoDAsync", PLACE_DEVICE, PLACE_OTHER, 40 * KIB, 1},
        {"cuMemcpyDtoHAsync", PLACE_DEVICE, PLACE_OTHER, 9 * MIB, 1},
        {"cuMemcpyHtoDAsync", PLACE_DEVICE, PLACE_OTHER, 9 * MIB, 1},
        {"cuMemcpyHtoDAsync", PLACE_PINNED, PLACE_DEVICE, 65 * MIB, 0},
        {"cuMemcpyDtoHAsync", PLACE_DEVICE, PLACE_PINNED, 65 * MIB, 0},
        {"cuLaunchHostFunc", PLACE_PINNED, PLACE_PINNED, 65 * MIB, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (CONF_TSAN && table[i].bytes > 10 * MIB) {
            continue;
        }
        for (int nth = 1, failed = 1; failed; nth++) {
            hd_runtime *runtime =
                conf_open_with("%s fault=%s:%d=1", place_settings[table[i].settings], table[i].entry, nth);
            failed = 0;
            if (table[i].dst == PLACE_OTHER && (hd_device_count(runtime) < 2 || conf_reaches(runtime, 0, 1))) {
                conf_close(runtime);
                break;
            }
            size_t bytes = table[i].bytes;
            hd_buffer *x = place_alloc(runtime, table[i].src, bytes), *y = place_alloc(runtime, table[i].dst, bytes);
            CONF_OK(hd_fill(x, 0, 7, bytes, NULL));
            CONF_OK(hd_fill(y, 0, 9, bytes, NULL));
            hd_ticket ticket = {NULL, 0};
            hd_status status = hd_copy(y, 0, x, 0, bytes, &ticket);
            CONF_TRUE(status == HD_OK || ticket.lane == NULL);
            status = status ? status : hd_wait(ticket, 60 * CONF_SECOND);
            if (status != HD_OK) {
                failed = 1;
                CONF_FAILS_WITH(status, HD_ERROR_FAILED, "copy");
                CONF_FAILS(hd_buffer_wait(y, HD_READ, 60 * CONF_SECOND), HD_ERROR_FAILED);
            }
            CONF_TRUE(failed || nth > 1); /* the first call always belongs to it */
            for (int again = 0; failed && again < 3; again++) {
                CONF_OK(hd_copy(y, 0, x, 0, bytes, &ticket));
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
            }
            if (failed) {
                uint32_t word;
                /* a worker counts its own calls, so the call that fails may still come */
                for (int k = 0; k < 2 * nth; k++) {
                    (void)hd_read(y, 0, &word, 4);
                }
                CONF_FILLED(y, 0, 7, 4096);
                CONF_FILLED(y, bytes - 4096, 7, 4096);
            }
            conf_close(runtime);
        }
    }
}

/* Chunks and lanes stay usable, however many copies fail. */
static void failures_use_nothing_up(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamWaitEvent",
                                          "cuEventRecord"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        hd_runtime *runtime = conf_open_with("host_peers=none peers=off fault=%s:1+=1", entries[i]);
        CONF_NEED_DEVICES(runtime, 2);
        hd_buffer *x = place_alloc(runtime, PLACE_DEVICE, 3 * MIB), *y = place_alloc(runtime, PLACE_OTHER, 3 * MIB);
        CONF_OK(hd_fill(x, 0, 7, 3 * MIB, NULL));
        for (int j = 0; j < 30; j++) {
            hd_ticket ticket = {NULL, 0};
            size_t bytes = j % 3 == 0 ? 100 : j % 3 == 1 ? 500 * KIB : 3 * MIB;
            hd_status status = hd_copy(y, 0, x, 0, bytes, &ticket);
            status = status ? status : hd_wait(ticket, 60 * CONF_SECOND);
            /* every copy goes through pinned memory, even if the driver reports peers */
            if (i < 2) {
                CONF_FAILS(status, HD_ERROR_FAILED);
            } else {
                CONF_OK(status); /* without events, lanes wait in another way */
            }
        }
        conf_close(runtime);
    }
}

/* Pinned memory is short. Copies between devices use fewer chunks, and give them back to the
 * program. */
static void chunks_make_way_for_the_program(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=none peers=off pinned_limit=20M memory_timeout=60000");
    CONF_NEED_DEVICES(runtime, 2);
    size_t bytes = 20 * MIB;
    hd_buffer *x = place_alloc(runtime, PLACE_DEVICE, bytes), *y = place_alloc(runtime, PLACE_OTHER, bytes);
    uint8_t *data = conf_memory(bytes);
    conf_pattern(data, bytes, 3);
    CONF_OK(hd_write(x, 0, data, bytes));
    CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
    CONF_HOLDS(y, 0, data, bytes);
    CONF_OK(hd_copy(x, 0, y, 0, bytes, NULL)); /* the other direction uses its own chunks */
    CONF_HOLDS(x, 0, data, bytes);
    hd_buffer *mine = NULL;
    CONF_OK(hd_alloc_host(runtime, 14 * MIB, &mine)); /* nearly all that Heddle used */
    CONF_OK(hd_fill(y, 0, 0, bytes, NULL));
    /* through small chunks, since large ones do not fit */
    CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
    CONF_HOLDS(y, 0, data, bytes);
    hd_free(mine);
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, NULL));
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
    CONF_EQUAL(stats.reserved_bytes, 0); /* the library keeps no memory for good */
    CONF_OK(hd_fill(y, 0, 0, bytes, NULL));
    CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
    CONF_HOLDS(y, 0, data, bytes);
    free(data);
    conf_close(runtime);
}

/* ---- events during copies ---- */

/* An operation reads failed bytes, so the engine gives it up. It was to run after another
 * operation, which continues. The next operations in its lane still have to run after that one.
 *
 * The engine has to notice the failure after the operation was submitted and before it is issued.
 * So the call that fails takes a while. */
static void *copies_behind_a_failure(void *argument)
{
    hd_buffer *const *b = argument; /* y, x, w */
    (void)hd_copy(b[0], 0, b[1], 0, 4096, NULL);
    CONF_OK(hd_copy(b[0], 0, b[2], 0, 4096, NULL));
    return NULL;
}

static void order_holds_behind_a_failure(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoDAsync:2=1 delay=cuMemcpyDtoDAsync:2=300000");
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    hd_buffer *x, *y, *z, *w, *other;
    hd_buffer **all[] = {&x, &y, &z, &w, &other};
    for (uint32_t i = 0; i < 5; i++) {
        *all[i] = place_alloc(runtime, PLACE_DEVICE, 4096);
        CONF_OK(hd_fill(*all[i], 0, i, 4096, NULL));
    }
    /* the first operation; and the bytes that it fills exist */
    CONF_OK(hd_copy(other, 0, x, 0, 4096, NULL));
    for (uint32_t i = 0; i < 5; i++) {
        CONF_OK(hd_buffer_wait(*all[i], HD_READ_WRITE, 60 * CONF_SECOND));
    }
    CONF_OK(hd_fill(z, 0, 0, 8, NULL)); /* its first words are 0 */
    CONF_OK(hd_buffer_wait(z, HD_READ_WRITE, 60 * CONF_SECOND));
    wk_gate gate;
    void *flags = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &gate.pinned));
    CONF_OK(hd_map(gate.pinned, HD_READ_WRITE, &flags));
    gate.flags = flags;
    memset(flags, 0, 4096);
    hd_arg args[] = {hd_inout(gate.pinned)};
    CONF_OK(hd_launch(lane, k.spin, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, &gate.ticket));
    while (__atomic_load_n(&gate.flags[0], __ATOMIC_ACQUIRE) == 0) {
        conf_sleep_ms(1);
    }
    CONF_OK(wk_launch_one(lane, k.hello, z, NULL));         /* delays the writer of z */
    hd_status status = hd_copy(x, 0, other, 0, 4096, NULL); /* fails after a while */
    CONF_OK(status);
    CONF_OK(hd_copy(z, 0, y, 0, 4096, NULL)); /* behind it in the same lane, reads y for long */
    hd_buffer *theirs[] = {y, x, w};
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, copies_behind_a_failure, theirs), 0);
    pthread_join(thread, NULL);
    conf_sleep_ms(700); /* time in which an operation could wrongly overtake */
    wk_gate_open(&gate);
    CONF_OK(hd_wait(gate.ticket, 60 * CONF_SECOND));
    CONF_FILLED(z, 0, 1, 4096);
    CONF_FILLED(y, 0, 3, 4096);
    conf_close(runtime);
}

typedef struct shelf {
    hd_runtime *runtime;
    _Atomic(hd_buffer *) any[2]; /* in any place */
    /* on devices: a pinned buffer may not be freed while a processor copies */
    _Atomic(hd_buffer *) device;
    _Atomic bool stop;
    size_t bytes;
} shelf;

static void good_or_gone(hd_status status)
{
    if (status != HD_OK) {
        CONF_FAILS(status, HD_ERROR_HANDLE);
    }
}

static void *copies_on(void *argument)
{
    shelf *s = argument;
    uint8_t *memory = conf_memory(s->bytes);
    const hd_box box = {.size = sizeof box,
                        .row = 1000,
                        .dims = 1,
                        .count = {s->bytes / 2000},
                        .dst_stride = {2000},
                        .src_stride = {2000}};
    memset(memory, 0x11, s->bytes);
    for (uint32_t i = 0; !atomic_load(&s->stop); i++) {
        hd_buffer *a = atomic_load(&s->any[i % 2]), *b = atomic_load(&s->any[(i + 1) % 2]);
        hd_buffer *device = atomic_load(&s->device);
        size_t bytes = i % 3 ? s->bytes : 4000;
        switch (i / 2 % 7) {
        case 0:
            good_or_gone(hd_copy(a, 0, b, 0, bytes, NULL));
            break;
        case 1:
            good_or_gone(hd_copy_box(a, 0, b, 0, &box, NULL));
            break;
        case 2:
            good_or_gone(hd_fill(a, 0, 1, bytes / 4 * 4, NULL));
            break;
        case 3:
            good_or_gone(hd_write_box(device, 0, memory, &box));
            break;
        case 4:
            good_or_gone(hd_read_box(device, 0, memory, &box));
            break;
        case 5:
            good_or_gone(hd_write(device, 0, memory, 4000));
            break;
        default:
            good_or_gone(hd_read(device, 0, memory, 4000));
        }
    }
    free(memory);
    return NULL;
}

/* Buffers are freed while they are copied. At once their structures serve pinned memory or another
 * device. No copy may write there by the old handle. */
static void buffers_are_freed_meanwhile(void **state)
{
    (void)state;
    if (CONF_TSAN) {
        /* as in test_pageable_trouble.c: a found value counts only if the handle is still valid
         * afterwards */
        skip();
    }
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open_with("%s copy_threads=1", place_settings[s]);
        shelf all = {.runtime = runtime, .bytes = 2 * MIB + 4};
        enum { threads = 4 };
        for (int i = 0; i < 2; i++) {
            atomic_store(&all.any[i], place_alloc(runtime, (place)i, all.bytes));
        }
        atomic_store(&all.device, place_alloc(runtime, PLACE_DEVICE, all.bytes));
        pthread_t ids[threads];
        conf_failure_ends_program = true;
        for (int i = 0; i < threads; i++) {
            CONF_EQUAL(pthread_create(&ids[i], NULL, copies_on, &all), 0);
        }
        for (int i = 0; i < (CONF_SLOWNESS > 1 ? 100 : 600); i++) {
            hd_buffer *next = place_alloc(runtime, (place)(i * 7 / 2 % PLACE_UNIFIED), all.bytes);
            hd_free(atomic_exchange(&all.any[i % 2], next));
            next = place_alloc(runtime, (place)(i % PLACE_PINNED), all.bytes);
            hd_free(atomic_exchange(&all.device, next));
            hd_buffer *stranger = place_alloc(runtime, PLACE_PINNED, 4000);
            uint8_t *bytes = NULL;
            CONF_OK(hd_map(stranger, HD_READ_WRITE, (void **)&bytes));
            memset(bytes, 0xee, 4000);
            sched_yield();
            for (int k = 0; k < 4000; k++) {
                CONF_EQUAL(bytes[k], 0xee);
            }
            hd_free(stranger);
        }
        atomic_store(&all.stop, true);
        for (int i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
        }
        conf_failure_ends_program = false;
        conf_close(runtime);
    }
}

/* Memory of the program that becomes readable at a given moment. A thread that reads it earlier
 * holds a pinned chunk, and waits. */
enum {
    LATE_SMALL = 32,
    LATE_LARGE = 6,
    LATE = LATE_SMALL + LATE_LARGE + 2
}; /* as many as there are chunks without copy threads, and one more of each */

typedef struct late_writer {
    uint8_t *memory;
    size_t row, rows, bytes;
    hd_buffer *buffer;
    _Atomic bool there, looked_at, written;
} late_writer;

static late_writer late[LATE];

static void wait_for_memory(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    uint8_t *at = info->si_addr;
    for (int i = 0; i < LATE; i++) {
        if (late[i].memory && at >= late[i].memory && at < late[i].memory + late[i].bytes) {
            atomic_store(&late[i].looked_at, true);
            while (!atomic_load(&late[i].there)) {
                conf_sleep_ms(1);
            }
            mprotect(late[i].memory, late[i].bytes, PROT_READ | PROT_WRITE);
            return;
        }
    }
    signal(SIGSEGV, SIG_DFL);
}

static void *writes_late(void *argument)
{
    late_writer *w = argument;
    const hd_box box = {.size = sizeof box,
                        .row = w->row,
                        .dims = 1,
                        .count = {w->rows},
                        .dst_stride = {w->row},
                        .src_stride = {2 * w->row}};
    CONF_OK(hd_write_box(w->buffer, 0, w->memory, &box));
    atomic_store(&w->written, true);
    return NULL;
}

/* All chunks of both sizes are in use, and one thread waits for each size. It must not matter which
 * of them came first. */
static void who_waits_for_a_chunk_gets_the_first(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = wait_for_memory, .sa_flags = SA_SIGINFO}, before;
    CONF_EQUAL(sigaction(SIGSEGV, &action, &before), 0);
    /* the thread that waits for a small chunk comes first, then last */
    for (int turn = 0; turn < 2; turn++) {
        hd_runtime *runtime = conf_open("copy_threads=0");
        pthread_t ids[LATE];
        int last[2] = {LATE - 2 + turn, LATE - 1 - turn};
        for (int i = 0; i < LATE; i++) {
            bool small = i < LATE_SMALL || i == LATE - 2;
            late_writer *w = &late[i];
            w->row = small ? 16 : 1024;
            w->rows = small ? 256 : 3072;
            w->bytes = 2 * w->row * w->rows;
            w->memory = mmap(NULL, w->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CONF_TRUE(w->memory != MAP_FAILED);
            w->buffer = place_alloc(runtime, PLACE_DEVICE, w->row * w->rows);
            atomic_store(&w->there, i >= LATE - 2);
            atomic_store(&w->looked_at, false);
            atomic_store(&w->written, false);
        }
        conf_failure_ends_program = true;
        for (int i = 0; i < LATE - 2; i++) {
            CONF_EQUAL(pthread_create(&ids[i], NULL, writes_late, &late[i]), 0);
        }
        for (int i = 0; i < LATE - 2; i++) {
            while (!atomic_load(&late[i].looked_at)) {
                conf_sleep_ms(1);
            }
        }
        for (int i = 0; i < 2; i++) {
            CONF_EQUAL(pthread_create(&ids[last[i]], NULL, writes_late, &late[last[i]]), 0);
            conf_sleep_ms(50); /* so that they wait, one after the other */
        }
        /* Gives back a chunk of the size that the second thread needs. */
        int second = last[1];
        atomic_store(&late[second == LATE - 2 ? 0 : LATE_SMALL].there, true);
        while (!atomic_load(&late[second].written)) {
            conf_sleep_ms(1);
        }
        for (int i = 0; i < LATE; i++) {
            atomic_store(&late[i].there, true);
        }
        for (int i = 0; i < LATE; i++) {
            pthread_join(ids[i], NULL);
        }
        for (int i = 0; i < LATE; i++) {
            munmap(late[i].memory, late[i].bytes);
            late[i].memory = NULL;
        }
        conf_failure_ends_program = false;
        conf_close(runtime);
    }
    CONF_EQUAL(sigaction(SIGSEGV, &before, NULL), 0);
}

/* hd_close while copies of every kind are under way: it waits for them, and leaves nothing
 * behind. */
static void closing_in_the_middle(void **state)
{
    (void)state;
    wk_usage before = wk_use();
    for (int round = 0; round < (CONF_SLOWNESS > 1 ? 6 : 12); round++) {
        if (round == 2) {
            before = wk_use(); /* with the driver's own resources */
        }
        hd_runtime *runtime = conf_open_with("%s copy_threads=2 host_schedule=%d", place_settings[round % 2], round);
        size_t bytes = (CONF_TSAN ? 3 : 9) * MIB;
        uint8_t *memory = conf_memory(bytes);
        hd_buffer *buffer[PLACES];
        for (place a = 0; a < PLACES; a++) {
            buffer[a] = place_alloc(runtime, a, bytes);
        }
        CONF_OK(hd_write(buffer[PLACE_DEVICE], 0, memory, bytes));
        for (place a = 0; a < PLACES; a++) {
            for (place b = 0; b < PLACES; b++) {
                size_t n = (size_t)(a + 2 * b + round) % 3 ? bytes : 5000;
                if (a != b) {
                    CONF_OK(hd_copy(buffer[b], 0, buffer[a], 0, n, NULL));
                }
            }
        }
        free(memory);
        if (round % 3 == 0) {
            hd_free(buffer[PLACE_OTHER]);
        }
        conf_close(runtime);
    }
    wk_usage after = wk_use();
    for (int i = 0; i < 1000 && (after.threads > before.threads + 2 || after.children > before.children); i++) {
        conf_sleep_ms(5); /* the system may list a joined thread for a moment more */
        after = wk_use();
    }
    CONF_TRUE(after.threads <= before.threads + 2 && after.children <= before.children);
    CONF_EQUAL(after.descriptors, before.descriptors);
}

/* ---- losses ---- */

typedef struct porter {
    hd_runtime *runtime;
    hd_buffer *src, *dst;
    size_t bytes;
    _Atomic int *moved;
} porter;

/* Copies back and forth, with copies in flight, until one of the devices is lost. No other failure
 * may come. */
static void *carries_until_lost(void *argument)
{
    const porter *p = argument;
    hd_ticket ticket = {NULL, 0};
    hd_status status = HD_OK;
    for (int i = 0; status == HD_OK; i++) {
        status =
            i % 2 ? hd_copy(p->src, 0, p->dst, 0, p->bytes, &ticket) : hd_copy(p->dst, 0, p->src, 0, p->bytes, &ticket);
        if (status == HD_OK && i % 3 == 2) {
            status = hd_wait(ticket, 60 * CONF_SECOND);
        }
        atomic_fetch_add(p->moved, 1);
    }
    if (status != HD_ERROR_FAILED) { /* a part whose source did not arrive */
        CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
    }
    (void)hd_wait(ticket, 60 * CONF_SECOND);
    CONF_TRUE(hd_done(ticket));
    return NULL;
}

/* Devices 0 and 1 copy through pinned memory, with chunks of all sizes, and one of them is lost.
 * Others copy as before. Pinned memory stays within its limit, and comes back. */
static void lose_one(const char *fault, int lost, bool kills)
{
    hd_runtime *runtime = conf_open_with("host_devices=4 host_peers=none peers=off pinned_limit=128M %s", fault);
    enum { threads = 6 };
    if (hd_device_count(runtime) < 4 || conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    static const size_t sizes[] = {4096, 300 * 1024, 5 << 20};
    uint8_t *data = conf_memory(sizes[2]);
    conf_pattern(data, sizes[2], 3);
    hd_buffer *far[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_alloc(conf_default_lane(runtime, 2 + i), sizes[2], &far[i]));
    }
    for (int round = 0; round < (kills ? 3 : 1); round++) {
        pthread_t ids[threads];
        porter porters[threads];
        _Atomic int moved = 0;
        conf_failure_ends_program = true;
        for (int i = 0; i < threads; i++) {
            porter p = {.runtime = runtime, .bytes = sizes[i / 2], .moved = &moved};
            CONF_OK(hd_alloc(conf_default_lane(runtime, 0), p.bytes, &p.src));
            CONF_OK(hd_alloc(conf_default_lane(runtime, 1), p.bytes, &p.dst));
            (void)hd_fill(p.src, 0, 7, p.bytes, NULL);
            porters[i] = p;
        }
        for (int i = 0; i < threads; i++) {
            CONF_EQUAL(pthread_create(&ids[i], NULL, carries_until_lost, &porters[i]), 0);
        }
        while (kills && atomic_load(&moved) < 20 * round) {
            conf_sleep_ms(1);
        }
        if (kills) {
            CONF_EQUAL(kill(wk_pid(runtime, lost), SIGKILL), 0);
        }
        for (int i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
            hd_free(porters[i].src);
            hd_free(porters[i].dst);
        }
        conf_failure_ends_program = false;
        lost = wk_info(runtime, 0).lost ? 0 : 1;
        CONF_TRUE(wk_info(runtime, lost).lost && !wk_info(runtime, 1 - lost).lost);
        CONF_OK(hd_write(far[0], 0, data, sizes[2]));
        CONF_OK(hd_copy(far[1], 0, far[0], 0, sizes[2], NULL));
        CONF_HOLDS(far[1], 0, data, sizes[2]);
        hd_buffer *near = NULL; /* the healthy one */
        CONF_OK(hd_alloc(conf_default_lane(runtime, 1 - lost), sizes[2], &near));
        CONF_OK(hd_copy(near, 0, far[1], 0, sizes[2], NULL));
        CONF_HOLDS(near, 0, data, sizes[2]);
        if (kills) {
            wk_only_loss(runtime, lost);
            CONF_OK(hd_device_restart(runtime, lost));
            hd_buffer *again = NULL;
            CONF_OK(hd_alloc(conf_default_lane(runtime, lost), sizes[2], &again));
            CONF_OK(hd_copy(again, 0, near, 0, sizes[2], NULL));
            CONF_HOLDS(again, 0, data, sizes[2]);
            hd_free(again);
        }
        hd_free(near);
        hd_memory_stats stats = {.size = sizeof stats};
        CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
        CONF_TRUE(stats.reserved_peak_bytes <= 128 * MIB);
        lost = 1 - lost;
    }
    if (kills) { /* the library abandons memory that a device lost in this process used */
        CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, NULL));
        hd_memory_stats stats = {.size = sizeof stats};
        CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
        CONF_EQUAL(stats.reserved_bytes, 0);
    }
    free(data);
    conf_close(runtime);
}

static void a_device_is_lost_in_the_middle(void **state)
{
    (void)state;
    const char *placement = getenv("HEDDLE_PLACEMENT");
    if (placement != NULL && strcmp(placement, "process") == 0) {
        lose_one("", 0, true);
        return;
    }
    if (conf_on_gpus || CONF_TSAN) {
        skip(); /* a device with a simulated loss still works */
    }
    static const char *const entries[] = {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamWaitEvent",
                                          "cuEventRecord"};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        for (int nth = 1; nth < 200; nth = nth * 3 + 1) {
            char fault[64];
            snprintf(fault, sizeof fault, "fault=%s:%d=700", entries[i], nth);
            lose_one(fault, 0, false);
        }
    }
}

int main(void)
{
    conf_begin("test_copy_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_failed_part_fails_the_copy),    CONF_CASE(failures_use_nothing_up),
        CONF_CASE(chunks_make_way_for_the_program), CONF_CASE(order_holds_behind_a_failure),
        CONF_CASE(buffers_are_freed_meanwhile),     CONF_CASE(who_waits_for_a_chunk_gets_the_first),
        CONF_CASE(closing_in_the_middle),           CONF_CASE(a_device_is_lost_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
