/* claim.c - `heddle bench claim`: the cost of claims for the calling thread, in turns with events
 * that a program handles itself.
 *
 * Threads: the conductor. Locks: none.
 * Always: every round measures every row once on each side, the driver first in even rounds. So few
 * operations are in flight that no queue is full. The cost of reading the clock is subtracted.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/bench.h"
#include "cli/common/plain.h"

enum { ROUNDS_GPU = 7, ROUNDS_HOST = 3, ROUNDS_QUICK = 2, BUFFERS = 8, BATCH = 32, GOALS = 3, WORDS = 1024 };
enum { BATCHES_GPU = 200, BATCHES_HOST = 20, BATCHES_QUICK = 5 };

/* limit of every wait: an operation that takes this long hangs */
static const int64_t limit_ns = (int64_t)120 * 1000000000;

const char claim_help[] =
    "One thread begins claims and ends them. The memory is 4 KiB on a device.\n"
    "\n"
    "  claim          hd_claim_begin, hd_claim_wait and hd_claim_end, which find nothing pending; by hand: "
    "cuEventQuery "
    "of\n"
    "                 the event behind the last use\n"
    "  stream         hd_claim_begin_stream and hd_claim_end around a fill in the program's stream; by hand: "
    "cuStreamWaitEvent\n"
    "                 before it and cuEventRecord behind it. Nothing is pending before\n"
    "    again        the last claim was on the same stream, and its fill may be under way\n"
    "    other        it was on another stream; by hand: that stream's event is waited for\n"
    "    behind       a fill by Heddle is under way; by hand: cuEventRecord behind a fill in another stream comes "
    "first\n"
    "\n"
    "Columns: what that costs the calling thread in all, without the fill, on both sides, and their ratio.\n"
    "With placement process there are no claims on streams.\n";

typedef enum claim_kind { NO_STREAM, IDLE, AGAIN, OTHER, BEHIND } claim_kind;

typedef struct claim_row {
    const char *id, *text;
    claim_kind kind;
    int buffers;
} claim_row;

static const claim_row rows[] = {
    {"claim_1", "claim, 1 buffer", NO_STREAM, 1},
    {"claim_8", "claim, 8 buffers", NO_STREAM, 8},
    {"stream_1", "stream, 1 buffer", IDLE, 1},
    {"stream_8", "stream, 8 buffers", IDLE, 8},
    {"again", "  again", AGAIN, 1},
    {"other", "  other", OTHER, 1},
    {"behind", "  behind", BEHIND, 1},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

typedef enum claim_side { DRIVER, HEDDLE, SIDES } claim_side;
static const char *const side_names[SIDES] = {"driver", "heddle"};

typedef struct claim_data {
    int rounds; /* 0: not measured */
    double median_ns[SIDES][CLAIM_ROUNDS_MAX];
    stats_histogram calls[SIDES]; /* of all rounds */
} claim_data;

typedef struct claim_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    hd_runtime *runtime;
    hd_runtime_info info;
    hd_device_info device;
    bool on_host;
    int rounds, batches;
    hd_buffer *buffers[BUFFERS];
    hd_arg uses[BUFFERS];
    const hdi_driver *driver;
    hdcu_device ordinal;
    hdcu_context context; /* NULL: not opened */
    hdcu_stream streams[2];
    hdcu_event events[2]; /* after the last use in each stream */
    claim_data rows[ROWS];
} claim_experiment;

/* ---- one step ---- */

/* Uses the memory once, and adds the timed part to *ticks. */
typedef bool (*step)(claim_experiment *x, const claim_row *row, int i, uint64_t *ticks, char *error);

static bool bench_fill(claim_experiment *x, int stream, char *error)
{
    hdcu_deviceptr at = hd_buffer_address(x->buffers[0]);
    return DRIVER_TRY(x->driver, error, cuMemsetD32Async, (at, 7, WORDS, x->streams[stream]));
}

static bool bench_step_claim(claim_experiment *x, const claim_row *row, int i, uint64_t *ticks, char *error)
{
    hd_claim *claim = NULL;
    (void)i;
    uint64_t begin = cli_stats_tick_begin();
    hd_status status = hd_claim_begin(x->runtime, x->uses, (size_t)row->buffers, &claim);
    status = status ? status : hd_claim_wait(claim, limit_ns);
    status = status ? status : hd_claim_end(claim, HD_OK);
    *ticks = cli_stats_tick_end() - begin;
    return cli_report_check(status, "a claim", error);
}

static bool bench_step_claim_by_hand(claim_experiment *x, const claim_row *row, int i, uint64_t *ticks, char *error)
{
    (void)row;
    (void)i;
    uint64_t begin = cli_stats_tick_begin();
    hdcu_result r = x->driver->cuEventQuery(x->events[0]);
    *ticks = cli_stats_tick_end() - begin;
    return cli_plain_try(r, "cuEventQuery", error);
}

