"""Loading of files into tensors of PyTorch on GPUs: safetensors, and those of torch.save."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any

import torch

from .safetensors import Entry, File, in_parallel, place_of
from .torch_memory import SMALL_BYTES, begin, bytes_of, number_of, to_device

THREADS_PER_GPU = 2
"""While one thread begins or ends the copy of a tensor, the other one keeps the link busy."""

_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U64": torch.uint64, "U32": torch.uint32,
    "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


def _fill(out: Any, source: int) -> None:
    """Copies bytes of the host at `source` into a tensor on a GPU."""
    nbytes = out.numel() * out.element_size()
    if nbytes >= SMALL_BYTES:
        with bytes_of(out) as there:
            there.write(source)
    elif nbytes:
        view = (c.c_char * nbytes).from_address(source)
        out.copy_(torch.frombuffer(view, dtype=out.dtype).view(out.shape))


def load_safetensors(path: str | os.PathLike[str], device: Any = None) -> dict[str, Any]:
    """Loads a file of safetensors into tensors on GPUs, on all of them at once.

    `device` is a GPU for all tensors, a function of the name, or a map from names of tensors, or of their beginnings
    such as "layers.3", to GPUs. Later work in the current stream of each GPU comes after the copies.
    """
    begin(None)
    out: dict[str, Any] = {}
    with File(path) as file:
        jobs: list[tuple[tuple[int, int], tuple[Any, Entry]]] = []
        for i, e in enumerate(file.entries):
            ordinal = number_of(place_of(e.name, device, None))[0]
            out[e.name] = torch.empty(e.shape, dtype=_TYPES[e.dtype], device=torch.device("cuda", ordinal))
            jobs.append(((ordinal, i // 2 % THREADS_PER_GPU), (torch.cuda.current_stream(ordinal), e)))

        def write(group: list[tuple[Any, Entry]]) -> None:
            stream = group[0][0]
            with torch.cuda.stream(stream):
                for _, e in group:
                    _fill(out[e.name], file.address + e.offset)
            stream.synchronize()  # PyTorch's copies of small tensors read the file

        in_parallel(jobs, write)
    return out


def load(path: str | os.PathLike[str], device: Any = None, weights_only: bool = True) -> Any:
    """Loads a file of torch.save, with all tensors on GPUs.

    `device` is as for load_safetensors; the name of a tensor is the path of the keys that lead to it, with dots.
    Tensors that share memory in the file share it on the GPU.
    """
    begin(None)
    found = torch.load(path, map_location="cpu", mmap=True, weights_only=weights_only)
    moved: dict[tuple[int, int], Any] = {}

    def move(t: Any, name: str) -> Any:
        if not isinstance(t, torch.Tensor) or t.device.type != "cpu":
            return t
        ordinal = number_of(place_of(name, device, None))[0]
        storage = t.untyped_storage()
        key = (storage.data_ptr(), ordinal)
        if key not in moved:
            host = torch.empty(0, dtype=torch.uint8).set_(storage)
            moved[key] = (host, to_device(host, ordinal))  # the host's tensor keeps its address from others
        flat = moved[key][1].untyped_storage()
        there = torch.empty(0, dtype=t.dtype, device=moved[key][1].device)
        there.set_(flat, t.storage_offset(), t.size(), t.stride())
        return torch.nn.Parameter(there, t.requires_grad) if isinstance(t, torch.nn.Parameter) else there

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            for key in list(value):
                value[key] = walk(value[key], "%s.%s" % (name, key) if name else str(key))
            return value
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(walk(one, "%s.%d" % (name, i) if name else str(i)) for i, one in enumerate(value))
        return move(value, name)

    return walk(found, "")
