/* prelude.h - the context of the guides' fragments: a runtime on host devices, and data in every
 * buffer that they name.
 *
 * test_examples.sh makes a function of each fragment, in a program of its own. Threads: the main
 * one. Locks: none.
 * Always: a failed call of a fragment leaves its message, which fails the fragment.
 */
#include <heddle.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static hd_runtime *docs_runtime;
static void *docs_image;
static size_t docs_image_bytes;

static void docs_need(hd_status status)
{
    if (status != HD_OK) {
        printf("prelude: %s\n", hd_message());
        exit(1);
    }
}

static hd_lane *docs_lane(int device)
{
    hd_lane *lane = NULL;
    docs_need(hd_lane_get_default(docs_runtime, device, &lane));
    return lane;
}

static hd_buffer *docs_buffer(size_t bytes)
{
    hd_buffer *buffer = NULL;
    docs_need(hd_alloc(docs_lane(0), bytes, &buffer));
    docs_need(hd_fill(buffer, 0, 0x3f800000, bytes / 4 * 4, NULL)); /* 1.0f */
    return buffer;
}

static hd_tensor docs_tensor(void)
{
    const uint64_t shape[] = {3, 16, 16};
    hd_tensor t;
    docs_need(hd_tensor_make(docs_buffer(3 * 16 * 16 * 4), 0, HD_TYPE_F32, 3, shape, &t));
    return t;
}

static size_t drop_oldest(void *cache, size_t wanted)
{
    (void)cache;
    (void)wanted;
    return 0;
}

/* Opens a runtime with a kernel file, or NULL. The fragments about opening open the runtime
 * themselves. */
static void docs_begin(const char *kernels, int open)
{
    hd_options options = {.size = sizeof options, .settings = "driver=host host_devices=2"};
    if (open) {
        docs_need(hd_open(&options, &docs_runtime));
    }
    FILE *file = kernels ? fopen(kernels, "rb") : NULL;
    if (file) {
        docs_image = malloc(1 << 20);
        docs_image_bytes = docs_image ? fread(docs_image, 1, 1 << 20, file) : 0;
        fclose(file);
    }
}

static int docs_end(hd_runtime *runtime)
{
    for (int i = 0; i < hd_device_count(runtime); i++) {
        hd_lane *lane;
        if (hd_lane_get_default(runtime, i, &lane) != HD_OK || hd_lane_wait(lane, HD_FOREVER) != HD_OK) {
            break;
        }
    }
    if (hd_message()[0]) {
        printf("a call of the fragment fails: %s\n", hd_message());
    }
    hd_close(runtime);
    free(docs_image);
    return hd_message()[0] != 0;
}
