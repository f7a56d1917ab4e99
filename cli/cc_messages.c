/* cc_messages.c - see cc_messages.h. */
#include "cli/cc_messages.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cc_source.h"
#include "cli/process.h"

enum { NAME_BYTES = 128, NAMES_MAX = 8 };

typedef struct names {
    char name[NAMES_MAX][NAME_BYTES];
    int n;
} names;

/* Adds the name that begins at `at`, once. */
static void messages_add_name(names *list, const char *at)
{
    size_t length = 0;
    while (cc_is_name(at[length])) {
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

/* Prints "heddle cc: FILE:LINE: TEXT", without the line if it is 0. */
static void messages_print_line(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void messages_print_line(const char *file, int line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fflush(stdout); /* as cli_complain */
    fprintf(stderr, "heddle cc: %s:", file);
    if (line > 0) {
        fprintf(stderr, "%d:", line);
    }
    fprintf(stderr, " ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
}

/* Prints a line for each missing function, with the first source that calls it. */
static void messages_print_missing(const names *list, const char *const *sources, const char *before,
                                   const char *behind)
{
    for (int i = 0; i < list->n; i++) {
        const char *file = sources[0];
        int line = 0;
        for (size_t j = 0; sources[j] != NULL && line == 0; j++) {
            line = cc_source_call(sources[j], list->name[i]);
            file = line > 0 ? sources[j] : file;
        }
        messages_print_line(file, line, "%s'%s'%s", before, list->name[i], behind);
    }
}

void cc_messages_twice(const char *kernel, const char *const *sources)
{
    const char *first = NULL;
    int first_line = 0;
    bool told = false;
    for (size_t i = 0; sources[i] != NULL; i++) {
        int line = cc_source_kernel(sources[i], kernel);
        if (line > 0 && first != NULL && strcmp(first, sources[i]) != 0) {
            messages_print_line(sources[i], line,
                                "kernel %s is defined at %s:%d, too: a kernel file has each name once", kernel, first,
                                first_line);
            told = true;
        } else if (line > 0) {
            first = sources[i];
            first_line = line;
        }
    }
    if (!told) {
        messages_print_line(first != NULL ? first : sources[0], first_line,
                            "kernel %s is in more than one of the sources", kernel);
    }
}

bool cc_messages_kernel(const char *message, const char *const *sources)
{
    const char *at = message + strlen("kernel ");
    size_t n = 0;
    while (cc_is_name(at[n])) {
        n++;
    }
    char *name = cli_format("%.*s", (int)n, at);
    int line = 0;
    for (size_t i = 0; sources[i] != NULL && line == 0; i++) {
        line = cc_source_kernel(sources[i], name);
        if (line > 0) {
            messages_print_line(sources[i], line, "%s", message);
        }
    }
    free(name);
    return line > 0;
}

/* ---- linkers ---- */

/* True if the name, which begins with two underscores, belongs to a sanitizer. */
static bool messages_name_of_sanitizer(const char *name)
{
    static const char *const begins[] = {"__asan_", "__ubsan_",  "__tsan_",     "__msan_",
                                         "__lsan_", "__hwasan_", "__sanitizer_"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns the undefined name that a line of GNU ld, gold, lld or mold warns of, or NULL. */
static const char *messages_undefined_name(const char *line)
{
    static const char *const texts[] = {"undefined reference to `", "undefined reference to '", "undefined symbol: "};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *at = strstr(line, texts[i]);
        if (at != NULL) {
            return at + strlen(texts[i]);
        }
    }
    return NULL;
}

bool cc_messages_undefined(const char *warnings)
{
    bool found = false;
    for (const char *line = warnings; *line != 0;) {
        size_t length = strcspn(line, "\n");
        char *copy = cli_format("%.*s", (int)length, line);
        const char *name = messages_undefined_name(copy);
        if (name == NULL || !messages_name_of_sanitizer(name)) {
            fflush(stdout);
            fprintf(stderr, "%s\n", copy);
        }
        found |= name != NULL && !messages_name_of_sanitizer(name);
        free(copy);
        line += length + (line[length] == '\n');
    }
    return found;
}

/* ---- PTX ---- */

/* The declared name: the last word from `at` to an array's bounds, parameters or the end. */
static const char *messages_declared_name(const char *at)
{
    const char *name = at;
    while (*at != 0 && strchr("[(;", *at) == NULL) {
        if (cc_is_name(*at) && (isspace((unsigned char)at[-1]) || at[-1] == ')')) {
            name = at;
        }
        at++;
    }
    return name;
}

bool cc_messages_ptx(const char *ptx, size_t bytes, const char *const *sources)
{
    /* part of every driver */
    static const char *const there[] = {"vprintf", "malloc", "free", "__assertfail"};
    static const char *const declarations[] = {".extern .func",   ".extern .global",  ".extern .const",
                                               ".global .texref", ".global .surfref", ".global .samplerref"};
    /* prefix of library functions in heddle/kernel_math.h */
    static const char mathematics[] = "hd_math_";
    names missing = {.n = 0}, variables = {.n = 0}, textures = {.n = 0}, math = {.n = 0};
    char *text = cli_format("%.*s", (int)strnlen(ptx, bytes), ptx);
    for (size_t d = 0; d < sizeof declarations / sizeof declarations[0]; d++) {
        for (const char *at = text; (at = strstr(at, declarations[d])) != NULL;) {
            at += strlen(declarations[d]);
            at += strspn(at, " \t\n");
            if (*at == '(') { /* the return value */
                at += strcspn(at, ")");
                at += strspn(at, ") \t\n");
            }
            const char *name = d == 1 || d == 2 ? messages_declared_name(at) : at;
            bool known = false;
            for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
                known |= strncmp(name, there[i], strlen(there[i])) == 0 && !cc_is_name(name[strlen(there[i])]);
            }
            if (strncmp(name, mathematics, sizeof mathematics - 1) == 0) {
                messages_add_name(&math, name + sizeof mathematics - 1);
            } else if (!known) {
                messages_add_name(d == 0 ? &missing : d < 3 ? &variables : &textures, name);
            }
        }
    }
    free(text);
    messages_print_missing(&missing, sources, "GPUs have no function ",
                           "; kernels may call the functions of heddle/kernel_math.h");
    messages_print_missing(&variables, sources, "the variable ",
                           " is not defined; use HD_CONSTANT, HD_GLOBAL, HD_SHARED or a parameter");
    messages_print_missing(&textures, sources, "the texture or surface reference ",
                           " stays unbound: use a buffer, or a texture object as a parameter");
    messages_print_missing(
        &math, sources, "",
        " is in a library for GPUs: install libclc (Debian: libclc-14) or a CUDA toolkit, or name one with --math");
    return missing.n + variables.n + textures.n + math.n > 0;
}
