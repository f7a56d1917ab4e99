/* test_snapshot.c - the facts of a snapshot: keys, reasons, hidden UUIDs, JSON both ways, refused
 * texts; and the questions of rules.
 *
 * Promise: Snapshots read back as written, without UUIDs; other text is refused with its line.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdbool.h>
#include "cli/doctor/findings.h"
#include "cli/doctor/report.h"
#include "support/json.h"

#define UUID "8f5d1a2b-0c3d-4e5f-a6b7-0123456789ab"

static const char *value_of(const doctor_snapshot *s, const char *key)
{
    const doctor_fact *f = doctor_find(s, key);
    assert_non_null(f);
    assert_non_null(f->value);
    return f->value;
}

static void keeps_the_first_value(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0};
    doctor_miss(&s, "not there", "gpu.%d.mig", 3);
    assert_null(doctor_find(&s, "gpu.3.mig")->value);
    doctor_put(&s, "yes", "gpu.%d.mig", 3);
    doctor_put(&s, "no", "gpu.%d.mig", 3);
    doctor_miss(&s, "gone", "gpu.3.mig");
    assert_string_equal(value_of(&s, "gpu.3.mig"), "yes");
    assert_null(doctor_find(&s, "gpu.3.mig")->reason);
    doctor_put(&s, "x", "a key");
    doctor_put(&s, "x", "%s", "");
    assert_int_equal(s.n, 1);
    for (int i = 0; i < 5000; i++) {
        doctor_put_number(&s, i, "n.%d", i);
    }
    assert_int_equal(s.n, 5001);
    assert_string_equal(value_of(&s, "n.4321"), "4321");
    assert_null(doctor_find(&s, "n.5000"));
    doctor_release(&s);
    assert_null(doctor_find(&s, "n.1"));
}

static void hides_owners(void **unused)
{
    (void)unused;
    char text[DOCTOR_VALUE_BYTES * 2];
    doctor_snapshot s = {0};
    doctor_put(&s, "GPU-" UUID ",GPU-" UUID, "env.CUDA_VISIBLE_DEVICES");
    const char *value = value_of(&s, "env.CUDA_VISIBLE_DEVICES");
    assert_null(strstr(value, UUID));
    assert_null(strstr(value, "8f5d1a2b"));
    const char *comma = strchr(value, ',');
    assert_non_null(comma); /* equal UUIDs become equal hashes */
    assert_memory_equal(value, comma + 1, (size_t)(comma - value));
    doctor_put(&s, "8f5d1a2b0c3d4e5fa6b70123456789ab, 8f5d1a2b0c3d4e5fa6b70123456789abcd", "plain");
    assert_int_equal(value_of(&s, "plain")[0], '#');
    assert_contains(value_of(&s, "plain"), "#, 8f5d1a2b"); /* longer numbers are no UUIDs */
    memset(text, 'x', sizeof text);
    /* no part of a UUID that would be cut off */
    memcpy(text + DOCTOR_VALUE_BYTES - 30, UUID, sizeof UUID);
    doctor_put(&s, text, "long");
    assert_null(strstr(value_of(&s, "long"), "8f5d1a2b"));
    doctor_put(&s, "a\tb\x1b[2J\n", "control");
    assert_string_equal(value_of(&s, "control"), "a?b?[2J?");
    doctor_release(&s);
}

static char *written(const doctor_snapshot *s, size_t *length)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, length);
    assert_non_null(file);
    doctor_write(s, file);
    fclose(file);
    return text;
}

