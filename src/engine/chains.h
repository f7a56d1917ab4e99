/* chains.h - the executable graphs of an engine, which issue.c fills and launches.
 *
 * Threads: the thread that runs the device's engine.
 * Locks: the caller holds `chaining` of the engine.
 * Always: a chain belongs to one lane, or is spare.
 */
#ifndef HDI_ENGINE_CHAINS_H
#define HDI_ENGINE_CHAINS_H

#include "engine/stream.h"

/* The most slots that hdi_chain_setting can keep of a launch. If a launch is longer, the engine
 * sets its node each time. */
#define HDI_CHAIN_SLOTS_KEPT 2

/* The launch to which a node was last set. If the next launch is identical, the engine makes no
 * call for the node. This saves time: programs repeat their launches, and most of a chain's cost
 * are the calls that set nodes. */
typedef struct hdi_chain_setting {
    hdcu_function function; /* NULL: not recorded, or too long to keep */
    uint32_t kernel;        /* the kernel of the node's function */
    hdi_command command[HDI_CHAIN_SLOTS_KEPT];
} hdi_chain_setting;

typedef struct hdi_chain {
    struct hdi_chain *next; /* the next spare chain of this size */
    hdcu_graph graph;
    hdcu_graphexec exec[2];
    hdi_chain_setting *settings; /* of the nodes of both executables */
    uint32_t like;               /* the kernel of the graph's own nodes */
    uint32_t turn;               /* the executable to launch next */
    hdcu_graphnode node[HDI_CHAIN_MOST];
} hdi_chain;

/* The chains of a lane. */
struct hdi_chains {
    hdi_chain *of[HDI_CHAIN_SIZES]; /* with 1, 2, 4 ... launches; NULL: none */
    int64_t used;                   /* clock */
    /* Launches up to this position are issued one by one, since the driver refused a chain of
     * them. */
    uint64_t plain;
    /* The most launches that the next chain may have. In an empty lane this is 1, so that the
     * device gets the first launch at once. */
    uint32_t growing;
};

/* Returns the lane's chain of this size. If the lane has none, it borrows a spare chain. NULL: no
 * spare chain is left. */
hdi_chain *hdi_chain_get(hdi_engine *engine, hdi_stream *stream, uint32_t size_log2);

/* Notes that the driver refused to make or launch a chain. */
void hdi_chain_refused(hdi_engine *engine, int code);

#endif
