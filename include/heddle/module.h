/* heddle/module.h - modules, kernels and launches.
 *
 * A module is loaded code. Its image, the code before loading, is PTX, a cubin, a fatbin, or a
 * Heddle kernel file. A kernel file contains PTX for GPUs, code for the CPU and a description of
 * each kernel's parameters. `heddle cc` makes kernel files from C source. Host devices run only
 * kernel files. nvcc compiles kernels in CUDA C++ to the other kinds of images (-cubin, -fatbin,
 * -ptx). hd_module_compile compiles CUDA C++ source text while the program runs.
 *
 * hd_launch checks a launch before it submits anything. The call checks the arguments, the limits
 * of grid and block, and the size of shared memory. The call also checks that the device reaches
 * every buffer. Which properties of arguments the call can check depends on the image. A kernel
 * file describes number, size, kind and access of the parameters. PTX, cubins and fatbins describe
 * only number and size.
 *
 * For a parameter that is a pointer, pass a buffer (hd_in, hd_out, hd_inout), or an address whose
 * uses the program orders itself (hd_address). For a structure, pass hd_bytes. If a kernel reaches
 * a buffer through pointers in other memory, also pass that buffer, after all other arguments
 * (hd_arg_implicit).
 *
 * Threads: any.
 * Blocking: hd_launch waits as its comment says. All other calls may load, compile or link code, or
 * wait while another thread loads code. These calls take as long as the driver, the compiler or the
 * linker needs.
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

/* Loads an image on the runtime's first device that is not lost. `bytes` is the size of the image.
 * Every other device loads the code at its first launch of a kernel of the module. With the option
 * module_loading=eager, all devices load the code during this call. The program may free `image`
 * after the call. The caller owns *out, and ends it with hd_module_unload.
 *
 * PTX text ends at a zero byte, or at the end of the image. Loading can take long, because on a
 * busy GPU the driver may wait for the end of a running kernel. During the call, work in lanes goes
 * on.
 *
 * Variables in constant and device memory begin with their values in the source. If an image
 * contains texture, surface or sampler references, the call fails with IMAGE, and the message names
 * one of them. If the image is device code that is not linked, the call also fails, and the message
 * names a missing function.
 * Errors: ARGUMENT, HANDLE, IMAGE, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST, SYSTEM (placement
 * process: no memory file). */
HD_API hd_status hd_module_load(hd_runtime *runtime, const void *image, size_t bytes, hd_module **out);

/* Reads a whole file and loads it as hd_module_load does. Later changes of the file have no effect.
 * `path` is relative to the current directory unless it begins with '/'. The caller owns *out, and
 * ends it with hd_module_unload.
 * Errors: as hd_module_load; NOT_FOUND (there is no such file), SYSTEM (the file cannot be read, or
 * is no regular file), IMAGE (also: the file is empty). The message gives the path. */
HD_API hd_status hd_module_load_file(hd_runtime *runtime, const char *path, hd_module **out);

/* Unloads a module. The handles of the module and its kernels end at once: a later launch fails
 * with HANDLE. Submitted launches still run, and the call does not wait for them. If all submitted
 * launches are done, the call unloads the code. Otherwise a later hd_module_load, hd_module_unload
 * or hd_close unloads the code, once these launches are done.
 *
 * Other work may also delay the unload. To unload code, the driver of a GPU waits for all work on
 * the GPU. On GPUs, Heddle therefore unloads the code after all submitted work on the devices that
 * loaded the code. If the program requested a variable of the module, any copy may use the
 * variable. Heddle then unloads the code after all submitted work on all devices. If `module` is
 * NULL, nothing happens.
 * Errors: HANDLE (the module was unloaded before). */
HD_API hd_status hd_module_unload(hd_module *module);

/* Options of hd_module_compile. All fields but `size` may be 0. */
typedef struct hd_compile_options {
    size_t size;      /* sizeof(hd_compile_options) */
    const char *name; /* name of the source in messages; NULL: "source.cu" */
    /* Options of NVRTC, one string each: "-DN=4", "-std=c++20", "-I/usr/include/mine". */
    const char *const *options;
    size_t n_options;
    /* Instances of templates that the module must contain, such as "scale<float>". */
    const char *const *kernels;
    size_t n_kernels;
} hd_compile_options;

