/* records.c - writes records to the process that started this program. See probe.h for threads. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "engine/device_state.h"
#include "engine/runtime.h"
#include "programs/probe/probe.h"
#include "process/spawn.h"

static hdi_record blank(hdi_record_kind kind)
{
    hdi_record r;
    memset(&r, 0, sizeof r);
    r.magic = HDI_PROBE_MAGIC;
    r.version = HDI_PROBE_VERSION;
    r.kind = (uint32_t)kind;
    return r;
}

static void send(const hdi_record *r)
{
    ssize_t n;
    do {
        n = write(HDI_PROGRAM_DESCRIPTOR, r, sizeof *r);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *r) {
        _exit(1);
    }
}

void hdi_record_plain(hdi_record_kind kind)
{
    hdi_record r = blank(kind);
    send(&r);
}

void hdi_record_pair(int device, int owner)
{
    hdi_record r = blank(HDI_RECORD_PAIR);
    r.device = device;
    r.owner = owner;
    send(&r);
}

void hdi_record_step(hdi_step step, uint64_t bytes)
{
    hdi_record r = blank(HDI_RECORD_STEP);
    r.step = (uint32_t)step;
    r.bytes = bytes;
    send(&r);
}

void hdi_record_wrong(hdi_record_kind kind, int64_t at, uint64_t found, uint64_t expected)
{
    hdi_record r = blank(kind);
    r.at = at;
    r.found = found;
    r.expected = expected;
    send(&r);
}

/* Whether a worker process was killed from outside. The loss of its device is then no fault of the pair. */
static bool is_worker_killed(const hd_runtime *rt)
{
    bool killed = false;
    for (int i = 0; rt && i < rt->n_devices; i++) {
        int code = hdi_device_lost_by(rt->devices[i]);
        killed |= code <= HDI_GONE_SIGNAL && !hdi_signal_is_crash(HDI_GONE_SIGNAL - code);
    }
    return killed;
}

void hdi_record_failed(const hd_runtime *rt)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    hdi_record r = blank(HDI_RECORD_FAILED);
    r.status = is_worker_killed(rt) ? HD_ERROR_SYSTEM : error.status;
    r.code = error.driver_code;
    /* there is room for the first part of the message */
    size_t length = strcspn(error.message, ";");
    snprintf(r.text, sizeof r.text, "%.*s", (int)(length < sizeof r.text ? length : sizeof r.text - 1), error.message);
    send(&r);
}

void hdi_record_refused(int code, const char *call)
{
    hdi_record r = blank(HDI_RECORD_REFUSED);
    r.code = code;
    snprintf(r.text, sizeof r.text, "%s", call);
    send(&r);
}

void hdi_record_rates(double direct, double staged)
{
    hdi_record r = blank(HDI_RECORD_RATES);
    r.direct = direct;
    r.staged = staged;
    send(&r);
}
