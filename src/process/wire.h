/* wire.h - messages with descriptors between two processes, each of which has one end of a socket
 * pair.
 *
 * A message arrives whole or not at all, and in order. Sockets are close-on-exec; no call here
 * blocks past its deadline.
 *
 * Threads: any. Threads that receive from (or send to) one end at the same time get whole messages.
 * The order among them is not defined. shutdown() of an end from another thread ends waits there
 * with CLOSED. Locks: none.
 * Always: a descriptor that came with a message belongs to the caller or is closed.
 */
#ifndef HDI_PROCESS_WIRE_H
#define HDI_PROCESS_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

#define HDI_WIRE_BYTES 65536    /* the most bytes in a message; the least is 1 */
#define HDI_WIRE_DESCRIPTORS 64 /* the most descriptors in a message */

typedef enum hdi_wire_result {
    HDI_WIRE_OK,
    HDI_WIRE_CLOSED,  /* the other end is gone, or one of the two ends was shut down */
    HDI_WIRE_TIMEOUT, /* the deadline passed; nothing was sent or received */
    /* the message did not fit, some descriptors could not be received, or another error occurred */
    HDI_WIRE_BROKEN
} hdi_wire_result;

/* Errors: SYSTEM. */
hd_status hdi_wire_pair(int ends[2]);

/* Deadlines are hdi_clock_ns time, INT64_MAX: none. A call that can succeed at once does so, even
 * past the deadline. */

/* Sends one message. The caller keeps its descriptors. */
hdi_wire_result hdi_wire_send(int socket, const void *bytes, size_t n, const int *descriptors, int n_descriptors,
                              int64_t deadline);

/* Receives one message into bytes[0..room). Stores up to `descriptors_room` of its descriptors
 * (close-on-exec), and closes the others. Returns BROKEN for a message longer than `room`, or if
 * not all of its descriptors arrived. *n and *n_descriptors are 0 unless OK. */
hdi_wire_result hdi_wire_receive(int socket, void *bytes, size_t room, size_t *n, int *descriptors,
                                 int descriptors_room, int *n_descriptors, int64_t deadline);

/* Closes all of the descriptors; -1 is ignored. */
void hdi_wire_close(const int *descriptors, int n_descriptors);

#endif
