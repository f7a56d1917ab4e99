/* probe.c - the program heddle-probe: tests pairs of devices for peer access, in a process of its
 * own, since a test may hang or kill it.
 *
 * The library starts this program (src/peer/test.c); nobody else starts it. src/peer/test.h
 * describes its arguments and its reports. The program opens the devices as the asking runtime
 * does: in threads, or in worker processes. So it tests the same mappings that the runtime will
 * use.
 *
 * Threads: one, beside those of the runtime that it opens. Locks: none.
 * Blocking: in the driver, forever if a device hangs.
 * Always: a step is reported before it is taken. The program does not close the runtime: the system
 * releases it when the process ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <heddle.h>
#include "base/error.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "engine/device_state.h"
#include "engine/runtime.h"
#include "kernel/module.h"
#include "memory/arena.h"
#include "peer/test.h"
#include "process/spawn.h"
#include "transfer/transfer.h"

#define EXIT_USAGE 2

/* Buffer sizes, tried in this order until one can be allocated. The first is enough to time copies.
 * Sizes above the provider's peer_test_bytes are left out. */
static const size_t rooms[] = {(size_t)32 << 20, ((size_t)16 << 20) + 64, ((size_t)2 << 20) + 64, (size_t)80 << 10,
                               8 << 10};

#define MARGIN ((size_t)64 << 10) /* bytes in front of and behind the bytes that the cases use */
#define AROUND ((size_t)4 << 10)  /* the checked part of the margin */

/* An ordered pair under test. */
typedef struct subject {
    hd_runtime *runtime;
    int device, owner;
    bool has_atomics;
    hd_kernel *store, *load, *count;
    /* `near` is on `device`, `far` on `owner`; each has room for the cases, and margins */
    hd_buffer *near, *far;
    size_t room;
    uint8_t *scratch; /* memory of the program, as large as a buffer */
    uint64_t seed;    /* the seed of the last pattern */
} subject;

/* The outcome for a pair. */
typedef enum pair_outcome {
    OUTCOME_GOOD,
    OUTCOME_BAD,   /* a result was reported; the next pair may be tested */
    OUTCOME_FAILED /* a call failed and was reported; nothing is certain any more */
} pair_outcome;

/* ---- records. A write that fails ends the process, because nobody reads the records any more.
 * ---- */

static hdi_probe_record probe_blank_record(hdi_probe_record_kind kind)
{
    hdi_probe_record r;
    memset(&r, 0, sizeof r);
    r.magic = HDI_PROBE_MAGIC;
    r.version = HDI_PROBE_VERSION;
    r.kind = (uint32_t)kind;
    return r;
}

static void probe_send_record(const hdi_probe_record *r)
{
    ssize_t n;
    do {
        n = write(HDI_PROGRAM_DESCRIPTOR, r, sizeof *r);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *r) {
        _exit(1);
    }
}

/* A record without further fields. */
static void probe_record_plain(hdi_probe_record_kind kind)
{
    hdi_probe_record r = probe_blank_record(kind);
    probe_send_record(&r);
}

static void probe_record_pair(int device, int owner)
{
    hdi_probe_record r = probe_blank_record(HDI_PROBE_RECORD_PAIR);
    r.device = device;
    r.owner = owner;
    probe_send_record(&r);
}

static void probe_record_step(hdi_step step, uint64_t bytes)
{
    hdi_probe_record r = probe_blank_record(HDI_PROBE_RECORD_STEP);
    r.step = (uint32_t)step;
    r.bytes = bytes;
    probe_send_record(&r);
}

static void probe_record_wrong(hdi_probe_record_kind kind, int64_t at, uint64_t found, uint64_t expected)
{
    hdi_probe_record r = probe_blank_record(kind);
    r.at = at;
    r.found = found;
    r.expected = expected;
    probe_send_record(&r);
}

/* True if a worker process was killed from outside. The loss of its device then does not count
 * against the pair. */