/* Compiles CUDA C++ with NVRTC, and loads the result as hd_module_load does. The first call opens
 * NVRTC (option nvrtc). The program may free all texts after the call. `options` may be NULL. The
 * caller owns *out, and ends it with hd_module_unload. The call takes as long as the compiler
 * needs. Several threads may compile at the same time.
 *
 * The source may include heddle/kernel.h, and files in the folders that the options name (-I).
 * NVRTC makes code for the compute capability of the devices. If the devices have different compute
 * capabilities, NVRTC makes PTX for the lowest one. NVRTC runs in the calling process, even with
 * placement=process. hd_kernel_get takes each text of options->kernels, and all other names that
 * its comment lists.
 *
 * For later calls and processes, the library keeps the compiled code in the folder of the option
 * `cache`, at most 256 MiB. If the source or the options name files (for example #include "..." or
 * -I), the library keeps no code, because these files may change.
 * Errors: ARGUMENT (also an option that NVRTC refuses), HANDLE, IMAGE (the message gives the
 * compiler's first error, with its line), UNSUPPORTED (there is no NVRTC, it is too old for a
 * device, host devices), MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST, SYSTEM (placement process: no
 * memory file). */
HD_API hd_status hd_module_compile(hd_runtime *runtime, const char *source, const hd_compile_options *options,
                                   hd_module **out);

/* Device code for hd_module_link: PTX, a cubin or fatbin (nvcc -rdc=true), intermediate code (nvcc
 * -dlto), or an object file or library of nvcc. */
typedef struct hd_code_part {
    const void *bytes; /* PTX text ends after `count` bytes, or at an earlier zero */
    size_t count;
    const char *name; /* name in messages; NULL: its number */
} hd_code_part;

/* Links parts with nvJitLink, and loads the result as hd_module_load does. The first call opens
 * nvJitLink (option nvjitlink). If kernels launch kernels, pass libcudadevrt.a as another part. All
 * devices must have the same compute capability. The call reads the parts before it returns, and
 * takes as long as the linker needs. Several threads may link at the same time. The caller owns
 * *out, and ends it with hd_module_unload.
 * Errors: ARGUMENT (also a part that is no device code), HANDLE, IMAGE (the message gives the
 * linker's first error), UNSUPPORTED (there is no nvJitLink, devices that differ, host devices),
 * MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST, SYSTEM (placement process: no memory file). */
HD_API hd_status hd_module_link(hd_runtime *runtime, const hd_code_part *parts, size_t n_parts, hd_module **out);

/* Returns the kernel with the name `name`. The kernel belongs to the module. A kernel of CUDA C++
 * has several names. The call compares `name` with these names of the module's kernels, in this
 * order, until it finds a kernel:
 *   - a text of hd_compile_options.kernels
 *   - the kernel's symbol: "_ZN2ns5scaleIfEEvPT_i"
 *   - its signature: "ns::scale<float>(float*, int)"
 *   - the kernel's name with the arguments of its template: "ns::scale<float>"
 *   - its signature or name without these arguments: "ns::scale"
 *   - one of the last three without namespaces: "scale<float>", "scale"
 *
 * The call ignores blanks. If `name` fits several kernels, the call fails, and the message lists
 * them. For names other than symbols, the call needs the C++ library (libstdc++.so.6 or
 * libc++abi.so.1), and opens it when necessary.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (the message lists the module's kernels), LIMIT (more than
 * 4096 bytes of arguments), MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER. */
HD_API hd_status hd_kernel_get(hd_module *module, const char *name, hd_kernel **out);

/* A parameter of a kernel: hd_kernel_get_parameter. */
typedef struct hd_parameter_info {
    size_t size;   /* set by the caller to sizeof(hd_parameter_info) */
    uint32_t kind; /* hd_arg_kind; HD_ARG_NONE: only the size is known */
    /* Of a buffer: hd_access, and the type of the elements as in hd_arg. 0: the image does not
     * describe them. */
    uint32_t access;
    uint32_t bytes; /* size of the parameter; 8 for a buffer */
    /* The name in kernel source. For CUDA C++ it is the type in the source, such as "float*". "":
     * unknown. */
    char name[64];
} hd_parameter_info;

/* Describes parameter number `index` of a kernel, counted from 0. Language bindings use the call to
 * convert arguments.
 * Errors: ARGUMENT, HANDLE, NOT_FOUND (index is past the last one), UNSUPPORTED (the kernel's
 * parameters are not known). */
HD_API hd_status hd_kernel_get_parameter(hd_kernel *kernel, int index, hd_parameter_info *out);

