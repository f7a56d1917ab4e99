/* test_garbage.c - garbage sent to both sides: messages of the wrong shape, and a loop of good ones
 * with wrong bytes. The bytes are the same in every run. Neither side may fault, wait forever or
 * keep a descriptor.
 *
 * Promise: Neither side crashes, hangs or keeps a descriptor when it receives garbage.
 * Threads: the main one, and those that serve or spoil the worker's lines.
 */
#include "connected.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/wait.h"
#include "worker/message.h"
#include "process/wire.h"

#define LATE hdi_deadline(120000 * MS)

static uint64_t dice_state;

static uint32_t dice(uint32_t below)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return (uint32_t)(dice_state >> 32) % below;
}

/* ---- to the worker ---- */

/* Sends to the worker's memory line. Returns false if it is closed. */
static bool send_to_worker(const void *bytes, size_t n, const int *descriptors, int n_descriptors)
{
    return hdi_wire_send(worker.application[0], bytes, n, descriptors, n_descriptors, LATE) == HDI_WIRE_OK;
}

/* Returns the code of the reply with this serial; -1 if the worker closed the line. */
static int reply_of_worker(uint64_t serial)
{
    static hdi_message reply;
    size_t n;
    int descriptors[2], n_descriptors;
    hdi_wire_result result =
        hdi_wire_receive(worker.application[0], &reply, sizeof reply, &n, descriptors, 2, &n_descriptors, LATE);
    if (result != HDI_WIRE_OK) {
        assert_int_equal(result, HDI_WIRE_CLOSED);
        return -1;
    }
    hdi_wire_close(descriptors, n_descriptors);
    assert_true(n >= sizeof reply.header);
    assert_int_equal(reply.header.magic, HDI_MESSAGE_MAGIC);
    assert_true(reply.header.kind & HDI_MESSAGE_REPLY);
    assert_int_equal(reply.header.serial, serial);
    size_t bytes = hdi_message_bytes(reply.header.kind);
    assert_int_equal(n, bytes != 0 ? bytes : sizeof reply.header);
    return reply.header.code;
}

/* Starts a worker without a port: the test sends its messages. */
static void start_bare_worker(void)
{
    hdi_remote_port_disconnect(port);
    fake_worker_join(&worker);
    fake_worker_start(&worker, &fake);
}

static void the_worker_refuses_what_has_the_wrong_shape(void **state)
{
    (void)state;
    static hdi_message m;
    start_bare_worker();
    int given[3] = {things.file.descriptor, fake.memory, things.file.descriptor};
    uint64_t serial = 100;
    for (uint32_t kind = 0; kind <= 2 * HDI_MESSAGE_REPLY; kind++) {
        size_t bytes = hdi_message_bytes(kind), least = sizeof m.header;
        hdi_message_begin(&m, kind, ++serial);
        size_t wrong[] = {bytes > least ? bytes - 1 : least + 1, bytes + least, sizeof m};
        for (size_t i = 0; i < 3 && wrong[i] <= sizeof m; i++) {
            assert_true(send_to_worker(&m, wrong[i], given, (int)i));
            assert_int_equal(reply_of_worker(serial), HDCU_ERROR_INVALID_VALUE);
        }
        if (bytes != 0) {
            /* more descriptors than any request carries */
            assert_true(send_to_worker(&m, bytes, given, 3));
            assert_int_equal(reply_of_worker(serial), HDCU_ERROR_INVALID_VALUE);
        }
    }
    assert_int_equal(fake_calls(&fake), 0);
    hdi_message_begin(&m, HDI_MESSAGE_MAP, ++serial);
    assert_true(send_to_worker(&m, hdi_message_bytes(HDI_MESSAGE_MAP), NULL, 0));
    assert_int_equal(reply_of_worker(serial), 0);
    fake_worker_join(&worker);
    assert_int_equal(worker.results[0], 0);
}

