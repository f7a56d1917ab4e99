/* test_listing.c - the listing of images that nvcc made (tests/kernel/images), and of damaged ones.
 *
 * Promise: Images list kernels with parameters, and variables by name; useless ones are refused.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <heddle/module.h>
#include "kernel/describe_image.h"
#include "kernel/names.h"
#include "kernel/unpack.h"

static char *read_image(const char *name, size_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", HD_TEST_IMAGES, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *image = malloc(1 << 20);
    *bytes = fread(image, 1, 1 << 20, file);
    fclose(file);
    assert_true(*bytes > 0);
    return image;
}

static hd_status open_named(const char *name, hdi_image *image)
{
    size_t bytes, code_bytes;
    const void *code;
    char *content = read_image(name, &bytes);
    hd_status status = hdi_image_open(content, bytes, false, image, &code, &code_bytes);
    free(content);
    return status;
}

static void check_params(const hdi_image *image, const char *symbol, uint32_t n, const uint32_t (*expected)[2])
{
    hdi_signature s = {.described = false};
    assert_ok(hdi_image_describe(image, symbol, &s));
    assert_true(s.described);
    assert_int_equal(s.n_params, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(s.params[i].offset, expected[i][0]);
        assert_int_equal(s.params[i].size, expected[i][1]);
    }
    assert_int_equal(s.argument_bytes, n ? expected[n - 1][0] + expected[n - 1][1] : 0);
    free(s.params);
}

static const char *const all[] = {"kernels.cubin", "kernels.ptx", "kernels_zstd.fatbin", "kernels_lz4.fatbin"};
enum { ALL = sizeof all / sizeof all[0] };

static bool is_readable(const char *name)
{
    return strcmp(name, "kernels_zstd.fatbin") != 0 || hdi_unpack_has_zstd();
}

static void parameters_are_those_of_the_source(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        hdi_image image;
        assert_ok(open_named(all[i], &image));
        if (is_readable(all[i])) {
            assert_string_equal(image.listing.unread, "");
            assert_int_equal(image.listing.kernels.n, 6);
            check_params(&image, "_ZN2ns5saxpyEPfPKffi", 4, (const uint32_t[][2]){{0, 8}, {8, 8}, {16, 4}, {20, 4}});
            check_params(&image, "_Z5scaleIfEvPT_S0_", 2, (const uint32_t[][2]){{0, 8}, {8, 4}});
            check_params(&image, "_Z5scaleIdEvPT_S0_", 2, (const uint32_t[][2]){{0, 8}, {8, 8}});
            check_params(&image, "_Z8by_value4paircPf", 3, (const uint32_t[][2]){{0, 16}, {16, 1}, {24, 8}});
            check_params(&image, "plain", 0, NULL);
        }
        hdi_image_release(&image);
    }
}

static void parameters_have_the_types_of_the_source(void **state)
{
    (void)state;
    hdi_image image;
    assert_ok(open_named("kernels.cubin", &image));
    if (!hdi_name_has_demangler()) {
        test_without("libstdc++: names of kernels in C++");
        hdi_image_release(&image);
        skip();
    }
    hdi_signature s = {.described = false};
    assert_ok(hdi_image_describe(&image, "_ZN2ns5saxpyEPfPKffi", &s));
    assert_string_equal(s.params[0].name, "float*");
    assert_string_equal(s.params[2].name, "float");
    assert_string_equal(s.params[3].name, "int");
    assert_int_equal(s.params[0].kind, HD_ARG_NONE); /* a buffer, or its address */
    assert_int_equal(s.params[2].kind, HD_ARG_F32);
    assert_int_equal(s.params[3].kind, HD_ARG_NONE);
    free(s.params);
    s = (hdi_signature){.described = false};
    assert_ok(hdi_image_describe(&image, "_Z5scaleIdEvPT_S0_", &s));
    assert_int_equal(s.params[1].kind, HD_ARG_F64);
    free(s.params);
    hdi_image_release(&image);
}

