/* faults.c - the conductor of `heddle bench faults`. It opens the runtime, starts the loads, and
 * strikes one device after another. Meanwhile it compares the work of the other devices with their
 * work before the fault.
 *
 * Threads: bench_faults_run on the calling thread. A thread for each device keeps it busy
 * (faults_load.c), and one watches the loss descriptor. Locks: the watch's lock, around the
 * reported losses.
 * Always: one device at a time is made to fault, while all others work. Every thread is joined on
 * every path.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "bench/faults_parts.h"

enum {
    ROUNDS_MIN = 4,
    ROUNDS_QUICK = 2,
    WATCH_MS = 50,         /* interval in which the watch checks for its end */
    POLL_NS = 1000 * 1000, /* between the conductor's checks of a load */
    /* batches that a restarted device finishes before the next fault */
    SETTLE_BATCHES = 4,
    /* most time from the failed wait to the report of the loss */
    TOLD_NS = 1000 * 1000 * 1000,
    /* time before a fault in which the normal rate is measured */
    BEFORE_GPU_NS = 400 * 1000 * 1000,
    BEFORE_HOST_NS = 800 * 1000 * 1000
};

const char faults_help[] =
    "The cost of a lost device in placement process. Every device is kept busy with matrix products whose sums are\n"
    "checked exactly. Then one device after the other is made to fault: a kernel reads where nothing is mapped; the\n"
    "worker process is killed; a kernel never ends, and the watchdog (1 s) takes it for hung. Measured are, for each:\n"
    "  the wait fails     from the fault until hd_wait returns for the work that it hit\n"
    "  loss is reported   from the fault until the loss descriptor is readable\n"
    "  hd_device_restart  the call\n"
    "  first kernel       from the call until the first kernel on the device is finished; its operands are buffers "
    "that\n"
    "                     keep a copy\n"
    "  others             the other devices' throughput from the fault to that kernel, as a share of their throughput\n"
    "                     just before\n"
    "Work lost on the other devices is every operation there that failed, and every wrong element of a result.\n";

static void bench_sleep_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

/* ---- watch ---- */

static void bench_note_losses(faults_watch *w, uint64_t at)
{
    hd_device_loss loss = {.size = sizeof(loss)};
    while (hd_loss_next(w->runtime, &loss) == HD_OK) {
        pthread_mutex_lock(&w->lock);
        if (loss.device >= 0 && loss.device < FAULTS_DEVICES_MAX) {
            w->told[loss.device]++;
            w->at[loss.device] = at;
            w->loss[loss.device] = loss;
        }
        pthread_mutex_unlock(&w->lock);
        loss.size = sizeof(loss);
    }
}

static void *bench_watch_main(void *watch)
{
    faults_watch *w = watch;
    while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) { /* publishes nothing else */
        struct pollfd p = {.fd = w->descriptor, .events = POLLIN};
        if (poll(&p, 1, WATCH_MS) > 0) {
            bench_note_losses(w, cli_stats_monotonic());
        }
    }
    return NULL;
}

static bool bench_start_watch(faults_experiment *x, char *error)
{
    faults_watch *w = &x->watch;
    w->runtime = x->runtime;
    if (!cli_report_check(hd_loss_descriptor(x->runtime, &w->descriptor), "hd_loss_descriptor", error)) {
        return false;
    }
    pthread_mutex_init(&w->lock, NULL);
    int failed = pthread_create(&w->thread, NULL, bench_watch_main, w);
    if (failed) {
        snprintf(error, PLAIN_ERROR, "pthread_create: %s", strerror(failed));
        pthread_mutex_destroy(&w->lock);
        w->runtime = NULL;
    }
    return !failed;
}

static void bench_stop_watch(faults_watch *w)
{
    if (w->runtime) {
        atomic_store_explicit(&w->stop, 1, memory_order_relaxed);
        pthread_join(w->thread, NULL);
        pthread_mutex_destroy(&w->lock);
    }
}

/* ---- loads ---- */

static int bench_state_of(faults_load *l)
{
    /* pairs with the load's release */
    return atomic_load_explicit(&l->state, memory_order_acquire);
}

static bool bench_start_load(faults_experiment *x, int device, char *error)
{
    faults_load *l = calloc(1, sizeof(*l));
    if (!l) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    l->runtime = x->runtime;
    l->device = device;
    l->problem = &x->problem;
    pthread_mutex_init(&l->lock, NULL);
    int failed = pthread_create(&l->thread, NULL, bench_faults_load_main, l);
    if (failed) {
        snprintf(error, PLAIN_ERROR, "pthread_create: %s", strerror(failed));
        pthread_mutex_destroy(&l->lock);
        free(l);
        return false;
    }
    x->loads[device] = l;
    return true;
}

