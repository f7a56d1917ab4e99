/* describe_image.c - recognises images, and finds the kernels in an image with their parameters,
 * and the image's variables. The facts come from a kernel file's description, from the listing of
 * PTX, a cubin or a fatbin, or from the driver.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as in listing.h and names.h.
 * Always: hdi_image_open copies the image, so the caller may free its bytes after the call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "kernel/describe_image.h"
#include "kernel/file.h"
#include "kernel/module.h"
#include "kernel/names.h"
#include "kernel/ptx.h"

const char *hdi_arg_kind_name(uint32_t kind)
{
    static const char *const names[] = {"nothing", "a buffer", "i8",    "u8",         "i16",
                                        "u16",     "i32",      "u32",   "i64",        "u64",
                                        "f32",     "f64",      "bytes", "an address", "hd_arg_implicit"};
    return kind < sizeof names / sizeof names[0] ? names[kind] : "an unknown kind of argument";
}

static hdi_image_kind image_recognise(const unsigned char *bytes, size_t size)
{
    if (hdi_kernel_file_detect(bytes, size)) {
        return HDI_IMAGE_KERNEL_FILE;
    }
    if (hdi_fatbin_detect(bytes, size) || (size > 4 && memcmp(bytes, "\177ELF", 4) == 0)) {
        return HDI_IMAGE_BINARY;
    }
    return hdi_ptx_detect(bytes, size) ? HDI_IMAGE_PTX : HDI_IMAGE_NONE;
}

static hd_status image_code_of_file(const hdi_image *image, bool host, const void **code, size_t *code_bytes)
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

/* Refuses images that no driver loads, or that no launch could use. The message names the
 * reason. */
static hd_status image_check_listing(const hdi_listing *l)
{
    if (l->texture[0]) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "the image has the texture or surface reference '%s', which stays unbound; use a buffer, "
                        "or a texture object as an argument of 8 bytes",
                        l->texture);
    }
    if (l->relocatable && l->missing[0]) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "the image is device code that is not linked: it needs '%s'; link it with hd_module_link or "
                        "nvcc -dlink, for launches from kernels with libcudadevrt.a",
                        l->missing);
    }
    return HD_OK;
}

static void image_demangle_names(hdi_listed_names *names)
{
    for (uint32_t i = 0; i < names->n; i++) {
        names->of[i].readable = hdi_name_demangle(names->of[i].symbol);
    }
}

/* Lists the kernels and variables of PTX, a cubin or a fatbin. */
static hd_status image_list_names(hdi_image *image)
{
    hdi_listing *l = &image->listing;
    hd_status status = hdi_listing_read(image->bytes, image->size, l);
    status = status ? status : image_check_listing(l);
    if (!status) {
        image_demangle_names(&l->kernels);
        image_demangle_names(&l->variables);
    }
    return status;
}

hd_status hdi_image_open(const void *content, size_t size, bool host, hdi_image *out, const void **code,
                         size_t *code_bytes)
{
    hdi_image image = {.kind = image_recognise(content, size), .size = size};
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
    memcpy(image.bytes, content, size);
    image.bytes[size] = 0; /* PTX may come without a terminating zero */
    *code = image.bytes;
    *code_bytes = size + 1;
    hd_status status = image.kind == HDI_IMAGE_KERNEL_FILE ? image_code_of_file(&image, host, code, code_bytes)
                                                           : image_list_names(&image);
    if (status) {
        hdi_image_release(&image);
        return status;
    }
    *out = image;
    return HD_OK;
}

void hdi_image_release(hdi_image *image)
{
    for (size_t i = 0; i < image->n_aliases; i++) {
        free(image->aliases[i].name);
        free(image->aliases[i].symbol);
    }
    free(image->aliases);
    hdi_listing_release(&image->listing);
    free(image->bytes);
    memset(image, 0, sizeof *image);
}

hd_status hdi_image_add_alias(hdi_image *image, const char *name, const char *symbol)
{
    hdi_alias *more = realloc(image->aliases, (image->n_aliases + 1) * sizeof *more);
    if (!more) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the names of kernels");
    }
    image->aliases = more;
    hdi_alias *alias = &more[image->n_aliases];
    *alias = (hdi_alias){strdup(name), strdup(symbol)};
    if (!alias->name || !alias->symbol) {
        free(alias->name);
        free(alias->symbol);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the names of kernels");
    }
    image->n_aliases++;
    return HD_OK;
}

static hd_status image_make_params(hdi_signature *out, uint32_t n)
{
    out->params = calloc(n ? n : 1, sizeof *out->params);
    out->n_params = out->params ? n : 0;
    out->described = out->params != NULL;
    return out->params ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the parameters");
}

/* The end of a message that lists names. If the list contains only symbols, gives the reason. */
static const char *image_symbols_only(const hdi_image *image)
{
    return image->kind != HDI_IMAGE_KERNEL_FILE && !hdi_name_has_demangler()
               ? "; ask by these names, since neither libstdc++.so.6 nor libc++abi.so.1 is there to read others"
               : "";
}

