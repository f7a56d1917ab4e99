"""The runtime: the devices of this machine and everything on them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import gc
import json
import os
import sys
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Union

from . import _abi
from ._library import as_dict, check, encode, lib, sized, text
from ._objects import INT, Single, whole
from .errors import Error
from .lanes import Lane, current_lane

if TYPE_CHECKING:
    from .kernels import Module

_HOST = _abi.DEVICE_HOST


class Device(Single):
    """A device of a runtime: a GPU, or a host device, its stand-in on the CPU."""

    def __init__(self, runtime: Runtime, number: int) -> None:
        self._runtime = weakref.ref(runtime)
        self.number = number
        info = self.info()
        self.name = str(info["name"])
        self.is_host = bool(info["is_host"])

    @property
    def runtime(self) -> Runtime:
        """The runtime of the device."""
        runtime = self._runtime()
        if runtime is None:
            raise ReferenceError("heddle: the runtime of this device is gone; keep the runtime")
        return runtime

    def info(self) -> dict[str, Any]:
        """The properties of the device: the fields of the structure hd_device_info of C."""
        out = sized(_abi.DeviceInfo)
        check(lib.hd_device_get_info(self.runtime._handle, self.number, c.byref(out)))
        return as_dict(out)

    def stats(self) -> dict[str, Any]:
        """The counters of the device since the runtime was opened (hd_device_stats)."""
        out = sized(_abi.DeviceStats)
        check(lib.hd_device_get_stats(self.runtime._handle, self.number, c.byref(out)))
        return as_dict(out)

    def memory(self) -> dict[str, Any]:
        """The figures of the device's memory (hd_memory_stats)."""
        return self.runtime.memory_stats(self.number)

    @property
    def is_lost(self) -> bool:
        """True after the loss of the device, until a restart."""
        return bool(self.info()["lost"])

    def lane(self) -> Lane:
        """Makes a lane on the device."""
        return self.runtime.lane(self.number)

    def restart(self) -> None:
        """Brings the lost device back (placement process). The call blocks until the device works."""
        check(lib.hd_device_restart(self.runtime._handle, self.number))

    def __index__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return "<heddle.Device %d: %s>" % (self.number, self.name)


DeviceLike = Union[Device, int]


