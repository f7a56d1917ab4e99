/* workers.h - shared code of the tests of worker processes.
 *
 * - checks of processes
 * - kernels that go wrong
 * - every way to lose a device, and the wait for the report of the loss
 *
 * On host devices the `heddle` tool (HEDDLE_TOOL) compiles the kernels. Without it, the tests leave
 * out the ways that need them. GPUs get PTX.
 *
 * Threads: the helpers work in every thread.
 * Locks: none.
 * Always: no check measures time, except for the limits that the contract names. Waits for those
 * are generous.
 */
#ifndef CONFORMANCE_WORKERS_H
#define CONFORMANCE_WORKERS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include "conformance.h"

/* Limits for options, in milliseconds. They are so long that a healthy worker never comes near
 * them, on two busy processors or while a GPU's driver starts. */
static inline int wk_stuck_ms(void)
{
    return conf_on_gpus ? 6000 : CONF_SLOWNESS > 1 ? 4000 : 1500;
}

static inline int wk_watchdog_ms(void)
{
    return CONF_SLOWNESS > 1 ? 4000 : 1500;
}

/* How long a process may take to end: the driver of a GPU does its own work first. */
static inline int wk_gone_ms(void)
{
    return conf_on_gpus ? 3000 : 1000;
}

/* Call it first in main. Exits with 77 if the placement uses no workers. */
CONF_UNUSED static void wk_begin(const char *program)
{
    const char *placement = getenv("HEDDLE_PLACEMENT");
    if (placement == NULL || strcmp(placement, "process") != 0) {
        fprintf(stderr, "%s: skipped: HEDDLE_PLACEMENT is not process\n", program);
        exit(77);
    }
    conf_begin(program);
}

CONF_UNUSED static hd_device_info wk_info(hd_runtime *runtime, int device)
{
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, device, &info));
    return info;
}

/* Returns the worker of a device that is not lost. */
CONF_UNUSED static pid_t wk_pid(hd_runtime *runtime, int device)
{
    hd_device_info info = wk_info(runtime, device);
    CONF_TRUE(!info.lost && info.worker_pid > 0 && info.worker_pid != (int)getpid());
    return info.worker_pid;
}

/* ---- processes ---- */

/* Returns the state letter of a process; 0 if it does not exist. */
CONF_UNUSED static char wk_state(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = '\0';
    const char *rest = strrchr(line, ')');
    return rest != NULL && rest[1] == ' ' ? rest[2] : 0;
}

/* True if a process is gone. A zombie counts as gone. */
CONF_UNUSED static bool wk_gone(pid_t pid)
{
    char state = wk_state(pid);
    return state == 0 || state == 'Z' || state == 'X';
}

/* Waits until a process is gone. Returns false after this many milliseconds (more under a
 * sanitizer). */
CONF_UNUSED static bool wk_goes(pid_t pid, int milliseconds)
{
    int64_t limit = conf_now() + milliseconds * CONF_MILLISECOND * (CONF_SLOWNESS > 1 ? 4 : 1);
    bool gone = wk_gone(pid);
    while (!gone && conf_now() < limit) {
        conf_sleep_ms(2);
        gone = wk_gone(pid);
    }
    return gone;
}

/* Stops this process and one worker (0: none) for this time, as Ctrl-Z and fg do. The case first
 * makes the process its own group. Workers are in other groups, so Ctrl-Z does not stop them. */
