/* heddle/mpi/call.h - part of heddle/mpi.h: the calls that submit operations.
 *
 * Threads: any.
 * Locks: hd_mpi.lock, while the operation enters the list.
 * Always: all checks come before the claim begins, so a refused call changes nothing.
 */
#ifndef HEDDLE_MPI_CALL_H
#define HEDDLE_MPI_CALL_H

#include <heddle/mpi/link.h>
#include <heddle/mpi/progress.h>

HD_BEGIN_DECLS

/* ---- operands ---- */

static inline hd_mpi_data hd_mpi_range(hd_buffer *buffer, size_t offset, size_t bytes)
{
    hd_mpi_data d;
    memset(&d, 0, sizeof d);
    d.buffer = buffer;
    d.offset = offset;
    d.bytes = bytes;
    return d;
}

static inline hd_mpi_data hd_mpi_buffer(hd_buffer *buffer)
{
    return hd_mpi_range(buffer, 0, hd_buffer_size(buffer));
}

static inline hd_mpi_data hd_mpi_tensor(const hd_tensor *tensor)
{
    hd_mpi_data d = hd_mpi_range(tensor ? tensor->buffer : NULL, tensor ? tensor->offset : 0, 0);
    d.tensor = tensor;
    return d;
}

/* An operand as bytes of a buffer. */
typedef struct hdmpi_operand {
    hd_buffer *buffer;
    size_t offset, bytes;
    hdmpi_temporary *temporary; /* not NULL: `buffer` is temporary memory */
    const hd_tensor *tensor;    /* not NULL: that memory is for the elements of this tensor */
    hd_tensor packed;           /* the tensor over the temporary memory */
} hdmpi_operand;

/* Makes temporary memory on a device, or pinned memory if `device` is below 0. */
static inline hd_status hdmpi_operand_alloc(hd_mpi *m, const char *call, int device, size_t bytes, hdmpi_operand *o)
{
    hd_lane *lane = NULL;
    hd_status status;
    memset(o, 0, sizeof *o);
    o->bytes = bytes;
    o->temporary = (hdmpi_temporary *)malloc(sizeof *o->temporary);
    if (!o->temporary) {
        return hdmpi_fail(HD_ERROR_HOST_MEMORY, call, "no memory for an operand", 0);
    }
    if (device < 0) {
        status = hd_alloc_host(m->runtime, bytes, &o->buffer);
    } else {
        status = hd_lane_get_default(m->runtime, device, &lane);
        status = status ? status : hd_alloc(lane, bytes, &o->buffer);
    }
    o->temporary->buffer = o->buffer;
    if (status) {
        free(o->temporary);
        o->temporary = NULL;
    }
    return status;
}

/* Makes temporary memory for the elements of a tensor, on the device of the tensor. */
static inline hd_status hdmpi_operand_pack(hd_mpi *m, const char *call, hdmpi_operand *o, const hd_tensor *t)
{
    hd_status status = hdmpi_operand_alloc(m, call, hd_buffer_device(t->buffer), o->bytes, o);
    if (status) {
        return status;
    }
    status = hd_tensor_make(o->buffer, 0, t->type, t->dims, t->shape, &o->packed);
    if (status) {
        hd_free(o->buffer);
        free(o->temporary);
        return status;
    }
    o->tensor = t;
    return HD_OK;
}

/* Checks an operand. `reads`: the operation reads the bytes, or may leave some of them. The
 * elements of a tensor are then copied to the temporary memory. */
static inline hd_status hdmpi_operand_make(hd_mpi *m, const char *call, hd_mpi_data d, int reads, hdmpi_operand *out)
{
    memset(out, 0, sizeof *out);
    if (d.each) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call,
                          "the operand is one of %lld operands; pass hd_mpi_each only to "
                          "collective operations, and not inside of hd_mpi_each",
                          (long long)d.n_each);
    }
    const int device = hd_buffer_device(d.buffer);
    if (device == -2) {
        return hdmpi_fail(HD_ERROR_HANDLE, call, "the buffer is null or was freed; pass a live buffer", 0);
    }
    out->buffer = d.buffer;
    out->offset = d.offset;
    out->bytes = d.bytes;
    hd_status status = HD_OK;
    if (d.tensor) {
        out->bytes = (size_t)hd_tensor_elements(d.tensor) * hd_type_size(d.tensor->type);
        if (out->bytes && !hd_tensor_is_contiguous(d.tensor)) {
            status = hdmpi_operand_pack(m, call, out, d.tensor);
            if (!status && reads) {
                status = hd_tensor_copy(&out->packed, d.tensor, NULL);
                if (status) {
                    hd_free(out->buffer);
                    free(out->temporary);
                }
            }
            return status;
        }
    }
    const size_t size = hd_buffer_size(d.buffer);
    if (out->offset > size || out->bytes > size - out->offset) {
        char text[128];
        snprintf(text, sizeof text, "%s: bytes %zu + %zu of a buffer of %zu", call, out->offset, out->bytes, size);
        return hd_error_set(HD_ERROR_RANGE, text);
    }
    return HD_OK;
}

