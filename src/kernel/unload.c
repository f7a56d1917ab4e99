/* unload.c - hd_module_unload, and when the driver unloads a module.
 *
 * An unload looks through the unfinished commands of all lanes, and notes the last launch of the
 * module in each lane. The driver unloads the module once these launches are done, even if other
 * work is unfinished. In two cases the unload notes more work:
 * - If variables of the module were requested, copies may also use their bytes. So all work in
 *   flight counts.
 * - The driver of GPUs waits for all work that runs on the device before it unloads
 *   (hdi_provider.unload_waits). With such a driver, all work in flight on the devices that loaded
 *   the module counts.
 *
 * Threads: any.
 * Locks: an unload holds `refilling` all the time. It also takes the locks of module.c, and order
 * locks, one at a time and for few commands.
 * Blocking: a call waits while the driver unloads.
 * Always:
 * - A module stays on a device as long as a launch of its kernels is in flight there.
 * - After an unload or a load, the list `unloaded` contains only modules with such launches in
 *   flight, and modules whose unload would wait.
 */
#include <stdlib.h>
#include "base/error.h"
#include "engine/engine.h"
#include "kernel/module_internal.h"

/* The most commands that a thread looks at under one hold of an order lock. */
#define WALK_MOST 1024

/* ---- a module's work in flight ---- */

/* Waits for all threads that found a handle good before it became stale. Such a thread may be
 * submitting a launch, or asking the driver about a kernel. Later threads check the handle again
 * and find it stale. */
static void unload_await_users(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_lock_take(&rt->devices[i]->order);
        hdi_lock_release(&rt->devices[i]->order);
    }
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_mutex_lock(&hdi_kernel_of(rt)->modules.loading[i]);
        hdi_mutex_unlock(&hdi_kernel_of(rt)->modules.loading[i]);
    }
    hdi_mutex_lock(&rt->cold);
    hdi_mutex_unlock(&rt->cold);
}

/* True if the kernel with this number belongs to the module. The caller holds `refilling`, so
 * kernels neither come nor go. */
static bool unload_has_kernel(const struct hd_module *m, uint32_t number)
{
    return number < m->runtime->n_kernels && hdi_kernel_numbered(m->runtime, number)->module == m;
}

/* The end of the module's last launch in the lane, among commands up to `head` that are not done.
 * 0: none. Under the order lock, no submission overwrites the commands that this thread reads.
 * While the lock is free, submissions overwrite only finished commands. */
static uint64_t unload_last_launch(const struct hd_module *m, hdi_device *device, uint32_t number, uint64_t head)
{
    const hdi_channel *channel = &device->channel;
    uint64_t at = 0, last = 0;
    while (at < head) {
        hdi_lock_take(&device->order);
        /* Pairs with the engine's store of `done`, as in hdi_point_done. */
        uint64_t done = atomic_load_explicit(&channel->lanes[number].done, memory_order_acquire);
        at = at > done ? at : done;
        if (at < head && head - at > channel->slots) {
            /* The worker reports an impossible position, so all work of the lane counts. */
            at = last = head;
        }
        for (uint64_t end = at + WALK_MOST; at < head && at < end;) {
            const hdi_command *c = hdi_command_at(channel, number, at);
            at += c->slots ? c->slots : 1;
            if (c->op == HDI_OP_LAUNCH && unload_has_kernel(m, c->kernel)) {
                last = at;
            }
        }
        hdi_lock_release(&device->order);
    }
    return last;
}

/* The position up to which a lane must be done before the module is unloaded. 0: no work of the
 * lane counts. */
static uint64_t unload_last_use(const struct hd_module *m, uint32_t lane)
{
    hd_runtime *rt = m->runtime;
    hdi_device *device = hdi_lane_owner(rt, lane);
    uint32_t number = lane % HDI_LANES_MAX;
    uint64_t head = hdi_lane_submitted(device, number);
    bool any_use = m->variables_asked || rt->provider->unload_waits;
    if (head == 0 || (!m->variables_asked && !m->loaded[device->index])) {
        /* the lane never got work since the last restart, or the device lacks the module */
        return 0;
    }
    if (any_use || hdi_point_done(rt, (hdi_point){lane, head})) {
        return head;
    }
    return m->kernels ? unload_last_launch(m, device, number, head) : 0;
}

/* Notes all submitted work that may use the module. No thread submits more such work. False: no
 * memory. */
