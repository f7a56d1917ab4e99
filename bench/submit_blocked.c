/* submit_blocked.c - measures transfers beside others that wait for a kernel, for `heddle bench
 * submit`.
 *
 * A kernel runs for a few milliseconds. Behind it are copies of its result, out of the device and
 * into it, and a fill. Meanwhile 4 KiB of other bytes are read, written, copied and filled, one
 * operation after another, each to its end. A sample counts only if the kernel was still running
 * when the transfer began. Samples of the same transfers alone take turns with these samples.
 *
 * Threads: the conductor makes the transfers. In rows of another thread a second one submits the
 * kernel and the work that waits for it.
 * Locks: none. Two semaphores hand the turn from one thread to the other.
 * Always: when a sample ends, all submitted work has ended, and the bytes are compared.
 */
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include "bench/submit_parts.h"

enum { BYTES = 4096, ZEROS = 1 << 18, WARM = 8, TRIPS = 48, TRIPS_QUICK = 12, LAUNCHES_MOST = 400 };

static const uint64_t hold_ns = 8000000, hold_quick_ns = 3000000;

const submit_blocked_row submit_blocked_rows[SUBMIT_BLOCKED_ROWS] = {
    {"read", SUBMIT_READ, "read 4 KiB"},
    {"write", SUBMIT_WRITE, "write 4 KiB, and wait"},
    {"copy", SUBMIT_COPY, "copy 4 KiB, and wait"},
    {"fill", SUBMIT_FILL, "fill 4 KiB, and wait"},
};

/* Data of the sample. The kernel writes `held`, and the copies behind it use it. */
typedef struct scene {
    submit_experiment *x;
    hd_lane *lane;
    hd_kernel *sum;
    hd_buffer *zeros, *held, *out, *in, *one, *other;
    int launches; /* launches that together take the kernel's planned time */
    hd_ticket waits;
    uint8_t memory[BYTES], expected[BYTES];
    sem_t asked, answered;
    bool stop, failed;
    char error[PLAIN_ERROR];
} scene;

#define TRY(call) cli_report_check((call), #call, error)

static bool bench_launch(scene *s, hd_ticket *out, char *error)
{
    const hd_arg args[] = {hd_inout_range(s->held, 0, 4), hd_in(s->zeros), hd_u64(ZEROS)};
    return TRY(hd_launch(s->lane, s->sum, (hd_dims){.x = 1}, (hd_dims){.x = 256}, 0, args, 3, out));
}

/* Submits the kernel, and behind it a transfer of each kind that uses its result. */
static bool bench_block(scene *s, char *error)
{
    hd_ticket ticket;
    bool ok = true;
    for (int i = 0; i < s->launches && ok; i++) {
        ok = bench_launch(s, &ticket, error);
    }
    return ok && TRY(hd_copy(s->out, 0, s->held, 0, BYTES, &s->waits)) &&
           TRY(hd_copy(s->held, 0, s->in, 0, BYTES, NULL)) && TRY(hd_fill(s->held, 0, 0, BYTES, NULL));
}

static void *bench_blocker(void *argument)
{
    scene *s = argument;
    for (;;) {
        while (sem_wait(&s->asked) != 0) {
        }
        if (s->stop) {
            return NULL;
        }
        s->failed = !bench_block(s, s->error);
        sem_post(&s->answered);
    }
}

static bool bench_block_by_other(scene *s, char *error)
{
    sem_post(&s->asked);
    while (sem_wait(&s->answered) != 0) {
    }
    if (s->failed) {
        snprintf(error, PLAIN_ERROR, "%s", s->error);
    }
    return !s->failed;
}

/* Makes one transfer and waits for its end. */
static bool bench_transfer(scene *s, submit_transfer kind, char *error)
{
    hd_ticket ticket;
    switch (kind) {
    case SUBMIT_READ:
        return TRY(hd_read(s->one, 0, s->memory, BYTES));
    case SUBMIT_WRITE:
        return TRY(hd_write(s->one, 0, s->expected, BYTES)) && TRY(hd_buffer_wait(s->one, HD_READ, SUBMIT_TIMEOUT_NS));
    case SUBMIT_COPY:
        return TRY(hd_copy(s->other, 0, s->one, 0, BYTES, &ticket)) && TRY(hd_wait(ticket, SUBMIT_TIMEOUT_NS));
    default:
        return TRY(hd_fill(s->other, 0, 0x7f7f7f7f, BYTES, &ticket)) && TRY(hd_wait(ticket, SUBMIT_TIMEOUT_NS));
    }
}

