/* connected.h - the set-up that tests of the remote port share: a port, connected to a worker whose two threads serve a fake.
 *
 * Threads: set up and taken down by the test's; `broken` notes from any.
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
extern atomic_int told_times, told_code; /* what `broken` was called with */

void note_broken(void *context, uint64_t connection, int code); /* the context is the fake */

/* Starts `worker` and connects `port` to it. The one before must be joined. */
void connect_worker(void);

/* Of cmocka: with a limit that is never reached, and with one that is. The end fails when a descriptor is left. */
int connected_begin(void **state);
int connected_begin_short(void **state);
int connected_end(void **state);
#define SHORT_LIMIT (60 * MS)
#define CONNECTED_TEST(test) cmocka_unit_test_setup_teardown(test, connected_begin, connected_end)
#define CONNECTED_SHORT_TEST(test) cmocka_unit_test_setup_teardown(test, connected_begin_short, connected_end)

#define expect(answer, expected) assert_int_equal((answer).code, (expected))

#endif
