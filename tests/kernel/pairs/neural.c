/* neural.c - the kernels of neural networks, as kernel source. neural.cu is the same in CUDA
 * C++. */
#include <heddle/kernel.h>

typedef struct adam_settings {
    float rate, beta1, beta2, epsilon;
    int step;
} adam_settings;

typedef struct vector4 {
    float x, y, z, w;
} vector4;

/* A block for each row. */
HD_KERNEL(softmax, HD_OUT(float, y), HD_IN(float, x), HD_VALUE(int, columns))
{
    x += (size_t)hd_block_x() * columns;
    y += (size_t)hd_block_x() * columns;
    int t = (int)hd_thread_x(), step = (int)hd_block_dim_x();
    float most = -INFINITY;
    for (int c = t; c < columns; c += step) {
        most = fmaxf(most, x[c]);
    }
    most = hd_block_reduce_max_f32(most);
    float sum = 0;
    for (int c = t; c < columns; c += step) {
        float e = expf(x[c] - most);
        y[c] = e;
        sum += e;
    }
    sum = hd_block_reduce_add_f32(sum);
    for (int c = t; c < columns; c += step) {
        y[c] /= sum;
    }
}

HD_KERNEL(layer_norm, HD_OUT(float, y), HD_IN(float, x), HD_IN(float, gamma), HD_IN(float, beta),
          HD_VALUE(int, columns), HD_VALUE(float, epsilon))
{
    HD_SHARED float mean, scale;
    const float *row = x + hd_block_x() * columns;
    int t = (int)hd_thread_x(), step = (int)hd_block_dim_x();
    float sum = 0;
    for (int c = t; c < columns; c += step) {
        sum += row[c];
    }
    sum = hd_block_reduce_add_f32(sum);
    if (t == 0) {
        mean = sum / columns;
    }
    hd_barrier();
    float squares = 0;
    for (int c = t; c < columns; c += step) {
        float d = row[c] - mean;
        squares += d * d;
    }
    squares = hd_block_reduce_add_f32(squares);
    if (t == 0) {
        scale = rsqrtf(squares / columns + epsilon);
    }
    hd_barrier();
    for (int c = t; c < columns; c += step) {
        y[hd_block_x() * columns + c] = (row[c] - mean) * scale * gamma[c] + beta[c];
    }
}

HD_KERNEL(rms_norm, HD_OUT(float, y), HD_IN(float, x), HD_IN(float, weight), HD_VALUE(int, columns),
          HD_VALUE(float, epsilon))
{
    int t = (int)hd_thread_x(), step = (int)hd_block_dim_x();
    float squares = 0;
    for (int c = t; c < columns; c += step) {
        float v = x[hd_block_x() * columns + c];
        squares += v * v;
    }
    float scale = rsqrtf(hd_block_reduce_add_f32(squares) / columns + epsilon);
    for (int c = t; c < columns; c += step) {
        y[hd_block_x() * columns + c] = weight[c] * (x[hd_block_x() * columns + c] * scale);
    }
}

HD_KERNEL(gelu_tanh, HD_OUT(float, y), HD_IN(float, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        float v = x[i];
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    }
}
HD_KERNEL(gelu_erf, HD_OUT(float, y), HD_IN(float, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
    }
}

/* A warp for each row: the logarithm of the sum of exponentials, less the target's logit. */
HD_KERNEL(cross_entropy, HD_OUT(float, loss), HD_IN(float, logits), HD_IN(int, target), HD_VALUE(int, rows),
          HD_VALUE(int, classes))
{
    int row = (int)(hd_block_x() * hd_block_dim_y() + hd_thread_y()), lane = (int)hd_thread_x();
    if (row >= rows) {
        return;
    }
    logits += row * classes;
    float most = -INFINITY, sum = 0;
    for (int c = lane; c < classes; c += 32) {
        most = fmaxf(most, logits[c]);
    }
    most = hd_warp_reduce_max_f32(most);
    for (int c = lane; c < classes; c += 32) {
        sum += expf(logits[c] - most);
    }
    sum = hd_warp_reduce_add_f32(sum);
    if (lane == 0) {
        loss[row] = logf(sum) + most - logits[target[row]];
    }
}

/* Rows of a table; an index out of range gives zeros. */
HD_KERNEL(embedding, HD_OUT(vector4, out), HD_IN(vector4, table), HD_IN(int, index), HD_VALUE(int, width),
          HD_VALUE(int, rows))
{
    int row = index[hd_block_x()];
    vector4 none = {0, 0, 0, 0};
    for (int c = (int)hd_thread_x(); c < width; c += (int)hd_block_dim_x()) {
        out[hd_block_x() * width + c] = row >= 0 && row < rows ? table[row * width + c] : none;
    }
}

/* A block for each query: scores in dynamic shared memory, their softmax, and the sum of the
 * values. */
HD_KERNEL(attention_row, HD_OUT(float, out), HD_IN(float, q), HD_IN(float, k), HD_IN(float, v), HD_VALUE(int, keys),
          HD_VALUE(int, width))
{
    HD_DYNAMIC_SHARED(float, score);
    int t = (int)hd_thread_x(), step = (int)hd_block_dim_x();
    q += hd_block_x() * width;
    float most = -INFINITY, sum = 0;
    for (int j = t; j < keys; j += step) {
        float dot = 0;
        for (int d = 0; d < width; d++) {
            dot += q[d] * k[j * width + d];
        }
        score[j] = dot * rsqrtf((float)width);
        most = fmaxf(most, score[j]);
    }
    most = hd_block_reduce_max_f32(most);
    for (int j = t; j < keys; j += step) {
        score[j] = hd_fast_exp(score[j] - most);
        sum += score[j];
    }
    sum = hd_block_reduce_add_f32(sum);
    for (int d = t; d < width; d += step) {
        float total = 0;
        for (int j = 0; j < keys; j++) {
            total += score[j] * v[j * width + d];
        }
        out[hd_block_x() * width + d] = total / sum;
    }
}

/* A step of an optimizer. Its settings are a structure by value. */
HD_KERNEL(adam, HD_INOUT(float, weight), HD_INOUT(float, m), HD_INOUT(float, v), HD_IN(float, gradient),
          HD_VALUE(int, n), HD_VALUE(adam_settings, s))
{
    int i = (int)hd_global_x();
    if (i < n) {
        float g = gradient[i];
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
        float m_hat = m[i] / (1 - powf(s.beta1, s.step)), v_hat = v[i] / (1 - powf(s.beta2, s.step));
        weight[i] -= s.rate * m_hat / (sqrtf(v_hat) + s.epsilon);
    }
}
