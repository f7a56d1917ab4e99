/* torch.c - the functions that PyTorch calls for memory: hd_torch_alloc, hd_torch_free and others.
 *
 * heddle.torch.install passes these functions to PyTorch, which calls them without Python. Their
 * types are those of torch.cuda.memory.CUDAPluggableAllocator. PyTorch does not check for a null
 * pointer, so hd_torch_alloc reports a failure by an exception of C++. This file is compiled with
 * -fexceptions, and gets the function of libstdc++ that throws at run time, so that the library
 * does not depend on libstdc++.
 *
 * hd_torch_pool_alloc is for pools of PyTorch's own allocator (heddle.torch.pool), which checks for
 * a null pointer.
 *
 * Threads: any. Locks: the lock of the device, held for a few loads and stores.
 * Blocking: an allocation without a block in a cache blocks as hd_alloc does. hd_torch_pool_free
 * waits for the device, as cudaFree does.
 * Always: no lock is held when an exception is thrown.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "torch_part.h"

#define MIB (1024.0 * 1024)
enum { TORCH_TEXT_BYTES = 1024 };

HD_API hd_status hd_torch_begin(hd_runtime *runtime, const int *ordinals, int n);
HD_API void hd_torch_end(void);
HD_API void *hd_torch_alloc(size_t bytes, int device, void *stream);
HD_API void *hd_torch_try_alloc(size_t bytes, int device, void *stream);
HD_API void hd_torch_free(void *memory, size_t bytes, int device, void *stream);
HD_API void hd_torch_record_stream(void *memory, void *handle);
HD_API void hd_torch_empty_cache(void);
HD_API void hd_torch_set_fraction(double fraction, int device);
HD_API void hd_torch_set_label(const char *label);
HD_API void *hd_torch_pool_alloc(size_t bytes, int device, void *stream);
HD_API void hd_torch_pool_free(void *memory, size_t bytes, int device, void *stream);
HD_API hd_status hd_torch_get_figures(int device, torch_figures *out);
HD_API void hd_torch_reset_peak(int device);
HD_API hd_buffer *hd_torch_find(const void *memory);

torch_functions hd_torch_driver;
hd_runtime *hd_torch_runtime;
torch_device hd_torch_devices[TORCH_DEVICES];

static _Thread_local char pool_label[HD_LABEL_BYTES] = "torch pool";

/* ---- begin and end ---- */

/* Calls of ctypes may come before libstdc++ is in the program, those of PyTorch do not. */
static void *torch_find_thrower(void)
{
    static const char name[] = "_ZSt21__throw_runtime_errorPKc"; /* std::__throw_runtime_error(char const *) */
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY);
    return library ? dlsym(library, name) : NULL;
}

static hd_status torch_find_functions(const char *driver)
{
    torch_functions *f = &hd_torch_driver;
    const struct {
        const char *name;
        void *function;
        bool required;
    } wanted[] = {
        {"cuStreamIsCapturing", &f->is_capturing, true},
        {"cuStreamGetCaptureInfo", &f->capture_info, false},
        {"cuStreamGetId", &f->stream_id, false},
        {"cuUserObjectCreate", &f->object_create, false},
        {"cuGraphRetainUserObject", &f->graph_retain, false},
        {"cuDevicePrimaryCtxRetain", &f->context_retain, true},
        {"cuCtxPushCurrent", &f->context_push, true},
        {"cuCtxPopCurrent", &f->context_pop, true},
        {"cuCtxSynchronize", &f->context_synchronize, true},
        {"cuThreadExchangeStreamCaptureMode", &f->exchange_mode, true},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void (*function)(void) = NULL;
        hd_status status = hd_driver_entry(driver, wanted[i].name, &function);
        if (status && wanted[i].required) {
            return status;
        }
        memcpy(wanted[i].function, &function, sizeof function);
    }
    void *thrower = torch_find_thrower();
    memcpy(&f->throw_runtime_error, &thrower, sizeof thrower);
    return thrower ? HD_OK
                   : hd_error_set(HD_ERROR_NOT_FOUND, "hd_torch_begin: libstdc++.so.6 has no function that throws "
                                                      "std::runtime_error; PyTorch needs it, so install libstdc++");
}

