#!/usr/bin/env python3
"""python_torch.py - PyTorch with Heddle's memory, copies and loading, against PyTorch alone.

usage: python_torch.py BUILD [CHECK...]

BUILD is a build folder of Heddle, with libheddle.so and libheddle_python.so. Without names, all checks run, in less
than four minutes. Each check prints one line, "name: ok FIGURES" or "name: FAILED FIGURES":

  losses   the losses of a convolutional network and of a transformer, bit for bit, and the speed of their training;
           the physical memory over the bytes of tensors
  graph    a captured graph beside other tensors, with Heddle's memory, PyTorch's, and a plain plug-in, which is wrong
  streams  tensors that several streams use
  oom      the text of a failed allocation
  hot      the time of one allocation and free
  pool     PyTorch's own allocator with labelled segments of Heddle
  copies   copies between ordinary memory and the GPU
  load     files of safetensors and of torch.save
  peers    copies between two GPUs; needs two

Each check runs PyTorch in processes of its own. Needs a GPU, PyTorch and a C compiler. Exit status: 0 if no check
failed.
"""

import json
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
MIB, GIB = 1 << 20, 1 << 30
CHECKS = ["losses", "graph", "streams", "oom", "hot", "pool", "copies", "load", "peers"]

# ---- children: one process, one allocator ----

PLAIN = r"""
#include <dlfcn.h>
#include <stddef.h>
static int (*allocate)(unsigned long long *, size_t), (*release)(unsigned long long);
void *plain_alloc(size_t bytes, int device, void *stream)
{
    unsigned long long pointer = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    allocate = allocate ? allocate : (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    release = release ? release : (int (*)(unsigned long long))dlsym(driver, "cuMemFree_v2");
    (void)device, (void)stream;
    return allocate(&pointer, bytes ? bytes : 1) == 0 ? (void *)pointer : NULL;
}
void plain_free(void *memory, size_t bytes, int device, void *stream)
{
    (void)bytes, (void)device, (void)stream;
    release((unsigned long long)memory);
}
"""


def use_allocator(name):
    """Gives PyTorch an allocator: "torch", "heddle" or "plain"."""
    if name == "heddle":
        import heddle.torch

        heddle.torch.install()
    elif name == "plain":
        folder = tempfile.mkdtemp()
        source, library = os.path.join(folder, "plain.c"), os.path.join(folder, "plain.so")
        with open(source, "w") as file:
            file.write(PLAIN)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
        memory = torch.cuda.memory
        memory.change_current_allocator(memory.CUDAPluggableAllocator(library, "plain_alloc", "plain_free"))


def convnet():
    """torchvision's ResNet-50, if it is installed."""
    nn = torch.nn
    try:
        from torchvision.models import resnet50
    except ImportError:
        return plain_convnet()
    model = resnet50(weights=None, num_classes=10)
    model.maxpool = nn.AvgPool2d(3, 2, 1)  # the backward of MaxPool2d is not deterministic
    return model, lambda n: (torch.randn(n, 3, 96, 96, device="cuda"), torch.randint(0, 10, (n,), device="cuda"))


def plain_convnet():
    nn = torch.nn
    layers, channels = [], 3
    for wide in (64, 128, 256, 256):
        for _ in range(2):
            layers += [nn.Conv2d(channels, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
            channels = wide
        layers.append(nn.AvgPool2d(2))  # the backward of MaxPool2d is not deterministic
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 10)), lambda n: (
        torch.randn(n, 3, 64, 64, device="cuda"),
        torch.randint(0, 10, (n,), device="cuda"),
    )


def words(n):
    """Random words of n texts, and the words that follow them."""
    return torch.randint(0, 8192, (n, 256), device="cuda"), torch.randint(0, 8192, (n * 256,), device="cuda")


