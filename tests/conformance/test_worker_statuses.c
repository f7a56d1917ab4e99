/* test_worker_statuses.c - what calls return if a device is lost before them or meanwhile.
 *
 * Promise: A call around a loss returns OK, DEVICE_LOST or FAILED, and no status of another cause.
 *
 * Threads make random calls on two devices, while both are lost and restart again and again. All
 * calls find enough memory, each handle is good, and each device reaches the other. So MEMORY,
 * UNREACHABLE, ARGUMENT and most other statuses would be wrong, whatever the loss interrupts.
 *
 * Environment: HEDDLE_FAULT_ROUNDS=N losses in each case, HEDDLE_SEED=N.
 *
 * Threads: the main one, which loses and restarts devices, and those that make calls.
 * Locks: none.
 */
#include "workers.h"
#include <pthread.h>
#include <stdlib.h>

enum { n_devices = 2, n_threads = 3, n_kept = 10, bytes = 64 << 10, words = bytes / 4, side = 32, most_args = 8 };

typedef enum kind { PLAIN, DEDICATED, KEPT, UNIFIED, PINNED, TENSOR, IMPORTED, KINDS } kind;

typedef struct caller {
    hd_runtime *runtime;
    conf_random random;
    pthread_t thread;
    conf_kernels k;
    hd_lane *lanes[n_devices];
    hd_buffer *kept[n_kept]; /* NULL: free place */
    kind kinds[n_kept];
    uint32_t data[words];
    wk_kernels own;
    hd_export old; /* of a buffer that is freed, perhaps on a device that was lost since */
    int old_device;
    bool cross; /* devices reach each other */
} caller;

static atomic_bool over;
static atomic_int ended; /* threads */
static _Atomic uint64_t calls, lost, odd;

/* A lane refuses work after a failed operation in it, and results of failed work fail. */
static hd_status checked(hd_status status, const char *what)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&lost, status == HD_ERROR_DEVICE_LOST);
    if (status != HD_OK && status != HD_ERROR_DEVICE_LOST && status != HD_ERROR_FAILED &&
        status != HD_ERROR_LANE_FAILED && atomic_fetch_add(&odd, 1) < 400) {
        fprintf(stderr, "%s: %s: %s\n", what, hd_status_name(status), hd_message());
    }
    return status;
}
#define CHECKED(call) checked((call), #call)

static hd_lane *any_lane(caller *c)
{
    return c->lanes[conf_below(&c->random, n_devices)];
}

static hd_buffer *any_buffer(caller *c)
{
    return c->kept[conf_below(&c->random, n_kept)];
}

/* ---- memory ---- */

static hd_buffer *alloc_with(hd_lane *lane, unsigned flags)
{
    hd_alloc_options options = {.size = sizeof options, .flags = flags};
    hd_buffer *b = NULL;
    CHECKED(hd_alloc_with(lane, bytes, &options, &b));
    return b;
}

static hd_buffer *import_one(caller *c)
{
    int device = (int)conf_below(&c->random, n_devices);
    hd_buffer *from = alloc_with(c->lanes[device], HD_ALLOC_DEDICATED), *b = NULL;
    hd_export e = {.size = sizeof e};
    if (from && CHECKED(hd_buffer_export(from, HD_EXPORT_DESCRIPTOR, &e)) == HD_OK) {
        bool older = c->old.descriptor > 0 && conf_chance(&c->random, 30);
        CHECKED(hd_import_descriptor(c->runtime, older ? c->old_device : device, older ? &c->old : &e, NULL, &b));
        if (c->old.descriptor > 0) {
            close(c->old.descriptor);
        }
        c->old = e;
        c->old_device = device;
    }
    CHECKED(hd_free(from));
    return b;
}

static hd_buffer *make_buffer(caller *c, kind which)
{
    hd_buffer *b = NULL;
    hd_tensor t;
    const uint64_t shape[] = {bytes / 4 / side, side};
    switch (which) {
    case PLAIN:
        CHECKED(hd_alloc(any_lane(c), bytes, &b));
        return b;
    case DEDICATED:
        return alloc_with(any_lane(c), HD_ALLOC_DEDICATED);
    case KEPT:
        return alloc_with(any_lane(c), HD_ALLOC_KEEP);
    case UNIFIED:
        CHECKED(hd_alloc_unified(any_lane(c), bytes, &b));
        return b;
    case PINNED:
        CHECKED(hd_alloc_host(c->runtime, bytes, &b));
        return b;
    case TENSOR:
        return CHECKED(hd_tensor_alloc(any_lane(c), HD_TYPE_F32, 2, shape, &t)) == HD_OK ? t.buffer : NULL;
    default:
        return import_one(c);
    }
}

