/* fuzz_devices.c - the option devices: an accepted list names existing devices, each once; other
 * lists are refused.
 *
 * An input: a byte for the number of devices, then the list.
 * Threads: one. Locks: none.
 */
#include "fuzz.h"

#include "runtime/runtime_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_input in = {input, bytes};
    /* also more devices than can be named */
    int count = (int)fuzz_take(&in, 1) * 5, n = 0, ordinals[HDI_DEVICES_MAX];
    char *list = fuzz_text(in.at, in.left);
    hd_status status = hdi_devices_choose(list, count, ordinals, &n);
    if (status != HD_OK) {
        fuzz_check_failure(status, HD_ERROR_OPTION, HD_ERROR_NO_DEVICE);
    } else {
        bool all = strcmp(list, "all") == 0; /* accepts no devices, too */
        fuzz_check(n <= HDI_DEVICES_MAX && (n > 0 || (all && count == 0)));
        for (int i = 0; i < n; i++) {
            fuzz_check(ordinals[i] >= 0 && ordinals[i] < count);
            for (int j = 0; j < i; j++) {
                fuzz_check(ordinals[i] != ordinals[j]);
            }
        }
    }
    free(list);
    return 0;
}
