/* hot_paths.c - one section per hot path, for tools/count-instructions, which runs it under
 * valgrind's callgrind.
 *
 * usage: hot_paths KERNEL_FILE      (kernels.c, compiled by `heddle cc --no-gpu`)
 *
 * A section repeats one operation. Callgrind counts each from its call to its return. Only the
 * thread that asks callgrind to collect is counted, without engines and copying threads. A dump is
 * named "ROW OPERATIONS". All sections run twice, and only the second run counts: by then,
 * everything made at a first use exists.
 *
 * A count must not depend on the progress of devices. Therefore all work "before" a row finishes
 * first, and the engines stand still while the section runs. Each stands at a gate, awake, inside
 * __wrap_hdi_stream_visit. No engine issues or finishes the section's work, as on a busy device,
 * and no doorbell rings. Rows "behind" submit their earlier work while the engines stand, too. Two
 * runs give the same counts, except for the C library's allocator in the longest rows, 0.1 %.
 *
 * Rows "traced" use a runtime of their own that writes a trace. The trace's writer keeps running,
 * and empties the ring of the submitting thread.
 *
 * Threads: main, and the library's threads. Locks: none. Always: when a section begins, all work is
 * finished, and every engine stands at the gate.
 */
#include <heddle.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valgrind/callgrind.h>

#define DEVICES 2
#define KERNELS 3
#define BUFFERS_MOST 8
#define LANES_MOST 200
#define READING_LANES 5 /* more than a use record holds in itself */
#define MANY_BUFFERS 100000
#define BYTES ((size_t)1 << 20) /* size of a buffer: more than one piece of a transfer */
#define SMALL ((size_t)16 << 10)
#define LIMIT_NS 120000000000 /* limit for the engines to reach the gate */

static hd_runtime *runtime;
static hd_kernel *kernels[KERNELS]; /* kernels with n_buffers[] buffers */
static const size_t n_buffers[KERNELS] = {1, 3, 8};
static hd_lane *lane, *other_lane, *gate_lanes[DEVICES], *reading_lanes[READING_LANES];
static hd_buffer *gate_buffers[DEVICES];
static bool counting;
static unsigned char *bytes; /* BYTES of the program's memory */

#define MUST(call) must((call), #call)
static void must(hd_status status, const char *call)
{
    if (status != HD_OK) {
        fprintf(stderr, "hot_paths: %s: %s\n", call, hd_message());
        exit(1);
    }
}

/* ---- the gate ---- */

static _Atomic int gate_closed, at_gate;

/* The library's function, in which an engine visits one lane. Here the engine stays until the gate
 * opens. */
