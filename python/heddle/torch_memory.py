"""Tensors of PyTorch as memory of Heddle: which runtime serves them, and copies between the host and GPUs."""

from __future__ import annotations

import ctypes as c
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import _abi, _waiting
from ._abi import Access
from ._library import check, lib, sized
from ._torch import native, use_large_pages
from .runtime import Runtime, current

SMALL_BYTES = 256 << 10
"""PyTorch itself copies smaller tensors, which takes less time than the order of two libraries."""


class State:
    """The runtime that serves PyTorch in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runtime: Runtime | None = None
        self.installed = False
        self.allocator: Any = None
        self.kept: list[Any] = []
        self.ordinals: list[int] = []  # PyTorch's numbers of the runtime's devices


state = State()


def _call_driver(name: str, *arguments: Any) -> None:
    entry = c.c_void_p()
    check(lib.hd_driver_entry(b"nvidia", name.encode(), c.byref(entry)))
    code = c.CFUNCTYPE(c.c_int, *(type(a) if isinstance(a, c.c_int) else c.c_void_p for a in arguments))(
        entry.value or 0
    )(*arguments)
    if code:
        raise RuntimeError("heddle.torch: the driver's call %s failed with the code %d" % (name, code))


def _ordinals(runtime: Runtime) -> list[int]:
    """PyTorch's numbers of the runtime's devices. They are those of the driver."""
    count = c.c_int()
    _call_driver("cuDeviceGetCount", c.byref(count))
    found: dict[bytes, int] = {}
    for i in range(count.value):
        device, uuid = c.c_int(), (c.c_uint8 * 16)()
        _call_driver("cuDeviceGet", c.byref(device), c.c_int(i))
        _call_driver("cuDeviceGetUuid", c.byref(uuid), device)
        found[bytes(uuid)] = i
    return [found[device.info()["uuid"]] for device in runtime.devices]


def begin(runtime: Runtime | None) -> Runtime:
    """Lets a runtime serve PyTorch. Later calls return the same runtime."""
    with state.lock:
        if state.runtime is not None:
            if runtime not in (None, state.runtime):
                raise RuntimeError("heddle.torch: another runtime serves PyTorch already; use that one")
            return state.runtime
        runtime = runtime or current()
        if runtime.driver != "nvidia" or runtime.placement == "process":
            raise RuntimeError(
                "heddle.torch: the runtime's driver is %s and its placement %s; PyTorch needs GPUs in this process: "
                'heddle.open(driver="nvidia", placement="thread")' % (runtime.driver, runtime.placement)
            )
        ordinals = _ordinals(runtime)
        check(native.hd_torch_begin(runtime._handle, (c.c_int * len(ordinals))(*ordinals), len(ordinals)))
        state.ordinals = ordinals
        state.runtime = runtime
        return runtime


def number_of(device: Any) -> tuple[int, int]:
    """PyTorch's and Heddle's number of a GPU of PyTorch."""
    found = torch.device("cuda" if device is None else device if not isinstance(device, int) else "cuda:%d" % device)
    if found.type != "cuda":
        raise ValueError("heddle.torch: %r is no GPU" % (device,))
    ordinal = torch.cuda.current_device() if found.index is None else int(found.index)
    if ordinal not in state.ordinals:
        raise ValueError("heddle.torch: the runtime lacks GPU %d; open it with all devices" % ordinal)
    return ordinal, state.ordinals.index(ordinal)


# ---- the memory of tensors ----


class _Imports:
    """The imports that exist now. Only one import of the same bytes can exist at a time."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.ranges: list[tuple[int, int]] = []

    @contextmanager
    def of(self, runtime: Runtime, number: int, address: int, nbytes: int) -> Iterator[int]:
        """The handle of a buffer over this memory."""
        mine = (address, address + nbytes)
        with self.changed:
            while any(low < mine[1] and mine[0] < high for low, high in self.ranges):
                self.changed.wait()
            self.ranges.append(mine)
        try:
            out = c.c_void_p()
            options = sized(_abi.ImportOptions, label=b"torch tensor")
            check(lib.hd_import(runtime._handle, number, address, nbytes, c.byref(options), c.byref(out)))
            try:
                yield out.value or 0
            finally:
                lib.hd_free(out.value)
        finally:
            with self.changed:
                self.ranges.remove(mine)
                self.changed.notify_all()


