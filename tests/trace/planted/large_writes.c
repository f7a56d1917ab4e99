/* large_writes.c - the program writes each step's input from its own memory; the input is so large
 * that the library writes many pieces. The twin copies it from pinned memory while the previous
 * step computes.
 */
#include "scene.h"

#include <stdlib.h>

#define INPUT (16 * MIB)

static void run(scene *s)
{
    hd_buffer *inputs[2], *pinned[2];
    for (int i = 0; i < 2; i++) {
        inputs[i] = make_buffer(s, 0, INPUT, "input");
        pinned[i] = make_host_buffer(s, INPUT, "pinned");
    }
    void *own = calloc(1, INPUT);
    must_hold(own != NULL, "there is memory");
    begin(s);
    for (int i = 0; i < 10; i++) {
        hd_buffer *input = inputs[s->clean ? i % 2 : 0];
        const hd_arg needs = hd_in(input);
        MUST(s->clean ? hd_copy(input, 0, pinned[i % 2], 0, INPUT, NULL) : hd_write(input, 0, own, INPUT));
        nap_with(s, 0, s->clean ? 50000 : 20000, &needs, 1);
    }
    end(s);
    free(own);
}

const planted program = {"delay=cuMemcpyHtoDAsync:1+=2000", "", run};
