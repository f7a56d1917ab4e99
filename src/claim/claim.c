/* claim.c - claims: uses of buffers by the program itself. The program begins a claim, waits for
 * the bytes, and ends the claim. See heddle/claim.h.
 *
 * A claim is one command of two slots in a lane of the library (src/engine/channel.h).
 * If a claim waits for nothing, the program gets the bytes when the submission returns. Then the
 * engine learns of the claim only at its end, or not at all.
 *
 * Threads: any.
 * Locks: one for each device's pool of claims, held for some nanoseconds. The submission takes
 * order locks.
 * Blocking: hd_claim_wait blocks. A thread that takes a claim from the pool may call the driver to
 * make a lane. If no more lanes can be made, the thread waits until a claim ends.
 * Always:
 * - If two threads end the same claim, Heddle refuses one of the two calls. A claim's handle
 *   becomes stale before the next claim can use the lane.
 * - If the program gets the bytes at once, this is recorded in the lane before the program can use
 *   them. So a loss of the device does not end such a claim.
 */
#include "claim/claim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"
#include "engine/engine.h"
#include "engine/suspects.h"

enum {
    EVENTS_MOST = 64,
    CLAIMS_MOST = 160, /* the most claims of a device; other lanes are left for the program */
    /* This many claims of the list from `first` on are checked each time a claim is taken. So
     * claims that are over do not pile up there. */
    SETTLED_MOST = 2,
    /* how many open claims the message of hd_close names at most, and the bytes for their names */
    NAMED_MOST = 3,
    NAMES_BYTES = 190
};

typedef struct pool {
    hdi_lock lock;
    /* The claims that are not in use. `over` lists the claims whose work is over. The claim that
     * ended last comes first: its memory is probably in the cache. Also, fewer lanes stay active.
     * The list from `first` to `last` contains claims whose work may not be over, in the order of
     * their ends. */
    struct hd_claim *over, *first, *last;
    uint32_t made; /* the number of claims, each with a lane */
    uint32_t n_events;
    /* the id of the stream that was last found to belong to this device; 0: none */
    _Atomic uint64_t stream_id;
    /* spare events for streams of the program; events beyond EVENTS_MOST are destroyed */
    hdcu_event events[EVENTS_MOST];
} pool;

struct hdi_claims {
    pool of[HDI_DEVICES_MAX];
};

/* ---- the pool ---- */

static hd_status claims_create(hd_runtime *rt)
{
    struct hdi_claims *claims = calloc(1, sizeof *claims);
    if (!claims) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_lock_init(&claims->of[i].lock, HDI_RANKED(HDI_RANK_CLAIMS, 0));
    }
    hdi_claim_of(rt)->claims = claims;
    return HD_OK;
}

/* The claim that a lane belongs to; NULL: none. */
static struct hd_claim *claim_of_lane(const hdi_device *device, uint32_t number)
{
    const hd_lane *lane = hdi_lane_at(device, number);
    return lane ? lane->claim : NULL;
}

static void claims_close(hd_runtime *rt)
{
    for (int d = 0; d < rt->n_devices; d++) {
        pool *p = &hdi_claim_of(rt)->claims->of[d];
        hdi_lock_take(&p->lock);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            struct hd_claim *c = rt->devices[d] ? claim_of_lane(rt->devices[d], i) : NULL;
            if (c) {
                hdi_handle_close(&c->head);
            }
        }
        hdi_lock_release(&p->lock);
    }
}

static void claims_release(hd_runtime *rt)
{
    for (int d = 0; d < rt->n_devices; d++) {
        for (uint32_t i = 0; rt->devices[d] && i < HDI_LANES_MAX; i++) {
            struct hd_claim *c = claim_of_lane(rt->devices[d], i);
            if (c && c->event && hdi_driver_is_usable(rt)) {
                rt->driver->cuEventDestroy(c->event);
            }
            if (c && c->pointers != c->near) {
                free(c->pointers);
            }
            if (c) {
                free(c->aliases);
            }
        }
        pool *p = &hdi_claim_of(rt)->claims->of[d];
        for (uint32_t i = 0; i < p->n_events && hdi_driver_is_usable(rt); i++) {
            rt->driver->cuEventDestroy(p->events[i]);
        }
    }
    free(hdi_claim_of(rt)->claims);
    hdi_claim_of(rt)->claims = NULL;
}

const hdi_lifetime hdi_claims_lifetime = {.create = claims_create, .close = claims_close, .release = claims_release};

static pool *claim_pool_of(const struct hd_claim *c)
{
    return &hdi_claim_of(c->runtime)->claims->of[c->lane->device->index];
}

