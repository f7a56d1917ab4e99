/* tensor_report.c - the results of `heddle bench tensor`: a table for people, JSON for records, and
 * goals.
 *
 * Threads: the conductor, after all measurements. Locks: none.
 * Always: everything is computed from the finished experiment; nothing here measures. A missing
 * figure is NaN.
 */
#include <math.h>
#include <string.h>
#include "cli/common/machine.h"
#include "bench/tensor_parts.h"

enum { TEXT = REPORT_TEXT };

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

/* For a device copy: it reads and writes as many bytes as the destination holds. */
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

static const char *number(double value, const char *format, char out[TEXT])
{
    snprintf(out, TEXT, isnan(value) ? "-" : format, value);
    return out;
}

static const char *speed(double gbs, char out[TEXT])
{
    return number(gbs, gbs < 99.95 ? "%.1f" : "%.0f", out);
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
                                   .unit = ""};
            n++;
        }
    }
    return n;
}

/* ---- table ---- */

static void print_head(const tensor_experiment *x, FILE *out)
{
    char version[24];
    machine_driver_version_text(x->info.driver_version, version);
    fprintf(out, "tensor: %s, driver %s %s, placement %s; %d rounds of %.0f ms a side\n", x->device.name,
            x->info.driver, version, x->info.placement, x->rounds, x->sample_ns * 1e-6);
    if (x->on_host) {
        fprintf(out, "host devices: sizes are cut (%s), copies and kernels run on the CPU, goals are for GPUs\n",
                x->options->quick ? "to a thousandth of the elements" : "to a 256th of the elements");
    }
    for (int i = 0; i < TENSOR_PEERS; i++) {
        if (x->peer_versions[i][0]) {
            fprintf(out, "%s %s\n", tensor_peer_names[i], x->peer_versions[i]);
        }
    }
}

static void print_row(const tensor_row *row, FILE *out)
{
    char shape[TENSOR_TEXT], name[3 * TENSOR_TEXT], text[9][TEXT];
    tensor_series heddle = speed_of(row, &row->heddle), copy = copy_speed_of(row), plain = speed_of(row, &row->plain),
                  to_copy = tensor_ratio(&row->copy, &row->heddle), to_plain = tensor_ratio(&row->plain, &row->heddle);
    tensor_shape_text(row, shape, sizeof(shape));
    snprintf(name, sizeof(name), "%s, %s%s", row->spec->name, shape, row->cut ? " (cut, for want of memory)" : "");
    fprintf(out, "  %-50s %7s %7s %6s %7s %7s %7s %6s %7s %6s\n", name, speed(tensor_spread(&heddle).median, text[0]),
            speed(tensor_spread(&copy).median, text[1]), number(tensor_spread(&to_copy).median, "%.3f", text[2]),
            speed(tensor_spread(&plain).median, text[3]), number(tensor_spread(&to_plain).median, "%.2f", text[4]),
            speed(row->peers[TENSOR_TORCH].figure, text[5]), number(row->peers[TENSOR_TORCH].ratio, "%.3f", text[6]),
            speed(row->peers[TENSOR_CUPY].figure, text[7]), number(row->peers[TENSOR_CUPY].ratio, "%.3f", text[8]));
}

static void print_rows(const tensor_experiment *x, FILE *out)
{
    static const struct {
        const char *part, *title;
    } titles[] = {{"transpose", "transposes"},
                  {"permute", "permutes"},
                  {"slice", "slices, to dense tensors"},
                  {"broadcast", "broadcasts"}};
    const char *part = "";
    if (x->n_rows == 0) {
        return;
    }
    fprintf(out, "\n%-52s %7s %7s %6s %7s %7s %7s %6s %7s %6s\n", "", "Heddle", "device", "", "plain", "", "PyTorch",
            "", "CuPy", "");
    fprintf(out, "%-52s %7s %7s %6s %7s %7s %7s %6s %7s %6s\n", "GB/s, read and written", "", "copy", "/copy", "kernel",
            "/plain", "", "/copy", "", "/copy");
    for (int i = 0; i < x->n_rows; i++) {
        const tensor_row *row = &x->rows[i];
        for (size_t t = 0; t < sizeof(titles) / sizeof(titles[0]); t++) {
            if (strcmp(part, row->spec->part) != 0 && strcmp(titles[t].part, row->spec->part) == 0) {
                fprintf(out, "%s\n", titles[t].title);
            }
        }
        part = row->spec->part;
        print_row(row, out);
    }
}

