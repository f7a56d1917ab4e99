/* dying.c - the worker program, with points at which it can die: before and after each driver call,
 * and each message.
 *
 * The environment variable HEDDLE_TEST_DYING names a file with a counter, which all workers of a
 * test share. So one worker dies, once, and later ones live.
 * Threads: any. Locks: none.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "driver/driver.h"
#include "engine/providers.h"
#include "sweeps/worker/dying.h"
#include "sweeps/worker/shared.h"
#include "process/wire.h"

static dying_points *points;

__attribute__((constructor)) static void find_points(void)
{
    points = shared_find("HEDDLE_TEST_DYING", sizeof *points);
}

static void pass(const char *name)
{
    if (points == NULL) {
        return;
    }
    atomic_fetch_add(&points->passed, 1);
    if (atomic_fetch_sub(&points->left, 1) == 1) {
        for (size_t i = 0; name[i] != 0 && i < sizeof points->name - 1; i++) {
            points->name[i] = name[i];
        }
        kill(getpid(), SIGKILL);
    }
}

/* ---- driver calls: the engine's table contains these ---- */

static const hdi_driver *inner;
static hdi_driver outer;

#define ENTRY_POINTS(name, version, need, parameters, arguments)                                                       \
    static hdcu_result with_points_##name parameters                                                                   \
    {                                                                                                                  \
        pass("before " #name);                                                                                         \
        hdcu_result result = inner->name arguments;                                                                    \
        pass("after " #name);                                                                                          \
        return result;                                                                                                 \
    }
HDI_DRIVER_ENTRIES(ENTRY_POINTS)
#undef ENTRY_POINTS

hd_status __real_hdi_providers_open_driver(const hdi_options *options, const hdi_driver **out);
hd_status __wrap_hdi_providers_open_driver(const hdi_options *options, const hdi_driver **out);
hd_status __wrap_hdi_providers_open_driver(const hdi_options *options, const hdi_driver **out)
{
    hd_status status = __real_hdi_providers_open_driver(options, &inner);
    if (status != HD_OK) {
        return status;
    }
    outer = *inner;
#define ENTRY_MEMBER(name, version, need, parameters, arguments)                                                       \
    outer.name = inner->name != NULL ? with_points_##name : NULL;
    HDI_DRIVER_ENTRIES(ENTRY_MEMBER)
#undef ENTRY_MEMBER
    /* called repeatedly while nothing happens, so no point of its own */
    outer.cuStreamQuery = inner->cuStreamQuery;
    outer.cuEventQuery = inner->cuEventQuery;
    *out = &outer;
    return HD_OK;
}

void __real_hdi_providers_close_driver(const hdi_driver *driver);
void __wrap_hdi_providers_close_driver(const hdi_driver *driver);
void __wrap_hdi_providers_close_driver(const hdi_driver *driver)
{
    __real_hdi_providers_close_driver(driver == &outer ? inner : driver);
}

/* ---- messages ---- */

hdi_wire_result __real_hdi_wire_send(int socket, const void *bytes, size_t n, const int *descriptors, int n_descriptors,
                                     int64_t deadline);
hdi_wire_result __wrap_hdi_wire_send(int socket, const void *bytes, size_t n, const int *descriptors, int n_descriptors,
                                     int64_t deadline);
hdi_wire_result __wrap_hdi_wire_send(int socket, const void *bytes, size_t n, const int *descriptors, int n_descriptors,
                                     int64_t deadline)
{
    pass("before a reply");
    hdi_wire_result result = __real_hdi_wire_send(socket, bytes, n, descriptors, n_descriptors, deadline);
    pass("after a reply");
    return result;
}

hdi_wire_result __real_hdi_wire_receive(int socket, void *bytes, size_t room, size_t *n, int *descriptors,
                                        int descriptors_room, int *n_descriptors, int64_t deadline);
hdi_wire_result __wrap_hdi_wire_receive(int socket, void *bytes, size_t room, size_t *n, int *descriptors,
                                        int descriptors_room, int *n_descriptors, int64_t deadline);
hdi_wire_result __wrap_hdi_wire_receive(int socket, void *bytes, size_t room, size_t *n, int *descriptors,
                                        int descriptors_room, int *n_descriptors, int64_t deadline)
{
    hdi_wire_result result =
        __real_hdi_wire_receive(socket, bytes, room, n, descriptors, descriptors_room, n_descriptors, deadline);
    pass("with a request");
    return result;
}
