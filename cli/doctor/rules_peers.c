/* rules_peers.c - rules about peer access: what refuses it, what makes it lose bytes, and what `heddle p2p` has verified.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/rules.h"

#include <string.h>

#define AREA "peers"

enum { PEERS_MOST = 8, CODE_MAP_FAILED = 205, CODE_TOO_MANY = 711 };

/* ---- of a pair ---- */

/* What NVML or CUDA reports of the pair is that access is given. Nothing is reported: false, and not answered. */
static bool is_given(doctor_case *c, int a, int b)
{
    const char *read = doctor_maybe(c, "pair.%d.%d.read", a, b), *write = doctor_maybe(c, "pair.%d.%d.write", a, b);
    const char *cuda = read ? doctor_maybe(c, "pair.%d.%d.cuda", a, b) : doctor_look(c, "pair.%d.%d.cuda", a, b);
    bool refused =
        (read && strcmp(read, "ok") != 0) || (write && strcmp(write, "ok") != 0) || (cuda && strcmp(cuda, "no") == 0);
    return (read || cuda) && !refused;
}

/* Both are at an NVSwitch or have joined its fabric, or have links to each other. */
static bool is_nvlink(doctor_case *c, int a, int b)
{
    return doctor_number_maybe(c, 0, "pair.%d.%d.nvlinks", a, b) > 0 ||
           (doctor_number_maybe(c, 0, "gpu.%d.nvlinks_switch", a) > 0 &&
            doctor_number_maybe(c, 0, "gpu.%d.nvlinks_switch", b) > 0);
}

static bool is_verified(doctor_case *c, int a, int b)
{
    const char *verdict = doctor_maybe(c, "pair.%d.%d.verdict", a, b);
    return verdict && (strcmp(verdict, "usable") == 0 || strcmp(verdict, "slow") == 0);
}

/* Access is given, over PCIe, and no test has shown that bytes arrive. What was read for this is no evidence. */
static bool is_at_risk(doctor_case *c, int a, int b)
{
    int before = c->n;
    bool risk = is_given(c, a, b) && !is_nvlink(c, a, b) && !is_verified(c, a, b);
    doctor_drop(c, before);
    return risk;
}

/* The first device for which that is so with c->a, in one direction or the other; -1: none. */
static int risky_peer(doctor_case *c)
{
    int n = doctor_gpus(c->s);
    for (int b = 0; b < n; b++) {
        if (b != c->a && (is_at_risk(c, c->a, b) || is_at_risk(c, b, c->a))) {
            return b;
        }
    }
    return -1;
}

/* ---- what loses bytes ---- */

/* What a test has found of the pair. Where access is refused there is none, which answers the question, too. */
static bool has_verdict(doctor_case *c, const char *verdict)
{
    int before = c->n;
    const char *is = doctor_maybe(c, "pair.%d.%d.verdict", c->a, c->b);
    if (!is && is_given(c, c->a, c->b)) {
        doctor_look(c, "pair.%d.%d.verdict", c->a, c->b);
    }
    if (!is) {
        doctor_drop(c, before);
    }
    return is && strcmp(is, verdict) == 0;
}

