/* test_launch.cpp - hd::launch passes the program's arguments to kernels: numbers of each type,
 * structures, buffers and parts of them. Grids use one to three dimensions, blocks use shared
 * memory.
 *
 * Promise: Every kind of C++ argument reaches the kernel as the value and elements it names.
 */
#include "check.hpp"
#include <heddle/kernel.h>

enum class color : unsigned short { red = 7 };

struct pack {
    float scale;
    std::int32_t shift[3];
    double last;
};

static_assert(hd::blocks(1, 256) == 1 && hd::blocks(256, 256) == 1 && hd::blocks(257, 256) == 2 &&
              hd::blocks(0, 256) == 1);
static_assert(hd::blocks(UINT64_MAX, 1) == UINT32_MAX && hd::blocks(UINT64_MAX, 256) == UINT32_MAX &&
              hd::blocks(5, 0) == 1);
static_assert(hd::dims{256}.y == 1 && hd::dims{256}.z == 1 && hd::dims(2, 3).y == 3 &&
              sizeof(hd::dims) == sizeof(hd_dims));

/* Kernels by element type: name, letter of the kind, size. This repeats the rule: numbers match in
 * kind and size, and integers of either sign are of one kind. A structure matches another type if
 * the size of one is a multiple of the size of the other. */
struct element_kind {
    const char *kernel;
    char kind; /* i: integer, f: floating-point, s: structure, -: any */
    std::size_t size;
};
static const element_kind element_kinds[] = {
    {"of_i8", 'i', 1},     {"of_u8", 'i', 1},   {"of_i16", 'i', 2}, {"of_u16", 'i', 2}, {"of_i32", 'i', 4},
    {"of_u32", 'i', 4},    {"of_i64", 'i', 8},  {"of_u64", 'i', 8}, {"of_f32", 'f', 4}, {"of_f64", 'f', 8},
    {"of_three", 's', 12}, {"of_half", 's', 2}, {"of_void", '-', 0}};

struct six {
    float of[6];
};

template <class T> static void elements_of(hd::lane_ref lane, hd::module_ref module, char kind)
{
    hd::buffer<T> b = hd::alloc<T>(lane, 24);
    hd::fill(hd::buffer_ref<std::uint32_t>(b.get()), 0u);
    for (const element_kind &k : element_kinds) {
        const bool structure = kind == 's' || k.kind == 's';
        const bool any = kind == '-' || k.kind == '-';
        const bool multiple = !any && (sizeof(T) % k.size == 0 || k.size % sizeof(T) == 0);
        const bool fits = any || (structure ? multiple : kind == k.kind && sizeof(T) == k.size);
        const hd_arg uses[] = {hd::inout(b), hd::inout(b, 0, 12), hd::inout(b.span(0, 24))};
        for (const hd_arg &use : uses) {
            hd_status status = HD_OK;
            try {
                hd::launch(lane, module.kernel(k.kernel), 1, 1, use);
            } catch (const hd::error &e) {
                status = e.status();
                CHECK(std::strstr(e.what(), "its elements are") != nullptr);
            }
            CHECK(status == (fits ? HD_OK : HD_ERROR_ARGUMENT));
            if (status != (fits ? HD_OK : HD_ERROR_ARGUMENT)) {
                std::printf("a buffer of %zu bytes an element (%c) and %s\n", sizeof(T), kind, k.kernel);
            }
        }
        /* C states no type, nor does a buffer that is used without being an argument */
        const hd_arg plain = hd_inout(b.get());
        CHECK(hd_launch(lane.get(), module.kernel(k.kernel).get(), {1, 1, 1}, {1, 1, 1}, 0, &plain, 1, nullptr) ==
              HD_OK);
        if (fits) {
            hd::launch(lane, module.kernel(k.kernel), 1, 1, hd::inout(b), hd::arg_implicit(hd::inout(b)));
        }
    }
}

