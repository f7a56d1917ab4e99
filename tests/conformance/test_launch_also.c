/* test_launch_also.c - buffers that a launch uses without a parameter for them (hd_arg_implicit),
 * and pointers that are bare addresses (hd_address).
 *
 * Promise: hd_arg_implicit orders a launch like its arguments do; a bare address orders nothing.
 *
 * Cases with structures that contain pointers need a compiler (HEDDLE_TOOL).
 * Threads: the main one.
 * Locks: none.
 * Always: a refused launch submits nothing.
 */
#include "claim_scene.h"

static hd_arg address_of(hd_buffer *buffer, size_t offset)
{
    return hd_address(hd_buffer_address(buffer) + offset);
}

/* y[0..n) = value; the kernel gets only an address. */
static hd_status fill_at(scene *s, hd_lane *lane, hd_buffer *y, size_t offset, uint64_t n, uint32_t value,
                         hd_ticket *out)
{
    hd_arg args[] = {address_of(y, offset), hd_u64(n), hd_u32(value), hd_arg_implicit(hd_out_range(y, offset, n * 4))};
    return hd_launch(lane, s->k.fill, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 4, out);
}

/* Launches y[0..n) = x[0..n) at an offset in both. The source is the last argument. */
static hd_status copy_at(scene *s, hd_lane *lane, hd_buffer *y, hd_buffer *x, size_t offset, uint64_t n, hd_ticket *out)
{
    hd_arg args[] = {address_of(y, offset), address_of(x, offset), hd_u64(n),
                     hd_arg_implicit(hd_out_range(y, offset, n * 4)), hd_arg_implicit(hd_in_range(x, offset, n * 4))};
    return hd_launch(lane, s->k.copy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 5, out);
}

/* ---- order ---- */

/* Random fills and copies of parts, with arguments or addresses, in several lanes. The result
 * equals that of the same operations one after the other. */
static void run_random(const char *settings, uint64_t seed)
{
    scene s = begin(settings);
    enum { buffers = 5, lanes = 3, steps = 400 };
    hd_buffer *of[buffers] = {s.device, s.pinned, s.unified};
    hd_lane *lane[lanes] = {s.lane};
    uint32_t *model[buffers], *got = conf_memory(bytes);
    conf_random r = {seed};
    for (int i = 1; i < lanes; i++) {
        CONF_OK(hd_lane_create(s.runtime, 0, &lane[i]));
    }
    for (int i = 0; i < buffers; i++) {
        if (i > 2) {
            CONF_OK(hd_alloc(s.lane, bytes, &of[i]));
            CONF_OK(hd_fill(of[i], 0, 1, bytes, NULL));
        }
        model[i] = conf_memory(bytes);
        for (int j = 0; j < words; j++) {
            model[i][j] = 1;
        }
    }
    for (uint32_t step = 0; step < steps; step++) {
        size_t y = conf_below(&r, buffers), x = conf_below(&r, buffers), at = conf_below(&r, words - 1);
        uint64_t n = 1 + conf_below(&r, words - at);
        hd_lane *l = lane[conf_below(&r, lanes)];
        if (x == y || conf_chance(&r, 30)) {
            CONF_OK(conf_chance(&r, 70) ? fill_at(&s, l, of[y], at * 4, n, step, NULL)
                                        : conf_fill(l, s.k, of[y], at * 4, n, step, NULL));
            for (uint64_t i = 0; i < n; i++) {
                model[y][at + i] = step;
            }
            continue;
        }
        CONF_OK(conf_chance(&r, 70)   ? copy_at(&s, l, of[y], of[x], at * 4, n, NULL)
                : conf_chance(&r, 50) ? hd_copy(of[y], at * 4, of[x], at * 4, n * 4, NULL)
                                      : conf_copy(l, s.k, of[y], at * 4, of[x], at * 4, n, NULL));
        memcpy(model[y] + at, model[x] + at, n * 4);
        if (conf_chance(&r, 5)) {
            CONF_HOLDS(of[y], 0, model[y], bytes);
        }
    }
    for (int i = 0; i < buffers; i++) {
        CONF_OK(hd_read(of[i], 0, got, bytes));
        CONF_SAME(got, model[i], bytes);
        free(model[i]);
        if (i > 2) {
            CONF_OK(hd_free(of[i]));
        }
    }
    free(got);
    end(&s);
}

static void order_is_that_of_arguments(void **state)
{
    (void)state;
    static const char *const settings[] = {NULL, "host_schedule=17", "memory_debug=on", "launch_wait=on"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        run_random(settings[i], 100 + i);
    }
}

