/* test_import.c - memory from outside of Heddle as buffers: every use works, and Heddle gives it
 * back once.
 *
 * Promise: An import works like any buffer, is never freed, and `released` is called once.
 *
 * Heddle calls it once it no longer uses the memory.
 *
 * Threads: the main one; some cases start more.
 * Locks: none. With worker processes both calls refuse by name, and the cases end there.
 */
#include <pthread.h>
#include "foreign.h"

/* With an open claim hd_close leaves the device to the program, with its threads of the simulator.
 * The thread sanitizer must not report them as a leak. */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

enum { words = 16384, bytes = words * 4 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    foreign f;
    uint64_t memory; /* `bytes` on device 0, owned by the program */
} scene;

/* False: with worker processes the program has no driver. */
static bool begin(scene *s, const char *settings)
{
    *s = (scene){.runtime = conf_open(settings)};
    s->lane = conf_default_lane(s->runtime, 0);
    s->k = conf_builtins(s->runtime);
    if (conf_is_process(s->runtime)) {
        hd_buffer *out = NULL;
        CONF_FAILS_WITH(hd_import(s->runtime, 0, 4096, bytes, NULL, &out), HD_ERROR_UNSUPPORTED, "placement=thread");
        CONF_FAILS_WITH(hd_import(s->runtime, 0, 4096, bytes, NULL, &out), HD_ERROR_UNSUPPORTED,
                        "hd_import_descriptor");
        CONF_FAILS_WITH(hd_import_host(s->runtime, s, sizeof *s, NULL, &out), HD_ERROR_UNSUPPORTED, "hd_alloc_host");
        CONF_TRUE(out == NULL);
        conf_close(s->runtime);
        return false;
    }
    foreign_begin(&s->f, s->runtime);
    s->memory = foreign_alloc(&s->f, 0, bytes);
    return true;
}

static void end(scene *s)
{
    conf_close(s->runtime);
    foreign_free(&s->f, 0, s->memory);
    foreign_end(&s->f);
}

static void count(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static hd_buffer *import(scene *s, const char *label, atomic_int *released)
{
    hd_buffer *b = NULL;
    const hd_import_options options = {
        .size = sizeof options, .label = label, .released = released ? count : NULL, .context = released};
    CONF_OK(hd_import(s->runtime, 0, s->memory, bytes, &options, &b));
    return b;
}

/* If an event never comes, the watchdog ends the wait. */
static hd_buffer *import_host(scene *s, void *memory, size_t size, const char *label, atomic_int *released)
{
    hd_buffer *b = NULL;
    const hd_import_options options = {.size = sizeof options, .label = label, .released = count, .context = released};
    CONF_OK(hd_import_host(s->runtime, memory, size, &options, &b));
    return b;
}

static bool note_import(void *context, const hd_memory_block *block)
{
    *(int *)context += block->imported && block->bytes == bytes && strcmp(block->label, "theirs") == 0;
    return true;
}

static void it_is_reported_as_imported(hd_runtime *runtime)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, 0, &stats));
    CONF_TRUE(stats.imported_bytes == bytes && stats.imported_count == 1 && stats.live_count == 0);
    int found = 0;
    CONF_OK(hd_memory_each(runtime, note_import, &found));
    CONF_EQUAL(found, 1);
    char text[65536];
    CONF_OK(hd_memory_report(runtime, HD_REPORT_TEXT, text, sizeof text, NULL));
    CONF_TRUE(strstr(text, "imported  64 KiB in 1 buffer of the program's own memory") != NULL);
    CONF_TRUE(strstr(text, "theirs") == NULL); /* the import uses no memory of Heddle */
}

static void await_released(atomic_int *released)
{
    while (atomic_load(released) == 0) {
        conf_sleep_ms(1);
    }
    CONF_EQUAL(atomic_load(released), 1);
}

/* ---- uses ---- */

