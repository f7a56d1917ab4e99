/* pairs.c - measures pairs of devices with the driver's own calls: direct, and staged by the
 * driver.
 *
 * Threads: the conductor. Locks: none.
 * Always: a device touches another device's memory directly only if the verdict allows it. Peer
 * access is enabled for one pair at a time (a device can have eight peers), and disabled for
 * measurements of staged copies. If the driver refuses a case for one pair, a note states this. The
 * other pairs are still measured, unless the driver has become unusable.
 */
#include <math.h>
#include <string.h>
#include "cli/p2p/parts.h"

/* nvbandwidth (testcases_ce.cpp, testcases_sm.cpp, DeviceToDevice*): of d and o
 *    write        d copies from its memory into o's memory
 *    read         d copies from o's memory into its own
 *    both, write  first: o copies into d's memory, second: d into o's memory (each from its own)
 *    both, read   first: d copies from o's memory, second: o from d's memory (each into its own)
 * In the cases of both directions, each copy is timed separately, and the total is their sum. */
typedef struct pair_case {
    p2p_figure_id id; /* in a case of both directions, the first of three figures */
    bool by_kernel, reads, both;
    const char *text;
} pair_case;

static const pair_case cases[] = {
    {P2P_CE_WRITE, false, false, false, "copy engine writes"},
    {P2P_CE_READ, false, true, false, "copy engine reads"},
    {P2P_CE_BOTH_WRITE_1, false, false, true, "copy engines write, both directions"},
    {P2P_CE_BOTH_READ_1, false, true, true, "copy engines read, both directions"},
    {P2P_SM_WRITE, true, false, false, "kernel writes"},
    {P2P_SM_READ, true, true, false, "kernel reads"},
    {P2P_SM_BOTH_WRITE_1, true, false, true, "kernels write, both directions"},
    {P2P_SM_BOTH_READ_1, true, true, true, "kernels read, both directions"},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]), TEXT = 128 };

/* The memory of a pair: two buffers on each side. */
typedef struct pair {
    int d, o;
    p2p_memory mine[2], others[2];
} pair;

static void p2p_pairs_give_pair(p2p_experiment *x, pair *p)
{
    for (int i = 0; i < 2; i++) {
        p2p_give(x, &p->mine[i]);
        p2p_give(x, &p->others[i]);
    }
}

static bool p2p_pairs_take_pair(p2p_experiment *x, int d, int o, pair *out, char *error)
{
    size_t bytes = x->bytes < P2P_CHAIN_BYTES ? P2P_CHAIN_BYTES : x->bytes;
    memset(out, 0, sizeof(*out));
    out->d = d, out->o = o;
    for (int i = 0; i < 2; i++) {
        if (!p2p_take(x, d, bytes, &out->mine[i], error) || !p2p_take(x, o, bytes, &out->others[i], error)) {
            p2p_pairs_give_pair(x, out);
            return false;
        }
        /* at least a copy's bytes; a chain may need more */
        out->mine[i].bytes = out->others[i].bytes = x->bytes;
    }
    return true;
}

static void p2p_pairs_pair_text(const pair *p, const char *what, char out[TEXT])
{
    snprintf(out, TEXT, "%d -> %d, %s", p->d, p->o, what);
}

/* ---- direct ---- */

static bool p2p_pairs_run_one(p2p_experiment *x, pair *p, const pair_case *c, char *error)
{
    char text[TEXT];
    p2p_job job = {.dst = &p->others[0], .src = &p->mine[0], .on = p->d, .by_kernel = c->by_kernel};
    if (c->reads) {
        job.dst = &p->mine[0], job.src = &p->others[0];
    }
    p2p_pairs_pair_text(p, c->text, text);
    return p2p_measure(x, text, &job, 1, &x->figures[c->id][p->d][p->o], error);
}

static bool p2p_pairs_run_both(p2p_experiment *x, pair *p, const pair_case *c, char *error)
{
    char text[TEXT];
    double values[2];
    p2p_job jobs[2] = {
        {.dst = &p->mine[0], .src = &p->others[0], .on = c->reads ? p->d : p->o, .by_kernel = c->by_kernel},
        {.dst = &p->others[1], .src = &p->mine[1], .on = c->reads ? p->o : p->d, .by_kernel = c->by_kernel}};
    p2p_pairs_pair_text(p, c->text, text);
    bool ok = p2p_measure(x, text, jobs, 2, values, error);
    x->figures[c->id][p->d][p->o] = values[0];
    x->figures[c->id + 1][p->d][p->o] = values[1];
    x->figures[c->id + 2][p->d][p->o] = values[0] + values[1];
    return ok;
}

