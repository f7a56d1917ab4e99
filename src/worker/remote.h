/* remote.h - the port of a device whose engine and driver run in a worker process: every call is a
 * request over a socket.
 *
 * Two lines exist, so that a slow module load does not hold up memory. Requests about facts, lanes,
 * memory and pinning use one line. Requests about code (load, unload, kernel, kernel_shared,
 * global, blas, activities) use the other line. A line carries one request at a time.
 *
 * Threads: any, except for create and destroy. Blocking: requests wait for their turn, and up to
 * the time limit. The other functions do not wait.
 * Locks: each line has a turn, held from a request to its reply. No turn is held while `broken`
 * runs.
 * Always: a request ends with the worker's answer, or with a code below 0. After the first code
 * below 0 on a line, every later request on that line also ends with such a code. This lasts until
 * the port is connected again. A request never reaches a worker other than the one for which it was
 * begun.
 */
#ifndef HDI_WORKER_REMOTE_H
#define HDI_WORKER_REMOTE_H

#include <stdint.h>
#include "engine/port.h"

/* Makes a port without a connection: every request returns HDI_GONE_CLOSED. NULL: no host memory.
 * - `time_limit_ns` covers one request, from its turn to its reply. The limit is ten times as long
 *   for a request about code, and grows with the bytes of a request (250 MB/s). Below 0: none.
 * - `broken` (may be NULL) runs on the requesting thread, at most once per connection. `broken` may
 *   call hdi_remote_port_disconnect and hdi_remote_port_connect.
 * - `broken` gets the connection's number, as hdi_remote_port_connect returned it, since another
 *   connection may be in its place by then.
 * - The code that `broken` gets is HDI_GONE_UNANSWERED if a reply was late or made no sense, and
 *   HDI_GONE_CLOSED if the worker closed a line.
 * - `broken` also runs whenever the worker's driver answers with a code after which the driver does
 *   no more work. */
hdi_port *hdi_remote_port_create(int64_t time_limit_ns, void (*broken)(void *context, uint64_t connection, int code),
                                 void *context);

/* Takes both sockets over, and returns the connection's number. First ends an existing connection
 * and its requests. */
uint64_t hdi_remote_port_connect(hdi_port *port, int memory_socket, int code_socket);

/* Ends the connection: requests under way and later ones return HDI_GONE_CLOSED, without a call of
 * `broken`. The function does not wait for these requests. */
void hdi_remote_port_disconnect(hdi_port *port);

/* No request may be under way. Ignores NULL. */
void hdi_remote_port_destroy(hdi_port *port);

/* ---- the worker's side of a line: receives requests, passes them to the local port, replies
 * (service.c) ---- */

/* Serves the requests that come on a socket. Several threads may do this at the same time, on
 * sockets of their own, with one local port. The function blocks, and holds no lock while the local
 * port works. Closes every descriptor of a request when the request is done. Each request gets one
 * reply: HDCU_ERROR_INVALID_VALUE if the request makes no sense.
 *
 * Serves until the other end is closed (0), or sends a foreign message or takes no replies (-1).
 * The caller keeps the socket; shutdown() of it ends the loop. The results of requests stay,
 * including memory that was pinned for them.
 *
 * A local port uses no files, so the loop makes these answers:
 * - INVALID_VALUE: a file is shorter than the request states, or code is in a file that could be
 *   shortened
 * - ALREADY_MAPPED of "mmap": for PIN, if this process already maps something there
 * - OUT_OF_MEMORY and OPERATING_SYSTEM with the name of the system call */
int hdi_serve(int socket, hdi_port *local);

#endif
