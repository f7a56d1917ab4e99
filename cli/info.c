/* info.c - `heddle info`: devices, driver, memory, NUMA, links and options in force, for people or
 * as JSON.
 *
 * Threads: the program's first. Locks: none.
 * Always: if a fact cannot be determined, the reason is printed in its place. If no device can be
 * opened, the rest is still printed, and the status is CLI_FAILED.
 */
#include <heddle.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/machine.h"
#include "cli/common/plain.h"
#include "cli/common/report.h"
#include "cli/common/words.h"
#include "cli/cli.h"

static int info_print_help(void)
{
    printf("usage: heddle info [--json [FILE]]\n"
           "       heddle info --memory [PID] [--json [FILE]]\n"
           "\n"
           "Prints the version, the machine, the driver and the placement of the engines, each device (name, bus\n"
           "address, UUID, memory, compute capability, limits, NUMA node; with HEDDLE_PLACEMENT=process its worker\n"
           "process, and how often it was lost and restarted), which device can access which other one's memory, and\n"
           "every option: its value in force, whether it was set, and its environment variable.\n"
           "With --memory, what running programs hold on each device: limits, figures of the memory pool, the largest\n"
           "holders. They are not disturbed; their figures are some hundred milliseconds old. In a program with\n"
           "many buffers the holders may be older, and the text states by how much.\n"
           "\n"
           "options:\n"
           "  --memory       the memory of the program with that PID, or of all programs of this user\n"
           "  --json [FILE]  the same as one JSON object; with FILE, write it there and print the text\n"
           "  --help, -h     this text\n"
           "\n"
           "FILE may be -, for the output.\n");
    return cli_finish("info", CLI_OK);
}

/* "139.8 GiB" */
static const char *info_bytes_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    bool whole = value == (double)(uint64_t)value;
    snprintf(out, 32, "%.*f %s", whole ? 0 : 1, value, units[unit]);
    return out;
}

static void info_print_machine(void)
{
    machine_facts m;
    char memory[32];
    cli_machine_read(&m);
    printf("heddle      %s\n", hd_version());
    printf("system      %s\n", m.system);
    printf("processor   %s, %d to use, %d NUMA node%s\n", m.cpu[0] ? m.cpu : "unknown", m.processors, m.numa_nodes,
           m.numa_nodes == 1 ? "" : "s");
    printf("memory      %s\n", info_bytes_text(m.memory_bytes, memory));
}

/* Prints a line only if the engines run in worker processes. */
static void info_print_worker(const hd_device_info *d)
{
    if (d->worker_pid) {
        printf("  worker    process %d", d->worker_pid);
    } else {
        printf("  worker    none");
    }
    printf(", lost %llu time%s, restarted %llu time%s\n", (unsigned long long)d->losses, d->losses == 1 ? "" : "s",
           (unsigned long long)d->restarts, d->restarts == 1 ? "" : "s");
}

static void info_print_device(hd_runtime *runtime, int index, bool workers)
{
    hd_device_info d = {.size = sizeof(d)};
    char uuid[48], total[32], free_now[32], shared[32], shared_max[32];
    if (hd_device_get_info(runtime, index, &d) != HD_OK) {
        printf("\ndevice %-4d %s\n", index, hd_message());
        return;
    }
    cli_machine_uuid_text(d.uuid, uuid);
    printf("\ndevice %-4d %s%s%s\n", index, d.name, d.is_host ? " (host device: a CPU stand-in)" : "",
           d.lost ? " LOST" : "");
    printf("  bus       %s\n", d.bus_id);
    printf("  uuid      %s\n", uuid);
    printf("  memory    %s, %s free\n", info_bytes_text(d.memory_bytes, total),
           info_bytes_text(d.memory_free_bytes, free_now));
    printf("  compute   %d.%d, %d %s, %d threads a block\n", d.compute_major, d.compute_minor, d.multiprocessors,
           d.is_host ? "processors" : "multiprocessors", d.max_threads_per_block);
    printf("  shared    %s a block, up to %s\n", info_bytes_text(d.shared_bytes_per_block, shared),
           info_bytes_text(d.shared_bytes_max, shared_max));
    if (d.numa_node >= 0) {
        printf("  NUMA      node %d\n", d.numa_node);
    } else {
        printf("  NUMA      unknown\n");
    }
    if (workers) {
        info_print_worker(&d);
    }
}

/* The value in force. */
static const char *info_option_value(const hd_runtime *runtime, const char *name)
{
    hd_option_info o = {.size = sizeof(o)};
    for (int i = 0; hd_option_get_info(runtime, i, &o) == HD_OK; i++) {
        if (strcmp(o.name, name) == 0) {
            return o.value;
        }
    }
    return "";
}

/* If nothing can be tested, explains that copies take another route, which the results do not
 * show. */
static void info_print_untested(hd_runtime *runtime, int count)
{
    bool tests =
        strcmp(info_option_value(runtime, "peers"), "verify") == 0 && info_option_value(runtime, "probe")[0] == 0;
    for (int i = 0; tests && i < count * count; i++) {
        hd_peer_info why = {.size = sizeof(why)};
        if (hd_peer_check(runtime, i / count, i % count, &why) == HD_OK && why.verdict == HD_PEER_INCONCLUSIVE) {
            printf("            not used where it was not tested before: %s\n", why.reason);
            return;
        }
    }
}