struct hdi_engine;
struct hdi_stream;
struct hdi_pass;
void __real_hdi_stream_visit(struct hdi_engine *engine, struct hdi_stream *stream, struct hdi_pass *pass);
void __wrap_hdi_stream_visit(struct hdi_engine *engine, struct hdi_stream *stream, struct hdi_pass *pass);
void __wrap_hdi_stream_visit(struct hdi_engine *engine, struct hdi_stream *stream, struct hdi_pass *pass)
{
    if (gate_closed) {
        at_gate++;
        while (gate_closed) {
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
        at_gate--;
    }
    __real_hdi_stream_visit(engine, stream, pass);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void until_at_gate(int wanted)
{
    int64_t begin = now_ns();
    while (at_gate != wanted) {
        if (now_ns() - begin > LIMIT_NS) {
            fprintf(stderr, "hot_paths: %d of %d engines are at the gate; is hdi_stream_visit still what they call?\n",
                    at_gate, wanted);
            exit(1);
        }
        sched_yield();
    }
}

static const hd_dims one = {1, 1, 1};

static void close_gate(void)
{
    gate_closed = 1;
    for (int d = 0; d < DEVICES; d++) {
        hd_arg arg = hd_inout(gate_buffers[d]);
        MUST(hd_launch(gate_lanes[d], kernels[0], one, one, 0, &arg, 1, NULL));
    }
    until_at_gate(DEVICES);
}

static void open_gate(void)
{
    gate_closed = 0;
    until_at_gate(0);
    for (int d = 0; d < DEVICES; d++) {
        MUST(hd_lane_wait(gate_lanes[d], HD_FOREVER));
    }
}

/* ---- shared by the sections ---- */

typedef struct state {
    hd_buffer *buffers[BUFFERS_MOST];
    size_t n;
    hd_kernel *kernel; /* takes `args`, the buffers */
    hd_arg args[BUFFERS_MOST];
    hd_lane *lanes[LANES_MOST];
    hd_buffer *of_lanes[LANES_MOST];
    unsigned n_lanes;
    hd_buffer *source, *far, *pinned, *unified;
    hd_ticket ticket;
    size_t size;
    volatile float sink;
} state;

typedef void action(state *s, unsigned i);

static void nothing(state *s, unsigned i)
{
    (void)s;
    (void)i;
}

/* Collects during `operation`, which runs `n` times, each after `before`. With `still` the engines
 * stand. */
static void section(const char *row, unsigned n, bool still, state *s, action *before, action *operation)
{
    char name[96];
    snprintf(name, sizeof name, "%s %u", row, n);
    if (still) {
        close_gate();
    }
    if (counting) {
        CALLGRIND_START_INSTRUMENTATION;
        CALLGRIND_ZERO_STATS;
    }
    for (unsigned i = 0; i < n; i++) {
        before(s, i);
        CALLGRIND_TOGGLE_COLLECT;
        operation(s, i);
        CALLGRIND_TOGGLE_COLLECT;
    }
    if (counting) {
        CALLGRIND_DUMP_STATS_AT(name);
        CALLGRIND_STOP_INSTRUMENTATION;
    }
    if (still) {
        open_gate();
    }
}

/* Makes the arguments beforehand, as they are not part of a launch's cost. */
static void arguments_make(state *s)
{
    s->kernel = kernels[s->n == 8 ? 2 : s->n == 3];
    for (size_t i = 0; i < s->n; i++) {
        s->args[i] = hd_in(s->buffers[i]);
    }
    s->args[0] = s->n == 1 ? hd_inout(s->buffers[0]) : hd_out(s->buffers[0]);
    if (s->n == 8) {
        s->args[1] = hd_inout(s->buffers[1]);
    }
}

static void buffers_make(state *s, size_t n, size_t size)
{
    for (s->n = 0; s->n < n; s->n++) {
        MUST(hd_alloc(lane, size, &s->buffers[s->n]));
    }
    s->size = size;
    MUST(hd_alloc(lane, size, &s->source));
    arguments_make(s);
}

static void buffers_finish(state *s)
{
    for (size_t i = 0; i < s->n; i++) {
        MUST(hd_buffer_wait(s->buffers[i], HD_READ_WRITE, HD_FOREVER));
    }
    hd_buffer *others[] = {s->source, s->far, s->pinned, s->unified};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i]) {
            MUST(hd_buffer_wait(others[i], HD_READ_WRITE, HD_FOREVER));
        }
    }
}

/* Waits first: the next owner of the memory then finds no earlier uses to wait for. */
static void buffers_free(state *s)
{
    buffers_finish(s);
    for (size_t i = 0; i < s->n; i++) {
        hd_free(s->buffers[i]);
    }
    hd_free(s->source);
    hd_free(s->far);
    hd_free(s->pinned);
    hd_free(s->unified);
}

static void launch(state *s, unsigned i)
{
    (void)i;
    MUST(hd_launch(lane, s->kernel, one, one, 0, s->args, s->n, &s->ticket));
}

/* ---- launches, by the earlier use of their buffers ---- */

static void was_fresh(state *s, hd_buffer *b)
{
    (void)s;
    (void)b;
}

static void was_filled(state *s, hd_buffer *b)
{
    MUST(hd_fill(b, 0, 0, s->size, NULL));
}

static void was_written(state *s, hd_buffer *b)
{
    MUST(hd_write(b, 0, bytes, s->size));
}

static void was_copied(state *s, hd_buffer *b)
{
    MUST(hd_copy(b, 0, s->source, 0, s->size, NULL));
}

