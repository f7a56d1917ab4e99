/* refused.h - makes the Nth call of the system or of the driver fail once, on the thread that asks
 * for it.
 *
 * The linker replaces the functions by the wrappers, in the library too (tests/CMakeLists.txt). So
 * a test that includes this file names them.
 * Threads: each counts for itself. Locks: none.
 */
#ifndef CONFORMANCE_REFUSED_H
#define CONFORMANCE_REFUSED_H

#include <errno.h>
#include "conformance.h"
#include "support/changed_driver.h"

/* the call that fails, counted from now; 0: none fails */
static _Thread_local int fails_in, fails_thread_in;

static bool fails(int *in)
{
    return *in > 0 && --*in == 0;
}

/* Driver calls by which a claim begins on a stream. */
#define REFUSED_DRIVER_CALLS(X)                                                                                        \
    X(cuEventCreate, (hdcu_event * event, unsigned flags), (event, flags))                                             \
    X(cuEventRecord, (hdcu_event event, hdcu_stream stream), (event, stream))                                          \
    X(cuStreamWaitEvent, (hdcu_stream stream, hdcu_event event, unsigned flags), (stream, event, flags))               \
    X(cuStreamIsCapturing, (hdcu_stream stream, int *out), (stream, out))                                              \
    X(cuStreamGetCtx, (hdcu_stream stream, hdcu_context * out), (stream, out))

#define REFUSED_CALL(name, parameters, arguments)                                                                      \
    static hdcu_result refused_##name parameters                                                                       \
    {                                                                                                                  \
        return fails(&fails_in) ? HDCU_ERROR_OUT_OF_MEMORY : real->name arguments;                                     \
    }
REFUSED_DRIVER_CALLS(REFUSED_CALL)
#undef REFUSED_CALL

static void change_table(hdi_driver *table)
{
#define REFUSED_ENTRY(name, parameters, arguments) table->name = refused_##name;
    REFUSED_DRIVER_CALLS(REFUSED_ENTRY)
#undef REFUSED_ENTRY
}

#endif
