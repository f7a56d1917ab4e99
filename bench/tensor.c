/* tensor.c - the conductor of `heddle bench tensor`: opens the device, runs the rows one after
 * another.
 *
 * Threads: all work is on the calling thread. Locks: none.
 * Always: every side of a row is checked before it is measured, and Heddle's side again afterwards.
 * The sides of a row take turns in rounds, in rotating order. A row's memory is freed before the
 * next one.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/tensor_parts.h"

enum { ROOM_LEAST_MIB = 64 };

const char tensor_help[] =
    "Moves tensors between layouts with hd_tensor_copy, in turns with the driver's own device copy of as many bytes "
    "(the\n"
    "roofline: cuMemcpyDtoDAsync) and with a plain kernel, one thread for each element. Many copies go one behind the\n"
    "other and are waited for at the end; all sides take turns with as many buffers of the same sizes, so that none "
    "finds\n"
    "more in the caches than the others. Every element of every side is compared.\n"
    "\n"
    "Parts (--only):\n"
    "  transpose  matrices of f32, f16, f64, u8 and c128; sizes that no tile divides, starts that are not aligned\n"
    "  permute    tensors of 3 to 5 dimensions\n"
    "  slice      every other column or row, a box, columns backwards\n"
    "  broadcast  a row, a column\n"
    "  matmul     products of 4096 x 4096 matrices of f32, f16 and f64 by hd_tensor_matmul, in turns with cuBLAS "
    "called\n"
    "             directly and with the built-in kernel\n"
    "  submit     what hd_tensor_copy and hd_tensor_matmul cost the thread that calls them, beside a launch and a copy "
    "of\n"
    "             the driver\n"
    "  peers      the same rows by PyTorch and CuPy, where python3 has them and this is a GPU (bench/peers)\n"
    "\n"
    "Columns:\n"
    "  GB/s              1e9 bytes a second, read (each byte once) and written; median of the rounds\n"
    "  over device copy  of the device copy's speed in the same round: its time for as many bytes as the destination "
    "has,\n"
    "                    over this time; median of the rounds\n"
    "  over plain kernel of the plain kernel's speed, likewise\n"
    "  over its copy     for PyTorch and CuPy: of the device copies that their scripts measured beside them\n"
    "\n"
    "An element that is wrong ends the run with exit status 1. Whether goals are reached does not change the exit "
    "status.\n";

const char *const tensor_peer_ids[TENSOR_PEERS] = {"torch", "cupy"};
const char *const tensor_peer_names[TENSOR_PEERS] = {"PyTorch", "CuPy"};

/* ---- parts ---- */

const char tensor_parts[] = "transpose,permute,slice,broadcast,matmul,submit,peers";

bool bench_tensor_is_wanted(const tensor_experiment *x, const char *part)
{
    return cli_report_is_wanted(x->options->only, part);
}

void bench_tensor_step(tensor_experiment *x, const char *stage, const char *item)
{
    cli_report_progress(&x->options->run, stage, item, x->steps ? (double)x->steps_done / x->steps : 0);
    x->steps_done++;
}

/* ---- series ---- */

stats_spread bench_tensor_spread(const tensor_series *s)
{
    return s->n ? cli_stats_spread_of(s->value, s->n) : (stats_spread){NAN, NAN, NAN};
}

tensor_series bench_tensor_ratio(const tensor_series *a, const tensor_series *b)
{
    tensor_series out = {.n = a->n < b->n ? a->n : b->n};
    for (int i = 0; i < out.n; i++) {
        out.value[i] = b->value[i] > 0 ? a->value[i] / b->value[i] : NAN;
    }
    return out;
}

/* ---- open ---- */

