/* test_claims_beside.c - work that a copy behind an open claim holds up: only work on the same
 * bytes.
 *
 * Promise: While a claim is open, work on its bytes waits, and transfers of other bytes continue.
 *
 * The transfers of the thread that has to end the claim continue, too. Work on claimed bytes waits
 * through any work in between. Every wait uses the limit of its case. If it passes, the wait fails
 * and names the work that it waits for.
 *
 * Threads: the main one; some cases add readers of claimed bytes. Functions of the program run on
 * threads of the library.
 * Locks: none.
 */
#include "claim_scene.h"
#include "claimed.h"

#define LIMIT "transfer_timeout=60000 submit_timeout=60000"
#define WAIT (60 * CONF_SECOND)

static hd_buffer *on_host(hd_runtime *runtime, size_t size, uint32_t word)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc_host(runtime, size, &buffer));
    CONF_OK(hd_fill(buffer, 0, word, size, NULL));
    return buffer;
}

static void copy_now(hd_buffer *to, size_t to_at, hd_buffer *from, size_t from_at, size_t size)
{
    hd_ticket done;
    CONF_OK(hd_copy(to, to_at, from, from_at, size, &done));
    CONF_OK(hd_wait(done, WAIT));
}

/* Makes transfers of all kinds between buffers that nothing else uses. They end before this
 * returns. */
static void other_transfers(hd_runtime *runtime, int device)
{
    enum { some = 2 * 4096 };
    static uint32_t memory[some / 4];
    hd_buffer *a = on_device(runtime, device, some, 5), *pinned = on_host(runtime, some, 6);
    hd_ticket filled;
    CONF_OK(hd_fill(a, 0, 7, some / 2, &filled));
    CONF_OK(hd_wait(filled, WAIT));
    copy_now(a, some / 2, a, 0, some / 2);
    copy_now(pinned, 0, a, 0, some);
    CONF_FILLED(pinned, 0, 7, some);
    copy_now(a, 0, pinned, 0, some);
    for (size_t i = 0; i < some / 4; i++) {
        memory[i] = 8;
    }
    CONF_OK(hd_write(a, 0, memory, some));
    CONF_FILLED(a, 0, 8, some);
    const hd_box box = {
        .size = sizeof box, .row = 64, .dims = 1, .count = {16}, .dst_stride = {128}, .src_stride = {64}};
    CONF_OK(hd_write_box(a, 0, memory, &box));
    CONF_OK(hd_read_box(a, 0, memory, &(hd_box){.size = sizeof box, .row = 64}));
    hd_free(a);
    hd_free(pinned);
}

/* ---- one device ---- */

typedef struct parked {
    const char *name;
    hd_status (*submit)(scene *s, hd_buffer *claimed, hd_ticket *out);
} parked;

static hd_status copy_from(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    return hd_copy(s->device, 0, claimed, 0, bytes, out);
}

static hd_status copy_to(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    return hd_copy(claimed, 0, s->device, 0, bytes, out);
}

static hd_status copy_to_host(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    return hd_copy(s->pinned, 0, claimed, 0, bytes, out);
}

static hd_status copy_of_host(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    return hd_copy(claimed, 0, s->pinned, 0, bytes, out);
}

static hd_status copy_unified(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    return hd_copy(s->unified, 0, claimed, 0, bytes, out);
}

static hd_status fill(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    (void)s;
    return hd_fill(claimed, 0, 3, bytes, out);
}

static hd_status fill_part(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    (void)s;
    return hd_fill(claimed, 256, 3, 256, out);
}

static hd_status write_ahead(scene *s, hd_buffer *claimed, hd_ticket *out)
{
    static uint32_t memory[words];
    (void)s;
    *out = (hd_ticket){NULL, 0};
    return hd_write(claimed, 0, memory, bytes);
}

static const parked kinds[] = {
    {"copy from", copy_from},           {"copy to", copy_to},      {"copy to the host", copy_to_host},
    {"copy of the host", copy_of_host}, {"unified", copy_unified}, {"fill", fill},
    {"fill a part", fill_part},         {"write", write_ahead},
};

static void transfers_of_other_bytes_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        scene s = begin(LIMIT);
        hd_buffer *claimed = on_device(s.runtime, 0, bytes, 1);
        hd_claim *c = claim(s.runtime, claimed);
        hd_ticket waits;
        CONF_OK(kinds[i].submit(&s, claimed, &waits));
        other_transfers(s.runtime, 0);
        if (waits.lane != NULL && hd_done(waits)) {
            conf_fail_at(__FILE__, __LINE__, "%s was done before the claim ended", kinds[i].name);
        }
        CONF_OK(hd_claim_end(c, HD_OK));
        CONF_OK(hd_wait(waits, WAIT));
        hd_free(claimed);
        end(&s);
    }
}

