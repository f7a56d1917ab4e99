/* tensor_gpu.h - the kernels of tensor.h as GPUs run them: memory accesses, elements, and the
 * kernels for units. Tiles are in tensor_tiles_gpu.h. Except for the accesses the code is plain C,
 * so that tests can also run it on the CPU.
 *
 * Threads: all threads of a block take the same way at every barrier. Always: bytes outside the
 * destination's elements are not written. The kernels read only bytes that lie in the same aligned
 * 16 bytes as an element of the source. So the memory exists, and the kernels drop bytes that
 * belong to no element.
 */
#ifndef HD_BUILTIN_TENSOR_GPU_H
#define HD_BUILTIN_TENSOR_GPU_H

#include "tensor.h"

typedef uint32_t hd_chunk __attribute__((vector_size(16)));

#define HD_INLINE HD_DEVICE __attribute__((always_inline))

/* ---- accesses ---- */

#if HD_KERNEL_GPU

#define HD_TENSOR_KERNEL(name, threads, blocks, ...)                                                                   \
    extern "C" __attribute__((global)) void __attribute__((launch_bounds(threads, blocks))) name(__VA_ARGS__)
#define HD_UNROLL _Pragma("clang loop unroll(full)")
#define HD_UNROLL_BY(n) _Pragma(#n)

/* Loads from the source, which no thread writes while the kernel runs. */
#define HD_LOADER(name, type, form, constraint)                                                                        \
    HD_INLINE type name(const unsigned char *at)                                                                       \
    {                                                                                                                  \
        type v;                                                                                                        \
        asm volatile("ld.global.nc." form " %0, [%1];" : "=" constraint(v) : "l"(at));                                 \
        return v;                                                                                                      \
    }
#define HD_STORER(name, type, form, constraint)                                                                        \
    HD_INLINE void name(unsigned char *at, type v)                                                                     \
    {                                                                                                                  \
        asm volatile("st.global." form " [%0], %1;" : : "l"(at), constraint(v) : "memory");                            \
    }
HD_LOADER(hd_load_2, uint16_t, "u16", "h")
HD_LOADER(hd_load_4, uint32_t, "u32", "r")
HD_LOADER(hd_load_8, uint64_t, "u64", "l")
HD_STORER(hd_store_2, uint16_t, "u16", "h")
HD_STORER(hd_store_4, uint32_t, "u32", "r")
HD_STORER(hd_store_8, uint64_t, "u64", "l")
#undef HD_LOADER
#undef HD_STORER

HD_INLINE uint8_t hd_load_1(const unsigned char *at)
{
    uint16_t v;
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=h"(v) : "l"(at));
    return (uint8_t)v;
}

HD_INLINE void hd_store_1(unsigned char *at, uint8_t v)
{
    asm volatile("st.global.u8 [%0], %1;" : : "l"(at), "h"((uint16_t)v) : "memory");
}

HD_INLINE hd_chunk hd_load_16(const unsigned char *at)
{
    uint32_t a, b, c, d;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(at));
    hd_chunk v = {a, b, c, d};
    return v;
}

HD_INLINE void hd_store_16(unsigned char *at, hd_chunk v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* Byte n of the result is the byte of b:a that hexadecimal digit n of `which` names. */
#define HD_BYTES(a, b, which) ((uint32_t)__nvvm_prmt((int)(a), (int)(b), which))

#else

#define HD_TENSOR_KERNEL(name, threads, blocks, ...) HD_KERNEL_BOUNDS(name, threads, __VA_ARGS__)
#define HD_UNROLL
#define HD_UNROLL_BY(n)

/* Tests may look at every access. */
#ifndef HD_TENSOR_READ
#define HD_TENSOR_READ(value, at, bytes) __builtin_memcpy(value, at, bytes)
#define HD_TENSOR_WRITE(at, value, bytes) __builtin_memcpy(at, value, bytes)
#endif

#define HD_ACCESSES(bytes, type)                                                                                       \
    HD_INLINE type hd_load_##bytes(const unsigned char *at)                                                            \
    {                                                                                                                  \
        type v;                                                                                                        \
        HD_TENSOR_READ(&v, at, bytes);                                                                                 \
        return v;                                                                                                      \
    }                                                                                                                  \
    HD_INLINE void hd_store_##bytes(unsigned char *at, type v)                                                         \
    {                                                                                                                  \
        HD_TENSOR_WRITE(at, &v, bytes);                                                                                \
    }
HD_ACCESSES(1, uint8_t)
HD_ACCESSES(2, uint16_t)
HD_ACCESSES(4, uint32_t)
HD_ACCESSES(8, uint64_t)
HD_ACCESSES(16, hd_chunk)
#undef HD_ACCESSES

HD_INLINE uint32_t hd_bytes(uint32_t a, uint32_t b, uint32_t which)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t v = 0;
    for (int n = 0; n < 4; n++) {
        v |= (uint32_t)(both >> (which >> 4 * n & 7) * 8 & 255) << 8 * n;
    }
    return v;
}
#define HD_BYTES(a, b, which) hd_bytes(a, b, which)

