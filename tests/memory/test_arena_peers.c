/* test_arena_peers.c - peers of an arena: the mappings that they can access.
 *
 * Promise: A peer of an arena has exactly the mappings that are mapped.
 * Threads: one. Locks: none.
 */
#include "arena_tools.h"

static void grants_access_now_and_later(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(300 * MIB, 0);
    hdcu_deviceptr a, b;
    assert_ok(tool_take(arena, 64 * MIB, &a));
    assert_ok(tool_take(arena, 64 * MIB, &b));
    long calls = fake.calls;
    assert_ok(hdi_arena_grant(arena, 3)); /* the owner itself */
    assert_status(hdi_arena_grant(arena, -1), HD_ERROR_ARGUMENT);
    assert_status(hdi_arena_grant(arena, HDI_PEERS_MAX), HD_ERROR_ARGUMENT);
    assert_int_equal(fake.calls, calls);
    assert_ok(hdi_arena_grant(arena, 1)); /* the driver calls it 2 */
    calls = fake.calls;
    assert_ok(hdi_arena_grant(arena, 1));
    assert_int_equal(fake.calls, calls);
    assert_true(fake_is_mapped(a, 128 * MIB, 2));
    assert_true(fake_is_mapped(a, 128 * MIB, 1));
    hdcu_deviceptr c;
    assert_ok(tool_take(arena, 64 * MIB, &c));
    assert_true(fake_is_mapped(c, 64 * MIB, 2));
    assert_false(fake_is_mapped(c, 64 * MIB, 0));

    /* a half-made grant does not prevent growth, and the next grant continues where it stopped */
    fake_fail("cuMemSetAccess", 10, false, HDCU_ERROR_UNKNOWN);
    assert_status(hdi_arena_grant(arena, 0), HD_ERROR_DRIVER);
    assert_message_has("cuMemSetAccess");
    assert_message_has("device 3 cannot be made accessible to device 0");
    fake_fail(NULL, 0, false, 0);
    fake.unreachable = 3;
    assert_status(hdi_arena_grant(arena, 2), HD_ERROR_DRIVER);
    assert_status(hdi_arena_grant(arena, 4), HD_ERROR_DRIVER);
    tool_check(arena);
    assert_ok(tool_take(arena, 64 * MIB, &b));
    assert_true(fake_is_mapped(b, 64 * MIB, 2));
    assert_false(fake_is_mapped(b, 64 * MIB, 0));
    fake_fail("cuMemSetAccess", 0, false, 0);
    assert_ok(hdi_arena_grant(arena, 0));
    assert_int_equal(fake.calls, fake_chunks_mapped() - 9); /* the remaining mappings */
    assert_true(fake_is_mapped(a, 256 * MIB, 0));
    tool_end(arena);
}

static void a_revoked_peer_can_be_granted_again(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(300 * MIB, 0);
    hdcu_deviceptr at;
    assert_ok(hdi_arena_grant(arena, 0));
    assert_ok(hdi_arena_grant(arena, 1));
    assert_ok(tool_take(arena, 64 * MIB, &at));
    long calls = fake.calls;
    hdi_arena_revoke(arena, 0);
    hdi_arena_revoke(arena, 0);
    hdi_arena_revoke(arena, 2);
    hdi_arena_revoke(arena, -1);
    hdi_arena_revoke(arena, 1000);
    assert_int_equal(fake.calls, calls);
    tool_check(arena);
    assert_ok(tool_take(arena, 64 * MIB, &at));
    assert_true(fake_is_mapped(at, 64 * MIB, 2));
    assert_false(fake_is_mapped(at, 64 * MIB, 0));
    fake_fail("cuMemSetAccess", 0, false, 0);
    assert_ok(hdi_arena_grant(arena, 0));
    assert_int_equal(fake.calls, fake_chunks_mapped()); /* all of them again */
    assert_true(fake_is_mapped(at, 64 * MIB, 0));
    tool_end(arena);
}

