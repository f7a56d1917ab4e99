/* test_parser.c - verdicts from the reports and exits of heddle-probe, including reports that it
 * should never make.
 *
 * Promise: Any output and any end of heddle-probe gives the documented verdict.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <signal.h>
#include "driver/driver.h"
#include "peer/test.h"

static const hdi_pair pairs[] = {{5, 7, 0, 1}, {7, 5, 1, 0}, {5, 9, 0, 2}};
#define N 3

static hdi_peer_parser h;

static hdi_probe_record record_of(hdi_probe_record_kind kind)
{
    hdi_probe_record r;
    memset(&r, 0, sizeof r);
    r.magic = HDI_PROBE_MAGIC;
    r.version = HDI_PROBE_VERSION;
    r.kind = (uint32_t)kind;
    return r;
}

static hdi_parsed say(hdi_probe_record_kind kind)
{
    hdi_probe_record r = record_of(kind);
    return hdi_peer_parser_take(&h, &r);
}

static hdi_parsed say_step(hdi_step step, uint64_t bytes)
{
    hdi_probe_record r = record_of(HDI_PROBE_RECORD_STEP);
    r.step = (uint32_t)step;
    r.bytes = bytes;
    return hdi_peer_parser_take(&h, &r);
}

static hdi_parsed say_pair(int device, int owner)
{
    hdi_probe_record r = record_of(HDI_PROBE_RECORD_PAIR);
    r.device = device;
    r.owner = owner;
    return hdi_peer_parser_take(&h, &r);
}

static hdi_parsed say_wrong(hdi_probe_record_kind kind, int64_t at, uint64_t found, uint64_t expected)
{
    hdi_probe_record r = record_of(kind);
    r.at = at;
    r.found = found;
    r.expected = expected;
    return hdi_peer_parser_take(&h, &r);
}

static hdi_parsed say_failed(hd_status status, int code, const char *text)
{
    hdi_probe_record r = record_of(HDI_PROBE_RECORD_FAILED);
    r.status = status;
    r.code = code;
    snprintf(r.text, sizeof r.text, "%s", text);
    return hdi_peer_parser_take(&h, &r);
}

static hdi_parsed say_rates(double direct, double staged)
{
    hdi_probe_record r = record_of(HDI_PROBE_RECORD_RATES);
    r.direct = direct;
    r.staged = staged;
    return hdi_peer_parser_take(&h, &r);
}

static void begin(void)
{
    hdi_peer_parser_begin(&h, pairs, N, 1.25);
    assert_int_equal(say_step(HDI_STEP_OPEN, 0), HDI_PARSED_MORE);
}

/* Reports the first pair up to this step. */
static void begin_at(hdi_step last, uint64_t bytes)
{
    begin();
    assert_int_equal(say_pair(0, 1), HDI_PARSED_PAIR);
    for (hdi_step step = HDI_STEP_PREPARE; step < last; step++) {
        assert_int_equal(say_step(step, 4), HDI_PARSED_MORE);
    }
    assert_int_equal(say_step(last, bytes), HDI_PARSED_MORE);
}

static void deliver(int device, int owner)
{
    assert_int_equal(say_pair(device, owner), HDI_PARSED_PAIR);
    for (hdi_step step = HDI_STEP_PREPARE; step <= HDI_STEP_LOAD; step++) {
        assert_int_equal(say_step(step, 4), HDI_PARSED_MORE);
    }
}

static void check(hd_peer_verdict verdict, int code, const char *reason)
{
    hd_peer_info info = h.info;
    hdi_peer_name_devices(&info, 5, 7);
    assert_int_equal(info.size, sizeof info);
    assert_string_equal(hd_peer_verdict_text(info.verdict), hd_peer_verdict_text(verdict));
    assert_int_equal(info.driver_code, code);
    assert_string_equal(info.reason, reason);
    assert_false(info.remembered);
}

/* ---- good reports ---- */

