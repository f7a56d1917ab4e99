/* piece.c - buffers that are one piece of physical memory: their allocation, their export, and
 * imports of another process's exports.
 *
 * For each piece, the device's port reserves an address range, and maps the piece there. The port
 * may be in a worker process. With worker processes, a piece has the same address in every process
 * (share.h), and peers map it by descriptor, like an arena's mappings. A piece is a region
 * (region.h). So a thread of the library, the keeper, ends a freed piece. The keeper ends all
 * mappings of the piece, and gives its address range back.
 *
 * Threads: any.
 * Locks: `linking`, while a peer gains access to a piece or loses its mapping.
 * Blocking: calls wait for requests to ports. An allocation waits for room as hd_alloc does
 * (limit.h).
 * Always: a failed call leaves no buffer, descriptor or address range behind. If the driver does
 * not undo a mapping, the port records the mapping and tries again later. Before an allocation
 * fails, it gives back idle memory, and may call the program's reclaim callback. If a piece is
 * older than the latest restart of its device, nothing is given back to the fresh worker.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <heddle/import.h>
#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "buffer/kind.h"
#include "buffer/part.h"
#include "buffer/piece.h"
#include "buffer/limit.h"
#include "buffer/reclaim.h"
#include "buffer/recorded.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "memory/arena.h"

/* ---- addresses and their end ---- */

static bool piece_is_of_now(const hdi_region *r)
{
    return atomic_load_explicit(&r->runtime->devices[r->owner]->losses, memory_order_acquire) == r->losses;
}

/* A piece asks for an address. NVIDIA's driver 580 honours such a request only if the address is a
 * multiple of this step. The range must also be at least as long as the step. */
#define ADDRESS_STEP ((uint64_t)32 << 20)

/* The bytes of addresses that a piece reserves. With worker processes, a range consists of whole
 * steps. */
static uint64_t piece_range_bytes(const hd_runtime *rt, uint64_t bytes)
{
    return rt->is_process ? (bytes + ADDRESS_STEP - 1) / ADDRESS_STEP * ADDRESS_STEP : bytes;
}

/* Reserves addresses for a piece. With worker processes, this function asks for addresses that
 * other workers can use for the piece, too. A driver may ignore the request and put the piece
 * elsewhere. Another device then reaches the piece only if the same addresses are free in that
 * device's worker. */
static hd_status piece_reserve(hdi_device *device, uint64_t bytes, uint64_t *at)
{
    hd_runtime *rt = device->runtime;
    uint64_t range = piece_range_bytes(rt, bytes);
    /* one step of addresses stays free behind the piece, so that an access past the end of the
     * piece faults */
    uint64_t wanted = rt->is_process ? hdi_regions_take_addresses(rt, range + ADDRESS_STEP) : 0;
    if (rt->is_process && !wanted) {
        return hdi_fail(HD_ERROR_MEMORY,
                        "no addresses that are the same in all processes are left for %" PRIu64 " bytes", bytes);
    }
    hdi_port *port = device->port;
    hdi_answer answer = port->calls->reserve(port, wanted, range, at);
    if (hdi_answered(answer) && wanted && *at != wanted && hdi_regions_have_addresses(*at)) {
        /* the driver chose another address, which the library may later plan for another piece */
        port->calls->unreserve(port, *at, range);
        answer = (hdi_answer){HDCU_ERROR_MAP_FAILED, "cuMemAddressReserve"};
    }
    if (wanted && (!hdi_answered(answer) || *at != wanted)) {
        hdi_regions_give_addresses(rt, wanted);
    }
    return hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
}

/* Gives the addresses and their mappings back. */
static void piece_unreserve(hdi_device *device, uint64_t at, uint64_t bytes)
{
    device->port->calls->unreserve(device->port, at, piece_range_bytes(device->runtime, bytes));
    if (device->runtime->is_process) {
        hdi_regions_give_addresses(device->runtime, at);
    }
}

