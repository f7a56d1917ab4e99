/* module.c - modules and their kernels: loads images, gets code to devices, and finds kernels by
 * name. Unloading is in unload.c, variables of modules are in globals.c.
 *
 * hd_module_load loads on one device, to check the image. hd_kernel_get looks the kernel up on one
 * device. Every other device gets the code and the kernel's facts at the first launch there, on the
 * launching thread. With the option module_loading=eager every device gets them at once. A
 * restarted device gets back all code that was loaded on it.
 *
 * Parameters: hd_launch reads a kernel's parameters without a lock. It checks the kernel's handle
 * again when it holds the order lock. Before this check, an unload and a load may have put another
 * kernel's parameters in their place. So until hd_close, this memory only ever contains parameters
 * of kernels.
 *
 * Threads: any.
 * Locks, in this order:
 * - `refilling`: a device's restart sees either all of a load or unload, or nothing of it
 * - `cold`: held while a kernel is looked up
 * - `loading` of a device: protects the numbers of modules and the facts of kernels on that device.
 *   It is held while the driver is called.
 * - the registry's mutex: protects its lists. A thread holds it across requests only while it
 *   restarts a device.
 * - `params_lock`: protects the lists of parameters. A thread that holds it takes no other lock.
 * - `globals_lock`: see globals.c
 * - the locks of the memory layer, if a load finds no room.
 * Blocking: a call waits while the driver loads or unloads code, is asked about kernels, or waits
 * for work on the device.
 * Always:
 * - A structure serves another module or kernel only after every device unloaded the module and all
 *   submitted launches are done.
 * - Handles carry a generation, so stale ones are refused.
 * - A kernel's facts on a device are complete once its max_threads there is not 0, since
 *   max_threads is stored last.
 * - A kernel that was handed out was looked up on some device, unless all devices are lost.
 * - A kernel's number is its place in the runtime's table.
 * - The size of a piece of memory for parameters never changes.
 * - Each value of a parameter's fields in a piece is valid for some argument block. So a thread
 *   that reads a mixture of two kernels' parameters writes wrong arguments, but none outside of the
 *   block.
 * - A launch that read such a mixture is refused, since its kernel's handle is stale.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/shortage.h"
#include "kernel/globals.h"
#include "kernel/module_internal.h"
#include "memory/arena.h"
#include "memory/thread_cache.h"

_Static_assert(1 << (HDI_PARAMS_CLASSES - 1) >= HDI_ARGUMENT_BYTES_MAX, "room for all parameters");

/* The structure of a kernel, aligned so that its address can be a handle. */
typedef struct hdi_kernel_place {
    _Alignas(HDI_SELF_ALIGN) struct hd_kernel kernel;
} kernel_place;

const void *hdi_module_runtime(const hd_module *handle)
{
    const struct hd_module *m = hdi_handle_object(handle);
    return m ? m->runtime : NULL;
}

struct hd_module *hdi_module_from_handle(const hd_module *handle)
{
    struct hd_module *m = hdi_handle_object(handle);
    return m && hdi_handle_fits(handle, &m->head, HDI_MODULE_MAGIC) ? m : NULL;
}

/* Marks a structure that belongs to no kernel or module, and that no other thread can reach. */
static void module_set_dead(hdi_handle_head *head, uint32_t magic)
{
    hdi_handle_set(head, magic, hdi_handle_head_generation(head), HDI_HANDLE_DEAD);
}

/* True with the option module_loading=eager: every device gets the code of a module at once. */
static bool modules_everywhere(const hd_runtime *rt)
{
    return rt->options.module_loading == HDI_MODULE_LOADING_EAGER;
}

void hdi_kernel_make_live(struct hd_kernel *k)
{
    uint32_t asked = k->module->variables_asked;
    if (hdi_handles_ended(k->module->runtime)) {
        hdi_handle_close(&k->head);
    } else {
        hdi_handle_set(&k->head, HDI_KERNEL_MAGIC, hdi_handle_head_generation(&k->head),
                       asked ? hdi_careful_state(asked) : HDI_HANDLE_LIVE);
    }
}

hd_status hdi_module_refused(const hd_module *handle)
{
    return hdi_handle_refused(handle, "module", "it was unloaded, or its runtime closed");
}

/* ---- memory for parameters ---- */

/* Parameters stay unchanged for this long after their kernel is gone, since a thread in hd_launch
 * may still read them. That thread does not block while it reads them. */
