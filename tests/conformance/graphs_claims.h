/* graphs_claims.h - operations of test_graphs.c whose work the program does itself: claims, claims
 * on streams, calls in lanes, host calls.
 *
 * A submitter begins a claim under the world's lock, and updates the model there. Two threads of
 * the test end the open claims in any order. Each waits until a claim is ready, and compares its
 * bytes with the old model. Then it writes the new bytes, and ends the claim.
 *
 * Threads: those that submit, with the world's lock, two that end claims, and those of the library.
 * Locks: `open_claims.lock`, briefly. A thread that ends claims takes no other lock.
 * Always: the begin of a claim decides everything, so its end changes nothing in the model.
 */
#ifndef CONFORMANCE_GRAPHS_CLAIMS_H
#define CONFORMANCE_GRAPHS_CLAIMS_H

#include "foreign.h"
#include "graphs.h"

enum { open_most = 24, enders = 2 };

/* A use of bytes by the program: their expected content, and the new one. */
typedef struct own_use {
    hd_claim *claim;
    int buffer;
    size_t offset, bytes;
    unsigned char *at; /* NULL: device memory */
    /* `before` is NULL if the claim does not read them, `after` if it does not write them */
    uint8_t *before, *after;
    int graph;
} own_use;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    own_use of[open_most];
    int n;
    bool stop, begun;
    pthread_t threads[enders];
    foreign driver; /* not with worker processes */
    bool has_driver;
    void *streams[most_devices];
} open_claims = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Compares and writes the bytes. */
static void use_bytes(own_use *u)
{
    size_t i = u->before == NULL || u->at == NULL ? u->bytes : conf_difference(u->at, u->before, u->bytes);
    if (i < u->bytes) {
        conf_fail_at(__FILE__, __LINE__, "graph %d, buffer %d: a claim finds byte %zu as %02x, not %02x", u->graph,
                     u->buffer, u->offset + i, u->at[i], u->before[i]);
    }
    if (u->after != NULL && u->at != NULL) {
        memcpy(u->at, u->after, u->bytes);
    }
    free(u->before);
    free(u->after);
}

static void *ends_claims(void *argument)
{
    conf_random r = {(uint64_t)(uintptr_t)argument};
    pthread_mutex_lock(&open_claims.lock);
    while (!open_claims.stop || open_claims.n > 0) {
        if (open_claims.n == 0) {
            pthread_cond_wait(&open_claims.changed, &open_claims.lock);
            continue;
        }
        int pick = (int)conf_below(&r, (uint64_t)open_claims.n);
        own_use u = open_claims.of[pick];
        if (!hd_claim_ready(u.claim)) {
            u.claim = NULL;
            for (int i = 0; i < open_claims.n && u.claim == NULL; i++) {
                pick = i;
                u = open_claims.of[i];
                u.claim = hd_claim_ready(u.claim) ? u.claim : NULL;
            }
        }
        /* this thread waits for some claims, since polling alone runs no engine with
         * placement=inline */
        if (u.claim == NULL) {
            hd_claim *waited = open_claims.of[0].claim;
            pthread_mutex_unlock(&open_claims.lock);
            (void)hd_claim_wait(waited, CONF_MILLISECOND); /* another thread may end it meanwhile */
            pthread_mutex_lock(&open_claims.lock);
            continue;
        }
        open_claims.of[pick] = open_claims.of[--open_claims.n];
        pthread_cond_broadcast(&open_claims.changed);
        pthread_mutex_unlock(&open_claims.lock);
        CONF_OK(hd_claim_wait(u.claim, HD_FOREVER));
        use_bytes(&u);
        CONF_OK(hd_claim_end(u.claim, HD_OK));
        pthread_mutex_lock(&open_claims.lock);
    }
    pthread_mutex_unlock(&open_claims.lock);
    return NULL;
}

