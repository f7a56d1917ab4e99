/* test_dlpack_import.c - tensors of other libraries by DLPack: their elements, the order with the
 * producer's stream, and the producer's deleter.
 *
 * Promise: Heddle uses a producer's tensor in place and in order; its deleter runs once at the end.
 *
 * The end is behind the last use.
 *
 * Threads: the main one, and one that frees beside it.
 * Locks: none.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include "dlpack_scene.h"
#include "foreign.h"

enum { words = 4096, bytes = words * 4 };

/* A producer with its own pages. */
typedef struct producer {
    DLManagedTensorVersioned versioned;
    DLManagedTensor old;
    int64_t shape[HD_TENSOR_DIMS + 1], strides[HD_TENSOR_DIMS + 1];
    uint8_t *memory;
    atomic_int deleted;
} producer;

static void delete_versioned(DLManagedTensorVersioned *self)
{
    atomic_fetch_add(&((producer *)self->manager_ctx)->deleted, 1);
}

static void delete_old(DLManagedTensor *self)
{
    atomic_fetch_add(&((producer *)self->manager_ctx)->deleted, 1);
}

/* Makes words on the CPU: element i is i. */
static void produce(producer *p)
{
    memset(p, 0, sizeof *p);
    p->memory = aligned_alloc(4096, bytes);
    CONF_TRUE(p->memory != NULL);
    for (uint32_t i = 0; i < words; i++) {
        memcpy(p->memory + 4 * i, &i, 4);
    }
    p->shape[0] = words;
    p->strides[0] = 1;
    DLTensor t = {.data = p->memory,
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = {kDLUInt, 32, 1},
                  .shape = p->shape,
                  .strides = p->strides};
    p->versioned = (DLManagedTensorVersioned){.version = {1, 1}, .manager_ctx = p, .deleter = delete_versioned};
    p->versioned.dl_tensor = t;
    p->old = (DLManagedTensor){.dl_tensor = t, .manager_ctx = p, .deleter = delete_old};
}

/* Frees the producer after its deleter ran. */
static void drop(producer *p)
{
    while (atomic_load(&p->deleted) == 0) { /* on a thread of the library */
        conf_sleep_ms(1);
    }
    CONF_EQUAL(atomic_load(&p->deleted), 1);
    free(p->memory);
}

/* A worker process cannot use memory of the program, so the import is refused, and nothing else
 * happens. */
static bool is_refused(hd_runtime *runtime)
{
    if (!conf_is_process(runtime)) {
        return false;
    }
    producer p;
    hd_tensor t = {.dims = -7};
    produce(&p);
    CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, NULL, &t), HD_ERROR_UNSUPPORTED,
                    "placement");
    CONF_FAILS_WITH(hd_dlpack_import_unversioned(runtime, &p.old, HD_DLPACK_CPU, NULL, &t), HD_ERROR_UNSUPPORTED,
                    "placement");
    CONF_TRUE(t.dims == -7 && p.deleted == 0);
    free(p.memory);
    conf_close(runtime);
    return true;
}

static void both_forms_are_taken(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    for (int form = 0; form < 2; form++) {
        producer p;
        hd_tensor t;
        produce(&p);
        if (form) {
            CONF_OK(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, NULL, &t));
        } else {
            p.old.dl_tensor.strides = NULL; /* row-major */
            CONF_OK(hd_dlpack_import_unversioned(runtime, &p.old, HD_DLPACK_CPU, NULL, &t));
        }
        CONF_TRUE(t.type == HD_TYPE_U32 && t.dims == 1 && t.shape[0] == words && t.stride[0] == 4 && t.offset == 0);
        CONF_EQUAL(hd_buffer_size(t.buffer), bytes);
        hd_buffer *sum = NULL;
        uint32_t got[2];
        CONF_OK(hd_alloc(lane, 8, &sum));
        /* a kernel reads the producer's memory */
        CONF_OK(conf_copy(lane, k, sum, 0, t.buffer, 400, 2, NULL));
        CONF_OK(hd_read(sum, 0, got, 8));
        CONF_TRUE(got[0] == 100 && got[1] == 101);
        CONF_OK(conf_fill(lane, k, t.buffer, 0, 2, 9, NULL)); /* and writes it */
        CONF_OK(hd_buffer_wait(t.buffer, HD_READ_WRITE, HD_FOREVER));
        CONF_TRUE(((uint32_t *)p.memory)[0] == 9 && ((uint32_t *)p.memory)[2] == 2);
        CONF_EQUAL(atomic_load(&p.deleted), 0);
        CONF_OK(hd_free(t.buffer));
        CONF_OK(hd_free(sum));
        drop(&p);
    }
    conf_close(runtime);
}

