/* imbalance.c - device 1 gets four times the work of device 0. In the twin both get the same. */
#include "scene.h"

static void run(scene *s)
{
    begin(s);
    for (int i = 0; i < 10; i++) {
        nap(s, 0, s->clean ? 50000 : 20000);
        nap(s, 1, s->clean ? 50000 : 80000);
    }
    end(s);
}

const planted program = {"", NULL, run};
