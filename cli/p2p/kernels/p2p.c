/* p2p.c - the kernels of `heddle p2p`, for GPU and CPU: copies, a chain of loads, patterns, and the
 * gate that holds a stream back.
 *
 * tools/make-builtin-ptx makes generated/p2p.ptx from this file. The result is committed; run it
 * after every change here. Only the tool contains these kernels, not the library. The threads of a
 * launch share the elements. A GPU's threads take elements at a stride of the grid's size, so that
 * neighbours access neighbouring memory. A CPU's threads each take one contiguous range.
 */
#include <heddle/kernel.h>

#define COPY_THREADS 512 /* the same as in cli/p2p/parts.h */

typedef uint32_t quad __attribute__((vector_size(16)));

#if HD_KERNEL_GPU

/* Bypasses the L1 cache, so that a second loop over the same bytes uses the link again. */
HD_DEVICE quad load_quad(const quad *p)
{
    quad v;
    uint32_t a, b, c, d;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(p)
                 : "memory");
    v[0] = a, v[1] = b, v[2] = c, v[3] = d;
    return v;
}

HD_DEVICE void store_quad(quad *p, quad v)
{
    asm volatile("st.global.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

#define FIRST(n) hd_global_x()
#define STEP ((uint64_t)hd_grid_dim_x() * hd_block_dim_x())
#define END(n) (n)

#else

HD_DEVICE quad load_quad(const quad *p)
{
    return *p;
}

HD_DEVICE void store_quad(quad *p, quad v)
{
    *p = v;
}

#define THREADS ((uint64_t)hd_grid_dim_x() * hd_block_dim_x())
#define SHARE(n) (((n) + THREADS - 1) / THREADS)
#define FIRST(n) (hd_global_x() * SHARE(n))
#define STEP ((uint64_t)1)
#define END(n) (FIRST(n) + SHARE(n) < (n) ? FIRST(n) + SHARE(n) : (n))

#endif

/* Copies n elements of 16 bytes, `loops` times over. Each thread starts eight loads before the
 * first store. */
HD_KERNEL_BOUNDS(hd_p2p_copy, COPY_THREADS, HD_OUT(quad, y), HD_IN(quad, x), HD_VALUE(uint64_t, n),
                 HD_VALUE(uint32_t, loops))
{
    const uint64_t first = FIRST(n), step = STEP, end = END(n);
    for (uint32_t loop = 0; loop < loops; loop++) {
        uint64_t i = first;
        for (; i + 7 * step < end; i += 8 * step) {
            quad a = load_quad(x + i), b = load_quad(x + i + step);
            quad c = load_quad(x + i + 2 * step), d = load_quad(x + i + 3 * step);
            quad e = load_quad(x + i + 4 * step), f = load_quad(x + i + 5 * step);
            quad g = load_quad(x + i + 6 * step), h = load_quad(x + i + 7 * step);
            store_quad(y + i, a), store_quad(y + i + step, b);
            store_quad(y + i + 2 * step, c), store_quad(y + i + 3 * step, d);
            store_quad(y + i + 4 * step, e), store_quad(y + i + 5 * step, f);
            store_quad(y + i + 6 * step, g), store_quad(y + i + 7 * step, h);
        }
        for (; i < end; i += step) {
            store_quad(y + i, load_quad(x + i));
        }
    }
}

/* One thread of block `block` follows a chain of addresses for `loads` loads. *out is the last
 * address. */
HD_KERNEL(hd_p2p_chase, HD_INOUT(uint64_t, out), HD_IN(uint64_t, chain), HD_VALUE(uint32_t, loads),
          HD_VALUE(uint32_t, block))
{
    if (hd_block_x() != block || hd_thread_x() != 0) {
        return;
    }
    const uint64_t *at = chain;
    for (uint32_t i = 0; i < loads; i++) {
        at = (const uint64_t *)(uintptr_t)*at;
    }
    *out = (uint64_t)(uintptr_t)at;
}

HD_DEVICE uint32_t pattern(uint64_t i, uint32_t seed)
{
    return ((uint32_t)i ^ (uint32_t)(i >> 32) * 0x85ebca6bu) * 0x9e3779b1u + seed;
}

HD_KERNEL_BOUNDS(hd_p2p_fill, COPY_THREADS, HD_OUT(uint32_t, y), HD_VALUE(uint64_t, n), HD_VALUE(uint32_t, seed))
{
    const uint64_t step = STEP, end = END(n);
    for (uint64_t i = FIRST(n); i < end; i += step) {
        y[i] = pattern(i, seed);
    }
}

/* Adds to *wrong the number of words, of n, that differ from the pattern of hd_p2p_fill. */
HD_KERNEL_BOUNDS(hd_p2p_check, COPY_THREADS, HD_INOUT(uint64_t, wrong), HD_IN(uint32_t, x), HD_VALUE(uint64_t, n),
                 HD_VALUE(uint32_t, seed))
{
    const uint64_t step = STEP, end = END(n);
    uint64_t found = 0;
    for (uint64_t i = FIRST(n); i < end; i += step) {
        found += x[i] != pattern(i, seed);
    }
    if (found) {
        hd_atomic_add_u64(wrong, found);
    }
}

/* Returns when gate[0] is not 0. Gives up after `looks` reads, and then sets gate[1]. */
HD_KERNEL(hd_p2p_gate, HD_INOUT(uint32_t, gate), HD_VALUE(uint64_t, looks))
{
    volatile uint32_t *word = gate;
    for (uint64_t i = 0; word[0] == 0; i++) {
        if (i == looks) {
            word[1] = 1;
            return;
        }
    }
}
