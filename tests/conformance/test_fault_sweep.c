/* test_fault_sweep.c - the Nth driver call of a scenario fails, for every N, once or from then on,
 * with codes of several kinds.
 *
 * Promise: Calls report any driver failure, good reads are right, and a new runtime works.
 * Tier: stress.
 *
 * Threads: the main one.
 * Locks: none.
 *
 * Always:
 * - each run ends, without a crash
 * - a call that fails names the failed call, and a read that succeeds returns the right bytes
 * - closing is clean (the address sanitizer looks for leaks), and a clean runtime opened afterwards
 *   works
 *
 * The driver calls that make up chains of launches fail by name, too. On host devices each of them
 * must be part of the scenario.
 *
 * HEDDLE_SEED decides which N the sweep leaves out to keep to HEDDLE_SWEEP_SECONDS (12). With
 * enough seconds it leaves out none.
 */
#include "sweep.h"

#include "sweeps/worker/counting.h"

enum { words = 20000, bytes = words * 4, large = 3 << 20, launches = 12 };

typedef struct outcome {
    const char *settings;
    bool opened;
    int failures;
    int by_status[21];
} outcome;

static const char kernel_source[] = "#include <heddle/kernel.h>\n"
                                    "HD_KERNEL(add_one, HD_INOUT(uint32_t, y), HD_VALUE(uint64_t, n))\n"
                                    "{\n"
                                    "    uint64_t i = hd_global_x();\n"
                                    "    if (i < n) {\n"
                                    "        y[i] += 1;\n"
                                    "    }\n"
                                    "}\n";
static uint8_t *kernel_file;
static size_t kernel_file_size;
static uint8_t *data, *got;

/* Statuses to which no failing driver call may lead. */
#define UNEXPECTED                                                                                                     \
    (SWEEP_STATUS(ARGUMENT) | SWEEP_STATUS(HANDLE) | SWEEP_STATUS(RANGE) | SWEEP_STATUS(TIMEOUT) |                     \
     SWEEP_STATUS(OPTION) | SWEEP_STATUS(LIMIT) | SWEEP_STATUS(NOT_FOUND))

static bool step(outcome *o, hd_status status, const char *call)
{
    if (status < 0 && status >= -20) {
        o->by_status[-status]++;
    }
    return sweep_step(o->settings, &o->failures, (UINT32_C(1) << 21) - 2 - UNEXPECTED, status, call);
}
#define STEP(call) step(o, (call), #call)

/* Checks that a read is right, if all operations that made its bytes succeeded. */
static void check(outcome *o, const void *wanted, size_t size, const char *what)
{
    size_t i = conf_difference(got, wanted, size);
    if (i < size) {
        violation(o->settings, "%s: read without an error, but byte %zu of %zu is %02x, not %02x", what, i, size,
                  got[i], ((const uint8_t *)wanted)[i]);
    }
}

/* Launches a kernel that ran before, so that launches form chains. On a busy machine the kernel may
 * have seemed long, and then they go one by one. The engine measures it anew between two rounds. */
static void launch_many(outcome *o, hd_lane *lane, hd_kernel *fill)
{
    hd_buffer *many = NULL;
    int rounds = strstr(o->settings, "chains=") ? 10 : 1;
    bool done = lane != NULL && fill != NULL && STEP(hd_alloc(lane, 400, &many));
    for (int round = 0; round < rounds && done; round++) {
        for (uint32_t i = 1; i <= launches && done; i++) {
            hd_arg args[] = {hd_out(many), hd_u64(100), hd_u32(i)};
            done = STEP(hd_launch(lane, fill, conf_grid(100, 128), conf_dims(128, 1, 1), 0, args, 3, NULL));
        }
        done = done && (round == rounds - 1 || STEP(hd_lane_wait(lane, 60 * CONF_SECOND)));
    }
    if (done && STEP(hd_read(many, 0, got, 400))) {
        uint32_t wanted[100];
        for (int i = 0; i < 100; i++) {
            wanted[i] = launches;
        }
        check(o, wanted, 400, "what many kernels made");
    }
    hd_free(many);
}

