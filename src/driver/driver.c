/* driver.c - functions for the drivers of all providers: the names and meanings of codes, and the
 * rule that no driver survives a fork.
 *
 * Threads: any; names that contain a number belong to the thread (hdi_error_name). Locks: none.
 * Blocking: none.
 * Always: if a process forks while a driver is started, or being started, the child sets `forked`
 * before fork returns in it. The child then calls no driver and takes no lock of a driver. Threads
 * that do not exist in the child may hold such locks.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "base/error.h"
#include "driver/driver.h"

/* ---- codes ---- */

static const char *driver_gone_name(hdcu_result code)
{
    switch (code) {
    case HDI_GONE_STUCK:
        return "its worker process gave no sign of life for the option worker_timeout (stopped, or inside a driver "
               "call)";
    case HDI_GONE_UNANSWERED:
        return "its worker process did not answer a request within the option worker_timeout";
    case HDI_GONE_WATCHDOG:
        return "an operation did not finish within the option watchdog";
    case HDI_GONE_CLOSED:
        return "it has no worker process";
    case HDI_GONE_CORRUPTED:
        return "the memory shared with its worker process was damaged (by a stray write, or by a worker "
               "that breaks the rules)";
    default:
        if (code <= HDI_GONE_SIGNAL) {
            return hdi_error_name("its worker process was killed by signal %d", HDI_GONE_SIGNAL - code);
        }
        return hdi_error_name("its worker process ended with status %d", HDI_GONE_EXIT - code);
    }
}

const char *hdi_driver_code_name(hdcu_result code)
{
    if (code < 0) {
        return driver_gone_name(code);
    }
    switch (code) {
#define CODE_CASE(name, value)                                                                                         \
    case value:                                                                                                        \
        return "CUDA_" #name;
        HDCU_RESULT_MAP(CODE_CASE)
#undef CODE_CASE
    default:
        return hdi_error_name("CUDA_ERROR_%d", code);
    }
}

bool hdi_driver_code_is_of_kernel(hdcu_result code)
{
    switch (code) {
    case HDCU_ERROR_ILLEGAL_ADDRESS:
    case HDCU_ERROR_LAUNCH_TIMEOUT:
    case HDCU_ERROR_ASSERT:
    case HDCU_ERROR_HARDWARE_STACK_ERROR:
    case HDCU_ERROR_ILLEGAL_INSTRUCTION:
    case HDCU_ERROR_MISALIGNED_ADDRESS:
    case HDCU_ERROR_INVALID_ADDRESS_SPACE:
    case HDCU_ERROR_INVALID_PC:
    case HDCU_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

const char *hdi_driver_code_advice(hdcu_result code)
{
    return code == HDCU_ERROR_OPERATING_SYSTEM
               ? "; the system refused a thread, memory or a descriptor (ulimit -u, ulimit -v, ulimit -n)"
               : "";
}

bool hdi_driver_code_is_fatal(hdcu_result code)
{
    if (code < 0 || hdi_driver_code_is_of_kernel(code)) {
        return true;
    }
    switch (code) {
    case HDCU_ERROR_DEINITIALIZED:
    case HDCU_ERROR_ECC_UNCORRECTABLE:
    case HDCU_ERROR_NVLINK_UNCORRECTABLE:
    case 226: /* CUDA_ERROR_CONTAINED: an ECC error that hit this context only */
    case HDCU_ERROR_CONTEXT_IS_DESTROYED:
    case 810: /* CUDA_ERROR_MPS_CLIENT_TERMINATED */
    case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK */
        return true;
    default:
        return false;
    }
}

/* ---- forks ---- */

/* The number of starts that succeeded or are under way. Relaxed: the handler runs on the thread
 * that forked, which sees its own starts and those that it waited for.
 * A start that another thread begins during the fork may count or not. */
static _Atomic unsigned starts;
/* Set in the forked child, while it runs one thread; never cleared. */
static _Atomic bool forked;

static void driver_in_forked_child(void)
{
    if (atomic_load_explicit(&starts, memory_order_relaxed) > 0) {
        atomic_store_explicit(&forked, true, memory_order_relaxed);
    }
}

bool hdi_driver_was_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

static int watch_result;

static void driver_watch_forks(void)
{
    watch_result = pthread_atfork(NULL, NULL, driver_in_forked_child);
}

bool hdi_driver_start_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, driver_watch_forks);
    if (watch_result != 0) {
        return false;
    }
    atomic_fetch_add_explicit(&starts, 1, memory_order_relaxed);
    return true;
}

void hdi_driver_start_undo(void)
{
    atomic_fetch_sub_explicit(&starts, 1, memory_order_relaxed);
}
