/* test_blas.c - libraries for matrix products: cuBLAS, as far as an imitation can show it, and the
 * choice of the option blas with its reasons.
 *
 * Promise: The option selects the library for products; the library's failures become statuses.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <dlfcn.h>
#include "blas/blas.h"
#include "engine/providers.h"
#include "simulator/simulator.h"

/* As in fake_cublas_kernels.c. */
typedef struct fake_cublas {
    char calls[512];
    int status;
    char fails[64];
    int version;
    void *stream, *workspace;
    size_t workspace_bytes;
    int pointer_mode, math_mode, handles;
    int64_t numbers[12];
    int type, compute, algorithm;
    unsigned char alpha[16], beta[16];
    const void *a, *b, *c;
} fake_cublas;

static fake_cublas *fake; /* in the library */
static hdcu_result of_stream;

static hdcu_result query(hdcu_stream stream)
{
    assert_ptr_equal(stream, (hdcu_stream)(uintptr_t)0x77);
    return of_stream;
}

static const hdi_driver driver = {.provider = &hdi_provider_nvidia, .cuStreamQuery = query};

static hdi_blas_config config_of(const char *library)
{
    return (hdi_blas_config){.driver = &driver,
                             .library = library,
                             .stream = (hdcu_stream)(uintptr_t)0x77,
                             .workspace = 0x1000000,
                             .workspace_bytes = 4096};
}

static int start(void **state)
{
    (void)state;
    void *library = dlopen(HD_TEST_KERNELS, RTLD_NOW | RTLD_LOCAL);
    fake = library != NULL ? dlsym(library, "fake_cublas_state") : NULL;
    if (fake == NULL) {
        print_error("%s\n", dlerror());
        return -1;
    }
    memset(fake, 0, sizeof *fake);
    fake->version = 130100;
    of_stream = HDCU_SUCCESS;
    return 0;
}

static hdi_blas *open_fake(hdi_blas_facts *facts)
{
    hdi_blas_config config = config_of(HD_TEST_KERNELS);
    hdi_blas *blas = NULL;
    const char *call = NULL;
    assert_int_equal(hdi_blas_open(&config, &blas, facts, &call), HDCU_SUCCESS);
    assert_non_null(blas);
    return blas;
}

static void a_handle_is_made_for_its_stream(void **state)
{
    (void)state;
    hdi_blas_facts facts;
    hdi_blas *blas = open_fake(&facts);
    assert_string_equal(fake->calls, "Create GetVersion SetStream SetWorkspace SetPointerMode SetMathMode ");
    assert_string_equal(facts.name, "cublas 13.1");
    assert_string_equal(facts.why, "");
    assert_int_equal(facts.most, INT64_MAX);
    for (int t = 0; t < 32; t++) {
        assert_int_equal(facts.types >> t & 1, t >= HD_TYPE_F16 && t <= HD_TYPE_C128);
    }
    assert_ptr_equal(fake->stream, (void *)(uintptr_t)0x77);
    assert_ptr_equal(fake->workspace, (void *)(uintptr_t)0x1000000);
    assert_int_equal(fake->workspace_bytes, 4096);
    assert_int_equal(fake->pointer_mode, 0);
    assert_int_equal(fake->math_mode, 16); /* no TF32, sums in the compute type */
    hdi_blas_close(blas, true);
    assert_int_equal(fake->handles, 0);
    blas = open_fake(&facts);
    fake->calls[0] = '\0';
    hdi_blas_close(blas, false); /* the driver does nothing any more, so it is not called */
    assert_string_equal(fake->calls, "");
    hdi_blas_close(NULL, true);
}

static hdi_product some_product(hd_type type)
{
    return (hdi_product){.type = (uint8_t)type,
                         .transpose_b = 1,
                         .a = 0x100,
                         .b = 0x200,
                         .c = 0x300,
                         .m = 2,
                         .n = 3,
                         .k = 5,
                         .pitch_a = 7,
                         .pitch_b = 11,
                         .pitch_c = 13,
                         .step_a = -17,
                         .step_b = 0,
                         .step_c = 19,
                         .count = 1,
                         .alpha = 1.5,
                         .beta = -0.25};
}