#define PARAMS_KEPT_NS 10000000000

static unsigned params_class_of(uint32_t n)
{
    unsigned class = 0;
    while ((uint32_t)1 << class < n) {
        class ++;
    }
    return class;
}

static bool params_are_alike(const hdi_params *p, const hdi_signature *s)
{
    bool alike = p->n == s->n_params && p->argument_bytes == s->argument_bytes && p->described == s->described;
    for (uint32_t i = 0; alike && i < p->n; i++) {
        const hdi_param *a = &p->of[i], *b = &s->params[i];
        alike = a->kind == b->kind && a->access == b->access && a->element == b->element && a->offset == b->offset &&
                a->size == b->size && strcmp(a->name, b->name) == 0;
    }
    return alike;
}

/* Takes a piece of memory for the signature's parameters. A signature has at most
 * HDI_ARGUMENT_BYTES_MAX parameters, since each parameter takes at least one byte. Prefers a piece
 * with the same content. If there is none, this function takes a piece that no thread can still
 * read, or makes one. */
static hdi_params *params_take(hdi_modules *reg, const hdi_signature *signature)
{
    unsigned class = params_class_of(signature->n_params);
    int64_t now = hdi_clock_ns();
    hdi_lock_take(&reg->params_lock);
    hdi_params **link = &reg->free_params[class], **oldest = link;
    while (*link && !params_are_alike(*link, signature)) {
        oldest = link;
        link = &(*link)->next;
    }
    if (!*link && *oldest && now - (*oldest)->freed >= PARAMS_KEPT_NS) {
        link = oldest;
    }
    hdi_params *p = *link;
    if (p) {
        *link = p->next;
    } else {
        p = calloc(1, sizeof *p + (sizeof p->of[0] << class));
        if (p) {
            p->class = (uint8_t) class;
            p->made = reg->all_params;
            reg->all_params = p;
        }
    }
    hdi_lock_release(&reg->params_lock);
    return p;
}

static uint32_t params_usual_of(const hdi_param *p)
{
    if (p->kind == HD_ARG_BUFFER) {
        return p->access ? HDI_PARAM_BUFFER : HDI_PARAM_ODD;
    }
    if (p->kind == HD_ARG_NONE || p->kind == HD_ARG_BYTES || p->access) {
        return HDI_PARAM_ODD;
    }
    return p->size == 4 ? HDI_PARAM_4 : p->size == 8 ? HDI_PARAM_8 : HDI_PARAM_ODD;
}

/* Gives a kernel's parameters back for use by other kernels. The kernel's handles are stale, or the
 * kernel gets other parameters. */
static void params_give(struct hd_kernel *k)
{
    hdi_modules *reg = &hdi_kernel_of(k->runtime)->modules;
    if (k->has_params) {
        k->has_params = false;
        hdi_params *p = atomic_load_explicit(&k->params, memory_order_relaxed);
        hdi_lock_take(&reg->params_lock);
        p->freed = hdi_clock_ns();
        p->next = reg->free_params[p->class];
        reg->free_params[p->class] = p;
        hdi_lock_release(&reg->params_lock);
    }
}

static void params_fill(hdi_params *p, const hdi_signature *signature)
{
    p->n = signature->n_params;
    p->argument_bytes = signature->argument_bytes;
    p->described = signature->described;
    if (signature->n_params) {
        memcpy(p->of, signature->params, signature->n_params * sizeof p->of[0]);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        p->of[i].usual = params_usual_of(&p->of[i]);
    }
}

/* Sets the parameters that hd_launch uses. The program did not get the kernel yet, or the kernel
 * was not described so far. The caller holds `cold`.
 * Errors: LIMIT, HOST_MEMORY. */
static hd_status kernel_set_params(struct hd_kernel *k, const hdi_signature *signature)
{
    if (signature->argument_bytes > HDI_ARGUMENT_BYTES_MAX) {
        return hdi_fail(HD_ERROR_LIMIT, "kernel '%s' takes %u bytes of arguments, at most %d are supported", k->name,
                        signature->argument_bytes, HDI_ARGUMENT_BYTES_MAX);
    }
    hdi_params *p = params_take(&hdi_kernel_of(k->runtime)->modules, signature);
    if (!p) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the parameters");
    }
    /* do not write a piece with the same content: a thread may still read it */
    if (!params_are_alike(p, signature)) {
        params_fill(p, signature);
    }
    params_give(k); /* gives back the empty parameters of a kernel that was not described */
    k->has_params = true;
    /* Pairs with the acquire load in hdi_kernel_params: a thread that sees the pointer sees
     * complete parameters. */
    atomic_store_explicit(&k->params, p, memory_order_release);
    return HD_OK;
}

