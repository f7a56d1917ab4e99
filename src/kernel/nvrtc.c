/* nvrtc.c - compiles CUDA C++ with NVRTC, whose ABI is declared here as far as it is used.
 *
 * tests/kernel/test_compile.c tests this file with a stand-in for NVRTC, and with NVRTC itself if
 * it is installed.
 * Threads: any. Locks: those of the library. Blocking: as in toolkit.h.
 * Always: every program that a call makes is destroyed, even after a failure.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "blas/blas.h"
#include "kernel/toolkit.h"

typedef int result;
typedef struct program_of_nvrtc *program;

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_OPTION = 5, ARCHS_MOST = 256 };

/* X(name, (parameters)): NVRTC 11.2 and later provide all of these functions. */
#define ENTRIES(X)                                                                                                     \
    X(nvrtcVersion, (int *major, int *minor))                                                                          \
    X(nvrtcGetNumSupportedArchs, (int *n))                                                                             \
    X(nvrtcGetSupportedArchs, (int *archs))                                                                            \
    X(nvrtcCreateProgram, (program * out, const char *source, const char *name, int n_headers,                         \
                           const char *const *headers, const char *const *header_names))                               \
    X(nvrtcDestroyProgram, (program * out))                                                                            \
    X(nvrtcAddNameExpression, (program p, const char *expression))                                                     \
    X(nvrtcCompileProgram, (program p, int n_options, const char *const *options))                                     \
    X(nvrtcGetProgramLogSize, (program p, size_t * bytes))                                                             \
    X(nvrtcGetProgramLog, (program p, char *out))                                                                      \
    X(nvrtcGetLoweredName, (program p, const char *expression, const char **symbol))                                   \
    X(nvrtcGetCUBINSize, (program p, size_t * bytes))                                                                  \
    X(nvrtcGetCUBIN, (program p, char *out))                                                                           \
    X(nvrtcGetPTXSize, (program p, size_t * bytes))                                                                    \
    X(nvrtcGetPTX, (program p, char *out))

typedef struct hdi_nvrtc_entries {
#define MEMBER(name, parameters) result(*name) parameters;
    ENTRIES(MEMBER)
#undef MEMBER
    const char *(*nvrtcGetErrorString)(result code);
} entries;

/* The headers that kernel.h includes and NVRTC lacks. */
static const char stdint_header[] =
    "#pragma once\n"
    "typedef signed char int8_t;\ntypedef short int16_t;\ntypedef int int32_t;\ntypedef long int64_t;\n"
    "typedef unsigned char uint8_t;\ntypedef unsigned short uint16_t;\ntypedef unsigned int uint32_t;\n"
    "typedef unsigned long uint64_t;\ntypedef long intptr_t;\ntypedef unsigned long uintptr_t;\n"
    "#define INT8_MAX 127\n#define INT16_MAX 32767\n#define INT32_MAX 2147483647\n#define INT64_MAX "
    "9223372036854775807L\n"
    "#define INT8_MIN (-128)\n#define INT16_MIN (-32768)\n#define INT32_MIN (-INT32_MAX - 1)\n"
    "#define INT64_MIN (-INT64_MAX - 1)\n#define UINT8_MAX 255\n#define UINT16_MAX 65535\n"
    "#define UINT32_MAX 4294967295U\n#define UINT64_MAX 18446744073709551615UL\n";
static const char stddef_header[] = "#pragma once\n#ifndef NULL\n#define NULL 0\n#endif\n";
/* the text that replaces the system's headers */
static const char instead[] = "#include <heddle/kernel.h>\n";

/* The headers of the library come first, in the order of header.S. */
#define HEADERS_OWN 7
static const char *const header_names[] = {"heddle/kernel.h",
                                           "heddle/kernel_atomic.h",
                                           "heddle/kernel_bits.h",
                                           "heddle/kernel_half.h",
                                           "heddle/kernel_math.h",
                                           "heddle/kernel_print.h",
                                           "heddle/kernel_warp.h",
                                           "stdint.h",
                                           "stddef.h",
                                           "math.h",
                                           "stdio.h",
                                           "assert.h"};
#define HEADERS ((int)(sizeof header_names / sizeof header_names[0]))

static void nvrtc_list_headers(const char **headers)
{
    const char *at = hdi_kernel_header;
    for (int i = 0; i < HEADERS_OWN; i++) {
        headers[i] = at;
        at += strlen(at) + 1;
    }
    headers[HEADERS_OWN] = stdint_header;
    headers[HEADERS_OWN + 1] = stddef_header;
    for (int i = HEADERS_OWN + 2; i < HEADERS; i++) {
        headers[i] = instead;
    }
}