/* Random layouts, with backward strides and gaps, and an offset in bytes. */
static void every_layout_is_taken(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    static const DLDataType types[] = {{kDLInt, 8, 1},      {kDLUInt, 8, 1},     {kDLInt, 16, 1},   {kDLUInt, 16, 1},
                                       {kDLInt, 32, 1},     {kDLUInt, 32, 1},    {kDLInt, 64, 1},   {kDLUInt, 64, 1},
                                       {kDLFloat, 16, 1},   {kDLBfloat, 16, 1},  {kDLFloat, 32, 1}, {kDLFloat, 64, 1},
                                       {kDLComplex, 64, 1}, {kDLComplex, 128, 1}};
    conf_random r = {16};
    for (int i = 0; i < 200; i++) {
        tensor_layout l;
        tensor_shape(&r, 5000, &l);
        tensor_strides(&r, conf_chance(&r, 30), &l);
        size_t element = hd_type_size(l.type), room = (l.bytes + 4095) / 4096 * 4096;
        bool even = true;
        producer p;
        produce(&p);
        free(p.memory);
        p.memory = aligned_alloc(4096, room);
        for (size_t b = 0; b < room; b++) {
            p.memory[b] = (uint8_t)conf_below(&r, 256);
        }
        DLTensor *dl = &p.versioned.dl_tensor;
        for (size_t j = 0; j < TENSOR_TYPES; j++) {
            dl->dtype = tensor_types[j] == l.type ? types[j] : dl->dtype;
        }
        dl->ndim = l.dims;
        dl->data = p.memory + l.offset / 2;
        dl->byte_offset = l.offset - l.offset / 2;
        for (int d = 0; d < l.dims; d++) {
            even = even && l.stride[d] % (int64_t)element == 0;
            p.shape[d] = (int64_t)l.shape[d];
            p.strides[d] = l.stride[d] / (int64_t)element;
        }
        if (!even) {
            free(p.memory);
            continue;
        }
        hd_tensor t;
        hd_dlpack_options options = {.size = sizeof options, .type = l.type};
        CONF_OK(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, &options, &t));
        uint64_t n = hd_tensor_elements(&t);
        uint8_t *wanted = conf_memory(n * element + 1), *got = conf_memory(n * element + 1);
        CONF_OK(hd_tensor_read(&t, got));
        dl_read(dl, wanted);
        CONF_TRUE(memcmp(wanted, got, n * element) == 0);
        free(wanted);
        free(got);
        CONF_OK(hd_free(t.buffer));
        drop(&p);
    }
    conf_close(runtime);
}

static void the_deleter_comes_after_the_last_use(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    producer p;
    hd_tensor t;
    hd_claim *claim = NULL;
    produce(&p);
    CONF_OK(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_UNORDERED, NULL, &t));
    hd_arg use = hd_inout(t.buffer);
    CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
    CONF_OK(hd_free(t.buffer));
    conf_sleep_ms(3);
    CONF_EQUAL(atomic_load(&p.deleted), 0);
    CONF_OK(hd_claim_end(claim, HD_OK));
    drop(&p);
    /* hd_close calls it for tensors that nobody freed */
    producer open;
    produce(&open);
    CONF_OK(hd_dlpack_import(runtime, &open.versioned, HD_DLPACK_CPU, NULL, &t));
    conf_close(runtime);
    CONF_EQUAL(atomic_load(&open.deleted), 1);
    free(open.memory);
}

