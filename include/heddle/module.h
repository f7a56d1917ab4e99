/* heddle/module.h - modules, kernels and launches.
 *
 * A module is loaded code: PTX, a cubin, a fatbin, or a Heddle kernel file. A kernel file contains
 * PTX for GPUs, code for the CPU and a description of each kernel's parameters. `heddle cc` makes
 * kernel files from C source. Host devices run only kernel files. Kernels in CUDA C++ come from
 * nvcc (-cubin, -fatbin, -ptx), or from source text (hd_module_compile).
 *
 * Launches are checked before anything is submitted: number, size, kind and access of the
 * arguments, grid and block limits, and shared memory. The device must also reach every buffer.
 * Arguments are checked as far as the image describes them. A kernel file describes everything.
 * PTX, cubins and fatbins describe number and size. A pointer takes a buffer, or an address if the
 * program ensures the order itself (hd_address). A structure takes hd_bytes. Memory that a kernel
 * reaches through pointers inside of other memory follows the arguments (hd_arg_implicit).
 *
 * Threads: any.
 * Blocking: hd_launch, as its comment says. All other calls load, compile or link code, or wait
 * while another thread loads some. They take as long as the driver, the compiler or the linker.
 */
#ifndef HEDDLE_MODULE_H
#define HEDDLE_MODULE_H

#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* A module: loaded code. */
typedef struct hd_module hd_module;
/* A kernel of a module. */
typedef struct hd_kernel hd_kernel;

/* ---- modules and kernels ---- */

/* Loads an image on the first device of the runtime that is not lost. Every other device gets the
 * code with its first launch, or now with the option module_loading=eager. `image` may be released
 * on return. The caller owns *out: hd_module_unload.
 *
 * PTX text must end with a zero byte inside `bytes`, or fill `bytes` exactly (a missing terminating
 * zero is added). Calls the driver. That can take long, on a busy GPU as long as the running
 * kernel, but work in lanes goes on meanwhile.
 *
 * Variables in constant and device memory begin as the source initialises them. An image with
 * texture, surface or sampler references is refused: IMAGE, with the name. Device code that is not
 * linked is refused, too, with the function that it lacks.
 * Errors: ARGUMENT, HANDLE, IMAGE, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST, SYSTEM (placement
 * process: no memory file). */
HD_API hd_status hd_module_load(hd_runtime *runtime, const void *image, size_t bytes, hd_module **out);

/* Loads a file: reads it as a whole, and does the same as hd_module_load. Later changes of the file
 * have no effect. `path` is relative to the current directory unless it begins with '/'. The caller
 * owns *out: hd_module_unload.
 * Errors: as hd_module_load; NOT_FOUND (there is no such file), SYSTEM (the file cannot be read, or
 * is no regular file), IMAGE (it is empty, too). The message gives the path. */
HD_API hd_status hd_module_load_file(hd_runtime *runtime, const char *path, hd_module **out);

/* Unloads a module once submitted launches of its kernels are finished. Does not wait for them:
 * while some are in flight, a later hd_module_load, hd_module_unload or hd_close calls the driver.
 * With none in flight, this call does. The driver of a GPU waits for everything that runs there. On
 * GPUs all work of the devices with the code therefore counts as in flight. If a variable was
 * requested, all work counts. The module's kernels must not be launched afterwards: HANDLE. NULL:
 * nothing happens.
 * Errors: HANDLE (it was unloaded before). */
HD_API hd_status hd_module_unload(hd_module *module);

/* CUDA C++ compiled as text. All fields but `size` may be 0. */
typedef struct hd_compile_options {
    size_t size;      /* sizeof(hd_compile_options) */
    const char *name; /* name of the source in messages; NULL: "source.cu" */
    /* Options of NVRTC, each as one text: "-DN=4", "-std=c++20", "-I/usr/include/mine". */
    const char *const *options;
    size_t n_options;
    /* Instances of templates that the module must contain: "scale<float>". */
    const char *const *kernels;
    size_t n_kernels;
} hd_compile_options;

/* Compiles CUDA C++ with NVRTC, which the first call opens (option nvrtc), and loads the result as
 * hd_module_load does. All texts are read during the call. `options` may be NULL. The caller owns
 * *out: hd_module_unload. Takes as long as the compiler. Any thread, several at once, too.
 *
 * The source may include heddle/kernel.h, and files that the options make known. The code is for
 * the compute capability of the devices. If they differ, it becomes PTX for the lowest. With
 * placement=process the calling process compiles. hd_kernel_get takes every text of `kernels` as it
 * stands there, and all other names of the module.
 *
 * The folder of the option cache keeps results, 256 MiB at most, for later calls and processes.
 * Nothing is kept if the source or the options name files, whose contents may change: #include
 * "...", -I and the like.
 * Errors: ARGUMENT (also an option that NVRTC refuses), HANDLE, IMAGE (the message gives the
 * compiler's first error, with its line), UNSUPPORTED (there is no NVRTC, it is too old for a
 * device, host devices), MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST, SYSTEM (placement process: no
 * memory file). */