static void all_is_well(void **state)
{
    (void)state;
    begin();
    deliver(0, 1);
    assert_int_equal(say_step(HDI_STEP_COUNT, 4), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_COUNTS), HDI_PARSED_MORE);
    assert_int_equal(say_step(HDI_STEP_TIME_DIRECT, 0), HDI_PARSED_MORE);
    assert_int_equal(say_rates(4e11, 5e10), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    assert_int_equal(h.current, 0);
    check(HD_PEER_USABLE, 0, "");
    assert_true(h.info.atomics);
    assert_true(h.info.direct_bytes_per_s == 4e11 && h.info.staged_bytes_per_s == 5e10);

    deliver(1, 0);
    assert_int_equal(say_rates(2e9, 1.2e10), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    assert_int_equal(h.current, 1);
    check(HD_PEER_SLOW, 0, "bytes arrive, but at 2 GB/s, and through pinned memory at 12 GB/s");
    assert_false(h.info.atomics);

    deliver(0, 2);
    /* the difference is too small to matter */
    assert_int_equal(say_rates(1e10, 1.2e10), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    check(HD_PEER_USABLE, 0, "");
    assert_int_equal(say(HDI_PROBE_RECORD_END), HDI_PARSED_END);
    assert_false(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 0));
}

static void a_pair_without_rates_is_usable(void **state)
{
    (void)state;
    begin();
    deliver(0, 1);
    assert_int_equal(say_step(HDI_STEP_TIME_DIRECT, 0), HDI_PARSED_MORE);
    assert_int_equal(say_failed(HD_ERROR_HOST_MEMORY, 0, "no pinned memory"), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    check(HD_PEER_USABLE, 0, "");
    assert_true(h.info.direct_bytes_per_s == 0);
    /* as heddle-probe does: it leaves the other pairs to a new process */
    for (hdi_step step = HDI_STEP_TIME_DIRECT; step <= HDI_STEP_TIME_STAGED; step++) {
        begin();
        deliver(0, 1);
        assert_int_equal(say_step(step, 0), HDI_PARSED_MORE);
        assert_int_equal(say_failed(HD_ERROR_LANE_FAILED, HDCU_ERROR_OUT_OF_MEMORY, "no memory"), HDI_PARSED_MORE);
        assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
        assert_int_equal(h.current, 0);
        check(HD_PEER_USABLE, 0, "");
    }
    /* the next pair must prove itself anew */
    begin();
    deliver(0, 1);
    assert_int_equal(say_step(HDI_STEP_TIME_STAGED, 0), HDI_PARSED_MORE);
    assert_int_equal(say_failed(HD_ERROR_HOST_MEMORY, 0, "no pinned memory"), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    deliver(1, 0);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_SIGNAL, SIGSEGV));
    assert_int_equal(h.info.verdict, HD_PEER_CORRUPT);
}

/* ---- bad reports ---- */

static void wrong_bytes_are_corrupt(void **state)
{
    (void)state;
    static const struct {
        hdi_step step;
        const char *reason;
    } ways[] = {
        {HDI_STEP_COPY_TO, "a copy of 65548 bytes by device 5 into memory of device 7 did not arrive: first wrong byte "
                           "4096, found 0xab instead of 0x17"},
        {HDI_STEP_STORE, "a kernel's stores of 65548 bytes by device 5 into memory of device 7 did not arrive: first "
                         "wrong byte 4096, found 0xab instead of 0x17"},
        {HDI_STEP_COPY_FROM, "a copy of 65548 bytes by device 5 from memory of device 7 did not arrive: first wrong "
                             "byte 4096, found 0xab instead of 0x17"},
        {HDI_STEP_LOAD, "a kernel's loads of 65548 bytes by device 5 from memory of device 7 did not arrive: first "
                        "wrong byte 4096, found 0xab instead of 0x17"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        begin_at(ways[i].step, 65548);
        assert_int_equal(say_wrong(HDI_PROBE_RECORD_WRONG, 4096, 0xab, 0x17), HDI_PARSED_MORE);
        assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
        check(HD_PEER_CORRUPT, 0, ways[i].reason);
    }
    begin_at(HDI_STEP_STORE, 4);
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_BESIDE, -3, 0, 0xa5), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    check(HD_PEER_CORRUPT, 0,
          "a kernel's stores of 4 bytes by device 5 into memory of device 7 also changed bytes beside them: byte -3, "
          "found 0x00 "
          "instead of 0xa5");
    begin_at(HDI_STEP_COUNT, 4);
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_MISCOUNT, 2, 7, 8), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    check(HD_PEER_CORRUPT, 0,
          "atomic operations by device 5 in memory of device 7 do not count: counter 2 is 7 instead of 8");
    assert_false(h.info.atomics);
}

static void a_finding_outlives_the_program(void **state)
{
    (void)state;
    begin_at(HDI_STEP_STORE, 16);
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_WRONG, 1, 2, 3), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_SIGNAL, 11));
    assert_int_equal(h.current, 0);
    check(HD_PEER_CORRUPT, 0,
          "a kernel's stores of 16 bytes by device 5 into memory of device 7 did not arrive: first wrong byte 1, found "
          "0x02 instead of 0x03");
    assert_false(hdi_peer_parser_end(&h, HDI_ENDING_SIGNAL, 11)); /* only once */
}

