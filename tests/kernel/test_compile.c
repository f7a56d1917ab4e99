/* test_compile.c - code from NVRTC and nvJitLink, from the real libraries and an imitation, and the
 * cache of compiled code.
 *
 * Promise: Failures of compiler and linker are reported with reasons; bad cache files are not used.
 *
 * The real libraries are those that the loader finds, or that HEDDLE_NVRTC and HEDDLE_NVJITLINK
 * name. Without them the test skips their cases.
 *
 * Threads: one. Locks: none.
 */
#include "support/check.h"
#include "support/sanitizers.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernel/code_cache.h"
#include "kernel/toolkit.h"

/* As in fake_toolkit_kernels.c. */
typedef struct fake_toolkit {
    char fails[64];
    int code;
    char log[512];
    char options[256], kinds[64];
    int alive;
    int archs[4], n_archs;
    int makes_cubin;
} fake_toolkit;

static fake_toolkit *fake;

static void reset_fake(void)
{
    *fake = (fake_toolkit){.archs = {75, 80, 90}, .n_archs = 3, .makes_cubin = 1};
}

static int find_fake(void **state)
{
    (void)state;
    void *library = dlopen(HD_TEST_KERNELS, RTLD_NOW | RTLD_LOCAL);
    fake = library ? dlsym(library, "fake_toolkit_state") : NULL;
    return fake ? 0 : -1;
}

static const char *last_message(void)
{
    static hd_error error;
    error.size = sizeof error;
    hd_last_error(&error);
    return error.message;
}

static bool says(const char *text)
{
    return strstr(last_message(), text) != NULL;
}

static const char *const mixed[] = {"mixed<float>"};

static hd_status compile_fake(hdi_made_code *made)
{
    hdi_nvrtc nvrtc;
    hd_compile_options o = {
        .name = "a.cu", .options = (const char *const[]){"-DN=4"}, .n_options = 1, .kernels = mixed, .n_kernels = 1};
    hd_status status = hdi_nvrtc_open(HD_TEST_KERNELS, &nvrtc);
    if (!status) {
        status = hdi_nvrtc_compile(&nvrtc, "source", &o, "-arch=sm_90", made);
        hdi_nvrtc_release(&nvrtc);
    }
    return status;
}

static void code_and_names_come_from_the_library(void **state)
{
    (void)state;
    hdi_made_code made;
    reset_fake();
    assert_ok(compile_fake(&made));
    assert_string_equal(fake->options, "-arch=sm_90 -DN=4 ");
    assert_int_equal(made.size, 5);
    assert_string_equal(made.bytes, "cubin");
    assert_int_equal(made.n_aliases, 1);
    assert_string_equal(made.aliases[0].name, "mixed<float>");
    assert_string_equal(made.aliases[0].symbol, "_Z5mixedv");
    hdi_made_code_release(&made);
    fake->makes_cubin = 0;
    assert_ok(compile_fake(&made));
    assert_string_equal(made.bytes, "ptx");
    hdi_made_code_release(&made);
    assert_int_equal(fake->alive, 0);
}

static void each_call_of_nvrtc_may_fail(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        int code;
        hd_status status;
        const char *text;
    } cases[] = {
        {"nvrtcVersion", 11, HD_ERROR_UNSUPPORTED, "some error"},
        {"nvrtcCreateProgram", 3, HD_ERROR_IMAGE, "some error"},
        {"nvrtcCreateProgram", 1, HD_ERROR_HOST_MEMORY, "out of memory"},
        {"nvrtcAddNameExpression", 3, HD_ERROR_IMAGE, "a.cu(7): error: it is wrong"},
        {"nvrtcCompileProgram", 6, HD_ERROR_IMAGE, "a.cu(7): error: it is wrong"},
        {"nvrtcCompileProgram", 5, HD_ERROR_ARGUMENT, "a.cu(7): error: it is wrong"},
        {"nvrtcCompileProgram", 1, HD_ERROR_HOST_MEMORY, "a.cu(7): error: it is wrong"},
        {"nvrtcGetLoweredName", 10, HD_ERROR_IMAGE, "the source has no kernel 'mixed<float>'"},
        {"nvrtcGetCUBIN", 11, HD_ERROR_IMAGE, "a.cu(7): error: it is wrong"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdi_made_code made;
        reset_fake();
        strcpy(fake->fails, cases[i].call);
        strcpy(fake->log, "a.cu(3): warning: never mind\n\na.cu(7): error: it is wrong\n    here\n");
        fake->code = cases[i].code;
        assert_status(compile_fake(&made), cases[i].status);
        assert_true(says(cases[i].text));
        assert_false(says("here"));
        assert_int_equal(fake->alive, 0);
    }
    reset_fake();
    fake->makes_cubin = 0;
    strcpy(fake->fails, "nvrtcGetPTXSize");
    fake->code = 4;
    hdi_made_code made;
    assert_status(compile_fake(&made), HD_ERROR_IMAGE);
    assert_int_equal(fake->alive, 0);
}

