/* file.c - the memory files of host devices: a device's pieces of physical memory, however many,
 * all lie in one file with one descriptor.
 *
 * A file is sparse, and as large as the system permits. Each piece takes new offsets, which no
 * later piece gets; freed pages go back to the system. If a limit on the size of files (ulimit -f)
 * prevents such a file, each piece gets a file of its own.
 *
 * An export is a descriptor whose position names the piece (offset and size, in granules). A read
 * lock on the bytes of a piece shows that the piece is in use. Each process that exported or
 * imported the piece holds such a lock, and so does each exported descriptor. When a process ends,
 * the system removes its locks. The process that drops the piece last gives the pages back. If an
 * exported descriptor holds the piece last, the pages stay until the file is gone.
 *
 * Threads: any. Locks: all functions except hdi_host_piece_clear run under the host lock. Blocking:
 * none.
 * Always: a file is open here as long as this process holds a piece of it. The size of a file is
 * sealed: if a process could shrink the file, another process would fault. After a process was
 * killed, its pages stay until no process holds a piece of their file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/file.h"
#include "simulator/host.h"

#define FILE_NAME "heddle-host-memory:"

/* A position: the piece's offset above its size, both in granules. */
#define SIZE_BITS 23
#define LARGEST_BITS 60
#define LEAST_BITS 40

struct hdi_host_file {
    hdi_host_file *next;
    int descriptor;
    int device;
    bool made_here;
    off_t bytes, used; /* offsets from `used` on are free */
    unsigned pieces;   /* 0: the file is in no list any more */
    /* the number of pieces, with those that are not cleared yet; the last one closes the file */
    atomic_uint users;
    dev_t file_system;
    ino_t number;
};

static hdi_host_file *files; /* the files of which this process holds a piece */

/* Makes an entry. NULL: no memory, and the descriptor is closed. */
static hdi_host_file *host_file_add(int descriptor, int device, const struct stat *facts)
{
    hdi_host_file *f = calloc(1, sizeof *f);
    if (!f) {
        close(descriptor);
        return NULL;
    }
    f->descriptor = descriptor;
    f->device = device;
    f->bytes = facts->st_size;
    f->file_system = facts->st_dev;
    f->number = facts->st_ino;
    f->next = files;
    files = f;
    return f;
}

static hdi_host_file *host_file_make(int device, size_t bytes)
{
    char name[64];
    struct stat facts;
    snprintf(name, sizeof name, FILE_NAME "%d", device);
    int descriptor = hdi_descriptor_memory(name, MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return NULL;
    }
    bool sized = false;
    for (int bits = LARGEST_BITS; bits >= LEAST_BITS && !sized; bits -= 4) {
        sized = hdi_quiet_resize(descriptor, (off_t)1 << bits) == 0;
    }
    sized = sized || hdi_quiet_resize(descriptor, (off_t)bytes) == 0;
    if (!sized || fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 || fstat(descriptor, &facts) != 0) {
        close(descriptor);
        return NULL;
    }
    hdi_host_file *f = host_file_add(descriptor, device, &facts);
    if (f) {
        f->made_here = true;
    }
    return f;
}

static hdi_host_piece host_file_piece_of(hdi_host_file *f, off_t offset, size_t bytes)
{
    f->pieces++;
    /* Relaxed: the host lock is held, and `users` already counts pieces that are not cleared
     * yet. */
    atomic_fetch_add_explicit(&f->users, 1, memory_order_relaxed);
    return (hdi_host_piece){.file = f, .offset = offset, .bytes = bytes};
}

bool hdi_host_piece_make(int device, size_t bytes, hdi_host_piece *out)
{
    hdi_host_file *f = files;
    while (f && !(f->made_here && f->device == device && (off_t)bytes <= f->bytes - f->used)) {
        f = f->next;
    }
    if (!f && !(f = host_file_make(device, bytes))) {
        return false;
    }
    *out = host_file_piece_of(f, f->used, bytes);
    f->used += (off_t)bytes;
    return true;
}

int hdi_host_piece_descriptor(const hdi_host_piece *piece)
{
    return piece->file->descriptor;
}

/* ---- shared with other processes ---- */

/* Sets F_RDLCK or F_UNLCK on the bytes of the piece, for all holders of this descriptor or of a
 * copy of it. */
static bool host_piece_lock(int descriptor, const hdi_host_piece *piece, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = piece->offset, .l_len = (off_t)piece->bytes};
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

static bool host_piece_others_have(const hdi_host_piece *piece)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = piece->offset, .l_len = (off_t)piece->bytes};
    return fcntl(piece->file->descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static bool host_piece_share(hdi_host_piece *piece)
{
    piece->shared = piece->shared || host_piece_lock(piece->file->descriptor, piece, F_RDLCK);
    return piece->shared;
}

/* Opens the file again, with a position and locks of its own. -1: with errno. */
static int host_file_open_again(int descriptor)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return hdi_descriptor_open(path, O_RDWR, 0);
}

