/* gaps.c - explains to people why a fact is missing: the fact's own reason, or its source's reason.
 *
 * Threads: one at a time. Locks: none.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "cli/doctor/findings.h"

typedef enum source { SOURCE_NVML, SOURCE_DRIVER, SOURCE_TESTS, SOURCE_SYSTEM } source;

/* The providers of facts, by the pattern of the key (doctor_gap_pattern). All other facts come from
 * the system. */
static const struct {
    const char *pattern;
    source from;
} sources[] = {
    {"confidential.multi_gpu", SOURCE_NVML},
    {"confidential.on", SOURCE_NVML},
    {"driver.nvml", SOURCE_NVML},
    {"nvml.state", SOURCE_NVML},
    {"gpu.N.clock_reasons", SOURCE_NVML},
    {"gpu.N.compute_mode", SOURCE_NVML},
    {"gpu.N.compute_processes", SOURCE_NVML},
    {"gpu.N.display", SOURCE_NVML},
    {"gpu.N.ecc_uncorrected", SOURCE_NVML},
    {"gpu.N.fabric_state", SOURCE_NVML},
    {"gpu.N.fabric_status", SOURCE_NVML},
    {"gpu.N.graphics_processes", SOURCE_NVML},
    {"gpu.N.memory_clock_max_mhz", SOURCE_NVML},
    {"gpu.N.memory_clock_mhz", SOURCE_NVML},
    {"gpu.N.memory_mib", SOURCE_NVML},
    {"gpu.N.mig", SOURCE_NVML},
    {"gpu.N.mig_pending", SOURCE_NVML},
    {"gpu.N.name", SOURCE_NVML},
    {"gpu.N.nvlinks", SOURCE_NVML},
    {"gpu.N.nvml", SOURCE_NVML},
    {"gpu.N.pages_pending", SOURCE_NVML},
    {"gpu.N.persistence", SOURCE_NVML},
    {"gpu.N.power_default_mw", SOURCE_NVML},
    {"gpu.N.power_limit_mw", SOURCE_NVML},
    {"gpu.N.rows_failed", SOURCE_NVML},
    {"gpu.N.rows_pending", SOURCE_NVML},
    {"gpu.N.utilization", SOURCE_NVML},
    {"pair.N.N.read", SOURCE_NVML},
    {"driver.cuda", SOURCE_DRIVER},
    {"driver.devices", SOURCE_DRIVER},
    {"driver.init", SOURCE_DRIVER},
    {"driver.libcuda", SOURCE_DRIVER},
    {"driver.library", SOURCE_DRIVER},
    {"env.options", SOURCE_DRIVER},
    {"gpu.N.cuda_number", SOURCE_DRIVER},
    {"pair.N.N.cuda", SOURCE_DRIVER},
    {"pair.N.N.code", SOURCE_TESTS},
    {"pair.N.N.verdict", SOURCE_TESTS},
};

void doctor_gap_pattern(const char *key, char out[DOCTOR_KEY_BYTES])
{
    size_t used = 0;
    for (size_t i = 0; key[i] && used + 1 < DOCTOR_KEY_BYTES; i++) {
        bool first = i > 0 && key[i - 1] == '.' && isdigit((unsigned char)key[i]);
        size_t digits = strspn(key + i, "0123456789");
        if (first && key[i + digits] == '.') {
            out[used++] = 'N';
            i += digits - 1;
        } else {
            out[used++] = key[i];
        }
    }
    out[used] = 0;
}

static source doctor_gap_source_of(const char *key)
{
    char pattern[DOCTOR_KEY_BYTES];
    doctor_gap_pattern(key, pattern);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        if (strcmp(pattern, sources[i].pattern) == 0) {
            return sources[i].from;
        }
    }
    return SOURCE_SYSTEM;
}

static const char *doctor_gap_value_of(const doctor_snapshot *s, const char *key)
{
    const doctor_fact *f = doctor_find(s, key);
    return f ? f->value : NULL;
}

/* NULL: the snapshot contains no reason for it. */
static const char *doctor_gap_reason_of(const doctor_snapshot *s, const char *key)
{
    const doctor_fact *f = doctor_find(s, key);
    return f ? f->reason : NULL;
}

static bool doctor_gap_is_other(const char *value, const char *than)
{
    return value && strcmp(value, than) != 0;
}

/* Returns NVML's report on the device in the key; NULL: no report, or no device in the key. */
static const char *doctor_gap_device_state(const doctor_snapshot *s, const char *key)
{
    char of[DOCTOR_KEY_BYTES];
    int i = -1;
    if (sscanf(key, "gpu.%d.", &i) != 1 || i < 0) {
        return NULL;
    }
    snprintf(of, sizeof(of), "gpu.%d.nvml", i);
    return doctor_gap_value_of(s, of);
}

