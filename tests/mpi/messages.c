/* messages.c - random messages between ranks, compared with a model.
 *
 * usage: mpiexec -n RANKS messages MESSAGES SEED [LARGEST]
 *
 * All ranks compute the same list of messages from the seed: source, destination, thread, lanes,
 * tag, communicator, size and content. Each thread of a rank submits its part of the list in order,
 * while up to IN_FLIGHT operations are unfinished. A copy or a kernel makes the bytes before the
 * send, and a copy or a kernel reads them behind the receive. So the content is right only if both
 * operations take part in the order.
 *
 * LARGEST is the size of a few of the messages. By default, it is 64 MiB.
 *
 * Two further threads of each rank exchange the messages of one communicator, on which all receives
 * accept any source. One of them sends and the other receives, since a receive may take a message
 * from far behind in the list. The content tells which one it took.
 *
 * Threads: the main one, and THREADS + 2 of each rank. Locks: none.
 */
#include <heddle/mpi.h>
#include "check.h"

enum { THREADS = 2, TAGS = 3, COMMS = 2, LANES = 3, IN_FLIGHT = 12, SIZES = 8, PIECE = 65536 };
enum { WILD = COMMS, WILD_MOST = 2 * PIECE + 100, LARGE_EVERY = 1000 };
enum { DEVICE, PINNED, UNIFIED, STRIDED, MEMORIES };

typedef struct message {
    int from, to, tag, comm, thread;
    int lanes[2]; /* of the sender and of the receiver, as are the next two */
    int memory[2];
    int kernel[2]; /* a kernel makes or reads the bytes */
    size_t bytes;
    uint32_t word; /* determines the content */
    int shorter;   /* the receive also accepts a shorter message */
    int taken;     /* a receive from any source took it; only the receiver's thread uses it */
} message;

static hd_runtime *runtime;
static hd_mpi *mpi;
static hd_kernel *copy_kernel;
static hd_lane *lanes[LANES];
static MPI_Comm comms[COMMS + 1];
static int rank, ranks, count;
static int any_tag; /* of the receives from any source */
static message *list;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static void list_make(uint64_t seed, size_t largest)
{
    static const size_t sizes[SIZES] = {0, 5, 100, 4096, PIECE - 1, PIECE, 2 * PIECE, 5 * PIECE + 17};
    uint64_t s = seed;
    any_tag = seed % 2 == 0;
    list = calloc((size_t)count, sizeof *list);
    EXPECT(list != NULL);
    for (int i = 0; i < count; i++) {
        message *m = &list[i];
        m->from = (int)draw(&s, (uint64_t)ranks);
        m->to = (int)draw(&s, (uint64_t)ranks);
        m->thread = (int)draw(&s, THREADS);
        m->tag = m->thread * TAGS + (int)draw(&s, TAGS);
        m->comm = draw(&s, 5) ? (int)draw(&s, COMMS) : WILD;
        m->bytes = draw(&s, 4) ? sizes[draw(&s, SIZES)] : draw(&s, 3 * PIECE);
        if (i % LARGE_EVERY == LARGE_EVERY / 2) {
            m->bytes = largest;
            m->comm = 0;
        }
        if (m->comm == WILD) {
            m->thread = THREADS;
            m->tag = any_tag ? m->tag : 1;
            m->bytes = m->bytes > WILD_MOST ? WILD_MOST : m->bytes;
        }
        m->word = (uint32_t)draw(&s, 1u << 30);
        for (int side = 0; side < 2; side++) {
            m->lanes[side] = (int)draw(&s, LANES);
            m->memory[side] = (int)draw(&s, MEMORIES);
            m->kernel[side] = m->memory[side] == DEVICE && m->bytes % 4 == 0 && draw(&s, 2);
        }
        m->shorter = draw(&s, 5) == 0;
    }
}

static unsigned char content(const message *m, size_t i)
{
    return (unsigned char)((m->word + i) * 2654435761u >> 13);
}

/* One operation under way: the buffers, and the pinned copy that is compared at the end. */
typedef struct slot {
    const message *m;
    int sends;
    hd_buffer *buffer, *pinned, *between; /* between: on the other side of the kernel */
    hd_ticket ticket, checked;
    MPI_Status status;
    size_t received;
} slot;

static hd_buffer *buffer_make(hd_lane *lane, int memory, size_t bytes)
{
    hd_buffer *b = NULL;
    bytes = bytes / 4 * 4 + 4; /* for hd_fill */
    OK(memory == PINNED    ? hd_alloc_host(runtime, bytes, &b)
       : memory == UNIFIED ? hd_alloc_unified(lane, bytes, &b)
                           : hd_alloc(lane, bytes, &b));
    return b;
}

