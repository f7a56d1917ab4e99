/* test_worker_around.c - devices that are lost and restart while claims are open, functions of the
 * program run, and work waits for both.
 *
 * Promise: A restart waits for nothing that only the program can end; open claims keep their bytes.
 *
 * It holds up no other call. In random traffic the program marks the bytes of each claim while the
 * claim is ready. Until its end nothing else may write them, before a loss or after it, on the lost
 * device or on others.
 *
 * Environment: HEDDLE_AROUND_ROUNDS=N rounds, HEDDLE_SEED=N.
 *
 * Threads: the main one, one that restarts a device, and those that run the program's functions.
 * Locks: none.
 */
#include "workers.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "folder.h"

enum { n_devices = 3, n_pinned = 3, n_buffers = n_devices + n_pinned, quarters = 4, words = 256, most_claims = 6 };
enum { quarter_bytes = 4 * words, bytes = quarters * quarter_bytes, most_calls = 3, most_tickets = 64 };

typedef struct range {
    int buffer, first, n;
    bool writes;
} range;

typedef struct open_claim {
    hd_claim *claim;
    hd_ticket ticket;
    range uses[2];
    int n_uses;
    uint32_t mark; /* in the claimed pinned bytes; 0: not ready */
    bool lost;     /* with its device */
} open_claim;

typedef struct gate {
    atomic_bool open, reached;
} gate;

typedef struct model {
    hd_runtime *runtime;
    conf_kernels k;
    conf_random random;
    hd_buffer *buffers[n_buffers]; /* on each device, and pinned ones */
    hd_lane *lanes[n_devices];
    open_claim claims[most_claims];
    int n_claims;
    gate gates[most_calls];
    int n_calls;
    hd_ticket tickets[most_tickets];
    int n_tickets;
    uint32_t next_mark;
} model;

static uint64_t stood, restarts; /* claims that were open during a restart */

static range any_range(model *m)
{
    range r = {.buffer = (int)conf_below(&m->random, n_buffers), .writes = conf_chance(&m->random, 60)};
    r.first = (int)conf_below(&m->random, quarters);
    r.n = 1 + (int)conf_below(&m->random, (uint64_t)(quarters - r.first));
    return r;
}

static hd_arg use_of(const model *m, range r)
{
    size_t at = (size_t)r.first * quarter_bytes, size = (size_t)r.n * quarter_bytes;
    return r.writes ? hd_inout_range(m->buffers[r.buffer], at, size) : hd_in_range(m->buffers[r.buffer], at, size);
}

static int some_uses(model *m, range uses[2], hd_arg args[2])
{
    int n = (int)conf_below(&m->random, 3);
    for (int i = 0; i < n; i++) {
        uses[i] = any_range(m);
        if (i == 1 && uses[1].buffer == uses[0].buffer) {
            return 1;
        }
        args[i] = use_of(m, uses[i]);
    }
    return n;
}

/* Statuses of a call beside HD_OK: its source failed, its lane failed, or its device is lost. */
static bool may_be(hd_status status)
{
    return status == HD_OK || status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED ||
           status == HD_ERROR_LANE_FAILED;
}

static void keep(model *m, hd_status status, hd_ticket ticket)
{
    if (!may_be(status)) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s", hd_status_name(status), hd_message());
    }
    if (!status && m->n_tickets < most_tickets) {
        m->tickets[m->n_tickets++] = ticket;
    }
}

/* ---- claims and functions of the program ---- */

/* Calls `visit` for the words of the claim's pinned bytes that it writes. */
static void each_word(const open_claim *c, void (*visit)(uint32_t *word, uint32_t mark))
{
    for (int i = 0; i < c->n_uses; i++) {
        uint32_t *at = NULL;
        if (!c->uses[i].writes || c->uses[i].buffer < n_devices) {
            continue;
        }
        CONF_OK(hd_claim_get_pointer(c->claim, (size_t)i, (void **)&at));
        for (int w = 0; w < c->uses[i].n * words; w++) {
            visit(&at[w], c->mark);
        }
    }
}

static void put_mark(uint32_t *word, uint32_t mark)
{
    *word = mark;
}

static void check_mark(uint32_t *word, uint32_t mark)
{
    CONF_EQUAL(*word, mark);
}

