"""check_edges.py - the package refuses copies of objects, writes to read-only memory, and numbers that do not fit."""

import copy
import dataclasses
import gc
import math
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import weakref

import heddle
import numpy as np

NAMES = """
#include <heddle/kernel.h>
HD_KERNEL(names, HD_OUT(float, lane), HD_VALUE(float, grid), HD_VALUE(uint32_t, threads), HD_VALUE(uint32_t, arguments))
{
    lane[0] = grid + (float)threads + (float)arguments;
}
"""


def axpy(**arguments):
    return heddle.builtin()["hd_axpy_f32"](**arguments)


class Copies(unittest.TestCase):
    def test_a_copy_never_ends_the_original(self):
        runtime, x, lane = heddle.current(), heddle.array([1, 2, 3], "f32"), heddle.lane()
        module = heddle.builtin()
        with heddle.claim(heddle.zeros(3)) as claim:
            things = [runtime, runtime.devices[0], x.buffer, lane, module, module["hd_axpy_f32"], claim]
            things += [lane.ticket(), heddle.trace("unused.hdtrace")]
            for thing in things:
                for call in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "%s cannot be copied or pickled" % type(thing).__name__):
                        call(thing)
        for call in (copy.copy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "Tensor cannot be copied"):
                call(x)
        gc.collect()
        self.assertTrue(runtime.is_usable)
        self.assertEqual(x.numpy().tolist(), [1, 2, 3])
        lane.wait(60)

    def test_a_deep_copy_of_a_tensor_is_another_tensor(self):
        @dataclasses.dataclass
        class Layer:
            weights: heddle.Tensor

        x = heddle.array([[1, 2], [3, 4]], "f32")
        other = dataclasses.asdict(Layer(x))["weights"]
        x[:] = 0
        self.assertEqual(other.numpy().tolist(), [[1, 2], [3, 4]])
        self.assertEqual(copy.deepcopy(heddle.zeros((2, 3))[:, 1]).shape, (2,))
        self.assertEqual(copy.deepcopy(heddle.zeros(0, "u8")).shape, (0,))

    def test_tickets_have_weak_references(self):
        ticket = heddle.zeros(4).buffer.fill(1)
        self.assertIs(weakref.ref(ticket)(), ticket)


class ReadOnly(unittest.TestCase):
    def test_every_way_to_write_is_refused(self):
        memory = bytes(64)
        t, other = heddle.from_dlpack(np.frombuffer(memory, "f4")), heddle.zeros(16)
        b = t.buffer
        self.assertTrue(t.readonly and b.readonly and b.tensor("f32").readonly)
        self.assertFalse(other.readonly or other.buffer.readonly)
        for write in (
            lambda: b.write(b"x" * 64),
            lambda: b.fill(7),
            lambda: b.copy_from(other.buffer),
            lambda: b.map().__enter__(),
            lambda: b.map(heddle.Access.WRITE).__enter__(),
            lambda: b.tensor("f32").write(5),
            lambda: b.tensor("f32").__setitem__(0, 5),
            lambda: heddle.copy(b.tensor("f32"), other),
            lambda: axpy(y=t, x=other, a=1, n=16, threads=16),
            lambda: axpy(y=b, x=other, a=1, n=16, threads=16),
            lambda: axpy(y=other, x=other, a=1, n=16, threads=16, also=[heddle.out(b)]),
            lambda: heddle.claim(write=[b]).begin(),
            lambda: heddle.claim(write=[b.tensor("f32")]).begin(),
            lambda: heddle.lane().run_native(print, heddle.inout(b)),
            lambda: heddle.matmul(other.reshape(4, 4), other.reshape(4, 4), out=b.tensor("f32", (4, 4))),
        ):
            with self.assertRaisesRegex(ValueError, "read-only"):
                write()
        with self.assertRaises(AttributeError):
            t.readonly = False
        axpy(y=other, x=b, a=1, n=16, threads=16).wait(60)
        self.assertEqual((b.read(), memory), (bytes(64), bytes(64)))


