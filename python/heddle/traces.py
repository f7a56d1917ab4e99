"""Traces, and the ranges that they show."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _abi
from ._library import check, encode, lib, sized
from ._objects import Single, whole
from .runtime import Runtime, current

_DETAILS = tuple(detail.name.lower() for detail in _abi.TraceDetail)


class Trace(Single):
    """A trace of a runtime: ``heddle.trace()`` makes it, and a ``with`` block begins and ends it."""

    def __init__(self, file: str | os.PathLike[str], detail: str, limit: int, runtime: Runtime | None) -> None:
        if detail not in _DETAILS:
            raise ValueError("heddle.trace: the detail is %r; it can be one of %s" % (detail, ", ".join(_DETAILS)))
        self.file = os.fspath(file)
        self.info: dict[str, Any] = {}
        """After the end: the numbers of records in the file and of dropped records, and the file's size."""
        self._detail = _abi.TraceDetail[detail.upper()]
        self._limit = whole("the limit of a trace", limit)
        self._runtime = runtime
        self._entered = False

    def __enter__(self) -> Trace:
        self._runtime = self._runtime or current()
        options = sized(_abi.TraceOptions, detail=int(self._detail), file_limit=self._limit)
        check(lib.hd_trace_start(self._runtime._handle, encode(self.file), c.byref(options)))
        self._entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        if self._runtime is None or not self._entered:
            raise RuntimeError("heddle.trace: the trace did not begin; use it in a with block")
        self._entered = False
        self.info = self._runtime.stop_trace()


def trace(
    file: str | os.PathLike[str], *, detail: str = "default", limit: int = 0, runtime: Runtime | None = None
) -> Trace:
    """Records the ``with`` block in a file: each operation, its waits and its times.

    ``python -m heddle trace FILE`` analyses the file, and ``python -m heddle report FILE`` makes a page.
    `detail` is "edges", "full" or "cupti"; `limit` is the largest size of the file.
    """
    return Trace(file, detail, limit, runtime)


@contextmanager
def range(name: str, runtime: Runtime | None = None) -> Iterator[None]:
    """Names the ``with`` block in traces, such as "step" or "load"."""
    runtime = runtime or current()
    check(lib.hd_range_push(runtime._handle, encode(name)))
    try:
        yield
    finally:
        check(lib.hd_range_pop(runtime._handle))


def mark(name: str, runtime: Runtime | None = None) -> None:
    """Names this moment in traces, by a range of no length."""
    with range(name, runtime):
        pass
