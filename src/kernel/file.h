/* file.h - the kernel file: PTX, CPU code and the description of each kernel in one image.
 *
 * Layout; all numbers are little-endian:
 *     header       "HDKF", u32 version, u64 bytes of the image, u64 checksum (FNV-1a of the image
 *                  with this field zero), u32 number of sections, u32 0
 *     section      one entry for each: u32 type, u32 machine (an ELF e_machine, for CPU code),
 *                  u64 offset, u64 bytes
 *     contents     each at a multiple of 64
 * Types of sections:
 *     1            PTX text with a zero at its end
 *     2            an ELF shared object: CPU code
 *     3            kernels: u32 number of kernels, u32 0; then the kernels, each followed by its
 *                  parameters
 *     4            variables, if any: u32 number of variables, u32 0; then the variables
 *       kernel     name[128], u32 parameters, u32 argument bytes, u32 static shared bytes,
 *                  u32 max threads
 *       parameter  name[64], u32 kind, u32 access and from bit 8 on the element's type, u32 offset,
 *                  u32 size
 *       variable   name[128], u64 bytes, u32 1 if in constant memory and else 0, u32 0
 *
 * CPU code is an ELF file: 64-bit and little-endian. The file may be damaged. Its section
 * "hd_kernels" describes its kernels; heddle/kernel.h puts the descriptions there. Its variables
 * are the global symbols in the sections "hd_globals" and "hd_constants".
 *
 * Threads: any; no state.
 * Locks: none.
 * Blocking: none.
 * Always: everything that hdi_kernel_file_parse returns lies inside the image and is consistent
 * with this layout.
 */
#ifndef HDI_KERNEL_FILE_H
#define HDI_KERNEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/kernel_file.h>

enum {
    HDI_KERNEL_PARAMS_MAX = 32,
    HDI_KERNEL_ARGUMENT_BYTES_MAX = 4096,
    HDI_KERNEL_FILE_KERNELS_MAX = 4096,
    HDI_KERNEL_FILE_GLOBALS_MAX = 1024,
    HDI_KERNEL_FILE_CPUS_MAX = 8
};

/* The two parts of the word "access" of a parameter's description. */
#define HDI_PARAM_ACCESS(word) ((word)&0xffu)
#define HDI_PARAM_ELEMENT(word) ((word) >> 8)

typedef struct hdi_kernel_param {
    const char *name;
    uint32_t kind;   /* hd_arg_kind */
    uint32_t access; /* hd_access for buffers, else 0 */
    uint32_t offset; /* the place in the argument block */
    uint32_t size;
    /* for a buffer: hd_arg_kind of its elements, and from bit 8 on their size; 0: unknown */
    uint32_t element;
} hdi_kernel_param;

typedef struct hdi_kernel_entry {
    const char *name;
    const hdi_kernel_param *params;
    uint32_t n_params;
    uint32_t argument_bytes;
    /* static shared memory on a GPU, read from the PTX; 0 without PTX */
    uint32_t static_shared_bytes;
    uint32_t max_threads; /* threads per block; 0: only the device's own limit applies */
} hdi_kernel_entry;

/* A variable that programs can use: HD_GLOBAL or HD_GLOBAL_CONSTANT. */
typedef struct hdi_kernel_global {
    const char *name;
    uint64_t bytes;
    bool constant;
} hdi_kernel_global;

typedef struct hdi_kernel_cpu {
    const void *image;
    size_t bytes;
    uint32_t machine;
} hdi_kernel_cpu;

/* The structure owns only `kernels` and `globals`. All other pointers lead into an image, which
 * must outlive this structure. */
typedef struct hdi_kernel_file {
    const char *ptx;  /* zero-terminated; NULL: none */
    size_t ptx_bytes; /* with the zero */
    hdi_kernel_cpu cpu[HDI_KERNEL_FILE_CPUS_MAX];
    uint32_t n_cpu;
    hdi_kernel_entry *kernels;
    uint32_t n_kernels;
    hdi_kernel_global *globals;
    uint32_t n_globals;
} hdi_kernel_file;

/* True if the bytes begin like a kernel file. */
bool hdi_kernel_file_detect(const void *image, size_t bytes);

/* Reads an image that may be damaged. `out` points into it.
 * Errors: IMAGE (the message names the part that is wrong), HOST_MEMORY. */
hd_status hdi_kernel_file_parse(const void *image, size_t bytes, hdi_kernel_file *out);
void hdi_kernel_file_release(hdi_kernel_file *file);

/* The kernel, or the variable, of that name; NULL: none. */
const hdi_kernel_entry *hdi_kernel_file_find(const hdi_kernel_file *file, const char *name);
const hdi_kernel_global *hdi_kernel_file_find_global(const hdi_kernel_file *file, const char *name);

/* The code for the machine that this library was compiled for. NULL: none. */
const hdi_kernel_cpu *hdi_kernel_file_native(const hdi_kernel_file *file);

/* Writes an image from its parts. Does not check that the parts match. `file` comes from
 * hdi_kernel_file_parse, or the caller filled it in. The caller frees *out.
 * Errors: LIMIT, HOST_MEMORY. */
hd_status hdi_kernel_file_write(const hdi_kernel_file *file, void **out, size_t *out_bytes);

/* ---- ELF ---- */

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
#define HDI_ELF_NATIVE 0 /* no kernel file contains code for this machine */
#endif

/* Checks that the image is an ELF shared object whose headers and loaded parts lie inside `bytes`.
 * *machine: the object's e_machine.
 * Errors: IMAGE. */
hd_status hdi_elf_check_shared(const void *image, size_t bytes, uint32_t *machine);

/* Gets the kernels and variables that an object file or shared object describes. `out` gets
 * `kernels` and `globals` with their numbers; the caller calls hdi_kernel_file_release. Names are
 * views into the image.
 * Errors: IMAGE, LIMIT, HOST_MEMORY. */
hd_status hdi_elf_describe(const void *image, size_t bytes, hdi_kernel_file *out);

#endif
