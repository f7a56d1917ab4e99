#!/usr/bin/env python3
"""cupy_alloc.py - measures CuPy's memory pool with the workloads of this folder and with recorded logs.

usage: bench/peers/cupy_alloc.py [--quick] [LOG...]

The script makes its own cupy.cuda.MemoryPool, which gets memory from the driver by CuPy's default way. Python calls
the pool, so the figures include the cost of Python, and threads take turns. Prints one JSON line per workload.
harness.py describes the fields.
Exit status: 77 if CuPy is not installed or no GPU is available.
"""

import importlib.util
import sys

import harness


class CupyPeer(harness.PythonPeer):
    name = "cupy"

    def __init__(self, cupy):
        self.cupy = cupy
        self.streams = [cupy.cuda.Stream.null]
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
        self.facts = {"version": cupy.__version__, "gpu": name.decode() if isinstance(name, bytes) else name}
        self.current = 0
        self.clear()

    def allocate(self, size, stream):
        # a block belongs to the stream that is current at its allocation
        if stream != self.current:
            self.use(stream)
        return self.pool.malloc(size)

    @staticmethod
    def free(block):
        """Does nothing: the pool frees a block when the caller drops the last reference to it."""

    def use(self, stream):
        while len(self.streams) <= stream:
            self.streams.append(self.cupy.cuda.Stream(non_blocking=True))
        self.streams[stream].use()
        self.current = stream

    def pairs(self, size, repeats, threads=1, timed=False):
        if self.current != 0:
            self.use(0)
        return super().pairs(size, repeats, threads, timed)

    def clear(self):
        self.use(0)
        if hasattr(self, "pool"):
            self.pool.free_all_blocks()
        self.pool = self.cupy.cuda.MemoryPool()

    def peak_reserved(self):
        # the pool gives no memory back while the driver has free memory, so its size is its peak
        return self.pool.total_bytes()


def main():
    options = harness.command_line(__doc__)
    if importlib.util.find_spec("cupy") is None:
        harness.skip("cupy_alloc.py", "Python has no CuPy here")
    try:
        import cupy

        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # without driver or runtime, CuPy raises one of several exceptions
        harness.skip("cupy_alloc.py", f"CuPy does not work here: {' '.join(str(error).split())[:200]}")
    if devices == 0:
        harness.skip("cupy_alloc.py", "CuPy sees no GPU here")
    return harness.measure(CupyPeer(cupy), options, python=True)


if __name__ == "__main__":
    sys.exit(main())
