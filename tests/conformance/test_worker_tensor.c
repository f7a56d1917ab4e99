/* test_worker_tensor.c - copies of elements if a device is lost before or during them, and
 * restarts.
 *
 * Promise: Copies of elements on a lost device fail, and those on healthy devices are right.
 *
 * Lost copies report it, the others continue, and no thread hangs.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "libraries.h"
#include "tensors.h"
#include "workers.h"

enum { N = 192, WORDS = N * N, BYTES = 4 * WORDS };
static const uint64_t square[] = {N, N};
static uint32_t content[WORDS], turned[WORDS], got[WORDS];

static void make_content(void)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        content[i] = i * 2654435761u;
        turned[i % N * N + i / N] = content[i];
    }
}

/* Transposes x to y, both in these places, and checks the result. */
static void turns(hd_runtime *runtime, tensor_place from, tensor_place to)
{
    hd_buffer *x = tensor_buffer(runtime, from, content, BYTES), *y = tensor_buffer(runtime, to, content, BYTES);
    hd_tensor a, b;
    CONF_OK(hd_tensor_make(x, 0, HD_TYPE_U32, 2, square, &a));
    CONF_OK(hd_tensor_make(y, 0, HD_TYPE_U32, 2, square, &b));
    CONF_OK(hd_tensor_transpose(&a, 0, 1, &a));
    CONF_OK(hd_tensor_copy(&b, &a, NULL));
    CONF_HOLDS(y, 0, turned, BYTES);
    CONF_OK(hd_tensor_read(&a, got));
    CONF_SAME(got, turned, BYTES);
    CONF_OK(hd_tensor_write(&a, content));
    CONF_HOLDS(x, 0, turned, BYTES);
    hd_free(x);
    hd_free(y);
}

static void what_is_lost_is_refused(void **state)
{
    (void)state;
    make_content();
    hd_runtime *runtime = conf_open(NULL);
    int lost = hd_device_count(runtime) - 1;
    turns(runtime, PLACE_LAST, PLACE_LAST);
    for (int round = 0; round < 2; round++) {
        hd_buffer *x = tensor_buffer(runtime, PLACE_LAST, content, BYTES);
        hd_buffer *p = tensor_buffer(runtime, PLACE_PINNED, content, BYTES);
        hd_tensor a, b, view;
        hd_ticket ticket = {NULL, 7};
        CONF_OK(hd_tensor_make(x, 0, HD_TYPE_U32, 2, square, &a));
        CONF_OK(hd_tensor_make(p, 0, HD_TYPE_U32, 2, square, &b));
        wk_lose_now(runtime, lost);
        for (int restarted = 0; restarted < 2; restarted++) {
            CONF_OK(hd_tensor_transpose(&a, 0, 1, &view)); /* makes no request of any device */
            CONF_FAILS_WITH(hd_tensor_copy(&b, &view, &ticket), HD_ERROR_DEVICE_LOST, "src");
            CONF_FAILS_WITH(hd_tensor_copy(&view, &b, &ticket), HD_ERROR_DEVICE_LOST, "dst");
            CONF_FAILS(hd_tensor_read(&view, got), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_tensor_write(&view, content), HD_ERROR_DEVICE_LOST);
            CONF_FAILS(hd_tensor_make(x, 0, HD_TYPE_U32, 2, square, &view), HD_ERROR_DEVICE_LOST);
            CONF_TRUE(ticket.lane == NULL && ticket.sequence == 7);
            if (!restarted) {
                hd_tensor none;
                CONF_FAILS(hd_tensor_alloc(conf_default_lane(runtime, lost), HD_TYPE_U32, 2, square, &none),
                           HD_ERROR_DEVICE_LOST);
                if (lost > 0) { /* a healthy device moves pinned memory */
                    turns(runtime, PLACE_FIRST, PLACE_PINNED);
                    turns(runtime, PLACE_PINNED, PLACE_PINNED);
                } else {
                    hd_tensor half = b, other;
                    half.shape[0] = half.shape[1] = N / 2;
                    other = half;
                    other.offset = N / 2 * 4;
                    CONF_OK(hd_tensor_transpose(&half, 0, 1, &half));
                    CONF_FAILS(hd_tensor_copy(&other, &half, &ticket), HD_ERROR_DEVICE_LOST);
                }
                CONF_HOLDS(p, 0, content, BYTES);
                CONF_OK(hd_device_restart(runtime, lost));
            }
        }
        hd_free(x);
        hd_free(p);
        turns(runtime, PLACE_LAST, PLACE_LAST);
        turns(runtime, PLACE_LAST, PLACE_FIRST);
        turns(runtime, PLACE_FIRST, PLACE_LAST);
    }
    conf_close(runtime);
}

