/* changed_driver.h - the host provider's table with some calls replaced, for a test linked with
 * --wrap=hdi_driver_host. The test defines change_table and the wrapper, which calls give_changed.
 *
 * Threads: any. The table is made once.
 */
#ifndef HDI_TEST_CHANGED_DRIVER_H
#define HDI_TEST_CHANGED_DRIVER_H

#include <pthread.h>
#include "driver/driver.h"

static const hdi_driver *real; /* the provider's own table */

/* Replaces calls in the table that the library gets. */
static void change_table(hdi_driver *table);

static hdi_driver changed;

hd_status __real_hdi_driver_host(const hdi_driver **out);
hd_status __wrap_hdi_driver_host(const hdi_driver **out);

static void make_changed(void)
{
    __real_hdi_driver_host(&real);
    changed = *real;
    change_table(&changed);
}

static hd_status give_changed(const hdi_driver **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_changed);
    *out = &changed;
    return HD_OK;
}

#endif
