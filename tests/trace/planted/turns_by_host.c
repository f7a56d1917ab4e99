/* turns_by_host.c - the program waits for one device before it submits to the other one. The twin
 * submits to both, and waits at the end. */
#include "scene.h"

static void run(scene *s)
{
    begin(s);
    for (int i = 0; i < 12; i++) {
        hd_ticket ticket = nap(s, i % 2, 50000);
        if (!s->clean) {
            MUST(hd_wait(ticket, HD_FOREVER));
        }
    }
    end(s);
}

const planted program = {"", NULL, run};
