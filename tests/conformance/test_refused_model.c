/* test_refused_model.c - random traffic in which calls of all kinds are refused, for failures
 * inside them or for the work in front of them.
 *
 * Promise: Random refused calls change no content, later call, memory in use or open claim.
 *
 * A model stores the word in each quarter of each buffer, and if its content failed. A call that
 * returns HD_OK changes the model, a refused one does not. Some calls of the system and of the
 * driver fail, each once, on the thread that makes the call. Claims stay open for a while, so that
 * limits pass. Some end without success. Content fails by itself only after such an end, or after a
 * function that fails.
 *
 * Environment: HEDDLE_REFUSED_ROUNDS=N rounds, HEDDLE_SEED=N.
 *
 * Threads: the main one. Locks: none.
 */
#include "refused.h"
#include <pthread.h>
#include <stdatomic.h>
#include "dlpack_scene.h"

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails(&fails_in) ? (errno = ENOMEM, NULL) : __real_malloc(bytes);
}

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails(&fails_in) ? (errno = ENOMEM, NULL) : __real_calloc(n, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    return fails(&fails_in) ? (errno = ENOMEM, NULL) : __real_realloc(old, bytes);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    return fails(&fails_thread_in) ? EAGAIN : __real_pthread_create(thread, attributes, run, context);
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}

/* ---- the model ---- */

/* Calls use unified memory as a whole, since neighbouring parts may be copied together. Lanes of
 * the program do not use it: a part is copied in the lane that needs it first, and fails with that
 * lane. */
enum { quarters = 4, quarter_bytes = 64 << 10, quarter_words = quarter_bytes / 4, bytes = quarters * quarter_bytes };
enum { DEVICE, OTHER_DEVICE, PINNED, UNIFIED, n_buffers };
enum { most_held = 5, most_calls = 256, n_lanes = 2, most_faults = 10, most_saved = 4, saved_bytes = 4096 };

typedef struct quarter {
    uint32_t word; /* the word in memory, even if the content failed */
    /* any content: the program claimed the bytes to write all of them, and did not */
    bool unknown;
    bool failed;
} quarter;

typedef struct range {
    int buffer, first, n;
    unsigned access;
} range;

typedef struct call {
    struct model *model;
    range uses[2];
    int n_uses;
    uint32_t word;
    hd_status returns;
} call;

/* A claim or tensor that the program ends later. */
typedef struct held {
    hd_claim *claim;
    DLManagedTensorVersioned *tensor;
    hd_status outcome;
    bool fails; /* its end fails, or its source failed */
    bool asked;
    bool on_stream;
} held;

typedef struct model {
    hd_runtime *runtime;
    conf_kernels k;
    conf_random random;
    bool is_inline;
    int last_device;
    hd_buffer *buffers[n_buffers];
    quarter now[n_buffers][quarters];
    hd_lane *lanes[n_lanes];
    bool lane_failed[n_lanes];
    held held[most_held];
    int n_held;
    call calls[most_calls];
    int n_calls;
    hd_buffer *saved[most_saved];
    int n_saved;
    uint32_t next_word;
    uint64_t live[2];
    uint64_t step;
} model;

typedef enum kind {
    FILL,
    LAUNCH,
    COPY,
    COPY_KERNEL,
    COPY_BOX,
    TENSOR_COPY,
    WRITE,
    READ,
    MAP,
    CLAIM,
    CLAIM_ON_STREAM,
    ON_READY,
    HOST_CALL,
    LANE_CALL,
    LANE_AFTER,
    EXPORT,
    SAVE,
    ALLOCATE,
    KINDS
} kind;

static const char *const names[KINDS] = {"hd_fill",
                                         "hd_launch (fill)",
                                         "hd_copy",
                                         "hd_launch (copy)",
                                         "hd_copy_box",
                                         "hd_tensor_copy",
                                         "hd_write",
                                         "hd_read",
                                         "hd_map",
                                         "hd_claim_begin",
                                         "hd_claim_begin_stream",
                                         "hd_claim_on_ready",
                                         "hd_launch_host",
                                         "hd_lane_run_native",
                                         "hd_lane_add_dependency",
                                         "hd_dlpack_export",
                                         "hd_buffer_save",
                                         "hd_alloc"};
static uint64_t accepted[KINDS], refused[KINDS];