/* A claim on the host's bytes of unified memory, or on pinned memory. */
static void claims_of_host_memory_are_no_different(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    hd_buffer *const claimed[] = {s.pinned, s.unified};
    for (int i = 0; i < 2; i++) {
        hd_claim *c = claim(s.runtime, claimed[i]);
        hd_ticket copied, filled;
        CONF_OK(hd_copy(s.device, 0, claimed[i], 0, bytes, &copied));
        CONF_OK(hd_fill(claimed[i], 0, 9, bytes, &filled));
        other_transfers(s.runtime, 0);
        CONF_TRUE(!hd_done(copied));
        CONF_OK(hd_claim_end(c, HD_OK));
        CONF_OK(hd_wait(filled, WAIT));
        CONF_FILLED(s.device, 0, 1, bytes);
        CONF_FILLED(claimed[i], 0, 9, bytes);
        CONF_OK(hd_fill(claimed[i], 0, 1, bytes, NULL));
    }
    end(&s);
}

static void parts_of_a_buffer_are_apart(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1);
    const hd_arg half = hd_inout_range(x, 0, bytes / 2);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s.runtime, &half, 1, &c));
    hd_ticket waits, goes;
    CONF_OK(hd_copy(s.device, 0, x, 0, 64, &waits));
    CONF_OK(hd_copy(s.device, 64, x, bytes / 2, 64, &goes));
    CONF_OK(hd_wait(goes, WAIT));
    CONF_OK(hd_fill(x, bytes / 2, 4, bytes / 2, NULL));
    CONF_FILLED(x, bytes / 2, 4, bytes / 2);
    CONF_TRUE(!hd_done(waits));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(waits, WAIT));
    hd_free(x);
    end(&s);
}

static void a_claim_that_fails_fails_its_copies_alone(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1), *y = on_device(s.runtime, 0, bytes, 1);
    hd_claim *c = claim(s.runtime, x), *d = claim(s.runtime, y);
    hd_ticket failed, good;
    CONF_OK(hd_copy(s.device, 0, x, 0, bytes, &failed));
    CONF_OK(hd_copy(s.pinned, 0, y, 0, bytes, &good));
    CONF_OK(hd_claim_end(c, HD_ERROR_SYSTEM));
    CONF_FAILS(hd_wait(failed, WAIT), HD_ERROR_FAILED);
    CONF_OK(hd_claim_end(d, HD_OK));
    CONF_OK(hd_wait(good, WAIT));
    CONF_OK(hd_fill(s.device, 0, 2, bytes, NULL));
    CONF_FILLED(s.device, 0, 2, bytes);
    hd_free(x);
    hd_free(y);
    end(&s);
}

/* ---- several claims ---- */

/* The program ends the claims in reverse order, while copies wait for each. */
static void claims_may_end_in_any_order(void **state)
{
    (void)state;
    enum { n = 12 };
    scene s = begin(LIMIT);
    hd_buffer *x[n], *y[n];
    hd_claim *c[n];
    hd_ticket copied[n][2];
    for (int i = 0; i < n; i++) {
        x[i] = on_device(s.runtime, 0, bytes, (uint32_t)i);
        y[i] = on_device(s.runtime, 0, bytes, 99);
        c[i] = claim(s.runtime, x[i]);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++) {
            CONF_OK(hd_copy(y[i], round * (bytes / 2), x[i], 0, bytes / 2, &copied[i][round]));
        }
    }
    for (int i = n; i-- > 0;) {
        CONF_TRUE(!hd_done(copied[i][0]));
        CONF_OK(hd_claim_end(c[i], HD_OK));
        CONF_OK(hd_wait(copied[i][0], WAIT));
        CONF_OK(hd_wait(copied[i][1], WAIT));
        CONF_FILLED(y[i], 0, (uint32_t)i, bytes);
        hd_free(x[i]);
        hd_free(y[i]);
    }
    end(&s);
}