static void change_buffer(caller *c)
{
    int i = (int)conf_below(&c->random, n_kept);
    CHECKED(hd_free(c->kept[i]));
    c->kinds[i] = (kind)conf_below(&c->random, KINDS);
    c->kept[i] = make_buffer(c, c->kinds[i]);
}

static void call_about_memory(caller *c)
{
    size_t freed;
    void *pointer;
    int i = (int)conf_below(&c->random, n_kept);
    hd_memory_stats stats = {.size = sizeof stats};
    hd_hold *hold = NULL;
    if (!c->kept[i]) {
        return;
    }
    switch (conf_below(&c->random, 6)) {
    case 0:
        CHECKED(hd_memory_trim(c->runtime, (int)conf_below(&c->random, n_devices), 0, &freed));
        break;
    case 1:
        CHECKED(hd_memory_get_stats(c->runtime, (int)conf_below(&c->random, n_devices), &stats));
        break;
    case 2:
        if ((c->kinds[i] == UNIFIED || c->kinds[i] == PINNED) &&
            CHECKED(hd_map(c->kept[i], HD_READ_WRITE, &pointer)) == HD_OK) {
            CHECKED(hd_unmap(c->kept[i]));
        }
        break;
    case 3:
        if (c->kinds[i] == KEPT) {
            CHECKED(hd_buffer_save(c->kept[i], NULL));
        }
        break;
    case 4:
        CHECKED(hd_buffer_set_label(c->kept[i], "some"));
        break;
    default:
        if (CHECKED(hd_hold_create(c->runtime, &hold)) == HD_OK) {
            CHECKED(hd_hold_add(hold, c->kept[i]));
            CHECKED(hd_hold_destroy(hold));
        }
        break;
    }
}

/* ---- work ---- */

/* A kernel of eight buffers does not exist among the built-in ones: the others are named as used,
 * too. */
static void launch_one(caller *c)
{
    hd_arg args[3 + most_args] = {{0}};
    hd_buffer *y = any_buffer(c);
    size_t n = 3;
    if (!y) {
        return;
    }
    args[0] = hd_out(y);
    args[1] = hd_u64(words);
    args[2] = hd_u32(7);
    int on = (int)conf_below(&c->random, n_devices);
    if (!c->cross && hd_buffer_device(y) == 1 - on) {
        return;
    }
    for (int more = (int)conf_below(&c->random, most_args); more > 0; more--) {
        hd_buffer *x = any_buffer(c);
        if (x && x != y && (c->cross || hd_buffer_device(x) != 1 - on)) {
            args[n++] = hd_arg_implicit(conf_chance(&c->random, 50) ? hd_in(x) : hd_inout(x));
        }
    }
    CHECKED(hd_launch(c->lanes[on], c->k.fill, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, n, NULL));
}

static void transfer_one(caller *c)
{
    hd_buffer *x = any_buffer(c), *y = any_buffer(c);
    if (!x || !y) {
        return;
    }
    const hd_box box = {
        .size = sizeof box, .row = 64, .dims = 1, .count = {4}, .dst_stride = {128}, .src_stride = {128}};
    switch (conf_below(&c->random, 6)) {
    case 0:
        CHECKED(hd_fill(x, 0, 5, bytes, NULL));
        break;
    case 1:
        CHECKED(hd_write(x, 0, c->data, bytes));
        break;
    case 2:
        CHECKED(hd_read(x, 0, c->data, bytes));
        break;
    case 3:
        CHECKED(hd_write_box(x, 0, c->data, &box));
        break;
    default:
        if (x != y) {
            CHECKED(hd_copy(y, 0, x, 0, bytes, NULL));
        }
        break;
    }
}

static void use_tensors(caller *c)
{
    const uint64_t shape[] = {side, side};
    hd_tensor t[3];
    hd_buffer *b[3] = {any_buffer(c), any_buffer(c), any_buffer(c)};
    for (int i = 0; i < 3; i++) {
        if (!b[i] || b[i] == b[(i + 1) % 3] ||
            CHECKED(hd_tensor_make(b[i], 0, HD_TYPE_F32, 2, shape, &t[i])) != HD_OK) {
            return;
        }
    }
    hd_tensor transposed;
    switch (conf_below(&c->random, 4)) {
    case 0:
        if (!c->cross) {
            break;
        }
        CHECKED(hd_tensor_matmul(any_lane(c), &t[0], &t[1], &t[2], 1, 0, NULL));
        break;
    case 1:
        CHECKED(hd_tensor_transpose(&t[1], 0, 1, &transposed));
        CHECKED(hd_tensor_copy(&t[0], &transposed, NULL));
        break;
    case 2:
        CHECKED(hd_tensor_write(&t[0], c->data));
        break;
    default:
        CHECKED(hd_tensor_read(&t[0], c->data));
        break;
    }
}

