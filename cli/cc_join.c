/* cc_join.c - joins texts of PTX into one, where no compiler does it.
 *
 * Kernels keep their names. A helper or a constant may have the name of another text's. So from the second text on, such a name gets the
 * number of the text. So do the names of strings that lines of the source refer to. Numbers of source files go on from those of the texts
 * before.
 * Threads: the program's first. Locks: none.
 * Always: a text is read once for its names and once to write it, and every word lies inside the text.
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

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || strchr("_$%.", c) != NULL;
}

/* What begins at `at`: blanks, a comment, a string, a name with its dots, or one other character. */
static word word_at(const char *at)
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
        while (at[n] != 0 && is_name(at[0]) && is_name(at[n])) {
            n++;
        }
    }
    return (word){at, n};
}

static bool is(word w, const char *text)
{
    return strlen(text) == w.n && strncmp(w.at, text, w.n) == 0;
}

static bool is_one_of(word w, const char *const *texts)
{
    while (*texts != NULL && !is(w, *texts)) {
        texts++;
    }
    return *texts != NULL;
}

/* Where reading is within the text: outside of functions names are defined. */
typedef struct statement {
    int braces, parentheses;
    bool defines, number_follows;
    bool visible; /* outside of the text */
    bool named;
    bool section; /* of strings for a debugger */
} statement;

/* Whether the word is a name that the text defines for itself alone. */
static bool defines(statement *now, word w)
{
    static const char *const visible[] = {".visible", ".extern", ".weak", ".common", ".entry", NULL};
    static const char *const definitions[] = {".func", ".global", ".const", ".shared", NULL};
    char c = w.at[0];
    bool outside = now->braces == 0 && now->parentheses == 0, own = false;
    if (c == '{' || c == '}') {
        now->braces += c == '{' ? 1 : -1;
    } else if (c == '(' || c == ')') {
        now->parentheses += c == '(' ? 1 : -1;
    } else if (outside && is_one_of(w, visible)) {
        now->visible = true;
    } else if (outside && is_one_of(w, definitions)) {
        now->defines = true;
    } else if (outside && is(w, ".section")) {
        now->section = true;
    } else if (now->section && w.at[w.n] == ':') {
        own = true;
    } else if (outside && is(w, ".align")) {
        now->number_follows = true;
    } else if (outside && is_name(c) && c != '.' && c != '%') {
        own = now->defines && !now->number_follows && !now->named && !now->visible;
        now->named |= now->defines && !now->number_follows;
        now->number_follows = false;
    }
    if (now->braces == 0 && now->parentheses == 0 && (c == ';' || c == '}')) {
        memset(now, 0, sizeof *now);
    }
    return own;
}

/* The names that the text defines for itself. */
static cli_command own_names(const char *text)
{
    cli_command names = {0};
    statement now = {0};
    for (word w = word_at(text); w.n != 0; w = word_at(w.at + w.n)) {
        if (!isspace((unsigned char)w.at[0]) && w.at[0] != '/' && defines(&now, w)) {
            char *name = cli_format("%.*s", (int)w.n, w.at);
            if (!is_one_of(w, (const char *const *)(names.n > 0 ? names.arguments : (char *[]){NULL}))) {
                cli_command_add(&names, name);
            }
            free(name);
        }
    }
    return names;
}

/* Behind the lines that describe the text: .version, .target, .address_size. */
static const char *behind_head(const char *text)
{
    const char *at = strstr(text, "\n.address_size");
    return at != NULL ? at + 1 + strcspn(at + 1, "\n") : text;
}

/* Whether the number of a source file follows such a word. */
static bool names_file(word w)
{
    static const char *const words[] = {".file", ".loc", "inlined_at", NULL};
    return is_one_of(w, words);
}

/* The highest number of a source file in the text; 0: it has none. */
static unsigned long files_of(const char *text)
{
    unsigned long most = 0;
    for (word w = word_at(text); w.n != 0; w = word_at(w.at + w.n)) {
        unsigned long file = names_file(w) ? strtoul(w.at + w.n, NULL, 10) : 0;
        most = file > most ? file : most;
    }
    return most;
}

/* Writes the text behind `out`, with the number behind each of the names, and `files` added to the numbers of source files. */
static void write_text(FILE *out, const char *text, const cli_command *names, size_t number, unsigned long files)
{
    bool file = false; /* the next word is the number of one */
    for (word w = word_at(text); w.n != 0; w = word_at(w.at + w.n)) {
        if (file && isdigit((unsigned char)w.at[0])) {
            fprintf(out, "%lu", strtoul(w.at, NULL, 10) + files);
        } else {
            fwrite(w.at, 1, w.n, out);
        }
        file = names_file(w) || (file && isspace((unsigned char)w.at[0]));
        if (names->n > 0 && is_one_of(w, (const char *const *)names->arguments)) {
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
    unsigned long files = files_of(texts[0]);
    for (size_t i = 1; i < n; i++) {
        cli_command names = own_names(texts[i]);
        write_text(out, behind_head(texts[i]), &names, i + 1, files);
        files += files_of(texts[i]);
        cli_command_release(&names);
    }
    fclose(out);
    return joined;
}
