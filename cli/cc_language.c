/* cc_language.c - see cc_language.h.
 *
 * tests/kernel/language contains a source for each rule, and for code that is the same in both
 * languages.
 * Threads: the program's first. Locks: none.
 */
#include "cli/cc_language.h"

#include <stdlib.h>
#include <string.h>
#include "cli/cc.h"
#include "cli/cc_source.h"

static bool language_token_is(const cc_check *check, size_t i, const char *text)
{
    return cc_token_is(check->tokens, i, text);
}

static const cc_token *language_token_at(const cc_check *check, size_t i)
{
    return &check->tokens->all[i];
}

void cc_check_found(cc_check *check, size_t i, const char *text)
{
    const cc_token *token = language_token_at(check, i);
    char *message = cli_format("%s", ""), *longer;
    for (const char *end; (end = strstr(text, "%.*s")) != NULL; text = end + 4) {
        longer = cli_format("%s%.*s%.*s", message, (int)(end - text), text, (int)token->length, token->at);
        free(message);
        message = longer;
    }
    longer = cli_format("%s:%d: %s%s", check->tokens->files.arguments[token->file], token->line, message, text);
    free(message);
    bool again = false;
    for (size_t k = 0; k < check->printed.n; k++) {
        again |= strcmp(check->printed.arguments[k], longer) == 0;
    }
    if (!again) {
        cc_failed("%s", longer);
        cli_command_add(&check->printed, longer);
    }
    free(longer);
}

const cc_token *cc_type_of_brace(const cc_tokens *tokens, size_t brace, size_t *tag)
{
    size_t i = brace - 1;
    *tag = CC_NOWHERE;
    for (int step = 0; i < tokens->n && step < 3; step++) {
        if (cc_token_is_any(tokens, i, " struct union enum ")) {
            return &tokens->all[i];
        }
        if (cc_token_is(tokens, i, ")") &&
            cc_token_is_any(tokens, tokens->all[i].partner - 1, " __attribute__ __attribute _Alignas ")) {
            i = tokens->all[i].partner - 2;
        } else if (cc_token_kind_of(tokens, i) == CC_NAME) {
            *tag = i--;
        } else {
            return NULL;
        }
    }
    return NULL;
}

/* ---- words ---- */

#define NO_LONG_DOUBLE "a long double has 16 bytes for the CPU and 8 for a GPU, which has no such numbers: use double"
#define OTHER_SIZE "'%.*s' has another size for the CPU than for a GPU: use int32_t, int64_t and their kind"
#define NO_TYPE "GPUs have no type '%.*s': kernel source has float and double, and hd_f16 and hd_bf16"

static const struct {
    const char *word, *text; /* a word that ends in * is a prefix */
} words[] = {
    {"int_fast16_t", OTHER_SIZE},
    {"int_fast32_t", OTHER_SIZE},
    {"uint_fast16_t", OTHER_SIZE},
    {"uint_fast32_t", OTHER_SIZE},
    {"INT_FAST*", OTHER_SIZE},
    {"UINT_FAST*", OTHER_SIZE},
    {"max_align_t", OTHER_SIZE},
    {"__BIGGEST_ALIGNMENT__", "'%.*s' is another number for the CPU than for a GPU: write the number"},
    {"LDBL_*", NO_LONG_DOUBLE},
    {"_Float*", NO_TYPE},
    {"__fp16", NO_TYPE},
    {"__float128", NO_TYPE},
    {"__float80", NO_TYPE},
    {"_Decimal*", NO_TYPE},
    {"scalar_storage_order", "only gcc has '%.*s', and only for C: GPUs have the order of the CPU"},
    {"__PRETTY_FUNCTION__", "'%.*s' is another text in C than in C++: use __func__"},
};

static bool language_is_word(const cc_token *token, const char *word)
{
    size_t length = strlen(word);
    return word[length - 1] == '*' ? token->length >= length && strncmp(token->at, word, length - 1) == 0
                                   : token->length == length && strncmp(token->at, word, length) == 0;
}

static const char *const words_of_cpp[] = {"and",
                                           "and_eq",
                                           "bitand",
                                           "bitor",
                                           "catch",
                                           "class",
                                           "compl",
                                           "const_cast",
                                           "constexpr",
                                           "decltype",
                                           "delete",
                                           "dynamic_cast",
                                           "explicit",
                                           "export",
                                           "friend",
                                           "mutable",
                                           "namespace",
                                           "new",
                                           "noexcept",
                                           "not",
                                           "not_eq",
                                           "nullptr",
                                           "operator",
                                           "or",
                                           "or_eq",
                                           "private",
                                           "protected",
                                           "public",
                                           "reinterpret_cast",
                                           "static_cast",
                                           "template",
                                           "this",
                                           "throw",
                                           "try",
                                           "typeid",
                                           "typename",
                                           "using",
                                           "virtual",
                                           "xor",
                                           "xor_eq"};

