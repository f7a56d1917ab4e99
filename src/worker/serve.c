/* serve.c - the worker's side of a line. Threads, blocking and what always holds: see serve.h.
 *
 * Locks: pinnings_lock guards the list of mappings made for PIN, for some instructions.
 * Always: nothing of a request is trusted beyond hdi_message_check. Numbers are compared with the sizes of the tables that they index.
 * Files are compared with what is to be mapped of them. Only mappings that were made here are unmapped.
 */
#include "worker/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/wait.h"
#include "base/lock.h"
#include "engine/runtime.h"
#include "worker/message.h"
#include "process/wire.h"

_Static_assert(HDI_MESSAGE_DEVICES == HDI_DEVICES_MAX, "a HELLO names every device of a runtime");

/* A reply finds room at once where requests are sent one by one; an application that takes none for so long breaks that rule. */
#define REPLY_LIMIT_NS ((int64_t)10 * 1000000000)
#define KERNELS_MAX ((uint32_t)HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS)

typedef struct service {
    hdi_port *local;
    const hdi_message_payload *in;
    hdi_message_payload *out; /* zeros */
    int descriptor;           /* that came with the request; -1: none */
    int give;                 /* that goes with the reply, and is closed then; -1: none */
} service;

/* A file mapped for PIN. */
typedef struct pinning {
    struct pinning *next;
    const hdi_port *local;
    uint64_t at, bytes;
} pinning;

static hdi_lock pinnings_lock = HDI_LOCK_INIT(PINNINGS);
static pinning *pinnings;

/* ---- helpers ---- */

static hdi_answer answer_of(int code, const char *call)
{
    return (hdi_answer){.code = code, .call = call};
}

static hdi_answer senseless(void)
{
    return answer_of(HDCU_ERROR_INVALID_VALUE, "");
}

/* The answer for the errno of a system call. */
static hdi_answer system_failure(const char *call)
{
    int code = errno == ENOMEM   ? HDCU_ERROR_OUT_OF_MEMORY
               : errno == EEXIST ? HDCU_ERROR_ALREADY_MAPPED
                                 : HDCU_ERROR_OPERATING_SYSTEM;
    return answer_of(code, call);
}

/* Whether [offset, offset + bytes) is inside a file. */
static bool file_holds(int file, uint64_t offset, uint64_t bytes)
{
    struct stat facts;
    if (fstat(file, &facts) != 0 || facts.st_size < 0) {
        return false;
    }
    uint64_t size = (uint64_t)facts.st_size;
    return bytes != 0 && offset <= size && bytes <= size - offset;
}

static bool is_whole_pages(hdi_message_range range)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return range.at != 0 && range.bytes != 0 && range.at % page == 0 && range.bytes % page == 0 &&
           range.bytes <= UINT64_MAX - range.at;
}

/* ---- facts, lanes, memory ---- */

static hdi_answer serve_facts(service *s)
{
    return s->local->calls->facts(s->local, &s->out->facts);
}

static hdi_answer serve_memory_free(service *s)
{
    return s->local->calls->memory_free(s->local, &s->out->value.value);
}

static hdi_answer serve_lane(service *s)
{
    if (s->in->lane.number >= HDI_LANES_MAX) {
        return senseless();
    }
    return s->local->calls->lane(s->local, s->in->lane.number, s->in->lane.sticky_failure != 0);
}

static hdi_answer serve_reserve(service *s)
{
    return s->local->calls->reserve(s->local, s->in->reserve.wanted, s->in->reserve.bytes, &s->out->value.value);
}

