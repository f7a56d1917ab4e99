/* test_ranks.c - the traces of several ranks on one clock.
 *
 * Promise: Each receive meets its send, whatever the clocks show, and each wait has its reason.
 * Threads: one.
 */
#include <stdio.h>
#include <stdlib.h>
#include "cli/trace/ranks.h"
#include "trace/scene.h"

#define US 1000

enum { RANKS_MOST = 4 };
static trace traces[RANKS_MOST];
static trace *files[RANKS_MOST];
static trace_ranks ranks;

/* Reads the scripts, and puts them on one clock. */
static void read_ranks(const char *const *scripts, int n)
{
    char error[512] = "";
    for (int i = 0; i < n; i++) {
        scene_read(scripts[i], &traces[i]);
        files[i] = &traces[i];
    }
    if (!trace_ranks_make(files, n, &ranks, error)) {
        fail_msg("%s", error);
    }
}
#define READ(...) read_ranks((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / 8)

static void release_ranks(void)
{
    trace_ranks_release(&ranks);
    for (int i = 0; i < RANKS_MOST; i++) {
        trace_release(&traces[i]);
    }
}

static const trace_waited *waited_for(int32_t rank, int32_t other, uint8_t kind)
{
    for (size_t i = 0; i < ranks.n_waited; i++) {
        if (ranks.waited[i].rank == rank && ranks.waited[i].other == other && ranks.waited[i].kind == kind) {
            return &ranks.waited[i];
        }
    }
    fail_msg("rank %d did not wait for rank %d", rank, other);
    return NULL;
}

static void check_lags(const trace_waited *w, int64_t call, int64_t bytes, int64_t turn, int64_t way)
{
    assert_int_equal(w->lag[TRACE_LAG_CALL], call * US);
    assert_int_equal(w->lag[TRACE_LAG_BYTES], bytes * US);
    assert_int_equal(w->lag[TRACE_LAG_TURN], turn * US);
    assert_int_equal(w->lag[TRACE_LAG_WAY], way * US);
    assert_int_equal(w->wait, (call + bytes + turn + way) * US);
}

#define ONE(rank_, offset_)                                                                                            \
    "trace devices=1 detail=full\n"                                                                                    \
    "lane 0.1 kind=program\n"                                                                                          \
    "lane 0.4 kind=claim\n"                                                                                            \
    "clock 0 at=0 own=0\n"                                                                                             \
    "rank " rank_ " of=2 at=0 offset=" offset_ "\n"

/* Rank 0 makes its call at 20, has the bytes at 50, and posts at 60. Rank 1 waits from 5 to 100.
 * Its clock shows 1000 less, or 5000 more. */
static void test_a_wait_has_its_reasons_on_any_clock(void **state)
{
    (void)state;
    static const char *const receivers[] = {
        ONE("1", "1000") "op 0.4:2 claim at=-996 claimed=-996 done=-900\n"
                         "message recv at=-995--900 peer=0 tag=3 bytes=8 op=0.4:2\n"
                         "end at=-800\n",
        ONE("1", "-5000") "op 0.4:2 claim at=5004 claimed=5004 done=5100\n"
                          "message recv at=5005-5100 peer=0 tag=3 bytes=8 op=0.4:2\n"
                          "end at=5200\n",
    };
    for (int i = 0; i < 2; i++) {
        READ(receivers[i], ONE("0", "0") "op 0.4:2 claim at=20 claimed=50 done=90\n"
                                         "message send at=60-90 ready=50 peer=1 tag=3 bytes=8 op=0.4:2\n"
                                         "end at=200\n");
        assert_int_equal(ranks.files[0]->rank, 0);
        assert_int_equal(ranks.n_met, 1);
        assert_int_equal(ranks.n_waited, 1);
        const trace_waited *w = waited_for(1, 0, HDI_RECORD_MESSAGE_RECEIVE);
        check_lags(w, 15, 30, 10, 40);
        assert_int_equal(w->tag, 3);
        assert_int_equal(w->count, 1);
        assert_int_equal(ranks.senseless + ranks.lone_sends + ranks.lone_receives, 0);
        release_ranks();
    }
}

/* The clock of rank 1 loses 100 us between the two measurements. */
static void test_a_clock_drifts(void **state)
{
    (void)state;
    READ(ONE("0", "0") "message send at=500-501 peer=1 order=1\n"
                       "message send at=1000-1001 peer=1 order=2\n",
         ONE("1", "0") "rank 1 of=2 at=900 offset=100\n"
                       "message recv at=440-450 peer=0 order=1\n"
                       "message recv at=898-900 peer=0 order=2\n");
    assert_int_equal(ranks.n_met, 2);
    assert_int_equal(ranks.met[0].received.ended, 500 * US);
    assert_int_equal(ranks.met[1].received.ended, 1000 * US);
    release_ranks();
}

