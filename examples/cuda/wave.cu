/* wave.cu - examples/wave.c in plain CUDA, with the same order of work by streams and events. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

static const size_t NX = 64, NY = 64, NZ = 128, R = 4, PLANE = NX * NY;
static const int STEPS = 40;

__constant__ float weight[R + 1] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

__global__ void wave(float *next, const float *u, float speed)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const int z = blockIdx.z * blockDim.z + threadIdx.z, row = NX, plane = PLANE, r = R;
    if (x < r || x >= row - r || y < r || y >= (int)NY - r) {
        return;
    }
    const int at = z * plane + y * row + x;
    const float *c = u + at + r * plane;
    float sum = 3 * weight[0] * c[0];
    for (int i = 1; i <= r; i++) {
        sum += weight[i] * (c[i] + c[-i] + c[i * row] + c[-i * row] + c[i * plane] + c[-i * plane]);
    }
    next[at] = 2 * c[0] - next[at] + speed * sum;
}

struct slab {
    int device;
    size_t planes;
    float *field[2]; /* R planes of the neighbour below, `planes` of its own, R of the one above */
    cudaStream_t compute, copies;
    /* ends: the planes at the ends are computed. sent: the neighbours received them. */
    cudaEvent_t ends, sent;
};

static void must(cudaError_t status)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "wave: %s\n", cudaGetErrorString(status));
        exit(1);
    }
}

/* Computes the slab's own planes from `first` on for this step. */
static void advance(const slab &s, int now, size_t first, size_t planes)
{
    const dim3 grid(NX / 32, NY / 4, planes), block(32, 4);
    wave<<<grid, block, 0, s.compute>>>(s.field[!now] + (first + R) * PLANE, s.field[now] + first * PLANE, 0.1f);
    must(cudaGetLastError());
}

/* The copies of `from` begin when both sides have computed their ends, since the neighbour's
 * kernels read the planes before. */
static void send(const slab &from, size_t from_plane, const slab &to, size_t to_plane, int now)
{
    must(cudaStreamWaitEvent(from.copies, from.ends));
    must(cudaStreamWaitEvent(from.copies, to.ends));
    must(cudaMemcpyPeerAsync(to.field[!now] + to_plane * PLANE, to.device, from.field[!now] + from_plane * PLANE,
                             from.device, R * PLANE * sizeof(float), from.copies));
}

static void step(const std::vector<slab> &slabs, int now)
{
    const size_t n = slabs.size();
    for (size_t i = 0; i < n; i++) {
        const slab &s = slabs[i];
        must(cudaSetDevice(s.device));
        for (size_t j = i > 0 ? i - 1 : 0; j < n && j <= i + 1; j++) {
            /* Its own copies, too: this overwrites the planes that they sent. */
            must(cudaStreamWaitEvent(s.compute, slabs[j].sent));
        }
        advance(s, now, 0, R);
        advance(s, now, s.planes - R, R);
        must(cudaEventRecord(s.ends, s.compute));
        if (s.planes > 2 * R) {
            advance(s, now, R, s.planes - 2 * R);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const slab &s = slabs[i];
        must(cudaSetDevice(s.device));
        if (i + 1 < n) {
            send(s, s.planes, slabs[i + 1], 0, now);
        }
        if (i > 0) {
            send(s, R, slabs[i - 1], slabs[i - 1].planes + R, now);
        }
        must(cudaEventRecord(s.sent, s.copies));
    }
}

static std::vector<float> run(size_t n)
{
    std::vector<slab> slabs(n);
    const float impulse = 1;
    for (size_t i = 0; i < n; i++) {
        slab &s = slabs[i];
        s.device = (int)i;
        s.planes = NZ * (i + 1) / n - NZ * i / n;
        must(cudaSetDevice(s.device));
        must(cudaStreamCreateWithFlags(&s.compute, cudaStreamNonBlocking));
        must(cudaStreamCreateWithFlags(&s.copies, cudaStreamNonBlocking));
        must(cudaEventCreateWithFlags(&s.ends, cudaEventDisableTiming));
        must(cudaEventCreateWithFlags(&s.sent, cudaEventDisableTiming));
        for (float *&field : s.field) {
            must(cudaMalloc(&field, (s.planes + 2 * R) * PLANE * sizeof(float)));
            must(cudaMemset(field, 0, (s.planes + 2 * R) * PLANE * sizeof(float)));
        }
        if (i == 0) {
            must(cudaMemcpy(s.field[0] + (2 * R + 1) * PLANE + PLANE / 2 + NX / 2, &impulse, sizeof impulse,
                            cudaMemcpyHostToDevice));
        }
        must(cudaDeviceSynchronize());
    }
    for (int i = 0; i < STEPS; i++) {
        step(slabs, i % 2);
    }
    std::vector<float> out;
    for (const slab &s : slabs) {
        std::vector<float> part(s.planes * PLANE);
        must(cudaSetDevice(s.device));
        must(cudaDeviceSynchronize());
        must(cudaMemcpy(part.data(), s.field[STEPS % 2] + R * PLANE, part.size() * sizeof(float),
                        cudaMemcpyDeviceToHost));
        out.insert(out.end(), part.begin(), part.end());
    }
    for (slab &s : slabs) {
        must(cudaSetDevice(s.device));
        must(cudaFree(s.field[0]));
        must(cudaFree(s.field[1]));
        must(cudaStreamDestroy(s.compute));
        must(cudaStreamDestroy(s.copies));
        must(cudaEventDestroy(s.ends));
        must(cudaEventDestroy(s.sent));
    }
    return out;
}

int main()
{
    int count = 0;
    must(cudaGetDeviceCount(&count));
    const size_t n = std::min((size_t)count, NZ / (2 * R));
    const bool same = run(1) == run(n);
    printf("%zu devices: %s\n", n, same ? "as one device, bit by bit" : "DIFFERENT from one device");
    return !same;
}
