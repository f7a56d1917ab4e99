/* sides.c - the memory of a row, and one iteration of each side (ranks.h).
 *
 * The shapes are those of the OSU micro-benchmarks:
 *   - a ping-pong of MPI_Send and MPI_Recv
 *   - a window of MPI_Isend and MPI_Irecv with a short answer. Each message uses memory of its own
 *   - MPI_Allreduce of floats with a barrier between iterations
 *
 * By hand, a message of device memory is a plain copy to pinned memory, MPI_Send and MPI_Recv, and
 * a plain copy to the device.
 *
 * Threads: the main one. Locks: none.
 */
#include <unistd.h>
#include "ranks.h"

int64_t bench_ranks_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the driver ---- */

static void bench_ranks_entry(const char *driver, const char *name, void *to)
{
    void (*entry)(void) = NULL;
    if (hd_driver_entry(driver, name, &entry) != HD_OK) {
        bench_ranks_fail(name, hd_message());
    }
    memcpy(to, &entry, sizeof entry);
}

void bench_ranks_driver_open(ranks_state *x, const char *driver)
{
    ranks_driver *d = &x->driver;
    hd_device_info info = {.size = sizeof info};
    int count = 0, device = 0;
    unsigned char uuid[16] = {0};
    void *context = NULL;
    const struct {
        const char *name;
        void *to;
    } entries[] = {
        {"cuInit", &d->cuInit},
        {"cuDeviceGetCount", &d->cuDeviceGetCount},
        {"cuDeviceGet", &d->cuDeviceGet},
        {"cuDeviceGetUuid", &d->cuDeviceGetUuid},
        {"cuDevicePrimaryCtxRetain", &d->cuDevicePrimaryCtxRetain},
        {"cuCtxSetCurrent", &d->cuCtxSetCurrent},
        {"cuMemAlloc", &d->cuMemAlloc},
        {"cuMemFree", &d->cuMemFree},
        {"cuMemHostAlloc", &d->cuMemHostAlloc},
        {"cuMemFreeHost", &d->cuMemFreeHost},
        {"cuMemcpyHtoD", &d->cuMemcpyHtoD},
        {"cuMemcpyDtoH", &d->cuMemcpyDtoH},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        bench_ranks_entry(driver, entries[i].name, entries[i].to);
    }
    RANKS_TRY(hd_device_get_info(x->runtime, 0, &info));
    RANKS_DRIVER(x, cuInit, (0));
    RANKS_DRIVER(x, cuDeviceGetCount, (&count));
    for (int i = 0; i < count && memcmp(uuid, info.uuid, sizeof uuid) != 0; i++) {
        RANKS_DRIVER(x, cuDeviceGet, (&device, i));
        RANKS_DRIVER(x, cuDeviceGetUuid, (uuid, device));
    }
    RANKS_DRIVER(x, cuDevicePrimaryCtxRetain, (&context, device));
    RANKS_DRIVER(x, cuCtxSetCurrent, (context));
}

/* ---- memory ---- */

/* Fills memory with values whose sums over the ranks are exact. */
static void bench_ranks_pattern(void *memory, size_t bytes)
{
    float *word = memory;
    for (size_t i = 0; i < bytes / sizeof *word; i++) {
        word[i] = (float)(i % 1021 + 1);
    }
}

static void bench_ranks_verify(ranks_state *x, const void *memory, const char *side)
{
    const float *word = memory;
    const float each = x->row->part == RANKS_ALLREDUCE ? (float)x->ranks : 1;
    for (size_t i = 0; i < x->bytes / sizeof *word; i++) {
        if (word[i] != each * (float)(i % 1021 + 1)) {
            char why[128];
            snprintf(why, sizeof why, "word %zu of %zu bytes is %g, not %g", i, x->bytes, (double)word[i],
                     (double)(each * (float)(i % 1021 + 1)));
            bench_ranks_fail(side, why);
        }
    }
    x->verified += x->bytes;
}

