/* files.c - recognises each file of a report by its content, and converts it to JSON.
 *
 * Threads: the tool's first. Locks: none.
 * Always: a file is opened once, because it may be a pipe. The strict reader has checked all JSON
 * that is kept, so the page need not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_read.h"
#include "cli/doctor/report.h"
#include "cli/process.h"
#include "cli/report/parts.h"

const char *report_page_kind_text(page_kind kind)
{
    static const char *const texts[PAGE_KINDS] = {"trace", "p2p", "bench", "doctor", "info"};
    return texts[kind];
}

static bool report_page_file_is_trace(const char *content, size_t bytes)
{
    hdi_record first;
    if (bytes < sizeof(first)) {
        return false;
    }
    memcpy(&first, content, sizeof(first));
    return first.type == HDI_RECORD_TRACE && first.trace.magic == HDI_RECORD_MAGIC;
}

static bool report_page_file_value_is_kind(const hdi_json_value *value, hdi_json_kind kind)
{
    return value && value->kind == kind;
}

/* True for a list of objects, the format of some results. */
static bool report_page_file_is_rows(const hdi_json_value *root)
{
    return report_page_file_value_is_kind(root, HDI_JSON_ARRAY) &&
           report_page_file_value_is_kind(root->first, HDI_JSON_OBJECT);
}

static bool report_page_file_is_snapshot(const hdi_json_value *root)
{
    return hdi_json_member(root, "heddle_snapshot") != NULL;
}

/* Decides by the object's members. PAGE_KINDS: a report cannot show the file. */
static page_kind report_page_file_kind_of(const hdi_json_value *root)
{
    const hdi_json_value *benchmark = hdi_json_member(root, "benchmark");
    /* a single object of a list of results */
    if (report_page_file_value_is_kind(hdi_json_member(root, "peer"), HDI_JSON_STRING)) {
        return PAGE_BENCH;
    }
    if (report_page_file_value_is_kind(benchmark, HDI_JSON_STRING)) {
        bool pairs = report_page_file_value_is_kind(hdi_json_member(root, "pairs"), HDI_JSON_ARRAY);
        return strcmp(benchmark->text, "p2p") == 0 && pairs ? PAGE_P2P : PAGE_BENCH;
    }
    if (report_page_file_value_is_kind(hdi_json_member(root, "findings"), HDI_JSON_ARRAY)) {
        return PAGE_DOCTOR;
    }
    if (report_page_file_value_is_kind(hdi_json_member(root, "machine"), HDI_JSON_OBJECT) &&
        report_page_file_value_is_kind(hdi_json_member(root, "options"), HDI_JSON_ARRAY)) {
        return PAGE_INFO;
    }
    return report_page_file_is_rows(root) ? PAGE_BENCH : PAGE_KINDS;
}

/* Converts a file with one JSON object in each line to an array. False: a line is invalid. */
static bool report_page_file_read_lines(const char *text, size_t bytes, char **out, size_t *out_bytes)
{
    bool ok = true;
    size_t n = 0;
    FILE *memory = open_memstream(out, out_bytes);
    if (!memory) {
        return false;
    }
    fputc('[', memory);
    for (const char *line = text, *end = text + bytes; ok && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        if (length > strspn(line, " \t\r")) { /* the text ends with a zero, which stops strspn */
            hdi_json_tree tree = {0};
            ok = hdi_json_read(line, length, &tree) && tree.root->kind == HDI_JSON_OBJECT;
            hdi_json_release(&tree);
            fputs(n++ > 0 ? ",\n" : "", memory);
            fwrite(line, 1, length, memory);
        }
        line += length + 1;
    }
    fputc(']', memory);
    ok = fclose(memory) == 0 && ok && n > 0;
    if (!ok) {
        free(*out);
        *out = NULL;
    }
    return ok;
}

/* Prints the JSON of `heddle doctor --from`. False: the snapshot is invalid, or memory ran out;
 * `error` gives the reason. */
static bool report_page_file_judge_snapshot(page_file *file, const char *content, size_t bytes, char *error)
{
    char reason[DOCTOR_ERROR_BYTES];
    doctor_snapshot s = {0};
    doctor_findings found;
    if (!doctor_read(&s, content, bytes, reason)) {
        snprintf(error, PAGE_ERROR,
                 "%.200s: is no snapshot that this tool reads (%.200s); give a file of `heddle doctor --snapshot`",
                 cli_file_name(file->path), reason);
        return false;
    }
    FILE *memory = open_memstream(&file->text, &file->bytes);
    bool ok = memory != NULL;
    if (ok) {
        doctor_judge(&s, &found);
        doctor_print_json(&s, &found, memory);
        doctor_findings_release(&found);
        ok = fclose(memory) == 0;
    }
    doctor_release(&s);
    file->kind = PAGE_DOCTOR;
    if (!ok) {
        snprintf(error, PAGE_ERROR, "%.200s: no memory is left for its findings; give fewer files",
                 cli_file_name(file->path));
    }
    return ok;
}

