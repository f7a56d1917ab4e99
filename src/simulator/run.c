/* run.c - work: the entry points that submit copies, fills and launches, and the effects of
 * operations.
 *
 * Threads: entry points run on any thread, hdi_host_run on stream threads. Locks: the host lock,
 * which hdi_host_run releases for the work itself. The option host_corrupt is parsed without the
 * lock.
 * Blocking: hdi_host_run returns when the work is done. Calls that use hdi_host_enter_work wait
 * while their stream is full. Pageable copies behave like those of NVIDIA's driver. A copy from a
 * source of up to 64 KiB returns after it read the source; other pageable copies return when they
 * are done.
 * Always: pointers are looked up at the call and again when the work starts. Copies, fills and
 * kernels touch memory under the fault guard. So an access to freed or unmapped memory is a fault
 * of the device, and no crash. For a copy of several rows, all bytes from the first to the last row
 * are looked up. Copies can use memory of every device, since the driver stages a copy if there is
 * no peer access. Fills can use only memory that their device may access. The values of arguments
 * are copied during the call. A queued launch keeps its module loaded.
 *
 * With the option host_corrupt, peer access fails on purpose. So tests can check that Heddle's test
 * of peer access (src/peer) detects failures. The option affects only a device's writes to another
 * device's memory. To lose a kernel's stores, this file copies all memory of the other device that
 * the writer may access, and restores it after the kernel. Other writes to that memory at the same
 * time may also get lost.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <heddle/kernel.h>
#include <heddle/module.h>
#include "base/error.h"
#include "base/wait.h"
#include "simulator/cpu_run.h"
#include "simulator/host.h"

/* The effect of the option on one device's writes to another device's memory. */
typedef enum corruption {
    CORRUPT_NONE,
    CORRUPT_LOST,    /* all writes are lost */
    CORRUPT_COPIES,  /* only writes of copies are lost */
    CORRUPT_STORES,  /* only writes of kernels are lost */
    CORRUPT_ATOMICS, /* only writes of kernels to buffers that they also read are lost */
    CORRUPT_HANG,    /* writes never end */
    CORRUPT_FAULT,   /* the writing device faults */
    CORRUPT_CRASH,   /* the process that runs the writing device is killed */
    CORRUPT_SLOW     /* copies take long */
} corruption;

#define SLOW_BYTES_PER_S 2000000.0 /* far below the rate of copies on a busy machine */

/* ---- the option host_corrupt ---- */

static const char *const kinds[] = {
    [CORRUPT_LOST] = "lost", [CORRUPT_COPIES] = "copies", [CORRUPT_STORES] = "stores", [CORRUPT_ATOMICS] = "atomics",
    [CORRUPT_HANG] = "hang", [CORRUPT_FAULT] = "fault",   [CORRUPT_CRASH] = "crash",   [CORRUPT_SLOW] = "slow",
};

static hd_status corrupt_parse_failed(const char *at)
{
    return hdi_fail(HD_ERROR_OPTION,
                    "option host_corrupt: expected pairs such as 0>1 or 0>1:KIND at \"%.40s\", where KIND is "
                    "lost, copies, stores, atomics, hang, fault, crash or slow",
                    at);
}

/* Reads a device's number at *at, and moves *at past it. -1: no number. */
static int corrupt_parse_device(const char **at)
{
    char *end;
    if (!isdigit((unsigned char)**at)) {
        return -1;
    }
    long number = strtol(*at, &end, 10);
    *at = end;
    return number < HDI_HOST_DEVICES_MAX ? (int)number : HDI_HOST_DEVICES_MAX;
}

static corruption corrupt_parse_kind(const char **at)
{
    for (unsigned i = 1; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i]);
        if (strncmp(*at, kinds[i], length) == 0 && !isalpha((unsigned char)(*at)[length])) {
            *at += length;
            return (corruption)i;
        }
    }
    return CORRUPT_NONE;
}

static bool corrupt_is_separator(char c)
{
    return c == ' ' || c == ',' || c == ';' || c == '\t';
}

