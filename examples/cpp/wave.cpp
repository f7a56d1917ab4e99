/* wave.cpp - an acoustic wave in 8th order, on all devices of the machine. Each device holds a slab
 * of planes, and R planes of each neighbour.
 *
 * usage: wave KERNEL_FILE (examples/kernels/wave.c, compiled by `heddle cc`)
 *
 * Each device first computes the planes at the ends of its slab. They go to the neighbours while it
 * computes the planes between. Nothing waits: the library orders the work by the bytes that it
 * uses. The result must equal that of one device, bit by bit. */
#include <heddle.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

static const std::size_t NX = 64, NY = 64, NZ = 128, R = 4, PLANE = NX * NY;
static const int STEPS = 40;

struct slab {
    hd::lane_ref lane;
    std::size_t planes;
    /* R planes of the neighbour below, `planes` of its own, R of the one above */
    hd::buffer<float> field[2];
};

/* Computes the slab's own planes from `first` on for this step. */
static void advance(const slab &s, hd::kernel wave, int now, std::size_t first, std::size_t planes)
{
    hd::launch(s.lane, wave, {NX / 32, NY / 4, static_cast<std::uint32_t>(planes)}, {32, 4},
               hd::inout(s.field[!now], (first + R) * PLANE, planes * PLANE),
               hd::in(s.field[now], first * PLANE, (planes + 2 * R) * PLANE), 0.1f);
}

static void step(const std::vector<slab> &slabs, hd::kernel wave, int now)
{
    for (const slab &s : slabs) {
        advance(s, wave, now, 0, R);
        advance(s, wave, now, s.planes - R, R);
    }
    for (std::size_t i = 0; i + 1 < slabs.size(); i++) {
        const hd::buffer<float> &below = slabs[i].field[!now], &above = slabs[i + 1].field[!now];
        const std::size_t planes = slabs[i].planes;
        hd::copy(above.span(0, R * PLANE), below.span(planes * PLANE, R * PLANE));
        hd::copy(below.span((planes + R) * PLANE, R * PLANE), above.span(R * PLANE, R * PLANE));
    }
    for (const slab &s : slabs) {
        if (s.planes > 2 * R) {
            advance(s, wave, now, R, s.planes - 2 * R);
        }
    }
}

static std::vector<float> run(const hd::runtime &runtime, std::size_t n, hd::kernel wave)
{
    std::vector<slab> slabs(n);
    for (std::size_t i = 0; i < n; i++) {
        slabs[i].planes = NZ * (i + 1) / n - NZ * i / n;
        slabs[i].lane = runtime.default_lane(static_cast<int>(i));
        for (hd::buffer<float> &field : slabs[i].field) {
            field = hd::alloc<float>(slabs[i].lane, (slabs[i].planes + 2 * R) * PLANE);
            hd::fill(field, 0.0f);
        }
    }
    hd::fill(slabs[0].field[0].span((2 * R + 1) * PLANE + PLANE / 2 + NX / 2, 1), 1.0f);
    for (int i = 0; i < STEPS; i++) {
        step(slabs, wave, i % 2);
    }
    std::vector<float> out;
    for (const slab &s : slabs) {
        const std::vector<float> part = hd::read(s.field[STEPS % 2].span(R * PLANE, s.planes * PLANE));
        out.insert(out.end(), part.begin(), part.end());
    }
    return out;
}

int main(int argc, char **argv)
try {
    const hd::runtime runtime = hd::open();
    const hd::module module = runtime.load_module_file(argc > 1 ? argv[1] : "wave.hdk");
    const hd::kernel wave = module.kernel("wave");
    const std::size_t n = std::min(static_cast<std::size_t>(runtime.device_count()), NZ / (2 * R));
    const bool same = run(runtime, 1, wave) == run(runtime, n, wave);
    std::printf("%zu devices: %s\n", n, same ? "as one device, bit by bit" : "DIFFERENT from one device");
    return !same;
} catch (const std::exception &e) {
    std::fprintf(stderr, "wave: %s\n", e.what());
    return 1;
}