/* Times each transfer from its call to its end. If the row has other work that waits, this work
 * already waits when a transfer begins. */
static bool bench_trips(scene *s, submit_transfer kind, submit_beside beside, stats_histogram *calls, char *error)
{
    int count = s->x->options->quick ? TRIPS_QUICK : TRIPS;
    bool ok = true, once = false;
    for (int i = 0; i < count && ok; i++) {
        if (beside != SUBMIT_ALONE && (!once || hd_done(s->waits))) {
            ok = beside == SUBMIT_OWN ? bench_block(s, error) : bench_block_by_other(s, error);
            once = true;
        }
        uint64_t tick = cli_stats_tick_begin();
        ok = ok && bench_transfer(s, kind, error);
        cli_stats_record(calls, cli_stats_tick_end() - tick);
    }
    return ok && (!once || TRY(hd_buffer_wait(s->held, HD_READ_WRITE, SUBMIT_TIMEOUT_NS)));
}

static bool bench_holds(hd_buffer *buffer, const uint8_t *expected, const char *what, char *error)
{
    uint8_t got[BYTES];
    if (!TRY(hd_read(buffer, 0, got, BYTES))) {
        return false;
    }
    if (memcmp(got, expected, BYTES) != 0) {
        snprintf(error, PLAIN_ERROR, "beside transfers that wait: the bytes of a %s are wrong", what);
        return false;
    }
    return true;
}

static bool bench_check(scene *s, submit_transfer kind, char *error)
{
    static const uint8_t zeros[BYTES];
    uint8_t filled[BYTES];
    memset(filled, 0x7f, sizeof(filled));
    if (kind == SUBMIT_READ && memcmp(s->memory, s->expected, BYTES) != 0) {
        snprintf(error, PLAIN_ERROR, "beside transfers that wait: the bytes of a read are wrong");
        return false;
    }
    return bench_holds(s->one, s->expected, "write", error) && bench_holds(s->held, zeros, "fill that waited", error) &&
           (kind != SUBMIT_COPY || bench_holds(s->other, s->expected, "copy", error)) &&
           (kind != SUBMIT_FILL || bench_holds(s->other, filled, "fill", error));
}

/* Finds how many launches take the kernel's planned time. */
static bool bench_calibrate(scene *s, char *error)
{
    uint64_t least = UINT64_MAX, wanted = s->x->options->quick ? hold_quick_ns : hold_ns;
    bool ok = true;
    for (int i = 0; i < WARM && ok; i++) {
        hd_ticket ticket;
        uint64_t begin = cli_stats_monotonic();
        ok = bench_launch(s, &ticket, error) && TRY(hd_wait(ticket, SUBMIT_TIMEOUT_NS));
        uint64_t took = cli_stats_monotonic() - begin;
        least = took < least ? took : least;
    }
    uint64_t launches = wanted / (least ? least : 1) + 1;
    s->launches = launches < LAUNCHES_MOST ? (int)launches : LAUNCHES_MOST;
    return ok;
}

static bool bench_scene_open(scene *s, char *error)
{
    hd_runtime *rt = s->x->runtime;
    hd_module *module;
    memset(s->expected, 0x5a, sizeof(s->expected));
    return TRY(hd_lane_create(rt, 0, &s->lane)) && TRY(hd_module_get_builtin(rt, &module)) &&
           TRY(hd_kernel_get(module, "hd_sum_f32", &s->sum)) && TRY(hd_alloc(s->lane, (size_t)ZEROS * 4, &s->zeros)) &&
           TRY(hd_alloc(s->lane, BYTES, &s->held)) && TRY(hd_alloc(s->lane, BYTES, &s->one)) &&
           TRY(hd_alloc(s->lane, BYTES, &s->other)) && TRY(hd_alloc_host(rt, BYTES, &s->out)) &&
           TRY(hd_alloc_host(rt, BYTES, &s->in)) && TRY(hd_fill(s->zeros, 0, 0, (size_t)ZEROS * 4, NULL)) &&
           TRY(hd_fill(s->held, 0, 0, BYTES, NULL)) && TRY(hd_fill(s->in, 0, 0, BYTES, NULL)) &&
           TRY(hd_fill(s->other, 0, 0, BYTES, NULL)) && TRY(hd_write(s->one, 0, s->expected, BYTES)) &&
           bench_calibrate(s, error);
}

static void bench_scene_close(scene *s)
{
    hd_buffer *const buffers[] = {s->zeros, s->held, s->out, s->in, s->one, s->other};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        hd_free(buffers[i]);
    }
    if (s->lane) {
        hd_lane_destroy(s->lane);
    }
}

