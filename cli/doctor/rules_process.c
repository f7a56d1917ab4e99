/* rules_process.c - rules about what surrounds this process: limits, containers, and variables of the environment.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/rules.h"

#include <stdlib.h>
#include <string.h>

#define AREA "limits"
#define ENVIRONMENT "environment"

enum { QUEUES_FEWEST = 8, SHM_LEAST_MIB = 1024, MEMLOCK_LEAST_KIB = 65536, PTRACE_ADMIN = 2, NO_DEVICE = 100 };

/* ---- limits ---- */

static bool in_container(doctor_case *c)
{
    return doctor_is(c, "yes", "system.container");
}

static bool judge_shm(doctor_case *c)
{
    if (!in_container(c)) {
        return false;
    }
    long long mib = doctor_number(c, -1, "system.shm_mib");
    return mib >= 0 && mib < SHM_LEAST_MIB;
}

static bool judge_ipc(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 1 && doctor_is(c, "own", "process.ipc_namespace");
}

/* CUDA pins without this limit; libraries for InfiniBand do not. */
static bool judge_memlock(doctor_case *c)
{
    if (doctor_number(c, 0, "system.infiniband") <= 0) {
        return false;
    }
    long long kib = doctor_number(c, -1, "process.memlock_kib");
    return kib >= 0 && kib < MEMLOCK_LEAST_KIB;
}

static bool judge_ptrace(doctor_case *c)
{
    return doctor_number(c, 0, "system.ptrace_scope") >= PTRACE_ADMIN;
}

/* ---- environment ---- */

static bool judge_connections(doctor_case *c)
{
    long long n = doctor_number(c, 0, "env.CUDA_DEVICE_MAX_CONNECTIONS");
    return n > 0 && n < QUEUES_FEWEST;
}

static bool judge_blocking(doctor_case *c)
{
    long long value = doctor_number(c, 0, "env.CUDA_LAUNCH_BLOCKING");
    return value != 0;
}

static bool judge_lazy(doctor_case *c)
{
    return doctor_is(c, "LAZY", "env.CUDA_MODULE_LOADING");
}

/* The devices that NVML opens; without NVML, all. */
static int opened(doctor_case *c)
{
    int n = doctor_gpus(c->s), known = 0, good = 0, before = c->n;
    for (int i = 0; i < n; i++) {
        const char *state = doctor_maybe(c, "gpu.%d.nvml", i);
        known += state != NULL;
        good += state && strcmp(state, "ok") == 0;
        doctor_drop(c, before);
    }
    return known ? good : n;
}

/* CUDA ends the list at the first entry that is none. Where the first is a number that there is, something else is wrong. */
bool doctor_hides_all(doctor_case *c)
{
    const char *list = doctor_look(c, "env.CUDA_VISIBLE_DEVICES");
    if (!list || strcmp(list, "(not set)") == 0 || doctor_number(c, 0, "gpus") <= 0) {
        return false;
    }
    if (list[0] == 0 || list[0] == '-' || strcmp(list, "NoDevFiles") == 0) {
        return true;
    }
    int n = opened(c);
    if (n == 0 || doctor_number_maybe(c, 0, "driver.init") != NO_DEVICE) {
        return false;
    }
    char *end;
    long first = strtol(list, &end, 10);
    return end == list || first >= n;
}

static bool judge_hidden(doctor_case *c)
{
    return doctor_hides_all(c);
}

/* Where CUDA's numbers are there, they decide; else devices of several kinds. */
static bool judge_order(doctor_case *c)
{
    int n = doctor_gpus(c->s);
    if (doctor_number(c, 0, "gpus") < 2) {
        return false;
    }
    doctor_drop(c, 0);
    bool variable = doctor_is_not(c, "PCI_BUS_ID", "env.CUDA_DEVICE_ORDER");
    bool numbered = false, moved = false;
    for (int i = 0, last = -1; i < n && variable; i++) {
        int number = (int)doctor_number_maybe(c, -1, "gpu.%d.cuda_number", i);
        numbered |= number >= 0;
        moved |= number >= 0 && number < last;
        last = number >= 0 ? number : last;
    }
    if (numbered || !variable) {
        return moved;
    }
    const char *first = doctor_look(c, "gpu.0.name");
    for (int i = 1; i < n && first; i++) {
        int before = c->n;
        const char *name = doctor_maybe(c, "gpu.%d.name", i);
        if (name && strcmp(name, first) != 0) {
            return true;
        }
        doctor_drop(c, before);
    }
    return false;
}