static void claims_begin(void)
{
    open_claims.stop = false;
    open_claims.begun = true;
    open_claims.has_driver = !conf_is_process(w.runtime);
    if (open_claims.has_driver) {
        foreign_begin(&open_claims.driver, w.runtime);
        for (int d = 0; d < w.devices; d++) {
            open_claims.streams[d] = foreign_stream(&open_claims.driver, d);
        }
    }
    for (int i = 0; i < enders; i++) {
        CONF_EQUAL(pthread_create(&open_claims.threads[i], NULL, ends_claims, (void *)(uintptr_t)(i + 5)), 0);
    }
}

/* Returns once all claims have ended. */
static void claims_end(void)
{
    if (!open_claims.begun) {
        return;
    }
    pthread_mutex_lock(&open_claims.lock);
    open_claims.stop = true;
    pthread_cond_broadcast(&open_claims.changed);
    pthread_mutex_unlock(&open_claims.lock);
    for (int i = 0; i < enders; i++) {
        CONF_EQUAL(pthread_join(open_claims.threads[i], NULL), 0);
    }
    for (int d = 0; open_claims.has_driver && d < w.devices; d++) {
        foreign_enter(&open_claims.driver, d);
        CONF_EQUAL(open_claims.driver.cuStreamDestroy(open_claims.streams[d]), 0);
        foreign_leave(&open_claims.driver);
    }
    if (open_claims.has_driver) {
        foreign_end(&open_claims.driver);
    }
    open_claims.begun = false;
}

/* Chooses a random use of a random buffer, and updates the model. `host`: only memory with a
 * pointer for the program. *arg: for the call. */
static bool choose_use(conf_random *r, bool host, own_use *u, hd_arg *arg)
{
    int at = some_item(r);
    item *x = &w.items[at];
    if (host && x->device >= 0) {
        return false;
    }
    range a = some_range(r, x, x->floats ? 4 : 1);
    bool reads = conf_chance(r, 70), writes = host && (!reads || conf_chance(r, 60));
    *u = (own_use){.buffer = at, .offset = a.offset, .bytes = a.bytes, .graph = w.graph};
    *arg = hd_arg_buffer(x->buffer, reads && writes ? HD_READ_WRITE : writes ? HD_WRITE : HD_READ, a.offset, a.bytes);
    if (reads || !writes) {
        u->before = conf_memory(a.bytes);
        memcpy(u->before, x->model + a.offset, a.bytes);
    }
    if (writes) {
        u->after = conf_memory(a.bytes);
        invent(r, x, u->after, a.bytes);
        memcpy(x->model + a.offset, u->after, a.bytes);
    }
    return true;
}

static bool do_claim(conf_random *r, hd_ticket *out)
{
    own_use u;
    hd_arg arg;
    /* room first: once the model changed, the claim has to begin */
    pthread_mutex_lock(&open_claims.lock);
    bool room = open_claims.n < open_most;
    pthread_mutex_unlock(&open_claims.lock);
    if (!room || !choose_use(r, conf_chance(r, 85), &u, &arg)) {
        return false;
    }
    CONF_OK(hd_claim_begin(w.runtime, &arg, 1, &u.claim));
    CONF_OK(hd_claim_get_ticket(u.claim, out));
    if (w.items[u.buffer].device < 0) {
        void *p = NULL;
        CONF_OK(hd_claim_get_pointer(u.claim, 0, &p));
        u.at = p;
    }
    note(u.buffer, u.offset, u.offset + u.bytes, "claim%s%s", u.before ? ", reads" : "", u.after ? ", writes" : "");
    pthread_mutex_lock(&open_claims.lock);
    open_claims.of[open_claims.n++] = u; /* submitters come one at a time, so there is still room */
    pthread_cond_broadcast(&open_claims.changed);
    pthread_mutex_unlock(&open_claims.lock);
    return true;
}

