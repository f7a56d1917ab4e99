/* listing.c - the listing of an image: functions for images of every kind, and the listing of PTX.
 * See listing.h.
 *
 * Threads: any; no state. Locks: none. Blocking: as in listing.h.
 * Always: as in listing.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <heddle/module.h>
#include "base/error.h"
#include "kernel/listing.h"
#include "kernel/ptx.h"

void hdi_listing_name(char out[HDI_LISTED_NAME_BYTES], const char *name, size_t length)
{
    size_t n = length < HDI_LISTED_NAME_BYTES - 1 ? length : HDI_LISTED_NAME_BYTES - 1;
    for (size_t i = 0; i < n; i++) {
        out[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    }
    out[n] = 0;
}

void hdi_listing_unread(hdi_listing *listing, const char *why)
{
    if (!listing->unread[0]) {
        hdi_listing_name(listing->unread, why, strlen(why));
    }
}

/* The place of a symbol, or the free place for it. Half of the table is always free. */
static uint32_t *listing_place_of(const hdi_listed_names *names, const char *symbol, size_t length)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) {
        h = (h ^ (unsigned char)symbol[i]) * 0x100000001b3u;
    }
    for (uint32_t at = (uint32_t)(h ^ h >> 32);; at++) {
        uint32_t *place = &names->places[at & (names->n_places - 1)];
        const char *there = *place ? names->of[*place - 1].symbol : NULL;
        if (!there || (strncmp(there, symbol, length) == 0 && !there[length])) {
            return place;
        }
    }
}

/* Doubles the room for names. False: no memory. */
static bool listing_grow_names(hdi_listed_names *names)
{
    /* `room` names fit into the table, which is twice as large. */
    uint32_t room = names->n_places ? names->n_places : 8;
    hdi_listed *more = realloc(names->of, room * sizeof *more);
    if (!more) {
        return false;
    }
    names->of = more;
    uint32_t *places = calloc(2 * (size_t)room, sizeof *places);
    if (!places) {
        return false;
    }
    free(names->places);
    names->places = places;
    names->n_places = 2 * room;
    for (uint32_t i = 0; i < names->n; i++) {
        *listing_place_of(names, more[i].symbol, strlen(more[i].symbol)) = i + 1;
    }
    return true;
}

/* Adds a name, or finds it. NULL: no memory. */
static hdi_listed *listing_add_name(hdi_listed_names *names, const char *symbol, size_t length)
{
    if (2 * names->n == names->n_places && !listing_grow_names(names)) {
        return NULL;
    }
    uint32_t *place = listing_place_of(names, symbol, length);
    if (!*place) {
        char *copy = malloc(length + 1);
        if (!copy) {
            return NULL;
        }
        memcpy(copy, symbol, length);
        copy[length] = 0;
        names->of[names->n++] = (hdi_listed){.symbol = copy};
        *place = names->n;
    }
    return &names->of[*place - 1];
}

hdi_listed *hdi_listing_kernel(hdi_listing *listing, const char *symbol, size_t length)
{
    return listing_add_name(&listing->kernels, symbol, length);
}

hd_status hdi_listing_variable(hdi_listing *listing, const char *symbol, size_t length, bool constant)
{
    if (memchr(symbol, '$', length)) {
        /* a name with a $ belongs to a variable that the compiler made; no name of C++ contains a
         * $ */
        return HD_OK;
    }
    hdi_listed *variable = listing_add_name(&listing->variables, symbol, length);
    if (!variable) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the list of variables");
    }
    variable->constant = constant;
    return HD_OK;
}

void hdi_listing_describe(hdi_listed *kernel, hdi_listed_param *params, uint32_t n)
{
    if (kernel->described) {
        free(params);
        return;
    }
    kernel->described = true;
    kernel->params = params;
    kernel->n_params = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = params[i].offset + params[i].size;
        kernel->argument_bytes = end > kernel->argument_bytes ? end : kernel->argument_bytes;
    }
}

/* In PTX, the types of floating-point numbers and structures can be recognised. Addresses and
 * integers look the same. */
static uint32_t listing_kind_of_ptx(const hdi_ptx_param *p)
{
    if (p->type == 'a') {
        return HD_ARG_BYTES;
    }
    return p->type == 'f' && p->size == 4 ? HD_ARG_F32 : p->type == 'f' && p->size == 8 ? HD_ARG_F64 : HD_ARG_NONE;
}

static hd_status listing_add_entry(hdi_listing *listing, const hdi_ptx_entry *entry)
{
    hdi_listed *kernel = hdi_listing_kernel(listing, entry->name, strlen(entry->name));
    hdi_listed_param *params = calloc(entry->n_params ? entry->n_params : 1, sizeof *params);
    if (!kernel || !params) {
        free(params);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the list of kernels");
    }
    for (uint32_t i = 0; i < entry->n_params; i++) {
        const hdi_ptx_param *p = &entry->params[i];
        params[i] = (hdi_listed_param){listing_kind_of_ptx(p), p->offset, p->size};
    }
    hdi_listing_describe(kernel, params, entry->n_params);
    return HD_OK;
}

hd_status hdi_listing_add_ptx(hdi_listing *listing, const char *text, size_t bytes)
{
    hdi_ptx ptx;
    hd_status status = hdi_ptx_scan(text, bytes, &ptx);
    if (status) {
        return status;
    }
    for (uint32_t i = 0; i < ptx.n_entries && !status; i++) {
        status = listing_add_entry(listing, &ptx.entries[i]);
    }
    for (uint32_t i = 0; i < ptx.n_variables && !status; i++) {
        const hdi_ptx_variable *v = &ptx.variables[i];
        status = hdi_listing_variable(listing, v->name, v->name_bytes, v->constant);
    }
    if (ptx.texture_bytes && !listing->texture[0]) {
        hdi_listing_name(listing->texture, ptx.texture, ptx.texture_bytes);
    }
    hdi_ptx_release(&ptx);
    return status;
}

hd_status hdi_listing_read(const void *image, size_t bytes, hdi_listing *out)
{
    memset(out, 0, sizeof *out);
    if (hdi_fatbin_detect(image, bytes)) {
        return hdi_listing_add_fatbin(out, image, bytes);
    }
    if (bytes > 4 && memcmp(image, "\177ELF", 4) == 0) {
        return hdi_listing_add_cubin(out, image, bytes);
    }
    return hdi_listing_add_ptx(out, image, bytes);
}

static void listing_release_names(hdi_listed_names *names)
{
    for (uint32_t i = 0; i < names->n; i++) {
        free(names->of[i].symbol);
        free(names->of[i].readable);
        free(names->of[i].params);
    }
    free(names->of);
    free(names->places);
}

void hdi_listing_release(hdi_listing *listing)
{
    listing_release_names(&listing->kernels);
    listing_release_names(&listing->variables);
    memset(listing, 0, sizeof *listing);
}
