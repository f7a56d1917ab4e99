#!/usr/bin/env python3
"""foreign_torch.py - kernels of PyTorch and CuPy on their own streams, mixed with Heddle's launches on the same memory.

usage: foreign_torch.py BUILD PLACEMENT [GRAPHS [SEED]]

BUILD is a build folder of Heddle, with libheddle.so. PLACEMENT is thread or inline. Each graph makes its operations in
random order. Nothing synchronises them: claims on the streams put them in order. Each graph is compared with a model
on the CPU. PyTorch gets memory by its address, and as DLPack tensors that Heddle exports. Two of the buffers are
tensors of PyTorch: one by its address, one by DLPack.
Needs a GPU, PyTorch, CuPy and NumPy. Exit status: 0 if every graph was right.
"""
import ctypes
import os
import random
import sys

import cupy
import numpy
import torch

WORDS, BUFFERS, OPERATIONS = 1 << 16, 4, 40
READ, READ_WRITE, FOREVER = 1, 3, -1  # hd_access, HD_FOREVER
ARG_BUFFER, ARG_F32, ARG_U64, TYPE_F32 = 1, 10, 9, 11  # hd_arg_kind, hd_type


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("settings", ctypes.c_char_p)]


class Value(ctypes.Union):
    _fields_ = [("buffer", ctypes.c_void_p), ("u64", ctypes.c_uint64), ("f32", ctypes.c_float)]


class Arg(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("access", ctypes.c_uint32), ("value", Value), ("offset", ctypes.c_size_t),
                ("size", ctypes.c_size_t)]


class Dims(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("buffer", ctypes.c_void_p), ("offset", ctypes.c_size_t), ("type", ctypes.c_int), ("dims", ctypes.c_int),
                ("shape", ctypes.c_uint64 * 8), ("stride", ctypes.c_int64 * 8)]


build, placement = os.path.abspath(sys.argv[1]), sys.argv[2]
graphs = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
heddle = ctypes.CDLL(os.path.join(build, "libheddle.so"))
heddle.hd_message.restype = ctypes.c_char_p
heddle.hd_buffer_address.restype = ctypes.c_uint64
heddle.hd_buffer_address.argtypes = [ctypes.c_void_p]
pointer, size = ctypes.c_void_p, ctypes.c_size_t
CALLS = {
    "hd_open": [pointer, pointer],
    "hd_close": [pointer],
    "hd_lane_create": [pointer, ctypes.c_int, pointer],
    "hd_module_get_builtin": [pointer, pointer],
    "hd_kernel_get": [pointer, ctypes.c_char_p, pointer],
    "hd_alloc": [pointer, size, pointer],
    "hd_free": [pointer],
    "hd_write": [pointer, size, pointer, size],
    "hd_read": [pointer, size, pointer, size],
    "hd_launch": [pointer, pointer, Dims, Dims, size, pointer, size, pointer],
    "hd_claim_begin_stream": [pointer, ctypes.c_int, pointer, pointer, size, pointer, pointer],
    "hd_claim_end": [pointer, ctypes.c_int],
    "hd_tensor_make": [pointer, size, ctypes.c_int, ctypes.c_int, pointer, pointer],
    "hd_import": [pointer, ctypes.c_int, ctypes.c_uint64, size, pointer, pointer],
    "hd_dlpack_export_unversioned": [pointer, ctypes.c_int64, pointer, pointer],
    "hd_dlpack_import_unversioned": [pointer, pointer, ctypes.c_int64, pointer, pointer],
}
for name, arguments in CALLS.items():
    getattr(heddle, name).argtypes = arguments


def must(name, *arguments):
    status = getattr(heddle, name)(*arguments)
    if status != 0:
        sys.exit(f"foreign_torch: {name}: {status}: {heddle.hd_message().decode()}")


def made(name, *arguments):
    """Calls a function, and returns the result in its last argument."""
    out = pointer()
    must(name, *arguments, ctypes.byref(out))
    return out


def use(buffer, access):
    return Arg(ARG_BUFFER, access, Value(buffer=buffer.value), 0, 0)


def pair(y, x):
    return (Arg * 2)(use(y.buffer, READ_WRITE), use(x.buffer, READ))


class Numbers:
    """A buffer with its model, and all views that share its memory."""

    def __init__(self, buffer):
        self.buffer = buffer
        self.address = heddle.hd_buffer_address(buffer)
        self.model = numpy.zeros(WORDS, dtype=numpy.float32)
        self.__cuda_array_interface__ = {"shape": (WORDS,), "typestr": "<f4", "data": (self.address, False), "version": 2}
        self.torch = torch.as_tensor(self, device="cuda:0")
        self.cupy = cupy.asarray(self)
        if self.torch.data_ptr() != self.address or self.cupy.data.ptr != self.address:
            sys.exit("foreign_torch: a view of the buffer is a copy")


def imported():
    """Imports a tensor of PyTorch by its address. The tensor must outlive the buffer."""
    kept.append(torch.zeros(WORDS, device="cuda:0"))
    torch.cuda.synchronize()
    return made("hd_import", runtime, 0, kept[-1].data_ptr(), WORDS * 4, None)


def taken():
    """Takes a tensor from PyTorch by DLPack, ordered by the default stream. Heddle keeps it while the buffer lives."""
    capsule, tensor = torch.utils.dlpack.to_dlpack(torch.zeros(WORDS, device="cuda:0")), Tensor()
    must("hd_dlpack_import_unversioned", runtime, content_of(capsule, b"dltensor"), 1, None, ctypes.byref(tensor))
    rename(capsule, used)
    return pointer(tensor.buffer)


