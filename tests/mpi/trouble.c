/* trouble.c - what fails, what is refused, and what goes on meanwhile.
 *
 * usage: mpiexec -n 2 trouble
 *
 * Threads: the main one, and those of Heddle. Locks: none.
 */
#include <heddle/mpi.h>
#include "check.h"

enum { PIECE = 4096, BYTES = 3 * PIECE + 100 };

static hd_runtime *runtime;
static hd_lane *lane;
static hd_mpi *mpi;
static int rank, other;
static MPI_Comm apart; /* for links besides `mpi` */

static hd_buffer *device(size_t bytes, uint32_t word)
{
    hd_buffer *b = NULL;
    OK(hd_alloc(lane, bytes, &b));
    OK(hd_fill(b, 0, word, bytes / 4 * 4, NULL));
    return b;
}

static uint32_t first_word(hd_buffer *b)
{
    uint32_t word = 0;
    OK(hd_read(b, 0, &word, 4));
    return word;
}

/* A claim that the program decides: what reads its bytes waits, and fails if it fails. */
static hd_claim *claim_all(hd_buffer *b)
{
    const hd_arg use = hd_out(b);
    hd_claim *c = NULL;
    OK(hd_claim_begin(runtime, &use, 1, &c));
    return c;
}

/* A send whose bytes are not ready holds up the later sends of its tag, and no others. */
static void messages_of_one_tag_keep_their_order(void)
{
    hd_buffer *a = device(BYTES, 1), *b = device(BYTES, 2), *c = device(BYTES, 3);
    hd_ticket t[3];
    if (rank == 0) {
        hd_claim *gate = claim_all(a);
        OK(hd_mpi_send(mpi, hd_mpi_buffer(a), 1, 5, MPI_COMM_WORLD, &t[0]));
        OK(hd_mpi_send(mpi, hd_mpi_buffer(b), 1, 5, MPI_COMM_WORLD, &t[1]));
        OK(hd_mpi_send(mpi, hd_mpi_buffer(c), 1, 6, MPI_COMM_WORLD, &t[2]));
        OK(hd_wait(t[2], HD_FOREVER)); /* rank 1 gets it although the first one is held */
        int answer = 0;
        MPI_Recv(&answer, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(!hd_done(t[0]) && !hd_done(t[1]));
        OK(hd_claim_end(gate, HD_OK));
        OK(hd_wait(t[0], HD_FOREVER));
        OK(hd_wait(t[1], HD_FOREVER));
    } else {
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(b), 0, 5, MPI_COMM_WORLD, NULL, NULL, &t[0]));
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(c), 0, 5, MPI_COMM_WORLD, NULL, NULL, &t[1]));
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(a), 0, 6, MPI_COMM_WORLD, NULL, NULL, &t[2]));
        OK(hd_wait(t[2], HD_FOREVER));
        EXPECT(first_word(a) == 3 && !hd_done(t[0]) && !hd_done(t[1]));
        int answer = 1;
        MPI_Send(&answer, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
        EXPECT(first_word(b) == 1 && first_word(c) == 2); /* the reads wait for the messages */
    }
    hd_free(a);
    hd_free(b);
    hd_free(c);
}

/* The bytes of a send are made by something that fails. */
static void a_send_of_failed_bytes_fails_on_both_sides(void)
{
    hd_buffer *a = device(BYTES, 1), *b = device(BYTES, 2);
    hd_ticket t[2], read;
    if (rank == 0) {
        hd_claim *gate = claim_all(a);
        OK(hd_mpi_send(mpi, hd_mpi_buffer(a), 1, 1, MPI_COMM_WORLD, &t[0]));
        OK(hd_mpi_send(mpi, hd_mpi_buffer(b), 1, 1, MPI_COMM_WORLD, &t[1]));
        OK(hd_claim_end(gate, HD_ERROR_SYSTEM));
        FAILS(hd_wait(t[0], HD_FOREVER), HD_ERROR_FAILED);
        OK(hd_wait(t[1], HD_FOREVER));
    } else {
        hd_buffer *copy = device(BYTES, 0);
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(a), 0, 1, MPI_COMM_WORLD, NULL, NULL, &t[0]));
        /* refused if the failure is known already */
        const hd_status copied = hd_copy(copy, 0, a, 0, BYTES, &read);
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(b), 0, 1, MPI_COMM_WORLD, NULL, NULL, &t[1]));
        FAILS(hd_wait(t[0], HD_FOREVER), HD_ERROR_FAILED);
        FAILS(copied ? copied : hd_wait(read, HD_FOREVER), HD_ERROR_FAILED);
        OK(hd_wait(t[1], HD_FOREVER));
        EXPECT(first_word(b) == 2);
        hd_free(copy);
    }
    hd_free(a);
    hd_free(b);
}

/* One copy of a long message fails while other pieces are ready. Both sides end, and the next
 * message of the tag arrives. */
