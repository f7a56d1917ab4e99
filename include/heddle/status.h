/* heddle/status.h - what calls return, and how to learn more about a failure.
 *
 * Most functions that can fail return an hd_status: HD_OK (0), or a negative value. If a function
 * returns another type, its comment states which result reports a failure. Results that a call
 * returns through pointers come last in the argument list, and the call writes them only if it
 * succeeds. The last rule does not hold for copies into memory of the program (heddle/copy.h).
 *
 * Each failure leaves one line of text for the calling thread (hd_message), and the same facts as
 * fields (hd_last_error). A call that succeeds changes neither of them. The library never aborts
 * the program. The library prints only the texts that an option asks for (such as `stats`). One
 * exception is a line about HEDDLE_... variables in the environment that name no option (option
 * environment_check).
 *
 * Threads: any. Each thread keeps its own last failure.
 * Blocking: never.
 */
#ifndef HEDDLE_STATUS_H
#define HEDDLE_STATUS_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/version.h>

HD_BEGIN_DECLS

/* All statuses: X(name, value, text) for each. */
#define HD_STATUS_MAP(X)                                                                                               \
    X(OK, 0, "success")                                                                                                \
    X(ERROR_ARGUMENT, -1, "invalid argument")                                                                          \
    X(ERROR_HANDLE, -2, "handle is null, freed, or not of this kind or runtime")                                       \
    X(ERROR_MEMORY, -3, "out of device memory")                                                                        \
    X(ERROR_HOST_MEMORY, -4, "out of host memory")                                                                     \
    X(ERROR_RANGE, -5, "bytes outside the buffer")                                                                     \
    X(ERROR_ACCESS, -6, "this memory or argument does not allow this use")                                             \
    X(ERROR_UNREACHABLE, -7, "the device cannot reach this memory")                                                    \
    X(ERROR_LIMIT, -8, "more than the device or the library allows")                                                   \
    X(ERROR_TIMEOUT, -9, "the time limit passed")                                                                      \
    X(ERROR_NO_DEVICE, -10, "no such device")                                                                          \
    X(ERROR_NO_DRIVER, -11, "the driver is missing, too old or unusable")                                              \
    X(ERROR_IMAGE, -12, "the module image cannot be used")                                                             \
    X(ERROR_NOT_FOUND, -13, "not found")                                                                               \
    X(ERROR_FAILED, -14, "an operation failed after it was submitted")                                                 \
    X(ERROR_LANE_FAILED, -15, "the lane refuses work since an operation in it failed")                                 \
    X(ERROR_DEVICE_LOST, -16, "the device is lost")                                                                    \
    X(ERROR_DRIVER, -17, "a driver call failed")                                                                       \
    X(ERROR_SYSTEM, -18, "an operating-system call failed")                                                            \
    X(ERROR_OPTION, -19, "unknown option or bad option value")                                                         \
    X(ERROR_UNSUPPORTED, -20, "not supported by this device or driver")

/* The result of a call. HD_STATUS_MAP lists all values, each with its text. */
typedef enum hd_status {
#define HD_STATUS_ENUM(name, value, text) HD_##name = value,
    HD_STATUS_MAP(HD_STATUS_ENUM)
#undef HD_STATUS_ENUM
} hd_status;

/* The facts of a failure. The fields describe the operation that failed. After a TIMEOUT, the
 * fields describe the unfinished operation at the end of the chain of waits. After the loss of a
 * device, the message lists the operations that may have caused the loss, and the fields describe
 * the likeliest one. Fields that do not apply are -1 (numbers), 0 (ticket, driver_code) or ""
 * (strings). */
typedef struct hd_error {
    size_t size; /* set by the caller to sizeof(hd_error) */
    hd_status status;
    int driver_code; /* the driver's own code (a CUresult); 0: the driver reported nothing */
    int device;      /* device index in the runtime */
    int lane;        /* lane number on that device */
    uint64_t ticket; /* sequence number of the failed operation in that lane */
    /* "launch", "copy", "fill", "matrix product", "call", "wait" or "claim", or the driver entry
     * point that failed */
    char operation[64];
    char kernel[128];  /* kernel name, for a launch */
    char message[512]; /* the line that hd_message() returns */
} hd_error;

/* Returns the name of a status, such as "HD_ERROR_MEMORY"; a static string. For an unknown value,
 * the name is "HD_ERROR_UNKNOWN". Cannot fail. */
HD_API const char *hd_status_name(hd_status status);

/* Describes a status in a few words; a static string. For an unknown value, the text is "unknown
 * status". Cannot fail. */
HD_API const char *hd_status_text(hd_status status);

/* Returns the calling thread's last failure in one line, with a remedy; "" if there was none. The
 * string belongs to the library and stays valid until the same thread's next failure. Cannot
 * fail. */
HD_API const char *hd_message(void);

/* Makes `message` the calling thread's last failure, with this status, and returns the status. For
 * layers on top of Heddle, such as heddle/mpi.h and language bindings: their failures then read
 * like those of Heddle. The call copies at most 511 bytes of the message; control characters become
 * spaces. If `message` is NULL, the text of the status takes its place. HD_OK changes nothing.
 * Errors: ARGUMENT (`status` is no hd_status). */
HD_API hd_status hd_error_set(hd_status status, const char *message);

/* Writes the fields of the calling thread's last failure to *out, at most out->size bytes. If `out`
 * is NULL, nothing happens. Cannot fail. */
HD_API void hd_last_error(hd_error *out);

HD_END_DECLS
#endif
