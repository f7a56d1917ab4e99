/* heddle/kernel.h - the header for kernel source: C source that `heddle cc` compiles for GPUs and
 * for the CPU.
 *
 *     #include <heddle/kernel.h>
 *
 *     HD_KERNEL(scale, HD_INOUT(float, y), HD_VALUE(float, factor), HD_VALUE(uint64_t, n))
 *     {
 *         uint64_t i = hd_global_x();
 *         if (i < n) {
 *             y[i] *= factor;
 *         }
 *     }
 *
 * `heddle cc` compiles such a file twice: to PTX for GPUs, and to a shared object for the CPU. It
 * puts both results into a kernel file, which hd_module_load loads. Write kernels in the part of C
 * that is also valid C++, because the compilers for GPUs compile them as C++. Do not use the C
 * library.
 *
 * A parameter is HD_IN, HD_OUT or HD_INOUT(element type, name), or HD_VALUE(type, name). HD_IN is a
 * buffer that the kernel reads. HD_OUT is a buffer that the kernel writes. HD_INOUT is a buffer
 * that the kernel reads and writes. In the kernel, these three are pointers; HD_IN is a pointer to
 * const. HD_VALUE is a number or a structure by value. A kernel takes at most 32 parameters, which
 * take at most 4096 bytes together.
 *
 *     HD_KERNEL(name, ...)                  begins a kernel with these parameters
 *     HD_KERNEL_BOUNDS(name, threads, ...)  begins a kernel for blocks of at most `threads` threads
 *     HD_DEVICE                             begins a function that kernels call
 *     HD_SELF                               the first parameter of such a function if it calls a
 *                                           function below or of heddle/kernel_warp.h, prints or
 *                                           asserts; the caller passes hd_self
 *     HD_SHARED                             begins a variable that the threads of a block share;
 *                                           its first value is undefined
 *     HD_DYNAMIC_SHARED(type, name)         an array that the threads of a block share; the launch
 *                                           sets its size
 *
 * These functions return the position of the calling thread, and the extents of its block and grid.
 * hd_global_x(), _y() and _z() return numbers of 64 bits. The other functions return numbers of 32
 * bits:
 *
 *     hd_thread_x(), _y(), _z()             the thread in its block
 *     hd_block_x(), _y(), _z()              the block in the grid
 *     hd_block_dim_x(), _y(), _z()          threads of a block
 *     hd_grid_dim_x(), _y(), _z()           blocks of the grid
 *     hd_global_x(), _y(), _z()             the thread in the grid
 *
 * The threads of a block meet at a barrier:
 *
 *     hd_barrier()                          waits for the other threads of the block that still
 *                                           run; afterwards each thread sees the earlier writes of
 *                                           the others
 *
 * There are three kinds of variables outside of kernels. HD_CONSTANT begins a constant whose value
 * is in the source. HD_GLOBAL and HD_GLOBAL_CONSTANT begin variables that the program can read and
 * write as buffers (hd_module_get_global). Kernels may write HD_GLOBAL, but not HD_GLOBAL_CONSTANT.
 * Each device uses its own copy of such a variable. The copy begins with the value in the source,
 * or with zeros. Only one source of a kernel file may define a variable's name.
 *
 *     HD_GLOBAL_CONSTANT float coefficients[16];
 *     HD_GLOBAL uint32_t hits;
 *
 * Ordinary C and C++ code may also include this header, and gets the structures below. In C, the
 * macros define CPU kernels. In C++, the header defines no macros for kernels.
 */
#ifndef HEDDLE_KERNEL_H
#define HEDDLE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDA__) || defined(__CUDACC__)
#define HD_KERNEL_GPU 1
#else
#define HD_KERNEL_GPU 0
#endif

#ifdef __CUDACC_RTC__ /* NVRTC defines these, but only under other names */
#define __asm__ asm
template <class T> struct hd_plain_type {
    typedef T type;
};
template <class T> struct hd_plain_type<T &> {
    typedef T type;
};
#define __typeof__(x) hd_plain_type<decltype(x)>::type
#define __builtin_memcpy(to, from, bytes) memcpy(to, from, bytes)
#define __builtin_fabs(x) fabs(x)
#endif

#if HD_KERNEL_GPU