static range any_range(model *m, unsigned access)
{
    range r = {.buffer = (int)conf_below(&m->random, n_buffers), .access = access};
    r.first = (int)conf_below(&m->random, quarters);
    r.n = 1 + (int)conf_below(&m->random, (uint64_t)(quarters - r.first));
    if (r.buffer == UNIFIED || conf_chance(&m->random, 30)) {
        r.first = 0;
        r.n = quarters;
    }
    return r;
}

/* For an operation in a lane of the program. */
static range any_range_of_lane(model *m, unsigned access)
{
    range r;
    do {
        r = any_range(m, access);
    } while (r.buffer == UNIFIED);
    return r;
}

static size_t at(range r)
{
    return (size_t)r.first * quarter_bytes;
}

static size_t length(range r)
{
    return (size_t)r.n * quarter_bytes;
}

static hd_arg use_of(const model *m, range r)
{
    hd_arg use = hd_inout_range(m->buffers[r.buffer], at(r), length(r));
    use.access = (uint8_t)r.access;
    return use;
}

static bool has_failed(const model *m, range r)
{
    bool any = false;
    for (int q = r.first; q < r.first + r.n; q++) {
        any |= m->now[r.buffer][q].failed;
    }
    return any;
}

static bool reads_failed(const model *m, const range *uses, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        any |= (uses[i].access & HD_READ) && has_failed(m, uses[i]);
    }
    return any;
}

/* The operation wrote its uses; with `word` NULL it left the memory as it was. */
static void wrote(model *m, const range *uses, int n, bool failed, const uint32_t *word)
{
    for (int i = 0; i < n; i++) {
        for (int q = uses[i].first; (uses[i].access & HD_WRITE) && q < uses[i].first + uses[i].n; q++) {
            quarter *now = &m->now[uses[i].buffer][q];
            now->failed = failed;
            /* A use of unified memory that does not read brings no bytes from the other side. */
            now->unknown |= !(uses[i].access & HD_READ) && uses[i].buffer == UNIFIED;
            if (word && !failed) {
                now->word = *word;
                now->unknown = false;
            }
        }
    }
}

/* ---- calls: each makes one, with faults, and notes a success in the model ---- */

/* Counts the call. True: it happened. */
static bool is_done(kind k, hd_status status)
{
    fails_in = fails_thread_in = 0;
    ++*(status ? &refused[k] : &accepted[k]);
    return status == HD_OK;
}

/* With placement=inline the engine runs on this thread, too, so an accepted operation may fail
 * instead. */
static void some_fail(model *m)
{
    if (m->is_inline) {
        return;
    }
    if (conf_chance(&m->random, 60)) {
        fails_in = 1 + (int)conf_below(&m->random, most_faults);
    } else if (conf_chance(&m->random, 20)) {
        fails_thread_in = 1 + (int)conf_below(&m->random, 2);
    }
}

static void fill(model *m)
{
    range r = any_range(m, HD_WRITE);
    uint32_t word = m->next_word++;
    some_fail(m);
    if (is_done(FILL, hd_fill(m->buffers[r.buffer], at(r), word, length(r), NULL))) {
        wrote(m, &r, 1, false, &word);
    }
}

static void launch(model *m)
{
    range r = any_range_of_lane(m, HD_WRITE);
    int lane = (int)conf_below(&m->random, n_lanes);
    uint32_t word = m->next_word++;
    some_fail(m);
    if (is_done(LAUNCH, conf_fill(m->lanes[lane], m->k, m->buffers[r.buffer], at(r), (uint64_t)r.n * quarter_words,
                                  word, NULL))) {
        wrote(m, &r, 1, m->lane_failed[lane], &word);
    }
}

/* Two ranges of one length that do not overlap. */
static void two_ranges(model *m, range r[2], range (*any)(model *m, unsigned access))
{
    bool fit;
    do {
        r[0] = any(m, HD_WRITE);
        r[1] = any(m, HD_READ);
        bool whole = r[0].buffer == UNIFIED || r[1].buffer == UNIFIED;
        fit = !whole || r[0].n == r[1].n;
        r[0].n = r[1].n = r[0].n < r[1].n ? r[0].n : r[1].n;
    } while (!fit ||
             (r[0].buffer == r[1].buffer && r[0].first < r[1].first + r[1].n && r[1].first < r[0].first + r[0].n));
}

static void copied(model *m, const range r[2], bool failed)
{
    bool any = failed || has_failed(m, r[1]);
    for (int i = 0; i < r[0].n; i++) {
        quarter *to = &m->now[r[0].buffer][r[0].first + i];
        to->failed = any;
        if (!any) {
            to->word = m->now[r[1].buffer][r[1].first + i].word;
            to->unknown = m->now[r[1].buffer][r[1].first + i].unknown;
        }
    }
}

