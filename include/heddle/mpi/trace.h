/* heddle/mpi/trace.h - part of heddle/mpi.h: the messages in a rank's trace, and the clocks of the
 * ranks.
 *
 * MPI gives a communicator no number that is equal on all of its ranks. So the number in the trace
 * is made of the communicator's ranks, its name, and how many such communicators the link used
 * before.
 *
 * Threads: the caller holds hd_mpi.lock, except for hd_mpi_trace_clock.
 * Blocking: hd_mpi_trace_clock waits for the other ranks.
 * Always: while the runtime writes no trace, an operation costs one call of hd_trace_active.
 */
#ifndef HEDDLE_MPI_TRACE_H
#define HEDDLE_MPI_TRACE_H

#include <heddle/mpi/operation.h>

HD_BEGIN_DECLS

/* Round trips from rank 0 to each other rank: at most this many, until one took less than
 * HDMPI_CLOCK_NS. On a busy machine, most of them take long. */
#define HDMPI_CLOCK_LEAST 16
#define HDMPI_CLOCK_MOST 128
#define HDMPI_CLOCK_NS 20000

/* A communicator that a traced operation used. It stays until the link is closed. */
struct hdmpi_traced_comm {
    struct hdmpi_traced_comm *next;
    uint32_t ranks_hash; /* of its ranks and its name */
    uint32_t number;     /* as in the trace */
    int peers;
    int *world; /* the ranks of MPI_COMM_WORLD for the ranks that messages can go to; -1: none */
};

struct hdmpi_tracer {
    int keyval; /* of a communicator's hdmpi_traced_comm */
    struct hdmpi_traced_comm *comms;
    uint32_t order; /* messages posted so far */
};

/* ---- communicators ---- */

/* FNV-1a with 32 bits. */
static inline uint32_t hdmpi_hash(uint32_t hash, const void *bytes, size_t n)
{
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ at[i]) * 16777619u;
    }
    return hash;
}

/* Translates the ranks of a group to those of MPI_COMM_WORLD. The caller frees *world. Returns
 * their number; 0: no memory, or MPI failed. */
static inline int hdmpi_group_world(MPI_Group group, int **world)
{
    MPI_Group all;
    int n = 0;
    if (MPI_Group_size(group, &n) != MPI_SUCCESS || n <= 0) {
        return 0;
    }
    int *ranks = (int *)malloc((size_t)n * sizeof *ranks);
    *world = (int *)malloc((size_t)n * sizeof **world);
    int good = ranks && *world && MPI_Comm_group(MPI_COMM_WORLD, &all) == MPI_SUCCESS;
    for (int i = 0; good && i < n; i++) {
        ranks[i] = i;
    }
    if (good) {
        good = MPI_Group_translate_ranks(group, n, ranks, all, *world) == MPI_SUCCESS;
        MPI_Group_free(&all);
    }
    free(ranks);
    for (int i = 0; good && i < n; i++) {
        (*world)[i] = (*world)[i] == MPI_UNDEFINED ? -1 : (*world)[i];
    }
    if (!good) {
        free(*world);
        *world = NULL;
    }
    return good ? n : 0;
}

/* Fills in the ranks of a communicator. The two sides of an intercommunicator get one hash. */
static inline void hdmpi_traced_comm_fill(struct hdmpi_traced_comm *c, MPI_Comm comm)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int inter = 0, length = 0, *own = NULL;
    MPI_Group group = MPI_GROUP_NULL, remote = MPI_GROUP_NULL;
    MPI_Comm_test_inter(comm, &inter);
    if (MPI_Comm_group(comm, &group) == MPI_SUCCESS) {
        const int n = hdmpi_group_world(group, &own);
        c->ranks_hash = hdmpi_hash(2166136261u, own, (size_t)n * sizeof *own);
        c->peers = n;
        c->world = own;
        MPI_Group_free(&group);
    }
    if (inter && MPI_Comm_remote_group(comm, &remote) == MPI_SUCCESS) {
        free(own);
        c->world = NULL;
        c->peers = hdmpi_group_world(remote, &c->world);
        c->ranks_hash += hdmpi_hash(2166136261u, c->world, (size_t)c->peers * sizeof *c->world);
        MPI_Group_free(&remote);
    }
    if (MPI_Comm_get_name(comm, name, &length) == MPI_SUCCESS) {
        c->ranks_hash = hdmpi_hash(c->ranks_hash, name, strlen(name));
    }
}

