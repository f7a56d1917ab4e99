/* test_claims_copies.c - hd_claim_read and hd_claim_write: copies of claimed device memory by the
 * program that holds the claim.
 *
 * Promise: Copies of a claim wait for each other but not for the claim; later work sees their
 * bytes.
 *
 * The end of a claim waits for its copies. A random history of claims on several threads leaves the
 * bytes of a model.
 *
 * Threads: the main one, and those of the random history.
 * Locks: none.
 */
#include <stdatomic.h>
#include "claim_scene.h"

static hd_claim *claim_with_copies(hd_runtime *runtime, const hd_arg *uses, size_t n)
{
    const hd_claim_options options = {.size = sizeof options, .label = "copies", .copies = true};
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_with(runtime, uses, n, &options, &c));
    return c;
}

static hd_claim *claim_ready(scene *s, hd_arg use)
{
    hd_claim *c = claim_with_copies(s->runtime, &use, 1);
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    return c;
}

static void later_work_sees_what_they_wrote(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *c = claim_ready(&s, hd_inout_range(s.device, 64, 4096));
    hd_ticket later, copied;
    CONF_OK(hd_copy(s.unified, 0, s.device, 0, bytes, &later));
    uint32_t *p = NULL;
    CONF_OK(hd_map(s.pinned, HD_WRITE, (void **)&p));
    for (uint32_t i = 0; i < words; i++) {
        p[i] = i;
    }
    CONF_OK(hd_unmap(s.pinned));
    CONF_OK(hd_claim_write(c, 0, 0, s.pinned, 128, 4000, NULL));
    /* waits for the write, not for the claim */
    CONF_OK(hd_claim_read(c, 0, 0, s.pinned, 8192, 4096, &copied));
    CONF_OK(hd_wait(copied, HD_FOREVER));
    CONF_TRUE(!hd_done(later));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(later, HD_FOREVER));
    uint32_t *got = conf_memory(bytes);
    CONF_OK(hd_read(s.unified, 0, got, bytes));
    for (uint32_t i = 0; i < words; i++) {
        CONF_EQUAL(got[i], i >= 16 && i < 1016 ? i + 16 : 1);
    }
    CONF_OK(hd_read(s.pinned, 8192, got, 4096));
    for (uint32_t i = 0; i < 1024; i++) {
        CONF_EQUAL(got[i], i < 1000 ? i + 32 : 1);
    }
    free(got);
    end(&s);
}

static void the_claim_stays_open_until_its_copies_are_done(void **state)
{
    (void)state;
    scene s = begin("transfer_timeout=20");
    hd_claim *c = claim_ready(&s, hd_out(s.device)), *gate = NULL;
    const hd_arg use = hd_inout(s.pinned);
    hd_ticket copied, later;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &gate));
    CONF_OK(hd_claim_write(c, 0, 0, s.pinned, 0, bytes, &copied));
    CONF_FAILS_WITH(hd_claim_end(c, HD_OK), HD_ERROR_TIMEOUT, "use 0");
    CONF_OK(hd_copy(s.unified, 0, s.device, 0, bytes, &later));
    CONF_TRUE(!hd_done(copied) && !hd_done(later));
    CONF_OK(hd_claim_end(gate, HD_OK));
    CONF_OK(hd_wait(copied, HD_FOREVER));
    CONF_TRUE(!hd_done(later));
    CONF_OK(hd_claim_write(c, 0, 0, s.pinned, 0, bytes, &copied));
    hd_status status;
    while ((status = hd_claim_end(c, HD_OK)) == HD_ERROR_TIMEOUT) {
        /* the machine is busy */
    }
    CONF_OK(status);
    CONF_TRUE(hd_done(copied));
    CONF_OK(hd_wait(later, HD_FOREVER));
    end(&s);
}

