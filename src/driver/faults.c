/* faults.c - wraps a provider so that chosen driver calls fail or are late.
 *
 * If a call is to fail on purpose, the wrapper does not make it. The exception is a call that
 * releases a handle, an allocation or a context: the wrapper makes the call, and then reports the
 * failure. The real driver does the same when it reports an earlier failure in such a call. The
 * wrapper passes cuGetErrorName and cuGetErrorString through, and does not count them. Calls of
 * libraries for matrix products are no entry points, but the options can count, fail and delay them
 * by name as well.
 * Threads: the thunks run on any thread. Locks: a thread that wraps or unwraps a table holds
 * `wrapping`; a call takes no lock.
 * Blocking: a call sleeps if the option delay applies.
 * Always: the process contains one wrapper, since an entry point takes no parameter for a wrapper's
 * own data. Several runtimes may open the wrapper at once with the same provider and settings, and
 * its counters count the calls of all of them. Until the last of them closes the wrapper, it
 * refuses other settings. The first open sets the counters to 0.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/wait.h"
#include "driver/driver.h"

enum {
#define ENTRY_INDEX(name, version, need, parameters, arguments) INDEX_##name,
    HDI_DRIVER_ENTRIES(ENTRY_INDEX)
#undef ENTRY_INDEX
        INDEX_LIBRARY, /* the first of HDI_FAULT_* */
    INDEX_COUNT = INDEX_LIBRARY + HDI_FAULT_LIBRARY_CALLS
};

static const char *const entry_names[] = {
#define ENTRY_NAME(name, version, need, parameters, arguments) #name,
    HDI_DRIVER_ENTRIES(ENTRY_NAME)
#undef ENTRY_NAME
        HDI_FAULT_LIBRARY_NAMES};

/* One parsed setting: [ENTRY:]N[+][=VALUE] or [ENTRY:]~N[=VALUE]. */
typedef struct rule {
    uint64_t from;  /* the Nth call; 0: no rule */
    int entry;      /* -1: any */
    bool onward;    /* the rule also applies to the calls after the Nth */
    bool scattered; /* the rule applies to one call in N, without a pattern */
    int64_t value;  /* the code to fail with, or the delay in microseconds */
} rule;

static hdi_mutex wrapping = HDI_MUTEX_INIT(FAULTS);
static unsigned users;
static char *fault_text, *delay_text;

/* Written under `wrapping` while `users` is 0. Then no table is in use, so no thunk runs. */
static const hdi_driver *inner;
static rule fault_rule, delay_rule;

static hdi_driver wrapped;

/* Counters. Nothing is published through them, so relaxed order is enough. */
static _Atomic uint64_t fault_matches, delay_matches;

static uint64_t faults_count(_Atomic uint64_t *counter)
{
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1;
}

/* The last step of splitmix64 (Steele, Lea and Flood, 2014), which gives the same numbers in each
 * run, without a pattern. */
