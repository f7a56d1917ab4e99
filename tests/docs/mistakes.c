/* mistakes.c - makes each mistake of the last table of docs/kernels.md, and prints the library's
 * report, a line each.
 *
 * usage: mistakes
 *
 * Run it in a folder that contains scale.c, and the kernel files scale.hdk, half.hdk and far.hdk,
 * whose kernels take the same parameters.
 *
 * Threads: the main one. Locks: none. Always: a mistake that passes is an error of this program.
 */
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>

static hd_runtime *runtime;
static hd_lane *lane;
static hd_buffer *y;

static void must(hd_status status)
{
    if (status != HD_OK) {
        printf("mistakes: %s\n", hd_message());
        exit(1);
    }
}

/* Prints the message of a call that must fail. */
static void wrong(hd_status status)
{
    if (status == HD_OK) {
        printf("mistakes: a mistake passes\n");
        exit(1);
    }
    printf("%s\n", hd_message());
}

static hd_kernel *kernel_of(const char *file, const char *name)
{
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    must(hd_module_load_file(runtime, file, &module));
    must(hd_kernel_get(module, name, &kernel));
    return kernel;
}

static void load_wrongly(void)
{
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    wrong(hd_module_load_file(runtime, "scael.hdk", &module));
    wrong(hd_module_load_file(runtime, "scale.c", &module));
    must(hd_module_load_file(runtime, "scale.hdk", &module));
    wrong(hd_kernel_get(module, "scael", &kernel));
    wrong(hd_module_compile(runtime, "__global__ void k(float *y) { }", NULL, &module));
}

/* scale is HD_INOUT(float, y), HD_VALUE(float, factor), HD_VALUE(uint64_t, n). */
static void launch_wrongly(hd_kernel *scale)
{
    const hd_dims one = {1, 1, 1}, many = {2048, 1, 1}, none = {0, 1, 1};
    hd_arg args[] = {hd_inout(y), hd_f32(0.5f), hd_u64(256)};
    wrong(hd_launch(lane, scale, one, one, 0, args, 2, NULL));
    wrong(hd_launch(lane, scale, one, many, 0, args, 3, NULL));
    wrong(hd_launch(lane, scale, none, one, 0, args, 3, NULL));
    wrong(hd_launch(lane, scale, one, one, 1 << 20, args, 3, NULL));
    args[1] = hd_f64(0.5);
    wrong(hd_launch(lane, scale, one, one, 0, args, 3, NULL));
    args[1] = hd_f32(0.5f);
    args[2] = hd_u32(256);
    wrong(hd_launch(lane, scale, one, one, 0, args, 3, NULL));
    args[2] = hd_u64(256);
    args[0] = hd_in(y);
    wrong(hd_launch(lane, scale, one, one, 0, args, 3, NULL));
    args[0] = hd_u64(hd_buffer_address(y));
    wrong(hd_launch(lane, scale, one, one, 0, args, 3, NULL));
    args[0] = hd_inout_range(y, 512, 1024);
    wrong(hd_launch(lane, scale, one, one, 0, args, 3, NULL));
    args[0] = hd_inout(y);
    must(hd_free(y));
    wrong(hd_launch(lane, scale, one, one, 0, args, 3, NULL));
    must(hd_alloc(lane, 1024, &y));
}

/* Launches a kernel that ends the device, and restarts it. */
static void lose(const char *name, uint64_t n)
{
    char file[32];
    const hd_arg args[] = {hd_inout(y), hd_f32(1), hd_u64(n)};
    snprintf(file, sizeof file, "%s.hdk", name);
    must(hd_launch(lane, kernel_of(file, name), (hd_dims){.x = 1}, (hd_dims){.x = 32}, 0, args, 3, NULL));
    wrong(hd_lane_wait(lane, HD_FOREVER));
    must(hd_device_restart(runtime, 0));
    must(hd_free(y));
    must(hd_alloc(lane, 1024, &y));
}

int main(void)
{
    const hd_options options = {sizeof options, "driver=host host_devices=1 placement=process"};
    must(hd_open(&options, &runtime));
    must(hd_lane_get_default(runtime, 0, &lane));
    must(hd_alloc(lane, 1024, &y));
    load_wrongly();
    launch_wrongly(kernel_of("scale.hdk", "scale"));
    lose("half", 0);
    lose("far", 16);
    hd_close(runtime);
    return 0;
}
