/* cupti_check.c - compares cupti_abi.h with the real cupti.h, at compile time. Compiles to nothing
 * without a cupti.h, or with one older than CUDA 13.
 *
 * It checks:
 *   - every number
 *   - the offset and the size of every used member, in an old and the newest form of each record
 *   - that every entry point takes our parameters
 */
#if defined(__has_include)
#if __has_include(<cupti.h>) && __has_include(<cuda.h>)
#define HAVE_CUPTI_H 1
#endif
#endif

#ifdef HAVE_CUPTI_H
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cuda.h>
#include <cupti.h>
#include <cupti_activity_deprecated.h>
#pragma GCC diagnostic pop
#endif

#if defined(CUPTI_API_VERSION) && CUPTI_API_VERSION >= 130000

#include <stddef.h>
#include "driver/cupti_abi.h"
#include "../support/same.h"

/* Our structure may be shorter than NVIDIA's structure, which grows. */
#define MEMBER(ours, our_member, theirs, their_member)                                                                 \
    SAME_MEMBER(ours, our_member, theirs, their_member);                                                               \
    _Static_assert(sizeof(ours) <= sizeof(theirs), #ours " is larger than " #theirs)

SAME(HDCUPTI_SUCCESS, CUPTI_SUCCESS);
SAME(HDCUPTI_ERROR_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME(HDCUPTI_ERROR_NOT_INITIALIZED, CUPTI_ERROR_NOT_INITIALIZED);
SAME(HDCUPTI_ERROR_INVALID_KIND, CUPTI_ERROR_INVALID_KIND);
SAME(HDCUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME(HDCUPTI_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME(HDCUPTI_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
SAME(HDCUPTI_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME(HDCUPTI_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME(HDCUPTI_COPY_HTOD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME(HDCUPTI_COPY_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME(HDCUPTI_COPY_HTOA, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA);
SAME(HDCUPTI_COPY_ATOH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH);
SAME(HDCUPTI_COPY_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
SAME(HDCUPTI_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_DRIVER_API);
SAME(HDCUPTI_SITE_EXIT, CUPTI_API_EXIT);
SAME(HDCUPTI_CALL_DRIVER_GET_VERSION, CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion);
MEMBER(hdcupti_callback_data, site, CUpti_CallbackData, callbackSite);
MEMBER(hdcupti_activity, kind, CUpti_Activity, kind);

#define KERNEL(theirs)                                                                                                 \
    MEMBER(hdcupti_kernel, kind, theirs, kind);                                                                        \
    MEMBER(hdcupti_kernel, start, theirs, start);                                                                      \
    MEMBER(hdcupti_kernel, end, theirs, end);                                                                          \
    MEMBER(hdcupti_kernel, device, theirs, deviceId);                                                                  \
    MEMBER(hdcupti_kernel, stream, theirs, streamId);                                                                  \
    MEMBER(hdcupti_kernel, correlation, theirs, correlationId);                                                        \
    MEMBER(hdcupti_kernel, name, theirs, name)
#define COPY(ours, theirs)                                                                                             \
    MEMBER(ours, kind, theirs, kind);                                                                                  \
    MEMBER(ours, copy_kind, theirs, copyKind);                                                                         \
    MEMBER(ours, bytes, theirs, bytes);                                                                                \
    MEMBER(ours, start, theirs, start);                                                                                \
    MEMBER(ours, end, theirs, end);                                                                                    \
    MEMBER(ours, device, theirs, deviceId);                                                                            \
    MEMBER(ours, stream, theirs, streamId);                                                                            \
    MEMBER(ours, correlation, theirs, correlationId)
#define PEER(theirs)                                                                                                   \
    COPY(hdcupti_memcpy_peer, theirs);                                                                                 \
    MEMBER(hdcupti_memcpy_peer, src_device, theirs, srcDeviceId);                                                      \
    MEMBER(hdcupti_memcpy_peer, dst_device, theirs, dstDeviceId)
#define FILL(theirs)                                                                                                   \
    MEMBER(hdcupti_memset, kind, theirs, kind);                                                                        \
    MEMBER(hdcupti_memset, bytes, theirs, bytes);                                                                      \
    MEMBER(hdcupti_memset, start, theirs, start);                                                                      \
    MEMBER(hdcupti_memset, end, theirs, end);                                                                          \
    MEMBER(hdcupti_memset, device, theirs, deviceId);                                                                  \
    MEMBER(hdcupti_memset, stream, theirs, streamId);                                                                  \
    MEMBER(hdcupti_memset, correlation, theirs, correlationId)

KERNEL(CUpti_ActivityKernel4);
KERNEL(CUpti_ActivityKernel5);
KERNEL(CUpti_ActivityKernel9);
KERNEL(CUpti_ActivityKernel10);
COPY(hdcupti_memcpy, CUpti_ActivityMemcpy4);
COPY(hdcupti_memcpy, CUpti_ActivityMemcpy6);
PEER(CUpti_ActivityMemcpyPtoP3);
PEER(CUpti_ActivityMemcpyPtoP4);
FILL(CUpti_ActivityMemset3);
FILL(CUpti_ActivityMemset4);

/* Pointers and enumerations match our sizes, and each call takes as many arguments as ours, at the
 * same places. */
void hdi_check_cupti(void);
void hdi_check_cupti(void)
{
    uint32_t number = 0;
    uint64_t time = 0;
    const char *text = NULL;
    size_t dropped = 0;
    CUpti_SubscriberHandle subscriber = NULL;
    CUpti_Activity *record = NULL;
    _Static_assert(sizeof(CUptiResult) == sizeof(hdcupti_result), "results");
    _Static_assert(sizeof(CUpti_SubscriberHandle) == sizeof(hdcupti_subscriber), "subscribers");
    _Static_assert(sizeof(CUpti_CallbackDomain) == sizeof(int) && sizeof(CUpti_CallbackId) == sizeof(uint32_t),
                   "callbacks");
    (void)sizeof(cuptiGetVersion(&number));
    (void)sizeof(cuptiGetResultString(CUPTI_SUCCESS, &text));
    (void)sizeof(cuptiGetTimestamp(&time));
    (void)sizeof(cuptiSubscribe(&subscriber, (CUpti_CallbackFunc)NULL, NULL));
    (void)sizeof(cuptiUnsubscribe(subscriber));
    (void)sizeof(cuptiActivityRegisterCallbacks((hdcupti_requested)NULL, (CUpti_BuffersCallbackCompleteFunc)NULL));
    (void)sizeof(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
    (void)sizeof(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_MEMCPY));
    (void)sizeof(cuptiActivityFlushAll(0));
    (void)sizeof(cuptiActivityGetNextRecord((uint8_t *)NULL, dropped, &record));
    (void)sizeof(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
    (void)sizeof(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, 2));
    (void)sizeof(cuptiActivityRegisterTimestampCallback((hdcupti_clock)NULL));
    (void)sizeof(cuptiActivityFlushPeriod(number));
    (void)sizeof(cuptiFinalize());
}

#else
typedef int hdi_no_cupti; /* an empty file is not valid C */
#endif
