/* heddle.c - measures hd_copy between devices: by its default route if one device may use the
 * memory of the other device, and with peers=off.
 *
 * Threads: the conductor. Locks: none.
 * Always: launches of Heddle fill and compare memory, so the measurements also work if the engines
 * are in other processes. Before a sample counts, the copied bytes are compared. If a pair fails, a
 * note states this, and the other pairs are still measured.
 */
#include <math.h>
#include <string.h>
#include "cli/p2p/parts.h"

enum { TEXT = 128 };

/* A runtime with two buffers on each device: one to send from, and one to receive into. */
typedef struct side {
    p2p_experiment *x;
    hd_runtime *runtime;
    bool staged; /* with peers=off */
    hd_kernel *fill, *check;
    hd_buffer *out[P2P_DEVICES_MAX], *in[P2P_DEVICES_MAX], *count[P2P_DEVICES_MAX];
} side;

#define TRY(status, what) cli_report_check(status, what, error)

static bool p2p_heddle_open_side(side *s, char *error)
{
    p2p_experiment *x = s->x;
    hd_module *module;
    if (!TRY(hd_module_load(s->runtime, x->image.file, x->image.file_bytes, &module), "hd_module_load") ||
        !TRY(hd_kernel_get(module, "hd_p2p_fill", &s->fill), "hd_kernel_get") ||
        !TRY(hd_kernel_get(module, "hd_p2p_check", &s->check), "hd_kernel_get")) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        hd_lane *lane = NULL;
        if (!TRY(hd_lane_get_default(s->runtime, i, &lane), "hd_lane_get_default") ||
            !TRY(hd_alloc(lane, x->bytes, &s->out[i]), "hd_alloc") ||
            !TRY(hd_alloc(lane, x->bytes, &s->in[i]), "hd_alloc") ||
            !TRY(hd_alloc(lane, sizeof(uint64_t), &s->count[i]), "hd_alloc")) {
            return false;
        }
    }
    return true;
}

static void p2p_heddle_close_side(side *s)
{
    for (int i = 0; i < s->x->n; i++) {
        hd_free(s->out[i]);
        hd_free(s->in[i]);
        hd_free(s->count[i]);
    }
}

static hd_dims p2p_heddle_grid_of(const side *s, int device)
{
    return (hd_dims){s->x->devices[device].multiprocessors, 1, 1};
}

static bool p2p_heddle_fill_buffer(side *s, int device, hd_buffer *buffer, uint32_t seed, char *error)
{
    const hd_arg arguments[3] = {hd_out(buffer), hd_u64(s->x->bytes / 4), hd_u32(seed)};
    hd_dims block = {P2P_BLOCK, 1, 1};
    hd_lane *lane = NULL;
    return TRY(hd_lane_get_default(s->runtime, device, &lane), "hd_lane_get_default") &&
           TRY(hd_launch(lane, s->fill, p2p_heddle_grid_of(s, device), block, 0, arguments, 3, NULL), "hd_launch");
}

static bool p2p_heddle_compare_buffer(side *s, const char *what, int device, uint32_t seed, bool *right, char *error)
{
    p2p_experiment *x = s->x;
    uint64_t wrong = 0;
    hd_dims block = {P2P_BLOCK, 1, 1};
    const hd_arg arguments[4] = {hd_inout(s->count[device]), hd_in(s->in[device]), hd_u64(x->bytes / 4), hd_u32(seed)};
    hd_lane *lane = NULL;
    if (!TRY(hd_lane_get_default(s->runtime, device, &lane), "hd_lane_get_default") ||
        !TRY(hd_fill(s->count[device], 0, 0, sizeof(wrong), NULL), "hd_fill") ||
        !TRY(hd_launch(lane, s->check, p2p_heddle_grid_of(s, device), block, 0, arguments, 4, NULL), "hd_launch") ||
        !TRY(hd_read(s->count[device], 0, &wrong, sizeof(wrong)), "hd_read")) {
        return false;
    }
    x->checked++;
    if (wrong && *right) {
        *right = false;
        x->wrong++;
        p2p_note(x, "%s: %llu words did not arrive as they were sent", what, (unsigned long long)wrong);
    }
    return true;
}

/* Makes `copies` copies from d to o, or in both directions in turns. *seconds: the time until all
 * bytes have arrived. */
static bool p2p_heddle_copy_many(side *s, int d, int o, bool both, size_t bytes, int copies, double *seconds,
                                 char *error)
{
    hd_ticket there = {NULL, 0}, back = {NULL, 0};
    uint64_t begin = cli_stats_monotonic();
    for (int i = 0; i < copies; i++) {
        if (!TRY(hd_copy(s->in[o], 0, s->out[d], 0, bytes, &there), "hd_copy") ||
            (both && !TRY(hd_copy(s->in[d], 0, s->out[o], 0, bytes, &back), "hd_copy"))) {
            return false;
        }
    }
    if (!TRY(hd_wait(there, P2P_TIMEOUT_NS), "hd_copy") || (both && !TRY(hd_wait(back, P2P_TIMEOUT_NS), "hd_copy"))) {
        return false;
    }
    *seconds = (double)(cli_stats_monotonic() - begin) * 1e-9;
    return true;
}