static void language_check_words(cc_check *check, size_t i)
{
    for (size_t w = 0; w < sizeof words_of_cpp / sizeof words_of_cpp[0]; w++) {
        if (language_token_is(check, i, words_of_cpp[w])) {
            cc_check_found(check, i,
                           "'%.*s' is a word of C++, as which kernels are compiled, too: give it another name");
            return;
        }
    }
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        if (language_is_word(language_token_at(check, i), words[w].word)) {
            cc_check_found(check, i, words[w].text);
            return;
        }
    }
}

/* Reports long double, its literals, and the compiler's functions for it. */
static void language_check_long_double(cc_check *check, size_t i)
{
    static const char between[] = " const volatile _Complex __complex__ ";
    const cc_token *token = language_token_at(check, i);
    char last = token->at[token->length - 1];
    bool found = false;
    if (language_token_is(check, i, "long") || language_token_is(check, i, "double")) {
        size_t next = i + 1;
        while (cc_token_is_any(check->tokens, next, between)) {
            next++;
        }
        found = language_token_is(check, next, language_token_is(check, i, "long") ? "double" : "long");
    } else if (token->kind == CC_NUMBER && (last == 'l' || last == 'L')) {
        bool hexadecimal = token->length > 1 && strchr("xX", token->at[1]) != NULL;
        const char *marks = hexadecimal ? ".pP" : ".eE";
        found = strcspn(token->at, marks) < token->length;
    } else if (token->kind == CC_NAME && last == 'l' && strncmp(token->at, "__builtin_", 10) == 0) {
        static const char others[] = " __builtin_ceil __builtin_isnormal __builtin_clzl __builtin_clzll __builtin_ctzl "
                                     "__builtin_ctzll __builtin_popcountl __builtin_popcountll __builtin_ffsl "
                                     "__builtin_ffsll __builtin_parityl __builtin_parityll __builtin_clrsbl "
                                     "__builtin_clrsbll __builtin_huge_val __builtin_signal ";
        found = !cc_token_is_any(check->tokens, i, others);
    }
    if (found) {
        cc_check_found(check, i, NO_LONG_DOUBLE);
    }
}

/* ---- the types of expressions ---- */

/* True if the operand [begin, end) is of another type in C++. There comparisons are bool,
 * characters are char, and a comma and ?: keep arrays. Arithmetic on one of these yields an int in
 * both languages. */
static bool language_has_other_type(const cc_check *check, size_t begin, size_t end)
{
    static const char comparisons[] = " == != < > <= >= && || ";
    while (language_token_is(check, begin, "(") && language_token_at(check, begin)->partner + 1 == end) {
        begin++;
        end--;
    }
    bool calculated = false, compared = language_token_is(check, begin, "!");
    for (size_t i = begin; i < end; i++) {
        if (language_token_is(check, i, ",") || language_token_is(check, i, "?")) {
            return true;
        }
        bool binary = i > begin && (cc_token_kind_of(check->tokens, i - 1) != CC_OTHER ||
                                    language_token_is(check, i - 1, ")") || language_token_is(check, i - 1, "]"));
        calculated |= binary && cc_token_is_any(check->tokens, i, " + - * / % & | ^ << >> ");
        compared |= cc_token_is_any(check->tokens, i, comparisons);
        i = language_token_at(check, i)->partner > i ? language_token_at(check, i)->partner : i;
    }
    bool character =
        language_token_at(check, begin)->kind == CC_CHARACTER && *language_token_at(check, begin)->at == '\'';
    bool single = begin + 1 == end && (character || cc_token_is_any(check->tokens, begin, " true false "));
    return (compared && !calculated) || single;
}

/* True if the name is a structure's tag inside a function, and not a type by itself. */
static bool language_is_inner_tag(const cc_check *check, const cc_token *name)
{
    bool found = false;
    for (size_t i = 0; i < check->tokens->n; i++) {
        size_t tag;
        if (language_token_is(check, i, "{") && cc_type_of_brace(check->tokens, i, &tag) != NULL && tag != CC_NOWHERE) {
            found |= cc_token_same(language_token_at(check, tag), name) &&
                     language_token_at(check, i)->outside != CC_NOWHERE;
        } else if (language_token_is(check, i, "typedef")) {
            size_t end = i;
            while (end < check->tokens->n && !language_token_is(check, end, ";")) {
                end =
                    language_token_at(check, end)->partner > end ? language_token_at(check, end)->partner + 1 : end + 1;
            }
            if (end < check->tokens->n && cc_token_same(language_token_at(check, end - 1), name)) {
                return false;
            }
        }
    }
    return found;
}

