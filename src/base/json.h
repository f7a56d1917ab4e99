/* json.h - the one JSON writer. It writes to a FILE, and takes care of commas, escapes and
 * indentation.
 *
 * Threads: one per writer. Locks: none. Numbers that JSON lacks (NaN, infinities) are written as
 * null.
 */
#ifndef HDI_BASE_JSON_H
#define HDI_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct hdi_json {
    FILE *file;
    int depth;
    bool first[32];
    bool after_key;
} hdi_json;

void hdi_json_begin(hdi_json *j, FILE *file);
void hdi_json_object(hdi_json *j);     /* { */
void hdi_json_object_end(hdi_json *j); /* } */
void hdi_json_array(hdi_json *j);      /* [ */
void hdi_json_array_end(hdi_json *j);  /* ] */
void hdi_json_key(hdi_json *j, const char *key);
void hdi_json_string(hdi_json *j, const char *value); /* NULL: null */
void hdi_json_integer(hdi_json *j, int64_t value);
void hdi_json_number(hdi_json *j, double value); /* the shortest form with up to 9 digits */
void hdi_json_bool(hdi_json *j, bool value);
void hdi_json_end(hdi_json *j); /* final newline */

#endif
