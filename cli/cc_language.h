/* cc_language.h - finds code that means one thing in C and another in C++, so that CPU and GPU
 * would compute different results.
 *
 * Kernel source is C for the CPU's compiler and C++ for the GPU's compiler. Most differences are
 * errors in one of the languages, or warnings that `heddle cc` turns into errors. The rules here
 * find the differences that neither compiler reports, in the tokens of the preprocessed source.
 * The rules do not know types, so each refuses any code that may differ. All refused code can be
 * written in a way that means the same in both languages.
 * Threads: the program's first. Locks: none.
 */
#ifndef CLI_CC_LANGUAGE_H
#define CLI_CC_LANGUAGE_H

#include "cli/cc_tokens.h"

/* Checks preprocessed text that does not include heddle/kernel.h. Skips files whose names begin
 * with `without`. Prints each difference, and returns true if there are none. */
bool cc_language_check(const char *text, const char *without);

/* ---- for the files of the rules ---- */

typedef struct cc_check {
    const cc_tokens *tokens;
    cli_command printed; /* texts that were printed */
} cc_check;

/* Prints a difference at token `i`. In the text, %.*s is the token. */
void cc_check_found(cc_check *check, size_t i, const char *text);

/* The token `struct`, `union` or `enum` of the type whose brace this is, or NULL if the brace
 * opens no type. *tag is the type's name, or CC_NOWHERE. */
const cc_token *cc_type_of_brace(const cc_tokens *tokens, size_t brace, size_t *tag);

/* ---- cc_enums.c ---- */

typedef struct cc_enums cc_enums;

/* Finds the enumerations and the names of their types, and checks the values. */
cc_enums *cc_enums_find(cc_check *check);
void cc_enums_release(cc_enums *enums);

/* True if the name is an enumerator, or a variable of an enumeration's type. */
bool cc_enums_has(const cc_enums *enums, const cc_token *name);

/* Checks arithmetic on enumerations, which is unsigned in C and int in C++. */
void cc_enums_check_arithmetic(const cc_enums *enums, cc_check *check);

#endif
