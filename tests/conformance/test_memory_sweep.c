/* test_memory_sweep.c - the Nth driver call fails while memory grows, moves, is given back, pinned
 * and shared.
 *
 * Promise: Any driver call may fail while memory moves: content survives, and nothing leaks.
 * Tier: stress.
 *
 * All of the limit stays available. The sweep covers every N of a scenario, and each entry point
 * that memory needs by itself, once or from then on.
 *
 * Threads: the main one.
 * Locks: none.
 *
 * Always:
 * - each run ends, without a crash
 * - a failed call names the failure, and content of successful calls is right
 * - nothing leaks: the address sanitizer checks, and the runtime's own figures at the end
 * - if only one call fails, the pool works again: all of the limit can be allocated
 *
 * HEDDLE_SEED decides which N the sweep leaves out to keep to HEDDLE_SWEEP_SECONDS (8).
 */
#include "pool.h"
#include "sweep.h"

enum { LIMIT = 24, n_small = 24 };

typedef struct outcome {
    const char *settings;
    bool opened, single; /* single: one call fails, the next ones work */
    bool fatal;          /* the code of the failure means that the device is gone */
    int failures;
} outcome;

#define STEP(call)                                                                                                     \
    sweep_step(o->settings, &o->failures, SWEEP_DRIVER_FAILS | SWEEP_STATUS(LANE_FAILED) | SWEEP_STATUS(UNREACHABLE),  \
               (call), #call)

/* Fills both ends of a buffer with a word: filling all of it would take most of the time. Returns
 * true if it will contain the word. */
static bool fill(outcome *o, hd_buffer *x, uint32_t word)
{
    size_t bytes = hd_buffer_size(x) / 4 * 4, end = bytes < 4096 ? bytes : 4096;
    return x != NULL && STEP(hd_fill(x, 0, word, end, NULL)) && STEP(hd_fill(x, bytes - end, word, end, NULL));
}

static void look(outcome *o, hd_buffer *x, uint32_t word, const char *what)
{
    uint32_t got[64];
    size_t bytes = hd_buffer_size(x) < sizeof got ? hd_buffer_size(x) / 4 * 4 : sizeof got;
    size_t last = hd_buffer_size(x) / 4 * 4 - bytes;
    for (int end = 0; end < 2; end++) {
        if (!STEP(hd_read(x, end ? last : 0, got, bytes))) {
            return;
        }
        for (size_t i = 0; i < bytes / 4; i++) {
            if (got[i] != word) {
                violation(o->settings, "%s: word %zu is %08x, not %08x, without an error", what, i, got[i], word);
                return;
            }
        }
    }
}

/* The scenario's buffers, to check their content at the end. */
typedef struct content {
    hd_buffer *x;
    uint32_t word;
    bool filled;
} content;

static void get(outcome *o, hd_lane *lane, size_t bytes, uint32_t word, content *e)
{
    hd_buffer *const untouched = (hd_buffer *)(uintptr_t)0x1234;
    *e = (content){untouched, word, false};
    if (lane == NULL || !STEP(hd_alloc(lane, bytes, &e->x))) {
        if (e->x != untouched) {
            violation(o->settings, "hd_alloc failed and changed its output");
        }
        e->x = NULL;
        return;
    }
    e->filled = fill(o, e->x, word);
}

static void drop(outcome *o, content *e, const char *what)
{
    if (e->x != NULL && e->filled) {
        look(o, e->x, e->word, what);
    }
    hd_free(e->x);
    e->x = NULL;
}

/* Checks the figures once everything is free: the pool must be as good as new. */
static void must_be_whole(outcome *o, hd_runtime *runtime, hd_lane *lane)
{
    hd_memory_stats s = {.size = sizeof s};
    if (hd_memory_get_stats(runtime, 0, &s) != HD_OK) {
        violation(o->settings, "no statistics: %s", hd_message());
        return;
    }
    if (s.live_count != 0 || s.live_bytes != 0 || s.held_bytes != 0) {
        violation(o->settings, "%llu buffers with %llu bytes are live, %llu held, when all are freed",
                  (unsigned long long)s.live_count, (unsigned long long)s.live_bytes, (unsigned long long)s.held_bytes);
    }
    if (s.reserved_peak_bytes > s.limit_bytes) {
        violation(o->settings, "the limit was exceeded");
    }
    if (!o->single || o->fatal || !o->opened) {
        return;
    }
    if (hd_lane_wait(lane, POOL_WAIT) != HD_OK && hd_lane_reset(lane, POOL_WAIT) != HD_OK) {
        violation(o->settings, "the lane cannot be reset: %s", hd_message());
        return;
    }
    hd_buffer *all = NULL;
    hd_status status = HD_OK;
    for (int i = 0; i < 2; i++) { /* the call that fails may only come now */
        status = hd_alloc(lane, LIMIT * POOL_MIB, &all);
        if (status == HD_OK) {
            break;
        }
        o->failures++;
    }
    if (status != HD_OK) {
        violation(o->settings, "when one call has failed and all is freed, not all memory can be had: %s",
                  hd_message());
        return;
    }
    bool filled = false;
    for (int i = 0; i < 2 && !filled; i++) {
        uint32_t word = 0;
        filled = hd_fill(all, LIMIT * POOL_MIB - 4096, 0x321, 4096, NULL) == HD_OK &&
                 hd_read(all, LIMIT * POOL_MIB - 4, &word, 4) == HD_OK;
        if (filled && word != 0x321) {
            violation(o->settings, "memory that was got again has %08x", word);
        }
        o->failures += !filled;
    }
    if (!filled) {
        violation(o->settings, "memory that was got again cannot be used: %s", hd_message());
    }
    hd_free(all);
}

static void scenario(outcome *o)
{
    hd_runtime *runtime = NULL;
    o->opened = STEP(conf_try_open(o->settings, &runtime));
    if (!o->opened) {
        return;
    }
    int last = hd_device_count(runtime) - 1;
    hd_lane *a = NULL, *b = NULL, *far = NULL;
    STEP(hd_lane_create(runtime, 0, &a));
    STEP(hd_lane_create(runtime, 0, &b));
    STEP(hd_lane_create(runtime, last, &far));

    /* grows in small pieces and large ones, fills magazines */
    static content small[n_small], blocks[6];
    content large, other;
    memset(small, 0, sizeof small);
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < n_small; i++) {
        get(o, i % 2 == 0 ? a : b, 1000 + i * 2000, 0x100 + i, &small[i]);
    }
    for (uint32_t i = 0; i < 6; i++) {
        get(o, i % 2 == 0 ? a : b, 3 * POOL_MIB, 0x200 + i, &blocks[i]);
    }
    for (int i = 0; i < n_small; i += 2) {
        drop(o, &small[i], "a small block");
    }

    /* holes, and a block that fits in none of them: memory moves */
    for (int i = 0; i < 6; i += 2) {
        drop(o, &blocks[i], "a block");
    }
    get(o, b, 9 * POOL_MIB, 0x300, &large);

    /* shared with a peer, used from both sides */
    get(o, far, 3 * POOL_MIB, 0x400, &other);
    if (other.filled && blocks[1].filled) {
        other.filled = STEP(hd_copy(other.x, 0, blocks[1].x, 0, 4096, NULL)) &&
                       STEP(hd_copy(other.x, 3 * POOL_MIB - 4096, blocks[1].x, 0, 4096, NULL));
        other.word = blocks[1].word;
    }

    /* pinned and unified memory */
    hd_buffer *pinned = NULL, *unified = NULL, *kept = NULL;
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP, .label = "kept"};
    if (STEP(hd_alloc_host(runtime, POOL_MIB, &pinned)) && fill(o, pinned, 0x500)) {
        look(o, pinned, 0x500, "pinned memory");
    }
    if (b != NULL && STEP(hd_alloc_unified(b, 300000, &unified))) {
        uint32_t word = 0;
        if (fill(o, unified, 0x600)) {
            if (hd_get_u32(unified, 74000, &word) && word != 0x600) {
                violation(o->settings, "element of a unified buffer: %08x", word);
            }
            look(o, unified, 0x600, "a unified buffer");
        }
    }
    if (a != NULL && STEP(hd_alloc_with(a, 5000, &keep, &kept)) && fill(o, kept, 0x700)) {
        hd_ticket ticket = {NULL, 0};
        if (STEP(hd_buffer_save(kept, &ticket))) {
            STEP(hd_wait(ticket, POOL_WAIT));
        }
    }

    /* a hold, over a trim */
    hd_hold *hold = NULL;
    if (blocks[3].x != NULL && STEP(hd_hold_create(runtime, &hold))) {
        if (STEP(hd_hold_add(hold, blocks[3].x))) {
            hd_free(blocks[3].x);
            blocks[3].x = NULL;
        }
    }
    drop(o, &large, "a block out of moved memory");
    STEP(hd_memory_trim(runtime, 0, POOL_MIB, NULL));
    STEP(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, NULL));
    get(o, a, 8 * POOL_MIB, 0x800, &large); /* grows again */

    hd_free(pinned);
    hd_free(unified);
    hd_free(kept);
    drop(o, &large, "a block of regrown memory");
    drop(o, &other, "a copy on a peer");
    for (int i = 0; i < n_small; i++) {
        drop(o, &small[i], "a small block at the end");
    }
    for (int i = 0; i < 6; i++) {
        drop(o, &blocks[i], "a block at the end");
    }
    hd_hold_destroy(hold);
    hd_lane_destroy(b);
    hd_lane_destroy(far);
    STEP(hd_memory_trim(runtime, 0, 0, NULL));
    if (a != NULL) {
        must_be_whole(o, runtime, a);
    }
    conf_close(runtime);
}

