/* nothing_submitted.c - the program computes between submissions, while the device has nothing to
 * do. The twin submits ahead. */
#include "scene.h"

static void run(scene *s)
{
    begin(s);
    for (int i = 0; i < 10; i++) {
        nap(s, 0, 40000);
        if (!s->clean && i < 9) {
            MUST(hd_range_push(s->runtime, "prepare"));
            compute(100000);
            MUST(hd_range_pop(s->runtime));
        }
    }
    compute(100000);
    end(s);
}

const planted program = {"", NULL, run};
