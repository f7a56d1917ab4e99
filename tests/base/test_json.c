/* test_json.c - the JSON writer: layout, escapes, numbers, and locales with another decimal point.
 *
 * Promise: The JSON written is valid in every locale and reads back as the values given.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <locale.h>
#include <math.h>
#include "base/json.h"

typedef struct sink {
    char *text;
    size_t size;
    FILE *file;
    hdi_json json;
} sink;

static void sink_open(sink *s)
{
    s->file = open_memstream(&s->text, &s->size);
    assert_non_null(s->file);
    hdi_json_begin(&s->json, s->file);
}

static void sink_expect(sink *s, const char *expected)
{
    hdi_json_end(&s->json);
    fclose(s->file);
    assert_string_equal(s->text, expected);
    free(s->text);
}

static void nests(void **unused)
{
    (void)unused;
    sink s;
    sink_open(&s);
    hdi_json *j = &s.json;
    hdi_json_object(j);
    hdi_json_key(j, "a");
    hdi_json_integer(j, INT64_MIN);
    hdi_json_key(j, "list");
    hdi_json_array(j);
    hdi_json_bool(j, true);
    hdi_json_object(j);
    hdi_json_object_end(j);
    hdi_json_string(j, NULL);
    hdi_json_array_end(j);
    hdi_json_key(j, "empty");
    hdi_json_array(j);
    hdi_json_array_end(j);
    hdi_json_object_end(j);
    sink_expect(&s, "{\n  \"a\": -9223372036854775808,\n  \"list\": [\n    true,\n    {},\n    null\n  ],\n"
                    "  \"empty\": []\n}\n");
}

static void escapes(void **unused)
{
    (void)unused;
    sink s;
    sink_open(&s);
    hdi_json_string(&s.json, "quote\" back\\ line\n tab\t bell\a \x7f\xc2\x9b\xc2\xa0 \xc3\xa9 \xf0\x9f\x98\x80 "
                             "bad\xff\xc3 \xed\xa0\x80 \xc0\xaf");
    sink_expect(&s, "\"quote\\\" back\\\\ line\\n tab\\t bell\\u0007 \\u007f\\u009b\xc2\xa0 \xc3\xa9 \xf0\x9f\x98\x80 "
                    "bad\\ufffd\\ufffd "
                    "\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\"\n");
}

static void writes_short_numbers(void **unused)
{
    (void)unused;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0\n"},          {0.1, "0.1\n"},
        {-2.5, "-2.5\n"},    {1.0 / 3, "0.333333333\n"},
        {1e300, "1e+300\n"}, {123456789, "123456789\n"},
        {NAN, "null\n"},     {-INFINITY, "null\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sink s;
        sink_open(&s);
        hdi_json_number(&s.json, cases[i].value);
        sink_expect(&s, cases[i].text);
    }
}

static void ignores_the_locale(void **unused)
{
    (void)unused;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip();
    }
    sink s;
    sink_open(&s);
    hdi_json_number(&s.json, 0.5);
    setlocale(LC_NUMERIC, "C");
    sink_expect(&s, "0.5\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nests),
        cmocka_unit_test(escapes),
        cmocka_unit_test(writes_short_numbers),
        cmocka_unit_test(ignores_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
