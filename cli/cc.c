/* cc.c - `heddle cc`: compiles kernel source for GPU and CPU and packs both into a kernel file, and
 * CUDA C++ into a fatbin.
 *
 * clang makes the GPU's part (PTX), and needs no CUDA toolkit. If clang is missing, nvcc makes this
 * part. The C compiler makes the CPU's part. The descriptions of the kernels come from the compiled
 * CPU code. This file parses options and runs the steps; cc.h lists the other files.
 * Threads: the program's first. Locks: none.
 * Always: everything passes through a temporary directory. It is removed at the end, also after
 * INT, TERM and HUP.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <heddle/kernel_file.h>
#include "cli/common/output.h"
#include "cli/common/place.h"
#include "cli/cc.h"
#include "cli/cc_messages.h"
#include "cli/cc_source.h"
#include "cli/cli.h"

#ifndef HEDDLE_HEADERS_FROM_TOOL
#define HEDDLE_HEADERS_FROM_TOOL "../include"
#define HEDDLE_HEADERS_INSTALLED "/usr/local/include"
#endif

static int cc_print_help(void)
{
    printf(
        "usage: heddle cc [OPTION]... SOURCE.c...\n"
        "       heddle cc [OPTION]... SOURCE.cu\n"
        "\n"
        "Compiles kernel source (C that includes heddle/kernel.h) for GPU and CPU into a kernel file.\n"
        "CUDA C++ (.cu, .cuh) becomes a fatbin, by nvcc. hd_module_load_file loads both.\n"
        "\n"
        "options:\n"
        "  -o FILE            the result (default: the first source's name with .hdk or .fatbin)\n"
        "  -O LEVEL           optimisation, 0 to 3 or s (default: 3)\n"
        "  -I DIR, -D NAME[=VALUE], -U NAME, -W...\n"
        "                     as for a C compiler, for GPU and CPU\n"
        "  -m..., -f...       as for a C compiler, for the CPU (such as -march=native, -fsanitize=address)\n"
        "  -g...              as for a C compiler; the GPU's part gets the lines of the source\n"
        "  -std=STANDARD      of C for the CPU (default: gnu11), of C++ for the GPU\n"
        "  -l NAME, -L DIR, -Wl,...\n"
        "                     as for a C compiler, for the CPU's code\n"
        "  --gpu-arch ARCH    the oldest GPU to run on (default: sm_70, or the oldest that nvcc has)\n"
        "  --math LIBRARY     the mathematics of the GPU's part: auto, libdevice, libclc, none, or a\n"
        "                     file of LLVM bitcode (default: auto, which is libdevice or else libclc);\n"
        "                     nvcc has its own\n"
        "  --no-gpu           leave the GPU's part out: the file runs on host devices only\n"
        "  --no-cpu           leave the CPU's part out: the file runs on GPUs only\n"
        "  --ptx FILE         take this PTX for the GPU's part instead of compiling it\n"
        "  --emit-ptx FILE    write the PTX to a file, too\n"
        "  --embed NAME       write C source that has the file as NAME and NAME_size, and its header\n"
        "                     (default of -o: NAME.c)\n"
        "  --depfile FILE     write a rule for make: what the result is made from\n"
        "  --verbose          print the commands that are run\n"
        "  --help, -h         print this\n"
        "\n"
        "environment:\n"
        "  CC                 the C compiler (default: cc, gcc or clang)\n"
        "  CLANG              the clang for the GPU's part (default: clang, or the newest clang-N)\n"
        "  NVCC               the nvcc for the GPU's part and for CUDA C++ (default: where there is no clang, nvcc in\n"
        "                     PATH, CUDA_HOME, CUDA_PATH or /usr/local/cuda)\n"
        "  CUDA_PATH, CUDA_HOME\n"
        "                     the CUDA toolkit that has libdevice (else that of nvcc, or /usr/local/cuda)\n"
        "  HEDDLE_INCLUDE_DIR the directory that has heddle/kernel.h\n");
    return cli_finish("cc", CLI_OK);
}

/* the letter of an option is its own value */
enum { GPU_ARCH = 256, MATH, PTX, EMIT_PTX, NO_GPU, NO_CPU, EMBED, DEPFILE, VERBOSE };

