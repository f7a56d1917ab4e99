/* findings.c - what memory_debug has found: the list, the callback, and the lines.
 *
 * Threads, locks: see findings.h.
 * Blocking: a line waits up to LINE_WAIT_NS for a pipe, and a finding for the program's callback.
 * Always: findings are counted until hd_close. The first HDI_REPORT_FINDINGS are kept as text.
 */
#include "kinds/findings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/wait.h"
#include "buffer/counts.h"
#include "buffer/hook.h"
#include "engine/engine.h"

#define LINES_MOST 1000                  /* a program that makes findings in a loop must not fill the disk */
#define LINE_WAIT_NS INT64_C(1000000000) /* a line is lost where a pipe accepts nothing for so long */
#define KINDS (HD_FINDING_LEAK + 1)

struct hdi_findings {
    hdi_mutex lock;
    uint64_t count, of_kind[KINDS];
    hdi_finding list[HDI_REPORT_FINDINGS];
    hdi_hook hook;
    _Atomic uint64_t pinned_double_frees;
    int descriptor;         /* where lines go; -1: nowhere */
    _Atomic uint64_t lines; /* written so far */
};

static _Thread_local bool inside;

/* Opens the file for the lines. -1: failed, with a message. */
static int open_lines(const char *path)
{
    if (path[0] == 0) {
        return STDERR_FILENO;
    }
    /* O_NONBLOCK: a pipe must not block */
    int descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (descriptor < 0) {
        hdi_fail(HD_ERROR_SYSTEM, "option memory_debug_file=%s: %s; name a file that can be written", path,
                 strerror(errno));
    }
    return descriptor;
}

hd_status hdi_findings_create(hd_runtime *rt)
{
    int descriptor = -1;
    if (rt->options.memory_debug == HDI_MEMORY_DEBUG_REPORT) {
        descriptor = open_lines(rt->options.memory_debug_file);
        if (descriptor < 0) {
            return HD_ERROR_SYSTEM;
        }
    }
    struct hdi_findings *f = calloc(1, sizeof *f);
    if (!f) {
        if (descriptor > STDERR_FILENO) {
            close(descriptor);
        }
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&f->lock, HDI_RANK_FINDINGS);
    hdi_hook_init(&f->hook, NULL, NULL);
    f->descriptor = descriptor;
    rt->findings = f;
    return HD_OK;
}

void hdi_findings_release(hd_runtime *rt)
{
    struct hdi_findings *f = rt->findings;
    if (f) {
        if (f->descriptor >= 0 && rt->options.memory_debug_file[0] != 0) {
            close(f->descriptor);
        }
        hdi_hook_destroy(&f->hook);
        hdi_mutex_destroy(&f->lock);
        free(f);
        rt->findings = NULL;
    }
}

uint32_t hdi_findings_copy(hd_runtime *rt, hdi_finding out[HDI_REPORT_FINDINGS], uint64_t *count)
{
    struct hdi_findings *f = rt->findings;
    uint32_t n = 0;
    *count = 0;
    if (f) {
        hdi_mutex_lock(&f->lock);
        *count = f->count;
        n = (uint32_t)(f->count < HDI_REPORT_FINDINGS ? f->count : HDI_REPORT_FINDINGS);
        memcpy(out, f->list, n * sizeof f->list[0]);
        hdi_mutex_unlock(&f->lock);
    }
    return n;
}

uint64_t hdi_findings_of_pinned(hd_runtime *rt)
{
    return rt->findings ? atomic_load_explicit(&rt->findings->pinned_double_frees, memory_order_relaxed) : 0;
}

/* ---- lines ---- */

static void write_line(const struct hdi_findings *f, const char *text)
{
    char line[640];
    int n = snprintf(line, sizeof line, "heddle: memory_debug: %s", text);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    line[length] = '\n';
    hdi_write_quietly(f->descriptor, line, length + 1, hdi_clock_ns() + LINE_WAIT_NS);
}

static void report(struct hdi_findings *f, const char *text)
{
    if (f->descriptor < 0) {
        return;
    }
    uint64_t lines = atomic_fetch_add_explicit(&f->lines, 1, memory_order_relaxed);
    if (lines < LINES_MOST) {
        write_line(f, text);
    } else if (lines == LINES_MOST) {
        write_line(f, "further findings are only counted");
    }
}

