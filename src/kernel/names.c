/* names.c - finds kernels and variables by their names in the source (names.h). Threads, locks and
 * blocking: see there.
 *
 * Names are compared in a common form: without blanks that separate nothing, without suffixes of
 * integers (256u), and without the type that the function returns. A `const` in front of a
 * parameter's type moves behind the type.
 */
#include "base/descriptor.h"
#include "kernel/names.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- demangling ---- */

static char *(*demangle)(const char *symbol, char *out, size_t *bytes, int *status);

static void name_open_demangler(void)
{
    static const char *const names[] = {"libstdc++.so.6", "libc++abi.so.1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !demangle; i++) {
        void *library = hdi_descriptor_library(names[i], RTLD_LAZY | RTLD_LOCAL);
        void *symbol = library ? dlsym(library, "__cxa_demangle") : NULL;
        memcpy(&demangle, &symbol, sizeof demangle);
    }
}

bool hdi_name_has_demangler(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, name_open_demangler);
    return demangle != NULL;
}

/* Removes the namespace that nvcc puts in front of static names:
 * "_INTERNAL_5fe37001_4_k_cu_table::ns::last". */
static void name_drop_internal(char *name)
{
    static const char begin[] = "_INTERNAL_";
    char *from = name + (strncmp(name, "void ", 5) == 0 ? 5 : 0);
    char *end = strncmp(from, begin, sizeof begin - 1) == 0 ? strstr(from, "::") : NULL;
    if (end) {
        memmove(from, end + 2, strlen(end + 2) + 1);
    }
}

char *hdi_name_demangle(const char *symbol)
{
    if (strncmp(symbol, "_Z", 2) != 0 || !hdi_name_has_demangler()) {
        return NULL;
    }
    int status = 0;
    char *name = demangle(symbol, NULL, NULL, &status);
    if (name) {
        name_drop_internal(name);
    }
    return name;
}

/* ---- parts of a name ---- */

static bool name_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static int name_bracket_step(char c)
{
    return c == '(' || c == '<' || c == '{' || c == '[' ? 1 : c == ')' || c == '>' || c == '}' || c == ']' ? -1 : 0;
}

/* The opening bracket that the last character closes; NULL: it closes none. */
static const char *name_opening_bracket(const char *from, const char *end)
{
    int depth = 0;
    for (const char *p = end; p > from; p--) {
        depth -= name_bracket_step(p[-1]);
        if (depth == 0) {
            return p - 1;
        }
    }
    return NULL;
}

/* The pieces of a name: [from, arguments) is the qualified name, [arguments, params) the arguments
 * of its template, [params, end) its parameters. Each of the last two may be empty. */
typedef struct pieces {
    const char *from, *arguments, *params, *end;
} pieces;

static pieces name_take_apart(const char *name)
{
    pieces p = {.from = name, .end = name + strlen(name)};
    if (strncmp(name, "void ", 5) == 0) {
        p.from += 5;
    }
    const char *open = p.end > p.from && p.end[-1] == ')' ? name_opening_bracket(p.from, p.end) : NULL;
    p.params = open ? open : p.end;
    const char *end = p.params;
    while (end > p.from && end[-1] == ' ') {
        end--;
    }
    open = end > p.from && end[-1] == '>' ? name_opening_bracket(p.from, end) : NULL;
    p.arguments = open ? open : p.params;
    return p;
}

/* The start of a name behind its namespaces. */
static const char *name_unqualified(const pieces *p)
{
    const char *last = p->from;
    int depth = 0;
    for (const char *c = p->from; c < p->arguments; c++) {
        depth += name_bracket_step(*c);
        if (depth == 0 && c[0] == ':' && c + 1 < p->arguments && c[1] == ':') {
            last = c + 2;
        }
    }
    return last;
}

/* ---- the common form ---- */

/* Appends a piece without needless blanks and without suffixes of integers. `out` has room for the
 * piece. */
static char *name_append_plain(char *out, const char *begin, const char *from, const char *end)
{
    while (from < end) {
        char before = out > begin ? out[-1] : 0;
        if (isblank((unsigned char)*from)) {
            const char *next = from;
            while (next < end && isblank((unsigned char)*next)) {
                next++;
            }
            if (name_is_word(before) && next < end && name_is_word(*next)) {
                *out++ = ' ';
            }
            from = next;
        } else if (isdigit((unsigned char)*from) && !name_is_word(before)) {
            while (from < end && isdigit((unsigned char)*from)) {
                *out++ = *from++;
            }
            const char *suffix = from;
            while (suffix < end && strchr("uUlL", *suffix)) {
                suffix++;
            }
            from = suffix == end || !name_is_word(*suffix) ? suffix : from;
        } else {
            *out++ = *from++;
        }
    }
    return out;
}

/* The end of the parameter that begins at `from`. */
static const char *name_param_end(const char *from, const char *end)
{
    int depth = 0;
    for (; from < end && (depth > 0 || (*from != ',' && *from != ')')); from++) {
        depth += name_bracket_step(*from);
    }
    return from;
}

