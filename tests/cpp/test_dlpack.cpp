/* test_dlpack.cpp - C++ tensors that go to other libraries, and come from them.
 *
 * Promise: C++ tensors keep their type to a consumer and back; a refused tensor keeps its owner.
 */
#include "../support/dlpack.h"
#include "check.hpp"

static int deleted;

static void count_deleter(DLManagedTensorVersioned *)
{
    deleted++;
}

static void count_old_deleter(DLManagedTensor *)
{
    deleted++;
}

static void a_tensor_is_given(hd::runtime_ref runtime)
{
    hd::buffer<float> pinned = hd::alloc_host<float>(runtime, 12);
    hd::buffer<bool> flags = hd::alloc_host<bool>(runtime, 12);
    hd::write(pinned, std::vector<float>(12, 2.5f));
    hd_tensor made{};
    const std::uint64_t shape[] = {3, 4};
    CHECK(hd_tensor_make(pinned.get(), 0, HD_TYPE_F32, 2, shape, &made) == HD_OK);
    const hd::tensor_view<float> all(made), turned = all.transpose();
    DLManagedTensorVersioned *const m = hd::to_dlpack(turned, HD_DLPACK_CPU, HD_DLPACK_READ_ONLY, "turned");
    CHECK(m->dl_tensor.ndim == 2 && m->dl_tensor.shape[0] == 4 && m->dl_tensor.strides[0] == 1 && m->flags == 1);
    CHECK(m->dl_tensor.dtype.code == kDLFloat && static_cast<float *>(m->dl_tensor.data)[11] == 2.5f);
    m->deleter(m);
    DLManagedTensor *const old = hd::to_dlpack_unversioned(all, HD_DLPACK_UNORDERED);
    CHECK(old->dl_tensor.strides[0] == 4);
    old->deleter(old);
    CHECK(hd_tensor_make(flags.get(), 0, HD_TYPE_U8, 2, shape, &made) == HD_OK);
    DLManagedTensorVersioned *const b = hd::to_dlpack(hd::tensor_view<bool>(made), HD_DLPACK_CPU);
    CHECK(b->dl_tensor.dtype.code == kDLBool);
    b->deleter(b);
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::to_dlpack(all, -5));
}

static void a_tensor_is_taken(hd::runtime_ref runtime, bool process)
{
    alignas(4096) static float memory[1024];
    static std::int64_t shape[] = {2, 512}, strides[] = {512, 1};
    memory[600] = 5;
    /* static, as the import may live until the runtime closes */
    static DLManagedTensorVersioned m = {};
    static DLManagedTensor old = {};
    m.version.major = 1;
    m.deleter = count_deleter;
    m.dl_tensor = {memory, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    old.dl_tensor = m.dl_tensor;
    old.deleter = count_old_deleter;
    if (process) {
        CHECK_FAILS(HD_ERROR_UNSUPPORTED, hd::from_dlpack<float>(runtime, &m, HD_DLPACK_CPU));
        CHECK(deleted == 0);
        return;
    }
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::from_dlpack<double>(runtime, &m, HD_DLPACK_CPU));
    CHECK_FAILS(HD_ERROR_ARGUMENT, hd::from_dlpack<int>(runtime, &old, HD_DLPACK_CPU));
    CHECK(deleted == 0);
    {
        const hd::tensor<float> t = hd::from_dlpack<float>(runtime, &m, HD_DLPACK_CPU, 0, "memory");
        CHECK(t.dims() == 2 && t.extent(1) == 512 && t.stride(0) == 512 && hd::read(t)[600] == 5);
        CHECK(deleted == 0);
    }
}

static void test()
{
    hd::runtime runtime = hd::open(small_machine);
    hd_runtime_info info = {};
    info.size = sizeof info;
    CHECK(hd_runtime_get_info(runtime.get(), &info) == HD_OK);
    const bool process = std::strcmp(info.placement, "process") == 0;
    a_tensor_is_given(runtime);
    a_tensor_is_taken(runtime, process);
    runtime.close();
    CHECK(deleted == (process ? 0 : 1));
}

int main()
{
    return run_tests(test);
}
