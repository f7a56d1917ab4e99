/* test_arena.c - the arena over a local port to the fake driver and to the host provider: growth and its limits, every failing
 * call, addresses, peers, threads. Restarts are in test_restart.c. */
#include "support/check.h"

#include <pthread.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/options.h"
#include "fake_driver.h"
#include "engine/port.h"
#include "memory/addresses.h"
#include "memory/arena.h"

#define MIB FAKE_MIB

static _Atomic uint64_t finished_to[64];

static bool finished(void *context, hdi_mark mark)
{
    (void)context;
    return mark.position <= atomic_load_explicit(&finished_to[mark.lane], memory_order_acquire);
}

/* The runtime's devices, as the fake driver calls them. The arena under test is device 3, which is its device 1. */
static const hdcu_device handles[] = {0, 2, 3, 1};
static hdi_port *port;

static hdi_arena_config config_of(size_t limit)
{
    const hdi_local_port_config config = {
        .driver = &fake_driver, .device = 1, .context = fake_context, .index = 3, .n_devices = 4, .devices = handles};
    hdi_local_port_destroy(port); /* of a test that failed */
    port = hdi_local_port_create(&config);
    assert_non_null(port);
    return (hdi_arena_config){.port = port, .index = 3, .limit_bytes = limit, .finished = finished};
}

static hdi_arena *make_from(const hdi_arena_config *config)
{
    for (int i = 0; i < 64; i++) {
        atomic_store(&finished_to[i], 0);
    }
    hdi_arena *arena = NULL;
    assert_ok(hdi_arena_create(config, &arena));
    return arena;
}

static hdi_arena *make(size_t total, size_t limit)
{
    fake_reset(total);
    hdi_arena_config config = config_of(limit);
    return make_from(&config);
}

