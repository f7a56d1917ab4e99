/* globals.c - hd_module_get_global: returns a module's variable on a device as a buffer. Launches
 * then count as uses of this buffer.
 *
 * The memory belongs to the module (HDI_BUFFER_BORROWED). hd_free ends the buffer's handle, and an
 * unload ends all handles of the module's variables.
 *
 * Every kernel of the module may read the variable, and write it unless it is constant. So once the
 * program requested a variable, each launch of the module's kernels on that device uses the
 * variable's buffer. Modules without requested variables pay nothing for this. With the first
 * request, the heads of the module's kernels take another state (HDI_HANDLE_CAREFUL). The fast way
 * of a launch notices the changed head under the order lock. Then the slow way asks this file for
 * the uses of variables. A head also counts the requests for variables. If the count changed after
 * a launch asked, the launch notices this under the order lock, and asks again.
 *
 * Unfinished launches from before the request may also use the variable. So the buffer's use record
 * lists all unfinished work of the device as readers. If kernels may write the variable, a mark is
 * submitted behind that work. A mark is an empty write: it waits for these readers, and later
 * readers wait for it.
 *
 * Threads: any.
 * Locks: hd_module_get_global holds `refilling` and `cold`, and `loading` while the device is
 * asked. `globals_lock` guards the lists of variables; a thread that holds it takes no other lock.
 * Blocking: a call waits while the code is loaded and while the device is asked.
 * Always:
 * - Each variable in a module's list belongs to a buffer whose handle the program got. The buffer
 *   owns the variable's structure.
 * - A list holds at most HDI_GLOBALS_MAX variables of a device with good handles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "buffer/kind.h"
#include "kernel/globals.h"
#include "kernel/module_internal.h"
#include "transfer/route.h"

typedef struct hdi_global {
    struct hd_module *module; /* NULL: the variable is in no list any more */
    struct hdi_global *next;
    struct hd_buffer *buffer;
    hd_buffer *handle;
    uint64_t word, losses; /* as in hdi_use */
    int device;
    bool constant;
    char symbol[]; /* as the code spells it */
} hdi_global;

static hdi_lock *globals_lock_of(hd_runtime *rt)
{
    return &hdi_kernel_of(rt)->modules.globals_lock;
}

static bool global_is_good(const hdi_global *g)
{
    return hdi_self_get(&g->buffer->self) == g->word;
}

/* ---- the end of a handle ---- */

/* Takes the variable out of its module's list. The caller holds the lock. */
static void global_leave_list(hdi_global *g)
{
    hdi_global **link = &g->module->globals;
    while (*link != g) {
        link = &(*link)->next;
    }
    *link = g->next;
    g->module = NULL;
}

static void global_release(struct hd_buffer *b)
{
    hdi_global *g = b->of_kind;
    hdi_lock_take(globals_lock_of(b->runtime));
    if (g->module) {
        global_leave_list(g);
    }
    hdi_lock_release(globals_lock_of(b->runtime));
    free(g);
}

static void global_forget(struct hd_buffer *b)
{
    free(b->of_kind);
}

static const hdi_buffer_ops global_ops = {.release = global_release, .forget = global_forget};

void hdi_globals_end(struct hd_module *m)
{
    /* If another thread frees a handle during the unload, the unload still succeeds. */
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_buffer *handle;
    do {
        hdi_lock_take(globals_lock_of(m->runtime));
        handle = m->globals ? m->globals->handle : NULL;
        if (handle) {
            global_leave_list(m->globals);
        }
        hdi_lock_release(globals_lock_of(m->runtime));
        if (handle && hdi_buffer_from_any_handle(handle)) {
            hdi_free(handle);
        }
    } while (handle);
    hdi_attempt_end(&attempt);
}

void hdi_globals_forget(struct hd_module *m)
{
    hdi_lock_take(globals_lock_of(m->runtime));
    for (hdi_global *g; (g = m->globals) != NULL;) {
        m->globals = g->next;
        g->module = NULL;
    }
    hdi_lock_release(globals_lock_of(m->runtime));
}

/* ---- launches ---- */

