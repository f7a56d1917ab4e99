/* matmul_gpu.h - the GPU's form of the built-in matrix product for one type; included by matmul.c
 * once per type, with
 *     NAME; ELEMENT: its form in memory; NUMBER: its form in calculations; NUMBER_OF(element),
 *     ELEMENT_OF(number); ELEMENT_ZERO;
 *     MULTIPLY(sum, x, y): adds x y to sum; FINISH(sum, before, alpha, beta), SCALE(sum, alpha);
 *     SCALAR; TILE, PIECE; UNROLL: steps into the depth that are written out; PACK, TAKE(to, from):
 *     a load of PACK numbers.
 *
 * Threads: HDI_MATMUL_THREADS per block. Slices of a and b pass through shared memory, which has
 * room for two slices of each. So the threads load the next slices while they multiply the current
 * ones. The parts of slices outside the matrices are zero. Neighbouring threads read neighbouring
 * memory, whichever of the two strides is the short one.
 * Always: an element of c is read only if beta is not 0.
 */

#define DEPTH HDI_MATMUL_GPU_DEPTH
#define SIDE (TILE / PIECE)                       /* threads along each side of the tile */
#define LOADS (TILE * DEPTH / HDI_MATMUL_THREADS) /* elements of a slice that each thread loads */
/* The pitch of a slice. With this pitch, stores along either side of the slice go to different
 * banks. */
#define PITCH (TILE + 16 / (int)sizeof(NUMBER))
/* The place in the tile of a thread's i-th row or column. PACK rows or columns lie side by side, so
 * that one load from shared memory gets them. */
#define SPOT(i, t) ((i) / PACK * (SIDE * PACK) + (t)*PACK + (i) % PACK)

_Static_assert(SIDE *SIDE == HDI_MATMUL_THREADS && LOADS * HDI_MATMUL_THREADS == TILE * DEPTH,
               "every thread has its part");

/* At least two blocks must fit on a multiprocessor, so that one block multiplies while the other
 * one waits. This also bounds the number of registers. */
#define BOUNDS HDI_MATMUL_THREADS, 2

