/* trace_cupti.c - device times of a trace with trace_detail=full, beside CUPTI's times of the same
 * kernels.
 *
 * usage: trace_cupti [ROUNDS]      (default: 200)
 *
 * The program submits matrix products to every device while earlier ones run, then each after the
 * end of the one before. Short kernels run both ways, too. For each of these it prints the distance
 * between edges of spans and kernels: the median, and the largest of 99 %. It also counts edges
 * within 2 microseconds.
 * CUPTI makes each driver call longer, also after the point at which the device gets the kernel.
 * Therefore kernels that note the device's timer themselves run first, without CUPTI. That timer
 * uses another zero point, which the median of the ends gives.
 * Built with the headers and the library of the CUDA toolkit: cc trace_cupti.c -Iinclude -Isrc
 * -lheddle -lcupti.
 * Exit status: 0, or 1 if a median is above 2 microseconds, or a kernel is missing. With CUPTI,
 * begins of kernels that run one by one do not count: the device begins before the call returns.
 *
 * Threads: the main one, and CUPTI's threads.
 * Locks: a mutex for CUPTI's reports.
 * Always: CUPTI uses the trace's clock, so its times need no zero point.
 */
#include <cupti.h>
#include <heddle.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "record/format.h"

enum { MOST = 1 << 17, DEVICES = 32, N = 2048, SMALL = 4096, NEAR_NS = 2000 };

typedef struct ran {
    int device;
    double begin, end; /* ns of the clock */
} ran;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ran seen[MOST], spans[MOST];
static double own_end[MOST]; /* end of a span, in the device's own time */
static int n_seen, n_spans;

static void must(hd_status status)
{
    if (status) {
        fprintf(stderr, "trace_cupti: %s\n", hd_message());
        exit(1);
    }
}

/* ---- CUPTI ---- */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records)
{
    *size = 1 << 20;
    *buffer = aligned_alloc(8, *size);
    *records = 0;
}

static void CUPTIAPI take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context;
    (void)stream;
    (void)size;
    CUpti_Activity *a = NULL;
    pthread_mutex_lock(&lock);
    while (cuptiActivityGetNextRecord(buffer, valid, &a) == CUPTI_SUCCESS) {
        if (a->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && n_seen < MOST) {
            const CUpti_ActivityKernel9 *k = (const CUpti_ActivityKernel9 *)a;
            seen[n_seen++] = (ran){(int)k->deviceId, (double)k->start, (double)k->end};
        }
    }
    pthread_mutex_unlock(&lock);
    free(buffer);
}

static void begin_cupti(void)
{
    if (cuptiActivityRegisterTimestampCallback(now) || cuptiActivityRegisterCallbacks(give, take) ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
        fprintf(stderr, "trace_cupti: CUPTI refuses\n");
        exit(1);
    }
}

/* ---- the trace ---- */

typedef struct moment {
    double own, clock;
} moment;

static moment moments[DEVICES][1 << 12];
static int n_moments[DEVICES];

/* Converts a device's own time to the clock: interpolates between two comparisons, and extrapolates
 * from the nearest two. */
static double clock_of(int device, double own)
{
    const moment *m = moments[device];
    int n = n_moments[device], i = 0;
    if (n < 2) {
        return n ? m[0].clock + own - m[0].own : 0;
    }
    while (i < n - 2 && m[i + 1].own < own) {
        i++;
    }
    double rate = (m[i + 1].clock - m[i].clock) / (m[i + 1].own - m[i].own);
    return m[i].clock + (own - m[i].own) * rate;
}

/* when the driver got each span's operation, and when the call returned */
static int64_t given[MOST];
static int64_t given_end[MOST];

static void read_trace(const char *file)
{
    FILE *in = fopen(file, "rb");
    hdi_record r;
    static hdi_record kept[MOST], issues[MOST];
    int n = 0, n_issues = 0;
    while (in && fread(&r, sizeof r, 1, in) == 1) {
        if (r.type == HDI_RECORD_CLOCK) {
            moments[r.device][n_moments[r.device]++] = (moment){(double)r.clock.own, (double)r.time};
            printf("clock of device %d within %lld ns\n", r.device, (long long)r.clock.within);
        } else if (r.type == HDI_RECORD_SPAN && r.span.op == HDI_RECORD_OP_LAUNCH && n < MOST) {
            kept[n++] = r;
        } else if (r.type == HDI_RECORD_ISSUE && n_issues < MOST) {
            issues[n_issues++] = r;
        }
    }
    double rests[DEVICES] = {0}; /* since when each device is idle */
    for (int i = 0, from = 0; i < n; i++) {
        int d = kept[i].device;
        double began = kept[i].span.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK ? (double)kept[i].span.began
                                                                              : clock_of(d, (double)kept[i].span.began);
        own_end[n_spans] = (double)kept[i].span.ended;
        spans[n_spans] = (ran){d, began, clock_of(d, own_end[n_spans])};
        for (int k = 0; k < n_issues; k++) {
            const hdi_record *issue = &issues[(from + k) % n_issues];
            if (issue->issue.lane == kept[i].span.lane && issue->issue.position == kept[i].span.position) {
                given[n_spans] = issue->time;
                given_end[n_spans] = issue->issue.returned;
                from += k;
                /* as in heddle trace: it did not begin before it reached the device */
                bool at_rest = rests[d] < (double)issue->issue.returned;
                double least = at_rest ? (double)issue->issue.returned + kept[i].span.way : (double)issue->time;
                least = least < spans[n_spans].end ? least : spans[n_spans].end;
                spans[n_spans].begin = spans[n_spans].begin < least ? least : spans[n_spans].begin;
                break;
            }
        }
        rests[d] = spans[n_spans++].end;
    }
    fclose(in);
}

