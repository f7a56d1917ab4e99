/* memory_wait.h - how long an allocation at a limit waits for others to free something (option memory_timeout).
 *
 * The wait ends when nothing has moved for the time of the option. It takes at most HDI_MEMORY_WAIT_TIMES that time in all.
 * So an allocation fails in the end even where other threads take the freed memory each time.
 * The wait ends earlier where nothing can be freed any more. Then nothing is unfinished, and no other live thread of the program has made a call.
 * The caller decides what counts as moving (hdi_memory_wait_moved).
 *
 * Threads: one per wait. Locks: none.
 */
#ifndef HDI_BUFFER_MEMORY_WAIT_H
#define HDI_BUFFER_MEMORY_WAIT_H

#include "engine/runtime.h"

#define HDI_MEMORY_WAIT_TIMES 20 /* so many times the option memory_timeout is waited in all, whatever moves */

typedef enum hdi_memory_wait_end {
    HDI_MEMORY_WAIT_NONE,  /* it was not waited */
    HDI_MEMORY_WAIT_STILL, /* nothing has moved */
    HDI_MEMORY_WAIT_LONG,  /* something has, again and again */
    HDI_MEMORY_WAIT_ALONE, /* nothing is unfinished, and no other thread could free anything */
    HDI_MEMORY_WAIT_CLOSED /* the runtime is being closed */
} hdi_memory_wait_end;

typedef struct hdi_memory_wait {
    hd_runtime *runtime;
    int64_t allowed; /* ns without anything that moves */
    int64_t begin, moved, asked;
    hdi_memory_wait_end end;
} hdi_memory_wait;

/* Begins to wait. */
hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt);

/* Something has been freed or finished. */
void hdi_memory_wait_moved(hdi_memory_wait *p);

/* Whether it is time to give up, and why (p->end). `quiet`: nothing is unfinished whose end could free anything. */
bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet);

/* Whether it has been waited for as long as it is in all, or the runtime is being closed. */
bool hdi_memory_wait_too_long(const hdi_memory_wait *p);

/* Sleeps until it makes sense to look again: a small part of the time without anything that moves. */
void hdi_memory_wait_sleep(const hdi_memory_wait *p);

/* Why it was given up, for a message: "nothing was freed or finished for 5 s (option memory_timeout)". "" where it was not waited. */
#define HDI_MEMORY_WAIT_TEXT 160
const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT]);

#endif
