/* json.c - the record of `heddle p2p` as JSON, and its figures in nvbandwidth's schema.
 *
 * Threads: the conductor. Locks: none.
 * Always: a figure that was not measured is null in the record and "N/A" in nvbandwidth's schema.
 *
 * The schema follows nvbandwidth v0.8 (json_output.cpp). One object "nvbandwidth" contains the
 * versions, the list of devices and the test cases. A test case has a name, status, description,
 * matrix and sum. Matrices are numbers as strings of six digits, with "N/A" for missing figures. A
 * case with both directions contains the rows of three matrices, and its sum is the sum of the last
 * matrix. A case without a matching pair on the machine is "Waived". A case that could not be
 * measured is "Error".
 */
#include <math.h>
#include <string.h>
#include "cli/common/machine.h"
#include "cli/p2p/parts.h"

#define NVBANDWIDTH_VERSION "v0.8"

void p2p_driver_text(const p2p_experiment *x, char *out, size_t bytes)
{
    char line[512];
    FILE *file = x->on_host ? NULL : fopen("/proc/driver/nvidia/version", "re");
    snprintf(out, bytes, "%s", x->on_host ? "host" : "");
    /* the first word that starts with a digit and contains a dot */
    if (file && fgets(line, sizeof(line), file)) {
        for (char *word = strtok(line, " \t\n"); word; word = strtok(NULL, " \t\n")) {
            if (*word >= '0' && *word <= '9' && strchr(word, '.')) {
                snprintf(out, bytes, "%s", word);
                break;
            }
        }
    }
    if (file) {
        fclose(file);
    }
}

/* ---- record ---- */

static void p2p_json_put_run(const p2p_experiment *x, hdi_json *j)
{
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_bool(j, "host_devices", x->on_host);
    cli_report_put_bool(j, "measured", !x->options->verdicts_only);
    cli_report_put_bool(j, "quick", x->options->quick);
    cli_report_put_integer(j, "bytes", x->bytes);
    cli_report_put_integer(j, "samples", (uint64_t)x->samples);
    cli_report_put_integer(j, "copies", (uint64_t)x->copies);
    cli_report_put_integer(j, "warm_up_copies", (uint64_t)x->warm);
    cli_report_put_integer(j, "staged_copies", (uint64_t)x->staged_copies);
    cli_report_put_integer(j, "staged_warm_up_copies", (uint64_t)x->staged_warm);
    cli_report_put_integer(j, "small_copies", (uint64_t)x->small_copies);
    hdi_json_object_end(j);
}

static void p2p_json_put_pair(const p2p_experiment *x, int d, int o, hdi_json *j)
{
    const hd_peer_info *p = &x->peers[d][o];
    hdi_json_object(j);
    cli_report_put_integer(j, "device", (uint64_t)d);
    cli_report_put_integer(j, "owner", (uint64_t)o);
    cli_report_put_string(j, "verdict", hd_peer_verdict_text(p->verdict));
    hdi_json_key(j, "driver_code");
    hdi_json_integer(j, p->driver_code);
    cli_report_put_string(j, "driver_code_name", p->driver_code ? hdi_driver_code_name(p->driver_code) : "");
    cli_report_put_string(j, "reason", p->reason);
    cli_report_put_string(j, "remedy", p2p_remedy(x, p));
    cli_report_put_bool(j, "atomics", p->atomics);
    cli_report_put_bool(j, "remembered", p->remembered);
    cli_report_put_number(j, "direct_bytes_per_s", p->direct_bytes_per_s);
    cli_report_put_number(j, "staged_bytes_per_s", p->staged_bytes_per_s);
    cli_report_put_string(j, "path", cli_system_path_text(x->facts.path[d][o]));
    hdi_json_object_end(j);
}

