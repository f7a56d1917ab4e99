/* torch_memory.c - memory of PyTorch's allocator from Heddle, and back to Heddle.
 *
 * This is the slow path: no cache of the stream has a block of the wanted size. A larger free block
 * serves the request, if there is one. Otherwise the device gets another block. All memory in use and
 * in caches stays within 1.5 times the most that PyTorch ever used at once: before it would exceed
 * this, free blocks of other sizes go back to Heddle, oldest first. A block that goes back is not
 * free at once, since the device may be far behind the host. So blocks that go back and come again
 * need more memory than blocks that stay.
 *
 * Blocks go back in batches. One claim on the stream reads all blocks of a batch, and ends at once.
 * Readers do not wait for each other, so this never delays a stream. The next user of the memory
 * waits for the work that was in the stream. If that user is PyTorch, a claim on its stream writes
 * the new block, and this claim waits for all earlier readers.
 *
 * Threads: those of PyTorch. Locks: takes the lock of the device; no caller holds it.
 * Blocking: as hd_alloc and hd_claim_begin_stream. For memory of a graph, the thread waits for
 * earlier work on the memory, since a captured stream can wait only for work of its capture.
 * Always: see torch_part.h.
 */
#include <stdlib.h>
#include <string.h>
#include "torch_part.h"

#define TORCH_SPARE_SHARE 2 /* caches may hold this part of the most bytes that were ever live */
#define TORCH_SPARE_BYTES ((uint64_t)2 << 20)
#define TORCH_WAIT_NS ((int64_t)60 * 1000000000)
enum { TORCH_STREAMS = 64, TORCH_MODE_RELAXED = 2 };

/* ---- order ---- */

/* Marks that work which is in the stream now uses the blocks. ARGUMENT: the stream was destroyed. */
static hd_status torch_claim(const torch_device *d, torch_stream stream, torch_block *const *blocks, size_t n,
                             hd_access access)
{
    hd_arg uses[TORCH_BATCH];
    const hd_claim_options options = {.size = sizeof options, .label = "torch"};
    hd_claim *claim;
    for (size_t i = 0; i < n; i++) {
        uses[i] = access == HD_READ ? hd_in(blocks[i]->buffer) : hd_out(blocks[i]->buffer);
    }
    if (torch_is_capturing(stream.handle)) {
        return HD_ERROR_UNSUPPORTED;
    }
    if (stream.id && !torch_streams_equal(stream, torch_stream_of(stream.handle, false))) {
        return HD_ERROR_ARGUMENT;
    }
    hd_status status = hd_claim_begin_stream(hd_torch_runtime, d->number, stream.handle, uses, n, &options, &claim);
    if (!status) {
        hd_claim_end(claim, HD_OK); /* after an error, the claim ends later than the stream's work */
    }
    return status;
}

bool torch_settle(torch_device *d)
{
    int mode = TORCH_MODE_RELAXED;
    void *context = NULL;
    pthread_mutex_lock(&d->lock);
    bool captured = torch_graphs_are_captured_locked(d);
    pthread_mutex_unlock(&d->lock);
    if (captured || !d->context || hd_torch_driver.context_push(d->context) != 0) {
        return false;
    }
    bool changed = hd_torch_driver.exchange_mode(&mode) == 0;
    bool settled = hd_torch_driver.context_synchronize() == 0;
    if (changed) {
        hd_torch_driver.exchange_mode(&mode);
    }
    hd_torch_driver.context_pop(&context);
    return settled;
}

/* True if blocks may go back to Heddle after a claim on one of their streams ended with this
 * status. *settled: all work of the device is finished. */
static bool torch_claim_suffices(torch_device *d, hd_status status, bool *settled)
{
    if (!status || status == HD_ERROR_HANDLE || status == HD_ERROR_DEVICE_LOST) {
        return true; /* in order, or the memory is lost */
    }
    if (status != HD_ERROR_UNSUPPORTED) { /* the stream is gone, or Heddle is short of something */
        *settled = torch_settle(d);
    }
    return *settled;
}

/* ---- back to Heddle ---- */

static void torch_block_free(torch_block *block)
{
    hd_free(block->buffer);
    free(block->streams);
    free(block);
}

static void torch_count_releases(torch_device *d, size_t n, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->figures.releases += n;
    d->figures.cached_bytes -= bytes;
    pthread_mutex_unlock(&d->lock);
}

/* Gives a batch of blocks of one cache back, or puts them back into the cache. Returns the bytes
 * that went back. */
