"""Files in the format of safetensors: their headers, and loading of them into tensors of Heddle.

The format is a number of 8 bytes, a header of JSON with so many bytes, and the elements of all tensors.
"""

from __future__ import annotations

import ctypes as c
import json
import math
import mmap
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar, Union

from ._abi import Type
from ._library import check, lib
from .runtime import DeviceLike, Runtime, current, device_number
from .tensors import Tensor, empty

_MOST_HEADER = 100_000_000
_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8,
}  # fmt: skip
_TYPES = {
    "F64": Type.F64, "F32": Type.F32, "F16": Type.F16, "BF16": Type.BF16, "I64": Type.I64, "I32": Type.I32,
    "I16": Type.I16, "I8": Type.I8, "U64": Type.U64, "U32": Type.U32, "U16": Type.U16, "U8": Type.U8, "BOOL": Type.U8,
    "C64": Type.C64, "F8_E4M3": Type.U8, "F8_E5M2": Type.U8,
}  # fmt: skip

Placement = Union[DeviceLike, Mapping[str, DeviceLike], Callable[[str], DeviceLike]]
Job = TypeVar("Job")


class Entry(NamedTuple):
    """A tensor in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int  # in the file
    nbytes: int


class File:
    """A file whose content this process can read at an address. A ``with`` block ends it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            # a private mapping may be written, so ctypes gives its address; nobody writes it
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.nbytes = len(self._map)
        self._view: Any = c.c_char.from_buffer(self._map)
        self.address = c.addressof(self._view)
        self.metadata: dict[str, str] = {}
        try:
            self.entries = self._read_header()
        except BaseException:
            self.close()
            raise
        if hasattr(mmap, "MADV_WILLNEED"):
            self._map.madvise(mmap.MADV_WILLNEED)

    def _refuse(self, why: str) -> ValueError:
        return ValueError("heddle: %s is no file of safetensors: %s" % (self.path, why))

    def _read_header(self) -> list[Entry]:
        size = int.from_bytes(self._map[:8], "little") if self.nbytes >= 8 else -1
        if not 0 < size <= min(_MOST_HEADER, self.nbytes - 8):
            raise self._refuse("its header has %d bytes" % size)
        try:
            header = json.loads(self._map[8 : 8 + size])
        except ValueError as error:
            raise self._refuse(str(error)) from error
        if not isinstance(header, dict):
            raise self._refuse("its header is no object")
        self.metadata = header.pop("__metadata__", {})
        return [self._read_entry(name, facts, 8 + size) for name, facts in header.items()]

    def _read_entry(self, name: str, facts: Any, start: int) -> Entry:
        try:
            dtype, shape = str(facts["dtype"]), tuple(int(n) for n in facts["shape"])
            first, last = (int(n) for n in facts["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._refuse("the tensor %r lacks facts" % name) from error
        if dtype not in _BITS:
            raise self._refuse("the tensor %r has the unknown type %r" % (name, dtype))
        if min(shape, default=0) < 0 or first < 0 or last - first != math.prod(shape) * _BITS[dtype] // 8:
            raise self._refuse("the tensor %r has %d bytes, which do not fit its shape" % (name, last - first))
        if start + last > self.nbytes:
            raise self._refuse("the tensor %r ends behind the end of the file" % name)
        return Entry(name, dtype, shape, start + first, last - first)

    def close(self) -> None:
        """Ends the mapping."""
        self._view = None
        self._map.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def place_of(name: str, where: Any, default: Any) -> Any:
    """The device of a tensor: `where` is a device for all, a map of names or of their beginnings, or a function.

    In a map, the longest beginning of the name that ends at a dot counts; "" stands for all names.
    """
    if callable(where):
        return where(name)
    if not isinstance(where, Mapping):
        return default if where is None else where
    at = name
    while at not in where and at:
        at = at.rpartition(".")[0]
    if at not in where:
        raise KeyError("heddle: the map of devices lacks %r" % name)
    return where[at]


def in_parallel(jobs: Iterable[tuple[Any, Job]], run: Callable[[list[Job]], None]) -> None:
    """Calls `run` with the jobs of each key, on a thread for each key."""
    groups: dict[Any, list[Job]] = {}
    for key, job in jobs:
        groups.setdefault(key, []).append(job)
    with ThreadPoolExecutor(max(1, len(groups))) as threads:
        for done in [threads.submit(run, group) for group in groups.values()]:
            done.result()


def load_safetensors(
    path: str | os.PathLike[str], device: Placement | None = None, runtime: Runtime | None = None
) -> dict[str, Tensor]:
    """Loads a file of safetensors into tensors on devices, on all devices at once.

    `device` is a device for all tensors, a function of the name, or a map from names of tensors, or of their
    beginnings such as "layers.3", to devices. Types that Heddle lacks become "u8".
    """
    runtime = runtime or current()
    out: dict[str, Tensor] = {}
    with File(path) as file:
        jobs = []
        for e in file.entries:
            number = device_number(place_of(e.name, device, 0))
            out[e.name] = empty(e.shape, _TYPES[e.dtype], device=number, runtime=runtime, label=e.name[-31:])
            jobs.append((number, e))

        def write(entries: list[Entry]) -> None:
            for e in entries:
                if e.nbytes:
                    check(lib.hd_write(out[e.name].buffer._handle, 0, file.address + e.offset, e.nbytes))

        in_parallel(jobs, write)
    return out
