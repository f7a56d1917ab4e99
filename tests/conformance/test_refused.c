/* test_refused.c - calls that are refused: for an open claim, for memory, for a thread, for a
 * driver call.
 *
 * Promise: A refused call did nothing: bytes, later work and later calls are as without it.
 *
 * Threads: the main one, and one that ends a claim. Locks: none.
 */
#include "refused.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>
#include "dlpack_scene.h"
#include "foreign.h"

/* ---- calls that fail ---- */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails(&fails_in) ? (errno = ENOMEM, NULL) : __real_malloc(bytes);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    return fails(&fails_thread_in) ? EAGAIN : __real_pthread_create(thread, attributes, run, context);
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}

/* ---- the scene ---- */

enum { words = 4096, bytes = words * 4, half = bytes / 2 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *device, *pinned, *unified;
} scene;

static scene begin(const char *settings)
{
    scene s = {.runtime = conf_open(settings)};
    s.lane = conf_default_lane(s.runtime, 0);
    CONF_OK(hd_alloc(s.lane, bytes, &s.device));
    CONF_OK(hd_alloc_host(s.runtime, bytes, &s.pinned));
    CONF_OK(hd_alloc_unified(s.lane, bytes, &s.unified));
    CONF_OK(hd_fill(s.device, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s.pinned, 0, 2, bytes, NULL));
    CONF_OK(hd_fill(s.unified, 0, 3, bytes, NULL));
    CONF_OK(hd_buffer_wait(s.device, HD_READ, HD_FOREVER));
    CONF_OK(hd_buffer_wait(s.pinned, HD_READ, HD_FOREVER));
    CONF_OK(hd_buffer_wait(s.unified, HD_READ, HD_FOREVER));
    return s;
}

static void end(scene *s)
{
    hd_free(s->device);
    hd_free(s->pinned);
    hd_free(s->unified);
    CONF_OK(hd_close(s->runtime));
}

static hd_claim *begin_claim(scene *s, hd_arg use)
{
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s->runtime, &use, 1, &c));
    return c;
}

/* ---- claims on streams ---- */

/* The work in front is open, so the stream cannot wait for it. The call also uses bytes without
 * work in front. Later work on those bytes does not wait for the open work. */
static void a_stream_that_cannot_wait(void **state)
{
    (void)state;
    scene s = begin("submit_timeout=20");
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    hd_claim *first = begin_claim(&s, hd_in(s.device)), *c = NULL;
    hd_arg uses[] = {hd_inout(s.device), hd_out_range(s.pinned, 0, half), hd_out(s.unified)};
    uint32_t *words_here = NULL;
    /* newer on the host; a use that only writes copies nothing to the device */
    CONF_OK(hd_map(s.unified, HD_WRITE, (void **)&words_here));
    for (int i = 0; i < words; i++) {
        words_here[i] = 7;
    }
    CONF_OK(hd_unmap(s.unified));
    CONF_FAILS(hd_claim_begin_stream(s.runtime, 0, (void *)1, uses, 3, NULL, &c), HD_ERROR_TIMEOUT);
    hd_ticket ticket;
    CONF_OK(hd_fill(s.pinned, 0, 4, half, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER)); /* while the claim is open */
    CONF_FILLED(s.pinned, 0, 4, half);
    CONF_FILLED(s.pinned, half, 2, half);
    CONF_FILLED(s.unified, 0, 7, bytes);
    CONF_OK(hd_claim_end(first, HD_OK));
    CONF_FILLED(s.device, 0, 1, bytes);
    end(&s);
}

/* A failure that the refused claim would have overwritten stays. */
static void a_failure_stays(void **state)
{
    (void)state;
    scene s = begin("submit_timeout=20");
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    uint32_t word;
    CONF_OK(hd_claim_end(begin_claim(&s, hd_out_range(s.pinned, 0, half)), HD_ERROR_SYSTEM));
    hd_claim *first = begin_claim(&s, hd_in(s.device)), *c = NULL;
    hd_arg uses[] = {hd_out(s.pinned), hd_inout(s.device)};
    CONF_FAILS(hd_claim_begin_stream(s.runtime, 0, (void *)1, uses, 2, NULL, &c), HD_ERROR_TIMEOUT);
    CONF_FAILS(hd_read(s.pinned, 0, &word, 4), HD_ERROR_FAILED);
    CONF_FILLED(s.pinned, half, 2, half);
    CONF_OK(hd_claim_end(first, HD_OK));
    end(&s);
}

/* ---- host calls ---- */

static hd_status count(void *const *pointers, void *context)
{
    (void)pointers;
    atomic_fetch_add((atomic_int *)context, 1);
    return HD_OK;
}

