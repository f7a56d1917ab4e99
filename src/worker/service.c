/* service.c - a worker process: attaches to its device, runs the engine on a thread, and serves
 * requests until it is no longer wanted.
 *
 * Threads: the calling thread serves memory requests, a second thread serves code requests, and a
 * third thread runs the engine. All end with the process.
 * Locks: pinnings_lock guards the list of mappings made for PIN, for some instructions.
 * Blocking: until the sockets are closed.
 * Always:
 * - The process ends at once when its sockets close. The process gives nothing back itself: the
 *   system gives everything back, whatever state the driver is in.
 * - A request is trusted only as far as hdi_message_check checks it. Numbers are compared with the
 *   sizes of the tables that they index. Files are compared with the range to map. Only mappings
 *   made here are unmapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "engine/engine.h"
#include "engine/providers.h"
#include "process/wire.h"
#include "worker/message.h"
#include "worker/remote.h"
#include "worker/workers.h"

_Static_assert(HDI_MESSAGE_DEVICES == HDI_DEVICES_MAX, "a HELLO names every device of a runtime");

/* The application sends requests one by one, so a reply finds room at once. An application that
 * takes no reply for this long breaks that rule, and is served no more. */
#define REPLY_LIMIT_NS ((int64_t)10 * 1000000000)
#define KERNELS_MAX ((uint32_t)HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS)

typedef struct serving {
    hdi_port *local;
    const hdi_message_payload *in;
    hdi_message_payload *out; /* zeros */
    int descriptor;           /* from the request; -1: none */
    int give;                 /* a descriptor to send with the reply and then close; -1: none */
} serving;

/* A file mapped for PIN. */
typedef struct pinning {
    struct pinning *next;
    const hdi_port *local;
    uint64_t at, bytes;
} pinning;

static hdi_lock pinnings_lock = HDI_LOCK_INIT(PINNINGS);
static pinning *pinnings;

/* ---- common parts of requests ---- */

static hdi_answer service_answer_of(int code, const char *call)
{
    return (hdi_answer){.code = code, .call = call};
}

static hdi_answer service_senseless(void)
{
    return service_answer_of(HDCU_ERROR_INVALID_VALUE, "");
}

/* The answer for the errno of a system call. */
static hdi_answer service_system_failure(const char *call)
{
    int code = errno == ENOMEM   ? HDCU_ERROR_OUT_OF_MEMORY
               : errno == EEXIST ? HDCU_ERROR_ALREADY_MAPPED
                                 : HDCU_ERROR_OPERATING_SYSTEM;
    return service_answer_of(code, call);
}

/* True if [offset, offset + bytes) is inside a file. */
static bool service_file_holds(int file, uint64_t offset, uint64_t bytes)
{
    struct stat facts;
    if (fstat(file, &facts) != 0 || facts.st_size < 0) {
        return false;
    }
    uint64_t size = (uint64_t)facts.st_size;
    return bytes != 0 && offset <= size && bytes <= size - offset;
}

static bool service_is_whole_pages(hdi_message_range range)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return range.at != 0 && range.bytes != 0 && range.at % page == 0 && range.bytes % page == 0 &&
           range.bytes <= UINT64_MAX - range.at;
}

/* ---- facts, lanes, memory ---- */

static hdi_answer service_facts(serving *s)
{
    return s->local->calls->facts(s->local, &s->out->facts);
}

static hdi_answer service_memory_free(serving *s)
{
    return s->local->calls->memory_free(s->local, &s->out->value.value);
}

static hdi_answer service_lane(serving *s)
{
    if (s->in->lane.number >= HDI_LANES_MAX) {
        return service_senseless();
    }
    return s->local->calls->lane(s->local, s->in->lane.number, s->in->lane.sticky_failure != 0);
}

static hdi_answer service_reserve(serving *s)
{
    return s->local->calls->reserve(s->local, s->in->reserve.wanted, s->in->reserve.bytes, &s->out->value.value);
}

