/* first_launch_behind.c - as first_launch.c, but other work runs when the driver begins to take long, and ends while it does.
 */
#include "scene.h"

static void run(scene *s)
{
    hd_kernel *usual = s->nap, *late;
    MUST(hd_kernel_get(s->module, "late_nap", &late));
    s->nap = late;
    if (s->clean) {
        MUST(hd_wait(nap(s, 1, 0), HD_FOREVER));
    }
    begin(s);
    for (int i = 0; i < 8; i++) {
        s->nap = i >= 4 ? late : usual;
        nap(s, 1, 50000);
    }
    end(s);
}

/* The same calls as in first_launch.c. */
const planted program = {"delay=cuLaunchKernel:7=900000", "delay=cuLaunchKernel:3=900000", run};
