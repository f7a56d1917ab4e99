/* test_kernel_file.c - kernel files: they read back as written, damaged ones are refused, and no
 * read is out of bounds.
 *
 * Promise: A kernel file reads back as written; a damaged one is refused, without reads outside.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <heddle/kernel.h>
#include <heddle/module.h>
#include "kernel/file.h"

extern const unsigned char hdi_image_builtin[];
extern const unsigned char hdi_image_builtin_end[];

static const hdi_kernel_param scale_params[] = {
    {"y", HD_ARG_BUFFER, HD_READ_WRITE, 0, 8, HD_ARG_F32 | 4 << 8},
    {"factor", HD_ARG_F32, 0, 8, 4, 0},
    {"pad", HD_ARG_U8, 0, 12, 1, 0},
    {"n", HD_ARG_U64, 0, 16, 8, 0},
    {"rest", HD_ARG_BYTES, 0, 24, 12, 0},
};
static hdi_kernel_entry sample_kernels[] = {
    {"scale", scale_params, 5, 36, 4096, 256},
    {"nothing", NULL, 0, 0, 0, 0},
};

static hdi_kernel_global sample_globals[] = {
    {"coefficients", 64, true},
    {"counter", 4, false},
};

static void *sample(size_t *bytes)
{
    hdi_kernel_file f = {.ptx = ".version 6.3\n",
                         .ptx_bytes = 14,
                         .kernels = sample_kernels,
                         .n_kernels = 2,
                         .globals = sample_globals,
                         .n_globals = 2};
    void *image = NULL;
    assert_ok(hdi_kernel_file_write(&f, &image, bytes));
    return image;
}

/* Parses a copy that ends with its allocation, so that the address sanitizer finds a read behind
 * it. */
static hd_status parse_copy(const void *image, size_t bytes)
{
    unsigned char *copy = malloc(bytes + (bytes == 0));
    memcpy(copy, image, bytes);
    hdi_kernel_file f;
    hd_status status = hdi_kernel_file_parse(copy, bytes, &f);
    if (status == HD_OK) {
        /* reads everything that it points at */
        size_t sum = f.ptx != NULL ? strlen(f.ptx) + (unsigned char)f.ptx[f.ptx_bytes - 1] : 0;
        for (uint32_t i = 0; i < f.n_kernels; i++) {
            sum += strlen(f.kernels[i].name);
            for (uint32_t j = 0; j < f.kernels[i].n_params; j++) {
                const hdi_kernel_param *p = &f.kernels[i].params[j];
                sum += strlen(p->name);
                assert_true(p->offset + p->size <= f.kernels[i].argument_bytes);
            }
        }
        for (uint32_t i = 0; i < f.n_globals; i++) {
            sum += strlen(f.globals[i].name);
            assert_true(f.globals[i].bytes > 0);
        }
        assert_true(sum > 0);
        hdi_kernel_file_release(&f);
    } else {
        assert_int_equal(status, HD_ERROR_IMAGE);
    }
    free(copy);
    return status;
}

static void put64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        p[i] = (unsigned char)(v >> 8 * i);
    }
}

static void fix_checksum(unsigned char *image, size_t bytes)
{
    put64(image + 16, 0);
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ image[i]) * 0x100000001b3u;
    }
    put64(image + 16, h);
}

