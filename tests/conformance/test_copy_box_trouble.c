/* test_copy_box_trouble.c - boxes that fail, and boxes that are refused.
 *
 * Promise: Ticket, buffer or call report a failed box transfer; a refused one moves nothing.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "boxes.h"

/* ---- failures ---- */

static void a_failed_row_fails_the_box(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        place src, dst;
        int settings;
        bool dense; /* no bytes lie between the rows that are written */
    } table[] = {
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_DEVICE, 0, false},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_DEVICE, 0, true},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_OTHER, 1, false},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_OTHER, 1, true},
        {"cuMemcpy2DAsync", PLACE_PINNED, PLACE_DEVICE, 0, false},
        {"cuMemcpy2DAsync", PLACE_DEVICE, PLACE_PINNED, 0, true},
        {"cuMemcpyDtoHAsync", PLACE_DEVICE, PLACE_OTHER, 1, false},
    };
    const size_t count[] = {3000, 3}, dst[] = {500, 2000000}, near[] = {240, 720000}, src[] = {260, 1000000};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const hd_box box = box_of(240, 2, count, table[i].dense ? near : dst, src);
        for (int nth = 1; nth <= 8; nth += CONF_SLOWNESS > 1 || conf_on_gpus ? 3 : 1) {
            hd_runtime *runtime =
                conf_open_with("%s fault=%s:%d=1", place_settings[table[i].settings], table[i].entry, nth);
            hd_buffer *x = place_alloc(runtime, table[i].src, 6 * MIB),
                      *y = place_alloc(runtime, table[i].dst, 6 * MIB);
            CONF_OK(hd_fill(x, 0, 7, 6 * MIB, NULL));
            CONF_OK(hd_fill(y, 0, 9, 6 * MIB, NULL));
            hd_ticket ticket = {NULL, 0};
            CONF_OK(hd_copy_box(y, 0, x, 0, &box, &ticket)); /* the ticket reports every failure */
            hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
            bool two = table[i].dst != PLACE_OTHER || place_device(runtime, PLACE_OTHER) != 0;
            /* it takes three operations at least */
            if (status == HD_OK && nth <= 3 && two && !conf_on_gpus) {
                conf_fail_at(__FILE__, __LINE__, "%s:%d fails nothing from %s to %s", table[i].entry, nth,
                             place_names[table[i].src], place_names[table[i].dst]);
            }
            if (status != HD_OK) {
                CONF_FAILS_WITH(status, HD_ERROR_FAILED, "copy");
                CONF_FAILS(hd_buffer_wait(y, HD_READ, 60 * CONF_SECOND), HD_ERROR_FAILED);
                /* the bytes between the rows failed with them, until all is written anew */
                if (!table[i].dense) {
                    CONF_FAILS(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_FAILED);
                    CONF_OK(hd_fill(y, 0, 9, 6 * MIB, NULL));
                }
                CONF_OK(hd_copy_box(y, 0, x, 0, &box, &ticket));
                CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
                CONF_OK(hd_buffer_wait(y, HD_READ, 60 * CONF_SECOND));
            }
            conf_close(runtime);
        }
    }
}

static void failures_of_reads_and_writes_are_said(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpy2DAsync:1+=1");
    hd_buffer *x = place_alloc(runtime, PLACE_DEVICE, MIB);
    CONF_OK(hd_fill(x, 0, 7, MIB, NULL));
    uint8_t *data = conf_memory(MIB);
    memset(data, 3, MIB);
    hd_box sparse = matrix(1000, 200, 1000, 5000), in = matrix(1000, 200, 5000, 1000),
           dense = matrix(1000, 200, 1000, 1000);
    for (int i = 0; i < 40; i++) { /* more than there are chunks */
        CONF_FAILS(hd_read_box(x, 0, data, &sparse), HD_ERROR_FAILED);
    }
    CONF_OK(hd_read_box(x, 0, data, &dense)); /* without that call */
    CONF_OK(hd_write_box(x, 0, data, &in));   /* reports it later */
    CONF_FAILS(hd_read_box(x, 0, data, &dense), HD_ERROR_FAILED);
    free(data);
    conf_close(runtime);
}

/* ---- refusals ---- */

