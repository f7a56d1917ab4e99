/* test_progress_model.c - in random work on one to three devices, work that depends on no held gate
 * ends while gates are held.
 *
 * Promise: Work waits only for its bytes and its lane of the program, whatever is held beside it.
 *
 * Kernels, claims, functions of the program and its streams are gates that the test holds. The
 * model (progress.h) knows the gates on which each operation depends. All others must end while the
 * gates are held: submitted work, and calls that wait, which the test makes then. The test opens
 * the gates in random order, and checks the same after each. At the end all contents equal the
 * model.
 *
 * Environment: HEDDLE_GRAPHS=N graphs of each case, HEDDLE_SEED=N, HEDDLE_ONLY_GRAPH=N.
 * HEDDLE_TEST_LIMIT=N: seconds after which a wait counts as failed. HEDDLE_TEST_GATES=N selects the
 * kinds of gates, as a sum: 1 kernels, 2 claims, 4 functions, 8 functions in lanes, 16 streams.
 * HEDDLE_TEST_WITHOUT=N leaves out parts that progress.h lists.
 *
 * Threads: up to three, each with its own model, and their callers.
 * Locks: none.
 */
#include "progress_operations.h"

/* ---- the world ---- */

static void place_make(traffic *t, place_kind kind, int device, size_t cell)
{
    place *p = &t->places[t->n_places++];
    CONF_TRUE(t->n_places <= most_places);
    *p = (place){.kind = kind, .device = device, .cell = cell, .unit = kind == UNIFIED ? 65536 / chunk_cell : 1};
    size_t bytes = place_bytes(p);
    hd_lane *lane = device < 0 ? NULL : conf_default_lane(w.runtime, device);
    hd_alloc_options options = {.size = sizeof options,
                                .flags = kind == PIECE   ? HD_ALLOC_DEDICATED
                                         : kind == KEEPS ? HD_ALLOC_KEEP
                                                         : 0};
    switch (kind) {
    case PINNED:
        CONF_OK(hd_alloc_host(w.runtime, bytes, &p->buffer));
        break;
    case OWN_PINNED:
        CONF_EQUAL(posix_memalign(&p->memory, 4096, bytes), 0);
        CONF_OK(hd_import_host(w.runtime, p->memory, bytes, NULL, &p->buffer));
        break;
    case OWN_DEVICE:
        p->address = foreign_alloc(&w.driver, device, bytes);
        CONF_OK(hd_import(w.runtime, device, p->address, bytes, NULL, &p->buffer));
        break;
    case UNIFIED:
        CONF_OK(hd_alloc_unified(lane, bytes, &p->buffer));
        break;
    default:
        CONF_OK(hd_alloc_with(lane, bytes, &options, &p->buffer));
        break;
    }
    CONF_OK(hd_fill(p->buffer, 0, 0, bytes, NULL));
}

static void place_free(place *p)
{
    hd_free(p->buffer);
}

static void places_make(traffic *t)
{
    t->n_places = 0;
    for (int d = 0; d < w.devices; d++) {
        place_make(t, PLAIN, d, small_cell);
        place_make(t, PLAIN, d, small_cell);
    }
    place_make(t, PIECE, 0, small_cell);
    place_make(t, KEEPS, w.devices - 1, small_cell);
    place_make(t, PINNED, -1, small_cell);
    place_make(t, PINNED, -1, small_cell);
    if (!w.is_process) {
        place_make(t, OWN_PINNED, -1, small_cell);
        place_make(t, OWN_DEVICE, 0, small_cell);
    }
    place_make(t, UNIFIED, t->number % w.devices, chunk_cell);
    t->n_small = t->n_places;
    for (int d = 0; d < w.devices; d++) {
        place_make(t, PLAIN, d, large_cell);
    }
    place_make(t, PINNED, -1, large_cell);
}

/* Does all first-time work, which takes long: loads code, opens libraries, tests pairs of
 * devices. */
