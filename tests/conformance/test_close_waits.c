/* test_close_waits.c - hd_close while another thread waits for a pinned chunk, or for memory at its
 * limit, which nobody gives back. Both return.
 *
 * Promise: hd_close ends the waits of other threads, for chunks and for memory.
 *
 * Threads: one that waits, and the main one, which takes all there is and closes.
 * Locks: none.
 * Always: the limits of the waits are longer than any test may take. So a call returns because its
 * runtime is closed, or not at all.
 */
#include "pool.h"
#include "workers.h"

#include <pthread.h>
#include "transfer/staging.h"

enum { bytes = 4096 };

#define SETTINGS                                                                                                       \
    "close_timeout=300 transfer_timeout=600000 memory_timeout=600000 host_devices=2 peers=off "                        \
    "host_memory=128M memory_limit=16M pinned_limit=64M"

typedef struct waiter {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *x, *there; /* on the first and the second device */
    hd_status (*call)(struct waiter *w);
    hd_buffer *got;
    uint8_t memory[bytes];
    atomic_bool about_to;
    hd_status status;
    char message[512];
} waiter;

/* ---- resources that the case takes, and a call that waits for them ---- */

static const hd_box rows = {
    .size = sizeof rows, .row = 8, .dims = 1, .count = {16}, .dst_stride = {16}, .src_stride = {24}};

static hd_status read_rows(waiter *w)
{
    return hd_read_box(w->x, 0, w->memory, &rows);
}

static hd_status write_rows(waiter *w)
{
    return hd_write_box(w->x, 0, w->memory, &rows);
}

static void take_chunks_between(waiter *w)
{
    hdi_staging *pool = hdi_staging_between(w->runtime, 0, 1, HDI_STAGED_SMALL);
    CONF_TRUE(pool != NULL);
    for (int i = 0; i < HDI_STAGED_SMALL_CHUNKS; i++) {
        hdi_chunk *chunk;
        CONF_OK(hdi_staging_await(pool, HDI_STAGING_IN_USE, INT64_MAX, &chunk));
    }
}

static hd_status copy_there(waiter *w)
{
    const uint64_t shape[] = {bytes};
    hd_tensor from, to;
    CONF_OK(hd_tensor_make(w->x, 0, HD_TYPE_U8, 1, shape, &from));
    CONF_OK(hd_tensor_make(w->there, 0, HD_TYPE_U8, 1, shape, &to));
    return hd_tensor_copy(&to, &from, NULL);
}

static void take_chunks(waiter *w)
{
    for (int to_device = 0; to_device < 2; to_device++) {
        hdi_staging *pool = hdi_staging_of(w->runtime->devices[0], to_device, false);
        CONF_TRUE(pool != NULL);
        for (uint32_t i = 0; i < pool->most; i++) {
            hdi_chunk *chunk = NULL;
            CONF_OK(hdi_staging_take(pool, HDI_STAGING_WAIT, INT64_MAX, &chunk));
            CONF_TRUE(chunk != NULL);
        }
    }
}

static hd_status write_bytes(waiter *w)
{
    return hd_write(w->x, 0, w->memory, bytes);
}

static hd_status read_bytes(waiter *w)
{
    return hd_read(w->x, 0, w->memory, bytes);
}

static void take_memory(waiter *w)
{
    hd_buffer *most = NULL;
    CONF_OK(hd_alloc(w->lane, 12 * POOL_MIB, &most));
    CONF_OK(hd_alloc_host(w->runtime, 40 * POOL_MIB, &most));
}

static hd_status allocate(waiter *w)
{
    return hd_alloc(w->lane, 12 * POOL_MIB, &w->got);
}

static hd_status allocate_pinned(waiter *w)
{
    return hd_alloc_host(w->runtime, 40 * POOL_MIB, &w->got);
}

static const struct {
    const char *name;
    void (*take)(waiter *w);
    hd_status (*call)(waiter *w);
} waits[] = {
    {"hd_read_box", take_chunks, read_rows},
    {"hd_write_box", take_chunks, write_rows},
    {"hd_tensor_copy", take_chunks_between, copy_there},
    {"hd_write", take_chunks, write_bytes},
    {"hd_read", take_chunks, read_bytes},
    {"hd_alloc", take_memory, allocate},
    {"hd_alloc_host", take_memory, allocate_pinned},
};

static void *begins(void *argument)
{
    waiter *w = argument;
    atomic_store(&w->about_to, true);
    w->status = w->call(w);
    snprintf(w->message, sizeof w->message, "%s", hd_message());
    return NULL;
}

/* Closes the runtime while the thread waits. */
static void closes_while(waiter *w, const char *name)
{
    pthread_t thread;
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&thread, NULL, begins, w), 0);
    while (!atomic_load(&w->about_to)) {
        conf_sleep_ms(1);
    }
    conf_sleep_ms(20); /* on most machines it waits by now; it must return on any */
    hd_close(w->runtime);
    if (strstr(hd_message(), "did not come back") != NULL) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s", name, hd_message());
    }
    pthread_join(thread, NULL);
    if (w->status != HD_ERROR_HANDLE || strncmp(w->message, name, strlen(name)) != 0) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s: %s", name, hd_status_name(w->status), w->message);
    }
    conf_failure_ends_program = false;
}

static void what_nobody_gives_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        static waiter w;
        memset(&w, 0, sizeof w);
        w.runtime = conf_open(SETTINGS);
        if (hd_device_count(w.runtime) < 2) {
            conf_close(w.runtime);
            skip();
        }
        w.call = waits[i].call;
        w.lane = conf_default_lane(w.runtime, 0);
        CONF_OK(hd_alloc(w.lane, bytes, &w.x));
        CONF_OK(hd_alloc(conf_default_lane(w.runtime, 1), bytes, &w.there));
        CONF_OK(w.call(&w)); /* it succeeds while the resources are free */
        hd_free(w.got);
        CONF_OK(hd_lane_wait(w.lane, POOL_WAIT));
        waits[i].take(&w);
        closes_while(&w, waits[i].name);
    }
}

int main(void)
{
    conf_begin("test_close_waits");
    const struct CMUnitTest tests[] = {
        CONF_CASE(what_nobody_gives_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
