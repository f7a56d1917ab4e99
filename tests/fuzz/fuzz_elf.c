/* fuzz_elf.c - CPU code: detects shared objects, and lists the kernels that they describe.
 *
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "kernel/file.h"

static bool inside(const void *at, size_t n, const void *image, size_t bytes)
{
    uintptr_t from = (uintptr_t)at, begin = (uintptr_t)image;
    return from >= begin && n <= bytes && from - begin <= bytes - n;
}

static void check_kernels(const hdi_kernel_file *f, const void *image, size_t bytes)
{
    fuzz_check(f->n_kernels > 0 && f->n_kernels <= HDI_KERNEL_FILE_KERNELS_MAX);
    for (uint32_t i = 0; i < f->n_kernels; i++) {
        const hdi_kernel_entry *k = &f->kernels[i];
        fuzz_check(inside(k->name, strlen(k->name) + 1, image, bytes));
        fuzz_check(k->n_params <= HDI_KERNEL_PARAMS_MAX && k->argument_bytes <= HDI_KERNEL_ARGUMENT_BYTES_MAX);
        for (uint32_t j = 0; j < k->n_params; j++) {
            fuzz_check(inside(k->params[j].name, strlen(k->params[j].name) + 1, image, bytes));
        }
    }
}

static void check_variables(const hdi_kernel_file *f, const void *image, size_t bytes)
{
    fuzz_check(f->n_globals <= HDI_KERNEL_FILE_GLOBALS_MAX);
    for (uint32_t i = 0; i < f->n_globals; i++) {
        const hdi_kernel_global *g = &f->globals[i];
        fuzz_check(inside(g->name, strlen(g->name) + 1, image, bytes) && g->bytes > 0);
        fuzz_check(hdi_kernel_file_find_global(f, g->name) == g);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    void *image = fuzz_copy(input, bytes);
    uint32_t machine = 0, again = 0;
    hd_status status = hdi_elf_check_shared(image, bytes, &machine);
    if (status == HD_OK) {
        fuzz_check(hdi_elf_check_shared(image, bytes, &again) == HD_OK && again == machine);
    } else {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
    }
    hdi_kernel_file f = {0};
    status = hdi_elf_describe(image, bytes, &f);
    if (status == HD_OK) {
        check_kernels(&f, image, bytes);
        check_variables(&f, image, bytes);
        hdi_kernel_file_release(&f);
    } else {
        fuzz_check_failure(status, HD_ERROR_IMAGE, HD_ERROR_LIMIT);
    }
    free(image);
    return 0;
}
