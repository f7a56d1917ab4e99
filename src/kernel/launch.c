/* launch.c - hd_launch: checks a launch, packs its arguments, and submits it; with the option
 * launch_wait, it also waits for the launch.
 *
 * Threads: any.
 * Locks: none of its own; the submission takes the order locks.
 * Blocking: a call waits while the lane is full. With launch_wait, the call also waits until the
 * kernel ends, and reports a failure with grid and arguments. The call enters the driver only in
 * these cases:
 * - the first launch of a kernel on a device
 * - the first access from one device to another device's memory
 * - the first launch of a kernel that needs more shared memory than the driver allows by default
 * Always:
 * - Nothing is submitted before every check passes.
 * - The call reads a kernel's description without a lock, so after an unload it may read the
 *   description of another kernel. The submission checks the kernel's handle again under the lane's
 *   order lock.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "buffer/submit_fast.h"
#include "engine/engine.h"
#include "kernel/file.h"
#include "kernel/globals.h"
#include "kernel/module.h"
#include "transfer/route.h"

/* An argument that needs the slow way of packing, with the data for its messages. */
typedef struct argument {
    hd_lane *lane;
    const struct hd_kernel *kernel; /* for messages */
    size_t index;
    const hdi_param *param;
    const hd_arg *arg;
} argument;

static uint32_t launch_kind_size(uint32_t kind)
{
    static const uint8_t sizes[] = {
        [HD_ARG_BUFFER] = 8, [HD_ARG_I8] = 1,  [HD_ARG_U8] = 1,  [HD_ARG_I16] = 2,
        [HD_ARG_U16] = 2,    [HD_ARG_I32] = 4, [HD_ARG_U32] = 4, [HD_ARG_I64] = 8,
        [HD_ARG_U64] = 8,    [HD_ARG_F32] = 4, [HD_ARG_F64] = 8, [HD_ARG_ADDRESS] = 8,
    };
    return kind < sizeof sizes ? sizes[kind] : 0;
}

/* True if both types are integers of one size. Signed and unsigned integers have the same bits. */
static bool launch_same_but_sign(uint32_t a, uint32_t b)
{
    return a >= HD_ARG_I8 && a <= HD_ARG_U64 && b >= HD_ARG_I8 && b <= HD_ARG_U64 &&
           launch_kind_size(a) == launch_kind_size(b);
}

static hd_status launch_argument_failed(const argument *a, hd_status status)
{
    const hdi_param *param = a->param;
    const hd_arg *arg = a->arg;
    const char *kernel = a->kernel->name, *name = param->name;
    if (status == HD_ERROR_ACCESS) {
        static const char *const words[] = {"?", "hd_in", "hd_out", "hd_inout"};
        return hdi_fail(status, "kernel '%s', argument %zu (%s): the kernel uses it as %s, the call passes it as %s",
                        kernel, a->index, name, words[param->access & 3], words[arg->access & 3]);
    }
    if (arg->kind == HD_ARG_ALSO) {
        return hdi_fail(
            status,
            "kernel '%s', argument %zu (%s): expects %s, got hd_arg_implicit, which stands behind the arguments of "
            "all parameters",
            kernel, a->index, name, hdi_arg_kind_name(param->kind));
    }
    if (param->kind == HD_ARG_NONE || param->kind == HD_ARG_BYTES) {
        return hdi_fail(status, "kernel '%s', argument %zu (%s): expects %u bytes, got %s of %zu", kernel, a->index,
                        name, param->size, hdi_arg_kind_name(arg->kind),
                        arg->kind == HD_ARG_BYTES ? arg->size : (size_t)launch_kind_size(arg->kind));
    }
    return hdi_fail(status, "kernel '%s', argument %zu (%s): expects %s, got %s", kernel, a->index, name,
                    hdi_arg_kind_name(param->kind), hdi_arg_kind_name(arg->kind));
}

/* Names the argument in a failure. Long names must leave room for a reason and a remedy. */
static hd_status __attribute__((cold)) launch_about_argument(const argument *a, hd_status status)
{
    return hdi_fail_about(status, "kernel '%.64s', argument %zu (%.24s)", a->kernel->name, a->index, a->param->name);
}

/* The error for a handle of a freed buffer, or for a value that is no buffer. */
static hd_status launch_buffer_refused(const argument *a)
{
    return launch_about_argument(a, hdi_buffer_refused(a->arg->value.buffer));
}

/* Types for plain stores at any address. In a hardened build, a memcpy into memory of known size
 * would be a function call. */
