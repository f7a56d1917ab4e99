/* heddle/peer.h - tests of peer access: which device can use the memory of which other device
 * directly.
 *
 * A driver can report peer access that does not work. Writes can get lost, can be visible only to
 * the device that writes, or can arrive more slowly than through pinned memory. Heddle therefore
 * tests an ordered pair of devices when the program first needs peer access for this pair. In the
 * pair (device, owner), `device` uses memory of `owner`. The result of the test is a verdict. The
 * test runs in another process, so that a hang or a fault of the test does not harm the program.
 *
 * In the test, `device` writes to the owner's memory and reads from this memory, in several sizes,
 * by copy engine and by kernel. The device on which the bytes arrive checks the bytes. If the
 * driver reports that atomic operations between the two devices work, kernels of `device` also
 * increment a counter in the owner's memory. Then the test measures the time of copies to the
 * owner, directly and through pinned memory.
 *
 * Heddle keeps the results in a file in the user's cache folder (option `cache`). A result is valid
 * until the machine boots again, or until the driver, the devices or the command line of the Linux
 * kernel change. With the option peers=trust, Heddle relies on the driver's report instead of a
 * test. With peers=off, Heddle never uses peer access.
 *
 * A copy between two devices does not wait for the test. The first copy starts the test on a thread
 * of the library. Copies go through pinned memory until the verdict is known. If the verdict is
 * "usable", later copies go directly. With placement=inline, the first copy runs the test itself,
 * because the library starts no thread for it. Other calls wait for the verdict: hd_peer_check,
 * hd_peers_check, and a launch or a matrix product with a buffer of another device. If even the
 * first copies must go directly, call hd_peer_check or hd_peers_check first.
 *
 * Threads: any. If two threads need the verdict of the same pair, both wait for one test. If two
 * processes need a test, the first one runs the test, and the second one waits for the results. If
 * no result arrives for the time of the option peer_timeout, the second process runs the test
 * itself.
 * Blocking: a call that waits for a test usually waits for about a second. The opening of the
 * devices may take as long as the option peer_timeout states. The test of each pair may then take
 * this long, too. Heddle tests both directions of a pair together. A test does not hold up running
 * or submitted work. hd_close stops a running test, which then gives no verdict; calls that wait
 * for the test fail with HANDLE.
 */
#ifndef HEDDLE_PEER_H
#define HEDDLE_PEER_H

#include <heddle/runtime.h>

HD_BEGIN_DECLS

/* The result of the test of a pair. */
typedef enum hd_peer_verdict {
    HD_PEER_UNKNOWN = 0, /* not tested */
    HD_PEER_USABLE,      /* bytes arrive, and HD_PEER_SLOW does not apply */
    /* Bytes arrive, but copies through pinned memory are over 25 % faster (on host devices, over 8
     * times as fast). Kernels use the owner's memory directly, but hd_copy does not. */
    HD_PEER_SLOW,
    HD_PEER_REFUSED, /* the driver returned an error (`driver_code`), or reports no access */
    HD_PEER_CORRUPT, /* bytes did not arrive as the test sent them, or the test hung or crashed */
    /* Heddle could not test the pair, or something killed the test. Heddle does not use peer access
     * between the two devices. */
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
    /* In the test, atomic operations on the owner's memory gave right results. */
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
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY. If the pair cannot be used or tested, the call returns
 * HD_OK and a verdict. */
HD_API hd_status hd_peer_check(hd_runtime *runtime, int device, int owner, hd_peer_info *out);

/* A function that hd_peers_check calls after each ordered pair, on the thread that called
 * hd_peers_check. `done` of `total` pairs are done. The function may call everything except
 * hd_peers_check and hd_close. In the function, hd_peer_check tests nothing: if a pair has no
 * verdict yet, the call returns HD_PEER_UNKNOWN. Until the pair has a verdict, Heddle does not
 * begin to use peer access for it. */
typedef void (*hd_peer_progress)(void *context, int device, int owner, const hd_peer_info *info, int done, int total);

/* Flags of hd_peers_check. */
typedef enum hd_peers_flags {
    /* Also test pairs with a known verdict. If Heddle already uses peer access for a pair, this use
     * goes on unless the test finds the pair corrupt. */
    HD_PEERS_AGAIN = 1
} hd_peers_flags;

/* Tests every ordered pair of the runtime's devices that has no known verdict, and waits for the
 * tests. `flags` is 0 or HD_PEERS_AGAIN. `progress` may be NULL. Errors: ARGUMENT, HANDLE,
 * HOST_MEMORY. */
HD_API hd_status hd_peers_check(hd_runtime *runtime, unsigned flags, hd_peer_progress progress, void *context);

HD_END_DECLS
#endif
