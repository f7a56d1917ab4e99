/* nvjitlink.c - links device code with nvJitLink, whose ABI is declared here as far as it is used.
 *
 * tests/kernel/test_compile.c tests this file with a stand-in for nvJitLink, and with nvJitLink
 * itself if it is installed.
 * Threads: any. Locks: those of the library. Blocking: as in toolkit.h.
 * Always: every linker that a call makes is destroyed, even after a failure.
 */
#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "blas/blas.h"
#include "kernel/ptx.h"
#include "kernel/toolkit.h"

typedef int result;
typedef struct linker_of_nvjitlink *linker;

enum { SUCCESS = 0, UNSUPPORTED_ARCH = 17 };
enum { NONE = 0, CUBIN = 1, PTX, INTERMEDIATE, FATBIN, OBJECT, LIBRARY }; /* kinds of parts */

#define INTERMEDIATE_MAGIC 0x7f4e43edu

#define ENTRIES(X)                                                                                                     \
    X(nvJitLinkCreate, (linker * out, uint32_t n_options, const char **options))                                       \
    X(nvJitLinkDestroy, (linker * out))                                                                                \
    X(nvJitLinkAddData, (linker l, int kind, const void *bytes, size_t n, const char *name))                           \
    X(nvJitLinkComplete, (linker l))                                                                                   \
    X(nvJitLinkGetLinkedCubinSize, (linker l, size_t * bytes))                                                         \
    X(nvJitLinkGetLinkedCubin, (linker l, void *out))                                                                  \
    X(nvJitLinkGetErrorLogSize, (linker l, size_t * bytes))                                                            \
    X(nvJitLinkGetErrorLog, (linker l, char *out))

typedef struct entries {
#define MEMBER(name, parameters) result(*name) parameters;
    ENTRIES(MEMBER)
#undef MEMBER
} entries;

static hd_status nvjitlink_open(const char *option, entries *out)
{
    static const char *const names[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", NULL};
    char why[sizeof((hdi_blas_facts *)0)->why] = "";
    void *library = hdi_toolkit_open(option, names, why);
    if (!library) {
        return hdi_fail(
            HD_ERROR_UNSUPPORTED,
            "there is no nvJitLink (%.300s); install the CUDA toolkit, or set the option nvjitlink to its path", why);
    }
    const char *missing = NULL;
#define FIND(name, parameters)                                                                                         \
    if (!hdi_blas_entry(library, #name, &out->name)) {                                                                 \
        missing = #name;                                                                                               \
    }
    ENTRIES(FIND)
#undef FIND
    return missing
               ? hdi_fail(HD_ERROR_UNSUPPORTED,
                          "the library has no %s: it is not nvJitLink 12 or later; set the option nvjitlink", missing)
               : HD_OK;
}

/* ---- parts ---- */

static int nvjitlink_kind_of_elf(const void *bytes, size_t n)
{
    Elf64_Ehdr h;
    if (n < sizeof h) {
        return NONE;
    }
    memcpy(&h, bytes, sizeof h);
    return h.e_machine == EM_CUDA ? CUBIN : OBJECT;
}

static int nvjitlink_kind_of(const hd_code_part *part)
{
    uint32_t magic = 0;
    memcpy(&magic, part->bytes, part->count >= sizeof magic ? sizeof magic : 0);
    if (hdi_fatbin_detect(part->bytes, part->count)) {
        return FATBIN;
    }
    if (magic == INTERMEDIATE_MAGIC) {
        return INTERMEDIATE;
    }
    if (part->count > 8 && memcmp(part->bytes, "!<arch>\n", 8) == 0) {
        return LIBRARY;
    }
    if (part->count > 4 && memcmp(part->bytes, "\177ELF", 4) == 0) {
        return nvjitlink_kind_of_elf(part->bytes, part->count);
    }
    return hdi_ptx_detect(part->bytes, part->count) ? PTX : NONE;
}

/* True if the link compiles this part. */
static bool nvjitlink_is_intermediate(const hd_code_part *part)
{
    int kind = nvjitlink_kind_of(part);
    bool found = kind == INTERMEDIATE;
    if (kind == FATBIN) {
        hdi_listing listing;
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_listing_read(part->bytes, part->count, &listing);
        hdi_attempt_end(&attempt);
        found = listing.intermediate;
        hdi_listing_release(&listing);
    }
    return found;
}

/* ---- linking ---- */

static hd_status nvjitlink_failed(const entries *e, linker l, result r, const char *what)
{
    size_t bytes = 0;
    char *log = NULL;
    if (l && e->nvJitLinkGetErrorLogSize(l, &bytes) == SUCCESS && bytes) {
        log = calloc(1, bytes + 1);
    }
    if (log && e->nvJitLinkGetErrorLog(l, log) == SUCCESS) {
        char *line = log + strspn(log, "\n \t");
        line[strcspn(line, "\n")] = 0;
        for (char *p = line; *p; p++) {
            *p = iscntrl((unsigned char)*p) ? ' ' : *p;
        }
        if (line[0]) {
            hd_status status = hdi_fail(HD_ERROR_IMAGE, "%.100s: %.300s", what, line);
            free(log);
            return status;
        }
    }
    free(log);
    return hdi_fail(r == UNSUPPORTED_ARCH ? HD_ERROR_UNSUPPORTED : HD_ERROR_IMAGE, "%.100s: nvJitLink's code %d", what,
                    r);
}

/* A part as the library gets it. The part must live as long as the linker. */
typedef struct kept {
    char name[128];
    char *text; /* for PTX: a copy that ends in a zero, which counts as a part of the text */
} kept;

static void nvjitlink_release_kept(kept *k, size_t n)
{
    for (size_t i = 0; k && i < n; i++) {
        free(k[i].text);
    }
    free(k);
}

static hd_status nvjitlink_add_part(const entries *e, linker l, const hd_code_part *part, size_t number, kept *k)
{
    if (part->name) {
        snprintf(k->name, sizeof k->name, "%s", part->name);
    } else {
        snprintf(k->name, sizeof k->name, "part %zu", number);
    }
    int kind = nvjitlink_kind_of(part);
    if (kind == NONE) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%.100s: these %zu bytes are no device code (PTX, cubin, fatbin, object, library)", k->name,
                        part->count);
    }
    /* PTX text need not end with a zero. */
    size_t length = kind == PTX ? strnlen(part->bytes, part->count) : 0;
    k->text = kind == PTX ? malloc(length + 1) : NULL;
    if (kind == PTX && !k->text) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a part");
    }
    if (k->text) {
        memcpy(k->text, part->bytes, length);
        k->text[length] = 0;
    }
    const void *bytes = k->text ? k->text : part->bytes;
    result r = e->nvJitLinkAddData(l, kind, bytes, k->text ? length + 1 : part->count, k->name);
    return r == SUCCESS ? HD_OK : nvjitlink_failed(e, l, r, k->name);
}