static const struct option options_of_cc[] = {{"gpu-arch", required_argument, NULL, GPU_ARCH},
                                              {"math", required_argument, NULL, MATH},
                                              {"ptx", required_argument, NULL, PTX},
                                              {"emit-ptx", required_argument, NULL, EMIT_PTX},
                                              {"no-gpu", no_argument, NULL, NO_GPU},
                                              {"no-cpu", no_argument, NULL, NO_CPU},
                                              {"embed", required_argument, NULL, EMBED},
                                              {"depfile", required_argument, NULL, DEPFILE},
                                              {"verbose", no_argument, NULL, VERBOSE},
                                              CLI_HELP,
                                              {NULL, 0, NULL, 0}};

static void cc_add_with_value(cli_command *list, int option, const char *value)
{
    char *argument = cli_format("-%c%s", option, value);
    cli_command_add(list, argument);
    free(argument);
}

/* True for options that would give the CPU's part types, numbers or a language other than those of
 * the GPU's part. */
static bool cc_makes_another_language(const char *word)
{
    static const char *const options[] = {"-funsigned-char",
                                          "-fno-signed-char",
                                          "-fshort-enums",
                                          "-fpack-struct",
                                          "-fshort-wchar",
                                          "-fsingle-precision-constant",
                                          "-funsigned-bitfields",
                                          "-fno-signed-bitfields",
                                          "-mms-bitfields",
                                          "-mlong-double-",
                                          "-m16",
                                          "-m32",
                                          "-mx32",
                                          "-std=c89",
                                          "-std=c90",
                                          "-std=gnu89",
                                          "-std=gnu90",
                                          "-std=iso9899:199"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (strncmp(word, options[i], strlen(options[i])) == 0 && strcmp(word, "-std=iso9899:1999") != 0) {
            return true;
        }
    }
    return false;
}

/* Parses the compilers' own options. Some take a value, and some take the rest of their word. */
static int cc_parse_compiler_option(int option, const cli_words *words, cc_settings *s)
{
    bool linker = strncmp(words->word, "-Wl,", 4) == 0;
    if (cc_makes_another_language(words->word)) {
        return cli_usage("cc", "%s is for the CPU's part alone, which would compute something else than the GPU's part",
                         words->word);
    }
    if (option == 'I' || option == 'D' || option == 'U') {
        cc_add_with_value(&s->both, option, words->value);
    } else if (option == 'l' || option == 'L') {
        cc_add_with_value(&s->libraries, option, words->value);
    } else if (option == 's') { /* -std=... */
        if (strncmp(words->word, "-std=", 5) != 0 || words->word[5] == 0) {
            return cli_usage("cc", "unknown option '%s'", words->word);
        }
        cli_command_add(strstr(words->word, "++") != NULL ? &s->gpu_only : &s->cpu_only, words->word);
    } else if (option == 'W' && strchr(words->word, ',') != NULL && !linker) {
        /* -Wp,OPTION and the like pass options to another program */
        return cli_usage("cc", "unknown option '%s'", words->word);
    } else if (option == 'W') {
        cli_command_add(linker ? &s->libraries : &s->warnings, words->word);
    } else {
        s->debug = option == 'g' ? strcmp(words->word, "-g0") != 0 : s->debug;
        cli_command_add(&s->cpu_only, words->word);
    }
    return CLI_OK;
}

/* The member of `s` for an option whose value is stored unchanged; NULL: the option is not of this
 * kind. */
static const char **cc_place_of_value(int option, cc_settings *s)
{
    switch (option) {
    case GPU_ARCH:
        return &s->gpu_arch;
    case MATH:
        return &s->math;
    case PTX:
        return &s->given_ptx;
    case EMIT_PTX:
        return &s->emit_ptx;
    case EMBED:
        return &s->embed;
    case DEPFILE:
        return &s->depfile;
    case 'o':
        return &s->output;
    case 'O':
        return &s->level;
    default:
        return NULL;
    }
}

static int cc_parse_option(int option, const cli_words *words, cc_settings *s)
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
    case 's':
        return cc_parse_compiler_option(option, words, s);
    default:
        break;
    }
    if (words->value[0] == 0) {
        return cli_usage("cc", "%s needs a value", words->word);
    }
    const char **place = cc_place_of_value(option, s);
    if (place == NULL) {
        return cc_parse_compiler_option(option, words, s);
    }
    *place = words->value;
    return CLI_OK;
}