static void scenario(outcome *o)
{
    hd_runtime *const untouched = (hd_runtime *)(uintptr_t)0x1234;
    hd_runtime *runtime = untouched;
    o->opened = STEP(conf_try_open(o->settings, &runtime));
    if (!o->opened) {
        if (runtime != untouched) {
            violation(o->settings, "hd_open failed and changed its output");
        }
        return;
    }
    int last = hd_device_count(runtime) - 1;
    hd_lane *a = NULL, *b = NULL, *c = NULL, *mine = conf_default_lane(runtime, 0);
    if (mine == NULL) {
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        step(o, error.status, "hd_lane_get_default");
    }
    STEP(hd_lane_create(runtime, 0, &a));
    STEP(hd_lane_create(runtime, 0, &b));
    STEP(hd_lane_create(runtime, last, &c));

    /* memory that grows, pinned memory, code */
    hd_buffer *x = NULL, *y = NULL, *z = NULL, *far = NULL, *pinned = NULL;
    if (a != NULL) {
        STEP(hd_alloc(a, bytes, &x));
        STEP(hd_alloc(a, large, &y));
        STEP(hd_alloc(a, 2 * large, &z));
    }
    if (c != NULL) {
        STEP(hd_alloc(c, large, &far));
    }
    STEP(hd_alloc_host(runtime, large, &pinned));
    hd_module *builtin = NULL, *module = NULL;
    hd_kernel *fill = NULL, *copy = NULL, *add = NULL;
    if (STEP(hd_module_get_builtin(runtime, &builtin))) {
        STEP(hd_kernel_get(builtin, "hd_fill_u32", &fill));
        STEP(hd_kernel_get(builtin, "hd_copy_u32", &copy));
    }
    if (kernel_file != NULL && STEP(hd_module_load(runtime, kernel_file, kernel_file_size, &module))) {
        STEP(hd_kernel_get(module, "add_one", &add));
    }
    hd_device_info info = {.size = sizeof info};
    STEP(hd_device_get_info(runtime, last, &info));

    /* work: `x_ok` and the like are true while every operation that made the content was
     * accepted */
    hd_dims grid = conf_grid(words, 128), block = {128, 1, 1};
    hd_ticket tickets[8] = {{NULL, 0}};
    int n = 0;
    bool x_ok = false, y_ok = false, z_ok = false, far_ok = false, pinned_ok = false;
    uint32_t x_word = 0;
    if (x != NULL && fill != NULL) {
        hd_arg args[] = {hd_out(x), hd_u64(words), hd_u32(41)};
        x_ok = STEP(hd_launch(a, fill, grid, block, 0, args, 3, &tickets[n]));
        x_word = 41, n += x_ok;
        if (add != NULL && x_ok && b != NULL) { /* in another lane */
            hd_arg add_args[] = {hd_inout(x), hd_u64(words)};
            bool done = STEP(hd_launch(b, add, grid, block, 0, add_args, 2, &tickets[n]));
            x_word += done, n += done;
        }
    }
    if (y != NULL) {
        y_ok = STEP(hd_write(y, 0, data, large));
    }
    if (z != NULL) {
        z_ok = STEP(hd_fill(z, 0, 0x5a5a5a5au, 2 * large, &tickets[n]));
        n += z_ok;
        if (z_ok && y_ok) {
            z_ok = STEP(hd_copy(z, large, y, 0, large, &tickets[n]));
            n += z_ok;
        } else {
            z_ok = false;
        }
    }
    if (far != NULL && y_ok) { /* directly, or through pinned memory */
        far_ok = STEP(hd_copy(far, 0, y, 0, large, &tickets[n]));
        n += far_ok;
    }
    if (pinned != NULL && far_ok) {
        pinned_ok = STEP(hd_copy(pinned, 0, far, 0, large, &tickets[n]));
        n += pinned_ok;
    }
    if (b != NULL && copy != NULL && x_ok && y_ok) {
        hd_arg args[] = {hd_out_range(y, 0, bytes), hd_in(x), hd_u64(words)};
        hd_status status = hd_launch(b, copy, grid, block, 0, args, 3, &tickets[n]);
        if (STEP(status)) {
            n++;
        } else {
            y_ok = false;
        }
    }

    /* waiting and reading */
    bool waited = true;
    for (int i = 0; i < n; i++) {
        waited = STEP(hd_wait(tickets[i], 60 * CONF_SECOND)) && waited;
        if (!hd_done(tickets[i])) {
            violation(o->settings, "ticket %d is not done after hd_wait", i);
        }
    }
    if (x_ok && STEP(hd_read(x, 0, got, bytes)) && waited) {
        uint32_t wanted[words];
        for (int i = 0; i < words; i++) {
            wanted[i] = x_word;
        }
        check(o, wanted, bytes, "what two kernels made");
    }
    if (z_ok && STEP(hd_read(z, large, got, large))) {
        check(o, data, large, "copy in the device");
    }
    if (far_ok && STEP(hd_read(far, 0, got, large))) {
        check(o, data, large, "copy between devices");
    }
    if (pinned_ok) {
        void *p = NULL;
        if (STEP(hd_map(pinned, HD_READ, &p))) {
            memcpy(got, p, large);
            check(o, data, large, "copy to pinned memory");
            hd_unmap(pinned);
        }
    }
    if (y_ok && x_ok && STEP(hd_read(y, 0, got, large))) {
        memmove(got, got + bytes, large - bytes);
        check(o, data + bytes, large - bytes, "what was written");
    }
    launch_many(o, b, fill);
    hd_lane *lanes[] = {a, b, c, mine};
    for (int i = 0; i < 4; i++) {
        if (lanes[i] != NULL) {
            if (!STEP(hd_lane_wait(lanes[i], 60 * CONF_SECOND))) {
                STEP(hd_lane_reset(lanes[i], 60 * CONF_SECOND));
            }
        }
    }
    hd_device_stats stats = {.size = sizeof stats};
    STEP(hd_device_get_stats(runtime, 0, &stats));

    /* the case frees some objects, and the runtime the rest */
    hd_free(x);
    hd_free(z);
    hd_free(far);
    hd_module_unload(module);
    hd_lane_destroy(b);
    hd_lane_destroy(c);
    hd_buffer *again = NULL;
    if (a != NULL && STEP(hd_alloc(a, 5000, &again)) && STEP(hd_fill(again, 0, 7, 5000, NULL)) &&
        STEP(hd_read(again, 0, got, 5000))) {
        uint32_t sevens[1250];
        for (int i = 0; i < 1250; i++) {
            sevens[i] = 7;
        }
        check(o, sevens, 5000, "a small buffer");
    }
    conf_close(runtime);
}

