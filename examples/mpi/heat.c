/* heat.c - the 2-D heat equation over the ranks of MPI and the devices of each rank.
 *
 * usage: mpiexec -n RANKS heat KERNEL_FILE [--cells N] [--steps N] [--check]
 *        (KERNEL_FILE: examples/kernels/heat.c, compiled by `heddle cc`)
 *
 * The grid consists of N x N cells. The ranks form a grid, too, and each computes a rectangle of
 * cells. The devices of a rank divide the rows of its rectangle. Each device holds a part with one
 * more row or column on each side, which belongs to a neighbour or is the border. A step consists
 * of these operations:
 *   - Each device computes the cells at the edges of its part.
 *   - These cells go to the neighbours. The cells of a column do not lie next to each other in
 *     memory. So a column is a tensor, which the device packs before the message.
 *   - Each device computes the other cells, while the messages travel.
 *   - The columns that arrive go to their places.
 * No call waits for a message. Heddle orders the work by the bytes that it uses. A column uses all
 * bytes between its first and its last cell. So the program submits its receive after the other
 * cells, which then need not wait for it. With --check, each rank then computes the whole grid on
 * one device, and compares its rectangle bit by bit. */
#include "example.h"

enum { UP, DOWN, LEFT, RIGHT, WAYS };

/* The cells of a device: h rows of w cells, with one more row or column on each side. */
typedef struct part {
    hd_lane *lane;
    hd_buffer *u[2];
    uint32_t w, h;
} part;

/* The rectangle of a rank. */
typedef struct heat {
    hd_mpi *mpi;
    hd_kernel *edges, *interior;
    int near[WAYS]; /* the neighbour ranks, or MPI_PROC_NULL */
    long x, y, w, h;
    int n; /* parts, one on each device */
    part *parts;
} heat;

static size_t row_bytes(const part *p)
{
    return sizeof(float) * (p->w + 2);
}

/* Launches a kernel for `rows` rows of a part. Row 0 is the first one of the part's own rows. */
static void launch(const part *p, hd_kernel *kernel, int now, uint32_t first, uint32_t rows, hd_dims blocks,
                   hd_dims threads, hd_ticket *ticket)
{
    const size_t row = row_bytes(p);
    const hd_arg args[] = {hd_inout_range(p->u[!now], (first + 1) * row, rows * row),
                           hd_in_range(p->u[now], first * row, (rows + 2) * row), hd_u32(p->w), hd_u32(rows),
                           hd_f32(0.1f)};
    must(hd_launch(p->lane, kernel, blocks, threads, 0, args, 5, ticket));
}

/* Row y of a part; row 0 belongs to the neighbour above. */
static hd_mpi_data row_at(const part *p, int now, uint32_t y)
{
    return hd_mpi_range(p->u[!now], y * row_bytes(p), row_bytes(p));
}

/* Column x of a part without the rows of neighbours; column 0 belongs to the neighbour on the
 * left. */
static hd_tensor column_at(const part *p, int now, uint32_t x)
{
    const uint64_t shape = p->h;
    const int64_t stride = (int64_t)row_bytes(p);
    hd_tensor t;
    must(hd_tensor_make_strided(p->u[!now], row_bytes(p) + x * sizeof(float), HD_TYPE_F32, 1, &shape, &stride, &t));
    return t;
}

/* The rows at the edges, to and from the neighbours. Nothing else of this step uses them. */
static void exchange_rows(const heat *r, int now)
{
    const part *first = r->parts, *last = first + r->n - 1;
    for (const part *p = first; p < last; p++) {
        const part *below = p + 1;
        must(hd_copy(below->u[!now], 0, p->u[!now], p->h * row_bytes(p), row_bytes(p), NULL));
        must(hd_copy(p->u[!now], (p->h + 1) * row_bytes(p), below->u[!now], row_bytes(p), row_bytes(p), NULL));
    }
    must(hd_mpi_sendrecv(r->mpi, row_at(first, now, 1), r->near[UP], UP, row_at(first, now, 0), r->near[UP], DOWN,
                         MPI_COMM_WORLD, NULL, NULL));
    must(hd_mpi_sendrecv(r->mpi, row_at(last, now, last->h), r->near[DOWN], DOWN, row_at(last, now, last->h + 1),
                         r->near[DOWN], UP, MPI_COMM_WORLD, NULL, NULL));
}

