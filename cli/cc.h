/* cc.h - settings and functions shared by the files of `heddle cc`.
 *
 *   - cc.c: options and flow
 *   - cc_compilers.c: finds and runs compilers
 *   - cc_cpu.c, cc_gpu.c: make the two parts
 *   - cc_math.c: finds the math library and repairs its text; cc_tables.c: moves its tables
 *   - cc_join.c: joins PTX texts
 *   - cc_results.c: writes the files that a build needs
 *   - cc_messages.c: prints what no compiler reports
 *   - cc_source.c: finds kernels and names in sources
 *   - cc_language.c: finds differences between C and C++; cc_enums.c does so for enumerations
 *   - cc_tokens.c: splits a source into tokens
 *
 * Threads: the program's first. Locks: none.
 * Always: functions that return an int return CLI_OK, or CLI_FAILED after a message.
 */
#ifndef CLI_CC_H
#define CLI_CC_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/process.h"

typedef struct cc_settings {
    cli_command sources;
    /* the sources are CUDA C++ (.cu), and nvcc makes a fatbin of them; else kernel source */
    bool cuda;
    const char *output, *given_ptx, *emit_ptx, *level, *embed, *depfile;
    /* math library of the GPU's part: a file, or a word that cc_math_find accepts */
    const char *math;
    const char *gpu_arch; /* NULL: the oldest one that the compiler supports, from sm_70 on */
    bool no_gpu, no_cpu, verbose;
    bool debug;           /* -g */
    cli_command both;     /* for all compilers: -I, -D, -U */
    cli_command warnings; /* -W, for all but nvcc */
    cli_command cpu_only;
    cli_command gpu_only;  /* -std=c++17 and the like */
    cli_command libraries; /* for the linker, after the objects, in the given order */
    char *directory;       /* temporary; removed with all its files */
    char *include;         /* the folder that contains heddle/kernel.h */
} cc_settings;

typedef struct cc_bytes {
    void *at; /* malloc'd, zero-terminated */
    size_t bytes;
} cc_bytes;

/* Prints "heddle cc: MESSAGE" and returns CLI_FAILED. */
int cc_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

void cc_add(cli_command *command, const char *const *strings); /* up to NULL */
void cc_add_list(cli_command *command, const cli_command *list);

/* The file with this number and ending in the temporary directory. The caller frees it. */
char *cc_file(const cc_settings *s, size_t number, const char *ending);

/* ---- cc_compilers.c ---- */

/* Adds the compiler's name and the options from the environment. */
int cc_find_c(cli_command *command);
int cc_find_nvcc(cli_command *command);

/* Finds clang, or nvcc if no clang compiles for GPUs. */
int cc_find_gpu(cli_command *command, bool *nvcc);

bool cc_is_clang(const cli_command *command);

/* The architecture for nvcc, such as "75". It is the requested one, else 70. If nvcc does not
 * support 70, the function prints a note, and takes the oldest supported one. */
enum { CC_ARCH_BYTES = 16 };
int cc_nvcc_arch(const cc_settings *s, const cli_command *nvcc, char arch[CC_ARCH_BYTES]);

/* Puts Heddle's headers in front of the system's <stdio.h> and <assert.h>. Do not call it for nvcc,
 * whose own headers include those of the system. */
void cc_add_source_headers(const cc_settings *s, cli_command *command);

/* Adds the options for all compilers, the result's name, the source, and dependencies as
 * NUMBER.KIND.d. Then it runs the command. `what`: "CPU" or "GPU". */
int cc_compile(cc_settings *s, cli_command *command, size_t source, const char *what, const char *result);

/* Runs a compiler or a linker, which writes its messages to stderr. */
int cc_run(cc_settings *s, const cli_command *command, const char *what);

/* Runs a linker that only warns of undefined names. Fails if an undefined name belongs to no
 * sanitizer. */
int cc_link_sanitized(cc_settings *s, const cli_command *command, const char *what);

int cc_read(const char *path, cc_bytes *out);

/* ---- the parts ---- */

/* Makes the shared object; with no_cpu an object file that holds the descriptions. */
int cc_make_cpu(cc_settings *s, cc_bytes *code);
int cc_make_ptx(cc_settings *s, cc_bytes *ptx);
int cc_make_fatbin(cc_settings *s, cc_bytes *image);

/* Joins the PTX of several sources into one text. Names that are local to one text and
 * numbers of source files become unique. The result is malloc'd. */
char *cc_join(char *const *texts, size_t n);

/* ---- cc_results.c ---- */

/* The header that belongs to the C file: FILE.h for FILE.c. The caller frees it. */
char *cc_header_of(const char *file);

/* Writes C source with the bytes, and its header. */
int cc_embed(const cc_settings *s, const cc_bytes *image);

/* Writes a make rule that lists the inputs of the output. */
int cc_depend(const cc_settings *s);

#endif
