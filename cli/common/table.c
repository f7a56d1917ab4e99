/* table.c - the tables of a benchmark's JSON (table.h).
 *
 * The columns of a table come from its objects: a column's head is the path of keys to the figure,
 * without the units. A first pass over all lines finds the columns and their widths, and a second
 * pass prints the lines.
 * Threads: any. Locks: none.
 * Always: the key of a number determines its unit, so no benchmark needs code here.
 */
#include "cli/common/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/common/report.h"

enum { WIDTH = 120, GAP = 2, COLUMNS = 128, CELL = HDI_AMOUNT_BYTES, HEAD = 96, GOALS_MOST = 64 };

/* ---- keys, and the units of their numbers ---- */

typedef enum table_kind { COUNT, PLAIN, TIME, BYTES, SPEED, RATE } table_kind;

typedef struct table_unit {
    table_kind kind;
    double scale; /* to nanoseconds or bytes */
} table_unit;

/* The first row that matches a key applies. `words` replace the matching text in the column's head;
 * NULL: the text stays. */
static const struct table_key {
    enum { WHOLE, BEGIN, WITHIN, END } where;
    const char *text;
    table_unit unit;
    const char *words;
} table_keys[] = {
    {WHOLE, "blocks_with_bytes", {COUNT, 1}, NULL},
    {WHOLE, "ns", {TIME, 1}, ""},
    {WHOLE, "us", {TIME, 1e3}, ""},
    {WHOLE, "seconds", {TIME, 1e9}, NULL},
    {WHOLE, "gbs", {PLAIN, 1}, "GB/s"},
    {WHOLE, "gflops", {PLAIN, 1}, "GFLOP/s"},
    {WHOLE, "bytes", {BYTES, 1}, NULL},
    {WHOLE, "share", {PLAIN, 1}, NULL},
    {BEGIN, "us_per_", {TIME, 1e3}, "per "},
    {END, "_gb_per_s", {SPEED, 1}, ""},
    {END, "_gbs", {PLAIN, 1}, " GB/s"},
    {END, "_per_s", {RATE, 1}, NULL},
    {END, "_ns", {TIME, 1}, ""},
    {END, "_us", {TIME, 1e3}, ""},
    {END, "_ms", {TIME, 1e6}, ""},
    {END, "_s", {TIME, 1e9}, ""},
    {END, "_bytes", {BYTES, 1}, ""},
    {WITHIN, "_bytes_", {BYTES, 1}, NULL},
    {END, "_mib", {BYTES, 1048576}, ""},
    {WHOLE, "ratio", {PLAIN, 1}, NULL},
    {END, "_ratio", {PLAIN, 1}, NULL},
    {WITHIN, "over_", {PLAIN, 1}, NULL},
    {END, "_share", {PLAIN, 1}, NULL},
    {END, "_gain", {PLAIN, 1}, NULL},
};

static bool cli_table_key_is(const struct table_key *k, const char *key)
{
    size_t length = strlen(key), own = strlen(k->text);
    const char *found = strstr(key, k->text);
    switch (k->where) {
    case WHOLE:
        return strcmp(key, k->text) == 0;
    case BEGIN:
        return found == key;
    case WITHIN:
        return found != NULL;
    default:
        return length > own && strcmp(key + length - own, k->text) == 0;
    }
}

/* Returns the unit of a key. `words`: the key as words, such as "call median" for
 * "call_median_ns". */
static table_unit cli_table_read_key(const char *key, char words[HEAD])
{
    const struct table_key *k = NULL;
    for (size_t i = 0; !k && i < sizeof(table_keys) / sizeof(table_keys[0]); i++) {
        k = cli_table_key_is(&table_keys[i], key) ? &table_keys[i] : NULL;
    }
    if (k && k->words) {
        bool begins = k->where == BEGIN;
        int left = begins ? 0 : (int)(strlen(key) - strlen(k->text));
        snprintf(words, HEAD, "%.*s%s%s", left, key, k->words, begins ? key + strlen(k->text) : "");
    } else {
        snprintf(words, HEAD, "%s", key);
    }
    for (char *at = words; *at; at++) {
        *at = *at == '_' ? ' ' : *at;
    }
    return k ? k->unit : (table_unit){COUNT, 1};
}

