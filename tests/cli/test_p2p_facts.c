/* test_p2p_facts.c - the report of `heddle p2p` about a machine's /sys and /proc, with made-up
 * trees.
 *
 * Promise: Facts match a machine's /sys and /proc; a missing or damaged file loses only its fact.
 * Threads: one. Locks: none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/p2p/facts.h"

#define GIB ((uint64_t)1 << 30)

static char root[64];
static p2p_facts facts;

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/test-p2p-facts-XXXXXX");
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
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *at = folder + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(folder, 0755);
        *at = '/';
    }
}

static void put_bytes(const char *name, const void *bytes, size_t count)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", root, name);
    make_folders(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static void put_link(const char *name, const char *target)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", root, name);
    make_folders(path);
    assert_int_equal(symlink(target, path), 0);
}

/* Writes a configuration space with one extended capability before the control services, which
 * contain this control word. */
static void put_config(const char *folder, unsigned control, size_t bytes)
{
    unsigned char config[4096] = {0};
    char path[256];
    config[0x100] = 0x01, config[0x102] = 0x01,
    config[0x103] = 0x20; /* error reporting, version 1; the next one is at 0x200 */
    config[0x200] = 0x0d, config[0x202] = 0x01;
    config[0x206] = (unsigned char)control, config[0x207] = (unsigned char)(control >> 8);
    snprintf(path, sizeof(path), "%s/config", folder);
    put_bytes(path, config, bytes);
}

/* Makes a device or bridge at a path below /sys/devices, and its link in the list of all. */
static void put_device(const char *path)
{
    char folder[256], name[128], target[256];
    snprintf(folder, sizeof(folder), "/sys/devices/%s", path);
    snprintf(name, sizeof(name), "/sys/bus/pci/devices/%s", strrchr(path, '/') + 1);
    snprintf(target, sizeof(target), "../../../devices/%s", path);
    char keep[300];
    snprintf(keep, sizeof(keep), "%s/vendor", folder);
    put(keep, "0x10de\n");
    put_link(name, target);
}

static void put_file(const char *path, const char *name, const char *text)
{
    char file[300];
    snprintf(file, sizeof(file), "/sys/devices/%s/%s", path, name);
    put(file, text);
}

/* Makes a GPU on a good link, whose window shows all of its memory. */
static void put_gpu(const char *path, const char *group)
{
    char target[128], link[300];
    put_device(path);
    put_file(path, "current_link_speed", "32.0 GT/s PCIe\n");
    put_file(path, "max_link_speed", "32.0 GT/s PCIe\n");
    put_file(path, "current_link_width", "16\n");
    put_file(path, "max_link_width", "16\n");
    put_file(path, "numa_node", "0\n");
    put_file(path, "resource",
             "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n"
             "0x0000200000000000 0x0000203fffffffff 0x000000000014220c\n");
    if (group) {
        snprintf(link, sizeof(link), "/sys/devices/%s/iommu_group", path);
        snprintf(target, sizeof(target), "../../../../kernel/iommu_groups/%s", group);
        put_link(link, target);
    }
}

static const p2p_fact *find(const char *id, int device)
{
    for (int i = 0; i < facts.n; i++) {
        if (strcmp(facts.list[i].id, id) == 0 && facts.list[i].device == device) {
            return &facts.list[i];
        }
    }
    return NULL;
}

static void expect(const char *id, int device, p2p_state state, const char *text)
{
    const p2p_fact *f = find(id, device);
    assert_non_null(f);
    if (f->state != state || !strstr(f->text, text)) {
        fail_msg("%s of %d: %s, \"%s\"; expected %s, \"%s\"", id, device, p2p_state_text(f->state), f->text,
                 p2p_state_text(state), text);
    }
    if (f->state == P2P_PROBLEM) {
        assert_true(f->remedy[0]); /* states a remedy */
    }
}

