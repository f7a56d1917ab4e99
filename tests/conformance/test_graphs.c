/* test_graphs.c - random work over random lanes, devices and buffers, compared byte for byte with a
 * model that does the same operations one after the other.
 *
 * Promise: Random work gives the bytes of the same operations made one after the other.
 * Tier: stress.
 *
 * Threads: one to three submit to the same lanes and buffers.
 * Locks: `world.lock` is held around each submission together with the same operation on the model.
 * So it defines the order of submission. Waits happen outside it.
 * Always: the model equals the buffers once all submitted work is done. Values of `floats` buffers
 * are whole numbers so small that every sum is exact in any order.
 *
 * A seed gives the same graphs again (with more than one thread, their interleaving differs). On a
 * difference the test prints the operations that touched the byte.
 *
 * Launches form chains of at most 32 or 4. On host devices the test asserts chains, since there
 * they do not depend on how long kernels take. Graphs in each placement: 1,131 on host devices
 * (3,393 in all, run by .ci/run in the build `debug`), and 303 on GPUs. Under a sanitizer: 213,
 * which CI also runs, in one placement for each sanitizer. To run 10,000 graphs under perturbed
 * schedules, in each placement (a quarter of all graphs is not perturbed; the last line prints the
 * numbers):
 *     HEDDLE_GRAPHS=13300 HEDDLE_DRIVER=host HEDDLE_PLACEMENT=thread \
 *     build/debug/tests/test_conformance_graphs
 */
#include "graphs_claims.h"

#include "sweeps/worker/counting.h"

/* ---- operations ---- */

/* Each submits one operation and applies it to the model. Returns false if the choice is
 * impossible. *out: its ticket. */

static const uint32_t block_sizes[] = {32, 64, 128, 256};

/* Passes some buffers among the first `n` arguments by address, and names them behind all
 * arguments. Returns the new number of arguments. */
static size_t give_addresses(conf_random *r, hd_arg *args, size_t n)
{
    size_t all = n;
    for (size_t i = 0; i < n; i++) {
        if (args[i].kind == HD_ARG_BUFFER && conf_chance(r, 25)) {
            args[all++] = hd_arg_implicit(args[i]);
            args[i] = hd_address(hd_buffer_address(args[i].value.buffer) + args[i].offset);
        }
    }
    return all;
}

static bool do_kernel_fill(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    int at = some_item(r), device = hd_lane_device(lane);
    item *y = &w.items[at];
    if (y->bytes < 4) {
        return false;
    }
    range a = some_range(r, y, 4);
    uint32_t word = some_word(r, y), block = block_sizes[conf_below(r, 4)];
    uint64_t n = a.bytes / 4;
    hd_arg args[4] = {hd_out_range(y->buffer, a.offset, a.bytes), hd_u64(n), hd_u32(word)};
    size_t n_args = give_addresses(r, args, 3);
    hd_status status = hd_launch(lane, w.k.fill, conf_grid(n, block), conf_dims(block, 1, 1), 0, args, n_args, out);
    if (!reaches(device, y)) {
        CONF_FAILS(status, HD_ERROR_UNREACHABLE);
        return false;
    }
    if (status == HD_ERROR_UNREACHABLE && !w.host) {
        return false; /* the driver allows it, but the link did not deliver */
    }
    CONF_OK(status);
    note(at, a.offset, a.offset + a.bytes, "fill kernel, lane %d:%d, word %08x", device, hd_lane_number(lane), word);
    fill_model(at, a, word);
    return true;
}

static bool do_kernel_copy(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    int to = some_item(r), from = some_item(r), device = hd_lane_device(lane);
    item *y = &w.items[to], *x = &w.items[from];
    if (y->bytes < 4 || x->bytes < 4 || (y->floats && !x->floats)) {
        return false;
    }
    range a = some_range(r, y, 4), b = some_range(r, x, 4);
    a.bytes = b.bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    if (overlap(to, a, from, b)) {
        return false;
    }
    uint64_t n = a.bytes / 4;
    uint32_t block = block_sizes[conf_below(r, 4)];
    hd_arg args[5] = {hd_out_range(y->buffer, a.offset, a.bytes), hd_in_range(x->buffer, b.offset, b.bytes), hd_u64(n)};
    size_t n_args = give_addresses(r, args, 3);
    hd_status status = hd_launch(lane, w.k.copy, conf_grid(n, block), conf_dims(block, 1, 1), 0, args, n_args, out);
    if (!reaches(device, y) || !reaches(device, x)) {
        CONF_FAILS(status, HD_ERROR_UNREACHABLE);
        return false;
    }
    if (status == HD_ERROR_UNREACHABLE && !w.host) {
        return false;
    }
    CONF_OK(status);
    note(to, a.offset, a.offset + a.bytes, "copy kernel, lane %d:%d, from buffer %d at %zu", device,
         hd_lane_number(lane), from, b.offset);
    note(from, b.offset, b.offset + b.bytes, "read by a copy kernel, lane %d:%d, to buffer %d at %zu", device,
         hd_lane_number(lane), to, a.offset);
    memcpy(y->model + a.offset, x->model + b.offset, a.bytes);
    return true;
}

