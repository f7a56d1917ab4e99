/* test_dlpack_export.c - tensors for other libraries by DLPack: their elements, their order, and
 * their deleters.
 *
 * Promise: A consumer gets exactly the tensor's elements, in order, until it calls the deleter.
 *
 * The order is that of Heddle's work. The consumer may call the deleter at any time.
 *
 * Threads: the main one, and some that call deleters.
 * Locks: none.
 */
#include "dlpack_scene.h"
#include "foreign.h"

enum { words = 4096, bytes = words * 4 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *x, *pinned, *unified;
    bool is_process, on_cpu;
} scene;

static scene begin(const char *settings)
{
    scene s = {.runtime = conf_open(settings)};
    s.lane = conf_default_lane(s.runtime, 0);
    s.k = conf_builtins(s.runtime);
    s.is_process = conf_is_process(s.runtime);
    s.on_cpu = conf_is_host(s.runtime);
    CONF_OK(hd_alloc(s.lane, bytes, &s.x));
    CONF_OK(hd_alloc_host(s.runtime, bytes, &s.pinned));
    CONF_OK(hd_alloc_unified(s.lane, bytes, &s.unified));
    CONF_OK(hd_fill(s.x, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s.pinned, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s.unified, 0, 1, bytes, NULL));
    return s;
}

static void end(scene *s)
{
    hd_free(s->x);
    hd_free(s->pinned);
    hd_free(s->unified);
    conf_close(s->runtime);
}

/* ---- the consumer's tensor ---- */

static void types_are_those_of_dlpack(void **state)
{
    (void)state;
    static const struct {
        hd_type type;
        uint8_t code, bits;
    } table[] = {{HD_TYPE_I8, kDLInt, 8},       {HD_TYPE_U8, kDLUInt, 8},       {HD_TYPE_I16, kDLInt, 16},
                 {HD_TYPE_U16, kDLUInt, 16},    {HD_TYPE_I32, kDLInt, 32},      {HD_TYPE_U32, kDLUInt, 32},
                 {HD_TYPE_I64, kDLInt, 64},     {HD_TYPE_U64, kDLUInt, 64},     {HD_TYPE_F16, kDLFloat, 16},
                 {HD_TYPE_BF16, kDLBfloat, 16}, {HD_TYPE_F32, kDLFloat, 32},    {HD_TYPE_F64, kDLFloat, 64},
                 {HD_TYPE_C64, kDLComplex, 64}, {HD_TYPE_C128, kDLComplex, 128}};
    CONF_EQUAL(sizeof table / sizeof table[0], TENSOR_TYPES);
    scene s = begin(NULL);
    const uint64_t shape[] = {3, 5};
    hd_tensor t;
    DLManagedTensor *old = NULL;
    for (size_t i = 0; i < TENSOR_TYPES; i++) {
        CONF_OK(hd_tensor_make(s.pinned, 16, table[i].type, 2, shape, &t));
        DLManagedTensorVersioned *m = dl_export(&t, HD_DLPACK_CPU, 0);
        DLDataType type = m->dl_tensor.dtype;
        CONF_TRUE(type.code == table[i].code && type.bits == table[i].bits && type.lanes == 1);
        CONF_TRUE(m->version.major == 1 && m->flags == 0 && m->manager_ctx != NULL);
        dl_delete(m);
        CONF_OK(hd_dlpack_export_unversioned(&t, HD_DLPACK_CPU, NULL, &old));
        type = old->dl_tensor.dtype;
        CONF_TRUE(type.code == table[i].code && type.bits == table[i].bits && type.lanes == 1);
        CONF_TRUE(old->dl_tensor.ndim == 2 && old->dl_tensor.shape[1] == 5 && old->dl_tensor.strides[0] == 5);
        old->deleter(old);
    }
    CONF_OK(hd_tensor_make(s.pinned, 0, HD_TYPE_U8, 2, shape, &t));
    DLManagedTensorVersioned *m = dl_export(&t, HD_DLPACK_CPU, HD_DLPACK_BOOL);
    CONF_TRUE(m->dl_tensor.dtype.code == kDLBool && m->dl_tensor.dtype.bits == 8);
    dl_delete(m);
    end(&s);
}

