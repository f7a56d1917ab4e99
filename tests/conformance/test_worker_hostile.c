/* test_worker_hostile.c - a worker process that overwrites memory that it shares with the
 * application costs its device, and nothing else.
 *
 * Promise: A worker that overwrites shared memory costs its own device: no hang, no false success.
 *
 * It causes no crash either. The test writes into the application's mapping of that memory, which
 * the worker shares. If the worker must not see a value first, the test stops it meanwhile.
 *
 * Threads: one, in some cases with another one that waits.
 * Locks: none.
 * Always: every wait ends at a limit, so that a hang fails its case. After every case the other
 * device works, was never lost, and the lost one restarts.
 */
#include "workers.h"

#include <limits.h>
#include "support/check.h"
#include "engine/engine.h"
#include "worker/message.h"
#include "process/wire.h"
#include "worker/workers.h"

enum { bytes = 65536, spoilt = 0 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *x;
    hdi_device *device;
    hd_lane *inside; /* the lane inside the library */
    pid_t worker;    /* read once: a stopped worker sends no reply */
    hd_ticket ticket;
} scene;

static scene begin(const char *more)
{
    scene s = {.runtime = conf_open_with("worker_timeout=30000 close_timeout=5000 submit_timeout=60000 %s", more)};
    CONF_TRUE(hd_device_count(s.runtime) >= 2);
    s.device = s.runtime->devices[spoilt];
    s.worker = wk_pid(s.runtime, spoilt);
    CONF_OK(hd_lane_create(s.runtime, spoilt, &s.lane));
    CONF_OK(hd_alloc(s.lane, bytes, &s.x));
    CONF_OK(hd_fill(s.x, 0, 1, bytes, NULL));
    CONF_FILLED(s.x, 0, 1, bytes);
    CONF_OK(conf_fill(s.lane, conf_builtins(s.runtime), s.x, 0, bytes / 4, 7, &s.ticket));
    CONF_OK(hd_wait(s.ticket, 60 * CONF_SECOND));
    s.inside = hdi_lane_any(s.lane);
    return s;
}

/* Submits an operation that the stopped worker does not see. */
static void submit_unseen(scene *s)
{
    CONF_EQUAL(kill(s->worker, SIGSTOP), 0);
    while (wk_state(s->worker) != 'T') {
        conf_sleep_ms(1);
    }
    CONF_OK(conf_fill(s->lane, conf_builtins(s->runtime), s->x, 0, bytes / 4, 8, &s->ticket));
}

static void kill_worker(const scene *s)
{
    CONF_EQUAL(kill(s->worker, SIGKILL), 0);
}

/* The device is lost, and restarts. The other one works as before. */
static void end(scene *s, const char *word)
{
    hd_device_loss loss = wk_only_loss(s->runtime, spoilt);
    if (strstr(loss.message, word) == NULL) {
        conf_fail_at(__FILE__, __LINE__, "'%s' instead of '%s'", loss.message, word);
    }
    CONF_EQUAL(loss.cause, HD_LOSS_WORKER_ENDED);
    CONF_FAILS(hd_fill(s->x, 0, 1, bytes, NULL), HD_ERROR_DEVICE_LOST);
    wk_others_work(s->runtime, spoilt);
    CONF_OK(hd_device_restart(s->runtime, spoilt));
    wk_check_facts(s->runtime, spoilt, 1, 1);
    hd_free(s->x);
    CONF_OK(hd_lane_reset(s->lane, 60 * CONF_SECOND));
    CONF_OK(hd_alloc(s->lane, bytes, &s->x));
    CONF_OK(hd_fill(s->x, 0, 9, bytes, &s->ticket));
    CONF_OK(hd_wait(s->ticket, 60 * CONF_SECOND));
    CONF_FILLED(s->x, 0, 9, bytes);
    wk_works(s->runtime, spoilt);
    wk_no_loss(s->runtime);
    hd_free(s->x);
    conf_close(s->runtime);
}

/* ---- positions ---- */

