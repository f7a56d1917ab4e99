"""check_work.py - lanes, tickets, launches and claims: order, waits, asyncio and errors."""

import asyncio
import ctypes
import gc
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import heddle
import numpy as np
from heddle import Status, in_, inout, out

SOURCE = """
#include <heddle/kernel.h>
struct pair { float scale, shift; };
HD_GLOBAL uint32_t hits;
HD_KERNEL(affine, HD_OUT(float, y), HD_IN(float, x), HD_VALUE(struct pair, by), HD_VALUE(int8_t, step),
          HD_VALUE(uint64_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] = by.scale * x[i] + by.shift + (float)step;
    }
    if (i == 0) {
        hits++;
    }
}
HD_KERNEL(chase, HD_OUT(float, y), HD_IN(uint64_t, table))
{
    y[0] = *(const float *)table[0];
}
"""


class Pair(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_float), ("shift", ctypes.c_float)]


def builtin(name):
    return heddle.builtin().kernel(name)


class Launches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        source = os.path.join(cls.work.name, "affine.c")
        with open(source, "w") as file:
            file.write(SOURCE)
        cls.image = os.path.join(cls.work.name, "affine.hdk")
        include = os.path.join(os.path.dirname(__file__), "..", "..", "include")
        tool = [sys.executable, "-s", "-m", "heddle", "cc", "--no-gpu", "-I", include, "-o", cls.image, source]
        subprocess.run(tool, check=True)

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def test_by_name_and_position(self):
        axpy = builtin("hd_axpy_f32")
        x, y = heddle.array(np.arange(1000), "f32"), heddle.zeros(1000)
        axpy(y, x, 2, 1000, threads=1000)
        axpy(y, n=1000, a=np.float64(1), x=x, grid=4, block=(256,))
        axpy(inout(y), in_(x), n=np.uint8(10), a=0.5, threads=10, block=32)
        wanted = 3 * np.arange(1000, dtype=np.float32)
        wanted[:10] += np.arange(10) / 2
        np.testing.assert_array_equal(y.numpy(), wanted)
        names = [(p.name, p.kind.name, p.access.name, p.nbytes) for p in axpy.parameters]
        self.assertEqual(names[0], ("y", "BUFFER", "READ_WRITE", 8))
        self.assertEqual(names[2][:2] + names[2][3:], ("a", "F32", 4))

    def test_kernel_files(self):
        with open(self.image, "rb") as file:
            image = file.read()
        for module in (heddle.load(self.image), heddle.load_image(image), heddle.current().load(self.image)):
            x, y = heddle.array([1, 2, 3], "f32"), heddle.empty(3)
            affine = module["affine"]
            affine(y=y, x=x, by=Pair(2, 10), step=-1, n=3, threads=3)
            self.assertEqual(y.numpy().tolist(), [11, 13, 15])
            affine(y=y, x=x, by=np.array([1, 0], np.float32), step=0, n=3, threads=3)
            self.assertEqual(y.numpy().tolist(), [1, 2, 3])
            hits = module.variable("hits")
            self.assertEqual(int.from_bytes(hits.read(), "little"), 2)
            del hits
            self.assertEqual(int.from_bytes(module.variable("hits").read(), "little"), 2)
            with self.assertRaises(heddle.Error) as caught:
                module["nothing"]
            self.assertEqual(caught.exception.status, Status.NOT_FOUND)
            module.unload()
            with self.assertRaises(heddle.Error):
                affine(y=y, x=x, by=Pair(), step=0, n=3, threads=3)

    def test_pointers_in_memory(self):
        chase = heddle.load(self.image)["chase"]
        row, y = heddle.zeros(4), heddle.empty(1)
        row.buffer.fill(0x3F800000)
        table = heddle.array([row.buffer.address], "u64")
        chase(y, table, grid=1, block=1, also=[in_(row)])
        self.assertEqual(y.item(), 1)

    def test_refusals(self):
        axpy = builtin("hd_axpy_f32")
        x, y = heddle.zeros(10), heddle.zeros(10)
        good = {"y": y, "x": x, "a": 1, "n": 10, "threads": 10}
        for status, change in (
            (Status.ACCESS, {"x": out(x)}),
            (Status.ACCESS, {"y": in_(y)}),
            (Status.ARGUMENT, {"x": heddle.zeros(10, "f64")}),
            (Status.LIMIT, {"block": 100000}),
        ):
            with self.assertRaises(heddle.Error) as caught:
                axpy(**{**good, **change})
            self.assertEqual(caught.exception.status, status, caught.exception)
        for error, change in (
            (TypeError, {"x": 1}),
            (TypeError, {"x": None}),
            (TypeError, {"a": "1"}),
            (TypeError, {"n": 1.5}),
            (TypeError, {"z": 1}),
            (TypeError, {"grid": 1}),
            (TypeError, {"threads": None}),
            (ValueError, {"x": heddle.zeros(20)[::2]}),
            (ValueError, {"y": heddle.zeros(1).broadcast_to(10)}),
            (ValueError, {"x": heddle.zeros(0)}),
            (ValueError, {"threads": None, "grid": 0, "block": 1}),
            (OverflowError, {"n": -1}),
            (OverflowError, {"n": 1 << 64}),
        ):
            with self.assertRaises(error, msg=change):
                axpy(**{**good, **change})
        for error, values in ((TypeError, (y, x, 1)), (TypeError, (y, x, 1, 2, 3))):
            with self.assertRaises(error):
                axpy(*values, threads=1)
        with self.assertRaisesRegex(TypeError, "two values for 'y'"):
            axpy(y, x, 1, 10, y=y, threads=1)
        self.assertEqual(y.numpy().tolist(), [0] * 10)

    def test_compile(self):
        if heddle.current().driver != "host":
            self.skipTest("there is a GPU")
        with self.assertRaises(heddle.Error) as caught:
            heddle.compile("__global__ void f() {}", options=["-DN=4"], kernels=["f"], name="f.cu")
        self.assertEqual(caught.exception.status, Status.UNSUPPORTED)


