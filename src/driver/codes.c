/* codes.c - names of the driver's codes, and which of them end a context.
 *
 * Any thread, no locks; unknown codes are named in thread-local storage.
 */
#include <stdio.h>
#include "driver/driver.h"

static const char *gone_name(hdcu_result code, char *text, size_t bytes)
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
    default:
        if (code <= HDI_GONE_SIGNAL) {
            snprintf(text, bytes, "its worker process was killed by signal %d", HDI_GONE_SIGNAL - code);
        } else {
            snprintf(text, bytes, "its worker process ended with status %d", HDI_GONE_EXIT - code);
        }
        return text;
    }
}

const char *hdi_driver_code_name(hdcu_result code)
{
    static _Thread_local char unknown[96];
    if (code < 0) {
        return gone_name(code, unknown, sizeof unknown);
    }
    switch (code) {
#define CODE_CASE(name, value)                                                                                         \
    case value:                                                                                                        \
        return "CUDA_" #name;
        HDCU_RESULT_MAP(CODE_CASE)
#undef CODE_CASE
    default:
        snprintf(unknown, sizeof unknown, "CUDA_ERROR_%d", code);
        return unknown;
    }
}

bool hdi_driver_code_is_fatal(hdcu_result code)
{
    if (code < 0) {
        return true;
    }
    switch (code) {
    case HDCU_ERROR_DEINITIALIZED:
    case HDCU_ERROR_ECC_UNCORRECTABLE:
    case HDCU_ERROR_NVLINK_UNCORRECTABLE:
    case 226: /* CUDA_ERROR_CONTAINED: an ECC error that hit this context only */
    case HDCU_ERROR_ILLEGAL_ADDRESS:
    case HDCU_ERROR_LAUNCH_TIMEOUT:
    case HDCU_ERROR_CONTEXT_IS_DESTROYED:
    case HDCU_ERROR_ASSERT:
    case HDCU_ERROR_HARDWARE_STACK_ERROR:
    case HDCU_ERROR_ILLEGAL_INSTRUCTION:
    case HDCU_ERROR_MISALIGNED_ADDRESS:
    case HDCU_ERROR_INVALID_ADDRESS_SPACE:
    case HDCU_ERROR_INVALID_PC:
    case HDCU_ERROR_LAUNCH_FAILED:
    case 810: /* CUDA_ERROR_MPS_CLIENT_TERMINATED */
    case 721: /* CUDA_ERROR_TENSOR_MEMORY_LEAK */
        return true;
    default:
        return false;
    }
}
