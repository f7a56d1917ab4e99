/* tensor_parts.h - shared by the files of `heddle bench tensor`.
 *
 *    tensor.c           the conductor: opens the device, runs the rows
 *    tensor_rows.c      the layouts that are moved, and their sizes on this device
 *    tensor_sides.c     the sides of a row: hd_tensor_copy, the driver's copy, the plain kernel;
 *                       memory, checks, samples
 *    tensor_matmul.c    products: hd_tensor_matmul, cuBLAS called directly, the built-in kernel
 *    tensor_cublas.c    cuBLAS, opened here and called directly
 *    tensor_submit.c    the cost of calls for the calling thread
 *    tensor_peers.c     PyTorch and CuPy, by the scripts in bench/peers
 *    tensor_variants.c  --variants
 *    tensor_report.c    the goals, JSON
 *    kernels/layouts.c  the plain kernels, and those that fill and check
 *
 * Threads: the conductor.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef BENCH_TENSOR_PARTS_H
#define BENCH_TENSOR_PARTS_H

#include <heddle.h>
#include <heddle/tensor.h>
#include "bench/kernels/layouts.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"
#include "bench/bench.h"
#include "driver/driver.h"

enum {
    TENSOR_ROWS_MAX = 48,
    TENSOR_PRODUCTS = 3,
    TENSOR_CALLS = 6,
    TENSOR_PAIRS_MAX = 8,
    TENSOR_SPEC_DIMS = 5,
    TENSOR_TEXT = 96
};

/* Limit of every wait of the benchmark: an operation that takes this long hangs. */
#define TENSOR_TIMEOUT_NS ((int64_t)120 * 1000000000)

#define TENSOR_MIB ((uint64_t)1 << 20)

/* ---- rows ---- */

/* One value for each round. */
typedef struct tensor_series {
    double value[TENSOR_ROUNDS_MAX];
    int n;
} tensor_series;

/* Median, least and largest; NaN if nothing was measured. */
stats_spread bench_tensor_spread(const tensor_series *s);
/* a divided by b, round by round. */
tensor_series bench_tensor_ratio(const tensor_series *a, const tensor_series *b);

/* The moved tensor: a row-major tensor of `shape`, sliced, permuted or broadcast, to a row-major
 * one. */
typedef struct tensor_spec {
    const char *part, *id, *name;
    hd_type type;
    int dims;
    uint64_t shape[TENSOR_SPEC_DIMS];
    int order[TENSOR_SPEC_DIMS];
    int slice_dim; /* dimension with a step */
    int64_t step;  /* 0: no slice */
    uint64_t drop; /* elements left out at each end of slice_dim */
    uint64_t broadcast[TENSOR_SPEC_DIMS];
    int src_skip, dst_skip; /* elements before the first one */
    double goal;            /* minimum share of the device copy's speed; 0: none */
    bool always;            /* also with --quick */
} tensor_spec;

/* Results of a script in bench/peers; NaN: not measured. */
typedef struct tensor_peer {
    double figure; /* GB/s or GFLOP/s */
    double ratio;  /* relative to the device copy that the script measured in the same run */
} tensor_peer;

enum { TENSOR_TORCH, TENSOR_CUPY, TENSOR_PEERS };
extern const char *const tensor_peer_ids[TENSOR_PEERS], *const tensor_peer_names[TENSOR_PEERS];

typedef struct tensor_row {
    const tensor_spec *spec;
    uint64_t shape[TENSOR_SPEC_DIMS]; /* the source's shape on this device */
    uint64_t view[TENSOR_SPEC_DIMS];  /* the destination's shape */
    /* the shape is smaller than in the spec, because memory is short */
    bool cut;
    uint64_t elements;
    /* bytes of the destination's elements, which the device copy copies */
    size_t payload;
    size_t moved;                /* bytes read (each byte once) plus bytes written */
    size_t src_bytes, dst_bytes; /* of the buffers */
    int pairs;                   /* pairs of buffers, which samples use in turns */
    bool measured;
    tensor_series heddle, copy, plain; /* nanoseconds for one copy */
    char note[TENSOR_TEXT];            /* why a figure is missing; "": no figure is missing */
    tensor_peer peers[TENSOR_PEERS];
} tensor_row;

typedef struct tensor_product {
    hd_type type;
    const char *id;
    uint64_t edge, cut_from;
    bool measured;
    tensor_series heddle, library, builtin; /* nanoseconds for one product */
    char heddle_library[64], note[2 * TENSOR_TEXT], direct[64];
    double worst_error; /* the worst error as a share of the allowed rounding error */
    tensor_peer peers[TENSOR_PEERS];
} tensor_product;

/* The cost of one call for the calling thread. */
typedef struct tensor_call {
    const char *id, *name;
    stats_calls calls; /* count 0: not measured */
} tensor_call;

/* ---- the experiment ---- */

/* The driver's own calls. */
typedef struct tensor_plain {
    const hdi_driver *d;
    hdcu_device ordinal;
    hdcu_context context;
    hdcu_stream stream;
    hdcu_module module;
    /* by the element's size: 1, 2, 4, 8, 16 bytes */
    hdcu_function fill, check, transpose[5], copy[5];
    hdcu_deviceptr count; /* 8 bytes: the result of a check */
} tensor_plain;