/* Leaves temporary memory to the object, which frees it when the ticket is done. `status`: not
 * HD_OK if nothing uses it. */
static inline void hdmpi_operand_drop(hd_mpi *m, hdmpi_operand *o, hd_status status, hd_ticket last)
{
    if (!o->temporary) {
        return;
    }
    if (status) {
        hd_free(o->buffer);
        free(o->temporary);
        return;
    }
    hdmpi_lock(m);
    o->temporary->last = last;
    o->temporary->next = m->temporaries;
    m->temporaries = o->temporary;
    hdmpi_unlock(m);
}

static inline int hdmpi_operands_overlap(const hdmpi_operand *a, const hdmpi_operand *b)
{
    return a->buffer == b->buffer && a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static inline hd_arg hdmpi_operand_use(const hdmpi_operand *o, hd_access access)
{
    return hd_arg_buffer(o->buffer, access, o->offset, o->bytes);
}

/* ---- checks ---- */

static inline hd_status hdmpi_rank_check(const char *call, int rank, int ranks, int any)
{
    if ((rank >= 0 && rank < ranks) || rank == MPI_PROC_NULL || (any && rank == MPI_ANY_SOURCE)) {
        return HD_OK;
    }
    return hdmpi_fail(HD_ERROR_ARGUMENT, call, "the communicator has no rank %lld", rank);
}

/* Checks the root of a collective operation. In an intercommunicator, roots have other numbers. */
static inline hd_status hdmpi_root_check(hd_mpi *m, const char *call, int root, int ranks, MPI_Comm comm)
{
    int inter = 0;
    hdmpi_lock(m);
    MPI_Comm_test_inter(comm, &inter);
    hdmpi_unlock(m);
    if (inter) {
        return hdmpi_fail(HD_ERROR_UNSUPPORTED, call,
                          "the communicator is an intercommunicator; merge it first (MPI_Intercomm_merge)", 0);
    }
    return root >= 0 && root < ranks ? HD_OK
                                     : hdmpi_fail(HD_ERROR_ARGUMENT, call, "the communicator has no rank %lld", root);
}

static inline hd_status hdmpi_tag_check(const hd_mpi *m, const char *call, int tag, int any)
{
    if ((tag >= 0 && tag <= m->tag_most) || (any && tag == MPI_ANY_TAG)) {
        return HD_OK;
    }
    return hdmpi_fail(HD_ERROR_ARGUMENT, call, "tag %lld is not allowed; MPI has tags from 0 to MPI_TAG_UB", tag);
}

/* The type of MPI for a type of elements; MPI_DATATYPE_NULL: there is none. */
static inline MPI_Datatype hdmpi_type_of(hd_type type)
{
    switch (type) {
    case HD_TYPE_I8:
        return MPI_INT8_T;
    case HD_TYPE_U8:
        return MPI_UINT8_T;
    case HD_TYPE_I16:
        return MPI_INT16_T;
    case HD_TYPE_U16:
        return MPI_UINT16_T;
    case HD_TYPE_I32:
        return MPI_INT32_T;
    case HD_TYPE_U32:
        return MPI_UINT32_T;
    case HD_TYPE_I64:
        return MPI_INT64_T;
    case HD_TYPE_U64:
        return MPI_UINT64_T;
    case HD_TYPE_F32:
        return MPI_FLOAT;
    case HD_TYPE_F64:
        return MPI_DOUBLE;
    case HD_TYPE_C64:
        return MPI_C_FLOAT_COMPLEX;
    case HD_TYPE_C128:
        return MPI_C_DOUBLE_COMPLEX;
    default:
        return MPI_DATATYPE_NULL;
    }
}

/* Checks that MPI can combine elements of this type with this operation. The program defines what
 * its own operations do. */
static inline hd_status hdmpi_op_check(const char *call, hd_type type, MPI_Op op)
{
    const MPI_Op ordered[] = {MPI_MIN, MPI_MAX};
    const MPI_Op integral[] = {MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
    const MPI_Op other[] = {MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP};
    const int complex = type == HD_TYPE_C64 || type == HD_TYPE_C128;
    const int real = type == HD_TYPE_F32 || type == HD_TYPE_F64;
    int wrong = 0;
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++) {
        wrong |= complex && op == ordered[i];
    }
    for (size_t i = 0; i < sizeof integral / sizeof *integral; i++) {
        wrong |= (complex || real) && op == integral[i];
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        wrong |= op == other[i];
    }
    if (!hd_type_size(type)) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "there is no hd_type %lld", type);
    }
    if (op == MPI_OP_NULL) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "the operation is MPI_OP_NULL", 0);
    }
    if (hdmpi_type_of(type) == MPI_DATATYPE_NULL || wrong) {
        char text[160];
        snprintf(text, sizeof text, "%s: MPI has no %s for elements of the type %s", call,
                 wrong ? "such operation" : "type", hd_type_name(type));
        return hd_error_set(wrong ? HD_ERROR_ARGUMENT : HD_ERROR_UNSUPPORTED, text);
    }
    return HD_OK;
}

