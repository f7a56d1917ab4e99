/* nap_kernels.c - kernels that last as long as requested, and use almost no processor time.
 * Compiled by `heddle cc`.
 *
 * Always: consecutive naps of a lane end at the time given by the first one's begin and their
 * lengths. The processor may wake them late, but two devices with the same naps end together.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <time.h>
#include <heddle/kernel.h>

#define SECOND UINT64_C(1000000000)

/* plan[0]: when the previous nap should have ended; a nap of 0 ns begins without one. */
static void sleep_until_planned(uint64_t *plan, uint64_t ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t now = (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec, planned = plan[0];
    bool follows = now >= planned && now - planned < ns / 4;
    uint64_t end = (follows ? planned : now) + ns;
    plan[0] = ns > 0 ? end : 0;
    time.tv_sec = (time_t)(end / SECOND);
    time.tv_nsec = (long)(end % SECOND);
    while (ns > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

HD_KERNEL(nap, HD_INOUT(uint64_t, plan), HD_VALUE(uint64_t, ns))
{
    sleep_until_planned(plan, ns);
}

/* The same under another name. */
HD_KERNEL(late_nap, HD_INOUT(uint64_t, plan), HD_VALUE(uint64_t, ns))
{
    sleep_until_planned(plan, ns);
}
