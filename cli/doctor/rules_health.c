/* rules_health.c - rules about each device: its presence, health, clocks, modes and other users.
 *
 * Threads: one at a time. Locks: none.
 */
#include "cli/doctor/rules.h"

#include <stdlib.h>
#include <string.h>
#include "cli/doctor/nvml.h"

#define AREA "devices"
#define CLOCKS "clocks"

enum { FALLEN = 79 }; /* the Xid of a device that fell off the bus */

/* Performance states: 0 is the fastest. GeForce cards compute in state 2. */
enum { STATE_WORK = 2, STATE_IDLE = 8 };

/* In percent: a device that is at least this busy should run at its clocks for load. */
enum { BUSY_LEAST = 50 };

/* True if a list such as "31, 79" contains the number. */
static bool doctor_health_list_has_number(const char *list, long number)
{
    while (list && *list) {
        char *end;
        long is = strtol(list, &end, 10);
        if (end > list && is == number) {
            return true;
        }
        list = end > list ? end : list + 1;
    }
    return false;
}

/* NVML, the bus and the log may each show that a device is lost. If NVML reports the device as ok,
 * an old line in the log does not count. */
static bool doctor_health_judge_lost(doctor_case *c)
{
    const char *state = doctor_maybe(c, "gpu.%d.nvml", c->a);
    if (state && strstr(state, "lost")) {
        doctor_maybe(c, "gpu.%d.xid", c->a);
        return true;
    }
    doctor_drop(c, 0);
    if (!doctor_is_not(c, "gone", "gpu.%d.config", c->a)) {
        return doctor_is(c, "gone", "gpu.%d.config", c->a);
    }
    return !(state && strcmp(state, "ok") == 0) &&
           doctor_health_list_has_number(doctor_look(c, "gpu.%d.xid", c->a), FALLEN);
}

/* Finds a device that failed to start. A container, or a batch system with a control group for
 * devices, shows only some devices. So the rule counts a device only if this process may open the
 * device's file. */
static bool doctor_health_judge_absent(doctor_case *c)
{
    return doctor_is_not(c, "yes", "system.container") && doctor_is(c, "absent", "gpu.%d.nvml", c->a) &&
           doctor_is(c, "ok", "nvml.state") && doctor_is(c, "nvidia", "gpu.%d.kernel_driver", c->a) &&
           doctor_is_not(c, "gone", "gpu.%d.config", c->a) &&
           !doctor_health_list_has_number(doctor_maybe(c, "gpu.%d.xid", c->a), FALLEN) &&
           doctor_is(c, "may be opened", "gpu.%d.file", c->a);
}

/* True if the devices that NVML cannot open are more than the devices on the bus that it left out.
 * NVML does not name the devices that it cannot open. */
static bool doctor_health_judge_unlisted(doctor_case *c)
{
    const char *state = doctor_look(c, "nvml.state");
    doctor_drop(c, 0);
    if (!state || doctor_number_maybe(c, 0, "nvml.unlisted") <= 0) {
        return false;
    }
    doctor_maybe(c, "nvml.unlisted_state");
    return true;
}

/* True if NVML does not open the device and gives an error. Other rules cover lost devices, absent
 * devices and missing permission. */
static bool doctor_health_judge_unusable(doctor_case *c)
{
    const char *state = doctor_look(c, "gpu.%d.nvml", c->a);
    return state && strcmp(state, "ok") != 0 && strcmp(state, "absent") != 0 &&
           strcmp(state, DOCTOR_NOT_ALLOWED) != 0 && !strstr(state, "lost");
}

/* Finds Xid numbers that a program alone does not cause. Another rule covers lost devices. */
static bool doctor_health_judge_xid(doctor_case *c)
{
    static const short hardware[] = {48, 62, 64, 74, 92, 94, 95, 119, 120, 122, 140, 143};
    const char *list = doctor_look(c, "gpu.%d.xid", c->a);
    if (doctor_health_list_has_number(list, FALLEN) && !doctor_is_not(c, "ok", "gpu.%d.nvml", c->a)) {
        return true;
    }
    for (size_t i = 0; list && i < sizeof(hardware) / sizeof(hardware[0]); i++) {
        if (doctor_health_list_has_number(list, hardware[i])) {
            return true;
        }
    }
    return false;
}

