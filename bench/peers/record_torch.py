#!/usr/bin/env python3
"""record_torch.py - records the allocations that typical PyTorch programs for training and serving make.

usage: bench/peers/record_torch.py OUT [PROGRAM...]

The programs are part of this script. They use random weights and random data from fixed seeds:
  mlp          a classifier of dense layers, Adam, another batch size in every step, evaluations in between
  transformer  a language model under autocast, AdamW, another sequence length in every step, a growing batch,
               evaluations in between
  convnet      residual blocks, SGD with momentum, another image size in every step, a separate stream that copies
               images, evaluations in between
  server       conversations with a transformer. Its key and value caches grow in pieces and end at random
  unet         a U-Net that learns to remove noise, under autocast, AdamW, another image size in every step; after every
               sixth step it makes images in ten passes

Each program runs twice, in separate processes: with PyTorch's default allocator, and with expandable_segments:True.
The log comes from the first run. tools/memory-log writes it to OUT as PROGRAM.hdlog. OUT/recorded.jsonl gets one line
per run, with the allocator's own figures. A program stops before the step that would bring its log above 20000
operations. Then it frees everything.
Exit status: 77 if PyTorch is not installed or no GPU is available.
"""

import contextlib
import gc
import importlib.util
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_LOG = os.path.join(HERE, "..", "..", "tools", "memory-log")
MOST_OPERATIONS = 20000
MOST_SECONDS = 60  # time limit of one round of concurrent runs
PROGRAMS = ("mlp", "transformer", "convnet", "server", "unet")
ALLOCATORS = {"default": "", "expandable": "expandable_segments:True"}


class Steps:
    """Decides after each step if the log has room for another step and for the final frees."""

    def __init__(self, torch, device, most):
        self.torch = torch
        self.device = device
        self.most = most  # the number of steps; None: until the log is full
        self.done = 0
        self.before = 0
        self.largest = 0

    def counts(self):
        if self.device.type != "cuda":
            return 0, 0
        stats = self.torch.cuda.memory_stats(self.device)
        return (
            stats["allocation.all.allocated"] + stats["allocation.all.freed"],
            stats["allocation.all.current"],
        )

    def more(self):
        operations, live = self.counts()
        if self.done > 0:
            self.largest = max(self.largest, operations - self.before)
        self.before = operations
        if self.most is not None:
            room = self.done < self.most
        else:
            room = operations + self.largest + self.largest // 4 + live <= MOST_OPERATIONS
        self.done += room
        return room


def evaluating(torch, module):
    """Context manager: sets the module to evaluation mode, without gradients."""

    @contextlib.contextmanager
    def scope():
        module.eval()
        with torch.no_grad():
            yield
        module.train()

    return scope()


