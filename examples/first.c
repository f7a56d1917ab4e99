/* first.c - y += 2 x, on the first device of the machine: a GPU, or a host device where there is none. */
#include <heddle.h>
#include <stdio.h>

enum { N = 1 << 20 };
static float x[N], y[N];

static int run(hd_runtime *runtime)
{
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = 1;
    }
    hd_lane *lane;
    hd_buffer *dx, *dy;
    hd_module *builtin;
    hd_kernel *axpy;
    if (hd_lane_get_default(runtime, 0, &lane) || hd_alloc(lane, sizeof x, &dx) || hd_alloc(lane, sizeof y, &dy) ||
        hd_module_get_builtin(runtime, &builtin) || hd_kernel_get(builtin, "hd_axpy_f32", &axpy)) {
        return 1;
    }

    /* Nothing here waits: the launch is ordered after the writes because it names their buffers. hd_read waits for the launch. */
    const hd_arg args[] = {hd_inout(dy), hd_in(dx), hd_f32(2), hd_u64(N)};
    const hd_dims grid = {.x = N / 256}, block = {.x = 256};
    if (hd_write(dx, 0, x, sizeof x) || hd_write(dy, 0, y, sizeof y) ||
        hd_launch(lane, axpy, grid, block, 0, args, 4, NULL) || hd_read(dy, 0, y, sizeof y)) {
        return 1;
    }
    printf("y[1000] = %g\n", (double)y[1000]);
    return y[1000] == 2001 ? 0 : 1; /* hd_close releases lane and buffers */
}

int main(void)
{
    hd_runtime *runtime = NULL;
    int failed = hd_open(NULL, &runtime) || run(runtime);
    if (failed) {
        fprintf(stderr, "first: %s\n", hd_message());
    }
    hd_close(runtime);
    return failed;
}