/* Random views of every kind of memory that the CPU uses by its address. */
static void the_elements_are_where_it_says(void **state)
{
    (void)state;
    scene s = begin(NULL);
    conf_random r = {15};
    for (int i = 0; i < 200; i++) {
        tensor_layout l;
        tensor_shape(&r, 5000, &l);
        tensor_strides(&r, false, &l);
        size_t element = hd_type_size(l.type);
        bool even = true;
        for (int d = 0; d < l.dims; d++) {
            even = even && (l.shape[d] <= 1 || l.stride[d] % (int64_t)element == 0);
        }
        uint8_t *content = conf_memory(l.bytes);
        for (size_t b = 0; b < l.bytes; b++) {
            content[b] = (uint8_t)conf_below(&r, 256);
        }
        tensor_place place = s.on_cpu && !s.is_process && conf_chance(&r, 50) ? PLACE_FIRST
                             : conf_chance(&r, 50)                            ? PLACE_PINNED
                                                                              : PLACE_UNIFIED;
        hd_buffer *b = tensor_buffer(s.runtime, place, content, l.bytes);
        hd_tensor t = tensor_over(b, &l);
        uint64_t n = hd_tensor_elements(&t);
        uint8_t *wanted = conf_memory(n * element + 1), *got = conf_memory(n * element + 1);
        if (even) {
            DLManagedTensorVersioned *m = dl_export(&t, HD_DLPACK_CPU, HD_DLPACK_READ_ONLY);
            CONF_TRUE(m->flags == 1 && m->dl_tensor.ndim == l.dims && m->dl_tensor.strides && m->dl_tensor.shape);
            CONF_TRUE(dl_is_for_cpu(&m->dl_tensor));
            dl_read(&m->dl_tensor, got);
            CONF_OK(hd_tensor_read(&t, wanted)); /* a reader beside it */
            CONF_TRUE(memcmp(wanted, got, n * element) == 0);
            dl_delete(m);
        } else {
            DLManagedTensorVersioned *m = NULL;
            CONF_FAILS_WITH(hd_dlpack_export(&t, HD_DLPACK_CPU, NULL, &m), HD_ERROR_ARGUMENT, "multiples");
        }
        free(wanted);
        free(got);
        free(content);
        hd_free(b);
    }
    end(&s);
}

static void devices_are_those_of_the_memory(void **state)
{
    (void)state;
    scene s = begin(NULL);
    int32_t type = -1, id = -1;
    hd_tensor x = dl_words(s.x), pinned = dl_words(s.pinned), unified = dl_words(s.unified);
    int32_t host = s.on_cpu || s.is_process ? kDLCPU : kDLCUDAHost, device = s.on_cpu ? kDLCPU : kDLCUDA;
    CONF_OK(hd_dlpack_get_device(&pinned, HD_DLPACK_CPU, &type, &id));
    CONF_TRUE(type == host && id == 0);
    CONF_OK(hd_dlpack_get_device(&unified, HD_DLPACK_CPU, &type, &id));
    CONF_TRUE(type == host && id == 0);
    if (s.is_process) {
        CONF_FAILS_WITH(hd_dlpack_get_device(&x, 1, &type, &id), HD_ERROR_UNSUPPORTED, "placement=process");
        CONF_FAILS_WITH(hd_dlpack_get_device(&unified, 1, &type, &id), HD_ERROR_UNSUPPORTED, "placement=process");
        end(&s);
        return;
    }
    CONF_OK(hd_dlpack_get_device(&x, 1, &type, &id));
    CONF_TRUE(type == device && id == 0);
    CONF_OK(hd_dlpack_get_device(&unified, 2, &type, &id));
    CONF_TRUE(type == device && id == 0);
    if (!s.on_cpu) {
        CONF_FAILS_WITH(hd_dlpack_get_device(&x, HD_DLPACK_CPU, &type, &id), HD_ERROR_ARGUMENT, "give 1 for");
    }
    DLManagedTensorVersioned *m = dl_export(&x, 1, 0);
    CONF_TRUE(m->dl_tensor.device.device_type == device && m->dl_tensor.byte_offset == 0);
    CONF_EQUAL((uint64_t)(uintptr_t)m->dl_tensor.data, hd_buffer_address(s.x));
    dl_delete(m);
    end(&s);
}