static hd_status torch_device_begin(torch_device *d, int number, int ordinal)
{
    pthread_mutex_init(&d->lock, NULL);
    hd_status status = hd_lane_create(hd_torch_runtime, number, &d->lane);
    if (!status && hd_torch_driver.context_retain(&d->context, ordinal) != 0) {
        status = hd_error_set(HD_ERROR_DRIVER, "hd_torch_begin: the driver refused the primary context of a device");
    }
    if (!status &&
        !torch_cache_of_locked(d, NULL, torch_stream_of(NULL, false))) { /* the default stream always exists */
        status = hd_error_set(HD_ERROR_HOST_MEMORY, NULL);
    }
    d->number = status ? -1 : number;
    return status;
}

/* Gives back the memory of graphs that are gone, and blocks that waited for their streams. */
static uint64_t torch_release_ended(torch_device *d)
{
    pthread_mutex_lock(&d->lock);
    torch_graphs_end_locked(d);
    pthread_mutex_unlock(&d->lock);
    return torch_release_later(d);
}

/* Heddle needs memory for something else: the caches give back what they hold. */
static bool torch_reclaim(void *context, const hd_reclaim *reclaim)
{
    (void)context;
    uint64_t released = 0;
    for (int i = 0; i < TORCH_DEVICES && reclaim->reason == HD_RECLAIM_LIMIT; i++) {
        torch_device *d = &hd_torch_devices[i];
        if (d->lane && d->number == reclaim->device) {
            released += torch_release_ended(d);
            released += torch_release(d, NULL, reclaim->wanted);
        }
    }
    return released > 0;
}

/* ordinals[i] is PyTorch's number of device i of the runtime. Only one runtime of the process can
 * begin. Errors: ARGUMENT, NOT_FOUND, and those of hd_lane_create and hd_driver_entry. */
hd_status hd_torch_begin(hd_runtime *runtime, const int *ordinals, int n)
{
    hd_runtime_info info = {.size = sizeof info};
    if (hd_torch_runtime || !ordinals || n < 1) {
        return hd_error_set(HD_ERROR_ARGUMENT, "hd_torch_begin: called twice, or without a device; call it once");
    }
    hd_status status = hd_runtime_get_info(runtime, &info);
    status = status ? status : torch_find_functions(info.driver);
    for (int i = 0; i < n && !status; i++) {
        if (ordinals[i] < 0 || ordinals[i] >= TORCH_DEVICES) {
            status = hd_error_set(HD_ERROR_ARGUMENT, "hd_torch_begin: PyTorch's number of a device is not 0 to 63");
        }
    }
    status = status ? status : hd_memory_on_reclaim(runtime, torch_reclaim, NULL);
    if (status) {
        return status;
    }
    hd_torch_runtime = runtime;
    for (int i = 0; i < n && !status; i++) {
        status = torch_device_begin(&hd_torch_devices[ordinals[i]], i, ordinals[i]);
    }
    return status;
}

/* Call this before hd_close. Later calls of PyTorch allocate and free nothing. */
void hd_torch_end(void)
{
    hd_torch_runtime = NULL;
}

static torch_device *torch_device_of(int ordinal)
{
    bool known = hd_torch_runtime && ordinal >= 0 && ordinal < TORCH_DEVICES && hd_torch_devices[ordinal].lane;
    return known ? &hd_torch_devices[ordinal] : NULL;
}

/* ---- allocating ---- */

static void torch_block_lend_locked(torch_device *d, torch_block *block, size_t bytes)
{
    torch_figures *f = &d->figures;
    unsigned size_class;
    block->requested = bytes;
    f->allocations++;
    f->requested_bytes += bytes;
    f->live_bytes += torch_round(bytes, &size_class);
    f->lent_bytes += block->bytes;
    f->requested_peak_bytes =
        f->requested_bytes > f->requested_peak_bytes ? f->requested_bytes : f->requested_peak_bytes;
    f->live_peak_bytes = f->live_bytes > f->live_peak_bytes ? f->live_bytes : f->live_peak_bytes;
}

/* The cache for work that is put into the stream now. NULL: no memory of the host is left. */
static torch_cache *torch_cache_now_locked(torch_device *d, torch_stream stream, bool capturing)
{
    torch_graph *graph = NULL;
    if (torch_graphs_are_gone(d)) {
        torch_graphs_end_locked(d);
    }
    return capturing && !torch_graph_of_locked(d, stream.handle, &graph) ? NULL
                                                                         : torch_cache_of_locked(d, graph, stream);
}

