#!/usr/bin/env python3
"""torch_captures.py - PyTorch captures CUDA graphs in its default mode, beside a busy runtime of Heddle.

usage: torch_captures.py BUILD PLACEMENT [CAPTURES]

BUILD is a build folder of Heddle, with libheddle.so. The script replays every captured graph and checks its result.
Needs a GPU, PyTorch and a C compiler. Exit status: 0 if every graph was right and no device was lost.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import torch

build, placement = os.path.abspath(sys.argv[1]), sys.argv[2]
captures = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
here = os.path.dirname(os.path.abspath(__file__))

with tempfile.TemporaryDirectory() as folder:
    busy_path = os.path.join(folder, "busy.so")
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-I" + os.path.join(here, "../../include"),
                    os.path.join(here, "busy.c"), "-o", busy_path, "-L" + build, "-lheddle", "-Wl,-rpath," + build, "-lpthread"], check=True)
    busy = ctypes.CDLL(busy_path)
busy.busy_start.restype = busy.busy_stop.restype = ctypes.c_char_p
busy.busy_rounds.restype = ctypes.c_long

x = torch.ones(1 << 16, device="cuda")
side = torch.cuda.Stream()  # PyTorch's libraries must be warm before a capture
with torch.cuda.stream(side):
    for _ in range(3):
        (x @ x).item()
        (x * 2 + 1).sum().item()
torch.cuda.synchronize()

said = busy.busy_start(f"placement={placement} memory_idle=0".encode())
if said:
    sys.exit(f"torch_captures: {said.decode()}")
while busy.busy_rounds() == 0:
    pass

wrong = 0
first_round = busy.busy_rounds()
for i in range(captures):
    graph = torch.cuda.CUDAGraph()
    x.fill_(float(i % 7))
    try:
        with torch.cuda.graph(graph):
            y = x * 2 + 1
            for _ in range(4):
                y = y + x
            total = y.sum()
        graph.replay()
        if total.item() != (6.0 * (i % 7) + 1) * x.numel():
            wrong += 1
    except RuntimeError as error:
        wrong += 1
        print(f"torch_captures: capture {i}: {str(error).splitlines()[0]}")
        if wrong > 5:
            break
    if busy.busy_rounds() < 0:
        break
rounds = busy.busy_rounds() - first_round
said = busy.busy_stop()
print(f"torch_captures: placement {placement}: {i + 1} captures, {wrong} of them spoilt or wrong, "
      f"{rounds} rounds of Heddle's work beside them{': ' + said.decode() if said else ''}")
sys.exit(1 if wrong or said else 0)
