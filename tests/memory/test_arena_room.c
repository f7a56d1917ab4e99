/* test_arena_room.c - after random histories, allocates a block as large as the free room.
 *
 * Promise: After any history, a block fits if its granules fit beside those that live blocks touch.
 *
 * The model counts, for each granule, the live blocks that touch it. The device is a table of
 * granules without memory behind them, so limits can be as large as on real devices.
 *
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "memory/arena.h"
#include "memory/arena_internal.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define DRIVER_GRANULE (2 * MIB)
#define BASE UINT64_C(0x700000000000)
#define LIVE_MOST 65536
#define LANES 3

/* ---- the device ------------------------------------------------------------------------------ */

static size_t granule; /* of the arena, as heddle/memory.h states */

static struct {
    uint32_t *mapping; /* by granule: 1 + the first granule of its mapping */
    uint32_t *length;  /* by first granule of a mapping */
    size_t granules, mapped, limit;
    size_t peak;    /* of `mapped` */
    size_t handles; /* mappings that were made or moved */
} device;

static hdi_answer reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    (void)port;
    (void)wanted;
    device.granules = bytes / granule;
    device.mapping = calloc(device.granules, sizeof *device.mapping);
    device.length = calloc(device.granules, sizeof *device.length);
    assert_true(device.mapping != NULL && device.length != NULL);
    *out = BASE;
    return (hdi_answer){HDCU_SUCCESS, ""};
}

static hdi_answer unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    (void)port;
    assert_true(at == BASE && bytes == device.granules * granule);
    free(device.mapping);
    free(device.length);
    return (hdi_answer){HDCU_SUCCESS, ""};
}

static hdi_answer map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    (void)port;
    size_t first = (at - BASE) / granule, count = bytes / granule;
    assert_true(at % granule == 0 && bytes % granule == 0 && first + count <= device.granules);
    device.mapped += bytes;
    device.peak = device.mapped > device.peak ? device.mapped : device.peak;
    device.handles++;
    assert_true(device.mapped <= device.limit);
    for (size_t g = first; g < first + count; g++) {
        assert_int_equal(device.mapping[g], 0);
        device.mapping[g] = (uint32_t)first + 1;
    }
    device.length[first] = (uint32_t)count;
    return (hdi_answer){HDCU_SUCCESS, ""};
}

static hdi_answer map_each(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each)
{
    for (uint64_t done = 0; done < bytes; done += each) {
        map(port, at + done, each);
    }
    return (hdi_answer){HDCU_SUCCESS, ""};
}

static hdi_answer unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    (void)port;
    size_t g = (at - BASE) / granule, end = g + bytes / granule;
    while (g < end) {
        size_t count = device.length[g];
        assert_true(device.mapping[g] == g + 1 && count != 0 && g + count <= end);
        memset(&device.mapping[g], 0, count * sizeof *device.mapping);
        device.length[g] = 0;
        device.mapped -= count * granule;
        g += count;
    }
    return (hdi_answer){HDCU_SUCCESS, ""};
}

static hdi_answer move(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t length = device.length[(from + done - BASE) / granule] * granule;
        assert_true(length != 0);
        unmap(port, from + done, length);
        map(port, to + done, length);
        done += length;
    }
    return (hdi_answer){HDCU_SUCCESS, ""};
}

static const hdi_port_calls calls = {
    .reserve = reserve, .unreserve = unreserve, .map = map, .map_each = map_each, .move = move, .unmap = unmap};
static hdi_port port = {&calls};

/* ---- the program and the model --------------------------------------------------------------- */

typedef struct live {
    hdcu_deviceptr at; /* 0: empty slot */
    size_t bytes;
} live;

static live lives[LIVE_MOST];
static hdi_arena *arena;
static uint32_t *touches; /* per granule */
static size_t touched, step, probes;
static uint64_t seed, submitted[LANES + 1], finished_to[LANES + 1];

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