static outcome run(const char *settings)
{
    outcome o = {.settings = settings};
    conf_watch(settings, 60);
    scenario(&o);
    return o;
}

static bool must_be_clean(const char *peers)
{
    char settings[160];
    snprintf(settings, sizeof settings, "fault=1000000 %s host_devices=2 host_memory=64M", peers);
    outcome o = run(settings);
    if (o.failures != 0) {
        violation(settings, "a run without failing calls fails: %s", hd_message());
    }
    return o.failures == 0;
}

static void without_faults(void **state)
{
    (void)state;
    violations = 0;
    must_be_clean("host_peers=all");
    must_be_clean("host_peers=none");
    CONF_EQUAL(violations, 0);
}

/* Calls of the scenario, as counted so far. All passes share it, so that later ones spread their
 * time well. */
static int calls_seen = 400;

static void sweep(const char *peers, const char *plus, int code)
{
#if CONF_TSAN
    const char *placement = getenv("HEDDLE_PLACEMENT");
    if (*plus && (placement == NULL || strcmp(placement, "process") != 0)) {
        /* a device with a simulated loss still works, and writes to memory that was given back */
        skip();
    }
#endif
    violations = 0;
    double seconds = conf_sweep_seconds(12) / 6;
    conf_random r = {conf_number_from("HEDDLE_SEED", 1) + (uint64_t)code};
    int64_t start = conf_now();
    int runs = 0, last_hit = 0, clean_in_a_row = 0, opens_failed = 0, n = 1;
    int by_status[21] = {0};
    while (n < 20000 && (clean_in_a_row < (n > 400 ? 8 : 20) || n - last_hit < 60)) {
        char settings[200];
        snprintf(settings, sizeof settings, "fault=%d%s=%d %s host_devices=2 host_memory=64M", n, plus, code, peers);
        outcome o = run(settings);
        runs++;
        opens_failed += !o.opened;
        for (int i = 0; i < 21; i++) {
            by_status[i] += o.by_status[i];
        }
        if (o.failures > 0) {
            last_hit = n;
            clean_in_a_row = 0;
        } else {
            clean_in_a_row++;
        }
        /* whatever happened before, a clean runtime works */
        if (runs % 8 == 0 && !must_be_clean(peers)) {
            break;
        }
        /* steps of one while time is left: late calls mostly query whether work is done */
        double spent = (double)(conf_now() - start) / 1e9, each = spent / runs;
        int left = calls_seen > n ? calls_seen - n : 60;
        double steps = each * left / (seconds - spent > 0.1 ? seconds - spent : 0.1);
        steps = n <= 400 || seconds >= 60 ? steps : spent > seconds ? 250 : 40;
        steps = n < 100 && steps > 12 ? 12 : steps; /* on any machine, however slow: those matter */
        n += steps <= 1 ? 1 : (int)conf_below(&r, (uint64_t)(2 * steps)) + 1;
    }
    must_be_clean(peers);
    calls_seen = violations == 0 && last_hit > 100 && last_hit < 400 ? last_hit + 20 : 400;
    fprintf(stderr, "  fault=N%s=%d %s: %d runs in %.1f s, N to %d, hd_open failed in %d; failures:", plus, code, peers,
            runs, (double)(conf_now() - start) / 1e9, last_hit, opens_failed);
    for (int i = 0; i < 21; i++) {
        if (by_status[i] != 0) {
            fprintf(stderr, " %s %d", hd_status_name((hd_status)-i) + 3, by_status[i]);
        }
    }
    fprintf(stderr, "\n");
    CONF_TRUE(last_hit > 30);
    CONF_EQUAL(violations, 0);
}