hdcu_event hdi_claim_event_take(hd_runtime *rt, int device)
{
    pool *p = &hdi_claim_of(rt)->claims->of[device];
    hdi_lock_take(&p->lock);
    hdcu_event event = p->n_events ? p->events[--p->n_events] : NULL;
    hdi_lock_release(&p->lock);
    return event;
}

void hdi_claim_event_give(hd_runtime *rt, int device, hdcu_event event)
{
    pool *p = &hdi_claim_of(rt)->claims->of[device];
    hdi_lock_take(&p->lock);
    bool kept = p->n_events < EVENTS_MOST;
    if (kept) {
        p->events[p->n_events++] = event;
    }
    hdi_lock_release(&p->lock);
    if (!kept) {
        rt->driver->cuEventDestroy(event);
    }
}

bool hdi_claim_stream_is_checked(const hdi_device *device, uint64_t id)
{
    const pool *p = &hdi_claim_of(device->runtime)->claims->of[device->index];
    return id && atomic_load_explicit(&p->stream_id, memory_order_relaxed) == id;
}

void hdi_claim_stream_set_checked(const hdi_device *device, uint64_t id)
{
    atomic_store_explicit(&hdi_claim_of(device->runtime)->claims->of[device->index].stream_id, id,
                          memory_order_relaxed);
}

static bool claim_work_is_over(const struct hd_claim *c)
{
    /* If a thread ended the claim without the engine (hdi_claim_end_unseen), it stores `head` last.
     * So this function checks `head`, and not only `done`. */
    return hdi_claim_is_over(c->lane, c->end) ||
           (atomic_load_explicit(&c->lane->shared->head, memory_order_acquire) >= c->end &&
            hdi_point_done(c->runtime, (hdi_point){c->lane->global, c->end}));
}

static inline bool claim_is_ready(const struct hd_claim *c)
{
    /* pairs with the engine's store of `done`, so that the results of the work are visible */
    return c->at_once || atomic_load_explicit(&c->lane->shared->done, memory_order_acquire) >= c->ready;
}

/* Takes the first claim from the list of claims whose work may not be over. The pool's lock is
 * held. */
static struct hd_claim *claim_pool_shift(pool *p)
{
    struct hd_claim *c = p->first;
    if (c) {
        p->first = c->next;
        p->last = p->first ? p->last : NULL;
    }
    return c;
}

/* The pool's lock is held. */
static struct hd_claim *claim_pool_choose(pool *p, bool done)
{
    for (int i = 0; i < SETTLED_MOST && p->first && claim_work_is_over(p->first); i++) {
        struct hd_claim *c = claim_pool_shift(p);
        c->next = p->over;
        p->over = c;
    }
    struct hd_claim *c = p->over;
    if (c && (!done || claim_work_is_over(c))) { /* another thread may still be ending the claim */
        p->over = c->next;
        return c;
    }
    return done ? NULL : claim_pool_shift(p);
}

/* Takes a claim from the pool; NULL: no claim is left, or with `done` no claim is over. Makes the
 * claim's next handle good, unless hd_close made all handles stale. This happens here, since this
 * function holds the lock anyway. To take a lock after the submission would mean to wait for the
 * submission's stores. */
static struct hd_claim *claim_pool_take(pool *p, bool done)
{
    hdi_lock_take(&p->lock);
    struct hd_claim *c = claim_pool_choose(p, done);
    if (c) {
        hdi_handle_begin(c->runtime, &c->head, HDI_CLAIM_MAGIC);
    }
    hdi_lock_release(&p->lock);
    return c;
}

/* `over`: the claim is over with this call. The pool's lock is held. */
static void claim_pool_put(pool *p, struct hd_claim *c, bool over)
{
    if (over) {
        c->next = p->over;
        p->over = c;
        return;
    }
    c->next = NULL;
    if (p->last) {
        p->last->next = c;
    } else {
        p->first = c;
    }
    p->last = c;
}

/* Counts one more claim. False: no further claim fits on the device. */
static bool claim_pool_may_make(pool *p)
{
    hdi_lock_take(&p->lock);
    bool may = p->made < CLAIMS_MOST;
    p->made += may;
    hdi_lock_release(&p->lock);
    return may;
}

