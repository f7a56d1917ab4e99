/* turns_by_data.c - both devices use all of "grid" in each step, so they wait for each other. The
 * twin names the half that each device uses. */
#include "scene.h"

#define HALF 4096

static void run(scene *s)
{
    hd_buffer *grid = make_buffer(s, 0, 2 * HALF, "grid");
    const hd_arg whole = hd_inout(grid);
    MUST(hd_wait(nap_with(s, 1, 0, &whole, 1), HD_FOREVER)); /* synchronizes the devices */
    begin(s);
    for (int i = 0; i < 12; i++) {
        const hd_arg use = s->clean ? hd_inout_range(grid, (size_t)(i % 2) * HALF, HALF) : whole;
        nap_with(s, i % 2, 50000, &use, 1);
    }
    end(s);
}

const planted program = {"", NULL, run};
