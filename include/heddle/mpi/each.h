/* heddle/mpi/each.h - part of heddle/mpi.h: collective operations with operands of several devices
 * of a rank (hd_mpi_each).
 *
 * Such an operation consists of copies and kernels between the rank's devices, and of collective
 * operations with one operand. All of them are ordered by the bytes that they use, so these
 * functions submit and never wait.
 *
 * A reduction cuts the bytes into a part for each device (reduce-scatter, then all-gather). Device
 * p combines part p of all devices. MPI combines this part of all ranks, and device p copies the
 * result to the other devices. So all devices and all their links work at the same time.
 *
 * Threads: any.
 * Locks: hd_mpi.lock, while temporary memory enters its list.
 * Always: all checks and allocations come first. Once a call gave one of its operations to MPI, it
 * gives all others to MPI, too, since the other ranks wait for them.
 */
#ifndef HEDDLE_MPI_EACH_H
#define HEDDLE_MPI_EACH_H

#include <heddle/mpi/call.h>

HD_BEGIN_DECLS

#define HDMPI_EACH_MOST 64
/* With fewer bytes for each device, one device does all the work, since a further message would
 * take longer. */
#define HDMPI_EACH_PART 65536

static inline hd_mpi_data hd_mpi_each(const hd_mpi_data *each, size_t n_each)
{
    hd_mpi_data d = hd_mpi_range(NULL, 0, 0);
    d.each = each;
    d.n_each = n_each;
    return d;
}

/* ---- the operands of a call ---- */

typedef struct hdmpi_group {
    hd_mpi *m;
    const char *call;
    size_t n_in, n_out, n_temporary;
    hdmpi_operand in[HDMPI_EACH_MOST], out[HDMPI_EACH_MOST];
    hdmpi_operand temporary[3 * HDMPI_EACH_MOST];
    int posted;     /* MPI got an operation */
    int failed;     /* an operation without data; `last` is its ticket */
    hd_ticket last; /* of the last operation */
} hdmpi_group;

/* Makes the operands of one side. */
static inline hd_status hdmpi_group_add(hdmpi_group *g, const hd_mpi_data *each, size_t n, int reads, hdmpi_operand *to,
                                        size_t *made)
{
    hd_status status = HD_OK;
    for (size_t i = 0; i < n && !status; i++) {
        status = hdmpi_operand_make(g->m, g->call, each[i], reads, &to[i]);
        *made += !status;
        if (!status && to[i].bytes != to[0].bytes) {
            status = hdmpi_fail(HD_ERROR_ARGUMENT, g->call, "operand %lld has another size than the first one",
                                (long long)i);
        }
    }
    return status;
}

/* Gives back all temporary memory, which the object frees after the last operation. If the call
 * succeeded, the elements of tensors leave their temporary memory first. */
static inline hd_status hdmpi_group_end(hdmpi_group *g, hd_status status)
{
    const hd_status unused = g->posted ? HD_OK : status;
    for (size_t i = 0; i < g->n_out; i++) {
        hd_ticket moved = g->last;
        const hd_status unpacked = status ? HD_OK : hdmpi_operand_unpack(g->m, &g->out[i], HD_OK, &moved);
        if (status) {
            hdmpi_operand_drop(g->m, &g->out[i], unused, g->last);
        }
        status = status ? status : unpacked;
    }
    for (size_t i = 0; i < g->n_in; i++) {
        hdmpi_operand_drop(g->m, &g->in[i], unused, g->last);
    }
    for (size_t i = 0; i < g->n_temporary; i++) {
        hdmpi_operand_drop(g->m, &g->temporary[i], unused, g->last);
    }
    free(g);
    return status;
}

