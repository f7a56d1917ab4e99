/* copy.c - the conductor of `heddle bench copy`: opens devices and both sides, runs the parts one
 * after another.
 *
 * Threads: all work is on the calling thread; copy_submit.c makes its own threads. Locks: none.
 * Always: one part runs at a time. The part without peer access precedes the one with it, because
 * the driver may keep peer access that was enabled once. Everything that was opened is closed on
 * every path.
 */
#include <stdlib.h>
#include <string.h>
#include "bench/copy_parts.h"

const char copy_help[] =
    "Transfers through Heddle and with the driver's own calls for the same, in turns: first the one, then the other,\n"
    "in every round, with the order changing; medians of the rounds.\n"
    "\n"
    "Parts (--only):\n"
    "  pageable  hd_write and hd_read of the program's memory, against cuMemcpyHtoD and cuMemcpyDtoH\n"
    "  pinned    hd_copy between pinned memory and the device, against cuMemcpyHtoDAsync and cuMemcpyDtoHAsync\n"
    "  device    hd_copy on the device, against cuMemcpyDtoDAsync\n"
    "  box       hd_copy_box that gathers every second row, against cuMemcpy2DAsync\n"
    "  small     hd_write + wait and hd_read of 4 bytes to 64 KiB, against cuMemcpyHtoD + wait and cuMemcpyDtoH\n"
    "  staged    hd_copy from device to device with peers=off, against cuMemcpyPeerAsync without peer access; both\n"
    "            directions at once, beside one alone\n"
    "  peer      hd_copy from device to device, against cuMemcpyPeerAsync with peer access; 4 KiB + wait\n"
    "  submit    what a launch costs the calling thread, alone and while transfers keep the copying threads busy\n"
    "\n"
    "Columns:\n"
    "  heddle, driver      gigabytes (1e9) a second, what arrives counted once; or the time of one transfer with its "
    "wait\n"
    "  speed over driver   Heddle's speed over the driver's speed; time over driver is the ratio of the times\n"
    "  roofline            what there is to reach: the driver's copies of pinned memory in this run (part pinned); "
    "from\n"
    "                      device to device without peer access the speed of the slower direction, twice that for "
    "both.\n"
    "                      In the other rows the driver's own copy is what there is to reach\n"
    "  over one direction  both directions at once over one alone\n"
    "\n"
    "What arrived is compared with what was sent, on both sides; bytes that are wrong end the run with exit status 1.\n"
    "Whether goals are reached does not change the exit status. Parts of two devices are left out where there is "
    "one.\n";

/* ---- parts ---- */

typedef struct copy_part {
    const char *name, *stage;
    bool (*run)(copy_experiment *x, char *error);
    int devices; /* number of devices that the part needs */
    int weight;  /* samples of either side in a round; they determine the length of a slice */
} copy_part;

/* the names of the parts below */
const char copy_parts[] = "pageable,pinned,device,box,small,staged,submit,peer";

static const copy_part parts[] = {
    {"pageable", "the program's memory", bench_copy_run_pageable, 1, 4},
    {"pinned", "pinned memory", bench_copy_run_pinned, 1, 2},
    {"device", "copies on the device", bench_copy_run_device, 1, 1},
    {"box", "rows with gaps", bench_copy_run_box, 1, 4},
    {"small", "small transfers", bench_copy_run_small, 1, 10},
    {"staged", "from device to device without peer access", bench_copy_run_staged, 2, 3},
    {"submit", "submits beside transfers", bench_copy_run_submit, 1, 2},
    {"peer", "from device to device with peer access", bench_copy_run_peer, 2, 4},
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

const char *bench_copy_size_text(size_t bytes, char out[REPORT_TEXT])
{
    bool mib = bytes >= COPY_MIB, kib = bytes >= COPY_KIB;
    snprintf(out, REPORT_TEXT, "%zu %s",
             mib   ? bytes / COPY_MIB
             : kib ? bytes / COPY_KIB
                   : bytes,
             mib   ? "MiB"
             : kib ? "KiB"
                   : "B");
    return out;
}

copy_row *bench_copy_row_add(copy_experiment *x, const char *part, copy_kind kind, size_t bytes, const char *id,
                             const char *name)
{
    static copy_row none; /* a stand-in, which is never used because all rows have room */
    copy_row *row = x->n_rows < COPY_ROWS_MAX ? &x->rows[x->n_rows++] : &none;
    char text[REPORT_TEXT];
    memset(row, 0, sizeof(*row));
    row->part = part;
    row->kind = kind;
    row->bytes = bytes;
    bench_copy_size_text(bytes, text);
    snprintf(row->name, sizeof(row->name), "%s, %s", name, text);
    *strchr(text, ' ') = '_';
    snprintf(row->id, sizeof(row->id), "%s_%s", id, text);
    return row;
}

/* ---- open ---- */

static bool bench_open_devices(copy_experiment *x, char *error)
{
    x->info.size = sizeof(x->info);
    if (!cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error)) {
        return false;
    }
    x->on_host = strcmp(x->info.driver, "host") == 0;
    x->n = x->info.device_count < COPY_DEVICES ? x->info.device_count : COPY_DEVICES;
    for (int i = 0; i < x->n; i++) {
        x->devices[i].size = sizeof(x->devices[i]);
        if (!cli_report_check(hd_device_get_info(x->runtime, i, &x->devices[i]), "hd_device_get_info", error)) {
            return false;
        }
    }
    return true;
}

