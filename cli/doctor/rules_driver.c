/* rules_driver.c - rules about the driver: whether it is there, of one version, and starts, and about what runs beside it.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/rules.h"

#include <stdlib.h>
#include <string.h>
#include "cli/doctor/nvml.h"

#define AREA "driver"

enum { BRANCH_CONTENDS = 525 };

/* Codes of cuInit. */
enum {
    NO_DEVICE = 100,         /* the driver lists none */
    FABRIC_NOT_SET_UP = 802, /* the fabric that connects the devices */
    VERSION_SKEW = 803
};

static bool has_devices(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 0;
}

static bool is_wsl(doctor_case *c)
{
    return doctor_is(c, "yes", "system.wsl");
}

static bool judge_nouveau(doctor_case *c)
{
    return doctor_is(c, "nouveau", "gpu.%d.kernel_driver", c->a);
}

static bool judge_missing(doctor_case *c)
{
    return doctor_is_not(c, "yes", "system.wsl") && doctor_is(c, "none", "gpu.%d.kernel_driver", c->a) &&
           doctor_is(c, "no", "module.nvidia");
}

/* The module takes what it can start. A device that NVML answers for has a driver, wherever /sys shows it. */
static bool judge_refused(doctor_case *c)
{
    return doctor_is_not(c, "yes", "system.wsl") && doctor_is_not(c, "ok", "gpu.%d.nvml", c->a) &&
           doctor_is(c, "none", "gpu.%d.kernel_driver", c->a) && doctor_is(c, "yes", "module.nvidia");
}

/* Such as vfio-pci. nouveau has a rule of its own. */
static bool judge_other(doctor_case *c)
{
    const char *driver = doctor_look(c, "gpu.%d.kernel_driver", c->a);
    return driver && strcmp(driver, "none") != 0 && strcmp(driver, "nvidia") != 0 && strcmp(driver, "nouveau") != 0 &&
           doctor_is_not(c, "ok", "gpu.%d.nvml", c->a) && doctor_is_not(c, "yes", "system.wsl");
}

/* There are two versions only where there is a module, and in WSL none that it could be compared with. */
static bool is_comparable(doctor_case *c)
{
    return doctor_is_not(c, "no", "module.nvidia") && doctor_is_not(c, "yes", "system.wsl");
}

static bool judge_skew(doctor_case *c)
{
    const char *state = doctor_maybe(c, "nvml.state");
    if (state && strstr(state, "version mismatch")) {
        doctor_maybe(c, "driver.module");
        doctor_maybe(c, "driver.nvml");
        return true;
    }
    doctor_drop(c, 0);
    if (!is_comparable(c)) {
        return false;
    }
    const char *module = doctor_look(c, "driver.module"), *library = doctor_look(c, "driver.nvml");
    return module && library && strcmp(module, library) != 0;
}

/* A newer libcuda is what NVIDIA's packages for forward compatibility bring; they are for data center cards. */
static bool judge_libcuda(doctor_case *c)
{
    if (!is_comparable(c)) {
        return false;
    }
    const char *module = doctor_look(c, "driver.module"), *library = doctor_look(c, "driver.libcuda");
    return module && library && strcmp(module, library) != 0;
}

/* No kernel module, and no device on the bus, or none in the driver's own list: the report states that there is no device. */
static bool is_bare(doctor_case *c, long long code)
{
    const doctor_fact *bus = doctor_find(c->s, "system.bus");
    bool has_bus = !bus || !bus->reason;
    return !doctor_is_not(c, "no", "module.nvidia") && doctor_is_not(c, "yes", "system.wsl") &&
           (has_bus || code == NO_DEVICE);
}

/* The code with which CUDA does not start; 0: it starts, or nothing is there to start. */
static long long init_failure(doctor_case *c)
{
    if (doctor_is_not(c, "0", "gpus")) {
        return doctor_number(c, 0, "driver.init");
    }
    long long code = doctor_number_maybe(c, 0, "driver.init"); /* without a device there may be no CUDA */
    return is_bare(c, code) ? 0 : code;
}

static bool judge_fabric(doctor_case *c)
{
    if (init_failure(c) != FABRIC_NOT_SET_UP) {
        return false;
    }
    doctor_maybe(c, "fabric.manager");
    doctor_maybe(c, "system.nvswitches");
    return true;
}