static void products_come_as_they_are(void **state)
{
    (void)state;
    static const struct {
        hd_type type;
        int cuda, compute, bytes;
    } types[] = {{HD_TYPE_F16, 2, 68, 4}, {HD_TYPE_BF16, 14, 68, 4}, {HD_TYPE_F32, 0, 68, 4},
                 {HD_TYPE_F64, 1, 70, 8}, {HD_TYPE_C64, 4, 68, 8},   {HD_TYPE_C128, 5, 70, 16}};
    hdi_blas_facts facts;
    hdi_blas *blas = open_fake(&facts);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const float f[2][2] = {{1.5f, 0}, {-0.25f, 0}};
        const double d[2][2] = {{1.5, 0}, {-0.25, 0}};
        bool wide = types[t].compute == 70;
        hdi_product p = some_product(types[t].type);
        for (uint64_t count = 1; count <= 6; count += 5) {
            p.count = count;
            fake->calls[0] = '\0';
            assert_int_equal(hdi_blas_product(blas, &p), HDCU_SUCCESS);
            assert_string_equal(fake->calls, count == 1 ? "GemmEx " : "GemmStridedBatchedEx ");
            const int64_t batched[12] = {2, 3, 5, 7, -17, 11, 0, 13, 19, 6, 0, 1};
            const int64_t alone[12] = {2, 3, 5, 7, 0, 11, 0, 13, 0, 1, 0, 1};
            assert_memory_equal(fake->numbers, count == 1 ? alone : batched, sizeof alone);
            assert_int_equal(fake->type, types[t].cuda);
            assert_int_equal(fake->compute, types[t].compute);
            assert_int_equal(fake->algorithm, -1);
            assert_memory_equal(fake->alpha, wide ? (const void *)d[0] : (const void *)f[0], (size_t)types[t].bytes);
            assert_memory_equal(fake->beta, wide ? (const void *)d[1] : (const void *)f[1], (size_t)types[t].bytes);
            assert_true(fake->a == (void *)(uintptr_t)0x100 && fake->b == (void *)(uintptr_t)0x200 &&
                        fake->c == (void *)(uintptr_t)0x300);
        }
    }
    hdi_blas_close(blas, true);
}

static void large_sizes_take_the_wide_calls(void **state)
{
    (void)state;
    hdi_blas_facts facts;
    hdi_blas *blas = open_fake(&facts);
    for (int which = 0; which < 7; which++) {
        hdi_product p = some_product(HD_TYPE_F32);
        uint64_t *sizes[] = {&p.m, &p.n, &p.k, &p.pitch_a, &p.pitch_b, &p.pitch_c, &p.count};
        const int places[] = {0, 1, 2, 3, 5, 7, 9};
        const uint64_t large = (uint64_t)INT32_MAX + 1;
        *sizes[which] = INT32_MAX;
        fake->calls[0] = '\0';
        assert_int_equal(hdi_blas_product(blas, &p), HDCU_SUCCESS);
        assert_null(strstr(fake->calls, "_64"));
        assert_int_equal(fake->numbers[places[which]], INT32_MAX);
        *sizes[which] = large;
        fake->calls[0] = '\0';
        assert_int_equal(hdi_blas_product(blas, &p), HDCU_SUCCESS);
        assert_string_equal(fake->calls, which == 6 ? "GemmStridedBatchedEx_64 " : "GemmEx_64 ");
        assert_int_equal(fake->numbers[places[which]], large);
    }
    hdi_blas_close(blas, true);
}

static void statuses_become_codes(void **state)
{
    (void)state;
    static const struct {
        int status;
        hdcu_result of_stream, code;
    } cases[] = {
        {1, HDCU_SUCCESS, HDCU_ERROR_NOT_INITIALIZED},
        {3, HDCU_SUCCESS, HDCU_ERROR_OUT_OF_MEMORY},
        {7, HDCU_SUCCESS, HDCU_ERROR_INVALID_VALUE},
        {8, HDCU_SUCCESS, HDCU_ERROR_NOT_SUPPORTED},
        {15, HDCU_SUCCESS, HDCU_ERROR_NOT_SUPPORTED},
        {16, HDCU_SUCCESS, HDCU_ERROR_NOT_PERMITTED},
        {13, HDCU_SUCCESS, HDCU_ERROR_UNKNOWN}, /* affects only this product */
        {14, HDCU_ERROR_NOT_READY, HDCU_ERROR_UNKNOWN},
        /* the device's end, and its reason */
        {13, HDCU_ERROR_ILLEGAL_ADDRESS, HDCU_ERROR_ILLEGAL_ADDRESS},
        {99, HDCU_SUCCESS, HDCU_ERROR_UNKNOWN},
    };
    hdi_blas_facts facts;
    hdi_blas *blas = open_fake(&facts);
    snprintf(fake->fails, sizeof fake->fails, "GemmEx");
    hdi_product p = some_product(HD_TYPE_F32);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake->status = cases[i].status;
        of_stream = cases[i].of_stream;
        assert_int_equal(hdi_blas_product(blas, &p), cases[i].code);
    }
    fake->status = 0;
    of_stream = HDCU_SUCCESS;
    assert_int_equal(hdi_blas_product(blas, &p), HDCU_SUCCESS);
    hdi_blas_close(blas, true);
}

