/* recorded.c - see recorded.h for threads, locks and guarantees. */
#include "buffer/recorded.h"
#include <string.h>
#include "buffer/buffer.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "record/record.h"

/* A call of the driver that maps or unmaps memory takes longer than this. */
#define MAPPING_NS 15000

static uint8_t recorded_device_of(const struct hd_buffer *b)
{
    return b->owner < 0 ? HDI_RECORD_NO_DEVICE : (uint8_t)b->owner;
}

/* Copies a label and terminates it: another thread may be writing it. */
static void recorded_copy_label(const struct hd_buffer *b, char out[HD_LABEL_BYTES])
{
    memcpy(out, b->label, HD_LABEL_BYTES);
    out[HD_LABEL_BYTES - 1] = 0;
}

/* ---- submissions ---- */

static uint8_t recorded_op_of(unsigned op)
{
    static const uint8_t ops[HDI_OPS] = {
        [HDI_OP_LAUNCH] = HDI_RECORD_OP_LAUNCH, [HDI_OP_COPY] = HDI_RECORD_OP_COPY,
        [HDI_OP_COPY_BOX] = HDI_RECORD_OP_COPY, [HDI_OP_FILL] = HDI_RECORD_OP_FILL,
        [HDI_OP_MATMUL] = HDI_RECORD_OP_MATMUL, [HDI_OP_CALL] = HDI_RECORD_OP_CALL,
        [HDI_OP_MARK] = HDI_RECORD_OP_MARK,     [HDI_OP_CLAIM] = HDI_RECORD_OP_CLAIM,
        [HDI_OP_CLAIMED] = HDI_RECORD_OP_CLAIM,
    };
    return ops[op];
}

static uint8_t recorded_way_of(unsigned kind)
{
    static const uint8_t ways[] = {
        [HDI_COPY_TO_DEVICE] = HDI_RECORD_WAY_TO_DEVICE, [HDI_COPY_TO_HOST] = HDI_RECORD_WAY_TO_HOST,
        [HDI_COPY_ON_DEVICE] = HDI_RECORD_WAY_ON_DEVICE, [HDI_COPY_PEER] = HDI_RECORD_WAY_PEER,
        [HDI_COPY_HOST] = HDI_RECORD_WAY_HOST,
    };
    kind &= HDI_COPY_KIND;
    return kind < sizeof ways ? ways[kind] : 0;
}

/* Sets the places that a copy reads and writes. If an operation reads or writes several buffers,
 * the record names the first of them. Pinned memory that belongs to the library counts as a
 * chunk. */
static void recorded_take_places(hdi_record *r, const hdi_use *uses, size_t n_uses)
{
    r->submit.src = r->submit.dst = 254;
    for (size_t i = n_uses; i-- > 0;) {
        r->submit.src = uses[i].read && !uses[i].write ? recorded_device_of(uses[i].buffer) : r->submit.src;
        r->submit.dst = uses[i].write ? recorded_device_of(uses[i].buffer) : r->submit.dst;
        r->submit.blocks |= uses[i].word == 0 && uses[i].buffer->owner < 0;
    }
}

/* Data from the command itself, for operations other than launches. */
static void recorded_take_command(hdi_record *r, const hdi_use *uses, size_t n_uses, const hdi_command *c)
{
    switch (c->op) {
    case HDI_OP_COPY:
        r->submit.kernel = recorded_way_of(c->kind);
        r->submit.bytes = c->copy.bytes;
        recorded_take_places(r, uses, n_uses);
        break;
    case HDI_OP_COPY_BOX:
        r->submit.kernel = recorded_way_of(c->kind);
        r->submit.bytes = c->box.row * c->box.rows;
        recorded_take_places(r, uses, n_uses);
        break;
    case HDI_OP_FILL:
        r->submit.bytes = c->fill.words * sizeof(uint32_t);
        break;
    default:
        break;
    }
}

/* Sets all fields but the thread. */
static inline __attribute__((always_inline)) void recorded_fill_in(hdi_record *r, const hd_lane *lane,
                                                                   const hdi_use *uses, size_t n_uses,
                                                                   const hdi_command *c, const hdi_submitted *submitted)
{
    r->type = HDI_RECORD_SUBMIT;
    r->kind = recorded_op_of(c->op);
    r->device = (uint8_t)lane->device->index;
    r->texts = 0;
    r->time = submitted->time;
    r->submit.lane = lane->global;
    r->submit.kernel = 0;
    r->submit.position = submitted->position;
    r->submit.before = submitted->before;
    r->submit.bytes = 0;
    r->submit.blocks = r->submit.threads = 0;
    r->submit.ring = submitted->ring;
    r->submit.src = r->submit.dst = 0;
    r->submit.waits = submitted->waits < UINT16_MAX ? (uint16_t)submitted->waits : UINT16_MAX;
    if (c->op == HDI_OP_LAUNCH) {
        uint64_t blocks = (uint64_t)c->launch.grid_x * c->launch.grid_y * c->launch.grid_z;
        r->submit.kernel = c->kernel;
        r->submit.blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
        r->submit.threads = hdi_block_x(c->launch.block) * hdi_block_y(c->launch.block) * hdi_block_z(c->launch.block);
    } else {
        recorded_take_command(r, uses, n_uses, c);
    }
}

