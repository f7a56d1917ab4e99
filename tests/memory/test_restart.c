/* test_restart.c - an arena whose device is lost and comes back: dropped mappings, refused calls,
 * and threads that keep allocating. The port is a fake that records its mapped granules, and the
 * request that mapped them.
 *
 * Promise: An arena drops its mappings with its device, and serves again after a restart.
 * Threads: one; several that take and give in one case.
 */
#include "support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "engine/port.h"
#include "memory/share.h"
#include "memory/arena.h"

#define MIB ((size_t)1 << 20)
#define TOTAL (256 * MIB)
#define RANGE (16 * TOTAL)
#define GRANULE (2 * MIB)

/* A device behind a port, which may be gone. */
typedef struct device {
    hdi_port port; /* first */
    _Atomic int gone;
    bool elsewhere; /* reserves at other addresses than the requested ones */
    uint64_t base, mapped;
    /* per granule: the length of the mapping that begins there; UINT16_MAX: continues one */
    uint16_t mappings[RANGE / GRANULE];
    int requests, reserved, grants;
    int wrong; /* invalid requests */
} device;

static hdi_answer answer_of(device *d, const char *call)
{
    d->requests++;
    return (hdi_answer){atomic_load(&d->gone), call};
}

static void forget(device *d)
{
    d->base = d->mapped = 0;
    memset(d->mappings, 0, sizeof d->mappings);
}

static int count_mappings(const device *d)
{
    int n = 0;
    for (size_t g = 0; g < RANGE / GRANULE; g++) {
        n += d->mappings[g] != 0 && d->mappings[g] != UINT16_MAX;
    }
    return n;
}

static hdi_answer facts(hdi_port *port, hdi_facts *out)
{
    memset(out, 0, sizeof *out);
    out->virtual_memory = 1;
    out->memory_bytes = TOTAL;
    out->granule = 2 * MIB;
    return answer_of((device *)(void *)port, "facts");
}

static hdi_answer reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    device *d = (device *)(void *)port;
    hdi_answer answer = answer_of(d, "cuMemAddressReserve");
    if (hdi_answered(answer)) {
        d->wrong += d->base != 0 || bytes != RANGE;
        d->base = *out = wanted != 0 && !d->elsewhere ? wanted : 0x700000000000;
        d->reserved++;
    }
    return answer;
}

static hdi_answer unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    device *d = (device *)(void *)port;
    d->wrong += at != d->base || bytes != RANGE;
    forget(d);
    d->reserved--;
    return answer_of(d, "cuMemAddressFree");
}

static hdi_answer map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    device *d = (device *)(void *)port;
    hdi_answer answer = answer_of(d, "cuMemCreate");
    if (hdi_answered(answer)) {
        uint64_t first = (at - d->base) / GRANULE, count = bytes / GRANULE;
        if (at < d->base || count == 0 || first + count > RANGE / GRANULE || bytes > TOTAL - d->mapped) {
            d->wrong++;
            return answer;
        }
        for (uint64_t g = first; g < first + count; g++) {
            d->wrong += d->mappings[g] != 0;
            d->mappings[g] = UINT16_MAX;
        }
        d->mappings[first] = (uint16_t)count;
        d->mapped += bytes;
    }
    return answer;
}

static hdi_answer map_each(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    for (uint64_t done = 0; done < bytes && hdi_answered(answer); done += each) {
        answer = map(port, at + done, each);
    }
    return answer;
}

/* True if the range consists of whole mappings. */
static bool is_whole(const device *d, uint64_t at, uint64_t bytes)
{
    uint64_t g = (at - d->base) / GRANULE, end = g + bytes / GRANULE;
    if (at < d->base || end > RANGE / GRANULE) {
        return false;
    }
    while (g < end && d->mappings[g] != 0 && d->mappings[g] != UINT16_MAX) {
        g += d->mappings[g];
    }
    return g == end;
}

