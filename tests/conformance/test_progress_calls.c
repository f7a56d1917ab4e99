/* test_progress_calls.c - calls that return while kernels, claims and functions of the program are
 * held: all that use none of their bytes.
 *
 * Promise: A call that depends on nothing held returns, and its work ends.
 *
 * That holds however much of the library waits. On each of two devices the test holds kernels, with
 * launches behind them. It also holds claims, a function of hd_launch_host, and one in a lane. A
 * hundred copies of all kinds wait for them. Then the test makes each public call that may wait,
 * with its own bytes and lanes. If a call does not return in time, the test names it and opens the
 * gates, and the next call gets a new scene.
 *
 * Environment: HEDDLE_TEST_LIMIT=N seconds until a call counts as failed, HEDDLE_TEST_CALL=NAME
 * only that call.
 *
 * Threads: the main one, and one for each call.
 * Locks: the lock of the call under way.
 */
#include <semaphore.h>
#include <sys/mman.h>
#include "foreign.h"
#include "progress_kernel.h"
#include "support/dlpack.h"

#define SETTINGS "host_devices=2 host_peers=all call_threads=8"

enum { devices = 2, bytes = 4096, waiting = 100, kernels = 3 };

typedef struct scene {
    hd_runtime *runtime, *other;
    hd_kernel *hold;
    int n; /* devices */
    bool is_process;
    hd_lane *lanes[devices][kernels];
    hd_buffer *held[devices], *claimed[devices], *pinned, *called, *stream_called;
    hd_buffer *free_device[devices], *free_pinned, *free_unified, *free_kept, *freed;
    hd_lane *free_lane;
    hd_buffer *flags;
    uint32_t *flag;
    hd_claim *claims[devices + 2]; /* a call makes the last one */
    sem_t open;
    hd_ticket tickets[devices * kernels];
    foreign driver;
} scene;

/* ---- held work ---- */

static hd_status launch(scene *s, hd_lane *lane, bool held, hd_buffer *y, hd_buffer *x, hd_ticket *out)
{
    const hd_arg args[] = {hd_u64(held ? hd_buffer_address(s->flags) : 0), hd_out_range(y, 0, bytes / 2),
                           hd_in_range(x, bytes / 2, bytes / 2), hd_f32(1), hd_u64(bytes / 8)};
    return hd_launch(lane, s->hold, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, 5, out);
}

static hd_status host_waits(void *const *pointers, void *context)
{
    (void)pointers;
    while (sem_wait(context) != 0) {
    }
    sem_post(context);
    return HD_OK;
}

static void stream_waits(void *context)
{
    (void)host_waits(NULL, context);
}

static hd_status lane_waits(void *stream, void *context)
{
    scene *s = context;
    return s->driver.cuLaunchHostFunc(stream, stream_waits, &s->open) == 0 ? HD_OK : HD_ERROR_DRIVER;
}

/* Copies of all kinds, which use held bytes. */
static void copies_wait(scene *s)
{
    hd_buffer *bad[] = {s->held[0], s->claimed[0], s->pinned, s->called, s->held[s->n - 1], s->claimed[s->n - 1]};
    for (int i = 0; i < waiting; i++) {
        hd_buffer *a = bad[i % 6], *b = bad[(i / 6 + i + 1) % 6];
        hd_tensor x, y;
        const uint64_t shape[2] = {16, 16};
        switch (i % 4) {
        case 0:
            CONF_OK(hd_fill(a, 0, conf_bits(1), bytes, NULL));
            break;
        case 1:
            CONF_OK(hd_tensor_make(a, 0, HD_TYPE_F32, 2, shape, &x));
            CONF_OK(hd_tensor_make(b, a == b ? bytes / 2 : 0, HD_TYPE_F32, 2, shape, &y));
            CONF_OK(hd_tensor_transpose(&y, 0, 1, &y));
            CONF_OK(hd_tensor_copy(&x, &y, NULL));
            break;
        default:
            CONF_OK(hd_copy(a, 0, b, a == b ? bytes / 2 : 0, bytes / 2, NULL));
            break;
        }
    }
}

static hd_buffer *on_device(scene *s, int device)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(s->runtime, device), bytes, &buffer));
    CONF_OK(hd_fill(buffer, 0, 0, bytes, NULL));
    return buffer;
}

static hd_buffer *on_host(scene *s)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc_host(s->runtime, bytes, &buffer));
    CONF_OK(hd_fill(buffer, 0, 0, bytes, NULL));
    return buffer;
}