static void a_copy_that_fails_in_the_middle_ends_both_sides(void)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    const char *faulty = rank == 0 ? "driver=host host_devices=1 placement=thread fault=cuMemcpyDtoHAsync:2"
                                   : "driver=host host_devices=1 placement=thread";
    hd_runtime *kept = runtime;
    hd_lane *kept_lane = lane;
    hd_mpi *own = NULL;
    hd_ticket t;
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, faulty, &runtime, NULL));
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_mpi_open(runtime, &options, &own));
    hd_buffer *a = device(8 * PIECE, 1), *host = NULL;
    OK(hd_alloc_host(runtime, 100, &host));
    OK(hd_fill(host, 0, 5, 100, NULL));
    if (rank == 0) {
        OK(hd_mpi_send(own, hd_mpi_buffer(a), 1, 1, apart, &t));
        EXPECT(hd_wait(t, HD_FOREVER) != HD_OK);
        OK(hd_mpi_send(own, hd_mpi_buffer(host), 1, 1, apart, &t));
    } else {
        OK(hd_mpi_recv(own, hd_mpi_buffer(a), 0, 1, apart, NULL, NULL, &t));
        FAILS(hd_wait(t, HD_FOREVER), HD_ERROR_FAILED);
        OK(hd_mpi_recv(own, hd_mpi_buffer(host), 0, 1, apart, NULL, NULL, &t));
    }
    OK(hd_wait(t, HD_FOREVER));
    OK(hd_mpi_close(own, HD_FOREVER));
    hd_free(a);
    hd_free(host);
    (void)hd_close(runtime); /* perhaps the fault lost the device */
    runtime = kept;
    lane = kept_lane;
}

static void a_message_of_another_size_fails_the_receive(void)
{
    hd_buffer *a = device(BYTES, 7);
    hd_ticket t;
    MPI_Status status;
    size_t received = 0;
    const size_t sizes[3] = {100, BYTES - 4, PIECE};
    for (int i = 0; i < 3; i++) {
        if (rank == 0) {
            OK(hd_mpi_send(mpi, hd_mpi_range(a, 0, sizes[i]), 1, i, MPI_COMM_WORLD, &t));
            OK(hd_mpi_send(mpi, hd_mpi_range(a, 0, sizes[i]), 1, i, MPI_COMM_WORLD, NULL));
            OK(hd_wait(t, HD_FOREVER));
        } else {
            OK(hd_mpi_recv(mpi, hd_mpi_buffer(a), MPI_ANY_SOURCE, i, MPI_COMM_WORLD, NULL, NULL, &t));
            FAILS(hd_wait(t, HD_FOREVER), HD_ERROR_FAILED);
            char reason[128];
            snprintf(reason, sizeof reason, "%zu bytes came from rank 0 with tag %d, instead of %d;", sizes[i], i,
                     BYTES);
            EXPECT(strstr(hd_message(), reason));
            OK(hd_mpi_recv(mpi, hd_mpi_buffer(a), MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status, &received, &t));
            OK(hd_wait(t, HD_FOREVER));
            EXPECT(received == sizes[i] && status.MPI_SOURCE == 0 && status.MPI_TAG == i && first_word(a) == 7);
        }
    }
    hd_free(a);
}

/* MPI cuts a message, and the ticket repeats the text of MPI. */
static void a_message_that_mpi_cuts_fails_with_its_text(void)
{
    hd_buffer *a = device(1000, 7);
    hd_ticket t;
    if (rank == 0) {
        OK(hd_mpi_send(mpi, hd_mpi_buffer(a), 1, 3, MPI_COMM_WORLD, &t));
        OK(hd_wait(t, HD_FOREVER));
    } else {
        char text[MPI_MAX_ERROR_STRING];
        int length = 0;
        OK(hd_mpi_recv(mpi, hd_mpi_range(a, 0, 500), 0, 3, MPI_COMM_WORLD, NULL, NULL, &t));
        FAILS(hd_wait(t, HD_FOREVER), HD_ERROR_FAILED);
        EXPECT(strstr(hd_message(), "more than 500 bytes came from rank 0 with tag 3"));
        MPI_Error_string(MPI_ERR_TRUNCATE, text, &length);
        text[strcspn(text, ",:")] = 0; /* the end depends on the message */
        EXPECT(strstr(hd_message(), text) || strstr(hd_message(), "runcate"));
    }
    hd_free(a);
}

/* The ranks were opened with pieces of different sizes, and a long message goes in each direction.
 * The receives fail, and their messages name the sizes of the pieces. */
