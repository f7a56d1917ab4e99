/* process.c - facts about the system and this process: kernel, modules, namespaces, limits, memory
 * policy, other programs.
 *
 * This file reads only listed words of the kernel's command line. If a fact cannot be read, it is
 * recorded as missing, and never as "no".
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
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "cli/doctor/collect.h"

/* The kernel's first namespaces have fixed numbers (include/linux/proc_ns.h). */
#define IPC_FIRST "ipc:[4026531839]"
#define PID_FIRST "pid:[4026531836]"

static const char *doctor_process_yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* ---- the system ---- */

/* Reads whether a module is loaded. If neither folder exists, as in a sandbox, the answer is
 * unknown. */
static void doctor_process_read_loaded(const char *root, const char *path, const char *other, const char *key,
                                       doctor_snapshot *s)
{
    bool there = cli_system_exists(root, path) || (other && cli_system_exists(root, other));
    if (there || cli_system_exists(root, "/sys/module")) {
        doctor_put(s, doctor_process_yes_no(there), "module.%s", key);
    } else {
        doctor_miss(s, "/sys/module cannot be read", "module.%s", key);
    }
}

/* If the folder of a feature is missing, the feature is off. If the parent folder is also missing,
 * the state of the feature is unknown. */
static void doctor_process_read_optional(const char *root, const char *above, long long value, const char *key,
                                         doctor_snapshot *s)
{
    if (value >= 0) {
        doctor_put_number(s, value, "system.%s", key);
    } else if (cli_system_exists(root, above)) {
        doctor_put_number(s, 0, "system.%s", key);
    } else {
        char reason[96];
        snprintf(reason, sizeof(reason), "%s cannot be read", above);
        doctor_miss(s, reason, "system.%s", key);
    }
}

static void doctor_process_read_kernel(const char *root, doctor_snapshot *s)
{
    char line[8192];
    struct utsname names;
    bool readable;
    if (!root[0] && uname(&names) == 0) {
        doctor_put(s, names.release, "system.kernel");
        doctor_put(s, names.machine, "system.machine");
    }
    if (cli_system_find_line(root, "/proc/cpuinfo", "flags", line, sizeof(line), &readable)) {
        doctor_put(s, doctor_process_yes_no(strstr(line, " hypervisor")), "system.hypervisor");
    } else {
        doctor_miss(s, "/proc/cpuinfo names no flags", "system.hypervisor");
    }
    doctor_put(s, doctor_process_yes_no(cli_system_exists(root, "/dev/dxg")), "system.wsl");
    doctor_process_read_loaded(root, "/sys/module/nvidia", "/proc/driver/nvidia/version", "nvidia", s);
    doctor_process_read_loaded(root, "/sys/module/nouveau", NULL, "nouveau", s);
    doctor_put(s, doctor_process_yes_no(cli_system_exists(root, "/dev/nvidiactl")), "device_files.control");
    doctor_put(s, doctor_process_yes_no(cli_system_exists(root, "/dev/nvidia-uvm")), "device_files.uvm");
    doctor_process_read_optional(root, "/sys/class", cli_system_count_entries(root, "/sys/class/infiniband"),
                                 "infiniband", s);
    doctor_process_read_optional(root, "/proc/sys/kernel",
                                 cli_system_read_number(root, -1, "/proc/sys/kernel/yama/ptrace_scope"), "ptrace_scope",
                                 s);
}

/* Records only those words of the kernel's command line that rules need; other words may identify
 * the machine. */
