/* test_import.cpp - imports and pieces in C++: buffers of elements over the program's own memory,
 * and over exported memory.
 *
 * Promise: C++ imports are buffers of elements like any other; exported pieces keep their content.
 */
#include "check.hpp"
#include <atomic>
#include <unistd.h>

static void memory_of_the_host_is_imported(hd::runtime_ref runtime, hd::lane_ref lane)
{
    std::vector<int> mine(5000, 1);
    std::atomic<bool> released{false};
    const auto release = [](void *context) { static_cast<std::atomic<bool> *>(context)->store(true); };
    if (std::string(runtime.info().placement) == "process") {
        CHECK_FAILS(HD_ERROR_UNSUPPORTED, hd::import_host(runtime, mine.data(), mine.size()));
        CHECK_FAILS(HD_ERROR_UNSUPPORTED, hd::import_device(runtime, 0, mine.data(), mine.size()));
        return;
    }
    {
        hd::buffer<int> b = hd::import_host(runtime, mine.data(), mine.size(), "mine", release, &released);
        hd::buffer<int> device = hd::alloc<int>(lane, mine.size());
        hd::copy(device, b);
        CHECK(b.size() == mine.size() && hd::read(device) == mine);
        CHECK_FAILS(HD_ERROR_ARGUMENT, hd::import_host(runtime, mine.data() + 1, 1));
    }
    while (!released) {
        usleep(1000);
    }
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::import_device(runtime, 0, mine.data(), mine.size()));
}

static void a_piece_comes_back(hd::runtime_ref runtime, hd::lane_ref lane)
{
    hd::buffer<int> one = hd::alloc_piece<int>(lane, 1000, "one"), plain = hd::alloc<int>(lane, 1000);
    hd::fill(one, 5);
    one.wait(HD_READ);
    const hd_export e = hd::export_piece(one);
    hd::buffer<int> same = hd::import_piece<int>(runtime, 0, e);
    close(e.descriptor);
    CHECK(same.size() == 1000 && hd::read(same) == std::vector<int>(1000, 5));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::export_piece(plain));
}

static void all()
{
    hd::runtime runtime = hd::open(small_machine);
    memory_of_the_host_is_imported(runtime, runtime.default_lane(0));
    a_piece_comes_back(runtime, runtime.default_lane(0));
    CHECK(live_buffers(runtime) == 0);
    runtime.close();
}

int main()
{
    return run_tests(all);
}
