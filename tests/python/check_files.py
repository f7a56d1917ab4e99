"""check_files.py - loading of files in the format of safetensors."""

import json
import os
import struct
import tempfile
import unittest

import heddle
import numpy as np
from heddle.safetensors import File, place_of


def packed(tensors, metadata=None):
    """A file with arrays of NumPy, or (type, shape, bytes), by name."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    names = {"float32": "F32", "int64": "I64", "uint8": "U8", "float16": "F16", "bool": "BOOL", "complex64": "C64"}
    for name, value in tensors.items():
        if isinstance(value, np.ndarray):
            value = (names[value.dtype.name], value.shape, value.tobytes())
        first = len(data)
        data += value[2]
        header[name] = {"dtype": value[0], "shape": list(value[1]), "data_offsets": [first, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Safetensors(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "model.safetensors")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def test_all_devices_at_once(self):
        chance = np.random.default_rng(1)
        tensors = {"layers.%d.weight" % i: chance.random((300, 1000 + i), np.float32) for i in range(6)}
        tensors.update({"layers.1.bias": np.arange(3), "scalar": np.array(3.5, np.float16)})
        tensors["nothing"] = np.zeros((0, 4), np.uint8)
        tensors["flags"] = np.array([True, False])
        self.write(packed(tensors, {"format": "pt"}))
        n = len(heddle.current().devices)
        for where in (None, 0, n - 1, {"": 0, "layers": n - 1}, lambda name: n - 1 if "bias" in name else 0):
            got = heddle.load_safetensors(self.path, where)
            self.assertEqual(list(got), list(tensors))
            for name, value in tensors.items():
                self.assertEqual(got[name].device, place_of(name, where, 0))
                self.assertEqual(got[name].shape, value.shape)
                self.assertTrue((got[name].numpy() == value).all(), name)
        with File(self.path) as file:
            self.assertEqual(file.metadata, {"format": "pt"})

    def test_bits_of_types_that_numpy_lacks(self):
        bits = np.arange(64, dtype=np.uint16)
        self.write(packed({"b": ("BF16", (8, 8), bits.tobytes()), "f": ("F8_E4M3", (128,), bits.tobytes())}))
        got = heddle.load_safetensors(self.path)
        self.assertEqual(got["b"].dtype, heddle.Type.BF16)
        self.assertEqual(got["b"].view("u16").numpy().ravel().tolist(), bits.tolist())
        self.assertEqual(got["f"].numpy().tobytes(), bits.tobytes())

    def test_places(self):
        where = {"a.b": 1, "a": 2, "": 3}
        for name, wanted in {"a.b.c": 1, "a.b": 1, "a.bc": 2, "a": 2, "ab": 3}.items():
            self.assertEqual(place_of(name, where, 0), wanted)
        with self.assertRaises(KeyError):
            place_of("x", {"a": 1}, 0)

    def test_broken_files(self):
        good = packed({"x": np.arange(10, dtype=np.float32)})
        facts = {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}
        broken = [b"12345678"[:k] for k in (1, 7, 8)] + [good[:-1], good[:20], struct.pack("<Q", 1 << 62) + good[8:]]
        for change in (
            {"dtype": "F33"},
            {"shape": [11]},
            {"shape": [-10]},
            {"shape": "x"},
            {"data_offsets": [-40, 0]},
            {"data_offsets": [8, 48]},
            {"data_offsets": [40, 0]},
        ):
            text = json.dumps({"x": {**facts, **change}}).encode()
            broken.append(struct.pack("<Q", len(text)) + text + bytes(40))
        for text in (b"[]", b"{", b'{"x": 3}', b"\xff\xff"):
            broken.append(struct.pack("<Q", len(text)) + text)
        for content in broken:
            self.write(content)
            with self.assertRaises(ValueError, msg=content):
                heddle.load_safetensors(self.path)
        self.write(good)
        self.assertEqual(heddle.load_safetensors(self.path)["x"].numpy().tolist(), list(range(10)))


if __name__ == "__main__":
    unittest.main()
