"""check_memory.py - buffers and tensors: reading, writing, views and their errors."""

import gc
import random
import unittest

import heddle
import numpy as np
from heddle import Status

TYPES = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "c64", "c128"]


class Buffers(unittest.TestCase):
    def fails(self, status, function, *arguments, **named):
        with self.assertRaises(heddle.Error) as caught:
            function(*arguments, **named)
        self.assertEqual(caught.exception.status, status, caught.exception)
        return caught.exception

    def test_bytes(self):
        for kind in ("device", "pinned", "unified"):
            b = heddle.alloc(64, kind=kind, label="bytes")
            b.write(bytes(range(64)))
            b.write(bytearray(b"xyz"), offset=10)
            b.write(memoryview(b"?")[0:1], offset=13)
            out = bytearray(5)
            b.read_into(out, offset=9)
            self.assertEqual(bytes(out), b"\x09xyz?")
            self.assertEqual(b.read(offset=62), b"\x3e\x3f")
            self.assertEqual(b.read(nbytes=0), b"")
            b.fill(0x01020304, offset=4, nbytes=8).wait(60)
            self.assertEqual(b.read(4, 8), b"\x04\x03\x02\x01" * 2)
            self.assertEqual((b.nbytes, b.device), (64, None if kind == "pinned" else 0))
            other = heddle.alloc(8)
            other.copy_from(b, source_offset=9, nbytes=4).wait(60)
            self.assertEqual(other.read(nbytes=4), b.read(9, 4))
            b.free()
            b.free()
            self.assertEqual(b.nbytes, 0)
            self.fails(Status.HANDLE, b.read, nbytes=1)

    def test_maps(self):
        for kind in ("pinned", "unified"):
            b = heddle.alloc(8, kind=kind)
            with b.map(heddle.Access.WRITE) as view:
                view[:] = b"12345678"
            with b.map(heddle.Access.READ) as view:
                self.assertEqual(bytes(view), b"12345678")
                self.assertTrue(view.readonly)
            with self.assertRaises(ValueError):
                view[0]
            with b.map() as view:
                kept = np.asarray(view)
            del b  # the array keeps the memory
            self.assertEqual(kept.tobytes(), b"12345678")
        self.fails(Status.ACCESS, heddle.alloc(8).map().__enter__)

    def test_refusals(self):
        b = heddle.alloc(8)
        error = self.fails(Status.RANGE, b.write, b"123456789")
        self.assertIn("Buffer.write: ", str(error))
        self.fails(Status.RANGE, b.read, offset=4, nbytes=5)
        self.fails(Status.ARGUMENT, b.fill, 1, 2, 4)
        self.fails(Status.ARGUMENT, heddle.alloc, 0)
        self.fails(Status.ARGUMENT, b.save)
        with self.assertRaises(TypeError):
            b.read_into(b"12345678")
        with self.assertRaises(TypeError):
            b.write(memoryview(bytes(16))[::2])
        with self.assertRaises(ValueError):
            heddle.alloc(8, kind="elsewhere")
        with self.assertRaises(ValueError):
            b.wait(timeout=-1)

    def test_a_buffer_lives_as_long_as_its_tensors(self):
        runtime = heddle.current()
        gc.collect()
        before = runtime.memory_stats(0)["live_count"]
        t = heddle.zeros((4, 4))[1:3].T
        self.assertEqual(runtime.memory_stats(0)["live_count"], before + 1)
        self.assertEqual(t.numpy().sum(), 0)
        del t
        self.assertEqual(runtime.memory_stats(0)["live_count"], before)

    def test_keeps_a_copy(self):
        b = heddle.alloc(8, keep=True)
        b.write(b"saved...")
        b.save().wait(60)


