/* json_read.h - the one JSON reader: a document as a tree of values. It reads everything that the
 * writer of json.h can write.
 *
 * Threads: any; one per document. Locks: none. Blocking: nothing.
 * Always: the reader is strict (RFC 8259, UTF-8). A refused text leaves nothing behind, and its
 * message names the line. Time and memory grow with the length of the text alone. HDI_JSON_DEPTH
 * limits the nesting, which needs no stack.
 */
#ifndef HDI_BASE_JSON_READ_H
#define HDI_BASE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HDI_JSON_DEPTH = 64, HDI_JSON_ERROR_BYTES = 128 };

typedef enum hdi_json_kind {
    HDI_JSON_NULL,
    HDI_JSON_BOOL,
    HDI_JSON_NUMBER,
    HDI_JSON_STRING,
    HDI_JSON_ARRAY,
    HDI_JSON_OBJECT
} hdi_json_kind;

typedef struct hdi_json_value {
    hdi_json_kind kind;
    int line;         /* the line of its begin; the first line is 1 */
    bool is_integer;  /* for a number: `integer` is its exact value */
    bool boolean;     /* of a BOOL */
    int64_t integer;  /* the value of a number that is an integer */
    double number;    /* of a number */
    const char *text; /* the text of a string, which contains no zero; else NULL */
    const char *key;  /* the key of a member of an object; else NULL */
    size_t count;     /* the number of elements of an array or object */
    /* the first element of an array or object; the element behind this value */
    const struct hdi_json_value *first, *next;
} hdi_json_value;

typedef struct hdi_json_tree {
    const hdi_json_value *root;       /* NULL: the text was refused */
    char error[HDI_JSON_ERROR_BYTES]; /* "line 3: a comma or } is missing"; "" on success */
    void *memory;
} hdi_json_tree;

/* Reads `bytes` of text, which may be freed afterwards. False: *out holds the reason, and nothing
 * to release. */
bool hdi_json_read(const char *text, size_t bytes, hdi_json_tree *out);
void hdi_json_release(hdi_json_tree *tree); /* zeroed, refused or released: ignored */

/* The first member of that name. NULL: there is none, or `object` is no object or NULL. */
const hdi_json_value *hdi_json_member(const hdi_json_value *object, const char *key);

#endif
