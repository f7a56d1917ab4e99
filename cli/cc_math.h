/* cc_math.h - the library of mathematics that `heddle cc` links into the GPU's part: where it is, and what its text
 * needs.
 *
 * Threads: the program's first. Locks: none.
 * Always: kernels that call no function of heddle/kernel_math.h that is in a library are compiled without one.
 */
#ifndef CLI_CC_MATH_H
#define CLI_CC_MATH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cc_math_library {
    char *file;         /* LLVM bitcode, made by cli_format; NULL: there is none */
    const char *define; /* an option of the compiler, by which heddle/kernel_math.h names its functions */
} cc_math_library;

/* Whether PTX, compiled without a library, calls functions of one. */
bool cc_math_is_called(const char *ptx, size_t bytes);

/* Finds the library. `choice` is "auto" (libdevice, else libclc), "libdevice", "libclc", "none" or a file. A file is libdevice when its name
 * begins so, and libclc otherwise. */
cc_math_library cc_math_find(const char *choice);

/* Makes LLVM text of a kernel and its library right, before anything is optimized: clang's LLVM takes some of it in another sense.
 * The text is malloc'd, and *text may move. */
void cc_math_mend(void **text, size_t *bytes);

#endif