static void other_devices_are_waited_for(void **state)
{
    (void)state;
    scene s = begin("host_schedule=9");
    int last = hd_device_count(s.runtime) - 1;
    hd_lane *far = conf_default_lane(s.runtime, last);
    if (!conf_reaches(s.runtime, last, 0)) {
        end(&s);
        skip();
    }
    hd_buffer *there = NULL;
    CONF_OK(hd_alloc(far, bytes, &there));
    for (uint32_t i = 0; i < 40; i++) {
        CONF_OK(fill_at(&s, s.lane, s.device, 0, words, i, NULL));
        CONF_OK(copy_at(&s, far, there, s.device, 0, words, NULL));
        CONF_FILLED(there, 0, i, bytes);
    }
    CONF_OK(hd_free(there));
    end(&s);
}

/* Frees the buffer of a launch under way: the memory stays until the launch ends. */
static void memory_stays_until_the_launch_has_ended(void **state)
{
    (void)state;
    scene s = begin("host_schedule=21");
    for (uint32_t i = 0; i < 100; i++) {
        hd_buffer *x = NULL, *other = NULL;
        CONF_OK(hd_alloc(s.lane, bytes, &x));
        CONF_OK(fill_at(&s, s.lane, x, 0, words, i, NULL));
        CONF_OK(copy_at(&s, s.lane, s.device, x, 0, words, NULL));
        CONF_OK(hd_free(x));
        CONF_OK(hd_alloc(s.lane, bytes, &other));
        CONF_OK(conf_fill(s.lane, s.k, other, 0, words, 12345, NULL));
        CONF_FILLED(s.device, 0, i, bytes);
        CONF_OK(hd_free(other));
    }
    end(&s);
}

/* ---- failures ---- */

static void a_failure_of_what_it_reads_is_inherited(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *claim = NULL;
    hd_arg use = hd_out(s.device);
    hd_ticket ticket;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &claim));
    CONF_OK(copy_at(&s, s.lane, s.pinned, s.device, 0, words, &ticket));
    CONF_OK(hd_claim_end(claim, HD_ERROR_SYSTEM));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED);
    CONF_OK(hd_lane_reset(s.lane, HD_FOREVER));
    CONF_FAILS(copy_at(&s, s.lane, s.unified, s.device, 0, words, NULL), HD_ERROR_FAILED);
    /* which makes the content valid again */
    CONF_OK(fill_at(&s, s.lane, s.device, 0, words, 4, NULL));
    CONF_OK(copy_at(&s, s.lane, s.pinned, s.device, 0, words, NULL));
    CONF_FILLED(s.pinned, 0, 4, bytes);
    end(&s);
}

/* ---- refusals ---- */

static void try_also(scene *s, hd_arg also, hd_status status, const char *word, int line)
{
    hd_arg args[] = {hd_out(s->device), hd_u64(words), hd_u32(9), hd_arg_implicit(hd_in(s->pinned)), also};
    hd_ticket before = conf_lane_ticket(s->lane);
    conf_fails_at(hd_launch(s->lane, s->k.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 5, NULL), status, word,
                  "hd_launch", __FILE__, line);
    CONF_EQUAL(conf_lane_ticket(s->lane).sequence, before.sequence);
}
#define REFUSED(also, status, word) try_also(&s, (also), (status), (word), __LINE__)

