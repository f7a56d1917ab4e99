/* sample.c - copies behind a gate, timed by device events; dependent loads.
 *
 * Threads: the conductor. Locks: none.
 * Always: if anything fails while streams wait at the gate, the gate is opened. Memory and events
 * are released only after the streams have ended. Before a sample counts, the owner of the
 * destination compares the copied bytes. If the destination is pinned memory, the copying device
 * compares them.
 *
 * A sample follows nvbandwidth (v0.8, memcpy.cpp, MemcpyOperation::doMemcpyCore). Each stream runs,
 * in this order:
 *   - a kernel that holds the stream back until everything is submitted
 *   - P2P_WARM copies
 *   - an event, for which the other streams also wait
 *   - P2P_COPIES copies
 *   - an event
 * The result of a sample is the time between the two events of a stream. The result of a job is the
 * median of its samples.
 */
#include <math.h>
#include <string.h>
#include "cli/p2p/parts.h"

enum { CHAIN_WORD = 8 };

/* nvbandwidth gives up after 10 s (kernels.cuh). A GPU reads the gate across the bus in about a
 * microsecond, a CPU in a few nanoseconds. */
static const uint64_t looks_gpu = (uint64_t)1 << 23, looks_host = (uint64_t)1 << 33;

/* Returns the bytes that a copy moves. Each thread of a kernel moves the same number of 16-byte
 * elements, unless the buffer is small. nvbandwidth: memcpy.cpp,
 * MemcpyInitiatorSM::getAdjustedCopySize. */
static size_t p2p_sample_moved_bytes(const p2p_experiment *x, const p2p_job *job)
{
    size_t bytes = job->dst->bytes < job->src->bytes ? job->dst->bytes : job->src->bytes;
    size_t even = (size_t)x->devices[job->on].multiprocessors * P2P_BLOCK * 16;
    if (!job->by_kernel) {
        return bytes;
    }
    return bytes < P2P_SMALL_MIB * P2P_MIB ? bytes / 16 * 16 : bytes / even * even;
}

static bool p2p_sample_submit_copies(p2p_experiment *x, const p2p_job *job, hdcu_stream stream, int count, char *error)
{
    const p2p_device *p = &x->devices[job->on];
    size_t bytes = p2p_sample_moved_bytes(x, job);
    if (job->by_kernel) { /* one launch with that many loops */
        hdcu_deviceptr dst = job->dst->address, src = job->src->address;
        uint64_t n = bytes / 16;
        uint32_t loops = (uint32_t)count;
        void *parameters[4] = {&dst, &src, &n, &loops};
        return P2P_TRY(x, error, cuLaunchKernel,
                       (p->copy, p->multiprocessors, 1, 1, P2P_BLOCK, 1, 1, 0, stream, parameters, NULL));
    }
    for (int i = 0; i < count; i++) {
        if (!P2P_TRY(x, error, cuMemcpyAsync, (job->dst->address, job->src->address, bytes, stream))) {
            return false;
        }
    }
    return true;
}

/* Jobs on one device use a stream each. */
static int p2p_sample_stream_of(const p2p_job *jobs, int i)
{
    int stream = 0;
    for (int k = 0; k < i; k++) {
        stream += jobs[k].on == jobs[i].on;
    }
    return stream;
}

static bool p2p_sample_submit(p2p_experiment *x, const p2p_job *jobs, int n, char *error)
{
    uint64_t looks = x->on_host ? looks_host : looks_gpu;
    void *gate[2] = {&x->gate_address, &looks};
    hdcu_event first = x->devices[jobs[0].on].start[0];
    for (int i = 0; i < n; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        hdcu_stream stream = p->stream[p2p_sample_stream_of(jobs, i)];
        if (!p2p_enter(x, jobs[i].on, error) ||
            !P2P_TRY(x, error, cuLaunchKernel, (p->gate, 1, 1, 1, 1, 1, 1, 0, stream, gate, NULL)) ||
            !p2p_sample_submit_copies(x, &jobs[i], stream, x->warm, error)) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        int s = p2p_sample_stream_of(jobs, i);
        if (!p2p_enter(x, jobs[i].on, error) ||
            (i > 0 && !P2P_TRY(x, error, cuStreamWaitEvent, (p->stream[s], first, 0))) ||
            !P2P_TRY(x, error, cuEventRecord, (p->start[s], p->stream[s]))) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        int s = p2p_sample_stream_of(jobs, i);
        if (!p2p_enter(x, jobs[i].on, error) ||
            !p2p_sample_submit_copies(x, &jobs[i], p->stream[s], x->copies, error) ||
            !P2P_TRY(x, error, cuEventRecord, (p->end[s], p->stream[s]))) {
            return false;
        }
    }
    return true;
}

