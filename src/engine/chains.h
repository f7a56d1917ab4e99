/* chains.h - the executable graphs of an engine, which issue.c fills and launches.
 *
 * Threads: the thread that runs the device's engine.
 * Locks: the caller holds `chaining` of the engine.
 * Always: a chain belongs to one lane, or is spare.
 */
#ifndef HDI_ENGINE_CHAINS_H
#define HDI_ENGINE_CHAINS_H

#include "engine/stream.h"

/* Slots of a command. The node of a longer command is set each time. */
#define HDI_CHAIN_SLOTS_KEPT 2

/* The last setting of a node. An identical launch needs no call for the node. Programs repeat their
 * launches, and calls for nodes are most of a chain's cost. */
typedef struct hdi_chain_setting {
    hdcu_function function; /* NULL: not recorded, or too long to keep */
    uint32_t kernel;        /* the kernel of the node's function */
    hdi_command command[HDI_CHAIN_SLOTS_KEPT];
} hdi_chain_setting;

typedef struct hdi_chain {
    struct hdi_chain *next; /* of the spare ones */
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
    /* Up to this position launches are issued one by one, since the driver refused one. */
    uint64_t plain;
    /* The most launches of the next chain. 1 in an empty lane, so that the device gets the first
     * launch at once. */
    uint32_t growing;
};

/* Gives the lane a spare chain of this size if it has none. NULL: none is spare. */
hdi_chain *hdi_chain_get(hdi_engine *engine, hdi_stream *stream, uint32_t size_log2);

/* Notes that the driver refused to make or launch a chain. */
void hdi_chain_refused(hdi_engine *engine, int code);

#endif
