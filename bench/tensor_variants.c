/* tensor_variants.c - `heddle bench tensor --variants`: every kernel that can move a layout, in
 * several orders of tiles, beside the device copy.
 *
 * Threads: the conductor. Locks: none. The planner's choices (src/tensor/plan.h) come from one
 * short run of this on a device. Each cell gets little time, and all cells of a layout use the same
 * buffers.
 * Always: a cell's copy is checked before it is timed. A wrong one is marked, and makes the run
 * fail at its end.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/machine.h"
#include "bench/tensor_parts.h"
#include "tensor/plan.h"

enum { CELLS_MAX = 4096, SAMPLES = 3, BEST = 5, COPY_EVERY = 8, COPIES_MAX = 512, KIND_TEXT = 48 };

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
/* Units: bytes of neighbouring rows that are moved before others (1: rows one after another); 0:
 * chosen by the planner. */
static const uint32_t together[] = {0, 1, 1024, 4096, 8192, 16384};
enum {
    GROUPS = sizeof(groups) / sizeof(groups[0]),
    QUICK_GROUPS = 1,
    TOGETHER = sizeof(together) / sizeof(together[0])
};

void tensor_variants_release(tensor_experiment *x)
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

static double gbs_of(const tensor_row *row, double ns)
{
    return (double)row->moved / ns;
}

static bool sample_copy(run *r, char *error)
{
    double ns;
    if (!tensor_sample(&r->m, TENSOR_COPY, NULL, r->reps, &ns, error)) {
        return false;
    }
    if (r->n_copies < COPIES_MAX) {
        r->copies[r->n_copies++] = ns / r->reps;
    }
    return true;
}

static bool run_cell(run *r, const char *kernel, uint32_t group, char *error)
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
    if (!report_check(status, "hdi_tensor_copy_as", error) ||
        !tensor_verify(m, TENSOR_HEDDLE, &wish, 0, &c->wrong, error)) {
        return false;
    }
    if (c->wrong) {
        v->wrong++;
        return true;
    }
    double ns[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        if (!tensor_sample(m, TENSOR_HEDDLE, &wish, r->reps, &ns[i], error)) {
            return false;
        }
    }
    c->gbs = gbs_of(m->row, stats_spread_of(ns, SAMPLES).median / r->reps);
    return v->n % COPY_EVERY != 0 || sample_copy(r, error);
}

static bool run_row(tensor_experiment *x, int index, char *error)
{
    run r = {.x = x, .row = index};
    const tensor_row *row = &x->rows[index];
    uint32_t element = (uint32_t)hd_type_size(row->spec->type);
    char shape[TENSOR_TEXT], item[2 * TENSOR_TEXT], why[PLAIN_ERROR] = "";
    int n_groups = x->options->quick ? QUICK_GROUPS : GROUPS;
    tensor_shape_text(row, shape, sizeof(shape));
    snprintf(item, sizeof(item), "%s, %s", row->spec->name, shape);
    tensor_step(x, row->spec->part, item);
    bool ok =
        tensor_memory_take(x, row, &r.m, why) && tensor_repetitions(&r.m, TENSOR_COPY, x->sample_ns / 4, &r.reps, why);
    r.reps = r.reps > 2 ? r.reps : 2;
    ok = ok && sample_copy(&r, why) && sample_copy(&r, why) && run_cell(&r, NULL, 0, why);
    bool by_rows = strcmp(row->spec->part, "permute") == 0 && !x->options->quick;
    for (int g = 0; ok && g < (by_rows ? TOGETHER : 1); g++) {
        ok = run_cell(&r, "units", together[g], why);
    }
    const hdi_tile_kind *kind;
    for (int k = 0; ok && (kind = hdi_tile_kind_at(k)); k++) {
        for (int g = 0; g < n_groups && ok && kind->element == element; g++) {
            ok = run_cell(&r, kind->name, groups[g], why);
        }
    }
    ok = ok && sample_copy(&r, why);
    x->variants->copy_gbs[index] = ok ? gbs_of(row, stats_spread_of(r.copies, r.n_copies).median) : NAN;
    tensor_memory_give(&r.m);
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", row->spec->id, why);
    }
    return ok;
}

