/* cpu_fiber.c - fibers: where their stacks come from, and how switches are announced to the sanitizers.
 *
 * Threads: a set is used by one thread at a time; the list of free fibers is shared. Locks: `lock`, never held across a
 * switch.
 * Blocking: hdi_fibers_reserve waits while too few fibers are free. A set that waits owns none beyond its first, so waiting
 * cannot deadlock.
 * Always: `existing` is the number of free fibers and of all sets' fibers beyond the first. Those fibers are never
 * unmapped, so HDI_FIBER_LIMIT bounds their memory. Sets that sleep own at most half of the limit together.
 */
#include "simulator/cpu_fiber.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/lock.h"

#ifdef HDI_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HDI_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(HDI_ASAN) || defined(HDI_TSAN)
#define STACK_BYTES ((size_t)256 * 1024) /* instrumented code and the sanitizers' own functions need more */
#else
#define STACK_BYTES ((size_t)64 * 1024)
#endif

static hdi_mutex lock = HDI_MUTEX_INIT(HOST_FIBERS);
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static hdi_fiber *free_fibers;   /* under lock */
static uint32_t n_free;          /* under lock */
static uint32_t existing;        /* under lock */
static _Atomic uint32_t waiting; /* changed under lock; read without it as a hint, pairs with nothing */

static void end_tsan_fibers(hdi_fiber_set *set)
{
#ifdef HDI_TSAN
    if (set->tsan_fibers != NULL) {
        __tsan_destroy_fiber(set->tsan_fibers);
    }
#endif
    set->tsan_fibers = NULL;
}

/* Maps `count` stacks, and adds their fibers at the end of the set's list, which has room for them. False: out of
 * memory.
 * Each stack has a page below it that faults, and its hdi_fiber at its upper end. */
static bool add_fibers(hdi_fiber_set *set, uint32_t count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t step = STACK_BYTES + page, bytes = count * step;
    char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (mprotect(base + i * step + page, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
            munmap(base, bytes);
            return false;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        char *stack = base + i * step + page;
        hdi_fiber *f = (hdi_fiber *)(stack + STACK_BYTES - (sizeof *f + 63) / 64 * 64);
        f->set = set;
        f->stack = stack;
        f->stack_bytes = (size_t)((char *)f - stack);
        set->fibers[set->owned++] = f;
    }
    return true;
}

bool hdi_fibers_init(hdi_fiber_set *set)
{
    memset(set, 0, sizeof *set);
    set->main.set = set;
    set->frame.resume = &set->main.context;
    set->fibers = malloc(sizeof *set->fibers);
    if (set->fibers == NULL) {
        return false;
    }
    if (!add_fibers(set, 1)) {
        free(set->fibers);
        return false;
    }
    return true;
}

/* Frees all but fiber 0. Under lock. */
static void free_extras(hdi_fiber_set *set)
{
    if (set->owned > 1) {
        while (set->owned > 1) {
            hdi_fiber *f = set->fibers[--set->owned];
            f->next = free_fibers;
            free_fibers = f;
            n_free++;
        }
        pthread_cond_broadcast(&freed);
    }
}

void hdi_fibers_destroy(hdi_fiber_set *set)
{
    end_tsan_fibers(set);
    hdi_mutex_lock(&lock);
    free_extras(set);
    hdi_mutex_unlock(&lock);
    hdi_fiber *f = set->fibers[0];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
#ifdef HDI_ASAN
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
    munmap(f->stack - page, STACK_BYTES + page);
    free(set->fibers);
}

bool hdi_fibers_reserve(hdi_fiber_set *set, uint32_t count)
{
    if (count <= set->owned) {
        return true;
    }
    if (count > HDI_FIBER_LIMIT) {
        return false;
    }
    hdi_fiber **list = realloc(set->fibers, count * sizeof *list);
    if (list == NULL) {
        return false;
    }
    set->fibers = list;
    hdi_mutex_lock(&lock);
    if (count - set->owned > n_free + (HDI_FIBER_LIMIT - existing)) {
        free_extras(set); /* waiting while owning some could deadlock */
        while (count - 1 > n_free + (HDI_FIBER_LIMIT - existing)) {
            atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
            hdi_mutex_wait(&lock, &freed);
            atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
        }
    }
    while (set->owned < count && n_free > 0) {
        hdi_fiber *f = free_fibers;
        free_fibers = f->next;
        n_free--;
        f->set = set;
        set->fibers[set->owned++] = f;
    }
    uint32_t missing = count - set->owned;
    existing += missing;
    hdi_mutex_unlock(&lock);
    if (missing > 0 && !add_fibers(set, missing)) {
        hdi_mutex_lock(&lock);
        existing -= missing;
        pthread_cond_broadcast(&freed);
        hdi_mutex_unlock(&lock);
        return false;
    }
    return true;
}

void hdi_fibers_yield(hdi_fiber_set *set, bool idle)
{
    if (set->owned > 1 && (idle || atomic_load_explicit(&waiting, memory_order_relaxed) != 0)) {
        hdi_mutex_lock(&lock);
        if (atomic_load_explicit(&waiting, memory_order_relaxed) != 0 || existing - n_free > HDI_FIBER_LIMIT / 2) {
            free_extras(set);
        }
        hdi_mutex_unlock(&lock);
    }
}

void hdi_fibers_after_fork(void)
{
    hdi_mutex_init(&lock, HDI_RANK_HOST_FIBERS);
    pthread_cond_init(&freed, NULL);
    free_fibers = NULL;
    n_free = 0;
    existing = 0;
    atomic_store_explicit(&waiting, 0, memory_order_relaxed);
}

hdi_fiber *hdi_fiber_start(hdi_fiber_set *set, void (*run)(void *))
{
    hdi_fiber *f = set->fibers[set->used++];
    f->fake_stack = NULL;
    hdi_context_make(&f->context, f->stack, f->stack_bytes, run, f);
    return f;
}

/* After a switch: reports its end to address sanitizer, and stores where the worker's own stack is. `fake_stack` was
 * saved for the fiber that continues. */
HDI_FIBER_CODE static void arrived(hdi_fiber_set *set, void *fake_stack)
{
#ifdef HDI_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (set->entering) {
        set->entering = false;
        set->main.stack = (char *)bottom;
        set->main.stack_bytes = bytes;
    }
#else
    (void)set, (void)fake_stack;
#endif
}