static void done_beyond_what_was_submitted(void **state)
{
    (void)state;
    static const uint64_t ahead[] = {1, UINT64_C(1) << 40, UINT64_MAX / 2};
    for (int i = 0; i < 3; i++) {
        scene s = begin("");
        submit_unseen(&s);
        atomic_store(&s.inside->shared->done, s.inside->head + ahead[i]);
        CONF_FAILS_WITH(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, "damaged");
        end(&s, "damaged");
    }
}

/* No thread waits; the library notices nevertheless. */
static void done_goes_back(void **state)
{
    (void)state;
    scene s = begin("");
    int64_t limit = conf_now() + 60 * CONF_SECOND;
    while (atomic_load(&s.inside->done_least) == 0 && conf_now() < limit) {
        conf_sleep_ms(5);
    }
    atomic_store(&s.inside->shared->done, 0);
    wk_readable(wk_descriptor(s.runtime), 60000);
    CONF_OK(hd_wait(s.ticket, 60 * CONF_SECOND)); /* work that was seen done stays done */
    end(&s, "damaged");
}

/* A full ring whose room depends on positions that the worker publishes. */
static void no_room_for_ever(void **state)
{
    (void)state;
    scene s = begin("lane_slots=64");
    submit_unseen(&s);
    atomic_store(&s.inside->shared->done, UINT64_MAX);
    hd_status status = HD_OK;
    for (int i = 0; i < 200 && status == HD_OK; i++) {
        status = hd_fill(s.x, 0, 3, bytes, &s.ticket);
    }
    CONF_FAILS_WITH(status, HD_ERROR_DEVICE_LOST, "damaged");
    end(&s, "damaged");
}

/* A worker leaves false positions behind and dies. The program relies on its own words. */
static void positions_of_a_dead_worker(void **state)
{
    (void)state;
    static const uint64_t values[] = {0, 1, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < 4; i++) {
        scene s = begin("");
        submit_unseen(&s);
        hdi_lane_shared *shared = s.inside->shared;
        atomic_store(&shared->head, values[i]);
        atomic_store(&shared->issued, values[(i + 1) % 4]);
        atomic_store(&shared->done, values[(i + 2) % 4] > 1 ? UINT64_MAX - i : 0);
        atomic_store(&shared->failures_first, values[i]);
        atomic_store(&shared->failures_end, values[3 - i]);
        atomic_store(&shared->failure_changes, values[i]);
        kill_worker(&s);
        CONF_FAILS_WITH(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, "");
        end(&s, "");
    }
}

/* Another device's worker also maps the lanes. It writes over those of a device that is lost
 * already. */
