#!/usr/bin/env python3
"""python_hosts.py - the Python package beside NumPy, PyTorch, CuPy, JAX, Numba, cuda.core and RMM on a GPU.

usage: python_hosts.py [--json FILE] [--numba-packages DIRECTORY] [CHECK...]

Each check runs in a process of its own, and prints one line: "NAME: ok", "NAME: FAILED" with the reason, or
"NAME: left out" if its package is not installed. FILE gets the results and the versions of the packages. Put it into
bench/results as DATE-GPU-hosts.json: tools/make-hosts-table makes the table of docs/guide/python.md of these files.
The checks of Numba prefer packages in DIRECTORY: numba-cuda 0.30 needs a release of NumPy before 2.5, for example.
The variable HEDDLE_SHARED_LIBRARY names the library, and PYTHONPATH contains the folder python.
Exit status: 0 if no check failed, and at least one ran.
"""

import concurrent.futures
import ctypes
import faulthandler
import importlib.metadata
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback

N = 1 << 16
CYCLES = 300_000_000  # more than 0.1 s on every GPU
SOURCE = """
extern "C" __global__ void slow_fill(float *x, unsigned long long n, float value, unsigned long long cycles)
{
    long long start = clock64();
    while ((unsigned long long)(clock64() - start) < cycles) {
    }
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (unsigned long long)blockDim.x) {
        x[i] = value;
    }
}
"""
modules = {}  # for each runtime, the kernel above
CHECKS = {}  # name: (function, the packages that it needs)
# For the table: the package, and what a check shows about it.
SHOWS = {
    "numpy_takes": ("numpy", "`numpy.from_dlpack` of a tensor in pinned memory"),
    "torch_takes": ("torch", "`torch.from_dlpack`"),
    "torch_gives": ("torch", "`heddle.from_dlpack`"),
    "cupy_takes": ("cupy", "`cupy.from_dlpack`"),
    "cupy_gives": ("cupy", "`heddle.from_dlpack`"),
    "interface": ("cupy", "`cupy.asarray` inside of a claim"),
    "exchange_c": ("cupy", "work on tensors from `__dlpack_c_exchange_api__`"),
    "lane_calls": ("cupy", "kernels in the stream of a lane (`Lane.run_native`)"),
    "cupy_programs": ("cupy", "`heddle.cupy.install`: random programs"),
    "cupy_streams": ("cupy", "order of memory between streams"),
    "cupy_beside_heddle": ("cupy", "order of memory between arrays and buffers"),
    "cupy_lent_arrays": ("cupy", "`heddle.from_dlpack` of arrays in memory of Heddle"),
    "cupy_lost_stream": ("cupy", "arrays that outlive their stream"),
    "cupy_memory_error": ("cupy", "`OutOfMemoryError` with the holders"),
    "jax_takes": ("jax", "`jax.dlpack.from_dlpack`"),
    "jax_gives": ("jax", "`heddle.from_dlpack`"),
    "numba_kernels": ("numba-cuda", "kernels with `heddle.numba`"),
    "numba_gives": ("numba-cuda", "`heddle.from_dlpack`"),
    "numba_own_tests": ("numba-cuda", "the same results of its own tests"),
    "cuda_core": ("cuda-core", "`heddle.cuda_core.MemoryResource`, launches, claims on its streams"),
    "rmm": ("rmm", "`heddle.rmm.resource`"),
}
LIMIT_S = 110  # of one check
AT_ONCE = 3  # checks
LONG = ("numba_own_tests", "cupy_programs")  # begin first
ALONE = ("cupy_cost",)  # measures


class LeftOut(Exception):
    """The check cannot run here."""


def check(*packages):
    def keep(function):
        CHECKS[function.__name__] = (function, packages)
        return function

    return keep


def must(right, what):
    if not right:
        raise AssertionError(what)


def slow_fill(tensor, value):
    """Submits a kernel that writes the tensor after a long time, and returns its ticket."""
    import heddle

    if tensor.runtime not in modules:
        modules[tensor.runtime] = heddle.compile(SOURCE, runtime=tensor.runtime)
    numbers = (ctypes.c_uint64(tensor.size), ctypes.c_float(value), ctypes.c_uint64(CYCLES))
    return modules[tensor.runtime]["slow_fill"](heddle.out(tensor), *numbers, grid=64, block=256)


