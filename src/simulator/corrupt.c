/* corrupt.c - peers that fail on purpose: the option host_corrupt. The test of peer access must detect them.
 *
 * Threads: stream threads; the option is parsed on any thread. Locks: runs under the host lock, apart from the parsing.
 * Blocking: the kinds hang and slow sleep, with the lock released.
 * Always: only a device's writes to another device's memory are affected. Stores of kernels are undone afterwards, from a
 * copy of all memory of the other device that the writer may access. So other writes to that memory at the same time may be
 * undone, too.
 */
#include <ctype.h>
#include <heddle/kernel.h>
#include <heddle/module.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/error.h"
#include "base/wait.h"
#include "simulator/host.h"

#define SLOW_BYTES_PER_S 2000000.0 /* far slower than a busy machine */

/* ---------------------------------------------------------------------------------------------------- the option -- */

static const char *const kinds[] = {
    [HDI_HOST_CORRUPT_LOST] = "lost",       [HDI_HOST_CORRUPT_COPIES] = "copies", [HDI_HOST_CORRUPT_STORES] = "stores",
    [HDI_HOST_CORRUPT_ATOMICS] = "atomics", [HDI_HOST_CORRUPT_HANG] = "hang",     [HDI_HOST_CORRUPT_FAULT] = "fault",
    [HDI_HOST_CORRUPT_CRASH] = "crash",     [HDI_HOST_CORRUPT_SLOW] = "slow",
};

static hd_status parse_failed(const char *at)
{
    return hdi_fail(HD_ERROR_OPTION,
                    "option host_corrupt: expected pairs such as 0>1 or 0>1:KIND at \"%.40s\", where KIND is "
                    "lost, copies, stores, atomics, hang, fault, crash or slow",
                    at);
}

/* Reads a device's number at *at, and moves *at past it. -1: there is none. */
static int parse_device(const char **at)
{
    char *end;
    if (!isdigit((unsigned char)**at)) {
        return -1;
    }
    long number = strtol(*at, &end, 10);
    *at = end;
    return number < HDI_HOST_DEVICES_MAX ? (int)number : HDI_HOST_DEVICES_MAX;
}

static hdi_host_corrupt parse_kind(const char **at)
{
    for (unsigned i = 1; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i]);
        if (strncmp(*at, kinds[i], length) == 0 && !isalpha((unsigned char)(*at)[length])) {
            *at += length;
            return (hdi_host_corrupt)i;
        }
    }
    return HDI_HOST_CORRUPT_NONE;
}

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == ';' || c == '\t';
}

hd_status hdi_host_corrupt_parse(const char *text, int devices, uint8_t out[HDI_HOST_DEVICES_MAX][HDI_HOST_DEVICES_MAX])
{
    memset(out, 0, (size_t)HDI_HOST_DEVICES_MAX * HDI_HOST_DEVICES_MAX);
    for (const char *p = text;;) {
        while (is_separator(*p)) {
            p++;
        }
        if (!*p) {
            return HD_OK;
        }
        const char *start = p;
        int writer = parse_device(&p);
        if (writer < 0 || *p != '>') {
            return parse_failed(start);
        }
        p++;
        int owner = parse_device(&p);
        hdi_host_corrupt kind = HDI_HOST_CORRUPT_LOST;
        if (*p == ':') {
            p++;
            kind = parse_kind(&p);
        }
        if (owner < 0 || kind == HDI_HOST_CORRUPT_NONE || (*p && !is_separator(*p))) {
            return parse_failed(start);
        }
        if (writer >= devices || owner >= devices || writer == owner) {
            return hdi_fail(HD_ERROR_OPTION, "option host_corrupt: \"%.40s\" must name two of the %d host devices",
                            start, devices);
        }
        out[writer][owner] = (uint8_t)kind;
    }
}

/* ---------------------------------------------------------------------------------------------------- writes -- */