CONF_UNUSED static void wk_stop_all(int milliseconds, pid_t worker)
{
    char command[160], also[32] = "";
    int group = (int)getpgrp();
    if (worker != 0) {
        snprintf(also, sizeof also, " %d", (int)worker);
    }
    snprintf(command, sizeof command, "kill -STOP -%d%s && sleep %d.%03d && kill -CONT%s -%d", group, also,
             milliseconds / 1000, milliseconds % 1000, also, group);
    char *arguments[] = {"setsid", "sh", "-c", command, NULL};
    pid_t pid;
    int status = 0;
    CONF_EQUAL(posix_spawnp(&pid, arguments[0], NULL, NULL, arguments, environ), 0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    CONF_EQUAL(status, 0);
}

/* Counts the entries of a folder. */
CONF_UNUSED static int wk_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = -2;
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* Resources that this process uses. */
typedef struct wk_usage {
    int descriptors, mappings, threads, children;
    long resident_kb;
} wk_usage;

CONF_UNUSED static wk_usage wk_use(void)
{
    wk_usage u = {wk_entries("/proc/self/fd"), 0, wk_entries("/proc/self/task"), conf_children(), 0};
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        u.mappings += strchr(line, '\n') != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmRSS: %ld kB", &u.resident_kb) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return u;
}

/* Waits until the process has only this many threads. A joined thread may still be in the system's
 * list of threads for a moment. */
CONF_UNUSED static void wk_await_threads(int most)
{
    while (wk_use().threads > most) {
        conf_sleep_ms(1);
    }
}

/* Copies the worker program. */
CONF_UNUSED static void wk_copy_file(const char *from, const char *to)
{
    static char buffer[1 << 16];
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    CONF_TRUE(in != NULL && out != NULL);
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;) {
        CONF_EQUAL(fwrite(buffer, 1, n, out), n);
    }
    fclose(in);
    CONF_EQUAL(fclose(out), 0);
    CONF_EQUAL(chmod(to, 0700), 0);
}

/* ---- losses ---- */

CONF_UNUSED static int wk_descriptor(hd_runtime *runtime)
{
    int descriptor = -1;
    CONF_OK(hd_loss_descriptor(runtime, &descriptor));
    CONF_TRUE(descriptor >= 0);
    return descriptor;
}

CONF_UNUSED static bool wk_readable(int descriptor, int milliseconds)
{
    struct pollfd p = {.fd = descriptor, .events = POLLIN};
    int n = poll(&p, 1, milliseconds);
    return n == 1 && (p.revents & POLLIN) != 0;
}

/* Checks that no loss is reported, or waits to be. */
CONF_UNUSED static void wk_no_loss(hd_runtime *runtime)
{
    hd_device_loss loss = {.size = sizeof loss, .device = 4711};
    CONF_FAILS(hd_loss_next(runtime, &loss), HD_ERROR_NOT_FOUND);
    CONF_EQUAL(loss.device, 4711);
    CONF_TRUE(!wk_readable(wk_descriptor(runtime), 0));
}

/* Waits for the next loss by the descriptor, and takes it. */
CONF_UNUSED static hd_device_loss wk_next_loss(hd_runtime *runtime)
{
    hd_device_loss loss = {.size = sizeof loss};
    CONF_TRUE(wk_readable(wk_descriptor(runtime), 60000));
    CONF_OK(hd_loss_next(runtime, &loss));
    CONF_EQUAL(loss.size, sizeof loss);
    CONF_TRUE(loss.message[0] != '\0' && strchr(loss.message, '\n') == NULL);
    return loss;
}

/* Checks that `device` is the only lost one, and that the report fits. */
CONF_UNUSED static hd_device_loss wk_only_loss(hd_runtime *runtime, int device)
{
    hd_device_loss loss = wk_next_loss(runtime);
    if (loss.device != device) {
        conf_fail_at(__FILE__, __LINE__, "not device %d: %s", device, loss.message);
    }
    wk_no_loss(runtime);
    hd_device_info info = wk_info(runtime, device);
    CONF_TRUE(info.lost);
    CONF_EQUAL(info.worker_pid, 0);
    CONF_EQUAL(info.losses, loss.losses);
    CONF_EQUAL(info.memory_free_bytes, 0);
    CONF_TRUE(info.name[0] != '\0' && info.memory_bytes > 0);
    return loss;
}

/* Kills the worker and takes the loss. */
CONF_UNUSED static void wk_lose_now(hd_runtime *runtime, int device)
{
    CONF_EQUAL(kill(wk_pid(runtime, device), SIGKILL), 0);
    wk_only_loss(runtime, device);
}

/* Checks the facts after a restart. */
CONF_UNUSED static void wk_check_facts(hd_runtime *runtime, int device, uint64_t losses, uint64_t restarts)
{
    hd_device_info info = wk_info(runtime, device);
    CONF_TRUE(!info.lost && info.worker_pid > 0 && !wk_gone(info.worker_pid));
    CONF_EQUAL(info.losses, losses);
    CONF_EQUAL(info.restarts, restarts);
    CONF_TRUE(info.memory_bytes > 0 && info.memory_free_bytes <= info.memory_bytes);
}

