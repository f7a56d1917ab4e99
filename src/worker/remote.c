/* remote.c - the port into a worker process. Threads, blocking and guarantees: see remote.h.
 *
 * Locks: a line's turn (a futex) is held from a request to its reply. `lock` guards the fields that
 * determine whether a connection exists, and is held for a few instructions. A thread may take
 * `lock` within a turn. Nothing waits under `lock`.
 * Always: a thread closes the sockets only while it holds both turns, and after it took them out of
 * the lines under `lock`. So a request may use its line's socket during its turn.
 * hdi_remote_port_disconnect, which takes no turn, may use the sockets under `lock`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/lock.h"
#include "base/shm.h"
#include "base/wait.h"
#include "driver/entries.h"
#include "process/wire.h"
#include "worker/message.h"
#include "worker/remote.h"

#define NS_PER_BYTE 4 /* the time limit grows with the bytes of a request, as at 250 MB/s */
#define CODE_TIMES 10 /* the limit of a request about code is this many times as long */

enum { MEMORY, CODE, LINES };

/* States of a turn. */
enum { OPEN, TAKEN, AWAITED };

typedef struct line {
    _Atomic uint32_t turn; /* futex word */
    int socket;            /* changed under the turn and `lock`; -1: none */
    int gone;              /* under `lock`: the code that ended the line; 0: the line works */
    uint64_t serial;       /* all below: under the turn */
    hdi_message message;   /* request, then reply: 16 KiB, kept off the stacks of the application */
} line;

typedef struct remote {
    hdi_port port;
    int64_t time_limit_ns;
    void (*broken)(void *context, uint64_t connection, int code);
    void *context;
    hdi_lock lock;
    bool connected;      /* this and the following: under `lock` */
    bool told;           /* `broken` was already called for this connection */
    uint64_t connection; /* number of connections so far */
    line lines[LINES];
} remote;

/* One request, and the places for its reply. */
typedef struct question {
    int line;
    uint32_t kind;
    const void *request;
    size_t request_bytes;
    uint64_t amount; /* bytes that the worker processes for the request */
    int descriptor;  /* the descriptor that is sent along; -1: none */
    void *reply;     /* gets the payload of a successful reply */
    size_t reply_bytes;
    bool reply_always; /* `reply` also gets the payload of an unsuccessful reply */
    int *received;     /* gets the descriptor of a successful reply */
} question;

/* ---- turns ---- */

static void remote_take_turn(line *l)
{
    uint32_t seen = OPEN;
    /* acquire, here and in the loop below: pairs with the release in remote_give_turn */
    if (atomic_compare_exchange_strong_explicit(&l->turn, &seen, TAKEN, memory_order_acquire, memory_order_relaxed)) {
        return;
    }
    /* The holder of the turn obeys a time limit. After this limit, the line is dead for all waiting
     * threads. */
    while (atomic_exchange_explicit(&l->turn, AWAITED, memory_order_acquire) != OPEN) {
        hdi_futex_wait(&l->turn, AWAITED, INT64_MAX);
    }
}

static void remote_give_turn(line *l)
{
    /* release: pairs with the acquires in remote_take_turn */
    if (atomic_exchange_explicit(&l->turn, OPEN, memory_order_release) == AWAITED) {
        hdi_futex_wake(&l->turn, 1);
    }
}

/* ---- connections ---- */

/* The code with which a request on the line must fail without being sent. 0: send the request.
 * Under `lock`. */
static int remote_gone_code(const remote *r, const line *l, uint64_t connection)
{
    return !r->connected || r->connection != connection ? HDI_GONE_CLOSED : l->gone;
}

/* Like remote_gone_code, for the first look at the line. The first look also determines the
 * request's connection. */
static int remote_first_look(remote *r, const line *l, uint64_t *connection)
{
    hdi_lock_take(&r->lock);
    *connection = r->connection;
    int code = remote_gone_code(r, l, r->connection);
    hdi_lock_release(&r->lock);
    return code;
}

static int remote_look_again(remote *r, const line *l, uint64_t connection)
{
    hdi_lock_take(&r->lock);
    int code = remote_gone_code(r, l, connection);
    hdi_lock_release(&r->lock);
    return code;
}

