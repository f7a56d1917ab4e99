/* guard.c - the option memory_debug: guard bytes around buffers, patterns for fresh and freed
 * content, and findings.
 *
 * The block of a guarded buffer begins GUARD_BYTES before the content, and ends GUARD_BYTES after
 * the content. When a buffer is made, and when it ends, no other thread uses it. At these times a
 * temporary buffer structure covers the whole block, so that the library can write and read the
 * guards, too. Use records order these operations, which run in a lane of their own (checker.c). If
 * the guards cannot be checked when a buffer is freed, the checker does it later.
 *
 * Threads: any.
 * Locks: the order lock of the device, held for a moment, and a mutex for the kept findings. No
 * lock is held while a finding is reported.
 * Blocking: see kinds.h. A thread that writes a line waits up to LINE_WAIT_NS for a pipe. A thread
 * with a finding waits for the program's callback.
 * Always: every finding until hd_close is counted in the total and in the counters of its device.
 * The texts of the first HDI_REPORT_FINDINGS findings are kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/handle.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/reclaim.h"
#include "engine/claims.h"
#include "engine/engine.h"
#include "kinds/kinds.h"
#include "kinds/part.h"
#include "transfer/staging.h"

static const hdi_buffer_ops guard_ops;

/* ---- findings: the list, the callback, and the lines ---- */
/* the most lines in the file, so that a program with findings in a loop does not fill the disk */

#define LINES_MOST 1000
/* a line is lost if a pipe accepts nothing for this long */
#define LINE_WAIT_NS INT64_C(1000000000)
#define KINDS (HD_FINDING_LEAK + 1)

struct hdi_findings {
    hdi_mutex lock;
    uint64_t count, of_kind[KINDS];
    hdi_finding list[HDI_REPORT_FINDINGS];
    hdi_hook hook;
    _Atomic uint64_t pinned_double_frees;
    int descriptor;         /* the file for lines; -1: none */
    _Atomic uint64_t lines; /* written so far */
};

static _Thread_local bool inside;

/* Opens the file for the lines. -1: this failed, with a message. */
static int findings_open_lines(const char *path)
{
    if (path[0] == 0) {
        return STDERR_FILENO;
    }
    /* O_NONBLOCK: a write to a full pipe must not block this thread */
    int descriptor = hdi_descriptor_open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0666);
    if (descriptor < 0) {
        hdi_fail(HD_ERROR_SYSTEM, "option memory_debug_file=%s: %s; name a file that can be written", path,
                 strerror(errno));
    }
    return descriptor;
}

static hd_status findings_create(hd_runtime *rt)
{
    if (rt->options.memory_debug == HDI_MEMORY_DEBUG_OFF) {
        return HD_OK;
    }
    int descriptor = -1;
    if (rt->options.memory_debug == HDI_MEMORY_DEBUG_REPORT) {
        descriptor = findings_open_lines(rt->options.memory_debug_file);
        if (descriptor < 0) {
            return HD_ERROR_SYSTEM;
        }
    }
    struct hdi_findings *f = calloc(1, sizeof *f);
    if (!f) {
        if (descriptor > STDERR_FILENO) {
            close(descriptor);
        }
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&f->lock, HDI_RANK_FINDINGS);
    hdi_hook_init(&f->hook, NULL, NULL);
    f->descriptor = descriptor;
    hdi_kinds_of(rt)->findings = f;
    hdi_buffer_of(rt)->guarded = &guard_ops;
    return HD_OK;
}

static void findings_release(hd_runtime *rt)
{
    struct hdi_findings *f = hdi_kinds_of(rt)->findings;
    if (f) {
        if (f->descriptor >= 0 && rt->options.memory_debug_file[0] != 0) {
            close(f->descriptor);
        }
        hdi_hook_destroy(&f->hook);
        hdi_mutex_destroy(&f->lock);
        free(f);
        hdi_kinds_of(rt)->findings = NULL;
    }
}

