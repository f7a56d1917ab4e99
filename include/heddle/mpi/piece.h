/* heddle/mpi/piece.h - part of heddle/mpi.h: the steps of a piece, from the copy to its slot until
 * the copy from its slot.
 *
 * Threads, locks: the caller holds hd_mpi.lock.
 * Always: a piece that failed still passes through all its steps, so that the other ranks do not
 * wait for it. Only the outcome of the operation changes. The messages of one operation are posted
 * in order. A receive posts its next piece after the last one arrived, since only then it knows
 * that the message goes on. Each piece makes a new request. A persistent request would save no time
 * that could be measured, and the program could free its communicator meanwhile.
 */
#ifndef HEDDLE_MPI_PIECE_H
#define HEDDLE_MPI_PIECE_H

#include <heddle/mpi/slot.h>
#include <heddle/mpi/trace.h>

HD_BEGIN_DECLS

/* ---- failures ---- */

/* The first failure of an operation is its outcome. */
static inline void hdmpi_operation_fail(hdmpi_operation *o, hd_status status, const char *why)
{
    if (!o->outcome && status) {
        o->outcome = status;
        o->why = strdup(why);
    }
}

/* A message has another size than its receive. The first piece of a rank with smaller pieces looks
 * like a short message. */
static inline void hdmpi_operation_fail_size(hdmpi_operation *o)
{
    char why[2 * HD_REASON_BYTES];
    const int is_piece = o->posted == 1 && o->arrived >= HDMPI_PIECE_LEAST && o->arrived < o->each;
    const int n = snprintf(why, sizeof why, "%zu bytes came from rank %d with tag %d, instead of %zu; ", o->arrived,
                           o->peer, o->tag, o->out.bytes);
    if (is_piece) {
        snprintf(why + n, sizeof why - (size_t)n, "send as many, and give all ranks one piece_bytes (%zu here, or %zu)",
                 o->each, o->arrived);
    } else {
        snprintf(why + n, sizeof why - (size_t)n, "receive as many bytes as it sends, or pass a status");
    }
    hdmpi_operation_fail(o, HD_ERROR_RANGE, why);
}

/* MPI refused a message, or failed it. */
static inline void hdmpi_operation_fail_mpi(hdmpi_operation *o, size_t bytes, const MPI_Status *status, int code)
{
    static const char *const calls[] = {"MPI_Isend",      "MPI_Irecv",      "MPI_Ibcast",    "MPI_Ireduce",
                                        "MPI_Iallreduce", "MPI_Iallgather", "MPI_Ialltoall", "MPI_Ibarrier"};
    char why[MPI_MAX_ERROR_STRING + HD_REASON_BYTES], text[MPI_MAX_ERROR_STRING];
    int kind = code;
    hdmpi_error_text(code, text);
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE && status && o->kind == HDMPI_RECEIVE) {
        snprintf(why, sizeof why, "a message of more than %zu bytes came from rank %d with tag %d; %s (%s)", bytes,
                 status->MPI_SOURCE, status->MPI_TAG,
                 bytes < o->out.bytes ? "give all ranks one piece_bytes" : "receive as many bytes as it sends", text);
    } else {
        snprintf(why, sizeof why, "%s: %s", calls[o->kind], text);
    }
    hdmpi_operation_fail(o, kind == MPI_ERR_TRUNCATE ? HD_ERROR_RANGE : HD_ERROR_SYSTEM, why);
}

/* ---- requests ---- */

/* Makes room for one more request. 0: no memory. */
static inline int hdmpi_requests_grow(hd_mpi *m)
{
    if (m->requests < m->room) {
        return 1;
    }
    const size_t room = m->room ? 2 * (size_t)m->room : 64;
    MPI_Request *request = (MPI_Request *)realloc(m->request, room * sizeof *request);
    m->request = request ? request : m->request;
    hdmpi_operation **of = (hdmpi_operation **)realloc(m->of_request, room * sizeof *of);
    m->of_request = of ? of : m->of_request;
    hdmpi_piece **piece = (hdmpi_piece **)realloc(m->piece_of_request, room * sizeof *piece);
    m->piece_of_request = piece ? piece : m->piece_of_request;
    int *indices = (int *)realloc(m->indices, room * sizeof *indices);
    m->indices = indices ? indices : m->indices;
    MPI_Status *statuses = (MPI_Status *)realloc(m->statuses, room * sizeof *statuses);
    m->statuses = statuses ? statuses : m->statuses;
    if (!request || !of || !piece || !indices || !statuses) {
        return 0;
    }
    m->room = (int)room;
    return 1;
}

