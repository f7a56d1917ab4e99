/* heddle/mpi/progress.h - part of heddle/mpi.h: operations advance, on the progress thread and in
 * hd_mpi_wait.
 *
 * Threads: the progress thread, and every thread that calls. One of them at a time advances
 * operations.
 * Locks: hd_mpi.lock. The lock of the waker guards the state of the threads, and is taken alone.
 * Always: the thread sleeps without a time limit if no operation is under way. An operation whose
 * bytes are not ready is not under way: Heddle calls hdmpi_claim_ready when they are.
 */
#ifndef HEDDLE_MPI_PROGRESS_H
#define HEDDLE_MPI_PROGRESS_H

#include <heddle/mpi/link.h>
#include <heddle/mpi/piece.h>

HD_BEGIN_DECLS

/* A thread that waits spins for this long. Then it yields until HDMPI_YIELD_NS, and then it
 * sleeps. */
#define HDMPI_SPIN_NS 5000
#define HDMPI_YIELD_NS 50000
#define HDMPI_SLEEP_LEAST 20000 /* nanoseconds */
#define HDMPI_SLEEP_MOST 250000 /* nanoseconds */
/* At most this long, nobody asks MPI on a machine that is not busy. */
#define HDMPI_GAP_NS 1000000
/* After the last operation, the thread looks for another one for this long. So a program that sends
 * again at once need not wake the thread. */
#define HDMPI_LINGER_NS 10000000

/* ---- one operation ---- */

/* Looks whether the bytes belong to the operation. */
static inline void hdmpi_operation_look(hdmpi_operation *o)
{
    if (o->mpi->is_inline ? hd_claim_wait(o->claim, 0) == HD_ERROR_TIMEOUT : !hd_claim_ready(o->claim)) {
        return;
    }
    const hd_status status = hd_claim_wait(o->claim, 0);
    void *host = NULL;
    o->ready = 1;
    hdmpi_operation_touch(o);
    o->traced.ready = o->traced.on ? hdmpi_now() : 0;
    if (status) {
        hdmpi_operation_fail(o, status, hd_message());
        o->failed = 1;
        return;
    }
    if (o->in.present && o->in.bytes && hd_claim_get_pointer(o->claim, o->in.use, &host) == HD_OK) {
        o->in.host = (unsigned char *)host;
    }
    if (o->out.present && o->out.bytes && hd_claim_get_pointer(o->claim, o->out.use, &host) == HD_OK) {
        o->out.host = (unsigned char *)host;
    }
    hdmpi_side *const side = o->in.direct ? &o->in : &o->out;
    if (side->direct && !side->host) { /* MPI uses the host's copy of unified memory */
        side->host = (unsigned char *)(uintptr_t)side->direct;
    }
    /* MPI may write the bytes of a broadcast on the root, too, although they stay the same. But
     * other readers of these bytes do not wait for the broadcast. */
    o->uses_cpu_slot = o->in.host && (o->in.host == o->out.host || o->kind == HDMPI_BCAST);
}

/* True if a further piece may begin. */
static inline int hdmpi_operation_may_begin(const hdmpi_operation *o)
{
    if (o->stopped || o->begun == o->pieces || o->piece[o->begun % HDMPI_WINDOW].step != HDMPI_FREE) {
        return 0;
    }
    return o->kind != HDMPI_RECEIVE || o->begun == 0 ||
           (o->begun == o->posted && o->piece[(o->begun - 1) % HDMPI_WINDOW].step != HDMPI_POSTED);
}

/* Moves the pieces whose copies are done. */
static inline void hdmpi_operation_settle(hdmpi_operation *o)
{
    for (int i = 0; i < HDMPI_WINDOW && o->copying; i++) {
        hdmpi_piece *p = &o->piece[i];
        int good = 1;
        if (p->step == HDMPI_FILLING && hdmpi_piece_is_copied(o, p, p->in, &good)) {
            p->step = HDMPI_FILLED;
            o->copying--;
            if (!good) {
                o->failed = 1;
                memset(p->in->host, 0xff, p->in->bytes);
            }
        } else if (p->step == HDMPI_DRAINING && hdmpi_piece_is_copied(o, p, p->out, &good)) {
            o->copying--;
            hdmpi_piece_end(o, p);
        }
    }
}

