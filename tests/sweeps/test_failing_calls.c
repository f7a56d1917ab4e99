/* test_failing_calls.c - the Nth call for memory, a mapping, a descriptor, a thread or a process fails, for every N of a program that uses
 * most of the library; once, or from then on for good.
 *
 * Threads: the main one starts a process for each N, which runs the scenario; any thread there makes the calls. Locks: none.
 * Always: each run ends in order. Calls succeed, or fail with a message; bytes that were read are right; nothing is left open, running or
 * (the address sanitizer looks) allocated; and when the want is over, everything works.
 *
 * Every N is tried with HEDDLE_TEST_SWEEP=all, else one in some. HEDDLE_TEST_SWEEP=N tries only that one, and shows where the call was
 * made; an argument chooses the case, such as memory_process_good.
 */
#include "support/check.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <dirent.h>
#include <unistd.h>
#include "base/clock.h"
#include "scenario.h"
#include "support/sanitizers.h"

typedef enum kind { NONE, MEMORY, MAPPING, DESCRIPTOR, THREAD, PROCESS } kind;

/* Shared with the process that runs. */
typedef struct progress {
    atomic_int calls;             /* of the kind that fails */
    _Atomic(const char *) failed; /* the first one that did; processes of one program have their text at one address */
} progress;

static progress *shared;
static _Atomic kind failing; /* NONE: nothing fails now */
static int first_to_fail;
static bool for_good, shows;

/* Counts a call, and says whether it is to fail. */
static bool fails(kind k, const char *name)
{
    if (atomic_load(&failing) != k) {
        return false;
    }
    int n = atomic_fetch_add(&shared->calls, 1) + 1;
    if (first_to_fail == 0 || n < first_to_fail || (n > first_to_fail && !for_good)) {
        return false;
    }
    if (n == first_to_fail) {
        atomic_store(&shared->failed, name);
        if (shows) {
            atomic_store(&failing, NONE);
            void *frames[32];
            backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
            atomic_store(&failing, k);
        }
    }
    return true;
}

/* ---- the calls, in whose place the linker puts these (tests/CMakeLists.txt) ---- */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    errno = ENOMEM;
    return fails(MEMORY, "malloc") ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    errno = ENOMEM;
    return fails(MEMORY, "calloc") ? NULL : __real_calloc(n, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    errno = ENOMEM;
    return fails(MEMORY, "realloc") ? NULL : __real_realloc(old, bytes);
}

void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    errno = ENOMEM;
    return fails(MEMORY, "aligned_alloc") ? NULL : __real_aligned_alloc(alignment, bytes);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    errno = ENOMEM;
    return fails(MEMORY, "strdup") ? NULL : __real_strdup(text);
}

FILE *__real_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);
FILE *__wrap_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);
FILE *__wrap_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions)
{
    errno = ENOMEM;
    return fails(MEMORY, "fopencookie") ? NULL : __real_fopencookie(cookie, mode, functions);
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (fails(MAPPING, "mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(at, bytes, protection, flags, file, offset);
}

/* -1 with errno when the call fails. */
static bool refuse(kind k, const char *name, int code)
{
    bool refused = fails(k, name);
    errno = refused ? code : errno;
    return refused;
}

int __real_mprotect(void *at, size_t bytes, int protection);
int __wrap_mprotect(void *at, size_t bytes, int protection);
int __wrap_mprotect(void *at, size_t bytes, int protection)
{
    return refuse(MAPPING, "mprotect", ENOMEM) ? -1 : __real_mprotect(at, bytes, protection);
}

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice)
{
    return refuse(MAPPING, "madvise", ENOMEM) ? -1 : __real_madvise(at, bytes, advice);
}

int __real_ftruncate(int file, off_t bytes);
int __wrap_ftruncate(int file, off_t bytes);
int __wrap_ftruncate(int file, off_t bytes)
{
    return refuse(MAPPING, "ftruncate", ENOSPC) ? -1 : __real_ftruncate(file, bytes);
}

int __real_fallocate(int file, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int file, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int file, int mode, off_t offset, off_t bytes)
{
    return refuse(MAPPING, "fallocate", ENOSPC) ? -1 : __real_fallocate(file, mode, offset, bytes);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    return refuse(DESCRIPTOR, "memfd_create", EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return refuse(DESCRIPTOR, "open", EMFILE) ? -1 : __real_open(path, flags, mode);
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
    return makes_one && refuse(DESCRIPTOR, "fcntl", EMFILE) ? -1 : __real_fcntl(file, command, argument);
}

int __real_socketpair(int domain, int type, int protocol, int ends[2]);
int __wrap_socketpair(int domain, int type, int protocol, int ends[2]);
int __wrap_socketpair(int domain, int type, int protocol, int ends[2])
{
    return refuse(DESCRIPTOR, "socketpair", EMFILE) ? -1 : __real_socketpair(domain, type, protocol, ends);
}

int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags)
{
    return refuse(DESCRIPTOR, "pipe2", EMFILE) ? -1 : __real_pipe2(ends, flags);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags)
{
    return refuse(DESCRIPTOR, "eventfd", EMFILE) ? -1 : __real_eventfd(value, flags);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return refuse(DESCRIPTOR, "fopen", EMFILE) ? NULL : __real_fopen(path, mode);
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path)
{
    return refuse(DESCRIPTOR, "opendir", EMFILE) ? NULL : __real_opendir(path);
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
    return number == SYS_pidfd_open && refuse(DESCRIPTOR, "pidfd_open", EMFILE)
               ? -1
               : __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    return fails(THREAD, "pthread_create") ? EAGAIN : __real_pthread_create(out, attributes, run, argument);
}

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    return refuse(PROCESS, "fork", EAGAIN) ? -1 : __real_fork();
}

