/* test_memory.cpp - callbacks live as long as their objects, and no exception enters the library.
 * Also figures, reports, holds, peers, options, kernel files and driver entry points in C++.
 *
 * Promise: C++ callbacks run while their objects live; their exceptions never enter the library.
 */
#include "check.hpp"
#include <stdexcept>

static void figures(hd::runtime &runtime, hd::lane_ref lane)
{
    hd::buffer<float> b = hd::alloc<float>(lane, 1000, "a label");
    CHECK(runtime.memory_stats(0).live_bytes == 4000 && runtime.memory_stats(HD_DEVICE_HOST).live_count == 0);
    const std::vector<hd_memory_block> blocks = runtime.memory_blocks();
    CHECK(blocks.size() == 1 && std::strcmp(blocks[0].label, "a label") == 0);
    CHECK(runtime.memory_report().find("a label") != std::string::npos);
    const std::string json = runtime.memory_report(HD_REPORT_JSON);
    CHECK(json.front() == '{' && json.find_last_not_of("\n") == json.find_last_of("}"));
    CHECK_FAILS(HD_ERROR_NOT_FOUND, hd::memory_report_of(1 << 30));
    b.reset();
    CHECK(!runtime.memory_lanes(0).empty() && runtime.memory_lanes(HD_DEVICE_HOST).empty());
    CHECK(runtime.memory_trim(0) > 0);
    CHECK_FAILS(HD_ERROR_NO_DEVICE, runtime.memory_stats(77));
    CHECK(runtime.device_stats(0).bytes_live == 0 && runtime.device_info(0).name[0] != 0);
    CHECK(runtime.info().device_count == runtime.device_count());
    CHECK(runtime.options().size() > 20 && hd::runtime_ref().options().size() == runtime.options().size());
    if (std::strcmp(runtime.info().placement, "process") == 0) {
        runtime.restart(0); /* no effect: the device is not lost */
    } else {
        CHECK_FAILS(HD_ERROR_UNSUPPORTED, runtime.restart(0));
    }
}

/* Functions on pages of their own, each of which allocates in one way. */
#define CALLER __attribute__((noinline, aligned(4096))) static
CALLER hd::buffer<float> plain(hd::runtime_ref, hd::lane_ref lane)
{
    return hd::alloc<float>(lane, 1000);
}
CALLER hd::buffer<float> same_again(hd::runtime_ref, hd::lane_ref lane)
{
    return hd::alloc<float>(lane, 1000);
}
CALLER hd::buffer<float> labelled(hd::runtime_ref, hd::lane_ref lane)
{
    return hd::alloc<float>(lane, 1000, "label");
}
CALLER hd::buffer<float> pinned(hd::runtime_ref runtime, hd::lane_ref)
{
    return hd::alloc_host<float>(runtime, 1000);
}
CALLER hd::buffer<float> unified(hd::runtime_ref, hd::lane_ref lane)
{
    return hd::alloc_unified<float>(lane, 1000);
}
CALLER hd::buffer<float> piece(hd::runtime_ref, hd::lane_ref lane)
{
    return hd::alloc_piece<float>(lane, 1000);
}
alignas(64) static float outside[1000];
CALLER hd::buffer<float> imported(hd::runtime_ref runtime, hd::lane_ref)
{
    return hd::import_host(runtime, outside, 1000);
}
CALLER hd::buffer<float> of_tensor(hd::runtime_ref, hd::lane_ref lane)
{
    return hd::buffer<float>(hd::alloc_tensor<float>(lane, {10, 100}).release().buffer);
}

/* The call site of an allocation is a place in the program: two functions differ. */
static void call_sites(hd::runtime_ref runtime, hd::lane_ref lane)
{
    using function = hd::buffer<float> (*)(hd::runtime_ref, hd::lane_ref);
    static const function callers[] = {plain, same_again, labelled, pinned, unified, piece, imported, of_tensor};
    for (const function &caller : callers) {
        if (caller == imported && std::strcmp(runtime.info().placement, "process") == 0) {
            continue; /* other processes drive the devices there, and lack this memory */
        }
        const hd::buffer<float> b = caller(runtime, lane);
        const std::vector<hd_memory_block> blocks = runtime.memory_blocks();
        CHECK(blocks.size() == 1);
        const auto site = reinterpret_cast<std::uintptr_t>(blocks.at(0).call_site);
        const bool is_there = (site & ~std::uintptr_t(4095)) == reinterpret_cast<std::uintptr_t>(caller);
        CHECK(is_there);
        if (!is_there) {
            std::printf("caller %d is not the call site\n", static_cast<int>(&caller - callers));
        }
    }
}