static void look_at_claims(model *m)
{
    for (int i = 0; i < m->n_claims; i++) {
        open_claim *c = &m->claims[i];
        if (!c->mark && hd_claim_wait(c->claim, 0) == HD_OK) {
            c->mark = m->next_mark++;
            each_word(c, put_mark);
        } else if (c->mark) {
            each_word(c, check_mark);
        }
    }
}

static void begin_claim(model *m)
{
    open_claim c = {.claim = NULL};
    hd_arg args[2];
    if (m->n_claims == most_claims) {
        return;
    }
    c.n_uses = some_uses(m, c.uses, args);
    hd_status status = hd_claim_begin(m->runtime, args, (size_t)c.n_uses, &c.claim);
    keep(m, status, c.ticket);
    if (!status) {
        CONF_OK(hd_claim_get_ticket(c.claim, &c.ticket));
        m->tickets[m->n_tickets - 1] = c.ticket;
        m->claims[m->n_claims++] = c;
    }
}

static void end_claim(model *m, int i)
{
    if (m->claims[i].mark) {
        each_word(&m->claims[i], check_mark);
    }
    CONF_OK(hd_claim_end(m->claims[i].claim, conf_chance(&m->random, 20) ? HD_ERROR_SYSTEM : HD_OK));
    m->claims[i] = m->claims[--m->n_claims];
}

static hd_status stands(void *const *pointers, void *context)
{
    (void)pointers;
    gate *g = context;
    atomic_store(&g->reached, true);
    while (!atomic_load(&g->open)) {
        conf_sleep_ms(1);
    }
    return HD_OK;
}

static void begin_call(model *m)
{
    range uses[2];
    hd_arg args[2];
    hd_ticket ticket = {NULL, 0};
    if (m->n_calls == most_calls) {
        return;
    }
    gate *g = &m->gates[m->n_calls];
    int n = some_uses(m, uses, args);
    hd_status status = hd_launch_host(m->runtime, stands, g, args, (size_t)n, &ticket);
    m->n_calls += !status;
    keep(m, status, ticket);
}

/* ---- work that may wait for them ---- */

static void submit_work(model *m)
{
    hd_ticket ticket = {NULL, 0};
    range to = any_range(m), from = any_range(m);
    hd_buffer *y = m->buffers[to.buffer], *x = m->buffers[from.buffer];
    size_t y_at = (size_t)to.first * quarter_bytes, x_at = (size_t)from.first * quarter_bytes;
    hd_lane *lane = m->lanes[conf_below(&m->random, n_devices)];
    hd_status status = HD_OK;
    switch (conf_below(&m->random, 4)) {
    case 0:
        status = hd_fill(y, y_at, 5, quarter_bytes, &ticket);
        break;
    case 1:
        if (to.buffer != from.buffer) {
            status = hd_copy(y, y_at, x, x_at, quarter_bytes, &ticket);
        }
        break;
    case 2: {
        hd_arg args[] = {use_of(m, (range){.buffer = to.buffer, .first = to.first, .n = 1, .writes = true}),
                         hd_u64(words), hd_u32(6)};
        status = hd_launch(lane, m->k.fill, conf_dims(2, 1, 1), conf_dims(128, 1, 1), 0, args, 3, &ticket);
        status = status == HD_ERROR_UNREACHABLE ? HD_OK : status;
        break;
    }
    default:
        if (m->n_claims) {
            status =
                hd_lane_add_dependency(lane, m->claims[conf_below(&m->random, (uint64_t)m->n_claims)].ticket, &ticket);
        }
        break;
    }
    if (status || ticket.lane) {
        keep(m, status, ticket);
    }
}

/* ---- losses ---- */

/* Makes calls of several kinds on the restarted device and on the host; all must succeed. */
static void others_work(model *m, int lost)
{
    hd_buffer *b = NULL, *host = NULL;
    hd_lane *lane = NULL;
    hd_claim *c = NULL;
    CONF_OK(hd_lane_create(m->runtime, lost, &lane));
    CONF_OK(hd_alloc(lane, bytes, &b));
    CONF_OK(hd_alloc_host(m->runtime, bytes, &host));
    CONF_OK(conf_fill(lane, m->k, b, 0, bytes / 4, 11, NULL));
    CONF_OK(hd_copy(host, 0, b, 0, bytes, NULL));
    hd_arg use = hd_inout(host);
    CONF_OK(hd_claim_begin(m->runtime, &use, 1, &c));
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FILLED(host, 0, 11, bytes);
    CONF_OK(hd_free(b));
    CONF_OK(hd_free(host));
    CONF_OK(hd_lane_destroy(lane));
}

