/* cpu_run.c - runs the blocks of all launches on the CPU: the pool of workers, and their jobs.
 * cpu_core.c runs the threads of one block.
 *
 * The pool contains one worker less than there are processors. Launches are in a list from which
 * workers take them. The thread that called hdi_cpu_run also works on its own launch, so a launch
 * makes progress even if all workers are busy. An atomic counter hands out the blocks of a launch,
 * a few at a time. A worker without work sleeps.
 *
 * Threads: workers are made on first use, detached, and stay as long as the process. They block all
 * signals except those that their own code raises. The pool keeps the code that it runs loaded. A
 * child made by fork starts its own pool.
 * Locks: `lock` guards the lists, the unused cores and the numbers of helpers; no kernel runs under
 * it.
 * Blocking: hdi_cpu_run returns after the last helper leaves its launch. Cores may wait for memory
 * and fibers (cpu_core.h). So may the thread that called hdi_cpu_run, before its first block.
 * Always: only a job's caller, and the workers that its `helpers` counts, access the job.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "simulator/cpu_core.h"

/* the number of cores that are kept for later callers, beyond the cores of callers that prepared */
#define SPARE_CORES 16
/* after this many blocks, a worker checks whether another launch needs help */
#define TURN_BLOCKS 32
#define ARGUMENT_BYTES 4096
/* The most bytes for HD_SHARED variables that each core gets in advance. */
#define STORAGE_MOST ((size_t)1 << 20)
#define NO_MEMORY_SLEEP_NS 1000000

/* ---- launches ---- */

typedef struct job {
    struct job *next, *previous; /* the list; under lock */
    uint32_t helpers;            /* the workers that work on the job; under lock */
    const hdi_cpu_launch *launch;
    const void *arguments;
    uint64_t n_blocks;
    uint64_t run_blocks;         /* blocks handed out at a time */
    uint64_t multiplier, offset; /* change the order of blocks; multiplier 0: the usual order */
    /* the number of blocks handed out so far; relaxed, since the job was published under lock */
    _Atomic uint64_t next_block;
    /* The first failure. Other threads read it relaxed, as a hint; the caller reads it once
     * `helpers` is 0 under lock. */
    _Atomic int result;
    /* The address of that failure; written by the thread that set `result`. */
    uintptr_t fault_address;
    char reason[HDI_DRIVER_REASON_BYTES]; /* the kernel's report about that failure; empty: none */
} job;

static hdi_mutex lock = HDI_MUTEX_INIT(HOST_THREADS);
static pthread_cond_t work = PTHREAD_COND_INITIALIZER; /* a job was added */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* the last helper left a job */
static job *jobs;                                      /* circular, NULL when empty */
static uint32_t n_idle;
static bool started;
/* in this list, a forked child and a leak checker find the cores */
static hdi_cpu_core *all_cores;
static hdi_cpu_core *spare;
/* n_prepared: the number of callers that prepared. At least that many cores exist besides those of
 * workers. */
static uint32_t n_spare, n_prepared;
/* The bytes for HD_SHARED variables that each core has, or that are reserved for it. Rises under
 * lock; read without it as a hint, pairs with nothing. */
static _Atomic size_t storage_promised = HDI_CPU_STORAGE_ALIGN;
static _Atomic uint32_t n_jobs; /* changed under lock; read without it as a hint */
/* 0 until started; changed under lock, read without it as a hint */
static _Atomic uint32_t n_workers;

static void cpu_jobs_add(job *j)
{
    if (jobs == NULL) {
        j->next = j->previous = j;
        jobs = j;
    } else {
        j->next = jobs;
        j->previous = jobs->previous;
        j->previous->next = j;
        jobs->previous = j;
    }
    atomic_fetch_add_explicit(&n_jobs, 1, memory_order_relaxed);
}

static void cpu_jobs_remove(job *j)
{
    if (j->next == j) {
        jobs = NULL;
    } else {
        j->next->previous = j->previous;
        j->previous->next = j->next;
        if (jobs == j) {
            jobs = j->next;
        }
    }
    atomic_fetch_sub_explicit(&n_jobs, 1, memory_order_relaxed);
}

static bool cpu_job_has_work(job *j)
{
    return atomic_load_explicit(&j->next_block, memory_order_relaxed) < j->n_blocks &&
           atomic_load_explicit(&j->result, memory_order_relaxed) == 0;
}

static bool cpu_job_is_cancelled(const hdi_cpu_launch *launch)
{
    return launch->cancel != NULL && __atomic_load_n(launch->cancel, __ATOMIC_RELAXED) != 0;
}

