#!/usr/bin/env python3
"""tensor_cupy.py - measures CuPy's copies of transposed arrays and its matmul on the first visible GPU.

usage: bench/peers/tensor_cupy.py [--quick] [ROW...]

CUDA events measure the times. Prints one JSON line per row; tensor_harness.py describes rows and fields.
Exit status: 77 if CuPy is not installed or no GPU is available.
"""

import importlib.util
import sys

import tensor_harness as harness


class CupyPeer:
    name = "cupy"

    def __init__(self, cupy):
        self.cupy = cupy
        self.types = {
            "u8": cupy.uint8,
            "f16": cupy.float16,
            "f32": cupy.float32,
            "f64": cupy.float64,
            "c128": cupy.complex128,
        }
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
        self.facts = {"version": cupy.__version__, "gpu": name.decode() if isinstance(name, bytes) else name}

    def tensor(self, element, shape):
        out = self.cupy.empty(shape, dtype=self.types[element])
        flat = out.reshape(-1)
        step = 1 << 26
        for first in range(0, flat.size, step):  # in parts, because the numbers first have 64 bits
            part = flat[first : first + step]
            part[...] = (self.cupy.arange(first, first + part.size) * 2654435761 >> 7) % (256 if element == "u8" else 2048)
        return out

    def permuter(self, source, order):
        view = source.transpose(order)
        target = self.cupy.empty(view.shape, dtype=source.dtype)
        return lambda: self.cupy.copyto(target, view)

    def copier(self, source):
        target = self.cupy.empty_like(source)
        return lambda: target.data.copy_from_device_async(source.data, source.nbytes, self.cupy.cuda.Stream.null)

    def multiplier(self, element, edge):
        a, b = (self.cupy.random.standard_normal((edge, edge), dtype=self.cupy.float32) for _ in range(2))
        a, b = a.astype(self.types[element]), b.astype(self.types[element])
        c = self.cupy.empty_like(a)
        return lambda: self.cupy.matmul(a, b, out=c)

    def right(self, source, order):
        copy = self.cupy.ascontiguousarray(source.transpose(order))
        at = [self.cupy.random.randint(0, n, 100000) for n in source.shape]
        return bool((source[tuple(at)] == copy[tuple(at[d] for d in order)]).all())

    def time(self, work, repeats):
        cuda = self.cupy.cuda
        begin, end = cuda.Event(), cuda.Event()
        cuda.Stream.null.synchronize()
        begin.record()
        for i in range(repeats):
            work[i % len(work)]()
        end.record()
        end.synchronize()
        return cuda.get_elapsed_time(begin, end)

    def release(self):
        self.cupy.cuda.Stream.null.synchronize()
        self.cupy.get_default_memory_pool().free_all_blocks()


def main():
    options = harness.command_line(__doc__)
    if importlib.util.find_spec("cupy") is None:
        harness.skip("tensor_cupy.py", "Python has no CuPy here")
    try:
        import cupy

        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # without driver or runtime, CuPy raises one of several exceptions
        harness.skip("tensor_cupy.py", f"CuPy does not work here: {' '.join(str(error).split())[:200]}")
    if devices == 0:
        harness.skip("tensor_cupy.py", "CuPy sees no GPU here")
    return harness.measure(CupyPeer(cupy), options)


if __name__ == "__main__":
    sys.exit(main())
