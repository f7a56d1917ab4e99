/* fuzz_options.c - settings: accepted ones can be formatted for a worker and read back the same.
 * Also faults, delays, spoilt pairs, lists of processors, and names that are no options.
 *
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "base/options.h"
#include "base/thread.h"
#include "driver/driver.h"
#include "simulator/host.h"
#include "simulator/simulator.h"
#include "worker/message.h"

/* Compares all options except the worker's path, which workers do not get. */
static void check_same(const hdi_options *a, const hdi_options *b)
{
    const hdi_option_row *row;
    for (int i = 0; (row = hdi_option_row_at(i)) != NULL; i++) {
        fuzz_check(strcmp(row->name, "worker") == 0 || strcmp(a->text[i], b->text[i]) == 0);
    }
}

static void check_faults(const hdi_options *o)
{
    static hdi_driver driver; /* without entries */
    const hdi_driver *wrapped;
    hd_status status = hdi_faults_wrap(&driver, o, &wrapped);
    if (status == HD_OK) {
        hdi_faults_unwrap(wrapped);
    } else {
        fuzz_check_failure(status, HD_ERROR_OPTION);
    }
}

static void check_settings(const char *text)
{
    hdi_options o, again;
    static char written[HDI_MESSAGE_SETTINGS_BYTES];
    hd_status status = hdi_options_parse_settings(text, &o);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_OPTION);
        return;
    }
    if (hdi_options_format(&o, written, sizeof written)) {
        fuzz_check(hdi_options_parse_settings(written, &again) == HD_OK);
        check_same(&o, &again);
        hdi_options_release(&again);
    }
    char little[64];
    fuzz_check(!hdi_options_format(&o, little, sizeof little));
    check_faults(&o);
    hdi_options_release(&o);
}

/* Tries the text as the value of each option with its own grammar. */
static void check_values(char *text)
{
    hdi_options o;
    fuzz_check(hdi_options_parse_settings(NULL, &o) == HD_OK);
    o.fault = text;
    check_faults(&o);
    o.fault = "";
    o.delay = text;
    check_faults(&o);
    hdi_options_release(&o);
    uint8_t spoils[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX];
    enum { DEVICES = 4 };
    hd_status status = hdi_host_corrupt_parse(text, DEVICES, spoils);
    for (int i = 0; i < HDI_HOST_DEVICES_MAX && status == HD_OK; i++) {
        for (int j = 0; j < HDI_HOST_DEVICES_MAX; j++) {
            fuzz_check(spoils[i][j] == 0 || (i < DEVICES && j < DEVICES && i != j));
        }
    }
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_OPTION);
    }
    static hdi_cpus cpus;
    hdi_cpus_parse(text, &cpus);
}

static void check_names(char *text)
{
    hdi_options o;
    char setting[128];
    /* if this is no option, the failure names the nearest one */
    snprintf(setting, sizeof setting, "%.100s=1", text);
    if (hdi_options_parse_settings(setting, &o) == HD_OK) {
        hdi_options_release(&o);
    }
    char line[200], *environment[] = {text, text, NULL};
    size_t length = hdi_option_unknown_variables(environment, line, sizeof line);
    fuzz_check(length < sizeof line);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    char *text = fuzz_text(input, bytes);
    check_settings(text);
    check_values(text);
    check_names(text);
    free(text);
    return 0;
}