/* A null deleter is not called, and nobody hears of the end of the import. The structure is gone
 * once the import returns. */
static void without_a_deleter_the_structure_is_not_looked_at_again(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    unsigned char *left[4];
    int n = 0;
    for (int old = 0; old < 2; old++) {
        for (int empty = 0; empty < 2; empty++) {
            producer *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CONF_TRUE(p != MAP_FAILED);
            produce(p);
            unsigned char *memory = p->memory;
            p->versioned.deleter = NULL;
            p->old.deleter = NULL;
            p->shape[0] = empty ? 0 : words;
            hd_tensor t;
            CONF_OK(old ? hd_dlpack_import_unversioned(runtime, &p->old, HD_DLPACK_CPU, NULL, &t)
                        : hd_dlpack_import(runtime, &p->versioned, HD_DLPACK_CPU, NULL, &t));
            CONF_EQUAL(munmap(p, sizeof *p), 0);
            hd_claim *claim = NULL;
            hd_arg use = hd_in(t.buffer);
            /* so that the import ends on a thread of the library */
            CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
            CONF_OK(hd_free(t.buffer));
            CONF_OK(hd_claim_end(claim, HD_OK));
            left[n++] = memory;
        }
    }
    conf_close(runtime); /* which waits for all of them */
    while (n > 0) {
        free(left[--n]);
    }
}

static void without_elements_the_deleter_is_called_at_once(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    producer p;
    hd_tensor t;
    produce(&p);
    p.versioned.dl_tensor.data = NULL;
    p.shape[0] = 0;
    CONF_OK(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, NULL, &t));
    CONF_EQUAL(atomic_load(&p.deleted), 1);
    CONF_TRUE(hd_tensor_elements(&t) == 0 && t.dims == 1 && t.shape[0] == 0);
    CONF_OK(hd_tensor_read(&t, p.memory));
    CONF_OK(hd_free(t.buffer));
    conf_close(runtime);
    drop(&p);
}

/* ---- the producer's stream ---- */

/* Uses come behind the producer's work in its stream. */
static void the_stream_is_waited_for(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    foreign f;
    foreign_begin(&f, runtime);
    void *stream = foreign_stream(&f, 0);
    bool on_cpu = conf_is_host(runtime);
    uint64_t address = foreign_alloc(&f, 0, bytes);
    for (int round = 0; round < 4; round++) {
        producer p;
        gate g = {false, false};
        hd_tensor t, refused = {.dims = -7};
        produce(&p);
        p.versioned.dl_tensor.data = (void *)(uintptr_t)address;
        p.versioned.dl_tensor.device.device_type = on_cpu ? kDLCPU : kDLCUDA;
        foreign_enter(&f, 0);
        CONF_EQUAL(f.cuLaunchHostFunc(stream, gate_stand, &g), 0);
        CONF_EQUAL(f.cuMemsetD32Async(address, 40u + (unsigned)round, words, stream), 0);
        foreign_leave(&f);
        if (!on_cpu) {
            CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, NULL, &refused), HD_ERROR_ARGUMENT,
                            "give 1 for");
            p.versioned.dl_tensor.device.device_id = 63;
            CONF_FAILS(hd_dlpack_import(runtime, &p.versioned, 1, NULL, &refused), HD_ERROR_NO_DEVICE);
            p.versioned.dl_tensor.device.device_id = 0;
        }
        CONF_OK(hd_dlpack_import(runtime, &p.versioned, (int64_t)(intptr_t)stream, NULL, &t));
        CONF_FAILS(hd_buffer_wait(t.buffer, HD_READ, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
        atomic_store(&g.open, true);
        CONF_FILLED(t.buffer, 0, 40u + (unsigned)round, bytes);
        CONF_OK(hd_free(t.buffer));
        drop(&p);
        CONF_TRUE(refused.dims == -7);
    }
    conf_close(runtime);
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuStreamDestroy(stream), 0);
    foreign_leave(&f);
    foreign_free(&f, 0, address);
    foreign_end(&f);
}

