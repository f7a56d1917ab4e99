/* launch_overhead.c - tiny kernels that the driver takes longer to start than they run. Each is in
 * another lane than the one before, which costs a slow call. The twin does the same work in a few
 * long kernels.
 *
 * A busy machine may take the processor from the engine for some hundred milliseconds, also within
 * a call. Therefore the twin's first kernel lasts for seconds: the calls behind it end before the
 * device needs them. Compared with the trace, one such delay before it is short.
 */
#include "scene.h"

static void run(scene *s)
{
    hd_lane *lanes[2] = {make_lane(s, 0), make_lane(s, 0)};
    for (int i = 0; i < 2; i++) {
        MUST(hd_wait(nap_in(s, lanes[i], s->plans[0], 0, NULL, 0), HD_FOREVER));
    }
    begin(s);
    if (s->clean) {
        nap_in(s, lanes[1], s->plans[0], 2000000, NULL, 0);
    }
    for (int i = 0; i < (s->clean ? 6 : 100); i++) {
        nap_in(s, lanes[i % 2], s->plans[0], s->clean ? 100000 : 0, NULL, 0);
    }
    for (int i = 0; i < 2; i++) {
        MUST(hd_lane_wait(lanes[i], HD_FOREVER));
    }
    end(s);
}

const planted program = {"delay=cuStreamWaitEvent:1+=5000", NULL, run};
