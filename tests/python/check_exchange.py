"""check_exchange.py - DLPack with NumPy as consumer and producer, and the CUDA Array Interface."""

import ctypes
import gc
import sys
import time
import unittest
import weakref

import heddle
import numpy as np
from heddle import dlpack
from heddle._library import lib

TYPES = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "c64", "c128"]
VERSIONED = tuple(int(x) for x in np.__version__.split(".")[:2]) >= (2, 1)
ON_CPU = heddle.current().driver == "host" and heddle.current().placement != "process"
KINDS = ["pinned", "unified"] + ["device"] * ON_CPU


def pages(array):
    """Copies the elements to pages that hold nothing else."""
    room = np.empty(array.nbytes + 8192, np.uint8)
    start = -room.ctypes.data % 4096
    out = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def await_references(array, wanted):
    """Waits until a thread of Heddle has called NumPy's deleter, which needs the interpreter's lock."""
    while sys.getrefcount(array) - 1 != wanted:  # one less for the parameter
        time.sleep(0.001)


class ToNumpy(unittest.TestCase):
    def test_all_types_in_place(self):
        for kind in KINDS:
            for name in TYPES:
                t = heddle.zeros((3, 4), name, kind=kind)
                t[1] = 1
                dtype = t.numpy().dtype
                got = np.from_dlpack(t[1:].T)
                self.assertEqual(got.tolist(), [[1, 0]] * 4)
                self.assertEqual(got.dtype, dtype)
                del got

    def test_order(self):
        t = heddle.zeros(100, "u32", kind="pinned")
        t.buffer.fill(5)
        got = np.from_dlpack(t)
        self.assertTrue((got == 5).all())
        ticket = t.buffer.fill(6)
        part = got[10:20]
        del got
        with self.assertRaises(heddle.Error):
            ticket.wait(0.01)
        self.assertTrue((part == 5).all())
        del part
        gc.collect()
        ticket.wait(60)

    def test_writes(self):
        t = heddle.zeros(4, kind="pinned")
        got = np.from_dlpack(t)
        if got.flags.writeable:
            got[:] = 3
            del got
            self.assertEqual(t.numpy().tolist(), [3] * 4)
        if VERSIONED:
            self.assertFalse(np.from_dlpack(t[:1].broadcast_to(4)).flags.writeable)

    def test_untaken_capsules(self):
        """A capsule that nobody takes ends its claim, even while an exception is on its way."""
        t = heddle.zeros(4, kind="pinned")
        for version in (None, (1, 0)):
            capsule = t.__dlpack__(max_version=version)
            self.assertIn("dltensor_versioned" if version else '"dltensor"', repr(capsule))
            ticket = t.buffer.fill(1)
            self.assertFalse(ticket.done)
            del capsule
            ticket.wait(60)
        bits = heddle.zeros(4, "u16", kind="pinned").view("bf16")
        for _ in range(3):
            with self.assertRaises((RuntimeError, BufferError, TypeError)) as caught:
                np.from_dlpack(bits)
            self.assertNotIsInstance(caught.exception, SystemError)
        bits.buffer.fill(0).wait(60)

    def test_what_the_consumer_asks_for(self):
        t = heddle.array([1, 2, 3], "f32", kind="pinned")
        device = t.__dlpack_device__()
        for asked in (
            {"stream": None, "max_version": (1, 3), "dl_device": device, "copy": False},
            {"max_version": (2, 0), "copy": True},
            {"stream": -1},
        ):
            t.__dlpack__(**asked)  # nobody takes the capsule
            t.buffer.fill(0).wait(60)
        for refused in ({"stream": 1}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError):
                t.__dlpack__(**refused)
        fixed = t[:1].broadcast_to(3)
        with self.assertRaises(BufferError):
            fixed.__dlpack__()

    def test_a_copy_is_another_tensor(self):
        t = heddle.zeros(4, kind="pinned")
        capsule = t.__dlpack__(max_version=(1, 0), copy=True)
        t.buffer.fill(1).wait(60)
        del capsule

    def test_streams(self):
        for cuda, given, wanted in (
            (False, None, 0),
            (False, -1, -1),
            (True, None, 1),
            (True, 2, 2),
            (True, 1 << 40, 1 << 40),
        ):
            self.assertEqual(dlpack._stream(given, cuda), wanted)
        with self.assertRaises(BufferError):
            dlpack._stream(0, True)


