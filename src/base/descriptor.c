/* descriptor.c - makes every descriptor of the library: none is ever 0, 1 or 2. Threads, locks and
 * invariants: see descriptor.h.
 *
 * The placeholder for a free number is a descriptor of "/" as a path only (O_PATH). So reading and
 * writing it fails as with a closed descriptor. Of several threads that make descriptors, the first
 * one occupies the free numbers, and the last one gives them back. If the program closes 0, 1 or 2
 * meanwhile, the system can still return that number. Then the descriptor is copied to a higher
 * number.
 */
#include "base/descriptor.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/lock.h"

#define STANDARD 3 /* descriptors below this one belong to the program */

static hdi_mutex lock = HDI_MUTEX_INIT(DESCRIPTORS);
static int users;               /* the number of calls that are making descriptors */
static bool occupied[STANDARD]; /* true: the library occupies this number */

static void descriptors_vacate(void)
{
    for (int n = 0; n < STANDARD; n++) {
        /* the program may have put another descriptor there, which must stay open */
        if (occupied[n] && (fcntl(n, F_GETFL) & O_PATH)) {
            close(n);
        }
        occupied[n] = false;
    }
}

/* The child lacks the threads that held the lock or made descriptors. */
static void descriptors_in_child(void)
{
    hdi_mutex_init(&lock, HDI_RANK_DESCRIPTORS);
    users = 0;
    descriptors_vacate();
}

static void descriptors_watch_forks(void)
{
    pthread_atfork(NULL, NULL, descriptors_in_child);
}

static bool descriptors_are_open(void)
{
    bool open = true;
    for (int n = 0; n < STANDARD; n++) {
        open = open && fcntl(n, F_GETFD) >= 0;
    }
    return open;
}

/* The lock is taken. */
static void descriptors_occupy(void)
{
    for (;;) {
        int n = open("/", O_PATH | O_CLOEXEC);
        if (n < 0 || n >= STANDARD) {
            if (n >= STANDARD) {
                close(n);
            }
            return;
        }
        occupied[n] = true;
    }
}

bool hdi_descriptors_hold(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, descriptors_watch_forks);
    int code = errno;
    hdi_mutex_lock(&lock);
    bool held = users > 0 || !descriptors_are_open();
    if (held) {
        users++;
        descriptors_occupy();
    }
    hdi_mutex_unlock(&lock);
    errno = code;
    return held;
}

void hdi_descriptors_release(bool held)
{
    if (!held) {
        return;
    }
    int code = errno;
    hdi_mutex_lock(&lock);
    if (users > 0 && --users == 0) { /* 0: this process is a child that was forked meanwhile */
        descriptors_vacate();
    }
    hdi_mutex_unlock(&lock);
    errno = code;
}

/* Replaces a descriptor whose number is too low. */
static int descriptor_lift(int descriptor)
{
    if (descriptor < 0 || descriptor >= STANDARD) {
        return descriptor;
    }
    int high = fcntl(descriptor, F_DUPFD_CLOEXEC, STANDARD), code = errno;
    close(descriptor);
    errno = code;
    return high;
}

/* Lifts both descriptors of a pair, or closes both. */
static int descriptor_lift_pair(int result, int ends[2])
{
    if (result != 0) {
        return result;
    }
    ends[0] = descriptor_lift(ends[0]);
    ends[1] = descriptor_lift(ends[1]);
    if (ends[0] >= 0 && ends[1] >= 0) {
        return 0;
    }
    int code = errno;
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
    errno = code;
    return -1;
}

int hdi_descriptor_open(const char *path, int flags, mode_t mode)
{
    bool held = hdi_descriptors_hold();
    int descriptor = descriptor_lift(open(path, flags | O_CLOEXEC, mode));
    hdi_descriptors_release(held);
    return descriptor;
}

int hdi_descriptor_temporary(char *pattern)
{
    bool held = hdi_descriptors_hold();
    int descriptor = descriptor_lift(mkostemp(pattern, O_CLOEXEC));
    hdi_descriptors_release(held);
    return descriptor;
}

int hdi_descriptor_memory(const char *name, unsigned flags)
{
    bool held = hdi_descriptors_hold();
    int descriptor = descriptor_lift(memfd_create(name, flags | MFD_CLOEXEC));
    hdi_descriptors_release(held);
    return descriptor;
}

int hdi_descriptor_event(int flags)
{
    bool held = hdi_descriptors_hold();
    int descriptor = descriptor_lift(eventfd(0, flags | EFD_CLOEXEC));
    hdi_descriptors_release(held);
    return descriptor;
}

int hdi_descriptor_process(pid_t pid)
{
    bool held = hdi_descriptors_hold();
    int descriptor = descriptor_lift((int)syscall(SYS_pidfd_open, pid, 0));
    hdi_descriptors_release(held);
    return descriptor;
}

int hdi_descriptor_copy(int descriptor, int least)
{
    return fcntl(descriptor, F_DUPFD_CLOEXEC, least > STANDARD ? least : STANDARD);
}

int hdi_descriptor_pipe(int ends[2])
{
    bool held = hdi_descriptors_hold();
    int result = descriptor_lift_pair(pipe2(ends, O_CLOEXEC), ends);
    hdi_descriptors_release(held);
    return result;
}

int hdi_descriptor_sockets(int type, int ends[2])
{
    bool held = hdi_descriptors_hold();
    int result = descriptor_lift_pair(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), ends);
    hdi_descriptors_release(held);
    return result;
}

/* Lifts the descriptors of a message. If one cannot be lifted, it is closed, and its number becomes
 * -1. */
static void descriptor_lift_received(struct msghdr *message)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        int *at = (int *)(void *)CMSG_DATA(head); /* aligned for an int */
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof *at;
        for (size_t i = 0; i < count; i++) {
            at[i] = descriptor_lift(at[i]);
        }
    }
}

ssize_t hdi_descriptor_receive(int socket, struct msghdr *message, int flags)
{
    bool held = hdi_descriptors_hold();
    ssize_t got = recvmsg(socket, message, flags | MSG_CMSG_CLOEXEC);
    if (got >= 0) {
        descriptor_lift_received(message);
    }
    hdi_descriptors_release(held);
    return got;
}

FILE *hdi_descriptor_text(const char *path)
{
    int descriptor = hdi_descriptor_open(path, O_RDONLY, 0);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "r") : NULL;
    if (file == NULL && descriptor >= 0) {
        close(descriptor);
    }
    return file;
}

DIR *hdi_descriptor_folder(const char *path)
{
    int descriptor = hdi_descriptor_open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    DIR *folder = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (folder == NULL && descriptor >= 0) {
        close(descriptor);
    }
    return folder;
}

void hdi_descriptor_library_stays(const char *name)
{
    dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void *hdi_descriptor_library(const char *name, int how)
{
    bool held = hdi_descriptors_hold();
    void *library = dlopen(name, how);
    hdi_descriptors_release(held);
    return library;
}

void hdi_descriptors_fill(void)
{
    for (int n = 0; n < STANDARD; n++) {
        if (fcntl(n, F_GETFD) < 0) {
            /* this descriptor gets the lowest free number, which is n, since only one thread
             * runs */
            open("/", O_PATH);
        }
    }
}
