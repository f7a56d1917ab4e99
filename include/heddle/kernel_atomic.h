/* kernel_atomic.h - kernel source: atomic operations and fences. heddle/kernel.h includes it.
 *
 *     hd_atomic_OP_TYPE(pointer, value)                   returns the earlier value
 *
 *         add, exchange               i32 u32 i64 u64 f32 f64; add also f16 and bf16
 *         min, max                    i32 u32 i64 u64 f32 f64; a number wins over a NaN
 *         sub, and, or, xor           i32 u32 i64 u64
 *         cas(pointer, expected, desired)
 *                                     u16 i32 u32 i64 u64; stores `desired` if the value was equal
 *                                     to `expected`
 *
 * `pointer` points to memory of a buffer or to shared memory, aligned to the size of the type. An
 * operation is atomic for all threads of the device. On a host device, an operation is atomic for
 * all threads of the program. The operations are relaxed: they do not order accesses to other
 * memory. To order other accesses, use a fence:
 *
 *     hd_thread_fence_block(), _device(), _system()
 *
 * A fence works for the other threads of the block, of the device or of the system. If such a
 * thread sees a write that the calling thread makes after the fence, it also sees the writes before
 * the fence. The fence orders the calling thread's reads in the same way.
 *
 * Sums of floating-point numbers depend on the order in which the threads add. This order may
 * differ from launch to launch.
 */
#include <heddle/kernel.h> /* first: it includes this file, too */

#ifndef HEDDLE_KERNEL_ATOMIC_H
#define HEDDLE_KERNEL_ATOMIC_H
#include <heddle/kernel_half.h>

#if HD_KERNEL_GPU

/* ---- GPU: clang or nvcc ---- */

#ifdef __clang__
#define HD_ATOMIC_2(name, type, clang_word, clang_function, nvcc_word, nvcc_function)                                  \
    HD_DEVICE type hd_atomic_##name(type *p, type v)                                                                   \
    {                                                                                                                  \
        return (type)clang_function((clang_word *)p, (clang_word)v);                                                   \
    }
#define HD_ATOMIC_3(name, type, clang_word, clang_function, nvcc_word, nvcc_function)                                  \
    HD_DEVICE type hd_atomic_##name(type *p, type expected, type desired)                                              \
    {                                                                                                                  \
        return (type)clang_function((clang_word *)p, (clang_word)expected, (clang_word)desired);                       \
    }
#else
#define HD_ATOMIC_2(name, type, clang_word, clang_function, nvcc_word, nvcc_function)                                  \
    HD_DEVICE type hd_atomic_##name(type *p, type v)                                                                   \
    {                                                                                                                  \
        return (type)nvcc_function((nvcc_word *)p, (nvcc_word)v);                                                      \
    }
#define HD_ATOMIC_3(name, type, clang_word, clang_function, nvcc_word, nvcc_function)                                  \
    HD_DEVICE type hd_atomic_##name(type *p, type expected, type desired)                                              \
    {                                                                                                                  \
        return (type)nvcc_function((nvcc_word *)p, (nvcc_word)expected, (nvcc_word)desired);                           \
    }
#endif
#define HD_ATOMIC_ULL unsigned long long