/* ---- claims, calls, waits ---- */

static hd_status says_ok(void *const *pointers, void *context)
{
    (void)pointers;
    (void)context;
    return HD_OK;
}

static void claim_some(caller *c)
{
    hd_buffer *x = any_buffer(c), *y = any_buffer(c);
    hd_claim *claim = NULL;
    if (!x || !y || x == y) {
        return;
    }
    hd_arg uses[] = {hd_inout(x), hd_in(y)};
    if (conf_chance(&c->random, 50)) {
        CHECKED(hd_launch_host(c->runtime, says_ok, NULL, uses, 2, NULL));
    } else if (CHECKED(hd_claim_begin(c->runtime, uses, 2, &claim)) == HD_OK) {
        CHECKED(hd_claim_wait(claim, HD_FOREVER));
        CHECKED(hd_claim_end(claim, HD_OK));
    }
}

static void wait_for_some(caller *c)
{
    hd_buffer *x = any_buffer(c);
    hd_ticket ticket;
    if (conf_chance(&c->random, 30) && x) {
        CHECKED(hd_buffer_wait(x, HD_READ_WRITE, HD_FOREVER));
    } else if (CHECKED(hd_lane_get_ticket(any_lane(c), &ticket)) == HD_OK && conf_chance(&c->random, 50)) {
        CHECKED(hd_wait(ticket, HD_FOREVER));
    } else {
        CHECKED(hd_lane_reset(any_lane(c), HD_FOREVER));
    }
}

static void use_others(caller *c)
{
    hd_lane *lane = NULL, *same = NULL;
    hd_module *module = NULL;
    hd_buffer *global = NULL;
    hd_device_info info = {.size = sizeof info};
    hd_matmul_info products = {.size = sizeof products};
    char report[4096];
    hd_ticket ticket;
    int device = (int)conf_below(&c->random, n_devices);
    switch (conf_below(&c->random, 8)) {
    case 0:
        CHECKED(hd_device_restart(c->runtime, device));
        return;
    case 1:
        CHECKED(hd_device_get_info(c->runtime, device, &info));
        return;
    case 2:
        CHECKED(hd_memory_report(c->runtime, HD_REPORT_JSON, report, sizeof report, NULL));
        return;
    case 3:
        CHECKED(hd_matmul_get_info(any_lane(c), &products));
        return;
    case 4:
        if (CHECKED(hd_lane_get_ticket(any_lane(c), &ticket)) == HD_OK) {
            CHECKED(hd_lane_add_dependency(any_lane(c), ticket, NULL));
        }
        return;
    case 5:
        CHECKED(hd_lane_keep_times(any_lane(c), conf_chance(&c->random, 50)));
        return;
    case 6:
        if (c->own.module && CHECKED(hd_module_get_global(c->own.module, device, "word", &global)) == HD_OK) {
            CHECKED(hd_fill(global, 0, 3, 4, NULL));
            CHECKED(hd_read(global, 0, c->data, 4));
            CHECKED(hd_launch(c->lanes[device], c->k.fill, conf_grid(1, 128), conf_dims(128, 1, 1), 0,
                              (hd_arg[]){hd_out(global), hd_u64(1), hd_u32(4)}, 3, NULL));
        }
        return;
    default:
        CHECKED(hd_lane_get_default(c->runtime, device, &same));
        break;
    }
    hd_kernel *kernel;
    size_t size = 0;
    const void *image = conf_chance(&c->random, 30) ? wk_image(c->runtime, &size) : NULL;
    if (image && CHECKED(hd_module_load(c->runtime, image, size, &module)) == HD_OK) {
        CHECKED(hd_kernel_get(module, "add_one", &kernel));
        CHECKED(hd_module_unload(module));
    } else if (!image && CHECKED(hd_lane_create(c->runtime, (int)conf_below(&c->random, n_devices), &lane)) == HD_OK) {
        CHECKED(hd_lane_destroy(lane));
    }
}

