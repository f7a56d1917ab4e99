"""check_exchange_c.py - DLPack's functions of C at heddle.Tensor, called as a package in C calls them."""

import ctypes as c
import gc
import os
import random
import sys
import time
import unittest

import heddle
import numpy as np
from heddle import _lenders
from heddle._exchange import _Managed, _View

IN_PROCESS = heddle.current().placement != "process"
VERSIONED = tuple(int(x) for x in np.__version__.split(".")[:2]) >= (2, 1)
FAIL = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)
pointer_of = c.PYFUNCTYPE(c.c_void_p, c.py_object, c.c_char_p)(("PyCapsule_GetPointer", c.pythonapi))
rename = c.PYFUNCTYPE(c.c_int, c.py_object, c.c_char_p)(("PyCapsule_SetName", c.pythonapi))


class Table(c.Structure):
    _fields_ = [
        ("major", c.c_uint32), ("minor", c.c_uint32), ("older", c.c_void_p),
        ("allocate", c.CFUNCTYPE(c.c_int, c.POINTER(_View), c.POINTER(c.c_void_p), c.c_void_p, FAIL)),
        ("export", c.PYFUNCTYPE(c.c_int, c.py_object, c.POINTER(c.c_void_p))),
        ("take", c.PYFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.py_object))),
        ("view", c.c_void_p),
        ("work_stream", c.PYFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))),
    ]  # fmt: skip


table = Table.from_address(pointer_of(heddle.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))
USED = b"used_dltensor_versioned"  # a capsule keeps the address of its name


def export(tensor):
    """The address of a managed tensor, as a package gets it."""
    out = c.c_void_p()
    assert table.export(tensor, c.byref(out)) == 0
    return out.value


def end(address):
    c.CFUNCTYPE(None, c.c_void_p)(_Managed.from_address(address).deleter)(address)


def take(address):
    """The tensor that Heddle makes of a managed tensor."""
    out = c.py_object()
    assert table.take(address, c.byref(out)) == 0
    tensor = out.value  # a second reference
    c.pythonapi.Py_DecRef(out)
    return tensor


def allocate(shape, code=2, bits=32, device_type=1, device=0):
    """The address of a new managed tensor, or the message of the failure."""
    extents = (c.c_int64 * max(1, len(shape)))(*shape)
    like = _View(
        device_type=device_type, device_id=device, dims=len(shape), code=code, bits=bits, lanes=1, shape=extents
    )
    out, failures = c.c_void_p(), []
    fail = FAIL(lambda context, kind, message: failures.append("%s: %s" % (kind.decode(), message.decode())))
    if table.allocate(c.byref(like), c.byref(out), None, fail):
        assert len(failures) == 1
        return failures[0]
    assert not failures
    return out.value


