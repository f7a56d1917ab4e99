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
static tensor_series speed_of(const tensor_row *row, const tensor_series *ns)
{
    tensor_series out = *ns;
    for (int i = 0; i < out.n; i++) {
        out.value[i] = ns->value[i] > 0 ? (double)row->moved / ns->value[i] : NAN;
    }
    return out;
}

/* Like speed_of, for a device copy: it reads and writes as many bytes as the destination holds. */
static tensor_series copy_speed_of(const tensor_row *row)
{
    tensor_series out = row->copy;
    for (int i = 0; i < out.n; i++) {
        out.value[i] = out.value[i] > 0 ? 2 * (double)row->payload / out.value[i] : NAN;
    }
    return out;
}

static double gflops_of(const tensor_product *p, const tensor_series *ns)
{
    double edge = (double)p->edge;
    return 2 * edge * edge * edge / tensor_spread(ns).median;
}

/* ---- goals ---- */

static int make_goals(const tensor_experiment *x, report_goal out[TENSOR_ROWS_MAX], char texts[][TENSOR_TEXT])
{
    int n = 0;
    for (int i = 0; i < x->n_rows; i++) {
        const tensor_row *row = &x->rows[i];
        if (row->spec->goal > 0) {
            char shape[TENSOR_TEXT];
            tensor_shape_text(row, shape, sizeof(shape));
            tensor_series ratio = tensor_ratio(&row->copy, &row->heddle);
            snprintf(texts[n], TENSOR_TEXT, "%s %s, %.50s", row->spec->part, row->spec->name, shape);
            out[n] = (report_goal){.id = row->spec->id,
                                   .text = texts[n],
                                   .limit = row->spec->goal,
                                   .value = row->cut ? NAN : tensor_spread(&ratio).median,
                                   .at_least = true,
                                   .unit = "",
                                   .of = "share of the device copy's speed"};
            n++;
        }
    }
    return n;
}

/* ---- JSON ---- */

void tensor_put_series(hdi_json *j, const char *key, const tensor_series *s)
{
    report_put_spread_begin(j, key, tensor_spread(s));
    hdi_json_key(j, "rounds");
    hdi_json_array(j);
    for (int i = 0; i < s->n; i++) {
        hdi_json_number(j, s->value[i]);
    }
    hdi_json_array_end(j);
    hdi_json_object_end(j);
}

static void put_side(hdi_json *j, const char *key, const tensor_series *ns, const tensor_series *gbs)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    tensor_put_series(j, "ns", ns);
    report_put_spread(j, "gbs", tensor_spread(gbs));
    hdi_json_object_end(j);
}

static void put_peers(hdi_json *j, const tensor_peer *peers, const char *figure, bool has_ratio)
{
    for (int i = 0; i < TENSOR_PEERS; i++) {
        if (!isnan(peers[i].figure)) {
            hdi_json_key(j, tensor_peer_ids[i]);
            hdi_json_object(j);
            report_put_number(j, figure, peers[i].figure);
            if (has_ratio) {
                report_put_number(j, "over_its_copy", peers[i].ratio);
            }
            hdi_json_object_end(j);
        }
    }
}

static void put_numbers(hdi_json *j, const char *key, const uint64_t *values, int n)
{
    hdi_json_key(j, key);
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_integer(j, (int64_t)values[i]);
    }
    hdi_json_array_end(j);
}

static void put_row(hdi_json *j, const tensor_row *row)
{
    const tensor_spec *s = row->spec;
    tensor_series heddle = speed_of(row, &row->heddle), copy = copy_speed_of(row), plain = speed_of(row, &row->plain),
                  to_copy = tensor_ratio(&row->copy, &row->heddle), to_plain = tensor_ratio(&row->plain, &row->heddle);
    char shape[TENSOR_TEXT], text[2 * TENSOR_TEXT];
    tensor_shape_text(row, shape, sizeof(shape));
    snprintf(text, sizeof(text), "%s, %s", s->name, shape);
    uint64_t order[TENSOR_SPEC_DIMS];
    for (int i = 0; i < s->dims; i++) {
        order[i] = (uint64_t)s->order[i];
    }
    hdi_json_object(j);
    report_put_string(j, "id", s->id);
    report_put_string(j, "part", s->part);
    report_put_string(j, "name", s->name);
    report_put_string(j, "text", text);
    report_put_string(j, "note", row->cut ? "cut, for want of memory" : "");
    report_put_string(j, "type", hd_type_name(s->type));
    put_numbers(j, "source_shape", row->shape, s->dims);
    put_numbers(j, "full_source_shape", s->shape, s->dims);
    put_numbers(j, "order", order, s->dims);
    put_numbers(j, "shape", row->view, s->dims);
    report_put_bool(j, "cut", row->cut);
    report_put_integer(j, "bytes", row->moved);
    report_put_integer(j, "copy_bytes", 2 * row->payload);
    report_put_integer(j, "pairs", (uint64_t)row->pairs);
    put_side(j, "heddle", &row->heddle, &heddle);
    put_side(j, "device_copy", &row->copy, &copy);
    put_side(j, "plain_kernel", &row->plain, &plain);
    tensor_put_series(j, "heddle_over_device_copy", &to_copy);
    tensor_put_series(j, "heddle_over_plain_kernel", &to_plain);
    put_peers(j, row->peers, "gbs", true);
    hdi_json_object_end(j);
}