hd_status hdi_host_corrupt_parse(const char *text, int devices, uint8_t out[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX])
{
    memset(out, 0, (size_t)HDI_HOST_DEVICES_MAX * HDI_HOST_DEVICES_MAX);
    for (const char *p = text;;) {
        while (corrupt_is_separator(*p)) {
            p++;
        }
        if (!*p) {
            return HD_OK;
        }
        const char *start = p;
        int writer = corrupt_parse_device(&p);
        if (writer < 0 || *p != '>') {
            return corrupt_parse_failed(start);
        }
        p++;
        int owner = corrupt_parse_device(&p);
        corruption kind = CORRUPT_LOST;
        if (*p == ':') {
            p++;
            kind = corrupt_parse_kind(&p);
        }
        if (owner < 0 || kind == CORRUPT_NONE || (*p && !corrupt_is_separator(*p))) {
            return corrupt_parse_failed(start);
        }
        if (writer >= devices || owner >= devices || writer == owner) {
            return hdi_fail(HD_ERROR_OPTION, "option host_corrupt: \"%.40s\" must name two of the %d host devices",
                            start, devices);
        }
        out[writer][owner] = (uint8_t)kind;
    }
}

/* ---- writes that fail ---- */

/* Returns how writes of `device` to this address fail. Copies to memory that the device may not
 * access are staged, so they arrive. */
static corruption corrupt_kind_of(int device, uintptr_t address)
{
    int owner = hdi_host_owner_of(address);
    bool direct = owner >= 0 && owner != device && hdi_host_reach_of(device, address, 1) == HDI_HOST_REACHABLE;
    return direct ? hdi_host.corrupt[device][owner] : CORRUPT_NONE;
}

/* Waits until the context faults or ends. */
static void corrupt_hang(int device)
{
    const volatile int *cancel = &hdi_host.devices[device].cancel;
    hdi_host_unlock();
    while (!__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
        hdi_sleep_for(1000000);
    }
    hdi_host_lock();
}

/* Handles the kinds that are the same for copies and kernels. Returns the fault. */
static hdcu_result corrupt_misbehave(int device, corruption kind)
{
    if (kind == CORRUPT_HANG) {
        corrupt_hang(device);
    } else if (kind == CORRUPT_CRASH) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        abort();
    }
    return kind == CORRUPT_HANG || kind == CORRUPT_FAULT ? HDCU_ERROR_ILLEGAL_ADDRESS : HDCU_SUCCESS;
}

/* Called before a copy or a fill by `device` to memory at `dst`. Releases the lock for a while.
 * *lost: the caller skips the operation.
 * Returns SUCCESS, or the fault of the device. */
static hdcu_result corrupt_copy(int device, uintptr_t dst, size_t bytes, bool *lost)
{
    corruption kind = corrupt_kind_of(device, dst);
    *lost = kind == CORRUPT_LOST || kind == CORRUPT_COPIES;
    if (kind == CORRUPT_SLOW) {
        hdi_host_unlock();
        hdi_sleep_for((int64_t)((double)bytes * 1e9 / SLOW_BYTES_PER_S));
        hdi_host_lock();
    }
    return corrupt_misbehave(device, kind);
}

/* ---- kernels whose writes fail ---- */

typedef struct piece {
    uintptr_t start;
    size_t bytes;
    void *content;
} piece;

/* A copy of memory that a kernel of `device` must not change; NULL: none. The copy is made before
 * the kernel runs. After the kernel, snapshot_restore writes it back and frees it. */
typedef struct snapshot {
    int owner;
    size_t count;
    piece pieces[];
} snapshot;

static void snapshot_free(snapshot *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->pieces[i].content);
    }
    free(s);
}

/* Copies all memory of `owner` that `device` may access. NULL: out of memory. */
static snapshot *snapshot_take(int device, int owner)
{
    snapshot *s = calloc(1, sizeof *s + hdi_host_mappings.count * sizeof s->pieces[0]);
    for (size_t i = 0; s && i < hdi_host_mappings.count; i++) {
        const hdi_host_mapping *m = (const hdi_host_mapping *)(const void *)hdi_host_mappings.spans[i];
        if (m->device != owner || !hdi_host_may_access(m, device)) {
            continue;
        }
        piece p = {m->span.start, m->span.bytes, malloc(m->span.bytes)};
        if (!p.content) {
            snapshot_free(s);
            return NULL;
        }
        memcpy(p.content, (const void *)p.start, p.bytes);
        s->owner = owner;
        s->pieces[s->count++] = p;
    }
    return s;
}

static void snapshot_restore(snapshot *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        const piece *p = &s->pieces[i];
        const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, p->start);
        if (m && m->span.start == p->start && m->span.bytes == p->bytes && m->device == s->owner) {
            memcpy((void *)p->start, p->content, p->bytes);
        }
    }
    snapshot_free(s);
}

