/* test_globals.c - variables of modules as buffers: set, read, used by kernels, ordered with
 * launches that do not name them.
 *
 * Promise: A variable is a buffer: each launch of its module reads exactly earlier writes.
 *
 * The tool that HEDDLE_TOOL names compiles the kernels; without it the test skips all but the
 * refusals.
 *
 * A gated kernel proves the order. It runs until the program opens its gate, and reads the
 * variables only then. Work that must wait for it stays unfinished for a while, and then finds the
 * right value.
 *
 * Threads: the main one, and some that launch, ask and free at the same time.
 * Locks: none.
 */
#include "workers.h"

static const char source[] = "#include <heddle/kernel.h>\n"
                             "#if HD_KERNEL_GPU\n"
                             "#define NOW(x) (x)\n"
                             "#else\n"
                             "#define NOW(x) (*(volatile uint32_t *)&(x))\n"
                             "#endif\n"
                             "HD_GLOBAL_CONSTANT uint32_t factor[4] = {1, 2, 3, 4};\n"
                             "HD_GLOBAL uint32_t count;\n"
                             "HD_GLOBAL uint64_t pair[2] = {5, 6};\n"
                             "HD_CONSTANT uint32_t own[2] = {7, 8};\n"
                             "HD_KERNEL(scale, HD_OUT(uint32_t, y), HD_VALUE(uint32_t, n))\n"
                             "{\n"
                             "    uint32_t i = (uint32_t)hd_global_x();\n"
                             "    if (i < n) {\n"
                             "        y[i] = factor[i % 4] * own[0];\n"
                             "    }\n"
                             "}\n"
                             "HD_KERNEL(bump, HD_VALUE(uint32_t, by))\n"
                             "{\n"
                             "    if (hd_global_x() == 0) {\n"
                             "        count += by;\n"
                             "        pair[1]++;\n"
                             "    }\n"
                             "}\n"
                             "HD_KERNEL(named, HD_INOUT(uint32_t, x), HD_OUT(uint32_t, y))\n"
                             "{\n"
                             "    x[0] += 100;\n"
                             "    y[0] = NOW(count) + own[1];\n"
                             "}\n"
                             "HD_KERNEL(gated, HD_INOUT(uint32_t, gate), HD_OUT(uint32_t, y))\n"
                             "{\n"
                             "    volatile uint32_t *flags = gate;\n"
                             "    flags[0] = 1;\n"
                             "    while (flags[1] == 0) {\n"
                             "    }\n"
                             "    y[0] = NOW(factor[0]);\n"
                             "    count += 1;\n"
                             "}\n"
                             "HD_KERNEL(opens, HD_INOUT(uint32_t, gate), HD_OUT(uint32_t, y))\n"
                             "{\n"
                             "    ((volatile uint32_t *)gate)[1] = 1;\n"
                             "    y[0] = factor[1];\n"
                             "}\n";

/* Time in which a forbidden event gets the chance to happen. */
#define A_WHILE (30 * CONF_MILLISECOND)

typedef struct things {
    hd_runtime *runtime;
    hd_lane *lane, *other; /* on device 0 */
    hd_module *module;
    hd_kernel *scale, *bump, *named, *gated, *opens;
    hd_buffer *y, *z;
} things;

static uint8_t *image;
static size_t image_bytes;

/* False: there is no compiler, and nothing is open. */
static bool begin(things *t, const char *settings)
{
    if (!image && !(image = conf_kernel_file(source, &image_bytes))) {
        return false;
    }
    memset(t, 0, sizeof *t);
    t->runtime = conf_open(settings);
    t->lane = conf_default_lane(t->runtime, 0);
    CONF_OK(hd_lane_create(t->runtime, 0, &t->other));
    CONF_OK(hd_module_load(t->runtime, image, image_bytes, &t->module));
    CONF_OK(hd_kernel_get(t->module, "scale", &t->scale));
    CONF_OK(hd_kernel_get(t->module, "bump", &t->bump));
    CONF_OK(hd_kernel_get(t->module, "named", &t->named));
    CONF_OK(hd_kernel_get(t->module, "gated", &t->gated));
    CONF_OK(hd_kernel_get(t->module, "opens", &t->opens));
    CONF_OK(hd_alloc(t->lane, 64, &t->y));
    CONF_OK(hd_alloc(t->lane, 64, &t->z));
    return true;
}

