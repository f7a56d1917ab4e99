/* spare.c - workers in reserve: processes that have started the driver, which is what takes longest, and drive no device yet.
 *
 * Threads: the watcher starts them and notices their end; a restart takes one. Locks: the workers' mutex.
 * Always: a spare is never needed. One that ends is replaced, but after a few ends in a row no more. One that is of no use when it is
 * taken makes way for a fresh process.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/wait.h"
#include "worker/children.h"
#include "worker/message.h"

#define END_NS 5000000000 /* for the process before */
#define LATER_NS                                                                                                       \
    2000000000 /* after hd_open or a restart: what begins then is not to share the driver with a spare that starts */
#define GONE_MOST 3 /* in a row: then something is wrong that another one will not mend */

static hdi_child *spare_at(hdi_workers *workers, int i)
{
    return &workers->of[HDI_DEVICES_MAX + i];
}

hd_status hdi_spares_want(hd_runtime *rt)
{
    hdi_workers *workers = rt->workers;
    struct hdi_message *request = NULL;
    if (!workers || rt->options.spare_workers == 0) {
        return HD_OK;
    }
    hdi_mutex_lock(&workers->lock);
    bool known = workers->spare_request != NULL;
    hdi_mutex_unlock(&workers->lock);
    hd_status status = known ? HD_OK : hdi_worker_make_request(rt, rt->provider->name, &request);
    hdi_mutex_lock(&workers->lock);
    workers->spare_request = known ? workers->spare_request : request;
    workers->spares_held = false;
    workers->spares_gone = 0;
    workers->spares_from = hdi_clock_ns() + LATER_NS;
    hdi_watcher_wake(workers);
    hdi_mutex_unlock(&workers->lock);
    return status;
}

void hdi_spares_hold(hd_runtime *rt)
{
    hdi_mutex_lock(&rt->workers->lock);
    rt->workers->spares_held = true;
    hdi_mutex_unlock(&rt->workers->lock);
}

/* After any failure there is no spare, and no error is reported. */
static void start(hdi_workers *workers, int index)
{
    hdi_child *c = &workers->of[index];
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool started = hdi_child_make_sockets(c) == HD_OK;
    hdi_attempt_end(&attempt);
    if (!started) {
        workers->spares_gone = GONE_MOST;
        return;
    }
    hdi_child_spawn(workers, index);
    if (c->state == HDI_CHILD_FRESH) { /* else it is not reported, and seen to be gone */
        size_t bytes = hdi_message_bytes(HDI_MESSAGE_DISCOVER);
        hdi_wire_send(c->ours[0], workers->spare_request, bytes, NULL, 0, hdi_clock_ns());
        c->asked = true;
    }
}

void hdi_spares_watch(hdi_workers *workers)
{
    if (!workers->spare_request || workers->closing) {
        return;
    }
    bool now = !workers->spares_held && hdi_clock_ns() >= workers->spares_from;
    for (int i = 0; i < workers->rt->options.spare_workers; i++) {
        hdi_child *c = spare_at(workers, i);
        if (c->state == HDI_CHILD_NONE && hdi_child_is_begun(c)) {
            hdi_child_disconnect(c);
            workers->spares_gone++;
        }
        if (c->state == HDI_CHILD_NONE && now && workers->spares_gone < GONE_MOST) {
            start(workers, HDI_DEVICES_MAX + i);
        }
    }
}

bool hdi_spare_take(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    hdi_child *into = &workers->of[index];
    bool taken = false;
    hdi_mutex_lock(&workers->lock);
    /* as in hdi_worker_spawn, which fails with a message if it does not end */
    bool room = workers->spare_request && hdi_child_await_none(workers, into, hdi_deadline(END_NS));
    for (int i = 0; i < HDI_SPARES_MAX && !taken && room; i++) {
        hdi_child *c = spare_at(workers, i);
        if (c->state == HDI_CHILD_FRESH && !c->killed && !c->stopped_at) {
            *into = *c;
            *c = (hdi_child){.process = {.pidfd = -1}, .ours = {-1, -1}, .theirs = {-1, -1}};
            taken = true;
        }
    }
    if (taken) {
        hdi_watcher_wake(workers); /* to watch it in its new place */
    }
    hdi_mutex_unlock(&workers->lock);
    return taken;
}
