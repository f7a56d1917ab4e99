/* process.h - running other programs, and writing files whole or not at all, for commands that
 * compile.
 *
 * Threads: the program's first. Locks: none.
 * Always: after cli_process_begin, the signals INT, TERM and HUP end the running child, and
 * cli_process_run fails. cli_process_end then ends this program by the same signal.
 */
#ifndef CLI_PROCESS_H
#define CLI_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* A command line under construction. Arguments are copied. */
typedef struct cli_command {
    char **arguments; /* NULL-terminated */
    size_t n;
} cli_command;

void cli_command_add(cli_command *command, const char *argument);
void cli_command_add_words(cli_command *command, const char *text); /* split at blanks */
void cli_command_release(cli_command *command);

/* Runs the command and waits for it. The child inherits our stdout and stderr. A call may redirect
 * one of them:
 *   - `output` is not NULL: stdout goes into *output (malloc'd, zero-terminated), and stderr is
 *     dropped
 *   - `messages` is not NULL: stderr goes into *messages
 * Returns the exit status, 128 + N for signal N, or 127 if the program could not be started. */
int cli_process_run(const cli_command *command, bool verbose, char **output, char **messages);

void cli_process_begin(void);
void cli_process_end(void);

/* True if a program of that name can be found. */
bool cli_process_exists(const char *name);

/* Returns the content, malloc'd and zero-terminated, or NULL with errno. The path - is the
 * standard input. The file is opened once, because it may be a pipe. */
void *cli_read_file(const char *path, size_t *bytes);
/* Like cli_read_file, but `wants` sees the first `head` bytes and may reject the file. Then it
 * returns NULL with errno 0 and reads no further. It accepts any file shorter than `head`. */
void *cli_read_file_if(const char *path, size_t *bytes, size_t head, bool (*wants)(const void *, size_t, void *),
                       void *context);

/* The name of a file for messages and results. */
const char *cli_file_name(const char *path);

/* malloc that ends the program if memory runs out. */
void *cli_allocate(size_t bytes);

/* printf into memory from cli_allocate. */
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