static bool probe_is_worker_killed(const hd_runtime *rt)
{
    bool killed = false;
    for (int i = 0; rt && i < rt->n_devices; i++) {
        int code = hdi_device_lost_by(rt->devices[i]);
        killed |= code <= HDI_GONE_SIGNAL && !hdi_signal_is_crash(HDI_GONE_SIGNAL - code);
    }
    return killed;
}

/* Reports the calling thread's last failure; the runtime may be NULL. */
static void probe_record_failed(const hd_runtime *rt)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    hdi_probe_record r = probe_blank_record(HDI_PROBE_RECORD_FAILED);
    r.status = probe_is_worker_killed(rt) ? HD_ERROR_SYSTEM : error.status;
    r.code = error.driver_code;
    /* the record has room for the first part of the message */
    size_t length = strcspn(error.message, ";");
    snprintf(r.text, sizeof r.text, "%.*s", (int)(length < sizeof r.text ? length : sizeof r.text - 1), error.message);
    probe_send_record(&r);
}

static void probe_record_refused(int code, const char *call)
{
    hdi_probe_record r = probe_blank_record(HDI_PROBE_RECORD_REFUSED);
    r.code = code;
    snprintf(r.text, sizeof r.text, "%s", call);
    probe_send_record(&r);
}

static void probe_record_rates(double direct, double staged)
{
    hdi_probe_record r = probe_blank_record(HDI_PROBE_RECORD_RATES);
    r.direct = direct;
    r.staged = staged;
    probe_send_record(&r);
}

/* ---- the pattern: each word depends on its place, so that misplaced bytes show ----
 *
 * The host makes and checks the pattern of src/kernel/builtin/probe.c. */