size_t hdi_globals_uses(const struct hd_kernel *kernel, uint64_t word, const hdi_device *device, hdi_use *uses,
                        size_t room)
{
    size_t n = 0;
    hdi_lock_take(globals_lock_of(kernel->runtime));
    /* While the handle is good under this lock, the module exists: an unload makes the kernels'
     * handles stale, and then takes this lock. */
    bool there = atomic_load_explicit(&kernel->head.word, memory_order_acquire) == word;
    for (const hdi_global *g = there ? kernel->module->globals : NULL; g; g = g->next) {
        if (g->device != device->index || !global_is_good(g)) {
            continue;
        }
        if (n < room) {
            uses[n] = (hdi_use){.buffer = g->buffer,
                                .losses = g->losses,
                                .word = g->word,
                                .high = g->buffer->bytes,
                                .read = true,
                                .write = !g->constant,
                                .whole = true};
        }
        n++;
    }
    hdi_lock_release(globals_lock_of(kernel->runtime));
    return n;
}

/* ---- a variable requested for the first time ---- */

/* Asks the device for the variable's address and size. If necessary, loads the code there first. */
static hd_status global_find_on(struct hd_module *m, hdi_device *device, const char *symbol, hdi_global_place *out)
{
    hdi_mutex *loading = &hdi_kernel_of(m->runtime)->modules.loading[device->index];
    hdi_mutex_lock(loading);
    hd_status status = hdi_device_lost(device) ? hdi_loss_fail(m->runtime, device->index, "the variable is gone")
                                               : hdi_module_load_on(m, device);
    if (!status) {
        hdi_answer answer = device->port->calls->global(device->port, m->loaded[device->index], symbol, out);
        if (answer.code == HDCU_ERROR_NOT_FOUND) {
            char names[256];
            hdi_image_global_names(&m->image, names, sizeof names);
            status = hdi_fail_driver(HD_ERROR_NOT_FOUND, answer.code, answer.call, device->index,
                                     "device %d has no variable '%.100s' of the module%s%s", device->index, symbol,
                                     names[0] ? "; it has " : "", names);
        } else if (!hdi_answered(answer)) {
            status = hdi_answer_failed(device, answer);
        } else if (out->bytes == 0) {
            status = hdi_fail(HD_ERROR_UNSUPPORTED, "variable '%.100s' has no bytes", symbol);
        }
    }
    hdi_mutex_unlock(loading);
    return status;
}

/* Makes the buffer, with a handle that no other thread knows. NULL: a failure, in *status. */
static hdi_global *global_make(struct hd_module *m, hdi_device *device, const hdi_image_global *wanted,
                               const char *name, hd_status *status)
{
    hd_runtime *rt = m->runtime;
    hdi_global_place place = {0, 0};
    uint64_t losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    *status = global_find_on(m, device, wanted->symbol, &place);
    if (*status) {
        return NULL;
    }
    size_t length = strlen(wanted->symbol);
    hdi_global *g = calloc(1, sizeof *g + length + 1);
    struct hd_buffer *b = g ? hdi_buffer_take(rt) : NULL;
    *status = b ? hdi_buffer_borrow(b, device, place.address, place.bytes, losses, HDI_BUFFER_BORROWED | HDI_BUFFER_OWN)
                : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a handle");
    if (*status) {
        free(g);
        if (b) {
            hdi_buffer_give(rt, b);
        }
        return NULL;
    }
    memcpy(g->symbol, wanted->symbol, length);
    g->buffer = b;
    g->device = device->index;
    g->constant = wanted->constant;
    g->losses = losses;
    hdi_buffer_label(b, name);
    hdi_buffer_set_kind(b, &global_ops, g);
    hdi_buffer_make_live(b);
    g->handle = hdi_buffer_handle(b);
    g->word = hdi_self_word(g->handle);
    return g;
}

/* Changes the heads of the module's kernels. From now on, a launch uses the variables in the
 * module's list, or it is refused under the order lock and begins again. */
static void globals_count_in_kernels(struct hd_module *m)
{
    hdi_modules *reg = &hdi_kernel_of(m->runtime)->modules;
    hdi_mutex_lock(&reg->lock);
    m->variables_asked = m->variables_asked % HDI_CAREFUL_COUNTS + 1;
    for (struct hd_kernel *k = m->kernels; k; k = k->next) {
        hdi_kernel_make_live(k);
    }
    hdi_mutex_unlock(&reg->lock);
}

/* Records all unfinished work submitted to the device so far as readers of the buffer, since this
 * work may use the variable. Errors: HOST_MEMORY. */
static hd_status global_note_earlier(hdi_device *device, struct hd_buffer *b, bool *any)
{
    hd_runtime *rt = device->runtime;
    /* After this lock was free once, launches that saw the kernel's earlier state are in their
     * lanes. */
    hdi_lock_take(&device->order);
    hdi_lock_release(&device->order);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_point point = {(uint32_t)device->index * HDI_LANES_MAX + i, hdi_lane_submitted(device, i)};
        if (hdi_point_done(rt, point)) {
            continue;
        }
        hdi_buffer_uses_lock(b);
        bool noted = hdi_uses_inherit(rt, &b->uses, point);
        hdi_buffer_uses_unlock(b);
        if (!noted) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
        }
        *any = true;
    }
    return HD_OK;
}

