/* run.c - the conductor of `heddle p2p`: opens the devices, gets the verdicts, measures, reads the
 * facts, prints.
 *
 * Threads: all work is on the calling thread. Locks: none.
 * Always: the verdicts come first. Afterwards a device touches another device's memory directly
 * only if the verdict of the pair allows it. A runtime with peers=off is open only while it is
 * measured. On every path, everything that was opened is closed.
 */
#include "cli/p2p/p2p.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/command.h"
#include "cli/p2p/parts.h"

const char p2p_help[] =
    "Which device can use which other one's memory, how fast, and what stands in the way.\n"
    "It is found by moving bytes.\n"
    "\n"
    "Every ordered pair is tested, unless an earlier program has done so with the same machine and driver. The one\n"
    "device writes into the other one's memory and reads it, and the owner compares what arrived.\n"
    "Then each pair is measured, in one direction and in both at once:\n"
    "  - with peer access where the verdict allows it, by copy engine and by kernel\n"
    "  - without it, through pinned memory, as the driver does it and as hd_copy does\n"
    "The bytes of each sample are compared before it counts.\n"
    "\n"
    "Verdicts:\n"
    "  usable        bytes arrive, and faster than through pinned memory\n"
    "  slow          bytes arrive, but pinned memory is faster: kernels may use it, hd_copy does not\n"
    "  refused       the driver refuses it\n"
    "  corrupt       bytes do not arrive as they were sent, or the test hung or crashed; never used\n"
    "  inconclusive  it could not be tested, or the test was killed; not used\n"
    "\n"
    "Matrices: a row's device and the memory of a column's device. GB/s are 1e9 bytes a second.\n";

const p2p_figure p2p_figures[P2P_FIGURES] = {
    [P2P_CE_WRITE] = {"ce_write", "copy engine writes, direct", "GB/s"},
    [P2P_CE_READ] = {"ce_read", "copy engine reads, direct", "GB/s"},
    [P2P_CE_BOTH_WRITE_1] = {"ce_both_write_1", "copy engines write, direct, both at once: column to row", "GB/s"},
    [P2P_CE_BOTH_WRITE_2] = {"ce_both_write_2", "copy engines write, direct, both at once: row to column", "GB/s"},
    [P2P_CE_BOTH_WRITE] = {"ce_both_write", "copy engines write, direct, both at once: sum", "GB/s"},
    [P2P_CE_BOTH_READ_1] = {"ce_both_read_1", "copy engines read, direct, both at once: column to row", "GB/s"},
    [P2P_CE_BOTH_READ_2] = {"ce_both_read_2", "copy engines read, direct, both at once: row to column", "GB/s"},
    [P2P_CE_BOTH_READ] = {"ce_both_read", "copy engines read, direct, both at once: sum", "GB/s"},
    [P2P_SM_WRITE] = {"kernel_write", "kernel writes, direct", "GB/s"},
    [P2P_SM_READ] = {"kernel_read", "kernel reads, direct", "GB/s"},
    [P2P_SM_BOTH_WRITE_1] = {"kernel_both_write_1", "kernels write, direct, both at once: column to row", "GB/s"},
    [P2P_SM_BOTH_WRITE_2] = {"kernel_both_write_2", "kernels write, direct, both at once: row to column", "GB/s"},
    [P2P_SM_BOTH_WRITE] = {"kernel_both_write", "kernels write, direct, both at once: sum", "GB/s"},
    [P2P_SM_BOTH_READ_1] = {"kernel_both_read_1", "kernels read, direct, both at once: column to row", "GB/s"},
    [P2P_SM_BOTH_READ_2] = {"kernel_both_read_2", "kernels read, direct, both at once: row to column", "GB/s"},
    [P2P_SM_BOTH_READ] = {"kernel_both_read", "kernels read, direct, both at once: sum", "GB/s"},
    [P2P_SM_LATENCY] = {"kernel_load", "load of a kernel, direct", "ns"},
    [P2P_DIRECT_4] = {"driver_direct_4B", "4 bytes copied and waited for, driver, direct", "us"},
    [P2P_DIRECT_4096] = {"driver_direct_4KiB", "4 KiB copied and waited for, driver, direct", "us"},
    [P2P_STAGED] = {"driver_staged", "copied by the driver without peer access", "GB/s"},
    [P2P_STAGED_BOTH] = {"driver_staged_both", "copied by the driver without peer access, both at once: sum", "GB/s"},
    [P2P_STAGED_4] = {"driver_staged_4B", "4 bytes copied and waited for, driver, without peer access", "us"},
    [P2P_STAGED_4096] = {"driver_staged_4KiB", "4 KiB copied and waited for, driver, without peer access", "us"},
    [P2P_HEDDLE_DIRECT] = {"heddle_direct", "hd_copy with peer access", "GB/s"},
    [P2P_HEDDLE_DIRECT_BOTH] = {"heddle_direct_both", "hd_copy with peer access, both at once: sum", "GB/s"},
    [P2P_HEDDLE_DIRECT_4] = {"heddle_direct_4B", "4 bytes copied and waited for, hd_copy with peer access", "us"},
    [P2P_HEDDLE_DIRECT_4096] = {"heddle_direct_4KiB", "4 KiB copied and waited for, hd_copy with peer access", "us"},
    [P2P_HEDDLE_STAGED] = {"heddle_staged", "hd_copy without peer access", "GB/s"},
    [P2P_HEDDLE_STAGED_BOTH] = {"heddle_staged_both", "hd_copy without peer access, both at once: sum", "GB/s"},
    [P2P_HEDDLE_STAGED_4] = {"heddle_staged_4B", "4 bytes copied and waited for, hd_copy without peer access", "us"},
    [P2P_HEDDLE_STAGED_4096] = {"heddle_staged_4KiB", "4 KiB copied and waited for, hd_copy without peer access", "us"},
};

