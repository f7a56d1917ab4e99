/* reductions.c - sums, maxima, a histogram, scans and compaction, as kernel source. reductions.cu
 * is the same in CUDA C++. */
#include <heddle/kernel.h>

/* Each thread adds elements at a distance; warps add by shuffles, the block in shared memory, the
 * grid by an atomic. */
HD_KERNEL(sum_shuffle, HD_INOUT(float, total), HD_IN(float, x), HD_VALUE(int, n))
{
    HD_SHARED float of_warp[32];
    float sum = 0;
    for (int i = (int)hd_global_x(); i < n; i += (int)(hd_grid_dim_x() * hd_block_dim_x())) {
        sum += x[i];
    }
    for (uint32_t offset = 16; offset > 0; offset /= 2) {
        sum += hd_warp_shuffle_down_f32(sum, offset);
    }
    uint32_t lane = hd_lane_index(), warp = hd_thread_x() / hd_warp_size;
    if (lane == 0) {
        of_warp[warp] = sum;
    }
    hd_barrier();
    if (warp == 0) {
        sum = lane < hd_block_dim_x() / hd_warp_size ? of_warp[lane] : 0;
        for (uint32_t offset = 16; offset > 0; offset /= 2) {
            sum += hd_warp_shuffle_down_f32(sum, offset);
        }
        if (lane == 0) {
            hd_atomic_add_f32(total, sum);
        }
    }
}

