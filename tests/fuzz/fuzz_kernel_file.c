/* fuzz_kernel_file.c - kernel files: everything in an accepted file lies inside the image, can be
 * written again, and loads as its head describes it.
 *
 * Head, size and checksum are corrected first, so that the parser reaches the rest; the unchanged
 * input is tried as well.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "kernel/describe_image.h"
#include "kernel/file.h"

static void put(unsigned char *at, size_t width, uint64_t value)
{
    for (size_t i = 0; i < width; i++) {
        at[i] = (unsigned char)(value >> 8 * i);
    }
}

/* Corrects head, version, size, and the checksum of the whole image (file.h). */
static void put_right(unsigned char *image, size_t bytes)
{
    if (bytes < 32) {
        return;
    }
    memcpy(image, "HDKF", 4);
    put(image + 4, 4, 1);
    put(image + 8, 8, bytes);
    put(image + 16, 8, 0);
    put(image + 28, 4, 0);
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ image[i]) * 0x100000001b3u;
    }
    put(image + 16, 8, sum);
}

static bool inside(const void *at, size_t n, const void *image, size_t bytes)
{
    uintptr_t from = (uintptr_t)at, begin = (uintptr_t)image;
    return from >= begin && n <= bytes && from - begin <= bytes - n;
}

static void check_views(const hdi_kernel_file *f, const void *image, size_t bytes)
{
    fuzz_check(f->ptx == NULL || (inside(f->ptx, f->ptx_bytes, image, bytes) && f->ptx[f->ptx_bytes - 1] == 0));
    for (uint32_t i = 0; i < f->n_cpu; i++) {
        fuzz_check(inside(f->cpu[i].image, f->cpu[i].bytes, image, bytes));
    }
    for (uint32_t i = 0; i < f->n_kernels; i++) {
        const hdi_kernel_entry *k = &f->kernels[i];
        fuzz_check(inside(k->name, strlen(k->name) + 1, image, bytes) && hdi_kernel_file_find(f, k->name) == k);
        for (uint32_t j = 0; j < k->n_params; j++) {
            const hdi_kernel_param *p = &k->params[j];
            fuzz_check(inside(p->name, strlen(p->name) + 1, image, bytes));
            fuzz_check((uint64_t)p->offset + p->size <= k->argument_bytes);
        }
    }
    for (uint32_t i = 0; i < f->n_globals; i++) {
        const hdi_kernel_global *g = &f->globals[i];
        fuzz_check(inside(g->name, strlen(g->name) + 1, image, bytes) && hdi_kernel_file_find_global(f, g->name) == g);
    }
}

/* Checks that a parsed file, written and parsed again, is the same. */
static void check_round_trip(const hdi_kernel_file *f)
{
    void *written;
    size_t bytes;
    hdi_kernel_file again;
    fuzz_check(hdi_kernel_file_write(f, &written, &bytes) == HD_OK);
    fuzz_check(hdi_kernel_file_parse(written, bytes, &again) == HD_OK);
    fuzz_check(again.n_kernels == f->n_kernels && again.n_cpu == f->n_cpu && again.ptx_bytes == f->ptx_bytes);
    for (uint32_t i = 0; i < f->n_kernels; i++) {
        const hdi_kernel_entry *a = &f->kernels[i], *b = &again.kernels[i];
        fuzz_check(strcmp(a->name, b->name) == 0 && a->n_params == b->n_params);
        fuzz_check(a->argument_bytes == b->argument_bytes && a->max_threads == b->max_threads);
        for (uint32_t j = 0; j < a->n_params; j++) {
            fuzz_check(strcmp(a->params[j].name, b->params[j].name) == 0);
            fuzz_check(a->params[j].offset == b->params[j].offset && a->params[j].size == b->params[j].size);
        }
    }
    fuzz_check(again.n_globals == f->n_globals);
    for (uint32_t i = 0; i < f->n_globals; i++) {
        const hdi_kernel_global *a = &f->globals[i], *b = &again.globals[i];
        fuzz_check(strcmp(a->name, b->name) == 0 && a->bytes == b->bytes && a->constant == b->constant);
    }
    hdi_kernel_file_release(&again);
    free(written);
}

static void check_load(const void *bytes, size_t size, bool host, const char *name)
{
    hdi_image image;
    const void *code;
    size_t code_bytes;
    hd_status status = hdi_image_open(bytes, size, host, &image, &code, &code_bytes);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
        return;
    }
    fuzz_check(inside(code, code_bytes, image.bytes, image.size) && code_bytes > 0);
    char names[64];
    hdi_image_kernel_names(&image, names, sizeof names);
    fuzz_check(memchr(names, 0, sizeof names) != NULL);
    const char *const wanted[] = {name, "no such kernel"};
    for (size_t i = 0; i < 2; i++) {
        hdi_signature kernel = {0};
        status = hdi_image_describe(&image, wanted[i], &kernel);
        if (status == HD_OK) {
            free(kernel.params);
        } else {
            fuzz_check_failure(status, HD_ERROR_NOT_FOUND);
        }
    }
    hdi_image_release(&image);
}

static void check(const void *image, size_t bytes)
{
    hdi_kernel_file f;
    hd_status status = hdi_kernel_file_parse(image, bytes, &f);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
        return;
    }
    check_views(&f, image, bytes);
    check_round_trip(&f);
    char name[HDI_KERNEL_NAME_BYTES] = "";
    snprintf(name, sizeof name, "%s", f.n_kernels > 0 ? f.kernels[0].name : "");
    hdi_kernel_file_release(&f);
    check_load(image, bytes, false, name);
    check_load(image, bytes, true, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    unsigned char *image = fuzz_copy(input, bytes);
    check(image, bytes);
    put_right(image, bytes);
    check(image, bytes);
    free(image);
    return 0;
}
