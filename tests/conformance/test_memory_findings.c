/* test_memory_findings.c - findings of the option memory_debug reach a person: by a callback, or as
 * lines in a file.
 *
 * Promise: Findings of memory_debug reach the program's callback or its file.
 *
 * Threads: the main one, and one that blocks a callback.
 * Locks: none.
 */
#include <fcntl.h>
#include "debug.h"

enum { MOST = 32 };

typedef struct told {
    hd_runtime *runtime;
    hd_buffer *stale; /* the callback uses it once more */
    hd_finding findings[MOST];
    int count;
    bool closing;
    bool same_message;
} told;

static void tells(void *context, const hd_finding *finding)
{
    told *t = context;
    CONF_TRUE(t->count < MOST && finding->size == sizeof *finding);
    t->same_message = strcmp(finding->message, hd_message()) == 0;
    t->findings[t->count++] = *finding;
    if (!t->closing) { /* its own failures and findings change nothing */
        CONF_FAILS(hd_memory_on_finding(t->runtime, NULL, NULL), HD_ERROR_ARGUMENT);
        float x;
        CONF_FAILS(hd_read(t->stale, 0, &x, 4), HD_ERROR_HANDLE);
    }
}

static void is(const hd_finding *f, hd_finding_kind kind, int device, uint64_t bytes, const char *label)
{
    CONF_EQUAL(f->kind, kind);
    CONF_EQUAL(f->device, device);
    CONF_EQUAL(f->bytes, bytes);
    CONF_TRUE(strcmp(f->label, label) == 0);
    CONF_TRUE((f->call_site != NULL) == (bytes != 0));
}

/* A leak is an error of hd_close, which names the buffer. hd_close still closes the runtime. */
static void a_leak_is_an_error_of_hd_close(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("stats=0 " DEBUG);
    hd_buffer *left = labelled(conf_default_lane(runtime, 0), 1000, "left");
    conf_track(runtime, NULL);
    CONF_FAILS_WITH(hd_close(runtime), HD_ERROR_ACCESS, "'left'");
    CONF_FAILS(hd_free(left), HD_ERROR_HANDLE);
    CONF_FAILS(hd_close(runtime), HD_ERROR_HANDLE);
}

/* A second free, a use, a leak, in device and pinned memory. */
static void what_is_found_is_told(void **state)
{
    (void)state;
    static told t;
    memset(&t, 0, sizeof t);
    t.runtime = conf_open("host_devices=2 host_memory=64M stats=0 " DEBUG);
    int device = hd_device_count(t.runtime) - 1;
    hd_lane *lane = conf_default_lane(t.runtime, device);
    hd_buffer *stale = labelled(lane, 64, "stale"), *a = labelled(lane, 1000, "twice"),
              *b = labelled(lane, 4096, "short");
    hd_buffer *pinned = NULL, *left[2];
    CONF_OK(hd_alloc_host(t.runtime, 300, &pinned));
    hd_free(stale);
    t.stale = stale;
    CONF_OK(hd_memory_on_finding(t.runtime, tells, &t));

    hd_free(a);
    hd_free(a);
    CONF_EQUAL(t.count, 1);
    is(&t.findings[0], HD_FINDING_DOUBLE_FREE, device, 1000, "twice");
    CONF_TRUE(t.findings[0].found_at != NULL && t.same_message);
    CONF_TRUE(strcmp(hd_message(), t.findings[0].message) == 0);
    float x;
    CONF_FAILS(hd_read(a, 0, &x, 4), HD_ERROR_HANDLE);
    CONF_EQUAL(t.count, 2);
    is(&t.findings[1], HD_FINDING_USE_AFTER_FREE, device, 1000, "twice");
    CONF_TRUE(t.findings[1].found_at == NULL && strcmp(hd_message(), t.findings[1].message) == 0);
    hd_free(pinned);
    hd_free(pinned);
    CONF_EQUAL(t.count, 3);
    is(&t.findings[2], HD_FINDING_DOUBLE_FREE, HD_DEVICE_HOST, 300, "");
    CONF_EQUAL(stats_of(t.runtime, HD_DEVICE_HOST).double_frees, 1);
    CONF_EQUAL(stats_of(t.runtime, device).double_frees, 1);

    uint64_t numbers = t.findings[2].number; /* findings of the callback itself are counted, too */
    CONF_TRUE(t.findings[0].number < t.findings[1].number && t.findings[1].number < numbers && numbers > 3);
    hd_free(b);
    CONF_EQUAL(t.count, 3);
    for (int i = 0; i < 2; i++) {
        left[i] = labelled(lane, 500, "left");
    }
    CONF_TRUE(left[0] != left[1]);
    t.closing = true;
    conf_close(t.runtime);
    CONF_EQUAL(t.count, 4);
    is(&t.findings[3], HD_FINDING_LEAK, device, 1000, "left");
    CONF_EQUAL(t.findings[3].count, 2);
    CONF_TRUE(t.findings[3].number > numbers);
}