static void endings_name_the_step(void **state)
{
    (void)state;
    static const struct {
        hdi_ending ending;
        int detail;
        const char *how;
        bool guilty;
    } endings[] = {
        {HDI_ENDING_EXIT, 66, "ended with status 66", true},
        {HDI_ENDING_SIGNAL, SIGSEGV, "was killed by signal 11", true},
        {HDI_ENDING_SIGNAL, SIGBUS, "was killed by signal 7", true},
        {HDI_ENDING_SIGNAL, SIGABRT, "was killed by signal 6", true},
        /* killed by another process */
        {HDI_ENDING_SIGNAL, SIGKILL, "was killed by signal 9", false},
        {HDI_ENDING_SIGNAL, SIGTERM, "was killed by signal 15", false},
        {HDI_ENDING_SILENT, 20000, "hung (for 20000 ms)", true},
        {HDI_ENDING_GONE, 0, "ended, it is not known how,", true},
        {HDI_ENDING_MALFORMED, 0, "sent what is not of this version of Heddle", false},
    };
    static const struct {
        hdi_step step;
        const char *what;
        bool guilty;
    } steps[] = {
        {HDI_STEP_PREPARE, "memory on both devices was prepared", false},
        {HDI_STEP_GRANT, "memory of device 7 was made accessible to device 5", true},
        {HDI_STEP_COPY_TO, "device 5 copied 4096 bytes into memory of device 7", true},
        {HDI_STEP_STORE, "a kernel of device 5 stored 4096 bytes into memory of device 7", true},
        {HDI_STEP_COPY_FROM, "device 5 copied 4096 bytes from memory of device 7", true},
        {HDI_STEP_LOAD, "a kernel of device 5 loaded 4096 bytes from memory of device 7", true},
        {HDI_STEP_COUNT, "kernels of device 5 counted in memory of device 7", true},
        {HDI_STEP_TIME_DIRECT, "copies by device 5 into memory of device 7 were timed", true},
        {HDI_STEP_TIME_STAGED, "copies through pinned memory were timed", false},
    };
    for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++) {
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
            begin_at(steps[s].step, 4096);
            assert_true(hdi_peer_parser_end(&h, endings[e].ending, endings[e].detail));
            char reason[300];
            snprintf(reason, sizeof reason, "the test %s while %s", endings[e].how, steps[s].what);
            bool guilty = steps[s].guilty && endings[e].guilty;
            check(guilty ? HD_PEER_CORRUPT : HD_PEER_INCONCLUSIVE, 0, reason);
        }
    }
    begin();
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 2));
    assert_int_equal(h.current, -1); /* about all pairs */
    check(HD_PEER_INCONCLUSIVE, 0, "the test ended with status 2 while the devices were opened");
    hdi_peer_parser_begin(&h, pairs, N, 1.25);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_SIGNAL, 9));
    check(HD_PEER_INCONCLUSIVE, 0, "the test was killed by signal 9 while the devices were opened");
}

/* Earlier verdicts stay; the other pairs get none. */
static void an_end_between_pairs_says_nothing(void **state)
{
    (void)state;
    begin();
    deliver(0, 1);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    assert_false(hdi_peer_parser_end(&h, HDI_ENDING_SIGNAL, 9));
    assert_int_equal(h.current, 0);
}