/* Ends the pieces of a stopped operation that are ready and will never be posted. */
static inline void hdmpi_operation_drop(hdmpi_operation *o)
{
    for (int i = 0; i < HDMPI_WINDOW; i++) {
        if (o->piece[i].step == HDMPI_FILLED) {
            hdmpi_piece_end(o, &o->piece[i]);
        }
    }
}

/* True if MPI has a piece, or if the operation asks for its message. */
static inline int hdmpi_operation_waits(const hdmpi_operation *o)
{
    int waits = o->is_asking;
    for (int i = 0; i < HDMPI_WINDOW; i++) {
        waits |= o->piece[i].step == HDMPI_POSTED;
    }
    return waits;
}

/* Stops an operation that made no progress for too long, and cancels its receives. MPI cannot
 * cancel other messages, so the operation ends when MPI gives their memory back. A send with
 * further pieces sends an empty one, so that its receiver does not wait for them. */
static inline void hdmpi_operation_cancel(hdmpi_operation *o, const char *why)
{
    const int tells = o->kind == HDMPI_SEND && !hdmpi_operation_is_posted(o);
    hdmpi_operation_fail(o, HD_ERROR_TIMEOUT, why);
    o->cancelled = 1;
    o->failed |= tells;
    o->stopped = !tells;
    for (int i = 0; i < HDMPI_WINDOW; i++) {
        hdmpi_piece *p = &o->piece[i];
        if (p->step == HDMPI_POSTED && o->kind == HDMPI_RECEIVE) {
            MPI_Cancel(&o->mpi->request[p->request]);
        }
    }
}

/* The limit of the operation passed. */
static inline void hdmpi_operation_expire(hdmpi_operation *o)
{
    char why[HD_REASON_BYTES];
    snprintf(
        why, sizeof why,
        "no message of it made progress for %lld ns (timeout_ns), after %zu whole pieces; look what the other rank "
        "does, or allow more time",
        (long long)o->mpi->timeout_ns, o->ended);
    hdmpi_operation_cancel(o, why);
}

/* A receive that gets no slot asks MPI for its message. True: the message is there. */
static inline int hdmpi_operation_ask(hdmpi_operation *o)
{
    MPI_Status status;
    if (o->kind == HDMPI_RECEIVE && !o->has_message) {
        if (!o->is_asking) {
            hdmpi_operation_touch(o);
        }
        o->is_asking = 1;
        if (MPI_Improbe(o->peer, o->tag, o->comm, &o->has_message, &o->message, &status) != MPI_SUCCESS) {
            o->has_message = 0;
        }
        return o->has_message;
    }
    return 0;
}

/* Begins a further piece if that is possible. `turn`: no other operation must be posted before.
 * True: something happened. */
static inline int hdmpi_operation_begin_piece(hdmpi_operation *o, int turn)
{
    int begun = 0;
    if (!hdmpi_operation_may_begin(o) || (!turn && o->begun != o->posted)) {
        return 0;
    }
    const hd_status status = hdmpi_piece_begin(o, &begun);
    const int receives = o->kind == HDMPI_RECEIVE && !o->failed;
    if (status && o->mpi->requests == 0 && o->begun == o->ended && (!receives || o->has_message)) {
        /* No other piece will give memory back. A message that is there is still received, since
         * its sender waits. */
        hdmpi_operation_fail(o, status, hd_message());
        o->failed = 1;
        o->stopped = !receives;
        return receives;
    }
    if (!begun && turn) {
        return hdmpi_operation_ask(o);
    }
    o->is_asking = o->is_asking && !begun;
    return begun;
}

/* Does all steps that are possible now. True: the operation is over. */
static inline int hdmpi_operation_advance(hdmpi_operation *o)
{
    hd_mpi *m = o->mpi;
    if (!o->ready) {
        hdmpi_operation_look(o);
    }
    if (!o->ready) {
        return 0;
    }
    hdmpi_operation_settle(o);
    const int posted = hdmpi_operation_is_posted(o), turn = posted || hdmpi_operation_has_turn(o);
    int again = !posted;
    while (again) {
        again = hdmpi_operation_begin_piece(o, turn);
        hdmpi_piece *p = &o->piece[o->posted % HDMPI_WINDOW];
        if (turn && !o->stopped && o->posted < o->begun && p->step == HDMPI_FILLED) {
            hdmpi_piece_post(o, p);
            again = 1;
        }
    }
    if (m->timeout_ns && !o->cancelled) {
        if (!hdmpi_operation_waits(o)) {
            hdmpi_operation_touch(o); /* the time of a turn or of a copy does not count */
        } else if (hdmpi_now() - o->moved > m->timeout_ns) {
            hdmpi_operation_expire(o);
        }
    }
    if (o->stopped) {
        hdmpi_operation_drop(o);
    }
    if (o->is_counted && hdmpi_operation_is_posted(o)) {
        o->is_counted = 0;
        m->unposted--;
    }
    return o->stopped ? o->ended == o->begun : o->ended == o->pieces;
}