/* Memory of the CPU for plain MPI, with touched pages. */
static char *bench_ranks_plain_alloc(ranks_state *x)
{
    void *memory = NULL;
    if (x->row->on_device) {
        RANKS_DRIVER(x, cuMemHostAlloc, (&memory, x->bytes, 0));
    } else if (posix_memalign(&memory, 4096, x->bytes)) {
        bench_ranks_fail("memory of a row", "out of memory");
    }
    memset(memory, 0, x->bytes);
    return memory;
}

static void bench_ranks_plain_free(ranks_state *x, void *memory)
{
    if (x->row->on_device) {
        x->driver.cuMemFreeHost(memory);
    } else {
        free(memory);
    }
}

void bench_ranks_memory_open(ranks_state *x)
{
    x->window = bench_ranks_window(x->row);
    x->bytes = x->window * x->row->bytes;
    x->plain_from = bench_ranks_plain_alloc(x);
    x->plain_to = bench_ranks_plain_alloc(x);
    bench_ranks_pattern(x->plain_from, x->bytes);
    if (x->row->on_device) {
        RANKS_TRY(hd_alloc(x->lane, x->bytes, &x->from));
        RANKS_TRY(hd_alloc(x->lane, x->bytes, &x->to));
        x->hand_host = bench_ranks_plain_alloc(x);
        RANKS_DRIVER(x, cuMemAlloc, (&x->hand_from, x->bytes));
        RANKS_DRIVER(x, cuMemAlloc, (&x->hand_to, x->bytes));
        RANKS_DRIVER(x, cuMemcpyHtoD, (x->hand_from, x->plain_from, x->bytes));
        RANKS_DRIVER(x, cuMemcpyHtoD, (x->hand_to, x->plain_to, x->bytes));
    } else {
        RANKS_TRY(hd_alloc_host(x->runtime, x->bytes, &x->from));
        RANKS_TRY(hd_alloc_host(x->runtime, x->bytes, &x->to));
    }
    RANKS_TRY(hd_write(x->from, 0, x->plain_from, x->bytes));
    RANKS_TRY(hd_fill(x->to, 0, 0, x->bytes, NULL));
    RANKS_TRY(hd_buffer_wait(x->to, HD_READ_WRITE, HD_FOREVER));
    RANKS_TRY(hd_buffer_wait(x->from, HD_READ_WRITE, HD_FOREVER));
}

/* True if bytes arrived on this rank. */
static bool bench_ranks_gets(const ranks_state *x)
{
    return x->row->part == RANKS_ALLREDUCE || x->receives || (x->row->part == RANKS_LATENCY && x->sends);
}

void bench_ranks_memory_close(ranks_state *x)
{
    if (bench_ranks_gets(x)) {
        if (x->row->part != RANKS_BESIDE) {
            bench_ranks_verify(x, x->plain_to, "MPI alone");
        }
        if (x->row->on_device && x->row->part != RANKS_BESIDE) {
            RANKS_DRIVER(x, cuMemcpyDtoH, (x->plain_to, x->hand_to, x->bytes));
            bench_ranks_verify(x, x->plain_to, "copies by hand");
        }
        RANKS_TRY(hd_read(x->to, 0, x->plain_to, x->bytes));
        bench_ranks_verify(x, x->plain_to, "Heddle");
    }
    bench_ranks_plain_free(x, x->plain_from);
    bench_ranks_plain_free(x, x->plain_to);
    if (x->row->on_device) {
        bench_ranks_plain_free(x, x->hand_host);
        x->driver.cuMemFree(x->hand_from);
        x->driver.cuMemFree(x->hand_to);
    }
    hd_free(x->from);
    hd_free(x->to);
    hd_memory_trim(x->runtime, 0, 0, NULL);
}

/* ---- messages ---- */

static void bench_ranks_copy_out(ranks_state *x, size_t at)
{
    RANKS_DRIVER(x, cuMemcpyDtoH, (x->hand_host + at, x->hand_from + at, x->row->bytes));
}

static void bench_ranks_copy_in(ranks_state *x, size_t at)
{
    RANKS_DRIVER(x, cuMemcpyHtoD, (x->hand_to + at, x->hand_host + at, x->row->bytes));
}