/* Copies a few bytes at a time, and waits for each copy. The result is the median duration in
 * microseconds. */
static bool p2p_pairs_run_small(p2p_experiment *x, pair *p, size_t bytes, double *out, char *error)
{
    static double values[P2P_SMALL_COPIES];
    const p2p_device *d = &x->devices[p->d], *o = &x->devices[p->o];
    bool ok = p2p_enter(x, p->d, error);
    /* the first iterations warm up */
    for (int i = -x->small_copies / 10; i < x->small_copies && ok; i++) {
        uint64_t begin = cli_stats_monotonic();
        ok = P2P_TRY(x, error, cuMemcpyPeerAsync,
                     (p->others[0].address, o->context, p->mine[0].address, d->context, bytes, d->stream[0])) &&
             P2P_TRY(x, error, cuStreamSynchronize, (d->stream[0]));
        if (i >= 0) {
            values[i] = (double)(cli_stats_monotonic() - begin) * 1e-3;
        }
    }
    *out = ok ? cli_stats_spread_of(values, x->small_copies).median : NAN;
    return ok;
}

static bool p2p_pairs_run_direct(p2p_experiment *x, pair *p, char *error)
{
    char text[TEXT];
    int d = p->d, o = p->o;
    bool back = p2p_direct(x, o, d);
    if (!p2p_connect(x, d, o, error)) {
        return false;
    }
    bool ok = !back || p2p_connect(x, o, d, error);
    for (int i = 0; i < CASES && ok; i++) {
        if (i == 0 || cases[i].by_kernel != cases[i - 1].by_kernel) {
            p2p_pairs_pair_text(p, cases[i].by_kernel ? "kernels" : "copy engines", text);
            p2p_step(x, "pairs", text);
        }
        ok = !cases[i].both ? p2p_pairs_run_one(x, p, &cases[i], error)
                            : !back || p2p_pairs_run_both(x, p, &cases[i], error);
    }
    p2p_pairs_pair_text(p, "loads of a kernel", text);
    ok = ok && p2p_chase(x, text, d, &p->others[0], &x->figures[P2P_SM_LATENCY][d][o], error) &&
         p2p_pairs_run_small(x, p, 4, &x->figures[P2P_DIRECT_4][d][o], error) &&
         p2p_pairs_run_small(x, p, 4096, &x->figures[P2P_DIRECT_4096][d][o], error);
    p2p_disconnect(x, d, o);
    if (back) {
        p2p_disconnect(x, o, d);
    }
    return ok;
}

/* ---- staged ---- */

static bool p2p_pairs_submit_staged(p2p_experiment *x, const pair *p, int direction, char *error)
{
    const p2p_memory *dst = direction ? &p->mine[1] : &p->others[0], *src = direction ? &p->others[1] : &p->mine[0];
    const p2p_device *from = &x->devices[src->device];
    return p2p_enter(x, src->device, error) && P2P_TRY(x, error, cuMemcpyPeerAsync,
                                                       (dst->address, x->devices[dst->device].context, src->address,
                                                        from->context, x->bytes, from->stream[0]));
}

/* Makes `copies` copies in one direction, or in both directions in turns. *seconds: the time until
 * all bytes have arrived. The host's clock measures this time, and no gate holds the copies back,
 * because the driver may need this thread to stage the copies. */
static bool p2p_pairs_copy_staged(p2p_experiment *x, const pair *p, bool both, int copies, double *seconds, char *error)
{
    uint64_t begin = cli_stats_monotonic();
    bool ok = true;
    for (int i = 0; i < copies && ok; i++) {
        ok = p2p_pairs_submit_staged(x, p, 0, error) && (!both || p2p_pairs_submit_staged(x, p, 1, error));
    }
    char later[PLAIN_ERROR];
    ok = P2P_TRY(x, ok ? error : later, cuStreamSynchronize, (x->devices[p->d].stream[0])) && ok;
    ok = P2P_TRY(x, ok ? error : later, cuStreamSynchronize, (x->devices[p->o].stream[0])) && ok;
    *seconds = (double)(cli_stats_monotonic() - begin) * 1e-9;
    return ok;
}