/* Ends a line that failed with `code`, unless the line or its connection ended before. Returns the
 * code for the request. *tell: the caller must call `broken`. */
static int remote_end_line(remote *r, line *l, uint64_t connection, int code, bool *tell)
{
    hdi_lock_take(&r->lock);
    int before = remote_gone_code(r, l, connection);
    if (before == 0) {
        l->gone = code;
        *tell = !r->told;
        r->told = true;
        shutdown(l->socket, SHUT_RDWR);
    }
    hdi_lock_release(&r->lock);
    return before != 0 ? before : code;
}

void hdi_remote_port_disconnect(hdi_port *port)
{
    remote *r = (remote *)port;
    hdi_lock_take(&r->lock);
    r->connected = false;
    for (int i = 0; i < LINES; i++) {
        if (r->lines[i].socket >= 0) {
            shutdown(r->lines[i].socket, SHUT_RDWR);
        }
    }
    hdi_lock_release(&r->lock);
}

uint64_t hdi_remote_port_connect(hdi_port *port, int memory_socket, int code_socket)
{
    remote *r = (remote *)port;
    int fresh[LINES] = {memory_socket, code_socket}, old[LINES];
    /* ends the requests under way, so that the turns become free soon */
    hdi_remote_port_disconnect(port);
    for (int i = 0; i < LINES; i++) {
        remote_take_turn(&r->lines[i]);
    }
    hdi_lock_take(&r->lock);
    for (int i = 0; i < LINES; i++) {
        old[i] = r->lines[i].socket;
        r->lines[i].socket = fresh[i];
        r->lines[i].gone = 0;
    }
    r->connected = true;
    r->told = false;
    uint64_t connection = ++r->connection;
    hdi_lock_release(&r->lock);
    for (int i = LINES - 1; i >= 0; i--) {
        remote_give_turn(&r->lines[i]);
    }
    hdi_wire_close(old, LINES);
    return connection;
}

/* ---- a request ---- */

static hdi_answer remote_answer_of(int code, const char *call)
{
    return (hdi_answer){.code = code, .call = call};
}

/* Sends the request in the line's message and waits for its reply there. Returns 0, or the reason
 * for a failure. */
static int remote_exchange(line *l, const question *q, int64_t deadline, int *received)
{
    hdi_message *m = &l->message;
    uint64_t serial = m->header.serial;
    hdi_wire_result result =
        hdi_wire_send(l->socket, m, hdi_message_bytes(q->kind), &q->descriptor, q->descriptor >= 0 ? 1 : 0, deadline);
    /* room for one more than any reply carries, so that a surplus descriptor is noticed */
    int descriptors[2];
    int n_descriptors = 0;
    size_t bytes = 0;
    if (result == HDI_WIRE_OK) {
        result = hdi_wire_receive(l->socket, m, sizeof *m, &bytes, descriptors, 2, &n_descriptors, deadline);
    }
    if (result != HDI_WIRE_OK) {
        return result == HDI_WIRE_CLOSED ? HDI_GONE_CLOSED : HDI_GONE_UNANSWERED;
    }
    if (hdi_message_check(m, bytes, n_descriptors) != HDI_MESSAGE_GOOD || m->header.serial != serial ||
        m->header.kind != (q->kind | HDI_MESSAGE_REPLY)) {
        hdi_wire_close(descriptors, n_descriptors);
        return HDI_GONE_UNANSWERED;
    }
    *received = n_descriptors > 0 ? descriptors[0] : -1;
    return 0;
}

/* Returns the name as a string in static memory, since callers keep answers across further
 * requests. "": the name is unknown. */
static const char *remote_static_name(const char *call)
{
    static const char *const names[] = {
#define ENTRY_NAME(name, version, need, parameters, arguments) #name,
        HDI_DRIVER_ENTRIES(ENTRY_NAME)
#undef ENTRY_NAME
            "mmap",
        "open",
        "malloc",
        "calloc",
        "realloc",
        "fcntl",
        "blasOpen",
        "cublasCreate_v2",
        "cublasGetVersion_v2",
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasSetPointerMode_v2",
        "cublasSetMathMode"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], call) == 0) {
            return names[i];
        }
    }
    return "";
}