static void copy(model *m, kind k)
{
    range r[2];
    two_ranges(m, r, any_range);
    hd_buffer *to = m->buffers[r[0].buffer], *from = m->buffers[r[1].buffer];
    hd_status status;
    const uint64_t shape[] = {(uint64_t)r[0].n * quarter_words};
    hd_tensor x, y;
    CONF_OK(hd_tensor_make(to, at(r[0]), HD_TYPE_U32, 1, shape, &x));
    CONF_OK(hd_tensor_make(from, at(r[1]), HD_TYPE_U32, 1, shape, &y));
    const hd_box box = {.size = sizeof box, .row = length(r[0])};
    some_fail(m);
    switch (k) {
    case COPY:
        status = hd_copy(to, at(r[0]), from, at(r[1]), length(r[0]), NULL);
        break;
    case COPY_BOX:
        status = hd_copy_box(to, at(r[0]), from, at(r[1]), &box, NULL);
        break;
    default:
        status = hd_tensor_copy(&x, &y, NULL);
        break;
    }
    if (is_done(k, status)) {
        copied(m, r, false);
    }
}

static void copy_by_kernel(model *m)
{
    range r[2];
    two_ranges(m, r, any_range_of_lane);
    int lane = (int)conf_below(&m->random, n_lanes);
    some_fail(m);
    if (is_done(COPY_KERNEL, conf_copy(m->lanes[lane], m->k, m->buffers[r[0].buffer], at(r[0]), m->buffers[r[1].buffer],
                                       at(r[1]), (uint64_t)r[0].n * quarter_words, NULL))) {
        bool failed = has_failed(m, r[1]);
        copied(m, r, m->lane_failed[lane]);
        m->lane_failed[lane] |= failed;
    }
}

static void write_words(model *m)
{
    range r = any_range(m, HD_WRITE);
    uint32_t word = m->next_word++, *words = conf_memory(length(r));
    for (size_t i = 0; i < length(r) / 4; i++) {
        words[i] = word;
    }
    some_fail(m);
    if (is_done(WRITE, hd_write(m->buffers[r.buffer], at(r), words, length(r)))) {
        wrote(m, &r, 1, false, &word);
    }
    free(words);
}

static void check_words(const model *m, range r, const uint32_t *words)
{
    for (int q = 0; q < r.n; q++) {
        uint32_t expected = m->now[r.buffer][r.first + q].word;
        for (int i = 0; i < quarter_words && !m->now[r.buffer][r.first + q].unknown; i++) {
            if (words[q * quarter_words + i] != expected) {
                conf_fail_at(__FILE__, __LINE__, "step %llu: word %d of quarter %d of buffer %d is %u, not %u",
                             (unsigned long long)m->step, i, r.first + q, r.buffer, words[q * quarter_words + i],
                             expected);
            }
        }
    }
}

static void read_words(model *m)
{
    range r = any_range(m, HD_READ);
    uint32_t *words = conf_memory(length(r));
    some_fail(m);
    if (is_done(READ, hd_read(m->buffers[r.buffer], at(r), words, length(r)))) {
        CONF_TRUE(!has_failed(m, r));
        check_words(m, r, words);
    }
    free(words);
}

static void map(model *m)
{
    range r = {.buffer = conf_chance(&m->random, 50) ? PINNED : UNIFIED, .n = quarters, .access = HD_READ_WRITE};
    void *words = NULL;
    some_fail(m);
    if (is_done(MAP, hd_map(m->buffers[r.buffer], HD_READ, &words))) {
        CONF_TRUE(!has_failed(m, r));
        check_words(m, r, words);
        CONF_OK(hd_unmap(m->buffers[r.buffer]));
    }
}

static int some_uses(model *m, range uses[2], hd_arg args[2], range (*any)(model *m, unsigned access))
{
    int n = 1 + (int)conf_below(&m->random, 2);
    for (int i = 0; i < n; i++) {
        uses[i] = any(m, (unsigned)(1 + conf_below(&m->random, 3)));
        if (i == 1 && uses[1].buffer == uses[0].buffer) { /* an operation uses a byte only once */
            return 1;
        }
        args[i] = use_of(m, uses[i]);
    }
    return n;
}