const hdi_lifetime hdi_findings_lifetime = {.create = findings_create, .release = findings_release};

uint32_t hdi_findings_copy(hd_runtime *rt, hdi_finding out[HDI_REPORT_FINDINGS], uint64_t *count)
{
    struct hdi_findings *f = hdi_kinds_of(rt)->findings;
    uint32_t n = 0;
    *count = 0;
    if (f) {
        hdi_mutex_lock(&f->lock);
        *count = f->count;
        n = (uint32_t)(f->count < HDI_REPORT_FINDINGS ? f->count : HDI_REPORT_FINDINGS);
        memcpy(out, f->list, n * sizeof f->list[0]);
        hdi_mutex_unlock(&f->lock);
    }
    return n;
}

uint64_t hdi_findings_of_pinned(hd_runtime *rt)
{
    return hdi_kinds_of(rt)->findings
               ? atomic_load_explicit(&hdi_kinds_of(rt)->findings->pinned_double_frees, memory_order_relaxed)
               : 0;
}

/* ---- lines ---- */

static void findings_write_line(const struct hdi_findings *f, const char *text)
{
    char line[640];
    int n = snprintf(line, sizeof line, "heddle: memory_debug: %s", text);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    line[length] = '\n';
    hdi_write_quietly(f->descriptor, line, length + 1, hdi_clock_ns() + LINE_WAIT_NS);
}

static void findings_report(struct hdi_findings *f, const char *text)
{
    if (f->descriptor < 0) {
        return;
    }
    uint64_t lines = atomic_fetch_add_explicit(&f->lines, 1, memory_order_relaxed);
    if (lines < LINES_MOST) {
        findings_write_line(f, text);
    } else if (lines == LINES_MOST) {
        findings_write_line(f, "further findings are only counted");
    }
}

/* Writes a count such as "2 double frees, ". */
static size_t findings_put_count(char *out, size_t room, uint64_t count, const char *kind, const char *rest)
{
    int n = count ? snprintf(out, room, "%" PRIu64 " %s%s%s, ", count, kind, count == 1 ? "" : "s", rest) : 0;
    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static void findings_summarize(struct hdi_findings *f, uint64_t buffers, uint64_t bytes)
{
    char text[256] = "", unfreed[HDI_AMOUNT_BYTES];
    hdi_mutex_lock(&f->lock);
    size_t n = findings_put_count(text, sizeof text, f->of_kind[HD_FINDING_OVERRUN], "overrun", "");
    n += findings_put_count(text + n, sizeof text - n, f->of_kind[HD_FINDING_DOUBLE_FREE], "double free", "");
    n += findings_put_count(text + n, sizeof text - n, f->of_kind[HD_FINDING_USE_AFTER_FREE], "use", " after free");
    hdi_mutex_unlock(&f->lock);
    if (buffers) {
        snprintf(text + n, sizeof text - n, "%" PRIu64 " buffer%s of %s not freed", buffers, buffers == 1 ? "" : "s",
                 hdi_bytes_text(bytes, unfreed));
    } else if (n) {
        text[n - 2] = 0; /* cut the last comma off */
    }
    char line[320];
    snprintf(line, sizeof line, "until hd_close: %s", text[0] ? text : "nothing was found");
    findings_write_line(f, line);
}

/* ---- reports of a finding ---- */

static void findings_tell(struct hdi_findings *f, const hd_finding *what)
{
    findings_report(f, what->message);
    hdi_installed *now = inside ? NULL : hdi_hook_enter(&f->hook);
    if (now) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        HDI_SIZED_TOLD(hd_finding) told = {.known = *what};
        inside = true;
        hdi_apart apart = hdi_presence_apart();
        ((hd_finding_callback)now->function)(now->context, &told.known);
        hdi_presence_together(apart);
        inside = false;
        hdi_hook_leave(&f->hook, now);
        hdi_attempt_end(&attempt);
    }
}

