/* first_launch.c - a kernel is launched for the first time in the middle, and the driver takes long for that. The twin launches it once before.
 * Nothing runs then.
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
        hd_ticket ticket = nap(s, 1, 50000);
        if (i == 3) {
            MUST(hd_wait(ticket, HD_FOREVER));
        }
    }
    end(s);
}

/* Both devices launch the usual kernel once, and it is launched four times before the late one. */
const planted program = {"delay=cuLaunchKernel:7=900000", "delay=cuLaunchKernel:3=900000", run};