static void without_elements_there_is_no_address(void **state)
{
    (void)state;
    scene s = begin(NULL);
    const uint64_t shape[] = {4, 0, 3};
    hd_tensor t;
    hd_ticket ticket;
    CONF_OK(hd_tensor_make(s.pinned, 8, HD_TYPE_F32, 3, shape, &t));
    DLManagedTensorVersioned *m = dl_export(&t, HD_DLPACK_CPU, 0);
    CONF_TRUE(m->dl_tensor.data == NULL && m->dl_tensor.shape[1] == 0 && m->dl_tensor.shape[2] == 3);
    CONF_OK(conf_fill(s.lane, s.k, s.pinned, 0, words, 5, &ticket)); /* nothing is claimed */
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    dl_delete(m);
    CONF_OK(hd_tensor_make(s.pinned, 8, HD_TYPE_F32, 0, NULL, &t)); /* one element */
    m = dl_export(&t, HD_DLPACK_CPU, 0);
    CONF_TRUE(m->dl_tensor.ndim == 0 && *(uint32_t *)m->dl_tensor.data == 5);
    dl_delete(m);
    end(&s);
}

/* ---- order ---- */

/* The consumer gets the elements behind earlier work, and later work waits for the deleter. */
static void the_cpu_has_its_turn(void **state)
{
    (void)state;
    scene s = begin("host_schedule=3");
    hd_buffer *all[] = {s.pinned, s.unified, s.x};
    for (int i = 0; i < (s.on_cpu && !s.is_process ? 3 : 2); i++) {
        hd_tensor t = dl_words(all[i]);
        for (uint32_t round = 0; round < 20; round++) {
            hd_ticket after;
            CONF_OK(conf_fill(s.lane, s.k, all[i], 0, words, round, NULL));
            DLManagedTensorVersioned *m = dl_export(&t, HD_DLPACK_CPU, 0);
            uint32_t *p = m->dl_tensor.data;
            CONF_TRUE(p[0] == round && p[words - 1] == round);
            /* reads and writes the first word */
            CONF_OK(conf_axpy(s.lane, s.k, all[i], 0, all[i], 0, 0.0f, 1, &after));
            CONF_TRUE(!hd_done(after));
            memset(p, 0x41, bytes);
            dl_delete(m);
            CONF_OK(hd_wait(after, HD_FOREVER));
            CONF_FILLED(all[i], 4, 0x41414141, bytes - 4);
        }
    }
    end(&s);
}

static void readers_do_not_wait_for_readers(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_tensor t = dl_words(s.pinned);
    DLManagedTensorVersioned *a = dl_export(&t, HD_DLPACK_CPU, HD_DLPACK_READ_ONLY);
    DLManagedTensorVersioned *b = dl_export(&t, HD_DLPACK_CPU, HD_DLPACK_READ_ONLY);
    CONF_FILLED(s.pinned, 0, 1, bytes);
    hd_ticket ticket;
    CONF_OK(conf_fill(s.lane, s.k, s.pinned, 0, words, 7, &ticket));
    dl_delete(a);
    CONF_FAILS(hd_wait(ticket, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_TRUE(*(uint32_t *)b->dl_tensor.data == 1);
    dl_delete(b);
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_FILLED(s.pinned, 0, 7, bytes);
    end(&s);
}

/* Only the bytes of the view are claimed. */
static void other_bytes_are_free(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_tensor t = dl_words(s.pinned), half;
    hd_ticket ticket;
    CONF_OK(hd_tensor_slice(&t, 0, words / 2, words / 2, 1, &half));
    DLManagedTensorVersioned *m = dl_export(&half, HD_DLPACK_CPU, 0);
    CONF_OK(conf_fill(s.lane, s.k, s.pinned, 0, words / 2, 7, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_TRUE(*(uint32_t *)m->dl_tensor.data == 1);
    dl_delete(m);
    end(&s);
}

static void a_wait_has_its_limit(void **state)
{
    (void)state;
    scene s = begin("transfer_timeout=20");
    hd_tensor t = dl_words(s.pinned);
    hd_arg use = hd_inout(s.pinned);
    hd_claim *claim = NULL;
    DLManagedTensorVersioned *m = NULL;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &claim));
    CONF_FAILS(hd_dlpack_export(&t, HD_DLPACK_CPU, NULL, &m), HD_ERROR_TIMEOUT);
    CONF_TRUE(m == NULL);
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_FILLED(s.pinned, 0, 1, bytes); /* nothing of the export is left */
    end(&s);
}

static void failed_bytes_are_not_given(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_tensor t = dl_words(s.pinned);
    hd_arg use = hd_out(s.pinned);
    hd_claim *claim = NULL;
    DLManagedTensorVersioned *m = NULL;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &claim));
    CONF_OK(hd_claim_end(claim, HD_ERROR_SYSTEM));
    CONF_FAILS(hd_dlpack_export(&t, HD_DLPACK_CPU, NULL, &m), HD_ERROR_FAILED);
    CONF_OK(hd_fill(s.pinned, 0, 2, bytes, NULL));
    CONF_FILLED(s.pinned, 0, 2, bytes);
    end(&s);
}

