/* uses.c - checks the buffers and ranges that the program passes to a claim or a call, and turns
 * them into uses of a submission.
 *
 * Threads: any. Locks: none. Blocking: the first use of another device's memory waits for the test
 * of that pair of devices.
 * Always: these checks change nothing. The facts may change after these checks, so the submission
 * checks the handles again.
 */
#include "base/error.h"
#include "claim/claim.h"
#include "transfer/route.h"

/* Adds the number of the use to the message of a failure. */
static hd_status __attribute__((cold)) claim_use_fail_about(hd_status status, size_t index)
{
    return hdi_fail_about(status, "use %zu", index);
}

static hd_status claim_use_from(hd_runtime *rt, int device, const hd_arg *arg, size_t index, hdi_use *use)
{
    uint32_t access = arg->access & 0xff; /* the higher bits are the type of the elements */
    if (arg->kind != HD_ARG_BUFFER || access == 0 || access > 3) {
        return hdi_fail(HD_ERROR_ARGUMENT, "use %zu is no buffer: make it with hd_in, hd_out or hd_inout", index);
    }
    struct hd_buffer *b = hdi_buffer_from_handle(arg->value.buffer);
    if (!b) {
        return claim_use_fail_about(hdi_buffer_refused(arg->value.buffer), index);
    }
    if (b->runtime != rt) {
        return hdi_fail(HD_ERROR_HANDLE, "use %zu: the buffer is of another runtime", index);
    }
    uint64_t losses = hdi_buffer_losses(b), bytes = b->bytes;
    if (arg->offset >= bytes || arg->size > bytes - arg->offset) {
        return hdi_buffer_is_gone(b, arg->value.buffer)
                   ? claim_use_fail_about(hdi_buffer_refused(arg->value.buffer), index)
                   : hdi_fail(HD_ERROR_RANGE, "use %zu: bytes %zu + %zu of a buffer of %llu", index, arg->offset,
                              arg->size, (unsigned long long)bytes);
    }
    /* the owner is read once, since another buffer may take over the structure */
    int owner = b->owner;
    if (device >= 0 && !hdi_buffer_is_reached(b, owner, device)) {
        hd_status status = hdi_buffer_is_gone(b, arg->value.buffer) ? hdi_buffer_refused(arg->value.buffer)
                                                                    : hdi_buffer_reach_again(b, owner, device);
        if (status) {
            return claim_use_fail_about(status, index);
        }
    }
    if (losses == HDI_LOST) {
        return claim_use_fail_about(hdi_buffer_refused(arg->value.buffer), index);
    }
    uint64_t high = arg->size ? arg->offset + arg->size : bytes;
    *use = (hdi_use){.buffer = b,
                     .losses = losses,
                     .word = hdi_self_word(arg->value.buffer),
                     .low = arg->offset,
                     .high = high,
                     .read = (arg->access & HD_READ) != 0,
                     .write = (arg->access & HD_WRITE) != 0,
                     .whole = high - arg->offset == bytes,
                     .host = device < 0};
    return HD_OK;
}

hd_status hdi_uses_from(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses)
{
    if (!args && n_args) {
        return hdi_fail(HD_ERROR_ARGUMENT, "uses is null");
    }
    if (n_args > HDI_USES_OF_ONE) {
        return hdi_fail(HD_ERROR_LIMIT, "%zu uses, at most %d; join neighbouring ranges", n_args, HDI_USES_OF_ONE);
    }
    hd_status status = HD_OK;
    for (size_t i = 0; i < n_args && !status; i++) {
        status = claim_use_from(rt, device, &args[i], i, &uses[i]);
    }
    return status;
}

hd_status hdi_uses_of_runtime(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses)
{
    /* hdi_uses_from reads nothing of the runtime before it finds a live buffer of that runtime.
     * Such a buffer proves that the runtime is open. */
    hd_status status = n_args ? hdi_uses_from(rt, device, args, n_args, uses) : HD_OK;
    return (status || !n_args) && !hdi_runtime_is_open(rt) ? hdi_runtime_refused(rt) : status;
}
