/* failed_call.c - a function of hd_lane_run_native fails in the middle, later work of the lane
 * never runs, and the program does not check. The twin's function succeeds. */
#include "scene.h"

#include <errno.h>
#include <semaphore.h>

typedef struct call {
    sem_t behind; /* posted once the later work is submitted, since a failed lane refuses work */
    bool fails;
} call;

static hd_status try_it(void *stream, void *context)
{
    (void)stream;
    call *c = context;
    while (sem_wait(&c->behind) && errno == EINTR) {
    }
    return c->fails ? HD_ERROR_UNSUPPORTED : HD_OK;
}

static void run(scene *s)
{
    call c = {.fails = !s->clean};
    must_hold(sem_init(&c.behind, 0, 0) == 0, "there is a semaphore");
    begin(s);
    for (int i = 0; i < 8; i++) {
        if (i == 4) {
            MUST(hd_lane_run_native(s->lanes[0], try_it, &c, NULL, 0, NULL));
        }
        for (int d = 0; d < s->n_devices; d++) {
            nap(s, d, 50000);
        }
    }
    must_hold(sem_post(&c.behind) == 0, "the function goes on");
    if (c.fails) {
        must_hold(hd_lane_wait(s->lanes[0], HD_FOREVER) == HD_ERROR_FAILED, "it failed");
        MUST(hd_lane_reset(s->lanes[0], HD_FOREVER));
    }
    end(s);
    sem_destroy(&c.behind);
}

const planted program = {"", NULL, run};
