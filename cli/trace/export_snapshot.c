/* export_snapshot.c - a trace's memory in the format of PyTorch's memory snapshot, for its viewer.
 *
 * The format is a pickle (protocol 2) of a dictionary. "segments" lists the memory that is still
 * allocated when the trace ends, "device_traces" each device's allocations and frees in order. A
 * buffer is a segment with one block. Its labels, in order, take the place of a call stack.
 *
 * Threads, Locks: see model.h.
 * Always: the pickle contains only plain types, so loading it runs no code.
 */
#include <inttypes.h>
#include <string.h>
#include "cli/trace/output.h"
#include "cli/trace/parts.h"

static void trace_export_snapshot_put_byte(int byte, FILE *out)
{
    fputc(byte, out);
}

/* Little-endian, as pickles require. */
static void trace_export_snapshot_put_bytes(uint64_t value, int bytes, FILE *out)
{
    for (int i = 0; i < bytes; i++) {
        fputc((int)(value >> (8 * i) & 0xff), out);
    }
}

static void trace_export_snapshot_put_text(const char *text, FILE *out)
{
    size_t length = strlen(text);
    trace_export_snapshot_put_byte('X', out); /* BINUNICODE */
    trace_export_snapshot_put_bytes(length, 4, out);
    fwrite(text, 1, length, out);
}

static void trace_export_snapshot_put_integer(uint64_t value, FILE *out)
{
    if (value <= INT32_MAX) {
        trace_export_snapshot_put_byte('J', out); /* BININT */
        trace_export_snapshot_put_bytes(value, 4, out);
        return;
    }
    /* LONG1; the extra byte 0 keeps the number positive */
    trace_export_snapshot_put_byte(0x8a, out);
    trace_export_snapshot_put_byte(9, out);
    trace_export_snapshot_put_bytes(value, 8, out);
    trace_export_snapshot_put_byte(0, out);
}

static void trace_export_snapshot_put_pair(const char *key, uint64_t value, FILE *out)
{
    trace_export_snapshot_put_text(key, out);
    trace_export_snapshot_put_integer(value, out);
}

static void trace_export_snapshot_put_frame(const char *name, FILE *out)
{
    trace_export_snapshot_put_byte('}', out);
    trace_export_snapshot_put_byte('(', out);
    trace_export_snapshot_put_text("filename", out);
    trace_export_snapshot_put_text("", out);
    trace_export_snapshot_put_pair("line", 0, out);
    trace_export_snapshot_put_text("name", out);
    trace_export_snapshot_put_text(name, out);
    trace_export_snapshot_put_byte('u', out);
    trace_export_snapshot_put_byte('a', out);
}

/* The row that begins the buffer's next label; NULL: no other label. */
static const trace_memory *trace_export_snapshot_next_label(const trace *t, const trace_memory *m)
{
    const trace_memory *end = m->is_alloc && m->other != TRACE_NONE ? &t->memory[m->other] : NULL;
    return end && end->renames ? end + 1 : NULL; /* the next row */
}

/* The labels of a buffer. `m`: the buffer's first row, for all labels; or the row with its end, for
 * the last label. */
static void trace_export_snapshot_put_frames(const trace *t, const trace_memory *m, FILE *out)
{
    int32_t before = TRACE_NONE;
    trace_export_snapshot_put_text("frames", out);
    trace_export_snapshot_put_byte(']', out);
    for (; m; m = trace_export_snapshot_next_label(t, m)) {
        if (m->label != TRACE_NONE && m->label != before) {
            trace_export_snapshot_put_frame(trace_name(t, m->label), out);
            before = m->label;
        }
    }
    if (before == TRACE_NONE) {
        trace_export_snapshot_put_frame("(no label)", out);
    }
}

/* Unified and pinned memory belong to no device. */
static bool trace_export_snapshot_row_is_of(const trace_memory *m, int device)
{
    return m->kind == 0 && m->device == device && m->counts;
}

/* An address that no other live buffer uses, even if the trace gives none. */
static uint64_t trace_export_snapshot_address_of(const trace_memory *m)
{
    return m->address ? m->address : m->buffer;
}

static void trace_export_snapshot_put_entry(const trace *t, const trace_memory *m, const char *action, FILE *out)
{
    trace_export_snapshot_put_byte('}', out);
    trace_export_snapshot_put_byte('(', out);
    trace_export_snapshot_put_text("action", out);
    trace_export_snapshot_put_text(action, out);
    trace_export_snapshot_put_pair("addr", trace_export_snapshot_address_of(m), out);
    trace_export_snapshot_put_pair("size", m->bytes, out);
    trace_export_snapshot_put_pair("stream", 0, out);
    int64_t since = (t->since_1970 > 0 ? t->since_1970 : 0) / 1000;
    trace_export_snapshot_put_pair("time_us", (uint64_t)trace_most(0, since + m->time / 1000), out);
    trace_export_snapshot_put_frames(t, m, out);
    trace_export_snapshot_put_byte('u', out);
    trace_export_snapshot_put_byte('a', out);
}

