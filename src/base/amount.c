/* amount.c - see amount.h. */
#include "base/amount.h"

#include <inttypes.h>
#include <stdio.h>

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
