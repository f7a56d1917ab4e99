/* spawn.c - starting programs of the library's own, and seeing them end. See spawn.h for threads, locks and what always holds. */
#include "process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DESCRIPTOR_LEAST (HDI_PROGRAM_DESCRIPTOR + HDI_PROGRAM_DESCRIPTORS)

extern char **environ;

bool hdi_spawn_lift(int *descriptor)
{
    int high = fcntl(*descriptor, F_DUPFD_CLOEXEC, DESCRIPTOR_LEAST);
    if (high >= 0) {
        close(*descriptor);
        *descriptor = high;
    }
    return high >= 0;
}

static int set_up_descriptors(posix_spawn_file_actions_t *actions, const int *descriptors, int n)
{
    int e = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    e = e ? e : posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
    for (int i = 0; i < n && !e; i++) {
        e = posix_spawn_file_actions_adddup2(actions, descriptors[i], HDI_PROGRAM_DESCRIPTOR + i);
    }
    /* whatever else the application has open without close-on-exec is not the program's business */
    return e ? e : posix_spawn_file_actions_addclosefrom_np(actions, HDI_PROGRAM_DESCRIPTOR + n);
}

/* A process group of its own keeps the terminal's signals away; no signal is blocked or ignored. */
static int set_up_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int e =
        posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    e = e ? e : posix_spawnattr_setpgroup(attributes, 0);
    e = e ? e : posix_spawnattr_setsigmask(attributes, &none);
    return e ? e : posix_spawnattr_setsigdefault(attributes, &all);
}

/* The environment for a program of ours: this process's own. Where that comes from a user with fewer rights, only the variables that
 * determine which devices there are, so that it sees the same ones. `kept` has room for those. */
static char **environment_for(char *kept[4])
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS"};
    if (!getauxval(AT_SECURE)) {
        return environ;
    }
    int n = 0;
    for (char **e = environ; e && *e; e++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0] && n < 3; i++) {
            size_t length = strlen(names[i]);
            if (strncmp(*e, names[i], length) == 0 && (*e)[length] == '=') {
                kept[n++] = *e;
            }
        }
    }
    kept[n] = NULL;
    return kept;
}

int hdi_spawn(const char *program, char *const arguments[], const int *descriptors, int n, hdi_process *out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid = 0;
    int e = posix_spawn_file_actions_init(&actions);
    if (e) {
        return e;
    }
    e = posix_spawnattr_init(&attributes);
    if (!e) {
        e = set_up_descriptors(&actions, descriptors, n);
        e = e ? e : set_up_attributes(&attributes);
        char *kept[4];
        e = e ? e : posix_spawn(&pid, program, &actions, &attributes, arguments, environment_for(kept));
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (!e) {
        *out = (hdi_process){pid, (int)syscall(SYS_pidfd_open, pid, 0)};
    }
    return e;
}

void hdi_process_kill(const hdi_process *process)
{
    /* Not by its number where that may be another process's by now: the application may have waited for it itself. */
    if (process->pidfd < 0 || syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0) != 0) {
        if (process->pidfd < 0 || errno == ENOSYS) {
            kill(process->pid, SIGKILL);
        }
    }
}

bool hdi_process_look(const hdi_process *process, siginfo_t *info)
{
    memset(info, 0, sizeof *info);
    int options = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
    int r = process->pidfd >= 0 ? waitid(P_PIDFD, (id_t)process->pidfd, info, options) : -1;
    if (process->pidfd < 0 || (r != 0 && errno == EINVAL)) {
        r = waitid(P_PID, (id_t)process->pid, info, options);
    }
    return r == 0 || errno != ECHILD;
}

void hdi_program_begin(void)
{
    /* Should the parent have died before this, what connects the program with it is closed. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is a failure and not the end, also in the driver */
}
