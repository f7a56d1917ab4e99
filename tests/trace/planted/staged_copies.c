/* staged_copies.c - device 1 needs device 0's results, but cannot reach its memory, so copies pass
 * through host memory and are slow. In the twin it reaches the memory, and a copy from two steps
 * before is enough.
 */
#include "scene.h"

#define N_PLACES 4
#define SLOW "delay=cuMemcpyDtoHAsync:1+=80000"

static void run(scene *s)
{
    hd_buffer *made[N_PLACES], *needed[N_PLACES];
    for (int i = 0; i < N_PLACES; i++) {
        made[i] = make_buffer(s, 0, MIB, "made");
        needed[i] = make_buffer(s, 1, MIB, "needed");
    }
    hd_ticket copied;
    MUST(hd_copy(needed[0], 0, made[0], 0, MIB, &copied)); /* synchronizes the devices */
    MUST(hd_wait(copied, HD_FOREVER));
    begin(s);
    for (int i = 0; i < 6; i++) {
        const int now = s->clean ? i % N_PLACES : 0, before = s->clean ? (i + 2) % N_PLACES : 0;
        const hd_arg makes = hd_out(made[now]), needs = hd_in(needed[before]);
        nap_with(s, 0, s->clean ? 80000 : 20000, &makes, 1);
        nap_with(s, 1, s->clean ? 80000 : 20000, &needs, 1);
        MUST(hd_copy(needed[now], 0, made[now], 0, MIB, NULL));
    }
    end(s);
}

const planted program = {"host_peers=none " SLOW, "host_peers=all " SLOW, run};
