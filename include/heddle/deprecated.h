/* heddle/deprecated.h - functions of release 0.2 that have other names now.
 *
 * Each function here does exactly what the function with the new name does. Release 0.4 removes the
 * former names. heddle.h includes this header; a program that includes single headers must also
 * include this one. To compile without all former names, including those of constants and of
 * heddle.hpp, define HD_NO_DEPRECATED before the first include.
 *
 * Threads: any.
 * Blocking: as the functions with the new names.
 */
#ifndef HEDDLE_DEPRECATED_H
#define HEDDLE_DEPRECATED_H

#include <heddle/claim.h>
#include <heddle/module.h>

HD_BEGIN_DECLS

/* The former name of hd_lane_add_dependency.
 * Errors: HANDLE, ARGUMENT, LANE_FAILED, DEVICE_LOST, HOST_MEMORY, TIMEOUT. */
HD_API hd_status hd_lane_after(hd_lane *lane, hd_ticket ticket, hd_ticket *out);

/* The former name of hd_lane_run_native.
 * Errors: as hd_launch (but not those of kernels), UNSUPPORTED. */
HD_API hd_status hd_lane_call(hd_lane *lane, hd_lane_function function, void *context, const hd_arg *uses,
                              size_t n_uses, hd_ticket *out);

/* The former name of hd_launch_host.
 * Errors: as hd_claim_begin; SYSTEM, TIMEOUT, LIMIT. */
HD_API hd_status hd_host_call(hd_runtime *runtime, hd_host_function function, void *context, const hd_arg *uses,
                              size_t n_uses, hd_ticket *out);

/* The former name of hd_arg_implicit. */
#if defined(__GNUC__)
__attribute__((deprecated("its name is hd_arg_implicit now")))
#endif
static inline hd_arg
hd_also(hd_arg use)
{
    return hd_arg_implicit(use);
}

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#define HD_DEPRECATED_NAME(former, name)                                                                               \
    extern __typeof__(former) former __attribute__((deprecated("its name is " #name " now")))
HD_DEPRECATED_NAME(hd_lane_after, hd_lane_add_dependency);
HD_DEPRECATED_NAME(hd_lane_call, hd_lane_run_native);
HD_DEPRECATED_NAME(hd_host_call, hd_launch_host);
#undef HD_DEPRECATED_NAME
#pragma GCC diagnostic pop
#endif

HD_END_DECLS
#endif