class Waits(unittest.TestCase):
    def test_timeouts(self):
        x = heddle.zeros(100, kind="pinned")
        with heddle.claim(write=[x], label="held"):
            ticket = x.buffer.fill(1)
            for wait in (ticket.wait, x.buffer.wait):
                with self.assertRaises(heddle.Error) as caught:
                    wait(timeout=0.01)
                self.assertEqual(caught.exception.status, Status.TIMEOUT)
            self.assertIn("held", str(caught.exception))
            with self.assertRaisesRegex(heddle.Error, "not done after 0.125 s"):  # more than one short wait
                ticket.wait(timeout=0.125)
            self.assertFalse(ticket.done)
        ticket.wait(60)
        self.assertTrue(ticket.done)

    def test_lanes(self):
        with heddle.lane() as lane:
            self.assertIs(heddle.current_lane(), lane)
            with heddle.lane(1) as other:
                self.assertIs(heddle.current_lane(), other)
            x, y = heddle.zeros(10), heddle.zeros(10)
            builtin("hd_axpy_f32")(y, x, 1, 10, threads=10)
            self.assertEqual(lane.device.number, 0)
        self.assertIsNone(heddle.current_lane())
        lane.ticket().wait(60)
        lane.wait(60)
        lane.reset(60)
        lane.keep_times()
        first = lane.add_dependency(lane.ticket())
        builtin("hd_axpy_f32")(y, x, 1, 10, threads=10, lane=lane).wait(60)
        self.assertGreaterEqual(lane.ticket().elapsed_since(first), 0)
        lane.close()
        with self.assertRaises(heddle.Error):
            lane.wait()

    def test_dependencies(self):
        x = heddle.zeros(1, kind="pinned")
        lane = heddle.lane()
        claim = heddle.claim(x).begin()
        after = lane.add_dependency(claim)
        self.assertFalse(after.done)
        claim.end()
        after.wait(60)

    def test_asyncio(self):
        async def main():
            x = heddle.zeros(1000)
            await x.buffer.fill(5)
            held = heddle.claim(write=[x]).begin()
            tickets = [x.buffer.fill(i) for i in range(50)]
            waits = [asyncio.ensure_future(self.finish(ticket)) for ticket in tickets]
            late = asyncio.ensure_future(self.finish(tickets[-1]))
            await asyncio.sleep(0)
            self.assertFalse(any(task.done() for task in waits))
            late.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await late
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.finish(tickets[0]), 0.01)
            held.end()
            await asyncio.gather(*waits)
            return x

        x = asyncio.run(main())
        self.assertEqual(x.buffer.read(nbytes=4), b"\x31\0\0\0")
        asyncio.run(asyncio.wait_for(self.finish(x.buffer.fill(1)), 60))

    async def finish(self, ticket):
        await ticket

    def test_claims_in_asyncio(self):
        async def add(x, count):
            for _ in range(count):
                async with heddle.claim(write=[x]) as claim:
                    array = claim.numpy(x)
                    before = int(array[0])
                    await asyncio.sleep(0)
                    array[0] = before + 1

        async def main():
            x = heddle.zeros(1, "i64", kind="pinned")
            await asyncio.gather(*(add(x, 20) for _ in range(10)))
            self.assertEqual(x.item(), 200)
            failed = heddle.zeros(1, kind="pinned")
            with self.assertRaises(KeyError):
                async with heddle.claim(write=[failed]):
                    raise KeyError
            with self.assertRaises(heddle.Error):
                async with heddle.claim(failed):
                    pass

        asyncio.run(main())

    def test_loops_that_end(self):
        """A loop that ends with open waits leaves nothing behind."""
        x = heddle.zeros(1, kind="pinned")
        held = heddle.claim(write=[x]).begin()
        ticket = x.buffer.fill(1)

        async def main():
            task = asyncio.ensure_future(self.finish(ticket))
            await asyncio.sleep(0)
            self.assertFalse(task.done())

        asyncio.run(main())
        held.end()
        ticket.wait(60)


