/* first.c - y += 2 x, on the machine's first device: a GPU, or a host device if there is none. */
#include <heddle.h>
#include <stdio.h>

enum { N = 1 << 20 };
static float x[N], y[N];

static int run(hd_runtime *runtime)
{
    hd_lane *lane;
    hd_buffer *dx, *dy;
    hd_module *builtin;
    hd_kernel *axpy;
    if (hd_lane_get_default(runtime, 0, &lane) || hd_alloc(lane, sizeof x, &dx) || hd_alloc(lane, sizeof y, &dy) ||
        hd_module_get_builtin(runtime, &builtin) || hd_kernel_get(builtin, "hd_axpy_f32", &axpy)) {
        return 1;
    }
    x[1000] = 1000;
    const hd_arg args[] = {hd_inout(dy), hd_in(dx), hd_f32(2), hd_u64(N)};
    return hd_write(dx, 0, x, sizeof x) || hd_write(dy, 0, y, sizeof y) ||
           hd_launch(lane, axpy, (hd_dims){.x = N / 256}, (hd_dims){.x = 256}, 0, args, 4,
                     NULL) ||           /* waits for both writes, because it uses their buffers */
           hd_read(dy, 0, y, sizeof y); /* waits for the launch */
}

int main(void)
{
    hd_runtime *runtime = NULL;
    int failed = hd_open(NULL, &runtime) || run(runtime);
    if (failed) {
        fprintf(stderr, "first: %s\n", hd_message());
    }
    printf("y[1000] = %g\n", (double)y[1000]);
    hd_close(runtime); /* releases lane and buffers */
    return failed || y[1000] != 2000;
}
