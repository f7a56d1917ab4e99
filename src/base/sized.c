/* sized.c - structures that grow from release to release, and the loaded release. Threads, locks
 * and invariants: see sized.h. */
#include <heddle/version.h>
#include "base/error.h"
#include "base/sized.h"

/* The library reads and writes `size` of these structures separately from their other bytes, so it
 * must be their first word. */
#define FIRST_IS_SIZE(structure, last)                                                                                 \
    _Static_assert(offsetof(structure, size) == 0 && sizeof(((structure *)0)->size) == sizeof(size_t), #structure);
HDI_SIZED_MAP(FIRST_IS_SIZE)

hd_status hdi_sized_refuse(const char *structure, size_t size, size_t least)
{
    return hdi_fail(HD_ERROR_ARGUMENT, "%s.size is %zu, which is too %s: set it to sizeof(%s)", structure, size,
                    size < least ? "small" : "large", structure);
}

static bool sized_is_zero(const char *bytes, size_t count)
{
    while (count > 0 && *bytes == 0) {
        bytes++;
        count--;
    }
    return count == 0;
}

const void *hdi_sized_convert(const char *structure, const void *given, void *room, size_t known, size_t least)
{
    size_t size = *(const size_t *)given;
    if (size < least || size > HDI_SIZED_MOST) {
        hdi_sized_refuse(structure, size, least);
        return NULL;
    }
    if (size < known) {
        memset(room, 0, known);
        memcpy(room, given, size);
        return room;
    }
    if (!sized_is_zero((const char *)given + known, size - known)) {
        hdi_fail(HD_ERROR_ARGUMENT,
                 "the program sets fields of %s that this library (version %s) does not have: leave them 0, or use "
                 "a newer library",
                 structure, HD_VERSION_STRING);
        return NULL;
    }
    return given;
}

void hdi_sized_give(void *out, const void *from, size_t known)
{
    size_t size = *(size_t *)out;
    if (size <= sizeof size) {
        return;
    }
    /* only hd_last_error can pass a larger size here, since it cannot fail */
    size = size <= HDI_SIZED_MOST ? size : known;
    size_t both = size < known ? size : known;
    memcpy((char *)out + sizeof size, (const char *)from + sizeof size, both - sizeof size);
    if (size > known) {
        memset((char *)out + known, 0, size - known);
    }
}

const char *hd_version(void)
{
    return HD_VERSION_STRING;
}
