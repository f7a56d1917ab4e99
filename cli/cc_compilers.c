/* cc_compilers.c - finds the compilers of the machine and runs them.
 *
 * Threads: the program's first. Locks: none.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cc.h"
#include "cli/cc_messages.h"
#include "cli/cli.h"

int cc_failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    cli_complain_list("cc", format, list);
    va_end(list);
    return CLI_FAILED;
}

void cc_add_list(cli_command *command, const cli_command *list)
{
    for (size_t i = 0; i < list->n; i++) {
        cli_command_add(command, list->arguments[i]);
    }
}

void cc_add(cli_command *command, const char *const *strings)
{
    for (; *strings != NULL; strings++) {
        cli_command_add(command, *strings);
    }
}

char *cc_file(const cc_settings *s, size_t number, const char *ending)
{
    return cli_format("%s/%zu.%s", s->directory, number, ending);
}

/* The words in an environment variable; NULL: unset. */
static const char *compiler_words_of_variable(const char *variable)
{
    const char *given = secure_getenv(variable);
    return given != NULL && given[strspn(given, " \t")] != 0 ? given : NULL;
}

int cc_find_c(cli_command *command)
{
    const char *given = compiler_words_of_variable("CC");
    if (given != NULL) {
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
    return cc_failed("found no C compiler (cc, gcc or clang); name one with CC");
}

/* The output of a program; NULL: it cannot be run, or fails. The caller frees it. */
static char *compiler_output_of(const cli_command *command, const char *option)
{
    cli_command asked = {0};
    char *text = NULL;
    cc_add_list(&asked, command);
    cli_command_add(&asked, option);
    if (cli_process_run(&asked, false, &text, NULL) != 0) {
        free(text);
        text = NULL;
    }
    cli_command_release(&asked);
    return text;
}

static bool compiler_prints(const cli_command *command, const char *option, const char *text)
{
    char *output = compiler_output_of(command, option);
    bool found = output != NULL && strstr(output, text) != NULL;
    free(output);
    return found;
}

bool cc_is_clang(const cli_command *command)
{
    return compiler_prints(command, "--version", "clang");
}

static bool compiler_compiles_for_gpus(const char *clang)
{
    cli_command command = {0};
    cli_command_add_words(&command, clang);
    bool good = compiler_prints(&command, "--print-targets", "nvptx64");
    cli_command_release(&command);
    return good;
}

/* Adds clang to the command; false: not found. */
static bool compiler_find_clang(cli_command *command)
{
    for (int version = 0; version <= 17; version++) { /* clang, then clang-30 down to clang-14 */
        char *name = version == 0 ? cli_format("clang") : cli_format("clang-%d", 31 - version);
        bool good = cli_process_exists(name) && compiler_compiles_for_gpus(name);
        if (good) {
            cli_command_add(command, name);
        }
        free(name);
        if (good) {
            return true;
        }
    }
    return false;
}

/* Adds the name, or the path in one of the toolkit's usual folders; false: not found. */
static bool compiler_find_nvcc(cli_command *command)
{
    if (cli_process_exists("nvcc")) {
        cli_command_add(command, "nvcc");
        return true;
    }
    const char *const folders[] = {compiler_words_of_variable("CUDA_HOME"), compiler_words_of_variable("CUDA_PATH"),
                                   "/usr/local/cuda"};
    bool found = false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && !found; i++) {
        char *path = cli_format("%s/bin/nvcc", folders[i] != NULL ? folders[i] : "");
        found = folders[i] != NULL && cli_process_exists(path);
        if (found) {
            cli_command_add(command, path);
        }
        free(path);
    }
    return found;
}

int cc_find_nvcc(cli_command *command)
{
    const char *given = compiler_words_of_variable("NVCC");
    if (given != NULL) {
        cli_command_add_words(command, given);
        return CLI_OK;
    }
    return compiler_find_nvcc(command)
               ? CLI_OK
               : cc_failed(
                     "found no nvcc in PATH, CUDA_HOME, CUDA_PATH and /usr/local/cuda. Install the CUDA toolkit,\n"
                     "or name its nvcc with NVCC");
}

