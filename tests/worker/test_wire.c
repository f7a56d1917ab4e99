/* test_wire.c - messages over a socket pair: whole, with descriptors, with deadlines, and with
 * every failure.
 *
 * Promise: A message arrives whole, with its descriptors, or the call fails by its deadline.
 * Threads: one; two in some cases.
 */
#include "support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/wait.h"
#include "fake_port.h"
#include "process/wire.h"

#define MS ((int64_t)1000000)
#define SOON hdi_deadline(20 * MS)
#define LATE hdi_deadline(60000 * MS)

static int descriptors_before;

static int make_pair(void **state)
{
    static int ends[2];
    descriptors_before = fake_count_descriptors();
    *state = ends;
    return hdi_wire_pair(ends) == HD_OK ? 0 : -1;
}

/* Closes the ends that a test left open; everything else must be closed already. */
static int close_pair(void **state)
{
    hdi_wire_close(*state, 2);
    return fake_count_descriptors() == descriptors_before ? 0 : -1;
}

static void close_end(int *end)
{
    close(*end);
    *end = -1;
}

/* Receives without descriptors. */
static hdi_wire_result receive(int end, void *bytes, size_t room, size_t *n, int64_t deadline)
{
    int n_descriptors;
    return hdi_wire_receive(end, bytes, room, n, NULL, 0, &n_descriptors, deadline);
}

static void carries_messages_whole_and_in_order(void **state)
{
    int *ends = *state;
    static char out[HDI_WIRE_BYTES], in[HDI_WIRE_BYTES];
    for (int i = 0; i < 2; i++) {
        assert_true(fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(ends[i], F_GETFL) & O_NONBLOCK);
    }
    for (size_t i = 0; i < sizeof out; i++) {
        out[i] = (char)(i * 31 + i / 256);
    }
    size_t n;
    assert_int_equal(hdi_wire_send(ends[0], out, sizeof out, NULL, 0, LATE), HDI_WIRE_OK);
    assert_int_equal(receive(ends[1], in, sizeof in, &n, LATE), HDI_WIRE_OK);
    assert_int_equal(n, sizeof out);
    assert_memory_equal(in, out, n);

    /* both directions; calls that need not wait succeed even past the deadline */
    assert_int_equal(hdi_wire_send(ends[1], "one", 3, NULL, 0, 0), HDI_WIRE_OK);
    assert_int_equal(hdi_wire_send(ends[1], "three", 5, NULL, 0, 0), HDI_WIRE_OK);
    assert_int_equal(receive(ends[0], in, sizeof in, &n, 0), HDI_WIRE_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(in, "one", 3);
    assert_int_equal(receive(ends[0], in, 5, &n, 0), HDI_WIRE_OK);
    assert_int_equal(n, 5);
    assert_memory_equal(in, "three", 5);
}

static void refuses_what_is_no_message(void **state)
{
    int *ends = *state;
    static char out[HDI_WIRE_BYTES + 1];
    int many[HDI_WIRE_DESCRIPTORS + 1] = {0};
    assert_int_equal(hdi_wire_send(ends[0], out, 0, NULL, 0, LATE), HDI_WIRE_BROKEN);
    assert_int_equal(hdi_wire_send(ends[0], out, sizeof out, NULL, 0, LATE), HDI_WIRE_BROKEN);
    assert_int_equal(hdi_wire_send(ends[0], out, 1, many, HDI_WIRE_DESCRIPTORS + 1, LATE), HDI_WIRE_BROKEN);
    assert_int_equal(hdi_wire_send(ends[0], out, 1, many, -1, LATE), HDI_WIRE_BROKEN);
    many[0] = -5;
    assert_int_equal(hdi_wire_send(ends[0], out, 1, many, 1, LATE), HDI_WIRE_BROKEN);
    size_t n;
    assert_int_equal(receive(ends[1], out, sizeof out, &n, 0), HDI_WIRE_TIMEOUT);
    assert_int_equal(hdi_wire_send(-1, out, 1, NULL, 0, LATE), HDI_WIRE_BROKEN);
    assert_int_equal(receive(-1, out, sizeof out, &n, LATE), HDI_WIRE_BROKEN);
}

static void carries_descriptors(void **state)
{
    int *ends = *state;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    int out[HDI_WIRE_DESCRIPTORS], in[HDI_WIRE_DESCRIPTORS];
    for (int i = 0; i < HDI_WIRE_DESCRIPTORS; i++) {
        out[i] = pipe_ends[i % 2];
    }
    char byte = 'x';
    size_t n;
    int n_descriptors;
    assert_int_equal(hdi_wire_send(ends[0], &byte, 1, out, HDI_WIRE_DESCRIPTORS, LATE), HDI_WIRE_OK);
    assert_int_equal(hdi_wire_receive(ends[1], &byte, 1, &n, in, HDI_WIRE_DESCRIPTORS, &n_descriptors, LATE),
                     HDI_WIRE_OK);
    assert_int_equal(n_descriptors, HDI_WIRE_DESCRIPTORS);
    for (int i = 0; i < n_descriptors; i++) {
        assert_true(fcntl(in[i], F_GETFD) & FD_CLOEXEC);
        struct stat a, b;
        assert_int_equal(fstat(in[i], &a), 0);
        assert_int_equal(fstat(out[i], &b), 0);
        assert_int_equal(a.st_ino, b.st_ino);
    }
    /* the second is the pipe's writing end */
    assert_int_equal(write(in[1], "y", 1), 1);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    hdi_wire_close(in, n_descriptors);
    hdi_wire_close(pipe_ends, 2);
}

static void closes_descriptors_without_room(void **state)
{
    int *ends = *state;
    int out[5] = {0, 0, 0, 0, 0}, in[2];
    int before = fake_count_descriptors();
    char byte = 'x';
    size_t n;
    int n_descriptors;
    assert_int_equal(hdi_wire_send(ends[0], &byte, 1, out, 5, LATE), HDI_WIRE_OK);
    assert_int_equal(hdi_wire_receive(ends[1], &byte, 1, &n, in, 2, &n_descriptors, LATE), HDI_WIRE_OK);
    assert_int_equal(n_descriptors, 2);
    assert_int_equal(fake_count_descriptors(), before + 2);
    hdi_wire_close(in, 2);

    assert_int_equal(hdi_wire_send(ends[0], &byte, 1, out, 5, LATE), HDI_WIRE_OK);
    assert_int_equal(receive(ends[1], &byte, 1, &n, LATE), HDI_WIRE_OK);
    assert_int_equal(fake_count_descriptors(), before);
}

/* As hdi_wire_send, but without its limits. */
static void send_raw(int end, const void *bytes, size_t n, int n_descriptors)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(200 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_descriptors > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)n_descriptors * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)n_descriptors * sizeof(int));
        memset(CMSG_DATA(head), 0, (size_t)n_descriptors * sizeof(int)); /* standard input */
    }
    assert_int_equal(sendmsg(end, &message, 0), n);
}