static void doctor_gap_explain_nvml(const doctor_snapshot *s, const char *key, char out[DOCTOR_REASON_BYTES])
{
    const char *end = doctor_gap_value_of(s, "nvml.end"), *state = doctor_gap_value_of(s, "nvml.state"),
               *why = doctor_gap_reason_of(s, "nvml.state");
    const char *device = doctor_gap_device_state(s, key), *provider = doctor_gap_value_of(s, "driver.provider");
    if (provider && strcmp(provider, "host") == 0) {
        snprintf(out, DOCTOR_REASON_BYTES, "host devices have no such fact");
    } else if (doctor_gap_is_other(end, "ordinary")) {
        snprintf(out, DOCTOR_REASON_BYTES, "NVML: %.200s", end);
    } else if (why) {
        snprintf(out, DOCTOR_REASON_BYTES,
                 "NVML: %.120s (the driver's package contains it; give a container the driver capability \"utility\")",
                 why);
    } else if (doctor_gap_is_other(state, "ok")) {
        snprintf(out, DOCTOR_REASON_BYTES, "NVML: %.200s", state);
    } else if (doctor_gap_is_other(device, "ok")) {
        snprintf(out, DOCTOR_REASON_BYTES, "NVML reports nothing about this device: %.150s", device);
    } else {
        snprintf(out, DOCTOR_REASON_BYTES, "not in the snapshot; NVML provides it");
    }
}

static void doctor_gap_explain_driver(const doctor_snapshot *s, char out[DOCTOR_REASON_BYTES])
{
    const char *end = doctor_gap_value_of(s, "driver.end"), *init = doctor_gap_value_of(s, "driver.init"),
               *why = doctor_gap_reason_of(s, "driver.init");
    if (doctor_gap_is_other(end, "ordinary")) {
        snprintf(out, DOCTOR_REASON_BYTES, "CUDA: %.200s", end);
    } else if (why) {
        snprintf(out, DOCTOR_REASON_BYTES, "CUDA: %.200s", why);
    } else if (doctor_gap_is_other(init, "0 (ok)")) {
        snprintf(out, DOCTOR_REASON_BYTES, "CUDA does not start: %.150s", init);
    } else {
        snprintf(out, DOCTOR_REASON_BYTES, "not in the snapshot; the driver provides it");
    }
}

/* Returns the reason why the bus does not list the device or the pair; NULL: it lists them. */
static const char *doctor_gap_bus_reason(const doctor_snapshot *s, const char *key)
{
    int of[2] = {-1, -1};
    char config[DOCTOR_KEY_BYTES];
    if (sscanf(key, "gpu.%d.", &of[0]) != 1 && sscanf(key, "pair.%d.%d.", &of[0], &of[1]) != 2) {
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        snprintf(config, sizeof(config), "gpu.%d.config", of[i]);
        const char *reason = of[i] >= 0 ? doctor_gap_reason_of(s, config) : NULL;
        if (reason && strcmp(reason, DOCTOR_NOT_ON_BUS) == 0) {
            return reason;
        }
    }
    return doctor_gap_reason_of(s, "system.bus");
}

static void doctor_gap_explain_system(const doctor_snapshot *s, const char *key, char out[DOCTOR_REASON_BYTES])
{
    const char *provider = doctor_gap_value_of(s, "driver.provider"), *bus = doctor_gap_bus_reason(s, key);
    bool of_device = strncmp(key, "gpu.", 4) == 0 || strncmp(key, "pair.", 5) == 0;
    if (of_device && provider && strcmp(provider, "host") == 0) {
        snprintf(out, DOCTOR_REASON_BYTES, "host devices have no such fact");
    } else if (bus) {
        snprintf(out, DOCTOR_REASON_BYTES, "%.250s", bus);
    } else {
        snprintf(out, DOCTOR_REASON_BYTES, "not in the snapshot; the system provides it");
    }
}

bool doctor_gap_reason(const doctor_snapshot *s, const char *key, char out[DOCTOR_REASON_BYTES])
{
    const char *reason = doctor_gap_reason_of(s, key);
    if (reason && strcmp(key, "nvml.state") != 0 && strcmp(key, "driver.init") != 0) {
        snprintf(out, DOCTOR_REASON_BYTES, "%.250s", reason);
        return strcmp(reason, DOCTOR_ROOT) == 0;
    }
    switch (doctor_gap_source_of(key)) {
    case SOURCE_NVML:
        doctor_gap_explain_nvml(s, key, out);
        break;
    case SOURCE_DRIVER:
        doctor_gap_explain_driver(s, out);
        break;
    case SOURCE_TESTS:
        snprintf(out, DOCTOR_REASON_BYTES, "no test has moved bytes; run heddle p2p --verdicts");
        break;
    default:
        doctor_gap_explain_system(s, key, out);
        break;
    }
    return false;
}