/* Makes a group of `n_in` operands that are read and `n_out` that are written. */
static inline hd_status hdmpi_group_make(hd_mpi *m, const char *call, const hd_mpi_data *in, size_t n_in,
                                         const hd_mpi_data *target, size_t n_out, hdmpi_group **out)
{
    if (n_in > HDMPI_EACH_MOST || n_out > HDMPI_EACH_MOST || n_in + n_out == 0) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "hd_mpi_each with %lld operands; pass 1 to 64",
                          (long long)(n_in > n_out ? n_in : n_out));
    }
    const hd_ticket none = {NULL, 0};
    hdmpi_group *g = (hdmpi_group *)malloc(sizeof *g); /* operands are set when they are added */
    if (!g) {
        return hdmpi_fail(HD_ERROR_HOST_MEMORY, call, "no memory for the operands", 0);
    }
    g->m = m;
    g->call = call;
    g->n_in = g->n_out = g->n_temporary = 0;
    g->posted = g->failed = 0;
    g->last = none;
    hd_status status = hdmpi_group_add(g, in, n_in, 1, g->in, &g->n_in);
    status = status ? status : hdmpi_group_add(g, target, n_out, 0, g->out, &g->n_out);
    if (status) {
        return hdmpi_group_end(g, status);
    }
    *out = g;
    return HD_OK;
}

/* Makes temporary memory on the device of `like`. The group frees it after the last operation. */
static inline hd_status hdmpi_group_alloc(hdmpi_group *g, const hdmpi_operand *like, size_t bytes, hdmpi_operand **out)
{
    const int device = hd_buffer_device(like->buffer);
    hdmpi_operand *o = &g->temporary[g->n_temporary];
    const hd_status status = hdmpi_operand_alloc(g->m, g->call, device < 0 ? 0 : device, bytes ? bytes : 1, o);
    if (status) {
        return status;
    }
    g->n_temporary++;
    *out = o;
    return HD_OK;
}

/* The ticket of everything that was submitted: a claim that reads all results. The program does not
 * get this claim. */
static inline hd_status hdmpi_group_join(hdmpi_group *g)
{
    hd_arg uses[HDMPI_EACH_MOST];
    hd_claim *claim = NULL;
    hd_claim_options options;
    size_t n = 0;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.label = "results of several devices";
    for (size_t i = 0; i < g->n_out; i++) {
        if (g->out[i].bytes) {
            uses[n++] = hdmpi_operand_use(&g->out[i], HD_READ);
        }
    }
    if (n == 0) {
        return HD_OK;
    }
    const hd_status status = hd_claim_begin_with(g->m->runtime, uses, n, &options, &claim);
    if (!status) {
        hd_claim_get_ticket(claim, &g->last);
        hd_claim_end(claim, HD_OK);
    }
    return status;
}

/* The end of a successful call. */
static inline hd_status hdmpi_group_finish(hdmpi_group *g, hd_status status, hd_ticket *out)
{
    if (!status && !g->failed) {
        status = hdmpi_group_join(g);
    }
    const hd_ticket last = g->last;
    status = hdmpi_group_end(g, status);
    hdmpi_ticket_give(out, last, status);
    return status;
}

/* Refuses operands that overlap. `pairs`: the operands with the same number may be the same
 * bytes. */
static inline hd_status hdmpi_group_check(const hdmpi_group *g, int pairs)
{
    for (size_t i = 0; i < g->n_out; i++) {
        for (size_t j = 0; j < g->n_out; j++) {
            if (j < i && hdmpi_operands_overlap(&g->out[j], &g->out[i])) {
                return hdmpi_fail(HD_ERROR_ARGUMENT, g->call, "operand %lld of `received` overlaps an earlier one",
                                  (long long)i);
            }
        }
        for (size_t j = 0; j < g->n_in; j++) {
            const int same = pairs && i == j && g->in[j].offset == g->out[i].offset;
            if (!same && hdmpi_operands_overlap(&g->in[j], &g->out[i])) {
                return hdmpi_fail(HD_ERROR_ARGUMENT, g->call, "operand %lld of `received` overlaps one of `sent`",
                                  (long long)i);
            }
        }
    }
    return HD_OK;
}

static inline hd_status hdmpi_operand_copy(const hdmpi_operand *to, size_t to_at, const hdmpi_operand *from,
                                           size_t from_at, size_t bytes)
{
    if (!bytes || (to->buffer == from->buffer && to->offset + to_at == from->offset + from_at)) {
        return HD_OK;
    }
    return hd_copy(to->buffer, to->offset + to_at, from->buffer, from->offset + from_at, bytes, NULL);
}