static void was_read(state *s, hd_buffer *b)
{
    MUST(hd_fill(b, 0, 0, s->size, NULL));
    MUST(hd_read(b, 0, bytes, s->size));
}

/* Uses the buffer as both sides of copies that change the layout. */
static void was_tensor(state *s, hd_buffer *b)
{
    const uint64_t shape[] = {64, s->size / 64 / sizeof(float)};
    const uint64_t turned_shape[] = {shape[1], shape[0]};
    hd_tensor from, turned, to;
    MUST(hd_fill(s->source, 0, 0, s->size, NULL));
    MUST(hd_tensor_make(s->source, 0, HD_TYPE_F32, 2, shape, &from));
    MUST(hd_tensor_transpose(&from, 0, 1, &turned));
    MUST(hd_tensor_make(b, 0, HD_TYPE_F32, 2, turned_shape, &to));
    MUST(hd_tensor_copy(&to, &turned, NULL));
    MUST(hd_tensor_transpose(&to, 0, 1, &turned));
    MUST(hd_tensor_copy(&from, &turned, NULL));
}

/* Uses the buffer in eight ranges, in launches of two lanes. */
static void was_in_ranges(state *s, hd_buffer *b)
{
    for (size_t r = 0; r < 8; r++) {
        hd_arg arg = hd_inout_range(b, r * s->size / 8, s->size / 8);
        MUST(hd_launch(r % 2 ? lane : other_lane, kernels[0], one, one, 0, &arg, 1, NULL));
    }
}

/* Reads the buffer in launches of many lanes at once. */
static void was_read_in_lanes(state *s, hd_buffer *b)
{
    const hd_arg args[] = {hd_out(s->source), hd_in(b), hd_in(b)};
    for (size_t l = 0; l < READING_LANES; l++) {
        MUST(hd_launch(reading_lanes[l], kernels[1], one, one, 0, args, 3, NULL));
    }
}

typedef struct history {
    const char *name;
    void (*apply)(state *s, hd_buffer *b);
    bool at_once; /* submits everything before any of it finishes */
} history;

static const history histories[] = {
    {"fresh", was_fresh, false},     {"filled", was_filled, false},      {"written", was_written, false},
    {"copied", was_copied, false},   {"read", was_read, false},          {"tensor", was_tensor, false},
    {"ranges", was_in_ranges, true}, {"lanes", was_read_in_lanes, true},
};
#define HISTORIES (sizeof histories / sizeof histories[0])

static void apply(state *s, void (*history)(state *s, hd_buffer *b))
{
    for (size_t i = 0; i < s->n; i++) {
        history(s, s->buffers[i]);
    }
}

static void apply_and_finish(state *s, const history *h)
{
    if (h->at_once) {
        close_gate();
    }
    apply(s, h->apply);
    if (h->at_once) {
        open_gate();
    }
    buffers_finish(s);
}

static void launches_after(void)
{
    for (size_t k = 0; k < KERNELS; k++) {
        for (size_t h = 0; h < HISTORIES; h++) {
            state s = {0};
            char row[64];
            snprintf(row, sizeof row, "launch/%zu/%s", n_buffers[k], histories[h].name);
            buffers_make(&s, n_buffers[k], BYTES);
            apply_and_finish(&s, &histories[h]);
            section(row, 16, true, &s, nothing, launch);
            buffers_free(&s);
        }
    }
}

/* ---- launches behind unfinished work ---- */

static void fill_before(state *s, unsigned i)
{
    (void)i;
    apply(s, was_filled);
}

static void copy_before(state *s, unsigned i)
{
    (void)i;
    apply(s, was_copied);
}

static void ranges_before(state *s, unsigned i)
{
    (void)i;
    apply(s, was_in_ranges);
}

static void launch_before(state *s, unsigned i)
{
    (void)i;
    MUST(hd_launch(other_lane, s->kernel, one, one, 0, s->args, s->n, NULL));
}

