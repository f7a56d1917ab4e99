/* describe_image.c - recognises images and finds the parameters of their kernels. The source is a kernel file's
 * description, PTX text, or the driver.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: none.
 * Always: an image is copied, so the caller may free its bytes as soon as the image is open.
 */
#include "kernel/describe_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "kernel/file.h"
#include "kernel/module.h"
#include "kernel/ptx.h"

#define FATBIN_MAGIC 0xba55ed50u

const char *hdi_arg_kind_name(uint32_t kind)
{
    static const char *const names[] = {"nothing", "a buffer", "i8",  "u8",  "i16", "u16",  "i32",
                                        "u32",     "i64",      "u64", "f32", "f64", "bytes"};
    return kind < sizeof names / sizeof names[0] ? names[kind] : "an unknown kind of argument";
}

static hdi_image_kind recognise(const unsigned char *bytes, size_t size)
{
    uint32_t magic = 0;
    if (size >= sizeof magic) {
        memcpy(&magic, bytes, sizeof magic);
    }
    if (hdi_kernel_file_detect(bytes, size)) {
        return HDI_IMAGE_KERNEL_FILE;
    }
    if (magic == FATBIN_MAGIC || (size > 4 && memcmp(bytes, "\177ELF", 4) == 0)) {
        return HDI_IMAGE_BINARY;
    }
    return hdi_ptx_detect(bytes, size) ? HDI_IMAGE_PTX : HDI_IMAGE_NONE;
}

static hd_status code_of_file(const hdi_image *image, bool host, const void **code, size_t *code_bytes)
{
    hdi_kernel_file file;
    hd_status status = hdi_kernel_file_parse(image->bytes, image->size, &file);
    if (status) {
        return status;
    }
    const hdi_kernel_cpu *cpu = host ? hdi_kernel_file_native(&file) : NULL;
    if (host && !cpu) {
        status = hdi_fail(HD_ERROR_IMAGE, "the kernel file holds no code for this CPU");
    } else if (!host && !file.ptx) {
        status = hdi_fail(HD_ERROR_IMAGE, "the kernel file holds no PTX, it was made for host devices only");
    } else {
        *code = host ? cpu->image : file.ptx;
        *code_bytes = host ? cpu->bytes : file.ptx_bytes;
    }
    hdi_kernel_file_release(&file);
    return status;
}

hd_status hdi_image_open(const void *bytes, size_t size, bool host, hdi_image *out, const void **code,
                         size_t *code_bytes)
{
    hdi_image image = {.kind = recognise(bytes, size), .size = size};
    if (image.kind == HDI_IMAGE_NONE) {
        return hdi_fail(HD_ERROR_IMAGE, "these %zu bytes are neither a Heddle kernel file nor PTX, a cubin or a fatbin",
                        size);
    }
    if (host && image.kind != HDI_IMAGE_KERNEL_FILE) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "host devices run kernel files (heddle cc makes them), not PTX, cubins or fatbins");
    }
    image.bytes = malloc(size + 1);
    if (!image.bytes) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a copy of the image");
    }
    memcpy(image.bytes, bytes, size);
    image.bytes[size] = 0; /* PTX may come without a terminating zero */
    hd_status status = HD_OK;
    *code = image.bytes;
    *code_bytes = size + 1;
    if (image.kind == HDI_IMAGE_KERNEL_FILE) {
        status = code_of_file(&image, host, code, code_bytes);
    }
    if (status) {
        free(image.bytes);
        return status;
    }
    *out = image;
    return HD_OK;
}

void hdi_image_release(hdi_image *image)
{
    free(image->bytes);
    memset(image, 0, sizeof *image);
}

static hd_status make_params(hdi_signature *out, uint32_t n)
{
    out->params = calloc(n ? n : 1, sizeof *out->params);
    out->n_params = out->params ? n : 0;
    out->described = out->params != NULL;
    return out->params ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the parameters");
}

static hd_status no_such_kernel(const hdi_image *image, const char *name)
{
    char names[256] = "";
    hdi_image_kernel_names(image, names, sizeof names);
    return hdi_fail(HD_ERROR_NOT_FOUND, "the module has no kernel '%.100s'; it has: %s", name, names);
}