static void doctor_process_read_command_line(const char *root, doctor_snapshot *s)
{
    static const char *const wanted[] = {"iommu=",     "intel_iommu=", "amd_iommu=",          "pci=",
                                         "pcie_aspm=", "nouveau.",     "modprobe.blacklist=", "rd.driver.blacklist="};
    char line[4096], kept[DOCTOR_VALUE_BYTES] = "";
    size_t used = 0;
    if (!cli_system_read_line(root, line, sizeof(line), "/proc/cmdline")) {
        doctor_miss(s, "/proc/cmdline cannot be read", "system.command_line");
        return;
    }
    char *rest = line;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        if (strstr(word, "blacklist=") && !strstr(word, "nouveau") && !strstr(word, "nvidia")) {
            continue;
        }
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
            if (strncmp(word, wanted[i], strlen(wanted[i])) == 0 && used + strlen(word) + 2 < sizeof(kept)) {
                used += (size_t)snprintf(kept + used, sizeof(kept) - used, "%s%s", used ? " " : "", word);
            }
        }
    }
    doctor_put(s, kept[0] ? kept : "none", "system.command_line");
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build" */
static void doctor_process_read_module(const char *root, doctor_snapshot *s)
{
    char line[1024];
    bool readable;
    if (!cli_system_read_module(root, line, sizeof(line))) {
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
    if (!cli_system_find_line(root, "/proc/driver/nvidia/params", "RegistryDwords:", line, sizeof(line), &readable)) {
        doctor_miss(s, "/proc/driver/nvidia/params cannot be read", "driver.registry");
    } else if (strstr(line, "P2P") || strstr(line, "PeerMapping")) {
        doctor_put(s, line + strlen("RegistryDwords:") + strspn(line + strlen("RegistryDwords:"), " \t"),
                   "driver.registry");
    } else {
        doctor_put(s, "none", "driver.registry");
    }
}

static void doctor_process_read_nodes(const char *root, doctor_snapshot *s)
{
    char line[DOCTOR_VALUE_BYTES];
    int nodes = 0;
    for (int i = 0; i < 64; i++) {
        if (cli_system_read_line(root, line, sizeof(line), "/sys/devices/system/node/node%d/cpulist", i)) {
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

static void doctor_process_read_namespace(const char *root, const char *kind, const char *first, const char *key,
                                          doctor_snapshot *s)
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

static bool doctor_process_has_value(const doctor_snapshot *s, const char *key, const char *value)
{
    const doctor_fact *f = doctor_find(s, key);
    return f && f->value && strcmp(f->value, value) == 0;
}

/* Reads two namespaces of this process. If one of them is not the system's first, the process is in
 * a container. If both are the system's first, the process is in no container. Otherwise the answer
 * is unknown. */
static void doctor_process_read_container(doctor_snapshot *s)
{
    bool own = doctor_process_has_value(s, "process.ipc_namespace", "own") ||
               doctor_process_has_value(s, "process.pid_namespace", "own");
    bool none = doctor_process_has_value(s, "process.ipc_namespace", "the system's") &&
                doctor_process_has_value(s, "process.pid_namespace", "the system's");
    if (own || none) {
        doctor_put(s, doctor_process_yes_no(own), "system.container");
    } else {
        doctor_miss(s, "/proc/self/ns cannot be read", "system.container");
    }
}

/* Reads the nodes of a binding policy, such as that of numactl --membind. False: there is no such
 * policy, or it cannot be read (*known is false). */
static bool doctor_process_read_binding(char out[DOCTOR_VALUE_BYTES], bool *known)
{
    /* include/uapi/linux/mempolicy.h */
    enum { NODES = 1024, BITS = 8 * sizeof(long), BIND = 2, STATIC = 1 << 15 };
    unsigned long mask[NODES / BITS] = {0};
    int mode = 0;
    size_t used = 0;
    *known = syscall(SYS_get_mempolicy, &mode, mask, (unsigned long)NODES, NULL, 0ul) == 0;
    for (unsigned i = 0; *known && (mode & ~STATIC) == BIND && i < NODES && used + 8 < DOCTOR_VALUE_BYTES; i++) {
        if (mask[i / BITS] >> i % BITS & 1) {
            used += (size_t)snprintf(out + used, DOCTOR_VALUE_BYTES - used, "%s%u", used ? "," : "", i);
        }
    }
    return used > 0;
}

/* Reads the nodes for memory from the policy, or else from the cpuset. */
static void doctor_process_read_memory_nodes(const char *root, doctor_snapshot *s)
{
    char list[DOCTOR_VALUE_BYTES], line[512];
    bool known = true, readable;
    if (!root[0] && doctor_process_read_binding(list, &known)) {
        doctor_put(s, list, "process.memory_nodes");
    } else if (!known) {
        doctor_miss(s, "the memory policy cannot be read here", "process.memory_nodes");
    } else if (cli_system_find_line(root, "/proc/self/status", "Mems_allowed_list:", line, sizeof(line), &readable)) {
        char *at = line + strlen("Mems_allowed_list:");
        doctor_put(s, at + strspn(at, " \t"), "process.memory_nodes");
    } else {
        doctor_miss(s, "/proc/self/status cannot be read", "process.memory_nodes");
    }
}

static void doctor_process_read_limits(const char *root, doctor_snapshot *s)
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
    if (cli_system_find_line(root, "/proc/self/limits", "Max locked memory", line, sizeof(line), &readable)) {
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
    if (cli_system_find_line(root, "/proc/self/status", "Cpus_allowed_list:", line, sizeof(line), &readable)) {
        char *at = line + strlen("Cpus_allowed_list:");
        doctor_put(s, at + strspn(at, " \t"), "process.cpus");
    } else {
        doctor_miss(s, "/proc/self/status cannot be read", "process.cpus");
    }
}

/* ---- other programs ---- */

/* A program that was not found counts as absent only if this process can see the processes of other
 * users. It can if it sees process 1, because process 1 belongs to another user. */
static void doctor_process_put_program(bool found, bool all, const char *yes, const char *no, const char *key,
                                       doctor_snapshot *s)
{
    if (found || all) {
        doctor_put(s, found ? yes : no, "%s", key);
    } else {
        doctor_miss(s, "/proc does not show the processes of others", "%s", key);
    }
}

/* /proc truncates names to 15 characters. */
static void doctor_process_read_programs(const char *root, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES], name[64];
    bool mps = false, fabric = false, persistence = false, all = false;
    snprintf(path, sizeof(path), "%s/proc", root);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            cli_system_read_line(root, name, sizeof(name), "/proc/%.20s/comm", entry->d_name)) {
            all |= strcmp(entry->d_name, "1") == 0;
            mps |= strncmp(name, "nvidia-cuda-mps", 15) == 0;
            fabric |= strncmp(name, "nv-fabricmanage", 15) == 0;
            persistence |= strncmp(name, "nvidia-persiste", 15) == 0;
        }
    }
    if (directory) {
        closedir(directory);
    }
    doctor_process_put_program(mps, all, "yes", "no", "mps.server", s);
    /* a container does not show these programs */
    if (fabric || !doctor_process_has_value(s, "system.container", "yes")) {
        doctor_process_put_program(fabric, all, "running", "not running", "fabric.manager", s);
    }
    doctor_process_put_program(persistence, all, "yes", "no", "system.persistence_daemon", s);
}

void doctor_read_system(const char *root, doctor_snapshot *s)
{
    doctor_process_read_kernel(root, s);
    doctor_process_read_command_line(root, s);
    doctor_process_read_module(root, s);
    doctor_process_read_nodes(root, s);
    doctor_process_read_namespace(root, "ipc", IPC_FIRST, "ipc_namespace", s);
    doctor_process_read_namespace(root, "pid", PID_FIRST, "pid_namespace", s);
    doctor_process_read_container(s);
    doctor_process_read_limits(root, s);
    doctor_process_read_memory_nodes(root, s);
    doctor_read_cgroup(root, s);
    doctor_process_read_programs(root, s);
    doctor_read_environment(s);
}