/* A failure after the import gives the memory back without the deleter. */
static void a_stream_that_cannot_be_leaves_the_tensor(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    foreign f;
    foreign_begin(&f, runtime);
    void *stream = foreign_stream(&f, 0), *graph = NULL;
    producer p;
    hd_tensor t = {.dims = -7};
    produce(&p);
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuStreamBeginCapture(stream, 1), 0);
    foreign_leave(&f);
    CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, (int64_t)(intptr_t)stream, NULL, &t), HD_ERROR_UNSUPPORTED,
                    "captured");
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuStreamEndCapture(stream, &graph), 0);
    CONF_EQUAL(f.cuGraphDestroy(graph), 0);
    foreign_leave(&f);
    CONF_TRUE(t.dims == -7 && atomic_load(&p.deleted) == 0);
    hd_dlpack_options options = {.size = sizeof options, .device = 99};
    CONF_FAILS(hd_dlpack_import(runtime, &p.versioned, 1, &options, &t), HD_ERROR_NO_DEVICE);
    CONF_OK(hd_dlpack_import(runtime, &p.versioned, (int64_t)(intptr_t)stream, NULL,
                             &t)); /* nothing of the other imports is left */
    CONF_OK(hd_free(t.buffer));
    drop(&p);
    conf_close(runtime);
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuStreamDestroy(stream), 0);
    foreign_leave(&f);
    foreign_end(&f);
}

/* ---- bad input ---- */

typedef void spoil(producer *p);

static void spoil_version(producer *p)
{
    p->versioned.version.major = 2;
    /* Heddle reads none of it */
    memset(&p->versioned.dl_tensor, 0xff, sizeof p->versioned.dl_tensor);
}
static void spoil_old_version(producer *p)
{
    p->versioned.version.major = 0;
}
static void spoil_flags(producer *p)
{
    p->versioned.flags = 1;
}
static void spoil_device(producer *p)
{
    p->versioned.dl_tensor.device.device_type = kDLOpenCL;
}
static void spoil_lanes(producer *p)
{
    p->versioned.dl_tensor.dtype.lanes = 4;
}
static void spoil_bits(producer *p)
{
    p->versioned.dl_tensor.dtype.bits = 4;
}
static void spoil_code(producer *p)
{
    p->versioned.dl_tensor.dtype = (DLDataType){8, 8, 1};
}
static void spoil_bool(producer *p)
{
    p->versioned.dl_tensor.dtype = (DLDataType){kDLBool, 32, 1};
}
static void spoil_dims(producer *p)
{
    p->versioned.dl_tensor.ndim = -1;
}
static void spoil_many_dims(producer *p)
{
    for (int i = 0; i < 9; i++) {
        p->shape[i] = p->strides[i] = 1;
    }
    p->versioned.dl_tensor.ndim = 9;
}
static void spoil_shape(producer *p)
{
    p->shape[0] = -3;
}
static void spoil_shape_pointer(producer *p)
{
    p->versioned.dl_tensor.shape = NULL;
}
static void spoil_elements(producer *p)
{
    p->versioned.dl_tensor.ndim = 2;
    p->shape[0] = p->shape[1] = INT64_MAX;
    p->strides[0] = p->strides[1] = 0;
}
static void spoil_stride(producer *p)
{
    p->strides[0] = INT64_MAX / 2;
}
static void spoil_reach(producer *p)
{
    p->strides[0] = -(INT64_MAX / 8);
}
static void spoil_row_major(producer *p)
{
    p->versioned.dl_tensor.ndim = 3;
    p->versioned.dl_tensor.strides = NULL;
    p->shape[0] = 2;
    p->shape[1] = p->shape[2] = INT64_MAX;
}
static void spoil_data(producer *p)
{
    p->versioned.dl_tensor.data = NULL;
}
static void spoil_offset(producer *p)
{
    p->versioned.dl_tensor.byte_offset = UINT64_MAX - 8;
}

