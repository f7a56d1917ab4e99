/* cc_enums.c - finds code in which enumerations behave differently in C and C++.
 *
 * In C, a variable of an enumeration without negative values is unsigned. In C++ it becomes an int.
 * So `v - 1 < 0` is never true in C. An enumerator is an int in C. In C++ it has its enumeration's
 * type, and one large value makes that type wider or unsigned.
 * Threads: the program's first. Locks: none.
 */
#include <stdlib.h>
#include "cli/cc_language.h"

/* How an expression with the name yields a number of the type. */
typedef enum form { VALUE, INDEXED, CALLED } form;

typedef struct variable {
    size_t token; /* its declaration */
    form form;
    bool other_too; /* the name also stands for something else, whose type is unknown */
} variable;

struct cc_enums {
    const cc_tokens *tokens;
    variable *variables;
    size_t *constants, *types; /* enumerators; names of types by typedef */
    size_t n_variables, n_constants, n_types;
};

static bool enums_token_is(const cc_enums *e, size_t i, const char *text)
{
    return cc_token_is(e->tokens, i, text);
}

static const cc_token *enums_token_at(const cc_enums *e, size_t i)
{
    return &e->tokens->all[i];
}

static bool enums_list_has(const cc_enums *e, const size_t *list, size_t n, const cc_token *name)
{
    for (size_t i = 0; i < n; i++) {
        if (cc_token_same(enums_token_at(e, list[i]), name)) {
            return true;
        }
    }
    return false;
}

static const variable *enums_find_variable(const cc_enums *e, const cc_token *name)
{
    for (size_t i = 0; i < e->n_variables; i++) {
        if (cc_token_same(enums_token_at(e, e->variables[i].token), name)) {
            return &e->variables[i];
        }
    }
    return NULL;
}

bool cc_enums_has(const cc_enums *e, const cc_token *name)
{
    return name->kind == CC_NAME &&
           (enums_list_has(e, e->constants, e->n_constants, name) || enums_find_variable(e, name) != NULL);
}

/* ---- enumerators ---- */

/* True if the number does not fit an int. */
static bool enums_is_large(const cc_token *number)
{
    return number->kind == CC_NUMBER && strtoull(number->at, NULL, 0) > 0x7fffffff;
}

/* Checks the enumerators between the braces, and notes their names. Returns true if one of them
 * is negative. */
static bool enums_read_enumerators(cc_enums *e, cc_check *check, size_t brace)
{
    bool negative = false;
    size_t outside = enums_token_at(e, brace)->outside, tag;
    bool nested = outside != CC_NOWHERE && cc_type_of_brace(e->tokens, outside, &tag) != NULL;
    for (size_t i = brace + 1; i < enums_token_at(e, brace)->partner; i++) {
        const cc_token *token = enums_token_at(e, i);
        bool begins = token->outside == brace && (enums_token_is(e, i - 1, "{") || enums_token_is(e, i - 1, ","));
        if (begins && token->kind == CC_NAME) {
            if (enums_list_has(e, e->constants, e->n_constants, token) && nested) {
                cc_check_found(check, i,
                               "'%.*s' belongs to the structure in C++, and hides the other one in C: "
                               "define enumerations outside of structures");
            }
            e->constants[e->n_constants++] = i;
            negative |= enums_token_is(e, i + 1, "=") && enums_token_is(e, i + 2, "-");
        }
        bool shifted = enums_token_is(e, i - 1, "<<") && token->kind == CC_NUMBER && strtoul(token->at, NULL, 0) >= 31;
        if (shifted || enums_is_large(token)) {
            cc_check_found(check, i,
                           "an enumerator that does not fit an int changes the types of all in C++: "
                           "HD_CONSTANT and #define are for larger numbers");
            return negative;
        }
    }
    return negative;
}

/* ---- names of such a type ---- */