static void reads_what_was_written(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0}, again = {0};
    size_t length, second;
    char error[DOCTOR_ERROR_BYTES];
    doctor_put_number(&s, 2, "gpus");
    doctor_put(&s, "007", "gpu.0.name");
    doctor_put(&s, "a \"b\"\\", "gpu.1.name");
    doctor_put(&s, "GPU-" UUID "-1234-1234-1234-123456789012", "gpu.1.id");
    doctor_miss(&s, DOCTOR_ROOT, "gpu.0.acs");
    char *text = written(&s, &length);
    assert_true(json_is_document(text));
    assert_int_equal(json_integer_at(text, "facts.gpus"), 2);
    assert_true(doctor_read(&again, text, length, error));
    assert_string_equal(value_of(&again, "gpu.0.name"), "007");
    assert_string_equal(value_of(&again, "gpu.1.name"), "a \"b\"\\");
    assert_string_equal(doctor_find(&again, "gpu.0.acs")->reason, DOCTOR_ROOT);
    char *twice = written(&again, &second);
    assert_string_equal(text, twice);
    free(text);
    free(twice);
    doctor_release(&s);
    doctor_release(&again);
}

static void refused(const char *text, const char *expected)
{
    doctor_snapshot s = {0};
    char error[DOCTOR_ERROR_BYTES];
    assert_false(doctor_read(&s, text, strlen(text), error));
    assert_contains(error, expected);
    assert_int_equal(s.n, 0);
    assert_null(s.list);
}

static void refuses_what_is_none(void **unused)
{
    (void)unused;
    refused("{\n\"heddle_snapshot\": 1,", "line 2");
    refused("[]", "it is no snapshot");
    refused("{\"facts\": {}}", "it is no snapshot");
    refused("{\"heddle_snapshot\": 2, \"facts\": {}}", "form 2");
    refused("{\"heddle_snapshot\": 1}", "no \"facts\"");
    refused("{\"heddle_snapshot\": 1,\n \"facts\": 1}", "line 2: \"facts\" is no object");
    refused("{\"heddle_snapshot\": 1, \"facts\": {}, \"missing\": []}", "\"missing\" is no object");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\n\"a\": 1,\n\"a\": 2}}", "line 3: \"a\" is there twice");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\"a\": 1}, \"missing\": {\"a\": \"b\"}}", "is there twice");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\"a b\": 1}}", "no name of a fact");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\"a\": true}}", "neither text nor a whole number");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\"a\": 1.5}}", "neither text nor a whole number");
    refused("{\"heddle_snapshot\": 1, \"facts\": {}, \"missing\": {\"a\": 1}}", "neither text nor a whole number");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\n\"gpus\": \"two\"}}", "line 2: \"gpus\" is no number of devices");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\"gpus\": -1}}", "from 0 to 64");
    refused("{\"heddle_snapshot\": 1, \"facts\": {\"gpus\": 65}}", "from 0 to 64");
}

static bool is_found(const doctor_findings *f, const char *id)
{
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->list[i].rule->id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* Errors come first; a rule makes one finding per device, with the evidence. */
static void orders_findings(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0};
    doctor_findings f;
    doctor_put_number(&s, 3, "gpus");
    for (int i = 0; i < 3; i++) {
        doctor_put(&s, i == 1 ? "no" : "yes", "gpu.%d.mig", i);
        doctor_put(&s, "no", "gpu.%d.persistence", i);
    }
    doctor_put(&s, "prohibited", "gpu.2.compute_mode");
    doctor_judge(&s, &f);
    assert_int_equal(f.n, 3);
    assert_string_equal(f.list[0].rule->id, "compute-prohibited");
    assert_string_equal(f.list[1].rule->id, "mig");
    assert_string_equal(f.list[2].rule->id, "persistence");
    assert_int_equal(doctor_status(&f), 2);
    assert_int_equal(f.list[1].n_subjects, 2);
    assert_int_equal(f.list[1].subjects[1].a, 2);
    assert_string_equal(f.list[1].evidence[0]->key, "gpu.0.mig");
    assert_int_equal(f.list[2].n_subjects, 3);
    doctor_findings_release(&f);
    doctor_release(&s);
}

static void notes_alone_are_no_failure(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0};
    doctor_findings f;
    doctor_judge(&s, &f); /* without any facts */
    assert_int_equal(f.n, 0);
    assert_int_equal(f.n_answered, 0);
    assert_int_equal(doctor_status(&f), 0);
    doctor_findings_release(&f);
    doctor_put_number(&s, 1, "gpus");
    doctor_put(&s, "no", "gpu.0.persistence");
    doctor_judge(&s, &f);
    assert_int_equal(f.n, 1);
    assert_int_equal(doctor_status(&f), 0);
    doctor_findings_release(&f);
    doctor_put(&s, "yes", "gpu.0.mig");
    doctor_judge(&s, &f);
    assert_int_equal(doctor_status(&f), 1);
    doctor_findings_release(&f);
    doctor_release(&s);
}

