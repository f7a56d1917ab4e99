/* slow_function.c - a function of hd_lane_run_native is slow, and no operation goes to the device
 * meanwhile. In the twin, hd_launch_host runs it for the next step, in a thread of its own.
 */
#include "scene.h"

static hd_status slow_call(void *stream, void *context)
{
    (void)stream;
    compute(*(unsigned *)context);
    return HD_OK;
}

static hd_status slow_host_call(void *const *content, void *context)
{
    (void)content;
    compute(*(unsigned *)context);
    return HD_OK;
}

static void run(scene *s)
{
    hd_buffer *x = make_buffer(s, 0, MIB, "x"), *pinned = make_host_buffer(s, MIB, "pinned");
    const hd_arg uses = hd_inout(x), host_uses = hd_inout(pinned);
    unsigned us = 15000;
    begin(s);
    for (int i = 0; i < 10; i++) {
        nap_with(s, 0, s->clean ? 50000 : 10000, &uses, 1);
        MUST(s->clean ? hd_launch_host(s->runtime, slow_host_call, &us, &host_uses, 1, NULL)
                      : hd_lane_run_native(s->lanes[0], slow_call, &us, &uses, 1, NULL));
    }
    end(s);
    MUST(hd_buffer_wait(pinned, HD_READ_WRITE, HD_FOREVER));
}

const planted program = {"", NULL, run};
