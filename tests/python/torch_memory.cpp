/* torch_memory.cpp - catches the exception of hd_torch_alloc as PyTorch does, and prints its text.
 *
 * usage: torch_memory LIBRARY, which is the path of libheddle_python.so.
 * Threads: one. Locks: none.
 */
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <stdexcept>
#include <heddle.h>

template <class Function> static Function find(void *library, const char *name)
{
    return reinterpret_cast<Function>(dlsym(library, name));
}

/* Counts destructors, which run while the exception passes. */
static int destroyed;
struct Counted {
    ~Counted()
    {
        destroyed++;
    }
};

int main(int argc, char **argv)
{
    void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
    if (!library) {
        std::printf("%s\n", dlerror());
        return 2;
    }
    auto begin = find<hd_status (*)(hd_runtime *, const int *, int)>(library, "hd_torch_begin");
    auto end = find<void (*)()>(library, "hd_torch_end");
    auto allocate = find<void *(*)(size_t, int, void *)>(library, "hd_torch_alloc");
    auto release = find<void (*)(void *, size_t, int, void *)>(library, "hd_torch_free");
    hd_options options = {sizeof options, "driver=host host_devices=1 host_memory=64M"};
    hd_runtime *runtime;
    const int ordinal = 0;
    if (hd_open(&options, &runtime) || begin(runtime, &ordinal, 1)) {
        std::printf("%s\n", hd_message());
        return 2;
    }
    void *kept = allocate(40 << 20, 0, nullptr);
    for (int i = 0; i < 3; i++) {
        try {
            Counted counted;
            allocate(size_t{32} << 20, 0, nullptr);
            std::printf("no exception\n");
        } catch (const std::runtime_error &error) {
            std::printf("%s\n", error.what());
        }
    }
    release(kept, 40 << 20, 0, nullptr);
    release(allocate(32 << 20, 0, nullptr), 32 << 20, 0, nullptr); /* works after a failure */
    try {
        allocate(256, 7, nullptr);
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
    }
    end();
    try {
        allocate(256, 0, nullptr);
    } catch (const std::exception &error) {
        std::printf("%s\n", error.what());
    }
    release(kept, 40 << 20, 0, nullptr);
    std::printf("%d destructors, %s\n", destroyed, hd_close(runtime) ? hd_message() : "closed");
    return 0;
}