static void pieces_of_different_sizes_are_named(void)
{
    enum { SMALL = 4096, LARGE = 65536, LENGTH = 2 * LARGE };
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = rank == 0 ? SMALL : LARGE};
    hd_mpi *own = NULL;
    hd_ticket sent, got;
    MPI_Comm brief; /* further pieces of the messages go away with it */
    MPI_Comm_dup(MPI_COMM_WORLD, &brief);
    OK(hd_mpi_open(runtime, &options, &own));
    hd_buffer *a = device(LENGTH, 1), *b = device(LENGTH, 2);
    OK(hd_mpi_sendrecv(own, hd_mpi_buffer(a), other, 5, hd_mpi_buffer(b), other, 5, brief, &sent, &got));
    FAILS(hd_wait(got, HD_FOREVER), HD_ERROR_FAILED);
    EXPECT(strstr(hd_message(), "give all ranks one piece_bytes"));
    EXPECT(rank == 0 ? strstr(hd_message(), "more than 4096 bytes came from rank 1 with tag 5")
                     : strstr(hd_message(), "one piece_bytes (65536 here, or 4096)"));
    /* the rest of both messages */
    for (int left = rank == 0 ? LENGTH - LARGE : LENGTH - SMALL, n = -1; n != 0; left -= n) {
        MPI_Status status;
        static unsigned char rest[LARGE];
        MPI_Recv(rest, LARGE, MPI_BYTE, other, 5, brief, &status);
        MPI_Get_count(&status, MPI_BYTE, &n);
        EXPECT(left >= n);
    }
    OK(hd_wait(sent, HD_FOREVER));
    OK(hd_mpi_close(own, HD_FOREVER));
    MPI_Comm_free(&brief);
    hd_free(a);
    hd_free(b);
}

