/* report_text.c - figures about memory as text for people.
 *
 * Threads: any. Locks: none; the figures are the caller's. Blocking: never.
 * Always: the output has no control characters, whatever labels and names contain. The program's locale changes nothing.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/error.h"
#include "base/text.h"
#include "stats/report.h"

const char *hdi_date_text(int64_t seconds, char out[HDI_AMOUNT_BYTES])
{
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || strftime(out, HDI_AMOUNT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        snprintf(out, HDI_AMOUNT_BYTES, "unknown");
    }
    return out;
}

/* Prints up to `room` characters of a text that may hold anything, without control characters. */
static void print_clean(FILE *out, const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        /* also the control characters above 0x7f, in UTF-8 */
        bool control =
            c < 0x20 || c == 0x7f || (c == 0xc2 && i + 1 < length && ((unsigned char)text[i + 1] & 0xe0) == 0x80);
        fputc(control ? '?' : c, out);
        i += control && c == 0xc2;
    }
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_lanes(FILE *out, const hdi_report_device *d)
{
    char bytes[HDI_AMOUNT_BYTES];
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        fprintf(out, "%s lane %d: %s in %" PRIu64, i ? "," : ";", d->lanes[i].lane,
                hdi_bytes_text(d->lanes[i].cached_bytes, bytes), d->lanes[i].cached_count);
    }
    if (d->other_lanes) {
        fprintf(out, ", %" PRIu64 " more lane%s: %s", d->other_lanes, plural(d->other_lanes),
                hdi_bytes_text(d->other_lanes_bytes, bytes));
    }
}

/* "12.3 % from magazines, 80 % never used or just mapped": where allocations came from. */
static void print_sources(FILE *out, const hd_memory_stats *s)
{
    const struct {
        uint64_t count;
        const char *name;
    } sources[] = {
        {s->from_magazine, "from magazines"},
        {s->from_same_lane, "freed by the same lane"},
        {s->from_finished, "finished"},
        {s->from_waited, "still in use, with a wait in the lane"},
        {s->from_fresh, "never used or just mapped"},
    };
    uint64_t sum = 0;
    bool first = true;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        sum += sources[i].count;
    }
    if (sum == 0) {
        return;
    }
    fprintf(out, "  sources   ");
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (sources[i].count) {
            char share[24];
            /* to the nearest tenth of a percent */
            hdi_tenths_text((uint64_t)(((unsigned __int128)sources[i].count * 1000 + sum / 2) / sum), 10, share,
                            sizeof share);
            fprintf(out, "%s%s %% %s", first ? "" : ", ", share, sources[i].name);
            first = false;
        }
    }
    fputc('\n', out);
}

static void print_scarcity(FILE *out, const hd_memory_stats *s)
{
    char waited[HDI_AMOUNT_BYTES], early[HDI_AMOUNT_BYTES], limit[HDI_AMOUNT_BYTES];
    if (s->drains || s->waits || s->early_reclaims || s->limit_reclaims || s->failures) {
        fprintf(out,
                "  scarcity  %" PRIu64 " drain%s of magazines, %" PRIu64 " wait%s (%s), callbacks: %" PRIu64
                " early (%s), %" PRIu64 " at the limit (%s); %" PRIu64 " allocation%s failed\n",
                s->drains, plural(s->drains), s->waits, plural(s->waits), hdi_duration_text(s->wait_ns, waited),
                s->early_reclaims, hdi_duration_text(s->early_reclaim_ns, early), s->limit_reclaims,
                hdi_duration_text(s->limit_reclaim_ns, limit), s->failures, plural(s->failures));
    }
}

static void print_holders(FILE *out, const hdi_report_device *d)
{
    char bytes[HDI_AMOUNT_BYTES];
    for (uint32_t i = 0; i < d->n_holders; i++) {
        const hdi_report_holder *h = &d->holders[i];
        fprintf(out, "  %-9s %10s in %-7" PRIu64 " ", i ? "" : "holders", hdi_bytes_text(h->bytes, bytes), h->count);
        if (h->label[0]) {
            fputc('\'', out);
            print_clean(out, h->label, sizeof h->label);
            fputs("'\n", out);
        } else {
            print_clean(out, h->site, sizeof h->site);
            fputc('\n', out);
        }
    }
    if (d->other_holders) {
        fprintf(out, "  %-9s %10s in %-7" PRIu64 " %" PRIu64 " other%s\n", "", hdi_bytes_text(d->others_bytes, bytes),
                d->others_count, d->other_holders, plural(d->other_holders));
    }
}