static hdcu_result corrupt_kernel(int device, const hd_cpu_kernel *kernel, const char *arguments, snapshot **out)
{
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        const hd_cpu_param *p = &kernel->params[i];
        uint64_t address = 0;
        if (p->kind != HD_ARG_BUFFER || p->size != sizeof address || !(p->access & HD_WRITE)) {
            continue;
        }
        memcpy(&address, arguments + p->offset, sizeof address);
        corruption kind = corrupt_kind_of(device, (uintptr_t)address);
        hdcu_result r = corrupt_misbehave(device, kind);
        if (r != HDCU_SUCCESS) {
            return r;
        }
        bool updates = (p->access & HD_READ_WRITE) == HD_READ_WRITE;
        if (kind == CORRUPT_LOST || kind == CORRUPT_STORES || (kind == CORRUPT_ATOMICS && updates)) {
            *out = snapshot_take(device, hdi_host_owner_of((uintptr_t)address));
            return *out ? HDCU_SUCCESS : HDCU_ERROR_LAUNCH_FAILED;
        }
    }
    return HDCU_SUCCESS;
}

/* ---- the work of operations ---- */

static void host_op_copy_bytes(void *data)
{
    const hdi_host_op *op = data;
    const void *src = op->u.copy.src_is_data ? hdi_host_op_data_of(op) : (const void *)op->u.copy.src;
    for (size_t i = 0; i < op->u.copy.rows; i++) {
        memmove((char *)op->u.copy.dst + i * op->u.copy.dst_pitch, (const char *)src + i * op->u.copy.src_pitch,
                op->u.copy.bytes);
    }
}

static void host_op_fill_bytes(void *data)
{
    const hdi_host_op *op = data;
    if (op->u.fill.width == 1) {
        memset((void *)op->u.fill.dst, (int)op->u.fill.value, op->u.fill.bytes);
    } else if (op->u.fill.bytes == 4) {
        /* One word may be a signal to a thread that polls it. Like a GPU, this code stores the word
         * as a whole, after all earlier work of the stream. Pairs with that thread's acquire
         * load. */
        __atomic_store_n((uint32_t *)op->u.fill.dst, op->u.fill.value, __ATOMIC_RELEASE);
    } else {
        uint32_t *words = (uint32_t *)op->u.fill.dst;
        for (size_t i = 0; i < op->u.fill.bytes / 4; i++) {
            words[i] = op->u.fill.value;
        }
    }
}

static bool host_op_is_reachable(int device, uintptr_t address, size_t bytes)
{
    return hdi_host_reach_of(device, address, bytes) == HDI_HOST_REACHABLE;
}

static hdcu_result host_op_run_guarded(void (*work)(void *), const hdi_host_op *op)
{
    hdi_host_unlock();
    hdcu_result r = hdi_cpu_guarded(work, (void *)(uintptr_t)op, NULL);
    hdi_host_lock();
    return r;
}

static hdcu_result host_op_run_copy(int device, const hdi_host_op *op)
{
    size_t more = op->u.copy.rows - 1;
    if ((op->u.copy.dst_is_known &&
         !host_op_is_reachable(-1, op->u.copy.dst, more * op->u.copy.dst_pitch + op->u.copy.bytes)) ||
        (op->u.copy.src_is_known &&
         !host_op_is_reachable(-1, op->u.copy.src, more * op->u.copy.src_pitch + op->u.copy.bytes))) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    bool lost = false;
    hdcu_result r = corrupt_copy(device, op->u.copy.dst, op->u.copy.bytes, &lost);
    return r != HDCU_SUCCESS || lost ? r : host_op_run_guarded(host_op_copy_bytes, op);
}

static hdcu_result host_op_run_fill(int device, const hdi_host_op *op)
{
    if (!host_op_is_reachable(device, op->u.fill.dst, op->u.fill.bytes)) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    bool lost = false;
    hdcu_result r = corrupt_copy(device, op->u.fill.dst, op->u.fill.bytes, &lost);
    return r != HDCU_SUCCESS || lost ? r : host_op_run_guarded(host_op_fill_bytes, op);
}

/* A kernel may get any number as an address. If the address leads to memory of the provider that
 * this device may not access, the launch faults, as on a GPU. */
