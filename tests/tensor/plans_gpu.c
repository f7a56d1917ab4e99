/* plans_gpu.c - the kernels in their GPU form, with a check of every access. */
#include "tensor/plans.h"

#include <stdatomic.h>
#include <string.h>

plans_accesses plans_seen;

static void look(uint64_t address, uint32_t n)
{
    if (address % n != 0) {
        atomic_fetch_add_explicit(&plans_seen.unaligned, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(n == 16 ? &plans_seen.wide : &plans_seen.narrow, 1, memory_order_relaxed);
}

/* A read must cover elements only, or 16 aligned bytes that contain a part of an element. */
static void look_at_read(const unsigned char *at, uint32_t n)
{
    uint32_t of_elements = 0;
    for (uint32_t b = 0; b < n; b++) {
        uint64_t offset = (uintptr_t)at + b - (uintptr_t)plans_seen.elements;
        of_elements += offset < plans_seen.element_bytes && plans_seen.belongs[offset];
    }
    if (n == 16 ? of_elements == 0 : of_elements != n) {
        atomic_fetch_add_explicit(&plans_seen.strange, 1, memory_order_relaxed);
    }
}

static void seen_read(void *value, const unsigned char *at, uint32_t n)
{
    look((uintptr_t)at, n);
    if (plans_seen.belongs) {
        look_at_read(at, n);
    }
    if (plans_seen.pretend) {
        for (uint32_t i = 0; i < n; i++) {
            ((unsigned char *)value)[i] = plans_byte((uintptr_t)at + i);
        }
    } else {
        memcpy(value, at, n);
    }
}

static void seen_write(unsigned char *at, const void *value, uint32_t n)
{
    look((uintptr_t)at, n);
    if (plans_seen.pretend) {
        plans_seen.wrote((uintptr_t)at, value, n);
    } else {
        memcpy(at, value, n);
    }
}

#define HD_TENSOR_READ(value, at, bytes) seen_read(value, at, bytes)
#define HD_TENSOR_WRITE(at, value, bytes) seen_write(at, value, bytes)
#undef hd_block_x
#define hd_block_x() (hd_self->block.x + plans_seen.first_block)
#include "kernel/builtin/tensor_tiles_gpu.h"

const hd_cpu_kernel *plans_gpu_kernel(const char *name)
{
    static const hd_cpu_kernel *const kernels[] = {
#define ROW(bytes) &hd_tensor_units_##bytes##_hd_record.kernel,
        HD_TENSOR_UNITS(ROW)
#undef ROW
#define ROW(name, ...) &hd_tensor_tile_##name##_hd_record.kernel,
            HD_TENSOR_TILES(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i]->name, name) == 0) {
            return kernels[i];
        }
    }
    return NULL;
}