/* Copies the thread's last message into the finding, as one line without control characters. */
static void findings_put_message(hd_finding *finding)
{
    memcpy(finding->message, hd_message(), strnlen(hd_message(), sizeof finding->message - 1));
}

/* Notes a finding whose message is the thread's last one. Failures inside the callback do not
 * change that message. */
static void findings_note(hd_runtime *rt, const hd_finding *what)
{
    struct hdi_findings *f = hdi_kinds_of(rt)->findings;
    hd_finding finding = *what;
    finding.size = sizeof finding;
    findings_put_message(&finding);
    hdi_finding kept = {.kind = (int32_t)finding.kind, .device = finding.device};
    memcpy(kept.text, finding.message, strnlen(finding.message, sizeof kept.text - 1));
    if (finding.kind == HD_FINDING_DOUBLE_FREE && finding.device == HD_DEVICE_HOST) {
        hdi_counts_add(&f->pinned_double_frees, 1);
    }
    hdi_mutex_lock(&f->lock);
    if (f->count < HDI_REPORT_FINDINGS) {
        f->list[f->count] = kept;
    }
    finding.number = ++f->count;
    f->of_kind[finding.kind]++;
    hdi_mutex_unlock(&f->lock);
    findings_tell(f, &finding);
}

void hdi_findings_leak(hd_runtime *rt, const hd_finding *leak, size_t index)
{
    struct hdi_findings *f = hdi_kinds_of(rt)->findings;
    hd_finding finding = *leak;
    finding.size = sizeof finding;
    finding.kind = HD_FINDING_LEAK;
    finding.number = f->count + index + 1;
    bool one = finding.count == 1, named = finding.label[0] != 0;
    char site[HDI_SITE_BYTES];
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_site_text(finding.call_site, site);
    hdi_fail(HD_ERROR_ACCESS, "%" PRIu64 " buffer%s of %s %s not freed: %s%s%sallocated by %s", finding.count,
             one ? "" : "s", HDI_BYTES(finding.bytes), one ? "was" : "were", named ? "'" : "", finding.label,
             named ? "', " : "", site);
    findings_put_message(&finding);
    findings_tell(f, &finding);
    hdi_attempt_end(&attempt);
}

void hdi_findings_end(hd_runtime *rt, uint64_t leaked_buffers, uint64_t leaked_bytes)
{
    if (hdi_kinds_of(rt)->findings->descriptor >= 0) {
        findings_summarize(hdi_kinds_of(rt)->findings, leaked_buffers, leaked_bytes);
    }
}

hd_status hd_memory_on_finding(hd_runtime *rt, hd_finding_callback callback, void *context)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (inside) {
        return hdi_fail(HD_ERROR_ARGUMENT, "called from the callback itself");
    }
    if (hdi_kinds_of(rt)->findings &&
        !hdi_hook_install(&hdi_kinds_of(rt)->findings->hook, (hdi_hooked)callback, context)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    return HD_OK;
}

/* ---- guards ---- */

#define GUARD_BYTES 256
#define GUARD_WORD 0xfdfdfdfdu
#define FRESH_WORD 0x7ff7fff7u /* a NaN as a float of 16, 32 or 64 bits, and as a bfloat16 */
#define FREED_WORD 0xddddddddu

/* A text such as `'weights', 4 KiB on device 0, allocated by main+0x12`. */
typedef struct description {
    char text[HD_LABEL_BYTES + HDI_SITE_BYTES + 80];
} description;

static description findings_describe(const struct hd_buffer *b)
{
    description d;
    const char *label = b->label;
    char site[HDI_SITE_BYTES], where[32] = "pinned memory";
    if (b->owner != HDI_OWNER_HOST) {
        snprintf(where, sizeof where, "device %d", b->owner);
    }
    hdi_site_text(b->call_site, site);
    snprintf(d.text, sizeof d.text, "%s%.*s%s%s %s %s, allocated by %s", label[0] ? "'" : "", HD_LABEL_BYTES - 1, label,
             label[0] ? "', " : "", HDI_BYTES(b->bytes), b->owner == HDI_OWNER_HOST ? "of" : "on", where, site);
    return d;
}