static bool p2p_sample_wait_for_all(p2p_experiment *x, const p2p_job *jobs, int n, char *error)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        ok = P2P_TRY(x, error, cuStreamSynchronize, (x->devices[jobs[i].on].stream[p2p_sample_stream_of(jobs, i)])) &&
             ok;
    }
    return ok;
}

/* The device whose kernels fill and compare memory: the owner of the memory, or for pinned memory
 * the copying device. */
static int p2p_sample_keeper_of(const p2p_memory *m, const p2p_job *job)
{
    return m->device >= 0 ? m->device : job->on;
}

static uint32_t p2p_sample_seed_of(int job)
{
    return 0x51ed2700u + (uint32_t)job;
}

static bool p2p_sample_fill_all(p2p_experiment *x, const p2p_job *jobs, int n, char *error)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        size_t bytes = p2p_sample_moved_bytes(x, &jobs[i]);
        ok = p2p_fill(x, p2p_sample_keeper_of(jobs[i].dst, &jobs[i]), jobs[i].dst, bytes, ~p2p_sample_seed_of(i),
                      error) &&
             p2p_fill(x, p2p_sample_keeper_of(jobs[i].src, &jobs[i]), jobs[i].src, bytes, p2p_sample_seed_of(i), error);
    }
    return ok;
}

/* Sets right[i] to false if a job's destination differs from its source. */
static bool p2p_sample_compare_all(p2p_experiment *x, const char *what, const p2p_job *jobs, int n, bool *right,
                                   char *error)
{
    for (int i = 0; i < n; i++) {
        uint64_t wrong = 0;
        size_t bytes = p2p_sample_moved_bytes(x, &jobs[i]);
        if (!p2p_compare(x, p2p_sample_keeper_of(jobs[i].dst, &jobs[i]), jobs[i].dst, bytes, p2p_sample_seed_of(i),
                         &wrong, error)) {
            return false;
        }
        x->checked++;
        if (wrong && right[i]) {
            x->wrong++;
            right[i] = false;
            p2p_note(x, "%s: %llu of %llu words did not arrive as they were sent", what, (unsigned long long)wrong,
                     (unsigned long long)bytes / 4);
        }
    }
    return true;
}

static bool p2p_sample_take_one(p2p_experiment *x, const p2p_job *jobs, int n, double *out, char *error)
{
    volatile uint32_t *gate = x->gate;
    char later[PLAIN_ERROR];
    gate[0] = gate[1] = 0;
    bool ok = p2p_sample_submit(x, jobs, n, error);
    __atomic_store_n(&x->gate[0], 1, __ATOMIC_RELEASE);
    ok = p2p_sample_wait_for_all(x, jobs, n, ok ? error : later) && ok;
    if (ok && gate[1]) {
        snprintf(error, PLAIN_ERROR, "a stream began before everything was submitted");
        ok = false;
    }
    for (int i = 0; i < n && ok; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        int s = p2p_sample_stream_of(jobs, i);
        float ms = 0;
        ok = P2P_TRY(x, error, cuEventElapsedTime, (&ms, p->start[s], p->end[s]));
        out[i] = ms > 0 ? (double)p2p_sample_moved_bytes(x, &jobs[i]) * x->copies / ((double)ms * 1e6) : NAN;
    }
    return ok;
}