static void a_library_that_is_none_is_refused(void **state)
{
    (void)state;
    hdi_nvrtc nvrtc;
    assert_status(hdi_nvrtc_open("/nowhere/libnvrtc.so", &nvrtc), HD_ERROR_UNSUPPORTED);
    assert_true(says("/nowhere/libnvrtc.so"));
    assert_true(says("option nvrtc"));
    assert_status(hdi_nvrtc_open("libm.so.6", &nvrtc), HD_ERROR_UNSUPPORTED);
    assert_true(says("it is not NVRTC"));
    assert_status(hdi_nvrtc_open("", &nvrtc), HD_ERROR_UNSUPPORTED);
    hdi_made_code made;
    hd_code_part part = {".version 7.0\n", 13, NULL};
    assert_status(hdi_link("/nowhere/libnvJitLink.so", &part, 1, 90, &made), HD_ERROR_UNSUPPORTED);
    assert_true(says("option nvjitlink"));
    assert_status(hdi_link("libm.so.6", &part, 1, 90, &made), HD_ERROR_UNSUPPORTED);
}

static void code_is_made_for_the_devices(void **state)
{
    (void)state;
    static const struct {
        int lowest;
        bool all_alike;
        const char *option;
    } cases[] = {{90, true, "-arch=sm_90"},
                 {80, false, "-arch=compute_80"},
                 {86, true, "-arch=compute_80"},
                 {120, true, "-arch=compute_90"}};
    hdi_nvrtc nvrtc;
    char option[32];
    reset_fake();
    assert_ok(hdi_nvrtc_open(HD_TEST_KERNELS, &nvrtc));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(hdi_nvrtc_choose(&nvrtc, cases[i].lowest, cases[i].all_alike, option));
        assert_string_equal(option, cases[i].option);
    }
    assert_status(hdi_nvrtc_choose(&nvrtc, 70, true, option), HD_ERROR_UNSUPPORTED);
    assert_true(says("compute capability 7.5 and later, a device has 7.0"));
    fake->n_archs = 0;
    assert_status(hdi_nvrtc_choose(&nvrtc, 90, true, option), HD_ERROR_UNSUPPORTED);
    hdi_nvrtc_release(&nvrtc);
}

/* ---- the real libraries ---- */

/* With sanitizers the loader does not find a library's dependencies, and leaks of these would
 * count. */
static void need_real_libraries(void)
{
    if (TEST_ASAN || TEST_TSAN) {
        skip();
    }
}

static const char *option_of(const char *variable)
{
    const char *value = getenv(variable);
    return value && value[0] ? value : "auto";
}

static const char source[] =
    "#include <heddle/kernel.h>\n"
    "#include <assert.h>\n#include <math.h>\n#include <stdio.h>\n"
    "HD_KERNEL(ours, HD_OUT(float, y), HD_VALUE(uint64_t, n)) {\n"
    "    assert(n > 0);\n    hd_assert(n < 9);\n    printf(\"%d\", 1);\n    hd_printf(\"2\");\n"
    "    float x = hd_f16_to_f32(hd_f16_from_f32(expf(1))) + hd_warp_reduce_add_f32(1);\n"
    "    if (hd_global_x() < n) hd_atomic_max_f32(y + hd_global_x(), x); }\n"
    "template <class T, int N> __global__ void fill(T *y, T v) { y[N] = v; }\n";
