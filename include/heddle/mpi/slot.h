/* heddle/mpi/slot.h - part of heddle/mpi.h: the pinned memory for pieces.
 *
 * At the limit of pinned memory, an allocation waits. So a thread of its own makes slots, and an
 * operation without a slot tries again later. The thread ends when nobody wants a slot.
 *
 * The link holds at most three quarters of what the option pinned_limit allows. The rest is for
 * transfers and allocations of the program.
 *
 * Some messages never come, and nobody receives some others. So pieces that MPI has may hold their
 * slots forever. They leave one slot of their size to receives whose message is there: these need
 * nothing else to finish. Receives without a message leave one more, and hold at most a quarter of
 * what the option pinned_limit allows. A receive that gets no slot asks MPI for its message without
 * one.
 *
 * Threads: the thread that makes slots, and the callers, who hold hd_mpi.lock.
 * Locks: hd_mpi.lock, but not during an allocation.
 * Always: the thread makes no call of MPI, so hd_mpi_close need not wait for it.
 */
#ifndef HEDDLE_MPI_SLOT_H
#define HEDDLE_MPI_SLOT_H

#include <heddle/mpi/operation.h>

HD_BEGIN_DECLS

/* The slots with room for `bytes`. Only exchanges between very many ranks need the last size. */
static inline hdmpi_slots *hdmpi_slots_for(hd_mpi *m, size_t bytes)
{
    hdmpi_slots *const last = &m->slots[HDMPI_SLOT_SIZES - 1];
    for (hdmpi_slots *of = m->slots; of != last; of++) {
        if (bytes <= of->bytes) {
            return of;
        }
    }
    last->bytes = bytes > last->bytes ? bytes : last->bytes;
    return last;
}

static inline hd_status hdmpi_slot_make(hd_runtime *runtime, size_t bytes, hdmpi_slot **out)
{
    void *host = NULL;
    hdmpi_slot *s = (hdmpi_slot *)calloc(1, sizeof *s);
    if (!s) {
        return hdmpi_fail(HD_ERROR_HOST_MEMORY, "hd_mpi", "no memory for a piece of %lld bytes", (long long)bytes);
    }
    s->bytes = bytes;
    hd_status status = hd_alloc_host(runtime, bytes, &s->buffer);
    /* The slot stays mapped. Heddle does not order the accesses of MPI; the steps of a piece do. */
    status = status ? status : hd_map(s->buffer, HD_READ_WRITE, &host);
    if (status) {
        hd_free(s->buffer);
        free(s);
        return status;
    }
    s->host = (unsigned char *)host;
    *out = s;
    return HD_OK;
}

static inline void hdmpi_slot_free(hdmpi_slot *s)
{
    if (!s->buffer) {
        free(s->host);
    }
    hd_free(s->buffer);
    free(s);
}

/* A slot of ordinary memory, for bytes that nobody reads. NULL: no memory. */
static inline hdmpi_slot *hdmpi_slot_make_spare(size_t bytes)
{
    hdmpi_slot *s = (hdmpi_slot *)calloc(1, sizeof *s);
    if (s) {
        s->bytes = bytes;
        s->host = (unsigned char *)malloc(bytes);
    }
    if (s && !s->host) {
        free(s);
        s = NULL;
    }
    return s;
}

/* ---- the thread ---- */

static inline void hdmpi_wake(hdmpi_waker *w); /* progress.h */

/* The first slots that are wanted. NULL: none. */
static inline hdmpi_slots *hdmpi_slots_wanted(hd_mpi *m)
{
    for (int i = 0; i < HDMPI_SLOT_SIZES; i++) {
        if (m->slots[i].wanted) {
            return &m->slots[i];
        }
    }
    return NULL;
}

/* Adds a new slot, or the failure to make it. */
static inline void hdmpi_slots_add(hdmpi_slots *of, hdmpi_slot *s, hd_status status)
{
    if (status) {
        of->wanted = 0;
        of->failure = status;
        free(of->why);
        of->why = strdup(hd_message());
        return;
    }
    of->wanted--;
    of->all++;
    of->free++;
    s->next = of->first;
    of->first = s;
}

static inline void *hdmpi_slots_thread(void *link)
{
    hd_mpi *m = (hd_mpi *)link;
    hdmpi_slots *of;
    pthread_mutex_lock(&m->lock);
    while (!m->is_left && (of = hdmpi_slots_wanted(m)) != NULL) {
        hdmpi_slot *s = NULL;
        const size_t bytes = of->bytes;
        pthread_mutex_unlock(&m->lock);
        const hd_status status = hdmpi_slot_make(m->runtime, bytes, &s);
        pthread_mutex_lock(&m->lock);
        if (!m->is_left) {
            hdmpi_slots_add(of, s, status);
            hdmpi_wake(m->waker);
        } else if (!status) {
            hdmpi_slot_free(s);
        }
    }
    const int left = m->is_left;
    m->makes_slots = 0;
    pthread_mutex_unlock(&m->lock);
    if (left) {
        pthread_mutex_destroy(&m->lock);
        free(m);
    }
    return NULL;
}

