/* device_loss.c - the worker of device 1 is killed in the middle, and the device comes back. The
 * twin's worker survives. */
#include "scene.h"

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

static void lose(scene *s)
{
    hd_device_info info = {.size = sizeof info};
    struct pollfd losses = {.events = POLLIN};
    MUST(hd_loss_descriptor(s->runtime, &losses.fd));
    MUST(hd_device_get_info(s->runtime, 1, &info));
    must_hold(info.worker_pid > 0 && kill((pid_t)info.worker_pid, SIGKILL) == 0, "there is a worker");
    must_hold(poll(&losses, 1, -1) == 1, "the loss is seen");
    MUST(hd_device_restart(s->runtime, 1));
    MUST(hd_free(s->plans[1]));
    s->plans[1] = make_buffer(s, 1, sizeof(uint64_t), "plan");
}

static void run(scene *s)
{
    begin(s);
    for (int i = 0; i < 8; i++) {
        hd_ticket ticket = nap(s, 1, s->clean ? 50000 : 20000);
        if (i == 3 && !s->clean) {
            MUST(hd_wait(ticket, HD_FOREVER));
            lose(s);
        }
    }
    end(s);
}

const planted program = {"placement=process delay=cuInit:1+=400000", NULL, run};
