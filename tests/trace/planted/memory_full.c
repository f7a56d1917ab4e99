/* memory_full.c - the device's memory is almost full, and each step waits until the program makes
 * room. The twin reuses its buffers. */
#include "scene.h"

#define STEP_BYTES (40 * MIB)

static hd_buffer *cached;

static bool make_room(void *context, const hd_reclaim *request)
{
    (void)context;
    (void)request;
    hd_buffer *buffer = cached;
    cached = NULL;
    compute(80000); /* as if it saved the data */
    return buffer && hd_free(buffer) == HD_OK;
}

static void run(scene *s)
{
    hd_buffer *kept = make_buffer(s, 0, 22 * MIB, "weights");
    cached = make_buffer(s, 0, STEP_BYTES, "activations");
    MUST(hd_memory_on_reclaim(s->runtime, make_room, NULL));
    begin(s);
    for (int i = 0; i < 8; i++) {
        if (!s->clean) {
            const hd_alloc_options options = {.size = sizeof options, .label = "activations"};
            hd_buffer *activations;
            MUST(hd_alloc_with(s->lanes[0], STEP_BYTES, &options, &activations));
            cached = activations;
        }
        const hd_arg uses[2] = {hd_in(kept), hd_out(cached)};
        nap_with(s, 0, s->clean ? 60000 : 20000, uses, 2);
    }
    end(s);
}

const planted program = {"memory_limit=64M memory_reclaim=0", NULL, run};