static void what_is_written_is_read_back(void **unused)
{
    (void)unused;
    size_t bytes;
    void *image = sample(&bytes);
    assert_true(hdi_kernel_file_detect(image, bytes));
    assert_false(hdi_kernel_file_detect(".version", 8));
    hdi_kernel_file f;
    assert_ok(hdi_kernel_file_parse(image, bytes, &f));
    assert_string_equal(f.ptx, ".version 6.3\n");
    assert_int_equal(f.n_cpu, 0);
    assert_null(hdi_kernel_file_native(&f));
    assert_int_equal(f.n_kernels, 2);
    const hdi_kernel_entry *k = hdi_kernel_file_find(&f, "scale");
    assert_non_null(k);
    assert_int_equal(k->n_params, 5);
    assert_int_equal(k->argument_bytes, 36);
    assert_int_equal(k->static_shared_bytes, 4096);
    assert_int_equal(k->max_threads, 256);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(k->params[i].name, scale_params[i].name);
        assert_int_equal(k->params[i].kind, scale_params[i].kind);
        assert_int_equal(k->params[i].access, scale_params[i].access);
        assert_int_equal(k->params[i].element, scale_params[i].element);
        assert_int_equal(k->params[i].offset, scale_params[i].offset);
        assert_int_equal(k->params[i].size, scale_params[i].size);
    }
    assert_int_equal(hdi_kernel_file_find(&f, "nothing")->n_params, 0);
    assert_null(hdi_kernel_file_find(&f, "something"));
    assert_int_equal(f.n_globals, 2);
    assert_true(hdi_kernel_file_find_global(&f, "coefficients")->constant);
    assert_int_equal(hdi_kernel_file_find_global(&f, "coefficients")->bytes, 64);
    assert_false(hdi_kernel_file_find_global(&f, "counter")->constant);
    assert_null(hdi_kernel_file_find_global(&f, "scale"));
    hdi_kernel_file_release(&f);
    free(image);
}

static void every_cut_is_refused(void **unused)
{
    (void)unused;
    size_t bytes;
    void *image = sample(&bytes);
    for (size_t n = 0; n < bytes; n++) {
        assert_int_equal(parse_copy(image, n), HD_ERROR_IMAGE);
    }
    unsigned char *longer = calloc(1, bytes + 1);
    memcpy(longer, image, bytes);
    assert_int_equal(parse_copy(longer, bytes + 1), HD_ERROR_IMAGE);
    assert_ok(parse_copy(image, bytes));
    free(longer);
    free(image);
}

static void every_changed_byte_is_refused(void **unused)
{
    (void)unused;
    size_t bytes;
    unsigned char *image = sample(&bytes);
    for (size_t i = 0; i < bytes; i++) {
        for (int bit = 0; bit < 8; bit += 3) {
            image[i] ^= (unsigned char)(1 << bit);
            assert_int_equal(parse_copy(image, bytes), HD_ERROR_IMAGE);
            image[i] ^= (unsigned char)(1 << bit);
        }
    }
    free(image);
}

/* With a correct checksum, as from an attacker: refused or understood, never out of bounds. */
static void no_forged_byte_does_harm(void **unused)
{
    (void)unused;
    size_t bytes;
    unsigned char *image = sample(&bytes);
    unsigned char *copy = malloc(bytes);
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    int refused = 0;
    for (size_t i = 0; i < bytes; i++) {
        for (size_t v = 0; v < sizeof values; v++) {
            memcpy(copy, image, bytes);
            copy[i] = values[v];
            fix_checksum(copy, bytes);
            refused += parse_copy(copy, bytes) != HD_OK;
        }
    }
    assert_true(refused > 100);
    /* truncated, with matching header and checksum */
    for (size_t n = 32; n < bytes; n++) {
        memcpy(copy, image, n);
        put64(copy + 8, n);
        fix_checksum(copy, n);
        assert_int_equal(parse_copy(copy, n), HD_ERROR_IMAGE);
    }
    free(copy);
    free(image);
}

static void refuse(hdi_kernel_param param, uint32_t argument_bytes, const char *message)
{
    hdi_kernel_entry k = {"bad", &param, 1, argument_bytes, 0, 0};
    hdi_kernel_file f = {.ptx = "", .ptx_bytes = 1, .kernels = &k, .n_kernels = 1};
    void *image = NULL;
    size_t bytes = 0;
    assert_ok(hdi_kernel_file_write(&f, &image, &bytes));
    assert_int_equal(parse_copy(image, bytes), HD_ERROR_IMAGE);
    assert_message_has(message);
    free(image);
}