static void kernels_are_found_by_the_names_of_the_source(void **state)
{
    (void)state;
    static const struct {
        const char *wanted, *symbol, *shown;
    } names[] = {
        {"_ZN2ns5saxpyEPfPKffi", "_ZN2ns5saxpyEPfPKffi", "ns::saxpy"},
        {"ns::saxpy", "_ZN2ns5saxpyEPfPKffi", "ns::saxpy"},
        {"saxpy", "_ZN2ns5saxpyEPfPKffi", "ns::saxpy"},
        {"ns::saxpy(float*, float const*, float, int)", "_ZN2ns5saxpyEPfPKffi", "ns::saxpy"},
        {"void ns::saxpy( float *, const float *,float,int )", "_ZN2ns5saxpyEPfPKffi", "ns::saxpy"},
        {"saxpy(float *, const float *, float, int)", "_ZN2ns5saxpyEPfPKffi", "ns::saxpy"},
        {"scale<float>", "_Z5scaleIfEvPT_S0_", "scale<float>"},
        {" scale < double >", "_Z5scaleIdEvPT_S0_", "scale<double>"},
        {"scale(double*, double)", "_Z5scaleIdEvPT_S0_", "scale<double>"},
        {"fill<int, 256>", "_Z4fillIiLj256EEvPT_S0_", "fill<int, 256u>"},
        {"fill<int,256u>(int*,int)", "_Z4fillIiLj256EEvPT_S0_", "fill<int, 256u>"},
        {"fill", "_Z4fillIiLj256EEvPT_S0_", "fill<int, 256u>"},
        {"by_value", "_Z8by_value4paircPf", "by_value"},
        {"plain", "plain", "plain"},
    };
    hdi_image image;
    assert_ok(open_named("kernels.cubin", &image));
    for (size_t i = 0; i < sizeof names / sizeof names[0] && hdi_name_has_demangler(); i++) {
        const char *symbol;
        char shown[HDI_KERNEL_NAME_BYTES];
        assert_ok(hdi_image_find(&image, names[i].wanted, &symbol, shown));
        assert_string_equal(symbol, names[i].symbol);
        assert_string_equal(shown, names[i].shown);
    }
    hdi_image_release(&image);
}

static void names_that_fit_none_or_several_are_refused(void **state)
{
    (void)state;
    hdi_image image;
    const char *symbol;
    char shown[HDI_KERNEL_NAME_BYTES];
    hd_error error = {.size = sizeof error};
    assert_ok(open_named("kernels.cubin", &image));
    static const char *const none[] = {"scale<int>", "saxpy(int)", "ns", "ns::", "",    "fill<int, 25>",
                                       "sca",        "(",          ")",  "<",    "a)b)"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_status(hdi_image_find(&image, none[i], &symbol, shown), HD_ERROR_NOT_FOUND);
    }
    if (hdi_name_has_demangler()) {
        assert_status(hdi_image_find(&image, "scale", &symbol, shown), HD_ERROR_NOT_FOUND);
        hd_last_error(&error);
        assert_non_null(strstr(error.message, "several kernels are called 'scale'"));
        assert_non_null(strstr(error.message, "void scale<float>(float*, float)"));
        assert_non_null(strstr(error.message, "void scale<double>(double*, double)"));
        assert_status(hdi_image_find(&image, "scale<int>", &symbol, shown), HD_ERROR_NOT_FOUND);
        hd_last_error(&error);
        assert_non_null(strstr(error.message, "ns::saxpy(float*, float const*, float, int)"));
    }
    assert_ok(hdi_image_add_alias(&image, "scale", "_Z5scaleIfEvPT_S0_"));
    assert_ok(hdi_image_find(&image, "scale", &symbol, shown));
    assert_string_equal(symbol, "_Z5scaleIfEvPT_S0_");
    assert_string_equal(shown, "scale");
    hdi_image_release(&image);
}

static void check_variable(const hdi_image *image, const char *wanted, const char *symbol, bool constant)
{
    hdi_image_global found;
    assert_ok(hdi_image_find_global(image, wanted, &found));
    assert_string_equal(found.symbol, symbol);
    assert_int_equal(found.constant, constant);
}

static void check_no_variable(const hdi_image *image, const char *wanted, const char *text)
{
    hdi_image_global found;
    hd_error error = {.size = sizeof error};
    assert_status(hdi_image_find_global(image, wanted, &found), HD_ERROR_NOT_FOUND);
    hd_last_error(&error);
    assert_non_null(strstr(error.message, text));
}

