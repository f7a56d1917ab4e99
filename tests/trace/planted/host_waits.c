/* host_waits.c - the program waits for each operation before it submits the next one, and learns of
 * each end late. The twin waits once. */
#include "scene.h"

static void run(scene *s)
{
    begin(s);
    for (int i = 0; i < 50; i++) {
        hd_ticket ticket = nap(s, 0, s->clean ? 10000 : 2000);
        if (!s->clean) {
            MUST(hd_wait(ticket, HD_FOREVER));
        }
    }
    end(s);
}

const planted program = {"delay=cuMemsetD32Async:1+=10000", NULL, run};