static void contradictions_are_refused(void **unused)
{
    (void)unused;
    refuse((hdi_kernel_param){"x", 13, 0, 0, 4, 0}, 4, "kind 13");
    refuse((hdi_kernel_param){"x", HD_ARG_BUFFER, 0, 0, 8, 0}, 8, "access 0");
    refuse((hdi_kernel_param){"x", HD_ARG_I32, 1, 0, 4, 0}, 4, "access 1");
    refuse((hdi_kernel_param){"x", HD_ARG_I32, 0, 0, 4, HD_ARG_I32}, 4, "kind 6");
    refuse((hdi_kernel_param){"x", HD_ARG_BUFFER, 1, 0, 8, HD_ARG_BUFFER}, 8, "kind 1");
    refuse((hdi_kernel_param){"x", HD_ARG_BUFFER, 1, 0, 8, HD_ARG_BYTES + 1}, 8, "kind 1");
    refuse((hdi_kernel_param){"x", HD_ARG_I32, 0, 0, 8, 0}, 8, "8 bytes");
    refuse((hdi_kernel_param){"x", HD_ARG_I32, 0, 2, 4, 0}, 6, "offset 2");
    refuse((hdi_kernel_param){"x", HD_ARG_I32, 0, 4, 4, 0}, 6, "offset 4");
    refuse((hdi_kernel_param){"x", HD_ARG_I32, 0, 0, 4, 0}, 8, "end at 4");
    refuse((hdi_kernel_param){"x", HD_ARG_BYTES, 0, 0, 5000, 0}, 5000, "5000 bytes");
    hdi_kernel_entry twice[] = {{"k", NULL, 0, 0, 0, 0}, {"k", NULL, 0, 0, 0, 0}};
    hdi_kernel_file f = {.ptx = "", .ptx_bytes = 1, .kernels = twice, .n_kernels = 2};
    void *image = NULL;
    size_t bytes = 0;
    assert_ok(hdi_kernel_file_write(&f, &image, &bytes));
    assert_int_equal(parse_copy(image, bytes), HD_ERROR_IMAGE);
    assert_message_has("two kernels k");
    free(image);
}

static void the_built_in_file_is_complete(void **unused)
{
    (void)unused;
    hdi_kernel_file f;
    assert_ok(hdi_kernel_file_parse(hdi_image_builtin, (size_t)(hdi_image_builtin_end - hdi_image_builtin), &f));
    assert_int_equal(f.n_kernels, 15);
    assert_non_null(f.ptx);
    assert_non_null(hdi_kernel_file_native(&f));
    const hdi_kernel_entry *k = hdi_kernel_file_find(&f, "hd_matmul_f32");
    assert_non_null(k);
    assert_int_equal(k->n_params, 6);
    assert_int_equal(k->static_shared_bytes, 8192);
    assert_int_equal(k->max_threads, 1024);
    assert_string_equal(k->params[0].name, "c");
    assert_int_equal(k->params[0].access, HD_WRITE);
    assert_int_equal(k->params[1].access, HD_READ);
    assert_int_equal(k->params[5].kind, HD_ARG_U32);
    hdi_kernel_file_release(&f);
}

/* Changes single bytes of the CPU code's headers and descriptions; everything found must lie
 * inside. */
static void damaged_cpu_code_is_read_safely(void **unused)
{
    (void)unused;
    hdi_kernel_file f;
    assert_ok(hdi_kernel_file_parse(hdi_image_builtin, (size_t)(hdi_image_builtin_end - hdi_image_builtin), &f));
    const hdi_kernel_cpu *cpu = hdi_kernel_file_native(&f);
    unsigned char *copy = malloc(cpu->bytes);
    memcpy(copy, cpu->image, cpu->bytes);
    uint32_t machine;
    for (size_t i = 0; i < cpu->bytes; i++) {
        /* headers and descriptions are at the ends, code and padding between them */
        if (i == 4096) {
            i = cpu->bytes > 16384 ? cpu->bytes - 12288 : i;
        }
        unsigned char was = copy[i];
        for (int v = 0; v < 3; v++) {
            copy[i] = v == 0 ? 0xff : v == 1 ? (unsigned char)(was + 1) : 0;
            hdi_kernel_file found;
            memset(&found, 0, sizeof found);
            hdi_elf_check_shared(copy, cpu->bytes, &machine);
            if (hdi_elf_describe(copy, cpu->bytes, &found) == HD_OK) {
                for (uint32_t k = 0; k < found.n_kernels; k++) {
                    assert_true(strlen(found.kernels[k].name) < 128);
                }
                hdi_kernel_file_release(&found);
            }
        }
        copy[i] = was;
    }
    for (size_t n = 0; n < cpu->bytes; n += n < 4096 ? 7 : 501) {
        unsigned char *cut = malloc(n + (n == 0));
        memcpy(cut, copy, n);
        hdi_kernel_file found;
        assert_int_equal(hdi_elf_describe(cut, n, &found), HD_ERROR_IMAGE);
        free(cut);
    }
    free(copy);
    hdi_kernel_file_release(&f);
}