/* Records a submission of a thread without a ring of its own. */
static __attribute__((noinline)) void recorded_put_apart(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                         const hdi_command *command, const hdi_submitted *submitted)
{
    hdi_record r;
    recorded_fill_in(&r, lane, uses, n_uses, command, submitted);
    hdi_record_put_slow(&lane->runtime->recorder, &r, 1);
}

void hdi_buffer_record_submission(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  const hdi_submitted *submitted)
{
    const hdi_record_thread *here = hdi_record_ring_here(&lane->runtime->recorder);
    if (__builtin_expect(!here, 0)) {
        recorded_put_apart(lane, uses, n_uses, command, submitted);
        return;
    }
    hdi_record *r = hdi_record_begin(here);
    if (r) {
        recorded_fill_in(r, lane, uses, n_uses, command, submitted);
        hdi_record_end(here);
    }
}

/* ---- the waits of a submission ---- */

/* True if the use's record contains that point. */
static bool recorded_has_point(const hdi_use *use, uint32_t lane, uint64_t position)
{
    hdi_uses *u = &use->buffer->uses;
    hdi_segment_place place;
    bool found = false;
    for (hdi_segment *s = hdi_uses_first(u, use->low, &place); s && s->low < use->high && !found;
         s = hdi_uses_next(u, &place)) {
        found = s->writer.lane == lane && s->writer.position == position;
        const hdi_point *readers = hdi_segment_readers(s);
        for (uint32_t i = 0; i < s->n_readers && !found; i++) {
            found = readers[i].lane == lane && readers[i].position == position;
        }
    }
    uint32_t n;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n);
    for (uint32_t i = 0; i < n && !found; i++) {
        found = wide[i].point.lane == lane && wide[i].point.position == position;
    }
    return found;
}

static void recorded_put_wait(hd_lane *lane, const hdi_use *use, const hdi_wait_entry *e, uint64_t position)
{
    hdi_record r = {.wait = {.time = hdi_record_now(&lane->runtime->recorder),
                             .lane = lane->global,
                             .other_lane = e->lane,
                             .position = position,
                             .other_position = e->position}};
    char label[HD_LABEL_BYTES] = "";
    r.type = HDI_RECORD_WAIT;
    r.kind = e->source != 0;
    r.device = (uint8_t)lane->device->index;
    if (use) {
        uint64_t unit = 1;
        while (use->high / unit > UINT32_MAX) {
            unit *= 2;
        }
        recorded_copy_label(use->buffer, label);
        r.wait.buffer = hdi_buffer_trace_number(use->buffer);
        r.wait.label = label[0] ? hdi_record_label_number(label) : 0;
        r.wait.low_unit = (uint32_t)(use->low / unit);
        r.wait.high_unit = (uint32_t)((use->high + unit - 1) / unit);
        r.wait.unit = (uint32_t)unit;
    }
    hdi_record_put_text(&lane->runtime->recorder, &r, label);
}

void hdi_buffer_record_waits(hd_lane *lane, const hdi_use *uses, size_t n_uses, uint64_t position)
{
    lane->waits.recorded = 0;
    lane->waits.recorded_of = position;
    for (uint32_t i = 0; i < lane->waits.n; i++) {
        const hdi_wait_entry *e = &lane->waits.entries[i];
        if (e->lane == lane->global) {
            /* this wait needs no record, since the order of the operation's own lane is enough */
            continue;
        }
        const hdi_use *why = NULL;
        for (size_t u = 0; u < n_uses && !why; u++) {
            why = recorded_has_point(&uses[u], e->lane, e->position) ? &uses[u] : NULL;
        }
        recorded_put_wait(lane, why, e, position);
        lane->waits.recorded++;
    }
}

/* ---- memory ---- */