/* True for success, false for a loss. */
static bool goes(hd_status status)
{
    if (status != HD_OK) {
        CONF_TRUE(status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_FAILED);
        CONF_TRUE(hd_message()[0] != '\0' && strchr(hd_message(), '\n') == NULL);
    }
    return status == HD_OK;
}

/* Until the loss is known, elements move between all places; the device is killed meanwhile. */
static void losses_while_elements_move(void **state)
{
    (void)state;
    static const char *const settings[] = {"host_peers=all", "host_peers=none peers=off"};
    make_content();
    for (int round = 0; round < 8 / CONF_SLOWNESS + 2; round++) {
        hd_runtime *runtime = conf_open(settings[round % 2]);
        int lost = hd_device_count(runtime) - 1;
        hd_tensor t[4], view[4]; /* first and last device, and pinned */
        static const tensor_place places[] = {PLACE_FIRST, PLACE_LAST, PLACE_PINNED, PLACE_LAST};
        for (int i = 0; i < 4; i++) {
            hd_buffer *b = tensor_buffer(runtime, places[i], content, BYTES);
            CONF_OK(hd_tensor_make(b, 0, HD_TYPE_U32, 2, square, &t[i]));
            CONF_OK(hd_tensor_transpose(&t[i], 0, 1, &view[i]));
        }
        turns(runtime, PLACE_LAST, PLACE_FIRST); /* loads all kernels */
        pid_t pid = wk_pid(runtime, lost);
        conf_random r = {(uint64_t)round};
        uint64_t at = 20 + conf_below(&r, 100);
        int failures = 0;
        for (uint64_t i = 0; i < 400 && failures < 40; i++) {
            if (i == at) {
                CONF_EQUAL(kill(pid, SIGKILL), 0);
            }
            int to = (int)conf_below(&r, 4), from = (int)conf_below(&r, 4);
            hd_ticket ticket = {NULL, 0};
            switch (conf_below(&r, 8)) {
            case 0:
                failures += !goes(hd_tensor_read(&view[from], got));
                break;
            case 1:
                failures += !goes(hd_tensor_write(&view[to], content));
                break;
            default:
                if (to != from && goes(hd_tensor_copy(&t[to], &view[from], &ticket))) {
                    if (i % 16 == 0) {
                        failures += !goes(hd_wait(ticket, 60 * CONF_SECOND));
                    }
                } else {
                    failures += to != from;
                }
            }
        }
        wk_only_loss(runtime, lost);
        CONF_TRUE(failures > 0);
        for (int i = 0; i < 4; i++) { /* buffers on healthy devices are valid again once written */
            if (places[i] != PLACE_LAST && (places[i] != PLACE_FIRST || lost > 0)) {
                CONF_OK(hd_write(t[i].buffer, 0, content, BYTES));
                CONF_HOLDS(t[i].buffer, 0, content, BYTES);
            }
            hd_free(t[i].buffer);
        }
        CONF_OK(hd_device_restart(runtime, lost));
        turns(runtime, PLACE_LAST, PLACE_LAST);
        turns(runtime, PLACE_LAST, PLACE_FIRST);
        turns(runtime, PLACE_FIRST, PLACE_LAST);
        turns(runtime, PLACE_PINNED, PLACE_LAST);
        conf_close(runtime);
    }
}

/* ---- the moment right after the library took memory for elements in transit ---- */

