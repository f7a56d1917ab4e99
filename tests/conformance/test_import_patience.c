/* test_import_patience.c - an open claim delays the end of a freed import, but not for long.
 *
 * Promise: `released` of pinned memory is called some ten seconds after hd_free, whatever claim is
 * open. Tier: full.
 *
 * The program may run kernels of its own in a claim, for which the driver would wait.
 *
 * Threads: the main one. Locks: none.
 */
#include "conformance.h"
#include <stdatomic.h>

enum { bytes = 65536 };

static void count(void *context)
{
    atomic_fetch_add((atomic_int *)context, 1);
}

static void an_open_claim_delays_it_for_ten_seconds(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    atomic_int released = 0;
    const hd_import_options options = {.size = sizeof options, .released = count, .context = &released};
    void *memory = aligned_alloc(4096, bytes);
    hd_buffer *claimed = NULL, *import = NULL;
    hd_claim *claim = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &claimed));
    const hd_arg use = hd_inout(claimed);
    CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
    CONF_OK(hd_import_host(runtime, memory, bytes, &options, &import));
    CONF_OK(hd_fill(import, 0, 1, bytes, NULL));
    CONF_OK(hd_buffer_wait(import, HD_READ, HD_FOREVER));
    CONF_OK(hd_fill(import, 0, 2, bytes, NULL)); /* so that a thread of Heddle ends it */
    CONF_OK(hd_free(import));
    int64_t freed = conf_now();
    while (atomic_load(&released) == 0) {
        conf_sleep_ms(10);
        CONF_TRUE(conf_now() - freed < 60 * CONF_SECOND);
    }
    CONF_OK(hd_claim_end(claim, HD_OK));
    conf_close(runtime);
    free(memory);
}

int main(void)
{
    conf_begin("test_import_patience");
    const struct CMUnitTest tests[] = {CONF_CASE(an_open_claim_delays_it_for_ten_seconds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