/* Always returns false. */
static bool report_page_file_put_unknown(const page_file *file, const char *reason, char *error)
{
    snprintf(
        error, PAGE_ERROR,
        "%.200s: is no trace and no JSON that a report shows (%s); give a file of HEDDLE_TRACE, `heddle p2p --json`, "
        "`heddle bench --json`, `heddle doctor --json`, or a snapshot of `heddle doctor`",
        cli_file_name(file->path), reason);
    return false;
}

/* Frees `content` in any case. */
static bool report_page_file_read_json(page_file *file, char *content, size_t bytes, char *error)
{
    hdi_json_tree tree = {0};
    bool whole = hdi_json_read(content, bytes, &tree);
    bool snapshot = whole && report_page_file_is_snapshot(tree.root);
    file->kind = whole ? report_page_file_kind_of(tree.root) : PAGE_KINDS;
    char reason[sizeof(tree.error)];
    snprintf(reason, sizeof(reason), "%s", tree.error);
    hdi_json_release(&tree);
    if (snapshot) {
        bool judged = report_page_file_judge_snapshot(file, content, bytes, error);
        free(content);
        return judged;
    }
    if (file->kind != PAGE_KINDS) {
        file->text = content;
        file->bytes = bytes;
        return true;
    }
    if (!whole && report_page_file_read_lines(content, bytes, &file->text, &file->bytes)) {
        file->kind = PAGE_BENCH;
        free(content);
        return true;
    }
    free(content);
    return report_page_file_put_unknown(file, whole ? "it has no member that tells its kind" : reason, error);
}

/* True if a report may show a file that begins with these bytes. Other files are not read on, since
 * reading a device might never end. */
static bool report_page_file_may_be_shown(const void *begin, size_t bytes, void *unused)
{
    const char *text = begin;
    size_t at = 0;
    (void)unused;
    while (at < bytes && memchr(" \t\r\n", text[at], 4)) {
        at++;
    }
    return report_page_file_is_trace(begin, bytes) || at == bytes || text[at] == '{' || text[at] == '[';
}

static bool report_page_file_read(page_file *file, char *error)
{
    size_t bytes = 0;
    char *content = cli_read_file_if(file->path, &bytes, sizeof(hdi_record), report_page_file_may_be_shown, NULL);
    if (!content && errno == 0) {
        return report_page_file_put_unknown(file, "it begins like neither of them", error);
    }
    if (!content) {
        snprintf(error, PAGE_ERROR, "%.200s: cannot be read: %s", cli_file_name(file->path), strerror(errno));
        return false;
    }
    if (!report_page_file_is_trace(content, bytes)) {
        return report_page_file_read_json(file, content, bytes, error);
    }
    file->text = content;
    file->bytes = bytes;
    file->kind = PAGE_TRACE; /* analysed once the rates of `heddle p2p` are known */
    return true;
}

/* Analyses the trace, and frees the records that it replaces. */
static bool report_page_file_analyse_trace(page_file *file, const trace_peaks *peaks, char *error)
{
    trace *t = cli_allocate(sizeof(trace));
    bool ok = trace_read_content(file->path, file->text, file->bytes, peaks, t, error);
    free(file->text);
    file->text = NULL;
    if (!ok) {
        free(t);
        return false;
    }
    file->traced = t;
    return true;
}

bool report_page_read_files(page_file *out, int n, char error[PAGE_ERROR])
{
    trace_peaks peaks = {0};
    for (int i = 0; i < n; i++) {
        if (!report_page_file_read(&out[i], error)) {
            return false;
        }
        if (out[i].kind == PAGE_P2P && !peaks.text) {
            peaks = (trace_peaks){.file = cli_file_name(out[i].path), .text = out[i].text, .bytes = out[i].bytes};
        }
    }
    for (int i = 0; i < n; i++) {
        if (out[i].kind == PAGE_TRACE && !report_page_file_analyse_trace(&out[i], peaks.text ? &peaks : NULL, error)) {
            return false;
        }
    }
    return true;
}

void report_page_release_files(page_file *files, int n)
{
    for (int i = 0; i < n; i++) {
        free(files[i].text);
        if (files[i].traced) {
            trace_release(files[i].traced);
            free(files[i].traced);
        }
    }
}