/* True if the link may hold one more slot of this size. It leaves pinned memory to the rest of the
 * program, except for the first two slots of a size. */
static inline int hdmpi_slots_may_grow(const hd_mpi *m, const hdmpi_slots *of)
{
    uint64_t all = of->bytes;
    for (int i = 0; i < HDMPI_SLOT_SIZES; i++) {
        all += (m->slots[i].all + m->slots[i].wanted) * m->slots[i].bytes;
    }
    return of->all + of->wanted < 2 || all <= m->slot_bytes_most;
}

/* Lets the thread make a slot for each piece that asked in this round. Receives that wait ask for
 * one slot together. */
static inline void hdmpi_slots_ask(hd_mpi *m, hdmpi_slots *of, int waits)
{
    pthread_t thread;
    if (!hdmpi_slots_may_grow(m, of)) {
        return; /* the piece waits until another one gives its slot back */
    }
    of->asked += !waits || !of->asked;
    of->wanted = of->wanted > of->asked ? of->wanted : of->asked;
    if (m->makes_slots) {
        return;
    }
    m->makes_slots = 1;
    if (pthread_create(&thread, NULL, hdmpi_slots_thread, m)) {
        m->makes_slots = 0;
        of->wanted = 0;
        of->failure = hdmpi_fail(HD_ERROR_SYSTEM, "hd_mpi", "no thread for pinned memory can be started", 0);
        return;
    }
    pthread_detach(thread);
}

/* ---- slots ---- */

/* Kinds of pieces that ask for slots. */
enum hdmpi_claimant {
    HDMPI_FOUND, /* a receive whose message is there */
    HDMPI_MOVES, /* a send or a part of a collective operation */
    HDMPI_WAITS  /* a receive whose message perhaps never comes */
};

/* True if the slots of this size, and of the other usual size, suffice for one more piece.
 * Otherwise asks for what is missing. */
static inline int hdmpi_slots_spare(hd_mpi *m, hdmpi_slots *of, int claimant)
{
    if (claimant == HDMPI_FOUND || (of->failure && of->all == of->free)) {
        return 1; /* with too little memory for two slots, one must do */
    }
    int spare = claimant != HDMPI_WAITS || m->held_bytes + of->bytes <= m->held_most;
    for (int i = 0; i < HDMPI_SLOT_SIZES && spare; i++) {
        hdmpi_slots *each = &m->slots[i];
        const size_t least = 2 * (size_t)(each == of) + (size_t)(claimant == HDMPI_WAITS && i < 2);
        if (each->all - each->held < least) {
            hdmpi_slots_ask(m, each, claimant == HDMPI_WAITS);
            spare = 0;
        }
    }
    return spare;
}

/* Takes a slot. *out is NULL if there is none yet. */
static inline hd_status hdmpi_slot_take(hd_mpi *m, size_t bytes, int claimant, hdmpi_slot **out)
{
    hdmpi_slots *of = hdmpi_slots_for(m, bytes);
    hdmpi_slot *s = of->first;
    *out = NULL;
    while (s && s->bytes < bytes) { /* the last size grew */
        of->first = s->next;
        of->free--;
        of->all--;
        hdmpi_slot_free(s);
        s = of->first;
    }
    const int spare = hdmpi_slots_spare(m, of, claimant);
    if (s && spare) {
        of->first = s->next;
        of->free--;
        *out = s;
        return HD_OK;
    }
    if (of->failure) {
        const hd_status status = hd_error_set(of->failure, of->why);
        of->failure = HD_OK;
        return status;
    }
    if (spare) {
        hdmpi_slots_ask(m, of, claimant == HDMPI_WAITS);
    }
    return HD_OK;
}

/* `good`: no copy to or from the slot failed. After a failure, Heddle would refuse copies from
 * it. */
static inline void hdmpi_slot_give(hd_mpi *m, hdmpi_slot *s, int good)
{
    if (!s) {
        return;
    }
    hdmpi_slots *of = hdmpi_slots_for(m, s->bytes);
    if (!s->buffer) {
        hdmpi_slot_free(s);
        return;
    }
    if (good && of->free < of->kept) {
        s->next = of->first;
        of->first = s;
        of->free++;
        return;
    }
    of->all--;
    hdmpi_slot_free(s);
}

/* Frees all slots that are free. */
static inline void hdmpi_slots_free(hd_mpi *m)
{
    for (int i = 0; i < HDMPI_SLOT_SIZES; i++) {
        while (m->slots[i].first) {
            hdmpi_slot *s = m->slots[i].first;
            m->slots[i].first = s->next;
            hdmpi_slot_free(s);
        }
        free(m->slots[i].why);
        m->slots[i].why = NULL;
    }
}

HD_END_DECLS
#endif