/* Measures all rows of one round. In odd rounds the transfers alone come last. */
static bool bench_measure(scene *s, int round, char *error)
{
    submit_experiment *x = s->x;
    bool ok = true;
    for (int r = 0; r < SUBMIT_BLOCKED_ROWS && ok; r++) {
        for (int i = 0; i < SUBMIT_BESIDES && ok; i++) {
            int beside = round % 2 ? SUBMIT_BESIDES - 1 - i : i;
            stats_histogram *calls = calloc(1, sizeof(*calls));
            if (!calls) {
                snprintf(error, PLAIN_ERROR, "out of memory");
                return false;
            }
            submit_transfer kind = submit_blocked_rows[r].kind;
            ok = bench_trips(s, kind, (submit_beside)beside, calls, error) && bench_check(s, kind, error);
            x->blocked[r].calls[beside][round] = cli_stats_summarise(calls);
            free(calls);
        }
    }
    return ok;
}

bool bench_submit_blocked_measure(submit_experiment *x, int round, char *error)
{
    scene *s = calloc(1, sizeof(*s));
    pthread_t thread;
    if (!s) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    s->x = x;
    sem_init(&s->asked, 0, 0);
    sem_init(&s->answered, 0, 0);
    bool ok = bench_scene_open(s, error), started = false;
    if (ok) {
        started = pthread_create(&thread, NULL, bench_blocker, s) == 0;
        if (!started) {
            snprintf(error, PLAIN_ERROR, "no thread could be started");
        }
        ok = started && bench_measure(s, round, error);
        x->blocked_rounds = ok ? round + 1 : x->blocked_rounds;
    }
    if (started) {
        s->stop = true;
        sem_post(&s->asked);
        pthread_join(thread, NULL);
    }
    bench_scene_close(s);
    sem_destroy(&s->asked);
    sem_destroy(&s->answered);
    free(s);
    return ok;
}

/* ---- figures ---- */

/* For each round: the median beside waiting work, over the median alone. */
static stats_spread bench_ratio_of(const submit_experiment *x, int row, submit_beside beside,
                                   double values[SUBMIT_ROUNDS_MAX])
{
    for (int i = 0; i < x->blocked_rounds; i++) {
        const stats_calls(*calls)[SUBMIT_ROUNDS_MAX] = x->blocked[row].calls;
        double alone = calls[SUBMIT_ALONE][i].median_ns;
        values[i] = alone > 0 ? calls[beside][i].median_ns / alone : NAN;
    }
    return cli_stats_spread_of(values, x->blocked_rounds);
}

double bench_submit_blocked_worst(const submit_experiment *x)
{
    double values[SUBMIT_ROUNDS_MAX], worst = NAN;
    for (int r = 0; r < SUBMIT_BLOCKED_ROWS && x->blocked_rounds; r++) {
        for (int beside = SUBMIT_OTHER; beside < SUBMIT_BESIDES; beside++) {
            double ratio = bench_ratio_of(x, r, (submit_beside)beside, values).median;
            worst = isnan(worst) || ratio > worst ? ratio : worst;
        }
    }
    return worst;
}

void bench_submit_blocked_put(hdi_json *j, const submit_experiment *x)
{
    static const char *const besides[SUBMIT_BESIDES] = {"alone", "other", "own"};
    if (!x->blocked_rounds) {
        return;
    }
    hdi_json_key(j, "transfers");
    hdi_json_array(j);
    for (int r = 0; r < SUBMIT_BLOCKED_ROWS; r++) {
        double values[SUBMIT_ROUNDS_MAX];
        hdi_json_object(j);
        cli_report_put_string(j, "id", submit_blocked_rows[r].id);
        cli_report_put_string(j, "name", submit_blocked_rows[r].text);
        cli_report_put_integer(j, "bytes", BYTES);
        for (int beside = 0; beside < SUBMIT_BESIDES; beside++) {
            hdi_json_key(j, besides[beside]);
            hdi_json_object(j);
            for (int i = 0; i < x->blocked_rounds; i++) {
                values[i] = x->blocked[r].calls[beside][i].median_ns;
            }
            cli_report_put_values(j, "call_median_ns", values, x->blocked_rounds);
            if (beside != SUBMIT_ALONE) {
                bench_ratio_of(x, r, (submit_beside)beside, values);
                cli_report_put_values(j, "alone_ratio", values, x->blocked_rounds);
            }
            hdi_json_object_end(j);
        }
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}