typedef uint32_t __attribute__((may_alias, aligned(1))) any_u32;
typedef uint64_t __attribute__((may_alias, aligned(1))) any_u64;

/* Packs a buffer argument that passed the checks: bytes `low` to `high`. The caller reads `losses`
 * before this function reads the address. So the submission notices a loss after that. */
static inline void launch_pack_buffer_into(struct hd_buffer *b, uint64_t word, uint64_t losses, uint64_t low,
                                           uint64_t high, uint32_t access, uint64_t bytes, unsigned char *place,
                                           hdi_use *use)
{
    *(any_u64 *)place = b->address + low;
    *use = (hdi_use){.buffer = b,
                     .losses = losses,
                     .word = word,
                     .low = low,
                     .high = high,
                     .read = (access & HD_READ) != 0,
                     .write = (access & HD_WRITE) != 0,
                     .whole = high - low == bytes};
}

/* Fails unless the access in the call matches the kernel's access. For a parameter that the kernel
 * only writes, HD_READ_WRITE is allowed. */
static hd_status launch_check_access(const argument *a)
{
    uint32_t access = HDI_PARAM_ACCESS(a->arg->access), wanted = a->param->access;
    if (access == 0 || access > 3) {
        return a->arg->kind == HD_ARG_ALSO ? hdi_fail(HD_ERROR_ARGUMENT,
                                                      "kernel '%s', argument %zu (also): no use of a buffer; give "
                                                      "hd_arg_implicit one of hd_in, hd_out "
                                                      "or hd_inout",
                                                      a->kernel->name, a->index)
                                           : hdi_fail(HD_ERROR_ARGUMENT, "kernel '%s', argument %zu (%s): access %u",
                                                      a->kernel->name, a->index, a->param->name, access);
    }
    bool fits = !wanted || access == wanted || (wanted == HD_WRITE && access == HD_READ_WRITE);
    return fits ? HD_OK : launch_argument_failed(a, HD_ERROR_ACCESS);
}

/* Compares the types of a buffer's elements, if the call and the kernel both give a type. Integers
 * may differ in their sign. A program may pass a structure in place of its members, so for
 * structures only the sizes are compared. */
static hd_status launch_check_element(const argument *a)
{
    uint32_t wanted = a->param->element >> 8, got = a->arg->access >> 8;
    uint32_t kind = wanted & 0xff, other = got & 0xff, size = wanted >> 8, other_size = got >> 8;
    if (wanted == 0 || got == 0 || a->arg->kind != HD_ARG_BUFFER || size == 0 || other_size == 0) {
        return HD_OK;
    }
    bool structure = kind == HD_ARG_BYTES || other == HD_ARG_BYTES;
    bool fits = structure ? size % other_size == 0 || other_size % size == 0
                          : kind == other || launch_same_but_sign(kind, other);
    return fits ? HD_OK
                : hdi_fail(HD_ERROR_ARGUMENT,
                           "kernel '%s', argument %zu (%s): its elements are %s of %u bytes, and those of the buffer "
                           "%s of %u. "
                           "A buffer of std::byte may have any",
                           a->kernel->name, a->index, a->param->name, hdi_arg_kind_name(kind), size,
                           hdi_arg_kind_name(other), other_size);
}

static hd_status __attribute__((noinline))
launch_pack_buffer_slow(const argument *a, unsigned char *block, hdi_use *use)
{
    const hd_arg *arg = a->arg;
    hdi_device *device = a->lane->device;
    /* Check first that the argument is a use: otherwise it contains no handle. */
    hd_status status = arg->kind == HD_ARG_ALSO ? launch_check_access(a) : HD_OK;
    if (status) {
        return status;
    }
    struct hd_buffer *b = hdi_buffer_from_handle(arg->value.buffer);
    if (!b) {
        return hdi_fail_pass(launch_buffer_refused(a));
    }
    if (b->runtime != device->runtime) {
        return hdi_fail(HD_ERROR_HANDLE, "kernel '%s', argument %zu (%s): the buffer is of another runtime",
                        a->kernel->name, a->index, a->param->name);
    }
    status = launch_check_access(a);
    status = status ? status : launch_check_element(a);
    if (status) {
        return status;
    }
    if (arg->offset >= b->bytes || arg->size > b->bytes - arg->offset) {
        if (hdi_buffer_is_gone(b, arg->value.buffer)) {
            return hdi_fail_pass(launch_buffer_refused(a));
        }
        return hdi_fail(HD_ERROR_RANGE, "kernel '%s', argument %zu (%s): bytes %zu + %zu of a buffer of %llu",
                        a->kernel->name, a->index, a->param->name, arg->offset, arg->size,
                        (unsigned long long)b->bytes);
    }
    /* The owner is read once. If another buffer takes over the structure, the submission notices
     * this. */
    int owner = b->owner;
    if (!hdi_buffer_is_reached(b, owner, device->index)) {
        if (hdi_buffer_is_gone(b, arg->value.buffer)) {
            return hdi_fail_pass(launch_buffer_refused(a));
        }
        status = hdi_buffer_reach_again(b, owner, device->index);
        if (status) {
            return hdi_fail_pass(launch_about_argument(a, status));
        }
    }
    uint64_t losses = hdi_buffer_losses(b);
    if (losses == HDI_LOST) {
        return hdi_fail_pass(launch_buffer_refused(a));
    }
    uint64_t bytes = b->bytes, high = arg->size ? arg->offset + arg->size : bytes;
    launch_pack_buffer_into(b, hdi_self_word(arg->value.buffer), losses, arg->offset, high, arg->access, bytes,
                            block + a->param->offset, use);
    return HD_OK;
}