static void p2p_json_put_facts(const p2p_experiment *x, hdi_json *j)
{
    hdi_json_key(j, "system");
    hdi_json_array(j);
    for (int i = 0; i < x->facts.n; i++) {
        const p2p_fact *f = &x->facts.list[i];
        hdi_json_object(j);
        cli_report_put_string(j, "id", f->id);
        cli_report_put_string(j, "name", f->name);
        hdi_json_key(j, "device");
        if (f->device >= 0) {
            hdi_json_integer(j, f->device);
        } else {
            hdi_json_string(j, NULL);
        }
        cli_report_put_string(j, "state", p2p_state_text(f->state));
        cli_report_put_string(j, "text", f->text);
        cli_report_put_string(j, "remedy", f->remedy);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void p2p_json_put_figure_head(const p2p_figure *f, hdi_json *j)
{
    hdi_json_object(j);
    cli_report_put_string(j, "id", f->id);
    cli_report_put_string(j, "text", f->text);
    cli_report_put_string(j, "unit", f->unit);
    hdi_json_key(j, "values");
    hdi_json_array(j);
}

static void p2p_json_put_figures(const p2p_experiment *x, hdi_json *j)
{
    hdi_json_key(j, "figures");
    hdi_json_array(j);
    for (int f = 0; f < P2P_FIGURES; f++) {
        p2p_json_put_figure_head(&p2p_figures[f], j);
        for (int d = 0; d < x->n; d++) {
            hdi_json_array(j);
            for (int o = 0; o < x->n; o++) {
                hdi_json_number(j, x->figures[f][d][o]);
            }
            hdi_json_array_end(j);
        }
        hdi_json_array_end(j);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "links");
    hdi_json_array(j);
    for (int l = 0; l < P2P_LINKS; l++) {
        p2p_json_put_figure_head(&p2p_links[l], j);
        for (int d = 0; d < x->n; d++) {
            hdi_json_number(j, x->links[l][d]);
        }
        hdi_json_array_end(j);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

/* ---- nvbandwidth ---- */

/* A case that both programs measure. Readers of the schema use name and description. */
typedef struct shared_case {
    const char *name, *description;
    /* the figures from `first` on; 0 matrices: `first` is a link, with one row */
    int first, matrices;
} shared_case;

/* In the order of nvbandwidth (nvbandwidth.cpp, createTestcases). */
static const shared_case shared_cases[] = {
    {"host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", P2P_TO_DEVICE_CE, 0},
    {"device_to_host_memcpy_ce", "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)", P2P_TO_HOST_CE, 0},
    {"host_to_device_bidirectional_memcpy_ce", "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)",
     P2P_TO_DEVICE_BOTH_CE, 0},
    {"device_to_host_bidirectional_memcpy_ce", "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)",
     P2P_TO_HOST_BOTH_CE, 0},
    {"device_to_device_memcpy_read_ce", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", P2P_CE_READ, 1},
    {"device_to_device_memcpy_write_ce", "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)", P2P_CE_WRITE, 1},
    {"device_to_device_bidirectional_memcpy_read_ce", "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
     P2P_CE_BOTH_READ_1, 3},
    {"device_to_device_bidirectional_memcpy_write_ce", "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
     P2P_CE_BOTH_WRITE_1, 3},
    {"host_to_device_memcpy_sm", "memcpy SM CPU(row) -> GPU(column) bandwidth (GB/s)", P2P_TO_DEVICE_SM, 0},
    {"device_to_host_memcpy_sm", "memcpy SM CPU(row) <- GPU(column) bandwidth (GB/s)", P2P_TO_HOST_SM, 0},
    {"device_to_device_memcpy_read_sm", "memcpy SM GPU(row) -> GPU(column) bandwidth (GB/s)", P2P_SM_READ, 1},
    {"device_to_device_memcpy_write_sm", "memcpy SM GPU(row) <- GPU(column) bandwidth (GB/s)", P2P_SM_WRITE, 1},
    {"device_to_device_bidirectional_memcpy_read_sm", "memcpy SM GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
     P2P_SM_BOTH_READ_1, 3},
    {"device_to_device_bidirectional_memcpy_write_sm", "memcpy SM GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
     P2P_SM_BOTH_WRITE_1, 3},
    {"host_device_latency_sm", "memory latency SM CPU(row) <-> GPU(column) (ns)", P2P_HOST_LATENCY_SM, 0},
    {"device_to_device_latency_sm", "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)", P2P_SM_LATENCY, 1},
    {"device_local_copy", "memcpy local GPU(column) bandwidth (GB/s)", P2P_LOCAL_CE, 0},
};

/* Writes one row. Returns the sum of the measured values. */
static double p2p_json_put_row(hdi_json *j, const double *values, int n)
{
    double sum = 0;
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        char text[32] = "N/A";
        if (!isnan(values[i])) {
            snprintf(text, sizeof(text), "%g", values[i]);
            sum += values[i];
        }
        hdi_json_string(j, text);
    }
    hdi_json_array_end(j);
    return sum;
}

static int p2p_json_count_measured(const p2p_experiment *x, const shared_case *c)
{
    int count = 0;
    for (int i = 0; i < x->n; i++) {
        if (c->matrices == 0) {
            count += !isnan(x->links[c->first][i]);
        }
        for (int k = 0; k < x->n && c->matrices > 0; k++) {
            count += !isnan(x->figures[c->first][i][k]);
        }
    }
    return count;
}

/* True if the machine has the subject of the case. */
static bool p2p_json_case_applies(const p2p_experiment *x, const shared_case *c)
{
    bool any = c->matrices == 0;
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            any = any || (p2p_direct(x, d, o) && (c->matrices == 1 || p2p_direct(x, o, d)));
        }
    }
    return any && !x->options->verdicts_only;
}

static void p2p_json_put_case(const p2p_experiment *x, const shared_case *c, hdi_json *j)
{
    double sum = 0;
    hdi_json_object(j);
    cli_report_put_string(j, "name", c->name);
    if (p2p_json_count_measured(x, c) == 0) {
        cli_report_put_string(j, "status", p2p_json_case_applies(x, c) ? "Error" : "Waived");
        hdi_json_object_end(j);
        return;
    }
    cli_report_put_string(j, "status", "Passed");
    cli_report_put_string(j, "bandwidth_description", c->description);
    hdi_json_key(j, "bandwidth_matrix");
    hdi_json_array(j);
    if (c->matrices == 0) {
        sum = p2p_json_put_row(j, x->links[c->first], x->n);
    }
    for (int m = 0; m < c->matrices; m++) {
        sum = 0;
        for (int d = 0; d < x->n; d++) {
            sum += p2p_json_put_row(j, x->figures[c->first + m][d], x->n);
        }
    }
    hdi_json_array_end(j);
    cli_report_put_number(j, "sum", sum);
    hdi_json_object_end(j);
}

/* The value of the key "nvbandwidth". The version is that of nvbandwidth's definitions;
 * "git_version" names the program that measured. */
static void p2p_json_put_nvbandwidth(const p2p_experiment *x, hdi_json *j)
{
    char text[256];
    hdi_json_object(j);
    cli_report_put_string(j, "version", NVBANDWIDTH_VERSION);
    snprintf(text, sizeof(text), "heddle %s", hd_version());
    cli_report_put_string(j, "git_version", text);
    cli_report_put_integer(j, "CUDA Runtime Version", (uint64_t)x->info.driver_version);
    p2p_driver_text(x, text, sizeof(text));
    cli_report_put_string(j, "Driver Version", text);
    if (x->bytes != P2P_SIZE_MIB * P2P_MIB || x->copies != P2P_COPIES || x->warm != P2P_WARM ||
        x->samples != P2P_SAMPLES) {
        snprintf(text, sizeof(text),
                 "not the usual sizes: buffers of %llu MiB, %d warm-up copies, %d copies, median of %d",
                 (unsigned long long)(x->bytes / P2P_MIB), x->warm, x->copies, x->samples);
        cli_report_put_string(j, "warning", text);
    }
    hdi_json_key(j, "GPU Device list");
    hdi_json_array(j);
    /* nvbandwidth appends the machine's name; records here omit it */
    for (int i = 0; i < x->n; i++) {
        snprintf(text, sizeof(text), "%d: %.127s (%s): (localhost)", i, x->devices[i].info.name,
                 x->devices[i].info.bus_id);
        hdi_json_string(j, text);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "testcases");
    hdi_json_array(j);
    for (size_t i = 0; i < sizeof(shared_cases) / sizeof(shared_cases[0]); i++) {
        p2p_json_put_case(x, &shared_cases[i], j);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

/* ---- files ---- */

void p2p_print_nvbandwidth(const void *experiment, FILE *out)
{
    hdi_json j;
    hdi_json_begin(&j, out);
    hdi_json_object(&j);
    hdi_json_key(&j, "nvbandwidth");
    p2p_json_put_nvbandwidth(experiment, &j);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
}

void p2p_print_json(const void *experiment, FILE *out)
{
    const p2p_experiment *x = experiment;
    hdi_json j;
    cli_report_begin(&j, out, "p2p", &x->record, x->runtime);
    p2p_json_put_run(x, &j);
    hdi_json_key(&j, "pairs");
    hdi_json_array(&j);
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            if (d != o) {
                p2p_json_put_pair(x, d, o, &j);
            }
        }
    }
    hdi_json_array_end(&j);
    p2p_json_put_facts(x, &j);
    p2p_json_put_figures(x, &j);
    hdi_json_key(&j, "verified");
    hdi_json_object(&j);
    cli_report_put_integer(&j, "compared", x->checked);
    cli_report_put_integer(&j, "wrong", x->wrong);
    hdi_json_object_end(&j);
    hdi_json_key(&j, "notes");
    hdi_json_array(&j);
    for (int i = 0; i < x->n_notes; i++) {
        hdi_json_string(&j, x->notes[i]);
    }
    hdi_json_array_end(&j);
    hdi_json_key(&j, "nvbandwidth");
    p2p_json_put_nvbandwidth(x, &j);
    cli_report_end(&j);
}
