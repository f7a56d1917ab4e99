/* cc_mistakes.h - usual mistakes in kernel source: what a compiler's message about one means, and what to do.
 *
 * A mistake is found by what compilers report, and by what the source has at that place. docs/kernels.md has the list.
 * Threads: the program's first. Locks: none.
 */
#ifndef CLI_CC_MISTAKES_H
#define CLI_CC_MISTAKES_H

#include <stdbool.h>
#include <string.h>
#include "cli/process.h"

/* How much of what a compiler reports comes from the mistake. Where a mistake has another weight than CC_FOLLOWS and CC_ALONE, those of
 * the greatest weight are what counts, and everything else is left out. */
typedef enum cc_weight {
    CC_FOLLOWS,  /* the message only follows from another one */
    CC_ALONE,    /* this message */
    CC_KERNEL,   /* all messages about a kernel's first line: the first counts */
    CC_LANGUAGE, /* messages about other places, too; each text counts once */
    CC_FILE      /* all of them: the source is of another language */
} cc_weight;

typedef struct cc_mistake {
    char *text; /* to be freed; NULL: the message is about no such mistake */
    cc_weight weight;
} cc_mistake;

/* What line `i` of a compiler's messages, without colours, means. */
cc_mistake cc_mistake_find(const cli_command *lines, size_t i);

/* For a function or a library that GPUs do not have. */
extern const char cc_no_gpu_function[], cc_no_library[];

/* ---- lines of messages ---- */

static inline bool cc_has(const char *line, const char *text)
{
    return strstr(line, text) != NULL;
}

bool cc_is_error(const char *line);
bool cc_is_warning(const char *line);

/* Where a message is: "FILE:LINE" without the column, also for FILE(LINE), as nvcc has it. To be freed; "": nowhere. */
char *cc_place_of(const char *line);

#endif
