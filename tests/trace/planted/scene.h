/* scene.h - shared by the programs with a planted cause: two host devices or more, a kernel that
 * naps, and a trace of the steady part.
 *
 * Run `planted_NAME FILE`, and its twin as `planted_NAME FILE clean TIMES`. It writes the trace to
 * FILE and prints nothing. Causes last by construction: kernels and program sleep, so a busy
 * machine does not prolong one cause more than another. The option delay makes driver calls slow.
 *
 * Threads: one. Locks: none.
 */
#ifndef TRACE_PLANTED_SCENE_H
#define TRACE_PLANTED_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle.h>

#define MIB ((size_t)1 << 20)
#define MOST_DEVICES 4

typedef struct scene {
    unsigned clean; /* not 0: this is the twin, whose naps last this many times as long */
    hd_runtime *runtime;
    hd_module *module;
    hd_kernel *nap;
    int n_devices; /* two, unless the program's settings change it */
    hd_lane *lanes[MOST_DEVICES];
    hd_buffer *plans[MOST_DEVICES];
    const char *file; /* the trace */
} scene;

/* A program defines this. */
typedef struct planted {
    const char *settings;       /* in addition to those of all programs */
    const char *clean_settings; /* instead of them for the twin; NULL: the same */
    void (*run)(scene *s);      /* calls begin and end once each */
} planted;
extern const planted program;

/* If the call fails, ends the program with the library's message. */
#define MUST(call) must((call), #call)
void must(hd_status status, const char *call);
void must_hold(bool holds, const char *what);

/* begin starts the trace; end stops it once everything submitted to the scene's lanes is done. */
void begin(scene *s);
void end(scene *s);

hd_lane *make_lane(scene *s, int device);
hd_buffer *make_buffer(scene *s, int device, size_t bytes, const char *label);
hd_buffer *make_host_buffer(scene *s, size_t bytes, const char *label);

/* Launches a kernel of this many microseconds (in the twin three times as many). Uses the device's
 * lane or `lane`, and up to eight further uses. */
hd_ticket nap(scene *s, int device, unsigned us);
hd_ticket nap_with(scene *s, int device, unsigned us, const hd_arg *uses, size_t n_uses);
hd_ticket nap_in(scene *s, hd_lane *lane, hd_buffer *plan, unsigned us, const hd_arg *uses, size_t n_uses);

/* Launches the usual kernel four times on device 1, then another one four times, which the twin has
 * launched before the trace. With `waits`, waits for the former first. */
void launch_late(scene *s, bool waits);

/* Computes on the host for this long. */
void compute(unsigned us);

#endif
