"""check_torch_native.py - the C functions that PyTorch calls for memory, on host devices.

The functions get the calls that PyTorch would make, in random histories. Streams are those of the driver, and work in
them is fills and copies. Each copy must find what the model expects.
"""

import ctypes as c
import itertools
import mmap
import os
import random
import threading
import unittest

import heddle
from heddle import _abi
from heddle._library import lib
from heddle._torch import Figures, native, use_large_pages

DEVICES, STREAMS = 2, 3
MIB = 1 << 20
RUNTIME = heddle.open(
    driver="host", host_devices=DEVICES, host_memory="256M", host_schedule=os.environ.get("SCHEDULE", "0")
)
NON_BLOCKING, RELAXED = 1, 2


def entry(name, *types):
    out = c.c_void_p()
    status = lib.hd_driver_entry(b"host", name.encode(), c.byref(out))
    assert status == 0, name
    function = c.CFUNCTYPE(c.c_int, *types)(out.value)

    def call(*arguments):
        code = function(*arguments)
        assert code == 0, (name, code)

    return call


pointer, size, word = c.c_void_p, c.c_size_t, c.c_uint
retain = entry("cuDevicePrimaryCtxRetain", pointer, c.c_int)
set_current = entry("cuCtxSetCurrent", pointer)
synchronize = entry("cuCtxSynchronize")
stream_create = entry("cuStreamCreate", pointer, word)
stream_destroy = entry("cuStreamDestroy", pointer)
stream_synchronize = entry("cuStreamSynchronize", pointer)
event_create = entry("cuEventCreate", pointer, word)
event_record = entry("cuEventRecord", pointer, pointer)
event_wait = entry("cuStreamWaitEvent", pointer, pointer, word)
fill = entry("cuMemsetD32Async", c.c_uint64, word, size, pointer)
copy = entry("cuMemcpyAsync", c.c_uint64, c.c_uint64, size, pointer)
HOST_FUNCTION = c.CFUNCTYPE(None, pointer)
launch_host = entry("cuLaunchHostFunc", pointer, HOST_FUNCTION, pointer)
capture_begin = entry("cuStreamBeginCapture", pointer, c.c_int)
capture_end = entry("cuStreamEndCapture", pointer, pointer)
instantiate = entry("cuGraphInstantiateWithFlags", pointer, pointer, c.c_ulonglong)
graph_launch = entry("cuGraphLaunch", pointer, pointer)
exec_destroy = entry("cuGraphExecDestroy", pointer)
graph_destroy = entry("cuGraphDestroy", pointer)

heddle_status = native.hd_torch_begin(RUNTIME._handle, (c.c_int * DEVICES)(*range(DEVICES)), DEVICES)
assert heddle_status == 0, lib.hd_message()


def made(call, *arguments):
    out = c.c_void_p()
    call(c.byref(out), *arguments)
    return out.value


CHECKED, MOST_CHECKS = 4096, 4096
LOG = heddle.alloc(CHECKED * MOST_CHECKS, kind="pinned", runtime=RUNTIME)
PLACES = itertools.cycle(range(LOG.address, LOG.address + LOG.nbytes, CHECKED))
CONTEXTS = [made(retain, i) for i in range(DEVICES)]
set_current(CONTEXTS[0])
EVENT = made(event_create, 2)


def figures(device=0):
    out = Figures(size=c.sizeof(Figures))
    assert native.hd_torch_get_figures(device, c.byref(out)) == 0
    return out


class Gate:
    """Work behind a gate in a stream begins only when the gate opens."""

    def __init__(self, stream):
        self.opened = threading.Event()
        self.function = HOST_FUNCTION(lambda _: self.opened.wait(60) and None)
        launch_host(stream, self.function, None)

    def open(self):
        self.opened.set()