static void calls_without_a_thread_or_memory(void **state)
{
    (void)state;
    scene s = begin(NULL);
    atomic_int calls = 0;
    hd_arg use = hd_inout(s.pinned);
    hd_ticket ticket;
    for (int i = 1; i <= 2; i++) { /* first the thread of the watcher, then that of the caller */
        fails_thread_in = i;
        CONF_FAILS_WITH(hd_launch_host(s.runtime, count, &calls, &use, 1, NULL), HD_ERROR_SYSTEM, strerror(EAGAIN));
        CONF_TRUE(strstr(hd_message(), "ulimit -u") != NULL);
        fails_thread_in = 0;
        CONF_FILLED(s.pinned, 0, 2, bytes);
    }
    for (int i = 1; i <= 2; i++) {
        fails_in = i;
        CONF_FAILS(hd_launch_host(s.runtime, count, &calls, &use, 1, NULL), HD_ERROR_HOST_MEMORY);
        fails_in = 0;
        CONF_FILLED(s.pinned, 0, 2, bytes);
    }
    CONF_OK(hd_launch_host(s.runtime, count, &calls, &use, 1, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(atomic_load(&calls), 1);
    end(&s);
}

/* The messages name the lack, and a remedy. */
static void devices_without_a_thread(void **state)
{
    (void)state;
    hd_options options = {.size = sizeof options, .settings = "host_devices=1"};
    hd_runtime *runtime = conf_open("host_devices=1");
    bool is_process = conf_is_process(runtime), is_inline = !is_process && conf_is_inline(runtime), named = false;
    conf_close(runtime);
    if (conf_on_gpus || is_process) {
        skip();
    }
    for (int i = 1; i < 8 && !named && !is_inline; i++) {
        fails_thread_in = i;
        hd_status status = hd_open(&options, &runtime);
        fails_thread_in = 0;
        named = status == HD_ERROR_SYSTEM && strstr(hd_message(), "the engine thread of device 0: Resource") != NULL &&
                strstr(hd_message(), "ulimit -u") != NULL;
        if (!status) {
            conf_close(runtime);
        }
    }
    CONF_TRUE(named || is_inline);
    if (is_inline) { /* this thread runs the engine, which starts a thread for the stream */
        hd_lane *lane = NULL;
        hd_buffer *x = NULL;
        hd_ticket ticket;
        CONF_OK(hd_open(&options, &runtime));
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        CONF_OK(hd_alloc(lane, 4096, &x));
        fails_thread_in = 1;
        CONF_OK(conf_fill(lane, conf_builtins(runtime), x, 0, 1024, 1, &ticket));
        CONF_FAILS_WITH(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED,
                        "CUDA_ERROR_OPERATING_SYSTEM; the system refused");
        fails_thread_in = 0;
        conf_close(runtime);
    }
}

static void memory_without_a_descriptor(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1");
    if (conf_on_gpus || conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    struct rlimit before;
    CONF_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = dup(STDERR_FILENO);
    CONF_TRUE(lowest >= 0);
    close(lowest);
    const struct rlimit none = {.rlim_cur = (rlim_t)lowest, .rlim_max = before.rlim_max};
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    hd_status status = hd_alloc(lane, 1 << 20, &x);
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    CONF_EQUAL(status, HD_ERROR_MEMORY);
    CONF_TRUE(strstr(hd_message(), "hd_alloc: ") != NULL &&
              strstr(hd_message(), "no descriptors left (ulimit -n)") != NULL);
    CONF_OK(hd_alloc(lane, 1 << 20, &x));
    conf_close(runtime);
}

typedef struct nested {
    hd_runtime *runtime;
    atomic_int calls;
    hd_status waited;
} nested;

static hd_status waits_for_another(void *const *pointers, void *context)
{
    (void)pointers;
    nested *n = context;
    hd_ticket ticket;
    fails_thread_in = 1;
    hd_status status = hd_launch_host(n->runtime, count, &n->calls, NULL, 0, &ticket);
    n->waited = status ? status : hd_wait(ticket, HD_FOREVER);
    fails_thread_in = 0;
    return HD_OK;
}

/* The thread for the second call could not start once. It starts as soon as it can. */
static void a_call_that_waits_for_a_call(void **state)
{
    (void)state;
    scene s = begin(NULL);
    nested n = {.runtime = s.runtime};
    hd_ticket ticket;
    CONF_OK(hd_launch_host(s.runtime, waits_for_another, &n, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_OK(n.waited);
    CONF_EQUAL(atomic_load(&n.calls), 1);
    end(&s);
}

static void is_called(hd_claim *claim, hd_status status, void *context)
{
    CONF_OK(status);
    atomic_fetch_add((atomic_int *)context, 1);
    CONF_OK(hd_claim_end(claim, HD_OK));
}

static void a_callback_is_asked_for_again(void **state)
{
    (void)state;
    scene s = begin(NULL);
    atomic_int calls = 0;
    hd_claim *c = begin_claim(&s, hd_in(s.pinned));
    hd_ticket ticket;
    CONF_OK(hd_claim_get_ticket(c, &ticket));
    for (int i = 1; i <= 2; i++) {
        fails_in = i;
        CONF_FAILS(hd_claim_on_ready(c, is_called, &calls), HD_ERROR_HOST_MEMORY);
        fails_in = 0;
        fails_thread_in = i;
        CONF_FAILS(hd_claim_on_ready(c, is_called, &calls), HD_ERROR_SYSTEM);
        fails_thread_in = 0;
    }
    CONF_OK(hd_claim_on_ready(c, is_called, &calls));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(atomic_load(&calls), 1);
    end(&s);
}

/* ---- exports ---- */

static void *ends_with_failure(void *claim)
{
    CONF_OK(hd_claim_end(claim, HD_ERROR_SYSTEM));
    return NULL;
}

/* While the call waits for the bytes they fail, or they do not become ready in time. */
static void exports_of_bytes_that_are_not_there(void **state)
{
    (void)state;
    for (int late = 0; late < 3; late++) {
        scene s = begin(late == 2 ? "transfer_timeout=20" : NULL);
        hd_buffer *of[] = {s.pinned, s.unified};
        for (int i = 0; i < 2; i++) {
            pthread_t thread;
            hd_claim *c = begin_claim(&s, hd_out_range(of[i], half, half));
            hd_tensor x = dl_words(of[i]);
            DLManagedTensorVersioned *m = NULL;
            if (late == 0) {
                CONF_OK(hd_claim_end(c, HD_ERROR_SYSTEM));
            } else if (late == 1) {
                CONF_EQUAL(pthread_create(&thread, NULL, ends_with_failure, c), 0);
            }
            hd_status status = hd_dlpack_export(&x, HD_DLPACK_CPU, NULL, &m);
            CONF_EQUAL(status, late == 2 ? HD_ERROR_TIMEOUT : HD_ERROR_FAILED);
            if (late == 1) {
                CONF_EQUAL(pthread_join(thread, NULL), 0);
            }
            /* unified memory is copied in larger parts, which need all of their bytes */
            if (i == 0) {
                CONF_FILLED(of[i], 0, 2, half);
            }
            if (late == 2) {
                CONF_OK(hd_claim_end(c, HD_OK));
                CONF_FILLED(of[i], 0, i == 0 ? 2 : 3, bytes);
            } else {
                uint32_t word;
                CONF_FAILS(hd_read(of[i], half, &word, 4), HD_ERROR_FAILED);
            }
        }
        end(&s);
    }
}

/* ---- ends ---- */

static void begin_capture(const foreign *f, void *stream)
{
    foreign_enter(f, 0);
    CONF_EQUAL(f->cuStreamBeginCapture(stream, 1), 0); /* of this thread alone */
    foreign_leave(f);
}

static void end_capture(const foreign *f, void *stream)
{
    void *graph = NULL;
    foreign_enter(f, 0);
    CONF_EQUAL(f->cuStreamEndCapture(stream, &graph), 0);
    CONF_EQUAL(f->cuGraphDestroy(graph), 0);
    foreign_leave(f);
}

/* An end in a capture occupies no thread for the program's functions, and takes effect after the
 * capture. hd_claim_end returns that failure. */
static void an_end_during_a_capture(void **state)
{
    (void)state;
    scene s = begin("call_threads=1");
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    foreign f;
    foreign_begin(&f, s.runtime);
    void *stream = foreign_stream(&f, 0);
    for (int surely = 0; surely < 2; surely++) {
        atomic_int calls = 0;
        hd_claim *c = NULL;
        hd_ticket ticket = {NULL, 0}, call;
        hd_tensor x = dl_words(s.device);
        hd_arg use = hd_inout(s.device);
        DLManagedTensorVersioned *m = NULL;
        CONF_OK(hd_fill(s.device, 0, 5, bytes, NULL));
        if (surely) {
            m = dl_export(&x, (int64_t)(intptr_t)stream, 0);
        } else {
            CONF_OK(hd_claim_begin_stream(s.runtime, 0, stream, &use, 1, NULL, &c));
            CONF_OK(hd_claim_get_ticket(c, &ticket));
        }
        begin_capture(&f, stream);
        if (surely) {
            dl_delete(m);
        } else {
            CONF_FAILS_WITH(hd_claim_end(c, HD_OK), HD_ERROR_UNSUPPORTED, "captured");
            CONF_FAILS(hd_claim_end(c, HD_OK), HD_ERROR_HANDLE);
            CONF_TRUE(!hd_done(ticket));
        }
        CONF_OK(hd_launch_host(s.runtime, count, &calls, NULL, 0, &call));
        CONF_OK(hd_wait(call, HD_FOREVER));
        end_capture(&f, stream);
        if (surely) {
            CONF_FILLED(s.device, 0, 5, bytes);
        } else {
            CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED);
        }
    }
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuStreamDestroy(stream), 0);
    foreign_leave(&f);
    foreign_end(&f);
    end(&s);
}

static void *ends_well(void *claim)
{
    CONF_OK(hd_claim_end(claim, HD_OK));
    return NULL;
}

/* Any thread may end any claim, also one on the default stream of another thread. */
static void an_end_on_another_thread(void **state)
{
    (void)state;
    scene s = begin(NULL);
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    foreign f;
    foreign_begin(&f, s.runtime);
    hd_arg use = hd_inout(s.device);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_stream(s.runtime, 0, (void *)2, &use, 1, NULL, &c));
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuMemsetD32Async(hd_buffer_address(s.device), 6, words, (void *)2), 0);
    foreign_leave(&f);
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, ends_well, c), 0);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    CONF_FILLED(s.device, 0, 6, bytes);
    foreign_end(&f);
    end(&s);
}

