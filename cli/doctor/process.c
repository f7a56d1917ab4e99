/* process.c - facts about the system and this process: kernel, modules, namespaces, limits, other programs, variables.
 *
 * Of the environment only variables in the list are read, and of the kernel's command line only words in the list.
 * Threads: one at a time. Locks: none.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "cli/doctor/collect.h"

/* The kernel's first namespaces have fixed numbers (include/linux/proc_ns.h). */
#define IPC_FIRST "ipc:[4026531839]"
#define PID_FIRST "pid:[4026531836]"

static const char *yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* ---- the system ---- */

static void read_kernel(const char *root, doctor_snapshot *s)
{
    char line[8192];
    struct utsname names;
    bool readable;
    if (!root[0] && uname(&names) == 0) {
        doctor_put(s, names.release, "system.kernel");
        doctor_put(s, names.machine, "system.machine");
    }
    if (system_find_line(root, "/proc/cpuinfo", "flags", line, sizeof(line), &readable)) {
        doctor_put(s, yes_no(strstr(line, " hypervisor")), "system.hypervisor");
    } else {
        doctor_miss(s, "/proc/cpuinfo names no flags", "system.hypervisor");
    }
    doctor_put(s, yes_no(system_exists(root, "/dev/dxg")), "system.wsl");
    doctor_put(s,
               yes_no(system_exists(root, "/sys/module/nvidia") || system_exists(root, "/proc/driver/nvidia/version")),
               "module.nvidia");
    doctor_put(s, yes_no(system_exists(root, "/sys/module/nouveau")), "module.nouveau");
    doctor_put(s, yes_no(system_exists(root, "/dev/nvidiactl")), "device_files.control");
    doctor_put(s, yes_no(system_exists(root, "/dev/nvidia-uvm")), "device_files.uvm");
    int adapters = system_count_entries(root, "/sys/class/infiniband");
    doctor_put_number(s, adapters > 0 ? adapters : 0, "system.infiniband");
    doctor_put_number(s, system_read_number(root, 0, "/proc/sys/kernel/yama/ptrace_scope"), "system.ptrace_scope");
}

/* Words of the kernel's command line that matter here; others may identify the machine. */
static void read_command_line(const char *root, doctor_snapshot *s)
{
    static const char *const wanted[] = {"iommu=",     "intel_iommu=", "amd_iommu=",          "pci=",
                                         "pcie_aspm=", "nouveau.",     "modprobe.blacklist=", "rd.driver.blacklist="};
    char line[4096], kept[DOCTOR_VALUE_BYTES] = "";
    size_t used = 0;
    if (!system_read_line(root, line, sizeof(line), "/proc/cmdline")) {
        doctor_miss(s, "/proc/cmdline cannot be read", "system.command_line");
        return;
    }
    char *rest = line;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
            if (strncmp(word, wanted[i], strlen(wanted[i])) == 0 && used + strlen(word) + 2 < sizeof(kept)) {
                used += (size_t)snprintf(kept + used, sizeof(kept) - used, "%s%s", used ? " " : "", word);
            }
        }
    }
    doctor_put(s, kept[0] ? kept : "none", "system.command_line");
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build" */
static void read_module(const char *root, doctor_snapshot *s)
{
    char line[1024];
    bool readable;
    if (!system_read_module(root, line, sizeof(line))) {
        doctor_miss(s, "/proc/driver/nvidia/version cannot be read", "driver.module");
    } else {
        doctor_put(s, strstr(line, "Open") ? "open" : "proprietary", "driver.kind");
        char *rest = line;
        for (char *word; (word = strtok_r(rest, " \t", &rest));) {
            if (isdigit((unsigned char)word[0]) && strchr(word, '.')) {
                doctor_put(s, word, "driver.module");
            }
        }
    }
    if (!system_find_line(root, "/proc/driver/nvidia/params", "RegistryDwords:", line, sizeof(line), &readable)) {
        doctor_miss(s, "/proc/driver/nvidia/params cannot be read", "driver.registry");
    } else if (strstr(line, "P2P") || strstr(line, "PeerMapping")) {
        doctor_put(s, line + strlen("RegistryDwords:") + strspn(line + strlen("RegistryDwords:"), " \t"),
                   "driver.registry");
    } else {
        doctor_put(s, "none", "driver.registry");
    }
}

static void read_nodes(const char *root, doctor_snapshot *s)
{
    char line[DOCTOR_VALUE_BYTES];
    int nodes = 0;
    for (int i = 0; i < 64; i++) {
        if (system_read_line(root, line, sizeof(line), "/sys/devices/system/node/node%d/cpulist", i)) {
            doctor_put(s, line, "node.%d.cpus", i);
            nodes++;
        }
    }
    if (nodes) {
        doctor_put_number(s, nodes, "system.nodes");
    } else {
        doctor_miss(s, "/sys/devices/system/node cannot be read", "system.nodes");
    }
}