static void every_use_works(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_schedule=3")) {
        return;
    }
    atomic_int released = 0;
    hd_buffer *own = NULL, *pinned = NULL;
    hd_buffer *b = import(&s, "theirs", &released);
    it_is_reported_as_imported(s.runtime);
    CONF_TRUE(hd_buffer_address(b) == s.memory && hd_buffer_size(b) == bytes && hd_buffer_device(b) == 0);
    CONF_OK(hd_alloc(s.lane, bytes, &own));
    CONF_OK(hd_alloc_host(s.runtime, bytes, &pinned));
    for (uint32_t i = 1; i <= 20; i++) {
        CONF_OK(conf_fill(s.lane, s.k, b, 0, words, i, NULL)); /* a kernel */
        CONF_OK(hd_copy(own, 0, b, 0, bytes, NULL));
        CONF_OK(hd_fill(b, 0, 0xffffffff, 16, NULL)); /* a range */
        CONF_OK(hd_copy(pinned, 0, b, 0, bytes, NULL));
        CONF_FILLED(own, 0, i, bytes);
        CONF_FILLED(pinned, 0, 0xffffffff, 16);
        CONF_FILLED(pinned, 16, i, bytes - 16);
        CONF_FILLED(b, 16, i, bytes - 16);
    }
    uint32_t *data = conf_memory(bytes);
    conf_pattern(data, bytes, 5);
    CONF_OK(hd_write(b, 0, data, bytes));
    CONF_HOLDS(b, 0, data, bytes);
    hd_tensor t, u;
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_U32, 2, (const uint64_t[]){128, words / 128}, &t));
    CONF_OK(hd_tensor_transpose(&t, 0, 1, &u));
    hd_tensor to;
    CONF_OK(hd_tensor_make(own, 0, HD_TYPE_U32, 2, (const uint64_t[]){words / 128, 128}, &to));
    CONF_OK(hd_tensor_copy(&to, &u, NULL));
    CONF_HOLDS(own, 4, &data[words / 128], 4);
    hd_claim *claim = NULL;
    hd_arg use = hd_inout(b);
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &claim));
    CONF_OK(hd_claim_wait(claim, HD_FOREVER));
    CONF_OK(hd_claim_end(claim, HD_OK));
    void *pointer;
    CONF_FAILS(hd_map(b, HD_READ, &pointer), HD_ERROR_ACCESS);
    CONF_OK(hd_free(b));
    await_released(&released);
    CONF_FAILS(hd_free(b), HD_ERROR_HANDLE);
    free(data);
    hd_free(own);
    hd_free(pinned);
    end(&s);
    CONF_EQUAL(atomic_load(&released), 1);
}

static void other_devices_use_it(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_devices=2")) {
        return;
    }
    if (hd_device_count(s.runtime) < 2) {
        end(&s);
        skip();
    }
    hd_buffer *b = import(&s, NULL, NULL), *there = NULL;
    hd_lane *lane = conf_default_lane(s.runtime, 1);
    CONF_OK(hd_alloc(lane, bytes, &there));
    CONF_OK(hd_fill(there, 0, 1, bytes, NULL));
    for (uint32_t i = 1; i < 20; i++) {
        CONF_OK(conf_fill(s.lane, s.k, b, 0, words, i, NULL));
        CONF_OK(hd_copy(there, 0, b, 0, bytes, NULL));
        CONF_FILLED(there, 0, i, bytes);
        CONF_OK(conf_fill(lane, s.k, there, 0, words, 100 + i, NULL));
        CONF_OK(hd_copy(b, 0, there, 0, bytes, NULL));
        CONF_FILLED(b, 0, 100 + i, bytes);
        if (conf_reaches(s.runtime, 1, 0)) {
            CONF_OK(conf_fill(lane, s.k, b, 0, words, 200 + i, NULL));
            CONF_FILLED(b, 0, 200 + i, bytes);
        }
    }
    hd_free(there);
    hd_free(b);
    end(&s);
}

/* ---- the end ---- */

/* Holds the lane up until the gate is opened. */
static hd_status stand(void *stream, void *context)
{
    const foreign *f = ((void **)context)[0];
    return f->cuLaunchHostFunc(stream, gate_stand, ((void **)context)[1]) == 0 ? HD_OK : HD_ERROR_FAILED;
}

static void freed_while_used_it_is_released_after_the_work(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    gate g = {0};
    void *context[] = {&s.f, &g};
    atomic_int released = 0, none = 0;
    hd_buffer *b = import(&s, NULL, &released);
    hd_arg use = hd_inout(b);
    CONF_OK(hd_lane_run_native(s.lane, stand, context, &use, 1, NULL));
    CONF_OK(conf_fill(s.lane, s.k, b, 0, words, 9, NULL));
    CONF_OK(hd_free(b));
    CONF_EQUAL(atomic_load(&released), 0);
    /* The same bytes again: the new buffer waits for the work on the former one. */
    b = import(&s, NULL, &none);
    hd_buffer *own = NULL;
    CONF_OK(hd_alloc(s.lane, bytes, &own));
    hd_lane *other = NULL;
    CONF_OK(hd_lane_create(s.runtime, 0, &other));
    hd_ticket copied;
    CONF_OK(hd_copy(own, 0, b, 0, bytes, &copied));
    CONF_TRUE(!hd_done(copied));
    CONF_EQUAL(atomic_load(&released), 0);
    atomic_store(&g.open, true);
    CONF_FILLED(own, 0, 9, bytes);
    await_released(&released);
    CONF_EQUAL(atomic_load(&none), 0);
    hd_free(b);
    await_released(&none);
    hd_free(own);
    hd_lane_destroy(other);
    end(&s);
    CONF_TRUE(atomic_load(&released) == 1 && atomic_load(&none) == 1);
}