static void bad_tensors_stay_the_callers(void **state)
{
    (void)state;
    static const struct {
        spoil *spoil;
        hd_status status;
        const char *word;
    } all[] = {{spoil_version, HD_ERROR_UNSUPPORTED, "version 2"},
               {spoil_old_version, HD_ERROR_UNSUPPORTED, "version 0"},
               {spoil_flags, HD_ERROR_ACCESS, "HD_DLPACK_READ_ONLY"},
               {spoil_device, HD_ERROR_UNSUPPORTED, "device type 4"},
               {spoil_lanes, HD_ERROR_UNSUPPORTED, "4 lanes"},
               {spoil_bits, HD_ERROR_UNSUPPORTED, "4 bits"},
               {spoil_code, HD_ERROR_UNSUPPORTED, "type code 8"},
               {spoil_bool, HD_ERROR_UNSUPPORTED, "type code 6"},
               {spoil_dims, HD_ERROR_ARGUMENT, "-1 dimensions"},
               {spoil_many_dims, HD_ERROR_UNSUPPORTED, "9 dimensions"},
               {spoil_shape, HD_ERROR_ARGUMENT, "-3 elements"},
               {spoil_shape_pointer, HD_ERROR_ARGUMENT, "shape is null"},
               {spoil_elements, HD_ERROR_ARGUMENT, "2^63"},
               {spoil_stride, HD_ERROR_ARGUMENT, "2^63"},
               {spoil_reach, HD_ERROR_ARGUMENT, "outside of all addresses"},
               {spoil_row_major, HD_ERROR_ARGUMENT, "2^63"},
               {spoil_data, HD_ERROR_ARGUMENT, "address is null"},
               {spoil_offset, HD_ERROR_ARGUMENT, "outside of all addresses"}};
    hd_runtime *runtime = conf_open(NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        producer p;
        hd_tensor t = {.dims = -7};
        produce(&p);
        all[i].spoil(&p);
        CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, NULL, &t), all[i].status, all[i].word);
        CONF_TRUE(t.dims == -7 && p.deleted == 0);
        if (i > 2) {
            p.old.dl_tensor = p.versioned.dl_tensor;
            CONF_FAILS_WITH(hd_dlpack_import_unversioned(runtime, &p.old, HD_DLPACK_CPU, NULL, &t), all[i].status,
                            all[i].word);
            CONF_TRUE(t.dims == -7 && p.deleted == 0);
        }
        free(p.memory);
    }
    producer p;
    hd_tensor t = {.dims = -7};
    produce(&p);
    hd_dlpack_options options = {.size = sizeof options, .flags = HD_DLPACK_BOOL};
    CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, &options, &t), HD_ERROR_ARGUMENT, "flags");
    options = (hd_dlpack_options){.size = sizeof options, .type = HD_TYPE_F32};
    CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, &options, &t), HD_ERROR_ARGUMENT,
                    "u32, not f32");
    CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, -2, NULL, &t), HD_ERROR_ARGUMENT, "stream -2");
    if (conf_is_host(runtime)) {
        p.versioned.dl_tensor.device.device_type = kDLCUDA;
        CONF_FAILS_WITH(hd_dlpack_import(runtime, &p.versioned, 1, NULL, &t), HD_ERROR_UNSUPPORTED, "device type 2");
    }
    CONF_TRUE(t.dims == -7 && p.deleted == 0);
    free(p.memory);
    conf_close(runtime);
}