#define BEGIN(t, settings)                                                                                             \
    do {                                                                                                               \
        if (!begin((t), (settings))) {                                                                                 \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

static hd_buffer *global_on(things *t, int device, const char *name)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_module_get_global(t->module, device, name, &b));
    CONF_TRUE(b != NULL);
    return b;
}

static void run(hd_lane *lane, hd_kernel *kernel, const hd_arg *args, size_t n)
{
    CONF_OK(hd_launch(lane, kernel, conf_dims(1, 1, 1), conf_dims(8, 1, 1), 0, args, n, NULL));
}

static void run_scale(hd_lane *lane, const things *t, hd_buffer *y)
{
    hd_arg args[] = {hd_out(y), hd_u32(4)};
    run(lane, t->scale, args, 2);
}

static void run_bump(hd_lane *lane, const things *t, uint32_t by)
{
    hd_arg args[] = {hd_u32(by)};
    run(lane, t->bump, args, 1);
}

/* Launches a kernel that waits until its gate is open. */
static void shut(wk_gate *gate, const things *t, hd_lane *lane, hd_buffer *y)
{
    void *flags = NULL;
    CONF_OK(hd_alloc_host(t->runtime, 64, &gate->pinned));
    CONF_OK(hd_map(gate->pinned, HD_READ_WRITE, &flags));
    gate->flags = flags;
    memset(flags, 0, 64);
    hd_arg args[] = {hd_inout(gate->pinned), hd_out(y)};
    CONF_OK(hd_launch(lane, t->gated, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, &gate->ticket));
    while (__atomic_load_n(&gate->flags[0], __ATOMIC_ACQUIRE) == 0) {
        hd_done(gate->ticket); /* with placement inline this thread submits it */
        hd_lane_wait(lane, 0);
        conf_sleep_ms(1);
    }
}

static void expect_word(hd_buffer *b, size_t index, uint32_t wanted, int line)
{
    uint32_t got = ~wanted;
    conf_ok_at(hd_read(b, index * 4, &got, 4), "hd_read", __FILE__, line);
    if (got != wanted) {
        conf_fail_at(__FILE__, line, "word %zu is %u, not %u", index, got, wanted);
    }
}
#define WORD(b, index, wanted) expect_word((b), (index), (wanted), __LINE__)

static void a_variable_is_a_buffer(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    hd_buffer *factor = global_on(&t, 0, "factor"), *count = global_on(&t, 0, "count"),
              *pair = global_on(&t, 0, "pair");
    CONF_EQUAL(hd_buffer_size(factor), 16);
    CONF_EQUAL(hd_buffer_size(count), 4);
    CONF_EQUAL(hd_buffer_size(pair), 16);
    CONF_EQUAL(hd_buffer_device(factor), 0);
    CONF_TRUE(hd_buffer_address(factor) != 0 && hd_buffer_address(factor) != hd_buffer_address(count));
    CONF_TRUE(global_on(&t, 0, "factor") == factor && global_on(&t, 0, "count") == count);
    WORD(factor, 2, 3); /* the initial value in the source */
    WORD(count, 0, 0);
    WORD(pair, 0, 5);

    const uint32_t mine[] = {10, 20, 30, 40};
    CONF_OK(hd_write(factor, 0, mine, sizeof mine));
    run_scale(t.lane, &t, t.y);
    WORD(t.y, 0, 70);
    WORD(t.y, 3, 280);
    CONF_OK(hd_fill(factor, 4, 9, 8, NULL));
    run_scale(t.other, &t, t.z);
    WORD(t.z, 0, 70);
    WORD(t.z, 2, 63);

    run_bump(t.lane, &t, 5);
    run_bump(t.other, &t, 6);
    WORD(count, 0, 11);
    WORD(pair, 2, 8);
    CONF_OK(hd_copy(t.y, 0, count, 0, 4, NULL));
    WORD(t.y, 0, 11);
    CONF_OK(hd_copy(count, 0, t.y, 12, 4, NULL));
    WORD(count, 0, 280);

    /* as an argument, in addition to the launch's own use */
    hd_arg args[] = {hd_inout(count), hd_out(t.y)};
    CONF_OK(hd_launch(t.lane, t.named, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, NULL));
    WORD(t.y, 0, 388);
    WORD(count, 0, 380);
    CONF_OK(hd_buffer_set_label(count, "a label"));
    conf_close(t.runtime);
}