static hd_status image_no_such_kernel(const hdi_image *image, const char *name)
{
    char names[256] = "";
    hdi_image_kernel_names(image, names, sizeof names);
    return hdi_fail(HD_ERROR_NOT_FOUND, "the module has no kernel '%.100s'; it has: %s%s", name, names,
                    image_symbols_only(image));
}

static hd_status image_no_such_global(const hdi_image *image, const char *name)
{
    char names[256] = "";
    hdi_image_global_names(image, names, sizeof names);
    if (names[0]) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "the module has no variable '%.100s'; it has: %s%s", name, names,
                        image_symbols_only(image));
    }
    return hdi_fail(HD_ERROR_NOT_FOUND, "the module has no variable '%.100s', and no other; %s", name,
                    image->kind == HDI_IMAGE_KERNEL_FILE
                        ? "in kernel source it begins with HD_GLOBAL or HD_GLOBAL_CONSTANT (HD_CONSTANT is the "
                          "source's own), or pass a buffer to the kernel"
                        : "compilers leave out what no kernel uses");
}

static const hdi_listed *image_listed(const hdi_listed_names *names, const char *symbol)
{
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcmp(names->of[i].symbol, symbol) == 0) {
            return &names->of[i];
        }
    }
    return NULL;
}

/* Fails if hdi_name_find ran out of memory, or found several names of `what`. Otherwise returns
 * HD_OK. */
static hd_status image_check_found(int found, const char *what, const char *wanted, const char *candidates)
{
    if (found == HDI_NAME_NO_MEMORY) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory to compare the names of %s", what);
    }
    if (found == HDI_NAME_AMBIGUOUS) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "several %s are called '%.100s'; ask for one of these: %s", what, wanted,
                        candidates);
    }
    return HD_OK;
}

hd_status hdi_image_find(const hdi_image *image, const char *wanted, const char **symbol,
                         char shown[HDI_KERNEL_NAME_BYTES])
{
    *symbol = wanted;
    snprintf(shown, HDI_KERNEL_NAME_BYTES, "%s", wanted);
    if (image->kind == HDI_IMAGE_KERNEL_FILE) {
        return strlen(wanted) < HDI_KERNEL_NAME_BYTES ? HD_OK : image_no_such_kernel(image, wanted);
    }
    for (size_t i = 0; i < image->n_aliases; i++) {
        if (strcmp(image->aliases[i].name, wanted) == 0) {
            *symbol = image->aliases[i].symbol;
            return HD_OK;
        }
    }
    char candidates[320];
    int found = hdi_name_find(&image->listing.kernels, wanted, candidates, sizeof candidates);
    if (found >= 0) {
        *symbol = image->listing.kernels.of[found].symbol;
        hdi_name_short(&image->listing.kernels.of[found], shown, HDI_KERNEL_NAME_BYTES);
        return HD_OK;
    }
    hd_status status = image_check_found(found, "kernels", wanted, candidates);
    return status || image->listing.unread[0] ? status : image_no_such_kernel(image, wanted);
}

static hd_status image_find_global_in_file(const hdi_image *image, const char *wanted, hdi_image_global *out)
{
    hdi_kernel_file file;
    hd_status status = hdi_kernel_file_parse(image->bytes, image->size, &file);
    if (status) {
        return status;
    }
    const hdi_kernel_global *g = hdi_kernel_file_find_global(&file, wanted);
    bool found = g != NULL;
    if (found) {
        /* The name lies in the image, so it stays valid after the release of `file`. */
        *out = (hdi_image_global){.symbol = g->name, .constant = g->constant};
    }
    hdi_kernel_file_release(&file);
    return found ? HD_OK : image_no_such_global(image, wanted);
}

hd_status hdi_image_find_global(const hdi_image *image, const char *wanted, hdi_image_global *out)
{
    if (image->kind == HDI_IMAGE_KERNEL_FILE) {
        return image_find_global_in_file(image, wanted, out);
    }
    char candidates[320];
    const hdi_listed_names *names = &image->listing.variables;
    int found = hdi_name_find(names, wanted, candidates, sizeof candidates);
    if (found >= 0) {
        *out = (hdi_image_global){.symbol = names->of[found].symbol, .constant = names->of[found].constant};
        return HD_OK;
    }
    *out = (hdi_image_global){.symbol = wanted};
    hd_status status = image_check_found(found, "variables", wanted, candidates);
    return status || image->listing.unread[0] ? status : image_no_such_global(image, wanted);
}

