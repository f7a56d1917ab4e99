#!/usr/bin/env python3
"""tensor_torch.py - measures PyTorch's permute().contiguous() and matmul on the first visible GPU.

usage: bench/peers/tensor_torch.py [--quick] [ROW...]

TF32 is off, and f16 products are summed in f32. CUDA events measure the times. Prints one JSON line per row;
tensor_harness.py describes rows and fields.
Exit status: 77 if PyTorch is not installed or no GPU is available.
"""

import importlib.util
import sys

import tensor_harness as harness


class TorchPeer:
    name = "torch"

    def __init__(self, torch):
        self.torch = torch
        self.types = {
            "u8": torch.uint8,
            "f16": torch.float16,
            "f32": torch.float32,
            "f64": torch.float64,
            "c128": torch.complex128,
        }
        self.facts = {"version": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def tensor(self, element, shape):
        torch = self.torch
        out = torch.empty(shape, dtype=self.types[element], device="cuda")
        # Whole numbers of 11 bits, which every type but u8 holds. They are made in place, because the largest tensors
        # leave no room for another one.
        numbers = torch.view_as_real(out) if out.is_complex() else out
        numbers.random_(0, 256 if element == "u8" else 2048)
        return out

    def permuter(self, source, order):
        target = self.torch.empty([source.shape[d] for d in order], dtype=source.dtype, device="cuda")
        view = source.permute(order)
        return lambda: target.copy_(view)  # the copy that contiguous() makes, into existing memory

    @staticmethod
    def copier(source):
        target = source.new_empty(source.shape)
        return lambda: target.copy_(source)

    def multiplier(self, element, edge):
        a, b = (self.torch.randn(edge, edge, device="cuda").to(self.types[element]) for _ in range(2))
        c = self.torch.empty_like(a)
        return lambda: self.torch.matmul(a, b, out=c)

    def right(self, source, order):
        """Compares the first and last elements of every dimension, and random elements."""
        torch = self.torch
        copy = source.permute(order).contiguous()
        if not copy.is_contiguous() or list(copy.shape) != [source.shape[d] for d in order]:
            return False
        at = [torch.randint(0, n, (100000,), device="cuda") for n in source.shape]
        for index, n in zip(at, source.shape):
            index[0], index[1] = 0, n - 1
        return bool(torch.equal(source[tuple(at)], copy[tuple(at[d] for d in order)]))

    def time(self, work, repeats):
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for i in range(repeats):
            work[i % len(work)]()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def release(self):
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()


def main():
    options = harness.command_line(__doc__)
    if importlib.util.find_spec("torch") is None:
        harness.skip("tensor_torch.py", "Python has no PyTorch here")
    import torch

    if not torch.cuda.is_available():
        harness.skip("tensor_torch.py", "PyTorch sees no GPU here")
    return harness.measure(TorchPeer(torch), options)


if __name__ == "__main__":
    sys.exit(main())