static bool host_op_arguments_are_reachable(int device, const hd_cpu_kernel *kernel, const char *arguments)
{
    bool yes = true;
    for (uint32_t i = 0; i < kernel->n_params && yes; i++) {
        const hd_cpu_param *p = &kernel->params[i];
        uint64_t address;
        if (p->kind == HD_ARG_BUFFER && p->size == sizeof address) {
            memcpy(&address, arguments + p->offset, sizeof address);
            yes = hdi_host_reach_of(device, (uintptr_t)address, 1) != HDI_HOST_UNREACHABLE;
        }
    }
    return yes;
}

static hdcu_result host_op_run_kernel(int device, uint64_t random, const hdi_host_op *op)
{
    const void *arguments = hdi_host_op_data_of(op);
    if (!host_op_arguments_are_reachable(device, op->u.kernel.kernel, arguments)) {
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
    hdi_cpu_launch launch = {.kernel = op->u.kernel.kernel,
                             .storage = &op->u.kernel.module->storage,
                             .arguments = arguments,
                             .dynamic_shared_bytes = op->u.kernel.dynamic_shared_bytes,
                             .schedule = random,
                             .cancel = &hdi_host.devices[device].cancel};
    char reason[HDI_DRIVER_REASON_BYTES];
    launch.reason = reason;
    memcpy(launch.grid, op->u.kernel.grid, sizeof launch.grid);
    memcpy(launch.block, op->u.kernel.block, sizeof launch.block);
    snapshot *kept = NULL;
    hdcu_result r = corrupt_kernel(device, op->u.kernel.kernel, arguments, &kept);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    hdi_host_unlock();
    reason[0] = 0;
    r = hdi_cpu_run(&launch, NULL);
    hdi_host_lock();
    if (r != HDCU_SUCCESS) {
        memcpy(hdi_host.devices[device].reason, reason, sizeof reason);
    }
    snapshot_restore(kept);
    /* It is too late to refuse the launch, so the code must be a sticky one. */
    return r == HDCU_SUCCESS || hdi_driver_code_is_fatal(r) ? r : HDCU_ERROR_LAUNCH_FAILED;
}

static void host_op_run_call(const hdi_host_op *op)
{
    hdi_host_unlock();
    hdi_host_set_in_function(true);
    op->u.call.function(op->u.call.user_data);
    hdi_host_set_in_function(false);
    hdi_host_lock();
}

void hdi_host_run(uint64_t context_handle, int device, uint64_t random, const hdi_host_op *op)
{
    hdcu_result r = HDCU_SUCCESS;
    switch (op->kind) {
    case HDI_HOST_OP_COPY:
        r = host_op_run_copy(device, op);
        break;
    case HDI_HOST_OP_FILL:
        r = host_op_run_fill(device, op);
        break;
    case HDI_HOST_OP_KERNEL:
        r = host_op_run_kernel(device, random, op);
        break;
    case HDI_HOST_OP_CALL:
        host_op_run_call(op);
        break;
    case HDI_HOST_OP_PRODUCT:
        r = op->u.product.run(device, op);
        break;
    case HDI_HOST_OP_GRAPH:
        hdi_host_graph_run(random, op->u.graph);
        break;
    case HDI_HOST_OP_FREE:
    case HDI_HOST_OP_RECORD:
    case HDI_HOST_OP_WAIT:
        break; /* the stream itself handles these operations */
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_context_fault(context_handle, r);
    }
}

/* ---- copies and fills ---- */

#define PAGEABLE_SNAPSHOT_BYTES ((size_t)64 << 10)

typedef enum side {
    SIDE_DEVICE, /* this side must be memory of the provider */
    SIDE_ANY     /* this side may also be pageable memory */
} side;

static hdcu_result host_op_look_up(uintptr_t address, size_t bytes, side kind, bool *known)
{
    hdi_host_reach reach = address == 0 ? HDI_HOST_UNMAPPED : hdi_host_reach_of(-1, address, bytes);
    *known = reach == HDI_HOST_REACHABLE;
    return *known || (kind == SIDE_ANY && reach == HDI_HOST_UNKNOWN) ? HDCU_SUCCESS : HDCU_ERROR_INVALID_VALUE;
}

static hdcu_result host_op_look_up_and_submit(hdi_host_stream *stream, hdi_host_op *op, side dst_side, side src_side,
                                              bool wait)
{
    size_t bytes = op->u.copy.bytes, rows = op->u.copy.rows;
    hdcu_result r =
        host_op_look_up(op->u.copy.dst, (rows - 1) * op->u.copy.dst_pitch + bytes, dst_side, &op->u.copy.dst_is_known);
    if (r == HDCU_SUCCESS) {
        r = host_op_look_up(op->u.copy.src, (rows - 1) * op->u.copy.src_pitch + bytes, src_side,
                            &op->u.copy.src_is_known);
    }
    if (r != HDCU_SUCCESS) {
        return r;
    }
    if (!stream->capture && hdi_host_owner_of(op->u.copy.dst) < 0 && hdi_host_owner_of(op->u.copy.src) < 0) {
        /* driver 580 also waits for copies within host memory, even if both sides are pinned */
        wait = true;
    } else if (!stream->capture && (!op->u.copy.dst_is_known || !op->u.copy.src_is_known)) {
        void *data;
        if (op->u.copy.dst_is_known && rows == 1 && bytes <= PAGEABLE_SNAPSHOT_BYTES &&
            (data = hdi_host_op_data(op, bytes))) {
            memcpy(data, (const void *)op->u.copy.src, bytes);
            op->u.copy.src_is_data = true;
        } else {
            wait = true;
        }
    }
    r = hdi_host_submit(stream, op);
    return r == HDCU_SUCCESS && wait ? hdi_host_stream_drain(stream) : r;
}

static hdcu_result host_op_submit_copy(hdi_host_stream *stream, uintptr_t dst, side dst_side, uintptr_t src,
                                       side src_side, size_t bytes, bool wait)
{
    if (bytes == 0) {
        return HDCU_SUCCESS;
    }
    hdi_host_op op = {.kind = HDI_HOST_OP_COPY};
    op.u.copy.dst = dst;
    op.u.copy.src = src;
    op.u.copy.bytes = bytes;
    op.u.copy.rows = 1;
    return host_op_look_up_and_submit(stream, &op, dst_side, src_side, wait);
}

/* Finds one side of a copy of rows: the address of the first row, and the kind of memory allowed
 * there. False: the type is not supported. */
static bool host_op_side_of(int type, const void *host, hdcu_deviceptr device, size_t x, size_t y, size_t pitch,
                            uintptr_t *at, side *kind)
{
    *at = (type == HDCU_MEMORYTYPE_HOST ? (uintptr_t)host : device) + y * pitch + x;
    *kind = type == HDCU_MEMORYTYPE_DEVICE ? SIDE_DEVICE : SIDE_ANY;
    return type == HDCU_MEMORYTYPE_HOST || type == HDCU_MEMORYTYPE_DEVICE || type == HDCU_MEMORYTYPE_UNIFIED;
}

static bool host_op_pitch_fits(size_t pitch, size_t x, size_t row_bytes)
{
    return pitch <= HDI_HOST_PITCH_MAX && x <= pitch && row_bytes <= pitch - x;
}

static hdcu_result host_op_submit_rows(hdi_host_stream *stream, const hdcu_memcpy2d *c)
{
    if (c->row_bytes == 0 || c->rows == 0) {
        return HDCU_SUCCESS;
    }
    side dst_side, src_side;
    hdi_host_op op = {.kind = HDI_HOST_OP_COPY};
    if (!host_op_side_of(c->dst_type, c->dst_host, c->dst_device, c->dst_x_bytes, c->dst_y, c->dst_pitch,
                         &op.u.copy.dst, &dst_side) ||
        !host_op_side_of(c->src_type, c->src_host, c->src_device, c->src_x_bytes, c->src_y, c->src_pitch,
                         &op.u.copy.src, &src_side) ||
        !host_op_pitch_fits(c->dst_pitch, c->dst_x_bytes, c->row_bytes) ||
        !host_op_pitch_fits(c->src_pitch, c->src_x_bytes, c->row_bytes) ||
        c->rows > (size_t)PTRDIFF_MAX / HDI_HOST_PITCH_MAX) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    op.u.copy.bytes = c->row_bytes;
    op.u.copy.rows = c->rows;
    op.u.copy.dst_pitch = c->dst_pitch;
    op.u.copy.src_pitch = c->src_pitch;
    return host_op_look_up_and_submit(stream, &op, dst_side, src_side, false);
}

static hdcu_result host_op_copy_async(hdcu_deviceptr dst, side dst_side, hdcu_deviceptr src, side src_side,
                                      size_t bytes, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        r = host_op_submit_copy(stream, dst, dst_side, src, src_side, bytes, false);
    }
    return hdi_host_leave(r);
}