static void one_call_is_out_of_memory(void **state)
{
    (void)state;
    sweep("host_peers=all", "", 2);
}

static void one_call_fails(void **state)
{
    (void)state;
    sweep("host_peers=none", "", 999);
}

static void all_calls_from_one_on_are_out_of_memory(void **state)
{
    (void)state;
    sweep("host_peers=none", "+", 2);
}

static void all_calls_from_one_on_fail(void **state)
{
    (void)state;
    sweep("host_peers=all", "+", 999);
}

static void the_device_is_lost_at_a_call(void **state)
{
    (void)state;
    sweep("host_peers=all", "+", 700);
}

static void one_call_says_that_the_device_is_lost(void **state)
{
    (void)state;
    sweep("host_peers=none", "", 700);
}

/* ---- calls of chains, by name ---- */

#define NAME_OF(name) #name,
static const char *const chain_calls[] = {COUNTED_CALLS(NAME_OF)};

static bool gives_back(int call)
{
    return call == COUNTED_cuGraphExecDestroy || call == COUNTED_cuGraphDestroy;
}

/* Runs the scenario with a fault, and counts the chains that the driver took. */
static outcome run_chains(const char *fault, uint64_t *chains)
{
    static char settings[160];
    uint64_t before = atomic_load(&counted->chains);
    snprintf(settings, sizeof settings, "fault=%s chains=32 host_devices=2 host_memory=64M", fault);
    outcome o = run(settings);
    *chains = atomic_load(&counted->chains) - before;
    return o;
}

