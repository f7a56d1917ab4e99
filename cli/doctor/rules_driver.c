/* rules_driver.c - rules about the driver (is it installed, do its versions agree, does it start)
 * and about other programs beside it.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/rules.h"

#include <stdlib.h>
#include <string.h>
#include "cli/doctor/nvml.h"

#define AREA "driver"

enum { BRANCH_CONTENDS = 525 };

/* Result codes of cuInit. */
enum {
    NO_DEVICE = 100,         /* the driver lists no device */
    FABRIC_NOT_SET_UP = 802, /* the fabric that connects the devices */
    VERSION_SKEW = 803
};

static bool doctor_driver_case_has_devices(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 0;
}

static bool doctor_driver_case_is_wsl(doctor_case *c)
{
    return doctor_is(c, "yes", "system.wsl");
}

static bool doctor_driver_judge_nouveau(doctor_case *c)
{
    return doctor_is(c, "nouveau", "gpu.%d.kernel_driver", c->a);
}

static bool doctor_driver_judge_missing(doctor_case *c)
{
    return doctor_is_not(c, "yes", "system.wsl") && doctor_is(c, "none", "gpu.%d.kernel_driver", c->a) &&
           doctor_is(c, "no", "module.nvidia");
}

/* The module takes every device that it can start. If NVML opens the device, the driver does drive
 * it, whatever /sys shows. */
static bool doctor_driver_judge_refused(doctor_case *c)
{
    return doctor_is_not(c, "yes", "system.wsl") && doctor_is_not(c, "ok", "gpu.%d.nvml", c->a) &&
           doctor_is(c, "none", "gpu.%d.kernel_driver", c->a) && doctor_is(c, "yes", "module.nvidia");
}

/* Finds the driver's log lines about a device that does not work. */
static bool doctor_driver_judge_device_log(doctor_case *c)
{
    const char *state = doctor_maybe(c, "gpu.%d.nvml", c->a), *driver = doctor_maybe(c, "gpu.%d.kernel_driver", c->a);
    bool works = state ? strcmp(state, "ok") == 0 : !driver || strcmp(driver, "none") != 0;
    if (works || !doctor_is_not(c, "yes", "system.wsl")) {
        return false;
    }
    const char *line = doctor_look(c, "gpu.%d.driver_log", c->a);
    return line && strcmp(line, "none") != 0;
}

/* Finds the driver's log lines that belong to no single device, if CUDA does not start. */
static bool doctor_driver_judge_driver_log(doctor_case *c)
{
    if (!doctor_look(c, "driver.init") || !doctor_is_not(c, "0 (ok)", "driver.init") ||
        !doctor_is_not(c, "yes", "system.wsl")) {
        return false;
    }
    const char *line = doctor_look(c, "driver.log");
    return line && strcmp(line, "none") != 0;
}

/* Finds devices with another driver, such as vfio-pci. nouveau has its own rule. */
static bool doctor_driver_judge_other(doctor_case *c)
{
    const char *driver = doctor_look(c, "gpu.%d.kernel_driver", c->a);
    return driver && strcmp(driver, "none") != 0 && strcmp(driver, "nvidia") != 0 && strcmp(driver, "nouveau") != 0 &&
           doctor_is_not(c, "ok", "gpu.%d.nvml", c->a) && doctor_is_not(c, "yes", "system.wsl");
}

/* Versions can be compared only if a kernel module exists. WSL has none. */
static bool doctor_driver_case_is_comparable(doctor_case *c)
{
    return doctor_is_not(c, "no", "module.nvidia") && doctor_is_not(c, "yes", "system.wsl");
}

static bool doctor_driver_judge_skew(doctor_case *c)
{
    const char *state = doctor_maybe(c, "nvml.state");
    if (state && strstr(state, "version mismatch")) {
        doctor_maybe(c, "driver.module");
        doctor_maybe(c, "driver.nvml");
        return true;
    }
    doctor_drop(c, 0);
    if (!doctor_driver_case_is_comparable(c)) {
        return false;
    }
    const char *module = doctor_look(c, "driver.module"), *library = doctor_look(c, "driver.nvml");
    return module && library && strcmp(module, library) != 0;
}

/* NVIDIA's packages for forward compatibility bring a newer libcuda. They support data center
 * cards only. */
