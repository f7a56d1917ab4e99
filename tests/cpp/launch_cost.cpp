/* launch_cost.cpp - pairs of functions for tests/cpp/test_launch_cost.sh: plain_NAME launches as in
 * C, face_NAME the same through heddle.hpp.
 *
 * Both read the buffers' handles from the caller's objects, and both leave at a failure, to a
 * function that does not return.
 */
#include <heddle.hpp>

#define FUNCTION extern "C" void

struct pack {
    float a;
    int b[3];
};
using handle = hd_buffer *;
using float_buffer = hd::buffer<float>;

extern "C" [[noreturn]] __attribute__((cold)) void failed(hd_status status);

static inline __attribute__((always_inline)) void must(hd_status status)
{
    if (__builtin_expect(status != HD_OK, 0)) {
        failed(status);
    }
}

#if HD_CPP_THROWS
#define MUST(call) call
#else
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        auto done = call;                                                                                              \
        if (__builtin_expect(!done, 0)) {                                                                              \
            failed(done.error().status());                                                                             \
        }                                                                                                              \
    } while (0)
#endif

FUNCTION plain_axpy(hd_lane *lane, hd_kernel *k, const handle *y, const handle *x, float a, uint64_t n)
{
    const hd_arg args[] = {hd_inout(*y), hd_in(*x), hd_f32(a), hd_u64(n)};
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, 0, args, 4, nullptr));
}
FUNCTION face_axpy(hd::lane_ref lane, hd::kernel k, const float_buffer *y, const float_buffer *x, float a, uint64_t n)
{
    MUST(hd::launch(lane, k, 4096, 256, hd::inout(*y), hd::in(*x), a, n));
}

FUNCTION plain_ranges(hd_lane *lane, hd_kernel *k, const handle *y, const handle *x, size_t first, size_t n)
{
    const hd_arg args[] = {hd_out_range(*y, first * 4, n * 4), hd_in_range(*x, 0, n * 4), hd_u64(n)};
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, 0, args, 3, nullptr));
}
FUNCTION face_ranges(hd::lane_ref lane, hd::kernel k, const float_buffer *y, const float_buffer *x, size_t first,
                     size_t n)
{
    MUST(hd::launch(lane, k, 4096, 256, hd::out(*y, first, n), hd::in(*x, 0, n), n));
}
FUNCTION plain_spans(hd_lane *lane, hd_kernel *k, const handle *y, const handle *x, size_t first, size_t n)
{
    const hd_arg args[] = {hd_out_range(*y, first * 4, n * 4), hd_in_range(*x, 0, n * 4), hd_u64(n)};
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, 0, args, 3, nullptr));
}
FUNCTION face_spans(hd::lane_ref lane, hd::kernel k, const float_buffer *y, const float_buffer *x, size_t first,
                    size_t n)
{
    MUST(hd::launch(lane, k, 4096, 256, hd::out(y->span(first, n)), hd::in(x->span(0, n)), n));
}

FUNCTION plain_values(hd_lane *lane, hd_kernel *k, int8_t i8, uint16_t u16, int32_t i32, double f64, const pack *s)
{
    const hd_arg args[] = {hd_i8(i8), hd_u16(u16), hd_i32(i32), hd_f64(f64), hd_bytes(s, sizeof *s)};
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, 0, args, 5, nullptr));
}
FUNCTION face_values(hd::lane_ref lane, hd::kernel k, int8_t i8, uint16_t u16, int32_t i32, double f64, const pack *s)
{
    MUST(hd::launch(lane, k, 4096, 256, i8, u16, i32, f64, *s));
}

FUNCTION plain_shared(hd_lane *lane, hd_kernel *k, const handle *y, size_t bytes)
{
    const hd_arg args[] = {hd_inout(*y)};
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, bytes, args, 1, nullptr));
}
FUNCTION face_shared(hd::lane_ref lane, hd::kernel k, const float_buffer *y, size_t bytes)
{
    MUST(hd::launch(lane, k, 4096, 256, hd::shared_bytes(bytes), hd::inout(*y)));
}

FUNCTION plain_empty(hd_lane *lane, hd_kernel *k)
{
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, 0, nullptr, 0, nullptr));
}
FUNCTION face_empty(hd::lane_ref lane, hd::kernel k)
{
    MUST(hd::launch(lane, k, 4096, 256));
}

/* A pair that differs, which the test must notice. */
FUNCTION plain_heavier(hd_lane *lane, hd_kernel *k)
{
    must(hd_launch(lane, k, {4096, 1, 1}, {256, 1, 1}, 0, nullptr, 0, nullptr));
}
FUNCTION face_heavier(hd::lane_ref lane, hd::kernel k, const float_buffer *y)
{
    MUST(hd::launch(lane, k, 4096, 256, hd::inout(*y)));
}
