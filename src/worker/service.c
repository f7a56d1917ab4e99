/* service.c - a worker process: takes hold of its device, runs the engine on a thread, and serves requests until it is not wanted.
 *
 * Threads: the calling one serves memory requests, one more serves code requests, one more is the engine; all end with the process.
 * Locks: none. Always: the process ends at once when its sockets close. It gives nothing back by itself. The system
 * does that, whatever state the driver is in.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "engine/engine.h"
#include "engine/providers.h"
#include "worker/message.h"
#include "worker/serve.h"
#include "process/wire.h"
#include "worker/workers.h"

typedef struct service {
    int memory_socket, code_socket;
    hd_runtime *rt; /* as much of one as an engine needs */
    int index;
    hdi_message message; /* the one that is being talked about */
    int descriptors[HDI_DEVICES_MAX];
    int n_descriptors;
} service;

/* The driver has ended all work. The application declares the device lost when this process is gone. */
static void end_process(hdi_device *device, int code)
{
    /* pairs with the acquire load of the thread that sees the process gone */
    atomic_store_explicit(&device->channel.engine->lost_by, code, memory_order_release);
    _exit(HDI_WORKER_EXIT_LOST);
}

static hd_runtime *make_runtime(const char *settings)
{
    hd_runtime *rt = aligned_alloc(HDI_LINE, (sizeof *rt + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!rt) {
        hdi_fail(HD_ERROR_HOST_MEMORY, "no memory in a worker process");
        return NULL;
    }
    *rt = (hd_runtime){.is_process = true, .end_process = end_process};
    if (hdi_options_parse_settings(settings, &rt->options)) {
        free(rt);
        return NULL;
    }
    hdi_mutex_init(&rt->cold, HDI_RANK_COLD);
    rt->spin_ns = hdi_spin_ns(rt->options.spin_us);
    return rt;
}

static hd_status last_status(void)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return error.status ? error.status : HD_ERROR_SYSTEM;
}

/* Opens the driver, once. */
static hd_status open_driver(service *s, const char *settings)
{
    if (s->rt) {
        return HD_OK;
    }
    s->rt = make_runtime(settings);
    if (!s->rt) {
        return last_status();
    }
    hd_status status = hdi_driver_open(&s->rt->options, &s->rt->driver);
    if (!status) {
        s->rt->provider = s->rt->driver->provider;
        s->rt->driver_version = s->rt->driver->version;
    }
    return status;
}

static hd_status discover(service *s, hdi_message_welcome *w)
{
    if (s->message.payload.discover.protocol != HDI_MESSAGE_PROTOCOL) {
        return hdi_fail(HD_ERROR_SYSTEM, "the worker program speaks protocol %u, the library %u", HDI_MESSAGE_PROTOCOL,
                        s->message.payload.discover.protocol);
    }
    hd_status status = open_driver(s, s->message.payload.discover.settings);
    int count = 0;
    if (!status) {
        hdcu_result r = s->rt->driver->cuDeviceGetCount(&count);
        if (r != HDCU_SUCCESS) {
            status = hdi_fail_driver(HD_ERROR_DRIVER, r, "cuDeviceGetCount", -1, "cuDeviceGetCount: %s",
                                     hdi_driver_code_name(r));
        }
    }
    if (!status) {
        snprintf(w->provider, sizeof w->provider, "%s", s->rt->provider->name);
        w->driver_version = s->rt->driver_version;
        w->device_count = count;
    }
    return status;
}

/* One device of the application's runtime: the own one, or a peer, of which only the channel is here. */
static hd_status make_device(service *s, int index)
{
    hd_runtime *rt = s->rt;
    const hdi_message_hello *h = &s->message.payload.hello;
    hdi_device *device = aligned_alloc(HDI_LINE, (sizeof *device + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!device) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory in a worker process");
    }
    *device = (hdi_device){.runtime = rt, .index = index, .ordinal = h->ordinals[index]};
    rt->devices[index] = device;
    int descriptor = s->descriptors[index];
    s->descriptors[index] = -1;
    return hdi_channel_map(descriptor, h->lane_slots, index != (int)h->index, &device->channel);
}

