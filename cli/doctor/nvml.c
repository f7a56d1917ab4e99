/* nvml.c - opens NVML, and reads facts about devices and pairs from it.
 *
 * Threads: one at a time. Locks: those of NVML.
 */
#include "cli/doctor/nvml.h"

#include <dlfcn.h>
#include <string.h>

/* Calls an entry point that may be missing. */
#define CALL(n, name, ...) ((n)->name ? (n)->name(__VA_ARGS__) : NVML_FUNCTION_MISSING)

bool doctor_nvml_open(nvml *out, char *reason)
{
    memset(out, 0, sizeof(*out));
    out->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        snprintf(reason, NVML_TEXT, "libnvidia-ml.so.1 cannot be opened");
        return false;
    }
#define NVML_TAKE(name, parameters)                                                                                    \
    {                                                                                                                  \
        void *object = dlsym(out->library, #name);                                                                     \
        memcpy(&out->name, &object, sizeof(object));                                                                   \
    }
    NVML_ENTRIES(NVML_TAKE)
#undef NVML_TAKE
    if (!out->nvmlInit_v2 || !out->nvmlShutdown || !out->nvmlDeviceGetCount_v2 || !out->nvmlDeviceGetHandleByIndex_v2 ||
        !out->nvmlDeviceGetPciInfo_v3) {
        snprintf(reason, NVML_TEXT, "libnvidia-ml.so.1 is too old, or another library");
        dlclose(out->library);
        return false;
    }
    return true;
}

static const char *doctor_nvml_error_text(int code, char out[NVML_TEXT])
{
    switch (code) {
    case NVML_OK:
        return "ok";
    case NVML_UNSUPPORTED:
        return DOCTOR_UNSUPPORTED;
    case NVML_NO_PERMISSION:
        return DOCTOR_NOT_ALLOWED;
    case NVML_FUNCTION_MISSING:
        return "this version of NVML has no such call";
    case NVML_RESET_REQUIRED:
        return "the device needs a reset";
    case NVML_GPU_NOT_FOUND:
        return "no device was found";
    case NVML_DRIVER_NOT_LOADED:
        return "the kernel module is not loaded";
    case NVML_GPU_LOST:
        return "the device is lost";
    case NVML_VERSION_MISMATCH:
        return "version mismatch of library and kernel module";
    default:
        snprintf(out, NVML_TEXT, "NVML's error %d", code);
        return out;
    }
}

static const char *doctor_nvml_yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* Stores a number of a device, or the reason why NVML provides none. */
static void doctor_nvml_put_count(doctor_snapshot *s, int code, unsigned long long value, const char *name, int i)
{
    char text[NVML_TEXT];
    if (code == NVML_OK) {
        doctor_put_number(s, (long long)value, "gpu.%d.%s", i, name);
    } else {
        doctor_miss(s, doctor_nvml_error_text(code, text), "gpu.%d.%s", i, name);
    }
}

/* Stores a word of a list, by its index. */
static void doctor_nvml_put_word(doctor_snapshot *s, int code, int value, const char *const *words, int n,
                                 const char *name, int i)
{
    char text[NVML_TEXT];
    if (code == NVML_OK && value >= 0 && value < n) {
        doctor_put(s, words[value], "gpu.%d.%s", i, name);
    } else if (code == NVML_OK) {
        doctor_miss(s, "NVML returned an unknown value", "gpu.%d.%s", i, name);
    } else {
        doctor_miss(s, doctor_nvml_error_text(code, text), "gpu.%d.%s", i, name);
    }
}

static void doctor_nvml_put_flag(doctor_snapshot *s, int code, int value, const char *name, int i)
{
    static const char *const words[] = {"no", "yes"};
    doctor_nvml_put_word(s, code, value != 0, words, 2, name, i);
}

/* ---- the machine ---- */

