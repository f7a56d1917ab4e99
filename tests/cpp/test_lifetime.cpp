/* test_lifetime.cpp - objects of heddle.hpp release their handles once: at the end of their scope
 * and when assigned, but not after a move or a release.
 *
 * Promise: Owning C++ objects release handles exactly once, even if moved, assigned or thrown.
 */
#include "check.hpp"
#include <stdexcept>

static_assert(!std::is_copy_constructible_v<hd::runtime> && std::is_nothrow_move_constructible_v<hd::runtime>);
static_assert(!std::is_copy_assignable_v<hd::buffer<float>> && std::is_nothrow_move_assignable_v<hd::buffer<float>>);
static_assert(!std::is_copy_constructible_v<hd::lane> && !std::is_copy_constructible_v<hd::module>);
static_assert(!std::is_copy_constructible_v<hd::tensor<float>> &&
              std::is_nothrow_move_constructible_v<hd::tensor<float>>);
static_assert(!std::is_copy_constructible_v<hd::mapping<float>> && !std::is_copy_constructible_v<hd::callback>);
static_assert(std::is_nothrow_destructible_v<hd::runtime> && std::is_nothrow_destructible_v<hd::callback>);
static_assert(std::is_trivially_copyable_v<hd::lane_ref> && sizeof(hd::lane_ref) == sizeof(void *));
static_assert(sizeof(hd::buffer<float>) == sizeof(void *));

static hd::buffer<float> made(hd::lane_ref lane)
{
    hd::buffer<float> b = hd::alloc<float>(lane, 10);
    return b;
}

static void buffers(hd::runtime &runtime, hd::lane_ref lane)
{
    {
        hd::buffer<float> a = made(lane), b = hd::alloc_host<float>(runtime, 5), c = hd::alloc_unified<float>(lane, 7);
        CHECK(live_buffers(runtime) >= 3 && a.size() == 10 && b.size() == 5 && c.size() == 7);
        CHECK(a.device() == 0 && b.device() == HD_DEVICE_HOST && a.size_bytes() == 40);

        hd::buffer<float> moved = std::move(a);
        CHECK(!a && a.size() == 0 && moved.size() == 10);
        a = std::move(moved); /* and back */
        CHECK(!moved && a.size() == 10);
        hd::buffer<float> &same = a;
        a = std::move(same);
        CHECK(a.size() == 10);
        a = hd::alloc<float>(lane, 20); /* frees the previous buffer */
        hd::buffer_ref<float> view = a; /* frees nothing */
        CHECK(view.size() == 20 && view.get() == a.get());
    }
    CHECK(live_buffers(runtime) == 0);

    hd::buffer<float> kept = made(lane);
    hd_buffer *const handle = kept.release();
    CHECK(!kept && hd_free(handle) == HD_OK);
    kept.reset(made(lane).release());
    kept.close();
    CHECK(!kept && live_buffers(runtime) == 0);
    kept = hd::buffer<float>(handle); /* freed already: its destructor reports nothing */
    CHECK_FAILS(HD_ERROR_HANDLE, kept.close());

    try {
        hd::buffer<float> b = made(lane);
        throw std::runtime_error("on the way");
    } catch (const std::runtime_error &) {
    }
    CHECK(live_buffers(runtime) == 0);
}

static void tensors(hd::runtime &runtime, hd::lane_ref lane)
{
    {
        hd::tensor<float> t = hd::alloc_tensor<float>(lane, {3, 4});
        hd::tensor<float> moved = std::move(t);
        CHECK(t.get().buffer == nullptr && t.dims() == 0 && moved.size() == 12);
        moved = hd::alloc_tensor<float>(lane, {5});
        CHECK(live_buffers(runtime) == 1);
        hd_tensor plain = moved.release();
        CHECK(moved.get().buffer == nullptr && hd_free(plain.buffer) == HD_OK);
        moved = hd::alloc_tensor<float>(lane, {5});
    }
    CHECK(live_buffers(runtime) == 0);
}

static void mappings(hd::runtime &runtime, hd::lane_ref lane)
{
    hd::buffer<int> b = hd::alloc_unified<int>(lane, 100);
    {
        hd::mapping<int> m = b.map();
        std::iota(m.begin(), m.end(), 0);
        CHECK(m.size() == 100 && m[99] == 99);
        CHECK_FAILS(HD_ERROR_ACCESS, hd::fill(b, 1));
        hd::mapping<int> moved = std::move(m);
        CHECK(m.data() == nullptr && m.empty() && moved[50] == 50);
    } /* unmapped once: work may use it again */
    CHECK(hd::read(b)[99] == 99);
    hd::mapping<const int> seen = b.map_for_reading();
    CHECK(seen[7] == 7);
    seen.unmap();
    seen.unmap();
    hd::fill(b, 4);
    CHECK(b.load(3) == 4);
    b.store(3, 5);
    CHECK(b.load(3) == 5 && hd::read(b.span(3, 1))[0] == 5);
    hd::mapping<int> written = b.map_for_writing();
    written[0] = 9;
    b.reset(); /* frees it while it is mapped; unmapping then does nothing */
    CHECK(live_buffers(runtime) == 0);
}

static void lanes(hd::runtime &runtime)
{
    /* many more than a device allows, so each must be given back */
    for (int i = 0; i < 600; i++) {
        hd::lane lane = runtime.create_lane(0);
        CHECK(lane.device() == 0 && lane.number() >= 0);
    }
    hd::lane lane = runtime.create_lane(1);
    hd_lane *const handle = lane.get();
    lane.reset();
    CHECK_FAILS(HD_ERROR_HANDLE, hd::lane_ref(handle).wait());
}

static void test()
{
    hd::buffer<float> outlives;
    hd::lane outlives_too;
    hd::hold hold;
    {
        hd::runtime runtime = hd::open(small_machine);
        hd::lane_ref lane = runtime.default_lane(0);
        buffers(runtime, lane);
        tensors(runtime, lane);
        mappings(runtime, lane);
        lanes(runtime);
        hold = runtime.create_hold();
        outlives = made(lane);
        hold.add(outlives);
        outlives_too = runtime.create_lane(0);
        hd::runtime moved = std::move(runtime);
        CHECK(!runtime && runtime.device_count() == 0 && moved.device_count() > 0);
    }
    CHECK_FAILS(HD_ERROR_HANDLE, hd::fill(outlives, 1.0f)); /* its runtime is closed */
    hd::runtime closed = hd::open(small_machine);
    const hd::runtime_ref view = closed;
    closed.close();
    CHECK_FAILS(HD_ERROR_HANDLE, view.info());
}

int main()
{
    return run_tests(test);
}
