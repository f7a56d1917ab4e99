/* claim_scene.h - the scene in which cases of claims begin: a runtime with device, pinned and
 * unified memory full of ones.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: all three buffers contain the same number of words.
 */
#ifndef CONFORMANCE_CLAIM_SCENE_H
#define CONFORMANCE_CLAIM_SCENE_H

#include "conformance.h"

enum { words = 4096, bytes = words * 4 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *device, *pinned, *unified;
} scene;

static scene begin(const char *settings)
{
    scene s = {.runtime = conf_open(settings)};
    s.lane = conf_default_lane(s.runtime, 0);
    s.k = conf_builtins(s.runtime);
    CONF_OK(hd_alloc(s.lane, bytes, &s.device));
    CONF_OK(hd_alloc_host(s.runtime, bytes, &s.pinned));
    CONF_OK(hd_alloc_unified(s.lane, bytes, &s.unified));
    CONF_OK(hd_fill(s.device, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s.pinned, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s.unified, 0, 1, bytes, NULL));
    return s;
}

static void end(scene *s)
{
    hd_free(s->device);
    hd_free(s->pinned);
    hd_free(s->unified);
    conf_close(s->runtime);
}

#endif