HD_ATOMIC_2(add_i32, int32_t, int, __nvvm_atom_add_gen_i, int, atomicAdd)
HD_ATOMIC_2(add_u32, uint32_t, int, __nvvm_atom_add_gen_i, unsigned, atomicAdd)
HD_ATOMIC_2(add_i64, int64_t, long long, __nvvm_atom_add_gen_ll, HD_ATOMIC_ULL, atomicAdd)
HD_ATOMIC_2(add_u64, uint64_t, long long, __nvvm_atom_add_gen_ll, HD_ATOMIC_ULL, atomicAdd)
HD_ATOMIC_2(add_f32, float, float, __nvvm_atom_add_gen_f, float, atomicAdd)
HD_ATOMIC_2(add_f64, double, double, __nvvm_atom_add_gen_d, double, atomicAdd)
HD_ATOMIC_2(min_i32, int32_t, int, __nvvm_atom_min_gen_i, int, atomicMin)
HD_ATOMIC_2(min_u32, uint32_t, unsigned, __nvvm_atom_min_gen_ui, unsigned, atomicMin)
HD_ATOMIC_2(min_i64, int64_t, long long, __nvvm_atom_min_gen_ll, long long, atomicMin)
HD_ATOMIC_2(min_u64, uint64_t, HD_ATOMIC_ULL, __nvvm_atom_min_gen_ull, HD_ATOMIC_ULL, atomicMin)
HD_ATOMIC_2(max_i32, int32_t, int, __nvvm_atom_max_gen_i, int, atomicMax)
HD_ATOMIC_2(max_u32, uint32_t, unsigned, __nvvm_atom_max_gen_ui, unsigned, atomicMax)
HD_ATOMIC_2(max_i64, int64_t, long long, __nvvm_atom_max_gen_ll, long long, atomicMax)
HD_ATOMIC_2(max_u64, uint64_t, HD_ATOMIC_ULL, __nvvm_atom_max_gen_ull, HD_ATOMIC_ULL, atomicMax)
HD_ATOMIC_2(and_i32, int32_t, int, __nvvm_atom_and_gen_i, int, atomicAnd)
HD_ATOMIC_2(and_u32, uint32_t, int, __nvvm_atom_and_gen_i, unsigned, atomicAnd)
HD_ATOMIC_2(and_i64, int64_t, long long, __nvvm_atom_and_gen_ll, HD_ATOMIC_ULL, atomicAnd)
HD_ATOMIC_2(and_u64, uint64_t, long long, __nvvm_atom_and_gen_ll, HD_ATOMIC_ULL, atomicAnd)
HD_ATOMIC_2(or_i32, int32_t, int, __nvvm_atom_or_gen_i, int, atomicOr)
HD_ATOMIC_2(or_u32, uint32_t, int, __nvvm_atom_or_gen_i, unsigned, atomicOr)
HD_ATOMIC_2(or_i64, int64_t, long long, __nvvm_atom_or_gen_ll, HD_ATOMIC_ULL, atomicOr)
HD_ATOMIC_2(or_u64, uint64_t, long long, __nvvm_atom_or_gen_ll, HD_ATOMIC_ULL, atomicOr)
HD_ATOMIC_2(xor_i32, int32_t, int, __nvvm_atom_xor_gen_i, int, atomicXor)
HD_ATOMIC_2(xor_u32, uint32_t, int, __nvvm_atom_xor_gen_i, unsigned, atomicXor)
HD_ATOMIC_2(xor_i64, int64_t, long long, __nvvm_atom_xor_gen_ll, HD_ATOMIC_ULL, atomicXor)
HD_ATOMIC_2(xor_u64, uint64_t, long long, __nvvm_atom_xor_gen_ll, HD_ATOMIC_ULL, atomicXor)
HD_ATOMIC_2(exchange_i32, int32_t, int, __nvvm_atom_xchg_gen_i, int, atomicExch)
HD_ATOMIC_2(exchange_u32, uint32_t, int, __nvvm_atom_xchg_gen_i, unsigned, atomicExch)
HD_ATOMIC_2(exchange_i64, int64_t, long long, __nvvm_atom_xchg_gen_ll, HD_ATOMIC_ULL, atomicExch)
HD_ATOMIC_2(exchange_u64, uint64_t, long long, __nvvm_atom_xchg_gen_ll, HD_ATOMIC_ULL, atomicExch)
HD_ATOMIC_3(cas_i32, int32_t, int, __nvvm_atom_cas_gen_i, int, atomicCAS)
HD_ATOMIC_3(cas_u32, uint32_t, int, __nvvm_atom_cas_gen_i, unsigned, atomicCAS)
HD_ATOMIC_3(cas_i64, int64_t, long long, __nvvm_atom_cas_gen_ll, HD_ATOMIC_ULL, atomicCAS)
HD_ATOMIC_3(cas_u64, uint64_t, long long, __nvvm_atom_cas_gen_ll, HD_ATOMIC_ULL, atomicCAS)
#undef HD_ATOMIC_2
#undef HD_ATOMIC_3
#undef HD_ATOMIC_ULL

HD_DEVICE int32_t hd_atomic_sub_i32(int32_t *p, int32_t v)
{
    return (int32_t)hd_atomic_add_u32((uint32_t *)p, 0 - (uint32_t)v);
}
HD_DEVICE uint32_t hd_atomic_sub_u32(uint32_t *p, uint32_t v)
{
    return hd_atomic_add_u32(p, 0 - v);
}
HD_DEVICE int64_t hd_atomic_sub_i64(int64_t *p, int64_t v)
{
    return (int64_t)hd_atomic_add_u64((uint64_t *)p, 0 - (uint64_t)v);
}
HD_DEVICE uint64_t hd_atomic_sub_u64(uint64_t *p, uint64_t v)
{
    return hd_atomic_add_u64(p, 0 - v);
}
HD_DEVICE uint16_t hd_atomic_cas_u16(uint16_t *p, uint16_t expected, uint16_t desired)
{
    uint16_t before;
    __asm__ volatile("atom.cas.b16 %0, [%1], %2, %3;" : "=h"(before) : "l"(p), "h"(expected), "h"(desired) : "memory");
    return before;
}
#define HD_ATOMIC_LOAD(p) (*(volatile const __typeof__(*(p)) *)(p))

HD_DEVICE void hd_thread_fence_block(void)
{
    __asm__ volatile("membar.cta;" ::: "memory");
}
HD_DEVICE void hd_thread_fence_device(void)
{
    __asm__ volatile("membar.gl;" ::: "memory");
}
HD_DEVICE void hd_thread_fence_system(void)
{
    __asm__ volatile("membar.sys;" ::: "memory");
}

#elif !defined(__cplusplus)

/* ---- CPU: gcc or clang ---- */