/* Checks that a device works: memory, kernels, copies in and out. */
CONF_UNUSED static void wk_works(hd_runtime *runtime, int device)
{
    enum { words = 5000, bytes = words * 4 };
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, device);
    CONF_TRUE(lane != NULL);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(conf_fill(lane, k, x, 0, words, 0x600u + (uint32_t)device, NULL));
    CONF_FILLED(x, 0, 0x600u + (uint32_t)device, bytes);
    hd_free(x);
}

/* Checks that all devices but `lost` work, and were never lost. */
CONF_UNUSED static void wk_others_work(hd_runtime *runtime, int lost)
{
    for (int d = 0; d < hd_device_count(runtime); d++) {
        if (d != lost) {
            CONF_TRUE(!wk_info(runtime, d).lost);
            CONF_EQUAL(wk_info(runtime, d).losses, 0);
            wk_works(runtime, d);
        }
    }
}

/* ---- kernels that go wrong ---- */

static const char wk_source[] =
    "#include <heddle/kernel.h>\n"
    "#if !HD_KERNEL_GPU\n"
    "extern void abort(void);\n"
    "extern void _exit(int);\n"
    "#endif\n"
    "HD_GLOBAL uint32_t word;\n"
    "HD_KERNEL(stray, HD_INOUT(uint32_t, y), HD_VALUE(uint64_t, address))\n"
    "{\n"
    "    *(volatile uint32_t *)(uintptr_t)address = y[0];\n"
    "}\n"
    "HD_KERNEL(spin, HD_INOUT(uint32_t, y))\n" /* reports that it runs, until its flag ends it */
    "{\n"
    "    volatile uint32_t *flags = y;\n"
    "    flags[0] = 1;\n"
    "    while (flags[1] == 0) {\n"
    "    }\n"
    "}\n"
    "HD_KERNEL(add_one, HD_INOUT(uint32_t, y), HD_VALUE(uint64_t, n))\n"
    "{\n"
    "    uint64_t i = hd_global_x();\n"
    "    if (i < n) {\n"
    "        y[i] += 1;\n"
    "    }\n"
    "}\n"
    "HD_KERNEL(hello, HD_INOUT(uint32_t, y))\n"
    "{\n"
    "    y[0] = 0x4711;\n"
    "}\n"
    "HD_KERNEL(bye, HD_INOUT(uint32_t, y))\n"
    "{\n"
    "    y[0] = 0x4712;\n"
    "}\n"
    "HD_KERNEL(crash, HD_INOUT(uint32_t, y))\n"
    "{\n"
    "    y[0] = 7;\n"
    "#if !HD_KERNEL_GPU\n"
    "    abort();\n"
    "#endif\n"
    "}\n"
    "HD_KERNEL(trap, HD_INOUT(uint32_t, y))\n"
    "{\n"
    "    y[0] = 7;\n"
    "#if !HD_KERNEL_GPU\n"
    "    __builtin_trap();\n"
    "#endif\n"
    "}\n"
    "HD_KERNEL(leave, HD_INOUT(uint32_t, y))\n"
    "{\n"
    "    y[0] = 7;\n"
    "#if !HD_KERNEL_GPU\n"
    "    _exit(3);\n"
    "#endif\n"
    "}\n";