static void bad_boxes_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL), *foreign = conf_open(NULL);
    enum { bytes = 10000 };
    uint8_t *content = conf_memory(bytes), *memory = conf_memory(bytes), *before = conf_memory(bytes);
    conf_pattern(memory, bytes, 4);
    memcpy(before, memory, bytes);
    for (place a = 0; a < PLACES; a++) {
        hd_buffer *x = place_alloc(runtime, a, bytes), *y = place_alloc(runtime, PLACE_OTHER, bytes),
                  *freed = place_alloc(runtime, a, bytes), *alien = place_alloc(foreign, a, bytes);
        conf_pattern(content, bytes, a);
        CONF_OK(hd_write(x, 0, content, bytes));
        CONF_OK(hd_write(y, 0, content, bytes));
        hd_free(freed);
        hd_ticket ticket = {NULL, 77};
        hd_box good = matrix(10, 100, 100, 100), box;
        /* handles */
        CONF_FAILS_WITH(hd_copy_box(NULL, 0, x, 0, &good, &ticket), HD_ERROR_HANDLE, "dst");
        CONF_FAILS_WITH(hd_copy_box(x, 0, NULL, 0, &good, &ticket), HD_ERROR_HANDLE, "src");
        CONF_FAILS_WITH(hd_copy_box(freed, 0, x, 0, &good, &ticket), HD_ERROR_HANDLE, "freed");
        CONF_FAILS_WITH(hd_copy_box(x, 0, freed, 0, &good, &ticket), HD_ERROR_HANDLE, "freed");
        CONF_FAILS_WITH(hd_copy_box(alien, 0, x, 0, &good, &ticket), HD_ERROR_HANDLE, "runtimes");
        CONF_FAILS(hd_write_box(NULL, 0, memory, &good), HD_ERROR_HANDLE);
        CONF_FAILS(hd_read_box(freed, 0, memory, &good), HD_ERROR_HANDLE);
        /* boxes */
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, NULL, &ticket), HD_ERROR_ARGUMENT, "box is null");
        CONF_FAILS(hd_write_box(x, 0, memory, NULL), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_read_box(x, 0, memory, NULL), HD_ERROR_ARGUMENT);
        box = good;
        box.size = 3;
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_ARGUMENT, "size is 3");
        box = good;
        box.dims = 8;
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_ARGUMENT, "dims is 8");
        box = matrix(10, 100, 9, 100);
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_ARGUMENT, "dst_stride[0] is 9");
        CONF_FAILS_WITH(hd_write_box(x, 0, memory, &box), HD_ERROR_ARGUMENT, "twice");
        CONF_FAILS_WITH(hd_read_box(x, 0, memory, &box), HD_ERROR_ARGUMENT, "twice");
        /* ranges: 99 * 100 + 10 bytes */
        CONF_FAILS_WITH(hd_copy_box(y, 91, x, 0, &good, &ticket), HD_ERROR_RANGE, "9910 bytes at offset 91");
        CONF_FAILS_WITH(hd_copy_box(y, 0, x, 91, &good, &ticket), HD_ERROR_RANGE, "src");
        CONF_FAILS(hd_write_box(x, 91, memory, &good), HD_ERROR_RANGE);
        CONF_FAILS(hd_read_box(x, 91, memory, &good), HD_ERROR_RANGE);
        CONF_FAILS(hd_copy_box(y, SIZE_MAX, x, 0, &good, &ticket), HD_ERROR_RANGE);
        box = matrix(10, SIZE_MAX / 50, 100, 100);
        CONF_FAILS(hd_copy_box(y, 0, x, 0, &box, &ticket), HD_ERROR_RANGE);
        CONF_FAILS(hd_write_box(x, 0, memory, &box), HD_ERROR_RANGE);
        box = matrix(10, 2, 10, SIZE_MAX - 4);
        CONF_FAILS(hd_read_box(x, 0, memory, &box), HD_ERROR_RANGE);
        CONF_FAILS(hd_write_box(x, 0, memory, &box), HD_ERROR_RANGE);
        /* the program's memory */
        CONF_FAILS_WITH(hd_write_box(x, 0, NULL, &good), HD_ERROR_ARGUMENT, "null");
        CONF_FAILS_WITH(hd_read_box(x, 0, NULL, &good), HD_ERROR_ARGUMENT, "null");
        /* one buffer */
        CONF_FAILS_WITH(hd_copy_box(x, 0, x, 9, &good, &ticket), HD_ERROR_ARGUMENT, "overlap");
        CONF_FAILS_WITH(hd_copy_box(x, 90, x, 0, &(hd_box){.size = sizeof good, .row = 91}, &ticket), HD_ERROR_ARGUMENT,
                        "overlap");
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 77);
        CONF_HOLDS(x, 0, content, bytes);
        CONF_HOLDS(y, 0, content, bytes);
        CONF_SAME(memory, before, bytes);
        /* allowed: columns beside each other, an empty box, and unused strides */
        CONF_OK(hd_copy_box(x, 0, x, 10, &good, &ticket));
        model_copy(&good, content, memcpy(before, content, bytes) == before ? before + 10 : NULL);
        CONF_HOLDS(x, 0, content, bytes);
        memcpy(before, memory, bytes);
        box = matrix(0, 100, 0, 0);
        CONF_OK(hd_copy_box(y, bytes, x, bytes, &box, NULL));
        CONF_OK(hd_write_box(x, 0, NULL, &box));
        box = matrix(10, 0, 0, 0);
        CONF_OK(hd_read_box(x, 0, NULL, &box));
        CONF_OK(hd_copy_box(x, 0, x, 0, &box, NULL));
        box = matrix(10, 1, 0, SIZE_MAX);
        CONF_OK(hd_read_box(x, bytes - 10, memory, &box));
        CONF_SAME(memory, content + bytes - 10, 10);
        memcpy(memory, before, bytes);
        hd_free(x);
        hd_free(y);
    }
    free(content);
    free(memory);
    free(before);
    conf_close(foreign);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_copy_box_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_failed_row_fails_the_box),
        CONF_CASE(failures_of_reads_and_writes_are_said),
        CONF_CASE(bad_boxes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
