/* test_chains.c - launches that go to the driver together: their number, the ends of chains, and
 * launches that the driver refuses. Executables stay within their bound, lanes lend them to
 * each other, and making them waits for no lane.
 *
 * Promise: Chained launches run once, in order; chains end at awaited tickets and stay in bounds.
 *
 * Threads: the main one, the device's engine. Locks: `gate`, which holds up the engine inside the
 * driver, so that a backlog forms.
 * Always: the tests check only requests to the driver.
 */
#include "support/check.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "conformance/short_kernel.h"
#include "conformance/work.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "engine/stream.h"
#include "gate.h"
#include "support/changed_driver.h"

enum { BACKLOG = 600, WORDS = 16, ODD = 77, STRAYS = -1 };

/* requests to the driver */
static _Atomic uint64_t chains, nodes, singles;
/* executable graphs that exist, and those that were destroyed */
static _Atomic uint64_t executables, ended;
/* nodes set since the last launch of a chain */
static _Atomic uint64_t longest, filled;
static bool same_again; /* all launches are equal */
/* codes that calls with grid ODD return; 0: none */
static _Atomic int refuse_set, refuse_launch;
/* the code for one node in a chain of 32, or STRAYS; 0: done, or none */
static _Atomic int refuse_middle;
static _Atomic uint32_t middle_grid; /* the grid of that node */

/* clang-format off */
/* Sets the node to the same launch with so many elements and blocks that it leaves the device's
 * memory. */
static hdcu_result set_to_stray(hdcu_graphexec e, hdcu_graphnode n, const hdcu_kernel_node_params *p)
{
    uint64_t arguments[8] = {0};
    size_t bytes = *(size_t *)p->extra[3];
    hdcu_kernel_node_params strays = *p;
    void *extra[] = {p->extra[0], arguments, p->extra[2], &bytes, p->extra[4]};
    assert_in_range(bytes, 17, sizeof arguments);
    memcpy(arguments, p->extra[1], bytes);
    arguments[bytes > 24 ? 3 : 1] = UINT64_MAX; /* the element count of axpy or fill */
    strays.extra = extra;
    strays.grid_x = 1 << 20;
    return real->cuGraphExecKernelNodeSetParams(e, n, &strays);
}

static hdcu_result set_params(hdcu_graphexec e, hdcu_graphnode n, const hdcu_kernel_node_params *p)
{
    if (p->grid_x == ODD && atomic_load(&refuse_set)) {
        return atomic_load(&refuse_set);
    }
    int code = atomic_load(&filled) == HDI_CHAIN_MOST / 2 ? atomic_exchange(&refuse_middle, 0) : 0;
    if (code) { /* shorter chains set fewer nodes before this one */
        atomic_store(&middle_grid, p->grid_x);
        if (code != STRAYS) {
            return code;
        }
        atomic_fetch_add(&filled, 1);
        return set_to_stray(e, n, p);
    }
    atomic_fetch_add(&filled, 1);
    return real->cuGraphExecKernelNodeSetParams(e, n, p);
}

static hdcu_result launch_graph(hdcu_graphexec e, hdcu_stream s)
{
    uint64_t n = atomic_exchange(&filled, 0);
    atomic_fetch_add(&chains, 1);
    atomic_fetch_add(&nodes, n);
    atomic_store(&longest, n > atomic_load(&longest) ? n : atomic_load(&longest));
    pass_gate();
    return real->cuGraphLaunch(e, s);
}

static hdcu_result instantiate(hdcu_graphexec *e, hdcu_graph g, unsigned long long flags)
{
    atomic_fetch_add(&executables, 1);
    hdcu_result done = real->cuCtxSynchronize(); /* NVIDIA's driver waits like this now and then */
    return done ? done : real->cuGraphInstantiateWithFlags(e, g, flags);
}

static hdcu_result destroy_executable(hdcu_graphexec e)
{
    atomic_fetch_sub(&executables, 1);
    atomic_fetch_add(&ended, 1);
    return real->cuGraphExecDestroy(e);
}

static hdcu_result launch_kernel(hdcu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, hdcu_stream s, void **parameters, void **extra)
{
    atomic_store(&filled, 0);
    atomic_fetch_add(&singles, 1);
    pass_gate();
    if ((gx == ODD || gx == atomic_load(&middle_grid)) && atomic_load(&refuse_launch)) {
        return atomic_load(&refuse_launch);
    }
    return real->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, parameters, extra);
}
/* clang-format on */