static hd_status describe_from_file(const hdi_image *image, const char *name, hdi_signature *out)
{
    hdi_kernel_file file;
    hd_status status = hdi_kernel_file_parse(image->bytes, image->size, &file);
    if (status) {
        return status;
    }
    const hdi_kernel_entry *entry = hdi_kernel_file_find(&file, name);
    status = entry ? make_params(out, entry->n_params) : no_such_kernel(image, name);
    for (uint32_t i = 0; !status && i < entry->n_params; i++) {
        const hdi_kernel_param *p = &entry->params[i];
        out->params[i] = (hdi_param){.kind = p->kind, .access = p->access, .offset = p->offset, .size = p->size};
        snprintf(out->params[i].name, sizeof out->params[i].name, "%s", p->name);
    }
    if (!status) {
        out->argument_bytes = entry->argument_bytes;
    }
    hdi_kernel_file_release(&file);
    return status;
}

/* PTX distinguishes floating-point numbers and structures from the rest. Addresses and integers look the same there. */
static uint32_t kind_of_ptx(const hdi_ptx_param *p)
{
    if (p->type == 'a') {
        return HD_ARG_BYTES;
    }
    return p->type == 'f' && p->size == 4 ? HD_ARG_F32 : p->type == 'f' && p->size == 8 ? HD_ARG_F64 : HD_ARG_NONE;
}

/* PTX and drivers can report any sizes. Kernel files were checked when they were parsed. */
static hd_status check_params(const hdi_signature *signature, const char *name)
{
    uint32_t bytes = signature->argument_bytes;
    for (uint32_t i = 0; i < signature->n_params; i++) {
        uint32_t end = signature->params[i].offset + signature->params[i].size;
        bytes = end > bytes ? end : bytes;
    }
    if (bytes <= HDI_KERNEL_ARGUMENT_BYTES_MAX) {
        return HD_OK;
    }
    return hdi_fail(HD_ERROR_LIMIT,
                    "the parameters of kernel '%.100s' take %u bytes, a launch has room for %d: pass "
                    "large ones in a buffer",
                    name, bytes, HDI_KERNEL_ARGUMENT_BYTES_MAX);
}

static hd_status describe_from_ptx(const hdi_image *image, const char *name, hdi_signature *out)
{
    hdi_ptx ptx;
    hd_status status = hdi_ptx_scan((const char *)image->bytes, image->size, &ptx);
    if (status) {
        return status;
    }
    const hdi_ptx_entry *entry = hdi_ptx_find(&ptx, name);
    status = entry ? make_params(out, entry->n_params) : no_such_kernel(image, name);
    for (uint32_t i = 0; !status && i < entry->n_params; i++) {
        const hdi_ptx_param *p = &entry->params[i];
        out->params[i] = (hdi_param){.kind = kind_of_ptx(p), .offset = p->offset, .size = p->size};
    }
    if (!status) {
        out->argument_bytes = entry->argument_bytes;
        status = check_params(out, name);
    }
    hdi_ptx_release(&ptx);
    return status;
}

hd_status hdi_image_describe(const hdi_image *image, const char *name, hdi_signature *out)
{
    switch (image->kind) {
    case HDI_IMAGE_KERNEL_FILE:
        return describe_from_file(image, name, out);
    case HDI_IMAGE_PTX:
        return describe_from_ptx(image, name, out);
    default:
        return HD_OK;
    }
}

hd_status hdi_image_describe_by_driver(const hdi_kernel_facts *facts, const char *name, hdi_signature *out)
{
    if (facts->n_params > HDI_FUNCTION_PARAMS_MAX) {
        return HD_OK;
    }
    hd_status status = make_params(out, facts->n_params);
    for (uint32_t i = 0; !status && i < facts->n_params; i++) {
        uint32_t offset = facts->params[i].offset, size = facts->params[i].size;
        out->params[i] = (hdi_param){.offset = offset, .size = size};
        out->argument_bytes = offset + size;
    }
    return status ? status : check_params(out, name);
}

static void append(char *out, size_t bytes, const char *name)
{
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", name);
}

void hdi_image_kernel_names(const hdi_image *image, char *out, size_t bytes)
{
    out[0] = 0;
    if (image->kind == HDI_IMAGE_KERNEL_FILE) {
        hdi_kernel_file file;
        if (hdi_kernel_file_parse(image->bytes, image->size, &file) == HD_OK) {
            for (uint32_t i = 0; i < file.n_kernels; i++) {
                append(out, bytes, file.kernels[i].name);
            }
            hdi_kernel_file_release(&file);
        }
    } else if (image->kind == HDI_IMAGE_PTX) {
        hdi_ptx ptx;
        if (hdi_ptx_scan((const char *)image->bytes, image->size, &ptx) == HD_OK) {
            for (uint32_t i = 0; i < ptx.n_entries; i++) {
                append(out, bytes, ptx.entries[i].name);
            }
            hdi_ptx_release(&ptx);
        }
    }
}