static const char at_line_13[] = "__global__ void wrong() { undeclared = 1; }\n";

static void check_real(const hdi_nvrtc *nvrtc, const char *arch, hdi_image_kind kind)
{
    static const char *const kernels[] = {"fill<uint64_t, 3>"};
    hd_compile_options o = {.name = "b.cu", .kernels = kernels, .n_kernels = 1};
    hdi_made_code made;
    assert_ok(hdi_nvrtc_compile(nvrtc, source, &o, arch, &made));
    hdi_image image;
    const void *code;
    size_t code_bytes;
    assert_ok(hdi_image_open(made.bytes, made.size, false, &image, &code, &code_bytes));
    assert_int_equal(image.kind, kind);
    assert_int_equal(image.listing.kernels.n, 2);
    assert_ok(hdi_image_add_alias(&image, made.aliases[0].name, made.aliases[0].symbol));
    const char *symbol;
    char shown[HDI_KERNEL_NAME_BYTES];
    assert_ok(hdi_image_find(&image, "fill<uint64_t, 3>", &symbol, shown));
    hdi_signature s = {.described = false};
    assert_ok(hdi_image_describe(&image, symbol, &s));
    assert_int_equal(s.n_params, 2);
    assert_int_equal(s.params[1].offset, 8);
    assert_int_equal(s.params[1].size, 8);
    free(s.params);
    assert_ok(hdi_image_find(&image, "ours", &symbol, shown));
    hdi_image_release(&image);
    hdi_made_code_release(&made);
}

static void the_real_compiler(void **state)
{
    (void)state;
    need_real_libraries();
    hdi_nvrtc nvrtc;
    if (hdi_nvrtc_open(option_of("HEDDLE_NVRTC"), &nvrtc) != HD_OK) {
        test_without("NVRTC");
        skip();
    }
    char arch[32];
    assert_ok(hdi_nvrtc_choose(&nvrtc, 90, true, arch));
    assert_string_equal(arch, "-arch=sm_90");
    check_real(&nvrtc, arch, HDI_IMAGE_BINARY);
    check_real(&nvrtc, "-arch=compute_80", HDI_IMAGE_PTX);
    char wrong[1024];
    snprintf(wrong, sizeof wrong, "%s%s", source, at_line_13);
    hd_compile_options o = {.name = "b.cu"};
    hdi_made_code made;
    assert_status(hdi_nvrtc_compile(&nvrtc, wrong, &o, arch, &made), HD_ERROR_IMAGE);
    assert_true(says("b.cu(13): error"));
    assert_true(says("undeclared"));
    o.options = (const char *const[]){"--no-such-option"};
    o.n_options = 1;
    assert_status(hdi_nvrtc_compile(&nvrtc, source, &o, arch, &made), HD_ERROR_ARGUMENT);
    assert_true(says("no-such-option"));
    hd_compile_options missing = {.name = "b.cu", .kernels = (const char *const[]){"absent<int>"}, .n_kernels = 1};
    assert_status(hdi_nvrtc_compile(&nvrtc, source, &missing, arch, &made), HD_ERROR_IMAGE);
    assert_true(says("absent"));
    hdi_nvrtc_release(&nvrtc);
}

/* ---- linking ---- */

static const char caller_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                 ".extern .func (.param .b32 out) twice(.param .b32 in);\n"
                                 ".visible .entry run(.param .u64 y)\n{\n"
                                 "    .reg .b64 %rd<2>;\n    .reg .b32 %r<3>;\n    ld.param.u64 %rd1, [y];\n"
                                 "    ld.global.u32 %r1, [%rd1];\n    {\n    .param .b32 p;\n    .param .b32 q;\n"
                                 "    st.param.b32 [p], %r1;\n    call.uni (q), twice, (p);\n"
                                 "    ld.param.b32 %r2, [q];\n    }\n    st.global.u32 [%rd1], %r2;\n    ret;\n}\n";
