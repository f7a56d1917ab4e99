/* first_launch_behind.c - as first_launch.c, but other work still runs when the slow driver call
 * begins, and ends during it.
 */
#include "scene.h"

static void run(scene *s)
{
    launch_late(s, false);
}

/* The same calls as in first_launch.c. */
const planted program = {"delay=cuLaunchKernel:7=900000", "delay=cuLaunchKernel:3=900000", run};
