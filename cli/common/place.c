/* place.c - finds the tool's own files. See place.h.
 */
#include "cli/common/place.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "process/spawn.h"

#ifndef HEDDLE_SOURCE_DIR
#define HEDDLE_SOURCE_DIR ""
#endif
#ifndef HEDDLE_BUILD_DIR
#define HEDDLE_BUILD_DIR ""
#endif

/* The folder of the tool. */
static bool cli_place_own_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (!slash || slash == out) {
        return false;
    }
    *slash = 0;
    return true;
}

static bool cli_place_is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static bool cli_place_is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return a[0] && b[0] && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool cli_place_try_path(const char *folder, const char *path, char *out, size_t bytes)
{
    int n = path ? snprintf(out, bytes, "%s%s%s", folder, folder[0] ? "/" : "", path) : -1;
    return n > 0 && (size_t)n < bytes && out[0] == '/' && cli_place_is_folder(out);
}

bool cli_place_find(const char *in_source, const char *from_tool, const char *installed, char *out, size_t bytes)
{
    char own[PATH_MAX];
    bool known = cli_place_own_folder(own);
    if (known && cli_place_is_same_file(own, HEDDLE_BUILD_DIR)) {
        return cli_place_try_path(HEDDLE_SOURCE_DIR, in_source, out, bytes);
    }
    return (known && cli_place_try_path(own, from_tool, out, bytes)) || cli_place_try_path("", installed, out, bytes);
}

bool cli_place_program(const char *name, char *out, size_t bytes, char *why)
{
    return hdi_program_beside(name, out, bytes, why, PLACE_WHY);
}