/* Replaces every `from` in the text by `to`, which has the same length. */
static char *replaced(const char *text, const char *from, const char *to)
{
    char *copy = malloc(strlen(text) + 1);
    strcpy(copy, text);
    for (char *p = copy; (p = strstr(p, from)) != NULL;) {
        memcpy(p, to, strlen(to));
    }
    return copy;
}

static void build_checks_that_the_parts_fit(void **unused)
{
    (void)unused;
    hdi_kernel_file f;
    assert_ok(hdi_kernel_file_parse(hdi_image_builtin, (size_t)(hdi_image_builtin_end - hdi_image_builtin), &f));
    const void *images[] = {f.cpu[0].image, f.cpu[0].image};
    size_t sizes[] = {f.cpu[0].bytes, f.cpu[0].bytes};
    hd_kernel_file_parts parts = {
        .size = sizeof parts, .ptx = f.ptx, .ptx_bytes = f.ptx_bytes, .cpu = images, .cpu_bytes = sizes, .n_cpu = 1};
    void *out = NULL;
    size_t bytes = 0;
    assert_ok(hd_kernel_file_build(&parts, &out, &bytes));
    assert_ok(parse_copy(out, bytes));
    free(out);
    out = NULL;

    parts.n_cpu = 0;
    /* no description */
    assert_status(hd_kernel_file_build(&parts, &out, &bytes), HD_ERROR_ARGUMENT);
    parts.description = images[0];
    parts.description_bytes = sizes[0];
    assert_ok(hd_kernel_file_build(&parts, &out, &bytes));
    free(out);
    out = NULL;
    parts.n_cpu = 2;
    assert_status(hd_kernel_file_build(&parts, &out, &bytes), HD_ERROR_ARGUMENT);
    assert_message_has("two CPU images");
    parts.n_cpu = 1;

    parts.ptx = "this is not PTX";
    parts.ptx_bytes = 15;
    assert_status(hd_kernel_file_build(&parts, &out, &bytes), HD_ERROR_IMAGE);
    parts.ptx = ".version 6.3\n.visible .entry hd_fill_u32(.param .u64 a, .param .u32 b, .param .u32 c) { ret; }\n";
    parts.ptx_bytes = strlen(parts.ptx);
    assert_status(hd_kernel_file_build(&parts, &out, &bytes), HD_ERROR_IMAGE);
    char *text = replaced(f.ptx, "hd_sum_f32", "hd_some_32");
    parts.ptx = text;
    parts.ptx_bytes = strlen(text);
    assert_status(hd_kernel_file_build(&parts, &out, &bytes), HD_ERROR_IMAGE);
    assert_message_has("no kernel hd_sum_f32");
    free(text);
    parts.ptx = NULL;
    assert_ok(hd_kernel_file_build(&parts, &out, &bytes));
    free(out);
    assert_status(hd_kernel_file_build(NULL, &out, &bytes), HD_ERROR_ARGUMENT);
    hdi_kernel_file_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),    cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(every_changed_byte_is_refused),   cmocka_unit_test(no_forged_byte_does_harm),
        cmocka_unit_test(contradictions_are_refused),      cmocka_unit_test(the_built_in_file_is_complete),
        cmocka_unit_test(damaged_cpu_code_is_read_safely), cmocka_unit_test(build_checks_that_the_parts_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