static hdi_record recorded_memory(struct hd_buffer *b, uint8_t type, size_t bytes, char label[HD_LABEL_BYTES])
{
    hdi_record r = {.alloc = {.time = hdi_record_now(&b->runtime->recorder),
                              .buffer = hdi_buffer_trace_number(b),
                              .bytes = bytes,
                              .address = b->address}};
    recorded_copy_label(b, label);
    r.type = type;
    r.kind = b->owner < 0 ? 1 : b->host ? 2 : 0;
    r.device = recorded_device_of(b);
    r.alloc.label = label[0] ? hdi_record_label_number(label) : 0;
    return r;
}

void hdi_buffer_record_allocation(struct hd_buffer *b, size_t bytes, int64_t began)
{
    char label[HD_LABEL_BYTES];
    hdi_recorder *recorder = &b->runtime->recorder;
    hdi_record r = recorded_memory(b, HDI_RECORD_ALLOC, bytes, label);
    if (began) {
        r.alloc.took = r.time - began;
        r.alloc.rungs = HDI_RECORD_RUNG_ARENA | hdi_record_take_rungs();
    }
    hdi_record_put_text(recorder, &r, label);
}

void hdi_buffer_record_refusal(hdi_device *device, size_t bytes, int64_t began)
{
    hdi_recorder *recorder = &device->runtime->recorder;
    int64_t now = hdi_record_now(recorder);
    hdi_record r = {.alloc = {.time = now,
                              .bytes = bytes,
                              .rungs = HDI_RECORD_RUNG_FAILED | hdi_record_take_rungs(),
                              .took = now - began}};
    r.type = HDI_RECORD_ALLOC;
    r.device = (uint8_t)device->index;
    hdi_record_put(recorder, &r);
}

void hdi_buffer_record_mapping(hdi_device *device, size_t bytes, int64_t began, size_t mapped)
{
    size_t now = hdi_arena_mapped_bytes(device->arena);
    hdi_recorder *recorder = &device->runtime->recorder;
    if (now == mapped && hdi_record_now(recorder) - began < MAPPING_NS) {
        return;
    }
    uint32_t detail = now > mapped ? HDI_RECORD_MAP_MORE : now < mapped ? HDI_RECORD_MAP_LESS : HDI_RECORD_MAP_MOVED;
    hdi_pause_end(recorder, began,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_MAP,
                              .device = (uint8_t)device->index,
                              .detail = detail,
                              .bytes = now > mapped ? now - mapped : bytes});
}

static hdi_record recorded_text_of(const struct hd_buffer *b, uint32_t *number)
{
    hdi_record r = {.text = {.type = HDI_RECORD_TEXT}};
    char label[HD_LABEL_BYTES] = "";
    if (b) {
        recorded_copy_label(b, label);
    }
    r.text.bytes = (uint8_t)strlen(label);
    memcpy(r.text.text, label, r.text.bytes);
    *number = label[0] ? hdi_record_label_number(label) : 0;
    return r;
}

void hdi_buffer_record_transfer(uint8_t way, const struct hd_buffer *src, const struct hd_buffer *dst, uint64_t bytes,
                                int64_t began, hd_ticket ticket)
{
    hd_runtime *rt = src ? src->runtime : dst->runtime;
    hdi_point point = hdi_ticket_point(ticket);
    hdi_record all[3] = {{.transfer = {.time = began,
                                       .lane = point.lane,
                                       .position = point.position,
                                       .src = src ? recorded_device_of(src) : HDI_RECORD_NO_DEVICE,
                                       .dst = dst ? recorded_device_of(dst) : HDI_RECORD_NO_DEVICE,
                                       .bytes = bytes,
                                       .returned = hdi_record_now(&rt->recorder)}}};
    all[0].type = HDI_RECORD_TRANSFER;
    all[0].kind = way;
    if ((!src || !src->label[0]) && (!dst || !dst->label[0])) {
        hdi_record_put(&rt->recorder, &all[0]);
        return;
    }
    all[0].texts = 2; /* the labels */
    all[1] = recorded_text_of(src, &all[0].transfer.src_label);
    all[2] = recorded_text_of(dst, &all[0].transfer.dst_label);
    hdi_record_put_slow(&rt->recorder, all, 3);
}

void hdi_buffer_record_free(struct hd_buffer *b)
{
    char label[HD_LABEL_BYTES];
    hdi_record r = recorded_memory(b, HDI_RECORD_FREE, b->bytes, label);
    if (label[0]) {
        hdi_record_put_text(&b->runtime->recorder, &r, label);
    } else {
        hdi_record_put(&b->runtime->recorder, &r);
    }
}

void hdi_buffer_record_label(struct hd_buffer *b)
{
    char label[HD_LABEL_BYTES];
    hdi_record r = recorded_memory(b, HDI_RECORD_LABEL, b->bytes, label);
    hdi_record_put_text(&b->runtime->recorder, &r, label);
}
