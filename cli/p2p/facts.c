/* facts.c - turns the values of system.h into the facts of facts.h, each with a small function.
 *
 * Threads: one at a time. Locks: none.
 * Always: an unreadable file makes only its own fact unknown.
 */
#include "cli/p2p/facts.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *p2p_state_text(p2p_state state)
{
    static const char *const texts[] = {"OK", "problem", "unknown"};
    return texts[state];
}

/* ---- facts ---- */

static p2p_fact *p2p_facts_add(p2p_facts *facts, int device, const char *id, const char *name)
{
    static p2p_fact left_out; /* a stand-in, never used because the table has room for all facts */
    p2p_fact *f = facts->n < P2P_FACTS_MAX ? &facts->list[facts->n++] : &left_out;
    *f = (p2p_fact){.state = P2P_UNKNOWN, .device = device, .id = id, .name = name, .remedy = ""};
    return f;
}

static void p2p_facts_state(p2p_fact *f, p2p_state state, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void p2p_facts_state(p2p_fact *f, p2p_state state, const char *remedy, const char *format, ...)
{
    va_list arguments;
    f->state = state;
    f->remedy = remedy;
    va_start(arguments, format);
    vsnprintf(f->text, sizeof(f->text), format, arguments);
    va_end(arguments);
}

/* -- of the machine -- */

static void p2p_facts_read_hypervisor(const char *root, p2p_facts *facts)
{
    char line[8192];
    bool readable;
    p2p_fact *f = p2p_facts_add(facts, -1, "hypervisor", "virtual machine");
    if (!cli_system_find_line(root, "/proc/cpuinfo", "flags", line, sizeof(line), &readable)) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "/proc/cpuinfo names no flags");
    } else if (strstr(line, " hypervisor")) {
        p2p_facts_state(f, P2P_UNKNOWN,
                        "ask the host's operator: devices that are to be peers need to be passed through for it",
                        "this is one: the host's IOMMU and bridges cannot be seen from here");
    } else {
        p2p_facts_state(f, P2P_OK, "", "this is none, as the processor reports");
    }
}

static void p2p_facts_read_wsl(const char *root, p2p_facts *facts)
{
    if (cli_system_exists(root, "/dev/dxg")) {
        p2p_facts_state(p2p_facts_add(facts, -1, "wsl", "Windows subsystem"), P2P_PROBLEM,
                        "none: copies are staged there", "/dev/dxg is there: the GPUs belong to Windows");
    }
}

/* Settings of the driver's kernel module that force one kind of peer access. */
static void p2p_facts_read_registry(const char *root, p2p_facts *facts)
{
    char line[1024];
    bool readable;
    p2p_fact *f = p2p_facts_add(facts, -1, "registry", "driver's settings");
    if (!cli_system_find_line(root, "/proc/driver/nvidia/params", "RegistryDwords:", line, sizeof(line), &readable)) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "/proc/driver/nvidia/params %s",
                        readable ? "has no RegistryDwords" : "cannot be read");
    } else if (strstr(line, "ForceP2P") || strstr(line, "RMForceP2PType")) {
        p2p_facts_state(f, P2P_PROBLEM,
                        "take the key out of the options of the kernel module nvidia, and load it again", "%.150s",
                        line);
    } else {
        p2p_facts_state(f, P2P_OK, "", "none forces a kind of peer access");
    }
}

/* The library open in this process, and the kernel module. */
static void p2p_facts_read_versions(const char *root, p2p_facts *facts)
{
    char library[64], module[1024];
    p2p_fact *f = p2p_facts_add(facts, -1, "version", "driver's versions");
    bool loaded = cli_system_read_module(root, module, sizeof(module));
    if (!cli_system_read_library(root, library, sizeof(library)) || !loaded) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "%s",
                        loaded ? "the version of libcuda cannot be read"
                               : "/proc/driver/nvidia/version cannot be read");
    } else if (cli_system_has_version(module, library)) {
        p2p_facts_state(f, P2P_OK, "", "libcuda and the kernel module are %s", library);
    } else {
        p2p_facts_state(f, P2P_PROBLEM, "install libcuda and the kernel module of one version",
                        "libcuda is %s, the kernel module is not: %.120s", library, module);
    }
}