def run_mlp(torch, device, steps, scale):
    nn, functional = torch.nn, torch.nn.functional
    inputs, width, classes = 3072 // scale, 4096 // scale, 1000 // scale
    choose = random.Random(1)
    images = torch.randint(0, 256, (16384, inputs), dtype=torch.uint8)
    labels = torch.randint(0, classes, (16384,))
    layers = [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(0.1)]
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(), nn.Dropout(0.1)]
    model = nn.Sequential(*layers, nn.Linear(width, classes)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def batch(count):
        first = choose.randrange(0, len(images) - count)
        pixels = images[first : first + count].to(device).float().div_(255)
        return pixels, labels[first : first + count].to(device)

    while steps.more():
        count = int(2 ** choose.uniform(6, 12))  # 64 to 4096, even or odd
        pixels, wanted = batch(count)
        loss = functional.cross_entropy(model(pixels), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if steps.done % 10 == 0:
            with evaluating(torch, model):
                right = 0
                for _ in range(4):
                    pixels, wanted = batch(6000 // scale)
                    right += int((model(pixels).argmax(1) == wanted).sum())


def transformer_block(torch, width, heads):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention = nn.LayerNorm(width)
            self.before_dense = nn.LayerNorm(width)
            self.projections = nn.Linear(width, 3 * width, bias=False)
            self.mixed = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x, past=None):
            count, length, _ = x.shape
            query, key, value = self.projections(self.before_attention(x)).split(width, 2)
            query, key, value = (
                part.view(count, length, heads, width // heads).transpose(1, 2) for part in (query, key, value)
            )
            if past is not None:  # keys and values so far; a piece attends to all of them and to itself
                if past[0] is not None:
                    key = torch.cat((past[0], key), 2)
                    value = torch.cat((past[1], value), 2)
                past[0], past[1] = key, value
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=key.shape[2] == length)
            x = x + self.mixed(attended.transpose(1, 2).reshape(count, length, width))
            return x + self.down(functional.gelu(self.up(self.before_dense(x))))

    return Block()


def run_transformer(torch, device, steps, scale):
    nn, functional = torch.nn, torch.nn.functional
    vocabulary, width, heads, depth, longest = 16384 // scale, 768 // scale, 12, 6, 1024
    choose = random.Random(2)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(vocabulary, width)
            self.places = nn.Embedding(longest, width)
            self.blocks = nn.ModuleList(transformer_block(torch, width, heads) for _ in range(depth))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return functional.linear(self.norm(x), self.words.weight)

    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")

    def loss_of(count, length):
        tokens = torch.randint(0, vocabulary, (count, length + 1)).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
            return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    while steps.more():
        count = min(2 + steps.done // 2, 8)  # the batch grows during training
        length = choose.randrange(64 // scale, longest // scale)
        loss = loss_of(count, length)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if steps.done % 6 == 0:
            with evaluating(torch, model):
                total = 0.0
                for _ in range(3):
                    total += float(loss_of(4, choose.randrange(200 // scale, longest // scale)))


def run_convnet(torch, device, steps, scale):
    nn, functional = torch.nn, torch.nn.functional
    choose = random.Random(3)

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.first_norm = nn.BatchNorm2d(after)
            self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.second_norm = nn.BatchNorm2d(after)
            self.short = nn.Sequential()
            if stride != 1 or before != after:
                self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x):
            y = functional.relu(self.first_norm(self.first(x)), inplace=True)
            return functional.relu(self.second_norm(self.second(y)) + self.short(x), inplace=True)

    stages = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        stages += [Block(before, after, stride), Block(after, after, 1)]
        before = after
    model = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    bringer = torch.cuda.Stream(device) if device.type == "cuda" else None

    def bring(count, side):
        """Starts to copy images to the device, on a stream of their own."""
        images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)
        labels = torch.randint(0, 1000, (count,))
        if bringer is None:
            return images.float().div_(255), labels
        with torch.cuda.stream(bringer):
            return images.to(device, non_blocking=True).float().div_(255), labels.to(device, non_blocking=True)

    def take(brought):
        if bringer is not None:
            torch.cuda.current_stream(device).wait_stream(bringer)
            for tensor in brought:
                tensor.record_stream(torch.cuda.current_stream(device))
        return brought

    def another():
        side = choose.randrange(128, 289, 32) // scale
        return bring(choose.choice((48, 64, 96)) // scale, side)

    coming = another()
    while steps.more():
        images, labels = take(coming)
        coming = another()
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        images = labels = None
        if steps.done % 6 == 0:
            with evaluating(torch, model):
                for side in (160, 256, 320):
                    images, labels = take(bring(128 // scale, side // scale))
                    right = int((model(images).argmax(1) == labels).sum())
                    images = labels = None
        float(loss.detach())


def run_server(torch, device, steps, scale):
    width, heads, depth, vocabulary = 4096 // scale, 32, 3, 32000 // scale
    longest, at_most = 8192 // scale, 24
    choose = random.Random(4)
    kind = torch.bfloat16
    with torch.no_grad():
        blocks = [transformer_block(torch, width, heads).to(device, kind) for _ in range(depth)]
        words = torch.randn(vocabulary, width).to(device, kind)
        conversations = []
        while steps.more():
            if len(conversations) < at_most and (not conversations or choose.random() < 0.35):
                conversations.append([[None, None] for _ in range(depth)])
            chosen = choose.randrange(len(conversations))
            caches = conversations[chosen]
            # appends the keys and values of a message and its answer to those of the conversation
            length = int(2 ** choose.uniform(5, 11)) // scale + 1
            x = words[torch.randint(0, vocabulary, (1, length)).to(device)]
            for block, past in zip(blocks, caches):
                x = block(x, past)
            answer = int((x[0, -1] @ words.T).argmax())
            if caches[0][0].shape[2] > longest or (answer + choose.randrange(16)) % 16 == 0:
                del conversations[chosen]
            caches = past = None  # else these variables would keep an ended conversation until the next message
            if steps.done % 60 == 0 and len(conversations) > 4:  # many conversations end at once
                conversations = choose.sample(conversations, len(conversations) // 4)


def unet_parts(torch, width):
    """The two blocks of a U-Net: convolutions that know the noise level, and attention between all pixels."""
    nn, functional = torch.nn, torch.nn.functional

    class Convolutions(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.first = nn.Sequential(nn.GroupNorm(16, before), nn.SiLU(), nn.Conv2d(before, after, 3, 1, 1))
            self.noise = nn.Linear(4 * width, after)
            self.second = nn.Sequential(
                nn.GroupNorm(16, after), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(after, after, 3, 1, 1)
            )
            self.short = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

        def forward(self, x, noise):
            y = self.first(x) + self.noise(functional.silu(noise))[:, :, None, None]
            return self.second(y) + self.short(x)

    class Attention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm = nn.GroupNorm(16, channels)
            self.projections = nn.Conv2d(channels, 3 * channels, 1)
            self.mixed = nn.Conv2d(channels, channels, 1)

        def forward(self, x):
            count, channels, high, wide = x.shape
            parts = self.projections(self.norm(x)).view(count, 3, 4, channels // 4, high * wide).transpose(3, 4)
            attended = functional.scaled_dot_product_attention(*(part.contiguous() for part in parts.unbind(1)))
            return x + self.mixed(attended.transpose(2, 3).reshape(count, channels, high, wide))

    return Convolutions, Attention


def run_unet(torch, device, steps, scale):
    nn, functional = torch.nn, torch.nn.functional
    width, levels = 64 // scale, (1, 2, 4, 4)
    choose = random.Random(5)
    Convolutions, Attention = unet_parts(torch, width)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.level = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
            self.enter = nn.Conv2d(3, width, 3, 1, 1)
            self.down, self.up = nn.ModuleList(), nn.ModuleList()
            channels, kept = width, [width]
            for number, factor in enumerate(levels):
                for _ in range(2):
                    attention = Attention(factor * width) if number >= 2 else nn.Identity()
                    self.down.append(nn.ModuleList((Convolutions(channels, factor * width), attention)))
                    channels = factor * width
                    kept.append(channels)
                if number + 1 < len(levels):
                    self.down.append(nn.Conv2d(channels, channels, 3, 2, 1))
                    kept.append(channels)
            self.middle = nn.ModuleList((Convolutions(channels, channels), Attention(channels)))
            for number, factor in reversed(list(enumerate(levels))):
                for _ in range(3):
                    attention = Attention(factor * width) if number >= 2 else nn.Identity()
                    self.up.append(nn.ModuleList((Convolutions(channels + kept.pop(), factor * width), attention)))
                    channels = factor * width
                if number > 0:
                    self.up.append(nn.Conv2d(channels, channels, 3, 1, 1))
            self.leave = nn.Sequential(nn.GroupNorm(16, channels), nn.SiLU(), nn.Conv2d(channels, 3, 3, 1, 1))

        def forward(self, x, level):
            angles = level[:, None] * torch.exp(-torch.arange(width // 2, device=x.device) / 8)
            noise = self.level(torch.cat((angles.sin(), angles.cos()), 1))
            x = self.enter(x)
            kept = [x]
            for block in self.down:
                x = block[1](block[0](x, noise)) if isinstance(block, nn.ModuleList) else block(x)
                kept.append(x)
            x = self.middle[1](self.middle[0](x, noise))
            for block in self.up:
                if isinstance(block, nn.ModuleList):
                    x = block[1](block[0](torch.cat((x, kept.pop()), 1), noise))
                else:
                    x = block(functional.interpolate(x, scale_factor=2.0))
            return self.leave(x)

    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=device.type == "cuda")

    while steps.more():
        side = choose.randrange(64, 193, 16) // scale // 8 * 8
        images = torch.randint(0, 256, (choose.choice((8, 12, 16)), 3, side, side), dtype=torch.uint8)
        images = images.to(device).float().div_(127.5).sub_(1)
        level = torch.rand(images.shape[0], device=device)
        noise = torch.randn_like(images)
        mixed = images * (1 - level)[:, None, None, None] + noise * level[:, None, None, None]
        with torch.autocast(device.type, torch.bfloat16):
            loss = functional.mse_loss(model(mixed, level).float(), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        float(loss.detach())
        if steps.done % 6 == 0:
            with evaluating(torch, model), torch.autocast(device.type, torch.bfloat16):
                images = torch.randn(16, 3, side, side, device=device)
                for step in range(10):
                    level = torch.full((16,), 1 - step / 10, device=device)
                    images = images - model(images, level) / 10


def run_one(program, allocator, most_steps, path):
    """Runs one program in this process. Prints a line of figures, and writes the snapshot to the file."""
    import torch

    if not torch.cuda.is_available():
        return 77
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.cuda.synchronize()  # creates the context before the recording begins
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=200000)
    begun = time.monotonic()
    steps = Steps(torch, device, most_steps)
    globals()["run_" + program](torch, device, steps, 1)
    gc.collect()
    torch.cuda.synchronize()
    seconds = time.monotonic() - begun
    stats = torch.cuda.memory_stats(device)
    snapshot = torch.cuda.memory._snapshot()
    with open(path, "wb") as file:
        pickle.dump({key: snapshot[key] for key in ("segments", "device_traces", "allocator_settings")}, file)
    print(
        json.dumps(
            {
                "program": program,
                "allocator": allocator,
                "expandable_segments": snapshot["allocator_settings"].get("expandable_segments"),
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "gpu": torch.cuda.get_device_name(device),
                "steps": steps.done,
                "operations": stats["allocation.all.allocated"] + stats["allocation.all.freed"],
                "peak_reserved": stats["reserved_bytes.all.peak"],
                "peak_allocated": stats["allocated_bytes.all.peak"],
                "peak_live": stats["requested_bytes.all.peak"],
                "device_allocations": stats.get("num_device_alloc"),
                "device_frees": stats.get("num_device_free"),
                "retries": stats["num_alloc_retries"],
                "seconds": round(seconds, 2),
            }
        )
    )
    return 0


def start(program, allocator, most_steps, folder):
    environment = dict(os.environ)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        environment.pop(name, None)
    if ALLOCATORS[allocator]:
        # older versions read the second name
        environment["PYTORCH_ALLOC_CONF"] = environment["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[allocator]
    path = os.path.join(folder, f"{program}-{allocator}")
    command = [sys.executable, os.path.abspath(__file__), "--run", program, allocator]
    command += [str(most_steps or 0), path + ".pickle"]
    with open(path + ".out", "wb") as out, open(path + ".err", "wb") as err:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=err), path


def round_of(allocator, programs, most_steps, folder):
    """Runs the programs concurrently. Returns the figures by program, and (status, reason) by program that failed."""
    runs = {program: start(program, allocator, most_steps.get(program), folder) for program in programs}
    until = time.monotonic() + MOST_SECONDS
    results = {}
    trouble = {}
    for program, (process, path) in runs.items():
        try:
            status = process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = f"stopped after {MOST_SECONDS} s"
        with open(path + ".out", encoding="utf-8") as file:
            lines = file.read().splitlines()
        if status == 0 and lines:
            results[program] = json.loads(lines[-1])
            continue
        with open(path + ".err", encoding="utf-8", errors="replace") as file:
            trouble[program] = (status, file.read()[-2000:])
    for program, result in list(results.items()):
        if bool(result["expandable_segments"]) != (allocator == "expandable"):
            trouble[program] = ("its allocator is not the one that was asked for", json.dumps(results.pop(program)))
    return results, trouble


def memory_log(*arguments):
    command = [sys.executable, MEMORY_LOG, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def convert(result, path, out):
    """Writes the log of a run on the default allocator. Adds the figures of the log to the result."""
    program = result["program"]
    log = os.path.join(out, program + ".hdlog")
    notes = {
        "program": f"bench/peers/record_torch.py {program}, {result['steps']} steps",
        "recorded": f"PyTorch {result['torch']}, CUDA {result['cuda']}, {result['gpu']}",
    }
    words = [word for key, value in notes.items() for word in ("--note", f"{key}={value}")]
    memory_log("--from", "torch", "--device", "0", *words, "--output", log, path + ".pickle")
    for figure, value in json.loads(memory_log("--stats", "--json", log)).items():
        if figure in ("operations", "peak_live_bytes", "streams", "live_at_end_bytes"):
            result["log_" + figure] = value
    result["log_bytes"] = os.path.getsize(log)


def record(out, programs):
    os.makedirs(out, exist_ok=True)
    failed = False
    path = os.path.join(out, "recorded.jsonl")
    with tempfile.TemporaryDirectory() as folder, open(path, "w", encoding="utf-8") as lines:
        steps = {}
        for allocator in ALLOCATORS:
            results, trouble = round_of(allocator, programs if allocator == "default" else list(steps), steps, folder)
            if trouble and all(status == 77 for status, _ in trouble.values()):
                print("record_torch.py: PyTorch sees no GPU here", file=sys.stderr)
                return 77
            for program, (status, text) in trouble.items():
                failed = True
                print(f"{program} on the allocator {allocator}: {status}\n{text}", file=sys.stderr)
            for program, result in results.items():
                if allocator == "default":
                    steps[program] = result["steps"]
                    convert(result, os.path.join(folder, f"{program}-{allocator}"), out)
                lines.write(json.dumps(result) + "\n")
                lines.flush()
                print(json.dumps(result), flush=True)
    return 1 if failed else 0


def main(words):
    if len(words) == 5 and words[0] == "--run":
        return run_one(words[1], words[2], int(words[3]) or None, words[4])
    if not words or words[0].startswith("-") or any(word not in PROGRAMS for word in words[1:]):
        print(__doc__, file=sys.stderr)
        return 2
    if importlib.util.find_spec("torch") is None:
        print("record_torch.py: Python has no PyTorch here", file=sys.stderr)
        return 77
    return record(words[0], words[1:] or list(PROGRAMS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
