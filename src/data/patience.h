/* patience.h - how long an allocation at a limit waits for others to free something (option memory_patience).
 *
 * The wait ends when nothing has moved for the time of the option. It takes at most HDI_PATIENCE_TIMES that time in all.
 * So an allocation fails in the end even where other threads take the freed memory each time.
 * The wait ends earlier where nothing can be freed any more. Then nothing is unfinished, and no other live thread of the program has made a call.
 * The caller decides what counts as moving (hdi_patience_moved).
 *
 * Threads: one per wait. Locks: none.
 */
#ifndef HDI_DATA_PATIENCE_H
#define HDI_DATA_PATIENCE_H

#include "engine/runtime.h"

#define HDI_PATIENCE_TIMES 20 /* so many times the option memory_patience is waited in all, whatever moves */

typedef enum hdi_patience_end {
    HDI_PATIENCE_NONE,  /* it was not waited */
    HDI_PATIENCE_STILL, /* nothing has moved */
    HDI_PATIENCE_LONG,  /* something has, again and again */
    HDI_PATIENCE_ALONE, /* nothing is unfinished, and no other thread could free anything */
    HDI_PATIENCE_CLOSED /* the runtime is being closed */
} hdi_patience_end;

typedef struct hdi_patience {
    hd_runtime *runtime;
    int64_t allowed; /* ns without anything that moves */
    int64_t begin, moved, asked;
    hdi_patience_end end;
} hdi_patience;

/* Begins to wait. */
hdi_patience hdi_patience_begin(hd_runtime *rt);

/* Something has been freed or finished. */
void hdi_patience_moved(hdi_patience *p);

/* Whether it is time to give up, and why (p->end). `quiet`: nothing is unfinished whose end could free anything. */
bool hdi_patience_over(hdi_patience *p, bool quiet);

/* Whether it has been waited for as long as it is in all, or the runtime is being closed. */
bool hdi_patience_too_long(const hdi_patience *p);

/* Sleeps until it makes sense to look again: a small part of the time without anything that moves. */
void hdi_patience_sleep(const hdi_patience *p);

/* Why it was given up, for a message: "nothing was freed or finished for 5 s (option memory_patience)". "" where it was not waited. */
#define HDI_PATIENCE_TEXT 160
const char *hdi_patience_text(const hdi_patience *p, char out[HDI_PATIENCE_TEXT]);

#endif