HDI_FIBER_CODE void hdi_fiber_begin(hdi_fiber *fiber)
{
    arrived(fiber->set, NULL);
}

HDI_FIBER_CODE void hdi_fiber_switch(hdi_fiber *from, hdi_fiber *to)
{
#ifdef HDI_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
    hdi_context_switch(&from->context, &to->context);
    void *fake_stack = from->fake_stack;
    from->fake_stack = NULL;
    arrived(from->set, fake_stack);
}

HDI_FIBER_CODE void hdi_fiber_leave(hdi_fiber *from, hdi_fiber *to)
{
#ifdef HDI_ASAN
    __sanitizer_start_switch_fiber(NULL, to->stack, to->stack_bytes);
#endif
    hdi_context_switch(&from->context, &to->context);
    __builtin_unreachable();
}

HDI_FIBER_CODE void hdi_fiber_enter(hdi_fiber_set *set, hdi_fiber *fiber)
{
    hdi_fault_frame *before = hdi_fault_set_frame(&set->frame);
#ifdef HDI_TSAN
    set->tsan_main = __tsan_get_current_fiber();
    if (set->tsan_fibers == NULL) {
        set->tsan_fibers = __tsan_create_fiber(0);
    }
    __tsan_switch_to_fiber(set->tsan_fibers, 0);
#endif
#ifdef HDI_ASAN
    __sanitizer_start_switch_fiber(&set->main.fake_stack, fiber->stack, fiber->stack_bytes);
#endif
    set->entering = true;
    set->frame.signal = 0;
    set->frame.armed = 1;
    hdi_context_switch(&set->main.context, &fiber->context);
    set->frame.armed = 0;
    set->entering = false;
    /* A fiber switched to here, or a fault continued here. After a fault the fiber's half of the switch is missing. */
#ifdef HDI_ASAN
    if (set->frame.signal != 0) {
        __sanitizer_start_switch_fiber(NULL, set->main.stack, set->main.stack_bytes);
    }
#endif
    arrived(set, set->main.fake_stack);
    set->main.fake_stack = NULL;
#ifdef HDI_TSAN
    __tsan_switch_to_fiber(set->tsan_main, 0);
#endif
    hdi_fault_set_frame(before);
    if (set->frame.signal != 0) {
        hdi_fibers_abandon(set);
    }
}

HDI_FIBER_CODE void hdi_fibers_abandon(hdi_fiber_set *set)
{
#ifdef HDI_ASAN
    for (uint32_t i = 0; i < set->used; i++) {
        hdi_fiber *f = set->fibers[i];
        if (f->fake_stack != NULL) { /* only code on that stack can free it: pretend to switch there */
            __sanitizer_start_switch_fiber(&set->main.fake_stack, f->stack, f->stack_bytes);
            __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
            __sanitizer_start_switch_fiber(NULL, set->main.stack, set->main.stack_bytes);
            __sanitizer_finish_switch_fiber(set->main.fake_stack, NULL, NULL);
            f->fake_stack = NULL;
            set->main.fake_stack = NULL;
        }
        __asan_unpoison_memory_region(f->stack, f->stack_bytes); /* frames that were not left */
    }
#endif
    end_tsan_fibers(set); /* its record of calls is deeper than it should be */
    set->used = 0;
}
