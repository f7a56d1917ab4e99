"""PyTorch on Heddle: its memory on GPUs, copies between the host and GPUs, and loading of files.

``heddle.torch.install()`` makes Heddle the allocator of PyTorch. ``heddle.torch.pool()`` leaves PyTorch's own
allocator in place, and gives it memory with a label. Each of them also serves the copies.

Import this module by ``import heddle.torch``. It needs PyTorch with CUDA, and a runtime of the GPUs in this process.
"""

from __future__ import annotations

import atexit
import ctypes as c
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import _torch
from ._abi import PeerVerdict
from ._library import as_dict, check, encode, sized
from ._torch import native
from .runtime import Runtime, current
from .torch_files import load, load_safetensors
from .torch_memory import begin, number_of, state, to_device, to_host

__all__ = [
    "drop_pool",
    "install",
    "load",
    "load_safetensors",
    "memory_stats",
    "pool",
    "reset_peak_memory_stats",
    "to_device",
    "to_host",
]


# ---- all memory of PyTorch ----


def install(runtime: Runtime | None = None) -> dict[tuple[int, int], str]:
    """Makes Heddle the allocator of all memory of PyTorch on GPUs. Call it before PyTorch uses a GPU.

    Freed memory serves its stream again at once, and any other stream or Heddle's own work after the stream's work.
    Memory of a graph that ``torch.cuda.graph`` captures stays as long as the graph.
    If memory runs out, the exception is a RuntimeError. Its text begins with "CUDA out of memory." and names who holds
    the memory.

    The call tests each pair of GPUs, and lets them use each other's memory. It returns the reasons for those pairs
    (device, owner) that cannot, and warns of them: PyTorch's copies between the two GPUs would fail.

    With Heddle as allocator, ``torch.cuda.memory_stats()`` and pools of PyTorch do not work, which is a rule of
    PyTorch; use heddle.torch.memory_stats().
    """
    if state.installed:
        return {}
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_torch.LIBRARY, "hd_torch_alloc", "hd_torch_free")
    runtime = begin(runtime)
    hooks = allocator.allocator()
    hooks.set_record_stream_fn(_torch.address_of("hd_torch_record_stream"))
    hooks.set_reset_fn(_torch.address_of("hd_torch_empty_cache"))
    hooks.set_memory_fraction_fn(_torch.address_of("hd_torch_set_fraction"))
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise RuntimeError(
            "heddle.torch.install: PyTorch used a GPU already; call install() before the first tensor on a GPU"
        ) from error
    state.installed = True
    state.allocator = allocator
    return _grant_peers(runtime)


def _grant_peers(runtime: Runtime) -> dict[tuple[int, int], str]:
    """Lets each GPU use the memory of each other one, as far as tests find that it works."""
    from .kernels import builtin
    from .tensors import zeros

    refused: dict[tuple[int, int], str] = {}
    for device in runtime.devices:
        for owner in runtime.devices:
            if device is owner:
                continue
            facts = runtime.peer(device, owner)
            if facts["verdict"] in (PeerVerdict.USABLE, PeerVerdict.SLOW):
                lane = runtime.default_lane(device)
                y = zeros(1, "f32", device=device, runtime=runtime)
                x = zeros(1, "f32", device=owner, runtime=runtime)
                # the first launch that uses memory of the owner maps this memory, now and whenever it grows
                builtin(runtime)["hd_axpy_f32"](y=y, x=x, a=1, n=1, threads=1, lane=lane).wait()
                continue
            pair = (state.ordinals[device.number], state.ordinals[owner.number])
            refused[pair] = str(facts["reason"])
            warnings.warn(
                "heddle.torch.install: GPU %d cannot use memory of GPU %d: %s; copy tensors between them by the host"
                % (*pair, facts["reason"]),
                stacklevel=3,
            )
    return refused


def _end() -> None:
    """Before the runtimes close: PyTorch's work on Heddle's memory ends, and later frees do nothing."""
    if state.runtime is not None:
        if torch.cuda.is_initialized():
            for device in range(torch.cuda.device_count()):
                torch.cuda.synchronize(device)
        native.hd_torch_end()
        state.runtime = None


atexit.register(_end)


def memory_stats(device: Any = None) -> dict[str, int]:
    """The figures of PyTorch's memory on a GPU that comes from Heddle.

    "requested_bytes" are the bytes of tensors, "lent_bytes" those of their blocks, "cached_bytes" those of free blocks
    for the next tensors, and "graph_bytes" those that captured graphs keep. "reserved_bytes" is the physical memory
    that the whole runtime holds on the GPU.
    """
    ordinal, number = number_of(device)
    figures = sized(_torch.Figures)
    check(native.hd_torch_get_figures(ordinal, c.byref(figures)))
    out: dict[str, int] = as_dict(figures)
    whole = (state.runtime or current()).memory_stats(number)
    return {**out, "reserved_bytes": whole["reserved_bytes"], "reserved_peak_bytes": whole["reserved_peak_bytes"]}


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets the peaks of memory_stats() count from now on, except that of the reserved memory."""
    native.hd_torch_reset_peak(number_of(device)[0])


# ---- labelled memory for PyTorch's own allocator ----

_pools: dict[str, Any] = {}
_pools_lock = threading.Lock()
_labels = threading.local()


@contextmanager
def pool(label: str, device: Any = None, runtime: Runtime | None = None) -> Iterator[Any]:
    """Tensors that this thread makes in the ``with`` block get their memory from Heddle, under a label.

    PyTorch's own allocator stays in place, with its statistics and graphs. It gets segments from Heddle. A segment is
    one piece of physical memory, which NCCL and network cards can register, and reports name it by the label.
    Blocks with the same label share a pool, which keeps its segments until drop_pool(). `device` is a GPU; by default,
    it is the current one.
    """
    if state.installed:
        raise RuntimeError("heddle.torch.pool: all memory of PyTorch comes from Heddle already (install)")
    begin(runtime)
    with _pools_lock:
        mempool = _pools.get(label)
        if mempool is None:
            allocator = torch.cuda.memory.CUDAPluggableAllocator(
                _torch.LIBRARY, "hd_torch_pool_alloc", "hd_torch_pool_free"
            )
            mempool = _pools[label] = torch.cuda.MemPool(allocator.allocator())
            state.kept.append(allocator)  # PyTorch's pool refers to it
    before = getattr(_labels, "label", "torch pool")
    _labels.label = label
    native.hd_torch_set_label(encode(label))
    try:
        with torch.cuda.use_mem_pool(mempool, device):
            yield mempool
    finally:
        _labels.label = before
        native.hd_torch_set_label(encode(before))


def drop_pool(label: str) -> None:
    """Ends the pool with this label. Its segments go back to Heddle once no tensor is in them."""
    with _pools_lock:
        _pools.pop(label, None)
    torch.cuda.empty_cache()
