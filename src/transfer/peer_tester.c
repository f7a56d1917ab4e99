/* peer_tester.c - see peer_tester.h. */
#include "transfer/peer_tester.h"

#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "buffer/buffer.h"
#include "peer/peers.h"

struct hdi_peer_tester {
    hdi_mutex lock;
    pthread_cond_t wish;
    bool started, stop;
    pthread_t thread;
    bool wanted[HDI_DEVICES_MAX][HDI_DEVICES_MAX]; /* by device and owner */
};

hd_status hdi_peer_tester_create(hd_runtime *rt)
{
    rt->peer_tester = calloc(1, sizeof *rt->peer_tester);
    if (!rt->peer_tester) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&rt->peer_tester->lock, HDI_RANK_PEER_TESTER);
    pthread_cond_init(&rt->peer_tester->wish, NULL);
    return HD_OK;
}

void hdi_peer_tester_stop(hd_runtime *rt)
{
    struct hdi_peer_tester *s = rt->peer_tester;
    if (!s) {
        return;
    }
    hdi_peers_end(rt);
    hdi_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->wish);
    bool join = s->started;
    s->started = false;
    hdi_mutex_unlock(&s->lock);
    if (join) {
        pthread_join(s->thread, NULL);
    }
}

void hdi_peer_tester_release(hd_runtime *rt)
{
    if (rt->peer_tester) {
        pthread_cond_destroy(&rt->peer_tester->wish);
        hdi_mutex_destroy(&rt->peer_tester->lock);
        free(rt->peer_tester);
        rt->peer_tester = NULL;
    }
}

/* Takes a pair out of the list. False: there is none. The lock is held. */
static bool take(struct hdi_peer_tester *s, int n, int *from, int *owner)
{
    for (int i = 0; i < n * n; i++) {
        if (s->wanted[i / n][i % n]) {
            *from = i / n;
            *owner = i % n;
            s->wanted[*from][*owner] = false;
            return true;
        }
    }
    return false;
}

static void *run(void *context)
{
    hd_runtime *rt = context;
    struct hdi_peer_tester *s = rt->peer_tester;
    hdi_mutex_lock(&s->lock);
    while (!s->stop) {
        int from, owner;
        if (take(s, rt->n_devices, &from, &owner)) {
            hdi_mutex_unlock(&s->lock);
            hdi_peer_access_settle(rt, from, owner);
            hdi_mutex_lock(&s->lock);
        } else {
            hdi_mutex_wait(&s->lock, &s->wish);
        }
    }
    hdi_mutex_unlock(&s->lock);
    return NULL;
}

bool hdi_peer_tester_ask(hd_runtime *rt, int from, int owner)
{
    struct hdi_peer_tester *s = rt->peer_tester;
    if (rt->is_inline) {
        return false; /* no thread may be started */
    }
    hdi_mutex_lock(&s->lock);
    if (!s->started && !s->stop) {
        s->started = hdi_thread_start(&s->thread, run, rt) == 0;
    }
    bool asked = s->started;
    if (asked) {
        s->wanted[from][owner] = true;
        pthread_cond_signal(&s->wish);
    }
    hdi_mutex_unlock(&s->lock);
    return asked;
}
