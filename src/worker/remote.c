/* remote.c - the port into a worker process. Threads, blocking and what always holds: see remote.h.
 *
 * Locks: a line's turn (a futex) is held from a request to its reply. `lock` is held for some instructions: it
 * guards the fields that determine whether there is a connection. It may be taken within a turn. Nothing waits under `lock`.
 * Always: only a thread that has both turns, and has taken the sockets out under `lock`, closes them. So a request may use its
 * line's socket while it has the turn. hdi_remote_port_disconnect, which has no turn, may use the sockets while it has `lock`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/lock.h"
#include "base/shm.h"
#include "base/wait.h"
#include "driver/entries.h"
#include "process/wire.h"
#include "worker/message.h"
#include "worker/remote.h"

#define NS_PER_BYTE 4 /* what the time limit grows by: 250 MB/s */
#define CODE_TIMES 10 /* the limits of one request about code */

enum { MEMORY, CODE, LINES };

/* States of a turn. */
enum { OPEN, TAKEN, AWAITED };

typedef struct line {
    _Atomic uint32_t turn; /* futex word */
    int socket;            /* changed under the turn and `lock`; -1: none */
    int gone;              /* under `lock`: 0, or the code that ended the line */
    uint64_t serial;       /* the rest: under the turn */
    hdi_message message;   /* request, then reply: 16 KiB that need not be on the stack of an application's thread */
} line;

typedef struct remote {
    hdi_port port;
    int64_t time_limit_ns;
    void (*broken)(void *context, uint64_t connection, int code);
    void *context;
    hdi_lock lock;
    bool connected;      /* this and the following: under `lock` */
    bool told;           /* `broken` was called for this connection */
    uint64_t connection; /* how many there have been */
    line lines[LINES];
} remote;

/* One request and what is to become of its reply. */
typedef struct question {
    int line;
    uint32_t kind;
    const void *request;
    size_t request_bytes;
    uint64_t amount; /* bytes that the worker goes through for it */
    int descriptor;  /* sent along; -1: none */
    void *reply;     /* gets the payload of a reply of success */
    size_t reply_bytes;
    bool reply_always; /* of any reply */
    int *received;     /* gets the descriptor of a reply of success */
} question;

/* ---- turns ---- */

static void take_turn(line *l)
{
    uint32_t seen = OPEN;
    /* acquire, here and below: pairs with the release in give_turn */
    if (atomic_compare_exchange_strong_explicit(&l->turn, &seen, TAKEN, memory_order_acquire, memory_order_relaxed)) {
        return;
    }
    /* The thread that has the turn has a time limit. When it passes, the line is dead for all threads that wait. */
    while (atomic_exchange_explicit(&l->turn, AWAITED, memory_order_acquire) != OPEN) {
        hdi_futex_wait(&l->turn, AWAITED, INT64_MAX);
    }
}

static void give_turn(line *l)
{
    /* release: pairs with the acquires in take_turn */
    if (atomic_exchange_explicit(&l->turn, OPEN, memory_order_release) == AWAITED) {
        hdi_futex_wake(&l->turn, 1);
    }
}

/* ---- connections ---- */

/* What a request on the line must return without being sent; 0: it may be sent. With `lock`. */
static int gone_code(const remote *r, const line *l, uint64_t connection)
{
    return !r->connected || r->connection != connection ? HDI_GONE_CLOSED : l->gone;
}

/* The first look also determines which connection the request is for. */
static int first_look(remote *r, const line *l, uint64_t *connection)
{
    hdi_lock_take(&r->lock);
    *connection = r->connection;
    int code = gone_code(r, l, r->connection);
    hdi_lock_release(&r->lock);
    return code;
}

static int look_again(remote *r, const line *l, uint64_t connection)
{
    hdi_lock_take(&r->lock);
    int code = gone_code(r, l, connection);
    hdi_lock_release(&r->lock);
    return code;
}

/* The line has failed with `code`, unless it or its connection had ended before. Returns what the request must answer, and in `*tell`
 * whether `broken` must be called for it. */
static int end_line(remote *r, line *l, uint64_t connection, int code, bool *tell)
{
    hdi_lock_take(&r->lock);
    int before = gone_code(r, l, connection);
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
    hdi_remote_port_disconnect(port); /* so that the turns come soon */
    for (int i = 0; i < LINES; i++) {
        take_turn(&r->lines[i]);
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
        give_turn(&r->lines[i]);
    }
    hdi_wire_close(old, LINES);
    return connection;
}

/* ---- a request ---- */

static hdi_answer answer_of(int code, const char *call)
{
    return (hdi_answer){.code = code, .call = call};
}

