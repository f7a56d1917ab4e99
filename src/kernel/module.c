/* module.c - loads images, and unloads modules when no submitted work uses them any more. loading.c gets code to
 * devices.
 *
 * Threads: any.
 * Locks, in this order:
 * - `restarting`: a device's restart sees either all of a load or unload, or nothing of it
 * - `cold`: held while a kernel is looked up
 * - `loading`: see loading.c
 * - the registry's mutex: protects its lists; held across requests only while a device is restarted
 * Blocking: while the driver loads or unloads code.
 * Always:
 * - A structure is used again only after every device has unloaded the module and all submitted launches are done.
 * - Handles carry a generation, so stale ones are refused.
 */
#include "kernel/module_internal.h"

#include <stdlib.h>
#include <string.h>

hd_status hdi_modules_create(hd_runtime *rt)
{
    rt->modules = calloc(1, sizeof *rt->modules);
    if (!rt->modules) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_lock_init(&rt->modules->params_lock, HDI_RANKED(HDI_RANK_PARAMS, 0));
    hdi_mutex_init(&rt->modules->lock, HDI_RANK_MODULES);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_init(&rt->modules->loading[i], HDI_RANK_LOADING);
    }
    return HD_OK;
}

/* ---- structures ---- */

static void end_handles(hdi_handle_head *head, uint32_t magic)
{
    hdi_handle_end(head, magic);
}

static struct hd_module *take_module(hd_runtime *rt)
{
    struct hdi_modules *reg = rt->modules;
    hdi_mutex_lock(&reg->lock);
    struct hd_module *m = reg->free_modules;
    if (m) {
        reg->free_modules = m->next;
    }
    hdi_mutex_unlock(&reg->lock);
    if (!m && (m = hdi_stable_take(rt->stable, sizeof *m))) {
        hdi_handle_set(&m->head, HDI_MODULE_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
        m->runtime = rt; /* for ever, since a thread with an old handle may read it */
    }
    if (m) {
        m->next = NULL;
    }
    return m;
}

/* Releases what a module owns and puts its structures into the free lists. No thread and no submitted work uses it any
 * more. */
static void give_module(struct hd_module *m, bool driver_usable)
{
    hd_runtime *rt = m->runtime;
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_port *port = rt->devices[i]->port;
        if (m->loaded[i] && driver_usable && !hdi_device_lost(rt->devices[i])) {
            port->calls->unload(port, m->loaded[i]);
        }
        m->loaded[i] = 0;
    }
    while (m->kernels) {
        struct hd_kernel *k = m->kernels;
        m->kernels = k->next;
        hdi_kernel_give(rt, k);
    }
    hdi_image_release(&m->image);
    hdi_shm_release(&m->file);
    free(m->points);
    m->points = NULL;
    m->n_points = 0;
    hdi_set_live(&m->head, HDI_MODULE_MAGIC, 0);
    if (hdi_handle_head_generation(&m->head) == 0) {
        return; /* all generations are used up, so the structure is not used again */
    }
    hdi_mutex_lock(&rt->modules->lock);
    m->next = rt->modules->free_modules;
    rt->modules->free_modules = m;
    hdi_mutex_unlock(&rt->modules->lock);
}

/* Releases the unloaded modules that no submitted work uses any more. */
static void reap(hd_runtime *rt)
{
    struct hdi_modules *reg = rt->modules;
    struct hd_module *done = NULL;
    hdi_mutex_lock(&reg->lock);
    for (struct hd_module **link = &reg->unloaded; *link;) {
        struct hd_module *m = *link;
        bool busy = false;
        for (size_t i = 0; i < m->n_points && !busy; i++) {
            busy = !hdi_point_done(rt, m->points[i]);
        }
        if (busy) {
            link = &m->next;
        } else {
            *link = m->next;
            m->next = done;
            done = m;
        }
    }
    hdi_mutex_unlock(&reg->lock);
    hdi_attempt attempt; /* the caller did not ask for this unload, so its error is dropped */
    hdi_attempt_begin(&attempt);
    while (done) {
        struct hd_module *next = done->next;
        give_module(done, true);
        done = next;
    }
    hdi_attempt_end(&attempt);
}

