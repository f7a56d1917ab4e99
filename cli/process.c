/* process.c - running compilers and writing results (process.h).
 *
 * Threads: the program's first, and signal handlers that only store a number. Locks: none.
 */
#include "cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    if (text != NULL) {
        if (pipe2(ends, O_CLOEXEC) != 0) {
            posix_spawn_file_actions_destroy(&actions);
            return 127;
        }
        posix_spawn_file_actions_adddup2(&actions, ends[1], output != NULL ? 1 : 2);
    }
    if (output != NULL) {
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    }
    pid_t child = -1;
    int failed = posix_spawnp(&child, command->arguments[0], &actions, NULL, command->arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (text != NULL) {
        close(ends[1]);
        *text = failed ? cli_format("%s", "") : cli_process_read_all(ends[0]);
        close(ends[0]);
    }
    if (failed) {
        return 127;
    }
    int status;
    while (waitpid(child, &status, 0) != child) {
        if (errno != EINTR) {
            return 127;
        }
        if (stopped_by != 0) {
            kill(child, SIGTERM);
        }
    }
    if (stopped_by != 0) {
        return 128 + stopped_by;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

static bool cli_process_is_input(const char *path)
{
    return strcmp(path, "-") == 0;
}

const char *cli_file_name(const char *path)
{
    return cli_process_is_input(path) ? "the input" : path;
}

void *cli_read_file(const char *path, size_t *bytes)
{
    return cli_read_file_if(path, bytes, 0, NULL, NULL);
}

void *cli_read_file_if(const char *path, size_t *bytes, size_t head, bool (*wants)(const void *, size_t, void *),
                       void *context)
{
    int descriptor =
        cli_process_is_input(path) ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return NULL;
    }
    size_t room = 65536, n = 0;
    char *content = cli_allocate(room);
    for (;;) {
        ssize_t got = read(descriptor, content + n, room - n - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            int saved = errno;
            close(descriptor);
            if (got < 0) {
                free(content);
                errno = saved;
                return NULL;
            }
            break;
        }
        n += (size_t)got;
        if (wants && n >= head) {
            if (!wants(content, n, context)) {
                free(content);
                close(descriptor);
                errno = 0;
                return NULL;
            }
            wants = NULL;
        }
        if (room - n < 2) {
            room *= 2;
            char *more = realloc(content, room);
            if (more == NULL) {
                free(content);
                close(descriptor);
                errno = ENOMEM;
                return NULL;
            }
            content = more;
        }
    }
    content[n] = 0;
    *bytes = n;
    return content;
}
