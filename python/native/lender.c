/* lender.c - memory of Heddle for the allocators of other packages of Python: CuPy, Numba, cuda.core, RMM.
 *
 * A lender gives such a package addresses of buffers. The package uses an address in streams that
 * Heddle does not see. So the lender puts two short claims on a stream around the life of a block:
 * behind the first one, work in the stream runs after all earlier work on the memory. Behind the
 * second one, later work on the memory runs after all work that the stream contains at that time.
 * Between them, nobody else knows the buffer, and no claim is open.
 *
 * Threads: any. Functions with "cupy" in their name expect a thread that holds the interpreter's
 * lock, and release it meanwhile. All others expect a thread without this lock.
 * Locks: the lender's lock, for its table and its list; no call of Heddle happens under it.
 * Always: a block in the table is lent out. If the end of a loan cannot be ordered yet, since the
 * stream is being captured, the block is in the list of late blocks, and its buffer lives on.
 */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <heddle.h>
#include "lender.h"

typedef struct lender_block {
    void *address; /* with the size, the key of the table */
    size_t bytes;  /* at least 1 */
    hd_buffer *buffer;
    void *stream; /* in which the package uses the block */
    uint64_t stream_id;
    int device, ordinal;
    struct lender_block *next; /* in the list of late blocks */
} lender_block;

/* The driver's functions. */
typedef struct lender_driver {
    int (*stream_id)(void *stream, unsigned long long *id); /* NULL: the driver gives no ids */
    int (*is_capturing)(void *stream, int *status);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*context_synchronize)(void);
    int (*exchange_mode)(int *mode);
} lender_driver;

enum { LENDER_MODE_RELAXED = 2 };

struct hd_python_lender {
    hd_runtime *runtime;
    lender_driver driver;
    char label[HD_LABEL_BYTES];
    int n_ordinals;
    struct lender_device {
        int number;           /* of the device of the runtime; -1: the runtime does not have this ordinal */
        hd_lane *lane;        /* contains no work, so memory of the lane never waits for work of the program */
    } * devices;              /* for each ordinal of the driver */
    intptr_t (*stream)(void); /* CuPy's function for the current stream of the thread */
    pthread_mutex_t lock;
    void *table; /* of tsearch */
    lender_block *late;
    uint64_t lent_blocks;
};

/* PyEval_SaveThread and PyEval_RestoreThread */
static void *(*lock_release)(void);
static void (*lock_take)(void *state);

void hd_python_lender_begin(void *(*release)(void), void (*take)(void *state))
{
    lock_release = release;
    lock_take = take;
}

static hd_status lender_find_functions(hd_python_lender *l)
{
    lender_driver *d = &l->driver;
    const struct {
        const char *name;
        void *function;
        bool required;
    } wanted[] = {
        {"cuStreamGetId", &d->stream_id, false},
        {"cuStreamIsCapturing", &d->is_capturing, true},
        {"cuDevicePrimaryCtxRetain", &d->context_retain, true},
        {"cuDevicePrimaryCtxRelease", &d->context_release, true},
        {"cuCtxPushCurrent", &d->context_push, true},
        {"cuCtxPopCurrent", &d->context_pop, true},
        {"cuCtxSynchronize", &d->context_synchronize, true},
        {"cuThreadExchangeStreamCaptureMode", &d->exchange_mode, true},
    };
    hd_runtime_info info = {.size = sizeof info};
    hd_status status = hd_runtime_get_info(l->runtime, &info);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !status; i++) {
        void (*function)(void) = NULL;
        status = hd_driver_entry(info.driver, wanted[i].name, &function);
        if (status && !wanted[i].required) {
            status = HD_OK;
        }
        memcpy(wanted[i].function, &function, sizeof function);
    }
    return status;
}

/* Makes a lender, which lives as long as the process. `devices` lists the devices for the driver's
 * ordinals 0 to n - 1 (-1: none). NULL: it failed (hd_message). */
hd_python_lender *hd_python_lender_make(hd_runtime *runtime, const char *label, const int *devices, int n,
                                        intptr_t (*stream)(void))
{
    hd_python_lender *l = calloc(1, sizeof *l + (size_t)n * sizeof *l->devices);
    if (!l || pthread_mutex_init(&l->lock, NULL)) {
        free(l);
        hd_error_set(HD_ERROR_HOST_MEMORY, "hd_python_lender_make: no memory for a lender");
        return NULL;
    }
    l->runtime = runtime;
    l->n_ordinals = n;
    l->devices = (struct lender_device *)(l + 1);
    l->stream = stream;
    strncpy(l->label, label, sizeof l->label - 1);
    if (lender_find_functions(l)) {
        free(l);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        l->devices[i].number = devices[i];
        if (devices[i] >= 0 && hd_lane_create(runtime, devices[i], &l->devices[i].lane)) {
            while (i-- > 0) {
                hd_lane_destroy(l->devices[i].lane);
            }
            free(l);
            return NULL;
        }
    }
    return l;
}

/* ---- the table ---- */