static void what_is_there_already_is_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (is_refused(runtime)) {
        return;
    }
    producer p;
    hd_tensor t, again = {.dims = -7};
    produce(&p);
    p.versioned.flags = 1;
    hd_dlpack_options options = {.size = sizeof options, .flags = HD_DLPACK_READ_ONLY, .label = "weights"};
    CONF_OK(hd_dlpack_import(runtime, &p.versioned, HD_DLPACK_CPU, &options, &t));
    CONF_FAILS_WITH(hd_dlpack_import_unversioned(runtime, &p.old, HD_DLPACK_CPU, NULL, &again), HD_ERROR_ARGUMENT,
                    "'weights'");
    /* Heddle's own memory: an exported buffer does not come back as another buffer */
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    CONF_OK(hd_fill(pinned, 0, 1, bytes, NULL));
    hd_tensor own = dl_words(pinned);
    DLManagedTensorVersioned *m = dl_export(&own, HD_DLPACK_CPU, 0);
    CONF_FAILS_WITH(hd_dlpack_import(runtime, m, HD_DLPACK_CPU, NULL, &again), HD_ERROR_ARGUMENT, "Heddle's own");
    dl_delete(m);
    CONF_TRUE(again.dims == -7);
    /* an import can be exported, too, and ends behind its consumer */
    m = dl_export(&t, HD_DLPACK_CPU, HD_DLPACK_READ_ONLY);
    CONF_TRUE(m->dl_tensor.data == p.memory);
    CONF_OK(hd_free(t.buffer));
    conf_sleep_ms(3);
    CONF_EQUAL(atomic_load(&p.deleted), 0);
    dl_delete(m);
    drop(&p);
    CONF_OK(hd_free(pinned));
    conf_close(runtime);
}

/* Tensors go from one runtime to another one and back, while a thread fills the first. */
static void runtimes_hand_tensors_over(void **state)
{
    (void)state;
    hd_runtime *a = conf_open(NULL), *b = NULL;
    if (is_refused(a)) {
        return;
    }
    /* pinned memory of one process belongs to the driver, in every runtime */
    if (!conf_is_host(a)) {
        conf_close(a);
        skip();
    }
    b = conf_open(NULL);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(conf_default_lane(a, 0), bytes, &x));
    for (uint32_t round = 0; round < 50; round++) {
        hd_tensor t = dl_words(x), other;
        CONF_OK(hd_fill(x, 0, round, bytes, NULL));
        DLManagedTensorVersioned *m = dl_export(&t, HD_DLPACK_CPU, 0);
        CONF_OK(hd_dlpack_import(b, m, HD_DLPACK_CPU, NULL, &other));
        CONF_FILLED(other.buffer, 0, round, bytes);
        CONF_OK(hd_fill(other.buffer, 0, round + 1000, bytes / 2, NULL));
        CONF_OK(hd_free(other.buffer)); /* the deleter ends the claim behind the fill */
        CONF_FILLED(x, 0, round + 1000, bytes / 2);
        CONF_FILLED(x, bytes / 2, round, bytes / 2);
    }
    CONF_OK(hd_free(x));
    conf_close(b);
    conf_close(a);
}

int main(void)
{
    conf_begin("test_dlpack_import");
    const struct CMUnitTest tests[] = {
        CONF_CASE(both_forms_are_taken),
        CONF_CASE(every_layout_is_taken),
        CONF_CASE(the_deleter_comes_after_the_last_use),
        CONF_CASE(without_a_deleter_the_structure_is_not_looked_at_again),
        CONF_CASE(without_elements_the_deleter_is_called_at_once),
        CONF_CASE(the_stream_is_waited_for),
        CONF_CASE(a_stream_that_cannot_be_leaves_the_tensor),
        CONF_CASE(bad_tensors_stay_the_callers),
        CONF_CASE(what_is_there_already_is_refused),
        CONF_CASE(runtimes_hand_tensors_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