static void a_write_changes_later_launches_only(void **state)
{
    (void)state;
    for (int seed = 0; seed < 4; seed++) {
        things t;
        char settings[64];
        snprintf(settings, sizeof settings, seed ? "host_schedule=%d" : "", seed);
        BEGIN(&t, settings);
        hd_buffer *factor = global_on(&t, 0, "factor");
        const uint32_t old[] = {50, 51, 52, 53}, new[] = {60, 61, 62, 63};
        CONF_OK(hd_write(factor, 0, old, sizeof old));
        run_scale(t.lane, &t, t.z); /* loads the kernel before a gate is shut */
        WORD(t.z, 0, 350);
        wk_gate gate;
        shut(&gate, &t, t.lane, t.y);
        CONF_OK(hd_write(factor, 0, new, sizeof new));
        run_scale(t.other, &t, t.z);
        CONF_FAILS(hd_buffer_wait(factor, HD_READ, A_WHILE), HD_ERROR_TIMEOUT);
        CONF_TRUE(!hd_done(gate.ticket));
        wk_gate_open(&gate);
        WORD(t.y, 0, 50);
        WORD(t.z, 0, 420);
        WORD(factor, 3, 63);
        conf_close(t.runtime);
    }
}

static void earlier_launches_count_too(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    /* the code is loaded, and the device was asked before */
    CONF_TRUE(global_on(&t, 0, "pair") != NULL);
    run_bump(t.other, &t, 1);
    CONF_OK(hd_lane_wait(t.other, CONF_SECOND * 60));
    wk_gate gate;
    shut(&gate, &t, t.lane, t.y);
    hd_buffer *count = global_on(&t, 0, "count"), *factor = global_on(&t, 0, "factor");
    CONF_FAILS(hd_buffer_wait(count, HD_READ, A_WHILE), HD_ERROR_TIMEOUT);
    CONF_FAILS(hd_buffer_wait(factor, HD_WRITE, A_WHILE), HD_ERROR_TIMEOUT);
    const uint32_t zeros[4] = {0};
    CONF_OK(hd_write(factor, 0, zeros, sizeof zeros));
    CONF_FAILS(hd_buffer_wait(factor, HD_READ, A_WHILE), HD_ERROR_TIMEOUT);
    wk_gate_open(&gate);
    WORD(count, 0, 2);
    WORD(t.y, 0, 1);
    WORD(factor, 0, 0);
    conf_close(t.runtime);
}

