/* cc_math.h - finds the math library that `heddle cc` links into the GPU's part, and repairs its
 * text.
 *
 * Threads: the program's first. Locks: none.
 * Always: kernels that call no library function of heddle/kernel_math.h are compiled without a
 * library.
 */
#ifndef CLI_CC_MATH_H
#define CLI_CC_MATH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cc_math_library {
    char *file;         /* LLVM bitcode, made by cli_format; NULL: no library */
    const char *define; /* compiler option by which heddle/kernel_math.h names its functions */
} cc_math_library;

/* True if PTX that was compiled without a library calls functions of one. */
bool cc_math_is_called(const char *ptx, size_t bytes);

/* Finds the library. `choice` is "auto" (libdevice, else libclc), "libdevice", "libclc", "none"
 * or a file. A file whose name begins with "libdevice" is libdevice, and any other file is
 * libclc. */
cc_math_library cc_math_find(const char *choice);

/* Corrects the LLVM text of a kernel and its library before optimization, because clang's LLVM
 * misreads some of it. The text is malloc'd, and *text may move. */
void cc_math_mend(void **text, size_t *bytes);

#endif