static void drop_port(void)
{
    hdi_local_port_destroy(port);
    port = NULL;
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

static hd_status take(hdi_arena *arena, size_t bytes, hdcu_deviceptr *out)
{
    hdi_marks marks;
    hd_status status = hdi_arena_alloc(arena, 0, bytes, out, &marks);
    if (status == HD_OK) {
        hdi_marks_release(&marks);
    }
    return status;
}

static void end(hdi_arena *arena)
{
    check(arena);
    assert_ok(hdi_arena_destroy(arena, false));
    drop_port();
    assert_true(fake_is_clean());
    assert_int_equal(fake_depth(), 0);
}

static void grows_as_needed(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(1000 * MIB + 1, 0);
    hdi_arena_info info = info_of(arena);
    assert_int_equal(info.granule, 2 * MIB);
    assert_int_equal(info.reserved_bytes, 1002 * MIB);
    assert_int_equal(info.mapped_bytes, 0);

    hdcu_deviceptr a, b, c, d;
    assert_ok(take(arena, 1, &a));
    assert_int_equal(a % 256, 0);
    assert_int_equal(info_of(arena).mapped_bytes, 64 * MIB);
    assert_true(fake_is_mapped(a, 64 * MIB, 1));
    assert_false(fake_is_mapped(a, 256, 0));
    assert_int_equal(fake.chunks[0].handle_types, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_ok(take(arena, 63 * MIB, &b));
    assert_int_equal(info_of(arena).mapped_bytes, 64 * MIB);

    /* the free end is part of the next block, so only the difference is mapped */
    assert_ok(take(arena, 100 * MIB, &c));
    assert_int_equal(c, b + 63 * MIB);
    assert_int_equal(info_of(arena).mapped_bytes, 64 * MIB + 100 * MIB);
    check(arena);

    hdi_arena_free(arena, a, NULL, 0);
    hdi_arena_free(arena, b, NULL, 0);
    hdi_arena_free(arena, c, NULL, 0);
    hdi_arena_free(arena, c, NULL, 0); /* not any more */
    hdi_arena_free(arena, 0, NULL, 0);
    hdi_arena_free(arena, ~(hdcu_deviceptr)0, NULL, 0);
    assert_int_equal(info_of(arena).blocks.live_bytes, 0);
    long calls = fake.calls;
    assert_ok(take(arena, 164 * MIB, &d)); /* across the places where it grew, without the driver */
    assert_int_equal(fake.calls, calls);
    assert_int_equal(d, a);
    end(arena);
}

static void takes_what_the_device_has(void **unused)
{
    (void)unused;
    fake_reset(0);
    hdi_arena *arena = make(100 * MIB, 0);
    hdcu_deviceptr at;
    assert_status(take(arena, 0, &at), HD_ERROR_ARGUMENT);
    fake.total = 70 * MIB; /* another process holds the rest */
    assert_ok(take(arena, 60 * MIB, &at));
    assert_int_equal(info_of(arena).mapped_bytes, 64 * MIB);
    assert_ok(take(arena, 9 * MIB, &at)); /* 64 MiB more cannot be had: what is needed can */
    assert_int_equal(info_of(arena).mapped_bytes, 70 * MIB);
    assert_status(take(arena, 2 * MIB, &at), HD_ERROR_MEMORY);
    assert_message_has("2097152 bytes on device 3");
    assert_message_has("mapped 73400320 of at most 104857600");
    assert_message_has("live 72351744");
    assert_message_has("largest free block 1048576");
    assert_message_has("cuMemCreate");
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    assert_int_equal(error.driver_code, HDCU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(error.device, 3);
    assert_ok(take(arena, MIB, &at));
    end(arena);
}

static void keeps_to_its_limit(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(1000 * MIB, 11 * MIB);
    hdcu_deviceptr at;
    assert_int_equal(info_of(arena).limit_bytes, 10 * MIB);
    assert_ok(take(arena, 9 * MIB, &at));
    assert_int_equal(info_of(arena).mapped_bytes, 10 * MIB);
    assert_status(take(arena, 2 * MIB, &at), HD_ERROR_MEMORY);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    assert_int_equal(error.driver_code, 0);
    assert_int_equal(error.device, 3);
    assert_ok(take(arena, MIB, &at));
    for (size_t less = 0; less < 600; less++) {
        assert_status(take(arena, SIZE_MAX - less, &at), HD_ERROR_MEMORY);
    }
    assert_status(take(arena, SIZE_MAX / 2 + 1, &at), HD_ERROR_MEMORY);
    assert_int_equal(fake.misuses, 0);
    end(arena);
}

static void hands_on_marks(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(64 * MIB, 0);
    hdcu_deviceptr at;
    assert_ok(take(arena, 64 * MIB, &at));
    hdi_mark marks[] = {{4, 7}, {5, 8}, {6, 9}};
    atomic_store(&finished_to[5], 8);
    hdi_arena_free(arena, at, marks, 3);
    hdi_marks got;
    assert_ok(hdi_arena_alloc(arena, 4, 300, &at, &got));
    assert_int_equal(got.count, 2);
    assert_int_equal(hdi_marks_data(&got)[0].lane, 4);
    assert_int_equal(hdi_marks_data(&got)[1].position, 9);
    hdi_marks_release(&got);
    end(arena);
}

static void says_what_is_missing(void **unused)
{
    (void)unused;
    fake_reset(64 * MIB);
    fake.no_virtual_memory = 1;
    hdi_arena_config config = config_of(0);
    hdi_arena *arena = NULL;
    assert_status(hdi_arena_create(&config, &arena), HD_ERROR_UNSUPPORTED);
    assert_null(arena);
    assert_true(fake_is_clean());
    fake.no_virtual_memory = 0;
    fake.no_file_descriptors = 1;
    fake.granularity = 8 * MIB;
    assert_ok(hdi_arena_create(&config, &arena));
    hdcu_deviceptr at;
    assert_ok(take(arena, 1, &at));
    assert_int_equal(info_of(arena).granule, 8 * MIB);
    assert_int_equal(fake.chunks[0].handle_types, HDCU_MEM_HANDLE_TYPE_NONE);
    end(arena);
    assert_ok(hdi_arena_destroy(NULL, false));
}

static void lies_where_it_is_wanted(void **unused)
{
    (void)unused;
    const uint64_t wanted = hdi_device_range(3, 1, 64 * MIB, 4);
    fake_reset(64 * MIB);
    hdi_arena_config config = config_of(0);
    config.address = wanted;
    hdi_arena *arena = make_from(&config);
    assert_int_equal(hdi_arena_base(arena), wanted);
    hdcu_deviceptr at;
    assert_ok(take(arena, 1, &at));
    assert_int_equal(at, wanted);
    end(arena);

    fake_reset(64 * MIB);
    fake.elsewhere = true;
    config = config_of(0);
    config.address = wanted;
    arena = make_from(&config); /* a wish */
    assert_int_equal(hdi_arena_base(arena), FAKE_BASE);
    end(arena);

    fake_reset(64 * MIB);
    fake.elsewhere = true;
    config = config_of(0);
    config.address = wanted;
    config.fixed = true;
    arena = NULL;
    assert_status(hdi_arena_create(&config, &arena), HD_ERROR_UNSUPPORTED);
    assert_message_has("device 3 must lie at address 0x");
    assert_null(arena);
    assert_true(fake_is_clean());
    drop_port();
}

static void asks_for_no_facts_that_are_known(void **unused)
{
    (void)unused;
    fake_reset(64 * MIB);
    hdi_arena_config config = config_of(0);
    hdi_facts facts;
    assert_int_equal(port->calls->facts(port, &facts).code, 0);
    assert_int_equal(facts.memory_bytes, 64 * MIB);
    config.total_bytes = facts.memory_bytes;
    config.granule = facts.granule;
    fake_fail(NULL, 0, false, 0);
    hdi_arena *arena = make_from(&config);
    assert_int_equal(fake.calls, 4); /* the context's three and the range */
    assert_int_equal(info_of(arena).reserved_bytes, 64 * MIB);
    end(arena);
}

static void grants_access_now_and_later(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(300 * MIB, 0);
    hdcu_deviceptr a, b;
    assert_ok(take(arena, 64 * MIB, &a));
    assert_ok(take(arena, 64 * MIB, &b));
    long calls = fake.calls;
    assert_ok(hdi_arena_grant(arena, 3)); /* the owner itself */
    assert_int_equal(fake.calls, calls);
    assert_ok(hdi_arena_grant(arena, 1)); /* which the driver calls 2 */
    calls = fake.calls;
    assert_ok(hdi_arena_grant(arena, 1));
    assert_int_equal(fake.calls, calls);
    assert_true(fake_is_mapped(a, 128 * MIB, 2));
    assert_true(fake_is_mapped(a, 128 * MIB, 1));
    hdcu_deviceptr c;
    assert_ok(take(arena, 64 * MIB, &c));
    assert_true(fake_is_mapped(c, 64 * MIB, 2));
    assert_false(fake_is_mapped(c, 64 * MIB, 0));

    /* a grant that fails half-way does not stand in the way of growth, and the next one goes on where it stopped */
    fake_fail("cuMemSetAccess", 2, false, HDCU_ERROR_UNKNOWN);
    assert_status(hdi_arena_grant(arena, 0), HD_ERROR_DRIVER);
    assert_message_has("cuMemSetAccess");
    assert_message_has("device 3 cannot be made accessible to device 0");
    fake_fail(NULL, 0, false, 0);
    fake.unreachable = 3;
    assert_status(hdi_arena_grant(arena, 2), HD_ERROR_DRIVER);
    assert_status(hdi_arena_grant(arena, 4), HD_ERROR_DRIVER);
    check(arena);
    assert_ok(take(arena, 64 * MIB, &b));
    assert_true(fake_is_mapped(b, 64 * MIB, 2));
    assert_false(fake_is_mapped(b, 64 * MIB, 0));
    fake_fail("cuMemSetAccess", 0, false, 0);
    assert_ok(hdi_arena_grant(arena, 0));
    assert_int_equal(fake.calls, 3); /* of four */
    assert_true(fake_is_mapped(a, 256 * MIB, 0));
    end(arena);
}

static void a_revoked_peer_can_be_granted_again(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(300 * MIB, 0);
    hdcu_deviceptr at;
    assert_ok(hdi_arena_grant(arena, 0));
    assert_ok(hdi_arena_grant(arena, 1));
    assert_ok(take(arena, 64 * MIB, &at));
    long calls = fake.calls;
    hdi_arena_revoke(arena, 0);
    hdi_arena_revoke(arena, 0);
    hdi_arena_revoke(arena, 2);
    assert_int_equal(fake.calls, calls);
    check(arena);
    assert_ok(take(arena, 64 * MIB, &at));
    assert_true(fake_is_mapped(at, 64 * MIB, 2));
    assert_false(fake_is_mapped(at, 64 * MIB, 0));
    fake_fail("cuMemSetAccess", 0, false, 0);
    assert_ok(hdi_arena_grant(arena, 0));
    assert_int_equal(fake.calls, 2); /* all over again */
    assert_true(fake_is_mapped(at, 64 * MIB, 0));
    end(arena);
}

/* What the sharing hooks were asked for, and when they fail. */
typedef struct sharing {
    int shared[4], unshared[4]; /* calls per peer */
    uint64_t last_at, last_bytes;
    int fails; /* this peer; -1: none */
    int code;
} sharing;

static hdi_answer give(void *context, int peer, uint64_t at, uint64_t bytes)
{
    sharing *s = context;
    assert_true(fake_is_mapped(at, bytes, 1));
    s->shared[peer]++;
    s->last_at = at;
    s->last_bytes = bytes;
    return peer == s->fails ? (hdi_answer){s->code, "cuMemImportFromShareableHandle"} : (hdi_answer){0, ""};
}

static void take_back(void *context, int peer, uint64_t at, uint64_t bytes)
{
    sharing *s = context;
    assert_true(fake_is_mapped(at, bytes, 1)); /* still */
    assert_int_equal(at, s->last_at);
    s->unshared[peer]++;
}

/* Memory that a peer cannot be given is not handed out. */
static void growth_that_cannot_be_shared_is_undone(void **unused)
{
    (void)unused;
    fake_reset(300 * MIB);
    sharing s = {.fails = -1};
    hdi_arena_config config = config_of(0);
    config.share = give;
    config.unshare = take_back;
    config.share_context = &s;
    hdi_arena *arena = make_from(&config);
    hdcu_deviceptr at = 7;
    for (int peer = 0; peer < 3; peer++) {
        assert_ok(hdi_arena_grant(arena, peer));
    }
    for (int from_worker = 0; from_worker < 2; from_worker++) {
        memset(&s, 0, sizeof s);
        s.fails = 1;
        s.code = from_worker ? HDI_GONE_UNANSWERED : HDCU_ERROR_OUT_OF_MEMORY;
        assert_status(take(arena, MIB, &at), from_worker ? HD_ERROR_DEVICE_LOST : HD_ERROR_MEMORY);
        assert_message_has("device 3: new memory cannot be shared with device 1");
        assert_message_has(from_worker ? "did not answer" : "cuMemImportFromShareableHandle");
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        assert_int_equal(error.driver_code, from_worker ? 0 : HDCU_ERROR_OUT_OF_MEMORY);
        assert_int_equal(s.shared[0], 1);
        assert_int_equal(s.unshared[0], 1);
        assert_int_equal(s.shared[1], 1);
        assert_int_equal(s.unshared[1] + s.shared[2] + s.unshared[2], 0);
        assert_int_equal(s.last_bytes, 64 * MIB);
        assert_int_equal(info_of(arena).mapped_bytes, 0);
        assert_int_equal(fake.created, 0);
        check(arena);
    }
    s.fails = -1;
    assert_ok(take(arena, MIB, &at));
    assert_int_equal(s.shared[1], 2);
    assert_int_equal(s.shared[2], 1);
    assert_int_equal(s.unshared[2], 0);
    end(arena);
}

/* A scenario under "the Nth driver call fails": whatever fails, nothing is lost, and it works once the driver does
 * again. */
static void sweep(bool for_good, int code, hd_status expected)
{
    static char other;
    const hdcu_context mine = (hdcu_context)(void *)&other;
    for (long n = 1;; n++) {
        fake_reset(300 * MIB);
        fake_set_stack(mine);
        hdi_arena_config config = config_of(0);
        fake_fail(NULL, n, for_good, code);
        hdi_arena *arena = NULL;
        hdcu_deviceptr at[4];
        hd_status status = hdi_arena_create(&config, &arena);
        for (int i = 0; i < 3 && status == HD_OK; i++) {
            hdi_arena_info before = info_of(arena);
            status = take(arena, 64 * MIB, &at[i]);
            check(arena);
            if (status == HD_OK && i == 0) {
                status = hdi_arena_grant(arena, 1);
            } else if (status != HD_OK) {
                assert_int_equal(info_of(arena).mapped_bytes, before.mapped_bytes);
                assert_int_equal(info_of(arena).blocks.live_bytes, before.blocks.live_bytes);
                assert_true(for_good || fake.created == before.mapped_bytes);
            }
        }
        bool hit = fake.failed != NULL;
        if (status != HD_OK) {
            assert_true(hit);
            assert_int_equal(status, expected);
            assert_message_has("(cu"); /* which one, and what it returned */
        }
        fake_fail(NULL, 0, false, 0);
        assert_true(for_good || fake_top() == mine);
        if (arena != NULL) {
            assert_ok(take(arena, 64 * MIB, &at[3])); /* the failure is over */
            assert_true(fake_is_mapped(at[3], 64 * MIB, 1));
            check(arena);
            assert_ok(hdi_arena_destroy(arena, false));
        }
        drop_port();
        /* with every call failing for good, an arena that was never handed out can only be left behind */
        assert_true(fake_is_clean() || (for_good && arena == NULL));
        assert_int_equal(fake.misuses, 0);
        if (!hit) {
            assert_true(n > 20);
            break;
        }
    }
}

static void any_call_may_fail_once(void **unused)
{
    (void)unused;
    sweep(false, HDCU_ERROR_UNKNOWN, HD_ERROR_DRIVER);
    sweep(false, HDCU_ERROR_ILLEGAL_ADDRESS, HD_ERROR_DEVICE_LOST);
    sweep(false, HDCU_ERROR_OUT_OF_MEMORY, HD_ERROR_MEMORY);
}

static void any_call_may_fail_for_good(void **unused)
{
    (void)unused;
    sweep(true, HDCU_ERROR_UNKNOWN, HD_ERROR_DRIVER);
    sweep(true, HDCU_ERROR_LAUNCH_FAILED, HD_ERROR_DEVICE_LOST);
    sweep(true, HDCU_ERROR_OUT_OF_MEMORY, HD_ERROR_MEMORY);
}

/* Undoing a growth may fail too: what is left over is cleared before the next one. */
static void what_cannot_be_undone_is_cleared_later(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(200 * MIB, 0);
    hdcu_deviceptr at;
    /* get, push, create, map; then set access, unmap and release fail, and all that follow */
    fake_fail(NULL, 5, true, HDCU_ERROR_UNKNOWN);
    assert_status(take(arena, MIB, &at), HD_ERROR_DRIVER);
    fake_fail(NULL, 0, false, 0);
    fake_set_stack(NULL); /* popping failed as well */
    assert_int_equal(fake.created, 64 * MIB);
    assert_int_equal(info_of(arena).mapped_bytes, 0);
    fake_fail("cuMemUnmap", 1, true, HDCU_ERROR_UNKNOWN);
    assert_status(take(arena, MIB, &at), HD_ERROR_DRIVER);
    assert_message_has("cuMemUnmap");
    fake_fail(NULL, 0, false, 0);
    assert_ok(take(arena, MIB, &at));
    assert_int_equal(fake.created, 64 * MIB);
    assert_int_equal(fake.misuses, 0);

    /* and by destroy if there is no next one */
    fake_fail(NULL, 5, true, HDCU_ERROR_UNKNOWN);
    assert_status(take(arena, 100 * MIB, &at), HD_ERROR_DRIVER);
    fake_fail(NULL, 0, false, 0);
    fake_set_stack(NULL);
    end(arena);
}

static void destroy_goes_on_past_errors(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(300 * MIB, 0);
    hdcu_deviceptr at;
    for (int i = 0; i < 3; i++) {
        assert_ok(take(arena, 64 * MIB, &at));
    }
    fake_fail("cuMemRelease", 2, false, HDCU_ERROR_UNKNOWN);
    assert_status(hdi_arena_destroy(arena, false), HD_ERROR_DRIVER);
    assert_message_has("cuMemRelease");
    assert_int_equal(fake.created, 64 * MIB);
    assert_int_equal(fake.base, 0);
    drop_port();

    arena = make(300 * MIB, 0);
    assert_ok(take(arena, 1, &at));
    fake_fail(NULL, 0, false, 0);
    assert_ok(hdi_arena_destroy(arena, true));
    assert_int_equal(fake.calls, 0);
    drop_port();
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 3000, HELD = 16 };

typedef struct worker {
    hdi_arena *arena;
    uint32_t lane;
    int errors;
} worker;

/* Which thread has which granule of 256 bytes; only ever written by its owner, which the sanitizer would tell too. */
static uint8_t owner_of[256 * 1024 * 1024 / 256];
static hdcu_deviceptr arena_base;

static void *allocate_and_free(void *argument)
{
    worker *w = argument;
    uint64_t seed = w->lane * 77 + 1, position = 0;
    struct {
        hdcu_deviceptr at;
        size_t bytes;
    } held[HELD] = {{0, 0}};
    for (int i = 0; i < ROUNDS + HELD; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = i < ROUNDS ? (seed >> 33) % HELD : (size_t)(i - ROUNDS);
        if (held[slot].at != 0) {
            size_t from = (size_t)(held[slot].at - arena_base) / 256;
            for (size_t u = from; u < from + held[slot].bytes / 256; u++) {
                w->errors += owner_of[u] != w->lane + 1;
                owner_of[u] = 0;
            }
            hdi_mark mark = {w->lane, ++position};
            hdi_arena_free(w->arena, held[slot].at, &mark, 1);
            atomic_store_explicit(&finished_to[w->lane], position - position % 3, memory_order_release);
            held[slot].at = 0;
        } else if (i < ROUNDS) {
            size_t bytes = 256 * (1 + (seed >> 40) % ((seed >> 20) % 16 == 0 ? 8192 : 64));
            hdi_marks marks;
            if (hdi_arena_alloc(w->arena, w->lane, bytes, &held[slot].at, &marks) != HD_OK) {
                w->errors++;
                break;
            }
            hdi_marks_release(&marks);
            held[slot].bytes = bytes;
            size_t from = (size_t)(held[slot].at - arena_base) / 256;
            for (size_t u = from; u < from + bytes / 256; u++) {
                w->errors += owner_of[u] != 0;
                owner_of[u] = (uint8_t)(w->lane + 1);
            }
        }
    }
    return NULL;
}

static void run_threads(hdi_arena *arena)
{
    pthread_t threads[THREADS];
    worker workers[THREADS];
    hdcu_deviceptr first;
    memset(owner_of, 0, sizeof owner_of);
    assert_ok(take(arena, 1, &first));
    arena_base = first;
    hdi_arena_free(arena, first, NULL, 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){arena, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &workers[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        check(arena);
        hdi_arena_info info = info_of(arena);
        assert_true(info.blocks.live_bytes + info.blocks.free_bytes == info.mapped_bytes);
        if (i == 25) {
            assert_ok(hdi_arena_grant(arena, 0));
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].errors, 0);
    }
    check(arena);
    assert_int_equal(info_of(arena).blocks.live_blocks, 0);
    assert_int_equal(info_of(arena).blocks.free_blocks, 1);
}

static void threads_share_it(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(256 * MIB, 0);
    run_threads(arena);
    end(arena);
}

static void *grow(void *argument)
{
    worker *w = argument;
    hdcu_deviceptr at;
    w->errors = take(w->arena, 128 * MIB, &at) != HD_OK;
    return NULL;
}

/* While one thread is in a driver call that takes long, others free, and allocate what fits. */
static void growth_holds_nobody_up(void **unused)
{
    (void)unused;
    hdi_arena *arena = make(256 * MIB, 0);
    hdcu_deviceptr at;
    assert_ok(take(arena, MIB, &at));
    worker w = {arena, 0, 0};
    pthread_t thread;
    atomic_store(&fake.slow_us, 500000);
    assert_int_equal(pthread_create(&thread, NULL, grow, &w), 0);
    int64_t deadline = hdi_deadline(20000000000);
    while (atomic_load(&fake.calls_under_way) == 0) {
        assert_true(hdi_clock_ns() < deadline);
        usleep(100);
    }
    for (int i = 0; i < 100; i++) {
        hdi_arena_free(arena, at, NULL, 0);
        assert_ok(take(arena, MIB, &at));
    }
    assert_int_equal(atomic_load(&fake.calls_under_way), 1); /* still in the call that began before */
    pthread_join(thread, NULL);
    assert_int_equal(w.errors, 0);
    end(arena);
}

/* ---- on the host provider --------------------------------------------------------------------------------------- */

static void works_on_the_host_provider(void **unused)
{
    (void)unused;
    hdi_options options;
    const hdi_driver *driver;
    assert_ok(hdi_options_parse("driver=host host_devices=2 host_memory=256M", &options));
    assert_ok(hdi_driver_open(&options, &driver));
    hdcu_device devices[2];
    hdcu_context context;
    assert_int_equal(driver->cuDeviceGet(&devices[0], 0), 0);
    assert_int_equal(driver->cuDeviceGet(&devices[1], 1), 0);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, devices[1]), 0);
    const hdi_local_port_config local = {
        .driver = driver, .device = devices[1], .context = context, .index = 1, .n_devices = 2, .devices = devices};
    port = hdi_local_port_create(&local);
    assert_non_null(port);
    hdi_arena_config config = {.port = port, .index = 1, .finished = finished};

    hdi_arena *arena;
    assert_ok(hdi_arena_create(&config, &arena));
    run_threads(arena);
    hdcu_deviceptr at;
    assert_ok(take(arena, 200 * MIB, &at));
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
    uint32_t wrote = 0x12345678, read = 0;
    assert_int_equal(driver->cuMemcpyHtoD(at + 150 * MIB, &wrote, sizeof wrote), 0);
    assert_int_equal(driver->cuMemcpyDtoH(&read, at + 150 * MIB, sizeof read), 0);
    assert_int_equal(read, wrote);
    hdcu_context popped;
    assert_int_equal(driver->cuCtxPopCurrent(&popped), 0);
    assert_status(take(arena, 100 * MIB, &at), HD_ERROR_MEMORY);
    check(arena);
    assert_ok(hdi_arena_destroy(arena, false));
    drop_port();
    driver->cuDevicePrimaryCtxRelease(devices[1]);
    hdi_driver_close(driver);
    hdi_options_release(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_as_needed),
        cmocka_unit_test(takes_what_the_device_has),
        cmocka_unit_test(keeps_to_its_limit),
        cmocka_unit_test(hands_on_marks),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(lies_where_it_is_wanted),
        cmocka_unit_test(asks_for_no_facts_that_are_known),
        cmocka_unit_test(grants_access_now_and_later),
        cmocka_unit_test(a_revoked_peer_can_be_granted_again),
        cmocka_unit_test(growth_that_cannot_be_shared_is_undone),
        cmocka_unit_test(any_call_may_fail_once),
        cmocka_unit_test(any_call_may_fail_for_good),
        cmocka_unit_test(what_cannot_be_undone_is_cleared_later),
        cmocka_unit_test(destroy_goes_on_past_errors),
        cmocka_unit_test(threads_share_it),
        cmocka_unit_test(growth_holds_nobody_up),
        cmocka_unit_test(works_on_the_host_provider),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