def transformer():
    """A model of transformers with GPT-2's parts, if transformers is installed."""
    try:
        from transformers import AutoModelForCausalLM, GPT2Config
    except ImportError:
        return plain_transformer()

    class Logits(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(input_ids=x, use_cache=False).logits.flatten(0, 1)

    config = GPT2Config(vocab_size=8192, n_positions=256, n_layer=8, bos_token_id=0, eos_token_id=0)
    return Logits(AutoModelForCausalLM.from_config(config, attn_implementation="eager")), words


def plain_transformer():
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            n, length, width = x.shape
            q, k, v = self.qkv(self.first(x)).view(n, length, 3, self.heads, width // self.heads).unbind(2)
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
            return x + self.feed(self.second(x))

    class Model(nn.Module):
        def __init__(self, words=8192, width=768, length=256):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
            self.blocks = nn.Sequential(*(Block(width, 12) for _ in range(8)))
            self.end = nn.Linear(width, words)

        def forward(self, x):
            return self.end(self.blocks(self.words(x) + self.places)).flatten(0, 1)

    return Model(), words


def child_train(allocator, name, steps):
    """Trains with batches of two sizes in turns, so that the sizes of tensors change."""
    use_allocator(allocator)
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    model, batch = {"convnet": convnet, "transformer": transformer}[name]()
    model = model.cuda()
    large, small = {"convnet": (256, 192), "transformer": (32, 24)}[name]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for i in range(int(steps)):
        if i == 10:
            torch.cuda.synchronize()
            start = time.perf_counter()
        x, wanted = batch(small if i % 5 == 4 else large)
        loss = torch.nn.functional.cross_entropy(model(x), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    out = {"seconds": (time.perf_counter() - start) / (int(steps) - 10)}
    out["of"] = sorted({"torchvision", "transformers"} & set(sys.modules))
    out["losses"] = [float(x).hex() for x in losses]
    if allocator == "heddle":
        import heddle.torch

        stats = heddle.torch.memory_stats()
        out.update(stats, reserved=stats["reserved_peak_bytes"], live=stats["requested_peak_bytes"])
    else:
        out.update(reserved=torch.cuda.max_memory_reserved(), live=torch.cuda.max_memory_allocated())
    return out


REPLAYS = 10000


def child_graph(allocator, mode):
    use_allocator(allocator)
    x = torch.zeros(1024, 1024, device="cuda")
    weight = torch.ones(1024, 1024, device="cuda")

    def work():
        y = x * 2 + 1
        z = (y @ weight).relu() / 1024
        return (z + y).sum(1)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        out = work()
    wrong, kept = 0, []
    for i in range(REPLAYS):
        kept.append(torch.full((1024, 1024), 7.0, device="cuda"))
        kept.append(torch.full((1024,), 7.0, device="cuda"))
        x.fill_(float(i % 13))
        graph.replay()
        wrong += bool((out != 2 * 1024.0 * (2 * (i % 13) + 1)).any())
        wrong += any(bool((t != 7).any()) for t in kept[-8:])
        while (i % 3 == 2 and len(kept) > 20) or len(kept) > 100:
            del kept[random.randrange(len(kept))]
    result = {"wrong": wrong, "replays": REPLAYS}
    if allocator == "heddle":
        import heddle.torch

        result["bytes"] = heddle.torch.memory_stats()["graph_bytes"]
        del graph
        torch.cuda.synchronize()
        limit = time.perf_counter() + 10
        while True:  # the driver calls the graph's destructor on a thread of its own
            torch.cuda.empty_cache()
            result["graphs_left"] = heddle.torch.memory_stats()["graphs"]
            if result["graphs_left"] == 0 or time.perf_counter() > limit:
                break
    return result


def child_calls():
    """Calls in a capture, each in a capture of its own; those that ended the capture, by its mode."""
    import ctypes as c

    import heddle
    import heddle.torch
    from heddle._torch import native

    heddle.torch.install()
    used = torch.ones(3 << 20, dtype=torch.uint8, device="cuda")
    driver, stream, other = c.CDLL("libcuda.so.1"), torch.cuda.Stream(), torch.cuda.Stream()
    handle, status, number = c.c_void_p(stream.cuda_stream), c.c_int(), c.c_ulonglong()
    graph, thing, end = c.c_void_p(), c.c_void_p(), c.CFUNCTYPE(None, c.c_void_p)(lambda _: None)

    def info():
        return driver.cuStreamGetCaptureInfo_v2(handle, c.byref(status), c.byref(number), c.byref(graph), None, None)

    def retain():
        info()
        driver.cuUserObjectCreate(c.byref(thing), handle, end, 1, 1)
        return driver.cuGraphRetainUserObject(graph, thing, 1, 1)

    def claim():
        with torch.cuda.stream(other):
            t = torch.ones(5 << 20, dtype=torch.uint8, device="cuda")
        return heddle.torch.to_device(torch.ones(5 << 20, dtype=torch.uint8)).shape == t.shape

    calls = {
        "nothing": lambda: None,
        "cuStreamIsCapturing": lambda: driver.cuStreamIsCapturing(handle, c.byref(status)),
        "cuStreamGetCaptureInfo": info,
        "cuGraphRetainUserObject": retain,
        "cuStreamGetId": lambda: driver.cuStreamGetId(handle, c.byref(number)),
        "heddle.alloc": lambda: heddle.alloc(640 << 20).nbytes,
        "heddle.alloc again": lambda: heddle.alloc(640 << 20).nbytes,
        "claims": claim,
        "torch.cuda.empty_cache": torch.cuda.empty_cache,
        "hd_torch_try_alloc": lambda: native.hd_torch_try_alloc(3 << 20, 0, handle),
    }
    spoilt = []
    for mode in (0, 2):
        for name, call in calls.items():
            torch.cuda.synchronize()
            assert driver.cuStreamBeginCapture_v2(handle, mode) == 0
            try:
                call()
            except Exception as error:
                spoilt.append("%s in mode %d raised: %s" % (name, mode, error))
            assert driver.cuStreamIsCapturing(handle, c.byref(status)) == 0
            if driver.cuStreamEndCapture(handle, c.byref(graph)) or status.value != 1:
                spoilt.append("%s in mode %d" % (name, mode))
            if graph.value:
                driver.cuGraphDestroy(graph)
    return {"sum": int(used.sum()), "spoilt": spoilt}


def child_streams(allocator):
    """Streams fill tensors, other streams read them, and the tensors are freed at once."""
    use_allocator(allocator)
    chance = random.Random(3)
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(3)]
    totals = []
    for i in range(3000):
        a, b = chance.sample(streams, 2)
        count = chance.choice([1 << 8, 1 << 14, 1 << 20, 3 << 20])
        with torch.cuda.stream(a):
            t = torch.full((count,), float(i % 31), device="cuda")
        b.wait_stream(a)
        with torch.cuda.stream(b):
            totals.append((t[:: max(1, count // 256)] - i % 31).abs().max())
            t.record_stream(b)
        del t
        if i % 500 == 499:
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    return {"wrong": sum(float(x) != 0 for x in totals)}


def halving(function, starting_batch_size):
    """As accelerate's find_executable_batch_size, for machines without it."""

    def run():
        batch_size = starting_batch_size
        while True:
            try:
                return function(batch_size)
            except RuntimeError as error:
                assert "CUDA out of memory." in error.args[0], error.args
            batch_size //= 2

    return run


def child_oom():
    import heddle
    import heddle.torch

    heddle.torch.install()
    kept = heddle.alloc(20 * GIB, label="somebody's tables")
    small = torch.ones(1 << 20, device="cuda")
    texts = []
    whole = torch.cuda.get_device_properties(0).total_memory
    for size in (whole // 8 * 7, 1 << 42):  # more than what is left, and more than the device has
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except RuntimeError as error:
            texts.append(str(error))
    tried = []

    def fill(batch_size):
        tried.append(batch_size)
        parts = [torch.empty(batch_size << 10, dtype=torch.uint8, device="cuda") for _ in range(180)]
        return sum(t.numel() for t in parts)

    try:
        from accelerate.utils import find_executable_batch_size
    except ImportError:
        find_executable_batch_size = halving
    total = find_executable_batch_size(fill, starting_batch_size=1 << 20)()
    result = {"texts": texts, "sum": float(small.sum()), "tried": len(tried), "gib": total / GIB, "kept": kept.nbytes}
    return {**result, "by": find_executable_batch_size.__module__}


def child_hot(allocator):
    use_allocator(allocator)
    out = {}
    for name, size in (("small", 4096), ("large", 8 << 20)):
        torch.empty(size, dtype=torch.uint8, device="cuda")
        best = 1e9
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(20000):
                torch.empty(size, dtype=torch.uint8, device="cuda")
            best = min(best, (time.perf_counter() - start) / 20000)
        out[name] = best * 1e9
    return out


def child_pool():
    import heddle
    import heddle.torch

    runtime = heddle.open(driver="nvidia", placement="thread")
    with heddle.torch.pool("weights"):
        weights = [torch.full((1 << 20,), float(i), device="cuda") for i in range(20)]
    other = torch.ones(1 << 20, device="cuda")
    text = runtime.memory_text()
    total = float(sum(w.sum() for w in weights) + other.sum())
    live = runtime.memory_stats(0)["live_bytes"]
    del weights, other
    heddle.torch.drop_pool("weights")
    torch.cuda.empty_cache()
    left = runtime.memory_stats(0)["live_bytes"]
    allocated = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    return {"named": "weights" in text, "sum": total, "live": live, "left": left, "allocated": allocated}


def seconds(function, rounds=3):
    best = 1e9
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = function()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
        del result
    return best


def child_copies(allocator):
    import heddle.torch

    use_allocator(allocator)
    host = torch.arange(GIB // 4, dtype=torch.int32)
    there = heddle.torch.to_device(host)
    back = heddle.torch.to_host(there)
    right = bool((back == host).all()) and bool((there == torch.arange(GIB // 4, dtype=torch.int32, device="cuda")).all())
    there.add_(1)
    right = right and bool((heddle.torch.to_host(there, out=back) == host + 1).all())
    out = torch.empty_like(host).fill_(0)
    pairs = {
        "in": (lambda: host.to("cuda"), lambda: heddle.torch.to_device(host)),
        "out": (lambda: out.copy_(there), lambda: heddle.torch.to_host(there, out=out)),
        "fresh": (lambda: there.cpu(), lambda: heddle.torch.to_host(there)),
    }
    result = {"right": right}
    for name, (rival, own) in pairs.items():
        rival_s, own_s = seconds(rival), seconds(own)
        result[name] = {"torch": host.nbytes / rival_s / 1e9, "heddle": host.nbytes / own_s / 1e9, "ratio": rival_s / own_s}
    return result


def write_safetensors(path, count, elements):
    """Writes large tensors of bf16 and small ones of f32."""
    header, offset, parts = {}, 0, []
    for i in range(count):
        for name, dtype, t in (
            ("layers.%d.weight" % i, "BF16", torch.arange(elements, dtype=torch.int32).add_(i).to(torch.bfloat16)),
            ("layers.%d.bias" % i, "F32", torch.full((1000,), float(i))),
        ):
            nbytes = t.numel() * t.element_size()
            header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [offset, offset + nbytes]}
            offset += nbytes
            parts.append(t)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in parts:
            file.write(t.view(torch.uint8).numpy().data)
    return {name: t for name, t in zip(header, parts)}


def by_frombuffer(path):
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    size = struct.unpack("<Q", view[:8])[0]
    out = {}
    for name, facts in json.loads(view[8 : 8 + size]).items():
        first, last = facts["data_offsets"]
        dtype = {"BF16": torch.bfloat16, "F32": torch.float32}[facts["dtype"]]
        width = torch.empty(0, dtype=dtype).element_size()
        t = torch.frombuffer(view, dtype=dtype, count=(last - first) // width, offset=8 + size + first)
        out[name] = t.view(facts["shape"]).to("cuda")
    return out


def child_load(allocator):
    import heddle.torch

    use_allocator(allocator)
    folder = tempfile.mkdtemp()
    path, saved = os.path.join(folder, "model.safetensors"), os.path.join(folder, "model.pt")
    try:
        wanted = write_safetensors(path, 16, 32 << 20)
        torch.save(wanted, saved)
        right = True
        for got in (heddle.torch.load_safetensors(path), heddle.torch.load(saved)):
            right = right and list(got) == list(wanted)
            right = right and all(bool((got[n].cpu() == t).all()) for n, t in wanted.items())
        del got, wanted
        ways = {
            "frombuffer": lambda: by_frombuffer(path),
            "heddle": lambda: heddle.torch.load_safetensors(path),
            "torch.load": lambda: torch.load(saved, map_location="cuda", mmap=True),
            "heddle.load": lambda: heddle.torch.load(saved),
        }
        try:
            from safetensors.torch import load_file

            ways["safetensors"] = lambda: load_file(path, device="cuda")
        except ImportError:
            pass
        nbytes = os.path.getsize(path)
        return {"right": right, **{name: nbytes / seconds(way, 3) / 1e9 for name, way in ways.items()}}
    finally:
        for name in (path, saved):
            if os.path.exists(name):
                os.unlink(name)
        os.rmdir(folder)


def child_peers():
    import heddle.torch

    refused = heddle.torch.install()
    a = torch.arange(1 << 22, device="cuda:0", dtype=torch.float32)
    b = a.to("cuda:1")
    c = torch.empty_like(a).copy_(b * 2)
    grown = torch.full((1 << 28,), 3.0, device="cuda:1")  # memory that was mapped after the peers were granted
    return {"right": bool((c == a * 2).all()) and float(grown.to("cuda:0").sum()) == 3.0 * (1 << 28), "refused": str(refused)}


# ---- checks: what the children found ----


def child(name, *arguments, may_fail=False):
    """Runs a child, and returns its result; None if it failed."""
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8", HEDDLE_DRIVER="nvidia")
    environment["PYTHONPATH"] = os.path.join(HERE, "../../python")
    environment["HEDDLE_SHARED_LIBRARY"] = os.path.join(BUILD, "libheddle.so")
    environment["HEDDLE_WORKER"] = os.path.join(BUILD, "heddle-worker")
    command = [sys.executable, os.path.abspath(__file__), BUILD, "--child", name, *map(str, arguments)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired as error:
        print("  %s %s: no end after 120 s: %s" % (name, arguments, (error.stderr or b"")[-2000:]))
        return None
    if done.returncode or not done.stdout.strip():
        if not may_fail:
            print("  %s %s: exit status %d\n%s" % (name, arguments, done.returncode, done.stderr[-3000:]))
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


failed = []


def tell(name, good, figures):
    print("%s: %s %s" % (name, "ok" if good else "FAILED", figures), flush=True)
    if not good:
        failed.append(name)


def check_losses():
    for model, steps in (("convnet", 50), ("transformer", 40)):
        runs = {"torch": [], "heddle": []}
        for allocator in ("torch", "heddle", "heddle", "torch"):
            runs[allocator].append(child("train", allocator, model, steps))
        if None in runs["torch"] + runs["heddle"]:
            tell("losses " + model, False, "a process failed")
            continue
        own, rival = (min(r["seconds"] for r in runs[name]) for name in ("heddle", "torch"))
        all_losses = [r["losses"] for name in runs for r in runs[name]]
        same = all(losses == all_losses[0] for losses in all_losses)
        tell("losses %s" % model, same, "%d losses bit for bit, model of %s" % (steps, runs["heddle"][0]["of"]))
        tell("speed %s" % model, rival / own >= 0.99, "%.4f of PyTorch's (%.2f ms a step)" % (rival / own, own * 1e3))
        h, t = runs["heddle"][0], runs["torch"][0]
        figures = "%.4f reserved over live (PyTorch: %.4f), live %.0f MiB, %d allocations, %d fetches, %d releases" % (
            h["reserved"] / h["live"], t["reserved"] / t["live"], h["live"] / MIB, h["allocations"], h["fetches"], h["releases"],
        )  # fmt: skip
        tell("memory %s" % model, h["reserved"] / h["live"] <= 1.05, figures)


def check_graph():
    for allocator, mode in (("torch", "relaxed"), ("heddle", "relaxed"), ("heddle", "global")):
        found = child("graph", allocator, mode)
        good = found is not None and found["wrong"] == 0 and found.get("graphs_left", 0) == 0
        tell("graph %s %s" % (allocator, mode), good, str(found))
    found = child("calls")
    harmful = [name for name in found["spoilt"] if "cuStreamGetId" not in name] if found else None
    tell("calls in a capture", harmful == [], str(found))  # Heddle asks no stream under capture for its number
    found = child("graph", "plain", "relaxed", may_fail=True)
    tell("graph plain plug-in is wrong", found is None or found["wrong"] > 0, str(found))


def check_streams():
    for allocator in ("torch", "heddle"):
        found = child("streams", allocator)
        tell("streams %s" % allocator, found is not None and found["wrong"] == 0, str(found))


def check_oom():
    found = child("oom")
    good = found is not None and len(found["texts"]) == 2 and found["sum"] == 1 << 20 and found["tried"] > 1
    good = good and all(t.startswith("CUDA out of memory.") for t in found["texts"])
    good = good and "somebody's tables" in found["texts"][0] and "exceeds the limit" in found["texts"][1]
    tell("oom", good, str(found))


def check_hot():
    own, rival = child("hot", "heddle"), child("hot", "torch")
    good = bool(own and rival) and all(own[n] <= rival[n] + 1000 for n in own)
    tell("hot", good, "ns of torch.empty and its free: heddle %s, torch %s" % (own, rival))


def check_pool():
    found = child("pool")
    good = found is not None and found["named"] and found["sum"] == (190 + 1) * (1 << 20)
    good = good and found["live"] >= 80 * MIB and found["left"] < 2 * MIB and found["allocated"] >= 80 * MIB
    tell("pool", good, str(found))


def check_copies():
    for allocator in ("heddle", "torch"):
        found = child("copies", allocator)
        good = found is not None and found["right"] and all(found[n]["ratio"] >= 1 for n in ("in", "out", "fresh"))
        tell("copies with memory of %s" % allocator, good, "GB/s %s" % found)


def check_load():
    for allocator in ("heddle", "torch"):
        found = child("load", allocator)
        good = found is not None and found["right"] and found["heddle"] >= found["frombuffer"]
        tell("load with memory of %s" % allocator, good, "GB/s %s" % found)


def check_peers():
    if torch.cuda.device_count() < 2:
        print("peers: not run, since there is one GPU")
        return
    found = child("peers")
    tell("peers", found is not None and found["right"], str(found))


if len(sys.argv) < 2:
    sys.exit(__doc__)
import torch  # noqa: E402

if sys.argv[2:3] == ["--child"]:
    print(json.dumps(globals()["child_" + sys.argv[3]](*sys.argv[4:])))
    sys.exit(0)
begun = time.perf_counter()
for check in sys.argv[2:] or CHECKS:
    globals()["check_" + check]()
print("python_torch: %s, %.0f s" % ("FAILED: %s" % ", ".join(failed) if failed else "all ok", time.perf_counter() - begun))
sys.exit(1 if failed else 0)
