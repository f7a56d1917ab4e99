"""Lane calls: functions of the program that put work into a lane's stream.

Threads: the engine's thread calls the functions (placement=inline: a thread that submits or waits).
Always: a call is in the table until its function begins. A later call removes calls that ended without it.
"""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _abi
from ._abi import Access, Status
from ._library import check, lib
from .arguments import Use, buffer_argument
from .errors import Error
from .tickets import Ticket

if TYPE_CHECKING:
    from .lanes import Lane


class _Call:
    """A function that the engine did not call yet, or its exception."""

    def __init__(self, function: Callable[[int], object]) -> None:
        self.function: Callable[[int], object] | None = function
        self.exception: BaseException | None = None
        self.ticket: Ticket | None = None


class _CallTicket(Ticket):
    """A ticket whose failure is caused by the exception of the function."""

    __slots__ = ("_call",)
    _call: _Call

    def wait(self, timeout: float | None = None) -> None:
        """Waits as Ticket.wait does."""
        try:
            super().wait(timeout)
        except Error as error:
            raise error from self._call.exception


_numbers = itertools.count(1)
_calls: dict[int, _Call] = {}


def _run(stream: int | None, number: int) -> int:
    call = _calls.pop(number)
    function, call.function = call.function, None
    try:
        if function is not None:
            function(stream or 0)
        return 0
    except BaseException as exception:
        call.exception = exception
        return int(Status.FAILED)


_RUN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)(_run)


def run_native(lane: Lane, function: Callable[[int], object], uses: tuple[Use, ...]) -> Ticket:
    """The method Lane.run_native."""
    for number, old in list(_calls.items()):
        if old.ticket is not None and old.ticket.done:
            _calls.pop(number, None)
    where = "Lane.run_native"
    args = (_abi.Arg * max(1, len(uses)))(*[buffer_argument(where, use, Access(0)) for use in uses])
    call, number, out = _Call(function), next(_numbers), _abi.Ticket()
    _calls[number] = call
    try:
        check(lib.hd_lane_run_native(lane._handle, c.cast(_RUN, c.c_void_p), number, args, len(uses), c.byref(out)))
    except BaseException:
        _calls.pop(number, None)
        raise
    ticket = _CallTicket(lane.runtime, out)
    ticket._call = call
    call.ticket = Ticket(lane.runtime, out)
    return ticket
