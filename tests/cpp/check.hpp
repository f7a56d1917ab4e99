/* check.hpp - shared by the tests of heddle.hpp: checks that count, and opening with small host
 * devices.
 *
 * cmocka leaves a test by longjmp, which runs no destructors, so these tests are plain programs.
 * Threads: one. Locks: none. Always: run_tests returns 1 after a failed check.
 */
#ifndef TESTS_CPP_CHECK_HPP
#define TESTS_CPP_CHECK_HPP

#include <heddle.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::printf("%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, hd_message());                     \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

#if HD_CPP_THROWS
/* `call` must throw an hd::error with this status. */
#define CHECK_FAILS(wanted, call)                                                                                      \
    do {                                                                                                               \
        hd_status thrown_status = HD_OK;                                                                               \
        try {                                                                                                          \
            (void)(call);                                                                                              \
        } catch (const hd::error &caught) {                                                                            \
            thrown_status = caught.status();                                                                           \
            CHECK(std::strlen(caught.what()) > 10);                                                                    \
        }                                                                                                              \
        CHECK(thrown_status == (wanted));                                                                              \
    } while (0)

static int run_tests(void (*test)())
{
    try {
        test();
    } catch (const std::exception &e) {
        std::printf("thrown: %s\n", e.what());
        failures++;
    }
    return failures > 0;
}
#endif

static const char *const small_machine = "host_devices=2 host_memory=64M";

/* Counts the live buffers, including pinned ones. */
[[maybe_unused]] static std::uint64_t live_buffers(hd::runtime_ref runtime)
{
    std::uint64_t live = 0;
    for (int device = HD_DEVICE_HOST; device < runtime.device_count(); device++) {
        hd_memory_stats stats = {};
        stats.size = sizeof stats;
        CHECK(hd_memory_get_stats(runtime.get(), device, &stats) == HD_OK);
        live += stats.live_count;
    }
    return live;
}

/* Returns the numbers 0, 1, 2, ... */
template <class T> std::vector<T> numbers(std::size_t n, T first = T())
{
    std::vector<T> out(n);
    std::iota(out.begin(), out.end(), first);
    return out;
}

#endif
