/* wave.c - an acoustic wave in 8th order, on all devices of the machine. Each device holds a slab
 * of planes, and R planes of each neighbour.
 *
 * usage: wave KERNEL_FILE (examples/kernels/wave.c, compiled by `heddle cc`)
 *
 * Each device first computes the planes at the ends of its slab. They go to the neighbours while it
 * computes the planes between. Nothing waits: the library orders the work by the bytes that it
 * uses. The result must equal that of one device, bit by bit. */
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NX = 64, NY = 64, NZ = 128, R = 4, STEPS = 40, DEVICES_MOST = NZ / (2 * R) };
static const size_t PLANE = sizeof(float) * NX * NY;

typedef struct slab {
    hd_lane *lane;
    /* R planes of the neighbour below, `planes` of its own, R of the one above */
    hd_buffer *field[2];
    size_t planes;
} slab;

static float image[1 << 18], one[NZ * NX * NY], all[NZ * NX * NY];

static void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "wave: %s\n", hd_message());
        exit(1);
    }
}

/* Computes the slab's own planes from `first` on for this step. */
static void advance(slab *s, hd_kernel *wave, int now, size_t first, size_t planes)
{
    const hd_arg args[] = {hd_inout_range(s->field[!now], (first + R) * PLANE, planes * PLANE),
                           hd_in_range(s->field[now], first * PLANE, (planes + 2 * R) * PLANE), hd_f32(0.1f)};
    must(hd_launch(s->lane, wave, (hd_dims){NX / 32, NY / 4, (uint32_t)planes}, (hd_dims){32, 4, 1}, 0, args, 3, NULL));
}

static void step(slab *slabs, int n, hd_kernel *wave, int now)
{
    for (slab *s = slabs; s < slabs + n; s++) {
        advance(s, wave, now, 0, R);
        advance(s, wave, now, s->planes - R, R);
    }
    for (slab *s = slabs; s < slabs + n - 1; s++) {
        hd_buffer *below = s->field[!now], *above = s[1].field[!now];
        must(hd_copy(above, 0, below, s->planes * PLANE, R * PLANE, NULL));
        must(hd_copy(below, (s->planes + R) * PLANE, above, R * PLANE, R * PLANE, NULL));
    }
    for (slab *s = slabs; s < slabs + n; s++) {
        if (s->planes > 2 * R) {
            advance(s, wave, now, R, s->planes - 2 * R);
        }
    }
}

static void run(hd_runtime *runtime, int n, hd_kernel *wave, float *out)
{
    slab slabs[DEVICES_MOST];
    const float impulse = 1;
    for (int i = 0; i < n; i++) {
        slab *s = &slabs[i];
        s->planes = (size_t)(NZ * (i + 1) / n - NZ * i / n);
        must(hd_lane_get_default(runtime, i, &s->lane));
        for (int f = 0; f < 2; f++) {
            must(hd_alloc(s->lane, (s->planes + 2 * R) * PLANE, &s->field[f]));
            must(hd_fill(s->field[f], 0, 0, (s->planes + 2 * R) * PLANE, NULL));
        }
    }
    must(hd_write(slabs[0].field[0], (2 * R + 1) * PLANE + PLANE / 2 + PLANE / NY / 2, &impulse, sizeof impulse));
    for (int i = 0; i < STEPS; i++) {
        step(slabs, n, wave, i % 2);
    }
    for (slab *s = slabs; s < slabs + n; s++) {
        must(hd_read(s->field[STEPS % 2], R * PLANE, out, s->planes * PLANE));
        out += s->planes * NX * NY;
        must(hd_free(s->field[0]));
        must(hd_free(s->field[1]));
    }
}

int main(int argc, char **argv)
{
    hd_runtime *runtime;
    hd_module *module;
    hd_kernel *wave;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    size_t bytes = file ? fread(image, 1, sizeof image, file) : 0;
    must(hd_open(NULL, &runtime));
    must(hd_module_load(runtime, image, bytes, &module));
    must(hd_kernel_get(module, "wave", &wave));
    const int count = hd_device_count(runtime), n = count < DEVICES_MOST ? count : DEVICES_MOST;
    run(runtime, 1, wave, one);
    run(runtime, n, wave, all);
    const int same = memcmp(one, all, sizeof one) == 0;
    printf("%d devices: %s\n", n, same ? "as one device, bit by bit" : "DIFFERENT from one device");
    hd_close(runtime);
    return !same;
}
