/* fuzz_ptx.c - PTX text: the kernels in it, and loading it as an image.
 *
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "kernel/describe_image.h"
#include "kernel/ptx.h"

static void check_entry(const hdi_ptx *ptx, const hdi_ptx_entry *e, size_t bytes)
{
    size_t length = strlen(e->name);
    fuzz_check(length > 0 && length < bytes && hdi_ptx_find(ptx, e->name) != NULL);
    uint64_t end = 0;
    for (uint32_t i = 0; i < e->n_params; i++) {
        const hdi_ptx_param *p = &e->params[i];
        fuzz_check(strchr("busfa", p->type) != NULL && p->offset >= end);
        end = (uint64_t)p->offset + p->size;
    }
    fuzz_check(end <= e->argument_bytes);
}

static void check_scan(const char *text, size_t bytes)
{
    hdi_ptx ptx, again;
    hd_status status = hdi_ptx_scan(text, bytes, &ptx);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
        return;
    }
    fuzz_check(hdi_ptx_scan(text, bytes, &again) == HD_OK && again.n_entries == ptx.n_entries);
    for (uint32_t i = 0; i < ptx.n_entries; i++) {
        check_entry(&ptx, &ptx.entries[i], bytes);
        fuzz_check(again.entries[i].argument_bytes == ptx.entries[i].argument_bytes);
    }
    hdi_ptx_release(&again);
    hdi_ptx_release(&ptx);
}

static void check_image(const char *text, size_t bytes)
{
    hdi_image image;
    const void *code;
    size_t code_bytes;
    hd_status status = hdi_image_open(text, bytes, false, &image, &code, &code_bytes);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
        return;
    }
    fuzz_check(image.kind != HDI_IMAGE_PTX || ((const char *)code)[code_bytes - 1] == 0);
    char names[64];
    hdi_image_kernel_names(&image, names, sizeof names);
    fuzz_check(memchr(names, 0, sizeof names) != NULL);
    hdi_signature kernel = {0};
    status = hdi_image_describe(&image, "hd_fill", &kernel);
    if (status == HD_OK) {
        free(kernel.params);
    } else {
        fuzz_check_failure(status, HD_ERROR_NOT_FOUND, HD_ERROR_IMAGE);
    }
    hdi_image_release(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    char *text = fuzz_copy(input, bytes);
    hdi_ptx_detect(text, bytes);
    check_scan(text, bytes);
    check_image(text, bytes);
    free(text);
    return 0;
}