bool tensor_run_variants(tensor_experiment *x, char *error)
{
    x->variants = calloc(1, sizeof(*x->variants));
    if (!x->variants) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (int i = 0; tensor_spec_at(i) && x->n_rows < TENSOR_ROWS_MAX; i++) {
        const tensor_spec *s = tensor_spec_at(i);
        bool has_kernels = strcmp(s->part, "transpose") == 0 || strcmp(s->part, "permute") == 0;
        if (has_kernels && tensor_is_wanted(x, s->part) && (s->always || !x->options->quick)) {
            tensor_plan_row(x, s, &x->rows[x->n_rows++]);
        }
    }
    x->steps = x->n_rows;
    bool ok = true;
    for (int i = 0; i < x->n_rows && ok; i++) {
        ok = run_row(x, i, error);
    }
    /* fails after printing all, because the table shows which ones */
    if (ok && x->variants->wrong) {
        tensor_print_variants(x, x->options->run.output);
        snprintf(error, PLAIN_ERROR, "%llu cells have elements that are not right",
                 (unsigned long long)x->variants->wrong);
        ok = false;
    }
    return ok;
}

/* ---- table ---- */

static const cell *find_cell(const variants *v, int row, const char *kernel, uint32_t group)
{
    for (int i = 0; i < v->n; i++) {
        const cell *c = &v->cells[i];
        bool same = kernel && c->kernel ? strcmp(c->kernel, kernel) == 0 : c->kernel == kernel;
        if (c->row == row && same && c->group == group) {
            return c;
        }
    }
    return NULL;
}

/* "4s 128x56 t256 shifted" */
static void kind_text(const hdi_tile_kind *kind, char out[KIND_TEXT])
{
    static const char *const ways[] = {"", " digits", " shifted"};
    int way = kind->kind >= 0 && kind->kind < 3 ? kind->kind : 0;
    snprintf(out, KIND_TEXT, "%s %ux%u t%u%s", kind->name, kind->size_i, kind->size_j, kind->threads, ways[way]);
}

/* Prints a line with the cells of all rows of the table; prints nothing if no row has one. */
static void print_line(const tensor_experiment *x, const int *rows, int n, const char *name, const char *kernel,
                       uint32_t group, FILE *out)
{
    const variants *v = x->variants;
    char line[16 * TENSOR_ROWS_MAX] = "", order[16] = "";
    size_t used = 0;
    bool any = false;
    for (int i = 0; i < n && used < sizeof(line); i++) {
        const cell *c = find_cell(v, rows[i], kernel, group);
        any = any || c;
        if (c && !isnan(c->gbs)) {
            used += (size_t)snprintf(line + used, sizeof(line) - used, " %6.*f %.3f", c->gbs < 100 ? 1 : 0, c->gbs,
                                     c->gbs / v->copy_gbs[rows[i]]);
        } else {
            used += (size_t)snprintf(line + used, sizeof(line) - used, " %12s", c ? "WRONG" : "-");
        }
    }
    if (kernel && group) {
        snprintf(order, sizeof(order), "%u", group);
    }
    if (any) {
        fprintf(out, "  %-26s %4s%s\n", name, order, line);
    }
}

static void print_element(const tensor_experiment *x, uint32_t element, const char *part, FILE *out)
{
    int rows[TENSOR_ROWS_MAX], n = 0;
    for (int i = 0; i < x->n_rows; i++) {
        if (hd_type_size(x->rows[i].spec->type) == element && strcmp(x->rows[i].spec->part, part) == 0) {
            rows[n++] = i;
        }
    }
    if (n == 0) {
        return;
    }
    fprintf(out, "\n%s, elements of %u bytes\n", part, element);
    for (int i = 0; i < n; i++) {
        char shape[TENSOR_TEXT];
        tensor_shape_text(&x->rows[rows[i]], shape, sizeof(shape));
        fprintf(out, "  (%d) %s, %s%s\n", i + 1, x->rows[rows[i]].spec->name, shape,
                x->rows[rows[i]].cut ? " (cut, for want of memory)" : "");
    }
    fprintf(out, "  %-26s %4s", "kernel", "strip");
    for (int i = 0; i < n; i++) {
        fprintf(out, " %10s(%d)", "", i + 1);
    }
    fprintf(out, "\n  %-26s %4s", "device copy", "");
    for (int i = 0; i < n; i++) {
        double gbs = x->variants->copy_gbs[rows[i]];
        fprintf(out, " %6.*f      ", gbs < 100 ? 1 : 0, gbs);
    }
    fprintf(out, "\n");
    print_line(x, rows, n, "planner's choice", NULL, 0, out);
    for (int g = 0; g < TOGETHER; g++) {
        print_line(x, rows, n, "units", "units", together[g], out);
    }
    const hdi_tile_kind *kind;
    for (int k = 0; (kind = hdi_tile_kind_at(k)); k++) {
        char name[KIND_TEXT];
        kind_text(kind, name);
        for (int g = 0; g < GROUPS && kind->element == element; g++) {
            print_line(x, rows, n, name, kind->name, groups[g], out);
        }
    }
}

