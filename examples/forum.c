/* forum.c - do threads that drive a device each disturb each other? Multiplies matrices on each
 * device alone, then on all at once. */
#include <heddle.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 256, ROUNDS = 20, DEVICES_MOST = 32 };

typedef struct worker {
    pthread_t thread;
    int device;
    double ms; /* for one product */
    float sum; /* one of its elements */
} worker;

static hd_runtime *runtime;

static void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "forum: %s\n", hd_message());
        exit(1);
    }
}

static double now_ms(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void *multiply(void *argument)
{
    worker *w = argument;
    const uint64_t shape[] = {N, N};
    hd_lane *lane;
    hd_tensor a, b, c;
    must(hd_lane_get_default(runtime, w->device, &lane));
    must(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &a));
    must(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &b));
    must(hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &c));
    must(hd_fill(a.buffer, 0, 0x3f800000, hd_buffer_size(a.buffer), NULL)); /* 1.0f */
    must(hd_fill(b.buffer, 0, 0x3f800000, hd_buffer_size(b.buffer), NULL));
    must(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, NULL)); /* the first product opens the library */
    must(hd_lane_wait(lane, HD_FOREVER));
    const double begin = now_ms();
    for (int i = 0; i < ROUNDS; i++) {
        must(hd_tensor_matmul(lane, &c, &a, &b, 1, 0, NULL));
    }
    must(hd_lane_wait(lane, HD_FOREVER));
    w->ms = (now_ms() - begin) / ROUNDS;
    must(hd_read(c.buffer, 0, &w->sum, sizeof w->sum));
    must(hd_free(a.buffer));
    must(hd_free(b.buffer));
    must(hd_free(c.buffer));
    return NULL;
}

int main(void)
{
    static worker alone[DEVICES_MOST], together[DEVICES_MOST];
    int right = 1;
    must(hd_open(NULL, &runtime));
    const int n = hd_device_count(runtime);
    for (int i = 0; i < n; i++) {
        alone[i].device = together[i].device = i;
        multiply(&alone[i]);
    }
    for (int i = 0; i < n; i++) {
        if (pthread_create(&together[i].thread, NULL, multiply, &together[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(together[i].thread, NULL);
        printf("device %d: %.3f ms alone, %.3f ms with all\n", i, alone[i].ms, together[i].ms);
        right &= alone[i].sum == N && together[i].sum == N;
    }
    hd_close(runtime);
    return !right;
}