/* Finds the communicator, or adds it. NULL: no memory, or MPI failed. */
static inline struct hdmpi_traced_comm *hdmpi_traced_comm_of(hd_mpi *m, MPI_Comm comm)
{
    struct hdmpi_tracer *t = m->tracer;
    void *seen = NULL;
    int found = 0;
    if (!t) {
        t = (struct hdmpi_tracer *)calloc(1, sizeof *t);
        if (!t) {
            return NULL;
        }
        if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &t->keyval, NULL) != MPI_SUCCESS) {
            free(t);
            return NULL;
        }
        m->tracer = t;
    }
    if (MPI_Comm_get_attr(comm, t->keyval, &seen, &found) == MPI_SUCCESS && found) {
        return (struct hdmpi_traced_comm *)seen;
    }
    struct hdmpi_traced_comm *c = (struct hdmpi_traced_comm *)calloc(1, sizeof *c);
    if (!c) {
        return NULL;
    }
    hdmpi_traced_comm_fill(c, comm);
    uint32_t same = 0;
    for (const struct hdmpi_traced_comm *e = t->comms; e; e = e->next) {
        same += e->ranks_hash == c->ranks_hash;
    }
    c->number = hdmpi_hash(c->ranks_hash, &same, sizeof same);
    c->next = t->comms;
    t->comms = c;
    MPI_Comm_set_attr(comm, t->keyval, c);
    return c;
}

static inline void hdmpi_tracer_release(hd_mpi *m)
{
    struct hdmpi_tracer *t = m->tracer;
    m->tracer = NULL;
    if (!t) {
        return;
    }
    while (t->comms) {
        struct hdmpi_traced_comm *c = t->comms;
        t->comms = c->next;
        free(c->world);
        free(c);
    }
    if (!hdmpi_link_is_finalized(m)) {
        MPI_Comm_free_keyval(&t->keyval);
    }
    free(t);
}

/* ---- operations ---- */

/* The claim of the operation began. */
static inline void hdmpi_trace_begin(hdmpi_operation *o, hd_ticket ticket)
{
    o->traced.on = hd_trace_active(o->mpi->runtime) && o->peer != MPI_PROC_NULL;
    o->traced.ticket = ticket;
}

/* The first message of the operation is about to be posted. */
static inline void hdmpi_trace_post(hdmpi_operation *o)
{
    hd_mpi *m = o->mpi;
    o->traced.comm = hdmpi_traced_comm_of(m, o->comm);
    o->traced.on = o->traced.comm != NULL;
    if (o->traced.on) {
        o->traced.order = ++m->tracer->order;
        o->traced.posted = hdmpi_now();
    }
}

/* The operation is over. */
static inline void hdmpi_trace_end(const hdmpi_operation *o)
{
    static const hd_trace_message_kind kinds[] = {HD_TRACE_SEND,     HD_TRACE_RECV,      HD_TRACE_BCAST,
                                                  HD_TRACE_REDUCE,   HD_TRACE_ALLREDUCE, HD_TRACE_ALLGATHER,
                                                  HD_TRACE_ALLTOALL, HD_TRACE_BARRIER};
    hd_trace_message message;
    memset(&message, 0, sizeof message);
    const struct hdmpi_traced_comm *c = o->traced.comm;
    const int rooted = o->kind <= HDMPI_REDUCE;
    message.size = sizeof message;
    message.kind = kinds[o->kind];
    message.failed = o->outcome != HD_OK;
    message.ticket = o->traced.ticket;
    message.peer = rooted && o->peer >= 0 && o->peer < c->peers ? c->world[o->peer] : -1;
    message.tag = o->tag;
    message.communicator = c->number;
    /* a cancelled receive took no message from its sender */
    message.order = o->kind == HDMPI_RECEIVE && o->cancelled && !o->arrived ? 0 : o->traced.order;
    message.bytes = o->kind == HDMPI_RECEIVE ? o->arrived : o->in.present ? o->in.bytes : o->out.bytes;
    message.ready_ns = o->traced.ready < o->traced.posted ? o->traced.ready : o->traced.posted;
    message.posted_ns = o->traced.posted;
    message.ended_ns = hdmpi_now();
    hd_trace_add_message(o->mpi->runtime, &message);
}

/* ---- clocks ---- */

typedef struct hdmpi_clock {
    int64_t offset, within; /* as in hd_trace_rank */
    uint64_t run;
} hdmpi_clock;

