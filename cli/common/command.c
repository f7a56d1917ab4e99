/* command.c - messages, and the reading of command lines (command.h). The program's first thread; no locks. */
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

const char *cli_option_value(const char *name, int argc, char **argv, int *i)
{
    size_t length = strlen(name);
    if (strncmp(argv[*i], name, length) != 0) {
        return NULL;
    }
    if (argv[*i][length] == '=') {
        return argv[*i] + length + 1;
    }
    if (argv[*i][length]) {
        return NULL;
    }
    if (*i + 1 < argc && (argv[*i + 1][0] != '-' || argv[*i + 1][1] == 0)) {
        return argv[++*i];
    }
    return "";
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
