/* connected.c - a remote port and its worker, for tests. See connected.h for threads. */
#include "connected.h"

fake_port fake;
fake_worker worker;
fake_things things;
hdi_port *port;
atomic_int told_times, told_code;
static int descriptors_before;

void note_broken(void *context, uint64_t connection, int code)
{
    assert_true(connection > 0);
    assert_ptr_equal(context, &fake);
    atomic_store(&told_code, code);
    atomic_fetch_add(&told_times, 1);
}

void connect_worker(void)
{
    fake_worker_start(&worker, &fake);
    hdi_remote_port_connect(port, worker.application[0], worker.application[1]);
    worker.application[0] = worker.application[1] = -1;
}

static int begin(int64_t limit)
{
    descriptors_before = fake_count_descriptors();
    atomic_store(&told_times, 0);
    atomic_store(&told_code, 0);
    fake_init(&fake);
    fake_things_make(&things);
    port = hdi_remote_port_create(limit, note_broken, &fake);
    assert_non_null(port);
    connect_worker();
    return 0;
}

int connected_begin(void **state)
{
    (void)state;
    return begin(120000 * MS);
}

int connected_begin_short(void **state)
{
    (void)state;
    return begin(SHORT_LIMIT);
}

int connected_end(void **state)
{
    (void)state;
    fake_hold(&fake, false);
    hdi_remote_port_destroy(port);
    fake_worker_join(&worker);
    fake_things_release(&things);
    fake_release(&fake);
    return fake_count_descriptors() == descriptors_before ? 0 : -1;
}
