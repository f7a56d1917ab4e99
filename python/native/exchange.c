/* exchange.c - the functions of C that heddle.Tensor offers to other packages: DLPack's
 * __dlpack_c_exchange_api__.
 *
 * A package finds the table of functions in a capsule at the type heddle.Tensor, and then exchanges
 * tensors without a call of Python for each one. The work stream of all exchanges is CUDA's legacy
 * default stream: work that a package puts there runs after earlier work of Heddle on the tensor.
 * Later work of Heddle runs after it.
 *
 * The table has no function for a tensor without an owner: such a function could not tell Heddle
 * when the package's work ends, so nothing would order this work. DLPack allows that.
 *
 * This file uses no header of Python, as capsule.c.
 *
 * Threads: exchange_allocate and the deleters: any, with or without the interpreter's lock. All
 * others: a thread that holds this lock.
 * Locks: none.
 * Always: hd_python_exchange_begin runs before the package can find the table.
 */
#include <stdlib.h>
#include <heddle.h>
#include "dlpack/layout.h"
#include "lender.h"

#define LEGACY_STREAM ((void *)1)

/* Functions of the interpreter, and functions of the package (dlpack.py), which the package keeps. */
typedef struct hd_python_exchange {
    void *(*get_attribute)(void *object, const char *name); /* PyObject_GetAttrString */
    void *(*number_to_pointer)(void *number);               /* PyLong_AsVoidPtr */
    void *(*pointer_to_number)(void *pointer);              /* PyLong_FromVoidPtr */
    void (*drop)(void *object);                             /* Py_DecRef */
    void *(*call)(void *function, ...);                     /* PyObject_CallFunctionObjArgs */
    void *(*release)(void);                                 /* PyEval_SaveThread */
    void (*take)(void *state);                              /* PyEval_RestoreThread */
    int (*ensure)(void);                                    /* PyGILState_Ensure */
    void (*leave)(int state);                               /* PyGILState_Release */
    void (*forget)(void);                                   /* PyErr_Clear */
    void *fail;                                             /* raises the thread's last failure */
    void *import;                                           /* makes a Tensor of the address of a managed tensor */
    void *lender;                                           /* returns the address of the lender for a kind of device */
} hd_python_exchange;

/* DLPackExchangeAPI */
typedef struct exchange_table {
    uint32_t major, minor;
    void *older;
    int (*allocate)(hdi_dlpack_tensor *prototype, hdi_dlpack_versioned **out, void *context,
                    void (*fail)(void *context, const char *kind, const char *message));
    int (*export)(void *object, hdi_dlpack_versioned **out);
    int (*import)(hdi_dlpack_versioned *managed, void **out);
    int (*view)(void *object, hdi_dlpack_tensor *out);
    int (*work_stream)(int32_t device_type, int32_t device_id, void **out);
} exchange_table;

HD_API const void *hd_python_exchange_begin(const hd_python_exchange *with);

extern const char hd_python_exchange_name[];
HD_API const char hd_python_exchange_name[] = "dlpack_exchange_api";

static hd_python_exchange python;

/* ---- tensors of Heddle for others ---- */

/* The attribute of an object as a pointer. False: an exception is set. */
static bool exchange_read_pointer(void *object, const char *name, void **out)
{
    void *number = python.get_attribute(object, name);
    if (!number) {
        return false;
    }
    *out = python.number_to_pointer(number);
    python.drop(number);
    return true;
}

/* Raises the last failure of the thread. */
static int exchange_raise(void)
{
    python.call(python.fail, NULL);
    return -1;
}

static int exchange_export(void *object, hdi_dlpack_versioned **out)
{
    void *tensor, *stream, *flags;
    if (!exchange_read_pointer(object, "_address", &tensor) ||
        !exchange_read_pointer(object, "_exchange_stream", &stream) ||
        !exchange_read_pointer(object, "_exchange_flags", &flags)) {
        return -1;
    }
    hd_dlpack_options options = {
        .size = sizeof options, .flags = (unsigned)(uintptr_t)flags, .label = "dlpack_exchange_api"};
    struct DLManagedTensorVersioned *made = NULL;
    void *state = python.release();
    hd_status status = hd_dlpack_export(tensor, (int64_t)(intptr_t)stream, &options, &made);
    python.take(state);
    if (status) {
        return exchange_raise();
    }
    *out = (hdi_dlpack_versioned *)made;
    return 0;
}

static int exchange_find_work_stream(int32_t device_type, int32_t device_id, void **out)
{
    (void)device_id;
    *out = device_type == HDI_DLPACK_CPU || device_type == HDI_DLPACK_CUDA_HOST ? NULL : LEGACY_STREAM;
    return 0;
}

/* ---- tensors of others for Heddle ---- */

