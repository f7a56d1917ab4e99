/* cc_gpu.c - makes the GPU's part: PTX from kernel source by clang or nvcc, a fatbin from CUDA C++
 * by nvcc.
 *
 * Each source is compiled by itself. With clang, the last source is linked with the bitcode of the
 * others. With nvcc, the PTX texts are joined. Either way, helpers and constants of two sources may
 * share a name. If sources call functions of a math library, clang compiles them again with the
 * library. nvcc comes with its own library.
 * Threads: the program's first. Locks: none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cc.h"
#include "cli/common/output.h"
#include "cli/process.h"
#include "cli/cc_math.h"
#include "cli/cc_messages.h"
#include "cli/cc_source.h"
#include "cli/cc_tables.h"
#include "cli/cli.h"

/* Links the last source with the bitcode of the others, then with the library, which defines
 * functions that any of them calls. */
static void gpu_part_add_bitcode(const cc_settings *s, const cc_math_library *math, cli_command *command)
{
    for (size_t i = 0; i + 1 < s->sources.n; i++) {
        char *bitcode = cc_file(s, i, "bc");
        cc_add(command, (const char *const[]){"-Xclang", "-mlink-bitcode-file", "-Xclang", bitcode, NULL});
        free(bitcode);
    }
    if (math != NULL) {
        cc_add(command, (const char *const[]){"-Xclang", "-mlink-builtin-bitcode", "-Xclang", math->file, NULL});
    }
}

static const char *gpu_part_arch(const cc_settings *s)
{
    return s->gpu_arch != NULL ? s->gpu_arch : "sm_70";
}

/* Asks for PTX that drivers from 2018 on accept. For newer GPUs clang chooses the newer PTX that
 * they need. */
static void gpu_part_add_ptx_version(const cc_settings *s, cli_command *command)
{
    if (atoi(gpu_part_arch(s) + 3) <= 75) {
        cc_add(command, (const char *const[]){"-Xclang", "-target-feature", "-Xclang", "+ptx63", NULL});
    }
}

/* Compiles one source: the last one to PTX with the bitcode of the others, and the others to
 * bitcode. With a math library the last one becomes LLVM text before optimization. `math` is
 * NULL if no library is linked. */
static int gpu_part_compile_by_clang(cc_settings *s, const cli_command *clang, const cc_math_library *math,
                                     size_t source)
{
    bool last = source + 1 == s->sources.n;
    cli_command command = {0};
    char *arch = cli_format("--cuda-gpu-arch=%s", gpu_part_arch(s)), *level = cli_format("-O%s", s->level);
    /* in front of the system's <math.h> */
    char *headers = cli_format("-I%s/heddle/gpu", s->include);
    char *result = cc_file(s, source, !last ? "bc" : math != NULL ? "ll" : "ptx");
    cc_add_list(&command, clang);
    cc_add(&command, (const char *const[]){"-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib",
                                           "--cuda-path=/nonexistent", "-ffreestanding", arch, level, headers,
                                           "-fno-crash-diagnostics", "-fmacro-backtrace-limit=1", NULL});
    cc_add_source_headers(s, &command);
    gpu_part_add_ptx_version(s, &command);
    cc_add(&command, last ? (const char *const[]){"-S", NULL} : (const char *const[]){"-c", "-emit-llvm", NULL});
    if (last) {
        gpu_part_add_bitcode(s, math, &command);
    }
    if (s->debug) {
        /* for profilers; it does not change code */
        cli_command_add(&command, "-gline-tables-only");
    }
    cc_add_list(&command, &s->gpu_only);
    cc_add_list(&command, &s->warnings);
    if (math != NULL) { /* the first compilation printed the warnings */
        cc_add(&command, (const char *const[]){"-w", math->define, NULL});
    }
    if (math != NULL && last) {
        cc_add(&command, (const char *const[]){"-emit-llvm", "-Xclang", "-disable-llvm-passes", NULL});
    }
    int status = cc_compile(s, &command, source, "GPU", result);
    free(arch);
    free(level);
    free(headers);
    free(result);
    cli_command_release(&command);
    return status;
}

/* Adds the options of every nvcc call. */
static void gpu_part_add_nvcc(const cc_settings *s, const cli_command *nvcc, cli_command *command)
{
    cc_add_list(command, nvcc);
    /* these warnings are about host variables in a kernel, which do not work */
    cc_add(command, (const char *const[]){"-diag-error", "20091,20094,20096", NULL});
    for (size_t i = 0; i < s->warnings.n; i++) {
        if (strcmp(s->warnings.arguments[i], "-Werror") == 0) {
            cc_add(command, (const char *const[]){"-Werror", "all-warnings", NULL});
        }
    }
    if (s->debug) {
        cli_command_add(command, "-lineinfo");
    }
    cc_add_list(command, &s->gpu_only);
}

