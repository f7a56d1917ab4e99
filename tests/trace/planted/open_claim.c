/* open_claim.c - the program holds a claim on bytes that the device's next step needs. The twin
 * claims the other half of them. */
#include "scene.h"

#define HALF 4096

static void run(scene *s)
{
    hd_buffer *weights = make_buffer(s, 0, 2 * HALF, "weights");
    begin(s);
    for (int i = 0; i < 8; i++) {
        const hd_arg needs = hd_in_range(weights, 0, HALF);
        const hd_arg takes = hd_inout_range(weights, s->clean ? HALF : 0, HALF);
        const hd_claim_options options = {.size = sizeof options, .label = "reload"};
        hd_claim *claim;
        MUST(hd_claim_begin_with(s->runtime, &takes, 1, &options, &claim));
        nap_with(s, 0, s->clean ? 60000 : 20000, &needs, 1);
        MUST(hd_claim_wait(claim, HD_FOREVER));
        compute(s->clean ? 20000 : 60000);
        MUST(hd_claim_end(claim, HD_OK));
    }
    end(s);
}

const planted program = {"", NULL, run};