static void what_is_no_use_is_refused_by_name(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_runtime *elsewhere = conf_open(NULL);
    hd_buffer *foreign = NULL, *gone = NULL;
    CONF_OK(hd_alloc(conf_default_lane(elsewhere, 0), bytes, &foreign));
    CONF_OK(hd_alloc(s.lane, bytes, &gone));
    CONF_OK(hd_free(gone));
    REFUSED(hd_arg_implicit(hd_u32(3)), HD_ERROR_ARGUMENT, "argument 4 (also): no use of a buffer");
    REFUSED(hd_arg_implicit(hd_address(4096)), HD_ERROR_ARGUMENT, "argument 4 (also)");
    REFUSED(hd_arg_implicit(hd_bytes("x", 1)), HD_ERROR_ARGUMENT, "argument 4 (also)");
    REFUSED(hd_arg_implicit(hd_arg_buffer(s.unified, 4, 0, 0)), HD_ERROR_ARGUMENT, "argument 4 (also)");
    REFUSED(hd_arg_implicit(hd_in(NULL)), HD_ERROR_HANDLE, "argument 4 (also)");
    REFUSED(hd_arg_implicit(hd_in(gone)), HD_ERROR_HANDLE, "argument 4 (also)");
    REFUSED(hd_arg_implicit(hd_in(foreign)), HD_ERROR_HANDLE, "argument 4 (also): the buffer is of another runtime");
    REFUSED(hd_arg_implicit(hd_in((hd_buffer *)(void *)s.lane)), HD_ERROR_HANDLE, "argument 4 (also)");
    REFUSED(hd_arg_implicit(hd_in_range(s.unified, bytes, 0)), HD_ERROR_RANGE, "argument 4 (also): bytes");
    REFUSED(hd_arg_implicit(hd_in_range(s.unified, 4, bytes)), HD_ERROR_RANGE, "argument 4 (also): bytes");
    REFUSED(hd_in(s.unified), HD_ERROR_ARGUMENT, "takes 3 arguments, got 4");
    void *mapped = NULL;
    CONF_OK(hd_map(s.unified, HD_READ_WRITE, &mapped));
    REFUSED(hd_arg_implicit(hd_inout(s.unified)), HD_ERROR_ACCESS, NULL);
    CONF_OK(hd_unmap(s.unified));
    /* in the place of an argument, or in front of one */
    hd_arg front[] = {hd_arg_implicit(hd_in(s.pinned)), hd_out(s.device), hd_u64(words), hd_u32(9)};
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, front, 4, NULL),
                    HD_ERROR_ARGUMENT, "hd_arg_implicit stands behind");
    hd_arg instead[] = {hd_out(s.device), hd_arg_implicit(hd_in(s.pinned)), hd_u32(9)};
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, instead, 3, NULL),
                    HD_ERROR_ARGUMENT, "argument 1 (n): expects u64, got hd_arg_implicit");
    hd_arg few[] = {hd_out(s.device), hd_u64(words), hd_arg_implicit(hd_in(s.pinned)),
                    hd_arg_implicit(hd_in(s.pinned))};
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, few, 4, NULL),
                    HD_ERROR_ARGUMENT, "argument 2 (value): expects u32, got hd_arg_implicit");
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, few + 1, 2, NULL),
                    HD_ERROR_ARGUMENT, "takes 3 arguments, got 1");
    hd_arg use = hd_arg_implicit(hd_in(s.device)); /* claims list only uses */
    hd_claim *claim = NULL;
    CONF_FAILS(hd_claim_begin(s.runtime, &use, 1, &claim), HD_ERROR_ARGUMENT);
    CONF_FILLED(s.device, 0, 1, bytes);
    hd_free(foreign);
    conf_close(elsewhere);
    end(&s);
}

static void a_launch_has_128_buffers_at_most(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_arg args[132] = {hd_out(s.device), hd_u64(words), hd_u32(6)};
    for (int i = 3; i < 132; i++) {
        args[i] = hd_arg_implicit(hd_in_range(s.pinned, (size_t)i * 4, 4));
    }
    hd_dims grid = conf_grid(words, 128), block = conf_dims(128, 1, 1);
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, grid, block, 0, args, 131, NULL), HD_ERROR_LIMIT, "128 buffers");
    CONF_FILLED(s.device, 0, 1, bytes);
    CONF_OK(hd_launch(s.lane, s.k.fill, grid, block, 0, args, 130, NULL));
    CONF_FILLED(s.device, 0, 6, bytes);
    end(&s);
}