/* Passes the reply in the line's message to the request. */
static hdi_answer remote_deliver(const line *l, const question *q, int received)
{
    const hdi_message *m = &l->message;
    if (q->reply_bytes != 0 && (m->header.code == HDCU_SUCCESS || q->reply_always)) {
        memcpy(q->reply, &m->payload, q->reply_bytes);
    }
    if (q->received != NULL && received >= 0) {
        *q->received = received;
    }
    return remote_answer_of(m->header.code, remote_static_name(m->header.call));
}

/* Sends a request and receives its reply. The caller holds the turn. */
static hdi_answer remote_request_and_reply(line *l, const question *q, int64_t deadline)
{
    hdi_message_begin(&l->message, q->kind, ++l->serial);
    if (q->request_bytes != 0) {
        memcpy(&l->message.payload, q->request, q->request_bytes);
    }
    int received = -1;
    int gone = remote_exchange(l, q, deadline, &received);
    return gone != 0 ? remote_answer_of(gone, "") : remote_deliver(l, q, received);
}

/* The deadline of a request. Pinning or mapping many bytes takes time. Loading code compiles it, or
 * waits for running kernels. */
static int64_t remote_deadline_of(const remote *r, const question *q)
{
    if (r->time_limit_ns < 0) {
        return INT64_MAX;
    }
    uint64_t amount_ns = q->amount < INT64_MAX / NS_PER_BYTE / 2 ? q->amount * NS_PER_BYTE : INT64_MAX / 2;
    return hdi_deadline((q->line == CODE ? CODE_TIMES : 1) * r->time_limit_ns + (int64_t)amount_ns);
}

/* Makes a request during the turn. `connection` may have ended while the thread waited for the
 * turn. */
static hdi_answer remote_ask_in_turn(remote *r, line *l, uint64_t connection, const question *q, bool *tell)
{
    hdi_answer answer = remote_answer_of(remote_look_again(r, l, connection), "");
    if (answer.code == 0) {
        answer = remote_request_and_reply(l, q, remote_deadline_of(r, q));
        if (answer.code < 0) {
            answer.code = remote_end_line(r, l, connection, answer.code, tell);
        }
    }
    return answer;
}

static hdi_answer remote_ask(hdi_port *port, const question *q)
{
    remote *r = (remote *)port;
    line *l = &r->lines[q->line];
    uint64_t connection;
    hdi_answer answer = remote_answer_of(remote_first_look(r, l, &connection), "");
    if (answer.code != 0) {
        return answer;
    }
    bool tell = false;
    remote_take_turn(l);
    answer = remote_ask_in_turn(r, l, connection, q, &tell);
    remote_give_turn(l);
    /* After a fatal code the driver does no more work for the worker process, whichever call
     * notices it first. */
    bool fatal = answer.code > 0 && hdi_driver_code_is_fatal(answer.code);
    if ((tell || fatal) && r->broken != NULL) {
        r->broken(r->context, connection, answer.code);
    }
    return answer;
}

/* ---- the calls ---- */

/* The answer that the driver would give a local port for bad arguments. */
static hdi_answer remote_refused(const char *call)
{
    return remote_answer_of(HDCU_ERROR_INVALID_VALUE, call);
}

/* A descriptor that cannot be sent is a mistake of the caller, not of the worker. */
static bool remote_can_be_sent(int descriptor)
{
    return descriptor >= 0 && fcntl(descriptor, F_GETFD) >= 0;
}

static hdi_answer remote_ask_facts(hdi_port *port, hdi_facts *out)
{
    return remote_ask(
        port, &(question){.kind = HDI_MESSAGE_FACTS, .descriptor = -1, .reply = out, .reply_bytes = sizeof *out});
}

/* A request whose reply is one number, or nothing (out is NULL). */
static hdi_answer remote_ask_number(hdi_port *port, int to, uint32_t kind, const void *request, size_t bytes,
                                    int descriptor, uint64_t *out)
{
    return remote_ask(port, &(question){.line = to,
                                        .kind = kind,
                                        .request = request,
                                        .request_bytes = bytes,
                                        .descriptor = descriptor,
                                        .reply = out,
                                        .reply_bytes = out != NULL ? sizeof *out : 0});
}