/* The calls of the sharing hooks, and their failures. A peer holds a mapping from `give` until
 * `take_back`. */
enum { PEERS = 3, PIECES = 512 };

typedef struct sharing {
    int shared[PEERS], unshared[PEERS]; /* calls per peer */
    struct {
        uint64_t at, bytes;
    } held[PEERS][PIECES];
    int n_held[PEERS];
    int wrong;
    int fails;     /* the peer whose calls fail; -1: none */
    int countdown; /* calls before the first failure */
    int code;
} sharing;

static hdi_answer give(void *context, int peer, uint64_t at, uint64_t bytes)
{
    sharing *s = context;
    s->wrong += !fake_is_mapped(at, bytes, 1);
    s->shared[peer]++;
    if (peer == s->fails && s->countdown-- <= 0) {
        return (hdi_answer){s->code, "cuMemImportFromShareableHandle"};
    }
    for (int i = 0; i < s->n_held[peer]; i++) {
        s->wrong += at < s->held[peer][i].at + s->held[peer][i].bytes && s->held[peer][i].at < at + bytes;
    }
    assert_true(s->n_held[peer] < PIECES);
    s->held[peer][s->n_held[peer]].at = at;
    s->held[peer][s->n_held[peer]++].bytes = bytes;
    return (hdi_answer){0, ""};
}

static void take_back(void *context, int peer, uint64_t at, uint64_t bytes)
{
    sharing *s = context;
    s->wrong += !fake_is_mapped(at, bytes, 1); /* must still be mapped */
    s->unshared[peer]++;
    for (int i = 0; i < s->n_held[peer]; i++) {
        if (s->held[peer][i].at == at && s->held[peer][i].bytes == bytes) {
            s->held[peer][i] = s->held[peer][--s->n_held[peer]];
            return;
        }
    }
    s->wrong++;
}

/* The peer must hold exactly what the driver has mapped. */
static void assert_has_all(const sharing *s, int peer)
{
    size_t bytes = 0;
    assert_int_equal(s->wrong, 0);
    for (int i = 0; i < s->n_held[peer]; i++) {
        assert_true(fake_is_mapped(s->held[peer][i].at, s->held[peer][i].bytes, 1));
        bytes += s->held[peer][i].bytes;
    }
    assert_int_equal(bytes, fake.created);
}

static hdi_arena *make_shared(size_t total, size_t limit, sharing *s)
{
    memset(s, 0, sizeof *s);
    s->fails = -1;
    fake_reset(total);
    fake.most = limit != 0 ? limit : SIZE_MAX;
    hdi_arena_config config = tool_config(limit);
    config.share = give;
    config.unshare = take_back;
    config.share_context = s;
    return tool_make_from(&config);
}

/* If memory cannot be shared with a peer, it is not handed out. */
static void growth_that_cannot_be_shared_is_undone(void **unused)
{
    (void)unused;
    static sharing s;
    hdi_arena *arena = make_shared(300 * MIB, 0, &s);
    hdcu_deviceptr at = 7;
    for (int peer = 0; peer < 3; peer++) {
        assert_ok(hdi_arena_grant(arena, peer));
    }
    for (int from_worker = 0; from_worker < 2; from_worker++) {
        memset(&s, 0, sizeof s);
        s.fails = 1;
        s.code = from_worker ? HDI_GONE_UNANSWERED : HDCU_ERROR_OUT_OF_MEMORY;
        assert_status(tool_take(arena, MIB, &at), from_worker ? HD_ERROR_DEVICE_LOST : HD_ERROR_MEMORY);
        assert_message_has("device 3: new memory cannot be shared with device 1");
        assert_message_has(from_worker ? "did not answer" : "cuMemImportFromShareableHandle");
        hd_error error = {.size = sizeof error};
        hd_last_error(&error);
        assert_int_equal(error.driver_code, from_worker ? 0 : HDCU_ERROR_OUT_OF_MEMORY);
        assert_int_equal(s.shared[0], 1);
        assert_int_equal(s.unshared[0], 1);
        assert_int_equal(s.shared[1], 1);
        assert_int_equal(s.unshared[1] + s.shared[2] + s.unshared[2], 0);
        assert_int_equal(tool_info(arena).mapped_bytes, 0);
        assert_int_equal(fake.created, 0);
        assert_has_all(&s, 0);
        tool_check(arena);
    }
    s.fails = -1;
    assert_ok(tool_take(arena, MIB, &at));
    assert_int_equal(s.shared[1], 2);
    assert_int_equal(s.shared[2], 1);
    assert_int_equal(s.unshared[2], 0);
    tool_end(arena);
}

