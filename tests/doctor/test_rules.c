/* test_rules.c - each rule of the tables: the least facts for which it finds something, and the one change that makes it find nothing.
 *
 * Facts are "key=value;key=value". The twin has the same, but for the change in the third column, which comes first and so stays.
 * Promise: Every rule finds its planted cause, with evidence and a remedy or a reason, and finds nothing in the twin without it.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdbool.h>
#include "cli/doctor/findings.h"

#define PAIR "gpus=2;pair.0.1.read=ok;pair.1.0.read=ok;"

static const struct {
    const char *id, *facts, *change;
} cases[] = {
    {"nouveau", "gpus=1;gpu.0.kernel_driver=nouveau", "gpu.0.kernel_driver=nvidia"},
    {"driver-missing", "gpus=1;gpu.0.kernel_driver=none;module.nvidia=no", "system.wsl=yes"},
    {"version-skew", "driver.module=570.1;driver.nvml=570.2", "driver.nvml=570.1"},
    {"version-skew", "nvml.state=version mismatch of library and kernel module", "nvml.state=ok"},
    {"fabric-manager", "driver.init=802 (x)", "driver.init=0 (ok)"},
    {"fabric-state", "gpus=1;gpu.0.fabric_state=2", "gpu.0.fabric_state=0"},
    {"fabric-state", "gpus=1;gpu.0.fabric_state=3;gpu.0.fabric_status=5", "gpu.0.fabric_status=0"},
    {"driver-init", "gpus=1;driver.init=999 (x)", "gpus=0"},
    {"libcuda-missing", "gpus=1;module.nvidia=yes;driver.library=cannot be opened", "module.nvidia=no"},
    {"driver-silent", "driver.end=no answer within 30 s", "driver.end=ordinary"},
    {"nvml-silent", "nvml.end=crashed with signal 11", "nvml.end=ordinary"},
    {"device-files", "module.nvidia=yes;device_files.control=yes;device_files.uvm=no", "device_files.uvm=yes"},
    {"libcuda-skew", "driver.module=535.1;driver.libcuda=570.1", "driver.libcuda=535.1"},
    {"wsl", "system.wsl=yes", "system.wsl=no"},
    {"confidential", "gpus=2;confidential.on=yes;confidential.multi_gpu=none", "confidential.multi_gpu=protected"},
    {"nvml-missing", "module.nvidia=yes;nvml.state=NVML's error 999", "nvml.state=ok"},
    {"mps", "mps.server=yes", "mps.server=no"},
    {"gpu-lost", "gpus=1;gpu.0.nvml=the device is lost", "gpu.0.nvml=ok"},
    {"gpu-lost", "gpus=1;gpu.0.config=gone", "gpu.0.config=ok"},
    {"gpu-lost", "gpus=1;gpu.0.xid=31, 79", "gpu.0.xid=31, 179"},
    {"gpu-absent", "gpus=1;gpu.0.nvml=absent;nvml.state=ok;gpu.0.kernel_driver=nvidia", "gpu.0.kernel_driver=vfio-pci"},
    {"gpu-absent", "gpus=1;gpu.0.nvml=absent;nvml.state=ok;gpu.0.kernel_driver=nvidia", "system.container=yes"},
    {"xid", "gpus=1;gpu.0.xid=13, 48", "gpu.0.xid=13, 43"},
    {"rows-failed", "gpus=1;gpu.0.rows_failed=yes", "gpu.0.rows_failed=no"},
    {"compute-prohibited", "gpus=1;gpu.0.compute_mode=prohibited", "gpu.0.compute_mode=default"},
    {"rows-pending", "gpus=1;gpu.0.rows_pending=yes", "gpu.0.rows_pending=no"},
    {"rows-pending", "gpus=1;gpu.0.pages_pending=yes", "gpu.0.pages_pending=no"},
    {"ecc", "gpus=1;gpu.0.ecc_uncorrected=1", "gpu.0.ecc_uncorrected=0"},
    {"clocks-hardware", "gpus=1;gpu.0.clock_reasons=72", "gpu.0.clock_reasons=1"},
    {"clocks-hot", "gpus=1;gpu.0.clock_reasons=32", "gpu.0.clock_reasons=0"},
    {"power-limit", "gpus=1;gpu.0.power_limit_mw=250000;gpu.0.power_default_mw=300000", "gpu.0.power_limit_mw=300000"},
    {"clocks-set", "gpus=1;gpu.0.clock_reasons=2", "gpu.0.clock_reasons=4"},
    {"clocks-set",
     "gpus=1;gpu.0.clock_reasons=2;gpu.0.clock_application_mhz=900;gpu.0.clock_application_default_mhz=1312",
     "gpu.0.clock_application_mhz=1312"},
    {"mig", "gpus=1;gpu.0.mig=yes", "gpu.0.mig=no"},
    {"mig-pending", "gpus=1;gpu.0.mig=no;gpu.0.mig_pending=yes", "gpu.0.mig_pending=no"},
    {"shared", "gpus=1;gpu.0.compute_processes=2", "mps.server=yes"},
    {"clocks-power", "gpus=1;gpu.0.clock_reasons=4;gpu.0.power_limit_mw=300000;gpu.0.power_default_mw=300000",
     "gpu.0.clock_reasons=0"},
    {"compute-exclusive", "gpus=1;gpu.0.compute_mode=exclusive", "mps.server=yes"},
    {"persistence", "gpus=1;gpu.0.persistence=no", "gpu.0.persistence=yes"},
    {"graphics", "gpus=2;gpu.1.graphics_processes=3", "gpu.1.graphics_processes=0"},
    {"graphics", "gpus=2;gpu.0.display=yes", "gpus=1"},
    {"pair-corrupt", PAIR "pair.0.1.verdict=corrupt", "pair.0.1.verdict=usable"},
    {"iommu", PAIR "gpu.0.iommu=DMA-FQ", "gpu.0.iommu=identity"},
    {"iommu", PAIR "gpu.0.iommu=DMA", "pair.0.1.nvlinks=4;pair.1.0.nvlinks=4"},
    {"iommu", PAIR "gpu.0.iommu=DMA", "pair.0.1.verdict=usable;pair.1.0.verdict=usable"},
    {"iommu", PAIR "gpu.0.iommu=DMA", "pair.0.1.cuda=no;pair.1.0.cuda=no"},
    {"acs", PAIR "gpu.1.acs=0000:17:01.0=0x001d", "gpu.1.acs=none"},
    {"vm-peers", PAIR "system.hypervisor=yes", "system.hypervisor=no"},
    {"vm-peers", PAIR "gpu.0.virtualization=passthrough", "gpu.0.virtualization=none"},
    {"window-small", "gpus=2;gpu.0.window_mib=256;gpu.0.memory_mib=24576;pair.1.0.code=205", "gpu.0.window_mib=32768"},
    {"window-small", "gpus=2;gpu.0.window_mib=256;gpu.0.memory_mib=24576;pair.1.0.code=205", "pair.1.0.code=0"},
    {"registry", "driver.registry=\"ForceP2P=17\"", "driver.registry=none"},
    {"refused-registry", "gpus=2;pair.0.1.write=disabled by registry key", "pair.0.1.write=ok"},
    {"refused-chipset", "gpus=2;pair.0.1.read=chipset not supported", "pair.0.1.read=ok"},
    {"refused-topology", "gpus=2;pair.0.1.read=topology not supported", "pair.0.1.read=ok"},
    {"refused-other", "gpus=2;pair.0.1.read=not supported", "gpu.1.mig=yes"},
    {"refused-other", "gpus=2;pair.0.1.cuda=no", "pair.0.1.read=GPU not supported"},
    {"refused-test", PAIR "pair.0.1.verdict=refused;pair.0.1.code=201", "pair.0.1.code=711"},
    {"one-way", "gpus=2;pair.0.1.read=ok;pair.1.0.read=not supported", "pair.1.0.read=ok"},
    {"too-many-peers", "gpus=2;pair.0.1.code=711", "pair.0.1.code=0"},
    {"pair-slow", PAIR "pair.0.1.verdict=slow", "pair.0.1.verdict=usable"},
    {"acs-hint", PAIR "gpu.0.iommu_group=7;gpu.1.iommu_group=8;pair.0.1.path=same switch", "gpu.1.iommu_group=7"},
    {"acs-hint", PAIR "gpu.0.iommu_group=7;gpu.1.iommu_group=8;pair.0.1.path=same switch", "gpu.0.acs=none"},
    {"refused-kind", "gpus=2;pair.0.1.read=GPU not supported", "pair.0.1.read=ok"},
    {"untested", PAIR "pair.1.0.verdict=usable", "pair.0.1.verdict=usable"},
    {"link-narrow", "gpus=1;gpu.0.link_width=8;gpu.0.link_width_max=16", "gpu.0.slot_width_max=8"},
    {"link-slow", "gpus=1;gpu.0.link_mts=2500;gpu.0.link_mts_max=16000;gpu.0.utilization=90", "gpu.0.utilization=0"},
    {"link-slow", "gpus=1;gpu.0.link_mts=8000;gpu.0.link_mts_max=16000;gpu.0.utilization=90",
     "gpu.0.slot_mts_max=8000"},
    {"slot-narrow", "gpus=1;gpu.0.slot_width_max=4;gpu.0.link_width_max=16", "gpu.0.slot_width_max=16"},
    {"nvlink", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.nvlinks=17;gpu.1.nvlinks=18", "gpu.1.nvlinks=17"},
    {"nvlink", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.nvlinks=17;gpu.1.nvlinks=18", "gpu.1.name=y"},
    {"numa-far", "gpus=1;system.nodes=2;gpu.0.node=1;node.1.cpus=8-15;process.cpus=0-7", "process.cpus=0-8"},
    {"slot-slow", "gpus=1;gpu.0.link_mts_max=16000;gpu.0.slot_mts_max=8000", "gpu.0.slot_mts_max=32000"},
    {"numa-unknown", "gpus=1;system.nodes=2;gpu.0.node=-1", "system.nodes=1"},
    {"devices-hidden", "gpus=1;env.CUDA_VISIBLE_DEVICES=-1", "env.CUDA_VISIBLE_DEVICES=0"},
    {"shm-small", "system.container=yes;system.shm_mib=64", "system.container=no"},
    {"memlock", "process.memlock_kib=64;system.infiniband=1", "process.memlock_kib=unlimited"},
    {"max-connections", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "env.CUDA_DEVICE_MAX_CONNECTIONS=(not set)"},
    {"launch-blocking", "env.CUDA_LAUNCH_BLOCKING=1", "env.CUDA_LAUNCH_BLOCKING=0"},
    {"peers-trusted", "env.HEDDLE_PEERS=trust", "env.HEDDLE_PEERS=test"},
    {"ipc-namespace", "gpus=2;process.ipc_namespace=own", "gpus=1"},
    {"ptrace", "system.ptrace_scope=2", "system.ptrace_scope=1"},
    {"lazy-loading", "env.CUDA_MODULE_LOADING=LAZY", "env.CUDA_MODULE_LOADING=EAGER"},
    {"device-order", "gpus=2;gpu.0.name=x;gpu.1.name=y", "env.CUDA_DEVICE_ORDER=PCI_BUS_ID"},
    {"device-order", "gpus=2;gpu.0.cuda_number=1;gpu.1.cuda_number=0", "gpu.0.cuda_number=0;gpu.1.cuda_number=1"},
    {"peers-off", "env.NCCL_P2P_DISABLE=1", "env.NCCL_P2P_DISABLE=0"},
    {"peers-off", "env.HEDDLE_PEERS=off", "env.HEDDLE_PEERS=(not set)"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void put_all(doctor_snapshot *s, const char *facts)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", facts);
    char *rest = text;
    for (char *one; (one = strtok_r(rest, ";", &rest));) {
        char *value = strchr(one, '=');
        if (!value) {
            fail_msg("no value in %s", facts);
        }
        *value = 0;
        doctor_put(s, value + 1, "%s", one);
    }
}

/* The finding of that rule in these facts; false: none. */
static bool finds(const char *id, const char *first, const char *facts)
{
    doctor_snapshot s = {0};
    doctor_findings f;
    bool found = false;
    put_all(&s, first);
    put_all(&s, facts);
    doctor_judge(&s, &f);
    for (int i = 0; i < f.n; i++) {
        if (strcmp(f.list[i].rule->id, id) == 0) {
            if (f.list[i].n_evidence == 0) {
                fail_msg("%s has no evidence", id);
            }
            found = true;
        }
    }
    doctor_findings_release(&f);
    doctor_release(&s);
    return found;
}

