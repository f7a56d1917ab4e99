/* test_json_read.c - the JSON reader: values, escapes, refused texts with their lines, bounds,
 * locales with another decimal point.
 *
 * Promise: Documents of the JSON writer read back unchanged; other text is refused with its line.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <locale.h>
#include "base/json.h"
#include "base/json_read.h"

static hdi_json_tree tree;

static const hdi_json_value *read_text(const char *text)
{
    if (!hdi_json_read(text, strlen(text), &tree)) {
        fail_msg("%s: %s", text, tree.error);
    }
    assert_string_equal(tree.error, "");
    return tree.root;
}

static void refused_bytes(const char *text, size_t bytes, const char *error)
{
    assert_false(hdi_json_read(text, bytes, &tree));
    assert_null(tree.root);
    assert_null(tree.memory);
    assert_contains(tree.error, error);
}

static void refused(const char *text, const char *error)
{
    refused_bytes(text, strlen(text), error);
}

static void reads_a_tree(void **unused)
{
    (void)unused;
    const hdi_json_value *root =
        read_text(" {\n\"list\": [1, -2.5, true, false, null, \"x\", [], {}],\n \"b\" : {\"c\":3e2},\n\"b\": 4}\n ");
    assert_int_equal(root->kind, HDI_JSON_OBJECT);
    assert_int_equal(root->count, 3);
    const hdi_json_value *list = hdi_json_member(root, "list"), *v = list->first;
    assert_int_equal(list->count, 8);
    assert_int_equal(list->line, 2);
    assert_true(v->is_integer && v->integer == 1 && v->number == 1);
    v = v->next;
    assert_true(v->kind == HDI_JSON_NUMBER && !v->is_integer && v->number == -2.5);
    v = v->next;
    assert_true(v->kind == HDI_JSON_BOOL && v->boolean && !v->next->boolean);
    v = v->next->next;
    assert_int_equal(v->kind, HDI_JSON_NULL);
    assert_string_equal(v->next->text, "x");
    v = v->next->next;
    assert_true(v->kind == HDI_JSON_ARRAY && v->count == 0 && v->first == NULL);
    assert_true(v->next->kind == HDI_JSON_OBJECT && v->next->next == NULL);
    const hdi_json_value *b = hdi_json_member(root, "b"); /* the first of two */
    assert_int_equal(b->line, 3);
    assert_true(hdi_json_member(b, "c")->number == 300);
    assert_null(hdi_json_member(root, "none"));
    assert_null(hdi_json_member(list, "b"));
    assert_null(hdi_json_member(NULL, "b"));
    hdi_json_release(&tree);
    hdi_json_release(&tree);
}

