/* survive.c - a program that loses a device and goes on.
 *
 * Every device adds x to y, STEPS times, and saves y every SAVE_EVERY steps. On the way a broken
 * kernel makes the last device fault. Its engine runs in a worker process of its own
 * (placement=process), so the other devices and the program continue to work. The program restarts
 * the device and continues from the last save of y. For that, x and y keep a copy in the host's
 * memory. */
#include <heddle.h>
#include <poll.h>
#include <stdio.h>

enum { N = 1 << 16, STEPS = 60, SAVE_EVERY = 10, BREAK_AT = 37, DEVICES_MOST = 32, NOTICE_MS = 30000 };

typedef struct sum {
    hd_lane *lane;
    hd_buffer *x, *y; /* keep a copy */
    hd_buffer *total; /* keeps none */
    int done;         /* steps in y, or submitted for it */
} sum;

static hd_kernel *axpy, *broken;
static sum sums[DEVICES_MOST];
static int broken_once;

static hd_status make_kept(hd_lane *lane, float value, hd_buffer **out)
{
    const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP, .label = "sum"};
    union {
        float value;
        uint32_t pattern;
    } bits = {value};
    hd_ticket saved;
    hd_status status = hd_alloc_with(lane, N * sizeof(float), &keep, out);
    status = status ? status : hd_fill(*out, 0, bits.pattern, N * sizeof(float), NULL);
    status = status ? status : hd_buffer_save(*out, &saved);
    return status ? status : hd_wait(saved, HD_FOREVER);
}

/* Sums far more numbers than x contains: reads where no memory is. */
static hd_status break_device(sum *s)
{
    const hd_arg args[] = {hd_inout(s->total), hd_in(s->x), hd_u64(UINT64_C(1) << 46)};
    const hd_dims grid = {65536, 1, 1}, block = {256, 1, 1};
    broken_once = 1;
    return hd_launch(s->lane, broken, grid, block, 0, args, 3, NULL);
}

/* Makes one step. Every SAVE_EVERY steps it also saves y, and waits until that is done. */
static hd_status advance(sum *s)
{
    const hd_arg args[] = {hd_inout(s->y), hd_in(s->x), hd_f32(1), hd_u64(N)};
    const hd_dims grid = {N / 256, 1, 1}, block = {256, 1, 1};
    hd_ticket saved;
    hd_status status = hd_launch(s->lane, axpy, grid, block, 0, args, 4, NULL);
    s->done++;
    if (status || s->done % SAVE_EVERY) {
        return status;
    }
    status = hd_buffer_save(s->y, &saved);
    return status ? status : hd_wait(saved, HD_FOREVER);
}

/* Waits until the loss is reported, restarts the device, and reads from y how far it got. */
static hd_status bring_back(hd_runtime *runtime)
{
    struct pollfd losses = {.events = POLLIN};
    hd_device_loss loss = {.size = sizeof loss};
    hd_status status = hd_loss_descriptor(runtime, &losses.fd);
    if (status) {
        return status;
    }
    /* A program with other descriptors polls this one among them. */
    poll(&losses, 1, NOTICE_MS);
    status = hd_loss_next(runtime, &loss);
    if (status) {
        return status;
    }
    printf("%s\n", loss.message);
    sum *s = &sums[loss.device];
    float steps;
    hd_free(s->total); /* keeps no copy, so it stays lost */
    s->total = NULL;
    status = hd_device_restart(runtime, loss.device);
    status = status ? status : hd_read(s->y, 0, &steps, sizeof steps);
    if (status == HD_OK) {
        s->done = (int)steps;
        printf("device %d works again; its sum goes on behind step %d\n", loss.device, s->done);
    }
    return status;
}

static int is_loss(hd_status status)
{
    return status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED || status == HD_ERROR_LANE_FAILED;
}

static hd_status prepare(hd_runtime *runtime, int devices)
{
    hd_module *builtin;
    hd_status status = hd_module_get_builtin(runtime, &builtin);
    status = status ? status : hd_kernel_get(builtin, "hd_axpy_f32", &axpy);
    status = status ? status : hd_kernel_get(builtin, "hd_sum_f32", &broken);
    for (int i = 0; i < devices && !status; i++) {
        status = hd_lane_get_default(runtime, i, &sums[i].lane);
        status = status ? status : make_kept(sums[i].lane, 1, &sums[i].x);
        status = status ? status : make_kept(sums[i].lane, 0, &sums[i].y);
        status = status ? status : hd_alloc(sums[i].lane, sizeof(float), &sums[i].total);
    }
    return status;
}

static int run(hd_runtime *runtime, int devices)
{
    if (prepare(runtime, devices)) {
        return 1;
    }
    for (int left = devices; left > 0;) {
        left = 0;
        for (int i = 0; i < devices; i++) {
            hd_status status = HD_OK;
            if (i == devices - 1 && sums[i].done == BREAK_AT && !broken_once) {
                status = break_device(&sums[i]);
            }
            if (!status && sums[i].done < STEPS) {
                status = advance(&sums[i]);
            }
            if (is_loss(status)) {
                status = bring_back(runtime);
            }
            if (status) {
                return 1;
            }
            left += sums[i].done < STEPS;
        }
    }
    static float y[N];
    for (int i = 0; i < devices; i++) {
        hd_device_info info = {.size = sizeof info};
        if (hd_read(sums[i].y, 0, y, sizeof y) || hd_device_get_info(runtime, i, &info)) {
            return 1;
        }
        for (int j = 0; j < N; j++) {
            if (y[j] != STEPS) {
                printf("device %d: y[%d] is %g\n", i, j, (double)y[j]);
                return 1;
            }
        }
        printf("device %d: %d steps, lost %d times\n", i, STEPS, (int)info.losses);
    }
    return 0;
}

int main(void)
{
    const hd_options options = {sizeof options, "placement=process"};
    hd_runtime *runtime = NULL;
    int failed = hd_open(&options, &runtime) || run(runtime, hd_device_count(runtime));
    if (failed) {
        fprintf(stderr, "survive: %s\n", hd_message());
    }
    hd_close(runtime);
    return failed;
}