/* Keywords of C and C++, which are not names. */
static bool cc_is_keyword(const char *name)
{
    static const char *const words[] = {"alignas",     "alignof",
                                        "and",         "and_eq",
                                        "asm",         "auto",
                                        "bitand",      "bitor",
                                        "bool",        "break",
                                        "case",        "catch",
                                        "char",        "char8_t",
                                        "char16_t",    "char32_t",
                                        "class",       "co_await",
                                        "co_return",   "co_yield",
                                        "compl",       "concept",
                                        "const",       "const_cast",
                                        "consteval",   "constexpr",
                                        "constinit",   "continue",
                                        "decltype",    "default",
                                        "delete",      "do",
                                        "double",      "dynamic_cast",
                                        "else",        "enum",
                                        "explicit",    "export",
                                        "extern",      "false",
                                        "float",       "for",
                                        "friend",      "goto",
                                        "if",          "inline",
                                        "int",         "long",
                                        "main",        "mutable",
                                        "namespace",   "new",
                                        "noexcept",    "not",
                                        "not_eq",      "nullptr",
                                        "operator",    "or",
                                        "or_eq",       "private",
                                        "protected",   "public",
                                        "register",    "reinterpret_cast",
                                        "requires",    "restrict",
                                        "return",      "short",
                                        "signed",      "sizeof",
                                        "static",      "static_assert",
                                        "static_cast", "struct",
                                        "switch",      "template",
                                        "this",        "thread_local",
                                        "throw",       "true",
                                        "try",         "typedef",
                                        "typeid",      "typename",
                                        "typeof",      "typeof_unqual",
                                        "union",       "unsigned",
                                        "using",       "virtual",
                                        "void",        "volatile",
                                        "wchar_t",     "while",
                                        "xor",         "xor_eq"};
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        found |= strcmp(name, words[i]) == 0;
    }
    return found;
}

static bool cc_is_identifier(const char *name)
{
    bool good = !isdigit((unsigned char)name[0]);
    for (; *name != 0; name++) {
        good &= isalnum((unsigned char)*name) || *name == '_';
    }
    return good;
}

/* Checks that all sources are of one kind, and that the options fit it. */
static int cc_check_sources(cc_settings *s)
{
    if (s->sources.n == 0) {
        return cli_usage("cc", "no source file");
    }
    s->cuda = cc_is_cuda(s->sources.arguments[0]);
    for (size_t i = 0; i < s->sources.n; i++) {
        if (cc_is_cuda(s->sources.arguments[i]) != s->cuda || (s->cuda && i > 0)) {
            return cli_usage("cc", "%s and %s: each source of CUDA C++ makes a file of its own",
                             s->sources.arguments[0], s->sources.arguments[i]);
        }
    }
    const char *unfit = s->no_gpu ? "--no-gpu" : s->given_ptx ? "--ptx" : s->emit_ptx ? "--emit-ptx" : NULL;
    return s->cuda && unfit != NULL ? cli_usage("cc", "%s is not for CUDA C++, which becomes a fatbin", unfit) : CLI_OK;
}

/* Checks that the settings agree with each other. */
static int cc_check_settings(const cc_settings *s)
{
    if (strlen(s->level) != 1 || strchr("0123s", s->level[0]) == NULL) {
        return cli_usage("cc", "-O%s: the levels are 0 to 3 and s", s->level);
    }
    if (s->gpu_arch != NULL && strncmp(s->gpu_arch, "sm_", 3) != 0) {
        return cli_usage("cc", "--gpu-arch %s: architectures are named sm_70, sm_80 and so on", s->gpu_arch);
    }
    if (s->embed != NULL && !cc_is_identifier(s->embed)) {
        return cli_usage("cc", "--embed %s: it becomes a name in C, of letters, digits and _", s->embed);
    }
    if (s->embed != NULL && cc_is_keyword(s->embed)) {
        return cli_usage("cc", "--embed %s: that is a word of C or C++; choose a name, such as %s_kernels", s->embed,
                         s->embed);
    }
    if (s->no_gpu && (s->no_cpu || s->given_ptx != NULL || s->emit_ptx != NULL)) {
        return cli_usage("cc", "--no-gpu leaves nothing for %s",
                         s->no_cpu      ? "--no-cpu"
                         : s->given_ptx ? "--ptx"
                                        : "--emit-ptx");
    }
    return CLI_OK;
}

