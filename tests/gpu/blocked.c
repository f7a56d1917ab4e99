/* blocked.c - transfers of 4 KiB beside 1, 4, 32 and 100 copies that wait for a kernel, or for a
 * claim, which the program ends.
 *
 * usage: blocked PLACEMENT [KERNELS]
 *
 * KERNELS, for host devices, is the kernel file of this program's source, which --source prints.
 *
 * The waiting copies are of all kinds: between memories, on the device, fills, boxes, tensors, and
 * copies to another device if there is one. Beside them, each kind of transfer that uses none of
 * their bytes runs until it is done. First the thread that submitted the copies makes it, then
 * another one. For each the program prints a JSON line: the medians alone and beside them, in
 * nanoseconds, and the ratio.
 * Exit status: 0, or 1 if a transfer did not end while the others waited (transfer_timeout), or
 * moved wrong bytes. No time is a failure: `heddle bench submit` measures times.
 *
 * Threads: the main one, and one that makes transfers. They alternate. Locks: none.
 * Always: the kernel or the claim is still held after the last transfer.
 */
#include <heddle.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096, MOST = 100, ROUNDS = 15, WAYS = 9 };

static const char source[] = "#include <heddle/kernel.h>\n"
                             "HD_KERNEL(hold, HD_VALUE(uint64_t, flag), HD_INOUT(uint32_t, y))\n"
                             "{\n"
                             "    volatile const uint32_t *word = (volatile const uint32_t *)(uintptr_t)flag;\n"
                             "    while (*word == 0) {\n"
                             "    }\n"
                             "    y[0] += 1;\n"
                             "}\n";

static const char ptx[] = ".version 6.3\n"
                          ".target sm_70\n"
                          ".address_size 64\n"
                          ".visible .entry hold(.param .u64 hold_0, .param .u64 hold_1)\n"
                          "{\n"
                          "    .reg .pred %p<2>;\n"
                          "    .reg .b32 %r<3>;\n"
                          "    .reg .b64 %rd<3>;\n"
                          "    ld.param.u64 %rd1, [hold_0];\n"
                          "    ld.param.u64 %rd2, [hold_1];\n"
                          "again:\n"
                          "    ld.volatile.u32 %r1, [%rd1];\n"
                          "    setp.eq.u32 %p1, %r1, 0;\n"
                          "    @%p1 bra again;\n"
                          "    ld.u32 %r2, [%rd2];\n"
                          "    add.u32 %r2, %r2, 1;\n"
                          "    st.u32 [%rd2], %r2;\n"
                          "    ret;\n"
                          "}\n";

static hd_runtime *runtime;
static hd_kernel *hold;
static hd_lane *lane;
static hd_buffer *flag, *held, *host_held, *on_device, *on_host, *source_device, *source_host, *peer, *peer_held;
static uint8_t memory[BYTES], pattern[BYTES];
static atomic_bool failed;

#define MUST(call) must((call), #call, __LINE__)

