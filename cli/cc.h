/* cc.h - what the files of `heddle cc` share: settings, and the parts of its work.
 *
 * - cc.c: options and flow
 * - cc_compilers.c: finds and runs compilers
 * - cc_cpu.c, cc_gpu.c: make the two parts
 * - cc_math.c: finds the library of mathematics, and mends its text; cc_tables.c: moves its tables
 * - cc_join.c: joins texts of PTX
 * - cc_results.c: writes what a build needs
 * - cc_messages.c: words what compilers report
 * - cc_mistakes.c: explains usual mistakes
 * - cc_source.c: finds kernels and names in sources
 *
 * Threads: the program's first. Locks: none. Always: what returns an int returns CLI_OK, or CLI_FAILED after a message.
 */
#ifndef CLI_CC_H
#define CLI_CC_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/process.h"

typedef struct cc_settings {
    cli_command sources;
    bool cuda; /* the sources are CUDA C++ (.cu), of which nvcc makes a fatbin; else kernel source */
    const char *output, *given_ptx, *emit_ptx, *level, *embed, *depfile;
    const char *math;     /* of the GPU's part: a file, or a word that cc_math_find has */
    const char *gpu_arch; /* NULL: the oldest that there is, from sm_70 on */
    bool no_gpu, no_cpu, verbose;
    bool debug;           /* -g */
    cli_command both;     /* for all compilers: -I, -D, -U */
    cli_command warnings; /* -W, for all but nvcc */
    cli_command cpu_only;
    cli_command gpu_only;  /* -std=c++17 and the like */
    cli_command libraries; /* for the linker, after the objects, in the given order */
    char *directory;       /* temporary; all its files go with it */
    char *include;         /* where heddle/kernel.h is */
} cc_settings;

typedef struct cc_bytes {
    void *at; /* malloc'd, with a zero behind it */
    size_t bytes;
} cc_bytes;

/* Prints "heddle cc: MESSAGE" and returns CLI_FAILED. */
int cc_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

void cc_add(cli_command *command, const char *const *strings); /* up to NULL */
void cc_add_list(cli_command *command, const cli_command *list);

/* The file of this number and ending in the temporary directory; to be freed. */
char *cc_file(const cc_settings *s, size_t number, const char *ending);

/* ---- cc_compilers.c ---- */

/* Adds the compiler's name, and its options that the environment has. */
int cc_find_c(cli_command *command);
int cc_find_nvcc(cli_command *command);

/* clang, or nvcc where no clang compiles for GPUs. */
int cc_find_gpu(cli_command *command, bool *nvcc);

bool cc_is_clang(const cli_command *command);

/* The architecture for nvcc, such as "75": the one that was asked for, else 70 or the oldest that it has, with a note. */
enum { CC_ARCH_BYTES = 16 };
int cc_nvcc_arch(const cc_settings *s, const cli_command *nvcc, char arch[CC_ARCH_BYTES]);

/* Puts headers of kernel source in place of the system's <stdio.h> and <assert.h>. Not for nvcc, whose own headers include those. */
void cc_add_source_headers(const cc_settings *s, cli_command *command);

/* Adds what all compilers get, with the result's name, dependencies as NUMBER.KIND.d, and the source, and runs the command.
 * `what`: "CPU" or "GPU". */
int cc_compile(cc_settings *s, cli_command *command, size_t source, const char *what, const char *result);

/* Runs a command whose messages are about the sources, such as a linker. `only_warned`: names that are defined nowhere are errors, unless a
 * sanitizer has them. */
int cc_run(cc_settings *s, const cli_command *command, const char *const *sources, const char *what, bool only_warned);

int cc_read(const char *path, cc_bytes *out);

/* ---- the parts ---- */

/* The shared object; with no_cpu an object file, which has the descriptions. */
int cc_make_cpu(cc_settings *s, cc_bytes *code);
int cc_make_ptx(cc_settings *s, cc_bytes *ptx);
int cc_make_fatbin(cc_settings *s, cc_bytes *image);

/* Joins PTX of several sources into one text: what is not visible outside of one gets a name of its own. Each
 * source file gets a number of its own. *joined is made by malloc. */
char *cc_join(char *const *texts, size_t n);

/* ---- cc_results.c ---- */

/* Where the header goes that belongs to the C file: FILE.h for FILE.c; to be freed. */
char *cc_header_of(const char *file);

/* Writes C source with the bytes, and its header. */
int cc_embed(const cc_settings *s, const cc_bytes *image);

/* Writes a rule for make: what the output is made from. */
int cc_depend(const cc_settings *s);

#endif
