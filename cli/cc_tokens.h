/* cc_tokens.h - the tokens of C source, for the rules of cc_language.c.
 *
 * Threads: the program's first. Locks: none.
 * Always: a token of kind CC_END follows the last one. An unmatched bracket is its own partner.
 */
#ifndef CLI_CC_TOKENS_H
#define CLI_CC_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/process.h"

typedef enum cc_token_kind { CC_END, CC_NAME, CC_NUMBER, CC_CHARACTER, CC_STRING, CC_OTHER } cc_token_kind;

typedef struct cc_token {
    const char *at;
    size_t length;
    cc_token_kind kind;
    bool glued; /* no blank separates it from the token before */
    int line;
    size_t file;    /* index in the list's `files` */
    size_t partner; /* of a bracket: its match; else the token itself */
    size_t outside; /* the innermost bracket around it; CC_NOWHERE: none */
} cc_token;

#define CC_NOWHERE ((size_t)-1)

typedef struct cc_tokens {
    cc_token *all;
    size_t n;
    cli_command files;
} cc_tokens;

/* Reads the output of a preprocessor, in which lines such as "# LINE "FILE" FLAGS" name the
 * source. Skips system headers and files whose names begin with `without`. The tokens point into
 * the text, so keep the text as long as the tokens. */
cc_tokens cc_tokens_read(const char *text, const char *without);
void cc_tokens_release(cc_tokens *tokens);

/* True if token `i` is this text. False if the index is out of range. */
bool cc_token_is(const cc_tokens *tokens, size_t i, const char *text);
/* True if the token is one of the texts, each with a blank on both sides: " + - ". */
bool cc_token_is_any(const cc_tokens *tokens, size_t i, const char *texts);
bool cc_token_same(const cc_token *a, const cc_token *b);
cc_token_kind cc_token_kind_of(const cc_tokens *tokens, size_t i);

#endif
