/* thread.h - the library's threads, the processors that they may run on, and cleanup when any
 * thread ends.
 *
 * Threads: any.
 * Locks: the dynamic loader's lock, to keep code loaded.
 * Always: code that a thread may still enter is never unloaded. This also holds if the library is
 * linked statically into a shared object that the program closes. If the system does not report a
 * fact about processors, the fact is "unknown", and nothing fails.
 *
 * Data of a thread is a structure behind a pointer. The library's thread-local storage is static
 * (initial-exec): reading it calls nothing and allocates nothing. So it works in signal handlers
 * and without free memory. A program that loads libraries at run time offers little such storage
 * for all of them together. So the library's storage holds only pointers and flags.
 */
#ifndef HDI_BASE_THREAD_H
#define HDI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- threads of the library ---- */

/* pthread_create for a thread of the library, which hdi_thread_is_own recognises. Returns the
 * result of pthread_create. */
int hdi_thread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *context);

/* hdi_thread_create with all signals blocked, because the program's signals are not for such a
 * thread. */
int hdi_thread_start(pthread_t *out, void *(*run)(void *), void *context);

/* True if the calling thread is a thread of the library. */
bool hdi_thread_is_own(void);

/* Which kind of function of the program the thread is in, if the library called one. */
typedef enum hdi_calling {
    HDI_CALLS_NONE,
    /* an engine called the function, and waits meanwhile, so it must not wait for anything */
    HDI_CALLS_LANE,
    /* a thread of the library called the function (src/claim/host_call.c), which may wait for other
     * such functions */
    HDI_CALLS_HOST
} hdi_calling;
extern _Thread_local uint8_t hdi_calling_here;

/* A thread of the library that calls functions of the program (HDI_CALLS_HOST), for one runtime. */
typedef struct hdi_caller {
    const void *runtime; /* only for comparison */
    /* called when the caller begins to wait, or goes on */
    void (*waits)(struct hdi_caller *caller, bool begins);
} hdi_caller;
/* Notes that the calling thread is this caller from here on. Without memory for the note, the
 * thread counts as a caller that never waits. */
void hdi_thread_note_caller(hdi_caller *caller);
/* Returns the hdi_caller that the calling thread noted; NULL: the thread is no caller. */
hdi_caller *hdi_thread_caller(void);

/* For the rest of the block the thread waits for work that may depend on another function of the
 * program (HDI_CALLS_HOST). So other functions may run meanwhile. The thread holds no lock behind
 * CALLERS (rank.h). */
#define HDI_CALLER_WAITS()                                                                                             \
    hdi_caller *const hdi_caller_that_waits __attribute__((cleanup(hdi_caller_goes_on), unused)) =                     \
        hdi_caller_begins_to_wait()
hdi_caller *hdi_caller_begins_to_wait(void);
void hdi_caller_goes_on(hdi_caller *const *caller);

/* ---- the file with the library's code, which stays loaded ----
 *
 * The file is the program, or a shared object. The program's name (argv[0]) and the current folder
 * do not matter. */

/* The loader's name for the shared object with this code: the name under which it was opened. It
 * may be relative to the folder that was current then. NULL: the code is in the program itself. */
const char *hdi_own_file_name(void);

/* The folders of libraries that this file records (DT_RUNPATH), separated by colons; "" without a
 * record. False: they are longer than `bytes`. */
bool hdi_own_file_runpath(char *out, size_t bytes);

/* pthread_key_create for a function of the library, which stays loaded from here on. Returns the
 * result of pthread_key_create. */
int hdi_thread_key(pthread_key_t *out, void (*ends)(void *));

/* Keeps the object with this code loaded from here on. The first call takes the dynamic loader's
 * lock. hd_open makes that call, so no thread takes the lock while it holds locks of the
 * library. */
void hdi_keep_loaded(void);

/* ---- processors ---- */

#define HDI_CPUS_MOST 8192 /* more than any kernel supports */

/* A set of processors, with a bit for each, in the layout of the system's masks. */
typedef struct hdi_cpus {
    unsigned long bits[HDI_CPUS_MOST / (8 * sizeof(unsigned long))];
} hdi_cpus;

/* The processors that the calling thread may run on. False: unknown. */
bool hdi_cpus_own(hdi_cpus *out);

/* Lets the calling thread run only on these processors; false: the system refused. */
bool hdi_cpus_stay(const hdi_cpus *cpus);

/* The NUMA node of a PCI device ("0000:1b:00.0"), -1: unknown. */
int hdi_numa_node(const char *bus_id);

/* The processors of a NUMA node. False: unknown. */
bool hdi_numa_cpus(int node, hdi_cpus *out);

/* Reads "0-3,8", the format of the system's lists. False: it is no such list. */
bool hdi_cpus_parse(const char *list, hdi_cpus *out);

/* The processors in both sets; false: there are none. */
bool hdi_cpus_common(const hdi_cpus *a, const hdi_cpus *b, hdi_cpus *out);

/* Requests a cache line for writing. A prefetch for reading gets only a shared copy of the line.
 * Then the first store waits until other processors give up their copies. The compiler's own
 * prefetch is for reading, unless the compiler may assume a newer processor than the oldest x86-64.
 * A prefetch affects only the time, so any address is allowed. */
static inline void hdi_prefetch_to_write(const void *address)
{
#if defined(__x86_64__)
    /* Every x86-64 processor decodes the instruction; a processor that does not support it does
     * nothing. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1);
#endif
}

#endif
