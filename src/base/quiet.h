/* quiet.h - writing to a file, or making it larger, so that what goes wrong is an errno and not a signal.
 *
 * By default a broken pipe (SIGPIPE) and a limit on the size of files (SIGXFSZ, ulimit -f) end the program. The library must not do that to it.
 * The limit holds for memory files, too. Threads: any; the calling thread's signal mask is changed for the time between the two calls.
 */
#ifndef HDI_BASE_QUIET_H
#define HDI_BASE_QUIET_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct hdi_quiet {
    sigset_t before, pending;
} hdi_quiet;

void hdi_quiet_begin(hdi_quiet *quiet);

/* `error`: the errno of what failed in between, 0 if nothing did; its signal is taken away, but for one that the program had coming before.
 * Leaves errno alone. */
void hdi_quiet_end(const hdi_quiet *quiet, int error);

/* ftruncate between the two. */
int hdi_quiet_resize(int descriptor, off_t bytes);

#endif