/* nvcc's errors name neither hd_module_link nor the replacement of texture references, so this
 * function prints hints. */
static void gpu_part_print_hints(const char *source)
{
    if (cc_source_has(source, "<<<")) {
        cli_complain("cc", "note: if a kernel launches kernels, compile the source with nvcc -rdc=true -dc; "
                           "hd_module_link links the result with libcudadevrt.a");
    }
    if (cc_source_has(source, "texture<") || cc_source_has(source, "surface<")) {
        cli_complain("cc", "note: CUDA 12 removed texture and surface references; pass a texture or surface object, "
                           "or a buffer");
    }
}

static int gpu_part_compile_by_nvcc(cc_settings *s, const cli_command *nvcc, const char *of, size_t source)
{
    cli_command command = {0};
    char *arch = cli_format("-arch=compute_%s", of), *result = cc_file(s, source, "ptx");
    gpu_part_add_nvcc(s, nvcc, &command);
    cc_add(&command, (const char *const[]){"-x", "cu", "-ptx", arch, NULL});
    if (!s->cuda) {
        /* Relocatable code keeps the variables that programs reach visible, and their names
         * survive the joining of texts. CUDA C++ gets no such option here, as for its fatbin,
         * because relocatable code can launch kernels. Headers such as those of CUB then launch
         * kernels. Kernel source sees the functions of C, without the float overloads of C++. */
        cc_add(&command, (const char *const[]){"-rdc=true", "-DHD_KERNEL_SOURCE", NULL});
    }
    int status = cc_compile(s, &command, source, "GPU", result);
    if (status != CLI_OK && s->cuda) {
        gpu_part_print_hints(s->sources.arguments[source]);
    }
    free(arch);
    free(result);
    cli_command_release(&command);
    return status;
}

/* Reads the PTX of all sources and joins it. */
static int gpu_part_join_ptx(cc_settings *s, cc_bytes *ptx)
{
    char **texts = cli_allocate(s->sources.n * sizeof *texts);
    size_t n = 0;
    int status = CLI_OK;
    while (n < s->sources.n && status == CLI_OK) {
        char *path = cc_file(s, n, "ptx");
        cc_bytes one = {0};
        status = cc_read(path, &one);
        free(path);
        if (status == CLI_OK) {
            texts[n++] = one.at;
        }
    }
    if (status == CLI_OK) {
        ptx->at = cc_join(texts, n);
        ptx->bytes = strlen(ptx->at);
    }
    while (n > 0) {
        free(texts[--n]);
    }
    free(texts);
    return status;
}

/* Compiles LLVM text to PTX. For LLVM text, clang fuses products and sums only if the text
 * allows it. The kernel's own text allows it. The library's text does not: its double-length
 * numbers would lose their lower halves. */
static int gpu_part_compile_text(cc_settings *s, const cli_command *clang, const cc_bytes *text, const char *result)
{
    cli_command command = {0};
    char *source = cc_file(s, 0, "mended.ll"), *level = cli_format("-O%s", s->level);
    cc_add_list(&command, clang);
    cc_add(&command, (const char *const[]){"-x", "ir", "--target=nvptx64-nvidia-cuda", "-S", "-w", level, "-Xclang",
                                           "-target-cpu", "-Xclang", gpu_part_arch(s), "-fno-crash-diagnostics", NULL});
    gpu_part_add_ptx_version(s, &command);
    cc_add(&command, (const char *const[]){"-o", result, source, NULL});
    int status = CLI_OK;
    if (!cli_output_write(source, text->at, text->bytes)) {
        status = cc_failed("%s: %s", source, strerror(errno));
    } else if (cli_process_run(&command, s->verbose, NULL, NULL) != 0) {
        status = cc_failed("%s failed for the GPU, with its library of mathematics", command.arguments[0]);
    }
    free(source);
    free(level);
    cli_command_release(&command);
    return status;
}

static int gpu_part_compile_all_by_clang(cc_settings *s, const cli_command *clang, const cc_math_library *math,
                                         cc_bytes *ptx)
{
    int status = CLI_OK;
    for (size_t i = 0; i < s->sources.n && status == CLI_OK; i++) {
        status = gpu_part_compile_by_clang(s, clang, math, i);
    }
    char *path = cc_file(s, s->sources.n - 1, "ptx");
    if (status == CLI_OK && math != NULL) {
        char *text_path = cc_file(s, s->sources.n - 1, "ll");
        cc_bytes text = {0};
        status = cc_read(text_path, &text);
        if (status == CLI_OK) {
            cc_math_mend(&text.at, &text.bytes);
            cc_tables_make_global(&text.at, &text.bytes);
            status = gpu_part_compile_text(s, clang, &text, path);
        }
        free(text.at);
        free(text_path);
    }
    if (status == CLI_OK) {
        status = cc_read(path, ptx);
    }
    free(path);
    return status;
}

