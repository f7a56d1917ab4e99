/* hook.h - a callback of the program's that can be replaced while other threads call it.
 *
 * Threads: any. Locks: the hook's mutex, not held during a call. Blocking: hdi_hook_install, until no call of the callback before is
 * under way. Always: after that returned, what the callback before needs may go.
 */
#ifndef HDI_BUFFER_HOOK_H
#define HDI_BUFFER_HOOK_H

#include <pthread.h>
#include <stdbool.h>
#include "base/lock.h"

typedef void (*hdi_hooked)(void); /* cast to what it is */

typedef struct hdi_installed {
    hdi_hooked function;
    void *context;
    int calls; /* under way */
} hdi_installed;

typedef struct hdi_hook {
    hdi_mutex lock;
    pthread_cond_t ended;                     /* the last call of a callback that was replaced */
    hdi_installed *current;                   /* NULL: none */
    void (*changed)(void *owner, bool there); /* under the lock; may be NULL */
    void *owner;
} hdi_hook;

void hdi_hook_init(hdi_hook *hook, void (*changed)(void *owner, bool there), void *owner);
void hdi_hook_destroy(hdi_hook *hook);

/* NULL: none from here on. False: no host memory, nothing has changed. */
bool hdi_hook_install(hdi_hook *hook, hdi_hooked function, void *context);

/* What to call, NULL: nothing. To be ended with hdi_hook_leave. */
hdi_installed *hdi_hook_enter(hdi_hook *hook);
void hdi_hook_leave(hdi_hook *hook, hdi_installed *called);

#endif