static int cc_parse_words(int argc, char **argv, cc_settings *s, bool *help)
{
    cli_words words = {.command = "cc",
                       .argc = argc,
                       .argv = argv,
                       .options = options_of_cc,
                       .letters = CLI_HELP_LETTER "o:O:I:D:U:l:L:W::m::g::f::s::"};
    int status = CLI_OK, option;
    while (status == CLI_OK && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            status = CLI_USAGE;
        } else if (option == 'h') {
            *help = true;
            return CLI_OK;
        } else if (option != CLI_WORD) {
            status = cc_parse_option(option, &words, s);
        } else {
            cli_command_add(&s->sources, words.word);
        }
    }
    if (status == CLI_OK) {
        status = cc_check_sources(s);
    }
    return status == CLI_OK ? cc_check_settings(s) : status;
}

static bool cc_folder_has_header(const char *directory)
{
    char *file = cli_format("%s/heddle/kernel.h", directory);
    bool found = directory[0] != 0 && access(file, R_OK) == 0;
    free(file);
    return found;
}

/* Sets s->include from the environment, else to the folder with this tool's headers. */
static int cc_find_include(cc_settings *s)
{
    const char *given = secure_getenv("HEDDLE_INCLUDE_DIR");
    if (given != NULL && given[0] != 0) {
        s->include = cli_format("%s", given);
        return cc_folder_has_header(given) ? CLI_OK
                                           : cc_failed("HEDDLE_INCLUDE_DIR is %s, which has no heddle/kernel.h", given);
    }
    char folder[4096];
    if (cli_place_find("include/heddle", HEDDLE_HEADERS_FROM_TOOL[0] ? HEDDLE_HEADERS_FROM_TOOL "/heddle" : NULL,
                       HEDDLE_HEADERS_INSTALLED "/heddle", folder, sizeof folder)) {
        s->include = cli_format("%.*s", (int)(strlen(folder) - strlen("/heddle")), folder);
    }
    return s->include != NULL && cc_folder_has_header(s->include)
               ? CLI_OK
               : cc_failed("found no heddle/kernel.h; set HEDDLE_INCLUDE_DIR to its directory");
}

/* Writes the kernel file or the fatbin, either unchanged or as C source, and the make rule. */
static int cc_write_result(const cc_settings *s, const cc_bytes *image)
{
    int status = CLI_OK;
    if (s->embed != NULL) {
        status = cc_embed(s, image);
    } else if (!cli_output_write(s->output, image->at, image->bytes)) {
        status = cc_failed("%s: %s", s->output, strerror(errno));
    }
    return status == CLI_OK && s->depfile != NULL ? cc_depend(s) : status;
}

/* Packs the kernel file. The library checks it in the same way as files that it loads. */
static int cc_pack_image(const cc_settings *s, const cc_bytes *ptx, const cc_bytes *cpu, cc_bytes *image)
{
    hd_kernel_file_parts parts;
    memset(&parts, 0, sizeof parts);
    parts.size = sizeof parts;
    parts.ptx = ptx->at;
    parts.ptx_bytes = ptx->bytes;
    if (s->no_cpu) {
        parts.description = cpu->at;
        parts.description_bytes = cpu->bytes;
    } else {
        parts.cpu = (const void *const *)&cpu->at;
        parts.cpu_bytes = &cpu->bytes;
        parts.n_cpu = 1;
    }
    if (hd_kernel_file_build(&parts, &image->at, &image->bytes) == HD_OK) {
        return CLI_OK;
    }
    static const char two[] = "there are two kernels ";
    const char *message = hd_message(), *kernel = strstr(message, two);
    if (kernel != NULL) {
        cc_messages_twice(kernel + sizeof two - 1, (const char *const *)s->sources.arguments);
        return CLI_FAILED;
    }
    kernel = strstr(message, ": kernel ");
    if (kernel != NULL && cc_messages_kernel(kernel + 2, (const char *const *)s->sources.arguments)) {
        return CLI_FAILED;
    }
    const char *call = "hd_kernel_file_build: ";
    message += strncmp(message, call, strlen(call)) == 0 ? strlen(call) : 0;
    return cc_failed("%s%s: %s", s->sources.arguments[0], s->sources.n > 1 ? " and others" : "", message);
}

