/* fuzz_handshake.c - the handshake between the application and a worker, both ways. A worker
 * answers PROBE and HELLO, and the application reads the answers. Always: neither side leaks a
 * descriptor.
 *
 * Threads: one, which plays both sides: messages wait in the socket until the other side reads
 * them.
 * An input: a byte that chooses the side. For the worker, messages follow: each a byte of bits
 * (how), two bytes for the length, and bytes of that length. For the application, one such answer
 * follows.
 */
#include "engine/providers.h"
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>
#include "engine/engine.h"
#include "simulator/simulator.h"
#include "worker/service.c" /* only its beginning; a successful end would end this process */
#include "worker/workers.c" /* only the handshake */

enum { MESSAGES_MAX = 3 };
enum { HELLO = 1, OTHER_LENGTH = 2, OTHER_KIND = 4, NO_DESCRIPTOR = 8, AS_IT_IS = 16 };

static hdi_message m;

/* Overwrites a part of the payload, from the offset in two bytes of the input. */
static void change(fuzz_input *in)
{
    size_t n, at = (size_t)fuzz_take(in, 2) % sizeof m.payload;
    const uint8_t *piece = fuzz_take_piece(in, (size_t)fuzz_take(in, 2), &n);
    memcpy((char *)&m.payload + at, piece, n < sizeof m.payload - at ? n : sizeof m.payload - at);
}

static size_t length_of(uint64_t how, fuzz_input *in)
{
    return how & OTHER_LENGTH ? 1 + fuzz_take(in, 2) % sizeof m : hdi_message_bytes(m.header.kind);
}

/* ---- to the worker ---- */

static void make_request(uint64_t how, const hdi_channel *channel)
{
    if (how & HELLO) {
        hdi_message_begin(&m, HDI_MESSAGE_HELLO, 2);
        m.payload.hello.protocol = HDI_MESSAGE_PROTOCOL;
        m.payload.hello.n_devices = 1;
        m.payload.hello.lane_slots = channel->slots;
        m.payload.hello.channel_bytes[0] = channel->memory.bytes;
        snprintf(m.payload.hello.version, sizeof m.payload.hello.version, "%s", hd_version());
    } else {
        hdi_message_begin(&m, HDI_MESSAGE_DISCOVER, 1);
        m.payload.discover.protocol = HDI_MESSAGE_PROTOCOL;
    }
    char *settings = how & HELLO ? m.payload.hello.settings : m.payload.discover.settings;
    snprintf(settings, sizeof m.payload.discover.settings, "driver=host host_devices=1 host_memory=16M ");
    if (how & OTHER_KIND) {
        m.header.kind ^= 1;
    }
}

/* Frees what a worker process leaves to the system. */
static void take_down(service *s)
{
    hd_runtime *rt = s->rt;
    for (int i = 0; rt && i < rt->n_devices; i++) {
        if (rt->devices[i] && rt->devices[i]->engine) {
            fuzz_check(hdi_engine_stop(rt->devices[i], INT64_MAX));
        }
        if (rt->devices[i]) {
            hdi_device_detach(rt->devices[i], false);
            hdi_channel_release(&rt->devices[i]->channel);
            free(rt->devices[i]);
        }
    }
    if (rt) {
        if (rt->driver) {
            hdi_providers_close_driver(rt->driver);
        }
        hdi_mutex_destroy(&rt->cold);
        hdi_options_release(&rt->options);
        free(rt);
    }
    hdi_wire_close(s->descriptors, s->n_descriptors);
}

static void check_welcomes(int socket, int sent)
{
    int n, replies = 0;
    size_t bytes;
    while (hdi_wire_receive(socket, &m, sizeof m, &bytes, NULL, 0, &n, 0) == HDI_WIRE_OK) {
        fuzz_check(hdi_message_check(&m, bytes, n) == HDI_MESSAGE_GOOD);
        fuzz_check(m.header.kind == (HDI_MESSAGE_DISCOVER | HDI_MESSAGE_REPLY) ||
                   m.header.kind == (HDI_MESSAGE_HELLO | HDI_MESSAGE_REPLY));
        const hdi_message_welcome *w = &m.payload.welcome;
        fuzz_check(fuzz_is_text(w->text, sizeof w->text) && (w->status == HD_OK) == (w->text[0] == 0));
        replies++;
    }
    fuzz_check(replies <= sent);
}