static bool do_kernel_axpy(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    int to = some_item(r), from = some_item(r), device = hd_lane_device(lane);
    item *y = &w.items[to], *x = &w.items[from];
    if (!y->floats || !x->floats || !reaches(device, y) || !reaches(device, x)) {
        return false;
    }
    range a = some_range(r, y, 4), b = some_range(r, x, 4);
    a.bytes = b.bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    if (overlap(to, a, from, b)) {
        return false;
    }
    static const float factors[] = {-2, -1, 1, 2};
    float factor = factors[conf_below(r, 4)], *v = numbers(to, a);
    const float *u = numbers(from, b);
    uint64_t n = a.bytes / 4;
    for (uint64_t i = 0; i < n; i++) {
        float sum = v[i] + factor * u[i];
        if (sum > exact_limit || sum < -exact_limit) {
            return false;
        }
    }
    hd_status status = conf_axpy(lane, w.k, y->buffer, a.offset, x->buffer, b.offset, factor, n, out);
    if (status == HD_ERROR_UNREACHABLE && !w.host) {
        return false;
    }
    CONF_OK(status);
    note(to, a.offset, a.offset + a.bytes, "axpy, lane %d:%d, %g times buffer %d at %zu", device, hd_lane_number(lane),
         (double)factor, from, b.offset);
    note(from, b.offset, b.offset + b.bytes, "read by axpy, lane %d:%d, to buffer %d at %zu", device,
         hd_lane_number(lane), to, a.offset);
    for (uint64_t i = 0; i < n; i++) {
        v[i] += factor * u[i];
    }
    return true;
}

static bool do_kernel_sum(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    int to = some_item(r), from = some_item(r), device = hd_lane_device(lane);
    item *y = &w.items[to], *x = &w.items[from];
    if (!y->floats || !x->floats || !reaches(device, y) || !reaches(device, x)) {
        return false;
    }
    range a = {conf_below(r, y->bytes / 4) * 4, 4}, b = some_range(r, x, 4);
    if (overlap(to, a, from, b)) {
        return false;
    }
    const float *u = numbers(from, b);
    double sum = 0, size = 0;
    for (size_t i = 0; i < b.bytes / 4; i++) {
        sum += (double)u[i];
        size += (double)(u[i] < 0 ? -u[i] : u[i]);
    }
    float *total = numbers(to, a);
    if (size + (double)(*total < 0 ? -*total : *total) > (double)exact_limit) {
        return false;
    }
    hd_status status = conf_sum(lane, w.k, y->buffer, a.offset, x->buffer, b.offset, b.bytes / 4,
                                (uint32_t)(1 + conf_below(r, 4)), out);
    if (status == HD_ERROR_UNREACHABLE && !w.host) {
        return false;
    }
    CONF_OK(status);
    note(to, a.offset, a.offset + 4, "sum, lane %d:%d, of buffer %d at %zu, %zu bytes", device, hd_lane_number(lane),
         from, b.offset, b.bytes);
    note(from, b.offset, b.offset + b.bytes, "read by sum, lane %d:%d", device, hd_lane_number(lane));
    *total += (float)sum;
    return true;
}

/* Long work that adds zero to one number: holds up its lane, and every operation that needs that
 * number. */
static bool do_slow(conf_random *r, hd_ticket *out)
{
    hd_lane *lane = some_lane(r);
    int to = some_item(r), device = hd_lane_device(lane);
    item *y = &w.items[to];
    if (!y->floats || !reaches(device, y)) {
        return false;
    }
    range a = {conf_below(r, y->bytes / 4) * 4, 4};
    hd_status status = conf_sum(lane, w.k, y->buffer, a.offset, w.zeros[device], 0, zeros, 1, out);
    if (status == HD_ERROR_UNREACHABLE && !w.host) {
        return false;
    }
    CONF_OK(status);
    note(to, a.offset, a.offset + 4, "long sum of zeros, lane %d:%d", device, hd_lane_number(lane));
    return true;
}

