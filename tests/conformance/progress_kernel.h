/* progress_kernel.h - a kernel that waits until the test raises a flag, and a limit for waits that
 * only a failure reaches.
 *
 * Threads: any; one thread at a time loads the kernel.
 * Locks: none.
 * Always: a kernel that waits on the CPU sleeps.
 */
#ifndef CONFORMANCE_PROGRESS_KERNEL_H
#define CONFORMANCE_PROGRESS_KERNEL_H

#include "conformance.h"

static inline int64_t progress_limit(void)
{
    return (int64_t)conf_number_from("HEDDLE_TEST_LIMIT", 60) * CONF_SECOND * CONF_SLOWNESS;
}

/* ---- the kernel ---- */

/* y = x + c, once the word at `flag` is not 0; without a flag at once. On the CPU it sleeps until
 * then. */
static const char progress_source[] =
    "#include <heddle/kernel.h>\n"
    "#if !HD_KERNEL_GPU\n"
    "#include <sys/syscall.h>\n"
    "extern long syscall(long number, ...);\n"
    "#endif\n"
    "HD_KERNEL(hold, HD_VALUE(uint64_t, flag), HD_OUT(float, y), HD_IN(float, x), HD_VALUE(float, c), "
    "HD_VALUE(uint64_t, n))\n"
    "{\n"
    "    volatile const uint32_t *word = (volatile const uint32_t *)(uintptr_t)flag;\n"
    "    while (word != 0 && *word == 0) {\n"
    "#if !HD_KERNEL_GPU\n"
    "        syscall(SYS_futex, word, 0, 0, 0);\n"
    "#endif\n"
    "    }\n"
    "    uint64_t i = hd_thread_x();\n"
    "    while (i < n) {\n"
    "        y[i] = x[i] + c;\n"
    "        i += hd_block_dim_x();\n"
    "    }\n"
    "}\n";

static const char progress_ptx[] = ".version 6.3\n"
                                   ".target sm_70\n"
                                   ".address_size 64\n"
                                   ".visible .entry hold(.param .u64 hold_0, .param .u64 hold_1, .param .u64 hold_2, "
                                   ".param .f32 hold_3, .param .u64 hold_4)\n"
                                   "{\n"
                                   "    .reg .pred %p<4>;\n"
                                   "    .reg .b32 %r<4>;\n"
                                   "    .reg .f32 %f<3>;\n"
                                   "    .reg .b64 %rd<10>;\n"
                                   "    ld.param.u64 %rd1, [hold_0];\n"
                                   "    ld.param.u64 %rd2, [hold_1];\n"
                                   "    ld.param.u64 %rd3, [hold_2];\n"
                                   "    ld.param.f32 %f1, [hold_3];\n"
                                   "    ld.param.u64 %rd4, [hold_4];\n"
                                   "    setp.eq.u64 %p1, %rd1, 0;\n"
                                   "    @%p1 bra go;\n"
                                   "again:\n"
                                   "    ld.volatile.u32 %r1, [%rd1];\n"
                                   "    setp.eq.u32 %p2, %r1, 0;\n"
                                   "    @%p2 bra again;\n"
                                   "go:\n"
                                   "    mov.u32 %r2, %tid.x;\n"
                                   "    mov.u32 %r3, %ntid.x;\n"
                                   "    cvt.u64.u32 %rd5, %r2;\n"
                                   "    cvt.u64.u32 %rd6, %r3;\n"
                                   "next:\n"
                                   "    setp.ge.u64 %p3, %rd5, %rd4;\n"
                                   "    @%p3 bra done;\n"
                                   "    shl.b64 %rd7, %rd5, 2;\n"
                                   "    add.s64 %rd8, %rd3, %rd7;\n"
                                   "    ld.f32 %f2, [%rd8];\n"
                                   "    add.f32 %f2, %f2, %f1;\n"
                                   "    add.s64 %rd9, %rd2, %rd7;\n"
                                   "    st.f32 [%rd9], %f2;\n"
                                   "    add.s64 %rd5, %rd5, %rd6;\n"
                                   "    bra next;\n"
                                   "done:\n"
                                   "    ret;\n"
                                   "}\n";

/* Loads the kernel. NULL if it cannot be made: on host devices without HEDDLE_TOOL. */
CONF_UNUSED static hd_kernel *progress_kernel(hd_runtime *runtime)
{
    static uint8_t *made;
    static size_t made_size;
    const void *image = progress_ptx;
    size_t size = sizeof progress_ptx;
    if (conf_is_host(runtime)) {
        made = made == NULL ? conf_kernel_file(progress_source, &made_size) : made;
        image = made;
        size = made_size;
    }
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    if (image != NULL) {
        CONF_OK(hd_module_load(runtime, image, size, &module));
        CONF_OK(hd_kernel_get(module, "hold", &kernel));
    }
    return kernel;
}

/* Lets the kernels that watch this word continue. */
CONF_UNUSED static void progress_raise(uint32_t *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, flag, 1 /* FUTEX_WAKE */, INT32_MAX, NULL, NULL, 0);
}

#endif