static void piece_give_back(hdi_region *r, bool closing)
{
    hd_runtime *rt = r->runtime;
    hdi_device *device = rt->devices[r->owner];
    if (closing && rt->is_process) {
        return; /* the workers ended, and with them all their mappings */
    }
    uint64_t range = piece_range_bytes(rt, r->high - r->low);
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    for (int i = 0; i < rt->n_devices; i++) {
        if (r->mapped_for >> i & 1) {
            rt->devices[i]->port->calls->unreserve(rt->devices[i]->port, r->low, range);
        }
    }
    r->mapped_for = 0;
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
    bool now = piece_is_of_now(r);
    if (now || !rt->is_process) {
        hdi_counts_add(&device->memory->piece_calls, r->own);
        device->port->calls->unreserve(device->port, r->low, range);
    }
    if (rt->is_process) {
        hdi_regions_give_addresses(rt, r->low);
    }
    if (r->charged && now) {
        hdi_arena_uncount_piece(device->arena, r->charged, true);
    }
    if (r->own && !closing) {
        hdi_memory_left(device);
    }
}

/* Called when a piece was freed. Until the keeper gives the piece back, the piece counts as leaving
 * (hdi_memory_leaves). So an allocation at the limit waits for the piece. */
static void piece_leave(struct hd_buffer *b, const hdi_point *points, size_t n_points)
{
    hdi_memory_leaves(b->runtime->devices[b->owner]);
    hdi_region_device_ops.leave(b, points, n_points);
}

static const hdi_buffer_ops piece_ops = {.leave = piece_leave};

/* ---- peers ---- */

/* Maps the piece in the peer's worker at the same address. */
static hdi_answer piece_map_for_peer(hdi_region *r, hdi_device *peer)
{
    hdi_device *owner = r->runtime->devices[r->owner];
    uint64_t at = 0, bytes = r->high - r->low, range = piece_range_bytes(r->runtime, bytes);
    int descriptor = -1;
    HDI_UNCANCELLED;
    hdi_answer answer = owner->port->calls->export(owner->port, r->low, bytes, &descriptor);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_port *port = peer->port;
    answer = port->calls->reserve(port, r->low, range, &at);
    if (hdi_answered(answer)) {
        answer = at == r->low ? port->calls->import(port, descriptor, at, bytes)
                              : (hdi_answer){HDCU_ERROR_MAP_FAILED, "cuMemAddressReserve"};
        if (!hdi_answered(answer)) {
            port->calls->unreserve(port, at, range);
        }
    }
    close(descriptor);
    return answer;
}

static hdi_answer piece_grant(hdi_region *r, int from)
{
    hd_runtime *rt = r->runtime;
    if (!piece_is_of_now(r)) {
        return (hdi_answer){HDCU_ERROR_INVALID_VALUE, ""};
    }
    if (!rt->is_process) {
        hdi_port *port = rt->devices[r->owner]->port;
        return port->calls->grant(port, from, r->low, r->high - r->low);
    }
    hdi_answer answer = piece_map_for_peer(r, rt->devices[from]);
    r->mapped_for |= (uint64_t)hdi_answered(answer) << from;
    return answer;
}

/* ---- buffers ---- */

/* Makes a buffer of `bytes` bytes, which begins `offset` bytes into the memory [at, at + piece). On
 * failure the caller gives the memory back. */
static hd_status piece_settle(hdi_device *device, uint64_t at, uint64_t piece, uint64_t offset, uint64_t bytes,
                              uint64_t losses, const hd_import_options *options, unsigned special, hdi_region **out)
{
    hdi_region *r = NULL;
    hd_status status = hdi_region_make(device->runtime, device->index, at, piece, options, &r);
    if (status) {
        return status;
    }
    r->own = (special & HDI_BUFFER_PIECE) != 0;
    r->losses = losses;
    r->charged = r->own ? piece : 0;
    r->give_back = piece_give_back;
    r->grant = piece_grant;
    bool inherited = false;
    status = hdi_buffer_borrow(r->buffer, device, at + offset, bytes, losses, HDI_BUFFER_IMPORTED | special);
    status = status ? status : hdi_region_enlist(r, &inherited);
    if (status) {
        hdi_region_drop(r);
        return status;
    }
    hdi_buffer_set_kind(r->buffer, r->own ? &piece_ops : &hdi_region_device_ops, r);
    *out = r;
    return HD_OK;
}

static uint64_t piece_whole_granules(const hdi_device *device, uint64_t bytes)
{
    uint64_t granule = device->facts.granule;
    return bytes > UINT64_MAX - granule ? 0 : (bytes + granule - 1) / granule * granule;
}

