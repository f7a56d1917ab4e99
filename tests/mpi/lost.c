/* lost.c - one of three ranks is killed or stopped while the others exchange messages with it.
 *
 * usage: mpiexec -n 3 lost killed|stopped|continued
 *
 * Rank 1 is killed by SIGKILL, or stopped by SIGSTOP. If it is `continued`, it goes on after
 * operations of the others failed.
 *
 * The other ranks look at the state of rank 1 in /proc, so no check depends on time. After they
 * lost a rank, MPI_Finalize would wait for it. So they end without this call.
 *
 * Threads: the main one, and those of Heddle. Locks: none.
 */
#include <heddle/mpi.h>
#include <dirent.h>
#include <signal.h>
#include <unistd.h>
#include "check.h"

/* MPI has no room for a piece that the other rank does not take. */
enum { PIECE = 1 << 20, LONG = 3 * PIECE, SHORT = 100, EXCHANGES = 20, LOST = 1 };

static hd_runtime *runtime;
static hd_lane *lane;
/* Operations of `limited` fail without progress. Those of `patient` wait. */
static hd_mpi *limited, *patient;
static MPI_Comm apart; /* of `limited`, as a communicator has one link */
static int rank, pid_of_lost;

static hd_buffer *device(size_t bytes)
{
    hd_buffer *b = NULL;
    OK(hd_alloc(lane, bytes, &b));
    OK(hd_fill(b, 0, (uint32_t)rank, bytes / 4 * 4, NULL));
    return b;
}

/* The state of a thread in its file in /proc: R, S, T (stopped), Z (dead), or 0 if it is gone. */
static char state_of(const char *path)
{
    char text[256] = "";
    FILE *f = fopen(path, "r");
    if (!f) {
        return 0;
    }
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *name_end = n ? strrchr(text, ')') : NULL;
    return name_end ? name_end[2] : 0;
}

/* True if all threads of rank 1 are dead or stopped. They do not stop all at once. */
static int is_lost(int killed)
{
    char folder[64], path[sizeof folder + 300];
    snprintf(folder, sizeof folder, "/proc/%d/task", pid_of_lost);
    DIR *tasks = opendir(folder);
    int lost = tasks || killed;
    for (const struct dirent *e; lost && tasks && (e = readdir(tasks)) != NULL;) {
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/stat", folder, e->d_name);
            const char s = state_of(path);
            lost = killed ? s == 0 || s == 'Z' || s == 'X' : s == 'T';
        }
    }
    if (tasks) {
        closedir(tasks);
    }
    return lost;
}

