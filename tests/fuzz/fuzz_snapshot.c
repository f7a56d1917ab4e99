/* fuzz_snapshot.c - snapshots of machines, which come with bug reports: an accepted one reads back
 * the same after writing it, and is judged.
 *
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "cli/doctor/findings.h"
#include "cli/doctor/report.h"
#include "cli/doctor/snapshot.h"
#include "support/json.h"

static char *write_all(const doctor_snapshot *s, size_t *length)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, length);
    fuzz_check(file != NULL);
    doctor_write(s, file);
    fuzz_check(fclose(file) == 0 && json_is_document(text) && fuzz_is_print(text, *length));
    return text;
}

static void judge(const doctor_snapshot *s)
{
    doctor_findings found = {0};
    doctor_judge(s, &found);
    fuzz_check(doctor_status(&found) >= 0 && doctor_status(&found) <= 2);
    for (int json = 0; json < 2; json++) {
        char *text = NULL;
        size_t length = 0;
        FILE *file = open_memstream(&text, &length);
        fuzz_check(file != NULL);
        (json ? doctor_print_json : doctor_print_text)(s, &found, file);
        fuzz_check(fclose(file) == 0 && fuzz_is_print(text, length) && (!json || json_is_document(text)));
        free(text);
    }
    doctor_findings_release(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    doctor_snapshot s = {0}, again = {0};
    char error[DOCTOR_ERROR_BYTES], *copy = fuzz_copy(input, bytes);
    bool good = doctor_read(&s, copy, bytes, error);
    free(copy);
    fuzz_check(fuzz_is_text(error, sizeof error) && good == (error[0] == 0) && (good || s.n == 0));
    if (good) {
        size_t length, second;
        char *text = write_all(&s, &length);
        fuzz_check(doctor_read(&again, text, length, error) && again.n == s.n);
        char *twice = write_all(&again, &second);
        fuzz_check(length == second && memcmp(text, twice, length) == 0);
        judge(&s);
        free(text);
        free(twice);
    }
    doctor_release(&s);
    doctor_release(&again);
    return 0;
}