static bool bench_open_plain(copy_experiment *x, char *error)
{
    if (!cli_plain_provider(x->on_host, NULL, &x->driver, error)) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        copy_plain *p = &x->plain[i];
        if (!cli_plain_find_device(x->driver, x->devices[i].uuid, &p->ordinal, error) ||
            !DRIVER_TRY(x->driver, error, cuDevicePrimaryCtxRetain, (&p->context, p->ordinal)) ||
            !DRIVER_TRY(x->driver, error, cuCtxSetCurrent, (p->context)) ||
            !DRIVER_TRY(x->driver, error, cuStreamCreate, (&p->stream, HDCU_STREAM_NON_BLOCKING))) {
            return false;
        }
    }
    return true;
}

/* Chooses sizes that suit the devices, and makes memory of the program with touched pages. */
static bool bench_open_memory(copy_experiment *x, char *error)
{
    bool quick = x->options->quick;
    x->large = (x->on_host ? quick ? 4 : 16 : 256) * COPY_MIB;
    x->most = (x->on_host ? quick ? 8 : 64 : 1024) * COPY_MIB;
    for (int i = 0; i < x->n; i++) {
        uint64_t room = x->devices[i].memory_free_bytes / 8;
        while (x->most > room && x->most > COPY_MIB) {
            x->most /= 2;
        }
    }
    x->large = x->large < x->most ? x->large : x->most;
    x->from = malloc(x->most);
    x->to = malloc(x->most);
    if (!x->from || !x->to) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    memset(x->from, 1, x->most);
    memset(x->to, 1, x->most);
    return true;
}

static void bench_close_all(void *experiment)
{
    copy_experiment *x = experiment;
    hd_close(x->runtime);
    for (int i = 0; i < x->n; i++) {
        copy_plain *p = &x->plain[i];
        if (p->context) {
            x->driver->cuCtxSetCurrent(p->context);
            if (p->stream) {
                x->driver->cuStreamDestroy(p->stream);
            }
            x->driver->cuCtxSetCurrent(NULL);
            x->driver->cuDevicePrimaryCtxRelease(p->ordinal);
        }
    }
    free(x->from);
    free(x->to);
}

/* ---- run ---- */

static void bench_size_run(copy_experiment *x)
{
    const bench_options *o = x->options;
    int weight = 0;
    for (int i = 0; i < PARTS; i++) {
        weight += cli_report_is_wanted(o->only, parts[i].name) && parts[i].devices <= x->n ? parts[i].weight : 0;
    }
    x->rounds = o->rounds ? o->rounds : o->quick ? 3 : x->on_host ? 5 : 9;
    double usual = weight * (x->on_host ? 0.7 : 2.0);
    x->budget_s = o->seconds > 0 ? o->seconds : o->quick ? usual / 4 : usual;
    x->slice_ns = x->budget_s * 1e9 / ((weight ? weight : 1) * 2 * (x->rounds + 1));
}

static bool bench_run_parts(copy_experiment *x, char *error)
{
    const bench_options *o = x->options;
    for (int i = 0; i < PARTS; i++) {
        char why[PLAIN_ERROR] = "";
        if (!cli_report_is_wanted(o->only, parts[i].name)) {
            continue;
        }
        if (parts[i].devices > x->n) {
            copy_row *row = bench_copy_row_add(x, parts[i].name, COPY_SPEED, x->large, parts[i].name, parts[i].stage);
            snprintf(row->note, sizeof(row->note), "needs two devices, and there is one");
            continue;
        }
        cli_report_progress(&o->run, parts[i].stage, "", (double)i / PARTS);
        if (!parts[i].run(x, why)) {
            snprintf(error, PLAIN_ERROR, "%s: %.400s", parts[i].name, why);
            return false;
        }
    }
    return true;
}

static bool bench_measure(void *experiment, char *error)
{
    copy_experiment *x = experiment;
    cli_stats_clock_start();
    cli_report_progress(&x->options->run, "opening devices", "", 0);
    if (!bench_open_devices(x, error) || !bench_open_plain(x, error) || !bench_open_memory(x, error)) {
        return false;
    }
    bench_size_run(x);
    return bench_run_parts(x, error);
}

int bench_copy_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench copy", bench_measure, bench_close_all, bench_copy_print_json};
    copy_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