static void the_worker_leaves_where_it_hears_nonsense(void **state)
{
    (void)state;
    static hdi_message m;
    static char large[HDI_WIRE_BYTES];
    const struct {
        size_t bytes;
        bool magic;
    } cases[] = {{1, false},
                 {sizeof m.header - 1, true},
                 {sizeof m.header, false},
                 {sizeof m + 1, true},
                 {HDI_WIRE_BYTES, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start_bare_worker();
        hdi_message_begin(&m, HDI_MESSAGE_MAP, 1);
        memcpy(large, &m, sizeof m);
        large[0] ^= !cases[i].magic;
        int given[2] = {fake.memory, fake.memory};
        assert_true(send_to_worker(large, cases[i].bytes, given, 2));
        assert_int_equal(reply_of_worker(1), -1);
        fake_worker_join(&worker);
        assert_int_equal(worker.results[0], -1);
        assert_int_equal(worker.results[1], 0);
    }
}

static void the_worker_survives_wrong_bytes(void **state)
{
    (void)state;
    static hdi_message m;
    dice_state = 0x9e3779b97f4a7c15;
    start_bare_worker();
    /* pins nothing, in case an address is valid by chance */
    fake_answer(&fake, HDCU_ERROR_NOT_SUPPORTED, "cuFakeCall");
    int before = fake_count_descriptors(), leaves = 0;
    for (uint64_t serial = 1; serial <= 4000; serial++) {
        uint32_t kind = fake_kind((int)dice(FAKE_KINDS));
        hdi_message_begin(&m, kind, serial);
        size_t bytes = hdi_message_bytes(kind);
        m.payload.range = (hdi_message_range){.at = (uintptr_t)things.base, .bytes = things.page};
        if (dice(8) == 0) {
            bytes = 1 + dice(sizeof m);
        }
        for (uint32_t i = dice(6); i > 0; i--) {
            uint32_t at = dice((uint32_t)bytes);
            /* Keeps the serial, and the upper bytes of a PIN's address, so that it maps where a
             * sanitizer allows it. */
            bool keep = (at >= 8 && at < 16) || (at >= sizeof m.header + 2 && at < sizeof m.header + 8);
            if (!keep) {
                ((unsigned char *)&m)[at] = (unsigned char)dice(256);
            }
        }
        bool ours = bytes >= sizeof m.header && m.header.magic == HDI_MESSAGE_MAGIC;
        int n = kind == HDI_MESSAGE_IMPORT || kind == HDI_MESSAGE_PIN || kind == HDI_MESSAGE_LOAD;
        assert_true(send_to_worker(&m, bytes, &things.file.descriptor, dice(8) == 0 ? 1 - n : n));
        int code = reply_of_worker(serial);
        assert_int_equal(code == -1, !ours);
        assert_int_not_equal(code, 0);
        if (!ours) {
            leaves++;
            fake_worker_join(&worker);
            fake_worker_start(&worker, &fake);
        }
    }
    assert_true(leaves > 0 && fake_calls(&fake) > 1000);
    fake_worker_join(&worker);
    fake_worker_start(&worker, &fake);
    assert_int_equal(fake_count_descriptors(), before);
}

/* ---- to the application ---- */

/* Changes a good reply before the test's worker sends it. Returns the number of bytes to send, and
 * sets *n to the number of descriptors. */
typedef size_t spoil(hdi_message *reply, size_t bytes, int *n);

typedef struct spoiler {
    int socket;
    spoil *how;
} spoiler;

/* Answers one request. */
static void *answer_once(void *argument)
{
    spoiler *s = argument;
    hdi_message *m = malloc(sizeof *m);
    size_t n;
    int descriptors[2], n_descriptors;
    if (m != NULL &&
        hdi_wire_receive(s->socket, m, sizeof *m, &n, descriptors, 2, &n_descriptors, LATE) == HDI_WIRE_OK) {
        hdi_wire_close(descriptors, n_descriptors);
        uint32_t kind = m->header.kind | HDI_MESSAGE_REPLY;
        hdi_message_begin(m, kind, m->header.serial);
        int given[2] = {fake.memory, fake.memory}, n_given = kind == (HDI_MESSAGE_EXPORT | HDI_MESSAGE_REPLY);
        n = s->how(m, hdi_message_bytes(kind), &n_given);
        hdi_wire_send(s->socket, m, n, given, n_given, LATE);
    }
    free(m);
    return NULL;
}

/* Makes one request to a worker that spoils its reply. */
static hdi_answer ask_spoiler(int which, spoil *how)
{
    int memory[2], code[2];
    assert_ok(hdi_wire_pair(memory));
    assert_ok(hdi_wire_pair(code));
    hdi_remote_port_connect(port, memory[0], code[0]);
    spoiler s = {.socket = which >= FAKE_LOAD ? code[1] : memory[1], .how = how};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer_once, &s), 0);
    atomic_store(&told_times, 0);
    hdi_answer answer = fake_ask(port, which, &things);
    pthread_join(thread, NULL);
    hdi_wire_close(memory + 1, 1);
    hdi_wire_close(code + 1, 1);
    return answer;
}

static size_t leave(hdi_message *reply, size_t bytes, int *n)
{
    (void)reply;
    (void)n;
    return bytes;
}

static size_t shorten(hdi_message *reply, size_t bytes, int *n)
{
    (void)reply;
    (void)n;
    return bytes - 1;
}

static size_t lengthen(hdi_message *reply, size_t bytes, int *n)
{
    (void)reply;
    (void)n;
    return bytes + 1;
}

static size_t lengthen_much(hdi_message *reply, size_t bytes, int *n)
{
    (void)reply;
    (void)bytes;
    *n = 2;
    return sizeof *reply; /* the largest length of a message */
}

static size_t only_a_byte(hdi_message *reply, size_t bytes, int *n)
{
    (void)reply;
    (void)bytes;
    (void)n;
    return 1;
}

static size_t other_magic(hdi_message *reply, size_t bytes, int *n)
{
    (void)n;
    reply->header.magic ^= 0x80;
    return bytes;
}

static size_t other_kind(hdi_message *reply, size_t bytes, int *n)
{
    (void)n;
    (void)bytes;
    reply->header.kind = reply->header.kind == (HDI_MESSAGE_MAP | HDI_MESSAGE_REPLY)
                             ? HDI_MESSAGE_UNMAP | HDI_MESSAGE_REPLY
                             : HDI_MESSAGE_MAP | HDI_MESSAGE_REPLY;
    *n = 0;
    return hdi_message_bytes(reply->header.kind);
}

