/* command.c - messages, and the reading of command lines (command.h).
 *
 * Threads: the program's first. Locks: none.
 */
#include "cli/common/command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int cli_usage(const char *command_name, const char *format, ...)
{
    va_list arguments;
    const char *space = command_name[0] ? " " : "";
    va_start(arguments, format);
    fprintf(stderr, "heddle%s%s: ", space, command_name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\nTry: heddle%s%s --help\n", space, command_name);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_finish(const char *command_name, int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return status;
    }
    fprintf(stderr, "heddle%s%s: the output could not be written\n", command_name[0] ? " " : "", command_name);
    return CLI_FAILED;
}

/* The option whose whole name begins this text, before a '='. */
static const struct option *find_option(const cli_words *words, const char *text)
{
    size_t length = strcspn(text, "=");
    for (const struct option *o = words->options; o->name; o++) {
        if (strlen(o->name) == length && strncmp(o->name, text, length) == 0) {
            return o;
        }
    }
    return NULL;
}

/* The next word by getopt_long; `o` is its option where that has a name. */
static int read_word(cli_words *words, const struct option *o, bool first)
{
    char letters[64];
    snprintf(letters, sizeof(letters), "-:%s", words->letters); /* in the order given; a missing value is ':' */
    optind = first ? 0 : words->next;                           /* 0: nothing is left of an earlier command line */
    opterr = 0;
    int found = getopt_long(words->argc, words->argv, letters, words->options, NULL);
    if (found == '?') {
        cli_usage(words->command, o ? "%s: the option takes no value" : "unknown option '%s'", words->word);
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
    if (strncmp(words->word, "--", 2) == 0 && !(o = find_option(words, words->word + 2))) {
        cli_usage(words->command, "unknown option '%s'", words->word);
        return CLI_WRONG;
    }
    return read_word(words, o, first);
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
