/* test_trace_ranks.c - the traces of a program of several ranks: names, places and messages.
 *
 * Promise: A trace tells its rank, and each message as told; no two ranks share a file.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "traces.h"

#include <unistd.h>

static void the_number_of_a_rank_is_in_the_name(void **state)
{
    (void)state;
    static const struct {
        const char *given, *made;
    } names[] = {/* further runtimes of the process add a number of their own */
                 {"run.trace", "run.3.trace"},
                 {"run", "run.3.2"},
                 {".trace", ".trace.3.3"},
                 {"a.b.c", "a.b.3.c.4"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char settings[256];
        snprintf(settings, sizeof settings, "trace=%s trace_rank=3", in_folder(names[i].given));
        conf_close(conf_open(settings));
        CONF_TRUE(access(in_folder(names[i].given), F_OK) != 0);
        content c = read_file(in_folder(names[i].made));
        CONF_EQUAL(c.records[c.n - 1].type, HDI_RECORD_END);
        free(c.records);
        CONF_EQUAL(unlink(in_folder(names[i].made)), 0);
    }
}

static const hd_trace_rank place = {
    .size = sizeof place, .rank = 2, .ranks = 5, .run = 0x123456789abcu, .offset_ns = -7000000000, .within_ns = 1234};

static void check_place(const hdi_record *r, int64_t offset)
{
    CONF_TRUE(r != NULL);
    CONF_EQUAL(r->rank.rank, 2);
    CONF_EQUAL(r->rank.ranks, 5);
    CONF_TRUE(r->rank.run == place.run && r->rank.offset == offset && r->rank.within == place.within_ns);
}

static void each_trace_tells_the_rank(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_TRUE(!hd_trace_active(runtime) && !hd_trace_active(NULL));
    CONF_OK(hd_trace_set_rank(runtime, &place));
    for (int again = 0; again < 2; again++) {
        hd_trace_rank later = place;
        later.offset_ns += 100 + again;
        CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
        CONF_TRUE(hd_trace_active(runtime));
        CONF_OK(hd_trace_set_rank(runtime, &later));
        CONF_OK(hd_trace_stop(runtime, NULL));
        CONF_TRUE(!hd_trace_active(runtime));
        content c = read_file(in_folder("t"));
        size_t at = 0;
        CONF_EQUAL(count(&c, HDI_RECORD_RANK), 2);
        const hdi_record *first = next(&c, HDI_RECORD_RANK, &at), *second = next(&c, HDI_RECORD_RANK, &at);
        check_place(first, again ? place.offset_ns + 100 : place.offset_ns);
        check_place(second, later.offset_ns);
        CONF_TRUE(first->time <= second->time);
        free(c.records);
    }
    hd_trace_rank wrong = place;
    wrong.rank = 5;
    CONF_FAILS_WITH(hd_trace_set_rank(runtime, &wrong), HD_ERROR_ARGUMENT, "rank 5 of 5");
    wrong = place;
    wrong.within_ns = -1;
    CONF_FAILS_WITH(hd_trace_set_rank(runtime, &wrong), HD_ERROR_ARGUMENT, "-1 ns");
    CONF_FAILS_WITH(hd_trace_set_rank(runtime, NULL), HD_ERROR_ARGUMENT, "null");
    conf_close(runtime);
}

static void a_message_is_recorded_as_told(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_claim *claim = NULL;
    hd_trace_message m = {.size = sizeof m,
                          .kind = HD_TRACE_RECV,
                          .failed = true,
                          .peer = 3,
                          .tag = 70,
                          .communicator = 0xfedcba98u,
                          .order = 12,
                          .bytes = (uint64_t)1 << 40,
                          .ready_ns = 100,
                          .posted_ns = 200,
                          .ended_ns = 300};
    CONF_OK(hd_trace_add_message(runtime, &m)); /* no trace: nothing happens */
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &claim));
    CONF_OK(hd_claim_get_ticket(claim, &m.ticket));
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_OK(hd_trace_add_message(runtime, &m));
    m.kind = HD_TRACE_BARRIER;
    m.failed = false;
    CONF_OK(hd_trace_add_message(runtime, &m));
    m.kind = (hd_trace_message_kind)9;
    CONF_FAILS_WITH(hd_trace_add_message(runtime, &m), HD_ERROR_ARGUMENT, "kind is 9");
    m.kind = HD_TRACE_SEND;
    m.ended_ns = 199;
    CONF_FAILS_WITH(hd_trace_add_message(runtime, &m), HD_ERROR_ARGUMENT, "ended at 199");
    CONF_FAILS_WITH(hd_trace_add_message(runtime, NULL), HD_ERROR_ARGUMENT, "null");
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(in_folder("t"));
    size_t at = 0;
    CONF_EQUAL(count(&c, HDI_RECORD_MESSAGE), 2);
    const hdi_record *r = next(&c, HDI_RECORD_MESSAGE, &at);
    CONF_EQUAL(r->kind, HDI_RECORD_MESSAGE_RECEIVE | HDI_RECORD_MESSAGE_FAILED);
    CONF_EQUAL(r->message.peer, 3);
    CONF_EQUAL(r->message.tag, 70);
    CONF_EQUAL(r->message.communicator, 0xfedcba98u);
    CONF_EQUAL(r->message.order, 12);
    CONF_TRUE(r->message.bytes == (uint64_t)1 << 40);
    CONF_TRUE(r->message.ready == 100 && r->time == 200 && r->message.ended == 300);
    size_t submits = 0;
    const hdi_record *submit = next(&c, HDI_RECORD_SUBMIT, &submits);
    CONF_EQUAL(submit->kind, HDI_RECORD_OP_CLAIM);
    CONF_EQUAL(r->message.op >> HDI_RECORD_MESSAGE_POSITION_BITS, submit->submit.lane);
    CONF_TRUE((r->message.op & ((UINT64_C(1) << HDI_RECORD_MESSAGE_POSITION_BITS) - 1)) == submit->submit.position);
    CONF_TRUE(submit->submit.position == m.ticket.sequence);
    CONF_EQUAL(next(&c, HDI_RECORD_MESSAGE, &at)->kind, HDI_RECORD_MESSAGE_BARRIER);
    free(c.records);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_trace_ranks");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(the_number_of_a_rank_is_in_the_name),
        FOLDER_CASE(each_trace_tells_the_rank),
        FOLDER_CASE(a_message_is_recorded_as_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
