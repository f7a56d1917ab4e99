/* tensor.h - `heddle bench tensor`: moving tensors between layouts, and matrix products, beside the driver's own copy, plain kernels and cuBLAS.
 *
 * The experiment: transposes, permutes, slices and broadcasts by hd_tensor_copy; in turns with the driver's device copy of as many bytes, which
 * is the roofline, and with a kernel that moves one element with each thread. Products by hd_tensor_matmul in turns with cuBLAS called
 * directly and with the built-in kernel. What a call costs the thread that makes it. What PyTorch and CuPy make of the same.
 * Threads: tensor_run is called on the program's first thread. Locks: none that callers see.
 */
#ifndef BENCH_TENSOR_H
#define BENCH_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include "bench/report.h"

enum { TENSOR_ROUNDS_MAX = 20 };

typedef struct tensor_options {
    int device;       /* -1: the first one that the environment allows */
    int rounds;       /* 0: by the kind of device */
    bool quick;       /* fewer rounds and rows, less time for each */
    bool variants;    /* instead of all that: every kernel that could move a layout, in every order of tiles */
    const char *only; /* names of parts, separated by commas; NULL: all */
    report_run run;
} tensor_options;

/* Runs the experiment and prints it. 0: measured and verified; 1: something failed, or an element was wrong (one line on stderr says what).
 * Whether the goals are reached does not count. */
int tensor_run(const tensor_options *options);

/* Whether the benchmark has a part of this name. */
bool tensor_has_part(const char *name, size_t length);

/* What the experiment is, and how to read it: text for the help. */
extern const char tensor_help[];

#endif