/* Reads the facts of two devices of 139 GiB. */
static void look(const char *first, const char *second)
{
    p2p_place places[2] = {{.memory_bytes = 139 * GIB}, {.memory_bytes = 139 * GIB}};
    snprintf(places[0].bus_id, sizeof(places[0].bus_id), "%s", first);
    snprintf(places[1].bus_id, sizeof(places[1].bus_id), "%s", second);
    p2p_facts_read(root, places, 2, &facts);
}

static void nothing_is_known_of_an_empty_system(void **state)
{
    (void)state;
    look("0000:1b:00.0", "0000:1c:00.0");
    assert_true(facts.n >= 8);
    for (int i = 0; i < facts.n; i++) {
        assert_int_equal(facts.list[i].state, P2P_UNKNOWN);
        assert_true(facts.list[i].text[0]);
    }
    assert_null(find("wsl", -1));
    assert_int_equal(facts.path[0][1], SYSTEM_PATH_UNKNOWN);
}

static void a_good_machine_is_good(void **state)
{
    (void)state;
    put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme avx2\n");
    put("/proc/driver/nvidia/params", "EnableMSI: 1\nRegistryDwords: \"\"\n");
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue\n");
    put("/proc/self/maps",
        "7f00-7f01 r--p 0 08:01 12 /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 08:01 13 /usr/lib/libcuda.so.580.159.04\n");
    put("/sys/kernel/iommu_groups/7/type", "identity\n");
    put_device("pci0000:17/0000:17:01.0");
    put_config("/sys/devices/pci0000:17/0000:17:01.0", 0x0000, 4096);
    put_device("pci0000:17/0000:17:01.0/0000:18:00.0");
    /* these bits redirect nothing */
    put_config("/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0", 0x0011, 4096);
    put_gpu("pci0000:17/0000:17:01.0/0000:18:00.0/0000:1b:00.0", "7");
    put_gpu("pci0000:17/0000:17:01.0/0000:18:00.0/0000:1c:00.0", "7");
    look("0000:1B:00.0", "0000:1c:00.0"); /* the driver writes upper-case letters */
    expect("hypervisor", -1, P2P_OK, "none");
    expect("registry", -1, P2P_OK, "");
    expect("version", -1, P2P_OK, "580.159.04");
    expect("numa", -1, P2P_OK, "node 0: 0, 1");
    for (int i = 0; i < 2; i++) {
        expect("iommu", i, P2P_OK, "identity");
        expect("link", i, P2P_OK, "32 GT/s, 16 lanes");
        expect("window", i, P2P_OK, "");
    }
    expect("acs", 0, P2P_PROBLEM, "0000:18:00.0"); /* 0x0010 is upstream forwarding */
    assert_int_equal(facts.path[0][1], SYSTEM_PATH_SAME_SWITCH);
    put_config("/sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0", 0x0001, 4096);
    look("0000:1b:00.0", "0000:1c:00.0");
    expect("acs", 0, P2P_OK, "none redirects");
}

static void what_loses_bytes_is_a_problem(void **state)
{
    (void)state;
    static const unsigned redirects[] = {0x04, 0x08, 0x10, 0x1d};
    put_device("pci0000:17/0000:17:01.0");
    put_gpu("pci0000:17/0000:17:01.0/0000:1b:00.0", "7");
    put_gpu("pci0000:17/0000:17:02.0/0000:1c:00.0", "8");
    put_device("pci0000:17/0000:17:02.0");
    put("/sys/kernel/iommu_groups/7/type", "DMA\n");
    put("/sys/kernel/iommu_groups/8/type", "DMA-FQ\n");
    put("/proc/driver/nvidia/params", "RegistryDwords: \"ForceP2P=0x11\"\n");
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue\n");
    put("/proc/self/maps", "7f02-7f03 r-xp 0 08:01 13 /usr/lib/libcuda.so.580.15\n");
    put("/dev/dxg", "");
    for (size_t i = 0; i < sizeof(redirects) / sizeof(redirects[0]); i++) {
        put_config("/sys/devices/pci0000:17/0000:17:01.0", redirects[i], 4096);
        look("0000:1b:00.0", "0000:1c:00.0");
        expect("acs", 0, P2P_PROBLEM, "0000:17:01.0");
        expect("acs", 1, P2P_UNKNOWN, "1 of 1"); /* its bridge's configuration is missing */
    }
    expect("iommu", 0, P2P_PROBLEM, "DMA");
    expect("iommu", 1, P2P_PROBLEM, "DMA-FQ");
    expect("registry", -1, P2P_PROBLEM, "ForceP2P");
    expect("version", -1, P2P_PROBLEM, "580.15"); /* 580.159.04 only begins with it */
    expect("wsl", -1, P2P_PROBLEM, "");
    assert_int_equal(facts.path[0][1], SYSTEM_PATH_SAME_ROOT);
}

