/* test_errors.cpp - a failed call throws hd::error with all facts of the failure, which do not
 * change later. An expired limit is no error. attempt() turns exceptions into values.
 *
 * Promise: A failed C++ call throws hd::error with all facts of the C library and leaves nothing.
 */
#include "check.hpp"

static_assert(std::is_base_of_v<std::exception, hd::error> && std::is_nothrow_copy_constructible_v<hd::error>);

static void facts(hd::runtime &runtime, hd::lane_ref lane)
{
    hd::buffer<float> b = hd::alloc<float>(lane, 4);
    try {
        (void)hd::fill(b.span(2, 100), 1.0f);
    } catch (const std::exception &e) {
        const hd::error &error = static_cast<const hd::error &>(e);
        hd_error plain = {};
        plain.size = sizeof plain;
        hd_last_error(&plain);
        CHECK(error.status() == HD_ERROR_RANGE && std::strcmp(error.status_name(), "HD_ERROR_RANGE") == 0);
        CHECK(std::strcmp(error.what(), plain.message) == 0 && std::strcmp(error.what(), hd_message()) == 0);
        CHECK(std::strncmp(error.what(), "hd_fill: ", 9) == 0);
        const hd::error copy = error;
        CHECK_FAILS(HD_ERROR_NO_DEVICE, runtime.default_lane(99)); /* a later failure */
        CHECK(copy.status() == HD_ERROR_RANGE && std::strcmp(copy.what(), plain.message) == 0);
        CHECK(copy.facts().status == HD_ERROR_RANGE && copy.facts().size == sizeof(hd_error));
    }
    CHECK_FAILS(HD_ERROR_RANGE, hd::fill(b.span(2, 100), 1.0f));
    CHECK(live_buffers(runtime) == 1);
}

/* Refused launches, beside one that succeeds. */
static void of_operations(hd::runtime &runtime, hd::lane_ref lane)
{
    hd::kernel axpy = hd::kernel(runtime.builtin_module().kernel("hd_axpy_f32"));
    hd::buffer<float> x = hd::alloc<float>(lane, 256), y = hd::alloc<float>(lane, 256);
    const hd::ticket submitted =
        hd::launch_ticket(lane, axpy, 1, 256, hd::inout(y), hd::in(x), 2.0f, std::uint64_t(256));
    submitted.wait();
    CHECK(submitted.done() && submitted.wait_for(std::chrono::nanoseconds(0)));
    CHECK_FAILS(HD_ERROR_NOT_FOUND, runtime.builtin_module().kernel("hd_none"));
    /* one argument too few */
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::launch(lane, axpy, 1, 256, hd::inout(y), hd::in(x), 2.0f));
    CHECK_FAILS(HD_ERROR_ACCESS, hd::launch(lane, axpy, 1, 256, hd::in(y), hd::in(x), 2.0f, std::uint64_t(256)));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::launch(lane, hd::kernel(), 1, 1));
}

static void limits(hd::runtime &runtime, hd::lane_ref lane)
{
    CHECK(hd::ticket().done() && hd::ticket().wait_for(std::chrono::seconds(-1)));
    CHECK(lane.wait_for(std::chrono::seconds(100)));
    CHECK(lane.accept_work_for(std::chrono::seconds(100)));
    lane.accept_work();
    lane.wait();
    lane.ticket().wait();
    hd::buffer<float> b = hd::alloc<float>(lane, 1000);
    hd::fill(b, 1.0f);
    b.wait(HD_READ_WRITE);
    CHECK(b.wait_for(HD_READ, std::chrono::milliseconds(0)));
    CHECK(!runtime.next_loss());
    CHECK(runtime.loss_descriptor() >= 0);
}

static void found_by_the_headers(hd::runtime &runtime, hd::lane_ref lane)
{
    hd::buffer<float> a = hd::alloc<float>(lane, 10), b = hd::alloc<float>(lane, 20);
    std::vector<float> v(15);
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::copy(a, b));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::write(a, v));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::read(a, v));
    CHECK_FAILS(HD_ERROR_NOT_FOUND, runtime.load_module_file("/nonexistent/file.hdk"));
    CHECK_FAILS(HD_ERROR_SYSTEM, runtime.load_module_file("/"));
    CHECK_FAILS(HD_ERROR_IMAGE, runtime.load_module("not a module", 12));
    /* more bytes than a size_t can count */
    CHECK_FAILS(HD_ERROR_MEMORY, hd::alloc<double>(lane, SIZE_MAX / 4));
    CHECK_FAILS(HD_ERROR_RANGE, hd::read(a.span(SIZE_MAX / 2 + 1, 1), v.data()));
    CHECK_FAILS(HD_ERROR_RANGE, hd::fill(a.span(11), 0.0f));
    CHECK_FAILS(HD_ERROR_ACCESS, a.load(0));
    CHECK_FAILS(HD_ERROR_OPTION, hd::open("no_such_option=1"));
    CHECK_FAILS(HD_ERROR_OPTION, hd::open(std::string("placement=nowhere")));
}

static void attempts(hd::runtime &runtime, hd::lane_ref lane)
{
    auto good = hd::attempt([&] { return hd::alloc<int>(lane, 3); });
    CHECK(good && good->size() == 3 && live_buffers(runtime) == 1);
    auto bad = hd::attempt([&] { return runtime.create_lane(77); });
    CHECK(!bad && bad.error().status() == HD_ERROR_NO_DEVICE && std::strlen(bad.error().what()) > 10);
    auto nothing = hd::attempt([&] { lane.wait(); });
    CHECK(nothing.has_value());
    nothing = hd::attempt([&] { hd::lane_ref().wait(); });
    CHECK(!nothing && nothing.error().status() == HD_ERROR_HANDLE);
}

static void test()
{
    hd::runtime runtime = hd::open(small_machine);
    hd::lane_ref lane = runtime.default_lane(0);
    facts(runtime, lane);
    of_operations(runtime, lane);
    limits(runtime, lane);
    found_by_the_headers(runtime, lane);
    attempts(runtime, lane);
    CHECK(live_buffers(runtime) == 0);
}

int main()
{
    return run_tests(test);
}
