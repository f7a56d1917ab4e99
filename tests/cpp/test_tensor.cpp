/* test_tensor.cpp - C++ tensors know the elements, extents and strides of their views, and move and
 * multiply them; strides count elements.
 *
 * Promise: C++ tensors view, copy and multiply exactly the elements they name, of every type.
 */
#include "check.hpp"

template <class T> static void of_type(hd::lane_ref lane, hd_type type)
{
    hd::tensor<T> t = hd::alloc_tensor<T>(lane, {2, 3});
    CHECK(t.get().type == type && t.size() == 6 && t.stride(0) == 3 && t.stride(1) == 1);
    CHECK(t.buffer().size() == 6 && hd_type_size(type) == sizeof(T));
}

static void types(hd::lane_ref lane)
{
    of_type<std::int8_t>(lane, HD_TYPE_I8);
    of_type<std::uint8_t>(lane, HD_TYPE_U8);
    of_type<std::int16_t>(lane, HD_TYPE_I16);
    of_type<std::uint16_t>(lane, HD_TYPE_U16);
    of_type<std::int32_t>(lane, HD_TYPE_I32);
    of_type<std::uint32_t>(lane, HD_TYPE_U32);
    of_type<long>(lane, HD_TYPE_I64);
    of_type<unsigned long long>(lane, HD_TYPE_U64);
    of_type<hd::f16>(lane, HD_TYPE_F16);
    of_type<hd::bf16>(lane, HD_TYPE_BF16);
    of_type<float>(lane, HD_TYPE_F32);
    of_type<double>(lane, HD_TYPE_F64);
    of_type<std::complex<float>>(lane, HD_TYPE_C64);
    of_type<std::complex<double>>(lane, HD_TYPE_C128);
}

static void views(hd::lane_ref lane)
{
    hd::tensor<float> t = hd::alloc_tensor<float>(lane, {4, 6});
    hd::write(t, numbers<float>(24));
    const hd::tensor_view<float> turned = t.transpose(), part = t.slice(1, 5, 2, -3), swapped = t.permute({1, 0});
    CHECK(turned.extent(0) == 6 && turned.stride(0) == 1 && turned.stride(1) == 6 && !turned.is_contiguous());
    CHECK(part.dims() == 2 && part.extent(1) == 2 && part.stride(1) == -3);
    CHECK(hd::read(part) == (std::vector<float>{5, 2, 11, 8, 17, 14, 23, 20}));
    CHECK(hd::read(swapped)[1] == 6 && hd::read(turned)[4] == 1);
    hd::tensor<float> copy = hd::alloc_tensor<float>(lane, {6, 4});
    hd::copy(copy, turned).wait();
    CHECK(hd::read(copy)[1] == 6);
    std::vector<float> small(3), all(24);
    hd::read(copy, all);
    CHECK(all[23] == 23);
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::read(copy, small));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::write(copy, small));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::copy(t, copy));
}

static void over_buffers(hd::lane_ref lane)
{
    hd::buffer<double> b = hd::alloc<double>(lane, 20);
    hd::write(b, numbers<double>(20));
    const hd::tensor_view<double> rows = hd::make_tensor(b, {3, 4}, 8),
                                  odd = hd::make_tensor_strided(b, {2, 5}, {10, 2}, 1);
    CHECK(hd::read(rows)[0] == 8 && hd::read(rows)[11] == 19);
    CHECK(hd::read(odd) == (std::vector<double>{1, 3, 5, 7, 9, 11, 13, 15, 17, 19}));
    const hd::tensor_view<double> flat = rows.reshape({12}), repeated = flat.slice(0, 0, 1).broadcast({3, 2});
    CHECK(flat.dims() == 1 && hd::read(repeated) == std::vector<double>(6, 8.0));
    CHECK_FAILS(HD_ERROR_RANGE, hd::make_tensor(b, {3, 4}, 9));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::make_tensor_strided(b, {2, 5}, {10}));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::make_tensor_strided(b, {2}, {INT64_MAX / 2}));
    CHECK_FAILS(HD_ERROR_ARGUMENT, rows.permute({0, 1, 2}));
    CHECK_FAILS(HD_ERROR_ARGUMENT, rows.reshape({5}));
}

static void products(hd::lane_ref lane)
{
    hd::tensor<float> a = hd::alloc_tensor<float>(lane, {2, 3}), c = hd::alloc_tensor<float>(lane, {2, 2});
    hd::write(a, numbers<float>(6, 1.0f));
    hd::matmul(lane, c, a, a.transpose());
    CHECK(hd::read(c) == (std::vector<float>{14, 32, 32, 77}));
    hd::matmul(lane, c, a, a.transpose(), 2, 1).wait();
    CHECK(hd::read(c)[3] == 231);
    CHECK(hd::matmul_info(lane).library[0] != 0);
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::matmul(lane, c, a, a));
}

static void test()
{
    hd::runtime runtime = hd::open(small_machine);
    hd::lane_ref lane = runtime.default_lane(0);
    types(lane);
    views(lane);
    over_buffers(lane);
    products(lane);
    CHECK(live_buffers(runtime) == 0);
}

int main()
{
    return run_tests(test);
}
