"""forum.py - matrix products on each device alone, then on all devices together, from one thread.

usage: forum.py [SIZE [PRODUCTS]]
"""

import sys
import time

import heddle
import numpy as np


def products(device, a, b, count):
    """Submits products on a device, and returns the last one. The call does not wait for them."""
    x, y = a.to(device), b.to(device)
    z = heddle.matmul(x, y)
    for _ in range(count - 1):
        heddle.matmul(x, y, out=z)
    return z


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    values = np.random.default_rng(1).integers(0, 4, (2, size, size)).astype(np.float32)
    expected = values[0] @ values[1]
    with heddle.open() as runtime:
        a, b = (heddle.array(v, kind="pinned") for v in values)
        for device in runtime.devices:
            start = time.perf_counter()
            products(device, a, b, count).buffer.wait()
            print("%s alone: %.1f ms" % (device, 1000 * (time.perf_counter() - start)))
        start = time.perf_counter()
        results = [products(device, a, b, count) for device in runtime.devices]
        for z in results:
            z.buffer.wait()
        print("together: %.1f ms" % (1000 * (time.perf_counter() - start)))
        wrong = [z.device for z in results if not np.array_equal(z.numpy(), expected)]
    if wrong:
        sys.exit("wrong products on the devices %s" % wrong)


main()
