/* waits_for_device.c - each step of device 0 reads "halo", for which device 1 takes five times as long. In the twin both take as long, and
 * device 0 reads what device 1 made two steps before. */
#include "scene.h"

#define N_HALOS 4

static void run(scene *s)
{
    hd_buffer *halos[N_HALOS];
    for (int i = 0; i < N_HALOS; i++) {
        halos[i] = make_buffer(s, 1, 4096, "halo");
        const hd_arg use = hd_in(halos[i]);
        MUST(hd_wait(nap_with(s, 0, 0, &use, 1), HD_FOREVER)); /* the devices have met */
    }
    begin(s);
    for (int i = 0; i < 10; i++) {
        const hd_arg makes = hd_out(halos[i % N_HALOS]);
        const hd_arg reads = hd_in(halos[(i + (s->clean ? 2 : 0)) % N_HALOS]);
        nap_with(s, 1, 50000, &makes, 1);
        nap_with(s, 0, s->clean ? 50000 : 10000, &reads, 1);
    }
    end(s);
}

const planted program = {"", NULL, run};
