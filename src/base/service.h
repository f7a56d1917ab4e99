/* service.h - a background thread of a runtime.
 *
 * The thread starts when it is first needed, and ends with the runtime. It runs a function each
 * time that it is woken, and at the times that the function itself requests.
 *
 * Threads: any. The function runs only on the service's own thread.
 * Locks: one for each service (rank SERVICE), never held while the function runs.
 * Blocking: hdi_service_stop, until the function returns.
 * Always: a wake is never lost: the function begins once more after each wake. After the stop the
 * function does not run.
 */
#ifndef HDI_BASE_SERVICE_H
#define HDI_BASE_SERVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/lock.h"

/* Does all pending work. Returns the time (hdi_clock_ns) at which it wants to run again. 0: at
 * once. INT64_MAX: only when the service is woken. */
typedef int64_t hdi_service_function(void *context);

typedef struct hdi_service {
    hdi_mutex lock;
    pthread_cond_t changed;
    bool started, stopped, woken;
    pthread_t thread;
    hdi_service_function *run;
    void *context;
} hdi_service;

void hdi_service_init(hdi_service *service, hdi_service_function *run, void *context);

/* Call it only after the service was stopped, or if it was never started. */
void hdi_service_destroy(hdi_service *service);

/* Starts the thread unless it runs. False: the thread cannot be started. True after the stop, too:
 * then the end of the runtime does the remaining work. */
bool hdi_service_start(hdi_service *service);

/* Lets the function run soon, if the thread runs. The caller may hold any lock above SERVICE. */
void hdi_service_wake(hdi_service *service);

/* Ends the thread. It does not start again. */
void hdi_service_stop(hdi_service *service);
bool hdi_service_is_stopped(hdi_service *service);

#endif