/* Work that only reads a freed import holds up writers of its bytes, and no readers. */
static void imported_again_it_waits_for_writers_alone(void **state)
{
    (void)state;
    for (int of_host = 0; of_host < 2; of_host++) {
        scene s;
        if (!begin(&s, NULL)) {
            return;
        }
        gate g = {0};
        void *context[] = {&s.f, &g}, *memory = aligned_alloc(4096, bytes);
        atomic_int released[2] = {0, 0};
        hd_lane *held = NULL;
        CONF_OK(hd_lane_create(s.runtime, of_host ? hd_device_count(s.runtime) - 1 : 0, &held));
        hd_buffer *own = NULL,
                  *b = of_host ? import_host(&s, memory, bytes, NULL, &released[0]) : import(&s, NULL, &released[0]);
        CONF_OK(hd_alloc(s.lane, bytes, &own));
        CONF_OK(hd_fill(b, 0, 9, bytes, NULL));
        hd_arg use = hd_in(b);
        CONF_OK(hd_lane_run_native(held, stand, context, &use, 1, NULL));
        CONF_OK(hd_free(b));
        b = of_host ? import_host(&s, memory, bytes, NULL, &released[1]) : import(&s, NULL, &released[1]);
        hd_ticket copied, filled;
        CONF_OK(hd_copy(own, 0, b, 0, bytes, &copied));
        CONF_OK(hd_wait(copied, 60 * CONF_SECOND));
        CONF_FILLED(own, 0, 9, bytes);
        CONF_OK(hd_fill(b, 0, 8, bytes, &filled));
        CONF_TRUE(!hd_done(filled));
        CONF_EQUAL(atomic_load(&released[0]), 0);
        atomic_store(&g.open, true);
        await_released(&released[0]);
        CONF_FILLED(b, 0, 8, bytes);
        hd_free(b);
        await_released(&released[1]);
        hd_free(own);
        end(&s);
        free(memory);
    }
}

static void a_hold_keeps_it(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    atomic_int released = 0;
    hd_buffer *b = import(&s, NULL, &released);
    hd_hold *hold = NULL;
    CONF_OK(hd_hold_create(s.runtime, &hold));
    CONF_OK(hd_hold_add(hold, b));
    CONF_OK(hd_free(b));
    CONF_EQUAL(atomic_load(&released), 0);
    CONF_OK(hd_hold_destroy(hold));
    await_released(&released);
    end(&s);
}

static void hd_close_releases_what_was_not_freed(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    atomic_int released = 0, pinned = 0;
    hd_buffer *b = import(&s, NULL, &released), *h = NULL;
    void *memory = aligned_alloc(4096, bytes);
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &pinned};
    CONF_OK(hd_import_host(s.runtime, memory, bytes, &options, &h));
    CONF_OK(conf_fill(s.lane, s.k, b, 0, words, 9, NULL));
    CONF_OK(hd_copy(h, 0, b, 0, bytes, NULL));
    end(&s);
    CONF_TRUE(atomic_load(&released) == 1 && atomic_load(&pinned) == 1);
    for (int i = 0; i < words; i++) {
        CONF_EQUAL(((uint32_t *)memory)[i], 9);
    }
    free(memory);
}

/* ---- the host's memory ---- */

static uint64_t pinned_bytes(hd_runtime *runtime)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
    return stats.reserved_bytes;
}