def written_late(kind="device", value=3.0):
    """A tensor that a kernel still writes."""
    import heddle

    tensor = heddle.zeros(N, "f32", kind=kind)
    tensor.buffer.wait()
    ticket = slow_fill(tensor, value)
    must(not ticket.done, "the kernel is too quick for this check")
    return tensor, ticket


def stream_of_torch():
    import torch

    torch.cuda.init()
    return torch.cuda.Stream()


# ---- tensors of Heddle for others ----


@check("numpy")
def numpy_takes():
    import numpy as np

    tensor, _ = written_late("pinned")
    must((np.from_dlpack(tensor) == 3).all(), "NumPy read the tensor too early")


@check("torch")
def torch_takes():
    import torch

    torch.ones(N, device="cuda").double().sum().item()  # loads the kernels
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        tensor, ticket = written_late()
        with torch.cuda.stream(stream):
            taken = torch.from_dlpack(tensor)
            must(not ticket.done, "the import waited for the kernel")
            total = taken.double().sum()
            must(total.item() == 3 * N, "PyTorch read the tensor too early: %r" % total.item())


@check("cupy")
def cupy_takes():
    import cupy

    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        float(cupy.zeros(N, "f4").sum(dtype="f8"))  # loads the kernels
        tensor, ticket = written_late()
        with stream:
            taken = cupy.from_dlpack(tensor)
            must(not ticket.done, "the import waited for the kernel")
            total = float(taken.sum(dtype="f8"))
        must(total == 3 * N, "CuPy read the tensor too early: %r" % total)
        del taken  # the end of the loan needs the stream


@check("jax")
def jax_takes():
    import jax
    import jax.numpy as jnp

    must(jax.devices()[0].platform == "gpu", "JAX found no GPU")
    warm = jnp.zeros(N, "float32").sum().item()
    tensor, _ = written_late()
    total = jax.dlpack.from_dlpack(tensor).sum().item() + warm
    must(total == 3 * N, "JAX read the tensor too early: %r" % total)


@check("cupy")
def interface():
    """The CUDA Array Interface inside of a claim on a stream."""
    import cupy
    import heddle

    stream = cupy.cuda.Stream(non_blocking=True)
    tensor, _ = written_late()
    with heddle.claim(write=[tensor], stream=stream), stream:
        view = cupy.asarray(tensor)
        view += 1
    must((tensor.numpy() == 4).all(), "the claim did not order CuPy's work")


# ---- tensors of others for Heddle ----


@check("torch")
def torch_gives():
    import heddle
    import torch

    stream = stream_of_torch()
    with torch.cuda.stream(stream):
        given = torch.zeros(N, device="cuda")
        torch.cuda._sleep(CYCLES)
        given += 5
        taken = heddle.from_dlpack(given, stream=stream)
    must((taken.numpy() == 5).all(), "Heddle read PyTorch's tensor too early")
    taken.buffer.fill(0).wait()
    must(given.sum().item() == 0, "Heddle's write is not in PyTorch's tensor")


@check("cupy")
def cupy_gives():
    import cupy
    import heddle

    slow = cupy.RawKernel(SOURCE, "slow_fill")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = cupy.zeros(N, "f4")
        slow((64,), (256,), (given, cupy.uint64(N), cupy.float32(5), cupy.uint64(CYCLES)))
        taken = heddle.from_dlpack(given, stream=stream)
    must((taken.numpy() == 5).all(), "Heddle read CuPy's array too early")


@check("jax")
def jax_gives():
    import heddle
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda m: (m @ m) * 0 + 5.0)
    given = jnp.ones((2048, 2048), "float32")
    step(given).block_until_ready()
    for _ in range(20):
        given = step(given)
    taken = heddle.from_dlpack(given)
    must((taken.numpy() == 5).all(), "Heddle read JAX's array too early")


