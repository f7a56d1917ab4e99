/* sample.c - copies behind a gate, timed by events on the devices; loads that follow each other.
 *
 * Threads: the conductor's. Locks: none.
 * Always: whatever fails while streams wait at the gate, the gate is opened. The streams are waited for before anything is given
 * back. Before a sample counts, the device that owns the destination compares what was copied; for pinned memory, the one that copied.
 *
 * A sample is nvbandwidth's (v0.8, memcpy.cpp, MemcpyOperation::doMemcpyCore). In each stream are, in this order:
 *   - a kernel that holds the stream back until everything is submitted
 *   - P2P_WARM copies
 *   - an event, for which the other streams wait, too
 *   - P2P_COPIES copies
 *   - an event
 * What counts is the time between the two events of a stream, and of the samples the median.
 */
#include <math.h>
#include <string.h>
#include "cli/p2p/parts.h"

enum { CHAIN_WORD = 8 };

/* nvbandwidth gives up after 10 s (kernels.cuh). A GPU's look is a read across the bus and takes about a microsecond, a CPU's some
 * nanoseconds. */
static const uint64_t looks_gpu = (uint64_t)1 << 23, looks_host = (uint64_t)1 << 33;

/* The bytes that a copy moves. A kernel moves the same number of 16-byte elements with each thread, unless the buffer is small.
 * nvbandwidth: memcpy.cpp, MemcpyInitiatorSM::getAdjustedCopySize. */
static size_t moved_bytes(const p2p_experiment *x, const p2p_job *job)
{
    size_t bytes = job->dst->bytes < job->src->bytes ? job->dst->bytes : job->src->bytes;
    size_t even = (size_t)x->devices[job->on].multiprocessors * P2P_BLOCK * 16;
    if (!job->by_kernel) {
        return bytes;
    }
    return bytes < P2P_SMALL_MIB * P2P_MIB ? bytes / 16 * 16 : bytes / even * even;
}

static bool submit_copies(p2p_experiment *x, const p2p_job *job, hdcu_stream stream, int count, char *error)
{
    const p2p_device *p = &x->devices[job->on];
    size_t bytes = moved_bytes(x, job);
    if (job->by_kernel) { /* one launch that copies so many times */
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

/* Jobs on one device have a stream each. */
static int stream_of(const p2p_job *jobs, int i)
{
    int stream = 0;
    for (int k = 0; k < i; k++) {
        stream += jobs[k].on == jobs[i].on;
    }
    return stream;
}

static bool submit_sample(p2p_experiment *x, const p2p_job *jobs, int n, char *error)
{
    uint64_t looks = x->on_host ? looks_host : looks_gpu;
    void *gate[2] = {&x->gate_address, &looks};
    hdcu_event first = x->devices[jobs[0].on].start[0];
    for (int i = 0; i < n; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        hdcu_stream stream = p->stream[stream_of(jobs, i)];
        if (!p2p_enter(x, jobs[i].on, error) ||
            !P2P_TRY(x, error, cuLaunchKernel, (p->gate, 1, 1, 1, 1, 1, 1, 0, stream, gate, NULL)) ||
            !submit_copies(x, &jobs[i], stream, x->warm, error)) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        int s = stream_of(jobs, i);
        if (!p2p_enter(x, jobs[i].on, error) ||
            (i > 0 && !P2P_TRY(x, error, cuStreamWaitEvent, (p->stream[s], first, 0))) ||
            !P2P_TRY(x, error, cuEventRecord, (p->start[s], p->stream[s]))) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        int s = stream_of(jobs, i);
        if (!p2p_enter(x, jobs[i].on, error) || !submit_copies(x, &jobs[i], p->stream[s], x->copies, error) ||
            !P2P_TRY(x, error, cuEventRecord, (p->end[s], p->stream[s]))) {
            return false;
        }
    }
    return true;
}

static bool wait_for_all(p2p_experiment *x, const p2p_job *jobs, int n, char *error)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        ok = P2P_TRY(x, error, cuStreamSynchronize, (x->devices[jobs[i].on].stream[stream_of(jobs, i)])) && ok;
    }
    return ok;
}

/* The device whose kernels fill and compare memory: its owner, or for pinned memory the one that copies. */
static int keeper_of(const p2p_memory *m, const p2p_job *job)
{
    return m->device >= 0 ? m->device : job->on;
}