/* Finds failed windows in the log. If the device's window covers all of its memory, a failure in
 * the log does not count. */
static bool doctor_health_judge_window_failed(doctor_case *c)
{
    long long window = doctor_number_maybe(c, 0, "gpu.%d.window_mib", c->a);
    long long memory = doctor_number_maybe(c, 0, "gpu.%d.memory_mib", c->a);
    const char *line = doctor_look(c, "gpu.%d.window_failed", c->a);
    return line && strcmp(line, "no") != 0 && (window <= 0 || memory <= 0 || window < memory);
}

static bool doctor_health_judge_remap_failed(doctor_case *c)
{
    return doctor_is(c, "yes", "gpu.%d.rows_failed", c->a);
}

static bool doctor_health_judge_remap_pending(doctor_case *c)
{
    /* newer devices count rows; older ones count pages */
    const char *rows = doctor_maybe(c, "gpu.%d.rows_pending", c->a);
    if (rows) {
        return strcmp(rows, "yes") == 0;
    }
    return doctor_is(c, "yes", "gpu.%d.pages_pending", c->a);
}

static bool doctor_health_judge_ecc(doctor_case *c)
{
    return doctor_number(c, 0, "gpu.%d.ecc_uncorrected", c->a) > 0;
}

/* ---- clocks ---- */

static bool doctor_health_case_has_reason(doctor_case *c, long long bits)
{
    return doctor_number(c, 0, "gpu.%d.clock_reasons", c->a) & bits;
}

static bool doctor_health_judge_brake(doctor_case *c)
{
    if (!doctor_health_case_has_reason(c, NVML_SLOW_POWER_BRAKE)) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.clock_mhz", c->a);
    return true;
}

/* The power brake, which another rule covers, also sets the hardware bit. */
static bool doctor_health_judge_hardware_slow(doctor_case *c)
{
    int before = c->n;
    bool brake = doctor_health_case_has_reason(c, NVML_SLOW_POWER_BRAKE);
    doctor_drop(c, before);
    if (!doctor_health_case_has_reason(c, NVML_SLOW_HARDWARE_THERMAL | (brake ? 0 : NVML_SLOW_HARDWARE))) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.temperature", c->a);
    doctor_maybe(c, "gpu.%d.clock_mhz", c->a);
    return true;
}

static bool doctor_health_judge_hot(doctor_case *c)
{
    if (!doctor_health_case_has_reason(c, NVML_SLOW_THERMAL)) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.temperature", c->a);
    return true;
}

static bool doctor_health_judge_power_limit(doctor_case *c)
{
    long long limit = doctor_number(c, 0, "gpu.%d.power_limit_mw", c->a);
    long long usual = doctor_number(c, 0, "gpu.%d.power_default_mw", c->a);
    return limit > 0 && limit < usual;
}

/* At the usual power limit, lower clocks are normal under full load, so the finding is only a note.
 * Another rule covers a lowered limit. */
static bool doctor_health_judge_power_cap(doctor_case *c)
{
    if (!doctor_health_case_has_reason(c, NVML_SLOW_POWER_CAP) || doctor_health_judge_power_limit(c)) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.clock_mhz", c->a);
    doctor_maybe(c, "gpu.%d.clock_max_mhz", c->a);
    return true;
}

/* Older data center cards start with application clocks below the maximum. So the rule compares
 * with the default application clock, not with the maximum. */
static bool doctor_health_judge_clock_setting(doctor_case *c)
{
    long long set = doctor_number_maybe(c, 0, "gpu.%d.clock_application_mhz", c->a);
    long long usual = doctor_number_maybe(c, 0, "gpu.%d.clock_application_default_mhz", c->a);
    if (set > 0 && usual > 0) {
        return set < usual;
    }
    if (!doctor_health_case_has_reason(c, NVML_SLOW_SETTING)) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.clock_mhz", c->a);
    doctor_maybe(c, "gpu.%d.clock_max_mhz", c->a);
    return true;
}