void hdi_modules_close(hd_runtime *rt)
{
    struct hdi_modules *reg = rt->modules;
    hdi_mutex_lock(&reg->lock);
    struct hd_module *lists[] = {reg->loaded, reg->unloaded};
    for (int i = 0; i < 2; i++) {
        for (struct hd_module *m = lists[i]; m; m = m->next) {
            hdi_handle_close(&m->head);
            for (struct hd_kernel *k = m->kernels; k; k = k->next) {
                hdi_handle_close(&k->head);
            }
        }
    }
    hdi_mutex_unlock(&reg->lock);
}

void hdi_modules_release(hd_runtime *rt, bool driver_usable)
{
    struct hdi_modules *reg = rt->modules;
    if (!reg) {
        return;
    }
    struct hd_module *lists[] = {reg->loaded, reg->unloaded};
    for (int i = 0; i < 2; i++) {
        for (struct hd_module *m = lists[i], *next; m; m = next) {
            next = m->next;
            give_module(m, driver_usable);
        }
    }
    hdi_params_release(reg);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_destroy(&reg->loading[i]);
    }
    hdi_mutex_destroy(&reg->lock);
    free(reg);
    rt->modules = NULL;
}

/* ---- loading ---- */

/* Opens the image and makes its code available to the ports of all devices. */
static hd_status open_image(struct hd_module *m, const void *image, size_t bytes)
{
    hd_runtime *rt = m->runtime;
    hd_status status =
        hdi_image_open(image, bytes, rt->provider->code == HDI_CODE_CPU, &m->image, &m->code.bytes, &m->code.size);
    m->code.descriptor = -1;
    if (!status && rt->is_process) {
        /* One file for all workers, also for restarted ones. */
        status = hdi_shm_create("heddle-code", m->code.size, &m->file);
        if (!status) {
            memcpy(m->file.base, m->code.bytes, m->code.size);
            m->code.descriptor = m->file.descriptor;
            m->code.offset = 0;
        }
    }
    return status;
}

static hd_status load(hd_runtime *rt, const void *image, size_t bytes, struct hd_module **out)
{
    reap(rt);
    struct hd_module *m = take_module(rt);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = open_image(m, image, bytes);
    int alive = 0;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        if (!hdi_device_lost(rt->devices[i]) && (alive == 0 || hdi_modules_everywhere(rt))) {
            status = hdi_module_load_on(m, rt->devices[i]);
            if (status == HD_ERROR_DEVICE_LOST && rt->is_process) {
                status = HD_OK; /* lost just now: the other devices go on */
            } else {
                alive++;
            }
        }
    }
    if (!status && !alive) {
        status = hdi_loss_fail(rt, 0, "all devices are lost");
    }
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        give_module(m, true);
        hdi_attempt_end(&attempt);
        return status;
    }
    hdi_mutex_lock(&rt->modules->lock);
    hdi_set_live(&m->head, HDI_MODULE_MAGIC, 1);
    m->next = rt->modules->loaded;
    rt->modules->loaded = m;
    hdi_mutex_unlock(&rt->modules->lock);
    *out = m;
    return HD_OK;
}

hd_status hd_module_load(hd_runtime *rt, const void *image, size_t bytes, hd_module **out)
{
    HDI_INSIDE(rt);
    if (!image || !out || !bytes) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", !out ? "out is null" : !image ? "image is null" : "bytes is 0");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    struct hd_module *m;
    hdi_mutex_lock(&rt->restarting);
    hd_status status = load(rt, image, bytes, &m);
    hdi_mutex_unlock(&rt->restarting);
    if (!status) {
        *out = hdi_handle_make(m, hdi_handle_head_generation(&m->head));
    }
    return status;
}

#define IMAGE(name) extern const unsigned char hdi_image_##name[], hdi_image_##name##_end[]
IMAGE(builtin);
IMAGE(tensor);
IMAGE(matmul);
IMAGE(probe);
#undef IMAGE