static void traffic_warm(traffic *t)
{
    t->gates_most = 0;
    for (int l = 0; l < t->n_lanes; l++) {
        hd_matmul_info info = {.size = sizeof info};
        CONF_OK(hd_matmul_get_info(t->lanes[l], &info));
        for (int i = 0; i < t->n_places; i++) {
            place *p = &t->places[i];
            if (lane_reaches(t->lanes[l], p)) {
                hd_arg args[] = {hd_u64(0), hd_out_range(p->buffer, 0, 4), hd_in_range(p->buffer, p->cell, 4),
                                 hd_f32(0), hd_u64(1)};
                CONF_OK(hd_launch(t->lanes[l], w.hold, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, 5, NULL));
            }
        }
    }
    for (int i = 0; i < 600; i++) { /* each operation that may use a built-in kernel */
        static bool (*const each[])(traffic * t) = {do_copy, do_copy_box, do_fill, do_transfer, do_matmul};
        (void)each[i % 5](t);
        traffic_settle(t);
    }
}

static void traffic_begin(traffic *t, int number, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    t->number = number;
    t->random.state = seed;
    void *words = NULL;
    CONF_OK(hd_alloc_host(w.runtime, 64 * most_gates, &t->flags));
    CONF_OK(hd_map(t->flags, HD_READ_WRITE, &words));
    t->flag_words = words;
    t->n_lanes = 2 + (int)conf_below(&t->random, most_lanes - 1);
    for (int l = 0; l < t->n_lanes; l++) {
        CONF_OK(hd_lane_create(w.runtime, l % w.devices, &t->lanes[l]));
    }
    for (int d = 0; d < w.devices && !w.is_process; d++) {
        t->streams[d] = foreign_stream(&w.driver, d);
    }
    places_make(t);
    callers_start(t);
    traffic_warm(t);
}

static void traffic_end(traffic *t)
{
    callers_stop(t);
    for (int i = 0; i < t->n_places; i++) {
        place_free(&t->places[i]);
    }
    for (int l = 0; l < t->n_lanes; l++) {
        CONF_OK(hd_lane_destroy(t->lanes[l]));
    }
    for (int d = 0; d < w.devices && !w.is_process; d++) {
        foreign_enter(&w.driver, d);
        CONF_EQUAL(w.driver.cuStreamDestroy(t->streams[d]), 0);
        foreign_leave(&w.driver);
    }
    hd_free(t->flags);
    free(t->pending);
    t->pending = NULL;
}

static void world_open(const char *settings)
{
    w.runtime = conf_open(settings);
    w.host = conf_is_host(w.runtime);
    w.is_process = conf_is_process(w.runtime);
    w.devices = hd_device_count(w.runtime) < most_devices ? hd_device_count(w.runtime) : most_devices;
    w.hold = progress_kernel(w.runtime);
    for (int d = 0; d < w.devices; d++) {
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(w.runtime, d, &info));
        w.peers[d] = info.peers;
    }
    if (!w.is_process) {
        foreign_begin(&w.driver, w.runtime);
    }
}

static void world_close(int n_traffics)
{
    for (int i = 0; i < n_traffics; i++) {
        traffic_end(&w.traffics[i]);
    }
    conf_close(w.runtime);
    /* imported memory belongs to the program again once nothing uses it */
    for (int i = 0; i < n_traffics; i++) {
        for (int p = 0; p < w.traffics[i].n_places; p++) {
            place *own = &w.traffics[i].places[p];
            free(own->memory);
            if (own->address != 0) {
                foreign_free(&w.driver, own->device, own->address);
            }
        }
    }
    if (!w.is_process) {
        foreign_end(&w.driver);
    }
}

/* ---- a graph ---- */

static const struct {
    bool (*run)(traffic *);
    unsigned weight;
} kinds[] = {
    {do_launch, 22}, {do_matmul, 5},    {do_lane_after, 3}, {do_lane_renew, 1},   {do_fill, 8},
    {do_copy, 20},   {do_copy_box, 6},  {do_save, 3},       {do_transfer, 18},    {do_look, 6},
    {do_claim, 7},   {do_host_call, 6}, {do_lane_call, 5},  {do_stream_claim, 4},
};
enum { n_kinds = sizeof kinds / sizeof *kinds };