static void *makes_calls(void *argument)
{
    caller *c = argument;
    void (*const what[])(caller *) = {change_buffer, change_buffer, call_about_memory, launch_one,    launch_one,
                                      transfer_one,  use_tensors,   claim_some,        wait_for_some, use_others};
    while (!atomic_load(&over)) {
        what[conf_below(&c->random, sizeof what / sizeof what[0])](c);
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

/* ---- losses ---- */

static bool is_lost(hd_runtime *runtime, int device, uint64_t losses)
{
    return wk_info(runtime, device).losses > losses;
}

/* Loses one device or both, by a signal or by an illegal address. */
static void lose_some(hd_runtime *runtime, conf_random *random, wk_kernels k, hd_buffer *pinned)
{
    uint64_t losses[n_devices];
    bool both = conf_chance(random, 30);
    int first = (int)conf_below(random, n_devices);
    for (int d = 0; d < n_devices; d++) {
        hd_device_info info = wk_info(runtime, d);
        losses[d] = info.losses;
        if (d != first && !both) {
            continue;
        }
        bool strays = k.module && conf_chance(random, 30) && CHECKED(hd_fill(pinned, 0, 0, bytes, NULL)) == HD_OK &&
                      CHECKED(wk_stray(conf_default_lane(runtime, d), k, pinned, NULL)) == HD_OK;
        if (!strays && info.worker_pid > 0) {
            kill(info.worker_pid, SIGKILL);
        }
    }
    for (int d = 0; d < n_devices; d++) {
        int64_t limit = conf_now() + CONF_SECOND; /* the launch may come to nothing */
        while ((d == first || both) && !is_lost(runtime, d, losses[d]) && conf_now() < limit) {
            conf_sleep_ms(1);
        }
    }
}

static void lose_and_restart(hd_runtime *runtime, conf_random *random, wk_kernels k, hd_buffer *pinned)
{
    uint64_t until = atomic_load(&calls) + conf_below(random, 2000);
    int64_t limit = conf_now() + 50 * CONF_MILLISECOND; /* all threads may wait for memory */
    while (atomic_load(&calls) < until && conf_now() < limit) {
        conf_sleep_ms(1);
    }
    lose_some(runtime, random, k, pinned);
    conf_sleep_ms((int)conf_below(random, 5));
    for (int d = 0; d < n_devices; d++) {
        CHECKED(hd_device_restart(runtime, d));
    }
}

static void calls_around_losses(const char *settings)
{
    static caller all[n_threads];
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    hd_runtime *runtime = conf_open_with("host_devices=2 memory_timeout=600000 %s", settings);
    CONF_NEED_DEVICES(runtime, n_devices);
    wk_kernels k = wk_load(runtime);
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    atomic_store(&over, false);
    atomic_store(&ended, 0);
    conf_failure_ends_program = true;
    for (int i = 0; i < n_threads; i++) {
        all[i] = (caller){.runtime = runtime,
                          .random = {conf_next(&random)},
                          .k = conf_builtins(runtime),
                          .own = k,
                          .cross = strstr(settings, "host_peers=none") == NULL};
        for (int d = 0; d < n_devices; d++) {
            CONF_OK(hd_lane_create(runtime, d, &all[i].lanes[d]));
        }
        CONF_EQUAL(pthread_create(&all[i].thread, NULL, makes_calls, &all[i]), 0);
    }
    int losses = conf_rounds((int)conf_number_from("HEDDLE_FAULT_ROUNDS", CONF_SLOWNESS > 1 ? 6 : 20));
    for (int i = 0; i < losses || atomic_load(&ended) < n_threads; i++) {
        /* in the end, too: a thread may wait for memory */
        lose_and_restart(runtime, &random, k, pinned);
        atomic_store(&over, i + 1 >= losses);
    }
    for (int i = 0; i < n_threads; i++) {
        CONF_EQUAL(pthread_join(all[i].thread, NULL), 0);
    }
    conf_failure_ends_program = false;
    fprintf(stderr, "%llu calls, %llu of them reported a loss\n", (unsigned long long)calls, (unsigned long long)lost);
    CONF_EQUAL(atomic_load(&odd), 0);
    CONF_TRUE(atomic_load(&lost) > 0);
    conf_close(runtime);
}

static void calls_around_losses_return_what_they_promise(void **state)
{
    (void)state;
    calls_around_losses("");
}

/* Each dedicated buffer takes 2 MiB, so allocations often wait until another thread frees some, or
 * the device is lost. */
static void so_do_calls_that_wait_for_memory(void **state)
{
    (void)state;
    calls_around_losses("memory_limit=10M");
}

static void so_do_calls_without_peers(void **state)
{
    (void)state;
    calls_around_losses("host_peers=none");
}

static void so_do_calls_with_guards(void **state)
{
    (void)state;
    calls_around_losses("memory_debug=on module_loading=eager");
}

int main(void)
{
    wk_begin("test_worker_statuses");
    const struct CMUnitTest tests[] = {
        CONF_CASE(calls_around_losses_return_what_they_promise),
        CONF_CASE(so_do_calls_that_wait_for_memory),
        CONF_CASE(so_do_calls_without_peers),
        CONF_CASE(so_do_calls_with_guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
