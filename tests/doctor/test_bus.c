/* test_bus.c - facts of devices and of the system, from made-up trees of /sys, /proc and /dev.
 *
 * Promise: Facts about devices and system match /sys, /proc and /dev; a missing one costs itself.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/doctor/collect.h"
#include "cli/doctor/findings.h"

#define PCI "/sys/bus/pci/devices/"
#define PORT "pci0000:17/0000:17:01.0"
#define FIRST PORT "/0000:18:01.0"
#define SECOND PORT "/0000:18:02.0"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/test-doctor-bus-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_folders(const char *path)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = folder + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(folder, 0755);
        *at = '/';
    }
}

static void put_bytes(const char *name, const void *bytes, size_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    make_folders(path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void put_link(const char *name, const char *target)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    make_folders(path);
    assert_int_equal(symlink(target, path), 0);
}

/* Makes a file of a device below /sys/devices. */
static void put_at(const char *place, const char *file, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "/sys/devices/%s/%s", place, file);
    put(name, text);
}

static void put_device(const char *place, const char *class)
{
    char name[256], target[256];
    const char *slash = strrchr(place, '/');
    put_at(place, "vendor", "0x10de\n");
    put_at(place, "class", class);
    snprintf(name, sizeof name, PCI "%s", slash + 1);
    snprintf(target, sizeof target, "../../../devices/%s", place);
    put_link(name, target);
}

static void put_links(const char *place, const char *width, const char *width_max)
{
    put_at(place, "current_link_speed", "16.0 GT/s PCIe\n");
    put_at(place, "max_link_speed", "16.0 GT/s PCIe\n");
    put_at(place, "current_link_width", width);
    put_at(place, "max_link_width", width_max);
}

static void expect(const doctor_snapshot *s, const char *key, const char *value)
{
    const doctor_fact *f = doctor_find(s, key);
    const char *is = f && f->value ? f->value : NULL;
    if (value ? !is || strcmp(is, value) != 0 : is != NULL) {
        fail_msg("%s is %s, not %s", key, is ? is : "missing", value ? value : "missing");
    }
}

static void nothing_is_found_on_an_empty_system(void **state)
{
    (void)state;
    doctor_buses buses = {.n = 0};
    doctor_snapshot s = {0};
    doctor_findings f;
    doctor_read_system(root, &s);
    doctor_read_bus(root, &buses, &s);
    assert_int_equal(buses.n, 0);
    expect(&s, "system.wsl", "no");
    expect(&s, "driver.module", NULL);
    expect(&s, "system.nodes", NULL);
    expect(&s, "process.memlock_kib", NULL);
    expect(&s, "process.memory_nodes", NULL);
    static const char *const unknown[] = {"system.container", "system.infiniband", "system.ptrace_scope", "mps.server",
                                          "module.nvidia",    "module.nouveau",    "fabric.manager"};
    /* unreadable facts do not count as absent */
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        expect(&s, unknown[i], NULL);
        assert_non_null(doctor_find(&s, unknown[i]));
    }
    doctor_judge(&s, &f);
    assert_int_equal(f.n, 0);
    doctor_findings_release(&f);
    doctor_release(&s);
}