static hd_status runs_on_host(void *const *pointers, void *context)
{
    own_use *u = context;
    u->at = pointers[0];
    use_bytes(u);
    free(u);
    return HD_OK;
}

static bool do_host_call(conf_random *r, hd_ticket *out)
{
    own_use *u = conf_memory(sizeof *u);
    hd_arg arg;
    if (!choose_use(r, conf_chance(r, 85), u, &arg)) {
        free(u);
        return false;
    }
    note(u->buffer, u->offset, u->offset + u->bytes, "host call%s%s", u->before ? ", reads" : "",
         u->after ? ", writes" : "");
    CONF_OK(hd_launch_host(w.runtime, runs_on_host, u, &arg, 1, out));
    return true;
}

/* Work that the program puts into a stream: it fills bytes of one buffer. */
typedef struct stream_fill {
    unsigned long long address;
    uint32_t word;
    size_t count;
} stream_fill;

static hd_status put_stream_fill(void *stream, void *context)
{
    stream_fill f = *(stream_fill *)context;
    free(context);
    return open_claims.driver.cuMemsetD32Async(f.address, f.word, f.count, stream) == 0 ? HD_OK : HD_ERROR_DRIVER;
}

/* Chooses a range of a buffer on the device that the program may fill; false if there is none. */
static bool choose_fill(conf_random *r, int device, int *at, range *a, uint32_t *word)
{
    *at = some_item(r);
    item *y = &w.items[*at];
    if (!open_claims.has_driver || y->bytes < 4 || y->device != device) {
        return false;
    }
    *a = some_range(r, y, 4);
    *word = some_word(r, y);
    return true;
}

static bool do_lane_call(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    int at;
    range a;
    uint32_t word;
    if (!choose_fill(r, hd_lane_device(lane), &at, &a, &word)) {
        return false;
    }
    stream_fill *f = conf_memory(sizeof *f);
    *f = (stream_fill){hd_buffer_address(w.items[at].buffer) + a.offset, word, a.bytes / 4};
    hd_arg use = hd_out_range(w.items[at].buffer, a.offset, a.bytes);
    CONF_OK(hd_lane_run_native(lane, put_stream_fill, f, &use, 1, out));
    note(at, a.offset, a.offset + a.bytes, "lane call, lane %d:%d, word %08x", hd_lane_device(lane),
         hd_lane_number(lane), word);
    fill_model(at, a, word);
    return true;
}

/* It may wait for the engine, which waits for claims of the program. Other threads of the test end
 * those, and need no lock that this thread holds. */
static bool do_stream_claim(conf_random *r, hd_ticket *out)
{
    int device = (int)conf_below(r, (uint64_t)w.devices), at;
    range a;
    uint32_t word;
    if (!choose_fill(r, device, &at, &a, &word)) {
        return false;
    }
    hd_arg use = hd_out_range(w.items[at].buffer, a.offset, a.bytes);
    void *stream = conf_chance(r, 80) ? open_claims.streams[device] : (void *)(uintptr_t)conf_below(r, 3);
    hd_claim *claim = NULL;
    CONF_OK(hd_claim_begin_stream(w.runtime, device, stream, &use, 1, NULL, &claim));
    CONF_OK(hd_claim_get_ticket(claim, out));
    foreign_enter(&open_claims.driver, device);
    CONF_EQUAL(open_claims.driver.cuMemsetD32Async(hd_buffer_address(w.items[at].buffer) + a.offset, word, a.bytes / 4,
                                                   stream),
               0);
    foreign_leave(&open_claims.driver);
    CONF_OK(hd_claim_end(claim, HD_OK));
    note(at, a.offset, a.offset + a.bytes, "claim on stream %p of device %d, word %08x", stream, device, word);
    fill_model(at, a, word);
    return true;
}

static hd_ticket last_ticket; /* under the world's lock */

static bool do_lane_after(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    CONF_OK(hd_lane_add_dependency(lane, last_ticket, out));
    return true;
}

#endif