static const char wk_ptx[] = ".version 6.3\n"
                             ".target sm_70\n"
                             ".address_size 64\n"
                             ".visible .global .align 4 .u32 word;\n"
                             ".visible .entry stray(.param .u64 stray_0, .param .u64 stray_1)\n"
                             "{\n"
                             "    .reg .b32 %r<2>;\n"
                             "    .reg .b64 %rd<3>;\n"
                             "    ld.param.u64 %rd1, [stray_0];\n"
                             "    ld.param.u64 %rd2, [stray_1];\n"
                             "    ld.u32 %r1, [%rd1];\n"
                             "    st.u32 [%rd2], %r1;\n"
                             "    ret;\n"
                             "}\n"
                             ".visible .entry spin(.param .u64 spin_0)\n"
                             "{\n"
                             "    .reg .pred %p<2>;\n"
                             "    .reg .b32 %r<3>;\n"
                             "    .reg .b64 %rd<2>;\n"
                             "    ld.param.u64 %rd1, [spin_0];\n"
                             "    mov.u32 %r1, 1;\n"
                             "    st.volatile.u32 [%rd1], %r1;\n"
                             "again:\n"
                             "    ld.volatile.u32 %r2, [%rd1+4];\n"
                             "    setp.eq.u32 %p1, %r2, 0;\n"
                             "    @%p1 bra again;\n"
                             "    ret;\n"
                             "}\n"
                             ".visible .entry add_one(.param .u64 add_one_0, .param .u64 add_one_1)\n"
                             "{\n"
                             "    .reg .pred %p<2>;\n"
                             "    .reg .b32 %r<5>;\n"
                             "    .reg .b64 %rd<7>;\n"
                             "    ld.param.u64 %rd1, [add_one_0];\n"
                             "    ld.param.u64 %rd2, [add_one_1];\n"
                             "    mov.u32 %r1, %ctaid.x;\n"
                             "    mov.u32 %r2, %ntid.x;\n"
                             "    mul.wide.u32 %rd3, %r1, %r2;\n"
                             "    mov.u32 %r3, %tid.x;\n"
                             "    cvt.u64.u32 %rd4, %r3;\n"
                             "    add.s64 %rd5, %rd3, %rd4;\n"
                             "    setp.ge.u64 %p1, %rd5, %rd2;\n"
                             "    @%p1 bra done;\n"
                             "    shl.b64 %rd6, %rd5, 2;\n"
                             "    add.s64 %rd6, %rd1, %rd6;\n"
                             "    ld.u32 %r4, [%rd6];\n"
                             "    add.u32 %r4, %r4, 1;\n"
                             "    st.u32 [%rd6], %r4;\n"
                             "done:\n"
                             "    ret;\n"
                             "}\n"
                             ".visible .entry hello(.param .u64 hello_0)\n"
                             "{\n"
                             "    .reg .b32 %r<2>;\n"
                             "    .reg .b64 %rd<2>;\n"
                             "    ld.param.u64 %rd1, [hello_0];\n"
                             "    mov.u32 %r1, 0x4711;\n"
                             "    st.u32 [%rd1], %r1;\n"
                             "    ret;\n"
                             "}\n"
                             ".visible .entry bye(.param .u64 bye_0)\n"
                             "{\n"
                             "    .reg .b32 %r<2>;\n"
                             "    .reg .b64 %rd<2>;\n"
                             "    ld.param.u64 %rd1, [bye_0];\n"
                             "    mov.u32 %r1, 0x4712;\n"
                             "    st.u32 [%rd1], %r1;\n"
                             "    ret;\n"
                             "}\n";

/* Returns the image of those kernels for the provider in use, made once; NULL if there is none. */
CONF_UNUSED static const void *wk_image(hd_runtime *runtime, size_t *out_size)
{
    static uint8_t *made;
    static size_t made_size;
    if (!conf_is_host(runtime)) {
        *out_size = sizeof wk_ptx;
        return wk_ptx;
    }
    if (made == NULL) {
        made = conf_kernel_file(wk_source, &made_size);
    }
    *out_size = made_size;
    return made;
}

typedef struct wk_kernels {
    hd_module *module;                         /* NULL: no kernels */
    hd_kernel *stray, *spin, *add_one, *hello; /* and "bye", which nobody looks up */
    hd_kernel *crash, *leave, *trap;           /* on host devices */
} wk_kernels;

CONF_UNUSED static wk_kernels wk_load(hd_runtime *runtime)
{
    wk_kernels k = {0};
    size_t size = 0;
    const void *image = wk_image(runtime, &size);
    if (image != NULL) {
        CONF_OK(hd_module_load(runtime, image, size, &k.module));
        CONF_OK(hd_kernel_get(k.module, "stray", &k.stray));
        CONF_OK(hd_kernel_get(k.module, "spin", &k.spin));
        CONF_OK(hd_kernel_get(k.module, "add_one", &k.add_one));
        CONF_OK(hd_kernel_get(k.module, "hello", &k.hello));
        if (conf_is_host(runtime)) {
            CONF_OK(hd_kernel_get(k.module, "crash", &k.crash));
            CONF_OK(hd_kernel_get(k.module, "leave", &k.leave));
            CONF_OK(hd_kernel_get(k.module, "trap", &k.trap));
        }
    }
    return k;
}

