/* allocates_in_loop.c - each step allocates a larger buffer than the step before, and mapping
 * memory is slow. The twin allocates before the loop. */
#include "scene.h"

#define N 6

static void run(scene *s)
{
    hd_buffer *early = s->clean ? make_buffer(s, 0, 16 * MIB * N, "scratch") : NULL;
    begin(s);
    for (size_t i = 0; i < N; i++) {
        hd_buffer *scratch = early ? early : NULL;
        if (!scratch) {
            const hd_alloc_options options = {.size = sizeof options, .label = "scratch"};
            MUST(hd_alloc_with(s->lanes[0], (i + 1) * 16 * MIB, &options, &scratch));
        }
        const hd_arg use = hd_out(scratch);
        nap_with(s, 0, s->clean ? 80000 : 20000, &use, 1);
        MUST(early ? HD_OK : hd_free(scratch));
    }
    end(s);
}

const planted program = {"delay=cuMemCreate:1+=10000", NULL, run};