/* More claims than lanes: the copies end in the order of the claims, and hold up nothing else. */
static void there_may_be_any_number_of_claims(void **state)
{
    (void)state;
    enum { n = 80 };
    scene s = begin(LIMIT);
    hd_buffer *x[n], *y = on_device(s.runtime, 0, n * 64, 99);
    hd_claim *c[n];
    hd_ticket copied[n];
    for (int i = 0; i < n; i++) {
        x[i] = on_device(s.runtime, 0, 64, (uint32_t)i);
        c[i] = claim(s.runtime, x[i]);
    }
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_copy(y, (size_t)i * 64, x[i], 0, 64, &copied[i]));
    }
    other_transfers(s.runtime, 0);
    for (int i = 0; i < n; i++) {
        CONF_TRUE(!hd_done(copied[i]));
        CONF_OK(hd_claim_end(c[i], HD_OK));
        CONF_OK(hd_wait(copied[i], WAIT));
        CONF_FILLED(y, (size_t)i * 64, (uint32_t)i, 64);
    }
    for (int i = 0; i < n; i++) {
        hd_free(x[i]);
    }
    hd_free(y);
    end(&s);
}

/* One copy waits for two claims. Copies of one claim's bytes must not wait for the other claim. */
static void a_copy_may_wait_for_two(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1), *y = on_device(s.runtime, 0, bytes, 2),
              *z = on_device(s.runtime, 0, bytes, 3);
    hd_claim *c = claim(s.runtime, x), *d = claim(s.runtime, y);
    hd_ticket first, both, second, again;
    CONF_OK(hd_copy(z, 0, x, 0, 64, &first));
    CONF_OK(hd_copy(y, 0, x, 64, 64, &both));
    CONF_OK(hd_copy(z, 64, x, 128, 64, &again));
    CONF_OK(hd_copy(z, 128, y, 128, 64, &second));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(first, WAIT));
    CONF_OK(hd_wait(again, WAIT));
    CONF_TRUE(!hd_done(both) && !hd_done(second));
    other_transfers(s.runtime, 0);
    CONF_OK(hd_claim_end(d, HD_OK));
    CONF_OK(hd_wait(both, WAIT));
    CONF_OK(hd_wait(second, WAIT));
    CONF_FILLED(z, 128, 2, 64);
    hd_free(x);
    hd_free(y);
    hd_free(z);
    end(&s);
}

/* ---- by way of other work ---- */

static void what_waits_for_a_copy_waits_for_its_claim(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1), *y = on_device(s.runtime, 0, bytes, 2),
              *z = on_host(s.runtime, bytes, 3);
    hd_claim *c = claim(s.runtime, x);
    hd_ticket copy, launch, last;
    CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
    CONF_OK(hd_copy(z, 0, y, 0, bytes, &copy));
    other_transfers(s.runtime, 0);
    CONF_OK(conf_fill(s.lane, s.k, y, 0, words, 4, &launch));
    CONF_OK(hd_copy(s.device, 0, y, 0, bytes, &last));
    /* it waits for the copy, and so for the other claim */
    hd_claim *behind = claim(s.runtime, s.device);
    CONF_OK(hd_copy(s.pinned, 0, s.device, 0, bytes, NULL));
    other_transfers(s.runtime, 0);
    CONF_OK(hd_claim_end(behind, HD_OK)); /* before it is ready */
    CONF_OK(hd_fill(s.device, 0, 5, bytes, NULL));
    other_transfers(s.runtime, 0);
    CONF_TRUE(!hd_done(copy) && !hd_done(launch) && !hd_done(last));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FILLED(z, 0, 1, bytes);
    CONF_FILLED(s.pinned, 0, 4, bytes);
    CONF_FILLED(s.device, 0, 5, bytes);
    hd_free(x);
    hd_free(y);
    hd_free(z);
    end(&s);
}

/* A lane of the program is in order: behind a launch that waits for a claim, its later work waits,
 * too. Other work does not. */
static void a_lane_of_the_program_waits_for_its_claims(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1), *y = on_device(s.runtime, 0, bytes, 2),
              *r = on_device(s.runtime, 0, bytes, 3), *q = on_device(s.runtime, 0, bytes, 3);
    hd_claim *c = claim(s.runtime, x), *d = claim(s.runtime, y);
    hd_ticket first, second;
    CONF_OK(conf_fill(s.lane, s.k, x, 0, words, 4, NULL));
    /* waits in its lane for the first claim */
    CONF_OK(conf_fill(s.lane, s.k, r, 0, words, 5, NULL));
    CONF_OK(conf_fill(s.lane, s.k, y, 0, words, 6, NULL));
    CONF_OK(conf_fill(s.lane, s.k, q, 0, words, 7, NULL)); /* waits for both */
    CONF_OK(hd_copy(s.pinned, 0, r, 0, bytes / 2, &first));
    CONF_OK(hd_copy(s.pinned, bytes / 2, q, 0, bytes / 2, &second));
    other_transfers(s.runtime, 0);
    CONF_TRUE(!hd_done(first));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(first, WAIT));
    CONF_TRUE(!hd_done(second));
    CONF_OK(hd_copy(s.unified, 0, q, 0, bytes, NULL));
    other_transfers(s.runtime, 0);
    CONF_OK(hd_claim_end(d, HD_OK));
    CONF_OK(hd_wait(second, WAIT));
    CONF_FILLED(s.pinned, 0, 5, bytes / 2);
    CONF_FILLED(s.pinned, bytes / 2, 7, bytes / 2);
    hd_free(x);
    hd_free(y);
    hd_free(r);
    hd_free(q);
    end(&s);
}