/* Skips the case if the kernels are missing. */
#define WK_NEED_KERNELS(runtime, kernels)                                                                              \
    do {                                                                                                               \
        if ((kernels).module == NULL) {                                                                                \
            conf_close(runtime);                                                                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

CONF_UNUSED static hd_status wk_launch_one(hd_lane *lane, hd_kernel *kernel, hd_buffer *y, hd_ticket *out)
{
    hd_arg args[] = {hd_inout(y)};
    return hd_launch(lane, kernel, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 1, out);
}

CONF_UNUSED static hd_status wk_stray(hd_lane *lane, wk_kernels k, hd_buffer *y, hd_ticket *out)
{
    hd_arg args[] = {hd_inout(y), hd_u64(16)};
    return hd_launch(lane, k.stray, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, args, 2, out);
}

CONF_UNUSED static hd_status wk_add_one(hd_lane *lane, wk_kernels k, hd_buffer *y, uint64_t n, hd_ticket *out)
{
    hd_arg args[] = {hd_inout_range(y, 0, n * 4), hd_u64(n)};
    return hd_launch(lane, k.add_one, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 2, out);
}

/* Runs each kernel once that a case will use behind one that does not end. On a GPU the first
 * launch may load a kernel, and loading may wait for running kernels. */
CONF_UNUSED static void wk_warm(hd_runtime *runtime, int device, wk_kernels k)
{
    conf_kernels builtin = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, device);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_alloc(lane, 4096, &y));
    CONF_OK(hd_fill(x, 0, 0, 4096, NULL));
    CONF_OK(conf_fill(lane, builtin, x, 0, 1024, 1, NULL));
    CONF_OK(conf_copy(lane, builtin, y, 0, x, 0, 1024, NULL));
    CONF_OK(wk_add_one(lane, k, y, 1024, NULL));
    CONF_FILLED(y, 0, 2, 4096);
    hd_free(x);
    hd_free(y);
}

/* A kernel that runs until its flag ends it. All work behind it stays in flight. */
typedef struct wk_gate {
    hd_buffer *pinned;
    uint32_t *flags; /* [0]: it runs; [1]: it may end */
    hd_ticket ticket;
} wk_gate;

/* Submits the kernel, as a writer of its own pinned memory, and waits until it runs. */
CONF_UNUSED static void wk_gate_shut(wk_gate *gate, hd_runtime *runtime, hd_lane *lane, wk_kernels k)
{
    void *flags = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &gate->pinned));
    CONF_OK(hd_map(gate->pinned, HD_READ_WRITE, &flags));
    gate->flags = flags;
    memset(flags, 0, 4096);
    CONF_OK(wk_launch_one(lane, k.spin, gate->pinned, &gate->ticket));
    while (__atomic_load_n(&gate->flags[0], __ATOMIC_ACQUIRE) == 0) {
        conf_sleep_ms(1);
    }
}

CONF_UNUSED static void wk_gate_open(wk_gate *gate)
{
    __atomic_store_n(&gate->flags[1], 1, __ATOMIC_RELEASE);
}

/* ---- ways to lose a device ---- */

enum { WK_KILL, WK_STOP, WK_STRAY, WK_CRASH, WK_LEAVE, WK_SPIN, WK_HANG, WK_WAYS };

typedef struct wk_way {
    const char *name;
    hd_loss_cause cause;
    int signal;       /* the signal that ended the worker, as reported; -1: any */
    const char *word; /* in the loss, and in the message of every ticket in flight */
    bool needs_kernels;
    bool host_only;
    bool counts_launches; /* happens at a certain launch, so the other devices launch nothing */
} wk_way;

static const wk_way wk_ways[WK_WAYS] = {
    [WK_KILL] = {"SIGKILL", HD_LOSS_WORKER_ENDED, SIGKILL, "signal 9", false, false, false},
    [WK_STOP] = {"SIGSTOP", HD_LOSS_WORKER_STUCK, -1, "worker_timeout", false, false, false},
    [WK_STRAY] = {"an illegal address", HD_LOSS_DRIVER, -1, "ILLEGAL_ADDRESS", true, false, false},
    [WK_CRASH] = {"a kernel that aborts", HD_LOSS_WORKER_ENDED, SIGABRT, "signal 6", true, true, false},
    [WK_LEAVE] = {"a kernel that ends its process", HD_LOSS_WORKER_ENDED, 0, "status 3", true, true, false},
    [WK_SPIN] = {"a kernel that never ends", HD_LOSS_WATCHDOG, -1, "watchdog", true, false, false},
    [WK_HANG] = {"a driver call that hangs", HD_LOSS_WORKER_STUCK, -1, "worker_timeout", true, false, true},
};