int __real_posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]);
int __wrap_posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]);
int __wrap_posix_spawn(pid_t *out, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    return fails(PROCESS, "posix_spawn") ? EAGAIN
                                         : __real_posix_spawn(out, path, actions, attributes, arguments, environment);
}

/* ---- one run ---- */

typedef struct sweep {
    kind k;
    bool good; /* for good */
    const char *settings;
    int one_in;       /* N that are tried, where not all are */
    int least;        /* so many calls there are at least */
    bool tests_peers; /* also in a process that tests pairs of devices */
} sweep;

/* In a process of its own. */
static void run_scenario(const void *context)
{
    const sweep *w = context;
    bool clean = first_to_fail == 0;
    scenario s = {.tests_peers = w->tests_peers};
    scenario_things before = scenario_count();
    atomic_store(&failing, w->k);
    scenario_run(&s, w->settings);
    atomic_store(&failing, NONE);
    if (clean && s.failures > 0) {
        scenario_wrong(&s, "nothing fails, but: %s", hd_message());
    }
    if (scenario_open(&s, w->settings)) { /* the want is over */
        scenario_check_devices(&s);
        scenario_close(&s);
    } else {
        scenario_wrong(&s, "hd_open afterwards: %s", hd_message());
    }
    scenario_check_things(&s, before);
    exit(s.wrong == 0 ? 0 : 1);
}

/* n 0: none fails. True: the run was in order. */
static bool run(int n, const sweep *w)
{
    *shared = (progress){0};
    first_to_fail = n;
    for_good = w->good;
    return scenario_apart(run_scenario, w);
}

/* ---- all of them ---- */

typedef struct tally {
    int runs, wrong, longest_n;
    int64_t longest_ns;
} tally;

static void try_one(int n, const sweep *w, tally *sums)
{
    int64_t before = hdi_clock_ns();
    if (!run(n, w)) {
        const char *failed = atomic_load(&shared->failed);
        fprintf(stderr, "  WRONG: call %d (%s) fails %s: %s\n", n, failed != NULL ? failed : "none",
                w->good ? "for good" : "once", w->settings);
        sums->wrong++;
    }
    int64_t took = hdi_clock_ns() - before;
    if (took > sums->longest_ns) {
        sums->longest_ns = took;
        sums->longest_n = n;
    }
    sums->runs++;
}

static void go_through(void **state)
{
    const sweep *w = *state;
    scenario_choice choice = scenario_choose(w->one_in);
    tally sums = {0};
    shows = choice.single;
    assert_true(run(0, w));
    int n = choice.first;
    do {
        try_one(n, w, &sums);
        n += choice.step;
    } while (!choice.single && atomic_load(&shared->failed) != NULL && sums.wrong <= 20);
    printf("    %d runs of %d calls; the longest took %.1f s, with N %d\n", sums.runs, atomic_load(&shared->calls),
           (double)sums.longest_ns / 1e9, sums.longest_n);
    assert_int_equal(sums.wrong, 0);
    assert_true(choice.single || n > w->least);
}

#define SLOW (TEST_ASAN ? 3 : 1)

#define PLACED(name, kind_, one_in_, least_, one_in_process, least_process, tests_peers_)                              \
    static sweep name##_thread = {kind_, false, "placement=thread peers=off", one_in_, least_, tests_peers_};          \
    static sweep name##_thread_good = {kind_, true, "placement=thread peers=off", one_in_, least_, tests_peers_};      \
    static sweep name##_process = {kind_, false, "placement=process peers=off", one_in_process, least_process, false}; \
    static sweep name##_process_good = {kind_,          true,          "placement=process peers=off",                  \
                                        one_in_process, least_process, false};
PLACED(memory, MEMORY, 7 * SLOW, 200, 7 * SLOW, 150, false)
PLACED(mapping, MAPPING, 3, 30, 3, 15, false)
PLACED(descriptor, DESCRIPTOR, 2, 20, 2, 20, true)
PLACED(thread, THREAD, 1, 6, 1, 2, true)
PLACED(process, PROCESS, 1, 1, 1, 3, true)

#define SWEEP(which)                                                                                                   \
    {                                                                                                                  \
#which, go_through, NULL, NULL, &which                                                                         \
    }
#define SWEEPS(name) SWEEP(name##_thread), SWEEP(name##_thread_good), SWEEP(name##_process), SWEEP(name##_process_good)

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
#if TEST_TSAN
    return test_skip("the thread sanitizer does not follow a process into its children");
#else
    const struct CMUnitTest tests[] = {SWEEPS(memory), SWEEPS(mapping), SWEEPS(descriptor), SWEEPS(thread),
                                       SWEEPS(process)};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
#endif
}
