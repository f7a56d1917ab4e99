/* kernel_time.c - how long the kernels of a lane take.
 *
 * Method, Threads, Locks, Always: see kernel_time.h.
 */
#include "engine/kernel_time.h"

/* From the return of a call until a completion write behind the shortest kernel is seen. Measured with 580.159 on H200:
 * 4.3 us, of which 1.2 are the kernel's. Not subtracted where few launches would share it: where the delay is shorter
 * they would seem faster than they are. */
#define SEEN_NS 3000

/* A signal costs as much as filling half a chain. Behind a single launch it has little value. */
#define ASKED_LEAST 4
#define ASKED_EVERY_NS 200000

void hdi_kernel_time_give(hdi_kernel_time *timing, uint32_t launches, int64_t before, int64_t behind)
{
    hdi_kernel_time_signal *next = &timing->next;
    if (launches == 0) {
        next->others = true;
        return;
    }
    next->since = next->since ? next->since : before;
    next->batches[timing->next_batch++ % HDI_KERNEL_TIME_BATCHES] =
        (hdi_kernel_time_batch){.before = next->launches, .given = behind};
    next->launches += launches;
}

bool hdi_kernel_time_wants_signal(hdi_kernel_time *timing, uint32_t launches, uint32_t most, int64_t now)
{
    if (launches < ASKED_LEAST || 2 * timing->kernel_ns * most <= HDI_KERNEL_TIME_SPAN_NS ||
        now - timing->asked_at < ASKED_EVERY_NS) {
        return false;
    }
    timing->asked_at = now;
    return true;
}

void hdi_kernel_time_put_signal(hdi_kernel_time *timing, hdi_kernel_time_signal *signal)
{
    *signal = timing->next;
    timing->next.since = 0;
    timing->next.others = false;
}

/* The most that a launch takes, in a stretch of so many. */
static int64_t each_of(int64_t from, int64_t to, uint64_t launches)
{
    return to > from ? (to - from) / (int64_t)launches + 1 : 1;
}

/* The least time of the stretches that end at the signal. */
static int64_t least_of(const hdi_kernel_time *timing, int64_t since, const hdi_kernel_time_signal *signal,
                        int64_t seen)
{
    int64_t from = since > timing->passed_at ? since : timing->passed_at;
    int64_t least = each_of(from, seen, signal->launches - timing->passed);
    for (int i = 0; i < HDI_KERNEL_TIME_BATCHES; i++) {
        const hdi_kernel_time_batch *b = &signal->batches[i];
        if (b->given && b->before >= timing->passed) {
            uint64_t launches = signal->launches - b->before;
            int64_t each = each_of(b->given + (launches < ASKED_LEAST ? 0 : SEEN_NS), seen, launches);
            least = each < least ? each : least;
        }
    }
    return least;
}

void hdi_kernel_time_pass(hdi_kernel_time *timing, const hdi_kernel_time_signal *first,
                          const hdi_kernel_time_signal *last, bool others, int64_t now)
{
    if (!others && last->launches > timing->passed) {
        int64_t each = least_of(timing, first->since, last, now);
        int64_t old = timing->kernel_ns ? timing->kernel_ns : each;
        /* All estimates are too high rather than too low, so a lower one counts more. Yet a much longer time counts
         * soon. */
        timing->kernel_ns = each < old       ? (old + 3 * each) / 4
                            : each > 2 * old ? (old + each) / 2
                                             : (3 * old + each) / 4;
    }
    timing->passed = last->launches;
    timing->passed_at = now;
}
