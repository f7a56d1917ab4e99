/* plans.c - see plans.h. */
#include "support/check.h"

#include "tensor/plans.h"
#include "simulator/cpu_run.h"

typedef struct arguments {
    uint64_t dst, src;
    union {
        hd_tensor_units units;
        hd_tensor_tile tile;
    };
} arguments;

void plans_launch(const hdi_plan *plan, bool is_gpu, uint32_t first, uint32_t blocks)
{
    const hd_cpu_kernel *kernel = is_gpu ? plans_gpu_kernel(plan->kernel) : plans_cpu_kernel(plan->kernel);
    assert_non_null(kernel);
    _Alignas(16) arguments a;
    memset(&a, 0, sizeof a);
    a.dst = plan->dst;
    a.src = plan->src;
    if (plan->kind == HDI_PLAN_UNITS) {
        a.units = plan->units;
        assert_int_equal(kernel->argument_bytes, 16 + sizeof a.units);
    } else {
        a.tile = plan->tile;
        assert_int_equal(kernel->argument_bytes, 16 + sizeof a.tile);
    }
    hdi_cpu_launch launch;
    memset(&launch, 0, sizeof launch);
    launch.kernel = kernel;
    launch.arguments = &a;
    launch.grid[0] = blocks, launch.grid[1] = launch.grid[2] = 1;
    launch.block[0] = plan->block, launch.block[1] = launch.block[2] = 1;
    plans_seen.first_block = first;
    assert_int_equal(hdi_cpu_run(&launch, NULL), HDCU_SUCCESS);
}

int plans_run(const hdi_layout *layout, bool is_gpu, const hdi_plan_wish *wish, unsigned *kinds)
{
    const hdi_plan_device device = {is_gpu, 132};
    hdi_layout waiting[64], now = *layout;
    int n = 0, launches = 0;
    hdi_layout_canonicalize(&now);
    for (;;) {
        hdi_plan plan;
        hdi_plan_make(&now, &device, wish, &plan);
        if (kinds) {
            *kinds |= 1u << plan.kind;
        }
        if (plan.kind == HDI_PLAN_NONE) {
            return 0;
        }
        if (plan.kind == HDI_PLAN_CUT) {
            assert_true(n < 64);
            hdi_layout_cut(&now, plan.cut_dim, plan.cut_at, &waiting[n++]);
            continue;
        }
        plans_launch(&plan, is_gpu, 0, plan.grid);
        launches++;
        if (n == 0) {
            return launches;
        }
        now = waiting[--n];
    }
}

void plans_run_simply(const hdi_layout *l)
{
    uint64_t index[HDI_LAYOUT_DIMS] = {0};
    for (;;) {
        uint64_t dst = l->dst, src = l->src;
        for (int i = 0; i < l->dims; i++) {
            dst += index[i] * (uint64_t)l->dst_stride[i];
            src += index[i] * (uint64_t)l->src_stride[i];
        }
        memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, l->element);
        int i = l->dims - 1;
        while (i >= 0 && ++index[i] == l->shape[i]) {
            index[i--] = 0;
        }
        if (i < 0) {
            return;
        }
    }
}
