"""Lenders: memory of Heddle for the allocators of other packages (python/native/lender.c).

Threads: any. The functions of C release the interpreter's lock.
"""

from __future__ import annotations

import ctypes as c
import weakref

from ._abi import Status
from ._library import check, last_error
from .dlpack import _native, device_of
from .errors import Error
from .runtime import Runtime, current
from .tensors import empty

_python = c.pythonapi
_FUNCTIONS = {
    "begin": (None, [c.c_void_p, c.c_void_p]),
    "make": (c.c_void_p, [c.c_void_p, c.c_char_p, c.POINTER(c.c_int), c.c_int, c.c_void_p]),
    "lend": (c.c_void_p, [c.c_void_p, c.c_size_t, c.c_int, c.c_void_p]),
    "find": (c.c_void_p, [c.c_void_p, c.c_void_p]),
    "return": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    "return_in_order": (c.c_int, [c.c_void_p, c.c_void_p]),
    "count": (c.c_uint64, [c.c_void_p]),
}
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(_native, "hd_python_lender_" + _name)
    _function.restype, _function.argtypes = _result, _arguments
_native.hd_python_lender_begin(
    c.cast(_python.PyEval_SaveThread, c.c_void_p), c.cast(_python.PyEval_RestoreThread, c.c_void_p)
)


def _ordinals(runtime: Runtime) -> dict[int, int]:
    """The device of the runtime for each number of a device in the driver."""
    if runtime.driver != "nvidia":
        return {device.number: device.number for device in runtime.devices}
    return {device_of(empty(1, device=device, runtime=runtime))[1]: device.number for device in runtime.devices}


_lenders: weakref.WeakKeyDictionary[Runtime, dict[str, Lender]] = weakref.WeakKeyDictionary()


def lender(label: str, runtime: Runtime | None = None, stream: int | None = None) -> Lender:
    """The one lender of a runtime for the package `label`."""
    runtime = runtime or current()
    known = _lenders.setdefault(runtime, {})
    if label not in known:
        known[label] = Lender(label, runtime, stream)
    return known[label]


def lent_at(address: int, runtime: Runtime | None) -> tuple[Runtime, int] | None:
    """The runtime that lent the memory at this address, and the handle of the buffer. None: no runtime lent it.

    With a runtime, only loans of this runtime count.
    """
    for owner, known in list(_lenders.items()):
        if owner.is_usable and runtime in (None, owner):
            for loans in list(known.values()):
                handle = _native.hd_python_lender_find(loans.handle, address)
                if handle:
                    return owner, int(handle)
    return None


class Lender:
    """Lends memory to one package. `stream` is the address of the function of C that names CuPy's current stream."""

    def __init__(self, label: str, runtime: Runtime, stream: int | None) -> None:
        self._runtime = weakref.ref(runtime)
        if runtime.placement == "process":
            raise Error(
                Status.UNSUPPORTED,
                "heddle.%s: with placement=process, memory of a device has no address in this process; "
                "open the runtime with placement=thread" % label,
            )
        self.label = label
        numbers = _ordinals(runtime)
        n = max(numbers) + 1
        devices = (c.c_int * n)(*[numbers.get(i, -1) for i in range(n)])
        self.handle = _native.hd_python_lender_make(runtime._handle, label.encode(), devices, n, stream)
        if not self.handle:
            raise last_error()
        self._numbers = numbers

    @property
    def runtime(self) -> Runtime:
        """The runtime that lends the memory."""
        runtime = self._runtime()
        if runtime is None:
            raise ReferenceError("heddle.%s: the runtime is gone; keep the runtime" % self.label)
        return runtime

    @property
    def is_usable(self) -> bool:
        """True if the runtime is open."""
        runtime = self._runtime()
        return runtime is not None and runtime.is_usable

    @property
    def ordinals(self) -> list[int]:
        """The numbers of the devices in the driver."""
        return list(self._numbers)

    def device_of(self, ordinal: int) -> int:
        """The device of the runtime that the driver counts as `ordinal`."""
        if ordinal not in self._numbers:
            raise Error(
                Status.NO_DEVICE,
                "heddle.%s: the runtime does not contain the driver's device %d; open the runtime with this device "
                "(option devices)" % (self.label, ordinal),
            )
        return self._numbers[ordinal]

    def lend(self, nbytes: int, ordinal: int, stream: int = 0) -> int:
        """The address of memory for work in a stream (0: the legacy default stream)."""
        address = _native.hd_python_lender_lend(self.handle, max(1, nbytes), ordinal, stream)
        if not address:
            raise last_error()
        return int(address)

    def take_back(self, address: int, stream: int | None = None) -> None:
        """Ends a loan. Heddle uses the memory again after the work that is in the stream now.

        Without a stream, it is the stream in which the memory was lent.
        """
        if stream is None:
            check(_native.hd_python_lender_return_in_order(self.handle, address))
        else:
            check(_native.hd_python_lender_return(self.handle, address, stream))

    @property
    def count(self) -> int:
        """The number of loans."""
        return int(_native.hd_python_lender_count(self.handle))

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """The bytes that a loan can still get on a device of the driver, and all bytes for loans."""
        device = self.runtime.devices[self.device_of(ordinal)]
        info, stats = device.info(), device.memory()
        free = int(info["memory_free_bytes"]) + int(stats["reserved_bytes"])
        limit = int(stats["limit_bytes"]) or int(info["memory_bytes"])
        return max(0, min(limit, free) - int(stats["taken_bytes"])), min(limit, int(info["memory_bytes"]))


def is_out_of_memory(error: Error) -> bool:
    """True if the driver or the limit has no more memory."""
    return error.status in (Status.MEMORY, Status.HOST_MEMORY)