static hdcu_result cpu_job_run_block(hdi_cpu_core *core, job *j, uint64_t number, uintptr_t *address)
{
    const hdi_cpu_launch *launch = j->launch;
    if (j->multiplier != 0) {
        number = (number * j->multiplier + j->offset) % j->n_blocks;
    }
    uint64_t row = number / launch->grid[0];
    return hdi_cpu_core_run_block(core, launch, j->arguments, (uint32_t)(number % launch->grid[0]),
                                  (uint32_t)(row % launch->grid[1]), (uint32_t)(row / launch->grid[1]), address);
}

/* `reason`: the kernel's report, or empty. */
static void cpu_job_fail(job *j, hdcu_result result, uintptr_t address, const char *reason)
{
    int none = 0;
    if (atomic_compare_exchange_strong_explicit(&j->result, &none, result, memory_order_relaxed,
                                                memory_order_relaxed)) {
        j->fault_address = address;
        snprintf(j->reason, sizeof j->reason, "%s", reason);
    }
}

static void cpu_job_run_blocks(hdi_cpu_core *core, job *j, uint64_t most_blocks)
{
    uint64_t done = 0;
    while (cpu_job_has_work(j) && done < most_blocks) {
        uint64_t first = atomic_fetch_add_explicit(&j->next_block, j->run_blocks, memory_order_relaxed);
        uint64_t last = first + j->run_blocks < j->n_blocks ? first + j->run_blocks : j->n_blocks;
        for (uint64_t b = first; b < last; b++, done++) {
            if (atomic_load_explicit(&j->result, memory_order_relaxed) != 0 || cpu_job_is_cancelled(j->launch)) {
                return;
            }
            uintptr_t address = 0;
            hdcu_result result = cpu_job_run_block(core, j, b, &address);
            if (result != HDCU_SUCCESS) {
                cpu_job_fail(j, result, address, core->failure != HDCU_SUCCESS ? core->reason : "");
            }
            hdi_fibers_yield(&core->set, false);
        }
    }
}

/* Gives the core the storage that was reserved for it, if the launch needs that. */
static void cpu_job_take_storage(hdi_cpu_core *core, const hdi_cpu_launch *launch)
{
    if (launch->storage == NULL || launch->storage->by_system != NULL ||
        launch->storage->bytes <= core->storage_bytes) {
        return;
    }
    hdi_mutex_lock(&lock);
    if (core->reserved != NULL && core->reserved_bytes > core->storage_bytes) {
        free(core->storage);
        core->storage = core->reserved;
        core->storage_bytes = core->reserved_bytes;
        core->storage_align = HDI_CPU_STORAGE_ALIGN;
        core->reserved = NULL;
    }
    hdi_mutex_unlock(&lock);
}

/* Runs blocks of the job until none are left, or at least most_blocks are done. False: there was no
 * memory to begin. */
static bool cpu_job_work_on(hdi_cpu_core *core, job *j, uint64_t most_blocks)
{
    cpu_job_take_storage(core, j->launch);
    bool joined = hdi_cpu_core_join(core, j->launch);
    if (joined) {
        cpu_job_run_blocks(core, j, most_blocks);
        hdi_cpu_core_flush(core);
    }
    return joined;
}

/* Finds a launch that needs help, or NULL. Under lock. */
static job *cpu_jobs_find(void)
{
    job *j = jobs;
    if (j != NULL) {
        do {
            if (cpu_job_has_work(j) && !cpu_job_is_cancelled(j->launch)) {
                jobs = j->next; /* the next worker checks the next launch first */
                return j;
            }
            j = j->next;
        } while (j != jobs);
    }
    return NULL;
}

/* Under lock. */
static hdi_cpu_core *cpu_pool_new_core(void)
{
    hdi_cpu_core *core = malloc(sizeof *core);
    if (core == NULL || !hdi_cpu_core_init(core, atomic_load_explicit(&storage_promised, memory_order_relaxed))) {
        free(core);
        return NULL;
    }
    core->all_next = all_cores;
    if (all_cores != NULL) {
        all_cores->all_previous = core;
    }
    all_cores = core;
    return core;
}

/* Under lock. */
static void cpu_pool_delete_core(hdi_cpu_core *core)
{
    if (core->all_next != NULL) {
        core->all_next->all_previous = core->all_previous;
    }
    if (core->all_previous != NULL) {
        core->all_previous->all_next = core->all_next;
    } else {
        all_cores = core->all_next;
    }
    hdi_cpu_core_destroy(core);
    free(core);
}