@check("cupy")
def exchange_c():
    """A package uses the functions of C at heddle.Tensor, and puts its work into CUDA's default stream."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
    import check_exchange_c as consumer
    import cupy

    slow = cupy.RawKernel(SOURCE, "slow_fill")

    def seen(address):
        data = consumer._Managed.from_address(address).tensor.data
        memory = cupy.cuda.UnownedMemory(data, N * 4, None, 0)
        return cupy.ndarray(N, "f4", cupy.cuda.MemoryPointer(memory, 0))

    for step in range(4):
        float(cupy.zeros(N, "f4").sum(dtype="f8"))
        tensor, _ = written_late()
        address = consumer.export(tensor)
        total = float(seen(address).sum(dtype="f8"))
        must(total == 3 * N, "the package read the tensor too early: %r" % total)
        slow((64,), (256,), (seen(address), cupy.uint64(N), cupy.float32(9), cupy.uint64(CYCLES)))
        consumer.end(address)
        tensor.buffer.fill(step)
        must((tensor.view("u32").numpy() == step).all(), "a late kernel of the package changed the tensor")
        cupy.cuda.Device().synchronize()
        address = consumer.allocate((N,), device_type=2)
        must(isinstance(address, int), address)  # a text is the message of the failure
        slow((64,), (256,), (seen(address), cupy.uint64(N), cupy.float32(5), cupy.uint64(CYCLES)))
        must((consumer.take(address).numpy() == 5).all(), "Heddle read the new tensor too early")


@check("cupy")
def lane_calls():
    """CuPy puts a kernel into the stream of a lane, between two launches of Heddle."""
    import cupy
    import heddle

    slow = cupy.RawKernel(SOURCE, "slow_fill")
    numbers = (cupy.uint64(N), cupy.float32(5), cupy.uint64(CYCLES))
    slow((1,), (1,), (cupy.zeros(1, "f4"), cupy.uint64(1), cupy.float32(0), cupy.uint64(0)))
    for _ in range(3):
        with heddle.lane() as lane:
            tensor, _ = written_late()
            memory = cupy.cuda.UnownedMemory(tensor.buffer.address, N * 4, tensor, 0)
            view = cupy.ndarray(N, "f4", cupy.cuda.MemoryPointer(memory, 0))

            def put(stream, view=view):
                with cupy.cuda.ExternalStream(stream):
                    slow((64,), (256,), (view, *numbers))

            ticket = lane.run_native(put, heddle.out(tensor))
            must(not ticket.done, "the call is done before its kernel")
            must((tensor.numpy() == 5).all(), "the kernels ran in another order")


# ---- CuPy's allocator ----


@check("cupy")
def cupy_programs():
    """Random programs of array operations compute the same as NumPy."""
    import cupy
    import heddle.cupy
    import numpy as np

    seed = random.randrange(1 << 30)
    with heddle.cupy.install() as installed:
        for round_ in range(8):
            program(cupy, np, random.Random(seed + round_), "seed %d" % (seed + round_))
        must(installed.count <= 8, "%d blocks are left" % installed.count)
    return "seed %d" % seed


def program(cupy, np, choose, which):
    pairs = [(cupy.arange(n, dtype="i8"), np.arange(n, dtype="i8")) for n in (1, 1000, 4096, 100_000)]
    operations = [
        lambda m, a, b: a + b[: a.size].sum(),
        lambda m, a, b: (a * 3) ^ 5,
        lambda m, a, b: m.sort(a % 1001),
        lambda m, a, b: m.concatenate([a[::2], b[::3]])[:200_000],
        lambda m, a, b: m.cumsum(a % 7),
        lambda m, a, b: m.where(a % 2 == 0, a, -a),
        lambda m, a, b: m.outer(a[:50], b[:70]).T.ravel(),
        lambda m, a, b: m.roll(a, 17) - m.flip(a),
        lambda m, a, b: m.unique(a % 97),
    ]
    for _ in range(150):
        operation = choose.choice(operations)
        i, j, k = (choose.randrange(len(pairs)) for _ in range(3))
        pairs[k] = (operation(cupy, pairs[i][0], pairs[j][0]), operation(np, pairs[i][1], pairs[j][1]))
    for mine, right in pairs:
        must(np.array_equal(cupy.asnumpy(mine), right), "CuPy computed something else than NumPy, " + which)


def small_runtime():
    """A runtime whose memory fits one large array, so that the next one takes the same memory."""
    import heddle

    return heddle.open(memory_limit="256M", memory_timeout=2000)


LARGE = (160 << 20) // 4  # elements


@check("cupy")
def cupy_streams():
    """Memory that an array leaves goes to another stream only after the work of the first stream."""
    import cupy
    import heddle.cupy

    slow = cupy.RawKernel(SOURCE, "slow_fill")
    same = 0
    with small_runtime() as runtime, heddle.cupy.install(runtime):
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        for step in range(6):
            with streams[step % 2]:
                first = cupy.zeros(LARGE, "f4")
                slow((64,), (256,), (first, cupy.uint64(LARGE), cupy.float32(9), cupy.uint64(CYCLES)))
                address = first.data.ptr
                del first
            with streams[1 - step % 2]:
                second = cupy.full(LARGE, step, "f4")
                same += second.data.ptr == address
            cupy.cuda.Device().synchronize()
            must(bool((second == step).all()), "a late kernel of another stream changed an array")
            del second
        must(same > 0, "no array took the memory of another one, so this check shows nothing")
    return "%d of 6 arrays took the same memory" % same


@check("cupy")
def cupy_beside_heddle():
    """Memory goes from CuPy to buffers of Heddle and back, while kernels of the former owner run."""
    import cupy
    import heddle
    import heddle.cupy

    slow = cupy.RawKernel(SOURCE, "slow_fill")
    with small_runtime() as runtime, heddle.cupy.install(runtime):
        stream = cupy.cuda.Stream(non_blocking=True)
        for step in range(4):
            with stream:
                array = cupy.zeros(LARGE, "f4")
                slow((64,), (256,), (array, cupy.uint64(LARGE), cupy.float32(9), cupy.uint64(CYCLES)))
                del array
            tensor = heddle.empty(LARGE, "f32", runtime=runtime)
            tensor.buffer.fill(step)
            must((tensor.view("u32").numpy() == step).all(), "a late kernel of CuPy changed a buffer")
            slow_fill(tensor, 9.0)
            del tensor
            with stream:
                array = cupy.full(LARGE, step, "f4")
                cupy.cuda.Device().synchronize()
                must(bool((array == step).all()), "a late kernel of Heddle changed an array of CuPy")
                del array


@check("cupy")
def cupy_lent_arrays():
    """A tensor over an array whose memory CuPy took from Heddle: the same bytes, in order with both sides."""
    import cupy
    import heddle
    import heddle.cupy

    slow = cupy.RawKernel(SOURCE, "slow_fill")
    stream = cupy.cuda.Stream(non_blocking=True)
    with heddle.cupy.install() as installed, stream:
        given = cupy.zeros(2 * N, "f4")
        slow((64,), (256,), (given, cupy.uint64(2 * N), cupy.float32(5), cupy.uint64(CYCLES)))
        taken = heddle.from_dlpack(given[N:], stream=stream)
        must((taken.numpy() == 5).all(), "Heddle read CuPy's array too early")
        slow_fill(taken, 7.0)
        with heddle.claim(write=[taken], stream=stream):
            cupy.asarray(taken)[:] += 1
        must((taken.numpy() == 8).all(), "the claim did not order CuPy's work")
        must(float(given[N:].sum(dtype="f8")) == 8 * N, "the tensor is not in CuPy's memory")
        must(float(given[:N].sum(dtype="f8")) == 5 * N, "the tensor is not at its place in the array")
        must(installed.count >= 1, "the array is not in memory of Heddle")
        held = installed.count
        del given
        must(installed.count == held, "CuPy gave memory back that a tensor uses")
        del taken
        must(installed.count == held - 1, "CuPy did not give the memory back")


@check("cupy")
def cupy_lost_stream():
    """The program destroys the stream before the array."""
    import cupy
    import heddle.cupy

    slow = cupy.RawKernel(SOURCE, "slow_fill")
    with small_runtime() as runtime, heddle.cupy.install(runtime):
        for step in range(4):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                first = cupy.zeros(LARGE, "f4")
                slow((64,), (256,), (first, cupy.uint64(LARGE), cupy.float32(9), cupy.uint64(CYCLES)))
            del stream
            other = cupy.cuda.Stream(non_blocking=True)  # may have the handle of the destroyed one
            del first
            with other:
                second = cupy.full(LARGE, step, "f4")
                cupy.cuda.Device().synchronize()
                must(bool((second == step).all()), "a kernel of a destroyed stream changed an array")
                del second


@check("cupy")
def cupy_memory_error():
    import cupy
    import heddle.cupy

    with small_runtime() as runtime, heddle.cupy.install(runtime):
        held = cupy.zeros(LARGE, "f4")
        try:
            cupy.zeros(LARGE, "f4")
        except cupy.cuda.memory.OutOfMemoryError as error:
            must("heddle.alloc" in str(error) and "cupy" in str(error), "the message is not Heddle's: %s" % error)
        else:
            raise AssertionError("no OutOfMemoryError")
        del held
        must(float(cupy.ones(LARGE, "f4").sum()) == LARGE, "no array after the failure")


@check("cupy")
def cupy_cost():
    """Not a test of speed: the note of the result contains the figures."""
    import cupy
    import heddle.cupy

    def microseconds():
        for _ in range(2000):
            cupy.empty(5000, "f4")
        start = time.perf_counter()
        for _ in range(20_000):
            cupy.empty(5000, "f4")
        return (time.perf_counter() - start) / 20_000 * 1e6

    own = microseconds()
    with heddle.cupy.install():
        return "%.2f us for an array with CuPy's pool, %.2f us with Heddle" % (own, microseconds())


# ---- Numba ----

NUMBA_TESTS = {
    "cudadrv": "emm_plugins cuda_ndarray cuda_memory array_attr streams cuda_auto_context cuda_array_slicing",
    "cudapy": "array array_args transpose laplace matmul montecarlo reduction idiv powi gufunc vectorize forall "
    "cuda_array_interface",
}
NUMBA_PARTS = 4  # processes at a time, for each manager


@check("numba.cuda")
def numba_kernels():
    """Kernels of Numba with memory of Heddle."""
    os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "heddle.numba"
    import heddle
    import numpy as np
    from numba import cuda

    @cuda.jit
    def scale(x, factor):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = x[i] * factor + i

    right = np.arange(N, dtype="i8")
    device = cuda.to_device(right)
    for step in range(50):
        stream = cuda.stream()
        more = cuda.to_device(right, stream=stream)
        scale[N // 256, 256, stream](more, step)
        scale[N // 256, 256](device, 3)
        got = more.copy_to_host(stream=stream)
        stream.synchronize()
        must(np.array_equal(got, right * step + np.arange(N)), "Numba computed a wrong result")
        right = right * 3 + np.arange(N)
        del more
        must(np.array_equal(device.copy_to_host(), right), "Numba computed a wrong result")
        device = cuda.to_device(right)
    free, total = cuda.current_context().get_memory_info()
    must(0 < free <= total, "the figures of the memory are %r" % ((free, total),))
    live = heddle.current().memory_stats(0)["live_bytes"]
    must(live >= N * 8, "Numba's memory is not Heddle's, which has %d bytes in use" % live)
    must(np.array_equal(heddle.from_dlpack(device[5:]).numpy(), right[5:]), "the tensor has other elements")
    try:
        device.get_ipc_handle()
    except heddle.Error as error:
        must(error.status == heddle.Status.UNSUPPORTED, str(error))
    else:
        raise AssertionError("an IPC handle of memory that has none")


@check("numba.cuda")
def numba_gives():
    """Numba's own memory, behind much work in the stream."""
    import heddle
    import numpy as np
    from numba import cuda

    @cuda.jit
    def count(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] += 1

    steps, stream = 300, cuda.stream()
    given = cuda.to_device(np.zeros(LARGE, "f4"))
    for _ in range(steps):
        count[LARGE // 256, 256, stream](given)
    taken = heddle.from_dlpack(given, stream=stream)
    must((taken.numpy() == steps).all(), "Heddle read Numba's array too early")
    taken.buffer.fill(0).wait()
    must((given.copy_to_host() == 0).all(), "Heddle's write is not in Numba's array")


@check("numba.cuda", "filecheck")
def numba_own_tests():
    """Tests of Numba's wheel have the same results with the manager as without it."""
    names = ["numba.cuda.tests.%s.test_%s" % (folder, n) for folder, some in NUMBA_TESTS.items() for n in some.split()]
    runs = {}
    for manager in ("default", "heddle.numba"):
        runs[manager] = [start_tests(names[i::NUMBA_PARTS], manager) for i in range(NUMBA_PARTS)]
    results, limit = {}, time.monotonic() + LIMIT_S - 8
    try:
        texts = {manager: "".join(ended_tests(*part, limit) for part in parts) for manager, parts in runs.items()}
    finally:
        for run, _ in (part for parts in runs.values() for part in parts):
            run.kill()  # nothing happens if it ended
    for manager, text in texts.items():
        results[manager] = outcomes(text)
        if len(results[manager]) < 50:
            raise AssertionError("too few tests ran with %s: %s" % (manager, text[-500:]))
    own, ours = results["default"], results["heddle.numba"]
    other = ["%s: %s, not %s" % (n, ours.get(n), own[n]) for n in own if ours.get(n) != own[n]]
    other = [line for line in other if "memmgr" not in line]  # Numba itself skips these with other managers
    must(not other, "%d results differ: %s" % (len(other), "; ".join(other[:8])))
    return "%d tests, %d of them ok" % (len(own), sum(result == "ok" for result in own.values()))


def start_tests(names, manager):
    """Starts tests of Numba, and returns the process and the file for its output."""
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - ended_tests closes it
    environment = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": manager}
    command = [sys.executable, "-m", "unittest", "-v", *names]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=output), output