static void launches_behind(void)
{
    static const struct {
        const char *row;
        action *before;
    } behind[] = {{"launch/3/behind-fill", fill_before},
                  {"launch/3/behind-copy", copy_before},
                  {"launch/3/behind-ranges", ranges_before},
                  {"launch/3/behind-launch", launch_before}};
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        state s = {0};
        buffers_make(&s, 3, SMALL);
        section(behind[i].row, 8, true, &s, behind[i].before, launch);
        buffers_free(&s);
    }
}

/* ---- hd_done, hd_wait, claims, memory, elements, copies ---- */

static void done(state *s, unsigned i)
{
    (void)i;
    if (!hd_done(s->ticket)) {
        fputs("hot_paths: what was waited for is not done\n", stderr);
        exit(1);
    }
}

static void wait(state *s, unsigned i)
{
    (void)i;
    MUST(hd_wait(s->ticket, HD_FOREVER));
}

/* Begins and ends a claim on unused bytes. */
static void claim(state *s, unsigned i)
{
    (void)i;
    hd_claim *c;
    MUST(hd_claim_begin(runtime, s->args, s->n, &c));
    MUST(hd_claim_wait(c, HD_FOREVER));
    MUST(hd_claim_end(c, HD_OK));
}

static void alloc_and_free(state *s, unsigned i)
{
    (void)i;
    hd_buffer *b;
    MUST(hd_alloc(lane, s->size, &b));
    hd_free(b);
}

static void launch_of_new(state *s, unsigned i)
{
    arguments_make(s);
    launch(s, i);
}

/* Frees a buffer that a launch uses, and allocates its memory again. */
static void used_free_alloc(state *s, unsigned i)
{
    (void)i;
    hd_free(s->buffers[0]);
    MUST(hd_alloc(lane, s->size, &s->buffers[0]));
}

static void element_read(state *s, unsigned i)
{
    float value;
    if (!hd_get_f32(s->unified, i, &value)) {
        must(HD_ERROR_ARGUMENT, "hd_get_f32");
    }
    s->sink = value;
}

static void element_written(state *s, unsigned i)
{
    if (!hd_put_f32(s->unified, i, 1)) {
        must(HD_ERROR_ARGUMENT, "hd_put_f32");
    }
}

static void copy_on_device(state *s, unsigned i)
{
    (void)i;
    MUST(hd_copy(s->buffers[0], 0, s->source, 0, s->size, &s->ticket));
}

static void copy_to_peer(state *s, unsigned i)
{
    (void)i;
    MUST(hd_copy(s->far, 0, s->source, 0, s->size, &s->ticket));
}

static void copy_from_pinned(state *s, unsigned i)
{
    (void)i;
    MUST(hd_copy(s->buffers[0], 0, s->pinned, 0, s->size, &s->ticket));
}

static void fill(state *s, unsigned i)
{
    (void)i;
    MUST(hd_fill(s->buffers[0], 0, 7, s->size, &s->ticket));
}

/* Runs the operation once before the section, so that everything made at a first use exists. */
static void warm_section(const char *row, unsigned n, bool still, state *s, action *operation)
{
    operation(s, 0);
    buffers_finish(s);
    section(row, n, still, s, nothing, operation);
}

static void tickets(void)
{
    state s = {0};
    buffers_make(&s, 3, SMALL);
    launch(&s, 0);
    MUST(hd_wait(s.ticket, HD_FOREVER));
    section("done", 16, false, &s, nothing, done);
    section("wait/done", 16, false, &s, nothing, wait);
    buffers_free(&s);
}

static void claims(void)
{
    state s = {0};
    buffers_make(&s, 1, SMALL);
    warm_section("claim/1", 16, true, &s, claim);
    buffers_free(&s);
    buffers_make(&s, 8, SMALL);
    warm_section("claim/8", 16, true, &s, claim);
    buffers_free(&s);
}

static void memory(void)
{
    state s = {0};
    buffers_make(&s, 1, SMALL);
    s.size = 4096;
    warm_section("alloc-free/4K", 32, true, &s, alloc_and_free);
    s.size = BYTES;
    warm_section("alloc-free/1M", 32, true, &s, alloc_and_free);
    s.size = SMALL;
    section("alloc-free/used", 16, true, &s, launch_of_new, used_free_alloc);
    buffers_free(&s);
}

