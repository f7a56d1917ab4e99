/* waits_for_device.c - device 0 needs "halo", which device 1 computes after all its other work. In
 * the twin it computes that first. */
#include "scene.h"

#define STEPS 10

static void run(scene *s)
{
    hd_buffer *halo = make_buffer(s, 1, 4096, "halo");
    const hd_arg makes = hd_out(halo), reads = hd_in(halo);
    MUST(hd_wait(nap_with(s, 0, 0, &reads, 1), HD_FOREVER)); /* synchronizes the devices */
    begin(s);
    for (int i = 0; i < STEPS; i++) {
        if (i == (s->clean ? 0 : STEPS - 1)) {
            nap_with(s, 1, 500, &makes, 1);
        }
        nap(s, 1, 40000);
    }
    for (int i = 0; i < STEPS; i++) {
        nap_with(s, 0, 35000, &reads, 1); /* leaves less work for device 1 to wait for */
    }
    end(s);
}

const planted program = {"", NULL, run};