/* SOURCE.hdk, without the source's directory and ending. */
static char *cc_default_output(const cc_settings *s)
{
    if (s->embed != NULL) {
        return cli_format("%s.c", s->embed);
    }
    const char *source = s->sources.arguments[0], *slash = strrchr(source, '/');
    const char *name = slash != NULL ? slash + 1 : source;
    const char *dot = strrchr(name, '.');
    return cli_format("%.*s.%s", (int)(dot != NULL && dot != name ? (size_t)(dot - name) : strlen(name)), name,
                      s->cuda ? "fatbin" : "hdk");
}

static int cc_make_directory(cc_settings *s)
{
    s->directory = cli_folder_make("heddle-cc");
    return s->directory != NULL ? CLI_OK
                                : cc_failed("no folder for temporary files can be made (%s); set TMPDIR to another one",
                                            strerror(errno));
}

/* Makes and writes the kernel file. If the file gets a CPU's part, duplicate kernels are found
 * before the GPU's part is made. */
static int cc_make_kernel_file(cc_settings *s)
{
    static const cc_bytes no_ptx;
    cc_bytes ptx = {0}, cpu = {0}, image = {0};
    int status = cc_make_cpu(s, &cpu);
    if (status == CLI_OK && !s->no_cpu) {
        status = cc_pack_image(s, &no_ptx, &cpu, &image);
    }
    if (status == CLI_OK && !s->no_gpu) {
        status = cc_make_ptx(s, &ptx);
        free(image.at);
        image.at = NULL;
        if (status == CLI_OK) {
            status = cc_pack_image(s, &ptx, &cpu, &image);
        }
    }
    if (status == CLI_OK && s->emit_ptx != NULL && !cli_output_write(s->emit_ptx, ptx.at, ptx.bytes)) {
        status = cc_failed("%s: %s", s->emit_ptx, strerror(errno));
    }
    if (status == CLI_OK) {
        status = cc_write_result(s, &image);
    }
    free(ptx.at);
    free(cpu.at);
    free(image.at);
    return status;
}

static int cc_make_cuda_file(cc_settings *s)
{
    cc_bytes image = {0};
    int status = cc_make_fatbin(s, &image);
    if (status == CLI_OK) {
        status = cc_write_result(s, &image);
    }
    free(image.at);
    return status;
}

static void cc_release_settings(cc_settings *s)
{
    cli_command *const lists[] = {&s->sources, &s->both, &s->warnings, &s->cpu_only, &s->gpu_only, &s->libraries};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        cli_command_release(lists[i]);
    }
    free(s->include);
}

/* Checks that no output overwrites an input. */
static bool cc_spares_inputs(const cc_settings *s)
{
    char *header = s->embed != NULL ? cc_header_of(s->output) : NULL;
    const char *const outputs[] = {s->output, header, s->emit_ptx, s->depfile}, *const read[] = {s->given_ptx, s->math};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof outputs / sizeof outputs[0]; i++) {
        ok = outputs[i] == NULL ||
             (cli_output_spares("cc", outputs[i], (const char *const *)s->sources.arguments, s->sources.n) &&
              cli_output_spares("cc", outputs[i], read, sizeof read / sizeof read[0]));
    }
    free(header);
    return ok;
}

int cli_cc(int argc, char **argv)
{
    cc_settings s;
    memset(&s, 0, sizeof s);
    s.level = "3";
    s.math = "auto";
    char *output = NULL;
    bool help = false;
    int status = cc_parse_words(argc, argv, &s, &help);
    if (help) {
        cc_release_settings(&s);
        return cc_print_help();
    }
    for (size_t i = 0; i < s.sources.n && status == CLI_OK; i++) {
        if (access(s.sources.arguments[i], R_OK) != 0) {
            status = cc_failed("%s: %s", s.sources.arguments[i], strerror(errno));
        }
    }
    if (status == CLI_OK) {
        if (s.output == NULL) {
            s.output = output = cc_default_output(&s);
        }
        status = cc_spares_inputs(&s) ? cc_find_include(&s) : CLI_FAILED;
    }
    if (status == CLI_OK) {
        cli_process_begin();
        status = cc_make_directory(&s);
        if (status == CLI_OK) {
            status = s.cuda ? cc_make_cuda_file(&s) : cc_make_kernel_file(&s);
        }
        cli_folder_remove(s.directory);
        cli_process_end();
    }
    free(output);
    cc_release_settings(&s);
    return status;
}