def ended_tests(run, output, limit):
    """The output of tests of Numba, which must end before the time `limit`."""
    with output:
        run.wait(max(0, limit - time.monotonic()))
        output.seek(0)
        return output.read()


def outcomes(text):
    """The results in the output of unittest -v. A test with a docstring takes two lines."""
    found, name = {}, None
    for line in text.splitlines():
        test = re.match(r"(\w+) \(([\w.]+)\)", line)
        name = test.group(2) + "/" + test.group(1) if test else name
        result = re.search(r"\.\.\. (ok|FAIL|ERROR|expected failure|skipped .*)$", line)
        if name and result:
            found[name] = result.group(1)
            name = None
    return found


# ---- cuda.core and RMM ----


@check("cuda.core")
def cuda_core():
    import heddle
    import heddle.cuda_core
    import numpy as np
    from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    kernel = Program(SOURCE, "c++", ProgramOptions(arch="sm_%s" % device.arch)).compile("cubin").get_kernel("slow_fill")
    pinned = LegacyPinnedMemoryResource().allocate(LARGE * 4)

    def put(where, n, value):
        launch(
            stream, LaunchConfig(grid=64, block=256), kernel, where, np.uint64(n), np.float32(value), np.uint64(CYCLES)
        )

    with small_runtime() as runtime:
        memory = heddle.cuda_core.MemoryResource(device, runtime)
        for step in range(3):
            buffer = memory.allocate(LARGE * 4, stream=stream)
            put(buffer, LARGE, step)
            buffer.copy_to(pinned, stream=stream)
            put(buffer, LARGE, 9)
            buffer.close(stream)
            tensor = heddle.empty(LARGE, "f32", runtime=runtime)
            tensor.buffer.fill(7)
            must((tensor.view("u32").numpy() == 7).all(), "a late kernel of cuda.core changed a buffer")
            stream.sync()
            must((np.from_dlpack(pinned).view("f4") == step).all(), "cuda.core computed a wrong result")
            with heddle.claim(write=[tensor], stream=stream):
                put(tensor.buffer.address, LARGE, step)
            must((tensor.numpy() == step).all(), "the claim did not order the work in the stream")
            del tensor
        must(memory.count == 0, "%d buffers are left" % memory.count)
        try:
            memory.allocate(1 << 30, stream=stream)
        except MemoryError as error:
            must("heddle.alloc" in str(error), str(error))
        else:
            raise AssertionError("no MemoryError")


