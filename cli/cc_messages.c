/* cc_messages.c - see cc_messages.h. */
#include "cli/cc_messages.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/process.h"

enum { NAME_BYTES = 128, NAMES_MAX = 8 };

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

/* "heddle cc: FILE:LINE: TEXT"; without the line where that is 0. */
static void tell(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void tell(const char *file, int line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "heddle cc: %s:", file);
    if (line > 0) {
        fprintf(stderr, "%d:", line);
    }
    fprintf(stderr, " ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
}

/* A line for each function that is missing, with the first source that calls it. */
static void tell_missing(const names *list, const char *const *sources, const char *before, const char *behind)
{
    for (int i = 0; i < list->n; i++) {
        const char *file = sources[0];
        int line = 0;
        for (size_t j = 0; sources[j] != NULL && line == 0; j++) {
            line = line_of_call(sources[j], list->name[i]);
            file = line > 0 ? sources[j] : file;
        }
        tell(file, line, "%s'%s'%s", before, list->name[i], behind);
    }
}

/* The line of the source that defines the kernel; 0: none does, as far as one can see without compiling it. */
static int line_of_kernel(const char *source, const char *name)
{
    static const char *const macros[] = {"HD_KERNEL", "HD_KERNEL_BOUNDS"};
    size_t bytes = 0, length = strlen(name);
    char *text = cli_read_file(source, &bytes);
    int found = 0;
    for (size_t i = 0; i < sizeof macros / sizeof macros[0] && text != NULL && found == 0; i++) {
        for (const char *at = text; found == 0 && (at = strstr(at, macros[i])) != NULL;) {
            const char *begin = at;
            at += strlen(macros[i]);
            const char *word = at + strspn(at, " \t(");
            if (word > at && strncmp(word, name, length) == 0 && !is_name(word[length])) {
                found = 1;
                for (const char *c = text; c < begin; c++) {
                    found += *c == '\n';
                }
            }
        }
    }
    free(text);
    return found;
}

void cc_messages_twice(const char *kernel, const char *const *sources)
{
    const char *first = NULL;
    int first_line = 0;
    bool told = false;
    for (size_t i = 0; sources[i] != NULL; i++) {
        int line = line_of_kernel(sources[i], kernel);
        if (line > 0 && first != NULL && strcmp(first, sources[i]) != 0) {
            tell(sources[i], line, "kernel %s is defined at %s:%d, too: a kernel file has each name once", kernel,
                 first, first_line);
            told = true;
        } else if (line > 0) {
            first = sources[i];
            first_line = line;
        }
    }
    if (!told) {
        tell(first != NULL ? first : sources[0], first_line, "kernel %s is in more than one of the sources", kernel);
    }
}

bool cc_messages_kernel(const char *message, const char *const *sources)
{
    const char *at = message + strlen("kernel ");
    size_t n = 0;
    while (is_name(at[n])) {
        n++;
    }
    char *name = cli_format("%.*s", (int)n, at);
    int line = 0;
    for (size_t i = 0; sources[i] != NULL && line == 0; i++) {
        line = line_of_kernel(sources[i], name);
        if (line > 0) {
            tell(sources[i], line, "%s", message);
        }
    }
    free(name);
    return line > 0;
}

static const char no_gpu_function[] = "GPUs have no function ",
                  no_library[] = ": kernels have those of heddle/kernel_math.h only";

/* ---- compilers and linkers ---- */

/* Whether a sanitizer has a function of this name, which begins with two underscores. */
static bool is_of_sanitizer(const char *name)
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

/* What follows `before` in the text, wherever it stands, without what sanitizers have. */
static void find_names(names *list, const char *text, const char *before)
{
    for (const char *at = text; (at = strstr(at, before)) != NULL;) {
        at += strlen(before);
        if (!is_of_sanitizer(at)) {
            add_name(list, at);
        }
    }
}

/* Whether a line has the text in it. */
static bool has(const char *line, const char *text)
{
    return strstr(line, text) != NULL;
}

static bool is_error(const char *line)
{
    return has(line, ": error: ") || has(line, ": fatal error: ") || has(line, ": error #");
}

static bool is_warning(const char *line)
{
    return has(line, ": warning: ") || has(line, ": warning #");
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

static bool is_about(const char *line, const char *const *sources)
{
    while (*sources != NULL && strncmp(line, *sources, strlen(*sources)) != 0) {
        sources++;
    }
    return *sources != NULL;
}

/* What a line of messages is. */
typedef enum line_kind {
    HEADING, /* an error, a warning, or a note about the program's own files */
    CONTEXT, /* the function that the next heading is about */
    ASIDE,   /* a note about a header of Heddle's or the system's, or how a file came to be included */
    MORE     /* belongs to the line before */
} line_kind;

static line_kind kind_of(const char *line, const char *const *sources)
{
    if (has(line, ": note: ") || strncmp(line, "note: ", 6) == 0) {
        bool foreign = line[0] == '<' || strncmp(line, "/usr/", 5) == 0 || strncmp(line, "note: ", 6) == 0 ||
                       has(line, "heddle/kernel.h:") || has(line, "heddle/kernel_math.h:");
        return foreign && !is_about(line, sources) ? ASIDE : HEADING;
    }
    if (strncmp(line, "In file included from ", 22) == 0 || strncmp(line, "                 from ", 22) == 0) {
        return ASIDE;
    }
    if (!is_error(line) && (has(line, ": In function ") || has(line, ": At top level:"))) {
        return CONTEXT;
    }
    return is_about(line, sources) || is_error(line) || is_warning(line) ? HEADING : MORE;
}

/* All lines of a text, as they are and without colours. */
typedef struct lines {
    cli_command raw, plain;
} lines;

static lines lines_of(const char *text)
{
    lines all = {{0}, {0}};
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        char *raw = cli_format("%.*s", (int)length, text), *plain = without_colours(raw);
        cli_command_add(&all.raw, raw);
        cli_command_add(&all.plain, plain);
        free(raw);
        free(plain);
        text += length + (text[length] == '\n');
    }
    return all;
}

/* ---- usual mistakes ---- */

/* Where a message is: "FILE:LINE" without the column, also for FILE(LINE), as nvcc has it. To be freed; "": nowhere. */
static char *place_of(const char *line)
{
    const char *end = strstr(line, ": error"), *warning = strstr(line, ": warning"), *begin;
    end = end == NULL || (warning != NULL && warning < end) ? warning : end;
    if (end == NULL) {
        return cli_format("%s", "");
    }
    if (end > line && end[-1] == ')') {
        for (begin = end - 1; begin > line && *begin != '('; begin--) {
        }
        return cli_format("%.*s:%.*s", (int)(begin - line), line, (int)(end - begin) - 2, begin + 1);
    }
    int colons = 0;
    for (begin = end; begin > line && (isdigit((unsigned char)begin[-1]) || begin[-1] == ':'); begin--) {
        colons += begin[-1] == ':';
    }
    if (colons > 1) { /* the last number is the column */
        while (end[-1] != ':') {
            end--;
        }
        end--;
    }
    return cli_format("%.*s", (int)(end - line), line);
}

/* The name in quotes that follows the text in the line, in NAME_BYTES; "": it is not there. */
static void quoted_name(const char *line, const char *before, char *out)
{
    const char *at = strstr(line, before);
    size_t n = 0;
    for (at = at != NULL ? at + strlen(before) : ""; is_name(at[n]) && n + 1 < NAME_BYTES; n++) {
        out[n] = at[n];
    }
    out[n] = 0;
}

static const char is_no_helper[] =
    "kernels cannot call '%s', which is no kernel source: a helper begins with HD_DEVICE";
static const char is_no_variable[] =
    "kernels cannot use the variable '%s': HD_CONSTANT is for constants, HD_GLOBAL "
    "for what programs set, HD_SHARED for what a block shares, the rest are parameters";

/* What clang states about a call of a function of the host: of the source, or of the C library. */
static char *explain_call(const lines *all, size_t i, const char *name)
{
    for (size_t j = i + 1; j < all->plain.n && !is_error(all->plain.arguments[j]); j++) {
        const char *note = all->plain.arguments[j];
        if (has(note, "call to __host__ function from __")) {
            bool library = strncmp(note, "/usr/", 5) == 0 || note[0] == '<';
            return library ? cli_format("%s'%s'%s", no_gpu_function, name, no_library) : cli_format(is_no_helper, name);
        }
    }
    return NULL;
}

/* The text for a usual mistake, to be freed. NULL: the line has none; "": it only follows from one. */
static char *explain(const lines *all, size_t i)
{
    const char *line = all->plain.arguments[i], *text;
    char name[NAME_BYTES];
    if (!is_error(line)) {
        return NULL;
    }
    text = strstr(line, "kernel ");
    if (text != NULL && (has(text, ": a parameter is HD_IN,") || has(text, ": more than 32 parameters"))) {
        return cli_format("%.*s", (int)strcspn(text, "\""), text);
    }
    if (has(line, "hd_self") && has(line, "undeclared")) {
        return cli_format(
            "a helper that uses hd_global_x, hd_barrier and the like begins with HD_DEVICE, has HD_SELF as "
            "its first parameter, and is called with hd_self");
    }
    quoted_name(line, "no matching function for call to '", name);
    if (name[0] != 0) {
        return explain_call(all, i, name);
    }
    quoted_name(line, "reference to __host__ function '", name);
    if (name[0] == 0) {
        quoted_name(line, "calling a __host__ function(\"", name);
    }
    if (name[0] != 0) {
        return cli_format(is_no_helper, name);
    }
    quoted_name(line, "reference to __host__ variable '", name);
    if (name[0] == 0) {
        quoted_name(line, "a host variable \"", name);
    }
    if (name[0] != 0) {
        return cli_format(is_no_variable, name);
    }
    return has(line, "is undefined in device code") ? cli_format("%s", "") : NULL;
}

/* What was printed: explanations with their places, and the places of warnings. The second compiler repeats the first one's. */
static cli_command printed;
static bool quiet;

void cc_messages_forget(void)
{
    cli_command_release(&printed);
}

void cc_messages_quiet(bool on)
{
    quiet = on;
}

static bool is_new(const char *text)
{
    for (size_t i = 0; i < printed.n; i++) {
        if (strcmp(printed.arguments[i], text) == 0) {
            return false;
        }
    }
    cli_command_add(&printed, text);
    return true;
}

static bool is_parameter(const char *text)
{
    return strncmp(text, "kernel ", 7) == 0;
}

/* Prints the lines, with an explanation in place of each usual mistake and what belongs to it. Returns whether all errors are explained. */
static bool print_lines(const lines *all, char *const *texts, bool parameters_only, const char *const *sources)
{
    bool aside = false, explained = true;
    const char *context = NULL;
    for (size_t i = 0; i < all->plain.n; i++) {
        const char *plain = all->plain.arguments[i];
        line_kind kind = kind_of(plain, sources);
        bool note = kind == HEADING && !is_error(plain) && !is_warning(plain);
        char *place = place_of(plain);
        if (texts[i] != NULL) {
            char *line = cli_format("heddle cc: %s: %s", place, texts[i]);
            aside = true;
            context = NULL;
            if (texts[i][0] != 0 && (!parameters_only || is_parameter(texts[i])) && is_new(line)) {
                fprintf(stderr, "%s\n", line);
            }
            free(line);
        } else if (kind == CONTEXT) {
            context = all->raw.arguments[i];
            aside = true;
        } else if (kind == ASIDE) {
            aside = true;
        } else if (kind == HEADING && !note) {
            aside = parameters_only || (is_warning(plain) && (quiet || !is_new(place)));
            explained &= !is_error(plain) || parameters_only;
        }
        if (!aside) {
            if (context != NULL) {
                fprintf(stderr, "%s\n", context);
                context = NULL;
            }
            fprintf(stderr, "%s\n", all->raw.arguments[i]);
        }
        free(place);
    }
    return explained;
}

/* Prints compilers' messages. Returns whether there was an error, and all were explained. */
static bool print_all(const char *messages, const char *const *sources)
{
    lines all = lines_of(messages);
    char **texts = cli_allocate((all.plain.n + 1) * sizeof *texts);
    bool parameters = false, causes = false;
    for (size_t i = 0; i < all.plain.n; i++) {
        texts[i] = explain(&all, i);
        causes |= texts[i] != NULL && texts[i][0] != 0;
        parameters |= texts[i] != NULL && is_parameter(texts[i]); /* what else there is comes from that */
    }
    for (size_t i = 0; i < all.plain.n; i++) {
        if (texts[i] != NULL && texts[i][0] == 0 && !causes) { /* it follows from nothing */
            free(texts[i]);
            texts[i] = NULL;
        }
    }
    bool explained = print_lines(&all, texts, parameters, sources);
    for (size_t i = 0; i < all.plain.n; i++) {
        free(texts[i]);
    }
    free(texts);
    cli_command_release(&all.raw);
    cli_command_release(&all.plain);
    return causes && explained;
}

/* Whether some line is an error about a source, which then is what counts. */
static bool has_error_in(const char *text, const char *const *sources)
{
    lines all = lines_of(text);
    bool found = false;
    for (size_t i = 0; i < all.plain.n; i++) {
        found |= is_about(all.plain.arguments[i], sources) && is_error(all.plain.arguments[i]);
    }
    cli_command_release(&all.raw);
    cli_command_release(&all.plain);
    return found;
}

bool cc_messages_print(const char *messages, const char *const *sources, bool only_warned, bool *wrong)
{
    names cpu = {.n = 0}, gpu = {.n = 0}, twice = {.n = 0}, again = {.n = 0};
    char *plain = without_colours(messages);
    find_names(&cpu, plain, "undefined reference to `");
    find_names(&cpu, plain, "undefined symbol: "); /* the text of lld and mold */
    find_names(&gpu, plain, "error in backend: Undefined external symbol \"");
    find_names(&twice, plain, "Linking globals named '");
    find_names(&again, plain, "multiple definition of `");
    find_names(&again, plain, "duplicate symbol: ");
    bool all = !has_error_in(plain, sources) && cpu.n + gpu.n + twice.n + again.n > 0;
    if (all) {
        tell_missing(&cpu, sources, "",
                     " is defined nowhere: what kernels call is in the same source, or in a library of -l");
        tell_missing(&gpu, sources, no_gpu_function, no_library);
        tell_missing(&again, sources, "",
                     " is defined in more than one of the sources: a kernel file has each name once, but for HD_DEVICE "
                     "and HD_CONSTANT");
        for (int i = 0; i < twice.n; i++) {
            cc_messages_twice(twice.name[i], sources);
        }
        *wrong = true;
    } else if (!only_warned || has(plain, "error: ")) {
        all = print_all(messages, sources);
    }
    free(plain);
    return all;
}

/* ---- PTX ---- */

/* The name that a declaration makes known, which begins at `at`: the last word before an array's bounds, parameters or the end. */
static const char *declared_name(const char *at)
{
    const char *name = at;
    while (*at != 0 && strchr("[(;", *at) == NULL) {
        if (is_name(*at) && (isspace((unsigned char)at[-1]) || at[-1] == ')')) {
            name = at;
        }
        at++;
    }
    return name;
}

bool cc_messages_ptx(const char *ptx, size_t bytes, const char *const *sources)
{
    static const char *const there[] = {"vprintf", "malloc", "free", "__assertfail"}; /* in every driver */
    static const char *const declarations[] = {".extern .func", ".extern .global", ".extern .const"};
    static const char mathematics[] = "hd_math_"; /* how heddle/kernel_math.h names what is in a library */
    names missing = {.n = 0}, variables = {.n = 0}, math = {.n = 0};
    char *text = cli_format("%.*s", (int)strnlen(ptx, bytes), ptx);
    for (size_t d = 0; d < sizeof declarations / sizeof declarations[0]; d++) {
        for (const char *at = text; (at = strstr(at, declarations[d])) != NULL;) {
            at += strlen(declarations[d]);
            at += strspn(at, " \t\n");
            if (*at == '(') { /* what it returns */
                at += strcspn(at, ")");
                at += strspn(at, ") \t\n");
            }
            const char *name = d == 0 ? at : declared_name(at);
            bool known = false;
            for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
                known |= strncmp(name, there[i], strlen(there[i])) == 0 && !is_name(name[strlen(there[i])]);
            }
            if (strncmp(name, mathematics, sizeof mathematics - 1) == 0) {
                add_name(&math, name + sizeof mathematics - 1);
            } else if (!known) {
                add_name(d == 0 ? &missing : &variables, name);
            }
        }
    }
    free(text);
    tell_missing(&missing, sources, no_gpu_function, no_library);
    tell_missing(&variables, sources, "the variable ",
                 " is defined nowhere: HD_CONSTANT, HD_GLOBAL and HD_SHARED define it");
    tell_missing(
        &math, sources, "",
        " is in a library for GPUs: install libclc (Debian: libclc-14) or a CUDA toolkit, or name one with --math");
    return missing.n + variables.n + math.n > 0;
}