/* 0: the device has no such state; 3: completed. */
static bool judge_fabric_state(doctor_case *c)
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

/* What another rule finds is not found here again. */
static bool judge_init(doctor_case *c)
{
    doctor_case other = {.s = c->s, .a = -1, .b = -1};
    long long code = init_failure(c);
    if (code == 0 || code == FABRIC_NOT_SET_UP || (code == VERSION_SKEW && judge_skew(&other)) ||
        (code == NO_DEVICE && doctor_hides_all(&other))) {
        return false;
    }
    doctor_maybe(c, "gpus");
    doctor_maybe(c, "module.nvidia");
    return true;
}

/* More than this tool looks at, or less than none. */
static bool judge_count(doctor_case *c)
{
    if (!doctor_is(c, "0 (ok)", "driver.init")) {
        return false;
    }
    long long devices = doctor_number(c, 0, "driver.devices");
    return devices < 0 || devices > DOCTOR_GPUS_MAX;
}

static bool judge_library(doctor_case *c)
{
    return doctor_is(c, "yes", "module.nvidia") && doctor_is(c, "cannot be opened", "driver.library") && has_devices(c);
}

static bool judge_silent(doctor_case *c)
{
    const char *end = doctor_look(c, "driver.end");
    return end && strcmp(end, "ordinary") != 0;
}

static bool judge_nvml_silent(doctor_case *c)
{
    const char *end = doctor_look(c, "nvml.end");
    return end && strcmp(end, "ordinary") != 0;
}

static bool judge_nvml(doctor_case *c)
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

static bool judge_files(doctor_case *c)
{
    return doctor_is(c, "yes", "module.nvidia") &&
           (doctor_is(c, "no", "device_files.control") || doctor_is(c, "no", "device_files.uvm"));
}

static bool judge_wsl(doctor_case *c)
{
    return is_wsl(c);
}

static bool judge_confidential(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 1 && doctor_is(c, "yes", "confidential.on") &&
           doctor_is(c, "none", "confidential.multi_gpu");
}

/* The one branch of which a public report has threads that wait for each other at launches; of older ones nothing is known. */
static bool judge_branch(doctor_case *c)
{
    return doctor_number(c, 0, "gpus") > 1 && doctor_is_not(c, "no", "module.nvidia") &&
           doctor_number(c, 0, "driver.module") == BRANCH_CONTENDS;
}

static bool judge_mps(doctor_case *c)
{
    return doctor_is(c, "yes", "mps.server");
}