int hdi_host_piece_export(hdi_host_piece *piece)
{
    off_t position = piece->offset / (off_t)HDI_HOST_GRANULE << SIZE_BITS | (off_t)(piece->bytes / HDI_HOST_GRANULE);
    int descriptor = host_piece_share(piece) ? host_file_open_again(piece->file->descriptor) : -1;
    if (descriptor >= 0 &&
        (!host_piece_lock(descriptor, piece, F_RDLCK) || lseek(descriptor, position, SEEK_SET) != position)) {
        close(descriptor);
        descriptor = -1;
    }
    return descriptor;
}

/* Returns the device of the descriptor's memory, if a host provider made that memory; else -1. */
static int host_file_imported_device(int descriptor)
{
    char path[64], name[128];
    int device = -1;
    int seals = fcntl(descriptor, F_GET_SEALS);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    ssize_t n = seals < 0 || !(seals & F_SEAL_SHRINK) ? -1 : readlink(path, name, sizeof name - 1);
    if (n <= 0) {
        return -1;
    }
    name[n] = 0;
    return sscanf(name, "/memfd:" FILE_NAME "%d", &device) == 1 ? device : -1;
}

static hdi_host_file *host_file_find(const struct stat *facts)
{
    hdi_host_file *f = files;
    while (f && !(f->number == facts->st_ino && f->file_system == facts->st_dev)) {
        f = f->next;
    }
    return f;
}

/* Reads the piece that a descriptor names. False: the descriptor names no piece. */
static bool host_piece_read_name(int descriptor, int *device, struct stat *facts, off_t *offset, size_t *bytes)
{
    *device = host_file_imported_device(descriptor);
    off_t position = lseek(descriptor, 0, SEEK_CUR);
    if (*device < 0 || position < 0 || fstat(descriptor, facts) != 0) {
        return false;
    }
    *offset = (position >> SIZE_BITS) * (off_t)HDI_HOST_GRANULE;
    *bytes = (size_t)(position & (((off_t)1 << SIZE_BITS) - 1)) * HDI_HOST_GRANULE;
    return *bytes != 0 && *offset <= facts->st_size && (off_t)*bytes <= facts->st_size - *offset;
}

uint64_t hdi_host_export_bytes(int descriptor)
{
    int device;
    struct stat facts;
    off_t offset;
    size_t bytes;
    return host_piece_read_name(descriptor, &device, &facts, &offset, &bytes) ? bytes : 0;
}

hdcu_result hdi_host_piece_import(int descriptor, int *device, hdi_host_piece *out)
{
    struct stat facts;
    off_t offset;
    size_t bytes;
    if (!host_piece_read_name(descriptor, device, &facts, &offset, &bytes)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (!hdi_host_device_valid(*device)) {
        return HDCU_ERROR_NOT_SUPPORTED; /* the piece was made by a process with more devices */
    }
    hdi_host_file *f = host_file_find(&facts);
    if (!f) {
        int again = host_file_open_again(descriptor);
        if (again < 0) {
            return HDCU_ERROR_OPERATING_SYSTEM;
        }
        f = host_file_add(again, *device, &facts);
        if (!f) {
            return HDCU_ERROR_OUT_OF_MEMORY;
        }
    }
    *out = host_file_piece_of(f, offset, bytes);
    if (!host_piece_share(out)) {
        hdi_host_piece_drop(out);
        hdi_host_piece_clear(out);
        return HDCU_ERROR_OPERATING_SYSTEM;
    }
    return HDCU_SUCCESS;
}

void hdi_host_piece_forget(hdi_host_piece *piece)
{
    piece->file->pieces--;
    /* another piece still uses the file */
    atomic_fetch_sub_explicit(&piece->file->users, 1, memory_order_relaxed);
}

bool hdi_host_piece_same(const hdi_host_piece *a, const hdi_host_piece *b)
{
    return a->file == b->file && a->offset == b->offset;
}

/* ---- the end of a piece ---- */

void hdi_host_piece_drop(hdi_host_piece *piece)
{
    hdi_host_file *f = piece->file;
    if (piece->shared) {
        host_piece_lock(f->descriptor, piece, F_UNLCK);
        piece->kept = host_piece_others_have(piece);
    }
    if (--f->pieces == 0) {
        hdi_host_file **link = &files;
        while (*link != f) {
            link = &(*link)->next;
        }
        *link = f->next;
    }
}

void hdi_host_piece_clear(hdi_host_piece *piece)
{
    hdi_host_file *f = piece->file;
    if (!f) {
        return;
    }
    if (!piece->kept) {
        fallocate(f->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, piece->offset, (off_t)piece->bytes);
    }
    /* acq_rel: the last user closes the file after all other users' calls on the file */
    if (atomic_fetch_sub_explicit(&f->users, 1, memory_order_acq_rel) == 1) {
        close(f->descriptor);
        free(f);
    }
    piece->file = NULL;
}
