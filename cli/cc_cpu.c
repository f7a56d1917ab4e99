/* cc_cpu.c - makes the CPU's part: a shared object that host devices load, with the descriptions of
 * the kernels.
 *
 * Each source is compiled by itself, and all are linked together. Tables hold the names of the
 * kernels, so each source keeps its symbols to itself.
 * Threads: the program's first. Locks: none.
 * Always: code for this machine is loaded once as a test, unless it needs a sanitizer, which only a
 * program can provide.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/cc.h"
#include "cli/cc_language.h"
#include "cli/cli.h"

/* True if the code calls functions of a sanitizer, which the program provides. */
static bool cpu_part_is_sanitized(const cli_command *command)
{
    for (size_t i = 0; i < command->n; i++) {
        if (strncmp(command->arguments[i], "-fsanitize", 10) == 0) {
            return true;
        }
    }
    return false;
}

static int cpu_part_compile_source(cc_settings *s, const cli_command *compiler, bool clang, size_t source)
{
    cli_command command = {0};
    char *object = cc_file(s, source, "o");
    cc_add_list(&command, compiler);
    /* report errors at the line with HD_KERNEL, not in the macros behind it */
    cli_command_add(&command, clang ? "-fmacro-backtrace-limit=1" : "-ftrack-macro-expansion=0");
    cc_add(&command, (const char *const[]){"-std=gnu11", "-fPIC", "-fvisibility=hidden", "-DHD_CPU_MODULE", NULL});
    /* C++ refuses these in the GPU's part; C may accept them silently */
    cc_add(&command,
           (const char *const[]){"-Wformat", "-Werror=implicit-function-declaration", "-Werror=int-conversion",
                                 "-Werror=incompatible-pointer-types", "-Werror=vla", NULL});
    /* neither compiler reports by itself what these mean in the other language: `auto`, ??=, the
     * end of a function, the order of effects */
    cc_add(&command, (const char *const[]){"-Werror=implicit-int", "-Werror=trigraphs", "-Werror=return-type",
                                           "-Werror=duplicate-decl-specifier",
                                           clang ? "-Werror=unsequenced" : "-Werror=sequence-point", NULL});
    /* "#if true" holds in C++, and char is signed on GPUs */
    cc_add(&command, (const char *const[]){"-include", "stdbool.h", "-fsigned-char", NULL});
    char *level = cli_format("-O%s", s->level);
    cli_command_add(&command, level);
    free(level);
    cc_add_list(&command, &s->cpu_only);
    cc_add_list(&command, &s->warnings);
    cc_add(&command, (const char *const[]){"-c", "-x", "c", NULL});
    cc_add_source_headers(s, &command);
    int status = cc_compile(s, &command, source, "CPU", object);
    free(object);
    cli_command_release(&command);
    return status;
}

/* Finds the differences between C and C++ that the compilers do not report. Some headers define
 * macros for the tokens that the rules search. The check leaves those headers out, so that the
 * tokens stay. */
static int cpu_part_check_language(cc_settings *s, const cli_command *compiler, size_t source)
{
    static const char *const left_out[] = {"HEDDLE_KERNEL_H",    "_STDBOOL_H",  "__STDBOOL_H",      "_STDINT_H",
                                           "_GCC_WRAP_STDINT_H", "_FLOAT_H___", "__CLANG_STDINT_H", "__CLANG_FLOAT_H"};
    cli_command command = {0};
    char *include = cli_format("-I%s", s->include), *heddle = cli_format("%s/heddle/", s->include), *text = NULL;
    cc_add_list(&command, compiler);
    cc_add(&command,
           (const char *const[]){"-std=gnu11", "-E", "-w", "-U__BIGGEST_ALIGNMENT__", "-DHD_KERNEL_GPU=0", NULL});
    cc_add_list(&command, &s->cpu_only);
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        char *guard = cli_format("-D%s", left_out[i]);
        cli_command_add(&command, guard);
        free(guard);
    }
    cc_add(&command, (const char *const[]){"-x", "c", NULL});
    cc_add_source_headers(s, &command);
    cc_add_list(&command, &s->both);
    const char *given = s->sources.arguments[source];
    char *name = cli_format("%s%s", given[0] == '-' ? "./" : "", given);
    cc_add(&command, (const char *const[]){include, name, NULL});
    int status = CLI_OK;
    /* The source has compiled before. Errors here only come from the missing headers, and the
     * text is still complete. */
    cli_process_run(&command, s->verbose, &text, NULL);
    if (text == NULL || text[0] == 0) {
        status = cc_failed("%s: %s does not preprocess it", given, compiler->arguments[0]);
    } else if (!cc_language_check(text, heddle)) {
        status = CLI_FAILED;
    }
    free(text);
    free(name);
    free(include);
    free(heddle);
    cli_command_release(&command);
    return status;
}