static void language_check_operand(cc_check *check, const cc_enums *enums, size_t i)
{
    bool generic = language_token_is(check, i, "_Generic");
    bool type = generic || cc_token_is_any(check->tokens, i, " typeof __typeof __typeof__ ");
    if (!type && !cc_token_is_any(check->tokens, i, " sizeof _Alignof __alignof __alignof__ ")) {
        return;
    }
    size_t begin = i + 1, end = i + 2;
    if (language_token_is(check, begin, "(")) {
        end = language_token_at(check, begin)->partner;
        begin++;
    }
    for (size_t comma = begin; generic && comma < end; comma++) {
        end = language_token_is(check, comma, ",") ? comma : end;
        comma = language_token_at(check, comma)->partner > comma ? language_token_at(check, comma)->partner : comma;
    }
    const cc_token *first = language_token_at(check, begin);
    bool single = begin + 1 == end && first->kind == CC_NAME;
    if (begin < end && language_has_other_type(check, begin, end)) {
        cc_check_found(check, i,
                       "the operand of %.*s has another type in C++: a comparison is bool there and a character is "
                       "char, and ?: and the comma keep arrays. Name the type");
    } else if (single && type && cc_enums_has(enums, first)) {
        cc_check_found(check, i, "the operand of %.*s is an enum in C++ and a number in C: name the type");
    } else if (single && language_is_inner_tag(check, first)) {
        cc_check_found(check, begin,
                       "'%.*s' is the structure in C++, and something else in C: give one of them another name");
    }
}

/* An unnamed object whose address is kept. It lives as long as its block in C, and as long as its
 * expression in C++. */
static void language_check_unnamed(cc_check *check, size_t brace)
{
    size_t open = language_token_is(check, brace, "{") && language_token_is(check, brace - 1, ")")
                      ? language_token_at(check, brace - 1)->partner
                      : brace;
    if (open >= brace || open == 0) {
        return;
    }
    bool array = language_token_is(check, brace - 2, "]") && language_token_is(check, open - 1, "=") &&
                 !language_token_is(check, language_token_at(check, brace)->partner + 1, "[");
    bool address = language_token_is(check, open - 1, "&") && language_token_is(check, open - 2, "=");
    if (array || address) {
        cc_check_found(
            check, brace,
            "an object without a name lives as long as its block in C, and as its expression in C++: give it "
            "a name");
    }
}

/* ---- structures ---- */

static void language_check_structure(cc_check *check, size_t brace)
{
    size_t tag;
    const cc_token *kind = language_token_is(check, brace, "{") ? cc_type_of_brace(check->tokens, brace, &tag) : NULL;
    if (kind == NULL || *kind->at == 'e') {
        return;
    }
    if (language_token_at(check, brace)->partner == brace + 1) {
        cc_check_found(check, brace, "an empty structure has no bytes in C and 1 in C++: give it a member");
    }
    for (size_t i = brace + 1; i < language_token_at(check, brace)->partner; i++) {
        bool width = language_token_is(check, i - 1, ":") && language_token_at(check, i)->outside == brace &&
                     language_token_at(check, i)->kind == CC_NUMBER;
        unsigned long bits = width ? strtoul(language_token_at(check, i)->at, NULL, 0) : 0;
        if (bits > 32 && bits < 64) {
            cc_check_found(
                check, i,
                "gcc calculates with a bit field of %.*s bits in its own width in C, and in 64 bits in C++: use a "
                "uint64_t, and shifts");
        }
    }
}

/* __attribute__((aligned)) without a number. */
static void language_check_alignment(cc_check *check, size_t i)
{
    size_t inner = language_token_at(check, i)->outside,
           outer = inner != CC_NOWHERE ? language_token_at(check, inner)->outside : CC_NOWHERE;
    if (cc_token_is_any(check->tokens, i, " aligned __aligned__ ") && !language_token_is(check, i + 1, "(") &&
        outer != CC_NOWHERE && cc_token_is_any(check->tokens, outer - 1, " __attribute__ __attribute ")) {
        cc_check_found(check, i, "'%.*s' without a number is another one for the CPU than for a GPU: write the number");
    }
}

/* ---- inside of functions ---- */

