/* spawn.c - finds a helper program of the library, starts it apart from the application, and
 * watches it end.
 *
 * An option may name the program. Without the option, the program is near the file with the
 * library's code, or in the installation.
 *
 * Threads: any. Locks: the dynamic loader's lock.
 * Always: a program that is found without the option is a regular file. It belongs to root, to the
 * user of this process, or to the owner of the file with the library's code. Only users that can
 * write that file can write the program, too. The application's name, the current folder and the
 * folders above the program do not matter.
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
#include "base/descriptor.h"
#include "base/error.h"
#include "base/thread.h"
#include "process/spawn.h"

/* The relative path from an installed program, and from the library, to the folder of the helper
 * programs. "": programs and library do not move together. */
#ifndef HDI_PROGRAMS_FROM_PROGRAM
#define HDI_PROGRAMS_FROM_PROGRAM "../libexec"
#endif
#ifndef HDI_PROGRAMS_FROM_LIBRARY
#define HDI_PROGRAMS_FROM_LIBRARY "../libexec"
#endif

/* ---- the place of the program ---- */

typedef struct search {
    const char *name;
    char *out;
    size_t bytes;
    char own[PATH_MAX]; /* the folder of the file with this code; "": unknown */
    struct stat file;   /* the properties of that file */
    char looked[320];   /* the folders in which this search looked */
    char refused[160];  /* why the first candidate was refused */
    /* Room for paths, which small stacks of threads lack. */
    char joined[PATH_MAX], real[PATH_MAX], folder[PATH_MAX], folders[PATH_MAX], line[PATH_MAX + 128];
} search;

/* ---- the file with this code ---- */

/* The file that is mapped at an address, with the kernel's name for it. */
static bool search_mapped_file(search *s, uintptr_t address, char *out, size_t bytes)
{
    FILE *maps = hdi_descriptor_text("/proc/self/maps");
    char *line = s->line;
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof s->line, maps) != NULL) {
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

/* The absolute path of the file with this code, with resolved links; if the code is in the program
 * itself, the path is from /proc/self/exe. False: it is unknown. */
static bool search_own_file(search *s, char *out, size_t bytes)
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
    if (object[0] != '/') { /* the current folder may have changed since */
        if (!search_mapped_file(s, (uintptr_t)search_own_file, s->folder, sizeof s->folder)) {
            return false;
        }
        object = s->folder;
    }
    if (realpath(object, s->real) == NULL || strlen(s->real) >= bytes) {
        return false;
    }
    snprintf(out, bytes, "%s", s->real);
    return true;
}

/* ---- folders ---- */

/* The reason to distrust a file. NULL: it can be trusted as much as this code. */
static const char *search_distrust(const search *s, const struct stat *it)
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

/* Adds a folder to the message, once. */
static void search_note_folder(search *s, const char *folder)
{
    size_t length = strlen(folder), used = strlen(s->looked);
    for (const char *at = s->looked; (at = strstr(at, folder)) != NULL; at++) {
        if ((at == s->looked || at[-1] == ' ') && (at[length] == ',' || at[length] == 0)) {
            return;
        }
    }
    snprintf(s->looked + used, sizeof s->looked - used, "%s%s", used > 0 ? ", " : "", folder);
}

/* True: the program is there, and acceptable. */
static bool search_is_in(search *s, const char *folder)
{
    struct stat entry, file;
    char *real = s->real;
    if (realpath(folder, real) == NULL) {
        if (strstr(folder, "..") == NULL) {
            search_note_folder(s, folder);
        }
        return false;
    }
    search_note_folder(s, real);
    int n = snprintf(s->out, s->bytes, "%s/%s", strcmp(real, "/") == 0 ? "" : real, s->name);
    if (n < 0 || (size_t)n >= s->bytes || lstat(s->out, &entry) != 0 || stat(s->out, &file) != 0 ||
        !S_ISREG(file.st_mode)) { /* excludes a folder of the same name */
        return false;
    }
    const char *why = search_distrust(s, &entry);
    why = why != NULL ? why : search_distrust(s, &file);
    if (why == NULL && access(s->out, X_OK) != 0) {
        why = strerror(errno);
    }
    if (why != NULL && s->refused[0] == 0) {
        snprintf(s->refused, sizeof s->refused, "; %s was not taken: %s", s->out, why);
    }
    return why == NULL;
}

static bool search_is_at(search *s, const char *folder, const char *relative)
{
    int n = snprintf(s->joined, sizeof s->joined, "%s/%s", folder, relative);
    return folder[0] == '/' && relative[0] != 0 && n > 0 && (size_t)n < sizeof s->joined && search_is_in(s, s->joined);
}

