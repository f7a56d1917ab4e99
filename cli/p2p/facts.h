/* facts.h - what the system reports of devices and the paths between them: IOMMU, bridges, links, windows, the driver's settings.
 *
 * Threads: one at a time. Locks: none.
 * Always: only facts that /sys and /proc have. What an unprivileged reader cannot see is unknown, and never guessed.
 * Nothing is changed. Nothing here fails.
 */
#ifndef CLI_P2P_FACTS_H
#define CLI_P2P_FACTS_H

#include <stdint.h>
#include "cli/common/system.h"

enum { P2P_FACTS_MAX = 32 * 4 + 8, P2P_PLACES_MAX = 32, P2P_FACT_TEXT = 240 };

typedef enum p2p_state { P2P_OK, P2P_PROBLEM, P2P_UNKNOWN } p2p_state;

typedef struct p2p_fact {
    p2p_state state;
    int device; /* -1: the machine */
    const char *id, *name;
    char text[P2P_FACT_TEXT];
    const char *remedy; /* "": none is needed or known */
} p2p_fact;

/* A device of which facts are wanted. */
typedef struct p2p_place {
    char bus_id[SYSTEM_BUS_ID]; /* "0000:1b:00.0" */
    uint64_t memory_bytes;
} p2p_place;

typedef struct p2p_facts {
    int n;
    p2p_fact list[P2P_FACTS_MAX];
    system_path path[P2P_PLACES_MAX][P2P_PLACES_MAX];
} p2p_facts;

/* `root` is put before /sys and /proc: "" but for tests. */
void p2p_facts_read(const char *root, const p2p_place *places, int n, p2p_facts *out);

const char *p2p_state_text(p2p_state state);

#endif