static bool unload_note_users(struct hd_module *m)
{
    hd_runtime *rt = m->runtime;
    size_t room = (size_t)rt->n_devices * HDI_LANES_MAX;
    m->points = malloc(room * sizeof *m->points);
    m->n_points = 0;
    for (uint32_t lane = 0; m->points && lane < room; lane++) {
        hdi_point point = {lane, unload_last_use(m, lane)};
        if (point.position && !hdi_point_done(rt, point)) {
            m->points[m->n_points++] = point;
        }
    }
    /* The array may be kept for long, so it is cut to its size. */
    hdi_point *fits = m->n_points ? realloc(m->points, m->n_points * sizeof *fits) : NULL;
    m->points = fits ? fits : m->points;
    return m->points != NULL;
}

/* ---- when a module goes ---- */

/* True if the driver can unload the module now. `waits`: the driver may wait for other work. */
static bool unload_may_go(const struct hd_module *m, bool waits)
{
    hd_runtime *rt = m->runtime;
    for (size_t i = 0; i < m->n_points; i++) {
        if (!hdi_point_done(rt, m->points[i])) {
            return false;
        }
    }
    bool idle = true;
    for (int i = 0; i < rt->n_devices && rt->provider->unload_waits && !waits; i++) {
        idle &= !m->loaded[i] || hdi_device_is_drained(rt->devices[i]);
    }
    return idle;
}

bool hdi_modules_reap(hd_runtime *rt, bool waits)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    struct hd_module *done = NULL;
    hdi_mutex_lock(&reg->lock);
    for (struct hd_module **link = &reg->unloaded; *link;) {
        struct hd_module *m = *link;
        if (unload_may_go(m, waits)) {
            *link = m->next;
            m->next = done;
            done = m;
        } else {
            link = &m->next;
        }
    }
    hdi_mutex_unlock(&reg->lock);
    bool any = done != NULL;
    /* drop the error of this unload, since the caller did not ask for the unload */
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    while (done) {
        struct hd_module *next = done->next;
        hdi_module_give(done, true);
        done = next;
    }
    hdi_attempt_end(&attempt);
    return any;
}

/* ---- the call ---- */

/* Takes the module out of the list of loaded ones, and makes its handles stale. False: another call
 * already did this, or the module is built in. */
static bool unload_leave_list(struct hd_module *m)
{
    hdi_modules *reg = &hdi_kernel_of(m->runtime)->modules;
    bool ours = false;
    hdi_mutex_lock(&reg->lock);
    for (struct hd_module **link = &reg->loaded; *link && !ours;) {
        if (*link == m && !m->is_builtin && hdi_handle_head_live(&m->head)) {
            *link = m->next;
            ours = true;
        } else {
            link = &(*link)->next;
        }
    }
    if (ours) {
        hdi_handle_end(&m->head, HDI_MODULE_MAGIC);
        for (struct hd_kernel *k = m->kernels; k; k = k->next) {
            hdi_handle_end(&k->head, HDI_KERNEL_MAGIC);
        }
    }
    hdi_mutex_unlock(&reg->lock);
    return ours;
}

static void unload_module(struct hd_module *m)
{
    hd_runtime *rt = m->runtime;
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    if (!unload_leave_list(m)) {
        return;
    }
    hdi_globals_end(m);
    unload_await_users(rt);
    /* If no memory is left to note the work that uses it, the module stays loaded until
     * hd_close. */
    bool noted = unload_note_users(m);
    hdi_mutex_lock(&reg->lock);
    struct hd_module **list = noted ? &reg->unloaded : &reg->loaded;
    m->next = *list;
    *list = m;
    hdi_mutex_unlock(&reg->lock);
    hdi_modules_reap(rt, false);
}

hd_status hd_module_unload(hd_module *handle)
{
    HDI_INSIDE(hdi_module_runtime(handle));
    struct hd_module *m = hdi_module_from_handle(handle);
    if (!m) {
        return handle ? hdi_module_refused(handle) : HD_OK;
    }
    hd_runtime *rt = m->runtime;
    /* A restart changes the numbers of modules; this lock keeps restarts out. */
    hdi_mutex_lock(&rt->refilling);
    /* check the handle again: the structure may belong to another module by now */
    bool there = hdi_module_from_handle(handle) != NULL;
    if (there) {
        unload_module(m);
    }
    hdi_mutex_unlock(&rt->refilling);
    return there ? HD_OK : hdi_module_refused(handle);
}