static void change_table(hdi_driver *table)
{
    table->cuGraphExecKernelNodeSetParams = set_params;
    table->cuGraphLaunch = launch_graph;
    table->cuGraphInstantiateWithFlags = instantiate;
    table->cuGraphExecDestroy = destroy_executable;
    table->cuLaunchKernel = launch_kernel;
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}

typedef struct scene {
    hd_runtime *runtime;
    conf_kernels kernels;
    hd_lane *lane;
    hd_buffer *y, *x;
} scene;

/* Submits a launch with another size of shared memory than before, so that no node is set
 * already. */
static hd_ticket add_one(const scene *s, uint32_t grid)
{
    static uint32_t made;
    hd_ticket ticket;
    size_t shared = same_again ? 0 : 16 * (size_t)(1 + made++ % 127);
    hd_arg args[] = {hd_inout(s->y), hd_in(s->x), hd_f32(1), hd_u64(WORDS)};
    assert_ok(
        hd_launch(s->lane, s->kernels.axpy, conf_dims(grid, 1, 1), conf_dims(WORDS, 1, 1), shared, args, 4, &ticket));
    return ticket;
}

static void forget_counts(void)
{
    atomic_store(&chains, 0);
    atomic_store(&nodes, 0);
    atomic_store(&singles, 0);
    atomic_store(&longest, 0);
    atomic_store(&refuse_set, 0);
    atomic_store(&refuse_launch, 0);
    atomic_store(&refuse_middle, 0);
    atomic_store(&middle_grid, 0);
}

static scene begin(const char *settings)
{
    scene s = {.runtime = NULL};
    char text[200];
    snprintf(text, sizeof text, "driver=host placement=thread host_devices=1 lane_slots=1024 %s", settings);
    hd_options options = {sizeof options, text};
    assert_ok(hd_open(&options, &s.runtime));
    s.kernels = conf_builtins(s.runtime);
    assert_ok(hd_lane_create(s.runtime, 0, &s.lane));
    assert_ok(hd_alloc(s.lane, WORDS * 4, &s.y));
    assert_ok(hd_alloc(s.lane, WORDS * 4, &s.x));
    assert_ok(hd_fill(s.x, 0, conf_bits(1), WORDS * 4, NULL));
    do {
        assert_ok(hd_fill(s.y, 0, conf_bits(0), WORDS * 4, NULL));
        assert_ok(hd_wait(add_one(&s, 1), HD_FOREVER));
    } while (!conf_is_short(s.lane, s.kernels.axpy));
    forget_counts();
    return s;
}

/* Submits n launches behind the one that holds up the engine. */
static hd_ticket pile_up(const scene *s, int n)
{
    hd_ticket last = {0};
    set_gate(true);
    for (int i = 0; i < n; i++) {
        last = add_one(s, 1);
        if (i == 0) {
            await_engine_at_gate();
        }
    }
    return last;
}

static hd_ticket pile_up_and_go(const scene *s, int n)
{
    hd_ticket last = pile_up(s, n);
    set_gate(false);
    return last;
}

static void holds(const scene *s, float value)
{
    float got[WORDS];
    assert_ok(hd_read(s->y, 0, got, sizeof got));
    for (int i = 0; i < WORDS; i++) {
        assert_true(got[i] == value);
    }
}

static void a_backlog_goes_in_chains(void **state)
{
    (void)state;
    scene s = begin("");
    hd_ticket last = pile_up(&s, BACKLOG);
    set_gate(false);
    assert_ok(hd_wait(last, HD_FOREVER));
    holds(&s, BACKLOG + 1);
    assert_int_equal(atomic_load(&singles), 0);
    assert_int_equal(atomic_load(&nodes), BACKLOG);
    assert_in_range(atomic_load(&longest), 2, HDI_CHAIN_MOST);
    assert_true(atomic_load(&chains) <= BACKLOG / 2);
    hd_close(s.runtime);
}

static void the_option_bounds_them(void **state)
{
    (void)state;
    for (int most = 0; most <= 8; most += 4) {
        char text[40];
        snprintf(text, sizeof text, "chains=%d", most);
        scene s = begin(text);
        hd_ticket last = pile_up(&s, BACKLOG);
        set_gate(false);
        assert_ok(hd_wait(last, HD_FOREVER));
        holds(&s, BACKLOG + 1);
        assert_int_equal(atomic_load(&longest), most);
        assert_int_equal(atomic_load(&singles), most ? 0 : BACKLOG);
        hd_close(s.runtime);
    }
}

