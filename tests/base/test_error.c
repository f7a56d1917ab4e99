/* test_error.c - the error path: messages, fields, threads, structures of other sizes, and failures
 * without memory.
 *
 * Promise: Every failure leaves the calling thread a message and fields, also without memory.
 * Threads: the main one, and others in two cases.
 */
#include "support/check.h"
#include "support/sanitizers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/error.h"
#include "base/presence.h"
#include <heddle.h>

static void starts_blank(void **unused)
{
    (void)unused;
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    assert_int_equal(e.status, HD_OK);
    assert_int_equal(e.device, -1);
    assert_int_equal(e.lane, -1);
    assert_string_equal(hd_message(), "");
}

static void keeps_the_last_failure(void **unused)
{
    (void)unused;
    assert_int_equal(hdi_fail(HD_ERROR_RANGE, "hd_read: %d bytes", 7), HD_ERROR_RANGE);
    assert_string_equal(hd_message(), "hd_read: 7 bytes");
    assert_int_equal(hdi_fail_driver(HD_ERROR_MEMORY, 2, "cuMemCreate", 3, "hd_alloc: no memory"), HD_ERROR_MEMORY);
    assert_string_equal(hd_message(), "hd_alloc: no memory (cuMemCreate on device 3 returned 2)");

    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    assert_int_equal(e.size, sizeof e);
    assert_int_equal(e.status, HD_ERROR_MEMORY);
    assert_int_equal(e.driver_code, 2);
    assert_int_equal(e.device, 3);
    assert_int_equal(e.lane, -1);
    assert_string_equal(e.operation, "cuMemCreate");
    assert_string_equal(e.kernel, "");
    assert_string_equal(e.message, hd_message());

    hdi_fail_driver(HD_ERROR_DRIVER, 999, "cuInit", -1, "hd_open: failed");
    assert_string_equal(hd_message(), "hd_open: failed (cuInit returned 999)");
    hdi_fail_driver(HD_ERROR_DRIVER, 999, NULL, 1, "lane: lost");
    assert_string_equal(hd_message(), "lane: lost (the driver on device 1 returned 999)");
}