const p2p_figure p2p_links[P2P_LINKS] = {
    [P2P_TO_DEVICE_CE] = {"to_device_ce", "pinned memory to device, copy engine", "GB/s"},
    [P2P_TO_HOST_CE] = {"to_host_ce", "device to pinned memory, copy engine", "GB/s"},
    [P2P_TO_DEVICE_BOTH_CE] = {"to_device_both_ce", "pinned memory to device, copy engine, while the other way is busy",
                               "GB/s"},
    [P2P_TO_HOST_BOTH_CE] = {"to_host_both_ce", "device to pinned memory, copy engine, while the other way is busy",
                             "GB/s"},
    [P2P_TO_DEVICE_SM] = {"to_device_kernel", "pinned memory to device, kernel", "GB/s"},
    [P2P_TO_HOST_SM] = {"to_host_kernel", "device to pinned memory, kernel", "GB/s"},
    [P2P_HOST_LATENCY_SM] = {"host_kernel_load", "load of a kernel from pinned memory", "ns"},
    [P2P_LOCAL_CE] = {"local_ce", "inside the device, copy engine (bytes copied, not read plus written)", "GB/s"},
};

/* ---- findings ---- */

bool p2p_direct(const p2p_experiment *x, int d, int o)
{
    hd_peer_verdict verdict = x->peers[d][o].verdict;
    return d != o && (verdict == HD_PEER_USABLE || verdict == HD_PEER_SLOW);
}

bool p2p_is_corrupt(const p2p_experiment *x)
{
    bool corrupt = x->wrong > 0;
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            corrupt = corrupt || x->peers[d][o].verdict == HD_PEER_CORRUPT;
        }
    }
    return corrupt;
}

const char *p2p_remedy(const p2p_experiment *x, const hd_peer_info *peer)
{
    if (x->on_host && (peer->verdict == HD_PEER_CORRUPT || peer->verdict == HD_PEER_REFUSED)) {
        return "HEDDLE_HOST_PEERS and HEDDLE_HOST_CORRUPT decide this for host devices";
    }
    if (x->on_host && peer->verdict == HD_PEER_SLOW) {
        return "host devices copy on the processor: its load shows, and HEDDLE_HOST_CORRUPT can make them slow";
    }
    switch (peer->verdict) {
    case HD_PEER_CORRUPT:
        return "heddle doctor names the causes that the facts of this machine leave over. Problems below are such. "
               "hd_copy goes through pinned memory meanwhile";
    case HD_PEER_SLOW:
        return "look at the links and the path between the devices (below); devices of one switch or bridge reach each "
               "other faster. hd_copy "
               "goes through pinned memory";
    case HD_PEER_INCONCLUSIVE:
        return "see the reason; --again tests it again once that is mended";
    case HD_PEER_REFUSED:
        break;
    default:
        return "";
    }
    switch (peer->driver_code) {
    case HDCU_ERROR_MAP_FAILED:
        return "the window into the device's memory is too small: turn on \"above 4G decoding\" and resizable BARs in "
               "the firmware";
    case HDCU_ERROR_TOO_MANY_PEERS:
        return "a device has at most eight peers at a time; hd_copy goes through pinned memory for the others";
    case HDCU_ERROR_SYSTEM_NOT_READY:
        return "start the fabric manager of the driver's version (nvidia-fabricmanager)";
    default:
        return "the driver or the hardware does not offer it for these devices. Causes are: no NVLink between them, "
               "different root complexes, a GeForce, MIG, a virtual machine. nvidia-smi topo -p2p rw shows which. "
               "hd_copy goes through pinned memory";
    }
}