/* hd_close: frees the memory of all parameters. */
static void params_release(hdi_modules *reg)
{
    while (reg->all_params) {
        hdi_params *p = reg->all_params;
        reg->all_params = p->made;
        free(p);
    }
}

/* ---- code on devices ---- */

/* Gives the unused memory of the device's arena back to the driver. Leaves the thread's message
 * alone. False: no memory was unused. */
static bool module_free_idle(hdi_device *device)
{
    size_t returned = 0;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_thread_caches_drain(device->runtime, device->index);
    hdi_arena_trim(device->arena, 0, SIZE_MAX, &returned);
    hdi_attempt_end(&attempt);
    return returned != 0;
}

/* The remedy if the driver has no memory for code. */
static const char *module_room_advice(const char *log)
{
    const char *shortage = hdi_shortage_text();
    return strstr(log, "(ulimit ") ? "" : shortage ? shortage : "unload modules, or free memory of the device";
}

static hd_status module_load_failed(const struct hd_module *m, hdi_device *device, hdi_answer answer, const char *log)
{
    const char *advice;
    switch (answer.code) {
    case HDCU_ERROR_INVALID_IMAGE:
    case HDCU_ERROR_NO_BINARY_FOR_GPU:
    case HDCU_ERROR_INVALID_PTX:
    case HDCU_ERROR_INVALID_SOURCE:
    case HDCU_ERROR_INVALID_VALUE:
    case HDCU_ERROR_JIT_COMPILER_NOT_FOUND:
    case HDCU_ERROR_UNSUPPORTED_PTX_VERSION: /* the PTX is newer than the driver accepts */
        return hdi_fail_driver(HD_ERROR_IMAGE, answer.code, answer.call, device->index,
                               "device %d cannot load the image: %s%s%.300s%s", device->index,
                               hdi_driver_code_name(answer.code), log[0] ? ": " : "", log,
                               m->image.listing.relocatable ? "; it is not linked: use hd_module_link" : "");
    case HDCU_ERROR_OUT_OF_MEMORY:
        advice = module_room_advice(log);
        return hdi_fail_driver(HD_ERROR_MEMORY, answer.code, answer.call, device->index,
                               "device %d has no room for the code (%llu bytes)%s%.300s%s%s", device->index,
                               (unsigned long long)m->code.size, log[0] ? ": " : "", log, advice[0] ? "; " : "",
                               advice);
    default:
        return hdi_answer_failed(device, answer);
    }
}

hd_status hdi_module_load_on(struct hd_module *m, hdi_device *device)
{
    if (m->loaded[device->index]) {
        return HD_OK;
    }
    char log[HDI_CODE_LOG_BYTES] = "";
    hdi_answer answer;
    bool again = false;
    do {
        int64_t began = hdi_record_began(&device->runtime->recorder);
        answer = device->port->calls->load(device->port, &m->code, &m->loaded[device->index], log);
        hdi_pause_end(
            &device->runtime->recorder, began,
            (hdi_pause){.kind = HDI_RECORD_PAUSE_CODE, .device = (uint8_t)device->index, .bytes = m->code.size});
        again = answer.code == HDCU_ERROR_OUT_OF_MEMORY && !again && module_free_idle(device);
    } while (again);
    if (hdi_answered(answer)) {
        return HD_OK;
    }
    m->loaded[device->index] = 0;
    log[sizeof log - 1] = 0;
    return module_load_failed(m, device, answer, log);
}

static hd_status kernel_driver_refused(struct hd_module *m, hdi_device *device, hdi_answer answer, const char *name)
{
    if (answer.code == HDCU_ERROR_NOT_FOUND) {
        char names[256] = "";
        hdi_image_kernel_names(&m->image, names, sizeof names);
        const char *unread = m->image.listing.unread;
        return hdi_fail_driver(HD_ERROR_NOT_FOUND, answer.code, answer.call, device->index,
                               "the module has no kernel '%.100s'%s%s%s%s", name, names[0] ? "; it has " : "", names,
                               unread[0] ? "; not all of the image was read, so ask by the mangled name: " : "",
                               unread);
    }
    return hdi_answer_failed(device, answer);
}