static outcome run(const char *fault, const char *peers, bool single, bool fatal)
{
    static char settings[256];
    snprintf(settings, sizeof settings, "%s %s host_devices=2 host_memory=64M memory_limit=%dM memory_timeout=%d",
             fault, peers, (int)LIMIT, 20);
    outcome o = {.settings = settings, .single = single, .fatal = fatal};
    conf_watch(settings, 60);
    scenario(&o);
    return o;
}

static void without_faults(void **state)
{
    (void)state;
    violations = 0;
    CONF_EQUAL(run("fault=1000000", "host_peers=all", true, false).failures, 0);
    CONF_EQUAL(run("fault=1000000", "host_peers=none", true, false).failures, 0);
    CONF_EQUAL(violations, 0);
}

static double seconds_each(int passes)
{
    return conf_sweep_seconds(8) / passes;
}

/* The Nth call of `entry` ("": of all) fails, for every N while time is left, up to the last
 * call. */
static void sweep(const char *entry, const char *plus, int code, const char *peers, double seconds)
{
    violations = 0;
    conf_random r = {conf_number_from("HEDDLE_SEED", 1) + (uint64_t)code};
    int64_t start = conf_now();
    int runs = 0, last_hit = 0, clean = 0, failures = 0, n = 1, calls = entry[0] == '\0' ? 500 : 30;
    while (n < 5000 && clean < (entry[0] == '\0' ? 60 : 12)) {
        char fault[96];
        snprintf(fault, sizeof fault, "fault=%s%s%d%s=%d", entry, entry[0] == '\0' ? "" : ":", n, plus, code);
        outcome o = run(fault, peers, plus[0] == '\0', code == 700);
        runs++;
        failures += o.failures;
        clean = o.failures > 0 ? 0 : clean + 1;
        last_hit = o.failures > 0 ? n : last_hit;
        double spent = (double)(conf_now() - start) / 1e9, each = spent / runs;
        int left = calls > n ? calls - n : 1;
        double stride = each * left / (seconds - spent > 0.02 ? seconds - spent : 0.02);
        n += stride <= 1 ? 1 : (int)conf_below(&r, (uint64_t)(2 * stride)) + 1;
        if (spent > seconds) {
            break;
        }
    }
    fprintf(stderr, "  fault=%s:N%s=%d %s: %d runs in %.1f s, N to %d, %d failures\n", entry[0] == '\0' ? "*" : entry,
            plus, code, peers, runs, (double)(conf_now() - start) / 1e9, last_hit, failures);
    CONF_EQUAL(violations, 0);
}