/* ---- this process ---- */

static void read_namespace(const char *root, const char *kind, const char *first, const char *key, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES], target[64];
    snprintf(path, sizeof(path), "%s/proc/self/ns/%s", root, kind);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0) {
        doctor_miss(s, "/proc/self/ns cannot be read", "process.%s", key);
        return;
    }
    target[length] = 0;
    doctor_put(s, strcmp(target, first) == 0 ? "the system's" : "own", "process.%s", key);
}

static bool has_value(const doctor_snapshot *s, const char *key, const char *value)
{
    const doctor_fact *f = doctor_find(s, key);
    return f && f->value && strcmp(f->value, value) == 0;
}

static void read_limits(const char *root, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES], line[512];
    struct statvfs shm;
    bool readable;
    snprintf(path, sizeof(path), "%s/dev/shm", root);
    if (statvfs(path, &shm) == 0) {
        doctor_put_number(s, (long long)((unsigned long long)shm.f_frsize * shm.f_blocks >> 20), "system.shm_mib");
    } else {
        doctor_miss(s, "/dev/shm is not there", "system.shm_mib");
    }
    if (system_find_line(root, "/proc/self/limits", "Max locked memory", line, sizeof(line), &readable)) {
        char *at = line + strlen("Max locked memory");
        char *end = at;
        unsigned long long bytes = strtoull(at, &end, 10);
        if (end > at) {
            doctor_put_number(s, (long long)(bytes >> 10), "process.memlock_kib");
        } else {
            doctor_put(s, "unlimited", "process.memlock_kib");
        }
    } else {
        doctor_miss(s, "/proc/self/limits cannot be read", "process.memlock_kib");
    }
    if (system_find_line(root, "/proc/self/status", "Cpus_allowed_list:", line, sizeof(line), &readable)) {
        char *at = line + strlen("Cpus_allowed_list:");
        doctor_put(s, at + strspn(at, " \t"), "process.cpus");
    } else {
        doctor_miss(s, "/proc/self/status cannot be read", "process.cpus");
    }
}

/* ---- other programs ---- */

/* Names have 15 characters in /proc. */
static void read_programs(const char *root, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES], name[64];
    bool mps = false, fabric = false, persistence = false;
    snprintf(path, sizeof(path), "%s/proc", root);
    DIR *directory = opendir(path);
    if (!directory) {
        doctor_miss(s, "/proc cannot be read", "mps.server");
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            system_read_line(root, name, sizeof(name), "/proc/%.20s/comm", entry->d_name)) {
            mps |= strncmp(name, "nvidia-cuda-mps", 15) == 0;
            fabric |= strncmp(name, "nv-fabricmanage", 15) == 0;
            persistence |= strncmp(name, "nvidia-persiste", 15) == 0;
        }
    }
    closedir(directory);
    doctor_put(s, yes_no(mps), "mps.server");
    if (fabric || !has_value(s, "system.container", "yes")) { /* from inside a container it cannot be seen */
        doctor_put(s, fabric ? "running" : "not running", "fabric.manager");
    }
    doctor_put(s, yes_no(persistence), "system.persistence_daemon");
}

/* ---- the environment ---- */

static void read_environment(doctor_snapshot *s)
{
    static const char *const names[] = {"CUDA_DEVICE_MAX_CONNECTIONS",
                                        "CUDA_DEVICE_ORDER",
                                        "CUDA_LAUNCH_BLOCKING",
                                        "CUDA_MODULE_LOADING",
                                        "CUDA_VISIBLE_DEVICES",
                                        "HEDDLE_DRIVER",
                                        "HEDDLE_PEERS",
                                        "HEDDLE_PLACEMENT",
                                        "NCCL_P2P_DISABLE",
                                        "NCCL_P2P_LEVEL",
                                        "NCCL_SHM_DISABLE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = secure_getenv(names[i]);
        if (value) {
            doctor_put(s, value, "env.%s", names[i]);
        } else {
            doctor_put(s, "(not set)", "env.%s", names[i]);
        }
    }
    doctor_put(s, yes_no(secure_getenv("CUDA_MPS_PIPE_DIRECTORY")), "mps.directory_set"); /* a path may have names */
}

void doctor_read_system(const char *root, doctor_snapshot *s)
{
    read_kernel(root, s);
    read_command_line(root, s);
    read_module(root, s);
    read_nodes(root, s);
    read_namespace(root, "ipc", IPC_FIRST, "ipc_namespace", s);
    read_namespace(root, "pid", PID_FIRST, "pid_namespace", s);
    bool container = has_value(s, "process.ipc_namespace", "own") || has_value(s, "process.pid_namespace", "own");
    doctor_put(s, yes_no(container), "system.container");
    read_limits(root, s);
    read_programs(root, s);
    read_environment(s);
}
