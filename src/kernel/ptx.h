/* ptx.h - lists the kernels and variables of PTX text: names, the places of parameters, shared
 * memory and thread bounds.
 *
 * This code is a scanner, not a compiler: it reads declarations and skips instructions. PTX does
 * not contain the types of buffers: every 8-byte integer parameter may be an address.
 *
 * Threads: any; no state.
 * Locks: none.
 * Blocking: none.
 */
#ifndef HDI_KERNEL_PTX_H
#define HDI_KERNEL_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

typedef struct hdi_ptx_param {
    uint32_t offset; /* in the parameter block */
    uint32_t size;
    /* 'b', 'u', 's' and 'f' as in .b32 .u64 .s16 .f32; 'a': an array (a structure by value) */
    char type;
} hdi_ptx_param;

typedef struct hdi_ptx_entry {
    char *name;
    hdi_ptx_param *params;
    uint32_t n_params;
    uint32_t argument_bytes; /* end of the last parameter */
    /* The bytes that the kernel declares, and the bytes of the module-wide shared variables that it
     * names. */
    uint32_t static_shared_bytes;
    uint32_t max_threads; /* from .maxntid or .reqntid; 0: neither is given */
} hdi_ptx_entry;

/* A variable that the text defines outside of functions, in global or constant memory. Its name is
 * in the text. */
typedef struct hdi_ptx_variable {
    const char *name;
    size_t name_bytes;
    uint64_t bytes; /* 0: the initial value determines the size */
    bool constant;
} hdi_ptx_variable;

typedef struct hdi_ptx {
    hdi_ptx_entry *entries;
    uint32_t n_entries;
    hdi_ptx_variable *variables;
    uint32_t n_variables;
    const char *texture;  /* the name of a texture, surface or sampler reference, in the text */
    size_t texture_bytes; /* 0: none */
} hdi_ptx;

/* True if the bytes begin like PTX text: the first word outside of comments is .version. */
bool hdi_ptx_detect(const void *image, size_t bytes);

/* Scans the text, which ends at `bytes` or at a zero before that.
 * Errors: IMAGE (the message names the line), HOST_MEMORY. */
hd_status hdi_ptx_scan(const char *text, size_t bytes, hdi_ptx *out);
void hdi_ptx_release(hdi_ptx *ptx);

/* The kernel, or the variable, of that name; NULL: none. */
const hdi_ptx_entry *hdi_ptx_find(const hdi_ptx *ptx, const char *name);
const hdi_ptx_variable *hdi_ptx_find_variable(const hdi_ptx *ptx, const char *name);

#endif