/* Looks a kernel up on a device that loaded its module. Asks the driver for the signature if the
 * image does not describe it. */
static hd_status kernel_look_up(struct hd_module *m, struct hd_kernel *k, hdi_device *device, hdi_signature *signature)
{
    int d = device->index;
    hdi_kernel_facts *facts = malloc(sizeof *facts);
    if (!facts) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = HD_OK;
    hdi_answer answer =
        device->port->calls->kernel(device->port, m->loaded[d], k->symbol, k->number, !signature->described, facts);
    if (!hdi_answered(answer)) {
        status = kernel_driver_refused(m, device, answer, k->symbol);
    } else if (!signature->described) {
        status = hdi_image_describe_by_driver(facts, k->name, signature);
    }
    if (!status) {
        uint32_t most = device->limits.threads_per_block;
        atomic_store_explicit(&k->static_shared[d], facts->static_shared, memory_order_relaxed);
        uint64_t usual = device->limits.shared_default;
        uint32_t dynamic = usual > facts->static_shared ? (uint32_t)(usual - facts->static_shared) : 0;
        atomic_store_explicit(&k->dynamic_shared[d], dynamic, memory_order_release);
        /* Stored last. Pairs with the acquire loads in launch.c: a launch that sees a value other
         * than 0 sees all facts. */
        atomic_store_explicit(&k->max_threads[d], facts->max_threads < most ? facts->max_threads : most,
                              memory_order_release);
    }
    free(facts);
    return status;
}

/* The caller holds `loading` of the device. */
static hd_status kernel_load_and_look_up(struct hd_module *m, struct hd_kernel *k, hdi_device *device,
                                         hdi_signature *signature)
{
    hd_status status = hdi_module_load_on(m, device);
    return status ? status : kernel_look_up(m, k, device, signature);
}

/* Looks a kernel up on a device, if possible. `load`: loads the module there first, unless it is
 * loaded. True: the kernel's facts are known there. False with *status unchanged or OK: the device
 * is lost, or the module is not loaded there. False with another *status: an error. */
static bool kernel_try_on(struct hd_module *m, struct hd_kernel *k, hdi_device *device, bool load,
                          hdi_signature *signature, hd_status *status)
{
    hd_runtime *rt = m->runtime;
    bool known = false;
    hdi_mutex_lock(&hdi_kernel_of(rt)->modules.loading[device->index]);
    if (!hdi_device_lost(device) && (load || m->loaded[device->index])) {
        *status = kernel_load_and_look_up(m, k, device, signature);
        known = *status == HD_OK;
        if (*status == HD_ERROR_DEVICE_LOST && rt->is_process) {
            *status = HD_OK; /* a launch after the restart looks the kernel up */
        }
    }
    hdi_mutex_unlock(&hdi_kernel_of(rt)->modules.loading[device->index]);
    return known;
}

/* Looks up a kernel that no other thread can reach: on one device, or on all with the option
 * module_loading=eager. Gets the signature from the driver if the image does not describe it. Skips
 * lost devices. Errors: as hd_kernel_get. */
static hd_status kernel_find(struct hd_module *m, struct hd_kernel *k, hdi_signature *signature)
{
    hd_runtime *rt = m->runtime;
    bool all = modules_everywhere(rt), known = false;
    hd_status status = HD_OK;
    for (int i = 0; i < rt->n_devices; i++) {
        /* Clears the value of a former kernel. */
        atomic_store_explicit(&k->max_threads[i], 0, memory_order_relaxed);
    }
    /* The first round tries the devices that loaded the module, and the second round loads it on
     * others. */
    for (int load = 0; load < 2 && !known && !status; load++) {
        for (int i = 0; i < rt->n_devices && !status && (all || !known); i++) {
            known |= kernel_try_on(m, k, rt->devices[i], load, signature, &status);
        }
    }
    return status;
}

