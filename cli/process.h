/* process.h - running other programs, and writing files whole or not at all, for commands that compile.
 *
 * Threads: the program's first. Locks: none.
 * Always: once cli_process_begin was called, the signals INT, TERM and HUP end the program that is running. They also make
 * cli_process_run fail. cli_process_end then ends this program by the same signal.
 */
#ifndef CLI_PROCESS_H
#define CLI_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

/* A command line that is put together; arguments are copied. */
typedef struct cli_command {
    char **arguments; /* ends with NULL */
    size_t n;
} cli_command;

void cli_command_add(cli_command *command, const char *argument);
void cli_command_add_words(cli_command *command, const char *text); /* split at blanks */
void cli_command_release(cli_command *command);

/* Runs it and waits. Its output goes where ours goes, with two exceptions, of which at most one is for a call:
 *   - `output` is not NULL: stdout goes into *output (malloc'd, with a zero behind it), stderr nowhere
 *   - `messages` is not NULL: stderr goes into *messages
 * Returns the exit status, 128 + N for signal N, 127 when it could not be started. */
int cli_process_run(const cli_command *command, bool verbose, char **output, char **messages);

void cli_process_begin(void);
void cli_process_end(void);

/* Whether a program of that name can be found. */
bool cli_process_exists(const char *name);

/* The content, malloc'd, with a zero behind it; NULL with errno. The path - is the standard input. A file is opened once: it may be a pipe. */
void *cli_read_file(const char *path, size_t *bytes);
/* The same of a file that is wanted by its first `head` bytes. Else NULL with errno 0, and no more of it is read; a shorter one is wanted. */
void *cli_read_file_if(const char *path, size_t *bytes, size_t head, bool (*wants)(const void *, size_t, void *),
                       void *context);

/* A file as messages and results name it. */
const char *cli_file_name(const char *path);

/* malloc that ends the program where there is no memory. */
void *cli_allocate(size_t bytes);

/* printf into memory made by cli_allocate. */
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
