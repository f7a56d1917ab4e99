/* thread.c - the library's threads, the processors that they may run on, and cleanup when any
 * thread ends.
 *
 * Threads, locks and invariants: see thread.h. Facts about processors are read from the system on
 * each request; nothing is cached.
 */
#include "base/cancel.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/descriptor.h"

/* ---- threads of the library ---- */

typedef struct start {
    void *(*run)(void *);
    void *context;
} start;

static _Thread_local bool is_own;
_Thread_local uint8_t hdi_calling_here;

/* A key instead of thread-local storage, which is scarce in programs that load the library. */
static pthread_key_t caller_key;
static pthread_once_t caller_once = PTHREAD_ONCE_INIT;
static bool has_caller_key;

static void caller_make_key(void)
{
    has_caller_key = hdi_thread_key(&caller_key, NULL) == 0;
}

void hdi_thread_note_caller(hdi_caller *caller)
{
    pthread_once(&caller_once, caller_make_key);
    if (has_caller_key) {
        pthread_setspecific(caller_key, caller);
    }
}

hdi_caller *hdi_thread_caller(void)
{
    /* only a thread that noted itself as a caller has this kind, so the key exists */
    bool may_be = hdi_calling_here == HDI_CALLS_HOST;
    return may_be && has_caller_key ? pthread_getspecific(caller_key) : NULL;
}

hdi_caller *hdi_caller_begins_to_wait(void)
{
    hdi_caller *caller = hdi_thread_caller();
    if (caller) {
        caller->waits(caller, true);
    }
    return caller;
}

void hdi_caller_goes_on(hdi_caller *const *caller)
{
    if (*caller) {
        (*caller)->waits(*caller, false);
    }
}

static void *thread_run_own(void *context)
{
    start s = *(start *)context;
    free(context);
    is_own = true;
    /* A function of the program may cancel the thread on which the library calls it. The thread
     * must still end the call. */
    hdi_cancel_hold_off();
    return s.run(s.context);
}

bool hdi_thread_is_own(void)
{
    return is_own;
}

int hdi_thread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    start *s = malloc(sizeof *s);
    if (s == NULL) {
        return EAGAIN;
    }
    *s = (start){run, context};
    int error = pthread_create(out, attributes, thread_run_own, s);
    if (error) {
        free(s);
    }
    return error;
}

int hdi_thread_start(pthread_t *out, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = hdi_thread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* ---- the file with the library's code, which stays loaded ---- */

typedef struct own_object {
    uintptr_t address;
    const char *name;    /* the name of the object with that address; NULL: not found yet */
    const char *runpath; /* NULL: no run path */
} own_object;

/* The dynamic section of a program or shared object in memory. Most loaders have relocated its
 * addresses. */
static const char *own_file_runpath(const struct dl_phdr_info *object, const ElfW(Phdr) * p)
{
    const ElfW(Dyn) *d = (const ElfW(Dyn) *)(object->dlpi_addr + p->p_vaddr);
    uintptr_t strings = 0, offset = 0;
    bool found = false;
    for (; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) {
            strings = d->d_un.d_ptr < object->dlpi_addr ? object->dlpi_addr + d->d_un.d_ptr : d->d_un.d_ptr;
        } else if (d->d_tag == DT_RUNPATH || (d->d_tag == DT_RPATH && !found)) {
            offset = d->d_un.d_val;
            found = true;
        }
    }
    return found && strings != 0 ? (const char *)(strings + offset) : NULL;
}

static int own_file_visit_object(struct dl_phdr_info *object, size_t bytes, void *context)
{
    own_object *s = context;
    (void)bytes;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && s->address - (object->dlpi_addr + p->p_vaddr) < p->p_memsz) {
            s->name = object->dlpi_name != NULL ? object->dlpi_name : "";
        }
    }
    for (unsigned i = 0; s->name != NULL && i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            s->runpath = own_file_runpath(object, &object->dlpi_phdr[i]);
        }
    }
    return s->name != NULL;
}

static own_object self;

