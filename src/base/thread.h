/* thread.h - threads of the library's own, the processors that they may run on, and what is left to do when any thread ends.
 *
 * Threads: any. Locks: the dynamic loader's, for what stays loaded. Always: code that a thread may still come to is never unloaded. That also
 * holds where the library is linked statically into a shared object that the program closes. What the system does not report about
 * processors is "unknown", never a failure.
 *
 * What belongs to a thread is a structure behind a pointer. The library's thread-local storage is static (initial-exec): reading it calls
 * nothing and allocates nothing, so it works in signal handlers and when memory is out. A program that loads the library
 * while it runs has little of it to give, for all libraries together. So only pointers and flags are there.
 */
#ifndef HDI_BASE_THREAD_H
#define HDI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the library's own ---- */

/* pthread_create for a thread of the library's, which is known as one; returns what it returns. */
int hdi_thread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *context);

/* The same with all signals blocked, since the program's signals are not for such a thread. */
int hdi_thread_start(pthread_t *out, void *(*run)(void *), void *context);

/* Whether the calling thread is one of those. */
bool hdi_thread_is_own(void);

/* Which function of the program the thread is in that the library called. */
typedef enum hdi_calling {
    HDI_CALLS_NONE,
    HDI_CALLS_LANE, /* one that an engine calls: it waits for nothing */
    HDI_CALLS_HOST  /* one that a thread of the library calls: it does not wait for the end of other calls */
} hdi_calling;
extern _Thread_local uint8_t hdi_calling_here;

/* A thread of the library that calls functions of the program (HDI_CALLS_HOST), for one runtime. */
typedef struct hdi_caller {
    const void *runtime;                                   /* only to be compared */
    void (*waits)(struct hdi_caller *caller, bool begins); /* it begins to wait, or goes on */
} hdi_caller;
/* The calling thread is that one from here on. Without a place to note it, it counts as one that never waits. */
void hdi_caller_note(hdi_caller *caller);
/* NULL: the calling thread is none. */
hdi_caller *hdi_caller_here(void);

/* For the rest of the block the thread waits for what another such function may have to do first: others run meanwhile. No lock is held that
 * comes behind CALLERS (rank.h). */
#define HDI_CALLER_WAITS()                                                                                             \
    hdi_caller *const hdi_caller_that_waits __attribute__((cleanup(hdi_caller_goes_on), unused)) =                     \
        hdi_caller_begins_to_wait()
hdi_caller *hdi_caller_begins_to_wait(void);
void hdi_caller_goes_on(hdi_caller *const *caller);

/* ---- the file with the library's code, which stays loaded ----
 *
 * It is the program, or a shared object. What the program was called (argv[0]), and the current folder, decide nothing. */

/* The name that the loader has for the shared object with this code: the one it was opened by. It may be relative to a folder that was
 * the current one then. NULL: it is the program itself. */
const char *hdi_own_file_name(void);

/* Where the libraries are by that file's own record (DT_RUNPATH): folders with colons between them, "" without a record. False: they
 * are longer than `bytes`. */
bool hdi_own_file_runpath(char *out, size_t bytes);

/* pthread_key_create for a function of the library's, which stays loaded from here on; returns what it returns. */
int hdi_thread_key(pthread_key_t *out, void (*ends)(void *));

/* The object that this code is in is never unloaded from here on. The first call takes the dynamic loader's lock; hd_open makes it, so that
 * no thread comes to that with locks of the library's held. */
void hdi_keep_loaded(void);

/* ---- processors ---- */

#define HDI_CPUS_MOST 8192 /* more than any kernel is built for */

/* A set of processors, a bit each, laid out as the kernel's masks are. */
typedef struct hdi_cpus {
    unsigned long bits[HDI_CPUS_MOST / (8 * sizeof(unsigned long))];
} hdi_cpus;

/* The processors that the calling thread may run on. False: unknown. */
bool hdi_cpus_own(hdi_cpus *out);

/* Lets the calling thread run only there; false: the system refused. */
bool hdi_cpus_stay(const hdi_cpus *cpus);

/* The NUMA node of a PCI device ("0000:1b:00.0"), -1: unknown. */
int hdi_numa_node(const char *bus_id);

/* The processors of a NUMA node. False: unknown. */
bool hdi_numa_cpus(int node, hdi_cpus *out);

/* "0-3,8" as the system writes such lists. False: it is not one. */
bool hdi_cpus_parse(const char *list, hdi_cpus *out);

/* Those in both; false: there are none. */
bool hdi_cpus_common(const hdi_cpus *a, const hdi_cpus *b, hdi_cpus *out);

/* Asks for a cache line that is going to be written.
 * Reading ahead alone gets a line that other processors keep a copy of. Its first store waits until they have given theirs up. The
 * compiler's own prefetch is one for reading, unless it may assume a newer processor than the oldest of x86-64.
 * Nothing but time depends on it; any address will do. */
static inline void hdi_prefetch_to_write(const void *address)
{
#if defined(__x86_64__)
    /* A processor without it does nothing: every x86-64 processor decodes it. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1);
#endif
}

#endif