static hd_buffer *with_flags(hd_lane *lane, unsigned flags)
{
    const hd_alloc_options options = {.size = sizeof options, .flags = flags};
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc_with(lane, bytes, &options, &buffer));
    CONF_OK(hd_fill(buffer, 0, 0, bytes, NULL));
    return buffer;
}

static void buffers_make(scene *s)
{
    for (int d = 0; d < s->n; d++) {
        s->held[d] = on_device(s, d);
        s->claimed[d] = on_device(s, d);
        s->free_device[d] = on_device(s, d);
    }
    s->pinned = on_host(s), s->called = on_host(s), s->free_pinned = on_host(s);
    s->stream_called = on_device(s, 0);
    s->freed = on_device(s, 0);
    s->free_kept = with_flags(conf_default_lane(s->runtime, 0), HD_ALLOC_KEEP);
    CONF_OK(hd_alloc_unified(conf_default_lane(s->runtime, 0), bytes, &s->free_unified));
    CONF_OK(hd_fill(s->free_unified, 0, 0, bytes, NULL));
    void *flag = NULL;
    CONF_OK(hd_alloc_host(s->runtime, bytes, &s->flags));
    CONF_OK(hd_map(s->flags, HD_READ_WRITE, &flag));
    s->flag = flag;
    *s->flag = 0;
}

/* Does all first-time work before anything is held: it takes long, and partly waits for the
 * device. */
static void scene_warm(scene *s)
{
    for (int d = 0; d < s->n; d++) {
        hd_tensor m[3];
        const uint64_t shape[2] = {8, 8};
        for (int i = 0; i < 3; i++) {
            CONF_OK(hd_tensor_make(s->free_device[d], (size_t)i * 1024, HD_TYPE_F32, 2, shape, &m[i]));
        }
        hd_lane *lane = conf_default_lane(s->runtime, d);
        CONF_OK(hd_tensor_matmul(lane, &m[0], &m[1], &m[2], 1, 0, NULL));
        CONF_OK(hd_tensor_transpose(&m[1], 0, 1, &m[1]));
        CONF_OK(hd_tensor_copy(&m[0], &m[1], NULL));
        CONF_OK(hd_copy(s->free_device[d], 0, s->free_device[s->n - 1 - d], bytes / 2, 64, NULL));
        CONF_OK(launch(s, lane, false, s->free_device[d], s->free_device[d], NULL));
        CONF_OK(hd_buffer_wait(s->free_device[d], HD_READ_WRITE, progress_limit()));
    }
}

static scene *scene_open(void)
{
    scene *s = calloc(1, sizeof *s);
    CONF_TRUE(s != NULL);
    s->runtime = conf_open(SETTINGS);
    s->n = hd_device_count(s->runtime) < devices ? hd_device_count(s->runtime) : devices;
    s->is_process = conf_is_process(s->runtime);
    s->hold = progress_kernel(s->runtime);
    sem_init(&s->open, 0, 0);
    buffers_make(s);
    CONF_OK(hd_lane_create(s->runtime, 0, &s->free_lane));
    scene_warm(s);
    for (int d = 0; d < s->n; d++) {
        const hd_arg use = hd_inout(s->claimed[d]);
        CONF_OK(hd_claim_begin(s->runtime, &use, 1, &s->claims[d]));
        for (int i = 0; i < kernels; i++) {
            CONF_OK(hd_lane_create(s->runtime, d, &s->lanes[d][i]));
            CONF_OK(launch(s, s->lanes[d][i], true, i ? s->held[d] : s->freed, i ? s->held[d] : s->freed,
                           &s->tickets[d * kernels + i]));
        }
    }
    const hd_arg pinned = hd_inout(s->pinned), called = hd_inout(s->called), streamed = hd_inout(s->stream_called);
    CONF_OK(hd_claim_begin(s->runtime, &pinned, 1, &s->claims[devices]));
    CONF_OK(hd_launch_host(s->runtime, host_waits, &s->open, &called, 1, NULL));
    if (!s->is_process) {
        foreign_begin(&s->driver, s->runtime);
        CONF_OK(hd_lane_run_native(s->lanes[0][0], lane_waits, s, &streamed, 1, NULL));
    }
    copies_wait(s);
    return s;
}