/* A thread waits for a launch in the middle before it is issued, but not for the launches behind
 * it. */
static void a_chain_ends_where_somebody_waits(void **state)
{
    (void)state;
    enum { IN_THE_MIDDLE = 333 };
    scene s = begin("");
    set_gate(true);
    hd_ticket middle = {0}, last = {0};
    for (int i = 0; i < BACKLOG; i++) {
        last = add_one(&s, 1);
        middle = i == IN_THE_MIDDLE ? last : middle;
        if (i == 0) {
            await_engine_at_gate();
        }
    }
    assert_status(hd_wait(middle, 0), HD_ERROR_TIMEOUT); /* marks it as awaited from here on */
    set_gate(false);
    assert_ok(hd_wait(middle, HD_FOREVER));
    assert_ok(hd_wait(last, HD_FOREVER));
    holds(&s, BACKLOG + 1);
    hd_close(s.runtime);
}

/* The driver refuses a launch in a chain, but accepts it alone. */
static void what_a_chain_cannot_hold_is_launched_by_itself(void **state)
{
    (void)state;
    scene s = begin("");
    pile_up(&s, 100);
    hd_ticket odd = add_one(&s, ODD);
    hd_ticket last = {0};
    for (int i = 0; i < 100; i++) {
        last = add_one(&s, 1);
    }
    atomic_store(&refuse_set, HDCU_ERROR_NOT_SUPPORTED);
    set_gate(false);
    assert_ok(hd_wait(odd, HD_FOREVER));
    assert_ok(hd_wait(last, HD_FOREVER));
    holds(&s, 202);
    assert_in_range(atomic_load(&singles), 1, HDI_CHAIN_MOST);
    hd_close(s.runtime);
}

/* The driver refuses it alone, too: only this launch failed, and the lane does not do later

 * ones. */
static void a_launch_that_is_refused_fails_by_itself(void **state)
{
    (void)state;
    scene s = begin("");
    hd_ticket before = pile_up(&s, 100);
    hd_ticket odd = add_one(&s, ODD);
    hd_ticket behind = add_one(&s, 1);
    atomic_store(&refuse_set, HDCU_ERROR_INVALID_VALUE);
    atomic_store(&refuse_launch, HDCU_ERROR_INVALID_VALUE);
    set_gate(false);
    assert_ok(hd_wait(before, HD_FOREVER));
    hd_error e = {.size = sizeof e};
    assert_status(hd_wait(odd, HD_FOREVER), HD_ERROR_FAILED);
    hd_last_error(&e);
    assert_int_equal(e.ticket, odd.sequence);
    assert_string_equal(e.kernel, "hd_axpy_f32");
    assert_status(hd_wait(behind, HD_FOREVER), HD_ERROR_FAILED);
    hd_last_error(&e);
    assert_int_equal(e.ticket, odd.sequence);
    hd_close(s.runtime);
}

/* Unloading a module frees the executables with its functions, and no others. Completions that were
 * seen stay seen. */
static void those_of_other_modules_stay(void **state)
{
    (void)state;
    extern const unsigned char hdi_image_builtin[], hdi_image_builtin_end[];
    scene s = begin(""), other = s;
    hd_module *module;
    assert_ok(
        hd_module_load(s.runtime, hdi_image_builtin, (size_t)(hdi_image_builtin_end - hdi_image_builtin), &module));
    assert_ok(hd_kernel_get(module, "hd_axpy_f32", &other.kernels.axpy));
    assert_ok(hd_lane_create(s.runtime, 0, &other.lane));
    assert_ok(hd_wait(pile_up_and_go(&s, BACKLOG), HD_FOREVER));
    uint64_t own = atomic_load(&executables);
    assert_ok(hd_wait(add_one(&other, 1), HD_FOREVER));
    assert_ok(hd_wait(pile_up_and_go(&other, BACKLOG), HD_FOREVER));
    own = atomic_load(&executables) > own ? atomic_load(&executables) : own;
    uint64_t before = atomic_load(&ended);
    assert_ok(hd_module_unload(module));
    /* meanwhile the idle engine may make new ones */
    assert_in_range(atomic_load(&ended) - before, 1, own - 1);
    forget_counts();
    assert_ok(hd_wait(pile_up_and_go(&s, BACKLOG), HD_FOREVER));
    assert_int_equal(atomic_load(&singles), 0);
    holds(&s, 3 * BACKLOG + 2);
    hd_close(s.runtime);
}

