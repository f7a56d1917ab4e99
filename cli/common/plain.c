/* plain.c - plain driver calls: opens the provider, prepares a device, makes an image of the
 * built-in kernels.
 *
 * Threads, Locks: see plain.h.
 * Always: after a failed cli_plain_device_open, the plain_device owns nothing. After a successful
 * call, it holds a reference to the primary context until cli_plain_device_close.
 */
#include "cli/common/plain.h"

#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/report.h"
#include "kernel/file.h"
#include "simulator/simulator.h"

/* The kernel file that the library embeds. */
extern const unsigned char hdi_image_builtin[], hdi_image_builtin_end[];

bool cli_plain_check(const plain_driver *d, hdcu_result result, const char *entry, char *error)
{
    if (result == HDCU_SUCCESS) {
        return true;
    }
    const char *name = NULL;
    if (!d->cuGetErrorName || d->cuGetErrorName(result, &name) != HDCU_SUCCESS || !name) {
        name = "an unknown code";
    }
    snprintf(error, PLAIN_ERROR, "%s: %s (%d)", entry, name, result);
    return false;
}

void cli_plain_begin(void)
{
    hdi_driver_ask_for_queues(HDI_QUEUES_MOST);
}

bool cli_plain_open(const char *provider, plain_driver *out, char *error)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->provider, sizeof(out->provider), "%s", provider);
#define PLAIN_FIND(name, parameters)                                                                                   \
    {                                                                                                                  \
        void (*entry)(void) = NULL;                                                                                    \
        if (hd_driver_entry(provider, #name, &entry) != HD_OK) {                                                       \
            snprintf(error, PLAIN_ERROR, "%s", hd_message());                                                          \
            return false;                                                                                              \
        }                                                                                                              \
        out->name = (hdcu_result(*) parameters)entry;                                                                  \
    }
    PLAIN_ENTRY_MAP(PLAIN_FIND)
#undef PLAIN_FIND
    return PLAIN_TRY(out, error, cuInit, (0));
}

bool cli_plain_try(hdcu_result result, const char *entry, char *error)
{
    if (result != HDCU_SUCCESS) {
        snprintf(error, PLAIN_ERROR, "%s: %s (%d)", entry, hdi_driver_code_name(result), result);
    }
    return result == HDCU_SUCCESS;
}

static bool cli_plain_find_provider(bool on_host, const char *settings, const hdi_driver **out, char *error)
{
    if (!on_host) {
        return cli_report_check(hdi_driver_nvidia(out), "driver", error);
    }
    hdi_options options;
    if (!cli_report_check(hdi_options_parse(settings, &options), "options", error)) {
        return false;
    }
    hd_status status = hdi_host_configure(&options);
    hdi_options_release(&options);
    return cli_report_check(status, "host devices", error) && cli_report_check(hdi_driver_host(out), "driver", error);
}

bool cli_plain_provider(bool on_host, const char *settings, const hdi_driver **out, char *error)
{
    return cli_plain_find_provider(on_host, settings, out, error) && DRIVER_TRY(*out, error, cuInit, (0));
}

bool cli_plain_find_device(const hdi_driver *d, const uint8_t uuid[16], hdcu_device *out, char *error)
{
    int count = 0;
    if (!DRIVER_TRY(d, error, cuDeviceGetCount, (&count))) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        hdcu_uuid found;
        if (!DRIVER_TRY(d, error, cuDeviceGet, (out, i)) || !DRIVER_TRY(d, error, cuDeviceGetUuid, (&found, *out))) {
            return false;
        }
        if (memcmp(found.bytes, uuid, 16) == 0) {
            return true;
        }
    }
    snprintf(error, PLAIN_ERROR, "the driver shows %d devices, none of them the one that Heddle opened", count);
    return false;
}

int cli_plain_device_number(int asked)
{
    const char *list = asked < 0 ? secure_getenv("HEDDLE_DEVICES") : NULL;
    char *end;
    long number = list ? strtol(list, &end, 10) : 0;
    return asked >= 0 ? asked : list && end != list && number > 0 && number < 1024 ? (int)number : 0;
}

bool cli_plain_kernels(const char *provider, const void *file, size_t bytes, const char *what, plain_image *out,
                       char *error)
{
    plain_image image = {.file = file, .file_bytes = bytes};
    hdi_kernel_file parts;
    if (hdi_kernel_file_parse(image.file, image.file_bytes, &parts) != HD_OK) {
        snprintf(error, PLAIN_ERROR, "%s: %.400s", what, hd_message());
        return false;
    }
    if (strcmp(provider, "host") == 0) {
        const hdi_kernel_cpu *cpu = hdi_kernel_file_native(&parts);
        image.driver = cpu ? cpu->image : NULL;
        image.driver_bytes = cpu ? cpu->bytes : 0;
    } else {
        image.driver = parts.ptx;
        image.driver_bytes = parts.ptx_bytes;
    }
    /* the code itself stays valid, since the kernel file stays in memory */
    hdi_kernel_file_release(&parts);
    if (!image.driver) {
        snprintf(error, PLAIN_ERROR, "%s have no code for the driver '%s'", what, provider);
        return false;
    }
    *out = image;
    return true;
}

bool cli_plain_builtin(const char *provider, plain_image *out, char *error)
{
    return cli_plain_kernels(provider, hdi_image_builtin, (size_t)(hdi_image_builtin_end - hdi_image_builtin),
                             "the built-in kernels", out, error);
}

