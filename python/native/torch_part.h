/* torch_part.h - what the files of PyTorch's allocator share.
 *
 * PyTorch asks for memory of a device and names the stream that will use it. Heddle keeps freed
 * memory in caches. A cache belongs to a stream, and its memory may be used at once by later work
 * of this stream, since a stream keeps its order. Memory that leaves a cache goes back to Heddle
 * with a claim on the stream (heddle/claim.h), so any other user of the memory comes after the
 * stream's work. Memory that was allocated during a capture belongs to the captured graph.
 *
 * Threads: those of PyTorch, and threads of the driver that destroy graphs.
 * Locks: torch_device.lock. Functions whose names end in _locked run under it. No thread calls
 * Heddle under it.
 * Always: a block is live, or in one cache, or in one list. Only blocks that are live or in a cache
 * are in the table.
 */
#ifndef HD_TORCH_PART_H
#define HD_TORCH_PART_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle.h>

enum {
    TORCH_STREAM_LEGACY = 1,
    TORCH_DEVICES = 64,   /* most devices of PyTorch */
    TORCH_CLASSES = 2048, /* sizes of blocks */
    TORCH_BATCH = 128     /* most blocks of one claim, as heddle/claim.h permits */
};
#define TORCH_SMALL_BYTES ((size_t)1 << 20) /* larger blocks leave the caches first */

typedef struct torch_block torch_block;
typedef struct torch_cache torch_cache;
typedef struct torch_graph torch_graph;
typedef struct torch_device torch_device;

/* A stream. The driver may give the handle of a destroyed stream to another one, but not its number. */
typedef struct torch_stream {
    void *handle;
    unsigned long long id; /* 0: a default stream, under capture, or the driver gives no numbers */
} torch_stream;

/* A list of blocks by their members `next` and `previous`. */
typedef struct torch_list {
    torch_block *first;
} torch_list;

/* Memory that Heddle gave for one request of PyTorch at a time. */
struct torch_block {
    torch_block *chain;           /* the next block in the same place of the table */
    torch_block *next, *previous; /* in a list */
    torch_block *older, *newer;   /* among the larger blocks of a cache */
    hd_buffer *buffer;
    uint64_t address;
    size_t bytes;          /* of the block */
    size_t requested;      /* by PyTorch; 0: the block is free */
    torch_cache *cache;    /* NULL: a segment of a pool */
    torch_stream *streams; /* other streams that use the block (record_stream) */
    unsigned n_streams, room;
    bool everywhere; /* any stream may use the block, since it was memory of a graph */
};

/* Free blocks of one stream, outside of captures or in the capture of one graph. */
struct torch_cache {
    torch_cache *next;
    torch_stream stream;
    torch_graph *graph;           /* NULL: outside of captures */
    torch_block *oldest, *newest; /* larger blocks, by the time of their free */
    torch_list blocks[TORCH_CLASSES];
};

/* A captured graph with memory of its own. The graph and its executables refer to this structure,
 * so the driver calls the destructor when they are gone. */
struct torch_graph {
    torch_graph *next;
    torch_device *device;
    unsigned long long id; /* of the capture */
    void *stream;          /* one of the capture */
    bool over;             /* the capture ended */
    atomic_bool gone;
    torch_cache *caches;
    torch_list parked; /* freed, but the graph may use the memory */
};

typedef struct torch_figures {
    size_t size;              /* sizeof(torch_figures) */
    uint64_t requested_bytes; /* of live blocks, as PyTorch asked for them */
    uint64_t requested_peak_bytes;
    uint64_t live_bytes; /* the same, each rounded up to the size of its class */
    uint64_t live_peak_bytes;
    uint64_t lent_bytes;   /* of the blocks that are live, some of which are larger than necessary */
    uint64_t cached_bytes; /* of free blocks in caches and lists */
    uint64_t graph_bytes;  /* the part of live_bytes and cached_bytes that belongs to graphs */
    uint64_t allocations;
    uint64_t fetches;  /* allocations for which no cache had a block */
    uint64_t releases; /* blocks that went back to Heddle */
    uint64_t graphs;   /* graphs with memory */
} torch_figures;

struct torch_device {
    pthread_mutex_t lock;
    int number;    /* of the runtime; -1: PyTorch's device is none of the runtime */
    void *context; /* the driver's primary context */
    hd_lane *lane;
    torch_cache *caches;
    torch_graph *graphs;
    atomic_uint graphs_gone; /* graphs whose destructor ran, but whose memory is still held */
    torch_list later;        /* blocks that go back to Heddle as soon as their streams permit it */
    torch_block **table;
    size_t table_room, table_count; /* the room is a power of two */
    uint64_t most_bytes;            /* of the fraction that PyTorch set; 0: none */
    torch_figures figures;
};