/* Sends the request that is in the line's message and waits for its reply there. 0, or why there is none. */
static int exchange(line *l, const question *q, int64_t deadline, int *received)
{
    hdi_message *m = &l->message;
    uint64_t serial = m->header.serial;
    hdi_wire_result result =
        hdi_wire_send(l->socket, m, hdi_message_bytes(q->kind), &q->descriptor, q->descriptor >= 0 ? 1 : 0, deadline);
    int descriptors[2]; /* one more than any reply has, so that one too many is noticed */
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

/* The same name in static memory: callers keep answers across further requests. "": the table has none. */
static const char *static_name(const char *call)
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

/* Hands the reply in the line's message to the request. */
static hdi_answer deliver(const line *l, const question *q, int received)
{
    const hdi_message *m = &l->message;
    if (q->reply_bytes != 0 && (m->header.code == HDCU_SUCCESS || q->reply_always)) {
        memcpy(q->reply, &m->payload, q->reply_bytes);
    }
    if (q->received != NULL && received >= 0) {
        *q->received = received;
    }
    return answer_of(m->header.code, static_name(m->header.call));
}

/* With the turn. */
static hdi_answer request_and_reply(line *l, const question *q, int64_t deadline)
{
    hdi_message_begin(&l->message, q->kind, ++l->serial);
    if (q->request_bytes != 0) {
        memcpy(&l->message.payload, q->request, q->request_bytes);
    }
    int received = -1;
    int gone = exchange(l, q, deadline, &received);
    return gone != 0 ? answer_of(gone, "") : deliver(l, q, received);
}

/* Pinning or mapping many bytes takes its time, and code is compiled, or waits for running kernels before it is loaded. */
static int64_t deadline_of(const remote *r, const question *q)
{
    if (r->time_limit_ns < 0) {
        return INT64_MAX;
    }
    uint64_t amount_ns = q->amount < INT64_MAX / NS_PER_BYTE / 2 ? q->amount * NS_PER_BYTE : INT64_MAX / 2;
    return hdi_deadline((q->line == CODE ? CODE_TIMES : 1) * r->time_limit_ns + (int64_t)amount_ns);
}

/* With the turn, of which `connection` may have ended while it was waited for. */
static hdi_answer take_part(remote *r, line *l, uint64_t connection, const question *q, bool *tell)
{
    hdi_answer answer = answer_of(look_again(r, l, connection), "");
    if (answer.code == 0) {
        answer = request_and_reply(l, q, deadline_of(r, q));
        if (answer.code < 0) {
            answer.code = end_line(r, l, connection, answer.code, tell);
        }
    }
    return answer;
}

static hdi_answer ask(hdi_port *port, const question *q)
{
    remote *r = (remote *)port;
    line *l = &r->lines[q->line];
    uint64_t connection;
    hdi_answer answer = answer_of(first_look(r, l, &connection), "");
    if (answer.code != 0) {
        return answer;
    }
    bool tell = false;
    take_turn(l);
    answer = take_part(r, l, connection, q, &tell);
    give_turn(l);
    /* After such a code the driver does no more work for that process, whichever call noticed first. */
    bool fatal = answer.code > 0 && hdi_driver_code_is_fatal(answer.code);
    if ((tell || fatal) && r->broken != NULL) {
        r->broken(r->context, connection, answer.code);
    }
    return answer;
}

/* ---- the calls ---- */

/* What a local port would have got from the driver for such arguments. */
static hdi_answer refused(const char *call)
{
    return answer_of(HDCU_ERROR_INVALID_VALUE, call);
}

/* A descriptor that cannot be sent is the caller's mistake, not the worker's. */
static bool can_be_sent(int descriptor)
{
    return descriptor >= 0 && fcntl(descriptor, F_GETFD) >= 0;
}

static hdi_answer ask_facts(hdi_port *port, hdi_facts *out)
{
    return ask(port,
               &(question){.kind = HDI_MESSAGE_FACTS, .descriptor = -1, .reply = out, .reply_bytes = sizeof *out});
}

/* A request whose reply is one number, or nothing (out is NULL). */
static hdi_answer ask_number(hdi_port *port, int to, uint32_t kind, const void *request, size_t bytes, int descriptor,
                             uint64_t *out)
{
    return ask(port, &(question){.line = to,
                                 .kind = kind,
                                 .request = request,
                                 .request_bytes = bytes,
                                 .descriptor = descriptor,
                                 .reply = out,
                                 .reply_bytes = out != NULL ? sizeof *out : 0});
}

static hdi_answer ask_range(hdi_port *port, uint32_t kind, uint64_t at, uint64_t bytes, int descriptor, uint64_t *out)
{
    hdi_message_range request = {.at = at, .bytes = bytes};
    return ask(port, &(question){.line = MEMORY,
                                 .kind = kind,
                                 .request = &request,
                                 .request_bytes = sizeof request,
                                 .amount = bytes,
                                 .descriptor = descriptor,
                                 .reply = out,
                                 .reply_bytes = out != NULL ? sizeof *out : 0});
}

static hdi_answer ask_memory_free(hdi_port *port, uint64_t *out)
{
    return ask_number(port, MEMORY, HDI_MESSAGE_MEMORY_FREE, NULL, 0, -1, out);
}

static hdi_answer ask_lane(hdi_port *port, uint32_t number, bool sticky_failure)
{
    hdi_message_lane request = {.number = number, .sticky_failure = sticky_failure};
    return ask_number(port, MEMORY, HDI_MESSAGE_LANE, &request, sizeof request, -1, NULL);
}

static hdi_answer ask_reserve(hdi_port *port, uint64_t wanted, uint64_t bytes, uint64_t *out)
{
    hdi_message_reserve request = {.wanted = wanted, .bytes = bytes};
    return ask_number(port, MEMORY, HDI_MESSAGE_RESERVE, &request, sizeof request, -1, out);
}

static hdi_answer ask_unreserve(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return ask_range(port, HDI_MESSAGE_UNRESERVE, at, bytes, -1, NULL);
}

static hdi_answer ask_map(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return ask_range(port, HDI_MESSAGE_MAP, at, bytes, -1, NULL);
}

static hdi_answer ask_map_piece(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return ask_range(port, HDI_MESSAGE_MAP_PIECE, at, bytes, -1, NULL);
}

static hdi_answer ask_unmap(hdi_port *port, uint64_t at, uint64_t bytes)
{
    return ask_range(port, HDI_MESSAGE_UNMAP, at, bytes, -1, NULL);
}

/* Devices in different processes use export and import. */
static hdi_answer refuse_grant(hdi_port *owner, int peer, uint64_t at, uint64_t bytes)
{
    (void)owner;
    (void)peer;
    (void)at;
    (void)bytes;
    return answer_of(HDCU_ERROR_NOT_SUPPORTED, "");
}

static hdi_answer ask_export(hdi_port *owner, uint64_t at, uint64_t bytes, int *descriptor)
{
    /* Where this process has no descriptor left, the reply could not be taken and would cost the device: look first. */
    int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (spare < 0 && (errno == EMFILE || errno == ENFILE)) {
        return answer_of(HDCU_ERROR_OPERATING_SYSTEM, "open");
    }
    hdi_wire_close(&spare, 1);
    hdi_message_range request = {.at = at, .bytes = bytes};
    return ask(owner, &(question){.line = MEMORY,
                                  .kind = HDI_MESSAGE_EXPORT,
                                  .request = &request,
                                  .request_bytes = sizeof request,
                                  .descriptor = -1,
                                  .received = descriptor});
}

static hdi_answer ask_import(hdi_port *port, int descriptor, uint64_t at, uint64_t bytes)
{
    return can_be_sent(descriptor) ? ask_range(port, HDI_MESSAGE_IMPORT, at, bytes, descriptor, NULL)
                                   : refused("cuMemImportFromShareableHandle");
}

/* Handles for other machines stay within a process: descriptors go to a worker. */
static hdi_answer refuse_export_fabric(hdi_port *owner, uint64_t at, uint64_t bytes,
                                       unsigned char out[HDI_FABRIC_BYTES])
{
    (void)owner;
    (void)at;
    (void)bytes;
    (void)out;
    return answer_of(HDCU_ERROR_NOT_SUPPORTED, "");
}

static hdi_answer refuse_import_fabric(hdi_port *port, const unsigned char handle[HDI_FABRIC_BYTES], uint64_t at,
                                       uint64_t bytes)
{
    (void)port;
    (void)handle;
    (void)at;
    (void)bytes;
    return answer_of(HDCU_ERROR_NOT_SUPPORTED, "");
}

static hdi_answer ask_pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    return can_be_sent(descriptor)
               ? ask_range(port, HDI_MESSAGE_PIN, (uint64_t)(uintptr_t)base, bytes, descriptor, address)
               : refused("cuMemHostRegister");
}

