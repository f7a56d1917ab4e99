"""check_process.py - programs that end, fork, are interrupted, or leave cycles. Needs no NumPy.

Each program runs in a process of its own. A program that hangs ends by the limit of the test.
"""

import os
import signal
import subprocess
import sys
import textwrap
import unittest

PLACEMENT = os.environ.get("HEDDLE_PLACEMENT", "thread")


def start(program):
    return subprocess.Popen(
        [sys.executable, "-s", "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Programs(unittest.TestCase):
    def runs(self, program, status=0, said="", complaint=""):
        process = start(program)
        out, errors = process.communicate()
        self.assertEqual(process.returncode, status, errors)
        self.assertEqual(out.strip(), said, errors)
        if complaint:
            self.assertIn(complaint, errors)
        else:
            self.assertEqual(errors, "")

    def interrupted(self, program):
        """The program says that it waits, gets Ctrl-C, and says how its wait ended."""
        process = start(program)
        self.assertEqual(process.stdout.readline(), "waits\n")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
        self.assertEqual((out, process.returncode), ("KeyboardInterrupt\n", 0), errors)

    # ---- the end of the interpreter ----

    def test_ends_with_everything_alive(self):
        self.runs(
            """
            import heddle
            x = heddle.zeros(1000)
            lane = heddle.lane()
            kernel = heddle.builtin()["hd_axpy_f32"]
            ticket = kernel(x, x, 1, 1000, threads=1000, lane=lane)
            claim = heddle.claim(x)
            cycle = [x, lane, kernel]
            cycle.append(cycle)
            """
        )

    def test_ends_by_exit(self):
        self.runs("import heddle, sys; x = heddle.zeros(10); sys.exit(3)", status=3)
        self.runs("import heddle, os; x = heddle.zeros(10); os._exit(4)", status=4)
        self.runs("import heddle; x = heddle.zeros(10); 1/0", status=1, complaint="ZeroDivisionError")

    def test_ends_while_threads_wait(self):
        self.runs(
            """
            import heddle, threading
            runtime = heddle.open(close_timeout=200)
            x = heddle.zeros(10)
            held = heddle.claim(write=[x]).begin()
            ticket = x.buffer.fill(1)
            began = threading.Event()
            def work():
                began.set()
                try:
                    ticket.wait()
                except heddle.Error:
                    pass
            threading.Thread(target=work, daemon=True).start()
            began.wait()
            held.end()
            """
        )

    def test_ends_with_an_open_claim(self):
        self.runs(
            """
            import heddle
            x = heddle.zeros(10)
            held = heddle.claim(write=[x]).begin()
            """
        )

    @unittest.skipIf(PLACEMENT == "process", "memory of a device has no address here")
    def test_ends_while_another_object_holds_a_tensor(self):
        self.runs(
            """
            import heddle
            runtime = heddle.open(close_timeout=3600000)  # an exit that waits for the capsule does not end
            x = heddle.zeros(10, kind="pinned")
            capsule = x.__dlpack__()
            """
        )

    def test_ends_with_global_tensors_and_memory_debug(self):
        self.runs(
            """
            import heddle
            runtime = heddle.open(memory_debug=True)
            x = heddle.zeros(10)
            """
        )

    def test_a_failure_at_the_end_is_one_line(self):
        process = start(
            """
            import ctypes, heddle
            from heddle._library import check, lib
            runtime = heddle.open(memory_debug=True)
            lane, buffer = runtime.default_lane(), ctypes.c_void_p()
            check(lib.hd_alloc(lane._handle, 100, ctypes.byref(buffer)))  # no object of Python owns it
            """
        )
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 0)
        self.assertRegex(errors, r"\Aheddle: at the end of the program: Runtime.close: .*100 bytes.*\n\Z")

    def test_the_package_is_imported_without_a_runtime(self):
        self.runs("import heddle; print(heddle.__version__.count('.'))", said="2")

    # ---- fork ----

    def test_fork(self):
        child = "x = heddle.zeros(4); print(x.buffer.read(nbytes=1))" if PLACEMENT == "process" else "print(b'\\0')"
        self.runs(
            """
            import heddle, os, sys, threading
            x = heddle.zeros(1000)
            lane = heddle.lane()
            ticket = x.buffer.fill(7)
            runtime = heddle.current()
            if os.fork() == 0:
                try:
                    for call in (x.buffer.read, lane.wait, runtime.memory):
                        try:
                            call()
                            sys.exit(5)
                        except heddle.Error as error:
                            if error.status != heddle.Status.HANDLE:
                                raise
                    lane.close()
                    x.buffer.free()
                    runtime.close()
                    if heddle.runtime._registry.usable():
                        sys.exit(6)
                    CHILD
                finally:
                    sys.stdout.flush()
                sys.exit(0)
            if os.WEXITSTATUS(os.wait()[1]):
                sys.exit(1)
            assert x.buffer.read(nbytes=4) == b"\\7\\0\\0\\0"
            ticket.wait(60)
            """.replace("CHILD", child),
            said="b'\\x00'",
        )

    def test_fork_while_a_thread_waits(self):
        self.runs(
            """
            import asyncio, heddle, os, sys
            x = heddle.zeros(4)
            async def main():
                held = heddle.claim(write=[x]).begin()
                ticket = x.buffer.fill(1)
                async def finish():
                    await ticket
                task = asyncio.ensure_future(finish())
                await asyncio.sleep(0)
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
                held.end()
                await task
            asyncio.run(main())
            print("done")
            """,
            said="done",
        )

    # ---- Ctrl-C ----

    HELD = """
        import heddle, sys
        x = heddle.zeros(4, kind="pinned")
        lane = heddle.lane()
        held = heddle.claim(write=[x]).begin()
        ticket = x.buffer.fill(1)
        out = bytearray(16)
        def more():
            with heddle.claim(x):
                pass
        lane.add_dependency(held)
        try:
            print("waits", flush=True)
            WAIT
        except KeyboardInterrupt:
            held.end()
            ticket.wait(60)
            lane.wait(60)
            print("KeyboardInterrupt")
        """

    def test_interrupted_waits(self):
        for wait in (
            "ticket.wait()",
            "lane.wait()",
            "x.buffer.wait()",
            "more()",
            "x.buffer.read()",
            "x.read_into(out)",
            "x.write(bytes(16))",
            "x.buffer.write(bytes(16))",
        ):
            with self.subTest(wait):
                self.interrupted(self.HELD.replace("WAIT", wait))
        for wait in ("x.read_into(out)", "x.write(bytes(16))"):
            with self.subTest(wait, kind="unified"):
                self.interrupted(self.HELD.replace("WAIT", wait).replace("pinned", "unified"))

    # ---- garbage ----

    def test_cycles(self):
        self.runs(
            """
            import gc, heddle
            gc.disable()
            runtime = heddle.current()
            class Node:
                pass
            def make():
                node = Node()
                node.x = heddle.zeros(1000)
                node.lane = heddle.lane()
                node.claim = heddle.claim(node.x).begin()
                node.module = heddle.builtin()
                node.itself = node
            for _ in range(300):  # a device has 256 lanes, and 160 of them serve claims
                make()
                gc.collect()
            print(runtime.memory_stats(0)["live_count"])
            """,
            said="0",
        )

    def test_a_runtime_in_a_cycle(self):
        self.runs(
            """
            import gc, heddle, warnings
            warnings.simplefilter("ignore", ResourceWarning)
            class Node:
                pass
            for _ in range(5):
                node = Node()
                node.runtime = heddle.open()
                node.x = heddle.zeros(10, runtime=node.runtime)
                node.itself = node
                del node
                gc.collect()
            print(len(heddle.runtime._registry.usable()))
            """,
            said="0",
        )


if __name__ == "__main__":
    unittest.main()
