/* test_ptx.c - the PTX scanner: compilers' output, hand-written text, and damaged text.
 *
 * Promise: The PTX scanner finds every kernel's parameters in valid text and refuses damaged text.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include "kernel/file.h"
#include "kernel/ptx.h"

extern const unsigned char hdi_image_builtin[];
extern const unsigned char hdi_image_builtin_end[];

static const char sample[] = "// a comment with .entry wrong(.param .u64 x)\n"
                             ".version 7.0\n.target sm_80\n.address_size 64\n"
                             "/* .entry also_wrong() { } */\n"
                             ".extern .shared .align 16 .b8 dynamic[];\n"
                             ".shared .align 8 .b8 module_wide[100];\n"
                             ".shared .align 4 .b8 unused[1000];\n"
                             ".global .align 4 .u32 table[2] = {1, 2};\n"
                             ".const .align 1 .b8 text[4] = {46, 101, 110, 0};\n"
                             ".func (.param .b32 result) helper(.param .b32 a)\n{\n\tret;\n}\n"
                             ".visible .entry first(\n"
                             "\t.param .u64 first_param_0,\n"
                             "\t.param .u8 first_param_1,\n"
                             "\t.param .align 8 .b8 first_param_2[24],\n"
                             "\t.param .u64 .ptr .global .align 4 first_param_3,\n"
                             "\t.param .f32 first_param_4,\n"
                             "\t.param .v4 .f32 first_param_5,\n"
                             "\t.param .u16 first_param_6\n"
                             ")\n.maxntid 16, 8, 2\n.minnctapersm 2\n{\n"
                             "\t.reg .b32 %r<3>;\n"
                             "\t// demoted variable\n"
                             "\t.shared .align 4 .b8 tile[4224];\n"
                             "\t{ .shared .align 16 .v2 .f32 inner; }\n"
                             "\tld.shared.u32 %r1, [module_wide+4];\n"
                             "\tst.shared::cta.u32 [module_wide], %r1;\n"
                             "\tatom.shared.add.u32 %r2, [tile], 1;\n"
                             "\tbar.sync 0;\n\tret;\n}\n"
                             ".visible .entry declared_only(.param .u64 a);\n"
                             ".weak .entry $second_()\n.reqntid 32\n{ ret; }\n"
                             ".entry third { ret; }\n";

static void declarations_are_read(void **unused)
{
    (void)unused;
    hdi_ptx ptx;
    assert_true(hdi_ptx_detect(sample, sizeof sample));
    assert_ok(hdi_ptx_scan(sample, sizeof sample - 1, &ptx));
    assert_int_equal(ptx.n_entries, 3);
    const hdi_ptx_entry *e = hdi_ptx_find(&ptx, "first");
    assert_non_null(e);
    static const hdi_ptx_param expected[] = {
        {0, 8, 'u'}, {8, 1, 'u'}, {16, 24, 'a'}, {40, 8, 'u'}, {48, 4, 'f'}, {64, 16, 'f'}, {80, 2, 'u'},
    };
    assert_int_equal(e->n_params, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(e->params[i].offset, expected[i].offset);
        assert_int_equal(e->params[i].size, expected[i].size);
        assert_int_equal(e->params[i].type, expected[i].type);
    }
    assert_int_equal(e->argument_bytes, 82);
    assert_int_equal(e->max_threads, 256);
    assert_int_equal(e->static_shared_bytes, 4224 + 8 + 100);
    e = hdi_ptx_find(&ptx, "$second_");
    assert_non_null(e);
    assert_int_equal(e->n_params, 0);
    assert_int_equal(e->max_threads, 32);
    assert_int_equal(e->static_shared_bytes, 0);
    assert_non_null(hdi_ptx_find(&ptx, "third"));
    assert_null(hdi_ptx_find(&ptx, "wrong"));
    assert_null(hdi_ptx_find(&ptx, "declared_only"));
    hdi_ptx_release(&ptx);
}

static void the_built_in_kernels_are_found(void **unused)
{
    (void)unused;
    hdi_kernel_file f;
    hdi_ptx ptx;
    assert_ok(hdi_kernel_file_parse(hdi_image_builtin, (size_t)(hdi_image_builtin_end - hdi_image_builtin), &f));
    assert_ok(hdi_ptx_scan(f.ptx, f.ptx_bytes, &ptx));
    assert_int_equal(ptx.n_entries, f.n_kernels);
    for (uint32_t i = 0; i < f.n_kernels; i++) {
        const hdi_ptx_entry *e = hdi_ptx_find(&ptx, f.kernels[i].name);
        assert_non_null(e);
        assert_int_equal(e->argument_bytes, f.kernels[i].argument_bytes);
        assert_int_equal(e->max_threads, f.kernels[i].max_threads);
    }
    hdi_ptx_release(&ptx);
    hdi_kernel_file_release(&f);
}

static void nonsense_is_refused_with_a_line(void **unused)
{
    (void)unused;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {".version 7.0\n.entry\n", "line 3: expected the name of a kernel"},
        {".version 7.0\n.entry k(\n.reg .u64 a)\n{}", "line 3: expected .param"},
        {".version 7.0\n.entry k(.param .u64 a .param .u32 b) {}", "expected , or )"},
        {".version 7.0\n.entry k(.param a) {}", "expected a type"},
        {".version 7.0\n.entry k(.param .b8 a[999999999999]) {}", "a number of elements"},
        {".version 7.0\n.entry k(.param .b64 a[2000000000][2]) {}", "fewer elements"},
        {".version 7.0\n.entry k(.param .align 3 .b8 a[4]) {}", "an alignment"},
        {".version 7.0\n.entry k() {\n{ }\n", "expected }"},
        {".version 7.0\n.entry k()\n", "expected {"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdi_ptx ptx;
        assert_status(hdi_ptx_scan(cases[i].text, strlen(cases[i].text), &ptx), HD_ERROR_IMAGE);
        assert_message_has(cases[i].message);
    }
    assert_false(hdi_ptx_detect("\x7f"
                                "ELF",
                                4));
    assert_false(hdi_ptx_detect("", 0));
    assert_true(hdi_ptx_detect("/* c */ // d\n .version", 22));
    hdi_ptx none;
    assert_ok(hdi_ptx_scan("", 0, &none));
    assert_int_equal(none.n_entries, 0);
}