static void put_product_side(hdi_json *j, const tensor_product *p, const char *key, const tensor_series *ns)
{
    if (ns->n) {
        hdi_json_key(j, key);
        hdi_json_object(j);
        tensor_put_series(j, "ns", ns);
        report_put_number(j, "gflops", gflops_of(p, ns));
        hdi_json_object_end(j);
    }
}

static void put_product(hdi_json *j, const tensor_product *p)
{
    tensor_series to_library = tensor_ratio(&p->library, &p->heddle),
                  to_builtin = tensor_ratio(&p->builtin, &p->heddle);
    char text[2 * TENSOR_TEXT];
    snprintf(text, sizeof(text), "%s, %llu x %llu%s, by %s", hd_type_name(p->type), (unsigned long long)p->edge,
             (unsigned long long)p->edge, p->edge < p->cut_from ? " (cut)" : "", p->heddle_library);
    hdi_json_object(j);
    report_put_string(j, "id", p->id);
    report_put_string(j, "text", text);
    report_put_string(j, "type", hd_type_name(p->type));
    report_put_integer(j, "edge", p->edge);
    report_put_string(j, "heddle_library", p->heddle_library);
    report_put_string(j, "direct_library", p->direct);
    report_put_string(j, "note", p->note);
    put_product_side(j, p, "heddle", &p->heddle);
    put_product_side(j, p, "cublas", &p->library);
    put_product_side(j, p, "builtin", &p->builtin);
    if (to_library.n) {
        tensor_put_series(j, "heddle_over_cublas", &to_library);
    }
    tensor_put_series(j, "heddle_over_builtin", &to_builtin);
    put_peers(j, p->peers, "gflops", false);
    hdi_json_object_end(j);
}

static void put_peer_notes(hdi_json *j, const tensor_experiment *x)
{
    hdi_json_key(j, "peers");
    hdi_json_object(j);
    for (int i = 0; i < TENSOR_PEERS; i++) {
        hdi_json_key(j, tensor_peer_ids[i]);
        hdi_json_object(j);
        report_put_string(j, "name", tensor_peer_names[i]);
        report_put_string(j, "version", x->peer_versions[i]);
        report_put_string(j, "note", x->peer_notes[i]);
        hdi_json_object_end(j);
    }
    hdi_json_object_end(j);
}

void tensor_print_json(const void *experiment, FILE *out)
{
    const tensor_experiment *x = experiment;
    hdi_json writer, *j = &writer;
    report_goal goals[TENSOR_ROWS_MAX];
    char texts[TENSOR_ROWS_MAX][TENSOR_TEXT];
    int n_goals = make_goals(x, goals, texts);
    report_begin(j, out, "tensor", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    report_put_integer(j, "rounds", (uint64_t)x->rounds);
    report_put_number(j, "sample_ms", x->sample_ns * 1e-6);
    report_put_integer(j, "room_bytes", x->room);
    report_put_clock(j);
    hdi_json_object_end(j);
    if (x->on_host) {
        report_put_string(j, "note",
                          x->options->quick
                              ? "sizes are cut to a thousandth of the elements; copies and kernels run on the CPU"
                              : "sizes are cut to a 256th of the elements; copies and kernels run on the CPU");
    }
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int i = 0; i < x->n_rows; i++) {
        put_row(j, &x->rows[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "products");
    hdi_json_array(j);
    for (int i = 0; i < x->n_products; i++) {
        put_product(j, &x->products[i]);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "calls");
    hdi_json_array(j);
    for (int i = 0; i < x->n_calls; i++) {
        hdi_json_object(j);
        report_put_string(j, "id", x->calls[i].id);
        report_put_string(j, "name", x->calls[i].name);
        report_put_calls(j, "call", x->calls[i].calls);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    put_peer_notes(j, x);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    report_put_integer(j, "copies", x->checked);
    hdi_json_object_end(j);
    report_put_goals(j, goals, n_goals, !x->on_host);
    report_end(j);
}