static hdi_answer remote_ask_range(hdi_port *port, uint32_t kind, uint64_t at, uint64_t bytes, int descriptor,
                                   uint64_t *out)
{
    hdi_message_range request = {.at = at, .bytes = bytes};
    return remote_ask(port, &(question){.line = MEMORY,
                                        .kind = kind,
                                        .request = &request,
                                        .request_bytes = sizeof request,
                                        .amount = bytes,
                                        .descriptor = descriptor,
                                        .reply = out,
                                        .reply_bytes = out != NULL ? sizeof *out : 0});
}

static hdi_answer remote_ask_memory_free(hdi_port *port, uint64_t *out)
{
    return remote_ask_number(port, MEMORY, HDI_MESSAGE_MEMORY_FREE, NULL, 0, -1, out);
}

static hdi_answer remote_ask_lane(hdi_port *port, uint32_t number, bool sticky_failure)
{
    hdi_message_lane request = {.number = number, .sticky_failure = sticky_failure};
    return remote_ask_number(port, MEMORY, HDI_MESSAGE_LANE, &request, sizeof request, -1, NULL);
}

static hdi_answer remote_ask_reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    hdi_message_reserve request = {.wanted = wanted, .bytes = bytes};
    return remote_ask_number(port, MEMORY, HDI_MESSAGE_RESERVE, &request, sizeof request, -1, out);
}

static hdi_answer remote_ask_unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return remote_ask_range(port, HDI_MESSAGE_UNRESERVE, at, bytes, -1, NULL);
}

static hdi_answer remote_ask_map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return remote_ask_range(port, HDI_MESSAGE_MAP, at, bytes, -1, NULL);
}

static hdi_answer remote_ask_mappings(hdi_port *port, uint32_t kind, const hdi_message_mappings *request)
{
    return remote_ask(port, &(question){.line = MEMORY,
                                        .kind = kind,
                                        .request = request,
                                        .request_bytes = sizeof *request,
                                        .amount = request->bytes,
                                        .descriptor = -1});
}

static hdi_answer remote_ask_map_each(hdi_port *port, uint64_t at, uint64_t bytes, uint64_t each)
{
    return remote_ask_mappings(port, HDI_MESSAGE_MAP_EACH,
                               &(hdi_message_mappings){.at = at, .bytes = bytes, .each = each});
}

static hdi_answer remote_ask_move(hdi_port *port, uint64_t from, uint64_t to, uint64_t bytes)
{
    return remote_ask_mappings(port, HDI_MESSAGE_MOVE, &(hdi_message_mappings){.at = from, .bytes = bytes, .to = to});
}

static hdi_answer remote_ask_map_piece(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return remote_ask_range(port, HDI_MESSAGE_MAP_PIECE, at, bytes, -1, NULL);
}

static hdi_answer remote_ask_unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return remote_ask_range(port, HDI_MESSAGE_UNMAP, at, bytes, -1, NULL);
}

/* No grant exists here: devices in different processes use export and import. */
static hdi_answer remote_refuse_grant(hdi_port *owner, int peer, uint64_t at, uint64_t bytes)
{
    (void)owner;
    (void)peer;
    (void)at;
    (void)bytes;
    return remote_answer_of(HDCU_ERROR_NOT_SUPPORTED, "");
}

static hdi_answer remote_ask_export(hdi_port *owner, uint64_t at, uint64_t bytes, int *descriptor)
{
    /* If this process is out of descriptors, it could not take the reply, and the device would be
     * lost. So this function first makes sure that a descriptor is free. */
    int spare = hdi_descriptor_open("/dev/null", O_RDONLY, 0);
    if (spare < 0 && (errno == EMFILE || errno == ENFILE)) {
        return remote_answer_of(HDCU_ERROR_OPERATING_SYSTEM, "open");
    }
    hdi_wire_close(&spare, 1);
    hdi_message_range request = {.at = at, .bytes = bytes};
    return remote_ask(owner, &(question){.line = MEMORY,
                                         .kind = HDI_MESSAGE_EXPORT,
                                         .request = &request,
                                         .request_bytes = sizeof request,
                                         .descriptor = -1,
                                         .received = descriptor});
}