static void memory_of_the_host_is_pinned_meanwhile(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    unsigned char *memory = aligned_alloc(4096, bytes + 4096);
    atomic_int released = 0;
    hd_buffer *b = NULL, *own = NULL;
    const hd_import_options options = {
        .size = sizeof options, .label = "mine", .released = count, .context = &released};
    CONF_OK(hd_alloc(s.lane, bytes, &own));
    CONF_OK(hd_fill(own, 0, 0x07070707, bytes, NULL));
    CONF_FILLED(own, 0, 0x07070707, bytes);
    uint64_t before = pinned_bytes(s.runtime);
    CONF_OK(hd_import_host(s.runtime, memory + 64, bytes, &options, &b));
    CONF_EQUAL(pinned_bytes(s.runtime), before + bytes + 4096);
    CONF_EQUAL(hd_buffer_device(b), HD_DEVICE_HOST);
    void *pointer = NULL;
    CONF_OK(hd_copy(b, 0, own, 0, bytes, NULL));
    CONF_OK(hd_map(b, HD_READ_WRITE, &pointer));
    CONF_TRUE(pointer == memory + 64 && memory[64] == 7 && memory[64 + bytes - 1] == 7);
    memset(pointer, 8, bytes);
    CONF_OK(hd_unmap(b));
    CONF_OK(hd_copy(own, 0, b, 0, bytes, NULL));
    CONF_FILLED(own, 0, 0x08080808, bytes);
    CONF_OK(conf_fill(s.lane, s.k, b, 0, words, 33, NULL)); /* a kernel reaches it */
    CONF_OK(hd_buffer_wait(b, HD_READ, HD_FOREVER));
    CONF_TRUE(memory[64] == 33);
    CONF_FAILS_WITH(hd_import_host(s.runtime, memory + 100, 64, NULL, &own), HD_ERROR_ARGUMENT, "'mine'");
    CONF_OK(hd_free(b));
    await_released(&released);
    CONF_EQUAL(pinned_bytes(s.runtime), before);
    foreign_enter(&s.f, 0); /* it is not pinned any more */
    CONF_EQUAL(s.f.cuMemHostRegister(memory, bytes, 3), 0);
    CONF_EQUAL(s.f.cuMemHostUnregister(memory), 0);
    foreign_leave(&s.f);
    free(memory);
    hd_free(own);
    end(&s);
}

static void pinned_memory_of_the_program_is_taken_as_it_is(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    void *memory = NULL;
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuMemHostAlloc(&memory, bytes, 3), 0);
    foreign_leave(&s.f);
    atomic_int released = 0;
    hd_buffer *b = NULL;
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &released};
    uint64_t before = pinned_bytes(s.runtime);
    CONF_FAILS_WITH(hd_import_host(s.runtime, memory, bytes + (8 << 20), NULL, &b), HD_ERROR_ARGUMENT, "in part");
    CONF_OK(hd_import_host(s.runtime, memory, bytes, &options, &b));
    CONF_EQUAL(pinned_bytes(s.runtime), before);
    CONF_OK(hd_fill(b, 0, 0x05050505, bytes, NULL));
    CONF_OK(hd_buffer_wait(b, HD_READ, HD_FOREVER));
    CONF_EQUAL(((uint32_t *)memory)[words - 1], 0x05050505);
    CONF_FAILS_WITH(hd_import(s.runtime, 0, (uint64_t)(uintptr_t)memory, bytes, NULL, &b), HD_ERROR_ARGUMENT,
                    "hd_import_host");
    CONF_OK(hd_free(b));
    await_released(&released);
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuMemFreeHost(memory), 0); /* still pinned, by the program */
    foreign_leave(&s.f);
    end(&s);
}

/* A freed import that a gate keeps in use. */
static void import_behind_a_gate(scene *s, void *memory, size_t size, void **context, atomic_int *released)
{
    hd_buffer *b = import_host(s, memory, size, "first", released);
    hd_arg use = hd_inout(b);
    CONF_OK(hd_lane_run_native(s->lane, stand, context, &use, 1, NULL));
    CONF_OK(hd_free(b));
    CONF_EQUAL(atomic_load(released), 0);
}

static void the_limit_of_pinned_memory_counts(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "pinned_limit=4M memory_timeout=200")) {
        return;
    }
    void *memory = aligned_alloc(4096, 8 << 20);
    hd_buffer *b = NULL;
    CONF_FAILS_WITH(hd_import_host(s.runtime, memory, 8 << 20, NULL, &b), HD_ERROR_HOST_MEMORY,
                    "the size 8 MiB exceeds the limit; raise pinned_limit (4 MiB)");
    CONF_TRUE(b == NULL);
    /* a freed import counts until it is unpinned, and the message says so */
    gate g = {0};
    void *context[] = {&s.f, &g};
    atomic_int released = 0;
    import_behind_a_gate(&s, memory, 3 << 20, context, &released);
    CONF_FAILS_WITH(hd_import_host(s.runtime, (char *)memory + (4 << 20), 2 << 20, NULL, &b), HD_ERROR_HOST_MEMORY,
                    "pinned imports 3 MiB");
    atomic_store(&g.open, true);
    await_released(&released);
    foreign_enter(&s.f, 0); /* Heddle uses memory that the program pinned as it is */
    CONF_EQUAL(s.f.cuMemHostRegister(memory, 8 << 20, 3), 0);
    uint64_t before = pinned_bytes(s.runtime);
    CONF_OK(hd_import_host(s.runtime, memory, 8 << 20, NULL, &b));
    CONF_EQUAL(pinned_bytes(s.runtime), before);
    CONF_OK(hd_fill(b, 0, 5, 8 << 20, NULL));
    CONF_OK(hd_buffer_wait(b, HD_READ, HD_FOREVER));
    CONF_EQUAL(((uint32_t *)memory)[(2 << 20) - 1], 5);
    CONF_OK(hd_free(b));
    CONF_EQUAL(s.f.cuMemHostUnregister(memory), 0);
    foreign_leave(&s.f);
    CONF_OK(hd_import_host(s.runtime, memory, 1 << 20, NULL, &b));
    hd_free(b);
    end(&s);
    free(memory);
}