enum { WK_HANGS_AT = 60 }; /* launches */

/* Returns the settings that a way needs. */
CONF_UNUSED static const char *wk_settings(int way)
{
    static char text[128];
    text[0] = '\0';
    if (way == WK_STOP) {
        snprintf(text, sizeof text, "worker_timeout=%d", wk_stuck_ms());
    } else if (way == WK_SPIN) {
        snprintf(text, sizeof text, "watchdog=%d", wk_watchdog_ms());
    } else if (way == WK_HANG) {
        snprintf(text, sizeof text, "delay=cuLaunchKernel:%d=600000000 worker_timeout=%d", WK_HANGS_AT, wk_stuck_ms());
    }
    return text;
}

/* True if that way exists here. */
CONF_UNUSED static bool wk_can(hd_runtime *runtime, int way, wk_kernels k)
{
    return (k.module != NULL || !wk_ways[way].needs_kernels) && (conf_is_host(runtime) || !wk_ways[way].host_only);
}

/* Makes it happen, and checks the ticket of the operation that caused it. `words` is memory of the
 * device. */
CONF_UNUSED static void wk_lose(hd_runtime *runtime, int device, int way, wk_kernels k, hd_lane *lane, hd_buffer *words)
{
    hd_ticket ticket = {NULL, 0};
    hd_status status = HD_OK;
    switch (way) {
    case WK_KILL:
        CONF_EQUAL(kill(wk_pid(runtime, device), SIGKILL), 0);
        return;
    case WK_STOP:
        CONF_EQUAL(kill(wk_pid(runtime, device), SIGSTOP), 0);
        return;
    case WK_STRAY:
        CONF_OK(wk_stray(lane, k, words, &ticket));
        break;
    case WK_CRASH:
        CONF_OK(wk_launch_one(lane, k.crash, words, &ticket));
        break;
    case WK_LEAVE:
        CONF_OK(wk_launch_one(lane, k.leave, words, &ticket));
        break;
    case WK_SPIN:
        CONF_OK(hd_fill(words, 0, 0, 8, NULL));
        CONF_OK(wk_launch_one(lane, k.spin, words, &ticket));
        break;
    default:
        for (int i = 0; i < WK_HANGS_AT && status == HD_OK; i++) {
            status = wk_add_one(lane, k, words, 1, &ticket);
        }
        if (status != HD_OK) { /* others launched too, and the device is lost already */
            CONF_FAILS(status, HD_ERROR_DEVICE_LOST);
            return;
        }
        break;
    }
    CONF_FAILS_WITH(hd_wait(ticket, 60 * CONF_SECOND * CONF_SLOWNESS), HD_ERROR_DEVICE_LOST, wk_ways[way].word);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_EQUAL(error.device, device);
    CONF_EQUAL(error.lane, hd_lane_number(lane));
    CONF_TRUE(error.kernel[0] != '\0' && strstr(error.message, error.kernel) != NULL);
    CONF_TRUE(hd_done(ticket));
}

/* Checks that the report fits the way in which the device was lost. */
CONF_UNUSED static hd_device_loss wk_told(hd_runtime *runtime, int device, int way, uint64_t losses)
{
    const wk_way *w = &wk_ways[way];
    hd_device_loss loss = wk_only_loss(runtime, device);
    if (loss.cause != w->cause || (w->signal >= 0 && loss.signal != w->signal) || loss.losses != losses ||
        (loss.cause == HD_LOSS_DRIVER) != (loss.driver_code > 0) || strstr(loss.message, w->word) == NULL) {
        conf_fail_at(__FILE__, __LINE__, "%s: cause %d, signal %d, driver code %d, losses %llu; '%s'", w->name,
                     (int)loss.cause, loss.signal, loss.driver_code, (unsigned long long)loss.losses, loss.message);
    }
    return loss;
}

#endif