/* Writes a count such as "2 double frees, ". */
static size_t put_count(char *out, size_t room, uint64_t count, const char *kind, const char *rest)
{
    int n = count ? snprintf(out, room, "%" PRIu64 " %s%s%s, ", count, kind, count == 1 ? "" : "s", rest) : 0;
    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static void summarize(struct hdi_findings *f, uint64_t buffers, uint64_t bytes)
{
    char text[256] = "", unfreed[HDI_AMOUNT_BYTES];
    hdi_mutex_lock(&f->lock);
    size_t n = put_count(text, sizeof text, f->of_kind[HD_FINDING_OVERRUN], "overrun", "");
    n += put_count(text + n, sizeof text - n, f->of_kind[HD_FINDING_DOUBLE_FREE], "double free", "");
    n += put_count(text + n, sizeof text - n, f->of_kind[HD_FINDING_USE_AFTER_FREE], "use", " after free");
    hdi_mutex_unlock(&f->lock);
    if (buffers) {
        snprintf(text + n, sizeof text - n, "%" PRIu64 " buffer%s of %s not freed", buffers, buffers == 1 ? "" : "s",
                 hdi_bytes_text(bytes, unfreed));
    } else if (n) {
        text[n - 2] = 0; /* without the last comma */
    }
    char line[320];
    snprintf(line, sizeof line, "until hd_close: %s", text[0] ? text : "nothing was found");
    write_line(f, line);
}

/* ---- reports of a finding ---- */

static void tell(struct hdi_findings *f, const hd_finding *what)
{
    report(f, what->message);
    hdi_installed *now = inside ? NULL : hdi_hook_enter(&f->hook);
    if (now) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        HDI_SIZED_TOLD(hd_finding) told = {.known = *what};
        inside = true;
        hdi_apart apart = hdi_presence_apart();
        ((hd_finding_callback)now->function)(now->context, &told.known);
        hdi_presence_together(apart);
        inside = false;
        hdi_hook_leave(&f->hook, now);
        hdi_attempt_end(&attempt);
    }
}

/* Copies the thread's last message, which is one line without control characters. */
static void put_message(hd_finding *finding)
{
    memcpy(finding->message, hd_message(), strnlen(hd_message(), sizeof finding->message - 1));
}

void hdi_findings_note(hd_runtime *rt, const hd_finding *what)
{
    struct hdi_findings *f = rt->findings;
    hd_finding finding = *what;
    finding.size = sizeof finding;
    put_message(&finding);
    hdi_finding kept = {.kind = (int32_t)finding.kind, .device = finding.device};
    memcpy(kept.text, finding.message, strnlen(finding.message, sizeof kept.text - 1));
    if (finding.kind == HD_FINDING_DOUBLE_FREE && finding.device == HD_DEVICE_HOST) {
        hdi_counts_add(&f->pinned_double_frees, 1);
    }
    hdi_mutex_lock(&f->lock);
    if (f->count < HDI_REPORT_FINDINGS) {
        f->list[f->count] = kept;
    }
    finding.number = ++f->count;
    f->of_kind[finding.kind]++;
    hdi_mutex_unlock(&f->lock);
    tell(f, &finding);
}

void hdi_findings_leak(hd_runtime *rt, const hd_finding *leak, size_t index)
{
    struct hdi_findings *f = rt->findings;
    hd_finding finding = *leak;
    finding.size = sizeof finding;
    finding.kind = HD_FINDING_LEAK;
    finding.number = f->count + index + 1;
    bool one = finding.count == 1, named = finding.label[0] != 0;
    char site[HDI_SITE_BYTES];
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_site_text(finding.call_site, site);
    hdi_fail(HD_ERROR_ACCESS, "%" PRIu64 " buffer%s of %s %s not freed: %s%s%sallocated by %s", finding.count,
             one ? "" : "s", HDI_BYTES(finding.bytes), one ? "was" : "were", named ? "'" : "", finding.label,
             named ? "', " : "", site);
    put_message(&finding);
    tell(f, &finding);
    hdi_attempt_end(&attempt);
}

void hdi_findings_end(hd_runtime *rt, uint64_t leaked_buffers, uint64_t leaked_bytes)
{
    if (rt->findings->descriptor >= 0) {
        summarize(rt->findings, leaked_buffers, leaked_bytes);
    }
}

hd_status hd_memory_on_finding(hd_runtime *rt, hd_finding_callback callback, void *context)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (inside) {
        return hdi_fail(HD_ERROR_ARGUMENT, "called from the callback itself");
    }
    if (rt->findings && !hdi_hook_install(&rt->findings->hook, (hdi_hooked)callback, context)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    return HD_OK;
}
