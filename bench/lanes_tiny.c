/* lanes_tiny.c - one lane of device 0: how fast tiny launches flow, and how long launch + wait takes; driver and
 * Heddle in turns.
 *
 * Threads: the conductor's, and a worker process for the driver's side where this process makes no driver calls. Locks:
 * none.
 * Always: both sides launch the same kernel with the same grid, as often, from one thread. In the flow nothing is waited
 * for until the end, so a full queue of either side throttles its caller.
 */
#include "bench/lanes_parts.h"

#include <string.h>

enum {
    PROBE = 200, /* operations that size the rounds */
    ROUNDS_MIN = 5,
    COUNT_MIN = 20,
    COUNT_MAX = 200000
};

static const hd_dims one_block = {1, 1, 1}, one_warp = {32, 1, 1};

/* In this process where the plain device is open here, else in the worker of device 0. */
static bool driver_flow(lanes_experiment *x, uint64_t launches, double *us, char *error)
{
    return x->plain[0].context ? lanes_driver_flow(&x->driver, &x->plain[0], launches, us, error)
                               : lanes_workers_tiny(x->workers, false, launches, us, error);
}

static bool driver_trips(lanes_experiment *x, uint64_t trips, double *us, char *error)
{
    return x->plain[0].context ? lanes_driver_trips(&x->driver, &x->plain[0], trips, us, error)
                               : lanes_workers_tiny(x->workers, true, trips, us, error);
}

static bool heddle_flow(lanes_experiment *x, uint64_t launches, double *us, char *error)
{
    lanes_heddle *h = &x->heddle[0];
    hd_lane *lane = NULL;
    if (!report_check(hd_lane_get_default(x->runtime, 0, &lane), "hd_lane_get_default", error)) {
        return false;
    }
    hd_ticket ticket = {NULL, 0};
    uint64_t begin = stats_monotonic();
    for (uint64_t i = 0; i < launches; i++) {
        hd_status status = hd_launch(lane, h->fill, one_block, one_warp, 0, h->fill_args, 3, &ticket);
        if (status != HD_OK) {
            return report_check(status, "hd_launch", error);
        }
    }
    if (!report_check(hd_wait(ticket, LANES_TIMEOUT_NS), "hd_wait", error)) {
        return false;
    }
    *us = (double)(stats_monotonic() - begin) / (double)launches * 1e-3;
    return true;
}

static bool heddle_trips(lanes_experiment *x, uint64_t trips, double *us, char *error)
{
    static stats_histogram h; /* one call at a time */
    memset(&h, 0, sizeof(h));
    lanes_heddle *device = &x->heddle[0];
    hd_lane *lane = NULL;
    if (!report_check(hd_lane_get_default(x->runtime, 0, &lane), "hd_lane_get_default", error)) {
        return false;
    }
    for (uint64_t i = 0; i < trips; i++) {
        hd_ticket ticket = {NULL, 0};
        uint64_t tick = stats_tick_begin();
        hd_status status = hd_launch(lane, device->fill, one_block, one_warp, 0, device->fill_args, 3, &ticket);
        status = status == HD_OK ? hd_wait(ticket, LANES_TIMEOUT_NS) : status;
        stats_record(&h, stats_tick_end() - tick);
        if (status != HD_OK) {
            return report_check(status, "launch + wait", error);
        }
    }
    *us = stats_summarise(&h).median_ns * 1e-3;
    return true;
}

typedef bool (*measure)(lanes_experiment *x, uint64_t count, double *us, char *error);

/* Both sides once, the driver first in even rounds. */
static bool measure_both(lanes_experiment *x, int round, measure driver, measure heddle, uint64_t count,
                         double *driver_us, double *heddle_us, char *error)
{
    if (round % 2 == 0) {
        return driver(x, count, driver_us, error) && heddle(x, count, heddle_us, error);
    }
    return heddle(x, count, heddle_us, error) && driver(x, count, driver_us, error);
}

/* How many operations fit into `seconds`, both sides having been tried (which warms them up, too). */
static bool size_up(lanes_experiment *x, measure driver, measure heddle, double seconds, uint64_t *count, char *error)
{
    double driver_us = 0, heddle_us = 0;
    if (!measure_both(x, 0, driver, heddle, PROBE, &driver_us, &heddle_us, error)) {
        return false;
    }
    double fit = seconds * 1e6 / (driver_us + heddle_us + 1e-3);
    *count = fit < COUNT_MIN ? COUNT_MIN : fit > COUNT_MAX ? COUNT_MAX : (uint64_t)fit;
    return true;
}

bool lanes_tiny_run(lanes_experiment *x, lanes_part part, double seconds, char *error)
{
    lanes_tiny *t = &x->tiny[part];
    int rounds = x->rounds < ROUNDS_MIN ? ROUNDS_MIN : x->rounds;
    double each = seconds / (2 * rounds);
    if (x->plain[0].context && !PLAIN_TRY(&x->driver, error, cuCtxSetCurrent, (x->plain[0].context))) {
        return false;
    }
    if (!size_up(x, driver_flow, heddle_flow, each, &t->launches, error) ||
        !size_up(x, driver_trips, heddle_trips, each, &t->trips, error)) {
        return false;
    }
    for (int r = 0; r < rounds; r++) {
        if (!measure_both(x, r, driver_flow, heddle_flow, t->launches, &t->driver_launch_us[r], &t->heddle_launch_us[r],
                          error) ||
            !measure_both(x, r, driver_trips, heddle_trips, t->trips, &t->driver_trip_us[r], &t->heddle_trip_us[r],
                          error)) {
            return false;
        }
        t->launch_ratio[r] = t->heddle_launch_us[r] / t->driver_launch_us[r];
        t->trip_ratio[r] = t->heddle_trip_us[r] / t->driver_trip_us[r];
        t->rounds = r + 1;
    }
    return true;
}