/* ---- memory of the host that is imported again ---- */

static void it_is_used(scene *s, hd_buffer *b, const uint32_t *memory, uint32_t value)
{
    CONF_OK(conf_fill(s->lane, s->k, b, 0, 1024, value, NULL));
    CONF_OK(hd_buffer_wait(b, HD_READ, HD_FOREVER));
    CONF_TRUE(memory[0] == value && memory[1023] == value);
}

static void expect_unpinned(scene *s, void *memory, size_t size)
{
    foreign_enter(&s->f, 0);
    CONF_EQUAL(s->f.cuMemHostRegister(memory, size, 3), 0);
    CONF_EQUAL(s->f.cuMemHostUnregister(memory), 0);
    foreign_leave(&s->f);
}

static void imported_again_while_in_use_it_stays_pinned(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    gate g = {0};
    void *context[] = {&s.f, &g};
    uint32_t *memory = aligned_alloc(4096, 2 * bytes);
    atomic_int first = 0, same = 0, half = 0;
    uint64_t before = pinned_bytes(s.runtime);
    import_behind_a_gate(&s, memory, bytes, context, &first);
    CONF_OK(hd_free(import_host(&s, memory, bytes, "same", &same)));
    hd_buffer *b = import_host(&s, memory, bytes / 2, "half", &half), *none = NULL;
    CONF_EQUAL(pinned_bytes(s.runtime), before + bytes); /* one pin for all */
    CONF_FAILS_WITH(hd_import_host(s.runtime, memory + words / 2, bytes, NULL, &none), HD_ERROR_ARGUMENT, "'half'");
    atomic_store(&g.open, true);
    await_released(&first);
    await_released(&same);
    CONF_EQUAL(pinned_bytes(s.runtime), before + bytes);
    it_is_used(&s, b, memory, 5);
    CONF_OK(hd_free(b));
    await_released(&half);
    CONF_EQUAL(pinned_bytes(s.runtime), before);
    expect_unpinned(&s, memory, 2 * bytes);
    end(&s);
    free(memory);
}

static void a_larger_import_waits_for_the_freed_one(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "transfer_timeout=20")) {
        return;
    }
    gate g = {0};
    void *context[] = {&s.f, &g};
    uint32_t *memory = aligned_alloc(4096, 2 * bytes);
    atomic_int first = 0, second = 0;
    hd_buffer *b = NULL;
    uint64_t before = pinned_bytes(s.runtime);
    import_behind_a_gate(&s, memory, bytes, context, &first);
    CONF_FAILS_WITH(hd_import_host(s.runtime, memory, 2 * bytes, NULL, &b), HD_ERROR_TIMEOUT, "transfer_timeout");
    CONF_EQUAL(pinned_bytes(s.runtime), before + bytes);
    atomic_store(&g.open, true);
    await_released(&first);
    b = import_host(&s, memory, 2 * bytes, "second", &second);
    CONF_EQUAL(pinned_bytes(s.runtime), before + 2 * bytes);
    it_is_used(&s, b, memory, 6);
    CONF_OK(hd_free(b));
    await_released(&second);
    expect_unpinned(&s, memory, 2 * bytes);
    end(&s);
    free(memory);
}

static void imported_again_and_again_it_is_pinned(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    uint32_t *memory = aligned_alloc(4096, 4 * 4096);
    uint64_t before = pinned_bytes(s.runtime);
    atomic_int released = 0;
    enum { turns = 300 };
    for (uint32_t i = 1; i <= turns; i++) { /* smaller and larger ones */
        hd_buffer *b = import_host(&s, memory, 4096 * (1 + i * 7 % 4), NULL, &released);
        if (i % 3) {
            it_is_used(&s, b, memory, i);
        }
        CONF_OK(hd_free(b));
    }
    while (atomic_load(&released) < turns) {
        conf_sleep_ms(1);
    }
    CONF_EQUAL(pinned_bytes(s.runtime), before);
    expect_unpinned(&s, memory, 4 * 4096);
    end(&s);
    CONF_EQUAL(atomic_load(&released), turns);
    free(memory);
}