/* Lets everything continue. */
static void scene_raise(scene *s)
{
    progress_raise(s->flag);
    sem_post(&s->open);
    for (int i = 0; i < devices + 2; i++) {
        if (s->claims[i] != NULL) {
            CONF_OK(hd_claim_end(s->claims[i], HD_OK));
            s->claims[i] = NULL;
        }
    }
}

static void scene_close(scene *s)
{
    for (int d = 0; d < s->n; d++) {
        for (int i = 0; i < kernels; i++) {
            CONF_TRUE(!hd_done(s->tickets[d * kernels + i])); /* everything was held until now */
        }
    }
    scene_raise(s);
    conf_close(s->other);
    conf_close(s->runtime);
    if (!s->is_process) {
        foreign_end(&s->driver);
    }
    sem_destroy(&s->open);
    free(s);
}

/* ---- the calls ---- */

#define WAIT (10 * progress_limit()) /* the call failed before */

static void call_alloc(scene *s)
{
    static const size_t sizes[] = {256, 100000, 8 << 20, 64 << 20};
    for (int i = 0; i < 4; i++) {
        hd_buffer *buffer = NULL;
        CONF_OK(hd_alloc(s->free_lane, sizes[i], &buffer));
        CONF_OK(hd_fill(buffer, 0, 1, 256, NULL));
        CONF_OK(hd_buffer_wait(buffer, HD_READ_WRITE, WAIT));
        CONF_OK(hd_free(buffer));
    }
}

static void call_alloc_kinds(scene *s)
{
    hd_buffer *made[4];
    CONF_OK(hd_alloc_host(s->runtime, 8 << 20, &made[0]));
    CONF_OK(hd_alloc_unified(s->free_lane, 8 << 20, &made[1]));
    made[2] = with_flags(s->free_lane, HD_ALLOC_DEDICATED);
    made[3] = with_flags(s->free_lane, HD_ALLOC_KEEP);
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_fill(made[i], 0, 1, bytes, NULL));
        CONF_FILLED(made[i], 0, 1, bytes);
        CONF_OK(hd_free(made[i]));
    }
}

/* Frees a buffer that a held kernel uses. A later allocation may get its memory only if a use need
 * not wait for the kernel. */
static void call_free_of_used(scene *s)
{
    CONF_OK(hd_free(s->freed));
    for (int i = 0; i < 20; i++) {
        hd_buffer *buffer = NULL;
        CONF_OK(hd_alloc(i % 2 ? s->free_lane : conf_default_lane(s->runtime, 0), bytes, &buffer));
        CONF_OK(hd_fill(buffer, 0, 1, bytes, NULL));
        CONF_FILLED(buffer, 0, 1, bytes);
    }
}

static void call_transfers(scene *s)
{
    static uint32_t memory[bytes / 4];
    for (int d = 0; d < s->n; d++) {
        hd_ticket t;
        const hd_box box = {
            .size = sizeof box, .row = 64, .dims = 1, .count = {16}, .dst_stride = {128}, .src_stride = {128}};
        CONF_OK(hd_write(s->free_device[d], 0, memory, bytes));
        CONF_OK(hd_copy(s->free_device[s->n - 1 - d], 0, s->free_pinned, 0, bytes, &t));
        CONF_OK(hd_wait(t, WAIT));
        CONF_OK(hd_copy_box(s->free_device[d], 0, s->free_device[s->n - 1 - d], d == s->n - 1 - d ? 64 : 0, &box, &t));
        CONF_OK(hd_wait(t, WAIT));
        CONF_OK(hd_read_box(s->free_device[d], 0, memory, &box));
        CONF_OK(hd_write_box(s->free_pinned, 0, memory, &box));
        CONF_OK(hd_read(s->free_unified, 0, memory, bytes));
    }
}

static void call_map(scene *s)
{
    void *at = NULL;
    hd_buffer *const mapped[] = {s->free_pinned, s->free_unified};
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_map(mapped[i], HD_READ_WRITE, &at));
        CONF_OK(hd_unmap(mapped[i]));
        CONF_TRUE(hd_element(mapped[i], 4, 4, HD_READ_WRITE) != NULL);
        CONF_OK(hd_buffer_wait(mapped[i], HD_READ_WRITE, WAIT));
    }
    CONF_OK(hd_buffer_wait(s->free_device[0], HD_READ_WRITE, WAIT));
}

static void call_save(scene *s)
{
    hd_ticket t;
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_buffer_save(s->free_kept, &t));
    }
    CONF_OK(hd_wait(t, WAIT));
}

