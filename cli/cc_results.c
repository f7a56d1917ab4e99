/* cc_results.c - what `heddle cc` writes for a build beside a kernel file: C source that has it, and a rule for make.
 *
 * Threads: the program's first. Locks: none.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/output.h"
#include "cli/cc.h"
#include "cli/cli.h"

/* A file in memory that ends the program where there is no memory, as cli_allocate does. */
static FILE *open_text(char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);
    if (out == NULL) {
        cli_allocate((size_t)-1);
    }
    return out;
}

/* Writes the file with the text and releases that. */
static int write_text(const char *path, char *text, size_t bytes)
{
    int status = output_write(path, text, bytes) ? CLI_OK : cc_failed("%s: %s", path, strerror(errno));
    free(text);
    return status;
}

/* ---- C source ---- */

char *cc_header_of(const char *file)
{
    const char *slash = strrchr(file, '/'), *dot = strrchr(file, '.');
    bool ends = dot != NULL && (slash == NULL || dot > slash + 1);
    return cli_format("%.*s.h", (int)(ends ? (size_t)(dot - file) : strlen(file)), file);
}

/* A text literal, which compilers read far faster than a list of numbers. */
static void write_literal(FILE *out, const unsigned char *at, size_t bytes)
{
    size_t column = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (column == 0) {
            fputs(i == 0 ? "    \"" : "\"\n    \"", out);
        }
        bool plain = isprint(at[i]) && strchr("\"\\?", at[i]) == NULL;
        column += (size_t)fprintf(out, plain ? "%c" : "\\%03o", at[i]);
        column = column >= 110 ? 0 : column;
    }
    fputs("\"", out);
}

static int embed_header(const cc_settings *s, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_text(&text, &bytes);
    fprintf(out,
            "/* Made by heddle cc. For hd_module_load(runtime, %s, %s_size, &module). */\n"
            "#ifndef HEDDLE_EMBEDDED_%s\n"
            "#define HEDDLE_EMBEDDED_%s\n"
            "\n"
            "#include <stddef.h>\n"
            "\n"
            "#ifdef __cplusplus\n"
            "extern \"C\" {\n"
            "#endif\n"
            "extern const unsigned char %s[];\n"
            "extern const size_t %s_size;\n"
            "#ifdef __cplusplus\n"
            "}\n"
            "#endif\n"
            "\n"
            "#endif\n",
            s->embed, s->embed, s->embed, s->embed, s->embed, s->embed);
    fclose(out);
    return write_text(path, text, bytes);
}

int cc_embed(const cc_settings *s, const cc_bytes *image)
{
    char *text = NULL, *header = cc_header_of(s->output);
    size_t bytes = 0;
    const char *slash = strrchr(header, '/');
    FILE *out = open_text(&text, &bytes);
    fprintf(out,
            "/* Made by heddle cc. */\n"
            "#include \"%s\"\n"
            "\n"
            "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
            "\n"
            "const unsigned char %s[%zu] __attribute__((aligned(64))) =\n",
            slash != NULL ? slash + 1 : header, s->embed, image->bytes + 1);
    write_literal(out, image->at, image->bytes);
    fprintf(out, ";\nconst size_t %s_size = %zu;\n", s->embed, image->bytes);
    fclose(out);
    int status = embed_header(s, header);
    if (status == CLI_OK) {
        status = write_text(s->output, text, bytes);
    } else {
        free(text);
    }
    free(header);
    return status;
}

/* ---- rules for make ---- */

static bool is_in(const cli_command *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->arguments[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds what a compiler's rule names, each once, as it is written there: with a backslash before a blank. */
static void add_files(cli_command *files, const char *rule)
{
    const char *at = strchr(rule, ':');
    for (at = at != NULL ? at + 1 : ""; *at != 0;) {
        size_t blank = strspn(at, " \t\r\n"), n = 0;
        at += blank;
        if (at[0] == '\\' && (at[1] == '\n' || at[1] == '\r')) { /* the rule goes on in the next line */
            at++;
            continue;
        }
        while (at[n] != 0 && strchr(" \t\r\n", at[n]) == NULL) {
            n += at[n] == '\\' && at[n + 1] != 0 ? 2 : 1;
        }
        char *file = cli_format("%.*s", (int)n, at);
        if (n > 0 && !is_in(files, file)) {
            cli_command_add(files, file);
        }
        free(file);
        at += n;
    }
}

/* A file's name as make reads it. */
static void write_name(FILE *out, const char *name)
{
    for (; *name != 0; name++) {
        fprintf(out, "%s%c", *name == '$' ? "$" : strchr(" #\t", *name) != NULL ? "\\" : "", *name);
    }
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not by the machine's language */
}

static int is_rule(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 2 && strcmp(entry->d_name + n - 2, ".d") == 0;
}

int cc_depend(const cc_settings *s)
{
    struct dirent **rules = NULL;
    cli_command files = {0};
    int n = scandir(s->directory, &rules, is_rule, compare);
    for (int i = 0; i < n; i++) {
        char *path = cli_format("%s/%s", s->directory, rules[i]->d_name);
        cc_bytes rule = {0};
        if (cc_read(path, &rule) == CLI_OK) {
            add_files(&files, rule.at);
        }
        free(rule.at);
        free(path);
        free(rules[i]);
    }
    free(rules);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_text(&text, &bytes);
    write_name(out, s->output);
    fputs(":", out);
    for (size_t i = 0; i < files.n; i++) {
        fprintf(out, " \\\n  %s", files.arguments[i]);
    }
    fputs("\n", out);
    for (size_t i = 0; i < files.n; i++) { /* a header that is gone rebuilds, and stops nothing */
        if (!is_in(&s->sources, files.arguments[i])) {
            fprintf(out, "\n%s:\n", files.arguments[i]);
        }
    }
    fclose(out);
    cli_command_release(&files);
    return write_text(s->depfile, text, bytes);
}