static void enums_add_variable(cc_enums *e, size_t i, form how)
{
    if (enums_find_variable(e, enums_token_at(e, i)) == NULL) {
        e->variables[e->n_variables++] = (variable){i, how, false};
    }
}

/* Notes the names in a declaration after its type, which ends before token `i`. */
static void enums_read_declaration(cc_enums *e, size_t i, bool defines_type)
{
    size_t outside = enums_token_at(e, i)->outside;
    /* a comma separates names, not parameters */
    bool list = outside == CC_NOWHERE || enums_token_is(e, outside, "{");
    for (;;) {
        form how = VALUE;
        for (; cc_token_is_any(e->tokens, i, " * const volatile __restrict__ __restrict , "); i++) {
            how = enums_token_is(e, i, "*") ? INDEXED : how;
        }
        if (cc_token_kind_of(e->tokens, i) != CC_NAME || (how == INDEXED && defines_type)) {
            return;
        }
        if (defines_type) {
            e->types[e->n_types++] = i;
        } else {
            enums_add_variable(e, i,
                               enums_token_is(e, i + 1, "[")   ? INDEXED
                               : enums_token_is(e, i + 1, "(") ? CALLED
                                                               : how);
        }
        while (i < e->tokens->n && enums_token_at(e, i)->outside == outside && !enums_token_is(e, i, ",") &&
               !enums_token_is(e, i, ";")) {
            i = enums_token_at(e, i)->partner > i ? enums_token_at(e, i)->partner + 1 : i + 1;
        }
        if (!list || !enums_token_is(e, i, ",")) {
            return;
        }
    }
}

static bool enums_is_type(const cc_enums *e, size_t i)
{
    return cc_token_kind_of(e->tokens, i) == CC_NAME && enums_list_has(e, e->types, e->n_types, enums_token_at(e, i)) &&
           !cc_token_is_any(e->tokens, i - 1, " . -> ");
}

/* Reads all enumerations, in the order of the source: definitions come before uses. */
static void enums_read_types(cc_enums *e, cc_check *check)
{
    size_t *negative = cli_allocate((e->tokens->n + 1) * sizeof *negative), n_negative = 0;
    for (size_t i = 0; i < e->tokens->n; i++) {
        if (!enums_token_is(e, i, "enum")) {
            if (enums_is_type(e, i)) {
                enums_read_declaration(e, i + 1, enums_token_is(e, i - 1, "typedef"));
            }
            continue;
        }
        size_t tag = cc_token_kind_of(e->tokens, i + 1) == CC_NAME ? i + 1 : CC_NOWHERE;
        size_t brace = tag != CC_NOWHERE ? i + 2 : i + 1;
        bool defined = enums_token_is(e, brace, "{");
        bool is_negative = defined
                               ? enums_read_enumerators(e, check, brace)
                               : tag != CC_NOWHERE && enums_list_has(e, negative, n_negative, enums_token_at(e, tag));
        if (is_negative && tag != CC_NOWHERE) {
            negative[n_negative++] = tag;
        } else if (!is_negative) {
            enums_read_declaration(e, defined ? enums_token_at(e, brace)->partner + 1 : brace,
                                   enums_token_is(e, i - 1, "typedef"));
        }
    }
    free(negative);
}

/* Marks names that are declared again with another type, because each use may mean either. */
static void enums_find_others(cc_enums *e)
{
    for (size_t i = 1; i < e->tokens->n; i++) {
        variable *found = (variable *)enums_find_variable(e, enums_token_at(e, i));
        bool behind_type = cc_token_kind_of(e->tokens, i - 1) == CC_NAME &&
                           !cc_token_is_any(e->tokens, i - 1, " return else case const volatile sizeof do ") &&
                           !enums_token_is(e, i - 2, "enum") && !enums_is_type(e, i - 1);
        if (found != NULL && behind_type && i != found->token) {
            found->other_too = true;
        }
    }
}

