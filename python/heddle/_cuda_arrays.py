"""Arrays that only have __cuda_array_interface__, such as those of Numba, in DLPack's form.

Threads: any; Heddle calls the deleter on a thread of its own, which takes the interpreter's lock.
"""

from __future__ import annotations

import ctypes as c
from typing import Any

from ._abi import DlpackFlags
from ._exchange import _Managed, _View
from ._library import check, lib
from .dlpack import CPU, CUDA, CUDA_MANAGED
from .runtime import Runtime

_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLPack's numbers for the letters of NumPy
_IS_MANAGED, _ORDINAL = 8, 9  # CU_POINTER_ATTRIBUTE_*
_held: dict[int, tuple[Any, ...]] = {}  # for each managed tensor, what must live as long


def drop(address: int) -> None:
    """The deleter of a managed tensor."""
    _held.pop(address, None)


_DELETER = c.CFUNCTYPE(None, c.c_void_p)(drop)


def _place(runtime: Runtime, address: int) -> tuple[int, int]:
    """DLPack's kind and number of the device with the memory."""
    entry = c.c_void_p()
    check(lib.hd_driver_entry(runtime.driver.encode(), b"cuPointerGetAttribute", c.byref(entry)))
    attribute_of = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.c_uint64)(entry.value or 0)
    ordinal, managed = c.c_int(), c.c_int()
    if attribute_of(c.addressof(ordinal), _ORDINAL, address):
        raise BufferError("heddle.from_dlpack: the array at %#x is in no memory of a device" % address)
    if runtime.driver != "nvidia":
        return CPU, 0
    is_managed = attribute_of(c.addressof(managed), _IS_MANAGED, address) == 0 and managed.value & 0xFF
    return CUDA_MANAGED if is_managed else CUDA, ordinal.value


def _type(name: str) -> tuple[int, int]:
    """DLPack's code and the bytes of an element."""
    code, size = _CODES.get(name[1:2]), name[2:]
    if code is None or not size.isdigit() or (name[0] == ">" and size != "1"):
        raise BufferError("heddle.from_dlpack: no type of elements is %r; convert the array first" % name)
    return code, int(size)


def managed_of(producer: Any, runtime: Runtime) -> tuple[int, int | None]:
    """The address of a managed tensor that keeps the producer, and the number of the producer's stream.

    The stream is None for memory of host devices.
    """
    facts = producer.__cuda_array_interface__
    if facts.get("mask") is not None:
        raise BufferError("heddle.from_dlpack: the array contains a mask, which a tensor cannot")
    code, size = _type(facts["typestr"])
    shape, strides = facts["shape"], facts.get("strides")
    if strides and any(step % size for step in strides):
        raise BufferError("heddle.from_dlpack: the strides %r are no multiples of %d bytes" % (strides, size))
    data, readonly = facts["data"]
    kind, number = _place(runtime, data) if data else (CPU if runtime.driver != "nvidia" else CUDA, 0)
    extents = (c.c_int64 * max(1, len(shape)))(*shape)
    steps = (c.c_int64 * max(1, len(shape)))(*[step // size for step in strides]) if strides else None
    view = _View(
        data=data, device_type=kind, device_id=number, dims=len(shape), code=code, bits=8 * size, lanes=1, shape=extents
    )
    if steps is not None:
        view.strides = steps
    flags = int(DlpackFlags.READ_ONLY) if readonly else 0
    managed = _Managed(major=1, minor=0, deleter=c.cast(_DELETER, c.c_void_p), flags=flags, tensor=view)
    address = c.addressof(managed)
    _held[address] = (managed, extents, steps, producer)
    return address, None if kind == CPU else int(facts.get("stream") or 1)