/* The fast way for live memory of the lane's own device. False: the argument needs
 * launch_pack_buffer_slow. */
static inline bool launch_pack_buffer(const hdi_device *device, const hd_arg *arg, unsigned char *place, hdi_use *use)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_self_object(arg->value.buffer);
    uint64_t word = hdi_self_word(arg->value.buffer);
    if (!b || hdi_self_get(&b->self) != word || b->runtime != device->runtime || b->owner != device->index) {
        return false;
    }
    /* `losses` is read before the address, as launch_pack_buffer_into requires. */
    uint64_t losses = hdi_buffer_losses(b);
    uint64_t bytes = b->bytes, low = arg->offset, size = arg->size;
    if (__builtin_expect((low | size) != 0, 0)) {
        if (low >= bytes || size > bytes - low) {
            return false;
        }
        size = size ? size : bytes - low;
    } else {
        size = bytes;
    }
    if (losses == HDI_LOST) {
        return false;
    }
    launch_pack_buffer_into(b, word, losses, low, low + size, arg->access, bytes, place, use);
    return true;
}

static hd_status __attribute__((noinline)) launch_pack_value_slow(const argument *a, unsigned char *block)
{
    const hdi_param *param = a->param;
    const hd_arg *arg = a->arg;
    /* Both fields are read once, since the parameters may belong to another kernel by now. */
    uint32_t offset = param->offset, param_size = param->size;
    if (arg->kind == HD_ARG_BYTES) {
        if (!arg->value.bytes && arg->size) {
            return hdi_fail(HD_ERROR_ARGUMENT, "kernel '%s', argument %zu (%s): null bytes", a->kernel->name, a->index,
                            param->name);
        }
        if (arg->size != param_size || offset + param_size > HDI_ARGUMENT_BYTES_MAX ||
            (param->kind != HD_ARG_NONE && param->kind != HD_ARG_BYTES)) {
            return launch_argument_failed(a, HD_ERROR_ARGUMENT);
        }
        if (param_size > 0) {
            memcpy(block + offset, arg->value.bytes, param_size);
        }
        return HD_OK;
    }
    uint32_t size = launch_kind_size(arg->kind);
    bool fits = param->kind == arg->kind || (param->kind == HD_ARG_NONE && size == param_size) ||
                launch_same_but_sign(param->kind, arg->kind) ||
                (arg->kind == HD_ARG_ADDRESS && param->kind == HD_ARG_BUFFER);
    if (!size || !fits) {
        return launch_argument_failed(a, HD_ERROR_ARGUMENT);
    }
    /* A small integer is in the low bytes of the union, since every host with a GPU is
     * little-endian. */
    memcpy(block + offset, &arg->value, size);
    return HD_OK;
}

/* True if the argument matches the parameter's kind and access. If the argument gives a type of
 * elements, this must match, too. */
static inline bool launch_argument_is_alike(const hdi_param *param, const hd_arg *arg)
{
    uint64_t difference = *(const any_u64 *)param ^ *(const any_u64 *)arg;
    return difference == 0 || difference == (uint64_t)param->element << 32;
}
_Static_assert(offsetof(hdi_param, kind) == 0 && offsetof(hdi_param, access) == 4 && offsetof(hd_arg, kind) == 0 &&
                   offsetof(hd_arg, access) == 4,
               "compared together");