/* Sends one message, and returns once its memory may be used again. */
static void bench_ranks_send(ranks_state *x, int side)
{
    const int n = (int)x->row->bytes;
    if (side == RANKS_HEDDLE) {
        /* the program does not wait: Heddle orders the next operations */
        RANKS_TRY(hd_mpi_send(x->mpi, hd_mpi_buffer(x->from), x->peer, RANKS_TAG, MPI_COMM_WORLD, NULL));
    } else if (side == RANKS_HAND) {
        bench_ranks_copy_out(x, 0);
        MPI_Send(x->hand_host, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD);
    } else {
        MPI_Send(x->plain_from, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD);
    }
}

static void bench_ranks_receive(ranks_state *x, int side)
{
    const int n = (int)x->row->bytes;
    if (side == RANKS_HEDDLE) {
        hd_ticket t;
        RANKS_TRY(hd_mpi_recv(x->mpi, hd_mpi_buffer(x->to), x->peer, RANKS_TAG, MPI_COMM_WORLD, NULL, NULL, &t));
        RANKS_TRY(hd_mpi_wait(x->mpi, t, HD_FOREVER));
    } else if (side == RANKS_HAND) {
        MPI_Recv(x->hand_host, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        bench_ranks_copy_in(x, 0);
    } else {
        MPI_Recv(x->plain_to, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* The short message with which the receiver ends a window, by the calls of the side. */
static void bench_ranks_answer(ranks_state *x, int side)
{
    int word = 0;
    if (side == RANKS_HEDDLE) {
        hd_ticket t;
        const hd_mpi_data data = hd_mpi_buffer(x->word);
        RANKS_TRY(x->receives ? hd_mpi_send(x->mpi, data, x->peer, RANKS_TAG_BACK, MPI_COMM_WORLD, &t)
                              : hd_mpi_recv(x->mpi, data, x->peer, RANKS_TAG_BACK, MPI_COMM_WORLD, NULL, NULL, &t));
        RANKS_TRY(hd_mpi_wait(x->mpi, t, HD_FOREVER));
    } else if (x->receives) {
        MPI_Send(&word, 1, MPI_INT, x->peer, RANKS_TAG_BACK, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&word, 1, MPI_INT, x->peer, RANKS_TAG_BACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void bench_ranks_window_heddle(ranks_state *x)
{
    hd_ticket t[RANKS_WINDOW_MOST];
    for (size_t i = 0; i < x->window; i++) {
        const size_t at = i * x->row->bytes;
        RANKS_TRY(x->sends ? hd_mpi_send(x->mpi, hd_mpi_range(x->from, at, x->row->bytes), x->peer, RANKS_TAG,
                                         MPI_COMM_WORLD, &t[i])
                           : hd_mpi_recv(x->mpi, hd_mpi_range(x->to, at, x->row->bytes), x->peer, RANKS_TAG,
                                         MPI_COMM_WORLD, NULL, NULL, &t[i]));
    }
    for (size_t i = 0; i < x->window; i++) {
        RANKS_TRY(hd_mpi_wait(x->mpi, t[i], HD_FOREVER));
    }
}

static void bench_ranks_window_plain(ranks_state *x)
{
    MPI_Request request[RANKS_WINDOW_MOST];
    MPI_Status status[RANKS_WINDOW_MOST];
    const int n = (int)x->row->bytes;
    for (size_t i = 0; i < x->window; i++) {
        const size_t at = i * x->row->bytes;
        if (x->sends) {
            MPI_Isend(x->plain_from + at, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD, &request[i]);
        } else {
            MPI_Irecv(x->plain_to + at, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD, &request[i]);
        }
    }
    MPI_Waitall((int)x->window, request, status);
}

static void bench_ranks_window_hand(ranks_state *x)
{
    const int n = (int)x->row->bytes;
    for (size_t i = 0; i < x->window; i++) {
        const size_t at = i * x->row->bytes;
        if (x->sends) {
            bench_ranks_copy_out(x, at);
            MPI_Send(x->hand_host + at, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD);
        } else {
            MPI_Recv(x->hand_host + at, n, MPI_BYTE, x->peer, RANKS_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_ranks_copy_in(x, at);
        }
    }
}

/* ---- reductions ---- */

static void bench_ranks_reduce(ranks_state *x, int side)
{
    const int n = (int)(x->row->bytes / sizeof(float));
    if (side == RANKS_HEDDLE) {
        hd_ticket t;
        RANKS_TRY(hd_mpi_allreduce(x->mpi, hd_mpi_buffer(x->from), hd_mpi_buffer(x->to), HD_TYPE_F32, MPI_SUM,
                                   MPI_COMM_WORLD, &t));
        RANKS_TRY(hd_mpi_wait(x->mpi, t, HD_FOREVER));
    } else if (side == RANKS_HAND) {
        bench_ranks_copy_out(x, 0);
        MPI_Allreduce(x->hand_host, x->plain_to, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        RANKS_DRIVER(x, cuMemcpyHtoD, (x->hand_to, x->plain_to, x->row->bytes));
    } else {
        MPI_Allreduce(x->plain_from, x->plain_to, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

/* ---- work of the device beside a message ---- */

/* Work that leaves the processor alone, as a kernel of a GPU does. */
static hd_status bench_ranks_sleep(void *const *pointers, void *context)
{
    const int64_t ns = *(const int64_t *)context;
    const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    (void)pointers;
    nanosleep(&t, NULL);
    return HD_OK;
}

/* Submits the work. A host device would compute on the processor that the message needs, so it
 * sleeps instead. */
static void bench_ranks_work(ranks_state *x, hd_ticket *out)
{
    if (x->on_host) {
        const hd_arg use = hd_inout(x->matrix[0]);
        RANKS_TRY(hd_launch_host(x->runtime, bench_ranks_sleep, &x->work_ns, &use, 1, out));
        return;
    }
    hd_tensor t[3];
    const uint64_t shape[2] = {RANKS_N, RANKS_N};
    for (int i = 0; i < 3; i++) {
        RANKS_TRY(hd_tensor_make(x->matrix[i], 0, HD_TYPE_F32, 2, shape, &t[i]));
    }
    for (int i = 0; i < x->work_count; i++) {
        RANKS_TRY(hd_tensor_matmul(x->lane, &t[0], &t[1], &t[2], 1, 0, out));
    }
}

static void bench_ranks_beside(ranks_state *x, int side)
{
    hd_ticket work, message;
    if (side != RANKS_MESSAGE) {
        bench_ranks_work(x, &work);
    }
    if (side != RANKS_WORK) {
        RANKS_TRY(x->sends ? hd_mpi_send(x->mpi, hd_mpi_buffer(x->from), x->peer, RANKS_TAG, MPI_COMM_WORLD, &message)
                           : hd_mpi_recv(x->mpi, hd_mpi_buffer(x->to), x->peer, RANKS_TAG, MPI_COMM_WORLD, NULL, NULL,
                                         &message));
        RANKS_TRY(hd_mpi_wait(x->mpi, message, HD_FOREVER));
    }
    if (side != RANKS_MESSAGE) {
        RANKS_TRY(hd_mpi_wait(x->mpi, work, HD_FOREVER));
    }
    bench_ranks_answer(x, RANKS_HEDDLE);
}

/* ---- one iteration ---- */

double bench_ranks_iterate(ranks_state *x, int side)
{
    const int64_t begin = bench_ranks_now();
    double share = 1;
    switch (x->row->part) {
    case RANKS_LATENCY:
        share = 0.5; /* one way: half of the time there and back */
        if (x->receives) {
            bench_ranks_receive(x, side);
        }
        bench_ranks_send(x, side);
        if (x->sends) {
            bench_ranks_receive(x, side);
        }
        break;
    case RANKS_BANDWIDTH:
        if (side == RANKS_HEDDLE) {
            bench_ranks_window_heddle(x);
        } else if (side == RANKS_HAND) {
            bench_ranks_window_hand(x);
        } else {
            bench_ranks_window_plain(x);
        }
        bench_ranks_answer(x, side);
        break;
    case RANKS_ALLREDUCE:
        bench_ranks_reduce(x, side);
        break;
    default:
        bench_ranks_beside(x, side);
        break;
    }
    const int64_t end = bench_ranks_now();
    if (x->row->part == RANKS_ALLREDUCE) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return share * (double)(end - begin);
}
