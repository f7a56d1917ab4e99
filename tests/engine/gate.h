/* gate.h - a gate inside a wrapped driver call that holds up an engine, so that a backlog forms.
 *
 * Threads: the test's thread opens and shuts it, the engine passes it. Locks: the gate's mutex.
 * Always: after the test shut the gate and await_engine_at_gate returned, the engine is inside that
 * call.
 */
#ifndef ENGINE_GATE_H
#define ENGINE_GATE_H

#include <pthread.h>
#include <stdbool.h>

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closed, reached;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};

static void set_gate(bool closed)
{
    pthread_mutex_lock(&gate.mutex);
    gate.closed = closed;
    gate.reached = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void await_engine_at_gate(void)
{
    pthread_mutex_lock(&gate.mutex);
    while (!gate.reached) {
        pthread_cond_wait(&gate.changed, &gate.mutex);
    }
    pthread_mutex_unlock(&gate.mutex);
}

static void pass_gate(void)
{
    pthread_mutex_lock(&gate.mutex);
    gate.reached = true;
    pthread_cond_broadcast(&gate.changed);
    while (gate.closed) {
        pthread_cond_wait(&gate.changed, &gate.mutex);
    }
    pthread_mutex_unlock(&gate.mutex);
}

#endif
