/* wire.h - messages with descriptors between two processes: one end of a socket pair each.
 *
 * A message arrives whole or not at all, and in order. Sockets are close-on-exec; no call here blocks past its deadline.
 *
 * Threads: any. Those that receive from (or send to) one end at the same time get whole messages. Which of them gets which message is not
 * defined. shutdown() of an end from another thread ends what waits there with CLOSED. Locks: none.
 * Always: a descriptor that came with a message is either the caller's or closed.
 */
#ifndef HDI_PROCESS_WIRE_H
#define HDI_PROCESS_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

#define HDI_WIRE_BYTES 65536    /* a message is 1..this many bytes */
#define HDI_WIRE_DESCRIPTORS 64 /* and has at most as many descriptors */

typedef enum hdi_wire_result {
    HDI_WIRE_OK,
    HDI_WIRE_CLOSED,  /* the other end is gone, or one of them was shut down */
    HDI_WIRE_TIMEOUT, /* the deadline passed; nothing was sent or received */
    HDI_WIRE_BROKEN   /* a message that did not fit, descriptors that could not be taken, or an unexpected error */
} hdi_wire_result;

/* Errors: SYSTEM. */
hd_status hdi_wire_pair(int ends[2]);

/* Deadlines are hdi_clock_ns time, INT64_MAX: none. What can be done at once is done, even past the deadline. */

/* The caller keeps its descriptors. */
hdi_wire_result hdi_wire_send(int socket, const void *bytes, size_t n, const int *descriptors, int n_descriptors,
                              int64_t deadline);

/* One message into bytes[0..room). Of its descriptors up to `descriptors_room` are stored (close-on-exec), the others closed.
 * A message longer than `room`, or one whose descriptors did not all arrive, is BROKEN. *n and *n_descriptors are 0 unless OK. */
hdi_wire_result hdi_wire_receive(int socket, void *bytes, size_t room, size_t *n, int *descriptors,
                                 int descriptors_room, int *n_descriptors, int64_t deadline);

/* Closes all of them; -1: ignored. */
void hdi_wire_close(const int *descriptors, int n_descriptors);

#endif