/* Peers follow growth, moves and trims, also if sharing fails at times, and after a grant that
 * stopped half-way. */
static void peers_have_what_is_mapped(void **unused)
{
    (void)unused;
    enum { HELD = 24 };
    static sharing s;
    hdi_arena *arena = make_shared(400 * MIB, 200 * MIB, &s);
    hdcu_deviceptr held[HELD] = {0};
    size_t bytes[HELD];
    uint64_t seed = 12345;
    int failures = 0;
    assert_ok(hdi_arena_grant(arena, 0));
    for (int step = 0; step < 3000; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = (seed >> 33) % HELD;
        if (step == 500) {
            /* this grant fails half-way; its mappings are taken back when they are unmapped */
            s.fails = 2;
            s.countdown = 3;
            s.code = HDCU_ERROR_UNKNOWN;
            assert_status(hdi_arena_grant(arena, 2), HD_ERROR_DRIVER);
            assert_int_equal(s.n_held[2], 3);
            s.fails = -1;
        }
        if (step == 1000) {
            assert_ok(hdi_arena_grant(arena, 1));
        }
        if (step == 1500) {
            hdi_arena_revoke(arena, 0);
            s.n_held[0] = 0; /* the peer is lost, with its mappings */
            int shared = s.shared[0];
            hdcu_deviceptr at;
            if (tool_take(arena, 2 * MIB, &at) == HD_OK) {
                tool_give(arena, at, 0, 0);
            }
            assert_int_equal(s.shared[0], shared);
            assert_ok(hdi_arena_grant(arena, 0));
        }
        if (held[slot] != 0) {
            tool_give(arena, held[slot], 0, 0);
            held[slot] = 0;
        } else {
            bool fails = seed >> 20 & 1;
            s.fails = fails ? 0 : -1;
            s.countdown = (int)(seed >> 50 & 7);
            s.code = HDCU_ERROR_UNKNOWN;
            bytes[slot] = (seed >> 40 & 3) == 0 ? 4096 : ((seed >> 42) % 40 + 1) * MIB - 256;
            hd_status status = tool_take(arena, bytes[slot], &held[slot]);
            s.fails = -1;
            failures += status != HD_OK;
            assert_true(status == HD_OK || status == HD_ERROR_MEMORY || (fails && status == HD_ERROR_DRIVER));
            if (status == HD_OK) {
                assert_true(fake_is_mapped(held[slot], bytes[slot], 1));
            } else {
                held[slot] = 0;
            }
        }
        if (step % 100 == 99) {
            assert_ok(hdi_arena_trim(arena, 20 * MIB, SIZE_MAX, NULL));
        }
        if (step % 16 == 0) {
            tool_check(arena);
            assert_has_all(&s, 0);
            if (step >= 1000) {
                assert_has_all(&s, 1);
            }
        }
    }
    assert_true(failures > 10 && tool_info(arena).moved_bytes > 0 && tool_info(arena).returned_bytes > 0);
    tool_end(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_access_now_and_later),
        cmocka_unit_test(a_revoked_peer_can_be_granted_again),
        cmocka_unit_test(growth_that_cannot_be_shared_is_undone),
        cmocka_unit_test(peers_have_what_is_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