static bool p2p_heddle_run_way(side *s, const char *what, int d, int o, bool both, double *out, char *error)
{
    p2p_experiment *x = s->x;
    double samples[P2P_SAMPLES_MAX], seconds = 1;
    int copies = s->staged ? x->staged_copies : x->copies, warm = s->staged ? x->staged_warm : x->warm;
    bool ok = true, right = true;
    for (int k = 0; k < x->samples && ok; k++) {
        uint32_t seed = 0x6a09e600u + 4 * (uint32_t)k;
        ok = p2p_heddle_fill_buffer(s, d, s->out[d], seed, error) &&
             p2p_heddle_fill_buffer(s, o, s->out[o], seed + 1, error) &&
             p2p_heddle_fill_buffer(s, o, s->in[o], ~seed, error) &&
             p2p_heddle_fill_buffer(s, d, s->in[d], ~seed, error) &&
             p2p_heddle_copy_many(s, d, o, both, x->bytes, warm, &seconds, error) &&
             p2p_heddle_copy_many(s, d, o, both, x->bytes, copies, &seconds, error) &&
             p2p_heddle_compare_buffer(s, what, o, seed, &right, error) &&
             (!both || p2p_heddle_compare_buffer(s, what, d, seed + 1, &right, error));
        samples[k] = (double)x->bytes * copies * (both ? 2 : 1) / (seconds * 1e9);
    }
    *out = ok && right ? cli_stats_spread_of(samples, x->samples).median : NAN;
    return ok;
}

/* Copies a few bytes at a time, and waits for each copy. The result is the median duration in
 * microseconds. */
static bool p2p_heddle_run_small(side *s, int d, int o, size_t bytes, double *out, char *error)
{
    static double values[P2P_SMALL_COPIES];
    int count = s->x->small_copies;
    bool ok = true;
    for (int i = -count / 10; i < count && ok; i++) { /* the first iterations warm up */
        double seconds = 0;
        ok = p2p_heddle_copy_many(s, d, o, false, bytes, 1, &seconds, error);
        if (i >= 0) {
            values[i] = seconds * 1e6;
        }
    }
    *out = ok ? cli_stats_spread_of(values, count).median : NAN;
    return ok;
}

static bool p2p_heddle_run_pair(side *s, int d, int o, char *error)
{
    p2p_experiment *x = s->x;
    char text[TEXT];
    p2p_figure_id one = s->staged ? P2P_HEDDLE_STAGED : P2P_HEDDLE_DIRECT;
    p2p_figure_id both = s->staged ? P2P_HEDDLE_STAGED_BOTH : P2P_HEDDLE_DIRECT_BOTH;
    snprintf(text, sizeof(text), "%d -> %d, hd_copy%s", d, o, s->staged ? " with peers=off" : "");
    p2p_step(x, s->staged ? "hd_copy, staged" : "hd_copy, direct", text);
    bool ok = p2p_heddle_run_way(s, text, d, o, false, &x->figures[one][d][o], error) &&
              p2p_heddle_run_small(s, d, o, 4, &x->figures[s->staged ? P2P_HEDDLE_STAGED_4 : P2P_HEDDLE_DIRECT_4][d][o],
                                   error) &&
              p2p_heddle_run_small(
                  s, d, o, 4096, &x->figures[s->staged ? P2P_HEDDLE_STAGED_4096 : P2P_HEDDLE_DIRECT_4096][d][o], error);
    if (d < o) {
        snprintf(text, sizeof(text), "%d <-> %d, hd_copy%s", d, o, s->staged ? " with peers=off" : "");
        ok = ok && p2p_heddle_run_way(s, text, d, o, true, &x->figures[both][d][o], error);
        x->figures[both][o][d] = x->figures[both][d][o];
    }
    return ok;
}

/* True if hd_copy goes directly: one of the devices can use the memory of the other one. */
static bool p2p_heddle_goes_directly(const p2p_experiment *x, int d, int o)
{
    return d != o && (x->peers[d][o].verdict == HD_PEER_USABLE || x->peers[o][d].verdict == HD_PEER_USABLE);
}

static bool p2p_heddle_is_wanted(const side *s, int d, int o)
{
    return d != o && (s->staged || p2p_heddle_goes_directly(s->x, d, o));
}

static bool p2p_heddle_run_side(side *s, char *error)
{
    p2p_experiment *x = s->x;
    bool ok = p2p_heddle_open_side(s, error);
    for (int d = 0; d < x->n && ok; d++) {
        for (int o = 0; o < x->n; o++) {
            if (p2p_heddle_is_wanted(s, d, o) && !p2p_heddle_run_pair(s, d, o, error)) {
                p2p_note(x, "%d -> %d, hd_copy%s: not all was measured: %.400s", d, o,
                         s->staged ? " with peers=off" : "", error);
            }
        }
    }
    p2p_heddle_close_side(s);
    return ok;
}

static int p2p_heddle_count_pairs(const side *s)
{
    int count = 0;
    for (int d = 0; d < s->x->n; d++) {
        for (int o = 0; o < s->x->n; o++) {
            count += p2p_heddle_is_wanted(s, d, o);
        }
    }
    return count;
}

int p2p_heddle_steps(const p2p_experiment *x)
{
    side direct = {.x = (p2p_experiment *)x}, staged = {.x = (p2p_experiment *)x, .staged = true};
    return p2p_heddle_count_pairs(&direct) + p2p_heddle_count_pairs(&staged);
}

bool p2p_heddle_run(p2p_experiment *x, char *error)
{
    side direct = {.x = x, .runtime = x->runtime}, staged = {.x = x, .staged = true};
    if (x->n < 2 || (p2p_heddle_count_pairs(&direct) > 0 && !p2p_heddle_run_side(&direct, error))) {
        return x->n < 2;
    }
    for (int i = 0; i < x->n; i++) {
        hd_memory_trim(x->runtime, i, 0, NULL);
    }
    char settings[sizeof(x->settings) + 16];
    snprintf(settings, sizeof(settings), "%s peers=off", x->settings);
    hd_options options = {.size = sizeof(options), .settings = settings};
    if (!TRY(hd_open(&options, &staged.runtime), "hd_open")) {
        return false;
    }
    bool ok = p2p_heddle_run_side(&staged, error);
    hd_close(staged.runtime);
    return ok;
}
