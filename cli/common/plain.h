/* plain.h - plain driver calls, used as efficiently as possible; benchmarks compare Heddle with
 * these calls.
 *
 * To use them efficiently means:
 *   - the context is made current once per thread
 *   - each device has a non-blocking stream
 *   - modules are loaded up front
 *   - events have no timing
 *   - argument arrays are made once, outside the loop
 *
 * No call goes through a Heddle runtime. The entry points of PLAIN_ENTRY_MAP come from
 * hd_driver_entry, and others come from the provider's table (hdi_driver). All of them are exactly
 * the functions that Heddle's engines call.
 *
 * Threads: a plain_driver does not change after it was opened; a plain_device belongs to one thread
 * at a time.
 * Locks: none.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 */
#ifndef CLI_COMMON_PLAIN_H
#define CLI_COMMON_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "driver/driver.h"

enum { PLAIN_ERROR = 512 };

/* X(name, parameters) */
#define PLAIN_ENTRY_MAP(X)                                                                                             \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuGetErrorName, (hdcu_result error, const char **name))                                                          \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (hdcu_device * device, int ordinal))                                                                \
    X(cuDeviceGetUuid, (hdcu_uuid * uuid, hdcu_device device))                                                         \
    X(cuDevicePrimaryCtxRetain, (hdcu_context * context, hdcu_device device))                                          \
    X(cuDevicePrimaryCtxRelease, (hdcu_device device))                                                                 \
    X(cuCtxSetCurrent, (hdcu_context context))                                                                         \
    X(cuMemAlloc, (hdcu_deviceptr * pointer, size_t bytes))                                                            \
    X(cuMemFree, (hdcu_deviceptr pointer))                                                                             \
    X(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))                                                  \
    X(cuMemFreeHost, (void *pointer))                                                                                  \
    X(cuMemcpyHtoD, (hdcu_deviceptr dst, const void *src, size_t bytes))                                               \
    X(cuMemcpyDtoH, (void *dst, hdcu_deviceptr src, size_t bytes))                                                     \
    X(cuMemsetD32Async, (hdcu_deviceptr dst, unsigned value, size_t count, hdcu_stream stream))                        \
    X(cuStreamCreate, (hdcu_stream * stream, unsigned flags))                                                          \
    X(cuStreamDestroy, (hdcu_stream stream))                                                                           \
    X(cuStreamSynchronize, (hdcu_stream stream))                                                                       \
    X(cuEventCreate, (hdcu_event * event, unsigned flags))                                                             \
    X(cuEventDestroy, (hdcu_event event))                                                                              \
    X(cuEventRecord, (hdcu_event event, hdcu_stream stream))                                                           \
    X(cuEventSynchronize, (hdcu_event event))                                                                          \
    X(cuModuleLoadDataEx, (hdcu_module * module, const void *image, unsigned count, int *options, void **values))      \
    X(cuModuleUnload, (hdcu_module module))                                                                            \
    X(cuModuleGetFunction, (hdcu_function * function, hdcu_module module, const char *name))                           \
    X(cuLaunchKernel,                                                                                                  \
      (hdcu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,  \
       unsigned block_z, unsigned shared_bytes, hdcu_stream stream, void **parameters, void **extra))

typedef struct plain_driver {
    char provider[16]; /* "nvidia" or "host" */
#define PLAIN_MEMBER(name, parameters) hdcu_result(*name) parameters;
    PLAIN_ENTRY_MAP(PLAIN_MEMBER)
#undef PLAIN_MEMBER
} plain_driver;

/* Call this function at the start of a benchmark, before the driver starts. It gives plain calls
 * and Heddle the same number of hardware queues: the most that the driver allows
 * (driver/driver.h). */
void cli_plain_begin(void);

/* Finds the entry points of a provider and calls cuInit. */
bool cli_plain_open(const char *provider, plain_driver *out, char *error);