/* Ends the claim, and frees the operation. */
static inline void hdmpi_operation_release(hdmpi_operation *o)
{
    if (o->outcome && o->why) {
        hd_claim_fail(o->claim, o->outcome, o->why);
    } else {
        hd_claim_end(o->claim, o->outcome);
    }
    free(o->why);
    free(o);
}

/* Ends the claim. The operation is in no list. */
static inline void hdmpi_operation_end(hdmpi_operation *o)
{
    if (o->traced.comm) {
        hdmpi_trace_end(o);
    }
    o->mpi->operations--;
    hdmpi_operation_release(o);
}

/* ---- all operations ---- */

/* Asks MPI which messages are complete. Returns their number. */
static inline int hdmpi_poll(hd_mpi *m)
{
    int n = 0;
    if (m->requests == 0) {
        return 0;
    }
    const int pushed = hdmpi_context_push(m, 0);
    const int code = MPI_Testsome(m->requests, m->request, &n, m->indices, m->statuses);
    hdmpi_context_pop(m, pushed);
    if (n == MPI_UNDEFINED || n <= 0) {
        return 0;
    }
    for (int k = 0; k < n; k++) {
        const int i = m->indices[k];
        hdmpi_piece_complete(m->of_request[i], m->piece_of_request[i], &m->statuses[k],
                             code == MPI_ERR_IN_STATUS ? m->statuses[k].MPI_ERROR : MPI_SUCCESS);
    }
    for (int i = m->requests - 1; i >= 0; i--) {
        if (m->request[i] == MPI_REQUEST_NULL) {
            hdmpi_request_remove(m, i);
        }
    }
    return n;
}

/* Frees temporary memory whose last use is over; with `all`, all temporary memory. */
static inline void hdmpi_temporaries_free(hd_mpi *m, int all)
{
    hdmpi_temporary **link = &m->temporaries;
    while (*link) {
        hdmpi_temporary *t = *link;
        if (all || hd_done(t->last)) {
            *link = t->next;
            hd_free(t->buffer);
            free(t);
        } else {
            link = &t->next;
        }
    }
}

/* A copy of the operation that is under way. */
static inline hd_ticket hdmpi_operation_copy(const hdmpi_operation *o)
{
    hd_ticket none = {NULL, 0};
    for (int i = 0; i < HDMPI_WINDOW; i++) {
        if (o->piece[i].step == HDMPI_FILLING || o->piece[i].step == HDMPI_DRAINING) {
            return o->piece[i].copied;
        }
    }
    return none;
}

/* Advances all operations once. Returns the number of those whose bytes are ready and that are not
 * over. *moved: something happened. */
static inline size_t hdmpi_advance_all(hd_mpi *m, int *moved)
{
    size_t under_way = 0;
    hdmpi_operation **link = &m->first;
    for (int i = 0; i < HDMPI_SLOT_SIZES; i++) {
        m->slots[i].asked = 0;
    }
    m->copy.lane = NULL;
    while (*link) {
        hdmpi_operation *o = *link;
        const size_t before = o->posted + o->ended + o->begun;
        const int over = hdmpi_operation_advance(o);
        *moved |= over || before != o->posted + o->ended + o->begun;
        if (over) {
            *link = o->next;
            if (!o->next) {
                m->last = link;
            }
            hdmpi_operation_end(o);
            continue;
        }
        under_way += (size_t)o->ready;
        if (o->copying && !m->copy.lane) {
            m->copy = hdmpi_operation_copy(o);
        }
        link = &o->next;
    }
    return under_way;
}

/* Ends the claims of all operations. MPI does not finish them, so their slots stay as they are. */
static inline void hdmpi_operations_abandon(hd_mpi *m, hd_status status, const char *why)
{
    while (m->first) {
        hdmpi_operation *o = m->first;
        m->first = o->next;
        m->operations--;
        hdmpi_operation_fail(o, status, why);
        hdmpi_operation_release(o);
    }
    m->last = &m->first;
    m->requests = 0;
    m->unposted = 0;
}

