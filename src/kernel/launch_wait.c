/* launch_wait.c - the option launch_wait: hd_launch waits for its kernel, and reports its failure with grid and
 * arguments.
 *
 * Threads: any that launches.
 * Locks: none.
 * Blocking: until the kernel has ended.
 */
#include "kernel/module_internal.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "engine/engine.h"

enum { LAUNCH_BYTES = 240 };

/* Writes "y at 0x7f0000000000" or "n = 7", and returns the length. `block`: the launch's arguments. */
static int name_value(const hdi_param *param, const unsigned char *block, char *out, size_t bytes)
{
    const char *name = param->name[0] ? param->name : "an argument";
    bool is_number = param->size <= sizeof(uint64_t) && param->kind != HD_ARG_BYTES;
    uint64_t bits = 0;
    memcpy(&bits, block + param->offset, is_number ? param->size : 0);
    unsigned shift = is_number && param->size ? 64 - 8 * param->size : 0;
    float f32;
    double f64;
    switch (is_number ? param->kind : HD_ARG_BYTES) {
    case HD_ARG_BUFFER:
        return snprintf(out, bytes, "%.24s at 0x%llx", name, (unsigned long long)bits);
    case HD_ARG_F32:
        memcpy(&f32, &bits, sizeof f32);
        return snprintf(out, bytes, "%.24s = %g", name, (double)f32);
    case HD_ARG_F64:
        memcpy(&f64, &bits, sizeof f64);
        return snprintf(out, bytes, "%.24s = %g", name, f64);
    case HD_ARG_I8:
    case HD_ARG_I16:
    case HD_ARG_I32:
    case HD_ARG_I64:
        return snprintf(out, bytes, "%.24s = %lld", name, (long long)((int64_t)(bits << shift) >> shift));
    case HD_ARG_BYTES:
        return snprintf(out, bytes, "%.24s = %u bytes", name, (unsigned)param->size);
    case HD_ARG_NONE: /* only its size is known */
        return snprintf(out, bytes, "%.24s = 0x%llx", name, (unsigned long long)bits);
    default:
        return snprintf(out, bytes, "%.24s = %llu", name, (unsigned long long)bits);
    }
}

/* Writes the launch's kernel, grid, block and arguments. Arguments that do not fit are replaced by "...". */
static void name_launch(hd_runtime *rt, const hdi_command *c, char *out)
{
    const hdi_kernel_place *places = rt->modules->blocks[c->kernel / HDI_KERNEL_CHUNK];
    const struct hd_kernel *k = &places[c->kernel % HDI_KERNEL_CHUNK].kernel;
    const hdi_params *params = hdi_kernel_params(k); /* another kernel's if this one's module was unloaded meanwhile */
    char name[HDI_KERNEL_NAME_BYTES];
    hdi_kernel_name(rt, c->kernel, name);
    int length = snprintf(out, LAUNCH_BYTES, "kernel '%.64s', grid %u x %u x %u, block %u x %u x %u", name,
                          c->launch.grid_x, (unsigned)c->launch.grid_y, (unsigned)c->launch.grid_z,
                          hdi_block_x(c->launch.block), hdi_block_y(c->launch.block), hdi_block_z(c->launch.block));
    const unsigned char *block = (const unsigned char *)c + offsetof(hdi_command, launch.arguments);
    for (uint32_t i = 0; params && i < params->n; i++) {
        char value[96];
        int more = name_value(&params->of[i], block, value, sizeof value);
        if (length + more + 8 > LAUNCH_BYTES) {
            snprintf(out + length, (size_t)(LAUNCH_BYTES - length), ", ...");
            break;
        }
        length += snprintf(out + length, (size_t)(LAUNCH_BYTES - length), ", %s", value);
    }
}

hd_status hdi_launch_await(hd_lane *lane, const hdi_command *command, uint64_t position)
{
    hd_runtime *rt = lane->device->runtime;
    char launch[LAUNCH_BYTES];
    name_launch(rt, command, launch);
    hdi_wait_position_at_leisure(rt, lane->global, position, INT64_MAX);
    return HDI_FAIL_ABOUT(hdi_position_status(rt, lane->global, position), "%s", launch);
}
