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

/* In percent. A device that is busier has its clocks under load. */
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

/* NVML, the bus and the log may each show that a device is lost. A device that answers to NVML has
 * come back. */
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

/* A container, or a batch system with a control group for devices, shows only some devices. So a
 * device counts as failed to start only if this process may open its file. */
static bool doctor_health_judge_absent(doctor_case *c)
{
    return doctor_is_not(c, "yes", "system.container") && doctor_is(c, "absent", "gpu.%d.nvml", c->a) &&
           doctor_is(c, "ok", "nvml.state") && doctor_is(c, "nvidia", "gpu.%d.kernel_driver", c->a) &&
           doctor_is_not(c, "gone", "gpu.%d.config", c->a) &&
           !doctor_health_list_has_number(doctor_maybe(c, "gpu.%d.xid", c->a), FALLEN) &&
           doctor_is(c, "may be opened", "gpu.%d.file", c->a);
}

/* For devices that NVML does not name and cannot open, if no device of the bus is left to match. */
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

/* NVML gives its own reason for a device that it does not open. */
static bool doctor_health_judge_unusable(doctor_case *c)
{
    const char *state = doctor_look(c, "gpu.%d.nvml", c->a);
    return state && strcmp(state, "ok") != 0 && strcmp(state, "absent") != 0 &&
           strcmp(state, DOCTOR_NOT_ALLOWED) != 0 && !strstr(state, "lost");
}

/* Xid numbers that a program alone does not cause. Another rule covers lost devices. */
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

/* A window that holds all of the memory got its room, whatever the log shows. */
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

/* The power brake sets the hardware bit, too. */
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

/* A device under full load reaches its usual limit, which is no finding. */
static bool doctor_health_judge_power_cap(doctor_case *c)
{
    if (!doctor_health_case_has_reason(c, NVML_SLOW_POWER_CAP) || doctor_health_judge_power_limit(c)) {
        return false;
    }
    doctor_maybe(c, "gpu.%d.clock_mhz", c->a);
    doctor_maybe(c, "gpu.%d.clock_max_mhz", c->a);
    return true;
}

/* Older data center cards start with application clocks below the maximum. Those are no setting of
 * this machine. */
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

/* Application clocks do not explain clocks that are far lower and have no other reason. */
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

/* An idle device lowers its memory clock, but a device at work or in a state for work does not. */
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

