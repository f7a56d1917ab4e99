#!/usr/bin/env python3
"""torch_alloc.py - measures PyTorch's caching allocator with the workloads of this folder and with recorded logs.

usage: bench/peers/torch_alloc.py [--python] [--quick] [LOG...]

Measures two configurations in separate processes: the default (peer "pytorch"), and expandable_segments:True (peer
"pytorch-expandable"). If a C++ compiler and the CUDA headers are available, loops in torch_native.cpp call the
allocator's C++ functions. Otherwise, or with --python, Python calls the allocator. The figures then include the cost
of Python, and threads take turns. Prints one JSON line per workload; harness.py describes the fields. peak_allocated
is PyTorch's own figure, in rounded bytes.
Exit status: 77 if PyTorch is not installed or no GPU is available.
"""

import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import harness

ALLOCATORS = {"pytorch": "", "pytorch-expandable": "expandable_segments:True"}
CHOSEN = "HEDDLE_PEER_ALLOCATOR"  # the configuration that a process measures; the parent sets it


def start(name):
    environment = dict(os.environ)
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        environment.pop(variable, None)
    if ALLOCATORS[name]:
        # older versions read the second name
        environment["PYTORCH_ALLOC_CONF"] = environment["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[name]
    environment[CHOSEN] = name
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode


class TorchPeer(harness.PythonPeer):
    def __init__(self, torch, name):
        self.torch = torch
        self.name = name
        self.made = []  # streams other than the default one
        self.streams = [0]  # the handles of all streams
        self.facts = {"version": torch.__version__, "gpu": torch.cuda.get_device_name(0), "settings": ALLOCATORS[name]}
        torch.cuda.init()
        torch.cuda.set_device(0)
        # torch.cuda.caching_allocator_alloc and _delete switch devices around every call; these functions do not
        self.allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self.free = torch._C._cuda_cudaCachingAllocator_raw_delete

    def stream(self, number):
        while len(self.streams) <= number:
            self.made.append(self.torch.cuda.Stream())
            self.streams.append(self.made[-1].cuda_stream)
        return self.streams[number]

    def with_handles(self, operations):
        return [(*one[:3], self.stream(one[3])) if one[0] == "a" else one for one in operations]

    def replay(self, operations, timed=False):
        return super().replay(self.with_handles(operations), timed)

    def clear(self):
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()

    def peak_reserved(self):
        stats = self.torch.cuda.memory_stats()
        self.facts["peak_allocated"] = stats["allocated_bytes.all.peak"]
        return stats["reserved_bytes.all.peak"]


class Operation(ctypes.Structure):
    _fields_ = [("block", ctypes.c_int64), ("bytes", ctypes.c_int64), ("stream", ctypes.c_int64)]


class NativeTorchPeer(TorchPeer):
    """Calls the C++ functions of the allocator."""

    def __init__(self, torch, name, library):
        super().__init__(torch, name)
        self.library = library
        self.prepared = {}

    def call(self, function, *arguments):
        """Calls a function of the library that writes nanoseconds and a message. Returns the nanoseconds."""
        taken = ctypes.c_double()
        message = ctypes.create_string_buffer(1024)
        if function(*arguments, ctypes.byref(taken), message, ctypes.c_size_t(len(message))) != 0:
            raise RuntimeError(message.value.decode("utf-8", "replace"))
        return taken.value

    def pairs(self, size, repeats, threads=1, timed=False):
        times = (ctypes.c_int64 * (repeats * threads))() if timed else None
        taken = self.call(self.library.native_pairs, ctypes.c_size_t(size), ctypes.c_int64(repeats), threads, times)
        return list(times) if timed else taken

    def prepare(self, operations):
        """Converts operations for the library, and makes room for their blocks. Keeps both for the next call."""
        if id(operations) not in self.prepared:
            calls = (Operation * len(operations))()
            most = 0
            for call, operation in zip(calls, operations):
                call.block = operation[1]
                most = max(most, operation[1] + 1)
                if operation[0] == "a":
                    call.bytes, call.stream = operation[2], operation[3]
                    self.stream(operation[3])
            # also keeps the sequence itself, so that no other one gets its id
            self.prepared = {id(operations): (operations, calls, (ctypes.c_void_p * most)())}
        return self.prepared[id(operations)][1:]

    def run(self, operations, times):
        calls, blocks = self.prepare(operations)
        handles = (ctypes.c_int64 * len(self.streams))(*self.streams)
        try:
            taken = self.call(self.library.native_run, calls, ctypes.c_int64(len(calls)), handles, blocks, times)
        except RuntimeError:
            self.library.native_free(blocks, ctypes.c_int64(len(blocks)))
            raise
        return taken, blocks

    def replay(self, operations, timed=False):
        times = (ctypes.c_int64 * len(operations))() if timed else None
        taken, blocks = self.run(operations, times)
        self.library.native_free(blocks, ctypes.c_int64(len(blocks)))
        return list(times) if timed else taken

    @contextlib.contextmanager
    def holding(self, operations):
        _, blocks = self.run(operations, None)
        try:
            yield
        finally:
            self.library.native_free(blocks, ctypes.c_int64(len(blocks)))


def include_folders(torch):
    """The folders of the headers of PyTorch and, if they are found, of the CUDA runtime."""
    folders = [os.path.join(torch.__path__[0], "include")]
    packages = sysconfig.get_paths()["purelib"]
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    roots += [os.path.join(packages, "nvidia", name) for name in ("cu13", "cuda_runtime")]
    for root in roots:
        if root and os.path.exists(os.path.join(root, "include", "cuda_runtime_api.h")):
            return folders + [os.path.join(root, "include")]
    return None


def build(torch, folder):
    """Builds the library from torch_native.cpp. Returns None, after a message, if this fails."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    folders = include_folders(torch)
    if not compiler or not folders:
        print("torch_alloc.py: no C++ compiler or no CUDA headers: measuring from Python", file=sys.stderr)
        return None
    path = os.path.join(folder, "torch_native.so")
    libraries = os.path.join(torch.__path__[0], "lib")
    command = [compiler, "-O2", "-std=c++17", "-shared", "-fPIC", "-pthread"]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command += [word for one in folders for word in ("-isystem", one)]
    command += ["-o", path, os.path.join(harness.HERE, "torch_native.cpp"), "-L", libraries, "-lc10_cuda", "-lc10"]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    try:
        if made.returncode != 0:
            raise OSError(made.stdout[-1500:])
        return ctypes.CDLL(path)
    except OSError as error:
        print(f"torch_alloc.py: torch_native.cpp does not build here; measuring from Python\n{error}", file=sys.stderr)
        return None


def main():
    options = harness.command_line(__doc__, [("--python", "call from Python even where C++ could be used")])
    if importlib.util.find_spec("torch") is None:
        harness.skip("torch_alloc.py", "Python has no PyTorch here")
    if CHOSEN not in os.environ:
        statuses = [start(name) for name in ALLOCATORS]
        return max(statuses)
    import torch

    if not torch.cuda.is_available():
        harness.skip("torch_alloc.py", "PyTorch sees no GPU here")
    with tempfile.TemporaryDirectory() as folder:
        library = None if options.python else build(torch, folder)
        name = os.environ[CHOSEN]
        peer = NativeTorchPeer(torch, name, library) if library else TorchPeer(torch, name)
        return harness.measure(peer, options, python=library is None)


if __name__ == "__main__":
    sys.exit(main())