static void own_file_find_once(void)
{
    self.address = (uintptr_t)own_file_find_once;
    dl_iterate_phdr(own_file_visit_object, &self);
}

/* Searches once, since the library stays at its place. A child of fork() must not ask the loader,
 * because a thread of the parent may have held the loader's lock. */
static const own_object *own_file_find(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, own_file_find_once);
    return &self;
}

const char *hdi_own_file_name(void)
{
    const own_object *s = own_file_find();
    /* the loader's name of the program itself is empty */
    return s->name != NULL && s->name[0] != '\0' ? s->name : NULL;
}

bool hdi_own_file_runpath(char *out, size_t bytes)
{
    const own_object *s = own_file_find();
    int n = snprintf(out, bytes, "%s", s->runpath != NULL ? s->runpath : "");
    return n >= 0 && (size_t)n < bytes;
}

static void own_file_keep_loaded(void)
{
    HDI_UNCANCELLED;
    const char *object = hdi_own_file_name();
    if (object != NULL) {
        hdi_descriptor_library_stays(object);
    }
}

void hdi_keep_loaded(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, own_file_keep_loaded);
}

int hdi_thread_key(pthread_key_t *out, void (*ends)(void *))
{
    hdi_keep_loaded();
    return pthread_key_create(out, ends);
}

/* ---- processors ---- */

enum { WORD_BITS = 8 * sizeof(unsigned long), LIST_BYTES = 16384 };

bool hdi_cpus_own(hdi_cpus *out)
{
    memset(out, 0, sizeof *out);
    return syscall(SYS_sched_getaffinity, 0, sizeof out->bits, out->bits) > 0;
}

bool hdi_cpus_stay(const hdi_cpus *cpus)
{
    return syscall(SYS_sched_setaffinity, 0, sizeof cpus->bits, cpus->bits) == 0;
}

/* Reads one line of a file, without the end of the line; false: this failed. */
static bool cpus_read_line(const char *path, char *out, int bytes)
{
    HDI_UNCANCELLED;
    FILE *file = hdi_descriptor_text(path);
    bool found = file && fgets(out, bytes, file);
    if (file) {
        fclose(file);
    }
    if (found) {
        out[strcspn(out, "\n")] = 0;
    }
    return found;
}

int hdi_numa_node(const char *bus_id)
{
    char path[96], lower[32], line[32];
    size_t n = strlen(bus_id);
    if (n >= sizeof lower) {
        return -1;
    }
    for (size_t i = 0; i <= n; i++) {
        lower[i] = bus_id[i] >= 'A' && bus_id[i] <= 'F' ? (char)(bus_id[i] - 'A' + 'a') : bus_id[i];
    }
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", lower);
    int node = -1;
    if (!cpus_read_line(path, line, sizeof line) || sscanf(line, "%d", &node) != 1) {
        return -1;
    }
    return node;
}

bool hdi_numa_cpus(int node, hdi_cpus *out)
{
    char path[64];
    char *list = node >= 0 ? malloc(LIST_BYTES) : NULL;
    if (!list) {
        return false;
    }
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    bool known = cpus_read_line(path, list, LIST_BYTES) && hdi_cpus_parse(list, out);
    free(list);
    return known;
}

bool hdi_cpus_parse(const char *list, hdi_cpus *out)
{
    memset(out, 0, sizeof *out);
    for (const char *at = list; *at;) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at) {
            return false;
        }
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            if (end == at) {
                return false;
            }
        }
        if (first > last || last >= HDI_CPUS_MOST || (*end && *end != ',')) {
            return false;
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            out->bits[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
        }
        at = *end ? end + 1 : end;
    }
    return true;
}

bool hdi_cpus_common(const hdi_cpus *a, const hdi_cpus *b, hdi_cpus *out)
{
    unsigned long any = 0;
    for (size_t i = 0; i < sizeof out->bits / sizeof out->bits[0]; i++) {
        out->bits[i] = a->bits[i] & b->bits[i];
        any |= out->bits[i];
    }
    return any != 0;
}