/* Notes the thread's last message as a finding about a buffer. `known`: *was describes the buffer
 * completely; otherwise only the owner in *was is set. */
static void findings_note_buffer(hd_runtime *rt, hd_finding_kind kind, const struct hd_buffer *was, bool known,
                                 const void *found_at)
{
    hd_finding finding = {.kind = kind,
                          .device = was->owner == HDI_OWNER_HOST ? HD_DEVICE_HOST : was->owner,
                          .count = 1,
                          .found_at = found_at};
    if (known) {
        finding.bytes = was->bytes;
        finding.call_site = was->call_site;
        memcpy(finding.label, was->label, strnlen(was->label, sizeof finding.label - 1));
    }
    findings_note(rt, &finding);
}

/* ---- stale handles ---- */

typedef enum past {
    PAST_UNKNOWN, /* the value was never a handle of a buffer, or the handle is not stale */
    PAST_REUSED,  /* another buffer uses the handle's structure now */
    PAST_THERE    /* the handle's structure still describes its buffer */
} past;

/* Finds out what became of the buffer of a handle. For PAST_THERE, *was describes the handle's
 * buffer. For PAST_REUSED, only the owner in *was is set, to the owner of the buffer that uses the
 * structure now. `handle` may be any value that hdi_buffer_from_handle accepts. */
static past guard_look_back(const hd_buffer *handle, struct hd_buffer *was)
{
    struct hd_buffer *b = hdi_buffer_from_stale_handle(handle);
    if (!b || !hdi_kinds_of(b->runtime)->findings) {
        return PAST_UNKNOWN;
    }
    /* The generation in a stale handle is older than the structure's generation. */
    uint64_t word = hdi_self_get(&b->self);
    uint32_t age =
        (hdi_self_generation(word) - hdi_self_generation((uint64_t)(uintptr_t)handle)) % HDI_SELF_GENERATIONS;
    if (age == 0 || age > HDI_SELF_GENERATIONS / 2) {
        return PAST_UNKNOWN;
    }
    hdi_buffers_lock(b->runtime); /* no structure is given out while this lock is held */
    bool there = age == 1 && (word & HDI_SELF_DEAD) && hdi_self_get(&b->self) == word && !b->making && b->call_site;
    was->owner = b->owner;
    if (there) {
        was->bytes = b->bytes;
        was->call_site = b->call_site;
        memcpy(was->label, b->label, sizeof was->label);
    }
    hdi_buffers_unlock(b->runtime);
    return there ? PAST_THERE : PAST_REUSED;
}

static hd_runtime *guard_runtime_of(const hd_buffer *handle)
{
    return ((struct hd_buffer *)hdi_self_object(handle))->runtime;
}

static hd_status guard_refuse_free(const hd_buffer *handle, const void *call_site)
{
    struct hd_buffer was;
    past found = guard_look_back(handle, &was);
    if (found == PAST_UNKNOWN) {
        return HD_OK;
    }
    hd_runtime *rt = guard_runtime_of(handle);
    char site[HDI_SITE_BYTES];
    hdi_site_text(call_site, site);
    if (found == PAST_THERE) {
        hdi_fail(HD_ERROR_HANDLE, "a buffer was freed twice, the second time by %s: %s", site,
                 findings_describe(&was).text);
    } else {
        hdi_fail(HD_ERROR_HANDLE,
                 "a handle was freed twice, the second time by %s; what it was is not known "
                 "any more, since another buffer was allocated meanwhile",
                 site);
    }
    if (was.owner != HDI_OWNER_HOST) {
        hdi_counts_add(&rt->devices[was.owner]->memory->double_frees, 1);
    }
    findings_note_buffer(rt, HD_FINDING_DOUBLE_FREE, &was, found == PAST_THERE, call_site);
    return HD_ERROR_HANDLE;
}