def by_launch(y, x, factor):
    """Launches with whole numbers that stay below 2^24."""
    arguments = (Arg * 4)(use(y.buffer, READ_WRITE), use(x.buffer, READ), Arg(ARG_F32, 0, Value(f32=factor), 0, 0),
                          Arg(ARG_U64, 0, Value(u64=WORDS), 0, 0))
    must("hd_launch", random.choice(lanes), axpy, Dims(WORDS // 256, 1, 1), Dims(256, 1, 1), 0, arguments, 4, None)
    y.model += numpy.float32(factor) * x.model


def by_torch(y, x, factor):
    stream = random.choice(torch_streams)
    claim = made("hd_claim_begin_stream", runtime, 0, stream.cuda_stream, pair(y, x), 2, None)
    with torch.cuda.stream(stream):
        y.torch.add_(x.torch, alpha=factor).remainder_(1024.0)
    must("hd_claim_end", claim, 0)
    y.model = numpy.remainder(y.model + numpy.float32(factor) * x.model, numpy.float32(1024))


def by_cupy(y, x, factor):
    stream = random.choice(cupy_streams)
    claim = made("hd_claim_begin_stream", runtime, 0, stream.ptr, pair(y, x), 2, None)
    with stream:
        combine((WORDS // 256,), (256,), (y.cupy, x.cupy, cupy.float32(factor)))
    must("hd_claim_end", claim, 0)
    y.model = numpy.remainder(y.model + numpy.float32(factor) * x.model, numpy.float32(1024))


def by_dlpack(y, x, factor):
    """Exports tensors for the stream. Their claims end behind PyTorch's kernels. DLPack's number 1 means stream 0."""
    stream = random.choice(torch_streams)
    given = []
    for numbers in (y, x):
        tensor = Tensor()
        must("hd_tensor_make", numbers.buffer, 0, TYPE_F32, 1, (ctypes.c_uint64 * 1)(WORDS), ctypes.byref(tensor))
        managed = made("hd_dlpack_export_unversioned", ctypes.byref(tensor), stream.cuda_stream or 1, None)
        given.append(torch.utils.dlpack.from_dlpack(capsule_of(managed, b"dltensor", None)))
    with torch.cuda.stream(stream):
        given[0].add_(given[1], alpha=factor).remainder_(1024.0)
    given.clear()
    y.model = numpy.remainder(y.model + numpy.float32(factor) * x.model, numpy.float32(1024))


def run_graph(graph):
    for numbers in everything:
        numbers.model = numpy.floor(numpy.random.rand(WORDS) * 100).astype(numpy.float32)
        must("hd_write", numbers.buffer, 0, numbers.model.ctypes.data, WORDS * 4)
    for _ in range(OPERATIONS):
        y, x = random.sample(everything, 2)
        kind = random.choice(kinds)
        if kind is by_launch and max(numpy.abs(y.model).max(), numpy.abs(x.model).max()) > 1 << 20:
            kind = by_cupy
        kind(y, x, random.choice([-2.0, -1.0, 1.0, 2.0]))
        done[kind.__name__] = done.get(kind.__name__, 0) + 1
    found = numpy.empty(WORDS, dtype=numpy.float32)
    for i, numbers in enumerate(everything):
        must("hd_read", numbers.buffer, 0, found.ctypes.data, WORDS * 4)
        wrong = numpy.flatnonzero(found != numbers.model)
        if wrong.size > 0:
            at = int(wrong[0])
            print(f"foreign_torch: graph {graph}: buffer {i}, number {at} is {found[at]}, not {numbers.model[at]}")
            return False
    return True


random.seed(seed)
numpy.random.seed(seed)
capsule_of = ctypes.pythonapi.PyCapsule_New
capsule_of.restype, capsule_of.argtypes = ctypes.py_object, [pointer, ctypes.c_char_p, pointer]
content_of, rename, used, kept = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName, b"used_dltensor", []
content_of.restype, content_of.argtypes = pointer, [ctypes.py_object, ctypes.c_char_p]
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
settings = f"driver=nvidia placement={placement} transfer_timeout=60000 submit_timeout=60000".encode()
torch.cuda.set_device(0)
torch.ones(1, device="cuda:0").sum().item()
options = Options(ctypes.sizeof(Options), settings)
runtime = made("hd_open", ctypes.byref(options))
lanes = [made("hd_lane_create", runtime, 0) for _ in range(2)]
axpy = made("hd_kernel_get", made("hd_module_get_builtin", runtime), b"hd_axpy_f32")
everything = [Numbers(made("hd_alloc", lanes[0], WORDS * 4)) for _ in range(BUFFERS)]
kinds = [by_launch, by_torch, by_cupy, by_dlpack]
torch_streams = [torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.default_stream()]
cupy_streams = [cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.null]
combine = cupy.RawKernel(r"""
extern "C" __global__ void combine(float *y, const float *x, float factor)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float sum = fmodf(y[i] + factor * x[i], 1024.0f);
    y[i] = sum < 0 ? sum + 1024.0f : sum;
}
""", "combine")
everything += [Numbers(imported()), Numbers(taken())]

done, graph, good = {}, 0, True
while good and graph < graphs:
    good = run_graph(graph)
    graph += 1
print(f"foreign_torch: placement {placement}, seed {seed}: {graph} graphs, {'all as the model' if good else 'the last one WRONG'}; "
      + ", ".join(f"{count} {name}" for name, count in sorted(done.items())))
torch.cuda.synchronize()
for numbers in everything:
    must("hd_free", numbers.buffer)
must("hd_close", runtime)
sys.exit(0 if good else 1)
