/* shm.h - memory that another process can be given: an anonymous file, sealed against resizing, mapped shared.
 *
 * Nothing appears in the file system; the descriptor is close-on-exec. Pages are zero and cost nothing until touched.
 */
#ifndef HDI_BASE_SHM_H
#define HDI_BASE_SHM_H

#include <stddef.h>
#include <heddle/status.h>

typedef struct hdi_shm {
    void *base;
    size_t bytes;
    int descriptor;
} hdi_shm;

/* `name` shows in /proc/PID/maps. Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_shm_create(const char *name, size_t bytes, hdi_shm *out);
void hdi_shm_release(hdi_shm *shm); /* zeroed or released: ignored */

#endif