static hd_status guard_refuse(const hd_buffer *handle)
{
    struct hd_buffer was;
    past found = guard_look_back(handle, &was);
    if (found == PAST_UNKNOWN) {
        return HD_OK;
    }
    hd_status status;
    if (found == PAST_THERE) {
        status = hdi_fail(HD_ERROR_HANDLE, "the buffer was freed: %s", findings_describe(&was).text);
    } else {
        status = hdi_fail(HD_ERROR_HANDLE, "the buffer was freed, and another one was allocated since");
    }
    findings_note_buffer(guard_runtime_of(handle), HD_FINDING_USE_AFTER_FREE, &was, found == PAST_THERE, NULL);
    return status;
}

/* ---- the block as a whole ---- */

static uint64_t guard_block_bytes(uint64_t bytes)
{
    return bytes + 2 * GUARD_BYTES;
}

/* Fills `bytes` bytes of a block from `offset` on, as a use of the whole block. The function fills
 * whole words. So it may also fill up to 3 bytes behind these bytes, in the guard or in the rest of
 * the block. */
static hd_status guard_fill(struct hd_buffer *block, uint64_t offset, uint64_t bytes, uint32_t word, hd_ticket *out)
{
    hdi_use use = {.buffer = block, .losses = hdi_buffer_losses(block), .high = block->bytes, .write = true};
    hdi_command command = {.op = HDI_OP_FILL, .slots = 1};
    command.fill.dst = block->address + offset;
    command.fill.words = (bytes + 3) / 4;
    command.fill.pattern = word;
    return hdi_submit(hdi_guard_checker_lane(block->runtime->devices[block->owner]), &use, 1, &command, out);
}

/* Gives the buffer a use record for its content alone. The only use in the record is a write by the
 * operation `writer`. */
static void guard_set_uses(struct hd_buffer *b, hdi_point writer)
{
    hdi_buffer_uses_lock(b);
    hdi_uses_release(&b->uses);
    hdi_uses_init(&b->uses, b->bytes);
    b->uses.whole.writer = writer;
    hdi_buffer_uses_unlock(b);
}

/* Moves the block's record to the buffer. So all unfinished work on the block now counts as use of
 * the buffer. */
static void guard_take_uses(struct hd_buffer *b, const struct hd_buffer *block)
{
    hdi_buffer_uses_lock(b);
    hdi_uses_release(&b->uses);
    b->uses = block->uses;
    hdi_buffer_uses_unlock(b);
}

/* Fills the guards, and the content. */
static hd_status guard_place(struct hd_buffer *b, hd_lane *lane, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        /* if the size overflows, this call fails, and its message states that the device lacks so
         * much memory */
        return hdi_buffer_place_plain(b, lane, bytes);
    }
    hd_status status = hdi_buffer_place_plain(b, lane, guard_block_bytes(bytes));
    if (status) {
        return status;
    }
    /* No other thread uses the buffer yet. Until the guards are written, its structure covers the
     * whole block. */
    hd_ticket ticket;
    status = guard_fill(b, 0, b->bytes, GUARD_WORD, &ticket);
    status = status ? status : guard_fill(b, GUARD_BYTES, bytes, FRESH_WORD, &ticket);
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_buffer_release_memory(b);
        hdi_attempt_end(&attempt);
        return status;
    }
    HDI_HANDOVER_BEGIN();
    b->address = b->block + GUARD_BYTES;
    b->bytes = bytes;
    HDI_HANDOVER_END();
    b->special |= HDI_BUFFER_GUARDED;
    guard_set_uses(b, hdi_ticket_point(ticket));
    return HD_OK;
}

/* Makes the structure that covers a buffer's whole block, with a record of the unfinished work. The
 * caller ends it with hdi_uses_release. False: no host memory. */
