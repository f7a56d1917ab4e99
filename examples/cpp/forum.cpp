/* forum.cpp - do threads that drive a device each disturb each other? Multiplies matrices on each
 * device alone, then on all at once. */
#include <heddle.hpp>
#include <cstdio>
#include <future>

static const std::uint64_t N = 256;
static const int ROUNDS = 20;

struct figures {
    double ms; /* for one product */
    float sum; /* one of its elements */
};

static figures multiply(hd::runtime_ref runtime, int device)
{
    using clock = std::chrono::steady_clock;
    const hd::lane_ref lane = runtime.default_lane(device);
    const hd::tensor<float> a = hd::alloc_tensor<float>(lane, {N, N});
    const hd::tensor<float> b = hd::alloc_tensor<float>(lane, {N, N});
    const hd::tensor<float> c = hd::alloc_tensor<float>(lane, {N, N});
    hd::fill(a.buffer(), 1.0f);
    hd::fill(b.buffer(), 1.0f);
    hd::matmul(lane, c, a, b).wait(); /* the first product opens the library */
    const clock::time_point begin = clock::now();
    for (int i = 0; i < ROUNDS; i++) {
        hd::matmul(lane, c, a, b);
    }
    lane.wait();
    const std::chrono::duration<double, std::milli> ms = clock::now() - begin;
    return {ms.count() / ROUNDS, hd::read(c.buffer().span(0, 1))[0]};
}

int main()
try {
    const hd::runtime runtime = hd::open();
    std::vector<figures> alone;
    std::vector<std::future<figures>> together;
    bool right = true;
    for (int i = 0; i < runtime.device_count(); i++) {
        alone.push_back(multiply(runtime, i));
    }
    for (int i = 0; i < runtime.device_count(); i++) {
        together.push_back(std::async(std::launch::async, multiply, hd::runtime_ref(runtime), i));
    }
    for (std::size_t i = 0; i < alone.size(); i++) {
        const figures with_all = together[i].get();
        std::printf("device %zu: %.3f ms alone, %.3f ms with all\n", i, alone[i].ms, with_all.ms);
        right = right && alone[i].sum == N && with_all.sum == N;
    }
    return !right;
} catch (const std::exception &e) {
    std::fprintf(stderr, "forum: %s\n", e.what());
    return 1;
}
