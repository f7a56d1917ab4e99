/* cc_tokens.c - see cc_tokens.h. */
#include "cli/cc_tokens.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cc_source.h"

/* The length of a string or a character from its quote on. If no quote closes it, it ends with the
 * line. */
static size_t token_quoted_length(const char *at)
{
    size_t n = 1;
    while (at[n] != 0 && at[n] != '\n' && at[n] != at[0]) {
        n += at[n] == '\\' && at[n + 1] != 0 ? 2 : 1;
    }
    return n + (at[n] == at[0]);
}

/* The length of a preprocessing number, such as 0x1p-3f. */
static size_t token_number_length(const char *at)
{
    size_t n = 1;
    while (cc_is_name(at[n]) || at[n] == '.' ||
           (strchr("+-", at[n]) != NULL && at[n] != 0 && strchr("eEpP", at[n - 1]))) {
        n++;
    }
    return n;
}

static size_t token_punctuation_length(const char *at)
{
    static const char *const longer[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=",
                                         "&&",  "||",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##"};
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++) {
        if (strncmp(at, longer[i], strlen(longer[i])) == 0) {
            return strlen(longer[i]);
        }
    }
    return 1;
}

static size_t token_blank_length(const char *at)
{
    if (strncmp(at, "//", 2) == 0) {
        return strcspn(at, "\n");
    }
    if (strncmp(at, "/*", 2) == 0) {
        const char *end = strstr(at + 2, "*/");
        return end != NULL ? (size_t)(end + 2 - at) : strlen(at);
    }
    return isspace((unsigned char)*at) || *at == '\\' ? 1 : 0;
}

static cc_token token_at(const char *at)
{
    cc_token found = {.at = at, .kind = CC_OTHER};
    size_t prefix = strspn(at, "LuU8");
    if (prefix <= 2 && (at[prefix] == '"' || at[prefix] == '\'') && !isdigit((unsigned char)*at)) {
        found.kind = at[prefix] == '"' ? CC_STRING : CC_CHARACTER;
        found.length = prefix + token_quoted_length(at + prefix);
    } else if (isdigit((unsigned char)*at) || (*at == '.' && isdigit((unsigned char)at[1]))) {
        found.kind = CC_NUMBER;
        found.length = token_number_length(at);
    } else if (cc_is_name(*at)) {
        found.kind = CC_NAME;
        while (cc_is_name(at[found.length])) {
            found.length++;
        }
    } else {
        found.length = token_punctuation_length(at);
    }
    return found;
}

/* The source place of the text that follows. */
typedef struct place {
    size_t file;
    int line;
    bool system;
} place;

static size_t token_file_number(cli_command *files, const char *name, size_t length)
{
    for (size_t i = 0; i < files->n; i++) {
        if (strncmp(files->arguments[i], name, length) == 0 && files->arguments[i][length] == 0) {
            return i;
        }
    }
    char *copy = cli_format("%.*s", (int)length, name);
    cli_command_add(files, copy);
    free(copy);
    return files->n - 1;
}

/* Reads # LINE "FILE" FLAGS; flag 3 marks a system header. Other lines that begin with # change
 * nothing. */
static void token_read_marker(const char *at, const char *without, cli_command *files, place *now)
{
    char *end = NULL;
    long line = strtol(at + 1, &end, 10);
    if (end == at + 1 || strncmp(end, " \"", 2) != 0) {
        return;
    }
    size_t length = token_quoted_length(end + 1);
    const char *name = end + 2, *flags = end + 1 + length;
    now->line = (int)line - 1; /* the newline of the marker itself counts */
    now->file = token_file_number(files, name, length - 2);
    now->system = name[0] == '<' || (without != NULL && strncmp(name, without, strlen(without)) == 0);
    for (; *flags != 0 && *flags != '\n'; flags++) {
        now->system |= flags[0] == '3' && !cc_is_name(flags[-1]) && !cc_is_name(flags[1]);
    }
}

static void token_find_partners(cc_tokens *tokens)
{
    size_t open = CC_NOWHERE; /* the innermost open bracket */
    for (size_t i = 0; i < tokens->n; i++) {
        cc_token *token = &tokens->all[i];
        bool single = token->kind == CC_OTHER && token->length == 1;
        token->partner = i;
        if (single && strchr(")]}", *token->at) != NULL && open != CC_NOWHERE) {
            tokens->all[open].partner = i;
            token->partner = open;
            open = tokens->all[open].outside;
        }
        token->outside = open;
        if (single && strchr("([{", *token->at) != NULL) {
            open = i;
        }
    }
}

cc_tokens cc_tokens_read(const char *text, const char *without)
{
    cc_tokens tokens = {.all = cli_allocate((strlen(text) + 1) * sizeof *tokens.all)};
    place now = {.line = 1};
    bool begins_line = true;
    const char *end = text; /* end of the token before */
    for (const char *at = text; *at != 0;) {
        size_t n = token_blank_length(at);
        if (*at == '#' && begins_line) {
            token_read_marker(at, without, &tokens.files, &now);
            n = strcspn(at, "\n");
        }
        if (n > 0) {
            for (; n > 0; n--, at++) {
                now.line += *at == '\n';
                begins_line = *at == '\n' || (begins_line && isspace((unsigned char)*at));
            }
            continue;
        }
        cc_token found = token_at(at);
        found.glued = at == end;
        found.line = now.line;
        found.file = now.file;
        at += found.length;
        end = at;
        begins_line = false;
        if (!now.system) {
            tokens.all[tokens.n++] = found;
        }
    }
    tokens.all[tokens.n] = (cc_token){.at = text + strlen(text), .outside = CC_NOWHERE};
    token_find_partners(&tokens);
    return tokens;
}

void cc_tokens_release(cc_tokens *tokens)
{
    free(tokens->all);
    cli_command_release(&tokens->files);
}

cc_token_kind cc_token_kind_of(const cc_tokens *tokens, size_t i)
{
    return i < tokens->n ? tokens->all[i].kind : CC_END;
}

bool cc_token_is(const cc_tokens *tokens, size_t i, const char *text)
{
    return i < tokens->n && tokens->all[i].length == strlen(text) &&
           strncmp(tokens->all[i].at, text, strlen(text)) == 0;
}

bool cc_token_is_any(const cc_tokens *tokens, size_t i, const char *texts)
{
    size_t length = i < tokens->n ? tokens->all[i].length : 0;
    for (const char *at = length > 0 ? texts : ""; *at != 0; at++) {
        if (at[0] == ' ' && strncmp(at + 1, tokens->all[i].at, length) == 0 && at[length + 1] == ' ') {
            return true;
        }
    }
    return false;
}

bool cc_token_same(const cc_token *a, const cc_token *b)
{
    return a->length == b->length && strncmp(a->at, b->at, a->length) == 0;
}
