/* main.c - the `heddle` tool: finds the command and runs it; --help, --version, `heddle help
 * COMMAND`.
 *
 * Threads: the program's first. Locks: none.
 * Always: an unknown command or option prints a message on stderr and returns CLI_USAGE before
 * anything is done.
 */
#include <heddle.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/common/output.h"

typedef struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"info", "what Heddle finds on this machine: devices, driver, memory, links, options in force", cli_info},
    {"bench",
     "measure: `bench lanes` drives every device, `bench faults` loses them, `bench alloc` allocates, "
     "`bench copy` copies",
     cli_bench},
    {"p2p", "which device can use which other one's memory, verified; bandwidth and latency of every pair", cli_p2p},
    {"trace", "where the time of a traced program went: idle time and its causes, what can be gained, exports",
     cli_trace},
    {"doctor", "what is wrong or slow on this machine, with the evidence and what mends it", cli_doctor},
    {"report", "a page that shows traces and results: where the time went, and why", cli_report},
    {"cc", "compile kernel source to a kernel file, for GPU and CPU", cli_cc},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const command *main_find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static const char *main_command_name(const void *context, int index)
{
    (void)context;
    return index < COMMANDS ? commands[index].name : NULL;
}

static int main_unknown_command(const char *word)
{
    char hint[CLI_HINT];
    cli_hint(word, main_command_name, NULL, hint);
    return cli_usage("", "unknown command '%s'%s", word, hint);
}

static int main_print_help(void)
{
    printf("usage: heddle COMMAND [OPTION]...\n"
           "\n"
           "One program, every GPU, at full speed.\n"
           "\n"
           "commands:\n");
    for (int i = 0; i < COMMANDS; i++) {
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    }
    printf("  %-8s %s\n", "help", "`heddle help COMMAND` is `heddle COMMAND --help`");
    printf("\n"
           "options:\n"
           "  --help, -h     this text\n"
           "  --version, -V  the version\n"
           "\n"
           "The environment variables HEDDLE_* set the library's options; `heddle info` lists them.\n"
           "Exit status:\n"
           "  0  it worked\n"
           "  1  it did not, or a check found an error\n"
           "  2  the command line is wrong\n"
           "  3  devices lose bytes (`heddle p2p`)\n"
           "`heddle doctor` has its own: 1 for warnings, 2 for errors.\n");
    return cli_finish("", CLI_OK);
}

static int main_print_version(void)
{
    printf("heddle %s\n", hd_version());
    return cli_finish("", CLI_OK);
}

static int main_run_help(int argc, char **argv)
{
    if (argc < 2) {
        return main_print_help();
    }
    const command *c = main_find_command(argv[1]);
    if (!c) {
        return main_unknown_command(argv[1]);
    }
    /* The next word may be a part of the command: `heddle help bench lanes`. */
    char *arguments[4] = {argv[1], NULL, NULL, NULL};
    int count = 1;
    if (argc > 3) {
        return cli_usage("", "too many words after 'help'");
    }
    if (argc == 3) {
        arguments[count++] = argv[2];
    }
    arguments[count++] = "--help";
    return c->run(count, arguments);
}

int main(int argc, char **argv)
{
    cli_output_begin();
    signal(SIGCHLD, SIG_DFL); /* if the caller ignores SIGCHLD, we never see children end */
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit fails and is reported */
    static const struct option options[] = {CLI_HELP, {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};
    cli_words words = {.command = "", .argc = argc, .argv = argv, .options = options, .letters = CLI_HELP_LETTER "V"};
    switch (cli_next(&words)) {
    case 'h':
        return main_print_help();
    case 'V':
        return main_print_version();
    case CLI_END:
        return cli_usage("", "a command is missing");
    case CLI_WRONG:
        return CLI_USAGE;
    default:
        break;
    }
    int before = words.next - 1; /* the command's own words start with its name */
    if (strcmp(words.word, "help") == 0) {
        return main_run_help(argc - before, argv + before);
    }
    const command *c = main_find_command(words.word);
    if (!c) {
        return main_unknown_command(words.word);
    }
    return c->run(argc - before, argv + before);
}