/* Checks the elements of a tensor. */
static inline hd_status hdmpi_type_check(const char *call, const hd_mpi_data *d, hd_type type)
{
    if (!d->each && d->tensor && d->tensor->type != type) {
        char text[160];
        snprintf(text, sizeof text, "%s: the elements of the tensor are of the type %s; pass this type", call,
                 hd_type_size(d->tensor->type) ? hd_type_name(d->tensor->type) : "?");
        return hd_error_set(HD_ERROR_ARGUMENT, text);
    }
    return HD_OK;
}

/* ---- submitting ---- */

/* True if this rank cannot get the bytes of an operation, although MPI can still do its part. */
static inline int hdmpi_is_failed_data(hd_status status)
{
    return status == HD_ERROR_FAILED || status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_LANE_FAILED;
}

/* Begins the claim of an operation whose bytes to read have failed. The other ranks wait for the
 * operation, so it takes part without these bytes. The bytes that it should write fail with it. A
 * receive still writes: it only reads what a shorter message would leave. */
static inline hd_status hdmpi_operation_claim_rest(hdmpi_operation *o, const hd_arg *uses, size_t n_uses,
                                                   const hd_claim_options *options, hd_status why)
{
    hd_arg writes[2];
    size_t n = 0;
    for (size_t i = 0; i < n_uses && n < 2; i++) {
        if (uses[i].access & HD_WRITE) {
            writes[n] = uses[i];
            writes[n++].access = HD_WRITE;
        }
    }
    o->failed = o->kind != HDMPI_RECEIVE;
    if (o->failed) {
        hdmpi_operation_fail(o, why, hd_message());
    }
    hd_status status = hd_claim_begin_with(o->mpi->runtime, writes, n, options, &o->claim);
    if (n && hdmpi_is_failed_data(status)) {
        o->failed = 1;
        hdmpi_operation_fail(o, status, hd_message());
        status = hd_claim_begin_with(o->mpi->runtime, NULL, 0, options, &o->claim);
    }
    return status;
}

/* Begins the claim of an operation. */
static inline hd_status hdmpi_operation_claim(hdmpi_operation *o, const hd_arg *uses, size_t n_uses, const char *label)
{
    hd_mpi *m = o->mpi;
    hd_claim_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.label = label;
    options.copies = true;
    hd_status status = hd_claim_begin_with(m->runtime, uses, n_uses, &options, &o->claim);
    if (status == HD_ERROR_LIMIT) {
        /* other operations may be complete, but no thread noticed that yet */
        int moved = 0;
        hdmpi_lock(m);
        hdmpi_progress(m, &moved);
        hdmpi_unlock(m);
        status = hd_claim_begin_with(m->runtime, uses, n_uses, &options, &o->claim);
    }
    return n_uses && hdmpi_is_failed_data(status) ? hdmpi_operation_claim_rest(o, uses, n_uses, &options, status)
                                                  : status;
}

/* Begins the claim of an operation, and puts the operation into the list. Copies *what. If the
 * function fails, it changed nothing. */
