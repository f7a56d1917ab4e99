/* fuzz_json_read.c - the JSON reader: an accepted text is a document for another reader, too, and
 * reads back the same after writing it.
 *
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include <math.h>
#include "base/json.h"
#include "base/json_read.h"
#include "support/json.h"

enum { WRITER_DEPTH = 32 };

/* Writes the value with all its parts. Returns false if it nests deeper than the writer can. */
static bool write_value(hdi_json *j, const hdi_json_value *v, int depth)
{
    bool good = true;
    switch (v->kind) {
    case HDI_JSON_NULL:
        hdi_json_string(j, NULL);
        break;
    case HDI_JSON_BOOL:
        hdi_json_bool(j, v->boolean);
        break;
    case HDI_JSON_NUMBER:
        (void)(v->is_integer ? hdi_json_integer(j, v->integer) : hdi_json_number(j, v->number));
        break;
    case HDI_JSON_STRING:
        hdi_json_string(j, v->text);
        break;
    default:
        if (depth == WRITER_DEPTH) {
            return false;
        }
        (v->kind == HDI_JSON_OBJECT ? hdi_json_object : hdi_json_array)(j);
        for (const hdi_json_value *e = v->first; e && good; e = e->next) {
            if (e->key) {
                hdi_json_key(j, e->key);
            }
            good = write_value(j, e, depth + 1);
        }
        if (good) {
            (v->kind == HDI_JSON_OBJECT ? hdi_json_object_end : hdi_json_array_end)(j);
        }
    }
    return good;
}

/* True if both are the same, except for digits beyond those that the writer writes. */
static bool is_same(const hdi_json_value *a, const hdi_json_value *b)
{
    bool same = a->kind == b->kind && a->count == b->count && (a->key == NULL) == (b->key == NULL) &&
                (!a->key || strcmp(a->key, b->key) == 0) && (!a->text || strcmp(a->text, b->text) == 0) &&
                a->boolean == b->boolean && (!a->is_integer || (b->is_integer && a->integer == b->integer)) &&
                fabs(a->number - b->number) <= fabs(a->number) * 1e-8;
    const hdi_json_value *y = b->first;
    for (const hdi_json_value *x = a->first; x && same; x = x->next, y = y->next) {
        same = y != NULL && is_same(x, y);
    }
    return same;
}

static void check_round_trip(const hdi_json_value *root)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    fuzz_check(file != NULL);
    hdi_json j;
    hdi_json_begin(&j, file);
    bool written = write_value(&j, root, 0);
    fuzz_check(fclose(file) == 0);
    hdi_json_tree again;
    if (written) {
        /* writing may round up the largest numbers beyond the range */
        fuzz_check(hdi_json_read(text, length, &again) || strstr(again.error, "too large"));
        fuzz_check(!again.root || is_same(root, again.root));
        hdi_json_release(&again);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    hdi_json_tree tree;
    /* the copy ends with its memory */
    char *text = fuzz_text(input, bytes), *copy = fuzz_copy(input, bytes);
    bool good = hdi_json_read(copy, bytes, &tree);
    free(copy);
    fuzz_check(good == (tree.root != NULL) && good == (tree.memory != NULL) && good == (tree.error[0] == 0));
    fuzz_check(fuzz_is_text(tree.error, sizeof tree.error));
    if (good) {
        fuzz_check(strlen(text) == bytes && json_is_document(text));
        check_round_trip(tree.root);
    }
    hdi_json_release(&tree);
    free(text);
    return 0;
}
