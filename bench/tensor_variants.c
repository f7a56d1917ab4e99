/* tensor_variants.c - `heddle bench tensor --variants`: every kernel that can move a layout, in
 * several orders of tiles, beside the device copy.
 *
 * Threads: the conductor. Locks: none. The planner's choices (src/tensor/plan.h) come from one
 * short run of this benchmark on a device. A cell is one kernel with one order of tiles. Each cell
 * gets little time, and all cells of a layout use the same buffers.
 * Always: a cell's copy is checked before it is timed. A wrong one makes the run fail at its end.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/tensor_parts.h"
#include "tensor/plan.h"

enum { CELLS_MAX = 4096, SAMPLES = 3, COPY_EVERY = 8, COPIES_MAX = 512 };

typedef struct cell {
    int row;
    const char *kernel;
    uint32_t group;
    double gbs; /* NaN: wrong */
    uint64_t wrong;
} cell;

struct tensor_variants {
    cell cells[CELLS_MAX];
    int n;
    double copy_gbs[TENSOR_ROWS_MAX]; /* NaN: row not measured */
    uint64_t wrong;                   /* cells */
};
typedef struct tensor_variants variants;

/* Tiles in a strip; 0: chosen by the planner. */
static const uint32_t groups[] = {0, 8};
/* For unit kernels: bytes of neighbouring rows that are moved before others. 1: one row after
 * another; 0: chosen by the planner. */
static const uint32_t together[] = {0, 1, 1024, 4096, 8192, 16384};
enum {
    GROUPS = sizeof(groups) / sizeof(groups[0]),
    QUICK_GROUPS = 1,
    TOGETHER = sizeof(together) / sizeof(together[0])
};

void bench_tensor_variants_release(tensor_experiment *x)
{
    free(x->variants);
    x->variants = NULL;
}

/* ---- measuring ---- */

typedef struct run {
    tensor_experiment *x;
    tensor_memory m;
    int row, reps;
    double copies[COPIES_MAX];
    int n_copies;
} run;

static double bench_gbs_of(const tensor_row *row, double ns)
{
    return (double)row->moved / ns;
}

static bool bench_sample_copy(run *r, char *error)
{
    double ns;
    if (!bench_tensor_sample(&r->m, TENSOR_COPY, NULL, r->reps, &ns, error)) {
        return false;
    }
    if (r->n_copies < COPIES_MAX) {
        r->copies[r->n_copies++] = ns / r->reps;
    }
    return true;
}

static bool bench_run_cell(run *r, const char *kernel, uint32_t group, char *error)
{
    variants *v = r->x->variants;
    hdi_plan_wish wish = {.kernel = kernel, .group = group};
    tensor_memory *m = &r->m;
    if (v->n == CELLS_MAX) {
        return true;
    }
    hd_status status = hdi_tensor_copy_as(&m->to[0], &m->from[0], &wish, &m->ticket[0]);
    if (status == HD_ERROR_UNSUPPORTED) {
        return true;
    }
    cell *c = &v->cells[v->n++];
    *c = (cell){.row = r->row, .kernel = kernel, .group = group, .gbs = NAN};
    if (!cli_report_check(status, "hdi_tensor_copy_as", error) ||
        !bench_tensor_verify(m, TENSOR_HEDDLE, &wish, 0, &c->wrong, error)) {
        return false;
    }
    if (c->wrong) {
        v->wrong++;
        return true;
    }
    double ns[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        if (!bench_tensor_sample(m, TENSOR_HEDDLE, &wish, r->reps, &ns[i], error)) {
            return false;
        }
    }
    c->gbs = bench_gbs_of(m->row, cli_stats_spread_of(ns, SAMPLES).median / r->reps);
    return v->n % COPY_EVERY != 0 || bench_sample_copy(r, error);
}

