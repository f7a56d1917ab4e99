/* links.c - measures copies between each device and pinned memory near it, and copies within the
 * device, with the driver's own calls.
 *
 * Threads: the conductor, which runs near the device meanwhile. Locks: none.
 * Always: after the measurements, the thread may run on the same processors as before.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "cli/p2p/parts.h"

/* The memory for the cases of one device. In cases of both directions, the copies in the opposite
 * direction are twice as large. */
typedef struct link_memory {
    p2p_memory host[2], device[2];
} link_memory;

static bool p2p_links_take_memory(p2p_experiment *x, int device, link_memory *m, char *error)
{
    memset(m, 0, sizeof(*m));
    for (int i = 0; i < 2; i++) {
        size_t bytes = x->bytes << i, chain = P2P_CHAIN_BYTES;
        if (!p2p_take(x, device, bytes, &m->device[i], error) ||
            !p2p_take(x, -1, bytes < chain ? chain : bytes, &m->host[i], error)) {
            return false;
        }
        m->host[i].bytes = bytes;
    }
    return true;
}

/* nvbandwidth (testcases_ce.cpp, testcases_sm.cpp): HostToDevice*, DeviceToHost*,
 * HostToDeviceBidirCE, DeviceToHostBidirCE, HostDeviceLatencySM, DeviceLocalCopy. In cases of both
 * directions, only the figure of the first direction is reported. */
static bool p2p_links_run_device(p2p_experiment *x, int device, const link_memory *m, char *error)
{
    char text[64];
    double values[P2P_JOBS_MAX];
    bool ok = true;
    const p2p_memory *h = m->host, *d = m->device;
    const struct {
        p2p_link_id id;
        bool by_kernel;
        int n;
        const p2p_memory *dst[2], *src[2];
    } cases[] = {
        {P2P_TO_DEVICE_CE, false, 1, {&d[0]}, {&h[0]}},
        {P2P_TO_HOST_CE, false, 1, {&h[0]}, {&d[0]}},
        {P2P_TO_DEVICE_BOTH_CE, false, 2, {&d[0], &h[1]}, {&h[0], &d[1]}},
        {P2P_TO_HOST_BOTH_CE, false, 2, {&h[0], &d[1]}, {&d[0], &h[1]}},
        {P2P_TO_DEVICE_SM, true, 1, {&d[0]}, {&h[0]}},
        {P2P_TO_HOST_SM, true, 1, {&h[0]}, {&d[0]}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && ok; i++) {
        p2p_job jobs[2];
        for (int k = 0; k < cases[i].n; k++) {
            jobs[k] = (p2p_job){
                .dst = cases[i].dst[k], .src = cases[i].src[k], .on = device, .by_kernel = cases[i].by_kernel};
        }
        snprintf(text, sizeof(text), "device %d, %s", device, p2p_links[cases[i].id].text);
        ok = p2p_measure(x, text, jobs, cases[i].n, values, error);
        x->links[cases[i].id][device] = ok ? values[0] : NAN;
    }
    p2p_memory half = d[1];
    half.bytes = x->bytes;
    p2p_job local = {.dst = &half, .src = &d[0], .on = device};
    snprintf(text, sizeof(text), "device %d, inside the device", device);
    ok = ok && p2p_measure(x, text, &local, 1, values, error);
    x->links[P2P_LOCAL_CE][device] = ok ? values[0] : NAN;
    snprintf(text, sizeof(text), "device %d, loads of a kernel from pinned memory", device);
    return ok && p2p_chase(x, text, device, &h[0], &x->links[P2P_HOST_LATENCY_SM][device], error);
}

/* nvbandwidth (inline_common.h, setOptimalCpuAffinity) moves to the processors next to the device
 * before it allocates pinned memory, so that the memory is near. The system lists these processors,
 * such as "0-31,64-95". False: it lists none. */
static bool p2p_links_near_processors(const char *bus_id, cpu_set_t *out)
{
    char path[128], list[4096], *at = list;
    int used = snprintf(path, sizeof(path), "/sys/bus/pci/devices/");
    for (; *bus_id && used < 80; bus_id++) {
        path[used++] = (char)(*bus_id >= 'A' && *bus_id <= 'F' ? *bus_id - 'A' + 'a' : *bus_id);
    }
    snprintf(path + used, sizeof(path) - (size_t)used, "/local_cpulist");
    FILE *file = fopen(path, "re");
    bool got = file && fgets(list, sizeof(list), file);
    if (file) {
        fclose(file);
    }
    CPU_ZERO(out);
    while (got && *at >= '0' && *at <= '9') {
        long first = strtol(at, &at, 10), last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        for (long i = first; i <= last && i < CPU_SETSIZE; i++) {
            CPU_SET((int)i, out);
        }
        at += *at == ',';
    }
    return CPU_COUNT(out) > 0;
}

int p2p_links_steps(const p2p_experiment *x)
{
    return x->n;
}

bool p2p_links_run(p2p_experiment *x, char *error)
{
    cpu_set_t before, near;
    bool known = sched_getaffinity(0, sizeof(before), &before) == 0;
    for (int i = 0; i < x->n; i++) {
        char text[32];
        link_memory m = {.host = {{.device = -1}, {.device = -1}}};
        snprintf(text, sizeof(text), "device %d", i);
        p2p_step(x, "devices and pinned memory", text);
        if (known && p2p_links_near_processors(x->devices[i].info.bus_id, &near)) {
            CPU_AND(&near, &near, &before);
            bool none = CPU_COUNT(&near) == 0;
            sched_setaffinity(0, sizeof(near), none ? &before : &near);
        }
        x->code = HDCU_SUCCESS;
        bool ok =
            p2p_enter(x, i, error) && p2p_links_take_memory(x, i, &m, error) && p2p_links_run_device(x, i, &m, error);
        for (int k = 0; k < 2; k++) {
            p2p_give(x, &m.device[k]);
            p2p_give(x, &m.host[k]);
        }
        if (known) {
            sched_setaffinity(0, sizeof(before), &before);
        }
        if (!ok && hdi_driver_code_is_fatal(x->code)) {
            return false;
        }
        if (!ok) {
            p2p_note(x, "device %d and pinned memory: not all was measured: %.400s", i, error);
        }
    }
    return true;
}
