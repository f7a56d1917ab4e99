/* test_blame.c - a failure names the kernel that failed, in whichever call reports it.
 *
 * Promise: Every call that reports a failure names the kernel that failed.
 *
 * The cases combine kinds of failure, calls that report, and one lane or two.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: no failure names a kernel that finished before. If several kernels were under way, the
 * one that failed is reported first, since the others come behind it.
 */
#include "workers.h"

enum { words = 256, bytes = words * 4 };

/* ---- kinds of failure ---- */

enum { STRAY, TRAP, OVERDUE, CRASH, KILLED, KINDS };

typedef struct kind {
    const char *name, *kernel;
    bool needs_worker;
    bool is_slow; /* takes as long as the option watchdog allows */
} kind;

static const kind kinds[KINDS] = {
    [STRAY] = {"a stray write", "stray", false, false}, [TRAP] = {"a trap", "trap", false, false},
    [OVERDUE] = {"the watchdog", "spin", false, true},  [CRASH] = {"a kernel that aborts", "crash", true, false},
    [KILLED] = {"SIGKILL", "spin", true, false},
};

/* ---- what goes wrong ---- */

typedef struct scene {
    hd_runtime *runtime;
    wk_kernels k;
    conf_kernels builtin;
    int kind;
    hd_lane *lane, *other;
    hd_buffer *y, *z, *pinned;
    hd_buffer *target; /* no copy can read it */
    wk_gate gate;
    hd_ticket culprit;
    int lane_number;
} scene;

