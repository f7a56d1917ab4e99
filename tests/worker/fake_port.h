/* fake_port.h - a local port that notes its calls, answers as a test sets it and can be held. Also threads that serve it, and one request of
 * every kind.
 *
 * Threads: any; the fake's fields are under its lock, except where a test sets them before anything runs.
 */
#ifndef TEST_WORKER_FAKE_PORT_H
#define TEST_WORKER_FAKE_PORT_H

#include <pthread.h>
#include <stdbool.h>
#include "base/shm.h"
#include "engine/port.h"

/* The last call of the fake. */
typedef struct fake_note {
    const char *call; /* the member of hdi_port_calls */
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
    int memory; /* what `export` gives a copy of */
} fake_port;

void fake_init(fake_port *f);
void fake_release(fake_port *f);
void fake_hold(fake_port *f, bool held);
void fake_await_inside(fake_port *f, int count); /* until that many calls are held */
void fake_answer(fake_port *f, int code, const char *call);
fake_note fake_last(fake_port *f);
int fake_calls(fake_port *f);

/* What the fake answers to questions for facts. */
extern const hdi_facts fake_facts;
extern const hdi_blas_facts fake_blas_facts;
extern const hdi_global_place fake_global_place;
void fake_kernel_facts(hdi_kernel_facts *out);
#define FAKE_LOG "ptxas: 7 registers"
#define FAKE_MODULE(size) ((size) + 1000)
#define FAKE_RESERVED(wanted, bytes) (((wanted) ^ (bytes)) + 3)
#define FAKE_PINNED(base) ((base) + 0x1000000000)
#define FAKE_FREE 0x123456789abull

/* Two lines that are served by threads. */
typedef struct fake_worker {
    int application[2]; /* memory, code; -1 once they have another owner */
    int ends[2];        /* the worker's; closed by their threads, when these end */
    int results[2];     /* of hdi_serve, once joined */
    fake_port *fake;
    pthread_t threads[2];
} fake_worker;

void fake_worker_start(fake_worker *w, fake_port *f);
/* The application's ends must be closed or shut down, or be here. */
void fake_worker_join(fake_worker *w);

/* Files and addresses for requests. */
typedef struct fake_things {
    hdi_shm file; /* 64 KiB, byte i is i * 7 */
    char *base;   /* an address where nothing is */
    size_t page;
} fake_things;

void fake_things_make(fake_things *t);
void fake_things_release(fake_things *t);

/* One request of each kind, with arguments that are in order. What it gets goes nowhere. */
enum {
    FAKE_FACTS_OF,
    FAKE_MEMORY_FREE,
    FAKE_LANE,
    FAKE_RESERVE,
    FAKE_UNRESERVE,
    FAKE_MAP,
    FAKE_MAP_PIECE,
    FAKE_UNMAP,
    FAKE_EXPORT,
    FAKE_IMPORT,
    FAKE_PIN,
    FAKE_UNPIN,
    FAKE_LOAD, /* from here on over the line for code */
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

/* Descriptors that this process has open. */
int fake_count_descriptors(void);

#endif