static void hold(model *m, held h, const range *uses, int n)
{
    h.outcome = conf_chance(&m->random, 25) && h.claim ? HD_ERROR_SYSTEM : HD_OK;
    h.fails = reads_failed(m, uses, n) || h.outcome;
    wrote(m, uses, n, h.fails, NULL);
    m->held[m->n_held++] = h;
}

static void begin_claim(model *m, kind k)
{
    range uses[2];
    hd_arg args[2];
    int n = some_uses(m, uses, args, any_range);
    hd_claim *c = NULL;
    int device = conf_chance(&m->random, 50) ? m->last_device : 0;
    if (m->n_held == most_held) {
        return;
    }
    some_fail(m);
    hd_status status = k == CLAIM ? hd_claim_begin(m->runtime, args, (size_t)n, &c)
                                  : hd_claim_begin_stream(m->runtime, device, (void *)1, args, (size_t)n, NULL, &c);
    if (is_done(k, status)) {
        hold(m, (held){.claim = c, .on_stream = k == CLAIM_ON_STREAM}, uses, n);
    }
}

static void ready(hd_claim *claim, hd_status status, void *context)
{
    (void)claim, (void)status, (void)context;
}

static void ask(model *m)
{
    held *h = m->n_held ? &m->held[conf_below(&m->random, (uint64_t)m->n_held)] : NULL;
    if (!h || !h->claim) {
        return;
    }
    some_fail(m);
    hd_status status = hd_claim_on_ready(h->claim, ready, NULL);
    bool failed = fails_in == 0 && fails_thread_in == 0;
    if (is_done(ON_READY, status)) {
        CONF_TRUE(!h->asked);
        h->asked = true;
    } else {
        CONF_TRUE(status == HD_ERROR_ARGUMENT ? h->asked : failed || h->asked);
    }
}

static hd_status run(void *const *pointers, void *context)
{
    const call *c = context;
    for (int i = 0; i < c->n_uses && !c->returns; i++) {
        uint32_t *words = (c->uses[i].access & HD_WRITE) ? pointers[i] : NULL;
        for (size_t j = 0; words && j < length(c->uses[i]) / 4; j++) {
            words[j] = c->word;
        }
    }
    return c->returns;
}

static hd_status run_in_lane(void *stream, void *context)
{
    (void)stream;
    return ((const call *)context)->returns;
}

static call *new_call(model *m, hd_arg args[2], range (*any)(model *m, unsigned access))
{
    call *c = &m->calls[m->n_calls++];
    *c = (call){.model = m, .word = m->next_word++};
    c->returns = conf_chance(&m->random, 15) ? HD_ERROR_SYSTEM : HD_OK;
    c->n_uses = some_uses(m, c->uses, args, any);
    return c;
}

static void call_on_host(model *m)
{
    hd_arg args[2];
    if (m->n_calls == most_calls) {
        return;
    }
    call *c = new_call(m, args, any_range);
    some_fail(m);
    if (is_done(HOST_CALL, hd_launch_host(m->runtime, run, c, args, (size_t)c->n_uses, NULL))) {
        bool failed = reads_failed(m, c->uses, c->n_uses) || c->returns;
        for (int i = 0; i < c->n_uses; i++) {
            bool writes = c->uses[i].buffer == PINNED || c->uses[i].buffer == UNIFIED;
            wrote(m, &c->uses[i], 1, failed, writes ? &c->word : NULL);
        }
    }
}

static void call_in_lane(model *m)
{
    hd_arg args[2];
    if (m->n_calls == most_calls) {
        return;
    }
    call *c = new_call(m, args, any_range_of_lane);
    int lane = (int)conf_below(&m->random, n_lanes);
    some_fail(m);
    if (is_done(LANE_CALL, hd_lane_run_native(m->lanes[lane], run_in_lane, c, args, (size_t)c->n_uses, NULL))) {
        m->lane_failed[lane] |= reads_failed(m, c->uses, c->n_uses) || c->returns;
        wrote(m, c->uses, c->n_uses, m->lane_failed[lane], NULL);
    }
}

static void lane_after(model *m)
{
    const held *h = m->n_held ? &m->held[conf_below(&m->random, (uint64_t)m->n_held)] : NULL;
    int lane = (int)conf_below(&m->random, n_lanes);
    hd_ticket ticket;
    if (!h || !h->claim) {
        return;
    }
    CONF_OK(hd_claim_get_ticket(h->claim, &ticket));
    some_fail(m);
    if (is_done(LANE_AFTER, hd_lane_add_dependency(m->lanes[lane], ticket, NULL))) {
        m->lane_failed[lane] |= h->fails;
    }
}

