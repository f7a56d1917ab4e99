/* handshake.c - the first messages between the application and a fresh worker process, until the device's port takes over.
 *
 * Threads: hd_open and hd_device_restart, one at a time per device. Locks: the workers' mutex for states only. Blocking: up to
 * the option worker_timeout per message.
 * Always: after a failure over there the process is being killed and its sockets are closed. After one on this side the caller
 * shuts it down.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/error.h"
#include "base/wait.h"
#include "engine/providers.h"
#include "simulator/simulator.h"
#include "worker/children.h"
#include "worker/message.h"

#define MEMORY_MOST ((uint64_t)1 << 48)
#define GRANULE_LEAST 4096
#define THREADS_MOST 65536

static int64_t deadline_of(hd_runtime *rt)
{
    return hdi_option_deadline(rt->options.worker_timeout);
}

/* Waits until a process that is on its way out is gone, and returns a failure with the reason. */
static int wait_gone(hd_runtime *rt, int index)
{
    hdi_workers *workers = rt->workers;
    hdi_mutex_lock(&workers->lock);
    hdi_child *c = &workers->of[index];
    hdi_child_await_none(workers, c, deadline_of(rt));
    int code = c->code;
    hdi_mutex_unlock(&workers->lock);
    return code;
}

void hdi_worker_shut_down(hd_runtime *rt, int index)
{
    hdi_worker_kill(rt, index, 0, HDI_GONE_CLOSED);
    hdi_child_disconnect(&rt->workers->of[index]);
    wait_gone(rt, index);
}

/* The start did not work out: `result` of a send or a receive. */
static hd_status start_failed(hd_runtime *rt, int index, hdi_wire_result result)
{
    if (result != HDI_WIRE_CLOSED) {
        hdi_worker_kill(rt, index, 0, HDI_GONE_UNANSWERED);
    }
    hdi_child_disconnect(&rt->workers->of[index]);
    int code = wait_gone(rt, index);
    if (result == HDI_WIRE_CLOSED) {
        return hdi_fail(HD_ERROR_SYSTEM, "the worker program %s for device %d did not start its work: %s",
                        rt->workers->program, index, hdi_driver_code_name(code));
    }
    return hdi_fail(HD_ERROR_SYSTEM, "the worker program %s for device %d %s", rt->workers->program, index,
                    result == HDI_WIRE_TIMEOUT ? "did not answer within the option worker_timeout"
                                               : "sent something that is not of this version of Heddle");
}

static hd_status say(hd_runtime *rt, int index, hdi_message *m, const int *descriptors, int n)
{
    hdi_child *c = &rt->workers->of[index];
    size_t bytes = hdi_message_bytes(m->header.kind);
    hdi_wire_result result = hdi_wire_send(c->ours[0], m, bytes, descriptors, n, deadline_of(rt));
    return result == HDI_WIRE_OK ? HD_OK : start_failed(rt, index, result);
}

/* The reply to a PROBE or a HELLO; a failure over there becomes one here. */
static hd_status receive(hd_runtime *rt, int index, uint32_t kind, hdi_message *m)
{
    hdi_child *c = &rt->workers->of[index];
    size_t bytes = 0;
    int n = 0;
    hdi_wire_result result = hdi_wire_receive(c->ours[0], m, sizeof *m, &bytes, NULL, 0, &n, deadline_of(rt));
    if (result == HDI_WIRE_OK &&
        (hdi_message_check(m, bytes, n) != HDI_MESSAGE_GOOD || m->header.kind != (kind | HDI_MESSAGE_REPLY))) {
        result = HDI_WIRE_BROKEN;
    }
    if (result != HDI_WIRE_OK) {
        return start_failed(rt, index, result);
    }
    const hdi_message_welcome *w = &m->payload.welcome;
    if (w->status == HD_OK) {
        return HD_OK;
    }
    hdi_worker_shut_down(rt, index);
    hd_error error = hdi_error_blank((hd_status)w->status);
    error.driver_code = m->header.code;
    error.device = index;
    memcpy(error.operation, m->header.call, sizeof m->header.call);
    error.operation[sizeof m->header.call - 1] = 0;
    if (kind == HDI_MESSAGE_DISCOVER && rt->devices[index]) {
        snprintf(error.message, sizeof error.message, "the worker process of device %d: %.440s", index, w->text);
    } else {
        snprintf(error.message, sizeof error.message, "%s", w->text);
    }
    return hdi_fail_error(&error);
}

static hd_status settings_of(hd_runtime *rt, const char *provider, char *out, size_t bytes)
{
    if (!hdi_options_format(&rt->options, out, bytes)) {
        return hdi_fail(HD_ERROR_OPTION, "placement=process: the options are too long, or one holds quotes");
    }
    size_t used = strlen(out);
    int n = snprintf(out + used, bytes - used, "driver=%s", provider);
    return n > 0 && (size_t)n < bytes - used ? HD_OK
                                             : hdi_fail(HD_ERROR_OPTION, "placement=process: the options are too long");
}