static void *cpu_pool_worker_main(void *argument)
{
    hdi_cpu_core *core = argument;
    prctl(PR_SET_NAME, "heddle-host"); /* the thread names itself, as in stream.c */
    /* without an alternate stack, a fault would end the process */
    if (!hdi_fault_prepare_thread()) {
        hdi_mutex_lock(&lock);
        atomic_fetch_sub_explicit(&n_workers, 1, memory_order_relaxed);
        cpu_pool_delete_core(core);
        hdi_mutex_unlock(&lock);
        return NULL;
    }
    bool rested = true;
    hdi_mutex_lock(&lock);
    for (;;) {
        job *j = cpu_jobs_find();
        if (j == NULL && !rested) {
            hdi_mutex_unlock(&lock);
            hdi_fibers_yield(&core->set, true);
            rested = true;
            hdi_mutex_lock(&lock);
            continue;
        }
        if (j == NULL) {
            n_idle++;
            hdi_mutex_wait(&lock, &work);
            n_idle--;
            continue;
        }
        j->helpers++;
        hdi_mutex_unlock(&lock);
        rested = false;
        hdi_fibers_wake(&core->set);
        bool joined = cpu_job_work_on(
            core, j, atomic_load_explicit(&n_jobs, memory_order_relaxed) > 1 ? TURN_BLOCKS : UINT64_MAX);
        hdi_mutex_lock(&lock);
        if (--j->helpers == 0) {
            pthread_cond_broadcast(&left);
        }
        if (!joined) { /* others work on the job; there may be memory later */
            hdi_mutex_unlock(&lock);
            hdi_sleep_for(NO_MEMORY_SLEEP_NS);
            hdi_mutex_lock(&lock);
        }
    }
    return NULL;
}

static void cpu_pool_after_fork(void)
{
    hdi_mutex_init(&lock, HDI_RANK_HOST_THREADS);
    pthread_cond_init(&work, NULL);
    pthread_cond_init(&left, NULL);
    jobs = NULL;
    n_idle = 0;
    started = false;
    spare = NULL;
    n_spare = n_prepared = 0;
    atomic_store_explicit(&n_jobs, 0, memory_order_relaxed);
    atomic_store_explicit(&n_workers, 0, memory_order_relaxed);
    hdi_fibers_after_fork();
}

