/* scene.h - a trace read from a script, for tests of one part of the analysis.
 *
 * Threads: one. Locks: none.
 */
#ifndef TEST_TRACE_SCENE_H
#define TEST_TRACE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include "cli/trace/model.h"
#include "trace/script.h"

/* Both device clocks equal the host's clock. */
#define TWO_DEVICES                                                                                                    \
    "trace devices=2 detail=full\n"                                                                                    \
    "device 0 name=first\n"                                                                                            \
    "device 1 name=second\n"                                                                                           \
    "lane 0.1 kind=program\n"                                                                                          \
    "lane 1.1 kind=program\n"                                                                                          \
    "lane 0.2 kind=in\n"                                                                                               \
    "lane 1.2 kind=in\n"                                                                                               \
    "lane 0.3 kind=peer\n"                                                                                             \
    "lane 1.3 kind=peer\n"                                                                                             \
    "lane 0.4 kind=claim\n"                                                                                            \
    "name kernel 1 axpy\n"                                                                                             \
    "name kernel 2 reduce\n"                                                                                           \
    "name label 7 weights\n"                                                                                           \
    "name range 3 load\n"                                                                                              \
    "clock 0 at=0 own=0\n"                                                                                             \
    "clock 1 at=0 own=0\n"

static inline void scene_read(const char *text, trace *out)
{
    script s;
    char error[512] = "";
    script_begin(&s);
    script_run(&s, text);
    if (!trace_read_bytes(s.records, s.n * sizeof *s.records, out, error)) {
        fail_msg("%s", error);
    }
    script_release(&s);
}

/* A lane does one thing after the other, by spans and by the host's observations. */
static inline void scene_check_lanes(const trace *t)
{
    for (size_t i = 1; i < t->n_stretches && t->n_activities == 0; i++) {
        const trace_stretch *before = &t->stretches[i - 1], *x = &t->stretches[i];
        assert_true(before->lane < x->lane || before->ended <= x->began);
    }
}

/* An operation that the host saw done has ended. */
static inline void scene_check_ends(const trace *t)
{
    for (size_t i = 0; i < t->n_ops; i++) {
        const trace_op *op = &t->ops[i];
        assert_true(op->ended == TRACE_UNSEEN || op->began <= op->ended);
        assert_true(op->ended == TRACE_UNSEEN || op->done == TRACE_UNSEEN || op->ended <= op->done);
    }
}

/* The pieces of the window follow each other without gaps, and the sums match. */
static inline void scene_check_split(const trace *t)
{
    for (int d = 0; d < t->n_devices; d++) {
        const trace_device *x = &t->devices[d];
        int64_t at = x->begin, states[3] = {0, 0, 0}, causes[TRACE_CAUSES] = {0}, devices = 0;
        for (size_t i = 0; i < x->n_pieces; i++) {
            const trace_piece *p = &x->pieces[i];
            assert_int_equal(p->begin, at);
            assert_true(p->end > p->begin);
            states[p->state] += p->end - p->begin;
            if (p->state == TRACE_IDLE) {
                assert_true(p->cause < TRACE_CAUSES);
                causes[p->cause] += p->end - p->begin;
            }
            at = p->end;
        }
        assert_int_equal(at, x->end);
        assert_int_equal(states[TRACE_COMPUTE], x->compute);
        assert_int_equal(states[TRACE_TRANSFER], x->transfer);
        assert_int_equal(states[TRACE_IDLE], x->idle);
        assert_int_equal(x->compute + x->transfer + x->idle, x->end - x->begin);
        int64_t sum = 0;
        for (int c = 0; c < TRACE_CAUSES; c++) {
            assert_int_equal(causes[c], x->cause[c]);
            sum += x->cause[c];
        }
        assert_int_equal(sum, x->idle);
        for (int e = 0; e < 32; e++) {
            devices += x->for_device[e];
        }
        assert_int_equal(devices, x->cause[TRACE_CAUSE_DEVICE]);
        assert_true(x->overlap <= x->compute);
    }
    scene_check_lanes(t);
    scene_check_ends(t);
    int64_t along = 0;
    for (int i = 0; i < TRACE_ALONG; i++) {
        assert_true(t->along[i] >= 0);
        along += t->along[i];
    }
    assert_int_equal(along, t->end - t->begin);
}

static inline const trace_finding *scene_find(const trace *t, const char *id)
{
    for (size_t i = 0; i < t->n_findings; i++) {
        if (strcmp(t->findings[i].id, id) == 0) {
            return &t->findings[i];
        }
    }
    return NULL;
}

#endif