/* If the clocks are far below the application clocks, and a setting is the only reason, the clocks
 * are probably locked. */
static bool doctor_health_judge_clock_lock(doctor_case *c)
{
    if (doctor_number(c, 0, "gpu.%d.clock_reasons", c->a) != NVML_SLOW_SETTING) {
        return false;
    }
    long long set = doctor_number_maybe(c, 0, "gpu.%d.clock_application_mhz", c->a);
    long long usual = doctor_number_maybe(c, 0, "gpu.%d.clock_application_default_mhz", c->a);
    long long now = doctor_number_maybe(c, 0, "gpu.%d.clock_mhz", c->a);
    return usual > 0 && set >= usual && now > 0 && now * 10 < set * 9;
}

/* An idle device lowers its memory clock. A busy device, or one in performance state 0 to 2, does
 * not. */
static bool doctor_health_judge_memory_clock(doctor_case *c)
{
    long long now = doctor_number(c, 0, "gpu.%d.memory_clock_mhz", c->a);
    long long most = doctor_number(c, 0, "gpu.%d.memory_clock_max_mhz", c->a);
    if (now <= 0 || now * 10 >= most * 9) {
        return false;
    }
    long long reasons = doctor_number_maybe(c, NVML_SLOW_IDLE, "gpu.%d.clock_reasons", c->a);
    long long state = doctor_number_maybe(c, STATE_IDLE, "gpu.%d.pstate", c->a);
    bool held = reasons & (NVML_SLOW_HARDWARE | NVML_SLOW_THERMAL | NVML_SLOW_HARDWARE_THERMAL | NVML_SLOW_POWER_BRAKE);
    if (held || state <= STATE_WORK) {
        return !held;
    }
    return !(reasons & NVML_SLOW_IDLE) && doctor_number(c, 0, "gpu.%d.utilization", c->a) >= BUSY_LEAST;
}

/* ---- modes ---- */

static bool doctor_health_judge_mig(doctor_case *c)
{
    return doctor_is(c, "yes", "gpu.%d.mig", c->a);
}

static bool doctor_health_judge_mig_pending(doctor_case *c)
{
    const char *now = doctor_look(c, "gpu.%d.mig", c->a), *next = doctor_look(c, "gpu.%d.mig_pending", c->a);
    return now && next && strcmp(now, next) != 0;
}

static bool doctor_health_judge_prohibited(doctor_case *c)
{
    return doctor_is(c, "prohibited", "gpu.%d.compute_mode", c->a);
}

static bool doctor_health_judge_exclusive(doctor_case *c)
{
    return doctor_is(c, "exclusive", "gpu.%d.compute_mode", c->a) && doctor_is_not(c, "yes", "mps.server");
}

static bool doctor_health_judge_persistence(doctor_case *c)
{
    return doctor_is(c, "no", "gpu.%d.persistence", c->a) && doctor_is_not(c, "yes", "system.wsl") &&
           doctor_number_maybe(c, 0, "gpu.%d.graphics_processes", c->a) == 0;
}

/* ---- other users ---- */

static bool doctor_health_judge_shared(doctor_case *c)
{
    return doctor_number(c, 0, "gpu.%d.compute_processes", c->a) > 1 && doctor_is_not(c, "yes", "mps.server");
}

/* If the only device drives a display, no other device can drive the display. Without a display, a
 * window server is unnecessary. */
static bool doctor_health_judge_graphics(doctor_case *c)
{
    if (doctor_number(c, 0, "gpus") > 1) {
        return doctor_number_maybe(c, 0, "gpu.%d.graphics_processes", c->a) > 0 ||
               doctor_is(c, "yes", "gpu.%d.display", c->a);
    }
    return doctor_number_maybe(c, 0, "gpu.%d.graphics_processes", c->a) > 0 &&
           doctor_is(c, "no", "gpu.%d.display", c->a);
}

