/* connected.h - shared by the tests of the remote port: a port, connected to a worker whose two
 * threads serve a fake.
 *
 * Threads: the test's thread sets it up and takes it down; any thread may call `broken`.
 */
#ifndef TEST_WORKER_CONNECTED_H
#define TEST_WORKER_CONNECTED_H

#include <stdatomic.h>
#include "fake_port.h"
#include "support/check.h"
#include "worker/remote.h"

#define MS ((int64_t)1000000)

extern fake_port fake;
extern fake_worker worker;
extern fake_things things;
extern hdi_port *port;
extern atomic_int told_times, told_code; /* the calls of `broken`, and the last code */

void note_broken(void *context, uint64_t connection, int code); /* the context is the fake */

/* Starts `worker` and connects `port` to it. Join the previous worker first. */
void connect_worker(void);

/* Fixtures for cmocka: with a limit that is never reached, and with one that is. The end fails if a
 * descriptor is left open. */
int connected_begin(void **state);
int connected_begin_short(void **state);
int connected_end(void **state);
#define SHORT_LIMIT (60 * MS)
#define CONNECTED_TEST(test) cmocka_unit_test_setup_teardown(test, connected_begin, connected_end)
#define CONNECTED_SHORT_TEST(test) cmocka_unit_test_setup_teardown(test, connected_begin_short, connected_end)

#define expect(answer, expected) assert_int_equal((answer).code, (expected))

#endif
