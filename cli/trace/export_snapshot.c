/* export_snapshot.c - a trace's memory as PyTorch's memory snapshot, which its viewer reads.
 *
 * That is a pickle (protocol 2) of a dictionary: "segments" has what was allocated at the end, "device_traces" has each device's
 * allocations and frees in order. A buffer is a segment with one block. A label stands where a stack of calls would.
 *
 * Threads, Locks: see model.h.
 * Always: only the machine's plain types are in it, so reading it runs nothing.
 */
#include <inttypes.h>
#include <string.h>
#include "cli/trace/output.h"
#include "cli/trace/parts.h"

static void put_byte(int byte, FILE *out)
{
    fputc(byte, out);
}

/* Little-endian, as pickles are. */
static void put_bytes(uint64_t value, int bytes, FILE *out)
{
    for (int i = 0; i < bytes; i++) {
        fputc((int)(value >> (8 * i) & 0xff), out);
    }
}

static void put_text(const char *text, FILE *out)
{
    size_t length = strlen(text);
    put_byte('X', out); /* BINUNICODE */
    put_bytes(length, 4, out);
    fwrite(text, 1, length, out);
}

static void put_integer(uint64_t value, FILE *out)
{
    if (value <= INT32_MAX) {
        put_byte('J', out); /* BININT */
        put_bytes(value, 4, out);
        return;
    }
    put_byte(0x8a, out); /* LONG1: one more byte, so that the sign is 0 */
    put_byte(9, out);
    put_bytes(value, 8, out);
    put_byte(0, out);
}

static void put_pair(const char *key, uint64_t value, FILE *out)
{
    put_text(key, out);
    put_integer(value, out);
}

static void put_frames(const trace *t, int32_t label, FILE *out)
{
    const char *name = trace_name(t, label);
    put_text("frames", out);
    put_byte(']', out); /* a list with one frame */
    put_byte('}', out);
    put_byte('(', out);
    put_text("filename", out);
    put_text("", out);
    put_pair("line", 0, out);
    put_text("name", out);
    put_text(name[0] ? name : "(no label)", out);
    put_byte('u', out);
    put_byte('a', out);
}

/* Unified and pinned memory is not of one device. */
static bool is_of(const trace_memory *m, int device)
{
    return m->kind == 0 && m->device == device && m->counts;
}

/* An entry of an allocation has one label: the first that the buffer got. */
static int32_t label_of(const trace *t, const trace_memory *m)
{
    while (m->is_alloc && m->label == TRACE_NONE && m->other != TRACE_NONE && t->memory[m->other].renames) {
        m = &t->memory[m->other + 1]; /* the new label's row stands right behind */
    }
    return m->label;
}

/* An address that no other buffer has meanwhile, also where the trace has none. */
static uint64_t address_of(const trace_memory *m)
{
    return m->address ? m->address : m->buffer;
}

static void put_entry(const trace *t, const trace_memory *m, const char *action, FILE *out)
{
    put_byte('}', out);
    put_byte('(', out);
    put_text("action", out);
    put_text(action, out);
    put_pair("addr", address_of(m), out);
    put_pair("size", m->bytes, out);
    put_pair("stream", 0, out);
    int64_t since = (t->since_1970 > 0 ? t->since_1970 : 0) / 1000;
    put_pair("time_us", (uint64_t)trace_most(0, since + m->time / 1000), out);
    put_frames(t, label_of(t, m), out);
    put_byte('u', out);
    put_byte('a', out);
}

/* A buffer comes and goes with its segment. */
static void put_device(const trace *t, int device, FILE *out)
{
    put_byte(']', out);
    for (size_t i = 0; i < t->n_memory; i++) {
        const trace_memory *m = &t->memory[i];
        if (!is_of(m, device) || m->renames) {
            continue;
        }
        if (m->is_alloc) {
            put_entry(t, m, "segment_alloc", out);
            put_entry(t, m, "alloc", out);
        } else {
            put_entry(t, m, "free_requested", out);
            put_entry(t, m, "free_completed", out);
            put_entry(t, m, "segment_free", out);
        }
    }
    put_byte('a', out);
}

static void put_segment(const trace *t, const trace_memory *m, FILE *out)
{
    put_byte('}', out);
    put_byte('(', out);
    put_pair("device", m->device, out);
    put_pair("address", address_of(m), out);
    put_pair("total_size", m->bytes, out);
    put_pair("allocated_size", m->bytes, out);
    put_pair("active_size", m->bytes, out);
    put_pair("requested_size", m->bytes, out);
    put_pair("stream", 0, out);
    put_text("segment_type", out);
    put_text("large", out);
    put_text("segment_pool_id", out);
    put_integer(0, out);
    put_integer(0, out);
    put_byte(0x86, out); /* TUPLE2 */
    put_text("is_expandable", out);
    put_byte(0x89, out); /* NEWFALSE */
    put_frames(t, m->label, out);
    put_text("blocks", out);
    put_byte(']', out);
    put_byte('}', out);
    put_byte('(', out);
    put_pair("address", address_of(m), out);
    put_pair("size", m->bytes, out);
    put_pair("requested_size", m->bytes, out);
    put_text("state", out);
    put_text("active_allocated", out);
    put_frames(t, m->label, out);
    put_byte('u', out);
    put_byte('a', out);
    put_byte('u', out);
    put_byte('a', out);
}

void trace_export_snapshot(const trace *t, FILE *out)
{
    put_byte(0x80, out); /* PROTO */
    put_byte(2, out);
    put_byte('}', out);
    put_byte('(', out);
    put_text("segments", out);
    put_byte(']', out);
    for (size_t i = 0; i < t->n_memory; i++) {
        const trace_memory *m = &t->memory[i];
        if (m->is_alloc && m->other == TRACE_NONE && m->kind == 0 && m->device < t->n_devices && is_of(m, m->device)) {
            put_segment(t, m, out);
        }
    }
    put_text("device_traces", out);
    put_byte(']', out);
    for (int d = 0; d < t->n_devices; d++) {
        put_device(t, d, out);
    }
    put_text("annotations", out);
    put_byte(']', out);
    put_byte('u', out);
    put_byte('.', out);
}
