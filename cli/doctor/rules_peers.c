/* rules_peers.c - rules about peer access: refusals, lost bytes, and the results of `heddle p2p`.
 *
 * The facts that exclude a cause are in causes.c. A rule here reads only the facts of its own
 * subject.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/causes.h"

#include <string.h>

#define AREA "peers"

enum { PEERS_MOST = 8, CODE_TOO_MANY = 711, WINDOW_MUCH = 4 };

/* ---- lost bytes ---- */

/* True if the pair's test has this result. If access is refused, the test has no result. Then the
 * answer is false, and the case is answered. */
static bool doctor_peers_case_has_verdict(doctor_case *c, const char *verdict)
{
    int before = c->n;
    const char *is = doctor_maybe(c, "pair.%d.%d.verdict", c->a, c->b);
    if (!is && doctor_is_given(c, c->a, c->b)) {
        doctor_look(c, "pair.%d.%d.verdict", c->a, c->b);
    }
    if (!is) {
        doctor_drop(c, before);
    }
    return is && strcmp(is, verdict) == 0;
}

static bool doctor_peers_judge_corrupt(doctor_case *c)
{
    if (!doctor_peers_case_has_verdict(c, "corrupt")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.reason", c->a, c->b);
    return true;
}

static bool doctor_peers_judge_iommu(doctor_case *c)
{
    return doctor_translates(doctor_look(c, "gpu.%d.iommu", c->a));
}

/* True if the kernel log has IOMMU faults of the device. If the IOMMU passes addresses through
 * unchanged, the remedy iommu=pt does not help, and the answer is false. */
static bool doctor_peers_judge_fault(doctor_case *c)
{
    if (!doctor_is_not(c, "identity", "gpu.%d.iommu", c->a) || !doctor_is_not(c, "off", "gpu.%d.iommu", c->a)) {
        return false;
    }
    bool found = doctor_number(c, 0, "gpu.%d.iommu_faults", c->a) > 0;
    doctor_maybe(c, "gpu.%d.iommu", c->a);
    return found;
}

/* For a slow pair, adds verdict and path as evidence. */
static void doctor_peers_case_add_slow(doctor_case *c, int a, int b)
{
    int before = c->n;
    const char *verdict = doctor_maybe(c, "pair.%d.%d.verdict", a, b);
    if (verdict && strcmp(verdict, "slow") == 0) {
        doctor_maybe(c, "pair.%d.%d.path", a, b);
    } else {
        doctor_drop(c, before);
    }
}

/* True if bridges above the device redirect traffic between the device and a peer, and ACS is a
 * cause for this pair. */
static bool doctor_peers_judge_acs(doctor_case *c)
{
    for (int i = 0; i < 2 * doctor_gpus(c->s); i++) {
        int peer = i / 2, from = i % 2 ? peer : c->a, to = i % 2 ? c->a : peer, before = c->n;
        const doctor_fact *by;
        if (peer != c->a && doctor_leaves(c, DOCTOR_ACS, from, to, &by) == DOCTOR_FOUND &&
            doctor_redirects(c, c->a, peer)) {
            doctor_peers_case_add_slow(c, from, to);
            return true;
        }
        doctor_drop(c, before);
    }
    return false;
}

/* For bridges whose ACS registers cannot be read, uses IOMMU groups: without ACS, all devices
 * behind one switch would be in one group. */
static bool doctor_peers_judge_acs_hint(doctor_case *c)
{
    const doctor_fact *by;
    if (doctor_maybe(c, "gpu.%d.acs", c->a) || !doctor_is_not(c, "off", "gpu.%d.iommu", c->a)) {
        return false;
    }
    bool asked = doctor_maybe(c, "pair.%d.%d.verdict", c->a, c->b) || doctor_is_given(c, c->a, c->b);
    doctor_drop(c, 0);
    if (!asked || doctor_leaves(c, DOCTOR_ACS, c->a, c->b, &by) != DOCTOR_POSSIBLE) {
        return false;
    }
    c->missing[0] = 0; /* this rule works without the registers */
    doctor_peers_case_add_slow(c, c->a, c->b);
    doctor_drop(c, c->n > 0);
    if (!doctor_is(c, "same switch", "pair.%d.%d.path", c->a, c->b)) {
        return false;
    }
    const char *a = doctor_look(c, "gpu.%d.iommu_group", c->a), *b = doctor_look(c, "gpu.%d.iommu_group", c->b);
    return a && b && strcmp(a, b) != 0;
}

static bool doctor_peers_judge_machine(doctor_case *c)
{
    const char *mode = doctor_maybe(c, "gpu.%d.virtualization", c->a);
    return (mode && strcmp(mode, "passthrough") == 0) || doctor_is(c, "yes", "system.hypervisor");
}

/* Adds the verdicts and codes of the pairs in which a peer uses this device's memory, and for which
 * the window is a cause. */
static void doctor_peers_case_add_users(doctor_case *c)
{
    const doctor_fact *by;
    for (int b = 0; b < doctor_gpus(c->s); b++) {
        if (b != c->a && doctor_leaves(c, DOCTOR_WINDOW, b, c->a, &by) == DOCTOR_FOUND) {
            doctor_maybe(c, "pair.%d.%d.verdict", b, c->a);
            doctor_maybe(c, "pair.%d.%d.code", b, c->a);
        }
    }
}

static bool doctor_peers_judge_window(doctor_case *c)
{
    long long window = doctor_number(c, 0, "gpu.%d.window_mib", c->a);
    long long memory = doctor_number(c, 0, "gpu.%d.memory_mib", c->a);
    if (window <= 0 || window >= memory) {
        return false;
    }
    doctor_peers_case_add_users(c);
    return true;
}

/* Finds a device whose window is much smaller than that of an equal device. Firmware and kernel
 * give equal devices equal windows, unless there was no room for one of them. */
static bool doctor_peers_judge_sisters(doctor_case *c)
{
    const char *name = doctor_look(c, "gpu.%d.name", c->a);
    long long mine = doctor_number(c, 0, "gpu.%d.window_mib", c->a);
    for (int b = 0; b < doctor_gpus(c->s) && name && mine > 0; b++) {
        int before = c->n;
        const char *other = b != c->a ? doctor_maybe(c, "gpu.%d.name", b) : NULL;
        if (other && strcmp(other, name) == 0 &&
            doctor_number_maybe(c, 0, "gpu.%d.window_mib", b) >= WINDOW_MUCH * mine) {
            return true;
        }
        doctor_drop(c, before);
    }
    return false;
}

static bool doctor_peers_judge_static(doctor_case *c)
{
    return doctor_is(c, "corrupt", "pair.%d.%d.verdict", c->a, c->b) && doctor_look(c, "driver.kind") &&
           doctor_look(c, "driver.registry") && doctor_look(c, "gpu.%d.window_mib", c->b);
}

static bool doctor_peers_judge_display(doctor_case *c)
{
    return doctor_has_display(c, c->a) && doctor_is_culprit(c, c->a);
}

static bool doctor_peers_judge_culprit(doctor_case *c)
{
    if (!doctor_is_culprit(c, c->a) || doctor_has_display(c, c->a)) {
        return false;
    }
    for (int b = 0; b < doctor_gpus(c->s); b++) {
        int before = c->n;
        if (b == c->a || !doctor_is(c, "corrupt", "pair.%d.%d.verdict", b, c->a)) {
            doctor_drop(c, before);
        }
    }
    return true;
}

/* ---- keys of the driver ---- */

static bool doctor_peers_case_has_keys(doctor_case *c)
{
    if (!doctor_is_not(c, "no", "module.nvidia") || !doctor_is_not(c, "yes", "system.wsl")) {
        return false;
    }
    const char *keys = doctor_look(c, "driver.registry");
    return keys && strcmp(keys, "none") != 0;
}

static bool doctor_peers_judge_registry(doctor_case *c)
{
    if (!doctor_peers_case_has_keys(c)) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.verdict", c->a, c->b);
    return true;
}

static bool doctor_peers_judge_registry_works(doctor_case *c)
{
    c->unasked = !c->pairs->works;
    return !c->unasked && doctor_peers_case_has_keys(c) && !doctor_is_blamed(c, DOCTOR_KEYS);
}

/* ---- refusals ---- */

/* True if NVML gives this reason for the refusal. If NVML reports nothing, but CUDA reports access,
 * no reason is missing. */
static bool doctor_peers_case_is_refused_as(doctor_case *c, const char *reason)
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

static bool doctor_peers_judge_refused_registry(doctor_case *c)
{
    return doctor_peers_case_is_refused_as(c, "disabled by registry key");
}

static bool doctor_peers_judge_refused_chipset(doctor_case *c)
{
    if (!doctor_peers_case_is_refused_as(c, "chipset not supported")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    return true;
}

static bool doctor_peers_judge_refused_topology(doctor_case *c)
{
    if (!doctor_peers_case_is_refused_as(c, "topology not supported")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    return true;
}

static bool doctor_peers_judge_refused_kind(doctor_case *c)
{
    if (!doctor_peers_case_is_refused_as(c, "GPU not supported")) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.name", c->a);
    doctor_maybe(c, "driver.module");
    return true;
}

/* True if access is refused and NVML gives no reason. Other rules cover MIG, WSL and confidential
 * computing. */
static bool doctor_peers_case_is_refused_unsaid(doctor_case *c)
{
    bool plain = doctor_is_not(c, "yes", "gpu.%d.mig", c->a) && doctor_is_not(c, "yes", "gpu.%d.mig", c->b) &&
                 doctor_is_not(c, "yes", "system.wsl") && doctor_is_not(c, "yes", "confidential.on");
    if (!plain) {
        return false;
    }
    if (doctor_peers_case_is_refused_as(c, "not supported") || doctor_peers_case_is_refused_as(c, "unknown")) {
        return true;
    }
    return !doctor_maybe(c, "pair.%d.%d.read", c->a, c->b) && doctor_is(c, "no", "pair.%d.%d.cuda", c->a, c->b);
}

/* Finds refusals for which the driver gives no reason. A small window may be the reason, so the
 * window becomes evidence. */
static bool doctor_peers_judge_refused_other(doctor_case *c)
{
    if (!doctor_peers_case_is_refused_unsaid(c)) {
        return false;
    }
    int before = c->n;
    long long window = doctor_number_maybe(c, 0, "gpu.%d.window_mib", c->b);
    long long memory = doctor_number_maybe(c, 0, "gpu.%d.memory_mib", c->b);
    if (window <= 0 || window >= memory) {
        doctor_drop(c, before);
    }
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    return true;
}

/* True if the driver refuses access without a reason, or for a reason that concerns only PCIe, not
 * NVLink. */
static bool doctor_peers_judge_refused_nvlink(doctor_case *c)
{
    if (!doctor_peers_case_is_refused_unsaid(c) && !doctor_peers_case_is_refused_as(c, "chipset not supported") &&
        !doctor_peers_case_is_refused_as(c, "topology not supported")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.nvlinks", c->a, c->b);
    doctor_maybe(c, "gpu.%d.nvlinks_switch", c->a);
    return true;
}

static bool doctor_peers_judge_refused_test(doctor_case *c)
{
    return doctor_peers_case_has_verdict(c, "refused") && doctor_is_given(c, c->a, c->b) &&
           doctor_number_maybe(c, 0, "pair.%d.%d.code", c->a, c->b) != CODE_TOO_MANY;
}

/* The driver allows a device at most eight PCIe peers at one time. */
static bool doctor_peers_judge_too_many(doctor_case *c)
{
    int peers = 0;
    bool many = doctor_gpus(c->s) > PEERS_MOST;
    for (int b = 0; b < doctor_gpus(c->s); b++) {
        int before = c->n;
        if (b != c->a && doctor_number_maybe(c, 0, "pair.%d.%d.code", c->a, b) == CODE_TOO_MANY) {
            return true;
        }
        peers += many && b != c->a && doctor_is_given(c, c->a, b) && !doctor_is_nvlink(c, c->a, b);
        doctor_drop(c, before);
    }
    return peers > PEERS_MOST && doctor_number(c, 0, "gpus") > PEERS_MOST;
}

static bool doctor_peers_judge_one_way(doctor_case *c)
{
    const char *there = doctor_maybe(c, "pair.%d.%d.read", c->a, c->b);
    const char *back = doctor_maybe(c, "pair.%d.%d.read", c->b, c->a);
    if (there && back) {
        return strcmp(there, "ok") == 0 && strcmp(back, "ok") != 0;
    }
    doctor_drop(c, 0);
    return doctor_is(c, "yes", "pair.%d.%d.cuda", c->a, c->b) && doctor_is(c, "no", "pair.%d.%d.cuda", c->b, c->a);
}

/* ---- slow or unverified pairs ---- */

static bool doctor_peers_judge_slow(doctor_case *c)
{
    if (!doctor_peers_case_has_verdict(c, "slow")) {
        return false;
    }
    doctor_maybe(c, "pair.%d.%d.direct_mb_per_s", c->a, c->b);
    doctor_maybe(c, "pair.%d.%d.staged_mb_per_s", c->a, c->b);
    doctor_maybe(c, "pair.%d.%d.path", c->a, c->b);
    for (int i = 0; i < 2; i++) {
        int before = c->n;
        if (!doctor_translates(doctor_maybe(c, "gpu.%d.iommu", i ? c->b : c->a))) {
            doctor_drop(c, before);
        }
    }
    return true;
}

/* True if the driver gives access and no test has verified it. An inconclusive test verifies
 * nothing. */
static bool doctor_peers_judge_untested(doctor_case *c)
{
    if (!doctor_is_given(c, c->a, c->b)) {
        return false;
    }
    const char *verdict = doctor_maybe(c, "pair.%d.%d.verdict", c->a, c->b);
    return !verdict || strcmp(verdict, "inconclusive") == 0 || strcmp(verdict, "unknown") == 0;
}

/* Missing atomics are normal over PCIe. */
static bool doctor_peers_judge_atomics(doctor_case *c)
{
    const char *atomics = doctor_maybe(c, "pair.%d.%d.atomics", c->a, c->b);
    return atomics && strcmp(atomics, "ok") != 0 && doctor_is_given(c, c->a, c->b) && doctor_is_nvlink(c, c->a, c->b);
}

const doctor_rule doctor_rules_peers[] = {
    {"pair-corrupt", DOCTOR_ERROR, DOCTOR_PAIR, AREA,
     "the driver gives peer access, but the test of this access failed",
     "bytes or counts were wrong, or the test faulted or crashed; the evidence shows the reason. hd_copy takes another "
     "route, but other programs may compute wrong results",
     DOCTOR_LEFT "; then heddle p2p --verdicts --again. Until then, set NCCL_P2P_DISABLE=1 for NCCL", true,
     doctor_peers_judge_corrupt, DOCTOR_NO_CAUSE,
     DOCTOR_BIT(DOCTOR_IOMMU) | DOCTOR_BIT(DOCTOR_ACS) | DOCTOR_BIT(DOCTOR_GUEST) | DOCTOR_BIT(DOCTOR_WINDOW) |
         DOCTOR_BIT(DOCTOR_STATIC) | DOCTOR_BIT(DOCTOR_KEYS) | DOCTOR_BIT(DOCTOR_DISPLAY) | DOCTOR_BIT(DOCTOR_DEVICE) |
         DOCTOR_BIT(DOCTOR_NVLINK)},
    {"iommu", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the IOMMU translates addresses of a device that has peers",
     "bytes that one device writes into another device's memory may get lost, without any error",
     "start the kernel with iommu=pt (or amd_iommu=off, intel_iommu=off), then heddle p2p --verdicts", true,
     doctor_peers_judge_iommu, DOCTOR_IOMMU, 0},
    {"iommu-fault", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the IOMMU has refused accesses of the device",
     "the kernel log lists the faults: each refused write is lost, and each refused read returns no data",
     "start the kernel with iommu=pt; dmesg | grep -e DMAR -e AMD-Vi shows the addresses", true,
     doctor_peers_judge_fault, DOCTOR_NO_CAUSE, 0},
    {"acs", DOCTOR_WARNING, DOCTOR_GPU, AREA, "bridges send traffic between peers up to the processor (ACS)",
     "peer copies are slow or hang, or their bytes get lost if an IOMMU translates addresses",
     "setpci -s BRIDGE ECAP_ACS+0x6.w=0 for each bridge in gpu.N.acs, after each start of the machine; do not do this "
     "if virtual machines need the isolation",
     true, doctor_peers_judge_acs, DOCTOR_ACS, 0},
    {"vm-peers", DOCTOR_WARNING, DOCTOR_GPU, AREA, "a virtual machine was given peer access that no test has verified",
     "the access may lead to a private copy: the writer sees its bytes, but the owner does not",
     "heddle p2p --verdicts; if the hardware allows it, ask the host's operator to pass the devices through as one "
     "clique",
     false, doctor_peers_judge_machine, DOCTOR_GUEST, 0},
    {"window-small", DOCTOR_WARNING, DOCTOR_GPU, AREA,
     "the memory window (BAR1) is smaller than the memory, and peers cannot use it",
     "peers over PCIe use the memory through the window. If it is too small, mapping fails with code 205, or bytes get "
     "lost",
     "turn on \"above 4G decoding\" and resizable BAR in the firmware", true, doctor_peers_judge_window, DOCTOR_WINDOW,
     0},
    {"static-mapping", DOCTOR_WARNING, DOCTOR_PAIR, AREA,
     "the driver has probably not mapped the owner's memory into its window",
     "peer access of these cards needs the whole memory mapped into the window. IOMMU, bridges, virtual machine, "
     "window and keys are excluded, and no pair over PCIe works",
     "set NVreg_RegistryDwords=\"RMForceStaticBar1=1;PeerMappingOverride=1\" for the module nvidia in /etc/modprobe.d. "
     "Load the module again, then heddle p2p --verdicts --again. Otherwise, install the driver as NVIDIA ships it",
     true, doctor_peers_judge_static, DOCTOR_STATIC, 0},
    {"display-peers", DOCTOR_WARNING, DOCTOR_GPU, AREA,
     "all pairs that lose bytes contain this device, which has a display; other pairs work",
     "the programs that draw on the display use the same memory window",
     "connect the display to a device that has no peers, or exclude this device (HEDDLE_DEVICES, CUDA_VISIBLE_DEVICES)",
     false, doctor_peers_judge_display, DOCTOR_DISPLAY, 0},
    {"device-peers", DOCTOR_WARNING, DOCTOR_GPU, AREA,
     "all pairs that lose bytes contain this device; other pairs work",
     "these pairs share the card, its slot and its riser",
     "put another card into its slot, to see whether the slot or the card is bad; dmesg | grep -i -e aer -e nvrm",
     false, doctor_peers_judge_culprit, DOCTOR_DEVICE, 0},
    {"registry", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "settings of the kernel module force a kind of peer access",
     "the driver may give access that the hardware does not support, or refuse access that works",
     "heddle p2p --verdicts. If bytes get lost with the keys, remove the keys from /etc/modprobe.d, and load the "
     "module nvidia again; pairs that work may need the keys",
     true, doctor_peers_judge_registry, DOCTOR_KEYS, 0},
    {"window-sisters", DOCTOR_WARNING, DOCTOR_GPU, AREA,
     "the memory window (BAR1) is much smaller than that of another device of this kind",
     "firmware or kernel had no room for a larger window; peers and network cards use the memory through it",
     "dmesg | grep -e 'no space' -e 'failed to assign'; turn on \"above 4G decoding\" and resizable BAR in the "
     "firmware",
     true, doctor_peers_judge_sisters, DOCTOR_NO_CAUSE, 0},
    {"nvlink-refused", DOCTOR_WARNING, DOCTOR_PAIR, AREA,
     "NVLink connects the devices, but the driver refuses peer access",
     "the links are up, but they are broken, or their fabric is not set up; copies are staged",
     "nvidia-smi nvlink -s and -e show the links and their errors. With NVSwitch: systemctl status "
     "nvidia-fabricmanager. Reset the devices, then have bridge, board and cards checked",
     true, doctor_peers_judge_refused_nvlink, DOCTOR_NVLINK, 0},
    {"refused-registry", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "a registry key of the driver turns peer access off",
     "copies between these devices are staged",
     "remove the key from /etc/modprobe.d (NVreg_RegistryDwords), and load the module nvidia again", true,
     doctor_peers_judge_refused_registry, DOCTOR_REFUSAL, 0},
    {"refused-chipset", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "the driver refuses peer access because of the chipset",
     "the driver does not trust the root complex between the devices; copies are staged",
     "put both devices behind one PCIe switch; the host of a virtual machine must pass both devices through as one "
     "clique",
     false, doctor_peers_judge_refused_chipset, DOCTOR_ROUTE, 0},
    {"refused-topology", DOCTOR_WARNING, DOCTOR_PAIR, AREA,
     "the driver refuses peer access because of the path between the devices",
     "the devices are below different root complexes; copies are staged",
     "put both devices into slots of one processor, or behind one switch", false, doctor_peers_judge_refused_topology,
     DOCTOR_ROUTE, 0},
    {"refused-other", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "the driver refuses peer access without giving a reason",
     "copies between these devices are staged",
     DOCTOR_LEFT "; nvidia-smi topo -p2p r and dmesg | grep -i nvrm may show more", false,
     doctor_peers_judge_refused_other, DOCTOR_ROUTE, DOCTOR_BIT(DOCTOR_WINDOW) | DOCTOR_BIT(DOCTOR_KEYS)},
    {"refused-test", DOCTOR_WARNING, DOCTOR_PAIR, AREA,
     "the driver reports peer access, but refuses it when a program turns it on",
     "copies between these devices are staged", "heddle p2p --verdicts --again shows the call and its code", false,
     doctor_peers_judge_refused_test, DOCTOR_NO_CAUSE, 0},
    {"one-way", DOCTOR_WARNING, DOCTOR_PAIR, AREA, "the driver gives peer access in one direction only",
     "libraries that expect both directions fail or fall back", "nvidia-smi topo -p2p r shows the pairs", false,
     doctor_peers_judge_one_way, DOCTOR_NO_CAUSE, 0},
    {"too-many-peers", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the device has more peers than the driver serves at a time",
     "a device can have at most eight peers over PCIe; the driver refuses the next one (code 711)",
     "choose the pairs that matter; copies of other pairs are staged", false, doctor_peers_judge_too_many,
     DOCTOR_NO_CAUSE, 0},
    {"pair-slow", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "direct copies are slower than staged ones",
     "hd_copy therefore uses staged copies, but kernels may still use the memory directly",
     DOCTOR_LEFT "; heddle p2p shows the links of both devices, and figures", false, doctor_peers_judge_slow,
     DOCTOR_NO_CAUSE, DOCTOR_BIT(DOCTOR_IOMMU_SLOW) | DOCTOR_BIT(DOCTOR_ACS)},
    {"acs-hint", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "bridges between these devices probably isolate them (ACS)",
     "both devices are behind one switch, yet in two IOMMU groups", "run heddle doctor as root to read the bridges",
     true, doctor_peers_judge_acs_hint, DOCTOR_NO_CAUSE, 0},
    {"refused-kind", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "devices of this kind have no peer access with this driver",
     "NVIDIA's driver gives few GeForce cards peer access; copies are staged", "", false,
     doctor_peers_judge_refused_kind, DOCTOR_REFUSAL, 0},
    {"registry-works", DOCTOR_NOTE, DOCTOR_MACHINE, AREA,
     "settings of the kernel module force a kind of peer access, and the pairs tested with them work",
     "without the keys, these pairs may lose their access, or bytes; test again after an update of the driver", "",
     false, doctor_peers_judge_registry_works, DOCTOR_NO_CAUSE, 0},
    {"untested", DOCTOR_NOTE, DOCTOR_PAIR, AREA, "the driver reports peer access that no test has verified",
     "a driver may report access that loses bytes",
     "heddle p2p --verdicts; after an inconclusive test, add --again: its reason names the cause", false,
     doctor_peers_judge_untested, DOCTOR_NO_CAUSE, 0},
    {"atomics", DOCTOR_NOTE, DOCTOR_PAIR, AREA,
     "the driver reports no atomic operations between devices that NVLink connects",
     "kernels that count or lock in the other device's memory may compute wrong results",
     "nvidia-smi topo -p2p a; nvidia-smi nvlink -s", false, doctor_peers_judge_atomics, DOCTOR_NO_CAUSE, 0},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL, DOCTOR_NO_CAUSE, 0}};