/* ---- GPU: clang or nvcc ---- */

#ifndef _Bool
#define _Bool bool /* as in C */
#endif

#define HD_IN(type, name) const type *name
#define HD_OUT(type, name) type *name
#define HD_INOUT(type, name) type *name
#define HD_VALUE(type, name) type name

/* The declaration in front is for -Wmissing-prototypes. */
#define HD_KERNEL(name, ...)                                                                                           \
    extern "C" __attribute__((global)) void name(__VA_ARGS__);                                                         \
    extern "C" __attribute__((global)) void name(__VA_ARGS__)
#define HD_KERNEL_BOUNDS(name, max_threads, ...)                                                                       \
    extern "C" __attribute__((global)) void __attribute__((launch_bounds(max_threads))) name(__VA_ARGS__);             \
    extern "C" __attribute__((global)) void __attribute__((launch_bounds(max_threads))) name(__VA_ARGS__)

#define HD_DEVICE static inline __attribute__((device, unused))
#define HD_CONSTANT static __attribute__((constant)) const
#define HD_GLOBAL __attribute__((device))
#define HD_GLOBAL_CONSTANT __attribute__((constant))
#define HD_SHARED static __attribute__((shared))
#define HD_DYNAMIC_SHARED(type, name) extern __attribute__((shared, aligned(16))) type name[]

struct hd_kernel_thread;
#define HD_SELF struct hd_kernel_thread *
#define hd_self ((struct hd_kernel_thread *)0)

#ifdef __clang__
#define hd_thread_x() ((uint32_t)__nvvm_read_ptx_sreg_tid_x())
#define hd_thread_y() ((uint32_t)__nvvm_read_ptx_sreg_tid_y())
#define hd_thread_z() ((uint32_t)__nvvm_read_ptx_sreg_tid_z())
#define hd_block_x() ((uint32_t)__nvvm_read_ptx_sreg_ctaid_x())
#define hd_block_y() ((uint32_t)__nvvm_read_ptx_sreg_ctaid_y())
#define hd_block_z() ((uint32_t)__nvvm_read_ptx_sreg_ctaid_z())
#define hd_block_dim_x() ((uint32_t)__nvvm_read_ptx_sreg_ntid_x())
#define hd_block_dim_y() ((uint32_t)__nvvm_read_ptx_sreg_ntid_y())
#define hd_block_dim_z() ((uint32_t)__nvvm_read_ptx_sreg_ntid_z())
#define hd_grid_dim_x() ((uint32_t)__nvvm_read_ptx_sreg_nctaid_x())
#define hd_grid_dim_y() ((uint32_t)__nvvm_read_ptx_sreg_nctaid_y())
#define hd_grid_dim_z() ((uint32_t)__nvvm_read_ptx_sreg_nctaid_z())
#define hd_barrier() __syncthreads()
#else
#define hd_thread_x() ((uint32_t)threadIdx.x)
#define hd_thread_y() ((uint32_t)threadIdx.y)
#define hd_thread_z() ((uint32_t)threadIdx.z)
#define hd_block_x() ((uint32_t)blockIdx.x)
#define hd_block_y() ((uint32_t)blockIdx.y)
#define hd_block_z() ((uint32_t)blockIdx.z)
#define hd_block_dim_x() ((uint32_t)blockDim.x)
#define hd_block_dim_y() ((uint32_t)blockDim.y)
#define hd_block_dim_z() ((uint32_t)blockDim.z)
#define hd_grid_dim_x() ((uint32_t)gridDim.x)
#define hd_grid_dim_y() ((uint32_t)gridDim.y)
#define hd_grid_dim_z() ((uint32_t)gridDim.z)
#define hd_barrier() __syncthreads()
#endif

#else

/* ---- CPU: shared by compiled kernels and the loader ---- */