/* The memory and processors nearest to each device. */
static void p2p_facts_read_nodes(const char *root, const p2p_place *places, int n, p2p_facts *facts)
{
    int node[P2P_PLACES_MAX], used = 0, kinds = 0;
    char text[P2P_FACT_TEXT - 64] = "";
    p2p_fact *f = p2p_facts_add(facts, -1, "numa", "NUMA nodes");
    for (int i = 0; i < n; i++) {
        long long value = cli_system_read_number(root, -1, "/sys/bus/pci/devices/%s/numa_node", places[i].bus_id);
        node[i] = value >= 0 && value < 4096 ? (int)value : -1;
        if (node[i] < 0) {
            p2p_facts_state(f, P2P_UNKNOWN, "", "the system does not report the node of device %d", i);
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
    p2p_facts_state(f, P2P_OK, "", "%s%s", text, kinds > 1 ? " (PCIe between nodes crosses sockets)" : "");
}

/* -- of a device -- */

static void p2p_facts_read_iommu(const char *root, const p2p_place *place, int device, p2p_facts *facts)
{
    char group[64], type[64];
    p2p_fact *f = p2p_facts_add(facts, device, "iommu", "IOMMU");
    switch (cli_system_read_iommu(root, place->bus_id, group, type)) {
    case SYSTEM_IOMMU_UNGROUPED:
        p2p_facts_state(f, P2P_UNKNOWN, "", "there is one, but the device is in none of its groups");
        break;
    case SYSTEM_IOMMU_OFF:
        p2p_facts_state(f, P2P_OK, "", "off");
        break;
    case SYSTEM_IOMMU_UNTYPED:
        p2p_facts_state(f, P2P_UNKNOWN, "", "the type of its group %s cannot be read", group);
        break;
    case SYSTEM_IOMMU_TYPED:
        if (strcmp(type, "identity") == 0) {
            p2p_facts_state(f, P2P_OK, "", "passes addresses through (identity)");
        } else {
            p2p_facts_state(f, P2P_PROBLEM, "start the kernel with iommu=pt, or turn the IOMMU off in the firmware",
                            "translates addresses (%s): peer copies over PCIe may get lost", type);
        }
        break;
    default:
        p2p_facts_state(f, P2P_UNKNOWN, "", "/sys/class/iommu cannot be read");
        break;
    }
}

static void p2p_facts_read_link(const char *root, const p2p_place *place, int device, p2p_facts *facts)
{
    system_link link;
    p2p_fact *f = p2p_facts_add(facts, device, "link", "PCIe link");
    if (!cli_system_read_link(root, place->bus_id, &link)) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "the system does not report its speed and width");
    } else if (link.width < link.max_width) {
        p2p_facts_state(f, P2P_PROBLEM, "look at the slot, the riser and the firmware's settings of the slot",
                        "has %d of %d lanes", link.width, link.max_width);
    } else if (link.speed < link.max_speed) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "at %g of %g GT/s, %d lanes; an idle device lowers its speed", link.speed,
                        link.max_speed, link.width);
    } else {
        p2p_facts_state(f, P2P_OK, "", "%g GT/s, %d lanes", link.speed, link.width);
    }
}

static void p2p_facts_read_window(const char *root, const p2p_place *place, int device, p2p_facts *facts)
{
    p2p_fact *f = p2p_facts_add(facts, device, "window", "memory window");
    uint64_t bytes = cli_system_read_window(root, place->bus_id);
    if (!bytes) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "the system does not report its size");
    } else if (bytes < place->memory_bytes) {
        p2p_facts_state(f, P2P_PROBLEM, "turn on \"above 4G decoding\" and resizable BARs in the firmware",
                        "%llu MiB for %llu MiB of memory: peers over PCIe do not reach all of it",
                        (unsigned long long)bytes >> 20, (unsigned long long)place->memory_bytes >> 20);
    } else {
        p2p_facts_state(f, P2P_OK, "", "has room for all of the memory");
    }
}