/* Both ranks of each pair exchange a long and a short message, so MPI made all its connections. */
static void connect_all(void)
{
    hd_buffer *a = device(LONG), *b = device(LONG);
    for (int other = 0; other < 3; other++) {
        for (int bytes = SHORT; other != rank && bytes <= LONG; bytes += LONG - SHORT) {
            hd_ticket sent, got;
            OK(hd_mpi_sendrecv(patient, hd_mpi_range(a, 0, bytes), other, bytes, hd_mpi_range(b, 0, bytes), other,
                               bytes, MPI_COMM_WORLD, &sent, &got));
            OK(hd_wait(got, HD_FOREVER));
            OK(hd_wait(sent, HD_FOREVER));
        }
    }
    hd_free(a);
    hd_free(b);
    pid_of_lost = (int)getpid();
    MPI_Bcast(&pid_of_lost, 1, MPI_INT, LOST, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    int seen = 1;
    if (rank == LOST) { /* the others do not need the launcher any more */
        MPI_Recv(&seen, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&seen, 1, MPI_INT, 2, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(&seen, 1, MPI_INT, LOST, 1, MPI_COMM_WORLD);
    }
}

/* The other ranks go on with each other. */
static void exchange_without_lost(void)
{
    const int other = 2 - rank;
    hd_buffer *a = device(LONG), *b = device(LONG);
    for (int i = 0; i < EXCHANGES; i++) {
        const size_t bytes = i % 2 ? LONG : SHORT;
        hd_ticket sent, got;
        uint32_t word = 9;
        OK(hd_mpi_sendrecv(patient, hd_mpi_range(a, 0, bytes), other, i, hd_mpi_range(b, 0, bytes), other, i,
                           MPI_COMM_WORLD, &sent, &got));
        OK(hd_wait(got, HD_FOREVER));
        OK(hd_wait(sent, HD_FOREVER));
        OK(hd_read(b, bytes / 4 * 4 - 4, &word, 4));
        EXPECT(word == (uint32_t)other);
    }
    hd_free(a);
    hd_free(b);
}

/* The ticket failed, and its message names the operation. */
static void fails_by_name(hd_ticket t, const char *name)
{
    FAILS(hd_wait(t, HD_FOREVER), HD_ERROR_FAILED);
    if (!strstr(hd_message(), name)) {
        FAIL("the message does not name '%s': %s", name, hd_message());
    }
}

/* The operations of a survivor with rank 1. */
typedef struct under_way {
    hd_buffer *in, *out;
    hd_ticket long_one, short_one, waiting, sent, sent_patiently;
} under_way;

static void submit_all(under_way *u, int continued)
{
    u->in = device(3 * LONG);
    u->out = device(2 * LONG);
    const hd_mpi_data third = hd_mpi_range(u->in, 2 * LONG, LONG);
    OK(hd_mpi_recv(limited, hd_mpi_range(u->in, 0, LONG), LOST, 70, apart, NULL, NULL, &u->long_one));
    OK(hd_mpi_recv(limited, hd_mpi_range(u->in, LONG, SHORT), LOST, 71, apart, NULL, NULL, &u->short_one));
    OK(hd_mpi_recv(patient, third, LOST, 72, MPI_COMM_WORLD, NULL, NULL, &u->waiting));
    if (!continued) { /* no rank receives it */
        OK(hd_mpi_send(limited, hd_mpi_range(u->out, 0, LONG), LOST, 73, apart, &u->sent));
    }
    OK(hd_mpi_send(patient, hd_mpi_range(u->out, LONG, LONG), LOST, 74, MPI_COMM_WORLD, &u->sent_patiently));
}

static void receives_fail(under_way *u)
{
    uint32_t word;
    exchange_without_lost();
    fails_by_name(u->long_one, "recv from 1 tag 70");
    fails_by_name(u->short_one, "recv from 1 tag 71");
    FAILS(hd_read(u->in, 0, &word, 4), HD_ERROR_FAILED);
    EXPECT(!hd_done(u->waiting) && !hd_done(u->sent_patiently));
}

/* The ends of the links and of the runtime keep their limits, and fail what remains. */
static void close_without_lost(under_way *u)
{
    hd_ticket barrier;
    OK(hd_mpi_barrier(limited, apart, &barrier));
    FAILS(hd_mpi_close(limited, 100000000), HD_ERROR_TIMEOUT);
    /* on a busy machine, the send perhaps failed before its first piece was posted */
    EXPECT(strstr(hd_message(), "rank 1, tag 73") || strstr(hd_message(), "barrier"));
    fails_by_name(u->sent, "send to 1 tag 73");
    fails_by_name(barrier, "barrier");
    exchange_without_lost();
    FAILS(hd_mpi_close(patient, 100000000), HD_ERROR_TIMEOUT);
    EXPECT(strstr(hd_message(), "rank 1, tag 72") != NULL);
    fails_by_name(u->waiting, "recv from 1 tag 72");
    fails_by_name(u->sent_patiently, "send to 1 tag 74");
    OK(hd_close(runtime));
}

/* Rank 1 goes on, and the messages without a limit arrive. */
static void lost_goes_on(void)
{
    hd_buffer *a = device(LONG), *b = device(LONG);
    for (int other = 0; other < 3; other += 2) {
        hd_ticket t[2];
        uint32_t word = 9;
        OK(hd_mpi_send(patient, hd_mpi_buffer(a), other, 72, MPI_COMM_WORLD, &t[0]));
        OK(hd_mpi_recv(patient, hd_mpi_buffer(b), other, 74, MPI_COMM_WORLD, NULL, NULL, &t[1]));
        OK(hd_wait(t[0], HD_FOREVER));
        OK(hd_wait(t[1], HD_FOREVER));
        OK(hd_read(b, LONG - 4, &word, 4));
        EXPECT(word == (uint32_t)other);
    }
    hd_free(a);
    hd_free(b);
}

static void survivor_goes_on(under_way *u)
{
    int done = 1;
    if (rank == 0) {
        MPI_Recv(&done, 1, MPI_INT, 2, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(kill(pid_of_lost, SIGCONT) == 0);
    } else {
        MPI_Send(&done, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
    uint32_t word = 9;
    OK(hd_wait(u->waiting, HD_FOREVER));
    OK(hd_wait(u->sent_patiently, HD_FOREVER));
    OK(hd_read(u->in, 2 * LONG, &word, 4));
    EXPECT(word == LOST);
    hd_free(u->in);
    hd_free(u->out);
}

int main(int argc, char **argv)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE, .timeout_ns = 100000000};
    const hd_mpi_options no_limit = {.size = sizeof options, .piece_bytes = PIECE};
    const char *how = argc > 1 ? argv[1] : "";
    const int killed = strcmp(how, "killed") == 0, continued = strcmp(how, "continued") == 0;
    int level = 0, done = 1;
    under_way u;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &apart);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1", &runtime, NULL));
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_mpi_open(runtime, &options, &limited));
    OK(hd_mpi_open(runtime, &no_limit, &patient));
    connect_all();
    if (rank == LOST) {
        raise(killed ? SIGKILL : SIGSTOP);
        lost_goes_on();
    } else {
        while (!is_lost(killed)) {
            usleep(1000);
        }
        submit_all(&u, continued);
        receives_fail(&u);
        if (continued) {
            survivor_goes_on(&u);
        }
    }
    if (continued) {
        OK(hd_mpi_close(limited, HD_FOREVER));
        OK(hd_mpi_close(patient, HD_FOREVER));
        OK(hd_close(runtime));
        MPI_Comm_free(&apart);
        printf("rank %d is well\n", rank);
        MPI_Finalize();
        return 0;
    }
    close_without_lost(&u);
    printf("rank %d is well\n", rank);
    fflush(stdout);
    if (rank == 2) {
        MPI_Send(&done, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
        MPI_Recv(&done, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&done, 1, MPI_INT, 2, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&done, 1, MPI_INT, 2, 3, MPI_COMM_WORLD);
        kill(pid_of_lost, SIGKILL);
    }
    _exit(0);
}