static bool doctor_driver_judge_libcuda(doctor_case *c)
{
    if (!doctor_driver_case_is_comparable(c)) {
        return false;
    }
    const char *module = doctor_look(c, "driver.module"), *library = doctor_look(c, "driver.libcuda");
    return module && library && strcmp(module, library) != 0;
}

/* True if there is no kernel module, and no device on the bus or in the driver's list. Then the
 * report states that the machine contains no device. */
static bool doctor_driver_case_is_bare(doctor_case *c, long long code)
{
    const doctor_fact *bus = doctor_find(c->s, "system.bus");
    bool has_bus = !bus || !bus->reason;
    return !doctor_is_not(c, "no", "module.nvidia") && doctor_is_not(c, "yes", "system.wsl") &&
           (has_bus || code == NO_DEVICE);
}

/* Returns the code with which CUDA failed to start. 0: CUDA starts, or no driver exists that could
 * start. */
static long long doctor_driver_case_init_failure(doctor_case *c)
{
    if (doctor_is_not(c, "0", "gpus")) {
        return doctor_number(c, 0, "driver.init");
    }
    /* without a device CUDA may be missing */
    long long code = doctor_number_maybe(c, 0, "driver.init");
    return doctor_driver_case_is_bare(c, code) ? 0 : code;
}

static bool doctor_driver_judge_fabric(doctor_case *c)
{
    if (doctor_driver_case_init_failure(c) != FABRIC_NOT_SET_UP) {
        return false;
    }
    doctor_maybe(c, "fabric.manager");
    doctor_maybe(c, "system.nvswitches");
    return true;
}

/* State 0 means that the device is in no fabric, and state 3 that its setup is complete. */
static bool doctor_driver_judge_fabric_state(doctor_case *c)
{
    long long state = doctor_number_maybe(c, -1, "gpu.%d.fabric_state", c->a);
    if (state == NVML_FABRIC_NOT_STARTED || state == NVML_FABRIC_IN_PROGRESS) {
        doctor_maybe(c, "fabric.manager");
        return true;
    }
    if (state < 0 && doctor_is_not(c, "0", "system.nvswitches")) {
        doctor_look(c, "gpu.%d.fabric_state", c->a);
    }
    return state == NVML_FABRIC_COMPLETED && doctor_number(c, 0, "gpu.%d.fabric_status", c->a) != 0;
}

/* Finds a failed start of CUDA that no other rule explains. */
static bool doctor_driver_judge_init(doctor_case *c)
{
    doctor_case other = {.s = c->s, .a = -1, .b = -1};
    long long code = doctor_driver_case_init_failure(c);
    if (code == 0 || code == FABRIC_NOT_SET_UP || (code == VERSION_SKEW && doctor_driver_judge_skew(&other)) ||
        (code == NO_DEVICE && doctor_hides_all(&other))) {
        return false;
    }
    doctor_maybe(c, "gpus");
    doctor_maybe(c, "module.nvidia");
    return true;
}

/* Finds more devices than this tool handles, or a negative number. */
static bool doctor_driver_judge_count(doctor_case *c)
{
    if (!doctor_is(c, "0 (ok)", "driver.init")) {
        return false;
    }
    long long devices = doctor_number(c, 0, "driver.devices");
    return devices < 0 || devices > DOCTOR_GPUS_MAX;
}

static bool doctor_driver_judge_library(doctor_case *c)
{
    bool found = doctor_is(c, "yes", "module.nvidia") && doctor_is(c, "cannot be opened", "driver.library") &&
                 doctor_driver_case_has_devices(c);
    doctor_maybe(c, "driver.reason");
    return found;
}

/* Finds that Heddle uses host devices: with driver=auto, hd_open does so if NVIDIA's driver gives
 * it no device. */
static bool doctor_driver_judge_host(doctor_case *c)
{
    const char *asked = doctor_look(c, "env.HEDDLE_DRIVER");
    if (!asked || (asked[0] && strcmp(asked, "(not set)") != 0 && strcmp(asked, "auto") != 0)) {
        return false;
    }
    int before = c->n;
    if (doctor_is(c, "cannot be opened", "driver.library")) {
        doctor_maybe(c, "driver.reason");
        return true;
    }
    doctor_drop(c, before);
    const char *init = doctor_look(c, "driver.init");
    if (init && strcmp(init, "0 (ok)") != 0) {
        return true;
    }
    doctor_drop(c, before);
    return init && doctor_number(c, -1, "driver.devices") == 0;
}

