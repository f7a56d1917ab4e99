/* command.h - what every command of the tool shares, the benchmarks' program too: exit statuses, messages, options, progress.
 *
 * Output goes to stdout; messages and progress go to stderr.
 * Threads: the program's first. Locks: none.
 */
#ifndef CLI_COMMON_COMMAND_H
#define CLI_COMMON_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* something did not work, or a check found an error */
    CLI_USAGE = 2,  /* the command line cannot be understood */
    CLI_CORRUPT = 3 /* `heddle p2p`: bytes do not arrive as they were sent */
};

/* Prints "heddle COMMAND: MESSAGE" and where help is, to stderr; returns CLI_USAGE. `command` may be "". */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The value of `--name VALUE` or `--name=VALUE` at argv[*i]; moves *i. NULL: this is another option. "": no value. A value of its own
 * word does not begin with '-', but may be "-" alone. */
const char *cli_option_value(const char *name, int argc, char **argv, int *i);

/* A whole number from 1 to `most`. */
bool cli_parse_count(const char *text, int most, int *out);

/* The command line for the record: "heddle", the command, then its words; it names no directories. `words` has CLI_WORDS; how many are
 * used. */
enum { CLI_WORDS = 32 };
int cli_record(const char *command, int argc, char **argv, char **words);

/* Flushes stdout; CLI_FAILED with a message when something could not be written (a full disk, a closed pipe). */
int cli_finish(const char *command, int status);

/* Progress: on a terminal one line that is redrawn in place and erased at the end, in a pipe a plain line per stage. */
typedef struct cli_progress {
    FILE *out;
    bool terminal; /* `out` is one that can redraw a line */
    bool drawn;    /* a line stands there */
    char stage[96];
} cli_progress;

void cli_progress_start(cli_progress *p, FILE *out);

/* `context` is the cli_progress. `done` goes from 0 to 1; `item` ("": none) is what is being done within the stage.
 * Stage NULL ends it. */
void cli_progress_step(void *context, const char *stage, const char *item, double done);

#endif