class Numbers(unittest.TestCase):
    def test_sizes_and_places(self):
        b, t = heddle.alloc(16), heddle.zeros(4)
        far = 1 << 64
        for call in (
            lambda n: heddle.alloc(n),
            lambda n: heddle.empty(n),
            lambda n: heddle.empty((n, 1)),
            lambda n: t.reshape(n, 4),
            lambda n: t.broadcast_to((n, 4)),
            lambda n: b.write(b"abcd", offset=n),
            lambda n: b.read(offset=n),
            lambda n: b.read(nbytes=n),
            lambda n: b.read_into(bytearray(4), offset=n),
            lambda n: b.fill(n),
            lambda n: b.fill(1, offset=n),
            lambda n: b.fill(1, nbytes=n),
            lambda n: b.copy_from(heddle.alloc(16), offset=n, nbytes=4),
            lambda n: b.copy_from(heddle.alloc(16), source_offset=n, nbytes=4),
            lambda n: b.tensor("f32", (n,)),
            lambda n: b.tensor("f32", offset=n),
            lambda n: heddle.zeros(3, device=n),
            lambda n: heddle.lane(n),
            lambda n: heddle.current().default_lane(n),
            lambda n: heddle.current().memory_stats(n),
            lambda n: heddle.current().trim(n),
            lambda n: heddle.current().trim(keep_bytes=n),
            lambda n: heddle.current().peer(n, 0),
            lambda n: heddle.builtin().variable("none", n),
            lambda n: heddle.memory_report(n),
            lambda n: heddle.trace("unused.hdtrace", limit=n),
            lambda n: axpy(y=t, x=t, a=1, n=4, threads=n),
            lambda n: axpy(y=t, x=t, a=1, n=4, threads=4, block=n),
            lambda n: axpy(y=t, x=t, a=1, n=4, grid=n, block=4),
            lambda n: axpy(y=t, x=t, a=1, n=4, grid=1, block=(4, n)),
            lambda n: axpy(y=t, x=t, a=1, n=4, threads=4, shared_bytes=n),
        ):
            for wrong in (far, far + 4, -far + 4, 4 - (1 << 80)):
                with self.assertRaisesRegex(ValueError, "pass a number from|do not fit"):
                    call(wrong)
            for wrong in (True, 1.0, "1"):
                with self.assertRaises(TypeError):
                    call(wrong)
        self.assertEqual(t.numpy().tolist(), [0] * 4)
        self.assertEqual(b.tensor("f32", offset=16).shape, (0,))
        for nbytes in (17, 1 << 40):
            with self.assertRaises(heddle.Error) as caught:
                b.read(nbytes=nbytes)
            self.assertEqual(caught.exception.status, heddle.Status.RANGE)
        b.fill(-1).wait(60)
        self.assertEqual(b.read(), b"\xff" * 16)

    def test_launches(self):
        t = heddle.zeros(4)
        for sizes in ({"threads": 0}, {"threads": -1}, {"threads": 4, "block": 0}, {"grid": 0, "block": 1}):
            with self.assertRaisesRegex(ValueError, "pass a number from 1"):
                axpy(y=t, x=t, a=1, n=4, **sizes)

    def test_floats(self):
        y, x = heddle.zeros(1), heddle.array([1], "f32")
        for wrong in (1e300, -1e300, 3.5e38):
            with self.assertRaisesRegex(OverflowError, "outside of f32"):
                axpy(y=y, x=x, a=wrong, n=1, threads=1)
        axpy(y=y, x=x, a=math.inf, n=1, threads=1)
        self.assertEqual(y.item(), math.inf)
        axpy(y=y, x=x, a=math.nan, n=1, threads=1)
        self.assertTrue(math.isnan(y.item()))

    def test_elements(self):
        t = heddle.zeros(2, "u8")
        for wrong in (300, -1, [1, 256], 1e9, 1 << 70, np.int64(300)):
            for write in (lambda n: t.write(n), lambda n: t.__setitem__(0, n), lambda n: heddle.array(n, "u8")):
                with self.assertRaisesRegex((OverflowError, ValueError), "outside of the type uint8|broadcast"):
                    write(wrong)
        t[:] = [0, 255]
        self.assertEqual(t.numpy().tolist(), [0, 255])


class Types(unittest.TestCase):
    def test_bool(self):
        mask = np.array([True, False])
        for refused in (lambda: heddle.array(mask), lambda: heddle.zeros(2, "bool"), lambda: heddle.zeros(2, bool)):
            with self.assertRaisesRegex(TypeError, '"u8"'):
                refused()
        t = heddle.array(mask, "u8")
        t[:] = ~mask
        self.assertEqual(t.numpy().tolist(), [0, 1])

    def test_reads_into_another_type(self):
        t = heddle.array([1, 2], "f32")
        for wrong in (np.zeros(2, "i4"), np.zeros(2, ">f4"), np.zeros(8, "u1"), memoryview(bytearray(8)).cast("i")):
            with self.assertRaisesRegex(TypeError, "elements of type"):
                t.read_into(wrong)
        for right in (np.zeros(2, "f4"), bytearray(8), memoryview(bytearray(8)).cast("f")):
            t.read_into(right)
            self.assertEqual(bytes(right), np.array([1, 2], "f4").tobytes())
        bits = np.zeros(2, "u2")
        heddle.array([1, 2], "u16").view("bf16").read_into(bits)
        self.assertEqual(bits.tolist(), [1, 2])

    def test_comparisons(self):
        t = heddle.array([1])
        for refused in (lambda: t == t.T, lambda: t != 1, lambda: t == np.ones(1), lambda: 1 in t):
            with self.assertRaisesRegex(TypeError, r"t\.numpy\(\)"):
                refused()
        self.assertFalse(t == None)  # noqa: E711
        self.assertEqual({t: 1}[t], 1)
        self.assertIn(t, [t])
        for refused in (lambda: t[True], lambda: heddle.in_(3), lambda: heddle.out(np.ones(1))):
            with self.assertRaises(TypeError):
                refused()