static void failures_are_told_apart(void **state)
{
    (void)state;
    /* the device did not survive its access to the other one's memory */
    begin_at(HDI_STEP_STORE, 8);
    assert_int_equal(say_failed(HD_ERROR_DEVICE_LOST, 700, "device 0 is lost"), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    check(HD_PEER_CORRUPT, 700,
          "the test failed while a kernel of device 5 stored 8 bytes into memory of device 7: device 0 is lost");
    /* a dead worker process reports no driver code */
    begin_at(HDI_STEP_COPY_TO, 8);
    assert_int_equal(say_failed(HD_ERROR_DEVICE_LOST, 0, "gone"), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    check(HD_PEER_CORRUPT, 0, "the test failed while device 5 copied 8 bytes into memory of device 7: gone");
    begin_at(HDI_STEP_COPY_TO, 8);
    assert_int_equal(say_failed(HD_ERROR_HOST_MEMORY, 0, "no memory"), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    check(HD_PEER_INCONCLUSIVE, 0, "the test failed while device 5 copied 8 bytes into memory of device 7: no memory");
    /* nor does a failure that is not the device's fault, whichever call reports it */
    begin_at(HDI_STEP_COPY_TO, 8);
    assert_int_equal(say_failed(HD_ERROR_LANE_FAILED, HDCU_ERROR_OUT_OF_MEMORY, "no memory"), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    check(HD_PEER_INCONCLUSIVE, HDCU_ERROR_OUT_OF_MEMORY,
          "the test failed while device 5 copied 8 bytes into memory of device 7: no memory");
    begin_at(HDI_STEP_COPY_TO, 8);
    assert_int_equal(say_failed(HD_ERROR_LANE_FAILED, 719, "launch failed"), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    assert_int_equal(h.info.verdict, HD_PEER_CORRUPT);
    begin_at(HDI_STEP_PREPARE, 0);
    assert_int_equal(say_failed(HD_ERROR_DEVICE_LOST, 719, "lost\nbefore"), HDI_PARSED_MORE);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    check(HD_PEER_INCONCLUSIVE, 719, "the test failed while memory on both devices was prepared: lost?before");
    begin();
    assert_int_equal(say_failed(HD_ERROR_MEMORY, 2, "hd_open: no memory"), HDI_PARSED_MORE);
    assert_int_equal(say_pair(0, 1), HDI_PARSED_MALFORMED);
    assert_true(hdi_peer_parser_end(&h, HDI_ENDING_EXIT, 1));
    assert_int_equal(h.current, -1);
    check(HD_PEER_INCONCLUSIVE, 2, "the test failed while the devices were opened: hd_open: no memory");
}

static void refusals_have_the_drivers_code(void **state)
{
    (void)state;
    begin_at(HDI_STEP_GRANT, 0);
    hdi_probe_record r = record_of(HDI_PROBE_RECORD_REFUSED);
    r.code = HDCU_ERROR_TOO_MANY_PEERS;
    snprintf(r.text, sizeof r.text, "cuMemSetAccess");
    assert_int_equal(hdi_peer_parser_take(&h, &r), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    check(HD_PEER_REFUSED, HDCU_ERROR_TOO_MANY_PEERS,
          "the driver refuses it: cuMemSetAccess: CUDA_ERROR_TOO_MANY_PEERS");
}

/* ---- nonsense ---- */

static void nobody_is_believed(void **state)
{
    (void)state;
    begin();
    hdi_probe_record r = record_of(HDI_PROBE_RECORD_PAIR);
    r.owner = 1;
    r.magic++;
    assert_int_equal(hdi_peer_parser_take(&h, &r), HDI_PARSED_MALFORMED);
    r.magic--;
    r.version++;
    assert_int_equal(hdi_peer_parser_take(&h, &r), HDI_PARSED_MALFORMED);
    static const uint32_t kinds[] = {0, HDI_RECORDS, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        r = record_of((hdi_probe_record_kind)kinds[i]);
        assert_int_equal(hdi_peer_parser_take(&h, &r), HDI_PARSED_MALFORMED);
    }
    /* pairs in another order, or not requested */
    assert_int_equal(say_pair(1, 0), HDI_PARSED_MALFORMED);
    assert_int_equal(say_pair(-1, 1000000), HDI_PARSED_MALFORMED);
    /* records of a pair, without one */
    assert_int_equal(say_step(HDI_STEP_STORE, 4), HDI_PARSED_MALFORMED);
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_WRONG, 0, 0, 0), HDI_PARSED_MALFORMED);
    assert_int_equal(say(HDI_PROBE_RECORD_COUNTS), HDI_PARSED_MALFORMED);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_MALFORMED);
    assert_int_equal(say(HDI_PROBE_RECORD_END), HDI_PARSED_MALFORMED);
    assert_int_equal(say_rates(1, 1), HDI_PARSED_MALFORMED);

    assert_int_equal(say_pair(0, 1), HDI_PARSED_PAIR);
    assert_int_equal(say_pair(1, 0), HDI_PARSED_MALFORMED); /* the first one has not ended */
    assert_int_equal(say_step(HDI_STEP_OPEN, 0), HDI_PARSED_MALFORMED);
    assert_int_equal(say_step((hdi_step)0, 0), HDI_PARSED_MALFORMED);
    assert_int_equal(say_step(HDI_STEPS, 0), HDI_PARSED_MALFORMED);
    /* nothing was tested */
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_MALFORMED);
    /* no step */
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_WRONG, 0, 0, 0), HDI_PARSED_MALFORMED);
    assert_int_equal(say_step(HDI_STEP_STORE, 4), HDI_PARSED_MORE);
    assert_int_equal(say(HDI_PROBE_RECORD_COUNTS), HDI_PARSED_MALFORMED);
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_MISCOUNT, 0, 0, 0), HDI_PARSED_MALFORMED);
    r = record_of(HDI_PROBE_RECORD_REFUSED);
    r.code = 1;
    assert_int_equal(hdi_peer_parser_take(&h, &r), HDI_PARSED_MALFORMED);
    static const double rates[][2] = {{-1, 1}, {1, -1}, {0.0 / 0.0, 1}, {1, 0.0 / 0.0}, {1.0 / 0.0, 1}, {1, 1e300}};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        assert_int_equal(say_rates(rates[i][0], rates[i][1]), HDI_PARSED_MALFORMED);
    }
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_WRONG, 0, 0, 0), HDI_PARSED_MORE);
    /* one is enough */
    assert_int_equal(say_wrong(HDI_PROBE_RECORD_WRONG, 0, 0, 0), HDI_PARSED_MALFORMED);
    assert_int_equal(say_step(HDI_STEP_LOAD, 4), HDI_PARSED_MALFORMED);
    assert_int_equal(say(HDI_PROBE_RECORD_PAIR_END), HDI_PARSED_RESULT);
    assert_int_equal(say(HDI_PROBE_RECORD_END), HDI_PARSED_MALFORMED); /* pairs are missing */
    assert_int_equal(say_step(HDI_STEP_OPEN, 0), HDI_PARSED_MALFORMED);
}

