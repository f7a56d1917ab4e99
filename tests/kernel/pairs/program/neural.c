/* neural.c - the expected results of the kernels of neural.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <math.h>

static void softmax(pairs_launch *l)
{
    enum { ROWS = 9, COLUMNS = 777 };
    double *y = pairs_out(l, PAIRS_F32, ROWS * COLUMNS);
    const float *x = pairs_in_f32(l, ROWS * COLUMNS, -8, 8);
    pairs_value(l, hd_i32(COLUMNS));
    l->grid.x = ROWS;
    l->block.x = 128;
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < COLUMNS; c++) {
            sum += exp((double)x[r * COLUMNS + c]);
        }
        for (int c = 0; c < COLUMNS; c++) {
            y[r * COLUMNS + c] = exp((double)x[r * COLUMNS + c]) / sum;
        }
    }
}

static double mean_of(const float *x, int n, double less, int power)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += pow((double)x[i] - less, power);
    }
    return sum / n;
}

static void layer_norm(pairs_launch *l)
{
    enum { ROWS = 11, COLUMNS = 500 };
    double *y = pairs_out(l, PAIRS_F32, ROWS * COLUMNS);
    const float *x = pairs_in_f32(l, ROWS * COLUMNS, -1, 3);
    const float *gamma = pairs_in_f32(l, COLUMNS, 0.5, 1.5), *beta = pairs_in_f32(l, COLUMNS, -1, 1);
    pairs_value(l, hd_i32(COLUMNS));
    pairs_value(l, hd_f32(1e-5f));
    l->grid.x = ROWS;
    l->block.x = 256;
    for (int r = 0; r < ROWS; r++) {
        const float *row = x + r * COLUMNS;
        double mean = mean_of(row, COLUMNS, 0, 1), deviation = sqrt(mean_of(row, COLUMNS, mean, 2) + (double)1e-5f);
        for (int c = 0; c < COLUMNS; c++) {
            y[r * COLUMNS + c] = ((double)row[c] - mean) / deviation * (double)gamma[c] + (double)beta[c];
        }
    }
}

static void rms_norm(pairs_launch *l)
{
    enum { ROWS = 6, COLUMNS = 333 };
    double *y = pairs_out(l, PAIRS_F32, ROWS * COLUMNS);
    const float *x = pairs_in_f32(l, ROWS * COLUMNS, -2, 2), *weight = pairs_in_f32(l, COLUMNS, 0, 2);
    pairs_value(l, hd_i32(COLUMNS));
    pairs_value(l, hd_f32(1e-6f));
    l->grid.x = ROWS;
    l->block.x = 96;
    for (int r = 0; r < ROWS; r++) {
        double root = sqrt(mean_of(x + r * COLUMNS, COLUMNS, 0, 2) + (double)1e-6f);
        for (int c = 0; c < COLUMNS; c++) {
            y[r * COLUMNS + c] = (double)weight[c] * (double)x[r * COLUMNS + c] / root;
        }
    }
}

static void gelu(pairs_launch *l, bool approximate)
{
    enum { N = 3001 };
    double *y = pairs_out(l, PAIRS_F32, N);
    const float *x = pairs_in_f32(l, N, -6, 6);
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 255) / 256;
    l->block.x = 256;
    for (int i = 0; i < N; i++) {
        double v = (double)x[i];
        y[i] = 0.5 * v * (1 + (approximate ? tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)) : erf(v / sqrt(2))));
    }
}

static void gelu_tanh(pairs_launch *l)
{
    gelu(l, true);
}

static void gelu_erf(pairs_launch *l)
{
    gelu(l, false);
}

static void cross_entropy(pairs_launch *l)
{
    enum { ROWS = 45, CLASSES = 200 };
    double *loss = pairs_out(l, PAIRS_F32, ROWS);
    const float *x = pairs_in_f32(l, ROWS * CLASSES, -10, 10);
    int *target = pairs_in(l, PAIRS_I32, ROWS);
    pairs_value(l, hd_i32(ROWS));
    pairs_value(l, hd_i32(CLASSES));
    l->grid.x = (ROWS + 3) / 4;
    l->block = (hd_dims){32, 4, 1};
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        target[r] = (int)(pairs_bits(l) % CLASSES);
        for (int c = 0; c < CLASSES; c++) {
            sum += exp((double)x[r * CLASSES + c]);
        }
        loss[r] = log(sum) - (double)x[r * CLASSES + target[r]];
    }
}

static void embedding(pairs_launch *l)
{
    enum { TOKENS = 50, VOCABULARY = 31, WIDTH = 40 }; /* four floats each */
    double *out = pairs_out(l, PAIRS_F32, TOKENS * WIDTH * 4);
    const float *table = pairs_in_f32(l, VOCABULARY * WIDTH * 4, -1, 1);
    int *index = pairs_in(l, PAIRS_I32, TOKENS);
    pairs_value(l, hd_i32(WIDTH));
    pairs_value(l, hd_i32(VOCABULARY));
    l->grid.x = TOKENS;
    l->block.x = 32;
    for (int t = 0; t < TOKENS; t++) {
        index[t] = (int)(pairs_bits(l) % (VOCABULARY + 4)) - 2;
        bool there = index[t] >= 0 && index[t] < VOCABULARY;
        for (int c = 0; c < 4 * WIDTH; c++) {
            out[t * 4 * WIDTH + c] = there ? (double)table[index[t] * 4 * WIDTH + c] : 0;
        }
    }
}