/* Waits until an engine expects no more work of other lanes. While it expects some, it makes
 * shorter chains. */
static void rest(void)
{
    for (int i = 0; i < w.n_lanes; i++) {
        CONF_OK(hd_lane_wait(w.lanes[i], 60 * CONF_SECOND));
    }
    conf_sleep_ms(12);
}

/* Launches that follow each other in a lane. Now and then the driver's queue cannot take all
 * launches behind a slow one, so that the engine makes whole chains of 32. */
static bool do_burst(conf_random *r, hd_ticket *out)
{
    static bool (*const launches[])(conf_random *, hd_ticket *) = {do_kernel_fill, do_kernel_copy, do_kernel_axpy};
    bool any = false;
    int left = 2 + (int)conf_below(r, 70);
    w.burst = some_lane(r);
    if (conf_chance(r, 6)) {
        left += 350;
        rest();
        any = do_slow(r, out);
    }
    for (; left > 0; left--) {
        any = launches[conf_below(r, 3)](r, out) || any;
    }
    w.burst = NULL;
    return any;
}

static bool do_fill(conf_random *r, hd_ticket *out)
{
    int at = some_item(r);
    item *y = &w.items[at];
    if (y->bytes < 4) {
        return false;
    }
    range a = some_range(r, y, 4);
    uint32_t word = some_word(r, y);
    CONF_OK(hd_fill(y->buffer, a.offset, word, a.bytes, out));
    note(at, a.offset, a.offset + a.bytes, "hd_fill, word %08x", word);
    fill_model(at, a, word);
    return true;
}

static bool do_copy(conf_random *r, hd_ticket *out)
{
    int to = some_item(r), from = some_item(r);
    item *y = &w.items[to], *x = &w.items[from];
    if (y->floats && !x->floats) {
        return false;
    }
    size_t unit = y->floats || conf_chance(r, 30) ? 4 : 1;
    if (y->bytes < unit || x->bytes < unit) {
        return false;
    }
    range a = some_range(r, y, unit), b = some_range(r, x, unit);
    a.bytes = b.bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
    if (overlap(to, a, from, b)) {
        CONF_FAILS(hd_copy(y->buffer, a.offset, x->buffer, b.offset, a.bytes, out), HD_ERROR_ARGUMENT);
        return false;
    }
    CONF_OK(hd_copy(y->buffer, a.offset, x->buffer, b.offset, a.bytes, out));
    note(to, a.offset, a.offset + a.bytes, "hd_copy from buffer %d at %zu", from, b.offset);
    note(from, b.offset, b.offset + b.bytes, "read by hd_copy to buffer %d at %zu", to, a.offset);
    memcpy(y->model + a.offset, x->model + b.offset, a.bytes);
    return true;
}

static bool do_write(conf_random *r, hd_ticket *out)
{
    (void)out;
    int at = some_item(r);
    item *y = &w.items[at];
    range a = some_range(r, y, y->floats ? 4 : 1);
    uint8_t *data = conf_memory(a.bytes);
    invent(r, y, data, a.bytes);
    CONF_OK(hd_write(y->buffer, a.offset, data, a.bytes));
    note(at, a.offset, a.offset + a.bytes, "hd_write");
    memcpy(y->model + a.offset, data, a.bytes);
    memset(data, 0xdb, a.bytes); /* the call returned, so the program may reuse it */
    free(data);
    return true;
}

static bool do_read(conf_random *r, hd_ticket *out)
{
    (void)out;
    int at = some_item(r);
    item *x = &w.items[at];
    range a = some_range(r, x, 1);
    uint8_t *data = conf_memory(a.bytes);
    memset(data, 0xdb, a.bytes);
    CONF_OK(hd_read(x->buffer, a.offset, data, a.bytes));
    note(at, a.offset, a.offset + a.bytes, "hd_read");
    compare(at, a.offset, data, a.bytes, "read in the middle");
    free(data);
    return true;
}