#endif

/* ---- elements ---- */

/* Element k of a chunk, from memory. */
HD_INLINE void hd_load_into(hd_chunk *chunk, uint32_t k, const unsigned char *at, const uint32_t element)
{
    if (element == 16) {
        *chunk = hd_load_16(at);
    } else if (element == 8) {
        uint64_t v = hd_load_8(at);
        (*chunk)[2 * k] = (uint32_t)v, (*chunk)[2 * k + 1] = (uint32_t)(v >> 32);
    } else if (element == 4) {
        (*chunk)[k] = hd_load_4(at);
    } else if (element == 2) {
        (*chunk)[k / 2] |= (uint32_t)hd_load_2(at) << k % 2 * 16;
    } else {
        (*chunk)[k / 4] |= (uint32_t)hd_load_1(at) << k % 4 * 8;
    }
}

/* One element out of shared memory, in the first bytes of the result. hd_store_element writes it to
 * memory. */
HD_INLINE hd_chunk hd_element_at(const unsigned char *cell, const uint32_t element)
{
    hd_chunk v = {0, 0, 0, 0};
    if (element == 16) {
        v = *(const hd_chunk *)cell;
    } else if (element == 8) {
        uint64_t a = *(const uint64_t *)cell;
        v[0] = (uint32_t)a, v[1] = (uint32_t)(a >> 32);
    } else {
        v[0] = element == 4 ? *(const uint32_t *)cell : element == 2 ? *(const uint16_t *)cell : *cell;
    }
    return v;
}

/* The same for element k of a chunk. */
HD_INLINE hd_chunk hd_element_of(hd_chunk from, uint32_t k, const uint32_t element)
{
    hd_chunk v = from;
    if (element == 8) {
        v[0] = from[2 * k], v[1] = from[2 * k + 1];
    } else if (element < 8) {
        v[0] = from[k * element / 4] >> k * element % 4 * 8;
    }
    return v;
}

HD_INLINE void hd_store_element(unsigned char *to, hd_chunk v, const uint32_t element)
{
    if (element == 16) {
        hd_store_16(to, v);
    } else if (element == 8) {
        hd_store_8(to, (uint64_t)v[1] << 32 | v[0]);
    } else if (element == 4) {
        hd_store_4(to, v[0]);
    } else if (element == 2) {
        hd_store_2(to, (uint16_t)v[0]);
    } else {
        hd_store_1(to, (uint8_t)v[0]);
    }
}

/* ---- units ---- */

/* The places of a thread's positions. The thread finds all of them first, so that all its loads run
 * at the same time. */
typedef struct hd_places {
    const unsigned char *from[HD_TENSOR_UNITS_EACH];
    unsigned char *to[HD_TENSOR_UNITS_EACH];
    int inside[HD_TENSOR_UNITS_EACH];
} hd_places;

