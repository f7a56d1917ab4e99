/* small_copies.c - each step gets its input in 64 copies of 4 KiB, each of which costs a call. The
 * twin copies it in one piece. */
#include "scene.h"

#define N 64
#define PART ((size_t)4096)

static void run(scene *s)
{
    hd_buffer *source = make_host_buffer(s, 8 * MIB, "source");
    hd_buffer *batch = make_buffer(s, 0, 8 * MIB, "batch");
    begin(s);
    MUST(hd_copy(batch, 0, source, 0, 8 * MIB, NULL)); /* shows how fast the path is */
    for (int step = 0; step < 4; step++) {
        const hd_arg use = hd_in(batch);
        for (size_t i = 0; i < (s->clean ? 1 : N); i++) {
            MUST(hd_copy(batch, i * PART, source, i * PART, s->clean ? N * PART : PART, NULL));
        }
        nap_with(s, 0, s->clean ? 120000 : 20000, &use, 1);
    }
    end(s);
}

const planted program = {"delay=cuMemcpyHtoDAsync:1+=2000", NULL, run};