static void variables_are_found_by_the_names_of_the_source(void **state)
{
    (void)state;
    static const char *const images[] = {"variables.cubin", "variables.ptx"};
    for (int i = 0; i < 2; i++) {
        hdi_image image;
        assert_ok(open_named(images[i], &image));
        assert_int_equal(image.listing.variables.n, 9);
        check_variable(&image, "coefficients", "coefficients", true);
        check_variable(&image, "factors", "factors", true);
        check_variable(&image, "counter", "counter", false);
        check_variable(&image, "pairs", "pairs", false);
        check_variable(&image, "_ZN2ns5totalE", "_ZN2ns5totalE", false);
        check_no_variable(&image, "use", "the module has no variable 'use'");
        check_no_variable(&image, "$str", "coefficients");
        if (hdi_name_has_demangler()) {
            check_variable(&image, "ns::total", "_ZN2ns5totalE", false);
            hdi_image_global hidden; /* the compiler put its symbol into a namespace */
            assert_ok(hdi_image_find_global(&image, "ns::hidden", &hidden));
            assert_non_null(strstr(hidden.symbol, "_INTERNAL_"));
            check_variable(&image, "state<float>", "_Z5stateIfE", false);
            check_variable(&image, "state< int >", "_Z5stateIiE", false);
            check_no_variable(&image, "total", "several variables are called 'total'");
            check_no_variable(&image, "absent", "far::total");
        }
        hdi_image_release(&image);
    }
    hdi_image image; /* one variable, in each kind of image */
    for (int i = 0; i < ALL; i++) {
        assert_ok(open_named(all[i], &image));
        if (is_readable(all[i])) {
            check_variable(&image, "table", "table", true);
        }
        hdi_image_release(&image);
    }
    assert_ok(open_named("large.cubin", &image));
    check_no_variable(&image, "table", "compilers leave out what no kernel uses");
    hdi_image_release(&image);
}

static void check_refused(const char *name, const char *text)
{
    hdi_image image;
    hd_error error = {.size = sizeof error};
    assert_status(open_named(name, &image), HD_ERROR_IMAGE);
    hd_last_error(&error);
    assert_non_null(strstr(error.message, text));
}

static void what_no_launch_could_use_is_refused_by_name(void **state)
{
    (void)state;
    check_refused("texture.ptx", "reference 'picture'");
    check_refused("texture.cubin", "reference 'picture'");
    check_refused("unlinked.cubin", "it needs '__cudaCDP2");
    hdi_image image;
    hdi_signature s = {.described = false};
    assert_ok(open_named("large.cubin", &image));
    assert_status(hdi_image_describe(&image, "_Z4take5largePi", &s), HD_ERROR_LIMIT);
    free(s.params);
    hdi_image_release(&image);
}

/* For every length, and with every byte inverted: no read leaves the image (sanitizers), and the
 * listing shows nothing beyond the image. */
static void damaged_images_are_read_as_far_as_they_are_whole(void **state)
{
    (void)state;
    for (int i = 0; i < ALL; i++) {
        size_t bytes;
        char *content = read_image(all[i], &bytes);
        for (size_t at = 1; at < bytes; at += 1 + bytes / 1500) {
            hdi_listing listing;
            char *part = malloc(at);
            memcpy(part, content, at);
            hd_status status = hdi_listing_read(part, at, &listing);
            assert_true(status == HD_OK || status == HD_ERROR_IMAGE);
            assert_true(listing.kernels.n <= 6 && listing.variables.n <= 1);
            hdi_listing_release(&listing);
            free(part);
            content[at] = (char)~content[at];
            status = hdi_listing_read(content, bytes, &listing);
            assert_true(status == HD_OK || status == HD_ERROR_IMAGE);
            for (uint32_t k = 0; k < listing.kernels.n; k++) {
                assert_true(strlen(listing.kernels.of[k].symbol) < bytes);
            }
            hdi_listing_release(&listing);
            content[at] = (char)~content[at];
        }
        free(content);
    }
}

static void blocks_of_lz4(void **state)
{
    (void)state;
    /* 3 literals, then 12 bytes from 3 back; 1 literal at the end */
    static const unsigned char block[] = {0x38, 'a', 'b', 'c', 3, 0, 0x10, 'z'};
    char out[32];
    assert_true(hdi_unpack_lz4(block, sizeof block, out, 16));
    assert_memory_equal(out, "abcabcabcabcabcz", 16);
    assert_false(hdi_unpack_lz4(block, sizeof block, out, 15));
    assert_false(hdi_unpack_lz4(block, sizeof block, out, 17));
    for (size_t n = 0; n < sizeof block; n++) {
        assert_false(hdi_unpack_lz4(block, n, out, 16));
    }
    /* a match before the start */
    static const unsigned char before[] = {0x18, 'a', 2, 0, 0x10, 'z'};
    assert_false(hdi_unpack_lz4(before, sizeof before, out, 14));
    static const unsigned char zero[] = {0x18, 'a', 0, 0, 0x10, 'z'};
    assert_false(hdi_unpack_lz4(zero, sizeof zero, out, 14));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_of_the_source),
        cmocka_unit_test(parameters_have_the_types_of_the_source),
        cmocka_unit_test(kernels_are_found_by_the_names_of_the_source),
        cmocka_unit_test(names_that_fit_none_or_several_are_refused),
        cmocka_unit_test(variables_are_found_by_the_names_of_the_source),
        cmocka_unit_test(what_no_launch_could_use_is_refused_by_name),
        cmocka_unit_test(damaged_images_are_read_as_far_as_they_are_whole),
        cmocka_unit_test(blocks_of_lz4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