/* Messages below a piece are plain messages of MPI. */
static void the_other_side_may_use_mpi(void)
{
    hd_buffer *a = device(1000, 9);
    unsigned char bytes[1000];
    hd_ticket t;
    if (rank == 0) {
        OK(hd_mpi_send(mpi, hd_mpi_buffer(a), 1, 2, MPI_COMM_WORLD, NULL));
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(a), 1, 3, MPI_COMM_WORLD, NULL, NULL, &t));
        OK(hd_wait(t, HD_FOREVER));
        EXPECT(first_word(a) == 0x05050505);
    } else {
        MPI_Recv(bytes, 1000, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(bytes[0] == 9 && bytes[1] == 0 && bytes[996] == 9);
        memset(bytes, 5, sizeof bytes);
        MPI_Send(bytes, 1000, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    hd_free(a);
}

/* The call fails with this status, and its message names the call and the value. */
#define REFUSED(call, status, text)                                                                                    \
    do {                                                                                                               \
        FAILS(call, status);                                                                                           \
        if (strncmp(hd_message(), #call, strcspn(#call, "(")) != 0 || !strstr(hd_message(), text)) {                   \
            FAIL("%s: the message is '%s'", #call, hd_message());                                                      \
        }                                                                                                              \
    } while (0)

static void wrong_messages_are_refused(hd_mpi_data a, hd_mpi_data b, hd_ticket *t)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const hd_mpi_data beyond = hd_mpi_range(a.buffer, BYTES, 1), null = hd_mpi_buffer(NULL);
    REFUSED(hd_mpi_send(NULL, a, other, 0, world, t), HD_ERROR_ARGUMENT, "mpi is null");
    REFUSED(hd_mpi_send(mpi, a, other, 0, MPI_COMM_NULL, t), HD_ERROR_ARGUMENT, "MPI_COMM_NULL");
    REFUSED(hd_mpi_send(mpi, a, 2, 0, world, t), HD_ERROR_ARGUMENT, "no rank 2");
    REFUSED(hd_mpi_send(mpi, a, MPI_ANY_SOURCE, 0, world, t), HD_ERROR_ARGUMENT, "no rank -");
    REFUSED(hd_mpi_send(mpi, a, other, -5, world, t), HD_ERROR_ARGUMENT, "tag -5");
    REFUSED(hd_mpi_send(mpi, a, other, MPI_ANY_TAG, world, t), HD_ERROR_ARGUMENT, "tag -1");
    REFUSED(hd_mpi_send(mpi, null, other, 0, world, t), HD_ERROR_HANDLE, "the buffer is null");
    REFUSED(hd_mpi_send(mpi, beyond, other, 0, world, t), HD_ERROR_RANGE, "12388 + 1 of a buffer of 12388");
    REFUSED(hd_mpi_recv(NULL, a, other, 0, world, NULL, NULL, t), HD_ERROR_ARGUMENT, "mpi is null");
    REFUSED(hd_mpi_recv(mpi, a, other, 0, MPI_COMM_NULL, NULL, NULL, t), HD_ERROR_ARGUMENT, "MPI_COMM_NULL");
    REFUSED(hd_mpi_recv(mpi, a, 9, 0, world, NULL, NULL, t), HD_ERROR_ARGUMENT, "no rank 9");
    REFUSED(hd_mpi_recv(mpi, a, other, -7, world, NULL, NULL, t), HD_ERROR_ARGUMENT, "tag -7");
    REFUSED(hd_mpi_recv(mpi, null, other, 0, world, NULL, NULL, t), HD_ERROR_HANDLE, "the buffer is null");
    REFUSED(hd_mpi_recv(mpi, beyond, other, 0, world, NULL, NULL, t), HD_ERROR_RANGE, "12388 + 1 of");
    REFUSED(hd_mpi_sendrecv(mpi, a, other, 0, b, 7, 0, world, t, t), HD_ERROR_ARGUMENT, "no rank 7");
    REFUSED(hd_mpi_sendrecv(mpi, a, other, 0, b, other, -9, world, t, t), HD_ERROR_ARGUMENT, "tag -9");
    REFUSED(hd_mpi_sendrecv(mpi, a, other, 0, hd_mpi_range(a.buffer, 8, 8), other, 0, world, t, t), HD_ERROR_ARGUMENT,
            "overlap");
    REFUSED(hd_mpi_sendrecv(mpi, beyond, other, 0, b, other, 0, world, t, t), HD_ERROR_RANGE, "12388 + 1 of");
    REFUSED(hd_mpi_sendrecv(mpi, a, other, 0, beyond, other, 0, world, t, t), HD_ERROR_RANGE, "12388 + 1 of");
}

static void wrong_collectives_are_refused(hd_mpi_data a, hd_mpi_data b, hd_ticket *t)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const hd_mpi_data three = hd_mpi_range(a.buffer, 0, 3), first = hd_mpi_range(a.buffer, 0, 8);
    const hd_mpi_data shifted = hd_mpi_range(a.buffer, 4, 8), word = hd_mpi_range(b.buffer, 0, 4);
    const hd_status wrong = HD_ERROR_ARGUMENT;
    REFUSED(hd_mpi_bcast(mpi, a, -1, world, t), wrong, "no rank -1");
    REFUSED(hd_mpi_bcast(mpi, a, 2, world, t), wrong, "no rank 2");
    REFUSED(hd_mpi_bcast(mpi, hd_mpi_buffer(NULL), 0, world, t), HD_ERROR_HANDLE, "the buffer is null");
    REFUSED(hd_mpi_reduce(mpi, a, b, HD_TYPE_I32, MPI_SUM, 5, world, t), wrong, "no rank 5");
    REFUSED(hd_mpi_reduce(mpi, three, b, HD_TYPE_I32, MPI_SUM, 0, world, t), wrong, "3 bytes");
    REFUSED(hd_mpi_allreduce(mpi, a, word, HD_TYPE_F32, MPI_SUM, world, t), wrong, "differ by 12384 bytes");
    REFUSED(hd_mpi_allreduce(mpi, first, shifted, HD_TYPE_F32, MPI_SUM, world, t), wrong, "overlap");
    REFUSED(hd_mpi_allreduce(mpi, a, b, HD_TYPE_BF16, MPI_SUM, world, t), HD_ERROR_UNSUPPORTED, "the type bf16");
    REFUSED(hd_mpi_allreduce(mpi, a, b, (hd_type)77, MPI_SUM, world, t), wrong, "hd_type 77");
    REFUSED(hd_mpi_allreduce(mpi, a, b, HD_TYPE_F32, MPI_OP_NULL, world, t), wrong, "MPI_OP_NULL");
    REFUSED(hd_mpi_allreduce(mpi, a, b, HD_TYPE_F32, MPI_LAND, world, t), wrong, "the type f32");
    REFUSED(hd_mpi_allreduce(mpi, first, first, HD_TYPE_C64, MPI_MAX, world, t), wrong, "the type c64");
    REFUSED(hd_mpi_allreduce(mpi, a, b, HD_TYPE_I32, MPI_MAXLOC, world, t), wrong, "the type i32");
    REFUSED(hd_mpi_allgather(mpi, a, b, world, t), wrong, "must have 24776 bytes");
    REFUSED(hd_mpi_alltoall(mpi, three, hd_mpi_range(b.buffer, 0, 3), world, t), wrong, "3 bytes");
    REFUSED(hd_mpi_alltoall(mpi, first, shifted, world, t), wrong, "overlap");
    REFUSED(hd_mpi_barrier(mpi, MPI_COMM_NULL, t), wrong, "MPI_COMM_NULL");
}

static void wrong_calls_are_refused(void)
{
    hd_buffer *a = device(BYTES, 4), *b = device(BYTES, 4);
    hd_ticket t = {NULL, 0};
    hd_mpi *none = NULL;
    const hd_mpi_options small = {.size = sizeof small, .piece_bytes = 100};
    const hd_mpi_options negative = {.size = sizeof small, .timeout_ns = -1}, no_size = {.size = 3};
    wrong_messages_are_refused(hd_mpi_buffer(a), hd_mpi_buffer(b), &t);
    wrong_collectives_are_refused(hd_mpi_buffer(a), hd_mpi_buffer(b), &t);
    REFUSED(hd_mpi_wait(mpi, t, -2), HD_ERROR_ARGUMENT, "-2 ns");
    REFUSED(hd_mpi_close(mpi, -2), HD_ERROR_ARGUMENT, "-2 ns");
    REFUSED(hd_mpi_open(runtime, &small, &none), HD_ERROR_ARGUMENT, "piece_bytes is 100");
    REFUSED(hd_mpi_open(runtime, &negative, &none), HD_ERROR_ARGUMENT, "timeout_ns is -1");
    REFUSED(hd_mpi_open(runtime, &no_size, &none), HD_ERROR_ARGUMENT, "options.size is 3");
    FAILS(hd_mpi_open(NULL, NULL, &none), HD_ERROR_HANDLE);
    REFUSED(hd_mpi_open(runtime, NULL, NULL), HD_ERROR_ARGUMENT, "out is null");
    REFUSED(hd_mpi_runtime_open(MPI_COMM_WORLD, NULL, NULL, NULL), HD_ERROR_ARGUMENT, "out is null");
    EXPECT(t.lane == NULL && none == NULL);
    /* nothing is under way, and the other rank got nothing */
    int found = 0;
    EXPECT(mpi->operations == 0 && mpi->temporaries == NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    EXPECT(!found);
    MPI_Barrier(MPI_COMM_WORLD);
    /* a message to nobody */
    OK(hd_mpi_sendrecv(mpi, hd_mpi_buffer(a), MPI_PROC_NULL, 0, hd_mpi_buffer(b), MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                       NULL, &t));
    OK(hd_mpi_wait(mpi, t, HD_FOREVER));
    EXPECT(first_word(b) == 4);
    hd_free(a);
    hd_free(b);
}

/* The type of a tensor's elements, and communicators with other numbers of roots. */
static void other_types_and_roots_are_refused(void)
{
    hd_buffer *a = device(BYTES, 4);
    const uint64_t shape = 10;
    hd_tensor floats;
    hd_ticket t = {NULL, 0};
    MPI_Comm alone, inter;
    OK(hd_tensor_make(a, 0, HD_TYPE_F32, 1, &shape, &floats));
    const hd_mpi_data x = hd_mpi_tensor(&floats);
    REFUSED(hd_mpi_allreduce(mpi, x, x, HD_TYPE_F64, MPI_SUM, MPI_COMM_WORLD, &t), HD_ERROR_ARGUMENT, "the type f32");
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &alone);
    MPI_Intercomm_create(alone, 0, MPI_COMM_WORLD, other, 9, &inter);
    REFUSED(hd_mpi_bcast(mpi, x, 0, inter, &t), HD_ERROR_UNSUPPORTED, "intercommunicator");
    REFUSED(hd_mpi_reduce(mpi, x, x, HD_TYPE_F32, MPI_SUM, 0, inter, &t), HD_ERROR_UNSUPPORTED, "intercommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&alone);
    hd_free(a);
}

/* A message that is shorter than its receive leaves the bytes behind it, in each kind of memory. */
static void a_short_message_leaves_the_other_bytes(void)
{
    for (int kind = 0; kind < 3; kind++) {
        hd_buffer *b = NULL;
        uint32_t words[3 * PIECE / 4];
        MPI_Status status;
        size_t received = 0;
        hd_ticket t;
        OK(kind == 0   ? hd_alloc(lane, sizeof words, &b)
           : kind == 1 ? hd_alloc_host(runtime, sizeof words, &b)
                       : hd_alloc_unified(lane, sizeof words, &b));
        OK(hd_fill(b, 0, rank ? 7 : 8, sizeof words, NULL)); /* on the device */
        if (rank == 0) {
            OK(hd_mpi_send(mpi, hd_mpi_range(b, 0, 8), 1, 2, MPI_COMM_WORLD, &t));
            OK(hd_wait(t, HD_FOREVER));
        } else {
            OK(hd_mpi_recv(mpi, hd_mpi_buffer(b), 0, 2, MPI_COMM_WORLD, &status, &received, &t));
            OK(hd_wait(t, HD_FOREVER));
            OK(hd_read(b, 0, words, sizeof words));
            EXPECT(received == 8 && words[0] == 8 && words[1] == 8);
            for (size_t i = 2; i < sizeof words / 4; i++) {
                EXPECT(words[i] == 7);
            }
        }
        hd_free(b);
    }
}

/* A wait without success names what it waits for, and how long it waited. */
static void a_wait_names_its_message(void)
{
    hd_buffer *a = device(100, 1);
    hd_ticket t;
    int go = 1;
    if (rank == 1) {
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(a), 0, 77, MPI_COMM_WORLD, NULL, NULL, &t));
        REFUSED(hd_mpi_wait(mpi, t, 3000000), HD_ERROR_TIMEOUT, "after 3000000 ns");
        REFUSED(hd_mpi_wait(mpi, t, 3000000), HD_ERROR_TIMEOUT, "recv from 0 tag 77 100 B");
        MPI_Send(&go, 1, MPI_INT, 0, 78, MPI_COMM_WORLD);
        OK(hd_mpi_wait(mpi, t, HD_FOREVER));
    } else {
        MPI_Recv(&go, 1, MPI_INT, 1, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        OK(hd_mpi_send(mpi, hd_mpi_buffer(a), 1, 77, MPI_COMM_WORLD, &t));
        OK(hd_mpi_wait(mpi, t, HD_FOREVER));
    }
    hd_free(a);
}

/* A receive into a strided tensor leaves the elements for which no bytes arrive. */
static void a_strided_receive_writes_only_what_arrives(void)
{
    const uint64_t shape = 4;
    const int64_t stride = 8;
    hd_buffer *sent = device(8, 7), *b = device(32, 9), *used = device(16, 5);
    hd_tensor t;
    hd_ticket done;
    MPI_Status status;
    uint32_t words[8];
    EXPECT(first_word(used) == 5);
    OK(hd_free(used)); /* the temporary memory of the tensor may be this memory, and contain 5 */
    OK(hd_tensor_make_strided(b, 0, HD_TYPE_U32, 1, &shape, &stride, &t));
    OK(hd_mpi_recv(mpi, hd_mpi_tensor(&t), MPI_PROC_NULL, 0, MPI_COMM_WORLD, NULL, NULL, NULL));
    OK(hd_mpi_sendrecv(mpi, hd_mpi_range(sent, 0, 0), MPI_PROC_NULL, 0, hd_mpi_tensor(&t), MPI_PROC_NULL, 0,
                       MPI_COMM_WORLD, NULL, NULL));
    OK(hd_read(b, 0, words, sizeof words));
    for (int i = 0; i < 8; i++) {
        EXPECT(words[i] == 9);
    }
    OK(hd_mpi_send(mpi, hd_mpi_buffer(sent), other, 3, MPI_COMM_WORLD, &done));
    OK(hd_mpi_recv(mpi, hd_mpi_tensor(&t), other, 3, MPI_COMM_WORLD, &status, NULL, NULL));
    OK(hd_read(b, 0, words, sizeof words));
    for (int i = 0; i < 8; i++) {
        EXPECT(words[i] == (i == 0 || i == 2 ? 7u : 9u));
    }
    OK(hd_wait(done, HD_FOREVER));
    hd_free(sent);
    hd_free(b);
}

/* A message that never comes fails its ticket after the limit. The others are not disturbed. */
static void a_message_that_never_comes(void)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE, .timeout_ns = 200000000};
    hd_mpi *limited = NULL;
    hd_buffer *a = device(BYTES, 1), *b = device(BYTES, 2), *c = device(BYTES, 3);
    hd_ticket never, comes, goes;
    OK(hd_mpi_open(runtime, &options, &limited));
    OK(hd_mpi_recv(limited, hd_mpi_buffer(a), other, 99, apart, NULL, NULL, &never));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(hd_mpi_sendrecv(mpi, hd_mpi_buffer(b), other, 1, hd_mpi_buffer(c), other, 1, MPI_COMM_WORLD, &goes, &comes));
    OK(hd_wait(comes, HD_FOREVER));
    OK(hd_wait(goes, HD_FOREVER)); /* no longer under way when the link is closed */
    FAILS(hd_wait(never, HD_FOREVER), HD_ERROR_FAILED);
    EXPECT(strstr(hd_message(), other ? "recv from 1 tag 99" : "recv from 0 tag 99"));
    EXPECT(strstr(hd_message(), "made progress for 200000000 ns"));
    FAILS(hd_read(a, 0, &(uint32_t){0}, 4), HD_ERROR_FAILED);
    EXPECT(first_word(c) == 2);
    /* the end of the link does not wait longer than it may */
    OK(hd_mpi_recv(mpi, hd_mpi_buffer(b), other, 98, MPI_COMM_WORLD, NULL, NULL, &never));
    OK(hd_mpi_close(limited, HD_FOREVER));
    OK(hd_fill(a, 0, 0, 4, NULL));
    FAILS(hd_mpi_close(mpi, 50000000), HD_ERROR_TIMEOUT);
    EXPECT(strstr(hd_message(), "receive from rank") && strstr(hd_message(), ", tag 98, of 12388 bytes"));
    EXPECT(strstr(hd_message(), "under way"));
    FAILS(hd_wait(never, HD_FOREVER), HD_ERROR_FAILED);
    OK(hd_mpi_open(runtime, &options, &mpi));
    MPI_Barrier(MPI_COMM_WORLD);
    hd_free(a);
    hd_free(b);
    hd_free(c);
}

