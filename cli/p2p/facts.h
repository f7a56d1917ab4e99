/* facts.h - facts from the system about devices and the paths between them: IOMMU, bridges, links,
 * memory windows, settings of the driver.
 *
 * Threads: one at a time. Locks: none.
 * Always: facts come only from /sys and /proc. If only root can read a fact, the fact is unknown;
 * these functions never guess. They change nothing, and never fail.
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
    const char *remedy; /* "": not needed, or unknown */
} p2p_fact;

/* A device to read facts about. */
typedef struct p2p_place {
    char bus_id[SYSTEM_BUS_ID]; /* "0000:1b:00.0" */
    uint64_t memory_bytes;
} p2p_place;

typedef struct p2p_facts {
    int n;
    p2p_fact list[P2P_FACTS_MAX];
    system_path path[P2P_PLACES_MAX][P2P_PLACES_MAX];
} p2p_facts;

/* The result of testing a pair. */
typedef enum p2p_outcome { P2P_UNTESTED, P2P_WORKS, P2P_REFUSED, P2P_BAD } p2p_outcome;

/* Marks a problem as harmless if all pairs that it could harm passed their tests. Then nobody
 * changes a working setup because of the problem. outcome[d][o] is the result of the test in which
 * d uses memory of o. */
void p2p_facts_settle(p2p_facts *facts, int n, p2p_outcome outcome[P2P_PLACES_MAX][P2P_PLACES_MAX]);

/* `root` is put before /sys and /proc; outside of tests it is "". */
void p2p_facts_read(const char *root, const p2p_place *places, int n, p2p_facts *out);

const char *p2p_state_text(p2p_state state);

#endif