static void call_lanes(scene *s)
{
    for (int i = 0; i < 40; i++) {
        hd_lane *lane = NULL;
        hd_ticket t;
        CONF_OK(hd_lane_create(s->runtime, i % s->n, &lane));
        CONF_OK(hd_lane_keep_times(lane, i % 2));
        CONF_OK(launch(s, lane, false, s->free_device[i % s->n], s->free_device[i % s->n], &t));
        CONF_OK(hd_wait(t, WAIT));
        CONF_OK(hd_lane_add_dependency(lane, t, &t));
        CONF_OK(hd_lane_wait(lane, WAIT));
        CONF_OK(hd_lane_reset(lane, WAIT));
        CONF_OK(hd_lane_destroy(lane));
    }
}

/* Lanes with held work are given back. New lanes begin with nothing in front. */
static void call_lane_of_held(scene *s)
{
    for (int d = 0; d < s->n; d++) {
        CONF_OK(hd_lane_destroy(s->lanes[d][kernels - 1]));
    }
    call_lanes(s);
}

static void *default_lane_work(void *argument)
{
    scene *s = argument;
    hd_ticket t;
    CONF_OK(launch(s, conf_default_lane(s->runtime, 0), false, s->free_device[0], s->free_device[0], &t));
    CONF_OK(hd_wait(t, WAIT));
    return NULL;
}

static void call_default_lane(scene *s)
{
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, default_lane_work, s), 0);
        CONF_EQUAL(pthread_join(thread, NULL), 0);
    }
}

static void call_module(scene *s)
{
    hd_kernel *kernel = progress_kernel(s->runtime);
    hd_kernel *before = s->hold;
    s->hold = kernel;
    default_lane_work(s);
    s->hold = before;
}

/* An image other than that of the held kernels. */
static void call_module_unload(scene *s)
{
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    size_t size = sizeof progress_ptx;
    uint8_t *made = conf_is_host(s->runtime) ? conf_kernel_file(progress_source, &size) : NULL;
    CONF_OK(hd_module_load(s->runtime, made ? (const void *)made : progress_ptx, size, &module));
    CONF_OK(hd_kernel_get(module, "hold", &kernel));
    hd_kernel *before = s->hold;
    s->hold = kernel;
    default_lane_work(s);
    s->hold = before;
    CONF_OK(hd_module_unload(module));
    free(made);
}

static void call_memory(scene *s)
{
    hd_memory_stats stats = {.size = sizeof stats};
    hd_lane_memory lanes[64];
    size_t n = 0;
    char text[4096];
    hd_hold *hold = NULL;
    for (int d = -1; d < s->n; d++) {
        CONF_OK(hd_memory_get_stats(s->runtime, d, &stats));
    }
    lanes[0].lane = 0;
    (void)hd_memory_get_lanes(s->runtime, 0, lanes, 1, &n);
    CONF_OK(hd_memory_report(s->runtime, HD_REPORT_JSON, text, sizeof text, &n));
    CONF_OK(hd_buffer_set_label(s->held[0], "held"));
    CONF_OK(hd_hold_create(s->runtime, &hold));
    CONF_OK(hd_hold_add(hold, s->held[0]));
    CONF_OK(hd_hold_add(hold, s->free_device[0]));
    CONF_OK(hd_hold_destroy(hold));
    CONF_OK(hd_memory_on_reclaim(s->runtime, NULL, NULL));
}

static void call_trim(scene *s)
{
    for (int d = 0; d < s->n; d++) {
        CONF_OK(hd_memory_trim(s->runtime, d, 0, NULL));
    }
}

static void call_facts(scene *s)
{
    for (int d = 0; d < s->n; d++) {
        hd_device_info info = {.size = sizeof info};
        hd_device_stats stats = {.size = sizeof stats};
        hd_peer_info peer = {.size = sizeof peer};
        CONF_OK(hd_device_get_info(s->runtime, d, &info));
        CONF_OK(hd_device_get_stats(s->runtime, d, &stats));
        CONF_OK(hd_peer_check(s->runtime, d, s->n - 1 - d, &peer));
    }
}