static bool finished(void *context, hdi_point point)
{
    (void)context;
    return point.position <= finished_to[point.lane];
}

static void touch(const live *b, bool on)
{
    for (size_t g = (b->at - BASE) / granule; g <= (b->at + b->bytes - 1 - BASE) / granule; g++) {
        assert_true(device.mapping[g] != 0);
        touched += on && touches[g] == 0;
        touches[g] += on ? 1 : (uint32_t)-1;
        touched -= !on && touches[g] == 0;
    }
}

static bool take(size_t bytes, live *out)
{
    hdi_points points;
    hd_status status = hdi_arena_alloc(arena, (uint32_t)draw(LANES), bytes, &out->at, &points);
    assert_true(status == HD_OK || status == HD_ERROR_MEMORY);
    if (status != HD_OK) {
        out->at = 0;
        return false;
    }
    hdi_points_release(&points);
    out->bytes = bytes;
    touch(out, true);
    return true;
}

static void give(live *b)
{
    if (b->at == 0) {
        return;
    }
    uint32_t lane = (uint32_t)draw(LANES);
    hdi_point point = {lane, ++submitted[lane]};
    finished_to[lane] = submitted[lane];
    touch(b, false);
    hdi_arena_free(arena, b->at, &point, 1);
    b->at = 0;
}

static void finish_all(void)
{
    memcpy(finished_to, submitted, sizeof submitted);
}

static size_t room(void)
{
    return device.limit - touched * granule;
}

/* Takes a block as large as the free room. */
static void probe(const char *history)
{
    live large;
    size_t bytes = room();
    finish_all();
    step++;
    if (bytes == 0) {
        return;
    }
    probes++;
    if (!take(bytes, &large)) {
        hdi_arena_info info;
        hdi_arena_get_info(arena, &info);
        fail_msg("%s, step %zu: %zu MiB refused, %zu touched, %zu mapped, %zu idle, of %zu: %s", history, step,
                 bytes / MIB, touched * granule / MIB, info.mapped_bytes / MIB, info.idle_bytes / MIB,
                 device.limit / MIB, hd_message());
    }
    give(&large);
}

static void begin(size_t limit, uint64_t with_seed)
{
    hdi_arena_config config = {
        .port = &port, .limit_bytes = limit, .total_bytes = limit, .granule = DRIVER_GRANULE, .finished = finished};
    memset(submitted, 0, sizeof submitted);
    memset(finished_to, 0, sizeof finished_to);
    memset(lives, 0, sizeof lives);
    device.mapped = device.peak = device.handles = touched = step = 0;
    device.limit = limit;
    granule = limit >= 32 * GIB ? 4 * MIB : 2 * MIB;
    seed = with_seed * 1000003;
    assert_ok(hdi_arena_create(&config, &arena));
    hdi_arena_info info;
    hdi_arena_get_info(arena, &info);
    assert_int_equal(info.granule, granule);
    touches = calloc(device.granules, sizeof *touches);
    assert_non_null(touches);
}

static void end(void)
{
    char why[200] = "";
    for (size_t i = 0; i < LIVE_MOST; i++) {
        give(&lives[i]);
    }
    finish_all();
    if (!hdi_arena_check(arena, why, sizeof why)) {
        fail_msg("%s", why);
    }
    assert_int_equal(touched, 0);
    assert_ok(hdi_arena_trim(arena, 0, SIZE_MAX, NULL));
    assert_int_equal(device.mapped, 0);
    assert_ok(hdi_arena_destroy(arena, false));
    free(touches);
}

/* ---- histories ------------------------------------------------------------------------------- */

static const size_t limits[] = {GIB, 4 * GIB, 16 * GIB};
enum { LIMITS = sizeof limits / sizeof limits[0] };

/* Takes a block of two thirds of all memory, then smaller blocks in its place, and keeps some of
 * them. The sizes come from a program that failed elsewhere. */
