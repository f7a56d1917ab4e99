/* children.h - what the files that start, shake hands with and watch worker processes share.
 *
 * Fields of hdi_child are under the workers' mutex, except `ours` and `asked`. The thread that starts the worker has these two to itself, until
 * the port takes them over or the thread closes them. (Should the worker end meanwhile, the other ends close.)
 */
#ifndef HDI_WORKER_CHILDREN_H
#define HDI_WORKER_CHILDREN_H

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>
#include "base/lock.h"
#include "engine/engine.h"
#include "worker/remote.h"
#include "process/spawn.h"
#include "process/wire.h"
#include "worker/workers.h"

#define HDI_LINGERING_MAX 64
#define HDI_SPARES_MAX 8
#define HDI_CHILDREN (HDI_DEVICES_MAX + HDI_SPARES_MAX) /* by device, and the spares behind them */

struct hdi_message;

/* Of the process. device_state.h has the states of the device that it drives. */
typedef enum hdi_child_state {
    HDI_CHILD_NONE,
    HDI_CHILD_WANTED,  /* the watcher is to start it */
    HDI_CHILD_FRESH,   /* runs, but its device is not ours to lose yet */
    HDI_CHILD_DRIVING, /* its end is the device's loss */
    HDI_CHILD_GONE     /* has ended; its device is being declared lost */
} hdi_child_state;

typedef struct hdi_child {
    hdi_child_state state;
    hdi_process process;    /* pid 0: none */
    int ours[2], theirs[2]; /* ends of the memory and the code line, -1 once handed on */
    bool asked;             /* what the driver shows, and the answer is not taken yet; goes with `ours` */
    int spawn_error;        /* errno */
    int code;               /* why the last one ended: HDI_GONE_* or the driver's */
    int killed;             /* why it was killed, 0: it was not */
    int64_t killed_at;
    uint64_t connection; /* of its port, 0: it has driven no device yet */
    uint64_t heartbeat;  /* of its engine, and since when it is the same */
    int64_t heartbeat_at;
    int64_t stopped_at; /* 0: it is not stopped */
} hdi_child;

/* With the mutex: waits until there is no process, at most until the deadline. */
bool hdi_child_await_none(hdi_workers *workers, hdi_child *c, int64_t deadline);

/* Whether it was started, and not taken over or given up yet. Only the thread that starts it may call this. */
static inline bool hdi_child_is_begun(const hdi_child *c)
{
    return c->ours[0] >= 0;
}

/* The ends of its sockets. Errors: SYSTEM. */
hd_status hdi_child_make_sockets(hdi_child *c);

/* The watcher's: starts the process. The mutex is held. */
void hdi_child_spawn(hdi_workers *workers, int index);

/* handshake.c: the request to a process that is to start the driver; the caller frees it. */
hd_status hdi_worker_make_request(hd_runtime *rt, const char *provider, struct hdi_message **out);

/* spare.c. The watcher's: starts the spares that are missing, and notices the ones that have gone. The mutex is held. */
void hdi_spares_watch(hdi_workers *workers);

/* Wakes the watcher. */
void hdi_watcher_wake(hdi_workers *workers);

/* Closes what is left of `ours`. */
void hdi_child_disconnect(hdi_child *c);

struct hdi_workers {
    hd_runtime *rt;
    char program[PATH_MAX];
    pthread_t thread;
    hdi_mutex lock;
    pthread_cond_t changed; /* some child's state */
    int doorbell;           /* eventfd that wakes the watcher */
    bool closing;
    int64_t closing_at;
    hdi_child of[HDI_CHILDREN];
    struct hdi_message *spare_request;  /* the request to spares, NULL: there are to be none. Constant once it is set */
    bool spares_held;                   /* none is started now: a restart has the machine */
    int64_t spares_from;                /* clock: nor before */
    int spares_gone;                    /* that have ended by themselves since the last one was of use */
    pid_t lingering[HDI_LINGERING_MAX]; /* killed, but not gone in time */
    int n_lingering;
};

#endif
