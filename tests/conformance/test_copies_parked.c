/* test_copies_parked.c - copies between two devices without peer access, behind claims that the
 * thread ends later.
 *
 * Promise: hd_copy returns although its bytes are in use, however many such copies wait.
 *
 * Copies that wait for the same work share pinned chunks, and copies that wait for other work get
 * chunks of their own. Copies of other bytes between the same two devices end meanwhile. If these
 * chunks would take more than a quarter of `pinned_limit`, the copy waits, and a message of its
 * TIMEOUT gives this reason. All this holds for a small `pinned_limit`, too, and if the program's
 * own buffers take most of the pinned memory. Then a chunk is left for copies of other bytes.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "claimed.h"

#define LIMIT "host_devices=2 host_peers=none transfer_timeout=20000 submit_timeout=20000 "
#define WAIT (60 * CONF_SECOND)

enum { most = 128 };

/* Copies other bytes both ways, and waits for them. */
static void other_bytes_pass(hd_runtime *runtime, size_t size)
{
    hd_buffer *a = on_device(runtime, 0, size, 7), *b = on_device(runtime, 1, size, 8);
    hd_ticket done;
    CONF_OK(hd_copy(b, 0, a, 0, size, &done));
    CONF_OK(hd_wait(done, WAIT));
    CONF_FILLED(b, 0, 7, size);
    CONF_OK(hd_copy(a, 0, b, 0, size, &done));
    CONF_OK(hd_wait(done, WAIT));
    hd_free(a);
    hd_free(b);
}

static void copies_behind_one_claim(hd_runtime *runtime, size_t size, bool of_source, int n)
{
    hd_buffer *x = on_device(runtime, 0, size, 1), *y[most];
    for (int i = 0; i < n; i++) {
        y[i] = on_device(runtime, 1, size, 2);
    }
    hd_claim *c = claim(runtime, of_source ? x : y[0]);
    hd_ticket copied[most];
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_copy(of_source ? y[i] : y[0], 0, x, 0, size, &copied[i]));
    }
    other_bytes_pass(runtime, size);
    for (int i = 0; i < n; i++) {
        CONF_TRUE(!hd_done(copied[i]));
    }
    CONF_OK(hd_claim_end(c, HD_OK));
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_wait(copied[i], WAIT));
        CONF_FILLED(of_source ? y[i] : y[0], 0, 1, size);
    }
    for (int i = 0; i < n; i++) {
        hd_free(y[i]);
    }
    hd_free(x);
}

static void any_number_waits_for_one_claim(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(LIMIT);
    CONF_NEED_DEVICES(runtime, 2);
    for (int of_source = 0; of_source < 2; of_source++) {
        copies_behind_one_claim(runtime, 4 << 10, of_source, most);
        copies_behind_one_claim(runtime, 512 << 10, of_source, 32);
        copies_behind_one_claim(runtime, 9 << 20, of_source, 8);
    }
    conf_close(runtime);
}

/* Each copy waits for its own claim. The claims end in reverse order. */
static void copies_behind_many_claims(hd_runtime *runtime, size_t size, int n)
{
    hd_buffer *x[most], *y[most];
    hd_claim *c[most];
    hd_ticket copied[most];
    for (int i = 0; i < n; i++) {
        x[i] = on_device(runtime, 0, size, (uint32_t)i + 10);
        y[i] = on_device(runtime, 1, size, 2);
        c[i] = claim(runtime, x[i]);
        CONF_OK(hd_copy(y[i], 0, x[i], 0, size, &copied[i]));
    }
    other_bytes_pass(runtime, size);
    for (int i = n; i-- > 0;) {
        CONF_TRUE(!hd_done(copied[i]));
        CONF_OK(hd_claim_end(c[i], HD_OK));
        CONF_OK(hd_wait(copied[i], WAIT));
        CONF_FILLED(y[i], 0, (uint32_t)i + 10, size);
        other_bytes_pass(runtime, 4096);
        hd_free(x[i]);
        hd_free(y[i]);
    }
}

static void any_number_waits_for_many_claims(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(LIMIT);
    CONF_NEED_DEVICES(runtime, 2);
    /* the second round finds the chunks of the first one */
    for (int round = 0; round < 2; round++) {
        copies_behind_many_claims(runtime, 4 << 10, 100);
        copies_behind_many_claims(runtime, 512 << 10, 20);
        copies_behind_many_claims(runtime, 3 << 20, 10);
    }
    conf_close(runtime);
}

/* The claims take more chunks than the limit allows. The message states what the copy waits for,
 * and later copies of other bytes still pass. */
static void the_limit_of_pinned_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_peers=none transfer_timeout=200 pinned_limit=8M");
    CONF_NEED_DEVICES(runtime, 2);
    enum { small = 4096 };
    hd_buffer *x[most], *y[most];
    hd_claim *c[most];
    int n = 0;
    hd_status status = HD_OK;
    for (; n < most && status == HD_OK; n++) {
        x[n] = on_device(runtime, 0, small, (uint32_t)n + 10);
        y[n] = on_device(runtime, 1, small, 2);
        c[n] = claim(runtime, x[n]);
        status = hd_copy(y[n], 0, x[n], 0, small, NULL);
    }
    CONF_FAILS_WITH(status, HD_ERROR_TIMEOUT,
                    "copies that wait for work of the program hold all chunks that they may (option pinned_limit); "
                    "end the claim");
    CONF_TRUE(strstr(hd_message(), "unfinished on device 0: a claim of ") != NULL);
    CONF_TRUE(n > 24);
    other_bytes_pass(runtime, small);
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_claim_end(c[i], HD_OK));
    }
    for (int i = 0; i < n; i++) {
        CONF_FILLED(y[i], 0, i < n - 1 ? (uint32_t)i + 10 : 2, small);
        hd_free(x[i]);
        hd_free(y[i]);
    }
    conf_close(runtime);
}

