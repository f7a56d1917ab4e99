/* handle.c - the number that tells handles of this process from those of the process that it was forked from.
 *
 * Threads: the child's only one, right after a fork. Locks: none. Always: the number grows with every generation of forks, so no
 * ancestor's handle fits.
 */
#include "base/handle.h"

#include <pthread.h>

uint32_t hdi_handle_salt;

static void in_child(void)
{
    hdi_handle_salt++;
}

static void install(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void hdi_handle_guard_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}