static void doctor_nvml_read_machine(const nvml *n, doctor_snapshot *s)
{
    char text[NVML_TEXT] = "";
    nvml_confidential c = {.version = NVML_CONFIDENTIAL_VERSION};
    if (CALL(n, nvmlSystemGetNVMLVersion, text, sizeof(text)) == NVML_OK) {
        text[sizeof(text) - 1] = 0;
        /* "12.570.124.06": NVML's own version, then the driver's version */
        const char *dot = strchr(text, '.');
        bool four = dot && strchr(dot + 1, '.') && strchr(strchr(dot + 1, '.') + 1, '.');
        doctor_put(s, four ? dot + 1 : text, "driver.nvml");
    }
    if (CALL(n, nvmlSystemGetDriverVersion, text, sizeof(text)) == NVML_OK) {
        text[sizeof(text) - 1] = 0;
        doctor_put(s, text, "driver.module");
    }
    int code = CALL(n, nvmlSystemGetConfComputeSettings, &c);
    if (code == NVML_OK) {
        doctor_put(s, doctor_nvml_yes_no(c.feature != 0), "confidential.on");
        doctor_put(s, c.multi_gpu ? "protected" : "none", "confidential.multi_gpu");
    } else { /* a driver without this call does not support confidential computing */
        doctor_miss(s, code == NVML_FUNCTION_MISSING ? DOCTOR_UNSUPPORTED : doctor_nvml_error_text(code, text),
                    "confidential.on");
    }
}

/* ---- of a device ---- */

static void doctor_nvml_read_basics(const nvml *n, nvml_device d, int i, doctor_snapshot *s)
{
    char name[NVML_TEXT] = "", text[NVML_TEXT];
    nvml_amounts amounts = {0, 0, 0};
    nvml_utilization use = {0, 0};
    int code = CALL(n, nvmlDeviceGetName, d, name, sizeof(name));
    if (code == NVML_OK) {
        name[sizeof(name) - 1] = 0;
        doctor_put(s, name, "gpu.%d.name", i);
    } else {
        doctor_miss(s, doctor_nvml_error_text(code, text), "gpu.%d.name", i);
    }
    code = CALL(n, nvmlDeviceGetMemoryInfo, d, &amounts);
    doctor_nvml_put_count(s, code, amounts.total >> 20, "memory_mib", i);
    code = CALL(n, nvmlDeviceGetBAR1MemoryInfo, d, &amounts);
    doctor_nvml_put_count(s, code, amounts.total >> 20, "window_mib", i);
    code = CALL(n, nvmlDeviceGetUtilizationRates, d, &use);
    doctor_nvml_put_count(s, code, use.gpu, "utilization", i);
}

static void doctor_nvml_read_modes(const nvml *n, nvml_device d, int i, doctor_snapshot *s)
{
    static const char *const compute[] = {"default", "exclusive", "prohibited", "exclusive"};
    static const char *const virtual[] = {"none", "passthrough", "vGPU", "host of vGPU", "host of vSGA"};
    int value = 0;
    unsigned now = 0, next = 0;
    int code = CALL(n, nvmlDeviceGetPersistenceMode, d, &value);
    doctor_nvml_put_flag(s, code, value, "persistence", i);
    code = CALL(n, nvmlDeviceGetDisplayActive, d, &value);
    doctor_nvml_put_flag(s, code, value, "display", i);
    code = CALL(n, nvmlDeviceGetComputeMode, d, &value);
    doctor_nvml_put_word(s, code, value, compute, 4, "compute_mode", i);
    code = CALL(n, nvmlDeviceGetVirtualizationMode, d, &value);
    doctor_nvml_put_word(s, code, value, virtual, 5, "virtualization", i);
    code = CALL(n, nvmlDeviceGetMigMode, d, &now, &next);
    doctor_nvml_put_flag(s, code, (int)now, "mig", i);
    doctor_nvml_put_flag(s, code, (int)next, "mig_pending", i);
}

