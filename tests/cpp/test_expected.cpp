/* test_expected.cpp - without exceptions every call returns hd::expected: the value, or the error
 * with all its facts. It is compiled with HEDDLE_NO_EXCEPTIONS and -fno-exceptions, once with the
 * headers' own hd::expected, and once with std::expected if it exists.
 *
 * Promise: Without exceptions each C++ call returns its value or error, and releases the rest.
 */
#include "check.hpp"

static_assert(!HD_CPP_THROWS && std::is_same_v<decltype(hd::open()), hd::expected<hd::runtime>>);
static_assert(!std::is_copy_constructible_v<hd::expected<hd::runtime>>);
static_assert(std::is_same_v<hd::result<void>, hd::expected<void>>);

/* Returns at the first failure, as programs do. */
static hd::expected<float> twice(hd::runtime_ref runtime, float value)
{
    auto lane = runtime.default_lane(0);
    if (!lane) {
        return hd::unexpected(lane.error());
    }
    auto module = runtime.builtin_module();
    auto axpy = module->kernel("hd_axpy_f32");
    auto x = hd::alloc<float>(*lane, 1);
    auto y = hd::alloc<float>(*lane, 1);
    if (!axpy || !x || !y) {
        return hd::unexpected(!axpy ? axpy.error() : !x ? x.error() : y.error());
    }
    CHECK(hd::fill(*x, value) && hd::fill(*y, value));
    auto launched = hd::launch(*lane, *axpy, 1, 1, hd::inout(*y), hd::in(*x), 1.0f, std::uint64_t(1));
    if (!launched) {
        return hd::unexpected(launched.error());
    }
    auto out = hd::read(*y);
    if (!out) {
        return hd::unexpected(out.error());
    }
    return (*out)[0];
}

static void values(hd::runtime_ref runtime)
{
    auto result = twice(runtime, 21);
    CHECK(result && *result == 42 && result.has_value());
    hd::expected<hd::buffer<int>> a = hd::alloc<int>(*runtime.default_lane(0), 5);
    CHECK(a && a->size() == 5 && live_buffers(runtime) == 1);
    hd::expected<hd::buffer<int>> b = std::move(a);
    CHECK(b && b->size() == 5);
    hd::buffer<int> taken = *std::move(b);
    CHECK(taken.size() == 5 && !*b);
    b = hd::alloc<int>(*runtime.default_lane(0), 6);
    CHECK(b && b->size() == 6 && live_buffers(runtime) == 2);
    b = hd::alloc<int>(*runtime.default_lane(0), 0); /* an error instead of a value */
    CHECK(!b && b.error().status() == HD_ERROR_ARGUMENT && live_buffers(runtime) == 1);
    b = hd::alloc<int>(*runtime.default_lane(0), 7); /* a value again */
    CHECK(b && b->size() == 7);
    CHECK(taken.close() && live_buffers(runtime) == 1);
}

static void errors(hd::runtime_ref runtime)
{
    auto lane = runtime.default_lane(99);
    CHECK(!lane && lane.error().status() == HD_ERROR_NO_DEVICE);
    CHECK(std::strcmp(lane.error().what(), hd_message()) == 0);
    CHECK(lane.error().facts().status == HD_ERROR_NO_DEVICE && lane.error().driver_code() == 0);
    hd::expected<void> done = hd::lane_ref().wait();
    CHECK(!done && done.error().status() == HD_ERROR_HANDLE);
    done = runtime.default_lane(0)->wait();
    CHECK(done.has_value());
    hd::expected<void> moved = std::move(done);
    CHECK(moved.has_value());
    auto options = hd::open("no_such_option=1");
    CHECK(!options && options.error().status() == HD_ERROR_OPTION);
    auto module = runtime.load_module_file("/nonexistent");
    CHECK(!module && module.error().status() == HD_ERROR_NOT_FOUND);
    CHECK(runtime.device_info(0).has_value() && !runtime.device_info(-5).has_value());
    CHECK(runtime.default_lane(0)->wait_for(std::chrono::seconds(50)).value_or(false));
    CHECK(!hd::lane_ref().wait_for(std::chrono::seconds(0)).has_value());
}

/* Makes every kind of call once, since each is compiled in this way, too. */
static void other_calls(hd::runtime_ref runtime)
{
    auto lane = *runtime.default_lane(0);
    auto a = hd::alloc_tensor<double>(lane, {2, 2});
    auto c = hd::alloc_tensor<double>(lane, {2, 2});
    const std::vector<double> unit = {1, 0, 0, 2};
    CHECK(a && c && hd::write(*a, unit) && hd::matmul(lane, *c, *a, *a->transpose()));
    CHECK((*hd::read(*c))[3] == 4);
    CHECK(!a->permute({0}) && !hd::make_tensor_strided(a->buffer(), {2, 2}, {1}));
    CHECK(hd::copy(*a, *c) && runtime.memory_stats(0)->live_count >= 2 && !runtime.memory_report()->empty());
    int seen = 0;
    CHECK(runtime.peers_check(0, [&](int, int, const hd_peer_info &, int, int) { seen++; }) && runtime.peers_check());
    CHECK(seen >= 0 && runtime.peer_check(0, 0)->verdict == HD_PEER_USABLE);
    auto reclaim = runtime.on_reclaim([](const hd_reclaim &) { return false; });
    auto finding = runtime.on_finding([](const hd_finding &) {});
    CHECK(reclaim && finding && !hd::runtime_ref().on_reclaim([](const hd_reclaim &) { return false; }));
    auto pinned = hd::alloc_host<int>(runtime, 8);
    CHECK(pinned && pinned->store(2, 5) && *pinned->load(2) == 5 && !pinned->load(8));
    {
        auto map = pinned->map();
        CHECK(map && (*map)[2] == 5);
    }
    CHECK(runtime.options()->size() > 20 && !runtime.next_loss()->has_value());
}

int main()
{
    auto runtime = hd::open(small_machine);
    if (!runtime) {
        std::printf("%s\n", runtime.error().what());
        return 1;
    }
    values(*runtime);
    errors(*runtime);
    other_calls(*runtime);
    CHECK(live_buffers(*runtime) == 0);
    CHECK(runtime->close().has_value());
    return failures > 0;
}
