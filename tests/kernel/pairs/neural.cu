/* neural.cu - the kernels of neural networks, in CUDA C++. neural.c is the same as kernel
 * source. */
struct adam_settings {
    float rate, beta1, beta2, epsilon;
    int step;
};

__inline__ __device__ float warpSum(float x)
{
    for (int mask = 16; mask > 0; mask >>= 1) {
        x += __shfl_xor_sync(0xffffffff, x, mask);
    }
    return x;
}
__inline__ __device__ float warpMax(float x)
{
    for (int mask = 16; mask > 0; mask >>= 1) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, mask));
    }
    return x;
}
// The sum over the block, the same in each thread.
__inline__ __device__ float blockSum(float x)
{
    __shared__ float shared[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    x = warpSum(x);
    __syncthreads();
    if (lane == 0) {
        shared[warp] = x;
    }
    __syncthreads();
    return warpSum(lane < (blockDim.x + 31) / 32 ? shared[lane] : 0.0f);
}
__inline__ __device__ float blockMax(float x)
{
    __shared__ float shared[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    x = warpMax(x);
    __syncthreads();
    if (lane == 0) {
        shared[warp] = x;
    }
    __syncthreads();
    return warpMax(lane < (blockDim.x + 31) / 32 ? shared[lane] : -INFINITY);
}

// A block for each row.
__global__ void softmax(float *__restrict__ y, const float *__restrict__ x, int columns)
{
    x += (size_t)blockIdx.x * columns;
    y += (size_t)blockIdx.x * columns;
    float most = -INFINITY;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        most = fmaxf(most, x[c]);
    }
    most = blockMax(most);
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float e = expf(x[c] - most);
        y[c] = e;
        sum += e;
    }
    sum = blockSum(sum);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        y[c] /= sum;
    }
}

__global__ void layer_norm(float *y, const float *x, const float *gamma, const float *beta, int columns, float epsilon)
{
    __shared__ float mean, scale;
    const float *row = x + blockIdx.x * columns;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        sum += row[c];
    }
    sum = blockSum(sum);
    if (threadIdx.x == 0) {
        mean = sum / columns;
    }
    __syncthreads();
    float squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float d = row[c] - mean;
        squares += d * d;
    }
    squares = blockSum(squares);
    if (threadIdx.x == 0) {
        scale = rsqrtf(squares / columns + epsilon);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        y[blockIdx.x * columns + c] = (row[c] - mean) * scale * gamma[c] + beta[c];
    }
}

__global__ void rms_norm(float *y, const float *x, const float *weight, int columns, float epsilon)
{
    float squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float v = x[blockIdx.x * columns + c];
        squares += v * v;
    }
    float scale = rsqrtf(blockSum(squares) / columns + epsilon);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        y[blockIdx.x * columns + c] = weight[c] * (x[blockIdx.x * columns + c] * scale);
    }
}

template <typename T, bool Approximate> __global__ void gelu(T *y, const T *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    float v = x[i];
    if constexpr (Approximate) {
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    } else {
        y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    }
}
template __global__ void gelu<float, true>(float *, const float *, int);
template __global__ void gelu<float, false>(float *, const float *, int);

// A warp for each row: the logarithm of the sum of exponentials, less the target's logit.
__global__ void cross_entropy(float *loss, const float *logits, const int *target, int rows, int classes)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= rows) {
        return;
    }
    logits += row * classes;
    float most = -INFINITY, sum = 0.0f;
    for (int c = lane; c < classes; c += 32) {
        most = fmaxf(most, logits[c]);
    }
    most = warpMax(most);
    for (int c = lane; c < classes; c += 32) {
        sum += expf(logits[c] - most);
    }
    sum = warpSum(sum);
    if (lane == 0) {
        loss[row] = logf(sum) + most - logits[target[row]];
    }
}

// Rows of a table; an index out of range gives zeros.
__global__ void embedding(float4 *out, const float4 *table, const int *index, int width, int rows)
{
    int row = index[blockIdx.x];
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        out[blockIdx.x * width + c] =
            row >= 0 && row < rows ? table[row * width + c] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

// A block for each query: scores in dynamic shared memory, their softmax, and the sum of the
// values.
__global__ void attention_row(float *out, const float *q, const float *k, const float *v, int keys, int width)
{
    extern __shared__ float score[];
    q += blockIdx.x * width;
    float most = -INFINITY, sum = 0.0f;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        float dot = 0.0f;
        for (int d = 0; d < width; d++) {
            dot += q[d] * k[j * width + d];
        }
        score[j] = dot * rsqrtf((float)width);
        most = fmaxf(most, score[j]);
    }
    most = blockMax(most);
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        score[j] = __expf(score[j] - most);
        sum += score[j];
    }
    sum = blockSum(sum);
    for (int d = threadIdx.x; d < width; d += blockDim.x) {
        float total = 0.0f;
        for (int j = 0; j < keys; j++) {
            total += score[j] * v[j * width + d];
        }
        out[blockIdx.x * width + d] = total / sum;
    }
}

// A step of an optimizer. Its settings are a structure by value.
__global__ void adam(float *weight, float *m, float *v, const float *gradient, int n, adam_settings s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float g = gradient[i];
        m[i] = s.beta1 * m[i] + (1.0f - s.beta1) * g;
        v[i] = s.beta2 * v[i] + (1.0f - s.beta2) * g * g;
        float m_hat = m[i] / (1.0f - powf(s.beta1, s.step)), v_hat = v[i] / (1.0f - powf(s.beta2, s.step));
        weight[i] -= s.rate * m_hat / (sqrtf(v_hat) + s.epsilon);
    }
}