/* A kernel wrote bytes beside a buffer. hd_free reports the buffer and the bytes. */
static void an_overrun_is_told(void **state)
{
    (void)state;
    static told t;
    memset(&t, 0, sizeof t);
    t.runtime = conf_open("host_devices=2 host_memory=64M stats=0 " DEBUG);
    conf_kernels k = conf_builtins(t.runtime);
    int device = hd_device_count(t.runtime) - 1;
    hd_lane *lane = conf_default_lane(t.runtime, device);
    hd_buffer *stale = labelled(lane, 64, "stale"), *good = labelled(lane, 400, "good"),
              *bad = labelled(lane, 400, "too short");
    hd_free(stale);
    t.stale = stale;
    CONF_OK(hd_memory_on_finding(t.runtime, tells, &t));
    hd_arg args[] = {hd_out(bad), hd_u64(103), hd_u32(9)}; /* declares 400 bytes, writes 412 */
    CONF_OK(hd_launch(lane, k.fill, conf_grid(103, 128), conf_dims(128, 1, 1), 0, args, 3, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_EQUAL(t.count, 0);
    hd_free(good);
    CONF_EQUAL(t.count, 0);
    hd_free(bad);
    CONF_EQUAL(t.count, 1);
    is(&t.findings[0], HD_FINDING_OVERRUN, device, 400, "too short");
    CONF_EQUAL(t.findings[0].count, 1);
    CONF_TRUE(t.findings[0].found_at == NULL && t.same_message);
    CONF_TRUE(strncmp(t.findings[0].message, "hd_free: ", 9) == 0);
    CONF_TRUE(strstr(t.findings[0].message, "12 from offset 400 to 411") != NULL);
    CONF_TRUE(strstr(t.findings[0].message, "'too short'") != NULL);
    CONF_EQUAL(stats_of(t.runtime, device).overruns, 1);
    t.closing = true;
    conf_close(t.runtime);
    CONF_EQUAL(t.count, 1);
}

static void without_the_option_nobody_is_called(void **state)
{
    (void)state;
    static told t;
    memset(&t, 0, sizeof t);
    t.runtime = conf_open("host_devices=1 host_memory=64M memory_debug=off");
    CONF_OK(hd_memory_on_finding(t.runtime, tells, &t));
    hd_buffer *a = labelled(conf_default_lane(t.runtime, 0), 1000, "twice");
    hd_free(a);
    hd_free(a);
    conf_close(t.runtime);
    CONF_EQUAL(t.count, 0);
    CONF_FAILS(hd_memory_on_finding(NULL, tells, &t), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_on_finding(t.runtime, tells, &t), HD_ERROR_HANDLE);
}

typedef struct held_up {
    hd_runtime *runtime;
    pthread_barrier_t inside;
    atomic_bool go, left;
} held_up;

static void holds_up(void *context, const hd_finding *finding)
{
    (void)finding;
    held_up *h = context;
    pthread_barrier_wait(&h->inside);
    while (!atomic_load(&h->go)) {
        conf_sleep_ms(1);
    }
    atomic_store(&h->left, true);
}

static void *frees_twice(void *context)
{
    held_up *h = context;
    hd_buffer *a = labelled(conf_default_lane(h->runtime, 0), 1000, "twice");
    hd_free(a);
    hd_free(a);
    return NULL;
}

static void *lets_go(void *context)
{
    held_up *h = context;
    conf_sleep_ms(20);
    atomic_store(&h->go, true);
    return NULL;
}

/* Once the call returns, nothing uses the data of the earlier callback any more. */
static void replacing_waits_for_calls(void **state)
{
    (void)state;
    held_up h = {.runtime = conf_open("host_devices=1 host_memory=64M " DEBUG)};
    pthread_t threads[2];
    pthread_barrier_init(&h.inside, NULL, 2);
    CONF_OK(hd_memory_on_finding(h.runtime, holds_up, &h));
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&threads[0], NULL, frees_twice, &h), 0);
    pthread_barrier_wait(&h.inside);
    CONF_EQUAL(pthread_create(&threads[1], NULL, lets_go, &h), 0);
    CONF_OK(hd_memory_on_finding(h.runtime, NULL, NULL));
    CONF_TRUE(atomic_load(&h.left));
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    conf_failure_ends_program = false;
    pthread_barrier_destroy(&h.inside);
    conf_close(h.runtime);
}