static void finds_what_is_planted(void **unused)
{
    (void)unused;
    int wrong = 0;
    for (int i = 0; i < CASES; i++) {
        if (!finds(cases[i].id, "", cases[i].facts)) {
            fprintf(stderr, "%s is not found in: %s\n", cases[i].id, cases[i].facts);
            wrong++;
        }
        if (finds(cases[i].id, cases[i].change, cases[i].facts)) {
            fprintf(stderr, "%s is found with %s in: %s\n", cases[i].id, cases[i].change, cases[i].facts);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static void every_rule_is_tried(void **unused)
{
    (void)unused;
    static const doctor_rule *const tables[] = {doctor_rules_driver, doctor_rules_health, doctor_rules_peers,
                                                doctor_rules_links, doctor_rules_process};
    int rules = 0;
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const doctor_rule *rule = tables[t]; rule->id; rule++, rules++) {
            bool tried = false;
            for (int i = 0; i < CASES; i++) {
                tried |= strcmp(cases[i].id, rule->id) == 0;
            }
            if (!tried) {
                fail_msg("%s has no case here", rule->id);
            }
            assert_true(rule->title[0] && rule->why[0]);
            assert_true(rule->fix[0] || rule->severity == DOCTOR_NOTE);
        }
    }
    assert_true(rules <= DOCTOR_RULES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_planted),
        cmocka_unit_test(every_rule_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