/* ---- streams: not with worker processes ---- */

typedef struct streams {
    scene s;
    foreign f;
    void *stream;
} streams;

static bool begin_streams(streams *t, const char *settings)
{
    t->s = begin(settings);
    if (t->s.is_process) {
        hd_tensor x = dl_words(t->s.x), pinned = dl_words(t->s.pinned);
        DLManagedTensorVersioned *m = NULL;
        CONF_FAILS_WITH(hd_dlpack_export(&x, 1, NULL, &m), HD_ERROR_UNSUPPORTED, "placement=thread");
        CONF_FAILS_WITH(hd_dlpack_export(&pinned, 1, NULL, &m), HD_ERROR_UNSUPPORTED, "placement=thread");
        end(&t->s);
        return false;
    }
    foreign_begin(&t->f, t->s.runtime);
    t->stream = foreign_stream(&t->f, 0);
    return true;
}

static void end_streams(streams *t)
{
    end(&t->s);
    foreign_enter(&t->f, 0);
    CONF_EQUAL(t->f.cuStreamDestroy(t->stream), 0);
    foreign_leave(&t->f);
    foreign_end(&t->f);
}

static void put_fill(streams *t, const DLManagedTensorVersioned *m, uint32_t word, size_t n, void *stream)
{
    foreign_enter(&t->f, 0);
    CONF_EQUAL(t->f.cuMemsetD32Async((unsigned long long)(uintptr_t)m->dl_tensor.data, word, n, stream), 0);
    foreign_leave(&t->f);
}

static void a_stream_is_in_turns_with_lanes(void **state)
{
    (void)state;
    streams t;
    if (!begin_streams(&t, "host_schedule=9")) {
        return;
    }
    int64_t all[] = {1, 2, (int64_t)(intptr_t)t.stream};
    hd_buffer *buffers[] = {t.s.x, t.s.unified, t.s.pinned};
    hd_buffer *history = NULL;
    CONF_OK(hd_alloc(t.s.lane, 30 * bytes, &history));
    for (uint32_t i = 0; i < 30; i++) {
        hd_buffer *b = buffers[i / 3 % 3];
        hd_tensor x = dl_words(b);
        CONF_OK(conf_fill(t.s.lane, t.s.k, b, 0, words, i, NULL));
        DLManagedTensorVersioned *m = dl_export(&x, all[i % 3], 0);
        put_fill(&t, m, 100 + i, words / 2, (void *)(intptr_t)all[i % 3]);
        dl_delete(m);
        CONF_OK(hd_copy(history, (size_t)i * bytes, b, 0, bytes, NULL));
    }
    for (uint32_t i = 0; i < 30; i++) {
        CONF_FILLED(history, (size_t)i * bytes, 100 + i, bytes / 2);
        CONF_FILLED(history, (size_t)i * bytes + bytes / 2, i, bytes / 2);
    }
    hd_free(history);
    end_streams(&t);
}