static uint64_t faults_scatter(uint64_t n)
{
    uint64_t z = n * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static bool faults_rule_applies(const rule *r, _Atomic uint64_t *matches, int entry)
{
    if (r->from == 0 || (r->entry >= 0 && r->entry != entry)) {
        return false;
    }
    uint64_t n = faults_count(matches);
    if (r->scattered) {
        return faults_scatter(n) % r->from == 0;
    }
    return n == r->from || (r->onward && n > r->from);
}

/* Counts one call for the rules, and delays it if one applies. Returns the code to fail it with, or
 * SUCCESS. */
static hdcu_result faults_before_call(int entry)
{
    if (faults_rule_applies(&delay_rule, &delay_matches, entry)) {
        hdi_sleep_for(delay_rule.value * 1000);
    }
    return faults_rule_applies(&fault_rule, &fault_matches, entry) ? (hdcu_result)fault_rule.value : HDCU_SUCCESS;
}

hdcu_result hdi_faults_library(const hdi_driver *driver, int which)
{
    return driver == &wrapped ? faults_before_call(INDEX_LIBRARY + which) : HDCU_SUCCESS;
}

static bool faults_is_passed_through(int entry)
{
    return entry == INDEX_cuGetErrorName || entry == INDEX_cuGetErrorString;
}

static bool faults_call_releases(int entry)
{
    switch (entry) {
    case INDEX_cuCtxPopCurrent:
    case INDEX_cuDevicePrimaryCtxRelease:
    case INDEX_cuMemFree:
    case INDEX_cuMemFreeAsync:
    case INDEX_cuMemFreeHost:
    case INDEX_cuMemHostUnregister:
    case INDEX_cuMemRelease:
    case INDEX_cuStreamDestroy:
    case INDEX_cuEventDestroy:
    case INDEX_cuModuleUnload:
    case INDEX_cuGraphExecDestroy:
    case INDEX_cuGraphDestroy:
        return true;
    default:
        return false;
    }
}

#define ENTRY_THUNK(name, version, need, parameters, arguments)                                                        \
    static hdcu_result thunk_##name parameters                                                                         \
    {                                                                                                                  \
        hdcu_result failure =                                                                                          \
            faults_is_passed_through(INDEX_##name) ? HDCU_SUCCESS : faults_before_call(INDEX_##name);                  \
        if (failure != HDCU_SUCCESS && !faults_call_releases(INDEX_##name)) {                                          \
            return failure;                                                                                            \
        }                                                                                                              \
        hdcu_result result = inner->name arguments;                                                                    \
        return failure != HDCU_SUCCESS ? failure : result;                                                             \
    }
HDI_DRIVER_ENTRIES(ENTRY_THUNK)
#undef ENTRY_THUNK

static void faults_fill_table(void)
{
    wrapped.provider = inner->provider;
    wrapped.version = inner->version;
#define ENTRY_MEMBER(name, version, need, parameters, arguments) wrapped.name = inner->name ? thunk_##name : NULL;
    HDI_DRIVER_ENTRIES(ENTRY_MEMBER)
#undef ENTRY_MEMBER
}

/* ---- settings ---- */

static int faults_entry_of(const char *name, size_t length)
{
    for (int i = 0; i < INDEX_COUNT; i++) {
        if (strlen(entry_names[i]) == length && memcmp(entry_names[i], name, length) == 0) {
            return i;
        }
    }
    return -1;
}

/* Reads a decimal number at *at, and moves *at past it. False: no number, or one that is too
 * large. */
static bool faults_read_number(const char **at, int64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9') {
        return false;
    }
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    *at = end;
    *out = value;
    return errno == 0;
}

static bool faults_parse_rule(const char *text, bool value_needed, int64_t value_default, int64_t value_max, rule *out)
{
    *out = (rule){.entry = -1, .value = value_default};
    if (*text == 0) {
        return true;
    }
    int64_t from;
    const char *colon = strchr(text, ':');
    if (colon) {
        out->entry = faults_entry_of(text, (size_t)(colon - text));
        if (out->entry < 0 || faults_is_passed_through(out->entry)) {
            return false;
        }
        text = colon + 1;
    }
    out->scattered = *text == '~';
    text += out->scattered;
    if (!faults_read_number(&text, &from) || from < 1) {
        return false;
    }
    out->from = (uint64_t)from;
    if (*text == '+' && !out->scattered) {
        out->onward = true;
        text++;
    }
    if (*text == '=') {
        text++;
        if (!faults_read_number(&text, &out->value) || out->value > value_max) {
            return false;
        }
        value_needed = false;
    }
    return *text == 0 && !value_needed;
}

static hd_status faults_start(const hdi_driver *provider, const char *fault, const char *delay)
{
    rule new_fault, new_delay;
    if (!faults_parse_rule(fault, false, HDCU_ERROR_OUT_OF_MEMORY, 99999, &new_fault) ||
        (*fault && new_fault.value == HDCU_SUCCESS)) {
        return hdi_fail(HD_ERROR_OPTION,
                        "option fault: wrong value \"%s\"; write [ENTRY:]N[+][=CODE] or [ENTRY:]~N[=CODE], "
                        "with a known entry point, N from 1 and CODE from 1",
                        fault);
    }
    if (!faults_parse_rule(delay, true, 0, 3600000000, &new_delay)) {
        return hdi_fail(HD_ERROR_OPTION,
                        "option delay: wrong value \"%s\"; write [ENTRY:]N[+]=MICROSECONDS or "
                        "[ENTRY:]~N=MICROSECONDS, with a known entry point, N from 1 and at most 3600000000 "
                        "microseconds",
                        delay);
    }
    char *new_fault_text = strdup(fault), *new_delay_text = strdup(delay);
    if (!new_fault_text || !new_delay_text) {
        free(new_fault_text);
        free(new_delay_text);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "options fault, delay: no host memory for the settings");
    }
    fault_text = new_fault_text;
    delay_text = new_delay_text;
    fault_rule = new_fault;
    delay_rule = new_delay;
    inner = provider;
    atomic_store_explicit(&fault_matches, 0, memory_order_relaxed);
    atomic_store_explicit(&delay_matches, 0, memory_order_relaxed);
    faults_fill_table();
    return HD_OK;
}

hd_status hdi_faults_wrap(const hdi_driver *provider, const hdi_options *options, const hdi_driver **out)
{
    hd_status status = HD_OK;
    hdi_mutex_lock(&wrapping);
    if (users == 0) {
        status = faults_start(provider, options->fault, options->delay);
    } else if (inner != provider || strcmp(fault_text, options->fault) != 0 ||
               strcmp(delay_text, options->delay) != 0) {
        status =
            hdi_fail(HD_ERROR_OPTION,
                     "options fault, delay: a runtime with other settings (fault=%s delay=%s) is open; close it first",
                     fault_text, delay_text);
    }
    if (status == HD_OK) {
        users++;
        *out = &wrapped;
    }
    hdi_mutex_unlock(&wrapping);
    return status;
}

bool hdi_faults_unwrap(const hdi_driver *driver)
{
    if (driver != &wrapped) {
        return false;
    }
    hdi_mutex_lock(&wrapping);
    if (users > 0 && --users == 0) {
        free(fault_text);
        free(delay_text);
        fault_text = delay_text = NULL;
    }
    hdi_mutex_unlock(&wrapping);
    return true;
}
