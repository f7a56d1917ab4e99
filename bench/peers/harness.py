"""harness.py - the common part of the scripts that measure allocators: runs all workloads, prints a JSON line for each.

A peer is an object with these members:
  name, facts      a text, and a dictionary that is added to every line
  pairs(bytes, repeats, threads, timed)
                   runs `repeats` pairs of allocation and free in each thread. Returns the nanoseconds from the begin
                   of the first thread to the end of the last one. With `timed`, returns a list: the time of each pair
  replay(operations, timed)
                   runs a sequence, then frees the remaining blocks. Returns the nanoseconds of the operations. With
                   `timed`, returns a list: the time of each operation
  holding(operations)
                   a context manager: runs the operations, and keeps the remaining blocks until the context ends
  clear()          gives all memory back to the driver and resets the peaks
  peak_reserved()  the most bytes of the driver that the peer held since clear()

Fields of a line:
  operation        "pair" or "call": the unit of ns_per_op and p99_ns
  ns_per_op        median of several rounds after the first. With several threads, the time of a pair in one thread
  first_ns_per_op  the first round, in which the allocator still gets memory from the driver
  p99_ns           from a further round that times each operation. It includes the cost of reading the clock
  peak_reserved, peak_live
                   bytes. For a sequence, those of its first round
  python           true if Python calls the operations. The figures then include the cost of Python
  loop_ns          with `python`: the cost of the same loop with functions that do almost nothing
"""

import argparse
import contextlib
import glob
import json
import operator
import os
import statistics
import subprocess
import sys
import threading
import time

import workloads

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_LOG = os.path.join(HERE, "..", "..", "tools", "memory-log")
LOGS = os.path.join(HERE, "..", "logs")
ROUNDS = 7