/* The limits of operations count no time in which nobody asked MPI, for example because the machine
 * gave this process no processor. A message may need several questions to get on. */
static inline void hdmpi_limits_shift(hd_mpi *m)
{
    const int64_t now = hdmpi_now(), more = now - m->asked - HDMPI_GAP_NS;
    for (hdmpi_operation *o = m->asked && more > 0 ? m->first : NULL; o; o = o->next) {
        o->moved = o->moved + more < now ? o->moved + more : now;
    }
    m->asked = now;
}

/* Asks MPI, then advances everything once. The results are those of hdmpi_advance_all. */
static inline size_t hdmpi_progress(hd_mpi *m, int *moved)
{
    if (hdmpi_link_is_finalized(m)) {
        hdmpi_operations_abandon(m, HD_ERROR_SYSTEM, "MPI_Finalize came first; call hd_mpi_close before it");
    }
    *moved = hdmpi_poll(m) > 0;
    if (m->timeout_ns) {
        hdmpi_limits_shift(m);
    }
    const size_t under_way = hdmpi_advance_all(m, moved);
    hdmpi_temporaries_free(m, 0);
    return under_way + (m->temporaries != NULL);
}

/* ---- the thread ---- */

static inline hdmpi_waker *hdmpi_waker_place(void)
{
    static hdmpi_waker waker = {PTHREAD_ONCE_INIT, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    return &waker;
}

static inline void hdmpi_waker_init(void)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&hdmpi_waker_place()->wake, &clock);
    pthread_condattr_destroy(&clock);
}

/* The waker of this source file. */
static inline hdmpi_waker *hdmpi_waker_get(void)
{
    hdmpi_waker *w = hdmpi_waker_place();
    pthread_once(&w->once, hdmpi_waker_init);
    return w;
}