static inline hd_status hdmpi_submit(hd_mpi *m, const hdmpi_operation *what, const hd_arg *uses, size_t n_uses,
                                     const char *label, hd_ticket *out)
{
    hdmpi_operation *o = (hdmpi_operation *)malloc(sizeof *o);
    if (!o) {
        return hdmpi_fail(HD_ERROR_HOST_MEMORY, label, "no memory for an operation", 0);
    }
    *o = *what;
    o->mpi = m;
    const hd_status status = hdmpi_operation_claim(o, uses, n_uses, label);
    if (status) {
        free(o->why);
        free(o);
        return status;
    }
    hd_claim *claim = o->claim;
    hd_claim_get_ticket(claim, out);
    hdmpi_trace_begin(o, *out);
    hdmpi_lock(m);
    o->next = NULL;
    *m->last = o;
    hdmpi_operation **link = m->last;
    m->last = &o->next;
    m->operations++;
    m->unposted++;
    o->is_counted = 1;
    size_t under_way = 1;
    int moved = 0;
    const int over = hd_claim_ready(claim) && hdmpi_operation_advance(o), ready = o->ready;
    if (over) {
        under_way = 0;
        *link = NULL;
        m->last = link;
        hdmpi_operation_end(o);
    } else if (ready && m->requests <= HDMPI_POLLED_BY_CALLS && hdmpi_poll(m)) {
        under_way = hdmpi_advance_all(m, &moved); /* `o` may be over now */
    }
    const int wakes = under_way && !(m->by_waiter && m->looks_soon);
    hdmpi_unlock(m);
    if (!ready) {
        const hd_status asked = hd_claim_on_ready(claim, hdmpi_claim_ready, m->waker);
        if (asked == HD_OK || asked == HD_ERROR_HANDLE) {
            return HD_OK; /* HANDLE: the operation is over already */
        }
        hdmpi_lock(m);
        m->must_look = 1;
        hdmpi_unlock(m);
    }
    if (wakes) {
        hdmpi_wake(m->waker);
    }
    return HD_OK;
}

/* The address of device memory; 0: it has none here, or the memory is unified. */
static inline uint64_t hdmpi_operand_address(const hdmpi_operand *data)
{
    const uint64_t address = hd_buffer_address(data->buffer);
    return address ? address + data->offset : 0;
}

/* The fields that all operations set. */
static inline void hdmpi_operation_init(hdmpi_operation *o, hd_mpi *m, int kind, MPI_Comm comm, int peer)
{
    memset(o, 0, sizeof *o);
    o->mpi = m;
    o->kind = kind;
    o->comm = comm;
    o->peer = peer;
    o->type = MPI_BYTE;
    o->op = MPI_OP_NULL;
    o->each = m->piece_bytes;
    o->pieces = 1;
    for (int i = 0; i < HDMPI_WINDOW; i++) {
        o->piece[i].send_type = o->piece[i].receive_type = MPI_DATATYPE_NULL;
    }
}

/* ---- messages ---- */