static int faster(const void *a, const void *b)
{
    double x = (*(const cell *const *)a)->gbs, y = (*(const cell *const *)b)->gbs;
    return (x < y) - (x > y);
}

static void print_best(const tensor_experiment *x, int row, FILE *out)
{
    const variants *v = x->variants;
    static const cell *sorted[CELLS_MAX];
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        if (v->cells[i].row == row && v->cells[i].kernel && !isnan(v->cells[i].gbs)) {
            sorted[n++] = &v->cells[i];
        }
    }
    qsort(sorted, (size_t)n, sizeof(sorted[0]), faster);
    fprintf(out, "  %-28s", x->rows[row].spec->id);
    for (int i = 0; i < n && i < BEST; i++) {
        fprintf(out, " %s/%u %.3f%s", sorted[i]->kernel, sorted[i]->group, sorted[i]->gbs / v->copy_gbs[row],
                i + 1 < n && i + 1 < BEST ? "," : "");
    }
    const cell *chosen = find_cell(v, row, NULL, 0);
    if (chosen && !isnan(chosen->gbs)) {
        fprintf(out, "; planner %.3f", chosen->gbs / v->copy_gbs[row]);
    }
    fprintf(out, "\n");
}

void tensor_print_variants(const void *experiment, FILE *out)
{
    const tensor_experiment *x = experiment;
    char version[24];
    machine_driver_version_text(x->info.driver_version, version);
    fprintf(out,
            "tensor variants: %s, driver %s %s, placement %s; GB/s (1e9, read and written) and share of the device "
            "copy's speed\n",
            x->device.name, x->info.driver, version, x->info.placement);
    if (x->on_host) {
        fprintf(out, "host devices: sizes are cut, and all kernels of an element's size are the same there\n");
    }
    for (uint32_t element = 1; element <= 16; element *= 2) {
        print_element(x, element, "transpose", out);
        print_element(x, element, "permute", out);
    }
    fprintf(out, "\nbest (kernel/strip, share of the device copy's GB/s)\n");
    for (int i = 0; i < x->n_rows; i++) {
        print_best(x, i, out);
    }
    fprintf(out, "verified: %llu copies, every element. Took %.0f s.\n", (unsigned long long)x->checked,
            report_wall_clock() - x->record.started);
}

/* ---- JSON ---- */

void tensor_print_variants_json(const void *experiment, FILE *out)
{
    const tensor_experiment *x = experiment;
    const variants *v = x->variants;
    hdi_json writer, *j = &writer;
    report_begin(j, out, "tensor_variants", &x->record, x->runtime);
    hdi_json_key(j, "rows");
    hdi_json_array(j);
    for (int i = 0; i < x->n_rows; i++) {
        const tensor_row *row = &x->rows[i];
        char shape[TENSOR_TEXT];
        tensor_shape_text(row, shape, sizeof(shape));
        hdi_json_object(j);
        report_put_string(j, "id", row->spec->id);
        report_put_string(j, "part", row->spec->part);
        report_put_string(j, "type", hd_type_name(row->spec->type));
        report_put_string(j, "shape", shape);
        report_put_bool(j, "cut", row->cut);
        report_put_integer(j, "bytes", row->moved);
        report_put_number(j, "copy_gbs", v->copy_gbs[i]);
        hdi_json_key(j, "cells");
        hdi_json_array(j);
        for (int k = 0; k < v->n; k++) {
            const cell *c = &v->cells[k];
            if (c->row == i) {
                hdi_json_object(j);
                report_put_string(j, "kernel", c->kernel ? c->kernel : "planner");
                report_put_integer(j, "strip", c->group);
                report_put_number(j, "gbs", c->gbs);
                report_put_number(j, "ratio", c->gbs / v->copy_gbs[i]);
                report_put_integer(j, "wrong", c->wrong);
                hdi_json_object_end(j);
            }
        }
        hdi_json_array_end(j);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    report_put_integer(j, "copies", x->checked);
    hdi_json_object_end(j);
    report_end(j);
}