/* Packs an argument that is not usual. *n_uses: the number of uses in `uses`. */
static hd_status __attribute__((noinline))
launch_pack_slow(const argument *a, unsigned char *block, hdi_use *uses, size_t *n_uses)
{
    if (a->arg->kind != HD_ARG_BUFFER) {
        return launch_pack_value_slow(a, block);
    }
    if (a->param->kind != HD_ARG_BUFFER && !(a->param->kind == HD_ARG_NONE && a->param->size == 8)) {
        return launch_argument_failed(a, HD_ERROR_ARGUMENT);
    }
    if (*n_uses == HDI_USES_OF_ONE) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel '%s': more than %d buffers", a->kernel->name, HDI_USES_OF_ONE);
    }
    return launch_pack_buffer_slow(a, block, &uses[(*n_uses)++]);
}

/* Packs all arguments into `block`. Fills in `uses` and *n_uses. *locks: the union of the buffers'
 * `locks`. */
static inline __attribute__((always_inline)) hd_status
launch_pack_arguments(hd_lane *lane, const struct hd_kernel *kernel, const hdi_params *params, const hd_arg *args,
                      size_t n_args, unsigned char *block, hdi_use *uses, size_t *n_uses, uint64_t *locks)
{
    const hdi_device *device = lane->device;
    const hdi_param *param = params->of;
    size_t n = 0;
    uint64_t all = 0;
    for (size_t i = 0; i < n_args; i++, param++) {
        const hd_arg *arg = &args[i];
        uint32_t usual = launch_argument_is_alike(param, arg) ? param->usual : HDI_PARAM_ODD;
        unsigned char *place = block + param->offset;
        if (usual == HDI_PARAM_BUFFER && n < HDI_USES_OF_ONE && launch_pack_buffer(device, arg, place, &uses[n])) {
            all |= uses[n++].buffer->locks;
        } else if (usual == HDI_PARAM_4) {
            *(any_u32 *)place = *(const any_u32 *)&arg->value;
        } else if (usual == HDI_PARAM_8) {
            *(any_u64 *)place = *(const any_u64 *)&arg->value;
        } else {
            size_t counted = n; /* a copy, so that `n` stays in a register */
            hd_status status = launch_pack_slow(&(argument){lane, kernel, i, param, arg}, block, uses, &counted);
            if (status) {
                return status;
            }
            all |= counted > n ? uses[n].buffer->locks : 0;
            n = counted;
        }
    }
    *n_uses = n;
    *locks = all;
    return HD_OK;
}

static hd_status launch_check_shape(hd_lane *lane, struct hd_kernel *kernel, uint64_t kernel_word, hd_dims grid,
                                    hd_dims block, size_t shared_bytes)
{
    hdi_device *device = lane->device;
    if (hdi_device_lost(device)) {
        /* The device is lost. If a kernel was looked up after the loss, the facts that are used
         * below are missing. */
        return hdi_lane_refuses(lane);
    }
    const hdi_limits *limits = &device->limits;
    const char *name = kernel->name;
    if (!grid.x || !grid.y || !block.x || !block.y) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "kernel '%s': an extent is 0 (grid %u x %u x %u, block %u x %u x %u); leave out only extents "
                        "at the end. Launch nothing where there is nothing to do",
                        name, grid.x, grid.y, grid.z, block.x, block.y, block.z);
    }
    if (grid.x > limits->grid[0] || grid.y > limits->grid[1] || grid.z > limits->grid[2]) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel '%s': grid %u x %u x %u, device %d allows %u x %u x %u", name, grid.x,
                        grid.y, grid.z, device->index, limits->grid[0], limits->grid[1], limits->grid[2]);
    }
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    uint32_t most = atomic_load_explicit(&kernel->max_threads[device->index], memory_order_acquire);
    if (most == 0) { /* the kernel's first launch on this device */
        hd_status status = hdi_kernel_prepare(kernel, kernel_word, device);
        if (status) {
            return status;
        }
        most = atomic_load_explicit(&kernel->max_threads[device->index], memory_order_acquire);
    }
    if (block.x > limits->block[0] || block.y > limits->block[1] || block.z > limits->block[2] || threads > most) {
        return hdi_fail(
            HD_ERROR_LIMIT, "kernel '%s': block %u x %u x %u, device %d allows %u x %u x %u and %u threads in all",
            name, block.x, block.y, block.z, device->index, limits->block[0], limits->block[1], limits->block[2], most);
    }
    if (__builtin_expect(
            shared_bytes > atomic_load_explicit(&kernel->dynamic_shared[device->index], memory_order_acquire), 0)) {
        return hdi_kernel_allow_shared(kernel, kernel_word, device, shared_bytes);
    }
    return HD_OK;
}

