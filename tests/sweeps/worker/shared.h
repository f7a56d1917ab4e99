/* shared.h - memory that a test shares with the workers of its runtimes: an unnamed file to which
 * an environment variable leads.
 *
 * Threads: one makes it, before any worker starts; a worker finds it before its main. Locks: none.
 */
#ifndef TEST_SWEEPS_WORKER_SHARED_H
#define TEST_SWEEPS_WORKER_SHARED_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* For the test, which keeps the file open. Returns NULL on failure. */
static inline void *shared_make(const char *variable, size_t bytes)
{
    char path[64];
    int file = memfd_create("heddle-test", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        return NULL;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), file);
    return base != MAP_FAILED && setenv(variable, path, 1) == 0 ? base : NULL;
}

/* For the worker. Returns NULL if no test made the memory. */
static inline void *shared_find(const char *variable, size_t bytes)
{
    const char *path = getenv(variable);
    int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *base = file >= 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) {
        close(file);
    }
    return base != MAP_FAILED ? base : NULL;
}

#endif