static inline void hdmpi_request_add(hdmpi_operation *o, hdmpi_piece *p, MPI_Request request)
{
    hd_mpi *m = o->mpi;
    p->request = m->requests;
    m->request[m->requests] = request;
    m->of_request[m->requests] = o;
    m->piece_of_request[m->requests] = p;
    m->requests++;
}

/* Removes a request; the last one takes its place. */
static inline void hdmpi_request_remove(hd_mpi *m, int i)
{
    const int last = --m->requests;
    if (i != last) {
        m->request[i] = m->request[last];
        m->of_request[i] = m->of_request[last];
        m->piece_of_request[i] = m->piece_of_request[last];
        m->piece_of_request[i]->request = i;
    }
}

/* ---- the memory of a piece ---- */

/* The bytes of a piece on the side that contains the bytes of all ranks. */
static inline size_t hdmpi_piece_spread(const hdmpi_operation *o, const hdmpi_piece *p)
{
    return p->bytes * (size_t)o->ranks;
}

static inline int hdmpi_in_is_spread(const hdmpi_operation *o)
{
    return o->kind == HDMPI_ALLTOALL;
}

static inline int hdmpi_out_is_spread(const hdmpi_operation *o)
{
    return o->kind == HDMPI_ALLTOALL || o->kind == HDMPI_ALLGATHER;
}

/* The copies of one side of a piece: `n` copies of p->bytes, at the distance `stride` in the
 * claimed bytes. `writes`: from the slot to the claimed bytes. */
static inline hd_status hdmpi_piece_copy(hdmpi_operation *o, hdmpi_piece *p, const hdmpi_side *side, hdmpi_slot *slot,
                                         int spread, int writes)
{
    const size_t n = spread ? (size_t)o->ranks : 1, stride = spread ? side->bytes / n : 0;
    hd_status status = HD_OK;
    p->several = n > 1;
    for (size_t i = 0; i < n && !status; i++) {
        const size_t at = i * stride + p->at, in_slot = i * p->bytes;
        status = writes ? hd_claim_write(o->claim, side->use, at, slot->buffer, in_slot, p->bytes, &p->copied)
                        : hd_claim_read(o->claim, side->use, at, slot->buffer, in_slot, p->bytes, &p->copied);
    }
    return status;
}

/* True if the copies of the piece are done. If a copy failed, the operation fails. */
static inline int hdmpi_piece_is_copied(hdmpi_operation *o, hdmpi_piece *p, hdmpi_slot *slot, int *good)
{
    hd_status status = HD_OK;
    if (p->several) {
        status = hd_buffer_wait(slot->buffer, HD_WRITE, 0);
    } else if (o->mpi->is_inline || hd_done(p->copied)) {
        status = hd_wait(p->copied, 0);
    } else {
        return 0;
    }
    if (status == HD_ERROR_TIMEOUT) {
        return 0;
    }
    if (status) {
        hdmpi_operation_fail(o, status, hd_message());
        *good = 0;
    }
    return 1;
}

/* Counts the slots of a piece as held (`by` 1), or no longer (`by` -1). */
static inline void hdmpi_piece_count(hdmpi_operation *o, hdmpi_piece *p, int by)
{
    hd_mpi *m = o->mpi;
    hdmpi_slot *const both[2] = {p->in, p->out};
    for (int i = 0; i < 2; i++) {
        if (both[i]) {
            hdmpi_slots_for(m, both[i]->bytes)->held += (size_t)by;
            m->held_bytes += o->kind == HDMPI_RECEIVE ? (uint64_t)by * both[i]->bytes : 0;
        }
    }
    p->holds = by > 0;
}

