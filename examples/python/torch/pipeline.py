"""pipeline.py - images from files to two models of PyTorch on two GPUs, with Heddle's memory and copies.

usage: pipeline.py [IMAGES [SIZE]]

A thread for each GPU runs a model. Another thread for each GPU loads the images of the next batch and copies them, so
that files, copies and kernels run at the same time. With one GPU, both models run on it. Needs PyTorch with CUDA.
"""

import os
import queue
import sys
import tempfile
import threading
import time

import heddle.torch
import torch

BATCH = 32


def make_images(folder, count, size):
    """Stands in for a data set: each image is a file of bytes."""
    for i in range(count):
        image = torch.full((3, size, size), i % 251, dtype=torch.uint8)
        image.numpy().tofile(os.path.join(folder, "%06d.image" % i))


def load(folder, device, numbers, size, batches):
    """Loads batches into ordinary memory, and copies them to the GPU while the model works on earlier ones."""
    torch.cuda.set_device(device)
    with torch.cuda.stream(torch.cuda.Stream(device)):
        for first in range(0, len(numbers), BATCH):
            chosen = numbers[first : first + BATCH]
            host = torch.empty(len(chosen), 3, size, size, dtype=torch.uint8)
            for row, number in zip(host, chosen):
                with open(os.path.join(folder, "%06d.image" % number), "rb") as file:
                    file.readinto(row.numpy())
            images = heddle.torch.to_device(host, device)
            copied = torch.cuda.current_stream().record_event()
            batches.put((images, copied, chosen))
    batches.put(None)


def run(device, batches, wrong):
    """Runs the model, and compares the mean of each image with its number."""
    torch.cuda.set_device(device)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1, bias=False), torch.nn.AdaptiveAvgPool2d(1)).to(device)
    torch.nn.init.constant_(model[0].weight, 1 / 3)
    results = []
    while (batch := batches.get()) is not None:
        images, copied, chosen = batch
        stream = torch.cuda.current_stream()
        stream.wait_event(copied)
        images.record_stream(stream)  # the memory serves the loader again only after the model
        with torch.no_grad():
            results.append((model(images.float()).mean((1, 2, 3)), chosen))
    for means, chosen in results:
        wanted = torch.tensor([float(i % 251) for i in chosen])
        wrong.extend((heddle.torch.to_host(means) - wanted).abs().gt(0.5).nonzero().flatten().tolist())


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 224
    refused = heddle.torch.install()
    devices = [i % torch.cuda.device_count() for i in range(2)]
    wrong, threads = [], []
    with tempfile.TemporaryDirectory() as folder:
        make_images(folder, count, size)
        start = time.perf_counter()
        for half, device in enumerate(devices):
            batches = queue.Queue(maxsize=2)
            numbers = list(range(half, count, 2))
            threads.append(threading.Thread(target=load, args=(folder, device, numbers, size, batches)))
            threads.append(threading.Thread(target=run, args=(device, batches, wrong)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - start
    print("%d images on the GPUs %s in %.2f s; pairs without peer access: %s" % (count, devices, seconds, refused))
    for device in sorted(set(devices)):
        stats = heddle.torch.memory_stats(device)
        print("GPU %d: at most %.0f MiB in tensors" % (device, stats["requested_peak_bytes"] / 2**20))
    if wrong:
        sys.exit("%d images gave wrong results" % len(wrong))


main()
