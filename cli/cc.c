/* cc.c - `heddle cc`: compiles C kernel source for GPU and CPU and packs both into a kernel file.
 *
 * clang makes the GPU's part (PTX, no CUDA toolkit), and the C compiler the CPU's part. The descriptions of the
 * kernels come from the compiled CPU code.
 * Threads: the program's first. Locks: none.
 * Always: everything passes through a temporary directory. It is removed at the end, also after INT, TERM and HUP.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <heddle/kernel_file.h>
#include "cli/common/output.h"
#include "cli/common/place.h"
#include "cli/cc_math.h"
#include "cli/cc_messages.h"
#include "cli/cli.h"
#include "cli/process.h"

#ifndef HEDDLE_HEADERS_FROM_TOOL
#define HEDDLE_HEADERS_FROM_TOOL "../include"
#define HEDDLE_HEADERS_INSTALLED "/usr/local/include"
#endif

typedef struct settings {
    const char *source, *output, *given_ptx, *emit_ptx, *gpu_arch, *level, *math;
    bool no_gpu, no_cpu, verbose;
    cli_command both; /* for both compilers */
    cli_command cpu_only;
    char *directory; /* temporary */
    char *include;   /* where heddle/kernel.h is */
} settings;

static int print_help(void)
{
    printf("usage: heddle cc [OPTION]... SOURCE.c\n"
           "\n"
           "Compiles kernel source (C that includes heddle/kernel.h) for GPU and CPU into a kernel file.\n"
           "\n"
           "options:\n"
           "  -o FILE            the kernel file (default: SOURCE.hdk in the current directory)\n"
           "  -O LEVEL           optimisation, 0 to 3 or s (default: 3)\n"
           "  -I DIR, -D NAME[=VALUE], -U NAME, -W...\n"
           "                     as for a C compiler, for GPU and CPU\n"
           "  -m..., -g..., -f...\n"
           "                     as for a C compiler, for the CPU (such as -march=native, -g, -fsanitize=address)\n"
           "  --gpu-arch ARCH    the oldest GPU to run on (default: sm_70)\n"
           "  --math LIBRARY     the mathematics of the GPU's part: auto, libdevice, libclc, none, or a\n"
           "                     file of LLVM bitcode (default: auto, which is libdevice or else libclc)\n"
           "  --no-gpu           leave the GPU's part out: the file runs on host devices only\n"
           "  --no-cpu           leave the CPU's part out: the file runs on GPUs only\n"
           "  --ptx FILE         take this PTX for the GPU's part instead of compiling it\n"
           "  --emit-ptx FILE    write the PTX to a file, too\n"
           "  --verbose          print the commands that are run\n"
           "  --help, -h         print this\n"
           "\n"
           "environment:\n"
           "  CC                 the C compiler (default: cc, gcc or clang)\n"
           "  CLANG              the clang for the GPU's part (default: clang, or the newest clang-N)\n"
           "  CUDA_PATH, CUDA_HOME\n"
           "                     the CUDA toolkit that has libdevice (else that of nvcc, or /usr/local/cuda)\n"
           "  HEDDLE_INCLUDE_DIR the directory that has heddle/kernel.h\n");
    return cli_finish("cc", CLI_OK);
}

static int failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "heddle cc: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    return CLI_FAILED;
}

enum { GPU_ARCH = 256, MATH, PTX, EMIT_PTX, NO_GPU, NO_CPU, VERBOSE }; /* what has a letter is that */

static const struct option options_of_cc[] = {{"gpu-arch", required_argument, NULL, GPU_ARCH},
                                              {"math", required_argument, NULL, MATH},
                                              {"ptx", required_argument, NULL, PTX},
                                              {"emit-ptx", required_argument, NULL, EMIT_PTX},
                                              {"no-gpu", no_argument, NULL, NO_GPU},
                                              {"no-cpu", no_argument, NULL, NO_CPU},
                                              {"verbose", no_argument, NULL, VERBOSE},
                                              CLI_HELP,
                                              {NULL, 0, NULL, 0}};

