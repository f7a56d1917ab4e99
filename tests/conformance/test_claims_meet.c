/* test_claims_meet.c - work of several devices that waits for each other, as kernels of NCCL do,
 * among copies and kernels.
 *
 * Promise: Claims and lane calls whose work meets on several devices all end, in order.
 *
 * The claims are on streams. The main thread submits the parts of a sum one after the other, and
 * may wait for the work in front in between. Each part puts a function into a stream. It waits
 * there for those of the other devices, and then adds the words of all devices. Copies between
 * devices and kernels in other lanes come before and after, so that lanes wait for each other's
 * events in many ways. The test runs on host devices only: functions in streams of a GPU may not
 * wait for each other.
 *
 * Threads: the main one submits. Streams of the simulator run the functions.
 * Locks: `meeting.lock` in these functions.
 */
#include "foreign.h"

enum { most_devices = 4, per_device = 3, words = 512, bytes = 4 * words, rounds = 60, operations = 24 };

typedef struct place {
    hd_buffer *buffer;
    uint32_t *at; /* the CPU can use memory of host devices */
    uint32_t model[words];
    hd_ticket last; /* its last writer */
} place;

static struct {
    hd_runtime *runtime;
    conf_kernels k;
    foreign f;
    int devices;
    void *streams[most_devices]; /* of the program */
    /* one lane of each device runs all lane calls that meet */
    hd_lane *lanes[most_devices][2], *meets[most_devices];
    place places[most_devices][per_device];
} w;

/* Shared by the functions of one sum; the last one frees it. */
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

/* Submits the device's part of a sum, by a lane call or on a stream of the program. */
static void submit_part(sum *s, int d, place *p, bool on_stream)
{
    const hd_arg use = hd_inout(p->buffer);
    if (!on_stream) {
        CONF_OK(hd_lane_run_native(w.meets[d], put_meets, s, &use, 1, &p->last));
        return;
    }
    hd_claim *claim;
    CONF_OK(hd_claim_begin_stream(w.runtime, d, w.streams[d], &use, 1, NULL, &claim));
    foreign_enter(&w.f, d);
    CONF_EQUAL(w.f.cuLaunchHostFunc(w.streams[d], meets, s), 0);
    foreign_leave(&w.f);
    CONF_OK(hd_claim_get_ticket(claim, &p->last));
    CONF_OK(hd_claim_end(claim, HD_OK));
}

static void add_all(conf_random *r)
{
    place *of[most_devices];
    uint32_t *models[most_devices];
    hd_ticket before[most_devices];
    sum *s = conf_memory(sizeof *s);
    *s = (sum){.arrived = 0};
    for (int d = 0; d < w.devices; d++) {
        place *p = of[d] = &w.places[d][conf_below(r, per_device)];
        before[d] = p->last;
        s->at[d] = p->at;
        models[d] = p->model;
    }
    add_words(models);
    const bool waits = conf_below(r, 2), streams = conf_below(r, 2), calls = conf_below(r, 2);
    for (int d = 0; d < w.devices; d++) {
        submit_part(s, d, of[d], streams && !(calls && d % 2));
        if (waits && d + 1 < w.devices) {
            /* that work is in front of a part that waits for the last part */
            CONF_OK(hd_wait(before[d], 60 * CONF_SECOND));
        }
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
        CONF_OK(conf_fill(lane, w.k, y->buffer, 0, words, word, &y->last));
        for (int i = 0; i < words; i++) {
            y->model[i] = word;
        }
        return;
    default:
        if (x != y) {
            CONF_OK(hd_copy(y->buffer, 0, x->buffer, 0, bytes, &y->last));
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
        foreign_enter(&w.f, d);
        CONF_EQUAL(w.f.cuStreamCreate(&w.streams[d], 1), 0);
        foreign_leave(&w.f);
        for (int i = 0; i < per_device; i++) {
            place *p = &w.places[d][i];
            CONF_OK(hd_alloc(w.lanes[d][0], bytes, &p->buffer));
            p->at = (uint32_t *)(uintptr_t)hd_buffer_address(p->buffer);
            conf_pattern(p->model, bytes, (uint64_t)(d * per_device + i));
            p->last = (hd_ticket){0};
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
    for (int d = 0; d < w.devices; d++) {
        foreign_enter(&w.f, d);
        CONF_EQUAL(w.f.cuStreamDestroy(w.streams[d]), 0);
        foreign_leave(&w.f);
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
    conf_failure_ends_program = true; /* a failure could leave work that waits for ever */
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