HD_API hd_status hd_module_compile(hd_runtime *runtime, const char *source, const hd_compile_options *options,
                                   hd_module **out);

/* Device code to be linked: PTX, a cubin or fatbin (nvcc -rdc=true), intermediate code (nvcc
 * -dlto), or an object file or library of nvcc. */
typedef struct hd_code_part {
    const void *bytes; /* PTX text ends at `count`, or at a zero before that */
    size_t count;
    const char *name; /* name in messages; NULL: its number */
} hd_code_part;

/* Links parts with nvJitLink, which the first call opens (option nvjitlink), and loads the result
 * as hd_module_load does. Kernels that launch kernels need libcudadevrt.a as another part. All
 * devices must be of the same compute capability. The parts are read during the call. Takes as long
 * as the linker. Any thread, several at once, too. The caller owns *out: hd_module_unload.
 * Errors: ARGUMENT (also a part that is no device code), HANDLE, IMAGE (the message gives the
 * linker's first error), UNSUPPORTED (there is no nvJitLink, devices that differ, host devices),
 * MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST, SYSTEM (placement process: no memory file). */
HD_API hd_status hd_module_link(hd_runtime *runtime, const hd_code_part *parts, size_t n_parts, hd_module **out);

/* Returns a kernel by name; it belongs to its module. A kernel of CUDA C++ has several names. The
 * first of these ways that fits one kernel decides:
 *   - a text of hd_compile_options.kernels
 *   - its symbol: "_ZN2ns5scaleIfEEvPT_i"
 *   - its signature: "ns::scale<float>(float*, int)"
 *   - its name with the arguments of its template: "ns::scale<float>"
 *   - its signature or name without these arguments: "ns::scale"
 *   - the same without namespaces: "scale<float>", "scale"
 *
 * Blanks do not matter. A text that fits several kernels is refused, and the message lists them.
 * All but symbols need the C++ library (libstdc++.so.6 or libc++abi.so.1), which is opened at the
 * first need.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (the message lists what there is), LIMIT (more than 4096
 * bytes of arguments), MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER. */
HD_API hd_status hd_kernel_get(hd_module *module, const char *name, hd_kernel **out);

/* Returns a variable of the module on a device, as a buffer. These are `__constant__` and
 * `__device__` of CUDA C++, HD_GLOBAL_CONSTANT and HD_GLOBAL of kernel source. Each device uses its
 * own. The name is as written in the source, with its namespaces or without, or the symbol, as for
 * kernels.
 *
 * The buffer works like any other: hd_write, hd_read, hd_copy, hd_fill, and arguments of launches
 * on that device. Kernels of other devices do not reach it: UNREACHABLE; hd_copy does. From now on
 * each launch of a kernel of the module on that device counts as a use of the variable. It reads
 * the variable, and also writes it unless it is constant. So hd_write runs after launches submitted
 * before it, and later launches see its bytes.
 *
 * The memory belongs to the module, and appears in no report. Every call returns the same buffer
 * until hd_free ends its handle, which does not change the variable. Launches then no longer use
 * the variable, until it is requested again. hd_module_unload ends the handle, too. The buffer
 * takes no hold: UNSUPPORTED. If the device is lost, the buffer is, too. After a restart the
 * variable has its first value, and must be requested again.
 *
 * Loads the module's code on the device, unless that was done.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, NOT_FOUND (the message lists what there is), LIMIT (more
 * than 64 variables of the module on the device), IMAGE, MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER,
 * TIMEOUT (the option submit_timeout). */
HD_API hd_status hd_module_get_global(hd_module *module, int device, const char *name, hd_buffer **out);

