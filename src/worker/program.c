/* program.c - finds the worker program: named by the option, or beside the library (in the build tree or installed).
 *
 * Threads: any. Locks: none.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "worker/workers.h"

#define NAME "heddle-worker"

#ifndef HDI_WORKER_INSTALLED
#define HDI_WORKER_INSTALLED "/usr/local/libexec/" NAME
#endif

/* The directory of the shared library, or of the program that it is linked into. */
static bool own_directory(char *out, size_t bytes)
{
    Dl_info info;
    char path[PATH_MAX];
    bool found = dladdr((void *)(uintptr_t)hdi_worker_find, &info) != 0 && info.dli_fname;
    if (!found || !realpath(info.dli_fname, path)) {
        /* of a static program the loader may know the name only as it was typed */
        ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
        if (n <= 0) {
            return false;
        }
        path[n] = 0;
    }
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= bytes) {
        return false;
    }
    *slash = 0;
    snprintf(out, bytes, "%s", path);
    return true;
}

hd_status hdi_worker_find(const char *option, char *out, size_t bytes)
{
    if (option[0]) {
        /* absolute: it is started again after the program may have gone to another directory */
        char path[PATH_MAX];
        if (!realpath(option, path) || access(path, X_OK) != 0 || strlen(path) >= bytes) {
            return hdi_fail(HD_ERROR_SYSTEM, "hd_open: worker=%s: %s", option, strerror(errno));
        }
        snprintf(out, bytes, "%s", path);
        return HD_OK;
    }
    /* beside the library; one up, for programs in the build tree; where `make install` puts it, seen from lib and lib/ARCH */
    static const char *const places[] = {"/" NAME, "/../" NAME, "/../libexec/" NAME, "/../../libexec/" NAME};
    char directory[PATH_MAX];
    if (own_directory(directory, sizeof directory)) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            int n = snprintf(out, bytes, "%s%s", directory, places[i]);
            if (n > 0 && (size_t)n < bytes && access(out, X_OK) == 0) {
                return HD_OK;
            }
        }
    } else {
        directory[0] = 0;
    }
    snprintf(out, bytes, "%s", HDI_WORKER_INSTALLED);
    if (access(out, X_OK) == 0) {
        return HD_OK;
    }
    return hdi_fail(HD_ERROR_SYSTEM,
                    "hd_open: placement=process needs the program " NAME ", which is not in %s, nor one or two up in "
                    "libexec, nor at %s: set the option worker",
                    directory[0] ? directory : "(unknown)", HDI_WORKER_INSTALLED);
}