static void elements(hd::lane_ref lane, hd::module_ref module)
{
    elements_of<std::int8_t>(lane, module, 'i');
    elements_of<std::uint8_t>(lane, module, 'i');
    elements_of<char>(lane, module, 'i');
    elements_of<bool>(lane, module, 'i');
    elements_of<std::int16_t>(lane, module, 'i');
    elements_of<color>(lane, module, 'i');
    elements_of<int>(lane, module, 'i');
    elements_of<std::uint32_t>(lane, module, 'i');
    elements_of<long>(lane, module, 'i');
    elements_of<std::uint64_t>(lane, module, 'i');
    elements_of<float>(lane, module, 'f');
    elements_of<double>(lane, module, 'f');
    elements_of<pack>(lane, module, 's');
    elements_of<six>(lane, module, 's');
    elements_of<hd_f16>(lane, module, 's');
    elements_of<std::byte>(lane, module, '-');
}

static void values(hd::lane_ref lane, hd::module_ref module)
{
    const hd::kernel every_kind = module.kernel("every_kind");
    hd::buffer<double> y = hd::alloc<double>(lane, 12);
    hd::buffer<float> x = hd::alloc<float>(lane, 1);
    hd::fill(x, 0.5f);
    const std::int8_t i8 = -8;
    const long i64 = -64000000000L;
    const unsigned long long u64 = 64000000000ULL;
    hd::launch(lane, every_kind, 1, 32, hd::out(y), hd::in(x), i8, true, short(-16), color::red, -32, 32u, i64, u64,
               3.5f, 6.25, pack{1, {2, 3, 4}, 5});
    const std::vector<double> wanted = {0.5, -8, 1, -16, 7, -32, 32, -64e9, 64e9, 3.5, 6.25, 10};
    CHECK(hd::read(y) == wanted);
    /* refuses a type that the kernel lacks, and one argument too few */
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::launch(lane, every_kind, 1, 32, hd::out(y), hd::in(x), i8, true, short(-16),
                                              color::red, -32, 32u, i64, u64, 3.5, 6.25, pack{1, {2, 3, 4}, 5}));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::launch(lane, every_kind, 1, 32, hd::out(y), hd::in(x)));
    hd::launch(lane, module.kernel("nothing"), 3, 32);
    hd::launch_ticket(lane, module.kernel("nothing"), 3, 32).wait();
}

static void ranges(hd::lane_ref lane, hd::module_ref builtin)
{
    const hd::kernel axpy = builtin.kernel("hd_axpy_f32"), fill = builtin.kernel("hd_fill_u32"),
                     copy = builtin.kernel("hd_copy_u32");
    hd::buffer<float> x = hd::alloc<float>(lane, 100), y = hd::alloc<float>(lane, 100);
    hd::write(x, numbers<float>(100));
    hd::fill(y, 0.0f);
    const auto n = [](std::uint64_t elements) { return elements; };
    hd::launch(lane, axpy, 1, 64, hd::inout(y, 50, 10), hd::in(x, 20, 10), 2.0f, n(10));
    /* a span to the end */
    hd::launch(lane, axpy, 1, 64, hd::inout(y.span(0, 10)), hd::in(x.span(90)), 1.0f, n(10));
    /* a range to the end */
    hd::launch(lane, axpy, 1, 64, hd::inout(y, 99), hd::in(x, 99), 1.0f, n(1));
    std::vector<float> wanted(100, 0.0f);
    for (std::size_t i = 0; i < 10; i++) {
        wanted[50 + i] = 2.0f * static_cast<float>(20 + i);
        wanted[i] = static_cast<float>(90 + i);
    }
    wanted[99] = 99;
    CHECK(hd::read(y) == wanted);

    hd::buffer<std::uint32_t> a = hd::alloc<std::uint32_t>(lane, 40), b = hd::alloc<std::uint32_t>(lane, 40);
    hd::fill(b, 0u);
    hd::launch(lane, fill, 1, 64, hd::out(a), n(40), 1u);
    hd::launch(lane, fill, 1, 64, hd::out(a, 10, 10), n(10), 2u);
    hd::launch(lane, fill, 1, 64, hd::out(a.span(30, 10)), n(10), 3u);
    hd::launch(lane, copy, 1, 64, hd::out(b.span(20)), hd::in(a, 10, 20), n(20));
    const std::vector<std::uint32_t> moved = hd::read(b.span(15, 20));
    CHECK(moved[0] == 0 && moved[5] == 2 && moved[14] == 2 && moved[15] == 1);
    CHECK(hd::read(a)[35] == 3);
    CHECK_FAILS(HD_ERROR_RANGE, hd::launch(lane, fill, 1, 64, hd::out(a, 31, 10), n(10), 2u));
    CHECK_FAILS(HD_ERROR_RANGE, hd::launch(lane, fill, 1, 64, hd::out(a.span(31, 10)), n(10), 2u));
    CHECK_FAILS(HD_ERROR_ACCESS, hd::launch(lane, copy, 1, 64, hd::in(b), hd::in(a), n(20)));
}