/* Takes all pinned memory that is left, in blocks of `size` bytes. Returns their number. */
static int take_pinned(hd_runtime *runtime, size_t size, hd_buffer *out[most])
{
    int n = 0;
    while (n < most && hd_alloc_host(runtime, size, &out[n]) == HD_OK) {
        n++;
    }
    return n;
}

/* Many copies wait for one claim, and share the chunks. If `full`, the program then takes all
 * pinned memory that is left. */
static void one_claim_with_little_memory(const char *limit, size_t limit_bytes, size_t own, size_t size, bool full)
{
    enum { block = 16 << 10, medium = 1 << 20, small = 64 << 10 };
    char settings[160];
    hd_buffer *held = NULL, *rest[most];
    hd_memory_stats stats = {.size = sizeof stats};
    snprintf(settings, sizeof settings,
             "host_devices=2 host_peers=none transfer_timeout=20000 memory_timeout=0 pinned_limit=%s", limit);
    hd_runtime *runtime = conf_open(settings);
    CONF_NEED_DEVICES(runtime, 2);
    hd_buffer *x = on_device(runtime, 0, size, 1), *y = on_device(runtime, 1, size, 2);
    if (own) {
        CONF_OK(hd_alloc_host(runtime, own, &held));
    }
    hd_claim *c = claim(runtime, x);
    hd_ticket copied = {NULL, 0};
    for (int i = 0; i < most; i++) {
        CONF_OK(hd_copy(y, 0, x, 0, size, &copied));
    }
    CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
    /* also an idle chunk of each size, and the spare chunk */
    CONF_TRUE(stats.taken_bytes - own <= limit_bytes / 4 + medium + small + small);
    int n = full ? take_pinned(runtime, block, rest) : 0;
    other_bytes_pass(runtime, 4 << 10);
    other_bytes_pass(runtime, 200 << 10);
    for (int i = 0; i < most; i++) {
        CONF_OK(hd_copy(y, 0, x, 0, size, &copied)); /* still shares */
    }
    other_bytes_pass(runtime, 4 << 10);
    CONF_TRUE(!hd_done(copied));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(copied, WAIT));
    CONF_FILLED(y, 0, 1, size);
    for (int i = 0; i < n; i++) {
        hd_free(rest[i]);
    }
    conf_close(runtime);
}

static void little_pinned_memory(void **state)
{
    (void)state;
    const size_t mega = (size_t)1 << 20;
    for (int full = 0; full < 2; full++) {
        one_claim_with_little_memory("4M", 4 * mega, 0, 200 << 10, full);
        one_claim_with_little_memory("8M", 8 * mega, 0, 200 << 10, full);
        one_claim_with_little_memory("16M", 16 * mega, 0, 1 << 20, full);
        one_claim_with_little_memory("16M", 16 * mega, 12 * mega, 200 << 10, full);
        one_claim_with_little_memory("16M", 16 * mega, 15 * mega, 4 << 10, full);
    }
}

/* Copies behind one claim fill the lanes. The message names the claim and tells what to do. */
static void the_limit_of_lanes(void **state)
{
    (void)state;
    enum { size = 4096, many = 100000 };
    hd_runtime *runtime = conf_open("host_devices=2 submit_timeout=100 lane_slots=64");
    hd_buffer *x = on_device(runtime, 0, size, 1), *y = on_device(runtime, 0, size, 2);
    hd_claim *c = claim(runtime, x);
    hd_status status = HD_OK;
    int n = 0;
    for (; n < many && status == HD_OK; n++) {
        status = hd_copy(y, 0, x, 0, size, NULL);
    }
    CONF_FAILS_WITH(status, HD_ERROR_TIMEOUT, "unfinished on device 0: a claim of ");
    CONF_TRUE(strstr(hd_message(), "; end the claim") != NULL);
    other_bytes_pass(runtime, size);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FILLED(y, 0, 1, size);
    conf_close(runtime);
}

/* The program's buffers take all pinned memory. A copy that must wait fails at its deadline. */
static void no_pinned_memory(void **state)
{
    (void)state;
    enum { size = 4096 };
    hd_runtime *runtime =
        conf_open("host_devices=2 host_peers=none transfer_timeout=200 memory_timeout=0 pinned_limit=16M");
    CONF_NEED_DEVICES(runtime, 2);
    hd_buffer *held = NULL, *x = on_device(runtime, 0, size, 1), *y = on_device(runtime, 1, size, 2);
    CONF_OK(hd_alloc_host(runtime, 16 << 20, &held));
    hd_claim *c = claim(runtime, x);
    CONF_FAILS_WITH(hd_copy(y, 0, x, 0, size, NULL), HD_ERROR_TIMEOUT,
                    "no pinned memory is left for a copy that waits (option pinned_limit); free pinned buffers, or "
                    "end the claim");
    hd_free(held);
    CONF_OK(hd_copy(y, 0, x, 0, size, NULL));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FILLED(y, 0, 1, size);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_copies_parked");
    const struct CMUnitTest tests[] = {
        CONF_CASE(any_number_waits_for_one_claim),
        CONF_CASE(any_number_waits_for_many_claims),
        CONF_CASE(the_limit_of_pinned_memory),
        CONF_CASE(little_pinned_memory),
        CONF_CASE(no_pinned_memory),
        CONF_CASE(the_limit_of_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
