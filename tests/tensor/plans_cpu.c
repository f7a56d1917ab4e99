/* plans_cpu.c - the kernels in their CPU form. */
#include "tensor/plans.h"

#include "kernel/builtin/tensor_cpu.h"

#include <string.h>

const hd_cpu_kernel *plans_cpu_kernel(const char *name)
{
    static const hd_cpu_kernel *const kernels[] = {
#define ROW(bytes) &hd_tensor_units_##bytes##_hd_record.kernel,
        HD_TENSOR_UNITS(ROW)
#undef ROW
#define ROW(name, ...) &hd_tensor_tile_##name##_hd_record.kernel,
            HD_TENSOR_TILES(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i]->name, name) == 0) {
            return kernels[i];
        }
    }
    return NULL;
}
