/* devices.c - random collective operations with operands of several devices of each rank, compared
 * with a model. The bytes of one device may also be lost.
 *
 * usage: mpiexec -n RANKS devices OPERATIONS SEED
 *
 * All ranks compute the same list of operations from the seed. Heddle makes the bytes before each
 * operation, and reads the results behind it. Up to IN_FLIGHT operations are unfinished.
 *
 * Threads: the main one, and those of Heddle. Locks: none.
 */
#include <heddle/mpi.h>
#include "check.h"

enum { DEVICES = 3, EACH = 4, IN_FLIGHT = 4, PIECE = 16384 };
enum { BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL, KINDS };

static const struct {
    hd_type type;
    MPI_Op op;
    int number;
} reductions[] = {
    {HD_TYPE_I32, MPI_SUM, 0}, {HD_TYPE_F32, MPI_SUM, 0},  {HD_TYPE_F64, MPI_PROD, 1}, {HD_TYPE_C64, MPI_SUM, 0},
    {HD_TYPE_U8, MPI_MAX, 3},  {HD_TYPE_I16, MPI_MIN, 2},  {HD_TYPE_U64, MPI_BOR, 5},  {HD_TYPE_U16, MPI_BAND, 4},
    {HD_TYPE_I8, MPI_LAND, 7}, {HD_TYPE_I64, MPI_BXOR, 6}, {HD_TYPE_F32, MPI_MIN, 2},  {HD_TYPE_U32, MPI_LXOR, 9},
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

typedef struct operation {
    int kind, root, reduction, in_place, memory;
    size_t each, elements; /* operands of a rank, and elements of an operand or of a part */
    unsigned word;
} operation;

typedef struct under_way {
    operation o;
    hd_buffer *in[EACH], *out[EACH], *back[EACH];
    size_t results, bytes; /* operands that this rank gets, and their bytes */
    hd_ticket ticket, read[EACH];
} under_way;

static hd_runtime *runtime;
static hd_mpi *mpi;
static int rank, ranks;

static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((*state >> 33) % below);
}

static operation operation_draw(uint64_t *s)
{
    static const size_t sizes[] = {0, 1, 3, 1000, 16411, 70001};
    operation o;
    memset(&o, 0, sizeof o);
    o.kind = (int)draw(s, KINDS);
    o.root = (int)draw(s, (unsigned)ranks);
    o.reduction = (int)draw(s, REDUCTIONS);
    o.in_place = (int)draw(s, 2);
    o.memory = (int)draw(s, 1000);
    o.each = 1 + draw(s, EACH);
    o.elements = sizes[draw(s, 6)];
    o.elements = o.kind >= ALLGATHER && o.elements > 20000 ? 20000 : o.elements;
    o.word = draw(s, 100000);
    return o;
}

static hd_type type_of(const operation *o)
{
    return o->kind == REDUCE || o->kind == ALLREDUCE ? reductions[o->reduction].type : HD_TYPE_I16;
}

/* Element i of a participant: small numbers, so that no sum and no product is rounded. */
static int element(const operation *o, size_t participant, size_t i)
{
    const unsigned v = o->word + (unsigned)participant * 7919u + (unsigned)i * 31u;
    return o->kind == REDUCE || o->kind == ALLREDUCE
               ? (int)((v ^ v >> 5) % (reductions[o->reduction].number == 1 ? 3 : 8))
               : (int)(v % 30000);
}

/* Element i of what the participant `me` gets. */
static int expected(const operation *o, size_t me, size_t i)
{
    const size_t n = o->each * (size_t)ranks, part = o->elements ? i / o->elements : 0;
    if (o->kind == BCAST) {
        return element(o, (size_t)o->root * o->each, i);
    }
    if (o->kind == ALLGATHER) {
        return element(o, part, i % o->elements);
    }
    if (o->kind == ALLTOALL) {
        return element(o, part, me * o->elements + i % o->elements);
    }
    int v = element(o, 0, i);
    for (size_t p = 1; p < n; p++) {
        const int b = element(o, p, i);
        const int of[] = {v + b, v * b, b < v ? b : v, b > v ? b : v, v & b, v | b, v ^ b, v && b, v || b, !v != !b};
        v = of[reductions[o->reduction].number];
    }
    return v;
}