static void messages_are_one_bounded_line(void **unused)
{
    (void)unused;
    hdi_fail(HD_ERROR_IMAGE, "first\nsecond\ttab");
    assert_string_equal(hd_message(), "first second tab");

    char long_text[2000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    hdi_fail_driver(HD_ERROR_IMAGE, 1, long_text, 0, "%s", long_text);
    assert_int_equal(strlen(hd_message()), sizeof((hd_error *)0)->message - 1);

    hdi_fail(HD_ERROR_ARGUMENT, "inner");
    hdi_fail(HD_ERROR_FAILED, "outer: %s", hd_message());
    assert_string_equal(hd_message(), "outer: inner");
}

/* A failure inside an attempt changes nothing outside, unless it is the attempt's result. */
static void attempts_keep_their_failures(void **unused)
{
    (void)unused;
    hdi_fail(HD_ERROR_LIMIT, "kept");
    hdi_attempt outer, inner;
    hdi_attempt_begin(&outer);
    assert_string_equal(hd_message(), "kept");
    hdi_fail(HD_ERROR_SYSTEM, "first");
    assert_string_equal(hd_message(), "first");
    hdi_attempt_begin(&inner);
    hdi_fail(HD_ERROR_RANGE, "second");
    hdi_attempt_end(&inner);
    assert_int_equal(inner.error.status, HD_ERROR_RANGE);
    assert_string_equal(hd_message(), "first");
    assert_int_equal(hdi_attempt_result(&outer, HD_OK), HD_OK);
    assert_string_equal(hd_message(), "kept");

    hdi_attempt_begin(&outer);
    hdi_attempt_begin(&inner);
    hdi_fail(HD_ERROR_RANGE, "inner");
    assert_int_equal(hdi_attempt_result(&inner, HD_ERROR_RANGE), HD_ERROR_RANGE);
    assert_string_equal(outer.error.message, "inner");
    assert_int_equal(hdi_attempt_result(&outer, HD_ERROR_RANGE), HD_ERROR_RANGE);
    assert_string_equal(hd_message(), "inner");

    hdi_attempt_begin(&outer);
    assert_int_equal(hdi_attempt_result(&outer, HD_ERROR_FAILED), HD_ERROR_FAILED);
    assert_string_equal(hd_message(), "inner"); /* the attempt recorded no failure */
}

static hd_status hd_some_call(const char *format)
{
    HDI_CALL();
    return hdi_fail(HD_ERROR_ARGUMENT, format, 7);
}

static hd_status hd_some_call_within(const void *runtime)
{
    HDI_INSIDE(runtime);
    return hdi_fail(HD_ERROR_ARGUMENT, "within");
}

/* The message starts with the call's name once, however much context is put in front. */
static void the_name_of_the_call_is_in_front(void **unused)
{
    (void)unused;
    assert_int_equal(hd_some_call("bytes is %d"), HD_ERROR_ARGUMENT);
    assert_string_equal(hd_message(), "hd_some_call: bytes is 7");
    assert_int_equal(hdi_fail_about(HD_ERROR_ARGUMENT, "argument %d", 2), HD_ERROR_ARGUMENT);
    assert_string_equal(hd_message(), "hd_some_call: argument 2: bytes is 7");
    assert_int_equal(HDI_FAIL_ABOUT(HD_OK, "argument %d", 3), HD_OK);
    assert_string_equal(hd_message(), "hd_some_call: argument 2: bytes is 7");
    hd_error error;
    hdi_error_get(&error);
    hdi_fail(HD_ERROR_LIMIT, "other");
    assert_int_equal(hdi_fail_error(&error), HD_ERROR_ARGUMENT);
    assert_string_equal(hd_message(), "hd_some_call: argument 2: bytes is 7");
    assert_string_equal(hdi_call_name(), "hd_some_call");

    {
        HDI_IS_INSIDE(&error, "hd_outer");
        hd_some_call_within(&error);
        assert_string_equal(hd_message(), "hd_outer: within");
        const hdi_apart apart = hdi_presence_apart();
        hd_some_call("in a callback");
        hdi_presence_together(apart);
        hdi_fail(HD_ERROR_LIMIT, "behind it");
        assert_string_equal(hd_message(), "hd_outer: behind it");
    }
    {
        HDI_INSIDE_STILL(&error);
        hdi_fail(HD_ERROR_LIMIT, "still");
        assert_string_equal(hd_message(), "hd_outer: still");
    }
    hdi_call_continue(NULL);
    hdi_fail(HD_ERROR_LIMIT, "text");
    assert_string_equal(hd_message(), "text");
}

static void fills_structures_of_other_sizes(void **unused)
{
    (void)unused;
    hdi_fail_driver(HD_ERROR_DRIVER, 5, "cuInit", 1, "text");
    hd_last_error(NULL);

    hd_error shorter;
    memset(&shorter, 0x55, sizeof shorter);
    shorter.size = offsetof(hd_error, lane);
    hd_last_error(&shorter);
    assert_int_equal(shorter.device, 1);
    assert_int_equal(shorter.lane, 0x55555555);
    assert_int_equal(shorter.size, offsetof(hd_error, lane));

    struct {
        hd_error known;
        char more[16];
    } longer;
    memset(&longer, 0x55, sizeof longer);
    longer.known.size = sizeof longer;
    hd_last_error(&longer.known);
    assert_string_equal(longer.known.message, hd_message());
    for (size_t i = 0; i < sizeof longer.more; i++) {
        assert_int_equal(longer.more[i], 0);
    }
    assert_int_equal(longer.known.size, sizeof longer);

    hd_error none;
    memset(&none, 0x55, sizeof none);
    none.size = 0;
    hd_last_error(&none);
    assert_int_equal(none.device, 0x55555555);
}

static void *other_thread(void *out)
{
    strcpy(out, hd_message());
    hdi_fail(HD_ERROR_ARGUMENT, "from the other thread");
    return NULL;
}

static void threads_have_their_own(void **unused)
{
    (void)unused;
    hdi_fail(HD_ERROR_ARGUMENT, "mine");
    char seen[64] = "unset";
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, seen), 0);
    pthread_join(thread, NULL);
    assert_string_equal(seen, "");
    assert_string_equal(hd_message(), "mine");
}

#if !TEST_ASAN && !TEST_TSAN /* the sanitizers define their own calloc */
static atomic_bool memory_is_out;

void *__libc_calloc(size_t count, size_t bytes);
void *calloc(size_t count, size_t bytes)
{
    return memory_is_out ? NULL : __libc_calloc(count, bytes);
}

