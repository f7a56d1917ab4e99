/* test_trace_waits.c - records of threads that wait, and of the room that their work takes.
 *
 * Promise: A call that waits makes a pause that names the work; a ring keeps unfinished work.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: no check measures how long something takes. A call that found its work done did not wait,
 * so the test repeats it.
 */
#include "traces.h"

enum { BYTES = 4096, TURNS = 200 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *pinned;
    conf_slow slow;
    hd_ticket ticket; /* of the awaited work */
} scene;

static void make_scene(scene *s)
{
    *s = (scene){.runtime = conf_open(NULL)};
    s->lane = conf_default_lane(s->runtime, 0);
    conf_slow_make(&s->slow, s->runtime, 0);
    CONF_OK(hd_alloc_host(s->runtime, BYTES, &s->pinned));
}

static void end_scene(scene *s)
{
    conf_slow_free(&s->slow);
    hd_free(s->pinned);
    conf_close(s->runtime);
}

/* ---- calls ---- */

static unsigned char memory[BYTES];

static void waits_for_ticket(scene *s)
{
    CONF_OK(hd_wait(s->ticket, 60 * CONF_SECOND));
}

static void waits_for_lane(scene *s)
{
    CONF_OK(hd_lane_wait(s->lane, 60 * CONF_SECOND));
}

static void resets_lane(scene *s)
{
    CONF_OK(hd_lane_reset(s->lane, 60 * CONF_SECOND));
}

static void waits_for_buffer(scene *s)
{
    CONF_OK(hd_buffer_wait(s->slow.sink, HD_READ, 60 * CONF_SECOND));
}

static void reads(scene *s)
{
    CONF_OK(hd_read(s->slow.sink, 0, memory, 64));
}

static void reads_a_box(scene *s)
{
    hd_box box = {.size = sizeof box, .row = 64, .dims = 1, .count = {8}, .dst_stride = {128}, .src_stride = {128}};
    CONF_OK(hd_read_box(s->slow.sink, 0, memory, &box));
}

static void maps(scene *s)
{
    void *at = NULL;
    CONF_OK(hd_copy(s->pinned, 0, s->slow.sink, 0, BYTES, NULL));
    CONF_OK(hd_map(s->pinned, HD_READ, &at));
    CONF_OK(hd_unmap(s->pinned));
}

static void takes_an_element(scene *s)
{
    CONF_OK(hd_copy(s->pinned, 0, s->slow.sink, 0, BYTES, NULL));
    CONF_TRUE(hd_element(s->pinned, 0, 4, HD_READ) != NULL);
}

static void reads_pinned(scene *s)
{
    CONF_OK(hd_copy(s->pinned, 0, s->slow.sink, 0, BYTES, NULL));
    CONF_OK(hd_read(s->pinned, 0, memory, 64));
}

static void writes_pinned(scene *s)
{
    CONF_OK(hd_copy(s->pinned, 0, s->slow.sink, 0, BYTES, NULL));
    CONF_OK(hd_write(s->pinned, 0, memory, 64));
}

/* ---- cases ---- */

/* True if a pause of this thread ends after `from`, for the slow work or for work that waits for
 * it. */
static bool has_pause(const content *c, const scene *s, int64_t from)
{
    size_t at = 0;
    for (const hdi_record *r; (r = next(c, HDI_RECORD_PAUSE, &at)) != NULL;) {
        CONF_TRUE(r->time <= r->pause.ended);
        bool before = r->pause.lane == global(s->lane) && r->pause.position < s->ticket.sequence;
        if (r->kind == HDI_RECORD_PAUSE_WAIT && r->thread == (uint32_t)syscall(SYS_gettid) && r->pause.ended >= from &&
            r->pause.position > 0 && !before) {
            return true;
        }
    }
    return false;
}

