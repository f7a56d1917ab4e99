/* hook.c - see hook.h, also for threads and locks. */
#include "buffer/hook.h"

#include <stdlib.h>

void hdi_hook_init(hdi_hook *hook, void (*changed)(void *owner, bool there), void *owner)
{
    hdi_mutex_init(&hook->lock, HDI_RANK_HOOK);
    pthread_cond_init(&hook->ended, NULL);
    hook->current = NULL;
    hook->changed = changed;
    hook->owner = owner;
}

void hdi_hook_destroy(hdi_hook *hook)
{
    free(hook->current);
    pthread_cond_destroy(&hook->ended);
    hdi_mutex_destroy(&hook->lock);
}

bool hdi_hook_install(hdi_hook *hook, hdi_hooked function, void *context)
{
    hdi_installed *next = function ? malloc(sizeof *next) : NULL;
    if (function && !next) {
        return false;
    }
    if (next) {
        *next = (hdi_installed){function, context, 0};
    }
    hdi_mutex_lock(&hook->lock);
    hdi_installed *before = hook->current;
    hook->current = next; /* no thread enters the one before from here on */
    if (hook->changed) {
        hook->changed(hook->owner, function != NULL);
    }
    while (before && before->calls != 0) {
        hdi_mutex_wait(&hook->lock, &hook->ended);
    }
    hdi_mutex_unlock(&hook->lock);
    free(before);
    return true;
}

hdi_installed *hdi_hook_enter(hdi_hook *hook)
{
    hdi_mutex_lock(&hook->lock);
    hdi_installed *now = hook->current;
    if (now) {
        now->calls++;
    }
    hdi_mutex_unlock(&hook->lock);
    return now;
}

void hdi_hook_leave(hdi_hook *hook, hdi_installed *called)
{
    hdi_mutex_lock(&hook->lock);
    if (--called->calls == 0 && called != hook->current) {
        pthread_cond_broadcast(&hook->ended);
    }
    hdi_mutex_unlock(&hook->lock);
}