static void doctor_nvml_read_clocks(const nvml *n, nvml_device d, int i, doctor_snapshot *s)
{
    enum { STATES_MOST = 15 }; /* the state 32 means unknown */
    unsigned long long reasons = 0;
    unsigned value = 0;
    int state = -1;
    int code = CALL(n, nvmlDeviceGetCurrentClocksThrottleReasons, d, &reasons);
    doctor_nvml_put_count(s, code, reasons, "clock_reasons", i);
    code = CALL(n, nvmlDeviceGetTemperature, d, NVML_ASK_CORE, &value);
    doctor_nvml_put_count(s, code, value, "temperature", i);
    code = CALL(n, nvmlDeviceGetPowerManagementLimit, d, &value);
    doctor_nvml_put_count(s, code, value, "power_limit_mw", i);
    code = CALL(n, nvmlDeviceGetPowerManagementDefaultLimit, d, &value);
    doctor_nvml_put_count(s, code, value, "power_default_mw", i);
    code = CALL(n, nvmlDeviceGetClockInfo, d, NVML_ASK_SM, &value);
    doctor_nvml_put_count(s, code, value, "clock_mhz", i);
    code = CALL(n, nvmlDeviceGetMaxClockInfo, d, NVML_ASK_SM, &value);
    doctor_nvml_put_count(s, code, value, "clock_max_mhz", i);
    code = CALL(n, nvmlDeviceGetClockInfo, d, NVML_ASK_MEMORY, &value);
    doctor_nvml_put_count(s, code, value, "memory_clock_mhz", i);
    code = CALL(n, nvmlDeviceGetMaxClockInfo, d, NVML_ASK_MEMORY, &value);
    doctor_nvml_put_count(s, code, value, "memory_clock_max_mhz", i);
    code = CALL(n, nvmlDeviceGetPerformanceState, d, &state);
    doctor_nvml_put_count(s, code == NVML_OK && (state < 0 || state > STATES_MOST) ? NVML_UNSUPPORTED : code,
                          (unsigned)state, "pstate", i);
    code = CALL(n, nvmlDeviceGetApplicationsClock, d, NVML_ASK_SM, &value);
    doctor_nvml_put_count(s, code, value, "clock_application_mhz", i);
    code = CALL(n, nvmlDeviceGetDefaultApplicationsClock, d, NVML_ASK_SM, &value);
    doctor_nvml_put_count(s, code, value, "clock_application_default_mhz", i);
}

/* Reads the number of processes: without a buffer, NVML returns only their number. */
static void doctor_nvml_read_processes(const nvml *n, nvml_device d, int i, doctor_snapshot *s)
{
    unsigned count = 0;
    int code = CALL(n, nvmlDeviceGetComputeRunningProcesses_v3, d, &count, NULL);
    doctor_nvml_put_count(s, code == NVML_INSUFFICIENT_SIZE ? NVML_OK : code, count, "compute_processes", i);
    count = 0;
    code = CALL(n, nvmlDeviceGetGraphicsRunningProcesses_v3, d, &count, NULL);
    doctor_nvml_put_count(s, code == NVML_INSUFFICIENT_SIZE ? NVML_OK : code, count, "graphics_processes", i);
}

static void doctor_nvml_read_memory_health(const nvml *n, nvml_device d, int i, doctor_snapshot *s)
{
    unsigned long long errors = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    int pages = 0;
    int code = CALL(n, nvmlDeviceGetTotalEccErrors, d, NVML_ASK_UNCORRECTED, NVML_ASK_VOLATILE, &errors);
    doctor_nvml_put_count(s, code, errors, "ecc_uncorrected", i);
    code = CALL(n, nvmlDeviceGetRetiredPagesPendingStatus, d, &pages);
    doctor_nvml_put_flag(s, code, pages, "pages_pending", i);
    code = CALL(n, nvmlDeviceGetRemappedRows, d, &corrected, &uncorrected, &pending, &failed);
    doctor_nvml_put_flag(s, code, (int)pending, "rows_pending", i);
    doctor_nvml_put_flag(s, code, (int)failed, "rows_failed", i);
}