/* The module loads only if there is a device, and stays loaded when the device is gone. */
static bool doctor_driver_judge_none(doctor_case *c)
{
    return doctor_is(c, "0", "gpus") && doctor_is_not(c, "yes", "system.wsl") && doctor_is(c, "yes", "module.nvidia");
}

/* True if no library shows a device, and the bus cannot be read. */
static bool doctor_driver_judge_hidden_bus(doctor_case *c)
{
    const doctor_fact *bus = doctor_find(c->s, "system.bus");
    return doctor_is(c, "0", "gpus") && bus && bus->reason;
}

/* Returns the number of devices that programs can use. If CUDA was asked, its number counts.
 * Otherwise, those devices count that are present and not known to be broken. */
static long long doctor_driver_case_usable_devices(doctor_case *c)
{
    long long n = doctor_number(c, 0, "gpus"), broken = 0;
    const char *init = doctor_maybe(c, "driver.init");
    if (init && strcmp(init, "0 (ok)") != 0) {
        return 0;
    }
    long long shown = doctor_number_maybe(c, -1, "driver.devices");
    if (shown >= 0) {
        return shown;
    }
    for (int i = 0; i < doctor_gpus(c->s); i++) {
        int before = c->n;
        const char *state = doctor_maybe(c, "gpu.%d.nvml", i);
        bool gone = (state && strcmp(state, "ok") != 0) || !doctor_is_not(c, "gone", "gpu.%d.config", i);
        broken += gone;
        doctor_drop(c, gone ? c->n : before);
    }
    return n - broken;
}

/* The option --expect sets the number of expected devices. */
static bool doctor_driver_judge_fewer(doctor_case *c)
{
    c->unasked = !doctor_find(c->s, "expected.devices");
    if (c->unasked) {
        return false;
    }
    long long expected = doctor_number(c, 0, "expected.devices");
    return doctor_driver_case_usable_devices(c) < expected;
}

static bool doctor_driver_judge_silent(doctor_case *c)
{
    const char *end = doctor_look(c, "driver.end");
    return end && strcmp(end, "ordinary") != 0;
}

static bool doctor_driver_judge_nvml_silent(doctor_case *c)
{
    const char *end = doctor_look(c, "nvml.end");
    return end && strcmp(end, "ordinary") != 0;
}

static bool doctor_driver_judge_nvml(doctor_case *c)
{
    if (!doctor_is(c, "yes", "module.nvidia")) {
        return false;
    }
    if (!doctor_is_not(c, "cannot be used", "nvml.library")) {
        return doctor_is(c, "cannot be used", "nvml.library");
    }
    const char *state = doctor_look(c, "nvml.state");
    return state && strcmp(state, "ok") != 0 && !strstr(state, "version mismatch");
}

static bool doctor_driver_judge_files(doctor_case *c)
{
    return doctor_is(c, "yes", "module.nvidia") &&
           (doctor_is(c, "no", "device_files.control") || doctor_is(c, "no", "device_files.uvm"));
}

static bool doctor_driver_judge_wsl(doctor_case *c)
{
    return doctor_driver_case_is_wsl(c);
}

static bool doctor_driver_judge_confidential(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 1 && doctor_is(c, "yes", "confidential.on") &&
           doctor_is(c, "none", "confidential.multi_gpu");
}

/* In public reports, threads wait for each other at launches only with drivers of this branch.
 * Nothing is known about older branches. */
static bool doctor_driver_judge_branch(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 1 && doctor_is_not(c, "no", "module.nvidia") &&
           doctor_number(c, 0, "driver.module") == BRANCH_CONTENDS;
}

static bool doctor_driver_judge_mps(doctor_case *c)
{
    return doctor_is(c, "yes", "mps.server");
}

