/* rules_process.c - rules about the environment of this process: limits, containers, and
 * environment variables.
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

static bool doctor_process_case_in_container(doctor_case *c)
{
    return doctor_is(c, "yes", "system.container");
}

static bool doctor_process_judge_shm(doctor_case *c)
{
    if (!doctor_process_case_in_container(c)) {
        return false;
    }
    long long mib = doctor_number(c, -1, "system.shm_mib");
    return mib >= 0 && mib < SHM_LEAST_MIB;
}

static bool doctor_process_judge_ipc(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 1 && doctor_is(c, "own", "process.ipc_namespace");
}

/* CUDA can pin memory beyond this limit, but libraries for InfiniBand cannot. */
static bool doctor_process_judge_memlock(doctor_case *c)
{
    if (doctor_number(c, 0, "system.infiniband") <= 0) {
        return false;
    }
    long long kib = doctor_number(c, -1, "process.memlock_kib");
    return kib >= 0 && kib < MEMLOCK_LEAST_KIB;
}

/* The limit on processors should allow one processor for each device, and one for the program. Host
 * devices are processors themselves. */
static bool doctor_process_judge_cpu_limit(doctor_case *c)
{
    long long limit = doctor_number(c, -1, "process.cpu_limit_milli");
    return limit >= 0 && doctor_is_not(c, "host", "driver.provider") && doctor_number(c, 0, "gpus") > 0 &&
           limit < 1000 * (doctor_number(c, 0, "gpus") + 1);
}

/* Finds a limit below the memory of the largest device. */
static bool doctor_process_judge_memory_limit(doctor_case *c)
{
    long long limit = doctor_number(c, -1, "process.memory_limit_mib");
    for (int i = 0; limit >= 0 && i < doctor_gpus(c->s); i++) {
        int before = c->n;
        if (doctor_number(c, 0, "gpu.%d.memory_mib", i) > limit && doctor_is_not(c, "host", "driver.provider")) {
            return true;
        }
        doctor_drop(c, before);
    }
    return false;
}

static bool doctor_process_judge_ptrace(doctor_case *c)
{
    return doctor_number(c, 0, "system.ptrace_scope") >= PTRACE_ADMIN;
}

/* ---- environment ---- */

static bool doctor_process_judge_connections(doctor_case *c)
{
    long long n = doctor_number(c, 0, "env.CUDA_DEVICE_MAX_CONNECTIONS");
    return n > 0 && n < QUEUES_FEWEST;
}

static bool doctor_process_judge_blocking(doctor_case *c)
{
    long long value = doctor_number(c, 0, "env.CUDA_LAUNCH_BLOCKING");
    return value != 0;
}

static bool doctor_process_judge_lazy(doctor_case *c)
{
    return doctor_is(c, "LAZY", "env.CUDA_MODULE_LOADING");
}

/* Returns the number of devices that NVML opens; without NVML, the number of all devices. */
static int doctor_process_case_opened_devices(doctor_case *c)
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

/* CUDA reads the list up to the first invalid entry. If the first entry is a valid number, the list
 * is not the problem. */
bool doctor_hides_all(doctor_case *c)
{
    const char *list = doctor_look(c, "env.CUDA_VISIBLE_DEVICES");
    if (!list || strcmp(list, "(not set)") == 0 || doctor_number(c, 0, "gpus") <= 0) {
        return false;
    }
    if (list[0] == 0 || list[0] == '-' || strcmp(list, "NoDevFiles") == 0) {
        return true;
    }
    int n = doctor_process_case_opened_devices(c);
    if (n == 0 || doctor_number_maybe(c, 0, "driver.init") != NO_DEVICE) {
        return false;
    }
    char *end;
    long first = strtol(list, &end, 10);
    return end == list || first >= n;
}

static bool doctor_process_judge_hidden(doctor_case *c)
{
    return doctor_hides_all(c);
}

/* Compares CUDA's device numbers if they are known. Otherwise it looks for devices of different
 * kinds. */
static bool doctor_process_judge_order(doctor_case *c)
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

static bool doctor_process_judge_option(doctor_case *c)
{
    return doctor_is(c, "wrong", "env.options");
}

static bool doctor_process_judge_unknown(doctor_case *c)
{
    const char *list = doctor_look(c, "env.unknown");
    return list && strcmp(list, "none") != 0;
}

static bool doctor_process_judge_peers_off(doctor_case *c)
{
    return doctor_is(c, "off", "env.HEDDLE_PEERS") || doctor_number(c, 0, "env.NCCL_P2P_DISABLE") > 0;
}

static bool doctor_process_judge_peers_trusted(doctor_case *c)
{
    return doctor_is(c, "trust", "env.HEDDLE_PEERS");
}