static void reads_escapes(void **unused)
{
    (void)unused;
    const hdi_json_value *root =
        read_text("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\\u007f\", "
                  "\"\xc3\xa9\xf0\x9f\x98\x80\", \"\"]");
    assert_string_equal(root->first->text, "\"\\/\b\f\n\r\t");
    assert_string_equal(root->first->next->text, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f");
    assert_string_equal(root->first->next->next->text, "\xc3\xa9\xf0\x9f\x98\x80");
    assert_string_equal(root->first->next->next->next->text, "");
    hdi_json_release(&tree);
}

static void reads_numbers(void **unused)
{
    (void)unused;
    const hdi_json_value *v =
        read_text("[9223372036854775807, -9223372036854775808, 9223372036854775808, 0, -0, 1.0, 1e-400, 0.1E+1]")
            ->first;
    assert_true(v->is_integer && v->integer == INT64_MAX);
    v = v->next;
    assert_true(v->is_integer && v->integer == INT64_MIN);
    v = v->next;
    assert_true(!v->is_integer && v->number == 9223372036854775808.0);
    assert_true(v->next->is_integer && v->next->integer == 0);
    v = v->next->next->next;
    assert_true(!v->is_integer && v->number == 1);
    assert_true(v->next->number == 0 && v->next->next->number == 1);
    hdi_json_release(&tree);
}

static void refuses_with_the_line(void **unused)
{
    (void)unused;
    refused("", "line 1: a value is missing");
    refused(" \n\n", "line 3: a value is missing");
    refused("[1,\n2\n3]", "line 3: a comma or ] is missing");
    refused("{\"a\":1\n\"b\":2}", "line 2: a comma or } is missing");
    refused("{\n\"a\" 1}", "line 2: a colon is missing");
    refused("{a:1}", "line 1: the name of a member is missing");
    refused("{\"a\":1,}", "the name of a member is missing");
    refused("{\"a\":}", "a value is missing");
    refused("[1,]", "a value is missing");
    refused("[,1]", "a value is missing");
    refused("[1", "a comma or ] is missing");
    refused("[", "a value is missing");
    refused("{", "the name of a member is missing");
    refused("1\n2", "line 2: something follows");
    refused("[1]]", "something follows");
    refused("[1}", "a comma or ] is missing");
    refused("// no\n1", "neither a value nor a number");
    refused("\xef\xbb\xbf{}", "neither a value nor a number");
}

static void refuses_what_is_no_value(void **unused)
{
    (void)unused;
    static const char *const no_numbers[] = {"01",  "-",  "+1",  ".5",       "1.",  "1e",
                                             "1e+", "-a", "NaN", "Infinity", "nul", "True"};
    for (size_t i = 0; i < sizeof no_numbers / sizeof no_numbers[0]; i++) {
        assert_false(hdi_json_read(no_numbers[i], strlen(no_numbers[i]), &tree));
        assert_contains(tree.error, "line 1: neither a value nor a number");
    }
    refused("0x10", "something follows");
    refused("1e999", "too large");
    refused("\"a", "a string has no end");
    refused("\"a\\\"", "a string has no end");
    refused("\"\\", "a backslash");
    refused("\"\\x\"", "a backslash");
    refused("\"\\u12\"", "four hexadecimal digits");
    refused("\"\\u0000\"", "the character 0");
    refused("\"\\ud800\"", "half of a surrogate pair");
    refused("\"\\ud800\\u0041\"", "half of a surrogate pair");
    refused("\"\\udc00\"", "half of a surrogate pair");
    refused("\"a\nb\"", "the byte 0x0a");
    refused("\"\xff\"", "the byte 0xff");
    refused("\"\xc3", "the byte 0xc3");
    refused_bytes("1\0", 2, "something follows");
    refused_bytes("\"a\0\"", 4, "the byte 0x00");
}

static void bounds_nesting(void **unused)
{
    (void)unused;
    enum { MOST = 100000 };
    char *text = malloc(2 * MOST);
    assert_non_null(text);
    for (int depth = HDI_JSON_DEPTH; depth <= HDI_JSON_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        assert_int_equal(hdi_json_read(text, 2 * (size_t)depth, &tree), depth == HDI_JSON_DEPTH);
        hdi_json_release(&tree);
    }
    memset(text, '[', 2 * MOST);
    refused_bytes(text, 2 * MOST, "more than 64 arrays and objects in each other");
    free(text);
}

static void reads_what_was_written(void **unused)
{
    (void)unused;
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    hdi_json j;
    hdi_json_begin(&j, file);
    hdi_json_object(&j);
    hdi_json_key(&j, "a \"name\"\n");
    hdi_json_string(&j, "tab\t bell\a \x7f\xc2\x9b \xf0\x9f\x98\x80");
    hdi_json_key(&j, "least");
    hdi_json_integer(&j, INT64_MIN);
    hdi_json_key(&j, "part");
    hdi_json_number(&j, 0.5);
    hdi_json_object_end(&j);
    hdi_json_end(&j);
    fclose(file);
    assert_true(hdi_json_read(text, bytes, &tree));
    assert_string_equal(hdi_json_member(tree.root, "a \"name\"\n")->text, "tab\t bell\a \x7f\xc2\x9b \xf0\x9f\x98\x80");
    assert_true(hdi_json_member(tree.root, "least")->integer == INT64_MIN);
    assert_true(hdi_json_member(tree.root, "part")->number == 0.5);
    hdi_json_release(&tree);
    free(text);
}

static void ignores_the_locale(void **unused)
{
    (void)unused;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip();
    }
    assert_true(read_text("0.5")->number == 0.5);
    hdi_json_release(&tree);
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_tree),
        cmocka_unit_test(reads_escapes),
        cmocka_unit_test(reads_numbers),
        cmocka_unit_test(refuses_with_the_line),
        cmocka_unit_test(refuses_what_is_no_value),
        cmocka_unit_test(bounds_nesting),
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(ignores_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
