/* test_rules.c - each rule of the tables: the fewest facts for which it finds something, and the
 * one change that makes it find nothing.
 *
 * A second table lists facts that answer a rule without a finding, a third the missing fact of an
 * unanswered rule.
 * Facts are "key=value;key=value", or "key=?reason" for a missing one. The twin has the same facts
 * after the change in the third column; the change comes first, and the first value of a key
 * counts.
 * Promise: Each rule finds its planted cause with evidence, its twin nothing; gaps name the fact.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdbool.h>
#include "cli/doctor/findings.h"

#define PAIR "gpus=2;pair.0.1.read=ok;pair.1.0.read=ok;"
#define CORRUPT PAIR "pair.0.1.verdict=corrupt;pair.1.0.verdict=corrupt;"
#define BARE                                                                                                           \
    CORRUPT                                                                                                            \
    "system.hypervisor=no;driver.kind=open;driver.registry=none;gpu.0.iommu=identity;gpu.1.iommu=off;"                 \
    "gpu.0.acs=none;gpu.1.acs=none;gpu.0.name=GeForce;gpu.1.name=GeForce;gpu.0.window_mib=9;gpu.0.memory_mib=8;"       \
    "gpu.1.window_mib=9;gpu.1.memory_mib=8"
#define THREE                                                                                                          \
    "gpus=3;pair.0.1.verdict=corrupt;pair.1.0.verdict=corrupt;pair.0.2.verdict=corrupt;pair.2.0.verdict=corrupt;"      \
    "pair.1.2.verdict=usable;pair.2.1.verdict=usable;"
#define SLOW PAIR "pair.0.1.verdict=slow;pair.1.0.verdict=usable;pair.0.1.path=same switch;"
#define ABSENT "gpus=1;gpu.0.nvml=absent;nvml.state=ok;gpu.0.kernel_driver=nvidia;"
#define MEMORY_CLOCK "gpus=1;gpu.0.memory_clock_mhz=1593;gpu.0.memory_clock_max_mhz=2619;"
#define FEWER "gpus=2;expected.devices=2;"
#define SINGLE "gpus=1;gpu.0.graphics_processes=1;"
#define NO_DEVICE "gpus=1;driver.init=100 (no device);"

static const struct {
    const char *id, *facts, *change;
} cases[] = {
    {"nouveau", "gpus=1;gpu.0.kernel_driver=nouveau", "gpu.0.kernel_driver=nvidia"},
    {"driver-missing", "gpus=1;gpu.0.kernel_driver=none;module.nvidia=no", "system.wsl=yes"},
    {"driver-refused", "gpus=1;gpu.0.kernel_driver=none;module.nvidia=yes", "module.nvidia=no"},
    {"driver-refused", "gpus=1;gpu.0.kernel_driver=none;module.nvidia=yes;gpu.0.nvml=absent", "gpu.0.nvml=ok"},
    {"driver-refused", "gpus=1;gpu.0.kernel_driver=none;module.nvidia=yes", "gpu.0.kernel_driver=vfio-pci"},
    {"other-driver", "gpus=1;gpu.0.kernel_driver=vfio-pci;module.nvidia=yes", "gpu.0.kernel_driver=nvidia"},
    {"other-driver", "gpus=1;gpu.0.kernel_driver=vfio-pci", "gpu.0.kernel_driver=nouveau"},
    {"version-skew", "driver.module=570.1;driver.nvml=570.2", "driver.nvml=570.1"},
    {"version-skew", "nvml.state=version mismatch of library and kernel module", "nvml.state=ok"},
    {"fabric-manager", "driver.init=802 (x)", "driver.init=0 (ok)"},
    {"fabric-manager", "gpus=0;driver.init=802 (x)", "module.nvidia=no"},
    {"fabric-state", "gpus=1;gpu.0.fabric_state=2", "gpu.0.fabric_state=0"},
    {"fabric-state", "gpus=1;gpu.0.fabric_state=3;gpu.0.fabric_status=5", "gpu.0.fabric_status=0"},
    {"driver-init", "gpus=1;driver.init=999 (x)", "driver.init=0 (ok)"},
    {"driver-init", "gpus=1;driver.init=100 (no device)", "driver.init=802 (x)"},
    {"driver-init", "gpus=1;driver.init=100 (no device);env.CUDA_VISIBLE_DEVICES=0", "env.CUDA_VISIBLE_DEVICES=1"},
    {"driver-init", NO_DEVICE "env.CUDA_VISIBLE_DEVICES=(not set)", "env.CUDA_VISIBLE_DEVICES=-1"},
    {"driver-init", "gpus=1;driver.init=803 (x)", "driver.module=570.1;driver.nvml=570.2"},
    {"driver-init", "gpus=1;driver.init=803 (x)", "nvml.state=version mismatch of library and kernel module"},
    {"driver-init", "gpus=0;driver.init=999 (x)", "module.nvidia=no"},
    {"driver-init", "gpus=0;module.nvidia=yes;driver.init=100 (no device)", "module.nvidia=no"},
    {"driver-init", "gpus=0;module.nvidia=no;system.wsl=yes;driver.init=100 (no device)", "system.wsl=no"},
    {"driver-init", "gpus=0;module.nvidia=no;system.bus=?no /sys;driver.init=999 (x)", "driver.init=100 (no device)"},
    {"devices-fewer", "gpus=8;expected.devices=8;driver.init=0 (ok);driver.devices=7", "driver.devices=8"},
    {"devices-fewer", "gpus=7;expected.devices=8", "gpus=8"},
    {"devices-fewer", FEWER "gpu.1.nvml=the device is lost", "gpu.1.nvml=ok"},
    {"devices-fewer", "gpus=2;expected.devices=2;gpu.1.config=gone", "gpu.1.config=ok"},
    {"devices-fewer", "gpus=2;expected.devices=1;driver.init=999 (x)", "driver.init=0 (ok)"},
    {"no-devices", "gpus=0;module.nvidia=yes", "gpus=1"},
    {"no-devices", "gpus=0;module.nvidia=yes", "module.nvidia=no"},
    {"bus-hidden", "gpus=0;system.bus=?/sys cannot be read", "gpus=1"},
    {"host-devices", "env.HEDDLE_DRIVER=(not set);driver.library=cannot be opened", "env.HEDDLE_DRIVER=nvidia"},
    {"host-devices", "env.HEDDLE_DRIVER=auto;driver.init=100 (no device)", "driver.init=0 (ok)"},
    {"host-devices", "env.HEDDLE_DRIVER=(not set);driver.init=0 (ok);driver.devices=0", "driver.devices=1"},
    {"driver-count", "driver.init=0 (ok);driver.devices=2000000000", "driver.devices=2"},
    {"driver-count", "driver.init=0 (ok);driver.devices=-1", "driver.init=100 (no device)"},
    {"libcuda-missing", "gpus=1;module.nvidia=yes;driver.library=cannot be opened", "module.nvidia=no"},
    {"driver-silent", "driver.end=no answer within 30 s", "driver.end=ordinary"},
    {"nvml-silent", "nvml.end=crashed with signal 11", "nvml.end=ordinary"},
    {"device-files", "module.nvidia=yes;device_files.control=yes;device_files.uvm=no", "device_files.uvm=yes"},
    {"libcuda-skew", "driver.module=535.1;driver.libcuda=570.1", "driver.libcuda=535.1"},
    {"wsl", "system.wsl=yes", "system.wsl=no"},
    {"confidential", "gpus=2;confidential.on=yes;confidential.multi_gpu=none", "confidential.multi_gpu=protected"},
    {"nvml-missing", "module.nvidia=yes;nvml.state=NVML's error 999", "nvml.state=ok"},
    {"nvml-missing", "module.nvidia=yes;nvml.library=cannot be used", "module.nvidia=no"},
    {"branch-contends", "gpus=2;driver.module=525.147.05", "driver.module=535.54.03"},
    {"branch-contends", "gpus=2;driver.module=525.60.11", "driver.module=470.82"},
    {"branch-contends", "gpus=2;driver.module=525.60.11", "gpus=1"},
    {"mps", "mps.server=yes", "mps.server=no"},
    {"gpu-lost", "gpus=1;gpu.0.nvml=the device is lost", "gpu.0.nvml=ok"},
    {"gpu-lost", "gpus=1;gpu.0.config=gone", "gpu.0.config=ok"},
    {"gpu-lost", "gpus=1;gpu.0.xid=31, 79", "gpu.0.xid=31, 179"},
    {"gpu-lost", "gpus=1;gpu.0.xid=31, 79", "gpu.0.nvml=ok"},
    {"gpu-absent", ABSENT "gpu.0.file=may be opened", "gpu.0.kernel_driver=vfio-pci"},
    {"gpu-absent", ABSENT "gpu.0.file=may be opened", "gpu.0.file=may not be opened"},
    {"gpu-absent", ABSENT "gpu.0.file=may be opened", "gpu.0.file=is missing"},
    {"gpu-unlisted", "nvml.state=ok;nvml.unlisted=1", "nvml.unlisted=0"},
    {"gpu-unusable", "gpus=1;gpu.0.nvml=the device needs a reset", "gpu.0.nvml=absent"},
    {"gpu-unusable", "gpus=1;gpu.0.nvml=NVML's error 999", "gpu.0.nvml=" DOCTOR_NOT_ALLOWED},
    {"xid", "gpus=1;gpu.0.xid=79;gpu.0.nvml=ok", "gpu.0.nvml=the device is lost"},
    {"gpu-absent", ABSENT "gpu.0.file=may be opened", "system.container=yes"},
    {"xid", "gpus=1;gpu.0.xid=13, 48", "gpu.0.xid=13, 43"},
    {"rows-failed", "gpus=1;gpu.0.rows_failed=yes", "gpu.0.rows_failed=no"},
    {"compute-prohibited", "gpus=1;gpu.0.compute_mode=prohibited", "gpu.0.compute_mode=default"},
    {"rows-pending", "gpus=1;gpu.0.rows_pending=yes", "gpu.0.rows_pending=no"},
    {"rows-pending", "gpus=1;gpu.0.pages_pending=yes", "gpu.0.pages_pending=no"},
    {"ecc", "gpus=1;gpu.0.ecc_uncorrected=1", "gpu.0.ecc_uncorrected=0"},
    {"clocks-hardware", "gpus=1;gpu.0.clock_reasons=72", "gpu.0.clock_reasons=1"},
    {"clocks-hardware", "gpus=1;gpu.0.clock_reasons=200", "gpu.0.clock_reasons=136"},
    {"clocks-brake", "gpus=1;gpu.0.clock_reasons=136", "gpu.0.clock_reasons=72"},
    {"clocks-hot", "gpus=1;gpu.0.clock_reasons=32", "gpu.0.clock_reasons=0"},
    {"power-limit", "gpus=1;gpu.0.power_limit_mw=250000;gpu.0.power_default_mw=300000", "gpu.0.power_limit_mw=300000"},
    {"clocks-set", "gpus=1;gpu.0.clock_reasons=2", "gpu.0.clock_reasons=4"},
    {"clocks-set",
     "gpus=1;gpu.0.clock_reasons=2;gpu.0.clock_application_mhz=900;gpu.0.clock_application_default_mhz=1312",
     "gpu.0.clock_application_mhz=1312"},
    {"clocks-locked",
     "gpus=1;gpu.0.clock_reasons=2;gpu.0.clock_application_mhz=1980;gpu.0.clock_application_default_mhz=1980;"
     "gpu.0.clock_mhz=500",
     "gpu.0.clock_mhz=1980"},
    {"clocks-locked",
     "gpus=1;gpu.0.clock_reasons=2;gpu.0.clock_application_mhz=1980;gpu.0.clock_application_default_mhz=1980;"
     "gpu.0.clock_mhz=500",
     "gpu.0.clock_reasons=3"},
    {"clocks-memory", MEMORY_CLOCK "gpu.0.pstate=0", "gpu.0.memory_clock_mhz=2619"},
    {"clocks-memory", MEMORY_CLOCK "gpu.0.pstate=0", "gpu.0.pstate=8"},
    {"clocks-memory", MEMORY_CLOCK "gpu.0.pstate=2", "gpu.0.clock_reasons=32"},
    {"clocks-memory", MEMORY_CLOCK "gpu.0.clock_reasons=0;gpu.0.utilization=90", "gpu.0.utilization=10"},
    {"clocks-memory", MEMORY_CLOCK "gpu.0.clock_reasons=0;gpu.0.utilization=90", "gpu.0.clock_reasons=1"},
    {"mig", "gpus=1;gpu.0.mig=yes", "gpu.0.mig=no"},
    {"mig-pending", "gpus=1;gpu.0.mig=no;gpu.0.mig_pending=yes", "gpu.0.mig_pending=no"},
    {"shared", "gpus=1;gpu.0.compute_processes=2", "mps.server=yes"},
    {"clocks-power", "gpus=1;gpu.0.clock_reasons=4;gpu.0.power_limit_mw=300000;gpu.0.power_default_mw=300000",
     "gpu.0.clock_reasons=0"},
    {"compute-exclusive", "gpus=1;gpu.0.compute_mode=exclusive", "mps.server=yes"},
    {"persistence", "gpus=1;gpu.0.persistence=no", "gpu.0.persistence=yes"},
    {"graphics", "gpus=2;gpu.1.graphics_processes=3", "gpu.1.graphics_processes=0"},
    {"graphics", "gpus=2;gpu.0.display=yes", "gpus=1"},
    {"graphics", SINGLE "gpu.0.display=no", "gpu.0.display=yes"},
    {"pair-corrupt", PAIR "pair.0.1.verdict=corrupt", "pair.0.1.verdict=usable"},
    {"iommu-fault", "gpus=1;gpu.0.iommu_faults=3;gpu.0.iommu=DMA", "gpu.0.iommu_faults=0"},
    {"iommu-fault", "gpus=1;gpu.0.iommu_faults=3;gpu.0.iommu=DMA", "gpu.0.iommu=identity"},
    {"window-failed", "gpus=1;gpu.0.window_failed=no space", "gpu.0.window_failed=no"},
    {"window-failed", "gpus=1;gpu.0.window_failed=no space;gpu.0.memory_mib=8", "gpu.0.window_mib=8"},
    {"device-log", "gpus=1;gpu.0.nvml=absent;gpu.0.driver_log=RmInitAdapter failed!", "gpu.0.nvml=ok"},
    {"device-log", "gpus=1;gpu.0.kernel_driver=none;gpu.0.driver_log=BAR1 is 0M", "gpu.0.driver_log=none"},
    {"driver-log", "driver.init=999 (x);driver.log=API mismatch", "driver.init=0 (ok)"},
    {"iommu", PAIR "gpu.0.iommu=DMA-FQ", "gpu.0.iommu=identity"},
    {"iommu", PAIR "gpu.0.iommu=DMA", "pair.0.1.nvlinks=4;pair.1.0.nvlinks=4"},
    {"iommu", PAIR "gpu.0.iommu=DMA", "pair.0.1.verdict=usable;pair.1.0.verdict=usable"},
    {"iommu", PAIR "gpu.0.iommu=DMA", "pair.0.1.cuda=no;pair.1.0.cuda=no"},
    {"acs", PAIR "gpu.1.acs=0000:17:01.0=0x001d", "gpu.1.acs=none"},
    {"acs", PAIR "gpu.0.acs=0000:17:01.0=0x1d 0000:19:01.0=0x1d;gpu.1.acs=0000:17:01.0=0x1d 0000:19:02.0=0x1d",
     "gpu.0.acs=0000:17:01.0=0x1d;gpu.1.acs=0000:17:01.0=0x1d"},
    {"acs", SLOW "gpu.0.acs=0000:19:01.0=0x1d;gpu.1.acs=0000:19:02.0=0x1d", "pair.0.1.verdict=usable"},
    {"acs", SLOW "gpu.0.acs=0000:19:01.0=0x1d;gpu.1.acs=0000:19:02.0=0x1d", "pair.0.1.path=same root complex"},
    {"vm-peers", PAIR "system.hypervisor=yes", "system.hypervisor=no"},
    {"vm-peers", PAIR "gpu.0.virtualization=passthrough", "gpu.0.virtualization=none"},
    {"window-small", "gpus=2;gpu.0.window_mib=256;gpu.0.memory_mib=24576;pair.1.0.code=205", "gpu.0.window_mib=32768"},
    {"window-small", "gpus=2;gpu.0.window_mib=256;gpu.0.memory_mib=24576;pair.1.0.code=205", "pair.1.0.code=0"},
    {"window-small", CORRUPT "gpu.1.window_mib=256;gpu.1.memory_mib=24576", "gpu.1.window_mib=32768"},
    {"window-small", CORRUPT "gpu.1.window_mib=256;gpu.1.memory_mib=24576", "pair.0.1.verdict=usable"},
    {"window-small", CORRUPT "gpu.1.window_mib=256;gpu.1.memory_mib=24576", "pair.0.1.nvlinks=2"},
    {"window-sisters", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.window_mib=256;gpu.1.window_mib=32768", "gpu.1.name=y"},
    {"window-sisters", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.window_mib=256;gpu.1.window_mib=32768",
     "gpu.1.window_mib=256"},
    {"static-mapping", BARE, "driver.registry=RMForceStaticBar1=1"},
    {"static-mapping", BARE, "gpu.0.iommu=DMA"},
    {"static-mapping", BARE, "gpu.1.acs=0000:17:01.0=0x001d"},
    {"static-mapping", BARE, "system.hypervisor=yes"},
    {"static-mapping", BARE, "gpu.1.window_mib=4"},
    {"static-mapping", BARE, "driver.kind=proprietary"},
    {"static-mapping", BARE, "pair.1.0.verdict=usable"},
    {"display-peers", THREE "gpu.0.display=yes", "pair.0.1.verdict=usable"},
    {"display-peers", THREE "gpu.0.display=yes", "pair.1.2.verdict=corrupt"},
    {"display-peers", THREE "gpu.0.graphics_processes=1", "gpu.0.graphics_processes=0"},
    {"device-peers", THREE "gpu.0.display=no", "gpu.0.display=yes"},
    {"device-peers", THREE "gpu.0.display=no", "pair.1.2.verdict=corrupt"},
    {"registry", PAIR "driver.registry=\"ForceP2P=17\"", "driver.registry=none"},
    {"registry", PAIR "driver.registry=\"ForceP2P=17\"", "pair.0.1.verdict=usable;pair.1.0.verdict=usable"},
    {"registry", CORRUPT "driver.registry=\"ForceP2P=17\"", "pair.0.1.verdict=slow;pair.1.0.verdict=usable"},
    {"registry-works", PAIR "driver.registry=\"ForceP2P=17\";pair.0.1.verdict=usable;pair.1.0.verdict=usable",
     "pair.0.1.verdict=corrupt"},
    {"registry-works", PAIR "driver.registry=\"ForceP2P=17\";pair.0.1.verdict=usable;pair.1.0.verdict=usable",
     "driver.registry=none"},
    {"nvlink-refused", "gpus=2;pair.0.1.cuda=no;pair.0.1.nvlinks=4", "pair.0.1.nvlinks=0"},
    {"nvlink-refused", "gpus=2;pair.0.1.read=chipset not supported;pair.0.1.nvlinks=4", "gpu.0.mig=yes"},
    {"nvlink-refused", "gpus=2;pair.0.1.read=unknown;pair.0.1.nvlinks=4", "pair.0.1.verdict=usable"},
    {"refused-other", "gpus=2;pair.0.1.cuda=no", "pair.0.1.nvlinks=4"},
    {"refused-chipset", "gpus=2;pair.0.1.read=chipset not supported", "pair.0.1.nvlinks=4"},
    {"confidential", "gpus=2;confidential.on=yes;confidential.multi_gpu=none",
     "pair.0.1.verdict=usable;pair.1.0.verdict=usable"},
    {"refused-registry", "gpus=2;pair.0.1.write=disabled by registry key", "pair.0.1.write=ok"},
    {"refused-chipset", "gpus=2;pair.0.1.read=chipset not supported", "pair.0.1.read=ok"},
    {"refused-topology", "gpus=2;pair.0.1.read=topology not supported", "pair.0.1.read=ok"},
    {"refused-other", "gpus=2;pair.0.1.read=not supported", "gpu.1.mig=yes"},
    {"refused-other", "gpus=2;pair.0.1.cuda=no", "pair.0.1.read=GPU not supported"},
    {"refused-chipset", "gpus=2;pair.0.1.read=ok;pair.0.1.write=chipset not supported", "pair.0.1.write=ok"},
    {"atomics", PAIR "pair.0.1.nvlinks=4;pair.0.1.atomics=not supported", "pair.0.1.atomics=ok"},
    {"atomics", PAIR "pair.0.1.nvlinks=4;pair.0.1.atomics=not supported", "pair.0.1.nvlinks=0"},
    {"refused-test", PAIR "pair.0.1.verdict=refused;pair.0.1.code=201", "pair.0.1.code=711"},
    {"one-way", "gpus=2;pair.0.1.read=ok;pair.1.0.read=not supported", "pair.1.0.read=ok"},
    {"one-way", "gpus=2;pair.0.1.cuda=yes;pair.1.0.cuda=no", "pair.1.0.cuda=yes"},
    {"too-many-peers", "gpus=2;pair.0.1.code=711", "pair.0.1.code=0"},
    {"pair-slow", PAIR "pair.0.1.verdict=slow", "pair.0.1.verdict=usable"},
    {"acs-hint", PAIR "gpu.0.iommu_group=7;gpu.1.iommu_group=8;pair.0.1.path=same switch", "gpu.1.iommu_group=7"},
    {"acs-hint", PAIR "gpu.0.iommu_group=7;gpu.1.iommu_group=8;pair.0.1.path=same switch", "gpu.0.acs=none"},
    {"acs-hint", SLOW "gpu.0.iommu_group=7;gpu.1.iommu_group=8", "pair.0.1.verdict=usable"},
    {"refused-kind", "gpus=2;pair.0.1.read=GPU not supported", "pair.0.1.read=ok"},
    {"untested", PAIR "pair.1.0.verdict=usable", "pair.0.1.verdict=usable"},
    {"untested", PAIR "pair.1.0.verdict=usable", "pair.0.1.write=chipset not supported"},
    {"untested", PAIR "pair.1.0.verdict=usable;pair.0.1.verdict=inconclusive", "pair.0.1.verdict=usable"},
    {"link-narrow", "gpus=1;gpu.0.link_width=8;gpu.0.link_width_max=16", "gpu.0.slot_width_max=8"},
    {"link-slow", "gpus=1;gpu.0.link_mts=2500;gpu.0.link_mts_max=16000;gpu.0.utilization=90", "gpu.0.utilization=9"},
    {"link-slow", "gpus=1;gpu.0.link_mts=2500;gpu.0.link_mts_max=16000;gpu.0.utilization=90;gpu.0.clock_max_mhz=2100",
     "gpu.0.clock_mhz=300"},
    {"link-slow", "gpus=1;gpu.0.link_mts=8000;gpu.0.link_mts_max=16000;gpu.0.utilization=90",
     "gpu.0.slot_mts_max=8000"},
    {"slot-narrow", "gpus=1;gpu.0.slot_width_max=4;gpu.0.link_width_max=16", "gpu.0.slot_width_max=16"},
    {"nvlink", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.nvlinks=17;gpu.1.nvlinks=18", "gpu.1.nvlinks=17"},
    {"nvlink", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.nvlinks=17;gpu.1.nvlinks=18", "gpu.1.name=y"},
    {"nvlink-part", "gpus=1;gpu.0.nvlinks=2;gpu.0.nvlinks_all=4", "gpu.0.nvlinks=4"},
    {"nvlink-part", "gpus=1;gpu.0.nvlinks=2;gpu.0.nvlinks_all=4", "gpu.0.nvlinks=0"},
    {"nvlink-part", "gpus=1;gpu.0.nvlinks=2;gpu.0.nvlinks_all=4", "gpu.0.nvlinks_all=18"},
    {"numa-memory", "gpus=1;system.nodes=2;gpu.0.node=1;process.memory_nodes=0,2-3", "process.memory_nodes=0-1"},
    {"numa-far", "gpus=1;system.nodes=2;gpu.0.node=1;node.1.cpus=8-15;process.cpus=0-7", "process.cpus=0-8"},
    {"slot-slow", "gpus=1;gpu.0.link_mts_max=16000;gpu.0.slot_mts_max=8000", "gpu.0.slot_mts_max=32000"},
    {"numa-unknown", "gpus=1;system.nodes=2;gpu.0.node=-1", "system.nodes=1"},
    {"devices-hidden", "gpus=1;env.CUDA_VISIBLE_DEVICES=-1", "env.CUDA_VISIBLE_DEVICES=0"},
    {"devices-hidden", "gpus=2;driver.init=100 (x);env.CUDA_VISIBLE_DEVICES=7", "env.CUDA_VISIBLE_DEVICES=1"},
    {"devices-hidden", "gpus=2;driver.init=100 (x);env.CUDA_VISIBLE_DEVICES=7", "driver.init=0 (ok)"},
    {"devices-hidden", "gpus=2;driver.init=100 (x);env.CUDA_VISIBLE_DEVICES=1;gpu.0.nvml=ok;gpu.1.nvml=absent",
     "gpu.1.nvml=ok"},
    {"devices-hidden", "gpus=2;driver.init=100 (x);env.CUDA_VISIBLE_DEVICES=GPU-(a part)", "gpus=0"},
    {"option-wrong", "env.options=wrong", "env.options=right"},
    {"shm-small", "system.container=yes;system.shm_mib=64", "system.container=no"},
    {"memlock", "process.memlock_kib=64;system.infiniband=1", "process.memlock_kib=unlimited"},
    {"cpu-limit", "gpus=8;process.cpu_limit_milli=8000", "process.cpu_limit_milli=9000"},
    {"cpu-limit", "gpus=1;process.cpu_limit_milli=1500", "process.cpu_limit_milli=none"},
    {"cpu-limit", "gpus=1;process.cpu_limit_milli=1500", "driver.provider=host"},
    {"memory-limit", "gpus=2;gpu.0.memory_mib=8;gpu.1.memory_mib=81559;process.memory_limit_mib=65536",
     "process.memory_limit_mib=131072"},
    {"memory-limit", "gpus=1;gpu.0.memory_mib=81559;process.memory_limit_mib=65536", "process.memory_limit_mib=none"},
    {"variable-unknown", "env.unknown=HEDDLE_TYPO", "env.unknown=none"},
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

/* Facts that answer a rule, which finds nothing. A value "-" means that the device lacks it. */
static const struct {
    const char *id, *facts;
} answers[] = {
    {"link-narrow", "gpus=1;gpu.0.link_width=16;gpu.0.link_width_max=16"},
    {"link-slow", "gpus=1;gpu.0.link_mts=16000;gpu.0.link_mts_max=16000"},
    {"numa-far", "gpus=1;system.nodes=1"},
    {"numa-unknown", "gpus=1;system.nodes=1"},
    {"nvlink", "gpus=2;gpu.0.name=x;gpu.1.name=x;gpu.0.nvlinks=-;gpu.1.nvlinks=-"},
    {"nvlink", "gpus=1"},
    {"gpu-lost", "gpus=1;gpu.0.nvml=ok"},
    {"rows-pending", "gpus=1;gpu.0.rows_pending=no"},
    {"rows-pending", "gpus=1;gpu.0.rows_pending=-;gpu.0.pages_pending=no"},
    {"ecc", "gpus=1;gpu.0.ecc_uncorrected=-"},
    {"clocks-set", "gpus=1;gpu.0.clock_reasons=0"},
    {"mig", "gpus=1;gpu.0.mig=-"},
    {"graphics", "gpus=2;gpu.0.display=no;gpu.1.display=no"},
    {"version-skew", "module.nvidia=no"},
    {"version-skew", "driver.module=570.1;driver.nvml=570.1"},
    {"driver-init", "gpus=0"},
    {"driver-init", "gpus=0;module.nvidia=no;driver.init=100 (no device)"},
    {"fabric-manager", "gpus=0"},
    {"fabric-state", "gpus=1;system.nvswitches=0"},
    {"confidential", "gpus=1"},
    {"pair-corrupt", "gpus=2;pair.0.1.cuda=no;pair.1.0.cuda=no"},
    {"pair-corrupt", "gpus=2;pair.0.1.verdict=usable;pair.1.0.verdict=usable"},
    {"pair-slow", "gpus=2;pair.0.1.read=not supported;pair.1.0.read=not supported"},
    {"iommu", PAIR "gpu.0.iommu=identity;gpu.1.iommu=off"},
    {"acs", "gpus=1"},
    {"gpu-absent", ABSENT "gpu.0.file=may not be opened"},
    {"acs", "gpus=2;pair.0.1.cuda=no;pair.1.0.cuda=no"},
    {"acs-hint", PAIR "gpu.0.acs=none;gpu.1.acs=none"},
    {"vm-peers", PAIR "system.hypervisor=no"},
    {"window-small", "gpus=2;gpu.0.window_mib=9;gpu.0.memory_mib=8;gpu.1.window_mib=9;gpu.1.memory_mib=8"},
    {"refused-other", "gpus=2;pair.0.1.cuda=yes;pair.1.0.cuda=yes"},
    {"too-many-peers", PAIR},
    {"one-way", "gpus=2;pair.0.1.cuda=yes;pair.1.0.cuda=yes"},
    {"shm-small", "system.container=no"},
    {"memlock", "system.infiniband=0"},
    {"device-order", "gpus=1"},
};

