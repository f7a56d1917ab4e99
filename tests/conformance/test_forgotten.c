/* test_forgotten.c - the memory for failures is bounded: a lane forgets its oldest outcomes. No
 * content changes by that, and old tickets say that nothing is known of them.
 *
 * Promise: Forgotten outcomes change no content: what read failed bytes fails, all else succeeds.
 * Tier: full.
 *
 * The test makes the library believe that the failures of other lanes take all the memory. Then
 * claims fail at random. They write ranges of buffers. Most of these are not
 * touched again, until their lane forgets the outcomes. A model knows which bytes a failed claim
 * wrote last.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "conformance.h"

#include "engine/archive.h"
#include "engine/engine.h"

enum { ranges = 64, range = 256, n_buffers = 8, bytes = ranges * range, least = 64, n_claims = 100000, n_kept = 512 };

typedef struct kept_ticket {
    hd_ticket ticket;
    bool failed;
} kept_ticket;

typedef struct world {
    hd_runtime *runtime;
    hd_lane *lane, *other;
    hd_buffer *x[n_buffers], *busy;
    bool bad[n_buffers][ranges];
    kept_ticket kept[n_kept]; /* the first half: old ones; the rest: the latest */
    unsigned seed;
} world;

static unsigned next_random(world *w)
{
    return (unsigned)rand_r(&w->seed);
}

/* A claim of the first device that writes a range of `busy`, and of `x` if that is not NULL. It
 * ends. */
static kept_ticket claim_and_end(world *w, hd_buffer *x, int r, bool fails)
{
    const hd_arg uses[] = {hd_out_range(w->busy, (size_t)r * range, range),
                           hd_out_range(x ? x : w->busy, (size_t)r * range, range)};
    hd_claim *c = NULL;
    kept_ticket k = {.failed = fails};
    CONF_OK(hd_claim_begin(w->runtime, uses, x ? 2 : 1, &c));
    CONF_OK(hd_claim_get_ticket(c, &k.ticket));
    CONF_OK(hd_claim_end(c, fails ? HD_ERROR_FAILED : HD_OK));
    /* once it is over, the next claim takes the same lane */
    CONF_EQUAL(hd_wait(k.ticket, HD_FOREVER), fails ? HD_ERROR_FAILED : HD_OK);
    return k;
}

/* True: the outcome is forgotten. */
static bool check_ticket(world *w, kept_ticket k)
{
    hd_ticket after;
    bool forgotten = k.ticket.sequence <= hdi_lane_any(k.ticket.lane)->archive->forgotten;
    if (forgotten) {
        CONF_FAILS_WITH(hd_wait(k.ticket, HD_FOREVER), HD_ERROR_NOT_FOUND, "forgotten");
        CONF_FAILS(hd_lane_add_dependency(w->other, k.ticket, &after), HD_ERROR_NOT_FOUND);
    } else if (k.failed) {
        CONF_FAILS(hd_wait(k.ticket, HD_FOREVER), HD_ERROR_FAILED);
        CONF_OK(hd_lane_add_dependency(w->other, k.ticket, &after));
        CONF_FAILS(hd_wait(after, HD_FOREVER), HD_ERROR_FAILED);
        CONF_OK(hd_lane_reset(w->other, HD_FOREVER));
    } else {
        CONF_OK(hd_wait(k.ticket, HD_FOREVER));
        CONF_OK(hd_lane_add_dependency(w->other, k.ticket, &after));
        CONF_OK(hd_wait(after, HD_FOREVER));
    }
    CONF_TRUE(hd_done(k.ticket));
    return forgotten;
}

/* Reads each range, alone and as a part of more, in two ways. */
static void check_content(world *w)
{
    uint8_t got[2 * range];
    for (int i = 0; i < n_buffers; i++) {
        for (int r = 0; r + 1 < ranges; r++) {
            hd_status expected = w->bad[i][r] || w->bad[i][r + 1] ? HD_ERROR_FAILED : HD_OK;
            CONF_EQUAL(hd_read(w->x[i], (size_t)r * range, got, 2 * range), expected);
            const hd_arg use = hd_in_range(w->x[i], (size_t)r * range, range);
            hd_claim *c = NULL;
            CONF_EQUAL(hd_claim_begin(w->runtime, &use, 1, &c), w->bad[i][r] ? HD_ERROR_FAILED : HD_OK);
            CONF_TRUE(!c || !hd_claim_end(c, HD_OK));
        }
    }
}

static void begin(world *w)
{
    memset(w, 0, sizeof *w);
    w->seed = 5;
    w->runtime = conf_open(NULL);
    w->lane = conf_default_lane(w->runtime, 0);
    CONF_OK(hd_lane_create(w->runtime, 0, &w->other));
    /* if possible of another device, so that no later claim looks at their records */
    hd_lane *owner = conf_default_lane(w->runtime, hd_device_count(w->runtime) - 1);
    for (int i = 0; i < n_buffers; i++) {
        CONF_OK(hd_alloc(owner, bytes, &w->x[i]));
        CONF_OK(hd_fill(w->x[i], 0, 1, bytes, NULL));
    }
    CONF_OK(hd_alloc(w->lane, bytes, &w->busy));
    CONF_OK(hd_fill(w->busy, 0, 1, bytes, NULL));
    CONF_OK(hd_buffer_wait(w->busy, HD_READ_WRITE, HD_FOREVER));
    atomic_fetch_add(&w->runtime->archives_bytes, HDI_ARCHIVES_BYTES);
    w->runtime->archive_least = least;
}

static void forgotten_outcomes_change_no_content(void **state)
{
    (void)state;
    world *w = conf_memory(sizeof *w);
    begin(w);
    for (int i = 0; i < n_claims; i++) {
        bool fails = next_random(w) % 2, writes = i < 1000 || next_random(w) % 1000 == 0;
        /* half of the buffers are not touched in the second half */
        int b = (int)(next_random(w) % (i < n_claims / 2 ? n_buffers : n_buffers / 2));
        int r = (int)(next_random(w) % ranges);
        kept_ticket k = claim_and_end(w, writes ? w->x[b] : NULL, r, fails);
        if (writes) {
            w->bad[b][r] = fails;
        }
        w->kept[i < n_kept / 2 ? i : n_kept / 2 + i % (n_kept / 2)] = k;
    }
    int forgotten = 0;
    for (int i = 0; i < n_kept; i++) {
        bool one = check_ticket(w, w->kept[i]);
        CONF_TRUE(!one || i < n_kept / 2);
        forgotten += one;
    }
    CONF_TRUE(forgotten > 0);
    check_content(w);
    atomic_fetch_sub(&w->runtime->archives_bytes, HDI_ARCHIVES_BYTES);
    conf_close(w->runtime);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forgotten_outcomes_change_no_content)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
