/* compile.c - hd_module_compile and hd_module_link: make code from source text or from parts, for
 * the devices of a runtime.
 *
 * Threads: any; compilations of several threads run at the same time.
 * Locks: none while code is made. The load of the code takes the locks of module.c.
 * Blocking: a call waits while the toolkit's libraries work, while files of the cache are read or
 * written, and while the driver loads the code.
 * Always: code is made in the process of the caller, whatever the placement.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/presence.h"
#include "base/sized.h"
#include "engine/engine.h"
#include "kernel/code_cache.h"
#include "kernel/module.h"
#include "kernel/toolkit.h"
#include "peer/peers.h"

/* The lowest compute capability of the devices, as 10 * major + minor. *all_alike: all devices have
 * the same capability. */
static int compile_lowest_of(const hd_runtime *rt, bool *all_alike)
{
    int lowest = INT_MAX, highest = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        const hdi_facts *f = &rt->devices[i]->facts;
        int compute = 10 * f->compute_major + f->compute_minor;
        lowest = compute < lowest ? compute : lowest;
        highest = compute > highest ? compute : highest;
    }
    *all_alike = lowest == highest;
    return lowest;
}

static hd_status compile_refuse_host(const hd_runtime *rt)
{
    return rt->provider->code == HDI_CODE_CPU
               ? hdi_fail(HD_ERROR_UNSUPPORTED, "host devices run kernel files only, which heddle cc makes; use a GPU")
               : HD_OK;
}

/* ---- source text ---- */

static hd_status compile_check_texts(const char *const *texts, size_t n, const char *what)
{
    if (n && !texts) {
        return hdi_fail(HD_ERROR_ARGUMENT, "options->%s is null, and its number is %zu", what, n);
    }
    if (n > INT16_MAX) {
        return hdi_fail(HD_ERROR_ARGUMENT, "options->n_%s is %zu; at most %d are possible", what, n, INT16_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        if (!texts[i]) {
            return hdi_fail(HD_ERROR_ARGUMENT, "options->%s[%zu] is null", what, i);
        }
    }
    return HD_OK;
}

/* The caller's options with all fields set. */
static hd_status compile_take_options(const hd_compile_options *given, hd_compile_options *out)
{
    *out = (hd_compile_options){.size = sizeof *out};
    if (given) {
        hd_compile_options room;
        const hd_compile_options *in = HDI_SIZED_IN(hd_compile_options, given, &room);
        if (!in) {
            return HD_ERROR_ARGUMENT;
        }
        *out = *in;
    }
    out->name = out->name ? out->name : "source.cu";
    hd_status status = compile_check_texts(out->options, out->n_options, "options");
    return status ? status : compile_check_texts(out->kernels, out->n_kernels, "kernels");
}

/* Takes the code from the cache, or compiles the source and saves the code in the cache. */
static hd_status compile_make_code(const hd_runtime *rt, const hdi_nvrtc *nvrtc, const char *source,
                                   const hd_compile_options *options, hdi_made_code *out)
{
    char arch[32], folder[PATH_MAX];
    bool all_alike;
    int lowest = compile_lowest_of(rt, &all_alike);
    hd_status status = hdi_nvrtc_choose(nvrtc, lowest, all_alike, arch);
    if (status) {
        return status;
    }
    hdi_code_key key = {NULL, 0};
    bool kept = hdi_code_cache_allows(source, options) &&
                hdi_results_folder(rt->options.cache, folder, sizeof folder) &&
                hdi_code_key_make(nvrtc, source, options, arch, &key);
    if (!kept || !hdi_code_cache_load(folder, &key, out)) {
        status = hdi_nvrtc_compile(nvrtc, source, options, arch, out);
        if (kept && !status) {
            hdi_code_cache_save(folder, &key, out);
        }
    }
    hdi_code_key_release(&key);
    return status;
}

hd_status hd_module_compile(hd_runtime *rt, const char *source, const hd_compile_options *given, hd_module **out)
{
    HDI_INSIDE(rt);
    if (!source || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", source ? "out" : "source");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hd_compile_options options;
    hd_status status = compile_take_options(given, &options);
    status = status ? status : compile_refuse_host(rt);
    hdi_nvrtc nvrtc = {.entries = NULL};
    hdi_made_code made = {NULL, 0, NULL, 0};
    status = status ? status : hdi_nvrtc_open(rt->options.nvrtc, &nvrtc);
    status = status ? status : compile_make_code(rt, &nvrtc, source, &options, &made);
    status = status ? status : hdi_module_load_made(rt, made.bytes, made.size, made.aliases, made.n_aliases, out);
    hdi_made_code_release(&made);
    hdi_nvrtc_release(&nvrtc);
    return status;
}

/* ---- parts ---- */

static hd_status compile_check_parts(const hd_code_part *parts, size_t n)
{
    if (!n) {
        return hdi_fail(HD_ERROR_ARGUMENT, "n_parts is 0");
    }
    for (size_t i = 0; i < n; i++) {
        if (!parts[i].bytes || !parts[i].count) {
            return hdi_fail(HD_ERROR_ARGUMENT, "part %zu has %s", i, parts[i].bytes ? "no bytes" : "null bytes");
        }
    }
    return HD_OK;
}

hd_status hd_module_link(hd_runtime *rt, const hd_code_part *parts, size_t n_parts, hd_module **out)
{
    HDI_INSIDE(rt);
    if (!parts || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", parts ? "out" : "parts");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hd_status status = compile_check_parts(parts, n_parts);
    status = status ? status : compile_refuse_host(rt);
    bool all_alike = true;
    int compute = compile_lowest_of(rt, &all_alike);
    if (!status && !all_alike) {
        status =
            hdi_fail(HD_ERROR_UNSUPPORTED,
                     "the devices have different compute capabilities; open those of one kind with the option devices");
    }
    hdi_made_code made = {NULL, 0, NULL, 0};
    status = status ? status : hdi_link(rt->options.nvjitlink, parts, n_parts, compute, &made);
    status = status ? status : hdi_module_load_made(rt, made.bytes, made.size, NULL, 0, out);
    hdi_made_code_release(&made);
    return status;
}