static void print_device(FILE *out, const hdi_report_device *d, bool debug)
{
    const hd_memory_stats *s = &d->stats;
    char a[HDI_AMOUNT_BYTES], b[HDI_AMOUNT_BYTES], c[HDI_AMOUNT_BYTES], e[HDI_AMOUNT_BYTES];
    if (d->device == HD_DEVICE_HOST) {
        fputs("\npinned host memory\n", out);
    } else {
        fprintf(out, "\ndevice %-4d ", d->device);
        print_clean(out, d->name, sizeof d->name);
        fprintf(out, "%s\n", d->lost ? " LOST" : "");
    }
    fprintf(out, "  held      %s of %s, peak %s\n", hdi_bytes_text(s->reserved_bytes, a),
            hdi_bytes_text(s->limit_bytes, b), hdi_bytes_text(s->reserved_peak_bytes, c));
    fprintf(out, "  live      %s in %" PRIu64 " buffer%s; with rounding and magazines %s, peak %s\n",
            hdi_bytes_text(s->live_bytes, a), s->live_count, plural(s->live_count), hdi_bytes_text(s->taken_bytes, b),
            hdi_bytes_text(s->taken_peak_bytes, c));
    /* the other lines only where there are figures for them */
    if (s->cached_bytes || d->n_lanes) {
        fprintf(out, "  cached    %s in magazines", hdi_bytes_text(s->cached_bytes, a));
        print_lanes(out, d);
        fputc('\n', out);
    }
    if (s->waiting_bytes || s->held_bytes) {
        fprintf(out, "  waiting   %s that unfinished work uses, %s in holds\n", hdi_bytes_text(s->waiting_bytes, a),
                hdi_bytes_text(s->held_bytes, b));
    }
    if (s->allocations || s->frees) {
        fprintf(out,
                "  calls     %" PRIu64 " allocation%s, %" PRIu64 " free%s, %" PRIu64 " of them by another thread\n",
                s->allocations, plural(s->allocations), s->frees, plural(s->frees), s->frees_elsewhere);
    }
    print_sources(out, s);
    if (s->driver_calls) {
        fprintf(out, "  driver    %" PRIu64 " request%s: %s mapped, %s of it ahead of need, %s moved, %s given back\n",
                s->driver_calls, plural(s->driver_calls), hdi_bytes_text(s->mapped_bytes, a),
                hdi_bytes_text(s->ahead_bytes, b), hdi_bytes_text(s->moved_bytes, c),
                hdi_bytes_text(s->returned_bytes, e));
    }
    print_scarcity(out, s);
    if (s->longest_pause_ns) {
        fprintf(out, "  pause     %s at most\n", hdi_duration_text(s->longest_pause_ns, a));
    }
    if (debug || s->double_frees || s->overruns) {
        fprintf(out, "  mistakes  %" PRIu64 " double free%s, %" PRIu64 " overrun%s\n", s->double_frees,
                plural(s->double_frees), s->overruns, plural(s->overruns));
    }
    print_holders(out, d);
}

static void print_leaks(FILE *out, const hdi_leaks *leaks)
{
    char bytes[HDI_AMOUNT_BYTES], site[HDI_SITE_BYTES];
    if (leaks->n == 0) {
        fputs("\nleaks       none\n", out);
        return;
    }
    fputs("\nleaks       buffers that were not freed\n", out);
    for (size_t i = 0; i < leaks->n; i++) {
        const hdi_holder *h = &leaks->list[i];
        if (h->device == HD_DEVICE_HOST) {
            fprintf(out, "  pinned    ");
        } else {
            fprintf(out, "  device %-2d ", h->device);
        }
        fprintf(out, "%10s in %-7" PRIu64 " ", hdi_bytes_text(h->bytes, bytes), h->count);
        if (h->label[0]) {
            fputc('\'', out);
            print_clean(out, h->label, sizeof h->label);
            fputs("' ", out);
        }
        hdi_site_text(h->site, site);
        fputs("from ", out);
        print_clean(out, site, sizeof site);
        fputc('\n', out);
    }
}

void hdi_report_print(FILE *out, const hdi_report *r, const hdi_leaks *leaks)
{
    char date[HDI_AMOUNT_BYTES];
    fputs("memory      process ", out);
    fprintf(out, "%" PRId64 " (", r->pid);
    print_clean(out, r->program, sizeof r->program);
    fputs("), Heddle ", out);
    print_clean(out, r->version, sizeof r->version);
    fputs(", driver ", out);
    print_clean(out, r->driver, sizeof r->driver);
    fputs(", placement ", out);
    print_clean(out, r->placement, sizeof r->placement);
    fprintf(out, ", %s\n", hdi_date_text(r->time, date));
    for (uint32_t i = 0; i < r->n_devices; i++) {
        print_device(out, &r->devices[i], r->debug != 0);
    }
    if (r->findings) {
        fprintf(out, "\nfindings    %" PRIu64 "\n", r->findings);
        for (uint32_t i = 0; i < r->n_findings; i++) {
            fputs("  ", out);
            print_clean(out, r->finding[i].text, sizeof r->finding[i].text);
            fputc('\n', out);
        }
        if (r->findings > r->n_findings) {
            fprintf(out, "  and %" PRIu64 " more\n", r->findings - r->n_findings);
        }
    }
    if (leaks) {
        print_leaks(out, leaks);
    }
}

hd_status hdi_report_write(const hdi_report *report, const hdi_leaks *leaks, hd_report_format format, char **text,
                           size_t *length)
{
    hdi_text t;
    FILE *stream = hdi_text_open(&t);
    if (stream && format == HD_REPORT_JSON) {
        hdi_json j;
        hdi_json_begin(&j, stream);
        hdi_report_put(&j, report, leaks);
        hdi_json_end(&j);
    } else if (stream) {
        hdi_report_print(stream, report, leaks);
    }
    return hdi_text_close(&t, text, length) ? HD_OK
                                            : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a report on memory");
}

void hdi_report_hand_out(const char *text, size_t length, char *out, size_t room, size_t *needed)
{
    if (room) {
        size_t n = length < room - 1 ? length : room - 1;
        memcpy(out, text, n);
        out[n] = 0;
    }
    if (needed) {
        *needed = length + 1;
    }
}