/* MPI is done with the piece, or never gets it. */
static inline void hdmpi_piece_hold_no_more(hdmpi_operation *o, hdmpi_piece *p)
{
    if (p->holds) {
        hdmpi_piece_count(o, p, -1);
    }
}

/* Gives the slots back. */
static inline void hdmpi_piece_end(hdmpi_operation *o, hdmpi_piece *p)
{
    hdmpi_piece_hold_no_more(o, p);
    hdmpi_slot_give(o->mpi, p->in, !o->outcome);
    hdmpi_slot_give(o->mpi, p->out, !o->outcome);
    if (p->send_type != MPI_DATATYPE_NULL) {
        MPI_Type_free(&p->send_type);
    }
    if (p->receive_type != MPI_DATATYPE_NULL) {
        MPI_Type_free(&p->receive_type);
    }
    p->in = p->out = NULL;
    p->send_type = p->receive_type = MPI_DATATYPE_NULL;
    p->step = HDMPI_FREE;
    o->ended++;
    hdmpi_operation_touch(o);
}

/* ---- the begin of a piece ---- */

/* Takes the slots of a piece: both, or none. *taken: 0 if one of them is not there yet. */
static inline hd_status hdmpi_piece_take(hdmpi_operation *o, hdmpi_piece *p, int fill, int drain, int *taken)
{
    hd_mpi *m = o->mpi;
    const size_t in = hdmpi_in_is_spread(o) ? hdmpi_piece_spread(o, p) : p->bytes;
    const size_t out = hdmpi_out_is_spread(o) ? hdmpi_piece_spread(o, p) : p->bytes;
    const int claimant = o->kind != HDMPI_RECEIVE ? HDMPI_MOVES : o->has_message ? HDMPI_FOUND : HDMPI_WAITS;
    if (drain && o->failed && o->kind == HDMPI_RECEIVE) { /* the message must go somewhere */
        p->out = hdmpi_slot_make_spare(out);
        *taken = p->out != NULL;
        return *taken ? HD_OK : hdmpi_fail(HD_ERROR_HOST_MEMORY, "hd_mpi", "no memory for a failed message", 0);
    }
    hd_status status = fill ? hdmpi_slot_take(m, in, claimant, &p->in) : HD_OK;
    if (drain && !status && (!fill || p->in)) {
        status = hdmpi_slot_take(m, out, claimant, &p->out);
    }
    *taken = !status && (!fill || p->in) && (!drain || p->out);
    if (!*taken) {
        hdmpi_slot_give(m, p->in, 1);
        hdmpi_slot_give(m, p->out, 1);
        p->in = p->out = NULL;
    }
    if (*taken && claimant != HDMPI_FOUND) {
        hdmpi_piece_count(o, p, 1);
    }
    return status;
}

/* Takes the slots of a piece, and begins the copy to its slot. Returns HD_OK even if the copy
 * failed: the slot then contains bytes of value 255. *begun: 0 if a slot is not there yet. */
