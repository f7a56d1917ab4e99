/* test_bus.c - facts of devices and of the system from trees of /sys, /proc and /dev that are made up.
 *
 * Promise: Facts about devices and the system are what /sys, /proc and /dev have, and one that is missing costs itself alone.
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

/* A file of a device at its place below /sys/devices. */
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
    const char *reason = geteuid() == 0 ? "even by root" : DOCTOR_ROOT;
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

/* Of two devices below one switch, the second is on a riser, far from the processors of this process. */
static void put_causes(void)
{
    unsigned char bridge[4096] = {0};
    bridge[0x100] = 0x0d, bridge[0x102] = 1, bridge[0x106] = 0x1d;
    put_device(PORT, "0x060400\n");
    put_bytes("/sys/devices/" PORT "/config", bridge, sizeof bridge);
    put_links(PORT, "4\n", "4\n");
    put_device(PORT "/0000:1b:00.0", "0x030200\n");
    put_device(PORT "/0000:1c:00.0", "0x030200\n");
    put_links(PORT "/0000:1b:00.0", "2\n", "4\n");
    put_links(PORT "/0000:1c:00.0", "4\n", "16\n");
    put_at(PORT "/0000:1b:00.0", "numa_node", "-1\n");
    put_at(PORT "/0000:1c:00.0", "numa_node", "1\n");
    put_link("/sys/devices/" PORT "/0000:1b:00.0/iommu_group", "../../../../kernel/iommu_groups/7");
    put_link("/sys/devices/" PORT "/0000:1b:00.0/driver", "../../../../bus/pci/drivers/nouveau");
    put_link("/sys/devices/" PORT "/0000:1c:00.0/driver", "../../../../bus/pci/drivers/nvidia");
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

/* What files show is found, and a tree without the cause has the same rules answered without it (see test_rules.c). */
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
    put("/proc/cmdline", "root=/dev/mapper/secret host=secret iommu=pt quiet amd_iommu=on\n");
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
    expect(&s, "system.command_line", "iommu=pt amd_iommu=on");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_found_on_an_empty_system, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_devices, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_only_root_can_read_is_marked, make_root, remove_root),
        cmocka_unit_test_setup_teardown(causes_are_found_in_files, make_root, remove_root),
        cmocka_unit_test_setup_teardown(reads_the_system, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
