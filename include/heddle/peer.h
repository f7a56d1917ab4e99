/* heddle/peer.h - which device can use the memory of which other device directly, found out by
 * moving bytes.
 *
 * A driver may report peer access that does not work. Writes may get lost, be visible to the writer
 * alone, or arrive slower than through pinned memory. So Heddle tests each ordered pair (device,
 * owner) when it is first needed. The test runs in a process of its own, so that a hang or a fault
 * there only leads to a verdict. The owner fills its memory with a pattern. The other device writes
 * to it by copy engine and by kernel stores, and reads it by kernel loads. If the driver claims
 * atomics, the other device counts there, too. The test does all of this in several sizes. Only the
 * owner of the bytes checks them. Then the test times both ways: directly, and through pinned
 * memory.
 *
 * A file in the user's cache folder keeps the results (option cache). Its key changes with boot,
 * driver, devices and the command line of the system's kernel. The option peers=trust relies on the
 * driver's report instead, peers=off never uses peer access. The option peer_timeout limits a test.
 *
 * A copy between two devices does not wait for the test. The first one starts it on a thread of the
 * library. Copies go through pinned memory until there is a verdict; from there on they go directly
 * if it is good. With placement=inline, which starts no threads, the first copy makes the test
 * itself. Calls that need an answer wait for it: hd_peer_check, hd_peers_check, and a kernel or a
 * matrix product with a buffer of another device. A program that needs the direct way from its
 * first copy on asks before it copies.
 *
 * Threads: any. Two threads that ask for the same pair wait for one test. Two processes do the
 * same, as long as the one that tests gets results.
 * Blocking: for the test, mostly a second or so. A pair may take as long as the option
 * peer_timeout, and opening the devices for it may take as long again. Both directions of a pair
 * are tested together. Running and submitted work is not held up. hd_close ends a test that is
 * under way: the test finds nothing then, and callers that wait for it get HANDLE.
 */
#ifndef HEDDLE_PEER_H
#define HEDDLE_PEER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* The result of the test of a pair. */
typedef enum hd_peer_verdict {
    HD_PEER_UNKNOWN = 0, /* not tested */
    HD_PEER_USABLE,      /* bytes arrive, and faster than by way of pinned memory */
    /* Bytes arrive, but pinned memory is faster: kernels may use it, hd_copy does not. */
    HD_PEER_SLOW,
    HD_PEER_REFUSED, /* the driver refuses: `driver_code`, or its attributes */
    HD_PEER_CORRUPT, /* bytes did not arrive as they were sent, or the test hung or crashed */
    /* The pair could not be tested, or something killed the test; not used. */
    HD_PEER_INCONCLUSIVE
} hd_peer_verdict;

/* Returns "usable", "slow" and so on; a static string, "unknown" for other values. Cannot fail. */
HD_API const char *hd_peer_verdict_text(hd_peer_verdict verdict);

#define HD_PEER_REASON_BYTES 200 /* bytes of a reason, its end included */

/* How a device can use another device's memory: hd_peer_check. */
typedef struct hd_peer_info {
    size_t size; /* sizeof(hd_peer_info) */
    hd_peer_verdict verdict;
    /* for REFUSED, and if the driver failed during the test; 0: none */
    int driver_code;
    /* Atomic operations on the owner's memory were tested and count right. */
    bool atomics;
    bool remembered; /* found by an earlier process */
    /* copies by `device` into the owner's memory; 0: not measured */
    double direct_bytes_per_s;
    double staged_bytes_per_s;         /* the same through pinned memory */
    char reason[HD_PEER_REASON_BYTES]; /* the observation in a sentence; "" for USABLE */
} hd_peer_info;

/* Describes how `device` can use memory of `owner` (numbers in the runtime); tests the pair if
 * nothing is known. `device` == `owner` is usable.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. A pair that cannot be used, or not be tested, is no
 * error. */
HD_API hd_status hd_peer_check(hd_runtime *runtime, int device, int owner, hd_peer_info *out);

/* Called after each ordered pair, `done` of `total`, on the calling thread. It may call anything
 * but hd_peers_check and hd_close. For its calls, pairs that are not done yet are UNKNOWN, and not
 * used. */
typedef void (*hd_peer_progress)(void *context, int device, int owner, const hd_peer_info *info, int done, int total);

/* Flags of hd_peers_check. */
typedef enum hd_peers_flags {
    /* Test known pairs, too; a pair in use stays in use until it is found corrupt. */
    HD_PEERS_AGAIN = 1
} hd_peers_flags;

/* Tests all ordered pairs without a known verdict. `progress` may be NULL. Errors: ARGUMENT,
 * HANDLE, HOST_MEMORY. */
HD_API hd_status hd_peers_check(hd_runtime *runtime, unsigned flags, hd_peer_progress progress, void *context);

HD_END_DECLS
#endif
