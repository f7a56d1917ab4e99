/* wave.c - the acoustic wave of examples/wave.c over the ranks of MPI and the devices of each rank.
 *
 * usage: mpiexec -n RANKS wave KERNEL_FILE [--cells PLANES] [--steps N] [--check]
 *        (KERNEL_FILE: examples/kernels/wave.c, compiled by `heddle cc`)
 *
 * The planes of the field are divided among all devices of all ranks. Each device holds a slab of
 * planes, and R planes of each neighbour. A step consists of three parts:
 *   - Each device computes the planes at the ends of its slab.
 *   - These planes go to the neighbours: by hd_copy to a device of the same rank, and by
 *     hd_mpi_sendrecv to another rank.
 *   - Each device computes the planes between, while the messages travel.
 * No call waits for a message. Heddle orders the work by the bytes that it uses. With --check, each
 * rank then computes the whole field on one device, and compares its planes bit by bit. */
#include "example.h"

enum { NX = 64, NY = 64, R = 4 };
static const size_t PLANE = sizeof(float) * NX * NY;

typedef struct slab {
    hd_lane *lane;
    /* R planes of the neighbour below, `planes` of its own, R of the one above */
    hd_buffer *field[2];
    size_t planes;
} slab;

/* The part of the field that this rank computes. */
typedef struct wave {
    hd_mpi *mpi;
    hd_kernel *kernel;
    int below, above; /* the neighbour ranks, or MPI_PROC_NULL */
    int n;            /* slabs, one on each device */
    slab *slabs;
} wave;

/* Computes the slab's own planes from `first` on for this step. */
static void advance(const wave *w, slab *s, int now, size_t first, size_t planes, hd_ticket *ticket)
{
    const hd_arg args[] = {hd_inout_range(s->field[!now], (first + R) * PLANE, planes * PLANE),
                           hd_in_range(s->field[now], first * PLANE, (planes + 2 * R) * PLANE), hd_f32(0.1f)};
    must(hd_launch(s->lane, w->kernel, (hd_dims){NX / 32, NY / 4, (uint32_t)planes}, (hd_dims){32, 4, 1}, 0, args, 3,
                   ticket));
}

/* The R planes of a slab from `first` on, as an operand of a message. */
static hd_mpi_data planes_at(const slab *s, int now, size_t first)
{
    return hd_mpi_range(s->field[!now], first * PLANE, R * PLANE);
}

static void exchange(const wave *w, int now)
{
    enum { UP, DOWN }; /* tags: the way of a message */
    const slab *first = w->slabs, *last = w->slabs + w->n - 1;
    for (const slab *s = first; s < last; s++) {
        hd_buffer *below = s->field[!now], *above = s[1].field[!now];
        must(hd_copy(above, 0, below, s->planes * PLANE, R * PLANE, NULL));
        must(hd_copy(below, (s->planes + R) * PLANE, above, R * PLANE, R * PLANE, NULL));
    }
    if (w->below != MPI_PROC_NULL) {
        must(hd_mpi_sendrecv(w->mpi, planes_at(first, now, R), w->below, DOWN, planes_at(first, now, 0), w->below, UP,
                             MPI_COMM_WORLD, NULL, NULL));
    }
    if (w->above != MPI_PROC_NULL) {
        must(hd_mpi_sendrecv(w->mpi, planes_at(last, now, last->planes), w->above, UP,
                             planes_at(last, now, last->planes + R), w->above, DOWN, MPI_COMM_WORLD, NULL, NULL));
    }
}

/* *ticket belongs to the last launch of the step. */
static void step(const wave *w, int now, hd_ticket *ticket)
{
    slab *const end = w->slabs + w->n;
    for (slab *s = w->slabs; s < end; s++) {
        advance(w, s, now, 0, R, NULL);
        advance(w, s, now, s->planes - R, R, ticket);
    }
    exchange(w, now);
    for (slab *s = w->slabs; s < end; s++) {
        if (s->planes > 2 * R) {
            advance(w, s, now, R, s->planes - 2 * R, ticket);
        }
    }
}