static void attention_row(pairs_launch *l)
{
    enum { QUERIES = 7, KEYS = 100, WIDTH = 48 };
    double *out = pairs_out(l, PAIRS_F32, QUERIES * WIDTH);
    const float *q = pairs_in_f32(l, QUERIES * WIDTH, -2, 2), *k = pairs_in_f32(l, KEYS * WIDTH, -2, 2),
                *v = pairs_in_f32(l, KEYS * WIDTH, -1, 1);
    pairs_value(l, hd_i32(KEYS));
    pairs_value(l, hd_i32(WIDTH));
    l->grid.x = QUERIES;
    l->block.x = 64;
    l->shared = KEYS * sizeof(float);
    for (int i = 0; i < QUERIES; i++) {
        double sum = 0;
        for (int j = 0; j < KEYS; j++) {
            double dot = 0;
            for (int d = 0; d < WIDTH; d++) {
                dot += (double)q[i * WIDTH + d] * (double)k[j * WIDTH + d];
            }
            double weight = exp(dot / sqrt(WIDTH));
            sum += weight;
            for (int d = 0; d < WIDTH; d++) {
                out[i * WIDTH + d] += weight * (double)v[j * WIDTH + d];
            }
        }
        for (int d = 0; d < WIDTH; d++) {
            out[i * WIDTH + d] /= sum;
        }
    }
}

static void adam(pairs_launch *l)
{
    enum { N = 1500 };
    struct {
        float rate, beta1, beta2, epsilon;
        int step;
    } s = {0.01f, 0.9f, 0.99f, 1e-4f, 3};
    void *weight, *m, *v;
    double *new_weight = pairs_inout(l, PAIRS_F32, N, &weight), *new_m = pairs_inout(l, PAIRS_F32, N, &m),
           *new_v = pairs_inout(l, PAIRS_F32, N, &v);
    const float *gradient = pairs_in_f32(l, N, -1, 1);
    pairs_value(l, hd_i32(N));
    pairs_structure(l, &s, sizeof s);
    l->grid.x = (N + 127) / 128;
    l->block.x = 128;
    const double rate = (double)s.rate, beta1 = (double)s.beta1, beta2 = (double)s.beta2, epsilon = (double)s.epsilon;
    for (size_t i = 0; i < N; i++) {
        double g = (double)gradient[i];
        pairs_set(PAIRS_F32, weight, i, (double)pairs_random_f32(l, -1, 1));
        pairs_set(PAIRS_F32, m, i, (double)pairs_random_f32(l, -0.1, 0.1));
        pairs_set(PAIRS_F32, v, i, (double)pairs_random_f32(l, 0.01, 0.1));
        new_m[i] = beta1 * pairs_get(PAIRS_F32, m, i) + (1 - beta1) * g;
        new_v[i] = beta2 * pairs_get(PAIRS_F32, v, i) + (1 - beta2) * g * g;
        double step = new_m[i] / (1 - pow(beta1, s.step)) / (sqrt(new_v[i] / (1 - pow(beta2, s.step))) + epsilon);
        new_weight[i] = pairs_get(PAIRS_F32, weight, i) - rate * step;
    }
}

const pairs_row pairs_neural[] = {
    {"neural", "softmax", NULL, softmax, 0, 4e-6,
     "x - max is rounded by 5e-7, expf adds 2 ULP, the sum of 777 positive terms 17 additions"},
    {"neural", "layer_norm", "layer_norm(float*, float const*, float const*, float const*, int, float)", layer_norm,
     2e-6, 2e-6, "rounding of numbers up to 3, ten times"},
    {"neural", "rms_norm", NULL, rms_norm, 0, 2e-6,
     "14 additions of positive squares, halved by the root; rsqrtf 2 ULP"},
    {"neural", "gelu_tanh", "gelu<float, true>", gelu_tanh, 2e-6, 1e-6,
     "1 + tanh is 0 but for rounding where x is below -4"},
    {"neural", "gelu_erf", "gelu<float, false>(float*, float const*, int)", gelu_erf, 2e-6, 1e-6,
     "1 + erf is 0 but for rounding where x is below -4"},
    {"neural", "cross_entropy", NULL, cross_entropy, 4e-6, 2e-7, "two sums of numbers up to 20, and 200 exponentials"},
    {"neural", "embedding", NULL, embedding, 0, 0, "it is exact"},
    {"neural", "attention_row", NULL, attention_row, 5e-6, 0,
     "weights are relative to scores, whose differences of up to 20 are 2e-6 off in the exponent"},
    {"neural", "adam", "adam(float*, float*, float*, float const*, int, adam_settings)", adam, 4e-7, 1e-6,
     "1 - pow(beta, step) loses 6 bits for 0.99, and the step is a hundredth of a weight; moments are below 0.2"},
    {0},
};
