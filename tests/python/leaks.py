"""leaks.py - makes and drops objects in cycles, and compares the counts of memory and handles.

usage: leaks.py CYCLES
The first tenth of the cycles fills pools; after that, nothing may grow with the number of cycles.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import sys

import heddle
import numpy as np
from heddle import _lenders

ROOM_BLOCKS = 2000  # of Python's memory, for caches
ROOM_BYTES = 16 << 20  # of the process


async def wait(ticket):
    await ticket


def cycle(i, axpy, x):
    y = heddle.zeros(16)
    ticket = axpy(y=y, x=x, a=1, n=16, threads=16)
    view = y.reshape(4, 4).T[1:]
    if i % 10 == 0:
        with heddle.lane() as lane:
            axpy(y, x, 1, 16, threads=16)
            lane.ticket().wait(600)
        with heddle.claim(x, write=[y]):
            pass
        assert view.numpy()[0, 0] == 2
    if i % 10 == 1:
        pinned = heddle.zeros(16, kind="pinned")
        del pinned
        with contextlib.suppress(heddle.Error):
            axpy(y, x, 1, 16, threads=16, block=1 << 20)
    if i % 10 == 2 and x.runtime.placement != "process":
        assert np.from_dlpack(y)[0] == 1
        y.__dlpack__(max_version=(1, 0))
        node = [y]
        node.append(node)
    if i % 10 == 4 and x.runtime.placement != "process":
        loans = _lenders.lender("leaks")
        address = loans.lend(4000, 0)
        room = (ctypes.c_float * 1000).from_address(address)
        tensor = heddle.from_dlpack(np.ctypeslib.as_array(room)[10:])
        assert tensor.buffer.address == address
        del tensor
        loans.take_back(address, 0)
        with contextlib.suppress(heddle.Error):
            loans.lend(1 << 50, 0)
        assert loans.count == 0
    if i % 100 == 3:
        asyncio.run(wait(ticket))


def state(runtime):
    gc.collect()
    stats = [runtime.memory_stats(0), runtime.memory_stats()]
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    live = [s["live_count"] for s in stats]
    return {"live": live, "files": len(os.listdir("/proc/self/fd"))}, sys.getallocatedblocks(), resident


def main():
    cycles = int(sys.argv[1])
    runtime = heddle.current()
    axpy = heddle.builtin()["hd_axpy_f32"]
    x = heddle.array(np.ones(16), "f32")
    for i in range(cycles // 10):
        cycle(i, axpy, x)
    handles, blocks, resident = state(runtime)
    for i in range(cycles - cycles // 10):
        cycle(i, axpy, x)
    after, blocks_after, resident_after = state(runtime)
    print("%d cycles: %s, %+d blocks, %+d bytes" % (cycles, after, blocks_after - blocks, resident_after - resident))
    assert after == handles, (handles, after)
    assert blocks_after - blocks < ROOM_BLOCKS, (blocks, blocks_after)
    assert resident_after - resident < ROOM_BYTES, (resident, resident_after)


main()
