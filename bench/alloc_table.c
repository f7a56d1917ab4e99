/* alloc_table.c - the results of `heddle bench alloc` for people.
 *
 * Threads: the conductor's. Locks: none. Nothing here measures.
 */
#include <math.h>
#include <string.h>
#include "bench/alloc_figures.h"
#include "cli/common/machine.h"

enum { TEXT = REPORT_TEXT };

static const char *duration(double ns, char out[TEXT])
{
    if (isnan(ns)) {
        snprintf(out, TEXT, "-");
    } else if (ns < 100) {
        snprintf(out, TEXT, "%.1f ns", ns);
    } else {
        report_duration(ns, out);
    }
    return out;
}

static const char *number(double value, const char *format, char out[TEXT])
{
    if (isnan(value)) {
        snprintf(out, TEXT, "-");
    } else {
        snprintf(out, TEXT, format, value);
    }
    return out;
}

static const char *bytes_text(uint64_t bytes, char out[TEXT])
{
    double mib = (double)bytes / (double)ALLOC_MIB;
    if (mib < 4) {
        snprintf(out, TEXT, "%.0f KiB", mib * 1024);
    } else if (mib < 10240) {
        snprintf(out, TEXT, "%.0f MiB", mib);
    } else {
        snprintf(out, TEXT, "%.1f GiB", mib / 1024);
    }
    return out;
}

static void print_head(const alloc_experiment *x, FILE *out)
{
    char version[24], room[TEXT];
    machine_driver_version_text(x->info.driver_version, version);
    fprintf(out, "alloc: %s, driver %s %s, placement %s, %d processors, %d rounds; a case has at most %s\n",
            x->device.name, x->info.driver, version, x->info.placement, x->processors, x->rounds,
            bytes_text(x->room, room));
    if (x->on_host) {
        fprintf(
            out,
            "the driver is the host devices' own: figures of cuMemAlloc and cuMemAllocAsync do not apply to a GPU\n");
    }
}

/* In the middle of so many columns. */
static void print_centred(const char *text, int width, FILE *out)
{
    int length = (int)strlen(text), left = (width - length) / 2;
    fprintf(out, "%*s%s%*s", left, "", text, width - length - left, "");
}

static void print_columns(const alloc_experiment *x, FILE *out)
{
    fprintf(out, "\n%36s", "");
    print_centred("Heddle", 19, out);
    print_centred("cuMemAllocAsync", 28, out);
    print_centred("cuMemAlloc", 28, out);
    print_centred(x->on_host ? "malloc" : "", x->on_host ? 19 : 0, out);
    print_centred("reserved/live", 22, out);
    fprintf(out, "  driver\n%36s", "");
    for (int kind = 0; kind < ALLOC_KINDS; kind++) {
        if (kind == ALLOC_HEDDLE) {
            fprintf(out, " %8s %8s ", "median", "p99");
        } else if (kind != ALLOC_LIBC) {
            fprintf(out, " %8s %8s %8s ", "median", "p99", "Hed./it");
        } else if (x->on_host) {
            fprintf(out, " %8s %8s ", "median", "Hed./it");
        }
    }
    fprintf(out, " %6s %6s %6s %7s\n", "Heddle", "async", "plain", "calls");
}

static void print_side(const alloc_case *c, alloc_kind kind, FILE *out)
{
    const alloc_result *r = &c->sides[kind];
    char median[TEXT], p99[TEXT], ratio[TEXT];
    fprintf(out, " %8s", duration(alloc_median(r), median));
    if (kind != ALLOC_LIBC) {
        fprintf(out, " %8s", duration(r->measured && r->calls.count ? r->calls.p99_ns : NAN, p99));
    }
    if (kind != ALLOC_HEDDLE) {
        double value = alloc_ratio(c, kind).median;
        fprintf(out, " %8s", number(value, value < 0.0995 ? "%.4f" : "%.2f", ratio));
    }
    fprintf(out, " ");
}

/* What makes a line differ from its header. */
static void print_notes(const alloc_case *c, FILE *out)
{
    for (int kind = 0; kind < ALLOC_KINDS; kind++) {
        const alloc_result *r = &c->sides[kind];
        const char *name = alloc_kind_names[kind];
        if (!r->measured && strcmp(r->note, "left out") != 0) {
            fprintf(out, "    %s: %s\n", name, r->note);
        } else if (r->measured && r->part < 1) {
            fprintf(out, "    %s: the first %.2g %% of it, for want of time\n", name, 100 * r->part);
        }
        if (r->refused) {
            fprintf(out, "    %s: out of memory %llu times\n", name, (unsigned long long)r->refused);
        }
    }
    if (c->log && c->log->torch_ratio > 0) {
        char expandable[TEXT];
        fprintf(out, "    reserved/live of PyTorch, when it was recorded: %.2f; with expandable segments: %s\n",
                c->log->torch_ratio,
                number(c->log->torch_expandable_ratio > 0 ? c->log->torch_expandable_ratio : NAN, "%.2f", expandable));
    }
    if (c->log && c->log->divisor > 1) {
        fprintf(out, "    all sizes divided by %u, to fit the device\n", c->log->divisor);
    }
}