static void says_what_root_would_add(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0};
    doctor_findings f;
    char *text = NULL;
    size_t length;
    doctor_put_number(&s, 2, "gpus");
    doctor_put(&s, "yes", "pair.0.1.cuda");
    doctor_put(&s, "yes", "pair.1.0.cuda");
    doctor_miss(&s, DOCTOR_ROOT, "gpu.0.acs");
    doctor_miss(&s, "gone", "gpu.0.mig");
    doctor_judge(&s, &f);
    assert_false(is_found(&f, "acs"));
    assert_true(f.n_gaps > 0);
    FILE *file = open_memstream(&text, &length);
    doctor_print_text(&s, &f, file);
    fclose(file);
    assert_contains(text, "As root, this would also be checked: ");
    assert_contains(text, "   gone (gpu.0.mig)\n      mig, mig-pending\n");
    assert_contains(text, "clocks       not checked\n");
    assert_contains(text, "  not in the snapshot; NVML provides it (");
    free(text);
    doctor_findings_release(&f);
    doctor_release(&s);
}

static char *printed(const doctor_snapshot *s, void (*print)(const doctor_snapshot *, const doctor_findings *, FILE *))
{
    doctor_findings f;
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    doctor_judge(s, &f);
    print(s, &f, file);
    fclose(file);
    doctor_findings_release(&f);
    return text;
}

/* A command names exactly the device of the finding. */
static void a_fix_names_its_device(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0};
    doctor_put_number(&s, 3, "gpus");
    doctor_put(&s, "0000:1c:00.0", "gpu.1.bus");
    doctor_put(&s, "prohibited", "gpu.1.compute_mode");
    char *text = printed(&s, doctor_print_json);
    assert_contains(text, "\"fix\": \"nvidia-smi -i 0000:1c:00.0 -c DEFAULT\"");
    assert_int_equal(json_count_at(text, "findings.0.buses"), 1);
    assert_contains(text, "\"0000:1c:00.0\"");
    free(text);
    text = printed(&s, doctor_print_text);
    assert_contains(text, "nvidia-smi -i 0000:1c:00.0 -c DEFAULT\n");
    free(text);
    doctor_put(&s, "prohibited", "gpu.2.compute_mode");
    text = printed(&s, doctor_print_text);
    assert_contains(text, "nvidia-smi -i 0000:1c:00.0 -c DEFAULT (this is for device 1; do the same for each)\n");
    free(text);
    doctor_put(&s, "prohibited", "gpu.0.compute_mode"); /* the first device's bus id is unknown */
    text = printed(&s, doctor_print_text);
    assert_contains(text, "nvidia-smi -i BUS -c DEFAULT\n");
    free(text);
    doctor_release(&s);
}

static void nothing_known_is_not_nothing_wrong(void **unused)
{
    (void)unused;
    doctor_snapshot s = {0};
    char *text = printed(&s, doctor_print_text);
    assert_contains(text, "the snapshot lacks the number of devices (gpus)");
    assert_null(strstr(text, "nothing wrong in what"));
    free(text);
    doctor_put_number(&s, 0, "gpus");
    text = printed(&s, doctor_print_text);
    assert_contains(text, "0 devices: nothing wrong in what was checked\n");
    assert_contains(text, "peers        nothing to check\n");
    free(text);
    doctor_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_first_value),
        cmocka_unit_test(hides_owners),
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(refuses_what_is_none),
        cmocka_unit_test(orders_findings),
        cmocka_unit_test(notes_alone_are_no_failure),
        cmocka_unit_test(says_what_root_would_add),
        cmocka_unit_test(a_fix_names_its_device),
        cmocka_unit_test(nothing_known_is_not_nothing_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