/* Waits until no load is in the given state. */
static bool bench_wait_while(faults_experiment *x, faults_state state, char *error)
{
    uint64_t begin = cli_stats_monotonic();
    for (int i = 0; i < x->n; i++) {
        faults_load *l = x->loads[i];
        while (bench_state_of(l) == (int)state) {
            if (cli_stats_monotonic() - begin > (uint64_t)FAULTS_TIMEOUT_NS) {
                snprintf(error, PLAIN_ERROR, "device %d: no answer from its thread", i);
                return false;
            }
            bench_sleep_ns(POLL_NS);
        }
        if (bench_state_of(l) == FAULTS_ENDED) {
            snprintf(error, PLAIN_ERROR, "device %d: %.450s", i, l->error);
            return false;
        }
    }
    return true;
}

/* Waits until every load finishes a batch later than `at`. */
static bool bench_wait_past(faults_experiment *x, uint64_t at, char *error)
{
    uint64_t begin = cli_stats_monotonic();
    for (int i = 0; i < x->n; i++) {
        while (bench_faults_load_latest(x->loads[i]) <= at) {
            if (bench_state_of(x->loads[i]) == FAULTS_ENDED) {
                snprintf(error, PLAIN_ERROR, "device %d: %.450s", i, x->loads[i]->error);
                return false;
            }
            if (cli_stats_monotonic() - begin > (uint64_t)FAULTS_TIMEOUT_NS) {
                snprintf(error, PLAIN_ERROR, "device %d finishes nothing any more", i);
                return false;
            }
            bench_sleep_ns(POLL_NS);
        }
    }
    return true;
}

static void bench_stop_loads(faults_experiment *x)
{
    for (int i = 0; i < FAULTS_DEVICES_MAX; i++) {
        if (x->loads[i]) {
            /* pairs with the load's acquire; publishes only the order */
            atomic_store_explicit(&x->loads[i]->order, FAULTS_STOP, memory_order_release);
        }
    }
    for (int i = 0; i < FAULTS_DEVICES_MAX; i++) {
        if (x->loads[i]) {
            pthread_join(x->loads[i]->thread, NULL);
        }
    }
}

/* ---- strikes ---- */

/* Steps a second of all devices except `but`. */
static double bench_others_rate(faults_experiment *x, int but, uint64_t begin, uint64_t end)
{
    double steps = 0;
    for (int i = 0; i < x->n; i++) {
        if (i != but) {
            steps += bench_faults_load_steps(x->loads[i], end) - bench_faults_load_steps(x->loads[i], begin);
        }
    }
    return steps / ((double)(end - begin) * 1e-9);
}

/* Waits until the loss is reported, and takes its description. */
static void bench_take_loss(faults_experiment *x, faults_strike *s, uint64_t told)
{
    faults_watch *w = &x->watch;
    uint64_t begin = cli_stats_monotonic();
    for (bool have = false; !have && cli_stats_monotonic() - begin < TOLD_NS;) {
        pthread_mutex_lock(&w->lock);
        have = w->told[s->device] > told;
        if (have) {
            s->told_at = w->at[s->device];
            s->loss = w->loss[s->device];
        }
        pthread_mutex_unlock(&w->lock);
        if (!have) {
            bench_sleep_ns(POLL_NS);
        }
    }
}

static uint64_t bench_times_told(faults_watch *w, int device)
{
    pthread_mutex_lock(&w->lock);
    uint64_t told = w->told[device];
    pthread_mutex_unlock(&w->lock);
    return told;
}

static bool bench_strike(faults_experiment *x, int round, faults_kind kind, char *error)
{
    int device = (round + (int)kind) % x->n;
    faults_load *l = x->loads[device];
    faults_strike *s = &x->strikes[x->n_strikes];
    *s = (faults_strike){.device = device, .round = round, .kind = kind};
    uint64_t told = bench_times_told(&x->watch, device);
    bench_sleep_ns(x->before_ns + x->before_ns / 8);
    l->strike = s;
    /* the load does not write it meanwhile */
    atomic_store_explicit(&l->state, FAULTS_STRIKING, memory_order_relaxed);
    /* pairs with the load's acquire */
    atomic_store_explicit(&l->order, FAULTS_STRIKE, memory_order_release);
    if (!bench_wait_while(x, FAULTS_STRIKING, error) || !bench_wait_past(x, s->finished_at, error)) {
        return false;
    }
    bench_take_loss(x, s, told);
    s->others_before = bench_others_rate(x, device, s->fault_at - x->before_ns, s->fault_at);
    s->others_during = bench_others_rate(x, device, s->fault_at, s->finished_at);
    x->n_strikes++;
    for (int i = 0; i < SETTLE_BATCHES; i++) {
        if (!bench_wait_past(x, cli_stats_monotonic(), error)) {
            return false;
        }
    }
    return true;
}

