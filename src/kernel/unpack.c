/* unpack.c - blocks of LZ4, and zstd by its library (unpack.h). Threads, locks, blocking, and
 * guarantees: see there.
 *
 * A block of LZ4 is a row of sequences. Each sequence consists of a token, literals and a match. A
 * match repeats bytes that were unpacked up to 64 KiB before. The token contains the lengths of the
 * literals and of the match, 4 bits each. If a length is 15, more bytes follow, which are added to
 * the length. The last sequence consists only of literals.
 */
#include "base/descriptor.h"
#include "kernel/unpack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { LEAST_MATCH = 4, LENGTH_GOES_ON = 15 };

/* Adds the bytes that follow a length of 15. False: they are cut off. */
static bool unpack_whole_length(const unsigned char **at, const unsigned char *end, size_t *length)
{
    if (*length != LENGTH_GOES_ON) {
        return true;
    }
    unsigned char more = 255;
    while (more == 255) {
        if (*at == end) {
            return false;
        }
        more = *(*at)++;
        *length += more;
    }
    return true;
}

bool hdi_unpack_lz4(const void *packed, size_t bytes, void *out, size_t room)
{
    const unsigned char *at = packed, *end = at + bytes;
    unsigned char *to = out;
    size_t done = 0;
    while (at < end) {
        unsigned char token = *at++;
        size_t literals = token >> 4, match = token & 15;
        if (!unpack_whole_length(&at, end, &literals) || literals > (size_t)(end - at) || literals > room - done) {
            return false;
        }
        memcpy(to + done, at, literals);
        at += literals;
        done += literals;
        if (at == end) {
            return done == room;
        }
        if (end - at < 2) {
            return false;
        }
        size_t back = at[0] | (size_t)at[1] << 8;
        at += 2;
        if (!unpack_whole_length(&at, end, &match)) {
            return false;
        }
        match += LEAST_MATCH;
        if (back == 0 || back > done || match > room - done) {
            return false;
        }
        /* Copies byte by byte, since the match may overlap its own output. */
        for (size_t i = 0; i < match; i++, done++) {
            to[done] = to[done - back];
        }
    }
    return false;
}

/* ---- zstd ---- */

static size_t (*zstd)(void *out, size_t room, const void *packed, size_t bytes);

static void unpack_open_zstd(void)
{
    void *library = hdi_descriptor_library("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "ZSTD_decompress") : NULL;
    memcpy(&zstd, &symbol, sizeof zstd);
}

bool hdi_unpack_has_zstd(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, unpack_open_zstd);
    return zstd != NULL;
}

bool hdi_unpack_zstd(const void *packed, size_t bytes, void *out, size_t room)
{
    /* If zstd fails, it returns an error code, which is larger than any size of `out`. */
    return hdi_unpack_has_zstd() && zstd(out, room, packed, bytes) == room;
}