static void traffic_submit(traffic *t, unsigned settled)
{
    unsigned weights = 0;
    for (int i = 0; i < n_kinds; i++) {
        weights += kinds[i].weight;
    }
    for (int done = 0, tries = 0; done < t->operations && tries < 20 * t->operations; tries++) {
        unsigned pick = (unsigned)conf_below(&t->random, weights);
        int kind = 0;
        while (pick >= kinds[kind].weight) {
            pick -= kinds[kind++].weight;
        }
        done += kinds[kind].run(t);
        if (conf_chance(&t->random, settled)) {
            traffic_settle(t);
        }
    }
}

static void gates_begin(traffic *t)
{
    for (int g = 0; g < t->n_gates; g++) {
        if (t->held >> g & 1) {
            gate_begins(t, g);
        }
    }
}

static void contents_check(traffic *t)
{
    for (int i = 0; i < t->n_places; i++) {
        place *p = &t->places[i];
        if (!p->touched) {
            continue;
        }
        job j = {.kind = JOB_READ, .buffer = p->buffer, .cell = p->cell, .n = cells, .step = 1};
        int row = progress_note(t, "place %d (%s, device %d), at the end", i, progress_place_name(p), p->device);
        memcpy(j.values, p->value, sizeof j.values);
        j.data = conf_memory(place_bytes(p));
        progress_ok(t, row, job_make_call(&j));
        job_check(t, &j, row);
    }
}

static void graph_forget(traffic *t)
{
    for (int g = 0; g < t->n_gates; g++) {
        sem_destroy(&t->of[g].begins);
        sem_destroy(&t->of[g].open);
    }
    for (int i = 0; i < t->n_places; i++) {
        place *p = &t->places[i];
        memset(p->writer, 0, sizeof p->writer);
        memset(p->readers, 0, sizeof p->readers);
        p->saving = 0;
        p->touched = false;
    }
    memset(t->lane_mask, 0, sizeof t->lane_mask);
    memset(t->stream_mask, 0, sizeof t->stream_mask);
    t->n_gates = t->n_claims = t->n_host_calls = t->logged = 0;
}

static void *graph_run(void *argument)
{
    traffic *t = argument;
    traffic_submit(t, t->operations > 100 ? 1 : 25);
    traffic_settle(t);
    gates_begin(t);
    while (t->held != 0) {
        gate_open_some(t);
        traffic_settle(t);
        gates_begin(t);
    }
    contents_check(t);
    graph_forget(t);
    return NULL;
}

/* Runs one graph of each traffic, at the same time. */
static void graphs_run(int n_traffics)
{
    for (int i = 1; i < n_traffics; i++) {
        CONF_EQUAL(pthread_create(&w.traffics[i].thread, NULL, graph_run, &w.traffics[i]), 0);
    }
    graph_run(&w.traffics[0]);
    for (int i = 1; i < n_traffics; i++) {
        CONF_EQUAL(pthread_join(w.traffics[i].thread, NULL), 0);
    }
}

typedef struct shape {
    int operations, gates, per_runtime;
    unsigned large; /* percent of graphs */
} shape;

static uint64_t graphs, waited, direct;

static void world_open_for(uint64_t seed, int number, int n_traffics)
{
    static const char *const peers[] = {"all", "none", "ring"};
    char settings[240];
    conf_random r = {seed};
    snprintf(
        settings, sizeof settings,
        "host_devices=%d host_peers=%s host_schedule=%llu call_threads=64 transfer_timeout=%lld submit_timeout=%lld",
        1 + number % most_devices, peers[conf_below(&r, 3)],
        number % 4 == 3 ? 0ull : (unsigned long long)(conf_next(&r) >> 1),
        (long long)(progress_limit() / CONF_MILLISECOND), (long long)(progress_limit() / CONF_MILLISECOND));
    world_open(settings);
    for (int i = 0; i < n_traffics; i++) {
        traffic_begin(&w.traffics[i], i, conf_next(&r));
    }
}