class Memory:
    """Memory that PyTorch got, filled with a number of its own."""

    count = 0

    def __init__(self, nbytes, stream, device=0):
        Memory.count += 1
        self.number, self.nbytes, self.stream, self.device = Memory.count, nbytes, stream, device
        self.address = native.hd_torch_try_alloc(nbytes, device, stream)
        assert self.address, lib.hd_message()
        fill(self.address, self.number, nbytes // 4, stream)

    def check(self, stream=None):
        """Submits a copy of the first words, whose content wrong() looks at later."""
        nbytes = min(self.nbytes, CHECKED)
        out = next(PLACES)
        copy(out, self.address, nbytes, self.stream if stream is None else stream)
        return out, nbytes, self.number

    def free(self):
        native.hd_torch_free(self.address, self.nbytes, self.device, self.stream)


def wrong(checks):
    """The number of copies with a wrong content."""
    return sum(set((c.c_uint * (n // 4)).from_address(out)) != {number} for out, n, number in checks)


class Base(unittest.TestCase):
    def setUp(self):
        set_current(CONTEXTS[0])
        self.streams = [None] + [made(stream_create, NON_BLOCKING) for _ in range(STREAMS)]

    def tearDown(self):
        synchronize()
        native.hd_torch_empty_cache()
        for i in range(DEVICES):
            left = figures(i)
            self.assertEqual((left.requested_bytes, left.live_bytes, left.cached_bytes), (0, 0, 0))
            self.assertEqual((left.graph_bytes, left.graphs), (0, 0))


class Order(Base):
    def test_a_stream_reuses_at_once(self):
        s = self.streams[1]
        first = Memory(5 * MIB, s)
        gate = Gate(s)
        checks = [first.check()]
        first.free()
        again = Memory(5 * MIB, s)
        self.assertEqual(again.address, first.address)
        checks.append(again.check())
        gate.open()
        stream_synchronize(s)
        self.assertEqual(wrong(checks), 0)
        again.free()

    def test_another_stream_waits(self):
        """Memory that goes to another stream by way of Heddle is used after the first stream's work."""
        s, t = self.streams[1:3]
        for nbytes, n_others in ((4096, 3), (3 * MIB, 3), (150 * MIB, 1)):
            first = Memory(nbytes, s)
            gate = Gate(s)
            checks = [first.check()]
            first.free()
            native.hd_torch_empty_cache()
            others = [Memory(nbytes, t) for _ in range(n_others)]
            checks += [m.check() for m in others]
            gate.open()
            synchronize()
            self.assertEqual(wrong(checks), 0)
            for m in others:
                m.free()
        self.assertEqual(others[0].address, first.address)  # there is no other room on the device

    def test_heddle_waits(self):
        """Memory that goes to a buffer of the program is used after the stream's work."""
        s = self.streams[1]
        first = Memory(8 * MIB, s)
        gate = Gate(s)
        checks = [first.check()]
        first.free()
        native.hd_torch_empty_cache()
        tensors = [heddle.empty(8 * MIB, "u8", runtime=RUNTIME) for _ in range(4)]
        for t in tensors:
            t.buffer.fill(7)
        gate.open()
        stream_synchronize(s)
        self.assertEqual(wrong(checks), 0)
        for t in tensors:
            self.assertEqual(set(t.buffer.read()), {7, 0})

    def test_recorded_streams(self):
        s, t = self.streams[1:3]
        first = Memory(3 * MIB, s)
        event_record(EVENT, s)
        event_wait(t, EVENT, 0)
        gate = Gate(t)
        native.hd_torch_record_stream(first.address, t)
        native.hd_torch_record_stream(first.address, t)
        native.hd_torch_record_stream(first.address, s)
        checks = [first.check(t)]
        first.free()
        self.assertEqual(figures().cached_bytes, 0)
        others = [Memory(3 * MIB, s) for _ in range(4)]
        checks += [m.check() for m in others]
        gate.open()
        synchronize()
        self.assertEqual(wrong(checks), 0)
        for m in others:
            m.free()

    def test_a_destroyed_stream(self):
        s = made(stream_create, NON_BLOCKING)
        first = Memory(3 * MIB, s)
        checks = [first.check()]
        first.free()
        stream_destroy(s)
        native.hd_torch_empty_cache()
        self.assertEqual(figures().cached_bytes, 0)
        self.assertEqual(wrong(checks), 0)

    def test_the_caches_stay_small(self):
        """Sizes that come one after the other do not add up."""
        s = self.streams[1]
        native.hd_torch_reset_peak(0)
        for nbytes in range(20 * MIB, 60 * MIB, 2 * MIB):
            m = Memory(nbytes, s)
            m.free()
            f = figures()
            self.assertLessEqual(f.lent_bytes + f.cached_bytes, f.live_peak_bytes * 3 / 2 + 2 * MIB)
        self.assertLess(figures().live_peak_bytes, 61 * MIB)

    def test_batches_of_two_sizes(self):
        """After the first batches, batches of two sizes in turns get all memory from the cache."""
        s = self.streams[1]
        native.hd_torch_reset_peak(0)

        def batch(size):
            activations = []
            for i in range(10):
                activations.append(Memory((3 + i) * size, s))
                Memory((2 + i % 3) * size, s).free()  # temporary memory
            most = figures().lent_bytes + figures().cached_bytes
            for m in reversed(activations):
                Memory(m.nbytes + size // 2, s).free()
                m.free()
            return most

        peak = 0
        for i in range(8):
            peak = max(peak, batch(MIB), batch(3 * MIB // 4))
            if i == 3:
                fetches = figures().fetches
        f = figures()
        self.assertEqual(f.fetches - fetches, 0)
        self.assertLessEqual(peak, f.live_peak_bytes * 3 / 2 + 2 * MIB)

    def test_history(self):
        for seed in range(8):
            self.history(random.Random(seed))

    def history(self, chance):
        live, checks, gates, opened = [], [], [], []
        sizes = [256, 4096, 70000 // 4 * 4, MIB, 3 * MIB, 5 * MIB]
        for _ in range(300):
            kind = chance.random()
            if kind < 0.45 or not live:
                live.append(Memory(chance.choice(sizes), chance.choice(self.streams)))
            elif kind < 0.55:
                m, t = chance.choice(live), chance.choice(self.streams[1:])
                event_record(EVENT, m.stream)
                event_wait(t, EVENT, 0)
                native.hd_torch_record_stream(m.address, t)
                checks.append(m.check(t))
            elif kind < 0.96:
                m = live.pop(chance.randrange(len(live)))
                checks.append(m.check())
                m.free()
            elif kind < 0.98:
                native.hd_torch_empty_cache()
            elif len(gates) < 4:
                gates.append(Gate(chance.choice(self.streams[1:])))
            else:
                opened.append(gates.pop(0))  # its function lives until the stream has called it
                opened[-1].open()
        for gate in gates:
            gate.open()
        for m in live:
            checks.append(m.check())
            m.free()
        synchronize()
        self.assertEqual(wrong(checks), 0)


class Limits(Base):
    def test_out_of_memory_names_the_holders(self):
        big = heddle.empty(150 * MIB, "u8", runtime=RUNTIME, label="somebody's tables")
        kept = Memory(60 * MIB, None)
        self.assertIsNone(native.hd_torch_try_alloc(200 * MIB, 0, None))
        message = lib.hd_message().decode()
        self.assertIn("somebody's tables", message)
        self.assertIn("torch", message)
        del big
        kept.free()
        Memory(200 * MIB, None).free()

    def test_caches_make_room(self):
        """Free memory of any stream serves a request that would fail, of PyTorch and of Heddle."""
        parts = [Memory(30 * MIB, s) for s in self.streams for _ in range(2)]
        for m in parts:
            m.free()
        Memory(200 * MIB, self.streams[1]).free()
        t = heddle.empty(200 * MIB, "u8", runtime=RUNTIME)
        self.assertEqual(t.nbytes, 200 * MIB)

    def test_a_fraction(self):
        native.hd_torch_set_fraction(0.25, 0)
        kept = Memory(40 * MIB, None)
        self.assertIsNone(native.hd_torch_try_alloc(30 * MIB, 0, None))
        self.assertIn(b"set_per_process_memory_fraction", lib.hd_message())
        kept.free()
        Memory(50 * MIB, None).free()
        native.hd_torch_set_fraction(1.0, 0)
        Memory(100 * MIB, None).free()

    def test_odd_calls(self):
        self.assertIsNone(native.hd_torch_try_alloc(0, 0, None))
        self.assertIsNone(native.hd_torch_try_alloc(256, DEVICES, None))
        native.hd_torch_free(None, 0, 0, None)
        native.hd_torch_free(0x1000, 256, 0, None)
        native.hd_torch_record_stream(0x1000, None)
        self.assertNotEqual(native.hd_torch_begin(RUNTIME._handle, (c.c_int * 1)(0), 1), 0)

    def test_segments(self):
        """Segments are one piece, with the label of the thread."""
        native.hd_torch_set_label(b"weights")
        address = native.hd_torch_pool_alloc(20 * MIB, 0, None)
        self.assertTrue(address)
        buffer = native.hd_torch_find(address)
        out = _abi.Export(size=c.sizeof(_abi.Export))
        self.assertEqual(lib.hd_buffer_export(buffer, _abi.ExportKind.DESCRIPTOR, c.byref(out)), 0)
        os.close(out.descriptor)
        report = RUNTIME.memory_text()
        self.assertIn("weights", report)
        self.assertIsNone(native.hd_torch_pool_alloc(1 << 40, 0, None))
        native.hd_torch_pool_free(address, 20 * MIB, 0, None)
        self.assertIsNone(native.hd_torch_find(address))

    def test_second_device(self):
        set_current(CONTEXTS[1])
        m = Memory(3 * MIB, None, device=1)
        checks = [m.check()]
        synchronize()
        self.assertEqual(wrong(checks), 0)
        m.free()
        set_current(CONTEXTS[0])


class Graphs(Base):
    def captured(self, s, nbytes, mode=RELAXED):
        """A graph that fills temporary memory, copies it to memory that stays, and the memory that stays."""
        gone = Memory(nbytes, s)  # allocated before the capture, and freed in it
        capture_begin(s, mode)
        first = Memory(nbytes, s)
        out = Memory(nbytes, s)
        copy(out.address, first.address, nbytes, s)
        copy(out.address, gone.address, nbytes, s)
        copy(out.address, first.address, nbytes, s)
        gone.free()
        first.free()
        again = Memory(nbytes, s)
        self.assertEqual(again.address, first.address)
        again.free()
        graph = made(lambda out: capture_end(s, out))
        executable = made(lambda out: instantiate(out, graph, 0))
        graph_destroy(graph)
        out.number = first.number
        return executable, out

    def test_replays_while_others_churn(self):
        s, t = self.streams[1:3]
        for nbytes, mode in ((4096, 0), (3 * MIB, 0), (3 * MIB, RELAXED)):
            executable, out = self.captured(s, nbytes, mode)
            kept = []
            for i in range(20):
                kept.append(Memory(nbytes, self.streams[i % 3]))
                checks = [m.check() for m in kept]
                graph_launch(executable, t)
                checks.append(out.check(t))
                synchronize()
                self.assertEqual(wrong(checks), 0)
                if i % 3 == 2:
                    kept.pop(0).free()
            for m in kept:
                m.free()
            self.assertEqual(figures().graphs, 1)
            exec_destroy(executable)
            out.free()
            synchronize()
            native.hd_torch_empty_cache()
            self.assertEqual(figures().graphs, 0)

    def test_memory_outlives_its_graph(self):
        s = self.streams[1]
        executable, out = self.captured(s, MIB)
        graph_launch(executable, s)
        exec_destroy(executable)
        synchronize()
        others = [Memory(MIB, t) for t in self.streams * 2]
        checks = [m.check() for m in [out, *others]]
        synchronize()
        self.assertEqual(wrong(checks), 0)
        for m in [out, *others]:
            m.free()

    def test_a_freed_result_stays_with_the_graph(self):
        s = self.streams[1]
        executable, out = self.captured(s, 3 * MIB)
        out.free()
        others = [Memory(3 * MIB, t) for t in self.streams * 2]
        self.assertNotIn(out.address, [m.address for m in others])
        checks = [m.check() for m in others]
        synchronize()
        graph_launch(executable, s)
        checks += [m.check() for m in others]
        synchronize()
        self.assertEqual(wrong(checks), 0)
        exec_destroy(executable)
        for m in others:
            m.free()

    def test_two_streams_of_a_capture(self):
        """A stream of the capture does not reuse what another one freed."""
        s, t = self.streams[1:3]
        capture_begin(s, RELAXED)
        first = Memory(3 * MIB, s)
        event_record(EVENT, s)
        event_wait(t, EVENT, 0)
        first.free()
        other = Memory(3 * MIB, t)
        self.assertNotEqual(other.address, first.address)
        event_record(EVENT, t)
        event_wait(s, EVENT, 0)
        native.hd_torch_record_stream(other.address, s)
        other.free()
        again = Memory(3 * MIB, t)
        self.assertNotEqual(again.address, other.address)
        event_record(EVENT, t)
        event_wait(s, EVENT, 0)
        again.free()
        graph_destroy(made(lambda out: capture_end(s, out)))

    def test_a_stream_is_destroyed_before_a_capture(self):
        """Memory whose stream is gone leaves the cache without a wait that would spoil the capture."""
        s, gone = self.streams[1], made(stream_create, NON_BLOCKING)
        left = Memory(3 * MIB, gone)
        stream_synchronize(gone)
        left.free()
        stream_destroy(gone)
        capture_begin(s, RELAXED)
        first = Memory(3 * MIB, s)
        native.hd_torch_empty_cache()
        first.free()
        graph_destroy(made(lambda out: capture_end(s, out)))

    def test_a_spoilt_capture(self):
        s = self.streams[1]
        capture_begin(s, 0)
        m = Memory(MIB, s)
        with self.assertRaises(AssertionError):
            stream_synchronize(s)
        m.free()
        with self.assertRaises(AssertionError):
            made(lambda out: capture_end(s, out))


class Pages(unittest.TestCase):
    def large(self, address):
        """True if the system may use large pages at this address."""
        inside = False
        with open("/proc/self/smaps") as file:
            for line in file:
                first = line.split()[0]
                if "-" in first and not first.endswith(":"):
                    low, high = (int(x, 16) for x in first.split("-"))
                    inside = low <= address < high
                elif inside and first == "VmFlags:":
                    return "hg" in line.split()
        raise AssertionError("no memory at %#x" % address)

    def test_large_memory_uses_large_pages(self):
        system_has = os.path.exists("/sys/kernel/mm/transparent_hugepage")
        for nbytes, wanted in ((64 * MIB, system_has), (16 * MIB, False)):
            with mmap.mmap(-1, nbytes + 4 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
                base = c.c_char.from_buffer(memory)
                address = c.addressof(base) + 4096
                use_large_pages(address, nbytes)
                self.assertEqual(self.large(address + 4 * MIB), wanted)
                self.assertFalse(self.large(c.addressof(base)))
                self.assertFalse(self.large(c.addressof(base) + nbytes + 4 * MIB - 4096))
                del base


class Threads(Base):
    def test_many_threads(self):
        """Threads allocate in streams of their own, and free what others allocated."""
        results = []
        shared, lock = [], threading.Lock()

        def work(seed):
            chance = random.Random(seed)
            set_current(CONTEXTS[0])
            s = made(stream_create, NON_BLOCKING)
            checks = []
            for _ in range(150):
                m = Memory(chance.choice([256, 4096, MIB, 3 * MIB]), s)
                checks.append(m.check())
                with lock:
                    shared.append(m)
                    other = shared.pop(chance.randrange(len(shared)))
                other.free()
            stream_synchronize(s)
            results.append(wrong(checks))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for m in shared:
            m.free()
        self.assertEqual(results, [0] * 4)


if __name__ == "__main__":
    unittest.main()