static const char callee_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                 ".visible .func (.param .b32 out) twice(.param .b32 in)\n{\n"
                                 "    .reg .b32 %r<3>;\n    ld.param.b32 %r1, [in];\n    add.s32 %r2, %r1, %r1;\n"
                                 "    st.param.b32 [out], %r2;\n    ret;\n}\n";

static void each_call_of_the_linker_may_fail(void **state)
{
    (void)state;
    static const char intermediate[8] = {(char)0xed, 'C', 'N', 0x7f};
    hd_code_part parts[] = {{caller_ptx, sizeof caller_ptx, NULL},
                            {"!<arch>\nxxxx", 12, "libx.a"},
                            {intermediate, sizeof intermediate, "x.ltoir"}};
    hdi_made_code made;
    reset_fake();
    assert_ok(hdi_link(HD_TEST_KERNELS, parts, 2, 90, &made));
    assert_string_equal(fake->options, "-arch=sm_90 ");
    assert_string_equal(fake->kinds, "26");
    assert_string_equal(made.bytes, "linked");
    hdi_made_code_release(&made);
    assert_ok(hdi_link(HD_TEST_KERNELS, parts, 3, 90, &made));
    assert_string_equal(fake->options, "-arch=sm_90 -lto ");
    assert_string_equal(fake->kinds, "263");
    hdi_made_code_release(&made);
    static const char *const calls[] = {"nvJitLinkCreate", "nvJitLinkAddData", "nvJitLinkComplete",
                                        "nvJitLinkGetLinkedCubinSize", "nvJitLinkGetLinkedCubin"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        reset_fake();
        strcpy(fake->fails, calls[i]);
        strcpy(fake->log, "error: 'twice' is missing\nmore\n");
        fake->code = 8;
        assert_status(hdi_link(HD_TEST_KERNELS, parts, 2, 90, &made), HD_ERROR_IMAGE);
        assert_true(says(i == 0 ? "nvJitLink's code 8" : "'twice' is missing"));
        assert_false(says("more"));
        assert_int_equal(fake->alive, 0);
    }
    reset_fake();
    parts[1] = (hd_code_part){"nothing of the kind", 19, "noise"};
    assert_status(hdi_link(HD_TEST_KERNELS, parts, 2, 90, &made), HD_ERROR_ARGUMENT);
    assert_true(says("noise"));
    assert_int_equal(fake->alive, 0);
}

static void the_real_linker(void **state)
{
    (void)state;
    need_real_libraries();
    const char *option = option_of("HEDDLE_NVJITLINK");
    hd_code_part parts[] = {{caller_ptx, sizeof caller_ptx - 1, "caller"}, {callee_ptx, sizeof callee_ptx, "callee"}};
    hdi_made_code made;
    hd_status status = hdi_link(option, parts, 2, 90, &made);
    if (status == HD_ERROR_UNSUPPORTED) {
        test_without("nvJitLink");
        skip();
    }
    assert_ok(status);
    hdi_image image;
    const void *code;
    size_t code_bytes;
    assert_ok(hdi_image_open(made.bytes, made.size, false, &image, &code, &code_bytes));
    assert_int_equal(image.listing.kernels.n, 1);
    assert_string_equal(image.listing.kernels.of[0].symbol, "run");
    assert_false(image.listing.relocatable);
    hdi_image_release(&image);
    hdi_made_code_release(&made);
    assert_status(hdi_link(option, parts, 1, 90, &made), HD_ERROR_IMAGE);
    assert_true(says("twice"));
}

/* ---- the cache ---- */

static char folder[] = "/tmp/heddle-code-XXXXXX";

static hdi_code_key key_of(const char *text)
{
    hdi_nvrtc nvrtc = {.major = 13, .minor = 1};
    hd_compile_options o = {.name = "a.cu", .options = (const char *const[]){"-DN=4"}, .n_options = 1};
    hdi_code_key key;
    assert_true(hdi_code_key_make(&nvrtc, text, &o, "-arch=sm_90", &key));
    return key;
}

static hdi_made_code some_code(void)
{
    static hdi_alias aliases[] = {{(char *)"f<int>", (char *)"_Z1fIiEvv"}};
    return (hdi_made_code){(char *)"some code", 9, aliases, 1};
}

