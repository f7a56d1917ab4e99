/* test_nvml.c - facts from an NVML that the test plays: values, missing entries, failures, a lost
 * device, and nonsense.
 *
 * Promise: Reports of NVML become facts; an entry that is missing or fails costs only its own.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdbool.h>
#include "cli/doctor/findings.h"
#include "cli/doctor/nvml.h"

enum { DEVICES = 3 };

static struct {
    int init, handle[DEVICES];
    unsigned mig[DEVICES];
    unsigned long long reasons[DEVICES];
    int p2p;
    bool endless; /* texts without a terminating zero */
} plan;

static const char *const buses[DEVICES] = {"00000000:1B:00.0", "00000000:1C:00.0", "00000000:9C:00.0"};
static struct nvml_device_ {
    int number;
} devices[DEVICES] = {{0}, {1}, {2}};

static int init(void)
{
    return plan.init;
}

static int end(void)
{
    return NVML_OK;
}

static int get_count(unsigned *out)
{
    *out = DEVICES;
    return NVML_OK;
}

static int get_handle(unsigned i, nvml_device *out)
{
    *out = &devices[i];
    return plan.handle[i];
}

static int get_pci(nvml_device d, nvml_pci *out)
{
    snprintf(out->bus_id, sizeof out->bus_id, "%s", buses[d->number]);
    if (plan.endless) {
        memset(out, 'f', sizeof *out);
    }
    return NVML_OK;
}

static int get_version(char *out, unsigned bytes)
{
    if (plan.endless) {
        memset(out, '7', bytes);
        return NVML_OK;
    }
    snprintf(out, bytes, "12.570.124.06");
    return NVML_OK;
}

static int get_driver(char *out, unsigned bytes)
{
    if (plan.endless) {
        memset(out, '7', bytes);
        return NVML_OK;
    }
    snprintf(out, bytes, "570.124.06");
    return NVML_OK;
}

static int get_name(nvml_device d, char *out, unsigned bytes)
{
    (void)d;
    memset(out, plan.endless ? 27 : 0, bytes);
    return NVML_OK;
}

static int get_memory(nvml_device d, nvml_amounts *out)
{
    *out = (nvml_amounts){(unsigned long long)(d->number + 1) << 30, 0, 0};
    return NVML_OK;
}

static int get_mig(nvml_device d, unsigned *now, unsigned *next)
{
    *now = plan.mig[d->number];
    *next = 1;
    return NVML_OK;
}

static int get_reasons(nvml_device d, unsigned long long *out)
{
    *out = plan.reasons[d->number];
    return NVML_OK;
}

