/* test_claims.cpp - claims in C++: they end with their objects, and function objects run in lanes
 * and on the host.
 *
 * Promise: A C++ claim destroyed before its end has failed; Heddle may call lambdas that throw.
 */
#include "check.hpp"
#include <stdexcept>

static void a_claim_ends_well(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::buffer<int> pinned = hd::alloc_host<int>(runtime, 100), device = hd::alloc<int>(lane, 100);
    hd::fill(pinned, 1);
    hd::claim c = hd::begin_claim(runtime, "a name", hd::inout(pinned, 10, 20));
    const hd::ticket copied = hd::copy(device, pinned);
    c.wait();
    CHECK(c.ready() && c.wait_for(std::chrono::seconds(0)) && !copied.done());
    int *const p = c.pointer<int>();
    CHECK(p[0] == 1);
    p[19] = 7;
    const hd::ticket ended = c.ticket();
    CHECK(!ended.done());
    CHECK_FAILS(HD_ERROR_RANGE, c.pointer<int>(1));
    c.end();
    CHECK(!c);
    ended.wait();
    const std::vector<int> got = hd::read(device);
    CHECK(got[28] == 1 && got[29] == 7);
    CHECK_FAILS(HD_ERROR_HANDLE, c.end());
}

static void a_claim_without_an_end_has_failed(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::buffer<int> device = hd::alloc<int>(lane, 100);
    hd::fill(device, 1);
    hd::ticket outcome;
    try {
        hd::claim c = hd::begin_claim(runtime, hd::out(device));
        outcome = c.ticket();
        hd::claim moved = std::move(c);
        CHECK(!c && moved);
        throw std::runtime_error("no bytes came");
    } catch (const std::runtime_error &) {
    }
    CHECK_FAILS(HD_ERROR_FAILED, outcome.wait());
    CHECK_FAILS(HD_ERROR_FAILED, hd::read(device));
    hd::begin_claim(runtime, hd::out(device)).close();
    hd::claim none = hd::begin_claim(runtime); /* orders work by its ticket alone */
    none.end();
}

static void a_claim_copies_device_memory(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::buffer<int> pinned = hd::alloc_host<int>(runtime, 100), device = hd::alloc<int>(lane, 100);
    hd::fill(device, 1);
    hd::fill(pinned, 5);
    hd::claim c = hd::begin_claim_with_copies(runtime, "copies", hd::inout(device, 10, 20));
    const hd::ticket later = hd::copy(pinned, device);
    c.wait();
    hd::buffer<int> other = hd::alloc_host<int>(runtime, 20);
    hd::fill(other, 7);
    c.write(0, 4, other.span(0, 3));
    c.read(0, 0, other).wait();
    CHECK(!later.done());
    c.end();
    const std::vector<int> got = hd::read(pinned), seen = hd::read(other);
    CHECK(got[10] == 1 && got[11] == 7 && got[13] == 7 && got[14] == 1);
    CHECK(seen[0] == 1 && seen[1] == 7 && seen[4] == 1);
}

static void lanes_wait_for_tickets(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::claim c = hd::begin_claim(runtime);
    const hd::ticket wait = lane.add_dependency(c.ticket());
    CHECK(!wait.wait_for(std::chrono::milliseconds(1)));
    c.end();
    wait.wait();
}

static void the_host_is_called(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::buffer<int> pinned = hd::alloc_host<int>(runtime, 100), device = hd::alloc<int>(lane, 100);
    hd::fill(device, 20);
    hd::copy(pinned, device);
    int seen = 0;
    auto add = [&seen](void *const *pointers) {
        int *const p = static_cast<int *>(pointers[0]);
        seen = p[99];
        p[99] = 22;
    };
    hd::launch_host(runtime, add, hd::inout(pinned));
    hd::copy(device, pinned);
    CHECK(hd::read(device)[99] == 22 && seen == 20);
    const auto fails = [](void *const *) { return HD_ERROR_SYSTEM; };
    const hd::ticket failed = hd::launch_host(runtime, fails);
    CHECK_FAILS(HD_ERROR_FAILED, failed.wait());
    auto throws = [](void *const *) { throw std::runtime_error("no"); };
    const hd::ticket thrown = hd::launch_host(runtime, throws, hd::out(pinned));
    CHECK_FAILS(HD_ERROR_FAILED, thrown.wait());
}

static void streams(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::buffer<int> device = hd::alloc<int>(lane, 100);
    hd::fill(device, 5);
    int calls = 0;
    auto call = [&calls](void *stream) { calls += stream != nullptr; };
    const char *placement = std::getenv("HEDDLE_PLACEMENT");
    if (placement != nullptr && std::strcmp(placement, "process") == 0) {
        CHECK_FAILS(HD_ERROR_UNSUPPORTED, hd::run_native(lane, call, hd::inout(device)));
        CHECK_FAILS(HD_ERROR_UNSUPPORTED, hd::begin_claim_on(runtime, 0, nullptr, hd::in(device)));
        return;
    }
    const hd::ticket called = hd::run_native(lane, call, hd::inout(device));
    called.wait();
    CHECK(calls == 1);
    hd::claim c = hd::begin_claim_on(runtime, 0, nullptr, "default stream", hd::inout(device));
    c.end();
    hd::begin_claim_on(runtime, 0, nullptr, hd::in(device)).close();
    CHECK(hd::read(device)[99] == 5);
}

static void all()
{
    hd::runtime runtime = hd::open(small_machine);
    hd::lane_ref lane = runtime.default_lane(0);
    a_claim_ends_well(runtime, lane);
    a_claim_without_an_end_has_failed(runtime, lane);
    a_claim_copies_device_memory(runtime, lane);
    lanes_wait_for_tickets(runtime, lane);
    the_host_is_called(runtime, lane);
    streams(runtime, lane);
    CHECK(live_buffers(runtime) == 0);
    runtime.close();
}

int main()
{
    return run_tests(all);
}
