/* text.c - a FILE that writes into memory. See text.h for threads, locks and what always holds. */
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Room for so many bytes and a zero. */
static bool grow(hdi_text *t, size_t length)
{
    if (length < t->room) {
        return true;
    }
    size_t room = 2 * length + 1024;
    char *more = realloc(t->bytes, room);
    if (more == NULL) {
        t->failed = true;
        return false;
    }
    t->bytes = more;
    t->room = room;
    return true;
}

static ssize_t take(void *cookie, const char *from, size_t n)
{
    hdi_text *t = cookie;
    if (t->failed || !grow(t, t->length + n)) {
        return 0; /* an error, for a stream */
    }
    memcpy(t->bytes + t->length, from, n);
    t->length += n;
    return (ssize_t)n;
}

FILE *hdi_text_open(hdi_text *text)
{
    *text = (hdi_text){0};
    text->file = fopencookie(text, "w", (cookie_io_functions_t){.write = take});
    return text->file;
}

bool hdi_text_close(hdi_text *text, char **out, size_t *length)
{
    bool whole = text->file != NULL && !ferror(text->file);
    whole = text->file != NULL && fclose(text->file) == 0 && whole;
    if (!whole || text->failed || !grow(text, text->length)) {
        free(text->bytes);
        return false;
    }
    text->bytes[text->length] = '\0';
    *out = text->bytes;
    *length = text->length;
    return true;
}
