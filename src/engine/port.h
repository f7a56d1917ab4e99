/* port.h - rare requests to a device, in addition to the work in its lanes.
 *
 * The requests concern facts, lanes, mapping and pinning memory, modules and kernels. The engine's
 * hot path makes no such request. Two kinds of ports answer these requests:
 * - The local one calls the driver on the calling thread. It serves the placements inline and
 *   thread, and each worker process.
 * - The remote one sends the request to the device's worker process and waits for its reply
 *   (src/worker).
 *
 * Threads: any; several threads may call one port at the same time. A call blocks as long as the
 * driver takes. If a remote port exceeds its time limit, its device is lost.
 * Locks: the port's own, never held by code that submits.
 * Always: a failed request changed nothing, unless its comment states otherwise. Outputs are
 * written on success only.
 */
#ifndef HDI_ENGINE_PORT_H
#define HDI_ENGINE_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "blas/blas.h"
#include "driver/cupti.h"
#include "driver/driver.h"

/* The outcome of a request. */
typedef struct hdi_answer {
    /* 0: success. Above 0: the driver's code. Below 0: one of HDI_GONE_* (driver.h), and the
     * request did not reach the driver. */
    int code;
    const char *call; /* the entry point that returned the code, "" without one; static memory */
} hdi_answer;

static inline bool hdi_answered(hdi_answer answer)
{
    return answer.code == HDCU_SUCCESS;
}

typedef struct hdi_limits {
    uint32_t threads_per_block;
    uint32_t block[3], grid[3];
    /* bytes of shared memory per block: allowed by default, and the most that a kernel can ask
     * for */
    uint64_t shared_default, shared_max;
} hdi_limits;

/* The properties of a device that stay the same while it is open. Plain data: it travels between
 * processes. */
typedef struct hdi_facts {
    hdi_limits limits;
    char name[128], bus_id[32];
    uint8_t uuid[16];
    int32_t compute_major, compute_minor, multiprocessors;
    int32_t virtual_memory; /* 1: the device supports virtual memory management */
    uint64_t memory_bytes;  /* physical */
    uint64_t granule;       /* bytes; sizes of mappings are multiples of it */
    /* Bit j: the driver reports access to the memory of the runtime's device j. */
    uint64_t peers;
    uint64_t peers_denied; /* bit j: the driver's attribute of the pair denies this access */
    uint64_t peers_atomic; /* bit j: atomic operations work on that memory, too */
} hdi_facts;

/* Code to load. The port uses the bytes only during the call. `descriptor` is for a port into
 * another process: an anonymous file whose bytes [offset, offset + bytes) are the same code. -1:
 * there is no such file. */
typedef struct hdi_code {
    const void *bytes;
    size_t size;
    int descriptor;
    uint64_t offset;
} hdi_code;

#define HDI_CODE_LOG_BYTES 2048
#define HDI_KERNEL_NAME_BYTES 128    /* for messages */
#define HDI_KERNEL_SYMBOL_BYTES 4096 /* as in the code: names of templates are long */
#define HDI_FUNCTION_PARAMS_MAX 2048

typedef struct hdi_kernel_facts {
    uint32_t max_threads;   /* per block, as the driver reports it */
    uint32_t static_shared; /* bytes */
    /* number of entries in `params`; UINT32_MAX: the driver does not report parameters */
    uint32_t n_params;
    struct {
        uint16_t offset, size;
    } params[HDI_FUNCTION_PARAMS_MAX];
} hdi_kernel_facts;

/* The place of a module's variable on the device. Plain data: it travels between processes. */
typedef struct hdi_global_place {
    uint64_t address, bytes;
} hdi_global_place;

/* The state of CUPTI's reports. Plain data: it travels between processes. */
typedef struct hdi_activities_facts {
    uint32_t works, unused;
    char why[HDI_ACTIVITIES_WHY_BYTES]; /* if `works` is 0: what failed, and why */
} hdi_activities_facts;

#define HDI_FABRIC_BYTES 64

typedef struct hdi_port hdi_port;

