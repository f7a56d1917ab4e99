/* program.c - running other programs (program.h).
 *
 * Threads: the first thread of the program, and signal handlers, which only store a number. Locks:
 * none.
 */
#include "cli/common/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t stopped_by;
static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
static struct sigaction before[sizeof stops / sizeof stops[0]];

void *cli_allocate(size_t bytes)
{
    void *p = malloc(bytes);
    if (p == NULL) {
        fflush(stdout);
        fprintf(stderr, "heddle: out of memory\n");
        exit(1);
    }
    return p;
}

char *cli_format(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = cli_allocate((size_t)n + 1);
    va_start(list, format);
    vsnprintf(text, (size_t)n + 1, format, list);
    va_end(list);
    return text;
}

void cli_command_add(cli_command *command, const char *argument)
{
    char **more = realloc(command->arguments, (command->n + 2) * sizeof *more);
    if (more == NULL) {
        fflush(stdout);
        fprintf(stderr, "heddle: out of memory\n");
        exit(1);
    }
    command->arguments = more;
    command->arguments[command->n++] = cli_format("%s", argument);
    command->arguments[command->n] = NULL;
}

void cli_command_add_words(cli_command *command, const char *text)
{
    while (*text != 0) {
        size_t n = strcspn(text, " \t");
        if (n != 0) {
            char *word = cli_format("%.*s", (int)n, text);
            cli_command_add(command, word);
            free(word);
        }
        text += n + strspn(text + n, " \t");
    }
}

void cli_command_release(cli_command *command)
{
    for (size_t i = 0; i < command->n; i++) {
        free(command->arguments[i]);
    }
    free(command->arguments);
    memset(command, 0, sizeof *command);
}

static void cli_process_on_stop(int signal)
{
    stopped_by = signal;
}

void cli_process_begin(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    /* without SA_RESTART, so that a signal ends the wait */
    action.sa_handler = cli_process_on_stop;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        sigaction(stops[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) {
            sigaction(stops[i], &action, NULL);
        }
    }
}

void cli_process_end(void)
{
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        sigaction(stops[i], &before[i], NULL);
    }
    if (stopped_by != 0) {
        raise(stopped_by);
    }
}

/* Reads the descriptor to its end. */
static char *cli_process_read_all(int descriptor)
{
    size_t room = 4096, n = 0;
    char *text = cli_allocate(room);
    for (;;) {
        ssize_t got = read(descriptor, text + n, room - n - 1);
        if (got < 0 && errno == EINTR && stopped_by == 0) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
        if (room - n < 2) {
            room *= 2;
            char *more = realloc(text, room);
            if (more == NULL) {
                break;
            }
            text = more;
        }
    }
    text[n] = 0;
    return text;
}

/* Starts the command. `to` receives its stdout or stderr, whose number is `from`; -1: neither. */
static pid_t cli_process_start(const cli_command *command, posix_spawn_file_actions_t *actions, int from, int to)
{
    pid_t child = -1;
    if (to >= 0) {
        posix_spawn_file_actions_adddup2(actions, to, from);
    }
    return posix_spawnp(&child, command->arguments[0], actions, NULL, command->arguments, environ) ? -1 : child;
}

static int cli_process_wait(pid_t child)
{
    int status = 0;
    pid_t ended = -1;
    while (ended != child) {
        if (stopped_by != 0) {
            kill(child, SIGTERM);
        }
        ended = waitpid(child, &status, 0);
        if (ended != child && errno != EINTR) {
            return 127;
        }
    }
    if (stopped_by != 0) {
        return 128 + stopped_by;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int cli_process_run(const cli_command *command, bool verbose, char **output, char **messages)
{
    char **text = output != NULL ? output : messages;
    if (text != NULL) {
        *text = NULL;
    }
    if (stopped_by != 0) {
        return 128 + stopped_by;
    }
    if (verbose) {
        for (size_t i = 0; i < command->n; i++) {
            fprintf(stderr, "%s%s", i == 0 ? "" : " ", command->arguments[i]);
        }
        fprintf(stderr, "\n");
    }
    int ends[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return 127;
    }
    if (text != NULL && pipe2(ends, O_CLOEXEC) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return 127;
    }
    if (output != NULL) {
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    }
    pid_t child = cli_process_start(command, &actions, output != NULL ? 1 : 2, ends[1]);
    posix_spawn_file_actions_destroy(&actions);
    if (text != NULL) {
        close(ends[1]);
        *text = child < 0 ? cli_format("%s", "") : cli_process_read_all(ends[0]);
        close(ends[0]);
    }
    return child < 0 ? 127 : cli_process_wait(child);
}

/* Calls `line` for each line that comes from the descriptor, until its end. */
static void cli_process_read_lines(int descriptor, void (*line)(void *context, char *text), void *context)
{
    char *text = NULL;
    size_t room = 0;
    FILE *file = fdopen(descriptor, "r");
    if (file == NULL) {
        close(descriptor);
        return;
    }
    while (stopped_by == 0) {
        ssize_t n = getline(&text, &room, file);
        if (n < 0 && errno == EINTR && ferror(file) && stopped_by == 0) {
            clearerr(file);
            continue;
        }
        if (n < 0) {
            break;
        }
        text[strcspn(text, "\n")] = 0;
        line(context, text);
    }
    free(text);
    fclose(file);
}

int cli_process_run_lines(const cli_command *command, const char *messages, void (*line)(void *context, char *text),
                          void *context)
{
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (stopped_by != 0) {
        return 128 + stopped_by;
    }
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return 127;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return 127;
    }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, messages, O_WRONLY | O_CREAT | O_APPEND, 0600);
    pid_t child = cli_process_start(command, &actions, 1, ends[1]);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    cli_process_read_lines(ends[0], line, context);
    return child < 0 ? 127 : cli_process_wait(child);
}

bool cli_process_exists(const char *name)
{
    if (strchr(name, '/') != NULL) {
        return access(name, X_OK) == 0;
    }
    const char *path = secure_getenv("PATH");
    bool found = false;
    while (path != NULL && *path != 0 && !found) {
        size_t n = strcspn(path, ":");
        char *file = cli_format("%.*s/%s", (int)n, path, name);
        found = n != 0 && access(file, X_OK) == 0;
        free(file);
        path += n + (path[n] == ':');
    }
    return found;
}

char *cli_folder_make(const char *name)
{
    const char *base = secure_getenv("TMPDIR");
    char *folder = cli_format("%s/%s-XXXXXX", base != NULL && base[0] != 0 ? base : "/tmp", name);
    if (mkdtemp(folder) == NULL) {
        free(folder);
        return NULL;
    }
    return folder;
}

void cli_folder_remove(char *folder)
{
    DIR *files = folder != NULL ? opendir(folder) : NULL;
    for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;) {
        char *file = cli_format("%s/%s", folder, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlink(file);
        }
        free(file);
    }
    if (files != NULL) {
        closedir(files);
        rmdir(folder);
    }
    free(folder);
}
