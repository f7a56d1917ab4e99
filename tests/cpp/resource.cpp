/* resource.cpp - the program of test_resource.sh: heddle/resource.hpp satisfies the concepts of
 * cuda::mr, and random histories on host devices give each block one owner.
 *
 * usage: resource [SEED]
 *
 * Threads: several, which share the resource.
 * Locks: none.
 * Always: on a host device, the program can write the memory itself.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <heddle/resource.hpp>

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource_with<hd::memory_resource, cuda::mr::device_accessible>, "a resource on streams");
static_assert(cuda::mr::synchronous_resource_with<hd::memory_resource, cuda::mr::device_accessible>, "a resource");
static_assert(!cuda::mr::resource_with<hd::memory_resource, cuda::mr::host_accessible>, "not memory of the host");
using stream_resource_ref = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
static_assert(cuda::mr::async_resource_with<hd::memory_resource, cuda::mr::device_accessible>, "a resource on streams");
static_assert(cuda::mr::resource_with<hd::memory_resource, cuda::mr::device_accessible>, "a resource");
static_assert(!cuda::mr::resource_with<hd::memory_resource, cuda::mr::host_accessible>, "not memory of the host");
using stream_resource_ref = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#endif

namespace
{

void must(bool right, const char *what)
{
    if (!right) {
        std::fprintf(stderr, "FAILED: %s: %s\n", what, hd_message());
        std::exit(1);
    }
}

void *lend(stream_resource_ref memory, std::size_t bytes)
{
    const cuda::stream_ref stream{cudaStream_t{}};
#if CCCL_VERSION >= 3001000
    return memory.allocate(stream, bytes, 256);
#else
    return memory.allocate_async(bytes, 256, stream);
#endif
}

void give_back(stream_resource_ref memory, void *block, std::size_t bytes)
{
    const cuda::stream_ref stream{cudaStream_t{}};
#if CCCL_VERSION >= 3001000
    memory.deallocate(stream, block, bytes, 256);
#else
    memory.deallocate_async(block, bytes, 256, stream);
#endif
}

struct block {
    unsigned char *memory;
    std::size_t bytes;
    unsigned char value;
};

void check_block(const block &b)
{
    for (std::size_t i = 0; i < b.bytes; i++) {
        must(b.memory[i] == b.value, "a block lost its content");
    }
}

/* Blocks come and go. No work of Heddle uses them, so the program may write them at once. */
void history(hd::memory_resource memory, unsigned seed)
{
    std::mt19937 random(seed);
    std::vector<block> blocks;
    const std::size_t sizes[] = {1, 300, 5000, 70000, std::size_t{1} << 20};
    for (unsigned step = 0; step < 400; step++) {
        if (blocks.size() < 6 && random() % 2 != 0) {
            const std::size_t bytes = sizes[random() % 5];
            const bool sync = random() % 2 != 0;
            void *made = sync ? memory.allocate_sync(bytes) : lend(memory, bytes);
            blocks.push_back({static_cast<unsigned char *>(made), bytes, static_cast<unsigned char>(step)});
            std::memset(made, blocks.back().value, bytes);
        } else if (!blocks.empty()) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            check_block(blocks.back());
            if (random() % 2 != 0) {
                memory.deallocate_sync(blocks.back().memory, blocks.back().bytes);
            } else {
                give_back(memory, blocks.back().memory, blocks.back().bytes);
            }
            blocks.pop_back();
        }
    }
    for (const block &b : blocks) {
        check_block(b);
        memory.deallocate_sync(b.memory, b.bytes);
    }
}

/* At the limit, the exception is a std::bad_alloc with the message of Heddle. */
void limits(hd::memory_resource memory)
{
    void *most = memory.allocate_sync(40 << 20);
    bool failed = false;
    try {
        memory.allocate_sync(40 << 20);
    } catch (const std::bad_alloc &error) {
        failed = std::strstr(error.what(), "cuda::mr") != nullptr; /* the label of the holder */
    }
    must(failed, "no exception names the holder");
    memory.deallocate_sync(most, 40 << 20);
    failed = false;
    try {
        memory.allocate_sync(8, 4096);
    } catch (const hd::resource_error &) {
        failed = true;
    }
    must(failed, "an alignment above 256 is not refused");
}

} // namespace

int main(int argc, char **argv)
{
    const unsigned seed = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : std::random_device{}();
    std::printf("seed %u, CCCL %d\n", seed, CCCL_VERSION);
    hd_options options = {};
    options.size = sizeof options;
    options.settings = "driver=host memory_limit=64M memory_timeout=100";
    hd_runtime *runtime = nullptr;
    must(hd_open(&options, &runtime) == HD_OK, "hd_open");
    {
        hd::memory_resource memory(runtime, 0), other(runtime, 0), copy = memory;
        must(copy == memory && other != memory, "copies are equal, and others are not");
        limits(memory);
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 3; i++) {
            threads.emplace_back(history, copy, seed + i);
        }
        for (std::thread &t : threads) {
            t.join();
        }
        must(memory.count() == 0, "blocks are left");
    }
    must(hd_close(runtime) == HD_OK, "hd_close");
    return 0;
}