void p2p_note(p2p_experiment *x, const char *format, ...)
{
    va_list arguments;
    if (x->n_notes == P2P_NOTES_MAX) {
        x->notes_left_out++;
        return;
    }
    va_start(arguments, format);
    vsnprintf(x->notes[x->n_notes++], PLAIN_ERROR, format, arguments);
    va_end(arguments);
}

void p2p_step(p2p_experiment *x, const char *stage, const char *item)
{
    cli_report_progress(&x->options->run, stage, item, x->steps ? (double)x->steps_done / x->steps : 0);
    x->steps_done++;
}

/* ---- open ---- */

/* The smallest amount of free memory over all devices. */
static uint64_t p2p_run_least_free(const p2p_experiment *x)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < x->n; i++) {
        uint64_t here = x->devices[i].info.memory_free_bytes;
        least = here < least ? here : least;
    }
    return least;
}

/* Chooses nvbandwidth's sizes and counts for GPUs, and less for host devices or if memory is
 * short. */
static bool p2p_run_choose_sizes(p2p_experiment *x, char *error)
{
    const p2p_options *o = x->options;
    int usual = x->on_host ? (o->quick ? P2P_QUICK_HOST_SIZE_MIB : P2P_HOST_SIZE_MIB)
                           : (o->quick ? P2P_QUICK_SIZE_MIB : P2P_SIZE_MIB);
    uint64_t room = p2p_run_least_free(x) / 8 /
                    /* cases of one device with pinned memory need three buffers, and each runtime
                     * needs two */
                    P2P_MIB;
    uint64_t size = o->size_mib ? (uint64_t)o->size_mib : (uint64_t)usual;
    if (size > room && o->size_mib) {
        snprintf(error, PLAIN_ERROR,
                 "buffers of %d MiB do not fit: a device has %llu MiB free, and eight of them are needed", o->size_mib,
                 (unsigned long long)room * 8);
        return false;
    }
    if (room == 0) {
        snprintf(error, PLAIN_ERROR, "a device has %llu MiB free; 8 are the least",
                 (unsigned long long)p2p_run_least_free(x) / P2P_MIB);
        return false;
    }
    x->bytes = (size_t)(size < room ? size : room) * P2P_MIB;
    x->samples = o->samples ? o->samples : o->quick ? 1 : P2P_SAMPLES;
    x->copies = o->quick ? P2P_COPIES / 4 : P2P_COPIES;
    x->warm = o->quick ? 1 : P2P_WARM;
    x->staged_copies = P2P_STAGED_COPIES;
    x->staged_warm = P2P_STAGED_WARM;
    x->small_copies = o->quick || x->on_host ? P2P_SMALL_COPIES / 10 : P2P_SMALL_COPIES;
    return true;
}

static bool p2p_run_open_devices(p2p_experiment *x, char *error)
{
    if (x->options->devices) {
        snprintf(x->settings, sizeof(x->settings), "devices=\"%.200s\"", x->options->devices);
    }
    hd_options options = {.size = sizeof(options), .settings = x->settings};
    x->info.size = sizeof(x->info);
    if (!cli_report_check(hd_open(&options, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error)) {
        return false;
    }
    x->n = x->info.device_count;
    x->on_host = strcmp(x->info.driver, "host") == 0;
    if (x->n > P2P_DEVICES_MAX) {
        snprintf(error, PLAIN_ERROR, "%d devices are open; %d is the most", x->n, P2P_DEVICES_MAX);
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        x->devices[i].info.size = sizeof(x->devices[i].info);
        if (!cli_report_check(hd_device_get_info(x->runtime, i, &x->devices[i].info), "hd_device_get_info", error)) {
            return false;
        }
    }
    return true;
}

static void p2p_run_measure_nothing(p2p_experiment *x)
{
    for (int f = 0; f < P2P_FIGURES; f++) {
        for (int d = 0; d < P2P_DEVICES_MAX; d++) {
            for (int o = 0; o < P2P_DEVICES_MAX; o++) {
                x->figures[f][d][o] = NAN;
            }
        }
    }
    for (int l = 0; l < P2P_LINKS; l++) {
        for (int d = 0; d < P2P_DEVICES_MAX; d++) {
            x->links[l][d] = NAN;
        }
    }
}

/* ---- run ---- */

static void p2p_run_note_tested(void *context, int device, int owner, const hd_peer_info *info, int done, int total)
{
    p2p_experiment *x = context;
    char text[64];
    x->peers[device][owner] = *info;
    snprintf(text, sizeof(text), "%d -> %d %s", device, owner, hd_peer_verdict_text(info->verdict));
    cli_report_progress(&x->options->run, "verdicts", text, total ? (double)done / total : 1);
}

static bool p2p_run_find_verdicts(p2p_experiment *x, char *error)
{
    cli_report_progress(&x->options->run, "verdicts", "", 0);
    if (!cli_report_check(hd_peers_check(x->runtime, x->options->again ? HD_PEERS_AGAIN : 0, p2p_run_note_tested, x),
                          "hd_peers_check", error)) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        x->peers[i][i] = (hd_peer_info){.size = sizeof(x->peers[i][i]), .verdict = HD_PEER_USABLE, .atomics = true};
    }
    return true;
}

