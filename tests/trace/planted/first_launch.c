/* first_launch.c - the first launch of a kernel comes in the middle, while nothing runs, and takes
 * the driver long. The twin launches the kernel once before.
 */
#include "scene.h"

static void run(scene *s)
{
    launch_late(s, true);
}

/* Both devices launch the usual kernel once, and four more launches precede the late kernel. */
const planted program = {"delay=cuLaunchKernel:7=900000", "delay=cuLaunchKernel:3=900000", run};
