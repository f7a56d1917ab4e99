/* part.h - the peer layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. Before hd_open creates its contents, it is all
 * zeros.
 */
#ifndef HDI_PEER_PART_H
#define HDI_PEER_PART_H

#include "base/service.h"
#include "memory/part.h"

/* The thread that tests pairs of devices for copies (access.c). */
typedef struct hdi_peer_tester {
    hdi_mutex lock;
    hdi_service thread;
    bool wanted[HDI_DEVICES_MAX][HDI_DEVICES_MAX]; /* by device and owner */
} hdi_peer_tester;

typedef struct hdi_peer_part {
    hdi_memory_part below; /* first, since all parts share the runtime's address */
    struct hdi_peers *peers;
    hdi_peer_tester tester;
    hdi_mutex linking; /* for changes of hdi_device.peer_access: granting, dropping */
} hdi_peer_part;

static inline hdi_peer_part *hdi_peer_of(hd_runtime *rt)
{
    return (hdi_peer_part *)rt;
}

#endif
