/* shm.c - memory that can be shared with another process.
 *
 * Threads: any; no locks. Always: the file keeps its initial size. If a process could shorten it,
 * other processes that map it would fault.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/shm.h"
#include "base/text.h"

/* Closes the descriptor, and fails with the errno of the call `what`. */
static hd_status shm_fail(const char *what, const char *name, size_t bytes, int descriptor)
{
    int code = errno;
    if (descriptor >= 0) {
        close(descriptor);
    }
    hd_status status = code == ENOMEM ? HD_ERROR_HOST_MEMORY : HD_ERROR_SYSTEM;
    return hdi_fail(status, "shared memory \"%s\" of %s: %s: %s%s", name, HDI_BYTES(bytes), what, strerror(code),
                    code == EFBIG ? "; raise the limit on the size of files (ulimit -f)" : "");
}

/* Makes a file of this size, sealed. */
static hd_status shm_make_file(const char *name, size_t bytes, int *out)
{
    int descriptor = hdi_descriptor_memory(name, MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return shm_fail("memfd_create", name, bytes, -1);
    }
    if (hdi_quiet_resize(descriptor, (off_t)bytes) != 0) {
        return shm_fail("ftruncate", name, bytes, descriptor);
    }
    if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return shm_fail("fcntl(F_ADD_SEALS)", name, bytes, descriptor);
    }
    *out = descriptor;
    return HD_OK;
}

hd_status hdi_shm_create(const char *name, size_t bytes, hdi_shm *out)
{
    int descriptor = -1;
    hd_status status = shm_make_file(name, bytes, &descriptor);
    if (status != HD_OK) {
        return status;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED) {
        return shm_fail("mmap", name, bytes, descriptor);
    }
    *out = (hdi_shm){.base = base, .bytes = bytes, .descriptor = descriptor};
    return HD_OK;
}

hd_status hdi_shm_create_at(const char *name, size_t bytes, void *address, hdi_shm *out)
{
    int descriptor = -1;
    hd_status status = shm_make_file(name, bytes, &descriptor);
    if (status != HD_OK) {
        return status;
    }
    void *base = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
    if (base == MAP_FAILED) {
        return shm_fail("mmap", name, bytes, descriptor);
    }
    *out = (hdi_shm){.base = base, .bytes = bytes, .descriptor = descriptor, .keeps_addresses = true};
    return HD_OK;
}

hd_status hdi_shm_map(int descriptor, size_t bytes, hdi_shm *out)
{
    struct stat facts;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || fstat(descriptor, &facts) != 0) {
        return shm_fail("fcntl(F_GET_SEALS), fstat", "from another process", bytes, descriptor);
    }
    if (!(seals & F_SEAL_SHRINK) || facts.st_size != (off_t)bytes) {
        errno = EINVAL;
        return shm_fail("size or seals", "from another process", bytes, descriptor);
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED) {
        return shm_fail("mmap", "from another process", bytes, descriptor);
    }
    *out = (hdi_shm){.base = base, .bytes = bytes, .descriptor = descriptor};
    return HD_OK;
}

hd_status hdi_shm_only_read(const hdi_shm *shm, size_t from, size_t to)
{
    if (mprotect((char *)shm->base + from, to - from, PROT_READ) != 0) {
        return hdi_fail(HD_ERROR_SYSTEM, "shared memory: mprotect: %s", strerror(errno));
    }
    return HD_OK;
}

/* Takes inaccessible addresses, which cost nothing. */
static void *shm_take_addresses(void *address, size_t bytes, int how)
{
    return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);
}

bool hdi_shm_reserve(void *address, size_t bytes)
{
    void *base = shm_take_addresses(address, bytes, MAP_FIXED_NOREPLACE);
    if (base != MAP_FAILED && base != address) { /* some systems take the address only as a hint */
        munmap(base, bytes);
        errno = EEXIST;
        return false;
    }
    return base != MAP_FAILED;
}

void hdi_shm_release(hdi_shm *shm)
{
    if (shm->base == NULL) {
        return;
    }
    if (shm->keeps_addresses) {
        shm_take_addresses(shm->base, shm->bytes, MAP_FIXED);
    } else {
        munmap(shm->base, shm->bytes);
    }
    close(shm->descriptor);
    *shm = (hdi_shm){.descriptor = -1};
}

void hdi_shm_bury(hdi_shm *shm)
{
    shm->keeps_addresses = true;
    hdi_shm_release(shm);
}
