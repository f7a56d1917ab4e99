/* slow_device_in_ring.c - four devices exchange "halo" in each step, and device 2 has three times
 * the work. Its neighbours wait for it, and device 0 waits for them. In the twin all have the same
 * work. */
#include "scene.h"

#define DEVICES 4

static void run(scene *s)
{
    hd_buffer *halos[DEVICES][2];
    for (int d = 0; d < DEVICES; d++) {
        for (int side = 0; side < 2; side++) {
            halos[d][side] = make_host_buffer(s, 4096, "halo");
        }
    }
    begin(s);
    for (int i = 0; i < 10; i++) {
        for (int d = 0; d < DEVICES; d++) {
            const hd_arg uses[] = {hd_out(halos[d][i % 2]), hd_in(halos[(d + 1) % DEVICES][(i + 1) % 2]),
                                   hd_in(halos[(d + DEVICES - 1) % DEVICES][(i + 1) % 2])};
            nap_with(s, d, s->clean || d != 2 ? 40000 : 120000, uses, 3);
        }
    }
    end(s);
}

const planted program = {"host_devices=4", NULL, run};