static void an_address_is_for_pointers(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_arg args[] = {hd_out(s.device), hd_address(words), hd_u32(9)};
    hd_dims one = conf_dims(1, 1, 1);
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, one, one, 0, args, 3, NULL), HD_ERROR_ARGUMENT, "got an address");
    args[1] = hd_u64(words);
    args[2] = hd_address(9);
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, one, one, 0, args, 3, NULL), HD_ERROR_ARGUMENT, "got an address");
    args[2] = hd_u32(9);
    args[0] = hd_u64(hd_buffer_address(s.device)); /* which could be a mistake as well */
    CONF_FAILS_WITH(hd_launch(s.lane, s.k.fill, one, one, 0, args, 3, NULL), HD_ERROR_ARGUMENT, "expects a buffer");
    CONF_FAILS(hd_claim_begin(s.runtime, &(hd_arg){.kind = HD_ARG_ADDRESS}, 1, &(hd_claim *){NULL}), HD_ERROR_ARGUMENT);
    CONF_FILLED(s.device, 0, 1, bytes);
    /* in order because the program waits */
    args[0] = address_of(s.device, 0);
    hd_ticket ticket;
    CONF_OK(hd_buffer_wait(s.device, HD_READ_WRITE, HD_FOREVER));
    CONF_OK(hd_launch(s.lane, s.k.fill, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 3, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_FILLED(s.device, 0, 9, bytes);
    end(&s);
}

/* ---- pointers inside of memory ---- */

static const char source[] = "#include <heddle/kernel.h>\n"
                             "HD_GLOBAL uint32_t runs;\n"
                             "HD_KERNEL(add_all, HD_OUT(uint32_t, y), HD_IN(uint64_t, table), HD_VALUE(uint32_t, n))\n"
                             "{\n"
                             "    uint32_t i = (uint32_t)hd_global_x();\n"
                             "    if (i == 0) {\n"
                             "        runs++;\n"
                             "    }\n"
                             "    y[i] = 0;\n"
                             "    uint32_t t = 0;\n"
                             "    while (t < n) {\n"
                             "        y[i] += ((const uint32_t *)(uintptr_t)table[t])[i];\n"
                             "        t++;\n"
                             "    }\n"
                             "}\n"
                             "HD_KERNEL(add_to, HD_INOUT(uint32_t, y), HD_IN(uint32_t, x))\n"
                             "{\n"
                             "    uint64_t i = hd_global_x();\n"
                             "    y[i] += x ? x[i] : 5;\n"
                             "}\n";

static hd_module *load(scene *s)
{
    static uint8_t *image;
    static size_t size;
    hd_module *module = NULL;
    image = image ? image : conf_kernel_file(source, &size);
    if (!image) {
        end(s);
        skip();
    }
    CONF_OK(hd_module_load(s->runtime, image, size, &module));
    return module;
}

static void a_table_of_pointers(void **state)
{
    (void)state;
    for (int variable = 0; variable < 2; variable++) {
        scene s = begin("host_schedule=5");
        hd_module *module = load(&s);
        hd_kernel *add_all = NULL;
        CONF_OK(hd_kernel_get(module, "add_all", &add_all));
        hd_buffer *runs = NULL, *table = NULL, *of[3] = {s.device, s.pinned, s.unified}, *sum = NULL;
        hd_lane *other = NULL;
        CONF_OK(hd_lane_create(s.runtime, 0, &other));
        CONF_OK(hd_alloc(s.lane, sizeof(uint64_t[3]), &table));
        CONF_OK(hd_alloc(s.lane, bytes, &sum));
        uint64_t addresses[3];
        for (int i = 0; i < 3; i++) {
            addresses[i] = hd_buffer_address(of[i]);
        }
        CONF_OK(hd_write(table, 0, addresses, sizeof addresses));
        if (variable) { /* which each launch uses, too */
            CONF_OK(hd_module_get_global(module, 0, "runs", &runs));
        }
        for (uint32_t i = 0; i < 60; i++) {
            CONF_OK(conf_fill(i % 2 ? other : s.lane, s.k, of[i % 3], 0, words, 100 * i, NULL));
            if (i % 10 == 0) {
                CONF_OK(hd_fill(s.unified, 0, 7, bytes, NULL));
            }
            hd_arg args[] = {hd_out(sum),
                             hd_in(table),
                             hd_u32(3),
                             hd_arg_implicit(hd_in(s.device)),
                             hd_arg_implicit(hd_in(s.pinned)),
                             hd_arg_implicit(hd_in(s.unified))};
            CONF_OK(hd_launch(s.lane, add_all, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 6, NULL));
            uint32_t word[3];
            for (int b = 0; b < 3; b++) {
                CONF_OK(hd_read(of[b], 16, &word[b], 4));
            }
            CONF_FILLED(sum, 0, word[0] + word[1] + word[2], bytes);
        }
        uint32_t count = 0;
        CONF_OK(variable ? hd_read(runs, 0, &count, 4) : HD_OK);
        CONF_EQUAL(count, variable ? 60 : 0);
        hd_free(table);
        hd_free(sum);
        end(&s);
    }
}

static void a_null_pointer(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_kernel *add_to = NULL;
    CONF_OK(hd_kernel_get(load(&s), "add_to", &add_to));
    hd_arg args[] = {hd_inout(s.device), hd_address(0)};
    CONF_OK(hd_launch(s.lane, add_to, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 2, NULL));
    args[1] = hd_in(s.pinned);
    CONF_OK(hd_launch(s.lane, add_to, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 2, NULL));
    CONF_FILLED(s.device, 0, 1 + 5 + 1, bytes);
    end(&s);
}

int main(void)
{
    conf_begin("test_launch_also");
    const struct CMUnitTest tests[] = {
        CONF_CASE(order_is_that_of_arguments),
        CONF_CASE(other_devices_are_waited_for),
        CONF_CASE(memory_stays_until_the_launch_has_ended),
        CONF_CASE(a_failure_of_what_it_reads_is_inherited),
        CONF_CASE(what_is_no_use_is_refused_by_name),
        CONF_CASE(a_launch_has_128_buffers_at_most),
        CONF_CASE(an_address_is_for_pointers),
        CONF_CASE(a_table_of_pointers),
        CONF_CASE(a_null_pointer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
