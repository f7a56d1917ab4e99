/* parts.h - the parts of `heddle report`: what the files are, and the page that shows them.
 *
 *    files.c      what each file is, by its content
 *    pack.c       columns of numbers as text
 *    trace.c      a trace as JSON and columns
 *    page.c       the page: its own files (page/, by embed.S), then the data
 *    page/        the page itself: HTML, CSS and JavaScript, a file per view
 *
 * Threads: the tool's first. Locks: none.
 * Always: the page needs no network, and no text of a file can end an element of it: `<` and U+2028 are escaped.
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
    PAGE_BENCH,  /* of `heddle bench --json`, or a JSON object a line */
    PAGE_DOCTOR, /* of `heddle doctor --json`, or judged from a snapshot */
    PAGE_INFO,   /* of `heddle info --json` */
    PAGE_KINDS
} page_kind;

typedef struct page_file {
    const char *path;
    page_kind kind;
    char *text;    /* JSON; of a trace its records until they are analysed, then NULL */
    size_t bytes;  /* of text */
    trace *traced; /* of a trace, else NULL */
} page_file;

const char *page_kind_text(page_kind kind);

/* Reads all files, which `out` names. False: `error` has one line. Release them in any case. */
bool page_read_files(page_file *out, int n, char error[PAGE_ERROR]);
void page_release_files(page_file *files, int n);

/* A column of n numbers as one text: base64 of numbers of seven bits a byte, the lowest first. The top bit states that more follow.
 * 0: the value is unseen (INT64_MIN). 1: the value before once more, as often as the next number states.
 * Others: 2 more than the difference to the last seen value, with its sign in the lowest bit.
 * Values beyond 2^52 become that: the page's numbers have 53 bits, and so have differences. */
typedef struct page_column {
    FILE *out;
    uint64_t bits; /* of bytes that make no whole group of base64 yet */
    int held;      /* how many bytes these are */
    int64_t last;
    bool unseen; /* the value before was */
    bool any;
    uint64_t repeats;
} page_column;

void page_column_begin(page_column *c, FILE *out);
void page_column_add(page_column *c, int64_t value);
void page_column_end(page_column *c);

/* A trace: an element of JSON with this id, and one for each column, whose id has the column's name behind it.
 * False: there is no memory. */
bool page_put_trace(FILE *out, const trace *t, const char *id);

/* A data element of the page. `text` is JSON. */
void page_put_json(FILE *out, const char *id, const char *text, size_t bytes);

/* The whole page, malloc'd; NULL: there is no memory, or the system gives no random number. */
char *page_make(const page_file *files, int n, size_t *bytes);

#endif
