/* fuzz_listing.c - cubins, fatbins and PTX: the kernels and variables in them, and their names.
 *
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "kernel/describe_image.h"
#include "kernel/names.h"

/* Checks that a name finds itself, and that a kernel's parameters lie inside its arguments. */
static void check_listed(const hdi_listed_names *names, const hdi_listed *k)
{
    fuzz_check(strlen(k->symbol) > 0);
    for (uint32_t i = 0; i < k->n_params; i++) {
        fuzz_check((uint64_t)k->params[i].offset + k->params[i].size <= k->argument_bytes);
    }
    char candidates[64];
    int found = hdi_name_find(names, k->symbol, candidates, sizeof candidates);
    fuzz_check(found >= 0 && strcmp(names->of[found].symbol, k->symbol) == 0);
}

static void check_image(const void *bytes, size_t n)
{
    hdi_image image;
    const void *code;
    size_t code_bytes;
    hd_status status = hdi_image_open(bytes, n, false, &image, &code, &code_bytes);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
        return;
    }
    for (uint32_t i = 0; i < image.listing.kernels.n && i < 8; i++) {
        hdi_signature s = {.described = false};
        status = hdi_image_describe(&image, image.listing.kernels.of[i].symbol, &s);
        fuzz_check(status == HD_OK || status == HD_ERROR_LIMIT);
        free(s.params);
    }
    for (uint32_t i = 0; i < image.listing.variables.n && i < 8; i++) {
        hdi_image_global global;
        fuzz_check(hdi_image_find_global(&image, image.listing.variables.of[i].symbol, &global) == HD_OK);
        fuzz_check(strcmp(global.symbol, image.listing.variables.of[i].symbol) == 0);
    }
    hdi_image_release(&image);
}

/* Looks up any text as a name, with the input as the list. */
static void check_names(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    size_t n;
    const uint8_t *piece = fuzz_take_piece(&in, 64, &n);
    char *wanted = fuzz_text(piece, n), *there = fuzz_text(in.at, in.left < 64 ? in.left : 64), candidates[16];
    hdi_listed kernel = {.symbol = there, .readable = there};
    hdi_listed_names names = {.of = &kernel, .n = 1};
    int found = hdi_name_find(&names, wanted, candidates, sizeof candidates);
    fuzz_check(found == 0 || found == HDI_NAME_NONE);
    fuzz_check(hdi_name_find(&names, there, candidates, sizeof candidates) == 0);
    char shown[16];
    hdi_name_short(&kernel, shown, sizeof shown);
    hdi_name_param(&kernel, 0, 1, shown, sizeof shown);
    free(wanted);
    free(there);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    void *copy = fuzz_copy(input, bytes);
    hdi_listing listing;
    hd_status status = hdi_listing_read(copy, bytes, &listing);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_IMAGE);
    }
    for (uint32_t i = 0; i < listing.kernels.n && i < 64; i++) {
        check_listed(&listing.kernels, &listing.kernels.of[i]);
    }
    for (uint32_t i = 0; i < listing.variables.n && i < 64; i++) {
        check_listed(&listing.variables, &listing.variables.of[i]);
    }
    hdi_listing_release(&listing);
    check_image(copy, bytes);
    free(copy);
    check_names(input, bytes);
    return 0;
}
