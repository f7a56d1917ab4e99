/* scene.h - what the programs with a planted cause share: two host devices or more, a kernel that naps, and a trace of the steady part.
 *
 * A program is `planted_NAME FILE` and its twin `planted_NAME FILE clean`. It writes the trace to FILE and prints nothing. Causes last by
 * construction: kernels nap and the program does, so that a busy machine makes no cause longer than another one.
 * Driver calls that have to be slow are so by the option delay.
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
    bool clean; /* the twin */
    hd_runtime *runtime;
    hd_module *module;
    hd_kernel *nap;
    int n_devices; /* two, if the settings of the program have nothing else */
    hd_lane *lanes[MOST_DEVICES];
    hd_buffer *plans[MOST_DEVICES];
    const char *file; /* of the trace */
} scene;

/* What a program defines. */
typedef struct planted {
    const char *settings;       /* beside those that all have */
    const char *clean_settings; /* in place of them for the twin; NULL: the same */
    void (*run)(scene *s);      /* calls begin and end once each */
} planted;
extern const planted program;

/* Ends the program with the library's message where a call fails. */
#define MUST(call) must((call), #call)
void must(hd_status status, const char *call);
void must_hold(bool holds, const char *what);

/* The trace begins; it ends when everything submitted to the lanes of the scene is done. */
void begin(scene *s);
void end(scene *s);

hd_lane *make_lane(scene *s, int device);
hd_buffer *make_buffer(scene *s, int device, size_t bytes, const char *label);
hd_buffer *make_host_buffer(scene *s, size_t bytes, const char *label);

/* A kernel of so many microseconds (in the twin three times as many). It is in the device's lane, or in `lane`, with up to eight further uses. */
hd_ticket nap(scene *s, int device, unsigned us);
hd_ticket nap_with(scene *s, int device, unsigned us, const hd_arg *uses, size_t n_uses);
hd_ticket nap_in(scene *s, hd_lane *lane, hd_buffer *plan, unsigned us, const hd_arg *uses, size_t n_uses);

/* Four launches of the usual kernel on device 1, and four of one that the twin has launched before the trace. `waits`: for the former first. */
void launch_late(scene *s, bool waits);

/* The program computes for so long. */
void compute(unsigned us);

#endif
