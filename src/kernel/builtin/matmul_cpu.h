/* matmul_cpu.h - the CPU's form of the built-in matrix product for one type and one set of
 * instructions; included by matmul.c, with
 *     FUNCTION; TARGET: attributes; VECTOR: bytes of a register; PARTS: numbers in an element (2:
 *     complex); REAL: float or double; ELEMENT: its form in memory; PART_OF(element pointer, part):
 *     as REAL; STORE(element pointer, re, im); COLUMNS of a tile.
 *
 * Makes tile `number` of c. The function packs the parts of a and b that it needs into strips that
 * are as wide as the inner loop needs. The strips lie in `work`, the thread's own memory. The inner
 * loop goes through the strips with HEIGHT x WIDTH sums in registers. The parts of strips outside
 * the matrices are zero.
 * Always: an element of c is read only if beta is not 0.
 */

#define ROWS HDI_MATMUL_CPU_ROWS
#define DEPTH (HDI_MATMUL_CPU_DEPTH_BYTES / (PARTS * (int)sizeof(REAL)))
#define LANES (VECTOR / (int)sizeof(REAL))
#define WIDTH (2 * LANES)                              /* columns of the inner loop */
#define HEIGHT (PARTS == 2 ? 2 : VECTOR == 16 ? 4 : 6) /* rows of the inner loop, so that the sums fit the registers */
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define INNER PASTE(FUNCTION, _inner)

_Static_assert(ROWS % HEIGHT == 0 && COLUMNS % WIDTH == 0, "strips fit the tile");
_Static_assert((ROWS + COLUMNS) * DEPTH * PARTS * sizeof(REAL) + ROWS * COLUMNS * PARTS * sizeof(REAL) <= WORK_BYTES,
               "a tile fits its thread's memory");

/* sum[part][row][column] += a strip of a times a strip of b. For each step into the depth a strip
 * holds the HEIGHT (or WIDTH) first parts, then the second parts. A row of sums takes COLUMNS. */
TARGET static void INNER(const REAL *restrict a, const REAL *restrict b, REAL *restrict sum, uint64_t depth)
{
    typedef REAL vector __attribute__((vector_size(VECTOR)));
    vector s[PARTS][HEIGHT][2];
#pragma GCC unroll 16
    for (int p = 0; p < PARTS; p++) {
#pragma GCC unroll 16
        for (int i = 0; i < HEIGHT; i++) {
            const vector *from = (const vector *)(sum + (p * ROWS + i) * COLUMNS);
            s[p][i][0] = from[0];
            s[p][i][1] = from[1];
        }
    }
    for (uint64_t d = 0; d < depth; d++, a += PARTS * HEIGHT, b += PARTS * WIDTH) {
        const vector *y = (const vector *)b;
#pragma GCC unroll 16
        for (int i = 0; i < HEIGHT; i++) {
            s[0][i][0] += a[i] * y[0];
            s[0][i][1] += a[i] * y[1];
#if PARTS == 2
            s[0][i][0] -= a[HEIGHT + i] * y[2];
            s[0][i][1] -= a[HEIGHT + i] * y[3];
            s[1][i][0] += a[i] * y[2];
            s[1][i][1] += a[i] * y[3];
            s[1][i][0] += a[HEIGHT + i] * y[0];
            s[1][i][1] += a[HEIGHT + i] * y[1];
#endif
        }
    }
#pragma GCC unroll 16
    for (int p = 0; p < PARTS; p++) {
#pragma GCC unroll 16
        for (int i = 0; i < HEIGHT; i++) {
            vector *to = (vector *)(sum + (p * ROWS + i) * COLUMNS);
            to[0] = s[p][i][0];
            to[1] = s[p][i][1];
        }
    }
}

/* Packs `side` rows of `depth` elements into strips of `strip` rows. Zeros fill the rest of the
 * last strip. */