typedef struct tensor_experiment {
    report_record record; /* comes first */
    const bench_options *options;
    char settings[160];
    hd_runtime *runtime;
    hd_runtime_info info;
    hd_device_info device;
    hd_lane *lane;
    hd_kernel *fill, *check;
    hd_buffer *count; /* 8 bytes: the result of a check */
    bool on_host;     /* host devices */
    uint64_t room;    /* bytes of device memory to use */
    int rounds;
    double sample_ns;
    plain_image image;
    tensor_plain plain;
    tensor_row rows[TENSOR_ROWS_MAX];
    int n_rows;
    tensor_product products[TENSOR_PRODUCTS];
    int n_products;
    tensor_call calls[TENSOR_CALLS];
    int n_calls;
    char peer_notes[TENSOR_PEERS][2 * TENSOR_TEXT], peer_versions[TENSOR_PEERS][64];
    uint64_t checked; /* copies whose elements were all compared */
    struct tensor_variants *variants;
    int steps, steps_done; /* progress */
} tensor_experiment;

/* True if --only selects this part. */
bool bench_tensor_is_wanted(const tensor_experiment *x, const char *part);

/* Counts a step and shows it. */
void bench_tensor_step(tensor_experiment *x, const char *stage, const char *item);

/* ---- rows ---- */

/* Adds all selected rows, with their sizes on this device. */
void bench_tensor_plan_rows(tensor_experiment *x);

/* Fills in the sizes of a row for this spec. */
void bench_tensor_plan_row(const tensor_experiment *x, const tensor_spec *spec, tensor_row *row);

/* The specs of the rows; `i` counts from 0, NULL past the end. */
const tensor_spec *bench_tensor_spec_at(int i);

/* Writes the source's shape, such as "16384 x 8192", for permutes with the order. */
void bench_tensor_shape_text(const tensor_row *row, char *out, size_t bytes);

/* Makes the tensors of a row over two buffers by public calls. */
bool bench_tensor_views(const tensor_row *row, hd_buffer *src, hd_buffer *dst, hd_tensor *from, hd_tensor *to,
                        char *error);

/* ---- sides ---- */

/* The buffers of a row, for Heddle's side and the plain side. */
typedef struct tensor_memory {
    tensor_experiment *x;
    const tensor_row *row;
    int next; /* index of the next pair */
    hd_buffer *src[TENSOR_PAIRS_MAX], *dst[TENSOR_PAIRS_MAX];
    hd_tensor from[TENSOR_PAIRS_MAX], to[TENSOR_PAIRS_MAX];
    hd_ticket ticket[TENSOR_PAIRS_MAX];
    hdcu_deviceptr plain_src[TENSOR_PAIRS_MAX], plain_dst[TENSOR_PAIRS_MAX];
    bench_layout layout;
} tensor_memory;

#define TENSOR_TRY(x, error, entry, arguments) cli_plain_try((x)->plain.d->entry arguments, #entry, error)

/* Opens the runtime's kernels, and the provider with a stream and kernels of its own. */
bool bench_tensor_sides_open(tensor_experiment *x, char *error);
void bench_tensor_sides_close(tensor_experiment *x);

/* Allocates the memory and fills the sources. */
bool bench_tensor_memory_take(tensor_experiment *x, const tensor_row *row, tensor_memory *m, char *error);
void bench_tensor_memory_give(tensor_memory *m); /* a zeroed one is ignored */

/* Makes `reps` copies back to back, and waits at the end. The result is the total time in
 * nanoseconds. Heddle's side calls hdi_tensor_copy_as with `wish`, or hd_tensor_copy if `wish` is
 * NULL. */
struct hdi_plan_wish;
typedef enum tensor_side { TENSOR_HEDDLE, TENSOR_COPY, TENSOR_PLAIN, TENSOR_SIDES } tensor_side;
bool bench_tensor_sample(tensor_memory *m, tensor_side side, const struct hdi_plan_wish *wish, int reps, double *ns,
                         char *error);

/* Overwrites the destination of a pair, copies, and compares every element and the bytes around
 * them. *wrong: number of differences. */
bool bench_tensor_verify(tensor_memory *m, tensor_side side, const struct hdi_plan_wish *wish, int pair,
                         uint64_t *wrong, char *error);

/* Finds by trial how many copies make a sample of about sample_ns. */
bool bench_tensor_repetitions(tensor_memory *m, tensor_side side, double sample_ns, int *reps, char *error);

/* Launches the plain kernel for a pair. */
bool bench_tensor_launch_plain(tensor_memory *m, int pair, char *error);

/* ---- the other parts ---- */

bool bench_tensor_run_products(tensor_experiment *x, char *error);
int bench_tensor_product_steps(const tensor_experiment *x);
bool bench_tensor_run_calls(tensor_experiment *x, char *error);
void bench_tensor_run_peers(tensor_experiment *x); /* notes failures */
bool bench_tensor_run_variants(tensor_experiment *x, char *error);
void bench_tensor_variants_release(tensor_experiment *x);

/* cuBLAS, called as in its manual. */
typedef struct tensor_cublas tensor_cublas;
/* NULL if cuBLAS cannot be opened or does not work here; `why` gets the reason. */
tensor_cublas *bench_tensor_cublas_open(tensor_experiment *x, char name[64], char *why, size_t why_bytes);
void bench_tensor_cublas_close(tensor_cublas *blas); /* NULL is ignored */
/* c = a b, row-major and square, in the plain stream. */
bool bench_tensor_cublas_product(tensor_cublas *blas, hd_type type, uint64_t edge, hdcu_deviceptr a, hdcu_deviceptr b,
                                 hdcu_deviceptr c, char *error);

/* ---- results ---- */

void bench_tensor_print_json(const void *experiment, FILE *out);
void bench_tensor_print_variants_json(const void *experiment, FILE *out);

/* The values of a series, and their spread. */
void bench_tensor_put_series(hdi_json *j, const char *key, const tensor_series *s);

#endif
