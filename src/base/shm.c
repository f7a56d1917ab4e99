/* shm.c - memory that another process can be given.
 *
 * Threads: any; no locks. Always: the file keeps the size it was made with, so a process that maps it cannot be made to fault by
 * another that shortens it.
 */
#include "base/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/error.h"

/* Fails with the errno of the call `what`, after giving the descriptor back. */
static hd_status fail(const char *what, const char *name, size_t bytes, int descriptor)
{
    int code = errno;
    if (descriptor >= 0) {
        close(descriptor);
    }
    hd_status status = code == ENOMEM ? HD_ERROR_HOST_MEMORY : HD_ERROR_SYSTEM;
    return hdi_fail(status, "shared memory \"%s\" of %zu bytes: %s: %s", name, bytes, what, strerror(code));
}

hd_status hdi_shm_create(const char *name, size_t bytes, hdi_shm *out)
{
    int descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return fail("memfd_create", name, bytes, -1);
    }
    if (ftruncate(descriptor, (off_t)bytes) != 0) {
        return fail("ftruncate", name, bytes, descriptor);
    }
    if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail("fcntl(F_ADD_SEALS)", name, bytes, descriptor);
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED) {
        return fail("mmap", name, bytes, descriptor);
    }
    out->base = base;
    out->bytes = bytes;
    out->descriptor = descriptor;
    return HD_OK;
}

void hdi_shm_release(hdi_shm *shm)
{
    if (shm->base == NULL) {
        return;
    }
    munmap(shm->base, shm->bytes);
    close(shm->descriptor);
    shm->base = NULL;
    shm->bytes = 0;
    shm->descriptor = -1;
}