static hdi_answer unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    device *d = (device *)(void *)port;
    hdi_answer answer = answer_of(d, "cuMemUnmap");
    if (hdi_answered(answer)) {
        if (!is_whole(d, at, bytes)) {
            d->wrong++;
            return answer;
        }
        memset(&d->mappings[(at - d->base) / GRANULE], 0, bytes / GRANULE * sizeof d->mappings[0]);
        d->mapped -= bytes;
    }
    return answer;
}

static hdi_answer move(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes)
{
    hdi_answer answer = unmap(port, from, bytes);
    return hdi_answered(answer) ? map_each(port, to, bytes, GRANULE) : answer;
}

static hdi_answer grant(hdi_port *port, int peer, uint64_t at, uint64_t bytes)
{
    (void)peer;
    device *d = (device *)(void *)port;
    d->wrong += !is_whole(d, at, bytes);
    d->grants++;
    return answer_of(d, "cuMemSetAccess");
}

static const hdi_port_calls calls = {.facts = facts,
                                     .reserve = reserve,
                                     .unreserve = unreserve,
                                     .map = map,
                                     .map_each = map_each,
                                     .move = move,
                                     .unmap = unmap,
                                     .grant = grant};

/* Starts a new device process without mappings; the device is no longer gone. */
static void begin_afresh(device *d)
{
    forget(d);
    d->reserved = 0;
    atomic_store(&d->gone, 0);
}

static bool unfinished(void *context, hdi_point point)
{
    (void)context;
    (void)point;
    return false;
}

static hdi_arena *make(device *d)
{
    *d = (device){.port = {&calls}};
    const hdi_arena_config config = {.port = &d->port,
                                     .index = 1,
                                     .address = hdi_device_range(1, 0, RANGE, 2),
                                     .fixed = true,
                                     .finished = unfinished};
    hdi_arena *arena = NULL;
    assert_ok(hdi_arena_create(&config, &arena));
    assert_int_equal(hdi_arena_base(arena), config.address);
    return arena;
}

static hd_status take(hdi_arena *arena, size_t bytes, hdcu_deviceptr *out, size_t *n_points)
{
    hdi_points points;
    hd_status status = hdi_arena_alloc(arena, 0, bytes, out, &points);
    if (status == HD_OK) {
        *n_points = points.count;
        hdi_points_release(&points);
    }
    return status;
}