/* Submits the mark: an empty write behind all earlier work, for which later readers wait. */
static hd_status global_mark(hdi_device *device, const hdi_global *g)
{
    hdi_use use = {.buffer = g->buffer,
                   .losses = g->losses,
                   .word = g->word,
                   .high = g->buffer->bytes,
                   .write = true,
                   .whole = true};
    hdi_command command = {.op = HDI_OP_FILL, .slots = 1};
    command.fill.dst = g->buffer->address;
    return hdi_submit(hdi_copy_lane(device, HDI_WAY_ON, HDI_LANES_QUICK), &use, 1, &command, NULL);
}

static hd_status global_add(struct hd_module *m, hdi_device *device, const hdi_image_global *wanted, const char *name,
                            hd_buffer **out)
{
    hd_status status = HD_OK;
    hdi_global *g = global_make(m, device, wanted, name, &status);
    if (!g) {
        return status;
    }
    hd_buffer *handle = g->handle;
    hdi_lock_take(globals_lock_of(m->runtime));
    g->module = m;
    g->next = m->globals;
    m->globals = g;
    hdi_lock_release(globals_lock_of(m->runtime));
    globals_count_in_kernels(m);
    bool any = false;
    status = global_note_earlier(device, g->buffer, &any);
    if (!status && any && !g->constant) {
        status = global_mark(device, g);
    }
    if (!status && !hdi_buffer_from_handle(handle)) {
        status = hdi_runtime_is_open(m->runtime) ? hdi_loss_fail(m->runtime, device->index, "the variable is gone")
                                                 : hdi_runtime_refused(m->runtime);
    }
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_free(handle);
        hdi_attempt_end(&attempt);
        return status;
    }
    *out = handle;
    return HD_OK;
}

/* ---- the call ---- */

/* Finds a device's variable in the module's list. *n: the number of the device's variables there.
 * NULL: the variable was not requested, or its handle ended. */
static hd_buffer *global_find_in_list(struct hd_module *m, int device, const char *symbol, size_t *n)
{
    hd_buffer *found = NULL;
    *n = 0;
    hdi_lock_take(globals_lock_of(m->runtime));
    for (const hdi_global *g = m->globals; g; g = g->next) {
        if (g->device == device && global_is_good(g)) {
            ++*n;
            found = strcmp(g->symbol, symbol) == 0 ? g->handle : found;
        }
    }
    hdi_lock_release(globals_lock_of(m->runtime));
    return found;
}

static hd_status global_get(struct hd_module *m, int device, const char *name, hd_buffer **out)
{
    hdi_image_global wanted;
    hd_status status = hdi_image_find_global(&m->image, name, &wanted);
    if (status) {
        return status;
    }
    size_t n;
    hd_buffer *there = global_find_in_list(m, device, wanted.symbol, &n);
    if (there) {
        *out = there;
        return HD_OK;
    }
    if (n >= HDI_GLOBALS_MAX) {
        return hdi_fail(HD_ERROR_LIMIT, "%zu variables of the module on device %d are in use; hd_free some handles", n,
                        device);
    }
    return global_add(m, m->runtime->devices[device], &wanted, name, out);
}

hd_status hd_module_get_global(hd_module *handle, int device, const char *name, hd_buffer **out)
{
    HDI_INSIDE(hdi_module_runtime(handle));
    if (!name || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", name ? "out" : "name");
    }
    struct hd_module *m = hdi_module_from_handle(handle);
    if (!m) {
        return hdi_module_refused(handle);
    }
    hd_runtime *rt = m->runtime;
    if (device < 0 || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    if (strlen(name) >= HDI_KERNEL_SYMBOL_BYTES) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "no variable has a name of more than %d characters here",
                        HDI_KERNEL_SYMBOL_BYTES - 1);
    }
    hdi_mutex_lock(&rt->refilling);
    hdi_mutex_lock(&rt->cold);
    /* Checks the handle again: hd_module_unload may have run before this thread got `refilling`. */
    hd_status status = hdi_module_from_handle(handle) ? global_get(m, device, name, out) : hdi_module_refused(handle);
    hdi_mutex_unlock(&rt->cold);
    hdi_mutex_unlock(&rt->refilling);
    return status;
}