/* Maps a piece. If no memory of the device is left, frees idle memory and tries again. */
static hd_status piece_map(hdi_device *device, uint64_t at, uint64_t piece)
{
    hdi_port *port = device->port;
    hdi_counts_add(&device->memory->piece_calls, 1);
    hdi_answer answer = port->calls->map_piece(port, at, piece);
    if (answer.code == HDCU_ERROR_OUT_OF_MEMORY) {
        hdi_thread_caches_drain(device->runtime, device->index);
        hdi_arena_trim(device->arena, 0, piece, NULL);
        hdi_counts_add(&device->memory->piece_calls, 1);
        answer = port->calls->map_piece(port, at, piece);
    }
    if (answer.code == HDCU_ERROR_OUT_OF_MEMORY) {
        return hdi_fail_driver(HD_ERROR_MEMORY, answer.code, answer.call, device->index,
                               "%s in one piece on device %d: the driver has no more", HDI_BYTES(piece), device->index);
    }
    return hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
}

/* A function for hdi_take_or_wait (hdi_take): counts the piece against the limit, and maps it at
 * the address in `context`. */
static hd_status piece_take(hdi_device *device, size_t piece, void *context)
{
    hd_status status = hdi_arena_count_piece(device->arena, piece);
    if (status) {
        return status;
    }
    status = piece_map(device, *(const uint64_t *)context, piece);
    if (status) {
        hdi_arena_uncount_piece(device->arena, piece, false);
    }
    return status;
}

/* Allocates a piece. If there is no room, this function takes all steps that hd_alloc takes. */
static hd_status piece_make(hdi_device *device, uint64_t piece, size_t bytes, uint64_t losses, const char *label,
                            hdi_region **out)
{
    uint64_t at = 0;
    /* if the piece is larger than the limit, no addresses are reserved, since the allocation fails
     * below */
    bool possible = piece <= hdi_arena_limit(device->arena);
    hd_status status = possible ? piece_reserve(device, piece, &at) : HD_OK;
    if (status) {
        return status;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    status = hdi_take_or_wait(device, piece, losses, piece_take, &at);
    status = hdi_attempt_result(&attempt, status);
    const hd_import_options options = {.size = sizeof options, .label = label};
    if (!status) {
        status = piece_settle(device, at, piece, 0, bytes, losses, &options, HDI_BUFFER_PIECE, out);
        if (status) {
            hdi_arena_uncount_piece(device->arena, piece, true);
        }
    }
    if (status && possible) {
        piece_unreserve(device, at, piece);
    }
    return status;
}

hd_status hdi_piece_alloc(hd_lane *handle, size_t bytes, unsigned flags, const char *label, const void *call_site,
                          hd_buffer **out)
{
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    if (!out || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", out ? "bytes is 0" : "out is null");
    }
    if (flags != HD_ALLOC_DEDICATED) {
        return hdi_fail(HD_ERROR_ARGUMENT, "flags 0x%x: HD_ALLOC_DEDICATED cannot be combined with another flag",
                        flags);
    }
    hdi_device *device = lane->device;
    uint64_t losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    if (hdi_device_lost(device)) {
        return hdi_lane_refuses(lane);
    }
    uint64_t piece = piece_whole_granules(device, bytes);
    if (!piece) {
        return hdi_fail(HD_ERROR_MEMORY, "device %d has no piece of %zu bytes", device->index, bytes);
    }
    hdi_region *r = NULL;
    int64_t began = hdi_record_began(&device->runtime->recorder);
    hd_status status = piece_make(device, piece, bytes, losses, label, &r);
    if (status) {
        hdi_counts_add(&device->memory->failures, 1);
        return status;
    }
    hdi_counts_add(&device->memory->pieces, 1);
    hdi_buffer_count_allocation(device->runtime, device->index, bytes, r->buffer);
    hdi_region_give_out(r, call_site, out);
    if (hdi_records(&device->runtime->recorder)) {
        hdi_buffer_record_allocation(r->buffer, bytes, began);
    }
    hdi_maintenance_look(device->runtime, device);
    return HD_OK;
}

/* ---- export ---- */

/* The caller keeps the buffer in a hold. */
static hd_status piece_refuse_kind(const struct hd_buffer *b)
{
    const char *what = b->owner == HDI_OWNER_HOST  ? "is memory of the host"
                       : hdi_buffer_is_imported(b) ? "was imported, and only its owner can export it"
                                                   : "may be in several pieces of memory";
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "the buffer%s%s%s %s; allocate memory for exports with hd_alloc_with and HD_ALLOC_DEDICATED",
                    b->label[0] ? " '" : "", b->label, b->label[0] ? "'" : "", what);
}

