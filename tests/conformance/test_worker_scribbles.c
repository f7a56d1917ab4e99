/* test_worker_scribbles.c - a worker that writes bytes all over its shared memory, while it works,
 * costs its device and nothing else.
 *
 * Promise: A worker that writes at random into the memory it shares costs its own device alone.
 * Tier: stress.
 *
 * This program is also the worker: the real one, with one more thread, which writes to any memory
 * that the worker can write.
 *
 * Threads: one. In the worker its own threads, and that one.
 * Locks: none.
 * Always: every wait ends at a limit. Afterwards the other device works and was never lost. A
 * restart with a worker that keeps to the rules works.
 */
#include "workers.h"

#include <limits.h>
#include "engine/engine.h"
#include "process/spawn.h"
#include "worker/workers.h"

enum { bytes = 65536, spoilt = 0 };

/* ---- in the worker ---- */

static unsigned long seed_of_writes; /* 0: it does not write */
static hdi_channel own;

/* Overwrites bytes in the state of the device and its lanes, its words and its log. The worker
 * cannot write the rings. */
static void *write_over(void *unused)
{
    (void)unused;
    uint64_t state = seed_of_writes;
    conf_sleep_ms(50); /* hd_open may be over by then: most seeds begin when work does */
    for (;;) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t at = (size_t)(state >> 33);
        unsigned char *area = state >> 20 & 1   ? (unsigned char *)own.lanes
                              : state >> 21 & 1 ? (unsigned char *)own.failures
                              : state >> 22 & 1 ? (unsigned char *)own.flags
                                                : (unsigned char *)own.engine;
        size_t room = area == (unsigned char *)own.engine ? sizeof *own.engine : 8 * sizeof *own.lanes;
        area[at % room] = (unsigned char)(state >> 40);
        conf_sleep_ms((int)(state >> 50 & 1));
    }
    return NULL;
}

hd_status __real_hdi_channel_map(int descriptor, uint32_t slots, bool peer, hdi_channel *out);
hd_status __wrap_hdi_channel_map(int descriptor, uint32_t slots, bool peer, hdi_channel *out);
hd_status __wrap_hdi_channel_map(int descriptor, uint32_t slots, bool peer, hdi_channel *out)
{
    hd_status status = __real_hdi_channel_map(descriptor, slots, peer, out);
    if (!status && !peer && seed_of_writes != 0) {
        own = *out;
        pthread_t thread;
        pthread_create(&thread, NULL, write_over, NULL);
    }
    return status;
}

static int be_the_worker(const char *device)
{
    const char *seed = getenv("HEDDLE_TEST_WRITES_OVER");
    seed_of_writes = seed && strtol(device, NULL, 10) == spoilt ? strtoul(seed, NULL, 10) : 0;
    hdi_program_begin();
    _exit(hdi_worker_service(HDI_WORKER_MEMORY_SOCKET, HDI_WORKER_CODE_SOCKET));
}

/* ---- in the application ---- */

static hd_status try_to_open(hd_runtime **out)
{
    char settings[PATH_MAX + 200], self[PATH_MAX] = "";
    CONF_TRUE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(settings, sizeof settings,
             "worker=%s worker_timeout=20000 close_timeout=5000 transfer_timeout=5000 submit_timeout=5000 "
             "lane_slots=64 peers=trust",
             self);
    return conf_try_open(settings, out);
}

/* Makes some calls of all kinds, on the spoilt device and between both. Calls may fail, and none
 * hangs. Returns true if that device is lost. */
static bool use(hd_runtime *runtime)
{
    static unsigned char some[bytes];
    hd_lane *lane = conf_default_lane(runtime, spoilt), *other = conf_default_lane(runtime, 1);
    CONF_TRUE(other != NULL);
    hd_buffer *x = NULL, *y = NULL, *z = NULL;
    hd_ticket ticket = {NULL, 0};
    if (lane != NULL && hd_alloc(lane, bytes, &x) == HD_OK && hd_alloc(lane, bytes, &y) == HD_OK) {
        CONF_OK(hd_alloc(other, bytes, &z));
        for (uint32_t i = 0; i < 20; i++) {
            hd_status status = conf_fill(lane, conf_builtins(runtime), x, 0, bytes / 4, i, &ticket);
            status = status ? status : hd_copy(y, 0, x, 0, bytes, &ticket);
            status = status ? status : hd_copy(z, 0, y, 0, bytes, &ticket);
            status = status ? status : hd_copy(x, 0, z, 0, bytes, &ticket);
            status = status ? status : hd_fill(y, 0, i, bytes, &ticket);
            status = status ? status : i % 4 == 3 ? hd_wait(ticket, 5 * CONF_SECOND) : HD_OK;
            if (status) {
                break;
            }
        }
        hd_read(x, 0, some, bytes);
        hd_wait(ticket, 5 * CONF_SECOND);
    }
    hd_free(x);
    hd_free(y);
    hd_free(z);
    return wk_info(runtime, spoilt).lost;
}

static void comes_back(hd_runtime *runtime)
{
    hd_lane *other = conf_default_lane(runtime, 1);
    CONF_TRUE(hd_lane_wait(other, 60 * CONF_SECOND) != HD_ERROR_TIMEOUT);
    CONF_OK(hd_lane_reset(other, 60 * CONF_SECOND));
    wk_others_work(runtime, spoilt);
    CONF_OK(hd_device_restart(runtime, spoilt));
    hd_lane *lane = conf_default_lane(runtime, spoilt);
    CONF_TRUE(lane != NULL);
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    wk_works(runtime, spoilt);
}

static void a_worker_writes_over_what_it_shares(void **state)
{
    (void)state;
    unsigned long first = conf_number_from("HEDDLE_SEED", 1), rounds = conf_number_from("HEDDLE_TEST_ROUNDS", 3);
    for (unsigned long seed = first; seed < first + rounds; seed++) {
        hd_runtime *runtime = NULL;
        char text[32];
        snprintf(text, sizeof text, "%lu", seed);
        setenv("HEDDLE_TEST_WRITES_OVER", text, 1);
        hd_status status = try_to_open(&runtime);
        unsetenv("HEDDLE_TEST_WRITES_OVER");
        if (status == HD_OK) {
            int64_t limit = conf_now() + 10 * CONF_SECOND;
            while (!use(runtime) && conf_now() < limit) {
            }
            hd_device_info info = wk_info(runtime, spoilt);
            if (!info.lost && info.worker_pid > 0) {
                kill(info.worker_pid, SIGKILL);
            }
            CONF_EQUAL(wk_next_loss(runtime).device, spoilt);
            comes_back(runtime);
            conf_close(runtime);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "device=", 7) == 0) {
        return be_the_worker(argv[1] + 7);
    }
    wk_begin("test_worker_scribbles");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_worker_writes_over_what_it_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
