/* load_file.c - hd_module_load_file: reads a file and loads its content.
 *
 * Threads: any; no state.
 * Locks: none of its own.
 * Blocking: a call waits while the file is read, and as hd_module_load does.
 * Always: the file is closed, and its content released, when the call returns.
 */
#include <heddle/module.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/text.h"
#include "engine/engine.h"

static hd_status load_file_refused(const char *path, int error)
{
    return hdi_fail(error == ENOENT || error == ENOTDIR ? HD_ERROR_NOT_FOUND : HD_ERROR_SYSTEM, "%s: %s", path,
                    strerror(error));
}

/* Reads the file, and puts a zero byte behind its content, since PTX text needs one. */
static hd_status load_file_read_open(const char *path, int descriptor, char **out, size_t *out_bytes)
{
    struct stat s;
    if (fstat(descriptor, &s) != 0) {
        return load_file_refused(path, errno);
    }
    if (!S_ISREG(s.st_mode)) {
        return S_ISDIR(s.st_mode) ? load_file_refused(path, EISDIR)
                                  : hdi_fail(HD_ERROR_SYSTEM, "%s: not a regular file; use hd_module_load", path);
    }
    size_t bytes = (size_t)s.st_size, n = 0;
    char *content = bytes < SIZE_MAX / 2 ? malloc(bytes + 1) : NULL;
    if (!content) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "%s: no memory for its %s", path, HDI_BYTES(bytes));
    }
    while (n < bytes) {
        ssize_t got = read(descriptor, content + n, bytes - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            int error = errno;
            free(content);
            return load_file_refused(path, error);
        }
        if (got == 0) {
            /* the file became shorter during the read; the bytes that were read are checked like
             * any image */
            break;
        }
        n += (size_t)got;
    }
    if (n == 0) {
        free(content);
        return hdi_fail(HD_ERROR_IMAGE, "%s: the file is empty", path);
    }
    content[n] = 0;
    *out = content;
    *out_bytes = n;
    return HD_OK;
}

hd_status hd_module_load_file(hd_runtime *rt, const char *path, hd_module **out)
{
    HDI_INSIDE(rt);
    if (!path || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", !out ? "out" : "path");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    /* O_NONBLOCK: the call does not wait for a pipe's writer. */
    int descriptor = hdi_descriptor_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (descriptor < 0) {
        return load_file_refused(path, errno);
    }
    char *content = NULL;
    size_t bytes = 0;
    hd_status status = load_file_read_open(path, descriptor, &content, &bytes);
    close(descriptor);
    if (!status) {
        status = HDI_FAIL_ABOUT(hd_module_load(rt, content, bytes, out), "%s", path);
        free(content);
    }
    return status;
}