static bool cli_table_is_one_of(const char *key, const char *const *names)
{
    while (*names && strcmp(key, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

/* ---- cells ---- */

/* Rounds to three significant digits; a share gets one more decimal place. */
static void cli_table_digits(double value, bool share, const char *unit, char out[CELL])
{
    double size = fabs(value);
    int places = size < 9.995 ? 2 + share : size < 99.95 ? 1 : 0;
    snprintf(out, CELL, "%.*f%s", share && size < 0.0995 && size > 0 ? 4 : places, value, unit);
}

static void cli_table_cell(const hdi_json_value *v, table_unit unit, char out[CELL])
{
    char text[REPORT_TEXT];
    double value = v->number * unit.scale;
    if (v->kind != HDI_JSON_NUMBER) { /* null: the figure is missing */
        snprintf(out, CELL, "-");
    } else if (unit.kind == TIME) {
        snprintf(out, CELL, "%s%s", value < 0 ? "-" : "", cli_report_duration(fabs(value), text));
    } else if (unit.kind == BYTES && value >= 0) {
        hdi_bytes_text((uint64_t)value, out);
    } else if (unit.kind == COUNT && v->is_integer) {
        snprintf(out, CELL, "%lld", (long long)v->integer);
    } else if (unit.kind == RATE) {
        double size = value < 1e3 ? 1 : value < 1e6 ? 1e3 : 1e6;
        cli_table_digits(value / size, false, size < 1e3 ? "" : size < 1e6 ? " k" : " M", out);
    } else {
        cli_table_digits(value, unit.kind != SPEED, unit.kind == SPEED ? " GB/s" : "", out);
    }
}

/* ---- values ---- */

static const char *cli_table_text(const hdi_json_value *object, const char *key)
{
    const hdi_json_value *v = hdi_json_member(object, key);
    return v && v->kind == HDI_JSON_STRING && v->text[0] ? v->text : NULL;
}

/* The members that can name an object, the best name first. */
static const char *const table_names[] = {"text", "name", "id", "kind", "kernel", NULL};

/* Returns the name of an object; NULL: none. */
static const char *cli_table_name(const hdi_json_value *object)
{
    const char *name = NULL;
    for (int i = 0; !name && table_names[i]; i++) {
        name = cli_table_text(object, table_names[i]);
    }
    return name;
}

/* True for an object with a median and its extremes. */
static bool cli_table_is_spread(const hdi_json_value *v)
{
    return hdi_json_member(v, "median") != NULL;
}

static bool cli_table_is_calls(const hdi_json_value *v)
{
    return hdi_json_member(v, "p99_ns") != NULL;
}

/* True for an object with its own figures, such as one side of a comparison. */
static bool cli_table_is_side(const hdi_json_value *v)
{
    return v->kind == HDI_JSON_OBJECT && !cli_table_is_spread(v) && !cli_table_is_calls(v);
}

static bool cli_table_has_objects(const hdi_json_value *object)
{
    const hdi_json_value *v = object->first;
    while (v && v->kind != HDI_JSON_OBJECT) {
        v = v->next;
    }
    return v != NULL;
}

/* True for an array of named objects that are no rounds. */
static bool cli_table_is_list(const hdi_json_value *v)
{
    return v->kind == HDI_JSON_ARRAY && v->first && cli_table_name(v->first) && !hdi_json_member(v->first, "round");
}

/* ---- text that wraps ---- */

typedef struct table_flow {
    FILE *out;
    int indent, at; /* at: the current column */
} table_flow;

/* Adds an item with a blank before it. If the item does not fit, it begins a new line. */
static void cli_table_flow_add(table_flow *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void cli_table_flow_add(table_flow *f, const char *format, ...)
{
    char item[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(item, sizeof(item), format, arguments);
    va_end(arguments);
    int length = (int)strlen(item);
    if (f->at > f->indent && f->at + 1 + length > WIDTH) {
        f->at = fprintf(f->out, "\n%*s", f->indent, "") - 1;
    } else if (f->at > f->indent) {
        f->at += fprintf(f->out, " ");
    }
    f->at += fprintf(f->out, "%s", item);
}

static void cli_table_flow_words(table_flow *f, const char *text)
{
    for (const char *at = text; *at; at += strspn(at, " ")) {
        int length = (int)strcspn(at, " ");
        cli_table_flow_add(f, "%.*s", length, at);
        at += length;
    }
}

static void cli_table_paragraph(const char *head, const char *text, int indent, FILE *out)
{
    table_flow f = {out, indent, 0};
    f.at = fprintf(out, "%*s", indent, "");
    cli_table_flow_words(&f, head);
    cli_table_flow_words(&f, text);
    fprintf(out, "\n");
}

/* ---- numbers and words of an object, in running text ---- */

static const char *const table_inherits[] = {"median", "min", "max", NULL};
static const char *const table_notes[] = {"left_out", "not_measured", "note", "told", "version", NULL};

static bool cli_table_is_pair(const hdi_json_value *v)
{
    bool strings = v->kind == HDI_JSON_ARRAY && v->first && v->first->kind == HDI_JSON_STRING;
    bool text = v->kind == HDI_JSON_STRING && v->text[0] && !cli_table_is_one_of(v->key, table_names) &&
                !cli_table_is_one_of(v->key, table_notes);
    return strings || text || v->kind == HDI_JSON_NUMBER;
}

static void cli_table_pair(const hdi_json_value *v, table_unit around, const char *end, table_flow *f)
{
    char words[HEAD], cell[CELL] = "";
    table_unit unit = cli_table_read_key(v->key, words);
    if (v->kind == HDI_JSON_NUMBER) {
        cli_table_cell(v, cli_table_is_one_of(v->key, table_inherits) ? around : unit, cell);
    }
    if (v->kind == HDI_JSON_ARRAY) {
        cli_table_flow_add(f, "%s", words);
    } else {
        cli_table_flow_add(f, "%s %s%s", words, v->kind == HDI_JSON_STRING ? v->text : cell, end);
    }
    for (const hdi_json_value *each = v->first; each; each = each->next) {
        cli_table_flow_add(f, "%s%s", each->text, each->next ? "" : end);
    }
}

static const hdi_json_value *cli_table_next_pair(const hdi_json_value *v)
{
    while (v && !cli_table_is_pair(v)) {
        v = v->next;
    }
    return v;
}

/* Adds all numbers and words of an object to the text. */
static void cli_table_pairs(const hdi_json_value *object, table_unit around, table_flow *f)
{
    const hdi_json_value *v = object ? cli_table_next_pair(object->first) : NULL;
    while (v) {
        const hdi_json_value *next = cli_table_next_pair(v->next);
        cli_table_pair(v, around, next ? "," : "", f);
        v = next;
    }
}

/* Prints the reasons and notes of an object. `within`: also prints those of its inner objects. */
static void cli_table_print_notes(const hdi_json_value *object, const char *of, bool within, int indent, FILE *out)
{
    for (const hdi_json_value *v = object->first; v; v = v->next) {
        char words[HEAD], head[2 * HEAD];
        cli_table_read_key(v->key, words);
        if (v->kind == HDI_JSON_STRING && v->text[0] && cli_table_is_one_of(v->key, table_notes)) {
            /* the reason "left out" says no more than a missing figure */
            bool told = strcmp(v->text, "left out") == 0;
            bool plain = strcmp(v->key, "note") == 0;
            snprintf(head, sizeof(head), "%s%s%s%s", of, of[0] ? ": " : "", plain ? "" : words, plain ? "" : ":");
            if (!told) {
                cli_table_paragraph(head, v->text, indent, out);
            }
        } else if (within && cli_table_is_side(v)) {
            cli_table_print_notes(v, words, true, indent, out);
        }
    }
}

/* ---- columns ---- */

/* DETAIL: a figure that nearly repeats another one. AMOUNT: a count, or bytes. Columns of the last
 * rank are hidden first. */
typedef enum table_rank { FIGURE, DETAIL, AMOUNT, EXTREME } table_rank;

typedef struct table_column {
    char head[HEAD], first[CELL]; /* first: the text of the column's first cell */
    table_rank rank;
    int width;
    bool varies, shown;
} table_column;

typedef struct table_line {
    const hdi_json_value *object;
    int indent;
    bool own; /* without the figures of inner objects */
} table_line;

typedef struct table {
    const char *title;
    table_line *lines;
    int n_lines, name_width;
    table_column columns[COLUMNS];
    int n;
    int at;                    /* the column that the walk visited last, or -1 */
    char cells[COLUMNS][CELL]; /* the cells of the current line */
} table;

/* Finds a column, or adds it behind the column that was visited last. NULL: there are too many
 * columns. */
static table_column *cli_table_find(table *t, const char *head, table_rank rank)
{
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->columns[i].head, head) == 0) {
            t->at = i > t->at ? i : t->at;
            return &t->columns[i];
        }
    }
    if (t->n == COLUMNS) {
        return NULL;
    }
    t->at++;
    table_column *c = &t->columns[t->at];
    memmove(c + 1, c, (size_t)(t->n - t->at) * sizeof(*c));
    memmove(t->cells[t->at + 1], t->cells[t->at], (size_t)(t->n - t->at) * CELL);
    *c = (table_column){.rank = rank, .shown = true};
    t->cells[t->at][0] = 0;
    t->n++;
    snprintf(c->head, sizeof(c->head), "%s", head);
    return c;
}

/* Sets a cell of the line. The first value of a column stays. */
static void cli_table_visit(table *t, const char *head, table_rank rank, const char *cell)
{
    table_column *c = cli_table_find(t, head[0] ? head : "median", rank);
    char *text = c ? t->cells[c - t->columns] : NULL;
    if (text && !text[0]) {
        snprintf(text, CELL, "%s", cell);
    }
}

static table_rank cli_table_rank_of(const hdi_json_value *object, const hdi_json_value *v, table_unit unit)
{
    bool speed = hdi_json_member(object, "gbs") || hdi_json_member(object, "gflops");
    if (cli_table_is_spread(object)) {
        bool extreme = strcmp(v->key, "min") == 0 || strcmp(v->key, "max") == 0;
        return extreme ? EXTREME : strcmp(v->key, "median") == 0 || unit.kind != COUNT ? FIGURE : AMOUNT;
    }
    if (strcmp(v->key, "mean_ns") == 0 || (speed && strcmp(v->key, "ns") == 0)) {
        return DETAIL;
    }
    bool counts = unit.kind == BYTES || (unit.kind == COUNT && v->is_integer);
    return strcmp(v->key, "max_ns") == 0 ? EXTREME : v->kind == HDI_JSON_NUMBER && counts ? AMOUNT : FIGURE;
}

/* Visits all figures of an object. `head`: the path to the object. `around`: the unit of the
 * object's key. */
static void cli_table_walk(table *t, const hdi_json_value *object, const char *head, table_rank rank, table_unit around,
                           bool own)
{
    static const char *const singles[] = {"calls", "single", NULL};
    for (const hdi_json_value *v = object->first; v; v = v->next) {
        char words[HEAD], path[HEAD], cell[CELL];
        bool inner = v->kind == HDI_JSON_OBJECT, calls = inner && cli_table_is_calls(v);
        if ((!inner && v->kind != HDI_JSON_NUMBER && v->kind != HDI_JSON_NULL) ||
            (inner && own && cli_table_is_side(v))) {
            continue;
        }
        table_unit unit = cli_table_read_key(v->key, words);
        bool inherits =
            cli_table_is_one_of(v->key, table_inherits) || (!cli_table_is_spread(object) && unit.kind == COUNT);
        unit = inherits ? around : unit;
        bool nameless = strcmp(v->key, "median") == 0 ||
                        (calls && (cli_table_is_one_of(v->key, singles) || strcmp(v->key, "call") == 0));
        if (snprintf(path, sizeof(path), "%s%s%s", head, head[0] && words[0] && !nameless ? " " : "",
                     nameless ? "" : words) >= (int)sizeof(path)) {
            path[sizeof(path) - 2] = '~'; /* cut a path that is too long */
        }
        table_rank own_rank =
            calls && cli_table_is_one_of(v->key, singles) ? DETAIL : cli_table_rank_of(object, v, unit);
        own_rank = own_rank > rank ? own_rank : rank;
        if (inner) {
            cli_table_walk(t, v, path, own_rank, unit, own);
        } else {
            cli_table_cell(v, unit, cell);
            cli_table_visit(t, path, own_rank, cell);
        }
    }
}

/* Computes the cells of a line. */
static void cli_table_read_line(table *t, const table_line *l)
{
    char words[HEAD];
    const char *unit = cli_table_text(l->object, "unit");
    const char *key = l->object->key ? l->object->key : "";
    memset(t->cells, 0, sizeof(t->cells));
    t->at = -1;
    cli_table_walk(t, l->object, "", FIGURE, cli_table_read_key(unit ? unit : key, words), l->own);
}

static void cli_table_line_name(const table_line *l, char out[CELL * 2])
{
    char words[HEAD] = "";
    const char *name = cli_table_name(l->object);
    if (!name && l->object->key) {
        cli_table_read_key(l->object->key, words);
    }
    snprintf(out, CELL * 2, "%*s%s", l->indent, "", name ? name : words);
}

/* Returns the length of a head's next line: as many words as fit into `width`. */
static int cli_table_head_fit(const char *at, int width)
{
    int fit = (int)strcspn(at, " ");
    while (at[fit] && fit + 1 + (int)strcspn(at + fit + 1, " ") <= width) {
        fit += 1 + (int)strcspn(at + fit + 1, " ");
    }
    return fit;
}

static int cli_table_head_lines(const table_column *c)
{
    int lines = 0;
    for (const char *at = c->head; *at; at += strspn(at, " ")) {
        at += cli_table_head_fit(at, c->width);
        lines++;
    }
    return lines;
}

static int cli_table_longest_word(const char *text)
{
    int longest = 0;
    for (const char *at = text; *at; at += strspn(at, " ")) {
        int length = (int)strcspn(at, " ");
        longest = length > longest ? length : longest;
        at += length;
    }
    return longest;
}

static const char *cli_table_last_word(const char *head)
{
    const char *blank = strrchr(head, ' ');
    return blank ? blank + 1 : head;
}

/* ---- hiding columns until the table fits ---- */

static void cli_table_measure(table *t)
{
    t->n = t->name_width = 0;
    for (int i = 0; i < t->n_lines; i++) {
        char name[CELL * 2];
        cli_table_line_name(&t->lines[i], name);
        int length = (int)strlen(name);
        t->name_width = length > t->name_width ? length : t->name_width;
        cli_table_read_line(t, &t->lines[i]);
        for (int k = 0; k < t->n; k++) {
            table_column *c = &t->columns[k];
            int cell = (int)strlen(t->cells[k]), word = cli_table_longest_word(c->head);
            c->width = cell > c->width ? cell : c->width;
            c->width = word > c->width ? word : c->width;
            c->varies = c->varies || strcmp(c->first, t->cells[k]) != 0;
            if (i == 0) {
                snprintf(c->first, CELL, "%s", t->cells[k]);
                c->varies = false;
            }
        }
    }
}

static int cli_table_width(const table *t)
{
    int width = t->name_width;
    for (int i = 0; i < t->n; i++) {
        width += t->columns[i].shown ? GAP + t->columns[i].width : 0;
    }
    return width;
}

/* Hides a column, and the columns of other sides with the same figure. */
static void cli_table_hide(table *t, int column)
{
    table_rank rank = t->columns[column].rank;
    const char *word = cli_table_last_word(t->columns[column].head);
    for (int i = 0; i < t->n; i++) {
        table_column *c = &t->columns[i];
        c->shown = c->shown && (c->rank != rank || strcmp(cli_table_last_word(c->head), word) != 0);
    }
}

/* Hides columns until the line fits. False: the figures alone are too wide. */
static bool cli_table_fit(table *t)
{
    cli_table_measure(t);
    /* a count that is the same in all lines does not distinguish the lines */
    for (int i = 0; i < t->n; i++) {
        table_column *c = &t->columns[i];
        c->shown = c->rank != AMOUNT || c->varies || t->n_lines == 1;
    }
    bool extremes = cli_table_width(t) <= WIDTH;
    for (int i = 0; i < t->n && !extremes; i++) {
        t->columns[i].shown = t->columns[i].shown && t->columns[i].rank != EXTREME;
    }
    for (int i = t->n - 1; i >= 0 && cli_table_width(t) > WIDTH; i--) {
        if (t->columns[i].shown && t->columns[i].rank == AMOUNT) {
            cli_table_hide(t, i);
        }
    }
    /* hide these columns from the left, so that means go before percentiles */
    for (int i = 0; i < t->n && cli_table_width(t) > WIDTH; i++) {
        if (t->columns[i].shown && t->columns[i].rank == DETAIL) {
            cli_table_hide(t, i);
        }
    }
    return cli_table_width(t) <= WIDTH;
}

/* ---- printing ---- */

/* Returns the first column that no longer fits on the line with the names, if the block begins with
 * column `from`. */
static int cli_table_block_end(const table *t, int from)
{
    int width = t->name_width, end = from;
    bool any = false;
    for (; end < t->n; end++) {
        int more = t->columns[end].shown ? GAP + t->columns[end].width : 0;
        if (any && width + more > WIDTH) {
            break;
        }
        width += more;
        any = any || more > 0;
    }
    return end;
}

/* A line that prints its blanks only before further text. */
typedef struct table_text_line {
    FILE *out;
    int pad;
} table_text_line;

/* Adds text to a column of this width, aligned to the right. */
static void cli_table_put(table_text_line *line, const char *text, int length, int width)
{
    line->pad += width - length;
    if (length > 0) {
        fprintf(line->out, "%*s%.*s", line->pad, "", length, text);
        line->pad = 0;
    }
}

/* Begins a line with a name. */
static table_text_line cli_table_put_name(const table *t, const char *name, FILE *out)
{
    fprintf(out, "%s", name);
    return (table_text_line){out, t->name_width - (int)strlen(name)};
}

static void cli_table_print_head(const table *t, int from, int end, FILE *out)
{
    int lines = 1;
    const char *at[COLUMNS];
    for (int i = from; i < end; i++) {
        int own = t->columns[i].shown ? cli_table_head_lines(&t->columns[i]) : 0;
        lines = own > lines ? own : lines;
        at[i] = t->columns[i].head;
    }
    for (int line = lines; line > 0; line--) {
        table_text_line l = cli_table_put_name(t, line == 1 ? t->title : "", out);
        for (int i = from; i < end; i++) {
            const table_column *c = &t->columns[i];
            int fit = c->shown && cli_table_head_lines(c) >= line ? cli_table_head_fit(at[i], c->width) : 0;
            cli_table_put(&l, at[i], fit, c->shown ? GAP + c->width : 0);
            at[i] += fit + (int)strspn(at[i] + fit, " ");
        }
        fprintf(out, "\n");
    }
}

static void cli_table_print_block(table *t, int from, int end, FILE *out)
{
    if (t->n > 0 || t->title[0]) {
        cli_table_print_head(t, from, end, out);
    }
    for (int i = 0; i < t->n_lines; i++) {
        const table_line *l = &t->lines[i];
        char name[CELL * 2];
        cli_table_line_name(l, name);
        cli_table_read_line(t, l);
        table_text_line text = cli_table_put_name(t, name, out);
        for (int k = from; k < end; k++) {
            const table_column *c = &t->columns[k];
            cli_table_put(&text, t->cells[k], c->shown ? (int)strlen(t->cells[k]) : 0, c->shown ? GAP + c->width : 0);
        }
        fprintf(out, "\n");
        if (end == t->n) {
            cli_table_print_notes(l->object, "", !l->own, l->indent + 4, out);
        }
    }
}

/* ---- tables ---- */

/* The rows of one table: the elements of an array, or those members of an object that are
 * objects. */
typedef struct table_rows {
    const hdi_json_value *first, *end; /* end: behind the last row; may be NULL */
} table_rows;

static void cli_table_add_line(table *t, const hdi_json_value *object, int indent, bool own)
{
    t->lines[t->n_lines++] = (table_line){object, indent, own};
}

/* Makes a line for each row. If `sides`, also makes a line for each of its sides. */
static bool cli_table_lay_out(table *t, table_rows rows, bool sides)
{
    bool any = false;
    t->n_lines = 0;
    for (const hdi_json_value *v = rows.first; v != rows.end; v = v->next) {
        if (v->kind != HDI_JSON_OBJECT) {
            continue;
        }
        cli_table_add_line(t, v, 2, sides);
        for (const hdi_json_value *side = v->first; side && sides; side = side->next) {
            if (cli_table_is_side(side)) {
                cli_table_add_line(t, side, 4, false);
                any = true;
            }
        }
    }
    bool fits = cli_table_fit(t);
    return sides ? any : fits;
}

static void cli_table_print_rows(const char *title, table_rows rows, FILE *out)
{
    size_t most = 0;
    for (const hdi_json_value *v = rows.first; v != rows.end; v = v->next) {
        most += 1 + v->count;
    }
    table *t = calloc(1, sizeof(*t));
    table_line *lines = calloc(most, sizeof(*lines));
    if (t && lines) {
        t->title = title;
        t->lines = lines;
        if (!cli_table_lay_out(t, rows, false) && !cli_table_lay_out(t, rows, true)) {
            cli_table_lay_out(t, rows, false);
        }
        int title_width = (int)strlen(title);
        t->name_width = title_width > t->name_width ? title_width : t->name_width;
        for (int from = 0, end; from < t->n || from == 0; from = end) {
            end = cli_table_block_end(t, from);
            cli_table_print_block(t, from, end, out);
            if (end == from) {
                break;
            }
        }
    } else {
        fprintf(out, "%s: out of memory\n", title);
    }
    free(lines);
    free(t);
}

/* The first list in an object; NULL: there is none. */
static const hdi_json_value *cli_table_list_in(const hdi_json_value *object)
{
    const hdi_json_value *v = object->first;
    while (v && !cli_table_is_list(v)) {
        v = v->next;
    }
    return v;
}

/* Prints the title and the numbers of an object, above its tables. */
static void cli_table_print_title(const char *title, const hdi_json_value *object, table_unit around, FILE *out)
{
    table_flow f = {out, 2, 0};
    bool more = cli_table_next_pair(object->first) != NULL;
    f.at = fprintf(out, "\n%s%s", title, more ? ":" : "") - 1;
    cli_table_pairs(object, around, &f);
    fprintf(out, "\n");
    cli_table_print_notes(object, "", false, 2, out);
}

/* Prints a table for each part of a list. */
static void cli_table_print_list(const hdi_json_value *list, FILE *out)
{
    char words[HEAD];
    cli_table_read_key(list->key, words);
    for (const hdi_json_value *v = list->first, *end; v; v = end) {
        const char *part = cli_table_text(v, "part");
        const hdi_json_value *inner = cli_table_list_in(v);
        end = v->next;
        if (inner) {
            char none[HEAD];
            cli_table_print_title(cli_table_name(v), v, cli_table_read_key("", none), out);
            cli_table_print_rows(inner->key, (table_rows){inner->first, NULL}, out);
            continue;
        }
        while (end && part && cli_table_text(end, "part") && strcmp(cli_table_text(end, "part"), part) == 0) {
            end = end->next;
        }
        end = part ? end : NULL;
        fprintf(out, "\n");
        cli_table_print_rows(part ? part : words, (table_rows){v, end}, out);
    }
}

static void cli_table_print_member(const hdi_json_value *v, FILE *out)
{
    char words[HEAD];
    table_unit unit = cli_table_read_key(v->key, words);
    if (cli_table_is_list(v)) {
        cli_table_print_list(v, out);
    } else if (v->kind == HDI_JSON_OBJECT && v->first) {
        cli_table_print_title(words, v, unit, out);
        if (cli_table_has_objects(v)) {
            cli_table_print_rows("", (table_rows){v->first, NULL}, out);
        }
    }
}

/* ---- the record ---- */

static void cli_table_print_head_of(const hdi_json_value *record, FILE *out)
{
    const hdi_json_value *runtime = hdi_json_member(record, "runtime"), *machine = hdi_json_member(record, "machine");
    const hdi_json_value *devices = hdi_json_member(runtime, "devices");
    const hdi_json_value *processors = hdi_json_member(machine, "processors");
    const char *benchmark = cli_table_text(record, "benchmark"), *driver = cli_table_text(runtime, "driver");
    const char *device = devices && devices->first ? cli_table_text(devices->first, "name") : NULL;
    const char *version = cli_table_text(runtime, "driver_version"), *placement = cli_table_text(runtime, "placement");
    fprintf(out, "%s: %d x %s, driver %s %s, placement %s; %d processors\n", benchmark ? benchmark : "-",
            devices ? (int)devices->count : 0, device ? device : "-", driver ? driver : "-", version ? version : "-",
            placement ? placement : "-", processors ? (int)processors->integer : 0);
    const hdi_json_value *run = hdi_json_member(record, "run");
    if (run) {
        table_flow f = {out, 2, 0};
        f.at = fprintf(out, "run:");
        cli_table_pairs(run, (table_unit){COUNT, 1}, &f);
        fprintf(out, "\n");
    }
}

static void cli_table_print_goals(const hdi_json_value *record, FILE *out)
{
    const hdi_json_value *list = hdi_json_member(record, "goals"), *apply = hdi_json_member(record, "goals_apply");
    report_goal goals[GOALS_MOST];
    int n = 0;
    for (const hdi_json_value *v = list ? list->first : NULL; v && n < GOALS_MOST; v = v->next) {
        const hdi_json_value *limit = hdi_json_member(v, "limit"), *value = hdi_json_member(v, "value");
        const char *text = cli_table_text(v, "text"), *unit = cli_table_text(v, "unit"), *of = cli_table_text(v, "of");
        const char *relation = cli_table_text(v, "relation");
        const hdi_json_value *rounds = hdi_json_member(v, "rounds"), *min = hdi_json_member(v, "min"),
                             *max = hdi_json_member(v, "max");
        const bool spread = rounds && min && max && rounds->kind == HDI_JSON_NUMBER && min->kind == HDI_JSON_NUMBER &&
                            max->kind == HDI_JSON_NUMBER;
        goals[n++] = (report_goal){.text = text ? text : "",
                                   .of = of ? of : "",
                                   .limit = limit && limit->kind == HDI_JSON_NUMBER ? limit->number : NAN,
                                   .value = value && value->kind == HDI_JSON_NUMBER ? value->number : NAN,
                                   .at_least = relation && strcmp(relation, ">=") == 0,
                                   .unit = unit ? unit : "",
                                   .rounds = spread ? (int)rounds->number : 0,
                                   .min = spread ? min->number : NAN,
                                   .max = spread ? max->number : NAN};
    }
    cli_report_print_goals(goals, n, apply && apply->boolean, out);
}

void cli_table_print(const hdi_json_value *record, FILE *out)
{
    if (record->kind != HDI_JSON_OBJECT) {
        return;
    }
    static const char *const others[] = {"command", "machine", "runtime", "options", "run", "goals", "verified", NULL};
    cli_table_print_head_of(record, out);
    cli_table_print_notes(record, "", false, 0, out);
    for (const hdi_json_value *v = record->first; v; v = v->next) {
        if (!cli_table_is_one_of(v->key, others)) {
            cli_table_print_member(v, out);
        }
    }
    cli_table_print_goals(record, out);
    const hdi_json_value *verified = hdi_json_member(record, "verified"), *took = hdi_json_member(record, "took_s");
    if (verified) {
        cli_table_print_title("verified", verified, (table_unit){COUNT, 1}, out);
    }
    const char *shown = cli_table_text(record, "shown");
    if (shown) {
        fprintf(out, "\n");
        cli_table_paragraph("shown:", shown, 0, out);
    }
    fprintf(out, "%sTook %.0f s.\n", verified || shown ? "" : "\n", took ? took->number : 0);
}