/* Returns true if the result is success. Otherwise returns false, and puts "ENTRY: CODE_NAME
 * (NUMBER)" into `error`. */
bool cli_plain_check(const plain_driver *d, hdcu_result result, const char *entry, char *error);
#define PLAIN_TRY(d, error, entry, arguments) cli_plain_check(d, (d)->entry arguments, #entry, error)

/* Works like cli_plain_check, for a call through the provider's own table. */
bool cli_plain_try(hdcu_result result, const char *entry, char *error);
#define DRIVER_TRY(d, error, entry, arguments) cli_plain_try((d)->entry arguments, #entry, error)

/* Returns the provider's table in this process, after cuInit. `settings`: the runtime's settings.
 * This process needs them if Heddle's engines run in other processes. */
bool cli_plain_provider(bool on_host, const char *settings, const hdi_driver **out, char *error);

/* Finds the driver's number of the device with this UUID. */
bool cli_plain_find_device(const hdi_driver *d, const uint8_t uuid[16], hdcu_device *out, char *error);

/* Works like cli_plain_find_device, with the plain table. */
bool cli_plain_find_ordinal(const plain_driver *d, const uint8_t uuid[16], hdcu_device *out, char *error);

/* Finds the number of the only device to open: `asked`, or for -1 the first device that
 * HEDDLE_DEVICES allows. */
int cli_plain_device_number(int asked);

/* An image of Heddle's built-in kernels, as a kernel file for Heddle and in the provider's form for
 * cuModuleLoadDataEx. Both forms exist as long as the process. */
typedef struct plain_image {
    const void *file; /* for hd_module_load */
    size_t file_bytes;
    const void *driver; /* for cuModuleLoadDataEx */
    size_t driver_bytes;
} plain_image;

bool cli_plain_builtin(const char *provider, plain_image *out, char *error);

/* Makes both forms of a kernel file that stays in memory. Messages call the file `what`. */
bool cli_plain_kernels(const char *provider, const void *file, size_t bytes, const char *what, plain_image *out,
                       char *error);

/* One device, ready to run the matrix product c[m x n] = a[m x k] b[k x n] and a fill of one
 * word. */
typedef struct plain_device {
    hdcu_device ordinal;
    hdcu_context context;
    hdcu_stream stream;
    hdcu_event event[2];
    hdcu_module module;
    hdcu_function matmul, fill;
    hdcu_deviceptr a, b, c, word;
    uint32_t m, n, k;
    uint64_t fill_count;
    uint32_t fill_value;
    void *matmul_parameters[6], *fill_parameters[3];
} plain_device;

/* Finds the device by its UUID and prepares it: copies a and b there and uses the device's primary
 * context. Do not move the structure afterwards. On failure, the function releases everything. */
bool cli_plain_device_open(const plain_driver *d, const uint8_t uuid[16], const plain_image *image, uint32_t m,
                           uint32_t n, uint32_t k, const float *a, const float *b, plain_device *out, char *error);
/* a zeroed structure is ignored */
void cli_plain_device_close(const plain_driver *d, plain_device *p);

static inline hdcu_result cli_plain_launch_matmul(const plain_driver *d, plain_device *p)
{
    return d->cuLaunchKernel(p->matmul, (p->n + 31) / 32, (p->m + 31) / 32, 1, 32, 32, 1, 0, p->stream,
                             p->matmul_parameters, NULL);
}

static inline hdcu_result cli_plain_launch_fill(const plain_driver *d, plain_device *p)
{
    return d->cuLaunchKernel(p->fill, 1, 1, 1, 32, 1, 1, 0, p->stream, p->fill_parameters, NULL);
}

/* Overwrites c with the pattern 0xffffffff (a NaN), and waits. The device's context must be
 * current. */
bool cli_plain_poison(const plain_driver *d, plain_device *p, char *error);

/* Copies c to the host. The device's context must be current. */
bool cli_plain_result(const plain_driver *d, plain_device *p, float *c, char *error);

#endif
