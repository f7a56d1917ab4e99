/* test_copy.cpp - moves elements between containers, buffers and spans of any element type; boxes
 * also count in elements.
 *
 * Promise: Copies, fills and boxes in C++ move exactly the elements that their spans name.
 */
#include "check.hpp"
#include <algorithm>
#include <array>

struct particle {
    float place[3];
    std::int32_t kind;
};

template <class T> static void back_and_forth(hd::lane_ref near, hd::lane_ref far, const std::vector<T> &content)
{
    const std::size_t n = content.size();
    hd::buffer<T> a = hd::alloc<T>(near, n), b = hd::alloc<T>(far, n, "far away");
    hd::write(a, content);
    hd::copy(b, a).wait();
    hd::copy(b.span(0, 3), a.span(n - 3, 3));
    const std::vector<T> out = hd::read(b);
    CHECK(std::memcmp(&out[0], &content[n - 3], 3 * sizeof(T)) == 0);
    CHECK(std::memcmp(&out[3], &content[3], (n - 3) * sizeof(T)) == 0);
    hd::write(b.span(5, 2), content.data());
    T two[2];
    hd::read(b.span(5, 2), two);
    CHECK(std::memcmp(two, content.data(), sizeof two) == 0);
    CHECK(hd::copy(b.span(4, 0), a.span(2, 0)).done()); /* copies no elements */
}

static void containers(hd::lane_ref lane)
{
    hd::buffer<int> b = hd::alloc<int>(lane, 4);
    const std::array<int, 4> four = {1, 2, 3, 4};
    int plain[4] = {5, 6, 7, 8};
    hd::write(b, four);
    std::array<int, 4> got = {};
    hd::read(b, got);
    CHECK(got == four);
    hd::write(b, plain);
    CHECK(hd::read(b)[3] == 8);
    std::vector<int> part(2);
    hd::read(b.span(1, 2), part);
    CHECK(part[0] == 6 && part[1] == 7);
    CHECK(b.address() != 0 && b.span(1).size() == 3 && b.span(9).empty() && b.span(1).offset_bytes() == 4);
    b.set_label("labelled");
}

struct three_bytes {
    unsigned char of[3];
};
struct five_thousand_bytes {
    unsigned char of[5000];
};

/* Fills random spans of a buffer with random elements, and does the same to a vector. After half of
 * the fills, waits for the ticket and reads the device's bytes. */
template <class T> static void fill_as_model(hd::lane_ref lane, std::size_t n, int fills)
{
    hd::buffer<T> b = hd::alloc<T>(lane, n);
    std::vector<T> model(n);
    std::memset(static_cast<void *>(model.data()), 0, n * sizeof(T));
    hd::write(b, model);
    unsigned seed = static_cast<unsigned>(sizeof(T) + n);
    const auto pick = [&](std::size_t below) {
        seed = seed * 1664525u + 1013904223u;
        return static_cast<std::size_t>(seed >> 8) % below;
    };
    for (int i = 0; i < fills; i++) {
        const std::size_t first = pick(n),
                          count = pick(4) == 0 ? pick(std::min<std::size_t>(n - first + 1, 8)) : pick(n - first + 1);
        T value;
        for (std::size_t k = 0; k < sizeof(T); k++) {
            reinterpret_cast<unsigned char *>(&value)[k] =
                static_cast<unsigned char>(i % 3 == 0 ? i : static_cast<int>(pick(256)));
        }
        const hd::ticket done = hd::fill(b.span(first, count), value);
        for (std::size_t k = first; k < first + count; k++) {
            std::memcpy(static_cast<void *>(&model[k]), &value, sizeof(T));
        }
        if (pick(2) == 0) {
            done.wait();
        }
        if (pick(4) == 0 || i + 1 == fills) {
            const std::vector<T> got = hd::read(b);
            const bool same = std::memcmp(static_cast<const void *>(got.data()), model.data(), n * sizeof(T)) == 0;
            CHECK(same);
            if (!same) {
                std::printf("elements of %zu bytes, %zu of %zu from %zu on\n", sizeof(T), count, n, first);
                return;
            }
        }
    }
}

static void fills_of_any_type(hd::lane_ref lane)
{
    fill_as_model<std::uint8_t>(lane, 7, 50);
    fill_as_model<std::uint8_t>(lane, 100003, 50);
    fill_as_model<std::int16_t>(lane, 5001, 50);
    fill_as_model<three_bytes>(lane, 1, 5);
    fill_as_model<three_bytes>(lane, 4099, 50);
    fill_as_model<float>(lane, 1000, 30);
    fill_as_model<double>(lane, 1, 5);
    fill_as_model<double>(lane, 9000, 50);
    fill_as_model<particle>(lane, 3000, 50);
    fill_as_model<five_thousand_bytes>(lane, 23, 30);
    hd::buffer<double> doubles = hd::alloc<double>(lane, 4);
    CHECK_FAILS(HD_ERROR_RANGE, hd::fill(doubles.span(2, 3), 0.1));
    CHECK(hd::fill(doubles.span(2, 0), 0.1).done());
}