static void damaged_text_is_read_safely(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < sizeof sample; n++) {
        char *cut = malloc(n + (n == 0));
        memcpy(cut, sample, n);
        hdi_ptx ptx;
        if (hdi_ptx_scan(cut, n, &ptx) == HD_OK) {
            hdi_ptx_release(&ptx);
        }
        static const char values[] = {'{', '}', '(', ')', '.', '[', '/', '*', '9', 0, (char)0x80};
        for (size_t v = 0; n > 0 && v < sizeof values; v++) {
            char *copy = malloc(sizeof sample - 1);
            memcpy(copy, sample, sizeof sample - 1);
            copy[n - 1] = values[v];
            if (hdi_ptx_scan(copy, sizeof sample - 1, &ptx) == HD_OK) {
                hdi_ptx_release(&ptx);
            }
            free(copy);
        }
        free(cut);
    }
}

static void check_variable(const hdi_ptx *ptx, const char *name, uint64_t bytes, bool constant)
{
    const hdi_ptx_variable *v = hdi_ptx_find_variable(ptx, name);
    assert_non_null(v);
    assert_int_equal(v->bytes, bytes);
    assert_int_equal(v->constant, constant);
}

static void variables_are_read(void **unused)
{
    (void)unused;
    static const char text[] = ".version 7.0\n"
                               ".visible .global .align 4 .u32 counter;\n"
                               ".global .align 8 .b8 odd[3][8] = {1, 2, {3}};\n"
                               ".visible .const .align 4 .f32 scale = 0f3F800000;\n"
                               ".const .v4 .f32 four;\n"
                               ".global .attribute(.managed) .align 8 .u64 shared_with_host;\n"
                               ".weak .global .u32 any[] = {1, 2};\n"
                               ".extern .global .align 4 .u32 elsewhere;\n"
                               ".shared .align 4 .b8 tile[64];\n"
                               ".global .samplerref sampler;\n"
                               ".entry k(.param .u64 y) { st.global.u32 [counter], 1; }\n";
    hdi_ptx ptx;
    assert_ok(hdi_ptx_scan(text, sizeof text, &ptx));
    assert_int_equal(ptx.n_variables, 6);
    check_variable(&ptx, "counter", 4, false);
    check_variable(&ptx, "odd", 24, false);
    check_variable(&ptx, "scale", 4, true);
    check_variable(&ptx, "four", 16, true);
    check_variable(&ptx, "shared_with_host", 8, false);
    check_variable(&ptx, "any", 0, false);
    assert_null(hdi_ptx_find_variable(&ptx, "elsewhere"));
    assert_null(hdi_ptx_find_variable(&ptx, "count"));
    assert_int_equal(ptx.n_entries, 1);
    assert_int_equal(ptx.texture_bytes, 7);
    hdi_ptx_release(&ptx);
    /* truncated text, or text of a later version, is no failure: the driver decides */
    static const char *const odd[] = {".global",         ".const .align",    ".global (",
                                      ".global .u32 x[", ".global .u32 x[y", ".const .b9 x;"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        assert_ok(hdi_ptx_scan(odd[i], strlen(odd[i]), &ptx));
        hdi_ptx_release(&ptx);
    }
}

/* The scan of this text takes a moment. It would take hours if it compared each word with each
 * variable, or if each kernel moved all earlier ones. */
static void long_text_takes_no_longer_than_its_length_says(void **unused)
{
    (void)unused;
    enum { VARIABLES = 100000, KERNELS = 100000, WORDS = 1000000 };
    size_t room = (size_t)VARIABLES * 48 + (size_t)KERNELS * 40 + (size_t)WORDS * 10, n = 0;
    char *text = malloc(room);
    for (int i = 0; i < VARIABLES; i++) {
        n += (size_t)sprintf(text + n, ".shared .align 4 .b8 v%d[8];\n", i);
    }
    for (int i = 0; i < KERNELS; i++) {
        n += (size_t)sprintf(text + n, ".entry k%d { v%d v%d v%d }\n", i, i, VARIABLES - 1, i);
    }
    n += (size_t)sprintf(text + n, ".entry all {\n");
    for (int i = 0; i < WORDS; i++) {
        n += (size_t)sprintf(text + n, " v%d", i % (2 * VARIABLES));
    }
    n += (size_t)sprintf(text + n, "}\n");
    assert_true(n < room);
    hdi_ptx ptx;
    assert_ok(hdi_ptx_scan(text, n, &ptx));
    assert_int_equal(ptx.n_entries, KERNELS + 1);
    for (int i = 0; i < KERNELS; i++) {
        assert_int_equal(ptx.entries[i].static_shared_bytes, i == VARIABLES - 1 ? 8 : 16);
    }
    assert_int_equal(ptx.entries[KERNELS].static_shared_bytes, VARIABLES * 8);
    hdi_ptx_release(&ptx);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_are_read),
        cmocka_unit_test(variables_are_read),
        cmocka_unit_test(long_text_takes_no_longer_than_its_length_says),
        cmocka_unit_test(the_built_in_kernels_are_found),
        cmocka_unit_test(nonsense_is_refused_with_a_line),
        cmocka_unit_test(damaged_text_is_read_safely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