/* A tree in dynamic shared memory. A macro replaces CUDA's template over types. */
#define SUM_TREE(name, type)                                                                                           \
    HD_KERNEL(name, HD_OUT(type, partial), HD_IN(type, x), HD_VALUE(int, n))                                           \
    {                                                                                                                  \
        HD_DYNAMIC_SHARED(type, name##_scratch);                                                                       \
        int i = (int)hd_global_x();                                                                                    \
        uint32_t t = hd_thread_x();                                                                                    \
        name##_scratch[t] = i < n ? x[i] : 0;                                                                          \
        hd_barrier();                                                                                                  \
        for (uint32_t s = hd_block_dim_x() / 2; s > 0; s >>= 1) {                                                      \
            if (t < s) {                                                                                               \
                name##_scratch[t] += name##_scratch[t + s];                                                            \
            }                                                                                                          \
            hd_barrier();                                                                                              \
        }                                                                                                              \
        if (t == 0) {                                                                                                  \
            partial[hd_block_x()] = name##_scratch[0];                                                                 \
        }                                                                                                              \
    }
SUM_TREE(sum_tree_f64, double)
SUM_TREE(sum_tree_i32, int)

/* As in CUDA, although hd_atomic_max_f32 exists. */
HD_KERNEL(max_cas, HD_INOUT(float, most), HD_IN(float, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        uint32_t *bits = (uint32_t *)most;
        uint32_t old = *bits, assumed;
        do {
            assumed = old;
            if (hd_bits_to_f32(assumed) >= x[i]) {
                break;
            }
            old = hd_atomic_cas_u32(bits, assumed, hd_bits_from_f32(x[i]));
        } while (old != assumed);
    }
}

/* A warp for each row; of several largest elements the first one counts. */
HD_KERNEL(argmax_rows, HD_OUT(int, where), HD_OUT(float, best), HD_IN(float, x), HD_VALUE(int, rows),
          HD_VALUE(int, columns))
{
    int row = (int)hd_global_x() / hd_warp_size, lane = (int)hd_lane_index();
    if (row >= rows) {
        return;
    }
    float mine = -INFINITY;
    int at = INT32_MAX;
    for (int c = lane; c < columns; c += hd_warp_size) {
        if (x[row * columns + c] > mine) {
            mine = x[row * columns + c];
            at = c;
        }
    }
    float most = mine;
    for (uint32_t mask = 16; mask > 0; mask >>= 1) {
        most = fmaxf(most, hd_warp_shuffle_xor_f32(most, mask));
    }
    uint32_t holders = hd_warp_ballot(mine == most);
    if (hd_bits_count_u32(holders) == 1) {
        at = hd_warp_shuffle_idx_i32(at, hd_bits_trailing_u32(holders));
    } else {
        at = mine == most ? at : INT32_MAX;
        at = hd_warp_reduce_min_i32(at);
    }
    if (lane == 0) {
        where[row] = at;
        best[row] = most;
    }
}

/* Bins of the block in shared memory, then of the grid. */
HD_KERNEL(histogram256, HD_INOUT(uint32_t, bins), HD_IN(uint8_t, x), HD_VALUE(int, n))
{
    HD_SHARED uint32_t local[256];
    for (uint32_t b = hd_thread_x(); b < 256; b += hd_block_dim_x()) {
        local[b] = 0;
    }
    hd_barrier();
    for (int i = (int)hd_global_x(); i < n; i += (int)(hd_grid_dim_x() * hd_block_dim_x())) {
        hd_atomic_add_u32(&local[x[i]], 1);
    }
    hd_barrier();
    for (uint32_t b = hd_thread_x(); b < 256; b += hd_block_dim_x()) {
        if (local[b] != 0) {
            hd_atomic_add_u32(&bins[b], local[b]);
        }
    }
}

/* An inclusive scan of each block, in two alternating buffers, and the sums of the blocks. */
HD_KERNEL(scan_block, HD_OUT(int, out), HD_OUT(int, sums), HD_IN(int, x), HD_VALUE(int, n))
{
    HD_SHARED int buffer[2][256];
    int t = (int)hd_thread_x(), i = (int)hd_global_x(), from = 0;
    buffer[0][t] = i < n ? x[i] : 0;
    hd_barrier();
    for (int offset = 1; offset < (int)hd_block_dim_x(); offset *= 2) {
        buffer[1 - from][t] = buffer[from][t] + (t >= offset ? buffer[from][t - offset] : 0);
        from = 1 - from;
        hd_barrier();
    }
    if (i < n) {
        out[i] = buffer[from][t];
    }
    if (t == (int)hd_block_dim_x() - 1) {
        sums[hd_block_x()] = buffer[from][t];
    }
}

/* A scan of each warp that starts again at each flag. */
HD_KERNEL(scan_segments, HD_OUT(int, out), HD_IN(int, x), HD_IN(uint8_t, head))
{
    int i = (int)hd_global_x(), lane = (int)hd_lane_index();
    int value = x[i];
    int begun = head[i];
    for (int d = 1; d < 32; d *= 2) {
        int other = hd_warp_shuffle_up_i32(value, d), other_begun = hd_warp_shuffle_up_i32(begun, d);
        if (lane >= d && !begun) {
            value += other;
            begun = other_begun;
        }
    }
    out[i] = value;
}

/* Elements at or above a threshold, in any order: a warp reserves room for all its elements at
 * once. */
HD_KERNEL(compact, HD_OUT(float, out), HD_INOUT(uint32_t, count), HD_IN(float, x), HD_VALUE(float, threshold),
          HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    uint32_t lane = hd_lane_index();
    int keep = i < n && x[i] >= threshold;
    uint32_t keepers = hd_warp_ballot(keep), first = 0;
    if (lane == 0) {
        first = hd_atomic_add_u32(count, hd_bits_count_u32(keepers));
    }
    first = hd_warp_shuffle_idx_u32(first, 0);
    if (keep) {
        out[first + hd_bits_count_u32(keepers & ((1u << lane) - 1))] = x[i];
    }
}

/* For each warp: true if some are negative, true if all are, and how many are. */
HD_KERNEL(warp_votes, HD_OUT(uint32_t, votes), HD_IN(int, x))
{
    uint64_t i = hd_global_x();
    int negative = x[i] < 0;
    int some = hd_warp_any(negative), all = hd_warp_all(negative);
    uint32_t number = hd_bits_count_u32(hd_warp_ballot(negative));
    if (hd_lane_index() == 0) {
        votes[i / 32] = (uint32_t)(some | all << 1) | number << 2;
    }
}
