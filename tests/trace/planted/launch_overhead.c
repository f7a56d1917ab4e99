/* launch_overhead.c - tiny kernels, each of which takes the driver longer to start than to run.
 * Every one is in another lane than the one before, and that costs a slow call. The twin does the same in a few long kernels.
 */
#include "scene.h"

static void run(scene *s)
{
    hd_lane *lanes[2] = {make_lane(s, 0), make_lane(s, 0)};
    for (int i = 0; i < 2; i++) {
        MUST(hd_wait(nap_in(s, lanes[i], s->plans[0], 0, NULL, 0), HD_FOREVER));
    }
    begin(s);
    for (int i = 0; i < (s->clean ? 6 : 100); i++) {
        nap_in(s, lanes[i % 2], s->plans[0], s->clean ? 100000 : 0, NULL, 0);
    }
    for (int i = 0; i < 2; i++) {
        MUST(hd_lane_wait(lanes[i], HD_FOREVER));
    }
    end(s);
}

const planted program = {"delay=cuStreamWaitEvent:1+=5000", NULL, run};