typedef struct hdi_port_calls {
    /* ---- facts ---- */
    hdi_answer (*facts)(hdi_port *port, hdi_facts *out);
    hdi_answer (*memory_free)(hdi_port *port, uint64_t *out); /* bytes, now */

    /* ---- lanes: makes the engine's side of lane `number`, which goes on from the channel's `done`
     * ---- */
    hdi_answer (*lane)(hdi_port *port, uint32_t number, bool sticky_failure);

    /* ---- device memory; addresses and sizes are multiples of the granule ---- */
    /* Reserves an address range, at `wanted` if that is not 0 and free there. A caller that needs
     * that address compares *out. */
    hdi_answer (*reserve)(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out);
    /* Gives the range back with all mappings in it. Goes on after errors, and returns the first
     * error. */
    hdi_answer (*unreserve)(hdi_port *port, uint64_t at, uint64_t bytes);
    /* Maps physical memory of the device at an address inside a reserved range. The device may read
     * and write it. If the port cannot undo some step of a failed `map`, it notes the mapping, and
     * tries to undo it again before the next `map`. */
    hdi_answer (*map)(hdi_port *port, uint64_t at, uint64_t bytes);
    /* Maps physical memory like `map`, but as several mappings of `each` bytes. */
    hdi_answer (*map_each)(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each);
    /* Moves the physical memory of whole mappings to the address `to`, in the same order. After a
     * failure all this memory counts as given back. */
    hdi_answer (*move)(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes);
    /* Maps memory like `map`, but for a piece. Other processes can use a piece. Other PCI devices
     * can use it, too, if the GPU allows this. */
    hdi_answer (*map_piece)(hdi_port *port, uint64_t at, uint64_t bytes);
    /* Ends one mapping of `map`, `map_piece` or `import`, or several neighbours. */
    hdi_answer (*unmap)(hdi_port *port, uint64_t at, uint64_t bytes);

    /* ---- device memory that another device uses, for one `map` of the owner ---- */
    /* Gives the device `peer` (number in the runtime) access to the owner's memory. Local ports
     * only. */
    hdi_answer (*grant)(hdi_port *owner, int peer, uint64_t at, uint64_t bytes);
    /* Between processes. `export` returns the owner's memory as a descriptor, which the caller
     * closes. `import` maps that memory for another device, at the same address, in a range
     * reserved there. */
    hdi_answer (*export)(hdi_port *owner, uint64_t at, uint64_t bytes, int *descriptor);
    hdi_answer (*import)(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes);

    /* Exports memory by a handle that names it in other machines, too. Local ports only;
     * NOT_SUPPORTED if the device lacks such handles. */
    hdi_answer (*export_fabric)(hdi_port *owner, uint64_t at, uint64_t bytes, unsigned char out[HDI_FABRIC_BYTES]);
    hdi_answer (*import_fabric)(hdi_port *port, const unsigned char handle[HDI_FABRIC_BYTES], uint64_t at,
                                uint64_t bytes);

    /* ---- pinned memory: `base` is whole pages of a shared mapping, of file `descriptor` ---- */
    /* *address: the memory's address on devices. A remote port gives the file to the worker, which
     * maps it at the same address. */
    hdi_answer (*pin)(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address);
    hdi_answer (*unpin)(hdi_port *port, void *base, uint64_t bytes);

    /* ---- code ---- */
    /* *out: the module's number for the calls below, never 0. `log` (HDI_CODE_LOG_BYTES) gets the
     * compiler's messages, even on failure. */
    hdi_answer (*load)(hdi_port *port, const hdi_code *code, uint64_t *out, char *log);
    hdi_answer (*unload)(hdi_port *port, uint64_t module);
    /* Looks a kernel up, and stores it for the engine under `number` (of the runtime's table).
     * `params`: also asks the driver for the kernel's parameters, since the image does not describe
     * them. The driver does not report their number. Instead, its call for the parameter behind the
     * last one fails. */
    hdi_answer (*kernel)(hdi_port *port, uint64_t module, const char *name, uint32_t number, bool params,
                         hdi_kernel_facts *out);
    /* Allows launches of the kernel with up to `bytes` of dynamic shared memory. */
    hdi_answer (*kernel_shared)(hdi_port *port, uint32_t number, uint32_t bytes);

    /* The address and the size of a variable of the module, by its symbol. The variable stays there
     * until the module is unloaded. */
    hdi_answer (*global)(hdi_port *port, uint64_t module, const char *name, hdi_global_place *out);

    /* ---- libraries ---- */
    /* Opens the library of the option blas for matrix products in lane `number`, which exists. The
     * workspace is device memory for that lane's products alone. If there is no library, the call
     * succeeds, and out->types is 0. Once a library is open for a lane, it stays open with the same
     * facts. */
    hdi_answer (*blas)(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out);
    /* Switches CUPTI's reports of the device's work on or off; the engine records them. If CUPTI
     * gives no reports, the call succeeds, and out->works is 0. */
    hdi_answer (*activities)(hdi_port *port, bool on, hdi_activities_facts *out);
} hdi_port_calls;

struct hdi_port {
    const hdi_port_calls *calls;
};

/* port_local.c */
struct hdi_engine;
struct hd_runtime;
typedef struct hdi_local_port_config {
    const hdi_driver *driver;
    hdcu_device device;
    /* The device's primary context. It need not be current on any thread. */
    hdcu_context context;
    int index;                  /* of the device in the runtime */
    int n_devices;              /* devices of the runtime, for `peers` and `grant` */
    const hdcu_device *devices; /* NULL: no peers; otherwise it stays valid as long as the port */
    /* The runtime whose table gets the kernels that `kernel` looks up. NULL: nobody calls `lane` or
     * `kernel` of this port. */
    struct hd_runtime *runtime;
} hdi_local_port_config;

/* NULL: no host memory. */
hdi_port *hdi_local_port_create(const hdi_local_port_config *config);
/* Sets the engine for the lanes that `lane` makes. Call it before the first call of `lane`. */
void hdi_local_port_set_engine(hdi_port *port, struct hdi_engine *engine);
/* Discards everything without calling the driver. NULL is ignored. */
void hdi_local_port_destroy(hdi_port *port);

/* Ensures that the runtime's table of kernels contains an entry for `number`. False: no memory, or
 * no such number. Any thread. */
bool hdi_kernel_table_reach(struct hd_runtime *rt, uint32_t number);

#endif