/* Returns Heddle's own kernels: a module that belongs to the runtime and contains
 *
 *   - hd_fill_u32(out u32 *y, u64 n, u32 value)           one thread per element
 *   - hd_copy_u32(out u32 *y, in u32 *x, u64 n)           one thread per element
 *   - hd_axpy_f32(inout f32 *y, in f32 *x, f32 a, u64 n)  y += a x; one thread per element
 *   - hd_matmul_f32(out f32 *c, in f32 *a, in f32 *b, u32 m, u32 n, u32 k)
 *        c[m x n] = a[m x k] b[k x n], row-major; block 32 x 32, grid ceil(n/32) x ceil(m/32)
 *   - hd_sum_f32(inout f32 *total, in f32 *x, u64 n)      *total += sum of x; block 256, any grid
 *
 * Errors: ARGUMENT, HANDLE, IMAGE, MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_module_get_builtin(hd_runtime *runtime, hd_module **out);

/* ---- arguments ---- */

/* Extents of a grid in blocks, or of a block in threads. Missing extents at the end are 1:
 * (hd_dims){.x = 256} is 256 x 1 x 1. */
typedef struct hd_dims {
    uint32_t x; /* at least 1 */
    uint32_t y; /* at least 1, or 0 if z is 0, too: 1 */
    uint32_t z; /* 0: 1 */
} hd_dims;

/* The kind of an argument. */
typedef enum hd_arg_kind {
    HD_ARG_NONE = 0,
    HD_ARG_BUFFER,
    HD_ARG_I8,
    HD_ARG_U8,
    HD_ARG_I16,
    HD_ARG_U16,
    HD_ARG_I32,
    HD_ARG_U32,
    HD_ARG_I64,
    HD_ARG_U64,
    HD_ARG_F32,
    HD_ARG_F64,
    HD_ARG_BYTES,   /* a structure by value, up to 4096 bytes */
    HD_ARG_ADDRESS, /* for a pointer of the kernel: an address, without any order */
    HD_ARG_ALSO     /* a buffer that the kernel uses without a parameter for it */
} hd_arg_kind;

/* One kernel argument. Make it with the functions below. For buffers, `access` may also describe an
 * element. Bits 8 to 15 are its hd_arg_kind, with HD_ARG_BYTES for a structure, and bits 16 to 31
 * its size. These bits are 0 if it is not described. A launch compares them with the kernel's
 * description. */
typedef struct hd_arg {
    uint32_t kind;   /* hd_arg_kind */
    uint32_t access; /* hd_access, for buffers, also those of HD_ARG_ALSO; else 0 */
    union {
        hd_buffer *buffer;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
        const void *bytes; /* read during the hd_launch call */
    } value;
    size_t offset; /* buffers: the kernel gets the address of this byte */
    /* Buffers: how many bytes from there the kernel uses, 0: to the end. HD_ARG_BYTES: the size. */
    size_t size;
} hd_arg;

/* A number by value, for a parameter of that type. */
#define HD_ARG_MAKER(name, kind_, type, field)                                                                         \
    static inline hd_arg hd_##name(type v)                                                                             \
    {                                                                                                                  \
        hd_arg a;                                                                                                      \
        a.kind = kind_, a.access = 0, a.offset = 0, a.size = 0, a.value.u64 = 0, a.value.field = v;                    \
        return a;                                                                                                      \
    }
HD_ARG_MAKER(i8, HD_ARG_I8, int8_t, i64)
HD_ARG_MAKER(u8, HD_ARG_U8, uint8_t, u64)
HD_ARG_MAKER(i16, HD_ARG_I16, int16_t, i64)
HD_ARG_MAKER(u16, HD_ARG_U16, uint16_t, u64)
HD_ARG_MAKER(i32, HD_ARG_I32, int32_t, i64)
HD_ARG_MAKER(u32, HD_ARG_U32, uint32_t, u64)
HD_ARG_MAKER(i64, HD_ARG_I64, int64_t, i64)
HD_ARG_MAKER(u64, HD_ARG_U64, uint64_t, u64)
HD_ARG_MAKER(f32, HD_ARG_F32, float, f32)
HD_ARG_MAKER(f64, HD_ARG_F64, double, f64)
#undef HD_ARG_MAKER