/* ---- reductions ---- */

/* A reduction of several devices. */
typedef struct hdmpi_reduction_plan {
    int kind, root, is_root, ranks;
    MPI_Comm comm;
    hd_type type;
    MPI_Op op;
    hd_kernel *combine;
    uint32_t combine_op;
    size_t element, parts, part; /* bytes of a part; the last one may be shorter */
} hdmpi_reduction_plan;

/* The number of the operation in hd_combine_TYPE (heddle/module.h); -1: there is none. */
static inline int hdmpi_combine_number(MPI_Op op)
{
    const MPI_Op known[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_BAND,
                            MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
        if (known[i] == op) {
            return i;
        }
    }
    return -1;
}

/* Finds the kernel that combines elements of two devices. */
static inline hd_status hdmpi_plan_kernel(hd_mpi *m, const char *call, hdmpi_reduction_plan *p)
{
    char name[32];
    hd_module *module = NULL;
    const int op = hdmpi_combine_number(p->op), complex = p->type == HD_TYPE_C64 || p->type == HD_TYPE_C128;
    const int real = complex || p->type == HD_TYPE_F32 || p->type == HD_TYPE_F64;
    if (op < 0 || (complex && op > 0) || (real && op > 3)) {
        return hdmpi_fail(HD_ERROR_UNSUPPORTED, call,
                          "devices cannot combine such elements with this operation; combine them in one buffer, and "
                          "pass it without hd_mpi_each",
                          0);
    }
    const hd_type type = p->type == HD_TYPE_C64 ? HD_TYPE_F32 : p->type == HD_TYPE_C128 ? HD_TYPE_F64 : p->type;
    snprintf(name, sizeof name, "hd_combine_%s", hd_type_name(type));
    p->element = hd_type_size(type);
    p->combine_op = (uint32_t)op;
    const hd_status status = hd_module_get_builtin(m->runtime, &module);
    return status ? status : hd_kernel_get(module, name, &p->combine);
}

/* Combines the bytes of all sent operands, from `at` on, in `to`. Begins with operand `first`.
 * `other` is two pieces of temporary memory, which the bytes of the other devices use in turn. */
static inline hd_status hdmpi_group_combine(const hdmpi_group *g, const hdmpi_reduction_plan *p, size_t first,
                                            size_t at, const hdmpi_operand *to, hdmpi_operand *const *other)
{
    const size_t bytes = to->bytes;
    const uint64_t n = bytes / p->element;
    hd_dims grid, block;
    hd_lane *lane = NULL;
    memset(&grid, 0, sizeof grid);
    memset(&block, 0, sizeof block);
    block.x = 256;
    grid.x = (uint32_t)((n + 255) / 256);
    const int device = hd_buffer_device(to->buffer);
    hd_status status = hdmpi_operand_copy(to, 0, &g->in[first], at, bytes);
    if (status || !bytes) {
        return status;
    }
    /* a lane of its own, so that the kernels wait for no other work */
    status = hd_lane_create(g->m->runtime, device < 0 ? 0 : device, &lane);
    for (size_t k = 1; k < g->n_in && !status; k++) {
        const hdmpi_operand *x = other[k % 2];
        status = hdmpi_operand_copy(x, 0, &g->in[(first + k) % g->n_in], at, bytes);
        const hd_arg args[] = {hd_arg_buffer(to->buffer, HD_READ_WRITE, to->offset, bytes),
                               hd_arg_buffer(x->buffer, HD_READ, 0, bytes), hd_u64(n), hd_u32(p->combine_op)};
        status = status ? status : hd_launch(lane, p->combine, grid, block, 0, args, 4, NULL);
    }
    hd_lane_destroy(lane);
    return status;
}

/* HD_OK: after this failure between the devices, MPI can still do its part, without data. It must
 * do its part if other ranks may wait for it. */
static inline hd_status hdmpi_group_refuses(const hdmpi_group *g, hd_status status)
{
    return g->posted || hdmpi_is_failed_data(status) ? HD_OK : status;
}

/* An operation was given to MPI. The ticket of the first failed one stays the ticket of the
 * call. */
