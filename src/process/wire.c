/* wire.c - messages with descriptors between two processes. Threads, locks and invariants: see
 * wire.h.
 *
 * The sockets are AF_UNIX SOCK_SEQPACKET. Every call first tries its system call, and sleeps in
 * ppoll only if the system call cannot succeed at once. So each end works whether the other side
 * made its own end non-blocking or not.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/cancel.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/wait.h"
#include "process/wire.h"

#define SLEEP_NS 1000000

hd_status hdi_wire_pair(int ends[2])
{
    HDI_UNCANCELLED;
    int made[2];
    if (hdi_descriptor_sockets(SOCK_SEQPACKET | SOCK_NONBLOCK, made) != 0) {
        return hdi_fail(HD_ERROR_SYSTEM, "socket pair to a worker process: %s", strerror(errno));
    }
    /* The system's default may be too small for the largest message. */
    int bytes = 4 * HDI_WIRE_BYTES;
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(made[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        ends[i] = made[i];
    }
    return HD_OK;
}

void hdi_wire_close(const int *descriptors, int n_descriptors)
{
    HDI_UNCANCELLED;
    for (int i = 0; i < n_descriptors; i++) {
        if (descriptors[i] >= 0) {
            close(descriptors[i]);
        }
    }
}

/* Sleeps until the socket is worth another try. False: the deadline passed. */
static bool wire_await_socket(int socket, short events, int64_t deadline)
{
    for (;;) {
        struct timespec limit, *limit_or_none = NULL;
        if (deadline != INT64_MAX) {
            int64_t left = deadline - hdi_clock_ns();
            if (left <= 0) {
                return false;
            }
            limit.tv_sec = (time_t)(left / 1000000000);
            limit.tv_nsec = (long)(left % 1000000000);
            limit_or_none = &limit;
        }
        struct pollfd look = {.fd = socket, .events = events};
        int ready = ppoll(&look, 1, limit_or_none, NULL);
        if (ready > 0) {
            return true; /* the same for an error: the next try returns it */
        }
        if (ready < 0 && errno != EINTR) {
            /* the system lacks memory for ppoll, so the thread waits a little */
            hdi_sleep_for(SLEEP_NS);
        }
        /* nothing came yet; `left` is true while time remains */
    }
}

/* Room for the descriptors of one message, aligned for the kernel. */
typedef union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(HDI_WIRE_DESCRIPTORS * sizeof(int))];
} control;

static void wire_attach(struct msghdr *message, control *c, const int *descriptors, int n_descriptors)
{
    size_t bytes = (size_t)n_descriptors * sizeof(int);
    memset(c, 0, sizeof *c);
    message->msg_control = c->bytes;
    message->msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *head = CMSG_FIRSTHDR(message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(head), descriptors, bytes);
}

hdi_wire_result hdi_wire_send(int socket, const void *bytes, size_t n, const int *descriptors, int n_descriptors,
                              int64_t deadline)
{
    HDI_UNCANCELLED;
    if (n == 0 || n > HDI_WIRE_BYTES || n_descriptors < 0 || n_descriptors > HDI_WIRE_DESCRIPTORS) {
        return HDI_WIRE_BROKEN;
    }
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    control c;
    if (n_descriptors > 0) {
        wire_attach(&message, &c, descriptors, n_descriptors);
    }
    for (;;) {
        ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == (ssize_t)n) {
            return HDI_WIRE_OK;
        }
        switch (sent < 0 ? errno : EIO) {
        case EINTR:
            break;
        case EAGAIN:
            if (!wire_await_socket(socket, POLLOUT, deadline)) {
                return HDI_WIRE_TIMEOUT;
            }
            break;
        case ENOBUFS: /* a resource of the system is short for now */
        case ENOMEM:
        case ETOOMANYREFS:
            if (hdi_clock_ns() >= deadline) {
                return HDI_WIRE_TIMEOUT;
            }
            hdi_sleep_for(SLEEP_NS);
            break;
        case EPIPE:
        case ECONNRESET:
        case ENOTCONN:
            return HDI_WIRE_CLOSED;
        default:
            return HDI_WIRE_BROKEN;
        }
    }
}

/* Takes over every descriptor of a received message: stores the first `room` of them, and closes
 * the others. */
static int wire_detach(struct msghdr *message, int *descriptors, int room)
{
    int stored = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof descriptor);
            if (stored < room) {
                descriptors[stored++] = descriptor;
            } else {
                close(descriptor);
            }
        }
    }
    return stored;
}

/* One try. -1: see errno. */
static ssize_t wire_try_receive(int socket, void *bytes, size_t room, int *descriptors, int descriptors_room,
                                int *n_descriptors, int *flags)
{
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    control c;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    ssize_t got = hdi_descriptor_receive(socket, &message, MSG_DONTWAIT);
    if (got >= 0) {
        *n_descriptors = wire_detach(&message, descriptors, descriptors_room);
        *flags = message.msg_flags;
    }
    return got;
}

hdi_wire_result hdi_wire_receive(int socket, void *bytes, size_t room, size_t *n, int *descriptors,
                                 int descriptors_room, int *n_descriptors, int64_t deadline)
{
    HDI_UNCANCELLED;
    *n = 0;
    *n_descriptors = 0;
    for (;;) {
        int stored = 0, flags = 0;
        ssize_t got = wire_try_receive(socket, bytes, room, descriptors, descriptors_room, &stored, &flags);
        if (got > 0 && !(flags & (MSG_TRUNC | MSG_CTRUNC))) {
            *n = (size_t)got;
            *n_descriptors = stored;
            return HDI_WIRE_OK;
        }
        if (got >= 0) {
            /* 0 is the end; no process sends empty messages */
            hdi_wire_close(descriptors, stored);
            return got == 0 ? HDI_WIRE_CLOSED : HDI_WIRE_BROKEN;
        }
        switch (errno) {
        case EINTR:
            break;
        case EAGAIN:
            if (!wire_await_socket(socket, POLLIN, deadline)) {
                return HDI_WIRE_TIMEOUT;
            }
            break;
        case ECONNRESET:
        case ENOTCONN:
            return HDI_WIRE_CLOSED;
        default:
            return HDI_WIRE_BROKEN;
        }
    }
}
