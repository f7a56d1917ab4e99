/* waits_for_copy.c - each step copies into the only buffer, which the previous step reads, and
 * copies are slow. The twin uses two buffers, so copies and kernels overlap. */
#include "scene.h"

static void run(scene *s)
{
    hd_buffer *source = make_host_buffer(s, MIB, "source");
    hd_buffer *batch[2];
    for (int i = 0; i < 2; i++) {
        batch[i] = make_buffer(s, 0, MIB, "batch");
        MUST(hd_copy(batch[i], 0, source, 0, MIB, NULL));
        MUST(hd_buffer_wait(batch[i], HD_READ_WRITE, HD_FOREVER));
    }
    begin(s);
    for (int i = 0; i < 8; i++) {
        hd_buffer *now = batch[s->clean ? i % 2 : 0];
        const hd_arg use = hd_in(now);
        if (!s->clean || i > 0) {
            MUST(hd_copy(now, 0, source, 0, MIB, NULL));
        }
        nap_with(s, 0, s->clean ? 80000 : 20000, &use, 1);
    }
    end(s);
}

const planted program = {"delay=cuMemcpyHtoDAsync:1+=60000", NULL, run};
