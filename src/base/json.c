/* json.c - the one JSON writer.
 *
 * Threads: one per writer. Locks: none. Always: if the calls nest correctly, the output so far is
 * the beginning of a valid document. The FILE keeps write errors (ferror).
 */
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

enum { DEPTH_MAX = sizeof((hdi_json *)0)->first / sizeof(bool) };

static void json_new_line(hdi_json *j)
{
    fputc('\n', j->file);
    for (int i = 0; i < j->depth; i++) {
        fputs("  ", j->file);
    }
}

/* Writes the text before a value or a key: nothing behind a key, otherwise a comma and a new
 * line. */
static void json_separate(hdi_json *j)
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
    json_new_line(j);
}

static void json_open_bracket(hdi_json *j, char bracket)
{
    json_separate(j);
    assert(j->depth < DEPTH_MAX);
    fputc(bracket, j->file);
    j->first[j->depth++] = true;
}

static void json_close_bracket(hdi_json *j, char bracket)
{
    assert(j->depth > 0 && !j->after_key);
    bool empty = j->first[--j->depth];
    if (!empty) {
        json_new_line(j);
    }
    fputc(bracket, j->file);
}

/* The number of the control character at s; 0: there is none. Some characters behind 0x7f control
 * terminals, too. */
static unsigned json_control_at(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7f) {
        return s[0];
    }
    return s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? s[1] : 0;
}

static void json_write_string(FILE *f, const char *value)
{
    fputc('"', f);
    for (const unsigned char *s = (const unsigned char *)value; *s != '\0';) {
        int length = hdi_utf8_length(s);
        if (length == 0) {
            /* the bytes are no text, so the replacement character stands for them */
            fputs("\\ufffd", f);
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
        } else if (json_control_at(s) != 0) {
            fprintf(f, "\\u%04x", json_control_at(s));
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
    json_open_bracket(j, '{');
}

void hdi_json_object_end(hdi_json *j)
{
    json_close_bracket(j, '}');
}

void hdi_json_array(hdi_json *j)
{
    json_open_bracket(j, '[');
}

void hdi_json_array_end(hdi_json *j)
{
    json_close_bracket(j, ']');
}

void hdi_json_key(hdi_json *j, const char *key)
{
    json_separate(j);
    json_write_string(j->file, key);
    fputs(": ", j->file);
    j->after_key = true;
}

void hdi_json_string(hdi_json *j, const char *value)
{
    json_separate(j);
    if (value == NULL) {
        fputs("null", j->file);
    } else {
        json_write_string(j->file, value);
    }
}

void hdi_json_integer(hdi_json *j, int64_t value)
{
    json_separate(j);
    fprintf(j->file, "%lld", (long long)value);
}

void hdi_json_number(hdi_json *j, double value)
{
    json_separate(j);
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
    /* the decimal point of the program's locale may differ */
    for (char *c = text; *c != '\0'; c++) {
        fputc(strchr("0123456789+-e", *c) != NULL ? *c : '.', j->file);
    }
}

void hdi_json_bool(hdi_json *j, bool value)
{
    json_separate(j);
    fputs(value ? "true" : "false", j->file);
}

void hdi_json_end(hdi_json *j)
{
    assert(j->depth == 0);
    fputc('\n', j->file);
    fflush(j->file);
}