/* Compares two numbers below 2^31 at once: each half of a word contains one of them. Each half of
 * `most` contains a limit. The top bit of a half of the result is set if the number is 0 or above
 * its limit. */
static inline uint64_t launch_pair_excess(uint64_t pair, uint64_t most)
{
    return (pair - 0x100000001u) | (most - pair);
}

static inline uint64_t launch_pair_of(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

/* A single test that nearly every launch passes: no extent is zero, and none is over a limit. */
static inline bool launch_shape_is_plain(const hdi_device *device, const struct hd_kernel *k, hd_dims g, hd_dims b,
                                         size_t shared)
{
    const hdi_limits *l = &device->limits;
    uint64_t excess =
        launch_pair_excess(launch_pair_of(g.x, g.y), launch_pair_of(l->grid[0], l->grid[1])) |
        launch_pair_excess(launch_pair_of(b.x, b.y), launch_pair_of(l->block[0], l->block[1])) |
        launch_pair_excess(launch_pair_of(g.z, b.z), launch_pair_of(device->depths[0], device->depths[1]));
    return !(excess & 0x8000000080000000u) &&
           (uint64_t)b.x * b.y * b.z <= atomic_load_explicit(&k->max_threads[device->index], memory_order_acquire) &&
           shared <= atomic_load_explicit(&k->dynamic_shared[device->index], memory_order_acquire);
}

/* Sets the last extents to 1 if the caller left them out (0). */
static inline hd_dims launch_complete_dims(hd_dims d)
{
    if (d.z == 0) {
        d.y = d.y ? d.y : 1;
        d.z = 1;
    }
    return d;
}

/* Writes the command except for the arguments. */
static inline void launch_write_command(hdi_command *c, const struct hd_kernel *kernel, uint32_t bytes, hd_dims grid,
                                        hd_dims block, size_t shared_bytes)
{
    size_t inside = sizeof c->launch.arguments;
    c->op = HDI_OP_LAUNCH;
    c->slots = bytes <= inside ? 1 : (uint8_t)(1 + (bytes - inside + HDI_SLOT_BYTES - 1) / HDI_SLOT_BYTES);
    c->kernel = (uint16_t)kernel->number;
    c->launch.grid_x = grid.x;
    c->launch.grid_y = (uint16_t)grid.y;
    c->launch.grid_z = (uint16_t)grid.z;
    c->launch.block = hdi_block_pack(block.x, block.y, block.z);
    c->launch.argument_bytes = (uint16_t)bytes;
    c->launch.shared_units = (uint16_t)(shared_bytes / HDI_SHARED_UNIT);
    c->launch.reserved = 0;
}

hd_status hdi_launch_linked(hd_lane *lane, struct hd_kernel *kernel, uint32_t grid, uint32_t block, size_t shared_bytes,
                            const void *arguments, const hdi_use *uses, size_t n_uses, hdi_linked link, hd_ticket *out)
{
    hdi_device *device = lane->device;
    if (hdi_device_lost(device)) {
        return hdi_lane_refuses(lane);
    }
    if (atomic_load_explicit(&kernel->max_threads[device->index], memory_order_acquire) == 0) {
        /* This is the kernel's first launch on this device, as in launch_check_shape. */
        hd_status status = hdi_kernel_prepare(kernel, 0, device);
        if (status) {
            return status;
        }
    }
    shared_bytes = (shared_bytes + HDI_SHARED_UNIT - 1) / HDI_SHARED_UNIT * HDI_SHARED_UNIT;
    if (shared_bytes > atomic_load_explicit(&kernel->dynamic_shared[device->index], memory_order_acquire)) {
        hd_status status = hdi_kernel_allow_shared(kernel, 0, device, shared_bytes);
        if (status) {
            return status;
        }
    }
    hdi_command command[HDI_COMMAND_SLOTS_MAX];
    uint32_t bytes = hdi_kernel_params(kernel)->argument_bytes;
    memcpy((unsigned char *)command + offsetof(hdi_command, launch.arguments), arguments, bytes);
    launch_write_command(command, kernel, bytes, (hd_dims){grid, 1, 1}, (hd_dims){block, 1, 1}, shared_bytes);
    return hdi_submit_linked(lane, uses, n_uses, command, link, out);
}

/* True if there are more arguments than any launch can have. Then nothing reads them, since their
 * number is probably no number of arguments. */
static bool launch_count_is_absurd(const hdi_params *params, size_t n_args)
{
    return n_args > (size_t)params->n + HDI_USES_OF_ONE;
}

static hd_status launch_count_failed(const hdi_params *params, const char *name, const hd_arg *args, size_t n_args)
{
    size_t also = 0;
    if (launch_count_is_absurd(params, n_args)) {
        return hdi_fail(
            HD_ERROR_LIMIT,
            "kernel '%s': %zu arguments; it takes %u, and at most %d buffers with hd_arg_implicit behind them", name,
            n_args, params->n, HDI_USES_OF_ONE);
    }
    for (size_t i = 0; i < n_args; i++) {
        also += args[i].kind == HD_ARG_ALSO;
    }
    n_args -= also;
    if (params->described && n_args == params->n) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "kernel '%s': hd_arg_implicit stands behind the arguments of all %u parameters", name,
                        params->n);
    }
    return params->described
               ? hdi_fail(HD_ERROR_ARGUMENT, "kernel '%s' takes %u arguments, got %zu", name, params->n, n_args)
               : hdi_fail(HD_ERROR_UNSUPPORTED,
                          "kernel '%s': its parameters are unknown, since drivers before CUDA 12.4 do not return those "
                          "of a cubin or fatbin; load PTX or a kernel file",
                          name);
}