static void p2p_facts_read_bridges(const char *root, const system_chain *c, int device, p2p_facts *facts)
{
    p2p_fact *f = p2p_facts_add(facts, device, "acs", "bridges (ACS)");
    int unknown = 0;
    if (c->n < 0) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "the system does not report what is above the device");
        return;
    }
    for (int i = 0; i < c->n; i++) {
        int control = cli_system_read_acs(root, c->bridge[i]);
        if (control > 0 && control & SYSTEM_ACS_REDIRECT) {
            p2p_facts_state(
                f, P2P_PROBLEM,
                "setpci -s BRIDGE ECAP_ACS+0x6.w=0 after each start of the machine, where nothing relies on it for "
                "isolation",
                "%s sends what is between peers up to the root complex (control word 0x%04x)", c->bridge[i],
                (unsigned)control);
            return;
        }
        unknown += control < 0;
    }
    if (unknown) {
        p2p_facts_state(f, P2P_UNKNOWN, "", "%d of %d cannot be read without privileges", unknown, c->n);
    } else {
        p2p_facts_state(f, P2P_OK, "", c->n ? "none redirects what is between peers" : "there are none");
    }
}

void p2p_facts_read(const char *root, const p2p_place *places, int n, p2p_facts *out)
{
    p2p_place own[P2P_PLACES_MAX];
    system_chain chains[P2P_PLACES_MAX];
    n = n < P2P_PLACES_MAX ? n : P2P_PLACES_MAX;
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < n; i++) {
        own[i] = places[i];
        cli_system_bus_id(places[i].bus_id, own[i].bus_id);
    }
    p2p_facts_read_hypervisor(root, out);
    p2p_facts_read_wsl(root, out);
    p2p_facts_read_registry(root, out);
    p2p_facts_read_versions(root, out);
    p2p_facts_read_nodes(root, own, n, out);
    for (int i = 0; i < n; i++) {
        p2p_facts_read_iommu(root, &own[i], i, out);
        cli_system_read_chain(root, own[i].bus_id, &chains[i]);
        p2p_facts_read_bridges(root, &chains[i], i, out);
        p2p_facts_read_link(root, &own[i], i, out);
        p2p_facts_read_window(root, &own[i], i, out);
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            out->path[i][j] = i == j ? SYSTEM_PATH_UNKNOWN : cli_system_path_between(&chains[i], &chains[j]);
        }
    }
}

/* ---- problems that tests of pairs exclude ---- */

/* The damage that each fact can do. Facts that are not in this table, such as a narrow link, stay
 * problems whatever a test has shown. */
static const struct {
    const char *id;
    bool refuses;  /* the fact can also cause refusals */
    bool as_owner; /* a fact about a device that concerns the users of its memory */
} harmful[] = {
    {"iommu", false, false},
    {"acs", false, false},
    {"window", true, true},
    {"registry", true, false},
};

/* True if the fact can harm at least one pair, and all pairs that it can harm passed their
 * tests. */
static bool p2p_facts_is_settled(int device, bool refuses, bool as_owner, int n,
                                 p2p_outcome outcome[P2P_PLACES_MAX][P2P_PLACES_MAX])
{
    int works = 0;
    for (int i = 0; i < n * n; i++) {
        int d = i / n, o = i % n;
        if (d == o || (device >= 0 && o != device && (as_owner || d != device))) {
            continue;
        }
        works += outcome[d][o] == P2P_WORKS;
        if (outcome[d][o] != P2P_WORKS && (refuses || outcome[d][o] != P2P_REFUSED)) {
            return false;
        }
    }
    return works > 0;
}

void p2p_facts_settle(p2p_facts *facts, int n, p2p_outcome outcome[P2P_PLACES_MAX][P2P_PLACES_MAX])
{
    for (int i = 0; i < facts->n; i++) {
        p2p_fact *f = &facts->list[i];
        for (size_t k = 0; k < sizeof(harmful) / sizeof(harmful[0]); k++) {
            if (f->state == P2P_PROBLEM && strcmp(f->id, harmful[k].id) == 0 &&
                p2p_facts_is_settled(f->device, harmful[k].refuses, harmful[k].as_owner, n, outcome)) {
                char text[P2P_FACT_TEXT];
                memcpy(text, f->text, sizeof(text));
                p2p_facts_state(f, P2P_OK, "", "%.190s; yet tests of these pairs passed", text);
            }
        }
    }
}