static _Atomic(hd_claim *) shared_claim;
static atomic_int ends, refused_ends;
static atomic_bool over;

static void *ends_what_it_finds(void *unused)
{
    (void)unused;
    hd_claim *last = NULL;
    while (!atomic_load(&over)) {
        hd_claim *c = atomic_load(&shared_claim);
        if (c && c != last) {
            hd_status status = hd_claim_end(c, HD_OK);
            CONF_TRUE(status == HD_OK || status == HD_ERROR_HANDLE);
            atomic_fetch_add(status ? &refused_ends : &ends, 1);
            last = c;
        } else {
            conf_sleep_ms(0);
        }
    }
    return NULL;
}

/* Of two ends one is refused, before it changes the claim. */
static void two_ends_at_once(void **state)
{
    (void)state;
    enum { enders = 2, rounds = 400 };
    scene s = begin(NULL);
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    pthread_t threads[enders];
    for (int i = 0; i < enders; i++) {
        CONF_EQUAL(pthread_create(&threads[i], NULL, ends_what_it_finds, NULL), 0);
    }
    for (int i = 0; i < rounds; i++) {
        hd_arg use = hd_inout(s.device);
        hd_claim *c = NULL;
        hd_ticket ticket;
        CONF_OK(hd_claim_begin_stream(s.runtime, 0, (void *)1, &use, 1, NULL, &c));
        CONF_OK(hd_claim_get_ticket(c, &ticket));
        atomic_store(&shared_claim, c);
        CONF_OK(hd_wait(ticket, HD_FOREVER));
    }
    atomic_store(&over, true);
    for (int i = 0; i < enders; i++) {
        CONF_EQUAL(pthread_join(threads[i], NULL), 0);
    }
    CONF_EQUAL(atomic_load(&ends), rounds);
    CONF_FILLED(s.device, 0, 1, bytes);
    end(&s);
}