/* The kernel uses `size` bytes of the buffer from `offset` on; 0: to the end. */
static inline hd_arg hd_arg_buffer(hd_buffer *buffer, hd_access access, size_t offset, size_t size)
{
    hd_arg a;
    a.kind = HD_ARG_BUFFER;
    a.access = access;
    a.value.buffer = buffer;
    a.offset = offset;
    a.size = size;
    return a;
}
/* The kernel reads the whole buffer. */
static inline hd_arg hd_in(hd_buffer *buffer)
{
    return hd_arg_buffer(buffer, HD_READ, 0, 0);
}
/* The kernel writes the whole buffer, and reads none of its earlier bytes. */
static inline hd_arg hd_out(hd_buffer *buffer)
{
    return hd_arg_buffer(buffer, HD_WRITE, 0, 0);
}
/* The kernel reads and writes the whole buffer. */
static inline hd_arg hd_inout(hd_buffer *buffer)
{
    return hd_arg_buffer(buffer, HD_READ_WRITE, 0, 0);
}
/* The kernel reads `size` bytes from `offset` on; 0: to the end. */
static inline hd_arg hd_in_range(hd_buffer *b, size_t offset, size_t size)
{
    return hd_arg_buffer(b, HD_READ, offset, size);
}
/* The kernel writes `size` bytes from `offset` on; 0: to the end. */
static inline hd_arg hd_out_range(hd_buffer *b, size_t offset, size_t size)
{
    return hd_arg_buffer(b, HD_WRITE, offset, size);
}
/* The kernel reads and writes `size` bytes from `offset` on; 0: to the end. */
static inline hd_arg hd_inout_range(hd_buffer *b, size_t offset, size_t size)
{
    return hd_arg_buffer(b, HD_READ_WRITE, offset, size);
}

/* A structure by value. The launch reads `size` bytes, and the program keeps them until then. */
static inline hd_arg hd_bytes(const void *bytes, size_t size)
{
    hd_arg a;
    a.kind = HD_ARG_BYTES;
    a.access = 0;
    a.value.bytes = bytes;
    a.offset = 0;
    a.size = size;
    return a;
}

/* A bare address for a pointer parameter: the kernel gets this number. Heddle orders nothing by it,
 * checks nothing of it and keeps nothing for it. The program must ensure that the memory is there
 * and that the device reaches it. The program must also order the uses of that memory, by
 * hd_arg_implicit, claims or waits. 0 is a null pointer. The address is one of the device:
 * hd_buffer_address returns those of buffers, the same in every placement. With placement=process
 * no other memory of the program is there. A parameter that is no pointer, or a number of CUDA code
 * that is not 8 bytes wide, refuses it: ARGUMENT. */
static inline hd_arg hd_address(uint64_t address)
{
    hd_arg a;
    a.kind = HD_ARG_ADDRESS;
    a.access = 0;
    a.value.u64 = address;
    a.offset = 0;
    a.size = 0;
    return a;
}

/* A buffer that the kernel uses without an argument for it. The kernel gets there by a pointer
 * inside of other memory: a list, a tree, an array of pointers. Make `use` with hd_in, hd_out,
 * hd_inout or their ranges. In `args` it stands behind the arguments of all parameters. The launch
 * uses it like any other buffer, for the order and for failures. Every check of a buffer argument
 * applies to it. */
static inline hd_arg hd_arg_implicit(hd_arg use)
{
    /* hd_launch refuses other kinds */
    use.access = use.kind == HD_ARG_BUFFER || use.kind == HD_ARG_ALSO ? use.access : 0;
    use.kind = HD_ARG_ALSO;
    return use;
}

/* ---- launches ---- */

/* Submits a launch to a lane. `args` is read during the call: one for each parameter of the kernel,
 * then any number of hd_arg_implicit. *out (may be NULL) is the launch's ticket. Returns at once,
 * unless:
 *   - the lane is full
 *   - two devices meet for the first time
 *   - the kernel is launched for the first time on the device (its code may have to be loaded, see
 *     hd_module_load)
 *   - the kernel first asks for more than the usual shared memory (then the driver is asked)
 *
 * Errors come before anything is submitted.
 * Errors: ARGUMENT (an extent is 0 that is not missing at the end, wrong number, size or kind of
 * arguments, an hd_arg_implicit in front of an argument or of no buffer, null args), HANDLE, RANGE,
 * ACCESS (an argument's access contradicts the kernel's; a unified buffer is mapped for writing),
 * LIMIT (grid, block, shared memory, argument bytes, more than 128 buffers), UNREACHABLE, FAILED
 * (an argument's content was made by a failed operation), LANE_FAILED, DEVICE_LOST, HOST_MEMORY,
 * DRIVER, UNSUPPORTED (the kernel's parameters are not known), TIMEOUT (the lane stayed full for
 * the option submit_timeout). With the option launch_wait=on, for debugging, it waits until the
 * kernel has ended, and returns its failure, too: FAILED or DEVICE_LOST. */
HD_API hd_status hd_launch(hd_lane *lane, hd_kernel *kernel, hd_dims grid, hd_dims block, size_t shared_bytes,
                           const hd_arg *args, size_t n_args, hd_ticket *out);

HD_END_DECLS
#endif
