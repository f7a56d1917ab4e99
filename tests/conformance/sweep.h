/* sweep.h - what the sweeps of failing driver calls share: noting what was wrong in a pass, without saying the same for every N.
 *
 * Threads: the main one. Locks: none.
 */
#ifndef CONFORMANCE_SWEEP_H
#define CONFORMANCE_SWEEP_H

#include "conformance.h"

/* What was wrong in a pass: printed once for each kind, counted, and failed on at the end of the pass. */
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

#endif