hd_status hdi_kernel_prepare(struct hd_kernel *k, uint64_t word, hdi_device *device)
{
    hd_runtime *rt = device->runtime;
    /* the load may wait for work on the device, and hd_close must wait for this call */
    HDI_INSIDE_STILL(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hdi_mutex *loading = &hdi_kernel_of(rt)->modules.loading[device->index];
    hd_status status = HD_OK;
    hdi_mutex_lock(loading); /* hd_module_unload waits for this lock */
    bool there = word == 0 || hdi_handle_word_is_good(atomic_load_explicit(&k->head.word, memory_order_acquire), word);
    if (!there) {
        status = hdi_kernel_refused();
    } else if (hdi_device_lost(device)) {
        /* A restart looks up kernels again. */
        status = hdi_driver_failed(device, HDI_GONE_CLOSED, "");
    } else if (atomic_load_explicit(&k->max_threads[device->index], memory_order_relaxed) == 0) {
        /* Since `described` is set, the driver is not asked for the signature again. */
        hdi_signature signature = {.described = true};
        status = kernel_load_and_look_up(k->module, k, device, &signature);
    }
    hdi_mutex_unlock(loading);
    return status;
}

/* ---- a device that comes back ---- */

/* Loads a module on a restarted device again if it was loaded there before, and looks up the
 * kernels that were known there. Also looks up kernels whose parameters no device reported yet. */
static hd_status module_restart(struct hd_module *m, hdi_device *device)
{
    int d = device->index;
    bool was_loaded = m->loaded[d] != 0;
    m->loaded[d] = 0;
    hd_status status = was_loaded ? hdi_module_load_on(m, device) : HD_OK;
    for (struct hd_kernel *k = m->kernels; k && !status; k = k->next) {
        hdi_signature signature = {.described = hdi_kernel_params(k)->described};
        bool was = signature.described;
        if (was && atomic_load_explicit(&k->max_threads[d], memory_order_relaxed) == 0) {
            continue;
        }
        status = kernel_load_and_look_up(m, k, device, &signature);
        if (!status && !was && signature.described) {
            status = kernel_set_params(k, &signature);
        }
        free(signature.params);
    }
    return status;
}

hd_status hdi_modules_restart(hd_runtime *rt, hdi_device *device)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    hd_status status = HD_OK;
    /* `cold` prevents the look-up of kernels. `lock` prevents the unloading of modules. Only rare
     * calls take these locks, so it does no harm to hold them for long. */
    hdi_mutex_lock(&rt->cold);
    hdi_mutex_lock(&reg->loading[device->index]);
    hdi_mutex_lock(&reg->lock);
    for (struct hd_module *m = reg->unloaded; m; m = m->next) {
        m->loaded[device->index] = 0; /* no kernel of the module runs on the device any more */
    }
    for (struct hd_module *m = reg->loaded; m && !status; m = m->next) {
        status = module_restart(m, device);
    }
    hdi_mutex_unlock(&reg->lock);
    hdi_mutex_unlock(&reg->loading[device->index]);
    hdi_mutex_unlock(&rt->cold);
    return status;
}

/* ---- kernels by name ---- */

const struct hd_kernel *hdi_kernel_numbered(hd_runtime *rt, uint32_t number)
{
    const kernel_place *places = hdi_kernel_of(rt)->modules.blocks[number / HDI_KERNEL_CHUNK];
    return &places[number % HDI_KERNEL_CHUNK].kernel;
}

/* Makes another block of kernel structures, with their entries for the engines. The caller holds
 * the registry's lock. Makes no block if there is no memory, or if the table is full. */
static void modules_add_kernels(hd_runtime *rt)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    uint32_t chunk = rt->n_kernels / HDI_KERNEL_CHUNK;
    if (chunk == HDI_KERNEL_CHUNKS) {
        return;
    }
    hdi_kernel_code *entries = calloc(HDI_KERNEL_CHUNK, sizeof *entries);
    /* The structures are allocated last, since stable memory is never given back. */
    kernel_place *places = entries ? hdi_stable_take(rt->stable, HDI_KERNEL_CHUNK * sizeof *places) : NULL;
    if (!places) {
        free(entries);
        return;
    }
    for (int i = HDI_KERNEL_CHUNK - 1; i >= 0; i--) {
        struct hd_kernel *k = &places[i].kernel;
        hdi_handle_set(&k->head, HDI_KERNEL_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
        k->number = chunk * HDI_KERNEL_CHUNK + (uint32_t)i;
        k->runtime = rt;
        k->next = reg->free_kernels;
        reg->free_kernels = k;
    }
    reg->blocks[chunk] = places;
    rt->n_kernels += HDI_KERNEL_CHUNK;
    /* Pairs with the acquire load in hdi_kernel_at: a thread that sees the entries sees zeroed
     * ones. */
    atomic_store_explicit(&rt->kernels[chunk], entries, memory_order_release);
}