#ifdef __cplusplus
extern "C" {
#endif

#define HD_CPU_MODULE_MAGIC 0x4d434448u /* "HDCM" */
#define HD_CPU_KERNEL_MAGIC 0x4b434448u /* "HDCK" */
#define HD_CPU_MODULE_VERSION 3u

struct hd_kernel_thread;

/* The values that the threads of a warp brought to a meeting, as bits (heddle/kernel_warp.h). */
typedef struct hd_warp_values {
    uint64_t of[32];
    uint32_t present; /* a bit for each lane that takes part; other values are unspecified */
} hd_warp_values;

/* Functions that the caller of a kernel's entry provides for the kernel's threads
 * (heddle/kernel_warp.h, heddle/kernel_print.h). */
typedef struct hd_cpu_services {
    /* Returns after all threads of the warp that still run called this function. All threads
     * pass the same `what`, which is HD_WARP_*. The result is valid until the thread's next
     * call. */
    const hd_warp_values *(*meet)(struct hd_kernel_thread *self, uint32_t what, uint64_t value);
    int (*print)(struct hd_kernel_thread *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
    /* Ends the launch, and does not return. */
    void (*failed)(struct hd_kernel_thread *self, const char *text, const char *file, int line);
} hd_cpu_services;

/* The data of one thread of a block. The caller of a kernel's `entry` makes and owns this
 * structure. */
typedef struct hd_kernel_thread {
    struct {
        uint32_t x, y, z;
    } thread, block, block_dim, grid_dim;
    void *dynamic_shared; /* aligned to 16 bytes; the same for all threads of a block */
    /* Returns after all threads of the block that still run called this function. */
    void (*barrier)(struct hd_kernel_thread *self);
    const hd_cpu_services *services; /* for modules of version 3 */
} hd_kernel_thread;

/* A parameter of a kernel. */
typedef struct hd_cpu_param {
    char name[64];
    uint32_t kind; /* hd_arg_kind of heddle/module.h */
    /* hd_access bits of heddle/buffer.h, with the kind and size of an element (heddle/module.h); 0
     * for HD_VALUE */
    uint32_t access;
    uint32_t offset; /* in the argument block */
    uint32_t size;
} hd_cpu_param;

/* One kernel. In an object file, these structures are in the section "hd_kernels", each followed by
 * its parameters. The reader applies no relocations: everything but `entry` and `params` is plain
 * data. */
typedef struct hd_cpu_kernel {
    uint32_t magic;        /* HD_CPU_KERNEL_MAGIC */
    uint32_t record_bytes; /* of this structure together with its parameters */
    char name[128];
    uint32_t n_params;
    uint32_t argument_bytes; /* end of the last parameter */
    uint32_t max_threads;    /* per block, from HD_KERNEL_BOUNDS; 0: no bound of its own */
    uint32_t reserved;       /* 0 */
    /* Runs one thread. `arguments` is the argument block, aligned to 16 bytes. The block contains
     * the parameters in order, each at its natural alignment, like a structure of C and like CUDA's
     * parameter space. */
    void (*entry)(hd_kernel_thread *self, const void *arguments);
    const hd_cpu_param *params;
} hd_cpu_kernel;

/* The table of a shared object made from kernel source: its symbol `hd_cpu_module`. */
typedef struct hd_cpu_module {
    uint32_t magic;   /* HD_CPU_MODULE_MAGIC */
    uint32_t version; /* HD_CPU_MODULE_VERSION; 1 ends before `shared`, 2 uses no services */
    /* An array of pointers to the kernels: its first element, and its end. */
    const hd_cpu_kernel *const *kernels;
    const hd_cpu_kernel *const *kernels_end;
    /* Where the loader stores a pointer to a function of its own. The function returns the calling
     * thread's storage for the module's thread-local variables. These are the HD_SHARED variables
     * of the block that runs on this thread. NULL: the system provides the storage. */
    void *(**shared)(void);
} hd_cpu_module;

#ifdef __cplusplus
}
#endif

#ifndef __cplusplus

/* ---- CPU: writing kernels, gcc or clang ---- */

/* The body that follows becomes the function `name`_hd_body. The variable `name`_hd_record contains
 * the hd_cpu_kernel and its parameters. Other files reach both only through the section of
 * pointers. */
#define HD_KERNEL(name, ...) HD_KERNEL_BOUNDS(name, 0, ##__VA_ARGS__)
#define HD_KERNEL_BOUNDS(name_, max_threads_, ...)                                                                     \
    struct name_##_hd_arguments {                                                                                      \
        HD_PP_EACH(HD_PP_FIELD, name_, ##__VA_ARGS__)                                                                  \
        char hd_end;                                                                                                   \
    };                                                                                                                 \
    _Static_assert(sizeof(#name_) <= 128, "kernel name: 127 characters at most");                                      \
    _Static_assert(offsetof(struct name_##_hd_arguments, hd_end) <= 4096, "parameters: 4096 bytes at most");           \
    HD_PP_EACH(HD_PP_CHECK, name_, ##__VA_ARGS__)                                                                      \
    static inline void name_##_hd_body(hd_kernel_thread *hd_self HD_PP_EACH(HD_PP_PARAMETER, name_, ##__VA_ARGS__));   \
    static void name_##_hd_entry(hd_kernel_thread *hd_self, const void *hd_block)                                      \
    {                                                                                                                  \
        const struct name_##_hd_arguments *hd_a = (const struct name_##_hd_arguments *)hd_block;                       \
        (void)hd_a;                                                                                                    \
        name_##_hd_body(hd_self HD_PP_EACH(HD_PP_ARGUMENT, name_, ##__VA_ARGS__));                                     \
    }                                                                                                                  \
    static const struct {                                                                                              \
        hd_cpu_kernel kernel;                                                                                          \
        hd_cpu_param params[HD_PP_COUNT(name_, ##__VA_ARGS__) + 1];                                                    \
    } name_##_hd_record __attribute__((section("hd_kernels"), used, aligned(8))) = {                                   \
        {HD_CPU_KERNEL_MAGIC, sizeof(name_##_hd_record), #name_, HD_PP_COUNT(name_, ##__VA_ARGS__),                    \
         offsetof(struct name_##_hd_arguments, hd_end), max_threads_, 0, name_##_hd_entry, name_##_hd_record.params},  \
        {HD_PP_EACH(HD_PP_RECORD, name_, ##__VA_ARGS__){"", 0, 0, 0, 0}}};                                             \
    static const hd_cpu_kernel *const name_##_hd_pointer __attribute__((section("hd_kernel_pointers"), used)) =        \
        &name_##_hd_record.kernel;                                                                                     \
    static inline void name_##_hd_body(__attribute__((unused))                                                         \
                                       hd_kernel_thread *hd_self HD_PP_EACH(HD_PP_PARAMETER, name_, ##__VA_ARGS__))

#include <stdbool.h> /* C++ needs no header for bool */

#define HD_IN(type, name) (const type *, name, 1)
#define HD_OUT(type, name) (type *, name, 2)
#define HD_INOUT(type, name) (type *, name, 3)
#define HD_VALUE(type, name) (type, name, 0)

#define HD_DEVICE __attribute__((unused)) static inline
#define HD_CONSTANT static const
/* HD_GLOBAL and HD_GLOBAL_CONSTANT: exported variables, in sections by which the library recognises
 * them. The module itself always uses its own variables. */
#define HD_GLOBAL __attribute__((section("hd_globals"), visibility("protected"), used))
#define HD_GLOBAL_CONSTANT __attribute__((section("hd_constants"), visibility("protected"), used))
#define HD_SHARED static __thread /* the threads of a block are fibers of one system thread */
#define HD_DYNAMIC_SHARED(type, name) type *const name = (type *)hd_self->dynamic_shared

/* A function that asks for its position or calls hd_barrier takes HD_SELF as its first parameter.
 * Pass hd_self:
 *     HD_DEVICE float first(HD_SELF, const float *x) { return hd_thread_x() == 0 ? x[0] : 0; }
 *     ... first(hd_self, x) ... */
#define HD_SELF hd_kernel_thread *hd_self

#define hd_thread_x() (hd_self->thread.x)
#define hd_thread_y() (hd_self->thread.y)
#define hd_thread_z() (hd_self->thread.z)
#define hd_block_x() (hd_self->block.x)
#define hd_block_y() (hd_self->block.y)
#define hd_block_z() (hd_self->block.z)
#define hd_block_dim_x() (hd_self->block_dim.x)
#define hd_block_dim_y() (hd_self->block_dim.y)
#define hd_block_dim_z() (hd_self->block_dim.z)
#define hd_grid_dim_x() (hd_self->grid_dim.x)
#define hd_grid_dim_y() (hd_self->grid_dim.y)
#define hd_grid_dim_z() (hd_self->grid_dim.z)

/* Every thread of the block waits here for the other threads, except those that returned from the
 * kernel. Afterwards each thread sees the earlier writes of the others. */
#define hd_barrier() (hd_self->barrier(hd_self))

#ifdef HD_CPU_MODULE
/* `heddle cc` defines HD_CPU_MODULE when it makes the shared object. The table below is weak, so
 * that several sources can be linked together. The symbols that the linker defines for the section
 * of pointers are weak, so that a source without kernels can be linked. */
extern const hd_cpu_kernel *const __start_hd_kernel_pointers[] __attribute__((weak, visibility("hidden")));
extern const hd_cpu_kernel *const __stop_hd_kernel_pointers[] __attribute__((weak, visibility("hidden")));
#if defined(__x86_64__) && !defined(HD_SHARED_BY_SYSTEM)
/* Compiled code finds thread-local variables through this function of the processor's ABI. The
 * system's version allocates their storage when a thread first uses them, and ends the process if
 * there is no memory. The loader of Heddle allocates the storage in advance. */
typedef struct hd_cpu_tls_index {
    unsigned long module, offset;
} hd_cpu_tls_index;
extern void *(*hd_cpu_shared)(void);
void *(*hd_cpu_shared)(void)__attribute__((weak, visibility("hidden")));
extern void *__tls_get_addr(hd_cpu_tls_index *index);
__attribute__((weak, visibility("hidden"))) void *__tls_get_addr(hd_cpu_tls_index *index)
{
    return (char *)hd_cpu_shared() + index->offset;
}
#define HD_CPU_SHARED (&hd_cpu_shared)
#else
#define HD_CPU_SHARED ((void *(**)(void))0)
#endif
extern const hd_cpu_module hd_cpu_module_table __asm__("hd_cpu_module");
const hd_cpu_module hd_cpu_module_table __attribute__((weak, visibility("default"))) = {
    HD_CPU_MODULE_MAGIC, HD_CPU_MODULE_VERSION, __start_hd_kernel_pointers, __stop_hd_kernel_pointers, HD_CPU_SHARED};
#endif

/* The macros behind HD_KERNEL. `kind` is an hd_arg_kind: 1 for a buffer, else by the type. */
#define HD_PP_KIND(type) HD_PP_KIND_OF(*(type *)0)
#define HD_PP_KIND_OF(value)                                                                                           \
    _Generic(((void)0, value), _Bool : 3, char                                                                         \
             : (char)-1 < 0 ? 2 : 3, signed char : 2, unsigned char : 3, short : 4, unsigned short : 5, int : 6,       \
               unsigned int : 7, long                                                                                  \
             : sizeof(long) == 8 ? 8 : 6, unsigned long                                                                \
             : sizeof(long) == 8 ? 9 : 7, long long : 8, unsigned long long : 9, float : 10, double : 11,              \
               default : 12)
#define HD_PP_FIELD(kernel, type, name, access) type name;
#define HD_PP_PARAMETER(kernel, type, name, access) , type name
#define HD_PP_ARGUMENT(kernel, type, name, access) , hd_a->name
#define HD_PP_CHECK(kernel, type, name, access)                                                                        \
    _Static_assert(sizeof(#name) <= 64, "parameter name: 63 characters at most");                                      \
    _Static_assert(HD_PP_CLASS(HD_PP_JOIN(HD_PP_SAMPLE_, access)(type)) != 5, /* a pointer */                          \
                   "kernel " #kernel ": " #name                                                                        \
                   ": the type is a pointer; a buffer is HD_IN, HD_OUT or HD_INOUT(type of an element, "               \
                   "name), an address is HD_VALUE(uint64_t, name)");                                                   \
    _Static_assert(_Generic(HD_PP_JOIN(HD_PP_SAMPLE_, access)(type), long double : 0, default : 1),                    \
                   "kernel " #kernel ": " #name ": the type is long double, which GPUs do not have; use double");
/* The class of a value's type. A double stands in for a float here, since compilers can warn of the
 * promotion. */
#define HD_PP_CLASS(value) __builtin_classify_type(_Generic((value), float : 0.0, default : (value)))
/* A value of the type, or of the type of a buffer's elements. The program never reads it. */
#define HD_PP_SAMPLE_0(type) (*(type *)0)
#define HD_PP_SAMPLE_1(type) (*_Generic((type)0, void * : (int *)0, const void * : (int *)0, default : (type)0))
#define HD_PP_SAMPLE_2(type) HD_PP_SAMPLE_1(type)
#define HD_PP_SAMPLE_3(type) HD_PP_SAMPLE_1(type)
#define HD_PP_RECORD(kernel, type, name, access)                                                                       \
    {#name, access ? 1 : HD_PP_KIND(type), access | HD_PP_JOIN(HD_PP_ELEMENT_, access)(type) << 8,                     \
     offsetof(struct kernel##_hd_arguments, name), sizeof(type)},
/* The kind of a buffer's elements, and their size in the bits from 8. 0: the kind is not known, as
 * for void. */
#define HD_PP_ELEMENT_0(type) 0u
#define HD_PP_ELEMENT_1(type)                                                                                          \
    _Generic((type)0, void * : 0u, const void * : 0u, default                                                          \
             : sizeof(HD_PP_SAMPLE_1(type)) > 65535                                                                    \
                   ? 0u                                                                                                \
                   : HD_PP_KIND_OF(HD_PP_SAMPLE_1(type)) | (uint32_t)sizeof(HD_PP_SAMPLE_1(type)) << 8)
#define HD_PP_ELEMENT_2(type) HD_PP_ELEMENT_1(type)
#define HD_PP_ELEMENT_3(type) HD_PP_ELEMENT_1(type)

/* For a parameter that is written as in C: the compiler gives one message, with the right form. */
#define HD_PP_FIELD_PLAIN(kernel, parameter)
#define HD_PP_PARAMETER_PLAIN(kernel, parameter) , parameter
#define HD_PP_ARGUMENT_PLAIN(kernel, parameter) , 0
#define HD_PP_CHECK_PLAIN(kernel, parameter)                                                                           \
    _Static_assert(0, "kernel " #kernel ": a parameter is HD_IN, HD_OUT or HD_INOUT(type, name), or HD_VALUE(type, "   \
                      "name), not: " #parameter);
#define HD_PP_RECORD_PLAIN(kernel, parameter) {"", 0, 0, 0, 0},

/* For too many parameters: the compiler gives one message. */
#define HD_PP_FIELD_MANY(kernel)
#define HD_PP_PARAMETER_MANY(kernel)
#define HD_PP_ARGUMENT_MANY(kernel)
#define HD_PP_CHECK_MANY(kernel)                                                                                       \
    _Static_assert(0, "kernel " #kernel ": more than 32 parameters; put some into a structure, HD_VALUE(type, name)");
#define HD_PP_RECORD_MANY(kernel)

#define HD_PP_OPEN(...) __VA_ARGS__
#define HD_PP_CALL(macro, ...) macro(__VA_ARGS__)
#define HD_PP_JOIN_(a, b) a##b
#define HD_PP_JOIN(a, b) HD_PP_JOIN_(a, b)
/* 1 for a parameter of HD_IN, HD_OUT, HD_INOUT or HD_VALUE. 0 for a parameter that is written as in
 * C; HD_PP_ONE_0 then calls macro##_PLAIN. */
#define HD_PP_SECOND_(a, b, ...) b
#define HD_PP_SECOND(...) HD_PP_SECOND_(__VA_ARGS__)
#define HD_PP_PROBE(...) 0, 1
#define HD_PP_IS_TUPLE(parameter) HD_PP_SECOND(HD_PP_PROBE parameter, 0, 0)
#define HD_PP_ONE(macro, kernel, parameter) HD_PP_JOIN(HD_PP_ONE_, HD_PP_IS_TUPLE(parameter))(macro, kernel, parameter)
#define HD_PP_ONE_0(macro, kernel, parameter) macro##_PLAIN(kernel, parameter)
#define HD_PP_ONE_1(macro, kernel, tuple) HD_PP_CALL(macro, kernel, HD_PP_OPEN tuple)
#define HD_PP_PICK(_0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, _17, _18, _19, _20, _21, \
                   _22, _23, _24, _25, _26, _27, _28, _29, _30, _31, _32, _33, _34, _35, _36, _37, _38, _39, _40, _41, \
                   _42, _43, _44, _45, _46, _47, _48, n, ...)                                                          \
    n
/* The number of parameters, which are the arguments after the first. 33 stands for 33 to 48. */
#define HD_PP_COUNT(...)                                                                                               \
    HD_PP_PICK(__VA_ARGS__, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 33, 32, 31, 30, 29, 28, 27,    \
               26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
/* Calls macro(kernel, type, name, access) for every parameter. */
#define HD_PP_EACH(macro, ...) HD_PP_JOIN(HD_PP_EACH_, HD_PP_COUNT(__VA_ARGS__))(macro, __VA_ARGS__)
#define HD_PP_EACH_0(m, k)
#define HD_PP_EACH_1(m, k, t) HD_PP_ONE(m, k, t)
#define HD_PP_EACH_2(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_1(m, k, __VA_ARGS__)
#define HD_PP_EACH_3(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_2(m, k, __VA_ARGS__)
#define HD_PP_EACH_4(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_3(m, k, __VA_ARGS__)
#define HD_PP_EACH_5(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_4(m, k, __VA_ARGS__)
#define HD_PP_EACH_6(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_5(m, k, __VA_ARGS__)
#define HD_PP_EACH_7(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_6(m, k, __VA_ARGS__)
#define HD_PP_EACH_8(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_7(m, k, __VA_ARGS__)
#define HD_PP_EACH_9(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_8(m, k, __VA_ARGS__)
#define HD_PP_EACH_10(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_9(m, k, __VA_ARGS__)
#define HD_PP_EACH_11(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_10(m, k, __VA_ARGS__)
#define HD_PP_EACH_12(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_11(m, k, __VA_ARGS__)
#define HD_PP_EACH_13(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_12(m, k, __VA_ARGS__)
#define HD_PP_EACH_14(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_13(m, k, __VA_ARGS__)
#define HD_PP_EACH_15(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_14(m, k, __VA_ARGS__)
#define HD_PP_EACH_16(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_15(m, k, __VA_ARGS__)
#define HD_PP_EACH_17(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_16(m, k, __VA_ARGS__)
#define HD_PP_EACH_18(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_17(m, k, __VA_ARGS__)
#define HD_PP_EACH_19(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_18(m, k, __VA_ARGS__)
#define HD_PP_EACH_20(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_19(m, k, __VA_ARGS__)
#define HD_PP_EACH_21(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_20(m, k, __VA_ARGS__)
#define HD_PP_EACH_22(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_21(m, k, __VA_ARGS__)
#define HD_PP_EACH_23(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_22(m, k, __VA_ARGS__)
#define HD_PP_EACH_24(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_23(m, k, __VA_ARGS__)
#define HD_PP_EACH_25(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_24(m, k, __VA_ARGS__)
#define HD_PP_EACH_26(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_25(m, k, __VA_ARGS__)
#define HD_PP_EACH_27(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_26(m, k, __VA_ARGS__)
#define HD_PP_EACH_28(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_27(m, k, __VA_ARGS__)
#define HD_PP_EACH_29(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_28(m, k, __VA_ARGS__)
#define HD_PP_EACH_30(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_29(m, k, __VA_ARGS__)
#define HD_PP_EACH_31(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_30(m, k, __VA_ARGS__)
#define HD_PP_EACH_32(m, k, t, ...) HD_PP_ONE(m, k, t) HD_PP_EACH_31(m, k, __VA_ARGS__)
#define HD_PP_EACH_33(m, k, ...) m##_MANY(k)

#endif /* !__cplusplus */
#endif /* !HD_KERNEL_GPU */

#define hd_global_x() ((uint64_t)hd_block_x() * hd_block_dim_x() + hd_thread_x())
#define hd_global_y() ((uint64_t)hd_block_y() * hd_block_dim_y() + hd_thread_y())
#define hd_global_z() ((uint64_t)hd_block_z() * hd_block_dim_z() + hd_thread_z())

#include <heddle/kernel_atomic.h>
#include <heddle/kernel_bits.h>
#include <heddle/kernel_half.h>
#include <heddle/kernel_math.h>
#include <heddle/kernel_print.h>
#include <heddle/kernel_warp.h>

#endif
