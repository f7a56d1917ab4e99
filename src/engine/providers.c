/* providers.c - finds the providers by name. hdi_providers_open_driver chooses a provider, wraps it
 * and starts it.
 *
 * Threads: any. Locks: none of its own. Blocking: loading a library, and cuInit.
 * Always: no other file of the library compares a provider's name (tools/check-layers).
 * `auto` probes providers without the wrapper of the options fault and delay. So their counts start
 * with cuInit of the chosen provider.
 */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "driver/driver.h"
#include "engine/providers.h"
#include "simulator/simulator.h"

static const hdi_provider *const all[] = {&hdi_provider_nvidia, &hdi_provider_host};

const hdi_provider *hdi_provider_named(const char *name)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}

/* Opens the provider `nvidia`, if it loads, starts and reports a device. On failure the message
 * names the step that failed. */
static hd_status provider_open_nvidia(const hdi_driver **out)
{
    const hdi_driver *d;
    hd_status status = hdi_driver_nvidia(&d);
    if (status != HD_OK) {
        return status;
    }
    int count = 0;
    hdcu_result r = d->cuInit(0);
    if (r != HDCU_SUCCESS) {
        return hdi_fail_driver(HD_ERROR_NO_DRIVER, r, "cuInit", -1, "driver=nvidia: the driver does not start: %s",
                               hdi_driver_code_name(r));
    }
    r = d->cuDeviceGetCount(&count);
    if (r != HDCU_SUCCESS) {
        return hdi_fail_driver(HD_ERROR_NO_DRIVER, r, "cuDeviceGetCount", -1,
                               "driver=nvidia: the driver does not list its devices: %s", hdi_driver_code_name(r));
    }
    if (count < 1) {
        return hdi_fail(HD_ERROR_NO_DRIVER, "driver=nvidia: the driver shows no device");
    }
    *out = d;
    return HD_OK;
}

static hd_status provider_open_host(const hdi_options *options, const hdi_driver **out)
{
    hd_status status = hdi_host_configure(options);
    return status == HD_OK ? hdi_driver_host(out) : status;
}

static hd_status provider_choose(const hdi_options *options, const hdi_driver **out)
{
    if (options->driver == HDI_DRIVER_HOST) {
        return provider_open_host(options, out);
    }
    if (options->driver == HDI_DRIVER_NVIDIA) {
        return hdi_driver_nvidia(out);
    }
    /* A missing GPU is no failure of hd_open. So it does not replace the thread's last failure,
     * unless the host provider fails, too. */
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = provider_open_nvidia(out);
    hdi_attempt_end(&attempt);
    if (status == HD_OK) {
        return HD_OK;
    }
    status = provider_open_host(options, out);
    if (status != HD_OK) {
        hd_error host;
        char line[sizeof host.message];
        hdi_error_get(&host);
        int room = (int)(sizeof line / 2 - 8);
        snprintf(line, sizeof line, "%.*s; before: %.*s", room, host.message, room, attempt.error.message);
        memcpy(host.message, line, sizeof line);
        return hdi_fail_error(&host);
    }
    return status;
}

static hd_status provider_open_and_start(const hdi_options *options, const hdi_driver **out)
{
    const hdi_driver *d = NULL;
    if (options->driver != HDI_DRIVER_HOST) {
        hdi_driver_ask_for_queues((int)options->hw_queues);
    }
    hd_status status = provider_choose(options, &d);
    if (status == HD_OK && (options->fault[0] != 0 || options->delay[0] != 0)) {
        status = hdi_faults_wrap(d, options, &d);
    }
    if (status != HD_OK) {
        return status;
    }
    hdcu_result r = d->cuInit(0);
    if (r != HDCU_SUCCESS) {
        status = hdi_fail_driver(HD_ERROR_NO_DRIVER, r, "cuInit", -1, "driver=%s: the driver does not start: %s",
                                 d->provider->name, hdi_driver_code_name(r));
        hdi_providers_close_driver(d);
        return status;
    }
    *out = d;
    return HD_OK;
}

hd_status hdi_providers_open_driver(const hdi_options *options, const hdi_driver **out)
{
    if (hdi_driver_was_forked()) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "driver=%s: the process that forked this one uses the driver, which does not survive fork; use "
                        "placement=process, or call exec in the child",
                        HDI_OPTION_TEXT(options, driver));
    }
    if (!hdi_driver_start_begin()) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "driver=%s: no host memory to register the handler of forks",
                        HDI_OPTION_TEXT(options, driver));
    }
    hd_status status = provider_open_and_start(options, out);
    if (status != HD_OK) {
        hdi_driver_start_undo();
    }
    return status;
}

void hdi_providers_close_driver(const hdi_driver *driver)
{
    if (driver && !hdi_driver_was_forked()) {
        hdi_faults_unwrap(driver);
    }
}