static void reads_devices(void **state)
{
    (void)state;
    doctor_buses buses = {.n = 0};
    doctor_snapshot s = {0};
    unsigned char bridge[4096] = {0}, gone[64];
    bridge[0x100] = 0x0d, bridge[0x102] = 1, bridge[0x106] = 0x1d;
    memset(gone, 0xff, sizeof gone);
    put_device(PORT, "0x060400\n"); /* a bridge of the same vendor is no device */
    put_bytes("/sys/devices/" PORT "/config", bridge, sizeof bridge);
    put_links(PORT, "8\n", "8\n");
    put_device(PORT "/0000:1c:00.0", "0x030200\n");
    put_device(PORT "/0000:1b:00.0", "0x030000\n");
    put_device("pci0000:17/0000:17:05.0", "0x068000\n");
    put_device(PORT "/0000:1b:00.4", "0x030200\n"); /* a virtual function is no device either */
    put_link("/sys/devices/" PORT "/0000:1b:00.4/physfn", "../0000:1b:00.0");
    put_links(PORT "/0000:1b:00.0", "8\n", "16\n");
    put_links(PORT "/0000:1c:00.0", "255\n", "16\n");
    put_at(PORT "/0000:1b:00.0", "numa_node", "1\n");
    put_at(PORT "/0000:1b:00.0", "resource", "0x0 0x0 0x0\n0x10000000 0x1fffffff 0x14220c\n");
    put_bytes("/sys/devices/" PORT "/0000:1c:00.0/config", gone, sizeof gone);
    put_link("/sys/devices/" PORT "/0000:1b:00.0/iommu_group", "../../../../kernel/iommu_groups/7");
    put_link("/sys/devices/" PORT "/0000:1b:00.0/driver", "../../../../bus/pci/drivers/nouveau");
    put("/sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
    put("/dev/kmsg",
        "6,1,2,-;NVRM: loading\n3,2,3,-;NVRM: Xid (PCI:0000:1C:00): 79, pid=1, GPU has fallen off the bus.\n"
        "3,3,4,-;NVRM: Xid (PCI:0000:1c:00): 31, x\n3,3,5,-;NVRM: Xid (PCI:0000:1c:00): 79, x\n");
    doctor_read_bus(root, &buses, &s);
    assert_int_equal(buses.n, 2);
    expect(&s, "gpu.0.bus", "0000:1b:00.0");
    expect(&s, "system.nvswitches", "1");
    expect(&s, "gpu.0.kernel_driver", "nouveau");
    expect(&s, "gpu.1.kernel_driver", "none");
    expect(&s, "gpu.0.iommu", "DMA-FQ");
    expect(&s, "gpu.0.iommu_group", "7");
    expect(&s, "gpu.1.iommu", NULL);
    expect(&s, "gpu.0.acs", "0000:17:01.0=0x001d");
    expect(&s, "gpu.0.link_width", "8");
    expect(&s, "gpu.0.link_width_max", "16");
    expect(&s, "gpu.0.slot_width_max", "8");
    expect(&s, "gpu.0.link_mts", "16000");
    expect(&s, "gpu.1.link_width", NULL);
    expect(&s, "gpu.0.window_mib", "256");
    expect(&s, "gpu.0.node", "1");
    expect(&s, "gpu.0.config", NULL);
    expect(&s, "gpu.1.config", "gone");
    expect(&s, "gpu.0.xid", "none");
    expect(&s, "gpu.1.xid", "79, 31");
    expect(&s, "pair.0.1.path", "same switch");
    doctor_release(&s);
}

/* Two devices with a bridge above the second. The log lists each in the formats of several
 * kernels. */
static void read_the_log(const char *log, doctor_snapshot *s)
{
    static bool there;
    doctor_buses buses = {.n = 0};
    if (!there) {
        put_device(PORT, "0x060400\n");
        put_device(PORT "/0000:1c:00.0", "0x030200\n");
        put_device("pci0000:00/0000:0b:00.0", "0x030200\n");
        put_device("pci0001:00/0001:0b:00.0", "0x030200\n");
    }
    there = true;
    put("/dev/kmsg", log);
    doctor_read_bus(root, &buses, s);
    assert_int_equal(buses.n, 3);
}

static void reads_the_kernel_log(void **state)
{
    (void)state;
    static const struct {
        const char *line, *key, *value;
    } lines[] = {
        {"DMAR: [DMA Write] Request device [0b:00.0] fault addr ffff000 [fault reason 05] x", "gpu.0.iommu_faults",
         "1"},
        {"DMAR: [DMA Read NO_PASID] Request device [1c:00.0] fault addr 0xff [fault reason 0x06]", "gpu.1.iommu_faults",
         "1"},
        {"DMAR: [DMA Read] Request device [1c:00.1] fault addr 0xff", "gpu.1.iommu_faults", "0"},
        {"DMAR: [DMA Read] Request device [0b:00.0] fault addr 0xff", "gpu.2.iommu_faults", "0"},
        {"AMD-Vi: Event logged [IO_PAGE_FAULT device=0b:00.0 domain=0x000f address=0x0 flags=0x0020]",
         "gpu.0.iommu_faults", "1"},
        {"nvidia 0001:0b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x0]", "gpu.2.iommu_faults",
         "1"},
        {"nvidia 0001:0b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x0]", "gpu.0.iommu_faults",
         "0"},
        {"pci 0000:0b:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]", "gpu.0.window_failed",
         "pci 0000:0b:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]"},
        {"pci 0000:1c:00.0: BAR 1 [mem size 0x10000000 64bit pref]: can't assign; no space", "gpu.1.window_failed",
         "pci 0000:1c:00.0: BAR 1 [mem size 0x10000000 64bit pref]: can't assign; no space"},
        {"pci 0000:0b:00.0: BAR 6: no space for [mem size 0x00080000 pref]", "gpu.0.window_failed", "no"},
        {"pci 0000:0b:00.0: BAR 5: no space for [io  size 0x0080]", "gpu.0.window_failed", "no"},
        {"pci 0000:0b:00.0: VF BAR 0 [mem size 0x10000000]: can't assign; no space", "gpu.0.window_failed", "no"},
        {"pci 0000:17:01.0: BAR 15: no space for [mem size 0x1000 64bit pref]", "gpu.1.window_failed",
         "pci 0000:17:01.0: BAR 15: no space for [mem size 0x1000 64bit pref]"},
        {"pci 0000:17:01.0: bridge window [mem size 0x1000 64bit pref]: can't assign; no space", "gpu.0.window_failed",
         "no"},
        {"pci 0000:17:01.0: bridge window [mem size 0x1000 64bit pref]: can't assign; no space\n"
         "6,1,2,-;pci 0000:17:01.0: bridge window [mem 0x1000-0x1fff 64bit pref]: assigned",
         "gpu.1.window_failed", "no"},
        {"pci 0000:0b:00.0: BAR 1: no space for [mem size 0x1000 64bit pref]\n"
         "6,1,2,-;pci 0000:0b:00.0: BAR 1: failed to assign [mem size 0x1000 64bit pref]\n"
         "6,1,2,-;pci 0000:0b:00.0: BAR 1: assigned [mem 0x1000-0x1fff 64bit pref]",
         "gpu.0.window_failed", "no"},
        {"pci 0000:0b:00.0: BAR 1: no space for [mem size 0x1000 64bit pref]\n"
         "6,1,2,-;pci 0000:0b:00.0: BAR 3: assigned [mem 0x1000-0x1fff 64bit pref]",
         "gpu.0.window_failed", "pci 0000:0b:00.0: BAR 1: no space for [mem size 0x1000 64bit pref]"},
        {"NVRM: GPU 0000:0b:00.0: RmInitAdapter failed! (0x24:0x65:1459)", "gpu.0.driver_log",
         "GPU 0000:0b:00.0: RmInitAdapter failed! (0x24:0x65:1459)"},
        {"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0aNVRM: BAR1 is 0M @ 0x0 "
         "(PCI:0000:1c:00.0)",
         "gpu.1.driver_log",
         "This PCI I/O region assigned to your NVIDIA device is invalid: BAR1 is 0M @ 0x0 (PCI:0000:1c:00.0)"},
        {"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05", "driver.log", "none"},
        {"NVRM: GPU at PCI:0000:0b:00: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "gpu.0.driver_log", "none"},
        {"NVRM: API mismatch: the client has the version 570.1, but", "driver.log",
         "API mismatch: the client has the version 570.1, but"},
        {"NVRM: Xid (PCI:0000:0b:00): 13, pid=7, name=secret, failed", "gpu.0.driver_log", "none"},
        {"NVRM: nvAssertFailedNoLog: Assertion failed: x", "driver.log", "none"},
        {"usb 1-1: device descriptor read failed", "driver.log", "none"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        doctor_snapshot s = {0};
        char log[512];
        snprintf(log, sizeof log, "6,1,2,-;NVRM: loading\n3,2,3,-;%s\n SUBSYSTEM=pci\n", lines[i].line);
        read_the_log(log, &s);
        expect(&s, lines[i].key, lines[i].value);
        doctor_release(&s);
    }
}

/* Device files: one that can be opened, one that is missing, and one that cannot be opened. The
 * driver lacks the fourth device. */
static void reads_whether_devices_may_be_opened(void **state)
{
    (void)state;
    doctor_buses buses = {.n = 0};
    doctor_snapshot s = {0};
    char path[512];
    for (int i = 0; i < 4; i++) {
        char place[64], name[128], text[64];
        snprintf(place, sizeof place, PORT "/0000:1%d:00.0", i);
        put_device(place, "0x030200\n");
        snprintf(name, sizeof name, "/proc/driver/nvidia/gpus/0000:1%d:00.0/information", i);
        snprintf(text, sizeof text, "Model: \t\t x\nDevice Minor: \t %d\n", 3 - i);
        if (i < 3) {
            put(name, text);
        }
    }
    put_at(PORT "/0000:10:00.0", "numa_node", "0\n");
    put("/dev/nvidia3", "");
    put("/dev/nvidia1", "");
    snprintf(path, sizeof path, "%s/dev/nvidia1", root);
    assert_int_equal(chmod(path, 0), 0);
    doctor_read_bus(root, &buses, &s);
    expect(&s, "gpu.0.file", "may be opened");
    expect(&s, "gpu.1.file", "is missing");
    expect(&s, "gpu.2.file", geteuid() == 0 ? "may be opened" : "may not be opened");
    expect(&s, "gpu.3.file", NULL);
    expect(&s, "gpu.0.node", "0");
    expect(&s, "gpu.1.node", NULL);
    doctor_release(&s);
}

static void what_only_root_can_read_is_marked(void **state)
{
    (void)state;
    doctor_buses buses = {.n = 0};
    doctor_snapshot s = {0};
    unsigned char config[64] = {0xde, 0x10};
    put_device(PORT, "0x060400\n");
    put_bytes("/sys/devices/" PORT "/config", config, sizeof config);
    put_device(PORT "/0000:1b:00.0", "0x030200\n");
    put_bytes("/sys/devices/" PORT "/0000:1b:00.0/config", config, sizeof config);
    doctor_read_bus(root, &buses, &s);
    const char *reason = geteuid() == 0 ? "not even root" : DOCTOR_ROOT;
    assert_contains(doctor_find(&s, "gpu.0.acs")->reason, reason);
    assert_contains(doctor_find(&s, "gpu.0.xid")->reason, reason);
    expect(&s, "gpu.0.config", "ok");
    doctor_release(&s);
}

static bool is_found(const doctor_findings *f, const char *id)
{
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->list[i].rule->id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* Two devices below one switch; the second is on a riser, far from the processors of this
 * process. */
static void put_causes(void)
{
    unsigned char bridge[4096] = {0};
    bridge[0x100] = 0x0d, bridge[0x102] = 1, bridge[0x106] = 0x1d;
    static const char *const ports[] = {PORT, FIRST, SECOND};
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++) {
        char config[256];
        put_device(ports[i], "0x060400\n");
        snprintf(config, sizeof config, "/sys/devices/%s/config", ports[i]);
        put_bytes(config, bridge, sizeof bridge);
        put_links(ports[i], "4\n", "4\n");
    }
    put_device(FIRST "/0000:1b:00.0", "0x030200\n");
    put_device(SECOND "/0000:1c:00.0", "0x030200\n");
    put_links(FIRST "/0000:1b:00.0", "2\n", "4\n");
    put_links(SECOND "/0000:1c:00.0", "4\n", "16\n");
    put_at(FIRST "/0000:1b:00.0", "numa_node", "-1\n");
    put_at(SECOND "/0000:1c:00.0", "numa_node", "1\n");
    put_link("/sys/devices/" FIRST "/0000:1b:00.0/iommu_group", "../../../../kernel/iommu_groups/7");
    put_link("/sys/devices/" FIRST "/0000:1b:00.0/driver", "../../../../bus/pci/drivers/nouveau");
    put_link("/sys/devices/" SECOND "/0000:1c:00.0/driver", "../../../../bus/pci/drivers/nvidia");
    put("/sys/kernel/iommu_groups/7/type", "DMA\n");
    put("/dev/kmsg", "3,2,3,-;NVRM: Xid (PCI:0000:1c:00): 74, NVLink: fatal error\n");
    put("/sys/devices/system/node/node0/cpulist", "0-3\n");
    put("/sys/devices/system/node/node1/cpulist", "4-7\n");
    put("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
    put("/sys/module/nvidia/version", "580.95.05\n");
    put("/proc/cpuinfo", "flags\t\t: fpu avx2\n");
    put("/proc/sys/kernel/yama/ptrace_scope", "3\n");
    put("/proc/driver/nvidia/params", "RegistryDwords: \"RMForceP2PType=1\"\n");
    put("/proc/self/limits", "Max locked memory         65536   65536   bytes\n");
    put("/proc/self/status", "Cpus_allowed_list:\t0-3\n");
    put_link("/proc/self/ns/ipc", "ipc:[4026532999]");
    put("/proc/71/comm", "nvidia-cuda-mps\n");
    put("/dev/shm/x", "");
    put("/dev/nvidiactl", "");
}

/* The causes that files show are found. In a tree without them, the same rules are answered (see
 * test_rules.c). */
static void causes_are_found_in_files(void **state)
{
    (void)state;
    static const char *const causes[] = {"nouveau", "device-files", "iommu",       "acs",          "registry",
                                         "xid",     "link-narrow",  "slot-narrow", "numa-unknown", "numa-far",
                                         "memlock", "ptrace",       "mps",         "ipc-namespace"};
    doctor_buses buses = {.n = 0};
    doctor_snapshot s = {0};
    doctor_findings f;
    put_causes();
    doctor_read_system(root, &s);
    doctor_read_bus(root, &buses, &s);
    doctor_put_number(&s, buses.n, "gpus");
    doctor_put(&s, "yes", "pair.0.1.cuda");
    doctor_put(&s, "yes", "pair.1.0.cuda");
    doctor_judge(&s, &f);
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        if (!is_found(&f, causes[i])) {
            fail_msg("%s is not found", causes[i]);
        }
    }
    doctor_findings_release(&f);
    doctor_release(&s);
}

static void reads_the_system(void **state)
{
    (void)state;
    doctor_snapshot s = {0};
    put("/proc/cpuinfo", "flags\t\t: fpu hypervisor avx2\n");
    put("/proc/cmdline", "root=/dev/mapper/secret host=secret iommu=pt quiet modprobe.blacklist=secret amd_iommu=on "
                         "modprobe.blacklist=nouveau\n");
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (x)\n");
    put("/proc/driver/nvidia/params", "ResmanDebugLevel: 4\nRegistryDwords: \"ForceP2P=17\"\n");
    put("/proc/sys/kernel/yama/ptrace_scope", "2\n");
    put("/sys/devices/system/node/node0/cpulist", "0-3\n");
    put("/sys/devices/system/node/node1/cpulist", "4-7\n");
    put("/proc/self/limits",
        "Limit   Soft Limit   Hard Limit   Units\nMax locked memory         8388608   8388608   bytes\n");
    put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n");
    put("/proc/71/comm", "nvidia-cuda-mps\n");
    put("/proc/72/comm", "secret\n");
    put("/dev/dxg", "");
    put("/dev/nvidiactl", "");
    put_link("/proc/self/ns/ipc", "ipc:[4026532999]");
    put_link("/proc/self/ns/pid", "pid:[4026531836]");
    doctor_read_system(root, &s);
    expect(&s, "system.hypervisor", "yes");
    expect(&s, "system.command_line", "iommu=pt amd_iommu=on modprobe.blacklist=nouveau");
    expect(&s, "driver.module", "580.95.05");
    expect(&s, "driver.kind", "open");
    expect(&s, "driver.registry", "\"ForceP2P=17\"");
    expect(&s, "system.ptrace_scope", "2");
    expect(&s, "system.nodes", "2");
    expect(&s, "node.1.cpus", "4-7");
    expect(&s, "process.memlock_kib", "8192");
    expect(&s, "process.cpus", "0-1");
    expect(&s, "mps.server", "yes");
    expect(&s, "system.wsl", "yes");
    expect(&s, "module.nvidia", "yes");
    expect(&s, "device_files.control", "yes");
    expect(&s, "device_files.uvm", "no");
    expect(&s, "process.ipc_namespace", "own");
    expect(&s, "process.pid_namespace", "the system's");
    expect(&s, "system.container", "yes");
    for (size_t i = 0; i < s.n; i++) {
        assert_true(!s.list[i].value || !strstr(s.list[i].value, "secret"));
    }
    doctor_release(&s);
}

/* The group of this process and the mounts, of both versions. The smallest limit of all groups
 * above counts. */
static void reads_control_groups(void **state)
{
    (void)state;
    static const struct {
        const char *of, *cpu, *memory;
        const char *files[4][2];
    } groups[] = {
        {"0::/\n", "2500", "512", {{"cpu.max", "250000 100000\n"}, {"memory.max", "536870912\n"}}},
        {"0::/a/b\n",
         "1000",
         "1024",
         {{"a/cpu.max", "50000 50000\n"}, {"a/b/cpu.max", "max 100000\n"}, {"a/b/memory.max", "1073741824\n"}}},
        {"0::/not/mounted\n", "500", "none", {{"cpu.max", "50000 100000\n"}, {"memory.max", "max\n"}}},
        {"0::/\n", "none", "none", {{"cpu.max", "max 100000\n"}, {"memory.max", "max\n"}}},
        {"0::/\n", "none", "none", {{"cpu.max", "nonsense\n"}, {"memory.max", "\n"}}},
        {"5:cpu,cpuacct:/d\n4:memory:/d\n",
         "1500",
         "256",
         {{"cpu/d/cpu.cfs_quota_us", "150000\n"},
          {"cpu/cpu.cfs_quota_us", "-1\n"},
          {"memory/d/memory.limit_in_bytes", "268435456\n"},
          {"memory/memory.limit_in_bytes", "9223372036854771712\n"}}},
        {"", NULL, NULL, {{"cpu.max", "1 1\n"}}},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        doctor_snapshot s = {0};
        put("/proc/self/cgroup", groups[i].of);
        if (groups[i].of[0] != '5') {
            put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        }
        for (int k = 0; k < 4 && groups[i].files[k][0]; k++) {
            char name[128];
            snprintf(name, sizeof name, "/sys/fs/cgroup/%s", groups[i].files[k][0]);
            put(name, groups[i].files[k][1]);
        }
        doctor_read_cgroup(root, &s);
        expect(&s, "process.cpu_limit_milli", groups[i].cpu);
        expect(&s, "process.memory_limit_mib", groups[i].memory);
        doctor_release(&s);
        remove_root(NULL);
        assert_int_equal(mkdir(root, 0755), 0);
    }
}

/* A report lists a name only if it is similar to an option. */
static void names_variables_that_are_no_options(void **state)
{
    (void)state;
    static const struct {
        const char *name, *fact;
    } variables[] = {
        {"HEDDLE_MEMORY_LIMT", "HEDDLE_MEMORY_LIMT (did you mean HEDDLE_MEMORY_LIMIT?)"},
        {"HEDDLE_ALICE_SECRET_PROJECT", "(another name)"},
        {"HEDDLE_PEERS", "none"},
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        doctor_snapshot s = {0};
        assert_int_equal(setenv(variables[i].name, "verify", 1), 0);
        doctor_read_environment(&s);
        expect(&s, "env.unknown", variables[i].fact);
        doctor_release(&s);
        assert_int_equal(setenv("HEDDLE_ENVIRONMENT_CHECK", "off", 1), 0);
        doctor_read_environment(&s);
        expect(&s, "env.unknown", NULL);
        doctor_release(&s);
        assert_int_equal(unsetenv("HEDDLE_ENVIRONMENT_CHECK"), 0);
        assert_int_equal(unsetenv(variables[i].name), 0);
    }
}

/* A setting that can be read but is missing counts as off. */
static void reads_what_is_off(void **state)
{
    (void)state;
    doctor_snapshot s = {0};
    put("/proc/1/comm", "init\n");
    put("/proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0-1\n");
    put("/proc/sys/kernel/osrelease", "6\n");
    put("/sys/class/net/x", "");
    put("/sys/module/x/version", "");
    put("/dev/null", "");
    put_link("/proc/self/ns/ipc", "ipc:[4026531839]");
    put_link("/proc/self/ns/pid", "pid:[4026531836]");
    doctor_read_system(root, &s);
    expect(&s, "system.container", "no");
    expect(&s, "system.infiniband", "0");
    expect(&s, "system.ptrace_scope", "0");
    expect(&s, "mps.server", "no");
    expect(&s, "fabric.manager", "not running");
    expect(&s, "module.nvidia", "no");
    expect(&s, "process.memory_nodes", "0-1");
    doctor_release(&s);
}

static void keeps_known_values_of_variables(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *fact;
    } variables[] = {
        {"CUDA_VISIBLE_DEVICES", "", ""},
        {"CUDA_VISIBLE_DEVICES", "0,-1", "0,-1"},
        {"CUDA_VISIBLE_DEVICES", "NoDevFiles", "NoDevFiles"},
        {"CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c,/home/secret,1", "GPU-(a part),(another value),1"},
        {"CUDA_VISIBLE_DEVICES", "8932f937d72c4106c12f20bd9faed9f6", "(another value)"},
        {"CUDA_MODULE_LOADING", "LAZY", "LAZY"},
        {"CUDA_MODULE_LOADING", "secret", "(another value)"},
        {"CUDA_MODULE_LOADING", "LAZY EAGER", "(another value)"},
        {"NCCL_P2P_LEVEL", "PHB", "PHB"},
        {"NCCL_P2P_LEVEL", "/home/secret", "(another value)"},
        {"NCCL_P2P_DISABLE", "1", "1"},
        {"HEDDLE_PEERS", "trust", "trust"},
        {"HEDDLE_PLACEMENT", "/home/secret", "(another value)"},
        {"CUDA_DEVICE_MAX_CONNECTIONS", "32", "32"},
        {"CUDA_DEVICE_MAX_CONNECTIONS", "123456789012", "(another value)"},
    };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        doctor_snapshot s = {0};
        char key[80];
        snprintf(key, sizeof key, "env.%s", variables[i].name);
        assert_int_equal(setenv(variables[i].name, variables[i].value, 1), 0);
        doctor_read_environment(&s);
        assert_int_equal(unsetenv(variables[i].name), 0);
        expect(&s, key, variables[i].fact);
        doctor_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_found_on_an_empty_system, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_devices, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_the_kernel_log, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_whether_devices_may_be_opened, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_control_groups, make_root, remove_root),
        cmocka_unit_test(names_variables_that_are_no_options),
        cmocka_unit_test_setup_teardown(reads_what_is_off, make_root, remove_root),
        cmocka_unit_test_setup_teardown(keeps_known_values_of_variables, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_only_root_can_read_is_marked, make_root, remove_root),
        cmocka_unit_test_setup_teardown(causes_are_found_in_files, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_the_system, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
