/* amount.c - amounts of bytes and durations as text. See amount.h for threads and locks. */
#include "base/amount.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

/* The power of two of a unit ("", "K", "MB", "GiB", ...), -1: it is none. */
static int unit_shift(const char *unit)
{
    static const char letters[] = "kmgt";
    if (unit[0] == 0) {
        return 0;
    }
    const char *letter = strchr(letters, tolower((unsigned char)unit[0]));
    const char *rest = unit + 1;
    rest += (rest[0] == 'i' || rest[0] == 'I') && rest[1] != 0; /* "iB", never "i" alone */
    rest += rest[0] == 'b' || rest[0] == 'B';
    return letter && rest[0] == 0 ? (int)(letter - letters + 1) * 10 : -1;
}

bool hdi_bytes_parse(const char *text, int64_t *out)
{
    uint64_t whole = 0, part = 0, scale = 1; /* part / scale */
    const char *begin = text;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (whole > (UINT64_MAX - 9) / 10) {
            return false;
        }
        whole = whole * 10 + (uint64_t)(*text - '0');
    }
    bool digits = text != begin, fraction = *text == '.';
    text += fraction;
    for (; fraction && *text >= '0' && *text <= '9'; text++) {
        digits = true;
        if (scale < UINT64_C(1000000000000000000)) { /* what comes behind is less than a byte */
            part = part * 10 + (uint64_t)(*text - '0');
            scale *= 10;
        }
    }
    int shift = unit_shift(text);
    if (!digits || shift < 0 || (fraction && shift == 0)) {
        return false;
    }
    unsigned __int128 bytes = ((unsigned __int128)whole << shift) + ((unsigned __int128)part << shift) / scale;
    if (bytes > INT64_MAX) {
        return false;
    }
    *out = (int64_t)bytes;
    return true;
}