/* A single device with a display has no alternative. Without a display, a window server is
 * unnecessary. */
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
     "restart the machine, off and on; if it comes back: power cables, riser, slot, temperature", true,
     doctor_health_judge_lost, DOCTOR_NO_CAUSE, 0},
    {"gpu-absent", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the device is on the bus, but the driver does not show it",
     "this process may open its file, so the driver could not start it", "dmesg | grep -i nvrm has the reason", true,
     doctor_health_judge_absent, DOCTOR_NO_CAUSE, 0},
    {"gpu-unlisted", DOCTOR_ERROR, DOCTOR_MACHINE, AREA, "NVML counts devices that it does not open, and does not name",
     "what NVML cannot open is seldom of use to a program",
     "nvidia-smi and dmesg | grep -i nvrm have the reason; where one is lost, restart the machine, off and on", true,
     doctor_health_judge_unlisted, DOCTOR_NO_CAUSE, 0},
    {"gpu-unusable", DOCTOR_ERROR, DOCTOR_GPU, AREA, "NVML cannot open the device",
     "what NVML cannot open is seldom of use to a program",
     "dmesg | grep -i nvrm has the reason; nvidia-smi -i " DOCTOR_BUS " --gpu-reset, else restart the machine", true,
     doctor_health_judge_unusable, DOCTOR_NO_CAUSE, 0},
    {"xid", DOCTOR_ERROR, DOCTOR_GPU, AREA, "the kernel log has errors of the device itself",
     "these numbers stand for memory, links, power or firmware, not for a program's mistake",
     "look them up in NVIDIA's list of Xid errors; reset the device with nvidia-smi -i " DOCTOR_BUS " --gpu-reset",
     true, doctor_health_judge_xid, DOCTOR_NO_CAUSE, 0},
    {"rows-failed", DOCTOR_ERROR, DOCTOR_GPU, AREA, "memory of the device cannot be repaired any more",
     "a row with errors could not be replaced by a spare one", "have the device exchanged", false,
     doctor_health_judge_remap_failed, DOCTOR_NO_CAUSE, 0},
    {"compute-prohibited", DOCTOR_ERROR, DOCTOR_GPU, AREA, "no program may compute on the device",
     "its compute mode is prohibited", "nvidia-smi -i " DOCTOR_BUS " -c DEFAULT", true, doctor_health_judge_prohibited,
     DOCTOR_NO_CAUSE, 0},
    {"rows-pending", DOCTOR_WARNING, DOCTOR_GPU, AREA, "bad memory waits for a reset to be replaced",
     "an uncorrectable error was found, and the spare memory is used only after a reset",
     "stop what uses the device, then nvidia-smi -i " DOCTOR_BUS " --gpu-reset", true,
     doctor_health_judge_remap_pending, DOCTOR_NO_CAUSE, 0},
    {"window-failed", DOCTOR_WARNING, DOCTOR_GPU, AREA, "the kernel had no room for a memory window of the device",
     "without its windows (BAR) the driver cannot start it, or peers and network cards do not reach its memory",
     "turn on \"above 4G decoding\" and resizable BAR in the firmware, or give the kernel pci=realloc. For a virtual "
     "machine "
     "give it more 64-bit MMIO",
     true, doctor_health_judge_window_failed, DOCTOR_NO_CAUSE, 0},
    {"ecc", DOCTOR_WARNING, DOCTOR_GPU, AREA, "uncorrectable memory errors since the driver was loaded",
     "each has ended the work that touched it",
     "nvidia-smi -i " DOCTOR_BUS " -q -d ECC,ROW_REMAPPER; reset the device, watch the counter", true,
     doctor_health_judge_ecc, DOCTOR_NO_CAUSE, 0},
    {"clocks-brake", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the power supply holds the clocks down (power brake)",
     "the system asks the device to take less power, and the clocks are halved or worse",
     "look at the power supplies and their cables, and at the power cap of the machine (BMC) and the rack", false,
     doctor_health_judge_brake, DOCTOR_NO_CAUSE, 0},
    {"clocks-hardware", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the hardware holds the clocks down because of heat",
     "above its limit of temperature the clocks are halved or worse",
     "look at fans and air flow; where it is cool, at the power cables", false, doctor_health_judge_hardware_slow,
     DOCTOR_NO_CAUSE, 0},
    {"clocks-hot", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the driver holds the clocks down because of the temperature",
     "the device is above the temperature for full clocks", "look at fans and air flow", false, doctor_health_judge_hot,
     DOCTOR_NO_CAUSE, 0},
    {"power-limit", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the power limit is below the usual one",
     "under load the clocks go down sooner",
     "nvidia-smi -i " DOCTOR_BUS " -pl WATTS, with the default of nvidia-smi -q -d POWER", true,
     doctor_health_judge_power_limit, DOCTOR_NO_CAUSE, 0},
    {"clocks-set", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "clocks are limited by a setting",
     "application clocks or locked clocks are in force",
     "nvidia-smi -i " DOCTOR_BUS " -rac; nvidia-smi -i " DOCTOR_BUS " -rgc", true, doctor_health_judge_clock_setting,
     DOCTOR_NO_CAUSE, 0},
    {"clocks-memory", DOCTOR_WARNING, DOCTOR_GPU, CLOCKS, "the memory clock is held below its highest",
     "what moves bytes is slower by as much: kernels, and copies both ways at once; no heat is given as the reason",
     "nvidia-smi -i " DOCTOR_BUS " -rmc, where nvidia-smi -lmc has locked it; nvidia-smi -i " DOCTOR_BUS " -rac", true,
     doctor_health_judge_memory_clock, DOCTOR_NO_CAUSE, 0},
    {"mig", DOCTOR_WARNING, DOCTOR_GPU, AREA, "MIG is on",
     "a part of a MIG device has no peer access, and a process sees one part at most",
     "where whole devices are wanted: nvidia-smi -i " DOCTOR_BUS " -mig 0", true, doctor_health_judge_mig,
     DOCTOR_NO_CAUSE, 0},
    {"mig-pending", DOCTOR_WARNING, DOCTOR_GPU, AREA, "a change of MIG waits for a reset",
     "the mode that was asked for is not in force", "nvidia-smi -i " DOCTOR_BUS " --gpu-reset", true,
     doctor_health_judge_mig_pending, DOCTOR_NO_CAUSE, 0},
    {"shared", DOCTOR_WARNING, DOCTOR_GPU, AREA, "several processes compute on the device",
     "they take turns in slices of time, and each has its own context in the memory",
     "one process for each device, or the multi-process service (nvidia-cuda-mps-control -d)", false,
     doctor_health_judge_shared, DOCTOR_NO_CAUSE, 0},
    {"clocks-power", DOCTOR_NOTE, DOCTOR_GPU, CLOCKS, "the power limit holds the clocks down",
     "that is usual under full load, at the usual limit", "", false, doctor_health_judge_power_cap, DOCTOR_NO_CAUSE, 0},
    {"clocks-locked", DOCTOR_NOTE, DOCTOR_GPU, CLOCKS, "a setting holds the clocks far below the application clocks",
     "locked clocks may do that (nvidia-smi -lgc); no heat and no power limit is given as the reason",
     "nvidia-smi -i " DOCTOR_BUS " -rgc", true, doctor_health_judge_clock_lock, DOCTOR_NO_CAUSE, 0},
    {"compute-exclusive", DOCTOR_NOTE, DOCTOR_GPU, AREA, "one process at a time may use the device",
     "a second program fails with \"all CUDA-capable devices are busy\"", "nvidia-smi -i " DOCTOR_BUS " -c DEFAULT",
     true, doctor_health_judge_exclusive, DOCTOR_NO_CAUSE, 0},
    {"persistence", DOCTOR_NOTE, DOCTOR_GPU, AREA, "persistence mode is off",
     "the driver sets the device up anew for each program that finds it unused, which takes seconds",
     "systemctl enable --now nvidia-persistenced, or nvidia-smi -i " DOCTOR_BUS " -pm 1", true,
     doctor_health_judge_persistence, DOCTOR_NO_CAUSE, 0},
    {"graphics", DOCTOR_NOTE, DOCTOR_GPU, AREA, "a display or a graphics program uses the device",
     "it takes memory and time from what computes there",
     "let the display use another device; where none is attached, start without one (systemctl set-default "
     "multi-user.target)",
     false, doctor_health_judge_graphics, DOCTOR_NO_CAUSE, 0},
    {NULL, DOCTOR_NOTE, DOCTOR_MACHINE, "", "", "", "", false, NULL, DOCTOR_NO_CAUSE, 0}};