static bool bench_open_device(tensor_experiment *x, char *error)
{
    int device = cli_plain_device_number(x->options->device);
    snprintf(x->settings, sizeof(x->settings), "devices=%d", device);
    hd_options options = {.size = sizeof(options), .settings = x->settings};
    hd_memory_stats stats = {.size = sizeof(stats)};
    x->info.size = sizeof(x->info);
    x->device.size = sizeof(x->device);
    if (!cli_report_check(hd_open(&options, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error) ||
        !cli_report_check(hd_device_get_info(x->runtime, 0, &x->device), "hd_device_get_info", error) ||
        !cli_report_check(hd_memory_get_stats(x->runtime, 0, &stats), "hd_memory_get_stats", error)) {
        return false;
    }
    x->on_host = strcmp(x->info.driver, "host") == 0;
    uint64_t most = stats.limit_bytes < x->device.memory_free_bytes ? stats.limit_bytes : x->device.memory_free_bytes;
    x->room = most / 10 * 9;
    if (most < ROOM_LEAST_MIB * TENSOR_MIB) {
        snprintf(error, PLAIN_ERROR, "the device has %llu MiB of memory to use; at least %d are needed",
                 (unsigned long long)(most / TENSOR_MIB), ROOM_LEAST_MIB);
        return false;
    }
    return true;
}

/* ---- rows ---- */

static bool bench_check_copy(tensor_memory *m, tensor_side side, int pair, char *error)
{
    uint64_t wrong;
    if (!bench_tensor_verify(m, side, NULL, pair, &wrong, error)) {
        return false;
    }
    if (wrong) {
        snprintf(error, PLAIN_ERROR, "%s: %llu of %llu elements are not right",
                 side == TENSOR_HEDDLE ? "hd_tensor_copy" : "the plain kernel", (unsigned long long)wrong,
                 (unsigned long long)m->row->elements);
    }
    return wrong == 0;
}

/* Checks and warms up the sides of one row, then measures them in rounds. */
static bool bench_measure_row(tensor_experiment *x, tensor_row *row, tensor_memory *m, char *error)
{
    tensor_series *series[TENSOR_SIDES] = {&row->heddle, &row->copy, &row->plain};
    int reps[TENSOR_SIDES];
    for (int side = 0; side < TENSOR_SIDES; side++) {
        if (!bench_check_copy(m, (tensor_side)side, 0, error) ||
            !bench_tensor_repetitions(m, (tensor_side)side, x->sample_ns, &reps[side], error)) {
            return false;
        }
    }
    for (int round = 0; round < x->rounds; round++) {
        for (int i = 0; i < TENSOR_SIDES; i++) {
            int side = (i + round) % TENSOR_SIDES;
            double ns;
            if (!bench_tensor_sample(m, (tensor_side)side, NULL, reps[side], &ns, error)) {
                return false;
            }
            series[side]->value[series[side]->n++] = ns / reps[side];
        }
    }
    for (int k = 0; k < row->pairs; k++) {
        if (!bench_check_copy(m, TENSOR_HEDDLE, k, error)) {
            return false;
        }
    }
    row->measured = true;
    return true;
}

static bool bench_run_row(tensor_experiment *x, tensor_row *row, char *error)
{
    tensor_memory m;
    char shape[TENSOR_TEXT], item[2 * TENSOR_TEXT], why[PLAIN_ERROR] = "";
    bench_tensor_shape_text(row, shape, sizeof(shape));
    snprintf(item, sizeof(item), "%s, %s", row->spec->name, shape);
    bench_tensor_step(x, row->spec->part, item);
    bool ok = bench_tensor_memory_take(x, row, &m, why) && bench_measure_row(x, row, &m, why);
    bench_tensor_memory_give(&m);
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", row->spec->id, why);
    }
    return ok;
}

static bool bench_run_rows(tensor_experiment *x, char *error)
{
    bool ok = true;
    for (int i = 0; i < x->n_rows && ok; i++) {
        ok = bench_run_row(x, &x->rows[i], error);
    }
    return ok;
}

/* ---- run ---- */

static bool bench_measure(void *experiment, char *error)
{
    tensor_experiment *x = experiment;
    const bench_options *o = x->options;
    cli_stats_clock_start();
    cli_report_progress(&o->run, "opening the device", "", 0);
    if (!bench_open_device(x, error) || !bench_tensor_sides_open(x, error)) {
        return false;
    }
    x->rounds = o->rounds ? o->rounds : x->on_host ? (o->quick ? 2 : 3) : o->quick ? 3 : 7;
    x->sample_ns = x->on_host ? (o->quick ? 2e6 : 10e6) : o->quick ? 8e6 : 40e6;
    if (o->variants) {
        return bench_tensor_run_variants(x, error);
    }
    bench_tensor_plan_rows(x);
    x->steps = x->n_rows + bench_tensor_product_steps(x) + bench_tensor_is_wanted(x, "submit") +
               bench_tensor_is_wanted(x, "peers");
    if (!bench_run_rows(x, error) || (bench_tensor_is_wanted(x, "matmul") && !bench_tensor_run_products(x, error)) ||
        (bench_tensor_is_wanted(x, "submit") && !bench_tensor_run_calls(x, error))) {
        return false;
    }
    if (bench_tensor_is_wanted(x, "peers")) {
        bench_tensor_run_peers(x);
    }
    return true;
}

static void bench_close_all(void *experiment)
{
    tensor_experiment *x = experiment;
    bench_tensor_sides_close(x);
    bench_tensor_variants_release(x);
    hd_close(x->runtime);
}

int bench_tensor_run(const bench_options *options)
{
    const report_benchmark benchmark = {"bench tensor", bench_measure, bench_close_all,
                                        options->variants ? bench_tensor_print_variants_json : bench_tensor_print_json};
    tensor_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
