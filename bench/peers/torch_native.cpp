/* torch_native.cpp - loops over PyTorch's caching allocator in C++, to measure it without Python.
 *
 * torch_alloc.py compiles this against the installed PyTorch, loads it into its own process, and
 * calls it on one thread. The loops start their own threads if asked to. Nothing is locked here:
 * each thread owns its blocks and its times.
 */

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

namespace allocator = c10::cuda::CUDACachingAllocator;

namespace
{

struct operation {
    int64_t block; // index in the table of blocks
    int64_t bytes; // 0: frees
    int64_t stream;
};

using timer = std::chrono::steady_clock;

int64_t since(timer::time_point begin)
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(timer::now() - begin).count();
}

int report(char *message, size_t room, const std::exception &error)
{
    std::snprintf(message, room, "%s", error.what());
    return 1;
}

void one_pair(size_t bytes)
{
    allocator::raw_delete(allocator::raw_alloc_with_stream(bytes, nullptr));
}

struct span {
    timer::time_point begin, end;
};

span pairs_of_thread(size_t bytes, int64_t repeats, int64_t *times)
{
    span span;
    span.begin = timer::now();
    for (int64_t i = 0; i < repeats; i++) {
        timer::time_point start;
        if (times) {
            start = timer::now();
        }
        one_pair(bytes);
        if (times) {
            times[i] = since(start);
        }
    }
    span.end = timer::now();
    return span;
}

} // namespace

extern "C" {

// Pairs of allocation and free by several threads at once. `times` holds the nanoseconds of each
// pair, or is null. `taken` gets the time from the first thread's begin to the last one's end.
int native_pairs(size_t bytes, int64_t repeats, int threads, int64_t *times, double *taken, char *message, size_t room)
{
    std::atomic<int> waiting{threads};
    std::vector<span> spans(static_cast<size_t>(threads));
    std::vector<std::exception_ptr> failures(static_cast<size_t>(threads));
    std::vector<std::thread> others;
    auto run = [&](int thread) {
        waiting--;
        while (waiting > 0) {
            std::this_thread::yield();
        }
        try {
            spans[thread] = pairs_of_thread(bytes, repeats, times ? times + thread * repeats : nullptr);
        } catch (...) {
            failures[thread] = std::current_exception();
        }
    };
    for (int i = 1; i < threads; i++) {
        others.emplace_back(run, i);
    }
    run(0);
    for (std::thread &thread : others) {
        thread.join();
    }
    try {
        span whole = spans[0];
        for (int i = 0; i < threads; i++) {
            if (failures[i]) {
                std::rethrow_exception(failures[i]);
            }
            whole.begin = std::min(whole.begin, spans[i].begin);
            whole.end = std::max(whole.end, spans[i].end);
        }
        *taken =
            static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(whole.end - whole.begin).count());
    } catch (const std::exception &error) {
        return report(message, room, error);
    }
    return 0;
}

// A sequence of operations. `blocks` holds a slot, null at first, for each block, and `streams` the
// handles of the streams.
int native_run(const operation *operations, int64_t count, const int64_t *streams, void **blocks, int64_t *times,
               double *taken, char *message, size_t room)
{
    try {
        timer::time_point begin = timer::now();
        for (int64_t i = 0; i < count; i++) {
            timer::time_point start;
            if (times) {
                start = timer::now();
            }
            const operation &call = operations[i];
            if (call.bytes > 0) {
                blocks[call.block] = allocator::raw_alloc_with_stream(
                    static_cast<size_t>(call.bytes), reinterpret_cast<cudaStream_t>(streams[call.stream]));
            } else {
                allocator::raw_delete(blocks[call.block]);
                blocks[call.block] = nullptr;
            }
            if (times) {
                times[i] = since(start);
            }
        }
        *taken = static_cast<double>(since(begin));
    } catch (const std::exception &error) {
        return report(message, room, error);
    }
    return 0;
}

void native_free(void **blocks, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (blocks[i]) {
            allocator::raw_delete(blocks[i]);
            blocks[i] = nullptr;
        }
    }
}

} // extern "C"