/* The deleter does not wait for the stream; later work does. */
static void later_work_waits_for_the_stream(void **state)
{
    (void)state;
    streams t;
    if (!begin_streams(&t, NULL)) {
        return;
    }
    gate g = {false, false};
    hd_ticket filled;
    hd_tensor x = dl_words(t.s.x);
    DLManagedTensorVersioned *m = dl_export(&x, (int64_t)(intptr_t)t.stream, 0);
    foreign_enter(&t.f, 0);
    CONF_EQUAL(t.f.cuLaunchHostFunc(t.stream, gate_stand, &g), 0);
    foreign_leave(&t.f);
    put_fill(&t, m, 5, words, t.stream);
    dl_delete(m);
    CONF_OK(conf_fill(t.s.lane, t.s.k, t.s.x, 0, 1, 6, &filled));
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    atomic_store(&g.open, true);
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_FILLED(t.s.x, 0, 6, 4);
    CONF_FILLED(t.s.x, 4, 5, bytes - 4);
    end_streams(&t);
}

static void begin_capture(streams *t)
{
    foreign_enter(&t->f, 0);
    CONF_EQUAL(t->f.cuStreamBeginCapture(t->stream, 1), 0);
    foreign_leave(&t->f);
}

static void end_capture(streams *t)
{
    void *graph = NULL;
    foreign_enter(&t->f, 0);
    CONF_EQUAL(t->f.cuStreamEndCapture(t->stream, &graph), 0);
    CONF_EQUAL(t->f.cuGraphDestroy(graph), 0);
    foreign_leave(&t->f);
}

/* Deleters during a capture spoil nothing. Claims that they could not end then end after the
 * capture. */
static void a_capture_delays_the_end(void **state)
{
    (void)state;
    streams t;
    if (!begin_streams(&t, "call_threads=1")) {
        return;
    }
    hd_tensor x = dl_words(t.s.x), part;
    DLManagedTensorVersioned *all[100], *refused = NULL;
    hd_ticket filled;
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 100; i++) { /* more than the limit of host calls */
            CONF_OK(hd_tensor_slice(&x, 0, i, 1, 1, &part));
            all[i] = dl_export(&part, (int64_t)(intptr_t)t.stream, 0);
        }
        put_fill(&t, all[0], 77, 100, t.stream);
        begin_capture(&t);
        CONF_FAILS_WITH(hd_dlpack_export(&x, (int64_t)(intptr_t)t.stream, NULL, &refused), HD_ERROR_UNSUPPORTED,
                        "captured");
        for (int i = 0; i < 100; i++) {
            dl_delete(all[i]);
        }
        /* a message of the export, which deleters do not change */
        CONF_TRUE(strstr(hd_message(), "captured") != NULL);
        CONF_OK(conf_fill(t.s.lane, t.s.k, t.s.x, 0, 50, 6, &filled));
        CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
        end_capture(&t);
        CONF_OK(hd_wait(filled, HD_FOREVER));
        CONF_FILLED(t.s.x, 0, 6, 200);
        CONF_FILLED(t.s.x, 200, 77, 200);
    }
    end_streams(&t);
}

/* If a capture holds exports up, hd_close gives them time to end, and then names them. */
static void hd_close_names_what_a_capture_holds(void **state)
{
    (void)state;
    streams t;
    if (!begin_streams(&t, "close_timeout=100")) {
        return;
    }
    hd_tensor x = dl_words(t.s.x);
    DLManagedTensorVersioned *m = dl_export(&x, (int64_t)(intptr_t)t.stream, 0);
    begin_capture(&t);
    dl_delete(m);
    conf_track(t.s.runtime, NULL);
    CONF_FAILS_WITH(hd_close(t.s.runtime), HD_ERROR_TIMEOUT, "claim 'dlpack' on a stream of ");
    end_capture(&t);
    foreign_enter(&t.f, 0);
    CONF_EQUAL(t.f.cuStreamDestroy(t.stream), 0);
    foreign_leave(&t.f);
    foreign_end(&t.f);
}

static void a_stream_that_is_gone_ends_it(void **state)
{
    (void)state;
    streams t;
    if (!begin_streams(&t, NULL)) {
        return;
    }
    if (!conf_is_host(t.s.runtime)) { /* NVIDIA's driver reads memory of a destroyed stream */
        end_streams(&t);
        skip();
    }
    void *other = foreign_stream(&t.f, 0);
    hd_tensor x = dl_words(t.s.x);
    DLManagedTensorVersioned *m = dl_export(&x, (int64_t)(intptr_t)other, 0);
    foreign_enter(&t.f, 0);
    CONF_EQUAL(t.f.cuStreamDestroy(other), 0);
    foreign_leave(&t.f);
    dl_delete(m);
    uint32_t word = 0;
    /* work in that stream may be missing */
    CONF_FAILS(hd_read(t.s.x, 0, &word, 4), HD_ERROR_FAILED);
    CONF_OK(hd_fill(t.s.x, 0, 3, bytes, NULL));
    CONF_FILLED(t.s.x, 0, 3, bytes);
    end_streams(&t);
}

