"""Lanes: in-order queues of work on a device."""

from __future__ import annotations

import ctypes as c
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import _waiting
from ._abi import Ticket as _TicketValue
from ._library import check, lib
from ._objects import Single
from .tickets import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from .arguments import Use
    from .claims import Claim
    from .runtime import Device, Runtime

_entered: ContextVar[tuple[Lane, ...]] = ContextVar("heddle_lanes", default=())


class Lane(Single):
    """An in-order queue of work on a device.

    In a ``with`` block, calls without the argument `lane` submit their work to this lane.
    Heddle takes the lane back when no object of Python refers to it any more; submitted work still runs.

    >>> import heddle
    >>> with heddle.lane(device=0) as lane:
    ...     x = heddle.zeros(100, "f32")
    >>> lane.wait(timeout=60)
    """

    def __init__(self, runtime: Runtime, handle: Any, owned: bool) -> None:
        self._runtime = runtime
        self._handle = handle
        self._owned = owned

    @property
    def runtime(self) -> Runtime:
        """The runtime of the lane."""
        return self._runtime

    @property
    def device(self) -> Device:
        """The device of the lane."""
        return self._runtime.devices[int(lib.hd_lane_device(self._handle))]

    @property
    def number(self) -> int:
        """The number of the lane on its device."""
        return int(lib.hd_lane_number(self._handle))

    def ticket(self) -> Ticket:
        """A ticket for everything that was submitted to the lane so far."""
        out = _TicketValue()
        check(lib.hd_lane_get_ticket(self._handle, c.byref(out)))
        return Ticket(self._runtime, out)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until everything in the lane is finished, for at most `timeout` seconds (None: no limit)."""
        _waiting.wait(lambda ns: int(lib.hd_lane_wait(self._handle, ns)), timeout)

    def reset(self, timeout: float | None = None) -> None:
        """Lets the lane accept work again after a failure. Waits until all work in the lane is finished."""
        _waiting.wait(lambda ns: int(lib.hd_lane_reset(self._handle, ns)), timeout)

    def add_dependency(self, on: Ticket | Claim) -> Ticket:
        """Lets later work in the lane wait for a ticket or a claim. The call itself does not wait for it."""
        ticket = on if isinstance(on, Ticket) else on.ticket
        out = _TicketValue()
        check(lib.hd_lane_add_dependency(self._handle, ticket._value, c.byref(out)))
        return Ticket(self._runtime, out)

    def run_native(self, function: Callable[[int], object], *uses: Use) -> Ticket:
        """Submits a call of `function`, which puts work of another package into the lane's stream.

        `uses` lists the tensors that this work uses: in_(x), out(x) or inout(x). When the turn of the call comes,
        the engine calls the function with the handle of the stream. All lanes of the device wait until it returns.
        The function must not call Heddle, and must not wait for the device. If it raises an exception, the call fails,
        and the lane refuses work until reset(). Fails with UNSUPPORTED if placement is process.

        >>> import heddle
        >>> x, seen = heddle.zeros(4), []
        >>> with heddle.lane() as lane:
        ...     lane.run_native(seen.append, heddle.inout(x)).wait(60)
        >>> len(seen)
        1
        """
        from ._calls import run_native

        return run_native(self, function, uses)

    def keep_times(self, on: bool = True) -> None:
        """Makes the lane keep the end times of its operations, for Ticket.elapsed_since."""
        check(lib.hd_lane_keep_times(self._handle, on))

    def close(self) -> None:
        """Gives the lane back. Submitted work still runs, and its tickets stay valid."""
        handle, self._handle = self._handle, None
        if handle and self._owned and self._runtime.is_usable:
            check(lib.hd_lane_destroy(handle))

    def __enter__(self) -> Lane:
        if not self._handle:
            raise ValueError("heddle: the lane is closed; make another one by heddle.lane()")
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _entered.set(_entered.get()[:-1])

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and self._owned and self._runtime.is_usable:
            lib.hd_lane_destroy(handle)

    def __repr__(self) -> str:
        if not self._handle:
            return "<heddle.Lane, closed>"
        return "<heddle.Lane %d of device %d>" % (self.number, lib.hd_lane_device(self._handle))


def current_lane() -> Lane | None:
    """The lane of the innermost ``with lane:`` of this thread or task; None without one."""
    lanes = _entered.get()
    return lanes[-1] if lanes else None


def choose(lane: Lane | None, runtime: Runtime, device: int | None) -> Lane:
    """The lane for a call: the given one, else the current one if it fits, else the thread's default lane."""
    if lane is not None:
        return lane
    current = current_lane()
    fits = current is not None and current._handle and current._runtime is runtime
    if current is not None and fits and device in (None, lib.hd_lane_device(current._handle)):
        return current
    return runtime.default_lane(device or 0)
