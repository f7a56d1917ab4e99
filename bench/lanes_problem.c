/* lanes_problem.c - the matrices of the experiment, their product in double precision, and the comparison with it.
 *
 * Threads: any. Locks: none.
 * Always: the same device number gives the same matrices in every process of a run and in every run. The bound is
 * rigorous for any order of summation, with or without fused multiply-add. So a result above it is wrong.
 */
#include "bench/lanes_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1), exact in a float. */
static void fill_random(uint64_t *state, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)((int32_t)(next_random(state) >> 40) - (1 << 23)) / (float)(1 << 23);
    }
}

/* reference = a b, and bound = (k + 1) 2^-24 |a| |b| (1 + a little). */
static void multiply(lanes_problem *p)
{
    static const double unit = 1.0 / (1 << 24);
    double sum[LANES_N], magnitude[LANES_N];
    for (int i = 0; i < LANES_M; i++) {
        memset(sum, 0, sizeof(sum));
        memset(magnitude, 0, sizeof(magnitude));
        for (int l = 0; l < LANES_K; l++) {
            double a = p->a[i * LANES_K + l];
            const float *b = p->b + (size_t)l * LANES_N;
            for (int j = 0; j < LANES_N; j++) {
                double product = a * b[j];
                sum[j] += product;
                magnitude[j] += fabs(product);
            }
        }
        for (int j = 0; j < LANES_N; j++) {
            p->reference[i * LANES_N + j] = sum[j];
            p->bound[i * LANES_N + j] = (float)((LANES_K + 1) * unit * magnitude[j] * 1.001);
        }
    }
}

bool lanes_problem_make(int device, bool with_reference, lanes_problem *out, char *error)
{
    lanes_problem p = {0};
    p.a = malloc(sizeof(float) * LANES_M * LANES_K);
    p.b = malloc(sizeof(float) * LANES_K * LANES_N);
    if (with_reference) {
        p.reference = malloc(sizeof(double) * LANES_M * LANES_N);
        p.bound = malloc(sizeof(float) * LANES_M * LANES_N);
    }
    if (!p.a || !p.b || (with_reference && (!p.reference || !p.bound))) {
        lanes_problem_release(&p);
        snprintf(error, PLAIN_ERROR, "out of memory for the matrices");
        return false;
    }
    uint64_t state = 0x6865646c65u + (uint64_t)device;
    fill_random(&state, p.a, LANES_M * LANES_K);
    fill_random(&state, p.b, LANES_K * LANES_N);
    if (with_reference) {
        multiply(&p);
    }
    *out = p;
    return true;
}

void lanes_problem_release(lanes_problem *p)
{
    free(p->a);
    free(p->b);
    free(p->reference);
    free(p->bound);
    memset(p, 0, sizeof(*p));
}

double lanes_problem_error(const lanes_problem *p, const float *c)
{
    double worst = 0;
    for (size_t i = 0; i < (size_t)LANES_M * LANES_N; i++) {
        double error = fabs((double)c[i] - p->reference[i]);
        if (!(error <= worst * p->bound[i])) {
            if (!isfinite(error)) {
                return INFINITY;
            }
            worst = p->bound[i] > 0 ? error / p->bound[i] : INFINITY;
        }
    }
    return worst;
}