/* The compilers' own options that are understood: some with a value, some with the rest of their word. */
static int parse_compiler_option(int option, const cli_words *words, settings *s)
{
    if (option == 'I' || option == 'D' || option == 'U') {
        char *argument = cli_format("-%c%s", option, words->value);
        cli_command_add(&s->both, argument);
        free(argument);
    } else if (option == 'W' && strchr(words->word, ',') != NULL) { /* with a comma it goes to another program */
        return cli_usage("cc", "unknown option '%s'", words->word);
    } else {
        cli_command_add(option == 'W' ? &s->both : &s->cpu_only, words->word);
    }
    return CLI_OK;
}

static int parse_option(int option, const cli_words *words, settings *s)
{
    switch (option) {
    case NO_GPU:
        s->no_gpu = true;
        return CLI_OK;
    case NO_CPU:
        s->no_cpu = true;
        return CLI_OK;
    case VERBOSE:
        s->verbose = true;
        return CLI_OK;
    case 'W':
    case 'm':
    case 'g':
    case 'f':
        return parse_compiler_option(option, words, s);
    default:
        break;
    }
    if (words->value[0] == 0) {
        return cli_usage("cc", "%s needs a value", words->word);
    }
    switch (option) {
    case GPU_ARCH:
        s->gpu_arch = words->value;
        return CLI_OK;
    case MATH:
        s->math = words->value;
        return CLI_OK;
    case PTX:
        s->given_ptx = words->value;
        return CLI_OK;
    case EMIT_PTX:
        s->emit_ptx = words->value;
        return CLI_OK;
    case 'o':
        s->output = words->value;
        return CLI_OK;
    case 'O':
        s->level = words->value;
        return CLI_OK;
    default:
        return parse_compiler_option(option, words, s);
    }
}

/* Whether the settings agree with each other. */
static int check_settings(const settings *s)
{
    if (s->source == NULL) {
        return cli_usage("cc", "no source file");
    }
    if (strlen(s->level) != 1 || strchr("0123s", s->level[0]) == NULL) {
        return cli_usage("cc", "-O%s: the levels are 0 to 3 and s", s->level);
    }
    if (strncmp(s->gpu_arch, "sm_", 3) != 0) {
        return cli_usage("cc", "--gpu-arch %s: architectures are named sm_70, sm_80 and so on", s->gpu_arch);
    }
    if (s->no_gpu && (s->no_cpu || s->given_ptx != NULL || s->emit_ptx != NULL)) {
        return cli_usage("cc", "--no-gpu leaves nothing for %s",
                         s->no_cpu      ? "--no-cpu"
                         : s->given_ptx ? "--ptx"
                                        : "--emit-ptx");
    }
    return CLI_OK;
}

static int parse(int argc, char **argv, settings *s, bool *help)
{
    cli_words words = {.command = "cc",
                       .argc = argc,
                       .argv = argv,
                       .options = options_of_cc,
                       .letters = CLI_HELP_LETTER "o:O:I:D:U:W::m::g::f::"};
    int status = CLI_OK, option;
    while (status == CLI_OK && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            status = CLI_USAGE;
        } else if (option == 'h') {
            *help = true;
            return CLI_OK;
        } else if (option != CLI_WORD) {
            status = parse_option(option, &words, s);
        } else if (s->source != NULL) {
            status = cli_usage("cc", "more than one source: %s and %s", s->source, words.word);
        } else {
            s->source = words.word;
        }
    }
    if (status == CLI_OK) {
        status = check_settings(s);
    }
    if (status == CLI_OK) {
        char *optimise = cli_format("-O%s", s->level);
        cli_command_add(&s->both, optimise);
        free(optimise);
    }
    return status;
}