/* Returns the content of a file, for the caller to free. */
static char *text_of(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CONF_TRUE(file >= 0);
    char *text = conf_memory(1 << 20);
    ssize_t n = read(file, text, (1 << 20) - 1);
    CONF_TRUE(n >= 0);
    text[n] = '\0';
    close(file);
    return text;
}

static int lines_of(const char *text)
{
    int lines = 0;
    for (; *text != '\0'; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static void lines_go_to_a_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/heddle-findings-XXXXXX", path[64];
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/lines", folder);
    for (int bad = 0; bad < 2; bad++) {
        hd_runtime *runtime =
            conf_open_with("host_devices=1 host_memory=64M memory_debug=report memory_debug_file=%s", path);
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *a = labelled(lane, 5000, "we\nights"), *b = labelled(lane, 1000, "biases");
        hd_free(b);
        if (bad) {
            float x;
            hd_free(b);
            CONF_FAILS(hd_read(b, 0, &x, 4), HD_ERROR_HANDLE);
        } else {
            hd_free(a);
        }
        conf_close(runtime);
        char *text = text_of(path);
        if (!bad) {
            CONF_TRUE(strcmp(text, "heddle: memory_debug: until hd_close: nothing was found\n") == 0);
        } else { /* behind the earlier content */
            CONF_EQUAL(lines_of(text), 5);
            CONF_TRUE(strstr(text, "found\nheddle: memory_debug: hd_free: a buffer was freed twice") != NULL);
            CONF_TRUE(strstr(text, "\nheddle: memory_debug: hd_read: the buffer was freed: 'biases'") != NULL);
            CONF_TRUE(strstr(text, "\nheddle: memory_debug: hd_close: 1 buffer of 4.8 KiB was not freed: 'we ights'") !=
                      NULL);
            CONF_TRUE(strstr(text, "1 double free, 1 use after free, 1 buffer of 4.8 KiB not freed\n") != NULL);
        }
        free(text);
    }
    unlink(path);
    rmdir(folder);

    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof options, .settings = "memory_debug=report memory_debug_file=/proc/no/such"};
    CONF_FAILS(hd_open(&options, &runtime), HD_ERROR_SYSTEM);
    CONF_TRUE(strstr(hd_message(), "memory_debug_file=/proc/no/such") != NULL);
}

int main(void)
{
    conf_begin("test_memory_findings");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_leak_is_an_error_of_hd_close),
        CONF_CASE(what_is_found_is_told),
        CONF_CASE(an_overrun_is_told),
        CONF_CASE(without_the_option_nobody_is_called),
        CONF_CASE(replacing_waits_for_calls),
        CONF_CASE(lines_go_to_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