/* Prints a row for each device, with the devices whose memory it can access. */
static void info_print_links(hd_runtime *runtime, int count)
{
    if (count < 2) {
        return;
    }
    printf("\nlinks       a row's device can access the memory of the columns marked 'peer'\n     ");
    for (int j = 0; j < count; j++) {
        printf(" %5d", j);
    }
    printf("\n");
    for (int i = 0; i < count; i++) {
        hd_device_info d = {.size = sizeof(d)};
        bool known = hd_device_get_info(runtime, i, &d) == HD_OK;
        printf("  %3d", i);
        for (int j = 0; j < count; j++) {
            printf(" %5s", i == j ? "." : !known ? "?" : d.peers >> j & 1 ? "peer" : "-");
        }
        printf("\n");
    }
    info_print_untested(runtime, count);
}

static int info_wider_column(int width, const char *text)
{
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

/* The description of an option is on its own line below it, so that lines fit. A long value,
 * such as a path, shifts only its own line. */
static void info_print_options(const hd_runtime *runtime)
{
    enum { VALUE_WIDTH = 24, HELP_INDENT = 6 };
    hd_option_info o = {.size = sizeof(o)};
    int name = 0, value = 0;
    for (int i = 0; hd_option_get_info(runtime, i, &o) == HD_OK; i++) {
        name = info_wider_column(name, o.name);
        value = strlen(o.value) <= VALUE_WIDTH ? info_wider_column(value, o.value) : value;
    }
    printf("\noptions     %s\n", runtime ? "in force (* not the default, = set to the default)" : "and their defaults");
    for (int i = 0; hd_option_get_info(runtime, i, &o) == HD_OK; i++) {
        char point = !o.is_default ? '*' : o.source != HD_OPTION_FROM_DEFAULT ? '=' : ' ';
        printf("  %-*s %c %-*s  %s\n%*s", name, o.name, point, value, o.value[0] ? o.value : "\"\"", o.environment,
               HELP_INDENT, "");
        cli_words_put(stdout, o.help, HELP_INDENT, HELP_INDENT);
    }
}

static void info_print_runtime(hd_runtime *runtime)
{
    hd_runtime_info info = {.size = sizeof(info)};
    char version[24];
    if (hd_runtime_get_info(runtime, &info) != HD_OK) {
        printf("driver      %s\n", hd_message());
        return;
    }
    cli_machine_driver_version_text(info.driver_version, version);
    printf("driver      %s %s\n", info.driver, version);
    printf("placement   %s\n", info.placement);
    printf("devices     %d\n", info.device_count);
    for (int i = 0; i < info.device_count; i++) {
        info_print_device(runtime, i, strcmp(info.placement, "process") == 0);
    }
    info_print_links(runtime, info.device_count);
}

/* A process id; 0: not a valid one. */
static int info_parse_pid(const char *text)
{
    bool digits = text[0] && strspn(text, "0123456789") == strlen(text) && strlen(text) <= 10;
    long long pid = digits ? strtoll(text, NULL, 10) : 0;
    return pid <= INT32_MAX ? (int)pid : 0;
}

typedef struct info_options {
    bool json, memory, help; /* JSON on the output */
    const char *json_file;   /* NULL: none */
    int pid;                 /* 0: all programs */
} info_options;

/* Returns the exit status; CLI_OK: continue. */
static int info_parse_words(int argc, char **argv, info_options *out)
{
    static const struct option options[] = {
        {"json", optional_argument, NULL, 'j'}, {"memory", no_argument, NULL, 'm'}, CLI_HELP, {NULL, 0, NULL, 0}};
    cli_words words = {.command = "info", .argc = argc, .argv = argv, .options = options, .letters = CLI_HELP_LETTER};
    int option;
    while (!out->help && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            return CLI_USAGE;
        }
        out->help |= option == 'h';
        out->memory |= option == 'm';
        if (option == 'j') {
            cli_parse_json(words.value, &out->json, &out->json_file);
        }
        if (option == CLI_WORD) {
            if (!out->memory || out->pid) {
                return cli_usage("info", "unexpected '%s'", words.word);
            }
            out->pid = info_parse_pid(words.word);
            if (!out->pid) {
                return cli_usage("info", "'%s' is no process id", words.word);
            }
        }
    }
    if (out->memory && !out->pid && out->json_file && info_parse_pid(out->json_file)) {
        return cli_usage("info", "'%s' may be a process id or a file; give the process id first, and a file as ./%s",
                         out->json_file, out->json_file);
    }
    return CLI_OK;
}

typedef struct told {
    hd_runtime *runtime; /* NULL: it could not be opened */
    const char *failure;
} told;

static void info_print_json(const void *context, FILE *out)
{
    const told *t = context;
    cli_machine_info_json(out, t->runtime, t->failure);
}

int cli_info(int argc, char **argv)
{
    info_options options = {0};
    int status = info_parse_words(argc, argv, &options);
    if (status != CLI_OK || options.help) {
        return options.help ? info_print_help() : status;
    }
    if (options.memory) {
        return cli_memory(options.pid, options.json, options.json_file);
    }
    hd_runtime *runtime = NULL;
    bool opened = hd_open(NULL, &runtime) == HD_OK;
    char failure[512] = ""; /* kept here, because later calls may leave another message */
    if (!opened) {
        snprintf(failure, sizeof(failure), "%s", hd_message());
    }
    told all = {runtime, failure};
    char error[PLAIN_ERROR];
    bool written = !options.json_file || cli_report_write_file(options.json_file, info_print_json, &all, error);
    if (options.json) {
        info_print_json(&all, stdout);
    } else {
        info_print_machine();
        if (opened) {
            info_print_runtime(runtime);
        }
        info_print_options(runtime);
    }
    if (!opened) {
        cli_complain("info", "%s", failure);
    }
    if (!written) {
        cli_complain("info", "--json: %s; give another file, or - for the output", error);
    }
    hd_close(runtime);
    return cli_finish("info", opened && written ? CLI_OK : CLI_FAILED);
}