static hd_status nvjitlink_take_code(const entries *e, linker l, hdi_made_code *out)
{
    result r = e->nvJitLinkComplete(l);
    size_t bytes = 0;
    r = r == SUCCESS ? e->nvJitLinkGetLinkedCubinSize(l, &bytes) : r;
    if (r != SUCCESS || bytes == 0) {
        return nvjitlink_failed(e, l, r, "the parts cannot be linked");
    }
    out->bytes = calloc(1, bytes + 1);
    out->size = bytes;
    if (!out->bytes) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for linked code");
    }
    r = e->nvJitLinkGetLinkedCubin(l, out->bytes);
    return r == SUCCESS ? HD_OK : nvjitlink_failed(e, l, r, "the parts cannot be linked");
}

hd_status hdi_link(const char *option, const hd_code_part *parts, size_t n, int compute, hdi_made_code *out)
{
    entries e;
    hd_status status = nvjitlink_open(option, &e);
    if (status) {
        return status;
    }
    char arch[32];
    snprintf(arch, sizeof arch, "-arch=sm_%d", compute);
    const char *options[] = {arch, "-lto"};
    uint32_t n_options = 1;
    for (size_t i = 0; i < n && n_options == 1; i++) {
        n_options += nvjitlink_is_intermediate(&parts[i]);
    }
    linker l = NULL;
    hdi_made_code made = {NULL, 0, NULL, 0};
    result r = e.nvJitLinkCreate(&l, n_options, options);
    if (r != SUCCESS) {
        status = nvjitlink_failed(&e, NULL, r, arch);
    } else {
        kept *k = calloc(n, sizeof *k);
        status = k ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the parts");
        for (size_t i = 0; i < n && !status; i++) {
            status = nvjitlink_add_part(&e, l, &parts[i], i, &k[i]);
        }
        status = status ? status : nvjitlink_take_code(&e, l, &made);
        e.nvJitLinkDestroy(&l);
        nvjitlink_release_kept(k, n);
    }
    if (status) {
        hdi_made_code_release(&made);
        return status;
    }
    *out = made;
    return HD_OK;
}