class Claims(unittest.TestCase):
    def test_order(self):
        x, y = heddle.zeros((4, 6), kind="pinned"), heddle.zeros((4, 6), kind="unified")
        x.buffer.fill(0x3F800000)
        with heddle.claim(x, write=[y[1:3]], label="copy") as claim:
            with self.assertRaises(ValueError):
                claim.numpy(y)
            self.assertTrue(claim.numpy(y[1:3].T).flags.writeable)
            source = claim.numpy(x)
            self.assertTrue((source == 1).all())
            self.assertFalse(source.flags.writeable)
            later = heddle.copy(x, y)
            self.assertFalse(later.done)
        later.wait(60)
        self.assertEqual(x.numpy().sum(), 0)

    def test_views(self):
        x = heddle.array(np.arange(24).reshape(4, 6), kind="pinned")
        part, back = x[1:, ::2], x.T[::-1]
        with heddle.claim(write=[part, back]) as claim:
            np.testing.assert_array_equal(claim.numpy(back), np.arange(24).reshape(4, 6).T[::-1])
            claim.numpy(part)[:] = -1
        self.assertEqual((x.numpy() == -1).sum(), 9)

    def test_failures(self):
        x, y = heddle.zeros(4, kind="pinned"), heddle.zeros(4, kind="pinned")
        with self.assertRaises(ZeroDivisionError), heddle.claim(y, write=[x], label="broken"):
            1 / 0  # noqa: B018
        with self.assertRaises(heddle.Error) as caught:
            x.numpy()
        self.assertEqual(caught.exception.status, Status.FAILED)
        self.assertEqual(caught.exception.operation, "claim")
        self.assertEqual(y.numpy().sum(), 0)
        x.write(1)
        self.assertEqual(x.numpy().sum(), 4)

    def test_a_block_that_did_not_begin_changes_nothing(self):
        async def wait(how):
            async def claim():
                async with heddle.claim(write=[x]):
                    self.fail("claimed twice")

            task = asyncio.ensure_future(claim())
            await asyncio.sleep(0)
            if how == "cancel":
                task.cancel()
                await task
            await asyncio.wait_for(task, 0.01)

        for how in ("timeout", "cancel", "wait_for"):
            with self.subTest(how):
                x = heddle.array([5, 5], "f32", kind="pinned")
                with heddle.claim(x):
                    if how == "timeout":
                        with self.assertRaises(heddle.Error), heddle.claim(write=[x], timeout=0.01):
                            self.fail("claimed twice")
                    else:
                        with self.assertRaises((asyncio.CancelledError, asyncio.TimeoutError)):
                            asyncio.run(wait(how))
                self.assertEqual(x.numpy().tolist(), [5, 5])

    def test_a_block_that_did_not_begin_keeps_an_earlier_failure(self):
        x = heddle.zeros(2, kind="pinned")
        with self.assertRaises(ZeroDivisionError), heddle.claim(write=[x]):
            1 / 0  # noqa: B018
        with self.assertRaises(heddle.Error), heddle.claim(write=[x]):
            self.fail("the block reads failed bytes")
        with self.assertRaises(heddle.Error):
            x.numpy()

    def test_out_replaces_failed_bytes(self):
        x = heddle.zeros(2, kind="pinned")
        with self.assertRaises(ZeroDivisionError), heddle.claim(write=[x]):
            1 / 0  # noqa: B018
        with heddle.claim(out=x) as claim:
            claim.numpy(x)[:] = 7
        self.assertEqual(x.numpy().tolist(), [7, 7])

    def test_a_block_cannot_wait_for_its_own_claim(self):
        for kind in ("pinned", "unified"):
            x = heddle.zeros(4, kind=kind)
            with heddle.claim(write=[x[:2]], label="own"):
                for call in (x.numpy, lambda x=x: x.write(1), lambda x=x: x.buffer.write(bytes(4), 4)):
                    with self.subTest(kind), self.assertRaisesRegex(heddle.Error, "own.*claim.numpy"):
                        call()
            with heddle.claim(x):
                self.assertEqual(x.numpy().sum(), 0)
            x.write(1)
            self.assertEqual(x.numpy().sum(), 4)

    def test_a_mapped_buffer_is_not_freed(self):
        x = heddle.zeros(4, kind="pinned")
        with x.buffer.map() as view:
            with self.assertRaisesRegex(heddle.Error, "mapped"):
                x.buffer.free()
            view[0] = 1
        x.buffer.free()

    def test_one_tensor_is_one_use(self):
        x = heddle.zeros((3, 2), kind="pinned")
        with heddle.claim(write=x) as claim:
            claim.numpy(x)[:] = 1
            claim.numpy(x[1:])[:] = 2
        self.assertEqual(x.numpy().tolist(), [[1, 1], [2, 2], [2, 2]])
        with heddle.claim(x[:2]) as claim:
            array = claim.numpy(x[1:2])
            self.assertEqual(array.tolist(), [[2, 2]])
            self.assertFalse(array.flags.writeable)
            with self.assertRaises(ValueError):
                claim.numpy(x[1:])
        with self.assertRaises(TypeError):
            heddle.claim(write=[1])

    def test_a_claim_waits_with_a_limit(self):
        x = heddle.zeros(4, kind="pinned")
        with heddle.claim(write=[x]), self.assertRaises(heddle.Error) as caught, heddle.claim(x, timeout=0.01):
            self.fail("claimed twice")
        self.assertEqual(caught.exception.status, Status.TIMEOUT)
        self.assertEqual(x.numpy().sum(), 0)

    def test_a_lost_claim_ends(self):
        x = heddle.zeros(4, kind="pinned")
        heddle.claim(write=[x]).begin()
        ticket = x.buffer.fill(0)
        ticket.wait(60)

    def test_reads_beside_a_claim(self):
        """A read waits only for its own bytes."""
        x = heddle.zeros(8, kind="pinned")
        with heddle.claim(write=[x[4:]]):
            x[:4].buffer.fill(0x3F800000, nbytes=16)
            self.assertEqual(x[:4].numpy().sum(), 4)
            with self.assertRaises(heddle.Error):
                x.buffer.wait(timeout=0)

    def test_streams(self):
        if heddle.current().driver == "host" and heddle.current().placement == "process":
            with self.assertRaises(heddle.Error) as caught:
                heddle.claim(heddle.zeros(1), stream=1).begin()
            self.assertEqual(caught.exception.status, Status.UNSUPPORTED)
            return
        x = heddle.zeros(4)
        with heddle.claim(write=[x], stream=1):
            self.assertFalse(hasattr(x, "__cuda_array_interface__"))  # memory of the CPU
        x.buffer.fill(0).wait(60)

    def test_streams_of_others(self):
        class Stream:
            def __init__(self, **facts):
                self.__dict__.update(facts)

        from heddle.claims import stream_of

        class Core:
            def __cuda_stream__(self):
                return 0, 77

        self.assertEqual(stream_of(Core()), 77)
        self.assertEqual(stream_of(Stream(cuda_stream=7)), 7)
        self.assertEqual(stream_of(Stream(ptr=8)), 8)
        self.assertEqual(stream_of(Stream(handle=ctypes.c_void_p(9))), 9)
        self.assertEqual(stream_of(Stream(handle=ctypes.c_void_p(None))), 0)
        self.assertEqual(stream_of(2), 2)


