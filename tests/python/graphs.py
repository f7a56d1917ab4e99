"""graphs.py - makes random operations on tensors of Heddle and on arrays of NumPy, and compares the results.

usage: graphs.py GRAPHS [SEED]
Values are small integers in f32, so that every order of a sum gives the same bits.
"""

import random
import sys

import heddle
import numpy as np

SHAPES = ((24,), (4, 6), (6, 4), (2, 3, 4))
STEPS = 40


class Graph:
    def __init__(self, seed):
        self.pick = random.Random(seed)
        devices = heddle.current().devices
        self.lanes = [heddle.lane(device) for device in devices]
        self.axpy = heddle.builtin()["hd_axpy_f32"]
        self.tensors, self.arrays = [], []
        for i in range(8):
            array = np.arange(24, dtype=np.float32).reshape(self.pick.choice(SHAPES)) % 5
            kind = self.pick.choice(("device", "device", "pinned", "unified"))
            self.tensors.append(heddle.array(array, kind=kind, device=i % len(devices)))
            self.arrays.append(array.copy())

    def view(self, i):
        """The same random view of a tensor and of its array."""
        t, a = self.tensors[i], self.arrays[i]
        if self.pick.random() < 0.5:
            axes = self.pick.sample(range(a.ndim), a.ndim)
            t, a = t.transpose(*axes), a.transpose(axes)
        if self.pick.random() < 0.5:
            step = self.pick.choice((1, 2, -1))
            t, a = t[::step], a[::step]
        return t, a

    def two(self):
        return self.pick.sample(range(len(self.tensors)), 2)

    def write(self):
        t, a = self.view(self.pick.randrange(8))
        value = self.pick.randrange(5)
        t[...] = value
        a[...] = value

    def copy(self):
        i, j = self.two()
        (t, a), (u, b) = self.view(i), self.view(j)
        if b.shape != a.shape:
            u, b = u[0] if b.ndim > 1 else u[:1], b[0] if b.ndim > 1 else b[:1]
            try:
                np.broadcast_to(b, a.shape)
            except ValueError:
                return
        heddle.copy(t, u)
        a[...] = b

    def launch(self):
        i, j = self.two()
        t, u = self.tensors[i], self.tensors[j]
        where = t.device if t.device is not None else u.device
        if where is None or u.device not in (None, where):
            return
        count = self.pick.randint(1, 24)
        self.axpy(t.reshape(24), u.reshape(24), 2, count, threads=count, lane=self.lanes[where])
        flat = self.arrays[i].reshape(24)
        flat[:count] += 2 * self.arrays[j].reshape(24)[:count]
        flat %= 64
        self.tensors[i].write(self.arrays[i])

    def claim(self):
        i, j = self.two()
        t, u = self.tensors[i], self.tensors[j]
        if t.device is not None or u.device is not None:
            return
        with heddle.claim(u, write=[t]) as claim:
            claim.numpy(t).reshape(24)[...] += claim.numpy(u).reshape(24) % 3
        self.arrays[i].reshape(24)[...] += self.arrays[j].reshape(24) % 3

    def product(self):
        i, j = self.two()
        a, b = self.arrays[i].reshape(4, 6) % 4, self.arrays[j].reshape(6, 4) % 4
        where = self.pick.randrange(len(self.lanes))
        c = heddle.array(a, device=where) @ heddle.array(b, device=where)
        heddle.copy(self.tensors[i][..., :1].reshape(-1)[:1], c[1, 1:2])
        self.arrays[i].reshape(24)[0] = (a @ b)[1, 1]

    def move(self):
        i = self.pick.randrange(8)
        if self.tensors[i].device is not None:
            self.tensors[i] = self.tensors[i].to(self.pick.randrange(len(self.lanes)))

    def check(self):
        i = self.pick.randrange(8)
        np.testing.assert_array_equal(self.tensors[i].numpy(), self.arrays[i])

    def run(self):
        steps = (self.write, self.copy, self.copy, self.launch, self.claim, self.product, self.move, self.check)
        for _ in range(STEPS):
            with self.pick.choice(self.lanes):
                self.pick.choice(steps)()
        for tensor, array in zip(self.tensors, self.arrays):
            np.testing.assert_array_equal(tensor.numpy(), array)


def main():
    graphs, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for seed in range(first, first + graphs):
        try:
            Graph(seed).run()
        except BaseException:
            print("graphs.py 1 %d repeats the failed graph" % seed)
            raise
    print("%d graphs equal NumPy" % graphs)


main()