static hd_status claim_make(hd_runtime *rt, int device, struct hd_claim **out)
{
    hd_lane *lane;
    hd_status status = hdi_lane_make(rt->devices[device], false, false, &lane);
    if (status) {
        return status;
    }
    /* Take the memory only after the lane is made. Stable memory is never given back, so a later
     * failure would waste it. */
    struct hd_claim *c = hdi_stable_take(rt->stable, sizeof *c);
    if (!c) {
        hd_lane_destroy(hdi_lane_handle(lane));
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a claim");
    }
    /* never changes: a thread with an earlier handle of this structure may read it */
    c->runtime = rt;
    c->lane = lane;
    c->pointers = c->near;
    c->end = lane->head;
    hdi_handle_set(&c->head, HDI_CLAIM_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
    hdi_lock_take(&lane->device->order);
    /* If the lane's handle is not live, hd_close is ending handles. Then the lane may already
     * belong to another thread. */
    bool live = hdi_handle_head_live(&lane->handle);
    if (live) {
        lane->is_copy = true;
        lane->claim = c;
        /* make the lane's handle stale, so that tickets can name the lane, but the program cannot
         * submit to it */
        hdi_handle_end(&lane->handle, HDI_LANE_MAGIC);
    }
    hdi_lock_release(&lane->device->order);
    if (!live) {
        return hdi_closed_meanwhile();
    }
    pool *p = claim_pool_of(c);
    /* hd_close finds the claim through the lane, and ends this handle */
    hdi_lock_take(&p->lock);
    hdi_handle_begin(rt, &c->head, HDI_CLAIM_MAGIC);
    hdi_lock_release(&p->lock);
    *out = c;
    return HD_OK;
}

/* Takes a claim that ended, but whose lane contains unfinished work, and waits for that work.
 * `status`: the reason why no other claim is available. */
static hd_status claim_take_late(hd_runtime *rt, int device, hd_status status, struct hd_claim **out)
{
    pool *p = &hdi_claim_of(rt)->claims->of[device];
    struct hd_claim *c = status == HD_ERROR_LIMIT ? claim_pool_take(p, false) : NULL;
    if (!c) {
        return status == HD_ERROR_LIMIT ? hdi_fail(status,
                                                   "no lane of device %d is left for a claim (claims get at most %d); "
                                                   "end some claims, or destroy lanes",
                                                   device, CLAIMS_MOST)
                                        : status;
    }
    if (!hdi_wait_position(rt, c->lane->global, c->end, hdi_option_deadline(rt->options.submit_timeout))) {
        hdi_claim_give(c);
        return hdi_not_done(rt, c->lane->global, c->end, "no lane is free for a claim (option submit_timeout)");
    }
    while (!claim_work_is_over(c)) {
        hdi_spin_turn(); /* the thread that ends the claim has not made its last store yet */
    }
    *out = c;
    return HD_OK;
}

hd_status hdi_claim_take(hd_runtime *rt, int device, struct hd_claim **out)
{
    struct hd_claim *c = claim_pool_take(&hdi_claim_of(rt)->claims->of[device], true);
    if (c) {
        *out = c;
        return HD_OK;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    pool *p = &hdi_claim_of(rt)->claims->of[device];
    hd_status status = HD_ERROR_LIMIT;
    if (claim_pool_may_make(p)) {
        status = claim_make(rt, device, &c);
        if (status) {
            hdi_lock_take(&p->lock);
            p->made--;
            hdi_lock_release(&p->lock);
        }
    }
    status = status ? claim_take_late(rt, device, status, &c) : HD_OK;
    hdi_attempt_result(&attempt, status);
    if (!status) {
        *out = c;
    }
    return status;
}

void hdi_claim_give(struct hd_claim *c)
{
    pool *p = claim_pool_of(c);
    hdi_lock_take(&p->lock);
    claim_pool_put(p, c, claim_work_is_over(c));
    hdi_lock_release(&p->lock);
}

/* ---- begin ---- */

/* Notes the host addresses of the bytes. */
static hd_status claim_note_pointers(struct hd_claim *c, const hdi_use *uses, size_t n_uses)
{
    if (n_uses > HDI_POINTERS_NEAR && c->pointers == c->near) {
        /* later claims in this lane use the array again */
        void **pointers = malloc(HDI_USES_OF_ONE * sizeof *pointers);
        if (!pointers) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a claim");
        }
        c->pointers = pointers;
    }
    HDI_HANDOVER_BEGIN();
    for (size_t i = 0; i < n_uses; i++) {
        unsigned char *host = uses[i].host ? uses[i].buffer->host : NULL;
        c->pointers[i] = host ? host + uses[i].low : NULL;
    }
    c->n_uses = (uint32_t)n_uses;
    HDI_HANDOVER_END();
    return HD_OK;
}

/* True if no other command stands between the position `before` of the lane and the claim. The gap
 * at the ring's end does not count. */
static bool claim_stands_behind(const struct hd_claim *c, uint64_t before)
{
    uint64_t between = c->end - HDI_CLAIM_SLOTS - before;
    return between == 0 || (between == 1 && c->lane->ring[before & c->lane->mask].op == HDI_OP_SKIP);
}

/* The claim waits for nothing: the program may use the bytes from now on. A loss that is noticed
 * from now on does not end the claim. False: perhaps a loss was noticed before, and ended the
 * claim. */
static bool claim_hold_at_once(struct hd_claim *c)
{
    hdi_claim_hold(c->lane, c->end);
    hdi_claim_fence(); /* pairs with the barrier in hdi_lane_reach */
    return !hdi_device_lost(c->lane->device);
}

static inline __attribute__((always_inline)) hd_status claim_submit_as(struct hd_claim *c, const hdi_use *uses,
                                                                       size_t n_uses, const hdi_claim_begun *how)
{
    hd_status status = claim_note_pointers(c, uses, n_uses);
    uint64_t before = c->lane->head; /* all work of the lane in front of the claim is over */
    _Atomic uint64_t *begun = &c->lane->claim_begun;
    uint64_t begun_before = atomic_load_explicit(begun, memory_order_relaxed);
    hdi_command command[HDI_CLAIM_SLOTS] = {
        {.op = HDI_OP_CLAIM, .slots = HDI_CLAIM_SLOTS, .kind = how->on_stream ? HDI_CLAIM_ON_STREAM : 0},
        {.op = HDI_OP_CLAIMED, .slots = 1},
    };
    hd_ticket ticket;
    hdi_link_of_claim own = {.undo = how->undo};
    hdi_outcome_note_claim(c->lane, how->label, how->site);
    atomic_store_explicit(&c->lane->claim_on_stream, how->on_stream, memory_order_relaxed);
    /* The claim counts as open from here on. During the submission, a guarded buffer that another
     * thread freed may end. The thread that ends the buffer must see that a claim is open, so that
     * it does not wait for the claim (guard.c). */
    atomic_store_explicit(begun, before + 1, memory_order_relaxed);
    const hdi_linked link = {.claim = &own};
    status = status ? status : hdi_submit_claim(c->lane, uses, n_uses, command, link, &ticket);
    if (status) {
        if (how->undo) {
            hdi_undo_drop(how->undo);
        }
        atomic_store_explicit(begun, begun_before, memory_order_relaxed);
        hdi_claim_aliases_end(c);
        hdi_claim_give(c);
        return status;
    }
    HDI_HANDOVER_BEGIN();
    c->end = ticket.sequence;
    atomic_store_explicit(begun, c->end, memory_order_relaxed);
    c->ready = c->end - 1;
    c->at_once = own.quiet && claim_stands_behind(c, before) && claim_hold_at_once(c);
    c->asked = false;
    c->on_stream = false;
    HDI_HANDOVER_END();
    if (own.quiet && !c->at_once) {
        hdi_claim_notify(c->lane, c->end);
    }
    return HD_OK;
}

hd_status hdi_claim_submit(struct hd_claim *c, const hdi_use *uses, size_t n_uses, const hdi_claim_begun *how)
{
    return claim_submit_as(c, uses, n_uses, how);
}

hd_status hdi_claim_give_out(struct hd_claim *c, hd_claim **out)
{
    uint16_t generation = hdi_handle_head_generation(&c->head);
    hdi_claim_fence(); /* the claim counts as open; pairs with the barrier in hdi_callers_settle */
    bool late = atomic_load_explicit(&c->runtime->claims_ended, memory_order_relaxed);
    if (!hdi_handle_head_live(&c->head) || (late && hdi_calling_here == HDI_CALLS_NONE)) {
        hdi_claim_finish(c, HD_OK); /* the program never got the bytes, so they are unchanged */
        return hdi_closed_meanwhile();
    }
    *out = hdi_handle_make(c, generation);
    return HD_OK;
}

/* The device whose lane a claim takes: the owner of the first device buffer among the claim's uses;
 * -1: no use is of device memory. */
static int claim_device_of(const hd_runtime *rt, const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        int owner = uses[i].buffer->owner;
        if (owner >= 0 && owner < rt->n_devices) {
            return owner;
        }
    }
    return -1;
}