static void what_is_slow_is_told(void **state)
{
    (void)state;
    put_gpu("pci0000:17/0000:17:01.0/0000:1b:00.0", NULL);
    put_gpu("pci0000:97/0000:97:01.0/0000:9c:00.0", NULL);
    put_file("pci0000:17/0000:17:01.0/0000:1b:00.0", "current_link_width", "8\n");
    put_file("pci0000:17/0000:17:01.0/0000:1b:00.0", "resource",
             "0x0 0x0 0x0\n0x0000200000000000 0x000020000fffffff 0x14220c\n");
    put_file("pci0000:97/0000:97:01.0/0000:9c:00.0", "current_link_speed", "2.5 GT/s PCIe\n");
    put_file("pci0000:97/0000:97:01.0/0000:9c:00.0", "numa_node", "1\n");
    look("0000:1b:00.0", "0000:9c:00.0");
    expect("link", 0, P2P_PROBLEM, "8 of 16 lanes");
    expect("link", 1, P2P_UNKNOWN, "2.5 of 32 GT/s");
    expect("window", 0, P2P_PROBLEM, "256 MiB");
    expect("window", 1, P2P_OK, "");
    expect("numa", -1, P2P_OK, "node 0: 0; node 1: 1 (PCIe between nodes crosses sockets)");
    assert_int_equal(facts.path[0][1], SYSTEM_PATH_OTHER_ROOT);
}

static void a_virtual_machine_hides_its_host(void **state)
{
    (void)state;
    put("/proc/cpuinfo", "flags\t\t: fpu hypervisor avx2\n");
    put_gpu("pci0000:00/0000:00:05.0", NULL);
    put_gpu("pci0000:00/0000:00:06.0", NULL);
    put_file("pci0000:00/0000:00:05.0", "current_link_speed", "Unknown\n");
    put_file("pci0000:00/0000:00:06.0", "current_link_width", "255\n");
    put_file("pci0000:00/0000:00:06.0", "numa_node", "-1\n");
    make_folders("");
    look("0000:00:05.0", "0000:00:06.0");
    expect("hypervisor", -1, P2P_UNKNOWN, "host");
    expect("numa", -1, P2P_UNKNOWN, "device 1");
    expect("link", 0, P2P_UNKNOWN, "");
    expect("link", 1, P2P_UNKNOWN, "");
    expect("acs", 0, P2P_OK, "there are none");
    expect("iommu", 0, P2P_UNKNOWN, "");
    put("/sys/class/iommu/dmar0", "");
    look("0000:00:05.0", "0000:00:06.0");
    expect("iommu", 0, P2P_UNKNOWN, "none of its groups");
    char path[128];
    snprintf(path, sizeof(path), "%s/sys/class/iommu/dmar0", root);
    unlink(path);
    look("0000:00:05.0", "0000:00:06.0");
    expect("iommu", 0, P2P_OK, "off");
}