/* Writes an element; complex numbers get it as both parts. */
static void element_store(void *bytes, hd_type type, size_t i, int v)
{
    switch (type) {
    case HD_TYPE_F32:
        ((float *)bytes)[i] = (float)v;
        break;
    case HD_TYPE_F64:
        ((double *)bytes)[i] = v;
        break;
    case HD_TYPE_C64:
        ((float *)bytes)[2 * i] = ((float *)bytes)[2 * i + 1] = (float)v;
        break;
    default: { /* integers, little end first */
        const int64_t wide = v;
        memcpy((char *)bytes + i * hd_type_size(type), &wide, hd_type_size(type));
    }
    }
}

static hd_buffer *buffer_make(int memory, size_t bytes)
{
    hd_buffer *b = NULL;
    hd_lane *lane = NULL;
    OK(hd_lane_get_default(runtime, memory % DEVICES, &lane));
    OK(memory % 5 == 4 ? hd_alloc_host(runtime, bytes + 16, &b) : hd_alloc(lane, bytes + 16, &b));
    return b;
}

static hd_buffer *operand_make(const operation *o, size_t participant, size_t elements)
{
    const hd_type type = type_of(o);
    const size_t bytes = elements * hd_type_size(type);
    hd_buffer *staging = NULL, *b = buffer_make(o->memory + (int)participant, bytes);
    void *p = NULL;
    OK(hd_alloc_host(runtime, bytes + 16, &staging));
    OK(hd_map(staging, HD_WRITE, &p));
    for (size_t i = 0; i < elements; i++) {
        element_store(p, type, i, element(o, participant, i));
    }
    OK(hd_unmap(staging));
    OK(hd_copy(b, 0, staging, 0, bytes, NULL));
    hd_free(staging);
    return b;
}

static hd_status submit(const operation *o, hd_mpi_data from, hd_mpi_data to, hd_ticket *out)
{
    const MPI_Comm comm = MPI_COMM_WORLD;
    const hd_type type = reductions[o->reduction].type;
    const MPI_Op op = reductions[o->reduction].op;
    switch (o->kind) {
    case BCAST:
        return hd_mpi_bcast(mpi, from, o->root, comm, out);
    case REDUCE:
        return hd_mpi_reduce(mpi, from, to, type, op, o->root, comm, out);
    case ALLREDUCE:
        return hd_mpi_allreduce(mpi, from, to, type, op, comm, out);
    case ALLGATHER:
        return hd_mpi_allgather(mpi, from, to, comm, out);
    default:
        return hd_mpi_alltoall(mpi, from, to, comm, out);
    }
}

static void begin(under_way *u, const operation *drawn)
{
    const operation *o = &u->o;
    hd_mpi_data from[EACH], to[EACH];
    memset(u, 0, sizeof *u);
    u->o = *drawn;
    const size_t all = (size_t)ranks * o->each * o->elements, size = hd_type_size(type_of(o));
    const size_t sent = o->kind == ALLTOALL ? all : o->elements, got = o->kind >= ALLGATHER ? all : o->elements;
    const int same = o->kind == BCAST || (o->kind == ALLREDUCE && o->in_place);
    u->results = o->kind != REDUCE ? o->each : rank == o->root ? 1 : 0;
    u->bytes = got * size;
    for (size_t i = 0; i < o->each; i++) {
        u->in[i] = operand_make(o, (size_t)rank * o->each + i, sent);
        u->out[i] = same ? u->in[i] : buffer_make(o->memory / 7 + (int)i, u->bytes);
        from[i] = hd_mpi_range(u->in[i], 0, sent * size);
        to[i] = hd_mpi_range(u->out[i], 0, u->bytes);
    }
    OK(submit(o, hd_mpi_each(from, o->each), o->kind == REDUCE ? to[0] : hd_mpi_each(to, o->each), &u->ticket));
    for (size_t i = 0; i < u->results; i++) {
        OK(hd_alloc_host(runtime, u->bytes + 16, &u->back[i]));
        OK(hd_copy(u->back[i], 0, u->out[i], 0, u->bytes, &u->read[i]));
    }
}