class Calls(unittest.TestCase):
    def test_parameters_with_names_of_the_launch(self):
        with tempfile.TemporaryDirectory() as work:
            source, image = os.path.join(work, "names.c"), os.path.join(work, "names.hdk")
            with open(source, "w") as file:
                file.write(NAMES)
            include = os.path.join(os.path.dirname(__file__), "..", "..", "include")
            tool = [sys.executable, "-s", "-m", "heddle", "cc", "--no-gpu", "-I", include, "-o", image, source]
            subprocess.run(tool, check=True)
            names = heddle.load(image)["names"]
        y = heddle.zeros(1)
        values = {"lane": y, "grid": 1.5, "threads": 2, "arguments": 3}
        names(arguments=values, threads=1)
        self.assertEqual(y.item(), 6.5)
        with self.assertRaisesRegex(TypeError, 'arguments={"lane"'):
            names(lane=y, grid=1, block=1)
        with self.assertRaisesRegex(TypeError, 'arguments={"grid"'):
            names(y, grid=1, block=1)
        with self.assertRaisesRegex(TypeError, "two values for 'y'"):
            axpy(y=y, x=y, a=1, n=1, threads=1, arguments={"y": y})

    def test_images(self):
        for wrong in ("text", 3, None, [1]):
            with self.assertRaisesRegex(TypeError, "pass bytes"):
                heddle.load_image(wrong)

    def test_a_closed_lane(self):
        lane = heddle.lane()
        lane.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            lane.__enter__()
        self.assertIsNone(heddle.current_lane())

    def test_labels(self):
        x = heddle.zeros(4, kind="pinned")
        shared = np.from_dlpack(x)
        ticket = x.buffer.fill(1)
        message = ""
        while "check_edges.py:" not in message:  # until the engine knows the reason
            with self.assertRaises(heddle.Error) as caught:
                ticket.wait(timeout=0.01)
            message = str(caught.exception)
        del shared
        ticket.wait(60)
        code = compile("import heddle\nx = heddle.alloc(8 << 20)\n", "/a/%s_über.py" % ("long" * 10), "exec")
        space = {"__name__": "other"}
        exec(code, space)
        labels = [one["label"] for one in heddle.current().memory()["devices"][0]["holders"]]
        self.assertIn("longlonglonglonglon", next(label for label in labels if label.endswith("g_über.py:2")))

    def test_messages_speak_python(self):
        h = heddle.zeros(4, kind="pinned")
        with self.assertRaises(KeyError), heddle.claim(write=[h]):
            raise KeyError
        with self.assertRaises(heddle.Error) as caught:
            h.numpy()
        self.assertRegex(str(caught.exception), r"^(heddle\.claim|Claim\.wait): claim 'check_edges.py:\d+' \(device")
        h, x = heddle.zeros(4, kind="pinned"), heddle.zeros(4)
        with heddle.lane() as lane:
            held = heddle.claim(write=[h]).begin()
            ticket = axpy(y=x, x=h, a=1, n=4, threads=4)
            held.end(failed=True)
            with self.assertRaises(heddle.Error):
                ticket.wait(60)
            with self.assertRaisesRegex(heddle.Error, r"^Kernel launch: .*Lane\.reset"):
                axpy(y=x, x=x, a=1, n=4, threads=4)
            lane.reset()
            for t in (x, h):  # a write of all failed bytes repairs them
                t.write(1)
            axpy(y=x, x=h, a=1, n=4, threads=4)
        self.assertEqual(x.numpy().tolist(), [2] * 4)

    def test_dead_cycles_give_their_memory_back(self):
        class Node:
            pass

        def fill():
            for _ in range(8):
                node = Node()
                node.itself, node.t = node, heddle.empty(4 << 20, "u8", runtime=runtime)

        with heddle.open(driver="host", memory_limit="16M") as runtime:
            self.addCleanup(gc.enable)
            fill()
            gc.collect()
            gc.disable()
            with self.assertRaises(heddle.Error) as caught:
                fill()
            self.assertEqual(caught.exception.status, heddle.Status.MEMORY)
            caught.exception.__traceback__ = None
            gc.enable()
            gc.collect()

    def test_another_library(self):
        libc = "libc.so.6"
        with tempfile.TemporaryDirectory() as work:
            other = os.path.join(work, "libother.so")
            with open("/proc/self/maps") as maps:
                path = next(line.split()[-1] for line in maps if line.rstrip().endswith(libc))
            os.symlink(path, other)
            env = {**os.environ, "HEDDLE_SHARED_LIBRARY": other}
            run = subprocess.run([sys.executable, "-s", "-c", "import heddle"], env=env, capture_output=True, text=True)
        self.assertIn("ImportError: heddle: %s is no library of Heddle" % other, run.stderr)

    def test_help_names_every_call(self):
        for name in ("open", "compile", "range"):
            self.assertIn("heddle.%s" % name, heddle.__doc__)


if __name__ == "__main__":
    unittest.main()