/* ---- without order ---- */

static void what_is_unordered_is_held(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_buffer *b = s.is_process ? s.pinned : s.x, *next = NULL;
    hd_tensor t = dl_words(b), unified = dl_words(s.unified);
    hd_ticket ticket;
    DLManagedTensorVersioned *m = NULL;
    CONF_FAILS_WITH(hd_dlpack_export(&unified, HD_DLPACK_UNORDERED, NULL, &m), HD_ERROR_UNSUPPORTED, "unified");
    m = dl_export(&t, HD_DLPACK_UNORDERED, 0);
    CONF_OK(conf_fill(s.lane, s.k, b, 0, words, 9, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER)); /* it does not wait for the deleter */
    if (dl_is_for_cpu(&m->dl_tensor)) {
        CONF_TRUE(*(uint32_t *)m->dl_tensor.data == 9);
    }
    uint64_t address = hd_buffer_address(b);
    hd_free(b);
    for (int i = 0; i < 50; i++) {
        if (s.is_process) {
            CONF_OK(hd_alloc_host(s.runtime, bytes, &next));
        } else {
            CONF_OK(hd_alloc(s.lane, bytes, &next));
        }
        CONF_TRUE(hd_buffer_address(next) != address);
        hd_free(next);
    }
    dl_delete(m);
    s.pinned = s.is_process ? NULL : s.pinned;
    s.x = s.is_process ? s.x : NULL;
    end(&s);
}

/* ---- deleters ---- */

static void deleters_do_no_harm_after_hd_close(void **state)
{
    (void)state;
    scene s = begin("close_timeout=100");
    hd_tensor t = dl_words(s.pinned), u = dl_words(s.unified);
    hd_dlpack_options options = {.size = sizeof options, .label = "still out"};
    DLManagedTensorVersioned *claimed = NULL, *held = NULL;
    DLManagedTensor *old = NULL;
    CONF_OK(hd_dlpack_export(&t, HD_DLPACK_CPU, &options, &claimed));
    CONF_OK(hd_dlpack_export(&t, HD_DLPACK_UNORDERED, &options, &held));
    CONF_OK(hd_dlpack_export_unversioned(&u, HD_DLPACK_CPU, &options, &old));
    conf_track(s.runtime, NULL);
    CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "claim 'still out' of ");
    CONF_TRUE(strstr(hd_message(), ", claim 'still out' of ") != NULL);
    CONF_TRUE(strstr(hd_message(), "; export 'still out' of DLPack without order is still out") != NULL);
    uint32_t *p = claimed->dl_tensor.data;
    CONF_TRUE(p[0] == 1); /* the memory exists until the program ends */
    p[0] = 5;
    hd_runtime *next = conf_open(NULL);
    dl_delete(claimed);
    dl_delete(held);
    old->deleter(old);
    CONF_TRUE(strstr(hd_message(), "still out") != NULL);
    conf_close(next);
}

/* Only unordered exports are open: first of a live buffer, then of a freed one. */
static void hd_close_names_what_is_unordered(void **state)
{
    (void)state;
    for (int freed = 0; freed < 2; freed++) {
        scene s = begin(NULL);
        hd_buffer *b = s.is_process ? s.pinned : s.x;
        hd_tensor t = dl_words(b), none = t;
        none.shape[0] = 0;
        hd_dlpack_options options = {.size = sizeof options, .label = "ended"};
        DLManagedTensorVersioned *ended = NULL, *held = NULL, *empty = NULL;
        CONF_OK(hd_dlpack_export(&t, HD_DLPACK_UNORDERED, &options, &ended));
        dl_delete(ended);
        options.label = "long lived";
        CONF_OK(hd_dlpack_export(&none, HD_DLPACK_UNORDERED, &options, &empty));
        CONF_OK(hd_dlpack_export(&t, HD_DLPACK_UNORDERED, &options, &held));
        CONF_OK(hd_buffer_wait(b, HD_READ, HD_FOREVER));
        if (freed) {
            CONF_OK(hd_free(b));
        }
        conf_track(s.runtime, NULL);
        CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "export 'long lived'");
        if (dl_is_for_cpu(&held->dl_tensor)) {
            uint32_t *p = held->dl_tensor.data;
            CONF_TRUE(p[0] == 1 && p[words - 1] == 1);
            p[0] = 5;
        }
        hd_runtime *next = conf_open(NULL);
        dl_delete(held);
        dl_delete(empty);
        CONF_TRUE(strstr(hd_message(), "long lived") != NULL);
        conf_close(next);
    }
}