class Tensors(unittest.TestCase):
    def same(self, tensor, array):
        self.assertEqual(tensor.shape, array.shape)
        np.testing.assert_array_equal(tensor.numpy(), array)

    def test_types(self):
        for name in TYPES:
            array = np.arange(6).reshape(2, 3).astype(heddle.zeros(1, name).numpy().dtype)
            for dtype in (None, name, array.dtype, array.dtype.type):
                t = heddle.array(array, dtype)
                self.assertEqual(t.dtype, heddle.Type[name.upper()])
                self.assertEqual(t.nbytes, array.nbytes)
                self.same(t, array)
        bits = heddle.array([0x3F80, 0], "u16").view("bf16")
        self.assertEqual(bits.itemsize, 2)
        with self.assertRaisesRegex(TypeError, "u16"):
            bits.numpy()
        for wrong in ("f8", "complex256", object, np.dtype(">f4")):
            with self.assertRaises(TypeError):
                heddle.empty(1, wrong)

    def test_shapes(self):
        for shape in ((), (1,), (3, 0, 2), (2, 1, 3, 2, 2, 1, 2, 2)):
            array = np.random.default_rng(1).random(shape)
            t = heddle.array(array)
            self.same(t, array)
            self.assertEqual((t.ndim, t.size), (array.ndim, array.size))
        self.assertEqual(heddle.array(5.0).item(), 5)
        for wrong in (-1, (2, -3), (1,) * 9):
            with self.assertRaises(ValueError):
                heddle.empty(wrong)

    def test_random_views(self):
        pick = random.Random(35)
        for _ in range(60):
            shape = tuple(pick.randint(0, 5) for _ in range(pick.randint(1, 4)))
            array = np.arange(max(1, int(np.prod(shape))))[: int(np.prod(shape))].reshape(shape)
            t = heddle.array(array)
            for _ in range(3):
                index = self.random_index(pick, array)
                array, t = array[index], t[index]
                if array.ndim > 1 and pick.random() < 0.5:
                    axes = pick.sample(range(array.ndim), array.ndim)
                    array, t = array.transpose(axes), t.transpose(*axes)
                self.same(t, array)

    def random_index(self, pick, array):
        words = []
        for extent in array.shape:
            if pick.random() < 0.2 and extent:
                words.append(pick.randrange(-extent, extent))
            else:
                words.append(
                    slice(*(pick.choice([None, *range(-6, 7)]) for _ in "ab"), pick.choice([None, 1, 2, -1, -3]))
                )
        words = words[: pick.randint(0, len(words))]
        if pick.random() < 0.3:
            words.insert(pick.randint(0, len(words)), Ellipsis)
        if pick.random() < 0.3 and array.ndim < 6:
            words.insert(pick.randint(0, len(words)), None)
        return tuple(words)

    def test_other_views(self):
        array = np.arange(24)
        t = heddle.array(array)
        self.same(t.reshape(2, -1, 4).T, array.reshape(2, -1, 4).T)
        self.same(t.reshape((4, 6))[::2], array.reshape(4, 6)[::2])
        self.same(t[:3].broadcast_to((2, 3)), np.broadcast_to(array[:3], (2, 3)))
        self.same(t[::3].contiguous(), array[::3])
        self.assertIs(t.contiguous(), t)
        with self.assertRaises(heddle.Error):
            t.reshape(4, 6).T.reshape(24)
        with self.assertRaises(ValueError):
            t.reshape(5, -1)
        with self.assertRaises(ValueError):
            t.transpose(1)
        with self.assertRaises(IndexError):
            t[24]
        with self.assertRaises(IndexError):
            t[0, 0]
        with self.assertRaises(TypeError):
            t[[1, 2]]
        with self.assertRaises(ValueError):
            t[:3].broadcast_to((2, 3)).write(0)

    def test_writes(self):
        array = np.zeros((4, 6), np.float32)
        t = heddle.array(array)
        for index, value in (((1, slice(None, None, 2)), 3), ((Ellipsis, 1), [1, 2, 3, 4]), ((), 7.5)):
            array[index] = value
            t[index] = value
            self.same(t, array)
        t[:, :3] = t[:, 3:]
        t[1].write(b"\0" * 24)
        array[:, :3] = array[:, 3:]
        array[1] = 0
        self.same(t, array)
        with self.assertRaises(TypeError):
            t[0] = np.zeros(6, np.complex64)
        with self.assertRaises(ValueError):
            t[0] = np.zeros(5)
        with self.assertRaises(ValueError):
            t.read_into(bytearray(3))

    def test_devices(self):
        array = np.arange(1000, dtype=np.float32)
        t = heddle.array(array, device=0)
        for device in heddle.current().devices:
            there = t.to(device)
            self.assertEqual(there.device, device.number)
            self.same(there, array)
        self.same(heddle.array(array, kind="pinned"), array)
        with heddle.lane(device=1):
            self.assertEqual(heddle.zeros(3).device, 1)
            self.assertEqual(heddle.zeros(3, device=0).device, 0)
        self.assertEqual(heddle.zeros(3).device, 0)

    def test_as_a_value(self):
        t = heddle.array([[1, 2], [3, 4]])
        self.assertEqual([row.numpy().tolist() for row in t], [[1, 2], [3, 4]])
        self.assertEqual(len(t), 2)
        self.assertIn("(2, 2)", repr(t))
        for refused in (lambda: bool(t), lambda: np.asarray(t), lambda: len(t[0, 0]), lambda: np.sin(t)):
            with self.assertRaises(TypeError):
                refused()
        with self.assertRaisesRegex(TypeError, r"t\.numpy\(\)"):
            np.array(t)
        with self.assertRaises(ValueError):
            t.item()

    def test_products(self):
        pick = np.random.default_rng(2)
        a, b = pick.random((2, 3, 5)), pick.random((5, 4))
        product = heddle.array(a) @ heddle.array(b)
        np.testing.assert_allclose(product.numpy(), a @ b)
        heddle.matmul(heddle.array(b).T, heddle.array(b), out=(out := heddle.zeros((4, 4), "f64")), alpha=2)
        np.testing.assert_allclose(out.numpy(), 2 * b.T @ b)
        with self.assertRaises(ValueError):
            heddle.matmul(heddle.array(a[0, 0]), heddle.array(b))
        with self.assertRaises(heddle.Error):
            heddle.array(a) @ heddle.array(a)


if __name__ == "__main__":
    unittest.main()