@check("rmm")
def rmm():
    import heddle.rmm
    import rmm as host

    with small_runtime() as runtime:
        former = host.mr.get_current_device_resource()
        host.mr.set_current_device_resource(heddle.rmm.resource(0, runtime))
        try:
            for step in range(200):
                data = bytes([step]) * (1000 * step + 1)
                must(host.DeviceBuffer.to_device(data).tobytes() == data, "RMM lost bytes")
            try:
                host.DeviceBuffer(size=1 << 30)
            except MemoryError as error:
                must("heddle.alloc" in str(error), "the message is not Heddle's: %s" % error)
            else:
                raise AssertionError("no MemoryError")
        finally:
            host.mr.set_current_device_resource(former)


# ---- running ----

PACKAGES = ("numpy", "torch", "cupy-cuda13x", "cupy-cuda12x", "jax", "numba-cuda", "cuda-core", "rmm-cu13", "rmm-cu12")


def versions():
    import heddle

    found = {"python": "%d.%d.%d" % sys.version_info[:3], "heddle": heddle.__version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def one(name):
    """Runs a check in this process, and prints its result as the last line."""
    function, packages = CHECKS[name]
    faulthandler.enable()
    if name in ("numba_kernels", "numba_gives"):
        os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "heddle.numba"  # Numba reads it when its package is looked for
    for package in packages:
        try:
            importlib.util.find_spec(package) or left_out(package)
        except ModuleNotFoundError:
            left_out(package)
    try:
        print("\nresult: ok%s" % ("; " + note if (note := function()) else ""))
    except Exception as error:
        traceback.print_exc()
        print("\nresult: FAILED: %s: %s" % (type(error).__name__, str(error)[:800].replace("\n", " ")))
        return 1
    return 0


def left_out(package):
    print("\nresult: left out: %s is not installed" % package)
    sys.exit(0)


def environment_of(name, numba_packages):
    """The variables for the process of a check."""
    out = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "HEDDLE_DRIVER": "nvidia"}
    if numba_packages and "numba.cuda" in CHECKS[name][1]:
        folders = [os.path.abspath(numba_packages), out.get("PYTHONPATH", "")]
        out["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)
    return out


def run(name, numba_packages=None):
    """Runs a check in a process of its own, prints its line, and returns its result."""
    start = time.monotonic()
    environment = environment_of(name, numba_packages)
    log = ""
    try:
        command = [sys.executable, os.path.abspath(__file__), "--one", name]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("result: ")]
        result = lines[-1][8:] if lines else "FAILED: ended with status %d" % ended.returncode
        if ended.returncode and not result.startswith("FAILED"):
            result = "FAILED: the process ended with status %d after: %s" % (ended.returncode, result)
        if result.startswith("FAILED"):
            log = "\n".join((ended.stdout + ended.stderr).splitlines()[-25:]) + "\n"
    except subprocess.TimeoutExpired:
        result = "FAILED: took more than %d s" % LIMIT_S
    print("%s%s: %s (%.1f s)" % (log, name, result, time.monotonic() - start), flush=True)
    return result