/* Returns the number of a device; -1: the device is not in the list. */
static int doctor_nvml_find_bus(const doctor_buses *buses, nvml_pci *pci)
{
    char bus_id[SYSTEM_BUS_ID];
    pci->bus_id[sizeof(pci->bus_id) - 1] = 0;
    cli_system_bus_id(pci->bus_id, bus_id);
    for (int k = 0; k < buses->n; k++) {
        if (strcmp(buses->id[k], bus_id) == 0) {
            return k;
        }
    }
    return -1;
}

/* Counts all links of the device, and those that are up. Of the links that are up, counts those to
 * a switch, and those to each of the other devices. */
static void doctor_nvml_read_links(const nvml *n, nvml_device d, int i, doctor_buses *buses, doctor_snapshot *s)
{
    int up = 0, known = 0, switched = 0, first = NVML_OK, to[DOCTOR_GPUS_MAX] = {0};
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        int state = 0;
        nvml_pci remote;
        memset(&remote, 0, sizeof(remote));
        int code = CALL(n, nvmlDeviceGetNvLinkState, d, link, &state);
        first = link == 0 ? code : first;
        if (code != NVML_OK) {
            continue;
        }
        known++;
        up += state != 0;
        if (state) { /* if no listed device is at the far end, the link counts as one to a switch */
            int other = CALL(n, nvmlDeviceGetNvLinkRemotePciInfo_v2, d, link, &remote) == NVML_OK
                            ? doctor_nvml_find_bus(buses, &remote)
                            : -1;
            (*(other >= 0 ? &to[other] : &switched))++;
        }
    }
    int code = known                            ? NVML_OK
               : first == NVML_INVALID_ARGUMENT ? NVML_UNSUPPORTED
                                                /* if the first link is missing, the device has no
                                                 * links */
                                                : first;
    doctor_nvml_put_count(s, code, (unsigned)up, "nvlinks", i);
    doctor_nvml_put_count(s, code, (unsigned)switched, "nvlinks_switch", i);
    doctor_nvml_put_count(s, code, (unsigned)known, "nvlinks_all", i);
    for (int k = 0; k < buses->n; k++) {
        if (to[k] && k != i) {
            doctor_put_number(s, to[k], "pair.%d.%d.nvlinks", i, k);
        }
    }
}

static void doctor_nvml_read_device(const nvml *n, nvml_device d, int i, doctor_buses *buses, doctor_snapshot *s)
{
    nvml_fabric fabric;
    memset(&fabric, 0, sizeof(fabric));
    doctor_nvml_read_basics(n, d, i, s);
    doctor_nvml_read_modes(n, d, i, s);
    doctor_nvml_read_clocks(n, d, i, s);
    doctor_nvml_read_processes(n, d, i, s);
    doctor_nvml_read_memory_health(n, d, i, s);
    doctor_nvml_read_links(n, d, i, buses, s);
    int code = CALL(n, nvmlDeviceGetGpuFabricInfo, d, &fabric);
    doctor_nvml_put_count(s, code, fabric.state, "fabric_state", i);
    doctor_nvml_put_count(s, code, (unsigned)fabric.status, "fabric_status", i);
}

/* ---- of a pair ---- */

static void doctor_nvml_read_pair(const nvml *n, nvml_device d, nvml_device o, int a, int b, doctor_snapshot *s)
{
    static const char *const states[] = {"ok",
                                         "chipset not supported",
                                         "GPU not supported",
                                         "topology not supported",
                                         "disabled by registry key",
                                         "not supported",
                                         "unknown"};
    static const struct {
        int capability;
        const char *name;
    } of[] = {{NVML_ASK_READ, "read"}, {NVML_ASK_WRITE, "write"}, {NVML_ASK_ATOMICS, "atomics"}};
    for (size_t k = 0; k < sizeof(of) / sizeof(of[0]); k++) {
        char text[NVML_TEXT];
        int state = -1, code = CALL(n, nvmlDeviceGetP2PStatus, d, o, of[k].capability, &state);
        if (code == NVML_OK) {
            doctor_put(s, states[state >= 0 && state < 6 ? state : 6], "pair.%d.%d.%s", a, b, of[k].name);
        } else {
            doctor_miss(s, doctor_nvml_error_text(code, text), "pair.%d.%d.%s", a, b, of[k].name);
        }
    }
}