static void random_graphs(int count, int part, shape s)
{
    int only = (int)conf_number_from("HEDDLE_ONLY_GRAPH", 0);
    w.seed = conf_number_from("HEDDLE_SEED", 1);
    w.gate_kinds = conf_number_from("HEDDLE_TEST_GATES", UINT64_MAX);
    w.without = conf_number_from("HEDDLE_TEST_WITHOUT", WITHOUT_FRONT);
    for (int g = 0; g < count; g++) {
        int n_traffics = 1 + g / s.per_runtime % most_traffics, number = part * 100000 + g;
        if (only != 0 && only / s.per_runtime != number / s.per_runtime) {
            continue;
        }
        if (g % s.per_runtime == 0) {
            world_open_for(w.seed * 7919 + (uint64_t)number, g / s.per_runtime, n_traffics);
        }
        conf_watch("a random graph", 300);
        w.graph = number;
        for (int i = 0; i < n_traffics; i++) {
            traffic *t = &w.traffics[i];
            t->random.state = w.seed * 1000003 + (uint64_t)(number * most_traffics + i);
            t->operations = s.operations / 3 + (int)conf_below(&t->random, (uint64_t)s.operations);
            t->gates_most = 1 + (int)conf_below(&t->random, (uint64_t)s.gates);
            t->large = conf_chance(&t->random, s.large);
        }
        if (only == 0 || only == number) {
            graphs_run(n_traffics);
            graphs += (uint64_t)n_traffics;
        }
        if ((g + 1) % s.per_runtime == 0 || g + 1 == count) {
            for (int i = 0; i < n_traffics; i++) {
                waited += w.traffics[i].waited;
                direct += w.traffics[i].direct;
            }
            world_close(n_traffics);
        }
    }
}

static void small_graphs(void **state)
{
    (void)state;
    int usual = CONF_TSAN || CONF_ASAN ? 200 : conf_on_gpus ? 300 : 1800;
    random_graphs((int)conf_number_from("HEDDLE_GRAPHS", (uint64_t)usual), 1,
                  (shape){.operations = 24, .gates = 6, .per_runtime = 100, .large = 3});
}

/* Many operations wait, each for other gates. Writes and staged copies among them keep pinned
 * memory, which limits their number. */
static void many_are_blocked(void **state)
{
    (void)state;
    int usual = CONF_TSAN || CONF_ASAN ? 3 : conf_on_gpus ? 3 : 9;
    random_graphs((int)conf_number_from("HEDDLE_GRAPHS", (uint64_t)usual), 2,
                  (shape){.operations = 120, .gates = 40, .per_runtime = 3, .large = 0});
}

static void large_copies(void **state)
{
    (void)state;
    int usual = CONF_TSAN || CONF_ASAN ? 6 : conf_on_gpus ? 6 : 24;
    random_graphs((int)conf_number_from("HEDDLE_GRAPHS", (uint64_t)usual), 3,
                  (shape){.operations = 40, .gates = 6, .per_runtime = 6, .large = 100});
}

int main(void)
{
    conf_failure_ends_program = true; /* gates may be held */
    conf_begin("test_progress_model");
    hd_runtime *runtime = conf_open(NULL);
    bool has_kernel = progress_kernel(runtime) != NULL;
    conf_close(runtime);
    if (!has_kernel) {
        fprintf(stderr, "test_progress_model: skipped: HEDDLE_TOOL names no tool that makes kernel files\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        CONF_CASE(small_graphs),
        CONF_CASE(many_are_blocked),
        CONF_CASE(large_copies),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fprintf(stderr, "test_progress_model: %llu graphs; while gates were held %llu operations and %llu calls ended\n",
            (unsigned long long)graphs, (unsigned long long)waited, (unsigned long long)direct);
    return failed;
}
