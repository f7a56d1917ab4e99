/* fake_cupti_kernels.c - a library that looks like CUPTI, for tests: on request it reports planted
 * activities.
 *
 * FAKE_CUPTI in the environment is a list of words:
 *     refuses         another subscriber exists
 *     uninitialized   it does not start
 *     old             its version is old
 *     disabled        it cannot enable one kind of records
 *     ownclock        it accepts no clock of the program
 *     bad             some records are out of bounds, or report impossible times
 *
 * It plants two kernels, a copy from the host, a copy to device 1 and a fill on each of the devices
 * 0 to 3.
 *
 * Threads: any. Locks: none; calls of a session come one after another, except that another thread
 * delivers the buffers.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "../../src/driver/cupti_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define OWN_ZERO 1000000 /* on its own clock */

static hdcupti_requested requested;
static hdcupti_completed completed;
static hdcupti_clock clock_of_program;
static int attached, enabled;
static uint64_t ticks = OWN_ZERO;

static int has(const char *word)
{
    const char *words = getenv("FAKE_CUPTI");
    return words && strstr(words, word);
}

static uint64_t now(void)
{
    return clock_of_program ? clock_of_program() : ++ticks;
}

EXPORT hdcupti_result cuptiGetVersion(uint32_t *version)
{
    *version = has("old") ? 14 : 130001;
    return 0;
}

EXPORT hdcupti_result cuptiGetResultString(hdcupti_result result, const char **text)
{
    *text = result == HDCUPTI_ERROR_NOT_INITIALIZED ? "FAKE_NOT_INITIALIZED" : "FAKE_ERROR";
    return 0;
}

EXPORT hdcupti_result cuptiGetTimestamp(uint64_t *time)
{
    *time = now();
    return 0;
}

EXPORT hdcupti_result cuptiSubscribe(hdcupti_subscriber *out, hdcupti_called called, void *user)
{
    (void)called;
    (void)user;
    if (attached || has("refuses")) {
        return HDCUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    if (has("uninitialized")) {
        return HDCUPTI_ERROR_NOT_INITIALIZED;
    }
    attached = 1;
    *out = (hdcupti_subscriber)&attached;
    return 0;
}

EXPORT hdcupti_result cuptiUnsubscribe(hdcupti_subscriber subscriber)
{
    (void)subscriber;
    attached = 0;
    return 0;
}

EXPORT hdcupti_result cuptiFinalize(void)
{
    attached = enabled = 0;
    requested = NULL;
    completed = NULL;
    return 0;
}

EXPORT hdcupti_result cuptiEnableCallback(uint32_t enable, hdcupti_subscriber subscriber, int domain, uint32_t call)
{
    return enable == 1 && subscriber && domain == HDCUPTI_DOMAIN_DRIVER_API && call == HDCUPTI_CALL_DRIVER_GET_VERSION
               ? 0
               : 1;
}

EXPORT hdcupti_result cuptiActivityRegisterCallbacks(hdcupti_requested r, hdcupti_completed c)
{
    requested = r;
    completed = c;
    return 0;
}

EXPORT hdcupti_result cuptiActivityRegisterTimestampCallback(hdcupti_clock clock)
{
    if (has("ownclock")) {
        return 27;
    }
    clock_of_program = clock;
    return 0;
}

EXPORT hdcupti_result cuptiActivityEnable(uint32_t kind)
{
    if (has("disabled") && kind == HDCUPTI_KIND_MEMSET) {
        return HDCUPTI_ERROR_INVALID_KIND;
    }
    enabled++;
    return 0;
}

EXPORT hdcupti_result cuptiActivityDisable(uint32_t kind)
{
    (void)kind;
    enabled--;
    return 0;
}

EXPORT hdcupti_result cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    (void)milliseconds;
    return 0;
}

/* Writes a record behind the last one, with its size in front. */
static void add(uint8_t *buffer, size_t *at, const void *record, uint64_t bytes)
{
    memcpy(buffer + *at, &bytes, sizeof bytes);
    memcpy(buffer + *at + sizeof bytes, record, bytes);
    *at += sizeof bytes + bytes;
}

static void plant(uint8_t *buffer, size_t *at, uint32_t device, uint64_t time)
{
    static const char *const names[] = {"first_kernel",
                                        "second_kernel_of_a_name_that_is_too_long_for_a_single_record_of_text_"
                                        "and_goes_on_in_a_second_one"};
    for (int i = 0; i < 2; i++) {
        hdcupti_kernel k = {
            .kind = HDCUPTI_KIND_CONCURRENT_KERNEL, .start = time + 1, .end = time + 11, .device = device};
        k.stream = 7;
        k.correlation = 100 + (uint32_t)i;
        k.name = names[i];
        add(buffer, at, &k, sizeof k);
    }
    hdcupti_memcpy c = {.kind = HDCUPTI_KIND_MEMCPY, .copy_kind = HDCUPTI_COPY_HTOD, .bytes = 4096, .start = time + 2};
    c.end = time + 22;
    c.device = device;
    add(buffer, at, &c, sizeof c);
    hdcupti_memcpy_peer p = {
        .kind = HDCUPTI_KIND_MEMCPY2, .bytes = 512, .start = time + 3, .end = time + 33, .device = device};
    p.src_device = device;
    p.dst_device = 1;
    add(buffer, at, &p, sizeof p);
    hdcupti_memset f = {
        .kind = HDCUPTI_KIND_MEMSET, .bytes = 64, .start = time + 4, .end = time + 44, .device = device};
    add(buffer, at, &f, sizeof f);
}

/* Plants three bad records for each device, and an incomplete one. */
static void plant_bad(uint8_t *buffer, size_t *at, uint32_t device, uint64_t time)
{
    hdcupti_memset f = {.kind = HDCUPTI_KIND_MEMSET, .start = 0, .end = 44, .device = device};
    add(buffer, at, &f, sizeof f);
    f.start = time + 4;
    f.end = time + 3;
    add(buffer, at, &f, sizeof f);
    f.end = UINT64_MAX;
    add(buffer, at, &f, sizeof f);
}

EXPORT hdcupti_result cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, hdcupti_activity **record)
{
    uint8_t *at = buffer;
    if (*record) {
        uint64_t bytes;
        memcpy(&bytes, (uint8_t *)*record - sizeof bytes, sizeof bytes);
        at = (uint8_t *)*record + bytes;
    }
    if (at >= buffer + valid) {
        if (has("bad") && *record) {
            *record = (hdcupti_activity *)(buffer + valid + 64); /* out of bounds */
            return 0;
        }
        return HDCUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *record = (hdcupti_activity *)(at + sizeof(uint64_t));
    return 0;
}

EXPORT hdcupti_result cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = 0;
    return 0;
}

static void *give(void *unused)
{
    uint8_t *buffer = NULL;
    size_t bytes = 0, most = 0, at = 0;
    requested(&buffer, &bytes, &most);
    if (buffer && bytes >= 65536) {
        uint64_t time = now() - 100;
        for (uint32_t device = 0; device < 4; device++) {
            if (has("bad")) {
                plant_bad(buffer, &at, device, time);
            }
            plant(buffer, &at, device, time);
        }
        completed(NULL, 0, buffer, bytes, at);
    } else {
        free(buffer);
    }
    return unused;
}

/* Delivers all buffers on another thread, and returns after that. */
EXPORT hdcupti_result cuptiActivityFlushAll(uint32_t flag)
{
    pthread_t thread;
    if (flag != 0 || !completed || enabled != 4 || pthread_create(&thread, NULL, give, NULL)) {
        return 7;
    }
    pthread_join(thread, NULL);
    return 0;
}