static inline void hdmpi_group_post(hdmpi_group *g, hd_status why, hd_ticket ticket)
{
    g->posted = 1;
    g->last = g->failed ? g->last : ticket;
    g->failed |= why != HD_OK;
}

/* Submits one part: its steps between the devices before MPI, MPI, and those after it. memory[2] is
 * the result of a reduction to one rank. */
static inline hd_status hdmpi_group_reduce_part(hdmpi_group *g, const hdmpi_reduction_plan *p, size_t part,
                                                hdmpi_operand *const *memory)
{
    const size_t at = part * p->part, all = g->in[0].bytes;
    const size_t bytes = at >= all ? 0 : all - at < p->part ? all - at : p->part;
    const int to_all = p->kind == HDMPI_ALLREDUCE;
    hdmpi_operand to = to_all ? g->out[part] : *memory[2];
    hdmpi_operation o;
    hd_ticket ticket = {NULL, 0};
    to.offset += to_all ? at : 0;
    to.bytes = bytes;
    const hd_status why = hdmpi_group_combine(g, p, part, at, &to, memory);
    hd_status status = hdmpi_group_refuses(g, why);
    if (status) {
        return status;
    }
    hdmpi_operation_init(&o, g->m, p->kind, p->comm, p->root);
    hdmpi_operation_set_reduction(&o, p->type, p->op, p->ranks, p->is_root);
    o.outcome = why;
    o.failed = why != HD_OK;
    status = hdmpi_reduction_submit(g->m, &o, &to, to_all || p->is_root ? &to : NULL, &ticket);
    if (status) {
        return status;
    }
    hdmpi_group_post(g, why, ticket);
    for (size_t j = 0; j < g->n_out && !status; j++) {
        status = hdmpi_operand_copy(&g->out[j], at, &to, 0, bytes);
    }
    return status;
}

static inline hd_status hdmpi_group_reduce(hdmpi_group *g, hdmpi_reduction_plan *p)
{
    hdmpi_operand *memory[3 * HDMPI_EACH_MOST] = {NULL};
    const size_t n = g->n_in, all = g->in[0].bytes;
    hd_status status = HD_OK, outcome = HD_OK;
    p->parts = all / n >= HDMPI_EACH_PART ? n : 1;
    p->part = ((all + p->parts - 1) / p->parts + 15) / 16 * 16;
    for (size_t i = 0; i < p->parts && !status; i++) {
        const hdmpi_operand *like = p->kind == HDMPI_ALLREDUCE ? &g->out[i] : &g->in[i];
        hdmpi_operand **of = &memory[3 * i];
        status = n > 1 ? hdmpi_group_alloc(g, like, p->part, &of[1]) : HD_OK;
        of[0] = of[1];
        if (!status && n > 2) {
            status = hdmpi_group_alloc(g, like, p->part, &of[0]);
        }
        if (!status && p->kind == HDMPI_REDUCE) {
            status = hdmpi_group_alloc(g, like, p->part, &of[2]);
        }
    }
    for (size_t i = 0; i < p->parts && (!status || g->posted); i++) {
        status = hdmpi_group_reduce_part(g, p, i, &memory[3 * i]);
        outcome = outcome ? outcome : status;
    }
    return outcome ? outcome : status;
}