/* The caller keeps the piece in a hold. */
static hd_status piece_export(const hdi_region *r, hd_export_kind kind, hd_export *e)
{
    hdi_device *device = r->runtime->devices[r->owner];
    hdi_port *port = device->port;
    if (!piece_is_of_now(r)) {
        return hdi_loss_fail(r->runtime, r->owner, "the buffer's content was lost (hd_free it)");
    }
    hdi_answer answer = kind == HD_EXPORT_DESCRIPTOR
                            ? port->calls->export(port, r->low, r->high - r->low, &e->descriptor)
                            : port->calls->export_fabric(port, r->low, r->high - r->low, e->fabric);
    bool refused = !hdi_answered(answer) && !hdi_driver_code_is_fatal(answer.code);
    if (kind == HD_EXPORT_FABRIC && refused && answer.code != HDCU_ERROR_OUT_OF_MEMORY) {
        return hdi_fail_driver(HD_ERROR_UNSUPPORTED, answer.code, answer.call, r->owner,
                               "device %d has no handle of a fabric for the buffer%s; export a descriptor", r->owner,
                               r->runtime->is_process ? " (placement=process has none)" : "");
    }
    return hdi_answered(answer) ? HD_OK : hdi_answer_failed(device, answer);
}

hd_status hd_buffer_export(hd_buffer *buffer, hd_export_kind kind, hd_export *out)
{
    HDI_INSIDE(hdi_buffer_runtime(buffer));
    if (!out || (kind != HD_EXPORT_DESCRIPTOR && kind != HD_EXPORT_FABRIC)) {
        return hdi_fail(HD_ERROR_ARGUMENT, out ? "unknown kind %d of export" : "out is null", (int)kind);
    }
    struct hd_buffer *b = NULL;
    hd_status status = HDI_SIZED_CHECK(hd_export, out);
    status = status ? status : hdi_buffer_check(buffer, 0, 0, &b);
    if (status) {
        return status;
    }
    if (!hdi_hold_begin(b, hdi_self_word(buffer))) {
        return hdi_buffer_refused(buffer);
    }
    if (!hdi_buffer_is_piece(b)) {
        status = piece_refuse_kind(b);
        hdi_hold_end(b);
        return status;
    }
    const hdi_region *r = b->of_kind;
    hd_export e = {.size = sizeof e, .kind = kind, .descriptor = -1, .bytes = b->bytes};
    e.piece_bytes = r->high - r->low;
    e.offset = b->address - r->low;
    memcpy(e.uuid, b->runtime->devices[b->owner]->facts.uuid, sizeof e.uuid);
    status = piece_export(r, kind, &e);
    hdi_hold_end(b);
    if (!status) {
        HDI_SIZED_OUT(hd_export, out, &e);
    }
    return status;
}

/* ---- import ---- */

/* Fails. If the runtime has the device that owns the memory, the message names this device. */
static hd_status piece_refuse_device(const hdi_device *device, const hd_export *e)
{
    const hd_runtime *rt = device->runtime;
    for (int i = 0; i < rt->n_devices; i++) {
        if (memcmp(e->uuid, rt->devices[i]->facts.uuid, sizeof e->uuid) == 0) {
            return hdi_fail(HD_ERROR_ARGUMENT, "the memory is of another device than %d; import it on device %d",
                            device->index, i);
        }
    }
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "the memory is of another device than %d, which this runtime does not have; open it with that "
                    "device (option devices)",
                    device->index);
}

/* Refuses a descriptor whose memory has another size, if the provider can ask for the size. */
static hd_status piece_check_size(const hd_runtime *rt, const hd_export *e)
{
    bool asks = e->kind == HD_EXPORT_DESCRIPTOR && rt->provider->export_bytes;
    uint64_t bytes = asks ? rt->provider->export_bytes(e->descriptor) : 0;
    if (bytes == 0 || bytes == e->piece_bytes) {
        /* the size is unknown, but the driver itself refuses a descriptor that is no export */
        return HD_OK;
    }
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "descriptor %d is of %" PRIu64 " bytes, and piece_bytes is %" PRIu64
                    ": hd_buffer_export did not write this export",
                    e->descriptor, bytes, e->piece_bytes);
}

