/* main.c - the program heddle-probe: tests pairs of devices for peer access, in a process that may hang or die of it.
 *
 * The library starts it (src/peer/test.c); it is of no use by itself. src/peer/test.h has its arguments and what it reports. It
 * opens the devices the way that the asking runtime does: by access to mapped memory, or, with worker processes, by descriptors.
 * So it tests the mappings that will be used.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "buffer/buffer.h"
#include "engine/runtime.h"
#include "kernel/module.h"
#include "memory/arena.h"
#include "programs/probe/probe.h"
#include "process/spawn.h"

extern char **environ;

#define EXIT_USAGE 2

/* Buffers: large enough to time copies, or else as large as there is memory for; at most what the provider declares. */
static const size_t rooms[] = {(size_t)32 << 20, ((size_t)16 << 20) + 64, ((size_t)2 << 20) + 64, (size_t)80 << 10,
                               8 << 10};

/* The settings come as an argument; the application's environment has no Heddle settings for this process. */
static void forget_environment(void)
{
    for (char **e = environ; *e;) {
        char name[64];
        size_t length = strcspn(*e, "=");
        if (strncmp(*e, "HEDDLE_", 7) == 0 && length < sizeof name) {
            memcpy(name, *e, length);
            name[length] = 0;
            unsetenv(name);
            e = environ;
        } else {
            e++;
        }
    }
}

/* ---- one pair ---- */

static hd_status get_kernels(hdi_subject *s)
{
    hd_module *module;
    hd_status status = hdi_builtin_get(s->runtime, HDI_BUILTIN_PROBE, &module);
    status = status ? status : hd_kernel_get(module, "hd_probe_store", &s->store);
    status = status ? status : hd_kernel_get(module, "hd_probe_load", &s->load);
    return status ? status : hd_kernel_get(module, "hd_probe_count", &s->count);
}

static void release_memory(hdi_subject *s)
{
    hd_free(s->near);
    hd_free(s->far);
    free(s->scratch);
    s->near = s->far = NULL;
    s->scratch = NULL;
}

static hd_status allocate(hdi_subject *s, int device, size_t bytes, hd_buffer **out)
{
    hd_lane *lane = NULL;
    hd_status status = hd_lane_get_default(s->runtime, device, &lane);
    return status ? status : hd_alloc(lane, bytes, out);
}

/* As much as there is. */
static hd_status get_memory(hdi_subject *s)
{
    hd_status status = HD_ERROR_MEMORY;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0] && status; i++) {
        if (rooms[i] > s->runtime->provider->peer_test_bytes) {
            continue;
        }
        s->room = rooms[i];
        size_t bytes = s->room + 2 * HDI_MARGIN;
        s->scratch = malloc(bytes);
        status = allocate(s, s->device, bytes, &s->near);
        status = status ? status : allocate(s, s->owner, bytes, &s->far);
        if (!s->scratch) {
            status = HD_ERROR_HOST_MEMORY;
        }
        if (status) {
            release_memory(s);
            if (status != HD_ERROR_MEMORY && status != HD_ERROR_HOST_MEMORY) {
                break;
            }
        }
    }
    return status;
}

/* The way that hdi_reach goes, but with the driver's answer. */
static hdi_outcome grant(hdi_subject *s)
{
    hdi_record_step(HDI_STEP_GRANT, 0);
    hd_status status = hdi_arena_grant(s->runtime->devices[s->owner]->arena, s->device);
    if (!status) {
        atomic_store(&s->runtime->devices[s->device]->peer_access[s->owner], HDI_PEERS_YES);
        return HDI_OUTCOME_GOOD;
    }
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    if (status == HD_ERROR_DRIVER && error.driver_code) {
        hdi_record_refused(error.driver_code, error.operation);
        return HDI_OUTCOME_BAD;
    }
    hdi_record_failed(s->runtime);
    return HDI_OUTCOME_FAILED;
}

static hdi_outcome test_pair(hdi_subject *s)
{
    hdi_record_step(HDI_STEP_PREPARE, 0);
    if (get_memory(s)) {
        hdi_record_failed(s->runtime);
        return HDI_OUTCOME_FAILED;
    }
    hdi_outcome outcome = grant(s);
    outcome = outcome != HDI_OUTCOME_GOOD ? outcome : hdi_deliver(s);
    outcome = outcome != HDI_OUTCOME_GOOD ? outcome : hdi_time(s);
    release_memory(s);
    return outcome;
}

/* ---- all pairs ---- */

/* "0>1,1>0" from *at on. False: there is no more, or something else. */
static bool next_pair(const char **at, int n_devices, int *device, int *owner)
{
    int length = 0;
    if (sscanf(*at, "%d>%d%n", device, owner, &length) != 2 || length == 0) {
        return false;
    }
    *at += length;
    *at += **at == ',';
    return *device >= 0 && *device < n_devices && *owner >= 0 && *owner < n_devices && *device != *owner;
}

/* Whether the devices are those of the asking runtime. */
static hd_status check_names(const hd_runtime *rt, const char *names)
{
    for (int i = 0; i < rt->n_devices; i++) {
        char name[33];
        for (int k = 0; k < 16; k++) {
            sprintf(name + 2 * k, "%02x", rt->devices[i]->facts.uuid[k]);
        }
        if (strlen(names) < 32 || strncmp(names, name, 32) != 0) {
            return hdi_fail(HD_ERROR_NO_DEVICE,
                            "the driver's device %d is another one here (was CUDA_VISIBLE_DEVICES changed?)",
                            rt->devices[i]->ordinal);
        }
        names += 32;
    }
    return HD_OK;
}

static int test_all(const char *settings, const char *pairs, const char *names)
{
    hdi_subject s = {0};
    hd_options options = {sizeof options, settings};
    hdi_record_step(HDI_STEP_OPEN, 0);
    hd_status status = hd_open(&options, &s.runtime);
    status = status ? status : check_names(s.runtime, names);
    status = status ? status : get_kernels(&s);
    if (status) {
        hdi_record_failed(s.runtime);
        return 1;
    }
    while (next_pair(&pairs, hd_device_count(s.runtime), &s.device, &s.owner)) {
        s.claims_atomics = s.runtime->devices[s.device]->facts.peers_atomic >> s.owner & 1;
        hdi_record_pair(s.device, s.owner);
        if (test_pair(&s) == HDI_OUTCOME_FAILED) {
            return 1; /* for what is left a fresh process is started */
        }
        hdi_record_plain(HDI_RECORD_PAIR_END);
    }
    hdi_record_plain(HDI_RECORD_END);
    return 0;
}

int main(int argc, char **argv)
{
    struct stat facts;
    if (argc != 4 || fstat(HDI_PROGRAM_DESCRIPTOR, &facts) != 0 || !S_ISFIFO(facts.st_mode)) {
        fprintf(stderr,
                HDI_PROBE_NAME
                " %s: started by Heddle to test whether devices reach each other's memory; not by hand\n",
                hd_version());
        return EXIT_USAGE;
    }
    hdi_program_begin();
    signal(SIGPIPE, SIG_IGN); /* write reports it, too */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    forget_environment();
    /* Nothing is closed, and no destructor runs: both may hang where a device has failed. What workers there are end with us. */
    _exit(test_all(argv[1], argv[2], argv[3]));
}