static void history_of_pieces(size_t limit, size_t piece, size_t keep)
{
    static const size_t of[] = {16515072, 11400192, 18191360};
    live large;
    assert_true(take(limit / 16 * 11, &large));
    give(&large);
    size_t n = 0;
    for (size_t total = 0; total < limit / 16 * 10 && n < LIVE_MOST; n++) {
        size_t bytes = piece != 0 ? piece : of[n % 3];
        assert_true(take(bytes, &lives[n]));
        total += bytes;
    }
    for (size_t i = 0; i < n; i++) {
        if (i % keep != 0) {
            give(&lives[i]);
        }
    }
    probe("pieces in the place of a large block");
}

static void pieces_of_a_large_block(void **unused)
{
    (void)unused;
    static const size_t pieces[] = {0, 256 * 1024, MIB + 256, 3 * MIB, 8 * MIB, 100 * MIB};
    for (size_t l = 0; l < LIMITS; l++) {
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            for (size_t keep = 2; keep <= 50; keep *= 5) {
                begin(limits[l], 1);
                history_of_pieces(limits[l], pieces[p], keep);
                end();
            }
        }
    }
}

/* Draws a size as programs use them: small ones, tensors, and a few large ones. */
static size_t some_size(size_t limit)
{
    switch (draw(12)) {
    case 0:
        return 1 + draw(limit / 8);
    case 1:
    case 2:
        return 1 + draw(limit / 64);
    case 3:
        return (1 + draw(16)) * 4 * MIB;
    case 4:
    case 5:
        return 1 + draw(MIB);
    default:
        return 1 + draw(24 * MIB);
    }
}

static void random_histories(size_t steps, size_t every, size_t slots)
{
    for (size_t l = 0; l < LIMITS; l++) {
        for (uint64_t s = 1; s <= 2; s++) {
            begin(limits[l], s);
            for (size_t i = 0; i < steps; i++) {
                live *b = &lives[draw(slots)];
                if (b->at != 0) {
                    give(b);
                } else {
                    take(some_size(limits[l]), b);
                }
                if (draw(every) == 0) {
                    probe("random sizes");
                }
            }
            end();
        }
    }
}

static void random_sizes(void **unused)
{
    (void)unused;
    random_histories(3000, 60, 64);
    random_histories(6000, 300, 1000);
}

/* Steps of a training program: blocks that stay, activations freed in reverse order, and other
 * sizes in each step. */
static void training_steps(void **unused)
{
    (void)unused;
    for (size_t l = 0; l < LIMITS; l++) {
        begin(limits[l], l + 7);
        size_t kept = 0;
        for (int s = 0; s < 40; s++) {
            size_t scale = 1 + draw(8), n = kept;
            while (n < kept + 200 && touched * granule < limits[l] / 4 * 3) {
                if (!take(1 + draw(limits[l] / 4096) * scale, &lives[n])) {
                    break;
                }
                n++;
            }
            for (size_t i = n; i > kept; i--) {
                if (draw(100) == 0 && touched * granule < limits[l] / 2) {
                    live stays = lives[kept];
                    lives[kept++] = lives[i - 1];
                    lives[i - 1] = i - 1 == kept - 1 ? (live){0, 0} : stays;
                }
                give(i > kept ? &lives[i - 1] : &lives[LIVE_MOST - 1]);
            }
            for (size_t i = kept; i < n; i++) {
                give(&lives[i]);
            }
            probe("training");
        }
        end();
    }
}

/* Fills all memory with blocks of one size, frees three of four, and doubles the size: the worst
 * case for addresses. */
static void sizes_that_double(void **unused)
{
    (void)unused;
    for (size_t l = 0; l < LIMITS; l++) {
        for (size_t from = MIB / 2; from <= 5 * MIB; from += 3 * MIB / 2) {
            begin(limits[l], l);
            size_t n = 0;
            for (size_t bytes = from; bytes < limits[l] / 8; bytes *= 2) {
                size_t first = n;
                while (n < LIVE_MOST && room() >= bytes + 2 * granule && take(bytes, &lives[n])) {
                    n++;
                }
                for (size_t i = first; i < n; i++) {
                    if ((i - first) % 4 != 0) {
                        give(&lives[i]);
                    }
                }
                probe("sizes that double");
            }
            end();
        }
    }
}