/* ---- functions of the program ---- */

typedef struct working {
    hd_runtime *runtime;
    hd_buffer *own, *to;
    hd_ticket copied;
    bool ready;
} working;

/* Submits a copy that waits for the end of this very call. Other transfers must end meanwhile. */
static hd_status work(void *const *pointers, void *context)
{
    working *w = context;
    ((uint32_t *)pointers[0])[0] = 77;
    hd_status status = hd_copy(w->to, 0, w->own, 0, bytes, &w->copied);
    if (status == HD_OK) {
        other_transfers(w->runtime, 0);
        w->ready = !hd_done(w->copied);
    }
    return status;
}

static void a_function_may_copy_other_bytes(void **state)
{
    (void)state;
    scene s = begin(LIMIT);
    working w = {.runtime = s.runtime, .own = s.pinned, .to = s.device};
    const hd_arg use = hd_inout(s.pinned);
    hd_ticket called;
    CONF_OK(hd_launch_host(s.runtime, work, &w, &use, 1, &called));
    CONF_OK(hd_wait(called, WAIT));
    CONF_TRUE(w.ready);
    CONF_OK(hd_wait(w.copied, WAIT));
    CONF_FILLED(s.device, 0, 77, 4);
    end(&s);
}

/* ---- the program's own memory ---- */

/* Some writes do not wait for the claim: as many as the library can buffer. They leave enough
 * memory for others. */
static void writes_ahead_leave_room(void **state)
{
    (void)state;
    enum { n = 24 };
    static uint32_t memory[words];
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1);
    hd_claim *c = claim(s.runtime, x);
    for (uint32_t i = 0; i < n; i++) {
        memory[0] = i;
        CONF_OK(hd_write(x, 0, memory, bytes));
        other_transfers(s.runtime, 0);
    }
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FILLED(x, 0, n - 1, 4);
    hd_free(x);
    end(&s);
}

typedef struct reader {
    pthread_t thread;
    hd_buffer *x;
    size_t size;
    hd_status status;
    uint32_t got;
} reader;

static void *read_it(void *context)
{
    reader *r = context;
    uint32_t *memory = malloc(r->size);
    r->status = memory ? hd_read(r->x, 0, memory, r->size) : HD_ERROR_HOST_MEMORY;
    r->got = r->status == HD_OK ? memory[r->size / 4 - 1] : 0;
    free(memory);
    return NULL;
}

