/* cc_mistakes.h - explains the compiler's message about a common mistake in kernel source, and how
 * to fix it.
 *
 * The compiler's report and the source at that place identify a mistake. docs/kernels.md lists
 * them.
 * Threads: the program's first. Locks: none.
 */
#ifndef CLI_CC_MISTAKES_H
#define CLI_CC_MISTAKES_H

#include <stdbool.h>
#include <string.h>
#include "cli/process.h"

/* How many of a compiler's messages a mistake explains. If a mistake's weight exceeds CC_ALONE,
 * only the mistakes of the greatest weight are printed, and all other messages are dropped. */
typedef enum cc_weight {
    CC_FOLLOWS,  /* a consequence of another message */
    CC_ALONE,    /* this message alone */
    CC_KERNEL,   /* all messages about a kernel's first line; only the first is printed */
    CC_LANGUAGE, /* also messages about other places; each text is printed once */
    CC_FILE      /* all messages: the source is in another language */
} cc_weight;

typedef struct cc_mistake {
    char *text; /* the caller frees it; NULL: no known mistake */
    cc_weight weight;
} cc_mistake;

/* Explains line `i` of a compiler's messages, which come without colours. */
cc_mistake cc_mistake_find(const cli_command *lines, size_t i);

/* The same for CUDA C++. */
cc_mistake cc_mistake_find_cuda(const cli_command *lines, size_t i);

/* Texts for a function or a library that GPUs do not provide. */
extern const char cc_no_gpu_function[], cc_no_library[];

/* ---- lines of messages ---- */

static inline bool cc_has(const char *line, const char *text)
{
    return strstr(line, text) != NULL;
}

bool cc_is_error(const char *line);
bool cc_is_warning(const char *line);

/* The place of a message as "FILE:LINE", without the column. Accepts FILE(LINE), as nvcc prints
 * it. The caller frees it; "": no place. */
char *cc_place_of(const char *line);

#endif