static void call_trace(scene *s)
{
    char file[] = "/tmp/heddle-test-XXXXXX";
    int made = mkstemp(file);
    CONF_TRUE(made >= 0);
    close(made);
    hd_trace_info info = {.size = sizeof info};
    CONF_OK(hd_trace_start(s->runtime, file, NULL));
    CONF_OK(hd_range_push(s->runtime, "a range"));
    call_transfers(s);
    CONF_OK(hd_range_pop(s->runtime));
    CONF_OK(hd_trace_stop(s->runtime, &info));
    unlink(file);
}

static void call_dlpack(scene *s)
{
    hd_tensor tensor, back;
    const uint64_t shape[1] = {16};
    DLManagedTensorVersioned *managed = NULL;
    CONF_OK(hd_tensor_make(s->free_pinned, 0, HD_TYPE_F32, 1, shape, &tensor));
    const int64_t ways[] = {HD_DLPACK_CPU, HD_DLPACK_UNORDERED};
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_dlpack_export(&tensor, ways[i], NULL, (struct DLManagedTensorVersioned **)&managed));
        managed->deleter(managed);
    }
    CONF_OK(hd_tensor_alloc(s->free_lane, HD_TYPE_F32, 1, shape, &back));
    CONF_OK(hd_tensor_copy(&back, &tensor, NULL));
    CONF_OK(hd_buffer_wait(back.buffer, HD_READ, WAIT));
    CONF_OK(hd_free(back.buffer));
}

static void call_imports(scene *s)
{
    hd_buffer *piece = with_flags(s->free_lane, HD_ALLOC_DEDICATED), *buffer = NULL;
    hd_export export = {.size = sizeof export};
    CONF_OK(hd_buffer_wait(piece, HD_READ_WRITE, WAIT));
    CONF_OK(hd_buffer_export(piece, HD_EXPORT_DESCRIPTOR, &export));
    CONF_OK(hd_import_descriptor(s->runtime, 0, &export, NULL, &buffer));
    close(export.descriptor);
    CONF_OK(hd_fill(buffer, 0, 2, bytes, NULL));
    CONF_FILLED(buffer, 0, 2, bytes);
    CONF_OK(hd_free(buffer));
    CONF_OK(hd_free(piece));
    if (!s->is_process) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CONF_TRUE(memory != MAP_FAILED);
        CONF_OK(hd_import_host(s->runtime, memory, bytes, NULL, &buffer));
        CONF_OK(hd_fill(buffer, 0, 3, bytes, NULL));
        CONF_FILLED(buffer, 0, 3, bytes);
        CONF_OK(hd_free(buffer));
    }
}

static hd_status adds_one(void *const *pointers, void *context)
{
    (void)context;
    ++*(uint32_t *)pointers[0];
    return HD_OK;
}

static void claim_is_ready(hd_claim *claim, hd_status status, void *context)
{
    (void)status;
    (void)claim;
    sem_post(context);
}

static void call_claims(scene *s)
{
    const hd_arg pinned = hd_inout(s->free_pinned), device = hd_inout(s->free_device[0]);
    hd_claim *claim = NULL;
    hd_ticket t;
    sem_t ready;
    sem_init(&ready, 0, 0);
    CONF_OK(hd_launch_host(s->runtime, adds_one, NULL, &pinned, 1, &t));
    CONF_OK(hd_wait(t, WAIT));
    CONF_OK(hd_claim_begin(s->runtime, &device, 1, &claim));
    CONF_OK(hd_claim_on_ready(claim, claim_is_ready, &ready));
    CONF_OK(hd_claim_wait(claim, WAIT));
    while (sem_wait(&ready) != 0) {
    }
    CONF_OK(hd_claim_end(claim, HD_OK));
    if (!s->is_process) {
        void *stream = foreign_stream(&s->driver, 0);
        CONF_OK(hd_claim_begin_stream(s->runtime, 0, stream, &device, 1, NULL, &claim));
        CONF_OK(hd_claim_end(claim, HD_OK));
        CONF_OK(hd_buffer_wait(s->free_device[0], HD_READ_WRITE, WAIT));
    }
    sem_destroy(&ready);
}

static void call_tensors(scene *s)
{
    static float memory[256];
    hd_tensor m[3];
    const uint64_t shape[2] = {16, 16};
    hd_ticket t;
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_tensor_alloc(s->free_lane, HD_TYPE_F32, 2, shape, &m[i]));
        CONF_OK(hd_tensor_transpose(&m[i], 0, 1, &m[i]));
        CONF_OK(hd_tensor_write(&m[i], memory));
    }
    CONF_OK(hd_tensor_matmul(s->free_lane, &m[0], &m[1], &m[2], 1, 0, &t));
    CONF_OK(hd_wait(t, WAIT));
    CONF_OK(hd_tensor_read(&m[0], memory));
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_free(m[i].buffer));
    }
}

