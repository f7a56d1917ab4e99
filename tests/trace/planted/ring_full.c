/* ring_full.c - one thread submits more to one device than its lane can hold, while the other
 * device waits. The twin submits to both alternately. */
#include "scene.h"

#define N 160

static void run(scene *s)
{
    begin(s);
    for (int batch = 0; batch < 2; batch++) {
        for (int i = 0; i < 2 * N; i++) {
            nap(s, s->clean ? i % 2 : i / N, 2000);
        }
    }
    end(s);
}

const planted program = {"lane_slots=64", NULL, run};
