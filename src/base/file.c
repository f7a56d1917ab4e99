/* file.c - writes to files and pipes without signals, and replaces files as a whole. Threads, locks
 * and blocking: see file.h.
 *
 * Always: a replaced file gets its name only once it is complete.
 */
#include "base/descriptor.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/cancel.h"
#include "base/wait.h"

/* ---- without signals ---- */

/* Signals of writing are held back between begin and end. */
typedef struct quiet_state {
    sigset_t before, pending;
} quiet_state;

static void quiet_begin(quiet_state *quiet)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    sigpending(&quiet->pending);
    pthread_sigmask(SIG_BLOCK, &both, &quiet->before);
}

/* `error`: the errno of a failure in between, or 0. Removes the signal of that failure, unless this
 * signal was already pending for the program. Keeps errno. */
static void quiet_end(const quiet_state *quiet, int error)
{
    int saved = errno;
    int signal = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (signal != 0 && sigismember(&quiet->pending, signal) != 1) {
        const struct timespec now = {0, 0};
        sigset_t it;
        sigemptyset(&it);
        sigaddset(&it, signal);
        while (sigtimedwait(&it, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = saved;
}

int hdi_quiet_resize(int descriptor, off_t bytes)
{
    quiet_state quiet;
    quiet_begin(&quiet);
    int result = ftruncate(descriptor, bytes);
    quiet_end(&quiet, result != 0 ? errno : 0);
    return result;
}

/* A pipe that is ready takes at least this much at once. */
#define PIECE 4096

static bool file_await_room(int descriptor, int64_t deadline)
{
    struct pollfd p = {.fd = descriptor, .events = POLLOUT};
    for (;;) {
        int64_t left = deadline == INT64_MAX ? INT32_MAX : (deadline - hdi_clock_ns() + 999999) / 1000000;
        int n = poll(&p, 1, left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left);
        if (n > 0) {
            return true;
        }
        if (n == 0) {
            errno = ETIMEDOUT;
        }
        if (n == 0 || errno != EINTR) {
            return false;
        }
    }
}

/* False with errno. */
static bool file_write_all(int descriptor, const char *text, size_t length, int64_t deadline)
{
    struct stat facts;
    bool regular = fstat(descriptor, &facts) == 0 &&
                   /* a regular file gets the text in one call, so that lines of several programs do
                    * not mix */
                   S_ISREG(facts.st_mode);
    for (size_t at = 0; at < length;) {
        size_t n = regular || length - at < PIECE ? length - at : PIECE;
        if (!regular && !file_await_room(descriptor, deadline)) {
            return false;
        }
        ssize_t put = write(descriptor, text + at, n);
        if (put < 0 && errno != EINTR && errno != EAGAIN) {
            return false;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

bool hdi_write_quietly(int descriptor, const char *text, size_t length, int64_t deadline)
{
    /* needed, since even calls that do not hold cancellation off write reports */
    HDI_UNCANCELLED;
    quiet_state quiet;
    quiet_begin(&quiet);
    bool ok = file_write_all(descriptor, text, length, deadline);
    quiet_end(&quiet, ok ? 0 : errno);
    return ok;
}

/* ---- replaced as a whole ---- */

#define SUFFIX ".XXXXXX"
#define NAMES 64 /* this many names are tried; mostly the first name is free */
/* leftovers are deleted after this many seconds, since no writer takes so long */
#define LEFT_AFTER 60

/* Splits a path into the folder and the file's own name. */
static bool file_split_path(const char *path, char folder[PATH_MAX], const char **name)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash != NULL ? (size_t)(slash - path) : 0;
    if (n >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (slash == NULL) {
        strcpy(folder, ".");
    } else {
        snprintf(folder, PATH_MAX, "%.*s", (int)(n == 0 ? 1 : n), path);
    }
    *name = slash != NULL ? slash + 1 : path;
    return true;
}

/* Gives an unnamed file a name that no other file uses: `fresh`, which ends in SUFFIX. */
static bool file_give_name(int fd, char *fresh)
{
    char from[64], *random = fresh + strlen(fresh) - 6;
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    for (int i = 0; i < NAMES; i++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        unsigned long mixed =
            ((unsigned long)now.tv_nsec + (unsigned long)getpid() * 7919u + (unsigned long)i) * 2654435761u;
        snprintf(random, 7, "%06lx", mixed >> 8 & 0xffffff);
        if (linkat(AT_FDCWD, from, AT_FDCWD, fresh, AT_SYMLINK_FOLLOW) == 0) {
            return true;
        }
        if (errno != EEXIST) {
            return false;
        }
    }
    return false;
}

/* Writes into a file that gets its name only once it is complete. */
static bool file_replace_unnamed(const char *path, const char *folder, char *fresh, const void *content, size_t bytes,
                                 mode_t mode)
{
    int fd = hdi_descriptor_open(folder, O_TMPFILE | O_WRONLY, 0600);
    bool whole = fd >= 0 && hdi_write_quietly(fd, content, bytes, INT64_MAX) && fchmod(fd, mode) == 0;
    bool named = whole && file_give_name(fd, fresh);
    bool good = named && rename(fresh, path) == 0;
    int code = errno;
    if (named && !good) {
        unlink(fresh);
    }
    if (fd >= 0) {
        close(fd);
    }
    errno = code;
    return good;
}

/* Replaces a file on a file system without unnamed files. */
static bool file_replace_named(const char *path, char *fresh, const void *content, size_t bytes, mode_t mode)
{
    strcpy(fresh + strlen(fresh) - (sizeof SUFFIX - 1), SUFFIX);
    int fd = hdi_descriptor_temporary(fresh);
    bool good = fd >= 0 && hdi_write_quietly(fd, content, bytes, INT64_MAX) && fchmod(fd, mode) == 0;
    int code = errno;
    if (fd >= 0 && close(fd) != 0 && good) { /* NFS reports a lack of room only here */
        good = false;
        code = errno;
    }
    if (good && rename(fresh, path) != 0) {
        good = false;
        code = errno;
    }
    if (fd >= 0 && !good) {
        unlink(fresh);
    }
    errno = code;
    return good;
}

bool hdi_file_replace(const char *path, const void *content, size_t bytes, mode_t mode)
{
    char folder[PATH_MAX], fresh[PATH_MAX + 16];
    const char *name;
    if (!file_split_path(path, folder, &name)) {
        return false;
    }
    int n = snprintf(fresh, sizeof fresh, "%s/.%s" SUFFIX, folder, name);
    if (n < 0 || (size_t)n >= sizeof fresh) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (file_replace_unnamed(path, folder, fresh, content, bytes, mode)) {
        return true;
    }
    bool no_such_thing = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT || errno == EPERM;
    return no_such_thing && file_replace_named(path, fresh, content, bytes, mode);
}

/* Reads up to `bytes` bytes, and returns the number read. */
static size_t file_read_all(int fd, char *out, size_t bytes)
{
    size_t n = 0;
    while (n < bytes) {
        ssize_t r = read(fd, out + n, bytes - n);
        if (r == 0 || (r < 0 && errno != EINTR)) {
            break;
        }
        n += r > 0 ? (size_t)r : 0;
    }
    return n;
}

bool hdi_file_read_own(const char *path, size_t most, char **out, size_t *bytes)
{
    int fd = hdi_descriptor_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0) {
        return false;
    }
    struct stat facts;
    bool good = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
                !(facts.st_mode & (S_IWGRP | S_IWOTH)) && facts.st_size > 0 && (uint64_t)facts.st_size <= most;
    size_t n = good ? (size_t)facts.st_size : 0;
    char *content = good ? malloc(n + 1) : NULL;
    /* one more byte reveals a growing file */
    good = content && file_read_all(fd, content, n + 1) == n;
    close(fd);
    if (!good) {
        free(content);
        return false;
    }
    content[n] = 0;
    *out = content;
    *bytes = n;
    return true;
}

void hdi_file_sweep(const char *path)
{
    char folder[PATH_MAX];
    const char *name;
    if (!file_split_path(path, folder, &name)) {
        return;
    }
    DIR *directory = hdi_descriptor_folder(folder);
    time_t now = time(NULL);
    size_t n = strlen(name);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        struct stat facts;
        bool is_left = entry->d_name[0] == '.' && strncmp(entry->d_name + 1, name, n) == 0 &&
                       entry->d_name[1 + n] == '.' && strlen(entry->d_name) == n + sizeof SUFFIX;
        if (is_left && fstatat(dirfd(directory), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && facts.st_mtime < now - LEFT_AFTER) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
}