static void must(hd_status status, const char *call, int line)
{
    if (status) {
        fprintf(stderr, "blocked: line %d: %s: %s\n", line, call, hd_message());
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static hd_box rows(void)
{
    return (hd_box){
        .size = sizeof(hd_box), .row = 64, .dims = 1, .count = {BYTES / 128}, .dst_stride = {128}, .src_stride = {128}};
}

static void turned(hd_buffer *buffer, size_t offset, hd_tensor *out)
{
    const uint64_t shape[2] = {32, 32};
    MUST(hd_tensor_make(buffer, offset, HD_TYPE_F32, 2, shape, out));
    MUST(hd_tensor_transpose(out, 0, 1, out));
}

static void straight(hd_buffer *buffer, size_t offset, hd_tensor *out)
{
    const uint64_t shape[2] = {32, 32};
    MUST(hd_tensor_make(buffer, offset, HD_TYPE_F32, 2, shape, out));
}

/* ---- the waiting copies ---- */

static hd_status submit_waiting(int i, hd_ticket *out)
{
    size_t at = (size_t)i * BYTES;
    hd_box box = rows();
    hd_tensor x, y;
    switch (i % 7) {
    case 0:
        return hd_copy(host_held, at, held, at, BYTES, out);
    case 1:
        return hd_copy(held, at, source_host, 0, BYTES, out);
    case 2:
        return hd_copy(held, at, source_device, 0, BYTES, out);
    case 3:
        return hd_fill(held, at, 3, BYTES, out);
    case 4:
        return hd_copy_box(held, at, source_host, 0, &box, out);
    case 5:
        straight(held, at, &x);
        turned(source_device, 0, &y);
        return hd_tensor_copy(&x, &y, out);
    default:
        return hd_copy(peer ? peer_held : host_held, at, held, at, BYTES, out);
    }
}

/* ---- the transfers that wait for nothing ---- */

static const char *const way_names[WAYS] = {"read", "write", "to device", "to host", "on device",
                                            "fill", "box",   "tensor",    "peer"};

static hd_status awaited(hd_status status, hd_ticket ticket)
{
    return status ? status : hd_wait(ticket, INT64_C(20000000000));
}

static hd_status transfer(int way)
{
    hd_ticket t = {NULL, 0};
    hd_box box = rows();
    hd_tensor x, y;
    hd_status status;
    switch (way) {
    case 0:
        return hd_read(source_device, 0, memory, BYTES);
    case 1:
        status = hd_write(on_device, 0, pattern, BYTES);
        return status ? status : hd_buffer_wait(on_device, HD_READ, INT64_C(20000000000));
    case 2:
        return awaited(hd_copy(on_device, 0, source_host, 0, BYTES, &t), t);
    case 3:
        return awaited(hd_copy(on_host, 0, source_device, 0, BYTES, &t), t);
    case 4:
        return awaited(hd_copy(on_device, 0, source_device, 0, BYTES, &t), t);
    case 5:
        return awaited(hd_fill(on_device, 0, 5, BYTES, &t), t);
    case 6:
        return hd_read_box(source_device, 0, memory, &box);
    case 7:
        straight(on_device, 0, &x);
        turned(source_device, 0, &y);
        return awaited(hd_tensor_copy(&x, &y, &t), t);
    default:
        return awaited(hd_copy(peer, 0, source_device, 0, BYTES, &t), t);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct measured {
    double ns[WAYS]; /* medians */
} measured;

static void *measure(void *argument)
{
    measured *m = argument;
    for (int way = 0; way < (peer ? WAYS : WAYS - 1); way++) {
        double took[ROUNDS];
        for (int i = 0; i < ROUNDS && !failed; i++) {
            double begin = now();
            if (transfer(way)) {
                fprintf(stderr, "blocked: %s: %s\n", way_names[way], hd_message());
                failed = true;
            }
            took[i] = now() - begin;
        }
        if (failed) {
            return NULL;
        }
        qsort(took, ROUNDS, sizeof took[0], by_size);
        m->ns[way] = took[ROUNDS / 2];
        if ((way == 0 || way == 6) && memcmp(memory, pattern, 64) != 0) {
            fprintf(stderr, "blocked: %s: wrong bytes\n", way_names[way]);
            failed = true;
        }
    }
    return NULL;
}

static void report(const char *placement, const char *by, int waiting, const char *thread, const measured *alone,
                   const measured *m)
{
    for (int way = 0; way < (peer ? WAYS : WAYS - 1) && !failed; way++) {
        printf("{\"placement\": \"%s\", \"held\": \"%s\", \"waiting\": %d, \"thread\": \"%s\", \"transfer\": \"%s\", "
               "\"alone_ns\": %.0f, \"beside_ns\": %.0f, \"ratio\": %.2f}\n",
               placement, by, waiting, thread, way_names[way], alone->ns[way], m->ns[way], m->ns[way] / alone->ns[way]);
    }
}

/* ---- a case ---- */

static bool try_one(const char *placement, bool by_claim, int waiting)
{
    const char *by = by_claim ? "claim" : "kernel";
    measured alone, own, other;
    hd_ticket tickets[MOST], ticket;
    hd_claim *claim = NULL;
    pthread_t thread;
    void *word;
    measure(&alone);
    MUST(hd_map(flag, HD_READ_WRITE, &word));
    __atomic_store_n((uint32_t *)word, 0, __ATOMIC_RELEASE);
    const hd_arg use = hd_inout(held), args[] = {hd_u64(hd_buffer_address(flag)), use};
    if (by_claim) {
        MUST(hd_claim_begin(runtime, &use, 1, &claim));
        MUST(hd_claim_get_ticket(claim, &ticket));
    } else {
        MUST(hd_launch(lane, hold, (hd_dims){.x = 1}, (hd_dims){.x = 1}, 0, args, 2, &ticket));
    }
    for (int i = 0; i < waiting; i++) {
        MUST(submit_waiting(i, &tickets[i]));
    }
    measure(&own);
    report(placement, by, waiting, "own", &alone, &own);
    if (!failed && pthread_create(&thread, NULL, measure, &other) == 0) {
        pthread_join(thread, NULL);
        report(placement, by, waiting, "other", &alone, &other);
    }
    if (!failed && hd_done(ticket)) {
        fprintf(stderr, "blocked: what was held has ended before\n");
        failed = true;
    }
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
    if (by_claim) {
        MUST(hd_claim_end(claim, HD_OK));
    }
    for (int i = 0; i < waiting; i++) {
        MUST(hd_wait(tickets[i], INT64_C(20000000000)));
    }
    MUST(hd_wait(ticket, INT64_C(20000000000)));
    MUST(hd_unmap(flag));
    if (failed) {
        fprintf(stderr, "blocked: failed, placement %s, held by a %s, %d waiting\n", placement, by, waiting);
    }
    return !failed;
}

static void open_all(const char *placement, const char *kernels)
{
    char settings[200];
    snprintf(settings, sizeof settings, "placement=%s transfer_timeout=20000 submit_timeout=20000", placement);
    hd_options options = {.size = sizeof options, .settings = settings};
    hd_module *module;
    MUST(hd_open(&options, &runtime));
    MUST(kernels ? hd_module_load_file(runtime, kernels, &module) : hd_module_load(runtime, ptx, sizeof ptx, &module));
    MUST(hd_kernel_get(module, "hold", &hold));
    MUST(hd_lane_create(runtime, 0, &lane));
    MUST(hd_alloc(lane, (size_t)MOST * BYTES, &held));
    MUST(hd_alloc(lane, BYTES, &on_device));
    MUST(hd_alloc(lane, BYTES, &source_device));
    hd_buffer **const pinned[] = {&host_held, &on_host, &source_host, &flag};
    for (int i = 0; i < 4; i++) {
        MUST(hd_alloc_host(runtime, i == 0 ? (size_t)MOST * BYTES : BYTES, pinned[i]));
    }
    if (hd_device_count(runtime) > 1) {
        hd_lane *there;
        MUST(hd_lane_get_default(runtime, 1, &there));
        MUST(hd_alloc(there, BYTES, &peer));
        MUST(hd_alloc(there, (size_t)MOST * BYTES, &peer_held));
        hd_peer_info info = {.size = sizeof info};
        (void)hd_peer_check(runtime, 0, 1, &info); /* slow, so not beside the first copy */
    }
    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = (uint8_t)(i * 7);
    }
    MUST(hd_write(source_device, 0, pattern, BYTES));
    MUST(hd_write(source_host, 0, pattern, BYTES));
    MUST(hd_fill(held, 0, 0, (size_t)MOST * BYTES, NULL));
    /* the first run is slower: it loads code and makes pools */
    measured ignored;
    for (int i = 0; i < 7; i++) {
        hd_ticket t;
        MUST(submit_waiting(i, &t));
        MUST(hd_wait(t, INT64_C(20000000000)));
    }
    measure(&ignored);
}

int main(int argc, char **argv)
{
    static const int counts[] = {1, 4, 32, MOST};
    if (argc > 1 && strcmp(argv[1], "--source") == 0) {
        fputs(source, stdout);
        return 0;
    }
    const char *placement = argc > 1 ? argv[1] : "thread";
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_all(placement, argc > 2 ? argv[2] : NULL);
    bool ok = !failed;
    for (int by_claim = 0; by_claim < 2; by_claim++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            failed = false;
            ok = try_one(placement, by_claim, counts[i]) && ok;
        }
    }
    hd_close(runtime);
    return !ok;
}