/* Texts without an end, of any bytes, and numbers of any size. */
static void anything_may_come(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 200000; round++) {
        if (round % 50 == 0) {
            begin();
        }
        hdi_probe_record r;
        unsigned char *bytes = (unsigned char *)&r;
        for (size_t i = 0; i < sizeof r; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (unsigned char)(random >> 56);
        }
        r.magic = HDI_PROBE_MAGIC;
        r.version = HDI_PROBE_VERSION;
        r.kind = (uint32_t)(random >> 40) % (HDI_RECORDS + 1);
        r.step = (uint32_t)(random >> 30) % (HDI_STEPS + 1);
        if (random >> 20 & 1) {
            r.device = pairs[(h.current + 1) % N].device_at;
            r.owner = pairs[(h.current + 1) % N].owner_at;
        }
        if (hdi_peer_parser_take(&h, &r) == HDI_PARSED_RESULT || round % 50 == 49) {
            hdi_peer_parser_end(&h, (hdi_ending)(random >> 10 & 3), (int)random);
            assert_non_null(memchr(h.info.reason, 0, sizeof h.info.reason));
            for (const char *p = h.info.reason; *p; p++) {
                assert_in_range((unsigned char)*p, 0x20, 0x7e);
            }
            assert_in_range(h.info.verdict, HD_PEER_UNKNOWN, HD_PEER_INCONCLUSIVE);
            assert_true(h.current < N);
        }
    }
}

static void verdicts_have_names(void **state)
{
    (void)state;
    assert_string_equal(hd_peer_verdict_text(HD_PEER_UNKNOWN), "unknown");
    assert_string_equal(hd_peer_verdict_text(HD_PEER_USABLE), "usable");
    assert_string_equal(hd_peer_verdict_text(HD_PEER_SLOW), "slow");
    assert_string_equal(hd_peer_verdict_text(HD_PEER_REFUSED), "refused");
    assert_string_equal(hd_peer_verdict_text(HD_PEER_CORRUPT), "corrupt");
    assert_string_equal(hd_peer_verdict_text(HD_PEER_INCONCLUSIVE), "inconclusive");
    assert_string_equal(hd_peer_verdict_text((hd_peer_verdict)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_well),
        cmocka_unit_test(a_pair_without_rates_is_usable),
        cmocka_unit_test(wrong_bytes_are_corrupt),
        cmocka_unit_test(a_finding_outlives_the_program),
        cmocka_unit_test(endings_name_the_step),
        cmocka_unit_test(an_end_between_pairs_says_nothing),
        cmocka_unit_test(failures_are_told_apart),
        cmocka_unit_test(refusals_have_the_drivers_code),
        cmocka_unit_test(nobody_is_believed),
        cmocka_unit_test(anything_may_come),
        cmocka_unit_test(verdicts_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
