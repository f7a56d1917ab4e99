/* serve.h - the worker's side of a line: receives requests, has the local port do them, replies.
 *
 * Threads: any number of loops may run at the same time, on sockets of their own, with one local port. Blocking: until the
 * socket is closed. Locks: none held while the local port works.
 * Always: every descriptor that came with a request is closed when the request is done. Every request gets one reply:
 * HDCU_ERROR_INVALID_VALUE where it makes no sense.
 */
#ifndef HDI_WORKER_SERVE_H
#define HDI_WORKER_SERVE_H

#include "engine/port.h"

/* Serves until the other end is closed (0), or sends what is not a message of ours or takes no replies (-1). The socket stays the
 * caller's; shutdown() of it ends the loop. What the requests have made stays, also memory that was pinned for them.
 *
 * A local port has no files, so these answers are the loop's own:
 *   - INVALID_VALUE: a file is shorter than what the request has in it, or code is in a file that could be shortened
 *   - ALREADY_MAPPED of "mmap": PIN, and something else of this process is there
 *   - OUT_OF_MEMORY and OPERATING_SYSTEM with the name of the system call */
int hdi_serve(int socket, hdi_port *local);

#endif
