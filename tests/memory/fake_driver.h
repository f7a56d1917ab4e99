/* fake_driver.h - the few driver entry points that the memory layer calls through a local port,
 * with records and failures on demand.
 *
 * Threads: any; the fake's lock guards the records. One fake at a time: fake_reset starts a fresh
 * one.
 */
#ifndef TEST_MEMORY_FAKE_DRIVER_H
#define TEST_MEMORY_FAKE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include "driver/driver.h"

#define FAKE_MIB ((size_t)1 << 20)
#define FAKE_CHUNKS 1024
#define FAKE_DEVICES 4
#define FAKE_REGISTERED 16
#define FAKE_BASE ((hdcu_deviceptr)0x700000000000) /* for ranges that may lie anywhere */

typedef struct fake_chunk {
    size_t bytes;
    hdcu_deviceptr at; /* 0: not mapped */
    bool held;         /* created and not released */
    int handle_types;
    int flags[FAKE_DEVICES]; /* access of each device */
} fake_chunk;

typedef struct fake_books {
    size_t total; /* memory of the device; creating more fails */
    size_t granularity;
    int no_virtual_memory, no_file_descriptors; /* attributes */
    /* no access can be granted to this device; -1: to all */
    int unreachable;
    size_t most_addresses; /* longer reservations fail; 0: no limit */
    /* reserves at addresses of the driver's choice, not at the requested ones */
    bool elsewhere;

    hdcu_deviceptr base; /* 0: nothing reserved */
    size_t reserved, created;
    size_t most; /* creating more than this at any time is a misuse */
    fake_chunk chunks[FAKE_CHUNKS];
    void *registered[FAKE_REGISTERED]; /* host memory; NULL: free */
    int n_registered;
    int not_registered; /* calls that tried to unregister other memory */
    int misuses;        /* calls that a real driver would refuse or punish */

    long calls;         /* since the last fake_fail */
    long fail_at;       /* the call with this number fails; 0: none */
    bool fail_for_good; /* and all later calls */
    int fail_code;
    const char *fail_only; /* counts only calls of this entry point; NULL: all */
    const char *failed;    /* the first entry point that was made to fail */
    _Atomic int calls_under_way;
    _Atomic int slow_us; /* cuMemCreate takes this long */
} fake_books;

extern fake_books fake;
extern const hdi_driver fake_driver;
extern const hdcu_context fake_context; /* the context that the fake's calls need */

void fake_reset(size_t total);
void fake_fail(const char *only, long at, bool for_good, int code); /* at 0: no more failures */

/* True if nothing is left reserved, created, mapped or registered, and nothing was misused. */
bool fake_is_clean(void);
/* mapped, and the device may read and write it */
bool fake_is_mapped(hdcu_deviceptr at, size_t bytes, int device);

int fake_chunks_mapped(void);

/* The thread's context stack. */
hdcu_context fake_top(void);
int fake_depth(void);
void fake_set_stack(hdcu_context only); /* NULL: empty */

#endif