static void a_peer_writes_over_the_dead(void **state)
{
    (void)state;
    scene s = begin("");
    submit_unseen(&s);
    kill_worker(&s);
    CONF_FAILS(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    for (int i = 0; i < 2; i++) {
        atomic_store(&s.inside->shared->done, i ? 0 : UINT64_MAX);
        atomic_store(&s.inside->shared->head, UINT64_MAX / 2);
        atomic_store(&s.inside->shared->issued, 1);
        CONF_FAILS(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    }
    end(&s, "signal 9");
}

/* ---- the log ---- */

static void a_log_half_written_for_ever(void **state)
{
    (void)state;
    scene s = begin("");
    submit_unseen(&s);
    atomic_fetch_add(&s.inside->shared->failure_changes, 1);
    CONF_EQUAL(kill(s.worker, SIGCONT), 0);
    hd_status status = hd_wait(s.ticket, 60 * CONF_SECOND);
    /* it was done before the loss: both are right */
    CONF_TRUE(status == HD_OK || status == HD_ERROR_DEVICE_LOST);
    end(&s, "damaged");
}

static void a_log_half_written_by_the_dead(void **state)
{
    (void)state;
    scene s = begin("");
    submit_unseen(&s);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) { /* also of lanes that were never made */
        atomic_store(&s.device->channel.lanes[i].failure_changes, 1);
    }
    kill_worker(&s);
    CONF_FAILS_WITH(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, "signal 9");
    end(&s, "signal 9");
}

/* Records of operations that do not exist, in an impossible order. */
static void records_of_nothing(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        scene s = begin("");
        submit_unseen(&s);
        hdi_lane_shared *shared = s.inside->shared;
        hdi_failure f = {
            .from = way == 0 ? 0 : 1, .to = way == 1 ? UINT64_MAX : 1, .lane = UINT32_MAX, .lost = 1, .op = 255};
        f.driver_code = INT32_MIN;
        f.kernel = UINT32_MAX;
        for (size_t r = 0; r < s.device->channel.failures_room; r++) {
            size_t at = ((size_t)s.inside->number * s.device->channel.failures_room + r) * HDI_FAILURE_WORDS;
            memcpy(&s.device->channel.failures[at], &f, sizeof f);
            f.from += way == 2 ? UINT64_MAX : 0;
        }
        atomic_store(&shared->failures_end, way == 3 ? 2 : s.device->channel.failures_room);
        atomic_fetch_add(&shared->failure_changes, 2);
        hd_error error = {.size = sizeof error};
        hd_ticket first = {s.lane, 1};
        if (hd_wait(first, 60 * CONF_SECOND)) {
            hd_last_error(&error);
            CONF_TRUE(error.device >= 0 && error.device < hd_device_count(s.runtime));
        }
        kill_worker(&s);
        CONF_FAILS(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
        end(&s, "signal 9");
    }
}

/* A lane that always becomes marked as failed again. */
static void *keeps_failed(void *argument)
{
    scene *s = argument;
    while (!hdi_device_lost(s->device)) {
        atomic_store(&s->inside->shared->failed, 1);
        conf_sleep_ms(1);
    }
    return NULL;
}

static void a_lane_that_stays_failed(void **state)
{
    (void)state;
    scene s = begin("");
    submit_unseen(&s);
    CONF_EQUAL(kill(s.worker, SIGCONT), 0);
    CONF_OK(hd_wait(s.ticket, 60 * CONF_SECOND));
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, keeps_failed, &s), 0);
    hd_status status = HD_OK;
    for (int64_t limit = conf_now() + 60 * CONF_SECOND; status == HD_OK && conf_now() < limit;) {
        status = hd_lane_reset(s.lane, 60 * CONF_SECOND);
    }
    CONF_FAILS_WITH(status, HD_ERROR_DEVICE_LOST, "damaged");
    pthread_join(thread, NULL);
    end(&s, "damaged");
}

/* ---- waits and commands ---- */

