/* quiet.c - failures of writing without their signals. See quiet.h for threads. Locks: none. */
#include "base/quiet.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

void hdi_quiet_begin(hdi_quiet *quiet)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    sigpending(&quiet->pending);
    pthread_sigmask(SIG_BLOCK, &both, &quiet->before);
}

void hdi_quiet_end(const hdi_quiet *quiet, int error)
{
    int saved = errno;
    int signal = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
    if (signal != 0 && sigismember(&quiet->pending, signal) != 1) {
        const struct timespec now = {0, 0};
        sigset_t it;
        sigemptyset(&it);
        sigaddset(&it, signal);
        while (sigtimedwait(&it, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = saved;
}

int hdi_quiet_resize(int descriptor, off_t bytes)
{
    hdi_quiet quiet;
    hdi_quiet_begin(&quiet);
    int result = ftruncate(descriptor, bytes);
    hdi_quiet_end(&quiet, result != 0 ? errno : 0);
    return result;
}