static void what_does_not_fit_is_broken_and_keeps_nothing(void **state)
{
    int *ends = *state;
    int before = fake_count_descriptors(), in[HDI_WIRE_DESCRIPTORS], n_descriptors;
    char bytes[8];
    size_t n;
    /* too long, with descriptors */
    send_raw(ends[0], "123456789", 9, 3);
    assert_int_equal(hdi_wire_receive(ends[1], bytes, 8, &n, in, HDI_WIRE_DESCRIPTORS, &n_descriptors, LATE),
                     HDI_WIRE_BROKEN);
    assert_int_equal(n, 0);
    assert_int_equal(n_descriptors, 0);
    assert_int_equal(fake_count_descriptors(), before);
    /* more descriptors than a message may carry */
    send_raw(ends[0], "1", 1, 100);
    assert_int_equal(hdi_wire_receive(ends[1], bytes, 8, &n, in, HDI_WIRE_DESCRIPTORS, &n_descriptors, LATE),
                     HDI_WIRE_BROKEN);
    assert_int_equal(fake_count_descriptors(), before);
    /* an empty message, which looks like an end */
    send_raw(ends[0], "", 0, 1);
    assert_int_equal(hdi_wire_receive(ends[1], bytes, 8, &n, in, HDI_WIRE_DESCRIPTORS, &n_descriptors, LATE),
                     HDI_WIRE_CLOSED);
    assert_int_equal(fake_count_descriptors(), before);
    /* and the socket still works */
    assert_int_equal(hdi_wire_send(ends[0], "12345678", 8, NULL, 0, LATE), HDI_WIRE_OK);
    assert_int_equal(receive(ends[1], bytes, 8, &n, LATE), HDI_WIRE_OK);
    assert_memory_equal(bytes, "12345678", 8);
}