static int lender_compare_blocks(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const lender_block *)a)->address, y = (uintptr_t)((const lender_block *)b)->address;
    return (x > y) - (x < y);
}

/* Compares an address with the bytes of a block. Blocks do not overlap. */
static int lender_compare_bytes(const void *key, const void *block)
{
    const lender_block *b = block;
    uintptr_t x = (uintptr_t)((const lender_block *)key)->address, first = (uintptr_t)b->address;
    return x < first ? -1 : x - first >= b->bytes;
}

static bool lender_add_block(hd_python_lender *l, lender_block *block)
{
    pthread_mutex_lock(&l->lock);
    bool added = tsearch(block, &l->table, lender_compare_blocks) != NULL;
    l->lent_blocks += added;
    pthread_mutex_unlock(&l->lock);
    return added;
}

/* Removes a block from the table. NULL: the table does not contain it. */
static lender_block *lender_take_block(hd_python_lender *l, void *address)
{
    lender_block key = {.address = address};
    pthread_mutex_lock(&l->lock);
    lender_block **found = tfind(&key, &l->table, lender_compare_blocks);
    lender_block *block = found ? *found : NULL;
    if (block) {
        tdelete(&key, &l->table, lender_compare_blocks);
        l->lent_blocks--;
    }
    pthread_mutex_unlock(&l->lock);
    return block;
}

/* Returns the buffer of the block that is lent out and contains the address, or NULL. */
hd_buffer *hd_python_lender_find(hd_python_lender *l, void *address)
{
    lender_block key = {.address = address};
    pthread_mutex_lock(&l->lock);
    lender_block **found = tfind(&key, &l->table, lender_compare_bytes);
    hd_buffer *buffer = found ? (*found)->buffer : NULL;
    pthread_mutex_unlock(&l->lock);
    return buffer;
}

