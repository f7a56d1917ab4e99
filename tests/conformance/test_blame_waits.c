/* test_blame_waits.c - a call whose inner wait reaches its limit names the operation that it waits
 * for, and since when.
 *
 * Promise: A wait that reaches its limit names the operation that holds it up, and since when.
 *
 * It waits for room in a lane, for a save, for pinned chunks, or for earlier work on its bytes.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: one kernel holds everything up until its flag ends it, so the limits pass on any machine,
 * however busy.
 */
#include "workers.h"

#include "transfer/staging.h"
#include "engine/engine.h"

enum { words = 256, bytes = words * 4 };

typedef struct scene {
    hd_runtime *runtime;
    wk_kernels k;
    hd_lane *lane;
    hd_buffer *x, *y; /* the work behind the kernel writes x, not y */
    wk_gate gate;
    int64_t before, runs; /* the kernel was submitted after `before`, and ran at `runs` */
} scene;

/* Starts a kernel in a lane, and behind it one that writes x. False: there are no such kernels. */
static bool open_scene(scene *s, int device, const char *settings)
{
    *s = (scene){.runtime = conf_open(settings)};
    s->k = wk_load(s->runtime);
    if (!s->k.module || hd_device_count(s->runtime) <= device) {
        conf_close(s->runtime);
        return false;
    }
    wk_warm(s->runtime, device, s->k);
    CONF_OK(hd_lane_create(s->runtime, device, &s->lane));
    CONF_OK(hd_alloc_with(s->lane, bytes, &(hd_alloc_options){.size = sizeof(hd_alloc_options), .flags = HD_ALLOC_KEEP},
                          &s->x));
    CONF_OK(hd_alloc(s->lane, bytes, &s->y));
    CONF_OK(hd_fill(s->x, 0, 0, bytes, NULL));
    CONF_OK(hd_fill(s->y, 0, 0, bytes, NULL));
    /* No read here: on a busy machine it may take longer than transfer_timeout. */
    CONF_OK(hd_buffer_wait(s->x, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(s->y, HD_READ_WRITE, 60 * CONF_SECOND));
    return true;
}

static void hold_up(scene *s)
{
    s->before = conf_now();
    wk_gate_shut(&s->gate, s->runtime, s->lane, s->k);
    s->runs = conf_now();
    /* it may run before its engine notes that */
    while (hd_wait(s->gate.ticket, CONF_MILLISECOND) == HD_ERROR_TIMEOUT &&
           strstr(hd_message(), "not seen to start") != NULL) {
    }
    CONF_OK(wk_add_one(s->lane, s->k, s->x, words, NULL));
}

static void close_scene(scene *s)
{
    wk_gate_open(&s->gate);
    CONF_OK(hd_lane_wait(s->lane, 60 * CONF_SECOND));
    conf_close(s->runtime);
}

/* True if the time in "nothing has ended in lane 3 for 1.5 s" is right to its one decimal. It is at
 * least the time since the kernel ran, and at most the time since it was submitted. */
static bool stands_as_long(const scene *s, const char *message, int64_t asked)
{
    char start[64], unit[4];
    double number;
    snprintf(start, sizeof start, "; nothing has ended in lane %d for ", hd_lane_number(s->lane));
    const char *at = strstr(message, start);
    if (!at || sscanf(at + strlen(start), "%lf %3s", &number, unit) != 2) {
        return false;
    }
    double scale = strcmp(unit, "s") == 0 ? 1e9 : strcmp(unit, "ms") == 0 ? 1e6 : strcmp(unit, "us") == 0 ? 1e3 : 1;
    double ns = number * scale, slack = scale * 0.1;
    return ns + slack >= (double)(asked - s->runs) && ns - slack <= (double)(conf_now() - s->before);
}

/* Checks that a limit passed, and that the failure names the kernel that still runs. `asked`: time
 * of the call. */
static void check_named(hd_status status, const scene *s, const char *call, const char *what, int64_t asked)
{
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    if (status != HD_ERROR_TIMEOUT || strncmp(e.message, call, strlen(call)) != 0 || !strstr(e.message, what) ||
        !strstr(e.message, "unfinished on device ") || !strstr(e.message, "kernel 'spin' (lane ") ||
        strcmp(e.kernel, "spin") != 0 || e.lane != hd_lane_number(s->lane) || e.device != hd_lane_device(s->lane) ||
        e.ticket != s->gate.ticket.sequence || !stands_as_long(s, e.message, asked)) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s, kernel '%s' (lane %d, ticket %llu): %s", call, hd_status_name(status),
                     e.kernel, e.lane, (unsigned long long)e.ticket, e.message);
    }
}

#define NAMED(call, function, what)                                                                                    \
    do {                                                                                                               \
        int64_t asked_ = conf_now();                                                                                   \
        check_named((call), &s, function, what, asked_);                                                               \
    } while (0)

/* ---- waits ---- */