/* If the module was unloaded after the handle was checked, replaces the error by that of a stale
 * handle. The failed check may have read another kernel's data. */
static hd_status launch_unless_unloaded(const struct hd_kernel *kernel, uint64_t word, hd_status status)
{
    atomic_thread_fence(memory_order_acquire);
    bool there = hdi_handle_word_is_good(atomic_load_explicit(&kernel->head.word, memory_order_relaxed), word);
    return there ? status : hdi_kernel_refused();
}

/* Arguments are written at the parameters' offsets before it is certain that the parameters belong
 * to this kernel. The widest argument at the last byte of a block still lies inside `command`. */
_Static_assert(HDI_COMMAND_SLOTS_MAX * sizeof(hdi_command) - offsetof(hdi_command, launch.arguments) >=
                   HDI_ARGUMENT_BYTES_MAX + sizeof(uint64_t),
               "room behind an argument block");

/* ---- kernels of modules with requested variables (globals.c) ---- */

/* Adds the uses of variables behind the launch's own uses. *n: the number of all uses. */
static hd_status launch_add_globals(const hd_lane *lane, const hdi_same *same, hdi_use *uses, size_t *n)
{
    const struct hd_kernel *kernel = (const struct hd_kernel *)same->kernel;
    size_t room = HDI_USES_OF_ONE - *n, more;
    more = hdi_globals_uses(kernel, same->kernel_word, lane->device, uses + *n, room);
    if (more > room) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel '%s': %zu buffers and %zu variables of its module, at most %d in all",
                        kernel->name, *n, more, HDI_USES_OF_ONE);
    }
    *n += more;
    return HD_OK;
}
_Static_assert(offsetof(struct hd_kernel, head) == 0, "a kernel's head leads to the kernel");

/* True if the launch failed because a variable was requested, or a variable's handle ended, after
 * the uses were collected. */
static bool launch_is_outdated(const hdi_same *same, const hdi_use *globals, size_t n)
{
    bool outdated = hdi_kernel_is_changed(same);
    for (size_t i = 0; i < n; i++) {
        outdated |= hdi_self_get(&globals[i].buffer->self) != globals[i].word;
    }
    return outdated;
}

hd_status hdi_launch_with_globals(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  const hdi_same *same, hd_ticket *out)
{
    hdi_use all[HDI_USES_OF_ONE];
    memcpy(all, uses, n_uses * sizeof *uses);
    for (;;) {
        hdi_same now = *same;
        now.kernel_word = atomic_load_explicit(&same->kernel->word, memory_order_acquire);
        if (!hdi_handle_word_is_good(now.kernel_word, same->kernel_word)) {
            return hdi_kernel_refused();
        }
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        size_t n = n_uses;
        hd_status status = launch_add_globals(lane, &now, all, &n);
        status = status ? status : hdi_submit_linked(lane, all, n, command, (hdi_linked){.same = &now}, out);
        if (!status || !launch_is_outdated(&now, all + n_uses, n - n_uses)) {
            /* NOT_FOUND comes without a message, and means that the module was unloaded during the
             * call. */
            status = status == HD_ERROR_NOT_FOUND ? hdi_kernel_refused() : status;
            return hdi_attempt_result(&attempt, status);
        }
        hdi_attempt_end(&attempt);
    }
}