static bool bench_step_stream(claim_experiment *x, const claim_row *row, int i, uint64_t *ticks, char *error)
{
    int own = row->kind == OTHER ? i % 2 : 0;
    hd_claim *claim = NULL;
    if (row->kind == BEHIND && !cli_report_check(hd_fill(x->buffers[0], 0, 3, WORDS * 4, NULL), "hd_fill", error)) {
        return false;
    }
    uint64_t begin = cli_stats_tick_begin();
    hd_status status =
        hd_claim_begin_stream(x->runtime, 0, x->streams[own], x->uses, (size_t)row->buffers, NULL, &claim);
    *ticks = cli_stats_tick_end() - begin;
    if (!cli_report_check(status, "hd_claim_begin_stream", error) || !bench_fill(x, own, error)) {
        return false;
    }
    begin = cli_stats_tick_begin();
    status = hd_claim_end(claim, HD_OK);
    *ticks += cli_stats_tick_end() - begin;
    return cli_report_check(status, "hd_claim_end", error);
}

static bool bench_step_stream_by_hand(claim_experiment *x, const claim_row *row, int i, uint64_t *ticks, char *error)
{
    const hdi_driver *d = x->driver;
    int own = row->kind == OTHER ? i % 2 : 0, before = row->kind == OTHER || row->kind == BEHIND ? !own : own;
    if (row->kind == BEHIND && !bench_fill(x, before, error)) {
        return false;
    }
    uint64_t begin = cli_stats_tick_begin();
    hdcu_result r = row->kind == BEHIND ? d->cuEventRecord(x->events[before], x->streams[before]) : HDCU_SUCCESS;
    r = r == HDCU_SUCCESS ? d->cuStreamWaitEvent(x->streams[own], x->events[before], 0) : r;
    *ticks = cli_stats_tick_end() - begin;
    if (!cli_plain_try(r, "cuStreamWaitEvent", error) || !bench_fill(x, own, error)) {
        return false;
    }
    begin = cli_stats_tick_begin();
    r = d->cuEventRecord(x->events[own], x->streams[own]);
    *ticks += cli_stats_tick_end() - begin;
    return cli_plain_try(r, "cuEventRecord", error);
}

/* Waits until nothing is in flight. */
static bool bench_settle(claim_experiment *x, char *error)
{
    for (int i = 0; i < 2; i++) {
        if (x->streams[i] && !DRIVER_TRY(x->driver, error, cuStreamSynchronize, (x->streams[i]))) {
            return false;
        }
    }
    for (int i = 0; i < BUFFERS; i++) {
        if (!cli_report_check(hd_buffer_wait(x->buffers[i], HD_READ_WRITE, limit_ns), "hd_buffer_wait", error)) {
            return false;
        }
    }
    return true;
}

static bool bench_measure_side(claim_experiment *x, int number, int round, claim_side side, char *error)
{
    static const step steps[SIDES][2] = {{bench_step_claim_by_hand, bench_step_stream_by_hand},
                                         {bench_step_claim, bench_step_stream}};
    const claim_row *row = &rows[number];
    step one = steps[side][row->kind != NO_STREAM];
    stats_histogram *h = calloc(1, sizeof(*h));
    bool ok = h != NULL;
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "out of memory");
    }
    for (int b = -1; b < x->batches && ok; b++) { /* the first one warms up */
        for (int i = 0; i < BATCH && ok; i++) {
            uint64_t ticks = 0;
            ok = one(x, row, i, &ticks, error) && (row->kind != IDLE || bench_settle(x, error));
            if (b >= 0) {
                cli_stats_record(h, ticks);
            }
        }
        ok = ok && bench_settle(x, error);
    }
    if (ok) {
        x->rows[number].median_ns[side][round] = cli_stats_summarise(h).median_ns;
        cli_stats_merge(&x->rows[number].calls[side], h);
    }
    free(h);
    return ok;
}

/* ---- goals ---- */

static double bench_median_of(const claim_experiment *x, const char *id)
{
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].id, id) == 0 && x->rows[i].rounds) {
            return cli_stats_spread_of(x->rows[i].median_ns[HEDDLE], x->rows[i].rounds).median;
        }
    }
    return NAN;
}

static void bench_make_goals(const claim_experiment *x, report_goal out[GOALS])
{
    const report_goal goals[GOALS] = {
        {.id = "claim",
         .text = "a claim that finds nothing pending",
         .limit = 300,
         .value = bench_median_of(x, "claim_1"),
         .unit = "ns"},
        {.id = "stream",
         .text = "a claim on a stream that finds nothing pending",
         .limit = 1500,
         .value = bench_median_of(x, "stream_1"),
         .unit = "ns"},
        {.id = "again",
         .text = "a claim on a stream behind one on the same stream",
         .limit = 1500,
         .value = bench_median_of(x, "again"),
         .unit = "ns"},
    };
    memcpy(out, goals, sizeof(goals));
}

/* Heddle's value divided by the driver's value, for each round. */
static int bench_ratios_of(const claim_data *d, double out[CLAIM_ROUNDS_MAX])
{
    for (int i = 0; i < d->rounds; i++) {
        out[i] = d->median_ns[HEDDLE][i] / d->median_ns[DRIVER][i];
    }
    return d->rounds;
}

/* ---- output ---- */