static hdcu_result host_op_copy_now(hdcu_deviceptr dst, side dst_side, hdcu_deviceptr src, side src_side, size_t bytes)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids_null(context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = host_op_submit_copy(context->null_stream, dst, dst_side, src, src_side, bytes, true);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemcpyHtoD(hdcu_deviceptr dst, const void *src, size_t bytes)
{
    return host_op_copy_now(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_ANY, bytes);
}

static hdcu_result cuMemcpyDtoH(void *dst, hdcu_deviceptr src, size_t bytes)
{
    return host_op_copy_now((uintptr_t)dst, SIDE_ANY, src, SIDE_DEVICE, bytes);
}

static hdcu_result cuMemcpyAsync(hdcu_deviceptr dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream)
{
    return host_op_copy_async(dst, SIDE_ANY, src, SIDE_ANY, bytes, stream);
}

static hdcu_result cuMemcpyHtoDAsync(hdcu_deviceptr dst, const void *src, size_t bytes, hdcu_stream stream)
{
    return host_op_copy_async(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_ANY, bytes, stream);
}

static hdcu_result cuMemcpyDtoHAsync(void *dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream)
{
    return host_op_copy_async((uintptr_t)dst, SIDE_ANY, src, SIDE_DEVICE, bytes, stream);
}

static hdcu_result cuMemcpyDtoDAsync(hdcu_deviceptr dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream)
{
    return host_op_copy_async(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes, stream);
}

static hdcu_result cuMemcpyPeerAsync(hdcu_deviceptr dst, hdcu_context dst_context, hdcu_deviceptr src,
                                     hdcu_context src_context, size_t bytes, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(dst_context, &context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(src_context, &context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(stream_handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        r = host_op_submit_copy(stream, dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes, false);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemcpy2DAsync(const hdcu_memcpy2d *rows, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        r = rows ? host_op_submit_rows(stream, rows) : HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_leave(r);
}

static hdcu_result host_op_fill_async(hdcu_deviceptr dst, uint32_t value, unsigned width, size_t count,
                                      hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r != HDCU_SUCCESS || count == 0) {
        return hdi_host_leave(r);
    }
    if (dst == 0 || dst % width != 0 || count > SIZE_MAX / width ||
        hdi_host_reach_of(stream->context->device, dst, count * width) != HDI_HOST_REACHABLE) {
        return hdi_host_leave(HDCU_ERROR_INVALID_VALUE);
    }
    hdi_host_op op = {.kind = HDI_HOST_OP_FILL};
    op.u.fill.dst = dst;
    op.u.fill.value = value;
    op.u.fill.width = width;
    op.u.fill.bytes = count * width;
    return hdi_host_leave(hdi_host_submit(stream, &op));
}

static hdcu_result cuMemsetD8Async(hdcu_deviceptr dst, unsigned char value, size_t count, hdcu_stream stream)
{
    return host_op_fill_async(dst, value, 1, count, stream);
}

static hdcu_result cuStreamWriteValue32(hdcu_stream stream, hdcu_deviceptr address, unsigned value, unsigned flags)
{
    return flags == HDCU_STREAM_WRITE_VALUE_DEFAULT ? host_op_fill_async(address, value, 4, 1, stream)
                                                    : HDCU_ERROR_INVALID_VALUE;
}

static hdcu_result cuMemsetD32Async(hdcu_deviceptr dst, unsigned value, size_t count, hdcu_stream stream)
{
    return host_op_fill_async(dst, value, 4, count, stream);
}

/* ---- launches ---- */

static hdcu_result host_kernel_check_shape(const hdi_host_function *f, const uint32_t grid[3], const uint32_t block[3],
                                           unsigned shared_bytes)
{
    static const uint32_t grid_max[3] = {2147483647, 65535, 65535}, block_max[3] = {1024, 1024, 64};
    for (int d = 0; d < 3; d++) {
        if (grid[d] == 0 || grid[d] > grid_max[d] || block[d] == 0 || block[d] > block_max[d]) {
            return HDCU_ERROR_INVALID_VALUE;
        }
    }
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads > 1024 || shared_bytes > (unsigned)f->dynamic_shared_max) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    return f->kernel->max_threads > 0 && threads > f->kernel->max_threads ? HDCU_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                                          : HDCU_SUCCESS;
}

static hdcu_result host_kernel_from_extra(char *block, size_t block_bytes, void **extra)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; *extra != HDCU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == HDCU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == HDCU_LAUNCH_PARAM_BUFFER_SIZE && extra[1]) {
            bytes = *(const size_t *)extra[1];
        } else {
            return HDCU_ERROR_INVALID_VALUE;
        }
    }
    if ((!buffer && block_bytes > 0) || bytes < block_bytes) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (block_bytes > 0) {
        memcpy(block, buffer, block_bytes);
    }
    return HDCU_SUCCESS;
}

