#!/usr/bin/env python3
"""cupy_alloc.py - measures CuPy's memory pool with the workloads of this folder and with recorded logs.

usage: bench/peers/cupy_alloc.py [--quick] [LOG...]

The pool is a cupy.cuda.MemoryPool of its own, which asks the driver as it does by default. It is called from Python,
whose own cost is in the figures, and whose threads take turns. Prints one JSON line per workload; harness.py says what
the fields mean.
Exit status 77: no CuPy here, or no GPU.
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
        # blocks belong to the stream that is current when they are taken
        if stream != self.current:
            self.use(stream)
        return self.pool.malloc(size)

    @staticmethod
    def free(block):
        """Nothing: a block is freed when its last reference, which the caller had, is gone."""

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
        # the pool gives nothing back while the driver has memory, so what it has is the most it had
        return self.pool.total_bytes()


def main():
    options = harness.command_line(__doc__)
    if importlib.util.find_spec("cupy") is None:
        harness.skip("cupy_alloc.py", "Python has no CuPy here")
    try:
        import cupy

        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # an installation without driver or runtime fails in several ways
        harness.skip("cupy_alloc.py", f"CuPy does not work here: {' '.join(str(error).split())[:200]}")
    if devices == 0:
        harness.skip("cupy_alloc.py", "CuPy sees no GPU here")
    return harness.measure(CupyPeer(cupy), options, python=True)


if __name__ == "__main__":
    sys.exit(main())