static inline hd_status hdmpi_piece_begin(hdmpi_operation *o, int *begun)
{
    hdmpi_piece *p = &o->piece[o->begun % HDMPI_WINDOW];
    const size_t at = o->begun * o->each;
    const size_t whole = o->in.present ? o->in.bytes : o->out.bytes;
    const size_t side =
        o->kind == HDMPI_ALLTOALL || (o->kind == HDMPI_ALLGATHER && !o->in.present) ? whole / (size_t)o->ranks : whole;
    memset(p, 0, sizeof *p);
    p->send_type = p->receive_type = MPI_DATATYPE_NULL;
    p->at = at;
    p->bytes = at >= side ? 0 : side - at < o->each ? side - at : o->each;
    const int empty = o->kind == HDMPI_SEND && o->failed;
    const int fill = o->in.present && p->bytes && !empty && (!o->in.host || o->uses_cpu_slot || o->failed);
    const int drain = o->out.present && p->bytes && (!o->out.host || o->failed);
    hd_status status = hdmpi_piece_take(o, p, fill, drain, begun);
    if (!*begun) {
        return status;
    }
    p->step = HDMPI_FILLED;
    if (fill) {
        const size_t n = hdmpi_in_is_spread(o) ? hdmpi_piece_spread(o, p) : p->bytes;
        if (o->failed) {
            memset(p->in->host, 0xff, n);
        } else if (o->in.host) {
            memcpy(p->in->host, o->in.host + at, n);
        } else {
            status = hdmpi_piece_copy(o, p, &o->in, p->in, hdmpi_in_is_spread(o), 0);
            p->step = HDMPI_FILLING;
        }
    }
    if (status) {
        hdmpi_operation_fail(o, status, hd_message());
        o->failed = 1;
        memset(p->in->host, 0xff, p->in->bytes);
        p->step = HDMPI_FILLED;
    }
    o->copying += p->step == HDMPI_FILLING;
    o->begun++;
    return HD_OK;
}

/* ---- posting ---- */

/* A type for `bytes` bytes of each rank, at the distance `stride`. */
static inline int hdmpi_type_make(size_t bytes, size_t stride, MPI_Datatype *out)
{
    MPI_Datatype part;
    int code = MPI_Type_contiguous((int)bytes, MPI_BYTE, &part);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = MPI_Type_create_resized(part, 0, (MPI_Aint)stride, out);
    if (code == MPI_SUCCESS) {
        code = MPI_Type_commit(out);
    }
    MPI_Type_free(&part);
    return code;
}

/* Posts an all-to-all or an all-gather. Slots contain the parts of all ranks next to each other. In
 * the program's memory, the distance between two parts is the size of the whole part of a rank. */
static inline int hdmpi_piece_post_spread(hdmpi_operation *o, hdmpi_piece *p, void *from, void *to,
                                          MPI_Request *request)
{
    const int n = (int)p->bytes;
    int code = MPI_SUCCESS, send_count = n, receive_count = n;
    MPI_Datatype send_type = MPI_BYTE, receive_type = MPI_BYTE;
    if (o->kind == HDMPI_ALLTOALL && !p->in && n) {
        code = hdmpi_type_make(p->bytes, o->in.bytes / (size_t)o->ranks, &p->send_type);
        send_type = p->send_type;
        send_count = 1;
    }
    if (!p->out && n && code == MPI_SUCCESS) {
        code = hdmpi_type_make(p->bytes, o->out.bytes / (size_t)o->ranks, &p->receive_type);
        receive_type = p->receive_type;
        receive_count = 1;
    }
    if (code != MPI_SUCCESS) {
        return code;
    }
    return o->kind == HDMPI_ALLTOALL
               ? MPI_Ialltoall(from, send_count, send_type, to, receive_count, receive_type, o->comm, request)
               : MPI_Iallgather(from, n, MPI_BYTE, to, receive_count, receive_type, o->comm, request);
}

/* Gives the piece to MPI. Returns the code of MPI. */
static inline int hdmpi_piece_give(hdmpi_operation *o, hdmpi_piece *p, MPI_Request *request)
{
    const int n = (int)p->bytes, count = o->element ? (int)(p->bytes / o->element) : n;
    void *from = p->in ? p->in->host : o->in.host ? o->in.host + p->at : NULL;
    void *to = p->out ? p->out->host : o->out.host ? o->out.host + p->at : NULL;
    switch (o->kind) {
    case HDMPI_SEND:
        return MPI_Isend(from, o->failed ? 0 : n, MPI_BYTE, o->peer, o->tag, o->comm, request);
    case HDMPI_RECEIVE:
        if (o->has_message) {
            o->has_message = 0;
            return MPI_Imrecv(to, n, MPI_BYTE, &o->message, request);
        }
        return MPI_Irecv(to, n, MPI_BYTE, o->peer, o->tag, o->comm, request);
    case HDMPI_BCAST:
        return MPI_Ibcast(o->is_root ? from : to, n, MPI_BYTE, o->peer, o->comm, request);
    case HDMPI_REDUCE:
        return MPI_Ireduce(from, to, count, o->type, o->op, o->peer, o->comm, request);
    case HDMPI_ALLREDUCE:
        return MPI_Iallreduce(from, to, count, o->type, o->op, o->comm, request);
    case HDMPI_BARRIER:
        return MPI_Ibarrier(o->comm, request);
    default:
        return hdmpi_piece_post_spread(o, p, from, to, request);
    }
}