/* A lost worker overwrote a command with a WAIT. Nothing waits for the lane that it names. */
static void a_wait_for_nothing(void **state)
{
    (void)state;
    static const uint32_t lanes[] = {HDI_LANES_MAX + 200, HDI_LANES_MAX, UINT32_MAX, 200};
    for (int i = 0; i < 4; i++) {
        scene s = begin("");
        submit_unseen(&s);
        hdi_command *c = hdi_command_at(&s.device->channel, s.inside->number, s.inside->head - 1);
        *c = (hdi_command){.op = HDI_OP_WAIT, .slots = 1};
        c->wait.lane = lanes[i];
        c->wait.position = UINT64_C(1) << 40;
        kill_worker(&s);
        CONF_FAILS(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
        end(&s, "signal 9");
    }
}

/* Returns the command of the operation that the worker did not see. */
static hdi_command *unseen(scene *s)
{
    submit_unseen(s);
    return hdi_command_at(&s->device->channel, s->inside->number, s->inside->head - 1);
}

static void go_on(const scene *s)
{
    CONF_EQUAL(kill(s->worker, SIGCONT), 0);
}

/* A worker that finds values that no application writes ends itself. */
static void a_worker_finds_nonsense(void **state)
{
    (void)state;
    for (int way = 0; way < 6; way++) {
        scene s = begin("");
        hdi_command *c = unseen(&s);
        if (way == 0) {
            c->slots = 0;
        } else if (way == 1) {
            c->slots = 2;
        } else if (way == 2) {
            atomic_store(&s.inside->shared->head, UINT64_C(1) << 40);
        } else if (way == 3) {
            atomic_store(&s.inside->shared->head, 0);
        } else {
            *c = (hdi_command){.op = way == 4 ? HDI_OP_WAIT : HDI_OP_SOURCES, .slots = 1};
            c->wait.lane = way == 4 ? HDI_LANES_MAX * HDI_DEVICES_MAX : UINT32_MAX;
            c->wait.position = 1;
        }
        go_on(&s);
        CONF_FAILS_WITH(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST, "damaged");
        CONF_TRUE(wk_goes(s.worker, wk_gone_ms()));
        end(&s, "damaged");
    }
}

/* A mistake in one command alone is the failure of that operation. */
static void a_worker_refuses_a_command(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        scene s = begin("");
        hdi_command *c = unseen(&s);
        if (way == 0) {
            c->op = 200;
        } else {
            /* of a missing chunk; a missing kernel */
            c->kernel = way == 1 ? UINT16_MAX : HDI_KERNEL_CHUNK - 1;
        }
        go_on(&s);
        CONF_FAILS(hd_wait(s.ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
        CONF_OK(hd_lane_reset(s.lane, 60 * CONF_SECOND));
        CONF_EQUAL(wk_pid(s.runtime, spoilt), s.worker);
        wk_works(s.runtime, spoilt);
        wk_others_work(s.runtime, -1);
        hd_free(s.x);
        conf_close(s.runtime);
    }
}

typedef struct waiter {
    const scene *s;
    pthread_t thread;
    hd_status status;
} waiter;

static void *waits_without_limit(void *argument)
{
    waiter *w = argument;
    w->status = hd_wait(w->s->ticket, -1);
    return NULL;
}

/* The worker moves `done`, or dies, and does not wake the threads that sleep. */
static void nobody_is_woken(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        scene s = begin("");
        submit_unseen(&s);
        waiter w = {.s = &s};
        CONF_EQUAL(pthread_create(&w.thread, NULL, waits_without_limit, &w), 0);
        hdi_lane_shared *shared = s.inside->shared;
        while (atomic_load(&shared->sleepers) == 0) {
            conf_sleep_ms(1);
        }
        conf_sleep_ms(50);
        atomic_store(&shared->sleepers, 0);
        atomic_store(&shared->awaited, 0);
        for (int i = 0; i < HDI_LANES_MAX / 64; i++) {
            atomic_store(&s.device->channel.engine->active[i], 0);
        }
        atomic_store(&s.device->channel.engine->asleep, 0);
        if (dies) {
            atomic_store(&shared->issued, s.inside->head);
            atomic_store(&shared->done, s.inside->head);
            kill_worker(&s);
        } else {
            CONF_EQUAL(kill(s.worker, SIGCONT), 0);
        }
        pthread_join(w.thread, NULL);
        CONF_EQUAL(w.status, HD_OK); /* the program believes a worker that work is done */
        if (!dies) {
            kill_worker(&s);
        }
        end(&s, "signal 9");
    }
}

/* ---- anything ---- */

static uint64_t dice_state;

static uint64_t dice(uint64_t below)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return (dice_state >> 11) % below;
}

/* Writes some bytes somewhere in the memory that the device's worker can write, mostly at harmful
 * places. */
