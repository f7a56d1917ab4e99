/* cc_messages.c - see cc_messages.h. */
#include "cli/cc_messages.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/process.h"

enum { NAME_BYTES = 64, NAMES_MAX = 8 };

typedef struct names {
    char name[NAMES_MAX][NAME_BYTES];
    int n;
} names;

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Adds the name that begins at `at`, once. */
static void add_name(names *list, const char *at)
{
    size_t length = 0;
    while (is_name(at[length])) {
        length++;
    }
    if (length == 0 || length >= NAME_BYTES || list->n == NAMES_MAX) {
        return;
    }
    for (int i = 0; i < list->n; i++) {
        if (strncmp(list->name[i], at, length) == 0 && list->name[i][length] == 0) {
            return;
        }
    }
    memcpy(list->name[list->n], at, length);
    list->name[list->n++][length] = 0;
}

/* The line of the source that calls the function, also as __builtin_NAME; 0: none does. */
static int line_of_call(const char *source, const char *name)
{
    static const char builtin[] = "__builtin_";
    size_t bytes = 0, length = strlen(name), prefix = sizeof builtin - 1;
    char *text = cli_read_file(source, &bytes);
    int line = 0;
    bool sure = false;
    for (const char *at = text; at != NULL && !sure && (at = strstr(at, name)) != NULL; at += length) {
        const char *begin = at, *end = at + length + strspn(at + length, " \t");
        if ((size_t)(begin - text) >= prefix && strncmp(begin - prefix, builtin, prefix) == 0) {
            begin -= prefix;
        }
        if (*end == '(' && !is_name(at[length]) && (begin == text || !is_name(begin[-1]))) {
            while (begin > text && strchr(" \t\n", begin[-1]) != NULL) {
                begin--;
            }
            sure = begin > text && begin[-1] != '*' && !is_name(begin[-1]); /* else it may be a declaration */
            line = 1;
            for (const char *c = text; c < at; c++) {
                line += *c == '\n';
            }
        }
    }
    free(text);
    return line;
}

/* A line for each function that is missing. */
static void tell_missing(const names *list, const char *source, const char *format)
{
    for (int i = 0; i < list->n; i++) {
        int line = line_of_call(source, list->name[i]);
        fprintf(stderr, "heddle cc: %s:", source);
        if (line > 0) {
            fprintf(stderr, "%d:", line);
        }
        fprintf(stderr, " ");
        fprintf(stderr, format, list->name[i]);
        fprintf(stderr, "\n");
    }
}

static const char no_gpu_function[] = "GPUs have no function '%s': kernels have those of heddle/kernel_math.h only";

/* ---- compilers and linkers ---- */

/* What follows `before` in the text, wherever it stands. */
static void find_names(names *list, const char *text, const char *before)
{
    for (const char *at = text; (at = strstr(at, before)) != NULL;) {
        at += strlen(before);
        add_name(list, at);
    }
}

/* Whether a line has the text in it. */
static bool has(const char *line, const char *text)
{
    return strstr(line, text) != NULL;
}

static bool is_error(const char *line)
{
    return has(line, ": error: ") || has(line, ": fatal error: ");
}

/* Text without what makes it colourful, for looking at: \033[...m and \033[K. */
static char *without_colours(const char *text)
{
    char *plain = cli_allocate(strlen(text) + 1), *to = plain;
    while (*text != 0) {
        if (text[0] == '\033' && text[1] == '[') {
            text += 2 + strcspn(text + 2, "mK");
            text += *text != 0;
        } else {
            *to++ = *text++;
        }
    }
    *to = 0;
    return plain;
}

/* What a line of messages is. */
typedef enum line_kind {
    HEADING, /* an error, a warning, where it is, or a note about the program's own files */
    ASIDE,   /* a note about a header of Heddle's or the system's, or how a file came to be included */
    MORE     /* belongs to the line before */
} line_kind;

static line_kind kind_of(const char *line, const char *source)
{
    if (has(line, ": note: ") || strncmp(line, "note: ", 6) == 0) {
        bool foreign = line[0] == '<' || strncmp(line, "/usr/", 5) == 0 || strncmp(line, "note: ", 6) == 0 ||
                       has(line, "heddle/kernel.h:") || has(line, "heddle/kernel_math.h:");
        return foreign && strncmp(line, source, strlen(source)) != 0 ? ASIDE : HEADING;
    }
    if (strncmp(line, "In file included from ", 22) == 0 || strncmp(line, "                 from ", 22) == 0) {
        return ASIDE;
    }
    return strncmp(line, source, strlen(source)) == 0 || is_error(line) || has(line, ": warning: ") ? HEADING : MORE;
}