/* Returns NULL after a failure, with the reason in hd_message(), and for no bytes. */
void *hd_torch_try_alloc(size_t bytes, int device, void *stream)
{
    torch_device *d = torch_device_of(device);
    unsigned size_class;
    if (!d) {
        hd_error_set(HD_ERROR_NO_DEVICE, "PyTorch asks for memory of a device that Heddle's runtime lacks, or after "
                                         "the runtime was closed; open the runtime with all devices");
        return NULL;
    }
    if (bytes == 0) {
        return NULL;
    }
    size_t rounded = torch_round(bytes, &size_class);
    bool capturing = torch_is_capturing(stream);
    torch_stream own = torch_stream_of(stream, capturing);
    pthread_mutex_lock(&d->lock);
    torch_cache *cache = torch_cache_now_locked(d, own, capturing);
    torch_block *block = cache ? torch_cache_pop_locked(cache, size_class) : NULL;
    if (block) {
        *(cache->graph ? &d->figures.graph_bytes : &d->figures.cached_bytes) -= rounded;
        torch_block_lend_locked(d, block, bytes);
    }
    pthread_mutex_unlock(&d->lock);
    if (block || !cache) {
        return block ? (void *)(uintptr_t)block->address : (hd_error_set(HD_ERROR_HOST_MEMORY, NULL), NULL);
    }
    block = torch_fetch(d, cache, bytes);
    if (!block) {
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    torch_block_lend_locked(d, block, bytes);
    pthread_mutex_unlock(&d->lock);
    return (void *)(uintptr_t)block->address;
}

/* Throws std::runtime_error. PyTorch's programs look for the first words of the text. */
static void torch_throw(size_t bytes, int device)
{
    char text[TORCH_TEXT_BYTES];
    hd_error error = {.size = sizeof error};
    torch_figures f = {.size = sizeof f};
    hd_last_error(&error);
    if (error.status != HD_ERROR_MEMORY || hd_torch_get_figures(device, &f)) {
        snprintf(text, sizeof text, "heddle.torch: an allocation of %zu bytes failed: %s", bytes, error.message);
    } else {
        snprintf(text, sizeof text,
                 "CUDA out of memory. Tried to allocate %.2f MiB on GPU %d. PyTorch's tensors hold %.2f MiB, its "
                 "caches %.2f MiB, and its captured graphs %.2f MiB more. Heddle: %s",
                 (double)bytes / MIB, device, (double)f.requested_bytes / MIB, (double)f.cached_bytes / MIB,
                 (double)f.graph_bytes / MIB, error.message);
    }
    hd_torch_driver.throw_runtime_error(text);
}

void *hd_torch_alloc(size_t bytes, int device, void *stream)
{
    void *memory = hd_torch_try_alloc(bytes, device, stream);
    if (!memory && bytes > 0) {
        torch_throw(bytes, device);
    }
    return memory;
}

/* ---- freeing ---- */

/* Puts a free block where it belongs. Returns true if the block is in the list `later`. */
static bool torch_block_return_locked(torch_device *d, torch_block *block, torch_graph *capture)
{
    torch_graph *own = block->cache ? block->cache->graph : NULL;
    torch_figures *f = &d->figures;
    unsigned size_class;
    f->requested_bytes -= block->requested;
    f->live_bytes -= torch_round(block->requested, &size_class);
    f->lent_bytes -= block->bytes;
    block->requested = 0;
    if (own || capture) {
        f->graph_bytes += block->bytes;
        if (own && own == capture && block->n_streams == 0) {
            torch_cache_push_locked(block->cache, block);
        } else {
            torch_graph_park_locked(own ? own : capture, block);
        }
        return false;
    }
    f->cached_bytes += block->bytes;
    if (!block->cache || block->everywhere || block->n_streams > 0) {
        torch_table_remove_locked(d, block);
        torch_list_push(&d->later, block);
        return true;
    }
    torch_cache_push_locked(block->cache, block);
    return false;
}

void hd_torch_free(void *memory, size_t bytes, int device, void *stream)
{
    torch_device *d = torch_device_of(device);
    torch_graph *capture = NULL;
    bool later = false;
    (void)bytes;
    if (!memory || !d) {
        return;
    }
    bool capturing = torch_is_capturing(stream);
    pthread_mutex_lock(&d->lock);
    if (torch_graphs_are_gone(d)) {
        torch_graphs_end_locked(d);
    }
    torch_block *block = torch_table_find_locked(d, (uintptr_t)memory);
    if (block && block->requested > 0 && (!capturing || torch_graph_of_locked(d, stream, &capture))) {
        later = torch_block_return_locked(d, block, capture);
    } /* otherwise PyTorch frees what is not Heddle's, or the block stays, since its graph is unknown */
    pthread_mutex_unlock(&d->lock);
    if (later) {
        torch_release_later(d);
    }
}

/* Another stream uses the memory, too. */
void hd_torch_record_stream(void *memory, void *handle)
{
    torch_stream stream = torch_stream_of(handle, torch_is_capturing(handle));
    for (int i = 0; i < TORCH_DEVICES; i++) {
        torch_device *d = torch_device_of(i);
        if (!d) {
            continue;
        }
        pthread_mutex_lock(&d->lock);
        torch_block *b = torch_table_find_locked(d, (uintptr_t)memory);
        unsigned known = 0;
        while (b && known < b->n_streams && !torch_streams_equal(b->streams[known], stream)) {
            known++;
        }
        if (b && b->cache && !torch_streams_equal(b->cache->stream, stream) && known == b->n_streams) {
            torch_stream *grown = known == b->room ? realloc(b->streams, (known * 2 + 2) * sizeof *grown) : b->streams;
            if (grown) {
                b->room = known == b->room ? known * 2 + 2 : b->room;
                b->streams = grown;
                b->streams[b->n_streams++] = stream;
            } else {
                b->everywhere = true; /* without memory for the note, all streams count */
            }
        }
        pthread_mutex_unlock(&d->lock);
        if (b) {
            return;
        }
    }
}

/* ---- what PyTorch can set and ask ---- */

/* torch.cuda.empty_cache: memory that no tensor uses goes back to the driver. */
void hd_torch_empty_cache(void)
{
    for (int i = 0; i < TORCH_DEVICES; i++) {
        torch_device *d = torch_device_of(i);
        if (d) {
            torch_release_ended(d);
            torch_release(d, NULL, UINT64_MAX);
            hd_memory_trim(hd_torch_runtime, d->number, 0, NULL);
        }
    }
}

/* torch.cuda.set_per_process_memory_fraction */
void hd_torch_set_fraction(double fraction, int device)
{
    torch_device *d = torch_device_of(device);
    hd_device_info info = {.size = sizeof info};
    if (d && fraction >= 0 && hd_device_get_info(hd_torch_runtime, d->number, &info) == HD_OK) {
        pthread_mutex_lock(&d->lock);
        d->most_bytes = fraction < 1 ? (uint64_t)((double)info.memory_bytes * fraction) + 1 : 0;
        pthread_mutex_unlock(&d->lock);
    }
}

/* Errors: NO_DEVICE, ARGUMENT (a size that is not that of torch_figures). */
hd_status hd_torch_get_figures(int device, torch_figures *out)
{
    torch_device *d = torch_device_of(device);
    if (!d || !out || out->size != sizeof *out) {
        return hd_error_set(d ? HD_ERROR_ARGUMENT : HD_ERROR_NO_DEVICE, NULL);
    }
    pthread_mutex_lock(&d->lock);
    *out = d->figures;
    pthread_mutex_unlock(&d->lock);
    out->size = sizeof *out;
    return HD_OK;
}

/* Peaks count from now on. */
void hd_torch_reset_peak(int device)
{
    torch_device *d = torch_device_of(device);
    if (d) {
        pthread_mutex_lock(&d->lock);
        d->figures.requested_peak_bytes = d->figures.requested_bytes;
        d->figures.live_peak_bytes = d->figures.live_bytes;
        pthread_mutex_unlock(&d->lock);
    }
}

/* The buffer that begins at this address and is in use by PyTorch; NULL if there is none. */
hd_buffer *hd_torch_find(const void *memory)
{
    hd_buffer *buffer = NULL;
    for (int i = 0; i < TORCH_DEVICES && !buffer; i++) {
        torch_device *d = torch_device_of(i);
        if (d) {
            pthread_mutex_lock(&d->lock);
            const torch_block *b = torch_table_find_locked(d, (uintptr_t)memory);
            buffer = b && b->requested > 0 ? b->buffer : NULL;
            pthread_mutex_unlock(&d->lock);
        }
    }
    return buffer;
}

/* ---- pools of PyTorch's own allocator ---- */

/* Names the segments that this thread allocates from now on. */
void hd_torch_set_label(const char *label)
{
    snprintf(pool_label, sizeof pool_label, "%s", label);
}

void *hd_torch_pool_alloc(size_t bytes, int device, void *stream)
{
    torch_device *d = torch_device_of(device);
    (void)stream;
    torch_block *block = d && bytes ? torch_fetch_segment(d, bytes, pool_label) : NULL;
    if (!block) {
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    torch_block_lend_locked(d, block, bytes);
    pthread_mutex_unlock(&d->lock);
    return (void *)(uintptr_t)block->address;
}

void hd_torch_pool_free(void *memory, size_t bytes, int device, void *stream)
{
    hd_torch_free(memory, bytes, device, stream);
}