static hdcu_result host_kernel_copy_arguments(hdi_host_op *op, const hd_cpu_kernel *kernel, void **parameters,
                                              void **extra)
{
    uint32_t n = kernel->n_params;
    if ((parameters && extra) || (!parameters && !extra && n > 0)) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    size_t bytes = kernel->argument_bytes;
    char *block = hdi_host_op_data(op, bytes ? bytes : 1);
    if (!block) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    memset(block, 0, bytes);
    if (extra) {
        return host_kernel_from_extra(block, bytes, extra);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!parameters[i]) {
            return HDCU_ERROR_INVALID_VALUE;
        }
        memcpy(block + kernel->params[i].offset, parameters[i], kernel->params[i].size);
    }
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_kernel_op(const hdcu_kernel_node_params *p, const hdi_host_context *context, hdi_host_op *op)
{
    hdi_host_function *f = hdi_host_handle_find(HDI_HOST_FUNCTION, (uintptr_t)p->function);
    if (!f || f->module->context != context) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    uint32_t grid[3] = {p->grid_x, p->grid_y, p->grid_z}, block[3] = {p->block_x, p->block_y, p->block_z};
    hdcu_result r = host_kernel_check_shape(f, grid, block, p->shared_bytes);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    if (!hdi_cpu_reserve(block[0] * block[1] * block[2], &f->module->storage)) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    *op = (hdi_host_op){.kind = HDI_HOST_OP_KERNEL};
    memcpy(op->u.kernel.grid, grid, sizeof grid);
    memcpy(op->u.kernel.block, block, sizeof block);
    op->u.kernel.module = f->module;
    op->u.kernel.kernel = f->kernel;
    op->u.kernel.dynamic_shared_bytes = p->shared_bytes;
    f->module->references++;
    r = host_kernel_copy_arguments(op, f->kernel, p->parameters, p->extra);
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(op, r);
    }
    return r;
}