/* The tag of a column: its way, and its device. */
static int column_tag(const heat *r, const part *p, int way)
{
    return WAYS * (int)(p - r->parts) + way;
}

static void send_columns(const heat *r, int now)
{
    for (const part *p = r->parts; p < r->parts + r->n; p++) {
        const hd_tensor left = column_at(p, now, 1), right = column_at(p, now, p->w);
        must(hd_mpi_send(r->mpi, hd_mpi_tensor(&left), r->near[LEFT], column_tag(r, p, LEFT), MPI_COMM_WORLD, NULL));
        must(hd_mpi_send(r->mpi, hd_mpi_tensor(&right), r->near[RIGHT], column_tag(r, p, RIGHT), MPI_COMM_WORLD, NULL));
    }
}

static void receive_columns(const heat *r, int now)
{
    for (const part *p = r->parts; p < r->parts + r->n; p++) {
        const hd_tensor left = column_at(p, now, 0), right = column_at(p, now, p->w + 1);
        must(hd_mpi_recv(r->mpi, hd_mpi_tensor(&left), r->near[LEFT], column_tag(r, p, RIGHT), MPI_COMM_WORLD, NULL,
                         NULL, NULL));
        must(hd_mpi_recv(r->mpi, hd_mpi_tensor(&right), r->near[RIGHT], column_tag(r, p, LEFT), MPI_COMM_WORLD, NULL,
                         NULL, NULL));
    }
}

/* *ticket belongs to the last launch of the step. */
static void step(const heat *r, int now, hd_ticket *ticket)
{
    const part *const end = r->parts + r->n;
    for (const part *p = r->parts; p < end; p++) {
        const uint32_t longest = p->w > p->h ? p->w : p->h;
        launch(p, r->edges, now, 0, p->h, (hd_dims){.x = (longest + 127) / 128}, (hd_dims){.x = 128}, ticket);
    }
    send_columns(r, now);
    exchange_rows(r, now);
    for (const part *p = r->parts; p < end; p++) {
        if (p->w > 2 && p->h > 2) {
            launch(p, r->interior, now, 1, p->h - 2, (hd_dims){(p->w - 2 + 31) / 32, (p->h - 2 + 7) / 8, 1},
                   (hd_dims){32, 8, 1}, ticket);
        }
    }
    receive_columns(r, now);
}

/* The first value of a cell of the grid of n x n cells. The border is cold, except for a hot
 * side. */
static float value_at(long n, long x, long y)
{
    if (x < 0 || x >= n || y < 0 || y >= n) {
        return x < 0 ? 100 : 0;
    }
    return example_cell((uint64_t)(y * n + x));
}

/* Gives each device its part, with the first values in both buffers: the border stays. */
static void begin(const example *e, heat *r)
{
    r->parts = calloc((size_t)r->n, sizeof *r->parts);
    float *values = malloc(sizeof *values * (size_t)((r->w + 2) * (r->h + 2)));
    demand(r->parts && values, "no memory");
    for (int i = 0; i < r->n; i++) {
        part *p = &r->parts[i];
        const long from = r->h * i / r->n;
        p->w = (uint32_t)r->w;
        p->h = (uint32_t)(r->h * (i + 1) / r->n - from);
        demand(p->w > 0 && p->h > 0, "heat: too few cells; each device needs at least one row");
        float *at = values;
        for (long y = r->y + from - 1; y <= r->y + from + p->h; y++) {
            for (long x = r->x - 1; x <= r->x + r->w; x++) {
                *at++ = value_at(e->cells, x, y);
            }
        }
        must(hd_lane_get_default(e->runtime, i, &p->lane));
        for (int f = 0; f < 2; f++) {
            must(hd_alloc(p->lane, (p->h + 2) * row_bytes(p), &p->u[f]));
            must(hd_write(p->u[f], 0, values, (p->h + 2) * row_bytes(p)));
        }
    }
    free(values);
}