/* True if messages with this rank go directly between MPI and device memory (direct.h). */
static inline int hdmpi_goes_directly(hd_mpi *m, MPI_Comm comm, int peer)
{
    unsigned char *table = NULL;
    int found = 0, ranks = 0;
    /* pairs with the store in hdmpi_direct_store: most programs need no lock here */
    if (peer == MPI_PROC_NULL || !__atomic_load_n(&m->uses_direct, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    hdmpi_lock(m);
    MPI_Comm_get_attr(comm, m->direct_keyval, &table, &found);
    MPI_Comm_size(comm, &ranks);
    const int direct = found && table[peer == MPI_ANY_SOURCE ? ranks : peer];
    hdmpi_unlock(m);
    return direct;
}

/* A rank or a tag in words. */
static inline const char *hdmpi_number_text(int number, int is_any, char text[16])
{
    if (is_any) {
        return "any";
    }
    hdmpi_label_number(text, 0, number);
    return number == MPI_PROC_NULL ? "none" : text;
}

static inline hd_status hdmpi_message(hd_mpi *m, int kind, const hdmpi_operand *data, int peer, int tag, MPI_Comm comm,
                                      MPI_Status *status, size_t *received, hd_ticket *out)
{
    hdmpi_operation o;
    char label[HDMPI_LABEL_BYTES];
    const int sends = kind == HDMPI_SEND;
    hdmpi_operation_init(&o, m, kind, comm, peer);
    hdmpi_side *side = sends ? &o.in : &o.out;
    side->present = 1;
    side->bytes = data->bytes;
    side->device = hd_buffer_device(data->buffer);
    if (side->device >= 0 && data->bytes && hdmpi_goes_directly(m, comm, peer)) {
        side->direct = hdmpi_operand_address(data);
    }
    o.tag = tag;
    o.status = status;
    o.received = received;
    o.pieces = data->bytes / o.each + 1;
    const int any_rank = !sends && peer == MPI_ANY_SOURCE, any_tag = !sends && tag == MPI_ANY_TAG;
    char digits[16];
    size_t length = hdmpi_label_text(label, 0, sends ? "send to " : "recv from ");
    length = hdmpi_label_text(label, length, hdmpi_number_text(peer, any_rank, digits));
    length = hdmpi_label_text(label, length, " tag ");
    length = hdmpi_label_text(label, length, hdmpi_number_text(tag, any_tag, digits));
    /* without the size if it does not fit, since Heddle would cut the number */
    const size_t short_length = length;
    length = hdmpi_label_text(label, length, " ");
    length = hdmpi_label_number(label, length, (long long)data->bytes);
    length = hdmpi_label_text(label, length, " B");
    label[length < HD_LABEL_BYTES ? length : short_length] = 0;
    /* A shorter message leaves the bytes behind it. For unified memory, Heddle brings the bytes of
     * the device first. */
    const hd_access received_access = status && side->device >= 0 ? HD_READ_WRITE : HD_WRITE;
    const hd_arg use = hdmpi_operand_use(data, sends ? HD_READ : received_access);
    return hdmpi_submit(m, &o, &use, data->bytes ? 1 : 0, label, out);
}

/* After the operation: the elements of a tensor leave the temporary memory. */
static inline hd_status hdmpi_operand_unpack(hd_mpi *m, hdmpi_operand *o, hd_status status, hd_ticket *out)
{
    const int used = !status;
    if (used && o->tensor) {
        status = hd_tensor_copy(o->tensor, &o->packed, out);
    }
    hdmpi_operand_drop(m, o, used ? HD_OK : status, *out);
    return status;
}

static inline void hdmpi_ticket_give(hd_ticket *out, hd_ticket ticket, hd_status status)
{
    if (!status && out) {
        *out = ticket;
    }
}

static inline hd_status hd_mpi_send(hd_mpi *m, hd_mpi_data data, int to, int tag, MPI_Comm comm, hd_ticket *out)
{
    static const char call[] = "hd_mpi_send";
    int ranks = 0;
    hdmpi_operand d;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdmpi_comm_check(m, call, comm, &ranks);
    status = status ? status : hdmpi_rank_check(call, to, ranks, 0);
    status = status ? status : hdmpi_tag_check(m, call, tag, 0);
    status = status ? status : hdmpi_operand_make(m, call, data, 1, &d);
    if (status) {
        return status;
    }
    status = hdmpi_message(m, HDMPI_SEND, &d, to, tag, comm, NULL, NULL, &ticket);
    hdmpi_operand_drop(m, &d, status, ticket);
    hdmpi_ticket_give(out, ticket, status);
    return status;
}

static inline hd_status hd_mpi_recv(hd_mpi *m, hd_mpi_data data, int from, int tag, MPI_Comm comm, MPI_Status *status,
                                    size_t *received, hd_ticket *out)
{
    static const char call[] = "hd_mpi_recv";
    int ranks = 0;
    hdmpi_operand d;
    hd_ticket ticket = {NULL, 0};
    hd_status result = hdmpi_comm_check(m, call, comm, &ranks);
    result = result ? result : hdmpi_rank_check(call, from, ranks, 1);
    result = result ? result : hdmpi_tag_check(m, call, tag, 1);
    status = status == MPI_STATUS_IGNORE ? NULL : status;
    /* a shorter message, or none, leaves elements of a tensor as they are */
    result = result ? result : hdmpi_operand_make(m, call, data, status || from == MPI_PROC_NULL, &d);
    if (result) {
        return result;
    }
    result = hdmpi_message(m, HDMPI_RECEIVE, &d, from, tag, comm, status, received, &ticket);
    result = hdmpi_operand_unpack(m, &d, result, &ticket);
    hdmpi_ticket_give(out, ticket, result);
    return result;
}

static inline hd_status hd_mpi_sendrecv(hd_mpi *m, hd_mpi_data sent, int to, int send_tag, hd_mpi_data received,
                                        int from, int receive_tag, MPI_Comm comm, hd_ticket *out_sent,
                                        hd_ticket *out_received)
{
    static const char call[] = "hd_mpi_sendrecv";
    int ranks = 0;
    hdmpi_operand in, target;
    hd_ticket first = {NULL, 0}, second = {NULL, 0}, none = {NULL, 0};
    hd_status status = hdmpi_comm_check(m, call, comm, &ranks);
    status = status ? status : hdmpi_rank_check(call, to, ranks, 0);
    status = status ? status : hdmpi_rank_check(call, from, ranks, 1);
    status = status ? status : hdmpi_tag_check(m, call, send_tag, 0);
    status = status ? status : hdmpi_tag_check(m, call, receive_tag, 1);
    status = status ? status : hdmpi_operand_make(m, call, received, from == MPI_PROC_NULL, &target);
    if (status) {
        return status;
    }
    status = hdmpi_operand_make(m, call, sent, 1, &in);
    if (status) {
        hdmpi_operand_drop(m, &target, status, none);
        return status;
    }
    if (hdmpi_operands_overlap(&in, &target) && to != MPI_PROC_NULL && from != MPI_PROC_NULL) {
        status = hdmpi_fail(HD_ERROR_ARGUMENT, call, "`sent` and `received` overlap; receive into other memory", 0);
        hdmpi_operand_drop(m, &in, status, none);
        hdmpi_operand_drop(m, &target, status, none);
        return status;
    }
    status = hdmpi_message(m, HDMPI_SEND, &in, to, send_tag, comm, NULL, NULL, &first);
    hdmpi_operand_drop(m, &in, status, first);
    if (status) {
        hdmpi_operand_drop(m, &target, status, none);
        return status;
    }
    status = hdmpi_message(m, HDMPI_RECEIVE, &target, from, receive_tag, comm, NULL, NULL, &second);
    status = hdmpi_operand_unpack(m, &target, status, &second);
    hdmpi_ticket_give(out_sent, first, HD_OK); /* also if the receive was refused */
    hdmpi_ticket_give(out_received, second, status);
    return status;
}

/* ---- collective operations ---- */

/* The same calls with operands of several devices: each.h. */
static inline hd_status hdmpi_each_bcast(hd_mpi *m, hd_mpi_data data, int root, MPI_Comm comm, hd_ticket *out);
static inline hd_status hdmpi_each_reduce(hd_mpi *m, const char *call, int kind, hd_mpi_data sent, hd_mpi_data received,
                                          hd_type type, MPI_Op op, int root, MPI_Comm comm, hd_ticket *out);
static inline hd_status hdmpi_each_exchange(hd_mpi *m, const char *call, int kind, hd_mpi_data sent,
                                            hd_mpi_data received, MPI_Comm comm, hd_ticket *out);

/* Submits a collective operation. The sides without an operand on this rank are NULL. */
static inline hd_status hdmpi_collective(hd_mpi *m, hdmpi_operation *o, const char *name, hdmpi_operand *in,
                                         hdmpi_operand *target, hd_ticket *out)
{
    hd_arg uses[2];
    char label[HDMPI_LABEL_BYTES];
    size_t n = 0;
    const size_t bytes = in ? in->bytes : target ? target->bytes : 0;
    const int same = in && target && in->buffer == target->buffer && in->offset == target->offset;
    if (in) {
        o->in.present = 1;
        o->in.bytes = in->bytes;
        o->in.use = n;
        if (in->bytes) {
            uses[n++] = hdmpi_operand_use(in, same ? HD_READ_WRITE : HD_READ);
        }
    }
    if (target) {
        o->out.present = 1;
        o->out.bytes = target->bytes;
        o->out.use = same ? o->in.use : n;
        if (target->bytes && !same) {
            uses[n++] = hdmpi_operand_use(target, HD_WRITE);
        }
    }
    const size_t side = o->kind == HDMPI_ALLTOALL ? bytes / (size_t)o->ranks : bytes;
    if (o->kind == HDMPI_ALLTOALL || o->kind == HDMPI_ALLGATHER) {
        const size_t part = m->piece_bytes / (size_t)o->ranks / 64 * 64;
        o->each = part ? part : 64;
    }
    o->pieces = side ? (side + o->each - 1) / o->each : 1;
    size_t length = hdmpi_label_text(label, 0, name);
    length = hdmpi_label_text(label, length, " ");
    length = hdmpi_label_number(label, length, (long long)bytes);
    hdmpi_label_text(label, length, " B");
    return hdmpi_submit(m, o, uses, n, label, out);
}

static inline hd_status hd_mpi_bcast(hd_mpi *m, hd_mpi_data data, int root, MPI_Comm comm, hd_ticket *out)
{
    static const char call[] = "hd_mpi_bcast";
    int ranks = 0, rank = 0;
    hdmpi_operand d;
    hdmpi_operation o;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdmpi_comm_check(m, call, comm, &ranks);
    status = status ? status : hdmpi_root_check(m, call, root, ranks, comm);
    if (status) {
        return status;
    }
    if (data.each) {
        return hdmpi_each_bcast(m, data, root, comm, out);
    }
    hdmpi_lock(m);
    MPI_Comm_rank(comm, &rank);
    hdmpi_unlock(m);
    status = hdmpi_operand_make(m, call, data, rank == root, &d);
    if (status) {
        return status;
    }
    hdmpi_operation_init(&o, m, HDMPI_BCAST, comm, root);
    o.ranks = ranks;
    o.is_root = rank == root;
    status = hdmpi_collective(m, &o, "broadcast", o.is_root ? &d : NULL, o.is_root ? NULL : &d, &ticket);
    if (o.is_root) {
        hdmpi_operand_drop(m, &d, status, ticket);
    } else {
        status = hdmpi_operand_unpack(m, &d, status, &ticket);
    }
    hdmpi_ticket_give(out, ticket, status);
    return status;
}

/* Checks both operands of a reduction. */
static inline hd_status hdmpi_reduction_check(const char *call, const hdmpi_operand *in, const hdmpi_operand *target,
                                              hd_type type)
{
    const size_t element = hd_type_size(type);
    if (in->bytes % element) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "%lld bytes are no whole number of elements", (long long)in->bytes);
    }
    if (!target) {
        return HD_OK;
    }
    if (in->bytes != target->bytes) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "`sent` and `received` differ by %lld bytes; give them one size",
                          (long long)in->bytes - (long long)target->bytes);
    }
    const size_t a = in->offset, b = target->offset;
    if (in->buffer == target->buffer && a != b && a < b + in->bytes && b < a + in->bytes) {
        return hdmpi_fail(HD_ERROR_ARGUMENT, call, "`sent` and `received` overlap by a part", 0);
    }
    return HD_OK;
}