static void calls_that_wait_are_pauses(void **state)
{
    (void)state;
    static void (*const calls[])(scene *) = {
        waits_for_ticket, waits_for_lane, resets_lane,      waits_for_buffer, reads,
        reads_a_box,      maps,           takes_an_element, reads_pinned,     writes_pinned};
    scene s;
    make_scene(&s);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        bool found = false;
        for (int turn = 0; turn < TURNS && !found; turn++) {
            CONF_OK(hd_trace_start(s.runtime, in_folder("t"), NULL));
            conf_slow_run(&s.slow, s.lane, NULL, 0, 2, &s.ticket);
            int64_t from = conf_now();
            calls[i](&s);
            /* except after writes, nothing is left to wait for */
            CONF_OK(hd_lane_wait(s.lane, 60 * CONF_SECOND));
            CONF_OK(hd_trace_stop(s.runtime, NULL));
            content c = read_file(file_path);
            found = has_pause(&c, &s, from);
            free(c.records);
        }
        if (!found) {
            fail_msg("call %zu waited, and is no pause", i);
        }
    }
    end_scene(&s);
}

/* A program may often query whether work is done. */
static void a_look_is_no_pause(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    CONF_OK(hd_trace_start(s.runtime, in_folder("t"), NULL));
    conf_slow_run(&s.slow, s.lane, NULL, 0, 2, &s.ticket);
    while (hd_wait(s.ticket, 0) == HD_ERROR_TIMEOUT) {
    }
    while (hd_buffer_wait(s.slow.sink, HD_READ_WRITE, 0) == HD_ERROR_TIMEOUT) {
    }
    CONF_OK(hd_trace_stop(s.runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0;
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_PAUSE, &at)) != NULL;) {
        CONF_TRUE(r->kind != HDI_RECORD_PAUSE_WAIT);
    }
    free(c.records);
    end_scene(&s);
}

/* The case waits for each operation before the next, so it is alone in its ring. */
static void done_work_takes_no_room(void **state)
{
    (void)state;
    scene s;
    make_scene(&s);
    CONF_OK(hd_trace_start(s.runtime, in_folder("t"), NULL));
    for (int i = 0; i < TURNS; i++) {
        CONF_OK(hd_fill(s.slow.sink, 0, 0, BYTES, &s.ticket));
        CONF_OK(hd_wait(s.ticket, 60 * CONF_SECOND));
    }
    CONF_OK(hd_trace_stop(s.runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0, fills = 0;
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_SUBMIT, &at)) != NULL;) {
        if (r->submit.lane == global(s.ticket.lane)) {
            CONF_EQUAL(r->submit.ring, r->submit.position - r->submit.before);
            fills++;
        }
    }
    CONF_EQUAL(fills, TURNS);
    free(c.records);
    end_scene(&s);
}

/* A thread that found the ring full waited for work of the lane, and left the ring nearly full. */
static void a_full_ring_names_its_work(void **state)
{
    (void)state;
    enum { SLOTS = 64 };
    hd_runtime *runtime = conf_open("lane_slots=64");
    if (conf_is_inline(runtime)) {
        conf_close(runtime); /* with this placement the submitting thread is the engine */
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    for (int i = 0; i < TURNS; i++) {
        CONF_OK(conf_sum(lane, slow.kernels, slow.sink, 0, slow.zeros, 0, slow.n, 1, NULL));
    }
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0, rooms = 0, waits = 0, full = 0;
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_PAUSE, &at)) != NULL;) {
        CONF_TRUE(r->time <= r->pause.ended);
        waits += r->kind == HDI_RECORD_PAUSE_WAIT && r->pause.lane == global(lane);
        if (r->kind == HDI_RECORD_PAUSE_ROOM && r->pause.lane == global(lane)) {
            CONF_TRUE(r->pause.position > 0);
            rooms++;
        }
    }
    at = 0;
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_SUBMIT, &at)) != NULL;) {
        CONF_TRUE(r->submit.ring <= SLOTS && r->submit.ring >= r->submit.position - r->submit.before);
        full += r->submit.lane == global(lane) && r->submit.ring > SLOTS / 2;
    }
    CONF_TRUE(rooms > 0 && waits == 1 && full > 0);
    free(c.records);
    conf_slow_free(&slow);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_trace_waits");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(calls_that_wait_are_pauses),
        FOLDER_CASE(a_look_is_no_pause),
        FOLDER_CASE(done_work_takes_no_room),
        FOLDER_CASE(a_full_ring_names_its_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