def write(file, results):
    os.environ["HEDDLE_DRIVER"] = "nvidia"
    import heddle

    gpu = heddle.current().devices[0].name
    facts = {"gpu": gpu, "date": time.strftime("%Y-%m-%d"), "versions": versions(), "checks": results}
    with open(file, "w") as out:
        json.dump(facts, out, indent=1)


def main(words):
    if words[:1] == ["--one"]:
        return one(words[1])
    file = numba_packages = None
    while words[:1] in (["--json"], ["--numba-packages"]):
        if len(words) < 2:
            print("python_hosts: %s needs a path" % words[0])
            return 2
        if words[0] == "--json":
            file = words[1]
        else:
            numba_packages = words[1]
        words = words[2:]
    if numba_packages and not os.path.isdir(numba_packages):
        print("python_hosts: no directory %s" % numba_packages)
        return 2
    names = words or list(CHECKS)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print("python_hosts: no check %s; there are: %s" % (unknown[0], " ".join(CHECKS)))
        return 2
    together = sorted((name for name in names if name not in ALONE), key=lambda name: name not in LONG)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = dict(zip(together, pool.map(lambda name: run(name, numba_packages), together)))
    results.update((name, run(name, numba_packages)) for name in names if name in ALONE)
    if file:
        write(file, results)
    failed = sum(result.startswith("FAILED") for result in results.values())
    left = sum(result.startswith("left out") for result in results.values())
    print("%d checks: %d failed, %d left out" % (len(results), failed, left))
    return 1 if failed or left == len(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