static size_t a_request(hdi_message *reply, size_t bytes, int *n)
{
    (void)bytes;
    (void)n;
    reply->header.kind &= ~HDI_MESSAGE_REPLY;
    return hdi_message_bytes(reply->header.kind);
}

static size_t other_serial(hdi_message *reply, size_t bytes, int *n)
{
    (void)n;
    reply->header.serial--;
    return bytes;
}

static size_t code_below_0(hdi_message *reply, size_t bytes, int *n)
{
    *n = 0;
    reply->header.code = HDI_GONE_WATCHDOG;
    return bytes;
}

static size_t one_descriptor_more(hdi_message *reply, size_t bytes, int *n)
{
    (void)reply;
    (*n)++;
    return bytes;
}

static size_t descriptor_of_a_failure(hdi_message *reply, size_t bytes, int *n)
{
    reply->header.code = HDCU_ERROR_UNKNOWN;
    *n = 1;
    return bytes;
}

static void replies_without_sense_end_the_line(void **state)
{
    (void)state;
    spoil *const ways[] = {shorten,
                           lengthen,
                           lengthen_much,
                           only_a_byte,
                           other_magic,
                           other_kind,
                           a_request,
                           other_serial,
                           code_below_0,
                           one_descriptor_more,
                           descriptor_of_a_failure};
    hdi_remote_port_disconnect(port);
    fake_worker_join(&worker);
    for (int which = 0; which < FAKE_KINDS; which++) {
        expect(ask_spoiler(which, leave), 0);
        assert_int_equal(told_times, 0);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            int before = fake_count_descriptors();
            expect(ask_spoiler(which, ways[i]), HDI_GONE_UNANSWERED);
            assert_int_equal(told_times, 1);
            assert_int_equal(told_code, HDI_GONE_UNANSWERED);
            assert_int_equal(fake_count_descriptors(),
                             /* the worker's ends are closed, the port's ends are still open */
                             before);
        }
    }
    connect_worker();
}

static size_t no_end_of_strings(hdi_message *reply, size_t bytes, int *n)
{
    (void)n;
    memset(reply->header.call, 'c', sizeof reply->header.call);
    memset(&reply->payload, 'p', bytes - sizeof reply->header);
    return bytes;
}

static size_t too_many_params(hdi_message *reply, size_t bytes, int *n)
{
    (void)n;
    reply->payload.kernel_facts.n_params = HDI_FUNCTION_PARAMS_MAX + 1;
    return bytes;
}

static void what_is_inside_a_reply_has_bounds(void **state)
{
    (void)state;
    hdi_remote_port_disconnect(port);
    fake_worker_join(&worker);
    hdi_answer answer = ask_spoiler(FAKE_MAP, no_end_of_strings);
    expect(answer, 0);
    assert_string_equal(answer.call, ""); /* the library knows no such call */
    expect(ask_spoiler(FAKE_FACTS_OF, no_end_of_strings), 0);
    expect(ask_spoiler(FAKE_LOAD, no_end_of_strings), 0);
    expect(ask_spoiler(FAKE_KERNEL, too_many_params), HDI_GONE_UNANSWERED);
    connect_worker();
}

static size_t wrong_bytes(hdi_message *reply, size_t bytes, int *n)
{
    for (uint32_t i = dice(5); i > 0; i--) {
        ((unsigned char *)reply)[dice((uint32_t)bytes)] = (unsigned char)dice(256);
    }
    if (dice(4) == 0) {
        bytes = 1 + dice(sizeof *reply);
    }
    if (dice(4) == 0) {
        *n = (int)dice(3);
    }
    return bytes;
}

static void the_application_survives_wrong_bytes(void **state)
{
    (void)state;
    dice_state = 0xd1b54a32d192ed03;
    hdi_remote_port_disconnect(port);
    fake_worker_join(&worker);
    expect(ask_spoiler(FAKE_MAP, leave), 0);
    int before = fake_count_descriptors(), good = 0;
    for (int i = 0; i < 3000; i++) {
        hdi_answer answer = ask_spoiler((int)dice(FAKE_KINDS), wrong_bytes);
        assert_true(answer.code >= 0 || answer.code == HDI_GONE_UNANSWERED);
        /* a changed byte may also be a code for the loss of the device */
        assert_int_equal(told_times, answer.code < 0 || hdi_driver_code_is_fatal(answer.code));
        good += answer.code >= 0;
    }
    assert_in_range(good, 300, 2700);
    assert_int_equal(fake_count_descriptors(), before);
    connect_worker();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED_TEST(the_worker_refuses_what_has_the_wrong_shape),
        CONNECTED_TEST(the_worker_leaves_where_it_hears_nonsense),
        CONNECTED_TEST(the_worker_survives_wrong_bytes),
        CONNECTED_TEST(replies_without_sense_end_the_line),
        CONNECTED_TEST(what_is_inside_a_reply_has_bounds),
        CONNECTED_TEST(the_application_survives_wrong_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