/* Calls `visit` with each line as it is and without colours, until it returns false. */
static void each_line(const char *text, bool (*visit)(void *context, const char *raw, const char *plain), void *context)
{
    for (bool go_on = true; *text != 0 && go_on;) {
        size_t length = strcspn(text, "\n");
        char *raw = cli_format("%.*s", (int)length, text);
        char *plain = without_colours(raw);
        go_on = visit(context, raw, plain);
        free(raw);
        free(plain);
        text += length + (text[length] == '\n');
    }
}

/* The text of heddle/kernel.h for a parameter that is written as in C. The kernel's name stands before it. */
static const char parameter_is[] = ": a parameter is HD_IN,";

typedef struct printing {
    const char *source;
    bool aside;
    bool errors;    /* about the source */
    int parameters; /* that are written as in C */
} printing;

static bool print_line(void *context, const char *raw, const char *plain)
{
    printing *p = context;
    line_kind kind = kind_of(plain, p->source);
    p->aside = kind == MORE ? p->aside : kind == ASIDE;
    if (!p->aside) {
        fprintf(stderr, "%s\n", raw);
    }
    return true;
}

/* "FILE:LINE:COLUMN: error: ... "kernel NAME: a parameter is ..."", once where a compiler prints it twice. */
static bool print_parameter(void *context, const char *raw, const char *plain)
{
    printing *p = context;
    const char *end = strstr(plain, ": error: ");
    const char *text = end != NULL && has(end, parameter_is) ? strstr(end, "kernel ") : NULL;
    (void)raw;
    if (text != NULL) {
        while (end > plain && end[-1] != ':') { /* the column */
            end--;
        }
        int place = end > plain ? (int)(end - plain) - 1 : 0;
        fprintf(stderr, "heddle cc: %.*s: %.*s\n", place, plain, (int)strcspn(text, "\""), text);
        p->parameters++;
    }
    return true;
}

static bool look_for_error(void *context, const char *raw, const char *plain)
{
    printing *p = context;
    (void)raw;
    p->errors = strncmp(plain, p->source, strlen(p->source)) == 0 && is_error(plain);
    return !p->errors;
}

bool cc_messages_print(const char *messages, const char *source)
{
    names cpu = {.n = 0}, gpu = {.n = 0};
    char *plain = without_colours(messages);
    printing p = {.source = source};
    each_line(messages, look_for_error, &p);
    find_names(&cpu, plain, "undefined reference to `");
    find_names(&cpu, plain, "undefined symbol: "); /* the text of lld and mold */
    find_names(&gpu, plain, "error in backend: Undefined external symbol \"");
    bool all = !p.errors && cpu.n + gpu.n > 0;
    each_line(messages, print_parameter, &p);
    if (p.parameters > 0) {
        all = true; /* what else there is comes from that */
    } else if (all) {
        tell_missing(&cpu, source, "'%s' is defined nowhere: what kernels call is in the same source");
        tell_missing(&gpu, source, no_gpu_function);
    } else {
        each_line(messages, print_line, &p);
    }
    if (strstr(plain, "hd_self") != NULL && strstr(plain, "undeclared") != NULL) {
        fprintf(stderr, "heddle cc: a helper that uses hd_global_x, hd_barrier and the like begins with HD_DEVICE, "
                        "has HD_SELF as its first parameter, and is called with hd_self\n");
    }
    if (strstr(plain, "call to __host__ function from __") != NULL) {
        fprintf(stderr, "heddle cc: kernels call kernel source only: a helper begins with HD_DEVICE, and of the C "
                        "library's functions only those of <math.h> are there\n");
    }
    free(plain);
    return all;
}

/* ---- PTX ---- */

bool cc_messages_ptx(const char *ptx, size_t bytes, const char *source)
{
    static const char declaration[] = ".extern .func";
    static const char *const there[] = {"vprintf", "malloc", "free", "__assertfail"}; /* in every driver */
    static const char mathematics[] = "hd_math_"; /* how heddle/kernel_math.h names what is in a library */
    names missing = {.n = 0}, math = {.n = 0};
    char *text = cli_format("%.*s", (int)strnlen(ptx, bytes), ptx);
    for (const char *at = text; (at = strstr(at, declaration)) != NULL;) {
        at += sizeof declaration - 1;
        at += strspn(at, " \t\n");
        if (*at == '(') { /* what it returns */
            at += strcspn(at, ")");
            at += strspn(at, ") \t\n");
        }
        bool known = false;
        for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
            known |= strncmp(at, there[i], strlen(there[i])) == 0 && !is_name(at[strlen(there[i])]);
        }
        if (strncmp(at, mathematics, sizeof mathematics - 1) == 0) {
            add_name(&math, at + sizeof mathematics - 1);
        } else if (!known) {
            add_name(&missing, at);
        }
    }
    free(text);
    tell_missing(&missing, source, no_gpu_function);
    tell_missing(&math, source,
                 "'%s' is in a library for GPUs: install libclc (Debian: libclc-14) or a CUDA toolkit, or "
                 "name one with --math");
    return missing.n + math.n > 0;
}
