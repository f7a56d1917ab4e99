/* test_memory_debug.c - the option memory_debug: content of fresh and freed memory, and overruns.
 * test_memory_handles.c tests handles and leaks.
 *
 * Promise: memory_debug reports overruns and uses of freed memory, nothing in a correct program.
 *
 * Threads: the main one.
 * Locks: none.
 * Processes: in the placement process the workers, which are lost.
 * Always: a program without mistakes gets no finding.
 */
#include "debug.h"

/* Reads and writes by address, as a stale pointer does. */
static const char source[] = "#include <heddle/kernel.h>\n"
                             "HD_KERNEL(peek, HD_OUT(uint32_t, out), HD_VALUE(uint64_t, address))\n"
                             "{\n"
                             "    out[0] = *(volatile uint32_t *)(uintptr_t)address;\n"
                             "}\n"
                             "HD_KERNEL(poke, HD_INOUT(uint32_t, y), HD_VALUE(uint64_t, address), HD_VALUE(uint32_t, "
                             "value))\n"
                             "{\n"
                             "    y[0] = value;\n"
                             "    *(volatile uint8_t *)(uintptr_t)address = (uint8_t)value;\n"
                             "}\n";

/* A runtime with the option, and objects of the cases. */
typedef struct looker {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_kernel *peek, *poke;
} looker;

/* Skips the case if there is no compiler. */
static looker open_looker(void)
{
    static uint8_t *image;
    static size_t size;
    looker l = {.runtime = conf_open(DEBUG)};
    if (image == NULL) {
        image = conf_kernel_file(source, &size);
    }
    if (image == NULL) {
        conf_close(l.runtime);
        skip();
    }
    hd_module *module = NULL;
    CONF_OK(hd_module_load(l.runtime, image, size, &module));
    CONF_OK(hd_kernel_get(module, "peek", &l.peek));
    CONF_OK(hd_kernel_get(module, "poke", &l.poke));
    l.lane = conf_default_lane(l.runtime, 0);
    return l;
}

static uint32_t peek(const looker *l, hd_buffer *out, uint64_t address)
{
    uint32_t word = 0;
    hd_arg args[] = {hd_out(out), hd_u64(address)};
    CONF_OK(hd_launch(l->lane, l->peek, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, NULL));
    CONF_OK(hd_read(out, 0, &word, 4));
    return word;
}

/* Writes one byte, as part of an operation on `y`. */
static void poke(const looker *l, hd_buffer *y, uint64_t address, uint32_t value)
{
    hd_arg args[] = {hd_inout(y), hd_u64(address), hd_u32(value)};
    CONF_OK(hd_launch(l->lane, l->poke, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 3, NULL));
}

/* ---- programs without mistakes ---- */

static void correct_programs_are_told_nothing(void **state)
{
    (void)state;
    enum { count = 40 };
    hd_runtime *runtime = conf_open(DEBUG);
    int n = hd_device_count(runtime);
    conf_kernels k = conf_builtins(runtime);
    conf_random r = {7};
    static unsigned char in[60000], out[60000];
    leave_message();
    for (int round = 0; round < 3 * count; round++) {
        int d = (int)conf_below(&r, (uint64_t)n);
        hd_lane *lane = conf_default_lane(runtime, d);
        size_t bytes = round < 20 ? (size_t)round + 1 : 1 + conf_below(&r, sizeof in);
        hd_buffer *b = NULL;
        CONF_OK(hd_alloc(lane, bytes, &b));
        CONF_EQUAL(hd_buffer_size(b), bytes);
        CONF_EQUAL(hd_buffer_address(b) % 256, 0);
        conf_pattern(in, bytes, (uint64_t)round);
        CONF_OK(hd_write(b, 0, in, bytes)); /* every byte of it */
        CONF_OK(hd_read(b, 0, out, bytes));
        CONF_SAME(out, in, bytes);
        if (bytes >= 4) {
            CONF_OK(conf_fill(lane, k, b, 0, bytes / 4, 5, NULL));
        }
        hd_free(b); /* while the kernel may still run */
    }
    CONF_TRUE(message_is_left());
    for (int d = 0; d < n; d++) {
        hd_memory_stats s = stats_of(runtime, d);
        CONF_EQUAL(s.overruns, 0);
        CONF_EQUAL(s.double_frees, 0);
        CONF_EQUAL(s.live_bytes, 0);
        CONF_EQUAL(s.cached_bytes, 0);
        CONF_EQUAL(s.from_magazine + s.from_same_lane + s.from_finished + s.from_waited + s.from_fresh, s.allocations);
    }
    char *json = json_of(runtime);
    CONF_EQUAL(json_integer_at(json, "findings_count"), 0);
    free(json);
    conf_close(runtime);
    CONF_TRUE(message_is_left());
}

