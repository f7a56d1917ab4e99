/* busy.c - keeps a runtime busy on a thread of its own, beside other work of programs in other
 * languages.
 *
 * Built as a shared object by tests/gpu/torch_captures.py. Threads: busy_start makes one, busy_stop
 * ends it.
 */
#include <heddle.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { bytes = 8 << 20 };

static hd_runtime *runtime;
static pthread_t thread;
static atomic_bool stop;
static atomic_long rounds;
static char failure[1024];

static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n    ret;\n}\n";

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        hd_status status_ = (call);                                                                                    \
        if (status_) {                                                                                                 \
            snprintf(failure, sizeof failure, "%s: %s: %s", #call, hd_status_name(status_), hd_message());             \
            return NULL;                                                                                               \
        }                                                                                                              \
    } while (0)

static void *work(void *unused)
{
    (void)unused;
    hd_lane *lane = NULL;
    hd_lane_get_default(runtime, 0, &lane);
    hd_buffer *x, *y, *pinned, *mapped;
    hd_module *builtin, *loaded;
    hd_kernel *copy;
    hd_ticket ticket;
    uint8_t *memory = calloc(1, bytes);
    if (!lane || !memory) {
        snprintf(failure, sizeof failure, "%s", lane ? "no memory" : hd_message());
        return NULL;
    }
    TRY(hd_module_get_builtin(runtime, &builtin));
    TRY(hd_kernel_get(builtin, "hd_copy_u32", &copy));
    TRY(hd_alloc(lane, bytes, &x));
    TRY(hd_alloc(lane, bytes, &y));
    while (!atomic_load(&stop)) {
        TRY(hd_write(x, 0, memory, bytes));
        for (int i = 0; i < 20; i++) {
            hd_arg args[] = {hd_out(y), hd_in(x), hd_u64(bytes / 4)};
            TRY(hd_launch(lane, copy, (hd_dims){bytes / 4 / 256, 1, 1}, (hd_dims){256, 1, 1}, 0, args, 3, &ticket));
        }
        TRY(hd_alloc(lane, (size_t)64 << 20, &mapped));
        TRY(hd_fill(mapped, 0, 1, (size_t)64 << 20, NULL));
        hd_free(mapped);
        TRY(hd_read(y, 0, memory, bytes));
        TRY(hd_alloc_host(runtime, (size_t)16 << 20, &pinned));
        TRY(hd_copy(pinned, 0, x, 0, bytes, NULL));
        hd_free(pinned);
        TRY(hd_lane_wait(lane, HD_FOREVER));
        TRY(hd_memory_trim(runtime, 0, 0, NULL));
        TRY(hd_module_load(runtime, ptx, sizeof ptx - 1, &loaded));
        hd_module_unload(loaded);
        atomic_fetch_add(&rounds, 1);
    }
    free(memory);
    return NULL;
}

const char *busy_start(const char *settings)
{
    hd_options options = {.size = sizeof options, .settings = settings};
    if (hd_open(&options, &runtime)) {
        return hd_message();
    }
    return pthread_create(&thread, NULL, work, NULL) ? "no thread" : "";
}

long busy_rounds(void)
{
    return failure[0] ? -1 : atomic_load(&rounds);
}

/* Returns the failure, or "". */
const char *busy_stop(void)
{
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    hd_device_info info = {.size = sizeof info};
    if (!failure[0] && (hd_device_get_info(runtime, 0, &info) || info.lost || info.losses)) {
        snprintf(failure, sizeof failure, "device 0 was lost: %s", hd_message());
    }
    hd_close(runtime);
    return failure;
}