/* Appends one parameter. A leading `const` moves behind the type. */
static char *name_append_param(char *out, const char *begin, const char *from, const char *end)
{
    while (from < end && isblank((unsigned char)*from)) {
        from++;
    }
    bool leads = end - from > 6 && strncmp(from, "const ", 6) == 0;
    from += leads ? 6 : 0;
    const char *type = from;
    int depth = 0;
    while (type < end && (depth > 0 || (*type != '*' && *type != '&'))) {
        depth += name_bracket_step(*type++);
    }
    out = name_append_plain(out, begin, from, leads ? type : end);
    if (leads) {
        static const char word[] = " const";
        out = name_append_plain(out, begin, word, word + sizeof word - 1);
        out = name_append_plain(out, begin, type, end);
    }
    return out;
}

/* Makes the common form of a name, such as "ns::scale<float>(float*,int)". The caller frees it.
 * NULL: no memory. `from`: the start, with or without namespaces. `with_arguments`: includes the
 * template arguments. `with_params`: includes the parameters. */
static char *name_one_form(const char *name, const char *from, const pieces *p, bool with_arguments, bool with_params)
{
    char *text = calloc(1, strlen(name) + 16), *out = text;
    if (!text) {
        return NULL;
    }
    out = name_append_plain(out, text, from, with_arguments ? p->params : p->arguments);
    while (out > text && out[-1] == ' ') {
        out--;
    }
    if (with_params && p->params < p->end) {
        const char *at = p->params + 1, *end = p->end - 1;
        *out++ = '(';
        while (at < end) {
            const char *next = name_param_end(at, end);
            out = name_append_param(out, text, at, next);
            if (next < end) {
                *out++ = ',';
            }
            at = next + 1;
        }
        *out++ = ')';
    }
    *out = 0;
    return text;
}

/* ---- finding ---- */

static const char *name_of_listed(const hdi_listed *listed)
{
    return listed->readable ? listed->readable : listed->symbol;
}

static void name_add_candidate(const hdi_listed *listed, char *out, size_t room)
{
    size_t used = strlen(out);
    snprintf(out + used, room - used, "%s%s", used ? ", " : "", name_of_listed(listed));
}

/* A way to compare names: the parts that take part in it. */
typedef struct way {
    bool arguments, params, namespaces;
} way;

static int name_find_by(const hdi_listed_names *names, const char *wanted, way w, char *candidates, size_t room)
{
    int found = HDI_NAME_NONE;
    candidates[0] = 0;
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = name_of_listed(&names->of[i]);
        pieces p = name_take_apart(name);
        char *text = name_one_form(name, w.namespaces ? p.from : name_unqualified(&p), &p, w.arguments, w.params);
        if (!text) {
            return HDI_NAME_NO_MEMORY;
        }
        if (strcmp(text, wanted) == 0) {
            name_add_candidate(&names->of[i], candidates, room);
            found = found == HDI_NAME_NONE ? (int)i : HDI_NAME_AMBIGUOUS;
        }
        free(text);
    }
    return found;
}

int hdi_name_find(const hdi_listed_names *names, const char *wanted, char *candidates, size_t room)
{
    static const way ways[] = {{true, true, true},  {true, false, true},  {false, true, true},  {false, false, true},
                               {true, true, false}, {true, false, false}, {false, true, false}, {false, false, false}};
    candidates[0] = 0;
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcmp(names->of[i].symbol, wanted) == 0) {
            return (int)i;
        }
    }
    wanted += strspn(wanted, " \t");
    pieces p = name_take_apart(wanted);
    char *text = name_one_form(wanted, p.from, &p, true, true);
    int found = text ? HDI_NAME_NONE : HDI_NAME_NO_MEMORY;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && found == HDI_NAME_NONE; i++) {
        found = name_find_by(names, text, ways[i], candidates, room);
    }
    free(text);
    return found;
}

/* ---- for messages ---- */

void hdi_name_short(const hdi_listed *listed, char *out, size_t room)
{
    pieces p = name_take_apart(name_of_listed(listed));
    snprintf(out, room, "%.*s", (int)(p.params - p.from), p.from);
}

bool hdi_name_param(const hdi_listed *kernel, uint32_t index, uint32_t n, char *out, size_t room)
{
    if (!kernel->readable) {
        return false;
    }
    pieces p = name_take_apart(kernel->readable);
    if (p.params == p.end) {
        return false;
    }
    uint32_t count = 0;
    bool found = false;
    for (const char *at = p.params + 1, *end = p.end - 1; at < end; count++) {
        const char *next = name_param_end(at, end);
        if (count == index) {
            at += strspn(at, " ");
            snprintf(out, room, "%.*s", (int)(next - at), at);
            found = true;
        }
        at = next + 1;
    }
    return found && count == n;
}
