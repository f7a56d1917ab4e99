"""check_other.py - runtimes, errors, traces, reports, and the loss of a device."""

import contextlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest

import heddle
from heddle import Status, config, paths


class Runtimes(unittest.TestCase):
    def test_the_current_one(self):
        first = heddle.current()
        with heddle.open() as second:
            self.assertIs(heddle.current(), first)
            self.assertIs(heddle.zeros(1, runtime=second).runtime, second)
            with heddle.lane(runtime=second):
                self.assertIs(heddle.current(), second)
                self.assertIs(heddle.zeros(1).runtime, second)
                self.assertIs(heddle.zeros(1, runtime=first).runtime, first)
            x = heddle.zeros(3, device=second.devices[1])
            self.assertEqual((x.runtime, x.device), (second, 1))
            self.assertIs(heddle.lane(second.devices[1]).runtime, second)
            for refused in (
                lambda: x.to(first.devices[0]),
                lambda: first.lane(second.devices[0]),
                lambda: first.memory_stats(second.devices[0]),
                lambda: heddle.zeros(1, device=second.devices[0], runtime=first),
            ):
                with self.assertRaisesRegex(ValueError, "another runtime"):
                    refused()
        self.assertIn("closed", repr(second))
        second.close()

    def test_after_the_end(self):
        runtime = heddle.open()
        x = heddle.zeros(4, runtime=runtime)
        lane, kernel = runtime.lane(), heddle.builtin(runtime)["hd_axpy_f32"]
        ticket, held = x.buffer.fill(0), heddle.claim(x).begin()
        held.end()
        runtime.close()
        for call in (
            x.numpy,
            lane.wait,
            ticket.wait,
            runtime.lane,
            runtime.memory,
            lambda: heddle.zeros(1, runtime=runtime),
        ):
            with self.assertRaises(heddle.Error) as caught:
                call()
            self.assertEqual(caught.exception.status, Status.HANDLE)
        with self.assertRaises(heddle.Error):
            kernel(x, x, 1, 4, threads=4)
        for thing in (x.buffer, lane):
            getattr(thing, "free", getattr(thing, "close", None))()

    def test_options(self):
        with heddle.open("lane_slots=512", memory_debug=True) as runtime:
            options = runtime.options()
            self.assertEqual((options["lane_slots"], options["memory_debug"]), ("512", "on"))
        with self.assertRaises(heddle.Error) as caught:
            heddle.open(no_such_option=1)
        self.assertEqual(caught.exception.status, Status.OPTION)
        for wanted in ("1,3", '"1,3"'):
            with heddle.open(driver="host", devices=wanted) as runtime:
                self.assertEqual(len(runtime.devices), 2)
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "my cache")
            with heddle.open(driver="host", cache=place) as runtime:
                self.assertEqual(runtime.options()["cache"], place)
        for wrong in ('a"b', "a\nb"):
            with self.assertRaisesRegex(ValueError, "contain no quotes"):
                heddle.open(cache=wrong)

    def test_facts(self):
        runtime = heddle.current()
        self.assertEqual(runtime.info()["device_count"], len(runtime.devices))
        device = runtime.devices[0]
        self.assertEqual(device.info()["name"], device.name)
        self.assertEqual(len(device.info()["uuid"]), 16)
        self.assertFalse(device.is_lost)
        self.assertGreaterEqual(device.stats()["operations"], 0)
        self.assertEqual(device.lane().device, device)
        self.assertEqual(runtime.peer(0, 0)["verdict"], heddle.PeerVerdict.USABLE)
        with self.assertRaises(heddle.Error) as caught:
            runtime.lane(99)
        self.assertEqual(caught.exception.status, Status.NO_DEVICE)

    def test_a_forgotten_runtime_warns(self):
        runtime = heddle.open()
        with self.assertWarns(ResourceWarning):
            del runtime


