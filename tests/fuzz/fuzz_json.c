/* fuzz_json.c - the JSON writer: any written strings and numbers form one document, which is
 * harmless on a terminal.
 *
 * An input is a list of steps: a byte for the kind of value, a byte for a length, and bytes of that
 * length.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "base/json.h"
#include "support/json.h"

enum { DEPTH_MAX = 30 };

typedef struct writer {
    hdi_json json;
    bool is_object[DEPTH_MAX + 1];
    int depth;
} writer;

static void open_one(writer *w, bool object)
{
    if (w->depth < DEPTH_MAX) {
        (object ? hdi_json_object : hdi_json_array)(&w->json);
        w->is_object[++w->depth] = object;
    } else {
        hdi_json_bool(&w->json, object);
    }
}

static void close_one(writer *w)
{
    (w->is_object[w->depth--] ? hdi_json_object_end : hdi_json_array_end)(&w->json);
}

static void write_one(writer *w, fuzz_input *in)
{
    enum { STRING, INTEGER, NUMBER, BOOL, NULL_STRING, OBJECT, ARRAY, END, STEPS };
    int step = (int)(fuzz_take(in, 1) % STEPS);
    size_t length;
    const uint8_t *piece = fuzz_take_piece(in, (size_t)fuzz_take(in, 1), &length);
    char *text = fuzz_text(piece, length);
    fuzz_input number = {piece, length};
    uint64_t bits = fuzz_take(&number, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (step == END) {
        if (w->depth > 1) {
            close_one(w);
        }
        free(text);
        return;
    }
    if (w->is_object[w->depth]) {
        hdi_json_key(&w->json, text);
    }
    switch (step) {
    case STRING:
        hdi_json_string(&w->json, text);
        break;
    case INTEGER:
        hdi_json_integer(&w->json, (int64_t)bits);
        break;
    case NUMBER:
        hdi_json_number(&w->json, value);
        break;
    case BOOL:
        hdi_json_bool(&w->json, bits & 1);
        break;
    case NULL_STRING:
        hdi_json_string(&w->json, NULL);
        break;
    default:
        open_one(w, step == OBJECT);
    }
    free(text);
}

/* True if the text is UTF-8: no lone or missing continuations, no more bytes than needed, no
 * surrogates. */
static bool is_utf8(const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        int more = *s < 0x80 ? 0 : *s < 0xc2 ? -1 : *s < 0xe0 ? 1 : *s < 0xf0 ? 2 : *s < 0xf5 ? 3 : -1;
        uint32_t code = *s & (more == 0 ? 0x7fu : 0x3fu >> more);
        if (more < 0) {
            return false;
        }
        s++;
        for (int i = 0; i < more; i++, s++) {
            if ((*s & 0xc0) != 0x80) {
                return false;
            }
            code = code << 6 | (*s & 0x3fu);
        }
        if ((more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
            (more == 3 && (code < 0x10000 || code > 0x10ffff))) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    fuzz_check(file != NULL);
    writer w = {.depth = 0};
    hdi_json_begin(&w.json, file);
    open_one(&w, in.left > 0 && in.at[0] & 1);
    while (in.left > 0) {
        write_one(&w, &in);
    }
    while (w.depth > 0) {
        close_one(&w);
    }
    hdi_json_end(&w.json);
    fuzz_check(fclose(file) == 0 && strlen(text) == length);
    fuzz_check(json_is_document(text) && is_utf8(text) && fuzz_is_print(text, length));
    free(text);
    return 0;
}