/* ---- one in the middle of a chain of 32 ---- */

/* of the launches below: each has its own grid, which identifies the refused one */
enum { FIRST_GRID = 100 };

/* Submits launches of two kernels alternately, so that both neighbours of any launch use the other
 * kernel. */
static void pile_up_both(const scene *s, hd_buffer *z, hd_ticket tickets[BACKLOG])
{
    set_gate(true);
    for (uint32_t i = 0; i < BACKLOG; i++) {
        hd_dims grid = conf_dims(FIRST_GRID + i, 1, 1), block = conf_dims(WORDS, 1, 1);
        hd_arg add[] = {hd_inout(s->y), hd_in(s->x), hd_f32(1), hd_u64(WORDS)};
        hd_arg fill[] = {hd_out(z), hd_u64(WORDS), hd_u32(i)};
        assert_ok(i % 2 ? hd_launch(s->lane, s->kernels.fill, grid, block, 0, fill, 3, &tickets[i])
                        : hd_launch(s->lane, s->kernels.axpy, grid, block, 0, add, 4, &tickets[i]));
        if (i == 0) {
            await_engine_at_gate();
        }
    }
}

/* Makes the driver refuse to set one node in the middle of a chain of 32 (STRAYS: that node
 * strays). If `singly` is a code, the driver also refuses to launch it. Returns its index in
 * `tickets`; the last ticket ends as `expected`. */
static uint32_t hit_one(const scene *s, int code, int singly, hd_status expected, hd_ticket tickets[BACKLOG],
                        hd_buffer **z)
{
    assert_ok(hd_alloc(s->lane, WORDS * 4, z));
    do {
        assert_ok(conf_fill(s->lane, s->kernels, *z, 0, WORDS, 0, NULL));
        assert_ok(hd_lane_wait(s->lane, HD_FOREVER));
    } while (!conf_is_short(s->lane, s->kernels.fill));
    for (;;) {
        assert_ok(hd_fill(s->y, 0, conf_bits(0), WORDS * 4, NULL));
        assert_ok(hd_lane_wait(s->lane, HD_FOREVER));
        forget_counts();
        atomic_store(&refuse_middle, code);
        atomic_store(&refuse_launch, singly);
        pile_up_both(s, *z, tickets);
        set_gate(false);
        hd_status status = hd_wait(tickets[BACKLOG - 1], HD_FOREVER);
        /* chains are shorter if another lane was just active */
        if (atomic_load(&middle_grid) != 0) {
            assert_int_equal(status, expected);
            return atomic_load(&middle_grid) - FIRST_GRID;
        }
        assert_int_equal(status, HD_OK);
    }
}

/* Checks that the failure of `asked` names `culprit` and its kernel. */
static void names(hd_ticket asked, hd_ticket culprit, bool is_fill)
{
    char text[64];
    const char *kernel = is_fill ? "hd_fill_u32" : "hd_axpy_f32";
    hd_error e = {.size = sizeof e};
    assert_status(hd_wait(asked, HD_FOREVER), HD_ERROR_FAILED);
    hd_last_error(&e);
    assert_int_equal(e.ticket, culprit.sequence);
    assert_string_equal(e.kernel, kernel);
    snprintf(text, sizeof text, "'%s'", kernel);
    assert_non_null(strstr(e.message, text));
    snprintf(text, sizeof text, "ticket %llu", (unsigned long long)culprit.sequence);
    assert_non_null(strstr(e.message, text));
}

static void one_in_the_middle_fails_and_is_named(void **state)
{
    (void)state;
    static hd_ticket tickets[BACKLOG];
    hd_buffer *z = NULL;
    scene s = begin("");
    uint32_t culprit = hit_one(&s, HDCU_ERROR_INVALID_VALUE, HDCU_ERROR_INVALID_VALUE, HD_ERROR_FAILED, tickets, &z);
    /* launched alone: at most the launches of its chain */
    assert_in_range(atomic_load(&singles), 1, HDI_CHAIN_MOST);
    for (uint32_t i = 0; i < BACKLOG; i++) {
        if (i < culprit) {
            assert_ok(hd_wait(tickets[i], HD_FOREVER));
        } else { /* the lane stops here */
            names(tickets[i], tickets[culprit], culprit % 2);
        }
    }
    hd_close(s.runtime);
}