/* ---- opening ---- */

static hd_status nvrtc_take_entries(hdi_nvrtc *nvrtc, void *library)
{
    entries *e = nvrtc->entries;
    const char *missing = NULL;
#define FIND(name, parameters)                                                                                         \
    if (!hdi_blas_entry(library, #name, &e->name)) {                                                                   \
        missing = #name;                                                                                               \
    }
    ENTRIES(FIND)
    FIND(nvrtcGetErrorString, )
#undef FIND
    if (missing) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "the library has no %s: it is not NVRTC 11.2 or later; set the option nvrtc", missing);
    }
    result r = e->nvrtcVersion(&nvrtc->major, &nvrtc->minor);
    return r == SUCCESS ? HD_OK
                        : hdi_fail(HD_ERROR_UNSUPPORTED, "NVRTC does not start: %.200s", e->nvrtcGetErrorString(r));
}

/* Notes the size and time of the library's file. */
static void nvrtc_look_at_file(hdi_nvrtc *nvrtc)
{
    Dl_info info;
    struct stat s;
    void *entry;
    memcpy(&entry, &nvrtc->entries->nvrtcVersion, sizeof entry);
    if (dladdr(entry, &info) && info.dli_fname && stat(info.dli_fname, &s) == 0) {
        nvrtc->file_bytes = (uint64_t)s.st_size;
        nvrtc->file_time = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    }
}

hd_status hdi_nvrtc_open(const char *option, hdi_nvrtc *out)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", NULL};
    char why[sizeof((hdi_blas_facts *)0)->why] = "";
    void *library = hdi_toolkit_open(option, names, why);
    if (!library) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "there is no NVRTC (%.300s); install the CUDA toolkit, or set the option nvrtc to its path",
                        why);
    }
    hdi_nvrtc nvrtc = {.entries = calloc(1, sizeof *nvrtc.entries)};
    if (!nvrtc.entries) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for NVRTC");
    }
    hd_status status = nvrtc_take_entries(&nvrtc, library);
    if (status) {
        hdi_nvrtc_release(&nvrtc);
        return status;
    }
    nvrtc_look_at_file(&nvrtc);
    *out = nvrtc;
    return HD_OK;
}

void hdi_nvrtc_release(hdi_nvrtc *nvrtc)
{
    free(nvrtc->entries);
    nvrtc->entries = NULL;
}

hd_status hdi_nvrtc_choose(const hdi_nvrtc *nvrtc, int lowest, bool all_alike, char out[32])
{
    int n = 0, archs[ARCHS_MOST], best = 0, least = 0;
    if (nvrtc->entries->nvrtcGetNumSupportedArchs(&n) != SUCCESS || n < 1 || n > ARCHS_MOST ||
        nvrtc->entries->nvrtcGetSupportedArchs(archs) != SUCCESS) {
        return hdi_fail(HD_ERROR_UNSUPPORTED, "NVRTC %d.%d does not list what it compiles for", nvrtc->major,
                        nvrtc->minor);
    }
    for (int i = 0; i < n; i++) {
        best = archs[i] <= lowest && archs[i] > best ? archs[i] : best;
        least = !least || archs[i] < least ? archs[i] : least;
    }
    if (!best) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "NVRTC %d.%d compiles for compute capability %d.%d and later, a device has %d.%d; use an older "
                        "toolkit",
                        nvrtc->major, nvrtc->minor, least / 10, least % 10, lowest / 10, lowest % 10);
    }
    snprintf(out, 32, "-arch=%s_%d", best == lowest && all_alike ? "sm" : "compute", best);
    return HD_OK;
}

/* ---- compiling ---- */

/* A program under way. */
typedef struct work {
    const entries *e;
    program program;
    const hd_compile_options *options;
} work;

/* The first line of the log that contains an error, or else its first line. Cuts the log behind
 * that line. */
static const char *nvrtc_first_error(char *log)
{
    char *found = strstr(log, "error");
    char *line = log + strspn(log, "\n");
    if (found) {
        for (line = found; line > log && line[-1] != '\n';) {
            line--;
        }
    }
    line[strcspn(line, "\n")] = 0;
    for (char *p = line; *p; p++) {
        *p = iscntrl((unsigned char)*p) ? ' ' : *p;
    }
    return line;
}