static inline void hdmpi_operation_set_reduction(hdmpi_operation *o, hd_type type, MPI_Op op, int ranks, int is_root)
{
    o->ranks = ranks;
    o->is_root = is_root;
    o->type = hdmpi_type_of(type);
    o->element = hd_type_size(type);
    o->op = op;
    o->each = o->mpi->piece_bytes / 16 * 16; /* a multiple of each element */
}

static inline hd_status hdmpi_reduction_submit(hd_mpi *m, hdmpi_operation *o, hdmpi_operand *in, hdmpi_operand *target,
                                               hd_ticket *out)
{
    return hdmpi_collective(m, o, o->kind == HDMPI_REDUCE ? "reduce" : "allreduce", in, target, out);
}

static inline hd_status hdmpi_reduction(hd_mpi *m, const char *call, int kind, hd_mpi_data sent, hd_mpi_data received,
                                        hd_type type, MPI_Op op, int root, MPI_Comm comm, hd_ticket *out)
{
    int ranks = 0, rank = 0;
    hdmpi_operand in, target;
    hdmpi_operation o;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdmpi_comm_check(m, call, comm, &ranks);
    status = status || kind == HDMPI_ALLREDUCE ? status : hdmpi_root_check(m, call, root, ranks, comm);
    status = status ? status : hdmpi_op_check(call, type, op);
    status = status ? status : hdmpi_type_check(call, &sent, type);
    if (status) {
        return status;
    }
    if (sent.each) {
        return hdmpi_each_reduce(m, call, kind, sent, received, type, op, root, comm, out);
    }
    hdmpi_lock(m);
    MPI_Comm_rank(comm, &rank);
    hdmpi_unlock(m);
    const int gets = kind == HDMPI_ALLREDUCE || rank == root;
    status = gets ? hdmpi_type_check(call, &received, type) : HD_OK;
    status = status ? status : hdmpi_operand_make(m, call, sent, 1, &in);
    if (status) {
        return status;
    }
    status = gets ? hdmpi_operand_make(m, call, received, 0, &target) : HD_OK;
    if (status) {
        hdmpi_operand_drop(m, &in, status, ticket);
        return status;
    }
    status = hdmpi_reduction_check(call, &in, gets ? &target : NULL, type);
    if (!status) {
        hdmpi_operation_init(&o, m, kind, comm, root);
        hdmpi_operation_set_reduction(&o, type, op, ranks, rank == root);
        status = hdmpi_reduction_submit(m, &o, &in, gets ? &target : NULL, &ticket);
    }
    hdmpi_operand_drop(m, &in, status, ticket);
    status = gets ? hdmpi_operand_unpack(m, &target, status, &ticket) : status;
    hdmpi_ticket_give(out, ticket, status);
    return status;
}

