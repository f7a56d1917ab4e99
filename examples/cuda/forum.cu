/* forum.cu - examples/forum.c in plain CUDA: a thread, a stream and a cuBLAS handle per device. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#include <cublas_v2.h>
#include <cuda_runtime.h>

static const int N = 256, ROUNDS = 20;

struct figures {
    double ms; /* for one product */
    float sum; /* one of its elements */
};

static void must(cudaError_t status)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "forum: %s\n", cudaGetErrorString(status));
        exit(1);
    }
}

static void must(cublasStatus_t status)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        fprintf(stderr, "forum: %s\n", cublasGetStatusString(status));
        exit(1);
    }
}

static void multiply(int device, figures *out)
{
    using clock = std::chrono::steady_clock;
    const std::vector<float> ones(N * N, 1.0f);
    const size_t bytes = ones.size() * sizeof(float);
    const float alpha = 1, beta = 0;
    cudaStream_t stream;
    cublasHandle_t handle;
    float *a, *b, *c;
    must(cudaSetDevice(device));
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cublasCreate(&handle));
    must(cublasSetStream(handle, stream));
    must(cudaMalloc(&a, bytes));
    must(cudaMalloc(&b, bytes));
    must(cudaMalloc(&c, bytes));
    must(cudaMemcpyAsync(a, ones.data(), bytes, cudaMemcpyHostToDevice, stream));
    must(cudaMemcpyAsync(b, ones.data(), bytes, cudaMemcpyHostToDevice, stream));
    must(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, b, N, a, N, &beta, c,
                     N)); /* the first product loads kernels */
    must(cudaStreamSynchronize(stream));
    const clock::time_point begin = clock::now();
    for (int i = 0; i < ROUNDS; i++) {
        must(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, b, N, a, N, &beta, c, N));
    }
    must(cudaStreamSynchronize(stream));
    const std::chrono::duration<double, std::milli> ms = clock::now() - begin;
    out->ms = ms.count() / ROUNDS;
    must(cudaMemcpy(&out->sum, c, sizeof out->sum, cudaMemcpyDeviceToHost));
    must(cudaFree(a));
    must(cudaFree(b));
    must(cudaFree(c));
    must(cublasDestroy(handle));
    must(cudaStreamDestroy(stream));
}

int main()
{
    int n = 0;
    must(cudaGetDeviceCount(&n));
    std::vector<figures> alone(n), together(n);
    std::vector<std::thread> threads;
    bool right = true;
    for (int i = 0; i < n; i++) {
        multiply(i, &alone[i]);
    }
    for (int i = 0; i < n; i++) {
        threads.emplace_back(multiply, i, &together[i]);
    }
    for (int i = 0; i < n; i++) {
        threads[i].join();
        printf("device %d: %.3f ms alone, %.3f ms with all\n", i, alone[i].ms, together[i].ms);
        right = right && alone[i].sum == N && together[i].sum == N;
    }
    return !right;
}