/* ---- memory ---- */

static long address_space_kb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file) {
        CONF_EQUAL(fscanf(file, "%ld", &pages), 1);
        fclose(file);
    }
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void a_claim_beyond_the_limit_keeps_nothing(void **state)
{
    (void)state;
    enum { tries = 40000, most_kb = 4096 }; /* a structure for each try would be 20 MiB */
    scene s = begin("devices=0");
    hd_lane *lane = NULL;
    hd_claim *c = NULL;
    while (hd_lane_create(s.runtime, 0, &lane) == HD_OK) {
    }
    /* lanes that the library still owns */
    while (hd_claim_begin(s.runtime, NULL, 0, &c) == HD_OK) {
    }
    long before = address_space_kb();
    for (int i = 0; i < tries / CONF_SLOWNESS; i++) {
        CONF_FAILS(hd_claim_begin(s.runtime, NULL, 0, &c), HD_ERROR_LIMIT);
    }
    CONF_TRUE(address_space_kb() - before < most_kb);
    hd_close(s.runtime);
}

int main(void)
{
    conf_begin("test_refused");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_stream_that_cannot_wait),
        CONF_CASE(a_failure_stays),
        CONF_CASE(calls_without_a_thread_or_memory),
        CONF_CASE(devices_without_a_thread),
        CONF_CASE(memory_without_a_descriptor),
        CONF_CASE(a_call_that_waits_for_a_call),
        CONF_CASE(a_callback_is_asked_for_again),
        CONF_CASE(exports_of_bytes_that_are_not_there),
        CONF_CASE(an_end_during_a_capture),
        CONF_CASE(an_end_on_another_thread),
        CONF_CASE(two_ends_at_once),
        CONF_CASE(a_claim_beyond_the_limit_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
