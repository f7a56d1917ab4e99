/* module.h - the structures behind hd_module and hd_kernel, and the interface between the files of
 * kernel/ and other folders.
 *
 * Threads: any.
 * Locks: see module.c.
 * Blocking: calls that load code or look kernels up block while the driver works.
 * Always: structures of modules and kernels stay until hd_close, so a stale handle can be checked
 * at any time.
 */
#ifndef HDI_KERNEL_MODULE_H
#define HDI_KERNEL_MODULE_H

#include <heddle/module.h>
#include "buffer/submit.h"
#include "engine/runtime.h"
#include "kernel/describe_image.h"

/* A kernel's parameters. hd_launch reads them before it checks the kernel's handle again. By then
 * the kernel may be gone.
 * So the parameters stay unchanged for seconds, and this memory serves only parameters until
 * hd_close. A late read finds at most as many parameters as fit there, all inside an argument block
 * (module.c). */
typedef struct hdi_params {
    uint32_t n;
    uint32_t argument_bytes;
    bool described;          /* the other fields are known */
    uint8_t class;           /* room for 2^class parameters */
    struct hdi_params *next; /* the next one in a free list, which begins with the last one freed */
    int64_t freed;           /* clock */
    struct hdi_params *made; /* the one allocated before this one */
    hdi_param of[];
} hdi_params;

/* The structure is used again after an unload. The generation in `head` distinguishes old handles.
 * `number` is the kernel's place in the runtime's table. */
struct hd_kernel {
    hdi_handle_head head;
    uint32_t number;
    bool has_params; /* `params` belong to this generation; if false, to an earlier kernel */
    hd_runtime *runtime;
    struct hd_module *module;
    _Atomic(hdi_params *) params;
    char name[HDI_KERNEL_NAME_BYTES]; /* for messages */
    char *symbol;                     /* as the code spells it; owned */
    /* For each device. max_threads is 0 if the kernel was not looked up. A lookup may run while
     * other threads launch. */
    _Atomic uint32_t max_threads[HDI_DEVICES_MAX]; /* per block */
    _Atomic uint32_t static_shared[HDI_DEVICES_MAX];
    /* The bytes that launches may use without a further call of the driver. */
    _Atomic uint32_t dynamic_shared[HDI_DEVICES_MAX];
    struct hd_kernel *next; /* the next kernel of the same module, or in the free list */
};

struct hd_module {
    hdi_handle_head head;
    hd_runtime *runtime;
    /* The module's number on each device's port; 0: not loaded there. */
    uint64_t loaded[HDI_DEVICES_MAX];
    hdi_image image;
    hdi_code code; /* the loaded code; points into the image */
    hdi_shm file;  /* a copy of the code for worker processes */
    struct hd_kernel *kernels;
    struct hdi_global *globals; /* requested variables, see globals.c */
    /* How often variables were requested: 0 at first, then from 1 to HDI_CAREFUL_COUNTS, and again
     * from 1. */
    uint32_t variables_asked;
    bool is_builtin;   /* the module belongs to the runtime, and is not unloaded before hd_close */
    hdi_point *points; /* after an unload: work that may still use it, the last one in each lane */
    size_t n_points;
    /* The next one in the list of loaded modules, of unloaded modules, or of free structures. */
    struct hd_module *next;
};

/* The word in the head of a kernel that a good handle leads to. */
static inline uint64_t hdi_kernel_word(const hd_kernel *handle)
{
    return hdi_handle_word(HDI_KERNEL_MAGIC, hdi_handle_generation(handle), HDI_HANDLE_LIVE);
}

/* NULL: no kernel, or its module was unloaded. */
static inline struct hd_kernel *hdi_kernel_from_handle(const hd_kernel *handle)
{
    struct hd_kernel *k = (struct hd_kernel *)hdi_handle_object(handle);
    return k && hdi_handle_fits(handle, &k->head, HDI_KERNEL_MAGIC) ? k : NULL;
}

/* The kernel of a handle of a built-in module. Such kernels stay until the last call returns, even
 * if hd_close ends all handles meanwhile. */