/* Runs the link until its first operation has the property `fact`. */
#define UNTIL(link, fact)                                                                                              \
    do {                                                                                                               \
        int until = 0;                                                                                                 \
        while (!until) {                                                                                               \
            int moved = 0;                                                                                             \
            hdmpi_lock(link);                                                                                          \
            hdmpi_progress(link, &moved);                                                                              \
            until = (link)->first && (link)->first->fact;                                                              \
            hdmpi_unlock(link);                                                                                        \
        }                                                                                                              \
    } while (0)

/* The limit of a long send passes after its first pieces. The receiver has no limit, and still gets
 * to its end. The next message of the tag arrives. */
static void a_send_that_gives_up_tells_its_receiver(void)
{
    enum { LONG_PIECE = 1 << 20 }; /* MPI copies no such piece away */
    const hd_mpi_options options = {
        .size = sizeof options, .piece_bytes = LONG_PIECE, .timeout_ns = rank == 0 ? 1000000 : 0};
    hd_mpi *own = NULL;
    hd_ticket t[2];
    int go = 1;
    OK(hd_mpi_open(runtime, &options, &own));
    hd_buffer *a = device(8 * LONG_PIECE, 4), *b = device(100, 5);
    if (rank == 0) {
        OK(hd_mpi_send(own, hd_mpi_buffer(a), 1, 3, apart, &t[0]));
        UNTIL(own, cancelled);
        MPI_Send(&go, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
        FAILS(hd_wait(t[0], HD_FOREVER), HD_ERROR_FAILED);
        OK(hd_mpi_send(own, hd_mpi_buffer(b), 1, 3, apart, &t[1]));
        OK(hd_wait(t[1], HD_FOREVER));
    } else {
        MPI_Recv(&go, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        OK(hd_mpi_recv(own, hd_mpi_buffer(a), 0, 3, apart, NULL, NULL, &t[0]));
        OK(hd_mpi_recv(own, hd_mpi_buffer(b), 0, 3, apart, NULL, NULL, &t[1]));
        FAILS(hd_wait(t[0], HD_FOREVER), HD_ERROR_FAILED);
        OK(hd_wait(t[1], HD_FOREVER));
        EXPECT(first_word(b) == 5);
    }
    hd_free(a);
    hd_free(b);
    OK(hd_mpi_close(own, HD_FOREVER));
}

/* The copy of a piece waits much longer than the limit of messages. The limit does not count that
 * time. */
static void the_limit_counts_no_copies(void)
{
    const hd_mpi_options options = {
        .size = sizeof options, .piece_bytes = PIECE, .timeout_ns = rank == 0 ? 1000000 : 0};
    hd_mpi *own = NULL;
    hd_ticket t;
    OK(hd_mpi_open(runtime, &options, &own));
    hd_buffer *a = device(100, 6);
    if (rank == 0) {
        hdmpi_slot *slot = NULL, *spare = NULL; /* one stays for a receive */
        OK(hdmpi_slot_make(runtime, PIECE, &spare));
        OK(hdmpi_slot_make(runtime, PIECE, &slot));
        hdmpi_lock(own);
        hdmpi_slots_for(own, PIECE)->all += 2;
        hdmpi_slot_give(own, spare, 1);
        hdmpi_slot_give(own, slot, 1); /* the next piece uses this slot */
        hdmpi_unlock(own);
        hd_claim *gate = claim_all(slot->buffer);
        OK(hd_mpi_send(own, hd_mpi_buffer(a), 1, 3, apart, &t));
        UNTIL(own, copying);
        FAILS(hd_mpi_wait(own, t, 50 * options.timeout_ns), HD_ERROR_TIMEOUT);
        EXPECT(!own->first->cancelled);
        OK(hd_claim_end(gate, HD_OK));
        OK(hd_wait(t, HD_FOREVER));
    } else {
        OK(hd_mpi_recv(own, hd_mpi_buffer(a), 0, 3, apart, NULL, NULL, &t));
        OK(hd_wait(t, HD_FOREVER));
        EXPECT(first_word(a) == 6);
    }
    hd_free(a);
    OK(hd_mpi_close(own, HD_FOREVER));
}

/* The process of a send gets no processor for longer than the limit. The send still gets its
 * time. */
static void the_limit_counts_no_time_without_a_processor(void)
{
    enum { LONG_PIECE = 1 << 20 }; /* MPI copies no such piece away */
    const int64_t limit = 500000000;
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = LONG_PIECE};
    hd_mpi *own = NULL;
    hd_ticket t;
    int go = 1, moved = 0;
    OK(hd_mpi_open(runtime, &options, &own));
    hd_buffer *a = device(LONG_PIECE, 4);
    if (rank == 0) {
        OK(hd_mpi_send(own, hd_mpi_buffer(a), 1, 3, apart, &t));
        UNTIL(own, posted == 2 && own->first->ended == 1); /* the empty message behind it is over */
        hdmpi_lock(own);
        own->timeout_ns = limit; /* not earlier or longer, since the other rank may be slow */
        own->asked = own->first->moved = hdmpi_now();
        usleep(2 * (useconds_t)(limit / 1000));
        hdmpi_progress(own, &moved);
        EXPECT(own->first && !own->first->cancelled);
        own->timeout_ns = 0;
        hdmpi_unlock(own);
        MPI_Send(&go, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&go, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        OK(hd_mpi_recv(own, hd_mpi_buffer(a), 0, 3, apart, NULL, NULL, &t));
    }
    OK(hd_wait(t, HD_FOREVER));
    hd_free(a);
    OK(hd_mpi_close(own, HD_FOREVER));
}

/* hd_close comes before hd_mpi_close, while rank 0 waits for messages. MPI may still write them
 * afterwards: the memory is left as it is. */
static void the_runtime_closes_before_its_messages_come(void)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    hd_runtime *own = NULL;
    hd_lane *own_lane = NULL;
    hd_mpi *link = NULL;
    hd_buffer *a = NULL, *b = NULL;
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1 close_timeout=50", &own, NULL));
    OK(hd_mpi_open(own, &options, &link));
    OK(hd_lane_get_default(own, 0, &own_lane));
    OK(hd_alloc(own_lane, 1000, &a));
    OK(hd_alloc_host(own, 1000, &b));
    OK(hd_fill(a, 0, 7, 1000, NULL));
    OK(hd_fill(b, 0, 8, 1000, NULL));
    OK(hd_buffer_wait(a, HD_READ_WRITE, HD_FOREVER));
    OK(hd_buffer_wait(b, HD_READ_WRITE, HD_FOREVER));
    if (rank == 0) {
        OK(hd_mpi_recv(link, hd_mpi_buffer(a), 1, 5, apart, NULL, NULL, NULL));
        OK(hd_mpi_recv(link, hd_mpi_buffer(b), MPI_ANY_SOURCE, MPI_ANY_TAG, apart, NULL, NULL, NULL));
        FAILS(hd_close(own), HD_ERROR_TIMEOUT);
        EXPECT(strstr(hd_message(), "recv from 1 tag 5 1000 B") != NULL);
        EXPECT(strstr(hd_message(), "recv from any tag any 1000 B") != NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        OK(hd_mpi_close(link, HD_FOREVER)); /* the messages come */
    } else {
        hd_ticket t[2];
        MPI_Barrier(MPI_COMM_WORLD);
        OK(hd_mpi_send(link, hd_mpi_buffer(a), 0, 5, apart, &t[0]));
        OK(hd_mpi_send(link, hd_mpi_buffer(b), 0, 6, apart, &t[1]));
        OK(hd_wait(t[0], HD_FOREVER));
        OK(hd_wait(t[1], HD_FOREVER));
        OK(hd_mpi_close(link, HD_FOREVER));
        OK(hd_close(own));
    }
}

/* A communicator belongs to one link until this link or its runtime is closed. Its duplicates
 * belong to nobody. */
static void two_links_share_no_communicator(void)
{
    hd_buffer *a = device(100, 1), *b = device(100, 2);
    hd_runtime *brief = NULL;
    hd_mpi *second = NULL, *third = NULL, *of_brief = NULL;
    hd_ticket sent, got;
    const hd_mpi_data in = hd_mpi_buffer(a), out = hd_mpi_buffer(b);
    OK(hd_mpi_barrier(mpi, MPI_COMM_WORLD, &got)); /* marks the communicator */
    OK(hd_wait(got, HD_FOREVER));
    OK(hd_mpi_open(runtime, NULL, &second));
    REFUSED(hd_mpi_send(second, in, other, 4, MPI_COMM_WORLD, &sent), HD_ERROR_ACCESS, "MPI_Comm_dup");
    REFUSED(hd_mpi_recv(second, out, other, 4, MPI_COMM_WORLD, NULL, NULL, &got), HD_ERROR_ACCESS, "another link");
    REFUSED(hd_mpi_barrier(second, MPI_COMM_WORLD, &got), HD_ERROR_ACCESS, "another link");
    REFUSED(hd_mpi_enable_direct(second, MPI_COMM_WORLD, NULL), HD_ERROR_ACCESS, "another link");
    OK(hd_mpi_sendrecv(second, in, other, 4, out, other, 4, apart, &sent, &got));
    OK(hd_wait(got, HD_FOREVER));
    OK(hd_wait(sent, HD_FOREVER));
    OK(hd_mpi_open(runtime, NULL, &third));
    REFUSED(hd_mpi_barrier(third, apart, &got), HD_ERROR_ACCESS, "another link");
    OK(hd_mpi_close(second, HD_FOREVER));
    OK(hd_mpi_barrier(third, apart, &got));
    OK(hd_wait(got, HD_FOREVER));
    OK(hd_mpi_close(third, HD_FOREVER));
    /* the runtime of the link is closed, and the link is forgotten for now */
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1", &brief, NULL));
    OK(hd_mpi_open(brief, NULL, &of_brief));
    OK(hd_mpi_barrier(of_brief, apart, &got));
    OK(hd_wait(got, HD_FOREVER));
    OK(hd_close(brief));
    OK(hd_mpi_barrier(mpi, apart, &got));
    OK(hd_wait(got, HD_FOREVER));
    OK(hd_mpi_close(of_brief, HD_FOREVER));
    hd_free(a);
    hd_free(b);
}

int main(int argc, char **argv)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &apart);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1", &runtime, NULL));
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_mpi_open(runtime, &options, &mpi));
    messages_of_one_tag_keep_their_order();
    a_send_of_failed_bytes_fails_on_both_sides();
    a_copy_that_fails_in_the_middle_ends_both_sides();
    a_message_of_another_size_fails_the_receive();
    a_message_that_mpi_cuts_fails_with_its_text();
    pieces_of_different_sizes_are_named();
    the_other_side_may_use_mpi();
    wrong_calls_are_refused();
    other_types_and_roots_are_refused();
    a_short_message_leaves_the_other_bytes();
    a_wait_names_its_message();
    a_strided_receive_writes_only_what_arrives();
    a_message_that_never_comes();
    a_send_that_gives_up_tells_its_receiver();
    the_limit_counts_no_copies();
    the_limit_counts_no_time_without_a_processor();
    the_runtime_closes_before_its_messages_come();
    two_links_share_no_communicator();
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    MPI_Comm_free(&apart);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("trouble: all cases passed\n");
    }
    MPI_Finalize();
    return 0;
}