static void check(hdi_arena *arena)
{
    char why[160] = "";
    if (!hdi_arena_check(arena, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

static hdi_arena_info info_of(hdi_arena *arena)
{
    hdi_arena_info info;
    hdi_arena_get_info(arena, &info);
    return info;
}

static void forgets_everything(void **unused)
{
    (void)unused;
    device d;
    hdi_arena *arena = make(&d);
    hdcu_deviceptr at[3];
    size_t points;
    for (int i = 0; i < 3; i++) {
        assert_ok(take(arena, 40 * MIB, &at[i], &points));
    }
    assert_ok(hdi_arena_grant(arena, 0));
    hdi_arena_free(arena, at[1], &(hdi_point){7, 1}, 1);

    atomic_store(&d.gone, HDI_GONE_SIGNAL - 9);
    hdcu_deviceptr none = 5;
    assert_status(take(arena, 120 * MIB, &none, &points), HD_ERROR_DEVICE_LOST);
    assert_message_has("killed by signal 9");
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    assert_int_equal(error.driver_code, 0);
    assert_int_equal(error.device, 1);
    assert_int_equal(none, 5);
    check(arena);

    begin_afresh(&d);
    const uint64_t again = hdi_device_range(1, 1, RANGE, 2);
    int requests = d.requests, grants = d.grants;
    assert_ok(hdi_arena_restart(arena, again));
    assert_int_equal(d.requests, requests + 1); /* reserves the range, and nothing else */
    assert_int_equal(hdi_arena_base(arena), again);
    assert_int_equal(info_of(arena).mapped_bytes, 0);
    assert_int_equal(info_of(arena).taken_blocks, 0);
    check(arena);
    hdi_arena_free(arena, at[0], &(hdi_point){7, 2}, 1); /* from before the loss: ignored */
    hdi_arena_free(arena, at[2], NULL, 0);
    assert_ok(take(arena, TOTAL, &at[0], &points));
    assert_int_equal(at[0], again);
    assert_int_equal(points, 0);
    assert_int_equal(d.grants, grants); /* peers need a new grant */
    assert_ok(hdi_arena_grant(arena, 0));
    assert_int_equal(d.grants, grants + count_mappings(&d));
    hdi_arena_free(arena, at[2], NULL, 0);
    assert_int_equal(info_of(arena).taken_blocks, 1);
    check(arena);
    assert_ok(hdi_arena_destroy(arena, false));
    assert_int_equal(d.reserved, 0);
    assert_int_equal(d.wrong, 0);
}

static void a_restart_that_fails_may_be_repeated(void **unused)
{
    (void)unused;
    device d;
    hdi_arena *arena = make(&d);
    hdcu_deviceptr at, old;
    size_t points;
    assert_ok(take(arena, MIB, &old, &points));
    for (int way = 0; way < 3; way++) {
        begin_afresh(&d);
        if (way == 0) {
            atomic_store(&d.gone, HDI_GONE_CLOSED);
            assert_status(hdi_arena_restart(arena, hdi_device_range(1, 1, RANGE, 2)), HD_ERROR_DEVICE_LOST);
            assert_message_has("the memory of device 1 cannot be set up");
        } else if (way == 1) {
            atomic_store(&d.gone, HDCU_ERROR_OUT_OF_MEMORY);
            assert_status(hdi_arena_restart(arena, hdi_device_range(1, 2, RANGE, 2)), HD_ERROR_MEMORY);
        } else {
            d.elsewhere = true;
            assert_status(hdi_arena_restart(arena, hdi_device_range(1, 3, RANGE, 2)), HD_ERROR_UNSUPPORTED);
            d.elsewhere = false;
        }
        assert_int_equal(d.reserved, 0);
        int requests = d.requests;
        assert_status(take(arena, 1, &at, &points), HD_ERROR_DEVICE_LOST);
        assert_message_has("device 1 was lost");
        assert_status(hdi_arena_grant(arena, 0), HD_ERROR_DEVICE_LOST);
        hdi_arena_revoke(arena, 0);
        hdi_arena_free(arena, old, NULL, 0);
        hdi_arena_free(arena, 0, NULL, 0);
        assert_int_equal(hdi_arena_base(arena), 0);
        assert_int_equal(info_of(arena).mapped_bytes, 0);
        assert_int_equal(d.requests, requests);
        check(arena);
    }
    begin_afresh(&d);
    assert_ok(hdi_arena_restart(arena, hdi_device_range(1, 4, RANGE, 2)));
    assert_ok(take(arena, MIB, &at, &points));
    check(arena);
    atomic_store(&d.gone, HDI_GONE_CLOSED);
    assert_int_equal(hdi_arena_restart(arena, hdi_device_range(1, 5, RANGE, 2)), HD_ERROR_DEVICE_LOST);
    int requests = d.requests;
    assert_ok(hdi_arena_destroy(arena, false)); /* there is nothing to give back */
    assert_int_equal(d.requests, requests);
    assert_int_equal(d.wrong, 0);
}

static void ranges_do_not_meet(void **unused)
{
    (void)unused;
    const uint64_t bytes = (uint64_t)1 << 30;
    uint64_t seen[32];
    int n = 0;
    for (unsigned epoch = 0; epoch < HDI_RANGE_EPOCHS; epoch++) {
        for (int i = 0; i < 4; i++) {
            uint64_t at = hdi_device_range(i, epoch, bytes, 4);
            assert_true(at >= HDI_RANGES_AT && at + bytes <= HDI_RANGES_END);
            assert_int_equal(at % (2 * MIB), 0);
            for (int j = 0; j < n; j++) {
                assert_true(at + bytes + HDI_RANGE_GAP <= seen[j] || seen[j] + bytes + HDI_RANGE_GAP <= at);
            }
            seen[n++] = at;
        }
    }
    assert_int_equal(hdi_device_range(2, HDI_RANGE_EPOCHS + 3, bytes, 4), hdi_device_range(2, 3, bytes, 4));
    assert_int_equal(hdi_device_range(0, 0, HDI_RANGES_END - HDI_RANGES_AT, 1), 0);
    assert_int_equal(hdi_device_range(0, 0, UINT64_MAX, 1), 0);
    assert_int_equal(hdi_device_range(0, 0, 0, 1), 0);
    assert_int_equal(hdi_device_range(1, 0, 4096, 1), 0);
    assert_int_equal(hdi_device_range(3, 7, (HDI_RANGES_END - HDI_RANGES_AT) / 8, 4), 0);
    assert_true(hdi_device_range(0, 0, (HDI_RANGES_END - HDI_RANGES_AT) / 8, 4) != 0);
}

/* ---- threads ---- */

enum { THREADS = 3, ROUNDS = 4000, RESTARTS = 40 };

typedef struct worker {
    hdi_arena *arena;
    _Atomic bool *over;
    int errors, lost;
} worker;

static void *allocate_and_free(void *argument)
{
    worker *w = argument;
    hdcu_deviceptr held[8] = {0};
    for (int i = 0; i < ROUNDS || !atomic_load(w->over); i++) {
        hdcu_deviceptr *at = &held[i % 8];
        if (*at != 0) {
            hdi_arena_free(w->arena, *at, NULL, 0);
            *at = 0;
        }
        size_t points = 0;
        size_t bytes = i % 3 == 0 ? 4096 : (size_t)(1 + i % 5) * 8 * MIB;
        hd_status status = take(w->arena, bytes, at, &points);
        if (i % 50 == 0) {
            hd_status trimmed = hdi_arena_trim(w->arena, 0, SIZE_MAX, NULL);
            w->errors += trimmed != HD_OK && trimmed != HD_ERROR_DEVICE_LOST;
            hd_status ahead = hdi_arena_grow_ahead(w->arena, 8 * MIB, NULL);
            w->errors += ahead != HD_OK && ahead != HD_ERROR_DEVICE_LOST;
        }
        w->lost += status == HD_ERROR_DEVICE_LOST;
        w->errors += status != HD_OK && status != HD_ERROR_DEVICE_LOST && status != HD_ERROR_MEMORY;
        w->errors += status == HD_OK && (*at < HDI_RANGES_AT || *at >= HDI_RANGES_END || points != 0);
    }
    for (int i = 0; i < 8; i++) {
        hdi_arena_free(w->arena, held[i], NULL, 0);
    }
    return NULL;
}

static void threads_go_on(void **unused)
{
    (void)unused;
    device d;
    hdi_arena *arena = make(&d);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    _Atomic bool over = false;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.arena = arena, .over = &over};
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &workers[i]), 0);
    }
    for (unsigned i = 1; i <= RESTARTS; i++) {
        atomic_store(&d.gone, HDI_GONE_CLOSED);
        assert_status(hdi_arena_restart(arena, hdi_device_range(1, i, RANGE, 2)), HD_ERROR_DEVICE_LOST);
        assert_int_equal(hdi_arena_base(arena), 0);
        forget(&d); /* the arena makes no request until the restart */
        d.reserved = 0;
        atomic_store(&d.gone, 0);
        assert_ok(hdi_arena_restart(arena, hdi_device_range(1, i, RANGE, 2)));
        assert_ok(hdi_arena_grant(arena, 0));
        hdi_arena_revoke(arena, (int)i % 2);
        check(arena);
        usleep(1000);
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].errors, 0);
    }
    check(arena);
    assert_int_equal(info_of(arena).taken_blocks, 0);
    assert_ok(hdi_arena_destroy(arena, false));
    assert_int_equal(d.wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgets_everything),
        cmocka_unit_test(a_restart_that_fails_may_be_repeated),
        cmocka_unit_test(ranges_do_not_meet),
        cmocka_unit_test(threads_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