static inline struct hd_kernel *hdi_kernel_of_builtin(const hd_kernel *handle)
{
    return (struct hd_kernel *)hdi_handle_object(handle);
}

static inline const hdi_params *hdi_kernel_params(const struct hd_kernel *kernel)
{
    /* Pairs with the release store in module.c: the parameters are complete. */
    return atomic_load_explicit(&kernel->params, memory_order_acquire);
}

/* Loads a kernel's code on a device and looks the kernel up there, unless that was done. `word`: as
 * for hdi_kernel_allow_shared.
 * Blocking: while the driver works.
 * Errors: as hd_module_load and hd_kernel_get; HANDLE (unloaded meanwhile). */
hd_status hdi_kernel_prepare(struct hd_kernel *kernel, uint64_t word, hdi_device *device);

/* Allows launches of the kernel with `bytes` of dynamic shared memory on a device.
 * `word`: the expected word in the kernel's head (hdi_handle_head). 0: the kernel is never
 * unloaded.
 * Blocking: while the driver works.
 * Errors: LIMIT, DRIVER, DEVICE_LOST, HANDLE (unloaded meanwhile). */
hd_status hdi_kernel_allow_shared(struct hd_kernel *kernel, uint64_t word, hdi_device *device, size_t bytes);

/* The kernel with this number, which was looked up at some time. After an unload it may be another
 * kernel. */
const struct hd_kernel *hdi_kernel_numbered(const hd_runtime *rt, uint32_t number);

/* Fails with "not a kernel of this runtime, or its module was unloaded". */
hd_status hdi_kernel_refused(void);

/* Launches one of the library's own kernels. The caller guarantees that shape and arguments are
 * right.
 * - `arguments`: the argument block, of kernel->argument_bytes bytes
 * - `uses`: all buffers that the kernel uses, each reachable from the lane's device
 * - `link`: as for hdi_submit_linked
 * Errors: as hdi_submit; DEVICE_LOST, LIMIT, DRIVER. */
hd_status hdi_launch_linked(hd_lane *lane, struct hd_kernel *kernel, uint32_t grid, uint32_t block, size_t shared_bytes,
                            const void *arguments, const hdi_use *uses, size_t n_uses, hdi_linked link, hd_ticket *out);

/* The function hdi_buffer_part.on_changed: submits a launch together with the uses of its module's
 * requested variables (globals.c). */
hd_status hdi_launch_with_globals(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  const hdi_same *same, hd_ticket *out);

/* The function hd_runtime.on_launched with the option launch_wait: waits until the launch ends.
 * Returns the launch's status. The message names grid and arguments. */
hd_status hdi_launch_await(hd_lane *lane, const hdi_command *command, uint64_t position);

/* The library's own kernel files, embedded by cmake/builtin.cmake. Each is loaded at the first
 * request and belongs to the runtime.
 * Errors: as hd_module_get_builtin. */
typedef enum hdi_builtin {
    HDI_BUILTIN_BASIC, /* hd_module_get_builtin */
    HDI_BUILTIN_TENSOR,
    HDI_BUILTIN_MATMUL,
    HDI_BUILTIN_PROBE, /* for tests of peer access */
    HDI_BUILTINS
} hdi_builtin;
hd_status hdi_builtin_get(hd_runtime *rt, hdi_builtin which, hd_module **out);

extern const hdi_lifetime hdi_modules_lifetime;

/* hd_module_load for code that the library made. `aliases`: further names of kernels. The runtime
 * is open and the caller is inside of it. Errors: as hd_module_load. */
hd_status hdi_module_load_made(hd_runtime *rt, const void *image, size_t bytes, const hdi_alias *aliases,
                               size_t n_aliases, hd_module **out);

/* Loads on a device with a fresh worker process everything that was loaded on the device before.
 * Errors: as hd_module_load and hd_kernel_get. */
hd_status hdi_modules_restart(hd_runtime *rt, hdi_device *device);

/* The name of a hd_arg_kind in messages: "f32", "a buffer", "bytes" for structures. The text is
 * static. */
const char *hdi_arg_kind_name(uint32_t kind);

#endif
