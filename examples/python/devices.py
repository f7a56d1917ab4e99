"""devices.py - an array of NumPy goes to all devices in parts, each device works on its part, and results come back.

usage: devices.py [ELEMENTS]
One thread submits everything. The copies and kernels of different devices run at the same time.
"""

import sys

import heddle
import numpy as np


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    x = np.random.default_rng(1).integers(0, 100, n).astype(np.float32)
    y = np.ones_like(x)
    with heddle.open(host_devices=4) as runtime:
        axpy = heddle.builtin(runtime)["hd_axpy_f32"]
        devices = runtime.devices
        edges = [n * i // len(devices) for i in range(len(devices) + 1)]
        parts = []
        for device, first, last in zip(devices, edges, edges[1:]):
            with heddle.lane(device):
                there_x, there_y = heddle.array(x[first:last]), heddle.array(y[first:last])
                axpy(y=there_y, x=there_x, a=2, n=last - first, threads=last - first)
            parts.append(there_y)
        result = np.concatenate([part.numpy() for part in parts])  # waits for each part in turn
        print("%d elements on %d devices" % (n, len(devices)))
    if not np.array_equal(result, 2 * x + y):
        sys.exit("the result differs from NumPy's")


main()
