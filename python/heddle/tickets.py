"""Tickets: positions in lanes, which show whether an operation is done."""

from __future__ import annotations

import ctypes as c
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from . import _waiting
from ._library import check, lib
from ._objects import Single

if TYPE_CHECKING:
    from .runtime import Runtime


class Ticket(Single):
    """The position of an operation in a lane.

    A program can wait for a ticket, or await it in asyncio:

    >>> import heddle
    >>> x = heddle.zeros(1000, "f32")
    >>> ticket = x.buffer.fill(7)
    >>> ticket.wait(timeout=60)
    >>> ticket.done
    True
    """

    __slots__ = ("__weakref__", "_runtime", "_value")

    def __init__(self, runtime: Runtime, value: Any) -> None:
        self._runtime = runtime
        self._value = value

    @property
    def done(self) -> bool:
        """True if the operation is finished, with or without success. The property never blocks."""
        return bool(lib.hd_done(self._value))

    def _poll(self, nanoseconds: int) -> int:
        return int(lib.hd_wait(self._value, nanoseconds))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the operation is finished, for at most `timeout` seconds (None: no limit).

        Raises Error: TIMEOUT if the time passed, FAILED or DEVICE_LOST if the operation failed.
        Ctrl-C ends the wait.
        """
        _waiting.wait(self._poll, timeout)

    def __await__(self) -> Generator[Any, None, None]:
        return _waiting.wait_in_loop(self._poll)

    def elapsed_since(self, earlier: Ticket) -> float:
        """The seconds from the end of another operation to the end of this one, by the device's clock.

        Both operations must be done, and their lanes must keep times (Lane.keep_times).
        """
        out = c.c_int64()
        check(lib.hd_ticket_get_elapsed(earlier._value, self._value, c.byref(out)))
        return out.value / 1e9

    def __repr__(self) -> str:
        return "<heddle.Ticket %d, %s>" % (self._value.sequence, "done" if self.done else "not done")