static bool has_header(const char *directory)
{
    char *file = cli_format("%s/heddle/kernel.h", directory);
    bool found = directory[0] != 0 && access(file, R_OK) == 0;
    free(file);
    return found;
}

/* Sets s->include: as in the environment, else where this tool has its headers. */
static int find_include(settings *s)
{
    const char *given = secure_getenv("HEDDLE_INCLUDE_DIR");
    if (given != NULL && given[0] != 0) {
        s->include = cli_format("%s", given);
        return has_header(given) ? CLI_OK : failed("HEDDLE_INCLUDE_DIR is %s, which has no heddle/kernel.h", given);
    }
    char folder[4096];
    if (place_find("include/heddle", HEDDLE_HEADERS_FROM_TOOL[0] ? HEDDLE_HEADERS_FROM_TOOL "/heddle" : NULL,
                   HEDDLE_HEADERS_INSTALLED "/heddle", folder, sizeof folder)) {
        s->include = cli_format("%s/..", folder);
    }
    return s->include != NULL && has_header(s->include)
               ? CLI_OK
               : failed("found no heddle/kernel.h; set HEDDLE_INCLUDE_DIR to its directory");
}

/* Adds the C compiler to the command. */
static int find_cc(cli_command *command)
{
    const char *given = secure_getenv("CC");
    if (given != NULL && given[strspn(given, " \t")] != 0) {
        cli_command_add_words(command, given);
        return CLI_OK;
    }
    static const char *const names[] = {"cc", "gcc", "clang"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (cli_process_exists(names[i])) {
            cli_command_add(command, names[i]);
            return CLI_OK;
        }
    }
    return failed("found no C compiler (cc, gcc or clang); name one with CC");
}

static bool compiles_for_gpus(const char *clang)
{
    cli_command command = {0};
    char *targets = NULL;
    cli_command_add_words(&command, clang);
    cli_command_add(&command, "--print-targets");
    bool good =
        cli_process_run(&command, false, &targets, NULL) == 0 && targets != NULL && strstr(targets, "nvptx64") != NULL;
    free(targets);
    cli_command_release(&command);
    return good;
}

static int find_clang(cli_command *command)
{
    const char *given = secure_getenv("CLANG");
    if (given != NULL && given[strspn(given, " \t")] != 0) {
        cli_command_add_words(command, given);
        return compiles_for_gpus(given) ? CLI_OK : failed("CLANG is %s, which does not compile for NVIDIA GPUs", given);
    }
    for (int version = 0; version <= 17; version++) { /* clang, clang-30 ... clang-14 */
        char *name = version == 0 ? cli_format("clang") : cli_format("clang-%d", 31 - version);
        bool good = cli_process_exists(name) && compiles_for_gpus(name);
        if (good) {
            cli_command_add(command, name);
        }
        free(name);
        if (good) {
            return CLI_OK;
        }
    }
    return failed("found no clang that compiles for NVIDIA GPUs. Install clang (14 or newer), name one with CLANG,\n"
                  "give the PTX with --ptx, or leave the GPU's part out with --no-gpu");
}

static void add_list(cli_command *command, const cli_command *list)
{
    for (size_t i = 0; i < list->n; i++) {
        cli_command_add(command, list->arguments[i]);
    }
}

static void add_strings(cli_command *command, const char *const *strings)
{
    for (; *strings != NULL; strings++) {
        cli_command_add(command, *strings);
    }
}