static void shapes(hd::lane_ref lane, hd::module_ref module)
{
    hd::buffer<std::int32_t> y = hd::alloc<std::int32_t>(lane, 64);
    hd::write(y, numbers<std::int32_t>(64));
    const hd::kernel turn = module.kernel("turn");
    hd::launch(lane, turn, 1, 64, hd::shared_bytes(64 * 4), hd::inout(y));
    CHECK(hd::read(y)[0] == 63 && hd::read(y)[63] == 0);
    hd::launch_ticket(lane, turn, hd::dims{1}, hd::dims{64}, hd::shared_bytes(64 * 4), hd::inout(y)).wait();
    CHECK(hd::read(y)[0] == 0);
    CHECK_FAILS(HD_ERROR_LIMIT, hd::launch(lane, turn, 1, 64, hd::shared_bytes(std::size_t(1) << 30), hd::inout(y)));

    hd::buffer<std::uint32_t> at = hd::alloc<std::uint32_t>(lane, 4 * 3 * 2);
    hd::launch(lane, module.kernel("places"), {2, 1, 2}, {2, 3}, hd::out(at));
    const std::vector<std::uint32_t> seen = hd::read(at);
    CHECK(seen[0] == 0 && seen[3] == 3 && seen[4] == 10 && seen[23] == 123);
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::launch(lane, module.kernel("places"), 0, 64, hd::out(at)));
}

/* Variables of the module: set, used by a kernel that does not name them, and read. */
static void variables(hd::lane_ref lane, hd::module_ref module)
{
    const hd::buffer_ref<float> coefficients = module.global<float>(0, "coefficients");
    CHECK(coefficients.size() == 4 && coefficients.device() == 0 && hd::read(coefficients)[2] == 3);
    hd::buffer<float> y = hd::alloc<float>(lane, 4);
    hd::fill(y, 1.0f);
    hd::write(coefficients.span(1, 2), std::vector<float>{20, 30});
    hd::launch(lane, module.kernel("weigh"), 1, 4, hd::inout(y));
    CHECK((hd::read(y) == std::vector<float>{1, 20, 30, 4}));
    const hd::buffer_ref<std::uint32_t> runs = module.global<std::uint32_t>(0, "runs"),
                                        same = module.global<std::uint32_t>(0, "runs");
    CHECK(hd::read(runs)[0] == 1);
    hd::launch(lane, module.kernel("weigh"), 1, 4, hd::inout(y));
    CHECK(hd::read(runs)[0] == 2 && runs.get() == same.get());
    CHECK_FAILS(HD_ERROR_NOT_FOUND, module.global<float>(0, "absent"));
    CHECK_FAILS(HD_ERROR_NO_DEVICE, module.global<float>(-1, "runs"));
}

