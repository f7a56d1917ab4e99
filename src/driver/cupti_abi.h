/* cupti_abi.h - types, numbers and entry points of CUPTI, declared here as far as the library uses
 * them.
 *
 * A build of Heddle needs no CUDA toolkit. If cupti.h is installed, tests/driver/cupti_check.c
 * compares it with this file at compile time. Since CUDA 11.2, new versions only added fields at
 * the ends of records. This file declares the beginnings, which all these versions share. Names:
 * CUPTI's names, with `hdcupti_` or `HDCUPTI_` in place of `CUpti_` or `CUPTI_`.
 * Threads: any; the file contains only declarations. Locks: none.
 */
#ifndef HDI_DRIVER_CUPTI_ABI_H
#define HDI_DRIVER_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int hdcupti_result;
typedef struct hdcupti_subscriber_st *hdcupti_subscriber;

enum {
    HDCUPTI_SUCCESS = 0,
    HDCUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    HDCUPTI_ERROR_NOT_INITIALIZED = 15,
    HDCUPTI_ERROR_INVALID_KIND = 21,
    HDCUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39
};

/* Kinds of records. */
enum {
    HDCUPTI_KIND_MEMCPY = 1,
    HDCUPTI_KIND_MEMSET = 2,
    HDCUPTI_KIND_CONCURRENT_KERNEL = 10,
    HDCUPTI_KIND_MEMCPY2 = 22 /* between devices */
};

/* The values of hdcupti_memcpy.copy_kind for copies of which one end is the host. */
enum {
    HDCUPTI_COPY_HTOD = 1,
    HDCUPTI_COPY_DTOH = 2,
    HDCUPTI_COPY_HTOA = 3,
    HDCUPTI_COPY_ATOH = 4,
    HDCUPTI_COPY_HTOH = 9
};

enum { HDCUPTI_DOMAIN_DRIVER_API = 1, HDCUPTI_SITE_EXIT = 1, HDCUPTI_CALL_DRIVER_GET_VERSION = 2 };

/* The beginning of the data that a callback gets about a driver call. */
typedef struct hdcupti_callback_data {
    int site;
} hdcupti_callback_data;

/* The beginning of every record. */
typedef struct hdcupti_activity {
    uint32_t kind;
} hdcupti_activity;

/* CUpti_ActivityKernel4 and later. */
typedef struct hdcupti_kernel {
    uint32_t kind;
    uint8_t skipped_1[12];
    uint64_t start, end;
    uint64_t skipped_2;
    uint32_t device, context, stream;
    uint8_t skipped_3[40];
    uint32_t correlation;
    uint8_t skipped_4[8];
    const char *name;
} hdcupti_kernel;

/* CUpti_ActivityMemcpy3 and later. */
typedef struct hdcupti_memcpy {
    uint32_t kind;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t device, context, stream, correlation;
} hdcupti_memcpy;

/* CUpti_ActivityMemcpyPtoP2 and later. */
typedef struct hdcupti_memcpy_peer {
    uint32_t kind;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t device, context, stream;
    uint32_t src_device, src_context, dst_device, dst_context, correlation;
} hdcupti_memcpy_peer;

/* CUpti_ActivityMemset2 and later. */
typedef struct hdcupti_memset {
    uint32_t kind, value;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t device, context, stream, correlation;
} hdcupti_memset;

typedef void (*hdcupti_requested)(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void (*hdcupti_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);
typedef void (*hdcupti_called)(void *user, int domain, uint32_t call, const void *data);
typedef uint64_t (*hdcupti_clock)(void);

/* X(name, need, (parameters)) */
#define HDI_CUPTI_ENTRIES(X)                                                                                           \
    X(cuptiGetVersion, REQUIRED, (uint32_t * version))                                                                 \
    X(cuptiGetResultString, REQUIRED, (hdcupti_result result, const char **text))                                      \
    X(cuptiGetTimestamp, REQUIRED, (uint64_t * time))                                                                  \
    X(cuptiSubscribe, REQUIRED, (hdcupti_subscriber * out, hdcupti_called called, void *user))                         \
    X(cuptiUnsubscribe, REQUIRED, (hdcupti_subscriber subscriber))                                                     \
    X(cuptiActivityRegisterCallbacks, REQUIRED, (hdcupti_requested requested, hdcupti_completed completed))            \
    X(cuptiActivityEnable, REQUIRED, (uint32_t kind))                                                                  \
    X(cuptiActivityDisable, REQUIRED, (uint32_t kind))                                                                 \
    X(cuptiActivityFlushAll, REQUIRED, (uint32_t flag))                                                                \
    X(cuptiActivityGetNextRecord, REQUIRED, (uint8_t * buffer, size_t valid, hdcupti_activity * *record))              \
    X(cuptiActivityGetNumDroppedRecords, REQUIRED, (void *context, uint32_t stream, size_t *dropped))                  \
    X(cuptiEnableCallback, OPTIONAL, (uint32_t enable, hdcupti_subscriber subscriber, int domain, uint32_t call))      \
    X(cuptiActivityRegisterTimestampCallback, OPTIONAL, (hdcupti_clock clock))                                         \
    X(cuptiActivityFlushPeriod, OPTIONAL, (uint32_t milliseconds))                                                     \
    X(cuptiFinalize, OPTIONAL, (void))

#define HDCUPTI_VERSION_LEAST 15 /* of CUDA 11.2 */

#endif
