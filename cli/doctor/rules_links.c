/* rules_links.c - rules about connections: PCIe links, NVLink, and the NUMA nodes of devices and
 * processes.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/rules.h"

#include <stdlib.h>
#include <string.h>
#include "base/thread.h"

#define AREA "links"
#define NUMA "NUMA"

/* In percent. A device that drives a display is a few percent busy, and lowers the speed of its
 * link between frames. */
enum { BUSY_LEAST = 50 };

enum { LINKS_ONE_BRIDGE = 4 };

/* ---- PCIe ---- */

/* The largest width that both ends support. */
static long long doctor_links_case_width(doctor_case *c)
{
    long long device = doctor_number(c, 0, "gpu.%d.link_width_max", c->a);
    long long slot = doctor_number_maybe(c, device, "gpu.%d.slot_width_max", c->a);
    return slot < device ? slot : device;
}

static bool doctor_links_judge_narrow(doctor_case *c)
{
    long long width = doctor_number(c, 0, "gpu.%d.link_width", c->a);
    return width > 0 && width < doctor_links_case_width(c);
}

static bool doctor_links_judge_slot_narrow(doctor_case *c)
{
    long long device = doctor_number(c, 0, "gpu.%d.link_width_max", c->a);
    long long slot = doctor_number(c, 0, "gpu.%d.slot_width_max", c->a);
    return slot > 0 && slot < device;
}

/* Speeds are in MT/s. An idle device lowers its link speed and its clocks, so only a busy device
 * counts. */
static bool doctor_links_judge_slow(doctor_case *c)
{
    long long speed = doctor_number(c, 0, "gpu.%d.link_mts", c->a);
    long long device = doctor_number(c, 0, "gpu.%d.link_mts_max", c->a);
    long long slot = doctor_number_maybe(c, device, "gpu.%d.slot_mts_max", c->a);
    bool slow = speed > 0 && speed < (slot < device ? slot : device);
    if (!slow || doctor_number(c, 0, "gpu.%d.utilization", c->a) < BUSY_LEAST) {
        return false;
    }
    long long clock = doctor_number_maybe(c, 0, "gpu.%d.clock_mhz", c->a);
    return clock <= 0 || 2 * clock >= doctor_number_maybe(c, 0, "gpu.%d.clock_max_mhz", c->a);
}

static bool doctor_links_judge_slot_slow(doctor_case *c)
{
    long long device = doctor_number(c, 0, "gpu.%d.link_mts_max", c->a);
    long long slot = doctor_number(c, 0, "gpu.%d.slot_mts_max", c->a);
    return slot > 0 && slot < device;
}

/* ---- NVLink ---- */

/* Finds devices with fewer links than another device of the same name. If all devices of that name
 * lack the same links, the machine is built that way. */
static bool doctor_links_judge_nvlink(doctor_case *c)
{
    if (doctor_gpus(c->s) < 2) {
        return false;
    }
    const char *name = doctor_look(c, "gpu.%d.name", c->a);
    long long mine = doctor_number(c, -1, "gpu.%d.nvlinks", c->a);
    for (int b = 0; b < doctor_gpus(c->s) && name && mine >= 0; b++) {
        int before = c->n;
        const char *other = b != c->a ? doctor_maybe(c, "gpu.%d.name", b) : NULL;
        if (other && strcmp(other, name) == 0 && doctor_number_maybe(c, -1, "gpu.%d.nvlinks", b) > mine) {
            return true;
        }
        doctor_drop(c, before);
    }
    return false;
}

/* A broken link between two cards is down at both ends, so a comparison of the cards does not show
 * it. Cards with few links use one bridge for all links, so a missing link is a fault. Cards with
 * more links may use several bridges, or leave some links unused. */
static bool doctor_links_judge_nvlink_part(doctor_case *c)
{
    long long up = doctor_number(c, 0, "gpu.%d.nvlinks", c->a);
    long long all = doctor_number_maybe(c, 0, "gpu.%d.nvlinks_all", c->a);
    return up > 0 && up < all && all <= LINKS_ONE_BRIDGE &&
           doctor_number_maybe(c, 0, "gpu.%d.nvlinks_switch", c->a) == 0;
}

/* ---- NUMA ---- */

static bool doctor_links_case_several_nodes(doctor_case *c)
{
    return doctor_number(c, 1, "system.nodes") > 1;
}

static bool doctor_links_judge_far(doctor_case *c)
{
    if (!doctor_links_case_several_nodes(c)) {
        return false;
    }
    long long node = doctor_number(c, -1, "gpu.%d.node", c->a);
    const char *mine = doctor_look(c, "process.cpus");
    const char *near = node >= 0 ? doctor_look(c, "node.%lld.cpus", node) : NULL;
    hdi_cpus a, b, both;
    return mine && near && hdi_cpus_parse(mine, &a) && hdi_cpus_parse(near, &b) && !hdi_cpus_common(&a, &b, &both);
}