static inline void hdmpi_wake(hdmpi_waker *w)
{
    pthread_mutex_lock(&w->lock);
    w->events++;
    if (w->sleepers) {
        pthread_cond_broadcast(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Heddle calls this function when the bytes of an operation are ready. */
static inline void hdmpi_claim_ready(hd_claim *claim, hd_status status, void *context)
{
    (void)claim;
    (void)status;
    hdmpi_wake((hdmpi_waker *)context);
}

/* Sleeps until an event that the thread has not seen, at most `ns` nanoseconds; 0: without a
 * limit. */
static inline void hdmpi_sleep(hd_mpi *m, int64_t ns)
{
    hdmpi_waker *w = m->waker;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t sum = until.tv_nsec + ns;
    until.tv_sec += (time_t)(sum / 1000000000);
    until.tv_nsec = (long)(sum % 1000000000);
    pthread_mutex_lock(&w->lock);
    w->sleepers++;
    while (w->events == m->seen && !m->ending) {
        if (!ns) {
            pthread_cond_wait(&w->wake, &w->lock);
        } else if (pthread_cond_timedwait(&w->wake, &w->lock, &until)) {
            break;
        }
    }
    w->sleepers--;
    m->seen = w->events;
    pthread_mutex_unlock(&w->lock);
}

/* Sleeps `ns` nanoseconds, but only until `copy` is done. Its lane may be NULL. */
static inline void hdmpi_pause(hd_ticket copy, int64_t ns)
{
    struct timespec t;
    if (copy.lane) {
        (void)hd_wait(copy, ns); /* a failure shows when the operation advances */
        return;
    }
    t.tv_sec = 0;
    t.tv_nsec = (long)ns;
    nanosleep(&t, NULL);
}

/* Adds to the number of threads in hd_mpi_wait. */
static inline void hdmpi_waiters_add(hd_mpi *m, int more)
{
    pthread_mutex_lock(&m->waker->lock);
    m->waiters += more;
    pthread_mutex_unlock(&m->waker->lock);
}

/* How long a thread sleeps when nothing happened for `idle` nanoseconds; 0: it only yields. */
static inline int64_t hdmpi_patience(int64_t idle)
{
    if (idle < HDMPI_YIELD_NS) {
        return 0;
    }
    const int64_t ns = idle / 8;
    return ns < HDMPI_SLEEP_LEAST ? HDMPI_SLEEP_LEAST : ns > HDMPI_SLEEP_MOST ? HDMPI_SLEEP_MOST : ns;
}

static inline void *hdmpi_thread(void *argument)
{
    hd_mpi *m = (hd_mpi *)argument;
    int64_t last = hdmpi_now();
    for (;;) {
        int moved = 0;
        pthread_mutex_lock(&m->waker->lock);
        const int ending = m->ending, others = m->waiters;
        pthread_mutex_unlock(&m->waker->lock);
        if (ending) {
            return NULL;
        }
        hdmpi_lock(m);
        const size_t under_way = hdmpi_progress(m, &moved);
        const hd_ticket copy = m->copy;
        const int64_t now = hdmpi_now();
        last = moved ? now : last;
        m->by_waiter = moved ? 0 : m->by_waiter;
        m->looks_soon = under_way || (m->must_look && m->operations) || now - last <= HDMPI_LINGER_NS;
        hdmpi_unlock(m);
        if (!m->looks_soon) {
            hdmpi_sleep(m, 0);
            last = hdmpi_now();
        } else if (!under_way || others) {
            hdmpi_sleep(m, HDMPI_SLEEP_MOST); /* a thread in hd_mpi_wait does the work */
        } else {
            const int64_t ns = hdmpi_patience(now - last);
            if (ns && copy.lane) {
                hdmpi_pause(copy, ns);
            } else if (ns) {
                hdmpi_sleep(m, ns);
            } else {
                sched_yield();
            }
        }
    }
}

/* hd_wait names what a ticket waits for, unless it only checks. So this function calls hd_wait with
 * a limit of 1 ns, and puts the time of the whole wait in the message. */
static inline hd_status hdmpi_fail_wait(hd_ticket ticket, int64_t waited_ns)
{
    char text[1024], whole[1100];
    const hd_status status = hd_wait(ticket, 1);
    if (status != HD_ERROR_TIMEOUT) {
        return status;
    }
    snprintf(text, sizeof text, "%s", hd_message());
    char *const at = strstr(text, "after 1 ns"), *const from = strstr(text, ": ");
    if (!at || !from || from > at) {
        return status;
    }
    *at = 0;
    snprintf(whole, sizeof whole, "hd_mpi_wait%safter %lld ns%s", from, (long long)waited_ns,
             at + sizeof "after 1 ns" - 1);
    return hd_error_set(status, whole);
}

static inline hd_status hd_mpi_wait(hd_mpi *m, hd_ticket ticket, int64_t timeout_ns)
{
    const hd_status open = hdmpi_link_check("hd_mpi_wait", m);
    if (open) {
        return open;
    }
    if (timeout_ns < HD_FOREVER) {
        return hdmpi_fail_limit("hd_mpi_wait", timeout_ns);
    }
    if (!m->is_inline && hd_done(ticket)) {
        return hd_wait(ticket, 0);
    }
    const int64_t begin = hdmpi_now();
    int64_t last = begin, now = begin;
    hdmpi_waiters_add(m, 1);
    /* hd_wait also refuses a ticket that no call returned. But it wakes the engine, so a long wait
     * calls it once. With placement=inline, only hd_wait runs the engine. */
    int asked = 0;
    hd_ticket copy = {NULL, 0};
    while (!(m->is_inline ? hd_wait(ticket, 0) != HD_ERROR_TIMEOUT : hd_done(ticket)) &&
           (timeout_ns < 0 || now - begin < timeout_ns)) {
        int moved = 0;
        if (hdmpi_try_lock(m)) {
            hdmpi_progress(m, &moved);
            copy = m->copy;
            m->by_waiter |= moved;
            hdmpi_unlock(m);
        }
        now = hdmpi_now();
        last = moved ? now : last;
        const int64_t ns = hdmpi_patience(now - last);
        if (ns && !asked && hd_wait(ticket, 0) != HD_ERROR_TIMEOUT) {
            break;
        }
        if (ns) {
            asked = 1;
            hdmpi_pause(copy, ns);
        } else if (now - last >= HDMPI_SPIN_NS) {
            sched_yield();
        }
    }
    hdmpi_waiters_add(m, -1);
    const hd_status status = hd_wait(ticket, 0);
    return status == HD_ERROR_TIMEOUT ? hdmpi_fail_wait(ticket, timeout_ns) : status;
}

HD_END_DECLS
#endif
