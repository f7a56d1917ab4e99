/* channel.h - the shared mapping of one device: everything that both the application's side and the engine touch.
 *
 * It holds no pointers and no process-local handles, so that an engine in another process can map it and run the same code.
 * Layout: lanes (state of each lane), words (one cache line per lane that the device itself writes), rings.
 * Who writes what is said at each field; a field has one writing side. Positions are those of command.h.
 */
#ifndef HDI_ENGINE_CHANNEL_H
#define HDI_ENGINE_CHANNEL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "base/shm.h"
#include "engine/command.h"

#define HDI_LANES_MAX 256 /* per device */
/* Remembered per lane; after that the newest record is widened, over what succeeded in between, rather than one forgotten. */
#define HDI_FAILURES_MAX 1024
#define HDI_LINE 64

/* Operations at positions from..to failed. */
typedef struct hdi_failure {
    uint64_t from, to;
    uint64_t position; /* of the operation that is to blame, in lane `lane` */
    uint32_t lane;     /* global number */
    int32_t driver_code;
    uint32_t kernel;   /* for a launch: number in the runtime's table */
    uint8_t op;        /* HDI_OP_* to blame; 0: unknown */
    uint8_t lost;      /* the device was lost */
    uint8_t inherited; /* this lane's operation read the result of the one to blame */
} hdi_failure;

#define HDI_FAILURE_WORDS (sizeof(hdi_failure) / sizeof(uint64_t))
_Static_assert(sizeof(hdi_failure) % sizeof(uint64_t) == 0, "records are copied word by word");

typedef struct hdi_lane_shared {
    /* Submitters, under the device's order lock. */
    _Alignas(HDI_LINE) _Atomic uint64_t head; /* slots written */

    /* Engine: changes with every command. */
    _Alignas(HDI_LINE) _Atomic uint64_t issued; /* slots given to the driver */

    /* Engine: changes when work is seen finished. */
    _Alignas(HDI_LINE) _Atomic uint64_t done; /* slots finished; what tickets are compared with */
    _Atomic uint32_t wake;                    /* futex word: moves whenever `done` moves while somebody sleeps */
    _Atomic uint32_t sleepers;                /* waiters: threads asleep on `wake` */

    /* Anybody, only ever raised. */
    _Alignas(HDI_LINE) _Atomic uint64_t wanted_host; /* a thread waits for this position: publish it without delay */
    _Atomic uint64_t wanted_event; /* another lane waits for this position: record an event behind it */

    /* Engine: changes only on failure. Submitters read `failed` on each submission, so it has a quiet line. */
    _Alignas(HDI_LINE) _Atomic uint32_t failed; /* the lane refuses work */
    _Atomic uint32_t failures;                  /* records written, up to HDI_FAILURES_MAX */
    _Atomic uint32_t failure_changes;           /* odd while a record is being written */
    _Atomic uint64_t failure[HDI_FAILURES_MAX][HDI_FAILURE_WORDS];
} hdi_lane_shared;

/* The device writes the low 32 bits of a finished position here (a 4-byte memset behind the work), so that the engine
 * sees completion with a load instead of a driver call. */
typedef struct hdi_word {
    _Alignas(HDI_LINE) _Atomic uint32_t position;
} hdi_word;

typedef struct hdi_channel {
    hdi_shm memory;
    hdi_lane_shared *lanes; /* HDI_LANES_MAX */
    hdi_word *words;        /* HDI_LANES_MAX, page-aligned */
    size_t words_bytes;
    hdi_command *rings; /* HDI_LANES_MAX rings of `slots` commands */
    uint32_t slots;     /* a power of two */
} hdi_channel;

/* Errors: SYSTEM, HOST_MEMORY. */
hd_status hdi_channel_create(uint32_t slots, hdi_channel *out);
void hdi_channel_release(hdi_channel *channel);

/* The failure that covers `position` in a lane, or false. Any thread; `done` or `issued` must have passed the position. */
_Bool hdi_failure_find(const hdi_lane_shared *lane, uint64_t position, hdi_failure *out);

/* Engine only: adds a record; when there is no room, widens the newest one so that it covers the failure, too. */
void hdi_failure_add(hdi_lane_shared *lane, const hdi_failure *failure);

/* Engine only: the newest record now reaches to `to`. */
void hdi_failure_extend(hdi_lane_shared *lane, uint64_t to);

#endif
