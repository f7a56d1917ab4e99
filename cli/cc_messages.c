/* cc_messages.c - see cc_messages.h. */
#include "cli/cc_messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cc_mistakes.h"
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

/* ---- compilers and linkers ---- */

static const char where_defined[] = ": HD_CONSTANT is for constants, HD_GLOBAL for what programs set, HD_SHARED for "
                                    "what a block shares, the rest are parameters";

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

/* Collects each name after `before` in the text, except those of sanitizers. */
static void messages_find_names(names *list, const char *text, const char *before)
{
    for (const char *at = text; (at = strstr(at, before)) != NULL;) {
        at += strlen(before);
        if (!messages_name_of_sanitizer(at)) {
            messages_add_name(list, at);
        }
    }
}

/* The text without colour codes, for parsing: \033[...m and \033[K. */
static char *messages_without_colours(const char *text)
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

static bool messages_line_is_about(const char *line, const char *const *sources)
{
    while (*sources != NULL && strncmp(line, *sources, strlen(*sources)) != 0) {
        sources++;
    }
    return *sources != NULL;
}

/* The kind of a message line. */
typedef enum line_kind {
    HEADING, /* an error, a warning, or a note about the program's own files */
    CONTEXT, /* the function that the next heading is about */
    ASIDE,   /* a note about a header of Heddle or the system, or an include trace */
    MORE     /* belongs to the line before */
} line_kind;

static line_kind messages_line_kind(const char *line, const char *const *sources)
{
    if (cc_has(line, ": note: ") || strncmp(line, "note: ", 6) == 0) {
        bool foreign = line[0] == '<' || strncmp(line, "/usr/", 5) == 0 || strncmp(line, "note: ", 6) == 0 ||
                       cc_has(line, "heddle/kernel");
        return foreign && !messages_line_is_about(line, sources) ? ASIDE : HEADING;
    }
    if (strncmp(line, "In file included from ", 22) == 0 || strncmp(line, "                 from ", 22) == 0) {
        return ASIDE;
    }
    if (!cc_is_error(line) && (cc_has(line, ": In function ") || cc_has(line, ": At top level:"))) {
        return CONTEXT;
    }
    return messages_line_is_about(line, sources) || cc_is_error(line) || cc_is_warning(line) ? HEADING : MORE;
}

/* All lines of a text, with and without colours. */
typedef struct lines {
    cli_command raw, plain;
} lines;

static lines messages_split_lines(const char *text)
{
    lines all = {{0}, {0}};
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        char *raw = cli_format("%.*s", (int)length, text), *plain = messages_without_colours(raw);
        cli_command_add(&all.raw, raw);
        cli_command_add(&all.plain, plain);
        free(raw);
        free(plain);
        text += length + (text[length] == '\n');
    }
    return all;
}

/* Texts that were printed: explanations with their places, and the places of warnings. The
 * second compiler repeats those of the first one. */
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

static bool messages_text_is_new(const char *text)
{
    for (size_t i = 0; i < printed.n; i++) {
        if (strcmp(printed.arguments[i], text) == 0) {
            return false;
        }
    }
    cli_command_add(&printed, text);
    return true;
}

/* Prints a mistake once. CC_KERNEL: only the first one for each kernel's first line. CC_LANGUAGE
 * and above: each text once. */
static void messages_print_mistake(const char *place, const cc_mistake *mistake)
{
    char *key = mistake->weight >= CC_LANGUAGE ? cli_format("%s", mistake->text)
                : mistake->weight == CC_KERNEL ? cli_format("kernel at %s", place)
                                               : cli_format("%s: %s", place, mistake->text);
    if (messages_text_is_new(key)) {
        fprintf(stderr, "heddle cc: %s: %s\n", place, mistake->text);
        messages_text_is_new(place); /* then warnings about this place are not needed */
    }
    free(key);
}

/* Prints the lines. An explanation replaces each known mistake and the lines that belong to it.
 * Mistakes below `weight` are dropped, and from CC_KERNEL on all other messages, too. Returns
 * true if all errors are explained. */