/* Returns the path of the only file in the folder. */
static void only_file(char path[512])
{
    DIR *directory = opendir(folder);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] != '.') {
            snprintf(path, 512, "%s/%.255s", folder, entry->d_name);
            n++;
        }
    }
    closedir(directory);
    assert_int_equal(n, 1);
}

static void kept_code_is_that_of_its_key(void **state)
{
    (void)state;
    hdi_code_key key = key_of("source"), other = key_of("sourcf");
    hdi_made_code code = some_code(), got;
    assert_false(hdi_code_cache_load(folder, &key, &got));
    hdi_code_cache_save(folder, &key, &code);
    assert_true(hdi_code_cache_load(folder, &key, &got));
    assert_int_equal(got.size, 9);
    assert_string_equal(got.bytes, "some code");
    assert_int_equal(got.n_aliases, 1);
    assert_string_equal(got.aliases[0].name, "f<int>");
    assert_string_equal(got.aliases[0].symbol, "_Z1fIiEvv");
    hdi_made_code_release(&got);
    assert_false(hdi_code_cache_load(folder, &other, &got));
    /* gives this file the other key's name, as if both keys had the same hash */
    char path[512], link_path[512];
    only_file(path);
    hdi_code_cache_save(folder, &other, &code);
    snprintf(link_path, sizeof link_path, "%s/moved", folder);
    assert_int_equal(rename(path, link_path), 0);
    char other_path[512] = "";
    DIR *directory = opendir(folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strncmp(entry->d_name, "code-", 5) == 0) {
            snprintf(other_path, sizeof other_path, "%s/%.255s", folder, entry->d_name);
        }
    }
    closedir(directory);
    assert_int_equal(rename(link_path, other_path), 0);
    assert_false(hdi_code_cache_load(folder, &other, &got));
    unlink(other_path);
    hdi_code_key_release(&key);
    hdi_code_key_release(&other);
}

static void damaged_and_foreign_files_are_not_used(void **state)
{
    (void)state;
    hdi_code_key key = key_of("source");
    hdi_made_code code = some_code(), got;
    hdi_code_cache_save(folder, &key, &code);
    char path[512], content[2048], changed[2048];
    only_file(path);
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, content, sizeof content);
    close(fd);
    assert_true(bytes > 60);
    for (ssize_t i = 0; i < bytes; i++) {
        memcpy(changed, content, (size_t)bytes);
        changed[i] = (char)(changed[i] ^ 4);
        fd = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, changed, (size_t)bytes), bytes);
        close(fd);
        assert_false(hdi_code_cache_load(folder, &key, &got));
        assert_int_equal(truncate(path, 0), 0);
        fd = open(path, O_WRONLY);
        assert_int_equal(write(fd, content, (size_t)i), i); /* cut off */
        close(fd);
        assert_false(hdi_code_cache_load(folder, &key, &got));
    }
    hdi_code_cache_save(folder, &key, &code);
    assert_int_equal(chmod(path, 0622), 0); /* others could have written it */
    assert_false(hdi_code_cache_load(folder, &key, &got));
    hdi_code_cache_save(folder, &key, &code);
    assert_true(hdi_code_cache_load(folder, &key, &got));
    hdi_made_code_release(&got);
    unlink(path);
    hdi_code_key_release(&key);
}