static hdi_answer remote_ask_import(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes)
{
    return remote_can_be_sent(descriptor) ? remote_ask_range(port, HDI_MESSAGE_IMPORT, at, bytes, descriptor, NULL)
                                          : remote_refused("cuMemImportFromShareableHandle");
}

/* Only local ports export by fabric handles. A worker exports its memory as a descriptor. */
static hdi_answer remote_refuse_export_fabric(hdi_port *owner, uint64_t at, uint64_t bytes,
                                              unsigned char out[HDI_FABRIC_BYTES])
{
    (void)owner;
    (void)at;
    (void)bytes;
    (void)out;
    return remote_answer_of(HDCU_ERROR_NOT_SUPPORTED, "");
}

static hdi_answer remote_refuse_import_fabric(hdi_port *port, const unsigned char handle[HDI_FABRIC_BYTES], uint64_t at,
                                              uint64_t bytes)
{
    (void)port;
    (void)handle;
    (void)at;
    (void)bytes;
    return remote_answer_of(HDCU_ERROR_NOT_SUPPORTED, "");
}

static hdi_answer remote_ask_pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    return remote_can_be_sent(descriptor)
               ? remote_ask_range(port, HDI_MESSAGE_PIN, (uint64_t)(uintptr_t)base, bytes, descriptor, address)
               : remote_refused("cuMemHostRegister");
}

static hdi_answer remote_ask_unpin(hdi_port *port, void *base, uint64_t bytes)
{
    return remote_ask_range(port, HDI_MESSAGE_UNPIN, (uint64_t)(uintptr_t)base, bytes, -1, NULL);
}

static hdi_answer remote_ask_load_file(hdi_port *port, int descriptor, uint64_t offset, size_t size, uint64_t *out,
                                       char *log)
{
    hdi_message_load request = {.offset = offset, .size = size};
    hdi_message_loaded reply = {0};
    hdi_answer answer = remote_ask(port, &(question){.line = CODE,
                                                     .kind = HDI_MESSAGE_LOAD,
                                                     .request = &request,
                                                     .request_bytes = sizeof request,
                                                     .descriptor = descriptor,
                                                     .reply = &reply,
                                                     .reply_bytes = sizeof reply,
                                                     .reply_always = true});
    memcpy(log, reply.log, HDI_CODE_LOG_BYTES);
    if (hdi_answered(answer)) {
        *out = reply.module;
    }
    return answer;
}

static hdi_answer remote_ask_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    log[0] = '\0';
    if (code->size == 0 || (code->descriptor >= 0 && !remote_can_be_sent(code->descriptor))) {
        return remote_refused("cuModuleLoadDataEx");
    }
    if (code->descriptor >= 0) {
        return remote_ask_load_file(port, code->descriptor, code->offset, code->size, out, log);
    }
    hdi_shm copy;
    hd_status status = hdi_shm_create("heddle-code", code->size, &copy);
    if (status != HD_OK) {
        return remote_answer_of(status == HD_ERROR_HOST_MEMORY ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_OPERATING_SYSTEM,
                                "memfd_create");
    }
    memcpy(copy.base, code->bytes, code->size);
    hdi_answer answer = remote_ask_load_file(port, copy.descriptor, 0, code->size, out, log);
    hdi_shm_release(&copy);
    return answer;
}

static hdi_answer remote_ask_unload(hdi_port *port, uint64_t module)
{
    hdi_message_value request = {.value = module};
    return remote_ask_number(port, CODE, HDI_MESSAGE_UNLOAD, &request, sizeof request, -1, NULL);
}

