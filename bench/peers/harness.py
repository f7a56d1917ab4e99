"""harness.py - how the scripts of this folder measure an allocator: every workload, one JSON line each.

A peer is an object with
  name, facts      text, and a dictionary that goes into every line
  pairs(bytes, repeats, threads, timed)
                   runs pairs of allocation and free, so many in each thread; returns the nanoseconds from the first
                   thread's beginning to the last one's end, or with `timed` a list of those of each pair
  replay(operations, timed)
                   runs a sequence from its first operation to its last, then frees what is left; returns the
                   nanoseconds of the operations, or with `timed` a list of those of each
  holding(operations)
                   a context in which what the operations leave live is live
  clear()          gives everything back to the driver and forgets peaks
  peak_reserved()  the most bytes held from the driver since clear()

Fields of a line: `operation` is what ns_per_op and p99_ns are of, a pair or a single call. ns_per_op is the median of
several rounds after the first; first_ns_per_op that of the first one, when the allocator still has to ask the driver
for memory. p99_ns is from a further round in which each operation is timed, by a clock whose own cost is in it. With
several threads ns_per_op is what a pair takes as one of them sees it. peak_reserved and peak_live are bytes; those of a
sequence are of its first round. `python` says whether the operations were called from Python, whose own cost is then in
the figures: loop_ns is what the same loop costs with functions that do next to nothing.
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
    """The parts of a peer whose operations are Python functions: allocate(bytes, stream) gives what free(it) takes."""

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
    """What the loops themselves cost."""

    allocate = staticmethod(operator.add)
    free = staticmethod(operator.neg)


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Measure:
    def __init__(self, peer, python, scale):
        self.peer = peer
        self.python = python
        self.scale = scale  # divides the repetitions, for a quick look

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
        peaks = peer.peak_reserved(), workloads.peak_live(operations)  # of a program that runs it once
        rounds += [peer.replay(operations) / count for _ in range(max(ROUNDS // self.scale, 1))]
        p99 = percentile(peer.replay(operations, timed=True), 0.99)
        loop = NothingPeer().replay(operations) / count if self.python else 0
        self.line(workload, "call", rounds, p99, loop, peaks)

    def attempt(self, workload, measure, *arguments):
        """A workload that fails, for want of memory say, does not keep the others from being measured."""
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
    """The operations of a recorded log, of any format that tools/memory-log reads."""
    found = subprocess.run([sys.executable, MEMORY_LOG, path], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        sys.exit(2)  # the tool has said why
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
    """Everything, for one peer; the exit status."""
    logs = [(path, read_log(path)) for path in options.logs]
    return 0 if Measure(peer, python, 10 if options.quick else 1).all(logs) else 1


def skip(name, why):
    print(f"{name}: {why}", file=sys.stderr)
    sys.exit(77)
