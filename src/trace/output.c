/* output.c - see output.h for threads, locks and invariants. */
#include "base/descriptor.h"
#include "trace/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/file.h"
#include "base/wait.h"

#define NAMES_MOST 10000
#define PIECE 4096 /* a pipe takes a piece of this size as a whole or not at all (PIPE_BUF) */
#define LOOK_NS 100000000

/* ---- opening ---- */

/* False with errno; EWOULDBLOCK: another trace is being written to this file. */
static bool output_open_one(hdi_output *o)
{
    /* The file is truncated only once it is known to be free. Opening does not block, since a pipe
     * may lack a reader. */
    o->descriptor = hdi_descriptor_open(o->name, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY, 0644);
    struct stat facts;
    if (o->descriptor < 0 || fstat(o->descriptor, &facts) != 0) {
        return false;
    }
    o->is_file = S_ISREG(facts.st_mode);
    if (!o->is_file) {
        return true;
    }
    bool taken = flock(o->descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    /* On a file system without locks, the trace is written without a lock. */
    return !taken && hdi_quiet_resize(o->descriptor, 0) == 0;
}

const char *hdi_output_reason(int error)
{
    switch (error) {
    case EWOULDBLOCK:
        return "another trace is written to it";
    case ENXIO:
        return "it is a pipe that nothing reads";
    case ETIMEDOUT:
        return "its reader took nothing for 5 seconds";
    default:
        return strerror(error);
    }
}

static char *output_name_of(const char *file, unsigned number)
{
    char *name = NULL;
    return number <= 1 ? strdup(file) : asprintf(&name, "%s.%u", file, number) < 0 ? NULL : name;
}

hd_status hdi_output_open(hdi_output *o, const char *file, _Atomic unsigned *number)
{
    *o = (hdi_output){.descriptor = -1};
    int error = 0;
    for (int i = 0; i < (number ? NAMES_MOST : 1); i++) {
        o->name = output_name_of(file, number ? atomic_fetch_add_explicit(number, 1, memory_order_relaxed) + 1 : 1);
        if (!o->name) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the name of the trace");
        }
        if (output_open_one(o)) {
            return HD_OK;
        }
        error = errno;
        if (error != EWOULDBLOCK || !number) {
            break;
        }
        hdi_output_close(o);
    }
    hd_status status =
        hdi_fail(HD_ERROR_SYSTEM, "the trace '%s' cannot be made: %s; give a%s file%s", o->name ? o->name : file,
                 hdi_output_reason(error), error == EWOULDBLOCK ? "nother" : "",
                 error == EWOULDBLOCK || error == ENXIO ? "" : " in a folder that can be written");
    hdi_output_close(o);
    return status;
}

void hdi_output_close(hdi_output *o)
{
    if (o->descriptor >= 0) {
        flock(o->descriptor, LOCK_UN); /* a child made by fork() may hold the descriptor, too */
        close(o->descriptor);
    }
    free(o->name);
    *o = (hdi_output){.descriptor = -1};
}

/* ---- writing ---- */

static size_t output_write_file(hdi_output *o, const char *data, size_t bytes)
{
    if (hdi_write_quietly(o->descriptor, data, bytes, INT64_MAX)) {
        return bytes;
    }
    int error = errno;
    off_t end = lseek(o->descriptor, 0, SEEK_CUR); /* the end of the part that fit */
    errno = error;
    uint64_t more = end > 0 && (uint64_t)end > o->bytes ? (uint64_t)end - o->bytes : 0;
    return more < bytes ? (size_t)more : bytes;
}

static size_t output_write_pipe(const hdi_output *o, const char *data, size_t bytes, const _Atomic uint32_t *ending)
{
    size_t at = 0;
    int64_t stuck = 0; /* the deadline of a pipe that takes nothing; 0: none */
    while (at < bytes) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        if (hdi_write_quietly(o->descriptor, data + at, n, hdi_deadline(LOOK_NS))) {
            at += n;
            stuck = 0;
        } else if (errno != ETIMEDOUT || (stuck && hdi_clock_ns() >= stuck)) {
            break;
            /* Pairs with the store that ends the trace. */
        } else if (!stuck && atomic_load_explicit(ending, memory_order_acquire)) {
            stuck = hdi_deadline(HDI_OUTPUT_STUCK_NS);
        }
    }
    return at;
}

size_t hdi_output_write(hdi_output *o, const void *data, size_t bytes, const _Atomic uint32_t *ending)
{
    size_t n = o->is_file ? output_write_file(o, data, bytes) : output_write_pipe(o, data, bytes, ending);
    o->bytes += n;
    return n;
}