class PythonPeer:
    """A peer that calls Python functions: allocate(bytes, stream) returns a block, and free(block) frees it."""

    name = "none"
    facts = {}

    @staticmethod
    def allocate(size, stream):
        raise NotImplementedError

    @staticmethod
    def free(block):
        raise NotImplementedError

    def pairs(self, size, repeats, threads=1, timed=False):
        allocate, free, now = self.allocate, self.free, time.perf_counter_ns
        barrier = threading.Barrier(threads)
        taken = []

        def whole():
            barrier.wait()
            begun = now()
            for _ in range(repeats):
                free(allocate(size, 0))
            taken.append((begun, now()))

        def each():
            times = []
            barrier.wait()
            for _ in range(repeats):
                begun = now()
                free(allocate(size, 0))
                times.append(now() - begun)
            taken.append(times)

        run = each if timed else whole
        others = [threading.Thread(target=run) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        run()
        for thread in others:
            thread.join()
        if timed:
            return [one for times in taken for one in times]
        return max(end for _, end in taken) - min(begun for begun, _ in taken)

    def replay(self, operations, timed=False):
        allocate, free, now = self.allocate, self.free, time.perf_counter_ns
        blocks = {}
        times = []
        begun = now()
        if timed:
            for operation in operations:
                start = now()
                if operation[0] == "a":
                    blocks[operation[1]] = allocate(operation[2], operation[3])
                else:
                    free(blocks.pop(operation[1]))
                times.append(now() - start)
        else:
            for operation in operations:
                if operation[0] == "a":
                    blocks[operation[1]] = allocate(operation[2], operation[3])
                else:
                    free(blocks.pop(operation[1]))
        taken = now() - begun
        while blocks:
            free(blocks.popitem()[1])
        return times if timed else taken

    @contextlib.contextmanager
    def holding(self, operations):
        blocks = {}
        for operation in operations:
            if operation[0] == "a":
                blocks[operation[1]] = self.allocate(operation[2], operation[3])
            else:
                self.free(blocks.pop(operation[1]))
        yield
        while blocks:
            self.free(blocks.popitem()[1])


class NothingPeer(PythonPeer):
    """Measures the cost of the loops alone."""

    allocate = staticmethod(operator.add)
    free = staticmethod(operator.neg)


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Measure:
    def __init__(self, peer, python, scale):
        self.peer = peer
        self.python = python
        self.scale = scale  # divisor of the repetitions: more than 1 for a quick run

    def line(self, workload, operation, rounds, p99, loop, peaks, threads=1):
        line = {
            "peer": self.peer.name,
            "workload": workload,
            "operation": operation,
            "threads": threads,
            "ns_per_op": round(statistics.median(rounds[1:]), 1),
            "first_ns_per_op": round(rounds[0], 1),
            "p99_ns": p99,
            "peak_reserved": peaks[0],
            "peak_live": peaks[1],
            "python": self.python,
        }
        if self.python:
            line["loop_ns"] = round(loop, 1)
        line.update(self.peer.facts)
        print(json.dumps(line), flush=True)

    def pairs(self, workload, size, repeats, threads=1, around=()):
        repeats = max(repeats // self.scale, 10)
        peer = self.peer
        peer.clear()
        with peer.holding(around):
            rounds = [peer.pairs(size, repeats, threads) / repeats for _ in range(ROUNDS + 1)]
            p99 = percentile(peer.pairs(size, repeats, threads, timed=True), 0.99)
            peaks = peer.peak_reserved(), max(workloads.peak_live(around), size * threads)
        loop = NothingPeer().pairs(size, repeats) / repeats if self.python else 0
        self.line(workload, "pair", rounds, p99, loop, peaks, threads)

    def replay(self, workload, operations):
        peer = self.peer
        count = len(operations)
        peer.clear()
        rounds = [peer.replay(operations) / count]
        peaks = peer.peak_reserved(), workloads.peak_live(operations)  # as in a program that runs it once
        rounds += [peer.replay(operations) / count for _ in range(max(ROUNDS // self.scale, 1))]
        p99 = percentile(peer.replay(operations, timed=True), 0.99)
        loop = NothingPeer().replay(operations) / count if self.python else 0
        self.line(workload, "call", rounds, p99, loop, peaks)

    def attempt(self, workload, measure, *arguments):
        """Measures a workload. If it fails, prints the error, so that the other workloads are still measured."""
        try:
            measure(workload, *arguments)
            return True
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            line = {"peer": self.peer.name, "workload": workload, "error": f"{type(error).__name__}: {text}"}
            print(json.dumps(line), flush=True)
            return False

    def all(self, logs):
        fine = True
        for size in workloads.PAIR_SIZES:
            for threads in (1, 8):
                fine &= self.attempt(f"pair-{size}", self.pairs, size, 20000, threads)
        for count in workloads.HOLES:
            fine &= self.attempt(f"holes-{count}", self.pairs, workloads.KIB, 5000, 1, workloads.holes_around(count))
        fine &= self.attempt(f"live-{workloads.LIVE}", self.replay, workloads.live())
        fine &= self.attempt("random", self.replay, workloads.random())
        for path, operations in logs:
            fine &= self.attempt(os.path.basename(path), self.replay, operations)
        return fine


def read_log(path):
    """Reads the operations of a recorded log, in any format that tools/memory-log reads."""
    found = subprocess.run([sys.executable, MEMORY_LOG, path], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        sys.exit(2)  # the tool printed the reason
    operations = []
    for line in found.stdout.splitlines()[1:]:
        words = line.split()
        if words[0] != "#":
            operations.append((words[0], *map(int, words[1:])))
    return operations


def command_line(text, extra=()):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", metavar="LOG", help="recorded logs to replay (default: those of bench/logs)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions")
    for name, said in extra:
        parser.add_argument(name, action="store_true", help=said)
    options = parser.parse_args()
    options.logs = options.logs or sorted(glob.glob(os.path.join(LOGS, "*.hdlog")))
    return options


def measure(peer, options, python):
    """Measures all workloads on one peer. Returns the exit status."""
    logs = [(path, read_log(path)) for path in options.logs]
    return 0 if Measure(peer, python, 10 if options.quick else 1).all(logs) else 1


def skip(name, why):
    print(f"{name}: {why}", file=sys.stderr)
    sys.exit(77)
