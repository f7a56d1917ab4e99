/* parts.h - the parts of `heddle report`: the input files, and the page that shows them.
 *
 *    files.c      recognises each file by its content
 *    pack.c       columns of numbers as text
 *    trace.c      a trace as JSON and columns
 *    ranks.c      the traces of several ranks together
 *    page.c       the page: its own files (page/, by embed.S), then the data
 *    page/        the page itself: HTML, CSS and JavaScript, a file per view
 *
 * Threads: the tool's first. Locks: none.
 * Always: the page needs no network. No text of a file can end an element of the page, because `<`
 * and U+2028 are escaped.
 */
#ifndef CLI_REPORT_PARTS_H
#define CLI_REPORT_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "cli/trace/model.h"

enum { PAGE_FILES = 8, PAGE_ERROR = 512 };

typedef enum page_kind {
    PAGE_TRACE,
    PAGE_P2P,    /* of `heddle p2p --json` */
    PAGE_BENCH,  /* of `heddle bench --json`, or one JSON object in each line */
    PAGE_DOCTOR, /* of `heddle doctor --json`, or judged from a snapshot */
    PAGE_INFO,   /* of `heddle info --json` */
    PAGE_KINDS
} page_kind;

typedef struct page_file {
    const char *path;
    page_kind kind;
    char *text;    /* JSON. For a trace: its records until the analysis, then NULL */
    size_t bytes;  /* of text */
    trace *traced; /* only for a trace, else NULL */
} page_file;

const char *report_page_kind_text(page_kind kind);

/* Reads all files named in `out`. False: `error` is one line. Release them in any case. */
bool report_page_read_files(page_file *out, int n, char error[PAGE_ERROR]);
void report_page_release_files(page_file *files, int n);

/* A column of n numbers as one text, in base64. Each byte holds seven bits of a number, lowest
 * first, and its top bit means that more bytes follow. A number 0 means that the value is unseen
 * (INT64_MIN). A number 1 repeats the last value as often as the next number says. Any other number
 * is the zigzag-coded difference to the last seen value, plus 2. Values beyond 2^52 are clamped,
 * because the page's numbers and differences must fit 53 bits. */
typedef struct page_column {
    FILE *out;
    uint64_t bits; /* bits that do not yet fill a group of base64 */
    int held;      /* their number */
    int64_t last;
    bool unseen; /* the previous value was unseen */
    bool any;
    uint64_t repeats;
} page_column;

void report_page_column_begin(page_column *c, FILE *out);
void report_page_column_add(page_column *c, int64_t value);
void report_page_column_end(page_column *c);

/* Writes a trace: a JSON element with this id, and an element for each column, whose id also
 * contains the column's name. False: out of memory. */
bool report_page_put_trace(FILE *out, const trace *t, const char *id);

/* Writes a JSON element about the traces of several ranks, if all traces are of ranks. False: out
 * of memory. */
bool report_page_put_ranks(FILE *out, const page_file *files, int n);

/* Writes a data element of the page. `text` is JSON. */
void report_page_put_json(FILE *out, const char *id, const char *text, size_t bytes);

/* Makes the whole page, malloc'd. NULL: out of memory, or no random number from the system. */
char *report_page_make(const page_file *files, int n, size_t *bytes);

#endif