static bool guard_cover(struct hd_buffer *b, struct hd_buffer *block)
{
    hdi_point on_stack[HDI_POINTS_ON_STACK];
    hdi_point *points;
    size_t n = hdi_buffer_pending(b, on_stack, &points);
    *block = (struct hd_buffer){
        .runtime = b->runtime,
        .locks = b->locks,
        .owner = b->owner,
        .order = b->order,
        .address = b->block,
        .block = b->block,
        .bytes = guard_block_bytes(b->bytes),
    };
    atomic_store_explicit(&block->losses, hdi_buffer_losses(b), memory_order_release);
    hdi_uses_init(&block->uses, block->bytes);
    bool covered = true;
    for (size_t i = 0; i < n && covered; i++) {
        covered = hdi_uses_inherit(b->runtime, &block->uses, points[i]);
    }
    if (points != on_stack) {
        free(points);
    }
    if (!covered) {
        hdi_uses_release(&block->uses);
    }
    return covered;
}

/* Copies one guard of a block into pinned memory. */
static hd_status guard_copy(struct hd_buffer *block, uint64_t offset, struct hd_buffer *to, uint64_t at, hd_ticket *out)
{
    hdi_use uses[2] = {
        {.buffer = block, .losses = hdi_buffer_losses(block), .high = block->bytes, .read = true},
        {.buffer = to, .losses = hdi_buffer_losses(to), .low = at, .high = at + GUARD_BYTES, .write = true},
    };
    hdi_command command = {.op = HDI_OP_COPY, .kind = HDI_COPY_TO_HOST, .slots = 1};
    command.copy.src = block->address + offset;
    command.copy.dst = to->address + at;
    command.copy.bytes = GUARD_BYTES;
    return hdi_submit(hdi_guard_checker_lane(block->runtime->devices[block->owner]), uses, 2, &command, out);
}

typedef enum reading {
    READ,
    NOT_NOW, /* try again later */
    FAILED
} reading;

/* Takes a chunk for the guards. While a claim is open, the pool's chunks may stay in use until the
 * claim ends. So the function waits for a chunk only if no claim is open. */
static reading guard_take_chunk(hdi_staging *pool, int64_t deadline, hdi_chunk **chunk)
{
    bool waits = !hdi_claims_are_open(pool->runtime);
    *chunk = NULL;
    hd_status status = waits ? hdi_staging_await(pool, HDI_STAGING_WAIT, deadline, chunk)
                             : hdi_staging_take(pool, HDI_STAGING_NOW, 0, chunk);
    return !status && *chunk ? READ : !waits || hdi_is_closing(pool->runtime) ? NOT_NOW : FAILED;
}

/* Reads both guards, first the guard in front of the content. No other work uses the block. */
static reading guard_read_both(struct hd_buffer *block, int64_t deadline, unsigned char *out)
{
    hd_runtime *rt = block->runtime;
    hdi_chunk *chunk;
    hd_ticket ticket = {NULL, 0};
    hdi_staging *pool = hdi_staging_of(rt->devices[block->owner], false, false);
    reading can = pool ? guard_take_chunk(pool, deadline, &chunk) : FAILED;
    if (can != READ) {
        return can;
    }
    struct hd_buffer *to = chunk->buffer;
    hd_status status = guard_copy(block, 0, to, 0, &ticket);
    status = status ? status : guard_copy(block, block->bytes - GUARD_BYTES, to, GUARD_BYTES, &ticket);
    hdi_point last = ticket.lane ? hdi_ticket_point(ticket) : (hdi_point){0, 0};
    bool done = hdi_wait_position(rt, last.lane, last.position, deadline);
    bool good = !status && done && !hdi_position_status(rt, last.lane, last.position);
    if (good) {
        memcpy(out, to->host, 2 * GUARD_BYTES);
    }
    hdi_staging_give(pool, chunk, last, false);
    return good ? READ : !done && hdi_is_closing(rt) ? NOT_NOW : FAILED;
}

static unsigned char guard_byte_of(uint32_t word, uint64_t index)
{
    unsigned char bytes[4];
    memcpy(bytes, &word, 4);
    return bytes[index % 4];
}