/* More threads than there are chunks read claimed bytes, and others read other bytes. */
static void readers_that_wait_leave_room(void **state)
{
    (void)state;
    enum { n = 40, large = 3 << 20 };
    static reader readers[n];
    scene s = begin(LIMIT);
    hd_buffer *x = on_device(s.runtime, 0, large, 1), *y = on_device(s.runtime, 0, large, 2);
    hd_claim *c = claim(s.runtime, x);
    for (int i = 0; i < n; i++) {
        readers[i] = (reader){.x = x, .size = i % 8 == 0 ? large : bytes};
        CONF_EQUAL(pthread_create(&readers[i].thread, NULL, read_it, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        other_transfers(s.runtime, 0);
        CONF_FILLED(y, 0, 2, large);
    }
    CONF_OK(hd_claim_end(c, HD_OK));
    for (int i = 0; i < n; i++) {
        CONF_EQUAL(pthread_join(readers[i].thread, NULL), 0);
        CONF_OK(readers[i].status);
        CONF_EQUAL(readers[i].got, 1);
    }
    hd_free(x);
    hd_free(y);
    end(&s);
}

static void a_read_that_is_not_in_time_names_the_claim(void **state)
{
    (void)state;
    scene s = begin("transfer_timeout=50");
    hd_buffer *x = on_device(s.runtime, 0, bytes, 1);
    static uint32_t memory[words];
    const hd_arg use = hd_inout(x);
    const hd_claim_options options = {.size = sizeof options, .label = "left halo"};
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_with(s.runtime, &use, 1, &options, &c));
    CONF_FAILS_WITH(hd_read(x, 0, memory, bytes), HD_ERROR_TIMEOUT, "left halo");
    CONF_OK(hd_claim_end(c, HD_OK));
    hd_ticket filled;
    CONF_OK(hd_fill(x, 0, 2, bytes, &filled));
    CONF_OK(hd_wait(filled, WAIT));
    hd_free(x);
    end(&s);
}

/* ---- two devices ---- */

/* Copies of claimed bytes between two devices, and others between the same two. */
static void between_devices(hd_runtime *runtime, size_t size, bool of_source, int n)
{
    hd_buffer *x[32], *y[32], *a = on_device(runtime, 0, size, 7), *b = on_device(runtime, 1, size, 8);
    hd_claim *c[32];
    hd_ticket copied[32];
    for (int i = 0; i < n; i++) {
        x[i] = on_device(runtime, 0, size, (uint32_t)i);
        y[i] = on_device(runtime, 1, size, 99);
        c[i] = claim(runtime, of_source ? x[i] : y[i]);
        CONF_OK(hd_copy(y[i], 0, x[i], 0, size, &copied[i]));
        copy_now(b, 0, a, 0, size);
        copy_now(a, 0, b, 0, size);
    }
    other_transfers(runtime, 0);
    other_transfers(runtime, 1);
    CONF_FILLED(b, 0, 7, size);
    for (int i = 0; i < n; i++) {
        CONF_TRUE(!hd_done(copied[i]));
        CONF_OK(hd_claim_end(c[i], HD_OK));
        CONF_OK(hd_wait(copied[i], WAIT));
        CONF_FILLED(y[i], 0, (uint32_t)i, size);
    }
    for (int i = 0; i < n; i++) {
        hd_free(x[i]);
        hd_free(y[i]);
    }
    hd_free(a);
    hd_free(b);
}

static void copies_between_devices_go_on(void **state)
{
    (void)state;
    static const char *const peers[] = {"host_peers=all " LIMIT, "host_peers=none " LIMIT};
    for (int p = 0; p < 2; p++) {
        hd_runtime *runtime = conf_open(peers[p]);
        CONF_NEED_DEVICES(runtime, 2);
        for (int of_source = 0; of_source < 2; of_source++) {
            /* more than there are chunks of this size */
            between_devices(runtime, 16 << 10, of_source, 20);
            between_devices(runtime, 512 << 10, of_source, 3);
            between_devices(runtime, 17 << 20, of_source, 2);
        }
        conf_close(runtime);
    }
}

/* The claim, its copies and the other work use three devices. */
static void claims_reach_through_devices(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_peers=none " LIMIT);
    CONF_NEED_DEVICES(runtime, 3);
    hd_buffer *of[3];
    for (int d = 0; d < 3; d++) {
        of[d] = on_device(runtime, d, bytes, (uint32_t)d + 1);
    }
    hd_claim *c = claim(runtime, of[0]);
    hd_ticket last;
    CONF_OK(hd_copy(of[1], 0, of[0], 0, bytes, NULL));
    CONF_OK(hd_copy(of[2], 0, of[1], 0, bytes, &last));
    for (int d = 0; d < 3; d++) {
        other_transfers(runtime, d);
    }
    CONF_TRUE(!hd_done(last));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(last, WAIT));
    CONF_FILLED(of[2], 0, 1, bytes);
    for (int d = 0; d < 3; d++) {
        hd_free(of[d]);
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_claims_beside");
    const struct CMUnitTest tests[] = {
        CONF_CASE(transfers_of_other_bytes_go_on),
        CONF_CASE(claims_of_host_memory_are_no_different),
        CONF_CASE(parts_of_a_buffer_are_apart),
        CONF_CASE(a_claim_that_fails_fails_its_copies_alone),
        CONF_CASE(claims_may_end_in_any_order),
        CONF_CASE(there_may_be_any_number_of_claims),
        CONF_CASE(a_copy_may_wait_for_two),
        CONF_CASE(what_waits_for_a_copy_waits_for_its_claim),
        CONF_CASE(a_lane_of_the_program_waits_for_its_claims),
        CONF_CASE(a_function_may_copy_other_bytes),
        CONF_CASE(writes_ahead_leave_room),
        CONF_CASE(readers_that_wait_leave_room),
        CONF_CASE(a_read_that_is_not_in_time_names_the_claim),
        CONF_CASE(copies_between_devices_go_on),
        CONF_CASE(claims_reach_through_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
