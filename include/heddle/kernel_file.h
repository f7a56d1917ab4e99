/* heddle/kernel_file.h - making Heddle kernel files.
 *
 * A kernel file contains PTX for GPUs, a shared object for each kind of CPU, and a description of
 * every kernel's parameters. hd_module_load loads such a file. `heddle cc` makes a kernel file from
 * C source, with the compilers of the machine. A program that generates code can make a kernel file
 * with hd_kernel_file_build.
 *
 * Threads: any.
 * Blocking: never. The time of hd_kernel_file_build grows with the size of the parts.
 */
#ifndef HEDDLE_KERNEL_FILE_H
#define HEDDLE_KERNEL_FILE_H

#include <stddef.h>
#include <heddle/status.h>

HD_BEGIN_DECLS

/* The parts of a kernel file. */
typedef struct hd_kernel_file_parts {
    size_t size;     /* sizeof(hd_kernel_file_parts) */
    const char *ptx; /* text, with or without a zero at its end; NULL: none */
    size_t ptx_bytes;
    /* Shared objects (ELF) compiled from kernel source with HD_CPU_MODULE defined, one for each
     * kind of CPU (ELF e_machine). */
    const void *const *cpu;
    const size_t *cpu_bytes;
    size_t n_cpu; /* 0: none; 8 at most */
    /* An object file or shared object of the same source, for any kind of CPU. The call reads the
     * descriptions of the kernels from this file, but does not put the file into the kernel file.
     * NULL: the call reads the descriptions from cpu[0]. */
    const void *description;
    size_t description_bytes;
} hd_kernel_file_parts;

/* Checks that the parts fit each other, and puts them into a kernel file of *out_bytes bytes. The
 * PTX must contain every described kernel, with the same number of parameters, at the same offsets
 * and of the same sizes. The caller owns *out and frees it with free().
 * Errors: ARGUMENT, IMAGE (a part is damaged, or does not fit the others), LIMIT, HOST_MEMORY. */
HD_API hd_status hd_kernel_file_build(const hd_kernel_file_parts *parts, void **out, size_t *out_bytes);

HD_END_DECLS
#endif