TARGET static void PASTE(FUNCTION, _pack)(REAL *to, uint64_t strip, const ELEMENT *from, int64_t side_stride,
                                          int64_t depth_stride, uint64_t side, uint64_t depth)
{
    for (uint64_t first = 0; first < side; first += strip, to += strip * depth * PARTS) {
        uint64_t n = side - first < strip ? side - first : strip;
        const ELEMENT *start = from + (int64_t)first * side_stride;
        if (n < strip) {
            __builtin_memset(to, 0, strip * depth * PARTS * sizeof(REAL));
        }
        if (side_stride == 1 && n == strip) {
            for (uint64_t d = 0; d < depth; d++) {
                const ELEMENT *e = start + (int64_t)d * depth_stride;
                for (int p = 0; p < PARTS; p++) {
                    for (uint64_t i = 0; i < strip; i++) {
                        to[(d * PARTS + (uint64_t)p) * strip + i] = PART_OF(&e[i], p);
                    }
                }
            }
            continue;
        }
        for (uint64_t i = 0; i < n; i++) {
            const ELEMENT *e = start + (int64_t)i * side_stride;
            for (uint64_t d = 0; d < depth; d++, e += depth_stride) {
                for (int p = 0; p < PARTS; p++) {
                    to[(d * PARTS + (uint64_t)p) * strip + i] = PART_OF(e, p);
                }
            }
        }
    }
}

TARGET static void FUNCTION(ELEMENT *c, const ELEMENT *a, const ELEMENT *b, const hdi_matmul_shape *s, uint64_t number,
                            void *work)
{
    const hdk_tile tile = hdk_tile_at(s, number, ROWS, COLUMNS);
    const uint64_t rows = s->m - tile.row < ROWS ? s->m - tile.row : ROWS;
    const uint64_t columns = s->n - tile.column < COLUMNS ? s->n - tile.column : COLUMNS;
    REAL *sum = work, *packed_a = sum + PARTS * ROWS * COLUMNS, *packed_b = packed_a + ROWS * DEPTH * PARTS;
    const ELEMENT *from_a = a + tile.a + (int64_t)tile.row * s->row_a;
    const ELEMENT *from_b = b + tile.b + (int64_t)tile.column * s->column_b;
    __builtin_memset(sum, 0, PARTS * ROWS * COLUMNS * sizeof(REAL));
    for (uint64_t first = 0; first < s->k; first += DEPTH) {
        const uint64_t depth = s->k - first < DEPTH ? s->k - first : DEPTH;
        PASTE(FUNCTION, _pack)
        (packed_a, HEIGHT, from_a + (int64_t)first * s->column_a, s->row_a, s->column_a, rows, depth);
        PASTE(FUNCTION, _pack)
        (packed_b, WIDTH, from_b + (int64_t)first * s->row_b, s->column_b, s->row_b, columns, depth);
        for (uint64_t j = 0; j < columns; j += WIDTH) {
            for (uint64_t i = 0; i < rows; i += HEIGHT) {
                INNER(packed_a + i * depth * PARTS, packed_b + j * depth * PARTS, sum + i * COLUMNS + j, depth);
            }
        }
        if (s->k - first <= DEPTH) {
            break; /* first + DEPTH may overflow */
        }
    }
    const REAL alpha = (REAL)s->alpha, beta = (REAL)s->beta;
    for (uint64_t i = 0; i < rows; i++) {
        ELEMENT *to = c + tile.c + (int64_t)(tile.row + i) * s->row_c + (int64_t)tile.column * s->column_c;
        for (uint64_t j = 0; j < columns; j++, to += s->column_c) {
            REAL re = alpha * sum[i * COLUMNS + j], im = 0;
#if PARTS == 2
            im = alpha * sum[(ROWS + i) * COLUMNS + j];
#endif
            if (beta != 0) {
                re += beta * PART_OF(to, 0);
#if PARTS == 2
                im += beta * PART_OF(to, 1);
#endif
            }
            (void)im;
            STORE(to, re, im);
        }
    }
}

#undef ROWS
#undef DEPTH
#undef LANES
#undef WIDTH
#undef HEIGHT
#undef PASTE
#undef PASTE_
#undef INNER