static hd_status piece_check_export(const hdi_device *device, const hd_export *e)
{
    if (e->kind != HD_EXPORT_DESCRIPTOR && e->kind != HD_EXPORT_FABRIC) {
        return hdi_fail(HD_ERROR_ARGUMENT, "unknown kind %d of export", e->kind);
    }
    uint64_t granule = device->facts.granule;
    if (e->piece_bytes == 0 || e->piece_bytes % granule || e->bytes == 0 || e->offset > e->piece_bytes ||
        e->bytes > e->piece_bytes - e->offset) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%" PRIu64 " bytes at offset %" PRIu64 " of a piece of %" PRIu64
                        " bytes: hd_buffer_export did not write this export",
                        e->bytes, e->offset, e->piece_bytes);
    }
    bool here = memcmp(e->uuid, device->facts.uuid, sizeof e->uuid) == 0;
    return here ? piece_check_size(device->runtime, e) : piece_refuse_device(device, e);
}

/* True if an import possibly failed because of the handle or descriptor that the program passed.
 * This is so if the driver refused the handle or its mapping, or if the descriptor did not reach
 * the worker. If another call failed, or memory ran out, the result is false. */
static bool piece_export_is_to_blame(hdi_answer answer)
{
    bool of_driver = strncmp(answer.call, "cu", 2) == 0;
    return answer.code != HDCU_ERROR_OUT_OF_MEMORY &&
           (!of_driver || strcmp(answer.call, "cuMemImportFromShareableHandle") == 0 ||
            strcmp(answer.call, "cuMemMap") == 0);
}

static hd_status piece_map_export(hdi_device *device, const hd_export *e, uint64_t at)
{
    hdi_port *port = device->port;
    hdi_answer answer = e->kind == HD_EXPORT_DESCRIPTOR
                            ? port->calls->import(port, e->descriptor, at, e->piece_bytes)
                            : port->calls->import_fabric(port, e->fabric, at, e->piece_bytes);
    if (hdi_answered(answer)) {
        return HD_OK;
    }
    if (hdi_driver_code_is_fatal(answer.code) || !piece_export_is_to_blame(answer)) {
        return hdi_answer_failed(device, answer);
    }
    if (answer.code == HDCU_ERROR_NOT_SUPPORTED && e->kind != HD_EXPORT_DESCRIPTOR) {
        return hdi_fail_driver(HD_ERROR_UNSUPPORTED, answer.code, answer.call, device->index,
                               "device %d imports no such handle; export a descriptor", device->index);
    }
    char what[48];
    snprintf(what, sizeof what, e->kind == HD_EXPORT_DESCRIPTOR ? "descriptor %d" : "the handle", e->descriptor);
    return hdi_fail_driver(HD_ERROR_ARGUMENT, answer.code, answer.call, device->index,
                           "%s is no memory of device %d of %" PRIu64 " bytes: %s", what, device->index, e->piece_bytes,
                           hdi_driver_code_name(answer.code));
}

static hd_status piece_import_export(hdi_device *device, const hd_export *e, uint64_t losses,
                                     const hd_import_options *options, hdi_region **out)
{
    uint64_t at = 0;
    hd_status status = piece_check_export(device, e);
    status = status ? status : piece_reserve(device, e->piece_bytes, &at);
    if (status) {
        return status;
    }
    status = piece_map_export(device, e, at);
    status = status ? status : piece_settle(device, at, e->piece_bytes, e->offset, e->bytes, losses, options, 0, out);
    if (status) {
        piece_unreserve(device, at, e->piece_bytes);
    }
    return status;
}

hd_status hd_import_descriptor(hd_runtime *rt, int index, const hd_export *from, const hd_import_options *options,
                               hd_buffer **out)
{
    HDI_INSIDE(rt);
    hd_export e;
    hd_import_options room;
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (!from || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", from ? "out" : "from");
    }
    from = HDI_SIZED_IN(hd_export, from, &e);
    if (!from || (options && !(options = HDI_SIZED_IN(hd_import_options, options, &room)))) {
        return HD_ERROR_ARGUMENT;
    }
    if (index < 0 || index >= rt->n_devices) {
        return hdi_device_refused(rt, index);
    }
    hdi_device *device = rt->devices[index];
    uint64_t losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    if (hdi_device_lost(device)) {
        return hdi_loss_fail(rt, index, "memory cannot be imported there");
    }
    hdi_region *r = NULL;
    hd_status status = piece_import_export(device, from, losses, options, &r);
    if (!status) {
        hdi_region_give_out(r, __builtin_return_address(0), out);
    }
    return status;
}