/* Links all objects into a shared object. With no_cpu it links them into one object with all
 * descriptions. */
static int cpu_part_link_all(cc_settings *s, const cli_command *compiler, const char *result)
{
    cli_command command = {0};
    cc_add_list(&command, compiler);
    cc_add_list(&command, &s->cpu_only);
    bool sanitized = cpu_part_is_sanitized(&command);
    cc_add(&command, s->no_cpu ? (const char *const[]){"-r", "-nostdlib", "-o", result, NULL}
                               : (const char *const[]){"-shared", "-o", result, NULL});
    for (size_t i = 0; i < s->sources.n; i++) {
        char *object = cc_file(s, i, "o");
        cli_command_add(&command, object);
        free(object);
    }
    if (!s->no_cpu) {
        /* else only a program that loads it would notice a missing symbol */
        cli_command_add(&command, "-Wl,-z,defs");
        if (sanitized) {
            cli_command_add(&command, "-Wl,--warn-unresolved-symbols");
        }
        cc_add_list(&command, &s->libraries);
        cc_add(&command, (const char *const[]){"-Wl,--as-needed", "-lm", NULL});
    }
    int status = sanitized ? cc_link_sanitized(s, &command, "CPU") : cc_run(s, &command, "CPU");
    cli_command_release(&command);
    return status;
}

static bool cpu_part_fits_machine(const cc_bytes *code)
{
    Elf64_Ehdr own, header;
    FILE *self = fopen("/proc/self/exe", "rb");
    bool known = self != NULL && fread(&own, sizeof own, 1, self) == 1;
    if (self != NULL) {
        fclose(self);
    }
    if (!known || code->bytes < sizeof header) {
        return false;
    }
    memcpy(&header, code->at, sizeof header);
    return memcmp(header.e_ident, own.e_ident, EI_VERSION) == 0 && header.e_machine == own.e_machine;
}

/* Loads the shared object in a separate process, as a program would. */
static int cpu_part_try_loading(const char *path)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return CLI_OK; /* a missing pipe is no reason to refuse a linked file */
    }
    pid_t child = fork();
    if (child == 0) {
        const char *why = dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL ? dlerror() : NULL;
        _exit(why != NULL && write(ends[1], why, strlen(why)) > 0);
    }
    close(ends[1]);
    char why[1024];
    ssize_t n = child > 0 ? read(ends[0], why, sizeof why - 1) : 0;
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    why[n > 0 ? n : 0] = 0;
    return n <= 0 ? CLI_OK
                  : cc_failed("the code for the CPU cannot be loaded: %s; programs find a library of -l in the usual "
                              "folders, or by -Wl,-rpath,FOLDER",
                              why);
}

int cc_make_cpu(cc_settings *s, cc_bytes *code)
{
    cli_command compiler = {0};
    int status = cc_find_c(&compiler);
    bool clang = status == CLI_OK && cc_is_clang(&compiler);
    for (size_t i = 0; i < s->sources.n && status == CLI_OK; i++) {
        status = cpu_part_compile_source(s, &compiler, clang, i);
        status = status == CLI_OK ? cpu_part_check_language(s, &compiler, i) : status;
    }
    char *result = cc_file(s, 0, s->no_cpu && s->sources.n == 1 ? "o" : "so");
    if (status == CLI_OK && !(s->no_cpu && s->sources.n == 1)) {
        status = cpu_part_link_all(s, &compiler, result);
    }
    if (status == CLI_OK) {
        status = cc_read(result, code);
    }
    if (status == CLI_OK && !s->no_cpu && !cpu_part_is_sanitized(&s->cpu_only) && !cpu_part_is_sanitized(&compiler) &&
        cpu_part_fits_machine(code)) {
        status = cpu_part_try_loading(result);
    }
    free(result);
    cli_command_release(&compiler);
    return status;
}