static hd_status nvrtc_failed(const work *w, result r)
{
    size_t bytes = 0;
    char *log = NULL;
    if (w->e->nvrtcGetProgramLogSize(w->program, &bytes) == SUCCESS && bytes) {
        log = calloc(1, bytes + 1);
    }
    bool has_log = log && w->e->nvrtcGetProgramLog(w->program, log) == SUCCESS;
    const char *text = has_log ? nvrtc_first_error(log) : "";
    hd_status status = r == OUT_OF_MEMORY    ? HD_ERROR_HOST_MEMORY
                       : r == INVALID_OPTION ? HD_ERROR_ARGUMENT
                                             : HD_ERROR_IMAGE;
    hdi_fail(status, "%.380s", text[0] ? text : w->e->nvrtcGetErrorString(r));
    free(log);
    return status;
}

static hd_status nvrtc_compile(const work *w, const char *arch)
{
    const hd_compile_options *o = w->options;
    const char **list = calloc(o->n_options + 1, sizeof *list);
    if (!list) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the options of the compiler");
    }
    list[0] = arch;
    for (size_t i = 0; i < o->n_options; i++) {
        list[i + 1] = o->options[i];
    }
    result r = SUCCESS;
    for (size_t i = 0; i < o->n_kernels && r == SUCCESS; i++) {
        r = w->e->nvrtcAddNameExpression(w->program, o->kernels[i]);
    }
    r = r == SUCCESS ? w->e->nvrtcCompileProgram(w->program, (int)o->n_options + 1, list) : r;
    free(list);
    return r == SUCCESS ? HD_OK : nvrtc_failed(w, r);
}

/* Takes machine code if the library made it, and PTX otherwise. */
static hd_status nvrtc_take_code(const work *w, hdi_made_code *out)
{
    size_t bytes = 0;
    bool machine = w->e->nvrtcGetCUBINSize(w->program, &bytes) == SUCCESS && bytes > 0;
    result r = machine ? SUCCESS : w->e->nvrtcGetPTXSize(w->program, &bytes);
    if (r != SUCCESS || bytes < 2) {
        return hdi_fail(HD_ERROR_IMAGE,
                        "NVRTC made neither machine code nor PTX; leave out the options that ask for others");
    }
    out->bytes = calloc(1, bytes + 1);
    out->size = bytes;
    if (!out->bytes) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for compiled code");
    }
    r = machine ? w->e->nvrtcGetCUBIN(w->program, out->bytes) : w->e->nvrtcGetPTX(w->program, out->bytes);
    return r == SUCCESS ? HD_OK : nvrtc_failed(w, r);
}

static hd_status nvrtc_take_symbols(const work *w, hdi_made_code *out)
{
    size_t n = w->options->n_kernels;
    out->aliases = calloc(n ? n : 1, sizeof *out->aliases);
    for (size_t i = 0; i < n && out->aliases; i++) {
        const char *name = w->options->kernels[i], *symbol = NULL;
        result r = w->e->nvrtcGetLoweredName(w->program, name, &symbol);
        if (r != SUCCESS || !symbol) {
            return hdi_fail(r == OUT_OF_MEMORY ? HD_ERROR_HOST_MEMORY : HD_ERROR_IMAGE,
                            "the source has no kernel '%.100s': %.200s", name, w->e->nvrtcGetErrorString(r));
        }
        hdi_alias *alias = &out->aliases[out->n_aliases++];
        *alias = (hdi_alias){strdup(name), strdup(symbol)};
        if (!alias->name || !alias->symbol) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the names of kernels");
        }
    }
    return out->aliases ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the names of kernels");
}

hd_status hdi_nvrtc_compile(const hdi_nvrtc *nvrtc, const char *source, const hd_compile_options *options,
                            const char *arch, hdi_made_code *out)
{
    const char *headers[HEADERS];
    nvrtc_list_headers(headers);
    work w = {.e = nvrtc->entries, .options = options};
    hdi_made_code made = {NULL, 0, NULL, 0};
    result r = w.e->nvrtcCreateProgram(&w.program, source, options->name, HEADERS, headers, header_names);
    if (r != SUCCESS) {
        return hdi_fail(r == OUT_OF_MEMORY ? HD_ERROR_HOST_MEMORY : HD_ERROR_IMAGE,
                        "NVRTC does not take the source: %.200s", w.e->nvrtcGetErrorString(r));
    }
    hd_status status = nvrtc_compile(&w, arch);
    status = status ? status : nvrtc_take_symbols(&w, &made);
    status = status ? status : nvrtc_take_code(&w, &made);
    w.e->nvrtcDestroyProgram(&w.program);
    if (status) {
        hdi_made_code_release(&made);
        return status;
    }
    *out = made;
    return HD_OK;
}