static void elements(void)
{
    state s = {0};
    buffers_make(&s, 1, SMALL);
    MUST(hd_alloc_unified(lane, BYTES, &s.unified));
    MUST(hd_fill(s.unified, 0, 0, BYTES, NULL));
    warm_section("element/unified/read", 32, true, &s, element_read);
    warm_section("element/unified/write", 32, true, &s, element_written);
    buffers_finish(&s);
    hd_free(s.unified);
    MUST(hd_alloc_host(runtime, BYTES, &s.unified));
    warm_section("element/pinned/read", 32, true, &s, element_read);
    warm_section("element/pinned/write", 32, true, &s, element_written);
    buffers_free(&s);
}

static void copies(void)
{
    state s = {0};
    buffers_make(&s, 1, SMALL);
    MUST(hd_alloc(gate_lanes[1], SMALL, &s.far));
    MUST(hd_alloc_host(runtime, SMALL, &s.pinned));
    warm_section("copy/device", 16, true, &s, copy_on_device);
    warm_section("copy/peer", 16, true, &s, copy_to_peer);
    warm_section("copy/pinned", 16, true, &s, copy_from_pinned);
    warm_section("fill", 16, true, &s, fill);
    buffers_free(&s);
}

/* ---- with many lanes, and with many buffers ---- */

/* Gives each lane a launch that does not finish. */
static void all_lanes_at_work(state *s, unsigned i)
{
    for (unsigned l = 0; i == 0 && l < s->n_lanes; l++) {
        const hd_arg arg = hd_inout(s->of_lanes[l]);
        MUST(hd_launch(s->lanes[l], kernels[0], one, one, 0, &arg, 1, NULL));
    }
}

static void launch_in_first(state *s, unsigned i)
{
    (void)i;
    MUST(hd_launch(s->lanes[0], s->kernel, one, one, 0, s->args, s->n, NULL));
}

/* Uses another lane each time, with a buffer of its own and two that all lanes read. */
static void turn_of_lane(state *s, unsigned i)
{
    (void)i;
    s->args[0] = hd_out(s->of_lanes[i % s->n_lanes]);
}

static void launch_by_turns(state *s, unsigned i)
{
    MUST(hd_launch(s->lanes[i % s->n_lanes], s->kernel, one, one, 0, s->args, s->n, NULL));
}

static void lanes_finish(state *s)
{
    buffers_finish(s);
    for (unsigned l = 0; l < s->n_lanes; l++) {
        MUST(hd_buffer_wait(s->of_lanes[l], HD_READ_WRITE, HD_FOREVER));
        MUST(hd_lane_wait(s->lanes[l], HD_FOREVER));
    }
}

static void with_lanes(unsigned n)
{
    state s = {.n_lanes = n};
    char row[64];
    buffers_make(&s, 3, SMALL);
    for (unsigned l = 0; l < n; l++) {
        MUST(hd_lane_create(runtime, 0, &s.lanes[l]));
        MUST(hd_alloc(s.lanes[l], SMALL, &s.of_lanes[l]));
    }
    snprintf(row, sizeof row, "launch/3/lanes-%u", n);
    section(row, 16, true, &s, all_lanes_at_work, launch_in_first);
    lanes_finish(&s);
    snprintf(row, sizeof row, "launch/3/lanes-%u/by-turns", n);
    section(row, n < 16 ? 16 : n, true, &s, turn_of_lane, launch_by_turns);
    s.size = 4096;
    snprintf(row, sizeof row, "alloc-free/4K/lanes-%u", n);
    warm_section(row, 32, true, &s, alloc_and_free);
    lanes_finish(&s);
    for (unsigned l = 0; l < n; l++) {
        hd_free(s.of_lanes[l]);
        hd_lane_destroy(s.lanes[l]);
    }
    buffers_free(&s);
}