static void scribble_on(const hdi_channel *channel)
{
    unsigned char *base = channel->memory.base;
    const struct {
        const void *at;
        size_t bytes;
    } areas[] = {
        {channel->engine, sizeof *channel->engine},
        {channel->lanes, 8 * sizeof *channel->lanes},
        {channel->lanes, 8 * sizeof *channel->lanes},
        {channel->flags, 8 * sizeof *channel->flags},
        {channel->requests, 512},
        {channel->rings, (size_t)channel->slots * 8 * HDI_SLOT_BYTES},
        {channel->failures, 64 * sizeof(hdi_failure)},
        {base, channel->memory.bytes},
    };
    size_t which = dice(sizeof areas / sizeof areas[0]);
    size_t at = (size_t)((const unsigned char *)areas[which].at - base) + dice(areas[which].bytes);
    at &= dice(2) ? ~(size_t)7 : ~(size_t)0;
    size_t n = (size_t)1 << dice(4);
    for (size_t i = 0; i < n && at + i < channel->memory.bytes; i++) {
        static const unsigned char extremes[] = {0, 1, 255};
        base[at + i] = dice(3) ? (unsigned char)dice(256) : extremes[dice(3)];
    }
}

/* As long as a worker could do it: a loss is declared under the lock. */
static void scribble(const scene *s)
{
    hdi_lock_take(&s->device->order);
    if (!hdi_device_lost(s->device)) {
        scribble_on(&s->device->channel);
    }
    hdi_lock_release(&s->device->order);
}

/* Submits one more operation. Returns false once that is of no more use. */
static bool step(scene *s, hd_buffer *elsewhere, uint64_t i)
{
    static unsigned char bytes_read[bytes];
    hd_status status = HD_OK;
    switch (i % 6) {
    case 0:
        status = conf_fill(s->lane, conf_builtins(s->runtime), s->x, 0, bytes / 4, (uint32_t)i, &s->ticket);
        break;
    case 1:
        status = hd_copy(s->x, 0, elsewhere, 0, bytes, &s->ticket);
        break;
    case 2:
        status = hd_copy(elsewhere, 0, s->x, 0, bytes, &s->ticket);
        break;
    case 3:
        status = hd_fill(s->x, 0, (uint32_t)i, bytes, &s->ticket);
        break;
    case 4:
        status = hd_wait(s->ticket, 2 * CONF_SECOND);
        break;
    default:
        status = hd_read(s->x, 0, bytes_read, bytes);
        break;
    }
    return status != HD_ERROR_DEVICE_LOST && status != HD_ERROR_TIMEOUT;
}

/* After such a worker the other device remains, and a restart. */
static void anything_is_written(uint64_t seed)
{
    dice_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    scene s = begin("transfer_timeout=2000 lane_slots=64");
    hd_lane *other = conf_default_lane(s.runtime, 1);
    hd_buffer *elsewhere = NULL;
    CONF_OK(hd_alloc(other, bytes, &elsewhere));
    CONF_OK(hd_fill(elsewhere, 0, 5, bytes, NULL));
    CONF_FILLED(elsewhere, 0, 5, bytes);
    bool goes_on = true;
    uint64_t steps = 10 + dice(50);
    for (uint64_t i = 0; i < steps && goes_on; i++) {
        for (uint64_t n = dice(4); n > 0; n--) {
            scribble(&s);
        }
        goes_on = step(&s, elsewhere, i);
    }
    for (uint64_t n = dice(30); n > 0; n--) {
        scribble(&s);
    }
    if (!hdi_device_lost(s.device)) {
        kill(s.worker, SIGKILL); /* which may have ended by now */
    }
    hd_device_loss loss = wk_next_loss(s.runtime);
    CONF_EQUAL(loss.device, spoilt);
    CONF_TRUE(hd_wait(s.ticket, 60 * CONF_SECOND) != HD_ERROR_TIMEOUT);
    CONF_TRUE(hd_lane_wait(other, 60 * CONF_SECOND) != HD_ERROR_TIMEOUT);
    hd_free(elsewhere);
    CONF_OK(hd_lane_reset(other, 60 * CONF_SECOND));
    wk_others_work(s.runtime, spoilt);
    hd_status status = hd_device_restart(s.runtime, spoilt);
    if (status) {
        conf_fail_at(__FILE__, __LINE__, "seed %llu: hd_device_restart: %s", (unsigned long long)seed, hd_message());
    }
    CONF_OK(hd_lane_reset(s.lane, 60 * CONF_SECOND));
    wk_works(s.runtime, spoilt);
    hd_free(s.x);
    wk_no_loss(s.runtime);
    conf_close(s.runtime);
}