class Runtime(Single):
    """An open runtime. ``heddle.open()`` makes it, and ``close()`` or the end of a ``with`` block ends it.

    A runtime belongs to the process that opened it: in a child made by fork(), its calls fail with HANDLE.

    >>> import heddle
    >>> with heddle.open(driver="host") as runtime:
    ...     runtime.devices[0].is_host
    True
    """

    def __init__(self, settings: str | None = None, **options: object) -> None:
        self._handle: int | None = None
        words = [settings] if settings else []
        words += ["%s=%s" % (name, _option(name, value)) for name, value in options.items()]
        handle = c.c_void_p()
        chosen = sized(_abi.Options, settings=encode(" ".join(words)))
        check(lib.hd_open(c.byref(chosen), c.byref(handle)))
        self._handle = handle.value
        self._process = os.getpid()
        self.devices: tuple[Device, ...] = tuple(Device(self, i) for i in range(lib.hd_device_count(handle)))
        facts = sized(_abi.RuntimeInfo)
        check(lib.hd_runtime_get_info(handle, c.byref(facts)))
        self.driver = text(facts.driver)
        self.placement = text(facts.placement)
        limit = int(self.options()["transfer_timeout"])
        self.transfer_timeout: float | None = None if limit < 0 else limit / 1000
        _registry.add(self)

    @property
    def is_usable(self) -> bool:
        """True if the runtime is open, and this process opened it."""
        return self._handle is not None and self._process == os.getpid()

    def close(self) -> None:
        """Closes the runtime: waits until submitted work is finished, then releases everything.

        The wait takes at most the time of the option close_timeout.
        In a child made by fork(), the call does nothing.
        Raises Error if something was left as it is; the runtime is closed nevertheless.
        """
        usable = self.is_usable
        handle, self._handle = self._handle, None
        _registry.remove(self)
        if handle and usable:
            check(lib.hd_close(handle))

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and self.is_usable:
            warnings.warn("heddle: a runtime was not closed; call close()", ResourceWarning, stacklevel=2)
            self.close()

    def info(self) -> dict[str, Any]:
        """The driver, the placement and the number of devices (hd_runtime_info)."""
        out = sized(_abi.RuntimeInfo)
        check(lib.hd_runtime_get_info(self._handle, c.byref(out)))
        return as_dict(out)

    def options(self) -> dict[str, str]:
        """The value of each option."""
        out: dict[str, str] = {}
        info = sized(_abi.OptionInfo)
        while True:
            status = lib.hd_option_get_info(self._handle, len(out), c.byref(info))
            if status == _abi.Status.NOT_FOUND:
                return out
            check(status)
            out[text(info.name)] = text(info.value)

    # ---- lanes ----

    def lane(self, device: DeviceLike = 0) -> Lane:
        """Makes a lane on a device."""
        out = c.c_void_p()
        check(lib.hd_lane_create(self._handle, number_of(device, self), c.byref(out)))
        return Lane(self, out.value, owned=True)

    def default_lane(self, device: DeviceLike = 0) -> Lane:
        """The default lane of the calling thread on a device."""
        out = c.c_void_p()
        check(lib.hd_lane_get_default(self._handle, number_of(device, self), c.byref(out)))
        return Lane(self, out.value, owned=False)

    # ---- traces ----

    def stop_trace(self) -> dict[str, Any]:
        """Ends the running trace of the runtime, such as one that Ctrl-C left running. Returns its facts."""
        out = sized(_abi.TraceInfo)
        check(lib.hd_trace_stop(self._handle, c.byref(out)))
        return as_dict(out)

    # ---- kernels ----

    def load(self, path: str | os.PathLike[str]) -> Module:
        """Loads a kernel file that ``heddle cc`` made, or PTX, a cubin or a fatbin."""
        from .kernels import load

        return load(path, runtime=self)

    # ---- memory ----

    def memory(self) -> dict[str, Any]:
        """A report on the memory of all devices, with the labels whose buffers hold the most memory."""
        report: dict[str, Any] = json.loads(_report(lambda *a: int(lib.hd_memory_report(self._handle, 1, *a))))
        return report

    def memory_text(self) -> str:
        """The same report for people, as ``heddle info --memory`` prints it."""
        return _report(lambda *a: int(lib.hd_memory_report(self._handle, 0, *a)))

    def memory_stats(self, device: DeviceLike | None = None) -> dict[str, Any]:
        """The figures of a device's memory, or of pinned host memory (None)."""
        number = _HOST if device is None else number_of(device, self)
        out = sized(_abi.MemoryStats)
        check(lib.hd_memory_get_stats(self._handle, number, c.byref(out)))
        return as_dict(out)

    def trim(self, device: DeviceLike | None = None, keep_bytes: int = 0) -> int:
        """Returns unused memory of a device to the driver, or unused pinned memory (None). Returns its size."""
        number = _HOST if device is None else number_of(device, self)
        freed = c.c_size_t()
        kept = whole("keep_bytes", keep_bytes)
        check(lib.hd_memory_trim(self._handle, number, kept, c.byref(freed)))
        return freed.value

    # ---- devices together ----

    def peer(self, device: DeviceLike, owner: DeviceLike) -> dict[str, Any]:
        """How a device can use the memory of another device (hd_peer_info). Tests the pair if necessary."""
        out = sized(_abi.PeerInfo)
        pair = (number_of(device, self), number_of(owner, self))
        check(lib.hd_peer_check(self._handle, *pair, c.byref(out)))
        facts = as_dict(out)
        facts["verdict"] = _abi.PeerVerdict(out.verdict)
        return facts

    def losses(self) -> list[dict[str, Any]]:
        """The losses of devices that no earlier call returned (hd_device_loss), the oldest first."""
        out: list[dict[str, Any]] = []
        loss = sized(_abi.DeviceLoss)
        while True:
            status = lib.hd_loss_next(self._handle, c.byref(loss))
            if status == _abi.Status.NOT_FOUND:
                return out
            check(status)
            out.append({**as_dict(loss), "cause": _abi.LossCause(loss.cause)})

    def __repr__(self) -> str:
        if self._handle is None:
            return "<heddle.Runtime, closed>"
        return "<heddle.Runtime: %s, %s, %d devices>" % (self.driver, self.placement, len(self.devices))


def _option(name: str, value: object) -> str:
    """The text of an option's value."""
    out = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    if len(out) > 1 and out[0] == out[-1] == '"':
        return out  # quoted already
    if '"' in out or "\n" in out or "\0" in out:
        raise ValueError("heddle.open: the option %s is %r; options contain no quotes and one line" % (name, out))
    return '"%s"' % out if any(character in out for character in " ,\t") else out


