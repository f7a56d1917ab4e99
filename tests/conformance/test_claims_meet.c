/* test_claims_meet.c - work in lanes of several devices that waits for each other, as the kernels of NCCL do, among copies and kernels.
 *
 * Promise: Lane calls whose work waits for each other on several devices end, in order, behind a host call with the bytes of all.
 *
 * Each call puts a function into its stream that waits there for those of the other devices, and then adds all devices' words.
 * Copies between devices and kernels in other lanes come before and after, so that lanes wait for each other's events in many ways.
 * On host devices only: functions of a GPU's streams may not wait for each other.
 *
 * Threads: the main one submits. Streams of the simulator run the functions.
 * Locks: `meeting.lock` in these functions.
 */
#include "foreign.h"

enum { most_devices = 4, per_device = 3, words = 512, bytes = 4 * words, rounds = 60, operations = 24 };

typedef struct place {
    hd_buffer *buffer;
    uint32_t *at; /* the memory of a host device is the CPU's */
    uint32_t model[words];
} place;

static struct {
    hd_runtime *runtime;
    conf_kernels k;
    foreign f;
    int devices;
    hd_lane *lanes[most_devices][2], *meets[most_devices]; /* one lane of each device has all that meets */
    place places[most_devices][per_device];
} w;

/* What the functions of one sum have in common: its last one frees it. */
typedef struct sum {
    uint32_t *at[most_devices];
    int arrived, left;
} sum;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
} meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

static void add_words(uint32_t *const *at)
{
    for (int i = 0; i < words; i++) {
        uint32_t total = 0;
        for (int d = 0; d < w.devices; d++) {
            total += at[d][i];
        }
        for (int d = 0; d < w.devices; d++) {
            at[d][i] = total;
        }
    }
}

static void meets(void *context)
{
    sum *s = context;
    pthread_mutex_lock(&meeting.lock);
    if (++s->arrived == w.devices) {
        add_words(s->at);
        pthread_cond_broadcast(&meeting.changed);
    }
    while (s->arrived < w.devices) {
        pthread_cond_wait(&meeting.changed, &meeting.lock);
    }
    const bool last = ++s->left == w.devices;
    pthread_mutex_unlock(&meeting.lock);
    if (last) {
        free(s);
    }
}

static hd_status put_meets(void *stream, void *context)
{
    return w.f.cuLaunchHostFunc(stream, meets, context) == 0 ? HD_OK : HD_ERROR_DRIVER;
}

static hd_status nothing(void *const *pointers, void *context)
{
    (void)pointers, (void)context;
    return HD_OK;
}

static void add_all(conf_random *r)
{
    hd_arg uses[most_devices];
    uint32_t *models[most_devices];
    sum *s = conf_memory(sizeof *s);
    *s = (sum){.arrived = 0};
    for (int d = 0; d < w.devices; d++) {
        place *p = &w.places[d][conf_below(r, per_device)];
        uses[d] = hd_inout(p->buffer);
        s->at[d] = p->at;
        models[d] = p->model;
    }
    add_words(models);
    CONF_OK(hd_host_call(w.runtime, nothing, NULL, uses, (size_t)w.devices, NULL));
    for (int d = 0; d < w.devices; d++) {
        CONF_OK(hd_lane_call(w.meets[d], put_meets, s, &uses[d], 1, NULL));
    }
}

static void one_operation(conf_random *r)
{
    const int d = (int)conf_below(r, (uint64_t)w.devices), e = (int)conf_below(r, (uint64_t)w.devices);
    place *y = &w.places[d][conf_below(r, per_device)], *x = &w.places[e][conf_below(r, per_device)];
    hd_lane *lane = w.lanes[d][conf_below(r, 2)];
    const uint32_t word = (uint32_t)conf_next(r);
    switch (conf_below(r, 4)) {
    case 0:
        add_all(r);
        return;
    case 1:
        CONF_OK(conf_fill(lane, w.k, y->buffer, 0, words, word, NULL));
        for (int i = 0; i < words; i++) {
            y->model[i] = word;
        }
        return;
    default:
        if (x != y) {
            CONF_OK(hd_copy(y->buffer, 0, x->buffer, 0, bytes, NULL));
            memcpy(y->model, x->model, bytes);
        }
    }
}

static void open_all(const char *settings)
{
    w.runtime = conf_open(settings);
    w.k = conf_builtins(w.runtime);
    w.devices = hd_device_count(w.runtime) < most_devices ? hd_device_count(w.runtime) : most_devices;
    foreign_begin(&w.f, w.runtime);
    for (int d = 0; d < w.devices; d++) {
        CONF_OK(hd_lane_create(w.runtime, d, &w.lanes[d][0]));
        CONF_OK(hd_lane_create(w.runtime, d, &w.lanes[d][1]));
        CONF_OK(hd_lane_create(w.runtime, d, &w.meets[d]));
        for (int i = 0; i < per_device; i++) {
            place *p = &w.places[d][i];
            CONF_OK(hd_alloc(w.lanes[d][0], bytes, &p->buffer));
            p->at = (uint32_t *)(uintptr_t)hd_buffer_address(p->buffer);
            conf_pattern(p->model, bytes, (uint64_t)(d * per_device + i));
            CONF_OK(hd_write(p->buffer, 0, p->model, bytes));
        }
    }
}

static void sums_meet(const char *settings, uint64_t seed)
{
    static uint8_t found[bytes];
    conf_random r = {seed};
    open_all(settings);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < operations; i++) {
            one_operation(&r);
        }
        for (int d = 0; d < w.devices; d++) {
            for (int i = 0; i < per_device; i++) {
                CONF_OK(hd_read(w.places[d][i].buffer, 0, found, bytes));
                CONF_SAME(found, w.places[d][i].model, bytes);
            }
        }
    }
    foreign_end(&w.f);
    conf_close(w.runtime);
}

static void work_that_waits_for_each_other_ends(void **state)
{
    (void)state;
    sums_meet("transfer_timeout=120000", 1);
}

static void it_ends_under_perturbed_schedules(void **state)
{
    (void)state;
    sums_meet("transfer_timeout=120000 host_schedule=5", 2);
    sums_meet("transfer_timeout=120000 host_schedule=9", 3);
}

int main(void)
{
    conf_failure_ends_program = true; /* work may wait for ever */
    conf_begin("test_claims_meet");
    hd_runtime *runtime = conf_open(NULL);
    const bool applies = conf_is_host(runtime) && !conf_is_process(runtime);
    conf_close(runtime);
    if (!applies) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        CONF_CASE(work_that_waits_for_each_other_ends),
        CONF_CASE(it_ends_under_perturbed_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