static hdcu_result cuLaunchKernel(hdcu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                  hdcu_stream stream_handle, void **parameters, void **extra)
{
    hdi_host_stream *stream;
    hdi_host_op op;
    const hdcu_kernel_node_params p = {
        .function = function,
        .grid_x = grid_x,
        .grid_y = grid_y,
        .grid_z = grid_z,
        .block_x = block_x,
        .block_y = block_y,
        .block_z = block_z,
        .shared_bytes = shared_bytes,
        .parameters = parameters,
        .extra = extra,
    };
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_kernel_op(&p, stream->context, &op);
    }
    return hdi_host_leave(r == HDCU_SUCCESS ? hdi_host_submit(stream, &op) : r);
}

static hdcu_result cuLaunchHostFunc(hdcu_stream stream_handle, hdcu_host_fn function, void *user_data)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS && !function) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_op op = {.kind = HDI_HOST_OP_CALL, .u.call = {function, user_data}};
        r = hdi_host_submit(stream, &op);
    }
    return hdi_host_leave(r);
}

/* ---- the entry points ---- */

const hdi_driver hdi_host_run_entries = {
    .cuMemcpyHtoD = cuMemcpyHtoD,
    .cuMemcpyDtoH = cuMemcpyDtoH,
    .cuMemcpyAsync = cuMemcpyAsync,
    .cuMemcpyHtoDAsync = cuMemcpyHtoDAsync,
    .cuMemcpyDtoHAsync = cuMemcpyDtoHAsync,
    .cuMemcpyDtoDAsync = cuMemcpyDtoDAsync,
    .cuMemcpyPeerAsync = cuMemcpyPeerAsync,
    .cuMemcpy2DAsync = cuMemcpy2DAsync,
    .cuMemsetD8Async = cuMemsetD8Async,
    .cuStreamWriteValue32 = cuStreamWriteValue32,
    .cuMemsetD32Async = cuMemsetD32Async,
    .cuLaunchKernel = cuLaunchKernel,
    .cuLaunchHostFunc = cuLaunchHostFunc,
};