static void the_folder_has_an_end(void **state)
{
    (void)state;
    char path[512];
    for (int i = 0; i < 3; i++) { /* 100 MiB each without blocks, the first is the oldest */
        snprintf(path, sizeof path, "%s/code-000000000000000%d.bin", folder, i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        assert_int_equal(ftruncate(fd, 100 << 20), 0);
        const struct timespec times[] = {{1000 + i, 0}, {1000 + i, 0}};
        assert_int_equal(futimens(fd, times), 0);
        close(fd);
    }
    hdi_code_key key = key_of("source");
    hdi_made_code code = some_code(), got;
    hdi_code_cache_save(folder, &key, &code);
    snprintf(path, sizeof path, "%s/code-0000000000000000.bin", folder);
    assert_int_equal(access(path, F_OK), -1);
    for (int i = 1; i < 3; i++) {
        snprintf(path, sizeof path, "%s/code-000000000000000%d.bin", folder, i);
        assert_int_equal(unlink(path), 0);
    }
    assert_true(hdi_code_cache_load(folder, &key, &got));
    hdi_made_code_release(&got);
    only_file(path);
    unlink(path);
    hdi_code_key_release(&key);
}

static void sources_that_name_files_are_not_kept(void **state)
{
    (void)state;
    static const char *const kept[] = {"", "#include <heddle/kernel.h>\n", "# include<cuda_fp16.h>\n#define N 4\n",
                                       "a # b"};
    static const char *const not [] = {"#include \"a.h\"\n",     "int x;\n #  include  \"a.h\"\n",
                                       "#include MACRO\n",       "#include </tmp/a>\n",
                                       "#include <../a>\n",      "%:include <a>\n",
                                       "#inc\\\nlude \"a\"\n",   "#if __has_include(<a>)\n",
                                       "#include_next \"x\"\n",  "#embed \"data\"\n",
                                       "#/**/include \"a.h\"\n", "# /* x */ include \"a.h\"\n",
                                       "#\finclude \"a.h\"\n",   "#\vinclude \"a.h\"\n",
                                       "#inc\\\r\nlude \"a\"\n", "#inc\\ \nlude \"a\"\n",
                                       "#include/**/<./a.h>\n",  "#include <dir/../../a.h>\n",
                                       "#include <dir//a.h>\n",  "#inc?\?/\nlude \"a.h\"\n",
                                       "#include <a.h\n>\n",     "asm(\".incbin \\\"x\\\"\");\n"};
    static const char *const plain[] = {"-DN=4", "-std=c++20", "--use_fast_math"};
    static const char *const naming[] = {"-I/tmp", "-I", "--include-path=/tmp", "-include", "--pre-include=a.h"};
    hd_compile_options o = {.options = plain, .n_options = 3};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        assert_true(hdi_code_cache_allows(kept[i], &o));
    }
    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++) {
        assert_false(hdi_code_cache_allows(not [i], &o));
    }
    for (size_t i = 0; i < sizeof naming / sizeof naming[0]; i++) {
        o = (hd_compile_options){.options = &naming[i], .n_options = 1};
        assert_false(hdi_code_cache_allows("", &o));
    }
}

/* ---- the same compared with a slow and simple preprocessor ---- */

static void erase(char *text, size_t n)
{
    memmove(text, text + n, strlen(text + n) + 1);
}

/* Does a compiler's first phases: trigraphs, continued lines, comments. */
static void preprocess(char *text)
{
    for (char *p = text; *p; p++) {
        if (strncmp(p, "?\?=", 3) == 0 || strncmp(p, "?\?/", 3) == 0) {
            *p = p[2] == '=' ? '#' : '\\';
            erase(p + 1, 2);
        }
    }
    for (char *p = text; *p;) {
        size_t blanks = *p == '\\' ? strspn(p + 1, " \t\v\f\r") : 0;
        if (*p == '\\' && p[1 + blanks] == '\n') {
            erase(p, blanks + 2);
        } else {
            p++;
        }
    }
    for (char *p = text; *p; p++) {
        char *end = strncmp(p, "/*", 2) == 0 ? strstr(p + 2, "*/") : NULL;
        if (end) {
            *p = ' ';
            erase(p + 1, (size_t)(end + 1 - p));
        } else if (strncmp(p, "//", 2) == 0) {
            erase(p, strcspn(p, "\n"));
            p -= p > text;
        }
    }
}

static bool includes_a_file(const char *code)
{
    char text[512];
    snprintf(text, sizeof text, "%s", code);
    preprocess(text);
    bool found = false;
    for (char *line = text; line && !found; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char *at = line + strspn(line, " \t\v\f\r");
        size_t mark = *at == '#' ? 1 : strncmp(at, "%:", 2) == 0 ? 2 : 0;
        at += mark;
        at += strspn(at, " \t\v\f\r");
        bool names = mark && (strncmp(at, "include", 7) == 0 || strncmp(at, "embed", 5) == 0);
        at += names ? strspn(at, "abcdefghijklmnopqrstuvwxyzM_") : 0;
        at += strspn(at, " \t\v\f\r");
        found = names && strncmp(at, "<a.h>", 5) != 0;
    }
    return found;
}