cc_enums *cc_enums_find(cc_check *check)
{
    size_t n = check->tokens->n + 1;
    cc_enums *e = cli_allocate(sizeof *e);
    *e = (cc_enums){.tokens = check->tokens};
    e->variables = cli_allocate(n * sizeof *e->variables);
    e->constants = cli_allocate(n * sizeof *e->constants);
    e->types = cli_allocate(n * sizeof *e->types);
    enums_read_types(e, check);
    enums_find_others(e);
    return e;
}

void cc_enums_release(cc_enums *e)
{
    free(e->variables);
    free(e->constants);
    free(e->types);
    free(e);
}

/* ---- arithmetic ---- */

/* The start of the expression that ends with name `i`: skips names before . and ->. */
static size_t enums_expression_begin(const cc_enums *e, size_t i)
{
    while (i >= 2 && cc_token_is_any(e->tokens, i - 1, " . -> ")) {
        i -= 2;
        while (i > 0 && cc_token_is_any(e->tokens, i, " ) ] ")) {
            i = enums_token_at(e, i)->partner > 0 ? enums_token_at(e, i)->partner - 1 : 0;
        }
    }
    return i;
}

/* The token after the indices or arguments of the name; `i` if they are missing. */
static size_t enums_expression_end(const cc_enums *e, size_t i, form how)
{
    size_t end = i + 1;
    while (enums_token_is(e, end, how == CALLED ? "(" : "[") && how != VALUE && enums_token_at(e, end)->partner > end) {
        end = enums_token_at(e, end)->partner + 1;
    }
    return how != VALUE && end == i + 1 ? i : end;
}

/* True if token `i`, next to a comparison, is a number or an enumerator, and so an int of at least
 * 0. */
static bool enums_is_harmless(const cc_enums *e, size_t i)
{
    return cc_token_kind_of(e->tokens, i) == CC_NUMBER ||
           (cc_token_kind_of(e->tokens, i) == CC_NAME && cc_enums_has(e, enums_token_at(e, i)));
}

/* True if token `i` ends a cast to another type, after which the value is no enum any more. */
static bool enums_ends_cast(const cc_enums *e, size_t i)
{
    size_t open = enums_token_is(e, i, ")") ? enums_token_at(e, i)->partner : i;
    return open < i && !enums_token_is(e, open + 1, "enum") && !enums_is_type(e, open + 1);
}

/* True if an operator next to the tokens [begin, end) depends on the number's signedness. */
static bool enums_is_in_arithmetic(const cc_enums *e, size_t begin, size_t end)
{
    static const char comparisons[] = " < > <= >= ";
    bool before = cc_token_is_any(e->tokens, begin - 1, " - + / % * ~ ");
    bool behind = cc_token_is_any(e->tokens, end, " - + / % * ");
    bool more = cc_token_is_any(e->tokens, begin - 1, comparisons) && !enums_is_harmless(e, begin - 2);
    bool less = cc_token_is_any(e->tokens, end, comparisons) && !enums_is_harmless(e, end + 1);
    return before || behind || more || less;
}

void cc_enums_check_arithmetic(const cc_enums *e, cc_check *check)
{
    for (size_t i = 1; i < e->tokens->n; i++) {
        const variable *found =
            enums_token_at(e, i)->kind == CC_NAME ? enums_find_variable(e, enums_token_at(e, i)) : NULL;
        if (found == NULL || found->other_too || i == found->token) {
            continue;
        }
        size_t begin = enums_expression_begin(e, i), end = enums_expression_end(e, i, found->form);
        bool declares =
            enums_token_is(e, begin - 1, "*") && (enums_is_type(e, begin - 2) || enums_token_is(e, begin - 3, "enum"));
        if (end > i && !declares && !enums_ends_cast(e, begin - 1) && enums_is_in_arithmetic(e, begin, end)) {
            cc_check_found(check, i,
                           "'%.*s' has the type of an enum, which is unsigned in C and an int in C++: "
                           "calculate with (int)%.*s");
        }
    }
}
