/* worker.c - the program heddle-worker: drives one device for the process that started it.
 *
 * hd_open starts it with placement=process; it is useless by itself. Two sockets come as
 * descriptors 3 and 4. The kernel kills the worker when its parent's watcher thread ends, and the
 * worker ends by itself when the sockets close.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <heddle/version.h>
#include "process/spawn.h"
#include "worker/workers.h"

static int worker_is_socket(int descriptor)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

int main(void)
{
    if (!worker_is_socket(HDI_WORKER_MEMORY_SOCKET) || !worker_is_socket(HDI_WORKER_CODE_SOCKET)) {
        fprintf(
            stderr,
            "heddle-worker %s: started by Heddle's hd_open with placement=process, to drive one device; not by hand\n",
            hd_version());
        return HDI_WORKER_EXIT_USAGE;
    }
    hdi_program_begin();
    /* A driver may take a descriptor for each part of memory that peers may share. */
    struct rlimit descriptors;
    if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        descriptors.rlim_cur = descriptors.rlim_max;
        setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    /* No destructors: those of the driver may hang after the device failed. */
    _exit(hdi_worker_service(HDI_WORKER_MEMORY_SOCKET, HDI_WORKER_CODE_SOCKET));
}