static void readers_of_a_constant_run_together(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    CONF_EQUAL(hd_buffer_size(global_on(&t, 0, "factor")), 16);
    hd_arg first[] = {hd_inout(t.y), hd_out(t.z)};
    run(t.other, t.opens, first, 2); /* once before: loads the code */
    CONF_OK(hd_lane_wait(t.other, CONF_SECOND * 60));
    wk_gate gate;
    shut(&gate, &t, t.lane, t.y);
    hd_buffer *out = NULL;
    CONF_OK(hd_alloc(t.other, 64, &out));
    /* both launches use only the constant */
    hd_arg second[] = {hd_inout(t.z), hd_out(out)};
    run(t.other, t.opens, second, 2);
    CONF_OK(hd_lane_wait(t.other, CONF_SECOND * 60));
    WORD(out, 0, 2);
    CONF_TRUE(!hd_done(gate.ticket));
    wk_gate_open(&gate);
    CONF_OK(hd_wait(gate.ticket, CONF_SECOND * 60));
    conf_close(t.runtime);
}

static void writers_of_a_variable_take_turns(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, "host_schedule=7");
    hd_buffer *count = global_on(&t, 0, "count");
    enum { ROUNDS = 100 };
    for (uint32_t i = 0; i < ROUNDS; i++) {
        run_bump(i % 2 ? t.lane : t.other, &t, 1);
    }
    WORD(count, 0, ROUNDS);
    conf_close(t.runtime);
}

static void each_device_has_its_own(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    CONF_NEED_DEVICES(t.runtime, 2);
    hd_lane *there = conf_default_lane(t.runtime, 1);
    hd_buffer *here = global_on(&t, 0, "factor"), *far = global_on(&t, 1, "factor"), *y = NULL;
    CONF_TRUE(here != far);
    CONF_EQUAL(hd_buffer_device(far), 1);
    CONF_OK(hd_alloc(there, 64, &y));
    CONF_OK(hd_fill(here, 0, 3, 16, NULL));
    CONF_OK(hd_fill(far, 0, 4, 16, NULL));
    run_scale(t.lane, &t, t.y);
    run_scale(there, &t, y);
    WORD(t.y, 0, 21);
    WORD(y, 0, 28);
    CONF_OK(hd_copy(here, 0, far, 0, 16, NULL));
    run_scale(t.lane, &t, t.y);
    WORD(t.y, 1, 28);
    CONF_OK(hd_fill(y, 0, 6, 16, NULL));
    CONF_OK(hd_copy(here, 4, y, 4, 8, NULL));
    WORD(here, 0, 4);
    WORD(here, 1, 6);
    /* kernels can use only variables of their own device */
    hd_arg args[] = {hd_inout(here), hd_out(y)};
    CONF_FAILS_WITH(hd_launch(there, t.named, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, NULL),
                    HD_ERROR_UNREACHABLE, "variable of a module");
    conf_close(t.runtime);
}