/* The kernel, if its handle is good. If the program requested variables of the kernel's module, the
 * head's word differs from the word of the handle. The submission notices this, and calls
 * hdi_launch_with_globals. NULL: the handle is not good. */
static struct hd_kernel *__attribute__((noinline, cold)) launch_careful_kernel(const hd_kernel *handle)
{
    struct hd_kernel *k = hdi_handle_object(handle);
    uint64_t word = k ? atomic_load_explicit(&k->head.word, memory_order_acquire) : 0;
    return k && hdi_handle_word_is_good(word, hdi_kernel_word(handle)) ? k : NULL;
}

/* ---- the call ---- */

/* Adds the uses of buffers that follow `n_args` arguments. *n: the number of uses. */
static hd_status __attribute__((noinline, cold))
launch_add_also(hd_lane *lane, const struct hd_kernel *kernel, const hd_arg *also, size_t n_also, size_t n_args,
                hdi_use *uses, size_t *n, uint64_t *locks)
{
    static const hdi_param param = {.kind = HD_ARG_BUFFER, .size = sizeof(uint64_t), .name = "also"};
    unsigned char address[sizeof(uint64_t)];
    if (n_also > HDI_USES_OF_ONE - *n) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel '%s': more than %d buffers, %zu of them with hd_arg_implicit",
                        kernel->name, HDI_USES_OF_ONE, n_also);
    }
    for (size_t i = 0; i < n_also; i++) {
        const argument a = {lane, kernel, n_args + i, &param, &also[i]};
        hd_status status = launch_pack_buffer_slow(&a, address, &uses[*n]);
        if (status) {
            return status;
        }
        *locks |= uses[(*n)++].buffer->locks;
    }
    return HD_OK;
}

/* The number of buffers that follow the arguments of all parameters; 0: nothing follows, or an
 * argument that follows is no buffer. */
static size_t launch_also_of(const hdi_params *params, const hd_arg *args, size_t n_args)
{
    /* read once, since the parameters may belong to another kernel by now */
    uint32_t n = params->n;
    size_t also = params->described && n_args > n ? n_args - n : 0;
    for (size_t i = 0; i < also; i++) {
        if (args[n + i].kind != HD_ARG_ALSO) {
            return 0;
        }
    }
    return also;
}

static hd_status launch_also(const hd_lane *lane_handle, const hd_kernel *kernel_handle, hd_dims grid, hd_dims block,
                             size_t shared_bytes, const hd_arg *args, size_t n_args, hd_ticket *out);

/* hd_launch, inside of the runtime. `also`: true if buffers may follow the arguments; each caller
 * passes a constant. */
static inline __attribute__((always_inline)) hd_status
launch_submit(const hd_lane *lane_handle, const hd_kernel *kernel_handle, hd_dims grid, hd_dims block,
              size_t shared_bytes, const hd_arg *args, size_t n_args, bool also, hd_ticket *out)
{
    hd_lane *lane = hdi_lane_from_handle(lane_handle);
    if (__builtin_expect(!lane, 0)) {
        return hdi_lane_refused(lane_handle);
    }
    struct hd_kernel *kernel = hdi_kernel_from_handle(kernel_handle);
    hdi_device *device = lane->device;
    if (__builtin_expect(!kernel || kernel->runtime != device->runtime, 0)) {
        kernel = launch_careful_kernel(kernel_handle);
        if (!kernel || kernel->runtime != device->runtime) {
            return kernel
                       ? hdi_fail(HD_ERROR_HANDLE, "the kernel is of another runtime than the lane")
                       : hdi_handle_refused(kernel_handle, "kernel", "its module was unloaded, or its runtime closed");
        }
    }
    hdi_same same = {hdi_lane_word(lane_handle), &kernel->head, hdi_kernel_word(kernel_handle)};
    if (__builtin_expect(!args && n_args, 0)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "args is null");
    }
    const hdi_params *params = hdi_kernel_params(kernel);
    size_t n_also = 0;
    if (__builtin_expect(n_args != params->n, 0)) {
        if (!also) {
            return launch_also(lane_handle, kernel_handle, grid, block, shared_bytes, args, n_args, out);
        }
        n_also = launch_count_is_absurd(params, n_args) ? 0 : launch_also_of(params, args, n_args);
        if (!n_also) {
            return launch_unless_unloaded(kernel, same.kernel_word,
                                          launch_count_failed(params, kernel->name, args, n_args));
        }
        n_args -= n_also;
    }
    if (__builtin_expect(!launch_shape_is_plain(device, kernel, grid, block, shared_bytes), 0)) {
        grid = launch_complete_dims(grid);
        block = launch_complete_dims(block);
        hd_status status = launch_check_shape(lane, kernel, same.kernel_word, grid, block, shared_bytes);
        if (status) {
            return launch_unless_unloaded(kernel, same.kernel_word, status);
        }
    }
    hdi_command command[HDI_COMMAND_SLOTS_MAX]; /* only the slots that are needed get written */
    /* Clears the gaps between arguments in the first slot, since an engine compares launches by
     * their bytes. */
    memset(command[0].launch.arguments, 0, sizeof command[0].launch.arguments);
    hdi_use uses[HDI_USES_OF_ONE];
    size_t n_uses;
    uint64_t locks;
    hd_status status = launch_pack_arguments(lane, kernel, params, args, n_args,
                                             (unsigned char *)command + offsetof(hdi_command, launch.arguments), uses,
                                             &n_uses, &locks);
    if (also && !status) {
        status = launch_add_also(lane, kernel, args + n_args, n_also, n_args, uses, &n_uses, &locks);
    }
    if (__builtin_expect(status != HD_OK, 0)) {
        return launch_unless_unloaded(kernel, same.kernel_word, status);
    }
    launch_write_command(command, kernel, params->argument_bytes, grid, block, shared_bytes);
    return hdi_submit_launch(lane, uses, n_uses, command, &same, locks, out);
}