static void print_case(const alloc_experiment *x, const alloc_case *c, FILE *out)
{
    char peaks[3][TEXT], calls[TEXT];
    fprintf(out, "  %-34s", c->name);
    for (int kind = 0; kind < ALLOC_KINDS; kind++) {
        if (kind != ALLOC_LIBC || x->on_host) {
            print_side(c, (alloc_kind)kind, out);
        }
    }
    for (int kind = 0; kind < 3; kind++) {
        fprintf(out, " %6s", number(alloc_peak_ratio(&c->sides[kind]), "%.3f", peaks[kind]));
    }
    fprintf(out, " %7s\n", number((double)c->sides[ALLOC_HEDDLE].driver_calls, "%.0f", calls));
    print_notes(c, out);
}

static void print_cases(const alloc_experiment *x, FILE *out)
{
    static const struct {
        const char *group, *title;
    } titles[] = {
        {"pair", "pairs of one thread"},
        {"random", "random allocations, per operation"},
        {"holes", "holes"},
        {"live", "many live blocks, per operation"},
        {"replay", "recorded programs, per operation"},
        {"threads", "threads, each in a lane of its own; per pair or operation of a thread"},
        {"hand_over", "one thread allocates, another frees; p99 of the free"},
        {"multi_stream", "multi-stream, per run of 4 kernels"},
    };
    const char *group = "";
    for (int i = 0; i < x->n_cases; i++) {
        if (strcmp(group, x->cases[i].group) != 0) {
            group = x->cases[i].group;
            for (size_t t = 0; t < sizeof(titles) / sizeof(titles[0]); t++) {
                if (strcmp(titles[t].group, group) == 0) {
                    fprintf(out, "%s\n", titles[t].title);
                }
            }
        }
        print_case(x, &x->cases[i], out);
    }
}

static void print_busy(const alloc_busy *b, FILE *out)
{
    if (!b->rounds) {
        return;
    }
    fprintf(out, "\na free of 8 MiB while a kernel of %.0f ms runs %17s %21s\n", b->kernel_ms, "the block it uses",
            "one not in use");
    fprintf(out, "%-44s %10s %10s %10s %10s\n", "", "median", "max", "median", "max");
    for (int kind = 0; kind < ALLOC_LIBC; kind++) {
        char text[4][TEXT];
        int n = b->measured[kind] ? b->rounds : 0;
        fprintf(out, "  %-42s %10s %10s %10s %10s\n", alloc_kind_names[kind],
                duration(alloc_median_of(b->used[kind], n), text[0]),
                duration(alloc_largest_of(b->used[kind], n), text[1]),
                duration(alloc_median_of(b->unused[kind], n), text[2]),
                duration(alloc_largest_of(b->unused[kind], n), text[3]));
    }
}

static void print_beside(const alloc_beside *b, const char *what, const char *cycles, FILE *out)
{
    if (!b->rounds) {
        return;
    }
    fprintf(out, "\n%-44s %10s %21s %21s %10s\n", what, "pace,", "longest gap    ", "submit, p99    ", cycles);
    fprintf(out, "%-44s %10s %10s %10s %10s %10s %10s\n", "", "share", "alone", "beside", "alone", "beside",
            "a second");
    for (int kind = 0; kind < ALLOC_LIBC; kind++) {
        char text[6][TEXT];
        fprintf(out, "  %-42s %10s %10s %10s %10s %10s %10s\n", alloc_kind_names[kind],
                number(alloc_pace_of(b, (alloc_kind)kind, PACE_SHARE), "%.3f", text[0]),
                duration(alloc_pace_of(b, (alloc_kind)kind, PACE_GAP_ALONE), text[1]),
                duration(alloc_pace_of(b, (alloc_kind)kind, PACE_GAP), text[2]),
                duration(alloc_pace_of(b, (alloc_kind)kind, PACE_SUBMIT_ALONE), text[3]),
                duration(alloc_pace_of(b, (alloc_kind)kind, PACE_SUBMIT), text[4]),
                number(alloc_median_of(b->cycles_per_s[kind], b->measured[kind] ? b->rounds : 0), "%.0f", text[5]));
    }
}

