/* test_machines.c - the findings on snapshots of machines from public reports (machines/NAME.json).
 *
 * A file states its source, its subject, and the expected ids.
 * Promise: Each machine of a public report has exactly the expected findings, a clean one none.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <dirent.h>
#include <stdbool.h>
#include "base/json_read.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/report.h"
#include "support/json.h"

enum { MACHINES_LEAST = 40 };

static char *read_file(const char *name, size_t *bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", HD_TEST_MACHINES, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *text = malloc(DOCTOR_FILE_MAX);
    assert_non_null(text);
    *bytes = fread(text, 1, DOCTOR_FILE_MAX, file);
    fclose(file);
    return text;
}

static bool is_expected(const hdi_json_value *expected, const char *id)
{
    for (const hdi_json_value *v = expected->first; v; v = v->next) {
        if (v->text && strcmp(v->text, id) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns the number of differences. */
static int compare(const char *name, const hdi_json_value *expected, const doctor_findings *found)
{
    int wrong = 0;
    for (const hdi_json_value *v = expected->first; v; v = v->next) {
        bool there = false;
        for (int i = 0; i < found->n; i++) {
            there |= strcmp(found->list[i].rule->id, v->text) == 0;
        }
        if (!there) {
            fprintf(stderr, "%s: %s is not found\n", name, v->text);
            wrong++;
        }
    }
    for (int i = 0; i < found->n; i++) {
        const doctor_finding *f = &found->list[i];
        if (!is_expected(expected, f->rule->id)) {
            fprintf(stderr, "%s: %s is found, and not expected (%s)\n", name, f->rule->id,
                    f->n_evidence ? f->evidence[0]->key : "no evidence");
            wrong++;
        }
        assert_true(f->n_evidence > 0 && f->n_subjects > 0);
    }
    return wrong;
}

static void check_reports(const doctor_snapshot *s, const doctor_findings *found)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    doctor_print_json(s, found, file);
    fclose(file);
    assert_true(json_is_document(text));
    assert_int_equal(json_integer_at(text, "status"), doctor_status(found));
    assert_int_equal(json_count_at(text, "findings"), found->n);
    free(text);
    file = open_memstream(&text, &length);
    doctor_print_text(s, found, file);
    fclose(file);
    for (int i = 0; i < found->n; i++) {
        assert_contains(text, found->list[i].rule->title);
    }
    if (found->n == 0) {
        assert_contains(text, "nothing wrong");
    }
    free(text);
}

static int check_machine(const char *name)
{
    size_t bytes;
    char error[DOCTOR_ERROR_BYTES], *text = read_file(name, &bytes);
    doctor_snapshot s = {0};
    doctor_findings found;
    hdi_json_tree tree;
    if (!doctor_read(&s, text, bytes, error) || !hdi_json_read(text, bytes, &tree)) {
        fail_msg("%s: %s", name, error);
    }
    const hdi_json_value *expected = hdi_json_member(tree.root, "expected"),
                         *source = hdi_json_member(tree.root, "source");
    assert_true(expected && expected->kind == HDI_JSON_ARRAY);
    assert_true(source && source->text && strncmp(source->text, "https://", 8) == 0);
    doctor_judge(&s, &found);
    int wrong = compare(name, expected, &found);
    check_reports(&s, &found);
    doctor_findings_release(&found);
    doctor_release(&s);
    hdi_json_release(&tree);
    free(text);
    return wrong;
}

static void finds_what_is_expected(void **unused)
{
    (void)unused;
    DIR *directory = opendir(HD_TEST_MACHINES);
    assert_non_null(directory);
    int machines = 0, wrong = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strstr(entry->d_name, ".json")) {
            wrong += check_machine(entry->d_name);
            machines++;
        }
    }
    closedir(directory);
    assert_true(machines >= MACHINES_LEAST);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
