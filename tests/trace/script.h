/* script.h - trace files made from a readable script, for the tests of `heddle trace`.
 *
 * Each line of a script is a statement. Times are microseconds, NAME=VALUE pairs may follow in any
 * order. Lanes are DEVICE.LANE, operations DEVICE.LANE:POSITION. A # begins a comment.
 *
 *    trace devices=2 detail=full run=1
 *                        at=WHEN: another runtime continues here
 *                        process=NUMBER: of another process
 *    device 0 name=first
 *    lane 0.1 kind=program            program, in, out, on, peer, claim, other
 *    name kernel 1 axpy               kernel, label, range, thread, option
 *    clock 0 at=0 own=500
 *    op 0.1:1 launch at=10 kernel=1 issue=12 span=15-40 done=41 wait=1.1:3 label=7
 *             bytes=100 way=1 src=255 dst=0 thread=5
 *                        waits=N: the number that the SUBMIT states; default: all that follow
 *                        issue=BEGIN-RETURNED: without the latter it took 1 us
 *                        refused=1: the driver did not get it
 *                        chunk=1: a copy to or from a pinned chunk
 *                        arrives=2: this long after the call's return, on an idle device
 *    span 0.1:3 from=0 at=9 span=5-8  of several operations: behind `from` up to 3
 *                        clock=1: begins by the clock; 2: ends by it; 3: both
 *                        written=WHEN: the engine read its times; default: 1 us after the end
 *    behind 0.1:2 at=12 other=1.1:9   the next end after 2 waits for 9 of the other lane
 *    transfer 0.2:4 at=1 returned=3 way=7 bytes=5 src=255 dst=0
 *    alloc 1 at=5 took=2 bytes=100 label=7 device=0 rungs=2
 *    relabel 1 at=7 label=8 bytes=100 device=0
 *    free 1 at=9 device=0 label=8
 *    pause wait at=1-5 lane=0.1 position=4 device=0
 *                        room, wait, memory, map, code, chunk, callback
 *    memory 0 at=1 use=10 held=20 limit=30
 *    loss 0 at=5 message
 *    restart 0 at=5-9
 *    activity kernel at=1-5 name=3 stream=7 bytes=0 device=0   kernel, copy, fill
 *    rank 1 of=3 at=0 run=7 offset=100 within=2   the offset to rank 0's clock
 *    message recv at=POSTED-ENDED ready=WHEN peer=0 tag=3 comm=1 order=5 bytes=8 op=0.5:2
 *                        send, recv, bcast, reduce, allreduce, allgather, alltoall, barrier
 *    push 3 at=1 / pop at=4
 *    interval 3 at=1-9 from=5 thread=6   begins in thread 5, ends in 6
 *    dropped 7 kind=1 at=5 device=0   partial=N records
 *                        kind: 0 of a thread (the default), 1 of an engine, 2 of the file
 *    end at=99
 *
 * Threads: one. Locks: none. A wrong statement ends the program.
 */
#ifndef TEST_TRACE_SCRIPT_H
#define TEST_TRACE_SCRIPT_H

#include <stddef.h>
#include "record/format.h"

#define SCRIPT_ZERO INT64_C(5000000000) /* the clock at time 0 */

typedef struct script {
    hdi_record *records;
    size_t n, room;
    uint64_t ends[32 * HDI_RECORD_LANES]; /* per lane, the end of its last operation */
} script;

void script_begin(script *s);
void script_run(script *s, const char *text);
/* zeroed except type and time; valid until the next call */
hdi_record *script_add(script *s, int type, int64_t us);
void script_release(script *s);

#define SCRIPT_LANE(device, lane) ((uint32_t)(device)*HDI_RECORD_LANES + (uint32_t)(lane))
static inline int64_t script_ns(double us)
{
    return (int64_t)(us * 1000);
}

#endif