static void lose_and_restart(model *m, int device)
{
    look_at_claims(m);
    wk_lose_now(m->runtime, device);
    for (int i = (int)conf_below(&m->random, 4); i > 0; i--) {
        submit_work(m);
    }
    if (m->n_claims && conf_chance(&m->random, 30)) {
        end_claim(m, (int)conf_below(&m->random, (uint64_t)m->n_claims));
    }
    stood += (uint64_t)(m->n_claims + m->n_calls);
    restarts++;
    CONF_OK(hd_device_restart(m->runtime, device));
    others_work(m, device);
    look_at_claims(m);
    CONF_OK(hd_free(m->buffers[device]));
    hd_lane *lane = NULL; /* in the old lane, which may be blocked by lost work */
    CONF_OK(hd_lane_create(m->runtime, device, &lane));
    CONF_OK(hd_alloc(lane, bytes, &m->buffers[device]));
    CONF_OK(hd_lane_destroy(lane));
    CONF_OK(hd_fill(m->buffers[device], 0, 3, bytes, NULL));
}

/* ---- rounds ---- */

static void end_round(model *m)
{
    while (m->n_claims || m->n_calls) {
        look_at_claims(m);
        if (m->n_calls && conf_chance(&m->random, 30)) {
            atomic_store(&m->gates[--m->n_calls].open, true);
        } else if (m->n_claims) {
            end_claim(m, (int)conf_below(&m->random, (uint64_t)m->n_claims));
        }
    }
    for (int i = 0; i < m->n_tickets; i++) {
        CONF_TRUE(may_be(hd_wait(m->tickets[i], HD_FOREVER)));
    }
    for (int d = 0; d < n_devices; d++) {
        hd_lane_wait(m->lanes[d], HD_FOREVER);
        CONF_OK(hd_lane_reset(m->lanes[d], HD_FOREVER));
    }
    for (int b = 0; b < n_buffers; b++) {
        CONF_OK(hd_fill(m->buffers[b], 0, 9, bytes, NULL));
        CONF_FILLED(m->buffers[b], 0, 9, bytes);
    }
    m->n_tickets = 0;
    memset(m->gates, 0, sizeof m->gates);
}

static void open_model(model *m, uint64_t seed)
{
    *m = (model){.runtime = conf_open("host_devices=3"), .random = {seed}, .next_mark = 1000};
    CONF_NEED_DEVICES(m->runtime, n_devices);
    m->k = conf_builtins(m->runtime);
    for (int d = 0; d < n_devices; d++) {
        CONF_OK(hd_lane_create(m->runtime, d, &m->lanes[d]));
        CONF_OK(hd_alloc(m->lanes[d], bytes, &m->buffers[d]));
    }
    for (int p = 0; p < n_pinned; p++) {
        CONF_OK(hd_alloc_host(m->runtime, bytes, &m->buffers[n_devices + p]));
    }
    for (int b = 0; b < n_buffers; b++) {
        CONF_OK(hd_fill(m->buffers[b], 0, 9, bytes, NULL));
    }
}

static void restarts_around_what_is_open(void **state)
{
    (void)state;
    static model m;
    int rounds = conf_rounds((int)conf_number_from("HEDDLE_AROUND_ROUNDS", CONF_SLOWNESS > 1 ? 6 : 25));
    open_model(&m, conf_number_from("HEDDLE_SEED", 1));
    for (int round = 0; round < rounds; round++) {
        for (int i = 6 + (int)conf_below(&m.random, 20); i > 0; i--) {
            switch (conf_below(&m.random, 6)) {
            case 0:
            case 1:
                begin_claim(&m);
                break;
            case 2:
                begin_call(&m);
                break;
            default:
                submit_work(&m);
                break;
            }
            look_at_claims(&m);
        }
        for (int losses = 1 + (int)conf_below(&m.random, 3); losses > 0; losses--) {
            lose_and_restart(&m, (int)conf_below(&m.random, n_devices));
            for (int i = (int)conf_below(&m.random, 4); i > 0; i--) {
                submit_work(&m);
                begin_claim(&m);
            }
        }
        end_round(&m);
    }
    printf("  %llu restarts around %llu open claims and calls\n", (unsigned long long)restarts,
           (unsigned long long)stood);
    CONF_TRUE(stood > 0);
    CONF_OK(hd_close(m.runtime));
}

