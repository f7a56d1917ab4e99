/* pipeline.cpp - 1 GiB goes through a device in chunks of 8 MiB. One thread makes them, and another
 * adds up each of them.
 *
 * The thread that makes chunks runs ahead as far as the memory limit allows. Then hd::alloc waits
 * until the other one frees something. */
#include <heddle.hpp>
#include <cstdio>
#include <future>

static const int CHUNKS = 128;
static const std::size_t N = 2 << 20;
using chunk = hd::buffer<float>;

static void produce(hd::runtime_ref runtime, std::vector<std::promise<chunk>> &made, int i = 0)
try {
    const hd::lane_ref lane = runtime.default_lane(0);
    for (; i < CHUNKS; i++) {
        chunk next = hd::alloc<float>(lane, N);
        hd::write(next, std::vector<float>(N, static_cast<float>(i % 8)));
        made[static_cast<std::size_t>(i)].set_value(std::move(next));
    }
} catch (...) {
    made[static_cast<std::size_t>(i)].set_exception(std::current_exception());
}

int main()
try {
    const hd::runtime runtime = hd::open("memory_limit=64M");
    const hd::lane_ref lane = runtime.default_lane(0);
    const hd::kernel sum = runtime.builtin_module().kernel("hd_sum_f32");
    const chunk total = hd::alloc<float>(lane, 1);
    std::vector<std::promise<chunk>> made(CHUNKS);
    const std::future<void> producer = std::async(std::launch::async, [&] { produce(runtime, made); });
    int wrong = 0;
    for (int i = 0; i < CHUNKS; i++) {
        const chunk next = made[static_cast<std::size_t>(i)].get_future().get();
        hd::fill(total, 0.0f);
        hd::launch(lane, sum, 256, 256, hd::inout(total), hd::in(next), std::uint64_t(N));
        wrong += hd::read(total)[0] != static_cast<float>(i % 8) * static_cast<float>(N);
    }
    std::printf("%d chunks, %d wrong sums\n", CHUNKS, wrong);
    return wrong > 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "pipeline: %s\n", e.what());
    return 1;
}