/* ---- refusals ---- */

static void what_is_no_memory_of_the_device_is_refused(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_devices=2")) {
        return;
    }
    hd_buffer *b = NULL, *own = NULL, *pinned = NULL;
    static char plain[4096];
    uint64_t at = (uint64_t)(uintptr_t)plain;
    CONF_FAILS_WITH(hd_import(s.runtime, 0, at, sizeof plain, NULL, &b), HD_ERROR_ARGUMENT, "no memory");
    CONF_FAILS_WITH(hd_import(s.runtime, 0, s.memory, bytes + (64 << 20), NULL, &b), HD_ERROR_ARGUMENT, "ends after");
    CONF_FAILS_WITH(hd_import(s.runtime, 0, s.memory, SIZE_MAX, NULL, &b), HD_ERROR_ARGUMENT, "last address");
    if (hd_device_count(s.runtime) > 1) {
        CONF_FAILS_WITH(hd_import(s.runtime, 1, s.memory, bytes, NULL, &b), HD_ERROR_ARGUMENT, "memory of device 0");
    }
    CONF_OK(
        hd_alloc_with(s.lane, bytes, &(hd_alloc_options){.size = sizeof(hd_alloc_options), .label = "heddle's"}, &own));
    CONF_FAILS_WITH(hd_import(s.runtime, 0, hd_buffer_address(own) + 64, 64, NULL, &b), HD_ERROR_ARGUMENT,
                    "'heddle's'");
    CONF_FAILS_WITH(hd_import_host(s.runtime, (void *)(uintptr_t)s.memory, bytes, NULL, &b), HD_ERROR_ARGUMENT,
                    "memory of a device; hd_import takes it");
    CONF_FAILS_WITH(hd_import_host(s.runtime, (void *)(uintptr_t)4096, 4096, NULL, &b), HD_ERROR_ARGUMENT,
                    "not all memory of the program");
    CONF_OK(hd_buffer_set_label(own, NULL));
    CONF_FAILS_WITH(hd_import(s.runtime, 0, hd_buffer_address(own), 64, NULL, &b), HD_ERROR_ARGUMENT,
                    "Heddle's own; use");
    CONF_OK(hd_alloc_host(s.runtime, bytes, &pinned));
    CONF_OK(hd_buffer_set_label(pinned, "pinned here"));
    void *pointer = NULL;
    CONF_OK(hd_map(pinned, HD_READ, &pointer));
    CONF_FAILS_WITH(hd_import_host(s.runtime, pointer, 64, NULL, &b), HD_ERROR_ARGUMENT, "'pinned here'");
    CONF_TRUE(b == NULL);
    hd_free(own);
    hd_free(pinned);
    end(&s);
}

static void overlaps_are_refused_by_name(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    hd_buffer *part[4], *b = NULL;
    for (uint64_t i = 0; i < 4; i++) { /* neighbours do not overlap */
        const char *label = i == 2 ? "third" : NULL;
        const hd_import_options options = {.size = sizeof options, .label = label};
        CONF_OK(hd_import(s.runtime, 0, s.memory + i * 4096, 4096, &options, &part[i]));
    }
    CONF_FAILS_WITH(hd_import(s.runtime, 0, s.memory + 3 * 4096 - 1, 1, NULL, &b), HD_ERROR_ARGUMENT, "'third'");
    CONF_FAILS_WITH(hd_import(s.runtime, 0, s.memory, bytes, NULL, &b), HD_ERROR_ARGUMENT, "overlap");
    CONF_OK(hd_free(part[2]));
    CONF_OK(hd_import(s.runtime, 0, s.memory + 3 * 4096 - 1, 1, NULL, &part[2]));
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_free(part[i]));
    }
    CONF_OK(hd_import(s.runtime, 0, s.memory, bytes, NULL, &b));
    CONF_OK(hd_free(b));
    end(&s);
}

static void a_label_has_nothing_of_an_earlier_one(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    static const char *const labels[] = {"a label that is long", "short", ""}, *const seen[] = {
                                                                                   "'a label that is long'", "'short'",
                                                                                   "the import of"};
    hd_buffer *b = NULL, *none = NULL;
    for (int i = 0; i < 3; i++) { /* the next buffer gets the structure of a freed one */
        b = import(&s, labels[i], NULL);
        CONF_FAILS_WITH(hd_import(s.runtime, 0, s.memory, 4, NULL, &none), HD_ERROR_ARGUMENT, seen[i]);
        CONF_OK(hd_free(b));
    }
    end(&s);
}

/* ---- beside other options and calls ---- */