/* Word i of the pattern of `seed`; byte j of a range is byte j % 8 of word j / 8. */
static uint64_t probe_pattern_word(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint8_t probe_pattern_byte(uint64_t seed, uint64_t j)
{
    return (uint8_t)(probe_pattern_word(seed, j / 8) >> (j % 8 * 8));
}

static void probe_pattern_fill(uint8_t *out, size_t bytes, uint64_t seed)
{
    size_t whole = bytes / 8 * 8;
    for (size_t j = 0; j < whole; j += 8) {
        uint64_t word = probe_pattern_word(seed, j / 8);
        memcpy(out + j, &word, sizeof word);
    }
    for (size_t j = whole; j < bytes; j++) {
        out[j] = probe_pattern_byte(seed, j);
    }
}

/* The place of the first wrong byte; `bytes` if all are right. */
static size_t probe_pattern_check(const uint8_t *at, size_t bytes, uint64_t seed)
{
    size_t j = 0;
    for (; j + 8 <= bytes; j += 8) {
        uint64_t found;
        memcpy(&found, at + j, sizeof found);
        if (found != probe_pattern_word(seed, j / 8)) {
            break;
        }
    }
    while (j < bytes && at[j] == probe_pattern_byte(seed, j)) {
        j++;
    }
    return j;
}

/* ---- do bytes arrive? a sentinel, a transfer, a check by the destination's device alone ----
 *
 * Each case takes three steps. The device with the destination fills it, and the bytes around it,
 * with a sentinel. The case moves a fresh pattern there in one way. The device with the
 * destination reads the bytes back. So the check finds a transfer that only the writer sees, a
 * transfer that never left, and bytes that were there before the transfer. */

#define SENTINEL 0xa5u
#define BLOCK 256 /* threads */
#define BLOCKS_MOST 512u
#define COUNTERS 16
#define COUNT_BLOCKS 16
#define COUNT_TIMES 8

/* A range in each of the two buffers: the far range begins `far_at` bytes behind the margin. */
typedef struct trial {
    size_t bytes, far_at, near_at;
    uint32_t width; /* of kernels' accesses */
} trial;

/* Sizes mostly rise, so the first failure is about the smallest transfer that fails. Beginnings and
 * ends have all alignments, and the last size is more than a granule of memory (2 MiB). */
static const trial cases[] = {
    {4, 0, 0, 4},
    {8, 12, 4, 4},
    {1, 4095, 3, 1},
    {1000, 3, 5, 1},
    {4092, 0, 16, 16},
    {((size_t)64 << 10) + 12, 4, 8, 4},
    {((size_t)64 << 10) + 7, 1, 1, 1},
    {((size_t)2 << 20), 0, 0, 16},
    {((size_t)2 << 20) + 5, 8, 24, 8},
    {((size_t)16 << 20), 16, 0, 16},
};

static bool probe_has_failed(const subject *s, hd_status status)
{
    if (status) {
        probe_record_failed(s->runtime);
    }
    return status != HD_OK;
}

/* ---- do bytes arrive? work of the owner ---- */

/* Fills a range and the checked bytes around it. */
static hd_status probe_fill_range(hd_buffer *b, size_t at, size_t bytes)
{
    size_t from = (at - AROUND) / 4 * 4, to = (at + bytes + AROUND + 3) / 4 * 4;
    hd_ticket ticket;
    hd_status status = hd_fill(b, from, SENTINEL * 0x01010101u, to - from, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

/* Checks a range. GOOD: its bytes and those around it are right. */
static pair_outcome probe_check_range(subject *s, hd_buffer *b, size_t at, size_t bytes)
{
    if (probe_has_failed(s, hd_read(b, at - AROUND, s->scratch, bytes + 2 * AROUND))) {
        return OUTCOME_FAILED;
    }
    const uint8_t *range = s->scratch + AROUND;
    size_t wrong = probe_pattern_check(range, bytes, s->seed);
    if (wrong < bytes) {
        probe_record_wrong(HDI_PROBE_RECORD_WRONG, (int64_t)wrong, range[wrong], probe_pattern_byte(s->seed, wrong));
        return OUTCOME_BAD;
    }
    for (size_t i = 0; i < AROUND; i++) {
        if (range[bytes + i] != SENTINEL) {
            probe_record_wrong(HDI_PROBE_RECORD_BESIDE, (int64_t)(bytes + i), range[bytes + i], SENTINEL);
            return OUTCOME_BAD;
        }
        if (range[-(ptrdiff_t)i - 1] != SENTINEL) {
            probe_record_wrong(HDI_PROBE_RECORD_BESIDE, -(int64_t)i - 1, range[-(ptrdiff_t)i - 1], SENTINEL);
            return OUTCOME_BAD;
        }
    }
    return OUTCOME_GOOD;
}

/* ---- do bytes arrive? transfers ---- */

static hd_dims probe_blocks_for(size_t bytes, uint32_t width)
{
    size_t blocks = (bytes / width + BLOCK - 1) / BLOCK;
    return (hd_dims){blocks == 0 ? 1 : blocks < BLOCKS_MOST ? (uint32_t)blocks : BLOCKS_MOST, 1, 1};
}

static hd_status probe_launch(subject *s, int device, hd_kernel *kernel, hd_dims grid, const hd_arg *args, size_t n)
{
    hd_ticket ticket;
    hd_lane *lane = NULL;
    hd_status status = hd_lane_get_default(s->runtime, device, &lane);
    status = status ? status : hd_launch(lane, kernel, grid, (hd_dims){.x = BLOCK}, 0, args, n, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

/* Writes a fresh pattern by a kernel of `device`. */
static hd_status probe_store(subject *s, int device, hd_buffer *b, size_t at, size_t bytes, uint32_t width)
{
    const hd_arg args[] = {hd_out_range(b, at, bytes), hd_u64(bytes), hd_u64(s->seed), hd_u32(width)};
    return probe_launch(s, device, s->store, probe_blocks_for(bytes, width), args, 4);
}

/* Copies by the copy engine of the tested device, whichever way hd_copy would go. */
static hd_status probe_copy_range(subject *s, hd_buffer *dst, size_t dst_at, hd_buffer *src, size_t src_at,
                                  size_t bytes)
{
    hd_lane *lane = s->runtime->devices[s->device]->lane_on;
    hd_ticket ticket;
    hd_status status = hdi_copy_submit(lane, HDI_COPY_ON_DEVICE, hdi_place_of(hdi_buffer_from_any_handle(dst)), dst_at,
                                       hdi_place_of(hdi_buffer_from_any_handle(src)), src_at, bytes, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

/* ---- do bytes arrive? cases ---- */

/* Moves bytes to the owner, and checks the far bytes. */
static pair_outcome probe_try_to(subject *s, const trial *c, bool by_copy)
{
    size_t far_at = MARGIN + c->far_at, near_at = MARGIN + c->near_at;
    s->seed++;
    if (probe_has_failed(s, probe_fill_range(s->far, far_at, c->bytes))) {
        return OUTCOME_FAILED;
    }
    if (by_copy) {
        probe_pattern_fill(s->scratch, c->bytes, s->seed);
        if (probe_has_failed(s, hd_write(s->near, near_at, s->scratch, c->bytes))) {
            return OUTCOME_FAILED;
        }
    }
    probe_record_step(by_copy ? HDI_STEP_COPY_TO : HDI_STEP_STORE, c->bytes);
    hd_status status = by_copy ? probe_copy_range(s, s->far, far_at, s->near, near_at, c->bytes)
                               : probe_store(s, s->device, s->far, far_at, c->bytes, c->width);
    return probe_has_failed(s, status) ? OUTCOME_FAILED : probe_check_range(s, s->far, far_at, c->bytes);
}

/* Fetches bytes that the owner made by itself, and checks the near bytes. */
static pair_outcome probe_try_from(subject *s, const trial *c, bool by_copy)
{
    size_t far_at = MARGIN + c->far_at, near_at = MARGIN + (by_copy ? c->near_at : c->far_at);
    s->seed++;
    if (probe_has_failed(s, probe_store(s, s->owner, s->far, far_at, c->bytes, c->width)) ||
        probe_has_failed(s, probe_fill_range(s->near, near_at, c->bytes))) {
        return OUTCOME_FAILED;
    }
    probe_record_step(by_copy ? HDI_STEP_COPY_FROM : HDI_STEP_LOAD, c->bytes);
    hd_status status;
    if (by_copy) {
        status = probe_copy_range(s, s->near, near_at, s->far, far_at, c->bytes);
    } else {
        const hd_arg args[] = {hd_out_range(s->near, near_at, c->bytes), hd_in_range(s->far, far_at, c->bytes),
                               hd_u64(c->bytes), hd_u32(c->width)};
        status = probe_launch(s, s->device, s->load, probe_blocks_for(c->bytes, c->width), args, 4);
    }
    return probe_has_failed(s, status) ? OUTCOME_FAILED : probe_check_range(s, s->near, near_at, c->bytes);
}

/* ---- do bytes arrive? counting ---- */

typedef struct counters {
    uint64_t large[COUNTERS];
    uint32_t small[COUNTERS];
    float floats[COUNTERS];
} counters;

static pair_outcome probe_try_counting(subject *s)
{
    counters c;
    hd_ticket ticket;
    hd_status status = hd_fill(s->far, MARGIN, 0, sizeof c, &ticket);
    status = status ? status : hd_wait(ticket, HD_FOREVER);
    if (probe_has_failed(s, status)) {
        return OUTCOME_FAILED;
    }
    probe_record_step(HDI_STEP_COUNT, sizeof c);
    const hd_arg args[] = {hd_inout_range(s->far, MARGIN, sizeof c), hd_u32(COUNTERS), hd_u32(COUNT_TIMES)};
    status = probe_launch(s, s->device, s->count, (hd_dims){COUNT_BLOCKS, 1, 1}, args, 3);
    status = status ? status : hd_read(s->far, MARGIN, &c, sizeof c);
    if (probe_has_failed(s, status)) {
        return OUTCOME_FAILED;
    }
    const uint64_t expected = (uint64_t)COUNT_BLOCKS * BLOCK / COUNTERS * COUNT_TIMES;
    for (int i = 0; i < COUNTERS; i++) {
        const uint64_t found[] = {c.large[i], c.small[i], (uint64_t)(c.floats[i] >= 0 ? c.floats[i] : 0)};
        for (int k = 0; k < 3; k++) {
            if (found[k] != expected) {
                probe_record_wrong(HDI_PROBE_RECORD_MISCOUNT, k * COUNTERS + i, found[k], expected);
                return OUTCOME_BAD;
            }
        }
    }
    probe_record_plain(HDI_PROBE_RECORD_COUNTS);
    return OUTCOME_GOOD;
}

/* ---- do bytes arrive? all ---- */

/* Moves bytes in all ways and sizes. */
static pair_outcome probe_try_all(subject *s)
{
    static pair_outcome (*const directions[])(subject *, const trial *, bool) = {probe_try_to, probe_try_from};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const trial *c = &cases[i];
        if (c->bytes + c->far_at > s->room || c->bytes + c->near_at > s->room) {
            continue; /* no memory for a buffer of this size */
        }
        for (int d = 0; d < 2; d++) {
            for (int by_copy = 1; by_copy >= 0; by_copy--) {
                pair_outcome outcome = directions[d](s, c, by_copy);
                if (outcome != OUTCOME_GOOD) {
                    return outcome;
                }
            }
        }
    }
    return s->has_atomics ? probe_try_counting(s) : OUTCOME_GOOD;
}

/* ---- the speed of copies to the owner's memory, directly and through pinned memory ----
 *
 * Both ways take turns, and the best of each counts, so that other work of the machine disturbs
 * both alike. */

/* Size of the first two copies; the second shows how much to measure. */
#define PROBE_BYTES ((size_t)1 << 20)
#define TURN_NS 8000000.0 /* about the length of a turn */
#define ROUNDS 4
#define TURN_COPIES_MOST 256

/* Makes `n` copies one after the other. Returns the nanoseconds of all copies together; below 0: a
 * copy failed. */
static double probe_copy_many(subject *s, size_t bytes, int n)
{
    hd_ticket ticket = {0};
    int64_t start = hdi_clock_ns();
    hd_status status = HD_OK;
    for (int i = 0; i < n && !status; i++) {
        status = hd_copy(s->far, 0, s->near, 0, bytes, &ticket);
    }
    status = status ? status : hd_wait(ticket, HD_FOREVER);
    if (status) {
        probe_record_failed(s->runtime);
        return -1;
    }
    return (double)(hdi_clock_ns() - start);
}

/* Makes hd_copy go directly, or through pinned memory, from here on. Grants stay. */
static void probe_set_way(subject *s, bool directly)
{
    uint8_t answer = directly ? HDI_PEERS_YES : HDI_PEERS_NO;
    atomic_store(&s->runtime->devices[s->device]->peer_access[s->owner], answer);
    atomic_store(&s->runtime->devices[s->owner]->peer_access[s->device], HDI_PEERS_NO);
}

typedef struct way {
    bool directly;
    size_t bytes; /* of a copy */
    int copies;   /* of a turn */
    double best;  /* bytes per second */
} way;

/* Finds the size of a turn: one small copy warms up, a second one is timed. */
static bool probe_size_up(subject *s, way *w)
{
    size_t most = s->room + MARGIN;
    size_t first = PROBE_BYTES < most ? PROBE_BYTES : most;
    probe_set_way(s, w->directly);
    if (probe_copy_many(s, first, 1) < 0) {
        return false;
    }
    double ns = probe_copy_many(s, first, 1);
    if (ns < 0) {
        return false;
    }
    double wanted = (double)first * (TURN_NS / (ns > 1 ? ns : 1));
    w->bytes = wanted < (double)first ? first : wanted < (double)most ? (size_t)wanted / 4096 * 4096 : most;
    double copies = wanted / (double)w->bytes;
    w->copies = copies < 1 ? 1 : copies < TURN_COPIES_MOST ? (int)copies : TURN_COPIES_MOST;
    return true;
}

static bool probe_take_turn(subject *s, way *w)
{
    probe_set_way(s, w->directly);
    double ns = probe_copy_many(s, w->bytes, w->copies);
    if (ns < 0) {
        return false;
    }
    double rate = (double)w->bytes * w->copies * 1e9 / (ns > 1 ? ns : 1);
    w->best = rate > w->best ? rate : w->best;
    return true;
}

/* Copies from `near` to `far`, directly and through pinned memory. */
static pair_outcome probe_time_copies(subject *s)
{
    way ways[] = {{.directly = true}, {.directly = false}};
    static const hdi_step steps[] = {HDI_STEP_TIME_DIRECT, HDI_STEP_TIME_STAGED};
    bool good = true;
    for (int w = 0; w < 2 && good; w++) {
        probe_record_step(steps[w], 0);
        good = probe_size_up(s, &ways[w]);
    }
    for (int round = 0; round < ROUNDS && good; round++) {
        for (int w = 0; w < 2 && good; w++) {
            probe_record_step(steps[w], ways[w].bytes);
            good = probe_take_turn(s, &ways[w]);
        }
    }
    probe_set_way(s, true);
    if (!good) {
        return OUTCOME_FAILED;
    }
    probe_record_rates(ways[0].best, ways[1].best);
    return OUTCOME_GOOD;
}

/* ---- the program ---- */

/* Removes the application's HEDDLE variables, since the settings for this process come as an
 * argument. */
static void probe_forget_environment(void)
{
    for (char **e = environ; *e;) {
        char name[64];
        size_t length = strcspn(*e, "=");
        if (strncmp(*e, "HEDDLE_", 7) == 0 && length < sizeof name) {
            memcpy(name, *e, length);
            name[length] = 0;
            unsetenv(name);
            e = environ;
        } else {
            e++;
        }
    }
}

/* ---- one pair ---- */

static hd_status probe_get_kernels(subject *s)
{
    hd_module *module;
    hd_status status = hdi_builtin_get(s->runtime, HDI_BUILTIN_PROBE, &module);
    status = status ? status : hd_kernel_get(module, "hd_probe_store", &s->store);
    status = status ? status : hd_kernel_get(module, "hd_probe_load", &s->load);
    return status ? status : hd_kernel_get(module, "hd_probe_count", &s->count);
}

static void probe_release_memory(subject *s)
{
    hd_free(s->near);
    hd_free(s->far);
    free(s->scratch);
    s->near = s->far = NULL;
    s->scratch = NULL;
}

static hd_status probe_allocate_buffer(subject *s, int device, size_t bytes, hd_buffer **out)
{
    hd_lane *lane = NULL;
    hd_status status = hd_lane_get_default(s->runtime, device, &lane);
    return status ? status : hd_alloc(lane, bytes, out);
}

/* Takes the largest buffers that fit. */
static hd_status probe_get_memory(subject *s)
{
    hd_status status = HD_ERROR_MEMORY;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0] && status; i++) {
        if (rooms[i] > s->runtime->provider->peer_test_bytes) {
            continue;
        }
        s->room = rooms[i];
        size_t bytes = s->room + 2 * MARGIN;
        s->scratch = malloc(bytes);
        status = probe_allocate_buffer(s, s->device, bytes, &s->near);
        status = status ? status : probe_allocate_buffer(s, s->owner, bytes, &s->far);
        if (!s->scratch) {
            status = HD_ERROR_HOST_MEMORY;
        }
        if (status) {
            probe_release_memory(s);
            if (status != HD_ERROR_MEMORY && status != HD_ERROR_HOST_MEMORY) {
                break;
            }
        }
    }
    return status;
}

/* Grants access as hdi_peer_access does, and records the driver's answer. */
static pair_outcome probe_grant_access(subject *s)
{
    probe_record_step(HDI_STEP_GRANT, 0);
    hd_status status = hdi_arena_grant(s->runtime->devices[s->owner]->arena, s->device);
    if (!status) {
        atomic_store(&s->runtime->devices[s->device]->peer_access[s->owner], HDI_PEERS_YES);
        return OUTCOME_GOOD;
    }
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    if (status == HD_ERROR_DRIVER && error.driver_code) {
        probe_record_refused(error.driver_code, error.operation);
        return OUTCOME_BAD;
    }
    probe_record_failed(s->runtime);
    return OUTCOME_FAILED;
}

static pair_outcome probe_test_pair(subject *s)
{
    probe_record_step(HDI_STEP_PREPARE, 0);
    if (probe_get_memory(s)) {
        probe_record_failed(s->runtime);
        return OUTCOME_FAILED;
    }
    pair_outcome outcome = probe_grant_access(s);
    outcome = outcome != OUTCOME_GOOD ? outcome : probe_try_all(s);
    outcome = outcome != OUTCOME_GOOD ? outcome : probe_time_copies(s);
    probe_release_memory(s);
    return outcome;
}

/* ---- all pairs ---- */

/* Reads the next pair of a list such as "0>1,1>0", and moves *at behind it. False: the end of the
 * list, or no valid pair. */
static bool probe_next_pair(const char **at, int n_devices, int *device, int *owner)
{
    int length = 0;
    if (sscanf(*at, "%d>%d%n", device, owner, &length) != 2 || length == 0) {
        return false;
    }
    *at += length;
    *at += **at == ',';
    return *device >= 0 && *device < n_devices && *owner >= 0 && *owner < n_devices && *device != *owner;
}

/* HD_OK if the UUIDs show that the devices are those of the asking runtime. */
static hd_status probe_check_names(const hd_runtime *rt, const char *names)
{
    for (int i = 0; i < rt->n_devices; i++) {
        char name[33];
        for (int k = 0; k < 16; k++) {
            sprintf(name + 2 * k, "%02x", rt->devices[i]->facts.uuid[k]);
        }
        if (strlen(names) < 32 || strncmp(names, name, 32) != 0) {
            return hdi_fail(HD_ERROR_NO_DEVICE,
                            "the driver's device %d is another one here (was CUDA_VISIBLE_DEVICES changed?)",
                            rt->devices[i]->ordinal);
        }
        names += 32;
    }
    return HD_OK;
}

static int probe_test_all(const char *settings, const char *pairs, const char *names)
{
    subject s = {0};
    hd_options options = {sizeof options, settings};
    probe_record_step(HDI_STEP_OPEN, 0);
    hd_status status = hd_open(&options, &s.runtime);
    status = status ? status : probe_check_names(s.runtime, names);
    status = status ? status : probe_get_kernels(&s);
    if (status) {
        probe_record_failed(s.runtime);
        return 1;
    }
    while (probe_next_pair(&pairs, hd_device_count(s.runtime), &s.device, &s.owner)) {
        s.has_atomics = s.runtime->devices[s.device]->facts.peers_atomic >> s.owner & 1;
        probe_record_pair(s.device, s.owner);
        if (probe_test_pair(&s) == OUTCOME_FAILED) {
            return 1; /* a fresh process tests the remaining pairs */
        }
        probe_record_plain(HDI_PROBE_RECORD_PAIR_END);
    }
    probe_record_plain(HDI_PROBE_RECORD_END);
    return 0;
}

int main(int argc, char **argv)
{
    struct stat facts;
    if (argc != 4 || fstat(HDI_PROGRAM_DESCRIPTOR, &facts) != 0 || !S_ISFIFO(facts.st_mode)) {
        fprintf(stderr,
                HDI_PROBE_NAME
                " %s: started by Heddle to test whether devices reach each other's memory; not by hand\n",
                hd_version());
        return EXIT_USAGE;
    }
    hdi_program_begin();
    signal(SIGPIPE, SIG_IGN); /* without the signal, `write` still reports a closed pipe */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    probe_forget_environment();
    /* Closes nothing, and runs no destructor: both may hang after a device failed. Workers end
     * with this process. */
    _exit(probe_test_all(argv[1], argv[2], argv[3]));
}
