/* sweep.h - for the sweeps of failing driver calls: the report that a failed call must make, and
 * the violations of a pass over all N.
 *
 * Threads: the main one.
 * Locks: none.
 */
#ifndef CONFORMANCE_SWEEP_H
#define CONFORMANCE_SWEEP_H

#include "conformance.h"

/* The violations of a pass. The pass prints each kind once, and counts all. At its end the case
 * fails. */
static int violations;
static char seen[64][160];

CONF_UNUSED __attribute__((format(printf, 2, 3))) static void violation(const char *settings, const char *format, ...)
{
    char text[1024], kind[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t n = 0;
    for (const char *p = text; *p != '\0' && n < sizeof kind - 1; p++) { /* without the numbers */
        if (*p < '0' || *p > '9') {
            kind[n++] = *p;
        }
    }
    kind[n] = '\0';
    violations++;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        if (strcmp(seen[i], kind) == 0) {
            return;
        }
        if (seen[i][0] == '\0') {
            memcpy(seen[i], kind, sizeof kind);
            break;
        }
    }
    fprintf(stderr, "  WRONG, %s: %s\n", settings, text);
}

#define SWEEP_STATUS(name) (UINT32_C(1) << -HD_ERROR_##name)

/* Statuses to which a failed driver call may lead in any scenario. */
#define SWEEP_DRIVER_FAILS                                                                                             \
    (SWEEP_STATUS(MEMORY) | SWEEP_STATUS(HOST_MEMORY) | SWEEP_STATUS(DRIVER) | SWEEP_STATUS(DEVICE_LOST) |             \
     SWEEP_STATUS(FAILED) | SWEEP_STATUS(SYSTEM) | SWEEP_STATUS(IMAGE) | SWEEP_STATUS(NO_DRIVER) |                     \
     SWEEP_STATUS(NO_DEVICE) | SWEEP_STATUS(UNSUPPORTED))

/* Statuses of a call that fails because a driver call is out of memory, before anything is
 * submitted. */
#define SWEEP_LACKS_MEMORY (SWEEP_STATUS(MEMORY) | SWEEP_STATUS(HOST_MEMORY))

/* True if the message names a driver call or a code twice: it then states a cause twice. */
static bool sweep_repeats(const char *message)
{
    for (const char *at = message; *at != '\0';) {
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
        char word[128];
        at += strcspn(at, letters);
        size_t length = strspn(at, letters);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        at += length;
        bool of_driver = strncmp(word, "CUDA_", 5) == 0 || (strncmp(word, "cu", 2) == 0 && word[2] <= 'Z');
        if (of_driver && word[2] != '\0' && strstr(at, word) != NULL) {
            return true;
        }
    }
    return false;
}

/* Counts a failed call. Its status must be one of `expected`, and its message one line that names a
 * call, and states no cause twice. Returns true for success. */
CONF_UNUSED static bool sweep_step(const char *settings, int *failures, uint32_t expected, hd_status status,
                                   const char *call)
{
    if (status == HD_OK) {
        return true;
    }
    ++*failures;
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    const char *message = hd_message();
    bool names = strstr(message, "hd_") != NULL || strstr(message, "cu") != NULL ||
                 (error.operation[0] != '\0' && strstr(message, error.operation) != NULL);
    bool known = status < 0 && status > -32 && (expected >> -status & 1);
    if (!known || error.status != status || message[0] == '\0' || strchr(message, '\n') != NULL || !names ||
        sweep_repeats(message)) {
        violation(settings, "%s: %s, %d (hd_last_error: %s, operation '%s'): '%s'", call, hd_status_name(status),
                  status, hd_status_name(error.status), error.operation, message);
    }
    return false;
}

#endif