static bool messages_print_lines(const lines *all, const cc_mistake *mistakes, cc_weight weight,
                                 const char *const *sources)
{
    bool aside = false, explained = true, only_these = weight >= CC_KERNEL;
    const char *context = NULL;
    for (size_t i = 0; i < all->plain.n; i++) {
        const char *plain = all->plain.arguments[i];
        line_kind kind = messages_line_kind(plain, sources);
        bool note = kind == HEADING && !cc_is_error(plain) && !cc_is_warning(plain);
        char *place = cc_place_of(plain);
        if (mistakes[i].text != NULL) {
            aside = true;
            context = NULL;
            if (mistakes[i].weight != CC_FOLLOWS && mistakes[i].weight >= weight) {
                messages_print_mistake(place, &mistakes[i]);
            }
        } else if (kind == CONTEXT) {
            context = all->raw.arguments[i];
            aside = true;
        } else if (kind == ASIDE) {
            aside = true;
        } else if (kind == HEADING && !note) {
            aside = only_these || (cc_is_warning(plain) && (quiet || !messages_text_is_new(place)));
            explained &= !cc_is_error(plain) || only_these;
        }
        if (!aside && !only_these) {
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

/* Prints a compiler's messages. Returns true if it printed an explanation and every error is
 * explained. */
static bool messages_print_all(const char *messages, const char *const *sources)
{
    lines all = messages_split_lines(messages);
    cc_mistake *mistakes = cli_allocate((all.plain.n + 1) * sizeof *mistakes);
    cc_weight weight = CC_FOLLOWS;
    for (size_t i = 0; i < all.plain.n; i++) {
        mistakes[i] = cc_is_cuda(sources[0]) ? cc_mistake_find_cuda(&all.plain, i) : cc_mistake_find(&all.plain, i);
        weight = mistakes[i].text != NULL && mistakes[i].weight > weight ? mistakes[i].weight : weight;
    }
    /* only consequences, without their cause */
    for (size_t i = 0; i < all.plain.n && weight == CC_FOLLOWS; i++) {
        free(mistakes[i].text);
        mistakes[i].text = NULL;
    }
    bool explained = messages_print_lines(&all, mistakes, weight, sources);
    for (size_t i = 0; i < all.plain.n; i++) {
        free(mistakes[i].text);
    }
    free(mistakes);
    cli_command_release(&all.raw);
    cli_command_release(&all.plain);
    return weight != CC_FOLLOWS && explained;
}

/* True if some line is an error about a source. Such errors take precedence. */
static bool messages_has_error_in(const char *text, const char *const *sources)
{
    lines all = messages_split_lines(text);
    bool found = false;
    for (size_t i = 0; i < all.plain.n; i++) {
        found |= messages_line_is_about(all.plain.arguments[i], sources) && cc_is_error(all.plain.arguments[i]);
    }
    cli_command_release(&all.raw);
    cli_command_release(&all.plain);
    return found;
}

/* Prints a line for each function and variable that the linker misses. */
static void messages_print_undefined(const names *list, const char *const *sources)
{
    names functions = {.n = 0};
    for (int i = 0; i < list->n; i++) {
        const char *name = list->name[i], *file = NULL;
        bool called = false;
        for (size_t j = 0; sources[j] != NULL; j++) {
            called |= cc_source_call(sources[j], name) > 0;
            file = file == NULL && cc_source_word(sources[j], name) > 0 ? sources[j] : file;
        }
        if (called || file == NULL) {
            messages_add_name(&functions, name);
        } else {
            messages_print_line(file, cc_source_word(file, name), "the variable '%s' is defined nowhere%s", name,
                                where_defined);
        }
    }
    messages_print_missing(&functions, sources, "",
                           " is defined nowhere: what kernels call is in the same source, or in a library of -l");
}

bool cc_messages_print(const char *messages, const char *const *sources, bool only_warned, bool *wrong)
{
    names cpu = {.n = 0}, gpu = {.n = 0}, twice = {.n = 0}, again = {.n = 0};
    char *plain = messages_without_colours(messages);
    messages_find_names(&cpu, plain, "undefined reference to `");
    messages_find_names(&cpu, plain, "undefined symbol: "); /* the text of lld and mold */
    messages_find_names(&gpu, plain, "error in backend: Undefined external symbol \"");
    messages_find_names(&twice, plain, "Linking globals named '");
    messages_find_names(&again, plain, "multiple definition of `");
    messages_find_names(&again, plain, "duplicate symbol: ");
    bool all = !messages_has_error_in(plain, sources) && cpu.n + gpu.n + twice.n + again.n > 0;
    if (all) {
        messages_print_undefined(&cpu, sources);
        messages_print_missing(&gpu, sources, cc_no_gpu_function, cc_no_library);
        messages_print_missing(
            &again, sources, "",
            " is defined in more than one of the sources: a kernel file has each name once, but for HD_DEVICE "
            "and HD_CONSTANT");
        for (int i = 0; i < twice.n; i++) {
            cc_messages_twice(twice.name[i], sources);
        }
        *wrong = true;
    } else if (!only_warned || cc_has(plain, "error: ")) {
        all = messages_print_all(messages, sources);
    }
    free(plain);
    return all;
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
    messages_print_missing(&missing, sources, cc_no_gpu_function, cc_no_library);
    char *nowhere = cli_format(" is defined nowhere%s", where_defined);
    messages_print_missing(&variables, sources, "the variable ", nowhere);
    free(nowhere);
    messages_print_missing(&textures, sources, "the texture or surface reference ",
                           " stays unbound: use a buffer, or a texture object as a parameter");
    messages_print_missing(
        &math, sources, "",
        " is in a library for GPUs: install libclc (Debian: libclc-14) or a CUDA toolkit, or name one with --math");
    return missing.n + variables.n + textures.n + math.n > 0;
}