static inline hd_status hdmpi_each_reduce(hd_mpi *m, const char *call, int kind, hd_mpi_data sent, hd_mpi_data received,
                                          hd_type type, MPI_Op op, int root, MPI_Comm comm, hd_ticket *out)
{
    int rank = 0;
    hdmpi_group *g = NULL;
    hdmpi_reduction_plan p;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.root = root;
    p.comm = comm;
    p.type = type;
    p.op = op;
    hdmpi_lock(m);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &p.ranks);
    hdmpi_unlock(m);
    p.is_root = rank == root;
    const int to_all = kind == HDMPI_ALLREDUCE;
    const size_t n_out = to_all ? received.n_each : (size_t)p.is_root;
    if ((to_all && received.n_each != sent.n_each) || (p.is_root && !to_all && received.each)) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call,
                          to_all ? "`sent` consists of %lld operands; pass as many for `received`"
                                 : "`sent` consists of %lld operands; pass one operand for `received`",
                          (long long)sent.n_each);
    }
    hd_status status = hdmpi_plan_kernel(m, call, &p);
    for (size_t i = 0; i < sent.n_each && sent.n_each <= HDMPI_EACH_MOST && !status; i++) {
        status = hdmpi_type_check(call, &sent.each[i], type);
        status = status || !to_all ? status : hdmpi_type_check(call, &received.each[i], type);
    }
    status = status ? status
                    : hdmpi_group_make(m, call, sent.each, sent.n_each, to_all ? received.each : &received, n_out, &g);
    if (status) {
        return status;
    }
    for (size_t i = 0; i < g->n_in && !status; i++) {
        status = hdmpi_reduction_check(call, &g->in[i], g->n_out == 0 ? NULL : &g->out[to_all ? i : 0], type);
    }
    status = status || !to_all ? status : hdmpi_group_check(g, 1);
    status = status ? status : hdmpi_group_reduce(g, &p);
    return hdmpi_group_finish(g, status, out);
}

/* ---- the other operations ---- */

static inline hd_status hdmpi_each_bcast(hd_mpi *m, hd_mpi_data data, int root, MPI_Comm comm, hd_ticket *out)
{
    static const char call[] = "hd_mpi_bcast";
    int rank = 0;
    hdmpi_group *g = NULL;
    hdmpi_lock(m);
    MPI_Comm_rank(comm, &rank);
    hdmpi_unlock(m);
    const size_t is_root = rank == root && data.n_each;
    hd_status status = hdmpi_group_make(m, call, data.each, is_root, data.each + is_root, data.n_each - is_root, &g);
    if (status) {
        return status;
    }
    const hdmpi_operand *first = is_root ? &g->in[0] : &g->out[0];
    if (is_root && g->n_out && g->out[0].bytes != first->bytes) {
        status = hdmpi_fail(HD_ERROR_ARGUMENT, call, "the operands have different sizes", 0);
    }
    status = status ? status : hdmpi_group_check(g, 0);
    if (!status) {
        status = hd_mpi_bcast(m, hd_mpi_range(first->buffer, first->offset, first->bytes), root, comm, &g->last);
        g->posted = !status;
    }
    for (size_t i = 0; i < g->n_out && !status; i++) {
        status = hdmpi_operand_copy(&g->out[i], 0, first, 0, first->bytes);
    }
    return hdmpi_group_finish(g, status, out);
}

/* Gives MPI an operation with temporary memory. `why` is the outcome of the copies to it. */
static inline hd_status hdmpi_group_exchange(hdmpi_group *g, int kind, int ranks, MPI_Comm comm, hd_status why,
                                             hdmpi_operand *in, size_t bytes, hdmpi_operand *target)
{
    hd_ticket ticket = {NULL, 0};
    hdmpi_operand from = *in, to = *target;
    from.bytes = bytes; /* the memory may be larger, since a buffer is not empty */
    to.bytes = kind == HDMPI_ALLTOALL ? bytes : to.bytes;
    hd_status status = hdmpi_group_refuses(g, why);
    status = status ? status : hdmpi_exchange_submit(g->m, kind, ranks, comm, why, &from, &to, &ticket);
    if (!status) {
        hdmpi_group_post(g, why, ticket);
    }
    return status;
}

/* An all-gather: the sent operands lie next to each other in temporary memory. */
static inline hd_status hdmpi_group_allgather(hdmpi_group *g, int ranks, MPI_Comm comm)
{
    hdmpi_operand *all = NULL;
    const size_t bytes = g->in[0].bytes;
    hd_status status = hdmpi_group_alloc(g, &g->out[0], g->n_in * bytes, &all);
    for (size_t i = 0; i < g->n_in && !status; i++) {
        status = hdmpi_operand_copy(all, i * bytes, &g->in[i], 0, bytes);
    }
    status = hdmpi_group_exchange(g, HDMPI_ALLGATHER, ranks, comm, status, all, g->n_in * bytes, &g->out[0]);
    for (size_t i = 1; i < g->n_out && !status; i++) {
        status = hdmpi_operand_copy(&g->out[i], 0, &g->out[0], 0, g->out[0].bytes);
    }
    return status;
}