static bool do_map(conf_random *r, hd_ticket *out)
{
    (void)out;
    int at = some_item(r);
    item *x = &w.items[at];
    if (x->device >= 0) {
        return false;
    }
    uint8_t *p = NULL;
    if (conf_chance(r, 50)) {
        CONF_OK(hd_map(x->buffer, HD_READ, (void **)&p));
        note(at, 0, x->bytes, "hd_map to read");
        compare(at, 0, p, x->bytes, "mapped in the middle");
    } else {
        range a = some_range(r, x, x->floats ? 4 : 1);
        CONF_OK(hd_map(x->buffer, HD_READ_WRITE, (void **)&p));
        note(at, 0, x->bytes, "hd_map to write from %zu to %zu", a.offset, a.offset + a.bytes);
        compare(at, 0, p, x->bytes, "mapped to write in the middle");
        invent(r, x, x->model + a.offset, a.bytes);
        memcpy(p + a.offset, x->model + a.offset, a.bytes);
    }
    hd_unmap(x->buffer);
    return true;
}

static void make_item(conf_random *r, int at)
{
    static const size_t sizes[] = {1, 3, 64, 100, 4096, 4097, 20000, 65536, 100001, 262144};
    item *x = &w.items[at];
    x->device = conf_chance(r, 20) ? -1 : (int)conf_below(r, (uint64_t)w.devices);
    x->bytes = sizes[conf_below(r, sizeof sizes / sizeof *sizes)];
    x->floats = conf_chance(r, 50);
    if (x->floats) {
        x->bytes = (x->bytes + 3) / 4 * 4;
    }
    if (x->device < 0) {
        CONF_OK(hd_alloc_host(w.runtime, x->bytes, &x->buffer));
    } else {
        hd_lane *lane = NULL;
        do {
            lane = some_lane(r);
        } while (hd_lane_device(lane) != x->device && !conf_chance(r, 10));
        if (hd_lane_device(lane) != x->device) {
            lane = conf_default_lane(w.runtime, x->device);
        }
        CONF_OK(hd_alloc(lane, x->bytes, &x->buffer));
    }
    x->model = conf_memory((x->bytes + 7) / 8 * 8);
    note(at, 0, x->bytes, "allocated on %d, %zu bytes", x->device, x->bytes);
    /* from now on its content is defined */
    range all = {0, x->bytes};
    if (x->bytes % 4 == 0 && conf_chance(r, 40)) {
        uint32_t word = some_word(r, x);
        CONF_OK(hd_fill(x->buffer, 0, word, x->bytes, NULL));
        note(at, 0, x->bytes, "first: hd_fill, word %08x", word);
        fill_model(at, all, word);
    } else if (x->bytes % 4 == 0 && x->device >= 0 && conf_chance(r, 60)) {
        hd_lane *lane = conf_default_lane(w.runtime, x->device);
        uint32_t word = some_word(r, x);
        for (int i = 0; i < w.n_lanes; i++) {
            lane = hd_lane_device(w.lanes[i]) == x->device && conf_chance(r, 60) ? w.lanes[i] : lane;
        }
        CONF_OK(conf_fill(lane, w.k, x->buffer, 0, x->bytes / 4, word, NULL));
        note(at, 0, x->bytes, "first: fill kernel, lane %d, word %08x", hd_lane_number(lane), word);
        fill_model(at, all, word);
    } else {
        invent(r, x, x->model, x->bytes);
        CONF_OK(hd_write(x->buffer, 0, x->model, x->bytes));
        note(at, 0, x->bytes, "first: hd_write");
    }
}

static bool do_free_and_alloc(conf_random *r, hd_ticket *out)
{
    (void)out;
    int at = some_item(r);
    item *x = &w.items[at];
    note(at, 0, x->bytes, "freed");
    hd_free(x->buffer);
    free(x->model);
    make_item(r, at);
    return true;
}

static bool do_keep_times(conf_random *r, hd_ticket *out)
{
    (void)out;
    CONF_OK(hd_lane_keep_times(some_lane(r), conf_chance(r, 30)));
    return true;
}

static const struct {
    bool (*run)(conf_random *, hd_ticket *);
    unsigned weight;
} kinds[] = {
    {do_kernel_fill, 12},   {do_kernel_copy, 22}, {do_kernel_axpy, 18}, {do_kernel_sum, 6}, {do_slow, 3},
    {do_fill, 8},           {do_copy, 20},        {do_write, 6},        {do_read, 2},       {do_map, 2},
    {do_free_and_alloc, 5}, {do_burst, 4},        {do_claim, 8},        {do_host_call, 6},  {do_lane_call, 8},
    {do_stream_claim, 6},   {do_lane_after, 5},   {do_keep_times, 2},
};
enum { n_kinds = sizeof kinds / sizeof *kinds };

