/* json_read.c - the one JSON reader: one pass over a copy of the text, with the open arrays and
 * objects in a list of fixed length.
 *
 * Strings stay in place in the copy, because the characters of an escape are never longer than the
 * escape.
 * Threads: any; one per document. Locks: none.
 */
#include "base/json_read.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

typedef struct reader {
    char *at, *end; /* places in the copy, which ends with a zero */
    int line;
    hdi_json_value *values; /* room for all values that the text can contain */
    size_t used;
    /* the unfinished arrays and objects, and the latest element of each */
    hdi_json_value *open[HDI_JSON_DEPTH], *last[HDI_JSON_DEPTH];
    int depth;
    locale_t plain; /* the decimal point of the program's locale may differ */
    char *error;
} reader;

static bool json_refuse(reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool json_refuse(reader *r, const char *format, ...)
{
    va_list arguments;
    int used = snprintf(r->error, HDI_JSON_ERROR_BYTES, "line %d: ", r->line);
    va_start(arguments, format);
    vsnprintf(r->error + used, HDI_JSON_ERROR_BYTES - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

/* The largest number of values that a text can contain: one for the document, one for each opening
 * bracket, and one for each comma. */
static size_t json_count_values(const char *text, size_t bytes)
{
    size_t n = 1;
    bool inside = false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') {
            inside = !inside;
        } else if (inside && text[i] == '\\') {
            i++;
        } else {
            n += !inside && (text[i] == ',' || text[i] == '[' || text[i] == '{');
        }
    }
    return n;
}

static void json_skip_space(reader *r)
{
    for (; *r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'; r->at++) {
        r->line += *r->at == '\n';
    }
}

/* ---- strings ---- */

/* Reads four hexadecimal digits; -1: the text there is something else. */
static long json_read_hex4(const char *at)
{
    long value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static char *json_put_utf8(char *out, long code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        if (code < 0x10000) {
            *out++ = (char)(0xe0 | code >> 12);
        } else {
            *out++ = (char)(0xf0 | code >> 18);
            *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        }
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* Reads the character of "\uXXXX" or of a pair of them, behind the backslash at r->at. -1:
 * refused. */
static long json_read_code(reader *r)
{
    long code = json_read_hex4(r->at + 1);
    if (code <= 0) {
        json_refuse(r, code == 0 ? "a string has the character 0" : "\\u without four hexadecimal digits");
        return -1;
    }
    r->at += 5;
    if (code >= 0xd800 && code < 0xe000) {
        long low = code < 0xdc00 && r->at[0] == '\\' && r->at[1] == 'u' ? json_read_hex4(r->at + 2) : -1;
        if (low < 0xdc00 || low >= 0xe000) {
            json_refuse(r, "half of a surrogate pair");
            return -1;
        }
        r->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    return code;
}

/* Writes the characters of the escape at r->at, and moves *out behind them. */
static bool json_read_escape(reader *r, char **out)
{
    static const char letters[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    r->at++;
    if (*r->at == 'u') {
        long code = json_read_code(r);
        if (code < 0) {
            return false;
        }
        *out = json_put_utf8(*out, code);
        return true;
    }
    const char *letter = *r->at ? strchr(letters, *r->at) : NULL;
    if (!letter) {
        return json_refuse(r, "a backslash with nothing that it can stand before");
    }
    *(*out)++ = meaning[letter - letters];
    r->at++;
    return true;
}

/* The text between the quotes at r->at, in place. NULL: refused. */
static const char *json_read_string(reader *r)
{
    char *first = ++r->at, *out = first;
    while (*r->at != '"') {
        unsigned char c = (unsigned char)*r->at;
        if (r->at >= r->end) {
            json_refuse(r, "a string has no end");
            return NULL;
        }
        if (c == '\\') {
            if (!json_read_escape(r, &out)) {
                return NULL;
            }
            continue;
        }
        int length = c < 0x20 ? 0 : hdi_utf8_length((const unsigned char *)r->at);
        if (length == 0) {
            json_refuse(r, "a string has the byte 0x%02x, which is no text", c);
            return NULL;
        }
        memmove(out, r->at, (size_t)length);
        out += length;
        r->at += length;
    }
    r->at++;
    *out = 0; /* `out` is at the closing quote, or before it */
    return first;
}

/* ---- numbers and words ---- */

static char *json_skip_digits(char *at)
{
    while (*at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}

static bool json_read_number(reader *r, hdi_json_value *v)
{
    char *first = r->at, *digits = first + (*first == '-'), *at = json_skip_digits(digits);
    bool good = at > digits && (*digits != '0' || at == digits + 1), whole = true;
    if (good && *at == '.') {
        digits = at + 1;
        at = json_skip_digits(digits);
        good = at > digits;
        whole = false;
    }
    if (good && (*at == 'e' || *at == 'E')) {
        digits = at + 1 + (at[1] == '+' || at[1] == '-');
        at = json_skip_digits(digits);
        good = at > digits;
        whole = false;
    }
    if (!good) {
        return json_refuse(r, "neither a value nor a number as JSON has them");
    }
    v->kind = HDI_JSON_NUMBER;
    v->number = strtod_l(first, NULL, r->plain);
    if (!isfinite(v->number)) {
        return json_refuse(r, "a number that is too large");
    }
    errno = 0;
    v->integer = whole ? strtoll(first, NULL, 10) : 0;
    v->is_integer = whole && errno == 0;
    r->at = at;
    return true;
}

static bool json_read_word(reader *r, hdi_json_value *v)
{
    static const struct {
        const char *text;
        hdi_json_kind kind;
        bool boolean;
    } words[] = {{"null", HDI_JSON_NULL, false}, {"true", HDI_JSON_BOOL, true}, {"false", HDI_JSON_BOOL, false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i].text);
        if (strncmp(r->at, words[i].text, length) == 0) {
            v->kind = words[i].kind;
            v->boolean = words[i].boolean;
            r->at += length;
            return true;
        }
    }
    return json_read_number(r, v);
}

/* ---- structure ---- */

/* Makes the value behind the last element of the innermost open array or object. */
static hdi_json_value *json_add_value(reader *r, const char *key)
{
    hdi_json_value *v = &r->values[r->used++];
    *v = (hdi_json_value){.kind = HDI_JSON_NULL, .line = r->line, .key = key};
    if (r->depth > 0) {
        hdi_json_value *parent = r->open[r->depth - 1], **last = &r->last[r->depth - 1];
        if (*last) {
            (*last)->next = v;
        } else {
            parent->first = v;
        }
        *last = v;
        parent->count++;
    }
    return v;
}

/* Reads a value at r->at; of an array or an object it reads only the bracket. */
static bool json_read_value(reader *r, const char *key)
{
    if (*r->at == ']' || *r->at == '}' || *r->at == ',' || r->at >= r->end) {
        return json_refuse(r, "a value is missing");
    }
    hdi_json_value *v = json_add_value(r, key);
    if (*r->at == '"') {
        v->kind = HDI_JSON_STRING;
        v->text = json_read_string(r);
        return v->text != NULL;
    }
    if (*r->at != '[' && *r->at != '{') {
        return json_read_word(r, v);
    }
    if (r->depth == HDI_JSON_DEPTH) {
        return json_refuse(r, "more than %d arrays and objects in each other", HDI_JSON_DEPTH);
    }
    v->kind = *r->at++ == '[' ? HDI_JSON_ARRAY : HDI_JSON_OBJECT;
    r->open[r->depth] = v;
    r->last[r->depth++] = NULL;
    return true;
}

/* Reads on in the innermost open array or object: its end, or an element with the comma and the key
 * before it. */
static bool json_read_next(reader *r)
{
    const hdi_json_value *parent = r->open[r->depth - 1];
    const char *key = NULL;
    char close = parent->kind == HDI_JSON_ARRAY ? ']' : '}';
    json_skip_space(r);
    if (*r->at == close) {
        r->at++;
        r->depth--;
        return true;
    }
    if (parent->count > 0) {
        if (*r->at != ',') {
            return json_refuse(r, "a comma or %c is missing", close);
        }
        r->at++;
        json_skip_space(r);
    }
    if (close == '}') {
        if (*r->at != '"') {
            return json_refuse(r, "the name of a member is missing");
        }
        key = json_read_string(r);
        if (!key) {
            return false;
        }
        json_skip_space(r);
        if (*r->at != ':') {
            return json_refuse(r, "a colon is missing");
        }
        r->at++;
        json_skip_space(r);
    }
    return json_read_value(r, key);
}

static bool json_read_document(reader *r)
{
    json_skip_space(r);
    bool good = json_read_value(r, NULL);
    while (good && r->depth > 0) {
        good = json_read_next(r);
    }
    if (good) {
        json_skip_space(r);
        good = r->at == r->end || json_refuse(r, "something follows the document");
    }
    return good;
}

bool hdi_json_read(const char *text, size_t bytes, hdi_json_tree *out)
{
    memset(out, 0, sizeof *out);
    size_t values = json_count_values(text, bytes);
    reader r = {.line = 1, .error = out->error};
    if (values <= (SIZE_MAX - bytes - 1) / sizeof(hdi_json_value)) {
        r.values = malloc(values * sizeof(hdi_json_value) + bytes + 1);
        r.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    }
    if (!r.values || !r.plain) {
        snprintf(out->error, sizeof out->error, "no host memory for a document of %zu bytes", bytes);
    } else {
        r.at = (char *)(r.values + values);
        r.end = r.at + bytes;
        memcpy(r.at, text, bytes);
        *r.end = 0;
        if (json_read_document(&r)) {
            out->root = out->memory = r.values;
            r.values = NULL;
        }
    }
    if (r.plain) {
        freelocale(r.plain);
    }
    free(r.values);
    return out->root != NULL;
}

void hdi_json_release(hdi_json_tree *tree)
{
    free(tree->memory);
    memset(tree, 0, sizeof *tree);
}

const hdi_json_value *hdi_json_member(const hdi_json_value *object, const char *key)
{
    if (!object || object->kind != HDI_JSON_OBJECT) {
        return NULL;
    }
    const hdi_json_value *v = object->first;
    while (v && strcmp(v->key, key) != 0) {
        v = v->next;
    }
    return v;
}