static hdi_answer service_unreserve(serving *s)
{
    return s->local->calls->unreserve(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer service_map(serving *s)
{
    return s->local->calls->map(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer service_map_each(serving *s)
{
    const hdi_message_mappings *m = &s->in->mappings;
    return s->local->calls->map_each(s->local, m->at, m->bytes, m->each);
}

static hdi_answer service_move(serving *s)
{
    const hdi_message_mappings *m = &s->in->mappings;
    return s->local->calls->move(s->local, m->at, m->to, m->bytes);
}

static hdi_answer service_map_piece(serving *s)
{
    return s->local->calls->map_piece(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer service_unmap(serving *s)
{
    return s->local->calls->unmap(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer service_export(serving *s)
{
    return s->local->calls->export(s->local, s->in->range.at, s->in->range.bytes, &s->give);
}

static hdi_answer service_import(serving *s)
{
    return s->local->calls->import(s->local, s->descriptor, s->in->range.at, s->in->range.bytes);
}

/* ---- pinned memory ---- */

static void service_keep_pinning(pinning *p)
{
    hdi_lock_take(&pinnings_lock);
    p->next = pinnings;
    pinnings = p;
    hdi_lock_release(&pinnings_lock);
}

/* Takes the pinning of exactly this range out of the list; NULL: none. */
static pinning *service_take_pinning(const hdi_port *local, hdi_message_range range)
{
    pinning *found = NULL;
    hdi_lock_take(&pinnings_lock);
    for (pinning **p = &pinnings; *p != NULL; p = &(*p)->next) {
        if ((*p)->local == local && (*p)->at == range.at && (*p)->bytes == range.bytes) {
            found = *p;
            *p = found->next;
            break;
        }
    }
    hdi_lock_release(&pinnings_lock);
    return found;
}

/* Maps the file's first bytes at exactly that address, if nothing is mapped there. */
static void *service_map_file(hdi_message_range range, int file)
{
    void *wanted = (void *)(uintptr_t)range.at;
    void *base = mmap(wanted, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    if (base != MAP_FAILED && base != wanted) { /* kernels before 4.17 may choose another address */
        munmap(base, range.bytes);
        errno = EEXIST;
        return MAP_FAILED;
    }
    return base;
}

static hdi_answer service_pin(serving *s)
{
    hdi_message_range range = s->in->range;
    if (!service_is_whole_pages(range) || !service_file_holds(s->descriptor, 0, range.bytes)) {
        return service_senseless();
    }
    pinning *p = malloc(sizeof *p);
    if (p == NULL) {
        return service_answer_of(HDCU_ERROR_OUT_OF_MEMORY, "malloc");
    }
    *p = (pinning){.local = s->local, .at = range.at, .bytes = range.bytes};
    void *base = service_map_file(range, s->descriptor);
    if (base == MAP_FAILED) {
        hdi_answer failure = service_system_failure("mmap");
        free(p);
        return failure;
    }
    hdi_answer answer = s->local->calls->pin(s->local, base, range.bytes, s->descriptor, &s->out->value.value);
    if (!hdi_answered(answer)) {
        /* If the driver may still hold the memory, nothing else may be mapped there. */
        int code = s->local->calls->unpin(s->local, base, range.bytes).code;
        if (code != HDCU_SUCCESS && code != HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED) {
            service_keep_pinning(p);
            return answer;
        }
        munmap(base, range.bytes);
        free(p);
        return answer;
    }
    service_keep_pinning(p);
    return answer;
}

static hdi_answer service_unpin(serving *s)
{
    pinning *p = service_take_pinning(s->local, s->in->range);
    if (p == NULL) {
        return service_answer_of(HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister");
    }
    void *base = (void *)(uintptr_t)p->at;
    hdi_answer answer = s->local->calls->unpin(s->local, base, p->bytes);
    if (!hdi_answered(answer)) {
        service_keep_pinning(p);
        return answer;
    }
    munmap(base, p->bytes);
    free(p);
    return answer;
}

/* ---- code ---- */

static hdi_answer service_load(serving *s)
{
    uint64_t offset = s->in->load.offset, size = s->in->load.size;
    int seals = fcntl(s->descriptor, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || !service_file_holds(s->descriptor, offset, size)) {
        return service_senseless(); /* reading the file could fault */
    }
    uint64_t before = offset % (uint64_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, before + size, PROT_READ, MAP_SHARED, s->descriptor, (off_t)(offset - before));
    if (base == MAP_FAILED) {
        return service_system_failure("mmap");
    }
    hdi_code code = {.bytes = base + before, .size = size, .descriptor = -1};
    hdi_answer answer = s->local->calls->load(s->local, &code, &s->out->loaded.module, s->out->loaded.log);
    munmap(base, before + size);
    return answer;
}

static hdi_answer service_unload(serving *s)
{
    return s->local->calls->unload(s->local, s->in->value.value);
}

static hdi_answer service_kernel(serving *s)
{
    const hdi_message_kernel *k = &s->in->kernel;
    if (k->number >= KERNELS_MAX) {
        return service_senseless();
    }
    return s->local->calls->kernel(s->local, k->module, k->name, k->number, k->params != 0, &s->out->kernel_facts);
}

static hdi_answer service_kernel_shared(serving *s)
{
    const hdi_message_kernel_shared *k = &s->in->kernel_shared;
    if (k->number >= KERNELS_MAX) {
        return service_senseless();
    }
    return s->local->calls->kernel_shared(s->local, k->number, k->bytes);
}

static hdi_answer service_global(serving *s)
{
    const hdi_message_global *g = &s->in->global;
    return s->local->calls->global(s->local, g->module, g->name, &s->out->global_place);
}

static hdi_answer service_open_blas(serving *s)
{
    const hdi_message_blas *b = &s->in->blas;
    if (b->lane >= HDI_LANES_MAX) {
        return service_senseless();
    }
    return s->local->calls->blas(s->local, b->lane, b->workspace, b->bytes, &s->out->blas_facts);
}

static hdi_answer service_activities(serving *s)
{
    return s->local->calls->activities(s->local, s->in->activities.on != 0, &s->out->activities_facts);
}

/* ---- the loop ---- */

typedef hdi_answer served(serving *s);

static served *const serves[HDI_MESSAGE_KINDS] = {
    [HDI_MESSAGE_FACTS] = service_facts,
    [HDI_MESSAGE_MEMORY_FREE] = service_memory_free,
    [HDI_MESSAGE_LANE] = service_lane,
    [HDI_MESSAGE_RESERVE] = service_reserve,
    [HDI_MESSAGE_UNRESERVE] = service_unreserve,
    [HDI_MESSAGE_MAP] = service_map,
    [HDI_MESSAGE_MAP_PIECE] = service_map_piece,
    [HDI_MESSAGE_MAP_EACH] = service_map_each,
    [HDI_MESSAGE_MOVE] = service_move,
    [HDI_MESSAGE_UNMAP] = service_unmap,
    [HDI_MESSAGE_EXPORT] = service_export,
    [HDI_MESSAGE_IMPORT] = service_import,
    [HDI_MESSAGE_PIN] = service_pin,
    [HDI_MESSAGE_UNPIN] = service_unpin,
    [HDI_MESSAGE_LOAD] = service_load,
    [HDI_MESSAGE_UNLOAD] = service_unload,
    [HDI_MESSAGE_KERNEL] = service_kernel,
    [HDI_MESSAGE_KERNEL_SHARED] = service_kernel_shared,
    [HDI_MESSAGE_BLAS] = service_open_blas,
    [HDI_MESSAGE_GLOBAL] = service_global,
    [HDI_MESSAGE_ACTIVITIES] = service_activities,
};

/* Performs a received request, and makes its reply. */
static hdi_answer service_perform(serving *s, const hdi_message *request, hdi_message_state state)
{
    uint32_t kind = request->header.kind;
    if (state != HDI_MESSAGE_GOOD || kind >= HDI_MESSAGE_KINDS || serves[kind] == NULL) {
        return service_senseless();
    }
    return serves[kind](s);
}

int hdi_serve(int socket, hdi_port *local)
{
    hdi_message request, reply;
    int descriptors[HDI_WIRE_DESCRIPTORS];
    for (;;) {
        size_t bytes;
        int n_descriptors;
        hdi_wire_result result = hdi_wire_receive(socket, &request, sizeof request, &bytes, descriptors,
                                                  HDI_WIRE_DESCRIPTORS, &n_descriptors, INT64_MAX);
        if (result != HDI_WIRE_OK) {
            return result == HDI_WIRE_CLOSED ? 0 : -1;
        }
        hdi_message_state state = hdi_message_check(&request, bytes, n_descriptors);
        if (state == HDI_MESSAGE_FOREIGN) {
            hdi_wire_close(descriptors, n_descriptors);
            return -1;
        }
        uint32_t kind = request.header.kind | HDI_MESSAGE_REPLY;
        hdi_message_begin(&reply, kind, request.header.serial);
        serving s = {.local = local,
                     .in = &request.payload,
                     .out = &reply.payload,
                     .descriptor = n_descriptors > 0 ? descriptors[0] : -1,
                     .give = -1};
        hdi_message_answer(&reply, service_perform(&s, &request, state));
        hdi_wire_close(descriptors, n_descriptors);
        size_t reply_bytes = hdi_message_bytes(kind);
        result = hdi_wire_send(socket, &reply, reply_bytes != 0 ? reply_bytes : sizeof reply.header, &s.give,
                               s.give >= 0 ? 1 : 0, hdi_deadline(REPLY_LIMIT_NS));
        hdi_wire_close(&s.give, 1);
        if (result != HDI_WIRE_OK) {
            return result == HDI_WIRE_CLOSED ? 0 : -1;
        }
    }
}

/* ---- the start ---- */

typedef struct service {
    int memory_socket, code_socket;
    hd_runtime *rt; /* as much of a runtime as an engine needs */
    int index;
    hdi_message message; /* the message that is received or sent */
    int descriptors[HDI_DEVICES_MAX];
    int n_descriptors;
} service;

/* Called when the driver ended all work. Ends this process; then the application declares the
 * device lost. */
static void service_end_process(hdi_device *device, int code)
{
    device->runtime->provider->reason(device->ordinal, code, device->channel.engine->reason);
    /* pairs with the acquire load of the thread that sees the process gone */
    atomic_store_explicit(&device->channel.engine->lost_by, code, memory_order_release);
    _exit(HDI_WORKER_EXIT_LOST);
}

static hd_runtime *service_make_runtime(const char *settings)
{
    hd_runtime *rt = aligned_alloc(HDI_LINE, (sizeof *rt + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!rt) {
        hdi_fail(HD_ERROR_HOST_MEMORY, "no memory in a worker process");
        return NULL;
    }
    *rt = (hd_runtime){.is_process = true, .end_process = service_end_process};
    if (hdi_options_parse_settings(settings, &rt->options)) {
        free(rt);
        return NULL;
    }
    hdi_mutex_init(&rt->cold, HDI_RANK_COLD);
    rt->spin_ns = hdi_spin_ns(rt->options.spin_us);
    return rt;
}

static hd_status service_last_status(void)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return error.status ? error.status : HD_ERROR_SYSTEM;
}

/* Opens the driver, once. */
static hd_status service_open_driver(service *s, const char *settings)
{
    if (s->rt) {
        return HD_OK;
    }
    s->rt = service_make_runtime(settings);
    if (!s->rt) {
        return service_last_status();
    }
    hd_status status = hdi_providers_open_driver(&s->rt->options, &s->rt->driver);
    if (!status) {
        s->rt->provider = s->rt->driver->provider;
        s->rt->driver_version = s->rt->driver->version;
    }
    return status;
}

static hd_status service_discover(service *s, hdi_message_welcome *w)
{
    if (s->message.payload.discover.protocol != HDI_MESSAGE_PROTOCOL) {
        return hdi_fail(HD_ERROR_SYSTEM, "the worker program speaks protocol %u, the library %u", HDI_MESSAGE_PROTOCOL,
                        s->message.payload.discover.protocol);
    }
    hd_status status = service_open_driver(s, s->message.payload.discover.settings);
    int count = 0;
    if (!status) {
        hdcu_result r = s->rt->driver->cuDeviceGetCount(&count);
        if (r != HDCU_SUCCESS) {
            status = hdi_fail_driver(HD_ERROR_DRIVER, r, "cuDeviceGetCount", -1, "the driver failed: %s",
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

/* Makes one device of the application's runtime: this worker's own, or a peer, with its channel
 * only. */
static hd_status service_make_device(service *s, int index)
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

static hd_status service_take_hold(service *s, hdi_message_welcome *w)
{
    const hdi_message_hello *h = &s->message.payload.hello;
    if (h->protocol != HDI_MESSAGE_PROTOCOL || strcmp(h->version, hd_version()) != 0) {
        return hdi_fail(HD_ERROR_SYSTEM, "the worker program is of version %s, the library of %s", hd_version(),
                        h->version);
    }
    hd_status status = service_open_driver(s, h->settings);
    if (status) {
        return status;
    }
    hd_runtime *rt = s->rt;
    s->index = (int)h->index;
    rt->n_devices = (int)h->n_devices;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = service_make_device(s, i);
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

/* Handles one message of the start. True: the message was a HELLO, and the answer was success.
 * False: continue, or end if *over: a HELLO that failed is the last one. */
static bool service_begin(service *s, bool *over)
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
    hd_status status = kind == HDI_MESSAGE_DISCOVER ? service_discover(s, &welcome) : service_take_hold(s, &welcome);
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
    /* a set-up that failed half-way is not repeated */
    *over |= status && kind == HDI_MESSAGE_HELLO;
    return done;
}

/* Writes what kernels printed. The driver writes this output when a call waits for the context, but
 * not at the end of the process. If work is unfinished, this function does not wait for it. */
static void service_flush_output(service *s)
{
    hdi_device *device = s->rt->devices[s->index];
    hdi_scope scope;
    if (!hdi_engine_is_busy(device) && hdi_scope_enter(device, &scope) == HD_OK) {
        s->rt->driver->cuCtxSynchronize();
        hdi_scope_leave(&scope);
    }
}

static void *service_run_code(void *argument)
{
    service *s = argument;
    hdi_serve(s->code_socket, s->rt->devices[s->index]->port);
    service_flush_output(s);
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
    while (!service_begin(s, &over)) {
        if (over) {
            return 0;
        }
    }
    pthread_t code;
    if (hdi_thread_create(&code, NULL, service_run_code, s)) {
        return 1;
    }
    int status = hdi_serve(memory_socket, s->rt->devices[s->index]->port);
    service_flush_output(s);
    return status;
}
