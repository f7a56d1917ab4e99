"""check_hosts.py - memory for the allocators of other packages: the functions of C that CuPy and others call.

On a host device, this process can write the memory itself. So random histories can check that each block belongs to one
owner, and that no late work of Heddle changes a block that is lent.
"""

import ctypes
import gc
import os
import random
import sys
import threading
import unittest
from unittest import mock

import heddle
import numpy as np
from heddle import Status, _lenders, dlpack
from heddle._abi import Access
from heddle._library import check, last_error, lib
from heddle.dlpack import _native

IN_PROCESS = heddle.current().placement != "process"
VERSIONED = tuple(int(x) for x in np.__version__.split(".")[:2]) >= (2, 1)
held = ctypes.PyDLL(_native._name)  # calls with the interpreter's lock, as CuPy does
held.hd_python_cupy_lend.restype = ctypes.c_void_p
held.hd_python_cupy_lend.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
held.hd_python_cupy_return.restype = None
held.hd_python_cupy_return.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
CURRENT_STREAM = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: 0)


class Producer:
    """An array as an older or newer producer of DLPack gives it."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**(arguments if self.versioned and VERSIONED else {}))


class Streams:
    """Streams of the driver of host devices, on device 0."""

    def __init__(self):
        pointer, word = ctypes.c_void_p, ctypes.c_uint
        context = pointer()
        self.entry("cuDevicePrimaryCtxRetain", pointer, ctypes.c_int)(ctypes.byref(context), 0)
        self.entry("cuCtxSetCurrent", pointer)(context)
        self.create = self.entry("cuStreamCreate", pointer, word)
        self.destroy = self.entry("cuStreamDestroy", pointer)
        self.fill = self.entry("cuMemsetD32Async", ctypes.c_uint64, word, ctypes.c_size_t, pointer)
        self.synchronize = self.entry("cuCtxSynchronize")
        self.capture_begin = self.entry("cuStreamBeginCapture", pointer, ctypes.c_int)
        self.capture_end = self.entry("cuStreamEndCapture", pointer, pointer)
        self.graph_destroy = self.entry("cuGraphDestroy", pointer)

    @staticmethod
    def entry(name, *types):
        out = ctypes.c_void_p()
        check(lib.hd_driver_entry(b"host", name.encode(), ctypes.byref(out)))
        function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(out.value)

        def call(*arguments):
            code = function(*arguments)
            assert code == 0, (name, code)

        return call

    def make(self):
        out = ctypes.c_void_p()
        self.create(ctypes.byref(out), 1)
        return out.value


def settle(loans, address):
    """Waits for all work of Heddle on a lent block."""
    buffer = _native.hd_python_lender_find(loans.handle, address)
    assert buffer, "the block is not lent"
    check(lib.hd_buffer_wait(buffer, Access.READ_WRITE, 60_000_000_000))


@unittest.skipUnless(IN_PROCESS, "the memory of a worker process has no address here")
class Lenders(unittest.TestCase):
    def fails(self, status, function, *arguments):
        with self.assertRaises(heddle.Error) as caught:
            function(*arguments)
        self.assertEqual(caught.exception.status, status, caught.exception)
        return caught.exception

    def test_one_lender(self):
        first = _lenders.lender("one")
        self.assertIs(_lenders.lender("one"), first)
        self.assertIsNot(_lenders.lender("two"), first)
        self.assertEqual(first.ordinals, [device.number for device in heddle.current().devices])
        self.fails(Status.NO_DEVICE, first.device_of, 99)
        self.fails(Status.NO_DEVICE, first.lend, 8, 99)
        self.fails(Status.NO_DEVICE, first.lend, 8, -1)
        self.fails(Status.HANDLE, first.take_back, 4096)
        self.fails(Status.HANDLE, first.take_back, 4096, 0)

    def test_ordinals(self):
        """A runtime of GPUs counts its devices in another way than the driver."""
        ordinals = iter((5, 2))

        def get_device(value, stream, kind, ordinal):
            self.assertEqual(stream, 1, "CUDA's legacy default stream")
            status = lib.hd_dlpack_get_device(value, 0, kind, ordinal)
            kind._obj.value, ordinal._obj.value = dlpack.CUDA, next(ordinals)
            return status

        with heddle.open('driver=host devices="0,1"') as runtime:
            library = mock.Mock(hd_dlpack_get_device=get_device)
            with mock.patch.object(runtime, "driver", "nvidia"), mock.patch.object(dlpack, "lib", library):
                loans = _lenders.lender("cupy", runtime)
            self.assertEqual(loans.ordinals, [5, 2])
            for ordinal, number in ((5, 0), (2, 1)):
                self.assertEqual(loans.device_of(ordinal), number)
                address = loans.lend(1000, ordinal)
                self.assertEqual(runtime.memory_stats(number)["live_count"], 1)
                loans.take_back(address)
                self.assertEqual(runtime.memory_stats(number)["live_count"], 0)
            self.fails(Status.NO_DEVICE, loans.lend, 8, 0)
            self.fails(Status.NO_DEVICE, loans.lend, 8, 6)

    def test_holders(self):
        """At the limit, the message names the package that holds the memory."""
        with heddle.open("driver=host memory_limit=64M memory_timeout=100") as runtime:
            loans = _lenders.lender("cupy", runtime)
            address = loans.lend(40 << 20, 0)
            free, total = loans.memory_info(0)
            self.assertEqual(total, 64 << 20)
            self.assertLessEqual(free, 24 << 20)
            error = self.fails(Status.MEMORY, loans.lend, 40 << 20, 0)
            self.assertIn("cupy", error.message)
            self.assertEqual(loans.count, 1)
            loans.take_back(address)
            self.assertEqual(loans.count, 0)
            loans.take_back(loans.lend(60 << 20, 0))

    def test_tensors_over_loans(self):
        """from_dlpack of an array in lent memory makes a tensor over the same bytes, and keeps the array."""
        with heddle.open("driver=host") as runtime:
            loans = _lenders.lender("cupy", runtime)
            for given, versioned in ((runtime, True), (None, False)):
                address = loans.lend(4000, 1)
                settle(loans, address)
                array = np.ctypeslib.as_array((ctypes.c_float * 1000).from_address(address))
                array[:] = range(1000)
                part = array[10:800].reshape(79, 10)[::-1, ::2]
                producer = Producer(part, versioned)
                count = sys.getrefcount(part)
                tensor = heddle.from_dlpack(producer, runtime=given)
                del producer
                self.assertEqual((tensor.runtime, tensor.device), (runtime, 1))
                np.testing.assert_array_equal(tensor.numpy(), part)
                tensor[0] = 5
                self.assertEqual(tensor.numpy()[0].tolist(), [5] * 5)
                self.assertEqual(part[0].tolist(), [5] * 5)
                self.assertEqual(runtime.memory_stats(1)["live_count"], 1)
                self.assertGreaterEqual(sys.getrefcount(part), count)
                del tensor
                self.assertEqual(sys.getrefcount(part), count - 1)
                self.assertEqual(loans.count, 1)
                loans.take_back(address)

    def test_closed(self):
        runtime = heddle.open("driver=host")
        loans = _lenders.lender("cupy", runtime)
        address = loans.lend(1000, 0)
        runtime.close()
        self.assertFalse(loans.is_usable)
        loans.take_back(address)  # nothing happens
        self.fails(Status.HANDLE, loans.lend, 1000, 0)

    def test_late_work(self):
        """A fill that is not finished does not change a block that takes the same memory."""
        with heddle.open("driver=host memory_limit=16M") as runtime:
            loans = _lenders.lender("numba", runtime)
            for step in range(30):
                buffer = heddle.alloc(12 << 20, runtime=runtime)
                for _ in range(4):
                    buffer.fill(0x55555555)
                buffer.free()
                address = loans.lend(12 << 20, 0)  # only the same memory is left
                settle(loans, address)
                ctypes.memset(address, step, 12 << 20)
                self.assertEqual(ctypes.string_at(address, 12 << 20).count(bytes([step])), 12 << 20)
                loans.take_back(address)

    def test_streams(self):
        """The next owner of the memory comes after the work of all streams, also of a stream that is gone."""
        with heddle.open("driver=host memory_limit=16M memory_timeout=2000") as runtime:
            loans, streams = _lenders.lender("cupy", runtime), Streams()
            for step in range(8):
                first, second = streams.make(), streams.make()
                address = loans.lend(12 << 20, 0, first)
                for _ in range(4):
                    streams.fill(address, 0x55555555, 3 << 20, first)
                if step % 2:
                    streams.destroy(first)
                    first = streams.make()  # may have the same handle
                loans.take_back(address)
                self.assertEqual(loans.lend(12 << 20, 0, second), address)  # only the same memory is left
                streams.fill(address, step, 3 << 20, second)
                streams.synchronize()
                found = np.frombuffer((ctypes.c_ubyte * (12 << 20)).from_address(address), "u4")
                self.assertTrue((found == step).all())
                loans.take_back(address, second)
                streams.destroy(first)
                streams.destroy(second)

    def test_capture(self):
        """Memory that comes back during a capture of its stream stays taken until the end of the capture."""
        with heddle.open("driver=host memory_limit=16M memory_timeout=100") as runtime:
            loans, streams = _lenders.lender("cupy", runtime), Streams()
            stream, graph = streams.make(), ctypes.c_void_p()
            address = loans.lend(12 << 20, 0, stream)
            streams.capture_begin(stream, 0)
            loans.take_back(address)
            self.assertEqual(loans.count, 0)
            self.fails(Status.MEMORY, loans.lend, 12 << 20, 0)
            streams.capture_end(stream, ctypes.byref(graph))
            self.assertEqual(loans.lend(12 << 20, 0), address)
            loans.take_back(address)
            streams.graph_destroy(graph)
            streams.destroy(stream)

    def test_random_histories(self):
        seed = int(os.environ.get("HEDDLE_SEED") or random.randrange(1 << 30))
        with heddle.open("driver=host memory_limit=32M memory_timeout=100") as runtime:
            _lenders.lender("cupy", runtime, ctypes.cast(CURRENT_STREAM, ctypes.c_void_p).value)
            for label in ("cupy", "rmm"):
                failures = []
                threads = [
                    threading.Thread(target=history, args=(runtime, label, seed + i, failures)) for i in range(3)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(failures, [], "seed %d" % seed)
                self.assertEqual(_lenders.lender(label, runtime).count, 0)
            self.assertEqual(runtime.memory_stats(0)["live_count"] + runtime.memory_stats(1)["live_count"], 0)


def history(runtime, label, seed, failures):
    """Blocks come and go beside buffers of Heddle with unfinished work. Each block keeps its owner's bytes."""
    try:
        choose = random.Random(seed)
        loans, blocks = _lenders.lender(label, runtime), []
        for step in range(150):
            size, device = choose.choice([1, 100, 5000, 70_000, 1 << 20, 3 << 20]), choose.randrange(2)
            what = choose.random()
            if what < 0.25:
                buffer = heddle.alloc(max(4, size & ~3), runtime=runtime, device=device)
                buffer.fill(0xFFFFFFFF)
                del buffer
            elif what < 0.65 and len(blocks) < 4:
                lend(loans, label, size, device, step, blocks)
            elif blocks:
                give_back(loans, label, blocks.pop(choose.randrange(len(blocks))))
        while blocks:
            give_back(loans, label, blocks.pop())
        gc.collect()
    except BaseException as error:
        failures.append(repr(error))


def lend(loans, label, size, device, step, blocks):
    if label == "cupy":
        address = held.hd_python_cupy_lend(loans.handle, size, device)
        if not address:
            raise last_error()
    else:
        address = loans.lend(size, device)
    settle(loans, address)
    ctypes.memset(address, step & 255, size)
    blocks.append((address, size, device, step & 255))


def give_back(loans, label, block):
    address, size, device, value = block
    found = ctypes.string_at(address, size)
    if found.count(bytes([value])) != size:
        raise AssertionError("a block of %d bytes lost its content" % size)
    if label == "cupy":
        held.hd_python_cupy_return(loans.handle, address, device)
    else:
        loans.take_back(address, 0)


if __name__ == "__main__":
    unittest.main()