static int exchange_import(hdi_dlpack_versioned *managed, void **out)
{
    void *number = python.pointer_to_number(managed);
    void *made = number ? python.call(python.import, number, NULL) : NULL;
    if (number) {
        python.drop(number);
    }
    if (!made) {
        return -1;
    }
    *out = made;
    return 0;
}

/* ---- new tensors ---- */

/* A tensor whose memory is a loan. */
typedef struct exchange_made {
    hdi_dlpack_versioned managed; /* first: the package holds this address */
    hd_python_lender *lender;
    int64_t extents[]; /* the shape, then the strides */
} exchange_made;

static void exchange_end(hdi_dlpack_versioned *self)
{
    if (self) {
        exchange_made *made = (exchange_made *)self;
        hd_python_lender_return_in_order(made->lender, self->tensor.data);
        free(made);
    }
}

/* The lender for a kind of device. NULL: it failed (hd_message). */
static hd_python_lender *exchange_find_lender(int32_t device_type)
{
    int state = python.ensure();
    void *kind = python.pointer_to_number((void *)(intptr_t)device_type);
    void *number = kind ? python.call(python.lender, kind, NULL) : NULL;
    hd_python_lender *lender = NULL;
    if (kind) {
        python.drop(kind);
    }
    if (number) {
        lender = python.number_to_pointer(number);
        python.drop(number);
    } else {
        python.forget();
    }
    python.leave(state);
    return lender;
}

/* The bytes of a row-major tensor, and its strides. False: too many. */
static bool exchange_measure(const hdi_dlpack_tensor *like, int64_t *strides, size_t *bytes)
{
    int64_t elements = 1;
    for (int32_t i = like->dims - 1; i >= 0; i--) {
        strides[i] = elements;
        if (like->shape[i] < 0 || __builtin_mul_overflow(elements, like->shape[i], &elements)) {
            return false;
        }
    }
    size_t bits = (size_t)like->type.bits * like->type.lanes;
    return !__builtin_mul_overflow((size_t)elements, (bits + 7) / 8, bytes);
}

/* Lends the memory of a new tensor. Memory of a host device is for the CPU, which waits for nothing
 * later, so the call waits for earlier work on it. */
static bool exchange_lend(exchange_made *made, size_t bytes)
{
    hdi_dlpack_tensor *t = &made->managed.tensor;
    void *address = hd_python_lender_lend(made->lender, bytes ? bytes : 1, t->device_id, NULL);
    if (address && t->device_type == HDI_DLPACK_CPU &&
        hd_buffer_wait(hd_python_lender_find(made->lender, address), HD_READ_WRITE, HD_FOREVER)) {
        hd_python_lender_return_in_order(made->lender, address);
        address = NULL;
    }
    t->data = address;
    return address != NULL;
}

static int exchange_allocate(hdi_dlpack_tensor *prototype, hdi_dlpack_versioned **out, void *context,
                             void (*fail)(void *context, const char *kind, const char *message))
{
    size_t dims = prototype->dims > 0 ? (size_t)prototype->dims : 0, bytes;
    exchange_made *made = calloc(1, sizeof *made + 2 * dims * sizeof *made->extents);
    if (!made) {
        fail(context, "MemoryError", "heddle: no memory for the description of a tensor");
        return -1;
    }
    made->managed.major = HDI_DLPACK_MAJOR;
    made->managed.minor = HDI_DLPACK_MINOR;
    made->managed.deleter = exchange_end;
    made->managed.tensor = *prototype;
    made->managed.tensor.byte_offset = 0;
    made->managed.tensor.shape = made->extents;
    made->managed.tensor.strides = made->extents + dims;
    for (size_t i = 0; i < dims; i++) {
        made->extents[i] = prototype->shape[i];
    }
    if (!exchange_measure(prototype, made->managed.tensor.strides, &bytes)) {
        fail(context, "ValueError", "heddle: the tensor contains too many elements, or a negative extent");
        free(made);
        return -1;
    }
    made->lender = exchange_find_lender(prototype->device_type);
    if (!made->lender || !exchange_lend(made, bytes)) {
        fail(context, "MemoryError", hd_message());
        free(made);
        return -1;
    }
    *out = &made->managed;
    return 0;
}

/* ---- the table ---- */

/* Stores the functions, and returns the table, which lives as long as the process. */
const void *hd_python_exchange_begin(const hd_python_exchange *with)
{
    static const exchange_table table = {
        .major = HDI_DLPACK_MAJOR,
        .minor = HDI_DLPACK_MINOR,
        .allocate = exchange_allocate,
        .export = exchange_export,
        .import = exchange_import,
        .work_stream = exchange_find_work_stream,
    };
    python = *with;
    return &table;
}