/* The call is refused: the launches go one by one, and nothing fails. */
static void refuse(int call, const char *when, int code)
{
    char fault[80];
    uint64_t chains;
    snprintf(fault, sizeof fault, "%s:%s=%d", chain_calls[call], when, code);
    outcome o = run_chains(fault, &chains);
    if (o.failures != 0) {
        violation(fault, "what chains are made of is refused, and %d calls fail: %s", o.failures, hd_message());
    }
    if (strchr(when, '+') != NULL && !gives_back(call) && chains != 0) {
        violation(fault, "%llu chains were launched all the same", (unsigned long long)chains);
    }
}

enum { tries = 20 }; /* on a busy machine a run may make no chain: then run it again */

/* The driver call returns that the device is lost, and a call of the program must report the loss.
 * That proves that the driver call was made. */
static void lose_at(int call)
{
    char fault[80];
    uint64_t chains;
    snprintf(fault, sizeof fault, "%s:1=700", chain_calls[call]);
    outcome o;
    int runs = 0;
    do {
        o = run_chains(fault, &chains);
        runs++;
    } while (!gives_back(call) && o.failures == 0 && runs < tries);
    if (!gives_back(call) && o.by_status[-HD_ERROR_DEVICE_LOST] == 0) {
        violation(fault, "the device is lost, and no call reports it");
    }
}

static void calls_of_chains_fail(void **state)
{
    (void)state;
    if (conf_on_gpus) { /* the number of chains depends on how long kernels take */
        skip();
    }
    uint64_t before[COUNTED_CALLS_END], chains;
    violations = 0;
    for (int call = 0; call < COUNTED_CALLS_END; call++) {
        before[call] = atomic_load(&counted->calls[call]);
    }
    bool all = false;
    for (int runs = 0; !all && runs < tries; runs++) {
        outcome clean = run_chains("1000000", &chains);
        CONF_EQUAL(clean.failures, 0);
        all = true;
        for (int call = 0; call < COUNTED_CALLS_END; call++) {
            all &= atomic_load(&counted->calls[call]) != before[call];
        }
    }
    for (int call = 0; call < COUNTED_CALLS_END; call++) {
        if (atomic_load(&counted->calls[call]) == before[call]) {
            violation(chain_calls[call], "the scenario never makes the call %s", chain_calls[call]);
        }
        refuse(call, "1", 2);
        refuse(call, "2", 999);
        refuse(call, "1+", 2);
        refuse(call, "1+", 1);
        lose_at(call);
        must_be_clean("host_peers=all");
    }
    CONF_EQUAL(violations, 0);
}

int main(void)
{
    if (!counting_begin()) {
        return 1;
    }
    conf_begin("test_fault_sweep");
    data = conf_memory(large);
    got = conf_memory(2 * large);
    conf_pattern(data, large, 1);
    kernel_file = conf_kernel_file(kernel_source, &kernel_file_size);
    const struct CMUnitTest tests[] = {
        CONF_CASE(without_faults),
        CONF_CASE(calls_of_chains_fail),
        CONF_CASE(one_call_is_out_of_memory),
        CONF_CASE(one_call_fails),
        CONF_CASE(all_calls_from_one_on_are_out_of_memory),
        CONF_CASE(all_calls_from_one_on_fail),
        CONF_CASE(the_device_is_lost_at_a_call),
        CONF_CASE(one_call_says_that_the_device_is_lost),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(kernel_file);
    free(data);
    free(got);
    return failed;
}