/* Takes a claim on the first device that is not lost and that still offers a lane. */
static hd_status claim_take_anywhere(hd_runtime *rt, struct hd_claim **out)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    int any = hdi_any_device(rt)->index;
    hd_status status = hdi_claim_take(rt, any, out);
    for (int i = any + 1; i < rt->n_devices && status == HD_ERROR_LIMIT; i++) {
        status = hdi_device_lost(rt->devices[i]) ? status : hdi_claim_take(rt, i, out);
    }
    return hdi_attempt_result(&attempt, status);
}

/* `named`: the program passed the runtime, so once hd_close began, threads of the program are
 * refused. */
static inline __attribute__((always_inline)) hd_status
claim_prepare_as(hd_runtime *rt, const hd_arg *args, size_t n_args, bool named, hdi_use *uses, struct hd_claim **out)
{
    hd_status status = hdi_uses_of_runtime(rt, -1, args, n_args, uses);
    if (!status && named && hdi_runtime_close_began(rt) && !hdi_runtime_is_open(rt)) {
        return hdi_fail_pass(hdi_runtime_refused(rt));
    }
    int device = status ? -1 : claim_device_of(rt, uses, n_args);
    return status ? status : device < 0 ? claim_take_anywhere(rt, out) : hdi_claim_take(rt, device, out);
}

