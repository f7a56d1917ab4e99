/* close.c - the report at hd_close, where the option `stats` asks for it. With memory_debug it lists the leaks, which become findings, too.
 *
 * Threads: the one that closes.
 * Locks: those of report.c.
 * Blocking: while a pipe accepts nothing, for at most the option close_timeout.
 * Always: nothing is written unless `stats` or memory_debug=report asks for it. A broken pipe raises no signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/file.h"
#include "stats/report.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Makes a JSON object one line. Line breaks and the blanks behind them are only layout, since strings have them escaped. */
static size_t join_lines(char *text, size_t length)
{
    size_t kept = 0;
    for (size_t i = 0; i < length;) {
        if (text[i] == '\n') {
            i += 1 + strspn(text + i + 1, " ");
        } else {
            text[kept++] = text[i++];
        }
    }
    text[kept++] = '\n'; /* in place of the last line break */
    return kept;
}

static hd_status write_report(hd_runtime *rt, const hdi_report *report, const hdi_leaks *leaks)
{
    const char *where = rt->options.stats;
    bool json = ends_with(where, ".json");
    char *text = NULL;
    size_t length = 0;
    hd_status status = hdi_report_write(report, leaks, json ? HD_REPORT_JSON : HD_REPORT_TEXT, &text, &length);
    if (status) {
        return status;
    }
    if (json) {
        length = join_lines(text, length);
    }
    int64_t deadline = hdi_option_deadline(rt->options.close_timeout);
    bool to_stderr = strcmp(where, "1") == 0;
    /* O_NONBLOCK: a pipe must not block */
    int descriptor = to_stderr ? STDERR_FILENO
                               : open(where, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    bool ok = descriptor >= 0 && hdi_write_quietly(descriptor, text, length, deadline);
    if (!ok) {
        status = hdi_fail(HD_ERROR_SYSTEM, "the report on memory was not written (option stats=%s): %s", where,
                          strerror(errno));
    }
    if (descriptor >= 0 && !to_stderr && close(descriptor) != 0 && ok) {
        status = hdi_fail(HD_ERROR_SYSTEM, "the report on memory was not written (option stats=%s): %s", where,
                          strerror(errno));
    }
    free(text);
    return status;
}

/* Fails with the message about leaks, which names the largest. */
static hd_status fail_leaks(const hdi_leaks *leaks)
{
    uint64_t bytes = 0, count = 0;
    const hdi_holder *largest = &leaks->list[0];
    for (size_t i = 0; i < leaks->n; i++) {
        bytes += leaks->list[i].bytes;
        count += leaks->list[i].count;
        largest = leaks->list[i].bytes > largest->bytes ? &leaks->list[i] : largest;
    }
    char all[HDI_AMOUNT_BYTES], most[HDI_AMOUNT_BYTES], site[HDI_SITE_BYTES];
    hdi_site_text(largest->site, site);
    bool named = largest->label[0] != 0;
    return hdi_fail(HD_ERROR_ACCESS,
                    "%" PRIu64 " buffer%s of %s %s not freed; the most: %" PRIu64 " of %s, %s%.*s%sfrom %s", count,
                    count == 1 ? "" : "s", hdi_bytes_text(bytes, all), count == 1 ? "was" : "were", largest->count,
                    hdi_bytes_text(largest->bytes, most), named ? "'" : "", (int)sizeof largest->label, largest->label,
                    named ? "' " : "", site);
}

static void report_leaks(hd_runtime *rt, const hdi_leaks *leaks)
{
    uint64_t buffers = 0, bytes = 0;
    for (size_t i = 0; i < leaks->n; i++) {
        const hdi_holder *h = &leaks->list[i];
        hd_finding leak = {.device = h->device, .bytes = h->bytes, .count = h->count, .call_site = h->site};
        memcpy(leak.label, h->label, sizeof leak.label);
        hdi_findings_leak(rt, &leak, i);
        buffers += h->count;
        bytes += h->bytes;
    }
    hdi_findings_end(rt, buffers, bytes);
}

void hdi_report_at_close(hd_runtime *rt, hd_error *message)
{
    bool wanted = strcmp(rt->options.stats, "0") != 0 && rt->options.stats[0] != 0;
    bool debug = rt->findings != NULL;
    if (!wanted && !debug) {
        return;
    }
    hdi_holder *list = NULL;
    size_t n = 0;
    hd_status status = debug ? hdi_holders_collect(rt, HDI_LEAKS, &list, &n) : HD_OK;
    hdi_leaks leaks = {list, n};
    if (!status && wanted) {
        hdi_report *report = calloc(1, sizeof *report);
        status = report ? hdi_report_collect(rt, true, report)
                        : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the report on memory");
        status = status ? status : write_report(rt, report, debug ? &leaks : NULL);
        free(report);
    }
    if (n) {
        status = fail_leaks(&leaks);
    }
    if (debug) {
        report_leaks(rt, &leaks);
    }
    if (status) {
        hdi_error_get(message);
    }
    free(list);
}
