/* facts.c - reads the facts of facts.h, each by a small function.
 *
 * Threads: one at a time. Locks: none.
 * Always: a file that cannot be read makes its own fact unknown, and no other.
 */
#include "cli/p2p/facts.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    PATH_BYTES = 512,
    CHAIN_MAX = 16, /* bridges above a device */
    CONFIG_BYTES = 4096,
    CONFIG_EXTENDED = 0x100, /* where the extended capabilities begin */
    CAPABILITY_ACS = 0x000d, /* PCI Express Base Specification, Access Control Services */
    ACS_CONTROL = 6,         /* of the control word in it */
    ACS_REQUEST_REDIRECT = 0x04,
    ACS_COMPLETION_REDIRECT = 0x08,
    ACS_UPSTREAM_FORWARDING = 0x10
};

/* The bridges above a device, the one next to the host first, without the device itself. */
typedef struct chain {
    char root[P2P_BUS_ID]; /* "pci0000:17" */
    char bridge[CHAIN_MAX][P2P_BUS_ID];
    int n; /* -1: not known */
} chain;

const char *p2p_state_text(p2p_state state)
{
    static const char *const texts[] = {"OK", "problem", "unknown"};
    return texts[state];
}

const char *p2p_path_text(p2p_path path)
{
    static const char *const texts[] = {"unknown", "same switch", "same root complex", "different root complexes"};
    return texts[path];
}

/* ------------------------------------------------------------------------------------------------------- files -- */

