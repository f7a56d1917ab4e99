/* tensor_matmul.c - the products of `heddle bench tensor`: hd_tensor_matmul, cuBLAS called
 * directly, and the built-in kernel, in turns.
 *
 * Threads: the conductor. Locks: none.
 * Always: each side multiplies the same numbers. The check multiplies whole numbers, for which
 * every element is exact in any order of summation. The measurement multiplies numbers with full
 * mantissas, because hardware is faster on other numbers. The runtime of the built-in kernel
 * (blas=builtin) is open only here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/tensor_parts.h"

enum { SIDES = 3, HEDDLE = 0, LIBRARY = 1, BUILTIN = 2, EDGE = 4096, HOST_EDGE = 128, QUICK_HOST_EDGE = 64, TRIES = 1 };

static const double matmul_sample_ns = 60e6;

typedef struct sides {
    tensor_experiment *x;
    tensor_product *p;
    hd_runtime *builtin;   /* NULL: not open */
    tensor_cublas *cublas; /* NULL: not available */
    hd_lane *lane[SIDES];  /* for HEDDLE and BUILTIN */
    hd_buffer *buffer[SIDES][3];
    hd_tensor tensor[SIDES][3];
    hdcu_deviceptr plain[3];
    size_t bytes; /* in a matrix */
    void *host[3];
} sides;

int bench_tensor_product_steps(const tensor_experiment *x)
{
    return bench_tensor_is_wanted(x, "matmul") ? TENSOR_PRODUCTS : 0;
}

/* ---- numbers ---- */

static uint64_t bench_hash(uint64_t n)
{
    uint64_t h = (n + 1) * 0x9e3779b97f4a7c15u;
    return (h ^ h >> 32) * 0xd6e8feb86659fd93u;
}

/* m / 1024 as a half, exact for |m| of up to 11 bits. */
static uint16_t bench_half_of(int m)
{
    unsigned magnitude = (unsigned)(m < 0 ? -m : m), sign = m < 0 ? 0x8000 : 0;
    if (magnitude == 0) {
        return 0;
    }
    unsigned e = 31 - (unsigned)__builtin_clz(magnitude), rest = magnitude - (1u << e);
    unsigned fraction = e <= 10 ? rest << (10 - e) : rest >> (e - 10);
    return (uint16_t)(sign | (e + 5) << 10 | fraction);
}

/* The value of each half. Infinities become NaN. */
static double halves[1 << 16];

static void bench_make_halves(void)
{
    for (unsigned h = 0; h < 1 << 16; h++) {
        unsigned e = h >> 10 & 31, fraction = h & 1023;
        double magnitude = e == 31 ? (double)NAN : e ? 1024 + fraction : fraction;
        for (unsigned i = e ? e : 1; i < 25; i++) {
            magnitude /= 2;
        }
        for (unsigned i = 25; i < e; i++) {
            magnitude *= 2;
        }
        halves[h] = h & 0x8000 ? -magnitude : magnitude;
    }
}

/* Fills `out` with whole numbers from -2 to 2 if `whole`, else with numbers from -1 to 1. */
static void bench_fill_matrix(void *out, hd_type type, uint64_t n, uint64_t seed, bool whole)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t h = bench_hash(seed + i);
        int small = (int)(h >> 40 & 0xffff) % 3 + (int)(h >> 16 & 0xffff) % 3 - 2;
        if (type == HD_TYPE_F16) {
            ((uint16_t *)out)[i] = bench_half_of(whole ? small * 1024 : (int)(h >> 32 & 2047) - 1023);
        } else if (type == HD_TYPE_F32) {
            ((float *)out)[i] = whole ? (float)small : (float)((double)(h >> 40) * 0x1p-23 - 1);
        } else {
            ((double *)out)[i] = whole ? small : (double)(h >> 11) * 0x1p-52 - 1;
        }
    }
}

static double bench_element_of(const void *matrix, hd_type type, uint64_t i)
{
    return type == HD_TYPE_F16   ? halves[((const uint16_t *)matrix)[i]]
           : type == HD_TYPE_F32 ? (double)((const float *)matrix)[i]
                                 : ((const double *)matrix)[i];
}

/* out = matrix times v, in whole numbers that doubles hold exactly. */
static void bench_times_vector(const void *matrix, hd_type type, uint64_t edge, const double *v, double *out)
{
    for (uint64_t i = 0; i < edge; i++) {
        double sum = 0;
        for (uint64_t j = 0; j < edge; j++) {
            sum += bench_element_of(matrix, type, i * edge + j) * v[j];
        }
        out[i] = sum;
    }
}

/* Freivalds' check: c v = a (b v) for a fresh random vector. A wrong element of c shows in its
 * row. */
