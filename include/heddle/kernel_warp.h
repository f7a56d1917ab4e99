/* kernel_warp.h - kernel source: functions that the threads of a warp call together.
 * heddle/kernel.h includes it.
 *
 * A warp is 32 threads of a block with consecutive numbers. A thread's number in its block is x + y
 * * block_dim.x + z * block_dim.x * block_dim.y. Its lane is this number modulo 32. The last warp
 * of a block may contain fewer threads. T is i32, u32, i64, u64, f32 or f64:
 *
 *     hd_warp_size                                  32
 *     hd_lane_index()                               the thread's lane
 *     hd_warp_shuffle_idx_T(value, lane)            the value of the lane `lane` (modulo 32)
 *     hd_warp_shuffle_up_T(value, delta)            the value of the lane that is lower by `delta`
 *                                                   (modulo 32); the thread's own value if there is
 *                                                   no such lane
 *     hd_warp_shuffle_down_T(value, delta)          the value of the lane that is higher by `delta`
 *                                                   (modulo 32); the thread's own value if there is
 *                                                   no such lane
 *     hd_warp_shuffle_xor_T(value, mask)            the value of the lane hd_lane_index() ^ mask
 *                                                   (modulo 32)
 *     hd_warp_any(condition), hd_warp_all(condition)
 *                                                   true if the condition holds in some lane, or in
 *                                                   all lanes
 *     hd_warp_ballot(condition)                     a bit for each lane whose condition holds
 *     hd_warp_active_mask()                         a bit for each lane that takes part
 *     hd_warp_match_any_u32(value), _u64            a bit for each lane with the same value
 *     hd_warp_reduce_add_T(value), _min_T, _max_T   sum, least or greatest value of all lanes; each
 *                                                   lane gets the result; a NaN is neither least
 *                                                   nor greatest
 *     hd_warp_barrier()                             afterwards each thread of the warp sees the
 *                                                   earlier writes of the others
 *     hd_block_reduce_add_T(value), _min_T, _max_T  the same over all threads of the block; also a
 *                                                   barrier of the block
 *
 * All threads of the warp that are still in the kernel must call such a function, at the same place
 * in the program. A lane takes no part if its thread returned from the kernel. The same holds for
 * lanes of the last warp that have no thread. In a shuffle, the value of a lane that takes no part
 * is unspecified. The other functions ignore this lane. All threads of the block must call
 * hd_block_reduce_*, and all of them must still be in the kernel.
 *
 * If some threads of a warp do not make the call, the behaviour of a GPU is undefined: for example,
 * it may wait forever. On a host device, the launch ends and the device is lost; the message names
 * the kernel, the block and two threads. GPUs and host devices add floating-point numbers in the
 * same order, so the bits of their sums are equal.
 */
#include <heddle/kernel.h> /* first: it includes this file, too */

#ifndef HEDDLE_KERNEL_WARP_H
#define HEDDLE_KERNEL_WARP_H

#define hd_warp_size 32

#if HD_KERNEL_GPU || !defined(__cplusplus)

#define HD_WARP_OP_add(suffix, a, b) ((a) + (b))
#define HD_WARP_OP_min(suffix, a, b) ((b) < (a) || HD_WARP_ISNAN_##suffix(a) ? (b) : (a))
#define HD_WARP_OP_max(suffix, a, b) ((b) > (a) || HD_WARP_ISNAN_##suffix(a) ? (b) : (a))
#define HD_WARP_ISNAN_i32(a) 0
#define HD_WARP_ISNAN_u32(a) 0
#define HD_WARP_ISNAN_i64(a) 0
#define HD_WARP_ISNAN_u64(a) 0
#define HD_WARP_ISNAN_f32(a) ((a) != (a))
#define HD_WARP_ISNAN_f64(a) ((a) != (a))

#endif

#if HD_KERNEL_GPU

/* ---- GPU: clang or nvcc ---- */

/* The instructions wait only for those lanes of a mask whose threads are still in the kernel.
 * Therefore the mask may contain all lanes. */
#define HD_WARP_LANES "0xffffffff"

