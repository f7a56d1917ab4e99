/* alloc_json.c - the results of `heddle bench alloc` for records.
 *
 * Threads: the conductor's. Locks: none. Nothing here measures.
 */
#include <math.h>
#include <string.h>
#include "bench/alloc_figures.h"
#include "cli/common/machine.h"

static void put_side(hdi_json *j, const alloc_case *c, alloc_kind kind)
{
    const alloc_result *r = &c->sides[kind];
    hdi_json_key(j, alloc_kind_ids[kind]);
    hdi_json_object(j);
    if (!r->measured) {
        report_put_string(j, "not_measured", r->note);
        hdi_json_object_end(j);
        return;
    }
    report_put_values(j, "ns", r->rounds, r->n_rounds);
    report_put_values(j, "mean_ns", r->means, r->n_rounds);
    report_put_calls(j, "single", r->calls);
    report_put_integer(j, "operations", r->operations);
    report_put_integer(j, "refused", r->refused);
    report_put_integer(j, "driver_calls", r->driver_calls);
    report_put_number(j, "part", r->part);
    if (r->reserved_peak && r->live_peak) {
        report_put_integer(j, "reserved_peak_bytes", r->reserved_peak);
        report_put_integer(j, "live_peak_bytes", r->live_peak);
        report_put_number(j, "reserved_over_live", alloc_peak_ratio(r));
    }
    if (kind != ALLOC_HEDDLE) {
        report_put_spread(j, "heddle_over_this", alloc_ratio(c, kind));
    }
    hdi_json_object_end(j);
}

static void put_case(hdi_json *j, const alloc_experiment *x, const alloc_case *c)
{
    hdi_json_object(j);
    report_put_string(j, "id", c->id);
    report_put_string(j, "part", c->group);
    report_put_string(j, "name", c->name);
    report_put_string(j, "time_of", c->unit);
    report_put_integer(j, "threads", (uint64_t)c->threads);
    if (c->bytes) {
        report_put_integer(j, "bytes", c->bytes);
    }
    if (c->log) {
        report_put_integer(j, "log_operations", c->log->count);
        report_put_integer(j, "log_peak_live_bytes", c->log->peak_live);
        report_put_integer(j, "log_streams", c->log->lanes);
        report_put_integer(j, "sizes_divided_by", c->log->divisor);
        if (c->log->torch_ratio > 0) {
            report_put_number(j, "torch_reserved_over_live", c->log->torch_ratio);
        }
        if (c->log->torch_expandable_ratio > 0) {
            report_put_number(j, "torch_expandable_reserved_over_live", c->log->torch_expandable_ratio);
        }
    }
    for (int kind = 0; kind < ALLOC_KINDS; kind++) {
        if (kind != ALLOC_LIBC || x->on_host) {
            put_side(j, c, (alloc_kind)kind);
        }
    }
    hdi_json_object_end(j);
}

static void put_busy(hdi_json *j, const alloc_busy *b)
{
    hdi_json_key(j, "free_busy");
    hdi_json_object(j);
    report_put_number(j, "kernel_ms", b->kernel_ms);
    for (int kind = 0; kind < ALLOC_LIBC; kind++) {
        if (b->measured[kind]) {
            hdi_json_key(j, alloc_kind_ids[kind]);
            hdi_json_object(j);
            report_put_values(j, "used_ns", b->used[kind], b->rounds);
            report_put_values(j, "unused_ns", b->unused[kind], b->rounds);
            hdi_json_object_end(j);
        }
    }
    hdi_json_object_end(j);
}