static int get_compute(nvml_device d, unsigned *count, void *out)
{
    (void)out;
    *count = (unsigned)d->number;
    return d->number ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

static int refuse(nvml_device d, unsigned *count, void *out)
{
    (void)d, (void)count, (void)out;
    return 3;
}

/* Device 0 has two links to device 1, and one to a switch; one is down. */
static int get_link(nvml_device d, unsigned link, int *up)
{
    *up = link < 3;
    return d->number == 0 && link < 4 ? NVML_OK : 3;
}

static int get_remote(nvml_device d, unsigned link, nvml_pci *out)
{
    (void)d;
    snprintf(out->bus_id, sizeof out->bus_id, "%s", link < 2 ? buses[1] : "00000000:C0:00.0");
    return NVML_OK;
}

static int get_p2p(nvml_device a, nvml_device b, int capability, int *out)
{
    (void)a, (void)b;
    *out = capability == 0 ? plan.p2p : 0;
    return NVML_OK;
}

static nvml library(void)
{
    return (nvml){.nvmlInit_v2 = init,
                  .nvmlShutdown = end,
                  .nvmlDeviceGetCount_v2 = get_count,
                  .nvmlDeviceGetHandleByIndex_v2 = get_handle,
                  .nvmlDeviceGetPciInfo_v3 = get_pci,
                  .nvmlSystemGetNVMLVersion = get_version,
                  .nvmlSystemGetDriverVersion = get_driver,
                  .nvmlDeviceGetName = get_name,
                  .nvmlDeviceGetMemoryInfo = get_memory,
                  .nvmlDeviceGetMigMode = get_mig,
                  .nvmlDeviceGetCurrentClocksThrottleReasons = get_reasons,
                  .nvmlDeviceGetComputeRunningProcesses_v3 = get_compute,
                  .nvmlDeviceGetGraphicsRunningProcesses_v3 = refuse,
                  .nvmlDeviceGetNvLinkState = get_link,
                  .nvmlDeviceGetNvLinkRemotePciInfo_v2 = get_remote,
                  .nvmlDeviceGetP2PStatus = get_p2p};
}

static void expect(const doctor_snapshot *s, const char *key, const char *value)
{
    const doctor_fact *f = doctor_find(s, key);
    if (!f || !f->value || strcmp(f->value, value) != 0) {
        fail_msg("%s is %s, not %s", key, f && f->value ? f->value : "missing", value);
    }
}

static void expect_reason(const doctor_snapshot *s, const char *key, const char *reason)
{
    const doctor_fact *f = doctor_find(s, key);
    if (!f || !f->reason || strcmp(f->reason, reason) != 0) {
        fail_msg("%s: the reason is %s, not %s", key, f && f->reason ? f->reason : "missing", reason);
    }
}

static bool finds(const doctor_snapshot *s, const char *id)
{
    doctor_findings f;
    bool found = false;
    doctor_judge(s, &f);
    for (int i = 0; i < f.n; i++) {
        found |= strcmp(f.list[i].rule->id, id) == 0;
    }
    doctor_findings_release(&f);
    return found;
}

static void reads_values(void **unused)
{
    (void)unused;
    doctor_buses known = {.id = {"0000:1b:00.0"}, .n = 1};
    doctor_snapshot s = {0};
    nvml n = library();
    memset(&plan, 0, sizeof plan);
    plan.mig[1] = 1;
    plan.reasons[2] = 0x80;
    plan.p2p = 4;
    doctor_nvml_read(&n, &known, &s);
    expect(&s, "nvml.state", "ok");
    expect(&s, "gpus", "3");
    expect(&s, "driver.nvml", "570.124.06");
    expect(&s, "driver.module", "570.124.06");
    expect(&s, "gpu.2.bus", "0000:9c:00.0");
    expect(&s, "gpu.2.memory_mib", "3072");
    expect(&s, "gpu.0.mig", "no");
    expect(&s, "gpu.0.mig_pending", "yes");
    expect(&s, "gpu.1.mig", "yes");
    expect(&s, "gpu.0.compute_processes", "0");
    expect(&s, "gpu.2.compute_processes", "2");
    expect(&s, "gpu.0.nvlinks", "3");
    expect(&s, "gpu.0.nvlinks_switch", "1");
    expect(&s, "gpu.0.nvlinks_all", "4");
    expect(&s, "pair.0.1.nvlinks", "2");
    expect(&s, "pair.1.0.read", "disabled by registry key");
    expect(&s, "pair.1.0.write", "ok");
    expect_reason(&s, "gpu.0.graphics_processes", DOCTOR_UNSUPPORTED);
    expect_reason(&s, "gpu.0.power_limit_mw", "this version of NVML has no such call");
    expect_reason(&s, "gpu.1.nvlinks", DOCTOR_UNSUPPORTED);
    assert_true(finds(&s, "mig") && finds(&s, "mig-pending") && finds(&s, "clocks-brake"));
    assert_true(finds(&s, "refused-registry") && finds(&s, "shared"));
    doctor_release(&s);
}

static void a_lost_device_is_found(void **unused)
{
    (void)unused;
    doctor_buses known = {.id = {"0000:1b:00.0", "0000:1c:00.0", "0000:9c:00.0"}, .n = 3};
    doctor_snapshot s = {0};
    nvml n = library();
    memset(&plan, 0, sizeof plan);
    plan.handle[1] = NVML_GPU_LOST;
    doctor_nvml_read(&n, &known, &s);
    expect(&s, "gpu.0.nvml", "ok");
    expect(&s, "gpu.1.nvml", "the device is lost");
    assert_null(doctor_find(&s, "gpu.1.mig"));
    assert_null(doctor_find(&s, "pair.0.1.read"));
    expect(&s, "pair.0.2.read", "ok");
    assert_true(finds(&s, "gpu-lost"));
    doctor_release(&s);
}

static void a_device_that_is_not_opened_is_found(void **unused)
{
    (void)unused;
    /* if two devices fail to open, the codes belong to no known device */
    for (int others = 0; others <= 1; others++) {
        doctor_buses known = {.id = {"0000:1b:00.0", "0000:1c:00.0", "0000:9c:00.0"}, .n = 3};
        doctor_snapshot s = {0};
        nvml n = library();
        memset(&plan, 0, sizeof plan);
        plan.handle[1] = 999;
        plan.handle[2] = others ? NVML_GPU_LOST : NVML_OK;
        doctor_nvml_read(&n, &known, &s);
        expect(&s, "gpu.0.nvml", "ok");
        expect(&s, "gpu.1.nvml", others ? "absent" : "NVML's error 999");
        assert_true(finds(&s, "gpu-unusable") == !others);
        assert_false(finds(&s, "gpu-lost"));
        doctor_release(&s);
    }
}

/* Without a list of the bus, nothing else names a device that cannot be opened. A device that
 * belongs to others is no defect. */
static void an_unnamed_device_is_found(void **unused)
{
    (void)unused;
    static const struct {
        int code;
        const char *state;
    } cases[] = {{NVML_GPU_LOST, "the device is lost"}, {NVML_NO_PERMISSION, NULL}};
    for (size_t i = 0; i < 2; i++) {
        doctor_buses known = {.n = 0};
        doctor_snapshot s = {0};
        nvml n = library();
        memset(&plan, 0, sizeof plan);
        plan.handle[1] = cases[i].code;
        doctor_nvml_read(&n, &known, &s);
        expect(&s, "gpus", "2");
        if (cases[i].state) {
            expect(&s, "nvml.unlisted", "1");
            expect(&s, "nvml.unlisted_state", cases[i].state);
        } else {
            assert_null(doctor_find(&s, "nvml.unlisted"));
        }
        assert_true(finds(&s, "gpu-unlisted") == !!cases[i].state);
        doctor_release(&s);
    }
}

/* As if a batch system gave a job some of the devices. */
static void what_belongs_to_others_is_no_defect(void **unused)
{
    (void)unused;
    doctor_buses known = {.id = {"0000:1b:00.0", "0000:1c:00.0", "0000:9c:00.0"}, .n = 3};
    doctor_snapshot s = {0};
    nvml n = library();
    memset(&plan, 0, sizeof plan);
    plan.handle[1] = plan.handle[2] = NVML_NO_PERMISSION;
    doctor_put(&s, "nvidia", "gpu.1.kernel_driver");
    doctor_put(&s, "nvidia", "gpu.2.kernel_driver");
    doctor_nvml_read(&n, &known, &s);
    expect(&s, "gpu.1.nvml", DOCTOR_NOT_ALLOWED);
    assert_false(finds(&s, "gpu-unusable") || finds(&s, "gpu-absent") || finds(&s, "gpu-unlisted"));
    doctor_release(&s);
}

static void a_library_of_another_version_is_found(void **unused)
{
    (void)unused;
    doctor_buses known = {.n = 0};
    doctor_snapshot s = {0};
    nvml n = library();
    memset(&plan, 0, sizeof plan);
    plan.init = NVML_VERSION_MISMATCH;
    doctor_nvml_read(&n, &known, &s);
    expect(&s, "nvml.state", "version mismatch of library and kernel module");
    expect(&s, "gpus", "0");
    assert_true(finds(&s, "version-skew"));
    doctor_release(&s);
}

/* Invalid texts and impossible numbers become facts and nothing more. */
static void nonsense_is_survived(void **unused)
{
    (void)unused;
    doctor_buses known = {.n = 0};
    doctor_snapshot s = {0};
    nvml n = library();
    memset(&plan, 0, sizeof plan);
    plan.endless = true;
    plan.p2p = -4;
    plan.mig[0] = 4000000000u;
    plan.reasons[0] = ~0ull;
    doctor_nvml_read(&n, &known, &s);
    expect(&s, "gpus", "1"); /* all use one bus id */
    assert_int_equal(strlen(doctor_find(&s, "driver.module")->value), NVML_TEXT - 1);
    assert_int_equal(doctor_find(&s, "gpu.0.name")->value[0], '?');
    finds(&s, "mig");
    doctor_release(&s);
}

static void only_five_entries_are_needed(void **unused)
{
    (void)unused;
    doctor_buses known = {.n = 0};
    doctor_snapshot s = {0};
    nvml full = library(), n = {.nvmlInit_v2 = full.nvmlInit_v2,
                                .nvmlShutdown = full.nvmlShutdown,
                                .nvmlDeviceGetCount_v2 = full.nvmlDeviceGetCount_v2,
                                .nvmlDeviceGetHandleByIndex_v2 = full.nvmlDeviceGetHandleByIndex_v2,
                                .nvmlDeviceGetPciInfo_v3 = full.nvmlDeviceGetPciInfo_v3};
    memset(&plan, 0, sizeof plan);
    doctor_nvml_read(&n, &known, &s);
    expect(&s, "gpus", "3");
    expect(&s, "gpu.1.bus", "0000:1c:00.0");
    doctor_findings f;
    doctor_judge(&s, &f);
    assert_int_equal(f.n, 0);
    doctor_findings_release(&f);
    doctor_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values),
        cmocka_unit_test(a_lost_device_is_found),
        cmocka_unit_test(a_device_that_is_not_opened_is_found),
        cmocka_unit_test(an_unnamed_device_is_found),
        cmocka_unit_test(what_belongs_to_others_is_no_defect),
        cmocka_unit_test(a_library_of_another_version_is_found),
        cmocka_unit_test(nonsense_is_survived),
        cmocka_unit_test(only_five_entries_are_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
