/* share.c - mappings of one device's memory in the worker processes of its peers.
 *
 * Threads, locks, blocking, and guarantees: see share.h.
 */
#include <stdlib.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "engine/engine.h"
#include "memory/part.h"
#include "memory/share.h"

/* The range of an owner's memory in a peer's worker. */
typedef struct view {
    uint64_t at, bytes; /* bytes 0: none */
} view;

/* A view of memory whose owner was lost. */
typedef struct retired {
    struct retired *next;
    int peer;
    view view;
    size_t n_points; /* work of the peer that may use the memory */
    hdi_point points[];
} retired;

struct hdi_shares {
    hdi_mutex lock;
    view of[HDI_DEVICES_MAX][HDI_DEVICES_MAX]; /* [peer][owner] */
    retired *retired;
};

static hd_status shares_create(hd_runtime *rt)
{
    hdi_memory_of(rt)->shares = calloc(1, sizeof *hdi_memory_of(rt)->shares);
    if (!hdi_memory_of(rt)->shares) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&hdi_memory_of(rt)->shares->lock, HDI_RANK_SHARES);
    return HD_OK;
}

static void shares_release(hd_runtime *rt)
{
    struct hdi_shares *shares = hdi_memory_of(rt)->shares;
    if (!shares) {
        return;
    }
    while (shares->retired) {
        retired *r = shares->retired;
        shares->retired = r->next;
        free(r);
    }
    hdi_mutex_destroy(&shares->lock);
    free(shares);
    hdi_memory_of(rt)->shares = NULL;
}

const hdi_lifetime hdi_shares_lifetime = {.create = shares_create, .release = shares_release};

static view shares_get_view(struct hdi_shares *shares, int peer, int owner)
{
    hdi_mutex_lock(&shares->lock);
    view v = shares->of[peer][owner];
    hdi_mutex_unlock(&shares->lock);
    return v;
}

/* Reserves the owner's range in the peer's worker, once. The caller holds the owner's arena lock
 * `growing`, so no other thread makes the same view. */
static hdi_answer shares_open_view(const hdi_device *owner, hdi_device *peer)
{
    struct hdi_shares *shares = hdi_memory_of(owner->runtime)->shares;
    if (shares_get_view(shares, peer->index, owner->index).bytes) {
        return (hdi_answer){0, ""};
    }
    uint64_t at = 0;
    hdi_answer answer = peer->port->calls->reserve(peer->port, owner->range_at, owner->range_bytes, &at);
    if (hdi_answered(answer) && at != owner->range_at) {
        peer->port->calls->unreserve(peer->port, at, owner->range_bytes);
        /* The address is not free in that process. */
        return (hdi_answer){HDCU_ERROR_MAP_FAILED, "cuMemAddressReserve"};
    }
    if (hdi_answered(answer)) {
        hdi_mutex_lock(&shares->lock);
        shares->of[peer->index][owner->index] = (view){at, owner->range_bytes};
        hdi_mutex_unlock(&shares->lock);
    }
    return answer;
}

hdi_answer hdi_share(void *context, int peer_index, uint64_t at, uint64_t bytes)
{
    hdi_device *owner = context;
    hdi_device *peer = owner->runtime->devices[peer_index];
    hdi_shares_reap(owner->runtime);
    HDI_UNCANCELLED;
    int descriptor = -1;
    hdi_answer answer = owner->port->calls->export(owner->port, at, bytes, &descriptor);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = shares_open_view(owner, peer);
    if (hdi_answered(answer)) {
        answer = peer->port->calls->import(peer->port, descriptor, at, bytes);
    }
    close(descriptor);
    /* A lost peer is no failure of the owner: the peer gets everything again after its restart. */
    return hdi_driver_code_is_fatal(answer.code) ? (hdi_answer){0, ""} : answer;
}

void hdi_unshare(void *context, int peer_index, uint64_t at, uint64_t bytes)
{
    hdi_device *owner = context;
    hdi_device *peer = owner->runtime->devices[peer_index];
    peer->port->calls->unmap(peer->port, at, bytes);
}

/* Retires a view: it is unmapped when everything that was submitted to the peer so far is
 * finished. */
static void shares_retire_view(struct hdi_shares *shares, hdi_device *peer, view v)
{
    retired *r = malloc(sizeof *r + HDI_LANES_MAX * sizeof r->points[0]);
    if (!r) {
        /* without memory for the entry, the view stays mapped until the peer's worker ends */
        return;
    }
    *r = (retired){.peer = peer->index, .view = v};
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_point point = {(uint32_t)peer->index * HDI_LANES_MAX + i, hdi_lane_submitted(peer, i)};
        if (!hdi_point_done(peer->runtime, point)) {
            r->points[r->n_points++] = point;
        }
    }
    r->next = shares->retired;
    shares->retired = r;
}

void hdi_shares_retire(hd_runtime *rt, int device)
{
    struct hdi_shares *shares = hdi_memory_of(rt)->shares;
    hdi_mutex_lock(&shares->lock);
    for (retired **link = &shares->retired; *link;) {
        retired *r = *link;
        if (r->peer == device) {
            *link = r->next;
            free(r);
        } else {
            link = &r->next;
        }
    }
    for (int i = 0; i < rt->n_devices; i++) {
        shares->of[device][i] = (view){0, 0};
        if (shares->of[i][device].bytes) {
            shares_retire_view(shares, rt->devices[i], shares->of[i][device]);
            shares->of[i][device] = (view){0, 0};
        }
    }
    hdi_mutex_unlock(&shares->lock);
}

bool hdi_shares_reap(hd_runtime *rt)
{
    struct hdi_shares *shares = hdi_memory_of(rt)->shares;
    retired *unused = NULL;
    hdi_mutex_lock(&shares->lock);
    for (retired **link = &shares->retired; *link;) {
        retired *r = *link;
        bool busy = false;
        for (size_t i = 0; i < r->n_points && !busy; i++) {
            busy = !hdi_point_done(rt, r->points[i]);
        }
        if (busy) {
            link = &r->next;
        } else {
            *link = r->next;
            r->next = unused;
            unused = r;
        }
    }
    hdi_mutex_unlock(&shares->lock);
    bool any = unused != NULL;
    while (unused) {
        retired *r = unused;
        unused = r->next;
        hdi_port *port = rt->devices[r->peer]->port;
        port->calls->unreserve(port, r->view.at, r->view.bytes);
        free(r);
    }
    return any;
}
