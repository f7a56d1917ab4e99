/* write.c - see write.h. */
#include "base/write.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/quiet.h"

/* A pipe that is ready takes this much at once. */
#define PIECE 4096

static bool ready(int descriptor, int64_t deadline)
{
    struct pollfd p = {.fd = descriptor, .events = POLLOUT};
    for (;;) {
        int64_t left = deadline == INT64_MAX ? INT32_MAX : (deadline - hdi_clock_ns() + 999999) / 1000000;
        int n = poll(&p, 1, left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left);
        if (n > 0) {
            return true;
        }
        if (n == 0) {
            errno = ETIMEDOUT;
        }
        if (n == 0 || errno != EINTR) {
            return false;
        }
    }
}

/* False with errno. */
static bool write_all(int descriptor, const char *text, size_t length, int64_t deadline)
{
    struct stat facts;
    bool regular = fstat(descriptor, &facts) == 0 &&
                   S_ISREG(facts.st_mode); /* there in one call, so that lines of programs do not mix */
    for (size_t at = 0; at < length;) {
        size_t n = regular || length - at < PIECE ? length - at : PIECE;
        if (!regular && !ready(descriptor, deadline)) {
            return false;
        }
        ssize_t put = write(descriptor, text + at, n);
        if (put < 0 && errno != EINTR && errno != EAGAIN) {
            return false;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

bool hdi_write_quietly(int descriptor, const char *text, size_t length, int64_t deadline)
{
    hdi_quiet quiet;
    hdi_quiet_begin(&quiet);
    bool ok = write_all(descriptor, text, length, deadline);
    hdi_quiet_end(&quiet, ok ? 0 : errno);
    return ok;
}