def _report(call: Any) -> str:
    """The text of a report, whose size may grow between two calls."""
    needed = c.c_size_t(4096)
    while True:
        room = needed.value
        out = c.create_string_buffer(room)
        check(call(out, room, c.byref(needed)))
        if needed.value <= room:
            return text(out.value)


class _Registry:
    """The open runtimes of this process, the oldest first."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Also in a child made by fork(): the parent's runtimes are not usable there."""
        self.lock = threading.RLock()
        self.open: list[weakref.ref[Runtime]] = []
        self.own: Runtime | None = None  # the one that current() opened

    def add(self, runtime: Runtime) -> None:
        with self.lock:
            self.open.append(weakref.ref(runtime))

    def remove(self, runtime: Runtime) -> None:
        with self.lock:
            self.open = [one for one in self.open if one() is not None and one() is not runtime]
            if self.own is runtime:
                self.own = None

    def usable(self) -> list[Runtime]:
        found = [one() for one in self.open]
        return [runtime for runtime in found if runtime is not None and runtime.is_usable]

    def current(self) -> Runtime:
        with self.lock:
            found = self.usable()
            if found:
                return found[0]
            self.own = Runtime()
            return self.own

    def close_all(self) -> None:
        """At the end of the interpreter: later, no function of Python could be called any more.

        The objects of Python end with the interpreter, so their claims end and their buffers are freed first.
        """
        runtimes = self.usable()
        if runtimes:
            _drop_objects()
        for runtime in runtimes:
            try:
                _close_at_exit(runtime)
            except Error as error:
                sys.stderr.write("heddle: at the end of the program: %s\n" % error)


def _drop_objects() -> None:
    """Ends the claims, and frees the buffers, of all objects of Python."""
    from .buffers import Buffer
    from .claims import Claim

    found = gc.get_objects()
    for claim in [one for one in found if type(one) is Claim]:
        with contextlib.suppress(Error):
            claim.end(failed=True)
    for buffer in [one for one in found if type(one) is Buffer]:
        with contextlib.suppress(Error):
            buffer.free()


def _close_at_exit(runtime: Runtime) -> None:
    """Closes a runtime, unless another package still holds a tensor: hd_close would wait for it in vain."""
    if not runtime.memory()["claims_count"]:
        runtime.close()
        return
    with contextlib.suppress(Error):  # no trace runs
        runtime.stop_trace()
    runtime._handle = None  # so that the finalizer does not close it


_registry = _Registry()
atexit.register(_registry.close_all)
os.register_at_fork(after_in_child=_registry.begin)


def open(settings: str | None = None, **options: object) -> Runtime:
    """Opens the devices of this machine: the GPUs, or host devices if there is none.

    `settings` is a text such as "driver=host host_devices=2"; keywords set single options, such as devices="0,2".
    """
    return Runtime(settings, **options)


def current() -> Runtime:
    """The runtime of calls without the argument `runtime`.

    In a ``with lane:`` block, it is the runtime of the lane. Elsewhere, it is the runtime that the program opened
    first and did not close. If there is none, the call opens one.
    """
    lane = current_lane()
    return lane.runtime if lane is not None and lane.runtime.is_usable else opened_first()


def opened_first() -> Runtime:
    """The runtime that the program opened first and did not close."""
    return _registry.current()


def lane(device: DeviceLike = 0, runtime: Runtime | None = None) -> Lane:
    """Makes a lane on a device of the current runtime."""
    return runtime_for(runtime, None, device).lane(device)


def memory_report(pid: int = 0) -> dict[str, Any]:
    """A report on the memory of another process, or of all processes of this user (0)."""
    number = whole("the process", pid, 0, INT)
    report: dict[str, Any] = json.loads(_report(lambda *a: int(lib.hd_memory_report_of(number, 1, *a))))
    return report


def number_of(device: DeviceLike, runtime: Runtime | None = None) -> int:
    """The number of a device, which must belong to the runtime."""
    if isinstance(device, Device):
        if runtime is not None and device.runtime is not runtime:
            raise ValueError("heddle: %r belongs to another runtime than the call; pass one of its own" % (device,))
        return device.number
    return whole("the device", device, 0, INT)


def device_number(device: DeviceLike | None, runtime: Runtime | None = None) -> int | None:
    """The number of a device; None stays None."""
    return None if device is None else number_of(device, runtime)


def runtime_for(runtime: Runtime | None, lane: Lane | None, device: DeviceLike | None) -> Runtime:
    """The runtime of a call: the given one, that of its lane, that of its device, or the current one."""
    if runtime is not None:
        return runtime
    if lane is not None:
        return lane.runtime
    return device.runtime if isinstance(device, Device) else current()