class Threads(unittest.TestCase):
    def test_threads_share_tensors(self):
        x = heddle.zeros(1000)
        ones = heddle.array(np.ones(1000), "f32")
        axpy = builtin("hd_axpy_f32")
        failures = []

        def work():
            try:
                for _ in range(50):
                    axpy(x, ones, 1, 1000, threads=1000)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue((x.numpy() == 400).all())


@unittest.skipIf(heddle.current().placement == "process", "the streams are in another process")
class LaneCalls(unittest.TestCase):
    def test_order(self):
        """The function runs behind earlier work in the lane, and later work waits for it."""
        x = heddle.zeros(4, "u32", kind="pinned")
        seen = []
        with heddle.claim(write=[x]) as claim, heddle.lane() as lane:
            ticket = lane.run_native(lambda stream: seen.append((stream, list(view))), heddle.inout(x))
            view = claim.numpy(x)
            view[:] = 7
            later = x.buffer.fill(8)
            self.assertFalse(ticket.done)
            self.assertEqual(seen, [])
        ticket.wait(60)
        later.wait(60)
        self.assertEqual([values for _, values in seen], [[7] * 4])
        self.assertNotEqual(seen[0][0], 0)
        self.assertEqual(x.numpy().tolist(), [8] * 4)

    def test_exceptions(self):
        lane, x = heddle.lane(), heddle.zeros(4)

        def fails(stream):
            raise KeyError("lost")

        ticket = lane.run_native(fails, heddle.out(x))
        with self.assertRaises(heddle.Error) as caught:
            ticket.wait(60)
        self.assertEqual(caught.exception.status, heddle.Status.FAILED)
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        with self.assertRaises(heddle.Error):
            lane.run_native(fails, heddle.out(x))
        lane.reset(60)
        with self.assertRaises(TypeError):
            lane.run_native(fails, x)

    def test_calls_that_never_run(self):
        """The package forgets the function of a call whose input failed."""
        lane, x = heddle.lane(), heddle.zeros(4)
        with self.assertRaises(ZeroDivisionError), heddle.claim(write=[x]):
            raise ZeroDivisionError

        class Function:
            def __call__(self, stream):
                raise AssertionError("the input failed")

        function = Function()
        gone = weakref.ref(function)
        with self.assertRaises(heddle.Error):
            lane.run_native(function, heddle.in_(x)).wait(60)
        del function
        lane.reset(60)
        lane.run_native(lambda stream: None).wait(60)
        gc.collect()
        self.assertIsNone(gone())


@unittest.skipUnless(heddle.current().placement == "process", "only worker processes refuse lane calls")
class NoLaneCalls(unittest.TestCase):
    def test_refusal(self):
        with self.assertRaises(heddle.Error) as caught:
            heddle.lane().run_native(print)
        self.assertEqual(caught.exception.status, heddle.Status.UNSUPPORTED)


if __name__ == "__main__":
    unittest.main()