/* Without privileges only the first 64 bytes are readable; conventional PCI stores 256. */
static void what_cannot_be_read_is_unknown(void **state)
{
    (void)state;
    put_device("pci0000:17/0000:17:01.0");
    put_gpu("pci0000:17/0000:17:01.0/0000:1b:00.0", "7");
    put_config("/sys/devices/pci0000:17/0000:17:01.0", 0x1d, 64);
    look("0000:1b:00.0", "0000:1b:00.0");
    expect("acs", 0, P2P_UNKNOWN, "without privileges");
    expect("iommu", 0, P2P_UNKNOWN, "group 7");
    put_config("/sys/devices/pci0000:17/0000:17:01.0", 0x1d, 256);
    look("0000:1b:00.0", "0000:1b:00.0");
    expect("acs", 0, P2P_OK, "");
}

static void damaged_files_end(void **state)
{
    (void)state;
    unsigned char config[4096];
    put_device("pci0000:17/0000:17:01.0");
    put_gpu("pci0000:17/0000:17:01.0/0000:1b:00.0", NULL);
    memset(config, 0xff, sizeof(config)); /* a device that is gone reads as this */
    put_bytes("/sys/devices/pci0000:17/0000:17:01.0/config", config, sizeof(config));
    look("0000:1b:00.0", "0000:1b:00.0");
    expect("acs", 0, P2P_UNKNOWN, "");
    memset(config, 0, sizeof(config));
    config[0x100] = 0x01, config[0x103] = 0x10; /* its successor is itself */
    put_bytes("/sys/devices/pci0000:17/0000:17:01.0/config", config, sizeof(config));
    put_file("pci0000:17/0000:17:01.0/0000:1b:00.0", "resource", "nonsense\n");
    put("/proc/cpuinfo", "");
    look("0000:1b:00.0", "0000:1b:00.0");
    expect("acs", 0, P2P_OK, "");
    expect("window", 0, P2P_UNKNOWN, "");
}

/* Every combination of outcomes of three devices: a remaining problem must harm a pair that does
 * not work. */
static void what_works_is_left_alone(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        bool refuses, as_owner;
    } kinds[] = {{"iommu", false, false}, {"acs", false, false}, {"window", true, true}, {"registry", true, false}};
    static const int pairs[6][2] = {{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}};
    for (int code = 0; code < 4096; code++) {
        p2p_outcome outcome[P2P_PLACES_MAX][P2P_PLACES_MAX] = {{P2P_UNTESTED}};
        p2p_facts f = {.n = 0};
        for (int k = 0; k < 4; k++) {
            f.list[f.n++] = (p2p_fact){P2P_PROBLEM, k == 3 ? -1 : 0, kinds[k].id, "", "text", "remedy"};
        }
        f.list[f.n++] = (p2p_fact){P2P_PROBLEM, 0, "link", "", "text", "remedy"};
        for (int i = 0; i < 6; i++) {
            outcome[pairs[i][0]][pairs[i][1]] = (p2p_outcome)(code >> 2 * i & 3);
        }
        p2p_facts_settle(&f, 3, outcome);
        for (int k = 0; k < 4; k++) {
            int works = 0, others = 0;
            for (int i = 0; i < 6; i++) {
                bool about = k == 3 || pairs[i][1] == 0 || (pairs[i][0] == 0 && !kinds[k].as_owner);
                p2p_outcome is = (p2p_outcome)(code >> 2 * i & 3);
                works += about && is == P2P_WORKS;
                others += about && is != P2P_WORKS && (is != P2P_REFUSED || kinds[k].refuses);
            }
            bool settled = works > 0 && others == 0;
            assert_int_equal(f.list[k].state, settled ? P2P_OK : P2P_PROBLEM);
            assert_int_equal(f.list[k].remedy[0] == 0, settled);
        }
        assert_int_equal(f.list[4].state, P2P_PROBLEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_known_of_an_empty_system, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_good_machine_is_good, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_loses_bytes_is_a_problem, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_is_slow_is_told, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_virtual_machine_hides_its_host, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_unknown, make_root, remove_root),
        cmocka_unit_test_setup_teardown(damaged_files_end, make_root, remove_root),
        cmocka_unit_test(what_works_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