static void a_handle_that_is_not_made(void **state)
{
    (void)state;
    static const char *const steps[] = {"Create",       "GetVersion",     "SetStream",
                                        "SetWorkspace", "SetPointerMode", "SetMathMode"};
    static const char *const calls[] = {"cublasCreate_v2",       "cublasGetVersion_v2",     "cublasSetStream_v2",
                                        "cublasSetWorkspace_v2", "cublasSetPointerMode_v2", "cublasSetMathMode"};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        hdi_blas_config config = config_of(HD_TEST_KERNELS);
        hdi_blas_facts facts;
        hdi_blas *blas = NULL;
        const char *call = NULL;
        snprintf(fake->fails, sizeof fake->fails, "%s", steps[i]);
        /* This library does not work here: only the reason is reported. */
        fake->status = 1;
        of_stream = HDCU_SUCCESS;
        memset(&facts, 0xee, sizeof facts);
        assert_int_equal(hdi_blas_open(&config, &blas, &facts, &call), HDCU_SUCCESS);
        assert_null(blas);
        assert_int_equal(facts.types, 0);
        assert_string_equal(facts.name, "built-in");
        assert_non_null(strstr(facts.why, calls[i]));
        assert_non_null(strstr(facts.why, "CUBLAS_STATUS_NOT_INITIALIZED"));
        assert_int_equal(fake->handles, 0);
        /* Out of memory, or a device that ended, is not the library's fault. */
        fake->status = 3;
        memset(&facts, 0xee, sizeof facts);
        assert_int_equal(hdi_blas_open(&config, &blas, &facts, &call), HDCU_ERROR_OUT_OF_MEMORY);
        assert_string_equal(call, calls[i]);
        assert_int_equal(facts.types, 0xeeeeeeee);
        assert_int_equal(fake->handles, 0);
        fake->status = 14;
        of_stream = HDCU_ERROR_LAUNCH_FAILED;
        assert_int_equal(hdi_blas_open(&config, &blas, &facts, &call), HDCU_ERROR_LAUNCH_FAILED);
        assert_null(blas);
        fake->handles = 0; /* not destroyed: the driver does nothing any more */
    }
}

static void what_is_no_library_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *library, *word;
    } cases[] = {{"builtin", "blas=builtin"},
                 {"/nonexistent/lib.so", "/nonexistent/lib.so: "},
                 {"libc.so.6", "libc.so.6 has no cublas"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdi_blas_config config = config_of(cases[i].library);
        hdi_blas_facts facts;
        hdi_blas *blas = NULL;
        const char *call = NULL;
        assert_int_equal(hdi_blas_open(&config, &blas, &facts, &call), HDCU_SUCCESS);
        assert_null(blas);
        assert_int_equal(facts.types, 0);
        assert_string_equal(facts.name, "built-in");
        assert_non_null(strstr(facts.why, cases[i].word));
        assert_null(strchr(facts.why, '\n'));
    }
    char why[sizeof((hdi_blas_facts *)0)->why] = "";
    for (int i = 0; i < 100; i++) { /* as many words as fit */
        hdi_blas_say(why, "number %d", i);
    }
    assert_memory_equal(why, "number 0; number 1; ", 20);
    assert_true(strlen(why) == sizeof why - 1 || strlen(why) + 2 >= sizeof why - 1);
}

static void workspaces(void **state)
{
    (void)state;
    assert_int_equal(hdi_blas_workspace(&hdi_provider_host, 9), 0);
    assert_int_equal(hdi_blas_workspace(&hdi_provider_nvidia, 8), 4 << 20);
    assert_int_equal(hdi_blas_workspace(&hdi_provider_nvidia, 9), 32 << 20);
    assert_int_equal(hdi_blas_workspace(&hdi_provider_nvidia, 10), 32 << 20);
}

static void a_provider_without_libraries(void **state)
{
    (void)state;
    static const hdi_provider bare = {.name = "bare"};
    static const hdi_driver of_bare = {.provider = &bare};
    hdi_blas_config config = config_of("auto");
    hdi_blas_facts facts;
    hdi_blas *blas = NULL;
    const char *call = NULL;
    config.driver = &of_bare;
    assert_int_equal(hdi_blas_open(&config, &blas, &facts, &call), HDCU_SUCCESS);
    assert_null(blas);
    assert_string_equal(facts.name, "built-in");
    assert_non_null(strstr(facts.why, "driver=bare has no library"));
    assert_int_equal(hdi_blas_workspace(&bare, 9), 0);
    assert_ptr_equal(hdi_provider_named("nvidia"), &hdi_provider_nvidia);
    assert_ptr_equal(hdi_provider_named("host"), &hdi_provider_host);
    assert_null(hdi_provider_named("bare"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_handle_is_made_for_its_stream, start),
        cmocka_unit_test_setup(products_come_as_they_are, start),
        cmocka_unit_test_setup(large_sizes_take_the_wide_calls, start),
        cmocka_unit_test_setup(statuses_become_codes, start),
        cmocka_unit_test_setup(a_handle_that_is_not_made, start),
        cmocka_unit_test_setup(what_is_no_library_says_so, start),
        cmocka_unit_test_setup(workspaces, start),
        cmocka_unit_test_setup(a_provider_without_libraries, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
