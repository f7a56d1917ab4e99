/* cpu_run.c - the pool of workers that run the blocks of all launches on the CPU.
 *
 * There is one worker less than there are processors. A launch is put on a list from which workers take launches. The
 * thread that called hdi_cpu_run works on its own launch too, so a launch makes progress whatever the workers do. An atomic
 * counter hands out blocks in small runs. A worker with nothing to do sleeps.
 * Threads: workers are made on first use, detached, and stay as long as the process. They block all signals but those that
 * code raises itself. The pool keeps the code that it runs from being unloaded. A child made by fork starts with a pool of
 * its own.
 * Locks: `lock` guards the lists, the unused cores and the numbers of helpers; no kernel runs under it.
 * Blocking: hdi_cpu_run returns after the last helper has left its launch.
 * Always: a job is touched by its caller, and by workers that are counted in its `helpers`.
 */
#include "simulator/cpu_run.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "simulator/cpu_block.h"

#define SPARE_CORES 16 /* kept for later callers */
#define TURN_BLOCKS 32 /* after so many a worker checks whether another launch needs help */
#define ARGUMENT_BYTES 4096

typedef struct job {
    struct job *next, *previous; /* the list; under lock */
    uint32_t helpers;            /* workers inside; under lock */
    const hdi_cpu_launch *launch;
    const void *arguments;
    uint64_t n_blocks;
    uint64_t run_blocks;         /* blocks handed out at a time */
    uint64_t multiplier, offset; /* perturb the order of blocks; multiplier 0: the usual order */
    _Atomic uint64_t next_block; /* handed out so far; relaxed: the job was published under lock */
    _Atomic int result;          /* the first failure; relaxed as a hint, read after `helpers` is 0 under lock */
    uintptr_t fault_address;     /* of that failure; written by the thread that set `result` */
} job;

static hdi_mutex lock = HDI_MUTEX_INIT(HOST_THREADS);
static pthread_cond_t work = PTHREAD_COND_INITIALIZER; /* a job was added */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* a job's last helper has left */
static job *jobs;                                      /* circular, NULL when empty */
static uint32_t n_idle;
static bool started;
static hdi_core *all_cores; /* so that a forked child, and a leak checker, still find them */
static hdi_core *spare;
static uint32_t n_spare;
static _Atomic uint32_t n_jobs;    /* changed under lock; read without it as a hint */
static _Atomic uint32_t n_workers; /* 0 until started; changed under lock, read without it as a hint */

static void list_add(job *j)
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

static void list_remove(job *j)
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

static bool has_work(job *j)
{
    return atomic_load_explicit(&j->next_block, memory_order_relaxed) < j->n_blocks &&
           atomic_load_explicit(&j->result, memory_order_relaxed) == 0;
}

static bool is_cancelled(const hdi_cpu_launch *launch)
{
    return launch->cancel != NULL && __atomic_load_n(launch->cancel, __ATOMIC_RELAXED) != 0;
}

static hdcu_result run_block(hdi_core *core, job *j, uint64_t number, uintptr_t *address)
{
    const hdi_cpu_launch *launch = j->launch;
    if (j->multiplier != 0) {
        number = (number * j->multiplier + j->offset) % j->n_blocks;
    }
    uint64_t row = number / launch->grid[0];
    return hdi_core_block(core, launch, j->arguments, (uint32_t)(number % launch->grid[0]),
                          (uint32_t)(row % launch->grid[1]), (uint32_t)(row / launch->grid[1]), address);
}

static void fail(job *j, hdcu_result result, uintptr_t address)
{
    int none = 0;
    if (atomic_compare_exchange_strong_explicit(&j->result, &none, result, memory_order_relaxed,
                                                memory_order_relaxed)) {
        j->fault_address = address;
    }
}

/* Runs blocks of the job until none are left, or at least most_blocks are done. */
static void work_on(hdi_core *core, job *j, uint64_t most_blocks)
{
    uint64_t done = 0;
    if (!hdi_core_join(core, j->launch)) {
        fail(j, HDCU_ERROR_OUT_OF_MEMORY, 0);
    }
    while (has_work(j) && done < most_blocks) {
        uint64_t first = atomic_fetch_add_explicit(&j->next_block, j->run_blocks, memory_order_relaxed);
        uint64_t last = first + j->run_blocks < j->n_blocks ? first + j->run_blocks : j->n_blocks;
        for (uint64_t b = first; b < last; b++, done++) {
            if (atomic_load_explicit(&j->result, memory_order_relaxed) != 0 || is_cancelled(j->launch)) {
                return;
            }
            uintptr_t address = 0;
            hdcu_result result = run_block(core, j, b, &address);
            if (result != HDCU_SUCCESS) {
                fail(j, result, address);
            }
            hdi_fibers_yield(&core->set, false);
        }
    }
}

/* A launch that needs help, or NULL. Under lock. */
static job *find_job(void)
{
    job *j = jobs;
    if (j != NULL) {
        do {
            if (has_work(j) && !is_cancelled(j->launch)) {
                jobs = j->next; /* the next worker checks the next launch first */
                return j;
            }
            j = j->next;
        } while (j != jobs);
    }
    return NULL;
}