static bool bench_is_product(const sides *s, char *error)
{
    uint64_t edge = s->p->edge;
    double *v = malloc(4 * edge * sizeof(*v));
    if (!v) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    double *bv = v + edge, *abv = bv + edge, *cv = abv + edge;
    for (uint64_t i = 0; i < edge; i++) {
        v[i] = (double)(bench_hash(i + 77) % 255 + 1);
    }
    bench_times_vector(s->host[1], s->p->type, edge, v, bv);
    bench_times_vector(s->host[0], s->p->type, edge, bv, abv);
    bench_times_vector(s->host[2], s->p->type, edge, v, cv);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < edge; i++) {
        wrong += !(cv[i] == abv[i]);
    }
    free(v);
    if (wrong) {
        snprintf(error, PLAIN_ERROR, "%llu of %llu rows are not right", (unsigned long long)wrong,
                 (unsigned long long)edge);
    }
    return wrong == 0;
}

/* ---- sides ---- */

static bool bench_open_builtin(sides *s, char *error)
{
    char settings[sizeof(s->x->settings) + 16];
    snprintf(settings, sizeof(settings), "%s blas=builtin", s->x->settings);
    hd_options options = {.size = sizeof(options), .settings = settings};
    return cli_report_check(hd_open(&options, &s->builtin), "hd_open", error);
}

static bool bench_take(sides *s, char *error)
{
    tensor_experiment *x = s->x;
    const uint64_t shape[2] = {s->p->edge, s->p->edge};
    s->bytes = hd_type_size(s->p->type) * s->p->edge * s->p->edge;
    s->lane[HEDDLE] = x->lane;
    if (!cli_report_check(hd_lane_get_default(s->builtin, 0, &s->lane[BUILTIN]), "hd_lane_get_default", error)) {
        return false;
    }
    for (int k = 0; k < 3; k++) {
        s->host[k] = malloc(s->bytes);
        if (!s->host[k]) {
            snprintf(error, PLAIN_ERROR, "out of memory");
            return false;
        }
        for (int side = HEDDLE; side <= BUILTIN; side += BUILTIN) {
            if (!cli_report_check(hd_alloc(s->lane[side], s->bytes, &s->buffer[side][k]), "hd_alloc", error) ||
                !cli_report_check(hd_tensor_make(s->buffer[side][k], 0, s->p->type, 2, shape, &s->tensor[side][k]),
                                  "hd_tensor_make", error)) {
                return false;
            }
        }
        if (s->cublas && !TENSOR_TRY(x, error, cuMemAlloc, (&s->plain[k], s->bytes))) {
            return false;
        }
    }
    return true;
}

static void bench_give(sides *s)
{
    for (int k = 0; k < 3; k++) {
        for (int side = 0; side < SIDES; side++) {
            hd_free(s->buffer[side][k]);
            s->buffer[side][k] = NULL;
        }
        if (s->plain[k]) {
            s->x->plain.d->cuMemFree(s->plain[k]);
            s->plain[k] = 0;
        }
        free(s->host[k]);
        s->host[k] = NULL;
    }
}

/* Gives all sides the same factors. Fills c with bytes that are no product. */
static bool bench_write_factors(sides *s, bool whole, char *error)
{
    tensor_experiment *x = s->x;
    uint64_t n = s->p->edge * s->p->edge;
    for (int k = 0; k < 3; k++) {
        if (k < 2) {
            bench_fill_matrix(s->host[k], s->p->type, n, (uint64_t)k << 40, whole);
        } else {
            memset(s->host[k], 0xff, s->bytes); /* NaNs */
        }
        if (!cli_report_check(hd_write(s->buffer[HEDDLE][k], 0, s->host[k], s->bytes), "hd_write", error) ||
            !cli_report_check(hd_write(s->buffer[BUILTIN][k], 0, s->host[k], s->bytes), "hd_write", error) ||
            (s->cublas && !TENSOR_TRY(x, error, cuMemcpyHtoD, (s->plain[k], s->host[k], s->bytes)))) {
            return false;
        }
    }
    /* a copy may return before its last bytes arrive */
    return !s->cublas || TENSOR_TRY(x, error, cuStreamSynchronize, (NULL));
}

static bool bench_multiply(sides *s, int side, int reps, double *ns, char *error)
{
    tensor_experiment *x = s->x;
    hd_ticket ticket = {NULL, 0};
    bool ok = true;
    uint64_t begin = cli_stats_monotonic();
    for (int i = 0; i < reps && ok; i++) {
        hd_tensor *t = s->tensor[side];
        ok = side == LIBRARY ? bench_tensor_cublas_product(s->cublas, s->p->type, s->p->edge, s->plain[0], s->plain[1],
                                                           s->plain[2], error)
                             : cli_report_check(hd_tensor_matmul(s->lane[side], &t[2], &t[0], &t[1], 1, 0, &ticket),
                                                "hd_tensor_matmul", error);
    }
    char later[PLAIN_ERROR], *say = ok ? error : later;
    ok = (side == LIBRARY ? TENSOR_TRY(x, say, cuStreamSynchronize, (x->plain.stream))
                          : cli_report_check(hd_wait(ticket, TENSOR_TIMEOUT_NS), "hd_tensor_matmul", say)) &&
         ok;
    *ns = (double)(cli_stats_monotonic() - begin);
    return ok;
}