/* Finds a device whose NUMA node the process may not use for memory. The node may be excluded by a
 * policy, such as that of numactl --membind, or by the cpuset of a batch system. */
static bool doctor_links_judge_memory(doctor_case *c)
{
    if (!doctor_links_case_several_nodes(c)) {
        return false;
    }
    long long node = doctor_number(c, -1, "gpu.%d.node", c->a);
    /* snapshots of older versions lack this fact */
    bool asked = doctor_find(c->s, "process.memory_nodes");
    const char *allowed = node >= 0 && asked ? doctor_look(c, "process.memory_nodes") : NULL;
    char near[24];
    hdi_cpus a, b, both;
    snprintf(near, sizeof(near), "%lld", node);
    return allowed && hdi_cpus_parse(allowed, &a) && hdi_cpus_parse(near, &b) && !hdi_cpus_common(&a, &b, &both);
}

static bool doctor_links_judge_no_node(doctor_case *c)
{
    return doctor_links_case_several_nodes(c) && doctor_is_not(c, "yes", "system.hypervisor") &&
           doctor_is(c, "-1", "gpu.%d.node", c->a);
}

const doctor_rule doctor_rules_links[] = {
    {"link-narrow", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the PCIe link has fewer lanes than both ends support",
     "copies are slower by the same factor",
     "reseat the card and the riser, and clean the contacts; check the firmware's setting of the slot", false,
     doctor_links_judge_narrow, DOCTOR_NO_CAUSE, 0},
    {"link-slow", DOCTOR_WARNING, DOCTOR_GPU, AREA, "under load, the PCIe link is slower than both ends support",
     "the link did not train to its full speed, or errors have lowered its speed",
     "try another riser or cable, and check the firmware's setting of the slot; dmesg | grep -i aer shows errors",
     false, doctor_links_judge_slow, DOCTOR_NO_CAUSE, 0},
    {"slot-narrow", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the slot or riser has fewer lanes than the device",
     "copies are slower by the same factor",
     "use a slot with all lanes that is not connected to the chipset, and no x1 or x4 riser", false,
     doctor_links_judge_slot_narrow, DOCTOR_NO_CAUSE, 0},
    {"nvlink", DOCTOR_WARNING, DOCTOR_GPU, AREA, "some NVLink links are down",
     "more links are up on other devices of the same kind",
     "nvidia-smi nvlink -s -i " DOCTOR_BUS "; reset the device, reseat the bridge, and look for Xid 74 in dmesg", false,
     doctor_links_judge_nvlink, DOCTOR_NO_CAUSE, 0},
    {"numa-far", DOCTOR_WARNING, DOCTOR_GPU, NUMA, "this process may not run near the device",
     "this process's threads, and Heddle's threads that copy, work across sockets, and pinned memory is far away, too",
     "use numactl --cpunodebind=NODE, another --cpuset-cpus of the container, or another --cpu-bind of the batch "
     "system",
     false, doctor_links_judge_far, DOCTOR_NO_CAUSE, 0},
    {"numa-memory", DOCTOR_WARNING, DOCTOR_GPU, NUMA, "this process gets no memory near the device",
     "the memory that it pins belongs to another processor, so every copy crosses between the processors",
     "use numactl --membind=NODE, another --cpuset-mems of the container, or another --mem-bind of the batch system",
     false, doctor_links_judge_memory, DOCTOR_NO_CAUSE, 0},
    {"nvlink-part", DOCTOR_NOTE, DOCTOR_GPU, AREA, "only some NVLink links are up",
     "a card with so few links has one bridge, which connects all of the links",
     "nvidia-smi nvlink -s -i " DOCTOR_BUS "; reseat the bridge, and look for Xid 74 in dmesg", false,
     doctor_links_judge_nvlink_part, DOCTOR_NO_CAUSE, 0},
    {"slot-slow", DOCTOR_NOTE, DOCTOR_GPU, AREA, "the slot supports only an older PCIe generation than the device",
     "the link cannot be faster than its slower end", "", false, doctor_links_judge_slot_slow, DOCTOR_NO_CAUSE, 0},
    {"numa-unknown", DOCTOR_NOTE, DOCTOR_GPU, NUMA, "the firmware does not report the device's NUMA node",
     "Heddle cannot place threads and pinned memory near the device",
     "update the firmware; nvidia-smi topo -m shows the nodes", false, doctor_links_judge_no_node, DOCTOR_NO_CAUSE, 0},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL, DOCTOR_NO_CAUSE, 0}};