/* Two receives of one kind wait at the same time, and the sender comes late for both. */
static void test_time_counts_once(void **state)
{
    (void)state;
    READ(ONE("0", "0") "message send at=50-51 peer=1 order=1 bytes=4\n"
                       "message send at=70-71 peer=1 order=2 bytes=4\n",
         ONE("1", "0") "message recv at=10-60 peer=0 order=1 bytes=4\n"
                       "message recv at=10-80 peer=0 order=2 bytes=4\n");
    const trace_waited *w = waited_for(1, 0, HDI_RECORD_MESSAGE_RECEIVE);
    assert_int_equal(w->count, 2);
    assert_int_equal(w->bytes, 8);
    assert_int_equal(w->wait, 70 * US);
    release_ranks();
}

/* A send also waits, if the receiver takes the message late. */
static void test_a_receiver_is_late(void **state)
{
    (void)state;
    READ(ONE("0", "0") "message send at=10-95 peer=1\n",
         ONE("1", "0") "op 0.4:2 claim at=40 claimed=70 done=95\n"
                       "message recv at=80-95 ready=70 peer=0 op=0.4:2\n");
    check_lags(waited_for(0, 1, HDI_RECORD_MESSAGE_SEND), 30, 30, 10, 0);
    check_lags(waited_for(1, 0, HDI_RECORD_MESSAGE_RECEIVE), 0, 0, 0, 15);
    release_ranks();
}

/* A launch waits for the message, and so does a call of the program. */
static void test_devices_and_threads_wait_for_a_message(void **state)
{
    (void)state;
    READ(ONE("0", "0") "message send at=60-65 peer=1\n",
         ONE("1", "0") "op 0.1:1 launch at=0 issue=1 span=2-10 done=11\n"
                       "op 0.4:2 claim at=12 claimed=13 done=90\n"
                       "op 0.1:2 launch at=20 issue=91 span=92-99 done=99 wait=0.4:2\n"
                       "message recv at=15-90 peer=0 op=0.4:2\n"
                       "pause wait at=30-99 lane=0.1 position=2\n"
                       "end at=100\n");
    const trace_waited *w = waited_for(1, 0, HDI_RECORD_MESSAGE_RECEIVE);
    assert_int_equal(w->idle, 70 * US); /* from the launch's submit */
    assert_int_equal(w->blocked, 60 * US);
    release_ranks();
}

#define THREE(rank_)                                                                                                   \
    "trace devices=1 detail=full\n"                                                                                    \
    "clock 0 at=0 own=0\n"                                                                                             \
    "rank " rank_ " of=3 at=0\n"

/* All wait for the rank that comes last, and for no other one. */
static void test_a_rank_comes_last(void **state)
{
    (void)state;
    READ(THREE("0") "message allreduce at=10-60 order=1\n"
                    "message bcast at=100-101 order=2 peer=0\n"
                    "message reduce at=200-260 order=3 peer=0\n",
         THREE("1") "message allreduce at=50-60 order=1\n"
                    "message bcast at=70-110 order=2 peer=0\n"
                    "message reduce at=210-211 order=3 peer=0\n",
         THREE("2") "message allreduce at=20-60 order=1\n"
                    "message bcast at=150-151 order=2 peer=0\n"
                    "message reduce at=250-251 order=3 peer=0\n");
    assert_int_equal(waited_for(0, 1, HDI_RECORD_MESSAGE_ALLREDUCE)->wait, 40 * US);
    assert_int_equal(waited_for(2, 1, HDI_RECORD_MESSAGE_ALLREDUCE)->wait, 30 * US);
    assert_int_equal(waited_for(1, 0, HDI_RECORD_MESSAGE_BCAST)->wait, 30 * US);
    assert_int_equal(waited_for(2, 0, HDI_RECORD_MESSAGE_BCAST)->wait, 0);
    assert_int_equal(waited_for(0, 2, HDI_RECORD_MESSAGE_REDUCE)->wait, 50 * US);
    assert_int_equal(ranks.n_waited, 5);
    release_ranks();
}

static void check_refused(const char *one, const char *other, const char *text)
{
    char error[512] = "";
    scene_read(one, &traces[0]);
    scene_read(other, &traces[1]);
    files[0] = &traces[0];
    files[1] = &traces[1];
    assert_false(trace_ranks_make(files, 2, &ranks, error));
    assert_non_null(strstr(error, text));
    release_ranks();
}

static void test_wrong_files_are_refused(void **state)
{
    (void)state;
    check_refused(ONE("1", "0"), ONE("1", "7"), "both of rank 1");
    check_refused(ONE("0", "0"), "trace devices=1\nrank 1 of=2 at=0 run=8\n", "different runs");
    check_refused(ONE("0", "0"), "trace devices=1\nrank 1 of=3 at=0\n", "different runs");
    check_refused(ONE("0", "0"), ONE("1", "9000000000000"), "52 days");
}