/* Runs a compiler and reads what it made. `last`: what follows the source. */
static int compile(settings *s, cli_command *command, const char *const *last, const char *what, const char *result,
                   void **content, size_t *bytes)
{
    char *include = cli_format("-I%s", s->include), *messages = NULL;
    add_list(command, &s->both);
    char *source = cli_format("%s%s", s->source[0] == '-' ? "./" : "", s->source);
    if (isatty(STDERR_FILENO)) {
        cli_command_add(command, "-fdiagnostics-color=always"); /* what it writes comes through us */
    }
    add_strings(command, (const char *const[]){include, "-o", result, source, NULL});
    add_strings(command, last);
    int status = cli_process_run(command, s->verbose, NULL, &messages);
    bool told = messages != NULL && status != 127 && cc_messages_print(messages, source);
    free(messages);
    free(include);
    free(source);
    if (status == 127) {
        return failed("cannot run %s", command->arguments[0]);
    }
    if (status != 0) {
        return told ? CLI_FAILED : failed("%s failed for the %s (exit status %d)", command->arguments[0], what, status);
    }
    *content = cli_read_file(result, bytes);
    return *content != NULL ? CLI_OK : failed("%s: %s", result, strerror(errno));
}

/* PTX that drivers from 2018 on take; for newer GPUs clang chooses the newer PTX that they need. */
static void add_ptx_version(const settings *s, cli_command *command)
{
    if (atoi(s->gpu_arch + 3) <= 75) {
        add_strings(command, (const char *const[]){"-Xclang", "-target-feature", "-Xclang", "+ptx63", NULL});
    }
}

/* Compiles the GPU's part with clang: to PTX, or with a library of mathematics to LLVM text that is not optimized yet. */
static int compile_gpu(settings *s, const cli_command *clang, const cc_math_library *math, void **text, size_t *bytes)
{
    cli_command command = {0};
    add_list(&command, clang);
    char *arch = cli_format("--cuda-gpu-arch=%s", s->gpu_arch);
    char *result = cli_format("%s/kernel.%s", s->directory, math != NULL ? "ll" : "ptx");
    char *headers = cli_format("-I%s/heddle/gpu", s->include); /* in front of the system's <math.h> */
    add_strings(&command, (const char *const[]){"-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib",
                                                "--cuda-path=/nonexistent", "-ffreestanding", "-S", arch, headers,
                                                "-fno-crash-diagnostics", "-fmacro-backtrace-limit=1", NULL});
    add_ptx_version(s, &command);
    if (math != NULL) { /* warnings about the source were printed before */
        add_strings(&command, (const char *const[]){"-w", math->define, "-Xclang", "-mlink-builtin-bitcode", "-Xclang",
                                                    math->file, "-emit-llvm", "-Xclang", "-disable-llvm-passes", NULL});
    }
    int status = compile(s, &command, (const char *const[]){NULL}, "GPU", result, text, bytes);
    free(arch);
    free(result);
    free(headers);
    cli_command_release(&command);
    return status;
}

/* Compiles LLVM text to PTX. In this language products and sums are fused where the text allows that, and nowhere else.
 * The kernel's own text allows it, and the library's does not: its long numbers would lose their lower halves. */
static int compile_text(settings *s, const cli_command *clang, void **text, size_t *bytes)
{
    cli_command command = {0};
    add_list(&command, clang);
    char *source = cli_format("%s/mended.ll", s->directory), *result = cli_format("%s/kernel.ptx", s->directory);
    char *level = cli_format("-O%s", s->level);
    add_strings(&command,
                (const char *const[]){"-x", "ir", "--target=nvptx64-nvidia-cuda", "-S", "-w", level, "-Xclang",
                                      "-target-cpu", "-Xclang", s->gpu_arch, "-fno-crash-diagnostics", NULL});
    add_ptx_version(s, &command);
    add_strings(&command, (const char *const[]){"-o", result, source, NULL});
    FILE *file = fopen(source, "wb");
    bool written = file != NULL && fwrite(*text, 1, *bytes, file) == *bytes;
    written = file != NULL && fclose(file) == 0 && written;
    free(*text);
    *text = NULL;
    int status = !written ? failed("%s: %s", source, strerror(errno))
                 : cli_process_run(&command, s->verbose, NULL, NULL) != 0
                     ? failed("%s failed for the GPU, with its library of mathematics", command.arguments[0])
                     : CLI_OK;
    if (status == CLI_OK) {
        *text = cli_read_file(result, bytes);
        status = *text != NULL ? CLI_OK : failed("%s: %s", result, strerror(errno));
    }
    free(source);
    free(result);
    free(level);
    cli_command_release(&command);
    return status;
}

