/* failed.h - shared code of the tests of failed operations: their buffer size, and the check that a
 * failure names an address.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_FAILED_H
#define CONFORMANCE_FAILED_H

#include "conformance.h"

enum { words = 1000, bytes = words * 4 };

/* Checks that a failed launch reports all its facts. */
CONF_UNUSED static void check_address(hd_status status, const char *kernel, int device, int lane, hd_ticket ticket,
                                      int code)
{
    CONF_FAILS(status, status);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    if (strcmp(error.kernel, kernel) != 0 || error.device != device || error.lane != lane ||
        error.ticket != ticket.sequence || (code != 0 && error.driver_code != code) || error.driver_code == 0) {
        conf_fail_at(
            __FILE__, __LINE__,
            "failure of kernel '%s' device %d lane %d ticket %llu code %d, not '%s' %d %d %llu %d; message: %s",
            error.kernel, error.device, error.lane, (unsigned long long)error.ticket, error.driver_code, kernel, device,
            lane, (unsigned long long)ticket.sequence, code, error.message);
    }
    CONF_TRUE(error.operation[0] != '\0');
    CONF_TRUE(strstr(error.message, kernel) != NULL);
}

#endif