/* ---- the comparison ---- */

static int by_end(const void *a, const void *b)
{
    const ran *x = a, *y = b;
    return x->device != y->device ? x->device - y->device : (x->end > y->end) - (x->end < y->end);
}

static double distance(const ran *a, const ran *b)
{
    double d = a->end - b->end;
    return a->device != b->device ? 1e30 : d < 0 ? -d : d;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at_part(double *list, int n, double part)
{
    qsort(list, (size_t)n, sizeof *list, by_size);
    return list[(int)((n - 1) * part)];
}

/* Finds, for each span, the kernel of its device with the nearest end. Returns false if too many
 * differ. */
static bool compare(const char *name, bool begins_count)
{
    static double begins[MOST], ends[MOST], off_begin[MOST], off_end[MOST], calls[MOST], returns[MOST];
    qsort(seen, (size_t)n_seen, sizeof seen[0], by_end);
    for (int i = 0; i < n_spans; i++) {
        int low = 0, high = n_seen - 1;
        while (low < high) {
            int middle = (low + high) / 2;
            if (by_end(&seen[middle], &spans[i]) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        int best = low;
        for (int k = low - 2; k <= low + 2; k++) {
            best = k >= 0 && k < n_seen && distance(&seen[k], &spans[i]) < distance(&seen[best], &spans[i]) ? k : best;
        }
        double b = spans[i].begin - seen[best].begin, e = spans[i].end - seen[best].end;
        begins[i] = b;
        ends[i] = e;
        off_begin[i] = b < 0 ? -b : b;
        off_end[i] = e < 0 ? -e : e;
        calls[i] = seen[best].begin - (double)given[i];
        returns[i] = seen[best].begin - (double)given_end[i];
    }
    int n = n_spans, near_begins = 0, near_ends = 0;
    for (int i = 0; i < n; i++) {
        near_begins += off_begin[i] < NEAR_NS;
        near_ends += off_end[i] < NEAR_NS;
    }
    printf("%-24s %5d spans, %5d kernels. within 2 us: %d begins, %d ends. begin %+6.0f (99 %%: %5.0f) ns, end %+6.0f "
           "(99 %%: %5.0f) ns. 1..99 %%: "
           "begin %+.0f..%+.0f, end %+.0f..%+.0f. the kernel begins %+.0f (%.0f..%.0f) behind the call's begin, %+.0f "
           "(%.0f..%.0f) behind its end\n",
           name, n, n_seen, near_begins, near_ends, at_part(begins, n, 0.5), at_part(off_begin, n, 0.99),
           at_part(ends, n, 0.5), at_part(off_end, n, 0.99), at_part(begins, n, 0.01), at_part(begins, n, 0.99),
           at_part(ends, n, 0.01), at_part(ends, n, 0.99), at_part(calls, n, 0.5), at_part(calls, n, 0.01),
           at_part(calls, n, 0.99), at_part(returns, n, 0.5), at_part(returns, n, 0.01), at_part(returns, n, 0.99));
    return n_seen >= n_spans && n_spans > 0 && at_part(off_end, n, 0.5) < NEAR_NS &&
           (!begins_count || at_part(off_begin, n, 0.5) < NEAR_NS);
}

/* ---- the work ---- */

typedef struct device {
    hd_lane *lane;
    hd_buffer *a, *b, *c;
} device;

static const char stamp_source[] =
    "__device__ unsigned long long timer() {\n"
    "    unsigned long long t;\n"
    "    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(t))\n"
    "    ;\n"
    "    return t;\n"
    "}\n"
    "extern \"C\" __global__ void stamp(unsigned long long *at, unsigned i, unsigned ns) {\n"
    "    unsigned long long begin = timer(), end;\n"
    "    while ((end = timer()) - begin < ns) {}\n"
    "    at[2 * i] = begin;\n"
    "    at[2 * i + 1] = end;\n"
    "}\n";

static hd_kernel *stamp;

static void launch_stamp(const device *d, uint32_t i, bool small, hd_ticket *ticket)
{
    hd_arg arguments[] = {hd_inout(d->c), hd_u32(i), hd_u32(small ? 0 : 400000)};
    must(hd_launch(d->lane, stamp, (hd_dims){1, 1, 1}, (hd_dims){1, 1, 1}, 0, arguments, 3, ticket));
}

/* Converts the times that kernels noted to the trace's clock, as if seen by CUPTI. Spans are in the
 * order of their launches. */
static void read_stamps(const device *devices, int n, int rounds)
{
    static uint64_t at[2 * MOST];
    static double apart[MOST];
    for (int d = 0; d < n; d++) {
        must(hd_read(devices[d].c, 0, at, sizeof at[0] * 2 * (size_t)rounds));
        int k = 0;
        for (int i = 0; i < n_spans && k < rounds; i++) {
            if (spans[i].device == d) {
                apart[k] = own_end[i] - (double)at[2 * k + 1];
                k++;
            }
        }
        double zero = at_part(apart, k, 0.5);
        printf("device %d: its timer's zero point within %.0f ns\n", d,
               (at_part(apart, k, 0.95) - at_part(apart, k, 0.05)) / 2);
        for (int i = 0; i < rounds; i++) {
            seen[n_seen++] = (ran){d, clock_of(d, (double)at[2 * i] + zero), clock_of(d, (double)at[2 * i + 1] + zero)};
        }
    }
}

static void launch(const device *d, hd_kernel *kernel, bool small, hd_ticket *ticket)
{
    uint32_t n = small ? 32 : N;
    hd_dims grid = {(n + 31) / 32, (n + 31) / 32, 1}, block = {32, 32, 1};
    hd_arg arguments[] = {hd_out(d->c), hd_in(d->a), hd_in(d->b), hd_u32(n), hd_u32(n), hd_u32(n)};
    must(hd_launch(d->lane, kernel, grid, block, 0, arguments, 6, ticket));
}

/* kernel NULL: those that note the device's timer */
static bool run(hd_runtime *runtime, device *devices, hd_kernel *kernel, bool small, bool waits, int rounds)
{
    char name[64];
    hd_trace_options options = {.size = sizeof options, .detail = HD_TRACE_FULL};
    int n = hd_device_count(runtime);
    n_seen = n_spans = 0;
    memset(n_moments, 0, sizeof n_moments);
    must(hd_trace_start(runtime, "/tmp/trace_cupti.hdt", &options));
    hd_ticket ticket[DEVICES];
    for (int i = 0; i < rounds; i++) {
        for (int d = 0; d < n; d++) {
            if (kernel) {
                launch(&devices[d], kernel, small, &ticket[d]);
            } else {
                launch_stamp(&devices[d], (uint32_t)i, small, &ticket[d]);
            }
        }
        for (int d = 0; d < n && (waits || i == rounds - 1); d++) {
            must(hd_wait(ticket[d], HD_FOREVER));
        }
    }
    must(hd_trace_stop(runtime, NULL));
    if (kernel) {
        cuptiActivityFlushAll(0);
    }
    read_trace("/tmp/trace_cupti.hdt");
    if (!kernel) {
        read_stamps(devices, n, rounds);
    }
    const char *what = kernel ? small ? "32 cubed" : "2048 cubed" : small ? "no CUPTI, short" : "no CUPTI, 400 us";
    snprintf(name, sizeof name, "%s, %s", what, waits ? "one by one" : "ahead");
    return compare(name, !kernel || !waits);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    hd_runtime *runtime;
    hd_module *builtin;
    hd_kernel *kernel;
    static device devices[DEVICES];
    must(hd_open(NULL, &runtime));
    must(hd_module_get_builtin(runtime, &builtin));
    must(hd_kernel_get(builtin, "hd_matmul_f32", &kernel));
    for (int d = 0; d < hd_device_count(runtime); d++) {
        size_t bytes = (size_t)N * N * sizeof(float);
        must(hd_lane_create(runtime, d, &devices[d].lane));
        must(hd_alloc(devices[d].lane, bytes, &devices[d].a));
        must(hd_alloc(devices[d].lane, bytes, &devices[d].b));
        must(hd_alloc(devices[d].lane, bytes, &devices[d].c));
        must(hd_fill(devices[d].a, 0, 0, bytes, NULL));
        must(hd_fill(devices[d].b, 0, 0, bytes, NULL));
        hd_ticket ticket;
        launch(&devices[d], kernel, false, &ticket);
        must(hd_wait(ticket, HD_FOREVER));
    }
    hd_module *stamps;
    must(hd_module_compile(runtime, stamp_source, NULL, &stamps));
    must(hd_kernel_get(stamps, "stamp", &stamp));
    for (int d = 0; d < hd_device_count(runtime); d++) {
        hd_ticket ticket;
        launch_stamp(&devices[d], 0, true, &ticket);
        must(hd_wait(ticket, HD_FOREVER));
    }
    bool good = true;
    for (int i = 0; i < 4; i++) {
        good &= run(runtime, devices, NULL, i >= 2, i % 2 != 0, rounds);
    }
    begin_cupti();
    for (int i = 0; i < 4; i++) {
        good &= run(runtime, devices, kernel, i >= 2, i % 2 != 0, rounds);
    }
    must(hd_close(runtime));
    return good ? 0 : 1;
}