/* Returns how many blocks are lent out. */
uint64_t hd_python_lender_count(hd_python_lender *l)
{
    pthread_mutex_lock(&l->lock);
    uint64_t n = l->lent_blocks;
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* ---- order ---- */

/* Puts a claim on the stream that begins and ends at once. */
static hd_status lender_claim_block(const hd_python_lender *l, const lender_block *block, void *stream)
{
    hd_arg use = hd_inout(block->buffer);
    hd_claim_options options = {.size = sizeof options, .label = l->label};
    hd_claim *claim;
    hd_status status = hd_claim_begin_stream(l->runtime, block->device, stream, &use, 1, &options, &claim);
    return status ? status : hd_claim_end(claim, HD_OK);
}

/* Waits for all work on a device of the driver. False: the driver refused it. */
static bool lender_await_device(const hd_python_lender *l, int ordinal)
{
    const lender_driver *d = &l->driver;
    int mode = LENDER_MODE_RELAXED; /* captures of other threads go on */
    bool done = false;
    void *context;
    if (d->context_retain(&context, ordinal)) {
        return false;
    }
    if (!d->context_push(context)) {
        bool changed = !d->exchange_mode(&mode);
        done = !d->context_synchronize();
        if (changed) {
            d->exchange_mode(&mode);
        }
        d->context_pop(&context);
    }
    d->context_release(ordinal);
    return done;
}

#define LENDER_CAPTURED UINT64_MAX /* for the id of a stream that is being captured */

/* The driver's id of a stream, which no later stream gets. 0: a default stream, or unknown. While
 * a stream is being captured, the question for its id would end the capture. */
static uint64_t lender_read_stream_id(const hd_python_lender *l, void *stream)
{
    unsigned long long id = 0;
    int status = 0;
    if ((uintptr_t)stream <= 2 || !l->driver.stream_id) {
        return 0;
    }
    if (!l->driver.is_capturing(stream, &status) && status != 0) {
        return LENDER_CAPTURED;
    }
    return !l->driver.stream_id(stream, &id) ? id : 0;
}

/* Orders the end of a loan. If the package destroyed the stream meanwhile, its work may still run,
 * and another stream may have its handle. Then the call waits for the device. False: the order must
 * wait, since the stream is being captured, or no claim could be made. */
static bool lender_order_end(const hd_python_lender *l, const lender_block *block)
{
    const uint64_t id = lender_read_stream_id(l, block->stream);
    if (id == LENDER_CAPTURED) {
        return false;
    }
    if (block->stream_id != id && block->stream_id != LENDER_CAPTURED && lender_await_device(l, block->ordinal)) {
        return true;
    }
    /* 2 would be the default stream of this thread, and the loan may be another thread's. The
     * legacy default stream runs after the default streams of all threads. */
    hd_status status = lender_claim_block(l, block, (uintptr_t)block->stream == 2 ? NULL : block->stream);
    if (status && status != HD_ERROR_UNSUPPORTED && lender_await_device(l, block->ordinal)) {
        return true;
    }
    /* after the end of the runtime or of the device, there is nothing to order */
    return !status || status == HD_ERROR_HANDLE || status == HD_ERROR_DEVICE_LOST;
}

static void lender_free_block(lender_block *block)
{
    hd_free(block->buffer);
    free(block);
}

/* Tries to end the loans of late blocks. */
static void lender_settle_late(hd_python_lender *l)
{
    pthread_mutex_lock(&l->lock);
    lender_block *list = l->late, *rest = NULL;
    l->late = NULL;
    pthread_mutex_unlock(&l->lock);
    while (list) {
        lender_block *block = list;
        list = block->next;
        if (lender_order_end(l, block)) {
            lender_free_block(block);
        } else {
            block->next = rest;
            rest = block;
        }
    }
    while (rest) {
        lender_block *block = rest;
        rest = block->next;
        pthread_mutex_lock(&l->lock);
        block->next = l->late;
        l->late = block;
        pthread_mutex_unlock(&l->lock);
    }
}

/* ---- lending ---- */

static hd_status lender_fill_block(hd_python_lender *l, lender_block *block, size_t bytes)
{
    hd_alloc_options options = {.size = sizeof options, .label = l->label};
    hd_status status = hd_alloc_with(l->devices[block->ordinal].lane, bytes, &options, &block->buffer);
    if (status) {
        return status;
    }
    block->address = (void *)(uintptr_t)hd_buffer_address(block->buffer);
    status = lender_claim_block(l, block, block->stream);
    if (status == HD_ERROR_UNSUPPORTED && !hd_buffer_wait(block->buffer, HD_READ_WRITE, 0)) {
        status = HD_OK; /* the stream is being captured, but no earlier work uses the memory */
    }
    if (!status && !lender_add_block(l, block)) {
        status = hd_error_set(HD_ERROR_HOST_MEMORY, "hd_python_lender_lend: no memory for the table of blocks");
    }
    if (status) {
        hd_free(block->buffer);
    }
    return status;
}

/* Lends memory on a device of the driver, for work in `stream`. NULL: it failed (hd_message). */
void *hd_python_lender_lend(hd_python_lender *l, size_t bytes, int ordinal, void *stream)
{
    lender_settle_late(l);
    int device = ordinal >= 0 && ordinal < l->n_ordinals ? l->devices[ordinal].number : -1;
    if (device < 0) {
        hd_error_set(HD_ERROR_NO_DEVICE, "hd_python_lender_lend: the runtime of Heddle does not contain the current "
                                         "device; open the runtime with this device (option devices)");
        return NULL;
    }
    lender_block *block = calloc(1, sizeof *block);
    if (!block) {
        hd_error_set(HD_ERROR_HOST_MEMORY, "hd_python_lender_lend: no memory for the description of a block");
        return NULL;
    }
    block->bytes = bytes > 0 ? bytes : 1;
    block->stream = stream;
    block->stream_id = lender_read_stream_id(l, stream);
    block->device = device;
    block->ordinal = ordinal;
    if (lender_fill_block(l, block, bytes)) {
        free(block);
        return NULL;
    }
    return block->address;
}

static void lender_end_loan(hd_python_lender *l, lender_block *block)
{
    if (lender_order_end(l, block)) {
        lender_free_block(block);
        return;
    }
    pthread_mutex_lock(&l->lock);
    block->next = l->late;
    l->late = block;
    pthread_mutex_unlock(&l->lock);
}

/* Takes memory back. Heddle uses it again after the work that is in `stream` now.
 * Errors: HANDLE (the address was not lent). */
hd_status hd_python_lender_return(hd_python_lender *l, void *address, void *stream)
{
    lender_block *block = lender_take_block(l, address);
    if (!block) {
        return hd_error_set(HD_ERROR_HANDLE, "hd_python_lender_return: the address was not lent");
    }
    block->stream = stream;
    block->stream_id = lender_read_stream_id(l, stream);
    lender_end_loan(l, block);
    return HD_OK;
}

/* Takes memory back as hd_python_lender_return does, with the stream in which it was lent. */
hd_status hd_python_lender_return_in_order(hd_python_lender *l, void *address)
{
    lender_block *block = lender_take_block(l, address);
    if (!block) {
        return hd_error_set(HD_ERROR_HANDLE, "hd_python_lender_return_in_order: the address was not lent");
    }
    lender_end_loan(l, block);
    return HD_OK;
}

/* ---- CuPy ---- */

/* The function `malloc` of CuPy's CFunctionAllocator. */
void *hd_python_cupy_lend(void *lender, size_t bytes, int ordinal)
{
    hd_python_lender *l = lender;
    intptr_t stream = l->stream(); /* needs the interpreter's lock */
    if (stream == -1) {
        return NULL; /* CuPy's function raised an exception */
    }
    void *state = lock_release();
    void *out = hd_python_lender_lend(l, bytes, ordinal, (void *)stream);
    lock_take(state);
    return out;
}

/* The function `free` of CuPy's CFunctionAllocator. */
void hd_python_cupy_return(void *lender, void *address, int ordinal)
{
    (void)ordinal;
    void *state = lock_release();
    hd_python_lender_return_in_order(lender, address);
    lock_take(state);
}
