/* p2p.c - `heddle p2p`: reads the command line and runs cli/p2p/p2p.h.
 *
 * The program's first thread; no locks.
 */
#include <string.h>
#include "cli/p2p/p2p.h"
#include "cli/cli.h"

static int print_help(void)
{
    printf(
        "usage: heddle p2p [--devices LIST] [--verdicts] [--again] [--size MIB] [--samples N] [--quick]\n"
        "                  [--json [FILE]] [--nvbandwidth [FILE]] [--progress]\n"
        "\n"
        "%s"
        "\n"
        "options:\n"
        "  --devices LIST        only these devices, such as 0,2,3 (default: as HEDDLE_DEVICES says)\n"
        "  --verdicts            only the verdicts, and what the system says; nothing is measured\n"
        "  --again               test all pairs, also those that an earlier program has tested\n"
        "  --size MIB            buffers of so many MiB (default: 512 with GPUs, 4 with host devices)\n"
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
        "Exit status: 0 done, whatever is usable or refused; 3 bytes of a pair do not arrive as they were sent (a pair "
        "is\n"
        "corrupt); 1 something failed; 2 the command line is wrong.\n",
        p2p_help);
    return cli_finish("p2p", CLI_OK);
}

/* A list of numbers, as the option `devices` takes it. */
static bool is_list(const char *text)
{
    return strcmp(text, "all") == 0 || (text[0] && text[0] != ',' && strspn(text, "0123456789,") == strlen(text) &&
                                        !strstr(text, ",,") && text[strlen(text) - 1] != ',' && strlen(text) < 200);
}

/* An option with a value; CLI_OK: taken, -1: it is another option. */
static int parse_value(int argc, char **argv, int *i, p2p_options *out)
{
    const char *value;
    if ((value = cli_option_value("--devices", argc, argv, i))) {
        if (!is_list(value)) {
            return cli_usage("p2p", "--devices wants a list of numbers such as 0,2,3, not '%s'", value);
        }
        out->devices = value;
    } else if ((value = cli_option_value("--size", argc, argv, i))) {
        if (!cli_parse_count(value, P2P_SIZE_MAX, &out->size_mib)) {
            return cli_usage("p2p", "--size wants a number of MiB from 1 to %d, not '%s'", P2P_SIZE_MAX, value);
        }
    } else if ((value = cli_option_value("--samples", argc, argv, i))) {
        if (!cli_parse_count(value, P2P_SAMPLES_MAX, &out->samples)) {
            return cli_usage("p2p", "--samples wants a number from 1 to %d, not '%s'", P2P_SAMPLES_MAX, value);
        }
    } else if ((value = cli_option_value("--json", argc, argv, i))) {
        bool output = value[0] == 0 || strcmp(value, "-") == 0;
        out->run.json_on_output = output;
        out->run.json_file = output ? NULL : value;
    } else if ((value = cli_option_value("--nvbandwidth", argc, argv, i))) {
        bool output = value[0] == 0 || strcmp(value, "-") == 0;
        out->nvbandwidth_on_output = output;
        out->nvbandwidth_file = output ? NULL : value;
    } else {
        return -1;
    }
    return CLI_OK;
}

/* An option without one. */
static bool parse_flag(const char *argument, p2p_options *out, bool *progress)
{
    if (strcmp(argument, "--verdicts") == 0) {
        out->verdicts_only = true;
    } else if (strcmp(argument, "--again") == 0) {
        out->again = true;
    } else if (strcmp(argument, "--quick") == 0) {
        out->quick = true;
    } else if (strcmp(argument, "--progress") == 0) {
        *progress = true;
    } else {
        return false;
    }
    return true;
}

int cli_p2p(int argc, char **argv)
{
    cli_progress progress;
    p2p_options options = {.run = {.output = stdout, .context = &progress}};
    bool show = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return print_help();
        }
        const char *argument = argv[i];
        int status = parse_flag(argument, &options, &show) ? CLI_OK : parse_value(argc, argv, &i, &options);
        if (status < 0) {
            status = cli_usage("p2p", argument[0] == '-' ? "unknown option '%s'" : "unexpected '%s'", argument);
        }
        if (status != CLI_OK) {
            return status;
        }
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
    int status = p2p_run(&options);
    return cli_finish("p2p", status == P2P_CORRUPT ? CLI_CORRUPT : status);
}
