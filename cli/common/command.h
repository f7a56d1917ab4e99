/* command.h - functions that the tool's commands and the benchmark program share: exit statuses,
 * messages, options, progress.
 *
 * Output goes to stdout; messages and progress go to stderr.
 * Threads: the program's first thread. Locks: none.
 */
#ifndef CLI_COMMON_COMMAND_H
#define CLI_COMMON_COMMAND_H

#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* something did not work, or a check found an error */
    CLI_USAGE = 2,  /* the command line is wrong */
    CLI_CORRUPT = 3 /* `heddle p2p`: bytes arrive changed */
};

/* Prints "heddle COMMAND: MESSAGE" on stderr, after all earlier output of stdout. `command` may be
 * "". */
void cli_complain(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_complain_list(const char *command, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* Prints "heddle COMMAND: MESSAGE" and a pointer to the help on stderr. Returns CLI_USAGE.
 * `command` may be "". */
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__
/* For the static analyzer, which does not read command.c: cli_usage always returns CLI_USAGE. */
#define cli_usage(...) (cli_usage(__VA_ARGS__), CLI_USAGE)
#endif

/* A command line that getopt_long reads word by word. The command sets the members up to `letters`;
 * the others start as zero. */
typedef struct cli_words {
    const char *command; /* for messages */
    int argc;
    char **argv;                  /* argv[0] is not a word */
    const struct option *options; /* for getopt_long, with flag NULL */
    const char *letters;          /* the one-letter options, in the format of getopt */
    /* the last word that was read, and its value; "" if it takes no value */
    const char *word, *value;
    int next;  /* index of the next word; 0: nothing was read yet */
    bool rest; /* "--" was read: all further words are plain */
} cli_words;

/* Reads the next word. Returns an option's `val`, CLI_WORD for a word that is no option,
 * CLI_END, or CLI_WRONG after a message. Options cannot be abbreviated. An optional value may be
 * a separate word, if that is "-" or does not begin with '-'. */
enum { CLI_END = -1, CLI_WORD = 1, CLI_WRONG = '?' };
int cli_next(cli_words *words);

#define CLI_HELP                                                                                                       \
    {                                                                                                                  \
        "help", no_argument, NULL, 'h'                                                                                 \
    }
#define CLI_HELP_LETTER "h"

/* Parses the value of --json [FILE]. Without a file, JSON goes to the output. */
void cli_parse_json(const char *value, bool *on_output, const char **file);

/* Makes a hint for a misspelt word: " (did you mean 'NAME'?)", or "" if no name is close. `next`
 * returns the names one by one, then NULL. */
enum { CLI_HINT = 96 };
void cli_hint(const char *word, const char *(*next)(const void *context, int index), const void *context,
              char out[CLI_HINT]);

/* Parses a whole number from 1 to `most`. */
bool cli_parse_count(const char *text, int most, int *out);

/* Makes the command line for the record: "heddle", the command, then its words, all without
 * directories. `words` has room for CLI_WORDS entries. Returns the number of entries used. */
enum { CLI_WORDS = 32 };
int cli_record(const char *command, int argc, char **argv, char **words);

/* Flushes stdout, and returns `status`. If a write failed (a full disk, a closed pipe), prints a
 * message and returns CLI_FAILED. */
int cli_finish(const char *command, int status);

/* A progress display. On a terminal it redraws one line in place, and erases the line at the end.
 * In a pipe it prints one plain line for each stage. */
typedef struct cli_progress {
    FILE *out;
    bool terminal; /* `out` is a terminal that can redraw a line */
    bool drawn;    /* a line is on the screen */
    char stage[96];
} cli_progress;

void cli_progress_start(cli_progress *p, FILE *out);

/* Shows progress. `context` is the cli_progress. `done` goes from 0 to 1. `item` ("": none) is the
 * current item of the stage. A NULL stage ends the display. */
void cli_progress_step(void *context, const char *stage, const char *item, double done);

#endif