/* ---- all ---- */

/* The devices that NVML counts but cannot open. NVML does not name them. */
typedef struct unopened {
    int n, first; /* n: the number of devices; first: the code of the first one */
    bool alike;   /* all of them gave the same code */
    int broken;   /* the number of devices, without those that belong to other users */
} unopened;

static void doctor_nvml_count_unopened(unopened *u, int code)
{
    u->first = u->n++ ? u->first : code;
    u->alike &= code == u->first;
    u->broken += code != NVML_NO_PERMISSION;
}

/* `absent`: the number of devices on the bus that NVML did not open. They may be the devices that
 * NVML counts but cannot open. If NVML counts more such devices than `absent`, the others are on no
 * bus that the doctor knows. */
static void doctor_nvml_put_unlisted(const unopened *u, int absent, doctor_snapshot *s)
{
    char text[NVML_TEXT];
    int left = u->n - absent < u->broken ? u->n - absent : u->broken;
    if (left > 0) {
        doctor_put_number(s, left, "nvml.unlisted");
        doctor_put(s, u->alike ? doctor_nvml_error_text(u->first, text) : "for several reasons", "nvml.unlisted_state");
    }
}

static void doctor_nvml_read_devices(const nvml *n, unsigned count, doctor_buses *buses, doctor_snapshot *s)
{
    nvml_device device[DOCTOR_GPUS_MAX] = {NULL};
    char text[NVML_TEXT];
    unopened u = {.first = NVML_OK, .alike = true};
    for (unsigned i = 0; i < count && i < DOCTOR_GPUS_MAX; i++) {
        nvml_device d = NULL;
        nvml_pci pci;
        memset(&pci, 0, sizeof(pci));
        int code = n->nvmlDeviceGetHandleByIndex_v2(i, &d);
        if (code == NVML_OK) {
            code = n->nvmlDeviceGetPciInfo_v3(d, &pci);
        }
        if (code != NVML_OK) {
            doctor_nvml_count_unopened(&u, code);
        }
        pci.bus_id[sizeof(pci.bus_id) - 1] = 0;
        int number = pci.bus_id[0] ? doctor_bus_number(buses, pci.bus_id) : -1;
        if (number >= 0) {
            doctor_put(s, buses->id[number], "gpu.%d.bus", number);
            doctor_put(s, doctor_nvml_error_text(code, text), "gpu.%d.nvml", number);
            device[number] = code == NVML_OK ? d : NULL;
        }
    }
    int absent = 0;
    for (int i = 0; i < buses->n; i++) {
        absent += device[i] == NULL;
    }
    for (int i = 0; i < buses->n; i++) {
        if (device[i]) {
            doctor_nvml_read_device(n, device[i], i, buses, s);
        } else {
            doctor_put(s, u.n == absent && u.alike ? doctor_nvml_error_text(u.first, text) : "absent", "gpu.%d.nvml",
                       i);
        }
    }
    doctor_nvml_put_unlisted(&u, absent, s);
    for (int a = 0; a < buses->n; a++) {
        for (int b = 0; b < buses->n; b++) {
            if (a != b && device[a] && device[b]) {
                doctor_nvml_read_pair(n, device[a], device[b], a, b, s);
            }
        }
    }
}

void doctor_nvml_read(const nvml *n, doctor_buses *buses, doctor_snapshot *s)
{
    char text[NVML_TEXT];
    unsigned count = 0;
    int code = n->nvmlInit_v2();
    /* this also reads the library's version, which is known without a driver */
    doctor_nvml_read_machine(n, s);
    if (code == NVML_OK) {
        code = n->nvmlDeviceGetCount_v2(&count);
        if (code == NVML_OK) {
            doctor_nvml_read_devices(n, count, buses, s);
        }
        n->nvmlShutdown();
    }
    doctor_put(s, doctor_nvml_error_text(code, text), "nvml.state");
    doctor_put_number(s, buses->n, "gpus");
}
