/* handle.c - stable memory, and the salt: the number that distinguishes handles of this process
 * from handles of the process that forked it.
 *
 * Threads: any; the salt changes in the child's only thread, right after a fork. Locks: the lock of
 * stable memory; no lock is taken under it.
 * Always: the salt grows with every generation of forks, so handles of ancestors are never valid.
 * Addresses of stable memory never serve anything else.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/lock.h"

/* ---- stable memory ---- */

#define CHUNK_BYTES ((size_t)64 << 10) /* larger requests get larger chunks */
/* Chunks are cut from ranges of this many addresses. So cleared chunks are neighbours, and form one
 * mapping. */
#define YARD_BYTES ((size_t)32 << 20)

typedef struct chunk {
    struct chunk *next;
    char *base;
    size_t bytes, taken;
} chunk;

struct hdi_stable {
    chunk *chunks; /* the newest chunk comes first; memory is taken from it */
    struct hdi_stable *next;
};

static hdi_mutex lock = HDI_MUTEX_INIT(STABLE);
static struct hdi_stable *all;
static char *yard; /* the rest of the current range */
static size_t yard_bytes;

static void stable_before_fork(void)
{
    hdi_mutex_lock_at_fork(&lock);
}

static void stable_after_fork(void)
{
    hdi_mutex_unlock(&lock);
}

static void stable_watch_forks(void)
{
    pthread_atfork(stable_before_fork, stable_after_fork, stable_after_fork);
}

hdi_stable *hdi_stable_create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, stable_watch_forks);
    hdi_stable *stable = calloc(1, sizeof *stable);
    if (stable != NULL) {
        hdi_mutex_lock(&lock);
        stable->next = all;
        all = stable;
        hdi_mutex_unlock(&lock);
    }
    return stable;
}

/* Takes unused addresses; NULL: none left. Lock held. */
static void *stable_cut(size_t bytes)
{
    if (bytes > yard_bytes) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        size_t wanted = bytes > YARD_BYTES ? bytes : YARD_BYTES;
        void *more = mmap(NULL, wanted, PROT_NONE, flags, -1, 0);
        /* the system limits addresses, so the second try takes no more than needed */
        if (more == MAP_FAILED && wanted > bytes) {
            wanted = bytes;
            more = mmap(NULL, wanted, PROT_NONE, flags, -1, 0);
        }
        if (more == MAP_FAILED) {
            return NULL;
        }
        yard = more;
        yard_bytes = wanted;
    }
    if (mprotect(yard, bytes, PROT_READ | PROT_WRITE) != 0) {
        return NULL;
    }
    void *base = yard;
    yard += bytes;
    yard_bytes -= bytes;
    return base;
}

/* Adds a chunk of at least this size in front of the others. Lock held. */
static bool stable_add_chunk(hdi_stable *stable, size_t bytes)
{
    chunk *c = malloc(sizeof *c);
    if (c == NULL) {
        return false;
    }
    bytes = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    void *base = stable_cut(bytes);
    if (base == NULL) {
        free(c);
        return false;
    }
    *c = (chunk){.next = stable->chunks, .base = base, .bytes = bytes};
    stable->chunks = c;
    return true;
}

void *hdi_stable_take(hdi_stable *stable, size_t bytes)
{
    void *taken = NULL;
    bytes = (bytes + HDI_SELF_ALIGN - 1) / HDI_SELF_ALIGN * HDI_SELF_ALIGN;
    hdi_mutex_lock(&lock);
    chunk *c = stable->chunks;
    if ((c != NULL && c->bytes - c->taken >= bytes) || stable_add_chunk(stable, bytes)) {
        c = stable->chunks;
        taken = c->base + c->taken;
        c->taken += bytes;
    }
    hdi_mutex_unlock(&lock);
    return taken;
}

/* Gives the memory back and keeps the addresses. If the system refuses, the memory stays, but its
 * content is cleared. */
static void stable_bury_chunk(const chunk *c)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    HDI_HANDOVER_BEGIN(); /* stale handles may lead there at any time */
    if (mmap(c->base, c->bytes, PROT_READ, flags, -1, 0) == MAP_FAILED) {
        madvise(c->base, c->bytes, MADV_DONTNEED);
    }
    HDI_HANDOVER_END();
}

void hdi_stable_clear(hdi_stable *stable)
{
    if (stable == NULL) {
        return;
    }
    hdi_mutex_lock(&lock);
    struct hdi_stable **link = &all;
    while (*link != stable) {
        link = &(*link)->next;
    }
    *link = stable->next;
    hdi_mutex_unlock(&lock);
    for (chunk *c = stable->chunks, *next; c != NULL; c = next) {
        next = c->next;
        stable_bury_chunk(c);
        free(c);
    }
    free(stable);
}

/* True if an address is in stable memory that is not cleared. */
static bool stable_contains(const void *address)
{
    bool found = false;
    hdi_mutex_lock(&lock);
    for (const struct hdi_stable *g = all; g != NULL && !found; g = g->next) {
        for (const chunk *c = g->chunks; c != NULL && !found; c = c->next) {
            found = (uintptr_t)address - (uintptr_t)c->base < c->taken;
        }
    }
    hdi_mutex_unlock(&lock);
    return found;
}

/* ---- handles ---- */

uint32_t hdi_handle_salt;

static void handle_change_salt(void)
{
    hdi_handle_salt++;
}

static void handle_watch_forks(void)
{
    pthread_atfork(NULL, NULL, handle_change_salt);
}

void hdi_handle_guard_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, handle_watch_forks);
}

/* The kind of object behind a handle; NULL: it is not known, or the handle is not valid. */
static const char *handle_kind_of(const void *handle)
{
    static const struct {
        uint32_t magic;
        const char *kind;
    } kinds[] = {
        {HDI_LANE_MAGIC, "lane"}, {HDI_KERNEL_MAGIC, "kernel"}, {HDI_MODULE_MAGIC, "module"},
        {HDI_HOLD_MAGIC, "hold"}, {HDI_CLAIM_MAGIC, "claim"},   {HDI_RUNTIME_MAGIC, "runtime"},
    };
    const hdi_handle_head *head = hdi_handle_object(handle);
    if (!stable_contains(head)) {
        return NULL;
    }
    uint64_t word = atomic_load_explicit(&head->word, memory_order_acquire);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if ((uint32_t)word == (kinds[i].magic ^ hdi_handle_salt)) {
            return kinds[i].kind;
        }
    }
    return (word & ~HDI_SELF_LOST) == hdi_self_word(handle) ? "buffer" : NULL;
}

hd_status hdi_handle_refused(const void *handle, const char *kind, const char *why)
{
    if (!handle) {
        return hdi_fail(HD_ERROR_HANDLE, "the %s is null", kind);
    }
    const char *other = handle_kind_of(handle);
    if (other && strcmp(other, kind) != 0) {
        return hdi_fail(HD_ERROR_HANDLE, "this is a %s, not a %s", other, kind);
    }
    return hdi_fail(HD_ERROR_HANDLE, "not a %s, or %s", kind, why);
}
