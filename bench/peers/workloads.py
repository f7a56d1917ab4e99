#!/usr/bin/env python3
"""workloads.py - the sequences of `heddle bench alloc` as logs, for measurements of other allocators.

usage: bench/peers/workloads.py NAME > NAME.hdlog      then: heddle bench alloc --replay NAME.hdlog
  random         20000 operations. 73 of 100 allocate 1 B to 64 MiB; the others free a random block. At most 16000 MiB
                 are live. random-N-MIB: 2 * N operations, sizes up to MIB MiB
  holes-4096     2 * 4096 blocks of 512 B, of which every second one is freed. Then 10000 pairs of 1 KiB, for which all
                 holes are too small. holes-N: N holes
  live-100000    100000 blocks of 256 B to 4 KiB are allocated, then freed in the same order. live-N: N blocks

A sequence is a list of ('a', id, bytes, stream) and ('f', id, stream). bench/alloc_log.c makes the same sequences.
"""

import signal
import sys

KIB = 1024
MIB = 1024 * KIB
PAIR_SIZES = (256, 4 * KIB, MIB, 64 * MIB)
HOLES = (4096, 65536)
LIVE = 100000


def splitmix64(seed):
    """Vigna's generator: yields 64-bit numbers."""
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def random(count=10000, most=64, cap=16000 * MIB):
    """2 * count operations with sizes up to `most` MiB. A free takes a random block from the list of live blocks, and
    the last block of the list moves to its place."""
    numbers = splitmix64(count + most)
    operations = []
    live_blocks = []  # (id, bytes)
    held = 0
    allocated = 0
    for _ in range(2 * count):
        size = next(numbers) % (most * MIB) + 1
        allocates = next(numbers) % 100 < 73 and held + size <= cap
        if allocates or not live_blocks:
            operations.append(("a", allocated, size, 0))
            live_blocks.append((allocated, size))
            held += size
            allocated += 1
        else:
            place = next(numbers) % len(live_blocks)
            block, size = live_blocks[place]
            live_blocks[place] = live_blocks[-1]
            live_blocks.pop()
            operations.append(("f", block, 0))
            held -= size
    return operations


def holes_around(count, size=KIB // 2):
    """The operations before the pairs of the workload holes: they leave `count` live blocks with a hole before each."""
    operations = [("a", block, size, 0) for block in range(2 * count)]
    return operations + [("f", block, 0) for block in range(0, 2 * count, 2)]


def holes(count=HOLES[0], pairs=10000):
    operations = holes_around(count)
    for block in range(2 * count, 2 * count + pairs):
        operations += [("a", block, KIB, 0), ("f", block, 0)]
    return operations + [("f", block, 0) for block in range(1, 2 * count, 2)]


def live(count=LIVE):
    numbers = splitmix64(1)
    operations = [("a", block, 256 + next(numbers) % (4096 - 256 + 1), 0) for block in range(count)]
    return operations + [("f", block, 0) for block in range(count)]


KINDS = {"random": (random, 2), "holes": (holes, 1), "live": (live, 1)}  # and the most numbers in a name


def named(name):
    """The sequence of this name, or None if there is none."""
    kind, *numbers = name.split("-")
    make, most = KINDS.get(kind, (None, 0))
    if len(numbers) > most or not all(word.isdigit() and 0 < int(word) <= 1 << 20 for word in numbers):
        return None
    return make and make(*map(int, numbers))


def peak_live(operations):
    sizes = {}
    held = peak = 0
    for operation in operations:
        if operation[0] == "a":
            sizes[operation[1]] = operation[2]
            held += operation[2]
            peak = max(peak, held)
        else:
            held -= sizes.pop(operation[1])
    return peak


def main(words):
    operations = named(words[0]) if len(words) == 1 else None
    if operations is None:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the reader may close the pipe early
    print(f"heddle-log 1\n# name: {words[0]}")
    print("\n".join(" ".join(map(str, operation)) for operation in operations))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