/* The bytes of a message as every second column of a table, which is not contiguous. */
static hd_tensor strided(hd_buffer *buffer, size_t bytes)
{
    hd_tensor t;
    const uint64_t shape[1] = {bytes};
    const int64_t stride[1] = {2};
    OK(hd_tensor_make_strided(buffer, 0, HD_TYPE_U8, 1, shape, stride, &t));
    return t;
}

static hd_tensor plain(hd_buffer *buffer, size_t bytes)
{
    hd_tensor t;
    const uint64_t shape[1] = {bytes};
    OK(hd_tensor_make(buffer, 0, HD_TYPE_U8, 1, shape, &t));
    return t;
}

/* A kernel copies the words of `from`. */
static void kernel_copy(hd_lane *lane, hd_buffer *to, hd_buffer *from, size_t bytes)
{
    const uint64_t n = bytes / 4;
    const hd_dims blocks = {(uint32_t)((n + 255) / 256), 1, 1}, threads = {256, 1, 1};
    if (n) {
        OK(hd_launch(lane, copy_kernel, blocks, threads, 0, (hd_arg[]){hd_out(to), hd_in(from), hd_u64(n)}, 3, NULL));
    }
}

static void slot_send(slot *s)
{
    const message *m = s->m;
    const int memory = m->memory[0];
    hd_lane *lane = lanes[m->lanes[0]];
    unsigned char *p = NULL;
    OK(hd_alloc_host(runtime, m->bytes + 1, &s->pinned));
    OK(hd_map(s->pinned, HD_WRITE, (void **)&p));
    for (size_t i = 0; i < m->bytes; i++) {
        p[i] = content(m, i);
    }
    OK(hd_unmap(s->pinned));
    s->buffer = buffer_make(lane, memory, memory == STRIDED ? 2 * m->bytes : m->bytes);
    hd_mpi_data data = hd_mpi_range(s->buffer, 0, m->bytes);
    hd_tensor t;
    if (memory == STRIDED && m->bytes) {
        t = strided(s->buffer, m->bytes);
        const hd_tensor from = plain(s->pinned, m->bytes);
        OK(hd_tensor_copy(&t, &from, NULL));
        data = hd_mpi_tensor(&t);
    } else if (m->kernel[0]) {
        s->between = buffer_make(lane, DEVICE, m->bytes);
        OK(hd_copy(s->between, 0, s->pinned, 0, m->bytes, NULL));
        kernel_copy(lane, s->buffer, s->between, m->bytes);
    } else {
        OK(hd_copy(s->buffer, 0, s->pinned, 0, m->bytes, NULL));
    }
    OK(hd_mpi_send(mpi, data, m->to, m->tag, comms[m->comm], &s->ticket));
    /* later work must not change the message */
    OK(hd_fill(s->buffer, 0, 0, hd_buffer_size(s->buffer), NULL));
}

static void slot_receive(slot *s)
{
    const message *m = s->m;
    const int memory = m->memory[1], wild = m->comm == WILD, kernel = m->kernel[1] && !wild;
    const int shorter = wild || (m->shorter && memory != STRIDED && !kernel);
    const size_t room = wild ? WILD_MOST : m->bytes + (shorter ? 1000 : 0);
    hd_lane *lane = lanes[m->lanes[1]];
    OK(hd_alloc_host(runtime, room + 1, &s->pinned));
    s->buffer = buffer_make(lane, memory, memory == STRIDED ? 2 * room : room);
    hd_mpi_data data = hd_mpi_range(s->buffer, 0, room);
    hd_tensor t;
    if (memory == STRIDED && room) {
        t = strided(s->buffer, room);
        data = hd_mpi_tensor(&t);
    }
    OK(hd_mpi_recv(mpi, data, wild ? MPI_ANY_SOURCE : m->from, wild && any_tag ? MPI_ANY_TAG : m->tag, comms[m->comm],
                   shorter ? &s->status : NULL, &s->received, &s->ticket));
    if (memory == STRIDED && room) {
        const hd_tensor to = plain(s->pinned, room);
        OK(hd_tensor_copy(&to, &t, &s->checked));
    } else if (kernel) {
        s->between = buffer_make(lane, DEVICE, room);
        kernel_copy(lane, s->between, s->buffer, room);
        OK(hd_copy(s->pinned, 0, s->between, 0, room, &s->checked));
    } else {
        OK(hd_copy(s->pinned, 0, s->buffer, 0, room, &s->checked));
    }
}

/* The message that a receive from any source took: the first one with this source and tag that no
 * earlier receive took. */
static message *message_taken(const MPI_Status *status)
{
    for (int i = 0; i < count; i++) {
        message *m = &list[i];
        if (m->comm == WILD && m->to == rank && m->from == status->MPI_SOURCE && m->tag == status->MPI_TAG &&
            !m->taken) {
            m->taken = 1;
            return m;
        }
    }
    FAIL("a message from %d with tag %d, which nobody sent", status->MPI_SOURCE, status->MPI_TAG);
    return NULL;
}