static bool judge_option(doctor_case *c)
{
    return doctor_is(c, "wrong", "env.options");
}

static bool judge_peers_off(doctor_case *c)
{
    return doctor_is(c, "off", "env.HEDDLE_PEERS") || doctor_number(c, 0, "env.NCCL_P2P_DISABLE") > 0;
}

static bool judge_peers_trusted(doctor_case *c)
{
    return doctor_is(c, "trust", "env.HEDDLE_PEERS");
}

const doctor_rule doctor_rules_process[] = {
    {"devices-hidden", DOCTOR_ERROR, DOCTOR_MACHINE, ENVIRONMENT, "CUDA_VISIBLE_DEVICES hides all devices",
     "there are devices, and programs find none",
     "unset CUDA_VISIBLE_DEVICES, or list devices in it that there are (nvidia-smi -L)", false, judge_hidden},
    {"option-wrong", DOCTOR_ERROR, DOCTOR_MACHINE, ENVIRONMENT,
     "a variable HEDDLE_* has a value that is none of its own",
     "every program that opens Heddle fails, and CUDA was not asked here",
     "heddle info shows which one and what it may be", false, judge_option},
    {"shm-small", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "/dev/shm of this container is small",
     "NCCL and data loaders put their buffers there, and fail with \"No space left on device\" or a bus error",
     "docker run --shm-size=8g, or --ipc=host", false, judge_shm},
    {"memlock", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "little memory may be locked, and there is InfiniBand",
     "registering memory for the network fails", "ulimit -l unlimited; for a container --ulimit memlock=-1", true,
     judge_memlock},
    {"max-connections", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA_DEVICE_MAX_CONNECTIONS allows few hardware queues",
     "lanes and streams that share a queue hold each other up",
     "unset CUDA_DEVICE_MAX_CONNECTIONS; the option queues of Heddle then decides", false, judge_connections},
    {"launch-blocking", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA_LAUNCH_BLOCKING makes every launch wait for its end", "nothing overlaps any more",
     "unset CUDA_LAUNCH_BLOCKING", false, judge_blocking},
    {"peers-trusted", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT,
     "HEDDLE_PEERS=trust takes the driver's word on peer access", "bytes that get lost between devices are not noticed",
     "unset HEDDLE_PEERS", false, judge_peers_trusted},
    {"ipc-namespace", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "this container has an IPC namespace of its own",
     "memory cannot be shared with processes outside by CUDA's IPC handles",
     "docker run --ipc=host, or pass descriptors (hd_buffer_export)", false, judge_ipc},
    {"ptrace", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "processes may not look into each other (ptrace_scope)",
     "libraries that fetch descriptors from another process fail; debuggers do, too",
     "sysctl kernel.yama.ptrace_scope=1; 3 stays until a restart, so set it in /etc/sysctl.d and restart", true,
     judge_ptrace},
    {"lazy-loading", DOCTOR_NOTE, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA_MODULE_LOADING=LAZY loads kernels at their first launch",
     "a first launch waits for what runs on the device, and measurements contain the loading",
     "CUDA_MODULE_LOADING=EAGER", false, judge_lazy},
    {"device-order", DOCTOR_NOTE, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA numbers the devices in another order than nvidia-smi",
     "with devices of several kinds CUDA puts the fastest first; numbers here are in the order of the bus",
     "CUDA_DEVICE_ORDER=PCI_BUS_ID", false, judge_order},
    {"peers-off", DOCTOR_NOTE, DOCTOR_MACHINE, ENVIRONMENT, "a variable turns peer access off",
     "copies are staged although devices may reach each other", "unset HEDDLE_PEERS and NCCL_P2P_DISABLE", false,
     judge_peers_off},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL}};
