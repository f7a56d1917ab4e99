/* spawn.c - programs of the library's own: finding one, starting it apart from the application, seeing it end.
 *
 * A program is named by its option, or near the file with the library's code, or where it was installed.
 *
 * Threads: any. Locks: the dynamic loader's.
 * Always: what is found without the option is a regular file. It belongs to root, to the user of this process, or to the owner of the file
 * with the library's code. Only users that can write that file can write it, too. The name that the program was called by, the current
 * folder and the folders above have no influence.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/thread.h"
#include "process/spawn.h"

/* From a program that is installed, and from the library, to where programs of the library's own are installed; "": they do not move
 * together. */
#ifndef HDI_PROGRAMS_FROM_PROGRAM
#define HDI_PROGRAMS_FROM_PROGRAM "../libexec"
#endif
#ifndef HDI_PROGRAMS_FROM_LIBRARY
#define HDI_PROGRAMS_FROM_LIBRARY "../libexec"
#endif

/* ---- where they are: the file with this code ---- */

/* The file that is mapped at an address, as the kernel names it. */
static bool mapped_file(uintptr_t address, char *out, size_t bytes)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        int path = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &path) == 2 && path > 0 && address >= from &&
            address < to) {
            line[strcspn(line, "\n")] = '\0';
            int n = snprintf(out, bytes, "%s", line + path);
            found = line[path] == '/' && n > 0 && (size_t)n < bytes;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

/* Its absolute path, links resolved; of the program from /proc/self/exe. False: it cannot be found out. */
static bool own_file_path(char *out, size_t bytes)
{
    const char *object = hdi_own_file_name();
    if (object == NULL) {
        ssize_t n = readlink("/proc/self/exe", out, bytes);
        if (n <= 0 || (size_t)n >= bytes) {
            return false;
        }
        out[n] = '\0';
        return out[0] == '/';
    }
    char name[PATH_MAX], path[PATH_MAX];
    if (object[0] != '/') { /* what it is relative to may be another folder now */
        if (!mapped_file((uintptr_t)own_file_path, name, sizeof name)) {
            return false;
        }
        object = name;
    }
    if (realpath(object, path) == NULL || strlen(path) >= bytes) {
        return false;
    }
    snprintf(out, bytes, "%s", path);
    return true;
}

/* ---- where they are: the program ---- */

typedef struct search {
    const char *name;
    char *out;
    size_t bytes;
    char own[PATH_MAX]; /* the folder of the file with this code; "": unknown */
    struct stat file;   /* that file */
    char looked[320];   /* in these folders */
    char refused[160];  /* why the first one that was there would not do */
} search;

/* NULL: it is to be trusted as far as this code is. */
static const char *distrust(const search *s, const struct stat *it)
{
    bool by_user = it->st_uid == 0 || it->st_uid == geteuid() || (s->own[0] != 0 && it->st_uid == s->file.st_uid);
    mode_t others = S_IWOTH;
    if (s->own[0] == 0 || it->st_gid != s->file.st_gid || !(s->file.st_mode & S_IWGRP)) {
        others |= S_IWGRP;
    }
    return !by_user                                               ? "it belongs to another user"
           : !S_ISLNK(it->st_mode) && (it->st_mode & others) != 0 ? "others can write it"
                                                                  : NULL;
}

/* For the message, once each. */
static void note_folder(search *s, const char *folder)
{
    size_t length = strlen(folder), used = strlen(s->looked);
    for (const char *at = s->looked; (at = strstr(at, folder)) != NULL; at++) {
        if ((at == s->looked || at[-1] == ' ') && (at[length] == ',' || at[length] == 0)) {
            return;
        }
    }
    snprintf(s->looked + used, sizeof s->looked - used, "%s%s", used > 0 ? ", " : "", folder);
}

/* True: it is there, and will do. */
static bool is_in(search *s, const char *folder)
{
    struct stat entry, file;
    char real[PATH_MAX];
    if (realpath(folder, real) == NULL) {
        if (strstr(folder, "..") == NULL) {
            note_folder(s, folder);
        }
        return false;
    }
    note_folder(s, real);
    int n = snprintf(s->out, s->bytes, "%s/%s", strcmp(real, "/") == 0 ? "" : real, s->name);
    if (n < 0 || (size_t)n >= s->bytes || lstat(s->out, &entry) != 0 || stat(s->out, &file) != 0 ||
        !S_ISREG(file.st_mode)) { /* such as a folder of the same name */
        return false;
    }
    const char *why = distrust(s, &entry);
    why = why != NULL ? why : distrust(s, &file);
    if (why == NULL && access(s->out, X_OK) != 0) {
        why = strerror(errno);
    }
    if (why != NULL && s->refused[0] == 0) {
        snprintf(s->refused, sizeof s->refused, "; %s was not taken: %s", s->out, why);
    }
    return why == NULL;
}

static bool is_at(search *s, const char *folder, const char *relative)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, relative);
    return folder[0] == '/' && relative[0] != 0 && n > 0 && (size_t)n < sizeof path && is_in(s, path);
}

