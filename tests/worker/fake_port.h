/* fake_port.h - a local port that records its calls, gives the answers that a test sets, and can
 * hold calls. Also threads that serve it, and one request of every kind.
 *
 * Threads: any; a lock guards the fake's fields, unless a test sets them before anything runs.
 */
#ifndef TEST_WORKER_FAKE_PORT_H
#define TEST_WORKER_FAKE_PORT_H

#include <pthread.h>
#include <stdbool.h>
#include "base/shm.h"
#include "engine/port.h"

/* The fake's last call. */
typedef struct fake_note {
    const char *call; /* the name in hdi_port_calls */
    uint64_t a, b;
    char name[HDI_KERNEL_SYMBOL_BYTES];
    char code[64]; /* the first bytes */
    size_t code_size;
    uint64_t code_sum;  /* of all bytes */
    char pinned;        /* the first byte of the memory */
    unsigned long file; /* inode of the descriptor */
} fake_note;

typedef struct fake_port {
    hdi_port port;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    hdi_answer answer; /* to every call */
    bool held;         /* calls wait inside */
    int inside, calls;
    fake_note note;
    int memory; /* `export` returns a copy of this */
} fake_port;

void fake_init(fake_port *f);
void fake_release(fake_port *f);
void fake_hold(fake_port *f, bool held);
void fake_await_inside(fake_port *f, int count); /* waits until this many calls are held */
void fake_answer(fake_port *f, int code, const char *call);
fake_note fake_last(fake_port *f);
int fake_calls(fake_port *f);

/* The fake's answers to questions for facts. */
extern const hdi_facts fake_facts;
extern const hdi_blas_facts fake_blas_facts;
extern const hdi_global_place fake_global_place;
void fake_kernel_facts(hdi_kernel_facts *out);
#define FAKE_LOG "ptxas: 7 registers"
#define FAKE_MODULE(size) ((size) + 1000)
#define FAKE_RESERVED(wanted, bytes) (((wanted) ^ (bytes)) + 3)
#define FAKE_PINNED(base) ((base) + 0x1000000000)
#define FAKE_FREE 0x123456789abull

/* Two lines, each with a thread that serves it. */
typedef struct fake_worker {
    int application[2]; /* memory, code; -1 once another part owns them */
    int ends[2];        /* the worker's ends; their threads close them at the end */
    int results[2];     /* of hdi_serve, once joined */
    fake_port *fake;
    pthread_t threads[2];
} fake_worker;

void fake_worker_start(fake_worker *w, fake_port *f);
/* The application's ends must be closed, shut down, or still here. */
void fake_worker_join(fake_worker *w);

/* Files and addresses for requests. */
typedef struct fake_things {
    hdi_shm file; /* 64 KiB, byte i is i * 7 */
    char *base;   /* an unmapped address */
    size_t page;
} fake_things;

void fake_things_make(fake_things *t);
void fake_things_release(fake_things *t);

/* One request of each kind, with valid arguments. The results are dropped. */
enum {
    FAKE_FACTS_OF,
    FAKE_MEMORY_FREE,
    FAKE_LANE,
    FAKE_RESERVE,
    FAKE_UNRESERVE,
    FAKE_MAP,
    FAKE_MAP_EACH,
    FAKE_MOVE,
    FAKE_MAP_PIECE,
    FAKE_UNMAP,
    FAKE_EXPORT,
    FAKE_IMPORT,
    FAKE_PIN,
    FAKE_UNPIN,
    FAKE_LOAD, /* the line for code serves this and all later ones */
    FAKE_UNLOAD,
    FAKE_KERNEL,
    FAKE_KERNEL_SHARED,
    FAKE_GLOBAL,
    FAKE_BLAS,
    FAKE_ACTIVITIES,
    FAKE_KINDS
};
hdi_answer fake_ask(hdi_port *port, int which, const fake_things *t);
uint32_t fake_kind(int which); /* HDI_MESSAGE_* */

/* Counts this process's open descriptors. */
int fake_count_descriptors(void);

#endif