class Errors(unittest.TestCase):
    def test_pickle(self):
        try:
            heddle.alloc(0)
        except heddle.Error as error:
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(again), again.status, again.__dict__), (str(error), error.status, error.__dict__))
            self.assertEqual(str(error), error.message)
            self.assertIsNone(error.lane)

    @unittest.skipUnless(os.environ.get("HEDDLE_PLACEMENT") == "process", "needs worker processes")
    def test_losses(self):
        with heddle.open() as runtime:
            x = heddle.zeros(4, runtime=runtime)
            kept = heddle.alloc(16, keep=True, runtime=runtime)
            kept.write(b"0123456789abcdef")
            kept.save().wait(60)
            held = heddle.claim(x).begin()
            ticket = x.buffer.fill(1)
            os.kill(runtime.devices[0].info()["worker_pid"], signal.SIGKILL)
            with self.assertRaises(heddle.Error) as caught:
                runtime.default_lane(0).wait(60)
                x.numpy()
            self.assertEqual(caught.exception.status, Status.DEVICE_LOST)
            held.end()
            with self.assertRaises(heddle.Error) as caught:
                ticket.wait(60)
            self.assertEqual(caught.exception.status, Status.DEVICE_LOST)
            self.assertEqual(caught.exception.operation, "fill")
            self.assertTrue(runtime.devices[0].is_lost)
            (loss,) = runtime.losses()
            self.assertEqual((loss["device"], loss["cause"]), (0, heddle.LossCause.WORKER_ENDED))
            self.assertEqual(runtime.losses(), [])
            runtime.devices[0].restart()
            self.assertEqual(kept.read(), b"0123456789abcdef")


class Reports(unittest.TestCase):
    def test_memory(self):
        runtime = heddle.current()
        x = heddle.zeros(1 << 20, label="weights")
        report = runtime.memory()
        self.assertIn("weights", json.dumps(report))
        self.assertIn("weights", runtime.memory_text())
        self.assertGreaterEqual(runtime.devices[0].memory()["live_bytes"], x.nbytes)
        self.assertGreaterEqual(runtime.memory_stats()["reserved_bytes"], 0)
        self.assertEqual(x.device, 0)
        del x
        self.assertGreaterEqual(runtime.trim(0), 0)
        self.assertIsInstance(heddle.memory_report(), dict)

    def test_traces(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "run.hdtrace")
            with heddle.trace(file, detail="full") as trace:
                with heddle.range("warm-up"):
                    heddle.zeros(100).numpy()
                heddle.mark("half-way")
            self.assertGreater(trace.info["records"], 0)
            self.assertEqual(trace.info["dropped"], 0)
            with open(file, "rb") as content:
                records = content.read()
            self.assertEqual(trace.info["bytes"], len(records))
            self.assertIn(b"warm-up", records)
            self.assertIn(b"half-way", records)
            tool = [sys.executable, "-s", "-m", "heddle", "trace", file]
            said = subprocess.run(tool, check=True, capture_output=True, text=True).stdout
            self.assertIn("times of every operation", said)
        with self.assertRaises(ValueError):
            heddle.trace("file", detail="all")
        with self.assertRaises(ValueError):
            heddle.trace("file", limit=-1)
        with self.assertRaises(RuntimeError):
            heddle.trace("file").__exit__()
        with self.assertRaises(ValueError), heddle.trace("a\0b"):
            self.fail("a path with a zero byte")
        with self.assertRaises(ValueError):
            heddle.zeros(3, label="a\0b")

    def test_a_trace_that_was_left_running(self):
        with tempfile.TemporaryDirectory() as folder:
            heddle.trace(os.path.join(folder, "first")).__enter__()
            self.assertGreater(heddle.current().stop_trace()["bytes"], 0)
            with self.assertRaises(heddle.Error):
                heddle.current().stop_trace()
            with heddle.trace(os.path.join(folder, "second")):
                pass
        with self.assertRaises(heddle.Error), heddle.trace("/no/such/folder/file"):
            pass

    def test_paths(self):
        for word in config.WORDS:
            run = [sys.executable, "-s", "-m", "heddle.config", word]
            said = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
            self.assertEqual(said, config.WORDS[word]())
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(config.main(["nothing"]), 2)
        self.assertEqual(paths.library(), os.environ["HEDDLE_SHARED_LIBRARY"])
        program = "import sys; sys.path.insert(0, %r); import heddle" % os.path.dirname(paths.PACKAGE)
        isolated = subprocess.run([sys.executable, "-E", "-s", "-c", program], capture_output=True, text=True)
        self.assertIn(os.path.join(paths.PACKAGE, "lib", paths.LIBRARY), isolated.stderr)


if __name__ == "__main__":
    unittest.main()
