/* tensor_report.c - the results of `heddle bench tensor` as JSON, and goals.
 *
 * Threads: the conductor, after all measurements. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures. A missing
 * figure is NaN.
 */
#include <math.h>
#include <string.h>
#include "bench/tensor_parts.h"

/* ---- figures ---- */

/* GB/s in each round. */
static tensor_series bench_speed_of(const tensor_row *row, const tensor_series *ns)
{
    tensor_series out = *ns;
    for (int i = 0; i < out.n; i++) {
        out.value[i] = ns->value[i] > 0 ? (double)row->moved / ns->value[i] : NAN;
    }
    return out;
}

/* Like bench_speed_of, for a device copy: it reads and writes as many bytes as the destination
 * holds. */
static tensor_series bench_copy_speed_of(const tensor_row *row)
{
    tensor_series out = row->copy;
    for (int i = 0; i < out.n; i++) {
        out.value[i] = out.value[i] > 0 ? 2 * (double)row->payload / out.value[i] : NAN;
    }
    return out;
}

static double bench_gflops_of(const tensor_product *p, const tensor_series *ns)
{
    double edge = (double)p->edge;
    return 2 * edge * edge * edge / bench_tensor_spread(ns).median;
}

/* ---- goals ---- */

static int bench_make_goals(const tensor_experiment *x, report_goal out[TENSOR_ROWS_MAX], char texts[][TENSOR_TEXT])
{
    int n = 0;
    for (int i = 0; i < x->n_rows; i++) {
        const tensor_row *row = &x->rows[i];
        if (row->spec->goal > 0) {
            char shape[TENSOR_TEXT];
            bench_tensor_shape_text(row, shape, sizeof(shape));
            tensor_series ratio = bench_tensor_ratio(&row->copy, &row->heddle);
            snprintf(texts[n], TENSOR_TEXT, "%s %s, %.50s", row->spec->part, row->spec->name, shape);
            out[n] = (report_goal){.id = row->spec->id,
                                   .text = texts[n],
                                   .limit = row->spec->goal,
                                   .value = row->cut ? NAN : bench_tensor_spread(&ratio).median,
                                   .at_least = true,
                                   .unit = "",
                                   .of = "share of the device copy's speed"};
            n++;
        }
    }
    return n;
}

/* ---- JSON ---- */