static void put_path(char out[PATH_BYTES], const char *root, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put_path(char out[PATH_BYTES], const char *root, const char *format, ...)
{
    va_list arguments;
    int used = snprintf(out, PATH_BYTES, "%s", root);
    va_start(arguments, format);
    if (used >= 0 && used < PATH_BYTES) {
        vsnprintf(out + used, PATH_BYTES - (size_t)used, format, arguments);
    }
    va_end(arguments);
}

/* The first line of a file; false when there is none. */
static bool read_line(const char *path, char *out, size_t bytes)
{
    FILE *file = fopen(path, "re");
    bool got = file && fgets(out, (int)bytes, file);
    if (got) {
        out[strcspn(out, "\n")] = 0;
    }
    if (file) {
        fclose(file);
    }
    return got;
}

/* The first line that has the text; false when none has, or the file cannot be read (*readable is false). */
static bool find_line(const char *path, const char *text, char *out, size_t bytes, bool *readable)
{
    FILE *file = fopen(path, "re");
    bool found = false;
    *readable = file != NULL;
    while (file && !found && fgets(out, (int)bytes, file)) {
        found = strstr(out, text) != NULL;
    }
    if (found) {
        out[strcspn(out, "\n")] = 0;
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* A directory's entries, but for "." and ".."; -1: there is no such directory. */
static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    if (!directory) {
        return -1;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

/* ------------------------------------------------------------------------------------------------------- facts -- */

static p2p_fact *add(p2p_facts *facts, int device, const char *id, const char *name)
{
    static p2p_fact left_out; /* there is room for all of every device */
    p2p_fact *f = facts->n < P2P_FACTS_MAX ? &facts->list[facts->n++] : &left_out;
    *f = (p2p_fact){.state = P2P_UNKNOWN, .device = device, .id = id, .name = name, .remedy = ""};
    return f;
}

static void say(p2p_fact *f, p2p_state state, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(p2p_fact *f, p2p_state state, const char *remedy, const char *format, ...)
{
    va_list arguments;
    f->state = state;
    f->remedy = remedy;
    va_start(arguments, format);
    vsnprintf(f->text, sizeof(f->text), format, arguments);
    va_end(arguments);
}

/* -- of the machine -- */

static void read_hypervisor(const char *root, p2p_facts *facts)
{
    char path[PATH_BYTES], line[8192];
    bool readable;
    p2p_fact *f = add(facts, -1, "hypervisor", "virtual machine");
    put_path(path, root, "/proc/cpuinfo");
    if (!find_line(path, "flags", line, sizeof(line), &readable)) {
        say(f, P2P_UNKNOWN, "", "/proc/cpuinfo names no flags");
    } else if (strstr(line, " hypervisor")) {
        say(f, P2P_UNKNOWN, "ask the host's operator: devices that are to be peers need to be passed through for it",
            "this is one: the host's IOMMU and bridges cannot be seen from here");
    } else {
        say(f, P2P_OK, "", "this is none, as the processor reports");
    }
}

static void read_wsl(const char *root, p2p_facts *facts)
{
    char path[PATH_BYTES];
    put_path(path, root, "/dev/dxg");
    if (access(path, F_OK) == 0) {
        say(add(facts, -1, "wsl", "Windows subsystem"), P2P_PROBLEM, "none: copies are staged there",
            "/dev/dxg is there: the GPUs belong to Windows");
    }
}

/* Settings of the driver's kernel module that force one kind of peer access. */
static void read_registry(const char *root, p2p_facts *facts)
{
    char path[PATH_BYTES], line[1024];
    bool readable;
    p2p_fact *f = add(facts, -1, "registry", "driver's settings");
    put_path(path, root, "/proc/driver/nvidia/params");
    if (!find_line(path, "RegistryDwords:", line, sizeof(line), &readable)) {
        say(f, P2P_UNKNOWN, "", "/proc/driver/nvidia/params %s", readable ? "has no RegistryDwords" : "cannot be read");
    } else if (strstr(line, "ForceP2P") || strstr(line, "RMForceP2PType")) {
        say(f, P2P_PROBLEM, "take the key out of the options of the kernel module nvidia, and load it again", "%.150s",
            line);
    } else {
        say(f, P2P_OK, "", "none forces a kind of peer access");
    }
}

/* The version in "libcuda.so.580.159.04" of the library that this process has open, and the kernel module's. */
static void read_versions(const char *root, p2p_facts *facts)
{
    char path[PATH_BYTES], library[1024], module[1024];
    bool readable;
    p2p_fact *f = add(facts, -1, "version", "driver's versions");
    put_path(path, root, "/proc/self/maps");
    const char *mine = find_line(path, "/libcuda.so.", library, sizeof(library), &readable)
                           ? strstr(library, "/libcuda.so.") + 12
                           : "";
    put_path(path, root, "/proc/driver/nvidia/version");
    bool loaded = find_line(path, "NVRM version", module, sizeof(module), &readable);
    int digits = (int)strspn(mine, "0123456789.");
    if (!loaded || !strchr(mine, '.')) {
        say(f, P2P_UNKNOWN, "", "%s",
            loaded ? "the version of libcuda cannot be read" : "/proc/driver/nvidia/version cannot be read");
        return;
    }
    const char *at = strstr(module, mine);
    bool same = at && (at == module || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[digits]);
    if (same) {
        say(f, P2P_OK, "", "libcuda and the kernel module are %.*s", digits, mine);
    } else {
        say(f, P2P_PROBLEM, "install libcuda and the kernel module of one version",
            "libcuda is %.*s, the kernel module is not: %.120s", digits, mine, module);
    }
}

/* Which devices are next to which memory and processors. */
static void read_nodes(const char *root, const p2p_place *places, int n, p2p_facts *facts)
{
    int node[P2P_PLACES_MAX], used = 0, kinds = 0;
    char path[PATH_BYTES], line[32], text[P2P_FACT_TEXT - 64] = "";
    p2p_fact *f = add(facts, -1, "numa", "NUMA nodes");
    for (int i = 0; i < n; i++) {
        char *end = line;
        put_path(path, root, "/sys/bus/pci/devices/%s/numa_node", places[i].bus_id);
        long value = read_line(path, line, sizeof(line)) ? strtol(line, &end, 10) : -1;
        node[i] = end > line && value >= 0 && value < 4096 ? (int)value : -1;
        if (node[i] < 0) {
            say(f, P2P_UNKNOWN, "", "the system does not report device %d's", i);
            return;
        }
    }
    for (int i = 0; i < n; i++) {
        bool first = true;
        for (int k = 0; k < i; k++) {
            first = first && node[k] != node[i];
        }
        kinds += first;
        for (int k = i; k < n && first && used < (int)sizeof(text) - 16; k++) {
            if (node[k] == node[i]) {
                used += k > i ? snprintf(text + used, sizeof(text) - (size_t)used, ", %d", k)
                              : snprintf(text + used, sizeof(text) - (size_t)used, "%snode %d: %d", used ? "; " : "",
                                         node[i], k);
            }
        }
    }
    say(f, P2P_OK, "", "%s%s", text, kinds > 1 ? " (PCIe between nodes crosses sockets)" : "");
}

/* -- of a device -- */

static void read_iommu(const char *root, const p2p_place *place, int device, p2p_facts *facts)
{
    char path[PATH_BYTES], target[PATH_BYTES], type[64];
    p2p_fact *f = add(facts, device, "iommu", "IOMMU");
    put_path(path, root, "/sys/bus/pci/devices/%s/iommu_group", place->bus_id);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0) {
        put_path(path, root, "/sys/class/iommu");
        int units = count_entries(path);
        if (units > 0) {
            say(f, P2P_UNKNOWN, "", "there is one, but the device is in none of its groups");
        } else if (units == 0) {
            say(f, P2P_OK, "", "off");
        } else {
            say(f, P2P_UNKNOWN, "", "/sys/class/iommu cannot be read");
        }
        return;
    }
    target[length] = 0;
    const char *slash = strrchr(target, '/');
    const char *group = slash ? slash + 1 : target;
    put_path(path, root, "/sys/kernel/iommu_groups/%.60s/type", group);
    if (!read_line(path, type, sizeof(type))) {
        say(f, P2P_UNKNOWN, "", "the type of its group %.60s cannot be read", group);
    } else if (strcmp(type, "identity") == 0) {
        say(f, P2P_OK, "", "passes addresses through (identity)");
    } else {
        say(f, P2P_PROBLEM, "start the kernel with iommu=pt, or turn the IOMMU off in the firmware",
            "translates addresses (%s): peer copies over PCIe may get lost", type);
    }
}

/* Speeds such as "32.0 GT/s PCIe". */
static void read_link(const char *root, const p2p_place *place, int device, p2p_facts *facts)
{
    static const char *const names[4] = {"current_link_speed", "max_link_speed", "current_link_width",
                                         "max_link_width"};
    char path[PATH_BYTES], text[4][64];
    double value[4];
    p2p_fact *f = add(facts, device, "link", "PCIe link");
    for (int i = 0; i < 4; i++) {
        put_path(path, root, "/sys/bus/pci/devices/%s/%s", place->bus_id, names[i]);
        char *end = text[i];
        value[i] = read_line(path, text[i], sizeof(text[i])) ? strtod(text[i], &end) : 0;
        if (end == text[i] || value[i] <= 0 || (i >= 2 && value[i] >= 255)) {
            say(f, P2P_UNKNOWN, "", "the system does not report its speed and width");
            return;
        }
    }
    if (value[2] < value[3]) {
        say(f, P2P_PROBLEM, "look at the slot, the riser and the firmware's settings of the slot",
            "has %.0f of %.0f lanes", value[2], value[3]);
    } else if (value[0] < value[1]) {
        say(f, P2P_UNKNOWN, "", "at %g of %g GT/s, %.0f lanes; an idle device lowers its speed", value[0], value[1],
            value[2]);
    } else {
        say(f, P2P_OK, "", "%g GT/s, %.0f lanes", value[0], value[2]);
    }
}

/* The window through which others see the device's memory: its second base address register. */
static void read_window(const char *root, const p2p_place *place, int device, p2p_facts *facts)
{
    char path[PATH_BYTES], line[128];
    unsigned long long first = 0, last = 0, bytes = 0;
    p2p_fact *f = add(facts, device, "window", "memory window");
    put_path(path, root, "/sys/bus/pci/devices/%s/resource", place->bus_id);
    FILE *file = fopen(path, "re");
    bool got = file && fgets(line, sizeof(line), file) && fgets(line, sizeof(line), file) &&
               sscanf(line, "%llx %llx", &first, &last) == 2;
    if (file) {
        fclose(file);
    }
    bytes = got && last > first ? last - first + 1 : 0;
    if (!bytes) {
        say(f, P2P_UNKNOWN, "", "the system does not report its size");
    } else if (bytes < place->memory_bytes) {
        say(f, P2P_PROBLEM, "turn on \"above 4G decoding\" and resizable BARs in the firmware",
            "%llu MiB for %llu MiB of memory: peers over PCIe do not reach all of it", bytes >> 20,
            (unsigned long long)place->memory_bytes >> 20);
    } else {
        say(f, P2P_OK, "", "has room for all of the memory");
    }
}

static bool is_bus_id(const char *name, size_t length)
{
    return length >= 12 && length < P2P_BUS_ID && name[length - 2] == '.' && name[length - 5] == ':' &&
           name[length - 8] == ':';
}

/* From the path of the device, ".../pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0". */
static void read_chain(const char *root, const p2p_place *place, chain *out)
{
    char path[PATH_BYTES], real[PATH_MAX];
    memset(out, 0, sizeof(*out));
    out->n = -1;
    put_path(path, root, "/sys/bus/pci/devices/%s", place->bus_id);
    const char *at = realpath(path, real) ? strstr(real, "/pci") : NULL;
    if (!at) {
        return;
    }
    out->n = 0;
    size_t length = strcspn(at + 1, "/");
    snprintf(out->root, sizeof(out->root), "%.*s", (int)(length < P2P_BUS_ID ? length : P2P_BUS_ID - 1), at + 1);
    for (at += 1 + length; *at == '/' && out->n < CHAIN_MAX; at += 1 + length) {
        length = strcspn(at + 1, "/");
        if (is_bus_id(at + 1, length) && at[1 + length] == '/') { /* the last one is the device */
            snprintf(out->bridge[out->n++], P2P_BUS_ID, "%.*s", (int)length, at + 1);
        }
    }
}

/* The control word of a bridge's Access Control Services; -1: it cannot be read, 0 also: it has none. */
static int read_acs(const char *root, const char *bridge)
{
    char path[PATH_BYTES];
    unsigned char config[CONFIG_BYTES];
    put_path(path, root, "/sys/bus/pci/devices/%s/config", bridge);
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(config, 1, sizeof(config), file) : 0;
    if (file) {
        fclose(file);
    }
    if (bytes < CONFIG_BYTES) {
        return bytes == CONFIG_EXTENDED
                   ? 0
                   : -1; /* 256 bytes: conventional PCI, without extended capabilities; 64: no privilege */
    }
    int at = CONFIG_EXTENDED;
    for (int i = 0; i < CONFIG_BYTES / 8 && at >= CONFIG_EXTENDED && at + ACS_CONTROL + 2 <= CONFIG_BYTES; i++) {
        unsigned header = config[at] | (unsigned)config[at + 1] << 8 | (unsigned)config[at + 2] << 16 |
                          (unsigned)config[at + 3] << 24;
        if (header == UINT32_MAX) {
            return -1; /* what reads so is not there */
        }
        if ((header & 0xffff) == CAPABILITY_ACS) {
            return config[at + ACS_CONTROL] | config[at + ACS_CONTROL + 1] << 8;
        }
        at = (int)(header >> 20) & ~3;
    }
    return 0;
}

static void read_bridges(const char *root, const chain *c, int device, p2p_facts *facts)
{
    p2p_fact *f = add(facts, device, "acs", "bridges (ACS)");
    int unknown = 0;
    if (c->n < 0) {
        say(f, P2P_UNKNOWN, "", "the system does not report what is above the device");
        return;
    }
    for (int i = 0; i < c->n; i++) {
        int control = read_acs(root, c->bridge[i]);
        if (control > 0 && control & (ACS_REQUEST_REDIRECT | ACS_COMPLETION_REDIRECT | ACS_UPSTREAM_FORWARDING)) {
            say(f, P2P_PROBLEM,
                "setpci -s BRIDGE ECAP_ACS+0x6.w=0 after each start of the machine, where nothing relies on it for "
                "isolation",
                "%s sends what is between peers up to the root complex (control word 0x%04x)", c->bridge[i],
                (unsigned)control);
            return;
        }
        unknown += control < 0;
    }
    if (unknown) {
        say(f, P2P_UNKNOWN, "", "%d of %d cannot be read without privileges", unknown, c->n);
    } else {
        say(f, P2P_OK, "", c->n ? "none redirects what is between peers" : "there are none");
    }
}

static p2p_path path_between(const chain *a, const chain *b)
{
    if (a->n < 0 || b->n < 0) {
        return P2P_PATH_UNKNOWN;
    }
    if (strcmp(a->root, b->root) != 0) {
        return P2P_PATH_OTHER_ROOT;
    }
    return a->n > 0 && b->n > 0 && strcmp(a->bridge[0], b->bridge[0]) == 0 ? P2P_PATH_SAME_SWITCH : P2P_PATH_SAME_ROOT;
}

void p2p_facts_read(const char *root, const p2p_place *given, int n, p2p_facts *out)
{
    p2p_place places[P2P_PLACES_MAX];
    chain chains[P2P_PLACES_MAX];
    n = n < P2P_PLACES_MAX ? n : P2P_PLACES_MAX;
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < n; i++) {
        places[i] = given[i];
        for (char *c = places[i].bus_id; *c; c++) {
            *c = (char)tolower((unsigned char)*c); /* as in /sys */
        }
    }
    read_hypervisor(root, out);
    read_wsl(root, out);
    read_registry(root, out);
    read_versions(root, out);
    read_nodes(root, places, n, out);
    for (int i = 0; i < n; i++) {
        read_iommu(root, &places[i], i, out);
        read_chain(root, &places[i], &chains[i]);
        read_bridges(root, &chains[i], i, out);
        read_link(root, &places[i], i, out);
        read_window(root, &places[i], i, out);
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            out->path[i][j] = i == j ? P2P_PATH_UNKNOWN : path_between(&chains[i], &chains[j]);
        }
    }
}
