/* mpi_parts.h - shared by the files of `heddle bench mpi`.
 *
 *    mpi.c          the conductor: compiles the program of the ranks, runs it, and reads its lines
 *    mpi_report.c   the goals, JSON
 *    mpi/           the program of the ranks, which the user's mpicc compiles; the table of rows
 *
 * Neither heddle-bench nor the library is linked with an MPI. So the source of the ranks is
 * installed as data, and it works with every MPI that has an mpicc.
 *
 * Threads: the conductor. Locks: none.
 */
#ifndef BENCH_MPI_PARTS_H
#define BENCH_MPI_PARTS_H

#include "bench/bench.h"
#include "bench/mpi/rows.h"

enum { MPI_TEXT = 192 };

typedef struct mpi_row {
    double ns[RANKS_SIDES][MPI_ROUNDS_MAX];
    int rounds;          /* complete rounds; 0: not measured */
    char note[MPI_TEXT]; /* the reason if the row was left out, else "" */
} mpi_row;

typedef struct mpi_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    int rounds, ranks;
    hd_runtime *runtime; /* opened after the run, to describe the machine in the record */
    bool on_host;
    char *mpicc, *mpiexec; /* commands with their options */
    char *folder;          /* the folder of temporary files; NULL: none */
    /* facts from the ranks */
    char library[MPI_TEXT], level[MPI_TEXT], driver[MPI_TEXT];
    long long piece_bytes;
    unsigned long long verified;
    bool complete; /* the ranks printed their last line */
    mpi_row rows[RANKS_ROWS];
} mpi_experiment;

/* True if the options select the row. */
bool bench_mpi_is_wanted(const mpi_experiment *x, const ranks_row *row);

/* The id of a row, and its name for people. */
void bench_mpi_name(const ranks_row *row, char id[MPI_TEXT], char name[MPI_TEXT]);

/* Takes a const mpi_experiment. */
void bench_mpi_print_json(const void *experiment, FILE *out);

#endif
