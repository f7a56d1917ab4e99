/* test_memory_logs.c - costs of the recorded programs in bench/logs: driver calls, and reserved
 * memory beyond their need.
 *
 * Promise: Recorded programs keep to the bounds of driver calls and memory in this file.
 * Placements: inline.
 *
 * The two are traded for each other (arena_alloc.c, arena.c). Each program runs six times in one
 * runtime, as in `heddle bench alloc`: memory that cannot move adds up. With placement=inline no
 * thread maps ahead, so a replay always does the same.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include <inttypes.h>
#include "pool.h"
#include "support/sanitizers.h"

enum { BLOCKS = 32768, STREAMS = 8, TIMES = 6 };

/* Driver calls for all six times; one request maps neighbours together. With a request per mapping
 * they were 10553, 1814, 3371 and 4271. */
static const struct {
    const char *name;
    uint64_t calls;
} programs[] = {{"convnet", 1700}, {"mlp", 320}, {"server", 1900}, {"transformer", 2000}};

/* A device with little more memory than a program needs, and one of 139 GiB. Only work near the
 * limit may differ. The thread sanitizer lacks room for as many addresses. */
static const char *const devices[] = {"host_devices=1 host_memory=4G",
                                      TEST_TSAN ? "host_devices=1 host_memory=16G" : "host_devices=1 host_memory=139G"};

#define HELD_MOST 1.05

typedef struct replay {
    hd_runtime *runtime;
    hd_lane *lanes[STREAMS];
    hd_buffer *blocks[BLOCKS];
    uint64_t bytes[BLOCKS];
    uint64_t live, peak;
} replay;

static void one_line(replay *r, const char *line)
{
    uint64_t id, bytes;
    unsigned stream;
    if (sscanf(line, "a %" SCNu64 " %" SCNu64 " %u", &id, &bytes, &stream) == 3) {
        CONF_TRUE(id < BLOCKS && stream < STREAMS);
        if (r->lanes[stream] == NULL) {
            CONF_OK(hd_lane_create(r->runtime, 0, &r->lanes[stream]));
        }
        CONF_OK(hd_alloc(r->lanes[stream], bytes, &r->blocks[id]));
        r->bytes[id] = bytes;
        r->live += bytes;
        r->peak = r->live > r->peak ? r->live : r->peak;
    } else if (sscanf(line, "f %" SCNu64, &id) == 1) {
        hd_free(r->blocks[id]);
        r->blocks[id] = NULL;
        r->live -= r->bytes[id];
    }
}

static void run_once(replay *r, FILE *log)
{
    char line[256];
    rewind(log);
    while (fgets(line, sizeof line, log) != NULL) {
        one_line(r, line);
    }
    for (int id = 0; id < BLOCKS; id++) {
        hd_free(r->blocks[id]);
        r->blocks[id] = NULL;
    }
    r->live = 0;
}

/* Returns false if it cannot check the case here. */
static bool look_at(const char *device, size_t program, const char *folder)
{
    static replay r;
    char path[1024];
    memset(&r, 0, sizeof r);
    r.runtime = conf_open(device);
    if (conf_on_gpus || !conf_is_inline(r.runtime)) {
        conf_close(r.runtime);
        return false;
    }
    snprintf(path, sizeof path, "%s/%s.hdlog", folder, programs[program].name);
    FILE *log = fopen(path, "re");
    CONF_TRUE(log != NULL);
    for (int i = 0; i < TIMES; i++) {
        run_once(&r, log);
    }
    fclose(log);
    hd_memory_stats s = pool_stats(r.runtime, 0);
    double held = (double)s.reserved_peak_bytes / (double)r.peak;
    if (r.peak == 0 || s.driver_calls > programs[program].calls || held > HELD_MOST) {
        conf_fail_at(__FILE__, __LINE__,
                     "%s, %s: %" PRIu64 " calls of the driver (at most %" PRIu64 "), %.4f held (at most %.2f)",
                     programs[program].name, device, s.driver_calls, programs[program].calls, held, HELD_MOST);
    }
    conf_close(r.runtime);
    return true;
}

static void recorded_programs_cost_little(void **state)
{
    (void)state;
    const char *folder = getenv("HEDDLE_TEST_LOGS");
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
        for (size_t i = 0; folder != NULL && i < sizeof programs / sizeof programs[0]; i++) {
            if (!look_at(devices[d], i, folder)) {
                return;
            }
        }
    }
}

int main(void)
{
    conf_begin("test_memory_logs");
    const struct CMUnitTest tests[] = {
        CONF_CASE(recorded_programs_cost_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
