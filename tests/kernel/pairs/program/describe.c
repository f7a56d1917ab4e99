/* describe.c - compares the arguments of each kernel of tests/kernel/pairs with the description in
 * its image. It needs no GPU.
 *
 * usage: describe SET=FOLDER...    as for main.c
 *
 * Exit status: 0, or 1 if a kernel or a parameter is missing or different, or 77 if an image cannot
 * be read.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernel/describe_image.h"

static int failures, unread;

static void *read_whole(const char *folder, const char *file, const char *suffix, size_t *bytes)
{
    enum { MOST = 1 << 24 };
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, file, suffix);
    FILE *f = fopen(path, "rb");
    void *content = f != NULL ? malloc(MOST) : NULL;
    *bytes = content != NULL ? fread(content, 1, MOST, f) : 0;
    if (f != NULL) {
        fclose(f);
    }
    return content;
}

static void *read_image(const char *folder, const char *file, bool *cuda, size_t *bytes)
{
    static const char *const suffixes[] = {"hdk", "fatbin", "cubin", "ptx"};
    void *content = NULL;
    for (int i = 0; i < 4 && content == NULL; i++) {
        *cuda = i > 0;
        content = read_whole(folder, file, suffixes[i], bytes);
    }
    return content;
}

/* Returns the mistake in a parameter; NULL if it is right. */
static const char *wrong_with(const hdi_param *param, const pairs_argument *a, bool cuda)
{
    size_t size = a->access != 0 ? sizeof(void *) : a->bytes;
    if (param->size != size) {
        return "size";
    }
    if (!cuda && param->access != a->access) {
        return "access";
    }
    bool structure = a->access == 0 && a->value.kind == HD_ARG_BYTES;
    uint32_t kind = a->access != 0 ? (uint32_t)HD_ARG_BUFFER : a->value.kind;
    if (!cuda && param->kind != kind && !structure) {
        return "kind";
    }
    return NULL;
}

static void check_row(const pairs_row *row, const char *set, const hdi_image *image, bool cuda)
{
    const char *name = cuda && row->cuda != NULL ? row->cuda : row->kernel, *symbol;
    char shown[HDI_KERNEL_NAME_BYTES];
    hdi_signature s = {.described = false};
    pairs_launch l = {.random = 1};
    row->make(&l);
    if (hdi_image_find(image, name, &symbol, shown) != HD_OK || hdi_image_describe(image, symbol, &s) != HD_OK) {
        printf("FAILED: set %s: %s: %s\n", set, name, hd_message());
        failures++;
    } else if (!s.described || s.n_params != l.n_arguments) {
        printf("FAILED: set %s: %s has %u parameters, not %zu\n", set, name, s.n_params, l.n_arguments);
        failures++;
    }
    for (uint32_t i = 0; s.described && i < s.n_params && i < l.n_arguments; i++) {
        const char *wrong = wrong_with(&s.params[i], &l.arguments[i], cuda);
        if (wrong != NULL) {
            printf("FAILED: set %s: %s: parameter %u has another %s (%u bytes)\n", set, name, i, wrong,
                   s.params[i].size);
            failures++;
        }
    }
    free(s.params);
    pairs_release(&l);
}

static void check_file(const pairs_row *rows, const char *set, const char *folder)
{
    hdi_image image;
    const void *code;
    size_t bytes, code_bytes;
    bool cuda;
    void *content = read_image(folder, rows->file, &cuda, &bytes);
    if (content == NULL || hdi_image_open(content, bytes, false, &image, &code, &code_bytes) != HD_OK) {
        printf("FAILED: set %s: %s: %s\n", set, rows->file, content == NULL ? "there is no such file" : hd_message());
        failures++;
    } else {
        if (image.listing.unread[0] != 0) {
            printf("not tested: set %s: %s: %s\n", set, rows->file, image.listing.unread);
            unread++;
        }
        for (; rows->file != NULL && image.listing.unread[0] == 0; rows++) {
            check_row(rows, set, &image, cuda);
        }
        hdi_image_release(&image);
    }
    free(content);
}

/* An image with a texture reference is refused, and the message names it. */
static void check_textures(const char *set, const char *folder)
{
    hdi_image image;
    const void *code;
    size_t bytes, code_bytes;
    bool cuda;
    void *content = read_image(folder, "textures", &cuda, &bytes);
    if (content != NULL && (hdi_image_open(content, bytes, false, &image, &code, &code_bytes) != HD_ERROR_IMAGE ||
                            strstr(hd_message(), "'picture'") == NULL)) {
        printf("FAILED: set %s: textures is not refused because of its texture reference 'picture'\n", set);
        failures++;
    }
    free(content);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *folder = strchr(argv[i], '=');
        if (folder == NULL) {
            fprintf(stderr, "usage: describe SET=FOLDER...\n");
            return 2;
        }
        *folder++ = 0;
        for (int j = 0; pairs_all[j] != NULL; j++) {
            check_file(pairs_all[j], argv[i], folder);
        }
        check_textures(argv[i], folder);
    }
    return failures > 0 ? 1 : unread > 0 ? 77 : 0;
}