/* Splits positions first, first + threads, ... of the inner digits. */
HD_INLINE void hd_find_places(hd_places *at, unsigned char *dst, const unsigned char *src, const hd_tensor_units *p,
                              uint32_t first, const uint32_t *low, const int cuts)
{
    uint32_t position[HD_TENSOR_UNITS_EACH], sum[HD_TENSOR_UNITS_EACH][2];
    uint32_t rest = first, low_0 = low[0], low_1 = low[1];
    for (uint32_t k = 0; k < p->common; k++) {
        const hd_tensor_digit *digit = &p->digit[k];
        uint32_t index = rest;
        rest = hd_tensor_divide(index, &digit->by);
        index -= rest * digit->by.n;
        dst += index * digit->dst;
        src += index * digit->src;
        if (cuts) {
            low_0 += index * digit->weight[0];
            low_1 += index * digit->weight[1];
        }
    }
    HD_UNROLL
    for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
        at->inside[u] = first + (uint32_t)u * HD_TENSOR_UNITS_THREADS < p->count;
        position[u] = rest + (uint32_t)u * p->apart;
        at->from[u] = src, at->to[u] = dst;
        sum[u][0] = low_0, sum[u][1] = low_1;
    }
    for (uint32_t k = p->common; k < p->inner; k++) {
        const hd_tensor_digit *digit = &p->digit[k];
        HD_UNROLL
        for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
            uint32_t index = position[u];
            if (k + 1 < p->inner) { /* the last digit leaves nothing to split */
                position[u] = hd_tensor_divide(index, &digit->by);
                index -= position[u] * digit->by.n;
            }
            at->to[u] += index * digit->dst;
            at->from[u] += index * digit->src;
            if (cuts) {
                sum[u][0] += index * digit->weight[0];
                sum[u][1] += index * digit->weight[1];
            }
        }
    }
    HD_UNROLL
    for (int u = 0; u < HD_TENSOR_UNITS_EACH && cuts; u++) {
        at->inside[u] = at->inside[u] & (sum[u][0] < p->limit[0]) & (sum[u][1] < p->limit[1]);
    }
}

HD_INLINE void hd_units(HD_SELF, unsigned char *dst, const unsigned char *src, const hd_tensor_units *p,
                        const uint32_t element)
{
    const uint32_t each = 16 / element;
    uint32_t outer = hd_tensor_divide(hd_block_x(), &p->pieces);
    uint32_t first = (hd_block_x() - outer * p->pieces.n) * p->piece + hd_thread_x();
    uint32_t low[2] = {0, 0};
    for (uint32_t k = p->inner; k < p->digits; k++) {
        uint32_t rest = hd_tensor_divide(outer, &p->digit[k].by);
        uint32_t index = outer - rest * p->digit[k].by.n;
        outer = rest;
        dst += index * p->digit[k].dst;
        src += index * p->digit[k].src;
        low[0] += index * p->digit[k].weight[0];
        low[1] += index * p->digit[k].weight[1];
    }
    hd_places at;
    if (p->flags & HD_TENSOR_CUTS) {
        hd_find_places(&at, dst, src, p, first, low, 1);
    } else {
        hd_find_places(&at, dst, src, p, first, low, 0);
    }
    hd_chunk value[HD_TENSOR_UNITS_EACH];
    HD_UNROLL
    for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
        hd_chunk none = {0, 0, 0, 0};
        value[u] = none;
    }
    if (each > 1 && (p->flags & HD_TENSOR_GATHER)) {
        HD_UNROLL
        for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
            if (at.inside[u]) {
                HD_UNROLL
                for (uint32_t k = 0; k < each; k++) {
                    hd_load_into(&value[u], k, at.from[u] + k * p->collect_step, element);
                }
            }
        }
        HD_UNROLL
        for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
            if (at.inside[u]) {
                hd_store_16(at.to[u], value[u]);
            }
        }
        return;
    }
    HD_UNROLL
    for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
        if (at.inside[u]) {
            hd_load_into(&value[u], 0, at.from[u], element);
        }
    }
    HD_UNROLL
    for (int u = 0; u < HD_TENSOR_UNITS_EACH; u++) {
        if (at.inside[u]) {
            hd_store_element(at.to[u], value[u], element);
        }
    }
}

#define HD_UNITS_KERNEL(bytes)                                                                                         \
    HD_KERNEL_BOUNDS(hd_tensor_units_##bytes, HD_TENSOR_UNITS_THREADS, HD_OUT(unsigned char, dst),                     \
                     HD_IN(unsigned char, src), HD_VALUE(hd_tensor_units, p))                                          \
    {                                                                                                                  \
        hd_units(hd_self, dst, src, &p, bytes);                                                                        \
    }
HD_TENSOR_UNITS(HD_UNITS_KERNEL)

#endif