#define HD_ATOMIC_LOAD(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define HD_ATOMIC_CAS(suffix, type)                                                                                    \
    HD_DEVICE type hd_atomic_cas_##suffix(type *p, type expected, type desired)                                        \
    {                                                                                                                  \
        __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                     \
        return expected;                                                                                               \
    }
#define HD_ATOMIC_FETCH(name, suffix, type)                                                                            \
    HD_DEVICE type hd_atomic_##name##_##suffix(type *p, type v)                                                        \
    {                                                                                                                  \
        return __atomic_fetch_##name(p, v, __ATOMIC_RELAXED);                                                          \
    }
#define HD_ATOMIC_SELECT(name, sign, suffix, type)                                                                     \
    HD_DEVICE type hd_atomic_##name##_##suffix(type *p, type v)                                                        \
    {                                                                                                                  \
        type before = __atomic_load_n(p, __ATOMIC_RELAXED);                                                            \
        while (v sign before && !__atomic_compare_exchange_n(p, &before, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {  \
        }                                                                                                              \
        return before;                                                                                                 \
    }
#define HD_ATOMIC_ALL(suffix, type)                                                                                    \
    HD_ATOMIC_CAS(suffix, type)                                                                                        \
    HD_ATOMIC_FETCH(add, suffix, type)                                                                                 \
    HD_ATOMIC_FETCH(sub, suffix, type)                                                                                 \
    HD_ATOMIC_FETCH(and, suffix, type)                                                                                 \
    HD_ATOMIC_FETCH(or, suffix, type)                                                                                  \
    HD_ATOMIC_FETCH(xor, suffix, type)                                                                                 \
    HD_ATOMIC_SELECT(min, <, suffix, type)                                                                             \
    HD_ATOMIC_SELECT(max, >, suffix, type)                                                                             \
    HD_DEVICE type hd_atomic_exchange_##suffix(type *p, type v)                                                        \
    {                                                                                                                  \
        return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                                            \
    }
HD_ATOMIC_CAS(u16, uint16_t)
HD_ATOMIC_ALL(i32, int32_t)
HD_ATOMIC_ALL(u32, uint32_t)
HD_ATOMIC_ALL(i64, int64_t)
HD_ATOMIC_ALL(u64, uint64_t)
#undef HD_ATOMIC_CAS
#undef HD_ATOMIC_FETCH
#undef HD_ATOMIC_SELECT
#undef HD_ATOMIC_ALL

HD_DEVICE void hd_thread_fence_block(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
HD_DEVICE void hd_thread_fence_device(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
HD_DEVICE void hd_thread_fence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif

#if HD_KERNEL_GPU || !defined(__cplusplus)

/* ---- GPU and CPU: operations made from compare and exchange ---- */

/* `word` is an integer type as large as `type`. `now` is the value in memory. `keeps` is true if
 * this value need not change. */
#define HD_ATOMIC_LOOP(name, suffix, type, word_suffix, word, keeps, value)                                            \
    HD_DEVICE type hd_atomic_##name##_##suffix(type *p, type v)                                                        \
    {                                                                                                                  \
        word *at = (word *)p;                                                                                          \
        word expected, found = HD_ATOMIC_LOAD(at);                                                                     \
        type now, next;                                                                                                \
        do {                                                                                                           \
            expected = found;                                                                                          \
            __builtin_memcpy(&now, &expected, sizeof now);                                                             \
            if (keeps) {                                                                                               \
                break;                                                                                                 \
            }                                                                                                          \
            next = value;                                                                                              \
            word desired;                                                                                              \
            __builtin_memcpy(&desired, &next, sizeof desired);                                                         \
            found = hd_atomic_cas_##word_suffix(at, expected, desired);                                                \
        } while (found != expected);                                                                                   \
        return now;                                                                                                    \
    }
HD_ATOMIC_LOOP(min, f32, float, u32, uint32_t, v != v || now <= v, v)
HD_ATOMIC_LOOP(max, f32, float, u32, uint32_t, v != v || now >= v, v)
HD_ATOMIC_LOOP(min, f64, double, u64, uint64_t, v != v || now <= v, v)
HD_ATOMIC_LOOP(max, f64, double, u64, uint64_t, v != v || now >= v, v)
HD_ATOMIC_LOOP(add, f16, hd_f16, u16, uint16_t, 0, hd_f16_add(now, v))
HD_ATOMIC_LOOP(add, bf16, hd_bf16, u16, uint16_t, 0, hd_bf16_add(now, v))
#if !HD_KERNEL_GPU
HD_ATOMIC_LOOP(add, f32, float, u32, uint32_t, 0, now + v)
HD_ATOMIC_LOOP(add, f64, double, u64, uint64_t, 0, now + v)
#endif
#undef HD_ATOMIC_LOOP
#undef HD_ATOMIC_LOAD

HD_DEVICE float hd_atomic_exchange_f32(float *p, float v)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    bits = hd_atomic_exchange_u32((uint32_t *)p, bits);
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}
HD_DEVICE double hd_atomic_exchange_f64(double *p, double v)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &v, sizeof bits);
    bits = hd_atomic_exchange_u64((uint64_t *)p, bits);
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}

#endif

#endif
