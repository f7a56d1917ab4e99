/* driver.c - asks the driver which devices reach each other, and reads the result files of pairs.
 *
 * Threads: one at a time. Locks: those of the driver.
 */
#include "cli/doctor/driver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/options.h"
#include "engine/providers.h"
#include "peer/peers.h"
#include "peer/test.h"
#include "process/spawn.h"

typedef struct one {
    hdcu_device device;
    hdcu_uuid uuid;
    char bus_id[64]; /* the device's bus id in the driver's form */
    int number;      /* the device's number in the snapshot; -1: too many devices */
} one;

typedef struct look {
    const hdi_driver *driver;
    hdi_options options;
    hdi_result_machine machine;
    char folder[PATH_MAX]; /* folder of the result files; "": none */
    one list[DOCTOR_GPUS_MAX];
    int n;
} look;

/* ---- results of earlier tests ---- */

static void doctor_driver_find_results(look *l)
{
    char program[PATH_MAX] = "";
    const hdi_provider *provider = l->driver->provider;
    if (hdi_program_find(HDI_PROBE_NAME, "probe", l->options.probe, "a test of peer access", program,
                         sizeof(program)) != HD_OK) {
        program[0] = 0;
    }
    hdi_result_machine_read(provider->version_file, l->driver->version, program, &l->machine);
    if (!l->machine.boot[0] || !hdi_results_folder(l->options.cache, l->folder, sizeof(l->folder))) {
        l->folder[0] = 0;
    }
}

static bool doctor_driver_load_result(const look *l, const one *d, const one *o, const char *placement,
                                      hd_peer_info *out)
{
    static hdi_result_key key;
    const hdi_provider *provider = l->driver->provider;
    const hdi_result_facts facts = {
        .boot = l->machine.boot,
        .kernel = l->machine.kernel,
        .driver = l->machine.driver,
        .program = l->machine.program,
        .provider = provider->name,
        .placement = placement,
        .faults = provider->is_host ? l->options.host_corrupt : "",
        .device_bus = d->bus_id,
        .owner_bus = o->bus_id,
        .device_uuid = (const uint8_t *)d->uuid.bytes,
        .owner_uuid = (const uint8_t *)o->uuid.bytes,
    };
    return hdi_result_key_make(&facts, &key) && hdi_result_load(l->folder, &key, out);
}

static void doctor_driver_read_result(const look *l, const one *d, const one *o, doctor_snapshot *s)
{
    static const char *const placements[] = {"thread", "process"};
    hd_peer_info info;
    int first = l->options.placement == HDI_PLACEMENT_PROCESS;
    if (!l->folder[0] || (!doctor_driver_load_result(l, d, o, placements[first], &info) &&
                          !doctor_driver_load_result(l, d, o, placements[!first], &info))) {
        return;
    }
    doctor_put(s, hd_peer_verdict_text(info.verdict), "pair.%d.%d.verdict", d->number, o->number);
    if (info.reason[0]) {
        hdi_peer_name_devices(&info, d->number, o->number);
        doctor_put(s, info.reason, "pair.%d.%d.reason", d->number, o->number);
    }
    doctor_put_number(s, info.driver_code, "pair.%d.%d.code", d->number, o->number);
    doctor_put_number(s, (long long)(info.direct_bytes_per_s / 1e6), "pair.%d.%d.direct_mb_per_s", d->number,
                      o->number);
    doctor_put_number(s, (long long)(info.staged_bytes_per_s / 1e6), "pair.%d.%d.staged_mb_per_s", d->number,
                      o->number);
}

/* ---- the driver ---- */

/* True if the list already contains a device with this number. Parts of one device (MIG) share a
 * bus id, and count as one device. */
static bool doctor_driver_is_listed(const look *l, int number)
{
    for (int i = 0; i < l->n; i++) {
        if (l->list[i].number == number) {
            return true;
        }
    }
    return false;
}