static inline hd_status hd_mpi_reduce(hd_mpi *m, hd_mpi_data sent, hd_mpi_data received, hd_type type, MPI_Op op,
                                      int root, MPI_Comm comm, hd_ticket *out)
{
    return hdmpi_reduction(m, "hd_mpi_reduce", HDMPI_REDUCE, sent, received, type, op, root, comm, out);
}

static inline hd_status hd_mpi_allreduce(hd_mpi *m, hd_mpi_data sent, hd_mpi_data received, hd_type type, MPI_Op op,
                                         MPI_Comm comm, hd_ticket *out)
{
    return hdmpi_reduction(m, "hd_mpi_allreduce", HDMPI_ALLREDUCE, sent, received, type, op, 0, comm, out);
}

/* `why`: not HD_OK if this rank has no bytes to send. */
static inline hd_status hdmpi_exchange_submit(hd_mpi *m, int kind, int ranks, MPI_Comm comm, hd_status why,
                                              hdmpi_operand *in, hdmpi_operand *target, hd_ticket *out)
{
    hdmpi_operation o;
    hdmpi_operation_init(&o, m, kind, comm, 0);
    o.ranks = ranks;
    o.outcome = why; /* the program hears of the cause from the operands */
    o.failed = why != HD_OK;
    return hdmpi_collective(m, &o, kind == HDMPI_ALLGATHER ? "allgather" : "alltoall", in, target, out);
}