static const char *const entries[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"};
enum { n_entries = sizeof entries / sizeof entries[0] };

static void one_call_for_memory_is_out_of_memory(void **state)
{
    (void)state;
    for (int i = 0; i < n_entries; i++) {
        sweep(entries[i], "", 2, "host_peers=all", seconds_each(4) / n_entries);
    }
}

static void one_call_for_memory_fails(void **state)
{
    (void)state;
    for (int i = 0; i < n_entries; i++) {
        sweep(entries[i], "", 999, "host_peers=none", seconds_each(4) / n_entries);
    }
}

static void all_calls_for_memory_fail_from_one_on(void **state)
{
    (void)state;
    for (int i = 0; i < n_entries; i++) {
        sweep(entries[i], "+", i % 2 == 0 ? 2 : 999, i % 2 == 0 ? "host_peers=all" : "host_peers=none",
              seconds_each(4) / n_entries);
    }
}

/* Under the thread sanitizer the test leaves out cases that simulate the loss of the device. Such a
 * device still works, and writes to memory that was given back. With workers it is gone. */
static void any_call_fails(void **state)
{
    (void)state;
    const char *placement = getenv("HEDDLE_PLACEMENT");
    bool gone = !CONF_TSAN || (placement != NULL && strcmp(placement, "process") == 0);
    sweep("", "", 2, "host_peers=all", seconds_each(12));
    sweep("", "", 999, "host_peers=none", seconds_each(12));
    if (gone) {
        sweep("", "+", 999, "host_peers=all", seconds_each(12));
        sweep("", "", 700, "host_peers=none", seconds_each(12));
    }
}

int main(void)
{
    conf_begin("test_memory_sweep");
    const struct CMUnitTest tests[] = {
        CONF_CASE(without_faults),
        CONF_CASE(one_call_for_memory_is_out_of_memory),
        CONF_CASE(one_call_for_memory_fails),
        CONF_CASE(all_calls_for_memory_fail_from_one_on),
        CONF_CASE(any_call_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
