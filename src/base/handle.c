/* handle.c - the number that distinguishes handles of this process from those of the process that it was forked from. Also what is wrong
 * with a handle.
 *
 * Threads: any; the number changes in the child's only one, right after a fork. Locks: none but the stable memory's. Always: the number grows
 * with every generation of forks, so no ancestor's handle fits.
 */
#include "base/handle.h"
#include "base/error.h"
#include "base/stable.h"

#include <pthread.h>
#include <string.h>

uint32_t hdi_handle_salt;

static void in_child(void)
{
    hdi_handle_salt++;
}

static void install(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void hdi_handle_guard_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

/* What a handle leads to; NULL: nothing that is known, or that is good. */
static const char *kind_of(const void *handle)
{
    static const struct {
        uint32_t magic;
        const char *kind;
    } kinds[] = {
        {HDI_LANE_MAGIC, "lane"}, {HDI_KERNEL_MAGIC, "kernel"},   {HDI_MODULE_MAGIC, "module"},
        {HDI_HOLD_MAGIC, "hold"}, {HDI_RUNTIME_MAGIC, "runtime"},
    };
    const hdi_handle_head *head = hdi_handle_object(handle);
    if (!hdi_stable_has(head)) {
        return NULL;
    }
    uint64_t word = atomic_load_explicit(&head->word, memory_order_acquire);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if ((uint32_t)word == (kinds[i].magic ^ hdi_handle_salt)) {
            return kinds[i].kind;
        }
    }
    return (word & ~HDI_SELF_LOST) == hdi_self_word(handle) ? "buffer" : NULL;
}

hd_status hdi_handle_refused(const void *handle, const char *kind, const char *why)
{
    if (!handle) {
        return hdi_fail(HD_ERROR_HANDLE, "the %s is null", kind);
    }
    const char *other = kind_of(handle);
    if (other && strcmp(other, kind) != 0) {
        return hdi_fail(HD_ERROR_HANDLE, "this is a %s, not a %s", other, kind);
    }
    return hdi_fail(HD_ERROR_HANDLE, "not a %s, or %s", kind, why);
}