enum { THREADS = 40 };
static pthread_barrier_t all_are_there, all_have_failed, all_have_looked;
static atomic_int told, untold, wrong;

static void *fails_without_memory(void *number)
{
    pthread_barrier_wait(&all_are_there); /* starting a thread needs memory */
    memory_is_out = true;
    char expected[64];
    snprintf(expected, sizeof expected, "failure %d", (int)(intptr_t)number);
    hd_error before;
    hdi_error_get(&before);
    wrong += before.status != HD_OK;
    wrong += hdi_fail(HD_ERROR_RANGE, "%s", expected) != HD_ERROR_RANGE;
    pthread_barrier_wait(&all_have_failed);
    hd_error e = {.size = sizeof e};
    hd_last_error(&e);
    if (strcmp(hd_message(), expected) == 0 && e.status == HD_ERROR_RANGE) {
        told++;
    } else if (strstr(hd_message(), "out of host memory") != NULL && e.status == HD_ERROR_HOST_MEMORY) {
        untold++;
    } else {
        wrong++;
    }
    wrong += strcmp(hdi_error_name("name %d", 1), "name 1") != 0 && e.status == HD_ERROR_RANGE;
    pthread_barrier_wait(&all_have_looked);
    memory_is_out = false;
    wrong += hdi_fail(HD_ERROR_ARGUMENT, "later") != HD_ERROR_ARGUMENT || strcmp(hd_message(), "later") != 0;
    return NULL;
}

/* Several rounds: later threads reuse the memory of earlier ones. */
static void failures_are_told_without_memory(void **unused)
{
    (void)unused;
    pthread_barrier_init(&all_are_there, NULL, THREADS);
    pthread_barrier_init(&all_have_failed, NULL, THREADS);
    pthread_barrier_init(&all_have_looked, NULL, THREADS);
    for (int round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        told = untold = wrong = 0;
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, fails_without_memory, (void *)(intptr_t)i), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        assert_int_equal(wrong, 0);
        assert_int_equal(told + untold, THREADS);
        assert_true(told >= 16);
        assert_true(untold > 0); /* else memory never ran out */
    }
}
#endif

static void a_layer_sets_a_failure(void **state)
{
    (void)state;
    hd_error e = {.size = sizeof e};
    assert_int_equal(hd_error_set(HD_ERROR_RANGE, "layer_call: bytes\n12"), HD_ERROR_RANGE);
    assert_string_equal(hd_message(), "layer_call: bytes 12");
    hd_last_error(&e);
    assert_int_equal(e.status, HD_ERROR_RANGE);
    assert_int_equal(hd_error_set(HD_OK, "nothing"), HD_OK);
    assert_string_equal(hd_message(), "layer_call: bytes 12");
    assert_int_equal(hd_error_set(HD_ERROR_LIMIT, NULL), HD_ERROR_LIMIT);
    assert_string_equal(hd_message(), hd_status_text(HD_ERROR_LIMIT));
    assert_int_equal(hd_error_set((hd_status)-99, "text"), HD_ERROR_ARGUMENT);
    assert_non_null(strstr(hd_message(), "hd_error_set: -99"));
}

static void names_every_status(void **unused)
{
    (void)unused;
    assert_string_equal(hd_status_name(HD_OK), "HD_OK");
    assert_string_equal(hd_status_text(HD_OK), "success");
    assert_string_equal(hd_status_name(HD_ERROR_UNSUPPORTED), "HD_ERROR_UNSUPPORTED");
    assert_string_equal(hd_status_text(HD_ERROR_MEMORY), "out of device memory");
    assert_non_null(hd_status_name((hd_status)-1000));
    assert_non_null(hd_status_text((hd_status)1));
    assert_string_equal(hd_version(), HD_VERSION_STRING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_blank),
        cmocka_unit_test(keeps_the_last_failure),
        cmocka_unit_test(messages_are_one_bounded_line),
        cmocka_unit_test(attempts_keep_their_failures),
        cmocka_unit_test(the_name_of_the_call_is_in_front),
        cmocka_unit_test(fills_structures_of_other_sizes),
        cmocka_unit_test(threads_have_their_own),
#if !TEST_ASAN && !TEST_TSAN
        cmocka_unit_test(failures_are_told_without_memory),
#endif
        cmocka_unit_test(a_layer_sets_a_failure),
        cmocka_unit_test(names_every_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
