/* failing.c - makes system calls fail when a test asks for it, in the test itself and in the worker
 * program that contains this file.
 *
 * Threads: any. Locks: none. HEDDLE_TEST_FAILING names the file with the requested failure; the
 * workers of a test find it there.
 */
#include "sweeps/worker/failing.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sweeps/worker/shared.h"

failing_calls *failing;
static bool is_worker;

bool failing_begin(void)
{
    failing = shared_make("HEDDLE_TEST_FAILING", sizeof *failing);
    return failing != NULL;
}

/* A worker starts after the test made the file. */
__attribute__((constructor)) static void find_file(void)
{
    failing = shared_find("HEDDLE_TEST_FAILING", sizeof *failing);
    is_worker = failing != NULL;
}

/* Counts a call. Returns true if it must fail. */
static bool fails(failing_kind k, const char *name)
{
    if (failing == NULL || failing->in_worker != is_worker || atomic_load(&failing->kind) != k) {
        return false;
    }
    int n = atomic_fetch_add(&failing->calls, 1) + 1;
    if (failing->first == 0 || n < failing->first || (n > failing->first && !failing->for_good)) {
        return false;
    }
    if (n == failing->first) {
        if (failing->shows) {
            void *frames[32];
            atomic_store(&failing->kind, FAILING_NONE);
            backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
            atomic_store(&failing->kind, k);
        }
        for (size_t i = 0; name[i] != 0 && i < sizeof failing->name - 1; i++) {
            failing->name[i] = name[i];
        }
    }
    return true;
}

/* ---- the calls that the linker replaces by these (tests/CMakeLists.txt) ---- */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    errno = ENOMEM;
    return fails(FAILING_MEMORY, "malloc") ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    errno = ENOMEM;
    return fails(FAILING_MEMORY, "calloc") ? NULL : __real_calloc(n, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    errno = ENOMEM;
    return fails(FAILING_MEMORY, "realloc") ? NULL : __real_realloc(old, bytes);
}

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    errno = ENOMEM;
    return fails(FAILING_MEMORY, "aligned_alloc") ? NULL : __real_aligned_alloc(alignment, bytes);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    errno = ENOMEM;
    return fails(FAILING_MEMORY, "strdup") ? NULL : __real_strdup(text);
}

FILE *__real_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);
FILE *__wrap_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);
FILE *__wrap_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions)
{
    errno = ENOMEM;
    return fails(FAILING_MEMORY, "fopencookie") ? NULL : __real_fopencookie(cookie, mode, functions);
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (fails(FAILING_MAPPING, "mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, protection, flags, file, offset);
}

/* True if the call must fail; sets errno then. */
static bool refuse(failing_kind k, const char *name, int code)
{
    bool refused = fails(k, name);
    errno = refused ? code : errno;
    return refused;
}

int __real_mprotect(void *at, size_t bytes, int protection);
int __wrap_mprotect(void *at, size_t bytes, int protection);
int __wrap_mprotect(void *at, size_t bytes, int protection)
{
    return refuse(FAILING_MAPPING, "mprotect", ENOMEM) ? -1 : __real_mprotect(at, bytes, protection);
}

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice)
{
    return refuse(FAILING_MAPPING, "madvise", ENOMEM) ? -1 : __real_madvise(at, bytes, advice);
}

int __real_ftruncate(int file, off_t bytes);
int __wrap_ftruncate(int file, off_t bytes);
int __wrap_ftruncate(int file, off_t bytes)
{
    return refuse(FAILING_MAPPING, "ftruncate", ENOSPC) ? -1 : __real_ftruncate(file, bytes);
}

int __real_fallocate(int file, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int file, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int file, int mode, off_t offset, off_t bytes)
{
    return refuse(FAILING_MAPPING, "fallocate", ENOSPC) ? -1 : __real_fallocate(file, mode, offset, bytes);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    return refuse(FAILING_DESCRIPTOR, "memfd_create", EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return refuse(FAILING_DESCRIPTOR, "open", EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __real_fcntl(int file, int command, ...);
int __wrap_fcntl(int file, int command, ...);
int __wrap_fcntl(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    bool makes_one = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    return makes_one && refuse(FAILING_DESCRIPTOR, "fcntl", EMFILE) ? -1 : __real_fcntl(file, command, argument);
}

int __real_socketpair(int domain, int type, int protocol, int ends[2]);
int __wrap_socketpair(int domain, int type, int protocol, int ends[2]);
int __wrap_socketpair(int domain, int type, int protocol, int ends[2])
{
    return refuse(FAILING_DESCRIPTOR, "socketpair", EMFILE) ? -1 : __real_socketpair(domain, type, protocol, ends);
}

int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags)
{
    return refuse(FAILING_DESCRIPTOR, "pipe2", EMFILE) ? -1 : __real_pipe2(ends, flags);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags)
{
    return refuse(FAILING_DESCRIPTOR, "eventfd", EMFILE) ? -1 : __real_eventfd(value, flags);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return refuse(FAILING_DESCRIPTOR, "fopen", EMFILE) ? NULL : __real_fopen(path, mode);
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    return refuse(FAILING_DESCRIPTOR, "opendir", EMFILE) ? NULL : __real_opendir(path);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(arguments, long);
    }
    va_end(arguments);
    return number == SYS_pidfd_open && refuse(FAILING_DESCRIPTOR, "pidfd_open", EMFILE)
               ? -1
               : __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return fails(FAILING_THREAD, "pthread_create") ? EAGAIN : __real_pthread_create(out, attributes, run, argument);
}

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    return refuse(FAILING_PROCESS, "fork", EAGAIN) ? -1 : __real_fork();
}

int __real_posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]);
int __wrap_posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]);
int __wrap_posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    return fails(FAILING_PROCESS, "posix_spawn")
               ? EAGAIN
               : __real_posix_spawn(out, path, actions, attributes, arguments, environment);
}
