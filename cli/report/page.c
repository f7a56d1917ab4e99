/* page.c - writes the whole page: its own files with the data between them.
 *
 * Threads: the tool's first. Locks: none.
 * Always: the page's policy forbids all requests, and scripts without this page's nonce. The nonce
 * is random, so no text of a file can contain it.
 */
#include <heddle.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "base/json.h"
#include "cli/common/report.h"
#include "cli/process.h"
#include "cli/report/parts.h"

/* From embed.S. */
extern const char page_html[], page_html_end[], page_css[], page_css_end[], page_js[], page_js_end[];

/* Escapes `<`, which would begin an element, and two characters that end a line in JavaScript
 * but not in JSON. */
void report_page_put_json(FILE *out, const char *id, const char *text, size_t bytes)
{
    fprintf(out, "<script type=\"application/json\" id=\"%s\">", id);
    for (size_t i = 0; i < bytes; i++) {
        bool separator = i + 2 < bytes && memcmp(text + i, "\xe2\x80", 2) == 0 &&
                         ((unsigned char)text[i + 2] == 0xa8 || (unsigned char)text[i + 2] == 0xa9);
        if (text[i] == '<') {
            fputs("\\u003c", out);
        } else if (separator) {
            fputs((unsigned char)text[i + 2] == 0xa8 ? "\\u2028" : "\\u2029", out);
            i += 2;
        } else {
            fputc(text[i], out);
        }
    }
    fputs("</script>\n", out);
}

static const char *report_page_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : cli_file_name(path);
}

static bool report_page_put_list(FILE *out, const page_file *files, int n)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return false;
    }
    hdi_json j;
    hdi_json_begin(&j, memory);
    hdi_json_object(&j);
    cli_report_put_string(&j, "heddle", hd_version());
    hdi_json_key(&j, "files");
    hdi_json_array(&j);
    for (int i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof(id), "file%d", i);
        hdi_json_object(&j);
        cli_report_put_string(&j, "id", id);
        cli_report_put_string(&j, "kind", report_page_kind_text(files[i].kind));
        cli_report_put_string(&j, "name", report_page_base_name(files[i].path));
        hdi_json_object_end(&j);
    }
    hdi_json_array_end(&j);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
    bool ok = fclose(memory) == 0;
    if (ok) {
        report_page_put_json(out, "list", text, bytes);
    }
    free(text);
    return ok;
}

static bool report_page_put_data(FILE *out, const page_file *files, int n)
{
    bool ok = report_page_put_list(out, files, n);
    for (int i = 0; ok && i < n; i++) {
        char id[16];
        snprintf(id, sizeof(id), "file%d", i);
        if (files[i].traced) {
            ok = report_page_put_trace(out, files[i].traced, id);
        } else {
            report_page_put_json(out, id, files[i].text, files[i].bytes);
        }
    }
    return ok && report_page_put_ranks(out, files, n);
}

static bool report_page_make_number(char out[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return false;
    }
    for (int i = 0; i < 16; i++) {
        snprintf(out + (size_t)i * 2, 3, "%02x", bytes[i]);
    }
    return true;
}

/* Replaces each @NAME@ in the page's HTML. */
static bool report_page_put_template(FILE *out, const page_file *files, int n)
{
    char number[33];
    bool ok = report_page_make_number(number);
    for (const char *at = page_html; ok && at < page_html_end;) {
        const char *mark = memchr(at, '@', (size_t)(page_html_end - at));
        const char *end = mark ? memchr(mark + 1, '@', (size_t)(page_html_end - mark - 1)) : NULL;
        fwrite(at, 1, (size_t)((end ? mark : page_html_end) - at), out);
        if (!end) {
            break;
        }
        if (strncmp(mark, "@NUMBER@", 8) == 0) {
            fputs(number, out);
        } else if (strncmp(mark, "@STYLE@", 7) == 0) {
            fwrite(page_css, 1, (size_t)(page_css_end - page_css), out);
        } else if (strncmp(mark, "@SCRIPT@", 8) == 0) {
            fwrite(page_js, 1, (size_t)(page_js_end - page_js), out);
        } else {
            ok = report_page_put_data(out, files, n);
        }
        at = end + 1;
    }
    return ok;
}

char *report_page_make(const page_file *files, int n, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out) {
        return NULL;
    }
    bool ok = report_page_put_template(out, files, n);
    ok = fclose(out) == 0 && ok; /* reports a failed write of an open_memstream */
    if (!ok) {
        free(text);
        return NULL;
    }
    return text;
}