static void export(model *m)
{
    range r = {.buffer = (int)conf_below(&m->random, n_buffers), .n = quarters};
    bool on_stream = conf_chance(&m->random, 50), only_reads = conf_chance(&m->random, 50);
    r.access = only_reads ? HD_READ : HD_READ_WRITE;
    hd_tensor x = dl_words(m->buffers[r.buffer]);
    hd_dlpack_options options = {.size = sizeof options, .flags = only_reads ? HD_DLPACK_READ_ONLY : 0};
    DLManagedTensorVersioned *tensor = NULL;
    if (m->n_held == most_held) {
        return;
    }
    some_fail(m);
    if (is_done(EXPORT, hd_dlpack_export(&x, on_stream ? 1 : HD_DLPACK_CPU, &options, &tensor))) {
        CONF_TRUE(on_stream || !has_failed(m, r));
        hold(m, (held){.tensor = tensor}, &r, 1);
    }
}

/* Allocates memory, and gives it back at once. */
static void allocate(model *m)
{
    hd_buffer *b = NULL;
    int which = (int)conf_below(&m->random, 3);
    some_fail(m);
    if (is_done(ALLOCATE, which == 0   ? hd_alloc(m->lanes[0], 1 << 20, &b)
                          : which == 1 ? hd_alloc_host(m->runtime, 1 << 20, &b)
                                       : hd_alloc_unified(m->lanes[0], 1 << 20, &b))) {
        CONF_OK(hd_free(b));
    }
}

/* The round checks the buffer at its end: its copies may stand behind claims until then. */
static void save(model *m)
{
    hd_buffer *b = NULL;
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_KEEP};
    if (m->n_saved == most_saved) {
        return;
    }
    CONF_OK(hd_alloc_with(m->lanes[0], saved_bytes, &options, &b));
    CONF_OK(hd_fill(b, 0, 7, saved_bytes, NULL));
    some_fail(m);
    is_done(SAVE, hd_buffer_save(b, NULL));
    m->saved[m->n_saved++] = b;
}

static void make_a_call(model *m)
{
    kind k = (kind)conf_below(&m->random, KINDS);
    switch (k) {
    case FILL:
        fill(m);
        break;
    case LAUNCH:
        launch(m);
        break;
    case COPY:
    case COPY_BOX:
    case TENSOR_COPY:
        copy(m, k);
        break;
    case COPY_KERNEL:
        copy_by_kernel(m);
        break;
    case WRITE:
        write_words(m);
        break;
    case READ:
        read_words(m);
        break;
    case MAP:
        map(m);
        break;
    case CLAIM:
    case CLAIM_ON_STREAM:
        begin_claim(m, k);
        break;
    case ON_READY:
        ask(m);
        break;
    case HOST_CALL:
        call_on_host(m);
        break;
    case LANE_CALL:
        call_in_lane(m);
        break;
    case LANE_AFTER:
        lane_after(m);
        break;
    case EXPORT:
        export(m);
        break;
    case SAVE:
        save(m);
        break;
    default:
        allocate(m);
        break;
    }
}

/* ---- the end of a round: everything ends, and is compared ---- */

static void end_one(model *m)
{
    int i = (int)conf_below(&m->random, (uint64_t)m->n_held);
    held h = m->held[i];
    m->held[i] = m->held[--m->n_held];
    if (h.tensor) {
        dl_delete(h.tensor);
    } else {
        CONF_OK(hd_claim_end(h.claim, h.outcome));
    }
}

static void compare(model *m, int buffer, int q)
{
    static uint32_t words[quarter_words];
    const range r = {.buffer = buffer, .first = q, .n = 1};
    hd_status status;
    do { /* the limit is short for a busy machine */
        status = hd_read(m->buffers[buffer], at(r), words, quarter_bytes);
    } while (status == HD_ERROR_TIMEOUT);
    bool failed = m->now[buffer][q].failed;
    if (status != (failed ? HD_ERROR_FAILED : HD_OK)) {
        conf_fail_at(__FILE__, __LINE__, "step %llu: quarter %d of buffer %d %s, but: %s %s",
                     (unsigned long long)m->step, q, buffer, failed ? "has failed" : "is good", hd_status_name(status),
                     status ? hd_message() : "");
    }
    if (!failed) {
        check_words(m, r, words);
    }
}

static uint64_t live_bytes(const model *m, int device)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(m->runtime, device, &stats));
    return stats.live_bytes;
}