static bool bench_run_row(tensor_experiment *x, int index, char *error)
{
    run r = {.x = x, .row = index};
    const tensor_row *row = &x->rows[index];
    uint32_t element = (uint32_t)hd_type_size(row->spec->type);
    char shape[TENSOR_TEXT], item[2 * TENSOR_TEXT], why[PLAIN_ERROR] = "";
    int n_groups = x->options->quick ? QUICK_GROUPS : GROUPS;
    bench_tensor_shape_text(row, shape, sizeof(shape));
    snprintf(item, sizeof(item), "%s, %s", row->spec->name, shape);
    bench_tensor_step(x, row->spec->part, item);
    bool ok = bench_tensor_memory_take(x, row, &r.m, why) &&
              bench_tensor_repetitions(&r.m, TENSOR_COPY, x->sample_ns / 4, &r.reps, why);
    r.reps = r.reps > 2 ? r.reps : 2;
    ok = ok && bench_sample_copy(&r, why) && bench_sample_copy(&r, why) && bench_run_cell(&r, NULL, 0, why);
    bool by_rows = strcmp(row->spec->part, "permute") == 0 && !x->options->quick;
    for (int g = 0; ok && g < (by_rows ? TOGETHER : 1); g++) {
        ok = bench_run_cell(&r, "units", together[g], why);
    }
    const hdi_tile_kind *kind;
    for (int k = 0; ok && (kind = hdi_tile_kind_at(k)); k++) {
        for (int g = 0; g < n_groups && ok && kind->element == element; g++) {
            ok = bench_run_cell(&r, kind->name, groups[g], why);
        }
    }
    ok = ok && bench_sample_copy(&r, why);
    x->variants->copy_gbs[index] = ok ? bench_gbs_of(row, cli_stats_spread_of(r.copies, r.n_copies).median) : NAN;
    bench_tensor_memory_give(&r.m);
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", row->spec->id, why);
    }
    return ok;
}

/* The faster cell first. */
static int bench_faster(const void *a, const void *b)
{
    double x = ((const cell *)a)->gbs, y = ((const cell *)b)->gbs;
    return (x < y) - (x > y);
}

/* False if a cell is wrong; the message names the first one. */
static bool bench_check_cells(const tensor_experiment *x, char *error)
{
    const variants *v = x->variants;
    for (int i = 0; i < v->n; i++) {
        const cell *c = &v->cells[i];
        if (c->wrong) {
            snprintf(error, PLAIN_ERROR,
                     "%llu cells have elements that are not right, the first one those of kernel '%s', strip %u, %s",
                     (unsigned long long)v->wrong, c->kernel ? c->kernel : "planner", c->group,
                     x->rows[c->row].spec->id);
            return false;
        }
    }
    return true;
}

bool bench_tensor_run_variants(tensor_experiment *x, char *error)
{
    x->variants = calloc(1, sizeof(*x->variants));
    if (!x->variants) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (int i = 0; bench_tensor_spec_at(i) && x->n_rows < TENSOR_ROWS_MAX; i++) {
        const tensor_spec *s = bench_tensor_spec_at(i);
        bool has_kernels = strcmp(s->part, "transpose") == 0 || strcmp(s->part, "permute") == 0;
        if (has_kernels && bench_tensor_is_wanted(x, s->part) && (s->always || !x->options->quick)) {
            bench_tensor_plan_row(x, s, &x->rows[x->n_rows++]);
        }
    }
    x->steps = x->n_rows;
    bool ok = true;
    for (int i = 0; i < x->n_rows && ok; i++) {
        ok = bench_run_row(x, i, error);
    }
    qsort(x->variants->cells, (size_t)x->variants->n, sizeof(cell), bench_faster);
    return ok && bench_check_cells(x, error);
}

/* ---- JSON ---- */

void bench_tensor_print_variants_json(const void *experiment, FILE *out)
{
    const tensor_experiment *x = experiment;
    const variants *v = x->variants;
    hdi_json writer, *j = &writer;
    cli_report_begin(j, out, "tensor_variants", &x->record, x->runtime);
    if (x->on_host) {
        cli_report_put_string(j, "note",
                              "sizes are cut, and all kernels of an element's size are the same on host devices");
    }
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int i = 0; i < x->n_rows; i++) {
        const tensor_row *row = &x->rows[i];
        char shape[TENSOR_TEXT];
        bench_tensor_shape_text(row, shape, sizeof(shape));
        hdi_json_object(j);
        cli_report_put_string(j, "id", row->spec->id);
        cli_report_put_string(j, "part", row->spec->part);
        cli_report_put_string(j, "type", hd_type_name(row->spec->type));
        cli_report_put_string(j, "shape", shape);
        cli_report_put_bool(j, "cut", row->cut);
        cli_report_put_integer(j, "bytes", row->moved);
        cli_report_put_number(j, "copy_gbs", v->copy_gbs[i]);
        hdi_json_key(j, "cells");
        hdi_json_array(j);
        for (int k = 0; k < v->n; k++) {
            const cell *c = &v->cells[k];
            if (c->row == i) {
                hdi_json_object(j);
                cli_report_put_string(j, "kernel", c->kernel ? c->kernel : "planner");
                cli_report_put_integer(j, "strip", c->group);
                cli_report_put_number(j, "gbs", c->gbs);
                cli_report_put_number(j, "ratio", c->gbs / v->copy_gbs[i]);
                cli_report_put_integer(j, "wrong", c->wrong);
                hdi_json_object_end(j);
            }
        }
        hdi_json_array_end(j);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    cli_report_put_integer(j, "copies", x->checked);
    hdi_json_object_end(j);
    cli_report_end(j);
}
