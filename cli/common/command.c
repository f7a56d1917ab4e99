/* command.c - messages, and the reading of command lines (command.h).
 *
 * Threads: the program's first thread. Locks: none.
 */
#include "cli/common/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/words.h"

void cli_complain_list(const char *command_name, const char *format, va_list arguments)
{
    fflush(stdout); /* so that earlier output also comes first in a file or a pipe */
    fprintf(stderr, "heddle%s%s: ", command_name[0] ? " " : "", command_name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
}

void cli_complain(const char *command_name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cli_complain_list(command_name, format, arguments);
    va_end(arguments);
}

#undef cli_usage /* in other files the static analyzer sees a macro */
int cli_usage(const char *command_name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cli_complain_list(command_name, format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try: heddle%s%s --help\n", command_name[0] ? " " : "", command_name);
    return CLI_USAGE;
}

int cli_finish(const char *command_name, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return status;
    }
    cli_complain(command_name, "the output could not be written");
    return CLI_FAILED;
}

static const char *cli_command_option_name(const void *context, int index)
{
    return ((const struct option *)context)[index].name;
}

void cli_hint(const char *word, const char *(*next)(const void *context, int index), const void *context,
              char out[CLI_HINT])
{
    const char *nearest = NULL, *name;
    size_t distance = 0;
    for (int i = 0; (name = next(context, i)); i++) {
        cli_words_nearest(word, name, &distance, &nearest);
    }
    out[0] = 0;
    if (nearest) {
        snprintf(out, CLI_HINT, " (did you mean '%s%s'?)", next == cli_command_option_name ? "--" : "", nearest);
    }
}

static int cli_command_unknown_option(const cli_words *words)
{
    char hint[CLI_HINT] = "", name[64];
    const char *text = words->word + (strncmp(words->word, "--", 2) == 0 ? 2 : 0);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "="), text);
    if (text > words->word && name[0]) {
        cli_hint(name, cli_command_option_name, words->options, hint);
    }
    return cli_usage(words->command, "unknown option '%s'%s", words->word, hint);
}

/* Finds the option whose full name begins the text, up to '='. */
static const struct option *cli_command_find_option(const cli_words *words, const char *text)
{
    size_t length = strcspn(text, "=");
    for (const struct option *o = words->options; o->name; o++) {
        if (strlen(o->name) == length && strncmp(o->name, text, length) == 0) {
            return o;
        }
    }
    return NULL;
}

/* Reads the next word by getopt_long. `o` is its option if it names one. */
static int cli_command_read_word(cli_words *words, const struct option *o, bool first)
{
    char letters[64];
    /* '-': reads words in their order; ':': reports a missing value */
    snprintf(letters, sizeof(letters), "-:%s", words->letters);
    /* 0 makes getopt_long forget an earlier command line */
    optind = first ? 0 : words->next;
    opterr = 0;
    int found = getopt_long(words->argc, words->argv, letters, words->options, NULL);
    if (found == '?') {
        (void)(o ? cli_usage(words->command, "%s: the option takes no value", words->word)
                 : cli_command_unknown_option(words));
        return CLI_WRONG;
    }
    if (found == ':') {
        found = optopt;
    } else if (optarg) {
        words->value = optarg;
    } else if (o && o->has_arg == optional_argument && optind < words->argc &&
               (words->argv[optind][0] != '-' || words->argv[optind][1] == 0)) {
        words->value = words->argv[optind++];
    }
    words->next = optind;
    return found;
}

int cli_next(cli_words *words)
{
    bool first = words->next == 0;
    words->next = first ? 1 : words->next;
    words->value = "";
    if (!words->rest && words->next < words->argc && strcmp(words->argv[words->next], "--") == 0) {
        words->rest = true;
        words->next++;
    }
    if (words->next >= words->argc) {
        return CLI_END;
    }
    words->word = words->argv[words->next];
    if (words->rest) {
        words->next++;
        return CLI_WORD;
    }
    const struct option *o = NULL;
    if (strncmp(words->word, "--", 2) == 0 && !(o = cli_command_find_option(words, words->word + 2))) {
        cli_command_unknown_option(words);
        return CLI_WRONG;
    }
    return cli_command_read_word(words, o, first);
}

void cli_parse_json(const char *value, bool *on_output, const char **file)
{
    *on_output = value[0] == 0 || strcmp(value, "-") == 0;
    *file = *on_output ? NULL : value;
}

bool cli_parse_count(const char *text, int most, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > most) {
        return false;
    }
    *out = (int)value;
    return true;
}

int cli_record(const char *command, int argc, char **argv, char **words)
{
    int count = 0;
    words[count++] = "heddle";
    words[count++] = (char *)command;
    for (int i = 0; i < argc && count < CLI_WORDS; i++) {
        char *slash = argv[i][0] == '/' ? strrchr(argv[i], '/') : NULL;
        words[count++] = slash ? slash + 1 : argv[i];
    }
    return count;
}