/* ---- buffers with a checkpoint ---- */

/* In a copy lane of the lost device a copy waits for a kernel of another device, which runs until
 * the program ends it. */
static void checkpoints_come_back_beside_what_waits(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2");
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *kept = NULL, *x = NULL;
    hd_ticket saved, copied;
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_KEEP};
    CONF_OK(hd_alloc_with(lane, bytes, &options, &kept));
    CONF_OK(hd_fill(kept, 0, 13, bytes, NULL));
    CONF_OK(hd_buffer_save(kept, &saved));
    CONF_OK(hd_wait(saved, HD_FOREVER));
    CONF_OK(hd_alloc(lane, bytes, &x));
    wk_gate kernel;
    wk_gate_shut(&kernel, runtime, conf_default_lane(runtime, 1), k);
    CONF_OK(hd_copy(x, 0, kernel.pinned, 0, 64, &copied));
    wk_lose_now(runtime, 0);
    CONF_OK(hd_device_restart(runtime, 0));
    CONF_FILLED(kept, 0, 13, bytes);
    CONF_TRUE(!hd_done(copied)); /* work behind it relies on the kernel's end */
    wk_gate_open(&kernel);
    CONF_FAILS(hd_wait(copied, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_wait(kernel.ticket, HD_FOREVER));
    CONF_OK(hd_unmap(kernel.pinned));
    CONF_OK(hd_close(runtime));
}

/* ---- a restart that takes long ---- */

typedef struct slow_restart {
    hd_runtime *runtime;
    hd_status status;
    atomic_bool over;
} slow_restart;

static void *restarts_slowly(void *context)
{
    slow_restart *r = context;
    r->status = hd_device_restart(r->runtime, 0);
    atomic_store(&r->over, true);
    return NULL;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* While the fresh worker does not start, modules are loaded and unloaded, and everything works that
 * does not concern the device. */
static void other_calls_go_on(void **state)
{
    (void)state;
    char worker[96], held[96], reached[96];
    const char *real_worker = getenv("HEDDLE_WORKER");
    if (!real_worker) {
        skip();
    }
    snprintf(worker, sizeof worker, "%s/worker", folder);
    snprintf(held, sizeof held, "%s/held", folder);
    snprintf(reached, sizeof reached, "%s/reached", folder);
    FILE *script = fopen(worker, "we");
    CONF_TRUE(script != NULL);
    fprintf(script, "#!/bin/sh\nif [ -e %s ]\nthen : > %s\nfi\nwhile [ -e %s ]\ndo sleep 0.01\ndone\nexec %s \"$@\"\n",
            held, reached, held, real_worker);
    CONF_EQUAL(fclose(script), 0);
    CONF_EQUAL(chmod(worker, 0700), 0);
    hd_runtime *runtime = conf_open_with("worker=%s host_devices=2 worker_timeout=100000", worker);
    CONF_NEED_DEVICES(runtime, 2);
    size_t size = 0;
    const void *image = wk_image(runtime, &size);
    FILE *gate_file = fopen(held, "we");
    CONF_TRUE(gate_file != NULL);
    CONF_EQUAL(fclose(gate_file), 0);
    wk_lose_now(runtime, 0);
    slow_restart r = {.runtime = runtime};
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, restarts_slowly, &r), 0);
    while (!is_there(reached)) {
        conf_sleep_ms(1);
    }
    hd_module *module = NULL, *builtin = NULL;
    hd_kernel *kernel = NULL;
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 1, &lane));
    CONF_OK(hd_module_get_builtin(runtime, &builtin));
    CONF_OK(hd_kernel_get(builtin, "hd_fill_u32", &kernel));
    if (image) {
        CONF_OK(hd_module_load(runtime, image, size, &module));
        CONF_OK(hd_module_unload(module));
    }
    CONF_TRUE(!atomic_load(&r.over));
    CONF_EQUAL(unlink(held), 0);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    CONF_OK(r.status);
    wk_works(runtime, 0);
    CONF_OK(hd_close(runtime));
}

int main(void)
{
    wk_begin("test_worker_around");
    const struct CMUnitTest tests[] = {
        CONF_CASE(restarts_around_what_is_open),
        CONF_CASE(checkpoints_come_back_beside_what_waits),
        FOLDER_CASE(other_calls_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
