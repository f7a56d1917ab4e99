/* json.h - a strict JSON reader for tests: checks that a text is one document, and reads values at
 * paths.
 *
 * A path looks like "devices.0.live_bytes". Threads: any. Locks: none. Allocates nothing.
 */
#ifndef TEST_SUPPORT_JSON_H
#define TEST_SUPPORT_JSON_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_UNUSED __attribute__((unused))

/* Each function moves *at past the thing in its name, or returns false if there is none. */
static bool json_value(const char **at, int depth);

/* A loop instead of strspn: with strict_string_checks the address sanitizer scans the whole text in
 * each strspn. */
static void json_space(const char **at)
{
    while (**at == ' ' || **at == '\t' || **at == '\n' || **at == '\r') {
        ++*at;
    }
}

static bool json_hex4(const char *at)
{
    int n = 0;
    while (n < 4 && isxdigit((unsigned char)at[n])) {
        n++;
    }
    return n == 4;
}

static bool json_text(const char **at)
{
    const char *s = *at;
    if (*s++ != '"') {
        return false;
    }
    for (; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20) {
            return false; /* also the end of the text */
        }
        if (*s == '\\') {
            s++;
            if (*s == 'u') {
                if (!json_hex4(s + 1)) {
                    return false;
                }
                s += 4;
            } else if (*s == 0 || strchr("\"\\/bfnrt", *s) == NULL) {
                return false;
            }
        }
    }
    *at = s + 1;
    return true;
}

static bool json_digits(const char **at)
{
    const char *first = *at;
    while (**at >= '0' && **at <= '9') {
        ++*at;
    }
    return *at > first;
}

static bool json_number(const char **at)
{
    const char *s = *at;
    s += *s == '-';
    const char *first = s;
    if (!json_digits(&s) || (*first == '0' && s - first > 1)) {
        return false;
    }
    if (*s == '.') {
        s++;
        if (!json_digits(&s)) {
            return false;
        }
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        if (!json_digits(&s)) {
            return false;
        }
    }
    *at = s;
    return true;
}

static bool json_word(const char **at, const char *word)
{
    size_t n = strlen(word);
    bool same = strncmp(*at, word, n) == 0;
    *at += same ? n : 0;
    return same;
}

/* Reads the elements of an object or array, and the closing bracket. */
static bool json_elements(const char **at, bool object, int depth)
{
    char close = object ? '}' : ']';
    json_space(at);
    if (**at == close) {
        ++*at;
        return true;
    }
    for (;;) {
        json_space(at);
        if (object) {
            if (!json_text(at)) {
                return false;
            }
            json_space(at);
            if (*(*at)++ != ':') {
                return false;
            }
        }
        if (!json_value(at, depth)) {
            return false;
        }
        json_space(at);
        char c = *(*at)++;
        if (c == close) {
            return true;
        }
        if (c != ',') {
            return false;
        }
    }
}

static bool json_value(const char **at, int depth)
{
    if (depth > 64) {
        return false;
    }
    json_space(at);
    switch (**at) {
    case '{':
    case '[': {
        bool object = *(*at)++ == '{';
        return json_elements(at, object, depth + 1);
    }
    case '"':
        return json_text(at);
    case 't':
        return json_word(at, "true");
    case 'f':
        return json_word(at, "false");
    case 'n':
        return json_word(at, "null");
    default:
        return json_number(at);
    }
}

/* True if the text is one document and nothing else. */
JSON_UNUSED static bool json_is_document(const char *text)
{
    const char *at = text;
    if (!json_value(&at, 0)) {
        return false;
    }
    json_space(&at);
    return *at == 0;
}

/* Returns the value that one step of a path leads to, in the object or array at `at`; NULL if there
 * is none. */
static const char *json_step(const char *at, const char *name, size_t length)
{
    json_space(&at);
    bool object = *at == '{';
    if (!object && *at != '[') {
        return NULL;
    }
    at++;
    for (unsigned long index = 0;; index++) {
        json_space(&at);
        if (*at == '}' || *at == ']') {
            return NULL;
        }
        bool here = !object && strtoul(name, NULL, 10) == index;
        if (object) {
            const char *key = at;
            if (!json_text(&at)) {
                return NULL;
            }
            here = (size_t)(at - key) == length + 2 && strncmp(key + 1, name, length) == 0;
            json_space(&at);
            at++;
        }
        json_space(&at);
        if (here) {
            return at;
        }
        if (!json_value(&at, 0)) {
            return NULL;
        }
        json_space(&at);
        if (*at == ',') {
            at++;
        }
    }
}

/* Returns the start of the value at a path of a document; NULL if there is none. */
JSON_UNUSED static const char *json_at(const char *text, const char *path)
{
    const char *at = text;
    while (at != NULL && *path != 0) {
        size_t length = strcspn(path, ".");
        at = json_step(at, path, length);
        path += length + (path[length] == '.');
    }
    return at;
}

/* Returns the whole number at the path; -1 if there is none. */
JSON_UNUSED static int64_t json_integer_at(const char *text, const char *path)
{
    const char *at = json_at(text, path);
    return at != NULL && (*at == '-' || (*at >= '0' && *at <= '9')) ? strtoll(at, NULL, 10) : -1;
}

/* True if the string at the path is `expected`, which needs no escapes, or null if `expected` is
 * NULL. */
JSON_UNUSED static bool json_text_is(const char *text, const char *path, const char *expected)
{
    const char *at = json_at(text, path);
    if (at == NULL) {
        return false;
    }
    if (expected == NULL) {
        return strncmp(at, "null", 4) == 0;
    }
    size_t n = strlen(expected);
    return at[0] == '"' && strncmp(at + 1, expected, n) == 0 && at[n + 1] == '"';
}

/* Returns the number of elements of the array at the path; -1 if there is none. */
JSON_UNUSED static int json_count_at(const char *text, const char *path)
{
    const char *at = json_at(text, path);
    if (at == NULL || *at != '[') {
        return -1;
    }
    int n = 0;
    for (char index[16];; n++) {
        snprintf(index, sizeof index, "%d", n);
        if (json_step(at, index, strlen(index)) == NULL) {
            return n;
        }
    }
}

#endif
