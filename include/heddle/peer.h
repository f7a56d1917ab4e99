/* heddle/peer.h - which device can use the memory of which other device directly: Heddle moves
 * bytes to find out.
 *
 * A driver may report peer access that does not work. Writes may get lost, be visible to the writer
 * alone, or arrive slower than through pinned memory. Heddle therefore tests an ordered pair of
 * devices when the program first needs it. In the pair (device, owner), `device` uses memory of
 * `owner`. The test runs in another process, so that a hang or a fault leads to a verdict and harms
 * nothing else.
 *
 * In the test, `device` writes to the owner's memory and reads from it, in several sizes. The test
 * uses copy engines and kernels for both. Only the device on which the bytes arrive checks the
 * bytes. If the driver reports that atomic operations between the two devices work, kernels of
 * `device` also increment a counter in the owner's memory. Then the test times copies to the owner:
 * directly, and through pinned memory.
 *
 * A file in the user's cache folder keeps the results (option cache). A result counts until the
 * machine boots again, or until the driver, the devices or the command line of the system's kernel
 * change. With the option peers=trust, Heddle relies on the driver's report instead of a test. With
 * peers=off, it never uses peer access. The option peer_timeout limits a test.
 *
 * A copy between two devices does not wait for the test. The first copy starts the test on a thread
 * of the library. Copies go through pinned memory until there is a verdict. If the verdict is
 * "usable", later copies go directly. With placement=inline, which starts no threads, the first
 * copy runs the test itself. These calls need the verdict and wait for it: hd_peer_check,
 * hd_peers_check, and a launch or a matrix product with a buffer of another device. If a program
 * needs its first copies to go directly, it calls hd_peer_check or hd_peers_check before them.
 *
 * Threads: any. Two threads that need the same pair wait for one test. If two processes need a
 * test, one runs the test, and the other waits for the results. The waiting process tests by itself
 * if no result arrives for the time of the option peer_timeout.
 * Blocking: a call that waits for a test usually waits for about a second. The test of a pair takes
 * at most the time of the option peer_timeout. Before the test, opening the devices may take up to
 * peer_timeout, too. Heddle tests both directions of a pair together. A test does not hold up
 * running or submitted work. hd_close stops a running test, which then gives no verdict. Calls that
 * wait for the test then fail with HANDLE.
 */
#ifndef HEDDLE_PEER_H
#define HEDDLE_PEER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* The result of the test of a pair. */
typedef enum hd_peer_verdict {
    HD_PEER_UNKNOWN = 0, /* not tested */
    HD_PEER_USABLE,      /* bytes arrive, no slower than through pinned memory */
    /* Bytes arrive, but copies through pinned memory are faster. Kernels use the owner's memory
     * directly, but hd_copy does not. */
    HD_PEER_SLOW,
    HD_PEER_REFUSED, /* the driver returned an error (`driver_code`), or reports no access */
    HD_PEER_CORRUPT, /* bytes did not arrive as the test sent them, or the test hung or crashed */
    /* The pair could not be tested, or something killed the test. Heddle does not use the pair's
     * peer access. */
    HD_PEER_INCONCLUSIVE
} hd_peer_verdict;

/* Returns the name of a verdict, such as "usable" or "slow"; "unknown" for other values. The string
 * is static. Cannot fail. */
HD_API const char *hd_peer_verdict_text(hd_peer_verdict verdict);

#define HD_PEER_REASON_BYTES 200 /* size of a reason in bytes, with the terminating zero */

/* The result of hd_peer_check: how `device` can use memory of `owner`. */
typedef struct hd_peer_info {
    size_t size; /* sizeof(hd_peer_info) */
    hd_peer_verdict verdict;
    /* The driver's code if it refused the pair or failed during the test; 0: none. */
    int driver_code;
    /* The test found that atomic operations on the owner's memory count right. */
    bool atomics;
    bool remembered; /* an earlier process found the result */
    /* speed of copies by `device` into the owner's memory; 0: not measured */
    double direct_bytes_per_s;
    double staged_bytes_per_s; /* speed of such copies through pinned memory */
    /* the reason for the verdict in a sentence; "" for HD_PEER_USABLE */
    char reason[HD_PEER_REASON_BYTES];
} hd_peer_info;

/* Describes how `device` can use memory of `owner`. Both are numbers of devices of the runtime. If
 * the verdict is not known, the call tests the pair and waits for the test. If `device` and `owner`
 * are the same device, the verdict is HD_PEER_USABLE.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. If the pair cannot be used or tested, that is a verdict
 * and no error. */
HD_API hd_status hd_peer_check(hd_runtime *runtime, int device, int owner, hd_peer_info *out);

/* A function that hd_peers_check calls after each ordered pair, on the thread that called
 * hd_peers_check. `done` of `total` pairs are done. The function may call anything but
 * hd_peers_check and hd_close. While the function runs, pairs that are not done yet count as
 * HD_PEER_UNKNOWN for its calls, and Heddle does not use them. */
typedef void (*hd_peer_progress)(void *context, int device, int owner, const hd_peer_info *info, int done, int total);

/* Flags of hd_peers_check. */
typedef enum hd_peers_flags {
    /* Test pairs with a known verdict, too. A pair in use stays in use unless the test finds it
     * corrupt. */
    HD_PEERS_AGAIN = 1
} hd_peers_flags;

/* Tests every ordered pair of the runtime's devices that has no known verdict, and waits for the
 * tests. `flags` is 0 or HD_PEERS_AGAIN. `progress` may be NULL. Errors: ARGUMENT, HANDLE,
 * HOST_MEMORY. */
HD_API hd_status hd_peers_check(hd_runtime *runtime, unsigned flags, hd_peer_progress progress, void *context);

HD_END_DECLS
#endif