static void anything_is_written_anywhere(void **state)
{
    (void)state;
    uint64_t first = conf_number_from("HEDDLE_SEED", 1), count = conf_number_from("HEDDLE_TEST_ROUNDS", 6);
    for (uint64_t seed = first; seed < first + count; seed++) {
        anything_is_written(seed);
    }
}

/* ---- lies ---- */

/* This program as a worker, which drives no device. If HEDDLE_TEST_LIE is not in this list, it
 * answers every request with success, and fills the replies with any bytes. */
enum {
    LIE_NO_GRANULE,
    LIE_ODD_GRANULE,
    LIE_NO_MEMORY,
    LIE_ALL_MEMORY,
    LIE_NO_LIMITS,
    LIE_MANY_DEVICES,
    LIE_LESS_THAN_NO_DEVICES,
    LIE_STATUS,
    LIE_OTHER_KIND,
    LIE_HALF,
    LIE_DESCRIPTORS,
    LIE_END,
    LIE_YES,
    LIES = LIE_YES + 6
};

static hdi_facts good_facts(void)
{
    return (hdi_facts){
        .limits = {.threads_per_block = 1024, .block = {1024, 1024, 64}, .grid = {INT32_MAX, 65535, 65535}},
        .name = "Liar",
        .multiprocessors = 2,
        .virtual_memory = 1,
        .memory_bytes = 64 << 20,
        .granule = 2 << 20,
    };
}

static void lie_of_device(unsigned lie, hdi_message_welcome *w)
{
    *w = (hdi_message_welcome){.device_count = 2, .provider = "host", .facts = good_facts()};
    w->facts.granule = lie == LIE_NO_GRANULE ? 0 : lie == LIE_ODD_GRANULE ? 12289 : w->facts.granule;
    w->facts.memory_bytes = lie == LIE_NO_MEMORY ? 0 : lie == LIE_ALL_MEMORY ? UINT64_MAX : w->facts.memory_bytes;
    w->device_count = lie == LIE_MANY_DEVICES ? INT32_MAX : lie == LIE_LESS_THAN_NO_DEVICES ? INT32_MIN : 2;
    if (lie == LIE_NO_LIMITS) {
        w->facts.limits = (hdi_limits){0};
        w->facts.multiprocessors = 0;
    }
    if (lie == LIE_STATUS) {
        w->status = INT32_MIN;
        memset(w->text, '%', sizeof w->text);
        memset(w->provider, 'n', sizeof w->provider);
    }
}

static void *lie_on(void *argument)
{
    int socket = (int)(intptr_t)argument;
    const char *text = getenv("HEDDLE_TEST_LIE");
    unsigned lie = (unsigned)strtoul(text ? text : "0", NULL, 10);
    static _Thread_local hdi_message m;
    uint64_t state = lie * 977u + 1;
    for (;;) {
        size_t n;
        int given[HDI_WIRE_DESCRIPTORS], n_given;
        if (hdi_wire_receive(socket, &m, sizeof m, &n, given, HDI_WIRE_DESCRIPTORS, &n_given, INT64_MAX) ||
            lie == LIE_END) {
            _exit(0);
        }
        hdi_wire_close(given, n_given);
        uint32_t kind = m.header.kind | HDI_MESSAGE_REPLY;
        hdi_message_begin(&m, kind, m.header.serial);
        if (kind == (HDI_MESSAGE_DISCOVER | HDI_MESSAGE_REPLY) || kind == (HDI_MESSAGE_HELLO | HDI_MESSAGE_REPLY)) {
            lie_of_device(lie, &m.payload.welcome);
        } else if (lie > LIE_YES) {
            for (size_t i = sizeof m.header; i < hdi_message_bytes(kind); i++) {
                state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
                ((unsigned char *)&m)[i] = (unsigned char)(state >> 56);
            }
            m.header.code = state >> 40 & 1 ? 0 : (int)(state >> 20 & 1023);
        }
        m.header.kind = lie == LIE_OTHER_KIND ? HDI_MESSAGE_MAP | HDI_MESSAGE_REPLY : kind;
        size_t said = hdi_message_bytes(kind) / (lie == LIE_HALF ? 2 : 1);
        int one = 0; /* this program's standard input */
        int n_one = lie == LIE_DESCRIPTORS || (kind == (HDI_MESSAGE_EXPORT | HDI_MESSAGE_REPLY) && !m.header.code);
        if (hdi_wire_send(socket, &m, said, &one, n_one, INT64_MAX)) {
            _exit(0);
        }
    }
}