static void finish(under_way *u)
{
    const operation *o = &u->o;
    const hd_type type = type_of(o);
    const size_t size = hd_type_size(type);
    OK(hd_mpi_wait(mpi, u->ticket, HD_FOREVER));
    for (size_t i = 0; i < u->results; i++) {
        unsigned char *p = NULL, wanted[16];
        OK(hd_wait(u->read[i], HD_FOREVER));
        OK(hd_map(u->back[i], HD_READ, (void **)&p));
        for (size_t k = 0; k < u->bytes / size; k++) {
            element_store(wanted, type, 0, expected(o, (size_t)rank * o->each + i, k));
            if (memcmp(p + k * size, wanted, size) != 0) {
                FAIL(
                    "kind %d, %zu elements, %zu operands, root %d, reduction %d, memory %d: element %zu of operand %zu",
                    o->kind, o->elements, o->each, o->root, o->reduction, o->memory, k, i);
            }
        }
        OK(hd_unmap(u->back[i]));
        hd_free(u->back[i]);
    }
    for (size_t i = 0; i < o->each; i++) {
        hd_free(u->in[i]);
        if (u->out[i] != u->in[i]) {
            hd_free(u->out[i]);
        }
    }
}

/* The bytes of one device of rank 0 are never made. The operation fails on that rank, ends on all
 * of them, and the next one is right. `known`: the failure is known before the call. */
static void a_device_without_bytes_holds_up_no_rank(int kind, int known)
{
    const operation o = {.kind = kind, .each = EACH, .elements = 50000, .word = 5};
    hd_mpi_data from[EACH], to[EACH];
    hd_claim *gate = NULL;
    hd_ticket ticket, read;
    const size_t all = (size_t)ranks * o.each * o.elements, size = hd_type_size(type_of(&o));
    const size_t sent = kind == ALLTOALL ? all : o.elements, got = kind >= ALLGATHER ? all : o.elements;
    under_way after;
    for (int i = 0; i < EACH; i++) {
        from[i] = hd_mpi_buffer(operand_make(&o, (size_t)(rank * EACH + i), sent));
        from[i].bytes = sent * size;
        to[i] = hd_mpi_range(buffer_make(i, got * size), 0, got * size);
    }
    if (rank == 0) {
        const hd_arg use = hd_out(from[1].buffer);
        OK(hd_claim_begin(runtime, &use, 1, &gate));
        if (known) {
            OK(hd_claim_end(gate, HD_ERROR_SYSTEM));
        }
    }
    OK(submit(&o, hd_mpi_each(from, EACH), kind == REDUCE ? to[0] : hd_mpi_each(to, EACH), &ticket));
    if (rank == 0 && !known) {
        OK(hd_claim_end(gate, HD_ERROR_SYSTEM));
    }
    if (rank == 0) {
        FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED);
        const hd_status status = hd_copy(from[0].buffer, 0, to[0].buffer, 0, 4, &read);
        FAILS(status ? status : hd_wait(read, HD_FOREVER), HD_ERROR_FAILED);
    } else {
        OK(hd_wait(ticket, HD_FOREVER));
    }
    begin(&after, &o);
    finish(&after);
    for (int i = 0; i < EACH; i++) {
        hd_free(from[i].buffer);
        hd_free(to[i].buffer);
    }
}

