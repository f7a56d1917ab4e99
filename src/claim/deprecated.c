/* deprecated.c - former names of functions (heddle/deprecated.h), which programs of release 0.2
 * call.
 *
 * Threads, locks, blocking, and guarantees: as the functions with the new names.
 */
#include <heddle/deprecated.h>

hd_status hd_lane_after(hd_lane *lane, hd_ticket ticket, hd_ticket *out)
{
    return hd_lane_add_dependency(lane, ticket, out);
}

hd_status hd_lane_call(hd_lane *lane, hd_lane_function function, void *context, const hd_arg *uses, size_t n_uses,
                       hd_ticket *out)
{
    return hd_lane_run_native(lane, function, context, uses, n_uses, out);
}

hd_status hd_host_call(hd_runtime *runtime, hd_host_function function, void *context, const hd_arg *uses, size_t n_uses,
                       hd_ticket *out)
{
    return hd_launch_host(runtime, function, context, uses, n_uses, out);
}