/* Where the library was that the program was linked with: it may be the one inside of it, and nowhere else named. */
static bool is_with_libraries(search *s)
{
    char folders[PATH_MAX], *rest = folders;
    if (!hdi_own_file_runpath(folders, sizeof folders)) {
        return false;
    }
    for (char *folder; (folder = strsep(&rest, ":")) != NULL;) {
        char path[PATH_MAX];
        const char *origin = strncmp(folder, "$ORIGIN", 7) == 0 && (folder[7] == '/' || folder[7] == 0) ? s->own : "";
        int n = snprintf(path, sizeof path, "%s%s", origin, origin[0] ? folder + 7 : folder);
        if (n > 0 && (size_t)n < sizeof path && (is_at(s, path, HDI_PROGRAMS_FROM_LIBRARY) || is_at(s, path, "."))) {
            return true;
        }
    }
    return false;
}

static bool find(search *s)
{
    if (own_file_path(s->own, sizeof s->own) && stat(s->own, &s->file) == 0) {
        *strrchr(s->own, '/') = 0;
    } else {
        s->own[0] = 0;
    }
    const char *from_here = hdi_own_file_name() != NULL ? HDI_PROGRAMS_FROM_LIBRARY : HDI_PROGRAMS_FROM_PROGRAM;
    return is_at(s, s->own, ".") || is_at(s, s->own, from_here) || is_with_libraries(s) || is_in(s, hdi_programs_place);
}

bool hdi_program_beside(const char *name, char *out, size_t bytes, char *where, size_t where_bytes)
{
    search s = {.name = name, .out = out, .bytes = bytes};
    if (find(&s)) {
        return true;
    }
    snprintf(where, where_bytes, "%s%s", s.looked[0] ? s.looked : "any folder that is there", s.refused);
    return false;
}

hd_status hdi_program_find(const char *name, const char *option, const char *value, const char *need, char *out,
                           size_t bytes)
{
    if (value[0]) {
        /* absolute: it is started again after the program may have gone to another directory */
        char path[PATH_MAX];
        if (!realpath(value, path) || access(path, X_OK) != 0 || strlen(path) >= bytes) {
            return hdi_fail(HD_ERROR_SYSTEM, "%s=%s: %s", option, value, strerror(errno));
        }
        snprintf(out, bytes, "%s", path);
        return HD_OK;
    }
    char where[512];
    if (hdi_program_beside(name, out, bytes, where, sizeof where)) {
        return HD_OK;
    }
    return hdi_fail(HD_ERROR_SYSTEM, "%s needs the program %s (option %s), which is not in %s", need, name, option,
                    where);
}

/* ---- starting one, and seeing it end ---- */

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

static int set_up_descriptors(posix_spawn_file_actions_t *actions, const int *descriptors, int n, bool prints)
{
    bool has_output = prints && fcntl(STDOUT_FILENO, F_GETFD) >= 0;
    int e = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!e) { /* the first also where it is closed when a program is started */
        e = has_output ? posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDOUT_FILENO)
                       : posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
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

int hdi_spawn(const char *program, char *const arguments[], const int *descriptors, int n, bool prints,
              hdi_process *out)
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
        e = set_up_descriptors(&actions, descriptors, n, prints);
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