static void with_buffers(void)
{
    state s = {0};
    hd_buffer **alive = calloc(MANY_BUFFERS, sizeof *alive);
    if (!alive) {
        must(HD_ERROR_HOST_MEMORY, "calloc");
        return;
    }
    for (size_t i = 0; i < MANY_BUFFERS; i++) {
        MUST(hd_alloc(lane, 256, &alive[i]));
    }
    buffers_make(&s, 3, SMALL);
    warm_section("launch/3/buffers-100000", 16, true, &s, launch);
    warm_section("copy/device/buffers-100000", 16, true, &s, copy_on_device);
    s.size = 4096;
    warm_section("alloc-free/4K/buffers-100000", 32, true, &s, alloc_and_free);
    for (size_t i = 0; i < MANY_BUFFERS; i++) {
        hd_free(alive[i]);
    }
    free(alive);
    buffers_free(&s);
}

/* ---- the program ---- */

static void *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *content = malloc((size_t)1 << 20);
    *size = file && content ? fread(content, 1, (size_t)1 << 20, file) : 0;
    if (*size == 0) {
        fprintf(stderr, "hot_paths: %s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    return content;
}

#define SETTINGS "driver=host placement=thread host_devices=2 peers=trust memory_idle=0 copy_threads=1"

static void open_all(const char *kernel_file, const char *settings)
{
    static const char *const names[KERNELS] = {"uses_1", "uses_3", "uses_8"};
    hd_options options = {.size = sizeof options, .settings = settings};
    hd_module *module;
    size_t size;
    void *image = read_file(kernel_file, &size);
    MUST(hd_open(&options, &runtime));
    MUST(hd_module_load(runtime, image, size, &module));
    free(image);
    for (int k = 0; k < KERNELS; k++) {
        MUST(hd_kernel_get(module, names[k], &kernels[k]));
    }
    MUST(hd_lane_create(runtime, 0, &lane));
    MUST(hd_lane_create(runtime, 0, &other_lane));
    for (int l = 0; l < READING_LANES; l++) {
        MUST(hd_lane_create(runtime, 0, &reading_lanes[l]));
    }
    for (int d = 0; d < DEVICES; d++) {
        MUST(hd_lane_create(runtime, d, &gate_lanes[d]));
        MUST(hd_alloc(gate_lanes[d], 4096, &gate_buffers[d]));
    }
}

static void sections(void)
{
    state s = {0};
    section("nothing", 16, false, &s, nothing, nothing); /* the cost of collecting itself */
    launches_after();
    launches_behind();
    tickets();
    claims();
    memory();
    elements();
    copies();
    with_lanes(1);
    with_lanes(16);
    with_lanes(LANES_MOST);
    with_buffers();
}

/* ---- with a trace ---- */

static void range(state *s, unsigned i)
{
    (void)s;
    (void)i;
    MUST(hd_range_push(runtime, "a step of the program"));
    MUST(hd_range_pop(runtime));
}

static void traced_sections(void)
{
    state s = {0};
    buffers_make(&s, 1, SMALL);
    warm_section("traced/launch/1", 16, true, &s, launch);
    warm_section("traced/copy/device", 16, true, &s, copy_on_device);
    warm_section("traced/fill", 16, true, &s, fill);
    warm_section("traced/claim/1", 16, true, &s, claim);
    warm_section("traced/range", 16, true, &s, range);
    s.size = 4096;
    warm_section("traced/alloc-free/4K", 32, true, &s, alloc_and_free);
    buffers_free(&s);
    buffers_make(&s, 3, SMALL);
    warm_section("traced/launch/3", 16, true, &s, launch);
    buffers_finish(&s);
    section("traced/launch/3/behind-launch", 8, true, &s, launch_before, launch);
    buffers_free(&s);
}

/* Runs all sections twice, in a runtime of their own. */
static void count(const char *kernel_file, const char *settings, void (*all)(void))
{
    open_all(kernel_file, settings);
    counting = false;
    all();
    counting = true;
    all();
    hd_close(runtime);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: hot_paths KERNEL_FILE\n", stderr);
        return 2;
    }
    bytes = calloc(1, BYTES);
    if (!bytes) {
        must(HD_ERROR_HOST_MEMORY, "calloc");
    }
    count(argv[1], SETTINGS, sections);
    count(argv[1], SETTINGS " trace=traced", traced_sections);
    free(bytes);
    return 0;
}