static void doctor_driver_read_devices(look *l, doctor_buses *buses, doctor_snapshot *s)
{
    const hdi_driver *d = l->driver;
    int count = 0;
    hdcu_result code = d->cuDeviceGetCount(&count);
    if (code != HDCU_SUCCESS) {
        char text[128];
        snprintf(text, sizeof(text), "cuDeviceGetCount fails with code %d (%s)", (int)code, hdi_driver_code_name(code));
        doctor_miss(s, text, "driver.devices");
        return;
    }
    doctor_put_number(s, count, "driver.devices");
    for (int i = 0; i < count && i < DOCTOR_GPUS_MAX; i++) {
        one *o = &l->list[l->n];
        char name[128] = "";
        if (d->cuDeviceGet(&o->device, i) != HDCU_SUCCESS ||
            d->cuDeviceGetPCIBusId(o->bus_id, sizeof(o->bus_id), o->device) != HDCU_SUCCESS ||
            d->cuDeviceGetUuid(&o->uuid, o->device) != HDCU_SUCCESS) {
            continue;
        }
        o->bus_id[sizeof(o->bus_id) - 1] = 0;
        o->number = doctor_bus_number(buses, o->bus_id);
        if (o->number < 0 || doctor_driver_is_listed(l, o->number)) {
            continue;
        }
        l->n++;
        doctor_put(s, buses->id[o->number], "gpu.%d.bus", o->number);
        doctor_put_number(s, i, "gpu.%d.cuda_number", o->number);
        if (d->cuDeviceGetName(name, sizeof(name), o->device) == HDCU_SUCCESS) {
            name[sizeof(name) - 1] = 0;
            doctor_put(s, name, "gpu.%d.name", o->number);
        }
    }
}

static void doctor_driver_read_pairs(look *l, doctor_snapshot *s)
{
    for (int a = 0; a < l->n; a++) {
        for (int b = 0; b < l->n; b++) {
            const one *d = &l->list[a], *o = &l->list[b];
            int can = 0;
            if (a != b && l->driver->cuDeviceCanAccessPeer(&can, d->device, o->device) == HDCU_SUCCESS) {
                doctor_put(s, can ? "yes" : "no", "pair.%d.%d.cuda", d->number, o->number);
                doctor_driver_read_result(l, d, o, s);
            }
        }
    }
}

static void doctor_driver_read_started(look *l, doctor_buses *buses, doctor_snapshot *s)
{
    char version[64];
    hdcu_result code = l->driver->cuInit(0);
    if (code != HDCU_SUCCESS) {
        char text[128];
        snprintf(text, sizeof(text), "%d (%s)", (int)code, hdi_driver_code_name(code));
        doctor_put(s, text, "driver.init");
        return;
    }
    doctor_put(s, "0 (ok)", "driver.init");
    doctor_put_number(s, l->driver->version, "driver.cuda");
    if (cli_system_read_library("", version, sizeof(version))) {
        doctor_put(s, version, "driver.libcuda");
    }
    doctor_driver_find_results(l);
    doctor_driver_read_devices(l, buses, s);
    doctor_driver_read_pairs(l, s);
}

/* Records the reason why the driver cannot be used: the library's message without its head and its
 * remedy. A path may contain the name of an owner, so only the last part of the path stays. */
static void doctor_driver_put_reason(doctor_snapshot *s)
{
    const char *message = hd_message(), *at = strstr(message, ": ");
    char text[DOCTOR_VALUE_BYTES];
    size_t used = 0;
    for (at = at ? at + 2 : message; *at && *at != ';' && used + 1 < sizeof(text); at++) {
        if (*at != '/') {
            text[used++] = *at;
            continue;
        }
        /* the folder may follow a blank, a parenthesis or a colon */
        while (used > 0 && !strchr(" (:", text[used - 1])) {
            used--;
        }
        for (size_t k = 0, end = strcspn(at, ":;)"); k < end; k++) {
            if (at[k] == '/') {
                at += k;
                end -= k;
                k = 0;
            }
        }
    }
    text[used] = 0;
    doctor_put(s, text, "driver.reason");
    doctor_miss(s, text, "driver.init");
}

void doctor_driver_read(doctor_buses *buses, doctor_snapshot *s)
{
    static look l;
    if (hdi_options_parse(NULL, &l.options) != HD_OK) {
        doctor_put(s, "wrong", "env.options");
        doctor_miss(s, "a variable HEDDLE_* has a wrong value (heddle info has the message)", "driver.init");
        doctor_put_number(s, buses->n, "gpus");
        return;
    }
    bool host = l.options.driver == HDI_DRIVER_HOST;
    doctor_put(s, "right", "env.options");
    hd_status status =
        host ? hdi_providers_open_driver(&l.options, &l.driver) : hdi_provider_named("nvidia")->open(&l.driver);
    doctor_put(s, host ? "host" : "nvidia", "driver.provider");
    if (status == HD_OK) {
        doctor_put(s, "opens", "driver.library");
        doctor_driver_read_started(&l, buses, s);
    } else {
        doctor_put(s, "cannot be opened", "driver.library");
        doctor_driver_put_reason(s);
    }
    doctor_put_number(s, buses->n, "gpus");
    hdi_options_release(&l.options);
}
