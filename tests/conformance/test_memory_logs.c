/* test_memory_logs.c - what the recorded programs in bench/logs cost in calls of the driver, and how much more memory than they need is held.
 *
 * The two are traded for each other (arena_grow.c, pieces.c). With placement=inline there is no thread that maps ahead, so a replay always
 * does the same. Threads: the main one. Locks: none.
 */
#include <inttypes.h>
#include "pool.h"

enum { BLOCKS = 32768, STREAMS = 8 };

/* Half of what each cost while the pool held up to 1.02 of what was live. */
static const struct {
    const char *name;
    uint64_t calls;
} programs[] = {{"convnet", 3080}, {"mlp", 676}, {"server", 1434}, {"transformer", 1207}};

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
        r->live -= r->bytes[id];
    }
}

static void recorded_programs_cost_little(void **state)
{
    (void)state;
    const char *folder = getenv("HEDDLE_TEST_LOGS");
    for (size_t i = 0; folder != NULL && i < sizeof programs / sizeof programs[0]; i++) {
        static replay r;
        char path[1024], line[256];
        memset(&r, 0, sizeof r);
        r.runtime = conf_open("host_devices=1 host_memory=16G");
        if (conf_on_gpus || !conf_is_inline(r.runtime)) {
            conf_close(r.runtime);
            return;
        }
        snprintf(path, sizeof path, "%s/%s.hdlog", folder, programs[i].name);
        FILE *log = fopen(path, "re");
        CONF_TRUE(log != NULL);
        while (fgets(line, sizeof line, log) != NULL) {
            one_line(&r, line);
        }
        fclose(log);
        hd_memory_stats s = pool_stats(r.runtime, 0);
        double held = (double)s.reserved_peak_bytes / (double)r.peak;
        if (r.peak == 0 || s.driver_calls > programs[i].calls || held > HELD_MOST) {
            conf_fail_at(__FILE__, __LINE__,
                         "%s: %" PRIu64 " calls of the driver (at most %" PRIu64 "), %.4f held (at most %.2f)",
                         programs[i].name, s.driver_calls, programs[i].calls, held, HELD_MOST);
        }
        conf_close(r.runtime);
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
