/* text.h - a FILE that writes into memory, and reports when there was not enough of it (open_memstream hands out what it has).
 *
 * Threads: one per text. Locks: none. Always: a text that is handed out is whole.
 */
#ifndef HDI_BASE_TEXT_H
#define HDI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct hdi_text {
    FILE *file;
    char *bytes;
    size_t length, room;
    bool failed;
} hdi_text;

/* NULL: no memory. */
FILE *hdi_text_open(hdi_text *text);

/* Closes the FILE and hands out what was written, with a zero behind it, to be freed. False: there was no memory for all of it, and nothing is
 * handed out. Also after hdi_text_open has failed. */
bool hdi_text_close(hdi_text *text, char **out, size_t *length);

#endif