hd_status hdi_claim_prepare(hd_runtime *rt, const hd_arg *args, size_t n_args, hdi_use *uses, struct hd_claim **out)
{
    return claim_prepare_as(rt, args, n_args, false, uses, out);
}

static inline __attribute__((always_inline)) hd_status claim_begin_as(hd_runtime *rt, const hd_arg *args, size_t n_args,
                                                                      bool named, const hdi_claim_begun *how,
                                                                      struct hd_claim **out)
{
    hdi_use uses[HDI_USES_OF_ONE];
    struct hd_claim *c;
    hd_status status = claim_prepare_as(rt, args, n_args, named, uses, &c);
    status = status ? status : claim_submit_as(c, uses, n_args, how);
    if (!status) {
        *out = c;
    }
    return status;
}

hd_status hdi_claim_begin(hd_runtime *rt, const hd_arg *uses, size_t n_uses, const hdi_claim_begun *how,
                          struct hd_claim **out)
{
    return claim_begin_as(rt, uses, n_uses, false, how, out);
}

/* Begins a claim with aliases (copy.c). The aliases exist before the claim is submitted. So a lack
 * of memory leaves no claim. */
static hd_status claim_begin_with_copies(hd_runtime *rt, const hd_arg *args, size_t n_args, const hdi_claim_begun *how,
                                         struct hd_claim **out)
{
    hdi_use uses[HDI_USES_OF_ONE];
    struct hd_claim *c;
    hd_status status = claim_prepare_as(rt, args, n_args, true, uses, &c);
    if (status) {
        return status;
    }
    status = hdi_claim_aliases_make(c, uses, n_args);
    if (status) {
        hdi_claim_give(c);
        return status;
    }
    status = claim_submit_as(c, uses, n_args, how);
    if (!status) {
        *out = c;
    }
    return status;
}

