/* collect.c - reads the sources of facts in order, because later sources complete earlier ones.
 *
 * Threads: one. Locks: none. Blocking: see collect.h.
 */
#include "cli/doctor/collect.h"

#include <string.h>
#include "cli/doctor/driver.h"
#include "cli/doctor/nvml.h"

static void doctor_collect_read_nvml(void *context, doctor_snapshot *s)
{
    nvml n;
    char reason[NVML_TEXT];
    if (doctor_nvml_open(&n, reason)) {
        doctor_put(s, "opens", "nvml.library");
        doctor_nvml_read(&n, context, s);
    } else {
        doctor_put(s, "cannot be used", "nvml.library");
        doctor_miss(s, reason, "nvml.state");
    }
}

static void doctor_collect_read_driver(void *context, doctor_snapshot *s)
{
    doctor_driver_read(context, s);
}

/* Takes over the devices that a child process added. */
static void doctor_collect_take_devices(doctor_buses *buses, const doctor_snapshot *s)
{
    for (;;) {
        char key[DOCTOR_KEY_BYTES];
        snprintf(key, sizeof(key), "gpu.%d.bus", buses->n);
        const doctor_fact *f = doctor_find(s, key);
        if (!f || !f->value || doctor_bus_number(buses, f->value) != buses->n - 1) {
            return;
        }
    }
}

/* Notes why facts of the bus are missing for devices that only NVML or CUDA lists. Host devices are
 * on no bus, and get no such note. */
static void doctor_collect_miss_bus(const doctor_snapshot *more, int first, int n, doctor_snapshot *s)
{
    const doctor_fact *provider = doctor_find(more, "driver.provider");
    bool host = provider && provider->value && strcmp(provider->value, "host") == 0;
    for (int i = first; i < n && !host; i++) {
        doctor_miss(s, DOCTOR_NOT_ON_BUS, "gpu.%d.config", i);
    }
}

void doctor_collect(doctor_snapshot *s)
{
    static doctor_buses buses;
    doctor_snapshot more = {0};
    doctor_read_system("", s);
    doctor_read_bus("", &buses, s);
    int on_bus = buses.n;
    doctor_isolate("nvml", doctor_collect_read_nvml, &buses, DOCTOR_LIMIT_S, &more);
    doctor_collect_take_devices(&buses, &more);
    doctor_isolate("driver", doctor_collect_read_driver, &buses, DOCTOR_LIMIT_S, &more);
    doctor_collect_take_devices(&buses, &more);
    doctor_put_number(s, buses.n, "gpus");
    doctor_collect_miss_bus(&more, on_bus, buses.n, s);
    doctor_add_all(s, &more);
    doctor_release(&more);
}