/* Compiles it again with the library, where it calls functions of one. Without a library those stay external names. */
static int add_math(settings *s, const cli_command *clang, void **ptx, size_t *bytes)
{
    if (!cc_math_is_called(*ptx, *bytes)) {
        return CLI_OK;
    }
    cc_math_library math = cc_math_find(s->math);
    int status = CLI_OK;
    if (math.file != NULL && access(math.file, R_OK) != 0) {
        status = failed("--math %s: %s", math.file, strerror(errno));
    } else if (math.file != NULL) {
        free(*ptx);
        *ptx = NULL;
        status = compile_gpu(s, clang, &math, ptx, bytes);
        if (status == CLI_OK) {
            cc_math_mend(ptx, bytes);
            status = compile_text(s, clang, ptx, bytes);
        }
    }
    free(math.file);
    return status;
}

static int make_ptx(settings *s, void **ptx, size_t *bytes)
{
    int status = CLI_OK;
    if (s->given_ptx != NULL) {
        *ptx = cli_read_file(s->given_ptx, bytes);
        if (*ptx == NULL) {
            return failed("%s: %s", s->given_ptx, strerror(errno));
        }
    } else {
        cli_command clang = {0};
        status = find_clang(&clang);
        if (status == CLI_OK) {
            status = compile_gpu(s, &clang, NULL, ptx, bytes);
        }
        if (status == CLI_OK) {
            status = add_math(s, &clang, ptx, bytes);
        }
        cli_command_release(&clang);
    }
    return status == CLI_OK && cc_messages_ptx(*ptx, *bytes, s->source) ? CLI_FAILED : status;
}

static bool is_clang(const cli_command *command)
{
    cli_command asked = {0};
    char *version = NULL;
    add_list(&asked, command);
    cli_command_add(&asked, "--version");
    bool clang = cli_process_run(&asked, false, &version, NULL) == 0 && version != NULL && strstr(version, "clang");
    free(version);
    cli_command_release(&asked);
    return clang;
}

/* Whether the code calls functions of a sanitizer, which the program has. */
static bool is_sanitized(const cli_command *command)
{
    for (size_t i = 0; i < command->n; i++) {
        if (strncmp(command->arguments[i], "-fsanitize", 10) == 0) {
            return true;
        }
    }
    return false;
}

static int make_cpu(settings *s, void **code, size_t *bytes)
{
    cli_command command = {0};
    int status = find_cc(&command);
    if (status == CLI_OK) {
        char *result = cli_format("%s/kernel.so", s->directory);
        /* messages about HD_KERNEL are about the line that has it, not about the macros behind it */
        cli_command_add(&command, is_clang(&command) ? "-fmacro-backtrace-limit=1" : "-ftrack-macro-expansion=0");
        add_strings(&command,
                    (const char *const[]){"-std=gnu11", "-fPIC", "-fvisibility=hidden", "-DHD_CPU_MODULE", NULL});
        cli_command_add(&command, s->no_cpu ? "-c" : "-shared"); /* the description needs no linking */
        add_list(&command, &s->cpu_only);
        if (!s->no_cpu && !is_sanitized(&command)) {
            cli_command_add(&command,
                            "-Wl,-z,defs"); /* else what is missing would be noticed when a program loads it */
        }
        add_strings(&command, (const char *const[]){"-x", "c", NULL});
        const char *const libraries[] = {"-x", "none", "-Wl,--as-needed", "-lm", NULL};
        status = compile(s, &command, s->no_cpu ? libraries + 4 : libraries, "CPU", result, code, bytes);
        free(result);
    }
    cli_command_release(&command);
    return status;
}

static int write_result(const char *path, const void *content, size_t bytes)
{
    return output_write(path, content, bytes) ? CLI_OK : failed("%s: %s", path, strerror(errno));
}

