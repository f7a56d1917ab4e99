/* command.h - what every command of the tool shares, the benchmarks' program too: exit statuses, messages, options, progress.
 *
 * Output goes to stdout; messages and progress go to stderr.
 * Threads: the program's first. Locks: none.
 */
#ifndef CLI_COMMON_COMMAND_H
#define CLI_COMMON_COMMAND_H

#include <getopt.h>
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

/* A command line, word by word, as getopt_long reads it. The command sets the first members; the rest is zero at first. */
typedef struct cli_words {
    const char *command; /* for messages */
    int argc;
    char **argv;                  /* argv[0] is no word */
    const struct option *options; /* getopt_long's, with flag NULL */
    const char *letters;          /* the options of one letter, as getopt has them */
    const char *word, *value;     /* what came last; the value is "" where there is none */
    int next;                     /* the word that follows; 0: nothing was read */
    bool rest;                    /* "--" was read: no further word is an option */
} cli_words;

/* What comes next: an option's `val`, CLI_WORD for a word that is no option, CLI_END, or CLI_WRONG after a message.
 * The name of an option is whole. A value that may be missing is a word of its own if that does not begin with '-', or is "-". */
enum { CLI_END = -1, CLI_WORD = 1, CLI_WRONG = '?' };
int cli_next(cli_words *words);

#define CLI_HELP                                                                                                       \
    {                                                                                                                  \
        "help", no_argument, NULL, 'h'                                                                                 \
    }
#define CLI_HELP_LETTER "h"

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