static void holds(hd::runtime &runtime, hd::lane_ref lane)
{
    hd::hold hold = runtime.create_hold();
    hd::buffer<float> b = hd::alloc<float>(lane, 1000);
    hold.add(b);
    b.reset();
    CHECK(runtime.memory_blocks().size() == 1 && runtime.memory_blocks()[0].held);
    hold.reset();
    CHECK(runtime.memory_blocks().empty());
}

/* Leaves memory for one buffer only, so that the next one calls the callback. */
static void reclaims()
{
    hd::runtime runtime = hd::open("host_devices=1 host_memory=64M memory_limit=32M memory_timeout=100");
    hd::lane_ref lane = runtime.default_lane(0);
    const std::size_t most = 24 << 20;
    hd::buffer<char> cached;
    int calls = 0;
    {
        hd::callback reclaim = runtime.on_reclaim([&](const hd_reclaim &what) {
            calls++;
            const bool had = static_cast<bool>(cached);
            cached.reset();
            return had && what.wanted > 0;
        });
        cached = hd::alloc<char>(lane, most);
        hd::callback moved = std::move(reclaim);
        hd::buffer<char> next = hd::alloc<char>(lane, most);
        CHECK(calls > 0 && !cached && next);
    }
    const int before = calls;
    hd::buffer<char> again = hd::alloc<char>(lane, most);
    CHECK_FAILS(HD_ERROR_MEMORY, hd::alloc<char>(lane, most));
    CHECK(calls == before); /* its object is gone */
    hd::callback throws = runtime.on_reclaim([&](const hd_reclaim &) -> bool {
        calls++;
        throw std::runtime_error("from a callback");
    });
    CHECK_FAILS(HD_ERROR_MEMORY, hd::alloc<char>(lane, most));
    CHECK(calls > before);
}

static void findings()
{
    std::vector<hd_finding> found;
    hd::callback keep; /* outlives the runtime, and gets the findings at its end */
    hd_buffer *leaked = nullptr;
    {
        hd::runtime runtime = hd::open("host_devices=1 memory_debug=on");
        keep = runtime.on_finding([&](const hd_finding &finding) {
            found.push_back(finding);
            throw std::runtime_error("from a callback");
        });
        hd::lane_ref lane = runtime.default_lane(0);
        hd::buffer<float> b = hd::alloc<float>(lane, 8);
        const hd::buffer_ref<float> stale = b;
        b.reset();
        CHECK_FAILS(HD_ERROR_HANDLE, hd::read(stale.span(0, 8)));
        CHECK(found.size() == 1 && found[0].kind == HD_FINDING_USE_AFTER_FREE);
        leaked = hd::alloc<float>(lane, 9).release();
    }
    CHECK(leaked != nullptr && found.size() == 2 && found[1].kind == HD_FINDING_LEAK && found[1].bytes == 36);
}

static void peers(hd::runtime &runtime)
{
    CHECK(runtime.peer_check(0, 0).verdict == HD_PEER_USABLE);
    int last = 0, total = 0;
    runtime.peers_check(HD_PEERS_AGAIN, [&](int, int, const hd_peer_info &, int done, int all) {
        last = done;
        total = all;
    });
    CHECK(total == runtime.device_count() * (runtime.device_count() - 1) && last == total);
    int calls = 0;
    try {
        runtime.peers_check(HD_PEERS_AGAIN, [&](int, int, const hd_peer_info &, int, int) {
            calls++;
            throw std::runtime_error("from a callback");
        });
    } catch (const std::runtime_error &) {
        calls += 100;
    }
    CHECK(calls == 101 || total == 0);
    runtime.peers_check();
}

static void entries()
{
    auto *const version = hd::driver_entry<int(int *)>(nullptr, "cuDriverGetVersion");
    int number = 0;
    CHECK(version(&number) == 0 && number > 0);
    CHECK_FAILS(HD_ERROR_NOT_FOUND, hd::driver_entry<int()>(nullptr, "cuNone"));
    hd_kernel_file_parts parts = {};
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::build_kernel_file(parts));
    const hd::kernel_file none;
    CHECK(none.data() == nullptr && none.size() == 0);
}

static void test()
{
    {
        hd::runtime runtime = hd::open(small_machine);
        hd::lane_ref lane = runtime.default_lane(0);
        figures(runtime, lane);
        call_sites(runtime, lane);
        holds(runtime, lane);
        peers(runtime);
        CHECK(live_buffers(runtime) == 0);
    }
    reclaims();
    findings();
    entries();
}

int main()
{
    return run_tests(test);
}