static hd_status __attribute__((noinline, cold))
launch_also(const hd_lane *lane_handle, const hd_kernel *kernel_handle, hd_dims grid, hd_dims block,
            size_t shared_bytes, const hd_arg *args, size_t n_args, hd_ticket *out)
{
    return launch_submit(lane_handle, kernel_handle, grid, block, shared_bytes, args, n_args, true, out);
}

hd_status hd_launch(hd_lane *lane, hd_kernel *kernel, hd_dims grid, hd_dims block, size_t shared_bytes,
                    const hd_arg *args, size_t n_args, hd_ticket *out)
{
    HDI_INSIDE_BRIEFLY(hdi_lane_runtime(lane));
    /* The size is rounded up to units before the checks, so that the checks see the size that the
     * driver gets. */
    if (__builtin_expect(shared_bytes != 0, 0)) {
        shared_bytes = shared_bytes > UINT32_MAX
                           ? UINT32_MAX
                           : (shared_bytes + HDI_SHARED_UNIT - 1) / HDI_SHARED_UNIT * HDI_SHARED_UNIT;
    }
    return launch_submit(lane, kernel, grid, block, shared_bytes, args, n_args, false, out);
}

/* ---- the option launch_wait ---- */

enum { LAUNCH_BYTES = 240 };

/* Writes "y at 0x7f0000000000" or "n = 7", and returns the length. `block`: the launch's
 * arguments. */
static int launch_name_value(const hdi_param *param, const unsigned char *block, char *out, size_t bytes)
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

/* Writes the launch's kernel, grid, block and arguments. Arguments that do not fit are replaced by
 * "...". */
static void launch_name_command(hd_runtime *rt, const hdi_command *c, char *out)
{
    /* If the kernel's module was unloaded after the launch, these may be another kernel's
     * parameters. */
    const hdi_params *params = hdi_kernel_params(hdi_kernel_numbered(rt, c->kernel));
    char name[HDI_KERNEL_NAME_BYTES];
    hdi_kernel_name(rt, c->kernel, name);
    int length = snprintf(out, LAUNCH_BYTES, "kernel '%.64s', grid %u x %u x %u, block %u x %u x %u", name,
                          c->launch.grid_x, (unsigned)c->launch.grid_y, (unsigned)c->launch.grid_z,
                          hdi_block_x(c->launch.block), hdi_block_y(c->launch.block), hdi_block_z(c->launch.block));
    const unsigned char *block = (const unsigned char *)c + offsetof(hdi_command, launch.arguments);
    for (uint32_t i = 0; params && i < params->n; i++) {
        char value[96];
        int more = launch_name_value(&params->of[i], block, value, sizeof value);
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
    launch_name_command(rt, command, launch);
    hdi_wait_position_at_leisure(rt, lane->global, position, INT64_MAX);
    return HDI_FAIL_ABOUT(hdi_position_status(rt, lane->global, position), "%s", launch);
}
