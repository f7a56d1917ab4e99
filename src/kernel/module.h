/* module.h - the structures behind hd_module and hd_kernel. */
#ifndef HDI_KERNEL_MODULE_H
#define HDI_KERNEL_MODULE_H

#include <heddle/module.h>
#include "data/submit.h"
#include "engine/runtime.h"
#include "kernel/describe_image.h"

/* What is known of a kernel's parameters. hd_launch reads it before it looks at the kernel's handle again, when it may be another kernel's
 * already: such memory is used for nothing else until hd_close, and whatever is read in it lies inside an argument block, with at most `n`
 * parameters (params.c). */
typedef struct hdi_params {
    uint32_t n;
    uint32_t argument_bytes;
    bool described;          /* the parameters are known at all */
    uint8_t class;           /* room for so many, as a power of two */
    struct hdi_params *next; /* on a free list */
    struct hdi_params *made; /* before this one, of all */
    hdi_param of[];
} hdi_params;

/* Slots are used again after an unload; `generation` tells handles of before. `number` is the kernel's place in the runtime's table. */
struct hd_kernel {
    hdi_handle_head head;
    uint32_t number;
    bool has_params; /* `params` is this generation's: else that of one before */
    hd_runtime *runtime;
    struct hd_module *module;
    _Atomic(hdi_params *) params;
    char name[HDI_KERNEL_NAME_BYTES];
    /* On each device; 0 threads: not looked up there, which may be done while others launch. */
    _Atomic uint32_t max_threads[HDI_DEVICES_MAX]; /* per block */
    _Atomic uint32_t static_shared[HDI_DEVICES_MAX];
    _Atomic uint32_t dynamic_shared[HDI_DEVICES_MAX]; /* allowed so far without asking the driver */
    struct hd_kernel *next;                           /* of the same module, or on the free list */
};

struct hd_module {
    hdi_handle_head head;
    hd_runtime *runtime;
    uint64_t loaded[HDI_DEVICES_MAX]; /* the module's number on each device's port, 0: not there */
    hdi_image image;
    hdi_code code; /* in the image: what is loaded */
    hdi_shm file;  /* the code once more, for worker processes */
    struct hd_kernel *kernels;
    bool is_builtin;   /* belongs to the runtime: never unloaded before hd_close */
    hdi_point *points; /* unloaded: work that may still use it */
    size_t n_points;
    struct hd_module *next; /* list of all, of unloaded ones, or free list */
};

/* What the word of a good handle's kernel is. */
static inline uint64_t hdi_kernel_word(const hd_kernel *handle)
{
    return hdi_handle_word(HDI_KERNEL_MAGIC, hdi_handle_generation(handle), HDI_HANDLE_LIVE);
}

/* NULL: not a kernel, or its module was unloaded. */
static inline struct hd_kernel *hdi_kernel_from_handle(const hd_kernel *handle)
{
    struct hd_kernel *k = (struct hd_kernel *)hdi_handle_object(handle);
    return k && hdi_handle_fits(handle, &k->head, HDI_KERNEL_MAGIC) ? k : NULL;
}

/* Of a built-in module, whose kernels are there until the last call has come back, also where hd_close has ended all handles meanwhile. */
static inline struct hd_kernel *hdi_kernel_of_builtin(const hd_kernel *handle)
{
    return (struct hd_kernel *)hdi_handle_object(handle);
}

static inline const hdi_params *hdi_kernel_params(const struct hd_kernel *kernel)
{
    /* pairs with the release store in params.c */
    return atomic_load_explicit(&kernel->params, memory_order_acquire);
}

/* Loads a kernel's code on a device, and looks it up there, unless that was done. `word` as below. Errors: as hd_module_load and hd_kernel_get,
 * HANDLE (unloaded meanwhile). */
hd_status hdi_kernel_prepare(struct hd_kernel *kernel, uint64_t word, hdi_device *device, const char *who);

/* Makes `bytes` of dynamic shared memory allowed for launches of the kernel on a device. `word`: of the kernel's handle (hdi_handle_head); 0: it
 * is never unloaded. Errors: LIMIT, DRIVER, DEVICE_LOST, HANDLE (unloaded meanwhile). */
hd_status hdi_kernel_allow_shared(struct hd_kernel *kernel, uint64_t word, hdi_device *device, size_t bytes);

/* "not a kernel of this runtime, or its module was unloaded" */
hd_status hdi_kernel_refused(const char *who);

/* A launch of one of the library's own kernels, whose shape and arguments are known to be right: `arguments` is the block of
 * kernel->argument_bytes bytes that the kernel gets, `uses` says what it does with which buffers (all of them reachable from the lane's device); `among` as for
 * hdi_submit_linked.
 * Errors: as hdi_submit, and DEVICE_LOST, LIMIT, DRIVER. */
hd_status hdi_launch_linked(hd_lane *lane, struct hd_kernel *kernel, uint32_t grid, uint32_t block, size_t shared_bytes,
                            const void *arguments, const hdi_use *uses, size_t n_uses, hdi_linked link, const char *who,
                            hd_ticket *out);

/* launch_wait.c: hd_runtime.on_launched with the option launch_wait. Waits until the launch, whose command this is, has ended: its status, with
 * grid and arguments in the message. */
hd_status hdi_launch_await(hd_lane *lane, const hdi_command *command, uint64_t position);

/* The library's own kernel files, embedded (cmake/builtin.cmake): each is loaded when first asked for and belongs to the runtime.
 * Errors: as hd_module_get_builtin. */
typedef enum hdi_builtin {
    HDI_BUILTIN_BASIC, /* hd_module_get_builtin */
    HDI_BUILTIN_TENSOR,
    HDI_BUILTIN_MATMUL,
    HDI_BUILTIN_PROBE, /* of the test of peer access */
    HDI_BUILTINS
} hdi_builtin;
hd_status hdi_builtin_get(hd_runtime *rt, hdi_builtin which, hd_module **out);

hd_status hdi_modules_create(hd_runtime *rt);
void hdi_modules_close(hd_runtime *rt); /* hd_close: no handle fits any more */
void hdi_modules_release(hd_runtime *rt, bool driver_usable);

/* The device has a fresh worker process: loads there what it had. Errors: as hd_module_load and hd_kernel_get. */
hd_status hdi_modules_restart(hd_runtime *rt, hdi_device *device);

/* "f32", "buffer"; "bytes" for structures. Static. */
const char *hdi_arg_kind_name(uint32_t kind);

#endif