/* First compiles without a math library, so that calls of its functions stay external names. Only
 * if there are such calls, compiles again with the library, since clang takes longer to read a
 * library than most sources. */
static int gpu_part_make_by_clang(cc_settings *s, const cli_command *clang, cc_bytes *ptx)
{
    int status = gpu_part_compile_all_by_clang(s, clang, NULL, ptx);
    if (status != CLI_OK || !cc_math_is_called(ptx->at, ptx->bytes)) {
        return status;
    }
    cc_math_library math = cc_math_find(s->math);
    if (math.file != NULL && access(math.file, R_OK) != 0) {
        status = cc_failed("--math %s: %s", math.file, strerror(errno));
    } else if (math.file != NULL) {
        free(ptx->at);
        ptx->at = NULL;
        status = gpu_part_compile_all_by_clang(s, clang, &math, ptx);
    }
    free(math.file);
    return status;
}

static int gpu_part_make_by_nvcc(cc_settings *s, const cli_command *nvcc, cc_bytes *ptx)
{
    char arch[CC_ARCH_BYTES];
    int status = cc_nvcc_arch(s, nvcc, arch);
    for (size_t i = 0; i < s->sources.n && status == CLI_OK; i++) {
        status = gpu_part_compile_by_nvcc(s, nvcc, arch, i);
    }
    return status == CLI_OK ? gpu_part_join_ptx(s, ptx) : status;
}

int cc_make_ptx(cc_settings *s, cc_bytes *ptx)
{
    int status = CLI_OK;
    if (s->given_ptx != NULL) {
        status = cc_read(s->given_ptx, ptx);
    } else {
        cli_command command = {0};
        bool nvcc = false;
        status = cc_find_gpu(&command, &nvcc);
        if (status == CLI_OK) {
            status = nvcc ? gpu_part_make_by_nvcc(s, &command, ptx) : gpu_part_make_by_clang(s, &command, ptx);
        }
        cli_command_release(&command);
    }
    if (status == CLI_OK && cc_messages_ptx(ptx->at, ptx->bytes, (const char *const *)s->sources.arguments)) {
        status = CLI_FAILED;
    }
    return status;
}

/* Checks that the source defines a kernel. A fatbin is compressed, so this looks at the PTX for
 * the oldest GPU. */
static int gpu_part_check_for_kernels(cc_settings *s, const cli_command *nvcc, const char *arch)
{
    cc_settings quiet = *s;
    quiet.depfile = NULL;
    cc_bytes ptx = {0};
    int status = gpu_part_compile_by_nvcc(&quiet, nvcc, arch, 0);
    if (status == CLI_OK) {
        char *path = cc_file(s, 0, "ptx");
        status = cc_read(path, &ptx);
        free(path);
    }
    if (status == CLI_OK && strstr(ptx.at, ".entry") == NULL) {
        status = cc_failed("%s: there is no kernel: none was defined with __global__", s->sources.arguments[0]);
    }
    if (status == CLI_OK && cc_messages_ptx(ptx.at, ptx.bytes, (const char *const *)s->sources.arguments)) {
        status = CLI_FAILED;
    }
    free(ptx.at);
    return status;
}

int cc_make_fatbin(cc_settings *s, cc_bytes *image)
{
    cli_command nvcc = {0}, command = {0};
    char arch[CC_ARCH_BYTES] = "";
    int status = cc_find_nvcc(&nvcc);
    if (status == CLI_OK) {
        status = cc_nvcc_arch(s, &nvcc, arch);
    }
    if (status == CLI_OK) {
        status = gpu_part_check_for_kernels(s, &nvcc, arch);
    }
    if (status == CLI_OK) {
        char *result = cc_file(s, 0, "fatbin");
        char *code = cli_format("arch=compute_%s,code=[sm_%s,compute_%s]", arch, arch, arch);
        gpu_part_add_nvcc(s, &nvcc, &command);
        cc_add(&command, (const char *const[]){"-x", "cu", "-fatbin", NULL});
        cc_add(&command, s->gpu_arch != NULL ? (const char *const[]){"-gencode", code, NULL}
                                             : (const char *const[]){"-arch=all-major", NULL});
        cli_command_add(&command, "-w"); /* nvcc warned before, when it made PTX */
        status = cc_compile(s, &command, 0, "GPU", result);
        if (status == CLI_OK) {
            status = cc_read(result, image);
        }
        free(code);
        free(result);
    }
    cli_command_release(&nvcc);
    cli_command_release(&command);
    return status;
}