typedef struct bunch {
    DLManagedTensorVersioned *all[32];
} bunch;

static void *delete_all(void *context)
{
    bunch *b = context;
    for (int i = 0; i < 32; i++) {
        dl_delete(b->all[i]);
    }
    return NULL;
}

static void any_thread_may_delete(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_tensor t = dl_words(s.pinned);
    for (int round = 0; round < 10; round++) {
        bunch bunches[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 32; j++) {
                bunches[i].all[j] = dl_export(&t, j % 4 ? HD_DLPACK_CPU : HD_DLPACK_UNORDERED, HD_DLPACK_READ_ONLY);
            }
        }
        hd_ticket ticket;
        CONF_OK(conf_fill(s.lane, s.k, s.pinned, 0, words, (uint32_t)round, &ticket));
        CONF_TRUE(!hd_done(ticket));
        for (int i = 0; i < 4; i++) {
            CONF_EQUAL(pthread_create(&threads[i], NULL, delete_all, &bunches[i]), 0);
        }
        CONF_OK(hd_wait(ticket, HD_FOREVER));
        for (int i = 0; i < 4; i++) {
            CONF_EQUAL(pthread_join(threads[i], NULL), 0);
        }
        CONF_FILLED(s.pinned, 0, (uint32_t)round, bytes);
    }
    end(&s);
}

/* ---- bad input ---- */

static void bad_input_is_refused(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_tensor t = dl_words(s.pinned), bad = t;
    DLManagedTensorVersioned *m = NULL;
    DLManagedTensor *old = NULL;
    hd_dlpack_options options = {.size = sizeof options, .flags = HD_DLPACK_READ_ONLY};
    CONF_FAILS_WITH(hd_dlpack_export(&t, -2, NULL, &m), HD_ERROR_ARGUMENT, "stream -2");
    CONF_FAILS_WITH(hd_dlpack_export_unversioned(&t, HD_DLPACK_CPU, &options, &old), HD_ERROR_ARGUMENT, "read-only");
    options.flags = 64;
    CONF_FAILS_WITH(hd_dlpack_export(&t, HD_DLPACK_CPU, &options, &m), HD_ERROR_ARGUMENT, "flags 0x40");
    CONF_FAILS_WITH(hd_dlpack_export_unversioned(&t, HD_DLPACK_CPU, &options, &old), HD_ERROR_ARGUMENT, "flags 0x40");
    CONF_FAILS_WITH(hd_dlpack_export(&t, HD_DLPACK_CPU, &options, &m), HD_ERROR_ARGUMENT, "leave out");
    int32_t device[2] = {-7, -7};
    /* NVIDIA's driver reads memory behind any stream handle, even a false one */
    if (s.is_process || s.on_cpu) {
        for (int64_t stream = 4096; stream > -3; stream -= 4098) {
            hd_status wanted = hd_dlpack_export(&t, stream, NULL, &m);
            CONF_TRUE(wanted == (s.is_process && stream > 0 ? HD_ERROR_UNSUPPORTED : HD_ERROR_ARGUMENT));
            CONF_FAILS(hd_dlpack_get_device(&t, stream, &device[0], &device[1]), wanted);
            CONF_TRUE(device[0] == -7 && device[1] == -7);
        }
    }
    hd_dlpack_options typed = {.size = sizeof typed, .type = (hd_type)77};
    CONF_FAILS_WITH(hd_dlpack_export(&t, HD_DLPACK_CPU, &typed, &m), HD_ERROR_ARGUMENT, "type 77");
    options.flags = HD_DLPACK_BOOL;
    CONF_FAILS_WITH(hd_dlpack_export(&t, HD_DLPACK_CPU, &options, &m), HD_ERROR_ARGUMENT, "u32");
    options = (hd_dlpack_options){.size = sizeof options, .device = 77};
    CONF_FAILS(hd_dlpack_export(&t, 1, &options, &m), HD_ERROR_NO_DEVICE);
    bad.shape[0]++;
    CONF_FAILS(hd_dlpack_export(&bad, HD_DLPACK_CPU, NULL, &m), HD_ERROR_RANGE);
    bad = t;
    bad.type = (hd_type)99;
    CONF_FAILS(hd_dlpack_export(&bad, HD_DLPACK_CPU, NULL, &m), HD_ERROR_ARGUMENT);
    const uint64_t shape[] = {0, (uint64_t)INT64_MAX + 1};
    CONF_OK(hd_tensor_make_strided(s.pinned, 0, HD_TYPE_U8, 2, shape, (const int64_t[]){1, 1}, &bad));
    CONF_FAILS_WITH(hd_dlpack_export(&bad, HD_DLPACK_CPU, NULL, &m), HD_ERROR_ARGUMENT, "2^63");
    CONF_OK(hd_free(s.pinned));
    s.pinned = NULL;
    CONF_FAILS(hd_dlpack_export(&t, HD_DLPACK_CPU, NULL, &m), HD_ERROR_HANDLE);
    CONF_FAILS(hd_dlpack_export(&t, HD_DLPACK_UNORDERED, NULL, &m), HD_ERROR_HANDLE);
    CONF_TRUE(m == NULL && old == NULL);
    end(&s);
}

