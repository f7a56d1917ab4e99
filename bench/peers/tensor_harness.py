"""tensor_harness.py - the common part of the scripts that measure moves of tensors and matrix products.

Prints one JSON line per row. A row is a move or a product of two square matrices:
  ID=TYPE:SHAPE:ORDER   a row-major tensor of this shape, and the order of its dimensions in the copy. For example,
                        f32:4096x4096:1,0 is a transpose
  ID=TYPE:EDGE          a product
`heddle bench tensor` passes its own rows. Without arguments, the scripts measure ROWS.

A peer is an object with these members:
  name, facts      a text, and a dictionary that is added to every line
  tensor(type, shape)
                   makes a tensor of this shape whose bytes vary
  permuter(source, order)
                   returns a function that makes a contiguous copy of `source` with its dimensions in this order
  copier(source)   returns a function that copies the bytes of `source` on the device: the roofline
  multiplier(type, edge)
                   returns a function that multiplies two matrices; f32 matrices in f32
  right(source, order)
                   True if every element of a copy is in its place
  time(work, repeats)
                   calls the functions in `work` in turns, `repeats` times in all. Returns the device's milliseconds
  release()        gives all memory back to the driver

Fields of a line:
  gbs       1e9 bytes a second, read and written
  copy_gbs  the same for the device copy, measured in turns with the moves
  ratio     median over the rounds of gbs divided by copy_gbs
  gflops    for a product, instead of the others
The samples use several tensors in turns, as those of `heddle bench tensor` do. So no copy finds its data in a cache.
"""

import argparse
import json
import math
import statistics
import sys

ROWS = """
transpose_f32_4096=f32:4096x4096:1,0 transpose_f32_8192=f32:8192x8192:1,0 transpose_f32_16384=f32:16384x16384:1,0
transpose_f32_32768=f32:32768x32768:1,0 transpose_f32_10007x9973=f32:10007x9973:1,0 transpose_f16_16384=f16:16384x16384:1,0
transpose_f64_8192=f64:8192x8192:1,0 transpose_f64_16384=f64:16384x16384:1,0 permute_f32_5d=f32:32x64x48x56x64:0,3,1,4,2
permute_f32_5d_reversed=f32:32x64x48x56x64:4,3,2,1,0 permute_f32_5d_rows=f32:32x64x48x56x64:2,0,3,1,4
permute_f16_nhwc=f16:64x256x112x112:0,2,3,1 matmul_f32=f32:4096 matmul_f16=f16:4096 matmul_f64=f64:4096
""".split()

SIZES = {"u8": 1, "f16": 2, "f32": 4, "f64": 8, "c128": 16}
ROTATION = 1 << 30  # bytes
PAIRS = 8
ROUNDS = 5
SAMPLE_MS = 20


def repeats_for(peer, work, sample_ms):
    peer.time(work, 2)
    took = peer.time(work, 4) / 4
    return max(1, min(10000, round(sample_ms / took)))


def measure_copy(peer, element, shape, order, quick):
    payload = math.prod(shape) * SIZES[element]
    pairs = min(ROTATION // (2 * payload) + 1, PAIRS)
    sources = [peer.tensor(element, shape) for _ in range(pairs)]
    if not peer.right(sources[0], order):
        return {"error": "elements are not where they belong"}
    work = [peer.permuter(source, order) for source in sources]
    copies = [peer.copier(source) for source in sources]
    sample_ms = SAMPLE_MS / 4 if quick else SAMPLE_MS
    n, n_copies = repeats_for(peer, work, sample_ms), repeats_for(peer, copies, sample_ms)
    speed, roofline = [], []
    for _ in range(2 if quick else ROUNDS):
        roofline.append(2e-6 * payload * n_copies / peer.time(copies, n_copies))
        speed.append(2e-6 * payload * n / peer.time(work, n))
    return {
        "gbs": round(statistics.median(speed), 1),
        "copy_gbs": round(statistics.median(roofline), 1),
        "ratio": round(statistics.median(a / b for a, b in zip(speed, roofline)), 4),
    }


def measure_product(peer, element, edge, quick):
    work = [peer.multiplier(element, edge)]
    n = repeats_for(peer, work, SAMPLE_MS if quick else 3 * SAMPLE_MS)
    speed = [2e-6 * edge**3 * n / peer.time(work, n) for _ in range(2 if quick else ROUNDS)]
    return {"gflops": round(statistics.median(speed), 1)}


def command_line(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="ID=TYPE:SHAPE:ORDER or ID=TYPE:EDGE (default: a list)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, less time for each")
    options = parser.parse_args()
    options.rows = [parse_row(parser, row) for row in options.rows or ROWS]
    return options


def parse_row(parser, text):
    try:
        name, rest = text.split("=")
        element, *numbers = rest.split(":")
        shape = [int(n) for n in numbers[0].split("x")]
        order = [int(n) for n in numbers[1].split(",")] if len(numbers) == 2 else None
        right = element in SIZES and all(n > 0 for n in shape) and len(numbers) <= 2
        right = right and (sorted(order) == list(range(len(shape))) if order else len(shape) == 1)
    except (ValueError, IndexError):
        right = False
    if not right:
        parser.error(f"'{text}' is not ID=TYPE:SHAPE:ORDER or ID=TYPE:EDGE")
    return name, element, shape, order


def measure(peer, options):
    """Measures all rows. Returns the exit status."""
    fine = True
    for name, element, shape, order in options.rows:
        line = {"peer": peer.name, "row": name}
        try:
            if order:
                line.update(measure_copy(peer, element, shape, order, options.quick))
            else:
                line.update(measure_product(peer, element, shape[0], options.quick))
        except Exception as error:  # the other rows are still measured
            line["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        peer.release()
        fine = fine and "error" not in line
        line.update(peer.facts)
        print(json.dumps(line), flush=True)
    return 0 if fine else 1


def skip(name, why):
    print(f"{name}: {why}", file=sys.stderr)
    sys.exit(77)