/* Looks in the folders that the file with this code records for its libraries (DT_RUNPATH). If the
 * program contains the library, no other record names the place of the installation. */
static bool search_is_with_libraries(search *s)
{
    char *rest = s->folders;
    if (!hdi_own_file_runpath(s->folders, sizeof s->folders)) {
        return false;
    }
    for (char *folder; (folder = strsep(&rest, ":")) != NULL;) {
        char *path = s->folder;
        const char *origin = strncmp(folder, "$ORIGIN", 7) == 0 && (folder[7] == '/' || folder[7] == 0) ? s->own : "";
        int n = snprintf(path, sizeof s->folder, "%s%s", origin, origin[0] ? folder + 7 : folder);
        if (n > 0 && (size_t)n < sizeof s->folder &&
            (search_is_at(s, path, HDI_PROGRAMS_FROM_LIBRARY) || search_is_at(s, path, "."))) {
            return true;
        }
    }
    return false;
}

static bool search_find(search *s)
{
    if (search_own_file(s, s->own, sizeof s->own) && stat(s->own, &s->file) == 0) {
        *strrchr(s->own, '/') = 0;
    } else {
        s->own[0] = 0;
    }
    const char *from_here = hdi_own_file_name() != NULL ? HDI_PROGRAMS_FROM_LIBRARY : HDI_PROGRAMS_FROM_PROGRAM;
    return search_is_at(s, s->own, ".") || search_is_at(s, s->own, from_here) || search_is_with_libraries(s) ||
           search_is_in(s, hdi_programs_place);
}

bool hdi_program_beside(const char *name, char *out, size_t bytes, char *where, size_t where_bytes)
{
    search *s = calloc(1, sizeof *s);
    if (s == NULL) {
        snprintf(where, where_bytes, "any folder: there is no memory to look");
        return false;
    }
    s->name = name;
    s->out = out;
    s->bytes = bytes;
    bool found = search_find(s);
    if (!found) {
        snprintf(where, where_bytes, "%s%s", s->looked[0] ? s->looked : "any folder that is there", s->refused);
    }
    free(s);
    return found;
}

hd_status hdi_program_find(const char *name, const char *option, const char *value, const char *need, char *out,
                           size_t bytes)
{
    if (value[0]) {
        /* absolute, since the application may change its directory before it starts this program
         * again */
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

/* ---- starting and watching ---- */

#define DESCRIPTOR_LEAST (HDI_PROGRAM_DESCRIPTOR + HDI_PROGRAM_DESCRIPTORS)

bool hdi_spawn_lift(int *descriptor)
{
    int high = hdi_descriptor_copy(*descriptor, DESCRIPTOR_LEAST);
    if (high >= 0) {
        close(*descriptor);
        *descriptor = high;
    }
    return high >= 0;
}

static int spawn_set_up_descriptors(posix_spawn_file_actions_t *actions, const int *descriptors, int n, bool prints)
{
    bool has_output = prints && fcntl(STDOUT_FILENO, F_GETFD) >= 0;
    int e = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!e) { /* the first call also handles a closed standard error */
        e = has_output ? posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDOUT_FILENO)
                       : posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    for (int i = 0; i < n && !e; i++) {
        e = posix_spawn_file_actions_adddup2(actions, descriptors[i], HDI_PROGRAM_DESCRIPTOR + i);
    }
    /* other open descriptors of the application, without close-on-exec, are not for the program */
    return e ? e : posix_spawn_file_actions_addclosefrom_np(actions, HDI_PROGRAM_DESCRIPTOR + n);
}

/* A separate process group keeps the terminal's signals away; no signal is blocked or ignored. */
static int spawn_set_up_attributes(posix_spawnattr_t *attributes)
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

/* The environment for a helper program: that of this process. If the environment comes from a user
 * with fewer rights, the program gets only the variables that select devices. So it sees the same
 * devices. `kept` is the room for these. */
static char **spawn_environment(char *kept[4])
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
        e = spawn_set_up_descriptors(&actions, descriptors, n, prints);
        e = e ? e : spawn_set_up_attributes(&attributes);
        char *kept[4];
        e = e ? e : posix_spawn(&pid, program, &actions, &attributes, arguments, spawn_environment(kept));
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    if (!e) {
        *out = (hdi_process){pid, hdi_descriptor_process(pid)};
    }
    return e;
}

void hdi_process_kill(const hdi_process *process)
{
    /* The signal does not use the process's number if another process may have that number by now:
     * the application may have reaped the process. */
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
    hdi_descriptors_fill();
    /* If the parent died before this call, the program finds its connections to the parent
     * closed. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* without the signal, a limit on the size of files makes a call fail, even in the driver, and
     * does not end the process */
    signal(SIGXFSZ, SIG_IGN);
}
