/* example.h - the common part of the examples over MPI: arguments, devices, kernels and the report.
 *
 * Threads: the main one. Locks: none. */
#include <heddle/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program submits at most this many steps ahead of the devices. */
enum { STEPS_AHEAD = 8 };

typedef struct example {
    int rank, ranks;
    int devices;       /* that each rank uses: the fewest that any rank opened */
    long cells, steps; /* --cells, --steps */
    int check;         /* --check: compare with the result of one rank and one device */
    hd_runtime *runtime;
    hd_module *module;
} example;

static inline void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "%s\n", hd_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static inline void demand(int fact, const char *text)
{
    if (!fact) {
        fprintf(stderr, "%s\n", text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* Reads the arguments, and returns the kernel file. */
static inline const char *example_arguments(example *e, int argc, char **argv)
{
    const char *file = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--check") == 0) {
            e->check = 1;
        } else if (strcmp(argv[i], "--cells") == 0 && i + 1 < argc) {
            e->cells = atol(argv[++i]);
        } else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
            e->steps = atol(argv[++i]);
        } else {
            file = argv[i][0] == '-' || file ? NULL : argv[i];
        }
    }
    demand(file && e->cells > 0 && e->steps > 0, "usage: KERNEL_FILE [--cells N] [--steps N] [--check]");
    return file;
}

/* Begins MPI, opens this rank's devices, and loads the kernel file. */
static inline void example_begin(example *e, int argc, char **argv)
{
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &e->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &e->ranks);

    FILE *file = fopen(example_arguments(e, argc, argv), "rb");
    enum { IMAGE_MOST = 1 << 20 };
    char *image = malloc(IMAGE_MOST);
    demand(file && image, "the kernel file cannot be read");
    const size_t bytes = fread(image, 1, IMAGE_MOST, file);
    fclose(file);

    must(hd_mpi_runtime_open(MPI_COMM_WORLD, NULL, &e->runtime, NULL));
    must(hd_module_load(e->runtime, image, bytes, &e->module));
    free(image);
    e->devices = hd_device_count(e->runtime);
    MPI_Allreduce(MPI_IN_PLACE, &e->devices, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
}

/* The first value of a cell. Neighbours differ, so a cell in the wrong place changes the result. */
static inline float example_cell(uint64_t index)
{
    return (float)(index * 2654435761u >> 7 & 1023) / 1024;
}

/* Compares this rank's results, and ends the program. Every rank returns 0 if all results are
 * equal. */
static inline int example_end(example *e, int equal)
{
    MPI_Allreduce(MPI_IN_PLACE, &equal, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (e->check && e->rank == 0) {
        printf("the result is %s that of one rank and one device, bit by bit\n", equal ? "equal to" : "DIFFERENT from");
    }
    must(hd_close(e->runtime));
    MPI_Finalize();
    return !equal;
}
