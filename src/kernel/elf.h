/* elf.h - looks into ELF files that may be damaged: is it a shared object, and which kernels does it describe?
 *
 * 64-bit little-endian ELF only. heddle/kernel.h puts the descriptions into the section "hd_kernels".
 * Threads: any; no state. Locks: none.
 */
#ifndef HDI_KERNEL_ELF_H
#define HDI_KERNEL_ELF_H

#include "kernel/file.h"

enum { HDI_ELF_PPC64 = 21, HDI_ELF_X86_64 = 62, HDI_ELF_AARCH64 = 183, HDI_ELF_RISCV = 243 };

#if defined(__x86_64__)
#define HDI_ELF_NATIVE HDI_ELF_X86_64
#elif defined(__aarch64__)
#define HDI_ELF_NATIVE HDI_ELF_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define HDI_ELF_NATIVE HDI_ELF_RISCV
#elif defined(__powerpc64__)
#define HDI_ELF_NATIVE HDI_ELF_PPC64
#else
#define HDI_ELF_NATIVE 0 /* no kernel file has code for it */
#endif

/* Checks that this is a whole ELF shared object, headers and loaded parts inside `bytes`; *machine is its e_machine.
 * Errors: IMAGE. */
hd_status hdi_elf_check_shared(const void *image, size_t bytes, uint32_t *machine);

/* The kernels that an object file or shared object describes; `out` gets kernels and n_kernels (release with
 * hdi_kernel_file_release), names are views into the image. Errors: IMAGE, LIMIT, HOST_MEMORY. */
hd_status hdi_elf_describe(const void *image, size_t bytes, hdi_kernel_file *out);

#endif