static void a_closed_end_is_noticed(void **state)
{
    int *ends = *state;
    char bytes[8];
    size_t n;
    /* earlier messages still arrive */
    assert_int_equal(hdi_wire_send(ends[0], "last", 4, NULL, 0, LATE), HDI_WIRE_OK);
    close_end(&ends[0]);
    assert_int_equal(receive(ends[1], bytes, 8, &n, LATE), HDI_WIRE_OK);
    assert_int_equal(receive(ends[1], bytes, 8, &n, LATE), HDI_WIRE_CLOSED);
    /* without SIGPIPE */
    assert_int_equal(hdi_wire_send(ends[1], "no", 2, NULL, 0, LATE), HDI_WIRE_CLOSED);
}

static void an_end_closed_over_unread_messages_is_noticed(void **state)
{
    int *ends = *state;
    char bytes[8];
    size_t n;
    /* not the pair itself: the kernel closes descriptors unread in their own queue only when it
     * collects such cycles */
    int carried[2];
    assert_int_equal(pipe(carried), 0);
    assert_int_equal(hdi_wire_send(ends[1], "unread", 6, carried, 2, LATE), HDI_WIRE_OK);
    hdi_wire_close(carried, 2);
    close_end(&ends[0]);
    assert_int_equal(receive(ends[1], bytes, 8, &n, LATE), HDI_WIRE_CLOSED);
    assert_int_equal(hdi_wire_send(ends[1], "no", 2, NULL, 0, LATE), HDI_WIRE_CLOSED);
}

static void waits_have_an_end(void **state)
{
    int *ends = *state;
    char bytes[8];
    size_t n = 5;
    int64_t start = hdi_clock_ns();
    assert_int_equal(receive(ends[1], bytes, 8, &n, start + 20 * MS), HDI_WIRE_TIMEOUT);
    assert_true(hdi_clock_ns() >= start + 20 * MS);
    assert_int_equal(n, 0);
    assert_int_equal(receive(ends[1], bytes, 8, &n, -5), HDI_WIRE_TIMEOUT);

    /* no thread reads, so the socket becomes full */
    hdi_wire_result result = HDI_WIRE_OK;
    int sent = -1;
    while (result == HDI_WIRE_OK && sent < 100000) {
        result = hdi_wire_send(ends[0], "more", 4, NULL, 0, SOON);
        sent++;
    }
    assert_int_equal(result, HDI_WIRE_TIMEOUT);
    for (; sent > 0; sent--) {
        assert_int_equal(receive(ends[1], bytes, 8, &n, 0), HDI_WIRE_OK);
    }
    assert_int_equal(receive(ends[1], bytes, 8, &n, 0), HDI_WIRE_TIMEOUT);
}

#define MESSAGES 500

static void *send_many(void *argument)
{
    int end = *(int *)argument;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        if (hdi_wire_send(end, &i, sizeof i, NULL, 0, LATE) != HDI_WIRE_OK) {
            break;
        }
    }
    return NULL;
}

static void waits_for_room_and_for_messages(void **state)
{
    int *ends = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_many, &ends[0]), 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint32_t got = 0;
        size_t n;
        assert_int_equal(receive(ends[1], &got, sizeof got, &n, LATE), HDI_WIRE_OK);
        assert_int_equal(got, i);
    }
    pthread_join(thread, NULL);
}

static void *receive_forever(void *argument)
{
    char bytes[8];
    size_t n;
    return receive(*(int *)argument, bytes, 8, &n, INT64_MAX) == HDI_WIRE_CLOSED ? argument : NULL;
}

static void shutdown_ends_a_wait(void **state)
{
    int *ends = *state;
    for (int other = 0; other < 2; other++) { /* this end, or the other one */
        int pair[2];
        assert_ok(hdi_wire_pair(pair));
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, receive_forever, &pair[0]), 0);
        usleep(2000);
        shutdown(pair[other], SHUT_RDWR);
        void *closed;
        pthread_join(thread, &closed);
        assert_ptr_equal(closed, &pair[0]);
        hdi_wire_close(pair, 2);
    }
    (void)ends;
}

#define WIRE_TEST(test) cmocka_unit_test_setup_teardown(test, make_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WIRE_TEST(carries_messages_whole_and_in_order),
        WIRE_TEST(refuses_what_is_no_message),
        WIRE_TEST(carries_descriptors),
        WIRE_TEST(closes_descriptors_without_room),
        WIRE_TEST(what_does_not_fit_is_broken_and_keeps_nothing),
        WIRE_TEST(a_closed_end_is_noticed),
        WIRE_TEST(an_end_closed_over_unread_messages_is_noticed),
        WIRE_TEST(waits_have_an_end),
        WIRE_TEST(waits_for_room_and_for_messages),
        WIRE_TEST(shutdown_ends_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