static void wrong_operands_are_refused(void)
{
    hd_buffer *a = buffer_make(0, 4096), *b = buffer_make(1, 4096), *c = buffer_make(2, 4096);
    const hd_mpi_data two[] = {hd_mpi_range(a, 0, 64), hd_mpi_range(b, 0, 64)};
    const hd_mpi_data other[] = {hd_mpi_range(c, 0, 64), hd_mpi_range(c, 64, 64)};
    const hd_mpi_data unequal[] = {hd_mpi_range(a, 0, 64), hd_mpi_range(b, 0, 60)};
    const hd_mpi_data same[] = {hd_mpi_range(c, 0, 64), hd_mpi_range(c, 32, 64)};
    const hd_mpi_data deep[] = {hd_mpi_each(two, 2)};
    const MPI_Comm w = MPI_COMM_WORLD;
    hd_ticket t;
#define SUM(x, y) hd_mpi_allreduce(mpi, x, y, HD_TYPE_F32, MPI_SUM, w, &t)
    FAILS(SUM(hd_mpi_each(two, 2), hd_mpi_each(other, 1)), HD_ERROR_ARGUMENT);
    FAILS(SUM(hd_mpi_each(two, 2), other[0]), HD_ERROR_ARGUMENT);
    FAILS(SUM(two[0], hd_mpi_each(other, 1)), HD_ERROR_ARGUMENT);
    FAILS(SUM(hd_mpi_each(two, 0), hd_mpi_each(other, 0)), HD_ERROR_ARGUMENT);
    FAILS(SUM(hd_mpi_each(two, 65), hd_mpi_each(other, 65)), HD_ERROR_ARGUMENT);
    FAILS(SUM(hd_mpi_each(unequal, 2), hd_mpi_each(other, 2)), HD_ERROR_ARGUMENT);
    FAILS(SUM(hd_mpi_each(two, 2), hd_mpi_each(same, 2)), HD_ERROR_ARGUMENT);
    FAILS(SUM(hd_mpi_each(deep, 1), hd_mpi_each(other, 1)), HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_allreduce(mpi, hd_mpi_each(two, 2), hd_mpi_each(other, 2), HD_TYPE_F32, MPI_MAXLOC, w, &t),
          HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_allreduce(mpi, hd_mpi_each(two, 2), hd_mpi_each(other, 2), HD_TYPE_C64, MPI_PROD, w, &t),
          HD_ERROR_UNSUPPORTED);
    FAILS(hd_mpi_allreduce(mpi, hd_mpi_each(two, 2), hd_mpi_each(other, 2), HD_TYPE_F32, MPI_BOR, w, &t),
          HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_allgather(mpi, hd_mpi_each(two, 2), hd_mpi_each(other, 2), w, &t), HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_alltoall(mpi, hd_mpi_each(two, 2), hd_mpi_each(two, 2), w, &t), HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_send(mpi, hd_mpi_each(two, 2), 0, 1, w, &t), HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_recv(mpi, hd_mpi_each(two, 2), 0, 1, w, NULL, NULL, &t), HD_ERROR_ARGUMENT);
    hd_free(a);
    hd_free(b);
    hd_free(c);
}

int main(int argc, char **argv)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    const int count = argc > 1 ? atoi(argv[1]) : 200;
    uint64_t seed = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    under_way ring[IN_FLIGHT];
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "host_devices=3", &runtime, NULL));
    OK(hd_mpi_open(runtime, &options, &mpi));
    wrong_operands_are_refused();
    for (int known = 0; known < 2; known++) {
        for (int kind = REDUCE; kind < KINDS; kind++) {
            a_device_without_bytes_holds_up_no_rank(kind, known);
        }
    }
    for (int i = 0; i < count + IN_FLIGHT; i++) {
        if (i >= IN_FLIGHT && i - IN_FLIGHT < count) {
            finish(&ring[i % IN_FLIGHT]);
        }
        if (i < count) {
            const operation o = operation_draw(&seed);
            begin(&ring[i % IN_FLIGHT], &o);
        }
    }
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("devices: %d operations of %d ranks are as in the model\n", count, ranks);
    }
    MPI_Finalize();
    return 0;
}