static void print_products(const tensor_experiment *x, FILE *out)
{
    if (x->n_products == 0) {
        return;
    }
    fprintf(out, "\n%-52s %9s %9s %9s %9s %9s %9s %9s\n", "products of square matrices, GFLOP/s", "Heddle", "cuBLAS",
            "/cuBLAS", "built-in", "/built-in", "PyTorch", "CuPy");
    for (int i = 0; i < x->n_products; i++) {
        const tensor_product *p = &x->products[i];
        char name[2 * TENSOR_TEXT], text[7][TEXT];
        tensor_series to_library = tensor_ratio(&p->library, &p->heddle),
                      to_builtin = tensor_ratio(&p->builtin, &p->heddle);
        snprintf(name, sizeof(name), "%s, %llu x %llu%s, by %s", hd_type_name(p->type), (unsigned long long)p->edge,
                 (unsigned long long)p->edge, p->edge < p->cut_from ? " (cut)" : "", p->heddle_library);
        fprintf(out, "  %-50s %9s %9s %9s %9s %9s %9s %9s\n", name, speed(gflops_of(p, &p->heddle), text[0]),
                speed(gflops_of(p, &p->library), text[1]), number(tensor_spread(&to_library).median, "%.3f", text[2]),
                speed(gflops_of(p, &p->builtin), text[3]), number(tensor_spread(&to_builtin).median, "%.2f", text[4]),
                speed(p->peers[TENSOR_TORCH].figure, text[5]), speed(p->peers[TENSOR_CUPY].figure, text[6]));
    }
    if (x->products[0].note[0]) {
        fprintf(out, "    %s\n", x->products[0].note);
    }
}

static void print_calls(const tensor_experiment *x, FILE *out)
{
    if (x->n_calls == 0) {
        return;
    }
    fprintf(out, "\n%-52s %9s %9s %9s\n", "what a call costs the thread that makes it", "median", "p99", "max");
    for (int i = 0; i < x->n_calls; i++) {
        char text[3][TEXT];
        const stats_calls *c = &x->calls[i].calls;
        fprintf(out, "  %-50s %9s %9s %9s\n", x->calls[i].name, report_duration(c->median_ns, text[0]),
                report_duration(c->p99_ns, text[1]), report_duration(c->max_ns, text[2]));
    }
}

void tensor_print_table(const void *experiment, FILE *out)
{
    const tensor_experiment *x = experiment;
    report_goal goals[TENSOR_ROWS_MAX];
    char texts[TENSOR_ROWS_MAX][TENSOR_TEXT];
    int n_goals = make_goals(x, goals, texts);
    print_head(x, out);
    print_rows(x, out);
    print_products(x, out);
    print_calls(x, out);
    for (int i = 0; i < TENSOR_PEERS; i++) {
        if (x->peer_notes[i][0]) {
            fprintf(out, "%s%s: %s\n", i ? "" : "\n", tensor_peer_names[i], x->peer_notes[i]);
        }
    }
    if (n_goals) {
        fprintf(out, "\n");
        report_print_goals(goals, n_goals, ": share of the device copy's speed", !x->on_host, out);
    }
    fprintf(out, "\nverified: %llu copies and products, every element. Took %.0f s.\n", (unsigned long long)x->checked,
            x->record.took_s);
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
    uint64_t order[TENSOR_SPEC_DIMS];
    for (int i = 0; i < s->dims; i++) {
        order[i] = (uint64_t)s->order[i];
    }
    hdi_json_object(j);
    report_put_string(j, "id", s->id);
    report_put_string(j, "part", s->part);
    report_put_string(j, "name", s->name);
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
    hdi_json_object(j);
    report_put_string(j, "id", p->id);
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