/* As many exports as there are lanes for claims succeed. The next one is refused clearly, and
 * leaves nothing behind. */
static void too_many_are_refused(void **state)
{
    (void)state;
    enum { of_a_device = 160, room = 16 * of_a_device + 1 };
    scene s = begin(NULL);
    hd_tensor t = dl_words(s.pinned);
    static DLManagedTensorVersioned *all[room];
    hd_dlpack_options options = {.size = sizeof options, .flags = HD_DLPACK_READ_ONLY};
    int n = 0;
    while (n < room && hd_dlpack_export(&t, HD_DLPACK_CPU, &options, &all[n]) == HD_OK) {
        n++;
    }
    /* pinned memory belongs to none of them */
    CONF_EQUAL(n, of_a_device * hd_device_count(s.runtime));
    DLManagedTensorVersioned *none = NULL;
    CONF_FAILS(hd_dlpack_export(&t, HD_DLPACK_CPU, &options, &none), HD_ERROR_LIMIT);
    for (int i = 0; i < n; i++) {
        dl_delete(all[i]);
    }
    CONF_OK(hd_fill(s.pinned, 0, 2, bytes, NULL));
    CONF_FILLED(s.pinned, 0, 2, bytes);
    end(&s);
}

int main(void)
{
    conf_begin("test_dlpack_export");
    const struct CMUnitTest tests[] = {
        CONF_CASE(types_are_those_of_dlpack),
        CONF_CASE(the_elements_are_where_it_says),
        CONF_CASE(devices_are_those_of_the_memory),
        CONF_CASE(without_elements_there_is_no_address),
        CONF_CASE(the_cpu_has_its_turn),
        CONF_CASE(readers_do_not_wait_for_readers),
        CONF_CASE(other_bytes_are_free),
        CONF_CASE(a_wait_has_its_limit),
        CONF_CASE(failed_bytes_are_not_given),
        CONF_CASE(a_stream_is_in_turns_with_lanes),
        CONF_CASE(later_work_waits_for_the_stream),
        CONF_CASE(a_capture_delays_the_end),
        CONF_CASE(hd_close_names_what_a_capture_holds),
        CONF_CASE(a_stream_that_is_gone_ends_it),
        CONF_CASE(what_is_unordered_is_held),
        CONF_CASE(deleters_do_no_harm_after_hd_close),
        CONF_CASE(hd_close_names_what_is_unordered),
        CONF_CASE(any_thread_may_delete),
        CONF_CASE(bad_input_is_refused),
        CONF_CASE(too_many_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