/* Returns a variable of a module on a device, as a buffer. The declaration of such a variable
 * contains `__constant__` or `__device__` in CUDA C++, and HD_GLOBAL_CONSTANT or HD_GLOBAL in
 * kernel source. Each device uses its own copy of a variable. `name` is the name in the source,
 * with or without its namespaces, or the symbol, as for kernels.
 *
 * The buffer works like any other buffer with hd_write, hd_read, hd_copy, hd_fill and launches on
 * that device. Kernels on other devices cannot use the buffer (UNREACHABLE), but hd_copy can copy
 * it to and from other devices. After this call, every launch of a kernel of the module on that
 * device counts as a use of the variable. The launch reads the variable, and also writes it unless
 * the variable is constant. A later hd_write to the buffer therefore waits for the launches
 * submitted before it, and launches submitted after this hd_write see the written bytes.
 *
 * The memory belongs to the module, and appears in no report. Every call returns the same buffer
 * until hd_free or hd_module_unload ends its handle. hd_free does not change the variable. After
 * hd_free, launches do not count as uses of the variable until the program requests the variable
 * again. hd_hold_add refuses the buffer (UNSUPPORTED). If the device is lost, the buffer is also
 * lost. After a restart, the variable begins with its first value again, and the program must
 * request a new buffer.
 *
 * If the module's code is not on the device yet, the call loads the code.
 * Errors: ARGUMENT, HANDLE, NO_DEVICE, NOT_FOUND (the message lists the module's variables), LIMIT
 * (more than 64 variables of the module on the device), IMAGE, MEMORY, HOST_MEMORY, DEVICE_LOST,
 * DRIVER, TIMEOUT (option submit_timeout). */
HD_API hd_status hd_module_get_global(hd_module *module, int device, const char *name, hd_buffer **out);

/* Returns the module of Heddle's own kernels. The module belongs to the runtime, and contains these
 * kernels:
 *
 *   - hd_fill_u32(out u32 *y, u64 n, u32 value)           one thread per element
 *   - hd_copy_u32(out u32 *y, in u32 *x, u64 n)           one thread per element
 *   - hd_axpy_f32(inout f32 *y, in f32 *x, f32 a, u64 n)  y += a x; one thread per element
 *   - hd_matmul_f32(out f32 *c, in f32 *a, in f32 *b, u32 m, u32 n, u32 k)
 *        c[m x n] = a[m x k] b[k x n], row-major; block 32 x 32, grid ceil(n/32) x ceil(m/32)
 *   - hd_sum_f32(inout f32 *total, in f32 *x, u64 n)      total += sum of x; block 256, any grid
 *   - hd_combine_f32(inout f32 *y, in f32 *x, u64 n, u32 op)  one thread per element
 *        y becomes y op x. op is 0 for sums, 1 for products, 2 for the smaller and 3 for the
 *        greater value. There is such a kernel for i8, u8, i16, u16, i32, u32, i64, u64, f32 and
 *        f64. For integers, op may also be a bitwise operation: 4 for and, 5 for or, 6 for
 *        exclusive or; or a logical operation: 7 for and, 8 for or, 9 for exclusive or
 *
 * Errors: ARGUMENT, HANDLE, IMAGE, MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER, SYSTEM. */
HD_API hd_status hd_module_get_builtin(hd_runtime *runtime, hd_module **out);

/* ---- arguments ---- */

/* Extents of a grid in blocks, or of a block in threads. A 0 in z, or in y and z, counts as 1:
 * (hd_dims){.x = 256} is 256 x 1 x 1. */
typedef struct hd_dims {
    uint32_t x; /* at least 1 */
    uint32_t y; /* at least 1; 0 counts as 1 if z is 0, too */
    uint32_t z; /* 0 counts as 1 */
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
    HD_ARG_ADDRESS, /* an address for a pointer of the kernel; Heddle orders no uses of it */
    HD_ARG_ALSO     /* a buffer that the kernel uses, but no parameter takes */
} hd_arg_kind;

/* One kernel argument. Make it with the functions below. For buffers, `access` may also describe
 * the type of the elements. Bits 8 to 15 are then the hd_arg_kind of an element (HD_ARG_BYTES for a
 * structure), and bits 16 to 31 are the element's size in bytes. A launch compares these bits with
 * the kernel's description. If the bits are 0, `access` does not describe the elements, and the
 * launch compares nothing. */
typedef struct hd_arg {
    uint32_t kind;   /* hd_arg_kind */
    uint32_t access; /* hd_access of a buffer, for HD_ARG_BUFFER and HD_ARG_ALSO; else 0 */
    union {
        hd_buffer *buffer;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
        const void *bytes; /* hd_launch reads the bytes during the call */
    } value;
    size_t offset; /* buffers: the kernel gets the address of this byte */
    /* Buffers: the size in bytes of the part that the kernel uses (0: from `offset` to the end).
     * HD_ARG_BYTES: the size of the structure. */
    size_t size;
} hd_arg;