static void memory_debug_leaves_it_alone(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "memory_debug=on")) {
        return;
    }
    hd_buffer *all = import(&s, NULL, NULL), *b = NULL;
    CONF_OK(hd_fill(all, 0, 0x11111111, bytes, NULL));
    CONF_OK(hd_free(all));
    CONF_OK(hd_import(s.runtime, 0, s.memory + 4096, 4096, NULL, &b));
    CONF_FILLED(b, 0, 0x11111111, 4096); /* fresh buffers of Heddle contain other words */
    CONF_OK(hd_fill(b, 0, 0x22222222, 4096, NULL));
    CONF_OK(hd_free(b));
    CONF_FAILS(hd_free(b), HD_ERROR_HANDLE);
    all = import(&s, NULL, NULL);
    CONF_FILLED(all, 0, 0x11111111, 4096);
    CONF_FILLED(all, 4096, 0x22222222, 4096);
    CONF_FILLED(all, 8192, 0x11111111, bytes - 8192);
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(s.runtime, 0, &stats));
    CONF_TRUE(stats.overruns == 0 && stats.double_frees == 1);
    CONF_OK(hd_free(all));
    end(&s);
}

static void streams_of_the_program_use_it(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_schedule=7")) {
        return;
    }
    hd_buffer *b = import(&s, NULL, NULL), *own = NULL;
    CONF_OK(hd_alloc(s.lane, bytes, &own));
    void *stream = foreign_stream(&s.f, 0);
    for (uint32_t i = 1; i < 20; i++) {
        CONF_OK(conf_fill(s.lane, s.k, b, 0, words, i, NULL));
        hd_arg use = hd_inout(b);
        hd_claim *c = NULL;
        CONF_OK(hd_claim_begin_stream(s.runtime, 0, stream, &use, 1, NULL, &c));
        foreign_enter(&s.f, 0);
        CONF_EQUAL(s.f.cuMemsetD32Async(s.memory, 100 + i, words / 2, stream), 0);
        foreign_leave(&s.f);
        CONF_OK(hd_claim_end(c, HD_OK));
        CONF_OK(hd_copy(own, 0, b, 0, bytes, NULL));
        CONF_FILLED(own, 0, 100 + i, bytes / 2);
        CONF_FILLED(own, bytes / 2, i, bytes / 2);
    }
    CONF_OK(hd_free(b));
    hd_free(own);
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamDestroy(stream), 0);
    foreign_leave(&s.f);
    end(&s);
}

/* The function may call Heddle, and may free imports. Its calls are counted separately. */
typedef struct chain {
    hd_buffer *next, *plain;
    hd_lane *lane;
    atomic_int done;
    hd_status freed, made, closed;
    hd_runtime *runtime;
} chain;

static void end_the_next(void *context)
{
    chain *c = context;
    c->freed = hd_free(c->next);
    c->made = hd_alloc(c->lane, 1000, &c->plain);
    c->made = c->made ? c->made : hd_free(c->plain);
    c->closed = hd_close(c->runtime);
    atomic_store(&c->done, 1);
}

static void the_function_may_call_heddle(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    atomic_int released = 0;
    for (int used = 0; used < 2; used++) { /* on the thread that frees, and on a thread of Heddle */
        chain c = {.lane = s.lane, .runtime = s.runtime};
        hd_buffer *first = NULL;
        const hd_import_options then = {.size = sizeof then, .released = count, .context = &released};
        const hd_import_options options = {.size = sizeof options, .released = end_the_next, .context = &c};
        atomic_store(&released, 0);
        CONF_OK(hd_import(s.runtime, 0, s.memory, 4096, &options, &first));
        CONF_OK(hd_import(s.runtime, 0, s.memory + 4096, 4096, &then, &c.next));
        if (used) {
            CONF_OK(conf_fill(s.lane, s.k, first, 0, 1024, 1, NULL));
        }
        CONF_OK(hd_free(first));
        await_released(&c.done);
        await_released(&released);
        CONF_TRUE(c.freed == HD_OK && c.made == HD_OK && c.closed == HD_ERROR_HANDLE);
    }
    end(&s);
}

/* ---- losses ---- */

static void lose(scene *s)
{
    hd_lane *lane = NULL;
    hd_buffer *total = NULL;
    hd_ticket ticket;
    CONF_OK(hd_lane_create(s->runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, 4096, &total));
    hd_arg args[] = {hd_inout_range(total, 0, 4), hd_in(total), hd_u64(UINT64_C(1) << 38)};
    CONF_OK(hd_launch(lane, s->k.sum, conf_dims(2, 1, 1), conf_dims(256, 1, 1), 0, args, 3, &ticket));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    hd_free(total);
    hd_lane_destroy(lane);
}