static bool open_scene(scene *s, int which, const char *settings)
{
    *s = (scene){.kind = which};
    s->runtime = conf_open_with("host_devices=1 watchdog=%d %s", which == OVERDUE ? wk_watchdog_ms() : 0, settings);
    s->k = wk_load(s->runtime);
    bool can = s->k.module && (!kinds[which].needs_worker || conf_is_process(s->runtime)) &&
               conf_isolates(s->runtime) && (conf_is_host(s->runtime) || (which != TRAP && which != CRASH));
    if (!can) {
        conf_close(s->runtime);
        return false;
    }
    s->builtin = conf_builtins(s->runtime);
    hd_lane *third = NULL;
    hd_buffer *x = NULL;
    /* its number is lower than that of the culprit's lane */
    CONF_OK(hd_lane_create(s->runtime, 0, &s->other));
    CONF_OK(hd_lane_create(s->runtime, 0, &s->lane));
    CONF_OK(hd_lane_create(s->runtime, 0, &third));
    CONF_OK(hd_alloc(s->lane, bytes, &s->y));
    CONF_OK(hd_alloc(s->other, bytes, &s->z));
    CONF_OK(hd_alloc(third, bytes, &x));
    CONF_OK(hd_alloc_host(s->runtime, bytes, &s->pinned));
    CONF_OK(hd_fill(s->y, 0, 0, bytes, NULL));
    CONF_OK(hd_fill(s->z, 0, 0, bytes, NULL));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    s->lane_number = hd_lane_number(s->lane);
    hd_lane *innocent[] = {third, s->other, s->lane};
    for (int i = 0; i < 3; i++) {
        hd_ticket ticket;
        CONF_OK(wk_launch_one(innocent[i], s->k.hello, x, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    }
    return true;
}

/* Checks that the failure names the kernel, in text and fields. */
static void check_blamed(const scene *s, const char *teller)
{
    const char *kernel = kinds[s->kind].kernel;
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    char name[64];
    snprintf(name, sizeof name, "'%s'", kernel);
    if (strstr(e.message, name) == NULL || strstr(e.message, "hello") != NULL || strcmp(e.kernel, kernel) != 0 ||
        strcmp(e.operation, "launch") != 0 || e.device != 0 || e.lane != s->lane_number ||
        e.ticket != s->culprit.sequence) {
        conf_fail_at(__FILE__, __LINE__, "%s, reported by %s: kernel '%s' (%s, device %d, lane %d, ticket %llu): %s",
                     kinds[s->kind].name, teller, e.kernel, e.operation, e.device, e.lane, (unsigned long long)e.ticket,
                     e.message);
    }
}

/* Returns true if the work was submitted. Otherwise the loss is noticed already, and the refusal
 * must report it as well. */
static bool submitted(const scene *s, hd_status status)
{
    if (status != HD_OK) {
        CONF_TRUE(status == HD_ERROR_DEVICE_LOST);
        check_blamed(s, "a launch that is refused");
    }
    return status == HD_OK;
}

/* Launches the culprit, and in another lane work that waits for its result. Returns false if the
 * loss was reported meanwhile. */
static bool go_wrong(scene *s, bool two_lanes)
{
    s->target = two_lanes ? s->z : s->y;
    hd_kernel *bad = s->kind == TRAP ? s->k.trap : s->k.crash;
    if (kinds[s->kind].kernel == kinds[OVERDUE].kernel) {
        wk_gate_shut(&s->gate, s->runtime, s->lane, s->k);
        s->culprit = s->gate.ticket;
        if (!submitted(s, wk_add_one(s->lane, s->k, s->y, words, NULL))) {
            return false;
        }
    } else {
        CONF_OK(s->kind == STRAY ? wk_stray(s->lane, s->k, s->y, &s->culprit)
                                 : wk_launch_one(s->lane, bad, s->y, &s->culprit));
    }
    bool under_way = !two_lanes || submitted(s, conf_copy(s->other, s->builtin, s->z, 0, s->y, 0, words, NULL));
    if (under_way && s->kind == KILLED) {
        CONF_EQUAL(kill(wk_pid(s->runtime, 0), SIGKILL), 0);
    }
    return under_way;
}

static void close_scene(scene *s)
{
    if (s->gate.flags != NULL) {
        wk_gate_open(&s->gate);
    }
    conf_close(s->runtime);
}

/* ---- calls that report ---- */

static hd_status by_read(scene *s)
{
    uint32_t got;
    return hd_read(s->target, 0, &got, sizeof got);
}

static hd_status by_write(scene *s)
{
    uint32_t got[words] = {0};
    hd_status status = hd_write(s->target, 0, got, bytes);
    return status ? status : by_read(s); /* a write need not wait for the bytes that it replaces */
}

static hd_status by_copy(scene *s)
{
    hd_ticket ticket;
    hd_status status = hd_copy(s->pinned, 0, s->target, 0, bytes, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

static hd_status by_map(scene *s)
{
    void *at;
    hd_status status = hd_copy(s->pinned, 0, s->target, 0, bytes, NULL);
    return status ? status : hd_map(s->pinned, HD_READ, &at);
}

static hd_status by_element(scene *s)
{
    uint32_t got;
    hd_status status = hd_copy(s->pinned, 0, s->target, 0, bytes, NULL);
    hd_error e = {.size = sizeof e};
    if (status == HD_OK && hd_get_u32(s->pinned, 3, &got)) {
        return HD_OK;
    }
    hd_last_error(&e);
    return e.status;
}

static hd_status by_buffer_wait(scene *s)
{
    return hd_buffer_wait(s->target, HD_READ, HD_FOREVER);
}

static hd_status by_tensor_read(scene *s)
{
    const uint64_t shape[] = {words / 2};
    const int64_t strides[] = {8};
    static uint32_t got[words];
    hd_tensor t;
    hd_status status = hd_tensor_make_strided(s->target, 0, HD_TYPE_F32, 1, shape, strides, &t);
    return status ? status : hd_tensor_read(&t, got);
}

static hd_status by_lane_wait(scene *s)
{
    return hd_lane_wait(s->target == s->z ? s->other : s->lane, HD_FOREVER);
}

static hd_status by_wait(scene *s)
{
    return hd_wait(s->culprit, HD_FOREVER);
}

static hd_status by_launch(scene *s)
{
    hd_status status = by_wait(s);
    CONF_TRUE(status == HD_ERROR_DEVICE_LOST);
    hd_lane *fresh = NULL;
    hd_buffer *large = NULL;
    CONF_FAILS(hd_lane_create(s->runtime, 0, &fresh), HD_ERROR_DEVICE_LOST);
    check_blamed(s, "hd_lane_create");
    CONF_FAILS(hd_alloc(s->lane, (size_t)64 << 20, &large), HD_ERROR_DEVICE_LOST);
    check_blamed(s, "hd_alloc");
    return wk_add_one(s->other, s->k, s->z, words, NULL);
}

static hd_status by_restart(scene *s)
{
    CONF_TRUE(by_wait(s) == HD_ERROR_DEVICE_LOST);
    if (conf_is_process(s->runtime)) { /* the device restarts: the earlier loss is still reported */
        CONF_OK(hd_device_restart(s->runtime, 0));
        return by_wait(s);
    }
    CONF_FAILS(hd_device_restart(s->runtime, 0), HD_ERROR_UNSUPPORTED);
    return HD_ERROR_DEVICE_LOST;
}

static hd_status by_loss_next(scene *s)
{
    CONF_TRUE(by_wait(s) == HD_ERROR_DEVICE_LOST);
    check_blamed(s, "hd_wait");
    struct pollfd p = {.events = POLLIN};
    CONF_OK(hd_loss_descriptor(s->runtime, &p.fd));
    CONF_EQUAL(poll(&p, 1, 60000), 1);
    hd_device_loss loss = {.size = sizeof loss};
    CONF_OK(hd_loss_next(s->runtime, &loss));
    if (strstr(loss.message, kinds[s->kind].kernel) == NULL || strstr(loss.message, "hello") != NULL) {
        conf_fail_at(__FILE__, __LINE__, "%s, reported by hd_loss_next: %s", kinds[s->kind].name, loss.message);
    }
    return HD_ERROR_DEVICE_LOST;
}

typedef struct teller {
    const char *name;
    hd_status (*call)(scene *s);
    bool brief; /* also with slow kinds */
} teller;

static const teller tellers[] = {
    {"hd_read", by_read, true},
    {"hd_write", by_write, false},
    {"hd_copy and hd_wait", by_copy, false},
    {"hd_copy and hd_map", by_map, false},
    {"hd_copy and hd_get_u32", by_element, false},
    {"hd_buffer_wait", by_buffer_wait, false},
    {"hd_tensor_read", by_tensor_read, false},
    {"hd_lane_wait", by_lane_wait, true},
    {"hd_wait", by_wait, false},
    {"a later launch", by_launch, false},
    {"hd_device_restart", by_restart, false},
    {"hd_loss_next", by_loss_next, true},
};

static void told_by_all(int which)
{
    for (size_t i = 0; i < sizeof tellers / sizeof tellers[0]; i++) {
        for (int two_lanes = 0; two_lanes < 2; two_lanes++) {
            scene s;
            if (kinds[which].is_slow && !tellers[i].brief) {
                continue;
            }
            if (!open_scene(&s, which, "")) {
                skip(); /* no call can report it here */
            }
            if (go_wrong(&s, two_lanes != 0)) {
                hd_status status = tellers[i].call(&s);
                if (status != HD_ERROR_DEVICE_LOST) {
                    conf_fail_at(__FILE__, __LINE__, "%s, %s: %s", kinds[which].name, tellers[i].name,
                                 hd_status_name(status));
                }
                check_blamed(&s, tellers[i].name);
            }
            close_scene(&s);
        }
    }
}

static void a_stray_write(void **state)
{
    (void)state;
    told_by_all(STRAY);
}

static void a_trap(void **state)
{
    (void)state;
    told_by_all(TRAP);
}

static void a_kernel_that_runs_too_long(void **state)
{
    (void)state;
    told_by_all(OVERDUE);
}

static void a_kernel_that_ends_its_worker(void **state)
{
    (void)state;
    told_by_all(CRASH);
}

static void a_worker_that_is_killed(void **state)
{
    (void)state;
    told_by_all(KILLED);
}

/* ---- the option launch_wait ---- */

/* Checks a launch that works: it is over when the call returns. */
static void check_waited(const scene *s)
{
    hd_ticket ticket = {NULL, 0};
    CONF_OK(wk_add_one(s->other, s->k, s->z, words, &ticket));
    CONF_TRUE(ticket.lane == s->other && hd_done(ticket));
    CONF_FILLED(s->z, 0, 1, bytes);
}

/* Launches the culprit, and returns the status of the call. */
static hd_status launch_culprit(scene *s, hd_ticket *out)
{
    void *flags = NULL;
    switch (s->kind) {
    case STRAY:
        return wk_stray(s->lane, s->k, s->y, out);
    case TRAP:
        return wk_launch_one(s->lane, s->k.trap, s->y, out);
    case CRASH:
        return wk_launch_one(s->lane, s->k.crash, s->y, out);
    default:
        CONF_OK(hd_map(s->pinned, HD_READ_WRITE, &flags));
        memset(flags, 0, bytes);
        s->gate.flags = flags;
        return wk_launch_one(s->lane, s->k.spin, s->pinned, out);
    }
}

static void a_launch_that_waits_tells_itself(void **state)
{
    (void)state;
    int told = 0;
    for (int which = 0; which < KILLED; which++) {
        scene s;
        if (!open_scene(&s, which, "launch_wait=on")) {
            continue;
        }
        check_waited(&s);
        hd_ticket before = conf_lane_ticket(s.lane), ticket = {NULL, 0};
        s.culprit = (hd_ticket){s.lane, before.sequence + 1};
        /* a kernel file, for host devices only, lists names and kinds of parameters; PTX lists
         * their sizes */
        CONF_FAILS_WITH(launch_culprit(&s, &ticket), HD_ERROR_DEVICE_LOST,
                        conf_on_gpus ? "grid 1 x 1 x 1, block 1 x 1 x 1, an argument = 0x"
                                     : "grid 1 x 1 x 1, block 1 x 1 x 1, y at 0x");
        check_blamed(&s, "hd_launch");
        CONF_TRUE(ticket.lane == NULL); /* outputs are written only on success */
        if (which == STRAY) {
            CONF_TRUE(strstr(hd_message(), conf_on_gpus ? "an argument = 0x10" : "address = 16") != NULL);
        }
        close_scene(&s);
        told++;
    }
    if (!told) {
        skip();
    }
}

/* A launch that the driver refuses costs nothing but its lane. */
static void a_launch_that_waits_tells_what_the_driver_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 launch_wait=on fault=cuLaunchKernel:2=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(conf_fill(lane, k, x, 0, words, 3, NULL));
    CONF_FAILS_WITH(conf_fill(lane, k, x, 0, words, 4, NULL), HD_ERROR_FAILED, "value = 4");
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    CONF_TRUE(strcmp(e.kernel, "hd_fill_u32") == 0);
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_OK(conf_fill(lane, k, x, 0, words, 5, NULL));
    CONF_FILLED(x, 0, 5, bytes);
    conf_close(runtime);
}

/* ---- limits that pass ---- */

/* Checks that the failure is a limit that passed, and names the kernel that still runs. */
static void check_named(hd_status status, const scene *s, const char *call)
{
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    if (status != HD_ERROR_TIMEOUT || strstr(e.message, "kernel 'spin' (lane ") == NULL ||
        strstr(e.message, "unfinished on device 0: ") == NULL || strstr(e.message, "hello") != NULL ||
        strcmp(e.kernel, "spin") != 0 || e.lane != s->lane_number || e.device != 0 || e.ticket != s->culprit.sequence) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s, kernel '%s' (lane %d, ticket %llu): %s", call, hd_status_name(status),
                     e.kernel, e.lane, (unsigned long long)e.ticket, e.message);
    }
}

static void a_limit_that_passes_names_what_is_under_way(void **state)
{
    (void)state;
    scene s;
    if (!open_scene(&s, STRAY, "transfer_timeout=20")) {
        skip();
    }
    static uint32_t got[bytes];
    wk_gate_shut(&s.gate, s.runtime, s.lane, s.k);
    s.culprit = s.gate.ticket;
    hd_ticket behind, across;
    CONF_OK(wk_add_one(s.lane, s.k, s.y, words, &behind));
    CONF_OK(conf_copy(s.other, s.builtin, s.z, 0, s.y, 0, words, &across));
    /* It may run before its engine notes that the driver took it. */
    while (hd_wait(s.culprit, CONF_MILLISECOND) == HD_ERROR_TIMEOUT &&
           strstr(hd_message(), "not seen to start") != NULL) {
    }
    check_named(hd_wait(s.culprit, CONF_MILLISECOND), &s, "hd_wait");
    check_named(hd_wait(behind, CONF_MILLISECOND), &s, "hd_wait behind it");
    CONF_TRUE(strstr(hd_message(), "awaited: kernel 'add_one' (lane ") != NULL);
    check_named(hd_wait(across, CONF_MILLISECOND), &s, "hd_wait in another lane");
    CONF_TRUE(strstr(hd_message(), "awaited: kernel 'hd_copy_u32' (lane ") != NULL);
    check_named(hd_lane_wait(s.other, CONF_MILLISECOND), &s, "hd_lane_wait");
    check_named(hd_lane_reset(s.lane, CONF_MILLISECOND), &s, "hd_lane_reset");
    check_named(hd_buffer_wait(s.z, HD_READ, CONF_MILLISECOND), &s, "hd_buffer_wait");
    check_named(hd_read(s.z, 0, got, bytes), &s, "hd_read");
    check_named(hd_read(s.gate.pinned, 0, got, bytes), &s, "hd_read of pinned memory");
    /* a call with limit 0 reports no more than that */
    CONF_FAILS(hd_wait(behind, 0), HD_ERROR_TIMEOUT);
    CONF_TRUE(strstr(hd_message(), "unfinished") == NULL);
    wk_gate_open(&s.gate);
    CONF_OK(hd_wait(across, 60 * CONF_SECOND));
    close_scene(&s);
}

/* A kernel ended, but the one behind it was quick until now and suddenly waits. If both went to the
 * driver together, the first end shows only with the second one, and a timeout names both. */
static void a_later_kernel_that_hides_an_end_is_named(void **state)
{
    (void)state;
    enum { tries = 50 };
    hd_runtime *runtime = conf_open("host_devices=1");
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    hd_lane *lane = NULL;
    hd_buffer *x = NULL, *pinned = NULL;
    uint32_t *flags = NULL;
    hd_ticket first, second, gate;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    CONF_OK(hd_map(pinned, HD_READ_WRITE, (void **)&flags));
    bool hidden = false;
    for (int i = 0; i < tries && !hidden; i++) {
        __atomic_store_n(&flags[1], 1, __ATOMIC_RELEASE);
        for (int j = 0; j < 20; j++) { /* `spin` is quick */
            CONF_OK(wk_launch_one(lane, k.hello, x, NULL));
            CONF_OK(wk_launch_one(lane, k.spin, pinned, &second));
            CONF_OK(hd_wait(second, 60 * CONF_SECOND));
        }
        __atomic_store_n(&flags[1], 0, __ATOMIC_RELEASE);
        hd_claim *claim = NULL;
        CONF_OK(hd_claim_begin(runtime, NULL, 0, &claim));
        CONF_OK(hd_claim_get_ticket(claim, &gate));
        CONF_OK(hd_lane_add_dependency(lane, gate, NULL)); /* so that both launches go together */
        CONF_OK(wk_launch_one(lane, k.hello, x, &first));
        CONF_OK(wk_launch_one(lane, k.spin, pinned, &second));
        CONF_OK(hd_claim_end(claim, HD_OK));
        hidden = hd_wait(first, 200 * CONF_MILLISECOND) == HD_ERROR_TIMEOUT &&
                 strstr(hd_message(), "not seen to start") == NULL;
        if (hidden) {
            CONF_TRUE(strstr(hd_message(), "unfinished on device 0: kernel 'hello' (lane ") != NULL);
            CONF_TRUE(strstr(hd_message(), "only when a later launch ends: kernel 'spin' (lane ") != NULL);
        }
        __atomic_store_n(&flags[1], 1, __ATOMIC_RELEASE);
        CONF_OK(hd_wait(second, 60 * CONF_SECOND));
    }
    printf("  an end was hidden: %s\n", hidden ? "yes" : "no");
    hd_free(x);
    hd_free(pinned);
    hd_lane_destroy(lane);
    conf_close(runtime);
}

/* A lane of one device waits for a kernel of another device. */
static void what_another_device_is_at_is_named(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2");
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    hd_lane *first = conf_default_lane(runtime, 0), *second = conf_default_lane(runtime, 1);
    hd_buffer *y = NULL, *z = NULL;
    CONF_OK(hd_alloc(second, bytes, &y));
    CONF_OK(hd_alloc(first, bytes, &z));
    wk_warm(runtime, 0, k);
    wk_warm(runtime, 1, k);
    CONF_OK(hd_fill(y, 0, 0, bytes, NULL));
    CONF_OK(hd_copy(z, 0, y, 0, bytes, NULL)); /* finds the route between them */
    CONF_FILLED(z, 0, 0, bytes);
    wk_gate gate;
    hd_ticket ticket;
    wk_gate_shut(&gate, runtime, second, k);
    CONF_OK(wk_add_one(second, k, y, words, NULL));
    CONF_OK(hd_copy(z, 0, y, 0, bytes, NULL));
    CONF_OK(wk_add_one(first, k, z, words, &ticket));
    while (hd_wait(gate.ticket, CONF_MILLISECOND) == HD_ERROR_TIMEOUT &&
           strstr(hd_message(), "not seen to start") != NULL) {
    }
    CONF_FAILS_WITH(hd_wait(ticket, CONF_MILLISECOND), HD_ERROR_TIMEOUT,
                    "unfinished on device 1: kernel 'spin' (lane ");
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    CONF_EQUAL(e.device, 1);
    CONF_EQUAL(e.ticket, gate.ticket.sequence);
    CONF_TRUE(strcmp(e.kernel, "spin") == 0);
    wk_gate_open(&gate);
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(z, 0, 2, bytes); /* one was added to y, another one to z */
    conf_close(runtime);
}

/* One of 32 launches that go to the driver together. The kernels of all others are sure to end. */
static void one_in_the_middle_of_many(void **state)
{
    (void)state;
    scene s;
    if (!open_scene(&s, STRAY, "")) {
        skip();
    }
    s.target = s.y;
    wk_gate_shut(&s.gate, s.runtime, s.lane, s.k); /* so that the engine finds all of them */
    for (int i = 0; i < 32; i++) {
        hd_status status =
            i == 17 ? wk_stray(s.lane, s.k, s.y, &s.culprit) : wk_launch_one(s.lane, s.k.hello, s.y, NULL);
        CONF_OK(status);
    }
    wk_gate_open(&s.gate);
    CONF_EQUAL(by_wait(&s), HD_ERROR_DEVICE_LOST);
    check_blamed(&s, "hd_wait behind a burst");
    CONF_TRUE(strstr(hd_message(), "the only launch") != NULL);
    CONF_EQUAL(by_read(&s), HD_ERROR_DEVICE_LOST);
    check_blamed(&s, "hd_read behind a burst");
    close_scene(&s);
}

int main(void)
{
    conf_begin("test_blame");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_stray_write),
        CONF_CASE(a_trap),
        CONF_CASE(a_kernel_that_runs_too_long),
        CONF_CASE(a_kernel_that_ends_its_worker),
        CONF_CASE(a_worker_that_is_killed),
        CONF_CASE(one_in_the_middle_of_many),
        CONF_CASE(a_launch_that_waits_tells_itself),
        CONF_CASE(a_launch_that_waits_tells_what_the_driver_refused),
        CONF_CASE(a_limit_that_passes_names_what_is_under_way),
        CONF_CASE(a_later_kernel_that_hides_an_end_is_named),
        CONF_CASE(what_another_device_is_at_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
