/* fft.c - signals go through a low pass of cuFFT and cuBLAS, whose calls stand in lanes between
 * copies and fills of Heddle.
 *
 * usage: fft
 *
 * hd_lane_run_native submits a function that gets the lane's stream, and declares the bytes that
 * its work uses. So nothing waits in between. The plan's work area is a buffer like the others.
 * Signals in different lanes share it, and run in order for that reason. GPUs need a program that
 * was compiled with WITH_CUDA, and linked with cuFFT, cuBLAS and the CUDA runtime. On host devices
 * functions of the CPU stand in the same calls. The result must equal that of the CPU, and the tone
 * that passes. Exit status: 0, or 1 after a failure, or 77 if no device can run it. */
#include <complex.h>
#include <heddle.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef WITH_CUDA
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cufft.h>
#endif

enum { N = 1 << 14, LOW = 64, SIGNALS = 6 };
typedef float complex number;

/* Passed to the lane calls: the device addresses of a signal and the work area. It stays until the
 * calls are done. */
typedef struct pass {
    number *x, *work;
    int sign; /* -1: forward, 1: backward, as in cuFFT */
} pass;

/* Functions of a library, or of the CPU: they transform a signal, and divide it by N. */
static hd_lane_function turn, scale;
static size_t work_bytes;

static void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "fft: %s\n", hd_message());
        exit(1);
    }
}

/* out[i]: the sum of x[k * step] turned by i * k n-ths, of n numbers. */
static void transform(number *out, const number *x, int n, int step, int sign)
{
    if (n == 1) {
        *out = *x;
        return;
    }
    transform(out, x, n / 2, 2 * step, sign);
    transform(out + n / 2, x + step, n / 2, 2 * step, sign);
    for (int i = 0; i < n / 2; i++) {
        const number even = out[i], odd = out[i + n / 2] * (number)cexp(sign * I * 6.283185307179586 * i / n);
        out[i] = even + odd;
        out[i + n / 2] = even - odd;
    }
}

static void cpu_turn(void *context)
{
    const pass *p = context;
    memcpy(p->work, p->x, N * sizeof(number));
    transform(p->x, p->work, N, 1, p->sign);
}

static void cpu_scale(void *context)
{
    for (int i = 0; i < N; i++) {
        ((const pass *)context)->x[i] /= N;
    }
}

/* cuLaunchHostFunc of host devices */
static int (*launch_host)(void *stream, void (*function)(void *), void *context);