/* How writes of `device` to this address fail. Copies to memory that it may not access are staged, and arrive. */
static hdi_host_corrupt corruption_of(int device, uintptr_t address)
{
    int owner = hdi_host_owner_of(address);
    bool direct = owner >= 0 && owner != device && hdi_host_reach_of(device, address, 1) == HDI_HOST_REACHABLE;
    return direct ? hdi_host.corrupt[device][owner] : HDI_HOST_CORRUPT_NONE;
}

/* Waits until the context faults or ends. */
static void hang(int device)
{
    const volatile int *cancel = &hdi_host.devices[device].cancel;
    hdi_host_unlock();
    while (!__atomic_load_n(cancel, __ATOMIC_RELAXED)) {
        hdi_sleep_for(1000000);
    }
    hdi_host_lock();
}

/* The kinds that are the same for copies and kernels. Returns the fault. */
static hdcu_result misbehave(int device, hdi_host_corrupt kind)
{
    if (kind == HDI_HOST_CORRUPT_HANG) {
        hang(device);
    } else if (kind == HDI_HOST_CORRUPT_CRASH) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        abort();
    }
    return kind == HDI_HOST_CORRUPT_HANG || kind == HDI_HOST_CORRUPT_FAULT ? HDCU_ERROR_ILLEGAL_ADDRESS : HDCU_SUCCESS;
}

hdcu_result hdi_host_corrupt_copy(int device, uintptr_t dst, size_t bytes, bool *lost)
{
    hdi_host_corrupt kind = corruption_of(device, dst);
    *lost = kind == HDI_HOST_CORRUPT_LOST || kind == HDI_HOST_CORRUPT_COPIES;
    if (kind == HDI_HOST_CORRUPT_SLOW) {
        hdi_host_unlock();
        hdi_sleep_for((int64_t)((double)bytes * 1e9 / SLOW_BYTES_PER_S));
        hdi_host_lock();
    }
    return misbehave(device, kind);
}

/* ---------------------------------------------------------------------------------------------------- kernels -- */

typedef struct piece {
    uintptr_t start;
    size_t bytes;
    void *content;
} piece;

struct hdi_host_snapshot {
    int owner;
    size_t count;
    piece pieces[];
};

static void snapshot_free(hdi_host_snapshot *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->pieces[i].content);
    }
    free(s);
}

/* Copies all memory of `owner` that `device` may access. NULL: out of memory. */
static hdi_host_snapshot *snapshot_take(int device, int owner)
{
    hdi_host_snapshot *s = calloc(1, sizeof *s + hdi_host_mappings.count * sizeof s->pieces[0]);
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

void hdi_host_snapshot_restore(hdi_host_snapshot *s)
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

hdcu_result hdi_host_corrupt_kernel(int device, const hd_cpu_kernel *kernel, const char *arguments,
                                    hdi_host_snapshot **out)
{
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        const hd_cpu_param *p = &kernel->params[i];
        uint64_t address = 0;
        if (p->kind != HD_ARG_BUFFER || p->size != sizeof address || !(p->access & HD_WRITE)) {
            continue;
        }
        memcpy(&address, arguments + p->offset, sizeof address);
        hdi_host_corrupt kind = corruption_of(device, (uintptr_t)address);
        hdcu_result r = misbehave(device, kind);
        if (r != HDCU_SUCCESS) {
            return r;
        }
        bool updates = (p->access & HD_READ_WRITE) == HD_READ_WRITE;
        if (kind == HDI_HOST_CORRUPT_LOST || kind == HDI_HOST_CORRUPT_STORES ||
            (kind == HDI_HOST_CORRUPT_ATOMICS && updates)) {
            *out = snapshot_take(device, hdi_host_owner_of((uintptr_t)address));
            return *out ? HDCU_SUCCESS : HDCU_ERROR_LAUNCH_FAILED;
        }
    }
    return HDCU_SUCCESS;
}