static hdi_answer serve_unreserve(service *s)
{
    return s->local->calls->unreserve(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer serve_map(service *s)
{
    return s->local->calls->map(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer serve_unmap(service *s)
{
    return s->local->calls->unmap(s->local, s->in->range.at, s->in->range.bytes);
}

static hdi_answer serve_export(service *s)
{
    return s->local->calls->export(s->local, s->in->range.at, s->in->range.bytes, &s->give);
}

static hdi_answer serve_import(service *s)
{
    return s->local->calls->import(s->local, s->descriptor, s->in->range.at, s->in->range.bytes);
}

/* ---- pinned memory ---- */

static void keep(pinning *p)
{
    hdi_lock_take(&pinnings_lock);
    p->next = pinnings;
    pinnings = p;
    hdi_lock_release(&pinnings_lock);
}

/* Takes the pinning of exactly this range out of the list; NULL: there is none. */
static pinning *claim(const hdi_port *local, hdi_message_range range)
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

/* Maps the file's first bytes exactly there, over nothing. */
static void *map_at(hdi_message_range range, int file)
{
    void *wanted = (void *)(uintptr_t)range.at;
    void *base = mmap(wanted, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    if (base != MAP_FAILED && base != wanted) { /* kernels before 4.17 take the address as a wish */
        munmap(base, range.bytes);
        errno = EEXIST;
        return MAP_FAILED;
    }
    return base;
}

static hdi_answer serve_pin(service *s)
{
    hdi_message_range range = s->in->range;
    if (!is_whole_pages(range) || !file_holds(s->descriptor, 0, range.bytes)) {
        return senseless();
    }
    pinning *p = malloc(sizeof *p);
    if (p == NULL) {
        return answer_of(HDCU_ERROR_OUT_OF_MEMORY, "malloc");
    }
    *p = (pinning){.local = s->local, .at = range.at, .bytes = range.bytes};
    void *base = map_at(range, s->descriptor);
    if (base == MAP_FAILED) {
        hdi_answer failure = system_failure("mmap");
        free(p);
        return failure;
    }
    hdi_answer answer = s->local->calls->pin(s->local, base, range.bytes, s->descriptor, &s->out->value.value);
    if (!hdi_answered(answer)) {
        /* The driver may not have let go of the memory again: then nothing else may come to lie there. */
        int code = s->local->calls->unpin(s->local, base, range.bytes).code;
        if (code != HDCU_SUCCESS && code != HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED) {
            keep(p);
            return answer;
        }
        munmap(base, range.bytes);
        free(p);
        return answer;
    }
    keep(p);
    return answer;
}

static hdi_answer serve_unpin(service *s)
{
    pinning *p = claim(s->local, s->in->range);
    if (p == NULL) {
        return answer_of(HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister");
    }
    void *base = (void *)(uintptr_t)p->at;
    hdi_answer answer = s->local->calls->unpin(s->local, base, p->bytes);
    if (!hdi_answered(answer)) {
        keep(p);
        return answer;
    }
    munmap(base, p->bytes);
    free(p);
    return answer;
}

/* ---- code ---- */

static hdi_answer serve_load(service *s)
{
    uint64_t offset = s->in->load.offset, size = s->in->load.size;
    int seals = fcntl(s->descriptor, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || !file_holds(s->descriptor, offset, size)) {
        return senseless(); /* reading it could fault */
    }
    uint64_t before = offset % (uint64_t)sysconf(_SC_PAGESIZE);
    char *base = mmap(NULL, before + size, PROT_READ, MAP_SHARED, s->descriptor, (off_t)(offset - before));
    if (base == MAP_FAILED) {
        return system_failure("mmap");
    }
    hdi_code code = {.bytes = base + before, .size = size, .descriptor = -1};
    hdi_answer answer = s->local->calls->load(s->local, &code, &s->out->loaded.module, s->out->loaded.log);
    munmap(base, before + size);
    return answer;
}

static hdi_answer serve_unload(service *s)
{
    return s->local->calls->unload(s->local, s->in->value.value);
}

static hdi_answer serve_kernel(service *s)
{
    const hdi_message_kernel *k = &s->in->kernel;
    if (k->number >= KERNELS_MAX) {
        return senseless();
    }
    return s->local->calls->kernel(s->local, k->module, k->name, k->number, &s->out->kernel_facts);
}

static hdi_answer serve_kernel_shared(service *s)
{
    const hdi_message_kernel_shared *k = &s->in->kernel_shared;
    if (k->number >= KERNELS_MAX) {
        return senseless();
    }
    return s->local->calls->kernel_shared(s->local, k->number, k->bytes);
}

static hdi_answer serve_blas(service *s)
{
    const hdi_message_blas *b = &s->in->blas;
    if (b->lane >= HDI_LANES_MAX) {
        return senseless();
    }
    return s->local->calls->blas(s->local, b->lane, b->workspace, b->bytes, &s->out->blas_facts);
}

/* ---- the loop ---- */

typedef hdi_answer served(service *s);

static served *const serves[HDI_MESSAGE_KINDS] = {
    [HDI_MESSAGE_FACTS] = serve_facts,
    [HDI_MESSAGE_MEMORY_FREE] = serve_memory_free,
    [HDI_MESSAGE_LANE] = serve_lane,
    [HDI_MESSAGE_RESERVE] = serve_reserve,
    [HDI_MESSAGE_UNRESERVE] = serve_unreserve,
    [HDI_MESSAGE_MAP] = serve_map,
    [HDI_MESSAGE_UNMAP] = serve_unmap,
    [HDI_MESSAGE_EXPORT] = serve_export,
    [HDI_MESSAGE_IMPORT] = serve_import,
    [HDI_MESSAGE_PIN] = serve_pin,
    [HDI_MESSAGE_UNPIN] = serve_unpin,
    [HDI_MESSAGE_LOAD] = serve_load,
    [HDI_MESSAGE_UNLOAD] = serve_unload,
    [HDI_MESSAGE_KERNEL] = serve_kernel,
    [HDI_MESSAGE_KERNEL_SHARED] = serve_kernel_shared,
    [HDI_MESSAGE_BLAS] = serve_blas,
};

/* Does a request that was received, and makes its reply. */
static hdi_answer serve(service *s, const hdi_message *request, hdi_message_state state)
{
    uint32_t kind = request->header.kind;
    if (state != HDI_MESSAGE_GOOD || kind >= HDI_MESSAGE_KINDS || serves[kind] == NULL) {
        return senseless();
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
        service s = {.local = local,
                     .in = &request.payload,
                     .out = &reply.payload,
                     .descriptor = n_descriptors > 0 ? descriptors[0] : -1,
                     .give = -1};
        hdi_message_answer(&reply, serve(&s, &request, state));
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