/* The driver's functions, and libstdc++'s function that throws. */
typedef struct torch_functions {
    int (*is_capturing)(void *stream, int *status);
    int (*stream_id)(void *stream, unsigned long long *id);
    int (*capture_info)(void *stream, int *status, unsigned long long *id, void **graph, const void ***nodes,
                        size_t *count);
    int (*object_create)(void **object, void *pointer, void (*destroy)(void *), unsigned references, unsigned flags);
    int (*graph_retain)(void *graph, void *object, unsigned count, unsigned flags);
    int (*context_retain)(void **context, int device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*context_synchronize)(void);
    int (*exchange_mode)(int *mode);
    void (*throw_runtime_error)(const char *text);
} torch_functions;

extern torch_functions hd_torch_driver;
extern hd_runtime *hd_torch_runtime; /* NULL: not begun, or ended */
extern torch_device hd_torch_devices[TORCH_DEVICES];

/* ---- torch_cache.c: lists, the table, caches; no calls of Heddle ---- */

/* The size of the block for a request, and its class. */
size_t torch_round(size_t bytes, unsigned *size_class);

void torch_list_push(torch_list *list, torch_block *block);
void torch_list_remove(torch_list *list, torch_block *block);

/* False: no memory of the host is left. */
bool torch_table_add_locked(torch_device *d, torch_block *block);
torch_block *torch_table_find_locked(const torch_device *d, uint64_t address);
void torch_table_remove_locked(torch_device *d, torch_block *block);

/* The cache of a stream, in the capture of `graph` or outside of captures (NULL). NULL: no memory
 * of the host is left. */
torch_cache *torch_cache_of_locked(torch_device *d, torch_graph *graph, torch_stream stream);
void torch_cache_push_locked(torch_cache *cache, torch_block *block);
torch_block *torch_cache_pop_locked(torch_cache *cache, unsigned size_class);
/* Takes the smallest block of `bytes` to `most` bytes. NULL: there is none. */
torch_block *torch_cache_fit_locked(torch_cache *cache, size_t bytes, size_t most);
/* Takes up to TORCH_BATCH free blocks of one cache out of the cache and the table, until they have
 * `wanted` bytes: larger blocks first, the oldest ones first. Returns their number. */
size_t torch_cache_take_locked(torch_device *d, torch_cache *cache, uint64_t wanted, torch_block **out);

/* ---- torch_memory.c: memory from Heddle, and back to it ---- */

/* Gives blocks back to Heddle until `wanted` bytes left the caches of the device, those of `first`
 * (may be NULL) before others. Returns the bytes that left. */
uint64_t torch_release(torch_device *d, torch_cache *first, uint64_t wanted);
/* Gives back the blocks of the list `later` whose streams permit it now. Returns their bytes. */
uint64_t torch_release_later(torch_device *d);
/* Gets a block for a request. NULL: hd_message() has the reason. */
torch_block *torch_fetch(torch_device *d, torch_cache *cache, size_t bytes);
/* Gets a block that is one piece of memory, with a label. */
torch_block *torch_fetch_segment(torch_device *d, size_t bytes, const char *label);
/* Waits for all work on the device. False: not possible, for example since a capture forbids it. */
bool torch_settle(torch_device *d);

/* ---- torch_graph.c: captures ---- */

/* The graph that a capture of the stream makes. False: the capture is not known, for lack of host
 * memory. *out is NULL if the stream is not being captured. */
bool torch_graph_of_locked(torch_device *d, void *stream, torch_graph **out);
/* True if the capture of a graph with memory goes on. */
bool torch_graphs_are_captured_locked(torch_device *d);
/* Keeps a freed block as long as the graph. */
void torch_graph_park_locked(torch_graph *graph, torch_block *block);
/* Moves the memory of graphs that are gone to the list `later`. */
void torch_graphs_end_locked(torch_device *d);

/* The legacy default stream cannot be captured. */
static inline bool torch_is_capturing(void *stream)
{
    int status = 0;
    return (uintptr_t)stream > TORCH_STREAM_LEGACY && hd_torch_driver.is_capturing(stream, &status) == 0 && status != 0;
}

/* The stream with this handle now. A stream under capture gets no question, which could spoil the
 * capture. */
static inline torch_stream torch_stream_of(void *handle, bool capturing)
{
    torch_stream stream = {handle, 0};
    bool own = (uintptr_t)handle > TORCH_STREAM_LEGACY && hd_torch_driver.stream_id;
    if (own && !capturing && hd_torch_driver.stream_id(handle, &stream.id) != 0) {
        stream.id = 0;
    }
    return stream;
}

static inline bool torch_streams_equal(torch_stream a, torch_stream b)
{
    return a.handle == b.handle && a.id == b.id;
}

static inline bool torch_graphs_are_gone(const torch_device *d)
{
    return atomic_load_explicit(&d->graphs_gone, memory_order_relaxed) > 0;
}

#endif