static void after_a_loss_it_is_released_once(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_devices=1")) {
        return;
    }
    if (!conf_isolates(s.runtime)) {
        end(&s);
        skip();
    }
    atomic_int released = 0, mine = 0;
    hd_buffer *b = import(&s, NULL, &released), *host = NULL, *none = NULL;
    void *memory = aligned_alloc(4096, bytes);
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &mine};
    CONF_OK(hd_import_host(s.runtime, memory, bytes, &options, &host));
    CONF_OK(conf_fill(s.lane, s.k, b, 0, words, 1, NULL));
    CONF_OK(hd_copy(host, 0, b, 0, bytes, NULL));
    lose(&s);
    CONF_FAILS(hd_fill(b, 0, 0, bytes, NULL), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_import(s.runtime, 0, s.memory, bytes, NULL, &none), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_import_host(s.runtime, &s, sizeof s, NULL, &none), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_free(b));
    await_released(&released);
    CONF_OK(hd_free(host));
    await_released(&mine);
    conf_close(s.runtime);
    foreign_end(&s.f); /* the memory ended with the device's context */
    free(memory);
    CONF_TRUE(atomic_load(&released) == 1 && atomic_load(&mine) == 1);
}

/* ---- many at once ---- */

enum { THREADS = 4, TURNS = 100 };

typedef struct worker {
    scene *s;
    pthread_t thread;
    uint64_t at;
    atomic_int released;
} worker;

static void *import_and_free(void *context)
{
    worker *w = context;
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(w->s->runtime, 0, &lane));
    for (uint32_t i = 0; i < TURNS; i++) {
        hd_buffer *b = NULL;
        const hd_import_options options = {.size = sizeof options, .released = count, .context = &w->released};
        CONF_OK(hd_import(w->s->runtime, 0, w->at, 4096, &options, &b));
        CONF_OK(conf_fill(lane, w->s->k, b, 0, 1024, i, NULL));
        if (i % 10 == 9) {
            CONF_FILLED(b, 0, i, 4096);
        }
        CONF_OK(hd_free(b));
    }
    CONF_OK(hd_lane_destroy(lane));
    return NULL;
}

static void many_threads_import_and_free(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_schedule=5")) {
        return;
    }
    static worker w[THREADS];
    for (int i = 0; i < THREADS; i++) {
        w[i].s = &s;
        w[i].at = s.memory + (uint64_t)i * 4096;
        atomic_store(&w[i].released, 0);
        CONF_EQUAL(pthread_create(&w[i].thread, NULL, import_and_free, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CONF_EQUAL(pthread_join(w[i].thread, NULL), 0);
    }
    end(&s);
    for (int i = 0; i < THREADS; i++) {
        CONF_EQUAL(atomic_load(&w[i].released), TURNS);
    }
}

/* Last, since hd_close leaves the device to the program. */
static void with_an_open_claim_it_is_never_released(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "close_timeout=300")) {
        return;
    }
    atomic_int released = 0;
    hd_claim *claim = NULL;
    hd_arg use = hd_inout(import(&s, NULL, &released));
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &claim));
    CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "claim");
    CONF_EQUAL(atomic_load(&released), 0);
}

int main(void)
{
    conf_begin("test_import");
    const struct CMUnitTest cases[] = {
        CONF_CASE(every_use_works),
        CONF_CASE(other_devices_use_it),
        CONF_CASE(freed_while_used_it_is_released_after_the_work),
        CONF_CASE(imported_again_it_waits_for_writers_alone),
        CONF_CASE(a_hold_keeps_it),
        CONF_CASE(hd_close_releases_what_was_not_freed),
        CONF_CASE(memory_of_the_host_is_pinned_meanwhile),
        CONF_CASE(pinned_memory_of_the_program_is_taken_as_it_is),
        CONF_CASE(the_limit_of_pinned_memory_counts),
        CONF_CASE(imported_again_while_in_use_it_stays_pinned),
        CONF_CASE(a_larger_import_waits_for_the_freed_one),
        CONF_CASE(imported_again_and_again_it_is_pinned),
        CONF_CASE(what_is_no_memory_of_the_device_is_refused),
        CONF_CASE(overlaps_are_refused_by_name),
        CONF_CASE(a_label_has_nothing_of_an_earlier_one),
        CONF_CASE(memory_debug_leaves_it_alone),
        CONF_CASE(streams_of_the_program_use_it),
        CONF_CASE(the_function_may_call_heddle),
        CONF_CASE(after_a_loss_it_is_released_once),
        CONF_CASE(many_threads_import_and_free),
        CONF_CASE(with_an_open_claim_it_is_never_released),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