/* Copies this rank's cells to the program's memory, and frees the parts. */
static float *end(heat *r, int now)
{
    float *result = malloc(sizeof *result * (size_t)(r->w * r->h)), *to = result;
    demand(result != NULL, "no memory");
    for (part *p = r->parts; p < r->parts + r->n; p++) {
        const uint64_t shape[] = {p->h, p->w};
        const int64_t stride[] = {(int64_t)row_bytes(p), sizeof(float)};
        hd_tensor cells;
        must(hd_tensor_make_strided(p->u[now], row_bytes(p) + sizeof(float), HD_TYPE_F32, 2, shape, stride, &cells));
        must(hd_tensor_read(&cells, to));
        to += (size_t)p->w * p->h;
        must(hd_free(p->u[0]));
        must(hd_free(p->u[1]));
    }
    free(r->parts);
    return result;
}

/* Computes `steps` steps of a rectangle, returns its cells, and tells the time of a step. */
static float *run(const example *e, heat *r, double *seconds)
{
    hd_ticket tickets[STEPS_AHEAD];
    must(hd_mpi_open(e->runtime, NULL, &r->mpi));
    must(hd_kernel_get(e->module, "heat_edges", &r->edges));
    must(hd_kernel_get(e->module, "heat_interior", &r->interior));
    begin(e, r);
    const long warm = e->steps / 5; /* the first steps also load kernels and test peers */
    double start = MPI_Wtime();
    for (long i = 0; i < e->steps; i++) {
        hd_ticket *ticket = &tickets[i % STEPS_AHEAD];
        if (i >= STEPS_AHEAD) {
            must(hd_mpi_wait(r->mpi, *ticket, HD_FOREVER));
        }
        start = i == warm ? MPI_Wtime() : start;
        step(r, (int)(i % 2), ticket);
    }
    must(hd_mpi_wait(r->mpi, tickets[(e->steps - 1) % STEPS_AHEAD], HD_FOREVER));
    *seconds = (MPI_Wtime() - start) / (double)(e->steps - warm);
    must(hd_mpi_close(r->mpi, HD_FOREVER)); /* no message uses the buffers any more */
    return end(r, (int)(e->steps % 2));
}

/* The rectangle of this rank, and its neighbours. */
static heat rectangle_of(const example *e, int *grid)
{
    heat r = {.n = e->devices};
    const int periods[2] = {0, 0};
    int at[2];
    MPI_Comm comm;
    MPI_Dims_create(e->ranks, 2, grid);
    MPI_Cart_create(MPI_COMM_WORLD, 2, grid, periods, 0, &comm); /* does not renumber the ranks */
    MPI_Cart_coords(comm, e->rank, 2, at);
    MPI_Cart_shift(comm, 0, 1, &r.near[UP], &r.near[DOWN]);
    MPI_Cart_shift(comm, 1, 1, &r.near[LEFT], &r.near[RIGHT]);
    MPI_Comm_free(&comm);
    r.y = e->cells * at[0] / grid[0];
    r.h = e->cells * (at[0] + 1) / grid[0] - r.y;
    r.x = e->cells * at[1] / grid[1];
    r.w = e->cells * (at[1] + 1) / grid[1] - r.x;
    return r;
}

int main(int argc, char **argv)
{
    example e = {.cells = 512, .steps = 100};
    int grid[2] = {0, 0};
    example_begin(&e, argc, argv);
    heat mine = rectangle_of(&e, grid);
    double seconds = 0, ignored = 0;
    float *part = run(&e, &mine, &seconds);
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (e.rank == 0) {
        printf("%d x %d ranks with %d devices each, %ld x %ld cells: %.1f us a step, %.3f Gcells/s, "
               "messages have up to %zu bytes\n",
               grid[0], grid[1], e.devices, e.cells, e.cells, 1e6 * seconds,
               1e-9 * (double)e.cells * (double)e.cells / seconds, sizeof(float) * (size_t)(mine.w + 2));
    }

    int equal = 1;
    if (e.check) {
        heat alone = {.n = 1, .w = e.cells, .h = e.cells, .near = {[0 ... WAYS - 1] = MPI_PROC_NULL}};
        float *all = run(&e, &alone, &ignored);
        for (long y = 0; y < mine.h; y++) {
            equal &= !memcmp(part + y * mine.w, all + (mine.y + y) * e.cells + mine.x, sizeof *all * (size_t)mine.w);
        }
        free(all);
    }
    free(part);
    return example_end(&e, equal);
}