static struct hd_kernel *kernel_take(hd_runtime *rt)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    hdi_mutex_lock(&reg->lock);
    if (!reg->free_kernels) {
        modules_add_kernels(rt);
    }
    struct hd_kernel *k = reg->free_kernels;
    if (k) {
        reg->free_kernels = k->next;
        k->next = NULL;
    }
    hdi_mutex_unlock(&reg->lock);
    return k;
}

/* Releases everything that a kernel owns and puts its structure into the free list. No thread uses
 * the kernel any more. */
static void kernel_give(hd_runtime *rt, struct hd_kernel *k)
{
    params_give(k);
    free(k->symbol);
    k->symbol = NULL;
    k->module = NULL;
    module_set_dead(&k->head, HDI_KERNEL_MAGIC);
    if (hdi_handle_head_generation(&k->head) == 0) {
        return; /* all generations are used up, so the structure is not used again */
    }
    hdi_mutex_lock(&hdi_kernel_of(rt)->modules.lock);
    k->next = hdi_kernel_of(rt)->modules.free_kernels;
    hdi_kernel_of(rt)->modules.free_kernels = k;
    hdi_mutex_unlock(&hdi_kernel_of(rt)->modules.lock);
}

/* Fills in the description, facts and parameters of a kernel whose structure was just taken. */
static hd_status kernel_fill_in(struct hd_module *m, struct hd_kernel *k, hdi_signature *signature)
{
    hd_status status = k->symbol ? hdi_image_describe(&m->image, k->symbol, signature)
                                 : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the name of a kernel");
    status = status ? status : kernel_find(m, k, signature);
    return status ? status : kernel_set_params(k, signature);
}

static hd_status kernel_make(struct hd_module *m, const char *symbol, const char *shown, struct hd_kernel **out)
{
    hd_runtime *rt = m->runtime;
    struct hd_kernel *k = kernel_take(rt);
    if (!k) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory, or more than %d kernels",
                        HDI_KERNEL_CHUNKS * HDI_KERNEL_CHUNK);
    }
    k->module = m;
    snprintf(k->name, sizeof k->name, "%s", shown);
    k->symbol = strdup(symbol);
    hdi_kernel_set_name(rt, k->number, shown);
    hdi_signature signature = {0};
    hd_status status = kernel_fill_in(m, k, &signature);
    free(signature.params);
    if (status) {
        kernel_give(rt, k);
        return status;
    }
    *out = k;
    return HD_OK;
}

/* The module's kernel of that name: the one that was requested before, or a new one. The caller
 * holds `cold`. */
static hd_status kernel_get_named(struct hd_module *m, const char *name, struct hd_kernel **out)
{
    const char *symbol;
    char shown[HDI_KERNEL_NAME_BYTES];
    hd_status status = hdi_image_find(&m->image, name, &symbol, shown);
    if (status) {
        return status;
    }
    struct hd_kernel *k = m->kernels;
    while (k && strcmp(k->symbol, symbol) != 0) {
        k = k->next;
    }
    if (!k) {
        status = kernel_make(m, symbol, shown, &k);
        if (status) {
            return status;
        }
        hdi_mutex_lock(&hdi_kernel_of(m->runtime)->modules.lock);
        hdi_kernel_make_live(k);
        k->next = m->kernels;
        m->kernels = k;
        hdi_mutex_unlock(&hdi_kernel_of(m->runtime)->modules.lock);
    }
    *out = k;
    return HD_OK;
}

hd_status hd_kernel_get(hd_module *handle, const char *name, hd_kernel **out)
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
    if (strlen(name) >= HDI_KERNEL_SYMBOL_BYTES) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "no kernel has a name of more than %d characters here",
                        HDI_KERNEL_SYMBOL_BYTES - 1);
    }
    hdi_mutex_lock(&rt->refilling);
    hdi_mutex_lock(&rt->cold);
    struct hd_kernel *k = NULL;
    /* Checks the handle again: hd_module_unload may have run before this thread got `refilling`. */
    hd_status status = hdi_module_from_handle(handle) ? kernel_get_named(m, name, &k) : hdi_module_refused(handle);
    if (!status) {
        *out = hdi_handle_make(k, hdi_handle_head_generation(&k->head));
    }
    hdi_mutex_unlock(&rt->cold);
    hdi_mutex_unlock(&rt->refilling);
    return status;
}