static hd_runtime *watched;
/* allocations of the library until it loses their device; 0: it loses none */
static int allocations_left;
static int lost_device = -1;

hd_status __real_hdi_alloc_with(hd_lane *lane, size_t bytes, const hd_alloc_options *options, const void *call_site,
                                hd_buffer **out);
hd_status __wrap_hdi_alloc_with(hd_lane *lane, size_t bytes, const hd_alloc_options *options, const void *call_site,
                                hd_buffer **out);

hd_status __wrap_hdi_alloc_with(hd_lane *lane, size_t bytes, const hd_alloc_options *options, const void *call_site,
                                hd_buffer **out)
{
    hd_status status = __real_hdi_alloc_with(lane, bytes, options, call_site, out);
    if (status == HD_OK && allocations_left > 0 && --allocations_left == 0) {
        lost_device = hd_lane_device(lane);
        wk_lose_now(watched, lost_device);
    }
    return status;
}

enum { COPY, READ, WRITE, PRODUCT, CALLS };

static hd_status call(int which, const hd_tensor *to, const hd_tensor *from, const hd_tensor *odd)
{
    switch (which) {
    case COPY: /* packed on one device, unpacked on the other */
        return hd_tensor_copy(to, from, NULL);
    case READ:
        return hd_tensor_read(from, got);
    case WRITE:
        return hd_tensor_write(from, content);
    default: /* operands that no library takes are packed first */
        return hd_tensor_matmul(conf_default_lane(watched, 0), to, odd, odd, 1, 0, NULL);
    }
}

static void losses_right_after_memory_was_taken(void **state)
{
    (void)state;
    make_content();
    int way = library_way();
    watched = conf_open_with("host_peers=none peers=off %s", ways[way < 0 ? BUILT_IN : way]);
    int last = hd_device_count(watched) - 1;
    for (int which = 0; which < CALLS; which++) {
        int hits = 0;
        for (int n = 1, was_hit = 1; was_hit && last > 0; n++) {
            hd_tensor a, b, turned_a, odd;
            hd_buffer *x = tensor_buffer(watched, PLACE_FIRST, content, BYTES);
            hd_buffer *y = tensor_buffer(watched, which == PRODUCT ? PLACE_FIRST : PLACE_LAST, content, BYTES);
            CONF_OK(hd_tensor_make(x, 0, HD_TYPE_F32, 2, square, &a));
            CONF_OK(hd_tensor_make(y, 0, HD_TYPE_F32, 2, square, &b));
            CONF_OK(hd_tensor_transpose(&a, 0, 1, &turned_a));
            odd = a;
            odd.stride[0] = -odd.stride[0];
            odd.offset = (N - 1) * N * 4;
            CONF_OK(hd_tensor_transpose(&b, 0, 1, &b));
            if (which == COPY) {
                CONF_OK(hd_tensor_slice(&b, 0, N - 1, N, -1, &b));
            }
            lost_device = -1;
            allocations_left = n;
            hd_status status = call(which, &b, which == COPY ? &a : &turned_a, &odd);
            allocations_left = 0;
            was_hit = lost_device >= 0;
            hits += was_hit;
            CONF_EQUAL(goes(status), !was_hit);
            hd_free(x);
            hd_free(y);
            if (was_hit) {
                CONF_OK(hd_device_restart(watched, lost_device));
                CONF_OK(hd_lane_reset(conf_default_lane(watched, lost_device), 60 * CONF_SECOND));
            }
        }
        /* each call takes memory, except for the built-in kernel, which takes operands as they
         * are */
        CONF_TRUE(last == 0 || hits > 0 || (which == PRODUCT && way < 0));
    }
    if (last > 0) {
        turns(watched, PLACE_FIRST, PLACE_LAST);
    }
    conf_close(watched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(what_is_lost_is_refused),
        CONF_CASE(losses_while_elements_move),
        CONF_CASE(losses_right_after_memory_was_taken),
    };
    wk_begin("test_worker_tensor");
    return cmocka_run_group_tests_name("worker_tensor", tests, NULL, NULL);
}