/* Work in front of held work in its lane is seen done, and so are its bytes. */
static void call_in_front(scene *s)
{
    enum { n = 8 };
    hd_lane *lanes[n];
    hd_ticket first[n];
    uint32_t word;
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_lane_create(s->runtime, 0, &lanes[i]));
        CONF_OK(launch(s, lanes[i], false, s->free_device[0], s->free_device[0], &first[i]));
        CONF_OK(launch(s, lanes[i], true, s->held[0], s->held[0], NULL));
    }
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_wait(first[i], WAIT));
        CONF_OK(hd_lane_destroy(lanes[i]));
    }
    CONF_OK(hd_read(s->free_device[0], 0, &word, 4));
}

/* A transposed copy goes through temporary memory; waiting work uses some of that memory. */
static void call_tensors_beside(scene *s)
{
    static float memory[256];
    hd_tensor held, other;
    const uint64_t shape[2] = {16, 16};
    CONF_OK(hd_tensor_make(s->claimed[0], 0, HD_TYPE_F32, 2, shape, &held));
    CONF_OK(hd_tensor_transpose(&held, 0, 1, &held));
    CONF_OK(hd_tensor_make(s->free_device[0], 0, HD_TYPE_F32, 2, shape, &other));
    CONF_OK(hd_tensor_transpose(&other, 0, 1, &other));
    for (int i = 0; i < 8; i++) {
        CONF_OK(hd_tensor_write(&held, memory)); /* returns when the bytes are in pinned memory */
        CONF_OK(hd_tensor_write(&other, memory));
        CONF_OK(hd_buffer_wait(s->free_device[0], HD_READ_WRITE, WAIT));
        CONF_OK(hd_tensor_read(&other, memory));
    }
}

/* A move of unified memory to the device does not wait for other work of the lane that needs it. */
static void call_unified_beside(scene *s)
{
    hd_buffer *unified = NULL;
    hd_ticket t;
    CONF_OK(hd_alloc_unified(s->free_lane, bytes, &unified));
    CONF_OK(hd_fill(unified, 0, 0, bytes, NULL));
    CONF_TRUE(hd_element(unified, 0, bytes, HD_READ_WRITE) != NULL); /* newer on the host */
    CONF_OK(launch(s, s->lanes[0][1], false, s->held[0], unified, NULL));
    CONF_OK(launch(s, s->free_lane, false, s->free_device[0], unified, &t));
    CONF_OK(hd_wait(t, WAIT));
    CONF_OK(hd_read(unified, 0, &(uint32_t){0}, 4));
    CONF_OK(hd_free(unified));
}

/* Of two chunks of unified memory that move together only one waits. */
static void call_chunks_beside(scene *s)
{
    enum { chunk = 65536 };
    static uint32_t memory[2];
    hd_buffer *unified = NULL;
    CONF_OK(hd_alloc_unified(s->free_lane, 2 * chunk, &unified));
    CONF_OK(hd_fill(unified, 0, 0, 2 * chunk, NULL));
    CONF_TRUE(hd_element(unified, 0, 2 * chunk, HD_READ_WRITE) != NULL);
    const hd_arg use = hd_inout_range(unified, 0, bytes),
                 args[] = {hd_u64(0), hd_out_range(s->held[0], 0, 4), hd_in_range(unified, chunk - 4, 8), hd_f32(1),
                           hd_u64(1)};
    CONF_OK(hd_claim_begin(s->runtime, &use, 1, &s->claims[devices + 1]));
    CONF_OK(hd_launch(s->lanes[0][1], s->hold, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, 5, NULL));
    CONF_OK(hd_read(unified, chunk, memory, 4));
    CONF_OK(hd_free(unified));
}

/* Copies use no lane of the program, so none of them waits for room. */
static void call_many_copies(scene *s)
{
    hd_buffer *many = NULL;
    enum { n = 4000, each = 64 };
    CONF_OK(hd_alloc(s->free_lane, n * each, &many));
    for (int i = 0; i < n; i++) {
        hd_buffer *from[] = {s->held[0], s->claimed[0], s->pinned, s->called, s->held[s->n - 1]};
        CONF_OK(hd_copy(many, (size_t)i * each, from[i % 5], 0, each, NULL));
    }
    call_transfers(s);
    CONF_OK(hd_free(many));
}

