/* pipeline.c - 1 GiB goes through a device in chunks of 8 MiB. One thread makes them, and another
 * adds up each of them.
 *
 * The thread that makes chunks runs ahead as far as the memory limit allows. Then hd_alloc waits
 * until the other one frees something. */
#include <heddle.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNKS = 128, N = 2 << 20 };

static hd_runtime *runtime;
static hd_buffer *chunks[CHUNKS];
static sem_t made;

static void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "pipeline: %s\n", hd_message());
        exit(1);
    }
}

static void *produce(void *unused)
{
    static float host[N];
    hd_lane *lane;
    must(hd_lane_get_default(runtime, 0, &lane));
    for (int i = 0; i < CHUNKS; i++) {
        for (int j = 0; j < N; j++) {
            host[j] = (float)(i % 8);
        }
        must(hd_alloc(lane, sizeof host, &chunks[i]));
        must(hd_write(chunks[i], 0, host, sizeof host)); /* now `host` may be reused */
        sem_post(&made);
    }
    return unused;
}

int main(void)
{
    const hd_options options = {sizeof options, "memory_limit=64M"};
    const hd_dims grid = {256, 1, 1}, block = {256, 1, 1};
    hd_lane *lane;
    hd_module *builtin;
    hd_kernel *sum;
    hd_buffer *total;
    pthread_t producer;
    int wrong = 0;
    must(hd_open(&options, &runtime));
    must(hd_lane_get_default(runtime, 0, &lane));
    must(hd_module_get_builtin(runtime, &builtin));
    must(hd_kernel_get(builtin, "hd_sum_f32", &sum));
    must(hd_alloc(lane, sizeof(float), &total));
    if (sem_init(&made, 0, 0) != 0 || pthread_create(&producer, NULL, produce, NULL) != 0) {
        return 1;
    }
    for (int i = 0; i < CHUNKS; i++) {
        float result;
        while (sem_wait(&made) != 0) {
        }
        const hd_arg args[] = {hd_inout(total), hd_in(chunks[i]), hd_u64(N)};
        must(hd_fill(total, 0, 0, sizeof(float), NULL));
        must(hd_launch(lane, sum, grid, block, 0, args, 3, NULL));
        must(hd_free(chunks[i])); /* the launch keeps the memory until it is finished */
        must(hd_read(total, 0, &result, sizeof result));
        wrong += result != (float)(i % 8) * N;
    }
    pthread_join(producer, NULL);
    printf("%d chunks, %d wrong sums\n", CHUNKS, wrong);
    hd_close(runtime);
    return wrong > 0;
}