static hdi_answer remote_ask_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number, bool params,
                                    hdi_kernel_facts *out)
{
    hdi_message_kernel request = {.module = module, .number = number, .params = params};
    size_t length = strnlen(name, sizeof request.name);
    if (length == sizeof request.name) {
        return remote_refused("cuModuleGetFunction");
    }
    memcpy(request.name, name, length);
    return remote_ask(port, &(question){.line = CODE,
                                        .kind = HDI_MESSAGE_KERNEL,
                                        .request = &request,
                                        .request_bytes = sizeof request,
                                        .descriptor = -1,
                                        .reply = out,
                                        .reply_bytes = sizeof *out});
}

static hdi_answer remote_ask_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes)
{
    hdi_message_kernel_shared request = {.number = number, .bytes = bytes};
    return remote_ask_number(port, CODE, HDI_MESSAGE_KERNEL_SHARED, &request, sizeof request, -1, NULL);
}

static hdi_answer remote_ask_global(hdi_port *port, uint64_t module, const char *name, hdi_global_place *out)
{
    hdi_message_global request = {.module = module};
    size_t length = strnlen(name, sizeof request.name);
    if (length == sizeof request.name) {
        return remote_refused("cuModuleGetGlobal");
    }
    memcpy(request.name, name, length);
    return remote_ask(port, &(question){.line = CODE,
                                        .kind = HDI_MESSAGE_GLOBAL,
                                        .request = &request,
                                        .request_bytes = sizeof request,
                                        .descriptor = -1,
                                        .reply = out,
                                        .reply_bytes = sizeof *out});
}

static hdi_answer remote_ask_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes,
                                  hdi_blas_facts *out)
{
    hdi_message_blas request = {.lane = number, .workspace = workspace, .bytes = bytes};
    return remote_ask(port, &(question){.line = CODE,
                                        .kind = HDI_MESSAGE_BLAS,
                                        .request = &request,
                                        .request_bytes = sizeof request,
                                        .descriptor = -1,
                                        .reply = out,
                                        .reply_bytes = sizeof *out});
}

static hdi_answer remote_ask_activities(hdi_port *port, bool on, hdi_activities_facts *out)
{
    hdi_message_activities request = {.on = on};
    return remote_ask(port, &(question){.line = CODE,
                                        .kind = HDI_MESSAGE_ACTIVITIES,
                                        .request = &request,
                                        .request_bytes = sizeof request,
                                        .descriptor = -1,
                                        .reply = out,
                                        .reply_bytes = sizeof *out});
}

static const hdi_port_calls calls = {
    .facts = remote_ask_facts,
    .memory_free = remote_ask_memory_free,
    .lane = remote_ask_lane,
    .reserve = remote_ask_reserve,
    .unreserve = remote_ask_unreserve,
    .map = remote_ask_map,
    .map_each = remote_ask_map_each,
    .move = remote_ask_move,
    .map_piece = remote_ask_map_piece,
    .unmap = remote_ask_unmap,
    .grant = remote_refuse_grant,
    .export = remote_ask_export,
    .import = remote_ask_import,
    .export_fabric = remote_refuse_export_fabric,
    .import_fabric = remote_refuse_import_fabric,
    .pin = remote_ask_pin,
    .unpin = remote_ask_unpin,
    .load = remote_ask_load,
    .unload = remote_ask_unload,
    .kernel = remote_ask_kernel,
    .kernel_shared = remote_ask_kernel_shared,
    .global = remote_ask_global,
    .blas = remote_ask_blas,
    .activities = remote_ask_activities,
};

hdi_port *hdi_remote_port_create(int64_t time_limit_ns, void (*broken)(void *context, uint64_t connection, int code),
                                 void *context)
{
    remote *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return NULL;
    }
    r->port.calls = &calls;
    hdi_lock_init(&r->lock, HDI_RANKED(HDI_RANK_REMOTE, 0));
    r->time_limit_ns = time_limit_ns;
    r->broken = broken;
    r->context = context;
    for (int i = 0; i < LINES; i++) {
        r->lines[i].socket = -1;
    }
    return &r->port;
}

void hdi_remote_port_destroy(hdi_port *port)
{
    remote *r = (remote *)port;
    if (r == NULL) {
        return;
    }
    for (int i = 0; i < LINES; i++) {
        hdi_wire_close(&r->lines[i].socket, 1);
    }
    free(r);
}
