/* large_reads.c - the program reads each step's result into its own memory; the result is so large
 * that the library reads many pieces. The twin copies it into pinned memory while the next step
 * computes.
 */
#include "scene.h"

#include <stdlib.h>

#define RESULT (16 * MIB)

static void run(scene *s)
{
    hd_buffer *results[2], *pinned[2];
    for (int i = 0; i < 2; i++) {
        results[i] = make_buffer(s, 0, RESULT, "result");
        pinned[i] = make_host_buffer(s, RESULT, "pinned");
    }
    void *own = calloc(1, RESULT);
    must_hold(own != NULL, "there is memory");
    begin(s);
    for (int i = 0; i < 10; i++) {
        hd_buffer *result = results[i % 2];
        const hd_arg makes = hd_out(result);
        nap_with(s, 0, s->clean ? 50000 : 20000, &makes, 1);
        MUST(s->clean ? hd_copy(pinned[i % 2], 0, result, 0, RESULT, NULL) : hd_read(result, 0, own, RESULT));
    }
    end(s);
    free(own);
}

const planted program = {"delay=cuMemcpyDtoHAsync:1+=2000", "", run};