void bench_tensor_put_series(hdi_json *j, const char *key, const tensor_series *s)
{
    cli_report_put_spread_begin(j, key, bench_tensor_spread(s));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < s->n; i++) {
        hdi_json_number(j, s->value[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void bench_put_side(hdi_json *j, const char *key, const tensor_series *ns, const tensor_series *gbs)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    bench_tensor_put_series(j, "ns", ns);
    cli_report_put_spread(j, "gbs", bench_tensor_spread(gbs));
    hdi_json_object_end(j);
}

static void bench_put_peers(hdi_json *j, const tensor_peer *peers, const char *figure, bool has_ratio)
{
    for (int i = 0; i < TENSOR_PEERS; i++) {
        if (!isnan(peers[i].figure)) {
            hdi_json_key(j, tensor_peer_ids[i]);
            hdi_json_object(j);
            cli_report_put_number(j, figure, peers[i].figure);
            if (has_ratio) {
                cli_report_put_number(j, "over_its_copy", peers[i].ratio);
            }
            hdi_json_object_end(j);
        }
    }
}

static void bench_put_numbers(hdi_json *j, const char *key, const uint64_t *values, int n)
{
    hdi_json_key(j, key);
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_integer(j, (int64_t)values[i]);
    }
    hdi_json_array_end(j);
}

static void bench_put_row(hdi_json *j, const tensor_row *row)
{
    const tensor_spec *s = row->spec;
    tensor_series heddle = bench_speed_of(row, &row->heddle), copy = bench_copy_speed_of(row),
                  plain = bench_speed_of(row, &row->plain), to_copy = bench_tensor_ratio(&row->copy, &row->heddle),
                  to_plain = bench_tensor_ratio(&row->plain, &row->heddle);
    char shape[TENSOR_TEXT], text[2 * TENSOR_TEXT];
    bench_tensor_shape_text(row, shape, sizeof(shape));
    snprintf(text, sizeof(text), "%s, %s", s->name, shape);
    uint64_t order[TENSOR_SPEC_DIMS];
    for (int i = 0; i < s->dims; i++) {
        order[i] = (uint64_t)s->order[i];
    }
    hdi_json_object(j);
    cli_report_put_string(j, "id", s->id);
    cli_report_put_string(j, "part", s->part);
    cli_report_put_string(j, "name", s->name);
    cli_report_put_string(j, "text", text);
    cli_report_put_string(j, "note", row->cut ? "cut, for want of memory" : "");
    cli_report_put_string(j, "type", hd_type_name(s->type));
    bench_put_numbers(j, "source_shape", row->shape, s->dims);
    bench_put_numbers(j, "full_source_shape", s->shape, s->dims);
    bench_put_numbers(j, "order", order, s->dims);
    bench_put_numbers(j, "shape", row->view, s->dims);
    cli_report_put_bool(j, "cut", row->cut);
    cli_report_put_integer(j, "bytes", row->moved);
    cli_report_put_integer(j, "copy_bytes", 2 * row->payload);
    cli_report_put_integer(j, "pairs", (uint64_t)row->pairs);
    bench_put_side(j, "heddle", &row->heddle, &heddle);
    bench_put_side(j, "device_copy", &row->copy, &copy);
    bench_put_side(j, "plain_kernel", &row->plain, &plain);
    bench_tensor_put_series(j, "heddle_over_device_copy", &to_copy);
    bench_tensor_put_series(j, "heddle_over_plain_kernel", &to_plain);
    bench_put_peers(j, row->peers, "gbs", true);
    hdi_json_object_end(j);
}

static void bench_put_product_side(hdi_json *j, const tensor_product *p, const char *key, const tensor_series *ns)
{
    if (ns->n) {
        hdi_json_key(j, key);
        hdi_json_object(j);
        bench_tensor_put_series(j, "ns", ns);
        cli_report_put_number(j, "gflops", bench_gflops_of(p, ns));
        hdi_json_object_end(j);
    }
}

static void bench_put_product(hdi_json *j, const tensor_product *p)
{
    tensor_series to_library = bench_tensor_ratio(&p->library, &p->heddle),
                  to_builtin = bench_tensor_ratio(&p->builtin, &p->heddle);
    char text[2 * TENSOR_TEXT];
    snprintf(text, sizeof(text), "%s, %llu x %llu%s, by %s", hd_type_name(p->type), (unsigned long long)p->edge,
             (unsigned long long)p->edge, p->edge < p->cut_from ? " (cut)" : "", p->heddle_library);
    hdi_json_object(j);
    cli_report_put_string(j, "id", p->id);
    cli_report_put_string(j, "text", text);
    cli_report_put_string(j, "type", hd_type_name(p->type));
    cli_report_put_integer(j, "edge", p->edge);
    cli_report_put_string(j, "heddle_library", p->heddle_library);
    cli_report_put_string(j, "direct_library", p->direct);
    cli_report_put_string(j, "note", p->note);
    bench_put_product_side(j, p, "heddle", &p->heddle);
    bench_put_product_side(j, p, "cublas", &p->library);
    bench_put_product_side(j, p, "builtin", &p->builtin);
    if (to_library.n) {
        bench_tensor_put_series(j, "heddle_over_cublas", &to_library);
    }
    bench_tensor_put_series(j, "heddle_over_builtin", &to_builtin);
    bench_put_peers(j, p->peers, "gflops", false);
    hdi_json_object_end(j);
}

static void bench_put_peer_notes(hdi_json *j, const tensor_experiment *x)
{
    hdi_json_key(j, "peers");
    hdi_json_object(j);
    for (int i = 0; i < TENSOR_PEERS; i++) {
        hdi_json_key(j, tensor_peer_ids[i]);
        hdi_json_object(j);
        cli_report_put_string(j, "name", tensor_peer_names[i]);
        cli_report_put_string(j, "version", x->peer_versions[i]);
        cli_report_put_string(j, "note", x->peer_notes[i]);
        hdi_json_object_end(j);
    }
    hdi_json_object_end(j);
}

void bench_tensor_print_json(const void *experiment, FILE *out)
{
    const tensor_experiment *x = experiment;
    hdi_json writer, *j = &writer;
    report_goal goals[TENSOR_ROWS_MAX];
    char texts[TENSOR_ROWS_MAX][TENSOR_TEXT];
    int n_goals = bench_make_goals(x, goals, texts);
    cli_report_begin(j, out, "tensor", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    cli_report_put_integer(j, "rounds", (uint64_t)x->rounds);
    cli_report_put_number(j, "sample_ms", x->sample_ns * 1e-6);
    cli_report_put_integer(j, "room_bytes", x->room);
    cli_report_put_clock(j);
    hdi_json_object_end(j);
    if (x->on_host) {
        cli_report_put_string(j, "note",
                              x->options->quick
                                  ? "sizes are cut to a thousandth of the elements; copies and kernels run on the CPU"
                                  : "sizes are cut to a 256th of the elements; copies and kernels run on the CPU");
    }
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int i = 0; i < x->n_rows; i++) {
        bench_put_row(j, &x->rows[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "products");
    hdi_json_array(j);
    for (int i = 0; i < x->n_products; i++) {
        bench_put_product(j, &x->products[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "calls");
    hdi_json_array(j);
    for (int i = 0; i < x->n_calls; i++) {
        hdi_json_object(j);
        cli_report_put_string(j, "id", x->calls[i].id);
        cli_report_put_string(j, "name", x->calls[i].name);
        cli_report_put_calls(j, "call", x->calls[i].calls);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    bench_put_peer_notes(j, x);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    cli_report_put_integer(j, "copies", x->checked);
    hdi_json_object_end(j);
    cli_report_put_goals(j, goals, n_goals, !x->on_host);
    cli_report_end(j);
}