/* A segment appears and disappears with its buffer. */
static void trace_export_snapshot_put_device(const trace *t, int device, FILE *out)
{
    trace_export_snapshot_put_byte(']', out);
    for (size_t i = 0; i < t->n_memory; i++) {
        const trace_memory *m = &t->memory[i];
        if (!trace_export_snapshot_row_is_of(m, device) || m->renames) {
            continue;
        }
        if (m->is_alloc) {
            trace_export_snapshot_put_entry(t, m, "segment_alloc", out);
            trace_export_snapshot_put_entry(t, m, "alloc", out);
        } else {
            trace_export_snapshot_put_entry(t, m, "free_requested", out);
            trace_export_snapshot_put_entry(t, m, "free_completed", out);
            trace_export_snapshot_put_entry(t, m, "segment_free", out);
        }
    }
    trace_export_snapshot_put_byte('a', out);
}

/* The first row of a buffer. `m`: the row that begins the buffer's last label. */
static const trace_memory *trace_export_snapshot_first_row(const trace *t, const trace_memory *m)
{
    while (m->renames && m[-1].other != TRACE_NONE) { /* the previous row ends the previous label */
        m = &t->memory[m[-1].other];
    }
    return m;
}

static void trace_export_snapshot_put_segment(const trace *t, const trace_memory *m, FILE *out)
{
    const trace_memory *first = trace_export_snapshot_first_row(t, m);
    trace_export_snapshot_put_byte('}', out);
    trace_export_snapshot_put_byte('(', out);
    trace_export_snapshot_put_pair("device", m->device, out);
    trace_export_snapshot_put_pair("address", trace_export_snapshot_address_of(m), out);
    trace_export_snapshot_put_pair("total_size", m->bytes, out);
    trace_export_snapshot_put_pair("allocated_size", m->bytes, out);
    trace_export_snapshot_put_pair("active_size", m->bytes, out);
    trace_export_snapshot_put_pair("requested_size", m->bytes, out);
    trace_export_snapshot_put_pair("stream", 0, out);
    trace_export_snapshot_put_text("segment_type", out);
    trace_export_snapshot_put_text("large", out);
    trace_export_snapshot_put_text("segment_pool_id", out);
    trace_export_snapshot_put_integer(0, out);
    trace_export_snapshot_put_integer(0, out);
    trace_export_snapshot_put_byte(0x86, out); /* TUPLE2 */
    trace_export_snapshot_put_text("is_expandable", out);
    trace_export_snapshot_put_byte(0x89, out); /* NEWFALSE */
    trace_export_snapshot_put_frames(t, first, out);
    trace_export_snapshot_put_text("blocks", out);
    trace_export_snapshot_put_byte(']', out);
    trace_export_snapshot_put_byte('}', out);
    trace_export_snapshot_put_byte('(', out);
    trace_export_snapshot_put_pair("address", trace_export_snapshot_address_of(m), out);
    trace_export_snapshot_put_pair("size", m->bytes, out);
    trace_export_snapshot_put_pair("requested_size", m->bytes, out);
    trace_export_snapshot_put_text("state", out);
    trace_export_snapshot_put_text("active_allocated", out);
    trace_export_snapshot_put_frames(t, first, out);
    trace_export_snapshot_put_byte('u', out);
    trace_export_snapshot_put_byte('a', out);
    trace_export_snapshot_put_byte('u', out);
    trace_export_snapshot_put_byte('a', out);
}

void trace_export_snapshot(const trace *t, FILE *out)
{
    trace_export_snapshot_put_byte(0x80, out); /* PROTO */
    trace_export_snapshot_put_byte(2, out);
    trace_export_snapshot_put_byte('}', out);
    trace_export_snapshot_put_byte('(', out);
    trace_export_snapshot_put_text("segments", out);
    trace_export_snapshot_put_byte(']', out);
    for (size_t i = 0; i < t->n_memory; i++) {
        const trace_memory *m = &t->memory[i];
        if (m->is_alloc && m->other == TRACE_NONE && m->kind == 0 && m->device < t->n_devices &&
            trace_export_snapshot_row_is_of(m, m->device)) {
            trace_export_snapshot_put_segment(t, m, out);
        }
    }
    trace_export_snapshot_put_text("device_traces", out);
    trace_export_snapshot_put_byte(']', out);
    for (int d = 0; d < t->n_devices; d++) {
        trace_export_snapshot_put_device(t, d, out);
    }
    trace_export_snapshot_put_text("annotations", out);
    trace_export_snapshot_put_byte(']', out);
    trace_export_snapshot_put_byte('u', out);
    trace_export_snapshot_put_byte('.', out);
}