/* The body of hd_mpi_allgather and hd_mpi_alltoall. */
static inline hd_status hdmpi_exchange(hd_mpi *m, const char *call, int kind, hd_mpi_data sent, hd_mpi_data received,
                                       MPI_Comm comm, hd_ticket *out)
{
    int ranks = 0;
    hdmpi_operand in, target;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdmpi_comm_check(m, call, comm, &ranks);
    if (!status && sent.each) {
        return hdmpi_each_exchange(m, call, kind, sent, received, comm, out);
    }
    status = status ? status : hdmpi_operand_make(m, call, sent, 1, &in);
    if (status) {
        return status;
    }
    status = hdmpi_operand_make(m, call, received, 0, &target);
    if (status) {
        hdmpi_operand_drop(m, &in, status, ticket);
        return status;
    }
    const size_t n = (size_t)ranks;
    if (kind == HDMPI_ALLGATHER ? target.bytes != n * in.bytes : target.bytes != in.bytes || in.bytes % n) {
        status = hdmpi_fail(HD_ERROR_ARGUMENT, call,
                            kind == HDMPI_ALLGATHER ? "`received` must have %lld bytes, those of all ranks"
                                                    : "`sent` has %lld bytes; `received` must have the same number, a "
                                                      "multiple of the number of ranks",
                            (long long)(kind == HDMPI_ALLGATHER ? n * in.bytes : in.bytes));
    } else if (in.buffer == target.buffer && in.offset < target.offset + target.bytes &&
               target.offset < in.offset + in.bytes) {
        status = hdmpi_fail(HD_ERROR_ARGUMENT, call, "`sent` and `received` overlap", 0);
    }
    status = status ? status : hdmpi_exchange_submit(m, kind, ranks, comm, HD_OK, &in, &target, &ticket);
    hdmpi_operand_drop(m, &in, status, ticket);
    status = hdmpi_operand_unpack(m, &target, status, &ticket);
    hdmpi_ticket_give(out, ticket, status);
    return status;
}

static inline hd_status hd_mpi_allgather(hd_mpi *m, hd_mpi_data sent, hd_mpi_data received, MPI_Comm comm,
                                         hd_ticket *out)
{
    return hdmpi_exchange(m, "hd_mpi_allgather", HDMPI_ALLGATHER, sent, received, comm, out);
}

static inline hd_status hd_mpi_alltoall(hd_mpi *m, hd_mpi_data sent, hd_mpi_data received, MPI_Comm comm,
                                        hd_ticket *out)
{
    return hdmpi_exchange(m, "hd_mpi_alltoall", HDMPI_ALLTOALL, sent, received, comm, out);
}

static inline hd_status hd_mpi_barrier(hd_mpi *m, MPI_Comm comm, hd_ticket *out)
{
    int ranks = 0;
    hdmpi_operation o;
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdmpi_comm_check(m, "hd_mpi_barrier", comm, &ranks);
    if (status) {
        return status;
    }
    hdmpi_operation_init(&o, m, HDMPI_BARRIER, comm, 0);
    o.ranks = ranks;
    status = hdmpi_collective(m, &o, "barrier", NULL, NULL, &ticket);
    hdmpi_ticket_give(out, ticket, status);
    return status;
}

HD_END_DECLS
#endif