/* The file of rank 2 is missing, a message was sent by a call of MPI itself, and one arrives before
 * it was sent. */
static void test_what_the_files_lack_is_counted(void **state)
{
    (void)state;
    READ(THREE("0") "message send at=10-11 peer=2 tag=1 order=1\n"
                    "message send at=20-21 peer=1 tag=2 order=2\n"
                    "message send at=90-91 peer=1 tag=4 order=5\n",
         THREE("1") "message recv at=10-30 peer=0 tag=3 order=1\n"
                    "message recv at=10-40 peer=0 tag=4 order=2\n"
                    "message recv at=10-40 peer=-1 tag=4 order=0\n");
    assert_int_equal(ranks.n_met, 0);
    assert_int_equal(ranks.lone_sends, 1);
    assert_int_equal(ranks.lone_receives, 1);
    assert_int_equal(ranks.senseless, 1);
    assert_int_equal(ranks.missing, 2);
    release_ranks();
}

/* ---- random messages ---- */

enum { MESSAGES = 3000, TAGS = 3, COMMUNICATORS = 2 };

typedef struct sent {
    int from, to, tag, communicator;
} sent;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static void add_message(script *s, int kind, const sent *m, int number, int64_t at)
{
    hdi_record *r = script_add(s, HDI_RECORD_MESSAGE, at);
    r->kind = (uint8_t)kind;
    r->message.peer = kind == HDI_RECORD_MESSAGE_SEND ? m->to : m->from;
    r->message.tag = m->tag;
    r->message.communicator = (uint32_t)m->communicator + 77;
    r->message.bytes = (uint64_t)number; /* tells the message apart, but the analysis ignores it */
    r->message.ready = r->time;
    r->message.ended = SCRIPT_ZERO + (int64_t)MESSAGES * 10000;
}

/* Each rank posts its sends and receives in an order of its own. Only messages of one stream keep
 * their order. */
static void test_random_messages_meet(void **state)
{
    (void)state;
    static sent list[MESSAGES];
    uint64_t seed = 2026;
    script s[3];
    uint32_t order[3] = {0, 0, 0};
    for (int i = 0; i < MESSAGES; i++) {
        list[i] =
            (sent){(int)draw(&seed, 3), (int)draw(&seed, 3), (int)draw(&seed, TAGS), (int)draw(&seed, COMMUNICATORS)};
    }
    for (int i = 0; i < 3; i++) {
        char text[64];
        script_begin(&s[i]);
        snprintf(text, sizeof text, "trace devices=1\nrank %d of=3 at=0", i);
        script_run(&s[i], text);
    }
    /* a stream's own delay keeps the order in it, and mixes the streams */
    for (int side = HDI_RECORD_MESSAGE_SEND; side <= HDI_RECORD_MESSAGE_RECEIVE; side++) {
        int64_t delay[3][3][TAGS][COMMUNICATORS];
        for (size_t i = 0; i < sizeof delay / sizeof(int64_t); i++) {
            ((int64_t *)delay)[i] = (int64_t)draw(&seed, 500);
        }
        for (int i = 0; i < MESSAGES; i++) {
            const sent *m = &list[i];
            int rank = side == HDI_RECORD_MESSAGE_SEND ? m->from : m->to;
            add_message(&s[rank], side, m, i, i + delay[m->from][m->to][m->tag][m->communicator]);
            s[rank].records[s[rank].n - 1].message.order = ++order[rank];
        }
    }
    char error[512] = "";
    for (int i = 0; i < 3; i++) {
        assert_true(trace_read_bytes(s[i].records, s[i].n * sizeof(hdi_record), &traces[i], error));
        files[i] = &traces[i];
        script_release(&s[i]);
    }
    assert_true(trace_ranks_make(files, 3, &ranks, error));
    assert_int_equal(ranks.n_met, MESSAGES);
    for (size_t i = 0; i < ranks.n_met; i++) {
        const trace_side *a = &ranks.met[i].sent, *b = &ranks.met[i].received;
        assert_int_equal(ranks.files[a->file]->messages[a->message].bytes,
                         ranks.files[b->file]->messages[b->message].bytes);
    }
    assert_int_equal(ranks.n_communicators, COMMUNICATORS);
    release_ranks();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wait_has_its_reasons_on_any_clock),
        cmocka_unit_test(test_a_clock_drifts),
        cmocka_unit_test(test_time_counts_once),
        cmocka_unit_test(test_a_receiver_is_late),
        cmocka_unit_test(test_devices_and_threads_wait_for_a_message),
        cmocka_unit_test(test_a_rank_comes_last),
        cmocka_unit_test(test_wrong_files_are_refused),
        cmocka_unit_test(test_what_the_files_lack_is_counted),
        cmocka_unit_test(test_random_messages_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
