/* module.h - the structures behind hd_module and hd_kernel, and the functions of src/kernel that
 * other folders call.
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

/* A kernel's parameters. hd_launch reads them before it checks the kernel's handle under a lock,
 * and by then the kernel may be gone. So the parameters stay unchanged for some seconds after an
 * unload. Until hd_close, this memory only ever contains parameters. So even a late read finds no
 * more parameters than fit into this memory, and all of them lie inside an argument block
 * (module.c). */
typedef struct hdi_params {
    uint32_t n;
    uint32_t argument_bytes;
    bool described; /* the other fields are known */
    uint8_t class;  /* room for 2^class parameters */
    /* the next one in a free list; the list begins with the one that was freed last */
    struct hdi_params *next;
    int64_t freed;           /* clock */
    struct hdi_params *made; /* the one that was allocated before this one */
    hdi_param of[];
} hdi_params;

/* After an unload, the structure may serve another kernel. The generation in `head` shows that a
 * handle is old. `number` is the kernel's place in the runtime's table. */
struct hd_kernel {
    hdi_handle_head head;
    uint32_t number;
    /* `params` belong to this kernel; false: they belong to an earlier kernel in this structure */
    bool has_params;
    hd_runtime *runtime;
    struct hd_module *module;
    _Atomic(hdi_params *) params;
    char name[HDI_KERNEL_NAME_BYTES]; /* for messages */
    char *symbol;                     /* as the code spells it; owned */
    /* Facts for each device. max_threads is 0 if the kernel was not looked up there. A thread may
     * look the kernel up while other threads launch it. */
    _Atomic uint32_t max_threads[HDI_DEVICES_MAX]; /* per block */
    _Atomic uint32_t static_shared[HDI_DEVICES_MAX];
    /* The bytes of dynamic shared memory that launches may use without a further call of the
     * driver. */
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
    /* The number of requests for variables. After HDI_CAREFUL_COUNTS, it begins again from 1. */
    uint32_t variables_asked;
    bool is_builtin; /* the module belongs to the runtime, and is not unloaded before hd_close */
    /* after an unload: the last work in each lane that may still use the module */
    hdi_point *points;
    size_t n_points;
    /* The next one in the list of loaded modules, of unloaded modules, or of free structures. */
    struct hd_module *next;
};

/* The word that the head of a kernel contains as long as `handle` is a good handle of this
 * kernel. */
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

/* The kernel of a handle of a built-in module. Such kernels exist until the last call returns, even
 * if hd_close ends all handles during that call. */
static inline struct hd_kernel *hdi_kernel_of_builtin(const hd_kernel *handle)
{
    return (struct hd_kernel *)hdi_handle_object(handle);
}

static inline const hdi_params *hdi_kernel_params(const struct hd_kernel *kernel)
{
    /* Pairs with the release store in module.c, so that the parameters are complete. */
    return atomic_load_explicit(&kernel->params, memory_order_acquire);
}

/* Loads a kernel's code on a device and looks the kernel up there, unless this was done before.
 * `word`: as for hdi_kernel_allow_shared.
 * Blocking: a call waits while the driver works.
 * Errors: as hd_module_load and hd_kernel_get; HANDLE (unloaded during the call). */
hd_status hdi_kernel_prepare(struct hd_kernel *kernel, uint64_t word, hdi_device *device);

/* Allows launches of the kernel with `bytes` of dynamic shared memory on a device.
 * `word`: the expected word in the kernel's head (hdi_handle_head). 0: the kernel is never
 * unloaded.
 * Blocking: a call waits while the driver works.
 * Errors: LIMIT, DRIVER, DEVICE_LOST, HANDLE (unloaded during the call). */
hd_status hdi_kernel_allow_shared(struct hd_kernel *kernel, uint64_t word, hdi_device *device, size_t bytes);

/* The kernel with this number. The caller knows that some kernel with this number was looked up
 * before. After an unload, the number may belong to another kernel. */
const struct hd_kernel *hdi_kernel_numbered(hd_runtime *rt, uint32_t number);

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
 * Returns the launch's status. After a failure, the message names grid and arguments. */
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

/* For a device with a fresh worker process: loads all modules again that were loaded on the device
 * before.
 * Errors: as hd_module_load and hd_kernel_get. */
hd_status hdi_modules_restart(hd_runtime *rt, hdi_device *device);

/* The name of an hd_arg_kind in messages: "f32", "a buffer", "bytes" for structures. The text is
 * static. */
const char *hdi_arg_kind_name(uint32_t kind);

#endif
