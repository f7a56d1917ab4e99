/* shm.h - memory that can be shared with another process: an anonymous file, sealed against
 * resizing, mapped shared.
 *
 * Nothing appears in the file system; the descriptor is close-on-exec. Pages are zero and cost
 * nothing until touched.
 *
 * Threads: any. Locks: none.
 */
#ifndef HDI_BASE_SHM_H
#define HDI_BASE_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <heddle/status.h>

typedef struct hdi_shm {
    void *base;
    size_t bytes;
    int descriptor;
    bool keeps_addresses; /* the addresses stay taken after the memory's release */
} hdi_shm;

/* /proc/PID/maps shows `name`. Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_shm_create(const char *name, size_t bytes, hdi_shm *out);
/* Maps the file that another process made with hdi_shm_create. Takes the descriptor over, even on
 * failure. Errors: SYSTEM (also if the file has another size or could be shortened),
 * HOST_MEMORY. */
hd_status hdi_shm_map(int descriptor, size_t bytes, hdi_shm *out);

/* Makes whole pages of the mapping read-only from here on, from `from` up to `to`. Errors:
 * SYSTEM. */
hd_status hdi_shm_only_read(const hdi_shm *shm, size_t from, size_t to);
/* Like hdi_shm_create, but at this address, for whole pages inside a range that the caller reserved
 * (hdi_shm_reserve). The addresses stay reserved after the release of the memory. A failure changes
 * nothing. Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_shm_create_at(const char *name, size_t bytes, void *address, hdi_shm *out);

void hdi_shm_release(hdi_shm *shm); /* does nothing if *shm is zeroed or released */
/* Gives the memory back, but keeps its addresses, so that nothing else gets them. Does nothing if
 * *shm is zeroed or released. */
void hdi_shm_bury(hdi_shm *shm);

/* Takes an address range without memory behind it. False: the range is in use (errno EEXIST), or
 * the system is out of room (ENOMEM). Give it back with munmap. */
bool hdi_shm_reserve(void *address, size_t bytes);

#endif