/* A freed buffer is the error reported, whatever the sizes. */
static void stale(hd::lane_ref lane)
{
    hd::buffer<double> b = hd::alloc<double>(lane, 8), other = hd::alloc<double>(lane, 8);
    const hd::buffer_ref<double> gone = b, none;
    const hd::span<double> part = b.span(0, 3);
    b.close();
    std::vector<double> v(8);
    CHECK_FAILS(HD_ERROR_HANDLE, hd::read(gone, v));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::read(part, v));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::read(gone));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::write(gone, v));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::write(none, v));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::copy(gone, other));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::copy(other, gone));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::copy(other, part));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::fill(gone, 0.1));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::fill(part, 0.1));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::read(other.span(0, 3), v));
}

static void fills(hd::lane_ref lane)
{
    hd::buffer<std::uint8_t> bytes = hd::alloc<std::uint8_t>(lane, 64);
    hd::fill(bytes, std::uint8_t(0x5a));
    hd::fill(bytes.span(8, 4), std::uint8_t(1));
    CHECK(hd::read(bytes)[63] == 0x5a && hd::read(bytes)[8] == 1 && hd::read(bytes)[12] == 0x5a);
    hd::buffer<std::int16_t> halves = hd::alloc<std::int16_t>(lane, 32);
    hd::fill(halves, std::int16_t(-2));
    CHECK(hd::read(halves)[31] == -2);
    hd::buffer<float> floats = hd::alloc<float>(lane, 32);
    hd::fill(floats, 1.5f).wait();
    CHECK(hd::read(floats)[31] == 1.5f);
}

static void boxes(hd::lane_ref lane)
{
    enum { ROWS = 6, COLUMNS = 10 };
    hd::buffer<double> whole = hd::alloc<double>(lane, ROWS * COLUMNS), part = hd::alloc<double>(lane, 6);
    hd::write(whole, numbers<double>(ROWS * COLUMNS));
    /* rows 2 and 3, columns 4 to 6 */
    hd::copy_box(part, 0, whole, 2 * COLUMNS + 4, hd::box(3).repeat(2, 3, COLUMNS));
    CHECK(hd::read(part) == (std::vector<double>{24, 25, 26, 34, 35, 36}));
    double six[6] = {1, 2, 3, 4, 5, 6}, back[6] = {};
    hd::write_box(whole, 0, six, hd::box(3).repeat(2, COLUMNS, 3));
    CHECK(hd::read(whole)[2] == 3 && hd::read(whole)[3] == 3 && hd::read(whole)[12] == 6);
    hd::read_box(whole, 7, back, hd::box(1).repeat(2, 1, COLUMNS).repeat(3, 2, 2 * COLUMNS));
    CHECK(back[0] == 7 && back[1] == 17 && back[2] == 27 && back[5] == 57);
    hd::box deep(1);
    for (int i = 0; i <= HD_BOX_DIMS; i++) {
        deep = deep.repeat(1, 1, 1);
    }
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::copy_box(part, 0, whole, 0, deep));
    CHECK_FAILS(HD_ERROR_RANGE, hd::copy_box(part, 4, whole, 0, hd::box(3)));
}

static void kept(hd::lane_ref lane)
{
    hd::buffer<int> b = hd::alloc<int>(lane, 100, "kept", HD_ALLOC_KEEP), other = hd::alloc<int>(lane, 1);
    hd::fill(b, 3);
    b.save().wait();
    CHECK_FAILS(HD_ERROR_ARGUMENT, other.save());
}

static void test()
{
    hd::runtime runtime = hd::open(small_machine);
    hd::lane_ref lane = runtime.default_lane(0), far = runtime.default_lane(runtime.device_count() - 1);
    back_and_forth(lane, far, numbers<float>(1000));
    back_and_forth(lane, far, numbers<std::uint8_t>(255));
    back_and_forth(lane, far, numbers<std::int64_t>(300000));
    back_and_forth(lane, far, std::vector<particle>(50, particle{{1, 2, 3}, 4}));
    containers(lane);
    fills(lane);
    fills_of_any_type(lane);
    stale(lane);
    boxes(lane);
    kept(lane);
    CHECK(live_buffers(runtime) == 0);
}

int main()
{
    return run_tests(test);
}