static bool bench_check(sides *s, int side, char *error)
{
    static const char *const names[SIDES] = {"hd_tensor_matmul", "cuBLAS", "the built-in kernel"};
    tensor_experiment *x = s->x;
    double ns;
    char why[PLAIN_ERROR];
    if (!bench_multiply(s, side, 1, &ns, error)) {
        return false;
    }
    bool read = side == LIBRARY
                    ? TENSOR_TRY(x, error, cuMemcpyDtoH, (s->host[2], s->plain[2], s->bytes))
                    : cli_report_check(hd_read(s->buffer[side][2], 0, s->host[2], s->bytes), "hd_read", error);
    if (read && !bench_is_product(s, why)) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", names[side], why);
        return false;
    }
    x->checked += read;
    return read;
}

static bool bench_repetitions(sides *s, int side, double sample_ns, int *reps, char *error)
{
    double ns;
    if (!bench_multiply(s, side, 1, &ns, error) || !bench_multiply(s, side, TRIES, &ns, error)) {
        return false;
    }
    double wanted = sample_ns * TRIES / ns;
    *reps = wanted < 1 ? 1 : wanted > 1000 ? 1000 : (int)wanted;
    return true;
}

static bool bench_measure(sides *s, char *error)
{
    tensor_experiment *x = s->x;
    tensor_product *p = s->p;
    tensor_series *series[SIDES] = {&p->heddle, &p->library, &p->builtin};
    int reps[SIDES] = {1, 1, 1};
    double sample_ns = x->on_host || x->options->quick ? x->sample_ns : matmul_sample_ns;
    if (!bench_write_factors(s, true, error)) {
        return false;
    }
    for (int side = 0; side < SIDES; side++) {
        if ((side != LIBRARY || s->cublas) && !bench_check(s, side, error)) {
            return false;
        }
    }
    bool ok = bench_write_factors(s, false, error);
    for (int side = 0; side < SIDES && ok; side++) {
        ok = (side == LIBRARY && !s->cublas) || bench_repetitions(s, side, sample_ns, &reps[side], error);
    }
    for (int round = 0; round < x->rounds && ok; round++) {
        for (int i = 0; i < SIDES && ok; i++) {
            int side = (i + round) % SIDES;
            double ns;
            if (side == LIBRARY && !s->cublas) {
                continue;
            }
            ok = bench_multiply(s, side, reps[side], &ns, error);
            series[side]->value[round] = ns / reps[side];
            series[side]->n = round + 1;
        }
    }
    p->measured = ok;
    return ok;
}

static void bench_plan(const tensor_experiment *x, hd_type type, const char *id, tensor_product *p)
{
    *p = (tensor_product){.type = type, .id = id};
    p->cut_from = p->edge = x->on_host ? (x->options->quick ? QUICK_HOST_EDGE : HOST_EDGE) : EDGE;
    while (p->edge > 32 && 9 * hd_type_size(type) * p->edge * p->edge > x->room) {
        p->edge /= 2;
    }
    for (int i = 0; i < TENSOR_PEERS; i++) {
        p->peers[i] = (tensor_peer){NAN, NAN};
    }
}

bool bench_tensor_run_products(tensor_experiment *x, char *error)
{
    static const hd_type types[TENSOR_PRODUCTS] = {HD_TYPE_F32, HD_TYPE_F16, HD_TYPE_F64};
    static const char *const ids[TENSOR_PRODUCTS] = {"matmul_f32", "matmul_f16", "matmul_f64"};
    sides s = {.x = x};
    char direct[64] = "", why[TENSOR_TEXT] = "cuBLAS is for GPUs", note[2 * TENSOR_TEXT] = "";
    hd_matmul_info info = {.size = sizeof(info)};
    cli_report_progress(&x->options->run, "matmul", "opening libraries", (double)x->steps_done / x->steps);
    bench_make_halves();
    bool ok = cli_report_check(hd_matmul_get_info(x->lane, &info), "hd_matmul_get_info", error) &&
              bench_open_builtin(&s, error);
    snprintf(note, sizeof(note), "%.*s", (int)sizeof(note) - 1, info.reason);
    s.cublas = ok && !x->on_host ? bench_tensor_cublas_open(x, direct, why, sizeof(why)) : NULL;
    for (int i = 0; i < TENSOR_PRODUCTS && ok; i++) {
        tensor_product *p = &x->products[x->n_products++];
        char said[PLAIN_ERROR] = "";
        bench_plan(x, types[i], ids[i], p);
        bench_tensor_step(x, "matmul", hd_type_name(types[i]));
        snprintf(p->heddle_library, sizeof(p->heddle_library), "%s", info.library);
        snprintf(p->direct, sizeof(p->direct), "%s", direct);
        snprintf(p->note, sizeof(p->note), "%s", s.cublas ? note : why);
        s.p = p;
        ok = bench_take(&s, said) && bench_measure(&s, said);
        bench_give(&s);
        if (!ok) {
            snprintf(error, PLAIN_ERROR, "%s: %.400s", p->id, said);
        }
    }
    bench_tensor_cublas_close(s.cublas);
    hd_close(s.builtin);
    return ok;
}
