/* reads_in_loop.c - the program reads each step's result into its own memory, and the call returns
 * late. The twin copies it into pinned memory. */
#include "scene.h"

#include <stdlib.h>

#define RESULT ((size_t)64 << 10)

static void run(scene *s)
{
    hd_buffer *result = make_buffer(s, 0, RESULT, "result"), *pinned = make_host_buffer(s, RESULT, "pinned");
    void *own = calloc(1, RESULT);
    must_hold(own != NULL, "there is memory");
    begin(s);
    for (int i = 0; i < 10; i++) {
        const hd_arg makes = hd_out(result);
        nap_with(s, 0, s->clean ? 50000 : 10000, &makes, 1);
        MUST(s->clean ? hd_copy(pinned, 0, result, 0, RESULT, NULL) : hd_read(result, 0, own, RESULT));
    }
    end(s);
    free(own);
}

const planted program = {"delay=cuStreamWriteValue32:1+=40000", NULL, run};