static bool p2p_run_measure_all(p2p_experiment *x, char *error)
{
    x->steps = p2p_pairs_steps(x) + p2p_links_steps(x) + p2p_heddle_steps(x);
    bool ok = p2p_plain_open(x, error) && p2p_pairs_run(x, error) && p2p_links_run(x, error);
    p2p_plain_close(x);
    return ok && p2p_heddle_run(x, error);
}

static void p2p_run_settle_facts(p2p_experiment *x)
{
    static p2p_outcome outcome[P2P_PLACES_MAX][P2P_PLACES_MAX];
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            hd_peer_verdict verdict = x->peers[d][o].verdict;
            outcome[d][o] = verdict == HD_PEER_USABLE                               ? P2P_WORKS
                            : verdict == HD_PEER_REFUSED                            ? P2P_REFUSED
                            : verdict == HD_PEER_CORRUPT || verdict == HD_PEER_SLOW ? P2P_BAD
                                                                                    : P2P_UNTESTED;
        }
    }
    p2p_facts_settle(&x->facts, x->n, outcome);
}

/* Called after the measurements, because an idle device may slow its link down. */
static void p2p_run_read_facts(p2p_experiment *x)
{
    static p2p_place places[P2P_DEVICES_MAX];
    for (int i = 0; i < x->n; i++) {
        snprintf(places[i].bus_id, sizeof(places[i].bus_id), "%s", x->devices[i].info.bus_id);
        places[i].memory_bytes = x->devices[i].info.memory_bytes;
    }
    if (!x->on_host) { /* host devices are on no bus */
        p2p_facts_read("", places, x->n, &x->facts);
        p2p_run_settle_facts(x);
    }
}

static bool p2p_run_write_results(const p2p_experiment *x, char *error)
{
    const p2p_options *o = x->options;
    return cli_report_write(&o->run, o->nvbandwidth_on_output ? p2p_print_nvbandwidth : p2p_print_tables,
                            p2p_print_json, x, error) &&
           (!o->nvbandwidth_file || cli_report_write_file(o->nvbandwidth_file, p2p_print_nvbandwidth, x, error));
}

/* Prints the results so far, even if measuring ended early. */
static int p2p_run_finish(p2p_experiment *x, bool measured, char *error)
{
    char later[PLAIN_ERROR];
    if (!measured) {
        p2p_note(x, "measuring ended early: %.400s", error);
    }
    p2p_run_read_facts(x);
    x->record.took_s = cli_report_wall_clock() - x->record.started;
    cli_report_progress(&x->options->run, NULL, "", 1);
    bool written = p2p_run_write_results(x, measured ? error : later);
    bool ok = measured && written;
    if (!ok) {
        cli_complain("p2p", "%s", error);
    }
    return p2p_is_corrupt(x) && written ? P2P_CORRUPT : ok ? 0 : 1;
}

int p2p_run(const p2p_options *options)
{
    char error[PLAIN_ERROR] = "";
    int status = 1;
    cli_plain_begin();
    p2p_experiment *x = calloc(1, sizeof(*x));
    if (!x) {
        cli_complain("p2p", "out of memory");
        return 1;
    }
    x->options = options;
    x->record = (report_record){.run = &options->run, .started = cli_report_wall_clock()};
    report_run nvbandwidth = {.json_file = options->nvbandwidth_file};
    p2p_run_measure_nothing(x);
    if (cli_report_try_json(&options->run, error) && cli_report_try_json(&nvbandwidth, error) &&
        p2p_run_open_devices(x, error) && p2p_run_choose_sizes(x, error) && p2p_run_find_verdicts(x, error)) {
        status = p2p_run_finish(x, options->verdicts_only || p2p_run_measure_all(x, error), error);
    } else {
        cli_report_progress(&options->run, NULL, "", 1);
        cli_complain("p2p", "%s", error);
    }
    hd_close(x->runtime);
    free(x);
    return status;
}