/* Reports the changed bytes of the guards, by their offsets in the buffer. */
static void guard_compare_both(struct hd_buffer *b, const unsigned char *guards)
{
    /* the end of the whole words that guard_fill wrote for the content */
    uint64_t words_end = (b->bytes + 3) / 4 * 4;
    uint64_t changed = 0;
    int64_t first = 0, last = 0;
    for (uint64_t i = 0; i < 2 * GUARD_BYTES; i++) {
        bool front = i < GUARD_BYTES;
        uint64_t behind = b->bytes + i - GUARD_BYTES;
        uint32_t word = !front && behind < words_end ? FRESH_WORD : GUARD_WORD;
        if (guards[i] != guard_byte_of(word, front ? i : behind)) {
            last = front ? (int64_t)i - GUARD_BYTES : (int64_t)behind;
            first = changed++ ? first : last;
        }
    }
    if (changed == 0) {
        return;
    }
    hd_runtime *rt = b->runtime;
    hdi_fail(HD_ERROR_ACCESS,
             "bytes outside a buffer were overwritten, %" PRIu64 " from offset %" PRId64 " to %" PRId64 ": %s", changed,
             first, last, findings_describe(b).text);
    hdi_counts_add(&rt->devices[b->owner]->memory->overruns, 1);
    findings_note_buffer(rt, HD_FINDING_OVERRUN, b, true, NULL);
}

#define LOOK_NS INT64_C(10000000) /* the time between two checks whether a claim is open */

/* Waits for the work that uses the buffer. Stops waiting if a claim is open. The work may wait for
 * the claim, and the thread that frees the buffer may be the thread that has to end the claim.
 * False: some work is unfinished. */
static bool guard_await_work(struct hd_buffer *b, int64_t deadline)
{
    hd_runtime *rt = b->runtime;
    for (;;) {
        int64_t now = hdi_clock_ns(), soon = now + LOOK_NS < deadline ? now + LOOK_NS : deadline;
        bool open = hdi_claims_are_open(rt);
        if (hdi_buffer_settle(b, NULL, 0, b->bytes, HD_WRITE, open ? 0 : soon) == HD_OK) {
            return true;
        }
        if (open || now >= deadline || hdi_is_closing(rt)) {
            return false;
        }
    }
}

/* Fills everything with FREED_WORD, after all other work. `block` covers the buffer. */
static void guard_poison(struct hd_buffer *b, struct hd_buffer *block)
{
    hd_ticket ticket;
    if (!guard_fill(block, 0, block->bytes, FREED_WORD, &ticket)) {
        /* the memory's next owner waits for the fill, and so for all other work on the block */
        guard_set_uses(b, hdi_ticket_point(ticket));
        hdi_record_release(block);
    } else {
        guard_take_uses(b, block);
    }
}

/* If no work uses the buffer: reports changes in the guards, and fills the whole block. If work
 * still uses the buffer, leaves the buffer to the checker. Does nothing if the device is lost. */
static bool guard_check(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    struct hd_buffer block;
    if (hdi_device_lost(rt->devices[b->owner]) || !hdi_buffer_of_now(b)) {
        return true;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    int64_t deadline = hdi_guard_checker_deadline(rt);
    reading found = guard_await_work(b, deadline) ? READ : NOT_NOW;
    bool covered = guard_cover(b, &block);
    unsigned char guards[2 * GUARD_BYTES];
    found = !covered ? FAILED : found == READ ? guard_read_both(&block, deadline, guards) : found;
    bool kept = found == NOT_NOW && hdi_guard_checker_keep(b);
    if (covered && !kept) {
        guard_poison(b, &block);
    } else if (covered) {
        hdi_record_release(&block);
    }
    hdi_attempt_end(&attempt);
    if (found == READ) {
        guard_compare_both(b, guards);
    }
    return !kept;
}

static const hdi_buffer_ops guard_ops = {
    .place = guard_place, .check = guard_check, .refuse = guard_refuse, .refuse_free = guard_refuse_free};
