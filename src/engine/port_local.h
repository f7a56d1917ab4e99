/* port_local.h - declarations that the files of the port to a driver in this process share.
 *
 * - port_local.c: all but device memory.
 * - port_memory.c: device memory, and the table of its mappings.
 *
 * Threads, locks, invariants: see port_local.c.
 */
#ifndef HDI_ENGINE_PORT_LOCAL_H
#define HDI_ENGINE_PORT_LOCAL_H

#include "base/lock.h"
#include "driver/current.h"
#include "engine/port.h"

/* Memory that this port mapped. An entry is `doomed` if its memory should be unmapped, but the
 * driver refused that. The port clears such entries before it maps more. */
typedef struct hdi_local_mapping {
    uint64_t at, bytes;
    hdcu_memhandle handle;
    uint32_t next;     /* 1 + the next entry of its chain; 0: none */
    bool held, mapped; /* the port owns the handle; the memory is mapped */
    bool doomed;
} hdi_local_mapping;

typedef struct hdi_local_port {
    hdi_port port; /* first: an hdi_port of this kind is an hdi_local_port */
    hdi_local_port_config config;
    struct hdi_engine *engine;

    hdi_mutex lock;
    hdi_local_mapping *mappings; /* under `lock`, like all below; in no order */
    size_t n_mappings, mappings_room, n_doomed;
    /* By address: 1 + the first entry of a chain. There are as many chains as the table can have
     * entries. */
    uint32_t *chains;
    hdcu_mem_prop prop; /* properties of physical memory; type 0: not queried yet */
    size_t granule;
} hdi_local_port;

static const hdi_answer hdi_local_good = {HDCU_SUCCESS, ""};

static inline hdi_local_port *hdi_local_port_of(hdi_port *port)
{
    return (hdi_local_port *)(void *)port;
}

static inline hdi_answer hdi_local_answer(hdcu_result code, const char *call)
{
    return (hdi_answer){code, call};
}

/* Makes the device's context current. Leave it (hdi_current_leave) only after success. */
static inline hdi_answer hdi_local_enter(const hdi_local_port *p, hdi_current *current)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    answer.code = hdi_current_enter(p->config.driver, p->config.context, current, &answer.call);
    return answer;
}

/* The first failure of two answers. */
static inline hdi_answer hdi_local_first(hdi_answer a, hdi_answer b)
{
    return hdi_answered(a) ? b : a;
}

static inline hdi_answer hdi_local_attribute(const hdi_local_port *p, int which, int32_t *out)
{
    int value = 0;
    hdi_answer answer = hdi_local_answer(p->config.driver->cuDeviceGetAttribute(&value, which, p->config.device),
                                         "cuDeviceGetAttribute");
    if (hdi_answered(answer)) {
        *out = value;
    }
    return answer;
}

/* ---- port_memory.c: as in hdi_port_calls ---- */

/* Queries the driver once for the properties of physical memory. Lock held. */
hdi_answer hdi_local_know_memory(hdi_local_port *p);

hdi_answer hdi_local_reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out);
hdi_answer hdi_local_unreserve(hdi_port *port, uint64_t at, uint64_t bytes);
hdi_answer hdi_local_map(hdi_port *port, uint64_t at, uint64_t bytes);
hdi_answer hdi_local_map_each(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each);
hdi_answer hdi_local_move(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes);
hdi_answer hdi_local_map_piece(hdi_port *port, uint64_t at, uint64_t bytes);
hdi_answer hdi_local_unmap(hdi_port *port, uint64_t at, uint64_t bytes);
hdi_answer hdi_local_grant(hdi_port *owner, int peer, uint64_t at, uint64_t bytes);
hdi_answer hdi_local_export_memory(hdi_port *owner, uint64_t at, uint64_t bytes, int *descriptor);
hdi_answer hdi_local_export_fabric(hdi_port *owner, uint64_t at, uint64_t bytes, unsigned char out[HDI_FABRIC_BYTES]);
hdi_answer hdi_local_import_memory(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes);
hdi_answer hdi_local_import_fabric(hdi_port *port, const unsigned char handle[HDI_FABRIC_BYTES], uint64_t at,
                                   uint64_t bytes);

#endif
