/* transpose.c - transposes a matrix on a device, and reads a part of it backwards. */
#include <heddle.h>
#include <stdio.h>

enum { ROWS = 1000, COLUMNS = 700 };
static float x[ROWS][COLUMNS], turned[COLUMNS][ROWS], last[3];

static int run(hd_runtime *runtime)
{
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j++) {
            x[i][j] = (float)(i * 1000 + j);
        }
    }
    const uint64_t shape[] = {ROWS, COLUMNS}, shape_turned[] = {COLUMNS, ROWS};
    hd_lane *lane;
    hd_tensor a, b, view, part;
    if (hd_lane_get_default(runtime, 0, &lane) || hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape, &a) ||
        hd_tensor_alloc(lane, HD_TYPE_F32, 2, shape_turned, &b)) {
        return 1;
    }

    /* The view is the same bytes with other strides; the copy moves them. Only the reads wait. */
    if (hd_tensor_write(&a, x) || hd_tensor_transpose(&a, 0, 1, &view) || hd_tensor_copy(&b, &view, NULL) ||
        hd_tensor_read(&b, turned)) {
        return 1;
    }
    printf("turned[5][30] = %g\n", (double)turned[5][30]);

    /* The last three elements of row 5, the last one first. */
    if (hd_tensor_slice(&b, 0, 5, 1, 1, &part) || hd_tensor_slice(&part, 1, ROWS - 1, 3, -1, &part) ||
        hd_tensor_read(&part, last)) {
        return 1;
    }
    printf("last = %g, %g, %g\n", (double)last[0], (double)last[1], (double)last[2]);
    /* hd_close releases the buffers */
    return turned[5][30] == 30005 && last[0] == 999005 && last[2] == 997005 ? 0 : 1;
}

int main(void)
{
    hd_runtime *runtime = NULL;
    int failed = hd_open(NULL, &runtime) || run(runtime);
    if (failed) {
        fprintf(stderr, "transpose: %s\n", hd_message());
    }
    hd_close(runtime);
    return failed;
}
