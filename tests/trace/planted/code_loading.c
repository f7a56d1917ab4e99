/* code_loading.c - the program first uses a kernel in the middle, and loading its code is slow. The
 * twin uses it once before. */
#include "scene.h"

static void run(scene *s)
{
    hd_module *module;
    hd_kernel *usual = s->nap, *late;
    MUST(hd_module_load_file(s->runtime, HD_TEST_KERNELS, &module));
    MUST(hd_kernel_get(module, "nap", &late));
    s->nap = late;
    if (s->clean) {
        MUST(hd_wait(nap(s, 1, 0), HD_FOREVER));
    }
    begin(s);
    for (int i = 0; i < 8; i++) {
        s->nap = i == 4 ? late : usual;
        nap(s, 1, 50000);
    }
    end(s);
}

/* The first three loads: the usual kernel on both devices, and the late kernel on device 0. */
const planted program = {"module_loading=lazy delay=cuModuleLoadDataEx:4+=900000", NULL, run};