static bool bench_run_rounds(faults_experiment *x, char *error)
{
    static const char *const kinds[FAULTS_KINDS] = {"an illegal address", "a killed worker", "an endless kernel"};
    for (int r = 0; r < x->rounds; r++) {
        for (int k = 0; k < FAULTS_KINDS; k++) {
            char stage[64], why[PLAIN_ERROR];
            snprintf(stage, sizeof(stage), "round %d of %d", r + 1, x->rounds);
            cli_report_progress(&x->options->run, stage, kinds[k],
                                (double)(r * FAULTS_KINDS + k) / (x->rounds * FAULTS_KINDS));
            if (!bench_strike(x, r, (faults_kind)k, why)) {
                snprintf(error, PLAIN_ERROR, "%s: %.450s", kinds[k], why);
                return false;
            }
        }
    }
    return true;
}

/* ---- conductor ---- */

static bool bench_open_all(faults_experiment *x, char *error)
{
    char settings[64];
    snprintf(settings, sizeof(settings), "placement=process watchdog=%d", FAULTS_WATCHDOG_MS);
    hd_options options = {.size = sizeof(options), .settings = settings};
    if (!cli_report_check(hd_open(&options, &x->runtime), "hd_open", error)) {
        return false;
    }
    x->n = hd_device_count(x->runtime);
    x->info.size = sizeof(x->info);
    x->device.size = sizeof(x->device);
    if (x->n > FAULTS_DEVICES_MAX) {
        snprintf(error, PLAIN_ERROR, "%d devices are more than %d", x->n, FAULTS_DEVICES_MAX);
        return false;
    }
    if (!cli_report_check(hd_runtime_get_info(x->runtime, &x->info), "hd_runtime_get_info", error) ||
        !cli_report_check(hd_device_get_info(x->runtime, 0, &x->device), "hd_device_get_info", error)) {
        return false;
    }
    x->on_host = x->device.is_host;
    x->before_ns = x->on_host ? BEFORE_HOST_NS : BEFORE_GPU_NS;
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->n > ROUNDS_MIN ? x->n : ROUNDS_MIN;
    return bench_faults_problem_make(x->on_host, &x->problem, error) && bench_start_watch(x, error);
}

static bool bench_strike_all(faults_experiment *x, char *error)
{
    cli_report_progress(&x->options->run, "opening devices", "", 0);
    if (!bench_open_all(x, error)) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        if (!bench_start_load(x, i, error)) {
            return false;
        }
    }
    return bench_wait_while(x, FAULTS_OPENING, error) && bench_wait_past(x, 0, error) && bench_run_rounds(x, error);
}

/* Sums up the loads and the watch, once their threads ended. */
static bool bench_finish(faults_experiment *x, char *error)
{
    bench_stop_loads(x);
    bench_stop_watch(&x->watch);
    for (int i = 0; i < x->n; i++) {
        uint64_t expected = 0;
        for (int s = 0; s < x->n_strikes; s++) {
            expected += x->strikes[s].device == i;
        }
        uint64_t told = x->watch.told[i];
        x->bystanders_lost += told > expected ? told - expected : 0;
        if (x->loads[i] && x->loads[i]->failed) {
            snprintf(error, PLAIN_ERROR, "device %d: %.450s", i, x->loads[i]->error);
            return false;
        }
    }
    return true;
}

static bool bench_measure(void *experiment, char *error)
{
    char later[PLAIN_ERROR];
    cli_stats_clock_start();
    bool ok = bench_strike_all(experiment, error);
    return bench_finish(experiment, ok ? error : later) && ok;
}

static void bench_close_all(void *experiment)
{
    faults_experiment *x = experiment;
    for (int i = 0; i < FAULTS_DEVICES_MAX; i++) {
        if (x->loads[i]) {
            pthread_mutex_destroy(&x->loads[i]->lock);
            free(x->loads[i]);
        }
    }
    hd_close(x->runtime);
    bench_faults_problem_release(&x->problem);
}

int bench_faults_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench faults", bench_measure, bench_close_all, bench_faults_print_json};
    faults_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