static void check_worker(fuzz_input *in)
{
    int ends[2], sent = 0;
    hdi_channel channel;
    fuzz_check(hdi_wire_pair(ends) == HD_OK && hdi_channel_create(64, &channel) == HD_OK);
    for (bool more = true; more && in->left > 0 && sent < MESSAGES_MAX; sent += more) {
        uint64_t how = fuzz_take(in, 1);
        make_request(how, &channel);
        if (!(how & AS_IT_IS)) {
            change(in);
        }
        int n = (how & HELLO) != 0 && !(how & NO_DESCRIPTOR);
        more = hdi_wire_send(ends[0], &m, length_of(how, in), &channel.memory.descriptor, n, 0) == HDI_WIRE_OK;
    }
    shutdown(ends[0], SHUT_WR);
    static service s;
    s = (service){.memory_socket = ends[1], .code_socket = -1};
    bool over = false;
    while (!service_begin(&s, &over) && !over) {
    }
    take_down(&s);
    close(ends[1]);
    check_welcomes(ends[0], sent);
    close(ends[0]);
    hdi_channel_release(&channel);
}

/* ---- to the application ---- */

static void note_nothing(void *context, uint64_t connection, int code)
{
    (void)context;
    (void)connection;
    (void)code;
}

/* Checks an application with the parts of a runtime that the handshake needs, whose worker already
 * answered. */
static void check_application(fuzz_input *in)
{
    int memory[2], code[2];
    uint64_t how = fuzz_take(in, 1);
    bool hello = how & HELLO;
    static hdi_workers workers;
    static hdi_device device;
    static hdi_worker_part part;
    hd_runtime *const rt = &part.below;
    memset(&workers, 0, sizeof workers);
    memset(&device, 0, sizeof device);
    memset(&part, 0, sizeof part);
    fuzz_check(hdi_wire_pair(memory) == HD_OK && hdi_wire_pair(code) == HD_OK);
    fuzz_check(hdi_options_parse_settings("worker_timeout=100", &rt->options) == HD_OK);
    hdi_mutex_init(&workers.lock, HDI_RANK_WORKERS);
    hdi_cond_init(&workers.changed);
    part.workers = &workers;
    rt->n_devices = 1;
    rt->devices[0] = &device;
    device.runtime = rt;
    device.port = hdi_remote_port_create(0, note_nothing, NULL);
    fuzz_check(device.port != NULL);
    workers.rt = rt;
    snprintf(workers.program, sizeof workers.program, "worker");
    workers.of[0] = (child){.ours = {memory[0], code[0]}, .theirs = {-1, -1}};
    uint32_t kind = hello ? HDI_MESSAGE_HELLO : HDI_MESSAGE_DISCOVER;
    hdi_message_begin(&m, (how & OTHER_KIND ? kind ^ 1 : kind) | HDI_MESSAGE_REPLY, hello ? 2 : 1);
    m.payload.welcome.device_count = 1;
    m.header.code = (int32_t)fuzz_take(in, 2);
    change(in);
    hdi_wire_send(memory[1], &m, length_of(how, in), NULL, 0, 0);
    shutdown(memory[1], SHUT_WR);

    hdi_discovery probe = {.provider = NULL};
    hd_status status = hello ? hdi_worker_await(rt, 0) : hdi_worker_discover(rt, 0, &probe);
    if (status != HD_OK) {
        const char *message = hd_message();
        fuzz_check(status < 0 && message[0] != 0 && fuzz_is_text(message, strlen(message) + 1));
    } else if (!hello) {
        fuzz_check(probe.provider == &hdi_provider_nvidia || probe.provider == &hdi_provider_host);
        fuzz_check(probe.device_count >= 0);
    }
    fuzz_check(fuzz_is_text(device.facts.name, sizeof device.facts.name));
    fuzz_check(fuzz_is_text(device.facts.bus_id, sizeof device.facts.bus_id));
    child_disconnect(&workers.of[0]);
    hdi_remote_port_disconnect(device.port);
    hdi_remote_port_destroy(device.port);
    hdi_options_release(&rt->options);
    pthread_cond_destroy(&workers.changed);
    hdi_mutex_destroy(&workers.lock);
    close(memory[1]);
    close(code[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    int before = fuzz_lowest_descriptor();
    fuzz_input in = {input, bytes};
    if (fuzz_take(&in, 1) & 1) {
        check_worker(&in);
    } else {
        check_application(&in);
    }
    fuzz_check(fuzz_lowest_descriptor() == before);
    return 0;
}