/* ---- a graph ---- */

typedef struct submitter {
    uint64_t seed;
    int operations;
} submitter;

static void *submits(void *argument)
{
    submitter *s = argument;
    conf_random r = {s->seed};
    hd_ticket kept[4] = {{NULL, 0}};
    unsigned weights = 0;
    for (int i = 0; i < n_kinds; i++) {
        weights += kinds[i].weight;
    }
    for (int done = 0, tries = 0; done < s->operations && tries < 20 * s->operations; tries++) {
        unsigned pick = (unsigned)conf_below(&r, weights);
        int kind = 0;
        while (pick >= kinds[kind].weight) {
            pick -= kinds[kind++].weight;
        }
        hd_ticket ticket = {NULL, 0};
        pthread_mutex_lock(&w.lock);
        if (kinds[kind].run(&r, &ticket)) {
            done++;
            w.done_by_kind[kind]++;
            last_ticket = ticket.lane != NULL ? ticket : last_ticket;
        }
        pthread_mutex_unlock(&w.lock);
        if (ticket.lane != NULL) {
            kept[conf_below(&r, 4)] = ticket;
        }
        if (conf_chance(&r, 4)) { /* waits, while others submit */
            hd_ticket waited = kept[conf_below(&r, 4)];
            (void)hd_done(waited);
            CONF_OK(hd_wait(waited, 60 * CONF_SECOND));
            CONF_TRUE(hd_done(waited));
            int64_t ns = 0;
            hd_status timed = waited.lane ? hd_ticket_get_elapsed(waited, waited, &ns) : HD_OK;
            CONF_TRUE((timed == HD_OK || timed == HD_ERROR_NOT_FOUND) && ns == 0);
        }
    }
    return NULL;
}

static void run_graph(int graph, uint64_t seed)
{
    conf_random r = {seed};
    w.graph = graph;
    w.logged = 0;
    w.n_lanes = 2 + (int)conf_below(&r, most_lanes - 1);
    int devices_used = 1 + (int)conf_below(&r, (uint64_t)w.devices);
    for (int i = 0; i < w.n_lanes; i++) {
        CONF_OK(hd_lane_create(w.runtime, (int)conf_below(&r, (uint64_t)devices_used), &w.lanes[i]));
    }
    int all_devices = w.devices;
    w.devices = devices_used;
    last_ticket = (hd_ticket){NULL, 0};
    w.n_items = 4 + (int)conf_below(&r, most_buffers - 3);
    for (int i = 0; i < w.n_items; i++) {
        make_item(&r, i);
    }
    int threads = 1 + (int)conf_below(&r, most_threads);
    pthread_t ids[most_threads];
    submitter submitters[most_threads];
    for (int i = 0; i < threads; i++) {
        submitters[i] = (submitter){conf_next(&r), w.operations / threads};
        if (threads == 1) {
            submits(&submitters[i]);
        } else {
            CONF_EQUAL(pthread_create(&ids[i], NULL, submits, &submitters[i]), 0);
        }
    }
    for (int i = 0; threads > 1 && i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    if (conf_chance(&r, 50)) { /* lanes may go while their work runs */
        for (int i = 0; i < w.n_lanes; i++) {
            hd_lane_destroy(w.lanes[i]);
        }
        w.n_lanes = 0;
    }
    for (int i = 0; i < w.n_items; i++) {
        item *x = &w.items[i];
        uint8_t *got = conf_memory(x->bytes);
        memset(got, 0xdb, x->bytes);
        CONF_OK(hd_read(x->buffer, 0, got, x->bytes));
        compare(i, 0, got, x->bytes, "at the end");
        free(got);
        free(x->model);
        hd_free(x->buffer);
    }
    for (int i = 0; i < w.n_lanes; i++) {
        CONF_OK(hd_lane_wait(w.lanes[i], 60 * CONF_SECOND));
        hd_lane_destroy(w.lanes[i]);
    }
    w.n_lanes = 0;
    w.devices = all_devices;
}

static void open_world(const char *settings)
{
    atomic_store(&counted->longest, 0);
    w.runtime = conf_open(settings);
    w.host = conf_is_host(w.runtime);
    w.is_process = conf_is_process(w.runtime);
    w.devices = hd_device_count(w.runtime) < most_devices ? hd_device_count(w.runtime) : most_devices;
    w.k = conf_builtins(w.runtime);
    for (int d = 0; d < w.devices; d++) {
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(w.runtime, d, &info));
        w.peers[d] = info.peers;
        CONF_OK(hd_alloc(conf_default_lane(w.runtime, d), zeros * 4, &w.zeros[d]));
        CONF_OK(hd_fill(w.zeros[d], 0, 0, zeros * 4, NULL));
    }
    claims_begin();
}