const doctor_rule doctor_rules_process[] = {
    {"devices-hidden", DOCTOR_ERROR, DOCTOR_MACHINE, ENVIRONMENT, "CUDA_VISIBLE_DEVICES hides all devices",
     "there are devices, but programs find none",
     "unset CUDA_VISIBLE_DEVICES, or list only existing devices in it (nvidia-smi -L)", false,
     doctor_process_judge_hidden, DOCTOR_NO_CAUSE, 0},
    {"option-wrong", DOCTOR_ERROR, DOCTOR_MACHINE, ENVIRONMENT, "a variable HEDDLE_* has an invalid value",
     "hd_open fails in every program, and heddle doctor did not start CUDA",
     "heddle info shows the variable and its valid values", false, doctor_process_judge_option, DOCTOR_NO_CAUSE, 0},
    {"shm-small", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "/dev/shm of this container is small",
     "NCCL and data loaders put their buffers there, and fail with \"No space left on device\" or a bus error",
     "docker run --shm-size=8g, or --ipc=host", false, doctor_process_judge_shm, DOCTOR_NO_CAUSE, 0},
    {"memlock", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "this process may lock little memory, and there is InfiniBand",
     "registering memory for the network fails", "ulimit -l unlimited; start a container with --ulimit memlock=-1",
     true, doctor_process_judge_memlock, DOCTOR_NO_CAUSE, 0},
    {"cpu-limit", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "a control group limits this process to few processors",
     "Heddle has one thread for each device, and more for copies and callbacks; at the limit all threads stop for "
     "milliseconds",
     "give the process one processor for each device, and one more: docker run --cpus, limits.cpu of a pod, CPUQuota "
     "of a service",
     false, doctor_process_judge_cpu_limit, DOCTOR_NO_CAUSE, 0},
    {"memory-limit", DOCTOR_WARNING, DOCTOR_MACHINE, AREA,
     "a control group limits the memory of this process to less than a device has",
     "pinned memory and the pages of files that are read count; beyond the limit the kernel kills the program",
     "raise the limit: docker run --memory, limits.memory of a pod, MemoryMax of a service. The option pinned_limit "
     "bounds the memory that Heddle pins",
     false, doctor_process_judge_memory_limit, DOCTOR_NO_CAUSE, 0},
    {"max-connections", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA_DEVICE_MAX_CONNECTIONS allows few hardware queues",
     "lanes and streams that share a queue hold each other up",
     "unset CUDA_DEVICE_MAX_CONNECTIONS; the option hw_queues of Heddle then decides", false,
     doctor_process_judge_connections, DOCTOR_NO_CAUSE, 0},
    {"launch-blocking", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA_LAUNCH_BLOCKING makes every launch wait until its kernel ends", "no work overlaps any more",
     "unset CUDA_LAUNCH_BLOCKING", false, doctor_process_judge_blocking, DOCTOR_NO_CAUSE, 0},
    {"variable-unknown", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT,
     "a variable HEDDLE_* names no option, so Heddle ignores it", "the option that was meant keeps its default",
     "correct the name, or unset the variable; heddle info lists all variables", false, doctor_process_judge_unknown,
     DOCTOR_NO_CAUSE, 0},
    {"peers-trusted", DOCTOR_WARNING, DOCTOR_MACHINE, ENVIRONMENT, "HEDDLE_PEERS=trust uses peer access without a test",
     "Heddle does not notice that bytes get lost between devices", "unset HEDDLE_PEERS", false,
     doctor_process_judge_peers_trusted, DOCTOR_NO_CAUSE, 0},
    {"ipc-namespace", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "this container has an IPC namespace of its own",
     "processes outside cannot share memory through CUDA's IPC handles",
     "use docker run --ipc=host, or pass descriptors (hd_buffer_export)", false, doctor_process_judge_ipc,
     DOCTOR_NO_CAUSE, 0},
    {"ptrace", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "processes may not attach to each other (ptrace_scope)",
     "libraries that fetch descriptors from another process fail, and so do debuggers",
     "sysctl kernel.yama.ptrace_scope=1. The value 3 stays until a restart: set 1 in /etc/sysctl.d, and restart", true,
     doctor_process_judge_ptrace, DOCTOR_NO_CAUSE, 0},
    {"lazy-loading", DOCTOR_NOTE, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA_MODULE_LOADING=LAZY loads kernels at their first launch",
     "the first launch of a kernel waits for the work on the device, and measurements include the loading",
     "set CUDA_MODULE_LOADING=EAGER", false, doctor_process_judge_lazy, DOCTOR_NO_CAUSE, 0},
    {"device-order", DOCTOR_NOTE, DOCTOR_MACHINE, ENVIRONMENT,
     "CUDA numbers the devices in another order than nvidia-smi",
     "with devices of several kinds, CUDA gives the fastest device number 0; numbers here are in the order of the bus",
     "set CUDA_DEVICE_ORDER=PCI_BUS_ID", false, doctor_process_judge_order, DOCTOR_NO_CAUSE, 0},
    {"peers-off", DOCTOR_NOTE, DOCTOR_MACHINE, ENVIRONMENT, "a variable turns peer access off",
     "copies are staged, although the devices may reach each other", "unset HEDDLE_PEERS and NCCL_P2P_DISABLE", false,
     doctor_process_judge_peers_off, DOCTOR_NO_CAUSE, 0},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL, DOCTOR_NO_CAUSE, 0}};