hd_status hdi_builtin_get(hd_runtime *rt, hdi_builtin which, hd_module **out)
{
    static const struct {
        const unsigned char *at, *end;
    } images[HDI_BUILTINS] = {
        [HDI_BUILTIN_BASIC] = {hdi_image_builtin, hdi_image_builtin_end},
        [HDI_BUILTIN_TENSOR] = {hdi_image_tensor, hdi_image_tensor_end},
        [HDI_BUILTIN_MATMUL] = {hdi_image_matmul, hdi_image_matmul_end},
        [HDI_BUILTIN_PROBE] = {hdi_image_probe, hdi_image_probe_end},
    };
    hd_status status = HD_OK;
    hdi_mutex_lock(&rt->restarting);
    hdi_mutex_lock(&rt->cold);
    struct hd_module **place = &rt->modules->builtin[which];
    if (!*place) {
        status = load(rt, images[which].at, (size_t)(images[which].end - images[which].at), place);
        if (!status) {
            (*place)->is_builtin = true;
        }
    }
    struct hd_module *m = *place;
    hdi_mutex_unlock(&rt->cold);
    hdi_mutex_unlock(&rt->restarting);
    if (!status) {
        *out = hdi_handle_make(m, hdi_handle_head_generation(&m->head));
    }
    return status;
}

hd_status hd_module_get_builtin(hd_runtime *rt, hd_module **out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    return hdi_builtin_get(rt, HDI_BUILTIN_BASIC, out);
}

/* ---- unloading ---- */

/* Waits for all threads that found a handle good before it became stale. Such a thread may be submitting a launch, or
 * asking the driver about a kernel. Later threads check the handle again and find it stale. */
static void await_users(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_lock_take(&rt->devices[i]->order);
        hdi_lock_release(&rt->devices[i]->order);
    }
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_mutex_lock(&rt->modules->loading[i]);
        hdi_mutex_unlock(&rt->modules->loading[i]);
    }
    hdi_mutex_lock(&rt->cold);
    hdi_mutex_unlock(&rt->cold);
}

/* Records everything submitted so far to any lane, since it may launch the module's kernels. False: no memory. */
static bool note_users(struct hd_module *m)
{
    hd_runtime *rt = m->runtime;
    size_t room = (size_t)rt->n_devices * HDI_LANES_MAX;
    m->points = malloc(room * sizeof *m->points);
    m->n_points = 0;
    for (size_t i = 0; m->points && i < room; i++) {
        uint32_t lane = (uint32_t)i;
        hdi_point point = {lane, hdi_lane_submitted(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX)};
        if (!hdi_point_done(rt, point)) {
            m->points[m->n_points++] = point;
        }
    }
    return m->points != NULL;
}

static void unload(struct hd_module *m)
{
    hd_runtime *rt = m->runtime;
    struct hdi_modules *reg = rt->modules;
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
        end_handles(&m->head, HDI_MODULE_MAGIC);
        for (struct hd_kernel *k = m->kernels; k; k = k->next) {
            end_handles(&k->head, HDI_KERNEL_MAGIC);
        }
    }
    hdi_mutex_unlock(&reg->lock);
    if (!ours) {
        return;
    }
    await_users(rt);
    if (note_users(m) && m->n_points == 0) {
        give_module(m, true);
        return;
    }
    /* Still in use. Without memory for the points, the module stays loaded until hd_close. */
    if (!m->points) {
        hdi_mutex_lock(&reg->lock);
        m->next = reg->loaded;
        reg->loaded = m;
        hdi_mutex_unlock(&reg->lock);
        return;
    }
    hdi_mutex_lock(&reg->lock);
    m->next = reg->unloaded;
    reg->unloaded = m;
    hdi_mutex_unlock(&reg->lock);
}

static hd_status refuse_module(const hd_module *handle)
{
    return hdi_handle_refused(handle, "module", "it was unloaded, or its runtime closed");
}

hd_status hd_module_unload(hd_module *handle)
{
    HDI_INSIDE(hdi_module_runtime(handle));
    struct hd_module *m = hdi_module_from_handle(handle);
    if (!m) {
        return handle ? refuse_module(handle) : HD_OK;
    }
    hd_runtime *rt = m->runtime;
    hdi_mutex_lock(&rt->restarting);                     /* a restart changes the module's numbers */
    bool there = hdi_module_from_handle(handle) != NULL; /* else it may be another module by now */
    if (there) {
        unload(m);
    }
    hdi_mutex_unlock(&rt->restarting);
    return there ? HD_OK : refuse_module(handle);
}