/* The other runtime is closed after the held work: in one process, giving memory back waits for the
 * driver. */
static void call_another_runtime(scene *s)
{
    hd_runtime *other = s->other = conf_open(SETTINGS);
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(other, 0), bytes, &buffer));
    CONF_OK(hd_fill(buffer, 0, 1, bytes, NULL));
    CONF_FILLED(buffer, 0, 1, bytes);
}

static const struct {
    const char *name;
    void (*make)(scene *);
} calls[] = {
    {"transfers", call_transfers},
    {"hd_alloc", call_alloc},
    {"memory of all kinds", call_alloc_kinds},
    {"hd_map, hd_element, hd_buffer_wait", call_map},
    {"hd_buffer_save", call_save},
    {"hd_lane_create, hd_lane_destroy", call_lanes},
    {"hd_lane_destroy with held work", call_lane_of_held},
    {"hd_lane_get_default", call_default_lane},
    {"hd_module_load", call_module},
    {"hd_module_unload", call_module_unload},
    {"reports and holds", call_memory},
    {"hd_memory_trim", call_trim},
    {"hd_device_get_info, hd_peer_check", call_facts},
    {"hd_trace_start, hd_trace_stop", call_trace},
    {"hd_dlpack_export", call_dlpack},
    {"imports and exports", call_imports},
    {"claims and functions", call_claims},
    {"tensors", call_tensors},
    {"work in front", call_in_front},
    {"tensors beside others that wait", call_tensors_beside},
    {"unified memory beside a lane", call_unified_beside},
    {"unified memory in chunks", call_chunks_beside},
    {"thousands of copies", call_many_copies},
    {"hd_open", call_another_runtime},
    {"hd_free of memory that is used", call_free_of_used},
};

/* ---- making them ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done;
    scene *scene;
    void (*make)(scene *);
} under_way = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *make_call(void *unused)
{
    (void)unused;
    under_way.make(under_way.scene);
    pthread_mutex_lock(&under_way.lock);
    under_way.done = true;
    pthread_cond_broadcast(&under_way.over);
    pthread_mutex_unlock(&under_way.lock);
    return NULL;
}

/* False: the call did not return in time. */
static bool call_comes_back(scene *s, void (*make)(scene *))
{
    pthread_t thread;
    int64_t limit = conf_now() + progress_limit();
    struct timespec until = {limit / CONF_SECOND, limit % CONF_SECOND};
    under_way.done = false;
    under_way.scene = s;
    under_way.make = make;
    CONF_EQUAL(pthread_create(&thread, NULL, make_call, NULL), 0);
    pthread_mutex_lock(&under_way.lock);
    while (!under_way.done && pthread_cond_timedwait(&under_way.over, &under_way.lock, &until) == 0) {
    }
    bool done = under_way.done;
    pthread_mutex_unlock(&under_way.lock);
    if (!done) {
        scene_raise(s);
    }
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    return done;
}

static void calls_come_back(void **state)
{
    (void)state;
    const char *only = getenv("HEDDLE_TEST_CALL");
    scene *s = NULL;
    int failed = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        /* A GPU's driver waits there for running kernels. */
        bool loads = strncmp(calls[i].name, "hd_module_", 10) == 0;
        if ((only != NULL && strstr(calls[i].name, only) == NULL) || (loads && conf_on_gpus)) {
            continue;
        }
        conf_watch(calls[i].name, 300);
        s = s == NULL ? scene_open() : s;
        if (!call_comes_back(s, calls[i].make)) {
            print_error("%s: waits for work that it does not depend on\n", calls[i].name);
            failed++;
            conf_close(s->other);
            conf_close(s->runtime);
            free(s);
            s = NULL;
        }
    }
    if (s != NULL) {
        scene_close(s);
    }
    CONF_EQUAL(failed, 0);
}

int main(void)
{
    conf_begin("test_progress_calls");
    hd_runtime *runtime = conf_open(NULL);
    bool has_kernel = progress_kernel(runtime) != NULL;
    conf_close(runtime);
    if (!has_kernel) {
        fprintf(stderr, "test_progress_calls: skipped: HEDDLE_TOOL names no tool that makes kernel files\n");
        return 77;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&under_way.over, &attributes);
    pthread_condattr_destroy(&attributes);
    const struct CMUnitTest tests[] = {CONF_CASE(calls_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