bool p2p_measure(p2p_experiment *x, const char *what, const p2p_job *jobs, int n, double *out, char *error)
{
    double samples[P2P_JOBS_MAX][P2P_SAMPLES_MAX];
    bool right[P2P_JOBS_MAX], ok = true;
    for (int i = 0; i < n; i++) {
        right[i] = true;
    }
    for (int k = 0; k < x->samples && ok; k++) {
        double values[P2P_JOBS_MAX];
        ok = p2p_sample_fill_all(x, jobs, n, error) && p2p_sample_take_one(x, jobs, n, values, error) &&
             p2p_sample_compare_all(x, what, jobs, n, right, error);
        for (int i = 0; i < n && ok; i++) {
            samples[i][k] = values[i];
        }
    }
    for (int i = 0; i < n; i++) {
        out[i] = ok && right[i] ? cli_stats_spread_of(samples[i], x->samples).median : NAN;
    }
    return ok;
}

/* ---- chains ---- */

/* nvbandwidth (testcase.cpp, latencyHelper): each word holds the address 128 bytes further on,
 * and the last ones point to the start. */
static bool p2p_sample_write_chain(p2p_experiment *x, int device, const p2p_memory *m, char *error)
{
    static uint64_t words[P2P_CHAIN_BYTES / CHAIN_WORD];
    for (uint64_t i = 0; i < P2P_CHAIN_BYTES; i += CHAIN_WORD) {
        words[i / CHAIN_WORD] = m->address + (i + P2P_CHAIN_STEP) % P2P_CHAIN_BYTES;
    }
    if (m->host) {
        memcpy(m->host, words, sizeof(words));
        return true;
    }
    return p2p_enter(x, m->device, error) && P2P_TRY(x, error, cuMemcpyHtoD, (m->address, words, sizeof(words))) &&
           P2P_TRY(x, error, cuStreamSynchronize, (NULL)) && p2p_enter(x, device, error);
}

/* nvbandwidth (kernels.cu, latencyPtrChaseKernel): the multiprocessors take turns, each with a
 * share of the loads. The time includes launches. The number of multiprocessors is that of the
 * first device (memcpy.cpp, MemPtrChaseOperation). */
bool p2p_chase(p2p_experiment *x, const char *what, int device, const p2p_memory *m, double *out, char *error)
{
    p2p_device *p = &x->devices[device];
    uint32_t processors = x->devices[0].multiprocessors, loads = P2P_CHAIN_LOADS / processors;
    uint64_t expected = m->address + (uint64_t)loads * P2P_CHAIN_STEP % P2P_CHAIN_BYTES, reached = 0;
    double ms_all = 0;
    *out = NAN;
    if (!p2p_enter(x, device, error) || !p2p_sample_write_chain(x, device, m, error)) {
        return false;
    }
    for (uint32_t block = 0; block < processors; block++) {
        void *parameters[4] = {&p->count, (void *)&m->address, &loads, &block};
        float ms = 0;
        if (!P2P_TRY(x, error, cuEventRecord, (p->start[0], p->stream[0])) ||
            !P2P_TRY(x, error, cuLaunchKernel,
                     (p->chase, processors, 1, 1, 1, 1, 1, 0, p->stream[0], parameters, NULL)) ||
            !P2P_TRY(x, error, cuEventRecord, (p->end[0], p->stream[0])) ||
            !P2P_TRY(x, error, cuStreamSynchronize, (p->stream[0])) ||
            !P2P_TRY(x, error, cuEventElapsedTime, (&ms, p->start[0], p->end[0]))) {
            return false;
        }
        ms_all += (double)ms;
    }
    if (!P2P_TRY(x, error, cuMemcpyDtoH, (&reached, p->count, sizeof(reached)))) {
        return false;
    }
    x->checked++;
    if (reached != expected) {
        x->wrong++;
        p2p_note(x, "%s: a chain of loads ended at the wrong address", what);
        return true;
    }
    *out = ms_all * 1e6 / P2P_CHAIN_LOADS;
    return true;
}