static bool judge_corrupt(doctor_case *c)
{
    if (!has_verdict(c, "corrupt")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.reason", c->a, c->b);
    return true;
}

/* By the type of the IOMMU's group. */
static bool is_translated(const char *type)
{
    return type && strncmp(type, "DMA", 3) == 0;
}

static bool judge_iommu(doctor_case *c)
{
    return is_translated(doctor_look(c, "gpu.%d.iommu", c->a)) && risky_peer(c) >= 0;
}

/* Direct copies below one switch do not leave it, unless something sends their bytes up. What was read is evidence then. */
static bool is_slow_in_switch(doctor_case *c, int a, int b)
{
    int before = c->n;
    const char *verdict = doctor_maybe(c, "pair.%d.%d.verdict", a, b);
    const char *path = doctor_maybe(c, "pair.%d.%d.path", a, b);
    bool slow = verdict && strcmp(verdict, "slow") == 0 && path && strcmp(path, "same switch") == 0;
    int kept = c->n;
    slow = slow && !is_nvlink(c, a, b);
    doctor_drop(c, slow ? kept : before);
    return slow;
}

/* Whether bridges of the device lie below what it has in common with that peer. What is above both is in the lists of both,
 * and the bytes of the pair do not come there. */
static bool has_redirect(doctor_case *c, int peer)
{
    const char *mine = doctor_maybe(c, "gpu.%d.acs", c->a);
    int kept = c->n;
    const char *theirs = doctor_maybe(c, "gpu.%d.acs", peer);
    doctor_drop(c, kept);
    while (mine && *mine && strcmp(mine, "none") != 0) {
        char bridge[64];
        size_t length = strcspn(mine, "= ");
        snprintf(bridge, sizeof(bridge), "%.*s=", (int)(length < 60 ? length : 60), mine);
        if (!theirs || !strstr(theirs, bridge)) {
            return true;
        }
        mine += strcspn(mine, " ");
        mine += strspn(mine, " ");
    }
    return false;
}

static bool judge_acs(doctor_case *c)
{
    bool asked = false;
    for (int b = 0; b < doctor_gpus(c->s); b++) {
        int before = c->n;
        if (b == c->a || !(is_at_risk(c, c->a, b) || is_at_risk(c, b, c->a) || is_slow_in_switch(c, c->a, b) ||
                           is_slow_in_switch(c, b, c->a))) {
            continue;
        }
        if (has_redirect(c, b)) {
            return true;
        }
        asked = true;
        doctor_drop(c, before);
    }
    if (asked) {
        doctor_look(c, "gpu.%d.acs", c->a);
    }
    return false;
}

/* The registers cannot be read, but what is behind one switch would be in one group without ACS. */
static bool judge_acs_hint(doctor_case *c)
{
    if (doctor_maybe(c, "gpu.%d.acs", c->a) || !doctor_is_not(c, "off", "gpu.%d.iommu", c->a) ||
        !(is_at_risk(c, c->a, c->b) || is_slow_in_switch(c, c->a, c->b)) ||
        !doctor_is(c, "same switch", "pair.%d.%d.path", c->a, c->b)) {
        return false;
    }
    const char *a = doctor_look(c, "gpu.%d.iommu_group", c->a), *b = doctor_look(c, "gpu.%d.iommu_group", c->b);
    return a && b && strcmp(a, b) != 0;
}

static bool judge_machine(doctor_case *c)
{
    const char *mode = doctor_maybe(c, "gpu.%d.virtualization", c->a);
    return ((mode && strcmp(mode, "passthrough") == 0) || doctor_is(c, "yes", "system.hypervisor")) &&
           doctor_is_not(c, "yes", "system.wsl") && doctor_is_not(c, "host", "driver.provider") && risky_peer(c) >= 0;
}

static bool judge_window(doctor_case *c)
{
    long long window = doctor_number(c, 0, "gpu.%d.window_mib", c->a);
    long long memory = doctor_number(c, 0, "gpu.%d.memory_mib", c->a);
    if (window <= 0 || window >= memory) {
        return false;
    }
    for (int b = 0; b < doctor_gpus(c->s); b++) { /* a program of device b maps memory of this one */
        int before = c->n;
        long long code = b != c->a ? doctor_number_maybe(c, -1, "pair.%d.%d.code", b, c->a) : 0;
        if (code == CODE_MAP_FAILED) {
            return true;
        }
        if (code < 0 && is_given(c, b, c->a)) {
            doctor_look(c, "pair.%d.%d.code", b, c->a);
        }
        doctor_drop(c, before);
    }
    return false;
}

static bool judge_registry(doctor_case *c)
{
    if (!doctor_is_not(c, "no", "module.nvidia") || !doctor_is_not(c, "yes", "system.wsl")) {
        return false;
    }
    const char *keys = doctor_look(c, "driver.registry");
    return keys && strcmp(keys, "none") != 0;
}

/* ---- what refuses ---- */

/* NVML has reasons. What CUDA gives needs none. */
static bool is_refused_as(doctor_case *c, const char *reason)
{
    int before = c->n;
    const char *read = doctor_maybe(c, "pair.%d.%d.read", c->a, c->b);
    if (read && strcmp(read, reason) == 0) {
        return true;
    }
    doctor_drop(c, before);
    const char *write = doctor_maybe(c, "pair.%d.%d.write", c->a, c->b);
    if (write && strcmp(write, reason) == 0) {
        return true;
    }
    doctor_drop(c, before);
    if (!read && !write && doctor_is_not(c, "yes", "pair.%d.%d.cuda", c->a, c->b)) {
        doctor_look(c, "pair.%d.%d.read", c->a, c->b);
    }
    return false;
}

static bool judge_refused_registry(doctor_case *c)
{
    return is_refused_as(c, "disabled by registry key");
}

static bool judge_refused_chipset(doctor_case *c)
{
    if (!is_refused_as(c, "chipset not supported")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    return true;
}

static bool judge_refused_topology(doctor_case *c)
{
    if (!is_refused_as(c, "topology not supported")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    return true;
}

static bool judge_refused_kind(doctor_case *c)
{
    if (!is_refused_as(c, "GPU not supported")) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.name", c->a);
    doctor_maybe(c, "driver.module");
    return true;
}

/* A small window can be the reason that the driver keeps to itself. */
static void add_window(doctor_case *c, int i)
{
    int before = c->n;
    long long window = doctor_number_maybe(c, 0, "gpu.%d.window_mib", i);
    long long memory = doctor_number_maybe(c, 0, "gpu.%d.memory_mib", i);
    if (window <= 0 || window >= memory) {
        doctor_drop(c, before);
    }
}

/* MIG, WSL and confidential computing have rules of their own. */
static bool judge_refused_other(doctor_case *c)
{
    bool plain = doctor_is_not(c, "yes", "gpu.%d.mig", c->a) && doctor_is_not(c, "yes", "gpu.%d.mig", c->b) &&
                 doctor_is_not(c, "yes", "system.wsl") && doctor_is_not(c, "yes", "confidential.on");
    if (!plain) {
        return false;
    }
    if (is_refused_as(c, "not supported") || is_refused_as(c, "unknown")) {
        add_window(c, c->b);
        return true;
    }
    if (doctor_maybe(c, "pair.%d.%d.read", c->a, c->b) || !doctor_is(c, "no", "pair.%d.%d.cuda", c->a, c->b)) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    add_window(c, c->b);
    return true;
}

static bool judge_refused_test(doctor_case *c)
{
    return has_verdict(c, "refused") && is_given(c, c->a, c->b) &&
           doctor_number_maybe(c, 0, "pair.%d.%d.code", c->a, c->b) != CODE_TOO_MANY;
}

/* The driver gives a device eight peers over PCIe at a time. */
static bool judge_too_many(doctor_case *c)
{
    int peers = 0;
    bool many = doctor_gpus(c->s) > PEERS_MOST;
    for (int b = 0; b < doctor_gpus(c->s); b++) {
        int before = c->n;
        if (b != c->a && doctor_number_maybe(c, 0, "pair.%d.%d.code", c->a, b) == CODE_TOO_MANY) {
            return true;
        }
        peers += many && b != c->a && is_given(c, c->a, b) && !is_nvlink(c, c->a, b);
        doctor_drop(c, before);
    }
    return peers > PEERS_MOST && doctor_number(c, 0, "gpus") > PEERS_MOST;
}

static bool judge_one_way(doctor_case *c)
{
    const char *there = doctor_maybe(c, "pair.%d.%d.read", c->a, c->b);
    const char *back = doctor_maybe(c, "pair.%d.%d.read", c->b, c->a);
    if (there && back) {
        return strcmp(there, "ok") == 0 && strcmp(back, "ok") != 0;
    }
    doctor_drop(c, 0);
    return doctor_is(c, "yes", "pair.%d.%d.cuda", c->a, c->b) && doctor_is(c, "no", "pair.%d.%d.cuda", c->b, c->a);
}

/* ---- what is slow, or not verified ---- */

static bool judge_slow(doctor_case *c)
{
    if (!has_verdict(c, "slow")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.direct_mb_per_s", c->a, c->b);
    doctor_maybe(c, "pair.%d.%d.staged_mb_per_s", c->a, c->b);
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    for (int i = 0; i < 2; i++) {
        int before = c->n;
        if (!is_translated(doctor_maybe(c, "gpu.%d.iommu", i ? c->b : c->a))) {
            doctor_drop(c, before);
        }
    }
    return true;
}

/* A test that could not decide has verified nothing either. */
static bool judge_untested(doctor_case *c)
{
    if (!is_given(c, c->a, c->b)) {
        return false;
    }
    const char *verdict = doctor_maybe(c, "pair.%d.%d.verdict", c->a, c->b);
    return !verdict || strcmp(verdict, "inconclusive") == 0 || strcmp(verdict, "unknown") == 0;
}

/* Over PCIe that is usual. */
static bool judge_atomics(doctor_case *c)
{
    const char *atomics = doctor_maybe(c, "pair.%d.%d.atomics", c->a, c->b);
    return atomics && strcmp(atomics, "ok") != 0 && is_given(c, c->a, c->b) && is_nvlink(c, c->a, c->b);
}

const doctor_rule doctor_rules_peers[] = {
    {"pair-corrupt", DOCTOR_ERROR, DOCTOR_PAIR, AREA, "the driver gives peer access, and a test of it went wrong",
     "bytes or counts were wrong, or the test faulted or crashed; its reason is in the evidence. hd_copy goes another "
     "way, and other programs compute wrong results",
     "iommu=pt for the kernel, ACS off at the bridges (lspci -vvv), no virtual machine; then heddle p2p --verdicts "
     "--again, and until then NCCL_P2P_DISABLE=1 for NCCL",
     true, judge_corrupt},
    {"iommu", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the IOMMU translates addresses of a device that has peers",
     "what one device writes into another one's memory may get lost, without any error",
     "start the kernel with iommu=pt (or amd_iommu=off, intel_iommu=off), then heddle p2p --verdicts", true,
     judge_iommu},
    {"acs", DOCTOR_WARNING, DOCTOR_GPU, AREA, "bridges send what is between peers up to the processor (ACS)",
     "peer copies are slow, hang, or get lost where an IOMMU translates",
     "setpci -s BRIDGE ECAP_ACS+0x6.w=0 for each bridge in gpu.N.acs, after each start; not where virtual machines "
     "need isolation",
     true, judge_acs},
    {"vm-peers", DOCTOR_WARNING, DOCTOR_GPU, AREA, "a virtual machine was given peer access that no test has verified",
     "the grant may lead to a private copy: the writer sees its bytes, and the owner does not",
     "heddle p2p --verdicts; the host's operator passes devices through as one clique where the hardware can do it",
     false, judge_machine},
    {"window-small", DOCTOR_WARNING, DOCTOR_GPU, AREA,
     "the memory window (BAR1) is smaller than the memory, and mapping fails",
     "peers over PCIe go through the window, and code 205 is the driver's answer where it is too small",
     "turn on \"above 4G decoding\" and resizable BAR in the firmware", true, judge_window},
    {"registry", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "settings of the kernel module force a kind of peer access",
     "forced access is given where the hardware may not carry it, or withheld where it does",
     "take the keys out of /etc/modprobe.d, and load the module nvidia again", true, judge_registry},
    {"refused-registry", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "a registry key of the driver turns peer access off",
     "copies between these devices are staged",
     "take the key out of /etc/modprobe.d (NVreg_RegistryDwords), and load the "
     "module nvidia again",
     true, judge_refused_registry},
    {"refused-chipset", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "the driver refuses peer access because of the chipset",
     "the root complex between them is not one that the driver trusts with it; copies are staged",
     "put both devices behind one PCIe switch; in a virtual machine it takes a clique of the host's", false,
     judge_refused_chipset},
    {"refused-topology", DOCTOR_WARNING, DOCTOR_PAIR, AREA,
     "the driver refuses peer access because of the way between the devices",
     "they hang on different root complexes; copies are staged",
     "put both devices into slots of one processor, or behind one switch", false, judge_refused_topology},
    {"refused-other", DOCTOR_WARNING, DOCTOR_PAIR, AREA,
     "the driver refuses peer access without a reason that it names", "copies between these devices are staged",
     "nvidia-smi topo -p2p r and dmesg | grep -i nvrm; where the window is smaller than the memory, turn on resizable "
     "BAR in the firmware",
     false, judge_refused_other},
    {"refused-test", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "the driver offers peer access, and refuses it when it is used",
     "copies between these devices are staged", "heddle p2p --verdicts --again shows the call and its code", false,
     judge_refused_test},
    {"one-way", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "peer access is given one way only",
     "libraries that expect both ways fail or fall back", "nvidia-smi topo -p2p r", false, judge_one_way},
    {"too-many-peers", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the device has more peers than the driver serves at a time",
     "each device has eight peers over PCIe at most; the next one is refused (code 711)",
     "choose the pairs that matter; other copies are staged", false, judge_too_many},
    {"pair-slow", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "direct copies are slower than staged ones",
     "hd_copy therefore stages, and kernels may still use the memory directly",
     "see the links and the bridges of both; where an IOMMU translates (DMA), start the kernel with iommu=pt", false,
     judge_slow},
    {"acs-hint", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "bridges between these devices probably isolate them (ACS)",
     "both are behind one switch, yet in two IOMMU groups", "as root: heddle doctor, which then reads the bridges",
     true, judge_acs_hint},
    {"refused-kind", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "devices of this kind have no peer access with this driver",
     "NVIDIA's driver gives it to few GeForce cards; copies are staged", "", false, judge_refused_kind},
    {"untested", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "no test has verified the driver's word on peer access",
     "a driver may report access that loses bytes",
     "heddle p2p --verdicts; where a test was inconclusive, --again, and its reason names the cause", false,
     judge_untested},
    {"atomics", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "the driver reports no atomic operations between devices with NVLink",
     "kernels that count or lock in the other device's memory may compute wrong results",
     "nvidia-smi topo -p2p a; nvidia-smi nvlink -s", false, judge_atomics},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL}};