static hdi_answer ask_unpin(hdi_port *port, void *base, uint64_t bytes)
{
    return ask_range(port, HDI_MESSAGE_UNPIN, (uint64_t)(uintptr_t)base, bytes, -1, NULL);
}

static hdi_answer ask_load_file(hdi_port *port, int descriptor, uint64_t offset, size_t size, uint64_t *out, char *log)
{
    hdi_message_load request = {.offset = offset, .size = size};
    hdi_message_loaded reply = {0};
    hdi_answer answer = ask(port, &(question){.line = CODE,
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

static hdi_answer ask_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    log[0] = '\0';
    if (code->size == 0 || (code->descriptor >= 0 && !can_be_sent(code->descriptor))) {
        return refused("cuModuleLoadDataEx");
    }
    if (code->descriptor >= 0) {
        return ask_load_file(port, code->descriptor, code->offset, code->size, out, log);
    }
    hdi_shm copy;
    hd_status status = hdi_shm_create("heddle-code", code->size, &copy);
    if (status != HD_OK) {
        return answer_of(status == HD_ERROR_HOST_MEMORY ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_OPERATING_SYSTEM,
                         "memfd_create");
    }
    memcpy(copy.base, code->bytes, code->size);
    hdi_answer answer = ask_load_file(port, copy.descriptor, 0, code->size, out, log);
    hdi_shm_release(&copy);
    return answer;
}

static hdi_answer ask_unload(hdi_port *port, uint64_t module)
{
    hdi_message_value request = {.value = module};
    return ask_number(port, CODE, HDI_MESSAGE_UNLOAD, &request, sizeof request, -1, NULL);
}

static hdi_answer ask_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number, hdi_kernel_facts *out)
{
    hdi_message_kernel request = {.module = module, .number = number};
    size_t length = strnlen(name, sizeof request.name);
    if (length == sizeof request.name) {
        return refused("cuModuleGetFunction");
    }
    memcpy(request.name, name, length);
    return ask(port, &(question){.line = CODE,
                                 .kind = HDI_MESSAGE_KERNEL,
                                 .request = &request,
                                 .request_bytes = sizeof request,
                                 .descriptor = -1,
                                 .reply = out,
                                 .reply_bytes = sizeof *out});
}

static hdi_answer ask_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes)
{
    hdi_message_kernel_shared request = {.number = number, .bytes = bytes};
    return ask_number(port, CODE, HDI_MESSAGE_KERNEL_SHARED, &request, sizeof request, -1, NULL);
}

