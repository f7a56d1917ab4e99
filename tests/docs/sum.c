/* sum.c - runs a kernel of docs/kernels.md that sums, and checks its result. Threads: the main one.
 * Locks: none. */
#include "prelude.h"

int main(int argc, char **argv)
{
    enum { N = 1000 };
    static float x[N];
    float total = 0;
    double wanted = 0;
    hd_module *module;
    hd_kernel *kernel;
    docs_begin(argc > 1 ? argv[1] : NULL, 1);
    hd_buffer *dx = docs_buffer(sizeof x), *dt = docs_buffer(sizeof total);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 7);
        wanted += x[i];
    }
    docs_need(hd_write(dx, 0, x, sizeof x));
    docs_need(hd_write(dt, 0, &total, sizeof total));
    docs_need(hd_module_load(docs_runtime, docs_image, docs_image_bytes, &module));
    docs_need(hd_kernel_get(module, argc > 2 ? argv[2] : "sum", &kernel));
    hd_arg args[] = {hd_inout(dt), hd_in(dx), hd_u64(N)};
    hd_dims grid = {(N + 255) / 256, 1, 1}, block = {256, 1, 1};
    /* one float for each warp */
    docs_need(hd_launch(docs_lane(0), kernel, grid, block, 8 * sizeof(float), args, 3, NULL));
    docs_need(hd_read(dt, 0, &total, sizeof total));
    if ((double)total != wanted) {
        printf("the sum is %g, not %g\n", (double)total, wanted);
        return 1;
    }
    return docs_end(docs_runtime);
}