static void handles_end(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    hd_buffer *count = global_on(&t, 0, "count");
    run_bump(t.lane, &t, 3);
    CONF_OK(hd_free(count));
    CONF_FAILS(hd_free(count), HD_ERROR_HANDLE);
    uint32_t got = 0;
    CONF_FAILS(hd_read(count, 0, &got, 4), HD_ERROR_HANDLE);
    run_bump(t.lane, &t, 4);
    hd_buffer *again = global_on(&t, 0, "count");
    CONF_TRUE(again != count);
    WORD(again, 0, 7); /* the variable kept its value */

    /* an unload with work in flight: submitted work finishes, and the handle is stale */
    wk_gate gate;
    hd_buffer *factor = global_on(&t, 0, "factor");
    shut(&gate, &t, t.lane, t.y);
    CONF_OK(hd_fill(factor, 0, 77, 16, NULL));
    CONF_OK(hd_copy(t.z, 0, factor, 0, 16, NULL));
    CONF_OK(hd_module_unload(t.module));
    CONF_FAILS(hd_write(factor, 0, &got, 4), HD_ERROR_HANDLE);
    CONF_FAILS(hd_free(factor), HD_ERROR_HANDLE);
    CONF_FAILS(hd_free(again), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_get_global(t.module, 0, "factor", &factor), HD_ERROR_HANDLE);
    hd_arg args[] = {hd_u32(1)};
    CONF_FAILS(hd_launch(t.lane, t.bump, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, NULL), HD_ERROR_HANDLE);
    wk_gate_open(&gate);
    WORD(t.y, 0, 1);
    WORD(t.z, 3, 77);

    /* another module of the same image uses its own variables */
    CONF_OK(hd_module_load(t.runtime, image, image_bytes, &t.module));
    WORD(global_on(&t, 0, "factor"), 0, 1);
    conf_close(t.runtime);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    hd_buffer *const untouched = (hd_buffer *)(uintptr_t)0x1234;
    hd_buffer *b = untouched;
    CONF_FAILS(hd_module_get_global(NULL, 0, "count", &b), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_get_global(t.module, 0, NULL, &b), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_get_global(t.module, 0, "count", NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_get_global(t.module, -1, "count", &b), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_module_get_global(t.module, hd_device_count(t.runtime), "count", &b), HD_ERROR_NO_DEVICE);
    CONF_FAILS_WITH(hd_module_get_global(t.module, 0, "absent", &b), HD_ERROR_NOT_FOUND, "count");
    CONF_TRUE(strstr(hd_message(), "factor") != NULL && strstr(hd_message(), "pair") != NULL);
    CONF_FAILS(hd_module_get_global(t.module, 0, "", &b), HD_ERROR_NOT_FOUND);
    CONF_FAILS(hd_module_get_global(t.module, 0, "own", &b), HD_ERROR_NOT_FOUND);
    CONF_FAILS(hd_module_get_global(t.module, 0, "scale", &b), HD_ERROR_NOT_FOUND);
    char *longest = conf_memory(10000);
    memset(longest, 'x', 9999);
    longest[9999] = 0;
    CONF_FAILS(hd_module_get_global(t.module, 0, longest, &b), HD_ERROR_NOT_FOUND);
    free(longest);
    hd_module *builtin = NULL;
    CONF_OK(hd_module_get_builtin(t.runtime, &builtin));
    CONF_FAILS_WITH(hd_module_get_global(builtin, 0, "count", &b), HD_ERROR_NOT_FOUND, "HD_GLOBAL");
    CONF_TRUE(b == untouched);

    hd_buffer *count = global_on(&t, 0, "count");
    uint32_t two[2] = {1, 2};
    CONF_FAILS(hd_write(count, 0, two, sizeof two), HD_ERROR_RANGE);
    hd_hold *hold = NULL;
    CONF_OK(hd_hold_create(t.runtime, &hold));
    CONF_FAILS_WITH(hd_hold_add(hold, count), HD_ERROR_UNSUPPORTED, "variable of a module");
    void *mapped = NULL;
    CONF_FAILS(hd_map(count, HD_READ, &mapped), HD_ERROR_ACCESS);
    CONF_FAILS(hd_buffer_save(count, NULL), HD_ERROR_ARGUMENT);
    /* a launch with a mistake of its own still fails with its own message */
    hd_arg args[] = {hd_u64(1)};
    CONF_FAILS_WITH(hd_launch(t.lane, t.bump, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, NULL),
                    HD_ERROR_ARGUMENT, "bump");
    CONF_FAILS(hd_launch(t.lane, t.bump, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, NULL, 1, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_launch(t.lane, t.bump, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_launch(t.lane, t.bump, conf_dims(0, 1, 1), conf_dims(1, 1, 1), 0, args, 1, NULL), HD_ERROR_ARGUMENT);
    WORD(count, 0, 0);
    conf_close(t.runtime);
}

/* No report lists variables: the memory belongs to the module. */
static bool count_block(void *context, const hd_memory_block *block)
{
    (void)block;
    ++*(int *)context;
    return true;
}

static void no_report_has_them(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, "memory_debug=on");
    int before = 0, after = 0;
    hd_memory_stats stats = {.size = sizeof stats}, later = {.size = sizeof later};
    CONF_OK(hd_memory_each(t.runtime, count_block, &before));
    CONF_OK(hd_memory_get_stats(t.runtime, 0, &stats));
    hd_buffer *count = global_on(&t, 0, "count");
    CONF_TRUE(global_on(&t, 0, "factor") != NULL);
    CONF_OK(hd_free(count));
    CONF_OK(hd_memory_each(t.runtime, count_block, &after));
    CONF_OK(hd_memory_get_stats(t.runtime, 0, &later));
    CONF_EQUAL(after, before);
    CONF_EQUAL(later.live_bytes, stats.live_bytes);
    conf_close(t.runtime);
}

enum { LAUNCHES = 300 };

typedef struct racer {
    things *t;
    atomic_bool *end;
} racer;

static void *ask_and_free(void *context)
{
    racer *r = context;
    while (!atomic_load(r->end)) {
        hd_buffer *b = NULL;
        uint32_t got;
        CONF_OK(hd_module_get_global(r->t->module, 0, "pair", &b));
        CONF_OK(hd_read(b, 0, &got, 4));
        CONF_EQUAL(got, 5);
        CONF_OK(hd_free(b));
    }
    return NULL;
}

static void launches_beside_calls_that_ask(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    atomic_bool end = false;
    racer r = {&t, &end};
    hd_buffer *count = global_on(&t, 0, "count");
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, ask_and_free, &r), 0);
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        run_bump(i % 3 ? t.lane : t.other, &t, 1);
    }
    atomic_store(&end, true);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    WORD(count, 0, LAUNCHES);
    conf_close(t.runtime);
}