HD_DEVICE uint32_t hd_lane_index(void)
{
    uint32_t lane;
    __asm__("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
HD_DEVICE uint32_t hd_warp_ballot(int condition)
{
    uint32_t mask;
    __asm__ volatile("{ .reg .pred p;\n"
                     "  setp.ne.s32 p, %1, 0;\n"
                     "  vote.sync.ballot.b32 %0, p, " HD_WARP_LANES "; }"
                     : "=r"(mask)
                     : "r"(condition));
    return mask;
}
HD_DEVICE uint32_t hd_warp_active_mask(void)
{
    return hd_warp_ballot(1);
}
HD_DEVICE int hd_warp_any(int condition)
{
    return hd_warp_ballot(condition) != 0;
}
HD_DEVICE int hd_warp_all(int condition)
{
    return hd_warp_ballot(!condition) == 0;
}
HD_DEVICE void hd_warp_barrier(void)
{
    __asm__ volatile("bar.warp.sync " HD_WARP_LANES ";" ::: "memory");
}
HD_DEVICE uint32_t hd_warp_match_any_u32(uint32_t value)
{
    uint32_t mask;
    __asm__ volatile("match.any.sync.b32 %0, %1, " HD_WARP_LANES ";" : "=r"(mask) : "r"(value));
    return mask;
}
HD_DEVICE uint32_t hd_warp_match_any_u64(uint64_t value)
{
    uint32_t mask;
    __asm__ volatile("match.any.sync.b64 %0, %1, " HD_WARP_LANES ";" : "=r"(mask) : "l"(value));
    return mask;
}

/* The instructions use only the last five bits of a lane or a distance. */
#define HD_WARP_SHUFFLE(way, instruction, clamp)                                                                       \
    HD_DEVICE uint32_t hd_warp_shuffle_##way##_u32(uint32_t value, uint32_t where)                                     \
    {                                                                                                                  \
        uint32_t result;                                                                                               \
        __asm__ volatile("shfl.sync." instruction ".b32 %0, %1, %2, " clamp ", " HD_WARP_LANES ";"                     \
                         : "=r"(result)                                                                                \
                         : "r"(value), "r"(where));                                                                    \
        return result;                                                                                                 \
    }                                                                                                                  \
    HD_DEVICE uint64_t hd_warp_shuffle_##way##_u64(uint64_t value, uint32_t where)                                     \
    {                                                                                                                  \
        uint32_t low = hd_warp_shuffle_##way##_u32((uint32_t)value, where);                                            \
        return (uint64_t)hd_warp_shuffle_##way##_u32((uint32_t)(value >> 32), where) << 32 | low;                      \
    }                                                                                                                  \
    HD_WARP_SHUFFLE_OF(way, i32, int32_t, u32, uint32_t)                                                               \
    HD_WARP_SHUFFLE_OF(way, i64, int64_t, u64, uint64_t)                                                               \
    HD_WARP_SHUFFLE_OF(way, f32, float, u32, uint32_t)                                                                 \
    HD_WARP_SHUFFLE_OF(way, f64, double, u64, uint64_t)
#define HD_WARP_SHUFFLE_OF(way, suffix, type, word_suffix, word)                                                       \
    HD_DEVICE type hd_warp_shuffle_##way##_##suffix(type value, uint32_t where)                                        \
    {                                                                                                                  \
        word bits;                                                                                                     \
        __builtin_memcpy(&bits, &value, sizeof bits);                                                                  \
        bits = hd_warp_shuffle_##way##_##word_suffix(bits, where);                                                     \
        __builtin_memcpy(&value, &bits, sizeof value);                                                                 \
        return value;                                                                                                  \
    }
HD_WARP_SHUFFLE(idx, "idx", "0x1f")
HD_WARP_SHUFFLE(up, "up", "0x0")
HD_WARP_SHUFFLE(down, "down", "0x1f")
HD_WARP_SHUFFLE(xor, "bfly", "0x1f")
#undef HD_WARP_SHUFFLE
#undef HD_WARP_SHUFFLE_OF

/* If all lanes take part, they combine their values pairwise, in a butterfly. Otherwise they
 * combine the values one after another. */
#define HD_WARP_REDUCE(op, suffix, type)                                                                               \
    HD_DEVICE type hd_warp_reduce_##op##_##suffix(type value)                                                          \
    {                                                                                                                  \
        uint32_t mask = hd_warp_ballot(1);                                                                             \
        if (mask == 0xffffffff) {                                                                                      \
            for (uint32_t i = 16; i > 0; i /= 2) {                                                                     \
                type other = hd_warp_shuffle_xor_##suffix(value, i);                                                   \
                value = HD_WARP_OP_##op(suffix, value, other);                                                         \
            }                                                                                                          \
            return hd_warp_shuffle_idx_##suffix(value, 0);                                                             \
        }                                                                                                              \
        uint32_t lane = 0;                                                                                             \
        while ((mask >> lane & 1) == 0) {                                                                              \
            lane++;                                                                                                    \
        }                                                                                                              \
        type result = hd_warp_shuffle_idx_##suffix(value, lane);                                                       \
        while (++lane < 32) {                                                                                          \
            if ((mask >> lane & 1) != 0) {                                                                             \
                type other = hd_warp_shuffle_idx_##suffix(value, lane);                                                \
                result = HD_WARP_OP_##op(suffix, result, other);                                                       \
            }                                                                                                          \
        }                                                                                                              \
        return result;                                                                                                 \
    }

#define HD_WARP_BLOCK_NAME(op, suffix) hd_block_reduce_##op##_##suffix
#define HD_WARP_BLOCK_PARAMETERS(type) type value

#elif !defined(__cplusplus)

/* ---- CPU: gcc or clang ---- */

/* The function in which the threads of a warp meet. */
enum {
    HD_WARP_BARRIER,
    HD_WARP_SHUFFLE,
    HD_WARP_VOTE,
    HD_WARP_MATCH,
    HD_WARP_REDUCTION,
};

HD_DEVICE uint32_t hd_warp_cpu_lane(HD_SELF)
{
    return (hd_thread_x() + hd_block_dim_x() * (hd_thread_y() + hd_block_dim_y() * hd_thread_z())) % 32;
}
/* Returns the lanes that brought this value; with `any`, the lanes that brought a value other than
 * 0. */
HD_DEVICE uint32_t hd_warp_cpu_mask(HD_SELF, uint32_t what, uint64_t value, int any)
{
    const hd_warp_values *w = hd_self->services->meet(hd_self, what, value);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 32; i++) {
        mask |= (uint32_t)((w->present >> i & 1) != 0 && (any ? w->of[i] != 0 : w->of[i] == value)) << i;
    }
    return mask;
}
/* Returns the value of a lane, or the thread's own value if that lane takes no part. */
HD_DEVICE uint64_t hd_warp_cpu_shuffle(HD_SELF, uint64_t value, uint32_t lane)
{
    const hd_warp_values *w = hd_self->services->meet(hd_self, HD_WARP_SHUFFLE, value);
    return lane < 32 && (w->present >> lane & 1) != 0 ? w->of[lane] : value;
}
#define HD_WARP_SHUFFLE_OF(suffix, type)                                                                               \
    HD_DEVICE type hd_warp_cpu_shuffle_##suffix(HD_SELF, type value, uint32_t lane)                                    \
    {                                                                                                                  \
        uint64_t bits = 0;                                                                                             \
        __builtin_memcpy(&bits, &value, sizeof value);                                                                 \
        bits = hd_warp_cpu_shuffle(hd_self, bits, lane);                                                               \
        __builtin_memcpy(&value, &bits, sizeof value);                                                                 \
        return value;                                                                                                  \
    }
HD_WARP_SHUFFLE_OF(i32, int32_t)
HD_WARP_SHUFFLE_OF(u32, uint32_t)
HD_WARP_SHUFFLE_OF(i64, int64_t)
HD_WARP_SHUFFLE_OF(u64, uint64_t)
HD_WARP_SHUFFLE_OF(f32, float)
HD_WARP_SHUFFLE_OF(f64, double)
#undef HD_WARP_SHUFFLE_OF

/* Combines the values in the order of the first lane on a GPU: pairwise, by halves, if all lanes
 * take part, otherwise one after another. */
#define HD_WARP_REDUCE(op, suffix, type)                                                                               \
    HD_DEVICE type hd_warp_cpu_reduce_##op##_##suffix(HD_SELF, type value)                                             \
    {                                                                                                                  \
        uint64_t bits = 0;                                                                                             \
        __builtin_memcpy(&bits, &value, sizeof value);                                                                 \
        const hd_warp_values *w = hd_self->services->meet(hd_self, HD_WARP_REDUCTION, bits);                           \
        type all[32];                                                                                                  \
        uint32_t n = 0;                                                                                                \
        for (uint32_t i = 0; i < 32; i++) {                                                                            \
            if ((w->present >> i & 1) != 0) {                                                                          \
                __builtin_memcpy(&all[n++], &w->of[i], sizeof value);                                                  \
            }                                                                                                          \
        }                                                                                                              \
        for (uint32_t i = 16; n == 32 && i > 0; i /= 2) {                                                              \
            for (uint32_t j = 0; j < i; j++) {                                                                         \
                all[j] = HD_WARP_OP_##op(suffix, all[j], all[j + i]);                                                  \
            }                                                                                                          \
        }                                                                                                              \
        for (uint32_t i = 1; n < 32 && i < n; i++) {                                                                   \
            all[0] = HD_WARP_OP_##op(suffix, all[0], all[i]);                                                          \
        }                                                                                                              \
        return all[0];                                                                                                 \
    }

#define HD_WARP_BLOCK_NAME(op, suffix) hd_warp_cpu_block_##op##_##suffix
#define HD_WARP_BLOCK_PARAMETERS(type) HD_SELF, type value

#define hd_lane_index() hd_warp_cpu_lane(hd_self)
#define hd_warp_ballot(condition) hd_warp_cpu_mask(hd_self, HD_WARP_VOTE, (condition) ? 1 : 0, 1)
#define hd_warp_active_mask() hd_warp_cpu_mask(hd_self, HD_WARP_VOTE, 1, 1)
#define hd_warp_any(condition) (hd_warp_ballot(condition) != 0)
#define hd_warp_all(condition) (hd_warp_ballot(!(condition)) == 0)
#define hd_warp_barrier() ((void)hd_self->services->meet(hd_self, HD_WARP_BARRIER, 0))
#define hd_warp_match_any_u32(value) hd_warp_cpu_mask(hd_self, HD_WARP_MATCH, (uint32_t)(value), 0)
#define hd_warp_match_any_u64(value) hd_warp_cpu_mask(hd_self, HD_WARP_MATCH, value, 0)
#define HD_WARP_LANE_IDX(lane) ((uint32_t)(lane) % 32)
#define HD_WARP_LANE_UP(delta) (hd_lane_index() - (uint32_t)(delta) % 32)
#define HD_WARP_LANE_DOWN(delta) (hd_lane_index() + (uint32_t)(delta) % 32)
#define HD_WARP_LANE_XOR(mask) (hd_lane_index() ^ (uint32_t)(mask) % 32)
#define hd_warp_shuffle_idx_i32(value, lane) hd_warp_cpu_shuffle_i32(hd_self, value, HD_WARP_LANE_IDX(lane))
#define hd_warp_shuffle_idx_u32(value, lane) hd_warp_cpu_shuffle_u32(hd_self, value, HD_WARP_LANE_IDX(lane))
#define hd_warp_shuffle_idx_i64(value, lane) hd_warp_cpu_shuffle_i64(hd_self, value, HD_WARP_LANE_IDX(lane))
#define hd_warp_shuffle_idx_u64(value, lane) hd_warp_cpu_shuffle_u64(hd_self, value, HD_WARP_LANE_IDX(lane))
#define hd_warp_shuffle_idx_f32(value, lane) hd_warp_cpu_shuffle_f32(hd_self, value, HD_WARP_LANE_IDX(lane))
#define hd_warp_shuffle_idx_f64(value, lane) hd_warp_cpu_shuffle_f64(hd_self, value, HD_WARP_LANE_IDX(lane))
#define hd_warp_shuffle_up_i32(value, delta) hd_warp_cpu_shuffle_i32(hd_self, value, HD_WARP_LANE_UP(delta))
#define hd_warp_shuffle_up_u32(value, delta) hd_warp_cpu_shuffle_u32(hd_self, value, HD_WARP_LANE_UP(delta))
#define hd_warp_shuffle_up_i64(value, delta) hd_warp_cpu_shuffle_i64(hd_self, value, HD_WARP_LANE_UP(delta))
#define hd_warp_shuffle_up_u64(value, delta) hd_warp_cpu_shuffle_u64(hd_self, value, HD_WARP_LANE_UP(delta))
#define hd_warp_shuffle_up_f32(value, delta) hd_warp_cpu_shuffle_f32(hd_self, value, HD_WARP_LANE_UP(delta))
#define hd_warp_shuffle_up_f64(value, delta) hd_warp_cpu_shuffle_f64(hd_self, value, HD_WARP_LANE_UP(delta))
#define hd_warp_shuffle_down_i32(value, delta) hd_warp_cpu_shuffle_i32(hd_self, value, HD_WARP_LANE_DOWN(delta))
#define hd_warp_shuffle_down_u32(value, delta) hd_warp_cpu_shuffle_u32(hd_self, value, HD_WARP_LANE_DOWN(delta))
#define hd_warp_shuffle_down_i64(value, delta) hd_warp_cpu_shuffle_i64(hd_self, value, HD_WARP_LANE_DOWN(delta))
#define hd_warp_shuffle_down_u64(value, delta) hd_warp_cpu_shuffle_u64(hd_self, value, HD_WARP_LANE_DOWN(delta))
#define hd_warp_shuffle_down_f32(value, delta) hd_warp_cpu_shuffle_f32(hd_self, value, HD_WARP_LANE_DOWN(delta))
#define hd_warp_shuffle_down_f64(value, delta) hd_warp_cpu_shuffle_f64(hd_self, value, HD_WARP_LANE_DOWN(delta))
#define hd_warp_shuffle_xor_i32(value, mask) hd_warp_cpu_shuffle_i32(hd_self, value, HD_WARP_LANE_XOR(mask))
#define hd_warp_shuffle_xor_u32(value, mask) hd_warp_cpu_shuffle_u32(hd_self, value, HD_WARP_LANE_XOR(mask))
#define hd_warp_shuffle_xor_i64(value, mask) hd_warp_cpu_shuffle_i64(hd_self, value, HD_WARP_LANE_XOR(mask))
#define hd_warp_shuffle_xor_u64(value, mask) hd_warp_cpu_shuffle_u64(hd_self, value, HD_WARP_LANE_XOR(mask))
#define hd_warp_shuffle_xor_f32(value, mask) hd_warp_cpu_shuffle_f32(hd_self, value, HD_WARP_LANE_XOR(mask))
#define hd_warp_shuffle_xor_f64(value, mask) hd_warp_cpu_shuffle_f64(hd_self, value, HD_WARP_LANE_XOR(mask))
#define hd_warp_reduce_add_i32(value) hd_warp_cpu_reduce_add_i32(hd_self, value)
#define hd_warp_reduce_add_u32(value) hd_warp_cpu_reduce_add_u32(hd_self, value)
#define hd_warp_reduce_add_i64(value) hd_warp_cpu_reduce_add_i64(hd_self, value)
#define hd_warp_reduce_add_u64(value) hd_warp_cpu_reduce_add_u64(hd_self, value)
#define hd_warp_reduce_add_f32(value) hd_warp_cpu_reduce_add_f32(hd_self, value)
#define hd_warp_reduce_add_f64(value) hd_warp_cpu_reduce_add_f64(hd_self, value)
#define hd_warp_reduce_min_i32(value) hd_warp_cpu_reduce_min_i32(hd_self, value)
#define hd_warp_reduce_min_u32(value) hd_warp_cpu_reduce_min_u32(hd_self, value)
#define hd_warp_reduce_min_i64(value) hd_warp_cpu_reduce_min_i64(hd_self, value)
#define hd_warp_reduce_min_u64(value) hd_warp_cpu_reduce_min_u64(hd_self, value)
#define hd_warp_reduce_min_f32(value) hd_warp_cpu_reduce_min_f32(hd_self, value)
#define hd_warp_reduce_min_f64(value) hd_warp_cpu_reduce_min_f64(hd_self, value)
#define hd_warp_reduce_max_i32(value) hd_warp_cpu_reduce_max_i32(hd_self, value)
#define hd_warp_reduce_max_u32(value) hd_warp_cpu_reduce_max_u32(hd_self, value)
#define hd_warp_reduce_max_i64(value) hd_warp_cpu_reduce_max_i64(hd_self, value)
#define hd_warp_reduce_max_u64(value) hd_warp_cpu_reduce_max_u64(hd_self, value)
#define hd_warp_reduce_max_f32(value) hd_warp_cpu_reduce_max_f32(hd_self, value)
#define hd_warp_reduce_max_f64(value) hd_warp_cpu_reduce_max_f64(hd_self, value)
#define hd_block_reduce_add_i32(value) hd_warp_cpu_block_add_i32(hd_self, value)
#define hd_block_reduce_add_u32(value) hd_warp_cpu_block_add_u32(hd_self, value)
#define hd_block_reduce_add_i64(value) hd_warp_cpu_block_add_i64(hd_self, value)
#define hd_block_reduce_add_u64(value) hd_warp_cpu_block_add_u64(hd_self, value)
#define hd_block_reduce_add_f32(value) hd_warp_cpu_block_add_f32(hd_self, value)
#define hd_block_reduce_add_f64(value) hd_warp_cpu_block_add_f64(hd_self, value)
#define hd_block_reduce_min_i32(value) hd_warp_cpu_block_min_i32(hd_self, value)
#define hd_block_reduce_min_u32(value) hd_warp_cpu_block_min_u32(hd_self, value)
#define hd_block_reduce_min_i64(value) hd_warp_cpu_block_min_i64(hd_self, value)
#define hd_block_reduce_min_u64(value) hd_warp_cpu_block_min_u64(hd_self, value)
#define hd_block_reduce_min_f32(value) hd_warp_cpu_block_min_f32(hd_self, value)
#define hd_block_reduce_min_f64(value) hd_warp_cpu_block_min_f64(hd_self, value)
#define hd_block_reduce_max_i32(value) hd_warp_cpu_block_max_i32(hd_self, value)
#define hd_block_reduce_max_u32(value) hd_warp_cpu_block_max_u32(hd_self, value)
#define hd_block_reduce_max_i64(value) hd_warp_cpu_block_max_i64(hd_self, value)
#define hd_block_reduce_max_u64(value) hd_warp_cpu_block_max_u64(hd_self, value)
#define hd_block_reduce_max_f32(value) hd_warp_cpu_block_max_f32(hd_self, value)
#define hd_block_reduce_max_f64(value) hd_warp_cpu_block_max_f64(hd_self, value)

#endif

#if HD_KERNEL_GPU || !defined(__cplusplus)

/* ---- both ---- */

/* Each warp stores its result in shared memory, and each thread combines the results in order. */
#define HD_WARP_BLOCK(op, suffix, type)                                                                                \
    HD_DEVICE type HD_WARP_BLOCK_NAME(op, suffix)(HD_WARP_BLOCK_PARAMETERS(type))                                      \
    {                                                                                                                  \
        HD_SHARED type of_warp[32];                                                                                    \
        uint32_t number = hd_thread_x() + hd_block_dim_x() * (hd_thread_y() + hd_block_dim_y() * hd_thread_z());       \
        uint32_t warps = (hd_block_dim_x() * hd_block_dim_y() * hd_block_dim_z() + 31) / 32;                           \
        value = hd_warp_reduce_##op##_##suffix(value);                                                                 \
        if (number % 32 == 0) {                                                                                        \
            of_warp[number / 32] = value;                                                                              \
        }                                                                                                              \
        hd_barrier();                                                                                                  \
        value = of_warp[0];                                                                                            \
        for (uint32_t i = 1; i < warps; i++) {                                                                         \
            value = HD_WARP_OP_##op(suffix, value, of_warp[i]);                                                        \
        }                                                                                                              \
        hd_barrier();                                                                                                  \
        return value;                                                                                                  \
    }
#define HD_WARP_ALL_OF(suffix, type)                                                                                   \
    HD_WARP_REDUCE(add, suffix, type)                                                                                  \
    HD_WARP_REDUCE(min, suffix, type)                                                                                  \
    HD_WARP_REDUCE(max, suffix, type)                                                                                  \
    HD_WARP_BLOCK(add, suffix, type)                                                                                   \
    HD_WARP_BLOCK(min, suffix, type)                                                                                   \
    HD_WARP_BLOCK(max, suffix, type)
HD_WARP_ALL_OF(i32, int32_t)
HD_WARP_ALL_OF(u32, uint32_t)
HD_WARP_ALL_OF(i64, int64_t)
HD_WARP_ALL_OF(u64, uint64_t)
HD_WARP_ALL_OF(f32, float)
HD_WARP_ALL_OF(f64, double)
#undef HD_WARP_LANES
#undef HD_WARP_REDUCE
#undef HD_WARP_BLOCK
#undef HD_WARP_BLOCK_NAME
#undef HD_WARP_BLOCK_PARAMETERS
#undef HD_WARP_ALL_OF
#undef HD_WARP_OP_add
#undef HD_WARP_OP_min
#undef HD_WARP_OP_max
#undef HD_WARP_ISNAN_i32
#undef HD_WARP_ISNAN_u32
#undef HD_WARP_ISNAN_i64
#undef HD_WARP_ISNAN_u64
#undef HD_WARP_ISNAN_f32
#undef HD_WARP_ISNAN_f64

#endif

#endif