static void a_copy_that_fails_leaves_the_outcome_to_the_program(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *c = claim_ready(&s, hd_inout(s.device)), *gate = NULL;
    const hd_arg use = hd_out(s.pinned);
    hd_ticket copied, fine;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &gate));
    CONF_OK(hd_claim_write(c, 0, 0, s.pinned, 0, 1024, &copied));
    CONF_OK(hd_claim_end(gate, HD_ERROR_SYSTEM));
    CONF_FAILS(hd_wait(copied, HD_FOREVER), HD_ERROR_FAILED);
    CONF_OK(hd_claim_write(c, 0, 0, s.unified, 0, 1024, &fine));
    CONF_OK(hd_wait(fine, HD_FOREVER));
    CONF_OK(hd_claim_end(c, HD_OK));
    uint32_t word = 0;
    CONF_OK(hd_read(s.device, 0, &word, sizeof word));
    CONF_EQUAL(word, 1);
    end(&s);
}

static void wrong_ones_are_refused(void **state)
{
    (void)state;
    scene s = begin(NULL), other = begin(NULL);
    const hd_arg uses[] = {hd_in(s.device), hd_inout(s.pinned), hd_inout(s.unified)};
    hd_claim *c = claim_with_copies(s.runtime, uses, 3), *plain = NULL, *behind;
    hd_buffer *host = NULL;
    hd_ticket ticket = {NULL, 0};
    CONF_OK(hd_alloc_host(s.runtime, 256, &host));
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_FAILS_WITH(hd_claim_write(c, 0, 0, host, 0, 256, &ticket), HD_ERROR_ACCESS, "only reads use 0");
    CONF_FAILS_WITH(hd_claim_read(c, 1, 0, host, 0, 256, &ticket), HD_ERROR_ACCESS, "hd_claim_get_pointer");
    CONF_FAILS_WITH(hd_claim_read(c, 2, 0, host, 0, 256, &ticket), HD_ERROR_ACCESS, "hd_claim_get_pointer");
    CONF_FAILS(hd_claim_read(c, 3, 0, host, 0, 256, &ticket), HD_ERROR_RANGE);
    CONF_FAILS_WITH(hd_claim_read(c, 0, bytes - 255, host, 0, 256, &ticket), HD_ERROR_RANGE, "use 0");
    CONF_FAILS_WITH(hd_claim_read(c, 0, 0, host, 1, 256, &ticket), HD_ERROR_RANGE, "dst");
    CONF_FAILS(hd_claim_read(c, 0, 0, other.pinned, 0, 256, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_read(c, 0, 0, NULL, 0, 256, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_read(NULL, 0, 0, host, 0, 256, &ticket), HD_ERROR_HANDLE);
    CONF_TRUE(ticket.lane == NULL);
    CONF_OK(hd_claim_read(c, 0, bytes, host, 256, 0, &ticket)); /* nothing to copy */
    CONF_TRUE(hd_done(ticket));
    const hd_arg whole = hd_out(s.device);
    behind = claim_with_copies(s.runtime, &whole, 1);
    CONF_FAILS(hd_claim_write(behind, 0, 0, host, 0, 256, &ticket), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FAILS(hd_claim_read(c, 0, 0, host, 0, 256, &ticket), HD_ERROR_HANDLE);
    CONF_OK(hd_claim_end(behind, HD_OK));
    CONF_OK(hd_claim_begin(s.runtime, uses, 1, &plain));
    CONF_OK(hd_claim_wait(plain, HD_FOREVER));
    CONF_FAILS_WITH(hd_claim_read(plain, 0, 0, host, 0, 256, &ticket), HD_ERROR_ARGUMENT, "hd_claim_options.copies");
    CONF_OK(hd_claim_end(plain, HD_OK));
    hd_free(host);
    end(&other);
    end(&s);
}

static void a_freed_buffer_keeps_its_bytes_for_them(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *c = claim_ready(&s, hd_inout(s.device));
    hd_buffer *next = NULL;
    hd_ticket filled, copied;
    hd_free(s.device);
    CONF_OK(hd_alloc(s.lane, bytes, &next)); /* perhaps of the same memory */
    CONF_OK(hd_fill(next, 0, 9, bytes, &filled));
    CONF_OK(hd_claim_write(c, 0, 4, s.pinned, 0, bytes - 4, NULL));
    CONF_OK(hd_claim_read(c, 0, 0, s.pinned, 0, bytes, &copied));
    CONF_OK(hd_wait(copied, HD_FOREVER));
    uint32_t *p = NULL;
    CONF_OK(hd_map(s.pinned, HD_READ, (void **)&p));
    for (uint32_t i = 0; i < words; i++) {
        CONF_EQUAL(p[i], 1);
    }
    CONF_OK(hd_unmap(s.pinned));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_OK(hd_read(next, bytes - 4, &(uint32_t){0}, 4));
    s.device = next;
    end(&s);
}

/* ---- a random history ---- */

enum { THREADS = 4, ROUNDS = 150, PART = 256, PARTS = words * 4 / PART };

typedef struct adder {
    scene *s;
    _Atomic uint32_t *model; /* of each part: how often claims added 1 to all its words */
    conf_random random;
} adder;

/* Adds 1 to the words of a random range of parts, through pinned memory, in two copies each way. */
static void adder_add(adder *a, hd_buffer *via)
{
    uint32_t low = (uint32_t)conf_below(&a->random, PARTS), n = 1 + (uint32_t)conf_below(&a->random, PARTS - low);
    size_t size = (size_t)n * PART, half = size / 2;
    const hd_arg use = hd_inout_range(a->s->device, (size_t)low * PART, size);
    hd_claim *c = claim_with_copies(a->s->runtime, &use, 1);
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_OK(hd_claim_read(c, 0, 0, via, 0, half, NULL));
    CONF_OK(hd_claim_read(c, 0, half, via, half, size - half, NULL));
    uint32_t *p = NULL;
    CONF_OK(hd_map(via, HD_WRITE, (void **)&p)); /* waits for both copies */
    for (uint32_t i = 0; i < size / 4; i++) {
        p[i]++;
    }
    CONF_OK(hd_unmap(via));
    CONF_OK(hd_claim_write(c, 0, half, via, half, size - half, NULL));
    CONF_OK(hd_claim_write(c, 0, 0, via, 0, half, NULL));
    CONF_OK(hd_claim_end(c, HD_OK));
    for (uint32_t i = low; i < low + n; i++) {
        atomic_fetch_add(&a->model[i], 1);
    }
}

static void *adder_run(void *argument)
{
    adder *a = argument;
    hd_buffer *via = NULL;
    CONF_OK(hd_alloc_host(a->s->runtime, bytes, &via));
    for (int i = 0; i < ROUNDS; i++) {
        adder_add(a, via);
    }
    hd_free(via);
    return NULL;
}

static void a_random_history_is_that_of_the_model(void **state)
{
    (void)state;
    scene s = begin(NULL);
    static _Atomic uint32_t model[PARTS];
    memset(model, 0, sizeof model);
    adder adders[THREADS];
    pthread_t threads[THREADS];
    conf_failure_ends_program = true;
    for (int i = 0; i < THREADS; i++) {
        adders[i] = (adder){.s = &s, .model = model, .random = {(uint64_t)i + 1}};
        CONF_EQUAL(pthread_create(&threads[i], NULL, adder_run, &adders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    conf_failure_ends_program = false;
    uint32_t *got = conf_memory(bytes);
    CONF_OK(hd_read(s.device, 0, got, bytes));
    for (uint32_t i = 0; i < words; i++) {
        CONF_EQUAL(got[i], 1 + atomic_load(&model[i / (PART / 4)]));
    }
    free(got);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(later_work_sees_what_they_wrote),
        CONF_CASE(the_claim_stays_open_until_its_copies_are_done),
        CONF_CASE(a_copy_that_fails_leaves_the_outcome_to_the_program),
        CONF_CASE(wrong_ones_are_refused),
        CONF_CASE(a_freed_buffer_keeps_its_bytes_for_them),
        CONF_CASE(a_random_history_is_that_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
