/* port_local.h - the inside of the local port, for port_local.c (facts, memory, pinning) and port_code.c (lanes,
 * modules, kernels, libraries).
 *
 * Threads: any.
 * Locks: `lock` of the port covers its table of mappings. It is held across the driver calls that change the table. The
 * rest takes no lock.
 * Always: driver calls are made with the device's context current. Only `unreserve` and `unpin` go on where it cannot
 * be entered, since they name addresses and handles, which belong to the process.
 */
#ifndef HDI_ENGINE_PORT_LOCAL_H
#define HDI_ENGINE_PORT_LOCAL_H

#include "base/lock.h"
#include "driver/current.h"
#include "engine/port.h"

/* Memory that this port mapped. An entry that should be gone, but could not be undone, is `doomed`. It is cleared
 * before anything more is mapped. */
typedef struct hdi_local_mapping {
    uint64_t at, bytes;
    hdcu_memhandle handle;
    bool held, mapped; /* the handle is ours; it is mapped */
    bool doomed;
} hdi_local_mapping;

typedef struct hdi_local_port {
    hdi_port port; /* first: an hdi_port of this kind is an hdi_local_port */
    hdi_local_port_config config;
    struct hdi_engine *engine;

    hdi_mutex lock;
    hdi_local_mapping *mappings; /* under `lock`, like all below; in no order */
    size_t n_mappings, mappings_room;
    hdcu_mem_prop prop; /* of physical memory; type 0: not asked for yet */
    size_t granule;
} hdi_local_port;

static inline hdi_local_port *hdi_local_port_of(hdi_port *port)
{
    return (hdi_local_port *)(void *)port;
}

static inline hdi_answer hdi_local_answer(hdcu_result code, const char *call)
{
    return (hdi_answer){code, call};
}

/* Makes the device's context current. Only after success is it to be left (hdi_current_leave). */
static inline hdi_answer hdi_local_enter(const hdi_local_port *p, hdi_current *current)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    answer.code = hdi_current_enter(p->config.driver, p->config.context, current, &answer.call);
    return answer;
}

/* port_code.c: the calls of hdi_port_calls with these names */
hdi_answer hdi_local_lane(hdi_port *port, uint32_t number, bool sticky_failure);
hdi_answer hdi_local_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log);
hdi_answer hdi_local_unload(hdi_port *port, uint64_t module);
hdi_answer hdi_local_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number, hdi_kernel_facts *out);
hdi_answer hdi_local_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes);
hdi_answer hdi_local_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out);

/* Ensures that the runtime's table of kernels has an entry for `number`. False: no memory, or no such number. Any
 * thread. */
bool hdi_kernel_table_reach(struct hd_runtime *rt, uint32_t number);

#endif
