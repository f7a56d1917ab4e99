/* text.c - amounts, UTF-8, call sites, and a FILE that writes into memory. Threads, locks and
 * invariants: see text.h. */
#include "base/text.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* ---- amounts ---- */

void hdi_tenths_text(uint64_t value, uint64_t unit, char *out, size_t room)
{
    uint64_t whole = value / unit;
    uint64_t part = (uint64_t)((unsigned __int128)(value % unit) * 10 / unit);
    if (value % unit == 0) {
        snprintf(out, room, "%" PRIu64, whole);
    } else {
        snprintf(out, room, "%" PRIu64 ".%" PRIu64, whole, part);
    }
}

const char *hdi_bytes_text(uint64_t bytes, char out[HDI_AMOUNT_BYTES])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    char number[48];
    int unit = 0;
    while (unit < 4 && bytes >> (10 * unit) >= 1024) {
        unit++;
    }
    hdi_tenths_text(bytes, UINT64_C(1) << (10 * unit), number, sizeof number);
    snprintf(out, HDI_AMOUNT_BYTES, "%s %s", number, bytes == 1 ? "byte" : units[unit]);
    return out;
}

const char *hdi_duration_text(uint64_t ns, char out[HDI_AMOUNT_BYTES])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    char number[48];
    uint64_t size = 1;
    int unit = 0;
    while (unit < 3 && ns / size >= 1000) {
        size *= 1000;
        unit++;
    }
    hdi_tenths_text(ns, size, number, sizeof number);
    snprintf(out, HDI_AMOUNT_BYTES, "%s %s", number, units[unit]);
    return out;
}

/* ---- UTF-8 ---- */

int hdi_utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) {
        return 1;
    }
    int length = s[0] >= 0xc2 && s[0] <= 0xdf ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4 : 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xed && s[1] > 0x9f;
    bool too_large = s[0] == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || too_large ? 0 : length;
}

size_t hdi_utf8_fit(const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    if (n < most || text[n] == 0) {
        return n;
    }
    /* finds the begin of a character that may continue behind n */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char *at = (const unsigned char *)text + n - back;
        if ((*at & 0xc0) != 0x80) {
            return (size_t)hdi_utf8_length(at) > back ? n - back : n;
        }
    }
    return n;
}

void hdi_utf8_copy(char *out, size_t room, const char *text)
{
    size_t n = hdi_utf8_fit(text, room - 1);
    memcpy(out, text, n);
    memset(out + n, 0, room - n);
}

/* ---- the address of a call ---- */

static const char *site_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void hdi_site_text(const void *site, char out[HDI_SITE_BYTES])
{
    Dl_info info;
    uintptr_t at = (uintptr_t)site;
    memset(out, 0, HDI_SITE_BYTES);
    /* The call returns to this address, which may already be in the next function. */
    if (at == 0) {
        snprintf(out, HDI_SITE_BYTES, "unknown");
    } else if (!dladdr((const void *)(at - 1), &info) || !info.dli_fname) {
        snprintf(out, HDI_SITE_BYTES, "0x%" PRIxPTR, at);
    } else if (info.dli_sname) {
        snprintf(out, HDI_SITE_BYTES, "%.100s+0x%" PRIxPTR, info.dli_sname, at - (uintptr_t)info.dli_saddr);
    } else {
        const char *name = info.dli_fname[0] ? site_file_name(info.dli_fname) : "program";
        snprintf(out, HDI_SITE_BYTES, "%.100s+0x%" PRIxPTR, name, at - (uintptr_t)info.dli_fbase);
    }
}

/* ---- a FILE that writes into memory ---- */

/* Makes room for `length` bytes and a zero. */
static bool text_grow(hdi_text *t, size_t length)
{
    if (length < t->room) {
        return true;
    }
    size_t room = 2 * length + 1024;
    char *more = realloc(t->bytes, room);
    if (more == NULL) {
        t->failed = true;
        return false;
    }
    t->bytes = more;
    t->room = room;
    return true;
}

static ssize_t text_append(void *cookie, const char *from, size_t n)
{
    hdi_text *t = cookie;
    if (t->failed || !text_grow(t, t->length + n)) {
        return 0; /* 0 means an error, for a stream */
    }
    memcpy(t->bytes + t->length, from, n);
    t->length += n;
    return (ssize_t)n;
}

FILE *hdi_text_open(hdi_text *text)
{
    *text = (hdi_text){0};
    text->file = fopencookie(text, "w", (cookie_io_functions_t){.write = text_append});
    return text->file;
}

bool hdi_text_close(hdi_text *text, char **out, size_t *length)
{
    bool whole = text->file != NULL && !ferror(text->file);
    whole = text->file != NULL && fclose(text->file) == 0 && whole;
    if (!whole || text->failed || !text_grow(text, text->length)) {
        free(text->bytes);
        return false;
    }
    text->bytes[text->length] = '\0';
    *out = text->bytes;
    *length = text->length;
    return true;
}