static bool p2p_pairs_fill_staged(p2p_experiment *x, const pair *p, uint32_t seed, char *error)
{
    return p2p_fill(x, p->d, &p->mine[0], x->bytes, seed, error) &&
           p2p_fill(x, p->o, &p->others[1], x->bytes, seed + 1, error) &&
           p2p_fill(x, p->o, &p->others[0], x->bytes, ~seed, error) &&
           p2p_fill(x, p->d, &p->mine[1], x->bytes, ~seed, error);
}

static bool p2p_pairs_compare_staged(p2p_experiment *x, const pair *p, bool both, uint32_t seed, bool *right,
                                     char *error)
{
    uint64_t wrong[2] = {0, 0};
    if (!p2p_compare(x, p->o, &p->others[0], x->bytes, seed, &wrong[0], error) ||
        (both && !p2p_compare(x, p->d, &p->mine[1], x->bytes, seed + 1, &wrong[1], error))) {
        return false;
    }
    x->checked += both ? 2 : 1;
    unsigned long long words = wrong[0] + wrong[1];
    if (words > 0 && *right) {
        *right = false;
        x->wrong++;
        p2p_note(x, "%d -> %d, staged by the driver: %llu words did not arrive as they were sent", p->d, p->o, words);
    }
    return true;
}

static bool p2p_pairs_run_staged_way(p2p_experiment *x, const pair *p, bool both, double *out, char *error)
{
    double samples[P2P_SAMPLES_MAX], seconds = 0;
    bool ok = true, right = true;
    for (int k = 0; k < x->samples && ok; k++) {
        uint32_t seed = 0x3c6ef300u + (uint32_t)k;
        ok = p2p_pairs_fill_staged(x, p, seed, error) &&
             p2p_pairs_copy_staged(x, p, both, x->staged_warm, &seconds, error) &&
             p2p_pairs_copy_staged(x, p, both, x->staged_copies, &seconds, error) &&
             p2p_pairs_compare_staged(x, p, both, seed, &right, error);
        samples[k] = (double)x->bytes * x->staged_copies * (both ? 2 : 1) / (seconds * 1e9);
    }
    *out = ok && right ? cli_stats_spread_of(samples, x->samples).median : NAN;
    return ok;
}

static bool p2p_pairs_run_staged(p2p_experiment *x, pair *p, char *error)
{
    char text[TEXT];
    int d = p->d, o = p->o;
    p2p_pairs_pair_text(p, "staged by the driver", text);
    p2p_step(x, "pairs", text);
    bool ok = p2p_pairs_run_staged_way(x, p, false, &x->figures[P2P_STAGED][d][o], error) &&
              p2p_pairs_run_small(x, p, 4, &x->figures[P2P_STAGED_4][d][o], error) &&
              p2p_pairs_run_small(x, p, 4096, &x->figures[P2P_STAGED_4096][d][o], error);
    if (d < o) {
        ok = ok && p2p_pairs_run_staged_way(x, p, true, &x->figures[P2P_STAGED_BOTH][d][o], error);
        x->figures[P2P_STAGED_BOTH][o][d] = x->figures[P2P_STAGED_BOTH][d][o];
    }
    return ok;
}

/* ---- all pairs ---- */

int p2p_pairs_steps(const p2p_experiment *x)
{
    int steps = 0;
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            steps += d == o ? 0 : p2p_direct(x, d, o) ? 3 : 1;
        }
    }
    return steps;
}

bool p2p_pairs_run(p2p_experiment *x, char *error)
{
    for (int d = 0; d < x->n; d++) {
        for (int o = 0; o < x->n; o++) {
            pair p;
            if (d == o) {
                continue;
            }
            x->code = HDCU_SUCCESS;
            bool ok = p2p_pairs_take_pair(x, d, o, &p, error);
            if (ok) {
                ok = p2p_pairs_run_staged(x, &p, error) && (!p2p_direct(x, d, o) || p2p_pairs_run_direct(x, &p, error));
                p2p_pairs_give_pair(x, &p);
            }
            if (!ok && hdi_driver_code_is_fatal(x->code)) {
                return false;
            }
            if (!ok) {
                p2p_note(x, "%d -> %d: not all was measured: %.400s", d, o, error);
            }
        }
    }
    return true;
}