static void no_spelling_of_a_name_is_kept(void **state)
{
    (void)state;
    static const char *const pieces[] = {"#",  "#",  "%:", "?\?=", "include", "include", "inc",     "lude",     "embed",
                                         " ",  "\t", "\v", "\f",   "\r",      "\n",      "\n",      "\\",       "?\?/",
                                         "/*", "*/", "//", "x",    "<a.h>",   "\"a.h\"", "\"a.h\"", "<../a.h>", "M"};
    const hd_compile_options o = {.n_options = 0};
    uint64_t random = 1;
    int naming = 0, kept = 0;
    for (int i = 0; i < 300000; i++) {
        char code[256] = "";
        for (int n = 2 + i % 12; n > 0; n--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            strcat(code, pieces[(random >> 33) % (sizeof pieces / sizeof pieces[0])]);
        }
        bool names = includes_a_file(code), allowed = hdi_code_cache_allows(code, &o);
        if (names && allowed) {
            fail_msg("a source that names a file is kept: %s", code);
        }
        naming += names;
        kept += allowed;
    }
    assert_true(naming > 1000 && kept > 1000);
}

static bool same_key(const hdi_nvrtc *n, const hd_compile_options *a, const hdi_nvrtc *m, const hd_compile_options *b)
{
    hdi_code_key first, second;
    assert_true(hdi_code_key_make(n, "source", a, "sm_90", &first) &&
                hdi_code_key_make(m, "source", b, "sm_90", &second));
    bool same = first.size == second.size && memcmp(first.bytes, second.bytes, first.size) == 0;
    hdi_code_key_release(&first);
    hdi_code_key_release(&second);
    return same;
}

static void calls_that_differ_have_different_keys(void **state)
{
    (void)state;
    static const char *const define[] = {"-DX1"};
    const hdi_nvrtc n = {.major = 12, .minor = 4};
    const hd_compile_options in_name = {.name = "k.cu\noption 4 -DX1"}, plain = {.name = "k.cu"},
                             defined = {.name = "k.cu", .options = define, .n_options = 1};
    assert_true(same_key(&n, &plain, &n, &plain));
    assert_false(same_key(&n, &in_name, &n, &defined));
    assert_false(same_key(&n, &plain, &n, &defined));

    /* an update of NVRTC that keeps the version: another file */
    char copy[600], command[2000];
    snprintf(copy, sizeof copy, "%s/nvrtc.so", folder);
    snprintf(command, sizeof command, "cp %s %s && touch -d 2001-02-03 %s", HD_TEST_KERNELS, copy, copy);
    assert_int_equal(system(command), 0);
    hdi_nvrtc before, after;
    assert_ok(hdi_nvrtc_open(HD_TEST_KERNELS, &before));
    assert_ok(hdi_nvrtc_open(copy, &after));
    assert_int_equal(before.minor, after.minor);
    assert_false(same_key(&before, &plain, &after, &plain));
    assert_true(same_key(&before, &plain, &before, &plain));
    hdi_nvrtc_release(&before);
    hdi_nvrtc_release(&after);
    unlink(copy);
}

static int make_folder(void **state)
{
    return find_fake(state) || !mkdtemp(folder) ? -1 : 0;
}

static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_and_names_come_from_the_library),
        cmocka_unit_test(each_call_of_nvrtc_may_fail),
        cmocka_unit_test(a_library_that_is_none_is_refused),
        cmocka_unit_test(code_is_made_for_the_devices),
        cmocka_unit_test(the_real_compiler),
        cmocka_unit_test(each_call_of_the_linker_may_fail),
        cmocka_unit_test(the_real_linker),
        cmocka_unit_test(kept_code_is_that_of_its_key),
        cmocka_unit_test(damaged_and_foreign_files_are_not_used),
        cmocka_unit_test(the_folder_has_an_end),
        cmocka_unit_test(sources_that_name_files_are_not_kept),
        cmocka_unit_test(no_spelling_of_a_name_is_kept),
        cmocka_unit_test(calls_that_differ_have_different_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