static int pack(settings *s, const void *ptx, size_t ptx_bytes, const void *cpu, size_t cpu_bytes)
{
    hd_kernel_file_parts parts;
    memset(&parts, 0, sizeof parts);
    parts.size = sizeof parts;
    parts.ptx = ptx;
    parts.ptx_bytes = ptx_bytes;
    if (s->no_cpu) {
        parts.description = cpu;
        parts.description_bytes = cpu_bytes;
    } else {
        parts.cpu = &cpu;
        parts.cpu_bytes = &cpu_bytes;
        parts.n_cpu = 1;
    }
    void *image = NULL;
    size_t bytes = 0;
    if (hd_kernel_file_build(&parts, &image, &bytes) != HD_OK) {
        return failed("%s: %s", s->source, hd_message());
    }
    int status = CLI_OK;
    if (s->emit_ptx != NULL) {
        status = write_result(s->emit_ptx, ptx, ptx_bytes);
    }
    if (status == CLI_OK) {
        status = write_result(s->output, image, bytes);
    }
    free(image);
    return status;
}

/* SOURCE.hdk, without the source's directory and its .c. */
static char *default_output(const char *source)
{
    const char *slash = strrchr(source, '/');
    const char *name = slash != NULL ? slash + 1 : source;
    const char *dot = strrchr(name, '.');
    return cli_format("%.*s.hdk", (int)(dot != NULL && dot != name ? (size_t)(dot - name) : strlen(name)), name);
}

static int make_directory(settings *s)
{
    const char *base = secure_getenv("TMPDIR");
    s->directory = cli_format("%s/heddle-cc-XXXXXX", base != NULL && base[0] != 0 ? base : "/tmp");
    if (mkdtemp(s->directory) == NULL) {
        int status = failed("%s: %s", s->directory, strerror(errno));
        free(s->directory);
        s->directory = NULL;
        return status;
    }
    return CLI_OK;
}

static void remove_directory(settings *s)
{
    static const char *const names[] = {"kernel.ptx", "kernel.so"};
    for (size_t i = 0; s->directory != NULL && i < sizeof names / sizeof names[0]; i++) {
        char *file = cli_format("%s/%s", s->directory, names[i]);
        unlink(file);
        free(file);
    }
    if (s->directory != NULL) {
        rmdir(s->directory);
        free(s->directory);
    }
}

int cli_cc(int argc, char **argv)
{
    settings s;
    memset(&s, 0, sizeof s);
    s.gpu_arch = "sm_70";
    s.level = "3";
    s.math = "auto";
    void *ptx = NULL, *cpu = NULL;
    size_t ptx_bytes = 0, cpu_bytes = 0;
    char *output = NULL;
    bool help = false;
    int status = parse(argc, argv, &s, &help);
    if (help) {
        cli_command_release(&s.both);
        cli_command_release(&s.cpu_only);
        return print_help();
    }
    if (status == CLI_OK && access(s.source, R_OK) != 0) {
        status = failed("%s: %s", s.source, strerror(errno));
    }
    if (status == CLI_OK) {
        if (s.output == NULL) {
            s.output = output = default_output(s.source);
        }
        status = find_include(&s);
    }
    if (status == CLI_OK) {
        cli_process_begin();
        status = make_directory(&s);
        if (status == CLI_OK) {
            status = make_cpu(&s, &cpu, &cpu_bytes);
        }
        if (status == CLI_OK && !s.no_gpu) {
            status = make_ptx(&s, &ptx, &ptx_bytes);
        }
        if (status == CLI_OK) {
            status = pack(&s, ptx, ptx_bytes, cpu, cpu_bytes);
        }
        remove_directory(&s);
        cli_process_end();
    }
    free(ptx);
    free(cpu);
    free(output);
    free(s.include);
    cli_command_release(&s.both);
    cli_command_release(&s.cpu_only);
    return status;
}