static uint64_t torch_release_batch(torch_device *d, torch_cache *cache, torch_block **blocks, size_t n)
{
    bool settled = false;
    uint64_t bytes = 0;
    hd_status status = torch_claim(d, cache->stream, blocks, n, HD_READ);
    for (size_t i = 0; i < n; i++) {
        bytes += blocks[i]->bytes;
    }
    if (!torch_claim_suffices(d, status, &settled)) {
        pthread_mutex_lock(&d->lock);
        for (size_t i = 0; i < n; i++) {
            torch_table_add_locked(d, blocks[i]);
            torch_cache_push_locked(cache, blocks[i]);
        }
        d->figures.cached_bytes += bytes;
        pthread_mutex_unlock(&d->lock);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        torch_block_free(blocks[i]);
    }
    torch_count_releases(d, n, 0);
    return bytes;
}

/* The caches of the device outside of captures, `first` in front. Returns their number. */
static size_t torch_caches_of(torch_device *d, torch_cache *first, torch_cache **out)
{
    size_t n = 0;
    if (first) {
        out[n++] = first;
    }
    pthread_mutex_lock(&d->lock);
    for (torch_cache *c = d->caches; c && n < TORCH_STREAMS; c = c->next) {
        if (c != first) {
            out[n++] = c;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

uint64_t torch_release(torch_device *d, torch_cache *first, uint64_t wanted)
{
    torch_cache *caches[TORCH_STREAMS];
    torch_block *blocks[TORCH_BATCH];
    size_t n_caches = torch_caches_of(d, first, caches);
    uint64_t released = 0;
    for (size_t i = 0; i < n_caches && released < wanted; i++) {
        uint64_t part = 1;
        while (part > 0 && released < wanted) {
            pthread_mutex_lock(&d->lock);
            size_t n = torch_cache_take_locked(d, caches[i], wanted - released, blocks);
            pthread_mutex_unlock(&d->lock);
            part = n > 0 ? torch_release_batch(d, caches[i], blocks, n) : 0;
            released += part;
        }
    }
    return released;
}

/* Orders a block behind the work of all its streams. */
static bool torch_order_free(torch_device *d, torch_block *block)
{
    torch_cache *caches[TORCH_STREAMS];
    bool settled = false, suffices = true;
    if (!block->cache) {
        return torch_settle(d); /* a segment, which PyTorch frees as it calls cudaFree */
    }
    size_t n = torch_caches_of(d, block->cache, caches);
    n = block->everywhere ? n : 1;
    for (size_t i = 0; i < n && suffices && !settled; i++) {
        suffices = torch_claim_suffices(d, torch_claim(d, caches[i]->stream, &block, 1, HD_READ), &settled);
    }
    for (unsigned i = 0; i < block->n_streams && suffices && !settled; i++) {
        suffices = torch_claim_suffices(d, torch_claim(d, block->streams[i], &block, 1, HD_READ), &settled);
    }
    return suffices;
}

uint64_t torch_release_later(torch_device *d)
{
    uint64_t released = 0;
    pthread_mutex_lock(&d->lock);
    torch_list list = d->later;
    d->later = (torch_list){NULL};
    pthread_mutex_unlock(&d->lock);
    while (list.first) {
        torch_block *block = list.first;
        torch_list_remove(&list, block);
        if (torch_order_free(d, block)) {
            uint64_t bytes = block->bytes;
            torch_block_free(block);
            torch_count_releases(d, 1, bytes);
            released += bytes;
        } else {
            pthread_mutex_lock(&d->lock);
            torch_list_push(&d->later, block);
            pthread_mutex_unlock(&d->lock);
        }
    }
    return released;
}

/* ---- from Heddle ---- */

/* The bytes by which the device would have more than it needs, with another block of so many bytes.
 * It needs the most bytes that were ever live, and a little more. */
static uint64_t torch_excess_locked(const torch_device *d, size_t bytes)
{
    const torch_figures *f = &d->figures;
    uint64_t live = f->live_bytes + bytes, peak = f->live_peak_bytes, limit = d->most_bytes;
    uint64_t most = (live > peak ? live : peak) + f->graph_bytes;
    uint64_t total = f->lent_bytes + f->cached_bytes + f->graph_bytes + bytes;
    most += most / TORCH_SPARE_SHARE + TORCH_SPARE_BYTES;
    most = limit && limit < most ? limit : most;
    return total > most ? total - most : 0;
}

/* Takes a free block that is larger than necessary, by up to a half. If the device would have more
 * than it needs, the block may be twice as large. This saves the exchange of blocks between the cache
 * and Heddle, for programs that work on batches of several sizes. */
static torch_block *torch_take_larger(torch_device *d, torch_cache *cache, size_t bytes)
{
    torch_block *block = NULL;
    pthread_mutex_lock(&d->lock);
    if (!cache->graph && bytes > TORCH_SMALL_BYTES) {
        block = torch_cache_fit_locked(cache, bytes, torch_excess_locked(d, bytes) > 0 ? bytes * 2 : bytes + bytes / 2);
        d->figures.cached_bytes -= block ? block->bytes : 0;
    }
    pthread_mutex_unlock(&d->lock);
    return block;
}

/* Releases free blocks of other sizes, if the device would have more than it needs. Fails if
 * PyTorch's own limit would be exceeded. */
static hd_status torch_make_room(torch_device *d, torch_cache *cache, size_t bytes)
{
    pthread_mutex_lock(&d->lock);
    uint64_t excess = torch_excess_locked(d, bytes);
    bool within = !d->most_bytes || d->figures.lent_bytes + d->figures.graph_bytes + bytes <= d->most_bytes;
    pthread_mutex_unlock(&d->lock);
    if (excess > 0) {
        torch_release(d, cache->graph ? NULL : cache, excess);
    }
    return within ? HD_OK
                  : hd_error_set(HD_ERROR_MEMORY, "the fraction that torch.cuda.set_per_process_memory_fraction set is "
                                                  "used up; raise it, or free tensors");
}

static hd_status torch_alloc(torch_device *d, size_t bytes, unsigned flags, const char *label, hd_buffer **out)
{
    const hd_alloc_options options = {.size = sizeof options, .flags = flags, .label = label};
    hd_status status = hd_alloc_with(d->lane, bytes, &options, out);
    if (status == HD_ERROR_MEMORY && torch_release(d, NULL, UINT64_MAX) > 0) {
        status = hd_alloc_with(d->lane, bytes, &options, out);
    }
    return status;
}

/* Lets the stream wait for earlier work on the memory. */
static hd_status torch_order_use(torch_device *d, const torch_cache *cache, torch_block *block)
{
    if (!cache->graph && torch_claim(d, cache->stream, &block, 1, HD_WRITE) == HD_OK) {
        return HD_OK;
    }
    return hd_buffer_wait(block->buffer, HD_READ_WRITE, TORCH_WAIT_NS);
}

/* Makes a live block of a buffer. NULL: no memory of the host is left. */
static torch_block *torch_block_of(torch_device *d, torch_cache *cache, hd_buffer *buffer, size_t bytes)
{
    torch_block *block = calloc(1, sizeof *block);
    if (!block) {
        hd_error_set(HD_ERROR_HOST_MEMORY, NULL);
        return NULL;
    }
    block->buffer = buffer;
    block->address = hd_buffer_address(buffer);
    block->bytes = bytes;
    block->cache = cache;
    if (cache && torch_order_use(d, cache, block)) {
        free(block);
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    bool added = torch_table_add_locked(d, block);
    d->figures.fetches++;
    pthread_mutex_unlock(&d->lock);
    if (!added) {
        free(block);
        hd_error_set(HD_ERROR_HOST_MEMORY, NULL);
        return NULL;
    }
    return block;
}

torch_block *torch_fetch(torch_device *d, torch_cache *cache, size_t bytes)
{
    unsigned size_class;
    size_t rounded = torch_round(bytes, &size_class);
    hd_buffer *buffer;
    torch_release_later(d);
    torch_block *block = torch_take_larger(d, cache, rounded);
    if (block) {
        return block;
    }
    if (torch_make_room(d, cache, rounded) || torch_alloc(d, rounded, 0, "torch", &buffer)) {
        return NULL;
    }
    block = torch_block_of(d, cache, buffer, rounded);
    if (!block) {
        hd_free(buffer);
    }
    return block;
}

torch_block *torch_fetch_segment(torch_device *d, size_t bytes, const char *label)
{
    hd_buffer *buffer;
    torch_release_later(d);
    if (torch_alloc(d, bytes, HD_ALLOC_DEDICATED, label, &buffer)) {
        return NULL;
    }
    torch_block *block = torch_block_of(d, NULL, buffer, bytes);
    if (!block) {
        hd_free(buffer);
    }
    return block;
}