bool cli_plain_find_ordinal(const plain_driver *d, const uint8_t uuid[16], hdcu_device *out, char *error)
{
    int count = 0;
    if (!PLAIN_TRY(d, error, cuDeviceGetCount, (&count))) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        hdcu_device device;
        hdcu_uuid found;
        if (!PLAIN_TRY(d, error, cuDeviceGet, (&device, i)) ||
            !PLAIN_TRY(d, error, cuDeviceGetUuid, (&found, device))) {
            return false;
        }
        if (memcmp(found.bytes, uuid, 16) == 0) {
            *out = device;
            return true;
        }
    }
    snprintf(error, PLAIN_ERROR, "the driver shows %d devices, none of them the one that Heddle opened", count);
    return false;
}

static void cli_plain_set_parameters(plain_device *p)
{
    p->matmul_parameters[0] = &p->c;
    p->matmul_parameters[1] = &p->a;
    p->matmul_parameters[2] = &p->b;
    p->matmul_parameters[3] = &p->m;
    p->matmul_parameters[4] = &p->n;
    p->matmul_parameters[5] = &p->k;
    p->fill_parameters[0] = &p->word;
    p->fill_parameters[1] = &p->fill_count;
    p->fill_parameters[2] = &p->fill_value;
}

static bool cli_plain_open_on_context(const plain_driver *d, const plain_image *image, const float *a, const float *b,
                                      plain_device *p, char *error)
{
    size_t a_bytes = sizeof(float) * p->m * p->k, b_bytes = sizeof(float) * p->k * p->n;
    return PLAIN_TRY(d, error, cuCtxSetCurrent, (p->context)) &&
           PLAIN_TRY(d, error, cuStreamCreate, (&p->stream, HDCU_STREAM_NON_BLOCKING)) &&
           PLAIN_TRY(d, error, cuEventCreate, (&p->event[0], HDCU_EVENT_DISABLE_TIMING)) &&
           PLAIN_TRY(d, error, cuEventCreate, (&p->event[1], HDCU_EVENT_DISABLE_TIMING)) &&
           PLAIN_TRY(d, error, cuModuleLoadDataEx, (&p->module, image->driver, 0, NULL, NULL)) &&
           PLAIN_TRY(d, error, cuModuleGetFunction, (&p->matmul, p->module, "hd_matmul_f32")) &&
           PLAIN_TRY(d, error, cuModuleGetFunction, (&p->fill, p->module, "hd_fill_u32")) &&
           PLAIN_TRY(d, error, cuMemAlloc, (&p->a, a_bytes)) && PLAIN_TRY(d, error, cuMemAlloc, (&p->b, b_bytes)) &&
           PLAIN_TRY(d, error, cuMemAlloc, (&p->c, sizeof(float) * p->m * p->n)) &&
           PLAIN_TRY(d, error, cuMemAlloc, (&p->word, 256)) && PLAIN_TRY(d, error, cuMemcpyHtoD, (p->a, a, a_bytes)) &&
           PLAIN_TRY(d, error, cuMemcpyHtoD, (p->b, b, b_bytes)) &&
           /* a copy may return before its last bytes arrive */
           PLAIN_TRY(d, error, cuStreamSynchronize, (NULL));
}

bool cli_plain_device_open(const plain_driver *d, const uint8_t uuid[16], const plain_image *image, uint32_t m,
                           uint32_t n, uint32_t k, const float *a, const float *b, plain_device *out, char *error)
{
    memset(out, 0, sizeof(*out));
    out->m = m, out->n = n, out->k = k, out->fill_count = 1, out->fill_value = 1;
    cli_plain_set_parameters(out);
    if (!cli_plain_find_ordinal(d, uuid, &out->ordinal, error) ||
        !PLAIN_TRY(d, error, cuDevicePrimaryCtxRetain, (&out->context, out->ordinal))) {
        out->context = NULL;
        return false;
    }
    if (!cli_plain_open_on_context(d, image, a, b, out, error)) {
        cli_plain_device_close(d, out);
        return false;
    }
    return true;
}

void cli_plain_device_close(const plain_driver *d, plain_device *p)
{
    if (!p->context) {
        return;
    }
    d->cuCtxSetCurrent(p->context);
    if (p->stream) {
        d->cuStreamSynchronize(p->stream);
        d->cuStreamDestroy(p->stream);
    }
    for (int i = 0; i < 2; i++) {
        if (p->event[i]) {
            d->cuEventDestroy(p->event[i]);
        }
    }
    hdcu_deviceptr memory[4] = {p->a, p->b, p->c, p->word};
    for (int i = 0; i < 4; i++) {
        if (memory[i]) {
            d->cuMemFree(memory[i]);
        }
    }
    if (p->module) {
        d->cuModuleUnload(p->module);
    }
    d->cuCtxSetCurrent(NULL);
    d->cuDevicePrimaryCtxRelease(p->ordinal);
    memset(p, 0, sizeof(*p));
}

bool cli_plain_poison(const plain_driver *d, plain_device *p, char *error)
{
    return PLAIN_TRY(d, error, cuMemsetD32Async, (p->c, 0xffffffffu, (size_t)p->m * p->n, p->stream)) &&
           PLAIN_TRY(d, error, cuStreamSynchronize, (p->stream));
}

bool cli_plain_result(const plain_driver *d, plain_device *p, float *c, char *error)
{
    return PLAIN_TRY(d, error, cuMemcpyDtoH, (c, p->c, sizeof(float) * p->m * p->n));
}
