/* options.c - what commands share to read their command lines (cli.h). The program's first thread; no locks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"

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