static void a_restart_begins_anew(void **state)
{
    (void)state;
    things t;
    BEGIN(&t, NULL);
    if (!conf_is_process(t.runtime)) {
        conf_close(t.runtime);
        skip();
    }
    hd_buffer *factor = global_on(&t, 0, "factor"), *count = global_on(&t, 0, "count");
    CONF_OK(hd_fill(factor, 0, 9, 16, NULL));
    run_bump(t.lane, &t, 9);
    WORD(factor, 0, 9);
    WORD(count, 0, 9);
    wk_lose_now(t.runtime, 0);
    uint32_t got = 0;
    CONF_FAILS(hd_read(factor, 0, &got, 4), HD_ERROR_DEVICE_LOST);
    hd_buffer *b = NULL;
    CONF_FAILS(hd_module_get_global(t.module, 0, "factor", &b), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_device_restart(t.runtime, 0));
    CONF_FAILS(hd_read(factor, 0, &got, 4), HD_ERROR_DEVICE_LOST); /* like every older buffer */
    CONF_OK(hd_alloc(t.lane, 64, &b));
    run_scale(t.lane, &t, b); /* which needs no older variable */
    WORD(b, 3, 28);
    run_bump(t.lane, &t, 2);
    hd_buffer *anew = global_on(&t, 0, "count");
    WORD(anew, 0, 2);
    WORD(global_on(&t, 0, "factor"), 1, 2);
    CONF_OK(hd_free(factor));
    CONF_OK(hd_free(count));
    run_bump(t.lane, &t, 2);
    WORD(anew, 0, 4);
    conf_close(t.runtime);
}

int main(void)
{
    conf_begin("test_globals");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_variable_is_a_buffer),
        CONF_CASE(a_write_changes_later_launches_only),
        CONF_CASE(earlier_launches_count_too),
        CONF_CASE(readers_of_a_constant_run_together),
        CONF_CASE(writers_of_a_variable_take_turns),
        CONF_CASE(each_device_has_its_own),
        CONF_CASE(handles_end),
        CONF_CASE(what_is_wrong_is_refused),
        CONF_CASE(no_report_has_them),
        CONF_CASE(launches_beside_calls_that_ask),
        CONF_CASE(a_restart_begins_anew),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(image);
    return failed;
}