/* The image of hd_axpy_f32(y, x, a, n) describes its parameters. */
static void parameters(hd::module_ref builtin)
{
    const hd::kernel axpy = builtin.kernel("hd_axpy_f32");
    const struct {
        const char *name;
        std::uint32_t kind, access, bytes;
    } wanted[] = {{"y", HD_ARG_BUFFER, HD_READ_WRITE, 8},
                  {"x", HD_ARG_BUFFER, HD_READ, 8},
                  {"a", HD_ARG_F32, 0, 4},
                  {"n", HD_ARG_U64, 0, 8}};
    for (int i = 0; i < 4; i++) {
        const hd_parameter_info got = axpy.parameter(i);
        CHECK(std::strcmp(got.name, wanted[i].name) == 0 && got.kind == wanted[i].kind);
        CHECK((got.access & HD_READ_WRITE) == wanted[i].access && got.bytes == wanted[i].bytes);
    }
    CHECK_FAILS(HD_ERROR_NOT_FOUND, axpy.parameter(4));
    CHECK_FAILS(HD_ERROR_HANDLE, hd::kernel().parameter(0));
}

/* Memory that a kernel gets only by address, named after the arguments. */
static void addresses(hd::lane_ref lane, hd::lane_ref other, hd::module_ref builtin)
{
    const hd::kernel fill = builtin.kernel("hd_fill_u32"), copy = builtin.kernel("hd_copy_u32");
    hd::buffer<std::uint32_t> a = hd::alloc<std::uint32_t>(lane, 40), b = hd::alloc<std::uint32_t>(lane, 40);
    for (std::uint32_t i = 0; i < 20; i++) {
        hd::launch(lane, fill, 1, 64, hd::address(a.address()), std::uint64_t(40), i, hd::arg_implicit(hd::out(a)));
        hd::launch(other, copy, 1, 64, hd::out(b), hd::address(a.address() + 16), std::uint64_t(36),
                   hd::arg_implicit(hd::in(a, 4)));
        CHECK(hd::read(b)[35] == i);
    }
    CHECK_FAILS(HD_ERROR_ARGUMENT,
                hd::launch(lane, fill, 1, 64, hd::arg_implicit(hd::in(b)), hd::out(a), std::uint64_t(40), 1u));
    CHECK_FAILS(HD_ERROR_RANGE,
                hd::launch(lane, fill, 1, 64, hd::out(a), std::uint64_t(40), 1u, hd::arg_implicit(hd::in(b, 41))));
}

/* The device's time between tickets. */
static void times(hd::lane_ref lane, hd::lane_ref without, hd::module_ref builtin)
{
    const hd::kernel fill = builtin.kernel("hd_fill_u32");
    hd::buffer<std::uint32_t> a = hd::alloc<std::uint32_t>(lane, 40);
    lane.keep_times();
    const hd::ticket start = lane.add_dependency(hd::ticket());
    const hd::ticket filled = hd::launch_ticket(lane, fill, 1, 64, hd::out(a), std::uint64_t(40), 1u);
    filled.wait();
    const std::chrono::nanoseconds took = hd::elapsed(start, filled);
    CHECK(took.count() >= 0 && std::chrono::nanoseconds(hd::elapsed(filled, start)) == -took);
    const hd::ticket untimed = without.add_dependency(filled);
    untimed.wait();
    CHECK_FAILS(HD_ERROR_NOT_FOUND, hd::elapsed(start, untimed));
    lane.keep_times(false);
}

static void test()
{
    hd::runtime runtime = hd::open(small_machine);
    hd::module module = runtime.load_module_file(HD_TEST_KERNEL_FILE);
    hd::lane lane = runtime.create_lane(0);
    values(lane, module);
    elements(lane, module);
    ranges(lane, runtime.builtin_module());
    shapes(lane, module);
    variables(lane, module);
    hd::lane other = runtime.create_lane(0);
    addresses(lane, other, runtime.builtin_module());
    times(lane, other, runtime.builtin_module());
    parameters(runtime.builtin_module());
    CHECK(live_buffers(runtime) == 0);

    const hd::kernel gone = module.kernel("nothing");
    module.reset();
    CHECK_FAILS(HD_ERROR_HANDLE, hd::launch(lane, gone, 1, 1));
}

int main()
{
    return run_tests(test);
}