static void one_in_the_middle_is_launched_by_itself(void **state)
{
    (void)state;
    static hd_ticket tickets[BACKLOG];
    hd_buffer *z = NULL;
    uint32_t got[WORDS];
    scene s = begin("");
    hit_one(&s, HDCU_ERROR_INVALID_VALUE, 0, HD_OK, tickets, &z);
    for (uint32_t i = 0; i < BACKLOG; i++) {
        assert_ok(hd_wait(tickets[i], HD_FOREVER));
    }
    assert_in_range(atomic_load(&singles), 1, HDI_CHAIN_MOST);
    holds(&s, BACKLOG / 2);
    assert_ok(hd_read(z, 0, got, sizeof got));
    for (int i = 0; i < WORDS; i++) {
        assert_int_equal(got[i], BACKLOG - 1);
    }
    hd_close(s.runtime);
}

/* Kernels that already ended may be anywhere in a chain, so the message names those not seen to
 * end. */
static void one_in_the_middle_strays_and_is_among_those_named(void **state)
{
    (void)state;
    static hd_ticket tickets[BACKLOG];
    hd_buffer *z = NULL;
    hd_error e = {.size = sizeof e};
    scene s = begin("host_memory=16M");
    uint64_t culprit = tickets[hit_one(&s, STRAYS, 0, HD_ERROR_DEVICE_LOST, tickets, &z)].sequence, among = 0;
    assert_status(hd_lane_wait(s.lane, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    hd_last_error(&e);
    const char *says = strstr(e.message, "it is one of the ");
    assert_non_null(says);
    assert_int_equal(sscanf(says, "it is one of the %" SCNu64 " launches", &among), 1);
    assert_in_range(among, HDI_CHAIN_MOST / 2, BACKLOG - 1);
    assert_in_range(culprit, e.ticket, e.ticket + among - 1);
    hd_close(s.runtime);
}

static void executables_are_bounded_and_lent(void **state)
{
    (void)state;
    /* 44 chains of each size, with two executables each, take 66 MB; the 45th chain of 32 is too
     * many */
    enum { LANES = 100, FIT = 2 * 45 * 6 };
    scene s = begin("");
    scene lanes[LANES];
    for (int i = 0; i < LANES; i++) {
        lanes[i] = s;
        assert_ok(hd_lane_create(s.runtime, 0, &lanes[i].lane));
        assert_ok(hd_alloc(lanes[i].lane, WORDS * 4, &lanes[i].y));
        assert_ok(hd_fill(lanes[i].y, 0, conf_bits(0), WORDS * 4, NULL));
    }
    for (int i = 0; i < LANES; i++) {
        /* a lane gets chains when the others no longer use theirs */
        int submitted = 0;
        for (forget_counts(); atomic_load(&chains) == 0; submitted += 70) {
            hd_ticket last = {0};
            for (int k = 0; k < 70; k++) {
                last = add_one(&lanes[i], 1);
            }
            assert_ok(hd_wait(last, HD_FOREVER));
        }
        holds(&lanes[i], (float)submitted);
        assert_in_range(atomic_load(&executables), 1, FIT);
    }
    hd_close(s.runtime);
    assert_int_equal(atomic_load(&executables), 0);
}

/* ---- the driver waits ---- */

static sem_t open_sesame;

static void await_sesame(void *unused)
{
    (void)unused;
    while (sem_wait(&open_sesame) != 0) {
    }
}

static hd_status hold_stream(void *stream, void *unused)
{
    (void)unused;
    return real->cuLaunchHostFunc(stream, await_sesame, NULL) == HDCU_SUCCESS ? HD_OK : HD_ERROR_FAILED;
}

/* The driver makes an executable only when all work on the device is done. Launches in many lanes
 * end all the same while another lane is held. */
static void making_chains_waits_for_no_lane(void **state)
{
    (void)state;
    enum { LANES = 20 };
    assert_int_equal(sem_init(&open_sesame, 0, 0), 0);
    scene s = begin(""), held = s;
    hd_ticket gated, last[LANES];
    assert_ok(hd_wait(pile_up_and_go(&s, BACKLOG), HD_FOREVER)); /* from now on there are chains */
    forget_counts();
    assert_ok(hd_lane_create(s.runtime, 0, &held.lane));
    assert_ok(hd_alloc(held.lane, WORDS * 4, &held.y));
    hd_arg use = hd_inout(held.y);
    assert_ok(hd_lane_run_native(held.lane, hold_stream, NULL, &use, 1, &gated));
    for (int i = 0; i < LANES; i++) {
        scene more = s;
        assert_ok(hd_lane_create(s.runtime, 0, &more.lane));
        assert_ok(hd_alloc(more.lane, WORDS * 4, &more.y));
        assert_ok(hd_fill(more.y, 0, conf_bits(0), WORDS * 4, NULL));
        for (int k = 0; k < BACKLOG / 4; k++) {
            last[i] = add_one(&more, 1);
        }
    }
    for (int i = 0; i < LANES; i++) {
        assert_ok(hd_wait(last[i], 60 * CONF_SECOND * CONF_SLOWNESS));
    }
    assert_false(hd_done(gated));
    assert_true(atomic_load(&chains) > 0);
    assert_int_equal(sem_post(&open_sesame), 0);
    assert_ok(hd_wait(gated, HD_FOREVER));
    hd_close(s.runtime);
    assert_int_equal(sem_destroy(&open_sesame), 0);
}

/* An engine makes chains beside another runtime, unless that runtime has work. */
static void chains_are_made_beside_an_idle_runtime(void **state)
{
    (void)state;
    assert_int_equal(sem_init(&open_sesame, 0, 0), 0);
    scene other = begin("");
    hd_arg use = hd_inout(other.y);
    hd_ticket gated;
    assert_ok(hd_lane_run_native(other.lane, hold_stream, NULL, &use, 1, &gated));
    scene s = begin("");
    assert_ok(hd_wait(pile_up_and_go(&s, BACKLOG), HD_FOREVER));
    assert_false(hd_done(gated));
    assert_int_equal(atomic_load(&chains), 0);
    assert_int_equal(sem_post(&open_sesame), 0);
    assert_ok(hd_wait(gated, HD_FOREVER));
    for (int64_t until = conf_now() + 60 * CONF_SECOND; atomic_load(&chains) == 0;) {
        assert_true(conf_now() < until);
        assert_ok(hd_wait(pile_up_and_go(&s, BACKLOG), HD_FOREVER));
    }
    hd_close(s.runtime);
    hd_close(other.runtime);
    assert_int_equal(sem_destroy(&open_sesame), 0);
}

/* A node that already holds the same launch is not set again. It is set for another launch, even if
 * only the arguments differ. */
static void what_is_the_same_again_is_not_set(void **state)
{
    (void)state;
    scene s = begin("");
    same_again = true;
    float n = 1;
    for (int round = 0; round < 4; round++) {
        assert_ok(hd_wait(pile_up_and_go(&s, BACKLOG), HD_FOREVER));
        n += BACKLOG;
        holds(&s, n);
    }
    uint64_t set = atomic_load(&nodes);
    /* sets each node of each executable at most once */
    assert_in_range(set, 1, 2 * (2 * HDI_CHAIN_MOST - 1));
    hd_arg twice[] = {hd_inout(s.y), hd_in(s.x), hd_f32(2), hd_u64(WORDS)};
    set_gate(true);
    hd_ticket last = add_one(&s, 1);
    await_engine_at_gate();
    for (int i = 0; i < HDI_CHAIN_MOST; i++) {
        assert_ok(hd_launch(s.lane, s.kernels.axpy, conf_dims(1, 1, 1), conf_dims(WORDS, 1, 1), 0, twice, 4, &last));
        add_one(&s, 1);
    }
    set_gate(false);
    assert_ok(hd_lane_wait(s.lane, HD_FOREVER));
    n += 1 + 3 * HDI_CHAIN_MOST;
    holds(&s, n);
    assert_true(atomic_load(&nodes) > set);
    same_again = false;
    hd_close(s.runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backlog_goes_in_chains),
        cmocka_unit_test(the_option_bounds_them),
        cmocka_unit_test(a_chain_ends_where_somebody_waits),
        cmocka_unit_test(what_a_chain_cannot_hold_is_launched_by_itself),
        cmocka_unit_test(a_launch_that_is_refused_fails_by_itself),
        cmocka_unit_test(those_of_other_modules_stay),
        cmocka_unit_test(one_in_the_middle_fails_and_is_named),
        cmocka_unit_test(one_in_the_middle_is_launched_by_itself),
        cmocka_unit_test(one_in_the_middle_strays_and_is_among_those_named),
        cmocka_unit_test(executables_are_bounded_and_lent),
        cmocka_unit_test(making_chains_waits_for_no_lane),
        cmocka_unit_test(chains_are_made_beside_an_idle_runtime),
        cmocka_unit_test(what_is_the_same_again_is_not_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