hd_status hdi_kernel_refused(void)
{
    return hdi_fail(HD_ERROR_HANDLE, "not a kernel of this runtime, or its module was unloaded");
}

/* The caller holds `cold` and checked the kernel's handle. */
static hd_status kernel_set_shared_limit(struct hd_kernel *kernel, hdi_device *device, size_t bytes)
{
    int d = device->index;
    uint32_t own = atomic_load_explicit(&kernel->static_shared[d], memory_order_relaxed);
    size_t most = device->limits.shared_max - own;
    if (own > device->limits.shared_max || bytes > most) {
        return hdi_fail(HD_ERROR_LIMIT,
                        "kernel '%s' with %zu bytes of dynamic and %u of static shared memory: device %d has %zu",
                        kernel->name, bytes, own, d, device->limits.shared_max);
    }
    if (bytes > atomic_load_explicit(&kernel->dynamic_shared[d], memory_order_acquire)) {
        hdi_answer answer = device->port->calls->kernel_shared(device->port, kernel->number, (uint32_t)most);
        if (!hdi_answered(answer)) {
            return hdi_answer_failed(device, answer);
        }
        atomic_store_explicit(&kernel->dynamic_shared[d], (uint32_t)most, memory_order_release);
    }
    return HD_OK;
}

hd_status hdi_kernel_allow_shared(struct hd_kernel *kernel, uint64_t word, hdi_device *device, size_t bytes)
{
    hd_runtime *rt = device->runtime;
    hdi_mutex_lock(&rt->cold); /* hd_module_unload waits for this lock */
    bool there =
        word == 0 || hdi_handle_word_is_good(atomic_load_explicit(&kernel->head.word, memory_order_acquire), word);
    hd_status status = there ? kernel_set_shared_limit(kernel, device, bytes) : hdi_kernel_refused();
    hdi_mutex_unlock(&rt->cold);
    return status;
}

/* ---- the structures of modules ---- */

static void modules_init(hd_runtime *rt)
{
    hdi_buffer_of(rt)->on_changed = hdi_launch_with_globals;
    rt->on_launched = rt->options.launch_wait == HDI_LAUNCH_WAIT_ON ? hdi_launch_await : NULL;
    hdi_lock_init(&hdi_kernel_of(rt)->modules.params_lock, HDI_RANKED(HDI_RANK_PARAMS, 0));
    hdi_lock_init(&hdi_kernel_of(rt)->modules.globals_lock, HDI_RANKED(HDI_RANK_GLOBALS, 0));
    hdi_mutex_init(&hdi_kernel_of(rt)->modules.lock, HDI_RANK_MODULES);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_init(&hdi_kernel_of(rt)->modules.loading[i], HDI_RANK_LOADING);
    }
}

static struct hd_module *modules_take(hd_runtime *rt)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    hdi_mutex_lock(&reg->lock);
    struct hd_module *m = reg->free_modules;
    if (m) {
        reg->free_modules = m->next;
    }
    hdi_mutex_unlock(&reg->lock);
    if (!m && (m = hdi_stable_take(rt->stable, sizeof *m))) {
        hdi_handle_set(&m->head, HDI_MODULE_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_DEAD);
        m->runtime = rt; /* this never changes, since a thread with an old handle may read it */
    }
    if (m) {
        m->next = NULL;
    }
    return m;
}

void hdi_module_give(struct hd_module *m, bool driver_usable)
{
    hd_runtime *rt = m->runtime;
    hdi_globals_forget(m);
    m->variables_asked = 0;
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
        kernel_give(rt, k);
    }
    hdi_image_release(&m->image);
    hdi_shm_release(&m->file);
    free(m->points);
    m->points = NULL;
    m->n_points = 0;
    module_set_dead(&m->head, HDI_MODULE_MAGIC);
    if (hdi_handle_head_generation(&m->head) == 0) {
        return; /* all generations are used up, so the structure is not used again */
    }
    hdi_mutex_lock(&hdi_kernel_of(rt)->modules.lock);
    m->next = hdi_kernel_of(rt)->modules.free_modules;
    hdi_kernel_of(rt)->modules.free_modules = m;
    hdi_mutex_unlock(&hdi_kernel_of(rt)->modules.lock);
}

static void modules_close(hd_runtime *rt)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
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

