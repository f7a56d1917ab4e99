/* json.c - the one JSON writer.
 *
 * Threads: one per writer. Locks: none. Always: what was written so far is the beginning of a valid document, if the calls nest. Write
 * errors are the FILE's (ferror).
 */
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

enum { DEPTH_MAX = sizeof((hdi_json *)0)->first / sizeof(bool) };

static void new_line(hdi_json *j)
{
    fputc('\n', j->file);
    for (int i = 0; i < j->depth; i++) {
        fputs("  ", j->file);
    }
}

/* What goes before a value or a key: nothing after a key, else a comma and a line of its own. */
static void before(hdi_json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->depth == 0) {
        return;
    }
    if (!j->first[j->depth - 1]) {
        fputc(',', j->file);
    }
    j->first[j->depth - 1] = false;
    new_line(j);
}

static void open_with(hdi_json *j, char bracket)
{
    before(j);
    assert(j->depth < DEPTH_MAX);
    fputc(bracket, j->file);
    j->first[j->depth++] = true;
}

static void close_with(hdi_json *j, char bracket)
{
    assert(j->depth > 0 && !j->after_key);
    bool empty = j->first[--j->depth];
    if (!empty) {
        new_line(j);
    }
    fputc(bracket, j->file);
}

/* The number of the control character at s, 0: it is none. Some of those behind 0x7f are orders to terminals, too. */
static unsigned control_at(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7f) {
        return s[0];
    }
    return s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? s[1] : 0;
}

static void write_string(FILE *f, const char *value)
{
    fputc('"', f);
    for (const unsigned char *s = (const unsigned char *)value; *s != '\0';) {
        int length = hdi_utf8_length(s);
        if (length == 0) {
            fputs("\\ufffd", f); /* not text: the replacement character */
            s++;
        } else if (*s == '"' || *s == '\\') {
            fputc('\\', f);
            fputc(*s++, f);
        } else if (*s == '\n') {
            fputs("\\n", f);
            s++;
        } else if (*s == '\t') {
            fputs("\\t", f);
            s++;
        } else if (control_at(s) != 0) {
            fprintf(f, "\\u%04x", control_at(s));
            s += length;
        } else {
            fwrite(s, 1, (size_t)length, f);
            s += length;
        }
    }
    fputc('"', f);
}

void hdi_json_begin(hdi_json *j, FILE *file)
{
    memset(j, 0, sizeof *j);
    j->file = file;
}

void hdi_json_object(hdi_json *j)
{
    open_with(j, '{');
}

void hdi_json_object_end(hdi_json *j)
{
    close_with(j, '}');
}

void hdi_json_array(hdi_json *j)
{
    open_with(j, '[');
}

void hdi_json_array_end(hdi_json *j)
{
    close_with(j, ']');
}

void hdi_json_key(hdi_json *j, const char *key)
{
    before(j);
    write_string(j->file, key);
    fputs(": ", j->file);
    j->after_key = true;
}

void hdi_json_string(hdi_json *j, const char *value)
{
    before(j);
    if (value == NULL) {
        fputs("null", j->file);
    } else {
        write_string(j->file, value);
    }
}

void hdi_json_integer(hdi_json *j, int64_t value)
{
    before(j);
    fprintf(j->file, "%lld", (long long)value);
}

void hdi_json_number(hdi_json *j, double value)
{
    before(j);
    if (!isfinite(value)) {
        fputs("null", j->file);
        return;
    }
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    /* the program's locale may have another decimal point */
    for (char *c = text; *c != '\0'; c++) {
        fputc(strchr("0123456789+-e", *c) != NULL ? *c : '.', j->file);
    }
}

void hdi_json_bool(hdi_json *j, bool value)
{
    before(j);
    fputs(value ? "true" : "false", j->file);
}

void hdi_json_end(hdi_json *j)
{
    assert(j->depth == 0);
    fputc('\n', j->file);
    fflush(j->file);
}