/* True if the token is inside braces that do not belong to a type. */
static bool language_is_in_function(const cc_check *check, size_t i)
{
    size_t tag;
    for (i = language_token_at(check, i)->outside; i != CC_NOWHERE; i = language_token_at(check, i)->outside) {
        if (language_token_is(check, i, "{") && cc_type_of_brace(check->tokens, i, &tag) == NULL &&
            !language_token_is(check, i - 1, "=")) {
            return true;
        }
    }
    return false;
}

/* A static variable: host devices of one process share it, but each GPU uses its own. */
static void language_check_static(cc_check *check, size_t i)
{
    bool constant = false;
    if (!language_token_is(check, i, "static") || !language_is_in_function(check, i)) {
        return;
    }
    for (size_t j = i + 1; j < check->tokens->n && !cc_token_is_any(check->tokens, j, " = ; [ ( { "); j++) {
        constant |= language_token_is(check, j, "const");
    }
    if (!constant && !language_token_is(check, i - 1, "const")) {
        cc_check_found(check, i,
                       "a static variable of a kernel is one for all host devices, and one for each GPU: "
                       "use HD_GLOBAL outside of it, or HD_SHARED");
    }
}

/* case 1 ... 3 is an extension of C, and nvcc takes only its first number. */
static void language_check_range(cc_check *check, size_t i)
{
    size_t begin = i;
    while (language_token_is(check, i, "...") && begin > 0 &&
           !cc_token_is_any(check->tokens, begin, " ; { } : case ")) {
        begin--;
    }
    if (language_token_is(check, i, "...") && language_token_is(check, begin, "case")) {
        cc_check_found(check, i, "nvcc takes the first number alone of case 1 ... 3: write a case for each");
    }
}

/* The name of a kernel's function, which is longer on the CPU. */
static void language_check_kernel_name(cc_check *check, size_t i)
{
    size_t brace = i;
    if (!cc_token_is_any(check->tokens, i, " __func__ __FUNCTION__ ")) {
        return;
    }
    while (brace != CC_NOWHERE && language_token_at(check, brace)->outside != CC_NOWHERE) {
        brace = language_token_at(check, brace)->outside;
    }
    if (language_token_is(check, brace - 1, ")") &&
        cc_token_is_any(check->tokens, language_token_at(check, brace - 1)->partner - 1,
                        " HD_KERNEL HD_KERNEL_BOUNDS ")) {
        cc_check_found(check, i,
                       "in a kernel '%.*s' is another text on the CPU than on a GPU: write the kernel's name");
    }
}

/* ---- all of them ---- */

static void language_check_all(cc_check *check)
{
    cc_enums *enums = cc_enums_find(check);
    for (size_t i = 0; i < check->tokens->n; i++) {
        if (language_token_at(check, i)->kind == CC_NAME) {
            language_check_words(check, i);
            language_check_operand(check, enums, i);
            language_check_alignment(check, i);
            language_check_static(check, i);
            language_check_kernel_name(check, i);
        }
        language_check_long_double(check, i);
        language_check_structure(check, i);
        language_check_unnamed(check, i);
        language_check_range(check, i);
    }
    cc_enums_check_arithmetic(enums, check);
    cc_enums_release(enums);
}

/* Differences that a preprocessor hides: 1'000 is one number in C++. */
static void language_check_file(cc_check *check, const char *file)
{
    size_t bytes = 0;
    char *text = cli_read_file(file, &bytes);
    if (text == NULL) {
        return;
    }
    cc_tokens tokens = cc_tokens_read(text, NULL);
    cc_check raw = {.tokens = &tokens};
    cli_command_add(&tokens.files, file);
    for (size_t i = 1; i < tokens.n; i++) {
        if (tokens.all[i].kind == CC_CHARACTER && tokens.all[i].glued && tokens.all[i - 1].kind == CC_NUMBER) {
            cc_check_found(
                &raw, i - 1,
                "a ' behind the number %.*s belongs to it in C++, and begins a character in C: put a blank between");
        }
    }
    for (size_t i = 0; i < raw.printed.n; i++) {
        cli_command_add(&check->printed, raw.printed.arguments[i]);
    }
    cli_command_release(&raw.printed);
    cc_tokens_release(&tokens);
    free(text);
}

bool cc_language_check(const char *text, const char *without)
{
    cc_tokens tokens = cc_tokens_read(text, without);
    cc_check check = {.tokens = &tokens};
    language_check_all(&check);
    for (size_t file = 0; file < tokens.files.n; file++) {
        bool used = false;
        for (size_t i = 0; i < tokens.n && !used; i++) {
            used = tokens.all[i].file == file;
        }
        if (used) {
            language_check_file(&check, tokens.files.arguments[file]);
        }
    }
    bool same = check.printed.n == 0;
    cli_command_release(&check.printed);
    cc_tokens_release(&tokens);
    return same;
}
