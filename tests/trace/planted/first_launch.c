/* first_launch.c - a kernel is launched for the first time in the middle, and the driver takes long for that. The twin launches it once before.
 * Nothing runs then.
 */
#include "scene.h"

static void run(scene *s)
{
    launch_late(s, true);
}

/* Both devices launch the usual kernel once, and it is launched four times before the late one. */
const planted program = {"delay=cuLaunchKernel:7=900000", "delay=cuLaunchKernel:3=900000", run};
