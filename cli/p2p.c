/* p2p.c - `heddle p2p`: reads the command line and runs cli/p2p/p2p.h.
 *
 * Threads: the program's first. Locks: none.
 */
#include <string.h>
#include "cli/p2p/p2p.h"
#include "cli/cli.h"

static int p2p_print_help(void)
{
    printf(
        "usage: heddle p2p [--devices LIST] [--verdicts] [--again] [--size MIB] [--samples N] [--quick]\n"
        "                  [--json [FILE]] [--nvbandwidth [FILE]] [--progress]\n"
        "\n"
        "%s"
        "\n"
        "options:\n"
        "  --devices LIST        only these devices, such as 0,2,3 (default: those of HEDDLE_DEVICES)\n"
        "  --verdicts            only the verdicts, and what the system reports; nothing is measured\n"
        "  --again               test all pairs, also those that an earlier program has tested\n"
        "  --size MIB            the size of the buffers in MiB (default: 512 with GPUs, 4 with host devices)\n"
        "  --samples N           samples of which the median counts (default: 3)\n"
        "  --quick               smaller buffers (64 and 1 MiB), one sample of fewer copies\n"
        "  --json [FILE]         print JSON instead of the tables; with FILE, write it there and print the tables\n"
        "  --nvbandwidth [FILE]  the same with the cases that nvbandwidth measures, too, in its schema; the JSON of\n"
        "                        --json has them as the member \"nvbandwidth\"\n"
        "  --progress            show progress on stderr also when that is no terminal\n"
        "  --help, -h            this text\n"
        "\n"
        "FILE may be -, for the output. With the usual sizes the shared cases are measured by the definitions of\n"
        "nvbandwidth v0.8, so that results can be laid side by side.\n"
        "Exit status:\n"
        "  0  done, whatever is usable or refused\n"
        "  1  something failed\n"
        "  2  the command line is wrong\n"
        "  3  bytes of a pair do not arrive as they were sent (a pair is corrupt)\n",
        p2p_help);
    return cli_finish("p2p", CLI_OK);
}

/* True for a list of numbers, as the option `devices` takes it. */
static bool p2p_is_number_list(const char *text)
{
    return strcmp(text, "all") == 0 || (text[0] && text[0] != ',' && strspn(text, "0123456789,") == strlen(text) &&
                                        !strstr(text, ",,") && text[strlen(text) - 1] != ',' && strlen(text) < 200);
}

enum {
    DEVICES = 'd',
    SIZE = 's',
    SAMPLES = 'n',
    JSON = 'j',
    NVBANDWIDTH = 'b',
    VERDICTS = 'v',
    AGAIN = 'a',
    QUICK = 'q',
    PROGRESS = 'p'
};

static const struct option options_of_p2p[] = {{"devices", required_argument, NULL, DEVICES},
                                               {"size", required_argument, NULL, SIZE},
                                               {"samples", required_argument, NULL, SAMPLES},
                                               {"json", optional_argument, NULL, JSON},
                                               {"nvbandwidth", optional_argument, NULL, NVBANDWIDTH},
                                               {"verdicts", no_argument, NULL, VERDICTS},
                                               {"again", no_argument, NULL, AGAIN},
                                               {"quick", no_argument, NULL, QUICK},
                                               {"progress", no_argument, NULL, PROGRESS},
                                               CLI_HELP,
                                               {NULL, 0, NULL, 0}};

static int p2p_parse_option(int option, const char *value, p2p_options *out, bool *progress)
{
    switch (option) {
    case DEVICES:
        out->devices = value;
        return p2p_is_number_list(value)
                   ? CLI_OK
                   : cli_usage("p2p", "--devices wants a list of numbers such as 0,2,3, not '%s'", value);
    case SIZE:
        return cli_parse_count(value, P2P_SIZE_MAX, &out->size_mib)
                   ? CLI_OK
                   : cli_usage("p2p", "--size wants a number of MiB from 1 to %d, not '%s'", P2P_SIZE_MAX, value);
    case SAMPLES:
        return cli_parse_count(value, P2P_SAMPLES_MAX, &out->samples)
                   ? CLI_OK
                   : cli_usage("p2p", "--samples wants a number from 1 to %d, not '%s'", P2P_SAMPLES_MAX, value);
    case JSON:
        cli_parse_json(value, &out->run.json_on_output, &out->run.json_file);
        break;
    case NVBANDWIDTH:
        cli_parse_json(value, &out->nvbandwidth_on_output, &out->nvbandwidth_file);
        break;
    case VERDICTS:
        out->verdicts_only = true;
        break;
    case AGAIN:
        out->again = true;
        break;
    case QUICK:
        out->quick = true;
        break;
    default:
        *progress = true;
        break;
    }
    return CLI_OK;
}

/* Returns the exit status; CLI_OK: continue. */
static int p2p_parse_words(int argc, char **argv, p2p_options *out, bool *progress, bool *help)
{
    cli_words words = {
        .command = "p2p", .argc = argc, .argv = argv, .options = options_of_p2p, .letters = CLI_HELP_LETTER};
    int status = CLI_OK, option;
    while (status == CLI_OK && !*help && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            status = CLI_USAGE;
        } else if (option == CLI_WORD) {
            status = cli_usage("p2p", "unexpected '%s'", words.word);
        } else if (option == 'h') {
            *help = true;
        } else {
            status = p2p_parse_option(option, words.value, out, progress);
        }
    }
    return status;
}

int cli_p2p(int argc, char **argv)
{
    cli_progress progress;
    p2p_options options = {.run = {.output = stdout, .context = &progress}};
    bool show = false, help = false;
    int status = p2p_parse_words(argc, argv, &options, &show, &help);
    if (status != CLI_OK || help) {
        return help ? p2p_print_help() : status;
    }
    if (options.run.json_on_output && options.nvbandwidth_on_output) {
        return cli_usage("p2p", "--json and --nvbandwidth cannot both go to the output; the JSON has both");
    }
    if (options.verdicts_only && (options.nvbandwidth_on_output || options.nvbandwidth_file)) {
        return cli_usage("p2p", "--verdicts measures nothing, and --nvbandwidth is about what is measured");
    }
    char *words[CLI_WORDS];
    options.run.command_count = cli_record("p2p", argc - 1, argv + 1, words);
    options.run.command = words;
    cli_progress_start(&progress, stderr);
    options.run.progress = show || progress.terminal ? cli_progress_step : NULL;
    status = p2p_run(&options);
    return cli_finish("p2p", status == P2P_CORRUPT ? CLI_CORRUPT : status);
}