static void modules_release(hd_runtime *rt)
{
    hdi_modules *reg = &hdi_kernel_of(rt)->modules;
    struct hd_module *lists[] = {reg->loaded, reg->unloaded};
    for (int i = 0; i < 2; i++) {
        for (struct hd_module *m = lists[i], *next; m; m = next) {
            next = m->next;
            hdi_module_give(m, hdi_driver_is_usable(rt));
        }
    }
    params_release(reg);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        hdi_mutex_destroy(&reg->loading[i]);
    }
    hdi_mutex_destroy(&reg->lock);
}

const hdi_lifetime hdi_modules_lifetime = {.init = modules_init, .close = modules_close, .release = modules_release};

/* ---- loading ---- */

/* Opens the image and makes its code available to the ports of all devices. */
static hd_status module_open_image(struct hd_module *m, const void *image, size_t bytes)
{
    hd_runtime *rt = m->runtime;
    hd_status status =
        hdi_image_open(image, bytes, rt->provider->code == HDI_CODE_CPU, &m->image, &m->code.bytes, &m->code.size);
    m->code.descriptor = -1;
    if (!status && rt->is_process) {
        /* All workers read the code from one file, even after a restart. */
        status = hdi_shm_create("heddle-code", m->code.size, &m->file);
        if (!status) {
            memcpy(m->file.base, m->code.bytes, m->code.size);
            m->code.descriptor = m->file.descriptor;
            m->code.offset = 0;
        }
    }
    return status;
}

/* Loads on the first device that works, or on all with the option module_loading=eager. Errors: as
 * hd_module_load. */
static hd_status module_load_first(struct hd_module *m)
{
    hd_runtime *rt = m->runtime;
    hd_status status = HD_OK;
    int alive = 0;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        if (!hdi_device_lost(rt->devices[i]) && (alive == 0 || modules_everywhere(rt))) {
            status = hdi_module_load_on(m, rt->devices[i]);
            if (status == HD_ERROR_DEVICE_LOST && rt->is_process) {
                status = HD_OK; /* the device was lost just now, so try the other devices */
            } else {
                alive++;
            }
        }
    }
    return status || alive ? status : hdi_loss_fail(rt, 0, "all devices are lost");
}

static hd_status module_load_image(hd_runtime *rt, const void *image, size_t bytes, const hdi_alias *aliases,
                                   size_t n_aliases, struct hd_module **out)
{
    hdi_modules_reap(rt, true);
    struct hd_module *m = modules_take(rt);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = module_open_image(m, image, bytes);
    for (size_t i = 0; i < n_aliases && !status; i++) {
        status = hdi_image_add_alias(&m->image, aliases[i].name, aliases[i].symbol);
    }
    if (!status) {
        status = module_load_first(m);
        while (status == HD_ERROR_MEMORY && hdi_modules_reap(rt, true)) {
            status = module_load_first(m);
        }
    }
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_module_give(m, true);
        hdi_attempt_end(&attempt);
        return status;
    }
    hdi_mutex_lock(&hdi_kernel_of(rt)->modules.lock);
    hdi_handle_begin(rt, &m->head, HDI_MODULE_MAGIC);
    m->next = hdi_kernel_of(rt)->modules.loaded;
    hdi_kernel_of(rt)->modules.loaded = m;
    hdi_mutex_unlock(&hdi_kernel_of(rt)->modules.lock);
    *out = m;
    return HD_OK;
}

hd_status hdi_module_load_made(hd_runtime *rt, const void *image, size_t bytes, const hdi_alias *aliases,
                               size_t n_aliases, hd_module **out)
{
    struct hd_module *m;
    hdi_mutex_lock(&rt->refilling);
    hd_status status = module_load_image(rt, image, bytes, aliases, n_aliases, &m);
    hdi_mutex_unlock(&rt->refilling);
    if (!status) {
        *out = hdi_handle_make(m, hdi_handle_head_generation(&m->head));
    }
    return status;
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
    return hdi_module_load_made(rt, image, bytes, NULL, 0, out);
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
    hdi_mutex_lock(&rt->refilling);
    hdi_mutex_lock(&rt->cold);
    struct hd_module **place = &hdi_kernel_of(rt)->modules.builtin[which];
    if (!*place) {
        status =
            module_load_image(rt, images[which].at, (size_t)(images[which].end - images[which].at), NULL, 0, place);
        if (!status) {
            (*place)->is_builtin = true;
        }
    }
    struct hd_module *m = *place;
    hdi_mutex_unlock(&rt->cold);
    hdi_mutex_unlock(&rt->refilling);
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