static hdi_answer ask_global(hdi_port *port, uint64_t module, const char *name, hdi_global_place *out)
{
    hdi_message_global request = {.module = module};
    size_t length = strnlen(name, sizeof request.name);
    if (length == sizeof request.name) {
        return refused("cuModuleGetGlobal");
    }
    memcpy(request.name, name, length);
    return ask(port, &(question){.line = CODE,
                                 .kind = HDI_MESSAGE_GLOBAL,
                                 .request = &request,
                                 .request_bytes = sizeof request,
                                 .descriptor = -1,
                                 .reply = out,
                                 .reply_bytes = sizeof *out});
}

static hdi_answer ask_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out)
{
    hdi_message_blas request = {.lane = number, .workspace = workspace, .bytes = bytes};
    return ask(port, &(question){.line = CODE,
                                 .kind = HDI_MESSAGE_BLAS,
                                 .request = &request,
                                 .request_bytes = sizeof request,
                                 .descriptor = -1,
                                 .reply = out,
                                 .reply_bytes = sizeof *out});
}

static hdi_answer ask_activities(hdi_port *port, bool on, hdi_activities_facts *out)
{
    hdi_message_activities request = {.on = on};
    return ask(port, &(question){.line = CODE,
                                 .kind = HDI_MESSAGE_ACTIVITIES,
                                 .request = &request,
                                 .request_bytes = sizeof request,
                                 .descriptor = -1,
                                 .reply = out,
                                 .reply_bytes = sizeof *out});
}

static const hdi_port_calls calls = {
    .facts = ask_facts,
    .memory_free = ask_memory_free,
    .lane = ask_lane,
    .reserve = ask_reserve,
    .unreserve = ask_unreserve,
    .map = ask_map,
    .map_piece = ask_map_piece,
    .unmap = ask_unmap,
    .grant = refuse_grant,
    .export = ask_export,
    .import = ask_import,
    .export_fabric = refuse_export_fabric,
    .import_fabric = refuse_import_fabric,
    .pin = ask_pin,
    .unpin = ask_unpin,
    .load = ask_load,
    .unload = ask_unload,
    .kernel = ask_kernel,
    .kernel_shared = ask_kernel_shared,
    .global = ask_global,
    .blas = ask_blas,
    .activities = ask_activities,
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
