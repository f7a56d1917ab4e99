/* shm.h - memory that another process can be given: an anonymous file, sealed against resizing, mapped shared.
 *
 * Nothing appears in the file system; the descriptor is close-on-exec. Pages are zero and cost nothing until touched.
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
    bool keeps_addresses; /* its addresses stay taken when it is released */
} hdi_shm;

/* `name` shows in /proc/PID/maps. Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_shm_create(const char *name, size_t bytes, hdi_shm *out);
/* Maps the file that another process made with hdi_shm_create. Takes the descriptor over, also on failure. Errors: SYSTEM (also
 * when it has another size or could be shortened), HOST_MEMORY. */
hd_status hdi_shm_map(int descriptor, size_t bytes, hdi_shm *out);

/* Whole pages of the mapping, from `from` up to `to`, are only read from here on. Errors: SYSTEM. */
hd_status hdi_shm_only_read(const hdi_shm *shm, size_t from, size_t to);
/* hdi_shm_create at this address: whole pages inside a range that the caller has reserved (hdi_shm_reserve), whose addresses stay
 * reserved when the memory is released. Nothing is changed on failure. Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_shm_create_at(const char *name, size_t bytes, void *address, hdi_shm *out);

void hdi_shm_release(hdi_shm *shm); /* zeroed or released: ignored */
/* Gives the memory back, but not its addresses: nothing else comes to lie there. Zeroed or released: ignored. */
void hdi_shm_bury(hdi_shm *shm);

/* Takes an address range without memory behind it. False: something is there already (errno EEXIST), or the system has no room for it
 * (ENOMEM). Given back with munmap. */
bool hdi_shm_reserve(void *address, size_t bytes);

#endif
