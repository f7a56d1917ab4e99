/* cc_cpu.c - makes the CPU's part: a shared object that host devices load, with the descriptions of the kernels.
 *
 * Each source is compiled by itself, and all are linked together. The names of kernels are in tables, so nothing of a source is visible in another.
 * Threads: the program's first. Locks: none.
 * Always: what is returned was loaded once where it is for this machine, unless it needs a sanitizer, which only a program has.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/cc.h"
#include "cli/cli.h"

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

static int compile(cc_settings *s, const cli_command *compiler, bool clang, size_t source)
{
    cli_command command = {0};
    char *object = cc_file(s, source, "o");
    cc_add_list(&command, compiler);
    /* messages about HD_KERNEL are about the line that has it, not about the macros behind it */
    cli_command_add(&command, clang ? "-fmacro-backtrace-limit=1" : "-ftrack-macro-expansion=0");
    cc_add(&command, (const char *const[]){"-std=gnu11", "-fPIC", "-fvisibility=hidden", "-DHD_CPU_MODULE", NULL});
    /* what C++ refuses in the GPU's part, where it may go unnoticed in C */
    cc_add(&command,
           (const char *const[]){"-Wformat", "-Werror=implicit-function-declaration", "-Werror=int-conversion",
                                 "-Werror=incompatible-pointer-types", "-Werror=vla", NULL});
    char *level = cli_format("-O%s", s->level);
    cli_command_add(&command, level);
    free(level);
    cc_add_list(&command, &s->cpu_only);
    cc_add_list(&command, &s->warnings);
    if (isatty(STDERR_FILENO)) {
        cli_command_add(&command, "-fdiagnostics-color=always"); /* what it writes comes through us */
    }
    cc_add(&command, (const char *const[]){"-c", "-x", "c", NULL});
    cc_add_source_headers(s, &command);
    int status = cc_compile(s, &command, source, "CPU", object);
    free(object);
    cli_command_release(&command);
    return status;
}

/* Links all objects: to a shared object, or, with no_cpu, to one object that has all descriptions. */
static int link_all(cc_settings *s, const cli_command *compiler, const char *result)
{
    cli_command command = {0};
    cc_add_list(&command, compiler);
    cc_add_list(&command, &s->cpu_only);
    bool sanitized = is_sanitized(&command);
    cc_add(&command, s->no_cpu ? (const char *const[]){"-r", "-nostdlib", "-o", result, NULL}
                               : (const char *const[]){"-shared", "-o", result, NULL});
    for (size_t i = 0; i < s->sources.n; i++) {
        char *object = cc_file(s, i, "o");
        cli_command_add(&command, object);
        free(object);
    }
    if (!s->no_cpu) {
        /* else what is missing would be noticed when a program loads it */
        cli_command_add(&command, "-Wl,-z,defs");
        if (sanitized) {
            cli_command_add(&command, "-Wl,--warn-unresolved-symbols");
        }
        cc_add_list(&command, &s->libraries);
        cc_add(&command, (const char *const[]){"-Wl,--as-needed", "-lm", NULL});
    }
    int status = cc_run(s, &command, (const char *const *)s->sources.arguments, "CPU", sanitized);
    cli_command_release(&command);
    return status;
}

static bool is_for_this_machine(const cc_bytes *code)
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

/* Loads it as a program would, in a process of its own. */
static int try_to_load(const char *path)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return CLI_OK; /* a file that was linked is not refused for want of a pipe */
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
        status = compile(s, &compiler, clang, i);
    }
    char *result = cc_file(s, 0, s->no_cpu && s->sources.n == 1 ? "o" : "so");
    if (status == CLI_OK && !(s->no_cpu && s->sources.n == 1)) {
        status = link_all(s, &compiler, result);
    }
    if (status == CLI_OK) {
        status = cc_read(result, code);
    }
    if (status == CLI_OK && !s->no_cpu && !is_sanitized(&s->cpu_only) && !is_sanitized(&compiler) &&
        is_for_this_machine(code)) {
        status = try_to_load(result);
    }
    free(result);
    cli_command_release(&compiler);
    return status;
}