/* The missing fact of an unanswered rule, and a part of the reason. */
static const struct {
    const char *id, *facts, *key, *reason;
} gaps[] = {
    {"link-slow", "gpus=1;gpu.0.link_mts=2500;gpu.0.link_mts_max=16000", "gpu.0.utilization", "NVML provides it"},
    {"link-narrow", "gpus=2;gpu.0.link_width=8;gpu.1.link_width=8", "gpu.N.link_width_max", "the system provides it"},
    {"link-narrow", "gpus=2;gpu.0.link_width=8;gpu.0.link_width_max=8;gpu.1.link_width=8", "gpu.1.link_width_max",
     "the system"},
    {"slot-narrow", "gpus=1;gpu.0.link_width_max=8", "gpu.0.slot_width_max", "the system provides it"},
    {"slot-narrow", "gpus=1;gpu.0.config=?" DOCTOR_NOT_ON_BUS, "gpu.0.link_width_max",
     "/sys does not list this device"},
    {"acs-hint", PAIR "gpu.1.config=?" DOCTOR_NOT_ON_BUS, "pair.N.N.path", "/sys does not list this device"},
    {"slot-narrow", "gpus=1;system.bus=?no /sys", "gpu.0.link_width_max", "no /sys"},
    {"driver-count", "driver.init=0 (ok)", "driver.devices", "the driver provides it"},
    {"gpu-absent", ABSENT, "gpu.0.file", "the system provides it"},
    {"iommu-fault", "gpus=1;gpu.0.iommu_faults=?" DOCTOR_ROOT, "gpu.0.iommu_faults", DOCTOR_ROOT},
    {"clocks-memory", "gpus=1;nvml.state=ok", "gpu.0.memory_clock_mhz", "NVML provides it"},
    {"cpu-limit", "process.cpu_limit_milli=?/sys is not there", "process.cpu_limit_milli", "/sys is not there"},
    {"shm-small", "system.container=?/proc is not there", "system.container", "/proc is not there"},
    {"memlock", "system.infiniband=?/sys is not there", "system.infiniband", "/sys is not there"},
    {"mig", "nvml.state=ok", "gpus", "not in the snapshot"},
    {"mig", "gpus=1;nvml.end=crashed with signal 11", "gpu.0.mig", "NVML: crashed with signal 11"},
    {"mig", "gpus=1;nvml.state=NVML's error 999", "gpu.0.mig", "NVML's error 999"},
    {"mig", "gpus=1;gpu.0.nvml=the device is lost", "gpu.0.mig", "this device: the device is lost"},
    {"mig", "gpus=1;driver.provider=host", "gpu.0.mig", "host devices"},
    {"pair-corrupt", PAIR, "pair.N.N.verdict", "heddle p2p --verdicts"},
    {"pair-corrupt", "gpus=2", "pair.N.N.cuda", "the driver provides it"},
    {"pair-corrupt", "gpus=2;driver.init=100 (no device)", "pair.N.N.cuda", "CUDA does not start: 100 (no device)"},
    {"driver-init", "gpus=1;driver.end=no answer within 60 s", "driver.init", "no answer within 60 s"},
    {"numa-memory", "gpus=1;system.nodes=2;gpu.0.node=1;process.memory_nodes=?unreadable", "process.memory_nodes",
     "unreadable"},
    {"numa-far", "gpus=1;system.nodes=2;gpu.0.node=1;process.cpus=0", "node.1.cpus", "the system provides it"},
    {"window-small", PAIR "gpu.0.window_mib=1;gpu.0.memory_mib=8;gpu.1.window_mib=8;gpu.1.memory_mib=8",
     "pair.1.0.code", "heddle p2p"},
};

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
        if (strcmp(value + 1, "-") == 0) {
            doctor_miss(s, DOCTOR_UNSUPPORTED, "%s", one);
        } else if (value[1] == '?') {
            doctor_miss(s, value + 2, "%s", one);
        } else {
            doctor_put(s, value + 1, "%s", one);
        }
    }
}