_imports = _Imports()


class Bytes:
    """The bytes of a contiguous tensor on a GPU, as a range of a buffer of Heddle."""

    def __init__(self, runtime: Runtime, ordinal: int, number: int, handle: int, offset: int, nbytes: int) -> None:
        self.runtime, self.number, self.handle, self.offset, self.nbytes = runtime, number, handle, offset, nbytes
        self.stream = torch.cuda.current_stream(ordinal).cuda_stream

    def order(self) -> None:
        """Later work of Heddle comes after the stream's work so far, and the stream's later work after Heddle's."""
        use = _abi.Arg(kind=_abi.ArgKind.BUFFER, access=int(Access.READ_WRITE), offset=self.offset, size=self.nbytes)
        use.value.buffer = self.handle
        options = sized(_abi.ClaimOptions, label=b"torch copy")
        claim = c.c_void_p()
        runtime = self.runtime._handle
        check(
            lib.hd_claim_begin_stream(
                runtime, self.number, self.stream, c.byref(use), 1, c.byref(options), c.byref(claim)
            )
        )
        check(lib.hd_claim_end(claim.value, 0))

    def write(self, source: int) -> None:
        """Copies bytes of the host at `source` to the GPU."""
        self.order()
        check(lib.hd_write(self.handle, self.offset, source, self.nbytes))
        self.order()

    def read(self, target: int) -> None:
        """Copies the bytes to the host at `target`. Ctrl-C ends the wait for the work that writes them."""
        self.order()
        limit = self.runtime.transfer_timeout
        _waiting.wait(lambda ns: int(lib.hd_buffer_wait(self.handle, Access.READ, ns)), limit)
        check(lib.hd_read(self.handle, self.offset, target, self.nbytes))


@contextmanager
def bytes_of(t: Any) -> Iterator[Bytes]:
    """The bytes of a contiguous tensor on a GPU."""
    runtime = begin(None)
    ordinal, number = number_of(t.device)
    nbytes, address = t.numel() * t.element_size(), t.data_ptr()
    base = t.untyped_storage().data_ptr()
    handle = native.hd_torch_find(base)
    if handle:
        yield Bytes(runtime, ordinal, number, handle, address - base, nbytes)
    else:
        with _imports.of(runtime, number, address, nbytes) as handle:
            yield Bytes(runtime, ordinal, number, handle, 0, nbytes)


# ---- copies ----


def to_device(t: Any, device: Any = None) -> Any:
    """Copies a tensor of PyTorch from the host to a GPU, through pinned memory that Heddle keeps.

    The tensor may be in ordinary memory. The call returns when Heddle has read it; the bytes may still be under way.
    Work that the program puts into the current stream of the GPU comes after the copy.
    """
    begin(None)
    where = torch.device("cuda", number_of(device)[0])
    if t.device.type != "cpu" or t.numel() * t.element_size() < SMALL_BYTES:
        return t.to(where)
    source = t.detach().contiguous()
    out = torch.empty(source.shape, dtype=source.dtype, device=where)
    with bytes_of(out) as there:
        there.write(source.data_ptr())
    return out.requires_grad_(t.requires_grad)


def to_host(t: Any, out: Any = None) -> Any:
    """Copies a tensor of PyTorch from a GPU to the host, after the work in the current stream of the GPU.

    `out` is a contiguous tensor of the host with the same shape and type. Without it, the call makes one in ordinary
    memory. The call returns when the tensor has arrived.
    """
    begin(None)
    if out is None:
        out = torch.empty(t.shape, dtype=t.dtype)
        use_large_pages(out.data_ptr(), out.numel() * out.element_size())
    if out.device.type != "cpu" or out.shape != t.shape or out.dtype != t.dtype or not out.is_contiguous():
        raise ValueError("heddle.torch.to_host: out is no contiguous tensor of the host with this shape and type")
    if t.device.type != "cuda" or t.numel() * t.element_size() < SMALL_BYTES:
        return out.copy_(t)
    source = t.detach().contiguous()
    with bytes_of(source) as there:
        there.read(out.data_ptr())
    return out