static void slot_check(slot *s)
{
    const message *m = s->m->comm == WILD ? message_taken(&s->status) : s->m;
    unsigned char *p = NULL;
    OK(hd_wait(s->checked, HD_FOREVER));
    OK(hd_map(s->pinned, HD_READ, (void **)&p));
    if (s->received != m->bytes) {
        FAIL("message %d from %d, tag %d: %zu bytes instead of %zu", (int)(m - list), m->from, m->tag, s->received,
             m->bytes);
    }
    for (size_t i = 0; i < m->bytes; i++) {
        if (p[i] != content(m, i)) {
            FAIL("message %d from %d to %d, tag %d, %zu bytes, memory %d to %d, kernels %d and %d: byte %zu is wrong",
                 (int)(m - list), m->from, m->to, m->tag, m->bytes, m->memory[0], s->m->memory[1], m->kernel[0],
                 s->m->kernel[1], i);
        }
    }
    OK(hd_unmap(s->pinned));
}

static void slot_finish(slot *s, uint64_t *random)
{
    OK(draw(random, 2) ? hd_wait(s->ticket, HD_FOREVER) : hd_mpi_wait(mpi, s->ticket, HD_FOREVER));
    EXPECT(hd_done(s->ticket));
    if (!s->sends) {
        slot_check(s);
    }
    hd_free(s->buffer);
    hd_free(s->pinned);
    hd_free(s->between);
    s->m = NULL;
}

/* True if this thread submits this side of the message. */
static int is_mine(const message *m, int thread, int sends)
{
    const int of_thread = m->comm == WILD ? thread == (sends ? THREADS : THREADS + 1) : thread == m->thread;
    return of_thread && (sends ? m->from : m->to) == rank;
}

static void *thread_run(void *argument)
{
    const int thread = (int)(intptr_t)argument;
    uint64_t random = (uint64_t)(thread * 1000 + rank);
    slot slots[IN_FLIGHT];
    memset(slots, 0, sizeof slots);
    int used = 0;
    for (int i = 0; i < 2 * count; i++) {
        const message *m = &list[i / 2];
        const int sends = i % 2 == 0;
        if (!is_mine(m, thread, sends)) {
            continue;
        }
        /* The oldest operation is always finished first. So a message that waits for another one in
         * the list finds it submitted. */
        slot *s = &slots[used++ % IN_FLIGHT];
        if (s->m) {
            slot_finish(s, &random);
        }
        memset(s, 0, sizeof *s);
        s->m = m;
        s->sends = sends;
        if (sends) {
            slot_send(s);
        } else {
            slot_receive(s);
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        slot *s = &slots[(used + i) % IN_FLIGHT];
        if (s->m) {
            slot_finish(s, &random);
        }
    }
    return NULL;
}

static void open_all(void)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    hd_mpi_place place = {0};
    hd_module *module = NULL;
    comms[0] = MPI_COMM_WORLD;
    for (int i = 1; i <= COMMS; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    }
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "host_devices=2", &runtime, &place));
    EXPECT(place.ranks >= 1 && place.rank < place.ranks && place.devices == hd_device_count(runtime));
    OK(hd_module_get_builtin(runtime, &module));
    OK(hd_kernel_get(module, "hd_copy_u32", &copy_kernel));
    OK(hd_lane_get_default(runtime, 0, &lanes[0]));
    for (int i = 1; i < LANES; i++) {
        OK(hd_lane_create(runtime, i % hd_device_count(runtime), &lanes[i]));
    }
    OK(hd_mpi_open(runtime, &options, &mpi));
}

int main(int argc, char **argv)
{
    int level = 0;
    pthread_t threads[THREADS + 2];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    count = argc > 1 ? atoi(argv[1]) : 500;
    list_make(argc > 2 ? (uint64_t)atoll(argv[2]) : 1, argc > 3 ? (size_t)atoll(argv[3]) : (size_t)64 << 20);
    open_all();
    for (int i = 0; i < THREADS + 2; i++) {
        EXPECT(pthread_create(&threads[i], NULL, thread_run, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < THREADS + 2; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    unsigned long long bytes = 0; /* between different ranks */
    for (int i = 0; i < count; i++) {
        bytes += list[i].from != list[i].to ? list[i].bytes : 0;
    }
    free(list);
    for (int i = 1; i <= COMMS; i++) {
        MPI_Comm_free(&comms[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("messages: %d messages among %d ranks are as in the model, with %llu bytes between ranks\n", count,
               ranks, bytes);
    }
    end_of_rank();
    return 0;
}