class FromNumpy(unittest.TestCase):
    @unittest.skipUnless(ON_CPU, "the driver's process is another one")
    def test_all_types_in_place(self):
        for name in TYPES:
            array = pages(np.arange(12).reshape(3, 4).astype(heddle.zeros(1, name).numpy().dtype))
            before = sys.getrefcount(array)
            t = heddle.from_dlpack(array[:, ::2], label="array")
            self.assertEqual((t.dtype.name.lower(), t.shape, t.device), (name, (3, 2), None))
            np.testing.assert_array_equal(t.numpy(), array[:, ::2])
            t[0] = 1
            t.buffer.wait(heddle.Access.READ_WRITE, 60)
            self.assertEqual(array[0, ::2].tolist(), [1, 1])
            del t
            await_references(array, before)

    @unittest.skipUnless(ON_CPU, "the driver's process is another one")
    def test_kernels_write_in_place(self):
        array = pages(np.zeros(1000, np.float32))
        before = sys.getrefcount(array)
        y, x = heddle.from_dlpack(array), heddle.array(np.ones(1000), "f32")
        heddle.builtin()["hd_axpy_f32"](y, x, 3, 1000, threads=1000)
        del y  # the array lives until the kernel is done
        await_references(array, before)
        self.assertTrue((array == 3).all())

    @unittest.skipUnless(ON_CPU and VERSIONED, "needs NumPy 2.1")
    def test_read_only(self):
        array = pages(np.arange(10, dtype=np.int32))
        array.flags.writeable = False
        t = heddle.from_dlpack(array)
        self.assertTrue(t.readonly and t[1:].T.readonly)
        np.testing.assert_array_equal(t.numpy(), array)
        for write in (
            lambda: t.write(0),
            lambda: heddle.copy(t, heddle.zeros(10, "i32")),
            lambda: heddle.claim(write=[t]),
        ):
            with self.assertRaises(ValueError):
                write()
        self.assertFalse(np.from_dlpack(t).flags.writeable)

    def test_refusals(self):
        before = heddle.current().memory_stats()["live_count"]
        array = np.zeros(4)
        count = sys.getrefcount(array)
        with self.assertRaises(ValueError):
            heddle.from_dlpack(array, stream=1)
        with self.assertRaises(AttributeError):
            heddle.from_dlpack([1, 2])
        if not ON_CPU:
            with self.assertRaises(heddle.Error):
                heddle.from_dlpack(array)
        self.assertEqual(sys.getrefcount(array), count)
        self.assertEqual(heddle.current().memory_stats()["live_count"], before)
        t = heddle.zeros(1)
        self.assertIs(heddle.from_dlpack(t), t)

    @unittest.skipUnless(ON_CPU, "the driver's process is another one")
    def test_older_producers(self):
        class Older:
            def __init__(self, array):
                self.array = array

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

        array = pages(np.arange(5.0))
        np.testing.assert_array_equal(heddle.from_dlpack(Older(array)).numpy(), array)


class CudaArray:
    """An array that only has the CUDA Array Interface, as those of Numba."""

    def __init__(self, array, **facts):
        shown = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": shown["shape"], "typestr": shown["typestr"], "data": shown["data"], "strides": shown["strides"],
            "version": 3, "stream": None, **facts,
        }  # fmt: skip


@unittest.skipUnless(ON_CPU, "the memory of this driver has no address here")
class FromCudaArrays(unittest.TestCase):
    def setUp(self):
        def entry(name, *types):
            out = ctypes.c_void_p()
            self.assertEqual(lib.hd_driver_entry(b"host", name, ctypes.byref(out)), 0)
            return ctypes.CFUNCTYPE(ctypes.c_int, *types)(out.value)

        context, self.memory = ctypes.c_void_p(), ctypes.c_uint64()
        retain = entry(b"cuDevicePrimaryCtxRetain", ctypes.c_void_p, ctypes.c_int)
        self.assertEqual(retain(ctypes.byref(context), 0), 0)
        self.assertEqual(entry(b"cuCtxSetCurrent", ctypes.c_void_p)(context), 0)
        allocate = entry(b"cuMemAlloc", ctypes.c_void_p, ctypes.c_size_t)
        self.assertEqual(allocate(ctypes.byref(self.memory), 4096), 0)
        self.free = entry(b"cuMemFree", ctypes.c_uint64)

    def tearDown(self):
        self.assertEqual(self.free(self.memory), 0)

    def test_all_types_in_place(self):
        room = (ctypes.c_ubyte * 4096).from_address(self.memory.value)
        for name in TYPES:
            dtype = heddle.zeros(1, name).numpy().dtype
            array = np.frombuffer(room, dtype, 48).reshape(6, 8)
            array[:] = np.arange(48).reshape(6, 8)
            for part in (array, array[::-1, 1::3], array[2:3, 3].reshape(())):
                given = CudaArray(part)
                known = weakref.ref(given)
                tensor = heddle.from_dlpack(given)
                del given
                self.assertEqual((tensor.dtype.name.lower(), tensor.device, tensor.readonly), (name, 0, False))
                np.testing.assert_array_equal(tensor.numpy(), part)
                self.assertIsNotNone(known())
                del tensor
                while known() is not None:  # until a thread of Heddle has called the deleter
                    time.sleep(0.001)
        given = CudaArray(array, data=(self.memory.value, True))
        self.assertTrue(heddle.from_dlpack(given).readonly)

    def test_refusals(self):
        array = np.frombuffer((ctypes.c_ubyte * 4096).from_address(self.memory.value), "f4")
        for facts in (
            {"mask": 1},
            {"typestr": ">f4"},
            {"typestr": "|O8"},
            {"strides": (6,)},
            {"data": (np.zeros(1024, "f4").ctypes.data, False)},
        ):
            with self.assertRaises(BufferError, msg=str(facts)):
                heddle.from_dlpack(CudaArray(array, **facts))
        given = CudaArray(array)
        count = sys.getrefcount(given)
        with self.assertRaises(ValueError):
            heddle.from_dlpack(given, stream=1)
        self.assertEqual(sys.getrefcount(given), count)


class CudaArrayInterface(unittest.TestCase):
    def test_facts(self):
        t = heddle.zeros((3, 4), "f32")
        self.assertEqual(
            dlpack.interface_of(t, 4096, False),
            {"shape": (3, 4), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3, "stream": None},
        )
        part = dlpack.interface_of(t.T[1:], 4096, True)
        self.assertEqual((part["shape"], part["strides"], part["data"]), ((3, 3), (4, 16), (4100, True)))
        self.assertEqual(dlpack.interface_of(heddle.zeros(0, "u8"), 4096, True)["data"], (0, True))
        for name in TYPES:
            array = heddle.zeros(1, name).numpy()
            self.assertEqual(dlpack.interface_of(heddle.zeros(1, name), 1, True)["typestr"], array.dtype.str)

    def test_only_in_claims(self):
        with self.assertRaisesRegex(AttributeError, "CUDA memory|claim"):
            _ = heddle.zeros(1).__cuda_array_interface__


if __name__ == "__main__":
    unittest.main()