static void bench_print_json(const void *results, FILE *out)
{
    const claim_experiment *x = results;
    hdi_json writer, *j = &writer;
    report_goal goals[GOALS];
    bench_make_goals(x, goals);
    cli_report_begin(j, out, "claim", &x->record, x->runtime);
    cli_report_put_clock(j);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds);
    cli_report_put_integer(j, "samples", (uint64_t)x->batches * BATCH);
    hdi_json_object_end(j);
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int i = 0; i < ROWS; i++) {
        const claim_data *d = &x->rows[i];
        double ratios[CLAIM_ROUNDS_MAX];
        if (!d->rounds) {
            continue;
        }
        hdi_json_object(j);
        cli_report_put_string(j, "id", rows[i].id);
        cli_report_put_string(j, "name", rows[i].text);
        cli_report_put_integer(j, "buffers", (uint64_t)rows[i].buffers);
        for (int side = 0; side < SIDES; side++) {
            hdi_json_key(j, side_names[side]);
            hdi_json_object(j);
            cli_report_put_values(j, "median_ns", d->median_ns[side], d->rounds);
            cli_report_put_calls(j, "calls", cli_stats_summarise(&d->calls[side]));
            hdi_json_object_end(j);
        }
        cli_report_put_values(j, "ratio", ratios, bench_ratios_of(d, ratios));
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    cli_report_put_goals(j, goals, GOALS, !x->on_host);
    cli_report_end(j);
}

/* ---- conductor ---- */

static bool bench_open_heddle(claim_experiment *x, char *error)
{
    hd_lane *lane;
    x->info.size = sizeof(x->info);
    x->device.size = sizeof(x->device);
    if (!cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error) ||
        !cli_report_check(hd_device_get_info(x->runtime, 0, &x->device), "hd_device_get_info", error) ||
        !cli_report_check(hd_lane_get_default(x->runtime, 0, &lane), "hd_lane_get_default", error)) {
        return false;
    }
    x->on_host = x->device.is_host;
    for (int i = 0; i < BUFFERS; i++) {
        if (!cli_report_check(hd_alloc(lane, WORDS * 4, &x->buffers[i]), "hd_alloc", error) ||
            !cli_report_check(hd_fill(x->buffers[i], 0, 1, WORDS * 4, NULL), "hd_fill", error)) {
            return false;
        }
        x->uses[i] = hd_inout(x->buffers[i]);
    }
    return true;
}

static bool bench_open_driver(claim_experiment *x, char *error)
{
    if (!cli_plain_provider(x->on_host, NULL, &x->driver, error) ||
        !cli_plain_find_device(x->driver, x->device.uuid, &x->ordinal, error) ||
        !DRIVER_TRY(x->driver, error, cuDevicePrimaryCtxRetain, (&x->context, x->ordinal)) ||
        !DRIVER_TRY(x->driver, error, cuCtxSetCurrent, (x->context))) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (!DRIVER_TRY(x->driver, error, cuStreamCreate, (&x->streams[i], HDCU_STREAM_NON_BLOCKING)) ||
            !DRIVER_TRY(x->driver, error, cuEventCreate, (&x->events[i], HDCU_EVENT_DISABLE_TIMING)) ||
            !DRIVER_TRY(x->driver, error, cuEventRecord, (x->events[i], x->streams[i]))) {
            return false;
        }
    }
    return true;
}

static bool bench_measure_all(void *results, char *error)
{
    claim_experiment *x = results;
    if (!bench_open_heddle(x, error) || !bench_open_driver(x, error)) {
        return false;
    }
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->on_host ? ROUNDS_HOST : ROUNDS_GPU;
    x->batches = o->quick ? BATCHES_QUICK : x->on_host ? BATCHES_HOST : BATCHES_GPU;
    cli_stats_clock_start();
    for (int round = 0; round < x->rounds; round++) {
        char stage[64];
        snprintf(stage, sizeof(stage), "round %d of %d", round + 1, x->rounds);
        for (int i = 0; i < ROWS; i++) {
            if (rows[i].kind != NO_STREAM && strcmp(x->info.placement, "process") == 0) {
                continue;
            }
            cli_report_progress(&o->run, stage, rows[i].text, (double)(round * ROWS + i) / (x->rounds * ROWS));
            claim_side first = round % 2 ? HEDDLE : DRIVER;
            if (!bench_measure_side(x, i, round, first, error) ||
                !bench_measure_side(x, i, round, first == HEDDLE ? DRIVER : HEDDLE, error)) {
                return false;
            }
            x->rows[i].rounds = round + 1;
        }
    }
    return true;
}

static void bench_close_all(void *results)
{
    claim_experiment *x = results;
    if (x->context) {
        for (int i = 0; i < 2; i++) {
            if (x->events[i]) {
                x->driver->cuEventDestroy(x->events[i]);
            }
            if (x->streams[i]) {
                x->driver->cuStreamDestroy(x->streams[i]);
            }
        }
        x->driver->cuCtxSetCurrent(NULL);
        x->driver->cuDevicePrimaryCtxRelease(x->ordinal);
    }
    hd_close(x->runtime);
}

int bench_claim_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench claim", bench_measure_all, bench_close_all, bench_print_json};
    claim_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
