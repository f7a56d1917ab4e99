/* rows.h - the rows of `heddle bench mpi`, and the lines that its ranks print. heddle-bench and the
 * program of the ranks share this file.
 *
 * The first rank prints a line for each fact and figure. Fields are separated by blanks:
 *    fact NAME TEXT             NAME is mpi, level, driver, or piece
 *    at ROW ROUND               the measurement that begins now; ROW is an index of ranks_rows
 *    sample ROW SIDE ROUND NS   SIDE is a ranks_side, and NS is a time in nanoseconds
 *    note ROW TEXT              the row is left out, and why
 *    verified BYTES             bytes that arrived as they were sent
 *
 * Threads: any. Locks: none.
 */
#ifndef BENCH_MPI_ROWS_H
#define BENCH_MPI_ROWS_H

#include <stdbool.h>
#include <stddef.h>

enum { RANKS_MOST = 64, RANKS_WINDOW_MOST = 64, RANKS_WINDOW_LEAST = 2 };

typedef enum ranks_part { RANKS_LATENCY, RANKS_BANDWIDTH, RANKS_ALLREDUCE, RANKS_BESIDE, RANKS_PARTS } ranks_part;

/* How the same bytes get to the other rank. */
typedef enum ranks_side {
    RANKS_PLAIN,  /* MPI on memory of the CPU; of a device row, on pinned memory */
    RANKS_HAND,   /* device rows: plain copies of the driver between pinned memory and the device */
    RANKS_HEDDLE, /* heddle/mpi.h */
    RANKS_SIDES,
    /* of RANKS_BESIDE, all through Heddle */
    RANKS_WORK = 0,    /* the device works */
    RANKS_MESSAGE = 1, /* a message goes to the other rank */
    RANKS_BOTH = 2     /* both at once */
} ranks_side;

typedef struct ranks_row {
    ranks_part part;
    bool on_device; /* false: memory of the CPU */
    size_t bytes;   /* of a message */
    bool quick;     /* also with --quick */
} ranks_row;

#define RANKS_KIB ((size_t)1 << 10)
#define RANKS_MIB ((size_t)1 << 20)

static const ranks_row ranks_rows[] = {
    {RANKS_LATENCY, false, 4, true},
    {RANKS_LATENCY, false, 4 * RANKS_KIB, true},
    {RANKS_LATENCY, false, 64 * RANKS_KIB, true},
    {RANKS_LATENCY, true, 4, true},
    {RANKS_LATENCY, true, 4 * RANKS_KIB, true},
    {RANKS_LATENCY, true, 64 * RANKS_KIB, true},
    {RANKS_BANDWIDTH, false, 64 * RANKS_KIB, true},
    {RANKS_BANDWIDTH, false, RANKS_MIB, true},
    {RANKS_BANDWIDTH, false, 4 * RANKS_MIB, true},
    {RANKS_BANDWIDTH, false, 64 * RANKS_MIB, false},
    {RANKS_BANDWIDTH, false, 256 * RANKS_MIB, false},
    {RANKS_BANDWIDTH, true, 64 * RANKS_KIB, true},
    {RANKS_BANDWIDTH, true, RANKS_MIB, true},
    {RANKS_BANDWIDTH, true, 4 * RANKS_MIB, true},
    {RANKS_BANDWIDTH, true, 64 * RANKS_MIB, false},
    {RANKS_BANDWIDTH, true, 256 * RANKS_MIB, false},
    {RANKS_ALLREDUCE, false, 4, true},
    {RANKS_ALLREDUCE, false, 4 * RANKS_KIB, true},
    {RANKS_ALLREDUCE, false, 64 * RANKS_KIB, true},
    {RANKS_ALLREDUCE, false, RANKS_MIB, true},
    {RANKS_ALLREDUCE, false, 16 * RANKS_MIB, false},
    {RANKS_ALLREDUCE, false, 64 * RANKS_MIB, false},
    {RANKS_ALLREDUCE, true, 4, true},
    {RANKS_ALLREDUCE, true, 4 * RANKS_KIB, true},
    {RANKS_ALLREDUCE, true, 64 * RANKS_KIB, true},
    {RANKS_ALLREDUCE, true, RANKS_MIB, true},
    {RANKS_ALLREDUCE, true, 16 * RANKS_MIB, false},
    {RANKS_ALLREDUCE, true, 64 * RANKS_MIB, false},
    {RANKS_BESIDE, true, 4 * RANKS_MIB, true},
    {RANKS_BESIDE, true, 64 * RANKS_MIB, false},
};
enum { RANKS_ROWS = sizeof(ranks_rows) / sizeof(ranks_rows[0]) };

static const char *const ranks_part_names[RANKS_PARTS] = {"latency", "bandwidth", "allreduce", "beside"};

/* True if this side measured the row. */
static inline bool bench_ranks_has(const ranks_row *row, int side)
{
    return side != RANKS_HAND || row->on_device;
}

/* Messages that are under way at once. */
static inline size_t bench_ranks_window(const ranks_row *row)
{
    const size_t fit = 64 * RANKS_MIB / row->bytes;
    return row->part != RANKS_BANDWIDTH ? 1
           : fit > RANKS_WINDOW_MOST    ? RANKS_WINDOW_MOST
           : fit < RANKS_WINDOW_LEAST   ? RANKS_WINDOW_LEAST
                                        : fit;
}

#endif