#define IN_STREAM(part)                                                                                                \
    static hd_status put_##part(void *stream, void *context)                                                           \
    {                                                                                                                  \
        return launch_host(stream, cpu_##part, context) ? HD_ERROR_DRIVER : HD_OK;                                     \
    }
IN_STREAM(turn)
IN_STREAM(scale)

static void open_cpu(void)
{
    void (*entry)(void);
    must(hd_driver_entry("host", "cuLaunchHostFunc", &entry));
    launch_host = (int (*)(void *, void (*)(void *), void *))entry;
    turn = put_turn, scale = put_scale, work_bytes = N * sizeof(number);
}

#ifdef WITH_CUDA /* one thread calls for all lanes, so one plan and one handle serve them */
static cufftHandle plan;
static cublasHandle_t blas;

static hd_status gpu_turn(void *stream, void *context)
{
    const pass *p = context;
    cufftComplex *x = (cufftComplex *)p->x;
    const bool failed =
        cufftSetStream(plan, stream) || cufftSetWorkArea(plan, p->work) || cufftExecC2C(plan, x, x, p->sign);
    return failed ? HD_ERROR_DRIVER : HD_OK;
}

static hd_status gpu_scale(void *stream, void *context)
{
    const float factor = 1.0f / N;
    cuComplex *x = (cuComplex *)((const pass *)context)->x;
    return cublasSetStream(blas, stream) || cublasCsscal(blas, N, &factor, x, 1) ? HD_ERROR_DRIVER : HD_OK;
}

static void open_gpu(const char *bus_id)
{
    int ordinal;
    if (cudaDeviceGetByPCIBusId(&ordinal, bus_id) || cudaSetDevice(ordinal) || cublasCreate(&blas) ||
        cufftCreate(&plan) || cufftSetAutoAllocation(plan, 0) || cufftMakePlan1d(plan, N, CUFFT_C2C, 1, &work_bytes)) {
        fprintf(stderr, "fft: cuFFT or cuBLAS cannot be opened on %s\n", bus_id);
        exit(1);
    }
    turn = gpu_turn, scale = gpu_scale;
}
#else
static void open_gpu(const char *bus_id)
{
    printf("skipped: the first device is the GPU %s, and this program was compiled without cuFFT\n", bus_id);
    exit(77);
}
#endif

static void low_pass(hd_lane *lane, hd_buffer *x, hd_buffer *work, pass passes[2])
{
    const hd_arg uses[] = {hd_inout(x), hd_inout(work)};
    number *at = (number *)(uintptr_t)hd_buffer_address(x), *work_at = (number *)(uintptr_t)hd_buffer_address(work);
    passes[0] = (pass){at, work_at, -1};
    passes[1] = (pass){at, work_at, 1};
    must(hd_lane_run_native(lane, turn, &passes[0], uses, 2, NULL));
    /* the high frequencies */
    must(hd_fill(x, LOW * sizeof(number), 0, (N - 2 * LOW) * sizeof(number), NULL));
    must(hd_lane_run_native(lane, scale, &passes[0], uses, 1, NULL));
    must(hd_lane_run_native(lane, turn, &passes[1], uses, 2, NULL));
}

/* Returns number i of a tone with this many periods. */
static number tone(int periods, int i)
{
    return cosf(6.2831853f * (float)(i * periods % N) / N);
}

int main(void)
{
    static number x[N], wanted[N];
    const hd_options options = {sizeof options,
                                /* A worker process does not contain the program's functions. */
                                "placement=thread"};
    hd_device_info info = {.size = sizeof info};
    hd_runtime *runtime;
    hd_lane *lanes[2];
    hd_buffer *signals[SIGNALS], *work;
    pass passes[SIGNALS][2];
    double most = 0;
    const hd_status status = hd_open(&options, &runtime);
    if (status == HD_ERROR_NO_DRIVER || status == HD_ERROR_NO_DEVICE) {
        printf("skipped: %s\n", hd_message());
        return 77;
    }
    must(status);
    must(hd_device_get_info(runtime, 0, &info));
    info.is_host ? open_cpu() : open_gpu(info.bus_id);
    must(hd_lane_create(runtime, 0, &lanes[0]));
    must(hd_lane_create(runtime, 0, &lanes[1]));
    must(hd_alloc(lanes[0], work_bytes + 1, &work)); /* a plan may need none */
    for (int s = 0; s < SIGNALS; s++) {
        for (int i = 0; i < N; i++) {
            x[i] = tone(s + 1, i) + tone(500, i);
        }
        must(hd_alloc(lanes[s % 2], sizeof x, &signals[s]));
        must(hd_write(signals[s], 0, x, sizeof x));
        low_pass(lanes[s % 2], signals[s], work, passes[s]);
    }
    for (int s = 0; s < SIGNALS; s++) {
        for (int i = 0; i < N; i++) {
            wanted[i] = tone(s + 1, i) + tone(500, i);
        }
        transform(x, wanted, N, 1, -1);
        memset(x + LOW, 0, (N - 2 * LOW) * sizeof *x);
        transform(wanted, x, N, 1, 1);
        must(hd_read(signals[s], 0, x, sizeof x));
        for (int i = 0; i < N; i++) {
            most = fmax(most, fmax(cabsf(x[i] - wanted[i] / N), cabsf(x[i] - tone(s + 1, i))));
        }
    }
    printf("%d signals through %s: at most %.1g from the CPU's transform and from the tone that passes\n", SIGNALS,
           info.is_host ? "functions of the CPU" : "cuFFT and cuBLAS", most);
    must(hd_close(runtime));
    return !(most < 1e-4);
}