/* A number by value, for a parameter of the same type (hd_i8, hd_u8 and so on to hd_f64). */
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

/* The kernel uses a part of the buffer: `size` bytes that begin at `offset`. If `size` is 0, the
 * part extends to the end. */
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
/* The kernel reads `size` bytes that begin at `offset`. If `size` is 0, the range extends to the
 * end. */
static inline hd_arg hd_in_range(hd_buffer *b, size_t offset, size_t size)
{
    return hd_arg_buffer(b, HD_READ, offset, size);
}
/* The kernel writes `size` bytes that begin at `offset`. If `size` is 0, the range extends to the
 * end. */
static inline hd_arg hd_out_range(hd_buffer *b, size_t offset, size_t size)
{
    return hd_arg_buffer(b, HD_WRITE, offset, size);
}
/* The kernel reads and writes `size` bytes that begin at `offset`. If `size` is 0, the range
 * extends to the end. */
static inline hd_arg hd_inout_range(hd_buffer *b, size_t offset, size_t size)
{
    return hd_arg_buffer(b, HD_READ_WRITE, offset, size);
}

/* A structure of `size` bytes, passed by value. The program must keep the bytes until hd_launch
 * returns. */
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

/* A bare address for a pointer parameter: the kernel gets this number. 0 is a null pointer. Heddle
 * does not check the address, does not order uses of the memory at this address, and does not keep
 * this memory. The program must ensure that the memory exists while the kernel runs, and that the
 * device reaches the memory. The program must also order the uses of the memory, with
 * hd_arg_implicit, claims or waits. For a buffer, hd_buffer_address returns an address that is
 * valid on the device, in every placement. With placement=process, a kernel reaches only buffers,
 * no other memory of the program. If the parameter is no pointer, the launch fails with ARGUMENT.
 * CUDA code does not describe which parameters are pointers; for such code, the launch fails if the
 * parameter is not 8 bytes wide. */
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

/* A buffer that the kernel uses, although no parameter takes it. The kernel reaches the buffer
 * through a pointer in other memory, such as a list, a tree or an array of pointers. Make `use`
 * with hd_in, hd_out, hd_inout, hd_in_range, hd_out_range or hd_inout_range. In `args`, put the
 * result behind the arguments of all parameters. hd_launch treats the buffer like a buffer that is
 * an argument: the call checks the buffer, and orders the launch by this use. */
static inline hd_arg hd_arg_implicit(hd_arg use)
{
    /* hd_launch refuses a `use` of another kind */
    use.access = use.kind == HD_ARG_BUFFER || use.kind == HD_ARG_ALSO ? use.access : 0;
    use.kind = HD_ARG_ALSO;
    return use;
}

/* ---- launches ---- */

/* Submits a launch to a lane. `args` contains one argument for each parameter of the kernel, then
 * any number of results of hd_arg_implicit. The call reads `args` before it returns. `shared_bytes`
 * is the size of the dynamic shared memory. *out (may be NULL) is the launch's ticket. The call
 * returns at once, except in these cases:
 *   - the lane is full
 *   - the launch is the first on its device that uses memory of another device (heddle/peer.h)
 *   - the launch is the kernel's first on the device (the device may have to load the code, see
 *     hd_module_load)
 *   - the launch is the kernel's first with more shared memory than the driver allows by default
 *
 * If the call fails, it submitted nothing, with one exception. For debugging, the option
 * launch_wait=on makes the call wait until the kernel ends. The call then also returns a failure of
 * the kernel (FAILED or DEVICE_LOST).
 * Errors: ARGUMENT (an extent is 0, and a later one is not; wrong number, size or kind of
 * arguments; an hd_arg_implicit that is in front of an argument, or is no buffer; null args),
 * HANDLE, RANGE, ACCESS (an argument's access contradicts the kernel's; a unified buffer is mapped,
 * see heddle/unified.h), LIMIT (grid, block, shared memory, argument bytes, more than 128 buffers),
 * UNREACHABLE, MEMORY (there is not enough memory to map another device's memory), FAILED (a failed
 * operation wrote bytes that the kernel reads), LANE_FAILED, DEVICE_LOST, HOST_MEMORY, DRIVER,
 * UNSUPPORTED (the kernel's parameters are not known), TIMEOUT (the lane stayed full for the time
 * of the option submit_timeout). */
HD_API hd_status hd_launch(hd_lane *lane, hd_kernel *kernel, hd_dims grid, hd_dims block, size_t shared_bytes,
                           const hd_arg *args, size_t n_args, hd_ticket *out);

HD_END_DECLS
#endif