/* Closes the runtime. Checks that no chain was longer than the option allows, and records the
 * longest one. */
static void close_world(void)
{
    claims_end();
    conf_close(w.runtime);
    w.runtime = NULL;
    uint64_t longest = atomic_load(&counted->longest);
    CONF_TRUE(longest <= w.chains);
    w.longest = longest > w.longest ? longest : w.longest;
}

/* Chooses the settings of a runtime. Every fourth is without a perturbed schedule; every second
 * uses rings that are often full. */
static void open_another(const char *peers, uint64_t seed, int number)
{
    char settings[160];
    conf_random r = {seed};
    uint64_t schedule = conf_next(&r) >> 1;
    w.perturbed = number % 4 != 3;
    int slots = conf_chance(&r, 50) ? 128 : 1024;
    w.chains = conf_number_from("HEDDLE_CHAINS", number % 2 ? 4 : 32);
    snprintf(settings, sizeof settings, "host_peers=%s host_schedule=%llu lane_slots=%d chains=%d", peers,
             w.perturbed ? (unsigned long long)schedule : 0ull, slots, (int)w.chains);
    open_world(settings);
}

static void random_graphs(const char *peers, int part)
{
    int usual = CONF_TSAN || CONF_ASAN ? 210 : conf_on_gpus ? 300 : 1130, per_runtime = 20;
    int graphs = (int)conf_number_from("HEDDLE_GRAPHS", usual) / 3 + 1;
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1);
    int only = (int)conf_number_from("HEDDLE_ONLY_GRAPH", 0);
    uint64_t several = atomic_load(&counted->several);
    w.operations = CONF_TSAN ? 40 : 90;
    for (int g = 0; g < graphs; g++) {
        int number = part * 100000 + g;
        if (only != 0 && number != only) {
            continue;
        }
        if (g % per_runtime == 0 || w.runtime == NULL) {
            close_world();
            open_another(peers, seed * 7919 + (uint64_t)(part * 1000 + g / per_runtime), g / per_runtime);
        }
        w.seed = seed;
        conf_watch("a random graph", 60);
        run_graph(number, seed * 1000003 + (uint64_t)number);
        w.graphs++;
        w.graphs_perturbed += w.perturbed;
    }
    close_world();
    if (w.host && only == 0 && graphs >= per_runtime && conf_number_from("HEDDLE_CHAINS", 32) > 1) {
        CONF_TRUE(atomic_load(&counted->several) > several);
    }
}

static void all_peers(void **state)
{
    (void)state;
    random_graphs("all", 1);
}

static void no_peers(void **state)
{
    (void)state;
    random_graphs("none", 2);
}

static void ring_of_peers(void **state)
{
    (void)state;
    random_graphs("ring", 3);
    /* every kind of operation happened */
    if (getenv("HEDDLE_ONLY_GRAPH") == NULL && getenv("HEDDLE_TEST_FILTER") == NULL) {
        for (int i = 0; i < n_kinds; i++) {
            bool has_stream = kinds[i].run == do_lane_call || kinds[i].run == do_stream_claim;
            CONF_TRUE(w.done_by_kind[i] > 0 || (has_stream && w.is_process));
        }
    }
}

static void tell_numbers(void)
{
    fprintf(stderr, "test_graphs: %d graphs, %d of them under perturbed schedules; ", w.graphs, w.graphs_perturbed);
    fprintf(
        stderr,
        "%llu chains with %llu launches, %llu with more than one, the longest with %llu; %llu launches by themselves\n",
        (unsigned long long)atomic_load(&counted->chains), (unsigned long long)atomic_load(&counted->launches),
        (unsigned long long)atomic_load(&counted->several), (unsigned long long)w.longest,
        (unsigned long long)atomic_load(&counted->alone));
}

int main(void)
{
    conf_failure_ends_program = true; /* the lock may be held */
    if (!counting_begin()) {
        return 1;
    }
    conf_begin("test_graphs");
    const struct CMUnitTest tests[] = {
        CONF_CASE(all_peers),
        CONF_CASE(no_peers),
        CONF_CASE(ring_of_peers),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tell_numbers();
    return failed;
}