static void put_pace(hdi_json *j, const char *key, const alloc_pace *paces, int n)
{
    hdi_json_key(j, key);
    hdi_json_array(j);
    for (int i = 0; i < n; i++) {
        hdi_json_object(j);
        report_put_number(j, "kernels_per_s", paces[i].kernels_per_s);
        report_put_number(j, "longest_gap_ns", paces[i].longest_gap_ns);
        report_put_number(j, "submit_p99_ns", paces[i].submit_p99_ns);
        report_put_number(j, "submit_max_ns", paces[i].submit_max_ns);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void put_beside(hdi_json *j, const char *key, const alloc_beside *b)
{
    hdi_json_key(j, key);
    hdi_json_object(j);
    for (int kind = 0; kind < ALLOC_LIBC; kind++) {
        if (!b->measured[kind]) {
            continue;
        }
        hdi_json_key(j, alloc_kind_ids[kind]);
        hdi_json_object(j);
        report_put_number(j, "share", alloc_pace_of(b, (alloc_kind)kind, PACE_SHARE));
        put_pace(j, "alone", b->alone[kind], b->rounds);
        put_pace(j, "beside", b->beside[kind], b->rounds);
        report_put_values(j, "cycles_per_s", b->cycles_per_s[kind], b->rounds);
        hdi_json_object_end(j);
    }
    hdi_json_object_end(j);
}

static void put_limit(hdi_json *j, const alloc_limit *l)
{
    hdi_json_key(j, "limit");
    hdi_json_object(j);
    report_put_integer(j, "threads", (uint64_t)l->threads);
    report_put_integer(j, "limit_bytes", l->limit);
    report_put_integer(j, "reserved_peak_bytes", l->reserved_peak);
    report_put_integer(j, "driver_peak_bytes", l->driver_peak);
    report_put_integer(j, "asked_bytes", l->asked);
    report_put_integer(j, "allocations", l->allocations);
    report_put_integer(j, "refused", l->refused);
    report_put_integer(j, "waits", l->waits);
    report_put_integer(j, "drains", l->drains);
    report_put_number(j, "seconds", l->seconds);
    hdi_json_object_end(j);
}

static void put_reclaim(hdi_json *j, const alloc_reclaim *r)
{
    hdi_json_key(j, "reclaim");
    hdi_json_object(j);
    report_put_integer(j, "steps", (uint64_t)r->steps);
    report_put_integer(j, "limit_bytes", r->limit);
    report_put_integer(j, "garbage_per_step_bytes", r->garbage_per_step);
    report_put_integer(j, "objects", r->objects);
    for (int early = 1; early >= 0; early--) {
        hdi_json_key(j, early ? "early" : "at_limit");
        hdi_json_object(j);
        for (int i = 0; i < ALLOC_RUN_FIGURES; i++) {
            double values[ALLOC_ROUNDS_MAX];
            for (int k = 0; k < r->rounds; k++) {
                values[k] = alloc_run_figures[i].of(early ? &r->early[k] : &r->at_limit[k]);
            }
            report_put_values(j, alloc_run_figures[i].id, values, r->rounds);
        }
        hdi_json_object_end(j);
    }
    report_put_number(j, "total_gain", alloc_reclaim_gain(r, false));
    report_put_number(j, "pause_gain", alloc_reclaim_gain(r, true));
    hdi_json_object_end(j);
}

static void put_access(hdi_json *j, const alloc_experiment *x)
{
    const alloc_unified *u = &x->unified;
    const alloc_pinned *p = &x->pinned;
    if (u->measured) {
        hdi_json_key(j, "unified");
        hdi_json_object(j);
        report_put_values(j, "element_ns", u->element_ns, u->rounds);
        report_put_values(j, "load_ns", u->load_ns, u->rounds);
        report_put_values(j, "copy_ns", u->copy_ns, u->rounds);
        report_put_number(j, "first_read_us", u->first_us);
        hdi_json_object_end(j);
    }
    if (p->measured) {
        hdi_json_key(j, "pinned");
        hdi_json_object(j);
        report_put_integer(j, "bytes", p->bytes);
        report_put_number(j, "first_ns", p->first_ns);
        report_put_values(j, "heddle_ns", p->heddle_ns, p->rounds);
        report_put_values(j, "driver_ns", p->driver_ns, p->rounds);
        hdi_json_object_end(j);
    }
}

void alloc_print_json(const void *experiment, FILE *out)
{
    const alloc_experiment *x = experiment;
    hdi_json writer, *j = &writer;
    report_goal goals[ALLOC_GOALS];
    alloc_goals(x, goals);
    report_begin(j, out, "alloc", &x->record, x->runtime);
    hdi_json_key(j, "run");
    hdi_json_object(j);
    report_put_integer(j, "rounds", (uint64_t)x->rounds);
    report_put_integer(j, "room_bytes", x->room);
    report_put_clock(j);
    hdi_json_object_end(j);
    hdi_json_key(j, "cases");
    hdi_json_array(j);
    for (int i = 0; i < x->n_cases; i++) {
        put_case(j, x, &x->cases[i]);
    }
    hdi_json_array_end(j);
    if (x->busy.rounds) {
        put_busy(j, &x->busy);
    }
    if (x->beside[ALLOC_BESIDE_GROWTH].rounds) {
        put_beside(j, "beside_growth", &x->beside[ALLOC_BESIDE_GROWTH]);
    }
    if (x->beside[ALLOC_BESIDE_RANDOM].rounds) {
        put_beside(j, "beside_random", &x->beside[ALLOC_BESIDE_RANDOM]);
    }
    if (x->limit.measured) {
        put_limit(j, &x->limit);
    }
    if (x->reclaim.rounds) {
        put_reclaim(j, &x->reclaim);
    }
    put_access(j, x);
    hdi_json_key(j, "verified");
    hdi_json_object(j);
    report_put_integer(j, "blocks", x->checked);
    report_put_integer(j, "blocks_with_bytes", x->tagged);
    report_put_integer(j, "kernel_results", x->results);
    hdi_json_object_end(j);
    report_put_goals(j, goals, ALLOC_GOALS, !x->on_host);
    report_end(j);
}
