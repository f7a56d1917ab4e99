/* remote.h - the port of a device whose engine and driver are in a worker process: every call is a request over a socket.
 *
 * There are two lines, so that a slow module load does not hold up memory. Facts, lanes, memory and pinning go over one. Code
 * (load, unload, kernel, kernel_shared, global, blas) goes over the other. A line carries one request at a time.
 *
 * Threads: any, for everything but create and destroy. Blocking: requests for their turn and up to the time limit, the rest not.
 * Locks: each line has a turn, held from a request to its reply. Nothing is held while `broken` runs.
 * Always: a request ends with the worker's answer, or with a code below 0. After the first such code on a line every
 * later request there ends with one, too, until the port is connected again. A request goes on to no other worker than the one that
 * it was begun for.
 */
#ifndef HDI_WORKER_REMOTE_H
#define HDI_WORKER_REMOTE_H

#include <stdint.h>
#include "engine/port.h"

/* Makes a port that is not connected: every request returns HDI_GONE_CLOSED. NULL: no host memory.
 *   - `time_limit_ns` is for one request, from its turn to its reply. It is ten times as long for a request about code, and
 *     longer for one about many bytes (250 MB/s). Below 0: none.
 *   - `broken` (may be NULL) runs on the requesting thread, at most once per connection. It may call
 *     hdi_remote_port_disconnect and _connect.
 *   - It gets the number of the connection, as hdi_remote_port_connect gave it, since another one may have come meanwhile.
 *   - Its code is HDI_GONE_UNANSWERED when a reply was late or made no sense, HDI_GONE_CLOSED when the worker closed a line.
 *   - It also runs whenever the driver over there answers with a code after which it does no more work. */
hdi_port *hdi_remote_port_create(int64_t time_limit_ns, void (*broken)(void *context, uint64_t connection, int code),
                                 void *context);

/* Takes both sockets over, and returns the number of the connection. A connection that there is is disconnected, and its requests end first. */
uint64_t hdi_remote_port_connect(hdi_port *port, int memory_socket, int code_socket);

/* Ends the connection: requests under way and later ones return HDI_GONE_CLOSED, `broken` is not called. Does not wait for them. */
void hdi_remote_port_disconnect(hdi_port *port);

/* No request may be under way. NULL is ignored. */
void hdi_remote_port_destroy(hdi_port *port);

/* ---- the worker's side of a line: receives requests, has the local port do them, replies (service.c) ---- */

/* Any number of these may run at the same time, on sockets of their own, with one local port. It blocks, and holds no lock
 * while the local port works. Every descriptor that came with a request is closed when the request is done. Every
 * request gets one reply: HDCU_ERROR_INVALID_VALUE where it makes no sense.
 *
 * Serves until the other end is closed (0), or sends what is not a message of ours or takes no replies (-1). The socket stays the
 * caller's; shutdown() of it ends the loop. What the requests have made stays, also memory that was pinned for them.
 *
 * A local port has no files, so these answers are the loop's own:
 *   - INVALID_VALUE: a file is shorter than what the request has in it, or code is in a file that could be shortened
 *   - ALREADY_MAPPED of "mmap": PIN, and something else of this process is there
 *   - OUT_OF_MEMORY and OPERATING_SYSTEM with the name of the system call */
int hdi_serve(int socket, hdi_port *local);

#endif
