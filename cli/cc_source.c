/* cc_source.c - see cc_source.h. */
#include "cli/cc_source.h"

#include <stdlib.h>
#include <string.h>
#include "cli/process.h"

static char *source_read_text(const char *file)
{
    size_t bytes = 0;
    return cli_read_file(file, &bytes);
}

bool cc_is_cuda(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot != NULL && dot > file && (strcmp(dot, ".cu") == 0 || strcmp(dot, ".cuh") == 0);
}

static int source_line_at(const char *text, const char *at)
{
    int line = 1;
    for (; text < at; text++) {
        line += *text == '\n';
    }
    return line;
}

const char *cc_source_find(const char *text, const char *word)
{
    size_t length = strlen(word);
    bool begins = word[length - 1] == '*';
    length -= begins;
    for (const char *at = text; *at != 0; at++) {
        if (strncmp(at, word, length) == 0 && (at == text || !cc_is_name(at[-1])) &&
            (begins || !cc_is_name(word[length - 1]) || !cc_is_name(at[length]))) {
            return at;
        }
    }
    return NULL;
}

int cc_source_call(const char *file, const char *name)
{
    static const char builtin[] = "__builtin_";
    size_t length = strlen(name), prefix = sizeof builtin - 1;
    char *text = source_read_text(file);
    int line = 0;
    bool sure = false;
    for (const char *at = text; at != NULL && !sure && (at = strstr(at, name)) != NULL; at += length) {
        const char *begin = at, *end = at + length + strspn(at + length, " \t");
        if ((size_t)(begin - text) >= prefix && strncmp(begin - prefix, builtin, prefix) == 0) {
            begin -= prefix;
        }
        if (*end == '(' && !cc_is_name(at[length]) && (begin == text || !cc_is_name(begin[-1]))) {
            while (begin > text && strchr(" \t\n", begin[-1]) != NULL) {
                begin--;
            }
            /* otherwise it may be a declaration */
            sure = begin > text && begin[-1] != '*' && !cc_is_name(begin[-1]);
            line = source_line_at(text, at);
        }
    }
    free(text);
    return line;
}

bool cc_source_has(const char *file, const char *text)
{
    char *all = source_read_text(file);
    bool found = all != NULL && strstr(all, text) != NULL;
    free(all);
    return found;
}

int cc_source_word(const char *file, const char *name)
{
    char *text = source_read_text(file);
    const char *at = text != NULL ? cc_source_find(text, name) : NULL;
    int line = at != NULL ? source_line_at(text, at) : 0;
    free(text);
    return line;
}

/* The next HD_KERNEL(NAME or HD_KERNEL_BOUNDS(NAME; *name is the start of its name. NULL: none. */
static const char *source_next_kernel(const char *text, const char **name)
{
    for (const char *at = text; (at = cc_source_find(at, "HD_KERNEL*")) != NULL; at++) {
        const char *end = at + strlen("HD_KERNEL");
        end += strncmp(end, "_BOUNDS", 7) == 0 ? 7 : 0;
        end += strspn(end, " \t");
        if (*end == '(') {
            *name = end + 1 + strspn(end + 1, " \t\n");
            return at;
        }
    }
    return NULL;
}

int cc_source_kernel(const char *file, const char *name)
{
    size_t length = strlen(name);
    char *text = source_read_text(file);
    const char *word = NULL;
    int line = 0;
    for (const char *at = text; at != NULL && line == 0 && (at = source_next_kernel(at, &word)) != NULL; at = word) {
        if (strncmp(word, name, length) == 0 && !cc_is_name(word[length])) {
            line = source_line_at(text, at);
        }
    }
    free(text);
    return line;
}