HD_KERNEL_BOUNDS(NAME, BOUNDS, HD_INOUT(ELEMENT, c), HD_IN(ELEMENT, a), HD_IN(ELEMENT, b),
                 HD_VALUE(hdi_matmul_shape, s))
{
    HD_SHARED __attribute__((aligned(16))) NUMBER slice_a[2][DEPTH][PITCH];
    HD_SHARED __attribute__((aligned(16))) NUMBER slice_b[2][DEPTH][PITCH];
    const uint32_t t = hd_thread_x(), tx = t % SIDE, ty = t / SIDE;
    const SCALAR alpha = (SCALAR)s.alpha, beta = (SCALAR)s.beta;
    /* A thread's first element of each slice, and the distance to its next ones, along the side of
     * the tile or into the depth. */
    const bool a_deep = s.column_a == 1 || (s.row_a != 1 && s.column_a >= 0 && s.column_a < s.row_a);
    const bool b_deep = s.row_b == 1 && s.column_b != 1;
    const uint32_t a_side = a_deep ? t / DEPTH : t % TILE, a_depth = a_deep ? t % DEPTH : t / TILE;
    const uint32_t b_side = b_deep ? t / DEPTH : t % TILE, b_depth = b_deep ? t % DEPTH : t / TILE;
    const uint32_t a_side_step = a_deep ? HDI_MATMUL_THREADS / DEPTH : 0;
    const uint32_t a_depth_step = a_deep ? 0 : HDI_MATMUL_THREADS / TILE;
    const uint32_t b_side_step = b_deep ? HDI_MATMUL_THREADS / DEPTH : 0;
    const uint32_t b_depth_step = b_deep ? 0 : HDI_MATMUL_THREADS / TILE;
    const int64_t a_step = a_side_step * s.row_a + a_depth_step * s.column_a;
    const int64_t b_step = b_side_step * s.column_b + b_depth_step * s.row_b;
    const uint64_t tiles = hdk_tile_count(&s, TILE, TILE);

    for (uint64_t number = hd_block_x(); number < tiles; number += hd_grid_dim_x()) {
        const hdk_tile tile = hdk_tile_at(&s, number, TILE, TILE);
        const ELEMENT *from_a = a + tile.a + (int64_t)(tile.row + a_side) * s.row_a + a_depth * s.column_a;
        const ELEMENT *from_b = b + tile.b + (int64_t)(tile.column + b_side) * s.column_b + b_depth * s.row_b;
        /* Bit i: the i-th element is inside the matrix's side. */
        uint32_t a_inside = 0, b_inside = 0;
        for (uint32_t i = 0; i < LOADS; i++) {
            a_inside |= (uint32_t)(tile.row + a_side + i * a_side_step < s.m) << i;
            b_inside |= (uint32_t)(tile.column + b_side + i * b_side_step < s.n) << i;
        }
        NUMBER sum[PIECE][PIECE];
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
#pragma unroll
            for (int j = 0; j < PIECE; j++) {
                sum[i][j] = NUMBER_OF(ELEMENT_ZERO);
            }
        }
        ELEMENT next_a[LOADS], next_b[LOADS];

#define FETCH(first)                                                                                                   \
    do {                                                                                                               \
        const uint64_t left = s.k - (first);                                                                           \
        _Pragma("unroll") for (uint32_t i = 0; i < LOADS; i++)                                                         \
        {                                                                                                              \
            next_a[i] =                                                                                                \
                (a_inside >> i & 1) && a_depth + i * a_depth_step < left ? from_a[(int64_t)i * a_step] : ELEMENT_ZERO; \
            next_b[i] =                                                                                                \
                (b_inside >> i & 1) && b_depth + i * b_depth_step < left ? from_b[(int64_t)i * b_step] : ELEMENT_ZERO; \
        }                                                                                                              \
        from_a += DEPTH * s.column_a;                                                                                  \
        from_b += DEPTH * s.row_b;                                                                                     \
    } while (0)
#define KEEP(turn)                                                                                                     \
    do {                                                                                                               \
        _Pragma("unroll") for (uint32_t i = 0; i < LOADS; i++)                                                         \
        {                                                                                                              \
            slice_a[turn][a_depth + i * a_depth_step][a_side + i * a_side_step] = NUMBER_OF(next_a[i]);                \
            slice_b[turn][b_depth + i * b_depth_step][b_side + i * b_side_step] = NUMBER_OF(next_b[i]);                \
        }                                                                                                              \
    } while (0)

        int turn = 0;
        if (s.k > 0) {
            FETCH(0);
            KEEP(0);
            hd_barrier();
        }
        for (uint64_t first = 0; first < s.k; first += DEPTH) {
            const bool more = s.k - first > DEPTH;
            if (more) {
                FETCH(first + DEPTH);
            }
#pragma unroll UNROLL
            for (int d = 0; d < DEPTH; d++) {
                NUMBER x[PIECE], y[PIECE];
#pragma unroll
                for (int i = 0; i < PIECE; i += PACK) {
                    TAKE(&x[i], &slice_a[turn][d][SPOT(i, ty)]);
                    TAKE(&y[i], &slice_b[turn][d][SPOT(i, tx)]);
                }
#pragma unroll
                for (int i = 0; i < PIECE; i++) {
#pragma unroll
                    for (int j = 0; j < PIECE; j++) {
                        MULTIPLY(sum[i][j], x[i], y[j]);
                    }
                }
            }
            turn ^= 1;
            if (more) {
                KEEP(turn); /* nobody reads this turn any more, because all threads have passed the barrier since */
            }
            hd_barrier();
        }
#undef FETCH
#undef KEEP

#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            const uint64_t row = tile.row + SPOT(i, ty);
            ELEMENT *to = c + tile.c + (int64_t)row * s.row_c;
#pragma unroll
            for (int j = 0; j < PIECE; j++) {
                const uint64_t column = tile.column + SPOT(j, tx);
                if (row < s.m && column < s.n) {
                    ELEMENT *at = to + (int64_t)column * s.column_c;
                    *at = beta == 0 ? ELEMENT_OF(SCALE(sum[i][j], alpha))
                                    : ELEMENT_OF(FINISH(sum[i][j], NUMBER_OF(*at), alpha, beta));
                }
            }
        }
    }
}

#undef DEPTH
#undef SIDE
#undef LOADS
#undef PITCH
#undef SPOT
#undef BOUNDS
