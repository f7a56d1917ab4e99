/* export_snapshot.c - a trace's memory as PyTorch's memory snapshot, which its viewer reads.
 *
 * That is a pickle (protocol 2) of a dictionary: "segments" has what was allocated at the end, "device_traces" has each device's
 * allocations and frees in order. A buffer is a segment with one block. Its labels stand where a stack of calls would, in their order.
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

static void put_frame(const char *name, FILE *out)
{
    put_byte('}', out);
    put_byte('(', out);
    put_text("filename", out);
    put_text("", out);
    put_pair("line", 0, out);
    put_text("name", out);
    put_text(name, out);
    put_byte('u', out);
    put_byte('a', out);
}

/* The row with which the buffer's next label begins; NULL: it has no other. */
static const trace_memory *next_label(const trace *t, const trace_memory *m)
{
    const trace_memory *end = m->is_alloc && m->other != TRACE_NONE ? &t->memory[m->other] : NULL;
    return end && end->renames ? end + 1 : NULL; /* it stands right behind */
}

/* All labels that a buffer had. `m`: its first row, or the one with its end. */
static void put_frames(const trace *t, const trace_memory *m, FILE *out)
{
    int32_t before = TRACE_NONE;
    put_text("frames", out);
    put_byte(']', out);
    for (; m; m = next_label(t, m)) {
        if (m->label != TRACE_NONE && m->label != before) {
            put_frame(trace_name(t, m->label), out);
            before = m->label;
        }
    }
    if (before == TRACE_NONE) {
        put_frame("(no label)", out);
    }
}

/* Unified and pinned memory is not of one device. */
static bool is_of(const trace_memory *m, int device)
{
    return m->kind == 0 && m->device == device && m->counts;
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
    put_frames(t, m, out);
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

/* That of the buffer whose last label begins with `m`. */
static const trace_memory *first_row(const trace *t, const trace_memory *m)
{
    while (m->renames && m[-1].other != TRACE_NONE) { /* in front of it stands the end of the label before */
        m = &t->memory[m[-1].other];
    }
    return m;
}

static void put_segment(const trace *t, const trace_memory *m, FILE *out)
{
    const trace_memory *first = first_row(t, m);
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
    put_frames(t, first, out);
    put_text("blocks", out);
    put_byte(']', out);
    put_byte('}', out);
    put_byte('(', out);
    put_pair("address", address_of(m), out);
    put_pair("size", m->bytes, out);
    put_pair("requested_size", m->bytes, out);
    put_text("state", out);
    put_text("active_allocated", out);
    put_frames(t, first, out);
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