static void cpu_pool_start_workers(void)
{
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGTRAP);
    sigdelset(&blocked, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = hdi_cpu_count() - 1; i > 0; i--) {
        hdi_cpu_core *core = cpu_pool_new_core();
        pthread_t thread;
        if (core == NULL || hdi_thread_create(&thread, &attributes, cpu_pool_worker_main, core) != 0) {
            if (core != NULL) {
                cpu_pool_delete_core(core);
            }
            break; /* fewer workers are enough */
        }
        atomic_fetch_add_explicit(&n_workers, 1, memory_order_relaxed);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Starts the pool if it is not running. Under lock. */
static void cpu_pool_start(void)
{
    static bool forks_handled;
    if (!started) {
        started = true;
        if (!forks_handled) {
            forks_handled = true;
            pthread_atfork(NULL, NULL, cpu_pool_after_fork);
        }
        cpu_pool_start_workers();
    }
}

/* Gets a core for the calling thread. NULL: out of memory. */
static hdi_cpu_core *cpu_pool_take_core(void)
{
    hdi_keep_loaded();
    if (!hdi_fault_prepare_thread()) {
        return NULL;
    }
    hdi_mutex_lock(&lock);
    cpu_pool_start();
    hdi_cpu_core *core = spare;
    if (core != NULL) {
        spare = core->next;
        n_spare--;
    } else {
        core = cpu_pool_new_core();
    }
    hdi_mutex_unlock(&lock);
    if (core != NULL) {
        hdi_fibers_wake(&core->set);
    }
    return core;
}

static void cpu_pool_put_core(hdi_cpu_core *core)
{
    hdi_fibers_yield(&core->set, true);
    hdi_mutex_lock(&lock);
    if (n_spare < SPARE_CORES + n_prepared) {
        core->next = spare;
        spare = core;
        n_spare++;
    } else {
        cpu_pool_delete_core(core);
    }
    hdi_mutex_unlock(&lock);
}

bool hdi_cpu_prepare(void)
{
    hdi_keep_loaded(); /* workers and signal handlers outlive every use */
    hdi_mutex_lock(&lock);
    cpu_pool_start();
    hdi_cpu_core *core = cpu_pool_new_core();
    n_prepared += core != NULL;
    hdi_mutex_unlock(&lock);
    if (core != NULL) {
        cpu_pool_put_core(core);
    }
    return core != NULL;
}

/* Reserves storage for each core, since any core may run the launch. Under lock. */
static bool cpu_pool_reserve_storage(size_t bytes)
{
    for (hdi_cpu_core *core = all_cores; core != NULL; core = core->all_next) {
        if (core->reserved_bytes >= bytes) {
            continue;
        }
        void *reserved = aligned_alloc(HDI_CPU_STORAGE_ALIGN, bytes);
        if (reserved == NULL) {
            return false;
        }
        free(core->reserved);
        core->reserved = reserved;
        core->reserved_bytes = bytes;
    }
    return true;
}

bool hdi_cpu_reserve(uint32_t threads, const hdi_cpu_storage *storage)
{
    bool reserved = hdi_fibers_promise(threads);
    size_t bytes = storage != NULL ? (storage->bytes + HDI_CPU_STORAGE_ALIGN - 1) & ~(HDI_CPU_STORAGE_ALIGN - 1) : 0;
    if (reserved && storage != NULL && bytes > atomic_load_explicit(&storage_promised, memory_order_relaxed) &&
        bytes <= STORAGE_MOST && storage->by_system == NULL && storage->align <= HDI_CPU_STORAGE_ALIGN) {
        hdi_mutex_lock(&lock);
        reserved = cpu_pool_reserve_storage(bytes);
        if (reserved && bytes > atomic_load_explicit(&storage_promised, memory_order_relaxed)) {
            atomic_store_explicit(&storage_promised, bytes, memory_order_relaxed);
        }
        hdi_mutex_unlock(&lock);
    }
    return reserved;
}

bool hdi_cpu_prepare_thread(void)
{
    hdi_keep_loaded();
    return hdi_fault_prepare_thread();
}

void hdi_cpu_unprepare(void)
{
    hdi_mutex_lock(&lock);
    n_prepared--;
    if (n_spare > SPARE_CORES + n_prepared) {
        hdi_cpu_core *core = spare;
        spare = core->next;
        n_spare--;
        cpu_pool_delete_core(core);
    }
    hdi_mutex_unlock(&lock);
}

hdcu_result hdi_cpu_run(const hdi_cpu_launch *launch, uintptr_t *fault_address)
{
    uint64_t threads = 0, blocks = 0;
    if (__builtin_mul_overflow((uint64_t)launch->block[0] * launch->block[1], launch->block[2], &threads) ||
        __builtin_mul_overflow((uint64_t)launch->grid[0] * launch->grid[1], launch->grid[2], &blocks) || threads == 0 ||
        threads > HDI_FIBER_LIMIT / 2 || blocks == 0 || blocks > INT64_MAX) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    _Alignas(16) char aligned[ARGUMENT_BYTES];
    job j;
    memset(&j, 0, sizeof j);
    j.launch = launch;
    j.arguments = launch->arguments;
    if ((uintptr_t)j.arguments % 16 != 0) {
        if (launch->kernel->argument_bytes > sizeof aligned) {
            return HDCU_ERROR_INVALID_VALUE;
        }
        memcpy(aligned, launch->arguments, launch->kernel->argument_bytes);
        j.arguments = aligned;
    }
    j.n_blocks = blocks;
    if (launch->schedule != 0) {
        uint64_t random = launch->schedule;
        j.multiplier = blocks <= UINT32_MAX ? hdi_random_multiplier(&random, blocks) : 1;
        j.offset = hdi_random(&random) % blocks;
    }
    hdi_cpu_core *core = hdi_cpu_reserve((uint32_t)threads, launch->storage) ? cpu_pool_take_core() : NULL;
    if (core == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    uint32_t workers = atomic_load_explicit(&n_workers, memory_order_relaxed);
    uint64_t share = blocks / ((uint64_t)(workers + 1) * 16);
    j.run_blocks = share < 1 || launch->schedule != 0 ? 1 : share > 64 ? 64 : share;
    bool shared = workers > 0 && blocks > 1;
    if (shared) {
        hdi_mutex_lock(&lock);
        cpu_jobs_add(&j);
        for (uint64_t wake = blocks - 1 < n_idle ? blocks - 1 : n_idle; wake > 0; wake--) {
            pthread_cond_signal(&work);
        }
        hdi_mutex_unlock(&lock);
    }
    while (!cpu_job_work_on(core, &j, UINT64_MAX) && cpu_job_has_work(&j) && hdi_cpu_wait_for_memory(launch)) {
    }
    if (shared) {
        hdi_mutex_lock(&lock);
        cpu_jobs_remove(&j);
        while (j.helpers != 0) {
            hdi_mutex_wait(&lock, &left);
        }
        hdi_mutex_unlock(&lock);
    }
    cpu_pool_put_core(core);
    int result = atomic_load_explicit(&j.result, memory_order_relaxed);
    if (result == HDCU_ERROR_ILLEGAL_ADDRESS && fault_address != NULL) {
        *fault_address = j.fault_address;
    }
    if (launch->reason != NULL) {
        memcpy(launch->reason, j.reason, sizeof j.reason);
    }
    return result;
}

hdcu_result hdi_cpu_guarded(void (*copy)(void *), void *data, uintptr_t *fault_address)
{
    hdi_cpu_core *core = cpu_pool_take_core();
    if (core == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdcu_result result = hdi_cpu_core_run_guarded(core, copy, data, fault_address);
    cpu_pool_put_core(core);
    return result;
}
