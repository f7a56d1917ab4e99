/* bus.c - facts from /sys about devices on the bus and the paths between them.
 *
 * Threads: one at a time. Locks: none.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/doctor/collect.h"

enum { VENDOR = 0x10de, CLASS_DISPLAY = 0x03, CLASS_BRIDGE_OTHER = 0x0680 };

#define DEVICES "/sys/bus/pci/devices"

/* The reason why this user cannot read a file. In a container not even root may read everything. */
const char *doctor_unreadable(void)
{
    return geteuid() == 0 ? "not even root can read it; run heddle doctor outside of the container" : DOCTOR_ROOT;
}

int doctor_bus_number(doctor_buses *buses, const char *bus_id)
{
    char id[SYSTEM_BUS_ID];
    cli_system_bus_id(bus_id, id);
    for (int i = 0; i < buses->n; i++) {
        if (strcmp(buses->id[i], id) == 0) {
            return i;
        }
    }
    if (buses->n == DOCTOR_GPUS_MAX) {
        return -1;
    }
    memcpy(buses->id[buses->n], id, sizeof(id));
    return buses->n++;
}

static int doctor_bus_compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* True for the part of a device that a virtual machine gets (SR-IOV). Programs on the host do
 * not use it. */
static bool doctor_bus_is_virtual(const char *root, const char *bus_id)
{
    char path[SYSTEM_PATH_BYTES];
    snprintf(path, sizeof(path), DEVICES "/%s/physfn", bus_id);
    return cli_system_exists(root, path);
}

static void doctor_bus_find_devices(const char *root, doctor_buses *buses, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES];
    int switches = 0;
    snprintf(path, sizeof(path), "%s" DEVICES, root);
    DIR *directory = opendir(path);
    if (!directory) {
        doctor_miss(s, DEVICES " cannot be read; mount /sys here, or run heddle doctor outside of the container",
                    "system.bus");
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *name = entry->d_name;
        if (!cli_system_is_bus_id(name, strlen(name)) ||
            cli_system_read_number(root, 0, DEVICES "/%s/vendor", name) != VENDOR) {
            continue;
        }
        long long class = cli_system_read_number(root, 0, DEVICES "/%s/class", name);
        switches += class >> 8 == CLASS_BRIDGE_OTHER;
        if (class >> 16 == CLASS_DISPLAY && !doctor_bus_is_virtual(root, name)) {
            doctor_bus_number(buses, name);
        }
    }
    closedir(directory);
    qsort(buses->id, (size_t)buses->n, sizeof(buses->id[0]), doctor_bus_compare_ids);
    doctor_put_number(s, switches, "system.nvswitches");
}

/* ---- of a device ---- */

static void doctor_bus_read_bound(const char *root, const char *bus_id, int i, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES], target[SYSTEM_PATH_BYTES];
    unsigned char config[4] = {0};
    snprintf(path, sizeof(path), "%s" DEVICES "/%s/driver", root, bus_id);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = 0;
    const char *slash = strrchr(target, '/');
    if (length <= 0 && errno != ENOENT) {
        doctor_miss(s, "/sys does not show its driver", "gpu.%d.kernel_driver", i);
    } else {
        doctor_put(s, length <= 0 ? "none" : slash ? slash + 1 : target, "gpu.%d.kernel_driver", i);
    }
    snprintf(path, sizeof(path), "%s" DEVICES "/%s/config", root, bus_id);
    FILE *file = fopen(path, "re");
    /* if the device is gone, its registers read as ones */
    if (file && fread(config, 1, sizeof(config), file) == sizeof(config)) {
        doctor_put(s, config[0] == 0xff && config[1] == 0xff ? "gone" : "ok", "gpu.%d.config", i);
    } else {
        doctor_miss(s, "its configuration cannot be read", "gpu.%d.config", i);
    }
    if (file) {
        fclose(file);
    }
}

/* Checks whether this process may open the driver's file of the device. To open the file would
 * start the device. So the function calls access(). This call also asks the control group for
 * devices (devcgroup_inode_permission). The control group refuses with EPERM. */
static void doctor_bus_read_file(const char *root, const char *bus_id, int i, doctor_snapshot *s)
{
    char path[SYSTEM_PATH_BYTES], line[256];
    bool readable;
    snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", bus_id);
    char *colon =
        cli_system_find_line(root, path, "Device Minor:", line, sizeof(line), &readable) ? strchr(line, ':') : NULL;
    if (!colon) {
        doctor_miss(s, "/proc/driver/nvidia/gpus does not list the device; a container shows only some devices",
                    "gpu.%d.file", i);
        return;
    }
    snprintf(path, sizeof(path), "%s/dev/nvidia%ld", root, strtol(colon + 1, NULL, 10));
    bool may = access(path, R_OK | W_OK) == 0;
    doctor_put(s, may ? "may be opened" : errno == ENOENT ? "is missing" : "may not be opened", "gpu.%d.file", i);
}