static inline void hdmpi_piece_post(hdmpi_operation *o, hdmpi_piece *p)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (o->traced.on && !o->posted) {
        hdmpi_trace_post(o);
    }
    const int pushed = hdmpi_context_push(o->mpi, o->in.direct ? o->in.device : o->out.direct ? o->out.device : -1);
    const int code = hdmpi_requests_grow(o->mpi) ? hdmpi_piece_give(o, p, &request) : MPI_ERR_NO_MEM;
    hdmpi_context_pop(o->mpi, pushed);
    o->posted++;
    hdmpi_operation_touch(o);
    if (o->kind == HDMPI_SEND && o->failed) {
        o->stopped = 1; /* the empty message was the last one */
    }
    if (code != MPI_SUCCESS) {
        hdmpi_operation_fail_mpi(o, p->bytes, NULL, code);
        o->failed = o->stopped = 1;
        hdmpi_piece_end(o, p);
        return;
    }
    p->step = HDMPI_POSTED;
    hdmpi_request_add(o, p, request);
}

/* ---- the end of a piece ---- */

/* Looks at a message that arrived. */
static inline void hdmpi_piece_arrive(hdmpi_operation *o, hdmpi_piece *p, MPI_Status *status)
{
    int got = 0;
    MPI_Get_count(status, MPI_BYTE, &got);
    o->arrived += (size_t)got;
    if (o->peer == MPI_ANY_SOURCE) {
        o->peer = status->MPI_SOURCE; /* the other pieces come from the same rank */
    }
    if (o->tag == MPI_ANY_TAG) {
        o->tag = status->MPI_TAG;
    }
    const int last = (size_t)got < o->each || o->posted == o->pieces;
    p->bytes = (size_t)got;
    if (!last) {
        return;
    }
    o->stopped = 1;
    if (o->arrived != o->out.bytes && !o->status && o->peer != MPI_PROC_NULL) {
        hdmpi_operation_fail_size(o);
    }
    if (o->status) {
        const int error = o->status->MPI_ERROR;
        *o->status = *status;
        o->status->MPI_ERROR = error;
    }
    if (o->received) {
        *o->received = o->arrived;
    }
}

/* MPI no longer uses the memory of the piece. */
static inline void hdmpi_piece_complete(hdmpi_operation *o, hdmpi_piece *p, MPI_Status *status, int code)
{
    int cancelled = 0;
    hdmpi_piece_hold_no_more(o, p);
    if (code == MPI_SUCCESS && o->cancelled) {
        MPI_Test_cancelled(status, &cancelled);
    }
    if (code != MPI_SUCCESS || cancelled) {
        if (cancelled) {
            hdmpi_operation_fail(o, HD_ERROR_TIMEOUT, "the receive was cancelled");
        } else {
            hdmpi_operation_fail_mpi(o, p->bytes, status, code);
        }
        o->stopped = 1;
        hdmpi_piece_end(o, p);
        return;
    }
    if (o->kind == HDMPI_RECEIVE) {
        hdmpi_piece_arrive(o, p, status);
    }
    if (!p->out || o->failed || p->bytes == 0) {
        hdmpi_piece_end(o, p);
        return;
    }
    const hd_status copied = hdmpi_piece_copy(o, p, &o->out, p->out, hdmpi_out_is_spread(o), 1);
    if (copied) {
        hdmpi_operation_fail(o, copied, hd_message());
        hdmpi_piece_end(o, p);
        return;
    }
    p->step = HDMPI_DRAINING;
    o->copying++;
}

HD_END_DECLS
#endif