static hd_status take_hold(service *s, hdi_message_welcome *w)
{
    const hdi_message_hello *h = &s->message.payload.hello;
    if (h->protocol != HDI_MESSAGE_PROTOCOL || strcmp(h->version, hd_version()) != 0) {
        return hdi_fail(HD_ERROR_SYSTEM, "the worker program is of version %s, the library of %s", hd_version(),
                        h->version);
    }
    hd_status status = open_driver(s, h->settings);
    if (status) {
        return status;
    }
    hd_runtime *rt = s->rt;
    s->index = (int)h->index;
    rt->n_devices = (int)h->n_devices;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = make_device(s, i);
    }
    status = status ? status : hdi_attach_driver(rt, h->ordinals, rt->n_devices);
    hdi_device *device = rt->devices[s->index];
    status = status ? status : hdi_device_attach(device);
    status = status ? status : hdi_engine_create(device);
    if (!status) {
        hdi_local_port_set_engine(device->port, device->engine);
        hdi_answer answer = device->port->calls->facts(device->port, &w->facts);
        status = hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
    }
    return status;
}

/* One message of the beginning. True: a HELLO that was answered well. False: go on listening, or the end when *over: a HELLO that was not is the
 * last one. */
static bool begin(service *s, bool *over)
{
    size_t bytes = 0;
    s->n_descriptors = 0;
    hdi_wire_result result = hdi_wire_receive(s->memory_socket, &s->message, sizeof s->message, &bytes, s->descriptors,
                                              HDI_DEVICES_MAX, &s->n_descriptors, INT64_MAX);
    *over = result != HDI_WIRE_OK || hdi_message_check(&s->message, bytes, s->n_descriptors) != HDI_MESSAGE_GOOD ||
            (s->message.header.kind != HDI_MESSAGE_DISCOVER && s->message.header.kind != HDI_MESSAGE_HELLO);
    if (*over) {
        return false;
    }
    uint32_t kind = s->message.header.kind;
    uint64_t serial = s->message.header.serial;
    hdi_message_welcome welcome;
    memset(&welcome, 0, sizeof welcome);
    hd_status status = kind == HDI_MESSAGE_DISCOVER ? discover(s, &welcome) : take_hold(s, &welcome);
    hdi_answer answer = {0, ""};
    hd_error error = {.size = sizeof error};
    welcome.status = status;
    if (status) {
        hd_last_error(&error);
        snprintf(welcome.text, sizeof welcome.text, "%s", error.message);
        answer = (hdi_answer){error.driver_code, error.operation};
    }
    hdi_message_begin(&s->message, kind | HDI_MESSAGE_REPLY, serial);
    hdi_message_answer(&s->message, answer);
    s->message.payload.welcome = welcome;
    *over = hdi_wire_send(s->memory_socket, &s->message, hdi_message_bytes(s->message.header.kind), NULL, 0,
                          INT64_MAX) != HDI_WIRE_OK;
    bool done = !*over && !status && kind == HDI_MESSAGE_HELLO;
    *over |= status && kind == HDI_MESSAGE_HELLO; /* what half of it has made is not begun anew */
    return done;
}

static void *serve_code(void *argument)
{
    service *s = argument;
    hdi_serve(s->code_socket, s->rt->devices[s->index]->port);
    _exit(0);
}

int hdi_worker_service(int memory_socket, int code_socket)
{
    service *s = calloc(1, sizeof *s);
    if (!s) {
        return 1;
    }
    s->memory_socket = memory_socket;
    s->code_socket = code_socket;
    bool over = false;
    while (!begin(s, &over)) {
        if (over) {
            return 0;
        }
    }
    pthread_t code;
    if (hdi_thread_create(&code, NULL, serve_code, s)) {
        return 1;
    }
    return hdi_serve(memory_socket, s->rt->devices[s->index]->port);
}