int cc_find_gpu(cli_command *command, bool *nvcc)
{
    const char *clang = compiler_words_of_variable("CLANG");
    *nvcc = false;
    if (clang != NULL) {
        cli_command_add_words(command, clang);
        return compiler_compiles_for_gpus(clang)
                   ? CLI_OK
                   : cc_failed("CLANG is %s, which does not compile for NVIDIA GPUs", clang);
    }
    *nvcc = compiler_words_of_variable("NVCC") != NULL;
    if (*nvcc) {
        return cc_find_nvcc(command);
    }
    if (compiler_find_clang(command)) {
        return CLI_OK;
    }
    *nvcc = compiler_find_nvcc(command);
    return *nvcc ? CLI_OK
                 : cc_failed("found no clang that compiles for NVIDIA GPUs, and no nvcc. Install clang (14 or newer), "
                             "name one with CLANG,\nor an nvcc with NVCC, give the PTX with --ptx, or leave the GPU's "
                             "part out with --no-gpu");
}

int cc_nvcc_arch(const cc_settings *s, const cli_command *nvcc, char arch[CC_ARCH_BYTES])
{
    char *list = compiler_output_of(nvcc, "--list-gpu-arch"); /* compute_75, compute_80 ... */
    int wanted = s->gpu_arch != NULL ? atoi(s->gpu_arch + 3) : 70, oldest = 0;
    bool has = false;
    for (const char *at = list; at != NULL && (at = strstr(at, "compute_")) != NULL;) {
        at += strlen("compute_");
        int number = atoi(at);
        oldest = oldest == 0 || number < oldest ? number : oldest;
        has |= number == wanted;
    }
    free(list);
    if (oldest == 0) {
        return cc_failed("cannot run %s, or it lists no architectures (--list-gpu-arch); name another one with NVCC",
                         nvcc->arguments[0]);
    }
    snprintf(arch, CC_ARCH_BYTES, "%s", s->gpu_arch != NULL ? s->gpu_arch + 3 : "70");
    if (!has && s->gpu_arch != NULL) {
        return cc_failed("%s does not compile for %s; the oldest that it has is sm_%d", nvcc->arguments[0], s->gpu_arch,
                         oldest);
    }
    if (!has) {
        cli_complain("cc", "note: the GPU's part runs on sm_%d and newer, the oldest that %s has", oldest,
                     nvcc->arguments[0]);
        snprintf(arch, CC_ARCH_BYTES, "%d", oldest);
    }
    return CLI_OK;
}

/* Reports the exit status of a command for the part `what`. */
static int compiler_check_status(const cli_command *command, const char *what, int status)
{
    if (status == 127) {
        return cc_failed("cannot run %s", command->arguments[0]);
    }
    if (status != 0) {
        return cc_failed("%s failed for the %s (exit status %d)", command->arguments[0], what, status);
    }
    return CLI_OK;
}

int cc_run(cc_settings *s, const cli_command *command, const char *what)
{
    return compiler_check_status(command, what, cli_process_run(command, s->verbose, NULL, NULL));
}

int cc_link_sanitized(cc_settings *s, const cli_command *command, const char *what)
{
    char *warnings = NULL;
    int status = cli_process_run(command, s->verbose, NULL, &warnings);
    bool undefined = warnings != NULL && cc_messages_undefined(warnings);
    free(warnings);
    status = compiler_check_status(command, what, status);
    return status == CLI_OK && undefined ? cc_failed("a name is undefined for the %s", what) : status;
}

void cc_add_source_headers(const cc_settings *s, cli_command *command)
{
    char *folder = cli_format("-I%s/heddle/source", s->include);
    cli_command_add(command, folder);
    free(folder);
}

int cc_compile(cc_settings *s, cli_command *command, size_t source, const char *what, const char *result)
{
    const char *given = s->sources.arguments[source];
    char *name = cli_format("%s%s", given[0] == '-' ? "./" : "", given);
    char *include = cli_format("-I%s", s->include);
    char *depend = cli_format("%s/%zu.%s.d", s->directory, source, what);
    cc_add_list(command, &s->both);
    if (s->depfile != NULL) {
        cc_add(command, (const char *const[]){"-MMD", "-MF", depend, "-MT", "x", NULL});
    }
    cc_add(command, (const char *const[]){include, "-o", result, name, NULL});
    int status = cc_run(s, command, what);
    free(name);
    free(include);
    free(depend);
    return status;
}

int cc_read(const char *path, cc_bytes *out)
{
    out->at = cli_read_file(path, &out->bytes);
    return out->at != NULL ? CLI_OK : cc_failed("%s: %s", path, strerror(errno));
}
