/* service.c - see service.h. */
#include "base/service.h"

#include "base/thread.h"
#include "base/wait.h"

void hdi_service_init(hdi_service *service, hdi_service_function *run, void *context)
{
    *service = (hdi_service){.run = run, .context = context};
    hdi_mutex_init(&service->lock, HDI_RANK_SERVICE);
    hdi_cond_init(&service->changed);
}

void hdi_service_destroy(hdi_service *service)
{
    pthread_cond_destroy(&service->changed);
    hdi_mutex_destroy(&service->lock);
}

static void *service_thread(void *context)
{
    hdi_service *service = context;
    int64_t next = 0;
    hdi_mutex_lock(&service->lock);
    while (!service->stopped) {
        if (!service->woken && hdi_clock_ns() < next) {
            hdi_cond_wait(&service->changed, &service->lock, next);
            continue;
        }
        service->woken = false;
        hdi_mutex_unlock(&service->lock);
        next = service->run(service->context);
        hdi_mutex_lock(&service->lock);
    }
    hdi_mutex_unlock(&service->lock);
    return NULL;
}

bool hdi_service_start(hdi_service *service)
{
    hdi_mutex_lock(&service->lock);
    if (!service->started && !service->stopped) {
        service->started = hdi_thread_start(&service->thread, service_thread, service) == 0;
    }
    bool runs = service->started || service->stopped;
    hdi_mutex_unlock(&service->lock);
    return runs;
}

void hdi_service_wake(hdi_service *service)
{
    hdi_mutex_lock(&service->lock);
    service->woken = true;
    pthread_cond_signal(&service->changed);
    hdi_mutex_unlock(&service->lock);
}

void hdi_service_stop(hdi_service *service)
{
    hdi_mutex_lock(&service->lock);
    service->stopped = true;
    pthread_cond_signal(&service->changed);
    bool join = service->started;
    service->started = false;
    hdi_mutex_unlock(&service->lock);
    if (join) {
        pthread_join(service->thread, NULL);
    }
}

bool hdi_service_is_stopped(hdi_service *service)
{
    hdi_mutex_lock(&service->lock);
    bool stopped = service->stopped;
    hdi_mutex_unlock(&service->lock);
    return stopped;
}