def elements(address):
    """An array over the memory of a managed tensor."""
    view = _Managed.from_address(address).tensor
    shape = [view.shape[i] for i in range(view.dims)]
    strides = [view.strides[i] * view.bits // 8 for i in range(view.dims)]
    room = (c.c_ubyte * (sum((n - 1) * s for n, s in zip(shape, strides)) + view.bits // 8)).from_address(view.data)
    return np.ndarray(shape, {0: "i", 1: "u", 2: "f"}[view.code] + str(view.bits // 8), buffer=room, strides=strides)


class Exchange(unittest.TestCase):
    def test_table(self):
        self.assertEqual((table.major, table.minor, table.older, table.view), (1, 3, None, None))
        for device_type, stream in ((1, None), (2, 1), (3, None), (13, 1)):
            out = c.c_void_p(77)
            self.assertEqual(table.work_stream(device_type, 0, c.byref(out)), 0)
            self.assertEqual(out.value, stream)

    def test_exports(self):
        for kind in ["pinned", "unified"] + ["device"] * IN_PROCESS:
            tensor = heddle.zeros((3, 4), "f32", kind=kind)
            tensor[1] = 2
            address = export(tensor[1:].T)
            self.assertEqual(elements(address).tolist(), [[2, 0]] * 4)
            self.assertEqual(_Managed.from_address(address).flags, 0)
            elements(address)[0, 1] = 5
            ticket = tensor.buffer.fill(0)  # waits for the package
            self.assertFalse(ticket.done)
            end(address)
            ticket.wait(60)
            self.assertEqual(tensor.numpy().sum(), 0)
        self.assertEqual(_Managed.from_address(address := export(tensor[0].broadcast_to((2, 4)))).flags, 1)
        end(address)

    def test_failed_exports(self):
        tensor = heddle.zeros(4, kind="pinned")
        tensor.buffer.free()
        for _ in range(3):
            with self.assertRaises(heddle.Error) as caught:
                export(tensor)
            self.assertEqual(caught.exception.status, heddle.Status.HANDLE)
        with self.assertRaises(AttributeError):
            export(object())

    def test_imports(self):
        array = np.arange(300_000, dtype="f4").reshape(300, 1000)
        count = sys.getrefcount(array)
        capsule = array.__dlpack__(max_version=(1, 0)) if VERSIONED else None
        if capsule is None or not IN_PROCESS:
            self.skipTest("NumPy exports no version of DLPack, or workers cannot use its memory")
        tensor = take(pointer_of(capsule, b"dltensor_versioned"))
        rename(capsule, USED)
        self.assertTrue((tensor.numpy() == array).all())
        self.assertEqual(tensor.shape, (300, 1000))
        del tensor, capsule
        limit = time.monotonic() + 60
        while sys.getrefcount(array) != count and time.monotonic() < limit:
            time.sleep(0.001)
        self.assertEqual(sys.getrefcount(array), count)

    def test_own_memory(self):
        """A tensor that a package got from Heddle does not come back as a second buffer."""
        address = export(heddle.zeros(4, kind="pinned"))
        with self.assertRaises(heddle.Error):
            take(address)
        end(address)


@unittest.skipUnless(IN_PROCESS, "the memory of a worker process has no address here")
class NewTensors(unittest.TestCase):
    def setUp(self):
        self.loans = _lenders.lender("dlpack")
        self.assertEqual(self.loans.count, 0)

    def tearDown(self):
        gc.collect()
        self.assertEqual(self.loans.count, 0)

    def test_given_back(self):
        for shape in ((), (7,), (3, 4, 5), (0, 3)):
            address = allocate(shape)
            self.assertEqual(_Managed.from_address(address).tensor.dims, len(shape))
            self.assertEqual(self.loans.count, 1)
            end(address)
            self.assertEqual(self.loans.count, 0)

    def test_taken(self):
        address = allocate((3, 4))
        elements(address)[:] = np.arange(12).reshape(3, 4)
        tensor = take(address)
        self.assertEqual(tensor.buffer.address, _Managed.from_address(address).tensor.data)
        self.assertEqual(tensor.T.numpy().tolist(), np.arange(12).reshape(3, 4).T.tolist())
        tensor[1] = 7
        part = tensor[1]
        del tensor
        self.assertEqual(part.numpy().tolist(), [7] * 4)
        self.assertEqual(self.loans.count, 1)

    def test_failures(self):
        self.assertIn("device type", allocate((4,), device_type=2))
        self.assertIn("ValueError", allocate((4, -1)))
        self.assertIn("ValueError", allocate((1 << 40, 1 << 40)))
        self.assertIn("MemoryError: hd_alloc", allocate((1 << 40,)))
        self.assertIn("MemoryError", allocate((4,), device=99))
        address = allocate((4,), code=0, bits=4)
        with self.assertRaises(BufferError):
            take(address)
        end(address)

    def test_random_histories(self):
        seed = int(os.environ.get("HEDDLE_SEED") or random.randrange(1 << 30))
        choose = random.Random(seed)
        managed, tensors = [], []
        for step in range(300):
            what = choose.randrange(4)
            if what == 0 and len(managed) < 8:
                address = allocate((choose.choice([1, 50, 3000, 200_000]),))
                elements(address)[:] = step
                managed.append((address, step))
            elif what == 1 and managed:
                address, value = managed.pop(choose.randrange(len(managed)))
                self.assertTrue((elements(address) == value).all(), seed)
                end(address)
            elif what == 2 and managed:
                address, value = managed.pop(choose.randrange(len(managed)))
                tensors.append((take(address), value))
            elif tensors:
                tensor, value = tensors.pop(choose.randrange(len(tensors)))
                address = export(tensor)
                self.assertTrue((elements(address) == value).all(), seed)
                end(address)
                self.assertTrue((tensor.numpy() == value).all(), seed)
        while managed:
            end(managed.pop()[0])


if __name__ == "__main__":
    unittest.main()