static void order_between_lanes_still_holds(void **state)
{
    (void)state;
    enum { words = 3000 };
    hd_runtime *runtime = conf_open(DEBUG);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *a = NULL, *b = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &a));
    CONF_OK(hd_lane_create(runtime, 0, &b));
    for (uint32_t i = 0; i < 40; i++) {
        hd_buffer *x = NULL, *y = NULL;
        CONF_OK(hd_alloc(a, words * 4, &x));
        CONF_OK(hd_alloc(b, words * 4 + i, &y));
        CONF_OK(conf_fill(a, k, x, 0, words, i, NULL));
        CONF_OK(conf_copy(b, k, y, 0, x, 0, words, NULL));
        hd_free(x);
        CONF_FILLED(y, 0, i, words * 4);
        hd_free(y);
    }
    CONF_EQUAL(stats_of(runtime, 0).overruns, 0);
    conf_close(runtime);
}

/* ---- content ---- */

static void fresh_memory_shows(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    hd_lane *lane = conf_default_lane(runtime, 0);
    const size_t sizes[] = {4, 1000, 4096, 3000000};
    for (int round = 0; round < 2; round++) { /* also memory that was used before */
        for (int i = 0; i < 4; i++) {
            hd_buffer *b = NULL;
            CONF_OK(hd_alloc(lane, sizes[i], &b));
            CONF_FILLED(b, 0, fresh_word, sizes[i]);
            CONF_OK(hd_fill(b, 0, 1, sizes[i], NULL));
            hd_free(b);
        }
    }
    float value;
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc(lane, 4, &b));
    CONF_OK(hd_read(b, 0, &value, 4));
    CONF_TRUE(value != value); /* not a number */
    hd_free(b);
    conf_close(runtime);
}

static void freed_memory_shows(void **state)
{
    (void)state;
    looker l = open_looker();
    hd_buffer *out = labelled(l.lane, 4, "out"), *b = labelled(l.lane, 4000, "stale"),
              *near = labelled(l.lane, 4000, "near");
    uint64_t address = hd_buffer_address(b);
    CONF_OK(hd_fill(b, 0, 0x1234, 4000, NULL));
    CONF_OK(hd_fill(near, 0, 0x5678, 4000, NULL));
    CONF_OK(hd_buffer_wait(b, HD_READ, 60 * CONF_SECOND));
    CONF_EQUAL(peek(&l, out, address), 0x1234);
    hd_free(b);
    /* it is done behind all work, not at once */
    while (peek(&l, out, address) != (uint32_t)freed_word || peek(&l, out, address + 3996) != (uint32_t)freed_word) {
        conf_sleep_ms(1);
    }
    CONF_FILLED(near, 0, 0x5678, 4000);
    hd_free(near);
    hd_free(out);
    conf_close(l.runtime);
}

static void held_memory_stays_as_it_is(void **state)
{
    (void)state;
    looker l = open_looker();
    hd_buffer *out = labelled(l.lane, 4, "out"), *b = labelled(l.lane, 4001, "held");
    uint64_t address = hd_buffer_address(b);
    hd_hold *hold = NULL;
    CONF_OK(hd_hold_create(l.runtime, &hold));
    CONF_OK(hd_hold_add(hold, b));
    CONF_OK(hd_fill(b, 0, 0x1234, 4000, NULL));
    hd_free(b);
    for (int i = 0; i < 20; i++) {
        hd_buffer *other = labelled(l.lane, 4001, "other");
        CONF_TRUE(hd_buffer_address(other) != address);
        hd_free(other);
        CONF_OK(hd_lane_wait(l.lane, 60 * CONF_SECOND));
    }
    /* a read of the buffer would wait for its fill, so the case can only read by address */
    while (peek(&l, out, address) == (uint32_t)fresh_word) {
        conf_sleep_ms(1);
    }
    CONF_EQUAL(peek(&l, out, address), 0x1234);
    poke(&l, out, address + 4001, 0x11); /* an overrun by work that uses the held address */
    CONF_OK(hd_lane_wait(l.lane, 60 * CONF_SECOND));
    CONF_EQUAL(stats_of(l.runtime, 0).overruns, 0);
    hd_hold_destroy(hold);
    CONF_EQUAL(stats_of(l.runtime, 0).overruns, 1);
    CONF_TRUE(strstr(hd_message(), "'held'") != NULL);
    while (peek(&l, out, address) != (uint32_t)freed_word) {
        conf_sleep_ms(1);
    }
    hd_free(out);
    conf_close(l.runtime);
}