static int be_a_liar(void)
{
    pthread_t code;
    if (pthread_create(&code, NULL, lie_on, (void *)(intptr_t)HDI_WORKER_CODE_SOCKET)) {
        return 1;
    }
    lie_on((void *)(intptr_t)HDI_WORKER_MEMORY_SOCKET);
    return 0;
}

/* Acts like a program that noticed nothing: every call returns, with any status. */
static void use_a_liar(hd_runtime *runtime)
{
    hd_device_info info = {.size = sizeof info};
    hd_device_get_info(runtime, 0, &info);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *pinned = NULL;
    static unsigned char some[bytes];
    if (lane && !hd_alloc(lane, bytes, &x)) {
        hd_ticket ticket = {NULL, 0};
        hd_fill(x, 0, 1, bytes, &ticket);
        hd_wait(ticket, CONF_MILLISECOND);
        hd_read(x, 0, some, bytes);
    }
    hd_alloc_host(runtime, bytes, &pinned);
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    if (!hd_module_get_builtin(runtime, &module)) {
        hd_kernel_get(module, "hd_fill_u32", &kernel);
    }
    hd_device_restart(runtime, 0);
    hd_free(x);
    hd_free(pinned);
}

static void a_worker_that_lies(void **state)
{
    (void)state;
    char settings[PATH_MAX + 200], self[PATH_MAX] = "";
    CONF_TRUE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(settings, sizeof settings,
             "worker=%s worker_timeout=1000 close_timeout=1000 transfer_timeout=1000 submit_timeout=1000 peers=trust",
             self);
    for (int lie = 0; lie < LIES; lie++) {
        char number[16];
        snprintf(number, sizeof number, "%d", lie);
        setenv("HEDDLE_TEST_LIE", number, 1);
        hd_options options = {.size = sizeof options, .settings = settings};
        hd_runtime *runtime = NULL;
        hd_status status = hd_open(&options, &runtime);
        CONF_TRUE(status != HD_OK || lie == LIE_MANY_DEVICES || lie >= LIE_YES);
        if (status == HD_OK) {
            use_a_liar(runtime);
            hd_close(runtime);
        }
    }
    unsetenv("HEDDLE_TEST_LIE");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "device=", 7) == 0) {
        return be_a_liar();
    }
    if (CONF_TSAN) {
        return test_skip("what is written over here races with its readers, on purpose");
    }
    wk_begin("test_worker_hostile");
    alarm(250); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        CONF_CASE(done_beyond_what_was_submitted),
        CONF_CASE(done_goes_back),
        CONF_CASE(no_room_for_ever),
        CONF_CASE(positions_of_a_dead_worker),
        CONF_CASE(a_peer_writes_over_the_dead),
        CONF_CASE(a_log_half_written_for_ever),
        CONF_CASE(a_log_half_written_by_the_dead),
        CONF_CASE(records_of_nothing),
        CONF_CASE(a_lane_that_stays_failed),
        CONF_CASE(a_wait_for_nothing),
        CONF_CASE(a_worker_finds_nonsense),
        CONF_CASE(a_worker_refuses_a_command),
        CONF_CASE(nobody_is_woken),
        CONF_CASE(anything_is_written_anywhere),
        CONF_CASE(a_worker_that_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
