/* heddle/peer.h - which device can use which other device's memory directly, found out by moving bytes.
 *
 * A driver may report that peer access works where it does not. Writes may get lost, be visible to the writer alone, or arrive slower
 * than by way of pinned memory. So each ordered pair (device, owner) is tested when it is first needed. The test runs in a process of
 * its own, so that a hang or a fault there only makes a verdict. The owner fills its memory with a pattern. The other device writes to
 * it by copy engine and by kernel stores, and reads it by kernel loads. Where atomics are claimed, it counts there, too. All of this is
 * done in several sizes. Only the owner of the bytes checks what arrived. Then both ways are timed: directly, and through pinned memory.
 *
 * Results are kept in a file of the user's cache folder (option cache). Its key changes with boot, driver, devices and the
 * kernel's command line. The option peers=trust relies on the driver's report instead, peers=off never uses peer access. The option
 * peer_timeout limits a test.
 *
 * A copy between two devices does not wait for the test. The first one starts it on a thread of the library's. Copies go through pinned
 * memory until there is a verdict; from there on they go directly where it is good. With placement=inline, which starts no threads, the
 * first copy makes the test itself. What needs an answer waits for it: hd_peer_check, hd_peers_check, and a kernel or a matrix product that is
 * given a buffer of another device. So a program that needs the direct way from its first copy on asks before it copies.
 *
 * Threads: any. Two threads that ask for the same pair wait for one test. So do two processes, while the one that tests has results.
 * Blocking: for the test, mostly a second or so. A pair may take as long as the option peer_timeout, and so may opening the devices for
 * it. Both directions of a pair are tested together. Work that is running or submitted meanwhile is not held up. hd_close ends a test that
 * is under way: nothing is found then, and callers that wait for it get HANDLE.
 */
#ifndef HEDDLE_PEER_H
#define HEDDLE_PEER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

typedef enum hd_peer_verdict {
    HD_PEER_UNKNOWN = 0, /* not tested */
    HD_PEER_USABLE,      /* bytes arrive, and faster than by way of pinned memory */
    HD_PEER_SLOW,        /* bytes arrive, but pinned memory is faster: kernels may use it, hd_copy does not */
    HD_PEER_REFUSED,     /* the driver refuses: `driver_code`, or its attributes */
    HD_PEER_CORRUPT,     /* bytes did not arrive as they were sent, or the test hung or crashed */
    HD_PEER_INCONCLUSIVE /* it could not be tested, or the test was killed from outside; not used */
} hd_peer_verdict;

/* "usable", "slow", ...; never NULL. */
HD_API const char *hd_peer_verdict_text(hd_peer_verdict verdict);

#define HD_PEER_REASON_BYTES 200

typedef struct hd_peer_info {
    size_t size; /* sizeof(hd_peer_info) */
    hd_peer_verdict verdict;
    int driver_code;                   /* for REFUSED, and where the driver failed during the test; 0: none */
    bool atomics;                      /* atomic operations on the owner's memory were tested and count right */
    bool remembered;                   /* found by an earlier process */
    double direct_bytes_per_s;         /* copies by `device` into the owner's memory; 0: not measured */
    double staged_bytes_per_s;         /* the same through pinned memory */
    char reason[HD_PEER_REASON_BYTES]; /* what was seen, in a sentence; "" for USABLE */
} hd_peer_info;

/* What is known of `device` using memory of `owner` (numbers in the runtime); tests the pair when nothing is. `device` == `owner` is usable.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. That a pair cannot be used, or not be tested, is no error. */
HD_API hd_status hd_peer_check(hd_runtime *runtime, int device, int owner, hd_peer_info *out);

/* Called after each ordered pair, `done` of `total`, on the calling thread. It may call anything but hd_peers_check and hd_close; pairs that
 * are not done yet are UNKNOWN, and not used, for it. */
typedef void (*hd_peer_progress)(void *context, int device, int owner, const hd_peer_info *info, int done, int total);

typedef enum hd_peers_flags {
    HD_PEERS_AGAIN = 1 /* test also what is known; a pair in use stays in use until it is found corrupt */
} hd_peers_flags;

/* Tests all ordered pairs that are not known. `progress` may be NULL. Errors: ARGUMENT, HANDLE, HOST_MEMORY. */
HD_API hd_status hd_peers_check(hd_runtime *runtime, unsigned flags, hd_peer_progress progress, void *context);

HD_END_DECLS
#endif