static void end_round(model *m)
{
    while (m->n_held) {
        end_one(m);
    }
    for (int b = 0; b < n_buffers; b++) {
        CONF_TRUE(hd_buffer_wait(m->buffers[b], HD_READ_WRITE, HD_FOREVER) != HD_ERROR_TIMEOUT);
        for (int q = 0; q < quarters; q++) {
            compare(m, b, q);
        }
    }
    for (int i = 0; i < n_lanes; i++) {
        hd_status status = hd_lane_wait(m->lanes[i], HD_FOREVER);
        CONF_TRUE(status == HD_OK || m->lane_failed[i]);
        CONF_OK(hd_lane_reset(m->lanes[i], HD_FOREVER));
        m->lane_failed[i] = false;
    }
    for (; m->n_saved; m->n_saved--) {
        CONF_FILLED(m->saved[m->n_saved - 1], 0, 7, saved_bytes);
        CONF_OK(hd_free(m->saved[m->n_saved - 1]));
    }
    for (int d = 0; d < 2; d++) {
        CONF_EQUAL(live_bytes(m, d ? HD_DEVICE_HOST : 0), m->live[d]);
    }
    m->n_calls = 0;
}

static void open_model(model *m, uint64_t seed)
{
    *m = (model){.runtime = conf_open("submit_timeout=15 transfer_timeout=15 lane_slots=256"), .random = {seed}};
    m->k = conf_builtins(m->runtime);
    m->is_inline = conf_is_inline(m->runtime);
    m->last_device = hd_device_count(m->runtime) - 1;
    m->next_word = 100;
    for (int i = 0; i < n_lanes; i++) {
        CONF_OK(hd_lane_create(m->runtime, i == 0 ? 0 : m->last_device, &m->lanes[i]));
    }
    CONF_OK(hd_alloc(m->lanes[0], bytes, &m->buffers[DEVICE]));
    CONF_OK(hd_alloc(m->lanes[1], bytes, &m->buffers[OTHER_DEVICE]));
    CONF_OK(hd_alloc_host(m->runtime, bytes, &m->buffers[PINNED]));
    CONF_OK(hd_alloc_unified(m->lanes[0], bytes, &m->buffers[UNIFIED]));
    for (int b = 0; b < n_buffers; b++) {
        CONF_OK(hd_fill(m->buffers[b], 0, (uint32_t)b, bytes, NULL));
        for (int q = 0; q < quarters; q++) {
            m->now[b][q].word = (uint32_t)b;
            compare(m, b, q);
        }
    }
    for (int d = 0; d < 2; d++) {
        m->live[d] = live_bytes(m, d ? HD_DEVICE_HOST : 0);
    }
}

/* True if calls of the most important kinds were accepted and refused. */
static bool has_seen_all(void)
{
    return accepted[CLAIM] && accepted[HOST_CALL] && accepted[EXPORT] && accepted[COPY] && accepted[LAUNCH] &&
           refused[CLAIM] && refused[CLAIM_ON_STREAM] && refused[HOST_CALL] && refused[EXPORT] && refused[COPY];
}

static void refused_calls_have_done_nothing(void **state)
{
    (void)state;
    static model m;
    uint64_t rounds = conf_number_from("HEDDLE_REFUSED_ROUNDS", 120 / CONF_SLOWNESS);
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1);
    bool last = false;
    for (uint64_t round = 0; !last; round++) {
        if (round % 20 == 0) {
            open_model(&m, seed + round);
        }
        uint64_t steps = 5 + conf_below(&m.random, 40);
        for (uint64_t i = 0; i < steps; i++, m.step++) {
            make_a_call(&m);
            if (m.n_held && conf_chance(&m.random, 15)) {
                end_one(&m);
            }
        }
        end_round(&m);
        last = round + 1 >= rounds && has_seen_all(); /* the watchdog ends the case */
        if (round % 20 == 19 || last) {
            for (int b = 0; b < n_buffers; b++) {
                CONF_OK(hd_free(m.buffers[b]));
            }
            CONF_OK(hd_close(m.runtime)); /* no claim is open */
        }
    }
    for (int k = 0; k < KINDS; k++) {
        printf("  %-22s %6llu accepted, %6llu refused\n", names[k], (unsigned long long)accepted[k],
               (unsigned long long)refused[k]);
    }
}

int main(void)
{
    conf_begin("test_refused_model");
    const struct CMUnitTest tests[] = {CONF_CASE(refused_calls_have_done_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
