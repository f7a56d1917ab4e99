/* cc_results.c - writes the files for builds with a kernel file, for `heddle cc`: C source with its
 * bytes, and a make rule.
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

/* A file in memory. Ends the program if memory runs out, as cli_allocate does. */
static FILE *results_open_text(char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);
    if (out == NULL) {
        cli_allocate((size_t)-1);
    }
    return out;
}

/* Writes the text to the file and frees it. */
static int results_write_text(const char *path, char *text, size_t bytes)
{
    int status = cli_output_write(path, text, bytes) ? CLI_OK : cc_failed("%s: %s", path, strerror(errno));
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

/* Writes a string literal, which compilers read far faster than a list of numbers. */
static void results_write_literal(FILE *out, const unsigned char *at, size_t bytes)
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

static int results_embed_header(const cc_settings *s, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = results_open_text(&text, &bytes);
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
    return results_write_text(path, text, bytes);
}

int cc_embed(const cc_settings *s, const cc_bytes *image)
{
    char *text = NULL, *header = cc_header_of(s->output);
    size_t bytes = 0;
    const char *slash = strrchr(header, '/');
    FILE *out = results_open_text(&text, &bytes);
    fprintf(out,
            "/* Made by heddle cc. */\n"
            "#include \"%s\"\n"
            "\n"
            "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n"
            "\n"
            "const unsigned char %s[%zu] __attribute__((aligned(64))) =\n",
            slash != NULL ? slash + 1 : header, s->embed, image->bytes + 1);
    results_write_literal(out, image->at, image->bytes);
    fprintf(out, ";\nconst size_t %s_size = %zu;\n", s->embed, image->bytes);
    fclose(out);
    int status = results_embed_header(s, header);
    if (status == CLI_OK) {
        status = results_write_text(s->output, text, bytes);
    } else {
        free(text);
    }
    free(header);
    return status;
}

/* ---- rules for make ---- */

static bool results_list_has(const cli_command *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->arguments[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds each file in a compiler's rule once, as the rule writes it: with a backslash before a
 * blank. */
static void results_add_files(cli_command *files, const char *rule)
{
    const char *at = strchr(rule, ':');
    for (at = at != NULL ? at + 1 : ""; *at != 0;) {
        size_t blank = strspn(at, " \t\r\n"), n = 0;
        at += blank;
        /* the rule continues on the next line */
        if (at[0] == '\\' && (at[1] == '\n' || at[1] == '\r')) {
            at++;
            continue;
        }
        while (at[n] != 0 && strchr(" \t\r\n", at[n]) == NULL) {
            n += at[n] == '\\' && at[n + 1] != 0 ? 2 : 1;
        }
        char *file = cli_format("%.*s", (int)n, at);
        if (n > 0 && !results_list_has(files, file)) {
            cli_command_add(files, file);
        }
        free(file);
        at += n;
    }
}

/* Writes a file's name in make's syntax. */
static void results_write_name(FILE *out, const char *name)
{
    for (; *name != 0; name++) {
        fprintf(out, "%s%c", *name == '$' ? "$" : strchr(" #\t", *name) != NULL ? "\\" : "", *name);
    }
}

static int results_compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* independent of the locale */
}

static int results_entry_is_rule(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 2 && strcmp(entry->d_name + n - 2, ".d") == 0;
}

int cc_depend(const cc_settings *s)
{
    struct dirent **rules = NULL;
    cli_command files = {0};
    int n = scandir(s->directory, &rules, results_entry_is_rule, results_compare_entries);
    for (int i = 0; i < n; i++) {
        char *path = cli_format("%s/%s", s->directory, rules[i]->d_name);
        cc_bytes rule = {0};
        if (cc_read(path, &rule) == CLI_OK) {
            results_add_files(&files, rule.at);
        }
        free(rule.at);
        free(path);
        free(rules[i]);
    }
    free(rules);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = results_open_text(&text, &bytes);
    results_write_name(out, s->output);
    fputs(":", out);
    for (size_t i = 0; i < files.n; i++) {
        fprintf(out, " \\\n  %s", files.arguments[i]);
    }
    fputs("\n", out);
    /* with its empty rule, a missing header causes a rebuild */
    for (size_t i = 0; i < files.n; i++) {
        if (!results_list_has(&s->sources, files.arguments[i])) {
            fprintf(out, "\n%s:\n", files.arguments[i]);
        }
    }
    fclose(out);
    cli_command_release(&files);
    return results_write_text(s->depfile, text, bytes);
}