/* Copies parts between an operand and temporary memory. In the operand, the parts lie in the order
 * of the participants. The temporary memory is ranks x n x n parts. `offset` and `stride` choose a
 * row or a column of each block of n x n parts. */
static inline hd_status hdmpi_operand_shuffle(const hdmpi_operand *o, const hdmpi_operand *memory, uint64_t ranks,
                                              uint64_t n, size_t part, size_t offset, int64_t stride, int gathers)
{
    const uint64_t shape[] = {ranks, n, part};
    const int64_t step = (int64_t)part;
    const int64_t spread[] = {(int64_t)(n * n) * step, stride, 1};
    hd_tensor dense, apart;
    hd_status status = hd_tensor_make(o->buffer, o->offset, HD_TYPE_U8, 3, shape, &dense);
    status = status ? status : hd_tensor_make_strided(memory->buffer, offset, HD_TYPE_U8, 3, shape, spread, &apart);
    return status ? status : gathers ? hd_tensor_copy(&apart, &dense, NULL) : hd_tensor_copy(&dense, &apart, NULL);
}

/* An all-to-all: in the message for a rank, part (i, j) goes from operand i to operand j. */
static inline hd_status hdmpi_group_alltoall(hdmpi_group *g, int ranks, MPI_Comm comm)
{
    hdmpi_operand *from = NULL, *to = NULL;
    const size_t n = g->n_in, all = n * g->in[0].bytes, part = g->in[0].bytes / (n * (size_t)ranks);
    hd_status status = hdmpi_group_alloc(g, &g->out[0], all, &from);
    status = status ? status : hdmpi_group_alloc(g, &g->out[0], all, &to);
    for (size_t i = 0; i < n && !status && part; i++) {
        status = hdmpi_operand_shuffle(&g->in[i], from, (uint64_t)ranks, n, part, i * n * part, (int64_t)part, 1);
    }
    status = hdmpi_group_exchange(g, HDMPI_ALLTOALL, ranks, comm, status, from, all, to);
    for (size_t j = 0; j < n && !status && part; j++) {
        status = hdmpi_operand_shuffle(&g->out[j], to, (uint64_t)ranks, n, part, j * part, (int64_t)(n * part), 0);
    }
    return status;
}

static inline hd_status hdmpi_each_exchange(hd_mpi *m, const char *call, int kind, hd_mpi_data sent,
                                            hd_mpi_data received, MPI_Comm comm, hd_ticket *out)
{
    int ranks = 0;
    hdmpi_group *g = NULL;
    if (sent.n_each != received.n_each) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "`sent` consists of %lld operands; pass as many for `received`",
                          (long long)sent.n_each);
    }
    hd_status status = hdmpi_group_make(m, call, sent.each, sent.n_each, received.each, received.n_each, &g);
    if (status) {
        return status;
    }
    hdmpi_lock(m);
    MPI_Comm_size(comm, &ranks);
    hdmpi_unlock(m);
    const size_t participants = g->n_in * (size_t)ranks, bytes = g->in[0].bytes;
    const size_t wanted = kind == HDMPI_ALLGATHER ? participants * bytes : bytes;
    if (g->out[0].bytes != wanted || (kind == HDMPI_ALLTOALL && bytes % participants)) {
        status =
            hdmpi_fail(HD_ERROR_ARGUMENT, call,
                       kind == HDMPI_ALLGATHER ? "an operand of `received` must have %lld bytes, those of all "
                                                 "operands of all ranks"
                                               : "an operand of `sent` has %lld bytes; one of `received` must have "
                                                 "the same number, a multiple of the number of all operands",
                       (long long)wanted);
    }
    status = status ? status : hdmpi_group_check(g, 0);
    if (!status) {
        status = kind == HDMPI_ALLGATHER ? hdmpi_group_allgather(g, ranks, comm) : hdmpi_group_alltoall(g, ranks, comm);
    }
    return hdmpi_group_finish(g, status, out);
}

HD_END_DECLS
#endif