hd_status hdi_worker_make_request(hd_runtime *rt, const char *provider, struct hdi_message **out)
{
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_message_begin(m, HDI_MESSAGE_DISCOVER, 1);
    m->payload.discover.protocol = HDI_MESSAGE_PROTOCOL;
    hd_status status = settings_of(rt, provider, m->payload.discover.settings, sizeof m->payload.discover.settings);
    if (status) {
        free(m);
        return status;
    }
    *out = m;
    return HD_OK;
}

hd_status hdi_worker_ask(hd_runtime *rt, int index)
{
    hdi_message *m = NULL;
    hd_status status = hdi_worker_make_request(rt, HDI_OPTION_TEXT(&rt->options, driver), &m);
    status = status ? status : say(rt, index, m, NULL, 0);
    rt->workers->of[index].asked = !status;
    free(m);
    return status;
}

hd_status hdi_worker_discover(hd_runtime *rt, int index, hdi_discovery *out)
{
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    rt->workers->of[index].asked = false;
    hd_status status = receive(rt, index, HDI_MESSAGE_DISCOVER, m);
    if (!status) {
        const hdi_message_welcome *w = &m->payload.welcome;
        const hdi_provider *provider = hdi_provider_named(w->provider);
        *out = (hdi_discovery){
            .provider = provider ? provider : &hdi_provider_host,
            .driver_version = w->driver_version,
            .device_count = w->device_count,
        };
    }
    free(m);
    return status;
}

hd_status hdi_worker_handshake(hd_runtime *rt, int index)
{
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_message_begin(m, HDI_MESSAGE_HELLO, 2);
    hdi_message_hello *h = &m->payload.hello;
    int descriptors[HDI_DEVICES_MAX];
    h->protocol = HDI_MESSAGE_PROTOCOL;
    h->index = (uint32_t)index;
    h->n_devices = (uint32_t)rt->n_devices;
    h->lane_slots = (uint32_t)rt->options.lane_slots;
    for (int i = 0; i < rt->n_devices; i++) {
        h->ordinals[i] = rt->devices[i]->ordinal;
        h->channel_bytes[i] = rt->devices[i]->channel.memory.bytes;
        descriptors[i] = rt->devices[i]->channel.memory.descriptor;
    }
    snprintf(h->version, sizeof h->version, "%s", hd_version());
    hd_status status = settings_of(rt, rt->provider->name, h->settings, sizeof h->settings);
    status = status ? status : say(rt, index, m, descriptors, rt->n_devices);
    free(m);
    return status;
}

static bool is_within(uint64_t value, uint64_t least, uint64_t most)
{
    return value >= least && value <= most;
}

/* What is computed with: sizes and limits that no device has would be divided by, or overflow. */
static bool facts_can_be(const hdi_facts *f)
{
    const hdi_limits *l = &f->limits;
    bool good = is_within(f->memory_bytes, 1, MEMORY_MOST) && is_within(l->threads_per_block, 1, THREADS_MOST) &&
                l->shared_default <= l->shared_max && l->shared_max <= UINT32_MAX && f->multiprocessors > 0 &&
                f->compute_major >= 0 && f->compute_minor >= 0;
    for (int i = 0; i < 3; i++) {
        good &= l->block[i] > 0 && l->grid[i] > 0;
    }
    bool granule = (f->granule & (f->granule - 1)) == 0 && is_within(f->granule, GRANULE_LEAST, MEMORY_MOST);
    return good && (granule || !f->virtual_memory);
}

hd_status hdi_worker_await(hd_runtime *rt, int index)
{
    hdi_discovery unused;
    if (rt->workers->of[index].asked) {
        hd_status status = hdi_worker_discover(rt, index, &unused);
        if (status) {
            return status;
        }
    }
    hdi_message *m = malloc(sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = receive(rt, index, HDI_MESSAGE_HELLO, m);
    if (!status && !facts_can_be(&m->payload.welcome.facts)) {
        status = start_failed(rt, index, HDI_WIRE_BROKEN);
    }
    if (!status) {
        hdi_device *device = rt->devices[index];
        hdi_child *c = &rt->workers->of[index];
        if (!device->facts.memory_bytes) {
            device->facts = m->payload.welcome.facts; /* they do not change, and are read without a lock */
        }
        hdi_mutex_lock(&rt->workers->lock);
        int memory = c->ours[0], code = c->ours[1];
        c->ours[0] = c->ours[1] = -1;
        bool alive = c->state == HDI_CHILD_FRESH;
        if (alive) {
            /* Under the mutex: should it end now, the port is disconnected after this. */
            c->connection = hdi_remote_port_connect(device->port, memory, code);
            c->state = HDI_CHILD_DRIVING;
            c->heartbeat_at = 0;
        } else {
            hdi_wire_close((int[]){memory, code}, 2);
        }
        hdi_mutex_unlock(&rt->workers->lock);
        status = alive ? HD_OK : start_failed(rt, index, HDI_WIRE_CLOSED);
    }
    free(m);
    return status;
}