const doctor_rule doctor_rules_driver[] = {
    {"nouveau", DOCTOR_ERROR, DOCTOR_GPU, AREA, "nouveau has the device",
     "CUDA needs NVIDIA's kernel module, and a device has one driver at a time",
     "echo 'blacklist nouveau' > /etc/modprobe.d/blacklist-nouveau.conf, make the initial RAM disk anew, restart", true,
     judge_nouveau},
    {"driver-missing", DOCTOR_ERROR, DOCTOR_GPU, AREA, "no driver has the device",
     "the kernel module nvidia is not loaded, so CUDA finds no device",
     "modprobe nvidia; if that fails, install the driver for this kernel (dmesg | grep NVRM has the reason)", true,
     judge_missing},
    {"driver-refused", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the driver is loaded, and does not have the device",
     "it could not start it. The firmware may have left no room for its memory window (\"BAR1 is 0M\"), or it is not "
     "of a kind that the driver supports",
     "dmesg | grep -i nvrm has the reason. For a window turn on \"above 4G decoding\" in the firmware, or give the "
     "kernel pci=realloc. For a virtual machine give it more 64-bit MMIO",
     true, judge_refused},
    {"version-skew", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "the driver's library and kernel module are of two versions",
     "an update has replaced the libraries, and the module from before is still loaded; nothing new can be started",
     "restart the machine, or stop what uses the devices, then rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; "
     "modprobe nvidia",
     true, judge_skew},
    {"fabric-manager", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "the fabric of the devices is not set up (CUDA error 802)",
     "on machines with NVSwitch CUDA does not start before the fabric manager has set them up",
     "install nvidia-fabricmanager of exactly the driver's version, then systemctl enable --now nvidia-fabricmanager",
     true, judge_fabric},
    {"fabric-state", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the device has not joined the fabric",
     "peer access over NVSwitch needs it, and CUDA may fail with error 802",
     "systemctl status nvidia-fabricmanager; its version must be the driver's", true, judge_fabric_state},
    {"driver-init", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "CUDA does not start",
     "cuInit fails, so no program can use a device; its code is the reason that the driver gives",
     "nvidia-smi and dmesg | grep -i nvrm have more. Restart the machine after an update of the driver. Start a "
     "container with --gpus. In WSL, update the driver of Windows",
     true, judge_init},
    {"driver-count", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "CUDA counts devices that cannot be there",
     "a stub, a damaged file or another program's library is in the place of NVIDIA's libcuda",
     "ldconfig -p | grep libcuda; take folders that are not the driver's out of LD_LIBRARY_PATH", false, judge_count},
    {"libcuda-missing", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "libcuda cannot be opened",
     "the kernel module is loaded, but programs find no library to call it with",
     "install the driver's libraries in the module's version; for a container, the NVIDIA container toolkit", true,
     judge_library},
    {"driver-silent", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "CUDA hangs or crashes when it starts",
     "a device that no longer answers stops every program that starts CUDA",
     "dmesg | grep -i xid shows the device; reset that one with nvidia-smi -i BUS --gpu-reset, or restart the machine",
     true, judge_silent},
    {"nvml-silent", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "NVML hangs or crashes",
     "a device that no longer answers stops nvidia-smi and NVML, too",
     "dmesg | grep -i xid shows the device; restart the machine", true, judge_nvml_silent},
    {"device-files", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "files of the driver in /dev are missing",
     "without /dev/nvidiactl and /dev/nvidia-uvm CUDA does not start",
     "nvidia-modprobe -c 0 -u; for a container, start it with --gpus or with those devices", true, judge_files},
    {"libcuda-skew", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "libcuda and the kernel module are of two versions",
     "this is meant only for NVIDIA's packages for forward compatibility, which work on data center cards alone",
     "take the folder of the other libcuda out of LD_LIBRARY_PATH, or install both in one version", false,
     judge_libcuda},
    {"wsl", DOCTOR_WARNING, DOCTOR_MACHINE, AREA, "this is the Windows subsystem for Linux",
     "the devices belong to Windows: there is no peer access, and much of NVML is missing; copies between devices are "
     "staged",
     "for peer access start Linux itself", false, judge_wsl},
    {"confidential", DOCTOR_WARNING, DOCTOR_MACHINE, AREA,
     "confidential computing is on, without a mode for several devices",
     "peer access is off, and copies are encrypted on their way",
     "where several devices are to work together, use protected PCIe mode, or turn confidential computing off", true,
     judge_confidential},
    {"nvml-missing", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "NVML cannot be used",
     "clocks, links, errors and refusals of peer access were not checked",
     "install the driver's library libnvidia-ml.so.1; for a container add the capability utility", true, judge_nvml},
    {"branch-contends", DOCTOR_NOTE, DOCTOR_MACHINE, AREA,
     "a driver of branch 525, with which threads may wait for each other",
     "in a report of 525.60, launches of one process to ten devices took 2 to 20 times as long; with 580 to four they "
     "did not",
     "HEDDLE_PLACEMENT=process, or a driver of branch 580 or later", false, judge_branch},
    {"other-driver", DOCTOR_NOTE, DOCTOR_GPU, AREA, "another driver than NVIDIA's has the device",
     "with vfio-pci it is kept for virtual machines; CUDA of this system does not show it",
     "where it is wanted here: take it out of the options of that driver, then echo " DOCTOR_BUS
     " > /sys/bus/pci/devices/" DOCTOR_BUS "/driver/unbind; echo " DOCTOR_BUS " > /sys/bus/pci/drivers/nvidia/bind",
     true, judge_other},
    {"mps", DOCTOR_NOTE, DOCTOR_MACHINE, AREA, "the multi-process service runs",
     "programs share one server: a fault of one ends the work of the others",
     "where that is not wanted: echo quit | nvidia-cuda-mps-control", false, judge_mps},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL}};
