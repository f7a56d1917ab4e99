/* cc_join.c - joins PTX texts into one, if no compiler does it.
 *
 * Kernels keep their names. A helper or a constant may share its name with one of another text.
 * From the second text on, such names get the number of their text as a suffix. The names of
 * strings in debug lines get the suffix, too. The numbers of a text's source files follow those of
 * the texts before.
 * Threads: the program's first. Locks: none.
 * Always: a text is read once for its names and once to write it, and every word lies inside the
 * text.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cc.h"

typedef struct word {
    const char *at;
    size_t n; /* 0: the end of the text */
} word;

static bool join_is_name_character(char c)
{
    return isalnum((unsigned char)c) || strchr("_$%.", c) != NULL;
}

/* The word at `at`: blanks, a comment, a string, a name with its dots, or one other character. */
static word join_word_at(const char *at)
{
    size_t n = *at != 0;
    if (isspace((unsigned char)*at)) {
        n = strspn(at, " \t\r\n");
    } else if (strncmp(at, "//", 2) == 0) {
        n = strcspn(at, "\n");
    } else if (strncmp(at, "/*", 2) == 0) {
        const char *end = strstr(at + 2, "*/");
        n = end != NULL ? (size_t)(end + 2 - at) : strlen(at);
    } else if (*at == '"') {
        n = 1 + strcspn(at + 1, "\"\n");
        n += at[n] == '"';
    } else {
        while (at[n] != 0 && join_is_name_character(at[0]) && join_is_name_character(at[n])) {
            n++;
        }
    }
    return (word){at, n};
}

static bool join_word_is(word w, const char *text)
{
    return strlen(text) == w.n && strncmp(w.at, text, w.n) == 0;
}

static bool join_word_is_one_of(word w, const char *const *texts)
{
    while (*texts != NULL && !join_word_is(w, *texts)) {
        texts++;
    }
    return *texts != NULL;
}

/* The reader's state within a text: names are defined outside of functions. */
typedef struct statement {
    int braces, parentheses;
    bool defines, number_follows;
    bool visible; /* to other texts */
    bool named;
    bool section; /* holds strings for a debugger */
} statement;

/* True if the word is a name that is local to the text. */
static bool join_word_is_defined(statement *now, word w)
{
    static const char *const visible[] = {".visible", ".extern", ".weak", ".common", ".entry", NULL};
    static const char *const definitions[] = {".func", ".global", ".const", ".shared", NULL};
    char c = w.at[0];
    bool outside = now->braces == 0 && now->parentheses == 0, own = false;
    if (c == '{' || c == '}') {
        now->braces += c == '{' ? 1 : -1;
    } else if (c == '(' || c == ')') {
        now->parentheses += c == '(' ? 1 : -1;
    } else if (outside && join_word_is_one_of(w, visible)) {
        now->visible = true;
    } else if (outside && join_word_is_one_of(w, definitions)) {
        now->defines = true;
    } else if (outside && join_word_is(w, ".section")) {
        now->section = true;
    } else if (now->section && w.at[w.n] == ':') {
        own = true;
    } else if (outside && join_word_is(w, ".align")) {
        now->number_follows = true;
    } else if (outside && join_is_name_character(c) && c != '.' && c != '%') {
        own = now->defines && !now->number_follows && !now->named && !now->visible;
        now->named |= now->defines && !now->number_follows;
        now->number_follows = false;
    }
    if (now->braces == 0 && now->parentheses == 0 && (c == ';' || c == '}')) {
        memset(now, 0, sizeof *now);
    }
    return own;
}

/* The local names of the text. */
static cli_command join_own_names(const char *text)
{
    cli_command names = {0};
    statement now = {0};
    for (word w = join_word_at(text); w.n != 0; w = join_word_at(w.at + w.n)) {
        if (!isspace((unsigned char)w.at[0]) && w.at[0] != '/' && join_word_is_defined(&now, w)) {
            char *name = cli_format("%.*s", (int)w.n, w.at);
            if (!join_word_is_one_of(w, (const char *const *)(names.n > 0 ? names.arguments : (char *[]){NULL}))) {
                cli_command_add(&names, name);
            }
            free(name);
        }
    }
    return names;
}

/* The text after its header lines: .version, .target, .address_size. */
static const char *join_behind_head(const char *text)
{
    const char *at = strstr(text, "\n.address_size");
    return at != NULL ? at + 1 + strcspn(at + 1, "\n") : text;
}

/* True if the number of a source file follows such a word. */
static bool join_word_names_file(word w)
{
    static const char *const words[] = {".file", ".loc", "inlined_at", NULL};
    return join_word_is_one_of(w, words);
}

/* The highest number of a source file in the text; 0: none. */
static unsigned long join_files_of(const char *text)
{
    unsigned long most = 0;
    for (word w = join_word_at(text); w.n != 0; w = join_word_at(w.at + w.n)) {
        unsigned long file = join_word_names_file(w) ? strtoul(w.at + w.n, NULL, 10) : 0;
        most = file > most ? file : most;
    }
    return most;
}

/* Appends the text to `out`. Adds the suffix to each of the names, and `files` to the numbers of
 * source files. */
static void join_write_text(FILE *out, const char *text, const cli_command *names, size_t number, unsigned long files)
{
    bool file = false; /* the next word is a file's number */
    for (word w = join_word_at(text); w.n != 0; w = join_word_at(w.at + w.n)) {
        if (file && isdigit((unsigned char)w.at[0])) {
            fprintf(out, "%lu", strtoul(w.at, NULL, 10) + files);
        } else {
            fwrite(w.at, 1, w.n, out);
        }
        file = join_word_names_file(w) || (file && isspace((unsigned char)w.at[0]));
        if (names->n > 0 && join_word_is_one_of(w, (const char *const *)names->arguments)) {
            fprintf(out, "_hd%zu", number);
        }
    }
}

char *cc_join(char *const *texts, size_t n)
{
    char *joined = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&joined, &bytes);
    if (out == NULL) {
        cli_allocate((size_t)-1); /* ends the program */
    }
    fputs(texts[0], out);
    unsigned long files = join_files_of(texts[0]);
    for (size_t i = 1; i < n; i++) {
        cli_command names = join_own_names(texts[i]);
        join_write_text(out, join_behind_head(texts[i]), &names, i + 1, files);
        files += join_files_of(texts[i]);
        cli_command_release(&names);
    }
    fclose(out);
    return joined;
}
