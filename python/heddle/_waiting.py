"""Waits that Ctrl-C ends, and waits of asyncio.

A wait of the library does not return because of a signal. So a wait here consists of short waits,
and Python handles signals between them.

For asyncio, one thread waits for everything that tasks await. The thread ends when no task waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from ._abi import Status
from ._library import check, last_error
from .errors import Error

SLICE_NS = 50_000_000  # of one wait; Ctrl-C takes effect after at most this time
TURN_NS = 1_000_000  # the same for the thread, which waits for several things in turns

Poll = Callable[[int], int]
"""Waits for at most the given number of nanoseconds, and returns a status."""


def wait(poll: Poll, timeout: float | None = None) -> None:
    """Waits until `poll` returns a status other than TIMEOUT, for at most `timeout` seconds (None: no limit)."""
    if timeout is not None and not timeout >= 0:
        raise ValueError("heddle: the timeout %r is no number of seconds; None means no limit" % (timeout,))
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_NS if end is None else max(0, min(SLICE_NS, int((end - time.monotonic()) * 1e9)))
        status = poll(left)
        if status != Status.TIMEOUT or (end is not None and left < SLICE_NS and time.monotonic() >= end):
            if status == Status.TIMEOUT:
                raise _timed_out(timeout)
            check(status)
            return


def _timed_out(timeout: float | None) -> Error:
    """The failure of the last short wait, with the program's timeout in the message."""
    error = last_error()
    error.message = re.sub(r"after \d+ ns", lambda _: "after %g s" % (timeout or 0), error.message, count=1)
    error.args = (error.message,)
    return error


class _Awaited:
    """One wait of a task."""

    def __init__(self, poll: Poll, loop: asyncio.AbstractEventLoop) -> None:
        self.poll = poll
        self.loop = loop
        self.future: asyncio.Future[None] = loop.create_future()

    def finish(self, error: Error | None) -> None:
        """Runs in the loop's thread."""
        if self.future.done():  # cancelled
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)

    def is_over(self, nanoseconds: int) -> bool:
        """Waits for a while. True: the task knows the outcome, or waits no longer."""
        if self.future.cancelled() or self.loop.is_closed():
            return True
        status = self.poll(nanoseconds)
        if status == Status.TIMEOUT:
            return False
        error = last_error() if status else None
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(self.finish, error)
        return True


class _Waiter:
    """The thread that waits for tasks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.awaited: list[_Awaited] = []
        self.runs = False

    def add(self, one: _Awaited) -> None:
        with self.lock:
            self.awaited.append(one)
            if self.runs:
                return
            self.runs = True
        threading.Thread(target=self.run, name="heddle-await", daemon=True).start()

    def run(self) -> None:
        turn = 0
        while True:
            with self.lock:
                if not self.awaited:
                    self.runs = False
                    return
                now = list(self.awaited)
            turn += 1
            over = [one for i, one in enumerate(now) if one.is_over(TURN_NS if i == turn % len(now) else 0)]
            if over:
                with self.lock:
                    self.awaited = [one for one in self.awaited if one not in over]


_waiter = _Waiter()


def _begin_again() -> None:
    """In a child made by fork(), the parent's thread does not exist."""
    global _waiter
    _waiter = _Waiter()


os.register_at_fork(after_in_child=_begin_again)


def wait_in_loop(poll: Poll) -> Generator[Any, None, None]:
    """The body of __await__: waits without blocking the running loop."""
    status = poll(0)
    if status != Status.TIMEOUT:
        check(status)
        return
    one = _Awaited(poll, asyncio.get_running_loop())
    _waiter.add(one)
    yield from one.future.__await__()
