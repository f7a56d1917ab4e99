/* handles.c - the host provider's registry of live handles.
 *
 * Threads: any. Locks: runs under the host lock. Blocking: none.
 * Always: a handle is generation << 32 | slot << 8 | kind. A slot's generation grows when its object goes. So a stale
 * handle is not found again until 2^32 objects have used the slot. No handle is a small number, since 0, 1 and 2 are
 * streams of the driver's own.
 */
#include <stdlib.h>
#include "simulator/host.h"

typedef struct slot {
    void *object; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* index + 1; 0: none */
    hdi_host_kind kind;
} slot;

enum { SLOTS_MAX = 1 << 24 };

static slot *slots;
static uint32_t slot_count, slot_capacity, first_free;

uint64_t hdi_host_handle_make(hdi_host_kind kind, void *object)
{
    uint32_t i;
    if (first_free != 0) {
        i = first_free - 1;
        first_free = slots[i].next_free;
    } else {
        if (slot_count == slot_capacity) {
            uint32_t capacity = slot_capacity ? slot_capacity * 2 : 64;
            slot *grown = capacity > SLOTS_MAX ? NULL : realloc(slots, capacity * sizeof *slots);
            if (!grown) {
                return 0;
            }
            slots = grown;
            slot_capacity = capacity;
        }
        i = slot_count++;
        slots[i].generation = 1;
    }
    slots[i].object = object;
    slots[i].kind = kind;
    slots[i].next_free = 0;
    return (uint64_t)slots[i].generation << 32 | (uint64_t)i << 8 | (uint64_t)kind;
}

static slot *slot_of(uint64_t handle)
{
    uint32_t i = (uint32_t)handle >> 8;
    if (i >= slot_count || !slots[i].object || slots[i].generation != handle >> 32 ||
        slots[i].kind != (handle & 0xff)) {
        return NULL;
    }
    return &slots[i];
}

void *hdi_host_handle_find(hdi_host_kind kind, uint64_t handle)
{
    slot *s = slot_of(handle);
    return s && s->kind == kind ? s->object : NULL;
}

void hdi_host_handle_drop(uint64_t handle)
{
    slot *s = slot_of(handle);
    if (s) {
        s->object = NULL;
        s->generation++;
        if (s->generation == 0) {
            s->generation = 1;
        }
        s->next_free = first_free;
        first_free = (uint32_t)(s - slots) + 1;
    }
}

void *hdi_host_handle_next(hdi_host_kind kind, uint32_t *position)
{
    while (*position < slot_count) {
        slot *s = &slots[(*position)++];
        if (s->object && s->kind == kind) {
            return s->object;
        }
    }
    return NULL;
}
