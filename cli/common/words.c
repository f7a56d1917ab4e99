/* words.c - breaks lines, and compares words (words.h).
 *
 * Threads: any. Locks: none.
 */
#include "cli/common/words.h"

#include <string.h>
#include "base/spelling.h"

void cli_words_put(FILE *out, const char *text, int column, int indent)
{
    bool first = true; /* of its line */
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        int length = (int)strcspn(text, " ");
        if (column + !first + length > WORDS_LINE && column > indent) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        column += fprintf(out, "%s%.*s", first ? "" : " ", length, text);
        first = false;
        text += length;
    }
    fputc('\n', out);
}

void cli_words_nearest(const char *word, const char *name, size_t *distance, const char **nearest)
{
    size_t is = hdi_spelling_distance(word, name);
    if (hdi_spelling_is_near(is, name) && (!*nearest || is < *distance)) {
        *distance = is;
        *nearest = name;
    }
}