static void print_limit(const alloc_limit *l, FILE *out)
{
    if (!l->measured) {
        return;
    }
    char limit[TEXT], asked[TEXT], driver[TEXT];
    double held = l->driver_peak ? (double)l->driver_peak : NAN; /* not seen from here with worker processes */
    fprintf(out, "\n%d threads that want %s of %s for %.1f s\n", l->threads, bytes_text(l->asked, asked),
            bytes_text(l->limit, limit), l->seconds);
    fprintf(out, "  held at most %llu bytes, %llu below the limit; as the driver counts, %s\n",
            (unsigned long long)l->reserved_peak, (unsigned long long)(l->limit - l->reserved_peak),
            number(held, "%.0f", driver));
    fprintf(
        out,
        "  %llu allocations, %llu refused; %llu waits for work and for other threads, magazines drained %llu times\n",
        (unsigned long long)l->allocations, (unsigned long long)l->refused, (unsigned long long)l->waits,
        (unsigned long long)l->drains);
}

static void print_reclaim(const alloc_reclaim *r, FILE *out)
{
    if (!r->rounds) {
        return;
    }
    char limit[TEXT], garbage[TEXT];
    fprintf(out, "\na training loop of %d steps, %s of garbage each, %llu other objects, limit %s\n", r->steps,
            bytes_text(r->garbage_per_step, garbage), (unsigned long long)r->objects, bytes_text(r->limit, limit));
    fprintf(out, "%-44s %14s %14s %14s\n", "", "early", "at the limit", "early/limit");
    for (int i = 0; i < ALLOC_RUN_FIGURES; i++) {
        char text[3][TEXT];
        double early = alloc_run_spread(r, true, alloc_run_figures[i].of).median,
               late = alloc_run_spread(r, false, alloc_run_figures[i].of).median;
        bool time = alloc_run_figures[i].is_time;
        fprintf(out, "  %-42s %14s %14s %14s\n", alloc_run_figures[i].text,
                time ? duration(early, text[0]) : number(early, "%.0f", text[0]),
                time ? duration(late, text[1]) : number(late, "%.0f", text[1]),
                number(late > 0 ? early / late : NAN, "%.3f", text[2]));
    }
}

static void print_access(const alloc_experiment *x, FILE *out)
{
    const alloc_unified *u = &x->unified;
    const alloc_pinned *p = &x->pinned;
    char text[3][TEXT];
    if (u->measured) {
        fprintf(
            out,
            "\nunified memory: an element %s, a load %s, a copy of 4 bytes %s; the first read, which moves the bytes, "
            "%.0f us\n",
            duration(alloc_median_of(u->element_ns, u->rounds), text[0]),
            duration(alloc_median_of(u->load_ns, u->rounds), text[1]),
            duration(alloc_median_of(u->copy_ns, u->rounds), text[2]), u->first_us);
    }
    if (p->measured) {
        char size[TEXT];
        fprintf(out, "pinned memory, a pair of %s: Heddle %s (the first one %s), the driver %s\n",
                bytes_text(p->bytes, size), duration(alloc_median_of(p->heddle_ns, p->rounds), text[0]),
                duration(p->first_ns, text[1]), duration(alloc_median_of(p->driver_ns, p->rounds), text[2]));
    }
}

void alloc_print_table(const void *experiment, FILE *out)
{
    const alloc_experiment *x = experiment;
    report_goal goals[ALLOC_GOALS];
    print_head(x, out);
    if (x->n_cases) {
        print_columns(x, out);
        print_cases(x, out);
    }
    print_busy(&x->busy, out);
    print_beside(&x->beside[ALLOC_BESIDE_GROWTH], "kernels beside a pool that grows and shrinks", "cycles", out);
    print_beside(&x->beside[ALLOC_BESIDE_RANDOM], "kernels beside random allocations", "operations", out);
    print_limit(&x->limit, out);
    print_reclaim(&x->reclaim, out);
    print_access(x, out);
    alloc_goals(x, goals);
    fprintf(out, "\n");
    report_print_goals(goals, ALLOC_GOALS, "", !x->on_host, out);
    fprintf(
        out,
        "\nverified: %llu blocks compared with all others that were live, the bytes of %llu of them, %llu results of "
        "kernels. Took %.0f s.\n",
        (unsigned long long)x->checked, (unsigned long long)x->tagged, (unsigned long long)x->results,
        x->record.took_s);
}
