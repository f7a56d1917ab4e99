/* kernel_time.c - see kernel_time.h for threads, locks and invariants. */
#include "engine/kernel_time.h"
#include "engine/stream.h"

/* A launch of a kernel that runs longer than this gets a signal in front of it and one behind it.
 * Compared with that time, the cost of the signals is negligible. */
#define LASTING_NS 1000000

/* The time from the return of a call until the engine sees a completion write, without the kernel's
 * own time. With driver 580.159 on an H200, the completion write behind the shortest kernel came
 * after 4.3 us, of which the kernel itself takes 1.2 us. If a stretch has few launches, the engine
 * does not subtract this time. Otherwise the kernels would seem too fast whenever the real delay is
 * shorter. */
#define SEEN_NS 3000

/* The fewest launches behind which the engine puts a signal only for the timing. A signal costs as
 * much as to fill half a chain. Behind fewer launches, the measured time is too inexact to be worth
 * this cost. */
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

/* The average time of a launch in a stretch with this many launches. Adds one nanosecond, so that
 * the result is never 0. */
static int64_t kernel_time_of_each(int64_t from, int64_t to, uint64_t launches)
{
    return to > from ? (to - from) / (int64_t)launches + 1 : 1;
}

/* Several stretches of launches end at the signal. Returns the smallest of their average times for
 * each launch. */
static int64_t kernel_time_least(const hdi_kernel_time *timing, int64_t since, const hdi_kernel_time_signal *signal,
                                 int64_t seen)
{
    int64_t from = since > timing->passed_at ? since : timing->passed_at;
    int64_t least = kernel_time_of_each(from, seen, signal->launches - timing->passed);
    for (int i = 0; i < HDI_KERNEL_TIME_BATCHES; i++) {
        const hdi_kernel_time_batch *b = &signal->batches[i];
        if (b->given && b->before >= timing->passed) {
            uint64_t launches = signal->launches - b->before;
            int64_t each = kernel_time_of_each(b->given + (launches < ASKED_LEAST ? 0 : SEEN_NS), seen, launches);
            least = each < least ? each : least;
        }
    }
    return least;
}

void hdi_kernel_time_pass(hdi_kernel_time *timing, const hdi_kernel_time_signal *first,
                          const hdi_kernel_time_signal *last, bool others, int64_t now)
{
    if (!others && last->launches > timing->passed) {
        int64_t each = kernel_time_least(timing, first->since, last, now);
        int64_t old = timing->kernel_ns ? timing->kernel_ns : each;
        /* A measured time is more likely too high than too low, so a lower time changes the
         * estimate more. But if kernels get much longer, the estimate soon follows. */
        timing->kernel_ns = each < old       ? (old + 3 * each) / 4
                            : each > 2 * old ? (old + each) / 2
                                             : (3 * old + each) / 4;
    }
    timing->passed = last->launches;
    timing->passed_at = now;
}

void hdi_kernel_time_note(hdi_stream *stream, uint32_t kernel, uint64_t from, uint64_t position)
{
    if (stream->n_new < HDI_STREAM_NEW) {
        stream->new_kernels[stream->n_new].kernel = kernel;
        stream->new_kernels[stream->n_new].from = from;
        stream->new_kernels[stream->n_new].position = position;
        stream->new_kernels[stream->n_new].begun = 0;
        stream->n_new++;
    }
}

/* Records that a launch between two signals ran for `ns` nanoseconds. */
static void kernel_time_record(hdi_engine *engine, uint32_t kernel, int64_t ns)
{
    uint64_t bit = (uint64_t)1 << kernel % 64;
    uint32_t word = kernel / 64 % HDI_KERNEL_WORDS;
    if (hdi_chain_is_new(engine, kernel)) {
        atomic_fetch_or_explicit(&engine->seen_to_end[word], bit, memory_order_relaxed);
    }
    bool lasting = atomic_load_explicit(&engine->lasting[word], memory_order_relaxed) & bit;
    if (lasting != (ns > LASTING_NS)) {
        atomic_fetch_xor_explicit(&engine->lasting[word], bit, memory_order_relaxed);
    }
}

void hdi_kernel_time_learn(hdi_engine *engine, hdi_stream *stream)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < stream->n_new; i++) {
        int64_t begun = stream->new_kernels[i].begun;
        if (stream->new_kernels[i].position <= stream->passed) {
            kernel_time_record(engine, stream->new_kernels[i].kernel, begun ? engine->now - begun : 0);
        } else {
            bool begins = begun == 0 && stream->new_kernels[i].from <= stream->passed;
            stream->new_kernels[left] = stream->new_kernels[i];
            stream->new_kernels[left++].begun = begins ? engine->now : begun;
        }
    }
    stream->n_new = left;
}