/* ---- overruns ---- */

static void an_overrun_is_found(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    conf_kernels k = conf_builtins(runtime);
    int last = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, last);
    hd_buffer *good = labelled(lane, 400, "good"), *bad = labelled(lane, 400, "bad one");
    hd_arg args[] = {hd_out(bad), hd_u64(103), hd_u32(9)}; /* declares 400 bytes, writes 412 */
    CONF_OK(hd_launch(lane, k.fill, conf_grid(103, 128), conf_dims(128, 1, 1), 0, args, 3, NULL));
    leave_message();
    hd_free(good);
    CONF_TRUE(message_is_left());
    hd_free(bad);
    CONF_FAILS_WITH(HD_ERROR_ACCESS, HD_ERROR_ACCESS, "'bad one'");
    CONF_TRUE(strstr(hd_message(), "12 from offset 400 to 411") != NULL);
    CONF_TRUE(strstr(hd_message(), "400 bytes") != NULL && strstr(hd_message(), "+0x") != NULL);
    hd_memory_stats s = stats_of(runtime, last);
    CONF_EQUAL(s.overruns, 1);
    char *json = json_of(runtime);
    CONF_EQUAL(json_count_at(json, "findings"), 1);
    CONF_TRUE(json_text_is(json, "findings.0.kind", "overrun"));
    CONF_EQUAL(json_integer_at(json, "findings.0.device"), last);
    const char *text = json_at(json, "findings.0.message");
    CONF_TRUE(text != NULL && strstr(text, "'bad one'") != NULL);
    free(json);
    conf_close(runtime);
}

/* Every byte next to the content, for sizes with any end. */
static void every_byte_beside_a_buffer_is_watched(void **state)
{
    (void)state;
    looker l = open_looker();
    const size_t sizes[] = {4, 5, 6, 7, 255, 256, 257, 4096, 1000003};
    uint64_t found = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t offsets[] = {
            -256, -1, (int64_t)sizes[i], (int64_t)sizes[i] + 1, (int64_t)sizes[i] + 3, (int64_t)sizes[i] + 255};
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++) {
            char expected[64];
            hd_buffer *b = labelled(l.lane, sizes[i], "watched");
            poke(&l, b, hd_buffer_address(b) + (uint64_t)offsets[o], 0x42);
            hd_free(b);
            snprintf(expected, sizeof expected, "1 from offset %lld to", (long long)offsets[o]);
            CONF_FAILS_WITH(HD_ERROR_ACCESS, HD_ERROR_ACCESS, expected);
            CONF_EQUAL(stats_of(l.runtime, 0).overruns, ++found);
        }
        hd_buffer *b = labelled(l.lane, sizes[i], "inside");
        leave_message();
        poke(&l, b, hd_buffer_address(b) + sizes[i] - 1, 0x42);
        poke(&l, b, hd_buffer_address(b), 0x42);
        hd_free(b);
        CONF_TRUE(message_is_left());
    }
    conf_close(l.runtime);
}

/* hd_free waits for work on the buffer, so that it finds an overrun by that work. */
static void work_in_flight_is_waited_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    hd_lane *lane = NULL;
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    hd_buffer *b = labelled(lane, 64, "late");
    CONF_OK(hd_fill(b, 0, 0, 64, NULL));
    conf_slow_run(&slow, lane, b, 0, 50, NULL);
    hd_ticket ticket;
    hd_arg args[] = {hd_inout(b), hd_u64(17), hd_u32(1)};
    CONF_OK(hd_launch(lane, slow.kernels.fill, conf_grid(17, 128), conf_dims(128, 1, 1), 0, args, 3, &ticket));
    hd_free(b);
    CONF_TRUE(hd_done(ticket));
    CONF_FAILS_WITH(HD_ERROR_ACCESS, HD_ERROR_ACCESS, "4 from offset 64 to 67");
    conf_slow_free(&slow);
    conf_close(runtime);
}