const doctor_rule doctor_rules_health[] = {
    {"gpu-lost", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the device has fallen off the bus",
     "it no longer answers, and all work on it is lost; programs and nvidia-smi may hang",
     "turn the machine off and on; if the fault returns, check power cables, riser, slot and temperature", true,
     doctor_health_judge_lost, DOCTOR_NO_CAUSE, 0},
    {"gpu-absent", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the device is on the bus, but the driver does not show it",
     "this process may open the device's file, so no container hides the device: the driver failed to start it",
     "dmesg | grep -i nvrm shows the reason", true, doctor_health_judge_absent, DOCTOR_NO_CAUSE, 0},
    {"gpu-unlisted", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "NVML counts devices that it can neither open nor name",
     "programs can seldom use a device that NVML cannot open",
     "nvidia-smi and dmesg | grep -i nvrm show the reason; if a device is lost, turn the machine off and on", true,
     doctor_health_judge_unlisted, DOCTOR_NO_CAUSE, 0},
    {"gpu-unusable", DOCTOR_ERROR, DOCTOR_GPU, AREA, "NVML cannot open the device",
     "programs can seldom use a device that NVML cannot open",
     "dmesg | grep -i nvrm shows the reason; nvidia-smi -i " DOCTOR_BUS " --gpu-reset, or restart the machine", true,
     doctor_health_judge_unusable, DOCTOR_NO_CAUSE, 0},
    {"xid", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the kernel log has errors of the device itself",
     "these Xid numbers stand for faults of memory, links, power or firmware, not for mistakes of a program",
     "look them up in NVIDIA's list of Xid errors; reset the device with nvidia-smi -i " DOCTOR_BUS " --gpu-reset",
     true, doctor_health_judge_xid, DOCTOR_NO_CAUSE, 0},
    {"rows-failed", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the device can no longer repair its memory",
     "it could not replace a memory row with errors by a spare row", "have the device exchanged", false,
     doctor_health_judge_remap_failed, DOCTOR_NO_CAUSE, 0},
    {"compute-prohibited", DOCTOR_ERROR, DOCTOR_GPU, AREA, "no program may compute on the device",
     "its compute mode is set to \"prohibited\"", "nvidia-smi -i " DOCTOR_BUS " -c DEFAULT", true,
     doctor_health_judge_prohibited, DOCTOR_NO_CAUSE, 0},
    {"rows-pending", DOCTOR_WARNING, DOCTOR_GPU, AREA, "bad memory will be replaced at the next reset",
     "the device found an uncorrectable error, and uses the spare memory only after a reset",
     "stop the programs that use the device, then nvidia-smi -i " DOCTOR_BUS " --gpu-reset", true,
     doctor_health_judge_remap_pending, DOCTOR_NO_CAUSE, 0},
    {"window-failed", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the kernel had no room for a memory window of the device",
     "without its windows (BAR) the driver cannot start the device, or peers and network cards cannot reach its memory",
     "turn on \"above 4G decoding\" and resizable BAR in the firmware, or start the kernel with pci=realloc. Give a "
     "virtual machine more 64-bit MMIO space",
     true, doctor_health_judge_window_failed, DOCTOR_NO_CAUSE, 0},
    {"ecc", DOCTOR_WARNING, DOCTOR_GPU, AREA,
     "the device reports uncorrectable memory errors since the driver was loaded",
     "each error ended the work that used the memory",
     "nvidia-smi -i " DOCTOR_BUS " -q -d ECC,ROW_REMAPPER shows them; reset the device and watch the counter", true,
     doctor_health_judge_ecc, DOCTOR_NO_CAUSE, 0},
    {"clocks-brake", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the power supply holds the clocks down (power brake)",
     "the machine asks the device to take less power, and the device runs at half of its clocks or less",
     "check the power supplies and their cables, and the power cap of the machine (BMC) and of the rack", false,
     doctor_health_judge_brake, DOCTOR_NO_CAUSE, 0},
    {"clocks-hardware", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS,
     "the hardware holds the clocks down, mostly because of heat or power",
     "the device then runs at half of its clocks or less",
     "check fans and air flow; if the device is cool, check the "
     "power cables",
     false, doctor_health_judge_hardware_slow, DOCTOR_NO_CAUSE, 0},
    {"clocks-hot", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the driver holds the clocks down because of the temperature",
     "the device is too hot for full clocks", "check fans and air flow", false, doctor_health_judge_hot,
     DOCTOR_NO_CAUSE, 0},
    {"power-limit", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the power limit is below its default",
     "under load the clocks go down sooner",
     "nvidia-smi -i " DOCTOR_BUS " -pl WATTS, with the default that nvidia-smi -q -d POWER shows", true,
     doctor_health_judge_power_limit, DOCTOR_NO_CAUSE, 0},
    {"clocks-set", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "a setting limits the clocks",
     "application clocks or locked clocks are in force",
     "nvidia-smi -i " DOCTOR_BUS " -rac; nvidia-smi -i " DOCTOR_BUS " -rgc", true, doctor_health_judge_clock_setting,
     DOCTOR_NO_CAUSE, 0},
    {"clocks-memory", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the memory clock is below its maximum",
     "kernels that are limited by memory, and copies in both directions at once, are slower by the same factor. The "
     "device does not report heat as the reason",
     "nvidia-smi -i " DOCTOR_BUS " -rmc if nvidia-smi -lmc locked the clock; nvidia-smi -i " DOCTOR_BUS " -rac", true,
     doctor_health_judge_memory_clock, DOCTOR_NO_CAUSE, 0},
    {"mig", DOCTOR_WARNING, DOCTOR_GPU, AREA, "MIG is on",
     "a part of a MIG device has no peer access, and a process sees one part at most",
     "to use whole devices: nvidia-smi -i " DOCTOR_BUS " -mig 0", true, doctor_health_judge_mig, DOCTOR_NO_CAUSE, 0},
    {"mig-pending", DOCTOR_WARNING, DOCTOR_GPU, AREA, "a change of the MIG mode waits for a reset",
     "the requested mode is not in force yet", "nvidia-smi -i " DOCTOR_BUS " --gpu-reset", true,
     doctor_health_judge_mig_pending, DOCTOR_NO_CAUSE, 0},
    {"shared", DOCTOR_WARNING, DOCTOR_GPU, AREA, "several processes compute on the device",
     "they take turns, and each process keeps its own context in the device's memory",
     "use one process for each device, or the multi-process service (nvidia-cuda-mps-control -d)", false,
     doctor_health_judge_shared, DOCTOR_NO_CAUSE, 0},
    {"clocks-power", DOCTOR_NOTE, DOCTOR_GPU, CLOCKS, "the power limit holds the clocks down",
     "this is normal under full load", "", false, doctor_health_judge_power_cap, DOCTOR_NO_CAUSE, 0},
    {"clocks-locked", DOCTOR_NOTE, DOCTOR_GPU, CLOCKS, "a setting holds the clocks far below the application clocks",
     "the clocks are probably locked (nvidia-smi -lgc): the device reports neither heat nor a power limit",
     "nvidia-smi -i " DOCTOR_BUS " -rgc", true, doctor_health_judge_clock_lock, DOCTOR_NO_CAUSE, 0},
    {"compute-exclusive", DOCTOR_NOTE, DOCTOR_GPU, AREA, "only one process at a time may use the device",
     "a second program fails with \"all CUDA-capable devices are busy\"", "nvidia-smi -i " DOCTOR_BUS " -c DEFAULT",
     true, doctor_health_judge_exclusive, DOCTOR_NO_CAUSE, 0},
    {"persistence", DOCTOR_NOTE, DOCTOR_GPU, AREA, "persistence mode is off",
     "if no program uses the device, the next program waits seconds until the driver has set it up again",
     "systemctl enable --now nvidia-persistenced, or nvidia-smi -i " DOCTOR_BUS " -pm 1", true,
     doctor_health_judge_persistence, DOCTOR_NO_CAUSE, 0},
    {"graphics", DOCTOR_NOTE, DOCTOR_GPU, AREA, "a display or a graphics program uses the device",
     "it takes memory and time from programs that compute on the device",
     "connect the display to another device; without a display, boot without a graphical desktop (systemctl "
     "set-default multi-user.target)",
     false, doctor_health_judge_graphics, DOCTOR_NO_CAUSE, 0},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL, DOCTOR_NO_CAUSE, 0}};
