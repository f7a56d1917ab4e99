/* program.c - finds a program of the library's own: named by its option, or beside the library (in the build tree or installed).
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
#include "worker/spawn.h"

#ifndef HDI_PROGRAMS_INSTALLED
#define HDI_PROGRAMS_INSTALLED "/usr/local/libexec"
#endif

/* The directory of the shared library, or of the program that it is linked into. */
static bool own_directory(char *out, size_t bytes)
{
    Dl_info info;
    char path[PATH_MAX];
    bool found = dladdr((void *)(uintptr_t)hdi_program_find, &info) != 0 && info.dli_fname;
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

hd_status hdi_program_find(const char *name, const char *option, const char *value, const char *need, char *out,
                           size_t bytes)
{
    if (value[0]) {
        /* absolute: it is started again after the program may have gone to another directory */
        char path[PATH_MAX];
        if (!realpath(value, path) || access(path, X_OK) != 0 || strlen(path) >= bytes) {
            return hdi_fail(HD_ERROR_SYSTEM, "hd_open: %s=%s: %s", option, value, strerror(errno));
        }
        snprintf(out, bytes, "%s", path);
        return HD_OK;
    }
    /* beside the library; one up, for programs in the build tree; where `make install` puts it, seen from lib and lib/ARCH */
    static const char *const places[] = {"", "/..", "/../libexec", "/../../libexec"};
    char directory[PATH_MAX];
    if (own_directory(directory, sizeof directory)) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            int n = snprintf(out, bytes, "%s%s/%s", directory, places[i], name);
            if (n > 0 && (size_t)n < bytes && access(out, X_OK) == 0) {
                return HD_OK;
            }
        }
    } else {
        directory[0] = 0;
    }
    int n = snprintf(out, bytes, "%s/%s", HDI_PROGRAMS_INSTALLED, name);
    if (n > 0 && (size_t)n < bytes && access(out, X_OK) == 0) {
        return HD_OK;
    }
    return hdi_fail(
        HD_ERROR_SYSTEM,
        "hd_open: %s needs the program %s, which is not in %s, nor one or two up in libexec, nor in %s: set "
        "the option %s",
        need, name, directory[0] ? directory : "(unknown)", HDI_PROGRAMS_INSTALLED, option);
}