/* ---- programs that were recorded ------------------------------------------------------------- */

/* A recorded program: how many mappings a later run may make or move. The driver's time for that
 * does not depend on their sizes. */
static const struct {
    const char *name;
    size_t handles;
} programs[] = {{"convnet", 600}, {"mlp", 30}, {"server", 120}, {"transformer", 240}, {"unet", 40}};

static live blocks[LIVE_MOST];

static void replay_free_all(void)
{
    for (size_t i = 0; i < LIVE_MOST; i++) {
        give(&blocks[i]);
    }
}

/* Runs a recorded program once. Returns its peak of live bytes. `probe_each`: a probe follows one
 * of this many operations, drawn at random; 0: no probes. */
static size_t replay_run(FILE *log, const char *name, uint64_t probe_each)
{
    char line[256];
    size_t bytes_live = 0, peak = 0;
    rewind(log);
    while (fgets(line, sizeof line, log) != NULL) {
        uint64_t id, bytes;
        if (sscanf(line, "a %" SCNu64 " %" SCNu64, &id, &bytes) == 2) {
            assert_true(id < LIVE_MOST && take(bytes, &blocks[id]));
            bytes_live += bytes;
            peak = bytes_live > peak ? bytes_live : peak;
        } else if (sscanf(line, "f %" SCNu64, &id) == 1) {
            bytes_live -= blocks[id].bytes;
            give(&blocks[id]);
        }
        if (probe_each != 0 && draw(probe_each) == 0) {
            probe(name);
        }
    }
    return peak;
}

static FILE *replay_open(const char *name)
{
    const char *folder = getenv("HEDDLE_TEST_LOGS");
    char path[1024];
    if (folder == NULL) {
        skip(); /* a test that is run by hand */
    }
    snprintf(path, sizeof path, "%s/%s.hdlog", folder, name);
    FILE *log = fopen(path, "re");
    assert_non_null(log);
    return log;
}

static void recorded_programs(void **unused)
{
    (void)unused;
    static const size_t of[] = {4 * GIB, 16 * GIB, 64 * GIB};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        FILE *log = replay_open(programs[i].name);
        for (size_t l = 0; l < sizeof of / sizeof of[0]; l++) {
            if (of[l] == 4 * GIB && strcmp(programs[i].name, "unet") == 0) {
                continue; /* it needs more than 7 GiB */
            }
            begin(of[l], 1);
            replay_run(log, programs[i].name, 400);
            replay_free_all();
            end();
        }
        fclose(log);
    }
}

static void recorded_programs_move_little(void **unused)
{
    enum { TIMES = 6 };
    (void)unused;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        FILE *log = replay_open(programs[i].name);
        size_t peak = 0, first = 0;
        begin(139 * GIB, 1);
        for (int run = 0; run < TIMES; run++) {
            peak = replay_run(log, programs[i].name, 0);
            replay_free_all();
            first = run == 0 ? device.handles : first;
        }
        size_t later = (device.handles - first) / (TIMES - 1);
        double held = (double)device.peak / (double)peak;
        if (later > programs[i].handles || held > 1.05) {
            fail_msg("%s: a later run makes or moves %zu mappings (at most %zu), %.4f held (at most 1.05)",
                     programs[i].name, later, programs[i].handles, held);
        }
        end();
        fclose(log);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_a_large_block), cmocka_unit_test(random_sizes),
        cmocka_unit_test(training_steps),          cmocka_unit_test(sizes_that_double),
        cmocka_unit_test(recorded_programs),       cmocka_unit_test(recorded_programs_move_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
