/* host_support.h - shared by the tests of the host provider: opening it, a device's context, the
 * kernels of host_kernels.c.
 *
 * Threads: one, unless a test uses more. HD_TEST_KERNELS is the path of host_kernels.c, compiled as
 * a shared object.
 * Tests that need a second process start their own program again with a role. That process starts
 * fresh: it inherits only one end of a socket pair.
 */
#ifndef HD_TESTS_SIMULATOR_HOST_SUPPORT_H
#define HD_TESTS_SIMULATOR_HOST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/options.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "engine/providers.h"
#include "support/sanitizers.h"

#define GRANULE ((size_t)2 << 20)
#define OK(call) assert_int_equal((call), HDCU_SUCCESS)

static const hdi_driver *d;

static inline hd_status open_with(const char *settings, const hdi_driver **out)
{
    hdi_options options;
    char all[256];
    snprintf(all, sizeof all, "driver=host %s", settings);
    assert_int_equal(hdi_options_parse(all, &options), HD_OK);
    hd_status status = hdi_providers_open_driver(&options, out);
    hdi_options_release(&options);
    return status;
}

static inline void open_host(const char *settings)
{
    assert_int_equal(open_with(settings, &d), HD_OK);
}

/* Retains the context and makes it current. */
static inline hdcu_context use_device(int device)
{
    hdcu_context context;
    OK(d->cuDevicePrimaryCtxRetain(&context, device));
    OK(d->cuCtxSetCurrent(context));
    return context;
}

static inline void leave_device(int device)
{
    OK(d->cuDevicePrimaryCtxRelease(device));
    OK(d->cuCtxSetCurrent(NULL));
}

static inline size_t free_memory(void)
{
    size_t free_bytes, total;
    OK(d->cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* Makes a new mapping with access for `device`. */
static inline hdcu_deviceptr map_new(int device, size_t bytes)
{
    hdcu_mem_prop prop = {.type = HDCU_MEM_ALLOCATION_TYPE_PINNED, .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, device}};
    hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, device}, HDCU_MEM_ACCESS_READWRITE};
    hdcu_memhandle handle;
    hdcu_deviceptr p;
    OK(d->cuMemAddressReserve(&p, bytes, 0, 0, 0));
    OK(d->cuMemCreate(&handle, bytes, &prop, 0));
    OK(d->cuMemMap(p, bytes, 0, handle, 0));
    OK(d->cuMemSetAccess(p, bytes, &access, 1));
    OK(d->cuMemRelease(handle));
    return p;
}

static inline void unmap(hdcu_deviceptr p, size_t bytes)
{
    OK(d->cuMemUnmap(p, bytes));
    OK(d->cuMemAddressFree(p, bytes));
}

#ifdef HD_TEST_KERNELS
static const char *kernels_file = HD_TEST_KERNELS;

static inline char *kernels_image(size_t *bytes)
{
    FILE *f = fopen(kernels_file, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    rewind(f);
    char *image = malloc((size_t)n + 1);
    assert_non_null(image);
    assert_int_equal(fread(image, 1, (size_t)n, f), n);
    image[n] = 0;
    fclose(f);
    if (bytes) {
        *bytes = (size_t)n;
    }
    return image;
}

static inline hdcu_module load_kernels(void)
{
    hdcu_module module;
    char *image = kernels_image(NULL);
    OK(d->cuModuleLoadDataEx(&module, image, 0, NULL, NULL));
    free(image);
    return module;
}

static inline hdcu_function kernel_of(hdcu_module module, const char *name)
{
    hdcu_function f;
    OK(d->cuModuleGetFunction(&f, module, name));
    return f;
}

/* add(y, value, n): n is at most 256. */
static inline hdcu_result launch_add(hdcu_function add, hdcu_stream stream, hdcu_deviceptr y, uint32_t value,
                                     uint32_t n)
{
    void *parameters[] = {&y, &value, &n};
    return d->cuLaunchKernel(add, 1, 1, 1, n, 1, 1, 0, stream, parameters, NULL);
}
#endif

/* ---- a second process ---- */

enum { ROLE_SOCKET = 3, ROLE_SECONDS = 60 };

typedef struct role_process {
    pid_t pid;
    int socket;
} role_process;

/* Starts this program again as `PROGRAM role settings`; its end of the socket pair is the
 * descriptor ROLE_SOCKET. */
static inline role_process role_start(const char *role, const char *settings)
{
    extern char **environ;
    role_process p = {0};
    int pair[2];
    char *arguments[] = {(char *)(uintptr_t) "role", (char *)(uintptr_t)role, (char *)(uintptr_t)settings, NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    if (pair[1] == ROLE_SOCKET) { /* dup2 onto itself would keep close-on-exec */
        pair[1] = fcntl(ROLE_SOCKET, F_DUPFD_CLOEXEC, ROLE_SOCKET + 1);
        close(ROLE_SOCKET);
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], ROLE_SOCKET);
    assert_int_equal(posix_spawn(&p.pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    p.socket = pair[0];
    return p;
}

/* Waits for the end of the process, after killing it if kill_it. Returns waitpid's status. */
static inline int role_end(role_process *p, bool kill_it)
{
    int status = 0;
    if (kill_it) {
        kill(p->pid, SIGKILL);
    }
    close(p->socket);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return status;
}

/* A few words with a descriptor (-1: none), in one message. */
typedef struct role_message {
    uint64_t kind, a, b, c;
} role_message;

static inline bool role_send(int socket, role_message message, int descriptor)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec data = {&message, sizeof message};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
    if (descriptor >= 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
    }
    return sendmsg(socket, &m, MSG_NOSIGNAL) == (ssize_t)sizeof message;
}

/* Returns false if the other end is gone. */
static inline bool role_receive(int socket, role_message *message, int *descriptor)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof *descriptor)] = {0};
    struct iovec data = {message, sizeof *message};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *message) {
        return false;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (descriptor) {
        *descriptor = -1;
        if (c && c->cmsg_type == SCM_RIGHTS) {
            memcpy(descriptor, CMSG_DATA(c), sizeof *descriptor);
        }
    }
    return true;
}

/* A host function that holds its stream until the gate opens. */
typedef struct gate {
    atomic_int entered, open;
} gate;

static inline void gate_wait(void *data)
{
    gate *g = data;
    atomic_store(&g->entered, 1);
    while (!atomic_load(&g->open)) {
        hdi_sleep_for(50000);
    }
}

static inline void gate_await_entered(gate *g)
{
    while (!atomic_load(&g->entered)) {
        hdi_sleep_for(50000);
    }
}

#endif
