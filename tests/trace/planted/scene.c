/* scene.c - see scene.h. */
#include "scene.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTINGS "driver=host placement=thread host_devices=2 host_memory=512M peers=trust cache=none "
#define ROOM 512
#define MOST_USES 8

void must(hd_status status, const char *call)
{
    if (status != HD_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, hd_status_name(status), hd_message());
        exit(2);
    }
}

void must_hold(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(2);
    }
}

void launch_late(scene *s, bool waits)
{
    hd_kernel *usual = s->nap, *late;
    MUST(hd_kernel_get(s->module, "late_nap", &late));
    s->nap = late;
    if (s->clean) {
        MUST(hd_wait(nap(s, 1, 0), HD_FOREVER));
    }
    begin(s);
    for (int i = 0; i < 8; i++) {
        s->nap = i >= 4 ? late : usual;
        hd_ticket ticket = nap(s, 1, 50000);
        if (i == 3 && waits) {
            MUST(hd_wait(ticket, HD_FOREVER));
        }
    }
    end(s);
}

void compute(unsigned us)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t end = (uint64_t)time.tv_nsec + (uint64_t)us * 1000;
    time.tv_sec += (time_t)(end / 1000000000);
    time.tv_nsec = (long)(end % 1000000000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

hd_lane *make_lane(scene *s, int device)
{
    hd_lane *lane;
    MUST(hd_lane_create(s->runtime, device, &lane));
    return lane;
}

hd_buffer *make_buffer(scene *s, int device, size_t bytes, const char *label)
{
    const hd_alloc_options options = {.size = sizeof options, .label = label};
    hd_buffer *buffer;
    MUST(hd_alloc_with(s->lanes[device], bytes, &options, &buffer));
    MUST(hd_fill(buffer, 0, 0, bytes, NULL));
    MUST(hd_buffer_wait(buffer, HD_READ_WRITE, HD_FOREVER));
    return buffer;
}

hd_buffer *make_host_buffer(scene *s, size_t bytes, const char *label)
{
    hd_buffer *buffer;
    void *content;
    MUST(hd_alloc_host(s->runtime, bytes, &buffer));
    MUST(hd_buffer_set_label(buffer, label));
    MUST(hd_map(buffer, HD_WRITE, &content));
    memset(content, 1, bytes);
    MUST(hd_unmap(buffer));
    return buffer;
}

hd_ticket nap_in(scene *s, hd_lane *lane, hd_buffer *plan, unsigned us, const hd_arg *uses, size_t n_uses)
{
    hd_arg args[2 + MOST_USES] = {hd_inout(plan), hd_u64((uint64_t)us * 1000 * (s->clean ? s->clean : 1))};
    must_hold(n_uses <= MOST_USES, "a launch has few uses");
    for (size_t i = 0; i < n_uses; i++) {
        args[2 + i] = hd_arg_implicit(uses[i]);
    }
    hd_ticket ticket;
    MUST(hd_launch(lane, s->nap, (hd_dims){.x = 1}, (hd_dims){.x = 1}, 0, args, 2 + n_uses, &ticket));
    return ticket;
}

hd_ticket nap_with(scene *s, int device, unsigned us, const hd_arg *uses, size_t n_uses)
{
    return nap_in(s, s->lanes[device], s->plans[device], us, uses, n_uses);
}

hd_ticket nap(scene *s, int device, unsigned us)
{
    return nap_with(s, device, us, NULL, 0);
}

void begin(scene *s)
{
    /* Some driver calls here are slow on purpose. With less detail, an engine inside one would note
     * the end of other work late. */
    const hd_trace_options options = {.size = sizeof options, .detail = HD_TRACE_FULL};
    MUST(hd_trace_start(s->runtime, s->file, &options));
}

void end(scene *s)
{
    hd_trace_info info = {.size = sizeof info};
    for (int d = 0; d < s->n_devices; d++) {
        MUST(hd_lane_wait(s->lanes[d], HD_FOREVER));
    }
    MUST(hd_trace_stop(s->runtime, &info));
    must_hold(info.records > 0 && info.dropped == 0, "the trace is whole");
}

/* The devices have loaded the kernel's code, and are idle. */
static void open_scene(scene *s)
{
    char settings[ROOM];
    const char *more = s->clean && program.clean_settings ? program.clean_settings : program.settings;
    int n = snprintf(settings, sizeof settings, "%s%s", SETTINGS, more);
    must_hold(n > 0 && n < ROOM, "the settings are short");
    const hd_options options = {.size = sizeof options, .settings = settings};
    MUST(hd_open(&options, &s->runtime));
    MUST(hd_module_load_file(s->runtime, HD_TEST_KERNELS, &s->module));
    MUST(hd_kernel_get(s->module, "nap", &s->nap));
    s->n_devices = hd_device_count(s->runtime);
    must_hold(s->n_devices <= MOST_DEVICES, "there is room for the lanes");
    for (int d = 0; d < s->n_devices; d++) {
        s->lanes[d] = make_lane(s, d);
        s->plans[d] = make_buffer(s, d, sizeof(uint64_t), "plan");
        MUST(hd_wait(nap(s, d, 0), HD_FOREVER));
    }
}

int main(int argc, char **argv)
{
    scene s = {.clean = argc == 4 && strcmp(argv[2], "clean") == 0 ? (unsigned)strtoul(argv[3], NULL, 10) : 0};
    if (argc < 2 || argc == 3 || argc > 4 || (argc == 4 && s.clean == 0)) {
        fprintf(stderr, "usage: %s FILE [clean TIMES]\n", argv[0]);
        return 1;
    }
    s.file = argv[1];
    open_scene(&s);
    program.run(&s);
    MUST(hd_close(s.runtime));
    return 0;
}