/* Gives each device a slab; `first` and `planes` are those of this rank. */
static void begin(const example *e, wave *w, size_t first, size_t planes)
{
    float *values = malloc(planes * PLANE);
    demand(values != NULL, "no memory");
    for (size_t i = 0; i < planes * NX * NY; i++) {
        values[i] = example_cell(first * NX * NY + i);
    }
    const float *from = values;
    w->slabs = calloc((size_t)w->n, sizeof *w->slabs);
    demand(w->slabs != NULL, "no memory");
    for (int i = 0; i < w->n; i++) {
        slab *s = &w->slabs[i];
        s->planes = planes * (size_t)(i + 1) / (size_t)w->n - planes * (size_t)i / (size_t)w->n;
        demand(s->planes >= 2 * R, "wave: too few planes; each device needs at least 8");
        must(hd_lane_get_default(e->runtime, i, &s->lane));
        for (int f = 0; f < 2; f++) {
            must(hd_alloc(s->lane, (s->planes + 2 * R) * PLANE, &s->field[f]));
            must(hd_fill(s->field[f], 0, 0, (s->planes + 2 * R) * PLANE, NULL));
        }
        /* field[1] is read first */
        must(hd_write(s->field[1], R * PLANE, from, s->planes * PLANE));
        from += s->planes * NX * NY;
    }
    free(values);
    exchange(w, 0); /* the neighbours' planes */
}

/* Computes `steps` steps of this rank's planes, returns them, and tells the time of a step. */
static float *run(const example *e, wave *w, size_t first, size_t planes, double *seconds)
{
    hd_ticket tickets[STEPS_AHEAD];
    must(hd_mpi_open(e->runtime, NULL, &w->mpi));
    must(hd_kernel_get(e->module, "wave", &w->kernel));
    begin(e, w, first, planes);
    const long warm = e->steps / 5; /* the first steps also load kernels and test peers */
    double start = MPI_Wtime();
    for (long i = 0; i < e->steps; i++) {
        hd_ticket *ticket = &tickets[i % STEPS_AHEAD];
        if (i >= STEPS_AHEAD) {
            must(hd_mpi_wait(w->mpi, *ticket, HD_FOREVER));
        }
        start = i == warm ? MPI_Wtime() : start;
        step(w, (int)(i + 1) % 2, ticket);
    }
    must(hd_mpi_wait(w->mpi, tickets[(e->steps - 1) % STEPS_AHEAD], HD_FOREVER));
    *seconds = (MPI_Wtime() - start) / (double)(e->steps - warm);

    float *result = malloc(planes * PLANE), *to = result;
    demand(result != NULL, "no memory");
    must(hd_mpi_close(w->mpi, HD_FOREVER)); /* no message uses the buffers any more */
    for (slab *s = w->slabs; s < w->slabs + w->n; s++) {
        must(hd_read(s->field[(e->steps + 1) % 2], R * PLANE, to, s->planes * PLANE));
        to += s->planes * NX * NY;
        must(hd_free(s->field[0]));
        must(hd_free(s->field[1]));
    }
    free(w->slabs);
    return result;
}

int main(int argc, char **argv)
{
    example e = {.cells = 128, .steps = 100};
    example_begin(&e, argc, argv);
    const long from = e.cells * e.rank / e.ranks, planes = e.cells * (e.rank + 1) / e.ranks - from;
    wave mine = {.n = e.devices,
                 .below = e.rank > 0 ? e.rank - 1 : MPI_PROC_NULL,
                 .above = e.rank + 1 < e.ranks ? e.rank + 1 : MPI_PROC_NULL};
    double seconds = 0, ignored = 0;
    float *part = run(&e, &mine, (size_t)from, (size_t)planes, &seconds);
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (e.rank == 0) {
        printf("%d ranks with %d devices each, %ld planes of %d x %d cells: %.1f us a step, %.3f Gcells/s, "
               "a message has %zu bytes\n",
               e.ranks, e.devices, e.cells, NX, NY, 1e6 * seconds, 1e-9 * NX * NY * (double)e.cells / seconds,
               R * PLANE);
    }

    int equal = 1;
    if (e.check) {
        wave alone = {.n = 1, .below = MPI_PROC_NULL, .above = MPI_PROC_NULL};
        float *all = run(&e, &alone, 0, (size_t)e.cells, &ignored);
        equal = memcmp(part, all + from * NX * NY, (size_t)planes * PLANE) == 0;
        free(all);
    }
    free(part);
    return example_end(&e, equal);
}