/* Under lock. */
static hdi_core *new_core(void)
{
    hdi_core *core = malloc(sizeof *core);
    if (core == NULL) {
        return NULL;
    }
    if (!hdi_core_init(core)) {
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
static void delete_core(hdi_core *core)
{
    if (core->all_next != NULL) {
        core->all_next->all_previous = core->all_previous;
    }
    if (core->all_previous != NULL) {
        core->all_previous->all_next = core->all_next;
    } else {
        all_cores = core->all_next;
    }
    hdi_core_destroy(core);
    free(core);
}

static void *worker_main(void *argument)
{
    hdi_core *core = argument;
    if (!hdi_fault_prepare_thread()) { /* without it a fault would end the process */
        hdi_mutex_lock(&lock);
        atomic_fetch_sub_explicit(&n_workers, 1, memory_order_relaxed);
        delete_core(core);
        hdi_mutex_unlock(&lock);
        return NULL;
    }
    bool rested = true;
    hdi_mutex_lock(&lock);
    for (;;) {
        job *j = find_job();
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
        work_on(core, j, atomic_load_explicit(&n_jobs, memory_order_relaxed) > 1 ? TURN_BLOCKS : UINT64_MAX);
        hdi_mutex_lock(&lock);
        if (--j->helpers == 0) {
            pthread_cond_broadcast(&left);
        }
    }
    return NULL;
}

static void after_fork_in_child(void)
{
    hdi_mutex_init(&lock, HDI_RANK_HOST_THREADS);
    pthread_cond_init(&work, NULL);
    pthread_cond_init(&left, NULL);
    jobs = NULL;
    n_idle = 0;
    started = false;
    spare = NULL;
    n_spare = 0;
    atomic_store_explicit(&n_jobs, 0, memory_order_relaxed);
    atomic_store_explicit(&n_workers, 0, memory_order_relaxed);
    hdi_fibers_after_fork();
}

static void start_workers(void)
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
        hdi_core *core = new_core();
        pthread_t thread;
        if (core == NULL || hdi_thread_create(&thread, &attributes, worker_main, core) != 0) {
            if (core != NULL) {
                delete_core(core);
            }
            break; /* fewer workers are enough */
        }
        atomic_fetch_add_explicit(&n_workers, 1, memory_order_relaxed);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A core for the calling thread. Starts the pool where it is not running. NULL: out of memory. */
static hdi_core *take_core(void)
{
    static bool forks_handled; /* under lock */
    hdi_keep_loaded();         /* workers and signal handlers outlive every use */
    if (!hdi_fault_prepare_thread()) {
        return NULL;
    }
    hdi_mutex_lock(&lock);
    if (!started) {
        started = true;
        if (!forks_handled) {
            forks_handled = true;
            pthread_atfork(NULL, NULL, after_fork_in_child);
        }
        start_workers();
    }
    hdi_core *core = spare;
    if (core != NULL) {
        spare = core->next;
        n_spare--;
    } else {
        core = new_core();
    }
    hdi_mutex_unlock(&lock);
    return core;
}

static void put_core(hdi_core *core)
{
    hdi_fibers_yield(&core->set, true);
    hdi_mutex_lock(&lock);
    if (n_spare < SPARE_CORES) {
        core->next = spare;
        spare = core;
        n_spare++;
    } else {
        delete_core(core);
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
    hdi_core *core = take_core();
    if (core == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    uint32_t workers = atomic_load_explicit(&n_workers, memory_order_relaxed);
    uint64_t share = blocks / ((uint64_t)(workers + 1) * 16);
    j.run_blocks = share < 1 || launch->schedule != 0 ? 1 : share > 64 ? 64 : share;
    bool shared = workers > 0 && blocks > 1;
    if (shared) {
        hdi_mutex_lock(&lock);
        list_add(&j);
        for (uint64_t wake = blocks - 1 < n_idle ? blocks - 1 : n_idle; wake > 0; wake--) {
            pthread_cond_signal(&work);
        }
        hdi_mutex_unlock(&lock);
    }
    work_on(core, &j, UINT64_MAX);
    if (shared) {
        hdi_mutex_lock(&lock);
        list_remove(&j);
        while (j.helpers != 0) {
            hdi_mutex_wait(&lock, &left);
        }
        hdi_mutex_unlock(&lock);
    }
    put_core(core);
    int result = atomic_load_explicit(&j.result, memory_order_relaxed);
    if (result == HDCU_ERROR_ILLEGAL_ADDRESS && fault_address != NULL) {
        *fault_address = j.fault_address;
    }
    return result;
}

hdcu_result hdi_cpu_guarded(void (*copy)(void *), void *data, uintptr_t *fault_address)
{
    hdi_core *core = take_core();
    if (core == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdcu_result result = hdi_core_guarded(core, copy, data, fault_address);
    put_core(core);
    return result;
}
