/* codes.c - names of the driver's codes, and which of them end a context.
 *
 * Any thread, no locks; names with a number in them belong to the thread (hdi_error_name).
 */
#include "base/error.h"
#include "driver/driver.h"

static const char *gone_name(hdcu_result code)
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
        return "what it shares with its worker process was damaged (by a stray write, or by a worker that breaks the "
               "rules)";
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
        return gone_name(code);
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