/* Rank 0: compares its clock with that of a rank, by Cristian's algorithm (1989). The other rank
 * reads its clock within a round trip, so half of the shortest round trip bounds the error. */
static inline int hdmpi_clock_ask(MPI_Comm comm, int rank, hdmpi_clock *out)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < HDMPI_CLOCK_LEAST || (best > HDMPI_CLOCK_NS && i < HDMPI_CLOCK_MOST); i++) {
        int64_t there = 0;
        const int64_t before = hdmpi_now();
        int code = MPI_Send(&before, 1, MPI_INT64_T, rank, 0, comm);
        code = code == MPI_SUCCESS ? MPI_Recv(&there, 1, MPI_INT64_T, rank, 0, comm, MPI_STATUS_IGNORE) : code;
        const int64_t took = hdmpi_now() - before;
        if (code != MPI_SUCCESS) {
            return code;
        }
        if (took < best) {
            best = took;
            out->offset = before + took / 2 - there;
            out->within = took / 2 + 1;
        }
    }
    const int64_t enough = 0;
    const int code = MPI_Send(&enough, 1, MPI_INT64_T, rank, 0, comm);
    return code == MPI_SUCCESS ? MPI_Send(out, (int)sizeof *out, MPI_BYTE, rank, 0, comm) : code;
}

/* The other ranks: answer questions until a question is 0, and then get the result. */
static inline int hdmpi_clock_answer(MPI_Comm comm, hdmpi_clock *out)
{
    int64_t question = 1;
    while (question) {
        int code = MPI_Recv(&question, 1, MPI_INT64_T, 0, 0, comm, MPI_STATUS_IGNORE);
        const int64_t now = hdmpi_now();
        if (code == MPI_SUCCESS && question) {
            code = MPI_Send(&now, 1, MPI_INT64_T, 0, 0, comm);
        }
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_Recv(out, (int)sizeof *out, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE);
}

/* Measures the clocks of all ranks of a communicator. Returns the code of MPI. */
static inline int hdmpi_clock_measure(MPI_Comm comm, hdmpi_clock *out)
{
    MPI_Comm own; /* no message of the program can meet those below */
    int rank = 0, ranks = 1;
    memset(out, 0, sizeof *out);
    int code = MPI_Comm_dup(comm, &own);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Comm_rank(own, &rank);
    MPI_Comm_size(own, &ranks);
    if (rank == 0) {
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        const uint64_t seed[2] = {(uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec, (uint64_t)hdmpi_now()};
        hdmpi_clock one;
        memset(&one, 0, sizeof one);
        one.run = (uint64_t)hdmpi_hash(2166136261u, seed, sizeof seed) << 32 | hdmpi_hash(84696351u, seed, sizeof seed);
        out->run = one.run;
        for (int r = 1; r < ranks && code == MPI_SUCCESS; r++) {
            code = hdmpi_clock_ask(own, r, &one);
        }
    } else {
        code = hdmpi_clock_answer(own, out);
    }
    MPI_Comm_free(&own);
    return code;
}

/* Measures the clocks, and tells the runtime's trace. Returns the code of MPI. *status (may be
 * NULL): the outcome of hd_trace_set_rank. */
static inline int hdmpi_clock_tell(MPI_Comm comm, hd_runtime *runtime, hd_status *status)
{
    hdmpi_clock clock;
    hd_trace_rank place;
    const int code = hdmpi_clock_measure(comm, &clock);
    if (code != MPI_SUCCESS) {
        return code;
    }
    memset(&place, 0, sizeof place);
    place.size = sizeof place;
    MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place.ranks);
    place.run = clock.run;
    place.offset_ns = clock.offset;
    place.within_ns = clock.within;
    const hd_status told = hd_trace_set_rank(runtime, &place);
    if (status) {
        *status = told;
    }
    return MPI_SUCCESS;
}

static inline hd_status hd_mpi_trace_clock(MPI_Comm comm, hd_runtime *runtime)
{
    static const char call[] = "hd_mpi_trace_clock";
    hd_status status = HD_OK;
    if (comm == MPI_COMM_NULL) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "the communicator is MPI_COMM_NULL", 0);
    }
    const int code = hdmpi_clock_tell(comm, runtime, &status);
    return code == MPI_SUCCESS ? status : hdmpi_fail_mpi(call, "a message for the clock", code);
}

HD_END_DECLS
#endif