static void doctor_bus_read_iommu(const char *root, const char *bus_id, int i, doctor_snapshot *s)
{
    char group[64], type[64];
    switch (cli_system_read_iommu(root, bus_id, group, type)) {
    case SYSTEM_IOMMU_OFF:
        doctor_put(s, "off", "gpu.%d.iommu", i);
        break;
    case SYSTEM_IOMMU_TYPED:
        doctor_put(s, type, "gpu.%d.iommu", i);
        break;
    case SYSTEM_IOMMU_UNTYPED:
        doctor_miss(s, "the type of its group cannot be read", "gpu.%d.iommu", i);
        break;
    case SYSTEM_IOMMU_UNGROUPED:
        doctor_miss(s, "there is an IOMMU, but the device is in none of its groups", "gpu.%d.iommu", i);
        break;
    default:
        doctor_miss(s, "/sys/class/iommu cannot be read", "gpu.%d.iommu", i);
        break;
    }
    if (group[0]) {
        doctor_put(s, group, "gpu.%d.iommu_group", i);
    } else {
        doctor_miss(s, "the device is in no group", "gpu.%d.iommu_group", i);
    }
}

static void doctor_bus_read_acs(const char *root, const system_chain *chain, int i, doctor_snapshot *s)
{
    char found[DOCTOR_VALUE_BYTES] = "";
    size_t used = 0;
    bool unread = false;
    if (chain->n < 0) {
        doctor_miss(s, "/sys does not show the bridges above the device", "gpu.%d.acs", i);
        return;
    }
    for (int k = 0; k < chain->n; k++) {
        int control = cli_system_read_acs(root, chain->bridge[k]);
        unread |= control < 0;
        if (control > 0 && control & SYSTEM_ACS_REDIRECT && used + 40 < sizeof(found)) {
            used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%s=0x%04x", used ? " " : "",
                                     chain->bridge[k], (unsigned)control);
        }
    }
    if (used) {
        doctor_put(s, found, "gpu.%d.acs", i);
    } else if (unread) {
        doctor_miss(s, doctor_unreadable(), "gpu.%d.acs", i);
    } else {
        doctor_put(s, "none", "gpu.%d.acs", i);
    }
}

static void doctor_bus_put_positive(doctor_snapshot *s, double value, const char *name, int i, const char *why)
{
    if (value > 0) {
        doctor_put_number(s, (long long)(value + 0.5), "gpu.%d.%s", i, name);
    } else {
        doctor_miss(s, why, "gpu.%d.%s", i, name);
    }
}

/* The slot is the bridge directly above the device. */
static void doctor_bus_read_link(const char *root, const char *bus_id, const system_chain *chain, int i,
                                 doctor_snapshot *s)
{
    system_link link, slot;
    const char *gone = "/sys does not show it";
    cli_system_read_link(root, bus_id, &link);
    doctor_bus_put_positive(s, link.speed * 1000, "link_mts", i, gone);
    doctor_bus_put_positive(s, link.max_speed * 1000, "link_mts_max", i, gone);
    doctor_bus_put_positive(s, link.width, "link_width", i, gone);
    doctor_bus_put_positive(s, link.max_width, "link_width_max", i, gone);
    if (chain->n > 0) {
        cli_system_read_link(root, chain->bridge[chain->n - 1], &slot);
        doctor_bus_put_positive(s, slot.max_speed * 1000, "slot_mts_max", i,
                                "/sys does not show it for the bridge above");
        doctor_bus_put_positive(s, slot.max_width, "slot_width_max", i, "/sys does not show it for the bridge above");
    } else {
        const char *why = chain->n < 0 ? "/sys does not show the bridges above the device"
                                       : "/sys shows no bridge above the device; a virtual machine hides bridges";
        doctor_miss(s, why, "gpu.%d.slot_mts_max", i);
        doctor_miss(s, why, "gpu.%d.slot_width_max", i);
    }
}

static void doctor_bus_read_device(const char *root, const char *bus_id, const system_chain *chain, int i,
                                   doctor_snapshot *s)
{
    doctor_put(s, bus_id, "gpu.%d.bus", i);
    doctor_bus_read_bound(root, bus_id, i, s);
    doctor_bus_read_file(root, bus_id, i, s);
    doctor_bus_read_iommu(root, bus_id, i, s);
    doctor_bus_read_acs(root, chain, i, s);
    doctor_bus_read_link(root, bus_id, chain, i, s);
    uint64_t window = cli_system_read_window(root, bus_id);
    if (window) {
        doctor_put_number(s, (long long)(window >> 20), "gpu.%d.window_mib", i);
    } else {
        doctor_miss(s, "/sys does not show its size", "gpu.%d.window_mib", i);
    }
    long long node = cli_system_read_number(root, LLONG_MIN, DEVICES "/%s/numa_node", bus_id);
    if (node != LLONG_MIN) {
        doctor_put_number(s, node, "gpu.%d.node", i);
    } else {
        doctor_miss(s, "/sys does not show it", "gpu.%d.node", i);
    }
}

void doctor_read_bus(const char *root, doctor_buses *buses, doctor_snapshot *s)
{
    static system_chain chains[DOCTOR_GPUS_MAX];
    doctor_bus_find_devices(root, buses, s);
    for (int i = 0; i < buses->n; i++) {
        cli_system_read_chain(root, buses->id[i], &chains[i]);
        doctor_bus_read_device(root, buses->id[i], &chains[i], i, s);
    }
    for (int a = 0; a < buses->n; a++) {
        for (int b = 0; b < buses->n; b++) {
            if (a != b) {
                doctor_put(s, cli_system_path_text(cli_system_path_between(&chains[a], &chains[b])), "pair.%d.%d.path",
                           a, b);
            }
        }
    }
    doctor_read_log(root, buses, chains, s);
}
