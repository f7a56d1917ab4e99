/* staged_copies.c - device 1 needs what device 0 makes, and does not reach its memory: copies pass through the host's, and are slow. In the twin
 * it reaches it. */
#include "scene.h"

static void run(scene *s)
{
    hd_buffer *made = make_buffer(s, 0, MIB, "made"), *needed = make_buffer(s, 1, MIB, "needed");
    hd_ticket copied;
    MUST(hd_copy(needed, 0, made, 0, MIB, &copied)); /* the devices have met */
    MUST(hd_wait(copied, HD_FOREVER));
    begin(s);
    for (int i = 0; i < 6; i++) {
        const hd_arg makes = hd_out(made), needs = hd_in(needed);
        nap_with(s, 0, s->clean ? 80000 : 20000, &makes, 1);
        nap_with(s, 1, s->clean ? 80000 : 20000, &needs, 1);
        MUST(hd_copy(needed, 0, made, 0, MIB, NULL));
    }
    end(s);
}

const planted program = {"host_peers=none delay=cuMemcpyDtoHAsync:1+=80000",
                         "host_peers=all delay=cuMemcpyDtoHAsync:1+=80000", run};