static uint32_t seed_of(int job)
{
    return 0x51ed2700u + (uint32_t)job;
}

static bool fill_all(p2p_experiment *x, const p2p_job *jobs, int n, char *error)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        size_t bytes = moved_bytes(x, &jobs[i]);
        ok = p2p_fill(x, keeper_of(jobs[i].dst, &jobs[i]), jobs[i].dst, bytes, ~seed_of(i), error) &&
             p2p_fill(x, keeper_of(jobs[i].src, &jobs[i]), jobs[i].src, bytes, seed_of(i), error);
    }
    return ok;
}

/* Sets right[i] to false where the destination of a job is not what its source was. */
static bool compare_all(p2p_experiment *x, const char *what, const p2p_job *jobs, int n, bool *right, char *error)
{
    for (int i = 0; i < n; i++) {
        uint64_t wrong = 0;
        size_t bytes = moved_bytes(x, &jobs[i]);
        if (!p2p_compare(x, keeper_of(jobs[i].dst, &jobs[i]), jobs[i].dst, bytes, seed_of(i), &wrong, error)) {
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

static bool one_sample(p2p_experiment *x, const p2p_job *jobs, int n, double *out, char *error)
{
    volatile uint32_t *gate = x->gate;
    char later[PLAIN_ERROR];
    gate[0] = gate[1] = 0;
    bool ok = submit_sample(x, jobs, n, error);
    __atomic_store_n(&x->gate[0], 1, __ATOMIC_RELEASE);
    ok = wait_for_all(x, jobs, n, ok ? error : later) && ok;
    if (ok && gate[1]) {
        snprintf(error, PLAIN_ERROR, "a stream began before everything was submitted");
        ok = false;
    }
    for (int i = 0; i < n && ok; i++) {
        const p2p_device *p = &x->devices[jobs[i].on];
        int s = stream_of(jobs, i);
        float ms = 0;
        ok = P2P_TRY(x, error, cuEventElapsedTime, (&ms, p->start[s], p->end[s]));
        out[i] = ms > 0 ? (double)moved_bytes(x, &jobs[i]) * x->copies / ((double)ms * 1e6) : NAN;
    }
    return ok;
}

bool p2p_measure(p2p_experiment *x, const char *what, const p2p_job *jobs, int n, double *out, char *error)
{
    double samples[P2P_JOBS_MAX][P2P_SAMPLES_MAX];
    bool right[P2P_JOBS_MAX] = {true, true}, ok = true;
    for (int k = 0; k < x->samples && ok; k++) {
        double values[P2P_JOBS_MAX];
        ok = fill_all(x, jobs, n, error) && one_sample(x, jobs, n, values, error) &&
             compare_all(x, what, jobs, n, right, error);
        for (int i = 0; i < n && ok; i++) {
            samples[i][k] = values[i];
        }
    }
    for (int i = 0; i < n; i++) {
        out[i] = ok && right[i] ? stats_spread_of(samples[i], x->samples).median : NAN;
    }
    return ok;
}

/* ------------------------------------------------------------------------------------------------------- chains -- */

/* nvbandwidth (testcase.cpp, latencyHelper): each word has the address of the one 128 bytes on, the last ones those at the beginning. */
static bool write_chain(p2p_experiment *x, int device, const p2p_memory *m, char *error)
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

/* nvbandwidth (kernels.cu, latencyPtrChaseKernel): the loads are shared among the multiprocessors, which take turns; launches count. Which
 * number of multiprocessors it goes by is that of the first device (memcpy.cpp, MemPtrChaseOperation). */
bool p2p_chase(p2p_experiment *x, const char *what, int device, const p2p_memory *m, double *out, char *error)
{
    p2p_device *p = &x->devices[device];
    uint32_t processors = x->devices[0].multiprocessors, loads = P2P_CHAIN_LOADS / processors;
    uint64_t expected = m->address + (uint64_t)loads * P2P_CHAIN_STEP % P2P_CHAIN_BYTES, reached = 0;
    double ms_all = 0;
    *out = NAN;
    if (!p2p_enter(x, device, error) || !write_chain(x, device, m, error)) {
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
