/* program.h - for commands that compile: running other programs, a folder for temporary files, and
 * memory that never runs out.
 *
 * Threads: the program's first. Locks: none.
 * Always: after cli_process_begin, the signals INT, TERM and HUP end the running child, and
 * cli_process_run fails. cli_process_end then ends this program by the same signal.
 */
#ifndef CLI_COMMON_PROGRAM_H
#define CLI_COMMON_PROGRAM_H

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

/* Runs the command without an input, and calls `line` for each line of its stdout, without the
 * newline. Its stderr is appended to the file `messages`. Returns as cli_process_run does. */
int cli_process_run_lines(const cli_command *command, const char *messages, void (*line)(void *context, char *text),
                          void *context);

void cli_process_begin(void);
void cli_process_end(void);

/* True if a program of that name can be found. */
bool cli_process_exists(const char *name);

/* Makes a folder for temporary files in TMPDIR, or in /tmp, and returns its path; NULL with errno:
 * it cannot be made. The other call removes the folder with the files in it, and frees the path;
 * NULL is ignored. */
char *cli_folder_make(const char *name);
void cli_folder_remove(char *folder);

/* malloc that ends the program if memory runs out. */
void *cli_allocate(size_t bytes);

/* printf into memory from cli_allocate. */
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
