"""heddle_arrays.py - runs tests of mpi4py with arrays in memory that Heddle owns.

usage: mpiexec -n RANKS python3 heddle_arrays.py LIBRARY TESTS MODULE...
  LIBRARY   libheddle.so; HEDDLE_DRIVER and HEDDLE_PLACEMENT as for any program
  TESTS     the folder `test` of mpi4py's source
  MODULE    a test module there, such as test_p2p_buf

mpi4py's tests try every kind of array that their module arrayimpl lists. This program replaces the list by two kinds:
memory of a host device, which MPI gets as a DLPack tensor, and pinned memory, which MPI gets as a buffer of Python.
"""

import ctypes as c
import sys
import unittest
import weakref

sys.path.insert(0, sys.argv[2])
import arrayimpl  # noqa: E402
import numpy as np  # noqa: E402

READ_WRITE = 3
UNORDERED = -1  # the tests order their uses of the memory themselves
VERSIONED = b"dltensor_versioned"

heddle = c.CDLL(sys.argv[1])
heddle.hd_message.restype = c.c_char_p
heddle.hd_buffer_address.restype = c.c_uint64
python = c.pythonapi
python.PyCapsule_New.restype = c.py_object
python.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
python.PyCapsule_GetPointer.restype = c.c_void_p
python.PyCapsule_GetPointer.argtypes = [c.c_void_p, c.c_char_p]
TYPES = {  # NumPy's name of each type, and its number in hd_type
    "int8": 1, "uint8": 2, "int16": 3, "uint16": 4, "int32": 5, "uint32": 6, "int64": 7, "uint64": 8,
    "float32": 11, "float64": 12, "complex64": 13, "complex128": 14,
}  # fmt: skip
counts = {"device": 0, "pinned": 0}


class Tensor(c.Structure):
    _fields_ = [("buffer", c.c_void_p), ("offset", c.c_size_t), ("type", c.c_int), ("dims", c.c_int),
                ("shape", c.c_uint64 * 8), ("stride", c.c_int64 * 8)]  # fmt: skip


def call(name, *arguments):
    """Calls a function of Heddle that returns a status, and fails with its message."""
    if getattr(heddle, name)(*arguments) != 0:
        raise RuntimeError(heddle.hd_message().decode())


@c.PYFUNCTYPE(None, c.c_void_p)
def capsule_end(capsule):
    """mpi4py keeps the capsule while MPI uses the memory. Then the deleter, behind version and context, ends the hold."""
    managed = python.PyCapsule_GetPointer(capsule, VERSIONED)
    c.CFUNCTYPE(None, c.c_void_p)(c.c_void_p.from_address(managed + 16).value)(managed)


runtime, lane = c.c_void_p(), c.c_void_p()
call("hd_open", None, c.byref(runtime))
call("hd_lane_get_default", runtime, 0, c.byref(lane))


class HeddleArray(arrayimpl.ArrayNumPy):
    """An array of NumPy whose elements are moved to a buffer of Heddle."""

    TypeMap = {t: arrayimpl.ArrayNumPy.TypeMap[t] for t in "bhilqBHILQfdFD" if t in arrayimpl.ArrayNumPy.TypeMap}

    def __init__(self, arg, typecode, shape=None):
        super().__init__(arg, typecode, shape)
        values = np.ascontiguousarray(self.array)
        size = max(values.nbytes, 1)
        self.buffer = c.c_void_p()
        self.allocate(size)
        call("hd_write", self.buffer, c.c_size_t(0), c.c_void_p(values.ctypes.data), c.c_size_t(values.nbytes))
        call("hd_buffer_wait", self.buffer, READ_WRITE, c.c_int64(-1))  # MPI and NumPy use the memory without Heddle's order
        memory = (c.c_char * size).from_address(self.address_in_buffer())
        weakref.finalize(memory, heddle.hd_free, self.buffer)  # views of the array keep the memory alive
        self.array = np.frombuffer(memory, self.array.dtype, values.size).reshape(self.array.shape)
        counts[self.backend] += 1


class DeviceArray(HeddleArray):
    """Memory of a host device, with the methods of Python's DLPack protocol."""

    backend = "device"

    def allocate(self, size):
        call("hd_alloc", lane, c.c_size_t(size), c.byref(self.buffer))

    def address_in_buffer(self):
        return heddle.hd_buffer_address(self.buffer)

    def tensor(self):
        out = Tensor()
        shape = (c.c_uint64 * 1)(self.array.size)
        call("hd_tensor_make", self.buffer, c.c_size_t(0), TYPES[self.array.dtype.name], 1, shape, c.byref(out))
        return out

    def as_raw(self):
        return self

    def __dlpack_device__(self):
        kind, number, tensor = c.c_int32(), c.c_int32(), self.tensor()
        call("hd_dlpack_get_device", c.byref(tensor), c.c_int64(UNORDERED), c.byref(kind), c.byref(number))
        return kind.value, number.value

    def __dlpack__(self, *, max_version, **_):
        tensor, managed = self.tensor(), c.c_void_p()
        call("hd_dlpack_export", c.byref(tensor), c.c_int64(UNORDERED), None, c.byref(managed))
        return python.PyCapsule_New(managed.value, VERSIONED, capsule_end)


class PinnedArray(HeddleArray):
    """Pinned memory, mapped for as long as the array exists."""

    backend = "pinned"

    def allocate(self, size):
        call("hd_alloc_host", runtime, c.c_size_t(size), c.byref(self.buffer))

    def address_in_buffer(self):
        pointer = c.c_void_p()
        call("hd_map", self.buffer, READ_WRITE, c.byref(pointer))
        return pointer.value


arrayimpl.ArrayBackends[:] = [DeviceArray, PinnedArray]
result = unittest.main(module=None, argv=["heddle_arrays", *sys.argv[3:]], exit=False).result
print("arrays:", counts["device"], "of device memory,", counts["pinned"], "of pinned memory")
sys.exit(not result.wasSuccessful() or result.testsRun == 0 or 0 in counts.values())