static void a_full_lane(void **state)
{
    (void)state;
    scene s;
    if (!open_scene(&s, 0, "host_devices=1 submit_timeout=30 lane_slots=64")) {
        skip();
    }
    hold_up(&s);
    hd_status status;
    int64_t asked;
    do {
        asked = conf_now();
        status = wk_launch_one(s.lane, s.k.hello, s.y, NULL);
    } while (status == HD_OK);
    check_named(status, &s, "hd_launch", "is full (option submit_timeout)", asked);
    const char *later = strstr(hd_message(), "hello"), *hides = strstr(hd_message(), "or it ended");
    CONF_TRUE(!later || (hides && hides < later));
    NAMED(hd_launch(s.lane, s.k.hello, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, (hd_arg[]){hd_inout(s.y)}, 1, NULL),
          "hd_launch", "is full");
    close_scene(&s);
}

static void a_save_before(void **state)
{
    (void)state;
    scene s;
    if (!open_scene(&s, 0, "host_devices=1 transfer_timeout=30")) {
        skip();
    }
    hold_up(&s);
    hd_status status;
    int64_t asked;
    int saves = 0;
    do { /* one is under way, and the next one waits for it */
        asked = conf_now();
        status = hd_buffer_save(s.x, NULL);
    } while (status == HD_OK && ++saves < 10);
    check_named(status, &s, "hd_buffer_save", "the save before this one is not finished", asked);
    close_scene(&s);
}

#define IN_USE "all pinned chunks are in use (option transfer_timeout)"
#define EARLIER "earlier work on the bytes has not ended (option transfer_timeout)"

/* Other threads use all chunks behind the kernel. Once they give the chunks back, other bytes do
 * not wait for them. */
static void chunks(void **state)
{
    (void)state;
    const hd_box rows = {.size = sizeof rows, .row = 8, .dims = 1, .count = {9}, .dst_stride = {8}, .src_stride = {16}};
    for (int given = 0; given < 2; given++) {
        scene s;
        if (!open_scene(&s, 0, given ? "host_devices=1" : "host_devices=1 transfer_timeout=30")) {
            skip();
        }
        hold_up(&s);
        uint8_t got[bytes];
        hdi_staging *pool = hdi_staging_of(s.runtime->devices[0], false, false);
        CONF_TRUE(pool != NULL);
        hdi_chunk *taken[HDI_STAGING_MOST];
        for (uint32_t i = 0; i < pool->most; i++) {
            CONF_OK(hdi_staging_await(pool, HDI_STAGING_WAIT, INT64_MAX, &taken[i]));
        }
        for (uint32_t i = 0; i < pool->most; i++) {
            hd_ticket use;
            CONF_OK(hd_copy(hdi_buffer_handle(taken[i]->buffer), 0, s.x, 0, bytes, &use));
            if (given) {
                hdi_staging_give(pool, taken[i], (hdi_point){hdi_lane_any(use.lane)->global, use.sequence}, false);
            }
        }
        if (given) {
            CONF_OK(hd_read_box(s.y, 0, got, &rows));
        } else {
            NAMED(hd_read_box(s.y, 0, got, &rows), "hd_read_box", IN_USE);
        }
        close_scene(&s);
    }
}

static void chunks_of_writes(void **state)
{
    (void)state;
    scene s;
    if (!open_scene(&s, 0, "host_devices=1 transfer_timeout=30")) {
        skip();
    }
    hold_up(&s);
    uint8_t from[bytes] = {0};
    hd_status status;
    int64_t asked;
    do { /* each takes one, until all are in use */
        asked = conf_now();
        status = hd_write(s.x, 0, from, bytes);
    } while (status == HD_OK);
    check_named(status, &s, "hd_write", EARLIER, asked);
    size_t large = (size_t)256 << 20;
    uint8_t *much = calloc(1, large);
    hd_buffer *big = NULL;
    CONF_TRUE(much != NULL);
    CONF_OK(hd_alloc(s.lane, large, &big));
    CONF_OK(
        hd_launch(s.lane, s.k.hello, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, (hd_arg[]){hd_inout(big)}, 1, NULL));
    asked = conf_now();
    check_named(hd_write(big, 0, much, large), &s, "hd_write", EARLIER, asked);
    free(much);
    close_scene(&s);
}

static void chunks_between_devices(void **state)
{
    (void)state;
    scene s;
    if (!open_scene(&s, 0, "host_devices=2 host_peers=none peers=trust transfer_timeout=30")) {
        skip();
    }
    if (hd_device_count(s.runtime) < 2 || conf_on_gpus) {
        conf_close(s.runtime);
        skip();
    }
    hd_buffer *there = NULL;
    CONF_OK(hd_alloc(conf_default_lane(s.runtime, 1), bytes, &there));
    hold_up(&s);
    hdi_staging *pool = hdi_staging_between(s.runtime, 0, 1, HDI_STAGED_SMALL);
    CONF_TRUE(pool != NULL);
    for (int i = 0; i < HDI_STAGED_SMALL_CHUNKS; i++) {
        hdi_chunk *taken;
        CONF_OK(hdi_staging_await(pool, HDI_STAGING_IN_USE, INT64_MAX, &taken));
        CONF_OK(hd_copy(hdi_buffer_handle(taken->buffer), 0, s.x, 0, bytes, NULL));
    }
    NAMED(hd_copy(there, 0, s.y, 0, bytes, NULL), "hd_copy", IN_USE);
    close_scene(&s);
}

int main(void)
{
    conf_begin("test_blame_waits");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_full_lane),      CONF_CASE(a_save_before),          CONF_CASE(chunks),
        CONF_CASE(chunks_of_writes), CONF_CASE(chunks_between_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
