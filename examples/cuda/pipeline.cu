/* pipeline.cu - examples/pipeline.c in plain CUDA: a ring of slots, each with pinned and device
 * memory, and an event. */
#include <cstdio>
#include <cstdlib>
#include <semaphore.h>
#include <thread>
#include <cuda_runtime.h>

static const int CHUNKS = 128, SLOTS = 8, N = 2 << 20;

struct slot {
    float *host, *device;
    cudaEvent_t copied;
};

static slot slots[SLOTS];
static sem_t made, used;

static void must(cudaError_t status)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "pipeline: %s\n", cudaGetErrorString(status));
        exit(1);
    }
}

__global__ void sum(float *total, const float *x, size_t n)
{
    __shared__ float part[256];
    float mine = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        mine += x[i];
    }
    part[threadIdx.x] = mine;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        atomicAdd(total, part[0]);
    }
}

static void produce()
{
    cudaStream_t stream;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < CHUNKS; i++) {
        slot &s = slots[i % SLOTS];
        while (sem_wait(&used) != 0) {
        }
        for (int j = 0; j < N; j++) {
            s.host[j] = (float)(i % 8);
        }
        must(cudaMemcpyAsync(s.device, s.host, N * sizeof(float), cudaMemcpyHostToDevice, stream));
        must(cudaEventRecord(s.copied, stream));
        sem_post(&made);
    }
    must(cudaStreamSynchronize(stream));
    must(cudaStreamDestroy(stream));
}

int main()
{
    cudaStream_t stream;
    float *total;
    int wrong = 0;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cudaMalloc(&total, sizeof(float)));
    for (slot &s : slots) {
        must(cudaMallocHost(&s.host, N * sizeof(float)));
        must(cudaMalloc(&s.device, N * sizeof(float)));
        must(cudaEventCreateWithFlags(&s.copied, cudaEventDisableTiming));
    }
    if (sem_init(&made, 0, 0) != 0 || sem_init(&used, 0, SLOTS) != 0) {
        return 1;
    }
    std::thread producer(produce);
    for (int i = 0; i < CHUNKS; i++) {
        slot &s = slots[i % SLOTS];
        float result;
        while (sem_wait(&made) != 0) {
        }
        must(cudaStreamWaitEvent(stream, s.copied));
        must(cudaMemsetAsync(total, 0, sizeof(float), stream));
        sum<<<256, 256, 0, stream>>>(total, s.device, N);
        must(cudaGetLastError());
        must(cudaMemcpyAsync(&result, total, sizeof result, cudaMemcpyDeviceToHost, stream));
        must(cudaStreamSynchronize(stream));
        sem_post(&used);
        wrong += result != (float)(i % 8) * N;
    }
    producer.join();
    for (slot &s : slots) {
        must(cudaFreeHost(s.host));
        must(cudaFree(s.device));
        must(cudaEventDestroy(s.copied));
    }
    must(cudaFree(total));
    must(cudaStreamDestroy(stream));
    printf("%d chunks, %d wrong sums\n", CHUNKS, wrong);
    return wrong > 0;
}