static void the_wait_has_a_limit(void **state)
{
    (void)state;
    char settings[64];
    snprintf(settings, sizeof settings, DEBUG " transfer_timeout=%d",
             1000 * CONF_SLOWNESS); /* the limit applies to other transfers, too */
    hd_runtime *runtime = conf_open(settings);
    hd_lane *lane = NULL;
    wk_kernels k = wk_load(runtime);
    if (conf_is_inline(runtime)) { /* a kernel runs in the call that submits it */
        k.module = NULL;
    }
    WK_NEED_KERNELS(runtime, k);
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    wk_warm(runtime, 0, k);
    hd_buffer *b = labelled(lane, 4096, "in use"), *other = NULL;
    wk_gate gate;
    hd_ticket ticket;
    wk_gate_shut(&gate, runtime, lane, k);
    hd_arg args[] = {hd_inout(b), hd_u64(1026)}; /* behind the gate, and 2 words too many */
    CONF_OK(hd_launch(lane, k.add_one, conf_grid(1026, 128), conf_dims(128, 1, 1), 0, args, 2, &ticket));
    leave_message();
    hd_free(b);
    CONF_TRUE(!hd_done(ticket));
    CONF_TRUE(message_is_left()); /* the check could find nothing yet */
    CONF_OK(hd_alloc(lane, 4096, &other));
    wk_gate_open(&gate);
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_OK(hd_wait(gate.ticket, 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(other, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_FILLED(other, 0, fresh_word, 4096);
    hd_free(other);
    hd_free(gate.pinned);
    while (stats_of(runtime, 0).overruns != 1) { /* another thread finds it */
        conf_sleep_ms(1);
    }
    char *json = json_of(runtime);
    CONF_TRUE(strstr(json, "'in use'") != NULL);
    free(json);
    conf_close(runtime);
}

/* ---- lost devices ---- */

static void a_lost_device_is_left_alone(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(DEBUG);
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP, .label = "kept"};
    hd_buffer *b = labelled(lane, 5000, "lost"), *kept = NULL, *stays = labelled(lane, 100, "also lost");
    static unsigned char in[5001], out[5001];
    CONF_OK(hd_alloc_with(lane, sizeof in, &keep, &kept));
    conf_pattern(in, sizeof in, 3);
    CONF_OK(hd_write(kept, 0, in, sizeof in));
    hd_ticket ticket;
    CONF_OK(hd_buffer_save(kept, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    wk_lose_now(runtime, 0);
    leave_message();
    hd_free(b);
    CONF_TRUE(message_is_left());
    CONF_OK(hd_device_restart(runtime, 0));
    CONF_OK(hd_read(kept, 0, out, sizeof out));
    CONF_SAME(out, in, sizeof in);
    leave_message();
    hd_free(stays);
    hd_free(kept); /* its guards are new, and intact */
    CONF_TRUE(message_is_left());
    CONF_EQUAL(stats_of(runtime, 0).overruns, 0);
    b = labelled(lane, 5000, "again");
    CONF_FILLED(b, 0, fresh_word, 5000);
    conf_kernels k = conf_builtins(runtime);
    hd_arg args[] = {hd_out(b), hd_u64(1251), hd_u32(9)};
    CONF_OK(hd_launch(lane, k.fill, conf_grid(1251, 128), conf_dims(128, 1, 1), 0, args, 3, NULL));
    hd_free(b);
    CONF_FAILS_WITH(HD_ERROR_ACCESS, HD_ERROR_ACCESS, "'again'");
    CONF_EQUAL(stats_of(runtime, 0).overruns, 1);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_debug");
    const struct CMUnitTest tests[] = {
        CONF_CASE(correct_programs_are_told_nothing),
        CONF_CASE(order_between_lanes_still_holds),
        CONF_CASE(fresh_memory_shows),
        CONF_CASE(freed_memory_shows),
        CONF_CASE(held_memory_stays_as_it_is),
        CONF_CASE(an_overrun_is_found),
        CONF_CASE(every_byte_beside_a_buffer_is_watched),
        CONF_CASE(work_in_flight_is_waited_for),
        CONF_CASE(the_wait_has_a_limit),
        CONF_CASE(a_lost_device_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