/* True if the rule finds something in these facts. */
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

static void what_can_be_checked_is_checked(void **unused)
{
    (void)unused;
    int wrong = 0;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        doctor_snapshot s = {0};
        doctor_findings f;
        bool answered = false;
        put_all(&s, answers[i].facts);
        doctor_judge(&s, &f);
        for (int k = 0; k < f.n_answered; k++) {
            answered |= strcmp(f.answered[k]->id, answers[i].id) == 0;
        }
        for (size_t k = 0; k < f.n_gaps; k++) {
            if (strcmp(f.gaps[k].rule->id, answers[i].id) == 0) {
                fprintf(stderr, "%s lacks %s in: %s\n", answers[i].id, f.gaps[k].key, answers[i].facts);
                wrong++;
            }
        }
        for (int k = 0; k < f.n; k++) {
            wrong += strcmp(f.list[k].rule->id, answers[i].id) == 0;
        }
        if (!answered) {
            fprintf(stderr, "%s is not answered in: %s\n", answers[i].id, answers[i].facts);
            wrong++;
        }
        doctor_findings_release(&f);
        doctor_release(&s);
    }
    assert_int_equal(wrong, 0);
}

static void what_is_missing_is_named(void **unused)
{
    (void)unused;
    int wrong = 0;
    for (size_t i = 0; i < sizeof gaps / sizeof gaps[0]; i++) {
        doctor_snapshot s = {0};
        doctor_findings f;
        bool named = false;
        put_all(&s, gaps[i].facts);
        doctor_judge(&s, &f);
        for (size_t k = 0; k < f.n_gaps; k++) {
            named |= strcmp(f.gaps[k].rule->id, gaps[i].id) == 0 && strcmp(f.gaps[k].key, gaps[i].key) == 0 &&
                     strstr(f.gaps[k].reason, gaps[i].reason);
        }
        if (!named) {
            fprintf(stderr, "%s does not name %s (%s) in: %s\n", gaps[i].id, gaps[i].key, gaps[i].reason,
                    gaps[i].facts);
            wrong++;
        }
        doctor_findings_release(&f);
        doctor_release(&s);
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
        cmocka_unit_test(what_can_be_checked_is_checked),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(every_rule_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