static hd_status image_describe_from_file(const hdi_image *image, const char *name, hdi_signature *out)
{
    hdi_kernel_file file;
    hd_status status = hdi_kernel_file_parse(image->bytes, image->size, &file);
    if (status) {
        return status;
    }
    const hdi_kernel_entry *entry = hdi_kernel_file_find(&file, name);
    status = entry ? image_make_params(out, entry->n_params) : image_no_such_kernel(image, name);
    for (uint32_t i = 0; !status && i < entry->n_params; i++) {
        const hdi_kernel_param *p = &entry->params[i];
        out->params[i] = (hdi_param){
            .kind = p->kind, .access = p->access, .offset = p->offset, .size = p->size, .element = p->element << 8};
        snprintf(out->params[i].name, sizeof out->params[i].name, "%s", p->name);
    }
    if (!status) {
        out->argument_bytes = entry->argument_bytes;
    }
    hdi_kernel_file_release(&file);
    return status;
}

/* Fails if the parameters do not fit into a launch: PTX and drivers can report any sizes. Kernel
 * files need no check here, since hdi_kernel_file_parse checked them. */
static hd_status image_check_params(const hdi_signature *signature, const char *name)
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

/* If a parameter's type in the source is known, names the parameter by this type. For cubins, which
 * give only sizes, the type also determines the parameter's kind. */
static void image_name_param(const hdi_listed *kernel, uint32_t i, hdi_param *p)
{
    if (hdi_name_param(kernel, i, kernel->n_params, p->name, sizeof p->name) && p->kind == HD_ARG_NONE) {
        if (p->size == 4 && strcmp(p->name, "float") == 0) {
            p->kind = HD_ARG_F32;
        } else if (p->size == 8 && strcmp(p->name, "double") == 0) {
            p->kind = HD_ARG_F64;
        }
    }
}

static hd_status image_describe_from_listing(const hdi_image *image, const char *symbol, hdi_signature *out)
{
    const hdi_listed *kernel = image_listed(&image->listing.kernels, symbol);
    if (!kernel) {
        return image->listing.unread[0] ? HD_OK : image_no_such_kernel(image, symbol);
    }
    if (!kernel->described) {
        return HD_OK;
    }
    hd_status status = image_make_params(out, kernel->n_params);
    for (uint32_t i = 0; !status && i < kernel->n_params; i++) {
        const hdi_listed_param *p = &kernel->params[i];
        out->params[i] = (hdi_param){.kind = p->kind, .offset = p->offset, .size = p->size};
        image_name_param(kernel, i, &out->params[i]);
    }
    if (!status) {
        out->argument_bytes = kernel->argument_bytes;
        status = image_check_params(out, symbol);
    }
    return status;
}

hd_status hdi_image_describe(const hdi_image *image, const char *symbol, hdi_signature *out)
{
    return image->kind == HDI_IMAGE_KERNEL_FILE ? image_describe_from_file(image, symbol, out)
                                                : image_describe_from_listing(image, symbol, out);
}

hd_status hdi_image_describe_by_driver(const hdi_kernel_facts *facts, const char *name, hdi_signature *out)
{
    if (facts->n_params > HDI_FUNCTION_PARAMS_MAX) {
        return HD_OK;
    }
    hd_status status = image_make_params(out, facts->n_params);
    for (uint32_t i = 0; !status && i < facts->n_params; i++) {
        uint32_t offset = facts->params[i].offset, size = facts->params[i].size;
        out->params[i] = (hdi_param){.offset = offset, .size = size};
        out->argument_bytes = offset + size;
    }
    return status ? status : image_check_params(out, name);
}

static void image_append_name(char *out, size_t bytes, const char *name)
{
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", name);
}

static void image_append_names(char *out, size_t bytes, const hdi_listed_names *names)
{
    for (uint32_t i = 0; i < names->n; i++) {
        image_append_name(out, bytes, names->of[i].readable ? names->of[i].readable : names->of[i].symbol);
    }
}

void hdi_image_kernel_names(const hdi_image *image, char *out, size_t bytes)
{
    hdi_kernel_file file;
    out[0] = 0;
    image_append_names(out, bytes, &image->listing.kernels);
    if (image->kind == HDI_IMAGE_KERNEL_FILE && hdi_kernel_file_parse(image->bytes, image->size, &file) == HD_OK) {
        for (uint32_t i = 0; i < file.n_kernels; i++) {
            image_append_name(out, bytes, file.kernels[i].name);
        }
        hdi_kernel_file_release(&file);
    }
}

void hdi_image_global_names(const hdi_image *image, char *out, size_t bytes)
{
    hdi_kernel_file file;
    out[0] = 0;
    image_append_names(out, bytes, &image->listing.variables);
    if (image->kind == HDI_IMAGE_KERNEL_FILE && hdi_kernel_file_parse(image->bytes, image->size, &file) == HD_OK) {
        for (uint32_t i = 0; i < file.n_globals; i++) {
            image_append_name(out, bytes, file.globals[i].name);
        }
        hdi_kernel_file_release(&file);
    }
}
