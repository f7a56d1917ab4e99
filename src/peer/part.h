/* part.h - what the layer of peer access has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_PEER_PART_H
#define HDI_PEER_PART_H

#include "memory/part.h"

typedef struct hdi_peer_part {
    hdi_memory_part below; /* first: the runtime's address is that of each part */
    struct hdi_peers *peers;
    hdi_mutex linking; /* for changes of hdi_device.peer_access: granting, dropping */
} hdi_peer_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_peer_part *hdi_peer_of(const hd_runtime *rt)
{
    return (hdi_peer_part *)rt;
}

#endif