static hd_status claim_begin_call(hd_runtime *rt, const hd_arg *uses, size_t n_uses, const hd_claim_options *options,
                                  const void *site, hd_claim **out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_claim_options room;
    if (options && !(options = HDI_SIZED_IN(hd_claim_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    const hdi_claim_begun how = {.label = options ? options->label : NULL, .site = site};
    struct hd_claim *c = NULL;
    hd_status status = options && options->copies ? claim_begin_with_copies(rt, uses, n_uses, &how, &c)
                                                  : claim_begin_as(rt, uses, n_uses, true, &how, &c);
    return status ? status : hdi_claim_give_out(c, out);
}

hd_status hd_claim_begin(hd_runtime *rt, const hd_arg *uses, size_t n_uses, hd_claim **out)
{
    HDI_INSIDE_OFTEN(rt);
    return claim_begin_call(rt, uses, n_uses, NULL, __builtin_return_address(0), out);
}

hd_status hd_claim_begin_with(hd_runtime *rt, const hd_arg *uses, size_t n_uses, const hd_claim_options *options,
                              hd_claim **out)
{
    HDI_INSIDE_OFTEN(rt);
    return claim_begin_call(rt, uses, n_uses, options, __builtin_return_address(0), out);
}

/* ---- in between ---- */

struct hd_claim *hdi_claim_from_handle(const hd_claim *handle)
{
    struct hd_claim *c = hdi_handle_object(handle);
    return c && hdi_handle_fits(handle, &c->head, HDI_CLAIM_MAGIC) ? c : NULL;
}

hd_status hdi_claim_refused(const hd_claim *handle)
{
    return hdi_handle_refused(handle, "claim", "it was ended");
}

hd_status hdi_claim_status(const struct hd_claim *c)
{
    return hdi_position_status(c->runtime, c->lane->global, c->end);
}

bool hd_claim_ready(const hd_claim *handle)
{
    HDI_INSIDE_QUERY(hdi_claim_runtime(handle));
    const struct hd_claim *c = hdi_claim_from_handle(handle);
    return !c || claim_is_ready(c);
}

hd_status hdi_claim_await(struct hd_claim *c, int64_t timeout_ns)
{
    if (c->at_once && !hdi_device_lost(c->lane->device)) {
        return HD_OK;
    }
    hd_runtime *rt = c->runtime;
    uint32_t lane = c->lane->global;
    uint64_t ready = c->ready;
    if (!c->at_once && !hdi_wait_position_at_leisure(rt, lane, ready, hdi_limit_deadline(timeout_ns))) {
        if (timeout_ns < HD_FOREVER) {
            return hdi_limit_refused(timeout_ns);
        }
        return hdi_not_done(rt, lane, timeout_ns ? ready : 0, "the claim is not ready after %lld ns",
                            (long long)timeout_ns);
    }
    return hdi_claim_status(c);
}

hd_status hd_claim_wait(hd_claim *handle, int64_t timeout_ns)
{
    HDI_INSIDE_OFTEN(hdi_claim_runtime(handle));
    struct hd_claim *c = hdi_claim_from_handle(handle);
    if (!c) {
        return hdi_claim_refused(handle);
    }
    if (c->at_once && !hdi_device_lost(c->lane->device)) {
        return HD_OK;
    }
    hd_status status = hdi_claim_await(c, timeout_ns);
    return status == HD_ERROR_TIMEOUT || hdi_claim_from_handle(handle) ? status : hdi_claim_refused(handle);
}

hd_status hd_claim_get_pointer(hd_claim *handle, size_t index, void **out)
{
    HDI_INSIDE_OFTEN(hdi_claim_runtime(handle));
    struct hd_claim *c = hdi_claim_from_handle(handle);
    if (!c) {
        return hdi_claim_refused(handle);
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    if (index >= c->n_uses) {
        return hdi_fail(HD_ERROR_RANGE, "use %zu of a claim of %u", index, (unsigned)c->n_uses);
    }
    void *pointer = c->pointers[index];
    if (!pointer) {
        return hdi_fail(HD_ERROR_ACCESS,
                        "use %zu is memory of a device, which the CPU cannot use; hd_buffer_address has its address",
                        index);
    }
    *out = pointer;
    return HD_OK;
}

hd_status hd_claim_get_ticket(hd_claim *handle, hd_ticket *out)
{
    HDI_INSIDE_OFTEN(hdi_claim_runtime(handle));
    struct hd_claim *c = hdi_claim_from_handle(handle);
    if (!c) {
        return hdi_claim_refused(handle);
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    *out = (hd_ticket){hdi_lane_handle(c->lane), c->end};
    return HD_OK;
}

/* ---- end ---- */

bool hdi_claim_ask(struct hd_claim *c)
{
    hdi_lock_take(&claim_pool_of(c)->lock);
    bool first = !c->asked;
    c->asked = true;
    hdi_lock_release(&claim_pool_of(c)->lock);
    return first;
}

/* Makes the handle stale, and gives the claim back if its handles are not used up. No thread takes
 * the claim again before the claim is over. False: another thread made the handle stale. */
static bool claim_end_handle(pool *p, const hd_claim *handle, struct hd_claim *c, hd_status outcome, bool *given)
{
    hdi_lock_take(&p->lock);
    bool ours = hdi_claim_from_handle(handle) == c;
    *given = ours && hdi_handle_end(&c->head, HDI_CLAIM_MAGIC);
    if (*given) {
        claim_pool_put(p, c, c->at_once && !c->on_stream && !outcome);
    }
    hdi_lock_release(&p->lock);
    return ours;
}

/* Gives a claim back. If its structure used up its handles, the claim's lane gets another
 * structure. Without memory for that, the lane is not used again. */
static void claim_give_back(struct hd_claim *c)
{
    if (hdi_handle_head_generation(&c->head) == 0) {
        struct hd_claim *fresh = hdi_stable_take(c->runtime->stable, sizeof *fresh);
        if (!fresh) {
            return;
        }
        fresh->runtime = c->runtime;
        fresh->lane = c->lane;
        fresh->end = c->end;
        fresh->event = c->event;
        fresh->pointers = fresh->near;
        fresh->aliases = c->aliases; /* a late reader of `c` may still read this memory */
        if (c->pointers != c->near) {
            free(c->pointers);
        }
        c->lane->claim = fresh;
        hdi_handle_set(&fresh->head, HDI_CLAIM_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
        c = fresh;
    }
    hdi_claim_give(c);
}

/* Ends a claim with the help of the engine. This is needed if the engine may have seen the claim,
 * or if the claim is on a stream. */
static __attribute__((noinline)) hd_status claim_finish_in_lane(struct hd_claim *c, hd_status outcome,
                                                                const char *reason, bool surely)
{
    hdi_claim_ending how = {.ready = claim_is_ready(c)};
    hd_status status = c->on_stream ? hdi_claim_record_end(c, &how.event, &how.late) : HD_OK;
    status = how.late && surely ? HD_OK : status;
    outcome = outcome ? outcome : status;
    how.outcome = outcome ? hdi_outcome_of_claim(c->lane, outcome, reason) : 0;
    hdi_claim_end_lane(c->lane, c->end, &how);
    return status;
}

/* Ends a claim whose handles are stale. `surely`: the claim ends with success in any case. If its
 * stream is being captured, the claim ends after the capture. */
static inline hd_status claim_finish_as(struct hd_claim *c, hd_status outcome, const char *reason, bool given,
                                        bool surely)
{
    bool plain = !c->on_stream && !outcome && claim_is_ready(c);
    hd_status status =
        plain && hdi_claim_end_unseen(c->lane, c->end) ? HD_OK : claim_finish_in_lane(c, outcome, reason, surely);
    if (!given) {
        claim_give_back(c);
    }
    return status;
}

hd_status hdi_claim_finish(struct hd_claim *c, hd_status outcome)
{
    hdi_claim_aliases_end(c);
    return claim_finish_as(c, outcome, NULL, false, false);
}

void hdi_claim_withdraw(struct hd_claim *c, hdi_undo *undo)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool undone = hdi_undo_withdraw(c->runtime, undo, (hdi_point){c->lane->global, c->end});
    c->on_stream = false; /* the program cannot have put work into the stream for this claim */
    hdi_claim_finish(c, undone ? HD_OK : HD_ERROR_HOST_MEMORY);
    hdi_attempt_end(&attempt);
}

static inline hd_status claim_end_as(hd_claim *handle, hd_status outcome, const char *reason, bool surely)
{
    struct hd_claim *c = hdi_claim_from_handle(handle);
    bool given, copies = c && atomic_load_explicit(&c->n_aliases, memory_order_relaxed) != 0;
    if (__builtin_expect(copies, 0) && !surely) {
        hd_status status = hdi_claim_aliases_await(c, handle);
        if (status) {
            return status; /* the claim stays open */
        }
    }
    if (!c || !claim_end_handle(claim_pool_of(c), handle, c, outcome, &given)) {
        return hdi_claim_refused(handle);
    }
    if (__builtin_expect(copies, 0)) {
        hdi_claim_aliases_end(c);
    }
    return claim_finish_as(c, outcome, reason, given, surely);
}

hd_status hd_claim_end(hd_claim *handle, hd_status outcome)
{
    HDI_INSIDE_OFTEN(hdi_claim_runtime(handle));
    if (__builtin_expect(outcome != HD_OK, 0) && !hdi_status_is_known(outcome)) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "outcome %d is no status; end the claim with HD_OK, or with a status below 0", (int)outcome);
    }
    return claim_end_as(handle, outcome, NULL, false);
}

hd_status hd_claim_fail(hd_claim *handle, hd_status outcome, const char *reason)
{
    HDI_INSIDE_OFTEN(hdi_claim_runtime(handle));
    if (!hdi_claim_from_handle(handle)) {
        return hdi_claim_refused(handle);
    }
    if (outcome == HD_OK || !hdi_status_is_known(outcome)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "outcome %d is no failure; fail the claim with a status below 0",
                        (int)outcome);
    }
    return claim_end_as(handle, outcome, reason, false);
}

void hdi_claim_end_surely(hd_claim *handle)
{
    HDI_INSIDE_STILL(hdi_claim_runtime(handle));
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    claim_end_as(handle, HD_OK, NULL, true);
    hdi_attempt_end(&attempt);
}

/* ---- claims that are never ended ---- */

static bool claim_is_not_ended(const struct hd_claim *c)
{
    return c && atomic_load_explicit(&c->lane->claim_ended, memory_order_acquire) < c->end;
}

/* The claims that the program left open, for the message of hd_close. */
typedef struct left_open {
    char names[NAMES_BYTES]; /* of the first `named` claims */
    size_t length;
    uint32_t count, named;
    bool in_use;       /* the program may still use bytes of some of these claims */
    hdi_suspect first; /* the first claim */
    /* an operation that some claim waits for, and that is no claim; count 0: none */
    hdi_suspect behind;
} left_open;

/* Adds the claim's name if there is room, and if no claim before it was left out. Only the first
 * claim gets its place in full. */
static void claims_add_name(left_open *open, const struct hd_claim *c)
{
    char what[HDI_CLAIM_TEXT], place[72] = "";
    hdi_outcome_claim_text(c->runtime, c->lane->global, c->end, what);
    if (!open->count) {
        snprintf(place, sizeof place, " (device %d, lane %d, ticket %llu)", c->lane->device->index,
                 (int)c->lane->number, (unsigned long long)c->end);
    }
    char name[HDI_CLAIM_TEXT + sizeof place];
    size_t length = (size_t)snprintf(name, sizeof name, "%s%.110s%s", open->count ? ", " : "", what, place);
    if (open->named == open->count && open->named < NAMED_MOST && open->length + length < sizeof open->names) {
        memcpy(open->names + open->length, name, length + 1);
        open->length += length;
        open->named++;
    }
    open->count++;
}

static void claims_add(left_open *open, const struct hd_claim *c)
{
    hd_runtime *rt = c->runtime;
    hdi_suspects awaited;
    hdi_suspect own;
    bool ready = c->at_once || hdi_point_done(rt, (hdi_point){c->lane->global, c->ready});
    if (!ready && !open->behind.count && hdi_suspects_awaited(rt, c->lane->global, c->ready, &awaited, &own) &&
        awaited.named[0].op != HDI_OP_CLAIM) {
        open->behind = awaited.named[0];
    }
    if (!open->count) {
        open->first = (hdi_suspect){.position = c->end, .lane = c->lane->global, .count = 1, .op = HDI_OP_CLAIM};
    }
    claims_add_name(open, c);
    open->in_use |= c->n_uses != 0;
}

/* "claim 'a' of f (device 0, lane 3, ticket 7) and 2 more were never ended; ...". If a claim waits
 * for an operation that hangs, names this operation first. */
static void claims_tell_open(hd_runtime *rt, const left_open *open, hd_error *out)
{
    const hdi_suspect *s = open->behind.count ? &open->behind : &open->first;
    char cause[224] = "", what[92], more[24] = "";
    *out = hdi_error_blank(HD_ERROR_TIMEOUT);
    out->device = (int)(s->lane / HDI_LANES_MAX);
    out->lane = (int)(s->lane % HDI_LANES_MAX);
    out->ticket = s->position;
    if (s == &open->behind) {
        hdi_operation_text(rt, s->op, s->kernel, what, sizeof what);
        snprintf(cause, sizeof cause,
                 "%s (device %d, lane %d, ticket %llu) did not end within close_timeout=%lld ms, and ", what,
                 out->device, out->lane, (unsigned long long)out->ticket, (long long)rt->options.close_timeout);
    }
    if (open->count > open->named) {
        snprintf(more, sizeof more, " and %u more", (unsigned)(open->count - open->named));
    }
    snprintf(out->message, sizeof out->message, "%s%s%s %s never ended%s", cause, open->names, more,
             open->count > 1 ? "were" : "was",
             open->in_use ? "; memory that the program may still use is left as it is" : "");
}

bool hdi_claims_abandon(hd_runtime *rt, hd_error *left)
{
    left_open open = {.count = 0};
    for (int ends = 0; ends < 2; ends++) { /* the second round ends them */
        for (int d = 0; d < rt->n_devices; d++) {
            for (uint32_t i = 0; rt->devices[d] && i < HDI_LANES_MAX; i++) {
                struct hd_claim *c = claim_of_lane(rt->devices[d], i);
                if (!claim_is_not_ended(c)) {
                    continue;
                }
                if (!ends) {
                    claims_add(&open, c);
                    continue;
                }
                atomic_store_explicit(&c->lane->claim_abandoned, true, memory_order_relaxed);
                const hdi_claim_ending how = {.outcome = hdi_outcome_of_claim(c->lane, HD_ERROR_HANDLE, NULL)};
                hdi_claim_end_lane(c->lane, c->end, &how);
            }
        }
    }
    if (open.count && left && left->status == HD_OK) {
        claims_tell_open(rt, &open, left);
    }
    return open.in_use;
}

void hdi_claims_each_open(hd_runtime *rt, int device, void (*visit)(void *context, const char *text), void *context)
{
    const hdi_device *of = rt->devices[device];
    uint32_t made = atomic_load_explicit(&of->lanes_made, memory_order_acquire);
    for (uint32_t i = 0; i < made; i++) {
        const hd_lane *lane = hdi_lane_at(of, i);
        uint64_t end = atomic_load_explicit(&lane->claim_begun, memory_order_relaxed);
        if (hdi_claim_has_open(lane) || atomic_load_explicit(&lane->claim_abandoned, memory_order_relaxed)) {
            char what[HDI_CLAIM_TEXT];
            hdi_outcome_claim_text(rt, lane->global, end, what);
            visit(context, what);
        }
    }
}
