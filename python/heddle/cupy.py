"""CuPy's allocator is Heddle: arrays of CuPy and buffers of Heddle share one pool and one limit.

>>> import heddle.cupy                           # doctest: +SKIP
>>> with heddle.cupy.install():                  # doctest: +SKIP
...     x = cupy.arange(1000)

An array uses its memory in the stream of CuPy that is current when CuPy makes the array, as with
CuPy's own pool. After the array is dropped, Heddle uses the memory again behind all work that this
stream contains at that time. If other streams use the array, let this stream wait for them first.
"""

from __future__ import annotations

import atexit
import ctypes as c
import gc
from typing import Any

import cupy
import cupy_backends.cuda.stream

from ._lenders import is_out_of_memory, lender
from ._library import last_error
from .dlpack import _native
from .runtime import Runtime

_name_of = c.PYFUNCTYPE(c.c_void_p, c.py_object)(("PyCapsule_GetName", c.pythonapi))
_pointer_of = c.PYFUNCTYPE(c.c_void_p, c.py_object, c.c_void_p)(("PyCapsule_GetPointer", c.pythonapi))
_installed: list[Installation] = []


def _current_stream_function() -> int:
    """CuPy's function of C that returns the current stream of the calling thread."""
    table = getattr(cupy_backends.cuda.stream, "__pyx_capi__", {})
    capsule = table.get("get_current_stream_ptr")
    if capsule is None or c.string_at(_name_of(capsule)) != b"intptr_t (void)":
        raise ImportError("heddle.cupy: CuPy %s does not name its current stream to C" % cupy.__version__)
    return int(_pointer_of(capsule, _name_of(capsule)))


class Installation:
    """Heddle as CuPy's allocator. The end of a ``with`` block, or uninstall(), brings back the former allocator.

    Arrays that exist then keep their memory, so the runtime must stay open while they exist.
    """

    def __init__(self, runtime: Runtime | None) -> None:
        self._lender = lender("cupy", runtime, _current_stream_function())
        address = [c.cast(f, c.c_void_p).value for f in (_native.hd_python_cupy_lend, _native.hd_python_cupy_return)]
        self._inner = cupy.cuda.memory.CFunctionAllocator(self._lender.handle, *address, self)
        self._former = cupy.cuda.get_allocator()
        cupy.cuda.set_allocator(self.malloc)

    @property
    def runtime(self) -> Runtime:
        """The runtime that lends the memory."""
        return self._lender.runtime

    @property
    def count(self) -> int:
        """The number of blocks that CuPy holds now."""
        return self._lender.count

    def malloc(self, nbytes: int) -> Any:
        """CuPy's allocator. Raises cupy.cuda.memory.OutOfMemoryError with the message of Heddle."""
        pointer = self._inner.malloc(nbytes)
        if nbytes and not pointer.ptr:
            if is_out_of_memory(last_error()) and gc.collect():
                pointer = self._inner.malloc(nbytes)  # arrays in cycles held memory
            if not pointer.ptr:
                raise self._failure(nbytes)
        return pointer

    def _failure(self, nbytes: int) -> Exception:
        error = last_error()
        if not is_out_of_memory(error):
            return error
        device = self._lender.device_of(cupy.cuda.device.get_device_id())
        stats = self.runtime.memory_stats(device)
        out = cupy.cuda.memory.OutOfMemoryError(nbytes, stats["live_bytes"], stats["limit_bytes"])
        out.args = ("%s %s" % (out, error.message),)
        return out  # type: ignore[no-any-return]

    def uninstall(self) -> None:
        """Brings back CuPy's former allocator. Later calls change nothing."""
        if self in _installed:
            _installed.remove(self)
            cupy.cuda.set_allocator(self._former)

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.uninstall()


def install(runtime: Runtime | None = None) -> Installation:
    """Makes Heddle CuPy's allocator, in all threads. The result may begin a ``with`` block.

    Arrays that CuPy made before keep their memory. CuPy's `using_allocator` still works in a thread.
    """
    if _installed:
        raise RuntimeError("heddle.cupy: Heddle is CuPy's allocator already; call uninstall() first")
    made = Installation(runtime)
    _installed.append(made)
    return made


def uninstall() -> None:
    """Brings back the allocator that CuPy used before install()."""
    if _installed:
        _installed[-1].uninstall()


def _finish() -> None:
    """At the end of the interpreter, before the runtimes close: kernels of CuPy may still use the memory."""
    for made in list(_installed):
        made.uninstall()
        for ordinal in made._lender.ordinals:
            cupy.cuda.Device(ordinal).synchronize()


atexit.register(_finish)
__all__ = ["Installation", "install", "uninstall"]