const doctor_rule doctor_rules_driver[] = {
    {"nouveau", DOCTOR_ERROR, DOCTOR_GPU, AREA, "nouveau drives the device",
     "CUDA needs NVIDIA's kernel module, and a device has only one driver at a time",
     "echo 'blacklist nouveau' > /etc/modprobe.d/blacklist-nouveau.conf, rebuild the initial RAM disk, and restart",
     true, doctor_driver_judge_nouveau, DOCTOR_NO_CAUSE, 0},
    {"driver-missing", DOCTOR_ERROR, DOCTOR_GPU, AREA, "no driver drives the device",
     "the kernel module nvidia is not loaded, so CUDA finds no device",
     "modprobe nvidia; if that fails, install the driver for this kernel (dmesg | grep NVRM shows the reason)", true,
     doctor_driver_judge_missing, DOCTOR_NO_CAUSE, 0},
    {"driver-refused", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the driver is loaded, but does not drive the device",
     "the driver could not start the device. The firmware may have left no room for the device's memory window "
     "(\"BAR1 is 0M\"), or the driver does not support devices of this kind",
     "dmesg | grep -i nvrm shows the reason. If there is no room for a window, turn on \"above 4G decoding\" in the "
     "firmware, or start the kernel with pci=realloc. Give a virtual machine more 64-bit MMIO space",
     true, doctor_driver_judge_refused, DOCTOR_NO_CAUSE, 0},
    {"device-log", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the driver has logged a failure of the device",
     "the driver's message is the reason why the device does not start",
     "search the web for the message; dmesg | grep -i nvrm shows the lines after it. Turn the machine off and on to "
     "see whether the failure returns",
     true, doctor_driver_judge_device_log, DOCTOR_NO_CAUSE, 0},
    {"driver-log", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "the driver has logged a failure, and CUDA does not start",
     "the driver's message is the reason",
     "search the web for the message; dmesg | grep -i nvrm shows the lines after it", true,
     doctor_driver_judge_driver_log, DOCTOR_NO_CAUSE, 0},
    {"devices-fewer", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "programs get fewer devices than --expect demands",
     "a program that needs this number of devices does not start, or uses only some of them",
     "lspci -d 10de: lists the devices of the bus, nvidia-smi -L those of the driver, and CUDA_VISIBLE_DEVICES those "
     "of programs. If a device is in no list, turn the machine off and on, then check power cables, riser and slot",
     false, doctor_driver_judge_fewer, DOCTOR_NO_CAUSE, 0},
    {"no-devices", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "the driver is loaded, but there is no device",
     "the driver loads only if there is a device. The device fell off the bus or was removed, or this container has "
     "no device",
     "dmesg | grep -i -e nvrm -e xid; lspci -d 10de: lists devices. Turn the machine off and on. Start a container "
     "with --gpus",
     true, doctor_driver_judge_none, DOCTOR_NO_CAUSE, 0},
    {"version-skew", DOCTOR_ERROR, DOCTOR_MACHINE, AREA,
     "the driver's library and kernel module have different versions",
     "an update has replaced the libraries, but the old module is still loaded; no further program can use a device",
     "restart the machine, or stop the programs that use the devices, then rmmod nvidia_uvm nvidia_drm nvidia_modeset "
     "nvidia; modprobe nvidia",
     true, doctor_driver_judge_skew, DOCTOR_NO_CAUSE, 0},
    {"fabric-manager", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "the fabric of the devices is not set up (CUDA error 802)",
     "on machines with NVSwitch, CUDA does not start before the fabric manager has set up the switches",
     "install nvidia-fabricmanager of exactly the driver's version, then systemctl enable --now nvidia-fabricmanager",
     true, doctor_driver_judge_fabric, DOCTOR_NO_CAUSE, 0},
    {"fabric-state", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the device has not joined the fabric",
     "peer access through NVSwitch needs the fabric, and CUDA may fail with error 802",
     "systemctl status nvidia-fabricmanager; its version must match the driver", true, doctor_driver_judge_fabric_state,
     DOCTOR_NO_CAUSE, 0},
    {"driver-init", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "CUDA does not start",
     "cuInit fails, so no program can use a device; the driver gives the code as the reason",
     "nvidia-smi and dmesg | grep -i nvrm show more. Restart the machine after an update of the driver. Start a "
     "container with --gpus. In WSL, update the driver of Windows",
     true, doctor_driver_judge_init, DOCTOR_NO_CAUSE, 0},
    {"driver-count", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "CUDA reports an impossible number of devices",
     "programs load a stub, a damaged file or another program's library instead of NVIDIA's libcuda",
     "ldconfig -p | grep libcuda; remove folders that do not belong to the driver from LD_LIBRARY_PATH", false,
     doctor_driver_judge_count, DOCTOR_NO_CAUSE, 0},
    {"libcuda-missing", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "libcuda cannot be opened",
     "the kernel module is loaded, but programs find no library with which they can call it",
     "install the driver's libraries in the module's version; for a container, install the NVIDIA container toolkit",
     true, doctor_driver_judge_library, DOCTOR_NO_CAUSE, 0},
    {"driver-silent", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "CUDA hangs or crashes when it starts",
     "if a device no longer answers, every program that starts CUDA stops",
     "dmesg | grep -i xid shows the device; reset it with nvidia-smi -i BUS --gpu-reset, or restart the machine", true,
     doctor_driver_judge_silent, DOCTOR_NO_CAUSE, 0},
    {"nvml-silent", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "NVML hangs or crashes",
     "if a device no longer answers, nvidia-smi and NVML stop, too",
     "dmesg | grep -i xid shows the device; restart the machine", true, doctor_driver_judge_nvml_silent,
     DOCTOR_NO_CAUSE, 0},
    {"device-files", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "files of the driver in /dev are missing",
     "without /dev/nvidiactl and /dev/nvidia-uvm CUDA does not start",
     "nvidia-modprobe -c 0 -u; start a container with --gpus or with these device files", true,
     doctor_driver_judge_files, DOCTOR_NO_CAUSE, 0},
    {"libcuda-skew", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "libcuda and the kernel module have different versions",
     "only NVIDIA's packages for forward compatibility are made for this, and they support only data center cards",
     "remove the folder of the other libcuda from LD_LIBRARY_PATH, or install both in one version", false,
     doctor_driver_judge_libcuda, DOCTOR_NO_CAUSE, 0},
    {"wsl", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "this is the Windows subsystem for Linux",
     "the devices belong to Windows: there is seldom peer access, and much of NVML is missing; copies between devices "
     "are staged",
     "for peer access, start Linux without Windows", false, doctor_driver_judge_wsl, DOCTOR_NO_CAUSE, 0},
    {"confidential", DOCTOR_WARNING, DOCTOR_MACHINE, AREA,
     "confidential computing is on, without a mode for several devices",
     "peer access is off, and copies are encrypted on their way",
     "if several devices should work together, use protected PCIe mode, or turn confidential computing off", true,
     doctor_driver_judge_confidential, DOCTOR_REFUSAL, 0},
    {"bus-hidden", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "the bus cannot be read, so no device was looked for",
     "there may be devices; /sys is not mounted here, or not readable",
     "mount /sys here, or run heddle doctor outside of the container or sandbox", true, doctor_driver_judge_hidden_bus,
     DOCTOR_NO_CAUSE, 0},
    {"host-devices", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "programs that open Heddle would run on host devices",
     "with driver=auto, hd_open uses CPU stand-ins if NVIDIA's driver shows no device, and reports no error",
     "set HEDDLE_DRIVER=nvidia to make hd_open fail instead", false, doctor_driver_judge_host, DOCTOR_NO_CAUSE, 0},
    {"nvml-missing", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "NVML cannot be used",
     "clocks, links, errors and refusals of peer access were not checked",
     "install the driver's library libnvidia-ml.so.1; give a container the driver capability \"utility\"", true,
     doctor_driver_judge_nvml, DOCTOR_NO_CAUSE, 0},
    {"branch-contends", DOCTOR_NOTE, DOCTOR_MACHINE, AREA,
     "with drivers of branch 525, threads may wait for each other",
     "a public report on 525.60 says that launches of one process to ten devices took 2 to 20 times as long. Driver "
     "580 with four devices did not show this",
     "set HEDDLE_PLACEMENT=process, or install a driver of branch 580 or later", false, doctor_driver_judge_branch,
     DOCTOR_NO_CAUSE, 0},
    {"other-driver", DOCTOR_NOTE, DOCTOR_GPU, AREA, "a driver other than nvidia drives the device",
     "vfio-pci keeps a device for virtual machines; CUDA on this system does not show it",
     "to use the device here, remove it from the options of that driver, then echo " DOCTOR_BUS
     " > /sys/bus/pci/devices/" DOCTOR_BUS "/driver/unbind; echo " DOCTOR_BUS " > /sys/bus/pci/drivers/nvidia/bind",
     true, doctor_driver_judge_other, DOCTOR_NO_CAUSE, 0},
    {"mps", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "the multi-process service runs",
     "programs share one server: a fault of one program ends the work of the others",
     "to turn it off: echo quit | nvidia-cuda-mps-control", false, doctor_driver_judge_mps, DOCTOR_NO_CAUSE, 0},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL, DOCTOR_NO_CAUSE, 0}};
