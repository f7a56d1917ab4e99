/* shortage.c - finds limits of the process that may have caused a failure. See shortage.h.
 *
 * Threads: any. Locks: none.
 */
#include "base/shortage.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/cancel.h"
#include "base/descriptor.h"

const char *hdi_shortage_text(void)
{
    HDI_UNCANCELLED;
    int before = errno;
    const char *text = NULL;
    struct rlimit addresses;
    int probe = hdi_descriptor_open("/dev/null", O_RDONLY, 0);
    if (probe >= 0) {
        close(probe);
    } else if (errno == EMFILE || errno == ENFILE) {
        text = "the process has no descriptors left (ulimit -n)";
    }
    if (!text && getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
        text = "the addresses of the process are limited (ulimit -v)";
    }
    errno = before;
    return text;
}
